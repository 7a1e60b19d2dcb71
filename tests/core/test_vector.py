"""MULTI against its golden vectors; the same bits everywhere."""

from __future__ import annotations

import golden
import multi_oracle
import multi_streams
import numpy as np
import pytest
from multi_streams import calibrate

from calibeat import MultiCalibrator
from calibeat.core import vector
from calibeat.core.limits import check_row

CASES = {
    (when, name.split("/")[0]): vectors
    for when, vectors in (("at once", golden.multi()), ("late", golden.multi_late()))
    for name in vectors
}


@pytest.mark.parametrize(("when", "case"), CASES)
def test_golden_vectors(when: str, case: str) -> None:
    vectors = CASES[when, case]
    forecasts, row = calibrate(vectors[f"{case}/score"], vectors[f"{case}/label"], vectors.get(f"{case}/due"))
    np.testing.assert_allclose(forecasts, vectors[f"{case}/forecast"], rtol=1e-11, atol=1e-11)
    if f"{case}/row" in vectors:
        if when == "at once":  # those rows end before the numbers for late labels, which have not moved
            np.testing.assert_array_equal(
                row[-30:], vector.VectorMethod("multi", forecasts.shape[1]).initial_row()[-32:-2]
            )
            row = row[:-30]
        np.testing.assert_allclose(row[1:], vectors[f"{case}/row"][1:], rtol=1e-11, atol=1e-11)


def test_due_next_is_immediate() -> None:
    scores, labels = multi_streams.drifting(200, 5)
    immediate = calibrate(scores, labels)
    late = calibrate(scores, labels, np.arange(200) + 1)
    np.testing.assert_array_equal(late[0], immediate[0])


@pytest.mark.parametrize("K", [3, 65])
@pytest.mark.parametrize("name", ["random", "drifting", "edge"])
def test_permuting_the_classes_permutes_the_forecasts(name: str, K: int) -> None:
    scores, labels = multi_streams.STREAMS[name](100, K)
    if name == "edge":  # the first of equal scores is the named class, whatever the order
        scores = multi_streams.normalised(scores + 1e-3 * np.random.default_rng(0).random(scores.shape))
    order = np.random.default_rng(K).permutation(K)
    there = np.argsort(order)
    straight, turned = calibrate(scores, labels)[0], calibrate(scores[:, order], there[labels])[0]
    np.testing.assert_allclose(turned, straight[:, order], rtol=0, atol=1e-12)


def test_two_classes_permuted() -> None:
    scores, labels = multi_streams.drifting(200, 2)
    straight = MultiCalibrator(2).run(scores, labels)
    turned = MultiCalibrator(2).run(scores[:, ::-1], 1 - labels)
    np.testing.assert_allclose(turned, straight[:, ::-1], rtol=0, atol=1e-12)


def test_the_online_temperature_is_the_oracles() -> None:
    for name in multi_streams.STREAMS:
        scores, labels = multi_streams.STREAMS[name](150, 4)
        P = calibrate(scores, labels, name="ots")[0]
        np.testing.assert_allclose(P, multi_oracle.online_temperature(scores, labels), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("K", [3, 10])
@pytest.mark.parametrize("kind", ["coin", "constant", "wrong", "adversary"])
def test_long_streams_stay_finite(kind: str, K: int) -> None:
    """Short here; `python -m benchmarks multi-stress` runs a million events of each kind."""
    n = 20_000
    rng = np.random.default_rng(6)
    at = rng.integers(0, K, n)
    streams = {
        "coin": (np.eye(K)[at], rng.integers(0, K, n)),
        "constant": (np.full((n, K), 1.0 / K), np.repeat([0, 1], [n // 2, n - n // 2])),
        "wrong": (np.eye(K)[at], (at + 1) % K),
        "adversary": (np.eye(K)[at], (at + rng.integers(1, K, n)) % K),
    }
    forecasts, row = calibrate(*streams[kind])
    assert np.isfinite(row).all() and np.isfinite(forecasts).all()
    assert np.abs(forecasts.sum(axis=1) - 1.0).max() <= 1e-12
    check_row(vector.VectorMethod("multi", K), np.array([*row, 0.0, 1.0]), n)
    w = row[vector.W : vector.W + 6]
    assert w.min() >= 0.4 / (6 * n)


def test_evidence_survives_any_ratio() -> None:
    """A forecast of 1e-304 after a product of 1e-90 is no number of its own."""
    row = np.array([0.0, 0.0, 0.0, 1e-90])
    vector.compound(row, 2, 1e-304)
    vector.compound(row, 2, 1e-20)
    assert row[2] + np.log(row[3]) == pytest.approx((-90 - 304 - 20) * np.log(10.0))


def test_the_top_class_of_no_numbers_is_a_class() -> None:
    """No memory behind the classes is read, whatever a row from outside has led to."""
    assert vector.find_top(np.full(4, np.nan))[0] == 3
