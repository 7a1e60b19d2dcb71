"""What `calibeat.backtest` and the command share: batches in, the numbers of a report out."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from calibeat._util.check import check_choice, check_whole
from calibeat._util.types import Vector
from calibeat.backtest.judge.summary import Source, summarise
from calibeat.backtest.read import arrays
from calibeat.backtest.read.rows import Batch, Intake, Terms
from calibeat.backtest.replay.chunk import Chunk, Whole
from calibeat.backtest.replay.engine import OnForecasts, replay_log
from calibeat.backtest.replay.methods import chosen
from calibeat.errors import InvalidInput
from calibeat.report.schema import Payload

from .result import BacktestResult

SCORE_KINDS = ("probability", "percent", "logit")
_UNITS = {"us": 1, "ms": 1_000, "s": 10**6, "min": 60 * 10**6, "h": 3600 * 10**6, "d": 86_400 * 10**6,
          "w": 7 * 86_400 * 10**6}  # fmt: skip
_LONGEST = 365_250 * _UNITS["d"]


def run_arrays(
    scores: Any, outcomes: Any, keys: Any, times: Any, outcome_times: Any, *, methods: Any, bins: int,
    warmup: int | None, delay: int | str, score_kind: str, skip_bad: bool, sort: bool, seed: int, keep_forecasts: bool,
    title: str,
) -> BacktestResult:  # fmt: skip
    """`calibeat.backtest`."""
    source = Source(title, ["arrays"], score_kind=check_choice("score_kind", score_kind, SCORE_KINDS))
    terms = Terms(score_kind, skip_bad, sort, *parse_delay(delay), hint="say {argument}", trace=keep_forecasts)
    if outcome_times is not None and times is None:
        raise InvalidInput("outcome_times need times to be compared with, got none")
    if terms.delay and outcome_times is not None:
        raise InvalidInput("delay must not be set where outcome_times say when outcomes arrived, got both")
    kept: list[tuple[Whole, dict[str, Vector]]] = []

    def keep(chunk: Chunk, forecasts: dict[str, Vector], _: Whole) -> None:
        if chunk.trace is not None:
            kept.append((chunk.trace.rows, forecasts))

    intake = Intake(terms)
    columns = arrays.batches(scores, outcomes, keys, times, outcome_times, percent=score_kind == "percent")
    payload = run(
        columns, source, intake, methods=methods, bins=bins,
        warmup=warmup, seed=seed, keyed=keys is not None, late_by_time=outcome_times is not None,
        on_forecasts=keep if keep_forecasts else None,
    )  # fmt: skip
    return BacktestResult(payload, _in_the_order_of_the_rows(kept, intake.rows))


def _in_the_order_of_the_rows(kept: list[tuple[Whole, dict[str, Vector]]], rows: int) -> dict[str, Vector]:
    """Each forecast at the row of its event; NaN where a row was skipped."""
    forecasts: dict[str, Vector] = {}
    for at, said in kept:
        for name, values in said.items():
            forecasts.setdefault(name, np.full(rows, np.nan))[at] = values
    return forecasts


def run(
    batches: Iterable[Batch],
    source: Source,
    intake: Intake,
    *,
    methods: Any,
    bins: int,
    warmup: int | None,
    seed: int,
    keyed: bool,
    late_by_time: bool,
    on_forecasts: OnForecasts | None = None,
) -> Payload:
    """What the function and the command share."""
    picked, notes = chosen(methods, keyed=keyed)
    check_whole("bins", bins, 1, 100)
    if warmup is not None:
        check_whole("warmup", warmup, 0, 10**15)
    check_whole("seed", seed, -(2**63), 2**63 - 1)
    chunks = intake.chunks(batches)
    try:
        replayed = replay_log(
            chunks, picked, bins=bins, warmup=warmup, keyed=keyed, timed=late_by_time or intake.terms.delay_is_time,
            seed=seed, streams=lambda: intake.streams, on_forecasts=on_forecasts,
        )  # fmt: skip
    except StopIteration:
        got = f"{intake.rows:,} that were all skipped" if intake.rows else "a header at most"
        raise InvalidInput(f"log must hold at least one row that can be used, got {got}") from None
    blocks = replayed.blocks
    if not blocks.labelled:
        raise InvalidInput(f"log must hold at least one outcome, got none in {intake.rows:,} rows")
    if not blocks.judged:
        raise InvalidInput(
            f"warmup must be less than the {blocks.labelled:,} events that have an outcome, got {blocks.warmup:,}"
        )
    source.rows = intake.rows
    source.skipped = intake.skipped
    source.notes += notes + intake.notes
    if keyed:
        source.keys = list(intake.names)
    return summarise(replayed, source)


def parse_delay(delay: Any) -> tuple[int, bool]:
    """A delay in events, or in microseconds; and whether it is the latter.

    >>> parse_delay("2h"), parse_delay("100")
    ((7200000000, True), (100, False))
    """
    if isinstance(delay, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", delay.lower())
        if match and not match[2] and "." not in match[1]:
            return check_whole("delay", int(match[1]), 0, 10**15), False
        if match and match[2] in _UNITS:
            microseconds = float(match[1]) * _UNITS[match[2]]
            if microseconds > _LONGEST:
                raise InvalidInput(f"delay must be 1,000 years at most, got {delay!r}")
            return int(microseconds), True
        raise InvalidInput(f"delay must be a number of events or a time such as 30s, 30min, 2h or 7d, got {delay!r}")
    return check_whole("delay", delay, 0, 10**15), False
