"""`/openapi.json`: the table of routes and the types of its bodies and answers, so it cannot say anything else."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from calibeat._version import __version__

from .route_table import TABLE, TAGS, Route
from .wire import NAME_SCHEMA, ErrorAnswer, Limits

_ALWAYS = {421: "without tokens, another name than that of this machine"}
_READ_ERRORS = _ALWAYS | {
    400: "a parameter is not valid",
    401: "no valid token",
    403: "the token is for other streams",
    503: "the service starts or stops, or the store is away; Retry-After says when to try again",
    504: "no answer in time",
}
_WRITE_ERRORS = _READ_ERRORS | {
    400: "the request is malformed or an event is not valid; `at` is the number of the first bad event",
    403: "the token may only read, or is for other streams",
    408: "the request was not sent in time",
    413: "the body or the batch is too large",
    415: "the body is compressed, has an object a line, or is not application/json in a request from a web page",
    503: "the service starts or stops, the store is away or locked, or the queue is full; Retry-After says when to try "
    "again",
    504: "no answer in time; ask again with the same id",
}
_GOOD = {"read": "with an ETag", "write": "after the commit", "page": "done", "": "as it is now"}
_IN_PATH = {
    "stream": {"example": "paris", "description": "the name of a stream; a slash in it is written %2F"},
    "id": {"description": "the id of an event; a slash in it is written %2F"},
}


@lru_cache(maxsize=4)
def document(limits: Limits) -> dict[str, Any]:
    """The whole document.

    >>> document(Limits())["openapi"]
    '3.1.0'
    """
    types = [ErrorAnswer, *(kind for route in TABLE for part in (route.body, route.answer) for kind in _types(part))]
    _, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    for batch in ("ForecastBatch", "OutcomeBatch", "CorrectionBatch"):
        components[batch]["properties"]["events"]["maxItems"] = limits.events
    for event, fields in (
        ("ForecastEvent", (["score"], ["scores"])),
        ("OutcomeEvent", (["outcome"], ["label"], ["ones", "of"])),
    ):
        components[event]["oneOf"] = [{"required": required} for required in fields]
    for field in ("stream", "id"):  # the stream is in the path
        del components["StreamSettings"]["properties"][field]
    paths: dict[str, dict[str, Any]] = {}
    for route in TABLE:
        if route.tag:
            paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "calibeat",
            "version": __version__,
            "description": "Scores in, calibrated probabilities out, outcomes whenever they come.",
        },
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{}, {"token": []}],
        "tags": [{"name": name, "description": words} for name, words in TAGS.items()],
    }


def _types(part: tuple[Any, ...] | str) -> tuple[Any, ...]:
    return () if isinstance(part, str) else part


def _operation(route: Route) -> dict[str, Any]:
    """A route as the document has it."""
    made: dict[str, Any] = {"summary": route.summary, "operationId": route.id, "tags": [route.tag]}
    if parameters := [*_in_path(route), *_in_query(route)]:
        made["parameters"] = parameters
    if route.body:
        content = _json(_one_of(route.body), examples=_values(route.examples))
        made["requestBody"] = {"required": not route.may_be_empty, "content": content}
    good: dict[str, Any] = {"description": _GOOD[route.scope if route.tagged else ""]}
    if isinstance(route.answer, str):
        schema = {"type": "string"} if route.answer.startswith("text/") else {}
        good["content"] = {route.answer: {"schema": schema}}
    else:
        good["content"] = _json(
            _one_of(route.answer), **({"examples": _values(route.answers)} if route.answers else {})
        )
    unchanged = {"304": {"description": "nothing has changed since the ETag of If-None-Match"}}
    errors = (_WRITE_ERRORS if route.has_body else _READ_ERRORS if route.scope else _ALWAYS) | route.errors
    made["responses"] = {
        "200": good,
        **(unchanged if route.scope == "read" and route.tagged else {}),
        **{
            str(status): {"description": errors[status], "content": _json(_ref(ErrorAnswer))}
            for status in sorted(errors)
        },
    }
    return made


def _in_path(route: Route) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": NAME_SCHEMA, **more}
        for name, more in _IN_PATH.items()
        if f"{{{name}}}" in route.path
    ]


def _in_query(route: Route) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "query",
            "required": parameter.required,
            "schema": parameter.schema,
            "description": parameter.description,
        }
        for name, parameter in route.parameters.known.items()
    ]


def _ref(kind: Any) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


def _one_of(kinds: tuple[Any, ...]) -> dict[str, Any]:
    return _ref(kinds[0]) if len(kinds) == 1 else {"anyOf": [_ref(kind) for kind in kinds]}


def _json(schema: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema, **more}}


def _values(examples: dict[str, Any]) -> dict[str, Any]:
    return {name: {"value": value} for name, value in examples.items()}
