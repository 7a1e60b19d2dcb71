"""The ASGI application: the hot routes as plain ASGI, all others as Starlette routes.

`calibeat.service.protocol` answers hot requests without coming here. This way serves pipelined requests and any other
ASGI server; the checks, limits and answers are the same objects.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from typing import Any, ClassVar, TextIO

import msgspec
from starlette.types import Receive, Scope, Send

from .events import Refusal
from .hot import ENCODED, FORBIDDEN, INTERNAL, NOT_JSON, READERS, UNAUTHORIZED, WRONG_HOST, Call, Hot
from .limits import Limits
from .protocol import extra_headers
from .reads import Reads, cold_routes, read_body
from .tokens import TokenBook
from .wire import error_body, refusal_body

log = logging.getLogger("calibeat.service")
Refused = tuple[int, str, bytes]  # status, code, body
_LOCAL = frozenset({b"localhost", b"127.0.0.1", b"[::1]"})


class Service:
    """Everything that answers HTTP."""

    # PUT of an outcome is POST: what a second outcome does is a setting of the service.
    hot_methods: ClassVar = {"/v1/forecasts": ("POST",), "/v1/outcomes": ("POST", "PUT")}
    hot_paths: ClassVar[dict[bytes, str]] = {path.encode(): path for path in READERS}

    def __init__(
        self,
        hot: Hot,
        reads: Reads,
        tokens: TokenBook,
        limits: Limits,
        access_log: AccessLog | None = None,
        *,
        address: str = "127.0.0.1",
    ) -> None:
        """`address` is the one it listens on: without tokens, one of this machine."""
        self.hot, self.reads, self.tokens, self.limits, self.access_log = hot, reads, tokens, limits, access_log
        self._names = _LOCAL | {f"[{address}]".encode() if ":" in address else address.encode()}
        self._cold = cold_routes(self)

    # ---- checks that need only the headers ------------------------------------------------------------------------

    def check_host(self, headers: dict[bytes, bytes]) -> Refused | None:
        """Without tokens, only names of this machine: a web page could make its own name lead here."""
        if not self.tokens.is_open:
            return None
        host = headers.get(b"host", b"localhost").lower()
        name = host[: host.find(b"]") + 1] if host.startswith(b"[") else host.partition(b":")[0]
        return None if name in self._names else (421, "misdirected", WRONG_HOST)

    def check_hot(self, headers: dict[bytes, bytes]) -> Refused | None:
        """Why a hot request is refused before its body is read, or None."""
        allowed = self.tokens.allows(headers.get(b"authorization"), "write")
        if not allowed:
            return (401, "unauthorized", UNAUTHORIZED) if allowed is None else (403, "forbidden", FORBIDDEN)
        if refused := self.check_host(headers):
            return refused
        kind = headers.get(b"content-type", b"")
        is_json = kind == b"application/json" or kind.partition(b";")[0].strip().lower() == b"application/json"
        # A web page elsewhere can send other types without asking first. Browsers then name its origin. Programs, such
        # as `curl -d`, do not, and may leave the type out.
        if not is_json and (b"origin" in headers or b"sec-fetch-site" in headers):
            return 415, "unsupported_media_type", NOT_JSON
        if headers.get(b"content-encoding", b"identity").lower() != b"identity":
            return 415, "unsupported_media_type", ENCODED
        length = headers.get(b"content-length")
        if length is not None and int(length) > self.limits.body:
            return 413, "too_large", error_body("too_large", f"body must be {self.limits.body} bytes at most")
        return None

    # ---- ASGI -----------------------------------------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return  # there is no lifespan: the command line starts and stops the engine
        started = time.perf_counter()
        status = [500]
        length = [0]

        async def watched(message: Any) -> None:
            if message["type"] == "http.response.start":
                status[0] = message["status"]
            else:
                length[0] += len(message.get("body", b""))
            await send(message)

        sender = send if self.access_log is None else watched
        path = scope["path"]
        if path in READERS and scope["method"] in self.hot_methods[path]:
            await self._answer_hot(scope, receive, sender)
        else:
            await self._cold(scope, receive, sender)
        if self.access_log is not None:
            seconds = time.perf_counter() - started
            self.access_log.line(scope["method"], path, status[0], length[0], seconds, scope.get("client"))

    async def _answer_hot(self, scope: Scope, receive: Receive, send: Send) -> None:
        call = AsgiCall(asyncio.get_running_loop())
        try:
            refused = self.check_hot(dict(scope["headers"]))
            body = b"" if refused else await read_body(receive, self.limits.body)
        except Refusal as refusal:
            refused = refusal.status, refusal.code, refusal_body(refusal)
        except Exception:  # a fault of ours, as in `Hot.take`
            log.exception("a request failed")
            refused = 500, "internal", INTERNAL
        if refused is not None:
            status, code, content = refused
            self.hot.refuse(call, status, code, content)
        else:
            self.hot.take(call, scope["path"], body)
        status, content = await call.answer
        headers = [*extra_headers(status), (b"content-length", b"%d" % len(content))]
        if status == 413:
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})


class AsgiCall(Call):
    """A hot request that came through ASGI: a coroutine waits for it."""

    __slots__ = ("answer",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.answer: asyncio.Future[tuple[int, bytes]] = loop.create_future()

    def send(self, status: int, body: bytes) -> None:
        """Wake the coroutine."""
        if not self.answer.done():
            self.answer.set_result((status, body))


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
