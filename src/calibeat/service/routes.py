"""All routes but forecasts and outcomes: streams, alarms, metrics, health, the schema, its page, the dashboard and its
log-in.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import parse_qsl, unquote

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive

from calibeat.errors import InvalidInput

from . import openapi
from .alarms import LOOK_FIRST, acknowledge, grouped, mute, mutes, unmute
from .controls import unknown_event, unknown_stream
from .counters import METRICS_TYPE, EngineCounters, metrics_text
from .dashboard import Asset, asset
from .docs_page import docs_page
from .events import Control, Refusal
from .patterns import check_pattern, matches
from .states import NEVER, WORDS
from .store import Reader, StoreAway, open_reader
from .store.queries import MAX_HOURS, MAX_LIMIT, Look, overview, view
from .wire import (
    ALARMS,
    EVENTS,
    HISTORY,
    INTERNAL,
    MUTED,
    NO_PARAMETERS,
    OVERVIEW,
    RELIABILITY,
    SEGMENTS,
    STARTING,
    STREAMS,
    UNREADABLE,
    VERB_BODIES,
    VIEW,
    AcknowledgeAnswer,
    AcknowledgeBody,
    AlarmsAnswer,
    DeletedAnswer,
    EventsAnswer,
    ForgottenAnswer,
    Health,
    HistoryAnswer,
    MuteBody,
    MutesAnswer,
    Parameters,
    SegmentsAnswer,
    StreamsAnswer,
    error_body,
    is_readable,
    read_control,
    read_settings,
    refusal_body,
)

if TYPE_CHECKING:
    from .engine import Engine
    from .http import Service

log = logging.getLogger("calibeat.service")
_encode = msgspec.json.Encoder().encode
COOKIE = "calibeat_token"
COOKIE_SECONDS = 30 * 86_400
SMALL_BODY = 4096  # bytes
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
SAFE = {"x-content-type-options": "nosniff", "referrer-policy": "no-referrer"}
Handler = Callable[[Request], Awaitable[Response]]


READY_SECONDS = 5.0  # in which the store must answer `/readyz`


class Question:
    """One question to the store."""

    def __init__(self, ask: Callable[[Reader], Any]) -> None:
        self.ask = ask
        self.given_up = threading.Event()
        self.answered = threading.Event()


class ReaderThread:
    """A thread with a reader of the store. A question that nobody waits for any more is interrupted."""

    def __init__(self, store: str, name: str) -> None:
        self._store = store
        self.before: Callable[[], None] = lambda: None  # is called before every question
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._reader: Reader | None = None
        self._lock = threading.Lock()
        self._running: Question | None = None
        self._is_stopping = False

    async def ask(self, ask: Callable[[Reader], Any]) -> Any:
        """The answer to a question. Cancelling the caller cancels the question."""
        question = Question(ask)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._answer, question)
        except asyncio.CancelledError:
            self._give_up(question)
            raise

    def stop(self) -> None:
        """Answer nothing more: what runs is interrupted, what waits is refused."""
        with self._lock:
            self._is_stopping = True
            running = self._running
        if running is not None:
            self._give_up(running)

    def close(self) -> None:
        """Stop, and close the reader."""
        self.stop()
        self._thread.shutdown(wait=True, cancel_futures=True)
        self._drop()

    # ---- on the thread ----------------------------------------------------------------------------------------------

    def _answer(self, question: Question) -> Any:
        with self._lock:
            if self._is_stopping or question.given_up.is_set():
                raise _stopping()
            self._running = question
        try:
            self.before()
            was_open = self._reader is not None
            if self._reader is None:
                self._reader = open_reader(self._store)
            try:
                return question.ask(self._reader)
            except self._reader.outages:
                if not was_open or question.given_up.is_set():
                    raise
            # The database may have been started anew since the last question: a new connection is asked once more.
            self._drop()
            self._reader = open_reader(self._store)
            return question.ask(self._reader)
        except StoreAway:
            raise _away() from None
        except Exception as error:  # the next question gets a new connection
            is_away = self._reader is not None and isinstance(error, self._reader.outages)
            self._drop()
            if question.given_up.is_set():
                raise _stopping() from None
            if is_away:
                raise _away() from None
            raise
        finally:
            with self._lock:
                self._running = None
            question.answered.set()
            if question.given_up.is_set():  # an interrupt that is still under way must not hit the next question
                self._drop()

    def _drop(self) -> None:
        with self._lock:
            reader, self._reader = self._reader, None
        if reader is not None:
            with suppress(Exception):
                reader.close()

    # ---- from another thread ----------------------------------------------------------------------------------------

    def _give_up(self, question: Question) -> None:
        """End a question. One that waits is cancelled by its future; one that runs may take several interrupts."""
        with self._lock:
            question.given_up.set()
            if self._running is question:
                threading.Thread(target=self._interrupt, args=(question,), daemon=True).start()

    def _interrupt(self, question: Question) -> None:
        """Interrupt the statement that runs, again and again, since a question can have many."""
        while not question.answered.wait(0.02):
            reader = self._reader
            if reader is not None:
                with suppress(Exception):  # such as a connection that is closed: then the statement ends, too
                    reader.interrupt()


def _stopping() -> Refusal:
    return Refusal("stopping", "the service must run to be asked, got one that stops - try again", None, 503)


def _away() -> Refusal:
    return Refusal("unavailable", "the store must answer, got a database that is away - try again", None, 503)


class StoreReaders:
    """Readers of the store on threads of their own: what takes long there holds up no event, and `/readyz` no page."""

    def __init__(self, store: str, counters: EngineCounters | None = None) -> None:
        self.counters = counters or EngineCounters()
        self._pages = ReaderThread(store, "calibeat-reader")
        self._probe = ReaderThread(store, "calibeat-probe")
        self._boot = secrets.token_hex(4)  # versions of another process say nothing here

    def open(self, engine: Engine) -> None:
        """From now on an engine writes the store. What it has answered is there before a question is."""
        self.counters, self._pages.before = engine.counters, engine.wait_until_written

    async def ask(self, question: Callable[[Reader], Any]) -> Any:
        """Ask the store something."""
        return await self._pages.ask(question)

    async def tag(self) -> str:
        """What an answer is labelled with: it changes with every commit."""
        return f'W/"{self._boot}-{await self.ask(lambda reader: reader.version())}"'

    async def ping(self) -> None:
        """Raise if the store cannot be read soon, whatever else is asked of it."""
        await asyncio.wait_for(self._probe.ask(lambda reader: reader.ping()), READY_SECONDS)

    def stop(self) -> None:
        """The service stops, and waits for no page."""
        self._pages.stop()
        self._probe.stop()

    def close(self) -> None:
        """Close the readers."""
        self._pages.close()
        self._probe.close()


def _not_yours(what: str, streams: Sequence[str]) -> Refusal:
    return Refusal("forbidden", f"this token is for {', '.join(streams)} only, got a request for {what}", None, 403)


def check_yours(stream: str, streams: Sequence[str]) -> None:
    """Raise if a token that is limited to some streams is used for another one."""
    if streams and not matches(streams, stream):
        raise _not_yours(f"{stream!r:.60}", streams)


def covers_all(pattern: str, streams: Sequence[str]) -> bool:
    """Whether a token that is limited to some streams may be used for all streams of a pattern."""
    within = ((own.endswith("*") and pattern.startswith(own[:-1])) or own == pattern for own in streams)
    return not streams or any(within)


def check_yours_all(pattern: str, streams: Sequence[str]) -> None:
    """Raise if it may not."""
    if not covers_all(pattern, streams):
        raise _not_yours(f"{pattern!r:.60}", streams)


def _page(request: Request, found: Asset) -> Response:
    """A file for browsers; not again if this one has it."""
    headers = {**SAFE, "content-security-policy": POLICY, "cache-control": "no-cache", "etag": found.etag}
    if request.headers.get("if-none-match") == found.etag:
        return Response(status_code=304, headers=headers)
    return Response(found.body, headers=headers, media_type=found.media_type)


def look_in_words(look: Look | None) -> Look | None:
    """What has happened, and what to do about it. Without an alarm, outcomes were missed in plain sight.

    >>> look_in_words(Look("paris", "drifting", "too high from 0.2 to 0.4", None)).do
    'events of that region since then'
    """
    if look is None:
        return None
    what = look.what or NEVER
    text, do = next(
        (words for kind, words in WORDS.items() if what.startswith(kind)), (f"forecasts {what}{look.where}", "")
    )
    do = do or next((words for kind, words in LOOK_FIRST.items() if what.startswith(kind)), "its events since then")
    return replace(look, text=text, do=do)


def _raise_unknown(name: str) -> NoReturn:
    raise unknown_stream(name)


def _json(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    body = content if isinstance(content, bytes) else _encode(content)
    return Response(body, status, {**SAFE, "cache-control": "no-store", **(headers or {})}, "application/json")


class Routes:
    """The handlers. Each returns a response or raises `Refusal`."""

    def __init__(self, service: Service) -> None:
        self.service, self.reads = service, service.reads
        # What is answered without a store.
        self.always: tuple[Handler, ...] = (self.alive, self.ready, self.schema, self.docs, self.page, self.static)

    async def streams(self, asked: dict[str, Any]) -> Any:
        """A page of streams."""
        limit = asked.pop("limit", 100)
        found = await self.reads.ask(lambda reader: reader.streams(limit=limit, **asked))
        return StreamsAnswer(found, found[-1].name if len(found) == limit else None)

    async def stream(self, name: str, _: dict[str, Any]) -> Any:
        """One stream, and how far its corrections are."""
        found = await self.reads.ask(lambda reader: reader.stream(name))
        if found is None or not found.corrections:
            return found
        return replace(found, progress=self.service.endpoints.engine.progress(name))

    async def events(self, name: str, asked: dict[str, Any]) -> Any:
        """A page of its events."""
        limit = asked.pop("limit", 100)
        found = await self.reads.ask(lambda reader: reader.events(name, limit=limit, **asked))
        return None if found is None else EventsAnswer(found, found[-1].id if len(found) == limit else None)

    async def event(self, name: str, written: str) -> Response:
        """One event: what was told, and what is known since."""
        id = _unquoted(written)  # noqa: A001 - the word of the service
        found = await self.reads.ask(lambda reader: reader.event(name, id)) if is_readable(id) else None
        if found is None:
            raise unknown_event(Control("forget", name, ids=(id,)))
        return _json(found)

    # ---- what is done to streams ------------------------------------------------------------------------------------

    async def change(self, request: Request) -> Response:
        """`POST /v1/streams/NAME/VERB`, `DELETE /v1/streams/NAME` and `DELETE /v1/streams/NAME/events/ID`."""
        if refused := self.service.check_content(dict(request.scope["headers"])):
            return _json(refused[2], refused[0])
        name, *below = _parts(request)
        check_yours(name, request.state.streams)
        body = await read_body(request.receive, self.service.limits.body)
        if not is_readable(name):
            _raise_unknown(name)
        if request.method == "POST" and len(below) == 1 and below[0] in VERB_BODIES:
            control = read_control(below[0], name, body)
            if control.to:
                check_yours(control.to, request.state.streams)
        elif request.method == "DELETE" and not below:
            control = Control("delete", name)
        elif request.method == "DELETE" and len(below) == 2 and below[0] == "events":
            control = Control("forget", name, ids=(_unquoted(below[1]),))
            if not is_readable(control.ids[0]):
                raise unknown_event(control)
        else:
            raise HTTPException(404)
        status, content = await self.service.endpoints.ask(control)
        return _json(content, status) if status != 200 else _json(await self._changed(control))

    async def _changed(self, control: Control) -> Any:
        """The stream as it is now, or that it or its event is gone."""
        if control.verb == "delete":
            return DeletedAnswer(control.stream)
        if control.verb == "forget":
            return ForgottenAnswer(control.stream, control.ids[0])
        name = control.to or control.stream
        return await self.stream(name, {}) or _raise_unknown(name)  # it may be deleted by now

    async def reliability(self, name: str, asked: dict[str, Any]) -> Any:
        """Its bins."""
        return await self.reads.ask(lambda r: r.reliability(name, asked.get("from"), asked.get("to")))

    async def history(self, name: str, asked: dict[str, Any]) -> Any:
        """Its hours."""
        limit = asked.get("limit", MAX_HOURS)
        found = await self.reads.ask(lambda r: r.history(name, asked.get("from"), asked.get("to"), limit + 1))
        if found is None:
            return None
        return HistoryAnswer(found[:limit], found[limit].start if len(found) > limit else None)

    async def segments(self, name: str, asked: dict[str, Any]) -> Any:
        """Who is miscalibrated."""
        found = await self.reads.ask(lambda reader: reader.segments(name, asked.get("least", 100)))
        return None if found is None else SegmentsAnswer(found[: asked.get("limit", MAX_LIMIT)])

    async def define(self, request: Request) -> Response:
        """`PUT /v1/streams/NAME`: what the stream is from its first event on."""
        service = self.service
        if refused := service.check_content(dict(request.scope["headers"])):
            return _json(refused[2], refused[0])
        name, *below = _parts(request)
        check_yours(name, request.state.streams)
        if below:
            raise HTTPException(404)
        if not is_readable(name):
            raise Refusal("invalid", f"stream must be text of 1 to 200 characters, got {name!r:.60}", "stream", 400)
        settings = read_settings(await read_body(request.receive, service.limits.body), name)
        status, content = await service.endpoints.ask(settings)
        return _json(content, status)

    async def alarms(self, asked: dict[str, Any]) -> Any:
        """The latest alarms, and which of them go together."""
        found = await self.reads.ask(lambda reader: reader.alarms(**asked))
        return AlarmsAnswer(found, grouped(found))

    async def mutes(self, asked: dict[str, Any]) -> Any:
        """What is muted."""
        found = await self.reads.ask(lambda reader: mutes(reader.select))
        return MutesAnswer([mute for mute in found if covers_all(mute.streams, asked["among"])])

    async def acknowledge(self, request: Request) -> Response:
        """Somebody looks after some alarms."""
        asked, token = await self._body(request, AcknowledgeBody), request.scope["calibeat.token"]
        who = None if token is None else token.name
        done = await self.reads.ask(lambda reader: reader.change(lambda c: acknowledge(c, asked.streams, who)))
        return _json(AcknowledgeAnswer(done))

    async def mute(self, request: Request) -> Response:
        """Send no alarms of some streams."""
        asked = await self._body(request, MuteBody)
        made = await self.reads.ask(lambda reader: reader.change(lambda c: mute(c, asked.streams, asked.seconds)))
        return _json(made)

    async def unmute(self, request: Request) -> Response:
        """Send them again."""
        streams = MUTED.read(_query(request)).get("streams")
        if streams is None:
            raise Refusal("invalid", "streams must be given, got none", "streams", 400)
        check_yours_all(streams, request.state.streams)
        if not await self.reads.ask(lambda reader: reader.change(lambda c: unmute(c, streams))):
            raise Refusal("unknown", f"streams must be muted, got {streams!r:.60}, which are not", "streams", 404)
        return _json(await self.mutes({"among": request.state.streams}))

    async def _body(self, request: Request, kind: type[Any]) -> Any:
        """A small body, with `streams` that the token may be used for."""
        if refused := self.service.check_content(dict(request.scope["headers"])):
            status, code, _ = refused
            raise Refusal(code, "body must be plain JSON", "content-type", status)
        try:
            found = msgspec.json.decode(await read_body(request.receive, SMALL_BODY), type=kind)
            check_pattern(found.streams)
        except InvalidInput as error:
            raise Refusal("invalid", str(error), "streams", 400) from None
        except UNREADABLE as error:
            raise Refusal("invalid", f"body must be JSON as /docs says: {error}", None, 400) from None
        check_yours_all(found.streams, request.state.streams)
        return found

    async def overview(self, asked: dict[str, Any]) -> Any:
        """The first screen of the dashboard."""
        may_write = asked.pop("may_write")
        found = await self.reads.ask(lambda reader: overview(reader, time.time(), **asked))
        needs_token = not self.service.tokens.is_open
        return replace(found, first=look_in_words(found.first), needs_token=needs_token, may_write=may_write)

    async def view(self, asked: dict[str, Any]) -> Any:
        """The dashboard's screen of a stream."""
        if "stream" not in asked:
            raise Refusal("invalid", "stream must be given, got no name", "stream", 400)
        name, span = asked["stream"], asked.get("span", "month")
        check_yours(name, asked["among"])
        found = await self.reads.ask(lambda reader: view(reader, time.time(), name, span))
        if found is None:
            _raise_unknown(name)
        return replace(found, first=look_in_words(found.first), may_write=asked["may_write"])

    async def of_stream(self, request: Request) -> Response:
        """`/v1/streams/NAME` and what is below it. A slash in a name is written %2F, so the raw path counts."""
        name, *parts = _parts(request)
        check_yours(name, request.state.streams)
        below: dict[str, tuple[Callable[[str, dict[str, Any]], Awaitable[Any]], Parameters]] = {
            "": (self.stream, NO_PARAMETERS),
            "reliability": (self.reliability, RELIABILITY),
            "history": (self.history, HISTORY),
            "segments": (self.segments, SEGMENTS),
            "events": (self.events, EVENTS),
        }
        kind = parts[0] if parts else ""
        if kind == "events" and len(parts) == 2 and parts[1]:
            NO_PARAMETERS.read(_query(request))
            return await self.event(name, parts[1])
        if len(parts) > 1 or kind not in below or (parts and not kind):
            raise HTTPException(404)
        handler, parameters = below[kind]
        asked = parameters.read(_query(request))
        found = await handler(name, asked) if is_readable(name) else None
        if found is None:
            _raise_unknown(name)
        return _json(found, headers={"etag": request.state.tag})

    # ---- for machines -----------------------------------------------------------------------------------------------

    async def metrics(self, _: Request) -> Response:
        """Prometheus text. Without the store, what the process knows of itself."""
        service = self.service
        try:
            totals = await self.reads.ask(lambda reader: reader.totals())
        except Refusal as refusal:
            if refusal.code != "unavailable":
                raise
            totals = None
        text = metrics_text(self.reads.counters, totals, service.endpoints.refused, service.traffic, service.build)
        return Response(text, headers=SAFE, media_type=METRICS_TYPE)

    async def alive(self, _: Request) -> Response:
        """The process answers."""
        return _json(Health("alive"))

    async def ready(self, _: Request) -> Response:
        """The store answers, too."""
        if not self.service.has_store:
            raise Refusal("not_ready", "the service must have its store, got one that waits for it", None, 503)
        try:
            await self.reads.ping()
        except Exception as error:  # noqa: BLE001 - whatever it is, the store cannot be read
            log.warning("the store cannot be read: %s", str(error) or f"no answer within {READY_SECONDS:g} seconds")
            raise Refusal("not_ready", "the store must be readable, got an error; the log has it", None, 503) from None
        return _json(Health("ready"))

    async def schema(self, _: Request) -> Response:
        """The description of all this."""
        return _json(openapi.document(self.service.limits), headers={"cache-control": "max-age=60"})

    async def docs(self, request: Request) -> Response:
        """The same for people: a page that asks nobody else for anything."""
        return _page(request, docs_page(self.service.limits))

    # ---- the page ---------------------------------------------------------------------------------------------------

    async def page(self, request: Request) -> Response:
        """The dashboard: a page without data, so it needs no token; what it asks for does."""
        return await self.static(request, "index.html")

    async def static(self, request: Request, name: str | None = None) -> Response:
        """A file of the page; not again if the browser has it."""
        found = asset(name or request.path_params["name"])
        if found is None:
            raise HTTPException(404)
        return _page(request, found)

    async def login(self, request: Request) -> Response:
        """Keep a token in a cookie that scripts cannot read."""
        body = await read_body(request.receive, 4096)
        token = dict(parse_qsl(body.decode("ascii", "replace"))).get("token", "").strip()
        is_possible = token.isascii() and token.isprintable()  # so that it can stand in a header
        tokens = self.service.tokens
        if not is_possible or not (tokens.is_open or tokens.find_token(token.encode())):
            raise Refusal("unauthorized", "token must be a valid one, got another", "token", 401)
        response = Response(status_code=HTTPStatus.SEE_OTHER, headers={**SAFE, "location": "./"})
        response.set_cookie(
            COOKIE,
            token,
            max_age=COOKIE_SECONDS,
            httponly=True,
            samesite="strict",
            secure=request.headers.get("x-forwarded-proto") == "https",  # what the proxy speaks
        )
        return response

    async def logout(self, _: Request) -> Response:
        """Forget the cookie."""
        response = Response(status_code=HTTPStatus.SEE_OTHER, headers={**SAFE, "location": "./"})
        response.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return response

    # ---- around them ------------------------------------------------------------------------------------------------

    def admit(self, request: Request, *, write: bool = False, page: bool = False) -> Response | None:
        """Why somebody is refused, or None. What the token may see is in the request.

        A cookie is enough to read, and for what the `page` writes: it is SameSite=Strict, and a page elsewhere could
        send JSON only after it has asked, which nobody answers.
        """
        tokens, token = self.service.tokens, None
        request.state.streams, request.state.may_write = (), True
        if tokens.is_open:
            return None
        header, cookie = request.headers.get("authorization"), request.cookies.get(COOKIE)
        if header is not None:
            token = tokens.find(header.encode("latin-1"))
        elif cookie is not None and (page or not write):
            token = tokens.find_token(cookie.encode("latin-1", "replace"))
        request.scope["calibeat.token"] = token
        if refused := self.service.check_token(token, write=write):
            status, _, body = refused
            return _json(body, status, {"www-authenticate": "Bearer"} if status == 401 else None)
        if token is not None:
            request.state.streams, request.state.may_write = token.streams, token.may("write")
        return None

    def reading(self, handler: Handler, *, tagged: bool = True, whole: bool = False) -> Handler:
        """Needs a token that may read, for what shows the `whole` store one without a limit of streams.

        Unchanged answers are not sent again.
        """

        async def read(request: Request) -> Response:
            if tagged:
                request.state.tag = await self.reads.tag()
                if request.headers.get("if-none-match") == request.state.tag:
                    return Response(status_code=304, headers={"etag": request.state.tag})
            return await handler(request)

        async def handle(request: Request) -> Response:
            if refused := self.admit(request):
                return refused
            if whole and request.state.streams:
                raise _not_yours("the whole store", request.state.streams)
            return await _while_wanted(request, read(request))

        return handle

    def writing(self, handler: Handler, *, page: bool = False) -> Handler:
        """Needs a token that may write; for what the `page` does its cookie is enough."""

        async def handle(request: Request) -> Response:
            return self.admit(request, write=True, page=page) or await handler(request)

        return handle

    def asking(
        self, handler: Callable[[dict[str, Any]], Awaitable[Any]], parameters: Parameters, *, whole: bool = True
    ) -> Handler:
        """A handler that returns a value, with checked parameters.

        One that does not show the `whole` store gets the patterns of the token's streams as `among`.
        """

        async def handle(request: Request) -> Response:
            asked = parameters.read(_query(request))
            if not whole:
                asked["among"] = request.state.streams
            if parameters in (OVERVIEW, VIEW):
                asked["may_write"] = request.state.may_write
            return _json(await handler(asked), headers={"etag": request.state.tag})

        return self.reading(handle, whole=whole)

    def checked(self, handler: Handler) -> Handler:
        """Refusals, and whatever goes wrong, in the one shape of errors."""

        async def handle(request: Request) -> Response:
            if refused := self.service.check_host(dict(request.scope["headers"])):
                return _json(refused[2], refused[0])
            if self.service.is_starting and handler not in self.always:
                return _json(STARTING, 503, {"retry-after": "1"})
            try:
                return await handler(request)
            except Refusal as refusal:
                headers = {"retry-after": "1"} if refusal.status == HTTPStatus.SERVICE_UNAVAILABLE else {}
                return _json(refusal_body(refusal), refusal.status, headers)
            except HTTPException:
                raise
            except Exception:
                log.exception("%s %s failed", request.method, request.scope["path"])
                return _json(INTERNAL, 500)

        return handle


def _parts(request: Request) -> list[str]:
    """The name of the stream in a path, and what is below it. A slash in a name is written %2F: the raw path counts."""
    raw = request.scope.get("raw_path") or request.scope["path"].encode()
    name, *below = raw.decode("ascii").partition("?")[0].split("/")[3:]
    return [_unquoted(name), *below]


def _unquoted(written: str) -> str:
    """A name as it was before it was written into a path; empty if it was none."""
    try:
        return unquote(written, errors="strict")
    except UnicodeDecodeError:
        return ""


async def read_body(receive: Receive, most: int) -> bytes:
    """The body of a request, or `Refusal`. A part of a body is none, even where it can be read as JSON."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise Refusal("malformed", "body must be sent whole, got a client that left", None, 400)
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > most:
            raise Refusal("too_large", f"body must be {most} bytes at most", None, 413)
        if not message.get("more_body"):
            return b"".join(parts)


async def _while_wanted(request: Request, answer: Coroutine[Any, Any, Response]) -> Response:
    """An answer. The work for it is cancelled when the client leaves or its time is over."""
    work, left = asyncio.create_task(answer), asyncio.create_task(_has_left(request))
    try:
        await asyncio.wait({work, left}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return work.result()
        raise Refusal("timeout", "nobody waits for this answer any more", None, 504)
    finally:
        work.cancel()
        left.cancel()


async def _has_left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass  # the body of a request that needs none


def _query(request: Request) -> str:
    """What stands behind the question mark. `request.url` would parse the Host header, which can be anything."""
    return str(request.scope["query_string"].decode("latin-1"))


def other_routes(service: Service) -> Starlette:
    """All routes but forecasts and outcomes."""
    at = Routes(service)
    read, ask = at.reading, at.asking
    routes: list[tuple[str, Handler, list[str]]] = [
        ("/v1/streams", ask(at.streams, STREAMS, whole=False), ["GET"]),
        ("/v1/streams/{rest:path}", read(at.of_stream), ["GET"]),
        ("/v1/streams/{rest:path}", at.writing(at.define), ["PUT"]),
        ("/v1/streams/{rest:path}", at.writing(at.change), ["POST", "DELETE"]),
        ("/v1/alarms", ask(at.alarms, ALARMS, whole=False), ["GET"]),
        ("/v1/alarms/acknowledge", at.writing(at.acknowledge, page=True), ["POST"]),
        ("/v1/mutes", ask(at.mutes, NO_PARAMETERS, whole=False), ["GET"]),
        ("/v1/mutes", at.writing(at.mute, page=True), ["POST"]),
        ("/v1/mutes", at.writing(at.unmute, page=True), ["DELETE"]),
        ("/v1/overview", ask(at.overview, OVERVIEW), ["GET"]),
        ("/v1/view", ask(at.view, VIEW, whole=False), ["GET"]),
        ("/metrics", read(at.metrics, tagged=False, whole=True), ["GET"]),
        ("/healthz", at.alive, ["GET"]),
        ("/readyz", at.ready, ["GET"]),
        ("/openapi.json", at.schema, ["GET"]),
        ("/docs", at.docs, ["GET"]),
        ("/login", at.login, ["POST"]),
        ("/logout", at.logout, ["POST"]),
        ("/", at.page, ["GET"]),
        ("/static/{name}", at.static, ["GET"]),
    ]
    made = [Route(path, at.checked(handler), methods=methods) for path, handler, methods in routes]
    made += [Route(path, _unreachable, methods=list(methods)) for path, methods in service.event_methods.items()]
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
