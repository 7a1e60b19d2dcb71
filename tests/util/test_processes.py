"""A process that is forked: its copies sign for themselves, and no lock of a thread that is gone holds them up."""

from __future__ import annotations

import faulthandler
import gc
import json
import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator
from math import nan
from typing import Any

import numpy as np
import pytest

from calibeat import Bank, Calibrator, Forecast, Monitor, MultiBank, MultiCalibrator, UnknownForecast
from calibeat._util import processes

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),  # threads are what this is about
]
SCORES, OUTCOMES = (
    np.array([0.2, 0.7, 0.4, 0.6, 0.9, 0.1, 0.5, 0.8]),
    np.array([0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0]),
)
KEYS = ["a", "b", "c", "a", "b", "c", "a", "b"]


def in_child(work: Callable[[], Any]) -> Any:
    """What the work gives, in a child process that is killed if it hangs."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        faulthandler.dump_traceback_later(50)
        signal.alarm(60)
        try:
            answer = json.dumps(work())
        except BaseException as error:  # noqa: BLE001 - the parent shall see it
            answer = json.dumps(f"{type(error).__name__}: {error}")
        os.write(writing, answer.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        answer = pipe.read()
    assert os.waitpid(child, 0)[1] == 0, "the child hung, or crashed"
    return json.loads(answer)


def refused(work: Callable[[], Any]) -> bool:
    try:
        work()
    except UnknownForecast:
        return True
    return False


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Only what is made in this test is told of a fork."""
    monkeypatch.setattr(processes, "_locks", set())
    monkeypatch.setattr(processes, "_hosts", set())
    yield
    gc.collect()


# ---- whose receipt it is -----------------------------------------------------------------------------------------


def calibrator(kind: str) -> Calibrator:
    cal = Calibrator("hops" if kind == "hops" else "auto", monitor=Monitor() if kind == "watched" else None)
    cal.run(SCORES, OUTCOMES)
    return Calibrator.from_json(cal.to_json()) if kind == "restored" else cal


@pytest.mark.parametrize("kind", ["alone", "watched", "hops", "restored"])
def test_a_calibrator_and_its_copy_in_a_child_refuse_each_other(kind: str) -> None:
    cal, asked, answered = calibrator(kind), os.pipe(), os.pipe()
    before, latest = cal.predict(0.3), cal.predict(0.4)
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        parents = Forecast.from_json(os.read(asked[0], 10_000))
        mine = cal.predict(0.9)
        told = [mine.event, refused(lambda: cal.update(parents, 1)), mine.to_json()]
        for forecast in (Forecast.from_json(before.to_json()), latest, mine):
            cal.update(forecast, 1)
        os.write(answered[1], json.dumps([*told, cal.outcomes]).encode())
        os._exit(0)
    mine = cal.predict(0.1)
    os.write(asked[1], mine.to_json().encode())
    event, was_refused, text, outcomes = json.loads(os.read(answered[0], 10_000))
    assert os.waitpid(child, 0)[1] == 0
    assert event == mine.event and was_refused and outcomes == 8 + 3
    with pytest.raises(UnknownForecast, match="a copy of it has made"):
        cal.update(Forecast.from_json(text), 1)
    for forecast in (before, latest, mine):
        cal.update(forecast, 0)
    assert cal.outcomes == 8 + 3
    for end in (*asked, *answered):
        os.close(end)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("stream", [None, "paris"])
@pytest.mark.parametrize("method", ["auto", "hops", "wps"])
def test_the_first_call_in_a_child_begins_a_new_generation(method: str, stream: str | None) -> None:
    cal, twin = Calibrator(method, stream=stream), Calibrator(method, stream=stream)
    first, nobody = cal.predict(0.3), {"issuer": "0" * 16}
    assert (twin.predict(0.3) == first) == (stream is not None)
    processes._in_child()
    second = cal.predict(0.4)
    assert second.event == 1 and second.issuer != first.issuer and second.issuer[:16] == first.issuer[:16]
    assert second.__replace__(**nobody) == twin.predict(0.4).__replace__(**nobody)
    cal.update(second, 1)
    cal.update(first, 0)
    assert cal.outcomes == 2 and cal.predict(0.5).issuer == second.issuer
    processes._in_child()
    assert cal.events == 3  # who only looks begins it too
    assert cal.predict(0.5).issuer not in (first.issuer, second.issuer)


@pytest.mark.usefixtures("alone")
def test_a_bank_in_a_child_takes_what_was_issued_before() -> None:
    bank, other = Bank("ops", stream="cities"), Bank("ops", stream="cities")
    for each in (bank, other):
        each.run(KEYS, SCORES, OUTCOMES)
    member = bank["c"]
    single = bank.predict("a", 0.3)
    folded = bank.fold(["b", "new"], [0.4, 0.5], [nan, nan]).receipts.tolist()
    processes._in_child()
    others = [other.predict("a", 0.3), other.predict("a", 0.3), other.predict("c", 0.3)]
    theirs = other.fold(["b", "b"], [0.4, 0.5], [nan, nan]).receipts.tolist()[1:]
    mine = bank.predict("a", 0.9), bank.predict("b", 0.9), member.predict(0.9)
    later = bank.fold(["b", "new"], [0.6, 0.6], [nan, nan]).receipts.tolist()
    assert mine[0].event == others[1].event and mine[0].issuer != others[1].issuer
    for key, forecast in (("a", others[1]), ("c", others[2])):
        with pytest.raises(UnknownForecast, match="a copy of it has made"):
            bank.update(key, forecast, 1)
    with pytest.raises(UnknownForecast, match="a copy of it has made"):
        bank.fold(["b"], [nan], [1], theirs)
    for key, forecast in (("a", single), ("a", mine[0]), ("b", mine[1]), ("c", mine[2])):
        bank.update(key, forecast, 1)
    bank.fold(["b", "new", "b", "new"], [nan] * 4, [1, 0, 1, 0], [*folded, *later])
    assert bank.table["outcomes"].tolist() == bank.table["events"].tolist() == [5, 6, 3, 2]


def test_a_bank_and_its_copy_in_a_child_refuse_each_other() -> None:
    bank = Bank("ops")
    before = bank.predict("a", 0.5)

    def work() -> list[str]:
        bank.update("a", before, 1)
        return [bank.predict("a", 0.9).to_json(), bank.fold(["b"], [0.9], [nan]).receipts.tolist()[0].hex()]

    text, folded = in_child(work)
    mine = bank.predict("a", 0.1), bank.fold(["b"], [0.1], [nan]).receipts.tolist()
    with pytest.raises(UnknownForecast, match="a copy of it has made"):
        bank.update("a", Forecast.from_json(text), 1)
    with pytest.raises(UnknownForecast, match=r"a copy of it has made, .* at row 0"):
        bank.fold(["b"], [nan], [1], [bytes.fromhex(folded)])
    bank.update("a", before, 0)
    bank.update("a", mine[0], 1)
    bank.fold(["b"], [nan], [1], mine[1])
    assert bank.table["outcomes"].tolist() == [2, 1]


def test_a_bank_that_is_shared_by_its_file_serves_in_a_child(tmp_path: Any) -> None:
    bank = Bank("ops")
    bank.run(KEYS, SCORES, OUTCOMES)
    bank.save(tmp_path / "a.bank")
    shared = Bank.load(tmp_path / "a.bank", mmap=True)
    expected = [shared.predict("a", 0.3).probability, shared.predict("new", 0.3).probability]
    assert in_child(lambda: [shared.predict("a", 0.3).probability, shared.predict("new", 0.3).probability]) == expected


# ---- what other threads were doing -------------------------------------------------------------------------------


@pytest.mark.usefixtures("alone")
def test_a_lock_is_free_in_a_child_unless_the_thread_that_forks_holds_it() -> None:
    lock, mine = processes.new_lock(), processes.new_lock()
    taken, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            taken.set()
            done.wait()

    def work() -> bool:
        free = lock.acquire(blocking=False)
        mine.release()
        return free

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait()
    with mine:
        assert in_child(work) is True
    assert not lock.acquire(blocking=False)
    done.set()
    thread.join()


@pytest.mark.usefixtures("alone")
def test_a_lock_of_a_thread_that_is_gone_is_made_anew() -> None:
    lock = processes.new_lock()
    thread = threading.Thread(target=lock.acquire)
    thread.start()
    thread.join()
    assert not lock.acquire(blocking=False)
    processes._in_child()
    assert lock.acquire(blocking=False)


@pytest.mark.usefixtures("alone")
def test_what_is_gone_is_forgotten() -> None:
    lock, cal, bank = processes.new_lock(), Calibrator("ops"), Bank("ops")
    assert len(processes._locks) >= 3 and len(processes._hosts) == 2
    processes._in_child()
    del lock, cal, bank
    gc.collect()
    assert not processes._locks and not processes._hosts


def test_a_fork_while_threads_are_at_work() -> None:
    """What hung in every child."""
    cal, bank = Calibrator("tops", monitor=Monitor()), Bank("tops", monitor=Monitor())
    single = Calibrator("ops")
    bank.update("d", bank.predict("d", 0.3), 1)
    stop = threading.Event()

    def run() -> None:
        while not stop.is_set():
            cal.run(SCORES, OUTCOMES)
            bank.run(KEYS, SCORES, OUTCOMES)

    def serve() -> None:
        while not stop.is_set():
            single.update(single.predict(0.3), 1)
            bank.update("d", bank.predict("d", 0.3), 1)

    def work() -> list[bool]:
        text = cal.to_json()
        whole = [Calibrator.from_json(text).to_json() == text, cal.events == cal.outcomes == cal.monitor.outcomes]  # type: ignore[union-attr]
        single.update(single.predict(0.4), 1)
        bank.update("a", bank.predict("a", 0.3), 1)
        bank.run(KEYS, SCORES, OUTCOMES)
        del bank["d"]
        table = bank.table
        read = sum(bank[key].monitor.outcomes for key in bank)  # type: ignore[union-attr]
        whole.append(bank.events == int(table["outcomes"].sum()) == read)
        return [*whole, Bank.__reduce__(bank) is not None]

    threads = [threading.Thread(target=work) for work in (run, serve)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(12):
            assert in_child(work) == [True] * 4
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("kind", ["bank", "groups", "classes", "classes of keys", "pooled"])
def test_a_fork_in_the_middle_of_a_large_batch(kind: str, watched: bool) -> None:
    """The child has all of the batch or nothing of it, and goes on from there."""
    n, monitor = 60_000, Monitor(warm=0) if watched else None
    keys, scores, outcomes = np.arange(n) % 11, np.tile(SCORES, n // 8), np.tile(OUTCOMES, n // 8)
    both = np.stack([scores / 2, scores / 2, 1 - scores], axis=1)
    host: Any
    given: tuple[Any, ...]
    if kind in ("bank", "pooled"):
        host = Bank("tops", threads=2, prior="pooled" if kind == "pooled" else None, monitor=monitor)
        given = keys, scores, outcomes
    elif kind == "classes of keys":
        host, given = MultiBank(3, threads=2, monitor=monitor), (keys, both, outcomes.astype(int))
    elif kind == "classes":
        host, given = MultiCalibrator(3, monitor=monitor), (both, outcomes.astype(int))
    else:
        host, given = Calibrator(groups=["a"], monitor=monitor), (scores, outcomes)
    named = {"groups": {"a": keys}} if kind == "groups" else {}
    one = tuple(column[:8] for column in given)
    one_named = {"groups": {"a": keys[:8]}} if kind == "groups" else {}
    stop, done = threading.Event(), list[int]()

    def run() -> None:
        while not stop.is_set():
            host.run(*given, **named)
            done.append(n)

    def work() -> list[Any]:
        events = host.events
        learnt = int(host.table["outcomes"].sum()) if hasattr(host, "table") else host.outcomes
        host.run(*one, **one_named)
        read = events + 8
        if watched:
            monitors = [host[key].monitor for key in host] if hasattr(host, "table") else [host.monitor]
            read = sum(each.outcomes for each in monitors)
        pickle.loads(pickle.dumps(host))  # noqa: S301 - our own bytes
        return [events % n, learnt - events, read - events, host.events - events]

    thread = threading.Thread(target=run)
    thread.start()
    rng = np.random.default_rng(0)
    try:
        for _ in range(10):
            time.sleep(rng.random() * 0.02)
            assert in_child(work) == [0, 0, 8, 8]
    finally:
        stop.set()
        thread.join()
    assert host.events == sum(done) > 0


def _pooled(key: str) -> tuple[list[float], list[float], int]:
    """In a worker: what it inherited goes on from where it was."""
    forecasts = CAL.run(SCORES, OUTCOMES).tolist()
    CAL.update(CAL.predict(0.3), 1)
    return forecasts, BANK.run([key] * 8, SCORES, OUTCOMES).tolist(), os.getpid()


CAL, BANK = Calibrator("auto"), Bank("auto")


def test_workers_that_inherit_what_was_loaded_before() -> None:
    """As servers that load the application first, and pools of processes do."""
    CAL.run(SCORES, OUTCOMES)
    BANK.run(KEYS, SCORES, OUTCOMES)
    twin, others = (
        Calibrator.from_json(CAL.to_json()),
        {key: Calibrator.from_json(BANK[key].to_json()) for key in "abc"},
    )
    expected, rows = (
        twin.run(SCORES, OUTCOMES).tolist(),
        {key: cal.run(SCORES, OUTCOMES) for key, cal in others.items()},
    )
    context = multiprocessing.get_context("fork")
    with context.Pool(3, maxtasksperchild=1) as pool:
        for key, (forecasts, of_key, _) in zip("abc", pool.map(_pooled, "abc", chunksize=1), strict=True):
            assert forecasts == expected and of_key == rows[key].tolist()
    assert CAL.events == 8 and BANK.events == 8
