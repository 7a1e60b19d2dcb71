"""The receipt of many classes as data."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from calibeat import InvalidInput, MultiCalibrator, MultiForecast, UnknownForecast

CLASSES = ["cat", "dog", "bird"]


@pytest.fixture
def cal() -> MultiCalibrator:
    return MultiCalibrator(CLASSES)


@pytest.fixture
def data(cal: MultiCalibrator) -> dict[str, Any]:
    return json.loads(cal.predict([0.2, 0.3, 0.5]).to_json())


def test_it_is_an_array_and_reads_well(cal: MultiCalibrator) -> None:
    forecast = cal.predict([0.2, 0.3, 0.5])
    np.testing.assert_array_equal(np.asarray(forecast), forecast.probabilities)
    copied = np.array(forecast, copy=True)
    copied[0] = 0.0
    assert forecast.probabilities[0] > 0.1
    with pytest.raises(ValueError, match="read-only"):
        forecast.probabilities[0] = 1.0
    assert repr(forecast) == f"MultiForecast(label='bird', confidence={forecast.confidence}, event=0, seen=0)"


@pytest.mark.parametrize("method", ["raw", "ots", "multi"])
def test_json_is_versioned_and_exact(method: str) -> None:
    forecast = MultiCalibrator(CLASSES, method).predict([0.2, 0.3, 0.5])
    data = json.loads(forecast.to_json())
    assert data["v"] == 2
    twin = MultiForecast.from_json(forecast.to_json())
    assert twin == forecast and hash(twin) == hash(forecast) and twin != data
    np.testing.assert_array_equal(twin.probabilities, forecast.probabilities)
    assert MultiForecast.from_dict({**data, "news": 1}) == forecast  # of a later release


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"v": 1}, "receipt of version 2, got version 1"),
        ({"v": True}, "receipt of version 2, got version True"),
        ({"probabilities": [0.5, 0.5, 0.5]}, "probabilities must be a list of probabilities of sum 1"),
        ({"probabilities": "abc"}, "probabilities must be a list of probabilities"),
        ({"score": [0.5, float("nan"), 0.5]}, "score must be a list of probabilities"),
        ({"score": [0.5, 0.5]}, "as many scores as probabilities, got 2"),
        ({"lanes": [0.5, "x", 0.5]}, "lane must be a finite number"),
        ({"lanes": 7}, "lanes must be a list of numbers"),
        ({"event": -1}, "event must be a whole number"),
        ({"seen": 0.5}, "seen must be a whole number"),
        ({"issuer": 7}, "issuer must be a string, got 7"),
        ({"binary": {}}, "forecast must"),
    ],
)
def test_damage_is_named(data: dict[str, Any], change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        MultiForecast.from_dict({**data, **change})


def test_missing_fields_and_foreign_text(data: dict[str, Any]) -> None:
    del data["score"]
    with pytest.raises(InvalidInput, match="must have the field 'score'"):
        MultiForecast.from_dict(data)
    for text in ("[1]", "{", b"\xff"):
        with pytest.raises(InvalidInput, match="forecast must be"):
            MultiForecast.from_json(text)


def test_a_calibrator_knows_its_own(cal: MultiCalibrator, data: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="must be a MultiForecast made by predict, got dict"):
        cal.update(data, "cat")  # type: ignore[arg-type]
    other = MultiCalibrator(["a", "b", "c"])
    with pytest.raises(UnknownForecast, match="made with other classes or by another method - at event 0"):
        cal.update(other.predict([0.2, 0.3, 0.5]), "cat")
    for change in (
        {"event": 9},
        {"seen": 5},
        {"lanes": []},
        {"score": [0.5, 0.25, 0.25]},
        {"probabilities": [1.0, 0.0, 0.0]},
        {"probabilities": [0.5, 0.5], "score": [0.5, 0.5]},
    ):
        with pytest.raises(InvalidInput, match="forecast must be as it was issued, got a damaged one - at event"):
            cal.update(MultiForecast.from_dict({**data, **change}), "cat")
    assert cal.outcomes == 0
    cal.update(MultiForecast.from_dict(data), "cat")
    assert cal.outcomes == 1
