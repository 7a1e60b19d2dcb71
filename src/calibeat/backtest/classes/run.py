"""Backtests of many classes: what `calibeat.backtest` and the command share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from calibeat._util.types import Ints, Vector
from calibeat.backtest.judge.summary import LogInfo
from calibeat.backtest.options import Options
from calibeat.backtest.read.batch import Batch, Chunk
from calibeat.backtest.result import BacktestResult
from calibeat.errors import InvalidInput
from calibeat.report.schema import Payload

from .methods import chosen
from .names import Labels
from .read import ClassArrays, ClassReader
from .replay import OnForecasts, replay_log
from .summary import summarise


def run_matrix(
    scores: Any,
    labels: Any,
    times: Any,
    outcome_times: Any,
    options: Options,
    *,
    classes: Any = None,
    keep_forecasts: bool = False,
) -> BacktestResult:
    """`calibeat.backtest` where the scores are a matrix."""
    options.check_times(times, outcome_times)
    kept: list[tuple[Ints, dict[str, Vector]]] = []

    def keep(chunk: Chunk, forecasts: dict[str, Vector], _: Ints) -> None:
        if chunk.trace is not None:
            kept.append((chunk.trace.rows, forecasts))

    source = ClassArrays.of(scores, classes, options)
    reader = ClassReader(options, trace=keep_forecasts, source=source)
    more = [name for name, column in (("times", times), ("outcome_times", outcome_times)) if column is not None]
    call = options.call("scores", "labels", *(f"{name}={name}" for name in more))
    about = LogInfo(options.title, ["arrays"], score_kind=options.score_kind, command=call)
    batches = source.batches(labels, times, outcome_times)
    payload = run(batches, about, reader, on_forecasts=keep if keep_forecasts else None)
    forecasts: dict[str, Vector] = {}
    for rows, by_method in kept:
        for name, values in by_method.items():
            forecasts.setdefault(name, np.full(source.matrix.shape, np.nan))[rows] = values
    return BacktestResult(payload, forecasts)


def run(
    batches: Iterable[Batch], source: LogInfo, reader: ClassReader, *, on_forecasts: OnForecasts | None = None
) -> Payload:
    """Replay the batches by the options of the reader. What the reader learns of the log goes into `source`."""
    options = reader.options
    if options.maturity is not None:
        raise InvalidInput("mature must not be given with many classes: labels are learnt as they arrive")
    if options.costs is not None:
        raise InvalidInput("threshold and costs must not be given with many classes: decisions are about two")
    methods = chosen(options.methods)
    chunks = reader.chunks(batches)
    first = next(chunks, None)
    if first is None:
        got = f"{reader.rows:,} that were all skipped" if reader.rows else "a header at most"
        raise InvalidInput(f"log must hold at least one row that can be used, got {got}")

    def all_chunks() -> Iterable[Chunk]:
        yield first
        yield from chunks

    K = first.scores.shape[1]
    replayed = replay_log(
        iter(all_chunks()), methods, K=K, bins=options.bins, warmup=options.warmup, on_forecasts=on_forecasts
    )
    blocks = replayed.blocks
    if not blocks.labelled:
        raise InvalidInput(f"log must hold at least one label, got none in {reader.rows:,} rows")
    if not blocks.judged:
        raise InvalidInput(
            f"warmup must be less than the {blocks.labelled:,} events that have a label, got {blocks.warmup:,}"
        )
    source.rows = reader.rows
    source.skipped = reader.skipped
    source.notes += [_classes_in_words(reader.labels), *reader.notes]
    return summarise(replayed, source, reader.labels.names)


def _classes_in_words(labels: Labels) -> str:
    shown = ", ".join(map(repr, labels.names[:12])) + (f" and {labels.count - 12:,} more" if labels.count > 12 else "")
    numbers = " The labels are column numbers, from 0 on." if labels.numbered else ""
    return f"The {labels.count:,} classes are {shown}.{numbers}"
