"""Rows: the matrix of a bank with a row for each key, its receipts, `fold` on rows, and the check of rows from outside.

A row is the state of a stream, and behind it its stats. A receipt is what an outcome needs to be learnt, any time later
and in any process that has the row of its key. It has the layout of `Forecast.to_bytes`: so `Forecast.from_bytes` reads
it, and what `to_bytes` wrote may be brought to `fold`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from calibeat._compiled import bytes_of
from calibeat._util.check import shown
from calibeat._util.types import Ints, Slots, Vector
from calibeat.core.groups import GROUPED_RECEIPT_WIDTH, NO_CELLS, Cells
from calibeat.core.kernel import ask
from calibeat.core.layout import N, Spec
from calibeat.core.loops import NO_INTS, NO_NUMBERS, learn_late, play_any
from calibeat.core.method import params_of_rows
from calibeat.core.receipt import FORMAT, watched_columns
from calibeat.core.stats import EVENTS, LAST, LOSSES, STATS, add_class_losses, add_losses
from calibeat.core.subset import loop
from calibeat.core.vector import predict as predict_classes
from calibeat.core.vector import update as update_label
from calibeat.errors import InvalidInput, OutcomeConflict, UnknownForecast
from calibeat.monitor.bets import Settings
from calibeat.monitor.monitors import Monitors
from calibeat.monitor.notices import Notices, NoticeSettings

from .keys import EVERY, MOST_KEYS, Index, Key, KeyColumn, Seed, kind_of, with_room
from .ledger import AnyMethod
from .pool import Pool, learn, start_row

Matrix = npt.NDArray[np.float64]
CLASSES_FOLLOW = 255  # in place of the number of candidates: a receipt of many classes
Flags = npt.NDArray[np.bool_]
Columns = dict[str, npt.NDArray[Any]]
ReceiptArray = npt.NDArray[np.void]  # of `receipt_type`, or as bytes of that width


class RowStore:
    """A matrix with a row for each key: the state of a stream, and behind it its stats."""

    def __init__(
        self, method: AnyMethod, monitored: Settings | None = None, noticed: NoticeSettings | None = None
    ) -> None:
        self.method = method
        self.monitors = None if monitored is None else Monitors(monitored)  # a second matrix, with a row for each slot
        self.notices = None if noticed is None else Notices(noticed)  # and a third
        self.fresh = method.initial_row()
        self.stride = method.width + STATS
        self._opened = np.append(self.fresh, np.zeros(STATS))  # a new row
        self.receipt_width = method.receipt_width
        self._hold(np.empty((0, self.stride)))
        self.index: Index | None = None  # ints or strings: the first key tells
        # Of the first rows: below which event receipts of other banks are valid. It is replaced, never changed.
        self.foreign = np.empty(0)
        self.moves = 0  # how often rows have changed their place: members compare it

    def __len__(self) -> int:
        return 0 if self.index is None else self.index.count

    def _hold(self, matrix: Matrix) -> None:
        """Take a matrix of rows, with room for more, also as the kernels and as plain Python read it fastest."""
        flat: Vector = matrix.reshape(-1)
        view: Any = flat.data
        self.matrix, self.flat, self.view = matrix, flat, view  # one line, so that no interrupt leaves them apart

    @property
    def watched(self) -> Settings | None:
        """What the monitors are asked for, if there are any."""
        return None if self.monitors is None else self.monitors.settings

    @property
    def noticed(self) -> NoticeSettings | None:
        """What the notices are asked for, if there are any."""
        return None if self.notices is None else self.notices.settings

    @property
    def watchers(self) -> list[Monitors | Notices]:
        """The other matrices, which have the same slots."""
        return [watcher for watcher in (self.monitors, self.notices) if watcher is not None]

    def tell_forecast(self, slot: int, events: int, score: float, now: float) -> None:
        """Tell the watchers that a slot has made so many forecasts; they may be told twice."""
        if self.monitors is not None:
            self.monitors.catch_up(slot, events)
        if self.notices is not None:
            self.notices.forecast(slot, events - 1, now, score)

    def told(self, slot: int) -> float:
        """How many outcomes of a slot its notice was told of."""
        return 0.0 if self.notices is None else self.notices.told(slot)

    def tell_outcome(self, slot: int, event: int, watched: tuple[float, float, float], now: float, told: float) -> None:
        """Tell the watchers of an outcome; they may be told twice."""
        if self.monitors is not None:
            self.monitors.update(slot, event, watched)
        if self.notices is not None:
            self.notices.outcome(slot, event, now, told)

    @property
    def kind(self) -> str:
        """What the keys are: "none", "ints" or "strings"."""
        return "none" if self.index is None else self.index.kind

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the rows, the keys and their index take."""
        keys = 0 if self.index is None else self.index.nbytes
        return len(self) * self.stride * 8 + keys + sum(watcher.nbytes for watcher in self.watchers)

    def check(self, column: KeyColumn) -> KeyColumn:
        """The column, if its keys are of the kind that is here."""
        if len(column):
            self._check_kind(column.kind, " - at row 0")
        return column

    def _check_kind(self, kind: str, where: str = "") -> None:
        if self.index is not None and kind != self.index.kind:
            raise InvalidInput(f"keys must be {self.index.kind} like those of the bank, got {kind}{where}")

    def find(self, column: KeyColumn) -> Slots:
        """The slot of each key, -1 for one that is not here."""
        return np.full(len(column), -1, dtype=np.int32) if self.index is None else self.index.find(column)

    def find_one(self, key: int | bytes) -> int:
        """The slot of one key (an int, or the UTF-8 of a string), -1 if it is not here."""
        self._check_kind(kind_of(key))
        return -1 if self.index is None else self.index.find_one(key)

    def open(self, column: KeyColumn) -> Slots:
        """The slot of each key; new keys get a row, which is that of a stream that has seen nothing."""
        if self.index is None:
            self.index = Index(column.kind)
        before = len(self)
        slots = self.index.add(column)
        self._open_from(before)
        return slots

    def open_one(self, key: int | bytes) -> int:
        """The slot of one new key."""
        if self.index is None:
            self.index = Index(kind_of(key))
        before = len(self)
        self.index.add_one(key)
        self._open_from(before)
        return before

    def _open_from(self, before: int) -> None:
        count = len(self)
        if count > MOST_KEYS:  # pragma: no cover - hundreds of gigabytes of keys
            raise InvalidInput(f"a bank must have at most {MOST_KEYS} keys, got {count}")
        if count > before:
            room = with_room(self.matrix, before, count)
            room[before:count] = self._opened
            if room is not self.matrix:
                self._hold(room)
            for watcher in self.watchers:
                watcher.resize(count)

    def truncate(self, index: Index | None, count: int, foreign: Vector) -> None:
        """Back to the keys that an index had, in whatever state its table is now."""
        if index is not None:
            index.relink(count)
        self.index, self.foreign = index, foreign
        self.moves += 1
        for watcher in self.watchers:
            watcher.truncate(count)

    def remove(self, slot: int) -> None:
        """Forget a row; the last one takes its place."""
        assert self.index is not None  # noqa: S101 - there is a slot, so there are keys
        last = len(self) - 1
        self.matrix[slot] = self.matrix[last]
        for watcher in self.watchers:
            watcher.remove(slot)
        if slot < len(self.foreign):
            foreign = self.foreign[:last].copy()
            foreign[slot:][:1] = self.foreign_until(last)
            self.foreign = foreign
        self.index.remove(slot)
        if last == 0:
            self.index = None
        self.moves += 1

    def take(self, column: KeyColumn, other: RowStore) -> None:
        """Rows of another store, whose keys are the column and not here yet."""
        first = len(self)
        foreign = np.concatenate([self._foreign_of_all(), other.stats(EVENTS)])
        self.open(column)
        self.matrix[first : len(self)] = other.matrix[: len(other)]
        if self.monitors is not None and other.monitors is not None:
            self.monitors.truncate(first)
            self.monitors.take(other.monitors)
        if self.notices is not None and other.notices is not None:
            self.notices.truncate(first)
            self.notices.take(other.notices)
        self.foreign = foreign

    def accept_foreign_rows(self) -> None:
        """All rows come from another bank or from a file: so may the receipts of the forecasts made so far."""
        self.foreign = self.stats(EVENTS).copy()
        for watcher in self.watchers:
            watcher.realign()

    def accept_foreign(self, slots: Slots | slice = EVERY) -> None:
        """Accept receipts of other banks for the forecasts that these rows have made so far."""
        foreign = self._foreign_of_all()
        foreign[slots] = self.stats(EVENTS)[slots]
        self.foreign = foreign

    def foreign_until(self, slot: int) -> int:
        """Receipts of other banks are valid for the events of a row below this one."""
        return int(self.foreign[slot]) if slot < len(self.foreign) else 0

    def _foreign_of_all(self) -> Vector:
        return np.concatenate([self.foreign, np.zeros(len(self) - len(self.foreign))])

    def selected(self, chosen: Flags) -> RowStore:
        """A copy of some rows."""
        other = RowStore(self.method, self.watched, self.noticed)
        if self.index is not None and chosen.any():
            other.index = Index(self.index.kind, self.index.seed)
            other.open(self.index.column(chosen))
            other.matrix[: len(other)] = self.matrix[: len(self)][chosen]
            other.foreign = self._foreign_of_all()[chosen]
            if self.monitors is not None:
                other.monitors = self.monitors.selected(chosen)
            if self.notices is not None:
                other.notices = self.notices.selected(chosen)
        return other

    # ---- as columns -----------------------------------------------------------------------------------------------

    def stats(self, at: int) -> Vector:
        """One of the numbers behind the state, of all rows; a view."""
        return self.matrix[: len(self), self.method.width + at]

    def names(self, slots: Slots | slice = EVERY) -> npt.NDArray[Any]:
        """The keys, of all rows or of some."""
        return np.empty(0, dtype=np.int64) if self.index is None else self.index.names(slots)

    def params(self, slots: Slots | slice = EVERY) -> Columns:
        """The parameters of all rows, or of some."""
        return params_of_rows(self.method, self.matrix[: len(self), : self.method.width][slots])

    def table(self, clock: int, slots: Slots | slice = EVERY) -> Columns:
        """What `Bank.table` gives, of all rows, or of some."""
        learnt = self.matrix[: len(self), N][slots]
        with np.errstate(invalid="ignore", divide="ignore"):
            means = {name: self.stats(at)[slots] / learnt for name, at in LOSSES.items()}
        return {
            "key": self.names(slots),
            "events": self.stats(EVENTS)[slots].astype(np.int64),
            "outcomes": learnt.astype(np.int64),
            "idle": clock - self.stats(LAST)[slots].astype(np.int64),
            **self.params(slots),
            **means,
            **self._watched_columns(np.arange(len(self), dtype=np.int32)[slots]),
        }

    def _watched_columns(self, slots: Slots) -> Columns:
        return {name: column for watcher in self.watchers for name, column in watcher.columns(slots).items()}

    # ---- as a file ------------------------------------------------------------------------------------------------

    def arrays(self) -> Columns:
        """What a file has to hold."""
        arrays = {} if self.index is None else self.index.arrays()
        arrays["rows"] = self.matrix[: len(self)].reshape(-1)
        if self.monitors is not None:
            arrays["monitors"] = self.monitors.matrix[: len(self)].reshape(-1)
            arrays["waiting"] = self.monitors.queues_as_bytes()
        if self.notices is not None:
            arrays["notices"] = self.notices.matrix[: len(self)].reshape(-1)
            arrays["open"] = self.notices.queues_as_bytes()
        return arrays

    def restore(self, kind: str, seed: Seed | None, count: int, arrays: Columns) -> None:
        """The inverse of `arrays`, without a copy."""
        if kind != "none":
            self.index = Index(kind, seed)
            self.index.restore(count, arrays)
        self._hold(arrays["rows"].reshape(-1, self.stride))
        if self.monitors is not None:
            self.monitors = Monitors.restored(self.monitors.settings, arrays["monitors"], arrays["waiting"], count)
        if self.notices is not None:
            self.notices = Notices.restored(self.notices.settings, arrays["notices"], arrays["open"], count)


# ---- receipts ----------------------------------------------------------------------------------------------------


class Fold(NamedTuple):
    """What `Bank.fold` gives back."""

    forecasts: Vector  # for each operation: the forecast, NaN where it was an outcome
    receipts: ReceiptArray  # for each forecast, in order: its receipt; ``.tolist()`` gives bytes


def receipt_type(method: AnyMethod) -> np.dtype[np.void]:
    """The layout of a receipt, as `Forecast.to_bytes` documents it; `issuer` is the name as a number.

    Of K classes it is that of `MultiForecast.to_bytes`.
    """
    return _receipt_type(method.receipt_width, method.spec.classes)


@cache
def _receipt_type(width: int, K: int) -> np.dtype[np.void]:
    head: list[Any] = [("version", "u1"), ("candidates", "u1"), ("numbers", "<u2"), ("generation", "<u4")]
    counts = [(name, "<i8") for name in ("bin", "cell", "event", "seen")]
    numbers = [(name, "<f8") for name in ("probability", "score", "expert")]
    classes: list[Any] = [("probabilities", "<f8", (K,)), ("scores", "<f8", (K,))] if K else []
    lanes = [("hedge", "<f8", (4,)), *classes, ("lanes", "<f8", (width,))]
    return np.dtype([*head, *counts, ("issuer", ">u8"), *numbers, *lanes])


# The same layout in numbers of 8 bytes, as the kernel has it: those before the issuer are whole. For K classes their
# probabilities and scores come next; then the lanes.
BIN, CELL, EVENT, SEEN = 1, 2, 3, 4
PROBABILITY, SCORE, EXPERT = 6, 7, 8
HEDGE = 9
HEAD = 13


def read_receipts(method: AnyMethod, receipts: Any, count: int) -> ReceiptArray:
    """Receipts as records: from a list of bytes, or from an array of them."""
    kind = receipt_type(method)
    joined: bytes | npt.NDArray[np.uint8]
    if isinstance(receipts, np.ndarray):
        if receipts.dtype.itemsize != kind.itemsize or receipts.dtype.kind != "V" or receipts.ndim != 1:
            raise InvalidInput(f"receipts must be {kind.itemsize} bytes each, got an array of {receipts.dtype}")
        joined = receipts.tobytes()
    elif isinstance(receipts, Sequence) and not isinstance(receipts, (str, bytes)):
        whole = np.empty(len(receipts) * kind.itemsize, dtype=np.uint8)
        is_plain = type(receipts) is list and bytes_of(receipts, kind.itemsize, whole)
        for row, receipt in enumerate(() if is_plain else receipts):
            if not isinstance(receipt, (bytes, bytearray, memoryview)) or len(receipt) != kind.itemsize:
                raise InvalidInput(f"receipt must be {kind.itemsize} bytes, got {shown(receipt)} - at receipt {row}")
        joined = whole if is_plain else b"".join(receipts)
    else:
        raise InvalidInput(f"receipts must be a list of bytes, got {type(receipts).__name__}")
    found = np.frombuffer(joined, dtype=kind)
    if len(found) != count:
        raise InvalidInput(f"receipts must be one for each outcome of an earlier call, {count}, got {len(found)}")
    return found


def check_receipts(
    method: AnyMethod, events: Vector, learnt: Vector, given: ReceiptArray, rows: Ints, same: Flags
) -> None:
    """Raise unless each receipt can be one of its stream, which has had so many forecasts and so many outcomes.

    `same` tells whether stream and receipt agree.
    """
    width = method.receipt_width + 2 * method.spec.classes
    version = (given["version"] == FORMAT) & (given["numbers"] == width % 65536)
    issued = (given["event"] >= 0) & (given["event"] < events)
    seen: Flags = (given["seen"] >= 0) & (given["seen"] <= learnt)
    if method.spec.classes:
        version &= (given["candidates"] == CLASSES_FOLLOW) & (given["cell"] == method.spec.classes)
        sound = seen & method.receipts_are_sound(given["lanes"], given["scores"], given["seen"], given["probabilities"])
    else:
        cells = (given["cell"] >= 0) & ((given["cell"] < method.cells) | (method.cells == 0))
        score, forecast = given["score"], given["probability"]
        sound = seen & cells & _are_sound(method, given["lanes"], score, given["seen"], forecast)
        sound &= (score >= 0.0) & (score <= 1.0) & (forecast >= 0.0) & (forecast <= 1.0)
    checks: list[tuple[Flags, type[Exception], str]] = [
        (version, InvalidInput, f"receipt must be of version {FORMAT} with {method.receipt_width} lanes, got another"),
        (same, UnknownForecast, "receipt must be of this bank and this key, got another's"),
        (issued, UnknownForecast, "receipt must be of a forecast that was made, got a later one"),
        (sound, InvalidInput, "receipt must be as it was issued, got a damaged one"),
    ]
    for good, error, sentence in checks:
        if not good.all():
            raise error(f"{sentence} - at row {int(rows[int((~good).argmax())])}")


def _are_sound(method: AnyMethod, lanes: Matrix, *columns: npt.NDArray[Any]) -> Any:
    if len(lanes) > 10:
        return method.receipt_is_sound(lanes.T, *columns)
    rows = zip(lanes.tolist(), *(column.tolist() for column in columns), strict=True)  # faster, if they are few
    return np.array([method.receipt_is_sound(*row) for row in rows], dtype=np.bool_)


# ---- forecasts and outcomes in any order -------------------------------------------------------------------------


class FoldWork(NamedTuple):
    """The operations of a fold as the kernel has them. Each has a receipt: it is made, or brought by an outcome.

    `counts` is the memory of `receipts` read as whole numbers. `work` and `words` are as in `Batch`.
    """

    slots: Slots
    outcomes: Vector  # NaN: a forecast is asked for
    u: Vector
    sources: Ints  # of an outcome: the operation that holds its receipt
    receipts: Vector
    counts: Ints
    work: Vector = NO_NUMBERS
    words: Ints = NO_INTS


@loop
def fold_rows(  # noqa: C901 - one loop for all hosts
    spec: Spec, cells: Cells, rows: Vector, stride: int, clock: float, work: FoldWork, pool: Pool
) -> int:
    """Operation after operation: a forecast where the outcome is NaN, else the outcome of the forecast at sources[i].

    -> -1, or the operation whose stream had no forecast left without an outcome.
    """
    K, stats, opened, attributes = spec.classes, stride - STATS, pool.opened, cells.attributes
    grouped = cells.columns > 0
    lanes = HEAD + 2 * K
    size = lanes + (cells.receipt + GROUPED_RECEIPT_WIDTH if grouped else spec.receipt)
    for i in range(len(work.slots)):
        slot = work.slots[i]
        row = rows[slot * stride : (slot + 1) * stride]
        y = work.outcomes[i]
        at = (work.sources[i] if y == y else i) * size  # noqa: PLR0124 - not NaN
        lane = work.receipts[at + lanes : at + size]
        forecast = work.receipts[at + PROBABILITY : at + SCORE]
        score = work.receipts[at + SCORE : at + EXPERT]
        words = work.words[i * attributes : (i + 1) * attributes]
        if K > 0:
            forecast, score = work.receipts[at + HEAD : at + HEAD + K], work.receipts[at + HEAD + K : at + lanes]
        if y == y:  # noqa: PLR0124 - not NaN
            t = row[stats + EVENTS]
            if row[N] >= t:
                return i
            if pool.learns:
                learn(spec, pool, score, y)
            if K > 0:
                update_label(spec.vector, K, row, t, int(y), lane, work.work, forecast[int(y)])
                add_class_losses(row, stats, score, forecast, int(y))
            else:
                learn_late(spec, cells, row, t, score[0], work.counts[at + CELL], y, words, lane, grouped)
                add_losses(row, stats, score[0], forecast[0], y)
        else:
            if pool.learns and slot == opened:
                start_row(spec, pool, row)
                opened += 1
            work.counts[at + SEEN], work.counts[at + EVENT] = int(row[N]), int(row[stats + EVENTS])
            if K > 0:
                predict_classes(spec.vector, K, row, score, lane, work.work, forecast)
                top = 0
                for k in range(1, K):
                    if forecast[k] > forecast[top]:
                        top = k
                work.counts[at + BIN], work.counts[at + CELL] = top, K
                work.receipts[at + PROBABILITY], work.receipts[at + SCORE] = forecast[top], score[top]
            else:
                asked = ask(spec, row, score[0], lane)
                u = work.u[i] if spec.draws else 0.0
                played = play_any(spec, cells, row, asked, u, words, lane, grouped)
                work.counts[at + CELL], work.counts[at + BIN] = played.cell, played.bin
                work.receipts[at + PROBABILITY], work.receipts[at + EXPERT] = played.forecast, asked.expert
                if played.low != played.high:
                    work.receipts[at + HEDGE], work.receipts[at + HEDGE + 1] = played.low, played.weight
                    work.receipts[at + HEDGE + 2], work.receipts[at + HEDGE + 3] = played.high, 1.0 - played.weight
            clock += 1.0
            row[stats + EVENTS] += 1.0
            row[stats + LAST] = clock
    return -1


class FoldColumns:
    """The columns of a call: what is asked, what is brought, and a receipt for each operation.

    A stream with groups has `cells`, and `words` for each operation.
    """

    cells: Cells = NO_CELLS
    words: Ints = NO_INTS

    def __init__(self, method: AnyMethod, slots: Slots, scores: Vector, outcomes: Vector, own: Ints) -> None:
        n, K, self._method = len(slots), method.spec.classes, method
        self.slots, self.outcomes = slots, outcomes
        self.asked, earlier = np.isnan(outcomes), own < 0
        self.brought = (earlier > self.asked).nonzero()[0]
        self.sources = np.where(earlier, np.arange(n), own)
        self.recorded: dict[int, Key] = {}  # the keys, by slot, whose receipts are accounted for one by one
        self.issuers: Any = None  # a number for each operation, where receipts have issuers and generations
        self.generations: Any = 0
        self.receipts = np.zeros(n, dtype=receipt_type(method))
        self._numbers = self.receipts.view(np.float64)
        if K:
            self.receipts["scores"] = scores.reshape(n, K)
        else:
            self._numbers[SCORE :: self.receipts.itemsize // 8] = scores

    @property
    def forecasts(self) -> Vector:
        """The forecast of each operation; NaN where it was an outcome."""
        made: Vector = self.receipts["probabilities" if self._method.spec.classes else "probability"].copy()
        if len(made) > 1 or not self.asked[0]:
            made[~self.asked] = np.nan
        return made

    def bring(self, given: ReceiptArray) -> None:
        """The receipts of outcomes whose forecasts were made in earlier calls."""
        # As rows of numbers: NumPy moves these in one piece.
        self._rows()[_all_of(self.brought, self.asked)] = given.view(np.float64).reshape(len(given), -1)

    def _rows(self) -> Matrix:
        return self._numbers.reshape(len(self.receipts), -1)

    def run(self, rows: Vector, clock: int, draws: Vector, pool: Vector | None, fresh: Vector, opened: int) -> None:
        """All operations, on rows one behind the other; `draws` are those of the forecasts, if they need any."""
        method, scratch, u = self._method, self._method.scratch(), draws
        if len(draws):
            u = np.zeros(len(self.slots))
            u[self.asked] = draws
        receipts = self._numbers, self._numbers.view(np.int64)
        work = FoldWork(self.slots, self.outcomes, u, self.sources, *receipts, scratch, self.words)
        start = Pool(pool is not None, NO_NUMBERS if pool is None else pool, fresh, opened, scratch)
        stopped = fold_rows(method.spec, self.cells, rows, method.width + STATS, float(clock), work, start)
        if stopped >= 0:
            raise OutcomeConflict(
                "outcome must be of a forecast that has none yet, got one more than the forecasts of its key - "
                f"at row {stopped}"
            )

    def watch(self, monitors: Monitors | None) -> None:
        """The same, as the monitors see it."""
        if monitors is not None:
            j, K = self.sources, self._method.spec.classes
            forecasts, scores = ("probabilities", "scores") if K else ("probability", "score")
            columns = self.receipts[forecasts][j].reshape(-1), self.outcomes, self.receipts[scores][j].reshape(-1)
            watched = watched_columns(self._method.numbers, *columns)
            monitors.fold(self.slots, self.asked, self.receipts["event"][j], *watched)

    def notice(self, notices: Notices | None, times: Vector) -> None:
        """The same, as the notices hear it."""
        if notices is None:
            return
        j = self.sources
        scores = self.receipts["scores"][j].max(axis=1) if self._method.spec.classes else self.receipts["score"][j]
        columns = (column.tolist() for column in (self.slots, self.asked, self.receipts["event"][j], times, scores))
        for slot, is_forecast, event, time, score in zip(*columns, strict=True):
            if is_forecast:
                notices.forecast(slot, event, time, score)
            else:
                notices.outcome(slot, event, time)

    def made(self) -> ReceiptArray:
        """The receipts of the forecasts."""
        chosen, method = self.asked.nonzero()[0], self._method
        asked, K = _all_of(chosen, self.asked), method.spec.classes
        made = self._rows()[asked].reshape(-1).view(self.receipts.dtype)
        made["version"], made["numbers"] = FORMAT, (method.receipt_width + 2 * K) % 65536
        if K:
            made["candidates"] = CLASSES_FOLLOW
        elif method.draws:
            made["candidates"] = 2 * (made["hedge"][:, 3] + made["hedge"][:, 1] > 0.0)
        if self.issuers is not None:
            made["issuer"], made["generation"] = self.issuers[asked], self.generations[asked]
        return made

    def settled(self) -> dict[Key, list[tuple[int, float]]]:
        """Of each key with a record that had an operation: the events whose outcome was learnt, and which it was."""
        found: dict[Key, list[tuple[int, float]]] = {key: [] for key in self.recorded.values()}
        for i in np.flatnonzero(~self.asked).tolist() if found else ():
            key = self.recorded.get(int(self.slots[i]))
            if key is not None:
                found[key].append((int(self.receipts["event"][self.sources[i]]), float(self.outcomes[i])))
        return found


def _all_of(places: Ints, column: Flags) -> Ints | slice:
    """The places, as a slice where they are all of a column: NumPy then copies nothing to look them up."""
    return EVERY if len(places) == len(column) else places


def new_rows(method: AnyMethod, count: int) -> Matrix:
    """Rows of streams that have seen nothing: state, and stats behind it."""
    rows = np.zeros((count, method.width + STATS))
    rows[:, : method.width] = method.initial_row()
    return rows


def fold_on_rows(
    method: AnyMethod,
    rows: Matrix,
    slots: Slots,
    scores: Vector,
    outcomes: Vector,
    own: Ints,
    receipts: Any,
    draws: Vector,
    monitors: Monitors | None = None,
    columns: FoldColumns | None = None,
) -> Fold:
    """What `Bank.fold` does, on a matrix of rows, in place, for a host that keeps rows and receipts in its own store.

    `slots` is the row of each operation. `own` is where in this call the forecast of an outcome is; -1: it comes with a
    receipt. `draws` are those of the forecasts in order, if the method draws. `monitors` have the same slots. Receipts
    name no issuer: the host knows whose they are. Rows are left without the moment of their last event, as rows that
    travel are. `columns` are made of the other arguments, unless the host has a loop of its own.

    Raises
    ------
    InvalidInput : a receipt has not the layout of this method. Otherwise values are not checked.
    OutcomeConflict : a stream has more outcomes than forecasts. The rows are then to be thrown away.
    """
    columns = FoldColumns(method, slots, scores, outcomes, own) if columns is None else columns
    if len(columns.brought):
        columns.bring(read_receipts(method, receipts, len(columns.brought)))
        if method.cells and columns.receipts["cell"].view(np.uint64).max() >= method.cells:  # also one below 0
            raise InvalidInput("receipt must be as it was issued, got a damaged one")  # it would write behind the row
    columns.run(rows.reshape(-1), 0, draws, None, np.empty(0), 0)
    columns.watch(monitors)
    made = columns.made()
    rows[:, method.width + LAST] = 0.0
    return Fold(columns.forecasts, made.view(f"V{made.itemsize}"))
