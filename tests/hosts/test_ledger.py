"""Receipts are data: learnt exactly once whoever delivers them how often, and refused if they are not ours."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conformance import same
from streams import STREAMS

from calibeat import (
    BM,
    OPS,
    TOPS,
    Bank,
    CalibeatError,
    Calibrator,
    Forecast,
    InvalidInput,
    OutcomeConflict,
    UnknownForecast,
)
from calibeat.hosts import ledger


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


# ---- exactly once ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ops", "tops", "auto", "hops", "wps", "f99"])
@pytest.mark.parametrize("way", WAYS)
def test_a_receipt_delivered_ten_times_is_learnt_once(name: str, way: Callable[[Forecast], Forecast]) -> None:
    cal, once = Calibrator(name), Calibrator(name)
    forecasts = [cal.predict(0.3 + 0.05 * i) for i in range(10)]
    receipt = [once.predict(0.3 + 0.05 * i) for i in range(10)][4]
    once.update(receipt, 1)
    for _ in range(10):
        cal.update(way(forecasts[4]), 1)
    assert cal.outcomes == 1 and cal.to_json() == once.to_json()
    refused(cal, lambda: cal.update(way(forecasts[4]), 0), "already learnt, 1, got 0 - at event 4", OutcomeConflict)
    for i in (9, 0, 1, 2, 3, 5, 6, 8, 7):  # nobody else is the worse for it
        cal.update(way(forecasts[i]), i % 2)
    assert cal.outcomes == 10


@pytest.mark.parametrize("way", WAYS)
def test_it_is_learnt_once_also_after_a_restart(way: Callable[[Forecast], Forecast]) -> None:
    cal = Calibrator("auto")
    cal.run(*STREAMS["random"]())
    forecasts = [cal.predict(0.3 + 0.05 * i) for i in range(10)]
    for i in (3, 7, 0):
        cal.update(forecasts[i], i % 2)
    for twin in (Calibrator.from_json(cal.to_json()), pickle.loads(pickle.dumps(cal))):  # noqa: S301 - our own bytes
        before = twin.to_json()
        for i in (3, 7, 0):
            twin.update(way(forecasts[i]), i % 2)
            assert twin.to_json() == before
            with pytest.raises(OutcomeConflict):
                twin.update(way(forecasts[i]), 1 - i % 2)
        twin.update(way(forecasts[5]), 1)
        twin.update(way(forecasts[5]), 1)
        assert twin.outcomes == cal.outcomes + 1


def test_events_of_a_batch_are_settled_too() -> None:
    """A receipt with the number of such an event can only be of a calibrator that was made alike."""
    alike, cal = Calibrator(OPS), Calibrator(OPS)
    receipts = [alike.predict(0.5) for _ in range(3)]
    cal.run([0.5, 0.5, 0.5], [1, 0, 1], due=[2, 3, 3])
    before = cal.to_json()
    cal.update(receipts[0], 1)
    assert cal.to_json() == before
    refused(cal, lambda: cal.update(receipts[0], 0), "already learnt, 1, got 0", OutcomeConflict)
    cal.update(receipts[2], 1)  # its outcome has not arrived
    assert cal.outcomes == 2


@pytest.mark.parametrize("keep", [4096, 5])
def test_outcomes_that_come_in_any_order_and_several_times(keep: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "KEPT_EVENTS", keep)
    rng = np.random.default_rng(3)
    cal, once = Calibrator("ops"), Calibrator("ops")
    known: dict[int, int] = {}
    waiting: list[Forecast] = []
    for i in range(400):
        if i % 90 == 0:
            cal = Calibrator.from_json(cal.to_json())
        waiting.append(cal.predict(i / 400))
        once.predict(i / 400)
        for _ in range(rng.integers(0, 4)):
            receipt = waiting[rng.integers(max(0, i - 60), i + 1)]
            y = known.setdefault(receipt.event, int(rng.integers(0, 2)))
            before = cal.outcomes
            cal.update(by_json(receipt) if rng.random() < 0.5 else receipt, y)
            if cal.outcomes > before:
                once.update(receipt.__replace__(issuer=receipt.issuer[:16]), y)
    assert cal.outcomes == len(known) == once.outcomes
    same(cal.row, once.row)


def test_what_is_older_than_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "MOST_MARKS", 100)
    monkeypatch.setattr(ledger, "KEPT_EVENTS", 10)
    cal = Calibrator(OPS)
    first, *others = [cal.predict(0.5) for _ in range(300)]
    for receipt in others[:30]:
        cal.update(receipt, 1)
    refused(cal, lambda: cal.update(others[0], 0), "already learnt, 1, got 0 - at event 1", OutcomeConflict)
    for receipt in others[30:]:
        cal.update(receipt, 1)
    refused(cal, lambda: cal.update(first, 1), "forecast must be young enough to know whether", UnknownForecast)
    twin = Calibrator.from_json(cal.to_json())
    refused(twin, lambda: twin.update(first, 1), "got one from before event 1 - at event 0", UnknownForecast)
    before = cal.to_json()
    cal.update(others[50], 0)  # it was learnt as 1, but which one is forgotten
    assert cal.to_json() == before


def test_outcomes_in_order_are_remembered_in_little_room_however_late() -> None:
    cal = Calibrator(OPS)
    waiting = [cal.predict(0.5) for _ in range(20_000)]
    for receipt in waiting[:15_000]:
        cal.update(receipt, 1)
    assert len(cal._receipts.settled.span[1]) <= 2 * ledger.KEPT_EVENTS + 1
    assert len(cal.to_json()) < 3000
    cal.update(waiting[0], 0)  # before the last 4,096: known to be learnt, which one is forgotten
    refused(cal, lambda: cal.update(waiting[14_000], 0), "already learnt, 1, got 0", OutcomeConflict)


# ---- whose receipt -----------------------------------------------------------------------------------------------


def test_foreign_receipts(cal: Calibrator) -> None:
    for other in (Calibrator(OPS), Calibrator(TOPS, seed=1), Calibrator(TOPS, stream="paris")):
        foreign = other.predict(0.5)
        refused(cal, lambda f=foreign: cal.update(f, 1), "made by another method, seed or stream", UnknownForecast)
    alike = Calibrator(TOPS)
    foreign = alike.predict(0.5)
    late = Forecast.from_dict({**foreign.to_dict(), "event": 3})
    refused(cal, lambda: cal.update(late, 1), "the 3 that this calibrator has made, got event 3", UnknownForecast)
    for thing in (0.5, None, foreign.__reduce__()[1], "x", type("Mine", (Forecast,), {})(*foreign.__reduce__()[1])):
        refused(cal, lambda t=thing: cal.update(t, 1), "forecast must be a Forecast made by predict, got")
    alike.update(foreign, 1)  # after all that it is still good at home


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
    refused(grandchild, lambda: grandchild.update(way(after), 1), "that a copy of it has made", UnknownForecast)
    grandchild.update(way(own), 1)
    assert grandchild.outcomes == 2


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


def test_restarts_without_end_leave_a_bounded_trace() -> None:
    cal = Calibrator(OPS)
    first = cal.predict(0.5)
    for _ in range(200):
        cal = Calibrator.from_json(cal.to_json())
        cal.predict(0.5)
    assert len(cal._receipts.issuer.generations) <= 64 and len(cal.to_json()) < 5000
    cal.update(first, 1)
    assert cal.outcomes == 1


def test_more_outcomes_than_forecasts() -> None:
    """After `Bank.fold` a bank does not know which events are settled, only how many."""
    bank = Bank(OPS)
    told = bank.fold(["a"] * 3, [0.5] * 3, [np.nan] * 3)
    bank.fold(["a"] * 2, [np.nan] * 2, [1, 1], told.receipts[:2])
    receipts, member = [Forecast.from_bytes(receipt.tobytes()) for receipt in told.receipts], bank["a"]
    member.update(receipts[0], 1)
    with pytest.raises(OutcomeConflict, match="got one more than the 3 forecasts - at event 2"):
        member.update(receipts[2], 1)
    assert member.outcomes == 3


# ---- receipts from outside ---------------------------------------------------------------------------------------


def test_receipts_that_were_edited_on_the_way(cal: Calibrator) -> None:
    alive = cal.predict(0.5)
    receipt = alive.to_dict()
    for field, value, message, kind in [
        ("cell", 10, "forecast cell must be a whole number in [0, 9], got 10", InvalidInput),
        ("score", 7.0, "score must be in [0, 1], got 7.0", InvalidInput),
        ("event", 4, "one of the 4 that this calibrator has made, got event 4", UnknownForecast),
        ("issuer", "me", "made by another method, seed or stream", UnknownForecast),
    ]:
        for edited in (Forecast.from_dict({**receipt, field: value}), alive.__replace__(**{field: value})):
            refused(cal, lambda f=edited: cal.update(f, 1), message, kind)
    for field, value, message in [
        ("cell", -1, "forecast cell must be a whole number in [0, 9223372036854775807], got -1"),
        ("cell", 2.5, "forecast cell must be a whole number"),
        ("cell", math.inf, "forecast cell must be a whole number"),
        ("bin", True, "forecast bin must be a whole number"),
        ("score", math.nan, "forecast score must be a finite number, got nan"),
        ("score", "0.5", "forecast score must be a finite number, got '0.5'"),
        ("expert", True, "forecast expert must be a finite number, got True"),
        ("issuer", 7, "forecast issuer must be a string, got 7"),
        ("candidates", 7, "forecast candidates must be pairs, got 7"),
        ("lanes", "0.5", "forecast lanes must be a list of numbers, got '0.5'"),
        ("candidates", [[0.5, "1"]], "forecast candidate must be a finite number, got '1'"),
    ]:
        with pytest.raises(InvalidInput) as error:
            Forecast.from_dict({**receipt, field: value})
        assert message in str(error.value)
    cal.update(Forecast.from_dict(receipt), 1)
    raw = Calibrator(BM)
    edited = Forecast.from_dict({**raw.predict(0.5).to_dict(), "cell": 99})
    raw.update(edited, 1)  # there is no cell to play


def test_receipts_made_by_hand_are_looked_at_like_those_that_travelled() -> None:
    """Whatever a live receipt is copied or edited into, it is not alive: what it says is checked, and then believed."""
    edits: list[Callable[[Forecast], Forecast]] = [
        lambda f: f.__replace__(score=0.1),
        lambda f: Forecast.from_dict({**f.to_dict(), "score": 0.1}),
        lambda f: Forecast(f.probability, 0.1, *f.__reduce__()[1][2:]),
    ]
    for method in (OPS, TOPS):
        for edit in edits:
            results = []
            for others in (0, 1):  # the latest forecast, or not the latest
                cal = Calibrator(method)
                receipt = cal.predict(0.9)
                for _ in range(others):
                    cal.predict(0.5)
                cal.update(edit(receipt), 1)
                results.append(cal.predict_many([0.9])[0])
            assert results[0] == results[1]
    auto = Calibrator()  # its mixture was asked about another score
    receipt = auto.predict(0.9)
    for edit in [*edits, lambda f: f.__replace__(lanes=()), lambda f: f.__replace__(lanes=(0.5,) * 12)]:
        edited = edit(receipt)
        refused(auto, lambda f=edited: auto.update(f, 1), "forecast")
    auto.predict(0.5)
    tops = Calibrator(TOPS)
    receipt = tops.predict(0.9)
    edited = receipt.__replace__(cell=10**6)
    refused(tops, lambda: tops.update(edited, 1), "forecast cell must be a whole number in [0, 9], got 1000000")
    with pytest.raises(TypeError):  # nor can a live one be made anew
        receipt.__init__(*edited.__reduce__()[1])  # type: ignore[misc]
    tops.update(receipt.__replace__(event=np.int64(0), cell=np.int8(receipt.cell)), 1)  # other types, same numbers
    assert tops.outcomes == 1
