"""Many classes: MULTI against its golden vectors and its oracle (to 1e-12), and what its kernels promise."""

from __future__ import annotations

import golden
import multi_oracle
import multi_streams
import numpy as np
import pytest
from multi_streams import as_reference, calibrate, one

from calibeat import InvalidInput, MultiBank, MultiCalibrator, UnknownMethod
from calibeat.core import vector
from calibeat.core.limits import check_row
from calibeat.core.vector import VectorMethod

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
        row = as_reference(row)
        if when == "at once":  # those rows end before the numbers for late labels, which have not moved
            np.testing.assert_array_equal(
                row[-30:], vector.VectorMethod("multi", forecasts.shape[1]).initial_row()[-32:-2]
            )
            row = row[:-30]
        np.testing.assert_allclose(row[1:], vectors[f"{case}/row"][1:], rtol=1e-11, atol=1e-11)


# ---- the oracle: random, drifting, adversarial, late and edge streams, from 2 to 1000 classes ------------------------

SIZES = {2: 150, 3: 300, 10: 200, 64: 60, 65: 60, 1000: 6}


def compare(ours: tuple[np.ndarray, np.ndarray], theirs: tuple[np.ndarray, np.ndarray], tolerance: float) -> None:
    np.testing.assert_allclose(ours[0], theirs[0], rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(as_reference(ours[1])[1:], theirs[1][1:], rtol=tolerance, atol=tolerance)
    assert (ours[0] > 0.0).all()
    assert np.abs(ours[0].sum(axis=1) - 1.0).max() <= 1e-12


@pytest.mark.parametrize("K", SIZES)
@pytest.mark.parametrize("name", multi_streams.STREAMS)
def test_it_is_the_oracle(name: str, K: int) -> None:
    scores, labels = multi_streams.STREAMS[name](SIZES[K], K)
    compare(calibrate(scores, labels), multi_oracle.calibrate(scores, labels), 1e-12)


@pytest.mark.parametrize("K", [2, 3, 10, 64, 65])
@pytest.mark.parametrize("kind", ["fixed", "reordered"])
@pytest.mark.parametrize("name", multi_streams.STREAMS)
def test_late_labels_are_those_of_the_oracle(name: str, kind: str, K: int) -> None:
    scores, labels = multi_streams.STREAMS[name](SIZES[K], K)
    due = multi_streams.delays(len(labels), kind)
    compare(calibrate(scores, labels, due), multi_oracle.calibrate(scores, labels, due), 1e-12)


# ---- what is promised ------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 8, 31, 1000])
def test_logits_become_probabilities(size: int) -> None:
    z = np.random.default_rng(size).normal(0, 30, size)
    found, e = z.copy(), np.exp(z - z.max())
    assert vector.ready(size, found, 1)[0] == vector.GOOD
    np.testing.assert_allclose(found, e / e.sum(), rtol=1e-13, atol=1e-300)


def test_a_label_that_is_not_late_is_learnt_as_one_at_once() -> None:
    """What was asked is settled as it stands, or asked again: also after the horizon lane has woken."""
    K = 4
    method, (scores, labels) = VectorMethod("multi", K), multi_streams.drifting(120, K)
    row = np.array([*calibrate(scores, labels, multi_streams.delays(120, "reordered"))[1], 0.0, 1.0])
    twin, work = row.copy(), vector.scratch(K)
    receipt, forecast = np.zeros(method.receipt_width), np.empty(K)
    for i, score in enumerate(scores[:40]):
        for mine, learn in ((row, vector.settle), (twin, vector.update)):
            vector.predict(*method.code, mine, score.copy(), receipt, work, forecast)
            learn(*method.code, mine, float(i), one(i % K), receipt, work, forecast)
        np.testing.assert_array_equal(row, twin)


def test_the_pooled_start_helps_young_keys() -> None:
    """A pool learns an outcome when it comes, so key after key starts in the midst of the batch."""
    rng = np.random.default_rng(3)
    keys, logits = rng.permutation(np.repeat(np.arange(60), 20)), rng.normal(0, 1.5, (1200, 4))
    truth = multi_streams.normalised(np.exp(0.5 * logits + np.array([1.0, 0.0, -1.0, 0.0])))
    scores, labels = multi_streams.normalised(np.exp(logits)), multi_streams.drawn(rng, truth)
    alone, pooled = MultiBank(4, "multi"), MultiBank(4, "multi", prior="pooled")
    for bank in (alone, pooled):
        bank.run(keys, scores, labels)
    assert pooled.table["log_loss"].mean() < alone.table["log_loss"].mean() - 0.05


def test_a_method_of_many_classes() -> None:
    method = VectorMethod("multi", 3)
    assert VectorMethod.from_dict(method.to_dict()) == method
    assert len(method.initial_row()) == method.width
    with pytest.raises(UnknownMethod, match="must be one of raw, ots, multi, got 'mult'"):
        VectorMethod("mult", 3)
    with pytest.raises(InvalidInput, match="classes must be a whole number"):
        VectorMethod("multi", 1)
    with pytest.raises(InvalidInput, match="object with name, classes"):
        VectorMethod.from_dict({"name": "multi"})
