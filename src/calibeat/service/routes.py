"""What answers all routes but forecasts and outcomes: streams, alarms, metrics, health, the schema, its page, the
dashboard and its log-in. `route_table` says which answers what.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from calibeat.errors import InvalidInput

from .alarms import LOOK_FIRST, acknowledge, grouped, mute, mutes, unmute
from .controls import unknown_event, unknown_stream
from .counters import METRICS_TYPE, EngineCounters, metrics_text
from .dashboard import Asset, asset
from .events import Control, Refusal
from .patterns import check_pattern, matches
from .states import NEVER, WORDS
from .store import Reader, StoreAway, open_reader
from .store.queries import MAX_HOURS, MAX_LIMIT, Look, overview, view
from .wire import (
    INTERNAL,
    STARTING,
    UNREADABLE,
    AcknowledgeAnswer,
    AcknowledgeBody,
    AlarmsAnswer,
    DeletedAnswer,
    EventsAnswer,
    ForgetAnswer,
    ForgottenAnswer,
    ForgottenOfMany,
    Health,
    HistoryAnswer,
    MuteBody,
    MutesAnswer,
    SegmentsAnswer,
    StreamsAnswer,
    error_body,
    is_readable,
    read_control,
    read_forget,
    read_settings,
    refusal_body,
)

if TYPE_CHECKING:
    from .engine import Engine
    from .http import Service
    from .route_table import Route

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


def _json(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    body = content if isinstance(content, bytes) else _encode(content)
    return Response(body, status, {**SAFE, "cache-control": "no-store", **(headers or {})}, "application/json")


@dataclass
class Call:
    """A request as a handler receives it: its route, the token behind it, and the values in its path."""

    request: Request
    route: Route
    among: Sequence[str] = ()  # the streams of the token; all, if there are none
    may_write: bool = True
    tag: str | None = None  # what the answer is labelled with
    stream: str = ""
    id: str = ""
    asked: dict[str, Any] = field(default_factory=dict)  # its parameters


class Routes:
    """The handlers of `route_table.TABLE`. Each returns a `Response`, or what becomes JSON; or raises `Refusal`.

    None says that there is no such stream.
    """

    def __init__(self, service: Service) -> None:
        self.service, self.reads = service, service.reads

    # `http.Service` answers these three, without a detour.

    async def make_forecasts(self, _: Call) -> Any:
        """Calibrate scores."""

    async def report_outcomes(self, _: Call) -> Any:
        """Report outcomes."""

    async def correct_outcomes(self, _: Call) -> Any:
        """Correct outcomes, or retract them with null; their streams are replayed."""

    # ---- what is known of streams -----------------------------------------------------------------------------------

    async def list_streams(self, call: Call) -> Any:
        """Streams, page by page."""
        limit = call.asked.pop("limit", 100)
        found = await self.reads.ask(lambda reader: reader.streams(limit=limit, among=call.among, **call.asked))
        return StreamsAnswer(found, found[-1].name if len(found) == limit else None)

    async def get_stream(self, call: Call) -> Any:
        """One stream."""
        return await self._stream(call.stream)

    async def _stream(self, name: str) -> Any:
        found = await self.reads.ask(lambda reader: reader.stream(name))
        if found is None or not found.corrections:
            return found
        return replace(found, progress=self.service.engine.corrections.progress(name))

    async def list_events(self, call: Call) -> Any:
        """Its events, page by page."""
        limit = call.asked.pop("limit", 100)
        found = await self.reads.ask(lambda reader: reader.events(call.stream, limit=limit, **call.asked))
        return None if found is None else EventsAnswer(found, found[-1].id if len(found) == limit else None)

    async def get_event(self, call: Call) -> Any:
        """One event: what was told, and what is known since."""
        found = None
        if is_readable(call.id):
            found = await self.reads.ask(lambda reader: reader.event(call.stream, call.id))
        if found is None:
            raise unknown_event(Control("forget", call.stream, ids=(call.id,)))
        return found

    # ---- what is done to streams ------------------------------------------------------------------------------------

    async def define_stream(self, call: Call) -> Any:
        """Say what a stream is, before its first event: classes, groups, models; later a model may join."""
        return await self.service.ask([read_settings(await self._content(call), call.stream)])

    async def freeze_stream(self, call: Call) -> Any:
        """Freeze a stream: it forecasts with the state of this moment, and outcomes wait."""
        return await self._do("freeze", call)

    async def resume_stream(self, call: Call) -> Any:
        """End freeze and passthrough; what has waited is learnt or dropped."""
        return await self._do("resume", call)

    async def passthrough_stream(self, call: Call) -> Any:
        """Answer the score itself; outcomes are learnt on."""
        return await self._do("passthrough", call)

    async def reset_stream(self, call: Call) -> Any:
        """Begin anew: forget what was learnt, and give up forecasts that wait for an outcome."""
        return await self._do("reset", call)

    async def copy_stream(self, call: Call) -> Any:
        """Make another stream with the same state; events stay where they are."""
        return await self._do("copy", call)

    async def rename_stream(self, call: Call) -> Any:
        """Give a stream another name."""
        return await self._do("rename", call)

    async def _do(self, verb: str, call: Call) -> Any:
        control = read_control(verb, call.stream, await self._content(call))
        if control.to:
            check_yours(control.to, call.among)
        await self.service.ask([control])
        return await self._stream(control.to or control.stream)  # it may be deleted by now

    async def delete_stream(self, call: Call) -> Any:
        """Delete a stream with its events."""
        await self._content(call)
        await self.service.ask([Control("delete", call.stream)])
        return DeletedAnswer(call.stream)

    async def forget_event(self, call: Call) -> Any:
        """Forget an event; what was learnt from it stays."""
        await self._content(call)
        control = Control("forget", call.stream, ids=(call.id,))
        if not is_readable(call.id):
            raise unknown_event(control)
        await self.service.ask([control])
        return ForgottenAnswer(call.stream, call.id)

    async def forget_events(self, call: Call) -> Any:
        """Forget events of any streams, as one call for each would; what was learnt from them stays."""
        events = read_forget(await self._content(call), self.service.limits.events)
        for at, event in enumerate(events):
            if call.among and not matches(call.among, event.stream):
                sentence = f"stream must be one of this token's, got {event.stream!r:.60} - at event {at}"
                raise Refusal("forbidden", sentence, at, 403)
        known = await self.reads.ask(lambda reader: reader.known([(event.stream, event.id) for event in events]))
        of_stream: dict[str, list[str]] = {}
        for stream, id_ in known:
            of_stream.setdefault(stream, []).append(id_)
        controls = [Control("forget", stream, ids=tuple(ids)) for stream, ids in of_stream.items()]
        done = await asyncio.gather(*(self.service.ask([control]) for control in controls), return_exceptions=True)
        for answer in done:
            is_gone = isinstance(answer, Refusal) and answer.status == 404  # somebody else was first
            if isinstance(answer, BaseException) and not is_gone:
                raise answer
        return ForgetAnswer(
            [ForgottenOfMany(e.stream, e.id, "forgotten" if (e.stream, e.id) in known else "unknown") for e in events]
        )

    async def _content(self, call: Call) -> bytes:
        return await self._read_body(call, self.service.limits.body)

    async def _read_body(self, call: Call, most: int) -> bytes:
        return await self.service.read_body(call.request.scope, call.request.receive, most)

    # ---- more of streams --------------------------------------------------------------------------------------------

    async def get_stream_reliability(self, call: Call) -> Any:
        """Outcomes by tenth of the forecast."""
        return await self.reads.ask(
            lambda reader: reader.reliability(call.stream, call.asked.get("from"), call.asked.get("to"))
        )

    async def get_stream_history(self, call: Call) -> Any:
        """Hour by hour."""
        limit, begin, end = call.asked.get("limit", MAX_HOURS), call.asked.get("from"), call.asked.get("to")
        found = await self.reads.ask(lambda reader: reader.history(call.stream, begin, end, limit + 1))
        if found is None:
            return None
        return HistoryAnswer(found[:limit], found[limit].start if len(found) > limit else None)

    async def get_stream_segments(self, call: Call) -> Any:
        """Segments of a stream with groups."""
        found = await self.reads.ask(lambda reader: reader.segments(call.stream, call.asked.get("least", 100)))
        return None if found is None else SegmentsAnswer(found[: call.asked.get("limit", MAX_LIMIT)])

    async def get_overview(self, call: Call) -> Any:
        """What the dashboard shows first."""
        found = await self.reads.ask(lambda reader: overview(reader, time.time(), **call.asked))
        needs_token = not self.service.tokens.is_open
        return replace(found, first=look_in_words(found.first), needs_token=needs_token, may_write=call.may_write)

    async def get_view(self, call: Call) -> Any:
        """What the dashboard shows of a stream."""
        name, span = call.asked["stream"], call.asked.get("span", "month")
        check_yours(name, call.among)
        found = await self.reads.ask(lambda reader: view(reader, time.time(), name, span))
        if found is None:
            raise unknown_stream(name)
        return replace(found, first=look_in_words(found.first), may_write=call.may_write)

    # ---- alarms -----------------------------------------------------------------------------------------------------

    async def list_alarms(self, call: Call) -> Any:
        """The latest alarms."""
        found = await self.reads.ask(lambda reader: reader.alarms(among=call.among, **call.asked))
        return AlarmsAnswer(found, grouped(found))

    async def list_mutes(self, call: Call) -> Any:
        """Streams whose alarms are not sent."""
        found = await self.reads.ask(lambda reader: mutes(reader.select))
        return MutesAnswer([mute for mute in found if covers_all(mute.streams, call.among)])

    async def acknowledge_alarms(self, call: Call) -> Any:
        """Look after the open alarms of some streams."""
        asked, token = await self._pattern(call, AcknowledgeBody), call.request.scope["calibeat.token"]
        who = None if token is None else token.name
        done = await self.reads.ask(lambda reader: reader.change(lambda c: acknowledge(c, asked.streams, who)))
        return AcknowledgeAnswer(done)

    async def mute_streams(self, call: Call) -> Any:
        """Do not send alarms of some streams."""
        asked = await self._pattern(call, MuteBody)
        return await self.reads.ask(lambda reader: reader.change(lambda c: mute(c, asked.streams, asked.seconds)))

    async def unmute_streams(self, call: Call) -> Any:
        """Send alarms of these streams again."""
        streams = call.asked["streams"]
        check_yours_all(streams, call.among)
        if not await self.reads.ask(lambda reader: reader.change(lambda c: unmute(c, streams))):
            raise Refusal("unknown", f"streams must be muted, got {streams!r:.60}, which are not", "streams", 404)
        return await self.list_mutes(call)

    async def _pattern(self, call: Call, kind: type[Any]) -> Any:
        """A small body, with `streams` that the token may be used for."""
        try:
            found = msgspec.json.decode(await self._read_body(call, SMALL_BODY), type=kind)
            check_pattern(found.streams)
        except InvalidInput as error:
            raise Refusal("invalid", str(error), "streams", 400) from None
        except UNREADABLE as error:
            raise Refusal("invalid", f"body must be JSON as /docs says: {error}", None, 400) from None
        check_yours_all(found.streams, call.among)
        return found

    # ---- for machines -----------------------------------------------------------------------------------------------

    async def get_metrics(self, _: Call) -> Response:
        """Prometheus metrics."""
        service = self.service
        try:
            totals = await self.reads.ask(lambda reader: reader.totals())
        except Refusal as refusal:
            if refusal.code != "unavailable":
                raise
            totals = None
        text = metrics_text(self.reads.counters, totals, service.refused, service.traffic, service.build)
        return Response(text, headers=SAFE, media_type=METRICS_TYPE)

    async def get_health(self, _: Call) -> Any:
        """Whether the process answers."""
        return Health("alive")

    async def get_readiness(self, _: Call) -> Any:
        """Whether the store answers."""
        if not self.service.has_store:
            raise Refusal(
                "not_ready", "the service must lead its store, got one that waits for it or stands by", None, 503
            )
        try:
            await self.reads.ping()
        except Exception as error:  # noqa: BLE001 - whatever it is, the store cannot be read
            log.warning("the store cannot be read: %s", str(error) or f"no answer within {READY_SECONDS:g} seconds")
            raise Refusal("not_ready", "the store must be readable, got an error; the log has it", None, 503) from None
        return Health("ready")

    async def get_schema(self, _: Call) -> Response:
        """The document of all routes."""
        from .openapi import document  # which renders the table of these handlers

        return _json(document(self.service.limits), headers={"cache-control": "max-age=60"})

    async def get_docs(self, call: Call) -> Response:
        """The same as a page."""
        from .docs_page import docs_page  # as above

        return _page(call.request, docs_page(self.service.limits))

    # ---- the page ---------------------------------------------------------------------------------------------------

    async def get_page(self, call: Call) -> Response:
        """The dashboard: a page without data, so it needs no token; what it asks for does."""
        return self._static(call, "index.html")

    async def get_asset(self, call: Call) -> Response:
        """A file of the page; not again if the browser has it."""
        return self._static(call, call.request.path_params["name"])

    def _static(self, call: Call, name: str) -> Response:
        found = asset(name)
        if found is None:
            raise HTTPException(404)
        return _page(call.request, found)

    async def login(self, call: Call) -> Response:
        """Keep a token in a cookie that scripts cannot read."""
        request = call.request
        body = await self._read_body(call, SMALL_BODY)
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

    async def logout(self, _: Call) -> Response:
        """Forget the cookie."""
        response = Response(status_code=HTTPStatus.SEE_OTHER, headers={**SAFE, "location": "./"})
        response.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return response

    # ---- around them ------------------------------------------------------------------------------------------------

    async def serve(self, route: Route, request: Request) -> Response:
        """The answer to a request. Refusals, and whatever goes wrong, have the one shape of errors."""
        if refused := self.service.check_host(dict(request.scope["headers"])):
            return _json(refused[2], refused[0])
        if self.service.engine is None and route.needs_store:
            return _json(STARTING, 503, {"retry-after": "1"})
        call = Call(request, route)
        try:
            if route.scope and (answer := self._admit(call)):
                return answer
            return await (_while_wanted(request, self._read(call)) if route.scope == "read" else self._handle(call))
        except Refusal as refusal:
            self.service.refused[refusal.code] += 1
            headers = {"retry-after": "1"} if refusal.status == HTTPStatus.SERVICE_UNAVAILABLE else {}
            return _json(refusal_body(refusal), refusal.status, headers)
        except HTTPException:
            raise
        except Exception:
            log.exception("%s %s failed", request.method, request.scope["path"])
            return _json(INTERNAL, 500)

    def _admit(self, call: Call) -> Response | None:
        """Why somebody is refused, or None. What the token may see is in the call.

        A cookie is enough to read, and for what the page writes: it is SameSite=Strict, and a page elsewhere could
        send JSON only after it has asked, which nobody answers.
        """
        request, route, tokens, token = call.request, call.route, self.service.tokens, None
        if tokens.is_open:
            return None
        header, cookie = request.headers.get("authorization"), request.cookies.get(COOKIE)
        if header is not None:
            token = tokens.find(header.encode("latin-1"))
        elif cookie is not None and route.scope != "write":
            token = tokens.find_token(cookie.encode("latin-1", "replace"))
        request.scope["calibeat.token"] = token
        if refused := self.service.check_token(token, write=route.scope != "read"):
            status, _, body = refused
            return _json(body, status, {"www-authenticate": "Bearer"} if status == 401 else None)
        if token is not None:
            call.among, call.may_write = token.streams, token.may("write")
        if route.whole and call.among:
            raise _not_yours("the whole store", call.among)
        return None

    async def _read(self, call: Call) -> Response:
        """Unchanged answers are not sent again."""
        if call.route.tagged:
            call.tag = await self.reads.tag()
            if call.request.headers.get("if-none-match") == call.tag:
                return Response(status_code=304, headers={"etag": call.tag})
        return await self._handle(call)

    async def _handle(self, call: Call) -> Response:
        """Read the address, then call the handler."""
        route, request = call.route, call.request
        if route.has_body and (refused := self.service.check_content(dict(request.scope["headers"]))):
            return _json(refused[2], refused[0])
        names = {name: _unquoted(written) for name, written in request.path_params.items()}
        call.stream, call.id = names.get("stream", ""), names.get("id", "")
        if "stream" in names:
            check_yours(call.stream, call.among)
        if route.has_query:  # `request.url` would parse the Host header, which can be anything
            call.asked = route.parameters.read(str(request.scope["query_string"].decode("latin-1")))
        if "stream" in names and not is_readable(call.stream):
            if route.method == "PUT":
                what = f"stream must be text of 1 to 200 characters, got {call.stream!r:.60}"
                raise Refusal("invalid", what, "stream", 400)
            raise unknown_stream(call.stream)
        found = await route.handler(self, call)
        if found is None:
            raise unknown_stream(call.stream)
        return found if isinstance(found, Response) else _json(found, headers={"etag": call.tag} if call.tag else None)


def _unquoted(written: str) -> str:
    """A name as it was before it was written into a path; empty if it was none."""
    try:
        return unquote(written, errors="strict")
    except UnicodeDecodeError:
        return ""


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


_SENTENCES = {
    404: ("not_found", "path must be one of those in /openapi.json, got {path!r:.100}"),
    405: ("method_not_allowed", "method must be {allow}, got {method}"),
}


async def refused(request: Request, error: HTTPException) -> Response:
    """The answer where no route fits."""
    code, sentence = _SENTENCES[error.status_code]
    allow = (error.headers or {}).get("Allow", "")
    message = sentence.format(path=request.scope["path"], method=request.method, allow=allow)
    return _json(error_body(code, message), error.status_code, dict(error.headers or {}))
