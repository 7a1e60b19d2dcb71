"""AUTO when outcomes come late: equal to its reference, the same on every host, and never beyond its certificate."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import auto_oracle
import golden
import numpy as np
import pytest
from conformance import delays, one_by_one_late, same
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from streams import STREAMS

from calibeat import (
    AUTO,
    ONS,
    OPS,
    Bank,
    Beta,
    Calibrator,
    Forecast,
    InvalidInput,
    Lanes,
    Method,
    Platt,
    SnapshotMismatch,
    Spline,
    Tracking,
    bounds,
)
from calibeat.core import layout, receipt
from calibeat.core.kernel import ask, play, settle
from calibeat.core.limits import check_row
from calibeat.core.method import params_of
from calibeat.core.spline import ATOMS, SPLINE_STALENESS, SPLINE_TEMPER
from calibeat.core.weights import Outcome

Vector = NDArray[np.float64]
Due = NDArray[np.int64]

LEAN = replace(AUTO, learner=Lanes(horizon=False))
HORIZON = AUTO.spec.horizon
N = 1000


# ---- equal to the reference --------------------------------------------------------------------------------------


def reordered(n: int) -> Due:
    """Blocks of 40 delivered backwards."""
    at = np.arange(n)
    return at // 40 * 40 + 40 + (39 - at % 40)


PATTERNS: dict[str, Any] = {
    "one late": lambda n: np.arange(n) + 2,
    "seven late": lambda n: np.arange(n) + 8,
    "batches of 25": lambda n: np.arange(n) // 25 * 25 + 25,
    "backwards": reordered,
    "random": lambda n: np.arange(n) + 1 + np.random.default_rng(n).integers(0, 60, n),
    "some never": delays,
    "none ever": lambda n: np.full(n, n),
    "one in twenty": lambda n: np.arange(n) + 1 + 80 * (np.arange(n) % 20 == 7),
    "first at once, then late": lambda n: np.arange(n) + 1 + 30 * (np.arange(n) > n // 2),
    "first late, then at once": lambda n: np.where(np.arange(n) < n // 2, n // 2 + np.arange(n) // 9, np.arange(n) + 1),
}


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("stream", ["random", "drifting", "adversarial", "extreme"])
def test_equal_to_the_reference(stream: str, pattern: str) -> None:
    scores, outcomes = STREAMS[stream]()
    due = PATTERNS[pattern](len(scores))
    cal = Calibrator(AUTO)
    forecasts = cal.run(scores, outcomes, due=due)
    expected, _, row = auto_oracle.run(scores, outcomes, due)
    np.testing.assert_allclose(forecasts, expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(auto_oracle.as_reference(cal.row), row, rtol=1e-9, atol=1e-12)


def test_the_golden_vectors_have_late_outcomes() -> None:
    late = [name for name, g in golden.auto().items() if "due" in g]
    assert len(late) == 18 and all(golden.auto()[name]["row"].shape == (188,) for name in late)


def test_the_first_outcomes_teach_the_splines_what_the_learner_leaves_open() -> None:
    """Forecasts made before anything was known are beginners': the knots learn as if each outcome had come at once.

    Around the experts that were issued, all equal to the score, they would learn the error that OPS learns too.
    """
    scores, outcomes = STREAMS["drifting"]()
    n, method = len(scores), Method(Platt(), ONS(), Spline())
    at_once, late = Calibrator(method), Calibrator(method)
    at_once.run(scores, outcomes)
    late.run(scores, outcomes, due=np.full(n, n), finish=True)
    assert late.outcomes == n
    knots = slice(method.spec.cells + ATOMS, method.spec.cells + SPLINE_STALENESS)
    np.testing.assert_allclose(late.row[knots], at_once.row[knots], rtol=1e-12, atol=1e-14)
    assert np.abs(at_once.row[knots]).sum() > 10.0 and late.params["a"] == at_once.params["a"] != 1.0


def test_a_still_world_is_not_corrected_twice() -> None:
    """A score that is off by three logits, outcomes 1,000 late: AUTO is as good as OPS once they arrive."""
    rng = np.random.default_rng(3)
    x = rng.normal(0.0, 1.0, 4000)
    outcomes = (rng.random(4000) < 1.0 / (1.0 + np.exp(-x))).astype(float)
    scores, due = 1.0 / (1.0 + np.exp(-x - 3.0)), np.arange(4000) + 1001
    loss = {
        name: nats(outcomes[1500:], Calibrator(method).run(scores, outcomes, due=due)[1500:]) / 2500
        for name, method in (("auto", AUTO), ("ops", OPS))
    }
    assert loss["auto"] < loss["ops"] + 0.01


def test_immediate_outcomes_leave_what_is_for_late_ones_alone() -> None:
    cal = Calibrator(AUTO)
    cal.run(*STREAMS["drifting"]())
    fresh = AUTO.initial_row()
    splines = AUTO.spec.cells
    for first, end in (
        (layout.STALENESS, layout.MEAN_LAG + 1),
        (splines + SPLINE_STALENESS, splines + SPLINE_TEMPER + 1),
        (AUTO.spec.horizon, AUTO.width),
    ):
        same(cal.row[first:end].copy(), fresh[first:end])


def test_a_stream_that_is_prompt_again_keeps_its_horizon_lane() -> None:
    """However long ago the last late outcome was: the mean lag may have rounded to nothing."""
    scores, outcomes = STREAMS["random"]()
    cal = Calibrator(AUTO)
    cal.run(scores, outcomes, due=np.arange(len(scores)) + 9)
    row = cal.row.copy()
    row[layout.MEAN_LAG] = 0.0
    state = json.loads(cal.to_json())
    there = auto_oracle.as_reference(row)
    spec, lane = AUTO.spec, np.empty(AUTO.receipt_width)
    for score, outcome in zip(scores.tolist(), outcomes.tolist(), strict=True):
        asked = ask(spec, row, score, lane)
        played = play(spec, row, asked, 0.0, lane)
        settle(spec, row, row[layout.T] + 1.0, asked, played.cell, Outcome(outcome, 1.0, 1.0), lane)
        q = auto_oracle.predict(there, score)
        auto_oracle.update(there, q, outcome)
        assert played.forecast == pytest.approx(q[auto_oracle.R_P], abs=1e-12)
    assert state["method"] == AUTO.to_dict()


# ---- the same on every host --------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [AUTO, LEAN], ids=["auto", "lean"])
@pytest.mark.parametrize("pattern", ["random", "backwards", "some never"])
def test_per_event_is_batch_is_bank_is_resumed(method: Method, pattern: str) -> None:
    scores, outcomes = STREAMS["drifting"]()
    n, due = len(scores), PATTERNS[pattern](len(scores))
    whole = Calibrator(method, seed=1)
    forecasts = whole.run(scores, outcomes, due=due)
    single = Calibrator(method, seed=1)
    same(forecasts, one_by_one_late(single, scores, outcomes, due))
    assert single.to_json() == whole.to_json()
    bank = Bank(method, seed=1)
    same(forecasts, bank.run(["k"] * n, scores, outcomes, due=due))
    same(bank["k"].row.copy(), whole.row.copy())
    # Resumed: a snapshot in the middle, with the receipts of what is under way as JSON and as bytes.
    cal, waiting, arrived, said = Calibrator(method, seed=1), [], 0, []
    order = np.argsort(due, kind="stable")
    for i in range(n):
        if i in (77, 200):
            cal = Calibrator.from_json(cal.to_json())
            waiting = [Forecast.from_bytes(Forecast.from_json(f.to_json()).to_bytes()) for f in waiting]
        while arrived < n and due[order[arrived]] <= i:
            cal.update(waiting[order[arrived]], int(outcomes[order[arrived]]))
            arrived += 1
        waiting.append(cal.predict(float(scores[i])))
        said.append(waiting[-1].probability)
    same(np.array(said), forecasts)
    same(cal.row.copy(), whole.row.copy())


def test_what_the_lean_row_does() -> None:
    """The temper stays; with outcomes at once it is AUTO, bit for bit."""
    scores, outcomes = STREAMS["drifting"]()
    assert AUTO.width - LEAN.width == layout.HORIZON_WIDTH
    same(Calibrator(LEAN).run(scores, outcomes), Calibrator(AUTO).run(scores, outcomes))
    cal = Calibrator(LEAN)
    cal.run(scores, outcomes, due=np.arange(300) + 30)
    assert cal.params["temper"] > 1.0 and cal.params["mean_lag"] > 20.0
    assert "horizon" not in cal.params["lanes"] and sum(cal.params["lanes"].values()) == pytest.approx(1.0)
    assert repr(LEAN.learner) == "Lanes(horizon=False)" and repr(Lanes()) == "Lanes(horizon=True)"
    assert LEAN.to_dict()["learner"] == {"kind": "lanes", "horizon": False}
    assert AUTO.to_dict()["learner"] == {"kind": "lanes", "horizon": True}
    assert Method.from_dict(json.loads(json.dumps(LEAN.to_dict()))) == LEAN
    with pytest.raises(InvalidInput, match=r"Lanes must have horizon, got $"):
        Method.from_dict({**AUTO.to_dict(), "learner": {"kind": "lanes"}})
    with pytest.raises(InvalidInput, match="Lanes horizon must be True or False, got 1"):
        Lanes(horizon=1)  # type: ignore[arg-type]


# ---- what it tells people ----------------------------------------------------------------------------------------


def test_params_tell_of_late_outcomes() -> None:
    scores, outcomes = STREAMS["drifting"]()
    cal = Calibrator(AUTO)
    cal.run(scores, outcomes)
    assert (cal.params["lanes"]["horizon"], cal.params["temper"], cal.params["mean_lag"]) == (0.0, 1.0, 0.0)
    cal.run(scores, outcomes, due=np.arange(300) + 51)
    params = cal.params
    assert 0.0 < params["lanes"]["horizon"] < 1.0
    assert params["temper"] > 1.0 and 10.0 < params["mean_lag"] < 50.0
    assert sum(params["lanes"].values()) == pytest.approx(1.0)
    bank = Bank(AUTO)
    bank.run(["k"] * 300, scores, outcomes, due=np.arange(300) + 51)
    columns = bank.params
    one = bank["k"].params
    assert columns["horizon"][0] == one["lanes"]["horizon"] and columns["mean_lag"][0] == one["mean_lag"]
    assert params_of(AUTO, cal.row.tolist()) == params


def test_an_export_knows_the_horizon_lane() -> None:
    scores, outcomes = STREAMS["drifting"]()
    for method in (AUTO, LEAN, Method(Beta(), Lanes(), Tracking())):
        cal = Calibrator(method)
        cal.run(scores, outcomes, due=np.arange(300) + 20)
        space: dict[str, Any] = {}
        exec(cal.export().python, space)  # noqa: S102 - our own code
        grid = np.concatenate([[0.0, 1e-7, 1.0], np.linspace(0.001, 0.999, 97)])
        np.testing.assert_allclose([space["calibrate"](s) for s in grid], cal.predict_many(grid), rtol=0, atol=1e-12)
        assert ("horizon" in cal.export().numbers) == (method is not LEAN)


# ---- the certificate ---------------------------------------------------------------------------------------------


def nats(outcomes: Vector, forecasts: Vector) -> float:
    return float(-np.log(np.where(outcomes == 1.0, forecasts, 1.0 - forecasts)).sum())


def check_certificate(scores: Vector, outcomes: Vector, due: Due, method: Method = AUTO) -> None:
    """Over the events whose outcomes were learnt: against each lane as issued, and against OPS with the same delays."""
    n = len(scores)
    cal, waiting, arrived = Calibrator(method), [], 0
    order = np.argsort(due, kind="stable")
    for i in range(n):
        while arrived < n and due[order[arrived]] <= i:
            cal.update(waiting[order[arrived]], int(outcomes[order[arrived]]))
            arrived += 1
        waiting.append(cal.predict(float(scores[i])))
    learnt = order[:arrived]
    y, slack = outcomes[learnt], 1e-9 * (1 + len(learnt))
    said = np.array([waiting[i].lanes for i in learnt]).reshape(-1, receipt.RECEIPT_WIDTH)
    lanes, splines, total = bounds.lanes_late(cal), bounds.spline_late(cal), bounds.auto_late(cal)
    expert, loss = nats(y, said[:, receipt.EXPERT]), nats(y, said[:, receipt.FORECAST])
    issued = [*(said[:, receipt.LANE + k] for k in range(4)), np.clip(scores[learnt], 1e-5, 1 - 1e-5)]
    for lane in (*issued, said[:, receipt.PAPER_LANE]):
        assert expert <= nats(y, lane) + lanes + slack
        assert loss <= nats(y, lane) + total + slack
    assert loss <= expert + splines + slack
    ops = Calibrator(OPS).run(scores, outcomes, due=due)[learnt]
    assert loss <= nats(y, ops) + total + slack


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("stream", ["random", "drifting", "adversarial", "all ones", "always wrong"])
def test_never_beyond_its_certificate(stream: str, pattern: str) -> None:
    scores, outcomes = STREAMS[stream]()
    check_certificate(scores, outcomes, PATTERNS[pattern](len(scores)), LEAN if len(pattern) % 3 == 0 else AUTO)


@pytest.mark.parametrize(("period", "delay"), [(20, 10), (40, 20), (80, 20), (60, 60), (7, 50)])
def test_never_beyond_its_certificate_against_an_adversary(period: int, delay: int) -> None:
    """Outcomes that turn round in resonance with the delay: the lanes are always wrong, and so are the weights."""
    rng = np.random.default_rng(period)
    scores = rng.uniform(0.05, 0.95, N)
    outcomes = (np.arange(N) // period % 2).astype(float)
    check_certificate(scores, outcomes, np.arange(N) + 1 + delay)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.floats(0.0, 1.0), st.booleans(), st.integers(1, 40)), min_size=1, max_size=80))
def test_never_beyond_its_certificate_whatever_comes(events: list[tuple[float, bool, int]]) -> None:
    scores, outcomes, delay = map(np.array, zip(*events, strict=True))
    check_certificate(scores, outcomes.astype(float), np.arange(len(scores)) + delay)


def test_the_certificate_is_that_of_immediate_outcomes_where_none_is_late() -> None:
    cal = Calibrator(AUTO)
    cal.run(*STREAMS["random"]())
    assert bounds.auto_late(cal) == pytest.approx(bounds.auto_loss(300), abs=5e-3)
    assert bounds.lanes_late(cal) == pytest.approx(bounds.lanes_loss(300), abs=1e-3)
    assert bounds.spline_late(cal.row) == pytest.approx(bounds.spline_loss(300), abs=1e-3)
    assert bounds.auto_late(Calibrator(AUTO)) == 0.0
    assert bounds.auto_late(Calibrator("gauto")) == 0.0
    for wrong in (Calibrator(OPS), Calibrator(Method(Platt(), ONS(), Spline())), np.zeros(7), 3.0):
        with pytest.raises(InvalidInput, match="bounds of late outcomes need a Calibrator with Lanes and a Spline"):
            bounds.auto_late(wrong)


# ---- rows that cannot be -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (layout.STALENESS, -1.0, "staleness in"),
        (layout.TEMPER, 0.5, "temper in"),
        (layout.TEMPER, 1e9, "temper in"),
        (layout.MEAN_LAG, 1e9, "a mean lag in"),
        (AUTO.spec.cells + SPLINE_TEMPER, 0.0, "temper in"),
        (HORIZON + layout.HORIZON_WEIGHT, 0.9, "weights of lanes that sum to 1"),
        (HORIZON + layout.HORIZON_THETA, 1e10, "parameters of the horizon lane in"),
        (HORIZON + layout.HORIZON_COVARIANCE, -0.1, "covariances of the horizon lane in"),
        (HORIZON + layout.HORIZON_COVARIANCE + 1, 0.9, "covariances of the horizon lane in"),
    ],
)
def test_a_damaged_row_is_refused(at: int, value: float, message: str) -> None:
    cal = Calibrator(AUTO)
    cal.run(*STREAMS["random"](), due=np.arange(300) + 20)
    row = np.array(cal.row)
    check_row(AUTO, row, 300.0)
    row[at] = value
    with pytest.raises(InvalidInput, match=message):
        check_row(AUTO, row, 300.0)
    bank = Bank(AUTO)
    bank.run(["k"], [0.5], [1])
    rows = bank.rows(["k"])
    rows[0, : AUTO.width], rows[0, AUTO.width] = row, 300.0
    with pytest.raises((InvalidInput, SnapshotMismatch), match=message):
        bank.set_rows(["k"], rows)
