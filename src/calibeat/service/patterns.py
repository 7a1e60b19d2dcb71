"""Some streams, by name or by the beginning of their names: `paris`, `paris/*`, `*`. For tokens, and to mute alarms."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from calibeat.errors import InvalidInput

from .events import LONGEST_NAME, bad_name


def check_pattern(text: str) -> str:
    """The pattern, if it is one.

    >>> check_pattern("paris/*")
    'paris/*'
    >>> check_pattern("*/orly")
    Traceback (most recent call last):
        ...
    calibeat.errors.InvalidInput: streams must be a name, or the beginning of names with * behind it, got '*/orly'

    Raises
    ------
    InvalidInput : there is a star elsewhere than at the end, or it is no name.
    """
    if "*" in text[:-1] or bad_name("streams", text):
        raise InvalidInput(
            f"streams must be a name, or the beginning of names with * behind it, got {text[:LONGEST_NAME]!r}"
        )
    return text


def matches(patterns: Iterable[str], name: str) -> bool:
    """Whether one of the patterns fits.

    >>> matches(["paris/*", "rome"], "paris/orly"), matches(["paris/*", "rome"], "romeo")
    (True, False)
    """
    return any(name.startswith(p[:-1]) if p.endswith("*") else name == p for p in patterns)


def condition(column: str, patterns: Iterable[str]) -> tuple[str, tuple[Any, ...]]:
    """The same in SQL, with its arguments. Without a pattern every name fits.

    A prefix is compared by its length: LIKE ignores the case in SQLite, and has marks of its own.
    """
    parts, arguments = list[str](), list[Any]()
    for pattern in patterns:
        if pattern.endswith("*"):
            parts.append(f"substr({column}, 1, ?) = ?")
            arguments += [len(pattern) - 1, pattern[:-1]]
        else:
            parts.append(f"{column} = ?")
            arguments.append(pattern)
    return (f"({' OR '.join(parts)})", tuple(arguments)) if parts else ("TRUE", ())
