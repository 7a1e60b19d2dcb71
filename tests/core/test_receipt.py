"""A forecast compares like its probability, and travels as JSON, as a list or as bytes without losing a bit."""

from __future__ import annotations

import json
import pickle
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from streams import STREAMS, variants

from calibeat import Calibrator, Forecast, InvalidInput


def some(name: str) -> list[Forecast]:
    calibrator = Calibrator(variants()[name], seed=3, stream="paris")
    calibrator.run(*(column[:50] for column in STREAMS["extreme"]()))
    restarted = Calibrator.from_json(calibrator.to_json())
    return [*(calibrator.predict(score) for score in (0.0, 5e-324, 1 / 3, 0.5, 1.0)), restarted.predict(0.7)]


@pytest.mark.parametrize("name", variants())
def test_every_way_gives_the_same_bits(name: str) -> None:
    sizes = set()
    for forecast in some(name):
        ways = [
            Forecast.from_json(forecast.to_json()),
            Forecast.from_json(forecast.to_json().encode()),
            Forecast.from_json(json.dumps(forecast)),
            Forecast.from_dict(forecast.to_dict()),
            Forecast.from_bytes(forecast.to_bytes()),
            Forecast.from_bytes(bytearray(forecast.to_bytes())),
            pickle.loads(pickle.dumps(forecast)),  # noqa: S301 - our own bytes
            forecast._replace(),
        ]
        sizes.add(len(forecast.to_bytes()))
        for other in ways:
            assert type(other) is Forecast
            assert tuple(other) == tuple(forecast)
            assert [type(field) for field in other] == [type(field) for field in forecast]
            assert other.candidates == forecast.candidates
    assert len(sizes) == 1  # one width for each method


def test_the_json_has_a_version() -> None:
    forecast = Calibrator("auto").predict(0.3)
    assert json.loads(forecast.to_json())["v"] == 1
    data = forecast.to_dict()
    assert Forecast.from_dict({**data, "note": "of a later version", "more": [1]}) == forecast
    for version in (0, 2, -1, "1", 1.0, True, None):
        with pytest.raises(InvalidInput, match="must be a receipt of version 1, got version"):
            Forecast.from_dict({**data, "v": version})
    del data["v"]
    with pytest.raises(InvalidInput, match="must be a receipt of version 1, got version None"):
        Forecast.from_dict(data)
    with pytest.raises(InvalidInput, match="got version 7 - another version of calibeat may have made it"):
        Forecast.from_bytes(b"\x07" + forecast.to_bytes()[1:])


def test_it_compares_like_its_probability() -> None:
    forecast, higher = Calibrator("ops").predict(0.25), Calibrator("ops").predict(0.75)
    assert forecast > 0.2 and forecast >= 0.25 and forecast < 0.3 and forecast <= 0.25 and forecast != 0.3
    assert forecast > 0.2 and forecast < 0.3 and forecast == 0.25 and forecast == Fraction(1, 4)
    assert forecast < np.float64(0.5) and np.float64(0.5) > float(forecast) and forecast < 1 and forecast > np.int8(0)
    nan = float("nan")
    assert not forecast > nan and not forecast < nan and forecast != nan and not forecast >= nan and not forecast <= nan
    assert forecast >= 0.25 and forecast <= 0.25 and not forecast >= 0.3 and not forecast <= 0.2
    assert max(forecast, higher) is higher and min(higher, forecast) is forecast
    assert forecast == Calibrator("ops").predict(0.25) != Calibrator("ops", seed=1).predict(0.25)
    assert len({forecast, Calibrator("ops").predict(0.25), 0.25}) == 1
    assert forecast != "0.25" and (forecast == "0.25") is False and forecast == tuple(forecast)
    with pytest.raises(TypeError):
        _ = forecast < "0.3"


GOOD = Calibrator("ops").predict(0.5)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "3",
        "[]",
        "[0.5]",
        "[" * 100_000,
        None,
        '{"probability": 0.5}',
        "null",
        GOOD.to_json().replace("0.5", '"x"', 1),
        GOOD.to_json().replace("[[0.5, 1.0]]", "7"),
    ],
)
def test_json_that_was_damaged_on_the_way(text: Any) -> None:
    with pytest.raises(InvalidInput, match="forecast"):
        Forecast.from_json(text)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01",
        GOOD.to_bytes()[:-1],
        GOOD.to_bytes() + b"\0",
        GOOD.to_bytes()[:48] + b"\xff" * 8 + GOOD.to_bytes()[56:],
        "text",
        None,
        GOOD,
    ],
)
def test_bytes_that_were_damaged_on_the_way(data: Any) -> None:
    with pytest.raises(InvalidInput, match="forecast"):
        Forecast.from_bytes(data)


def test_a_receipt_of_nobody_has_no_bytes() -> None:
    with pytest.raises(InvalidInput, match="issuer must be a name made by a calibrator, got 'me'"):
        GOOD._replace(issuer="me").to_bytes()
