"""The oracle against numbers by hand, and what its fits must fulfil.

That it has the golden numbers follows: the library has them (`test_golden.py`), and on the same streams the oracle
forecasts what the library forecasts (`test_against_oracle.py`).
"""

from __future__ import annotations

from math import exp, log

import golden
import numpy as np
import oracle
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from calibeat import AIOLI, FTL, OGD, ONS, Beta, Fixed, Hedging, Histogram, Method, Platt, Temperature, Tracking


@pytest.mark.parametrize(("stem", "array"), golden.KNIFE_EDGES)
def test_a_knife_edge_rests_exactly_on_an_edge(stem: str, array: str) -> None:
    """So that what follows in its bin is left out of the golden comparison for a reason."""
    g, m = golden.load(stem), int(array[4:])
    event, cell, ones, count = golden.KNIFE_EDGES[stem, array]
    expert, keep = golden.hedgeable(stem, array, m)
    keep = keep[keep < event]
    # A NaN draw stands for a deterministic step; the oracle raises if it needs one.
    result = oracle.run(Method(calibeater=Hedging(m)), expert[keep], g["y"][keep], draws=g[f"{array}_u"][keep])
    cells = zip(result.bins, result.played, g["y"][keep], strict=True)
    mine = [outcome for b, played, outcome in cells if b == oracle.bin_of(expert[event], m) and played == cell]
    assert (sum(mine), len(mine)) == (ones, count)
    assert ones * m in (cell * count, (cell + 1) * count)


# ----------------------------------------------------------------------------------------------------------- by hand


def test_bins_by_hand() -> None:
    assert [oracle.bin_of(p, 10) for p in (0.0, 0.05, 0.1, 0.3, 0.6, 0.7, 0.999, 1.0)] == [0, 0, 1, 3, 6, 7, 9, 9]
    for m in range(1, 60):
        for k in range(1, m):
            assert oracle.bin_of(k / m, m) == k
            assert oracle.bin_of(np.nextafter(k / m, 0), m) == k - 1


def test_ons_by_hand() -> None:
    # Temperature, start 1, score 0.8: x = log 4. rho = 1, gamma = 2.
    # t=1: expert 0.8, y = 1: g = -0.2 log 4, A = 1 + g^2, theta = 1 - g / (2 A).
    x, y = log(4), 1
    g = -0.2 * x
    theta = 1 - g / (2 * (1 + g * g))  # 1 + 0.138629 / 1.076872 = 1.128733
    result = oracle.run(Method(Temperature(), ONS(2.0, 1.0, 100.0)), [0.8, 0.8], [y, 0])
    assert_allclose(np.ravel(result.params), [1.0, theta], atol=1e-15)
    assert theta == pytest.approx(1.128733, abs=1e-6)
    assert_allclose(result.forecasts, [0.8, 1 / (1 + exp(-theta * x))], atol=1e-15)
    # In one dimension the projection is a cut: with radius 1.05 the same step ends there.
    result = oracle.run(Method(Temperature(), ONS(2.0, 1.0, 1.05)), [0.8, 0.8], [y, 0])
    assert result.params[1] == pytest.approx((1.05,), abs=1e-14)


def test_ogd_by_hand() -> None:
    # Platt at (0, 0), D/G = 0.5, score 0.5: x = (0, 1), expert 0.5.
    # y = 1: theta = 0 + 0.5 * 0.5 * (0, 1) = (0, 0.25); y = 0: step 0.5 / sqrt 2, g = sigmoid(0.25) (0, 1).
    result = oracle.run(Method(Platt((0.0, 0.0)), OGD(5.0, 1.0, 2.0)), [0.5, 0.5, 0.5], [1, 0, 0])
    b = 0.25 - 0.5 / 2**0.5 / (1 + exp(-0.25))
    assert_allclose(result.params, [(0, 0), (0, 0.25), (0, b)], atol=1e-15)
    # On the ball of radius 0.2 the first step is cut to (0, 0.2).
    result = oracle.run(Method(Platt((0.0, 0.0)), OGD(0.2, 1.0, 2.0)), [0.5, 0.5], [1, 0])
    assert_allclose(result.params[1], (0, 0.2), atol=1e-15)


def test_aioli_by_hand() -> None:
    # t=1: Q = 2, c = 0, so z = -v tanh(z/2) has the root 0: the first expert is 1/2 whatever the score.
    # y = 1, x = log 4 = 1.386294: g = -x/2, eta = 1 / (1 + 3 * 2) = 1/7, Q = 2 + x^2/28, c = (1 - 0) g = -x/2.
    # t=2: z + v tanh(z/2) = u with u = x^2 / (2 Q), v = x^2 / Q.
    x = log(4)
    Q, c = 2 + x * x / 28, -x / 2
    result = oracle.run(Method(Temperature(), AIOLI(1.0, 3.0, 2.0)), [0.8, 0.8], [1, 0])
    assert_allclose(result.params[0], (0,), atol=1e-15)
    assert result.experts[0] == 0.5
    (theta,) = result.params[1]
    z = theta * x
    assert z + x * x / Q * np.tanh(z / 2) == pytest.approx(x * x / (2 * Q), abs=1e-14)
    assert Q * theta + c + np.tanh(z / 2) * x == pytest.approx(0, abs=1e-14)
    assert result.experts[1] == pytest.approx(1 / (1 + exp(-z)), abs=1e-15)


def test_aioli_minimises_its_objective() -> None:
    rng = np.random.default_rng(3)
    learner = oracle.Aioli(Beta(), AIOLI(0.5, 5.0, 4.0))
    for score, y in zip(rng.random(30), rng.integers(0, 2, 30), strict=True):
        theta, x = learner.params(score), oracle.features_of(Beta(), score)

        def objective(theta: np.ndarray, x: np.ndarray = x) -> float:
            z = theta @ x
            return 0.5 * theta @ learner.Q @ theta + learner.c @ theta + np.logaddexp(0, z) + np.logaddexp(0, -z)

        for direction in rng.normal(size=(5, 3)):
            assert objective(theta + 1e-3 * direction) > objective(theta)
        learner.learn(score, y)


def test_tracking_by_hand() -> None:
    # Bin 7 twice, bin 2, bin 7: mid-point 0.75, then 1, then mid-point 0.25, then (1 + 0) / 2.
    experts, y = [0.7, 0.79, 0.2, 0.75], [1, 0, 0, 1]
    assert_allclose(oracle.run(Method(calibeater=Tracking()), experts, y).forecasts, [0.75, 1, 0.25, 0.5], atol=1e-15)
    # prior 2: (0 + 1.5) / 2, (1 + 1.5) / 3, 0.25, (1 + 1.5) / 4
    forecasts = oracle.run(Method(calibeater=Tracking(prior=2.0)), experts, y).forecasts
    assert_allclose(forecasts, [0.75, 2.5 / 3, 0.25, 0.625], atol=1e-15)


def test_hedging_by_hand() -> None:
    # Two bins, mid-points 1/4 and 3/4, the expert always in bin 1.
    # t=1: own bin, 3/4. y = 0: p_1 = 0, d_1 = 1/2. t=2: condition A holds for bin 0 (p_0 = 1/4): 1/4.
    # y = 1: p_0 = 1, e_0 = 1/2. t=3: condition B, probability of bin 0 is d_1 / (d_1 + e_0) = 1/2: u = 0.5 takes it.
    def run(u: float, start: str) -> oracle.Result:
        method = Method(calibeater=Hedging(2, start))
        return oracle.run(method, [0.9, 0.9, 0.9], [0, 1, 1], draws=[0.0, 0.0, u])

    assert_array_equal(run(0.5, "expert").forecasts, [0.75, 0.25, 0.25])
    assert_array_equal(run(0.51, "expert").played, [1, 0, 1])
    # start="first": 1/4 (m_1); y = 0: p_0 = 0 still in [0, 1/2]: 1/4; y = 1: p_0 = 1/2, e_0 = 0: 1/4.
    assert_array_equal(run(0.5, "first").forecasts, [0.25, 0.25, 0.25])
    # groups=1: one F99 for all experts, which still prefers the expert's own mid-point.
    method = Method(calibeater=Hedging(2, groups=1))
    result = oracle.run(method, [0.9, 0.1, 0.9], [0, 1, 1], draws=[0.0, 0.0, 0.9])
    assert result.bins == [0, 0, 0]
    assert result.played == [1, 0, 1]
    with pytest.raises(ValueError, match="no draw"):
        oracle.run(Method(calibeater=Hedging(2)), [0.9, 0.9, 0.9], [0, 1, 1])


def test_histogram_by_hand() -> None:
    # Sorted .1 .2 .2 .2 .9, k = 3: cuts at 1 (between .1 and .2, stays) and 3 (between .2 and .2, moves to 4).
    edges, means = oracle.uniform_mass(np.array([0.2, 0.9, 0.1, 0.2, 0.2]), np.array([1.0, 1, 0, 0, 1]), 3)
    assert_array_equal(edges, [0.2, 0.9])
    assert_allclose(means, [0, 2 / 3, 1], atol=1e-15)
    # One score only: every cut reaches the end; fewer scores than bins: no bin is empty.
    assert_array_equal(oracle.uniform_mass(np.full(4, 0.5), np.array([0.0, 1, 1, 1]), 3)[1], [0.75])
    edges, means = oracle.uniform_mass(np.array([0.3, 0.6]), np.array([1.0, 0.0]), 20)
    assert_array_equal(edges, [0.6])
    assert_array_equal(means, [1, 0])
    # The raw score until two labels have come, then the table.
    result = oracle.run(Method(Histogram(2), Fixed(2)), [0.3, 0.6, 0.59, 0.61], [1, 0, 0, 0])
    assert_array_equal(result.experts, [0.3, 0.6, 1.0, 0.0])
    assert result.params == [None] * 4


def test_delays_by_hand() -> None:
    # Outcome 0 comes before event 2, outcome 1 before event 3 together with outcome 2, outcome 3 never.
    result = oracle.run(Method(calibeater=Tracking()), [0.7] * 5, [1, 0, 1, 0, 1], due=[2, 3, 3, 5, 9])
    assert_allclose(result.forecasts, [0.75, 0.75, 1, 2 / 3, 2 / 3], atol=1e-15)
    # ONS: outcome 0 and outcome 1 both arrive before event 2: the second gradient is taken after the first step.
    method = Method(Platt(), ONS(rho=1.0))
    late = oracle.run(method, [0.8, 0.3, 0.6], [0, 1, 1], due=[2, 2, 3])
    assert late.params[0] == late.params[1] == (1.0, 0.0)
    assert late.params[2] == oracle.run(method, [0.8, 0.3, 0.6], [0, 1, 1]).params[2]
    # FTL counts arrivals, and its window is the last of them: events 1, 2 (at 3), then 2, 0 (at 4), not 2, 3.
    method = Method(Histogram(1), FTL(every=1, after=2, window=2))
    result = oracle.run(method, [0.2] * 5, [0, 1, 1, 1, 1], due=[4, 2, 3, 9, 5])
    assert_array_equal(result.experts, [0.2, 0.2, 0.2, 1.0, 0.5])
    # Fixed: the first two arrivals (events 1 and 2) for ever.
    result = oracle.run(Method(Histogram(1), Fixed(2)), [0.2] * 5, [0, 1, 1, 1, 1], due=[4, 2, 3, 9, 5])
    assert_array_equal(result.experts, [0.2, 0.2, 0.2, 1.0, 1.0])


# -------------------------------------------------------------------------------------------------------------- fits


def kkt(X: np.ndarray, y: np.ndarray, theta: np.ndarray) -> tuple[float, np.ndarray]:
    """The multiplier of the ball, and what is left of the gradient, both over the gradient's terms' size."""
    s = 2 * y - 1
    log_w = -np.logaddexp(0, s * (X @ theta))
    terms = (np.exp(log_w - log_w.max()) * s)[:, None] * X
    g = terms.sum(axis=0)
    mu = g @ theta / (theta @ theta)
    size = np.abs(terms).sum()
    return float(mu / size), (g - mu * theta) / size


def dataset(kind: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    f = rng.beta(0.7, 0.7, 60)
    ones, logit = np.ones(60), np.log(f / (1 - f))
    platt, beta = np.column_stack([logit, ones]), np.column_stack([np.log(f), np.log(1 - f), ones])
    tied = np.append(platt, [[2.0, 1.0]] * 3, axis=0)
    return {
        "ordinary": (platt, (rng.random(60) < f) * 1.0),
        "beta": (beta, (rng.random(60) < f) * 1.0),
        "separable": (platt, (f > 0.6) * 1.0),
        "separable beta": (beta, (abs(f - 0.5) < 0.3) * 1.0),
        "all ones": (platt, ones),
        "all zeros beta": (beta, 0 * ones),
        "two labels at the boundary": (tied, np.append((logit > 2) * 1.0, [0, 1, 1])),
        "two labels at the boundary, beta": (
            np.array([[log(f), log(1 - f), 1] for f in (0.01, 0.25, 0.01, 0.5, 0.5, 0.5)]),
            np.array([0.0, 0, 0, 1, 0, 0]),
        ),
        "two far scores": (np.array([[-11.5, 1.0], [11.5, 1.0]]), np.array([0.0, 1.0])),
    }[kind]


@pytest.mark.parametrize("radius", [1.0, 100.0])
@pytest.mark.parametrize(
    "kind",
    [
        "ordinary",
        "beta",
        "separable",
        "separable beta",
        "all ones",
        "all zeros beta",
        "two labels at the boundary",
        "two labels at the boundary, beta",
        "two far scores",
    ],
)
def test_fit_fulfils_the_optimality_conditions(kind: str, radius: float) -> None:
    X, y = dataset(kind)
    theta = oracle.fit(X, y, radius)
    mu, left = kkt(X, y, theta)
    norm = np.linalg.norm(theta)
    assert norm <= radius * (1 + 1e-14)
    if norm < radius * (1 - 1e-9):
        assert mu == pytest.approx(0, abs=1e-14)
    else:
        assert norm == pytest.approx(radius, rel=1e-14)
        assert mu >= -1e-14  # as near to zero as above
    assert_allclose(left, 0, atol=1e-13)
    if radius == 100.0:
        assert (norm < 50) == (kind in ("ordinary", "beta"))


def test_fit_without_a_unique_optimum_takes_the_least_norm() -> None:
    # Four events of one score, logit 2, three ones: 2a + b = log 3, nearest to zero at (2, 1) log 3 / 5.
    X = np.tile([2.0, 1.0], (4, 1))
    assert_allclose(oracle.fit(X, np.array([1.0, 1, 1, 0]), 100.0), np.array([2, 1]) * log(3) / 5, atol=1e-14)
    assert_allclose(oracle.fit(X, np.ones(4), 100.0), np.array([2, 1]) * 100 / 5**0.5, atol=1e-11)


def test_metrics_by_hand() -> None:
    y, p = [1, 0, 1, 0], [0.9, 1.0, 0.15, 0.5]
    # bin 9: (0.95, 0.5, n = 2), bin 1: (0.15, 1), bin 5: (0.5, 0)
    assert oracle.calibration_error(y, p) == pytest.approx((2 * 0.45 + 0.85 + 0.5) / 4, abs=1e-15)
    assert oracle.sharpness(y, p) == pytest.approx((2 * 0.25 + 1) / 4, abs=1e-15)
    assert oracle.refinement(y, p) == pytest.approx(0.5 - oracle.sharpness(y, p), abs=1e-15)
    assert oracle.brier(y, p) == pytest.approx((0.01 + 1 + 0.7225 + 0.25) / 4, abs=1e-15)
    assert oracle.log_loss(y[2:], p[2:]) == pytest.approx(-(log(0.15) + log(0.5)) / 2, abs=1e-15)
    assert oracle.log_loss([0, 1], [0.0, 1.0]) == 0
