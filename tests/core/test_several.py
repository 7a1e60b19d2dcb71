"""Several models: golden numbers, equal to the oracle, laws, the same bits on every way, streams of the worst kind."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import auto_oracle
import golden
import numpy as np
import pytest
import several_oracle as oracle
from conformance import same
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st
from several_streams import STREAMS, Due, Vector, given, halves, holes, play

from calibeat import AUTO, Calibrator, Forecast
from calibeat.core import receipt
from calibeat.core.auto import EPS
from calibeat.core.several import AUTO_CLIP, AUTO_HORIZON, AUTO_WIDTH, Parts, SeveralMethod, auto_spec, parts_of
from calibeat.hosts.receipts import Receipts

HEAD = 6  # of a receipt: n, m, t, p, e_still, e_fast; then AUTO's receipt of each model


def parts(cal: Calibrator) -> Parts:
    assert cal.models is not None
    return parts_of(cal.row, len(cal.models))


# ---- golden numbers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", golden.several())
def test_golden_numbers(name: str) -> None:
    """The state is that before the last outcome: the reference learns none after its last forecast."""
    g = golden.several()[name]
    scores, outcomes, due = g["scores"], g["outcome"].astype(float), g.get("due")
    n, k = scores.shape
    cal = Calibrator(models=k)
    until = n - 1 if due is None else n
    forecasts = cal.run(scores[:until], outcomes[:until], due=due)
    if due is None:
        forecasts = np.append(forecasts, cal.peek(scores[-1]))
    np.testing.assert_allclose(forecasts, g["forecast"], rtol=0, atol=1e-9)
    found = parts(cal)
    layer = [*found.weights, found.stale, found.temper, *found.spline_weights, found.spline_stale, found.spline_temper]
    np.testing.assert_allclose(layer, g["layer"], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.theta, g["theta"], rtol=0, atol=1e-9)
    np.testing.assert_allclose(found.covariance, g["covariance"], rtol=0, atol=1e-9)
    issued, _ = play(Calibrator(models=k), scores, outcomes, due)
    np.testing.assert_allclose([f.expert for f in issued], g["expert"], rtol=0, atol=1e-9)


def test_the_golden_vectors_have_late_outcomes_and_holes() -> None:
    vectors = golden.several()
    assert len(vectors) == 6 and sum("due" in g for g in vectors.values()) == 2
    assert sum(bool(np.isnan(g["scores"]).any()) for g in vectors.values()) >= 1
    assert {g["scores"].shape[1] for g in vectors.values()} == {2, 3, 8}


def test_its_constants_are_those_of_auto() -> None:
    """They are written out, so that the compiler leaves out all that AUTO does not do."""
    assert auto_spec() == AUTO.spec
    assert (AUTO.width, AUTO.spec.clip, AUTO.spec.horizon) == (AUTO_WIDTH, AUTO_CLIP, AUTO_HORIZON)


# ---- equal to the oracle ---------------------------------------------------------------------------------------------

PATTERNS: dict[str, Callable[[int], Due | None]] = {
    "at once": lambda n: None,  # noqa: ARG005
    "seven late": lambda n: np.arange(n) + 8,
    "batches of 25": lambda n: np.arange(n) // 25 * 25 + 25,
    "backwards": lambda n: np.arange(n) // 40 * 40 + 79 - np.arange(n) % 40,
    "random": lambda n: np.arange(n) + 1 + np.random.default_rng(n).integers(0, 90, n),
    "first late, then at once": lambda n: np.where(np.arange(n) < n // 3, n // 3 + np.arange(n) // 9, np.arange(n) + 1),
}


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("k", [2, 3, 5])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_equal_to_the_oracle(pattern: str, k: int, missing: float) -> None:
    scores, outcomes = halves(300, k, seed=10 * k, missing=missing)
    due = PATTERNS[pattern](300)
    cal = Calibrator(models=k)
    forecasts = cal.run(scores, outcomes, due=due)
    expected, _, row = oracle.run(scores, outcomes, due)
    np.testing.assert_allclose(forecasts, expected, rtol=0, atol=1e-11)
    oracle.check_parts(parts(cal), row)
    assert cal.outcomes == row.n


@pytest.mark.parametrize("name", STREAMS)
def test_equal_to_the_oracle_on_hard_streams(name: str) -> None:
    scores, outcomes = STREAMS[name](250, 3)
    scores = holes(scores, 0.3, seed=1)
    due = PATTERNS["random"](250)
    for when in (None, due):
        cal = Calibrator(models=3)
        forecasts = cal.run(scores, outcomes, due=when)
        expected, _, row = oracle.run(scores, outcomes, when)
        np.testing.assert_allclose(forecasts, expected, rtol=0, atol=1e-9)
        oracle.check_parts(parts(cal), row, rtol=1e-6, atol=1e-8)


def test_the_most_models() -> None:
    scores, outcomes = halves(40, 16, missing=0.3)
    cal = Calibrator(models=16)
    forecasts = cal.run(scores, outcomes)
    expected, _, row = oracle.run(scores, outcomes)
    np.testing.assert_allclose(forecasts, expected, rtol=0, atol=1e-11)
    oracle.check_parts(parts(cal), row)


EVENT = st.tuples(st.lists(st.one_of(st.none(), st.floats(0.0, 1.0)), min_size=3, max_size=3), st.booleans())


@settings(max_examples=40, deadline=None)
@drawn(st.lists(st.tuples(EVENT, st.integers(1, 40)), min_size=1, max_size=60))
def test_equal_to_the_oracle_whatever_comes(events: list[Any]) -> None:
    """Also where scores are 0, 1, subnormal or equal, and all but one are missing."""
    rows = [event[0] if any(s is not None for s in event[0]) else [0.5, None, None] for event, _ in events]
    scores = np.array([[math.nan if s is None else s for s in row] for row in rows])
    outcomes = np.array([float(event[1]) for event, _ in events])
    due = np.arange(len(events)) + [delay for _, delay in events]
    cal = Calibrator(models=3)
    expected, _, row = oracle.run(scores, outcomes, due)
    np.testing.assert_allclose(cal.run(rows, outcomes, due=due), expected, rtol=0, atol=1e-9)
    oracle.check_parts(parts(cal), row, rtol=1e-6, atol=1e-8)


def test_what_a_receipt_holds() -> None:
    """n, m, t, p, what the two lanes said, and AUTO's receipt of each model; of a missing one -1 and zeros."""
    scores, outcomes = halves(200, 3)
    cal = Calibrator(models=3)
    cal.run(scores, outcomes)
    row = oracle.run(scores, outcomes)[2]
    event = [0.2, None, 0.7]
    f, q = cal.predict(event), oracle.predict(row, [0.2, math.nan, 0.7])
    width = AUTO.receipt_width
    assert len(f.lanes) == HEAD + 3 * width == SeveralMethod(3).receipt_width and f.score == (0.2, None, 0.7)
    np.testing.assert_allclose(f.lanes[:HEAD], [q.n, q.m, q.t, q.p, q.e[3], q.e[4]], rtol=0, atol=1e-11)
    assert (f.probability, f.expert) == (f.lanes[3], f.lanes[1])
    for j, issued in ((0, q.e[0]), (2, q.e[2])):
        assert f.lanes[HEAD + width * j + receipt.FORECAST] == pytest.approx(issued, abs=1e-11)
    assert f.lanes[HEAD + width : HEAD + 2 * width].count(0.0) == width - 1
    assert -1.0 in f.lanes[HEAD + width : HEAD + 2 * width]


def test_the_width_of_a_row() -> None:
    for k in (2, 3, 8, 16):
        method = SeveralMethod(k)
        assert method.numbers == method.models == k
        assert method.width == 9 + 9 * k * k + 16 * k + 35 + AUTO.width * k == len(Calibrator(models=k).row)


# ---- laws ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", [0.0, 0.4])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_each_model_has_the_auto_that_it_would_have_alone(pattern: str, missing: float) -> None:
    """On the events that have its score, with outcomes at the same times."""
    scores, outcomes = halves(400, 2, missing=missing)
    due = PATTERNS[pattern](400)
    cal = Calibrator(models=2)
    _, learned = play(cal, scores, outcomes, due)
    when = np.arange(400) + 1 if due is None else due
    for j, row in enumerate(parts(cal).autos):
        alone, issued, arrived = Calibrator(), dict[int, Forecast](), 0
        for i in range(401):
            while arrived < len(learned) and when[learned[arrived]] <= i:
                if learned[arrived] in issued:
                    alone.update(issued[learned[arrived]], int(outcomes[learned[arrived]]))
                arrived += 1
            if i < 400 and not np.isnan(scores[i, j]):
                issued[i] = alone.predict(float(scores[i, j]))
        same(auto_oracle.as_reference(row), auto_oracle.as_reference(alone.row))


@pytest.mark.parametrize("late", [False, True])
def test_models_may_be_given_in_any_order(late: bool) -> None:
    scores, outcomes = halves(500, 3, missing=0.2)
    due = np.arange(500) + 30 if late else None
    order = [2, 0, 1]
    one, other = Calibrator(models=["a", "b", "c"]), Calibrator(models=["c", "a", "b"])
    p = one.run(scores, outcomes, due=due)
    np.testing.assert_allclose(other.run(scores[:, order], outcomes, due=due), p, rtol=0, atol=1e-11)
    assert other.params["weights"] == pytest.approx(one.params["weights"], abs=1e-11)
    assert other.params["together"]["fast"]["raw"] == pytest.approx(one.params["together"]["fast"]["raw"], abs=1e-9)
    assert other.params["scores"] == {name: one.params["scores"][name] for name in "cab"}


def test_outcomes_at_once_leave_what_is_for_late_ones_alone() -> None:
    scores, outcomes = halves(400, 2, missing=0.3)
    cal = Calibrator(models=2)
    cal.run(scores, outcomes)
    found = parts(cal)
    assert (found.stale, found.temper, found.spline_stale, found.spline_temper) == (0.0, 1.0, 0.0, 1.0)
    assert found.mean_lag == 0.0
    cal = Calibrator(models=2)
    cal.run(scores, outcomes, due=np.arange(400) + 60)
    found = parts(cal)
    assert found.stale > 0.0 and found.temper > 1.0 and 20.0 < found.mean_lag < 60.0


def test_weights_sum_to_one_and_covariances_are_symmetric() -> None:
    for name, stream in STREAMS.items():
        scores, outcomes = stream(300, 3)
        cal = Calibrator(models=3)
        cal.run(holes(scores, 0.3), outcomes, due=PATTERNS["random"](300))
        found = parts(cal)
        assert found.weights.sum() == pytest.approx(1.0, abs=1e-12), name
        assert found.spline_weights.sum() == pytest.approx(1.0, abs=1e-12), name
        assert (found.covariance == found.covariance.transpose(0, 2, 1)).all(), name
        assert np.linalg.eigvalsh(found.covariance).min() > 0.0, name


def test_two_models_that_know_different_things_are_better_than_each() -> None:
    scores, outcomes = halves(6000, 2)

    def loss(p: Vector) -> float:
        return float(-np.log(np.where(outcomes == 1.0, p, 1.0 - p))[1000:].mean())

    together = loss(Calibrator(models=2).run(scores, outcomes))
    alone = min(loss(Calibrator().run(scores[:, j], outcomes)) for j in range(2))
    mean = loss(Calibrator().run(scores.mean(axis=1), outcomes))
    assert together < alone - 0.02 and together < mean


# ---- the same bits on every way --------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("k", [2, 3])
def test_single_events_are_the_batch(k: int, pattern: str, missing: float) -> None:
    scores, outcomes = halves(260, k, missing=missing)
    due = PATTERNS[pattern](260)
    whole, single = Calibrator(models=k), Calibrator(models=k)
    forecasts = whole.run(scores, outcomes, due=due)
    issued, _ = play(single, scores, outcomes, due)
    same(np.array([f.probability for f in issued]), forecasts)
    assert single.to_json() == whole.to_json()


def test_batches_may_be_cut_anywhere() -> None:
    scores, outcomes = halves(300, 2, missing=0.3)
    whole, pieces = Calibrator(models=2), Calibrator(models=2)
    forecasts = whole.run(scores, outcomes)
    cuts = [slice(0, 1), slice(1, 130), slice(130, 300)]
    same(np.concatenate([pieces.run(scores[cut], outcomes[cut]) for cut in cuts]), forecasts)
    assert pieces.to_json() == whole.to_json()


def test_issue_and_learn_are_batches() -> None:
    scores, outcomes = halves(300, 3, missing=0.3)
    due = np.arange(300) // 50 * 50 + 50
    whole, parted, travelled = (Calibrator(models=3) for _ in range(3))
    forecasts = whole.run(scores, outcomes, due=due, finish=True)
    said = []
    for first in range(0, 300, 50):
        cut = slice(first, first + 50)
        batch = parted.issue(scores[cut])
        said.append(batch.probabilities)
        parted.learn(batch, outcomes[cut])
        batch = travelled.issue(scores[cut])
        copy = Receipts.from_bytes(batch.to_bytes())
        assert copy == batch and copy[7].score == tuple(given(scores[first + 7]))
        travelled.learn(copy, outcomes[cut])
    same(np.concatenate(said), forecasts)
    assert parted.to_json() == travelled.to_json()
    same(parted.row.copy(), whole.row.copy())


@pytest.mark.parametrize("pattern", ["random", "backwards"])
def test_snapshots_and_receipts_that_travel(pattern: str) -> None:
    scores, outcomes = halves(260, 2, missing=0.3)
    due = PATTERNS[pattern](260)
    assert due is not None
    whole = Calibrator(models=2)
    forecasts = whole.run(scores, outcomes, due=due)
    cal, waiting, arrived, said = Calibrator(models=2), list[Forecast](), 0, []
    order = np.argsort(due, kind="stable")
    for i in range(260):
        if i in (77, 200):
            cal = Calibrator.from_json(cal.to_json())
            waiting = [Forecast.from_bytes(Forecast.from_json(f.to_json()).to_bytes()) for f in waiting]
        while arrived < 260 and due[order[arrived]] <= i:
            cal.update(waiting[order[arrived]], int(outcomes[order[arrived]]))
            arrived += 1
        waiting.append(cal.predict(given(scores[i])))
        said.append(waiting[-1].probability)
    same(np.array(said), forecasts)
    same(cal.row.copy(), whole.row.copy())


def test_peek_and_predict_many_say_what_predict_says_and_change_nothing() -> None:
    scores, outcomes = halves(300, 3, missing=0.3)
    cal = Calibrator(models=3)
    cal.run(scores, outcomes)
    before = cal.to_json()
    many = cal.predict_many(scores[:50])
    peeked = np.array([cal.peek(given(row)) for row in scores[:50]])
    assert cal.to_json() == before
    same(many, peeked)
    same(many, np.array([cal.predict(given(row)).probability for row in scores[:50]]))
    assert cal.events == 350 and (parts(cal).weights == parts(Calibrator.from_json(before)).weights).all()


# ---- streams of the worst kind ---------------------------------------------------------------------------------------


def worst(name: str, events: int) -> tuple[Vector, Vector]:
    """Three scores, 30 % of them missing, and outcomes that have broken filters before."""
    rng = np.random.default_rng(0)
    scores, coin = rng.random((events, 3)), (rng.random(events) < 0.5).astype(np.float64)
    outcomes = coin
    match name:
        case "ones":
            outcomes = np.ones(events)
        case "scores 0 and 1, coins":
            scores = (scores < 0.5).astype(np.float64)
        case "constant":
            scores = np.full((events, 3), 0.3)
        case "three equal":
            scores = np.repeat(scores[:, :1], 3, axis=1)
        case "on the edge, rare":
            scores = rng.choice([5e-324, 1 - 1e-16, 2e-5], (events, 3))
            outcomes = (rng.random(events) < 1e-3).astype(np.float64)
        case "ones, then zeros":
            outcomes = (np.arange(events) < events // 2).astype(np.float64)
        case "score 1, always 0":
            scores, outcomes = np.ones((events, 3)), np.zeros(events)
    return holes(scores, 0.3), outcomes


WORST = (
    "ones",
    "scores 0 and 1, coins",
    "constant",
    "three equal",
    "on the edge, rare",
    "ones, then zeros",
    "score 1, always 0",
)


def check_worst(name: str, events: int, late: bool) -> None:
    scores, outcomes = worst(name, events)
    cal, least = Calibrator(models=3), np.inf
    due = np.arange(events) + 1001 if late else None
    slices = [slice(0, events)] if late else [slice(i, i + events // 10) for i in range(0, events, events // 10)]
    for cut in slices:  # outcomes at once: look at the state ten times
        p = cal.run(scores[cut], outcomes[cut], due=due)
        assert p.min() >= EPS and p.max() <= 1.0 - EPS
        assert np.isfinite(p).all() and np.isfinite(cal.row).all()
        least = min(least, np.linalg.eigvalsh(parts(cal).covariance).min())
    assert least > 0.0
    assert parts(cal).weights.min() > 0.0


@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
@pytest.mark.parametrize("name", WORST)
def test_nothing_breaks_it(name: str, late: bool) -> None:
    check_worst(name, 20_000, late)


@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
@pytest.mark.parametrize("name", WORST)
def test_nothing_breaks_it_in_the_long_run(name: str, late: bool) -> None:
    check_worst(name, 300_000, late)
