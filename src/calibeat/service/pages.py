"""What the dashboard asks for: its files, the overview and the view of a stream. `reads` has the routes."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from . import dashboard
from .events import Refusal
from .parameters import STREAMS, Parameter, Parameters
from .store.overview import MOST_PAGES, ORDERS, Overview, overview
from .store.view import SPANS, View, view

if TYPE_CHECKING:
    from .app import Service


def _one_of(words: Iterable[str], default: str, description: str) -> Parameter:
    known = list(words)

    def read(text: str) -> str:
        if text not in known:
            raise ValueError(f"must be one of {', '.join(known)}")
        return text

    return Parameter(read, {"type": "string", "enum": known, "default": default}, description)


def _page(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 9 and 1 <= int(text) <= MOST_PAGES):
        raise ValueError(f"must be a whole number from 1 to {MOST_PAGES}")
    return int(text)


_PAGES = {"type": "integer", "minimum": 1, "maximum": MOST_PAGES, "default": 1}
OVERVIEW = Parameters(
    {
        "order": _one_of(ORDERS, "attention", "what the first streams have most of"),
        "search": STREAMS.known["search"],
        "page": Parameter(_page, _PAGES, "25 streams each; one behind the last gives the last"),
    }
)
# The name is in the query: browsers resolve "." and ".." in a path, and a stream may have these names.
VIEW = Parameters(
    {
        "stream": replace(STREAMS.known["after"], description="the name of a stream"),
        "span": _one_of(SPANS, "month", "how far back the series goes, from the last event"),
    }
)


async def ask_overview(service: Service, asked: dict[str, Any]) -> Overview:
    """The first screen."""
    found: Overview = await service.reads.ask(lambda reader: overview(reader, time.time(), **asked))
    return replace(found, needs_token=not service.tokens.is_open)


async def ask_view(service: Service, asked: dict[str, Any]) -> View:
    """The screen of a stream."""
    if "stream" not in asked:
        raise Refusal("invalid", "stream must be given, got no name", "stream", 400)
    name, span = asked["stream"], asked.get("span", "month")
    found: View | None = await service.reads.ask(lambda reader: view(reader, time.time(), name, span))
    if found is None:
        raise Refusal("unknown_stream", f"stream must be one that has events, got {name!r:.60}", "stream", 404)
    return found


def file(request: Request, name: str, headers: dict[str, str]) -> Response:
    """A file of the page; not again if the browser has it."""
    found = dashboard.asset(name)
    if found is None:
        raise HTTPException(404)
    headers = {**headers, "cache-control": "no-cache", "etag": found.etag}
    if request.headers.get("if-none-match") == found.etag:
        return Response(status_code=304, headers=headers)
    return Response(found.body, headers=headers, media_type=found.media_type)
