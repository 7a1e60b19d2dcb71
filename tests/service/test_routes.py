"""The routes over real HTTP, with a real engine and a real store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from served import request, service_here, talk

from calibeat.service.events import Refusal
from calibeat.service.wire import read_outcomes

ERROR_FIELDS = {"code", "message", "at"}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with service_here(tmp_path_factory.mktemp("app") / "calibeat.db") as address:
        yield address


@pytest.fixture(scope="module")
def http(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url) as client:
        yield client


def refused(answer: httpx.Response, status: int, code: str, at: Any = None) -> str:
    """The message of a refusal of the one shape."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()
    assert set(body) == {"error"} and set(body["error"]) == ERROR_FIELDS
    assert body["error"]["code"] == code, body
    assert body["error"]["at"] == at, body
    return str(body["error"]["message"])


# ---- forecasts ---------------------------------------------------------------------------------------------------


def test_a_forecast_and_its_outcome(http: httpx.Client) -> None:
    answer = http.post("/v1/forecasts", json={"stream": "one", "id": "one-1", "score": 0.83})
    assert answer.status_code == 200
    assert answer.json() == {"stream": "one", "id": "one-1", "probability": pytest.approx(0.83)}
    outcome = {"stream": "one", "id": "one-1", "outcome": 1}
    assert http.post("/v1/outcomes", json=outcome).json() == {"status": "learnt"}
    assert http.post("/v1/outcomes", json=outcome).json() == {"status": "repeated"}


def test_the_same_id_gets_the_stored_forecast_again(http: httpx.Client) -> None:
    event = {"stream": "again", "id": "again-1", "score": 0.7}
    first = http.post("/v1/forecasts", json=event).json()
    http.post("/v1/outcomes", json={"stream": "again", "id": "again-1", "outcome": 0})
    assert http.post("/v1/forecasts", json=event).json() == first


def test_the_same_id_with_another_score_is_a_conflict_and_in_another_stream_another_event(http: httpx.Client) -> None:
    event = {"stream": "taken", "id": "taken-1", "score": 0.7}
    http.post("/v1/forecasts", json=event)
    refused(http.post("/v1/forecasts", json=event | {"score": 0.71}), 409, "conflict", 0)
    assert http.post("/v1/forecasts", json=event | {"stream": "elsewhere", "score": 0.71}).status_code == 200


def test_a_batch_is_answered_in_its_order(http: httpx.Client) -> None:
    events = [{"stream": f"s{i % 3}", "id": f"order-{i}", "score": i / 10} for i in range(10)]
    answers = http.post("/v1/forecasts", json={"events": events}).json()["forecasts"]
    assert [answer["id"] for answer in answers] == [event["id"] for event in events]
    assert [answer["stream"] for answer in answers] == [event["stream"] for event in events]
    assert [answer["probability"] for answer in answers] == pytest.approx(
        [event["score"] for event in events], abs=2e-5
    )


def test_a_batch_is_taken_whole_or_refused_whole(http: httpx.Client) -> None:
    events = [{"stream": "whole", "id": f"whole-{i}", "score": 0.5} for i in range(3)]
    bad = [*events, {"stream": "whole", "id": "whole-3", "score": 1.5}]
    message = refused(http.post("/v1/forecasts", json={"events": bad}), 400, "invalid", 3)
    assert message == "score must be a number in [0, 1], got 1.5 - at event 3"
    assert http.get("/v1/streams/whole").status_code == 404
    http.post("/v1/forecasts", json={"events": events})
    clash = [{"stream": "whole", "id": "whole-9", "score": 0.5}, {"stream": "whole", "id": "whole-1", "score": 0.6}]
    refused(http.post("/v1/forecasts", json={"events": clash}), 409, "conflict", 1)
    assert http.get("/v1/streams/whole").json()["events"] == 3


# ---- outcomes ----------------------------------------------------------------------------------------------------


def test_an_unknown_id_is_404(http: httpx.Client) -> None:
    message = refused(
        http.post("/v1/outcomes", json={"stream": "no", "id": "no-1", "outcome": 1}), 404, "unknown", "id"
    )
    assert "'no-1'" in message


def test_a_contradiction_is_409_and_put_corrects(http: httpx.Client) -> None:
    http.post("/v1/forecasts", json={"stream": "but", "id": "but-1", "score": 0.5})
    http.post("/v1/outcomes", json={"stream": "but", "id": "but-1", "outcome": 1})
    other = {"stream": "but", "id": "but-1", "outcome": 0}
    refused(http.post("/v1/outcomes", json=other), 409, "conflict", "id")
    assert http.put("/v1/outcomes", json=other | {"outcome": 1}).json() == {"status": "repeated"}
    assert http.put("/v1/outcomes", json=other).json() == {"status": "corrected"}
    assert http.post("/v1/outcomes", json=other).json() == {"status": "repeated"}


def test_each_outcome_of_a_batch_has_its_own_status(http: httpx.Client) -> None:
    for name in ("a", "b"):
        http.post("/v1/forecasts", json={"stream": "each", "id": f"each-{name}", "score": 0.5})
    http.post("/v1/outcomes", json={"stream": "each", "id": "each-a", "outcome": 1})
    events = [
        {"stream": "each", "id": "each-a", "outcome": 1},
        {"stream": "each", "id": "each-a", "outcome": 0},
        {"stream": "each", "id": "each-b", "outcome": 0},
        {"stream": "each", "id": "each-c", "outcome": 0},
    ]
    answer = http.post("/v1/outcomes", json={"events": events}).json()["outcomes"]
    assert [each["status"] for each in answer] == ["repeated", "conflict", "learnt", "unknown"]
    assert [each["id"] for each in answer] == [event["id"] for event in events]


def test_whole_numbers_may_have_a_point(http: httpx.Client) -> None:
    http.post("/v1/forecasts", json={"events": [{"stream": "p", "id": f"point-{i}", "score": 0.5} for i in range(3)]})
    assert http.post("/v1/outcomes", json={"stream": "p", "id": "point-0", "outcome": 1.0}).json()["status"] == "learnt"
    events = [{"stream": "p", "id": "point-1", "outcome": 0.0}, {"stream": "p", "id": "point-2", "outcome": 1}]
    answer = http.post("/v1/outcomes", json={"events": events}).json()["outcomes"]
    assert [each["status"] for each in answer] == ["learnt", "learnt"]
    refused(http.post("/v1/outcomes", json={"stream": "p", "id": "x", "outcome": 0.5}), 400, "invalid", "outcome")
    bad = [{"stream": "p", "id": "x", "outcome": 1.0}, 7]
    answer = http.post("/v1/outcomes", json={"events": bad}).json()["outcomes"]
    assert [each["status"] for each in answer] == ["unknown", "invalid"]


# ---- what is refused ---------------------------------------------------------------------------------------------

GOOD = {"stream": "s", "id": "i", "score": 0.5}
BAD_BODIES = [
    (b"", "malformed", None, "JSON"),
    (b"{", "malformed", None, "JSON"),
    (b"\xff\xfe", "malformed", None, "UTF-8"),
    (b'{"stream": "s", "id": "i", "score": NaN}', "malformed", None, "JSON"),
    (b"[]", "invalid", None, "body must be a JSON object"),
    (b"{}", "invalid", "stream", "stream is missing"),
    (b'{"stream": "s", "score": 0.5}', "invalid", "id", "id is missing"),
    (b'{"stream": "s", "id": "i", "score": "0.5"}', "invalid", "score", 'got "0.5"'),
    (b'{"stream": "s", "id": "i", "score": 1e999}', "invalid", "score", "[0, 1]"),
    (b'{"stream": "s", "id": "i", "score": true}', "invalid", "score", "got true"),
    (b'{"stream": 7, "id": "i", "score": 0.5}', "invalid", "stream", "must be text of 1 to 200 characters, got 7"),
    (b'{"stream": "", "id": "i", "score": 0.5}', "invalid", "stream", 'got ""'),
    (b'{"stream": "a\\u0000b", "id": "i", "score": 0.5}', "invalid", "stream", "control characters"),
    (b'{"stream": "s", "id": "\x7f", "score": 0.5}', "invalid", "id", "control characters"),
    (b'{"stream": "s", "id": "i", "score": 0.5, "outcome": 1}', "invalid", "outcome", "not a field"),
    (b'{"stream": "s", "id": "i", "score": 0.5, "time": -1}', "invalid", "time", "seconds since 1970"),
    (b'{"events": []}', "invalid", "events", "one event at least"),
    (b'{"events": 3}', "invalid", "events", "list of events"),
    (b'{"events": [3]}', "invalid", 0, "event must be a JSON object"),
    (b'{"events": [{"stream": "s", "id": "i"}]}', "invalid", 0, "score is missing"),
    (b'{"events": [{"stream": "s", "id": "i", "score": 0.5, "x": 1}]}', "invalid", 0, "'x' is not a field"),
    (b'{"events": [{"stream": "s", "id": "a\\nb", "score": 0.5}]}', "invalid", 0, "control characters"),
    (json.dumps({"events": [GOOD], "stream": "s"}).encode(), "invalid", None, "either events or the fields"),
    (json.dumps(GOOD | {"id": "x" * 201}).encode(), "invalid", "id", "1 to 200 characters"),
]


@pytest.mark.parametrize(("body", "code", "at", "words"), BAD_BODIES, ids=range(len(BAD_BODIES)))
def test_a_bad_body_is_explained(http: httpx.Client, body: bytes, code: str, at: Any, words: str) -> None:
    answer = http.post("/v1/forecasts", content=body, headers={"content-type": "application/json"})
    assert words in refused(answer, 400, code, at)


DEEP = b"[" * 100_000
NESTED = b'{"a":' * 50_000
UNREADABLE = [
    b'{"stream":"Z\xfcrich","id":"u","score":0.5}',  # Latin-1
    b'{"stream":"u","id":"\xff\xfe","score":0.5}',
    b'{"\xff":"u","id":"u","score":0.5}',
    b'{"stream":"\xed\xa0\x80","id":"u","score":0.5}',  # a surrogate
    b'{"stream":"\\ud800","id":"u","score":0.5}',
    b'{"stream":"\xc0\xaf","id":"u","score":0.5}',  # a slash, too long
    b'{"stream":"\xf4\x90\x80\x80","id":"u","score":0.5}',  # after the last character
    b'{"stream":"u","id":"u","outcome":1.0,"x":"\xff"}',
    b'{"events":[{"stream":"\xff","id":"u","score":0.5}]}',
    b'{"stream":' + DEEP + b"}",
    b'{"stream":"u","id":' + DEEP,
    b'{"stream":"u","id":"u","score":' + DEEP + b"]" * 100_000 + b"}",
    b'{"stream":"u","id":"u","outcome":' + DEEP + b"]" * 100_000 + b"}",
    b'{"stream":"u","id":"u","outcome":' + NESTED + b"1" + b"}" * 50_001,
    b'{"stream":"u","id":"u","score":0.5,"time":' + DEEP + b"]" * 100_000 + b"}",
    b'{"events":' + DEEP + b"]" * 100_000 + b"}",
    b'{"events":[{"stream":"u","id":"u","score":' + DEEP + b"]" * 100_000 + b"}]}",
    b'{"unknown":' + DEEP + b"]" * 100_000 + b"}",
    DEEP * 10,
    NESTED * 4,
    b'{"stream":"u","id":"u","outcome":' + b"9" * 5000 + b"}",
]


@pytest.mark.parametrize("number", range(len(UNREADABLE)))
def test_a_body_that_cannot_be_read_is_refused_at_once_on_every_way(url: str, number: int) -> None:
    body = UNREADABLE[number]
    whole = b'{"stream":"s","id":"i","score":0.5}'
    for path, method in (
        ("/v1/forecasts", "POST"),
        ("/v1/outcomes", "POST"),
        ("http://localhost/v1/forecasts", "POST"),
        ("/v1/outcomes", "PUT"),
    ):
        found = talk(url, request(path, body, "connection: close", method=method))
        assert found.startswith(b"HTTP/1.1 400") and b'{"error":{"code":"' in found, found
    found = talk(url, request("/v1/forecasts", whole) + request("/v1/forecasts", body, "connection: close"))
    assert [answer[:3] for answer in found.split(b"HTTP/1.1 ")[1:]] == [b"200", b"400"]


def test_of_a_key_that_comes_twice_the_last_one_counts(http: httpx.Client) -> None:
    answer = http.post("/v1/forecasts", content=b'{"stream":"twice","id":"twice","score":0.1,"score":0.9}')
    assert answer.json()["probability"] == pytest.approx(0.9)


def test_what_a_body_that_cannot_be_read_is_told(http: httpx.Client) -> None:
    told = refused(http.post("/v1/forecasts", content=UNREADABLE[0]), 400, "malformed")
    assert told == "body must be JSON in UTF-8, got the byte 0xfc"
    told = refused(http.post("/v1/forecasts", content=UNREADABLE[9]), 400, "invalid", "stream")
    assert told == "stream must be text of 1 to 200 characters, got what cannot be read"


def test_bad_outcomes_are_explained(http: httpx.Client) -> None:
    message = refused(
        http.post("/v1/outcomes", json={"stream": "s", "id": "i", "outcome": 2}), 400, "invalid", "outcome"
    )
    assert message == "outcome must be 0 or 1, got 2"
    refused(http.post("/v1/outcomes", json={"id": "i", "outcome": 1}), 400, "invalid", "stream")
    refused(http.post("/v1/outcomes", content=b"{", headers={"content-type": "application/json"}), 400, "malformed")
    bad = {"events": [{"stream": "s\t", "id": "i\0", "outcome": 1}]}
    (answer,) = http.post("/v1/outcomes", json=bad).json()["outcomes"]
    assert answer["status"] == "invalid" and answer["stream"] == "s\t"
    assert answer["message"] == "stream must be text without control characters, got 's\\t' - at event 0"


def test_names_of_any_language_and_length_are_taken(http: httpx.Client) -> None:
    for number, name in enumerate(["日本語", "a/b c?d#e%f", "é" * 200, 'quote"back\\slash', "🎲" * 200]):
        answer = http.post("/v1/forecasts", json={"stream": name, "id": f"name-{number}", "score": 0.5})
        assert answer.json()["stream"] == name
        found = http.get("/v1/streams/" + httpx.URL("/", params={"x": name}).query.decode()[2:].replace("+", "%20"))
        assert found.json()["name"] == name


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_other_content_types_are_taken_from_programs_and_refused_from_web_pages(http: httpx.Client, kind: str) -> None:
    body = json.dumps(GOOD)
    assert http.post("/v1/forecasts", content=body, headers={"content-type": kind}).status_code == 200
    for sign in ({"origin": "https://elsewhere.example"}, {"sec-fetch-site": "cross-site"}):
        answer = http.post("/v1/forecasts", content=body, headers={"content-type": kind} | sign)
        refused(answer, 415, "unsupported_media_type", "content-type")


def test_unknown_paths_and_methods_have_the_shape_of_errors(http: httpx.Client) -> None:
    for path in (
        "/nothing",
        "/v1/streams/a/b/c",
        "/v1/streams/a/nothing",
        "/v1/streams/a/",
        "/v1/forecasts/",
        "/static/../app.py",
    ):
        refused(http.get(path), 404, "not_found")
    answer = http.get("/v1/forecasts")
    assert "POST" in refused(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == "POST"
    refused(http.delete("/v1/streams"), 405, "method_not_allowed")
    refused(http.put("/v1/forecasts", json=GOOD), 405, "method_not_allowed")


def test_too_many_outcomes_are_too_many_though_one_of_them_is_bad() -> None:
    events = b'{"stream": "s", "id": "a", "outcome": 1}, {"stream": "s", "id": "b", "outcome": 5}'
    with pytest.raises(Refusal, match="events must be 1 at most, got 2") as caught:
        read_outcomes(b'{"events": [' + events + b"]}", 1)
    assert caught.value.status == 413


def test_what_is_done_to_streams_must_be_json_and_have_a_known_address(http: httpx.Client) -> None:
    packed, wanted = {"content-encoding": "gzip"}, ("unsupported_media_type", "content-encoding")
    for method, path in (("POST", "/v1/streams/paris/freeze"), ("PUT", "/v1/streams/paris")):
        refused(http.request(method, path, content=b"{}", headers=packed), 415, *wanted)
    refused(http.put("/v1/streams/paris/more", json={"classes": 3}), 404, "not_found")


def test_without_tokens_only_names_of_this_machine_are_served(http: httpx.Client, url: str) -> None:
    for path, method in (("/v1/streams", "GET"), ("/v1/forecasts", "POST")):
        answer = http.request(method, path, json=GOOD, headers={"host": "evil.example"})
        refused(answer, 421, "misdirected", "host")
    port = httpx.URL(url).port
    for host in ("localhost", f"LOCALHOST:{port}", f"[::1]:{port}", "127.0.0.1"):
        assert http.get("/v1/streams", headers={"host": host}).status_code == 200


# ---- reading -----------------------------------------------------------------------------------------------------


def test_streams_come_page_by_page(http: httpx.Client) -> None:
    events = [{"stream": f"page-{i:02d}", "id": f"page-{i}", "score": 0.5} for i in range(25)]
    http.post("/v1/forecasts", json={"events": events})
    names: list[str] = []
    after: str | None = None
    while True:
        asked = {"search": "page-", "limit": 10} | ({"after": after} if after else {})
        page = http.get("/v1/streams", params=asked).json()
        names += [each["name"] for each in page["streams"]]
        after = page["next"]
        if after is None:
            break
    assert names == [f"page-{i:02d}" for i in range(25)]
    (first,) = http.get("/v1/streams", params={"order": "attention", "limit": 1, "search": "page-"}).json()["streams"]
    assert first["name"] == "page-00" and first["pending"] == 1


@pytest.mark.parametrize(
    ("query", "at"),
    [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=ten", "limit"),
        ("limit=%D9%A1", "limit"),
        ("order=size", "order"),
        ("after=", "after"),
        ("search=%00", "search"),
        ("page=3", "page"),
        ("limit=1&limit=2", "limit"),
    ],
)
def test_bad_parameters_are_named(http: httpx.Client, query: str, at: str) -> None:
    refused(http.get(f"/v1/streams?{query}"), 400, "invalid", at)


@pytest.mark.parametrize("text", ["x", "-1", "1e99", "nan", "1_0", ""])
def test_bad_times_are_named(http: httpx.Client, text: str) -> None:
    refused(http.get("/v1/streams/one/history", params={"from": text}), 400, "invalid", "from")


def test_everything_about_a_stream(http: httpx.Client) -> None:
    times = [1_700_000_000.0 + 1800 * i for i in range(6)]
    for i, time in enumerate(times):
        event = {"stream": "told", "id": f"told-{i}", "time": time}
        http.post("/v1/forecasts", json=event | {"score": 0.9})
        if i < 4:
            http.post("/v1/outcomes", json=event | {"outcome": i % 2, "time": time + 60})
    found = http.get("/v1/streams/told").json()
    assert (found["events"], found["outcomes"], found["pending"]) == (6, 4, 2)
    assert found["oldest_pending"] == times[4]
    assert found["log_loss"] < found["raw_log_loss"]
    assert found["params"]
    hours = http.get("/v1/streams/told/history").json()["hours"]
    assert sum(hour["forecasts"] for hour in hours) == 6 and len(hours) == 3
    first = http.get("/v1/streams/told/history", params={"limit": 2}).json()
    assert first["hours"] == hours[:2]
    rest = http.get("/v1/streams/told/history", params={"limit": 2, "from": first["next"]}).json()
    assert rest == {"hours": hours[2:], "next": None}
    refused(http.get("/v1/streams/told/history?limit=10001"), 400, "invalid", "limit")
    early = http.get("/v1/streams/told/history", params={"from": 0, "to": times[0]}).json()["hours"]
    assert sum(hour["forecasts"] for hour in early) == 2
    bins = http.get("/v1/streams/told/reliability").json()
    assert sum(each["count"] for each in bins["raw"]) == 4 and bins["raw"][9]["count"] == 4
    assert http.get("/v1/view?stream=told").json()["delays"] == [{"within": 64.0, "count": 4}]
    assert http.get("/v1/alarms").json() == {"alarms": [], "groups": []}
    assert http.get("/v1/overview").json()["outcomes"] >= 4


def test_a_long_history_comes_in_parts(http: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    events = [{"stream": "long", "id": f"long-{i}", "score": 0.5, "time": 3600.0 * i} for i in range(10)]
    http.post("/v1/forecasts", json={"events": events})
    whole = http.get("/v1/streams/long/history").json()
    assert len(whole["hours"]) == 10 and whole["next"] is None
    monkeypatch.setattr("calibeat.service.routes.MAX_HOURS", 4)
    hours: list[Any] = []
    part = {"next": 0.0}
    while part["next"] is not None:
        part = http.get("/v1/streams/long/history", params={"from": part["next"]}).json()
        assert len(part["hours"]) <= 4
        hours += part["hours"]
    assert hours == whole["hours"]


@pytest.mark.parametrize("path", ["", "/history", "/reliability"])
@pytest.mark.parametrize("name", ["nobody", "%00", "%ff", "x" * 201])
def test_unknown_streams_are_404(http: httpx.Client, path: str, name: str) -> None:
    refused(http.get(f"/v1/streams/{name}{path}"), 404, "unknown_stream", "stream")


def test_an_unchanged_answer_is_not_sent_again(http: httpx.Client) -> None:
    http.post("/v1/forecasts", json={"stream": "tag", "id": "tag-1", "score": 0.5})
    first = http.get("/v1/streams/tag")
    again = http.get("/v1/streams/tag", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    http.post("/v1/outcomes", json={"stream": "tag", "id": "tag-1", "outcome": 1})
    changed = http.get("/v1/streams/tag", headers={"if-none-match": first.headers["etag"]})
    assert changed.status_code == 200 and changed.json()["outcomes"] == 1


def test_health(http: httpx.Client) -> None:
    assert http.get("/healthz").json() == {"status": "alive"}
    assert http.get("/readyz").json() == {"status": "ready"}
    assert http.head("/healthz").status_code == 200


def test_the_page_has_a_policy_and_no_inline_script(http: httpx.Client) -> None:
    page = http.get("/")
    assert page.headers["content-type"].startswith("text/html")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
    assert "<script>" not in page.text and "style=" not in page.text
    assert http.get("/static/dashboard.css").status_code == 200
    for name in ("nothing.js", "..%2fapp.py", ".hidden", "%00"):
        refused(http.get(f"/static/{name}"), 404, "not_found")
