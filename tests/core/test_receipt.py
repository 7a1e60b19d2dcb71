"""A forecast is a number where numbers are used, and travels as JSON, as bytes or as a pickle without losing a bit."""

from __future__ import annotations

import copy
import json
import operator
import pickle
import sys
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from streams import STREAMS, variants

from calibeat import AUTO, Calibrator, Forecast, InvalidInput, MultiCalibrator, MultiForecast, UnknownForecast
from calibeat.core.groups import MOST_GROUPED_RECEIPT

FIELDS = ("probability", "score", "expert", "bin", "cell", "event", "seen", "issuer", "lanes", "hedge")


def fields(forecast: Forecast) -> tuple[Any, ...]:
    return tuple(getattr(forecast, name) for name in FIELDS)


def some(name: str) -> list[Forecast]:
    calibrator = Calibrator(variants()[name], seed=3, stream="paris")
    calibrator.run(*(column[:50] for column in STREAMS["extreme"]()))
    restarted = Calibrator.from_json(calibrator.to_json())
    return [*(calibrator.predict(score) for score in (0.0, 5e-324, 1 / 3, 0.5, 1.0)), restarted.predict(0.7)]


# ---- as data -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", variants())
def test_every_way_gives_the_same_bits(name: str) -> None:
    sizes = set()
    for forecast in some(name):
        ways = [
            Forecast.from_json(forecast.to_json()),
            Forecast.from_json(forecast.to_json().encode()),
            Forecast.from_json(json.dumps(forecast.to_dict())),
            Forecast.from_dict(forecast.to_dict()),
            Forecast.from_bytes(forecast.to_bytes()),
            Forecast.from_bytes(bytearray(forecast.to_bytes())),
            Forecast.from_bytes(memoryview(forecast.to_bytes())),
            *(
                pickle.loads(pickle.dumps(forecast, protocol))  # noqa: S301 - our own bytes
                for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
            ),
            copy.copy(forecast),
            copy.deepcopy(forecast),
            forecast.__replace__(),
            Forecast(*fields(forecast)),
            Forecast(**dict(zip(FIELDS, fields(forecast), strict=True))),
        ]
        sizes.add(len(forecast.to_bytes()))
        for other in ways:
            assert type(other) is Forecast
            assert fields(other) == fields(forecast)
            assert [type(field) for field in fields(other)] == [type(field) for field in fields(forecast)]
            assert other.candidates == forecast.candidates and other == forecast and hash(other) == hash(forecast)
            assert repr(other) == repr(forecast)
    assert len(sizes) == 1  # one width for each method


def test_what_a_forecast_says_of_itself() -> None:
    forecast = Calibrator("ops", stream=0).predict(0.25)
    shown = (
        "Forecast(probability=0.25, score=0.25, expert=0.25, bin=2, cell=2, event=0, seen=0, "
        "issuer='3e28547c9c3d73d0', lanes=(), hedge=())"
    )
    assert repr(forecast) == str(forecast) == f"{forecast}" == shown
    assert eval(shown) == forecast  # noqa: S307 - our own text
    assert Calibrator(AUTO).predict(0.25).lanes[:2] == (0.0, 0.25)  # outcomes learnt, and the score
    assert forecast.hedge == () and forecast.candidates == ((0.25, 1.0),)
    drawn = next(forecast for forecast in some("hops") if forecast.hedge)
    (low, first), (high, second) = drawn.hedge
    assert drawn.candidates == drawn.hedge and first + second == 1.0 and low < high and drawn.probability in (low, high)


def test_the_json_has_a_version() -> None:
    forecast = Calibrator("auto").predict(0.3)
    assert json.loads(forecast.to_json())["v"] == 2
    data = forecast.to_dict()
    assert Forecast.from_dict({**data, "note": "of a later version", "more": [1]}) == forecast
    for version in (0, 1, 3, -1, "2", 2.0, True, None):
        with pytest.raises(InvalidInput, match="must be a receipt of version 2, got version"):
            Forecast.from_dict({**data, "v": version})
    del data["v"]
    with pytest.raises(InvalidInput, match="must be a receipt of version 2, got version None"):
        Forecast.from_dict(data)
    with pytest.raises(InvalidInput, match="got version 7 - another version of calibeat may have made it"):
        Forecast.from_bytes(b"\x07" + forecast.to_bytes()[1:])


# ---- as a number ---------------------------------------------------------------------------------------------------


def test_it_compares_like_its_probability() -> None:
    forecast, higher = Calibrator("ops").predict(0.25), Calibrator("ops").predict(0.75)
    for number, less in ((0.3, True), (np.float64(0.3), True), (1, True), (0.2, False), (Fraction(1, 5), False)):
        assert (forecast < number, forecast <= number, number > forecast, number >= forecast) == (less,) * 4
        assert (forecast > number, forecast >= number, number < forecast, number <= forecast) == (not less,) * 4
        assert forecast != number and not number == forecast  # noqa: SIM201 - both sides
    assert forecast == 0.25 == forecast == Fraction(1, 4) and 0.25 <= forecast <= 0.25
    nan = float("nan")
    assert not forecast > nan and not forecast < nan and forecast != nan and not forecast >= nan and not forecast <= nan
    assert sorted([higher, 0.5, forecast]) == [forecast, 0.5, higher] and max(forecast, higher) is higher
    assert forecast != "0.25" and forecast != fields(forecast)
    for other in ("0.3", None, [0.3], 1j):
        for compare in (operator.lt, operator.le, operator.gt, operator.ge):
            with pytest.raises(TypeError):
                compare(forecast, other)


def test_two_forecasts_are_equal_if_all_fields_are() -> None:
    forecast = Calibrator("ops", stream=0).predict(0.25)
    assert forecast == Calibrator("ops", stream=0).predict(0.25) != Calibrator("ops", seed=1, stream=0).predict(0.25)
    assert forecast != Calibrator("ops").predict(0.25)
    hedged = next(forecast for forecast in some("hops") if forecast.hedge)
    mixed = Calibrator(AUTO).predict(0.25)
    others = {"probability": 0.3, "score": 0.3, "expert": 0.3, "bin": 7, "cell": 7, "event": 7, "seen": 7}
    for name, value in {**others, "issuer": "0" * 16, "lanes": (0.5,), "hedge": ((0.1, 0.5), (0.2, 0.5))}.items():
        for each in (forecast, hedged, mixed):
            changed = each.__replace__(**{name: value})
            assert changed != each and not changed == each and getattr(changed, name) == value  # noqa: SIM201 - both
            assert changed.__replace__(**{name: getattr(each, name)}) == each


def test_keys_of_a_dictionary() -> None:
    forecast = Calibrator("ops", stream=0).predict(0.25)
    assert hash(forecast) == hash(0.25) and {0.25: "quarter"}[forecast] == "quarter"
    assert len({forecast, Calibrator("ops", stream=0).predict(0.25), 0.25}) == 1
    other = Calibrator("ops", seed=1).predict(0.25)
    assert {forecast: 1, other: 2}[other] == 2 and forecast in [0.1, 0.25] and 0.25 in [0.1, forecast]


def test_what_is_made_of_it_is_a_number() -> None:
    forecast, numbers = Calibrator("bm").predict(0.25), np.array([0.1, 0.25, 0.5])
    assert isinstance(forecast, float) and type(forecast.probability) is float
    for made, number in (
        (+forecast, 0.25),
        (round(forecast, 1), 0.2),
        (0.5 + forecast, 0.75),
        (forecast / 2, 0.125),
        (forecast * forecast, 0.0625),
        (sum([forecast, forecast]), 0.5),
        (json.loads(json.dumps({"p": forecast}))["p"], 0.25),
    ):
        assert made == number and type(made) is float
    assert f"{forecast:.1%}" == "25.0%" and json.dumps([forecast]) == "[0.25]"
    for array in (numbers * forecast, forecast - numbers, np.array([forecast, 1]), np.asarray(forecast)):
        assert array.dtype == np.float64
    assert (forecast < numbers).tolist() == (numbers > forecast).tolist() == [False, False, True]
    with pytest.raises(TypeError):
        Forecast.fromhex("0x1p-2")  # a number alone is no receipt


# ---- what it is not ------------------------------------------------------------------------------------------------


def test_it_is_no_tuple() -> None:
    forecast: Any = Calibrator("ops").predict(0.25)
    assert not isinstance(forecast, tuple)
    for action in (
        lambda: len(forecast),
        lambda: tuple(forecast),
        lambda: forecast[0],
        lambda: dict(zip(FIELDS, forecast, strict=True)),
    ):
        with pytest.raises(TypeError):
            action()


def test_nothing_of_it_can_be_changed() -> None:
    cal = Calibrator("hops", seed=3)
    cal.run([0.3, 0.4], [1, 0])
    for forecast in (cal.predict(0.3), copy.copy(cal.predict(0.3))):
        before = fields(forecast)
        for name in (*FIELDS, "candidates", "origin", "receipt", "width", "new"):
            with pytest.raises(AttributeError):
                setattr(forecast, name, 1)
            with pytest.raises((AttributeError, TypeError)):
                delattr(forecast, name)
        with pytest.raises(TypeError, match="cannot be made again"):
            forecast.__init__(*fields(Calibrator("ops", stream=0).predict(0.5)))  # type: ignore[misc]
        with pytest.raises(TypeError):
            vars(forecast)
        assert fields(forecast) == before


def test_a_changed_copy() -> None:
    forecast = Calibrator(AUTO).predict(0.25)
    changed = forecast.__replace__(event=3, lanes=forecast.lanes[:2])
    assert (changed.event, changed.lanes, changed.score) == (3, forecast.lanes[:2], 0.25) and forecast.event == 0
    for name in ("candidates", "v", "scores"):
        with pytest.raises(TypeError, match=f"a forecast has no field '{name}'"):
            forecast.__replace__(**{name: 1})
    if sys.version_info >= (3, 13):
        assert copy.replace(forecast, event=3).event == 3


def test_what_cannot_be_a_forecast() -> None:
    good = dict(zip(FIELDS, fields(Calibrator("ops").predict(0.25)), strict=True))
    for name, value in [
        *((name, value) for name in ("probability", "score", "expert") for value in ("0.5", None, [0.5], 1j)),
        *((name, value) for name in ("bin", "cell", "event", "seen") for value in (1.5, "1", None, 1j)),
        *(("issuer", value) for value in (None, b"00", 7)),
        *(("lanes", value) for value in (None, 7, ("x",), "ab", (None,))),
        *(("hedge", value) for value in (None, 7, ("x", "y"), ((0.5, "x"), (0.5, 0.5)), (0.5, 0.5))),
    ]:
        with pytest.raises((TypeError, ValueError)):
            Forecast(**{**good, name: value})
    with pytest.raises(OverflowError):
        Forecast(**{**good, "event": 2**63})
    with pytest.raises(TypeError):
        Forecast(0.5)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Forecast(**good, more=1)
    Forecast(**{**good, "lanes": (0.5,) * MOST_GROUPED_RECEIPT})
    with pytest.raises(InvalidInput, match=f"at most {MOST_GROUPED_RECEIPT} numbers, got {MOST_GROUPED_RECEIPT + 1}"):
        Forecast(**{**good, "lanes": (0.5,) * (MOST_GROUPED_RECEIPT + 1)})
    for models in (2, 16):
        Forecast(**{**good, "lanes": (0.5,) * (6 + 12 * models)})
    for width in (18, 19, 29, 31, 6 + 12 * 17):
        with pytest.raises(InvalidInput, match=f"forecast lanes must be .* got {width}"):
            Forecast(**{**good, "lanes": (0.5,) * width})
    for count in (1, 3):
        with pytest.raises(InvalidInput, match=f"hedge must be two pairs or nothing, got {count}"):
            Forecast(**{**good, "hedge": ((0.5, 0.5),) * count})
    assert Forecast(**good, words=(1, 2**64 - 1)).words == (1, 2**64 - 1)
    for words in ((0,), (2**64,), (-1,), (1.0,), ("a",), (True,), (1,) * 17):
        with pytest.raises(InvalidInput, match="forecast words must be"):
            Forecast(**good, words=words)


# ---- what comes from outside ---------------------------------------------------------------------------------------


GOOD = Calibrator("ops", stream=0).predict(0.5)


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
        GOOD.to_json().replace("[[0.5, 1.0]]", "[[0.5, 1.0], [0.5, 1.0], [0.5, 1.0]]"),
        GOOD.to_json().replace('"lanes": []', '"lanes": [' + ", ".join(["0.5"] * 19) + "]"),
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
        GOOD.to_bytes()[:2] + b"\x13\0" + GOOD.to_bytes()[4:] + bytes(152),
        "text",
        None,
        GOOD,
    ],
)
def test_bytes_that_were_damaged_on_the_way(data: Any) -> None:
    with pytest.raises(InvalidInput, match="forecast"):
        Forecast.from_bytes(data)


@pytest.mark.parametrize("name", ["ops", "hops", "auto", "gauto"])
def test_a_receipt_that_was_changed_is_refused(name: str) -> None:
    cal = Calibrator(name, seed=2)
    cal.run(*STREAMS["drifting"]())
    good, before = json.loads(cal.predict(0.3).to_json()), cal.to_json()
    lanes = good["lanes"]
    changed = [{name: wrong} for name, wrong in (("probability", 0.123), ("score", 0.31), ("event", 7), ("seen", 7))]
    changed += [
        {"lanes": [*lanes[:at], wrong, *lanes[at + 1 :]]} for at in range(len(lanes)) for wrong in (0.25, 1e300)
    ]
    for change in (*changed, {"lanes": [*lanes, 0.5]}):
        with pytest.raises(InvalidInput, match="forecast must be as it was issued"):
            cal.update(Forecast.from_dict({**good, **change}), 1)
    assert cal.to_json() == before


@pytest.mark.parametrize("issuer", ["me", "", "0" * 15, "0" * 17, "0" * 16 + "-", "0" * 16 + "-1", "G" * 16])
def test_a_receipt_of_nobody_has_no_bytes(issuer: str) -> None:
    with pytest.raises(InvalidInput, match=f"issuer must be a name made by a calibrator, got '{issuer}'"):
        GOOD.__replace__(issuer=issuer).to_bytes()


# ---- many classes --------------------------------------------------------------------------------------------------

CLASSES = ["cat", "dog", "bird"]


@pytest.fixture
def cal() -> MultiCalibrator:
    return MultiCalibrator(CLASSES)


@pytest.fixture
def data(cal: MultiCalibrator) -> dict[str, Any]:
    return json.loads(cal.predict([0.2, 0.3, 0.5]).to_json())


def test_of_many_classes_it_is_an_array_and_reads_well(cal: MultiCalibrator) -> None:
    forecast = cal.predict([0.2, 0.3, 0.5])
    np.testing.assert_array_equal(np.asarray(forecast), forecast.probabilities)
    copied = np.array(forecast, copy=True)
    copied[0] = 0.0
    assert forecast.probabilities[0] > 0.1
    with pytest.raises(ValueError, match="read-only"):
        forecast.probabilities[0] = 1.0
    assert repr(forecast) == f"MultiForecast(label='bird', confidence={forecast.confidence}, event=0, seen=0)"


@pytest.mark.parametrize("method", ["raw", "ots", "multi"])
def test_of_many_classes_it_travels_too(method: str) -> None:
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
def test_damage_of_many_classes_is_named(data: dict[str, Any], change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        MultiForecast.from_dict({**data, **change})


def test_of_many_classes_missing_fields_and_foreign_text(data: dict[str, Any]) -> None:
    del data["score"]
    with pytest.raises(InvalidInput, match="must have the field 'score'"):
        MultiForecast.from_dict(data)
    for text in ("[1]", "{", b"\xff"):
        with pytest.raises(InvalidInput, match="forecast must be"):
            MultiForecast.from_json(text)


def test_a_calibrator_of_many_classes_knows_its_own(cal: MultiCalibrator, data: dict[str, Any]) -> None:
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
