"""The forecasts of a backtest on many machines: each worker replays the keys of its partition through every method.

A key's forecasts depend on nothing but its own events, their order, and when its own outcomes came. So a partition that
is sorted as the log is gives them the bits that the whole log would, with the same replay and the same reader of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from calibeat._util.types import Ints, Vector
from calibeat.backtest.options import Options
from calibeat.backtest.read.arrow import batch_of
from calibeat.backtest.read.batch import CHUNK, Batch, Chunk
from calibeat.backtest.read.rows import RowReader
from calibeat.backtest.replay.contenders import Context, MethodReplay
from calibeat.backtest.replay.engine import Runner
from calibeat.backtest.replay.late import Underway
from calibeat.core.method import Method
from calibeat.core.randomness import numbered, stream_key, uniforms_at
from calibeat.errors import CalibeatError

FORECAST, AT_ONCE = "__calibeat_forecast_{}", "__calibeat_at_once_{}"


@dataclass(frozen=True)
class PartitionReplay:
    """The work, to be sent to the workers.

    Parameters
    ----------
    options : of the backtest. Rows that cannot be used are passed on without forecasts: the driver judges them.
    columns : by role.
    methods : in the order of the columns of forecasts that come back.
    late : whether outcomes come later than their events: then forecasts "at once" come back too.
    """

    options: Options
    columns: Mapping[str, str]
    methods: tuple[Method, ...]
    late: bool

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Batches of Arrow in, the same with forecasts out."""
        reader = RowReader(replace(self.options, methods=None, skip_bad=True, sort=False), trace=True)
        waiting: list[tuple[int, Any]] = []

        def read() -> Iterator[Batch]:
            first = 1
            for table in in_tables(batches):
                waiting.append((first, table))
                rows = np.arange(first, first + len(table))
                roles = {role: table[name].combine_chunks() for role, name in self.columns.items()}
                yield batch_of(roles, "the frame", rows, 0, reader.options)
                first += len(table)

        replays = _Replays(self.methods, reader.options, late=self.late)
        made: list[tuple[Ints, list[Vector]]] = []
        for chunk in reader.chunks(read()):
            assert chunk.trace is not None  # noqa: S101 - it was asked for
            made.append((chunk.trace.rows, replays.feed(chunk, reader.streams)))
            # A chunk may hold the beginning of the last table read; what lies before that table is complete.
            while len(waiting) > 1:
                first, table = waiting.pop(0)
                yield from self._with_forecasts(first, table, made)
        for first, table in waiting:
            yield from self._with_forecasts(first, table, made)

    def _with_forecasts(self, first: int, table: Any, made: list[tuple[Ints, list[Vector]]]) -> Iterator[Any]:
        import pyarrow as pa

        names = [FORECAST.format(k) for k in range(len(self.methods))]
        names += [AT_ONCE.format(k) for k in range(len(self.methods))] if self.late else []
        columns = np.full((len(names), len(table)), np.nan)
        for rows, forecasts in made:
            here = (rows >= first) & (rows < first + len(table))
            for column, values in zip(columns, forecasts, strict=True):
                column[rows[here] - first] = values[here]
        while made and made[0][0].max(initial=0) < first + len(table):
            made.pop(0)
        for name, column in zip(names, columns, strict=True):
            table = table.append_column(name, pa.array(column))
        yield from table.to_batches()


class _Replays:
    """All methods on their way through a partition."""

    def __init__(self, methods: tuple[Method, ...], options: Options, *, late: bool) -> None:
        self._late = [MethodReplay(method, raw_first=options.maturity is not None) for method in methods]
        self._at_once = [MethodReplay(method) for method in methods] if late else []
        self._underway = Underway(options.maturity)
        self._key, self._made = np.uint64(stream_key(options.seed, 0)), np.zeros(1)

    def feed(self, chunk: Chunk, streams: int) -> list[Vector]:
        """Forecasts of each method, then those with outcomes known at once (NaN where there is no outcome)."""
        self._made = np.concatenate([self._made, np.zeros(max(0, streams - len(self._made)))])
        draws = uniforms_at(self._key, numbered(self._made, chunk.slots.astype(np.int32)))
        plan = None if chunk.clock is None else self._underway.plan(chunk)
        found = [replay.feed(Context(chunk, plan, draws, streams)) for replay in self._late]
        labelled = ~np.isnan(chunk.outcomes)
        known = Chunk(chunk.scores[labelled], chunk.outcomes[labelled], chunk.slots[labelled])
        for replay in self._at_once:
            forecasts = np.full(len(chunk), np.nan)
            forecasts[labelled] = replay.feed(Context(known, None, draws[labelled], streams))
            found.append(forecasts)
        return found


def in_tables(batches: Iterator[Any], size: int = CHUNK) -> Iterator[Any]:
    """Batches of Arrow as tables of so many rows, as a log in memory is cut."""
    import pyarrow as pa

    waiting: list[Any] = []
    count = 0
    for batch in batches:
        waiting.append(batch)
        count += batch.num_rows
        while count >= size:
            table = pa.Table.from_batches(waiting).combine_chunks()
            yield table.slice(0, size).combine_chunks()
            rest = table.slice(size)
            waiting, count = rest.to_batches(), len(rest)
    if count:
        yield pa.Table.from_batches(waiting).combine_chunks()


# ---- on the driver -----------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Made(RowReader):
    """The reader of a log whose forecasts come with it. It hands them to the replays that take over."""

    methods: tuple[str, ...] = ()
    _tables: list[tuple[int, Any]] = field(default_factory=list)
    _chunk_now: Chunk | None = None

    def add(self, first: int, table: Any) -> None:
        """Rows from `first` on, with their forecasts."""
        self._tables.append((first, table))

    def chunks(self, batches: Any) -> Iterator[Chunk]:
        """As `RowReader` has them; the one that is being replayed is remembered."""
        for chunk in super().chunks(batches):
            assert chunk.trace is not None  # noqa: S101 - it was asked for
            first = int(chunk.trace.rows[0]) if len(chunk) else 0
            self._tables = [(begin, table) for begin, table in self._tables if begin + len(table) > first]
            self._chunk_now = chunk
            yield chunk

    def take_over(self, runners: list[Runner]) -> None:
        """Put what was made elsewhere in the place of the replays of those methods."""
        for at, name in enumerate(self.methods):
            runner = next(runner for runner in runners if runner.name == name)
            runner.replay = _Known(self, FORECAST.format(at))
            if runner.at_once is not None:
                known: Any = _Known(self, AT_ONCE.format(at))
                runner.at_once = known, runner.at_once[1]

    def forecasts(self, column: str) -> Vector:
        """Those of the chunk at hand."""
        chunk = self._chunk_now
        assert chunk is not None and chunk.trace is not None  # noqa: S101, PT018 - the replay runs
        rows, found = chunk.trace.rows, np.full(len(chunk), np.nan)
        for first, table in self._tables:
            here = (rows >= first) & (rows < first + len(table))
            found[here] = table[column].to_numpy()[rows[here] - first]
        wanted = np.isnan(chunk.outcomes) if column.startswith(AT_ONCE[:18]) else np.zeros(len(chunk), dtype=bool)
        if (np.isnan(found) & ~wanted).any():
            row = int(rows[int((np.isnan(found) & ~wanted).argmax())])
            raise CalibeatError(f"every row must have its forecast from the workers, got none - at row {row:,}")
        return found


class _Known:
    """A replay whose forecasts were made elsewhere."""

    def __init__(self, made: Made, column: str) -> None:
        self.trail: list[Vector] = []
        self._made, self._column = made, column

    def feed(self, context: Context) -> Vector:
        """The forecasts of the chunk at hand; of some of its events where only those have an outcome."""
        found = self._made.forecasts(self._column)
        return found if len(found) == len(context.chunk) else found[~np.isnan(found)]
