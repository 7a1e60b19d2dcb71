"""The report: one HTML file that needs nothing but itself.

What a reader must get without JavaScript (verdict, leaderboard, guarantees, data) is written into the page; the numbers
behind the pictures travel as JSON and are drawn by static/*.js with uPlot (vendor/). The page allows itself no request,
and runs no script but ours, by its hash.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import tempfile
from functools import cache
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from . import sections
from .elements import markup, tag
from .payload import Keys, Payload

SCRIPTS = ("format", "palette", "chart", "pictures", "reliability", "tables", "keys", "start")
DIGITS = 6  # more than a pixel or a table shows, and a third of the bytes


def html(payload: Payload) -> str:
    """The whole page as text.

    Everything that comes from outside goes through a serialiser: names of columns and keys are text, never markup.
    """
    parts = sections.page(payload)
    links = [tag("a", part.find("h2").text, href=f"#{part.get('id')}") for part in parts[1:]]  # type: ignore[union-attr]  # every section but the verdict has a heading
    style, script = _style(), _script()
    page = Template(_text("static", "page.html")).substitute(
        policy=f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)}; "
        "base-uri 'none'; form-action 'none'",
        title=markup(tag("title", f"{payload['title']} – calibeat")),
        name=markup(tag("p", payload["title"], class_="title")),
        links=" ".join(markup(link) for link in links),
        style=style,
        main="\n".join(markup(part) for part in parts),
        payload=embedded(payload),
        script=script,
    )
    return page.encode("utf-8", "replace").decode()  # a key may hold half a character, a file may not


def write(payload: Payload, path: str | os.PathLike[str]) -> None:
    """Write the page to `path`, whole or not at all."""
    text = html(payload)
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        umask = os.umask(0)
        os.umask(umask)
        Path(name).chmod(0o666 & ~umask)  # as any new file; the temporary one is private
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def embedded(payload: Payload) -> str:
    """The payload as JSON that cannot end the script element it stands in.

    >>> embedded({"title": "</script><!--"})
    '{"title":"\\\\u003c/script\\\\u003e\\\\u003c!--"}'
    """
    slim: dict[str, Any] = {**payload}
    if payload.get("keys"):
        slim["keys"] = _columns(payload["keys"], [method["name"] for method in payload["methods"]])  # type: ignore[arg-type]  # not None, as just asked
    text = json.dumps(_short(slim), separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _columns(keys: Keys, names: list[str]) -> dict[str, Any]:
    """Rows repeat every name two thousand times; columns say it once."""
    rows = keys["rows"]
    scores = {
        name: {field: [row["methods"].get(name, {}).get(field) for row in rows] for field in ("log_loss", "brier", "ce")}
        for name in names
    }
    plain = {field: [row[field] for row in rows] for field in ("key", "events", "base_rate")}  # type: ignore[literal-required]  # three of its names
    return {"total": keys["total"], "shown": keys["shown"], **plain, "methods": scores}


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
    # uPlot draws canvases for the pixels of this screen; paper has more.
    crisp = "window.devicePixelRatio = Math.max(2, window.devicePixelRatio || 1);"
    return f'\n{crisp}\n{_text("vendor", "uPlot.iife.min.js")}\n(() => {{\n"use strict";\n{ours}\n}})();\n'


def _text(*path: str) -> str:
    return resources.files(__package__).joinpath(*path).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
