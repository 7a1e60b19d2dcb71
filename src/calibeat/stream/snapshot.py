"""A calibrator as versioned JSON: every float comes back exactly, and every kind of damage is named."""

from __future__ import annotations

from typing import Any

from calibeat._util.check import check_number, check_whole
from calibeat._util.sealed import checksum as _checksum
from calibeat._util.sealed import parse as _parse
from calibeat._util.sealed import seal
from calibeat.core.method import Method
from calibeat.errors import InvalidInput, SnapshotMismatch

KIND, FORMAT = "calibeat/calibrator", 1
_STATE = ("method", "seed", "stream", "events", "row", "history", "settled", "lives", "monitors")
_FIELDS = ("format", "version", *_STATE, "checksum")


def dump(state: dict[str, Any]) -> str:
    """State -> text. Python writes the shortest decimal that reads back as the same float."""
    return seal(KIND, FORMAT, state)


def load(text: str | bytes) -> dict[str, Any]:
    """Text -> state, with ``state["method"]`` a Method and the row's width checked against it."""
    state = _parse(text)
    if state.get("format") != KIND:
        raise SnapshotMismatch(f"snapshot must have the format {KIND!r}, got {state.get('format')!r:.60}")
    version = state.get("version")
    if type(version) is not int or version != FORMAT:
        raise SnapshotMismatch(f"snapshot must be of version {FORMAT}, got {version!r:.60}")
    if missing := [field for field in _FIELDS if field not in state]:
        raise SnapshotMismatch(f"snapshot must have the field {missing[0]!r}, got {', '.join(state)}")
    if unknown := [field for field in state if field not in _FIELDS]:
        raise SnapshotMismatch(f"snapshot must have no field but {', '.join(_FIELDS)}, got {unknown[0]!r:.60}")
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
    try:
        events = check_whole("events", state["events"], 0, 2**53)
        row = [check_number(f"row[{i}]", number) for i, number in enumerate(row)]
        method.check_row(row, events)
    except InvalidInput as error:
        raise SnapshotMismatch(f"snapshot must hold what a calibrator can hold: {error}") from error
    return {**state, "method": method, "row": row}
