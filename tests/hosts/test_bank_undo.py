"""A call of a bank takes effect whole or not at all: Ctrl-C is raised at every moment in turn."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from math import nan
from typing import Any

import numpy as np
import pytest
from banks import content
from interrupts import Interrupts

import calibeat
from calibeat import AUTO, HOPS, OPS, TOPS, Bank, Calibrator, Forecast, Method, Monitor
from calibeat.hosts.bank import Member, Members, Undo
from calibeat.hosts.keys import check_index
from calibeat.hosts.rows import RowStore
from calibeat.hosts.threads import retry_interrupted
from calibeat.monitor.monitors import Monitors


def break_off_everywhere(
    make: Callable[[], Any],
    act: Callable[[Any], Any],
    bank_of: Callable[[Any], Bank],
    step: int = 1,
    retry: Callable[[Any], Any] | None = None,
) -> int:
    """Act on a copy, broken off at each moment (or at every third, where there are many); whatever the moment, the bank
    is as before or as after. How many moments."""
    finished = make()
    act(finished)
    before, after = content(bank_of(make()), receipts=True), content(bank_of(finished), receipts=True)
    outcomes = set()
    for at in range(0, 100_000, step):
        thing = make()
        with Interrupts(at) as interrupts, suppress(KeyboardInterrupt):
            act(thing)
        bank = bank_of(thing)
        now = content(bank, receipts=True)
        assert now in (before, after), at
        if bank._store.index is not None:
            check_index(bank._store.index)
        outcomes.add(now)
        if interrupts.fired:
            act_again = retry or (act if now == before else None)
            if act_again is not None:
                act_again(thing)
            assert content(bank_of(thing), receipts=True) == after, at
        else:
            assert outcomes == {before, after}
            return at
    raise AssertionError("it never ended")


def filled(
    method: Method = TOPS,
    prior: str | None = None,
    names: tuple[Any, ...] = ("a", "b", "c"),
    monitor: Monitor | None = None,
) -> Bank:
    bank = Bank(method, seed=3, prior=prior, monitor=monitor)
    for i, key in enumerate([*names, *names[:2]]):
        bank.update(key, bank.predict(key, 0.1 + 0.15 * i), i % 2)
    return bank


KINDS = [(TOPS, None), (HOPS, "pooled"), (AUTO, "pooled")]
IDS = ["tops", "hops", "auto"]


@pytest.mark.parametrize(("method", "prior"), KINDS, ids=IDS)
def test_update(method: Method, prior: str | None) -> None:
    def make() -> tuple[Bank, Any]:
        bank = filled(method, prior)
        return bank, bank.predict("a", 0.7)

    assert break_off_everywhere(make, lambda pair: pair[0].update("a", pair[1], 1), lambda pair: pair[0]) > 20


@pytest.mark.parametrize("key", ["a", "new"])
def test_predict(key: str) -> None:
    def act(bank: Bank) -> None:
        bank.predict(key, 0.3)

    assert break_off_everywhere(lambda: filled(HOPS, "pooled"), act, lambda bank: bank) > 20


def aged(bank: Bank, kind: str) -> Bank:
    """The bank as it is, from a pickle, or in a process that was forked."""
    if kind == "forked":
        bank._forked()
    return pickle.loads(pickle.dumps(bank)) if kind == "restored" else bank  # noqa: S301 - our own bytes


MEMBER_CALLS: dict[str, Callable[[Any], Any]] = {
    "predict": lambda trio: trio[1].predict(0.3),
    "latest": lambda trio: trio[1].update(trio[2][2], 1),
    "late": lambda trio: trio[1].update(trio[2][0], 1),
    "travelled": lambda trio: trio[1].update(Forecast.from_bytes(trio[2][1].to_bytes()), 0),
    "run": lambda trio: trio[1].run([0.2, 0.9], [1, 0]),
}


@pytest.mark.parametrize("kind", ["as it is", "restored", "forked"])
@pytest.mark.parametrize("what", MEMBER_CALLS)
def test_a_member(what: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """``bank[key]`` itself is called; there was a batch since it was last used, and others were served."""
    for module in ("bank", "ledger"):
        monkeypatch.setattr(f"calibeat.hosts.{module}.new_generation", lambda: "5eed5eed")

    def make() -> tuple[Bank, Calibrator, list[Forecast]]:
        bank = filled(HOPS if kind == "as it is" else TOPS, "pooled")
        receipts = [bank.predict("a", 0.1 + 0.2 * i) for i in range(3)]
        member = bank["a"]
        bank.run(["b", "a"], [0.5, 0.6], [0, 1])
        if kind != "as it is":
            bank = aged(bank, kind)
            member = bank["a"]
        bank.predict("c", 0.3)
        return bank, member, receipts

    assert break_off_everywhere(make, MEMBER_CALLS[what], lambda trio: trio[0]) > 20


@pytest.mark.parametrize("prior", [None, "pooled"])
@pytest.mark.parametrize("names", [("a", "b", "c"), (1, 2, 3)], ids=["strings", "ints"])
def test_run(prior: str | None, names: tuple[Any, ...]) -> None:
    new = "n" if isinstance(names[0], str) else 9

    def act(bank: Bank) -> None:
        bank.run([names[0], new, names[0]], [0.2, 0.4, 0.9], [1, 0, nan])

    assert break_off_everywhere(lambda: filled(TOPS, prior, names), act, lambda bank: bank) > 20


def test_run_with_late_outcomes() -> None:
    def act(bank: Bank) -> None:
        bank.run(["a", "n", "a"], [0.2, 0.4, 0.9], [1, 0, 1], due=[2, 2, 5])

    break_off_everywhere(lambda: filled(TOPS, "pooled"), act, lambda bank: bank, step=3)


def test_fold() -> None:
    def make() -> tuple[Bank, list[bytes]]:
        bank = filled(HOPS, "pooled")
        return bank, bank.fold(["a"], [0.4], [nan]).receipts.tolist()

    def act(pair: Any) -> None:
        pair[0].fold(["a", "n", "b"], [nan, 0.3, 0.6], [1, nan, nan], pair[1])

    break_off_everywhere(make, act, lambda pair: pair[0], step=3)


@pytest.mark.parametrize("names", [("a", "b", "c"), (1, 2, 3), ("alone",)], ids=["strings", "ints", "alone"])
def test_deletion(names: tuple[Any, ...]) -> None:
    def act(bank: Bank) -> None:
        del bank[names[0]]

    break_off_everywhere(lambda: filled(names=names), act, lambda bank: bank)


def test_merge() -> None:
    other = filled(TOPS, "pooled", ("x", "y"))
    other.run(["x"] * 20, np.full(20, 0.5), np.ones(20))
    break_off_everywhere(lambda: filled(TOPS, "pooled"), lambda bank: bank.merge(other), lambda bank: bank, step=2)


def test_drop_idle() -> None:
    held: list[Any] = []

    def make() -> Bank:
        bank = filled()
        held[:] = [bank["c"]]
        return bank

    def act(bank: Bank) -> None:
        bank.drop_idle(before=2)

    break_off_everywhere(make, act, lambda bank: bank, step=5)
    with pytest.raises(calibeat.UnknownKey):
        held[0].predict(0.5)


def test_rows_in() -> None:
    rows = filled().rows(["a", "c"])
    break_off_everywhere(
        lambda: filled(names=("x", "a")), lambda bank: bank.set_rows(["a", "n"], rows), lambda bank: bank
    )


@pytest.mark.parametrize(
    ("what", "act"),
    [
        ((Members, "forget"), lambda bank: bank.__delitem__("a")),
        ((Members, "forget"), lambda bank: bank.drop_idle(before=2)),
        ((Members, "fold"), lambda bank: bank.fold(["a", "a"], [0.5, 0.5], [nan, nan])),
        ((Member, "_predict_taken"), lambda bank: bank.predict("new", 0.5)),
        ((RowStore, "remove"), lambda bank: bank.__delitem__("a")),
        ((RowStore, "take"), lambda bank: bank.merge(filled(names=("x", "y")))),
    ],
)
def test_what_was_done_is_finished_and_what_was_not_is_undone(
    what: Any, act: Callable[[Bank], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same at single places, without a tracer."""
    bank, done = filled(), filled()
    act(done)
    before, after = content(bank, receipts=True), content(done, receipts=True)
    original, calls = getattr(*what), [0]

    def breaking_off(*arguments: Any) -> Any:
        calls[0] += 1
        if calls[0] == 1:
            raise KeyboardInterrupt
        return original(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(*what, breaking_off)
        with pytest.raises(KeyboardInterrupt):
            act(bank)
    assert content(bank, receipts=True) in (before, after)
    if content(bank, receipts=True) == before:
        act(bank)
    assert content(bank, receipts=True) == after


def test_a_bad_score_leaves_the_member_as_it_was() -> None:
    bank = filled()
    receipt = bank.predict("a", 0.5)
    with pytest.raises(calibeat.InvalidInput):
        bank.predict("a", 2.0)
    bank.update("a", receipt, 1)
    assert bank["a"].events == bank["a"].outcomes == 3


def test_signals_are_outwaited_whatever_they_raise() -> None:
    left: list[type[BaseException]] = [KeyboardInterrupt, SystemExit, ValueError]

    def work() -> None:
        if left:
            raise left.pop()

    retry_interrupted(work)
    assert not left


# ---- one interrupt after the other -------------------------------------------------------------------------------


class Custom(Exception):
    """What the handler of a signal may raise."""


OTHER = filled(TOPS, "pooled", ("x", "y"), Monitor(warm=0))
CHANGES: dict[str, Callable[[Bank], Any]] = {
    "run": lambda bank: bank.run(["a", "n", "a"], [0.2, 0.4, 0.9], [1, 0, 1]),
    "fold": lambda bank: bank.fold(["a", "n", "b"], [0.1, 0.3, 0.6], [nan, nan, nan]),
    "predict": lambda bank: bank.predict("new", 0.3),
    "delete": lambda bank: bank.__delitem__("a"),
    "drop": lambda bank: bank.drop_idle(before=2),
    "merge": lambda bank: bank.merge(OTHER),
    "rows": lambda bank: bank.set_rows(["c", "n"], OTHER.rows(["x", "y"])),
}


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, Custom])
@pytest.mark.parametrize("what", CHANGES)
def test_undoing_that_is_interrupted_again_and_again(
    what: str, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The change is broken off at its end; then each look at the bank is broken off, a little later each time."""
    bank = filled(TOPS, "pooled", monitor=Monitor(warm=0))
    before, act = content(bank, receipts=True), CHANGES[what]

    def broken(*_: Any) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(Undo, "keep", broken)
        patch.setattr(Undo, "finish", broken)
        with pytest.raises(error):
            act(bank)
    assert bank._undo is not None
    for at in count():
        with Interrupts(at, error) as interrupts, suppress(error):
            len(bank)
        if not interrupts.fired:
            break
    assert at > 10
    assert content(bank, receipts=True) == before
    done = filled(TOPS, "pooled", monitor=Monitor(warm=0))
    act(bank)
    act(done)
    assert content(bank, receipts=True) == content(done, receipts=True)


@pytest.mark.parametrize("what", ["delete", "drop", "fold"])
def test_what_is_left_of_a_change_is_done_by_the_next_call(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bank, done, act = filled(), filled(), CHANGES[what]
    act(done)
    names = {"delete": (Members, "forget"), "drop": (Members, "forget"), "fold": (Members, "fold")}

    def broken(*_: Any) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(*names[what], broken)
        for _ in range(3):
            with pytest.raises(SystemExit):
                act(bank)
    assert content(bank, receipts=True) == content(done, receipts=True)


# ---- with monitors -----------------------------------------------------------------------------------------------


def watched() -> tuple[Bank, list[Forecast]]:
    """A bank whose monitor of "a" holds outcomes back, and has to give up on the first with the next forecast."""
    bank = filled(OPS, monitor=Monitor(arl=100, warm=0, patience=4))
    receipts = [bank.predict("a", 0.2 + 0.1 * i) for i in range(4)]
    bank.update("a", receipts[1], 1)
    return bank, receipts


@pytest.mark.parametrize("which", [0, 2, 3], ids=["first", "held", "latest"])
def test_what_a_key_learns_its_monitor_learns(which: int) -> None:
    def act(pair: Any) -> None:
        pair[0].update("a", pair[1][which], 1)

    assert break_off_everywhere(watched, act, lambda pair: pair[0], retry=act) > 20


def test_a_forecast_that_its_monitor_knows() -> None:
    def act(pair: Any) -> None:
        pair[0].predict("a", 0.6)

    assert break_off_everywhere(watched, act, lambda pair: pair[0]) > 20


def test_monitors_of_many_keys_grow_whole() -> None:
    """The rows of the monitors get a new place when there is no room for one more."""

    def act(bank: Bank) -> None:
        bank.run(["n", "m"], [0.2, 0.4], [1, 0])

    break_off_everywhere(lambda: filled(OPS, monitor=Monitor(warm=0)), act, lambda bank: bank, step=2)


@pytest.mark.parametrize("what", ["predict", "update"])
def test_what_a_monitor_was_not_told_the_next_call_tells_it(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (bank, receipts), (done, theirs) = watched(), watched()
    works: dict[str, Callable[[Bank, list[Forecast]], Any]] = {
        "predict": lambda bank, _: bank.predict("a", 0.6),
        "update": lambda bank, receipts: bank.update("a", receipts[0], 1),
    }
    works[what](done, theirs)

    def broken(*_: Any) -> None:
        raise Custom

    with monkeypatch.context() as patch:
        patch.setattr(Monitors, "_keep", broken)
        with pytest.raises(Custom):
            works[what](bank, receipts)
    for key in done:
        assert bank[key].monitor.to_json() == done[key].monitor.to_json()  # type: ignore[union-attr]
    assert content(bank, receipts=True) == content(done, receipts=True)
