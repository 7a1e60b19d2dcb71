"""Snapshots of many classes: exact, versioned, and checked before anything is believed."""

from __future__ import annotations

import json
from typing import Any

import multi_streams
import numpy as np
import pytest

from calibeat import MultiCalibrator, SnapshotMismatch
from calibeat._util.sealed import seal
from calibeat.core import vector
from calibeat.hosts.calibrator import FORMAT


def trained(K: int = 3, method: str = "multi") -> MultiCalibrator:
    cal = MultiCalibrator(K, method)
    cal.run(*multi_streams.drifting(80, K))
    return cal


def changed(cal: MultiCalibrator, **changes: Any) -> str:
    """The snapshot with other content and a right checksum."""
    state = {**json.loads(cal.to_json()), **changes}
    del state["checksum"], state["format"], state["version"]
    return seal("calibeat/multi", FORMAT, state)


@pytest.mark.parametrize("method", ["raw", "ots", "multi"])
@pytest.mark.parametrize("K", [2, 3, 65])
def test_there_and_back(K: int, method: str) -> None:
    cal = trained(K, method)
    twin = MultiCalibrator.from_json(cal.to_json())
    assert twin.to_json() == cal.to_json()
    np.testing.assert_array_equal(twin.row, cal.row)
    assert (twin.classes, twin.method, twin.events, twin.evidence) == (cal.classes, method, 80, cal.evidence)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "whole JSON text"),
        ("[]", "must be a JSON object"),
        ('{"format": "calibeat/calibrator"}', "must have the format 'calibeat/multi'"),
        ('{"format": "calibeat/multi", "version": 99}', "must be of version 2, got 99"),
        ('{"format": "calibeat/multi", "version": 2}', "must have the field 'classes'"),
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
        ({"classes": 4}, "a row of width 219 for its method, got 185"),
        ({"classes": ["a", "a", "b"]}, "classes must be different"),
        ({"method": "best"}, "method must be"),
        ({"logits": 1}, "logits must be True or False"),
        ({"events": -1}, "events must be a whole number"),
        ({"events": 79}, r"events at the last outcome in \[0, 79\]"),
        ({"row": "abc"}, "a row of width 185 for its method, got str"),
        ({"row": [True] * 185}, "row\\[0\\] must be"),
        ({"settled": [7] * 80}, "settled must be an object with first"),
        ({"settled": {"first": 0, "given_up": 0, "marks": "?"}}, "marks must be in base 64"),
        ({"settled": {"first": 0, "given_up": 0, "marks": "AQAAAAAAAAAH"}}, "labels must be those of 3 classes"),
        ({"history": {"x0": []}}, "history must hold nothing"),
        ({"monitors": 7}, "monitors must be an object"),
    ],
)
def test_impossible_content(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SnapshotMismatch, match=message):
        MultiCalibrator.from_json(changed(trained(), **changes))


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
        MultiCalibrator.from_json(changed(cal, row=row))


def test_impossible_row_of_the_online_temperature() -> None:
    cal = trained(method="ots")
    row = json.loads(cal.to_json())["row"]
    row[2] = 1e9
    with pytest.raises(SnapshotMismatch, match="slope in"):
        MultiCalibrator.from_json(changed(cal, row=row))


def test_impossible_pairs() -> None:
    cal = trained(2)
    with pytest.raises(SnapshotMismatch, match=r"in \[0, 70\]"):
        MultiCalibrator.from_json(changed(cal, events=70))
