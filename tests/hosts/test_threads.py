"""Any number of threads may use a bank; batches in threads are all or nothing, and no error is lost."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from banks import content, events
from conformance import same

import calibeat._compiled
import calibeat.hosts.keyed_rows
from calibeat import AUTO, FTL, HOPS, TOPS, Bank, Beta, CalibeatError, Calibrator, Method, Monitor, MultiCalibrator
from calibeat.hosts.bank import thread_count
from calibeat.monitor.monitors import Monitors

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
    assert bank._rows.clock == bank.events


def test_two_banks_can_take_from_each_other_at_once() -> None:
    east, west = Bank(TOPS), Bank(TOPS)
    east.run([1], [0.5], [1])
    west.run([2], [0.5], [1])
    with pytest.raises(calibeat.InvalidInput, match="no key in common"):
        in_threads(lambda: east.merge(west), lambda: west.merge(east))
    assert sorted(map(len, (east, west))) == [1, 2]


# ---- one host, many threads ----------------------------------------------------------------------------------------

SCORES, OUTCOMES = [0.2, 0.7, 0.4, 0.6, 0.9, 0.1, 0.5, 0.8], [0, 1, 1, 0, 1, 0, 0, 1]
WINDOWED = Method(Beta(), FTL(every=2, after=4, window=4))


def shared(name: str, *, watched: bool) -> tuple[Any, Any, dict[str, Any]]:
    """A host of one stream, a score, and the groups of an event."""
    monitor: dict[str, Any] = {"monitor": Monitor()} if watched else {}
    if name == "groups":
        return Calibrator(groups=["a"], **monitor), 0.4, {"groups": ("x",)}
    if name in ("3", "2"):
        return MultiCalibrator(int(name), **monitor), [1.0 / int(name)] * int(name), {}
    return Calibrator(WINDOWED if name == "windowed" else name, **monitor), 0.4, {}


@pytest.mark.parametrize("kind", ["as it is", "restored", "forked", "watched"])
@pytest.mark.parametrize("name", ["ops", "auto", "hops", "windowed", "groups", "3", "2"])
def test_threads_may_share_a_calibrator(name: str, kind: str) -> None:
    """Each event has one number, each outcome is learnt once whoever brings it, and a snapshot is of one moment."""
    cal, score, groups = shared(name, watched=kind == "watched")
    if kind == "restored":
        cal = type(cal).from_json(cal.to_json())
    elif kind == "forked":
        cal._rows._forked()
    workers, each, batches = 4, 120, 15
    issued, snapshots, learnt = list[Any](), list[str](), list[str]()

    def serve(worker: int) -> None:
        for i in range(each):
            issued.append(cal.predict(score, **groups))
            if i % 2:
                learnt.extend(cal.update(forecast, forecast.event % 2) for forecast in issued[-workers:])
            if (i + worker) % 30 == 0:
                cal.peek(score, **groups)
        for forecast in issued[:]:
            travelled = type(forecast).from_json(forecast.to_json())
            learnt.append(cal.update(travelled, forecast.event % 2))

    def batch() -> None:
        many = {"groups": {"a": ["x"] * 8}} if groups else {}
        for _ in range(batches):
            snapshots.append(cal.to_json())
            cal.run([score] * 8, OUTCOMES, **many)
            assert np.isfinite(cal.row).all() and cal.outcomes <= cal.events

    in_threads(batch, *(partial(serve, worker) for worker in range(workers)))
    assert len({forecast.event for forecast in issued}) == len(issued) == workers * each
    assert cal.events == cal.outcomes == workers * each + batches * 8
    assert learnt.count("learnt") == workers * each
    if kind == "watched":
        assert cal.monitor.outcomes == cal.outcomes
    for text in snapshots:
        assert type(cal).from_json(text).to_json() == text


def test_single_events_and_saves_wait_while_others_are_at_work(tmp_path: Path) -> None:
    for cal in (Calibrator(AUTO), Bank(AUTO)):
        key: Any = ("a",) if isinstance(cal, Bank) else ()
        forecast, done = cal.predict(*key, 0.3), list[int]()

        def work(cal: Any = cal, key: Any = key, forecast: Any = forecast, done: list[int] = done) -> None:
            if key:
                cal.save(tmp_path / "bank")
            done.append(cal.predict(*key, 0.3).event)
            cal.update(*key, forecast, 1)
            done.append(cal.events)

        thread = threading.Thread(target=work)
        with cal._rows as rows:
            thread.start()
            thread.join(0.1)
            assert thread.is_alive() and not done and list(tmp_path.iterdir()) == []
            assert rows.events_of(0) == 1 and rows.row(0)[1] == 0.0
        thread.join()
        assert done == [1, 2]


# ---- threads of one batch ------------------------------------------------------------------------------------------


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few events are worth a thread."""
    monkeypatch.setattr(calibeat.hosts.keyed_rows, "_WORTH_A_THREAD", 10)


@pytest.mark.parametrize("given", [0, 1, 2])
@pytest.mark.usefixtures("eager")
def test_a_system_without_threads_to_give(given: int, monkeypatch: pytest.MonkeyPatch) -> None:
    keys, scores, outcomes = events(200, 9)
    bank, other = Bank(TOPS, threads=4), Bank(TOPS, threads=1)
    expected = other.run(keys, scores, outcomes)
    start, left = calibeat._compiled.start_new_thread, [given]

    def reluctant(*arguments: Any) -> int:
        left[0] -= 1
        if left[0] < 0:
            raise RuntimeError("can't start new thread")
        return start(*arguments)

    monkeypatch.setattr(calibeat._compiled, "start_new_thread", reluctant)
    same(bank.run(keys, scores, outcomes), expected)
    assert left[0] < 0 and content(bank) == content(other)


@pytest.mark.usefixtures("eager")
def test_a_batch_that_fails_in_its_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some events were taken and some were not: nobody may go on as if nothing had happened."""
    keys, scores, outcomes = events(200, 9)
    bank = Bank(TOPS, threads=3, monitor=Monitor())
    bank.run(keys, scores, outcomes, threads=1)
    member, receipt = bank[int(keys[0])], bank.predict(int(keys[0]), 0.3)

    def full(*_: Any, **__: Any) -> None:
        raise MemoryError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(Monitors, "run", full)
        with pytest.raises(MemoryError, match="no room"):
            bank.run(keys, scores, outcomes)
    calls: list[Callable[[], Any]] = [
        lambda: bank.predict(1, 0.5),
        lambda: bank.predict("new", 0.5),
        lambda: bank.update(int(keys[0]), receipt, 1),
        lambda: bank.run([1], [0.5], [1]),
        lambda: bank.fold([1], [0.5], [nan]),
        lambda: bank.predict_many([1], [0.5]),
        lambda: bank.table,
        lambda: bank.save("nowhere"),
        lambda: member.predict(0.3),
        lambda: member.row,
        lambda: len(bank),
        lambda: pickle.dumps(bank),
    ]
    for call in calls:
        with pytest.raises(CalibeatError, match=r"loaded anew .* got MemoryError: no room"):
            call()


@pytest.mark.usefixtures("eager")
def test_a_batch_that_fails_before_it_begins_has_not_happened(monkeypatch: pytest.MonkeyPatch) -> None:
    keys, scores, outcomes = events(200, 9)
    bank = Bank(TOPS, threads=3, monitor=Monitor())
    bank.run(keys, scores, outcomes)
    before = content(bank)

    def full(*_: Any) -> None:
        raise MemoryError("no room")

    for place in ("rows.with_room", "keyed_rows.Arrivals", "keyed_rows.slot_ranges"):
        with monkeypatch.context() as patch:
            patch.setattr(f"calibeat.hosts.{place}", full)
            with pytest.raises(MemoryError, match="no room"):
                bank.run([*keys, 77], [*scores, 0.5], [*outcomes, 1], due=np.arange(201) + 2)
        assert content(bank) == before
    bank.predict(1, 0.5)


@pytest.mark.usefixtures("eager")
def test_a_signal_is_heard_when_the_threads_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """They work while Ctrl-C is under way; it is raised when all has happened."""
    keys, scores, outcomes = events(200, 9)
    bank, other = (Bank(TOPS, threads=2, monitor=Monitor()) for _ in range(2))
    for each in (bank, other):
        each.predict(1, 0.3)  # its monitor waits, and so reads its events one by one
    other.run(keys, scores, outcomes)
    run, main = Monitors.run, threading.main_thread().ident

    def interrupting(*arguments: Any, **named: Any) -> None:
        signal.pthread_kill(main, signal.SIGINT)
        time.sleep(0.05)
        run(*arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(Monitors, "run", interrupting)
        with pytest.raises(KeyboardInterrupt):
            bank.run(keys, scores, outcomes)
    assert content(bank) == content(other)


@pytest.mark.parametrize("call", ["forecast", "new key", "run", "deletion"])
@pytest.mark.usefixtures("eager")
def test_a_handler_that_calls_the_bank_in_the_middle_of_a_batch(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its call is refused, or has happened before the batch or behind it."""
    keys, scores, outcomes = events(200, 9)
    calls: dict[str, Callable[[Bank], Any]] = {
        "forecast": lambda bank: bank.predict(2, 0.5),
        "new key": lambda bank: [bank.predict(1000 + i, 0.5) for i in range(2000)],
        "run": lambda bank: bank.run(np.arange(3000), np.full(3000, 0.5), np.ones(3000)),
        "deletion": lambda bank: bank.__delitem__(1),
    }
    bank, refused, before, behind = (Bank(TOPS, threads=2, monitor=Monitor()) for _ in range(4))
    for each in (bank, refused, before, behind):
        each.predict(1, 0.3)  # its monitor waits, and so reads its events one by one
    calls[call](before)
    for each in (refused, before, behind):
        each.run(keys, scores, outcomes)
    calls[call](behind)
    run, main, errors = Monitors.run, threading.main_thread().ident, list[BaseException | None]()

    def handler(*_: object) -> None:
        if errors:  # both threads may have sent a signal
            return
        try:
            calls[call](bank)
            errors.append(None)
        except (CalibeatError, RuntimeError) as error:
            errors.append(error)

    def interrupting(*arguments: Any, **named: Any) -> None:
        if not errors:
            signal.pthread_kill(main, signal.SIGALRM)
            time.sleep(0.05)
        run(*arguments, **named)

    previous = signal.signal(signal.SIGALRM, handler)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(Monitors, "run", interrupting)
            bank.run(keys, scores, outcomes)
    finally:
        signal.signal(signal.SIGALRM, previous)
    wanted = [content(refused)] if errors[0] is not None else [content(before), content(behind)]
    assert content(bank) in wanted


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
    before = bank._rows.clock
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
    assert bank._rows.clock in (before, before + n), bank._rows.clock
    assert bank.events == bank._rows.clock == bank.table["outcomes"].sum(), (bank.events, bank._rows.clock)
print(interrupted)
"""


@pytest.mark.parametrize("what", ["ctrl-c", "exit", "error"])
def test_real_signals_tear_no_batch(what: str) -> None:
    """What tore one in five, and with several signals that end the process two in five."""
    done = subprocess.run([sys.executable, "-c", CTRL_C, "1", what], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0


# ---- how many ------------------------------------------------------------------------------------------------------


def test_as_many_threads_as_the_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3}, raising=False)
    assert thread_count(None) == 1 and Bank(TOPS)._threads == 1
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    assert thread_count(None) == 7
