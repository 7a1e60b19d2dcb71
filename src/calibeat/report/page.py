"""The report: one HTML file that needs nothing but itself."""

from __future__ import annotations

import html as text
import json
import os
import tempfile
from pathlib import Path

from .payload import Payload


def html(payload: Payload) -> str:
    """The whole page as text."""
    verdict = payload["verdict"]
    data = json.dumps(payload).replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{text.escape(payload["title"])}</title>'
        f"<h1>{text.escape(verdict['headline'])}</h1>"
        f'<script type="application/json" id="payload">{data}</script></html>\n'
    )


def write(payload: Payload, path: str | os.PathLike[str]) -> None:
    """Write the page to `path`, whole or not at all."""
    target = Path(path)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(html(payload))
        Path(name).chmod(0o644)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
