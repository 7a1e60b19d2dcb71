"""State as JSON text with a format, a version and a checksum: every float exact, every kind of damage named."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from calibeat.errors import SnapshotMismatch


def seal(format_name: str, version: int, state: dict[str, Any]) -> str:
    """State -> text.

    >>> seal("example", 1, {"row": [0.5]})[:49]
    '{"format": "example", "version": 1, "row": [0.5],'
    """
    state = {"format": format_name, "version": version, **state}
    return json.dumps({**state, "checksum": checksum(state)}, allow_nan=False)


def unseal(
    format_name: str,
    version: int,
    fields: Sequence[str],
    text: str | bytes,
    check: Callable[[dict[str, Any]], object] | None = None,
    optional: Sequence[str] = (),
) -> dict[str, Any]:
    """Text -> state with exactly these fields; anything else is a `SnapshotMismatch` that says what is wrong.

    Fields that are `optional` may be there too.
    `check` sees the state before the checksum is compared, and may say more precisely what is wrong.

    >>> unseal("example", 1, ["row"], seal("example", 1, {"row": [0.5]}))
    {'row': [0.5]}
    """
    state = parse(text)
    if state.get("format") != format_name:
        raise SnapshotMismatch(f"snapshot must have the format {format_name!r}, got {state.get('format')!r:.60}")
    if type(state.get("version")) is not int or state["version"] != version:
        raise SnapshotMismatch(f"snapshot must be of version {version}, got {state.get('version')!r:.60}")
    wanted = ("format", "version", *fields, "checksum")
    if missing := [field for field in wanted if field not in state]:
        raise SnapshotMismatch(f"snapshot must have the field {missing[0]!r}, got {', '.join(state)}")
    if unknown := [field for field in state if field not in (*wanted, *optional)]:
        raise SnapshotMismatch(f"snapshot must have no field but {', '.join(wanted)}, got {unknown[0]!r:.60}")
    if check is not None:
        check(state)
    given = state.pop("checksum")
    if given != checksum(state):
        raise SnapshotMismatch(
            f"snapshot must have the checksum of its content, {checksum(state)!r}, got {given!r:.80} - "
            "it was edited or damaged"
        )
    return {field: state[field] for field in (*fields, *optional) if field in state}


def parse(text: str | bytes) -> dict[str, Any]:
    """Text -> the JSON object that it holds."""
    if not isinstance(text, (str, bytes)):
        raise SnapshotMismatch(f"snapshot must be text made by to_json, got {type(text).__name__}")
    try:
        state = json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise SnapshotMismatch(
            f"snapshot must be whole JSON text, got {error.msg.lower()} at character {error.pos} of {len(text)} - "
            "it was cut or damaged"
        ) from error
    except (ValueError, RecursionError) as error:  # bytes of another encoding, numbers or nesting without end
        raise SnapshotMismatch(f"snapshot must be JSON text, got what cannot be read: {error}") from error
    if not isinstance(state, dict):
        raise SnapshotMismatch(f"snapshot must be a JSON object, got {type(state).__name__}")
    return state


def _refuse_constant(name: str) -> NoReturn:
    raise SnapshotMismatch(f"snapshot must hold finite numbers, got {name}")


def checksum(state: dict[str, Any]) -> str:
    """A digest of the values, whatever the order of the fields or the white space."""
    canonical = json.dumps(state, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()
