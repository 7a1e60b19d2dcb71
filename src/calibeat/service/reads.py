"""The routes that read: streams, alarms, metrics, health, the schema and the dashboard; and the log-in of the page."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from . import openapi, pages, prometheus
from .hot import UNAUTHORIZED
from .numbers import EngineNumbers
from .operations import Refusal
from .parameters import HISTORY, LIMIT_ONLY, NONE, RELIABILITY, STREAMS, Parameters, is_readable
from .store import Reader, open_reader
from .store.reader import MOST_HOURS
from .wire import AlarmsAnswer, DelaysAnswer, Health, HistoryAnswer, StreamsAnswer, error_body, refusal_body

if TYPE_CHECKING:
    from .app import Service

log = logging.getLogger("calibeat.service")
_encode = msgspec.json.Encoder().encode
COOKIE = "calibeat_token"
COOKIE_SECONDS = 30 * 86_400
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
SAFE = {"x-content-type-options": "nosniff", "referrer-policy": "no-referrer"}
Handler = Callable[[Request], Awaitable[Response]]


class Reads:
    """A reader of the store on a thread of its own: what takes long there holds up no event."""

    def __init__(self, store: str, numbers: EngineNumbers) -> None:
        self._store, self.numbers = store, numbers
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="calibeat-reader")
        self._reader: Reader | None = None
        self._boot = secrets.token_hex(4)  # versions of another process say nothing here

    def reader(self) -> Reader:
        """The reader, opened when it is first needed. Only for the reader's thread."""
        if self._reader is None:
            self._reader = open_reader(self._store)
        return self._reader

    async def ask(self, question: Callable[[Reader], Any]) -> Any:
        """Ask the store something, on the reader's thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._ask, question)

    def _ask(self, question: Callable[[Reader], Any]) -> Any:
        try:
            return question(self.reader())
        except Exception:  # such as a database that was started anew: the next question gets a new connection
            self._drop()
            raise

    def _drop(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            with suppress(Exception):
                reader.close()

    async def tag(self) -> str:
        """What an answer is labelled with: it changes with every commit."""
        return f'W/"{self._boot}-{await self.ask(lambda reader: reader.version())}"'

    def close(self) -> None:
        """Close the reader."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._drop()


def _json(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    body = content if isinstance(content, bytes) else _encode(content)
    return Response(body, status, {**SAFE, "cache-control": "no-store", **(headers or {})}, "application/json")


class Routes:
    """The handlers. Each returns a response or raises `Refusal`."""

    def __init__(self, service: Service) -> None:
        self.service, self.reads = service, service.reads

    async def streams(self, asked: dict[str, Any]) -> Any:
        """A page of streams."""
        limit = asked.pop("limit", 100)
        found = await self.reads.ask(lambda reader: reader.streams(limit=limit, **asked))
        return StreamsAnswer(found, found[-1].name if len(found) == limit else None)

    async def stream(self, name: str, _: dict[str, Any]) -> Any:
        """One stream."""
        return await self.reads.ask(lambda reader: reader.stream(name))

    async def reliability(self, name: str, asked: dict[str, Any]) -> Any:
        """Its bins."""
        return await self.reads.ask(lambda r: r.reliability(name, asked.get("from"), asked.get("to")))

    async def history(self, name: str, asked: dict[str, Any]) -> Any:
        """Its hours."""
        most = MOST_HOURS
        found = await self.reads.ask(lambda r: r.history(name, asked.get("from"), asked.get("to"), most + 1))
        if found is None:
            return None
        return HistoryAnswer(found[:most], found[most].start if len(found) > most else None)

    async def delays(self, name: str, _: dict[str, Any]) -> Any:
        """How late its outcomes were."""
        found = await self.reads.ask(lambda reader: reader.delays(name))
        return None if found is None else DelaysAnswer(found)

    async def alarms(self, asked: dict[str, Any]) -> Any:
        """The latest alarms of all streams."""
        return AlarmsAnswer(await self.reads.ask(lambda reader: reader.alarms(asked.get("limit", 100))))

    async def totals(self, _: dict[str, Any]) -> Any:
        """The whole store in numbers."""
        return await self.reads.ask(lambda reader: reader.totals())

    async def overview(self, asked: dict[str, Any]) -> Any:
        """The first screen of the dashboard."""
        return await pages.ask_overview(self.service, asked)

    async def view(self, asked: dict[str, Any]) -> Any:
        """The dashboard's screen of a stream."""
        return await pages.ask_view(self.service, asked)

    async def of_stream(self, request: Request) -> Response:
        """`/v1/streams/NAME` and what is below it. A slash in a name is written %2F, so the raw path counts."""
        raw = request.scope.get("raw_path") or request.scope["path"].encode()
        parts = raw.decode("ascii").partition("?")[0].split("/")[3:]
        below: dict[str, tuple[Callable[[str, dict[str, Any]], Awaitable[Any]], Parameters]] = {
            "": (self.stream, NONE),
            "reliability": (self.reliability, RELIABILITY),
            "history": (self.history, HISTORY),
            "delays": (self.delays, NONE),
        }
        kind = parts[1] if len(parts) > 1 else ""
        if len(parts) > 2 or kind not in below or (len(parts) == 2 and not kind):
            raise HTTPException(404)
        handler, parameters = below[kind]
        try:
            name = unquote(parts[0], errors="strict")
        except UnicodeDecodeError:
            name = ""
        asked = parameters.read(_query(request))
        found = await handler(name, asked) if is_readable(name) else None
        if found is None:
            raise Refusal("unknown_stream", f"stream must be one that has events, got {name!r:.60}", "stream", 404)
        return _json(found, headers={"etag": request.state.tag})

    # ---- for machines -----------------------------------------------------------------------------------------------

    async def metrics(self, _: Request) -> Response:
        """Prometheus text."""
        totals = await self.reads.ask(lambda reader: reader.totals())
        service = self.service
        text = prometheus.render(service.reads.numbers, totals, service.hot.refused)
        return Response(text, headers=SAFE, media_type=prometheus.MEDIA_TYPE)

    async def alive(self, _: Request) -> Response:
        """The process answers."""
        return _json(Health("alive"))

    async def ready(self, _: Request) -> Response:
        """The store answers, too."""
        try:
            await self.reads.ask(lambda reader: reader.ping())
        except Exception as error:  # noqa: BLE001 - whatever it is, the store cannot be read
            log.warning("the store cannot be read: %s", error)
            raise Refusal("not_ready", "the store must be readable, got an error; the log has it", None, 503) from None
        return _json(Health("ready"))

    async def schema(self, _: Request) -> Response:
        """The description of all this."""
        return _json(openapi.document(self.service.limits), headers={"cache-control": "max-age=60"})

    # ---- the page ---------------------------------------------------------------------------------------------------

    async def page(self, request: Request) -> Response:
        """The dashboard: a page without data, so it needs no token; what it asks for does."""
        return pages.file(request, "index.html", {**SAFE, "content-security-policy": POLICY})

    async def static(self, request: Request) -> Response:
        """What the page is made of."""
        return pages.file(request, request.path_params["name"], {**SAFE, "content-security-policy": POLICY})

    async def login(self, request: Request) -> Response:
        """Keep a token in a cookie that scripts cannot read."""
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > 4096:
                raise Refusal("too_large", "body must be 4096 bytes at most", None, 413)
        token = dict(parse_qsl(body.decode("ascii", "replace"))).get("token", "").strip()
        if not self.service.tokens.is_open and self.service.tokens.allows_token(token.encode(), "read") is not True:
            raise Refusal("unauthorized", "token must be a valid one, got another", "token", 401)
        response = Response(status_code=HTTPStatus.SEE_OTHER, headers={**SAFE, "location": "/"})
        response.set_cookie(
            COOKIE,
            token,
            max_age=COOKIE_SECONDS,
            httponly=True,
            samesite="strict",
            secure=request.scope["scheme"] == "https",
        )
        return response

    async def logout(self, _: Request) -> Response:
        """Forget the cookie."""
        response = Response(status_code=HTTPStatus.SEE_OTHER, headers={**SAFE, "location": "/"})
        response.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return response

    # ---- around them ------------------------------------------------------------------------------------------------

    def _may_read(self, request: Request) -> bool:
        tokens = self.service.tokens
        if tokens.is_open:
            return True
        header, cookie = request.headers.get("authorization"), request.cookies.get(COOKIE)
        if header is not None:
            return tokens.allows(header.encode("latin-1"), "read") is True
        return cookie is not None and tokens.allows_token(cookie.encode("latin-1", "replace"), "read") is True

    def reading(self, handler: Handler, *, tagged: bool = True) -> Handler:
        """Needs a token that may read; unchanged answers are not sent again."""

        async def handle(request: Request) -> Response:
            if not self._may_read(request):
                return _json(UNAUTHORIZED, 401, {"www-authenticate": "Bearer"})
            if tagged:
                request.state.tag = await self.reads.tag()
                if request.headers.get("if-none-match") == request.state.tag:
                    return Response(status_code=304, headers={"etag": request.state.tag})
            return await handler(request)

        return handle

    def asking(self, handler: Callable[[dict[str, Any]], Awaitable[Any]], parameters: Parameters) -> Handler:
        """A handler that returns a value, with checked parameters."""

        async def handle(request: Request) -> Response:
            asked = parameters.read(_query(request))
            return _json(await handler(asked), headers={"etag": request.state.tag})

        return self.reading(handle)

    def checked(self, handler: Handler) -> Handler:
        """Refusals, and whatever goes wrong, in the one shape of errors."""

        async def handle(request: Request) -> Response:
            if refused := self.service.check_host(dict(request.scope["headers"])):
                return _json(refused[2], refused[0])
            try:
                return await handler(request)
            except Refusal as refusal:
                headers = {"retry-after": "1"} if refusal.status == 503 else {}
                return _json(refusal_body(refusal), refusal.status, headers)
            except HTTPException:
                raise
            except Exception:
                log.exception("%s %s failed", request.method, request.scope["path"])
                return _json(error_body("internal", "the service could not answer; its log says why"), 500)

        return handle


def _query(request: Request) -> str:
    """What stands behind the question mark. `request.url` would parse the Host header, which can be anything."""
    return str(request.scope["query_string"].decode("latin-1"))


def cold_routes(service: Service) -> Starlette:
    """All routes but the hot ones."""
    at = Routes(service)
    read, ask = at.reading, at.asking
    routes: list[tuple[str, Handler, list[str]]] = [
        ("/v1/streams", ask(at.streams, STREAMS), ["GET"]),
        ("/v1/streams/{rest:path}", read(at.of_stream), ["GET"]),
        ("/v1/alarms", ask(at.alarms, LIMIT_ONLY), ["GET"]),
        ("/v1/totals", ask(at.totals, NONE), ["GET"]),
        ("/v1/overview", ask(at.overview, pages.OVERVIEW), ["GET"]),
        ("/v1/view", ask(at.view, pages.VIEW), ["GET"]),
        ("/metrics", read(at.metrics, tagged=False), ["GET"]),
        ("/healthz", at.alive, ["GET"]),
        ("/readyz", at.ready, ["GET"]),
        ("/openapi.json", at.schema, ["GET"]),
        ("/login", at.login, ["POST"]),
        ("/logout", at.logout, ["POST"]),
        ("/", at.page, ["GET"]),
        ("/static/{name}", at.static, ["GET"]),
    ]
    made = [Route(path, at.checked(handler), methods=methods) for path, handler, methods in routes]
    made += [Route(path, _unreachable, methods=list(methods)) for path, methods in service.hot_methods.items()]
    app = Starlette(routes=made, exception_handlers={HTTPException: _refused})  # type: ignore[dict-item]
    app.router.redirect_slashes = False
    return app


async def _unreachable(_: Request) -> Response:  # pragma: no cover - here for 405 and its Allow header
    raise HTTPException(404)


_SENTENCES = {
    404: ("not_found", "path must be one of those in /openapi.json, got {path!r:.100}"),
    405: ("method_not_allowed", "method must be {allow}, got {method}"),
}


async def _refused(request: Request, error: HTTPException) -> Response:
    code, sentence = _SENTENCES[error.status_code]
    allow = (error.headers or {}).get("Allow", "")
    message = sentence.format(path=request.scope["path"], method=request.method, allow=allow)
    return _json(error_body(code, message), error.status_code, dict(error.headers or {}))
