"""Into a store and out of it.

Out: its log as Parquet or for a backtest, its states as a bank file. In: logs of any kind as events, and bank files.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from calibeat._util.extras import need
from calibeat._util.files import atomic
from calibeat._util.progress import Step, no_progress
from calibeat._util.times import NEVER, OK, Moments, is_missing
from calibeat._util.types import Flags, Ints
from calibeat._util.words import visible
from calibeat.backtest.options import Options
from calibeat.backtest.read.attributes import GroupsOfLog
from calibeat.backtest.read.files import PARQUET, Columns, LogFile, read_log, require_arrow, sentences
from calibeat.backtest.read.labels import ClassesOfLog
from calibeat.backtest.read.rows import LogBatch, Piece, RowReader, Skipped, name_of
from calibeat.core.layout import N
from calibeat.core.method import AUTO
from calibeat.core.method import name_of as name_of_method
from calibeat.core.stats import EVENTS, LAST, LOSSES, STATS
from calibeat.core.stats import WEIGHTS as WEIGHTS_OF_ROW
from calibeat.errors import InvalidInput
from calibeat.hosts.bank import Bank, rows_in
from calibeat.hosts.bankfile import MAGIC, holds_classes
from calibeat.hosts.multi import MultiBank
from calibeat.hosts.rows import Matrix

from . import ops
from .engine import Engine
from .events import LATEST_TIME, Event, ForecastEvent, OutcomeEvent, Refusal, StreamSettings, bad_name
from .model import Model
from .replay import Base
from .settings import EngineSettings, check_described, claim_meta, model_of, settle_meta, stored_settings
from .shape import PLAIN, Shape, estimate_of
from .store import Store, owned_store, reading, without_password
from .store.queries import STATUS
from .store.schema import get_meta, last_position, last_stream, set_meta
from .store.types import (
    BRIER,
    LOG_LOSS,
    RAW_BRIER,
    RAW_LOG_LOSS,
    SUMS,
    WEIGHTS,
    Changes,
    StreamState,
    rows_of,
    stored_names,
)
from .webhook import NOT_SENT

EXPORTED_AT_ONCE = 50_000  # in one batch
_COLUMNS = (
    "s.name, e.id, e.time, o.x, o.told, e.outcome, e.outcome_time, e.status, "
    "e.stream, o.given, o.issued, e.weight, e.trials, o.band"
)
_FROM = "FROM event e JOIN op o ON o.position = e.position JOIN stream s ON s.number = e.stream"
_OF_TWO = "WHERE o.issued IS NULL AND e.trials IS NULL"  # events of two classes, each with the outcome of one event
_ORDER = "ORDER BY e.time, e.stream, e.nth"

SHAPES = "calibeat.streams"  # in the metadata of an exported log: what its streams are, where they are not plain

# ---- the log of a store ----------------------------------------------------------------------------------------------


def _schema() -> Any:
    pa = need("pyarrow", extra="backtest", what="logs")
    moment = pa.timestamp("us", tz="UTC")
    return pa.schema(
        [
            ("stream", pa.string()),
            ("id", pa.string()),
            ("time", moment),
            ("score", pa.float64()),
            ("forecast", pa.float64()),
            ("outcome", pa.int8()),
            ("outcome_time", moment),
            ("status", pa.string()),
            ("scores", pa.map_(pa.string(), pa.float64())),
            ("forecasts", pa.map_(pa.string(), pa.float64())),
            ("label", pa.string()),
            ("groups", pa.string()),
            ("weight", pa.float64()),
            ("ones", pa.int64()),
            ("of", pa.int64()),
            ("low", pa.float64()),
            ("high", pa.float64()),
            ("outcomes", pa.float64()),
            ("reason", pa.string()),
        ]
    )


def batches(connection: Any, where: str = "", *, scored: bool = False) -> Iterator[Any]:
    """All events in the order of their times, as record batches.

    Events of many classes have `scores`, `forecasts` and `label` in place of `score`, `forecast` and `outcome`, those
    of several models `scores`. `groups` is a JSON object: the values of attributes, or their hashes where names are
    not kept. An outcome of many events has `ones` and `of`; forecasts with a band have the last four. `scored` leaves
    out events of several models, which have no score.
    """
    import pyarrow as pa

    wide = WideColumns(connection)
    rows: list[tuple[Any, ...]] = []
    for row in connection.each(f"SELECT {_COLUMNS} {_FROM} {where} {_ORDER}"):
        made = wide.of(row)
        if scored and made[3] is None:
            continue
        rows.append(made)
        if len(rows) == EXPORTED_AT_ONCE:
            yield _batch(pa, rows)
            rows = []
    if rows:
        yield _batch(pa, rows)


class WideColumns:
    """What an exported event has beside one score: the classes, models and groups of its stream, weights, a band."""

    def __init__(self, connection: Any) -> None:
        rows = connection.all("SELECT stream, text FROM shape")
        self._shapes = {number: Shape.from_text(text) for number, text in rows}
        named = [number for number, shape in self._shapes.items() if shape.groups is not None and shape.groups.names]
        self._books = {number: {word: value for word, _, value in stored_names(connection, number)} for number in named}

    def of(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """A row of `_COLUMNS` as one of the columns that are exported."""
        *plain, stream, given, issued, weight, trials, band = row
        counts, sure = (None, None), (None, None, None, None)
        if trials is not None:
            counts, plain[5] = (plain[5], trials), None
        if band is not None:
            estimate = estimate_of(plain[4], bytes(band))
            sure = estimate.low, estimate.high, estimate.outcomes, estimate.reason  # type: ignore[assignment]
        behind = (weight, *counts, *sure)
        shape = self._shapes.get(stream, PLAIN)
        if shape is PLAIN:
            return (*plain, None, None, None, None, *behind)
        if shape.models is not None:
            pairs = zip(shape.models.names, np.frombuffer(bytes(given)).tolist(), strict=False)  # some may have joined
            plain[3] = None
            return (*plain, [pair for pair in pairs if pair[1] == pair[1]], None, None, None, *behind)
        scores = forecasts = None
        if shape.classes is not None:
            score, forecast = plain[3], plain[4]
            numbers = ([1.0 - score, score], [1.0 - forecast, forecast])
            if issued is not None:
                numbers = np.frombuffer(bytes(given)).tolist(), np.frombuffer(bytes(issued)).tolist()
                plain[3] = plain[4] = None
            scores, forecasts = (list(shape.by_class(values).items()) for values in numbers)
        label = None if shape.classes is None or plain[5] is None else str(shape.label(plain[5]))
        if issued is not None:
            plain[5] = None
        return (*plain, scores, forecasts, label, self._groups(stream, shape, given), *behind)

    def _groups(self, stream: int, shape: Shape, given: Any) -> str | None:
        if shape.groups is None:
            return None
        return json.dumps(shape.groups_of(bytes(given), self._books.get(stream, {})))


def _batch(pa: Any, rows: list[tuple[Any, ...]]) -> Any:
    stream, name, time, score, forecast, outcome, outcome_time, status, *wide = zip(*rows, strict=True)
    columns = [stream, name, _micro(time), score, forecast, outcome, _micro(outcome_time), [STATUS[s] for s in status]]
    columns += wide
    return pa.record_batch(
        [pa.array(column, field.type) for column, field in zip(columns, _schema(), strict=True)], schema=_schema()
    )


def _micro(times: Any) -> list[int | None]:
    return [None if time is None else round(time * 1e6) for time in times]


def export(url: str, path: Path, step: Step = no_progress) -> int:
    """Write the log as Parquet, whole or not at all -> how many events."""
    schema, count = _schema(), 0
    import pyarrow.parquet as pq

    with reading(url) as connection, atomic(path) as file:
        shapes = connection.all("SELECT name, text FROM stream JOIN shape ON shape.stream = number ORDER BY number")
        known = {name: Shape.from_text(text).described() for name, text in shapes}
        with pq.ParquetWriter(file, schema.with_metadata({SHAPES: json.dumps(known)})) as writer:
            for part in batches(connection):
                writer.write_batch(part)
                count += part.num_rows
                step(part.num_rows)
    return count


@dataclass(frozen=True)
class StoreLog:
    """A store as one file of a log, for the backtest: all events of two classes, in the order of their times."""

    address: str
    kind: str = "store"
    notes: list[str] = field(default_factory=list, compare=False)

    @property
    def path(self) -> str:
        """What may stand in a report: the address without its password.

        >>> StoreLog("postgresql://host/a?user=me&password=secret").path, StoreLog("calibeat.db").path
        ('postgresql://me@host/a', 'calibeat.db')
        """
        return without_password(self.address)

    @property
    def name(self) -> str:
        """For people: it can do nothing to a terminal."""
        return visible(self.path)

    def rows(self) -> int | None:
        """How many events."""
        with reading(self.address) as connection:
            return int(connection.all(f"SELECT count(*) {_FROM} {_OF_TWO}")[0][0])

    def batches(self, pick: Callable[[list[str], str], list[str]], *_: Any) -> Iterator[tuple[Any, Ints]]:
        """Record batches of the columns that `pick` chooses, and the numbers of their rows."""
        columns = pick([name for name in _schema().names[:7] if name != "forecast"], self.name)
        first = 0
        with reading(self.address) as connection:
            for part in batches(connection, _OF_TWO, scored=True):
                yield part.select(columns), np.arange(first + 1, first + part.num_rows + 1)
                first += part.num_rows


# ---- its states as a bank file, and back -----------------------------------------------------------------------------
#
# Learn from history elsewhere, serve from here, with the same bits. Only states travel. Events, receipts that wait for
# their outcome, roll-ups and monitors stay where they are.


def is_bank_file(path: Path) -> bool:
    """Whether this is a file, and begins as banks do."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def export_bank(url: str, path: Path) -> int:
    """Write the states of all streams as a bank file, whole or not at all -> how many. A service may run meanwhile.

    Streams with many classes, or with groups, are no keys of such a bank and are left out. Where all streams have the
    same classes, it is a `MultiBank`.

    Raises
    ------
    InvalidInput : all streams have classes, and not the same ones.
    """
    with reading(url) as connection:
        meta = get_meta(connection)
        check_described(meta)
        found = connection.all(
            "SELECT name, state, text FROM stream JOIN body ON body.stream = number "
            "LEFT JOIN shape ON shape.stream = number "
            "WHERE state IS NOT NULL ORDER BY number"
        )
    method = model_of(stored_settings(meta)).method
    chosen = [row for row in found if row[2] is None]
    bank: Bank = Bank(method, int(meta["seed"]))
    if found and not chosen:
        shapes = {text: Shape.from_text(text) for _, _, text in found}
        many = [text for text, shape in shapes.items() if shape.numbers > 1 or (shape.classes and method == AUTO)]
        if len(many) > 1:
            words = " and ".join(shapes[text].classes.words() for text in many[:2])  # type: ignore[union-attr]
            raise InvalidInput(f"streams must have the same classes to be keys of one bank, got {words}")
        if many:
            chosen = [row for row in found if row[2] == many[0]]
            bank = MultiBank(shapes[many[0]].classes.given)  # type: ignore[union-attr]
    if chosen:
        rows = np.frombuffer(bytearray(b"".join(bytes(state) for _, state, _ in chosen))).reshape(len(chosen), -1)
        rows_in(bank, [name for name, *_ in chosen], rows, seen=True)
    bank.save(path)
    return len(chosen)


def import_bank(url: str, path: Path, method: str | None = None) -> int:
    """Put the rows of a bank file into a store as streams, all or none -> how many. No service may run meanwhile.

    A store that is new gets the method and the seed of the bank. The streams go on from where the keys were. Replays
    start from these rows, as they do after pruning. The keys of a `MultiBank` become streams of its classes, which a
    store of any method has.
    """
    bank: Any = (MultiBank if holds_classes(path) else Bank).load(path, threads=1)
    shape = _shape_of(bank, path) if isinstance(bank, MultiBank) else PLAIN
    name = _check_bank(bank, path, method) if shape.numbers == 1 else None
    new, band = name or (method or "auto").lower(), bool(getattr(bank.method, "band", False))
    Model.named(new, band=band)  # a bad name is noticed before it is written
    streams, rows = [str(key) for key in bank], bank.rows(list(bank))
    _check_names(streams, path)
    width = rows.shape[1] - STATS
    rows[:, width + LAST] = 0.0
    with owned_store(url, create=True) as store:
        connection = store.connection
        claim_meta(connection, EngineSettings(method=new, seed=bank.seed, notice=True, band=band))
        meta = get_meta(connection)
        check_described(meta)
        if name is not None and (meta["method"], int(meta["seed"])) != (name, bank.seed):
            raise InvalidInput(
                f"bank must have the method and the seed of the store, {meta['method']!r} and {meta['seed']}, "
                f"got {name!r} and {bank.seed} - in {path}"
            )
        if band != stored_settings(meta).band:
            wanted = "on" if band else "off"
            raise InvalidInput(
                f"band of the store must be that of the bank, {wanted} - `calibeat store configure --band {wanted}`"
            )
        _insert(store, streams, rows, rows[:, width:], shape)
    return len(streams)


def _shape_of(bank: MultiBank, path: Path) -> Shape:
    """The shape of streams that go on with such a bank."""
    if bank.method != "multi" or bank.logits:
        raise InvalidInput(
            "bank of many classes must be of multi and take probabilities, as a service does, got "
            f"{bank.method}{' of logits' if bank.logits else ''} - in {path}"
        )
    count = len(bank.classes)
    classes: Any = count if bank.classes == tuple(range(count)) else list(bank.classes)
    if isinstance(classes, list) and not all(isinstance(name, str) for name in classes):
        raise InvalidInput(f"classes must be names, or the numbers of the columns, got {classes!r:.60} - in {path}")
    return Shape.of_settings(StreamSettings(classes=classes), AUTO)


def _check_bank(bank: Bank, path: Path, wanted: str | None) -> str:
    """The name of its method, if a store can go on with it."""
    pair = isinstance(bank, MultiBank)  # two classes with names
    name = "auto" if pair else name_of_method(replace(bank.method, band=False))
    if name is None:
        raise InvalidInput(f"bank must be of a method that has a name, got {bank.method!r:.200} - in {path}")
    if wanted is not None and wanted.lower() != name:
        raise InvalidInput(f"method must be that of the bank, {name!r}, got {wanted!r}")
    if not pair and bank.method.draws and not all(isinstance(key, str) for key in bank):
        raise InvalidInput(
            f"bank of {name} must have keys of text, got numbers, whose draws a service cannot go on with - in {path}"
        )
    return name


def _check_names(streams: list[str], path: Path) -> None:
    for name in streams:
        problem = bad_name("key", name)
        if problem:
            raise InvalidInput(f"{problem} - in {path}")


def _insert(store: Store, streams: list[str], rows: Matrix, stats: Matrix, shape: Shape) -> None:
    """New streams, whose base is these rows. A stream that has events already is refused."""
    connection = store.connection
    there = dict(connection.all("SELECT name, events FROM stream"))
    taken = next((stream for stream in streams if there.get(stream)), None)
    if taken is not None:
        raise InvalidInput(f"keys must be new to the store, got {taken!r}, which has events there")
    sums = np.zeros((len(rows), SUMS))
    sums[:, [RAW_LOG_LOSS, LOG_LOSS, RAW_BRIER, BRIER]] = stats[:, list(LOSSES.values())]
    sums[:, WEIGHTS] = stats[:, WEIGHTS_OF_ROW]
    events, outcomes = stats[:, EVENTS].astype(int).tolist(), rows[:, N].astype(int).tolist()
    position = last_position(connection)
    number = last_stream(connection)
    known, now, changes, log = store.streams(streams), time.time(), Changes(), list[Any]()
    for at, name in enumerate(streams):
        state = known.get(name)
        if state is None:
            number, position = number + 1, position + 1
            state = StreamState(name, number=number)
            log.append(ops.row_of(position, number, ops.BEGIN, at=now, id=name))
        if shape is not PLAIN:
            position += 1
            text = shape.to_text().encode()
            log.append(ops.row_of(position, state.number, ops.DEFINE, at=now, given=text))
            state.shape = shape
            changes.shaped[name] = state
        position += 1
        log.append(ops.row_of(position, state.number, ops.COPY, at=now, id="bank"))
        state.events, state.outcomes, state.state = events[at], outcomes[at], rows[at].tobytes()
        state.sums, state.base, state.applied = sums[at].tobytes(), position, position
        changes.streams[name] = state
    store.append(log)
    store.write(rows_of(changes))
    for state in changes.streams.values():
        Base.of_present(state).write(connection, state.number)
    set_meta(connection, "flushed", str(position))


STREAM = "stream"  # the column of streams, unless another is named
_HOUR = 3_600_000_000  # microseconds
_CACHE = 16 << 10  # KiB of the staged rows that stay in memory
_NTH = "SELECT number, row_number() OVER (PARTITION BY stream, id ORDER BY number) AS nth FROM line"
_IN_ORDER = """
    SELECT time AS at, 1 AS turn, number, 0 AS is_outcome, stream, id, score, given, file, row FROM line
    UNION ALL
    SELECT iif(known > time, known, time), iif(known > time, 0, 1), number, 1, stream, id, outcome, label, file, row
        FROM line WHERE outcome IS NOT NULL
    ORDER BY at, turn, file, row, is_outcome"""
_AGAIN = f"SELECT number FROM ({_NTH}) WHERE nth > 1"  # noqa: S608 - our own text

# ---- a log into the store: columns and rows --------------------------------------------------------------------------
#
# A log is checked as HTTP checks events, put in the order of a service, learnt all or nothing. The order of forecasts
# and outcomes is known only after the last row. Until then the rows are staged in a temporary database on the disk.
# Memory does not grow with the log.


@dataclass(eq=False)
class EventColumns(Columns):
    """The columns of a log of events. What is found by its name is as good as named: it is read, or refused.

    `blank_key` is the stream of events without one. `prefix` begins the ids of a log that has none.
    """

    blank_key: str | None = None
    prefix: str | None = None
    found: dict[str, str] = field(default_factory=dict)  # by role: columns that nobody has named

    def __post_init__(self) -> None:
        for option, what, name in (("--blank-key", "stream", self.blank_key), ("--id-prefix", "id", self.prefix)):
            problem = "" if name is None else bad_name(what, name)
            if problem:
                raise InvalidInput(f"{option}: {problem}")

    @property
    def guessed(self) -> dict[str, str]:
        """The columns that nobody has named, by role."""
        return self.found

    def pick(self, header: Sequence[str], where: str) -> list[str]:
        """The columns to read from a file with this header."""
        if not self.chosen and self.asked.get("key") is None and STREAM in header:
            self.asked = {**self.asked, "key": STREAM}
        picked = super().pick(header, where)
        self.found |= super().guessed
        for column in self.chosen.values():
            column["guessed"] = False
        self._check_roles(", ".join(map(repr, header[:20])), where)
        return picked

    def _check_roles(self, there: str, where: str) -> None:
        """Events need a stream and an id, and two times or one or none."""
        if "key" not in self.chosen and self.blank_key is None:
            raise InvalidInput(
                f"stream column must be named, got none of the name {STREAM!r} in {where}; say --stream with one of "
                f"{there}, or --blank-key NAME to put all events into one stream"
            )
        if "id" not in self.chosen and self.prefix is None:
            raise InvalidInput(
                f"id column must be named, got no column of a usual name in {where}; say --id with one of {there}, or "
                "--id-prefix NAME to make ids of the numbers of the rows: NAME-1, NAME-2, ..."
            )
        if "id" in self.chosen and self.prefix is not None:
            name = self.chosen["id"]["name"]
            raise InvalidInput(
                f"--id-prefix must be given where there are no ids, got {name!r} in {where}; say --id none"
            )
        if "outcome time" in self.unused and self.asked.get("outcome time") is None:
            name = self.unused["outcome time"][0]
            raise InvalidInput(
                f"times of outcomes must come with times of events, got {name!r} alone in {where}; name those with "
                "--time, or say --outcome-time none"
            )


@dataclass(eq=False)
class EventReader(RowReader):
    """Rows that can be events of a store: with names and times that HTTP takes too.

    Rows may be in any order. Repeated ids are found once all rows are there. `prefix` begins the ids of a log that has
    none: the rest is the number of the row, counted over all files.
    """

    prefix: str | None = None
    early: int = 0  # outcomes with a time before that of their event
    _file: int = 0
    _rows_before: int = 0  # this file
    _rows_here: int = 0

    def _check(self, batch: LogBatch) -> Piece:
        if batch.file != self._file:
            self._rows_before += self._rows_here
            self._file, self._rows_here = batch.file, 0
        if len(batch):
            self._rows_here = int(batch.rows[-1])
        piece = super()._check(batch)
        if piece.ids is None and piece.rows is not None:
            numbers = (self._rows_before + piece.rows).tolist()
            piece.ids = np.array([f"{self.prefix}-{number}" for number in numbers], dtype=object)
        return piece

    def _check_ids(self, batch: LogBatch, keep: Flags) -> str | None:  # noqa: ARG002 - as its base
        return None

    def _check_order(self, batch: LogBatch, times: Moments, keep: Flags) -> str | None:  # noqa: ARG002 - as its base
        return None

    def _look_at_early_outcomes(self, batch: LogBatch, early: Flags, look: Any) -> None:  # noqa: ARG002 - as its base
        """A service takes them: two clocks may differ. Such an outcome is learnt right after its forecast."""
        self.early += int(np.count_nonzero(early))

    def _look_at_times_and_keys(
        self, batch: LogBatch, times: Moments | None, arrivals: Moments | None, look: Any, must: Any
    ) -> None:
        super()._look_at_times_and_keys(batch, times, arrivals, look, must)
        for role, column in (("time", times), ("outcome time", arrivals)):
            if column is not None:
                far = (column.values < 0) | (column.values > int(LATEST_TIME) * 1_000_000)
                wanted = must(role, f"in seconds since 1970, from 0 to {LATEST_TIME:.0f}, or a date of that time")
                look((column.states == OK) & far, f"{role} is before 1970", wanted)
        if batch.keys is not None:
            streams = np.array([*(bad_name("stream", name_of(name)) for name in batch.keys.names), ""], dtype=object)
            self._look_at_names("stream", streams[batch.keys.indices], batch, look)
        if batch.ids is not None:
            gone = np.array([is_missing(value) for value in batch.ids])
            look(gone, "id is missing", must("id", "there", "missing"))
            ids = [bad_name("id", name_of(value)) for value in batch.ids]
            self._look_at_names("id", np.where(gone, "", np.array(ids, dtype=object)), batch, look)

    @staticmethod
    def _look_at_names(what: str, problems: Any, batch: LogBatch, look: Any) -> None:
        look(
            problems.astype(bool),
            f"{what} is no name that a store takes",
            lambda row: f"{problems[row]} - at {batch.where(row)}",
        )


# ---- a log that `export` has written ---------------------------------------------------------------------------------


def is_exported(file: Any) -> bool:
    """Whether a file is Parquet with the columns of classes and groups that `export` writes."""
    if file.kind != PARQUET or not Path(file.path).is_file():
        return False
    import pyarrow.parquet as pq

    with sentences(file.name):
        names = pq.ParquetFile(file.path).schema_arrow.names
    return set(_schema().names[:12]) <= set(names)  # the others are younger


class ExportedFile:
    """An exported log as a file of plain events; those with more are put aside, in `wide`. `shapes`: of its streams."""

    kind = PARQUET

    def __init__(self, file: LogFile) -> None:
        self._file, self.notes = file, file.notes
        self.path, self.name = file.path, file.name
        self.wide: list[tuple[int, dict[str, Any]]] = []  # the number of the row, and its columns
        self.shapes: dict[str, dict[str, Any]] = {}

    def batches(self, pick: Callable[[list[str], str], list[str]], *_: Any) -> Iterator[tuple[Any, Ints]]:
        """Record batches of the columns that `pick` chooses, and the numbers of their rows."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns, first = pick(_schema().names[:7], self.name), 0
        with sentences(self.name):
            file = pq.ParquetFile(self.path)
            self.shapes = json.loads((file.schema_arrow.metadata or {}).get(SHAPES.encode(), b"{}"))
            for part in file.iter_batches(EXPORTED_AT_ONCE):
                rows = np.arange(first + 1, first + part.num_rows + 1)
                first += part.num_rows
                is_wide = np.zeros(part.num_rows, dtype=bool)
                for name in {"scores", "label", "groups", "weight", "of"}.intersection(part.schema.names):
                    is_wide |= np.asarray(part.column(name).is_valid())
                chosen = part.filter(pa.array(is_wide))
                for name in ("time", "outcome_time"):
                    moments = chosen.column(name).cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
                    chosen = chosen.set_column(chosen.schema.get_field_index(name), name, moments)
                self.wide += list(zip(rows[is_wide].tolist(), chosen.to_pylist(), strict=True))
                if not is_wide.all():
                    yield part.filter(pa.array(~is_wide)).select(columns), rows[~is_wide]


def are_places(names: Iterable[str]) -> bool:
    """Whether classes have the numbers of their columns as names: HTTP takes their scores as a list."""
    found = list(names)
    return found == [str(column) for column in range(len(found))]


def wide_fields(event: dict[str, Any], *, has_models: bool = False) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """What the forecast and the outcome of an exported event had, as HTTP takes them; None without an outcome."""
    scores, label, outcome = event["scores"], event["label"], event["outcome"]
    by_place = scores is not None and not has_models and are_places(name for name, _ in scores)
    given: dict[str, Any] = {"score": event["score"]}
    if scores is not None:
        given = {"scores": [score for _, score in scores] if by_place else dict(scores)}
    if event["groups"] is not None:
        given["groups"] = json.loads(event["groups"])
    result: dict[str, Any] | None = None
    if event.get("of") is not None:
        result = {"ones": event["ones"], "of": event["of"]}
    elif label is not None:
        result = {"label": int(label) if by_place else label}
    elif outcome is not None:
        result = {"outcome": outcome}
    if result is not None and event.get("weight") is not None:
        result["weight"] = event["weight"]
    return given, result


def settings_of(stream: str, described: dict[str, Any]) -> StreamSettings:
    """What makes a stream as another one is described."""
    found = {name: described[name] for name in ("classes", "models", "kept") if described.get(name) is not None}
    if (groups := described.get("groups")) is not None:
        found |= {"groups": groups["attributes"], **{name: groups[name] for name in ("crossings", "cells", "names")}}
    return msgspec.convert({"stream": stream, **found}, StreamSettings)


# ---- all rows of a log -----------------------------------------------------------------------------------------------


class Operation(NamedTuple):
    """What a service would have been asked: the number of the row, when (microseconds), and the event."""

    number: int
    at: int
    event: Event


class Stage:
    """All rows of a log, on the disk. Closing it deletes them, and so does the end of the process."""

    _classes: ClassesOfLog | None = None  # of a log that others have written
    _groups: GroupsOfLog | None = None

    def __init__(self) -> None:
        self.files: list[str] = []
        self.streams: list[str] = []
        self.events = self.outcomes = 0
        self.timed = False
        self.columns: dict[str, str] = {}  # by role
        self.skipped: list[Skipped] = []
        self.notes: list[str] = []
        self.settings: list[StreamSettings] = []  # of streams that an exported log describes
        self._database = sqlite3.connect("", isolation_level=None)  # a file of its own, which has no name
        self._run = self._database.execute
        for setting in ("journal_mode = OFF", "synchronous = OFF", f"cache_size = -{_CACHE}"):
            self._run(f"PRAGMA {setting}")
        self._run(
            "CREATE TABLE line (number INTEGER PRIMARY KEY, stream INTEGER NOT NULL, id TEXT NOT NULL, score REAL NOT "
            "NULL, outcome INTEGER, time INTEGER, known INTEGER, file INTEGER NOT NULL, row INTEGER NOT NULL, "
            "given TEXT, label TEXT)"  # of classes and groups: what the events have, as JSON
        )

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def read(self, files: list[LogFile], columns: EventColumns, options: Options, step: Step = no_progress) -> None:
        """Read and check all rows; the first that is wrong is named, unless such rows are to be skipped."""
        require_arrow()
        self.files, self._classes, self._groups = [file.name for file in files], columns.classes, columns.groups
        reader = EventReader(options, trace=True, prefix=columns.prefix, classes=self._classes, groups=self._groups)
        if self._groups is not None:
            self._groups.keep_all_names()
        named = self._classes is not None or self._groups is not None
        wide = {number: ExportedFile(file) for number, file in enumerate(files) if not named and is_exported(file)}
        plain: list[Any] = [wide.get(number, file) for number, file in enumerate(files)]
        with _room():
            for piece in reader.pieces(read_log(plain, columns, options, reader, step)):
                self._add(piece)
            self.streams = reader.names or [str(options.blank_key)]
            for number, file in wide.items():
                self._add_wide(number, file)
            self._drop_repeats(reader)
            self.events, self.outcomes = self._run("SELECT count(*), count(outcome) FROM line").fetchone()
        if not any(file.wide for file in wide.values()):
            reader.check_end()
        self.columns = {STREAM if role == "key" else role: at["name"] for role, at in columns.shown.items()}
        self.timed, self.skipped = "time" in columns.chosen, reader.skipped
        self.notes = columns.all_notes + reader.clock.notes + reader.outcomes.how_read + self._own_notes(reader)
        self.notes += [self._classes.note] if self._classes is not None else []
        self.notes += self._groups.notes if self._groups is not None else []

    def _own_notes(self, reader: EventReader) -> list[str]:
        notes = []
        if not self.timed:
            notes.append("There is no column of times: events have the time of the import, and the order of the rows.")
        if self.outcomes and "outcome time" not in self.columns:
            notes.append("There is no column of outcome times: each outcome was learnt right after its forecast.")
        if reader.early:
            notes.append(
                f"{reader.early:,} outcome times are before the time of their event. Such outcomes were learnt right "
                "after it."
            )
        return notes

    def _add(self, piece: Piece) -> None:
        count = len(piece.scores)
        outcomes = [None if outcome != outcome else int(outcome) for outcome in piece.outcomes.tolist()]  # noqa: PLR0124
        times = [None] * count if piece.times is None else piece.times.tolist()
        known = [None] * count if piece.arrivals is None else piece.arrivals.tolist()
        files, rows = (np.asarray(column).tolist() for column in (piece.files, piece.rows))
        scores, given, labels = self._given(piece, outcomes)
        self._run("BEGIN")
        self._database.executemany(
            "INSERT INTO line (stream, id, score, given, label, outcome, time, known, file, row) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            zip(
                piece.slots.tolist(),
                piece.ids.tolist(),
                scores,
                given,
                labels,
                outcomes,
                times,
                [None if moment == NEVER else moment for moment in known],
                files,
                rows,
                strict=True,
            ),
        )
        self._run("COMMIT")

    def _given(self, piece: Piece, outcomes: list[int | None]) -> tuple[list[Any], list[Any], list[Any]]:
        """What rows give beside numbers: scores, and of classes and groups what the events have, as JSON.

        Which names the classes have is settled by their first labels, so until then they are columns.
        """
        count, scores = len(piece.scores), piece.scores.tolist()
        if self._classes is not None:
            labels = [None if outcome is None else json.dumps(outcome) for outcome in outcomes]
            return [0.0] * count, [json.dumps(event) for event in scores], labels
        if self._groups is None or piece.words is None:
            return scores, [None] * count, [None] * count
        groups = [self._groups.values_of(words) for words in piece.words.tolist()]
        given = [{"score": score, "groups": values} for score, values in zip(scores, groups, strict=True)]
        known = [None if outcome is None else json.dumps({"outcome": outcome}) for outcome in outcomes]
        return scores, [json.dumps(event) for event in given], known

    def _add_wide(self, number: int, file: ExportedFile) -> None:
        """The events of an exported log that have classes or groups."""
        numbers = {name: at for at, name in enumerate(self.streams)}
        self.settings += [settings_of(name, shape) for name, shape in file.shapes.items()]
        for row, event in file.wide:
            problem = bad_name("stream", event["stream"]) or bad_name("id", event["id"])
            if problem or event["time"] is None:
                raise InvalidInput(f"{problem or 'time must be there, got nothing'} - at row {row:,} of {file.name}")
            if event["stream"] not in numbers:
                numbers[event["stream"]] = len(self.streams)
                self.streams.append(event["stream"])
            given, result = wide_fields(event, has_models=bool(file.shapes.get(event["stream"], {}).get("models")))
            outcome = None if result is None else int(result.get("outcome", 0))
            self._run(
                "INSERT INTO line (stream, id, score, outcome, time, known, file, row, given, label) "
                "VALUES (?, ?, 0, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(numbers[event["stream"]], event["id"], outcome, event["time"], event["outcome_time"]),
                    *(number, row, json.dumps(given), None if result is None else json.dumps(result)),
                ),
            )

    def _drop_repeats(self, reader: EventReader) -> None:
        """An id must be there once in its stream. The second time is refused, or skipped."""
        first = self._run(f"SELECT min(number) FROM ({_AGAIN})").fetchone()[0]  # noqa: S608 - our own text
        if first is None:
            return
        if not reader.options.skip_bad:
            (name,) = self._run("SELECT id FROM line WHERE number = ?", (first,)).fetchone()
            raise InvalidInput(f"event id must be there once only, got {name!r} again - at {self.where(first)}")
        where = self.where(first)
        count = self._run(f"DELETE FROM line WHERE number IN ({_AGAIN})").rowcount  # noqa: S608 - our own text
        reader.skip("event id came before", where, count)

    def where(self, number: int) -> str:
        """The place of a row, for messages."""
        file, row = self._run("SELECT file, row FROM line WHERE number = ?", (number,)).fetchone()
        return f"row {row:,} of {self.files[file]}"

    def operations(self) -> Iterator[Operation]:
        """Forecasts and outcomes in the order in which a service would have got them.

        An outcome is learnt before the first forecast of its time or later, and after its own forecast, as in a
        backtest. Forecasts of one time are in the order of the rows.
        """
        with _room():
            for at, _, number, is_outcome, stream, name, value, wide, *_ in self._run(_IN_ORDER):
                seconds = None if at is None else at / 1e6
                kind: Any = OutcomeEvent if is_outcome else ForecastEvent
                if wide is None:
                    event = kind(self.streams[stream], name, value, seconds)
                else:
                    event = kind(self.streams[stream], name, time=seconds, **self._fields(json.loads(wide), is_outcome))
                yield Operation(number, at, event)

    def _fields(self, given: Any, is_outcome: int) -> dict[str, Any]:
        """What an event of classes or groups has, as HTTP takes it."""
        if self._classes is None:
            return dict(given)
        names = self._classes.names
        by_place = are_places(names)
        if is_outcome:
            return {"label": given if by_place else names[given]}
        return {"scores": given if by_place else dict(zip(names, given, strict=True))}


@contextmanager
def _room() -> Iterator[None]:
    """An error of the temporary database as a sentence."""
    try:
        yield
    except sqlite3.Error as error:
        raise InvalidInput(
            f"the folder for temporary files must have room for the rows of the log, got: {error}; the variable "
            "SQLITE_TMPDIR names another"
        ) from error


# ---- into the store --------------------------------------------------------------------------------------------------


@dataclass
class Imported:
    """What an import has done: rows that were read, and what of them was new to the store."""

    events: int
    forecasts: int = 0
    outcomes: int = 0
    repeated: int = 0  # forecasts that the store had
    expired: int = 0  # outcomes of forecasts that the store has given up


def import_events(url: str, stage: Stage, settings: EngineSettings, step: Step = no_progress) -> Imported:
    """Put all staged rows into a store, in one transaction. Nobody else may use the store meanwhile.

    Events that the store has change nothing, so the same log may be imported again. A log that contradicts the store
    is refused. What belongs to the store stays; only expiry and maturity do not apply to a log.
    """
    operations = stage.operations()
    first = list(islice(operations, 1))  # to sort takes time, and no transaction should wait for it
    operations = chain(first, operations)
    failures: tuple[type[Exception], ...] = ()
    try:
        with owned_store(url, create=True) as store:
            failures = store.failures
            return _learn(store, stage, settings, operations, step)
    except failures as error:
        raise InvalidInput(f"store must be there until the end, got: {error} - nothing was imported") from error


def _learn(
    store: Store, stage: Stage, settings: EngineSettings, operations: Iterator[Operation], step: Step
) -> Imported:
    settings = replace(settle_meta(store, settings), expire=None, expire_as=None, mature=None)
    now = time.time()
    engine = Engine(store, settings, model_of(settings), lambda: now)
    before, statuses = _forecasts(store), Counter[str]()
    known = store.connection.all("SELECT coalesce(max(number), 0) FROM alarm")[0][0]
    engine.recover()
    engine.is_live, engine.behind.may_wait = not stage.timed, True
    engine.listening.list_deadlines()
    is_watched = settings.monitor is not None or bool(settings.notice)
    for asked in stage.settings:
        ((_, defined),) = engine.process([(None, [asked])])
        if isinstance(defined, Refusal):
            raise InvalidInput(f"log must fit the store, got: {defined.message} - stream {asked.stream!r}")
    for group in _groups(operations, settings.group, hourly=stage.timed and is_watched):
        if stage.timed:
            now = group[-1].at / 1e6  # the clock of the service that would have got these events
        runs = [list(run) for _, run in groupby(group, key=lambda operation: type(operation.event))]
        answers = engine.process([(None, [operation.event for operation in run]) for run in runs])
        for run, (_, answer) in zip(runs, answers, strict=True):
            if isinstance(answer, Refusal):
                problem = answer.message.rpartition(" - at event")[0]
                raise InvalidInput(
                    f"log must fit the store, got: {problem} - at {stage.where(run[int(answer.at or 0)].number)}"
                )
            if isinstance(run[0].event, OutcomeEvent):
                _check_outcomes(run, list(answer), stage)
                statuses.update(map(str, answer))
        engine.write_in_time(is_idle=is_watched)
        step(len(group))
    engine.write_out()
    if stage.timed and settings.notice:
        engine.listening.leave_sign(now)  # what comes after the log, until a service runs, is no silence
    # Nobody is paged for history.
    store.connection.run("UPDATE alarm SET delivered = ? WHERE number > ?", (NOT_SENT, known))
    made = _forecasts(store) - before
    return Imported(stage.events, made, statuses["learnt"], stage.events - made, statuses["expired"])


def _groups(operations: Iterator[Operation], most: int, *, hourly: bool) -> Iterator[list[Operation]]:
    """Operations in groups of a size; hourly ones where alarms are to be told at their time."""
    group: list[Operation] = []
    for operation in operations:
        if len(group) == most or (hourly and group and operation.at // _HOUR != group[0].at // _HOUR):
            yield group
            group = []
        group.append(operation)
    if group:
        yield group


def _forecasts(store: Store) -> int:
    return int(store.connection.all("SELECT coalesce(sum(events), 0) FROM stream")[0][0])


def _check_outcomes(run: list[Operation], statuses: Sequence[Any], stage: Stage) -> None:
    for (number, _, event), status in zip(run, statuses, strict=True):
        if status == "conflict":
            raise InvalidInput(
                "log must fit the store, got: outcome must be the one that is known already, got another for "
                f"{event.id!r} of {event.stream!r} - at {stage.where(number)}"
            )
