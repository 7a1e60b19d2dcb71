"""Replay a log of scores and outcomes through many methods, as production would have, and compare them."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from .result import BacktestResult

__all__ = ["BacktestResult", "backtest"]


def backtest(
    scores: Any,
    outcomes: Any = None,
    keys: Any = None,
    times: Any = None,
    outcome_times: Any = None,
    *,
    score: Any = None,
    outcome: Any = None,
    key: Any = None,
    time: Any = None,
    outcome_time: Any = None,
    label: str | None = None,
    id: str | None = None,  # noqa: A002 - as the column and the option are called
    rivals: Any = None,
    groups: Any = None,
    methods: Any = None,
    bins: int = 10,
    warmup: int | None = None,
    delay: int | str = 0,
    mature: Any = None,
    score_kind: str = "probability",
    insist: bool = False,
    positive: Any = None,
    decimal: str = ".",
    time_zone: str | None = None,
    time_format: str | None = None,
    split: str | None = None,
    blank_key: str | None = None,
    skip_bad: bool = False,
    sort: bool = False,
    seed: int = 0,
    threshold: float | None = None,
    cost_fp: float | None = None,
    cost_fn: float | None = None,
    keep_forecasts: bool = False,
    title: str = "Backtest",
    classes: Any = None,
    delimiter: str | None = None,
) -> BacktestResult:
    """Replay scores and outcomes through many methods, exactly as production would have, and compare them.

    Parameters
    ----------
    scores, outcomes : in the order in which the scores were issued: lists, NumPy arrays, or series of pandas, polars
        or Arrow. A missing outcome (None, NaN): the event is forecast, and not judged. `scores` may also be a data
        frame (or a mapping); its columns are then named by `score`, `outcome`, `key`, `time` and `outcome_time`.
        Or the path of a log: a CSV, JSON Lines, Parquet or Arrow file, a folder, or a glob. It is read as `calibeat
        backtest` reads it: columns that are not named are guessed, and ``time="none"`` switches a guess off.
    score : in a frame or a file, one name, or several: the scores of several models are compared. The first is the raw
        score. Beside a column of scores, a mapping from names to the columns of the other models.
    outcome, key, time, outcome_time : the same as `outcomes`, `keys`, `times` and `outcome_times`: names of columns in
        a frame or a file, else columns. Either name will do, not both.
    rivals : forecasts that others made for the same events, judged beside ours: names of columns of the frame, or a
        mapping from names to columns.
    keys : the stream of each event; each key gets parameters of its own.
    groups : attributes of the events that are known when the score is issued, such as country and device: names of
        columns of the frame, or a mapping from names to columns. ``"hour(at)"``, ``"weekday(at)"`` and ``"month(at)"``
        are those of a column of times. "AUTO + groups" is then compared too, and the report tells which segments are
        miscalibrated. A `Groups` in the place of the names says more: crossings, cells, a seed.
    times, outcome_times : when a score was issued and when its outcome was known. An outcome is learnt before the next
        forecast after its arrival; outcomes that arrive between two forecasts are learnt in the order of arrival. An
        outcome that is missing together with its time has not arrived: its event is forecast, and not judged.
    methods : names of presets, methods, or a mapping from names to methods. If not given, ten of constant cost, and
        ``"base rate"``: the share of ones so far, whatever the score. A method may also be an object with
        ``predict(score)`` and ``update(score, outcome)``, or a function that makes one: see docs/own-method.md.
        ``"isotonic"``, ``"sigmoid"`` and ``"river-sgd"`` are those of other libraries.
    bins : of the calibration error and the reliability diagram.
    warmup : the number of events with an outcome at the start that are not scored, for any method. If not given: a
        twentieth of the outcomes among the first 20,000 events, which is 1,000 where each has one.
    delay : how late outcomes arrive: a number of events, or a time such as ``"30min"``, ``"2h"``, ``"7d"``.
    mature : the age at which outcomes are learnt, ones and zeros alike: a number of events, or a time such as
        ``"7d"``. An outcome that arrives later is learnt when it arrives. Until a stream has learnt its first outcome,
        forecasts are the raw scores. See docs/late-outcomes.md.
    score_kind : "probability", "percent" or "logit".
    insist : whether scores are of that kind also where all of them lie in [0, 1]. If not given, percent of which none
        is above 1, and 20 or more logits of which none is outside [0, 1], are refused.
    positive : the value of an outcome that counts as 1; every other counts as 0. If not given: 0 and 1, -1 and 1,
        booleans, or words such as yes and no.
    decimal : the mark before the decimals of numbers in text: "." or ",".
    time_zone : of times that are written without one: "UTC", "+02:00" or "Europe/Paris".
    time_format : of times in text, as in ``strptime``: "%d/%m/%Y %H:%M". If not given, ISO 8601 or numbers.
    split : a date: the events before it and those from it on are also judged apart.
    blank_key : the stream of events whose key is missing. If not given, they are bad rows.
    skip_bad : skip rows that cannot be used and count them, instead of refusing the log.
    sort : put the events in the order of their times.
    seed : for methods that draw.
    threshold : act where the forecast is at least this; the report then shows what calibrated forecasts change in
        actions and cost. Or, instead of it:
    cost_fp, cost_fn : what an action for nothing costs, and what a missed event costs, in any one unit. Their threshold
        is cost_fp / (cost_fp + cost_fn).
    keep_forecasts : also keep every forecast, in ``result.forecasts``.
    title : of the report.
    classes : the names of the classes, where the scores are a matrix without names.
    label, id, delimiter : of a file. `label` is the column of the class, where there are many; `score` then names the
        columns of the scores: ``"p_*"``, or several names. `id` is a column of ids that must not come twice.
        `delimiter` stands between the columns of a CSV; if not given, the header shows it.

    **Many classes.** Where `scores` is a matrix or a data frame of K columns and outcomes are given, these are labels:
    the names of the columns (without what all share, such as ``p_``), of `classes`, or column numbers. The methods are
    then "raw", "fts" and "swts" (temperature scaling that is fixed, or fitted on a sliding window), "ots" and "multi".
    There are no rivals and no costs. Monitors, keys and reliability are about the top class: the confidence in it, and
    whether it was right. See docs/multiclass.md.

    Raises
    ------
    InvalidInput : if columns or options cannot be used (the message names the first bad row), or nothing can be judged.
    UnknownMethod : if no preset has a name in `methods`.
    MissingExtra : if a method of another library is asked for, and the library is not installed.

    >>> import calibeat
    >>> result = calibeat.backtest([0.9, 0.6] * 600, [1, 0] * 600, methods="ops", delay=20)
    >>> result.payload["delay"]["events_quantiles"]["50%"]
    20.0

    >>> import polars
    >>> frame = polars.DataFrame({"p": [0.9, 0.6] * 600, "y": ["won", "lost"] * 600})
    >>> calibeat.backtest(frame, score="p", outcome="y", positive="won", methods="ops").best
    'ops'

    >>> calibeat.backtest("log.csv", score="p", outcome="y").best    # doctest: +SKIP
    'auto'

    >>> result = calibeat.backtest([[0.6, 0.3, 0.1]] * 1200, [0, 1, 2] * 400, methods=["ots", "multi"])
    >>> result.best, result.table["method"].tolist()
    ('multi', ['raw', 'ots', 'multi'])
    """
    given = locals()
    from .options import Options  # now, so that `import calibeat` is light
    from .read.named import Given
    from .run import run_arrays, run_files

    options = Options(**{each.name: given[each.name] for each in fields(Options) if each.name != "typed"})
    log = Given.of(given)
    if log.path is not None:
        return run_files(log, options, keep_forecasts=keep_forecasts)
    return run_arrays(log.columns(options), options, keep_forecasts=keep_forecasts)
