"""What a worker does with one partition: batches of Arrow in, sorted; forecasts and rows out.

All events of a key are in one partition, and groups of keys stand together in it: single keys where rows are sorted by
key and order, a 128th of all where they are sorted by place (see `rows.place`). So a piece of the partition is served
by a bank of its own, and only the keys of the last group go on in the next: memory does not grow with the events of the
partition. With late outcomes a piece holds whole keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibeat._util.types import Flags, Ints, Vector
from calibeat.errors import InvalidInput
from calibeat.hosts.bank import Bank, rows_in, rows_out

from .columns import ARRIVAL, GROUP_BIT, OUTCOME, PLACE, REASON, ROW, SCORE, TIME, Roles
from .state import bank_of, from_bytes, to_bytes

PIECE = 131_072  # events: enough that a call costs nothing, few enough to stay in the cache


@dataclass(frozen=True)
class Partition:
    """The work, to be sent to the workers.

    Parameters
    ----------
    described : the bank, as `state.described` tells it.
    roles : which column is what.
    columns : those of the frame, which come back with the forecasts.
    age : microseconds at which an outcome may be learnt; None: when it arrives.
    finish : learn outcomes that arrive after the last event of their key, at the end.
    resumed : whether rows of a state come before the events of their key.
    events, rows : whether forecasts and final rows are given back.
    """

    described: str
    roles: Roles
    columns: tuple[str, ...]
    age: int | None = None
    finish: bool = False
    resumed: bool = False
    events: bool = True
    rows: bool = True

    @property
    def late(self) -> bool:
        """Whether outcomes come later than their events."""
        return self.roles.arrival is not None or self.age is not None

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """The whole partition."""
        before = _Before()
        for piece, last in _pieces(batches, self.roles.key, whole_keys=self.late):
            yield from self._serve(piece, before, last=last)

    def _serve(self, table: Any, before: _Before, *, last: bool) -> Iterator[Any]:
        import pyarrow.compute as pc

        bank = bank_of(self.described)
        if before.rows is not None:  # the last group of the piece before may go on
            rows_in(bank, *before.rows)
        events = table
        if self.resumed:
            stored = pc.is_valid(table[ROW])
            _restore(bank, table.filter(stored), self.roles.key)
            events = table.filter(pc.invert(stored))
        if len(events):
            events = self._checked(events, before)
            forecasts = self._run(bank, events)
            if self.events:
                yield from self._forecasts(events, forecasts)
        names, rows = rows_out(bank)
        goes_on = np.zeros(len(names), dtype=bool) if last else self._goes_on(table, names, before)
        before.rows = (names[goes_on], rows[goes_on]) if goes_on.any() else None
        if self.rows and not goes_on.all():
            yield from self._rows(names[~goes_on], rows[~goes_on], table.schema)

    def _goes_on(self, table: Any, names: Any, before: _Before) -> Flags:
        """Which of these keys are in the last group of a piece, and so may have events in the next."""
        import pyarrow as pa
        import pyarrow.compute as pc

        own = table[self.roles.key]
        groups = pc.shift_right(table[PLACE], GROUP_BIT) if PLACE in table.column_names else own
        group, kind = groups[len(groups) - 1], pa.string() if names.dtype == object else pa.int64()
        keys = own.filter(pc.equal(groups, group)).unique().cast(kind)
        goes_on: Flags = pc.is_in(pa.array(names, kind), value_set=keys).to_numpy(zero_copy_only=False)
        if before.rows is not None and group.as_py() == before.group:
            goes_on[: len(before.rows[0])] = True  # they came into the bank first
        before.group = group.as_py()
        return goes_on

    # ---- events ---------------------------------------------------------------------------------------------------

    def _run(self, bank: Bank, table: Any) -> Vector:
        """The forecasts of a piece, which is learnt."""
        keys = _keys(table[self.roles.key])
        scores, outcomes = _floats(_own(table, SCORE, self.roles.score)), _floats(self._outcomes(table))
        if not self.late:
            return bank.run(keys, scores, outcomes, threads=1)
        # `mature=0` adds nothing to `due`; it says that a key forecasts its raw scores until it has learnt something.
        mature = None if self.age is None else 0
        return bank.run(keys, scores, outcomes, due=self._due(table), mature=mature, finish=self.finish, threads=1)

    def _due(self, table: Any) -> Ints:
        """The position of the first event of the same key that is issued when the outcome is known, or later."""
        n, times = len(table), table[TIME].to_numpy()
        arrivals = times if self.roles.arrival is None else table[ARRIVAL].fill_null(0).to_numpy()
        if self.age is not None:
            arrivals = np.maximum(arrivals, times + self.age)
        group = np.concatenate([[0], np.cumsum(_changes(table[self.roles.key]))])
        # Ranks in the place of times: so key and time make one whole number, which rises along the piece.
        moments, rank = np.unique(times, return_inverse=True)
        room = len(moments) + 1
        due = np.searchsorted(group * room + rank, group * room + np.searchsorted(moments, arrivals), side="left")
        due = np.maximum(due, np.arange(1, n + 1))
        ends = np.append(np.flatnonzero(np.diff(group)) + 1, n)[group]
        never = (due >= ends) | np.isnan(_floats(self._outcomes(table)))
        return np.where(never, n, due)

    def _outcomes(self, table: Any) -> Any:
        return _own(table, OUTCOME, self.roles.outcome)

    def _checked(self, table: Any, before: _Before) -> Any:
        """The events in order. Raise on the first that is wrong by itself, or wrong after the one before it."""
        import pyarrow.compute as pc

        if REASON in table.column_names:
            wrong = pc.is_valid(table[REASON]).to_numpy()
            if wrong.any():
                row = int(wrong.argmax())
                raise InvalidInput(f"{table[REASON][row].as_py()} - at {self._where(table, row)}")
        if PLACE in table.column_names:
            shared = np.diff(table[PLACE].to_numpy()) == 0
            if not shared.any():
                return table
            table = _rearranged(table, shared, [*self.roles.order, self.roles.key])
        same = ~_changes(table[self.roles.key])
        tied = same & np.logical_and.reduce([~_changes(table[name]) for name in self.roles.order])
        self._refuse(tied, table, "order must tell the events of a key apart, got the same twice")
        if self.roles.time is not None:
            back = same & (np.diff(table[TIME].to_numpy()) < 0)
            self._refuse(back, table, "time must not go back within a key, got an earlier one after a later one")
        first = tuple(table[name][0].as_py() for name in (self.roles.key, *self.roles.order))
        if first == before.place:
            self._refuse(np.array([True]), table, "order must tell the events of a key apart, got the same twice", at=0)
        before.place = tuple(table[name][len(table) - 1].as_py() for name in (self.roles.key, *self.roles.order))
        return table

    def _refuse(self, wrong: Flags, table: Any, sentence: str, at: int | None = None) -> None:
        if wrong.any():
            row = int(wrong.argmax()) + 1 if at is None else at
            raise InvalidInput(f"{sentence} - at {self._where(table, row)}")

    def _where(self, table: Any, row: int) -> str:
        values = [(name, table[name][row].as_py()) for name in (self.roles.key, *self.roles.order)]
        return ", ".join(f"{name} {value!r:.60}" for name, value in values)

    # ---- what goes back -------------------------------------------------------------------------------------------

    def _forecasts(self, table: Any, forecasts: Vector) -> Iterator[Any]:
        import pyarrow as pa
        import pyarrow.compute as pc

        given = table.select(list(self.columns))
        given = given.append_column("forecast", pa.array(forecasts))
        given = given.append_column("judged", pc.is_valid(self._outcomes(table)))
        if self.rows:
            given = given.append_column(ROW, pa.nulls(len(given), pa.binary()))
        yield from given.to_batches()

    def _rows(self, names: Any, rows: Any, schema: Any) -> Iterator[Any]:
        """Final rows: alone, or among the forecasts as rows of which only the key is filled in."""
        import pyarrow as pa

        keys = pa.array(names, pa.string() if names.dtype == object else pa.int64())
        stored = pa.array(to_bytes(rows), pa.binary())
        columns = {"key": keys, "row": stored}
        if self.events:
            columns = {name: pa.nulls(len(keys), schema.field(name).type) for name in self.columns}
            columns[self.roles.key] = keys.cast(schema.field(self.roles.key).type)
            columns |= {"forecast": pa.nulls(len(keys), pa.float64()), "judged": pa.nulls(len(keys), pa.bool_())}
            columns[ROW] = stored
        yield from pa.table(columns).to_batches()


class _Before:
    """What one piece leaves for the next."""

    def __init__(self) -> None:
        self.place: Any = None  # key and order of the last event
        self.group: Any = None  # the last group
        self.rows: Any = None  # its keys and their rows, if their events may go on


def _pieces(batches: Iterator[Any], key: str, *, whole_keys: bool) -> Iterator[tuple[Any, bool]]:
    """The partition in pieces, each with whether it is the last. No place is cut, and with `whole_keys` no key is."""
    import pyarrow as pa

    waiting: list[Any] = []
    count, held = 0, None
    for batch in batches:
        waiting.append(batch)
        count += batch.num_rows
        if count < PIECE:
            continue
        if held is not None:
            yield held, False
            held = None
        table = pa.Table.from_batches(waiting).combine_chunks()
        together = PLACE if PLACE in table.column_names else key if whole_keys else None
        changes = np.array([len(table) - 1]) if together is None else np.flatnonzero(_changes(table[together]))
        if not len(changes):  # one place or key so far: its events go on
            waiting = table.to_batches()
            continue
        cut = int(changes[-1]) + 1
        held, rest = table.slice(0, cut), table.slice(cut)
        waiting = rest.to_batches() if len(rest) else []
        count = len(rest)
    if waiting:
        if held is not None:
            yield held, False
        held = pa.Table.from_batches(waiting).combine_chunks()
    if held is not None:
        yield held, True


def _changes(column: Any) -> Flags:
    """Whether each value but the first differs from the one before; nulls are like nulls."""
    import pyarrow.compute as pc

    n = len(column)
    before, after = column.slice(0, max(0, n - 1)), column.slice(1)
    differ = pc.fill_null(pc.not_equal(before, after), fill_value=False)
    known = pc.not_equal(pc.is_valid(before), pc.is_valid(after))
    return pc.or_(differ, known).to_numpy()


def _restore(bank: Bank, table: Any, key: str) -> None:
    if len(table):
        keys = _keys(table[key])
        rows_in(bank, keys, from_bytes(bank, table[ROW].to_pylist(), keys))


def _keys(column: Any) -> Any:
    """Whole numbers as an array, strings as a list."""
    import pyarrow as pa

    return column.to_numpy() if pa.types.is_integer(column.type) else column.to_pylist()


def _own(table: Any, own: str, name: str) -> Any:
    """A column of ours, or the one it was made from where the worker can read that."""
    return table[own if own in table.column_names else name]


def _floats(column: Any) -> Vector:
    """NaN where there is nothing."""
    import pyarrow as pa

    return np.require(column.cast(pa.float64(), safe=False).to_numpy(), np.float64, ["C", "A", "W"])


def _rearranged(table: Any, shared: Flags, by: list[str]) -> Any:
    """Rows that share a place, sorted by these columns. `shared`: whether a row has the place of the one before it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    at = np.flatnonzero(np.append(shared, False) | np.insert(shared, 0, False))
    order = pc.sort_indices(
        table.select([PLACE, *by]).take(pa.array(at)), sort_keys=[(name, "ascending") for name in (PLACE, *by)]
    )
    rows = np.arange(len(table))
    rows[at] = at[order.to_numpy()]
    return table.take(pa.array(rows))
