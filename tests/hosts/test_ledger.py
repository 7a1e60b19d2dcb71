"""Receipts are learnt exactly once, whoever delivers them how often: the ledger, and the hosts that keep it."""

from __future__ import annotations

import base64
import json
import math
import pickle
import struct
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from calibeat import (
    OPS,
    TOPS,
    Bank,
    CalibeatError,
    Calibrator,
    Forecast,
    InvalidInput,
    MultiCalibrator,
    OutcomeConflict,
    UnknownForecast,
)
from calibeat._compiled import CLOSED, KEPT_EVENTS, OPEN, OTHER, ZERO, Ledger
from calibeat._util.sealed import checksum

MOST_MARKS = 4_194_304  # docs/receipts.md
nan = math.nan

EIGHT_ZEROS = base64.b64encode(struct.pack("<qB", 8, 0) + bytes([ZERO] * 8)).decode()

# ---- the ledger against a dictionary that forgets nothing ----------------------------------------------------------


class Naive:
    """What happened to each event: its column, or that it never gets one; nothing is there while it is open."""

    def __init__(self, keep: int) -> None:
        self.keep, self.events = keep, 0
        self.columns, self.closed = dict[int, int](), set[int]()

    @property
    def oldest(self) -> int:
        """The oldest open event."""
        return next((event for event in range(self.events) if self.is_open(event)), self.events)

    def is_open(self, event: int) -> bool:
        return event not in self.columns and event not in self.closed

    def batch(self, outcomes: list[float], due: list[int] | None, end: int) -> None:
        for i, y in enumerate(outcomes):
            if not math.isnan(y) and (due is None or due[i] < end):
                self.columns[self.events + i] = int(y)
        self.events += len(outcomes)

    def agrees(self, ledger: Ledger) -> None:
        oldest = self.oldest
        for event in range(self.events + 2):
            mark = ledger.mark(event)
            if event in self.columns:
                assert mark == CLOSED if event < oldest - self.keep and mark == CLOSED else mark >= ZERO, event
                assert mark == CLOSED or ledger.column(event) == self.columns[event]
                assert mark in (CLOSED, min(ZERO + self.columns[event], OTHER))
            else:
                assert mark == (CLOSED if event in self.closed else OPEN), event
        assert ledger.is_open(self.events) == (oldest < self.events)
        assert ledger.known == self.events and ledger.given_up == 0


@pytest.mark.parametrize("keep", [3, 64, KEPT_EVENTS])
@pytest.mark.parametrize("classes", [2, 3, 1000])
@pytest.mark.parametrize("seed", range(6))
def test_it_knows_what_a_dictionary_knows(keep: int, classes: int, seed: int) -> None:
    """Single events in any order, batches long and late, gaps that batches of a bank leave, copies and restarts."""
    rng, ledger, naive = np.random.default_rng(seed), Ledger(keep=keep, classes=classes), Naive(keep)
    for _ in range(250):
        match rng.choice(["forecast", "outcome", "batch", "gap", "again"], p=[0.3, 0.45, 0.1, 0.05, 0.1]):
            case "forecast":
                naive.events += int(rng.integers(1, 4))
                ledger.known = naive.events
            case "outcome":
                event = naive.events - 1 - int(rng.exponential(10))
                if event >= 0 and naive.is_open(event):
                    naive.columns[event] = int(rng.integers(0, classes))
                    ledger.settle(event, naive.columns[event])
            case "batch":
                n = int(rng.choice([0, 1, 20, 300], p=[0.1, 0.3, 0.5, 0.1]))
                outcomes = np.where(rng.random(n) < rng.choice([0.0, 0.2]), nan, rng.integers(0, classes, n))
                due = np.arange(n) + rng.integers(1, 30, n) if rng.random() < 0.5 else None
                ledger.batch(naive.events, outcomes, due, n)
                naive.batch(outcomes.tolist(), None if due is None else due.tolist(), n)
            case "gap":
                n = int(rng.choice([1, 10, 200]))
                naive.closed |= set(range(naive.events, naive.events + n))
                naive.events += n
                ledger.catch_up(naive.events)
            case "again":
                settings: Any = {"keep": keep, "classes": classes}
                size = naive.events, len(naive.columns)
                dumped, packed = ledger.dump(), ledger.packed()
                copies = [
                    ledger.copy(),
                    Ledger.load(dumped, *size, **settings),
                    Ledger.unpacked(*packed, *size, **settings),
                ]
                assert all(each.dump() == dumped for each in copies)
                ledger = copies[int(rng.integers(3))]
        naive.agrees(ledger)


@pytest.mark.parametrize("length", [1, 3, 4, 5, 100])
@pytest.mark.parametrize("before", ["", "2", "23232323", "2320", "20323233", "0"])
@pytest.mark.parametrize("unknown", [0, 50])  # forecasts after those without a mark
def test_a_long_batch_leaves_what_its_events_would_have_left(length: int, before: str, unknown: int) -> None:
    known = np.array([nan if mark == "0" else float(mark) - ZERO for mark in before])
    whole, single = Ledger(2, keep=4), Ledger(2, keep=4)
    for ledger in (whole, single):
        ledger.batch(2, known)
    event, outcomes = 2 + len(before) + unknown, np.resize([1.0, 0.0, 1.0], length)
    whole.batch(event, outcomes)
    for i, y in enumerate(outcomes.tolist()):
        single.settle(event + i, int(y))
    assert whole.dump() == single.dump()


def test_what_is_far_behind_is_given_up_and_the_memory_is_bounded() -> None:
    ledger, n = Ledger(), MOST_MARKS + 50
    outcomes = np.ones(n)
    outcomes[[3, 20, n - 5]] = nan
    ledger.batch(0, outcomes)
    assert (ledger.first, ledger.given_up) == (50, 21)
    assert [ledger.mark(event) for event in (3, 20, 49)] == [CLOSED] * 3
    assert [ledger.mark(event) for event in (n - 5, n - 1, n)] == [OPEN, ZERO + 1, OPEN]
    twin = Ledger.load(ledger.dump(), n, n - 3)
    assert (twin.given_up, twin.dump()) == (21, ledger.dump())
    ledger.settle(n - 5, 1)
    ledger.settle(n + 2 * MOST_MARKS, 1)  # what was open in between is given up
    assert ledger.given_up == n + MOST_MARKS + 1 and ledger.mark(n + MOST_MARKS) == CLOSED


def test_of_a_stream_whose_outcomes_were_learnt_elsewhere() -> None:
    done, some = Ledger.unknown(10, 10), Ledger.unknown(10, 4)
    assert [done.mark(event) for event in range(11)] == [CLOSED] * 10 + [OPEN]
    assert [some.mark(event) for event in range(11)] == [OPEN] * 11 and some.is_open(10) and not done.is_open(10)
    assert Ledger.unknown(MOST_MARKS + 7, 4).first == 7


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {"first": 0},
        {"first": 0, "given_up": 0, "marks": "", "more": 1},
        {"first": 0, "given_up": 0, "marks": 7},
        {"first": 0, "given_up": 0, "marks": "?"},
        {"first": 0, "given_up": 0, "marks": None},
        {"first": -1, "given_up": 0, "marks": ""},
        {"first": 11, "given_up": 0, "marks": ""},
        {"first": 0, "given_up": 1, "marks": ""},
        {"first": 8, "given_up": 0, "marks": EIGHT_ZEROS},
        {"first": 0, "given_up": 0, "marks": EIGHT_ZEROS},
        {"first": 0, "given_up": 0, "marks": "qqo="},
        {"first": 0.5, "given_up": 0, "marks": ""},
        {"first": None, "given_up": 0, "marks": ""},
    ],
)
def test_what_cannot_be(data: Any) -> None:
    with pytest.raises(InvalidInput, match="settled"):
        Ledger.load(data, 10, 3)


@pytest.mark.parametrize("classes", [3, 1000])
def test_labels_that_cannot_be(classes: int) -> None:
    """One byte has room for the first 253 labels. The others stand behind, for just the events that have one."""
    ledger = Ledger(classes=1000, known=5)
    for event, column in ((1, 400), (2, 252), (3, 253), (4, 0)):
        ledger.settle(event, column)
    first, given_up, marks = ledger.packed()
    twin = Ledger.unpacked(first, given_up, marks, 5, 4, classes=1000)
    assert [twin.column(event) for event in (1, 2, 3, 4)] == [400, 252, 253, 0]
    wrong = [marks[:-1], marks[:-4], marks + bytes(4), marks + bytes(1), marks[:3], b"", b"\xff" * 8 + marks[8:]]
    wrong += [marks[:-4] + (5000).to_bytes(4, "little"), marks[:-4] + (7).to_bytes(4, "little")]
    wrong += [(3).to_bytes(8, "little") + marks[8:], marks[:8] + b"\1" + marks[9:], marks[:8] + b"\2" + marks[9:]]
    for bad in wrong if classes == 1000 else [marks]:
        with pytest.raises(InvalidInput, match="settled"):
            Ledger.unpacked(first, given_up, bad, 5, 4, classes=classes)
    with pytest.raises(InvalidInput, match="settled labels must be those of 3 classes"):
        Ledger.unpacked(0, 0, (1).to_bytes(8, "little") + bytes([0, ZERO + 3]), 5, 4, classes=3)


@pytest.mark.parametrize(
    ("weight", "trials", "ones"),
    [(nan, 1, 0), (-1.0, 1, 0), (1e13, 1, 0), (1.0, 3, 4), (1.0, 10**9 + 1, 0), (math.inf, 1, 1)],
)
def test_weights_that_cannot_be(weight: float, trials: int, ones: int) -> None:
    """Behind the marks: a weight, and 2^32 (trials + 1) + ones."""
    ledger = Ledger(known=1)
    ledger.settle(0, 1 / 3, 2.5, 3.0)
    assert ledger.describe(0) == (2.5, 3, 1)
    first, given_up, packed = ledger.packed()
    assert packed == struct.pack("<qBBdQ", 1, 1, ZERO, 2.5, (4 << 32) + 1)
    assert Ledger.unpacked(first, given_up, packed, 1, 1).describe(0) == (2.5, 3, 1)
    bad = struct.pack("<qBBdQ", 1, 1, ZERO, weight, (trials + 1 << 32) + ones)
    with pytest.raises(InvalidInput, match="settled weights must be"):
        Ledger.unpacked(first, given_up, bad, 1, 1)
    with pytest.raises(InvalidInput, match="settled"):  # counts are of two classes
        Ledger.unpacked(first, given_up, packed, 1, 1, classes=3)


# ---- exactly once ------------------------------------------------------------------------------------------------


@pytest.fixture
def cal() -> Calibrator:
    calibrator = Calibrator(TOPS)
    calibrator.run([0.2, 0.7, 0.4], [0, 1, 1])
    return calibrator


def refused(calibrator: Calibrator, action: Callable[[], Any], message: str, kind: type = InvalidInput) -> None:
    """The action raises with this message, and the calibrator is the same to the last byte."""
    before = calibrator.to_json()
    with pytest.raises(kind) as error:
        action()
    assert isinstance(error.value, CalibeatError)
    assert message in str(error.value)
    assert calibrator.to_json() == before


def by_json(forecast: Forecast) -> Forecast:
    return Forecast.from_json(forecast.to_json())


def by_bytes(forecast: Forecast) -> Forecast:
    return Forecast.from_bytes(forecast.to_bytes())


def by_pickle(forecast: Forecast) -> Forecast:
    return pickle.loads(pickle.dumps(forecast))  # noqa: S301 - our own bytes


def itself(forecast: Forecast) -> Forecast:
    return forecast


WAYS = [itself, by_json, by_bytes, by_pickle]


@pytest.mark.parametrize("name", ["ops", "tops", "auto", "hops", "wps", "f99"])
@pytest.mark.parametrize("way", WAYS)
def test_a_receipt_delivered_ten_times_is_learnt_once(name: str, way: Callable[[Forecast], Forecast]) -> None:
    cal, once = Calibrator(name), Calibrator(name)
    forecasts = [cal.predict(0.3 + 0.05 * i) for i in range(10)]
    receipt = [once.predict(0.3 + 0.05 * i) for i in range(10)][4]
    once.update(receipt, 1)
    for i in range(10):
        assert cal.update(way(forecasts[4]), 1) == ("repeated" if i else "learnt")
    assert cal.outcomes == 1 and cal.to_json() == once.to_json()
    refused(cal, lambda: cal.update(way(forecasts[4]), 0), "already learnt, 1, got 0 - at event 4", OutcomeConflict)
    for i in (9, 0, 1, 2, 3, 5, 6, 8, 7):  # nobody else is the worse for it
        cal.update(way(forecasts[i]), i % 2)
    assert cal.outcomes == 10


@pytest.mark.parametrize(
    ("make", "score"), [(Calibrator, 0.5), (lambda **more: MultiCalibrator(3, **more), [0.2, 0.3, 0.5])]
)
def test_events_of_a_batch_are_settled_too(make: Callable[..., Any], score: Any) -> None:
    """A receipt with the number of such an event can only be of a calibrator that was made alike."""
    alike, cal = make(stream="a"), make(stream="a")
    receipts = [alike.predict(score) for _ in range(3)]
    cal.run([score] * 3, [1, 0, 1], due=[2, 3, 3])
    before = cal.to_json()
    assert cal.update(receipts[0], 1) == "repeated"
    assert cal.to_json() == before
    refused(cal, lambda: cal.update(receipts[0], 0), "already learnt, 1, got 0", OutcomeConflict)
    assert cal.update(receipts[2], 1) == "learnt"  # its outcome has not arrived
    assert cal.outcomes == 2


def test_an_event_that_was_given_up() -> None:
    """It is so old that nobody knows whether its outcome was learnt."""
    for cal, what, outcome in ((Calibrator("bm"), "outcome", 1), (MultiCalibrator(2, "raw"), "label", 1)):
        score: Any = 0.5 if what == "outcome" else [0.5, 0.5]
        first, second = cal.predict(score), cal.predict(score)
        cal.update(second, outcome)
        n = MOST_MARKS
        cal.run(np.full((n, 2) if what == "label" else n, 0.5), np.ones(n, dtype=int))
        message = f"young enough to know whether its {what} was learnt, got one from before event 1 - at event 0"
        refused(cal, lambda cal=cal, first=first: cal.update(first, 1), message, UnknownForecast)
        twin = type(cal).from_json(cal.to_json())
        refused(twin, lambda twin=twin, first=first: twin.update(first, 1), message, UnknownForecast)
        assert cal.update(second, 0) == "repeated"  # it was learnt as 1, but which one is forgotten


def test_outcomes_in_order_are_remembered_in_little_room_however_late() -> None:
    cal = Calibrator(OPS)
    waiting = [cal.predict(0.5) for _ in range(20_000)]
    for receipt in waiting[:15_000]:
        cal.update(receipt, 1)
    assert len(cal.to_json()) < 4 / 3 * KEPT_EVENTS + 1000  # a byte each, in base 64
    for twin in (cal, Calibrator.from_json(cal.to_json())):
        assert twin.update(waiting[0], 0) == "repeated"  # before the last 4,096: learnt, but which one is forgotten
        refused(
            twin,
            lambda twin=twin: twin.update(waiting[15_000 - KEPT_EVENTS], 0),
            "already learnt, 1, got 0",
            OutcomeConflict,
        )


def test_old_labels_are_forgotten_and_old_events_stay_settled() -> None:
    cal, score, n = MultiCalibrator(300, "raw"), np.full(300, 1 / 300), 2 * KEPT_EVENTS + 900
    kept = [cal.predict(score) for _ in range(n)]
    for i, forecast in enumerate(kept):
        cal.update(forecast, i % 300)
    assert len(json.loads(cal.to_json())["settled"]["marks"]) < 3 * KEPT_EVENTS
    for twin in (cal, MultiCalibrator.from_json(cal.to_json())):
        assert twin.update(kept[0], 2) == "repeated"  # any label is
        for i in (n - 1, n - n % 300 - 10):  # one that stands in a byte, and one that does not
            assert twin.update(kept[i], i % 300) == "repeated"
            with pytest.raises(OutcomeConflict):
                twin.update(kept[i], i % 300 - 1)
        assert twin.outcomes == n


# ---- whose receipt -----------------------------------------------------------------------------------------------


def test_foreign_receipts(cal: Calibrator) -> None:
    for other in (Calibrator(OPS), Calibrator(TOPS, seed=1), Calibrator(TOPS, stream="paris")):
        foreign = other.predict(0.5)
        refused(cal, lambda f=foreign: cal.update(f, 1), "made by another method, seed or stream", UnknownForecast)
    alike = Calibrator(TOPS)
    receipts = [alike.predict(0.5) for _ in range(4)]
    for receipt in receipts:  # of the same name, but nobody has given it: each signs with a number of its own
        refused(cal, lambda f=receipt: cal.update(f, 1), "that a copy of it has made, or", UnknownForecast)
    for thing in (0.5, None, receipts[0].__reduce__()[1], "x", {"v": 2}, type("Mine", (Forecast,), {})):
        refused(cal, lambda t=thing: cal.update(t, 1), "forecast must be a Forecast made by predict, got")
    for receipt in receipts:  # after all that they are still good at home
        assert alike.update(receipt, 1) == "learnt"


def test_a_named_stream_is_the_same_everywhere() -> None:
    """With a name all is reproducible, the receipts too, and each takes those of the other."""
    one, other = Calibrator(TOPS, stream=0), Calibrator(TOPS, stream=0)
    theirs = [other.predict(0.3), other.predict(0.6)]
    mine = one.predict(0.3)
    assert mine == theirs[0] and mine.to_bytes() == theirs[0].to_bytes() and len(mine.issuer) == 16
    refused(
        one,
        lambda: one.update(theirs[1], 1),
        "one of the 1 that this calibrator has made, got event 1",
        UnknownForecast,
    )
    assert one.update(theirs[0], 1) == "learnt"


@pytest.mark.parametrize("make", [Calibrator, lambda: MultiCalibrator(2), lambda: MultiCalibrator(3)])
def test_workers_that_were_made_alike_refuse_each_other(make: Callable[[], Any]) -> None:
    """As four web workers with one global calibrator each: their outcomes do not get mixed up."""
    one, other = make(), make()
    score: Any = 0.5 if type(one) is Calibrator else [1 / len(one.classes)] * len(one.classes)
    mine, theirs = one.predict(score), other.predict(score)
    assert mine.event == theirs.event and mine.issuer[:17] == theirs.issuer[:17] and mine.issuer != theirs.issuer
    with pytest.raises(UnknownForecast, match="a copy of it has made"):
        one.update(theirs, 1)
    assert one.update(mine, 1) == other.update(theirs, 0) == "learnt"


@pytest.mark.parametrize("way", WAYS)
def test_receipts_that_were_issued_after_the_snapshot_are_told_from_those_before(
    way: Callable[[Forecast], Forecast],
) -> None:
    parent = Calibrator(TOPS)
    before = parent.predict(0.5)
    text = parent.to_json()
    after = parent.predict(0.6)
    child, sister = Calibrator.from_json(text), Calibrator.from_json(text)
    own, hers = child.predict(0.7), sister.predict(0.8)  # the crashed one, its successor, and another one: all event 1
    for foreign in (after, hers):
        refused(child, lambda f=foreign: child.update(way(f), 1), "that a copy of it has made, or", UnknownForecast)
    child.update(way(before), 1)
    child.update(way(own), 1)
    assert child.outcomes == 2
    grandchild = Calibrator.from_json(child.to_json())
    assert grandchild.update(way(own), 1) == "repeated"
    own = grandchild.predict(0.7)
    refused(grandchild, lambda: grandchild.update(way(child.predict(0.7)), 1), "a copy of it has made", UnknownForecast)
    assert grandchild.update(way(own), 1) == "learnt"


def test_a_life_of_batches_leaves_no_random_trace() -> None:
    parent = Calibrator(OPS)
    receipt = parent.predict(0.5)
    texts = set()
    for _ in range(3):
        child = Calibrator.from_json(parent.to_json())
        child.run([0.5, 0.6], [1, 0])
        texts.add(child.to_json())
    assert len(texts) == 1
    late = parent.predict(0.5)
    refused(child, lambda: child.update(late, 1), "that a copy of it has made", UnknownForecast)
    child.update(receipt, 1)


def test_restarts_without_end_leave_no_trace() -> None:
    cal = Calibrator(OPS)
    receipts = [cal.predict(0.5)]
    size = len(cal.to_json())
    for _ in range(200):
        cal = Calibrator.from_json(cal.to_json())
        receipts.append(cal.predict(0.5))
    assert len(cal.to_json()) < size + 100
    assert [cal.update(receipt, 1) for receipt in receipts] == ["learnt"] * 201


def test_rows_from_elsewhere_bring_no_ledger() -> None:
    """After `set_rows` a bank does not know which events are settled, only how many: no more are learnt."""
    bank, other = Bank(OPS, stream=1), Bank(OPS, stream=1)
    receipts = [bank.predict("a", 0.5) for _ in range(3)]
    bank.update("a", receipts[1], 1)
    other.set_rows(["a"], bank.rows(["a"]))
    assert other.update("a", receipts[0], 1) == other.update("a", receipts[2], 1) == "learnt"
    with pytest.raises(OutcomeConflict, match="got one more than the 3 forecasts - at event 1"):
        other.update("a", receipts[1], 1)
    assert other.update("a", receipts[0], 1) == "repeated"
    assert other["a"].outcomes == 3


# ---- receipts from outside ---------------------------------------------------------------------------------------

EDITS: list[tuple[str, Any]] = [
    ("probability", 0.6),
    ("score", 0.1),
    ("expert", 0.51),
    ("bin", 3),
    ("cell", 4),
    ("event", 2),
    ("seen", 2),
    ("lanes", [0.5]),
    ("candidates", [[0.2, 0.5], [0.3, 0.5]]),
    ("seal", "0" * 16),
]


@pytest.mark.parametrize(("field", "value"), EDITS)
def test_a_receipt_is_taken_as_it_was_issued_or_refused(cal: Calibrator, field: str, value: Any) -> None:
    alive = cal.predict(0.5)
    edited = Forecast.from_dict({**alive.to_dict(), field: value})
    refused(cal, lambda: cal.update(edited, 1), "forecast must be as it was issued, got a damaged one - at event")
    if field not in ("seal", "candidates"):
        by_hand = alive.__replace__(**{field: value})
        refused(cal, lambda: cal.update(by_hand, 1), "forecast must be as it was issued, got a damaged one - at event")
    assert cal.update(Forecast.from_dict(alive.to_dict()), 1) == "learnt"
    assert cal.update(alive, 1) == "repeated"


@pytest.mark.parametrize("name", ["ops", "auto", "hops"])
def test_every_bit_of_a_receipt_counts(name: str) -> None:
    """Whichever bit has changed on the way: it is no receipt, not ours, or damaged; never another one."""
    cal = Calibrator(name, groups=["a"]) if name == "auto" else Calibrator(name)
    receipt = cal.predict(0.3, *([["x"]] if name == "auto" else []))
    data, before = receipt.to_bytes(), cal.to_json()
    rng = np.random.default_rng(0)
    for at in [*range(8 * 16), *rng.integers(0, 8 * len(data), 400).tolist()]:
        changed = bytearray(data)
        changed[at // 8] ^= 1 << at % 8
        with pytest.raises((InvalidInput, UnknownForecast)):
            cal.update(Forecast.from_bytes(bytes(changed)), 1)
    assert cal.to_json() == before
    assert cal.update(Forecast.from_bytes(data), 1) == "learnt"


def test_what_no_receipt_can_hold(cal: Calibrator) -> None:
    receipt = cal.predict(0.5).to_dict()
    for field, value, message in [
        ("cell", -1, "forecast cell must be a whole number in [0, 9223372036854775807], got -1"),
        ("cell", 2.5, "forecast cell must be a whole number"),
        ("cell", math.inf, "forecast cell must be a whole number"),
        ("bin", True, "forecast bin must be a whole number"),
        ("score", math.nan, "forecast score must be a finite number, got nan"),
        ("score", "0.5", "forecast score must be a finite number, got '0.5'"),
        ("expert", True, "forecast expert must be a finite number, got True"),
        ("issuer", 7, "forecast issuer must be a string, got 7"),
        ("issuer", "me", "forecast issuer must be a name made by a calibrator, got 'me'"),
        ("candidates", 7, "forecast candidates must be pairs, got 7"),
        ("lanes", "0.5", "forecast lanes must be a list of numbers, got '0.5'"),
        ("candidates", [[0.5, "1"]], "forecast candidate must be a finite number, got '1'"),
        ("seal", 7, "forecast seal must be 16 hexadecimal digits, got 7"),
        ("seal", "0" * 15, "forecast seal must be 16 hexadecimal digits, got '"),
    ]:
        with pytest.raises(InvalidInput) as error:
            Forecast.from_dict({**receipt, field: value})
        assert message in str(error.value)


# ---- outcomes that do not come -------------------------------------------------------------------------------------


MANY = 5_000_000  # forecasts: more than those that a stream remembers one by one


def peak_of(call: Callable[[], object]) -> int:
    """The memory that a call takes, in bytes."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_forecasts_without_an_outcome_cost_nothing() -> None:
    cal = Calibrator("ops")
    old = cal.predict(0.4)
    last, outcome = [], []
    scores, outcomes, never = np.full(MANY, 0.3), np.zeros(MANY), np.full(MANY, MANY)
    for _ in range(3):
        cal.run(scores, outcomes, due=never)
        assert peak_of(lambda: cal.run([0.3], [0], due=[1])) < 100_000
        last.append(peak_of(lambda: cal.predict(0.3)))
        outcome.append(peak_of(lambda: cal.update(cal.predict(0.3), 1)))
    assert max(last) < 10_000
    assert outcome[2] < 1.2 * outcome[1] and outcome[1] < 1.2 * outcome[0]
    assert cal.outcomes == 3
    with pytest.raises(UnknownForecast, match="young enough"):
        cal.update(old, 1)
    twin = Calibrator.from_json(cal.to_json())
    for host in (cal, twin):
        with pytest.raises(UnknownForecast, match="young enough"):
            host.update(old, 1)


@pytest.mark.parametrize("verb", ["single", "run", "late"])
def test_a_snapshot_of_many_events(verb: str) -> None:
    """A number of events, however large, takes no memory."""
    cal = Calibrator("ops")
    cal.predict(0.3)
    state = json.loads(cal.to_json())
    state["events"] = 2**53 - 10
    del state["checksum"]
    cal = Calibrator.from_json(json.dumps({**state, "checksum": checksum(state)}))
    match verb:
        case "single":
            assert cal.update(cal.predict(0.3), 1) == "learnt"
        case "run":
            cal.run([0.3, 0.4], [0, 1])
        case "late":
            cal.run([0.3, 0.4], [0, 1], due=[2, 2])
            cal.run([0.3, 0.4], [0, 1], due=[2, 2], finish=True)
    assert Calibrator.from_json(cal.to_json()).to_json() == cal.to_json()
