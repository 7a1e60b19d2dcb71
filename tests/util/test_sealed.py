"""Sealed text: what it accepts, and what it says of damage."""

from __future__ import annotations

import json
from typing import Any

import pytest

from calibeat import SnapshotMismatch
from calibeat._util.sealed import seal, unseal

TEXT = seal("example", 1, {"row": [0.1, 1e-300], "name": "x"})


def changed(**fields: Any) -> str:
    return json.dumps({**json.loads(TEXT), **fields})


def test_there_and_back() -> None:
    assert unseal("example", 1, ["name", "row"], TEXT) == {"row": [0.1, 1e-300], "name": "x"}
    assert unseal("example", 1, ["name", "row"], TEXT.encode()) == {"row": [0.1, 1e-300], "name": "x"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (changed(format="other"), "format 'example', got 'other'"),
        (changed(version=2), "version 1, got 2"),
        (changed(version=True), "version 1, got True"),
        (changed(row=[0.2]), "edited or damaged"),
        (changed(more=1), "no field but .* got 'more'"),
        (seal("example", 1, {"row": []}), "must have the field 'name'"),
        (TEXT[:-9], "cut or damaged"),
        (b'{"\xff"}', "cannot be read"),
        ("[" * 100_000, "cannot be read"),
        (changed(row=[float("nan")]), "finite numbers, got NaN"),
        ("[1]", "JSON object, got list"),
        (7, "text made by to_json, got int"),
    ],
)
def test_damage_is_named(text: Any, message: str) -> None:
    with pytest.raises(SnapshotMismatch, match=message):
        unseal("example", 1, ["name", "row"], text)


def test_what_json_cannot_hold_is_not_written() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        seal("example", 1, {"row": [float("inf")]})
