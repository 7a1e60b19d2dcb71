"""Undo over HTTP, on both stores: correct, retract, freeze, pass through, reset, copy, rename, delete, forget.

Streams of two classes, of many classes and with groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from served import service_here, wait_until
from services import whole

from calibeat import OutcomeConflict, UnknownForecast, UnknownKey
from calibeat.client import Client
from calibeat.service.events import Refusal
from calibeat.service.settings import EngineSettings

SHAPES = ("plain", "classes", "groups")


@pytest.fixture(scope="module")
def served(module_url: str) -> Iterator[httpx.Client]:
    settings = EngineSettings(method="auto", monitor=1000.0)
    with service_here(module_url, settings=settings) as address, httpx.Client(base_url=address, timeout=60) as http:
        yield http
    assert whole(module_url)


def given(shape: str, score: float) -> dict[str, Any]:
    if shape == "classes":
        return {"scores": {"cat": 1.0 - score, "dog": score / 2, "bird": score / 2}}
    return {"score": score} | ({"groups": {"country": "fr" if score > 0.5 else "de"}} if shape == "groups" else {})


def result(shape: str, outcome: int | None) -> dict[str, Any]:
    if shape == "classes":
        return {"label": None if outcome is None else ("cat", "dog")[outcome]}
    return {"outcome": outcome}


class Stream:
    """One stream, as a client of HTTP sees it."""

    def __init__(self, http: httpx.Client, shape: str, name: str) -> None:
        self.http, self.shape, self.name = http, shape, f"{shape}/{name}"
        self.path = f"/v1/streams/{shape}%2F{name}"

    def ask(self, *events: tuple[str, float]) -> list[Any]:
        body = [{"stream": self.name, "id": name, **given(self.shape, score)} for name, score in events]
        answer = self.http.post("/v1/forecasts", json={"events": body})
        assert answer.status_code == 200, answer.text
        return [each.get("probability", each.get("probabilities")) for each in answer.json()["forecasts"]]

    def tell(self, *events: tuple[str, int | None], method: str = "POST") -> list[str]:
        body = [{"stream": self.name, "id": name, **result(self.shape, outcome)} for name, outcome in events]
        answer = self.http.request(method, "/v1/outcomes", json={"events": body})
        assert answer.status_code == 200, answer.text
        return [each["status"] for each in answer.json()["outcomes"]]

    def feed(self, start: int, count: int, *, invert: bool = False) -> None:
        events = [(f"e{at}", at % 97 / 97) for at in range(start, start + count)]
        self.ask(*events)
        statuses = self.tell(*((name, int((score > 0.5) != invert)) for name, score in events))
        assert set(statuses) == {"learnt"}

    def do(self, verb: str, **body: Any) -> dict[str, Any]:
        answer = self.http.post(f"{self.path}/{verb}", json=body)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def info(self) -> dict[str, Any]:
        return dict(self.http.get(self.path).json())

    def settled(self) -> dict[str, Any]:
        """The stream, once all corrections are applied."""
        return dict(wait_until(lambda: (found := self.info())["corrections"] == 0 and found))


@pytest.mark.parametrize("shape", SHAPES)
def test_a_wrong_day_is_corrected_and_retracted(served: httpx.Client, shape: str) -> None:
    stream, right = Stream(served, shape, "wrong"), Stream(served, shape, "right")
    for each in (stream, right):
        each.feed(0, 60)
    stream.feed(60, 40, invert=True)
    right.ask(*((f"e{at}", at % 97 / 97) for at in range(60, 100)))
    right.tell(*((f"e{at}", int(at % 97 / 97 > 0.5)) for at in range(60, 80)))
    wrong = stream.ask(("probe", 0.9))
    right.ask(("probe", 0.9))
    fixed = stream.tell(*((f"e{at}", int(at % 97 / 97 > 0.5)) for at in range(60, 80)), method="PUT")
    gone = stream.tell(*((f"e{at}", None) for at in range(80, 100)), method="PUT")
    assert set(fixed + gone) <= {"corrected", "repeated"} and gone == ["corrected"] * 20
    found = stream.settled()
    assert (found["outcomes"], found["pending"]) == (80, 21) and found["progress"] is None
    assert stream.ask(("probe", 0.9)) == wrong  # what was told stays told
    assert stream.ask(("after", 0.9)) == right.ask(("after", 0.9)) != wrong
    assert stream.tell(("e85", 1)) == ["learnt"]
    event = stream.http.get(f"{stream.path}/events/e85").json()
    assert event["status"] == "learnt" and not event["corrected"]
    assert event["label" if shape == "classes" else "outcome"] == ("dog" if shape == "classes" else 1)


@pytest.mark.parametrize("shape", SHAPES)
def test_freeze_resume_passthrough_and_reset(served: httpx.Client, shape: str) -> None:
    stream = Stream(served, shape, "verbs")
    fresh = stream.ask(("first", 0.8))
    stream.feed(0, 60)
    before = stream.ask(("before", 0.8))
    assert stream.do("freeze")["state"] == "frozen"
    stream.ask(*((f"f{at}", 0.8) for at in range(20)))
    assert stream.tell(*((f"f{at}", 0) for at in range(20))) == ["held"] * 20
    assert stream.http.get(f"{stream.path}/events/f3").json()["status"] == "held"
    assert stream.ask(("frozen", 0.8)) == before
    assert stream.do("passthrough")["state"] == "frozen, passthrough"
    raw = given(shape, 0.8)
    assert stream.ask(("raw", 0.8)) == [raw.get("score", raw.get("scores"))]
    stream.do("resume", outcomes="learn")
    assert wait_until(lambda: (found := stream.info())["held"] == 0 and found)["state"] == "learning"
    assert stream.ask(("after", 0.8)) != before
    stream.do("freeze")
    stream.ask(("dropped", 0.8))
    assert stream.tell(("dropped", 0)) == ["held"]
    stream.do("resume", outcomes="drop")
    wait_until(lambda: stream.info()["held"] == 0)
    assert stream.tell(("dropped", 0)) == ["expired"]
    found = stream.do("reset")
    assert found["pending"] == 0 and stream.ask(("anew", 0.8)) == fresh


@pytest.mark.parametrize("shape", SHAPES)
def test_copy_rename_and_delete(served: httpx.Client, shape: str) -> None:
    stream, copy, last = (Stream(served, shape, name) for name in ("old", "copy", "new"))
    stream.feed(0, 40)
    assert stream.do("copy", to=copy.name)["name"] == copy.name
    assert copy.ask(("x", 0.7)) == stream.ask(("x", 0.7))
    assert copy.http.get(f"{copy.path}/events").json()["events"][0]["id"] == "x"
    assert copy.do("rename", to=last.name)["name"] == last.name
    assert copy.http.get(copy.path).status_code == 404 and last.tell(("x", 1)) == ["learnt"]
    taken = stream.http.post(f"{stream.path}/rename", json={"to": last.name})
    assert taken.status_code == 409 and taken.json()["error"]["at"] == "to"
    gone = last.http.delete(last.path)
    assert gone.json() == {"stream": last.name, "status": "deleted"}
    assert last.http.get(last.path).status_code == 404 and last.http.delete(last.path).json() == gone.json()
    last.ask(("x", 0.7))  # another one of that name
    assert last.info()["events"] == 1


@pytest.mark.parametrize("shape", SHAPES)
def test_a_person_is_forgotten(served: httpx.Client, shape: str) -> None:
    stream = Stream(served, shape, "person")
    stream.feed(0, 30)
    stream.ask(("order/77", 0.4))
    stream.tell(("order/77", 1))
    stream.feed(30, 30)
    before = stream.ask(("before", 0.6))
    found = stream.http.get(f"{stream.path}/events/order%2F77").json()
    assert found["id"] == "order/77" and found["status"] == "learnt"
    gone = stream.http.delete(f"{stream.path}/events/order%2F77")
    assert gone.json() == {"stream": stream.name, "id": "order/77", "status": "forgotten"}
    for method in ("GET", "DELETE"):
        again = stream.http.request(method, f"{stream.path}/events/order%2F77")
        assert again.status_code == 404 and again.json()["error"]["code"] == "unknown"
    ids = [event["id"] for event in stream.http.get(f"{stream.path}/events", params={"limit": 1000}).json()["events"]]
    assert len(ids) == 61 and "order/77" not in ids
    assert stream.ask(("after", 0.6)) == before  # what was learnt stays
    one = {"stream": stream.name, **result(shape, None)}
    early = stream.http.put("/v1/outcomes", json={**one, "id": "e3"})
    assert early.status_code == 409 and early.json()["error"]["code"] == "final"
    assert stream.http.put("/v1/outcomes", json={**one, "id": "e40"}).json() == {"status": "corrected"}
    assert stream.settled()["outcomes"] == 59


def test_what_is_being_forgotten_may_go_with_its_stream(served: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(served, "plain", "gone")
    stream.feed(0, 50)
    slowly(monkeypatch, 0.2)
    with ThreadPoolExecutor(1) as pool:
        forgotten = pool.submit(served.delete, f"{stream.path}/events/e9")
        wait_until(lambda: stream.info().get("corrections") == 1)
        assert served.delete(stream.path).status_code == 200
        assert forgotten.result(30).json()["status"] == "forgotten"


def test_a_request_whose_answer_was_lost_may_be_sent_once_more(served: httpx.Client) -> None:
    stream = Stream(served, "plain", "again")
    stream.feed(0, 30)
    for _ in range(2):
        assert stream.do("copy", to="plain/again copy")["events"] == 30
    for _ in range(2):
        answer = served.post(f"{stream.path}/rename", json={"to": "plain/again renamed"})
        assert (answer.status_code, answer.json()["name"]) == (200, "plain/again renamed")
    for _ in range(2):
        assert served.delete("/v1/streams/plain%2Fagain copy").json()["status"] == "deleted"
    # What only looks like it is refused as before.
    other = Stream(served, "plain", "other")
    other.feed(0, 5)
    for verb in ("copy", "rename"):
        answer = served.post(f"{other.path}/{verb}", json={"to": "plain/again renamed"})
        assert (answer.status_code, answer.json()["error"]["at"]) == (409, "to")
    assert served.post(f"{stream.path}/rename", json={"to": "plain/elsewhere"}).status_code == 404
    assert served.delete("/v1/streams/plain%2Fnever").status_code == 404


def test_a_stream_is_not_copied_with_what_waits_to_be_corrected(
    served: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Stream(served, "plain", "source")
    stream.feed(0, 50)
    slowly(monkeypatch, 0.1)
    assert stream.tell(("e10", 1), ("e11", 1), method="PUT") == ["corrected", "corrected"]
    answer = served.post(f"{stream.path}/copy", json={"to": "plain/target"})
    assert answer.status_code == 409
    assert "stream must have no corrections that wait when it is copied, got 2" in answer.json()["error"]["message"]
    stream.settled()
    assert stream.do("copy", to="plain/target")["outcomes"] == 50
    target = Stream(served, "plain", "target")
    assert target.ask(("probe", 0.9)) == stream.ask(("probe", 0.9))


def test_a_stream_that_is_renamed_while_it_is_resumed_is_resumed_all_the_same(
    served: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("calibeat.service.engine.AGED_AT_ONCE", 5)
    stream = Stream(served, "plain", "ice")
    stream.feed(0, 10)
    stream.do("freeze")
    stream.ask(*((f"f{at}", 0.5) for at in range(200)))
    stream.tell(*((f"f{at}", 1) for at in range(200)))
    stream.do("resume")
    assert served.post(f"{stream.path}/rename", json={"to": "plain/water"}).status_code == 200
    stream = Stream(served, "plain", "water")
    found = wait_until(lambda: (found := stream.info())["state"] != "resuming" and found)
    assert (found["state"], found["held"], found["outcomes"]) == ("good", 0, 210)


def slowly(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Streams are made anew with so many seconds between two pieces."""
    monkeypatch.setattr("calibeat.service.replay.OPERATIONS_AT_ONCE", 10)
    monkeypatch.setattr("calibeat.service.corrections.PAUSE", seconds)


def test_who_asks_to_forget_what_is_being_forgotten_is_answered(
    served: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    slowly(monkeypatch, 0.1)
    stream = Stream(served, "plain", "both")
    stream.feed(0, 50)
    with ThreadPoolExecutor(2) as pool:
        path = f"{stream.path}/events/e9"
        first = pool.submit(served.delete, path)
        wait_until(lambda: stream.info()["progress"] is not None)
        second = pool.submit(served.delete, path, timeout=20)
        assert first.result().json() == second.result().json() and second.result().status_code == 200


def test_a_service_that_stops_does_not_wait_until_something_is_forgotten(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slowly(monkeypatch, 1.0)
    with ThreadPoolExecutor(1) as pool:
        with service_here(url, settings=EngineSettings(method="ops")) as address:
            with httpx.Client(base_url=address) as http:
                stream = Stream(http, "plain", "stop")
                stream.feed(0, 200)
            asked = pool.submit(httpx.delete, f"{address}{stream.path}/events/e9", timeout=60)
            with httpx.Client(base_url=address) as http:
                wait_until(lambda: http.get(stream.path).json()["progress"] is not None)
        answer = asked.result()
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "stopping")
    slowly(monkeypatch, 0.0)
    with service_here(url) as address, httpx.Client(base_url=address) as http:
        wait_until(lambda: http.get(stream.path).json()["events"] == 200)
        wait_until(lambda: http.get(stream.path).json()["corrections"] == 0)
        assert http.get(f"{stream.path}/events/e9").status_code == 404
    assert whole(url)


def test_pages_of_events(served: httpx.Client) -> None:
    stream = Stream(served, "plain", "pages")
    stream.feed(0, 25)
    first = stream.http.get(f"{stream.path}/events", params={"limit": 10}).json()
    assert [event["id"] for event in first["events"]] == [f"e{at}" for at in range(10)] and first["next"] == "e9"
    rest = stream.http.get(f"{stream.path}/events", params={"after": "e9"}).json()
    assert len(rest["events"]) == 15 and rest["next"] is None
    assert stream.http.get(f"{stream.path}/events", params={"after": "e99"}).status_code == 404


def test_requests_that_cannot_be_done(served: httpx.Client) -> None:
    http = served
    http.post("/v1/forecasts", json={"stream": "plain/bad", "id": "e1", "score": 0.5})
    path = "/v1/streams/plain%2Fbad"
    for method, below, body, status, words in (
        ("POST", "/resume", {"outcomes": "keep"}, 400, 'outcomes must be "learn" or "drop", got "keep"'),
        ("POST", "/copy", {}, 400, "to is missing"),
        ("POST", "/rename", {"to": ""}, 400, "to must be text of 1 to 200 characters"),
        ("POST", "/freeze", {"why": 1}, 400, "'why' is not a field of this request"),
        ("POST", "/melt", {}, 404, "path must be one of those"),
        ("POST", "/events/e1", {}, 405, "got POST"),
        ("DELETE", "/events/e2", {}, 404, "id must be that of an event of this stream, got 'e2'"),
        ("DELETE", "/events/%00", {}, 404, "id must be that of an event of this stream"),
    ):
        answer = http.request(method, path + below, json=body)
        assert (answer.status_code, words in answer.json()["error"]["message"]) == (status, True), answer.text
    answer = http.put("/v1/outcomes", json={"stream": "plain/bad", "id": "e1", "outcome": 2})
    assert answer.status_code == 400 and "outcome must be 0, 1 or null, got 2" in answer.text
    assert http.post("/v1/streams/nobody/freeze", json={}).json()["error"]["code"] == "unknown_stream"
    assert http.get("/v1/alarms", params={"stream": "plain/bad", "open": "true"}).json()["alarms"] == []


def test_the_client_has_all_of_it(served: httpx.Client) -> None:
    with Client(str(served.base_url)) as client:
        for at in range(5):
            client.predict("client", at / 5, id=f"e{at}")
            client.outcome("client", f"e{at}", at % 2)
        assert client.correct("client", "e1", 0) == "corrected" and client.correct("client", "e2") == "corrected"
        wait_until(lambda: client.stream("client")["corrections"] == 0)
        assert client.event("client", "e2")["status"] == "pending" and len(client.events("client", after="e2")) == 2
        assert client.freeze("client")["frozen"] and client.passthrough("client")["passthrough"]
        assert client.resume("client", outcomes="drop")["state"] in {"learning", "resuming"}
        assert client.copy("client", "client copy")["events"] == 5
        with pytest.raises(OutcomeConflict, match="to must be the name of no stream"):
            client.rename("client", "client copy")
        client.forget("client", "e0")
        with pytest.raises(UnknownForecast):
            client.event("client", "e0")
        assert client.reset("client")["pending"] == 0 and client.alarms("client", open=True) == []
        client.delete("client copy")
        with pytest.raises(UnknownKey):
            client.freeze("client copy")


def test_many_events_are_forgotten_at_once(served: httpx.Client) -> None:
    for stream in ("paris", "rome"):
        events = [{"stream": stream, "id": f"e{at}", "score": at / 10} for at in range(10)]
        assert served.post("/v1/forecasts", json={"events": events}).status_code == 200
    asked = [("paris", "e1"), ("rome", "e3"), ("paris", "e7"), ("paris", "nobody"), ("nowhere", "e1")]
    body = {"events": [{"stream": stream, "id": name} for stream, name in asked]}
    answer = served.post("/v1/forget", json=body).json()
    assert [event["status"] for event in answer["events"]] == ["forgotten"] * 3 + ["unknown"] * 2
    for stream, name in asked:
        assert served.get(f"/v1/streams/{stream}/events/{name}").status_code == 404
    again = served.post("/v1/forget", json=body).json()
    assert [event["status"] for event in again["events"]] == ["unknown"] * 5
    assert served.post("/v1/forget", json={"events": []}).status_code == 400
    assert served.post("/v1/forget", json={"events": [{"stream": "", "id": "e"}]}).status_code == 400
    with Client(str(served.base_url)) as client:
        assert client.forget_many([("rome", "e4"), ("rome", "e3")])[0]["status"] == "forgotten"
    assert served.get("/v1/streams/rome").json()["events"] == 10


def test_forgetting_many_is_refused_as_one_is(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, limits = EngineSettings(method="ops"), {"events": 5}
    with service_here(url, settings=settings, limits=limits) as address, httpx.Client(base_url=address) as http:
        stream = Stream(http, "plain", "stop")
        stream.feed(0, 5)
        many = {"events": [{"stream": "a", "id": f"e{at}"} for at in range(6)]}
        assert http.post("/v1/forget", json=many).status_code == 413
        assert http.post("/v1/forget", content=b"{", headers={"content-type": "application/json"}).status_code == 400
        name = {"stream": "a\u0001", "id": "e"}
        assert http.post("/v1/forget", json={"events": [name]}).status_code == 400
        monkeypatch.setattr("calibeat.service.http.Service.ask", _stopping)
        answer = http.post("/v1/forget", json={"events": [{"stream": stream.name, "id": "e1"}]})
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "stopping")


async def _stopping(*_: Any) -> Any:
    raise Refusal("stopping", "the service must run, got one that stops", None, 503)
