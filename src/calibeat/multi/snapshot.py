"""A calibrator of many classes as versioned JSON: every float comes back exactly, and every damage is named."""

from __future__ import annotations

import json
from typing import Any

from calibeat.errors import SnapshotMismatch
from calibeat.stream.snapshot import _checksum, _parse

FORMAT = "calibeat/multi"
VERSION = 1
_FIELDS = ("format", "version", "classes", "method", "logits", "events", "stream", "settled", "lives", "checksum")


def dump(state: dict[str, Any]) -> str:
    """State -> text."""
    state = {"format": FORMAT, "version": VERSION, **state}
    return json.dumps({**state, "checksum": _checksum(state)}, allow_nan=False)


def load(text: str | bytes) -> dict[str, Any]:
    """Text -> state, of the right format and version, with the right checksum."""
    state = _parse(text)
    if state.get("format") != FORMAT:
        raise SnapshotMismatch(f"snapshot must have the format {FORMAT!r}, got {state.get('format')!r:.60}")
    version = state.get("version")
    if type(version) is not int or version != VERSION:
        raise SnapshotMismatch(f"snapshot must be of version {VERSION}, got {version!r:.60}")
    if missing := [field for field in _FIELDS if field not in state]:
        raise SnapshotMismatch(f"snapshot must have the field {missing[0]!r}, got {', '.join(state)}")
    checksum = state.pop("checksum")
    if checksum != _checksum(state):
        raise SnapshotMismatch(
            f"snapshot must have the checksum of its content, {_checksum(state)!r}, got {checksum!r:.80} - "
            "it was edited or damaged"
        )
    return state
