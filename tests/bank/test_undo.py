"""A call of a bank takes effect whole or not at all: Ctrl-C is raised at every line in turn."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from math import nan
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from banks import content

import calibeat
import calibeat.bank.fold
from calibeat import AUTO, HOPS, TOPS, Bank, Method
from calibeat.bank.check import check_index
from calibeat.bank.member import Member, Members
from calibeat.bank.store import RowStore
from calibeat.bank.undo import Undo, insist

OURS = str(Path(calibeat.__file__).parent)
ELSEWHERE = ("_util/check.py", "_util/columns.py", "core/jit.py")  # they change nothing; a lock is not to be torn


class _Tracer:
    """Raises KeyboardInterrupt at the n-th line of calibeat that runs."""

    def __init__(self, at: int) -> None:
        self.left, self.fired = at, False

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        name = frame.f_code.co_filename
        if not name.startswith(OURS) or name.endswith(ELSEWHERE):
            return None
        sampled = "/core/" not in name or frame.f_lineno % 7 == 0  # kernels have many lines, alike in this
        if event == "line" and sampled:
            if self.left == 0:
                self.left, self.fired = -1, True
                raise KeyboardInterrupt
            self.left -= 1
        return self


def break_off_everywhere(
    make: Callable[[], Any], act: Callable[[Any], Any], bank_of: Callable[[Any], Bank], step: int = 1
) -> int:
    """Act on a copy, broken off at each line (or at every third, where there are many); whatever the line, the bank is
    as before or as after. How many lines."""
    finished = make()
    act(finished)
    before, after = content(bank_of(make()), receipts=True), content(bank_of(finished), receipts=True)
    outcomes = set()
    for line in range(0, 100_000, step):
        thing = make()
        tracer, coverage = _Tracer(line), sys.gettrace()
        sys.settrace(tracer)
        try:
            act(thing)
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(coverage)
        bank = bank_of(thing)
        now = content(bank, receipts=True)
        assert now in (before, after), line
        if bank._store.index is not None:
            check_index(bank._store.index)
        outcomes.add(now)
        if now == before and tracer.fired:
            act(thing)  # it can be done again
            assert content(bank_of(thing), receipts=True) == after, line
        if not tracer.fired:
            assert outcomes == {before, after}
            return line
    raise AssertionError("it never ended")


def filled(method: Method = TOPS, prior: str | None = None, names: tuple[Any, ...] = ("a", "b", "c")) -> Bank:
    bank = Bank(method, seed=3, prior=prior, independent=True)
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
    break_off_everywhere(lambda: filled(TOPS, "pooled"), lambda bank: bank.merge(other), lambda bank: bank)


def test_drop_idle() -> None:
    held: list[Any] = []

    def make() -> Bank:
        bank = filled()
        held[:] = [bank["c"]]
        return bank

    def act(bank: Bank) -> None:
        bank.drop_idle(before=2)

    break_off_everywhere(make, act, lambda bank: bank)
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
        ((calibeat.bank.fold, "_record"), lambda bank: bank.fold(["a"], [0.5], [nan])),
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


def test_an_interrupt_while_putting_back_is_outwaited() -> None:
    calls = [0]

    def work() -> None:
        calls[0] += 1
        if calls[0] < 3:
            raise KeyboardInterrupt

    insist(work)
    assert calls == [3]
    bank = filled()
    before = content(copy.copy(bank))
    undo = Undo(bank)
    bank.run(["a", "z"], [0.5, 0.5], [1, 1])
    bank._store.remove(0)
    undo.keep()
    undo.restore()
    assert content(bank) != before
