"""The lines that a service writes to standard error: as text or as JSON, each with its time."""

from __future__ import annotations

import logging
import sys
import time
from typing import Any, Literal, TextIO

import msgspec

_encode = msgspec.json.Encoder().encode
LogFormat = Literal["text", "json"]
FORMATS: tuple[LogFormat, ...] = ("text", "json")


class TextLines(logging.Formatter):
    """`2026-11-16T22:48:00.123Z calibeat: WARNING: the store is away`."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s calibeat: %(levelname)s: %(message)s")
        self.converter = time.gmtime
        self.default_time_format, self.default_msec_format = "%Y-%m-%dT%H:%M:%S", "%s.%03dZ"


class JsonLines(logging.Formatter):
    """One object a line: time in seconds since 1970, level, message, and the traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record.

        >>> record = logging.LogRecord("calibeat", logging.WARNING, "", 0, "%s is away", ("it",), None)
        >>> record.created = 1790000000.0
        >>> JsonLines().format(record)
        '{"time":1790000000.0,"level":"warning","message":"it is away"}'
        """
        entry: dict[str, Any] = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return _encode(entry).decode()


def start_logging(kind: LogFormat) -> None:
    """Warnings and worse go to standard error, unless the process has a log of its own already."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if kind == "json" else TextLines())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


def say(sentence: str, kind: LogFormat) -> None:
    """Tell whoever has started the service, on standard output."""
    line = sentence if kind == "text" else _encode({"time": round(time.time(), 3), "message": sentence}).decode()
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class AccessLog:
    """Writes a line of JSON for each request, by default to standard error; never tokens, bodies or query strings."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream

    def line(
        self,
        method: str,
        path: str,
        status: int,
        size: int,
        seconds: float,
        client: Any,
        token: str | None = None,
        request: bytes | None = None,
    ) -> None:
        """Write one request: `token` is the name of its token, `request` its `X-Request-Id`.

        >>> AccessLog(sys.stdout).line("GET", "/healthz", 200, 18, 0.00042, ("127.0.0.1", 5))  # doctest: +ELLIPSIS
        {"time":...,"client":"127.0.0.1","method":"GET","path":"/healthz","status":200,"bytes":18,"seconds":0.00042,...}
        """
        entry = {
            "time": round(time.time(), 3),
            "client": client[0] if client else None,
            "method": method,
            "path": path,
            "status": status,
            "bytes": size,
            "seconds": round(seconds, 6),
            "token": token,
            "request": None if request is None else request[:100].decode("latin-1"),
        }
        self._stream.write(_encode(entry).decode() + "\n")
        self._stream.flush()
