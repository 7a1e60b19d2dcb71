"""Parts share one shape, so a new one is a file, a line in the kernel and a preset; nothing else lists the parts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from conformance import CHECKS, Check, cases_of, same
from streams import STREAMS, variants

import calibeat
from calibeat import AIOLI, OGD, ONS, OPS, Bank, Calibrator, Method, Platt
from calibeat.core.layout import Spec
from calibeat.core.learners import ONS_STEP, growing_matrix
from calibeat.core.limits import Block
from calibeat.core.method import params_of, params_of_rows
from calibeat.core.parts import PARTS, Calibeater, Features, Learner, Part

SOURCE = Path(calibeat.__file__).parent
EVERY = [part for slot in PARTS.values() for part in slot.values()]


def lines_of(place: str) -> Iterator[tuple[str, str]]:
    """File name and line, of all lines of a file or a folder that are no import."""
    for path in [SOURCE / place] if place.endswith(".py") else sorted((SOURCE / place).rglob("*.py")):
        text = re.sub(r"^from .*?(\(\n.*?\n\)|$)", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
        for line in text.splitlines():
            yield path.name, line


@pytest.mark.parametrize("part", EVERY, ids=lambda part: part.__name__)
def test_every_part_says_the_same_things(part: type[Part]) -> None:
    made = part()
    numbers = made.numbers()
    assert numbers.keys() <= set(Spec._fields)
    assert made.slot == "guard" or numbers[made.slot] == made.code  # of a guard the spec has the place
    for name in ("initial", "numbers", "limits"):
        assert callable(getattr(part, name, None))
    assert hasattr(part, "params") or issubclass(part, Calibeater)  # its cells say nothing of parameters
    assert hasattr(part, "export") or made.no_formula


@pytest.mark.parametrize("place", ["core", "export.py"])
def test_no_ladder_over_the_kinds_of_parts(place: str) -> None:
    """A part may look at the features that it needs; nobody else asks what a part is."""
    allowed = {"Scaling", "Beta"}
    names = {part.__name__ for part in EVERY} - allowed
    ladders = [
        f"{file}: {line.strip()}"
        for file, line in lines_of(place)
        if re.search(rf"(isinstance\(.*|case )\b({'|'.join(names)})\b", line)
    ]
    assert not ladders


@pytest.mark.parametrize(
    ("code", "places"), [("OGD_STEP", ["kernel.py"]), ("ONS_STEP", ["kernel.py", *["loops.py"] * 2])]
)
def test_a_learner_is_one_line_in_the_kernel(code: str, places: list[str]) -> None:
    """That of OPS has a loop by itself besides: its code is a constant there."""
    assert [name for name, line in lines_of(".") if re.search(rf"\b{code}\b", line) and name != "learners.py"] == places


# ---- a new learner, by the steps of CONTRIBUTING -----------------------------------------------------------------


@pytest.fixture
def timid() -> Iterator[Method]:
    """Step 1: its file. Step 2, its line in the kernel, is that of ONS here. Step 3: the preset."""

    @dataclass(frozen=True)
    class Timid(Learner):
        """ONS with small steps and no choice."""

        step: float = 5.0

        code: ClassVar[int] = ONS_STEP

        def initial(self, features: Features) -> list[float]:
            return [*features.initial(), 100.0, 0.0, 100.0]

        def numbers(self) -> dict[str, float]:
            return {**super().numbers(), "gain": self.step, "radius": 100.0}

        def limits(self, features: Features) -> list[Block]:
            return [*features.limits(100.0), growing_matrix(100.0, features)]

    yield Method(Platt(), Timid())
    del PARTS["learner"]["timid"]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_new_learner_passes_the_conformance_suite(timid: Method, check: Check) -> None:
    check(cases_of(timid)[0])


def test_a_new_learner_needs_nothing_else(timid: Method) -> None:
    scores, outcomes = STREAMS["drifting"]()
    cal, bank = Calibrator(timid), Bank(timid)
    forecasts = cal.run(scores, outcomes)
    same(forecasts, Calibrator(replace(OPS, learner=calibeat.ONS(gamma=0.2))).run(scores, outcomes))
    same(forecasts, bank.run(["k"] * len(scores), scores, outcomes))
    assert bank["k"].params == cal.params and set(cal.params) == {"a", "b"}
    assert set(cal.export().numbers) == {"a", "b", "clip"}
    assert json.loads(cal.to_json())["method"]["learner"] == {"kind": "timid", "step": 5.0}


def test_params_of_rows_that_nobody_moves() -> None:
    still, raw = Method(Platt(start=(0.5, 0.25))), Method()
    rows = np.tile(still.initial_row(), (3, 1))
    assert {name: column.tolist() for name, column in params_of_rows(still, rows).items()} == {
        "a": [0.5] * 3,
        "b": [0.25] * 3,
    }
    assert params_of_rows(raw, np.zeros((3, raw.width))) == {} == params_of(raw, [0.0] * raw.width)


# ---- what names a stream -----------------------------------------------------------------------------------------


def test_the_repr_of_a_method_is_that_of_its_parts() -> None:
    """Receipts are named by a hash of it."""
    assert repr(Method()) == "Method(features=None, learner=None, calibeater=None)"
    assert repr(calibeat.AUTO) == (
        "Method(features=Beta(start=(1.0, -1.0, 0.0), clip=1e-05), learner=Lanes(horizon=True), calibeater=Spline())"
    )
    for method in variants().values():
        shown = (f"{slot}={getattr(method, slot)!r}" for slot in ("features", "learner", "calibeater"))
        guard = [] if method.guard is None else [f"guard={method.guard!r}"]
        assert repr(method) == f"Method({', '.join([*shown, *guard])})"
        assert list(method.to_dict()) == ["features", "learner", "calibeater", "guard"]


def test_learners_with_a_ball_say_its_radius() -> None:
    assert [ONS(radius=7.0).ball, OGD(radius=7.0).ball, AIOLI(radius=7.0).ball] == [7.0, 7.0, None]


def test_a_method_that_is_read_again_is_the_same_object() -> None:
    data = [{**OPS.to_dict(), "learner": {**OPS.to_dict()["learner"], "gamma": 0.1 + i / 1000}} for i in range(100)]
    methods = [Method.from_dict(one) for one in data]
    assert Method.from_dict(data[-1]) is methods[-1]
    assert [method.to_dict() for method in methods] == data
    assert Method.from_dict(data[0]) == methods[0]  # it was forgotten and is read anew
