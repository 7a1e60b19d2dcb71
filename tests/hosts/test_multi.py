"""What is special about many classes: labels, logits, what it believes. Every verb is in `test_all_hosts_agree`."""

from __future__ import annotations

import multi_streams
import numpy as np
import pytest

from calibeat import AUTO, Calibrator, InvalidInput, MultiCalibrator, MultiForecast

CLASSES = ["cat", "dog", "bird"]
METHODS = ["raw", "ots", "multi"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("K", [2, 3, 7, 65])
def test_first_forecast_is_the_score(method: str, K: int) -> None:
    score = np.random.default_rng(K).dirichlet(np.ones(K))
    forecast = MultiCalibrator(K, method).predict(score)
    np.testing.assert_allclose(forecast.probabilities, score, rtol=0, atol=K * 1e-7)
    assert forecast.label == int(score.argmax())
    assert forecast.confidence == forecast.probabilities.max()


def test_labels_are_those_of_the_classes() -> None:
    scores, labels = multi_streams.random(50, 3)
    words = MultiCalibrator(CLASSES)
    P = words.run(scores, [CLASSES[y] for y in labels])
    np.testing.assert_array_equal(P, MultiCalibrator(3).run(scores, labels))
    assert words.classes == tuple(CLASSES)
    assert words.predict([0.1, 0.2, 0.7]).label == "bird"
    np.testing.assert_array_equal(P, MultiCalibrator(np.array(CLASSES)).run(scores, np.array(CLASSES)[labels]))
    np.testing.assert_array_equal(P, MultiCalibrator([10, 20, 30]).run(scores, (labels + 1) * 10))
    np.testing.assert_array_equal(P, MultiCalibrator(3).run(scores.tolist(), labels.astype(float)))


def test_logits() -> None:
    logits = np.random.default_rng(1).normal(0, 3, (40, 4))
    labels = np.arange(40) % 4
    e = np.exp(logits)
    P = MultiCalibrator(4, logits=True).run(logits, labels)
    np.testing.assert_allclose(P, MultiCalibrator(4).run(e / e.sum(axis=1, keepdims=True), labels), atol=1e-12)
    shifted = MultiCalibrator(4, logits=True).predict(logits[0] + 1e6).probabilities
    np.testing.assert_allclose(shifted, P[0], atol=1e-8)
    extreme = MultiCalibrator(4, logits=True).predict([1e299, -1e299, 0.0, 5.0]).probabilities
    assert (extreme > 0.0).all() and extreme[0] > 0.999


def test_scores_are_normalised() -> None:
    score = np.array([0.2, 0.3, 0.5]) * (1.0 + 9e-7)
    forecast = MultiCalibrator(3).predict(score)
    assert abs(forecast.score.sum() - 1.0) <= 1e-15
    np.testing.assert_allclose(forecast.score, [0.2, 0.3, 0.5], atol=1e-16)
    single = MultiCalibrator(3).predict(np.array([0.2, 0.3, 0.5], dtype=np.float32))
    assert abs(single.probabilities.sum() - 1.0) <= 1e-12


def test_two_classes_are_served_by_auto() -> None:
    scores, labels = multi_streams.drifting(150, 2)
    P = MultiCalibrator(["no", "yes"]).run(scores, np.array(["no", "yes"])[labels])
    p = Calibrator(AUTO).run(scores[:, 1], labels)
    np.testing.assert_array_equal(P[:, 1], p)
    np.testing.assert_array_equal(P[:, 0], 1.0 - p)
    cal = MultiCalibrator(["no", "yes"])
    assert set(cal.params["bias"]) == {"no", "yes"} and cal.params["lanes"]["still"] == 1 / 6
    forecast = cal.predict([0.4, 0.6])
    with pytest.raises(InvalidInput, match="forecast must be as it was issued, got a damaged one"):
        cal.update(MultiForecast.from_dict({**forecast.to_dict(), "binary": None}), "no")
    assert cal.outcomes == 0


def test_params_in_words() -> None:
    rng = np.random.default_rng(2)
    truth = rng.dirichlet(np.ones(3), 3000)
    shifted = multi_streams.normalised(truth * [4.0, 1.0, 1.0])  # cats became four times as common
    cal = MultiCalibrator(CLASSES)
    cal.run(truth, [CLASSES[y] for y in multi_streams.drawn(rng, shifted)])
    params = cal.params
    assert list(params["lanes"]) == ["still", "slow", "fast", "priors only", "raw score", "online temperature"]
    assert sum(params["lanes"].values()) == pytest.approx(1.0)
    bias = params["bias"]
    assert np.exp(bias["cat"] - bias["dog"]) == pytest.approx(4.0, rel=0.2)
    for part in ("stages", "top", "guard"):
        assert sum(params[part].values()) == pytest.approx(1.0)
    assert set(MultiCalibrator(65).params["stages"]) == {"lanes", "factors"}
    assert MultiCalibrator(3, "ots").params == {"a": 1.0}
    assert MultiCalibrator(3, "raw").params == {}


@pytest.mark.parametrize(("method", "width"), [("raw", 9), ("ots", 11), ("multi", 190)])
def test_the_row(method: str, width: int) -> None:
    cal = MultiCalibrator(3, method)
    cal.predict([0.2, 0.3, 0.5])
    assert len(cal.row) == width
    cal.run([[0.2, 0.3, 0.5]], [1])
    assert cal.row[:2].tolist() == [2.0, 1.0]
    with pytest.raises(ValueError, match="read-only"):
        cal.row[0] = 7.0


@pytest.mark.parametrize(("K", "width"), [(3, 190), (10, 512), (26, 1984), (64, 9584), (100, 2112), (1000, 20112)])
def test_widths(K: int, width: int) -> None:
    assert len(MultiCalibrator(K).row) == width


@pytest.mark.parametrize("method", METHODS)
def test_evidence_is_the_log_likelihood_ratio(method: str) -> None:
    scores, labels = multi_streams.random(300, 4)
    cal = MultiCalibrator(4, method)
    P = cal.run(scores, labels)
    at = np.arange(300)
    assert cal.evidence == pytest.approx(np.log(P[at, labels] / scores[at, labels]).sum(), abs=1e-9)


def test_no_alarm_for_calibrated_scores() -> None:
    """Ville: at most one stream in twenty."""
    rng = np.random.default_rng(3)
    alarms = 0
    for _ in range(200):
        scores = rng.dirichlet([0.3, 0.3, 0.3, 0.05], 60)
        cal = MultiCalibrator(4)
        cal.run(scores, multi_streams.drawn(rng, scores))
        alarms += cal.evidence >= np.log(20.0)
    assert alarms <= 15


def test_repr() -> None:
    cal = MultiCalibrator(CLASSES, method="ots", logits=True)
    cal.run([[0.0, 1.0, 2.0]], ["dog"])
    assert repr(cal) == "MultiCalibrator(3 classes, method='ots', events=1, outcomes=1)"
    assert (cal.method, cal.logits) == ("ots", True)


def test_receipts_in_bytes_get_the_labels_of_their_classes() -> None:
    data = MultiCalibrator(CLASSES).predict([0.2, 0.3, 0.5]).to_bytes()
    assert (MultiForecast.from_bytes(data, CLASSES).label, MultiForecast.from_bytes(data).label) == ("bird", 2)
    with pytest.raises(InvalidInput, match="classes must be those of the forecast"):
        MultiForecast.from_bytes(data, [*CLASSES, "fish"])
