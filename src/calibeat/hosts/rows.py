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

from calibeat._util.check import shown
from calibeat._util.types import Ints, Slots, Vector
from calibeat.core.auto import CAP_AC, CAP_B, EPS, HORIZON_CAP, LARGEST, Lanes
from calibeat.core.calibeating import MOST_IMAGINED, Hedging, Tracking
from calibeat.core.features import Scaling
from calibeat.core.guard import FLOOR, MOST_WEALTH, SUMS, Guard
from calibeat.core.kernel import ask, ask_again, play, settle
from calibeat.core.layout import (
    COV_AB,
    COV_AC,
    COV_CB,
    HORIZON_COVARIANCE,
    HORIZON_THETA,
    HORIZON_WEIGHT,
    MEAN_LAG,
    OPS_A,
    OPS_B,
    OPS_MATRIX,
    SLOPE,
    STALENESS,
    TEMPER,
    THETA,
    VAR_A,
    VAR_B,
    VAR_C,
    WEIGHT,
    N,
    Spec,
    T,
)
from calibeat.core.learners import AIOLI, OGD, ONS
from calibeat.core.method import Method, params_of_rows
from calibeat.core.parts import Features
from calibeat.core.receipt import FORECAST, FORMAT, HORIZON_LANE, SCORE, SEEN
from calibeat.core.spline import (
    ATOMS,
    COUNT,
    EXPERT_INFORMATION,
    EXPERT_OFFSETS,
    INFORMATION,
    RESIDUAL,
    SCORE_INFORMATION,
    SCORE_OFFSETS,
    SPLINE_STALENESS,
    SPLINE_TEMPER,
    Spline,
)
from calibeat.core.stats import EVENTS, LAST, LOSSES, STATS, add_losses
from calibeat.core.subset import entry
from calibeat.errors import InvalidInput, OutcomeConflict, UnknownForecast
from calibeat.monitor.bets import Settings
from calibeat.monitor.monitors import Monitors

from .keys import EVERY, MOST_KEYS, Index, IntColumn, IntIndex, Key, KeyColumn, Seed, StringIndex, with_room
from .pool import Pool, learn, start_row

Matrix = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Columns = dict[str, npt.NDArray[Any]]
ReceiptArray = npt.NDArray[np.void]  # of `receipt_type`, or as bytes of that width

KINDS: dict[str, type[Index]] = {"ints": IntIndex, "strings": StringIndex}
_KNOWN = (Features, ONS, AIOLI, OGD, Lanes, Tracking, Hedging, Spline, Guard)
_CHECKED_AT_ONCE = 4096  # rows; the file may be larger than memory
_MOST_COUNT = 2.0**53  # counts above are no longer exact


class RowStore:
    """A matrix with a row for each key: the state of a stream, and behind it its stats."""

    def __init__(self, method: Method, monitored: Settings | None = None) -> None:
        self.method = method
        self.monitors = None if monitored is None else Monitors(monitored)  # a second matrix, with a row for each slot
        self.fresh = method.initial_row()
        self.stride = method.width + STATS
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
    def kind(self) -> str:
        """What the keys are: "none", "ints" or "strings"."""
        return "none" if self.index is None else "ints" if isinstance(self.index, IntIndex) else "strings"

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the rows, the keys and their index take."""
        keys = 0 if self.index is None else self.index.nbytes
        return len(self) * self.stride * 8 + keys + (0 if self.monitors is None else self.monitors.nbytes)

    def check(self, column: KeyColumn) -> KeyColumn:
        """The column, if its keys are of the kind that is here."""
        self._check_kind(isinstance(column, IntColumn), column)
        return column

    def _check_kind(self, ints: bool, column: KeyColumn | None = None) -> None:
        if self.index is not None and ints != isinstance(self.index, IntIndex) and (column is None or len(column)):
            wanted, got = ("strings", "ints") if ints else ("ints", "strings")
            where = "" if column is None else " - at row 0"
            raise InvalidInput(f"keys must be {wanted} like those of the bank, got {got}{where}")

    def find(self, column: KeyColumn) -> Slots:
        """The slot of each key, -1 for one that is not here."""
        return np.full(len(column), -1, dtype=np.int32) if self.index is None else self.index.find(column)

    def find_one(self, key: int | bytes) -> int:
        """The slot of one key (an int, or the UTF-8 of a string), -1 if it is not here."""
        self._check_kind(isinstance(key, int))
        return -1 if self.index is None else self.index.find_one(key)

    def open(self, column: KeyColumn) -> Slots:
        """The slot of each key; new keys get a row, which is that of a stream that has seen nothing."""
        if self.index is None:
            self.index = IntIndex() if isinstance(column, IntColumn) else StringIndex()
        before = len(self)
        slots = self.index.add(column)
        self._open_from(before)
        return slots

    def open_one(self, key: int | bytes) -> int:
        """The slot of one new key."""
        if self.index is None:
            self.index = IntIndex() if isinstance(key, int) else StringIndex()
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
            room[before:count, : self.method.width] = self.fresh
            room[before:count, self.method.width :] = 0.0
            if room is not self.matrix:
                self._hold(room)
            if self.monitors is not None:
                self.monitors.resize(count)

    def truncate(self, index: Index | None, count: int, foreign: Vector) -> None:
        """Back to the keys that an index had, in whatever state its table is now."""
        if index is not None:
            index.relink(count)
        self.index, self.foreign = index, foreign
        self.moves += 1
        if self.monitors is not None:
            self.monitors.truncate(count)

    def remove(self, slot: int) -> None:
        """Forget a row; the last one takes its place."""
        assert self.index is not None  # noqa: S101 - there is a slot, so there are keys
        last = len(self) - 1
        self.matrix[slot] = self.matrix[last]
        if self.monitors is not None:
            self.monitors.remove(slot)
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
        self.foreign = foreign

    def accept_foreign_rows(self) -> None:
        """All rows come from another bank or from a file: so may the receipts of the forecasts made so far."""
        self.foreign = self.stats(EVENTS).copy()
        if self.monitors is not None:
            self.monitors.realign()

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
        other = RowStore(self.method, self.watched)
        if self.index is not None and chosen.any():
            other.index = type(self.index)(self.index.seed)
            other.open(self.index.column(chosen))
            other.matrix[: len(other)] = self.matrix[: len(self)][chosen]
            other.foreign = self._foreign_of_all()[chosen]
            if self.monitors is not None:
                other.monitors = self.monitors.selected(chosen)
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
            **({} if self.monitors is None else self.monitors.columns(np.arange(len(self), dtype=np.int32)[slots])),
        }

    # ---- as a file ------------------------------------------------------------------------------------------------

    def arrays(self) -> Columns:
        """What a file has to hold."""
        arrays = {} if self.index is None else self.index.arrays()
        arrays["rows"] = self.matrix[: len(self)].reshape(-1)
        if self.monitors is not None:
            arrays["monitors"] = self.monitors.matrix[: len(self)].reshape(-1)
            arrays["waiting"] = self.monitors.queues_as_bytes()
        return arrays

    def restore(self, kind: str, seed: Seed | None, count: int, arrays: Columns) -> None:
        """The inverse of `arrays`, without a copy."""
        if kind != "none":
            self.index = KINDS[kind](seed)
            self.index.restore(count, arrays)
        self._hold(arrays["rows"].reshape(-1, self.stride))
        if self.monitors is not None:
            self.monitors = Monitors.restored(self.monitors.settings, arrays["monitors"], arrays["waiting"], count)


# ---- receipts ----------------------------------------------------------------------------------------------------


class Fold(NamedTuple):
    """What `Bank.fold` gives back."""

    forecasts: Vector  # for each operation: the forecast, NaN where it was an outcome
    receipts: ReceiptArray  # for each forecast, in order: its receipt; ``.tolist()`` gives bytes


def receipt_type(method: Method) -> np.dtype[np.void]:
    """The layout of a receipt, as `Forecast.to_bytes` documents it; `issuer` is the name as a number."""
    return _receipt_type(method.receipt_width)


@cache
def _receipt_type(width: int) -> np.dtype[np.void]:
    head: list[Any] = [("version", "u1"), ("candidates", "u1"), ("numbers", "<u2"), ("generation", "<u4")]
    counts = [(name, "<i8") for name in ("bin", "cell", "event", "seen")]
    numbers = [(name, "<f8") for name in ("probability", "score", "expert")]
    lanes = [("hedge", "<f8", (4,)), ("lanes", "<f8", (width,))]
    return np.dtype([*head, *counts, ("issuer", ">u8"), *numbers, *lanes])


@cache
def _parts_type(width: int) -> np.dtype[np.void]:
    """The same layout in few parts: bin, cell, event and seen; probability, score and expert."""
    parts: list[Any] = [("head", "V8"), ("counts", "<i8", (4,)), ("issuer", "V8"), ("values", "<f8", (3,))]
    return np.dtype([*parts, ("hedge", "<f8", (4,)), ("lanes", "<f8", (width,))])


def read_receipts(method: Method, receipts: Any, count: int) -> ReceiptArray:
    """Receipts as records: from a list of bytes, or from an array of them."""
    kind = receipt_type(method)
    if isinstance(receipts, np.ndarray):
        if receipts.dtype.itemsize != kind.itemsize or receipts.dtype.kind != "V" or receipts.ndim != 1:
            raise InvalidInput(f"receipts must be {kind.itemsize} bytes each, got an array of {receipts.dtype}")
        joined = receipts.tobytes()
    elif isinstance(receipts, Sequence) and not isinstance(receipts, (str, bytes)):
        for row, receipt in enumerate(receipts):
            if not isinstance(receipt, (bytes, bytearray, memoryview)) or len(receipt) != kind.itemsize:
                raise InvalidInput(f"receipt must be {kind.itemsize} bytes, got {shown(receipt)} - at receipt {row}")
        joined = b"".join(receipts)
    else:
        raise InvalidInput(f"receipts must be a list of bytes, got {type(receipts).__name__}")
    found = np.frombuffer(joined, dtype=kind)
    if len(found) != count:
        raise InvalidInput(f"receipts must be one for each outcome of an earlier call, {count}, got {len(found)}")
    return found


def check_receipts(method: Method, states: Matrix, given: ReceiptArray, rows: Ints, same: Flags) -> None:
    """Raise unless each receipt can be one of its stream, whose row is given; `same` tells whether they agree."""
    events, learnt = states[:, method.width + EVENTS], states[:, N]
    version = (given["version"] == FORMAT) & (given["numbers"] == method.receipt_width)
    issued = (given["event"] >= 0) & (given["event"] < events)
    cells = (given["cell"] >= 0) & ((given["cell"] < method.cells) | (method.cells == 0))
    sound = (given["seen"] >= 0) & (given["seen"] <= learnt) & cells & _is_sound(method, given)
    checks: list[tuple[Flags, type[Exception], str]] = [
        (version, InvalidInput, f"receipt must be of version {FORMAT} with {method.receipt_width} lanes, got another"),
        (same, UnknownForecast, "receipt must be of this bank and this key, got another's"),
        (issued, UnknownForecast, "receipt must be of a forecast that was made, got a later one"),
        (sound, InvalidInput, "receipt must be as it was issued, got a damaged one"),
    ]
    for good, error, sentence in checks:
        if not good.all():
            raise error(f"{sentence} - at row {int(rows[int((~good).argmax())])}")


def _is_sound(method: Method, given: ReceiptArray) -> Flags:
    """As `Method.receipt_is_sound`, of many: numbers in their range, which agree where they are there twice."""
    score, forecast, lanes = given["score"], given["probability"], given["lanes"]
    good: Flags = (score >= 0.0) & (score <= 1.0) & (forecast >= 0.0) & (forecast <= 1.0)
    if method.guard is not None:  # its receipts are few words more, and not worth a second copy of the rule
        columns = (lanes.tolist(), score.tolist(), given["seen"].tolist(), forecast.tolist())
        return good & np.array([method.receipt_is_sound(*row) for row in zip(*columns, strict=True)], dtype=np.bool_)
    if method.receipt_width and isinstance(method.features, Scaling):
        for at, value in ((SEEN, given["seen"]), (SCORE, score), (FORECAST, forecast)):
            good &= lanes[:, at] == value
        horizon = lanes[:, HORIZON_LANE]
        good &= (horizon == 0.0) | ((horizon >= EPS) & (horizon <= LARGEST))
        issued = lanes[:, [at for part in method.parts for at in part.receipt]]
        good &= ((issued >= EPS) & (issued <= LARGEST)).all(axis=1)
    return good


# ---- forecasts and outcomes in any order -------------------------------------------------------------------------


class FoldWork(NamedTuple):
    """The columns of a fold as the kernel has them: what is asked, what is brought, and what comes of it."""

    slots: Slots
    scores: Vector
    outcomes: Vector  # NaN: a forecast is asked for
    u: Vector
    sources: Ints  # of an outcome: the operation that holds its forecast
    forecasts: Vector
    experts: Vector
    bins: Ints
    cells: Ints
    events: Ints
    seen: Ints
    hedges: Vector
    receipts: Vector


@entry
def fold_rows(spec: Spec, rows: Vector, stride: int, clock: float, work: FoldWork, pool: Pool) -> int:
    """Operation after operation: a forecast where the outcome is NaN, else the outcome of the forecast at sources[i].

    -> -1, or the operation whose stream had no forecast left without an outcome.
    """
    width, stats, opened = spec.receipt, stride - STATS, pool.opened
    for i in range(len(work.slots)):
        slot = work.slots[i]
        row = rows[slot * stride : (slot + 1) * stride]
        y = work.outcomes[i]
        if y == y:  # noqa: PLR0124 - not NaN
            if row[N] >= row[stats + EVENTS]:
                return i
            j = work.sources[i]
            score = work.scores[j]
            if pool.learns:
                learn(spec, pool.row, score, y)
            asked = ask_again(spec, row, score)
            receipt = work.receipts[j * width : (j + 1) * width]
            settle(spec, row, row[stats + EVENTS], asked, work.cells[j], y, receipt)
            add_losses(row, stats, score, work.forecasts[j], y)
        else:
            if pool.learns and slot == opened:
                start_row(spec, pool, row)
                opened += 1
            work.seen[i], work.events[i] = int(row[N]), int(row[stats + EVENTS])
            receipt = work.receipts[i * width : (i + 1) * width]
            asked = ask(spec, row, work.scores[i], receipt)
            played = play(spec, row, asked, work.u[i] if spec.draws else 0.0, receipt)
            work.forecasts[i], work.cells[i], work.bins[i] = played.forecast, played.cell, played.bin
            work.experts[i] = asked.expert
            if played.low != played.high:
                work.hedges[4 * i], work.hedges[4 * i + 1] = played.low, played.weight
                work.hedges[4 * i + 2], work.hedges[4 * i + 3] = played.high, 1.0 - played.weight
            clock += 1.0
            row[stats + EVENTS] += 1.0
            row[stats + LAST] = clock
    return -1


class FoldColumns:
    """The columns of a call: what is asked, what is brought, and room for what comes of it."""

    def __init__(self, method: Method, slots: Slots, scores: Vector, outcomes: Vector, own: Ints) -> None:
        n, self._method = len(slots), method
        self.slots, self.outcomes, self.own = slots, outcomes, own
        self.asked, earlier = np.isnan(outcomes), own < 0
        self.brought = (earlier > self.asked).nonzero()[0]
        self.sources = np.arange(n)
        np.copyto(self.sources, own, where=~earlier)
        self.keys: list[Key] = []
        self.issuers: Any = 0  # a number for each operation, where receipts have issuers and generations
        self.generations: Any = 0
        # Together, as receipts have them: few copies for a call, however small it is.
        self._counts, self._numbers = np.zeros((4, n), dtype=np.int64), np.zeros((3, n))
        self.bins, self.cells, self.events, self.seen = self._counts
        self.forecasts, self.scores, self.experts = self._numbers
        self.scores[:] = scores
        self.hedges, self.lanes = np.zeros((n, 4)), np.zeros((n, method.receipt_width))

    def bring(self, given: ReceiptArray) -> None:
        """The receipts of outcomes whose forecasts were made in earlier calls."""
        rows, parts = _all_of(self.brought, self.asked), given.view(_parts_type(self._method.receipt_width))
        self._counts[:, rows], self._numbers[:, rows] = parts["counts"].T, parts["values"].T
        self.lanes[rows] = parts["lanes"]

    def run(self, rows: Vector, clock: int, draws: Vector, pool: Vector | None, fresh: Vector, opened: int) -> None:
        """All operations, on rows one behind the other; `draws` are those of the forecasts, if they need any."""
        n, method = len(self.slots), self._method
        u = np.zeros(n)
        if len(draws):
            u[self.asked] = draws
        asked = self.slots, self.scores, self.outcomes, u, self.sources, self.forecasts, self.experts
        work = FoldWork(
            *asked, self.bins, self.cells, self.events, self.seen, self.hedges.reshape(-1), self.lanes.reshape(-1)
        )
        start = Pool(pool is not None, np.empty(0) if pool is None else pool, fresh, opened)
        stopped = fold_rows(method.spec, rows, method.width + STATS, float(clock), work, start)
        if stopped >= 0:
            raise OutcomeConflict(
                "outcome must be of a forecast that has none yet, got one more than the forecasts of its key - "
                f"at row {stopped}"
            )

    def watch(self, monitors: Monitors | None) -> None:
        """The same, as the monitors see it."""
        if monitors is None:
            return
        columns = zip(*(c.tolist() for c in (self.slots, self.asked, self.sources, self.outcomes)), strict=True)
        for slot, asked, j, y in columns:
            if asked:
                monitors.announce(slot)
            else:
                event = self.forecasts[j].item(), y, self.scores[j].item()
                monitors.update(slot, int(self.events[j]), event)

    def made(self) -> ReceiptArray:
        """The receipts of the forecasts."""
        chosen, width = self.asked.nonzero()[0], self._method.receipt_width
        made = np.zeros(len(chosen), dtype=_receipt_type(width))
        if len(made) == 0:
            return made
        asked, parts = _all_of(chosen, self.asked), made.view(_parts_type(width))
        made["version"], made["numbers"] = FORMAT, width
        parts["counts"], parts["values"] = self._counts.T[asked], self._numbers.T[asked]
        parts["lanes"] = self.lanes[asked]
        if self._method.draws:
            hedges = parts["hedge"] = self.hedges[asked]
            made["candidates"] = 2 * (hedges[:, 3] + hedges[:, 1] > 0.0)
        if self.keys:
            made["issuer"], made["generation"] = self.issuers[asked], self.generations[asked]
        return made

    def settled(self) -> dict[Key, list[tuple[int, float]]]:
        """Of each key that had an operation: the events whose outcome was learnt, and which it was."""
        found: dict[Key, list[tuple[int, float]]] = {key: [] for key in self.keys}
        for i in np.flatnonzero(~self.asked).tolist():
            found[self.keys[i]].append((int(self.events[self.sources[i]]), float(self.outcomes[i])))
        return found


def _all_of(places: Ints, column: Flags) -> Ints | slice:
    """The places, as a slice where they are all of a column: NumPy then copies nothing to look them up."""
    return EVERY if len(places) == len(column) else places


def new_rows(method: Method, count: int) -> Matrix:
    """Rows of streams that have seen nothing: state, and stats behind it."""
    rows = np.zeros((count, method.width + STATS))
    rows[:, : method.width] = method.initial_row()
    return rows


def fold_on_rows(
    method: Method,
    rows: Matrix,
    slots: Slots,
    scores: Vector,
    outcomes: Vector,
    own: Ints,
    receipts: Any,
    draws: Vector,
    monitors: Monitors | None = None,
) -> Fold:
    """What `Bank.fold` does, on a matrix of rows, in place, for a host that keeps rows and receipts in its own store.

    `slots` is the row of each operation. `own` is where in this call the forecast of an outcome is; -1: it comes with a
    receipt. `draws` are those of the forecasts in order, if the method draws. `monitors` have the same slots. Receipts
    name no issuer: the host knows whose they are. Rows are left without the moment of their last event, as rows that
    travel are.

    Raises
    ------
    InvalidInput : a receipt has not the layout of this method. Otherwise values are not checked.
    OutcomeConflict : a stream has more outcomes than forecasts. The rows are then to be thrown away.
    """
    columns = FoldColumns(method, slots, scores, outcomes, own)
    if len(columns.brought):
        columns.bring(read_receipts(method, receipts, len(columns.brought)))
        if method.cells and np.maximum.reduce(columns.cells.view(np.uint64)) >= method.cells:  # also one below 0
            raise InvalidInput("receipt must be as it was issued, got a damaged one")  # it would write behind the row
    columns.run(rows.reshape(-1), 0, draws, None, np.empty(0), 0)
    columns.watch(monitors)
    made = columns.made()
    rows[:, method.width + LAST] = 0.0
    if len(made) < len(slots):
        columns.forecasts[~columns.asked] = np.nan
    return Fold(columns.forecasts, made.view(f"V{made.itemsize}"))


# ---- rows from outside -------------------------------------------------------------------------------------------

# `Method.check_row` decides what a row can be, one row at a time. Here NumPy screens a million rows first, and
# `check_row` is asked only about the rows that look odd.


def check_rows(method: Method, matrix: Matrix, clock: float) -> None:
    """Raise `InvalidInput`, which names the first bad row, unless all rows are such as this method can have."""
    for first in range(0, len(matrix), _CHECKED_AT_ONCE):
        part = matrix[first : first + _CHECKED_AT_ONCE]
        for sentence, good in _stats_checks(method, part, clock):
            if not good.all():
                raise InvalidInput(f"{sentence}, got others - at row {first + int((~good).argmax())}")
        for row in np.flatnonzero(_odd(method, part[:, : method.width])):
            try:
                method.check_row(part[row, : method.width].tolist(), int(part[row, method.width + EVENTS]))
            except InvalidInput as error:
                raise InvalidInput(f"{error} - at row {first + int(row)}") from None


def _stats_checks(method: Method, part: Matrix, clock: float) -> list[tuple[str, Flags]]:
    stats = part[:, method.width :]
    events, last = stats[:, EVENTS], stats[:, LAST]
    with np.errstate(invalid="ignore"):
        counts = (events >= 0) & (events <= _MOST_COUNT) & (events == np.floor(events))
        times = (last >= 0) & (last <= clock) & (last == np.floor(last))
        return [
            ("rows must hold finite numbers", np.isfinite(part).all(axis=1)),
            ("rows must count their events in whole numbers", counts),
            ("rows must have had their last event by now", times),
            ("rows must count no more outcomes than forecasts", (part[:, N] <= part[:, T]) & (part[:, T] <= events)),
            ("rows must have losses of at least 0", (stats[:, LAST + 1 : STATS] >= 0).all(axis=1)),
        ]


def _odd(method: Method, rows: Matrix) -> Flags:
    """Rows that `Method.check_row` may refuse; rows that it would accept may be among them.

    A part that is not known here makes all rows odd: slow, and still right.
    """
    tail = 0 if method.learner is None else len(method.learner.tail())
    cells, evidence = method.spec.cells, rows.shape[1] - tail - 2 * method.mixes
    end = evidence - (0 if method.guard is None else len(method.guard.initial()))
    known = all(isinstance(part, _KNOWN) for part in method.parts)
    expected = cells + (0 if method.calibeater is None else len(method.calibeater.initial()))
    if not known or expected != end:
        return np.ones(len(rows), dtype=np.bool_)
    t, n = rows[:, T], rows[:, N]
    good: Flags = (n >= 0) & (n <= t) & (n == np.floor(n)) & (t == np.floor(t))
    with np.errstate(all="ignore"):
        if isinstance(method.learner, (ONS, AIOLI)):
            good &= _good_matrix(rows, method.dimension)
        elif isinstance(method.learner, Lanes):
            good &= _good_lanes(rows, n, rows[:, rows.shape[1] - tail :])
        if isinstance(method.calibeater, Spline):
            good &= _good_spline(rows[:, cells:end], n)
        elif method.calibeater is not None:
            imagined = MOST_IMAGINED if isinstance(method.calibeater, Tracking) else 0.0
            good &= _good_cells(rows[:, cells:end], n, imagined)
        if method.guard is not None:
            good &= _good_guard(rows[:, end:evidence], n)
        if method.mixes:
            good &= (rows[:, evidence + 1] >= 1e-100) & (rows[:, evidence + 1] <= 1e100)
    return ~good


def _good_matrix(rows: Matrix, d: int) -> Flags:
    """As `learners.check_diagonal`."""
    diagonal = [THETA + d + i * d - i * (i - 1) // 2 for i in range(d)]
    good: Any = ((rows[:, diagonal] > 0.0) & (rows[:, diagonal] < 1e150)).all(axis=1)
    for i in range(d):
        for j in range(i + 1, d):
            beside, product = rows[:, diagonal[i] + j - i], rows[:, diagonal[i]] * rows[:, diagonal[j]]
            good &= beside * beside <= product * (1.0 + 1e-6)
    return good


def _good_cells(cells: Matrix, n: Matrix, imagined: float) -> Flags:
    totals, counts = cells[:, ::2], cells[:, 1::2]
    whole = (counts == np.floor(counts)) & ((imagined > 0.0) | (totals == np.floor(totals)))
    good: Flags = (whole & (totals >= 0.0) & (totals <= counts) & (counts <= n[:, None] + imagined)).all(axis=1)
    return good


def _good_weights(weights: Matrix, n: Matrix) -> Flags:
    each = (weights >= 0.01 / (n[:, None] + 1.0)) & (weights <= 1.0)
    return each.all(axis=1) & (np.abs(weights.sum(axis=1) - 1.0) <= 0.9e-9)


def _good_temper(stale: Matrix, temper: Matrix) -> Flags:
    """As `mixtures.check_temper`."""
    return (stale >= 0.0) & (temper >= 1.0) & (temper <= 1.0 + stale)


def _good_horizon(lane: Matrix) -> Flags:
    """As `mixtures.check_horizon`."""
    theta, packed = lane[:, HORIZON_THETA:HORIZON_COVARIANCE], lane[:, HORIZON_COVARIANCE:]
    i, j = np.triu_indices(theta.shape[1])
    variances = packed[:, i == j]
    bounded = (variances > 0.0).all(axis=1) & (variances <= 1.1 * HORIZON_CAP).all(axis=1)
    covariances = (packed**2 <= variances[:, i] * variances[:, j] * (1.0 + 1e-6)).all(axis=1)
    small: Any = (np.abs(theta) <= 1e6).all(axis=1)
    return bounded & covariances & small


def _good_lanes(rows: Matrix, n: Matrix, lane: Matrix) -> Flags:
    """As `Lanes.check`; `lane` is the horizon lane, of no width where there is none."""
    parameters = rows[:, [*range(SLOPE, VAR_A), OPS_A, OPS_B]]
    aa, cc, bb = (rows[:, at : at + 4] for at in (VAR_A, VAR_C, VAR_B))
    variances = (aa > 0.0) & (aa <= 1.1 * CAP_AC) & (cc > 0.0) & (cc <= 1.1 * CAP_AC) & (bb > 0.0) & (bb <= 1.1 * CAP_B)
    for at, product in ((COV_AC, aa * cc), (COV_AB, aa * bb), (COV_CB, cc * bb)):
        variances &= rows[:, at : at + 4] ** 2 <= product * (1.0 + 1e-6)
    h00, h01, h11 = rows[:, OPS_MATRIX : OPS_MATRIX + 3].T
    positive = (h00 > 0.0) & (h00 < 1e150) & (h11 > 0.0) & (h11 < 1e150) & (h01 * h01 < h00 * h11)
    bounded = (np.abs(parameters) <= 1e6).all(axis=1)
    weights = _good_weights(rows[:, WEIGHT : WEIGHT + 6], n)
    if lane.shape[1]:
        seven = np.column_stack([rows[:, WEIGHT : WEIGHT + 6], lane[:, HORIZON_WEIGHT]])
        asleep = lane[:, HORIZON_WEIGHT] == 0.0
        weights = ((asleep & weights) | (~asleep & _good_weights(seven, n))) & _good_horizon(lane)
    lags = _good_temper(rows[:, STALENESS], rows[:, TEMPER]) & (rows[:, MEAN_LAG] >= 0.0) & (rows[:, MEAN_LAG] <= n)
    return weights & bounded & variances.all(axis=1) & positive & lags


def _good_spline(cells: Matrix, n: Matrix) -> Flags:
    """As `Spline.check`."""
    information = cells[:, [*range(SCORE_INFORMATION, EXPERT_OFFSETS), *range(EXPERT_INFORMATION, RESIDUAL)]]
    offsets = cells[:, [*range(SCORE_OFFSETS, SCORE_INFORMATION), *range(EXPERT_OFFSETS, EXPERT_INFORMATION)]]
    knots = (information >= INFORMATION).all(axis=1) & (np.abs(offsets) <= 700.0).all(axis=1)
    totals = np.concatenate([cells[:, ATOMS:SCORE_OFFSETS:2], np.abs(cells[:, RESIDUAL:COUNT])], axis=1)
    counts = np.concatenate([cells[:, ATOMS + 1 : SCORE_OFFSETS : 2], cells[:, COUNT : COUNT + 10]], axis=1)
    sums = ((totals >= 0.0) & (totals <= counts) & (counts <= n[:, None])).all(axis=1)
    temper = _good_temper(cells[:, SPLINE_STALENESS], cells[:, SPLINE_TEMPER])
    return _good_weights(cells[:, :ATOMS], n) & knots & sums & temper


def _good_guard(numbers: Matrix, n: Matrix) -> Flags:
    """As `Guard.check`."""
    wealth = ((numbers[:, :SUMS] >= FLOOR) & (numbers[:, :SUMS] <= MOST_WEALTH)).all(axis=1)
    totals, spreads = np.abs(numbers[:, SUMS::2]), numbers[:, SUMS + 1 :: 2]
    bounds = n[:, None]
    sums = (totals <= bounds) & (spreads >= 0.0) & (spreads <= 0.25 * bounds + 1e-9 * bounds)
    return np.asarray(wealth & sums.all(axis=1))
