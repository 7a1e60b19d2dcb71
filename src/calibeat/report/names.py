"""Names that people and files have chosen: they do nothing to a terminal or a page."""

from __future__ import annotations

from typing import Any
from xml.etree.ElementTree import Element

from calibeat._util.words import visible

from .elements import tag


def harmless(value: Any) -> Any:
    r"""A payload in which control characters and direction marks are written as escapes, in names and keys alike.

    >>> harmless({"title": "a\u202eb", "source": ["\x1b[31m.csv"], "rows": 3})
    {'title': 'a\\u202eb', 'source': ['\\x1b[31m.csv'], 'rows': 3}
    """
    if isinstance(value, str):
        return value if value.isprintable() else visible(value)
    if isinstance(value, dict):
        return {harmless(key): harmless(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [harmless(item) for item in value]
    return value


def name(text: str) -> Element:
    """A name in the page: whatever its script, the text around it keeps its direction."""
    return tag("bdi", text)
