"""The table of routes: each is declared here once.

Starlette's routing, `/openapi.json`, `/docs` and the names of paths in `/metrics` are made of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as Path
from starlette.routing import compile_path

from . import wire
from .alarms import Mute
from .events import CorrectionEvent, ForecastEvent, OutcomeEvent, StreamSettings
from .routes import Call, Routes, refused
from .store.queries import EventInfo, Overview, Reliability, StreamInfo, View

if TYPE_CHECKING:
    from .http import Service

TAGS = {
    "events": "Forecasts and their outcomes.",
    "streams": "What the service knows of each stream, and what can be done with it.",
    "alarms": "What the monitors have found, and who looks after it.",
    "service": "The service itself.",
}


@dataclass(frozen=True)
class Route:
    """One route.

    Parameters
    ----------
    method, path : what is asked; in braces what stands for a name. The path is also its name in `/metrics`.
    handler : what answers. Its name is that of the operation in the document, its docstring the sentence there.
    answer : the types of a good answer, one or the other; or a media type.
    scope : what a token must be for: "read", "write", "page" (to write, and the cookie of the page is enough), or "".
    tag : one of `TAGS`; "" if it is not in the document.
    parameters : in the query.
    body : the types of a body, one or the other.
    may_be_empty : whether a request without a body is as good.
    reads : forecasts and outcomes: what reads their bodies.
    examples, answers : of bodies and answers, by their names.
    errors : what a refusal of this route means, by its status, beside those of all routes.
    whole : whether it shows the whole store, which a token that is limited to some streams may not see.
    tagged : whether answers have an ETag.
    needs_store : False for what is answered while the service starts.
    """

    method: str
    path: str
    handler: Callable[[Routes, Call], Awaitable[Any]]
    answer: tuple[Any, ...] | str = ()
    scope: Literal["", "read", "write", "page"] = "read"
    tag: str = "streams"
    parameters: wire.Parameters = wire.NO_PARAMETERS
    body: tuple[Any, ...] = ()
    may_be_empty: bool = False
    reads: Callable[[bytes, int], wire.AskedEvents] | None = None
    examples: dict[str, Any] = field(default_factory=dict)
    answers: dict[str, Any] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)
    whole: bool = False
    tagged: bool = True
    needs_store: bool = True

    @property
    def has_body(self) -> bool:
        """Whether the kind of a body is checked."""
        return bool(self.body) or self.scope == "write"

    @property
    def has_query(self) -> bool:
        """Whether its parameters are checked; otherwise they are not looked at."""
        return bool(self.parameters.known) or (self.scope == "read" and self.tagged)

    @property
    def id(self) -> str:
        """The name of the operation, which clients are made of."""
        first, *more = self.handler.__name__.split("_")
        return first + "".join(map(str.capitalize, more))

    @property
    def summary(self) -> str:
        """What it does."""
        return (self.handler.__doc__ or "").partition("\n")[0].removesuffix(".")


# ---- what several have in common -------------------------------------------------------------------------------------

_STREAM, _EVENT = "/v1/streams/{stream}", "/v1/streams/{stream}/events/{id}"
_NO_STREAM = {404: "no stream has this name"}
_NO_EVENT = {404: "no stream has this name, or no event of it this id"}
_TAKEN = {409: "a stream has the new name"}
_OUTCOME_ERRORS = {
    404: "no forecast has this id",
    409: "another outcome is known already",
    410: "the forecast has expired",
}
_SOME_STREAMS = {"some streams": {"streams": "paris/*"}}


def _of_stream(below: str, handler: Any, answer: Any, **more: Any) -> Route:
    """A route that reads something of a stream."""
    return Route("GET", _STREAM + below, handler, (answer,), errors=_NO_STREAM, **more)


def _verb(handler: Any, body: Any, examples: dict[str, Any], errors: dict[int, str] | None = None) -> Route:
    """A route that does something to a stream."""
    verb, empty = handler.__name__.partition("_")[0], body is not wire.NameBody
    more: dict[str, Any] = {"examples": examples, "errors": _NO_EVENT | (errors or {}), "may_be_empty": empty}
    return Route("POST", f"{_STREAM}/{verb}", handler, (StreamInfo,), "write", body=(body,), **more)


def _for_machines(path: str, handler: Any, answer: Any, **more: Any) -> Route:
    """A route that needs no token and no store."""
    return Route("GET", path, handler, answer, "", "service", needs_store=False, **more)


# ---- the table -------------------------------------------------------------------------------------------------------

TABLE = (
    Route(
        "POST",
        "/v1/forecasts",
        Routes.make_forecasts,
        (wire.ForecastAnswer, wire.ForecastAnswers),
        "write",
        "events",
        body=(ForecastEvent, wire.ForecastBatch),
        reads=wire.read_forecasts,
        examples={
            "one forecast": {"stream": "paris", "id": "e1", "score": 0.83},
            "two forecasts": {
                "events": [{"stream": "paris", "id": "e2", "score": 0.1}, {"stream": "rome", "id": "e3", "score": 0.4}]
            },
            "one forecast of three classes": {
                "stream": "pets",
                "id": "e1",
                "scores": {"cat": 0.2, "dog": 0.5, "bird": 0.3},
            },
            "one forecast with groups": {
                "stream": "world",
                "id": "e1",
                "score": 0.83,
                "groups": {"country": "fr", "device": "ios"},
            },
            "one forecast of two models": {
                "stream": "duel",
                "id": "e1",
                "scores": {"champion": 0.83, "challenger": 0.71},
            },
        },
        answers={
            "one forecast": {"stream": "paris", "id": "e1", "probability": 0.79},
            "one forecast with a band": {
                "stream": "paris",
                "id": "e1",
                "probability": 0.79,
                "low": 0.71,
                "high": 0.85,
                "outcomes": 112.5,
                "reason": "",
            },
            "two forecasts": {
                "forecasts": [
                    {"stream": "paris", "id": "e2", "probability": 0.14},
                    {"stream": "rome", "id": "e3", "probability": 0.4},
                ]
            },
        },
        errors={409: "the id is taken by another score or stream"},
    ),
    Route(
        "POST",
        "/v1/outcomes",
        Routes.report_outcomes,
        (wire.OutcomeAnswer, wire.OutcomeAnswers),
        "write",
        "events",
        body=(OutcomeEvent, wire.OutcomeBatch),
        reads=wire.read_outcomes,
        examples={
            "one outcome of a class": {"stream": "pets", "id": "e1", "label": "dog"},
            "one outcome that stands for twenty": {"stream": "offers", "id": "e1", "outcome": 0, "weight": 20.0},
            "three ones in fifty trials": {"stream": "clicks", "id": "e1", "ones": 3, "of": 50},
            "one outcome": {"stream": "paris", "id": "e1", "outcome": 1},
            "two outcomes": {
                "events": [
                    {"stream": "paris", "id": "e2", "outcome": 0, "time": 1_790_000_000.0},
                    {"stream": "rome", "id": "e3", "outcome": 1},
                ]
            },
        },
        answers={
            "one outcome": {"status": "learnt"},
            "two outcomes": {
                "outcomes": [
                    {"stream": "paris", "id": "e2", "status": "learnt"},
                    {"stream": "rome", "id": "e3", "status": "repeated"},
                ]
            },
        },
        errors=_OUTCOME_ERRORS,
    ),
    Route(
        "PUT",
        "/v1/outcomes",
        Routes.correct_outcomes,
        (wire.OutcomeAnswer, wire.OutcomeAnswers),
        "write",
        "events",
        body=(CorrectionEvent, wire.CorrectionBatch),
        reads=wire.read_corrections,
        examples={
            "one correction": {"stream": "paris", "id": "e1", "outcome": 0},
            "two corrections": {
                "events": [
                    {"stream": "paris", "id": "e1", "outcome": 0},
                    {"stream": "paris", "id": "e2", "outcome": None},
                ]
            },
        },
        answers={
            "one correction": {"status": "corrected"},
            "two corrections": {
                "outcomes": [
                    {"stream": "paris", "id": "e1", "status": "corrected"},
                    {"stream": "paris", "id": "e2", "status": "repeated"},
                ]
            },
        },
        errors=_OUTCOME_ERRORS,
    ),
    Route("GET", "/v1/streams", Routes.list_streams, (wire.StreamsAnswer,), parameters=wire.STREAMS),
    _of_stream("", Routes.get_stream, StreamInfo),
    Route(
        "PUT",
        _STREAM,
        Routes.define_stream,
        (wire.StreamAnswer,),
        "write",
        body=(StreamSettings,),
        examples={
            "classes": {"classes": ["cat", "dog", "bird"]},
            "groups": {"groups": ["country", "device"], "crossings": [], "names": True},
            "groups with numbers": {"groups": ["country", {"name": "age"}]},
            "models": {"models": ["champion", "challenger"]},
            "a log that kept a twentieth of the zeros": {"kept": {"ones": 1.0, "zeros": 0.05}},
        },
        errors={409: "the stream has events, and they have made it another"},
    ),
    Route("DELETE", _STREAM, Routes.delete_stream, (wire.DeletedAnswer,), "write", errors=_NO_EVENT),
    _of_stream("/events", Routes.list_events, wire.EventsAnswer, parameters=wire.EVENTS, tag="events"),
    _of_stream("/events/{id}", Routes.get_event, EventInfo, tag="events"),
    Route("DELETE", _EVENT, Routes.forget_event, (wire.ForgottenAnswer,), "write", "events", errors=_NO_EVENT),
    Route(
        "POST",
        "/v1/forget",
        Routes.forget_events,
        (wire.ForgetAnswer,),
        "write",
        "events",
        body=(wire.ForgetBody,),
        examples={"two events": {"events": [{"stream": "paris", "id": "e1"}, {"stream": "rome", "id": "e3"}]}},
    ),
    _verb(Routes.freeze_stream, wire.NoBody, {"freeze": {}}),
    _verb(
        Routes.resume_stream,
        wire.ResumeBody,
        {"learn what has waited": {"outcomes": "learn"}, "drop what has waited": {"outcomes": "drop"}},
    ),
    _verb(Routes.passthrough_stream, wire.NoBody, {"passthrough": {}}),
    _verb(Routes.reset_stream, wire.NoBody, {"reset": {}}),
    _verb(Routes.copy_stream, wire.NameBody, {"copy": {"to": "paris-2"}}, _TAKEN),
    _verb(Routes.rename_stream, wire.NameBody, {"rename": {"to": "lutetia"}}, _TAKEN),
    _of_stream("/segments", Routes.get_stream_segments, wire.SegmentsAnswer, parameters=wire.SEGMENTS),
    _of_stream("/reliability", Routes.get_stream_reliability, Reliability, parameters=wire.RELIABILITY),
    _of_stream("/history", Routes.get_stream_history, wire.HistoryAnswer, parameters=wire.HISTORY),
    Route("GET", "/v1/view", Routes.get_view, (View,), parameters=wire.VIEW, errors=_NO_STREAM),
    Route("GET", "/v1/overview", Routes.get_overview, (Overview,), "read", "service", wire.OVERVIEW, whole=True),
    Route("GET", "/v1/alarms", Routes.list_alarms, (wire.AlarmsAnswer,), "read", "alarms", wire.ALARMS),
    Route(
        "POST",
        "/v1/alarms/acknowledge",
        Routes.acknowledge_alarms,
        (wire.AcknowledgeAnswer,),
        "page",
        "alarms",
        body=(wire.AcknowledgeBody,),
        examples=_SOME_STREAMS,
    ),
    Route("GET", "/v1/mutes", Routes.list_mutes, (wire.MutesAnswer,), "read", "alarms"),
    Route(
        "POST",
        "/v1/mutes",
        Routes.mute_streams,
        (Mute,),
        "page",
        "alarms",
        body=(wire.MuteBody,),
        examples=_SOME_STREAMS,
    ),
    Route(
        "DELETE",
        "/v1/mutes",
        Routes.unmute_streams,
        (wire.MutesAnswer,),
        "page",
        "alarms",
        wire.MUTED,
        errors={404: "these streams are not muted"},
    ),
    Route(
        "GET",
        "/metrics",
        Routes.get_metrics,
        "text/plain",
        "read",
        "service",
        errors={403: "the token is for some streams only", 503: "the service starts or stops"},
        whole=True,
        tagged=False,
    ),
    _for_machines("/healthz", Routes.get_health, (wire.Health,)),
    _for_machines("/readyz", Routes.get_readiness, (wire.Health,), errors={503: "it does not"}),
    _for_machines("/openapi.json", Routes.get_schema, "application/json"),
    _for_machines("/docs", Routes.get_docs, "text/html"),
    Route("GET", "/", Routes.get_page, "text/html", "", "", needs_store=False),
    Route("GET", "/static/{name}", Routes.get_asset, "", "", "", needs_store=False),
    Route("POST", "/login", Routes.login, "", "", ""),
    Route("POST", "/logout", Routes.logout, "", "", ""),
)

# What carries the traffic, by method and path: see `http.Service`.
READERS = {(route.method, route.path): route.reads for route in TABLE if route.reads is not None}


# ---- what is made of it ----------------------------------------------------------------------------------------------


def application(service: Service) -> Starlette:
    """All routes, for requests whose path is as it was written: a slash in a name is %2F."""
    handlers = Routes(service)
    by_path: dict[str, dict[str, Route]] = {}
    for route in TABLE:
        by_path.setdefault(route.path, {})[route.method] = route

    def endpoint(routes: dict[str, Route]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            return await handlers.serve(routes["GET" if request.method == "HEAD" else request.method], request)

        return answer

    made = [Path(path, endpoint(routes), methods=list(routes)) for path, routes in by_path.items()]
    app = Starlette(routes=made, exception_handlers={HTTPException: refused})  # type: ignore[dict-item]
    app.router.redirect_slashes = False
    return app


_PATTERNS = [(compile_path(path)[0], path) for path in dict.fromkeys(route.path for route in TABLE)]


@lru_cache(maxsize=4096)
def route_of(path: bytes) -> str:
    """The path of the table that a request has asked for, for `/metrics`.

    >>> route_of(b"/v1/streams/paris%2Forly/history?limit=2"), route_of(b"/wp-admin")
    ('/v1/streams/{stream}/history', 'other')
    """
    asked = path.decode("latin-1").partition("?")[0]
    return next((found for pattern, found in _PATTERNS if pattern.match(asked)), "other")
