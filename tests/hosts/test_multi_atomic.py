"""Many classes: a call takes effect whole or not at all. Ctrl-C is raised at every moment in turn."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import multi_streams
import numpy as np
import pytest
from interrupts import Interrupts, interrupted_everywhere

from calibeat import CalibeatError, MultiBank, MultiCalibrator, MultiForecast, OutcomeConflict
from calibeat.core import loops
from calibeat.hosts import ledger
from calibeat.hosts.bankfile import header_of, sections_of
from calibeat.hosts.keys import check_index

KINDS = [(3, "multi"), (2, "ots")]


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little is remembered, so that the lines that let go are run too; pieces are short; no random numbers."""
    monkeypatch.setattr(ledger, "KEPT_EVENTS", 2)
    monkeypatch.setattr(ledger, "_FIRST_ROOM", 1)
    monkeypatch.setattr("calibeat.hosts.bank._OUTCOMES_KEPT", 2)
    monkeypatch.setattr(loops, "PIECE", 6)
    for module in ("ledger", "bank"):
        monkeypatch.setattr(f"calibeat.hosts.{module}.new_generation", lambda: "5eed5eed")
    monkeypatch.setattr("calibeat.hosts.keys.Seed.random", classmethod(lambda cls: cls(7)))


# ---- one stream ----------------------------------------------------------------------------------------------------


def begun(K: int, method: str, restored: bool) -> tuple[MultiCalibrator, list[MultiForecast]]:
    cal = MultiCalibrator(K, method)
    scores, labels = multi_streams.random(8, K)
    cal.run(scores[:5], labels[:5])
    receipts = [cal.predict(score) for score in scores[5:]]
    cal.update(receipts[1], 1)
    return MultiCalibrator.from_json(cal.to_json()) if restored else cal, receipts


CALLS: dict[str, Callable[[Any], Any]] = {
    "predict": lambda pair: pair[0].predict(pair[1][0].score),
    "latest": lambda pair: pair[0].update(pair[1][2], 1),
    "late": lambda pair: pair[0].update(pair[1][0], 1),
    "run": lambda pair: pair[0].run([pair[1][i].score for i in range(3)], [0, 1, 0]),
    "run late": lambda pair: pair[0].run([pair[1][i].score for i in range(3)], [0, 1, 0], due=[2, 2, 5]),
}


@pytest.mark.parametrize("restored", [False, True], ids=["as it is", "restored"])
@pytest.mark.parametrize("what", CALLS)
@pytest.mark.parametrize(("K", "method"), KINDS)
@pytest.mark.usefixtures("little")
def test_a_calibrator(K: int, method: str, what: str, restored: bool) -> None:
    if what in ("predict", "late") and not restored:
        return  # one call into C: there is no moment at which it could be interrupted
    act = CALLS[what]

    def make() -> tuple[MultiCalibrator, list[MultiForecast]]:
        return begun(K, method, restored)

    done = make()
    before = done[0].to_json()
    act(done)
    after, seen = done[0].to_json(), set()
    for thing in interrupted_everywhere(make, act):
        cal, receipts = thing
        state = cal.to_json()
        assert state in (before, after)
        if state not in seen:
            assert MultiCalibrator.from_json(state).to_json() == state
        seen.add(state)
        if state == before or what in ("latest", "late"):  # a label may come again
            act(thing)
        assert cal.to_json() == after
        if what in ("latest", "late"):
            with pytest.raises(OutcomeConflict):
                cal.update(receipts[2 if what == "latest" else 0], 0)
    assert seen == {before, after}


@pytest.mark.parametrize("what", ["latest", "run"])
@pytest.mark.usefixtures("little")
def test_one_interrupt_after_the_other(what: str) -> None:
    """The call is broken off, and then each look at the calibrator, a little later each time."""
    done = begun(3, "multi", False)
    before = done[0].to_json()
    CALLS[what](done)
    after = done[0].to_json()
    for cal, _ in interrupted_everywhere(lambda: begun(3, "multi", False), CALLS[what]):
        for at in range(20):  # as long as it puts things right, and a little longer
            with Interrupts(at), suppress(KeyboardInterrupt):
                cal.peek([0.2, 0.3, 0.5])
                cal.to_json()
        assert cal.to_json() in (before, after)


# ---- a stream for each key -----------------------------------------------------------------------------------------


def filled(K: int, names: tuple[Any, ...]) -> tuple[MultiBank, list[MultiForecast]]:
    bank = MultiBank(K)
    scores, labels = multi_streams.random(8, K)
    bank.run([names[0], names[1], names[0]], scores[:3], labels[:3])
    receipts = [bank.predict(names[0], score) for score in scores[3:6]]
    bank.update(names[0], receipts[1], 1)
    return bank, receipts


def content(bank: MultiBank) -> str:
    """What a file holds, but for the table, which may be larger than it must be."""
    assert len(bank) == len(list(bank))  # as every call it puts things right
    assert bank._store.index is not None
    check_index(bank._store.index)
    header, sections = header_of(bank), sections_of(bank)
    del sections["table"]
    return json.dumps(header) + repr({name: array.tobytes() for name, array in sections.items()})


def bank_calls(K: int, names: tuple[Any, ...]) -> dict[str, Callable[[Any], Any]]:
    first, new, newer = names[0], names[2], names[3]
    score = multi_streams.random(8, K)[0]
    other = MultiBank(K)
    other.run([new, newer], score[:2], [0, 1])
    other.predict(newer, score[2])
    return {
        "predict": lambda pair: pair[0].predict(first, score[6]),
        "predict a new key": lambda pair: pair[0].predict(new, score[6]),
        "latest": lambda pair: pair[0].update(first, pair[1][2], 1),
        "late": lambda pair: pair[0].update(first, pair[1][0], 1),
        "run": lambda pair: pair[0].run([new, first, newer], score[:3], [0, 1, 0]),
        "run late": lambda pair: pair[0].run([new, first, new], score[:3], [0, 1, 0], due=[2, 2, 5]),
        "merge": lambda pair: pair[0].merge(other),
        "fold": lambda pair: pair[0].fold([new, first], score[6:8], [None, None]),
        "forget": lambda pair: pair[0].__delitem__(first),
    }


@pytest.mark.parametrize("what", bank_calls(3, ("a", "b", "c", "d")))
@pytest.mark.parametrize(("K", "names"), [(3, ("a", "b", "c", "d")), (2, (1, 2, 3, 4))], ids=["strings", "ints"])
@pytest.mark.usefixtures("little")
def test_a_bank(K: int, names: tuple[Any, ...], what: str) -> None:
    act = bank_calls(K, names)[what]
    done = filled(K, names)
    before = content(done[0])
    act(done)
    after, seen = content(done[0]), set()
    for i, thing in enumerate(interrupted_everywhere(lambda: filled(K, names), act)):
        bank, receipts = thing
        state = content(bank)
        assert state in (before, after), i
        seen.add(state)
        if state == before or what in ("latest", "late"):
            act(thing)
        assert content(bank) == after, i
        if what in ("latest", "late"):
            with pytest.raises(OutcomeConflict):
                bank.update(names[0], receipts[2 if what == "latest" else 0], 0)
    assert seen == {before, after}


# ---- a long batch --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("late", [False, True])
def test_ctrl_c_is_heard_in_the_middle_of_a_long_batch(late: bool) -> None:
    n, K = 300_000, 3
    scores, labels = np.full((n, K), 1 / K), np.arange(n) % K
    cal, name = MultiCalibrator(K), "run_classes"
    real, pieces = getattr(loops, name), []

    def counted(*arguments: Any) -> Any:
        pieces.append(name)
        if len(pieces) == 2:
            signal.raise_signal(signal.SIGINT)
        return real(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loops, name, counted)
        with pytest.raises(KeyboardInterrupt):
            cal.run(scores, labels, due=np.arange(n) + 5 if late else None)
    assert len(pieces) == 2 and cal.events == cal.outcomes == 0
    cal.run(scores[:9], labels[:9])
    assert cal.events == 9


def test_single_events_and_batches_of_threads_are_counted_once() -> None:
    """A forecast and its count are one step for all other threads."""
    cal, scores = MultiCalibrator(3), np.random.default_rng(0).dirichlet([1.0, 1.0, 1.0], 200)
    before, errors = sys.getswitchinterval(), []

    def single() -> None:
        try:
            for score in scores:
                for _ in range(20):
                    cal.update(cal.predict(score), 1)
        except CalibeatError as error:
            errors.append(error)

    def batches() -> None:
        for _ in range(300):
            cal.run(scores[:30], np.ones(30, dtype=int))

    try:
        sys.setswitchinterval(1e-5)
        threads = [threading.Thread(target=work) for work in (single, single, single, batches)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert errors == []
    assert cal.events == cal.outcomes == 3 * 20 * 200 + 300 * 30


@pytest.mark.parametrize("K", [2, 3])
def test_threads_that_bring_the_same_label_learn_it_once(K: int) -> None:
    """Under a free-threaded Python too, where two sections of a stream, one inside the other, let others in between."""
    cal, score, workers, rounds = MultiCalibrator(K), [1.0 / K] * K, 4, 2000
    issued: list[Any] = []

    def work(own: int) -> int:
        learnt = 0
        for i in range(rounds):
            issued.append(cal.predict(score))
            for forecast in issued[-workers:]:
                learnt += cal.update(forecast, forecast.event % K) == "learnt"
            if (i + own) % 50 == 0:
                cal.peek(score)
        return learnt

    with ThreadPoolExecutor(workers) as pool:
        learnt = sum(pool.map(work, range(workers)))
    assert cal.events == workers * rounds
    assert len({forecast.event for forecast in issued}) == cal.events
    assert learnt == cal.outcomes == cal.events
