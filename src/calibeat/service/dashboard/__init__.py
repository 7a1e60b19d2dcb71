"""The dashboard: one page, put together from files of the report and of this folder. There is no build step.

The browser asks for `index.html`, `dashboard.css`, `dashboard.js` and `icon.svg`. The charts, tables and colours are
the very files of `calibeat.report`, so the two pages look alike.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import resources

# In the order in which the browser needs them.
SHARED = ("format", "palette", "chart", "reliability", "tables", "theme")  # of the report
OWN = (
    *("parts", "clock", "fetching", "login", "states", "sparks", "alarms", "list", "pictures", "segments", "classes"),
    *("stream", "start"),
)


@dataclass(frozen=True)
class Asset:
    """A file as it is sent."""

    body: bytes
    media_type: str
    etag: str


def asset(name: str) -> Asset | None:
    """One of the four files, or None.

    >>> asset("icon.svg").media_type
    'image/svg+xml'
    >>> asset("../__init__.py") is None
    True
    """
    return _assets().get(name)


@cache
def _assets() -> dict[str, Asset]:
    shared = [_text("calibeat.report", "static", f"{name}.js") for name in SHARED]
    own = [_text(__package__, f"{name}.js") for name in OWN]
    script = "\n".join([*shared, *own])
    library = _text("calibeat.report", "static", "pixels.js") + _text("calibeat.report", "vendor", "uPlot.iife.min.js")
    style = [
        _text("calibeat.report", "vendor", "uPlot.min.css"),
        _text("calibeat.report", "static", "style.css"),
        _text(__package__, "dashboard.css"),
    ]
    return {
        "index.html": make_asset(_text(__package__, "index.html"), "text/html"),
        "dashboard.js": make_asset(f'{library}\n(() => {{\n"use strict";\n{script}\n}})();\n', "text/javascript"),
        "dashboard.css": make_asset("\n".join(style), "text/css"),
        "icon.svg": make_asset(_text(__package__, "icon.svg"), "image/svg+xml"),
    }


def make_asset(text: str, media_type: str) -> Asset:
    """A file of a text."""
    body = text.encode()
    return Asset(body, media_type, f'"{hashlib.sha256(body).hexdigest()[:16]}"')


def _text(package: str, *path: str) -> str:
    return resources.files(package).joinpath(*path).read_text(encoding="utf-8")
