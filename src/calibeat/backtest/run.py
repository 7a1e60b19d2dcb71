"""What `calibeat.backtest` and the command share: batches in, the numbers of a report out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from calibeat._util.types import Ints, Vector
from calibeat.errors import InvalidInput
from calibeat.report.schema import Payload

from .judge.observe import Observed
from .judge.summary import Source, summarise
from .options import Options
from .read import arrays
from .read.batch import Batch, Chunk
from .read.rows import RowReader
from .replay.contenders import with_key_variants, with_others
from .replay.engine import Elsewhere, OnForecasts, replay_log
from .replay.methods import chosen
from .result import BacktestResult
from .tables import Table, check_times


def run_arrays(table: Table, options: Options, *, keep_forecasts: bool = False) -> BacktestResult:
    """`calibeat.backtest`."""
    columns = table.columns
    check_times(columns["times"], columns["outcome_times"], options)
    kept: list[tuple[Ints, dict[str, Vector]]] = []

    def keep(chunk: Chunk, forecasts: dict[str, Vector], _: Ints) -> None:
        if chunk.trace is not None:
            kept.append((chunk.trace.rows, forecasts))

    reader = RowReader(options, trace=keep_forecasts)
    batches = arrays.batches(**columns, others=table.others, options=options)
    more = [name for name, column in columns.items() if name not in {"scores", "outcomes"} and column is not None]
    call = options.call("scores", "outcomes", *(f"{name}={name}" for name in more))
    source = Source(options.title, ["arrays"], score_kind=options.score_kind, command=call)
    payload = run(
        batches,
        source,
        reader,
        keyed=columns["keys"] is not None,
        others=table.names,
        on_forecasts=keep if keep_forecasts else None,
    )
    return BacktestResult(payload, _in_the_order_of_the_rows(kept, reader.rows))


def _in_the_order_of_the_rows(kept: list[tuple[Ints, dict[str, Vector]]], rows: int) -> dict[str, Vector]:
    """Each forecast at the row of its event; NaN where a row was skipped."""
    forecasts: dict[str, Vector] = {}
    for at, by_method in kept:
        for name, values in by_method.items():
            forecasts.setdefault(name, np.full(rows, np.nan))[at] = values
    return forecasts


def run(
    batches: Iterable[Batch],
    source: Source,
    reader: RowReader,
    *,
    keyed: bool,
    others: Mapping[str, str] | None = None,
    on_forecasts: OnForecasts | None = None,
    elsewhere: Elsewhere | None = None,
) -> Payload:
    """Replay the batches by the options of the reader. What the reader learns of the log goes into `source`.

    `others` are the names of further columns by role, in the order of the batches: rivals, scores of other models.
    """
    options = reader.options
    methods, notes = chosen(options.methods, keyed=keyed)
    variants = None
    if keyed:
        methods, variants = with_key_variants(methods)
    methods, more = with_others(methods, others or {}, asked=options.methods is not None)
    notes += more
    observed = Observed(options, methods)

    def hand_on(chunk: Chunk, forecasts: dict[str, Vector], place: Ints) -> None:
        observed.add(chunk, forecasts, place)
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
            elsewhere=elsewhere,
        )
    except StopIteration:
        got = f"{reader.rows:,} that were all skipped" if reader.rows else "a header at most"
        raise InvalidInput(f"log must hold at least one row that can be used, got {got}") from None
    reader.check_end()
    blocks = replayed.blocks
    if not blocks.labelled:
        raise InvalidInput(f"log must hold at least one outcome, got none in {reader.rows:,} rows")
    if not blocks.judged:
        raise InvalidInput(
            f"warmup must be less than the {blocks.labelled:,} events that have an outcome, got {blocks.warmup:,}"
        )
    replayed.key_variants = variants
    source.rows = reader.rows
    source.skipped = reader.skipped
    source.notes += notes + reader.notes
    if keyed:
        source.keys = list(reader.names)
    return summarise(replayed, source, observed)
