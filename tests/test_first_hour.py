"""Lines that stopped newcomers in their first hour: each of them works, or says what to do instead."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibeat import Bank, Calibrator, Forecast, InvalidInput, MissingExtra, MultiCalibrator, MultiForecast


@pytest.fixture
def forecast() -> Forecast:
    return Calibrator("ops").predict(0.4)


def test_a_forecast_is_a_number(forecast: Forecast) -> None:
    assert forecast * 100 == 100 * float(forecast) and type(forecast * 100) is float
    assert forecast - 0.1 == float(forecast) - 0.1 and 1 - forecast == 1.0 - float(forecast)
    assert round(forecast, 2) == 0.4 and -forecast < 0.0 and forecast / 2 == float(forecast) / 2
    assert sum([forecast, forecast]) == 2 * float(forecast)
    assert f"{forecast:.1%}" == "40.0%" and (forecast > 0.3) is True
    assert json.loads(json.dumps(float(forecast))) == float(forecast)


def test_arrays_of_forecasts(forecast: Forecast) -> None:
    assert np.mean([forecast, forecast]) == pytest.approx(0.4)
    assert np.array([forecast, forecast]).dtype == np.float64
    assert np.asarray(forecast).shape == ()


@pytest.mark.parametrize(
    ("score", "hint"),
    [
        (83, "got 83.0 - a percentage? divide by 100"),
        (-2.3, "got -2.3 - a logit? 1 / (1 + exp(-score)) is its probability"),
        (140.0, "got 140.0 - a logit? 1 / (1 + exp(-score)) is its probability"),
        (1.3, "got 1.3"),
        (-0.2, "got -0.2"),
    ],
)
def test_scores_on_another_scale(score: float, hint: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        Calibrator().predict(score)
    assert str(refused.value) == f"score must be in [0, 1], {hint}"
    got, _, scale = hint.partition(" - ")
    with pytest.raises(InvalidInput) as refused:
        Calibrator().run([0.2, score], [0, 1])
    assert str(refused.value) == f"score must be in [0, 1], {got} - at row 1" + (f" - {scale}" if scale else "")


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("fit", "run(scores, outcomes)"),
        ("predict_proba", "predict(score) of one event, or predict_many(scores)"),
        ("save", "to_json()"),
        ("load", "from_json"),
        ("partial_fit", "update(forecast, outcome)"),
        ("fit_transform", "calibeat.sklearn.ScoreCalibrator"),
    ],
)
@pytest.mark.parametrize("host", [Calibrator, lambda: MultiCalibrator(3)])
def test_names_of_other_libraries(host: Any, name: str, instead: str) -> None:
    cal = host()
    assert not hasattr(cal, name)
    with pytest.raises(AttributeError, match=f"no attribute '{name}': use ") as refused:
        getattr(cal, name)
    assert instead in str(refused.value)
    with pytest.raises(AttributeError, match=r"object has no attribute 'nothing'$"):
        _ = cal.nothing


def test_a_receipt_that_came_as_text(forecast: Forecast) -> None:
    cal = Calibrator("ops")
    text = cal.predict(0.4).to_json()
    for given in (text, text.encode()):
        with pytest.raises(InvalidInput, match=r"got \w+ - Forecast.from_json\(text\) makes one of it$"):
            cal.update(given, 1)
    cal.update(Forecast.from_json(text), 1)
    many = MultiCalibrator(3)
    text = many.predict([0.2, 0.3, 0.5]).to_json()
    with pytest.raises(InvalidInput, match=r"got str - MultiForecast.from_json\(text\) makes one of it$"):
        many.update(text, 1)
    many.update(MultiForecast.from_json(text), 1)
    for other in (0.4, {"score": 0.4}, None):
        with pytest.raises(InvalidInput, match=r"forecast must be a Forecast made by predict, got \w+$"):
            cal.update(other, 1)
    assert forecast.event == 0


def test_a_bank_is_saved_into_a_folder_that_is_missing(tmp_path: Path) -> None:
    bank = Bank()
    bank.update("fr", bank.predict("fr", 0.3), 1)
    path = tmp_path / "nowhere" / "bank.calibeat"
    with pytest.raises(FileNotFoundError, match=r"the folder .*nowhere does not exist.*bank\.calibeat") as refused:
        bank.save(path)
    assert refused.value.filename == str(path) and ".part" not in str(refused.value)


def test_the_client_without_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("calibeat.client")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "msgspec", None)
    with pytest.raises(MissingExtra, match=r"calibeat.client needs msgspec: pip install 'calibeat\[client\]'"):
        importlib.import_module("calibeat.client")
