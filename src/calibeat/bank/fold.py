"""`Bank.fold`: forecasts and late outcomes of many keys, mixed, in one compiled pass.

A receipt is what an outcome needs to be learnt, any time later and in any process that has the row of its key. It has
the layout of `Forecast.to_bytes`: so `Forecast.from_bytes` reads it, and what `to_bytes` wrote may be brought here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from calibeat._util.check import check_lengths, shown
from calibeat._util.types import Ints, Slots, Vector
from calibeat.core.auto import EPS, LARGEST
from calibeat.core.features import Scaling
from calibeat.core.jit import compilable
from calibeat.core.kernel import ask, ask_again, play, settle
from calibeat.core.layout import DRAWS, RECEIPT, N
from calibeat.core.method import Method
from calibeat.core.receipt import FORECAST, FORMAT, HORIZON_LANE, SCORE, SEEN
from calibeat.core.stats import EVENTS, LAST, STATS, add_losses
from calibeat.errors import InvalidInput, OutcomeConflict, UnknownForecast, UnknownKey
from calibeat.hosts.dispatch import for_batch
from calibeat.monitor.rows import Monitors

from .keys import Key, KeyColumn
from .start import learn, start_row
from .undo import Undo

if TYPE_CHECKING:
    from .bank import Bank
    from .member import Members

Flags = npt.NDArray[np.bool_]


class Fold(NamedTuple):
    """What `Bank.fold` gives back."""

    forecasts: Vector  # for each operation: the forecast, NaN where it was an outcome
    receipts: npt.NDArray[np.void]  # for each forecast, in order: its receipt; ``.tolist()`` gives bytes


def receipt_type(method: Method) -> np.dtype[np.void]:
    """The layout of a receipt, as `Forecast.to_bytes` documents it; `issuer` is the name as a number."""
    return np.dtype(
        [
            ("version", "u1"),
            ("candidates", "u1"),
            ("numbers", "<u2"),
            ("life", "<u4"),
            ("bin", "<i8"),
            ("cell", "<i8"),
            ("event", "<i8"),
            ("seen", "<i8"),
            ("issuer", ">u8"),
            ("probability", "<f8"),
            ("score", "<f8"),
            ("expert", "<f8"),
            ("hedge", "<f8", (4,)),
            ("lanes", "<f8", (method.receipt_width,)),
        ]
    )


@compilable
def fold_rows(
    spec: Vector,
    rows: Vector,
    stride: int,
    slots: Slots,
    clock: float,
    scores: Vector,
    outcomes: Vector,
    u: Vector,
    sources: Ints,
    forecasts: Vector,
    experts: Vector,
    bins: Ints,
    cells: Ints,
    events: Ints,
    seen: Ints,
    hedges: Vector,
    receipts: Vector,
    pooled: bool,
    pool: Vector,
    fresh: Vector,
    opened: int,
    pool_receipt: Vector,
) -> int:
    """Operation after operation: a forecast where the outcome is NaN, else the outcome of the forecast at sources[i].

    -> -1, or the operation whose stream had no forecast left without an outcome.
    """
    draws, width, stats = spec[DRAWS] == 1.0, int(spec[RECEIPT]), stride - STATS
    for i in range(len(slots)):
        row = rows[slots[i] * stride : (slots[i] + 1) * stride]
        y = outcomes[i]
        if y == y:  # noqa: PLR0124 - not NaN
            if row[N] >= row[stats + EVENTS]:
                return i
            j = sources[i]
            score, at = scores[j], j * width
            if pooled:
                learn(spec, pool, score, y, pool_receipt)
            x0, x1, x2, p, z = ask_again(spec, row, score)
            settle(spec, row, row[stats + EVENTS], x0, x1, x2, p, z, cells[j], y, receipts, at, False)
            add_losses(row, stats, score, forecasts[j], y)
        else:
            if pooled and slots[i] == opened:
                start_row(spec, pool, fresh, row)
                opened += 1
            seen[i], at = int(row[N]), i * width
            events[i] = int(row[stats + EVENTS])
            x0, x1, x2, p, z = ask(spec, row, scores[i], receipts, at, False)
            draw = u[i] if draws else 0.0
            forecasts[i], cells[i], bins[i], low, high, weight = play(spec, row, p, x0, x1, draw, receipts, at, False)
            experts[i] = p
            if low != high:
                hedges[4 * i], hedges[4 * i + 1] = low, weight
                hedges[4 * i + 2], hedges[4 * i + 3] = high, 1.0 - weight
            clock += 1.0
            row[stats + EVENTS] += 1.0
            row[stats + LAST] = clock
    return -1


class Operations:
    """The columns of a call: what is asked, what is brought, and room for what comes of it."""

    def __init__(self, method: Method, slots: Slots, scores: Vector, outcomes: Vector, own: Ints) -> None:
        n, self._method = len(slots), method
        self.slots, self.outcomes, self.own = slots, outcomes, own
        self.asked = np.isnan(outcomes)
        self.brought = np.flatnonzero(~self.asked & (own < 0))
        self.sources = np.where(own >= 0, own, np.arange(n))
        self.keys: list[Key] = []
        self.issuers, self.lives = np.zeros(n, dtype=np.uint64), np.zeros(n, dtype=np.uint32)
        self.scores, self.forecasts, self.experts = scores.copy(), np.full(n, np.nan), np.zeros(n)
        self.bins, self.cells, self.events, self.seen = np.zeros((4, n), dtype=np.int64)
        self.hedges, self.lanes = np.zeros((n, 4)), np.zeros((n, method.receipt_width))

    def identify(self, bank: Bank) -> None:
        """The keys of a bank, and who issues their receipts."""
        self.keys = bank._store.names(self.slots).tolist()
        needed = self.own < 0
        fingerprints = [bank._members.fingerprint(self.keys[i]) for i in np.flatnonzero(needed).tolist()]
        self.issuers[needed] = np.array(fingerprints, dtype=np.uint64)
        asked = np.flatnonzero(self.asked).tolist()
        self.lives[asked] = [bank._members.life_of(self.keys[i]) for i in asked]

    def bring(self, given: npt.NDArray[np.void]) -> None:
        """The receipts of outcomes whose forecasts were made in earlier calls."""
        rows = self.brought
        self.scores[rows], self.forecasts[rows], self.cells[rows] = given["score"], given["probability"], given["cell"]
        self.lanes[rows], self.events[rows] = given["lanes"], given["event"]

    def run(self, rows: Vector, clock: int, draws: Vector, pool: Vector | None, fresh: Vector, opened: int) -> None:
        """All operations, on rows one behind the other; `draws` are those of the forecasts, if they need any."""
        n, method = len(self.slots), self._method
        u = np.zeros(n)
        if len(draws):
            u[self.asked] = draws
        loop: Any = for_batch(fold_rows, method, n)
        stopped = loop(
            method.spec,
            rows,
            method.width + STATS,
            self.slots,
            float(clock),
            self.scores,
            self.outcomes,
            u,
            self.sources,
            self.forecasts,
            self.experts,
            self.bins,
            self.cells,
            self.events,
            self.seen,
            self.hedges.reshape(-1),
            self.lanes.reshape(-1),
            pool is not None,
            np.empty(0) if pool is None else pool,
            fresh,
            opened,
            np.empty(method.receipt_width),
        )
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

    def made(self) -> npt.NDArray[np.void]:
        """The receipts of the forecasts."""
        asked, method = self.asked, self._method
        made = np.zeros(int(asked.sum()), dtype=receipt_type(method))
        made["version"], made["numbers"], made["life"] = FORMAT, method.receipt_width, self.lives[asked]
        made["candidates"] = 2 * (self.hedges[asked, 3] + self.hedges[asked, 1] > 0.0)
        made["bin"], made["cell"], made["event"] = self.bins[asked], self.cells[asked], self.events[asked]
        made["seen"], made["issuer"], made["probability"] = self.seen[asked], self.issuers[asked], self.forecasts[asked]
        made["score"], made["expert"], made["hedge"] = self.scores[asked], self.experts[asked], self.hedges[asked]
        made["lanes"] = self.lanes[asked]
        return made

    def settled(self) -> dict[Key, list[tuple[int, float]]]:
        """Of each key that had an operation: the events whose outcome was learnt, and which it was."""
        found: dict[Key, list[tuple[int, float]]] = {key: [] for key in self.keys}
        for i in np.flatnonzero(~self.asked).tolist():
            found[self.keys[i]].append((int(self.events[self.sources[i]]), float(self.outcomes[i])))
        return found


def fold(bank: Bank, column: KeyColumn, scores: Vector, outcomes: Vector, receipts: Any, of: Ints | None) -> Fold:
    """What `Bank.fold` does, on input whose lengths and values were checked. The caller holds the lock."""
    asked, records = np.isnan(outcomes), bank._members
    own = _own_forecasts(asked, of)
    given = read_receipts(bank._method, receipts, int((~asked & (own < 0)).sum()))
    with Undo(bank) as undo:
        slots = _slots(bank, column, asked)
        undo.remember(slots)
        operations = Operations(bank._method, slots, scores, outcomes, own)
        operations.identify(bank)
        _check_own(slots, own)
        _check_given(bank, given, operations)
        operations.bring(given)
        pool = None if bank._prior is None else bank._pool
        draws = bank._draws.of(bank._store, slots[asked])
        operations.run(bank._store.flat, undo.clock, draws, pool, bank._store.fresh, undo.count)
        operations.watch(bank._store.monitors)
        made, settled = operations.made(), operations.settled()
        events = dict(zip(operations.keys, bank._store.stats(EVENTS)[slots].astype(int).tolist(), strict=True))
        operations.forecasts[~asked] = np.nan
        result = Fold(operations.forecasts, made.view(f"V{made.itemsize}"))
        bank._clock = undo.clock + len(made)
        undo.keep(lambda: _record(records, settled, events))
    return result


def _record(records: Members, settled: dict[Key, list[tuple[int, float]]], events: dict[Key, int]) -> None:
    for key, outcomes in settled.items():
        records.fold(key, events[key], outcomes)


def read_receipts(method: Method, receipts: Any, count: int) -> npt.NDArray[np.void]:
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


def _own_forecasts(asked: Flags, of: Ints | None) -> Ints:
    """For an outcome of a forecast in this same call, where that is; -1 for all others."""
    n = len(asked)
    if of is None:
        return np.full(n, -1)
    check_lengths(keys=n, of=len(of))
    own = np.where(asked, -1, of)
    bad = (own < -1) | (own >= np.arange(n)) | ((own >= 0) & ~asked[np.clip(own, 0, n - 1)])
    if bad.any():
        row = int(bad.argmax())
        raise InvalidInput(f"of must be the position of an earlier forecast or -1, got {int(own[row])} - at row {row}")
    return own


def _slots(bank: Bank, column: KeyColumn, asked: Flags) -> Slots:
    """The slot of each operation; a new key is opened by its first forecast."""
    store = bank._store
    slots = store.find(column)
    new = slots < 0
    if new.any():
        slots = store.open(column)
        # Slots are given in the order of the operations, so the first operation of a new slot is the one that is larger
        # than all before it.
        first = new & (slots > np.maximum.accumulate(np.concatenate([[-1], slots[:-1]])))
        bad = first & ~asked
        if bad.any():
            row = int(bad.argmax())
            raise UnknownKey(f"key must have had a forecast before an outcome, got a new key - at row {row}")
    return slots


def _check_own(slots: Slots, own: Ints) -> None:
    bad = (own >= 0) & (slots[np.maximum(own, 0)] != slots)
    if bad.any():
        row = int(bad.argmax())
        raise UnknownForecast(f"outcome must be of a forecast of its own key, got another key's - at row {row}")


def _check_given(bank: Bank, given: npt.NDArray[np.void], operations: Operations) -> None:
    """Raise unless each receipt is one that this bank, or one that it continues, has issued for the key."""
    rows = operations.brought
    same = given["issuer"] == operations.issuers[rows]
    check_receipts(bank._method, bank._store.matrix[operations.slots[rows]], given, rows, same)
    columns = rows, operations.slots[rows], given["event"], given["life"]
    for row, slot, event, life in zip(*(column.tolist() for column in columns), strict=True):
        bank._members.check_given(row, operations.keys[row], slot, event, life)


def check_receipts(
    method: Method, states: npt.NDArray[np.float64], given: npt.NDArray[np.void], rows: Ints, same: Flags
) -> None:
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


def _is_sound(method: Method, given: npt.NDArray[np.void]) -> Flags:
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
