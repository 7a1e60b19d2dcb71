"""Snapshots: exact, versioned, and every kind of damage is named."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import multi_streams
import numpy as np
import pytest
from conformance import same
from streams import STREAMS, variants

from calibeat import FTL, OPS, TOPS, Calibrator, Fixed, Histogram, Method, MultiCalibrator, Platt, SnapshotMismatch
from calibeat._util.sealed import checksum
from calibeat.core import vector
from calibeat.core.layout import SUM, THETA


@pytest.fixture
def text() -> str:
    calibrator = Calibrator("tops", seed=3, stream="paris")
    calibrator.run(*STREAMS["random"]())
    return calibrator.to_json()


def refused(text: Any, *messages: str) -> None:
    """SnapshotMismatch, with one of the messages."""
    with pytest.raises(SnapshotMismatch) as error:
        Calibrator.from_json(text)
    assert any(message in str(error.value) for message in messages), str(error.value)


def sealed(state: dict[str, Any]) -> str:
    """A snapshot of this content with a right checksum."""
    state = {name: value for name, value in state.items() if name != "checksum"}
    return json.dumps({**state, "checksum": checksum(state)})


def trained(K: int = 3, method: str = "multi") -> MultiCalibrator:
    cal = MultiCalibrator(K, method)
    cal.run(*multi_streams.drifting(80, K))
    return cal


MAKES: dict[str, Any] = {
    name: partial(Calibrator, method, seed=-(2**63), stream=2**63 - 1) for name, method in variants().items()
}
MAKES |= {f"{K} {method}": partial(trained, K, method) for K in (2, 3, 65) for method in ("raw", "ots", "multi")}


@pytest.mark.parametrize("name", MAKES)
def test_round_trip(name: str) -> None:
    calibrator = MAKES[name]()
    if not isinstance(calibrator, MultiCalibrator):
        calibrator.run(*STREAMS["extreme"]())
    for text in (calibrator.to_json(), calibrator.to_json().encode()):
        twin = type(calibrator).from_json(text)
        same(twin.row, calibrator.row)
        assert twin.to_json() == calibrator.to_json()
        assert (twin.params, repr(twin)) == (calibrator.params, repr(calibrator))


def test_white_space_and_order_do_not_matter(text: str) -> None:
    state = json.loads(text)
    shuffled = json.dumps(dict(reversed(state.items())), indent=2)
    assert Calibrator.from_json(shuffled).to_json() == text


def test_every_truncation_is_noticed(text: str) -> None:
    for length in range(0, len(text), 7):
        refused(text[:length], "snapshot must")
    refused(text[:-1], "it was cut or damaged")
    refused("", "snapshot must be whole JSON text, got expecting value at character 0 of 0")


def test_every_edit_is_noticed(text: str) -> None:
    state = json.loads(text)
    for field, value in {"seed": 4, "stream": "london", "events": 5, "history": {"x0": [1.0]}}.items():
        refused(json.dumps({**state, field: value}), "it was edited or damaged")
    for place in range(len(state["row"])):
        row = [*state["row"]]
        row[place] = np.nextafter(row[place], np.inf)
        refused(json.dumps({**state, "row": row}), "it was edited or damaged")
    edited = {**state["method"], "calibeater": {"kind": "tracking", "bins": 10, "prior": 1.0}}
    refused(json.dumps({**state, "method": edited}), "it was edited or damaged")


def test_what_is_wrong_is_said(text: str) -> None:
    state = json.loads(text)
    refused(json.dumps({**state, "version": 2}), "snapshot must be of version 3, got 2")
    refused(json.dumps({**state, "format": "else"}), "snapshot must have the format 'calibeat/calibrator', got 'else'")
    refused(json.dumps({**state, "row": state["row"][:-1]}), "a row of width 34 for its method, got 33")
    refused(json.dumps({**state, "row": "x"}), "a row of width 34 for its method, got str")
    refused(json.dumps({key: state[key] for key in state if key != "row"}), "snapshot must have the field 'row'")
    unknown = {**state["method"], "learner": {"kind": "adam"}}
    refused(json.dumps({**state, "method": unknown}), "a method that this version knows: learner must name one of ons")
    refused(text.replace("0.0", "NaN", 1), "snapshot must hold finite numbers, got NaN")
    refused("[1]", "snapshot must be a JSON object, got list")
    refused(b"\xff\xfe\x00", "snapshot must be")
    refused(b"\x80abc", "snapshot must be JSON text, got what cannot be read")
    refused(7, "snapshot must be text made by to_json, got int")
    refused(json.dumps({**state, "version": True}), "snapshot must be of version 3, got True")
    refused(json.dumps({**state, "extra": 1}), "got 'extra'")
    refused("[" * 100_000, "snapshot must be")
    refused('{"format": ' + "9" * 5000 + "}", "snapshot must be")
    refused(text.replace('"seed": 3', '"seed": 1e400'), "it was edited or damaged")
    refused("{}", "snapshot must have the format 'calibeat/calibrator', got None")


def of_tops(total: float = 0.0, count: float = 0.0) -> list[float]:
    """A row after nine outcomes, with this first cell."""
    return [9.0, 9.0, *TOPS.initial_row().tolist()[SUM : TOPS.spec.cells], total, count, *[0.0] * 18]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("seed", "x", "seed must be a whole number"),
        ("stream", 0.5, "stream must be a whole number"),
        ("events", -1, "events must be a whole number"),
        ("events", 10**400, "events must be a whole number"),
        ("row", ["x"] * TOPS.width, "row[0] must be a finite number, got 'x'"),
        ("row", [None] * TOPS.width, "row[0] must be a finite number, got None"),
        ("row", [True] * TOPS.width, "row[0] must be a finite number, got True"),
        ("row", [10**400] * TOPS.width, "row[0] must be a finite number, got 1000"),
        ("row", [0.5, *of_tops()[1:]], "row must have events at the last outcome as a whole number, got 0.5"),
        ("row", [0.0, 9e9, *of_tops()[2:]], "row must have outcomes in [0, 0], got 9000000000.0"),
        ("row", [9.0, 9.0, *[0.0] * (TOPS.width - 2)], "row must have A in [100, "),
        ("row", of_tops(2.0, 1.0), "row must have a sum of outcomes in [0, 1], got 2.0"),
        ("row", [9.0, 9.0, 9.5, *of_tops()[3:]], "row must have sums of weights in [0, 9], got 9.5"),
        ("history", {"x0": [1.0], "y": [1.0]}, "history must hold"),
        ("history", [], "history must hold"),
    ],
)
def test_nonsense_with_a_right_checksum(text: str, field: str, value: Any, message: str) -> None:
    refused(sealed({**json.loads(text), field: value}), message)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (0, 1e9, "row must have bins in use in [0, 5], got 1000000000.0"),
        (0, 2.5, "row must have bins in use as a whole number, got 2.5"),
        (1, 1.01, "row must have edges and means in [0, 1], got 1.01"),
        (5, 1.5, "row must have edges and means in [0, 1], got 1.5"),
    ],
)
def test_histograms_that_cannot_be(place: int, value: float, message: str) -> None:
    calibrator = Calibrator(Method(Histogram(5), FTL(after=4, every=2)))
    calibrator.run([0.2, 0.8, 0.4, 0.3, 0.6], [0, 1, 1, 0, 1])
    state = json.loads(calibrator.to_json())
    state["row"][THETA + place] = value
    refused(sealed(state), message)


@pytest.mark.parametrize("learner", [FTL(every=5, after=10), FTL(every=5, after=10, window=20), Fixed(after=200)])
@pytest.mark.parametrize(
    "history",
    [
        {},
        {"x0": [1.0]},
        {"x0": [1.0] * 20, "y": [1.0] * 19},
        {"x0": ["a"] * 20, "y": [1.0] * 20},
        {"x0": [1.0] * 20, "y": [1.5] * 20},
        {"x0": [1.0] * 20, "y": [1.0] * 20, "weights": [-1.0] * 20},
        {"x0": [1.0] * 20, "y": [1.0] * 20, "weights": [1.0] * 19},
        {"x0": [1.0] * 20, "y": [1.0] * 20, "x1": []},
        {"x0": 3, "y": 3},
    ],
)
def test_history_that_cannot_be(learner: FTL | Fixed, history: Any) -> None:
    calibrator = Calibrator(Method(Platt(), learner))
    calibrator.run(*(column[:100] for column in STREAMS["random"]()))
    refused(sealed({**json.loads(calibrator.to_json()), "history": history}), "history must hold", "outcome must be")


def test_the_row_is_a_read_only_copy() -> None:
    calibrator = Calibrator(OPS)
    row = calibrator.row
    with pytest.raises(ValueError, match="read-only"):
        row[2] = 7.0
    calibrator.update(calibrator.predict(0.9), 0)
    assert row[1] == 0.0 and calibrator.row[1] == 1.0  # of one moment, whatever happens later


# ---- many classes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "whole JSON text"),
        ("[]", "must be a JSON object"),
        ('{"format": "calibeat/calibrator"}', "must have the format 'calibeat/multi'"),
        ('{"format": "calibeat/multi", "version": 99}', "must be of version 3, got 99"),
        ('{"format": "calibeat/multi", "version": 3}', "must have the field 'classes'"),
    ],
)
def test_foreign_text(text: str, message: str) -> None:
    with pytest.raises(SnapshotMismatch, match=message):
        MultiCalibrator.from_json(text)


def test_edited_text() -> None:
    text = trained().to_json().replace('"events": 80', '"events": 81')
    with pytest.raises(SnapshotMismatch, match="must have the checksum of its content"):
        MultiCalibrator.from_json(text)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classes": 4}, "a row of width 226 for its method, got 192"),
        ({"classes": ["a", "a", "b"]}, "classes must be different"),
        ({"method": "best"}, "method must be"),
        ({"logits": 1}, "logits must be True or False"),
        ({"events": -1}, "events must be a whole number"),
        ({"events": 79}, r"events at the last outcome in \[0, 79\]"),
        ({"row": "abc"}, "a row of width 192 for its method, got str"),
        ({"row": [True] * 192}, "row\\[0\\] must be"),
        ({"settled": [7] * 80}, "settled must be an object with first"),
        ({"settled": {"first": 0, "given_up": 0, "marks": "?"}}, "marks must be in base 64"),
        ({"settled": {"first": 0, "given_up": 0, "marks": "AQAAAAAAAAAABw=="}}, "labels must be those of 3 classes"),
        ({"history": {"x0": []}}, "history must hold nothing"),
        ({"monitors": 7}, "monitors must be an object"),
    ],
)
def test_impossible_content(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SnapshotMismatch, match=message):
        MultiCalibrator.from_json(sealed({**json.loads(trained().to_json()), **changes}))


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (vector.N, 80.5, "outcomes as a whole number"),
        (vector.W, 0.9, "weights of lanes"),
        (vector.V, 0.0, "weights of stages"),
        (vector.Z, 2.0, "weights of the spline"),
        (vector.G, -1.0, "weights of the guard"),
        (vector.SLOPE, 101.0, "slope in"),
        (vector.SLOPE_INFORMATION, 1.0, "information of the slope"),
        (vector.THETA, 1e10, "shared parameters"),
        (vector.THETA + 3, -1.0, "H in"),
        (vector.OFFSET, 1e3, "knots in"),
        (vector.KNOWN, 1.0, "information of knots"),
        (vector.BIAS, 1e10, "biases"),
        (vector.BIAS + 3, 0.0, "information of biases"),
        (vector.BIAS + 24, 0.0, "factors"),
        (vector.BIAS + 42, 1.0, "information of factors"),
        (vector.BIAS + 60, -1.0, "factors in"),
        (vector.BIAS + 69, 1.0, "information of confusions"),
        (-1, 0.0, "evidence"),
    ],
)
def test_impossible_rows(at: int, value: float, message: str) -> None:
    cal = trained()
    row = json.loads(cal.to_json())["row"]
    row[at] = value
    with pytest.raises(SnapshotMismatch, match=message):
        MultiCalibrator.from_json(sealed({**json.loads(cal.to_json()), "row": row}))


def test_impossible_row_of_the_online_temperature() -> None:
    state = json.loads(trained(method="ots").to_json())
    state["row"][THETA] = 1e9
    with pytest.raises(SnapshotMismatch, match="slope in"):
        MultiCalibrator.from_json(sealed(state))


def test_impossible_pairs() -> None:
    cal = trained(2)
    with pytest.raises(SnapshotMismatch, match=r"in \[0, 70\]"):
        MultiCalibrator.from_json(sealed({**json.loads(cal.to_json()), "events": 70}))
