"""The optional log of requests: one JSON line each, with nothing in it that must stay secret."""

from __future__ import annotations

import sys
import time
from typing import Any, TextIO

import msgspec

_encode = msgspec.json.Encoder().encode


class AccessLog:
    """Writes to standard error unless told otherwise. Headers, bodies and query strings are never written."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream

    def line(self, method: str, path: str, status: int, size: int, seconds: float, client: Any) -> None:
        """Write one request.

        >>> AccessLog(sys.stdout).line("GET", "/healthz", 200, 18, 0.00042, ("127.0.0.1", 5))  # doctest: +ELLIPSIS
        {"time":...,"client":"127.0.0.1","method":"GET","path":"/healthz","status":200,"bytes":18,"seconds":0.00042}
        """
        entry = {
            "time": round(time.time(), 3),
            "client": client[0] if client else None,
            "method": method,
            "path": path,
            "status": status,
            "bytes": size,
            "seconds": round(seconds, 6),
        }
        self._stream.write(_encode(entry).decode() + "\n")
        self._stream.flush()
