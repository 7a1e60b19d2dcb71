"""The bytes of a text: its beginning is read first, to see the header; Arrow reads the rest, in a thread of its own."""

from __future__ import annotations

import codecs
import io
import os
import select
import sys
import threading
from typing import Any

from calibeat.errors import InvalidInput

HEAD = 1 << 16  # bytes in which the header has to end
_PATIENCE = 0.1  # seconds between two looks at whether anybody still wants to read


class Source(io.RawIOBase):
    """A stream from its beginning on, of which `head` was read already; all of it must be UTF-8, read or not.

    Arrow reads ahead in its own thread. A process that ends while that thread is in here is aborted, or waits for
    ever; so who stops reading early calls `stop`, which waits for the thread and lets it find an end.
    """

    def __init__(self, stream: Any, name: str) -> None:
        self._stream, self._name = stream, name
        self.head: bytes = stream.read(HEAD)
        self._first = self.head
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._reading = threading.Lock()
        self._stopped = False

    def stop(self) -> None:
        """End the stream here: nobody waits for what may never come."""
        self._stopped = True
        with self._reading:
            pass

    def readable(self) -> bool:  # pragma: no cover - called from a thread of Arrow, which coverage cannot see
        return True

    def readinto(self, buffer: Any) -> int:  # pragma: no cover - see readable
        """Fill the buffer as far as there is anything."""
        with self._reading:
            part = b"" if self._stopped else self._part(len(buffer))
            buffer[: len(part)] = part
            return len(part)

    def _part(self, size: int) -> bytes:  # pragma: no cover - see readable
        part = self._first[:size] or self._more(size)
        self._first = self._first[len(part) :]
        try:
            self._decoder.decode(part, final=not part and not self._stopped)
        except UnicodeDecodeError as error:
            got = f"got byte {error.object[error.start]:#x}: convert it, for instance with iconv"
            raise InvalidInput(f"{self._name} must be text in UTF-8, {got}") from error
        return part

    def _more(self, size: int) -> bytes:  # pragma: no cover - see readable
        part: bytes = self._stream.read(size)
        return part


class StandardInput(Source):
    """Standard input, where the next byte may be hours away: the thread that waits for it can be stopped."""

    def __init__(self, name: str) -> None:
        buffer: Any = sys.stdin.buffer
        super().__init__(buffer, name)
        try:
            self._descriptor = buffer.fileno() if os.name == "posix" else None
        except io.UnsupportedOperation:  # bytes in memory
            self._descriptor = None
        if self._descriptor is not None and self.head:
            self._first += buffer.read(len(buffer.peek()))  # from here on nothing is left between us and the pipe

    def _more(self, size: int) -> bytes:  # pragma: no cover - see readable
        if self._descriptor is None:
            return super()._more(size)
        while not self._stopped:
            if select.select([self._descriptor], [], [], _PATIENCE)[0]:
                return os.read(self._descriptor, size)
        return b""
