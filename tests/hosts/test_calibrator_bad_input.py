"""Bad input gets a sentence that says what, requirement, got and where, and leaves everything as it was."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import calibeat
from calibeat import (
    AIOLI,
    FTL,
    OGD,
    ONS,
    OPS,
    TOPS,
    Beta,
    CalibeatError,
    Calibrator,
    Fixed,
    Forecast,
    Hedging,
    Histogram,
    InvalidInput,
    Method,
    Platt,
    Temperature,
    Tracking,
    UnknownForecast,
    UnknownMethod,
)


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


SCORES = [
    (math.nan, "score must be in [0, 1], got nan"),
    (math.inf, "score must be in [0, 1], got inf"),
    (-math.inf, "score must be in [0, 1], got -inf"),
    (1.3, "score must be in [0, 1], got 1.3"),
    (-0.1, "score must be in [0, 1], got -0.1"),
    (1.0 + 2**-52, "score must be in [0, 1], got 1.0000000000000002"),
    (-5e-324, "score must be in [0, 1], got -5e-324"),
    (2, "score must be in [0, 1], got 2.0"),
    (10**400, "score must be in [0, 1], got inf"),
    (-(10**400), "score must be in [0, 1], got -inf"),
    (True, "score must be a number in [0, 1], got bool True"),
    (np.True_, "score must be a number in [0, 1], got bool np.True_"),
    ("0.5", "score must be a number in [0, 1], got str '0.5'"),
    (None, "score must be a number in [0, 1], got NoneType None"),
    (0.5j, "score must be a number in [0, 1], got complex 0.5j"),
    ([0.5], "score must be a number in [0, 1], got list [0.5]"),
    (np.array([0.5]), "score must be a number in [0, 1], got ndarray array([0.5])"),
]


@pytest.mark.parametrize(("score", "message"), SCORES)
def test_score(cal: Calibrator, score: Any, message: str) -> None:
    refused(cal, lambda: cal.predict(score), message)


@pytest.mark.parametrize(
    "score", [0, 1, 0.0, 1e-300, 5e-324, 1 - 2**-53, np.float32(0.25), np.int8(1), np.float64(0.5)]
)
def test_extreme_scores_are_legal(cal: Calibrator, score: Any) -> None:
    forecast = cal.predict(score)
    assert type(forecast.score) is float
    cal.update(forecast, 1)
    assert 0.0 <= forecast.probability <= 1.0


@pytest.mark.parametrize("outcome", [2, 0.5, -1, math.nan, "1", None, [1], 1j, math.inf])
def test_outcome(cal: Calibrator, outcome: Any) -> None:
    forecast = cal.predict(0.4)
    refused(cal, lambda: cal.update(forecast, outcome), f"outcome must be 0 or 1, got {outcome!r}")
    cal.update(forecast, 1)  # it can still be given its outcome


@pytest.mark.parametrize("outcome", [True, False, 1, 0, 1.0, np.int64(1), np.bool_(True), np.float32(0)])
def test_outcomes_that_are_legal(cal: Calibrator, outcome: Any) -> None:
    cal.update(cal.predict(0.4), outcome)
    assert cal.outcomes == 4


ARRAYS: list[tuple[Any, Any, str]] = [
    ([0.1, math.nan], [0, 1], "score must be in [0, 1], got nan - at row 1"),
    ([0.1, 0.2, 1.3], [0, 1, 1], "score must be in [0, 1], got 1.3 - at row 2"),
    ([-0.1, 0.2], [0, 1], "score must be in [0, 1], got -0.1 - at row 0"),
    ([math.inf], [1], "score must be in [0, 1], got inf - at row 0"),
    ([0.1, 0.2], [0, 2], "outcome must be 0 or 1, got 2.0 - at row 1"),
    ([0.1, 0.2], [0.5, 1], "outcome must be 0 or 1, got 0.5 - at row 0"),
    ([0.1, 0.2], [0, math.nan], "outcome must be 0 or 1, got nan - at row 1"),
    ([0.1, 0.2], [0, None], "outcome must be 0 or 1, got NoneType None - at row 1"),
    ([0.1, 0.2], [0, "1"], "outcome must be 0 or 1, got str '1' - at row 1"),
    ([0.1, 0.2], np.array(["0", "1"]), "outcome must be 0 or 1, got an array of <U1 that starts with '0' - at row 0"),
    ([0.5, True], [0, 1], "score must be a number in [0, 1], got bool True - at row 1"),
    (np.array([True]), [1], "score must be a number in [0, 1], got an array of bool that starts with True - at row 0"),
    ([0.1, "0.2"], [0, 1], "score must be a number in [0, 1], got str '0.2' - at row 1"),
    (np.array(["0.1"]), [0], "score must be a number in [0, 1], got an array of <U3 that starts with '0.1' - at row 0"),
    ([10**400, 0.1], [0, 1], "score must be in [0, 1], got inf - at row 0"),
    ([0.1], [-(10**400)], "outcome must be 0 or 1, got -inf - at row 0"),
    (np.ma.array([0.1, 0.2], mask=[0, 1]), [0, 1], "score must be in [0, 1], got a missing value - at row 1"),
    (np.array([0.1, True], dtype=object), [0, 1], "score must be a number in [0, 1], got bool True - at row 1"),
    ([0.1, None], [0, 1], "score must be a number in [0, 1], got NoneType None - at row 1"),
    ([0.1, 0.2], [0], "arrays must have the same length, got scores 2, outcomes 1"),
    ([[0.1, 0.2]], [0, 1], "scores must be a one-dimensional array, got shape (1, 2)"),
    ([0.1, 0.2], [[0], [1]], "outcomes must be a one-dimensional array, got shape (2, 1)"),
    ([[0.1], [0.2, 0.3]], [0, 1], "scores must be a one-dimensional array, got a ragged list"),
    (0.1, 1, "scores must be a one-dimensional array, got float - one event? use predict(score)"),
    ([], [], "arrays must not be empty, got length 0 for scores, outcomes"),
    (["x" * 100], [1], "..."),
]


@pytest.mark.parametrize(("scores", "outcomes", "message"), ARRAYS)
def test_arrays(cal: Calibrator, scores: Any, outcomes: Any, message: str) -> None:
    refused(cal, lambda: cal.run(scores, outcomes), message)
    if "outcome" not in message:
        refused(cal, lambda: cal.predict_many(scores), message)


def test_arrays_of_nothing(cal: Calibrator) -> None:
    refused(cal, lambda: cal.predict_many([]), "arrays must not be empty")
    refused(cal, lambda: cal.run([], [], due=[]), "arrays must not be empty")


@pytest.mark.parametrize(
    ("due", "message"),
    [
        ([1, 1], "due must be later than its own position 1, got 1 - at row 1"),
        ([0, 2], "due must be later than its own position 0, got 0 - at row 0"),
        ([1], "arrays must have the same length, got scores 2, due 1"),
        ([1.0, 2.0], "due must be a one-dimensional array of whole numbers, got float64"),
        ([[1, 2]], "due must be a one-dimensional array of whole numbers, got shape (1, 2)"),
        ([[1], [2, 3]], "due must be a one-dimensional array of whole numbers, got a ragged list"),
    ],
)
def test_due(cal: Calibrator, due: Any, message: str) -> None:
    refused(cal, lambda: cal.run([0.1, 0.2], [0, 1], due=due), message)


def test_late_outcomes_that_are_bad(cal: Calibrator) -> None:
    refused(cal, lambda: cal.run([0.1, 0.2], [math.nan, 1], due=[1, 2]), "outcome must be 0 or 1, got nan - at row 0")
    refused(cal, lambda: cal.run([0.1, 0.2], [1], due=[1, 2]), "arrays must have the same length")
    cal.run([0.1, 0.2], [1, math.nan], due=[1, 2**63 - 1])  # this one never arrives, so nobody looks at it
    cal.run([0.1, 0.2], [1, math.nan], due=np.array([1, 2**64 - 1], dtype=np.uint64))
    for nothing in (None, "?", math.inf):
        cal.run([0.1, 0.2], [1, nothing], due=[1, 2])


# ---- methods -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("topps", "method must be one of the presets, got 'topps' - did you mean 'tops'?"),
        ("ons", "got 'ons' - did you mean 'ops'?"),
        ("zebra crossing", "got 'zebra crossing' - there are auto, bm, ops, tops"),
        (7, "method must be a Method or the name of a preset, got int 7"),
        (Platt(), "method must be a Method or the name of a preset, got Platt"),
    ],
)
def test_unknown_methods(name: Any, message: str) -> None:
    with pytest.raises(UnknownMethod) as error:
        Calibrator(name)
    assert message in str(error.value)


SENSELESS: list[tuple[Callable[[], Any], str]] = [
    (lambda: Method(None, ONS()), "ONS needs features to learn parameters for (Platt, Beta or Temperature), got None"),
    (lambda: Method(None, FTL(), Tracking()), "FTL needs features"),
    (lambda: Method(Histogram(), ONS()), "Histogram has to be told when to fit by a Fixed or an FTL learner, got ONS"),
    (lambda: Method(Histogram()), "Histogram has to be told when to fit by a Fixed or an FTL learner, got None"),
    (lambda: Method(ONS()), "ONS belongs in the learner of a method, got it as features"),
    (lambda: Method(Platt(), Histogram()), "Histogram belongs in the features of a method, got it as learner"),
    (lambda: Method(Platt(), Tracking()), "Tracking belongs in the calibeater of a method, got it as learner"),
    (lambda: Method(Platt(), ONS(), "tracking"), "calibeater must be one of Tracking, Hedging, Spline or None, got 't"),
    (lambda: replace(TOPS, learner=3), "learner must be one of ONS, OGD, AIOLI, Lanes, Fixed, FTL or None, got 3"),
    (lambda: ONS(gamma=0.0), "ONS gamma must be in [1e-10, 1e+10], got 0.0"),
    (lambda: ONS(rho=math.inf), "ONS rho must be in [1e-10, 1e+10], got inf"),
    (lambda: ONS(radius="x"), "ONS radius must be in [1e-10, 1e+10], got 'x'"),
    (lambda: ONS.of_theorem(-1.0), "ONS.of_theorem B must be in [1, 14], got -1.0"),
    (lambda: OGD(diameter=-1.0), "OGD diameter must be in [1e-10, 1e+10], got -1.0"),
    (lambda: AIOLI(lam=math.nan), "AIOLI lam must be in [1e-10, 1e+10], got nan"),
    (lambda: AIOLI.of_theorem(0.0), "AIOLI.of_theorem B must be in [1, 100000], got 0.0"),
    (lambda: Platt(start=(1.0,)), "Platt start must be 2 numbers in [-1e+10, 1e+10], got (1.0,)"),
    (lambda: Platt(start="ab"), "Platt start must be 2 numbers, got 'ab'"),
    (lambda: Beta(start=(1.0, 1.0, math.nan)), "Beta start must be 3 numbers in"),
    (lambda: Temperature(start=1.0), "Temperature start must be 1 numbers, got 1.0"),
    (lambda: Platt(clip=0.0), "Platt clip must be in [1e-15, 0.499], got 0.0"),
    (lambda: Platt(clip=True), "Platt clip must be in [1e-15, 0.499], got True"),
    (lambda: Tracking(bins=0), "Tracking bins must be a whole number in [1, 10000], got 0"),
    (lambda: Tracking(bins=2.5), "Tracking bins must be a whole number in [1, 10000], got 2.5"),
    (lambda: Tracking(prior=-1), "Tracking prior, if not 0, must be in [1e-10, 1e+10], got -1"),
    (lambda: Tracking(prior=None), "Tracking prior, if not 0, must be in [1e-10, 1e+10], got None"),
    (lambda: Method(Beta(), ONS.of_theorem(1.0)), "ONS keeps the parameters in a ball of radius 1, which must"),
    (lambda: Method(Platt(), OGD(radius=0.5)), "start, got (1.0, 0.0) of norm 1"),
    (lambda: ONS(gamma=10**400), "ONS gamma must be in [1e-10, 1e+10], got 1000"),
    (lambda: Hedging(start=["expert"]), "Hedging start must be 'expert' or 'first', got ['expert']"),
    (lambda: Hedging(start="middle"), "Hedging start must be 'expert' or 'first', got 'middle'"),
    (lambda: Hedging(groups=0), "Hedging groups must be a whole number in [1, 1000], got 0"),
    (lambda: Fixed(after=0), "Fixed after must be a whole number in [1, 1000000000], got 0"),
    (lambda: FTL(every=0), "FTL every must be a whole number"),
    (lambda: FTL(window=0), "FTL window must be a whole number"),
    (lambda: Histogram(bins=True), "Histogram bins must be a whole number in [1, 10000], got True"),
    (lambda: Calibrator(OPS, seed="x"), "seed must be a whole number"),
    (lambda: Calibrator(OPS, stream=0.5), "stream must be a whole number"),
    (lambda: Method.from_dict({"features": None}), "an object with features, learner, calibeater, guard, got"),
    (lambda: Method.from_dict([]), "method must be an object with"),
    (lambda: Method.from_dict({**OPS.to_dict(), "learner": {"kind": "adam"}}), "learner must name one of ons, ogd"),
    (lambda: Method.from_dict({**OPS.to_dict(), "learner": {"kind": ["ons"]}}), "learner must name one of ons, ogd"),
    (lambda: Method.from_dict({**OPS.to_dict(), "learner": {"kind": "ons"}}), "ONS must have gamma, radius, rho, got"),
]


@pytest.mark.parametrize(("make", "message"), SENSELESS)
def test_senseless_methods_and_hyper_parameters(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(InvalidInput) as error:
        make()
    assert message in str(error.value)


def test_errors_have_one_root_and_the_builtin_kinds_that_people_catch() -> None:
    kinds = {
        "InvalidInput": ValueError,
        "UnknownMethod": ValueError,
        "UnknownForecast": KeyError,
        "MissingExtra": ImportError,
        "SnapshotMismatch": Exception,
        "OutcomeConflict": Exception,
    }
    for name, builtin in kinds.items():
        error = getattr(calibeat, name)
        assert issubclass(error, CalibeatError)
        assert issubclass(error, builtin)
        assert str(error("a sentence")) == "a sentence"
    assert str(UnknownForecast()) == ""


class Unfinished(Calibrator):
    """A subclass that forgets to call `super().__init__`."""

    def __init__(self) -> None:
        pass


@pytest.mark.parametrize("make", [Unfinished, lambda: Calibrator.__new__(Calibrator)])
def test_a_calibrator_that_was_not_made(make: Callable[[], Calibrator]) -> None:
    """A sentence and not a crash: it has no row."""
    receipt = Calibrator().predict(0.3)
    calls: list[Callable[[Calibrator], Any]] = [
        lambda cal: cal.predict(0.3),
        lambda cal: cal.update(receipt, 1),
        lambda cal: cal.update(Forecast.from_json(receipt.to_json()), 1),
        lambda cal: cal.to_json(),
        lambda cal: cal.params,
    ]
    for call in calls:
        with pytest.raises(InvalidInput, match=r"a subclass must call super\(\).__init__\(\)"):
            call(make())
