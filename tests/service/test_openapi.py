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
from calibeat.service.route_table import TABLE, application, route_of
from calibeat.service.settings import EngineSettings
from calibeat.service.wire import VERB_BODIES, Limits

OF_THE_PAGE = {"/", "/login", "/logout", "/static/{name}"}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = EngineSettings(method="auto")  # whose streams may have groups
    with service_here(tmp_path_factory.mktemp("openapi") / "calibeat.db", settings=settings) as where:
        events = [{"stream": "paris", "id": f"first-{i}", "score": i / 100, "time": 1e9 + 600 * i} for i in range(100)]
        httpx.post(f"{where}/v1/forecasts", json={"events": events})
        told = [{"stream": "paris", "id": f"first-{i}", "outcome": i % 2} for i in range(80)]
        httpx.post(f"{where}/v1/outcomes", json={"events": told})
        httpx.put(f"{where}/v1/streams/duel", json={"models": ["champion", "challenger"]})  # as the examples have them
        events = [{"stream": stream, "id": "e1", "score": 0.1} for stream in ("offers", "clicks")]
        httpx.post(f"{where}/v1/forecasts", json={"events": events})
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
    class Part:
        reads = None

    served = {
        (route.path, method.lower())  # type: ignore[attr-defined]
        for route in application(Part()).routes  # type: ignore[arg-type]
        for method in route.methods - {"HEAD"}  # type: ignore[attr-defined]
        if route.path not in OF_THE_PAGE  # type: ignore[attr-defined]
    }
    assert {(path, method) for path, methods in schema["paths"].items() for method in methods} == served
    assert len(served) == sum(route.path not in OF_THE_PAGE for route in TABLE) > 30


def test_a_path_has_its_name_in_the_metrics() -> None:
    for route in TABLE:
        asked = route.path.replace("{stream}", "a%2Fb").replace("{id}", "c").replace("{name}", "page.js")
        assert route_of(asked.encode()) == route.path
    for other in ("/v1/streams/a/b/c", "/v1/streams/", "/v1/forecasts/", "/v1/%66orecasts", "/wp-admin"):
        assert route_of(other.encode()) == "other"


def test_every_example_is_valid_and_works(url: str, schema: dict[str, Any]) -> None:
    tried = 0
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            for example in content.get("examples", {}).values():
                jsonschema_rs.validate({**content["schema"], "components": schema["components"]}, example["value"])
                place = path.replace("{stream}", f"example-{tried}")
                if path.rpartition("/")[2] in VERB_BODIES:  # the stream must be there
                    httpx.post(f"{url}/v1/forecasts", json={"stream": f"example-{tried}", "id": "e1", "score": 0.5})
                answer = httpx.request(method, url + place, json=example["value"])
                assert answer.status_code == 200
                check(schema, operation, answer)
                tried += 1
    assert tried >= 19


def test_every_operation_has_a_name_of_its_own_and_a_tag(schema: dict[str, Any]) -> None:
    operations = [each for methods in schema["paths"].values() for each in methods.values()]
    names = [operation["operationId"] for operation in operations]
    assert len(set(names)) == len(names) and all(re.fullmatch(r"[a-z][A-Za-z]+", name) for name in names)
    assert {"makeForecasts", "reportOutcomes", "correctOutcomes", "getStream", "listAlarms", "getHealth"} <= set(names)
    tags = {tag["name"] for tag in schema["tags"]}
    assert all(len(operation["tags"]) == 1 and set(operation["tags"]) <= tags for operation in operations)
    assert tags == {operation["tags"][0] for operation in operations}


def test_every_example_of_an_answer_is_valid(schema: dict[str, Any]) -> None:
    tried = 0
    for methods in schema["paths"].values():
        for operation in methods.values():
            content = operation["responses"]["200"].get("content", {}).get("application/json", {})
            for example in content.get("examples", {}).values():
                jsonschema_rs.validate({**content["schema"], "components": schema["components"]}, example["value"])
                tried += 1
    assert tried >= 6


def test_the_page_says_all_of_it_and_asks_nobody_else(url: str, schema: dict[str, Any]) -> None:
    answer = httpx.get(f"{url}/docs")
    page = answer.text
    assert (
        answer.headers["content-type"].startswith("text/html")
        and "default-src 'none'" in (answer.headers["content-security-policy"])
    )
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            assert f'id="{operation["operationId"]}"' in page and f"{method.upper()} {path}" in page
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(set(ids)) == len(ids)
    assert set(re.findall(r'href="#([^"]+)"', page)) <= set(ids)  # every link leads somewhere
    outside = [link for link in re.findall(r'(?:href|src)="([^"#]+)"', page) if not link.startswith(("static/", "./"))]
    assert outside == ["openapi.json"] and "<script" not in page
    again = httpx.get(f"{url}/docs", headers={"if-none-match": answer.headers["etag"]})
    assert again.status_code == 304


def test_every_path_answers_as_described(url: str, schema: dict[str, Any]) -> None:
    for path, methods in schema["paths"].items():
        if "get" not in methods:
            continue
        wanted = [each for each in methods["get"].get("parameters", []) if each["required"]]
        for stream in ("paris", "nobody") if wanted else ("",):
            asked = {each["name"]: stream for each in wanted if each["in"] == "query"}
            answer = httpx.get(url + path.replace("{stream}", stream).replace("{id}", "first-1"), params=asked)
            is_there = stream != "nobody" and not path.endswith("/segments")  # it has none
            assert answer.status_code == (200 if is_there else 404), path
            check(schema, methods["get"], answer)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/forecasts", {"stream": "s"}),
        ("POST", "/v1/forecasts", {"stream": "paris", "id": "first-1", "score": 0.123}),
        ("POST", "/v1/outcomes", {"stream": "paris", "id": "nobody", "outcome": 1}),
        ("POST", "/v1/outcomes", {"stream": "paris", "id": "first-1", "outcome": 0}),
        ("PUT", "/v1/outcomes", {"stream": "paris", "id": "nobody", "outcome": None}),
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


OUTCOMES = {"POST /v1/outcomes", "PUT /v1/outcomes"}
FITTING = {"POST /v1/forecasts", "PUT /v1/streams/{stream}"}
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
        # Scores must have the sum 1, and events must be like others of their stream: no schema says that. In a batch
        # of outcomes each event has its own status.
        free = OUTCOMES if mode == GenerationMode.NEGATIVE else OUTCOMES | FITTING
        wanted = [] if operation.label in free else more

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
            answer = case.call()
            if answer.status_code != 413:  # refused by its size, which the fuzzer does not count as a refusal
                case.validate_response(answer, checks=[*CHECKS, *wanted])  # noqa: B023

        each()
    described = sum(len(methods) for methods in document(Limits())["paths"].values())
    assert len(tried) >= (described - 1 if mode == GenerationMode.POSITIVE else 7)  # the document itself is left out
