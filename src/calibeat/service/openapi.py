"""`/openapi.json`, made from the types of `calibeat.service.wire`, so that it cannot say anything else."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from calibeat._version import __version__

from . import wire
from .events import ForecastEvent, OutcomeEvent
from .store.queries import Overview, Reliability, StreamInfo, Totals, View
from .wire import (
    HISTORY,
    LIMIT_ONLY,
    NAME_SCHEMA,
    NO_PARAMETERS,
    OVERVIEW,
    RELIABILITY,
    STREAMS,
    VIEW,
    Limits,
    Parameters,
)

_COMPONENTS = (
    ForecastEvent,
    OutcomeEvent,
    wire.ForecastBatch,
    wire.OutcomeBatch,
    wire.ForecastAnswer,
    wire.ForecastAnswers,
    wire.OutcomeAnswer,
    wire.OutcomeAnswers,
    wire.StreamsAnswer,
    wire.HistoryAnswer,
    wire.DelaysAnswer,
    wire.AlarmsAnswer,
    wire.ErrorAnswer,
    wire.Health,
    StreamInfo,
    Reliability,
    Totals,
    Overview,
    View,
)
_EXAMPLES = {
    "one forecast": ({"stream": "paris", "id": "e1", "score": 0.83}),
    "two forecasts": {
        "events": [{"stream": "paris", "id": "e2", "score": 0.1}, {"stream": "rome", "id": "e3", "score": 0.4}]
    },
    "one outcome": {"stream": "paris", "id": "e1", "outcome": 1},
    "two outcomes": {
        "events": [
            {"stream": "paris", "id": "e2", "outcome": 0, "time": 1_790_000_000.0},
            {"stream": "rome", "id": "e3", "outcome": 1},
        ]
    },
}
_WRITE_ERRORS = {
    400: "the request is malformed or an event is not valid; `at` is the number of the first bad event",
    401: "no valid token",
    403: "the token may only read",
    408: "the request was not sent in time",
    413: "the body or the batch is too large",
    415: "the body is compressed, or not application/json in a request from a web page",
    421: "without tokens, another name than that of this machine",
    503: "the queue is full, the store is locked, a stream changes hands or the service stops; Retry-After says when "
    "to try again",
    504: "no answer in time; ask again with the same id",
}
_READ_ERRORS = {
    400: "a parameter is not valid",
    401: "no valid token",
    421: _WRITE_ERRORS[421],
    503: "the service stops; Retry-After says when to try again",
    504: "no answer in time",
}


@lru_cache(maxsize=4)
def document(limits: Limits) -> dict[str, Any]:
    """The whole document.

    >>> document(Limits())["openapi"]
    '3.1.0'
    """
    _, components = msgspec.json.schema_components(_COMPONENTS, ref_template="#/components/schemas/{name}")
    for batch in ("ForecastBatch", "OutcomeBatch"):
        components[batch]["properties"]["events"]["maxItems"] = limits.events
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "calibeat",
            "version": __version__,
            "description": "Scores in, calibrated probabilities out, outcomes whenever they come.",
        },
        "paths": _paths(),
        "components": {"schemas": components, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{}, {"token": []}],
    }


def _paths() -> dict[str, Any]:
    outcomes = {
        404: "no forecast has this id",
        409: "another outcome is known already",
        410: "the forecast has expired",
    }
    put = _write("Replace an outcome: as POST; 409 unless the service runs with --corrections", "Outcome", outcomes)
    of_stream = [_name_in_path()]
    return {
        "/v1/forecasts": {
            "post": _write("Calibrate scores", "Forecast", {409: "the id is taken by another score or stream"})
        },
        "/v1/outcomes": {"post": _write("Report outcomes", "Outcome", outcomes), "put": put},
        "/v1/streams": {"get": _read("Streams, page by page", "StreamsAnswer", STREAMS)},
        "/v1/streams/{stream}": {"get": _read("One stream", "StreamInfo", NO_PARAMETERS, of_stream)},
        "/v1/streams/{stream}/reliability": {
            "get": _read("Outcomes by tenth of the forecast", "Reliability", RELIABILITY, of_stream)
        },
        "/v1/streams/{stream}/history": {"get": _read("Hour by hour", "HistoryAnswer", HISTORY, of_stream)},
        "/v1/streams/{stream}/delays": {
            "get": _read("How late outcomes came", "DelaysAnswer", NO_PARAMETERS, of_stream)
        },
        "/v1/view": {"get": _named(_read("What the dashboard shows of a stream", "View", VIEW))},
        "/v1/overview": {"get": _read("What the dashboard shows first", "Overview", OVERVIEW)},
        "/v1/alarms": {"get": _read("The latest alarms", "AlarmsAnswer", LIMIT_ONLY)},
        "/v1/totals": {"get": _read("The whole store in numbers", "Totals", NO_PARAMETERS)},
        "/metrics": {"get": _other("Prometheus metrics", "text/plain", {401: "no valid token"})},
        "/healthz": {"get": _other("Whether the process answers", "Health", {})},
        "/readyz": {"get": _other("Whether the store answers", "Health", {503: "it does not"})},
        "/openapi.json": {"get": _other("This document", "application/json", {})},
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
    one, many = f"{kind}Event", f"{kind}Batch"
    examples = {name: {"value": value} for name, value in _EXAMPLES.items() if kind.lower() in name}
    return {
        "summary": summary,
        "requestBody": {"required": True, "content": _json({"anyOf": [_ref(one), _ref(many)]}, examples=examples)},
        "responses": {
            "200": {
                "description": "after the commit",
                "content": _json({"anyOf": [_ref(f"{kind}Answer"), _ref(f"{kind}Answers")]}),
            },
            **_errors(_WRITE_ERRORS | errors),
        },
    }


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
    if answer == "text/plain":
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


def _name_in_path() -> dict[str, Any]:
    return {
        "name": "stream",
        "in": "path",
        "required": True,
        "schema": NAME_SCHEMA,
        "description": "the name of a stream; a slash in it is written %2F",
    }
