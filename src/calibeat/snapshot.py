"""A calibrator as versioned JSON: every float comes back exactly, and every kind of damage is named."""

from __future__ import annotations

import hashlib
import json
from typing import Any, NoReturn

from .errors import InvalidInput, SnapshotMismatch
from .kernel import N, T
from .method import Method

FORMAT = "calibeat/calibrator"
VERSION = 1
_FIELDS = ("format", "version", "method", "seed", "stream", "events", "row", "history", "checksum")


def dump(state: dict[str, Any]) -> str:
    """State -> text. Python writes the shortest decimal that reads back as the same float."""
    state = {"format": FORMAT, "version": VERSION, **state}
    return json.dumps({**state, "checksum": _checksum(state)})


def load(text: str | bytes) -> dict[str, Any]:
    """Text -> state, with ``state["method"]`` a Method and the row's width checked against it."""
    state = _parse(text)
    if state.get("format") != FORMAT:
        raise SnapshotMismatch(f"snapshot must have the format {FORMAT!r}, got {state.get('format')!r:.60}")
    if state.get("version") != VERSION:
        raise SnapshotMismatch(f"snapshot must be of version {VERSION}, got {state.get('version')!r:.60}")
    if missing := [field for field in _FIELDS if field not in state]:
        raise SnapshotMismatch(f"snapshot must have the field {missing[0]!r}, got {', '.join(state)}")
    try:
        method = Method.from_dict(state["method"])
    except InvalidInput as error:
        raise SnapshotMismatch(f"snapshot must hold a method that this version knows: {error}") from error
    row = state["row"]
    if not isinstance(row, list) or len(row) != method.width:
        got = len(row) if isinstance(row, list) else type(row).__name__
        raise SnapshotMismatch(f"snapshot must have a row of width {method.width} for its method, got {got}")
    checksum = state.pop("checksum")
    if checksum != _checksum(state):
        raise SnapshotMismatch(
            f"snapshot must have the checksum of its content, {_checksum(state)!r}, got {checksum!r:.80} - "
            "it was edited or damaged"
        )
    _check_counts(row, state["events"])
    return {**state, "method": method}


def _check_counts(row: list[Any], events: Any) -> None:
    """Numbers, and n <= t <= events."""
    if any(type(number) not in (int, float) for number in row):
        raise SnapshotMismatch("snapshot's row must hold numbers, got something else")
    if type(events) is not int or events < 0:
        raise SnapshotMismatch(f"snapshot's events must be a whole number, got {events!r:.60}")
    t, n = row[T], row[N]
    if not (0 <= n <= t <= events and n == int(n) and t == int(t)):
        raise SnapshotMismatch(
            f"snapshot's row must count its outcomes in whole numbers up to its {events} events, got {n!r} of {t!r}"
        )


def _parse(text: str | bytes) -> dict[str, Any]:
    if not isinstance(text, (str, bytes)):
        raise SnapshotMismatch(f"snapshot must be text made by to_json, got {type(text).__name__}")
    try:
        state = json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise SnapshotMismatch(
            f"snapshot must be whole JSON text, got {error.msg.lower()} at character {error.pos} of {len(text)} - "
            "it was cut or damaged"
        ) from error
    except UnicodeDecodeError as error:
        raise SnapshotMismatch(f"snapshot must be UTF-8 text, got {error.reason} at byte {error.start}") from error
    if not isinstance(state, dict):
        raise SnapshotMismatch(f"snapshot must be a JSON object, got {type(state).__name__}")
    return state


def _refuse_constant(name: str) -> NoReturn:
    raise SnapshotMismatch(f"snapshot must hold finite numbers, got {name}")


def _checksum(state: dict[str, Any]) -> str:
    """A digest of the values, whatever the order of the fields or the white space."""
    canonical = json.dumps(state, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()
