"""Any number of threads may use a bank; batches in threads are all or nothing, and no error is lost."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from math import nan
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest
from banks import content, events
from conformance import same

import calibeat.hosts.bank
import calibeat.hosts.threads
from calibeat import HOPS, TOPS, Bank, CalibeatError
from calibeat.hosts.threads import Barrier, run_in_threads, slot_ranges, thread_count

# ---- the contract --------------------------------------------------------------------------------------------------


def in_threads(*works: Callable[[], None]) -> None:
    """Run all at once; whatever one of them raises is raised here."""
    errors: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    if errors:
        raise errors[0]


@pytest.mark.parametrize("strings", [False, True])
def test_a_bank_that_serves_is_saved_whole(strings: bool, tmp_path: Path) -> None:
    """What was a torn file in 9 of 30 saves."""
    bank = Bank(TOPS)
    stop = threading.Event()

    def serve(first: int) -> None:
        for i in range(first, 10**9, 3):
            if stop.is_set():
                return
            key: Any = f"key {i}" if strings else i
            bank.update(key, bank.predict(key, 0.3), 1)
            if i % 40 == first:
                many = [f"m {i} {j}" if strings else -3 * i - j for j in range(100)]
                bank.run(many, np.full(100, 0.4), np.ones(100))
                del bank[many[5]]

    def save() -> None:
        try:
            for i in range(10):
                bank.save(tmp_path / f"{i}.bank")
                assert len(Bank.load(tmp_path / f"{i}.bank")) <= len(bank) + 100
        finally:
            stop.set()

    in_threads(lambda: serve(0), lambda: serve(1), save)
    assert list(tmp_path.glob(".*")) == []


def test_nothing_is_lost_between_threads() -> None:
    keys, scores, outcomes = events(600, 40)
    bank = Bank(HOPS)
    receipts = [(int(key), bank.predict(int(key), 0.5)) for key in keys[:100]]
    member = bank[int(keys[0])]
    works = [
        lambda: bank.run(keys, scores, outcomes),
        lambda: [bank.update(key, receipt, 1) for key, receipt in receipts],
        lambda: [bank.predict(1000 + i, 0.5) for i in range(100)],
        lambda: [member.update(member.predict(0.4), 1) for _ in range(100)],
        lambda: [bank.fold([1, 2], [0.3, 0.4], [nan, nan]) for _ in range(50)],
        lambda: [(bank.table, bank.params, bank.predict_many([1, 2], [0.1, 0.2]), list(bank)) for _ in range(30)],
        lambda: [bank.run(keys[:50], scores[:50], outcomes[:50]) for _ in range(5)],
    ]
    in_threads(*works)
    assert bank.events == 100 + 600 + 100 + 100 + 100 + 250
    assert bank.table["outcomes"].sum() == 600 + 100 + 100 + 250
    assert bank._clock == bank.events


def test_two_banks_can_take_from_each_other_at_once() -> None:
    east, west = Bank(TOPS), Bank(TOPS)
    east.run([1], [0.5], [1])
    west.run([2], [0.5], [1])
    with pytest.raises(calibeat.InvalidInput, match="no key in common"):
        in_threads(lambda: east.merge(west), lambda: west.merge(east))
    assert sorted(map(len, (east, west))) == [1, 2]


# ---- threads of one batch ------------------------------------------------------------------------------------------


def test_all_parts_are_served_once() -> None:
    for workers in (1, 2, 5):
        served: list[tuple[int, int]] = []
        parts = [(i, i + 1) for i in range(workers)]
        assert run_in_threads(served.append, parts, Barrier())
        assert sorted(served) == parts


def test_an_error_of_a_thread_is_raised_here() -> None:
    def serve(part: tuple[int, int]) -> None:
        if part[0] == 1:
            raise MemoryError("no room")

    barrier = Barrier()
    with pytest.raises(MemoryError, match="no room"):
        run_in_threads(serve, [(0, 1), (1, 2), (2, 3)], barrier)
    assert sorted(barrier.served) == [(0, 1), (2, 3)] and len(barrier.failures) == 1


def test_threads_of_another_process_are_not_waited_for() -> None:
    """As in a process that was forked while they were at work."""
    barrier = Barrier()
    barrier.threads.append(threading.Thread())
    barrier.decide(is_open=True)
    assert not barrier.is_lost
    barrier._process = -1
    barrier.finish()
    assert barrier.is_lost and "the process was forked" in str(barrier.failures[0])


class Reluctant(threading.Thread):
    """A thread that the system gives only so often; or whose start is interrupted."""

    given, interrupt = 10**9, ""

    def start(self) -> None:
        cls = type(self)
        cls.given -= 1
        if cls.given < 0:
            raise RuntimeError("can't start new thread")
        if cls.interrupt == "before start":
            cls.interrupt = ""
            raise KeyboardInterrupt
        super().start()
        if cls.interrupt == "after start":
            cls.interrupt = ""
            raise KeyboardInterrupt


class Interrupting(SimpleQueue[bool]):
    """A wait that Ctrl-C breaks off, and then other signals, whose handlers raise what they like."""

    left: list[type[BaseException]]

    def get(self, block: bool = True, timeout: float | None = None) -> bool:
        if self.left:
            raise self.left.pop(0)
        return super().get(block, timeout)


@pytest.fixture
def reluctant(monkeypatch: pytest.MonkeyPatch) -> type[Reluctant]:
    kind = type("Fresh", (Reluctant,), {})
    monkeypatch.setattr(calibeat.hosts.threads, "Thread", kind)
    monkeypatch.setattr(calibeat.hosts.bank, "_WORTH_A_THREAD", 10)
    return kind


@pytest.mark.parametrize("given", [0, 1, 2])
def test_a_system_without_threads_to_give(given: int, reluctant: type[Reluctant]) -> None:
    keys, scores, outcomes = events(200, 9)
    bank, other = Bank(TOPS, threads=4), Bank(TOPS, threads=1)
    expected = other.run(keys, scores, outcomes)
    reluctant.given = given
    same(bank.run(keys, scores, outcomes), expected)
    assert content(bank) == content(other)


@pytest.mark.parametrize(("when", "taken"), [("before start", False), ("after start", False), ("waiting", True)])
@pytest.mark.parametrize("prior", [None, "pooled"])
def test_an_interrupted_batch_is_taken_whole_or_not_at_all(
    when: str, taken: bool, prior: str | None, reluctant: type[Reluctant], monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, scores, outcomes = events(200, 9)
    bank, other = Bank(TOPS, threads=4, prior=prior), Bank(TOPS, threads=1, prior=prior)
    for each in (bank, other):
        each.run(keys[:20], scores[:20], outcomes[:20])
    if taken:
        other.run(keys, scores, outcomes)
    reluctant.interrupt = when
    if when == "waiting":
        interrupts = {"left": [KeyboardInterrupt]}
        monkeypatch.setattr(calibeat.hosts.threads, "SimpleQueue", type("Fresh", (Interrupting,), interrupts))
    with pytest.raises(KeyboardInterrupt):
        bank.run(keys, scores, outcomes, threads=4)
    assert content(bank) == content(other)


def test_a_batch_that_is_still_served_when_its_caller_is_gone(
    reluctant: type[Reluctant], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C is raised at once; the next call waits for the threads, which own what they read."""
    del reluctant
    keys, scores, outcomes = events(200, 9)
    bank, other, go = Bank(TOPS, threads=2), Bank(TOPS, threads=1), threading.Event()
    for each in (bank, other):
        each.run(keys[:20], scores[:20], outcomes[:20])
    other.run(keys, scores, outcomes)

    def slow(serve: Any, parts: Any, barrier: Any) -> bool:
        def wait(part: tuple[int, int]) -> None:
            go.wait()
            serve(part)

        return run_in_threads(wait, parts, barrier)

    with monkeypatch.context() as patch:
        patch.setattr(calibeat.hosts.bank, "run_in_threads", slow)
        interrupts = {"left": [KeyboardInterrupt]}
        patch.setattr(calibeat.hosts.threads, "SimpleQueue", type("Fresh", (Interrupting,), interrupts))
        with pytest.raises(KeyboardInterrupt):
            bank.run(keys, scores, outcomes)
    assert bank._undo is not None
    scores[:], outcomes[:] = 0.5, 0.0
    go.set()
    assert bank.events == other.events
    assert content(bank) == content(other)


@pytest.mark.parametrize("failing", ["all", "one"])
def test_a_batch_whose_threads_fail(failing: str, reluctant: type[Reluctant], monkeypatch: pytest.MonkeyPatch) -> None:
    del reluctant
    keys, scores, outcomes = events(200, 9)
    bank = Bank(TOPS, threads=3)
    bank.run(keys, scores, outcomes, threads=1)
    before = content(bank)

    def broken(serve: Any, parts: Any, barrier: Any) -> bool:
        def fail(part: tuple[int, int]) -> None:
            if failing == "all" or part[0] == 0:
                raise MemoryError("no room")
            serve(part)

        return run_in_threads(fail, parts, barrier)

    with monkeypatch.context() as patch:
        patch.setattr(calibeat.hosts.bank, "run_in_threads", broken)
        with pytest.raises(MemoryError):
            bank.run(keys, scores, outcomes)
    if failing == "all":
        assert content(bank) == before
        bank.predict(1, 0.5)
    else:  # some events were taken and some were not: nobody may go on as if nothing had happened
        for action in (lambda: bank.predict(1, 0.5), lambda: bank.run([1], [0.5], [1]), lambda: bank.save("nowhere")):
            with pytest.raises(CalibeatError, match=r"loaded anew .* got MemoryError: no room"):
                action()


CTRL_C = """
import os, signal, sys, numpy as np
from calibeat import Bank
from calibeat.core.stats import EVENTS
rng = np.random.default_rng(int(sys.argv[1]))
n = 60_000
keys, scores = rng.integers(0, 500, n), rng.random(n)
outcomes = rng.random(n) < scores
error, signals = {"ctrl-c": (KeyboardInterrupt, 1), "exit": (SystemExit, 4), "error": (ValueError, 4)}[sys.argv[2]]
left = [0]
def stop(_, frame):
    while left[0] and frame is not None:  # inside the bank: this script is not prepared for it
        if "/calibeat/hosts/" in frame.f_code.co_filename:
            left[0] -= 1
            raise error
        frame = frame.f_back
signal.signal(signal.SIGALRM, stop)
bank = Bank("tops", threads=2)
bank.run(keys, scores, outcomes)
taken, interrupted = 1, 0
for i in range(60):
    before = bank._clock
    delay, left[0] = rng.random() * 0.012, signals
    try:
        signal.setitimer(signal.ITIMER_REAL, delay, delay / 5)
        bank.run(keys, scores, outcomes)
    except error:
        interrupted += 1
    while True:  # the signals may go on
        try:
            bank.events
            break
        except error:
            pass
    signal.setitimer(signal.ITIMER_REAL, 0)
    left[0] = 0  # one may be under way still
    assert bank._clock in (before, before + n), bank._clock
    assert bank.events == bank._clock == bank.table["outcomes"].sum(), (bank.events, bank._clock)
print(interrupted)
"""


@pytest.mark.parametrize("what", ["ctrl-c", "exit", "error"])
def test_real_signals_tear_no_batch(what: str) -> None:
    """What tore one in five, and with several signals that end the process two in five."""
    done = subprocess.run([sys.executable, "-c", CTRL_C, "1", what], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0


HEARD = """
import signal, sys, threading, time, numpy as np
from calibeat import Bank
rng = np.random.default_rng(0)
n = 1_000_000
keys, scores = rng.integers(0, 2000, n), rng.random(n)
outcomes = (rng.random(n) < scores).astype(float)
other = Bank("auto", threads=2)
began = time.perf_counter()
other.run(keys, scores, outcomes)
took = time.perf_counter() - began
signal.signal(signal.SIGALRM, signal.default_int_handler)
for tries in range(10):  # a batch may be done before the signal
    bank = Bank("auto", threads=2)
    try:
        signal.setitimer(signal.ITIMER_REAL, took / (4 + tries))
        bank.run(keys, scores, outcomes)
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        served = threading.active_count() > 1
        if served and len(bank):  # `len` waits for the threads; none of the keys is there if they had not begun
            break
else:
    sys.exit("no Ctrl-C was raised while a batch was served")
assert bank.rows(sorted(bank)).tobytes() == other.rows(sorted(other)).tobytes()
"""


def test_ctrl_c_is_heard_in_the_middle_of_a_large_batch() -> None:
    done = subprocess.run([sys.executable, "-c", HEARD], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# ---- how many ------------------------------------------------------------------------------------------------------


def test_as_many_threads_as_the_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3}, raising=False)
    assert thread_count(None) == 1 and Bank(TOPS)._threads == 1
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    assert thread_count(None) == 7


def test_parts_cover_all_slots() -> None:
    slots = np.repeat(np.arange(100, dtype=np.int32), 3)
    for workers in (1, 2, 3, 7):
        parts = slot_ranges(slots, 100, workers)
        assert [slot for first, last in parts for slot in range(first, last)] == list(range(100))


def test_a_writer_waits_for_a_reader(tmp_path: Path) -> None:
    """A save holds the bank while it writes, not while it waits for the disk."""
    bank = Bank(TOPS)
    bank.run([1], [0.5], [1])
    with bank._lock:
        saver = threading.Thread(target=lambda: bank.save(tmp_path / "b"))
        saver.start()
        time.sleep(0.05)
        assert not (tmp_path / "b").exists()
    saver.join()
    assert len(Bank.load(tmp_path / "b")) == 1
