"""Replay a log of scores and outcomes through many methods, as production would have, and compare them."""

from __future__ import annotations

from typing import Any

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
    score_kind: str = "probability",
    skip_bad: bool = False,
    sort: bool = False,
    seed: int = 0,
    keep_forecasts: bool = False,
    title: str = "Backtest",
) -> BacktestResult:
    """Replay scores and outcomes through many methods, exactly as production would have, and compare them.

    Parameters
    ----------
    scores, outcomes : in the order in which the scores were issued: lists, NumPy arrays, or series of pandas, polars
        or Arrow.
    keys : the stream of each event; each key gets parameters of its own.
    times, outcome_times : when a score was issued and when its outcome was known: an outcome is learnt just before the
        first score issued at that time or later (and after its own). An outcome that is missing together with its
        time has not arrived: its event is forecast, and not judged.
    methods : names of presets, methods, or a mapping from names to methods. If not given, ten of constant cost.
    bins : of the calibration error and the reliability diagram.
    warmup : so many events with an outcome count for nobody; 1,000 or a twentieth of a short log if not given.
    delay : outcomes arrive so many events late, or so much time: ``"30min"``, ``"2h"``, ``"7d"``.
    score_kind : "probability", "percent" or "logit".
    skip_bad : count rows that cannot be used, instead of refusing the log.
    sort : put the events in the order of their times.
    keep_forecasts : also keep every forecast, in ``result.forecasts``.

    >>> import calibeat
    >>> result = calibeat.backtest([0.9, 0.6] * 600, [1, 0] * 600, methods="ops", delay=20)
    >>> result.payload()["delay"]["events_quantiles"]["50%"]
    20.0
    """
    from .run import run_arrays  # now, so that `import calibeat` is light

    return run_arrays(
        scores, outcomes, keys, times, outcome_times, methods=methods, bins=bins, warmup=warmup, delay=delay,
        score_kind=score_kind, skip_bad=skip_bad, sort=sort, seed=seed, keep_forecasts=keep_forecasts, title=title,
    )  # fmt: skip
