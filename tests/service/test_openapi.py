"""`/openapi.json` is true: every route is in it, every example works, and a fuzzer finds no answer outside it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema_rs
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    positive_data_acceptance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from served import service_here

from calibeat.service.openapi import document
from calibeat.service.routes import Routes, other_routes
from calibeat.service.wire import Limits

NOT_DESCRIBED = {"/", "/login", "/logout", "/static/{name}", "/v1/streams/{rest:path}"}  # the page, and one for four


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with service_here(tmp_path_factory.mktemp("openapi") / "calibeat.db") as where:
        events = [{"stream": "paris", "id": f"first-{i}", "score": i / 100, "time": 1e9 + 600 * i} for i in range(100)]
        httpx.post(f"{where}/v1/forecasts", json={"events": events})
        told = [{"stream": "paris", "id": f"first-{i}", "outcome": i % 2} for i in range(80)]
        httpx.post(f"{where}/v1/outcomes", json={"events": told})
        yield where


@pytest.fixture(scope="module")
def schema(url: str) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"{url}/openapi.json").json()
    assert found == json.loads(json.dumps(document(Limits())))
    return found


def check(schema: dict[str, Any], operation: dict[str, Any], answer: httpx.Response) -> None:
    """The answer is one of those that the document describes."""
    described = operation["responses"][str(answer.status_code)]
    if "content" not in described:
        assert answer.content == b""
        return
    kind = answer.headers["content-type"].partition(";")[0]
    inner = described["content"][kind]["schema"]
    if kind == "application/json":
        jsonschema_rs.validate({**inner, "components": schema["components"]}, answer.json())


def test_every_route_is_described(schema: dict[str, Any]) -> None:
    from calibeat.service.http import Service

    class Part:
        event_methods = Service.event_methods
        reads = None

    served = {
        (route.path, method.lower())  # type: ignore[attr-defined]
        for route in other_routes(Part()).routes  # type: ignore[arg-type]
        for method in route.methods - {"HEAD"}  # type: ignore[attr-defined]
        if route.path not in NOT_DESCRIBED  # type: ignore[attr-defined]
    }
    served |= {(f"/v1/streams/{{stream}}{part}", "get") for part in ("", "/reliability", "/history", "/delays")}
    assert {(path, method) for path, methods in schema["paths"].items() for method in methods} == served
    assert Routes


def test_every_example_is_valid_and_works(url: str, schema: dict[str, Any]) -> None:
    tried = 0
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            for example in content.get("examples", {}).values():
                jsonschema_rs.validate({**content["schema"], "components": schema["components"]}, example["value"])
                answer = httpx.request(method, url + path, json=example["value"])
                assert answer.status_code == 200
                check(schema, operation, answer)
                tried += 1
    assert tried == 6


def test_every_path_answers_as_described(url: str, schema: dict[str, Any]) -> None:
    for path, methods in schema["paths"].items():
        if "get" not in methods:
            continue
        wanted = [each for each in methods["get"].get("parameters", []) if each["required"]]
        for stream in ("paris", "nobody") if wanted else ("",):
            asked = {each["name"]: stream for each in wanted if each["in"] == "query"}
            answer = httpx.get(url + path.replace("{stream}", stream), params=asked)
            assert answer.status_code == (404 if stream == "nobody" else 200), path
            check(schema, methods["get"], answer)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/forecasts", {"stream": "s"}),
        ("POST", "/v1/forecasts", {"stream": "other", "id": "first-1", "score": 0.5}),
        ("POST", "/v1/outcomes", {"stream": "paris", "id": "nobody", "outcome": 1}),
        ("POST", "/v1/outcomes", {"stream": "paris", "id": "first-1", "outcome": 0}),
        ("PUT", "/v1/outcomes", {"stream": "paris", "id": "first-1", "outcome": 0}),
        ("GET", "/v1/streams?limit=x", None),
    ],
)
def test_every_refusal_is_described(url: str, schema: dict[str, Any], method: str, path: str, body: Any) -> None:
    answer = httpx.request(method, url + path, json=body)
    assert 400 <= answer.status_code < 500
    check(schema, schema["paths"][path.partition("?")[0]][method.lower()], answer)


def test_objects_of_the_document_lead_somewhere(schema: dict[str, Any]) -> None:
    names = set(re.findall(r"#/components/schemas/(\w+)", json.dumps(schema)))
    assert names <= set(schema["components"]["schemas"])


CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
]


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["as described", "otherwise"])
def test_a_fuzzer_finds_nothing(url: str, mode: GenerationMode) -> None:
    """Requests that fit the document and requests that do not: no 500, and no answer that is not described."""
    loaded = schemathesis.openapi.from_url(f"{url}/openapi.json")
    tried: set[str] = set()
    more = [positive_data_acceptance] if mode == GenerationMode.POSITIVE else [negative_data_rejection]
    for found in loaded.get_all_operations():
        operation = found.ok()
        if mode == GenerationMode.NEGATIVE and not (operation.body or operation.query):
            continue  # nothing that could be wrong
        count = 30 if operation.body else 6

        @settings(
            max_examples=count,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
            database=None,
            derandomize=True,
        )
        @given(operation.as_strategy(generation_mode=mode))
        def each(case: Any) -> None:
            tried.add(operation.label)  # noqa: B023 - it is called in this turn of the loop
            case.call_and_validate(checks=[*CHECKS, *more])

        each()
    described = sum(len(methods) for methods in document(Limits())["paths"].values())
    assert len(tried) >= (described - 1 if mode == GenerationMode.POSITIVE else 7)  # the document itself is left out
