"""Replay a log of scores and outcomes through many methods, as production would have, and compare them."""

from __future__ import annotations

from typing import Any

from calibeat.errors import InvalidInput

from .result import BacktestResult

__all__ = ["BacktestResult", "backtest"]


def backtest(
    scores: Any,
    outcomes: Any,
    keys: Any = None,
    times: Any = None,
    outcome_times: Any = None,
    *,
    methods: Any = None,
    bins: int = 10,
    warmup: int | None = None,
    delay: int | str = 0,
    mature: Any = None,
    score_kind: str = "probability",
    time_zone: str | None = None,
    skip_bad: bool = False,
    sort: bool = False,
    seed: int = 0,
    keep_forecasts: bool = False,
    title: str = "Backtest",
    classes: Any = None,
) -> BacktestResult:
    """Replay scores and outcomes through many methods, exactly as production would have, and compare them.

    Parameters
    ----------
    scores, outcomes : in the order in which the scores were issued: lists, NumPy arrays, or series of pandas, polars
        or Arrow.
    keys : the stream of each event; each key gets parameters of its own.
    times, outcome_times : when a score was issued and when its outcome was known. An outcome is learnt before the next
        forecast after its arrival; outcomes that arrive between two forecasts are learnt in the order of arrival. An
        outcome that is missing together with its time has not arrived: its event is forecast, and not judged.
    methods : names of presets, methods, or a mapping from names to methods. If not given, ten of constant cost.
    bins : of the calibration error and the reliability diagram.
    warmup : so many events with an outcome are not scored, for any method. If not given: a twentieth of the outcomes
        among the first 20,000 events, which is 1,000 where each has one.
    delay : outcomes arrive so many events late, or so much time: ``"30min"``, ``"2h"``, ``"7d"``.
    mature : the age at which outcomes are learnt, ones and zeros alike: so many events, or a time such as ``"7d"``. An
        outcome that arrives later is learnt when it arrives. Until a stream has learnt its first outcome, forecasts are
        the raw scores. See docs/late-outcomes.md.
    score_kind : "probability", "percent" or "logit".
    time_zone : of times that are written without one: "UTC", "+02:00" or "Europe/Paris".
    skip_bad : skip rows that cannot be used and count them, instead of refusing the log.
    sort : put the events in the order of their times.
    seed : for methods that draw.
    keep_forecasts : also keep every forecast, in ``result.forecasts``.
    title : of the report.
    classes : the names of the classes, where the scores are a matrix without names.

    **Many classes.** Where `scores` is a matrix or a data frame of K columns, the outcomes are labels: the names of the
    columns (without what all share, such as ``p_``), of `classes`, or column numbers. The methods are then "raw", "fts"
    and "swts" (temperature scaling that is fixed, or fitted on a sliding window), "ots" and "multi". There are no keys
    and no `mature`. See docs/multiclass.md.

    >>> import calibeat
    >>> result = calibeat.backtest([0.9, 0.6] * 600, [1, 0] * 600, methods="ops", delay=20)
    >>> result.payload["delay"]["events_quantiles"]["50%"]
    20.0
    >>> result = calibeat.backtest([[0.6, 0.3, 0.1]] * 1200, [0, 1, 2] * 400, methods=["ots", "multi"])
    >>> result.best, result.table["method"].tolist()
    ('multi', ['raw', 'ots', 'multi'])
    """
    from calibeat._util.matrix import is_matrix

    from .options import Options  # now, so that `import calibeat` is light
    from .run import check_times, run_arrays

    options = Options(
        methods=methods,
        bins=bins,
        warmup=warmup,
        delay=delay,
        mature=mature,
        score_kind=score_kind,
        time_zone=time_zone,
        skip_bad=skip_bad,
        sort=sort,
        seed=seed,
        title=title,
    )
    check_times(times, outcome_times, options)
    if is_matrix(scores):
        from .classes.run import run_matrix

        if keys is not None:
            raise InvalidInput("keys must not be given with many classes, got some")
        return run_matrix(
            scores, outcomes, times, outcome_times, options, classes=classes, keep_forecasts=keep_forecasts
        )
    if classes is not None:
        raise InvalidInput("classes must be given with a matrix of scores only, got a vector of them")
    return run_arrays(scores, outcomes, keys, times, outcome_times, options, keep_forecasts=keep_forecasts)
