"""A monitor gives up on outcomes that never come: the same by every verb, and the host can be saved afterwards."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from math import isnan, nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibeat import Bank, Calibrator, Forecast, Monitor, MultiBank, MultiCalibrator, MultiForecast

N = 120
KINDS = {
    "two classes": (lambda **more: Bank("ops", **more), lambda **more: Calibrator("ops", **more), Forecast),
    "three": (
        lambda **more: MultiBank(3, "ots", **more),
        lambda **more: MultiCalibrator(3, "ots", **more),
        MultiForecast,
    ),
}
Operation = tuple[str, int, int | None]  # a key, the event, and its outcome, or None where it is asked for


def template(patience: int) -> Monitor:
    return Monitor(arl=200, warm=5, quiet=20, patience=patience)


def operations(rng: Any, patience: int) -> list[Operation]:
    """Forecasts of two keys, and outcomes: some soon, some too late, some never, in any order."""
    found: list[tuple[float, Operation]] = []
    for event in range(N):
        key = "ab"[int(rng.integers(2))]
        found.append((event, (key, event, None)))
        late = rng.choice([0.5, 2.5, 2.0 * patience, 5.0 * patience, np.inf])
        if late < np.inf:
            found.append((event + late, (key, event, int(rng.integers(2)))))
    return [operation for _, operation in sorted(found, key=lambda pair: pair[0])]


def scores_of(kind: str, rng: Any) -> Any:
    return rng.random(N).round(3).tolist() if kind == "two classes" else rng.dirichlet([1.0] * 3, N).tolist()


def by_single_events(bank: Any, scores: Any, todo: list[Operation], _: Any) -> None:
    receipts = {}
    for key, event, outcome in todo:
        if outcome is None:
            receipts[event] = bank.predict(key, scores[event])
        else:
            bank.update(key, receipts[event], outcome)


def by_fold(bank: Any, scores: Any, todo: list[Operation], rng: Any) -> None:
    """In calls of any length; outcomes of forecasts of the same call come with `of`, others with receipts."""
    receipts: dict[int, bytes] = {}
    nothing = nan if isinstance(scores[0], float) else [nan] * 3
    while todo:
        n = int(rng.integers(1, 30))
        part, todo = todo[:n], todo[n:]
        here = {event: at for at, (_, event, outcome) in enumerate(part) if outcome is None}
        asked = [outcome is None for _, _, outcome in part]
        folded = bank.fold(
            [key for key, _, _ in part],
            [scores[event] if ask else nothing for ask, (_, event, _) in zip(asked, part, strict=True)],
            [nan if outcome is None else float(outcome) for _, _, outcome in part],
            [receipts[event] for _, event, outcome in part if outcome is not None and event not in here],
            of=[-1 if outcome is None else here.get(event, -1) for _, event, outcome in part],
        )
        receipts |= zip(here, folded.receipts.tolist(), strict=True)


Verb = Callable[[Any, Any, list[Operation], Any], None]


@pytest.mark.parametrize("verb", [by_single_events, by_fold])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("patience", [1, 2, 7])
def test_monitors_give_up_alike(patience: int, kind: str, verb: Verb, tmp_path: Path) -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        make, alone, _ = KINDS[kind]
        scores, todo = scores_of(kind, rng), operations(rng, patience)
        bank = make(monitor=template(patience))
        verb(bank, scores, todo, rng)
        bank.save(tmp_path / "b.bank")
        copies = [bank, type(bank).load(tmp_path / "b.bank"), copy.deepcopy(bank), pickle.loads(pickle.dumps(bank))]  # noqa: S301
        for key in "ab":
            cal = alone(monitor=template(patience))
            receipts = {}
            for _, event, outcome in (operation for operation in todo if operation[0] == key):
                if outcome is None:
                    receipts[event] = cal.predict(scores[event])
                else:
                    cal.update(receipts[event], outcome)
            assert cal.monitor.waiting.given_up > 0
            for each in copies:
                same(each[key].monitor, cal.monitor)


def same(ours: Any, alone: Any) -> None:
    np.testing.assert_array_equal(ours.row, alone.row)
    told, expected = ours.waiting, alone.waiting
    for name in expected._fields:
        if name != "too_late":  # a bank does not count those
            mine, own = getattr(told, name), getattr(expected, name)
            assert mine == own or (isnan(mine) and isnan(own)), name


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("verb", ["single", "fold", "run"])
def test_a_bank_does_not_claim_that_nothing_came_too_late(verb: str, kind: str) -> None:
    """The counts of a key's monitor name what a bank keeps; what it does not keep is None, and never a wrong 0."""
    make, alone, read = KINDS[kind]
    bank, cal = make(monitor=template(2)), alone(monitor=template(2))
    scores = scores_of(kind, np.random.default_rng(0))[:5]
    match verb:
        case "run":
            for host, keys in ((bank, [["a"] * 5]), (cal, [])):
                host.run(*keys, scores, [1] * 5, due=[4, 2, 3, 4, 5], finish=True)
        case "single":
            for host, key in ((bank, ["a"]), (cal, [])):
                receipts = [host.predict(*key, score) for score in scores]
                host.update(*key, receipts[0], 1)
        case "fold":
            receipts = bank.fold(["a"] * 5, scores, [nan] * 5).receipts.tolist()
            bank.update("a", read.from_bytes(receipts[0]), 1)
            receipts = [cal.predict(score) for score in scores]
            cal.update(receipts[0], 1)
    assert cal.monitor.waiting.too_late == 1
    assert bank["a"].monitor.waiting.too_late is None
    monitor = copy.deepcopy(bank["a"].monitor)  # it goes on as it is, also as text
    assert Monitor.from_json(monitor.to_json()).waiting.too_late is None
    assert bank["a"].monitor.waiting.given_up == cal.monitor.waiting.given_up
