"""Bad input gets a sentence that says what, requirement, got and where, and leaves everything as it was."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import calibeat
from calibeat import (  # fmt: skip
    AIOLI,
    BM,
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
    OutcomeConflict,
    Platt,
    Temperature,
    Tracking,
    UnknownForecast,
    UnknownMethod,
    bounds,
    metrics,
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
    (np.ma.array([0.1, 0.2], mask=[0, 1]), [0, 1], "score must be a number in [0, 1], got a masked value - at row 1"),
    (np.array([0.1, True], dtype=object), [0, 1], "score must be a number in [0, 1], got bool True - at row 1"),
    ([0.1, None], [0, 1], "score must be a number in [0, 1], got NoneType None - at row 1"),
    ([0.1, 0.2], [0], "arrays must have the same length, got scores 2, outcomes 1"),
    ([[0.1, 0.2]], [0, 1], "scores must be a one-dimensional array, got shape (1, 2)"),
    ([0.1, 0.2], [[0], [1]], "outcomes must be a one-dimensional array, got shape (2, 1)"),
    ([[0.1], [0.2, 0.3]], [0, 1], "scores must be a one-dimensional array, got a ragged list"),
    (0.1, 1, "scores must be a one-dimensional array, got shape ()"),
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


@pytest.mark.parametrize(("due", "message"), [
    ([1, 1], "due must be later than its own position 1, got 1 - at row 1"),
    ([0, 2], "due must be later than its own position 0, got 0 - at row 0"),
    ([1], "arrays must have the same length, got scores 2, due 1"),
    ([1.0, 2.0], "due must be a one-dimensional array of whole numbers, got 1 dimensions of float64"),
    ([[1, 2]], "due must be a one-dimensional array of whole numbers, got 2 dimensions of int64"),
    ([[1], [2, 3]], "due must be a one-dimensional array of whole numbers, got [[1], [2, 3]]"),
])  # fmt: skip
def test_due(cal: Calibrator, due: Any, message: str) -> None:
    refused(cal, lambda: cal.run([0.1, 0.2], [0, 1], due=due), message)


def test_late_outcomes_that_are_bad(cal: Calibrator) -> None:
    refused(cal, lambda: cal.run([0.1, 0.2], [math.nan, 1], due=[1, 2]), "outcome must be 0 or 1, got nan - at row 0")
    refused(cal, lambda: cal.run([0.1, 0.2], [1], due=[1, 2]), "arrays must have the same length")
    cal.run([0.1, 0.2], [1, math.nan], due=[1, 2**63 - 1])  # this one never arrives, so nobody looks at it
    cal.run([0.1, 0.2], [1, math.nan], due=np.array([1, 2**64 - 1], dtype=np.uint64))
    for nothing in (None, "?", math.inf):
        cal.run([0.1, 0.2], [1, nothing], due=[1, 2])


# ---- receipts ----------------------------------------------------------------------------------------------------


def test_foreign_receipts(cal: Calibrator) -> None:
    for other in (Calibrator(OPS), Calibrator(TOPS, seed=1), Calibrator(TOPS, stream="paris")):
        foreign = other.predict(0.5)
        refused(cal, lambda f=foreign: cal.update(f, 1), "made by another method, seed or stream", UnknownForecast)
    twin = Calibrator(TOPS)
    foreign = twin.predict(0.5)
    refused(cal, lambda: cal.update(foreign, 1), "got one that its twin has made - at event 0", UnknownForecast)
    late = Forecast.from_dict({**foreign.to_dict(), "event": 3})
    refused(cal, lambda: cal.update(late, 1), "the 3 that this calibrator has made, got event 3", UnknownForecast)
    for thing in (0.5, None, tuple(foreign), "x"):
        refused(cal, lambda t=thing: cal.update(t, 1), "forecast must be a Forecast made by predict, got")
    twin.update(foreign, 1)  # after all that it is still good at home


def test_receipts_of_a_twin_are_told_from_those_of_an_ancestor() -> None:
    parent = Calibrator(TOPS)
    before = parent.predict(0.5)
    child = Calibrator.from_json(parent.to_json())
    after = parent.predict(0.5)
    child.predict(0.5)
    refused(child, lambda: child.update(after, 1), "got one that its twin has made - at event 1", UnknownForecast)
    child.update(before, 1)
    assert child.outcomes == 1


def test_more_outcomes_than_forecasts(cal: Calibrator) -> None:
    """A receipt that travels as JSON is a new object each time; what can be noticed without remembering all is this."""
    text = cal.predict(0.5).to_json()
    cal.update(Forecast.from_json(text), 1)
    refused(
        cal, lambda: cal.update(Forecast.from_json(text), 1), "got one more than the 4 forecasts - at event 3",
        OutcomeConflict,
    )  # fmt: skip


def test_an_outcome_learnt_before_the_snapshot_was_restored_can_be_learnt_again() -> None:
    cal = Calibrator(OPS)
    forecast, text = cal.predict(0.9), cal.to_json()
    cal.update(forecast, 0)
    restored = Calibrator.from_json(text)
    restored.update(forecast, 0)
    assert restored.to_json() == cal.to_json()
    restored.update(forecast, 0)  # each of them knows what it has learnt itself
    cal.update(forecast, 0)
    assert restored.outcomes == cal.outcomes == 1


def test_second_outcomes(cal: Calibrator) -> None:
    forecast = cal.predict(0.5)
    cal.update(forecast, 1)
    before = cal.to_json()
    cal.update(forecast, 1)
    assert cal.to_json() == before
    refused(cal, lambda: cal.update(forecast, 0), "the one already learnt, 1, got 0 - at event 3", OutcomeConflict)


def test_receipts_that_were_edited_on_the_way(cal: Calibrator) -> None:
    alive = cal.predict(0.5)
    receipt = alive.to_dict()
    for field, value, message, kind in [
        ("cell", 10, "forecast cell must be a whole number in [0, 9], got 10", InvalidInput),
        ("score", 7.0, "score must be in [0, 1], got 7.0", InvalidInput),
        ("event", 4, "one of the 4 that this calibrator has made, got event 4", UnknownForecast),
        ("issuer", "me", "made by another method, seed or stream", UnknownForecast),
    ]:
        edited = Forecast.from_dict({**receipt, field: value})
        assert alive._replace(**{field: value}) == edited
        refused(cal, lambda f=edited: cal.update(f, 1), message, kind)
    for field, value, message in [
        ("cell", -1, "forecast cell must be a whole number in [0, 9223372036854775807], got -1"),
        ("cell", 2.5, "forecast cell must be a whole number"),
        ("cell", math.inf, "forecast cell must be a whole number"),
        ("bin", True, "forecast bin must be a whole number"),
        ("score", math.nan, "forecast score must be a finite number, got nan"),
        ("score", "0.5", "forecast score must be a finite number, got '0.5'"),
        ("expert", True, "forecast expert must be a finite number, got True"),
        ("issuer", 7, "forecast issuer must be a string, got 7"),
        ("candidates", 7, "forecast candidates must be pairs, got 7"),
        ("candidates", [[0.5, "1"]], "forecast candidate must be a finite number, got '1'"),
    ]:
        with pytest.raises(InvalidInput) as error:
            Forecast.from_dict({**receipt, field: value})
        assert message in str(error.value)
    cal.update(Forecast.from_dict(receipt), 1)
    raw = Calibrator(BM)
    edited = Forecast.from_dict({**raw.predict(0.5).to_dict(), "cell": 99})
    raw.update(edited, 1)  # there is no cell to play


def test_receipts_made_by_hand_are_looked_at_like_those_that_travelled() -> None:
    """Whatever a live receipt is copied or edited into, it is not alive: what it says is checked, and then believed."""
    edits: list[Callable[[Forecast], Forecast]] = [
        lambda f: f._replace(score=0.1),
        lambda f: Forecast(**{**f._asdict(), "score": 0.1}),
        lambda f: Forecast._make([f[0], 0.1, *f[2:]]),
    ]
    for method in (OPS, TOPS):
        for edit in edits:
            results = []
            for others in (0, 1):  # the latest forecast, or not the latest
                cal = Calibrator(method)
                receipt = cal.predict(0.9)
                for _ in range(others):
                    cal.predict(0.5)
                cal.update(edit(receipt), 1)
                results.append(cal.predict_many([0.9])[0])
            assert results[0] == results[1]
    auto = Calibrator()  # its mixture was asked about another score
    receipt = auto.predict(0.9)
    for edit in [*edits, lambda f: Forecast(*f[:9])]:
        edited = edit(receipt)
        refused(auto, lambda f=edited: auto.update(f, 1), "forecast must remember the 12 numbers")
    auto.predict(0.5)
    tops = Calibrator(TOPS)
    receipt = tops.predict(0.9)
    edited = Forecast(*receipt[:7], 10**6, *receipt[8:])
    refused(tops, lambda: tops.update(edited, 1), "forecast cell must be a whole number in [0, 9], got 1000000")


@pytest.mark.parametrize("text", [
    "", "{", "[]", "3", "[" * 100_000, None, '{"probability": 0.5}',
    Calibrator(OPS).predict(0.5).to_json().replace("0.5", '"x"', 1),
    Calibrator(OPS).predict(0.5).to_json().replace("[[0.5, 1.0]]", "7"),
])  # fmt: skip
def test_receipts_that_were_damaged_on_the_way(text: str) -> None:
    with pytest.raises(InvalidInput, match="forecast"):
        Forecast.from_json(text)


# ---- methods -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "message"), [
    ("topps", "method must be one of the presets, got 'topps' - did you mean 'tops'?"),
    ("ons", "got 'ons' - did you mean 'ops'?"),
    ("zebra crossing", "got 'zebra crossing' - there are auto, bm, ops, tops"),
    (7, "method must be a Method or the name of a preset, got int 7"),
    (Platt(), "method must be a Method or the name of a preset, got Platt"),
])  # fmt: skip
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
    (lambda: Method.from_dict({"features": None}), "method must be an object with features, learner, calibeater, got"),
    (lambda: Method.from_dict([]), "method must be an object with"),
    (lambda: Method.from_dict({**OPS.to_dict(), "learner": {"kind": "adam"}}), "learner must name one of ons, ogd"),
    (lambda: Method.from_dict({**OPS.to_dict(), "learner": {"kind": ["ons"]}}), "learner must name one of ons, ogd"),
    (lambda: Method.from_dict({**OPS.to_dict(), "learner": {"kind": "ons"}}), "ONS must have gamma, radius, rho, got"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), SENSELESS)
def test_senseless_methods_and_hyper_parameters(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(InvalidInput) as error:
        make()
    assert message in str(error.value)


# ---- metrics and bounds ------------------------------------------------------------------------------------------

FUNCTIONS = [
    metrics.calibration_error, metrics.sharpness, metrics.refinement, metrics.brier_score, metrics.log_loss,
    metrics.accuracy, metrics.reliability_curve, metrics.true_calibration_error, metrics.true_accuracy,
]  # fmt: skip


@pytest.mark.parametrize("metric", FUNCTIONS, ids=lambda metric: metric.__name__)
def test_metrics(metric: Callable[..., Any]) -> None:
    for arguments, message in [
        (([0, 1], [0.5]), "arrays must have the same length, got"),
        (([], []), "arrays must not be empty"),
        (([0, 1], [0.5, 1.5]), "forecast must be in [0, 1], got 1.5 - at row 1"),
        (([0, 7], [0.5, 0.5]), "got 7.0 - at row 1"),
        (([0, 1], [[0.5, 0.5]]), "forecasts must be a one-dimensional array"),
    ]:
        with pytest.raises(InvalidInput) as error:
            metric(*arguments)
        assert message in str(error.value)


WRONG_OPTIONS: list[tuple[Callable[[], Any], str]] = [
    (lambda: metrics.calibration_error([0], [0.5], bins=0), "bins must be a whole number in [1, 10000000], got 0"),
    (lambda: metrics.calibration_error([0], [0.5], norm="l3"), "norm must be 'l1' or 'l2' or 'max', got 'l3'"),
    (lambda: metrics.log_loss([0], [0.5], clip=0.5), "clip must be in [0, 0.499], got 0.5"),
    (lambda: metrics.accuracy([0], [0.5], threshold=2), "threshold must be in [0, 1], got 2"),
    (lambda: metrics.regret(BM, [0.5], [0], [0.5], 1.0), "regret is against the parameters of a Platt()"),
    (lambda: metrics.regret(OPS, [0.5], [0], [0.5], 0.0), "radius must be in [1e-10, 1e+10], got 0.0"),
    (lambda: metrics.regret(OPS, [0.5, 0.5], [0], [0.5], 1.0), "arrays must have the same length, got scores 2"),
    (lambda: bounds.ons_regret(0.5, 100), "B must be in [1, 700], got 0.5"),
    (lambda: bounds.aioli_regret(1.0, 9), "T must be a whole number in [10, 1000000000000000], got 9"),
    (lambda: bounds.hops_calibration(0.0, 9), "eps must be in [1e-12, 1], got 0.0"),
    (lambda: bounds.tops_sharpness(True, 9), "eps must be in [1e-12, 1], got True"),
    (lambda: bounds.hops_brier(0.1, 0), "T must be a whole number in [1, 1000000000000000], got 0"),
    (lambda: bounds.best_epsilon(100, None), "bound must be one of tops_sharpness"),
    (lambda: metrics.regret(Platt, [0.5], [0], [0.5], 1.0), "regret is against the parameters of a Platt()"),
    (lambda: bounds.best_epsilon(100, "ops"), "bound must be one of tops_sharpness, hops_sharpness"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), WRONG_OPTIONS)
def test_wrong_options(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(InvalidInput) as error:
        call()
    assert message in str(error.value)


def test_errors_have_one_root_and_the_builtin_kinds_that_people_catch() -> None:
    kinds = {
        "InvalidInput": ValueError, "UnknownMethod": ValueError, "UnknownForecast": KeyError,
        "MissingExtra": ImportError, "SnapshotMismatch": Exception, "OutcomeConflict": Exception,
    }  # fmt: skip
    for name, builtin in kinds.items():
        error = getattr(calibeat, name)
        assert issubclass(error, CalibeatError)
        assert issubclass(error, builtin)
        assert str(error("a sentence")) == "a sentence"
    assert str(UnknownForecast()) == ""
