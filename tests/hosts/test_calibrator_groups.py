"""A calibrator with groups: columns, golden numbers, receipts, snapshots, readings and refusals.

That batches, single events, late outcomes and restarts agree is in `test_all_hosts_agree`.
"""

from __future__ import annotations

import json
import logging
from collections import UserList
from collections.abc import Callable
from typing import Any

import golden
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from fresh import fresh as program
from group_streams import names_of, world

from calibeat import (
    AUTO,
    GAUTO,
    TOPS,
    Bank,
    Calibrator,
    Forecast,
    Groups,
    InvalidInput,
    Method,
    Monitor,
    MultiBank,
    MultiCalibrator,
    SnapshotMismatch,
    UnknownForecast,
)
from calibeat._util.sealed import checksum
from calibeat.core import loops
from calibeat.core.receipt import EXPERT

METHODS = {"auto": AUTO, "gauto": GAUTO}
EVENTS = 300
SCORES, OUTCOMES, COLUMNS = world(EVENTS, 2, 12, seed=4)


def groups(cells: int = 64, **settings: Any) -> Groups:
    """Few cells, so that some are forgotten."""
    return Groups(["country", "device"], **{"cells": cells, "seed": 11, **settings})


def fresh(method: Method = AUTO, **settings: Any) -> Calibrator:
    return Calibrator(method, seed=3, groups=groups(**settings))


def event(i: int) -> tuple[int, int]:
    return int(COLUMNS[i, 0]), int(COLUMNS[i, 1])


# ---- the same bits on every way --------------------------------------------------------------------------------------


def test_batches_may_be_cut_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, pieces, cut = fresh(), fresh(), fresh()
    expected = whole.run(SCORES, OUTCOMES, groups=COLUMNS)
    monkeypatch.setattr(loops, "PIECE", 7)
    assert (pieces.run(SCORES, OUTCOMES, groups=COLUMNS) == expected).all()
    parts = [slice(0, 1), slice(1, 130), slice(130, EVENTS)]
    found = [cut.run(SCORES[part], OUTCOMES[part], groups=COLUMNS[part]) for part in parts]
    assert (np.concatenate(found) == expected).all()
    assert whole.to_json() == pieces.to_json() == cut.to_json()


def test_columns_of_every_kind_and_single_values_of_every_kind() -> None:
    table = {"country": [f"c{v}" for v in COLUMNS[:, 0]], "device": COLUMNS[:, 1].tolist()}
    expected = fresh().run(SCORES, OUTCOMES, groups=table)
    kinds: list[Any] = [
        pd.DataFrame(table),
        pl.DataFrame(table),
        pa.table(table),
        np.array(list(zip(*table.values(), strict=True)), dtype=object),
        list(zip(*table.values(), strict=True)),
        pd.DataFrame(table).astype({"country": "category"}),
    ]
    for kind in kinds:
        assert (fresh().run(SCORES, OUTCOMES, groups=kind) == expected).all()
    for form in (dict, lambda pairs: tuple(dict(pairs).values()), lambda pairs: list(dict(pairs).values())):
        cal = fresh()
        for i in range(EVENTS):
            forecast = cal.predict(
                float(SCORES[i]), groups=form([("country", table["country"][i]), ("device", table["device"][i])])
            )
            assert float(forecast) == expected[i]
            cal.update(forecast, int(OUTCOMES[i]))


@pytest.mark.parametrize("name", METHODS)
def test_peek_and_predict_many_say_what_predict_says_and_change_nothing(name: str) -> None:
    cal = fresh(METHODS[name])
    cal.run(SCORES, OUTCOMES, groups=COLUMNS)
    before = cal.to_json()
    many = cal.predict_many(SCORES[:50], groups=COLUMNS[:50])
    peeked = [cal.peek(float(SCORES[i]), groups=event(i)) for i in range(50)]
    assert cal.to_json() == before
    if name == "auto":  # a guard draws for each event
        assert many.tolist() == peeked
    assert float(cal.predict(float(SCORES[0]), groups=event(0))) == many[0] == peeked[0]
    assert isinstance(cal.predict_many(pd.Series(SCORES[:5]), groups=COLUMNS[:5]), pd.Series)


def test_the_expert_of_a_forecast_is_the_grouped_one() -> None:
    cal = fresh()
    cal.run(SCORES, OUTCOMES, groups=COLUMNS)
    forecast = cal.predict(0.4, groups=event(0))
    assert len(forecast.lanes) == 15 and forecast.expert == forecast.lanes[14] != forecast.lanes[EXPERT]
    assert len(forecast.words) == 2


# ---- golden numbers through the public interface ---------------------------------------------------------------------

CASES = sorted(key.partition("/")[0] for key in golden.groups() if key.endswith("/values"))


@pytest.mark.parametrize("name", CASES)
def test_golden_numbers(name: str) -> None:
    g = {key.partition("/")[2]: value for key, value in golden.groups().items() if key.partition("/")[0] == name}
    names, n = names_of(g["words"].shape[1]), len(g["score"])
    crossings = [(names[a], names[b]) for a, b in g["crossings"]]
    cal = Calibrator(groups=Groups(names, crossings=crossings, cells=int(g["cells"]), seed=int(g["seed"])))
    rows = [json.loads(values) for values in g["values"]]
    due = np.asarray(g["due"]) if "due" in g else np.arange(1, n + 1)
    forecasts = cal.run(g["score"], g["outcome"], groups=rows, due=np.where(due >= n, n + 1, due))
    near = {"rtol": 0.0, "atol": 1e-9}
    np.testing.assert_allclose(forecasts, g["forecast"], rtol=0.0, atol=1e-12)
    params = cal.params["groups"]
    np.testing.assert_allclose(list(params["weights"].values()), g["weights"], **near)
    assert (params["opened"], params["evicted"]) == (g["opened"], g["evicted"])
    if "seg_word" not in g:
        return
    table = cal.segments(least=1)
    order = np.lexsort((table["word"], table["column"]))
    assert (table["word"][order] == g["seg_word"]).all() and (table["events"][order] == g["seg_events"]).all()
    np.testing.assert_allclose(table["log_e"][order], g["seg_log_e"], **near)


# ---- exactly once ----------------------------------------------------------------------------------------------------


def test_receipts_of_other_groups_are_refused() -> None:
    cal = fresh()
    receipts = {
        "none": Calibrator(AUTO, seed=3).predict(0.4),
        "another name": Calibrator(AUTO, seed=3, groups=["country", "colour"]).predict(0.4, groups=("fr", "red")),
        "no crossing": Calibrator(AUTO, seed=3, groups=groups(crossings=[])).predict(0.4, groups=("fr", "red")),
    }
    cal.predict(0.4, groups=("fr", "ios"))
    before = cal.to_json()
    for receipt in receipts.values():
        with pytest.raises(UnknownForecast):
            cal.update(receipt, 1)
    plain = Calibrator(AUTO, seed=3)
    plain.predict(0.4)
    with pytest.raises(UnknownForecast):
        plain.update(cal.predict(0.4, groups=("fr", "ios")), 1)
    assert json.loads(cal.to_json())["row"] == json.loads(before)["row"]


DAMAGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "one word": lambda data: data["words"].pop(),
    "three words": lambda data: data["words"].append("0123456789abcdef"),
    "word 0": lambda data: data["words"].__setitem__(0, "0" * 16),
    "short word": lambda data: data["words"].__setitem__(0, "abc"),
    "text": lambda data: data.__setitem__("words", "0123456789abcdef"),
    "lanes of AUTO": lambda data: data.__setitem__("lanes", data["lanes"][:12]),
    "grouped": lambda data: data["lanes"].__setitem__(14, 0.0),
    "too many lanes": lambda data: data["lanes"].extend([0.5] * 5),
}


@pytest.mark.parametrize("how", DAMAGES)
def test_damaged_receipts_are_refused(how: str) -> None:
    cal = fresh()
    receipt = cal.predict(0.4, groups=event(0))
    before, data = cal.to_json(), json.loads(receipt.to_json())
    DAMAGES[how](data)
    with pytest.raises(InvalidInput, match="forecast"):
        cal.update(Forecast.from_dict(data), 1)
    assert cal.to_json() == before
    cal.update(receipt, 1)


def test_a_receipt_without_groups_may_have_no_words() -> None:
    cal = Calibrator()
    data = cal.predict(0.4).to_dict()
    assert "words" not in data and "words" not in repr(Forecast.from_dict(data))
    with pytest.raises(InvalidInput, match="forecast must be as it was issued, got a damaged one"):
        cal.update(Forecast.from_dict({**data, "words": ["0123456789abcdef"]}), 1)


def test_receipts_hold_hashes_and_no_values() -> None:
    cal = Calibrator(groups=Groups(["country"], seed=77, names=True))
    receipt = cal.predict(0.4, groups=("secretland",))
    assert b"secretland" not in receipt.to_bytes() and "secretland" not in receipt.to_json() + repr(receipt)
    assert len(receipt.to_bytes()) == 104 + 8 * 15 + 8 + 8
    assert f"{77:016x}" not in receipt.to_json()
    assert Forecast.from_bytes(receipt.to_bytes()) == receipt == Forecast.from_json(receipt.to_json())
    with pytest.raises(InvalidInput, match="must have 240 bytes, got 232"):
        Forecast.from_bytes(receipt.to_bytes()[:-8])


# ---- snapshots -------------------------------------------------------------------------------------------------------


def test_a_calibrator_without_groups_is_as_ever() -> None:
    cal = Calibrator()
    cal.run(SCORES, OUTCOMES)
    assert "groups" not in cal.to_json() and "groups" not in cal.params and len(cal.row) == AUTO.width
    assert len(cal.predict(0.4).to_bytes()) == 208


def test_an_old_stream_can_be_given_groups() -> None:
    old = Calibrator(AUTO, seed=3)
    old.run(SCORES, OUTCOMES)
    cal = Calibrator.from_json(old.to_json(), groups=groups())
    assert (cal.events, cal.outcomes) == (EVENTS, EVENTS)
    assert (cal.row[: AUTO.width] == old.row).all() and cal.params["groups"]["cells"] == 0
    cal.run(SCORES, OUTCOMES, groups=COLUMNS)
    assert Calibrator.from_json(cal.to_json()).to_json() == cal.to_json()
    for given in (groups(), ["colour"]):
        with pytest.raises(InvalidInput, match="the snapshot has its own: country, device"):
            Calibrator.from_json(cal.to_json(), groups=given)
    with pytest.raises(InvalidInput, match="groups must have a method with the learner Lanes"):
        Calibrator.from_json(Calibrator(TOPS).to_json(), groups=["country"])


def resealed(text: str, change: Callable[[dict[str, Any]], Any]) -> str:
    state = json.loads(text)
    del state["checksum"]
    change(state)
    return json.dumps({**state, "checksum": checksum(state)})


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state.pop("groups"),
        lambda state: state.__setitem__("groups", None),
        lambda state: state["groups"].pop("slots"),
        lambda state: state["groups"].__setitem__("seed", None),
        lambda state: state["groups"].__setitem__("crossings", []),
        lambda state: state["groups"]["slots"].pop(),
        lambda state: state["row"].pop(),
        lambda state: state["row"].__setitem__(AUTO.width + 1, 0.5),
    ],
)
def test_a_damaged_snapshot_is_refused(change: Any) -> None:
    cal = fresh()
    cal.run(SCORES, OUTCOMES, groups=COLUMNS)
    with pytest.raises(SnapshotMismatch, match="snapshot must"):
        Calibrator.from_json(resealed(cal.to_json(), change))


# ---- readings --------------------------------------------------------------------------------------------------------


def test_params_and_segments() -> None:
    scores, outcomes, columns = world(3000, 2, 4, seed=2)
    table = {"country": [f"c{v}" for v in columns[:, 0]], "device": columns[:, 1]}
    cal = Calibrator(groups=Groups(["country", "device"], names=True))
    cal.run(scores, outcomes, groups=table)
    params = cal.params["groups"]
    assert list(params["spread"]) == ["country", "device", "country x device"]
    assert params["spread"]["country"] > params["spread"]["country x device"]
    assert sum(params["weights"].values()) == pytest.approx(1.0)
    segments = cal.segments(least=200)
    assert (segments["events"] >= 200).all() and set(segments["attribute"]) <= set(params["spread"])
    for i, (attribute, value) in enumerate(zip(segments["attribute"], segments["value"], strict=True)):
        if attribute == "country":
            own = np.array(table["country"]) == value
            assert segments["events"][i] == own.sum() and segments["rate"][i] == outcomes[own].mean()
            assert segments["mean_score"][i] == pytest.approx(scores[own].mean())
    assert list(segments.to_frame().columns) == list(segments)
    for bad in (0, 1.5, "many"):
        with pytest.raises(InvalidInput, match="least must be"):
            cal.segments(least=bad)  # type: ignore[arg-type]


def test_a_score_that_is_right_on_average_and_wrong_in_each_country_is_corrected() -> None:
    rng = np.random.default_rng(0)
    country = rng.integers(0, 5, 6000)
    truth = np.where(country == 3, 0.8, 0.3)
    outcomes = rng.random(6000) < truth
    cal = Calibrator(groups=["country"], monitor={"raw": Monitor()})
    p = cal.run(np.full(6000, 0.4), outcomes, groups={"country": country})
    assert abs(p[3000:][country[3000:] == 3].mean() - 0.8) < 0.03
    assert abs(p[3000:][country[3000:] == 1].mean() - 0.3) < 0.03
    assert not cal.monitors["raw"].alarms and cal.monitors["raw"].outcomes == 6000
    table = cal.segments()
    assert sorted((table["offset"] > 1.0).tolist()) == [False] * 4 + [True]
    assert abs(table["rate"] - table["mean_forecast"]).max() < 0.03


def test_many_values_of_an_id_are_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "calibeat")
    for way in ("batch", "single"):
        caplog.clear()
        cal = Calibrator(groups=Groups(["user", "device"], cells=64))
        if way == "batch":
            for _ in range(2):
                cal.run([0.5] * 200, [0, 1] * 100, groups={"user": np.arange(200), "device": [1] * 200})
        else:
            for i in range(400):
                cal.update(cal.predict(0.5, groups=(i, 1)), i % 2)
        assert len(caplog.records) == 1 and "it is probably an id, not a segment" in caplog.text


def test_however_many_values_there_are_the_snapshot_stays_small() -> None:
    cal = Calibrator(groups=Groups(["user"], cells=1024))
    for first in range(0, 200_000, 50_000):
        n = 50_000
        cal.run(np.full(n, 0.5), np.arange(n) % 2, groups={"user": np.arange(first, first + n)})
        assert len(cal.to_json()) < 1024 * 300 and cal.params["groups"]["cells"] <= 1024


def test_repr() -> None:
    assert repr(fresh()) == "Calibrator(AUTO, groups=['country', 'device'], events=0, outcomes=0)"


# ---- bad input -------------------------------------------------------------------------------------------------------

BAD = {
    "none": (None, "groups must be country, device, got none"),
    "unknown": ({"country": 1, "device": 2, "tier": 3}, "got 'tier' too"),
    "missing": ({"country": 1}, "got none for 'device'"),
    "long": ((1, 2, 3), "got 3 values"),
    "text": ("fr", "groups must be a dict or a sequence of country, device"),
    "number": ((37.5, 1), "country must be a string, a whole number, a bool or None, got 37.5; cut numbers into bands"),
    "list": (([1], 1), "country must be a string, a whole number, a bool or None, got list"),
    "wide": ((2**63, 1), "must fit into 64 bits"),
}


@pytest.mark.parametrize("how", BAD)
def test_bad_groups_are_refused_with_a_sentence_and_change_nothing(how: str) -> None:
    given, sentence = BAD[how]
    cal = fresh()
    before = cal.to_json()
    with pytest.raises(InvalidInput, match=sentence):
        cal.predict(0.4, groups=given)
    with pytest.raises(InvalidInput, match=sentence):
        cal.peek(0.4, groups=given)
    assert cal.to_json() == before


def test_bad_columns_are_refused_with_a_sentence_and_change_nothing() -> None:
    cal = fresh()
    before = cal.to_json()
    for given, sentence in [
        (None, "groups must be country, device, got none"),
        ({"country": [1, 2]}, "got none for 'device'"),
        ({"country": [1, 2], "device": [1, 2.5]}, "device must be .* got 2.5; .* - at row 1"),
        ({"country": [1, 2], "device": [1]}, "device must have a value for each of the 2 scores, got 1"),
        (np.zeros((2, 3)), "groups must be an array of shape"),
        ([(1, 2), (1,)], "got 1 values - at row 1"),
    ]:
        for due in (None, [1, 2]):
            with pytest.raises(InvalidInput, match=sentence):
                cal.run([0.2, 0.3], [0, 1], groups=given, due=due)
        with pytest.raises(InvalidInput, match=sentence):
            cal.predict_many([0.2, 0.3], groups=given)
    assert cal.to_json() == before


def test_hosts_without_groups_refuse_them_with_a_sentence() -> None:
    plain = Calibrator()
    left_out = "groups must be left out, the calibrator has none"
    calls: list[tuple[Callable[[], Any], str]] = [
        (lambda: plain.predict(0.4, groups=("fr",)), left_out),
        (lambda: plain.peek(0.4, groups=("fr",)), left_out),
        (lambda: plain.run([0.4], [1], groups=[("fr",)]), left_out),
        (lambda: plain.predict_many([0.4], groups=[("fr",)]), left_out),
        (plain.segments, "segments must be those of groups"),
        (lambda: MultiCalibrator(3).predict([0.2, 0.3, 0.5], groups=("fr",)), left_out),
        (lambda: MultiCalibrator(3).run([[0.2, 0.3, 0.5]], [1], groups=[("fr",)]), left_out),
        (lambda: MultiCalibrator(3, groups=["country"]), "many classes have no groups"),
        (
            lambda: MultiBank(3, groups=["country"]),
            "many classes have no groups - .* the key, if there is one, as an attrib",
        ),
        (lambda: Bank(groups=["country"]), r'pass the key as an attribute, Calibrator\(groups=\["key", ...\]\)'),
        (lambda: bank()["a"].predict(0.4, groups=("fr",)), "a bank has no groups"),
        (lambda: bank()["a"].run([0.4], [1], groups=[("fr",)]), "a bank has no groups"),
        (lambda: Calibrator(TOPS, groups=["country"]), "groups must have a method with the learner Lanes"),
        (lambda: Calibrator(groups=[]), "groups must have an attribute, got none"),
        (lambda: Calibrator(groups="country"), "groups must be a list of names"),
        (lambda: Calibrator(groups=[f"a{k}" for k in range(17)]), "at most 16 attributes, got 17"),
        (
            lambda: fresh().export(),
            r"export needs a calibrator without groups: .* - use predict_many\(scores, groups=...\)",
        ),
        (lambda: MultiCalibrator.from_json(MultiCalibrator(3).to_json(), groups=["a"]), "many classes have none"),
    ]
    for call, sentence in calls:
        with pytest.raises(InvalidInput, match=sentence):
            call()


def bank() -> Bank:
    made = Bank()
    made.run(["a"], [0.4], [1])
    return made


def test_columns_of_other_kinds() -> None:
    cal = Calibrator(groups=Groups(["n"], seed=1))
    with pytest.raises(InvalidInput, match="n must fit into 64 bits with a sign"):
        cal.run([0.5], [1], groups={"n": np.array([2**63 + 1], dtype=np.uint64)})
    same = [cal.predict_many([0.5] * 3, groups={"n": column}).tolist() for column in (range(3), UserList([0, 1, 2]))]
    assert same[0] == same[1]


# ---- values whose own code runs while they are read ----------------------------------------------------------------

HEAD = """
from calibeat import Calibrator, InvalidInput

cal = Calibrator(groups=["a", "b"])

class Word(str):
    def __hash__(self):
        values.clear()
        return 1

class Thing:
    def __hash__(self):
        values.clear()
        return 1

class Short(list):
    def __iter__(self):
        return iter(())

def said(values):
    try:
        return cal.predict(0.3, values).probability
    except InvalidInput as error:
        return str(error)
"""

KINDS = {
    "a list that empties itself": ('values = [Word("x"), "y"]', "0.3"),
    "a dict that empties itself": ('values = {"a": Word("x"), "b": "y"}', "groups must be a, b, got none"),
    "a dict that drops its last value": ('values = {"a": "x", "b": Word("y")}', "0.3"),
    "a dict that drops what is no value": (
        'values = {}; values["a"] = Thing(); values["b"] = "y"',
        "a must be a string",
    ),
    "a list that is shorter than it says": ('values = Short(["x", "y"])', "groups must be"),
    "an array": ('import numpy; values = numpy.array(["x", "y"])', "0.3"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_values_that_change_what_is_read(kind: str) -> None:
    """A sentence or a forecast, and never a crash: it would end the interpreter of its own."""
    make, expected = KINDS[kind]
    code = f"{HEAD}\nfor _ in range(100):\n    {make}\n    answer = said(values)\nprint(answer)"
    assert expected in program(code)
