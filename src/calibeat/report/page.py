"""The report: one HTML file that needs nothing but itself.

What a reader must get without JavaScript (verdict, leaderboard, guarantees, data) is written into the page. The numbers
behind the pictures are embedded as JSON and drawn by static/*.js with uPlot (vendor/). The page makes no request and
runs no script but ours, by its hash.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any, cast

from calibeat._util.files import atomic

from . import sections
from .delays import folded
from .elements import markup, tag
from .names import harmless, name
from .schema import Keys, Payload

SCRIPTS = (
    "format",
    "palette",
    "chart",
    "pictures",
    "paging",
    "decisions",
    "history",
    "reliability",
    "classes",
    "tables",
    "keys",
    "theme",
    "start",
)
DIGITS = 6  # more than a pixel or a table shows, and a third of the bytes


def html(payload: Mapping[str, object]) -> str:
    """The whole page as text.

    Everything that comes from outside goes through a serialiser: names of columns and keys are text, never markup.
    """
    told = cast(Payload, harmless(payload))
    parts = sections.page(told)
    links = [tag("a", part.get("aria-label"), href=f"#{part.get('id')}") for part in parts[1:]]
    style, script = _style(), _script()
    page = Template(_text("static", "page.html")).substitute(
        policy=f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)}; "
        "base-uri 'none'; form-action 'none'",
        title=markup(tag("title", f"{told['title']} – calibeat")),
        name=markup(tag("p", name(told["title"]), class_="title")),
        links=" ".join(markup(link) for link in links),
        style=style,
        main="\n".join(markup(part) for part in parts),
        payload=embedded(told),
        script=script,
    )
    return page.encode("utf-8", "replace").decode()  # a key may hold half a character, a file may not


def write(payload: Mapping[str, object], path: str | os.PathLike[str]) -> None:
    """Write the page to `path`, whole or not at all."""
    text = html(payload)
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic(target, "w") as file:
        file.write(text)


def embedded(payload: Payload) -> str:
    r"""The payload as JSON that cannot end the script element it stands in.

    >>> embedded({"title": "</script><!--", "keys": None, "delay": None})
    '{"title":"\\u003c/script\\u003e\\u003c!--","keys":null,"delay":null}'
    """
    slim: dict[str, Any] = {**payload}
    if payload["keys"] is not None:
        slim["keys"] = _columns(payload["keys"], [method["name"] for method in payload["methods"]])
    if payload["delay"] is not None:
        slim["delay"] = {**payload["delay"], "histogram": folded(payload["delay"]["histogram"])}
    text = json.dumps(_short(slim), separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _columns(keys: Keys, names: list[str]) -> dict[str, Any]:
    """Rows repeat every name two thousand times; columns say it once."""
    rows = keys["rows"]
    by_method = {name: [row["methods"].get(name) for row in rows] for name in names}
    return {
        "key": [row["key"] for row in rows],
        "events": [row["events"] for row in rows],
        "base_rate": [row["base_rate"] for row in rows],
        "methods": {
            name: {field: [cell and cell[field] for cell in cells] for field in ("log_loss", "brier", "ce")}
            for name, cells in by_method.items()
        },
    }


def _short(value: Any) -> Any:
    """Floats with the digits that count; what is not a number becomes null, as JSON knows no other way."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if abs(value) < float("inf") else None
    if isinstance(value, dict):
        return {key: _short(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_short(item) for item in value]
    return value


@cache
def _style() -> str:
    return "\n" + _text("vendor", "uPlot.min.css") + "\n" + _text("static", "style.css")


@cache
def _script() -> str:
    ours = "\n".join(_text("static", f"{name}.js") for name in SCRIPTS)
    library = _text("static", "pixels.js") + _text("vendor", "uPlot.iife.min.js")
    return f'\n{library}\n(() => {{\n"use strict";\n{ours}\n}})();\n'


def _text(*path: str) -> str:
    return resources.files(__package__).joinpath(*path).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
