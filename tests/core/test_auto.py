"""AUTO equals its reference implementation, keeps its guarantee, and survives what no stream should contain."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import auto_oracle
import golden
import numpy as np
import pytest
from conformance import delays, same
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from streams import STREAMS

from calibeat import (
    AUTO,
    FTL,
    HOPS,
    ONS,
    OPS,
    Beta,
    Calibrator,
    Forecast,
    Histogram,
    InvalidInput,
    Lanes,
    Method,
    Platt,
    Spline,
    bounds,
)
from calibeat.core import layout
from calibeat.core.auto import EPS, LANE_NAMES, paper_step
from calibeat.core.spline import SPLINE_STALENESS, SPLINE_TEMPER
from calibeat.core.weights import one_event

Vector = NDArray[np.float64]

LANES = Method(Beta(), Lanes())

# ---- equal to the reference --------------------------------------------------------------------------------------


@pytest.mark.parametrize("late", [False, True], ids=["immediate", "late"])
@pytest.mark.parametrize("stream", STREAMS)
def test_equal_to_the_reference(stream: str, late: bool) -> None:
    scores, outcomes = STREAMS[stream]()
    due = delays(len(scores)) if late else None
    cal = Calibrator(AUTO)
    forecasts = cal.run(scores, outcomes, due=due)
    expected, _, row = auto_oracle.run(scores, outcomes, due)
    np.testing.assert_allclose(forecasts, expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(auto_oracle.as_reference(cal.row), row, rtol=1e-9, atol=1e-12)


unit = st.floats(0.0, 1.0)


@settings(max_examples=40)
@given(st.lists(st.tuples(unit, st.booleans(), st.integers(1, 30)), min_size=1, max_size=60))
def test_equal_to_the_reference_whatever_comes(events: list[tuple[float, bool, int]]) -> None:
    scores, outcomes, delay = map(np.array, zip(*events, strict=True))
    due = np.arange(len(scores)) + delay
    forecasts = Calibrator(AUTO).run(scores, outcomes, due=due)
    expected, _, _ = auto_oracle.run(scores, outcomes.astype(float), due)
    np.testing.assert_allclose(forecasts, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", golden.auto())
def test_golden(name: str) -> None:
    g = golden.auto()[name]
    cal, due = Calibrator(AUTO), g.get("due")
    forecasts = cal.run(g["score"], g["outcome"], due=due)
    np.testing.assert_allclose(forecasts[g["idx"]], g["forecast"], rtol=0, atol=1e-12)
    row = auto_oracle.as_reference(cal.row)[: len(g["row"])]
    shared = 147 if due is None else len(row)  # the vectors of outcomes at once are older than what is behind
    np.testing.assert_allclose(row[36:42], g["weights"][:6], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(row[:shared], g["row"][:shared], rtol=1e-9, atol=1e-12)
    # The lanes do not know what the spline makes of them: without it, they are the expert.
    experts = Calibrator(LANES).run(g["score"], g["outcome"], due=due)
    np.testing.assert_allclose(experts[g["idx"]], g["expert"], rtol=0, atol=1e-12)


def test_the_expert_on_a_receipt_is_the_mixture() -> None:
    scores, outcomes = STREAMS["drifting"]()
    cal, experts = Calibrator(AUTO), []
    for score, outcome in zip(scores.tolist(), outcomes, strict=True):
        forecast = cal.predict(score)
        experts.append(forecast.expert)
        cal.update(forecast, int(outcome))
    same(np.array(experts), Calibrator(LANES).run(scores, outcomes))


# ---- the guarantee -----------------------------------------------------------------------------------------------


def nats(outcomes: Vector, forecasts: Vector) -> float:
    return float(-np.log(np.where(outcomes == 1.0, forecasts, 1.0 - forecasts)).sum())


def opposite(forecast: Forecast) -> bool:
    return forecast.probability <= 0.5


def opposite_of_lanes(forecast: Forecast) -> bool:
    """Against each lane in turn, so that the weights never come to rest."""
    return forecast.lanes[2 + forecast.event // 50 % 4] <= 0.5


def replayed(scores: Vector, answer: Callable[[Forecast], bool]) -> tuple[Vector, Vector, Vector]:
    """Outcomes, forecasts, and what each lane and the expert said: columns e0..e3, raw, ONS, expert."""
    cal, outcomes, forecasts, said = Calibrator(AUTO), [], [], []
    for score in scores.tolist():
        forecast = cal.predict(score)
        _, _, *lanes, paper, expert, _, _, p, _ = forecast.lanes
        said.append([*lanes, min(max(score, 1e-5), 1.0 - 1e-5), paper, expert])
        forecasts.append(p)
        outcomes.append(float(answer(forecast)))
        cal.update(forecast, int(outcomes[-1]))
    return np.array(outcomes), np.array(forecasts), np.array(said)


def check_guarantee(scores: Vector, answer: Callable[[Forecast], bool]) -> None:
    outcomes, forecasts, said = replayed(scores, answer)
    T, slack = len(scores), 1e-9
    loss, expert = nats(outcomes, forecasts), nats(outcomes, said[:, 6])
    for lane in range(6):
        assert expert <= nats(outcomes, said[:, lane]) + bounds.lanes_loss(T) + slack, LANE_NAMES[lane]
    assert loss <= expert + bounds.spline_loss(T) + slack
    ops = Calibrator(OPS).run(scores, outcomes)
    assert loss <= nats(outcomes, ops) + bounds.auto_loss(T) + slack
    assert loss <= nats(outcomes, np.clip(scores, 1e-5, 1 - 1e-5)) + bounds.auto_loss(T) + slack


@pytest.mark.parametrize("stream", STREAMS)
def test_never_much_worse_than_any_lane(stream: str) -> None:
    scores, outcomes = STREAMS[stream]()
    check_guarantee(scores, lambda forecast: outcomes[forecast.event] == 1.0)


@pytest.mark.parametrize("answer", [opposite, opposite_of_lanes])
def test_never_much_worse_than_any_lane_against_an_adversary(answer: Callable[[Forecast], bool]) -> None:
    check_guarantee(np.random.default_rng(3).uniform(0.01, 0.99, 3000), answer)


@settings(max_examples=40)
@given(st.lists(st.tuples(unit, st.booleans()), min_size=1, max_size=200))
def test_never_much_worse_than_any_lane_whatever_comes(events: list[tuple[float, bool]]) -> None:
    scores, outcomes = map(np.array, zip(*events, strict=True))
    check_guarantee(scores, lambda forecast: bool(outcomes[forecast.event]))


def test_better_than_the_paper_under_drift() -> None:
    scores, outcomes = golden.abrupt()["score"], golden.abrupt()["outcome"].astype(float)
    auto, ops = (nats(outcomes, Calibrator(method).run(scores, outcomes)) for method in (AUTO, OPS))
    assert auto < ops - 50.0


# ---- what no stream should contain -------------------------------------------------------------------------------

STEPS = 20_000
rng = np.random.default_rng(6)
coins = (rng.random(STEPS) < 0.5).astype(float)
half = np.arange(STEPS) < STEPS // 2

NASTY: dict[str, tuple[Vector, Vector]] = {
    "iid": (rng.random(STEPS), coins),
    "scores 0 and 1 with coins": ((rng.random(STEPS) < 0.5).astype(float), coins),
    "always 1": (rng.random(STEPS), np.ones(STEPS)),
    "sure and always wrong": (np.ones(STEPS), np.zeros(STEPS)),
    "all scores equal": (np.full(STEPS, 0.3), coins),
    "one half, alternating": (np.full(STEPS, 0.5), (np.arange(STEPS) % 2).astype(float)),
    "tiny and huge": (rng.choice([5e-324, 1 - 1e-16, 2e-5], STEPS), coins),
    "rare": (np.full(STEPS, 1e-4), (rng.random(STEPS) < 1e-4).astype(float)),
    "inside the clip": (np.full(STEPS, 1.1e-5), coins),
    "ones, then zeros": (rng.random(STEPS), half.astype(float)),
    "two scores almost equal": (np.where(coins == 1.0, 0.3, np.nextafter(0.3, 1)), 1.0 - coins),
}


def check_sound(row: Vector) -> None:
    assert np.isfinite(row).all()
    for k in range(4):
        aa, ac, ab, cc, cb, bb = row[layout.VAR_A + k : layout.WEIGHT : 4]
        P = np.array([[aa, ac, ab], [ac, cc, cb], [ab, cb, bb]])
        assert aa > 0.0 and aa * cc - ac * ac > 0.0 and np.linalg.det(P) > 0.0
        assert np.linalg.eigvalsh(P)[0] > 0.0
    late, spline = row[AUTO.spec.horizon :], row[AUTO.spec.cells :]
    weights = row[layout.WEIGHT : layout.OPS_A]
    if late[layout.HORIZON_WEIGHT] != 0.0:
        weights = np.append(weights, late[layout.HORIZON_WEIGHT])
    assert (weights > 0.0).all() and abs(weights.sum() - 1.0) < 1e-12
    horizon = np.zeros((7, 7))
    horizon[np.triu_indices(7)] = late[layout.HORIZON_COVARIANCE :]
    assert np.linalg.eigvalsh(horizon + np.triu(horizon, 1).T)[0] > 0.0
    assert 1.0 <= row[layout.TEMPER] <= 1.0 + row[layout.STALENESS]
    assert 1.0 <= spline[SPLINE_TEMPER] <= 1.0 + spline[SPLINE_STALENESS]


@pytest.mark.parametrize("late", [False, True], ids=["immediate", "late"])
@pytest.mark.parametrize("name", NASTY)
def test_nothing_breaks_it(name: str, late: bool) -> None:
    scores, outcomes = NASTY[name]
    due = np.arange(1, STEPS + 1) // 1000 * 1000 + 1000 if late else None  # in blocks, the oldest 1000 late
    cal = Calibrator(AUTO)
    forecasts = cal.run(scores, outcomes, due=due)
    assert ((forecasts >= EPS) & (forecasts <= 1.0 - EPS)).all()
    check_sound(cal.row)


def test_an_adversary_does_not_break_it() -> None:
    cal = Calibrator(AUTO)
    for score in np.random.default_rng(1).random(2000).tolist():
        forecast = cal.predict(score)
        assert EPS <= forecast.probability <= 1.0 - EPS
        cal.update(forecast, int(forecast.probability <= 0.5))
    check_sound(cal.row)


def test_a_thousand_ones_are_forgotten_quickly() -> None:
    cal = Calibrator(AUTO)
    cal.run(np.full(1000, 0.7), np.ones(1000))
    cal.run(np.full(30, 0.7), np.zeros(30))
    assert cal.predict(0.7).probability < 0.5


def test_the_ball_of_the_papers_lane_holds() -> None:
    """No stream has ever brought it there, so it is asked directly."""
    row = Calibrator(AUTO).row.copy()
    row[layout.OPS_A : layout.STALENESS] = 100.0, 0.0, 1e-6, 0.0, 1e-6
    paper_step(row, 3.0, 0.5, one_event(1.0))
    assert math.hypot(row[layout.OPS_A], row[layout.OPS_B]) <= 100.0 * (1.0 + 1e-12)


# ---- what it tells people ----------------------------------------------------------------------------------------


def test_auto_is_the_default() -> None:
    assert Calibrator().method == AUTO == Method(Beta(), Lanes(), Spline())
    assert repr(Calibrator("auto")) == "Calibrator(AUTO, events=0, outcomes=0)"
    assert AUTO.width == 178 and Method(Beta(), Lanes(horizon=False), Spline()).width == 178 - layout.HORIZON_WIDTH


def test_params_say_what_it_believes() -> None:
    cal = Calibrator()
    lanes = dict.fromkeys(LANE_NAMES, 1 / 6) | {"horizon": 0.0}
    assert cal.params == {"a": 1.0, "b": 0.0, "c": 0.0, "lanes": lanes, "mean_lag": 0.0, "temper": 1.0}
    rng = np.random.default_rng(0)
    logit = rng.normal(0, 2, 5000)
    scores = 1 / (1 + np.exp(-logit))
    cal.run(scores, rng.random(5000) < 1 / (1 + np.exp(-0.5 * logit - 1.0)))
    assert cal.params["a"] == pytest.approx(0.5, abs=0.1)
    assert cal.params["b"] == pytest.approx(1.0, abs=0.2)
    assert max(cal.params["lanes"], key=cal.params["lanes"].get) == "still"
    assert sum(cal.params["lanes"].values()) == pytest.approx(1.0)
    assert not cal.on_the_ball
    json.dumps(cal.params)


def test_lanes_see_the_world_move() -> None:
    rng = np.random.default_rng(0)
    n = 6000
    logit = rng.normal(0, 1, n)
    level = 3.0 * np.sign(np.sin(np.arange(n) / 60.0))
    cal = Calibrator()
    cal.run(1 / (1 + np.exp(-logit)), rng.random(n) < 1 / (1 + np.exp(-logit - level)))
    lanes = cal.params["lanes"]
    assert lanes["fast"] + lanes["level only"] > 0.9


@pytest.mark.parametrize("method", [AUTO, LANES, Method(Platt(), ONS(), Spline())])
def test_evidence_is_the_log_likelihood_ratio(method: Method) -> None:
    for scores, outcomes in (STREAMS["drifting"](), NASTY["sure and always wrong"]):
        cal = Calibrator(method)
        forecasts = cal.run(scores, outcomes)
        ratio = nats(outcomes, np.clip(scores, 1e-5, 1 - 1e-5)) - nats(outcomes, np.clip(forecasts, EPS, 1 - EPS))
        assert cal.evidence == pytest.approx(ratio, abs=1e-9 * len(scores))


def test_no_false_alarm_and_a_true_one() -> None:
    rng = np.random.default_rng(5)
    right = wrong = 0
    for _ in range(40):
        scores = rng.random(150)
        right += ever_alarmed(scores, rng.random(150) < scores)
        wrong += ever_alarmed(scores, rng.random(150) < 0.5 * scores)
    assert right <= 4  # 2 expected at most, by Ville
    assert wrong >= 36


def ever_alarmed(scores: Vector, outcomes: NDArray[np.bool_]) -> bool:
    cal = Calibrator()
    for score, outcome in zip(scores.tolist(), outcomes.tolist(), strict=True):
        cal.update(cal.predict(score), outcome)
        if cal.evidence >= math.log(20.0):
            return True
    return False


def test_scores_beyond_the_clip_that_are_right_raise_no_alarm() -> None:
    """An exact zero that never happens, or one in a million that happens so often, is no evidence against the score."""
    rng = np.random.default_rng(1)
    n = 200_000
    for scores in (np.zeros(n), np.full(n, 1e-6), 10.0 ** rng.uniform(-8, -5, n)):
        for s, y in ((scores, rng.random(len(scores)) < scores), (1.0 - scores, rng.random(len(scores)) >= scores)):
            cal = Calibrator(AUTO)
            cal.run(s, y)
            assert cal.evidence < 0.0


def test_evidence_against_a_score_that_was_sure_and_wrong_is_finite() -> None:
    cal = Calibrator(AUTO)
    cal.run([0.0, 1.0] * 3, [1, 0] * 3)
    assert 10.0 < cal.evidence < 100.0


# ---- what it refuses ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Method(Platt(), Lanes()),
            "Lanes needs Beta features that start at the identity (1.0, -1.0, 0.0), got Pl",
        ),
        (lambda: Method(Beta(start=(1.0, 1.0, 0.0)), Lanes()), "identity (1.0, -1.0, 0.0), got Beta(start=(1.0, 1.0"),
        (
            lambda: Method(None, Lanes()),
            "Lanes needs Beta features that start at the identity (1.0, -1.0, 0.0), got None",
        ),
        (lambda: Method(Beta(clip=0.1), Lanes()), "Lanes needs Beta features with a clip of at most 0.002, got 0.1"),
        (
            lambda: Method(None, None, Spline()),
            "Spline needs a scaling to correct (Platt, Beta or Temperature), got None",
        ),
        (lambda: Method(Histogram(), FTL(), Spline()), "(Platt, Beta or Temperature), got Histogram"),
        (lambda: Method(Beta(), Spline()), "Spline belongs in the calibeater of a method, got it as learner"),
        (
            lambda: Calibrator(HOPS).evidence,
            "evidence must be kept by a method with Lanes or a Spline, such as AUTO, got",
        ),
        (lambda: Calibrator(OPS).evidence, "such as AUTO, got ops"),
        (lambda: bounds.auto_loss(0), "T must be a whole number"),
        (lambda: bounds.lanes_loss(1.5), "T must be a whole number"),
        (lambda: bounds.spline_loss(-1), "T must be a whole number"),
    ],
)
def test_parts_that_do_not_fit_are_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(InvalidInput) as error:
        make()
    assert message in str(error.value)
