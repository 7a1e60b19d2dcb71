"""`/openapi.json`, made from the types of `calibeat.service.wire`, so that it cannot say anything else."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Any

import msgspec

from calibeat._version import __version__

from . import wire
from .alarms import Mute
from .events import CorrectionEvent, ForecastEvent, OutcomeEvent, StreamSettings
from .store.queries import EventInfo, Overview, Reliability, StreamInfo, View
from .wire import (
    ALARMS,
    EVENTS,
    HISTORY,
    MUTED,
    NAME_SCHEMA,
    NO_PARAMETERS,
    OVERVIEW,
    RELIABILITY,
    SEGMENTS,
    STREAMS,
    VERB_BODIES,
    VIEW,
    Limits,
    Parameters,
)

_COMPONENTS = (
    ForecastEvent,
    OutcomeEvent,
    wire.ForecastBatch,
    wire.OutcomeBatch,
    CorrectionEvent,
    wire.CorrectionBatch,
    wire.NoBody,
    wire.ResumeBody,
    wire.NameBody,
    wire.EventsAnswer,
    wire.ForgottenAnswer,
    wire.DeletedAnswer,
    EventInfo,
    wire.ForecastAnswer,
    wire.ForecastAnswers,
    wire.OutcomeAnswer,
    wire.OutcomeAnswers,
    StreamSettings,
    wire.StreamAnswer,
    wire.SegmentsAnswer,
    wire.StreamsAnswer,
    wire.HistoryAnswer,
    wire.AlarmsAnswer,
    wire.AcknowledgeBody,
    wire.AcknowledgeAnswer,
    wire.MuteBody,
    wire.MutesAnswer,
    Mute,
    wire.ErrorAnswer,
    wire.Health,
    StreamInfo,
    Reliability,
    Overview,
    View,
)
_EXAMPLES = {
    "one correction": {"stream": "paris", "id": "e1", "outcome": 0},
    "two corrections": {
        "events": [{"stream": "paris", "id": "e1", "outcome": 0}, {"stream": "paris", "id": "e2", "outcome": None}]
    },
    "one forecast": ({"stream": "paris", "id": "e1", "score": 0.83}),
    "two forecasts": {
        "events": [{"stream": "paris", "id": "e2", "score": 0.1}, {"stream": "rome", "id": "e3", "score": 0.4}]
    },
    "one forecast of three classes": {"stream": "pets", "id": "e1", "scores": {"cat": 0.2, "dog": 0.5, "bird": 0.3}},
    "one forecast with groups": {
        "stream": "world",
        "id": "e1",
        "score": 0.83,
        "groups": {"country": "fr", "device": "ios"},
    },
    "one outcome of a class": {"stream": "pets", "id": "e1", "label": "dog"},
    "one outcome": {"stream": "paris", "id": "e1", "outcome": 1},
    "two outcomes": {
        "events": [
            {"stream": "paris", "id": "e2", "outcome": 0, "time": 1_790_000_000.0},
            {"stream": "rome", "id": "e3", "outcome": 1},
        ]
    },
}
_STREAM_VERBS = (
    ("freeze", "Freeze a stream: it forecasts with the state of this moment, and outcomes wait"),
    ("resume", "End freeze and passthrough; what has waited is learnt or dropped"),
    ("passthrough", "Answer the score itself; outcomes are learnt on"),
    ("reset", "Begin anew: forget what was learnt, and give up forecasts that wait for an outcome"),
    ("copy", "Make another stream with the same state; events stay where they are"),
    ("rename", "Give a stream another name"),
)
_VERB_EXAMPLES: dict[str, dict[str, Any]] = {
    "freeze": {"freeze": {}},
    "resume": {"learn what has waited": {"outcomes": "learn"}, "drop what has waited": {"outcomes": "drop"}},
    "passthrough": {"passthrough": {}},
    "reset": {"reset": {}},
    "copy": {"copy": {"to": "paris-2"}},
    "rename": {"rename": {"to": "lutetia"}},
}
_ANSWERS = {
    "one forecast": {"stream": "paris", "id": "e1", "probability": 0.79},
    "two forecasts": {
        "forecasts": [
            {"stream": "paris", "id": "e2", "probability": 0.14},
            {"stream": "rome", "id": "e3", "probability": 0.4},
        ]
    },
    "one correction": {"status": "corrected"},
    "two corrections": {
        "outcomes": [
            {"stream": "paris", "id": "e1", "status": "corrected"},
            {"stream": "paris", "id": "e2", "status": "repeated"},
        ]
    },
    "one outcome": {"status": "learnt"},
    "two outcomes": {
        "outcomes": [
            {"stream": "paris", "id": "e2", "status": "learnt"},
            {"stream": "rome", "id": "e3", "status": "repeated"},
        ]
    },
}
_WRITE_ERRORS = {
    400: "the request is malformed or an event is not valid; `at` is the number of the first bad event",
    401: "no valid token",
    403: "the token may only read, or is for other streams",
    408: "the request was not sent in time",
    413: "the body or the batch is too large",
    415: "the body is compressed, has an object a line, or is not application/json in a request from a web page",
    421: "without tokens, another name than that of this machine",
    503: "the service starts or stops, the store is away or locked, or the queue is full; Retry-After says when to try "
    "again",
    504: "no answer in time; ask again with the same id",
}
_METRICS_ERRORS = {401: "no valid token", 403: "the token is for some streams only", 503: "the service starts or stops"}
_READ_ERRORS = {
    400: "a parameter is not valid",
    401: "no valid token",
    403: "the token is for other streams",
    421: _WRITE_ERRORS[421],
    503: "the service starts or stops, or the store is away; Retry-After says when to try again",
    504: "no answer in time",
}


@lru_cache(maxsize=4)
def document(limits: Limits) -> dict[str, Any]:
    """The whole document.

    >>> document(Limits())["openapi"]
    '3.1.0'
    """
    _, components = msgspec.json.schema_components(_COMPONENTS, ref_template="#/components/schemas/{name}")
    for batch in ("ForecastBatch", "OutcomeBatch", "CorrectionBatch"):
        components[batch]["properties"]["events"]["maxItems"] = limits.events
    for event, fields in (("ForecastEvent", ("score", "scores")), ("OutcomeEvent", ("outcome", "label"))):
        components[event]["oneOf"] = [{"required": [field]} for field in fields]
    for field in ("stream", "id"):  # the stream is in the path
        del components["StreamSettings"]["properties"][field]
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "calibeat",
            "version": __version__,
            "description": "Scores in, calibrated probabilities out, outcomes whenever they come.",
        },
        "paths": _described(_paths()),
        "components": {"schemas": components, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{}, {"token": []}],
        "tags": [{"name": name, "description": words} for name, words in _TAGS.items()],
    }


_TAGS = {
    "events": "Forecasts and their outcomes.",
    "streams": "What the service knows of each stream, and what can be done with it.",
    "alarms": "What the monitors have found, and who looks after it.",
    "service": "The service itself.",
}


_IDS = {
    ("post", "/v1/forecasts"): "makeForecasts",
    ("post", "/v1/outcomes"): "reportOutcomes",
    ("put", "/v1/outcomes"): "correctOutcomes",
    ("get", "/v1/streams"): "listStreams",
    ("get", "/v1/streams/{stream}"): "getStream",
    ("put", "/v1/streams/{stream}"): "defineStream",
    ("get", "/v1/streams/{stream}/events"): "listEvents",
    ("get", "/v1/streams/{stream}/events/{id}"): "getEvent",
    ("delete", "/v1/streams/{stream}/events/{id}"): "forgetEvent",
    ("get", "/v1/view"): "getView",
    ("get", "/v1/alarms"): "listAlarms",
    ("get", "/v1/mutes"): "listMutes",
    ("post", "/v1/mutes"): "muteStreams",
    ("delete", "/v1/mutes"): "unmuteStreams",
    ("get", "/healthz"): "getHealth",
    ("get", "/readyz"): "getReadiness",
    ("get", "/openapi.json"): "getSchema",
}
_VERBS = {"get": "get", "post": "", "put": "put", "delete": "delete"}


def _described(paths: dict[str, Any]) -> dict[str, Any]:
    """Each operation with a name and a tag, for the clients that programs make of the document."""
    for path, methods in paths.items():
        for method, operation in methods.items():
            operation["operationId"] = _IDS.get((method, path)) or _name_of(method, path)
            operation["tags"] = [_tag_of(path)]
    return paths


def _name_of(method: str, path: str) -> str:
    """The name of an operation that has no better one.

    >>> _name_of("get", "/v1/streams/{stream}/history"), _name_of("post", "/v1/streams/{stream}/freeze")
    ('getStreamHistory', 'freezeStream')
    """
    parts = [part for part in path.split("/") if part not in {"", "v1"}]
    kept = [p for i, p in enumerate(parts) if not (i + 1 < len(parts) and parts[i + 1].startswith("{"))]
    words = [re.sub(r"[{}.]", "", part).capitalize() for part in kept]
    if method == "post":
        words = [*words[-1:], *words[:-1]]
    text = _VERBS[method] + "".join(words)
    return text[0].lower() + text[1:]


def _tag_of(path: str) -> str:
    second = path.split("/")[2] if path.startswith("/v1/") else ""
    if path.startswith("/v1/streams/{stream}/events"):
        return "events"
    return {"forecasts": "events", "outcomes": "events", "streams": "streams", "view": "streams"}.get(
        second, "alarms" if second in {"alarms", "mutes"} else "service"
    )


@cache
def _templates() -> list[tuple[re.Pattern[str], str]]:
    return [
        (re.compile("[^/]+".join(map(re.escape, re.split(r"\{\w+\}", path)))), path)
        for path in [*_paths(), "/", "/login", "/logout", "/static/{name}"]
    ]


@lru_cache(maxsize=4096)
def route_of(path: bytes) -> str:
    """The path of the document that a request has asked for, for `/metrics`.

    >>> route_of(b"/v1/streams/paris%2Forly/history?limit=2"), route_of(b"/wp-admin")
    ('/v1/streams/{stream}/history', 'other')
    """
    asked = path.decode("latin-1").partition("?")[0]
    return next((found for pattern, found in _templates() if pattern.fullmatch(asked)), "other")


def _paths() -> dict[str, Any]:
    outcomes = {
        404: "no forecast has this id",
        409: "another outcome is known already",
        410: "the forecast has expired",
    }
    put = _write("Correct outcomes, or retract them with null; their streams are replayed", "Correction", outcomes)
    of_stream, of_event = [_name_in_path()], [_name_in_path(), _id_in_path()]
    return {
        "/v1/forecasts": {
            "post": _write("Calibrate scores", "Forecast", {409: "the id is taken by another score or stream"})
        },
        "/v1/outcomes": {"post": _write("Report outcomes", "Outcome", outcomes), "put": put},
        "/v1/streams": {"get": _read("Streams, page by page", "StreamsAnswer", STREAMS)},
        "/v1/streams/{stream}": {
            "get": _read("One stream", "StreamInfo", NO_PARAMETERS, of_stream),
            "put": _define(of_stream),
            "delete": _verb("Delete a stream with its events", of_stream, "DeletedAnswer"),
        },
        "/v1/streams/{stream}/events": {"get": _read("Its events, page by page", "EventsAnswer", EVENTS, of_stream)},
        "/v1/streams/{stream}/events/{id}": {
            "get": _read("One event: what was told, and what is known since", "EventInfo", NO_PARAMETERS, of_event),
            "delete": _verb("Forget an event; what was learnt from it stays", of_event, "ForgottenAnswer"),
        },
        **{
            f"/v1/streams/{{stream}}/{verb}": {"post": _verb(said, of_stream, "StreamInfo", verb)}
            for verb, said in _STREAM_VERBS
        },
        "/v1/streams/{stream}/segments": {
            "get": _read("Segments of a stream with groups", "SegmentsAnswer", SEGMENTS, of_stream)
        },
        "/v1/streams/{stream}/reliability": {
            "get": _read("Outcomes by tenth of the forecast", "Reliability", RELIABILITY, of_stream)
        },
        "/v1/streams/{stream}/history": {"get": _read("Hour by hour", "HistoryAnswer", HISTORY, of_stream)},
        "/v1/view": {"get": _named(_read("What the dashboard shows of a stream", "View", VIEW))},
        "/v1/overview": {"get": _read("What the dashboard shows first", "Overview", OVERVIEW)},
        "/v1/alarms": {"get": _read("The latest alarms", "AlarmsAnswer", ALARMS)},
        "/v1/alarms/acknowledge": {
            "post": _change("Look after the open alarms of some streams", "AcknowledgeBody", "AcknowledgeAnswer")
        },
        "/v1/mutes": {
            "get": _read("Streams whose alarms are not sent", "MutesAnswer", NO_PARAMETERS),
            "post": _change("Do not send alarms of some streams", "MuteBody", "Mute"),
            "delete": _unmute(),
        },
        "/metrics": {"get": _other("Prometheus metrics", "text/plain", _METRICS_ERRORS)},
        "/healthz": {"get": _other("Whether the process answers", "Health", {})},
        "/readyz": {"get": _other("Whether the store answers", "Health", {503: "it does not"})},
        "/openapi.json": {"get": _other("This document", "application/json", {})},
        "/docs": {"get": _other("This document as a page", "text/html", {})},
    }


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _json(schema: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema, **more}}


def _errors(wanted: dict[int, str]) -> dict[str, Any]:
    return {
        str(status): {"description": wanted[status], "content": _json(_ref("ErrorAnswer"))} for status in sorted(wanted)
    }


def _write(summary: str, kind: str, errors: dict[int, str]) -> dict[str, Any]:
    one, many, answer = f"{kind}Event", f"{kind}Batch", "Outcome" if kind == "Correction" else kind
    examples = {name: {"value": value} for name, value in _EXAMPLES.items() if kind.lower() in name}
    answers = {name: {"value": value} for name, value in _ANSWERS.items() if kind.lower() in name}
    return {
        "summary": summary,
        "requestBody": {"required": True, "content": _json({"anyOf": [_ref(one), _ref(many)]}, examples=examples)},
        "responses": {
            "200": {
                "description": "after the commit",
                "content": _json({"anyOf": [_ref(f"{answer}Answer"), _ref(f"{answer}Answers")]}, examples=answers),
            },
            **_errors(_WRITE_ERRORS | errors),
        },
    }


def _verb(summary: str, parameters: list[dict[str, Any]], answer: str, verb: str = "") -> dict[str, Any]:
    """Something that is done to a stream."""
    errors = _WRITE_ERRORS | {404: "no stream has this name, or no event of it this id"}
    made: dict[str, Any] = {"summary": summary, "parameters": parameters}
    if verb:
        body = VERB_BODIES[verb].__name__
        if body == "NameBody":
            errors |= {409: "a stream has the new name"}
        examples = {name: {"value": value} for name, value in _VERB_EXAMPLES[verb].items()}
        made["requestBody"] = {"required": body == "NameBody", "content": _json(_ref(body), examples=examples)}
    return made | {
        "responses": {"200": {"description": "after the commit", "content": _json(_ref(answer))}, **_errors(errors)}
    }


def _define(parameters: list[dict[str, Any]]) -> dict[str, Any]:
    errors = _WRITE_ERRORS | {409: "the stream has events, and they have made it another"}
    return {
        "summary": "Say what a stream is, before its first event: classes, or groups",
        "parameters": parameters,
        "requestBody": {
            "required": True,
            "content": _json(
                _ref("StreamSettings"),
                examples={
                    "classes": {"value": {"classes": ["cat", "dog", "bird"]}},
                    "groups": {"value": {"groups": ["country", "device"], "crossings": [], "names": True}},
                },
            ),
        },
        "responses": {
            "200": {"description": "after the commit", "content": _json(_ref("StreamAnswer"))},
            **_errors(errors),
        },
    }


def _change(summary: str, body: str, answer: str) -> dict[str, Any]:
    """A request with a small body, which changes something besides events."""
    examples = {"some streams": {"value": {"streams": "paris/*"}}}
    statuses = (400, 401, 403, 408, 413, 415, 421, 503, 504)
    return {
        "summary": summary,
        "requestBody": {"required": True, "content": _json(_ref(body), examples=examples)},
        "responses": {
            "200": {"description": "done", "content": _json(_ref(answer))},
            **_errors({status: _WRITE_ERRORS[status] for status in statuses}),
        },
    }


def _unmute() -> dict[str, Any]:
    found = _read("Send alarms of these streams again", "MutesAnswer", MUTED)
    found["parameters"][0]["required"] = True
    found["responses"] |= _errors({404: "these streams are not muted"})
    del found["responses"]["304"]
    found["responses"]["200"]["description"] = "what is still muted"
    return found


def _read(
    summary: str, answer: str, parameters: Parameters, more: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    described = [
        {"name": name, "in": "query", "required": False, "schema": p.schema, "description": p.description}
        for name, p in parameters.known.items()
    ]
    errors = _READ_ERRORS | ({404: "no stream has this name"} if more else {})
    return {
        "summary": summary,
        "parameters": [*(more or []), *described],
        "responses": {
            "200": {"description": "with an ETag", "content": _json(_ref(answer))},
            "304": {"description": "nothing has changed since the ETag of If-None-Match"},
            **_errors(errors),
        },
    }


def _other(summary: str, answer: str, errors: dict[int, str]) -> dict[str, Any]:
    content = {answer: {"schema": {}}} if "/" in answer else _json(_ref(answer))
    if answer.startswith("text/"):
        content = {answer: {"schema": {"type": "string"}}}
    return {
        "summary": summary,
        "responses": {
            "200": {"description": "as it is now", "content": content},
            **_errors(errors | {421: _WRITE_ERRORS[421]}),
        },
    }


def _named(operation: dict[str, Any]) -> dict[str, Any]:
    """The stream is a parameter of the query, and must be there."""
    operation["parameters"][0]["required"] = True
    operation["responses"] |= _errors({404: "no stream has this name"})
    return operation


def _id_in_path() -> dict[str, Any]:
    return _name_in_path() | {"name": "id", "description": "the id of an event; a slash in it is written %2F"}


def _name_in_path() -> dict[str, Any]:
    return {
        "name": "stream",
        "in": "path",
        "required": True,
        "schema": NAME_SCHEMA,
        "example": "paris",
        "description": "the name of a stream; a slash in it is written %2F",
    }
