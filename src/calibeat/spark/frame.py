"""`calibrate`: a frame through one bank a partition, with the bits of one bank on one machine.

All events of a key are in one partition, and groups of keys stand together in it: single keys where rows are sorted by
key and order, a 128th of all keys where they are sorted by place (`columns.place`). A worker cuts its partition into
pieces, each served by a bank of its own. Only the keys of the last group go on in the next piece, so memory does not
grow with the events of the partition. With late outcomes a piece holds whole keys.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from calibeat._util.check import check_choice
from calibeat._util.extras import LazyModule
from calibeat._util.types import Flags, Ints, Vector
from calibeat.core.method import Method
from calibeat.errors import CalibeatError, InvalidInput
from calibeat.hosts.bank import Bank, check_takes_weights, rows_in, rows_out
from calibeat.late import next_forecasts
from calibeat.monitor.monitor import Monitor

from .columns import (
    ARRIVAL,
    GROUP_BIT,
    OUTCOME,
    OWN,
    PLACE,
    REASON,
    ROW,
    SCORE,
    TIME,
    WEIGHT,
    Many,
    Roles,
    duration,
    in_tables,
    lists_of,
    matrix_of_lists,
    numbered,
    place,
    quoted,
    read,
)
from .folder import Calibrated, check_new, state_to_resume, write
from .session import check_frame, check_libraries, without_pandas_warning
from .state import as_state, bank_of, described, door_of, from_bytes, new_bank, to_bytes

pa = LazyModule("pyarrow")
pc = LazyModule("pyarrow.compute")
F = LazyModule("pyspark.sql.functions")

PIECE = 131_072  # events: enough that a call costs nothing, few enough to stay in the cache


@without_pandas_warning()
def calibrate(
    frame: Any,
    *,
    key: str,
    score: str,
    outcome: str,
    order: Any,
    method: Method | str = "auto",
    outcome_time: str | None = None,
    time: str | None = None,
    state: Any = None,
    monitor: Monitor | None = None,
    seed: int = 0,
    mature: Any = None,
    finish: bool = False,
    bad: str = "stop",
    partitions: int | None = None,
    path: str | os.PathLike[str] | None = None,
    classes: Any = None,
    logits: bool = False,
    groups: Any = None,
    weight: str | None = None,
) -> Calibrated:
    """Forecast every event of a frame and learn its outcome, key by key: the bits of `Bank.run` on one machine.

    Parameters
    ----------
    frame : a DataFrame of Spark, not a stream.
    key, score, outcome : names of columns. Keys are whole numbers or strings; outcomes 0, 1 or booleans, and null where
        none is known: such an event is forecast and not learnt.
    order : a column, or several, by which the events of a key are sorted. It must tell them apart.
    method : a `Method` or the name of a preset. Methods that keep their past (FPS, WPS, ...) are refused, as in `Bank`.
    time, outcome_time : when a score was issued and when its outcome was known, for late outcomes. An outcome is learnt
        before the first forecast of its key that is issued then or later; several at once in the order of their events.
        These are the bits of `Calibrator.run` with ``due=``. An outcome that is known after the last event of its key
        is not learnt, unless with `finish`. Times are timestamps, dates, or numbers of seconds.
    state : where to go on from: a state frame, what `calibrate` or `open` gives, a `Bank`, or the path of a bank file
        or of a run.
    monitor : a `Monitor`: each key then has one with its settings. Its numbers travel with the state.
    seed : as in `Bank`, for hedging methods.
    mature : the age at which outcomes are learnt, a time such as ``"7d"``; needs `time`. As in `Bank.run`.
    finish : learn outcomes that are known after the last event of their key, at the end. Use it where the state goes on
        to serve: what is not learnt here is not learnt later.
    bad : "stop": the job fails at the first row that cannot be used, and names it. "skip": such rows are left out;
        `bad_rows` gives them with the reason.
    partitions : how many; Spark's own setting if not given. Results never depend on it.
    path : a new folder to write both results to, once, as Parquet: ``forecasts/`` and ``state/``. Both frames then read
        from it, and so does `open` later. Without it each frame computes when it is used, with the same bits: cache
        them, or give a path, where both are used.
    classes : many classes: how many, or their labels in the order of the scores, all strings or all numbers. `score` is
        then a column of arrays, `outcome` holds labels, and `forecast` is an array: the bits of `MultiBank.run`. The
        methods are "multi" (which "auto" means here), "ots" and "raw".
    logits : whether the scores of many classes are logits.
    groups : refused, as by `Bank`: every key learns alone here.
    weight : a column with the weights of outcomes, where the log kept only some events: the bits of `Bank.run` with
        ``weights=``. Null is 1; those of events without an outcome are not read.

    Returns ``(forecasts, state)``. Docs: docs/scale.md.

    Raises
    ------
    InvalidInput : an argument or a column is wrong; when the frames are used, a row that cannot be used and
        ``bad="stop"``.
    SnapshotMismatch : `state` is of another method, seed, monitor or version.
    UnknownMethod : there is no preset of that name.
    MissingExtra : pyspark, pyarrow or pandas is not installed.
    """
    check_libraries("calibeat.spark")
    settings = {"seed": seed, "monitor": monitor, "groups": groups}
    bank = new_bank(method, classes, logits=logits, **settings)
    check_frame(frame)
    check_choice("bad", bad, ("stop", "skip"))
    if weight is not None:
        check_takes_weights(bank)
    age = duration("mature", mature)
    if age is not None and time is None:
        raise InvalidInput("mature needs the time of each event, got none; give time=")
    # Without late outcomes times are not looked at.
    late = outcome_time is not None or age is not None
    names = key, score, outcome
    roles = Roles.of(frame, names, order, time if late else None, outcome_time, Many.of(door_of(bank)), weight)
    work = Partition(described(bank), roles, tuple(frame.columns), age, finish, resumed=state is not None)
    if path is not None:
        check_new(frame.sparkSession, path)
    events = frame
    if bad == "skip":
        found = read(frame, roles)
        events = found.where(found[REASON].isNull()).select(*map(quoted, frame.columns))
    if state is not None:  # its rows as rows of the frame: nothing but the key, and the bytes
        own = F.col("key").cast(frame.schema[key].dataType).alias(key), F.col("row").alias(ROW)
        stored = state_to_resume(state, frame, key, work.described).select(*own)
        events = events.unionByName(stored, allowMissingColumns=True)
    spread = events.repartition(quoted(key)) if partitions is None else events.repartition(partitions, quoted(key))
    placed = numbered(_sorted(spread, roles, late=late), roles)
    if bad == "skip":
        placed = placed.drop(REASON)
    return _written(frame, placed, work, path) if path is not None else _lazy(frame, placed, work)


def _sorted(spread: Any, roles: Roles, *, late: bool) -> Any:
    """The events of a key in order, after the row of its state: by place, or key by key where that cannot be."""
    where = None if late else place(spread, roles)
    if where is not None:
        return spread.sortWithinPartitions(where).withColumn(PLACE, where)
    first = [F.col(ROW).isNull()] if ROW in spread.columns else []
    return spread.sortWithinPartitions(quoted(roles.key), *first, *map(quoted, roles.order))


def _lazy(frame: Any, placed: Any, work: Partition) -> Calibrated:
    """Each of both when it is used. For the state the workers read only the columns that they need."""
    roles = work.roles
    forecasts = placed.mapInArrow(replace(work, rows=False), _forecast_schema(frame, roles))
    own = [name for name in OWN if name in placed.columns]
    weight = [] if roles.weight is None else [roles.weight]
    needed = dict.fromkeys([roles.key, roles.score, roles.outcome, *weight, *roles.order, *own])
    kind = _key_kind(frame, roles)
    rows = placed.select(*map(quoted, needed)).mapInArrow(
        replace(work, events=False, columns=()), f"key {kind}, row binary"
    )
    return Calibrated(forecasts, as_state(rows, work.described))


def _written(frame: Any, placed: Any, work: Partition, path: str | os.PathLike[str]) -> Calibrated:
    """Both results in one pass, written to a folder and read from there."""
    from pyspark.sql.types import BinaryType, StructField, StructType

    fields = [StructField(field.name, field.dataType) for field in _forecast_schema(frame, work.roles).fields]
    both = placed.mapInArrow(work, StructType([*fields, StructField(ROW, BinaryType())]))
    key = F.col(quoted(work.roles.key)).cast(_key_kind(frame, work.roles))
    return write(both, key, work.described, path)


def _forecast_schema(frame: Any, roles: Roles) -> Any:
    from pyspark.sql.types import ArrayType, BooleanType, DoubleType, StructField, StructType

    forecast = DoubleType() if roles.many is None else ArrayType(DoubleType())
    return StructType([*frame.schema.fields, StructField("forecast", forecast), StructField("judged", BooleanType())])


def _key_kind(frame: Any, roles: Roles) -> str:
    return "string" if frame.schema[roles.key].dataType.typeName() == "string" else "bigint"


# ---- in the workers -----------------------------------------------------------------------------------------------


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
        before, piece = _Before(), None
        try:
            for following in in_tables(batches, PIECE, self._cut):
                if piece is not None:
                    yield from self._serve(piece, before, last=False)
                piece = following
            if piece is not None:
                yield from self._serve(piece, before, last=True)
        except CalibeatError as error:
            raise error.with_traceback(None) from None  # Spark shows the traceback before the sentence

    def _cut(self, table: Any) -> int:
        """Where a piece may end: no place is cut, and where outcomes are late no key is. 0: not yet."""
        together = PLACE if PLACE in table.column_names else self.roles.key if self.late else None
        changes = np.array([len(table) - 1]) if together is None else np.flatnonzero(_changes(table[together]))
        return int(changes[-1]) + 1 if len(changes) else 0

    def _serve(self, table: Any, before: _Before, *, last: bool) -> Iterator[Any]:
        bank = bank_of(self.described)
        if before.rows is not None:  # the last group of the piece before may go on
            rows_in(bank, *before.rows)
        events = table
        if self.resumed:
            stored = pc.is_valid(table[ROW])
            rows, events = table.filter(stored), table.filter(pc.invert(stored))
            keys = _keys(rows[self.roles.key])
            if len(keys):
                rows_in(bank, keys, from_bytes(bank, rows[ROW].to_pylist(), keys))
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
        keys, given = _keys(table[self.roles.key]), _own(table, SCORE, self.roles.score)
        if self.roles.many is None:
            scores, outcomes = _floats(given), _floats(self._outcomes(table))
        else:
            scores, outcomes = matrix_of_lists(given, len(self.roles.many.labels)), _labels(self._outcomes(table))
        how: dict[str, Any] = {"threads": 1}
        if self.roles.weight is not None:
            # An event without an outcome has a weight that is not read.
            weights = _own(table, WEIGHT, self.roles.weight).cast(pa.float64(), safe=False).fill_null(1.0)
            how["weights"] = np.where(pc.is_valid(self._outcomes(table)).to_numpy(), _floats(weights), 1.0)
        if self.late:
            # `mature=0` adds nothing to `due`; it says that a key forecasts its raw scores until it has learnt
            # something.
            how |= {"due": self._due(table), "mature": None if self.age is None else 0, "finish": self.finish}
        return bank.run(keys, scores, outcomes, **how)

    def _due(self, table: Any) -> Ints:
        """The position of the first event of the same key that is issued when the outcome is known, or later."""
        arrivals = None if self.roles.arrival is None else table[ARRIVAL].fill_null(0).to_numpy()
        groups = np.concatenate([[0], np.cumsum(_changes(table[self.roles.key]))])
        return next_forecasts(table[TIME].to_numpy(), arrivals, groups, age=self.age or 0)

    def _outcomes(self, table: Any) -> Any:
        return _own(table, OUTCOME, self.roles.outcome)

    def _checked(self, table: Any, before: _Before) -> Any:
        """The events in order. Raise on the first that is wrong by itself, or wrong after the one before it."""
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
        given = table.select(list(self.columns))
        given = given.append_column("forecast", pa.array(forecasts) if forecasts.ndim == 1 else lists_of(forecasts))
        given = given.append_column("judged", pc.is_valid(self._outcomes(table)))
        if self.rows:
            given = given.append_column(ROW, pa.nulls(len(given), pa.binary()))
        yield from given.to_batches()

    def _rows(self, names: Any, rows: Any, schema: Any) -> Iterator[Any]:
        """Final rows: alone, or among the forecasts as rows of which only the key is filled in."""
        keys = pa.array(names, pa.string() if names.dtype == object else pa.int64())
        stored = pa.array(to_bytes(rows), pa.binary())
        columns = {"key": keys, "row": stored}
        if self.events:
            columns = {name: pa.nulls(len(keys), schema.field(name).type) for name in self.columns}
            columns[self.roles.key] = keys.cast(schema.field(self.roles.key).type)
            kind = pa.float64() if self.roles.many is None else pa.list_(pa.float64())
            columns |= {"forecast": pa.nulls(len(keys), kind), "judged": pa.nulls(len(keys), pa.bool_())}
            columns[ROW] = stored
        yield from pa.table(columns).to_batches()


class _Before:
    """What one piece leaves for the next."""

    def __init__(self) -> None:
        self.place: Any = None  # key and order of the last event
        self.group: Any = None  # the last group
        self.rows: Any = None  # its keys and their rows, if their events may go on


def _changes(column: Any) -> Flags:
    """Whether each value but the first differs from the one before; nulls are like nulls."""
    n = len(column)
    before, after = column.slice(0, max(0, n - 1)), column.slice(1)
    differ = pc.fill_null(pc.not_equal(before, after), fill_value=False)
    known = pc.not_equal(pc.is_valid(before), pc.is_valid(after))
    return pc.or_(differ, known).to_numpy()


def _keys(column: Any) -> Any:
    """Whole numbers as an array, strings as a list."""
    return column.to_numpy() if pa.types.is_integer(column.type) else column.to_pylist()


def _own(table: Any, own: str, name: str) -> Any:
    """A column of ours, or the one it was made from where the worker can read that."""
    return table[own if own in table.column_names else name]


def _labels(column: Any) -> Any:
    """Labels as a bank takes them, None where there is none."""
    return column.to_numpy() if pa.types.is_integer(column.type) and not column.null_count else column.to_pylist()


def _floats(column: Any) -> Vector:
    """NaN where there is nothing."""
    return np.require(column.cast(pa.float64(), safe=False).to_numpy(), np.float64, ["C", "A", "W"])


def _rearranged(table: Any, shared: Flags, by: list[str]) -> Any:
    """Rows that share a place, sorted by these columns. `shared`: whether a row has the place of the one before it."""
    at = np.flatnonzero(np.append(shared, False) | np.insert(shared, 0, False))
    order = pc.sort_indices(
        table.select([PLACE, *by]).take(pa.array(at)), sort_keys=[(name, "ascending") for name in (PLACE, *by)]
    )
    rows = np.arange(len(table))
    rows[at] = at[order.to_numpy()]
    return table.take(pa.array(rows))
