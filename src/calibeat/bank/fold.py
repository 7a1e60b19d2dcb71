r"""`Bank.fold`: forecasts and late outcomes of many keys, mixed, in one compiled pass.

A receipt is what an outcome needs to be learnt, any time later and in any process that has the row of its key. Here it
is a record of fixed width, little-endian, without padding:

============  ==========  ==========================================================================================
field         type        holds
============  ==========  ==========================================================================================
version       uint16      1
numbers       uint16      how many numbers of memory follow: `Method.receipt_width` (AUTO 12, TOPS 0)
cell          uint32      the calibeater's cell that the forecast played
issuer        uint64      a fingerprint of method, seed and key: a receipt is good for its own key only
event         uint64      the number of the forecast in its stream, from 0
seen          uint64      how many outcomes had been learnt when it was made
score         float64     the score
probability   float64     the forecast
memory        float64 *   what a mixture must remember
============  ==========  ==========================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from calibeat._util.check import check_lengths, said
from calibeat._util.types import Ints, Slots, Vector
from calibeat.core.calibeating import HEDGE
from calibeat.core.jit import compiled, is_compiled, kernel, plain
from calibeat.core.kernel import CALIBEATER, RECEIPT, N, predict
from calibeat.core.method import Method
from calibeat.core.mixtures import EPS, LARGEST, SCORE, SEEN, E, F, Lanes, M, P, R, S
from calibeat.core.spline import Spline
from calibeat.errors import InvalidInput, OutcomeConflict, UnknownForecast, UnknownKey

from .keys import FEW, KeyColumn
from .late import learn_late
from .start import learn, start_row
from .stats import EVENTS, LAST, STATS
from .undo import Undo, insist

if TYPE_CHECKING:
    from .bank import Bank

Flags = npt.NDArray[np.bool_]
VERSION = 1


class Fold(NamedTuple):
    """What `Bank.fold` gives back."""

    forecasts: Vector  # for each operation: the forecast, NaN where it was an outcome
    receipts: npt.NDArray[np.void]  # for each forecast, in order: its receipt; ``.tolist()`` gives bytes


def receipt_type(method: Method) -> np.dtype[np.void]:
    """The layout of a receipt."""
    return np.dtype([
        ("version", "<u2"), ("numbers", "<u2"), ("cell", "<u4"), ("issuer", "<u8"), ("event", "<u8"), ("seen", "<u8"),
        ("score", "<f8"), ("probability", "<f8"), ("memory", "<f8", (method.receipt_width,)),
    ])  # fmt: skip


@kernel
def fold_rows(
    spec: Vector, rows: Vector, stride: int, slots: Slots, clock: float, scores: Vector, outcomes: Vector, u: Vector,
    sources: Ints, forecasts: Vector, cells: Ints, events: Ints, seen: Ints, q: Vector,
    pooled: bool, pool: Vector, fresh: Vector, opened: int, pool_q: Vector,
) -> int:  # fmt: skip
    """Operation after operation: a forecast where the outcome is NaN, else the outcome of the forecast at sources[i].

    -> -1, or the operation whose stream had no forecast left without an outcome.
    """
    hedged = spec[CALIBEATER] == HEDGE
    width = int(spec[RECEIPT])
    stats = stride - STATS
    for i in range(len(slots)):
        row = rows[slots[i] * stride : (slots[i] + 1) * stride]
        y = outcomes[i]
        if y == y:  # noqa: PLR0124 - NaN is not
            j = sources[i]
            if row[N] >= row[stats + EVENTS]:
                return i
            if pooled:
                learn(spec, pool, scores[j], y, pool_q)
            learn_late(spec, row, stats, scores[j], forecasts[j], cells[j], y, q, j * width)
        else:
            if pooled and slots[i] == opened:
                start_row(spec, pool, fresh, row)
                opened += 1
            seen[i] = int(row[N])
            events[i] = int(row[stats + EVENTS])
            forecast, cell, _, _, _, _, _, _, _, _, _ = predict(
                spec, row, scores[i], u[i] if hedged else 0.0, q, i * width
            )
            forecasts[i], cells[i] = forecast, cell
            clock += 1.0
            row[stats + EVENTS] += 1.0
            row[stats + LAST] = clock
    return -1


def fold(bank: Bank, column: KeyColumn, scores: Vector, outcomes: Vector, receipts: Any, of: Ints | None) -> Fold:
    """What `Bank.fold` does, on input whose lengths and values were checked. The caller holds the lock."""
    method, n = bank._method, len(column)
    asked = np.isnan(outcomes)
    own = _own_forecasts(asked, of)
    given = read_receipts(method, receipts, int((~asked).sum() - (own >= 0).sum()))
    undo = Undo(bank)
    try:
        slots = _slots(bank, column, asked)
        undo.remember(slots)
        _check_own(slots, own)
        brought = np.flatnonzero(~asked & (own < 0))
        issuers = _issuers(bank, slots, own < 0)
        _check_given(bank, given, brought, slots, issuers)
        sources = np.where(own >= 0, own, np.arange(n))
        forecasts, cells, seen = np.full(n, np.nan), np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
        events, memory = np.zeros(n, dtype=np.int64), np.zeros((n, method.receipt_width))
        scores = scores.copy()
        scores[brought], forecasts[brought] = given["score"], given["probability"]
        cells[brought], memory[brought] = given["cell"], given["memory"]
        draws = np.zeros(n)
        draws[asked] = bank._draws.of(bank._store, slots[asked]) if bank._hedges else 0.0
        store = bank._store
        loop = plain(fold_rows) if n <= FEW and not is_compiled(fold_rows) else compiled(fold_rows)
        stopped = loop(
            method.spec, store.flat, store.stride, slots, float(undo.clock), scores, outcomes, draws,
            sources, forecasts, cells, events, seen, memory.reshape(-1),
            bank._prior is not None, bank._pool, store.fresh, undo.count, np.empty(method.receipt_width),
        )  # fmt: skip
        _check_all_taken(stopped)
        made = np.empty(int(asked.sum()), dtype=receipt_type(method))
        made["version"], made["numbers"], made["cell"] = VERSION, method.receipt_width, cells[asked]
        made["issuer"], made["event"], made["seen"] = issuers[asked], events[asked], seen[asked]
        made["score"], made["probability"], made["memory"] = scores[asked], forecasts[asked], memory[asked]
        forecasts[~asked] = np.nan
        result = Fold(forecasts, made.view(f"V{made.itemsize}"))
        bank._clock = undo.clock + len(made)
        undo.keep()
    except BaseException:
        insist(undo.restore)
        raise
    return result


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
                raise InvalidInput(f"receipt must be {kind.itemsize} bytes, got {said(receipt)} - at receipt {row}")
        joined = b"".join(receipts)
    else:
        raise InvalidInput(f"receipts must be a list of bytes, got {type(receipts).__name__}")
    found = np.frombuffer(joined, dtype=kind)
    if len(found) != count:
        raise InvalidInput(f"receipts must be one for each outcome of an earlier call, {count}, got {len(found)}")
    return found


def _check_all_taken(stopped: int) -> None:
    if stopped >= 0:
        raise OutcomeConflict(
            "outcome must be of a forecast that has none yet, got one more than the forecasts of its key - "
            f"at row {stopped}"
        )


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


def _issuers(bank: Bank, slots: Slots, chosen: Flags) -> npt.NDArray[np.uint64]:
    """The fingerprint on the receipts of each operation's key, where it is needed."""
    issuers = np.zeros(len(slots), dtype=np.uint64)
    index, fingerprint = bank._store.index, bank._members.fingerprint
    if index is not None:
        issuers[chosen] = [fingerprint(index.key(slot)) for slot in slots[chosen].tolist()]
    return issuers


def _check_own(slots: Slots, own: Ints) -> None:
    bad = (own >= 0) & (slots[np.maximum(own, 0)] != slots)
    if bad.any():
        row = int(bad.argmax())
        raise UnknownForecast(f"outcome must be of a forecast of its own key, got another key's - at row {row}")


def _check_given(
    bank: Bank, given: npt.NDArray[np.void], rows: Ints, slots: Slots, issuers: npt.NDArray[np.uint64]
) -> None:
    """Raise unless each receipt is one that this bank, or one that it continues, has issued for the key."""
    method, states = bank._method, bank._store.matrix[slots[rows]]
    made, learnt = states[:, method.width + EVENTS], states[:, N]
    cells = 2**32 if method.calibeater is None else len(method.calibeater.initial) // 2
    sound = (given["seen"] <= learnt) & (given["cell"] < cells) & _is_sound(method, given)
    checks: list[tuple[Flags, type[Exception], str]] = [
        ((given["version"] == VERSION) & (given["numbers"] == method.receipt_width), InvalidInput,
         f"receipt must be of version {VERSION} with {method.receipt_width} numbers of memory, got another"),
        (given["issuer"] == issuers[rows], UnknownForecast, "receipt must be of this bank and this key, got another's"),
        (given["event"] < made, UnknownForecast, "receipt must be of a forecast that was made, got a later one"),
        (sound, InvalidInput, "receipt must be as it was issued, got a damaged one"),
    ]  # fmt: skip
    for good, error, sentence in checks:
        if not good.all():
            raise error(f"{sentence} - at row {int(rows[int((~good).argmax())])}")


def _is_sound(method: Method, given: npt.NDArray[np.void]) -> Flags:
    """Whether numbers are in their range, and agree where they are there twice."""
    score, probability, memory = given["score"], given["probability"], given["memory"]
    good: Flags = (score >= 0.0) & (score <= 1.0) & (probability >= 0.0) & (probability <= 1.0)
    if method.receipt_width:
        clip = method.features.clip  # type: ignore[union-attr]  # a mixture has a scaling
        pairs = ((SEEN, given["seen"]), (SCORE, score), (F, np.clip(score, clip, 1.0 - clip)), (P, probability))
        for at, value in pairs:
            good &= memory[:, at] == value
        lanes, spline = isinstance(method.learner, Lanes), isinstance(method.calibeater, Spline)
        issued = [*(range(E, M) if lanes else ()), M, *((S, R) if spline else ())]
        good &= ((memory[:, issued] >= EPS) & (memory[:, issued] <= LARGEST)).all(axis=1)
    return good
