"""Parameters of the reading routes, in the query: read, checked, and described for the schema."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from .events import is_text
from .store.reader import MOST, MOST_HOURS, ORDERS
from .wire import LAST_TIME, LONGEST_NAME, bad


def is_readable(name: str) -> bool:
    """Whether a stream can have this name."""
    return 0 < len(name) <= LONGEST_NAME and is_text(name)


def _limited(most: int, default: int) -> Parameter:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdecimal() and len(text) < 9 and 1 <= int(text) <= most):
            raise ValueError(f"must be a whole number from 1 to {most}")
        return int(text)

    return Parameter(read, {"type": "integer", "minimum": 1, "maximum": most, "default": default}, "how many at most")


def _name(text: str) -> str:
    if not is_readable(text):
        raise ValueError(f"must be text of 1 to {LONGEST_NAME} characters")
    return text


def _order(text: str) -> str:
    if text not in ORDERS:
        raise ValueError(f"must be one of {', '.join(ORDERS)}")
    return text


def _time(text: str) -> float:
    try:
        value = float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        value = math.nan
    if not 0.0 <= value <= LAST_TIME:
        raise ValueError("must be seconds since 1970")
    return value


@dataclass(frozen=True)
class Parameter:
    """One parameter."""

    read: Callable[[str], Any]
    schema: dict[str, Any]
    description: str


_NAME = {"type": "string", "minLength": 1, "maxLength": LONGEST_NAME, "pattern": r"^[^\u0000-\u001f\u007f]+$"}
_TIMES = {"type": "number", "minimum": 0, "maximum": LAST_TIME}
_FROM_TO = {
    "from": Parameter(_time, _TIMES, "seconds since 1970; whole hours count"),
    "to": Parameter(_time, _TIMES, "seconds since 1970; whole hours count"),
}
_LIMIT = _limited(MOST, 100)


@dataclass(frozen=True)
class Parameters:
    """The parameters of one route."""

    known: dict[str, Parameter] = field(default_factory=dict)

    def read(self, query: str) -> dict[str, Any]:
        """The values of a query, or a refusal that names the first bad one.

        >>> RELIABILITY.read("from=0&to=3600")
        {'from': 0.0, 'to': 3600.0}
        """
        found: dict[str, Any] = {}
        for name, text in parse_qsl(query, keep_blank_values=True):
            if name not in self.known:
                wanted = f"one of {', '.join(self.known)}" if self.known else "none"
                raise bad(f"parameter must be {wanted}, got {name!r:.60}", name[:60])
            if name in found:
                raise bad(f"{name} must be given once, got it twice", name)
            try:
                found[name] = self.known[name].read(text)
            except ValueError as error:
                raise bad(f"{name} {error}, got {text!r:.60}", name) from None
        return found


NONE = Parameters()
LIMIT_ONLY = Parameters({"limit": _LIMIT})
RELIABILITY = Parameters(_FROM_TO)
HISTORY = Parameters(_FROM_TO | {"limit": _limited(MOST_HOURS, MOST_HOURS)})
STREAMS = Parameters(
    {
        "after": Parameter(_name, _NAME, "the last stream of the page before"),
        "limit": _LIMIT,
        "order": Parameter(_order, {"type": "string", "enum": list(ORDERS), "default": "name"}, "the first ones first"),
        "search": Parameter(_name, _NAME, "a part of the name"),
    }
)
