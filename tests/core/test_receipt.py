"""A forecast is a number where numbers are used, and travels as JSON, as bytes or as a pickle without losing a bit."""

from __future__ import annotations

import copy
import json
import math
import operator
import pickle
import statistics
import sys
from collections.abc import Callable
from fractions import Fraction
from numbers import Real
from typing import Any

import numpy as np
import pytest
from streams import STREAMS, variants

from calibeat import AUTO, Calibrator, Forecast, InvalidInput
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
        "issuer='0059e87129c83af3', lanes=(), hedge=())"
    )
    assert repr(forecast) == str(forecast) == f"{forecast}" == shown
    assert eval(shown) == forecast  # noqa: S307 - our own text
    assert Calibrator(AUTO).predict(0.25).lanes[:2] == (0.0, 0.25)  # outcomes learnt, and the score


def test_a_hedge_is_two_candidates_that_weigh_one() -> None:
    drawn = next(forecast for forecast in some("hops") if forecast.hedge)
    (low, first), (high, second) = drawn.hedge
    assert drawn.candidates == drawn.hedge and first + second == 1.0 and low < high
    assert drawn.probability in (low, high)
    alone = Calibrator("ops").predict(0.25)
    assert alone.hedge == () and alone.candidates == ((0.25, 1.0),)


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
    assert forecast > 0.2 and forecast >= 0.25 and forecast < 0.3 and forecast <= 0.25 and forecast != 0.3
    assert forecast > 0.2 and forecast < 0.3 and forecast == 0.25 and forecast == Fraction(1, 4)
    assert 0.2 < forecast <= 0.25 and 0.25 == forecast and not 0.3 == forecast  # noqa: SIM300, SIM201 - both sides
    assert forecast < np.float64(0.5) and np.float64(0.5) > forecast and forecast < 1 and forecast > np.int8(0)
    nan = float("nan")
    assert not forecast > nan and not forecast < nan and forecast != nan and not forecast >= nan and not forecast <= nan
    assert forecast >= 0.25 and forecast <= 0.25 and not forecast >= 0.3 and not forecast <= 0.2
    assert max(forecast, higher) is higher and min(higher, forecast) is forecast and forecast < higher > 0.5
    assert sorted([higher, 0.5, forecast]) == [forecast, 0.5, higher]
    assert forecast < 10**400 and forecast > -(10**400)
    assert forecast != "0.25" and (forecast == "0.25") is False and forecast != fields(forecast)
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


UNARY: list[Callable[[Any], Any]] = [
    float,
    bool,
    abs,
    operator.neg,
    operator.pos,
    round,
    lambda x: round(x, 1),
    complex,
    math.sqrt,
    math.log,
    int,
    math.floor,
    math.ceil,
    math.trunc,
    lambda x: x.real,
    lambda x: x.imag,
    lambda x: x.conjugate(),
    math.isfinite,
    lambda x: f"{x:.1%} {x:8.3f} {x:g}",
    lambda x: format(x, ".2e"),
    lambda x: "%.3f" % x,  # noqa: UP031 - this way too
]


@pytest.mark.parametrize("number", [0.0, 0.25, 1 / 3, 1.0])
def test_what_is_done_to_numbers(number: float) -> None:
    forecast = Calibrator("bm").predict(number)
    assert forecast.probability == number
    for do in UNARY:
        if do is not math.log or number:
            assert do(forecast) == do(number) and type(do(forecast)) is type(do(number))
    binary = (operator.add, operator.sub, operator.mul, operator.truediv, operator.pow)
    for other in (0.5, 3, True, Fraction(1, 3), np.float64(0.7), np.int64(2), 2 + 1j):
        for do in binary:
            if number:
                result, wanted = do(forecast, other), do(number, other)
                assert result == wanted and isinstance(result, (float, complex)) and type(result) is not Forecast
            assert do(other, forecast) == do(other, number) if number else True
    for do in (operator.floordiv, operator.mod, divmod):
        for other in (0.5, 3, Fraction(1, 3), np.float64(0.7)):
            assert do(forecast, other) == do(number, other) and type(do(forecast, other)) is not Forecast
            assert do(other, forecast) == do(other, number) if number else True
        for thing in (None, "x"):
            with pytest.raises(TypeError):
                do(forecast, thing)
            with pytest.raises(TypeError):
                do(thing, forecast)
    for do in binary[:3]:
        assert do(forecast, forecast) == do(number, number)
    assert pow(forecast, 2) == number**2
    with pytest.raises(TypeError):
        pow(forecast, 2, 7)
    with pytest.raises(ZeroDivisionError):
        forecast / 0
    for do in binary:
        for thing in ("x", None):
            with pytest.raises(TypeError):
                do(forecast, thing)
            with pytest.raises(TypeError):
                do(thing, forecast)


def test_what_is_done_to_many_numbers() -> None:
    cal = Calibrator("bm")
    forecasts = [cal.predict(number) for number in (0.25, 0.5, 0.75)]
    assert sum(forecasts) == 1.5 and math.fsum(forecasts) == 1.5 and max(forecasts) == 0.75 and min(forecasts) == 0.25
    assert sum(forecasts) / len(forecasts) == statistics.fmean(forecasts) == 0.5
    assert [float(forecast) for forecast in sorted(forecasts, reverse=True)] == [0.75, 0.5, 0.25]
    assert any(forecast > 0.7 for forecast in forecasts) and math.prod(forecasts) == 0.09375


def test_among_arrays() -> None:
    forecast, numbers = Calibrator("bm").predict(0.25), np.array([0.1, 0.25, 0.5])
    for array in (
        numbers * forecast,
        forecast * numbers,
        numbers + forecast,
        numbers / forecast,
        forecast / numbers,
        numbers**forecast,
        forecast**numbers,
        np.add(numbers, forecast),
        np.array([forecast, forecast]),
        np.asarray(forecast),
        np.array([forecast, 0.5, 1]),
        np.exp(forecast),
        np.mean([forecast, forecast]),
        np.float32(0.5) * forecast,
    ):
        assert array.dtype == np.float64
    assert (numbers * forecast == numbers * 0.25).all() and (forecast - numbers == 0.25 - numbers).all()
    for compared in (numbers > forecast, forecast < numbers):
        assert compared.dtype == bool and compared.tolist() == [False, False, True]
    assert (forecast == numbers).tolist() == (numbers == forecast).tolist() == [False, True, False]
    assert np.array([forecast]).tolist() == [0.25] and np.array(forecast, dtype=np.float32).dtype == np.float32
    numbers[0] = forecast
    assert numbers[0] == 0.25 and np.isclose(forecast, 0.25) and np.float64(forecast) == 0.25


def test_in_json_it_is_a_number() -> None:
    forecast = Calibrator("bm").predict(0.25)
    assert json.dumps({"p": forecast, "ps": [forecast]}) == '{"p": 0.25, "ps": [0.25]}'
    assert json.dumps([forecast], indent=1) == "[\n 0.25\n]"


def test_a_float_of_its_own_class() -> None:
    forecast = Calibrator("bm").predict(0.25)
    assert isinstance(forecast, float) and isinstance(forecast, Real)
    assert (
        type(forecast.probability) is float
        and forecast.as_integer_ratio() == (1, 4)
        and forecast.hex() == "0x1.0000000000000p-2"
    )
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
    for name in ("_replace", "_asdict", "_fields", "_make"):
        assert not hasattr(forecast, name)


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


@pytest.mark.parametrize("issuer", ["me", "", "0" * 15, "0" * 17, "0" * 16 + "-", "0" * 16 + "-1", "G" * 16])
def test_a_receipt_of_nobody_has_no_bytes(issuer: str) -> None:
    with pytest.raises(InvalidInput, match=f"issuer must be a name made by a calibrator, got '{issuer}'"):
        GOOD.__replace__(issuer=issuer).to_bytes()
