"""What `calibeat.backtest` and the command share: columns or batches in, the numbers of a report out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from calibeat._util.types import Ints, Vector
from calibeat.errors import InvalidInput
from calibeat.report.schema import Payload

from .judge.summary import Collector, LogInfo, summarise
from .options import Options
from .read import arrays
from .read.arrays import columns_of, is_frame
from .read.batch import Batch, Chunk
from .read.rows import RowReader
from .replay.contenders import chosen, with_key_variants, with_others
from .replay.engine import OnForecasts, replay_log
from .result import BacktestResult


@dataclass(frozen=True, eq=False)
class LogColumns:
    """The columns that `calibeat.backtest` was given: one by one, or by name from a data frame.

    `columns` are by argument. `others` are by role; `names` are their names in the report.
    """

    columns: dict[str, Any]
    others: dict[str, Any] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, columns: Mapping[str, Any], named: Mapping[str, Any], rivals: Any) -> LogColumns:
        """From the arguments of the function."""
        if is_frame(columns["scores"]):
            return cls._of_frame(columns, named, rivals)
        if columns["outcomes"] is None:
            raise InvalidInput("outcomes must be an array or a series, got None")
        wrong = next((role for role, name in named.items() if name is not None and role != "score"), None)
        if wrong is not None:
            argument = wrong.replace(" ", "_")
            raise InvalidInput(
                f"{argument} must name a column of a data frame, got {named[wrong]!r:.60} and no frame; say "
                f"{arrays.ARGUMENTS[wrong]}= for a column"
            )
        groups = {"score": (2, _mapping("score", named["score"])), "rival": (1, _mapping("rivals", rivals))}
        others = {f"{what} {k}": c for what, (first, of) in groups.items() for k, c in enumerate(of.values(), first)}
        names = {f"{what} {k}": str(n) for what, (first, of) in groups.items() for k, n in enumerate(of, first)}
        return cls(dict(columns), others, names)

    @classmethod
    def _of_frame(cls, columns: Mapping[str, Any], named: Mapping[str, Any], rivals: Any) -> LogColumns:
        frame = columns["scores"]
        if extra := [name for name, column in columns.items() if name != "scores" and column is not None]:
            one = next(role for role, argument in arrays.ARGUMENTS.items() if argument == extra[0]).replace(" ", "_")
            kind = type(frame).__name__
            raise InvalidInput(
                f"scores must be an array or a series where {extra[0]} are given, got {kind}; say {one}= with the name "
                "of a column"
            )
        scores = _names("score", named["score"])
        if not scores or named["outcome"] is None:
            gone = "outcome" if scores else "score"
            raise InvalidInput(f"{gone} must name a column of the data frame, got None")
        roles = {role: name for role, name in named.items() if role != "score" and name is not None}
        others = {f"score {k}": name for k, name in enumerate(scores[1:], 2)}
        others |= {f"rival {k}": name for k, name in enumerate(_names("rivals", rivals), 1)}
        found = columns_of(frame, {"score": scores[0], **roles, **others})
        by_argument = {argument: found.get(role) for role, argument in arrays.ARGUMENTS.items()}
        return cls(
            by_argument, {role: found[role] for role in others}, {role: str(name) for role, name in others.items()}
        )


def _names(what: str, names: Any) -> list[Any]:
    if names is None:
        return []
    if isinstance(names, str) or not isinstance(names, Iterable):
        return [names]
    if isinstance(names, Mapping):
        raise InvalidInput(f"{what} must be names of columns where a data frame is given, got a mapping")
    return list(names)


def _mapping(what: str, columns: Any) -> Mapping[str, Any]:
    if columns is None:
        return {}
    if not isinstance(columns, Mapping):
        raise InvalidInput(
            f"{what} must map names to columns where no data frame is given, got {type(columns).__name__} "
            f"{columns!r:.60}"
        )
    return columns


def run_arrays(table: LogColumns, options: Options, *, keep_forecasts: bool = False) -> BacktestResult:
    """`calibeat.backtest`."""
    columns = table.columns
    options.check_times(columns["times"], columns["outcome_times"])
    kept: list[tuple[Ints, dict[str, Vector]]] = []

    def keep(chunk: Chunk, forecasts: dict[str, Vector], _: Ints) -> None:
        if chunk.trace is not None:
            kept.append((chunk.trace.rows, forecasts))

    reader = RowReader(options, trace=keep_forecasts)
    batches = arrays.batches(**columns, others=table.others, options=options)
    more = [name for name, column in columns.items() if name not in {"scores", "outcomes"} and column is not None]
    call = options.call("scores", "outcomes", *(f"{name}={name}" for name in more))
    source = LogInfo(options.title, ["arrays"], score_kind=options.score_kind, command=call)
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
    source: LogInfo,
    reader: RowReader,
    *,
    keyed: bool,
    others: Mapping[str, str] | None = None,
    on_forecasts: OnForecasts | None = None,
) -> Payload:
    """Replay the batches by the options of the reader. What the reader learns of the log goes into `source`.

    `others` are the names of further columns by role, in the order of the batches: rivals, scores of other models.
    """
    options = reader.options
    contenders, notes = chosen(options.methods, keyed=keyed)
    variants = None
    if keyed:
        contenders, variants = with_key_variants(contenders)
    contenders, more = with_others(contenders, others or {}, asked=options.methods is not None)
    notes += more
    collector = Collector(options, contenders)

    def hand_on(chunk: Chunk, forecasts: dict[str, Vector], place: Ints) -> None:
        collector.add(chunk, forecasts, place)
        if on_forecasts is not None:
            on_forecasts(chunk, forecasts, place)

    try:
        replayed = replay_log(
            reader.chunks(batches),
            contenders,
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
    return summarise(replayed, source, collector)
