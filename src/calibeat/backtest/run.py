"""What `calibeat.backtest` and the command share: batches in, the numbers of a report out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from calibeat._util.types import Ints, Vector
from calibeat.errors import InvalidInput
from calibeat.report.schema import Payload

from .judge.compare import Counting
from .judge.summary import Source, summarise
from .options import Options
from .read import arrays
from .read.batch import Batch, Chunk
from .read.rows import RowReader
from .replay.engine import OnForecasts, replay_log
from .replay.methods import chosen
from .result import BacktestResult


def check_times(times: Any, outcome_times: Any, options: Options) -> None:
    """Raise if arguments contradict each other on when outcomes arrive."""
    if outcome_times is not None and times is None:
        raise InvalidInput("outcome_times need times to be compared with, got none")
    if outcome_times is not None and (options.delay_events or options.delay_microseconds):
        raise InvalidInput("delay must not be set where outcome_times say when outcomes arrived, got both")


def run_arrays(
    scores: Any,
    outcomes: Any,
    keys: Any,
    times: Any,
    outcome_times: Any,
    options: Options,
    *,
    keep_forecasts: bool = False,
) -> BacktestResult:
    """`calibeat.backtest`."""
    kept: list[tuple[Ints, dict[str, Vector]]] = []

    def keep(chunk: Chunk, forecasts: dict[str, Vector], _: Ints) -> None:
        if chunk.trace is not None:
            kept.append((chunk.trace.rows, forecasts))

    reader = RowReader(options, trace=keep_forecasts)
    percent = options.score_kind == "percent"
    batches = arrays.batches(scores, outcomes, keys, times, outcome_times, percent=percent)
    source = Source(options.title, ["arrays"], score_kind=options.score_kind)
    payload = run(batches, source, reader, keyed=keys is not None, on_forecasts=keep if keep_forecasts else None)
    return BacktestResult(payload, _in_the_order_of_the_rows(kept, reader.rows))


def _in_the_order_of_the_rows(kept: list[tuple[Ints, dict[str, Vector]]], rows: int) -> dict[str, Vector]:
    """Each forecast at the row of its event; NaN where a row was skipped."""
    forecasts: dict[str, Vector] = {}
    for at, by_method in kept:
        for name, values in by_method.items():
            forecasts.setdefault(name, np.full(rows, np.nan))[at] = values
    return forecasts


def run(
    batches: Iterable[Batch], source: Source, reader: RowReader, *, keyed: bool, on_forecasts: OnForecasts | None = None
) -> Payload:
    """Replay the batches by the options of the reader. What the reader learns of the log goes into `source`."""
    options = reader.options
    methods, notes = chosen(options.methods, keyed=keyed)
    counting = Counting(options.bins)

    def hand_on(chunk: Chunk, forecasts: dict[str, Vector], place: Ints) -> None:
        counting.add(chunk, forecasts, place)
        if on_forecasts is not None:
            on_forecasts(chunk, forecasts, place)

    try:
        replayed = replay_log(
            reader.chunks(batches),
            methods,
            bins=options.bins,
            warmup=options.warmup,
            keyed=keyed,
            seed=options.seed,
            streams=lambda: reader.streams,
            maturity=options.maturity,
            on_forecasts=hand_on,
        )
    except StopIteration:
        got = f"{reader.rows:,} that were all skipped" if reader.rows else "a header at most"
        raise InvalidInput(f"log must hold at least one row that can be used, got {got}") from None
    blocks = replayed.blocks
    if not blocks.labelled:
        raise InvalidInput(f"log must hold at least one outcome, got none in {reader.rows:,} rows")
    if not blocks.judged:
        raise InvalidInput(
            f"warmup must be less than the {blocks.labelled:,} events that have an outcome, got {blocks.warmup:,}"
        )
    source.rows = reader.rows
    source.skipped = reader.skipped
    source.notes += notes + reader.notes
    if keyed:
        source.keys = list(reader.names)
    return summarise(replayed, source, counting.sums)
