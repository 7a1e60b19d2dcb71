"""Martingale intervals: the numbers of the sketch, the formulas by definition, chunks, late labels, coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from calibeat import InvalidInput
from calibeat.backtest.judge.intervals import BRIER, LOG_LOSS, MODEL, RESID, Intervals

Vector = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


def stream() -> tuple[Vector, Vector]:
    rng = np.random.default_rng(12)
    raw = rng.random(1500)
    y = (rng.random(1500) < 0.1 + 0.8 * raw**1.5).astype(float)
    return np.array([raw, 0.1 + 0.8 * raw**1.5, np.clip(raw + 0.1, 0, 1), np.round(raw, 1)]), y


def counted(runs: int = 0) -> Intervals:
    P, y = stream()
    sums = Intervals(4, runs=runs)
    sums.add(P, y)
    return sums


def test_the_numbers_of_the_sketch() -> None:
    """Computed once by the sketch of the design, which is written apart from this module."""
    sums = counted()
    wanted = {
        (LOG_LOSS, 1, 0): (-0.035097061057359574, -0.050900526025179825, -0.019293596089539324),
        (LOG_LOSS, 2, 0): (0.21136136660135738, 0.15895363212462627, 0.2637691010780885),
        (LOG_LOSS, 3, 0): (0.045539823441052556, 0.0059252713144360356, 0.08515437556766908),
        (LOG_LOSS, 2, 1): (0.24645842765871695, 0.1838306254208143, 0.3090862298966196),
        (BRIER, 1, 0): (-0.011976396487473987, -0.016627482320240212, -0.007325310654707761),
        (BRIER, 2, 0): (0.02697835271257342, 0.022727806766999627, 0.031228898658147215),
        (BRIER, 3, 0): (0.0003796369691951895, -0.0008776637407066032, 0.0016369376790969824),
        (BRIER, 2, 1): (0.038954749200047406, 0.03036977948115015, 0.047539718918944665),
    }
    for (measure, j, i), numbers in wanted.items():
        assert sums.difference(measure, j, i) == pytest.approx(numbers, rel=1e-10)
    lucks = (0.02778003177532218, 0.024817745021859763, 0.026247286654674813)
    assert [sums.luck(j) for j in range(3)] == pytest.approx(lucks, rel=1e-10)
    # The rest is drawn, and the sketch takes other draws: as near as 4,000 and 1,000 of them are.
    assert sums.simultaneous(LOG_LOSS) == pytest.approx(2.323605163974541, rel=0.02)
    assert sums.simultaneous(BRIER) == pytest.approx(2.2990223670089733, rel=0.02)
    drawn = {
        1: (-0.08017941942059831, -0.14621325980218275, -0.01284740533774531),
        2: (0.08811328819608166, 0.049623419754997296, 0.12607150180442547),
    }
    for method, numbers in drawn.items():
        width = numbers[2] - numbers[1]
        assert sums.error_difference(method) == pytest.approx(numbers, abs=0.05 * width)


def test_draws_do_not_depend_on_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linear algebra for another processor gives eigenvectors of other signs, and other bases of equal eigenvalues."""
    sums, eigh = counted(), np.linalg.eigh
    here = [sums.simultaneous(LOG_LOSS), *sums.error_difference(1), *sums.error_difference(2)]

    def elsewhere(table: Vector) -> tuple[Vector, Vector]:
        values, vectors = eigh(table)
        vectors = vectors * (-1.0) ** np.arange(len(values))
        empty = values < 1e-9
        turned = norm.rvs(size=(empty.sum(), empty.sum()), random_state=1)
        vectors[:, empty] = vectors[:, empty] @ np.linalg.qr(turned)[0]
        return values + 1e-14 * empty, vectors

    monkeypatch.setattr(np.linalg, "eigh", elsewhere)
    there = [sums.simultaneous(LOG_LOSS), *sums.error_difference(1), *sums.error_difference(2)]
    assert there == pytest.approx(here, rel=1e-10)


def test_the_sums_by_definition() -> None:
    P, y = stream()
    sums = counted()
    loss = -np.log(np.where(y == 1, np.maximum(P, 1e-5), np.maximum(1 - P, 1e-5)))
    before = np.cumsum(loss, axis=1) - loss
    r = P[before.argmin(axis=0), np.arange(len(y))]
    slopes = {LOG_LOSS: np.log(np.maximum(1 - P, 1e-5)) - np.log(np.maximum(P, 1e-5)), BRIER: 1 - 2 * P}
    for measure, s in slopes.items():
        b = s - s[0]
        for j in range(1, 4):
            for i in range(1, j + 1):
                resid, model = (b[i] * b[j]) @ (y - r) ** 2, (b[i] * b[j]) @ (r * (1 - r))
                assert sums.sums.products[RESID, measure, j, i] == pytest.approx(resid, rel=1e-10)
                assert sums.sums.products[MODEL, measure, j, i] == pytest.approx(model, rel=1e-10)
            e = b[j] * (y - r)
            assert sums.effective(measure, j) == pytest.approx((e @ e) ** 2 / (e**4).sum(), rel=1e-10)
    assert sums.sums.losses[LOG_LOSS] == pytest.approx(loss.sum(axis=1))
    assert sums.events == 1500


def test_chunks_of_any_size_give_the_same_bits() -> None:
    P, y = stream()
    whole, parts = counted(runs=40), Intervals(4, runs=40)
    for first, last in ((0, 1), (1, 700), (700, 1311), (1311, 1500)):
        parts.add(P[:, first:last], y[first:last])
    for name in ("lead", "losses", "products", "fourths", "gaps", "cells", "run_products"):
        np.testing.assert_array_equal(getattr(whole.sums, name), getattr(parts.sums, name))
    assert whole.difference(LOG_LOSS, 1) == parts.difference(LOG_LOSS, 1)


def test_the_warm_up_decides_who_leads_and_nothing_else() -> None:
    P, y = stream()
    place = np.repeat([0, 1, -1], 500)
    sums = Intervals(4)
    sums.add(P, y, place)
    assert sums.events == 500
    alone = Intervals(4)
    alone.add(P[:, 500:1000], y[500:1000])
    np.testing.assert_array_equal(sums.sums.losses, alone.sums.losses)
    assert (sums.sums.lead > alone.sums.lead).all()
    np.testing.assert_allclose(sums.sums.lead - alone.sums.lead, counted_lead(P[:, :500], y[:500]))


def counted_lead(P: Vector, y: Vector) -> Vector:
    return -np.log(np.maximum(np.where(y == 1, P, 1 - P), 1e-5)).sum(axis=1)


def test_no_difference_has_no_width() -> None:
    P, y = stream()
    sums = Intervals(2)
    sums.add(P[[0, 0]], y)
    assert sums.difference(LOG_LOSS, 1) == (0.0, 0.0, 0.0)
    assert sums.simultaneous(LOG_LOSS) == pytest.approx(1.96, abs=1e-4)
    assert sums.effective(BRIER, 1) == 0.0
    empty = Intervals(2)
    assert empty.difference(BRIER, 1) == (0.0, 0.0, 0.0)
    with pytest.raises(InvalidInput, match=r"shape \(2, 3\), got \(1, 3\)"):
        empty.add(P[:1, :3], y[:3])


def test_max_t_of_one_method_is_the_normal_quantile() -> None:
    P, y = stream()
    sums = Intervals(2)
    sums.add(P[:2], y)
    assert sums.simultaneous(LOG_LOSS) == pytest.approx(norm.ppf(0.975), abs=0.05)
    assert sums.simultaneous(LOG_LOSS, 0.975, one_sided=True) == pytest.approx(norm.ppf(0.975), abs=0.08)


def drifting(rng: np.random.Generator, n: int) -> tuple[Vector, Vector, Vector]:
    """Raw score, a forecast that tracks the world, and the true chances, which wander."""
    raw = rng.random(n)
    shift = np.cumsum(rng.normal(0, 0.05, n))
    mu = 1 / (1 + np.exp(-(np.log(raw / (1 - raw)) + shift)))
    late = 1 / (1 + np.exp(-(np.log(raw / (1 - raw)) + np.concatenate([np.zeros(5), shift[:-5]]))))
    return raw, late, mu


def test_coverage_on_logs_that_drift() -> None:
    """200 logs: the interval holds the mean of E[d | past], which the simulation knows, about 95 times in 100."""
    rng = np.random.default_rng(5)
    n, held = 400, 0
    for _ in range(200):
        raw, ours, mu = drifting(rng, n)
        y = (rng.random(n) < mu).astype(float)
        sums = Intervals(2)
        sums.add(np.array([raw, ours]), y)
        P = np.clip(np.array([raw, ours]), 1e-5, 1 - 1e-5)
        expected = -(mu * np.log(P) + (1 - mu) * np.log(1 - P))
        truth = float((expected[1] - expected[0]).mean())
        _, low, high = sums.difference(LOG_LOSS, 1)
        held += low <= truth <= high
    assert 180 <= held <= 199


def test_outcomes_that_moved_together_widen_the_interval_and_others_do_not() -> None:
    rng = np.random.default_rng(6)
    n, run = 10_000, 100
    raw = rng.random(n)
    z = np.log(raw / (1 - raw))
    for shock, wanted in ((1.5, True), (0.0, False)):
        shared = np.repeat(rng.normal(0, shock, n // run), run)
        y = (rng.random(n) < 1 / (1 + np.exp(-(z + shared)))).astype(float)
        late, at_once = Intervals(2, runs=run), Intervals(2)
        P = np.array([raw, 1 / (1 + np.exp(-(z + 0.5)))])
        late.add(P, y)
        at_once.add(P, y)
        half, together = late.half_width(LOG_LOSS, 1)
        plain, never = at_once.half_width(LOG_LOSS, 1)
        assert together is wanted and never is False
        assert half > 1.5 * plain if wanted else half == plain
    assert math.isfinite(half)
