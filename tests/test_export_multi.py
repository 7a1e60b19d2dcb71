"""The frozen map of many classes."""

from __future__ import annotations

import json
from typing import Any

import multi_streams
import numpy as np
import pytest

from calibeat import MultiCalibrator


def loaded(source: str) -> Any:
    space: dict[str, Any] = {}
    exec(source, space)  # noqa: S102 - what the user would do with it
    return space["calibrate"]


@pytest.mark.parametrize("logits", [False, True])
@pytest.mark.parametrize("method", ["raw", "ots", "multi"])
@pytest.mark.parametrize("K", [2, 3, 64, 65])
def test_python_is_the_present_map(K: int, method: str, logits: bool) -> None:
    scores, labels = multi_streams.drifting(80, K)
    given = np.log(scores) if logits else scores
    cal = MultiCalibrator(K, method, logits)
    cal.run(given, labels)
    calibrate = loaded(cal.export().python)
    P = cal.predict_many(given[:10])
    for row, p in zip(given[:10].tolist(), P, strict=True):
        np.testing.assert_allclose(calibrate(row), p, rtol=0, atol=1e-12)


def test_python_has_the_horizon_lane() -> None:
    scores, labels = multi_streams.drifting(120, 5)
    cal = MultiCalibrator(5)
    cal.run(scores, labels, due=np.arange(120) + 7)
    calibrate = loaded(cal.export().python)
    assert len(cal.export().numbers["lane_weights"]) == 7
    for row, p in zip(scores.tolist(), cal.predict_many(scores), strict=True):
        np.testing.assert_allclose(calibrate(row), p, rtol=0, atol=1e-12)


@pytest.mark.parametrize("K", [2, 4])
def test_edges(K: int) -> None:
    scores, labels = multi_streams.edge(80, K)
    cal = MultiCalibrator(K)
    cal.run(scores, labels)
    calibrate = loaded(cal.export().python)
    for row, p in zip(scores.tolist(), cal.predict_many(scores), strict=True):
        np.testing.assert_allclose(calibrate(row), p, rtol=0, atol=1e-12)
    for bad in ([0.5] * K + [0.0], [-1.0, *[2.0 / (K - 1)] * (K - 1)], [float("nan")] * K):
        with pytest.raises(ValueError, match=r"score|unpack"):
            calibrate(bad)


def test_json_holds_the_numbers() -> None:
    cal = MultiCalibrator(["cat", "dog", "bird"])
    cal.run(multi_streams.random(50, 3)[0], ["cat", "dog"] * 25)
    data = json.loads(cal.export().json)
    assert (data["format"], data["version"], data["classes"]) == ("calibeat/multi-map", 1, ["cat", "dog", "bird"])
    assert np.shape(data["numbers"]["factors"]) == (3, 6) and np.shape(data["numbers"]["confusion"]) == (3, 3)
    assert data["numbers"]["lane_weights"] == list(cal.params["lanes"].values())
    assert json.loads(MultiCalibrator(3, "ots").export().json)["numbers"] == {"slope": 1.0}
    assert MultiCalibrator(3, "raw").export().numbers == {}
    assert "lanes" in json.dumps(MultiCalibrator(2).export().numbers) or MultiCalibrator(2).export().numbers
