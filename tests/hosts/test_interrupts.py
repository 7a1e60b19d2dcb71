"""A call takes effect whole or not at all, on every host: Ctrl-C is raised at every moment of every verb, in turn."""

from __future__ import annotations

import gc
import pickle
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import count
from math import nan
from time import perf_counter, process_time
from typing import Any, NamedTuple

import group_streams
import numpy as np
import pytest
from banks import content
from interrupts import Interrupts, interrupted_everywhere

import calibeat.hosts.keyed_rows
from calibeat import (
    AUTO,
    FTL,
    HOPS,
    OPS,
    TOPS,
    WHB,
    Bank,
    Beta,
    Calibrator,
    Fixed,
    Groups,
    Method,
    Monitor,
    MultiBank,
    MultiCalibrator,
    Notice,
    Number,
    OutcomeConflict,
)
from calibeat.core import loops
from calibeat.hosts.keys import check_index
from calibeat.hosts.receipts import Receipts
from calibeat.monitor.monitors import Monitors
from calibeat.monitor.notices import Notices

SCORES, OUTCOMES = [0.2, 0.7, 0.4, 0.6, 0.9, 0.1, 0.5, 0.8], [0, 1, 1, 0, 1, 0, 0, 1]
_, _, ATTRIBUTES = group_streams.world(20, 2, 12, seed=4)
METHODS = {
    "ops": OPS,
    "tops": TOPS,
    "hops": HOPS,
    "auto": AUTO,
    "windowed": Method(Beta(), FTL(every=2, after=4, window=4)),
    "fixed": replace(WHB, learner=Fixed(after=9)),
    "histogram": replace(WHB, learner=FTL(every=2, after=4, window=4)),
}
REFITS = [name for name, method in METHODS.items() if method.needs_history]
GROUPED = {
    "groups": Groups(["country", "device"], cells=16, seed=11),
    "numbers": Groups(["country", Number("device", first=14)], cells=16, seed=11),  # fixed by the next event
}


class Custom(Exception):
    """What the handler of a signal may raise."""


ERRORS = [KeyboardInterrupt, SystemExit, Custom]


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is always the same time."""
    monkeypatch.setattr(Notice, "_now", lambda _: 1.7e9)


class Begun(NamedTuple):
    """A host on its way, its receipts that wait (the second was learnt), and how it takes an event."""

    host: Any
    receipts: list[Any]
    kind: str
    key: Any = None  # of the receipts, in a bank
    new: Any = None  # of no event yet

    def score(self, i: int) -> Any:
        return (
            [1.0 - SCORES[i], SCORES[i]]
            if self.kind == "pair"
            else ([0.5 * SCORES[i], 0.5, 0.5 - 0.5 * SCORES[i]] if self.kind == "classes" else SCORES[i])
        )

    def groups(self, i: Any) -> dict[str, Any]:
        if self.kind not in GROUPED:
            return {}
        return {"groups": tuple(ATTRIBUTES[i].tolist()) if isinstance(i, int) else ATTRIBUTES[i]}


def watchers(kind: str, *, of_a_bank: bool = False) -> dict[str, Any]:
    """Monitors that hold outcomes back and give up on others, and a notice that knows the time."""
    if kind not in ("watched", "noticed"):
        return {}
    monitor: Any = Monitor(arl=100, warm=0, patience=4)
    if kind == "watched" and not of_a_bank:
        monitor = {"ours": monitor, "raw": Monitor(arl=100, warm=0, patience=4)}
    return {"monitor": monitor, **({"notice": Notice(warm=64)} if kind == "noticed" else {})}


def aged(host: Any, receipts: list[Any], age: str) -> tuple[Any, list[Any]]:
    """The host as it is, after a restart, in a forked process; or with receipts that have travelled."""
    if age == "forked":
        host._rows._forked()
    elif age == "restored":
        host = pickle.loads(pickle.dumps(host))  # noqa: S301 - our own bytes
    elif age == "travelled":
        receipts = [type(receipt).from_bytes(receipt.to_bytes(), *labels(host)) for receipt in receipts]
    return host, receipts


def labels(host: Any) -> list[Any]:
    return [host.classes] if isinstance(host, (MultiBank, MultiCalibrator)) else []


def calibrator(kind: str, age: str = "as it is", method: str = "ops") -> Begun:
    if kind in ("classes", "pair"):
        host: Any = MultiCalibrator(3 if kind == "classes" else 2)
    else:
        groups = GROUPED.get(kind)
        host = Calibrator("auto" if groups else METHODS[method], seed=3, groups=groups, **watchers(kind))
    begun = Begun(host, [], kind)
    host.run([begun.score(i) for i in range(8)], OUTCOMES, **begun.groups(slice(8)))
    receipts = [host.predict(begun.score(i), **begun.groups(i)) for i in range(5)]
    host.update(receipts[1], 1)
    return Begun(*aged(host, receipts, age), kind)


def bank(kind: str, age: str = "as it is", strings: bool = True, method: str = "tops") -> Begun:
    names: tuple[Any, ...] = ("a", "b", "c", "new") if strings else (1, 2, 3, 9)
    if kind in ("classes", "pair"):
        host: Any = MultiBank(3 if kind == "classes" else 2)
    else:
        prior = "pooled" if kind == "pooled" else None
        host = Bank(METHODS[method], seed=3, prior=prior, threads=2, **watchers(kind, of_a_bank=True))
    begun = Begun(host, [], kind, names[0], names[3])
    host.run([*names[:3], *names[:2]], [begun.score(i) for i in range(5)], OUTCOMES[:5])
    receipts = [host.predict(names[0], begun.score(i)) for i in range(4)]
    host.update(names[0], receipts[1], 1)
    host.predict(names[1], begun.score(6))
    return Begun(*aged(host, receipts, age), kind, names[0], names[3])


def state(begun: Begun) -> Any:
    """All that is known of a host; what it holds together."""
    host = begun.host
    if isinstance(host, Calibrator):
        return host.to_json()
    found = content(host, receipts=True)
    if host._rows.index is not None:
        check_index(host._rows.index)
    return found


Act = Callable[[Begun], Any]


def whole_or_not_at_all(
    make: Callable[[], Begun],
    act: Act,
    error: type[BaseException] = KeyboardInterrupt,
    *,
    may_repeat: bool = False,
    ends_compiled: bool = False,
) -> None:
    """Whatever the moment, the host is as before or as after; and who was interrupted does it again."""
    done = make()
    before = state(done)
    act(done)
    after, seen = state(done), set()
    assert before != after
    for begun in interrupted_everywhere(make, act, error):
        now = state(begun)
        assert now in (before, after)
        if now not in seen and isinstance(begun.host, Calibrator):
            assert type(begun.host).from_json(now).to_json() == now
        seen.add(now)
        if now == before or may_repeat:
            act(begun)
        assert state(begun) == after
        if may_repeat:
            with pytest.raises(OutcomeConflict):
                contradict(begun)
    assert seen == {before, after} or (ends_compiled and seen == {before})  # then no moment is behind it


def learn(at: int, y: int = 1, **how: Any) -> Act:
    def act(begun: Begun) -> Any:
        key = () if begun.key is None else (begun.key,)
        return begun.host.update(*key, begun.receipts[at], y, **how)

    act.__name__ = f"outcome {at}"
    return act


def contradict(begun: Begun) -> None:
    """No receipt of those that were learnt may have another outcome."""
    key = () if begun.key is None else (begun.key,)
    begun.host.update(*key, begun.receipts[1], 0)


def again_and_again(make: Callable[[], Begun], act: Act) -> None:
    """The call is broken off, and then each look at the host, a little later each time."""
    done = make()
    before = state(done)
    act(done)
    after, step = state(done), 5
    for i, begun in enumerate(interrupted_everywhere(make, act)):
        for at in range(i % step, 200, step) if i % step == 0 else ():
            with Interrupts(at) as interrupts, suppress(KeyboardInterrupt):
                begun.host.events  # noqa: B018
            if not interrupts.fired:
                break
        assert i % step or state(begun) in (before, after)


# ---- one stream ------------------------------------------------------------------------------------------------------

KINDS = ["plain", *GROUPED, "classes", "pair", "watched", "noticed"]
AGES = ["as it is", "restored", "forked", "travelled"]
AGED = [
    ("auto", "travelled"),
    ("hops", "forked"),
    *((name, "as it is") for name in REFITS),
    *((name, "restored") for name in REFITS),
]
OF_ONE: dict[str, Act] = {
    "forecast": lambda begun: begun.host.predict(begun.score(5), **begun.groups(5)),
    "run": lambda begun: begun.host.run([begun.score(i) for i in range(3)], [0, 1, 0], **begun.groups(slice(3))),
    "run late": lambda begun: begun.host.run(
        [begun.score(i) for i in range(3)], [0, 1, 0], due=[2, 2, 5], **begun.groups(slice(3))
    ),
    "outcome early": learn(0),  # watchers give up on it, or read two
    "outcome latest": learn(4),
}
IN_COLUMNS: dict[str, Act] = {
    "issue": lambda begun: begun.host.issue([begun.score(i) for i in range(3)], **begun.groups(slice(3))),
    "outcomes": lambda begun: begun.host.learn(joined(begun, 0, 4), [1, 1]),
}


WITH_WEIGHTS: dict[str, Act] = {  # which Python looks at before a compiled call learns them
    "outcome with a weight": learn(0, weight=20.0),
    "outcome of many": learn(4, 3, of=50),
    "outcome of nothing": learn(4, 0, weight=0.0),
    "run": lambda begun: begun.host.run(
        [begun.score(i) for i in range(3)], [0, 3, 0], weights=[2.0, 0.5, 0.0], of=[1, 50, 2], **begun.groups(slice(3))
    ),
    "run late": lambda begun: begun.host.run(
        [begun.score(i) for i in range(4)],
        [0, 1, 0, 1],
        weights=[2.0, 1.0, 20.0, 1.0],
        due=[2, 2, 5, 4],
        **begun.groups(slice(4)),
    ),
    "outcomes": lambda begun: begun.host.learn(joined(begun, 0, 4), [1, 7], weights=[3.0, 2.0], of=[1, 9]),
}


def joined(begun: Begun, *places: int) -> Receipts:
    """Some receipts as a batch."""
    return Receipts.from_bytes(b"".join([begun.receipts[at].to_bytes() for at in places]))


def is_one_step(kind: str, age: str, what: str, method: str = "ops") -> bool:
    """Whether it is one compiled call, with no moment at which it could be interrupted."""
    return (
        kind not in ("watched", "noticed", "numbers")
        and (what == "forecast" or not METHODS[method].needs_history or method == "fixed")  # which has fitted already
        and (age == "as it is" or (age == "travelled" and what == "forecast"))
        and not what.startswith("run")
        and what not in IN_COLUMNS
    )


@pytest.mark.parametrize("what", [*OF_ONE, *IN_COLUMNS])
@pytest.mark.parametrize(
    ("kind", "age"),
    [(kind, age) for kind in KINDS for age in AGES if kind in ("plain", *GROUPED, "classes") or age != "travelled"],
)
def test_a_calibrator(kind: str, age: str, what: str) -> None:
    if is_one_step(kind, age, what):
        begun = calibrator(kind, age)
        with Interrupts(0, Custom):
            OF_ONE[what](begun)
    else:
        act = (OF_ONE | IN_COLUMNS)[what]
        whole_or_not_at_all(lambda: calibrator(kind, age), act, may_repeat=what.startswith("outcome"))


@pytest.mark.parametrize("what", OF_ONE)
@pytest.mark.parametrize(("method", "age"), AGED)
def test_a_calibrator_of_every_kind_of_method(
    method: str, age: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("calibeat.core.refit.STALE_EVENTS", 1)  # so that the past is let go of, too
    if not is_one_step("plain", age, what, method):
        make = lambda: calibrator("plain", age, method)  # noqa: E731
        whole_or_not_at_all(make, OF_ONE[what], may_repeat=what.startswith("outcome"))


@pytest.mark.parametrize("what", WITH_WEIGHTS)
@pytest.mark.parametrize(
    ("kind", "age", "method"),
    [
        *(("plain", age, "auto") for age in AGES),
        *((kind, "as it is", "auto") for kind in GROUPED),
        *(("plain", age, method) for method in REFITS for age in ("as it is", "restored")),
    ],
)
def test_a_calibrator_that_learns_weights(
    kind: str, age: str, method: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("calibeat.core.refit.STALE_EVENTS", 1)
    may_repeat = what.startswith("outcome") and what != "outcomes"
    if what == "outcomes" and method in REFITS:  # which learn a batch event by event
        return
    make = lambda: calibrator(kind, age, method)  # noqa: E731
    whole_or_not_at_all(make, WITH_WEIGHTS[what], may_repeat=may_repeat, ends_compiled=may_repeat)


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("what", ["outcome early", "run late"])
def test_whatever_the_handler_of_the_signal_raises(what: str, error: type[BaseException]) -> None:
    whole_or_not_at_all(lambda: calibrator("watched"), OF_ONE[what], error)
    whole_or_not_at_all(lambda: bank("watched"), OF_MANY[what], error)


# ---- many ------------------------------------------------------------------------------------------------------------

OF_MANY: dict[str, Act] = {
    "forecast": lambda begun: begun.host.predict(begun.key, begun.score(5)),
    "forecast of a new key": lambda begun: begun.host.predict(begun.new, begun.score(5)),
    "outcome early": learn(0),
    "outcome latest": learn(3),
    "run": lambda begun: begun.host.run(
        [begun.key, begun.new, begun.key], [begun.score(i) for i in range(3)], [1, 0, nan]
    ),
    "run late": lambda begun: begun.host.run(
        [begun.key, begun.new, begun.key], [begun.score(i) for i in range(3)], [1, 0, 1], due=[2, 2, 5]
    ),
    "run of a key": lambda begun: begun.host[begun.key].run([begun.score(i) for i in range(3)], [1, 0, 1]),
    "forecast of bank[key]": lambda begun: begun.host[begun.key].predict(begun.score(5)),
    "outcome of bank[key]": lambda begun: begun.host[begun.key].update(begun.receipts[2], 1),
    "fold": lambda begun: begun.host.fold(
        [begun.key, begun.new, begun.key, begun.key],
        [begun.score(i) for i in range(4)],
        [nan, nan, 1, 0],
        [begun.receipts[0].to_bytes(), begun.receipts[2].to_bytes()],
    ),
    "issue": lambda begun: begun.host.issue([begun.key, begun.new, begun.key], [begun.score(i) for i in range(3)]),
    "outcomes": lambda begun: begun.host.learn(joined(begun, 0, 2), [1, 0]),
    "deletion": lambda begun: begun.host.__delitem__(begun.key),
    "rows": lambda begun: begun.host.set_rows([begun.new, begun.key], begun.host.rows(list(begun.host)[:2])),
    "drop": lambda begun: begun.host.drop_idle(before=3),
    "merge": lambda begun: begun.host.merge(another(begun)),
    "pool": lambda begun: setattr(
        begun.host, "pool", begun.host.rows(list(begun.host)[2:3])[0, : begun.host._rows.width]
    ),
}


MANY_WITH_WEIGHTS: dict[str, Act] = {
    "outcome with a weight": learn(0, weight=20.0),
    "outcome of many": learn(3, 3, of=50, weight=0.5),
    "run": lambda begun: begun.host.run(
        [begun.key, begun.new, begun.key],
        [begun.score(i) for i in range(3)],
        [1, 4, nan],
        weights=[2.0, 0.5, nan],
        of=[1, 8, 1],
    ),
    "fold": lambda begun: begun.host.fold(
        [begun.key, begun.new, begun.key, begun.key],
        [begun.score(i) for i in range(4)],
        [nan, nan, 1, 0],
        [begun.receipts[0].to_bytes(), begun.receipts[2].to_bytes()],
        weights=[nan, nan, 20.0, 0.0],
    ),
    "outcomes": lambda begun: begun.host.learn(joined(begun, 0, 2), [1, 5], weights=[1.0, 3.0], of=[1, 9]),
}


def another(begun: Begun) -> Any:
    """A bank to merge, with a receipt that waits."""
    host = begun.host._empty()
    names = ("x", "y") if isinstance(begun.key, str) else (77, 78)
    host._rows.watching = type(host._rows.watching)(begun.host.watched, begun.host.noticed, lambda: 1.7e9)
    host._rows._watched_by(host._rows.watching if host._rows.watching.parts else None)
    host.run([*names] * 3, [begun.score(i) for i in range(6)], OUTCOMES[:6])
    host.predict(names[0], begun.score(0))
    return host


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few events are remembered, and few are worth a thread."""
    monkeypatch.setattr(calibeat.hosts.keyed_rows, "OUTCOMES_KEPT", 2)
    monkeypatch.setattr(calibeat.hosts.keyed_rows, "_WORTH_A_THREAD", 1)


@pytest.mark.parametrize("what", OF_MANY)
@pytest.mark.parametrize("kind", ["plain", "pooled", "classes", "pair", "watched", "noticed"])
@pytest.mark.usefixtures("little")
def test_a_bank(kind: str, what: str) -> None:
    make = lambda: bank(kind, strings=kind != "classes")  # noqa: E731
    may_repeat, by_key = what in ("outcome early", "outcome latest"), what.endswith("of bank[key]")
    whole_or_not_at_all(make, OF_MANY[what], may_repeat=may_repeat, ends_compiled=by_key)


@pytest.mark.parametrize("what", MANY_WITH_WEIGHTS)
@pytest.mark.parametrize("kind", ["plain", "pooled"])
@pytest.mark.usefixtures("little")
def test_a_bank_that_learns_weights(kind: str, what: str) -> None:
    may_repeat = what.startswith("outcome") and what != "outcomes"
    whole_or_not_at_all(lambda: bank(kind), MANY_WITH_WEIGHTS[what], may_repeat=may_repeat, ends_compiled=may_repeat)


@pytest.mark.parametrize("what", ["forecast", "forecast of a new key", "outcome early", "fold", "run of a key"])
@pytest.mark.parametrize(
    ("age", "kind", "method"),
    [("restored", "plain", "hops"), ("forked", "watched", "ops"), ("travelled", "noticed", "ops")],
)
@pytest.mark.usefixtures("little")
def test_a_bank_of_some_age(age: str, kind: str, method: str, what: str) -> None:
    make = lambda: bank(kind, age, method=method)  # noqa: E731
    whole_or_not_at_all(make, OF_MANY[what], may_repeat=what == "outcome early")


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        *((kind, what) for kind in ("watched", "groups") for what in OF_ONE),
        *(("bank", what) for what in ("forecast of a new key", "outcome early", "fold", "run")),
    ],
)
@pytest.mark.usefixtures("little")
def test_one_interrupt_after_the_other(kind: str, what: str) -> None:
    if kind == "bank":
        again_and_again(lambda: bank("watched", "forked"), OF_MANY[what])
    else:
        again_and_again(lambda: calibrator(kind, "forked"), OF_ONE[what])


def test_a_bank_that_is_made_and_broken_off_may_have_keys_of_another_kind() -> None:
    for begun in interrupted_everywhere(lambda: Bank("ops"), lambda host: host.run(["a"], [0.5], [1])):
        if len(begun) == 0:
            assert begun.kind == "none" and "a" not in begun
            begun.predict(7, 0.5)
            assert list(begun) == [7]
        else:
            assert list(begun) == ["a"]


def test_who_is_interrupted_holds_nobody_up() -> None:
    """The rows are free again for other threads, whatever was at work."""
    calls: dict[str, Act] = {
        **OF_ONE,
        "to_json": lambda begun: begun.host.to_json(),
        "repr": lambda begun: repr(begun.host),
    }
    for act in calls.values():
        for i, begun in enumerate(interrupted_everywhere(lambda: calibrator("watched", "forked"), act)):
            if i % 7:
                continue
            seen = list[int]()
            thread = threading.Thread(target=lambda begun=begun, seen=seen: seen.append(begun.host.events))
            thread.start()
            thread.join(10.0)
            assert seen


READS: dict[str, Act] = {
    "to_json": lambda begun: begun.host.to_json(),
    "segments": lambda begun: begun.host.segments(least=1),
    "predict_many": lambda begun: begun.host.predict_many([0.3], **begun.groups(slice(1))),
    "peek": lambda begun: begun.host.peek(0.3, **begun.groups(0)),
}


@pytest.mark.parametrize("what", READS)
def test_readings_change_nothing(what: str) -> None:
    before = state(calibrator("groups", "forked"))
    for begun in interrupted_everywhere(lambda: calibrator("groups", "forked"), READS[what]):
        assert state(begun) == before


# ---- what watchers are told ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", [Monitors, Notices])
@pytest.mark.parametrize("what", ["forecast", "outcome early"])
@pytest.mark.parametrize("make", [lambda: calibrator("noticed"), lambda: bank("noticed")], ids=["calibrator", "bank"])
def test_what_a_watcher_was_not_told_the_next_call_tells_it(
    make: Callable[[], Begun], what: str, part: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host has learnt; what its watchers have to be told is broken off, and so is each look afterwards."""
    done, begun, act = make(), make(), OF_ONE[what] if isinstance(make().host, Calibrator) else OF_MANY[what]
    act(done)

    def broken(*_: Any) -> None:
        raise Custom

    name = (
        {Monitors: "catch_up", Notices: "forecast"}[part]
        if what == "forecast"
        else {Monitors: "update", Notices: "outcome"}[part]
    )
    with monkeypatch.context() as patch:
        patch.setattr(part, name, broken)
        for look in (act, lambda begun: begun.host.events, lambda begun: repr(begun.host)):
            with pytest.raises(Custom):
                look(begun)
    for at in count():
        with Interrupts(at) as interrupts, suppress(KeyboardInterrupt):
            begun.host.events  # noqa: B018
        if not interrupts.fired:
            break
    assert at > 5
    assert state(begun) == state(done)
    if what != "forecast":
        assert act(begun) == "repeated"
    assert state(begun) == state(done)


# ---- long batches ----------------------------------------------------------------------------------------------------

LONG: dict[str, tuple[str, Act]] = {
    "run": ("run_batch", lambda begun: begun.host.run([begun.score(0)] * 1000, np.ones(1000, dtype=int))),
    "run late": (
        "run_batch",
        lambda begun: begun.host.run([begun.score(0)] * 1000, np.ones(1000, dtype=int), due=np.arange(1000) + 3),
    ),
    "predict_many": ("predict_many", lambda begun: begun.host.predict_many([begun.score(0)] * 1000)),
}


@pytest.mark.parametrize("what", LONG)
@pytest.mark.parametrize(
    ("kind", "method"),
    [("plain", "ops"), ("plain", "auto"), ("watched", "hops"), ("plain", "windowed"), ("classes", ""), ("pair", "")],
)
def test_ctrl_c_is_heard_in_the_middle_of_a_long_batch(
    kind: str, method: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (name, act), (whole, begun) = LONG[what], (calibrator(kind, method=method or "ops") for _ in range(2))
    act(whole)  # in one piece
    monkeypatch.setattr(loops, "PIECE", 100)
    before, real, calls = state(begun), getattr(loops, name), []

    def counted(*arguments: Any) -> Any:
        calls.append(what)
        if len(calls) == 3:
            signal.raise_signal(signal.SIGINT)
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(loops, name, counted)
        with pytest.raises(KeyboardInterrupt):
            act(begun)
    assert len(calls) == 3 and state(begun) == before
    act(begun)  # in ten
    assert state(begun) == state(whole)


def test_a_piece_is_short() -> None:
    """It shall take less than 50 milliseconds, some 30 where most is to be done; other programs may take theirs."""
    n, times = loops.PIECE, []
    for _ in range(3):
        cal, start = Calibrator(), process_time()
        cal.run(np.full(n, 0.5), np.ones(n), due=np.arange(n) + 9)
        times.append(process_time() - start)
    assert min(times) < 0.1


@pytest.mark.parametrize("kind", ["plain", "watched"])
@pytest.mark.parametrize("host", ["bank", "groups"])
def test_ctrl_c_in_one_compiled_step_is_heard_when_all_is_done(host: str, kind: str) -> None:
    n, tries = 300_000, 12
    outcomes = np.ones(n)

    def begun() -> Any:
        if host == "bank":
            return Bank("auto", threads=2, **watchers(kind, of_a_bank=True))
        return Calibrator(groups=Groups(["a"], seed=11), **watchers(kind))

    def run(made: Any) -> Any:
        if isinstance(made, Bank):
            return made.run(np.arange(n) % 7, np.full(n, 0.5), outcomes)
        return made.run(np.full(n, 0.5), outcomes, groups={"a": np.arange(n) % 7})

    def held(made: Any) -> Any:
        return made.rows(range(7)).tolist() if isinstance(made, Bank) else made.to_json()

    def heard(*_: object) -> None:
        raise Custom

    whole, start, seen = begun(), perf_counter(), set[int]()
    run(whole)
    took, before = perf_counter() - start, signal.signal(signal.SIGALRM, heard)
    gc.disable()  # a signal that is raised in a callback of the collector is lost, with a warning
    try:
        for i in range(1, tries):
            made = begun()
            with suppress(Custom):
                signal.setitimer(signal.ITIMER_REAL, took * i / tries)
                run(made)
                signal.setitimer(signal.ITIMER_REAL, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)
            seen.add(made.events)
            assert made.events in (0, n)
            if made.events:
                assert held(made) == held(whole)
                if kind == "watched":
                    monitors = [made[key].monitor for key in made] if host == "bank" else [made.monitor]
                    assert sum(monitor.outcomes for monitor in monitors) == n
    finally:
        gc.enable()
        signal.signal(signal.SIGALRM, before)
    assert n in seen
