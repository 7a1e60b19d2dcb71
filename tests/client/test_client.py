"""Both clients against a real service, and against one that fails in every way."""

from __future__ import annotations

import asyncio
import doctest
import inspect
import json
import linecache
import sys
import threading
import time
import types
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import nullcontext, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import numpy as np
import pytest
from served import service_apart, service_here, wait_until

from calibeat.cli.main import main
from calibeat.client import AsyncClient, Busy, Client, NotAllowed, Retries, ServiceError, Unreachable, conversation
from calibeat.client import client as clients
from calibeat.client.conversation import Buffer, Conversation
from calibeat.client.errors import error_of
from calibeat.errors import CalibeatError, InvalidInput, OutcomeConflict, UnknownForecast, UnknownKey
from calibeat.service.events import Refusal
from calibeat.service.wire import read_outcomes

QUICK = Retries(3, first=0.01, longest=0.05)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with service_here(tmp_path_factory.mktemp("client") / "calibeat.db") as where:
        yield where


# ---- a real service ----------------------------------------------------------------------------------------------


def test_the_examples_of_the_docstrings_run(tmp_path: Path) -> None:
    with service_here(tmp_path / "calibeat.db") as where:
        found = 0
        for test in doctest.DocTestFinder().find(clients, globs=dict(vars(clients))):
            for example in test.examples:
                found += "8377" in example.source
                example.source = example.source.replace("http://127.0.0.1:8377", where)
                example.options.pop(doctest.SKIP, None)
            assert doctest.DocTestRunner().run(test).failed == 0
        assert found == 2


def test_both_clients_have_the_same_signatures() -> None:
    for name in ("predict", "predict_many", "outcome", "outcomes", "flush", "stream", "streams"):
        one, other = getattr(Client, name), getattr(AsyncClient, name)
        assert inspect.signature(one) == inspect.signature(other) and one.__doc__ == other.__doc__
        assert inspect.iscoroutinefunction(other) and not inspect.iscoroutinefunction(one)
    assert str(inspect.signature(Client.streams)).endswith("limit: 'int' = 100) -> 'list[dict[str, Any]]'")


def test_forecasts_and_outcomes(url: str) -> None:
    with Client(url) as client:
        answer = client.predict("paris", 0.83, id="c1", time=1_790_000_000)
        assert (answer.stream, answer.id, float(answer)) == ("paris", "c1", pytest.approx(0.83))
        assert client.predict("paris", 0.83, id="c1") == answer
        assert client.outcome("paris", "c1", 1, time=1_790_000_100.5) == "learnt"
        assert client.outcome("paris", "c1", 1) == "repeated"
        made = [client.predict("paris", 0.5).id for _ in range(2)]
        assert len(set(made)) == 2
        assert client.stream("paris")["events"] == 3
        assert "paris" in [stream["name"] for stream in client.streams()]
        assert client.streams(after="zzzz", limit=5) == []


def test_batches(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibeat.client.conversation.LARGEST_BATCH", 4)
    with Client(url) as client:
        answers = client.predict_many([{"stream": "many", "score": i / 10} for i in range(10)])
        assert [float(answer) for answer in answers] == pytest.approx([i / 10 for i in range(10)], abs=2e-5)
        events = [{"stream": "many", "id": answer.id, "outcome": 1} for answer in answers]
        assert client.outcomes([*events, {"stream": "many", "id": "nobody", "outcome": 1}]) == ["learnt"] * 10 + [
            "unknown"
        ]
        assert client.outcomes([events[0] | {"outcome": 0}, events[1]]) == ["conflict", "repeated"]


def test_refusals_are_calibeats_own_errors(url: str) -> None:
    with Client(url) as client:
        with pytest.raises(InvalidInput, match=r"score must be a number in \[0, 1\], got 1.3"):
            client.predict("s", 1.3)
        with pytest.raises(InvalidInput, match="outcome must be 0 or 1, got 2"):
            client.outcome("s", "x", 2)
        with pytest.raises(InvalidInput, match="plain text and numbers"):
            client.predict(object(), 0.5)  # type: ignore[arg-type]
        with pytest.raises(UnknownForecast, match="which is unknown"):
            client.outcome("s", "nobody", 1)
        with pytest.raises(UnknownKey, match="stream must be one that has events"):
            client.stream("nobody/at all")
        client.predict("s", 0.5, id="conflict")
        client.outcome("s", "conflict", 1)
        with pytest.raises(OutcomeConflict, match="got another"):
            client.outcome("s", "conflict", 0)
        with pytest.raises(ServiceError, match="path must be one of"):
            client._run(client._conversation._get("/nothing"))
    with pytest.raises(InvalidInput, match="url must begin with http"):
        Client("127.0.0.1:8377")


def test_tokens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "calibeat.db"
    main(["token", "create", "--store", str(store), "--scope", "read", "--name", "page"])
    token = capsys.readouterr().out.strip()
    with service_here(store) as where, Client(where, token) as client:
        assert client.streams() == []
        with pytest.raises(NotAllowed, match="may read only") as caught:
            client.predict("s", 0.5)
        assert (caught.value.status, caught.value.code, caught.value.at) == (403, "forbidden", None)


def test_the_other_client(url: str) -> None:
    async def everything() -> None:
        async with AsyncClient(url) as client:
            answers = await asyncio.gather(*(client.predict("async", 0.5) for _ in range(20)))
            assert await client.outcome("async", answers[0].id, 1) == "learnt"
            many = await client.predict_many([{"stream": "async", "score": 0.1}] * 3)
            assert (
                await client.outcomes([{"stream": "async", "id": a.id, "outcome": 0} for a in many]) == ["learnt"] * 3
            )
            assert (await client.stream("async"))["outcomes"] == 4
            assert len(await client.streams(limit=1)) == 1
            with pytest.raises(UnknownForecast):
                await client.outcome("async", "nobody", 1)

    asyncio.run(everything())


def test_both_clients_have_the_same_calls() -> None:
    for name, function in inspect.getmembers(Client, inspect.isfunction):
        if not name.startswith("_"):
            other = inspect.signature(getattr(AsyncClient, name))
            assert other == inspect.signature(function), name


def test_a_service_that_is_killed_and_comes_back_loses_no_outcome(tmp_path: Path) -> None:
    with service_apart(tmp_path / "calibeat.db", "--method", "ops") as first:
        port = int(first.url.rpartition(":")[2])
        client = Client(first.url, retries=Retries(1, first=0.01))
        answers = [client.predict("s", 0.5) for _ in range(3)]
    assert [client.outcome("s", answers[0].id, 1) for _ in range(2)] == ["buffered"] * 2  # also the same one twice
    assert client.outcomes([{"stream": "s", "id": answers[1].id, "outcome": 0}]) == ["buffered"]
    assert (client.buffered, client.dropped) == (3, 0)
    with pytest.raises(Unreachable, match="the service must be reachable"):
        client.flush()
    with pytest.raises(Unreachable):
        client.predict("s", 0.5)
    assert client.buffered == 3
    with service_here(tmp_path / "calibeat.db", port=port):
        time.sleep(0.1)
        assert client.outcome("s", answers[2].id, 1) == "learnt"
        assert client.buffered == 0
        assert client.stream("s")["outcomes"] == 3
        client.close()


# ---- a service that fails ------------------------------------------------------------------------------------------

DONE_AND_GONE = -1  # does what is asked, and hangs up without an answer
PAGE = -2  # 200 with a page that is none of the service, as a proxy gives it


class Failing(ThreadingHTTPServer):
    """Answers as it is told, in order; the last answer stays. 0 hangs up without a word. 200 does what is asked."""

    daemon_threads = True

    def __init__(self, *statuses: int) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.statuses = list(statuses)
        self.bodies: list[bytes] = []
        self.streams: list[str | None] = []  # as a header names them
        self.learnt: dict[str, int] = {}  # the last outcome of each id
        self.sentence, self.at = "the queue is full", None
        self.hold: threading.Event | None = None  # answers wait for it
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def answer(self, body: bytes) -> tuple[int, dict[str, Any]]:
        """What a service would say; it refuses ids that begin with `bad`, and knows none that begin with `new`."""
        found = json.loads(body)
        events = found.get("events", [found])
        for at, event in enumerate(events):
            if event["id"].startswith("bad"):
                place = at if "events" in found else "id"
                return 400, {"error": {"code": "invalid", "message": f"id must be good - at event {at}", "at": place}}
        if "score" in events[0]:
            said = [{"stream": e["stream"], "id": e["id"], "probability": e["score"]} for e in events]
            return 200, {"forecasts": said} if "events" in found else said[0]
        said = []
        for event in events:
            known = self.learnt.get(event["id"])
            self.learnt[event["id"]] = event["outcome"]
            is_new = event["id"].startswith("new")
            said.append(
                {"id": event["id"], "status": "unknown" if is_new else "learnt" if known is None else "repeated"}
            )
        return 200, {"outcomes": said} if "events" in found else said[0]


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Failing

    def do_POST(self) -> None:
        sent = self.rfile.read(int(self.headers["content-length"]))
        self.server.bodies.append(sent)
        self.server.streams.append(self.headers["x-stream"])
        status = self.server.statuses.pop(0) if len(self.server.statuses) > 1 else self.server.statuses[0]
        if self.server.hold is not None:
            self.server.hold.wait(30)
        said: dict[str, Any] = {"error": {"code": "full", "message": self.server.sentence, "at": self.server.at}}
        if status in {200, DONE_AND_GONE}:
            done, said = self.server.answer(sent)
            status = done if status == 200 else 0
        if status == 0:
            self.close_connection = True
            return
        body = json.dumps(said).encode() if status != PAGE else b"<html>"
        self.send_response(200 if status == PAGE else status)
        if status == 503:
            self.send_header("retry-after", "0")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Silence."""


def outcome(id: str, value: int = 1) -> dict[str, Any]:  # noqa: A002 - the word of the service
    return {"stream": "s", "id": id, "outcome": value}


AT_ONCE = Retries(0, first=0.0)  # no retries, and the next attempt is always due


def test_retries_have_the_same_id() -> None:
    with Failing(503, 0, 504, 200) as server, Client(server.url, retries=QUICK) as client:
        assert client.predict("s", 0.5).probability == 0.5
        assert len(server.bodies) == 4 and len(set(server.bodies)) == 1


def test_a_header_names_the_stream_of_a_request() -> None:
    with Failing(200) as server, Client(server.url) as client:
        client.predict("zürich/1", 0.5)
        client.outcome("s", "e1", 1)
        client.outcomes([outcome("e2"), outcome("e3")])
        client.predict_many([{"stream": "a", "score": 0.5}, {"stream": "b", "score": 0.5}])
        assert server.streams == ["z%C3%BCrich%2F1", "s", "s", None]


def test_retries_end() -> None:
    with Failing(503) as server, Client(server.url, retries=QUICK) as client:
        with pytest.raises(Busy, match="the queue is full") as caught:
            client.predict("s", 0.5)
        assert (caught.value.status, len(server.bodies)) == (503, 4)


def test_what_is_wrong_is_not_tried_again() -> None:
    with Failing(400) as server, Client(server.url, retries=QUICK) as client:
        with pytest.raises(InvalidInput):
            client.predict("s", 0.5)
        assert len(server.bodies) == 1


def test_a_buffer_that_is_full_drops_the_oldest() -> None:
    with Failing(503) as server:
        client = Client(server.url, retries=Retries(0, first=60.0, longest=60.0), buffer=2)
        assert [client.outcome("s", f"e{i}", 1) for i in range(4)] == ["buffered"] * 4
        assert (client.buffered, client.dropped) == (2, 2)
        assert len(server.bodies) == 1  # during an outage a caller does not wait for every outcome anew
        with pytest.raises(Busy):
            client.close()
    with Failing(503) as server, Client(server.url, retries=Retries(0), buffer=0) as client:
        with pytest.raises(Busy):
            client.outcome("s", "e", 1)
        with pytest.raises(Busy):
            client.outcomes([{"stream": "s", "id": "e", "outcome": 1}])
        assert client.buffered == 0


def test_a_buffer_is_emptied_when_the_service_is_back() -> None:
    async def everything(server: Failing) -> None:
        client = AsyncClient(server.url, retries=Retries(0, first=0.0))
        assert await client.outcome("s", "e", 1) == "buffered"
        assert await client.outcomes([{"stream": "s", "id": "e", "outcome": 1}]) == ["buffered"]
        assert (client.buffered, client.dropped) == (2, 0)
        server.statuses[:] = [200]
        assert list((await client.flush()).values()) == ["repeated"]  # the second of two
        assert await client.outcome("s", "d", 1) == "learnt"
        server.statuses[:] = [0]
        assert await client.outcome("s", "e", 1) == "buffered"
        server.statuses[:] = [503, 200]
        assert await client.outcome("s", "f", 1) == "buffered"
        await client.close()
        assert client.buffered == 0

    async def patient(server: Failing) -> None:
        async with AsyncClient(server.url, retries=QUICK) as client:
            assert float(await client.predict("s", 0.5)) == 0.5

    with Failing(503) as server:
        asyncio.run(everything(server))
    with Failing(503, 0, 200) as server:
        asyncio.run(patient(server))
    with Failing(503) as server:
        client = Client(server.url, retries=Retries(0, first=0.0))
        assert client.outcomes([{"stream": "s", "id": "e", "outcome": 1}]) == ["buffered"]
        server.statuses[:] = [200]
        assert client.outcomes([{"stream": "s", "id": "f", "outcome": 1}]) == ["learnt"]
        server.statuses[:] = [503, 200]
        client.outcome("s", "e", 1)
        client.close()


def test_an_answer_that_is_none_of_ours() -> None:
    error = error_of(500, b"<html>")
    assert isinstance(error, ServiceError)
    assert str(error) == "the service answered 500 without a reason"
    assert type(error_of(404, b"<html>")) is ServiceError  # a proxy's 404 says nothing about a forecast
    assert type(error_of(502, b"<html>")) is Busy
    assert type(error_of(400, b'{"error": "no"}')) is InvalidInput
    for content in (b"<html>", b"[]", b"{}", b'{"outcomes": 1}', b"\xff"):
        with pytest.raises(ServiceError, match="must answer in its own JSON, got something else"):
            conversation.answers(200, content, "outcomes", 1)
    for read in (conversation.answer_of, conversation.status_of):
        for found in ({}, []):
            with pytest.raises(ServiceError, match="must answer in its own JSON"):
                read(found)
    with pytest.raises(Unreachable, match="no attempt was made"):
        next(Conversation(Retries(0), 1)._send(None, 1))  # type: ignore[arg-type]


# ---- nothing is lost -----------------------------------------------------------------------------------------------


def in_outage(server: Failing, count: int, **more: Any) -> Client:
    """A client with outcomes in its buffer."""
    server.statuses[:] = [503]
    client = Client(server.url, **{"retries": AT_ONCE, **more})
    assert client.outcomes([outcome(f"e{i}") for i in range(count)]) == ["buffered"] * count
    assert (client.buffered, client.dropped) == (count, 0)
    return client


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 409, 413, 415, 421, 500, 501, 301, PAGE])
def test_an_answer_that_is_no_answer_keeps_the_buffer(status: int) -> None:
    with Failing() as server:
        client = in_outage(server, 30)
        server.statuses[:] = [status]
        with pytest.raises(CalibeatError):
            client.flush()
        with pytest.raises(CalibeatError):  # the caller hears of it, and the outcome is kept all the same
            client.outcome("s", "e30", 1)
        with pytest.raises(CalibeatError):
            client.outcomes([outcome("e31"), outcome("e32")])
        assert (client.buffered, client.dropped, client.refused) == (33, 0, 0)
        server.statuses[:] = [200]
        assert client.flush() == {("s", f"e{i}"): "learnt" for i in range(33)}
        assert (client.buffered, len(server.learnt)) == (0, 33)


@pytest.mark.parametrize("at", [True, -1, 30, "events", None])
def test_a_refusal_that_names_no_event_keeps_the_buffer(at: Any) -> None:
    with Failing() as server:
        client = in_outage(server, 1 if at is True else 30)
        server.statuses[:], server.at = [400], at
        with pytest.raises(InvalidInput):
            client.flush()
        assert (client.buffered, client.refused) == (1 if at is True else 30, 0)


def test_one_outcome_that_is_refused_is_set_aside_and_named(caplog: pytest.LogCaptureFixture) -> None:
    with Failing(503) as server:
        client = Client(server.url, retries=AT_ONCE)
        ids = [f"e{i}" for i in range(50)] + ["bad1"] + [f"e{i}" for i in range(50, 99)] + ["bad2"]
        client.outcomes([outcome(id) for id in ids])  # noqa: A001
        server.statuses[:] = [200]
        done = client.flush()
        assert [id for (_, id), status in done.items() if status == "refused"] == ["bad1", "bad2"]  # noqa: A001
        assert (client.buffered, client.dropped, client.refused, len(server.learnt)) == (0, 0, 2, 99)
        assert [refusal.event for refusal in client.refusals] == [outcome("bad1"), outcome("bad2")]
        assert client.refusals[0].reason == "id must be good - at event 50"
        assert "set aside: id must be good - at event 50 - stream 's', id 'bad1'" in caplog.text


def test_the_caller_of_a_refused_outcome_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with Failing() as server:
        client = in_outage(server, 2)
        server.statuses[:] = [200]
        with pytest.raises(InvalidInput, match="id must be good - at event 2"):
            client.outcome("s", "bad", 1)
        assert (client.buffered, client.refused, len(server.learnt)) == (0, 1, 2)
        server.statuses[:] = [503, 200]
        client.outcome("s", "e9", 1)
        assert client.outcomes([outcome("e8"), outcome("bad"), outcome("e7")]) == ["learnt", "refused", "learnt"]
        for id, error in (("new", UnknownForecast), ("bad", InvalidInput)):  # noqa: A001 - at once, without a buffer
            with pytest.raises(error):
                client.outcome("s", id, 1)
        monkeypatch.setattr(client._conversation.buffer, "refusals", deque(maxlen=0))
        server.statuses[:] = [503, 200]
        client.outcome("s", "e6", 1)
        with pytest.raises(InvalidInput, match="the service refused it"):
            client.outcome("s", "bad", 1)


def test_an_outcome_behind_others_raises_as_it_would_alone() -> None:
    with Failing() as server:
        for status, error in (
            ("unknown", UnknownForecast),
            ("expired", UnknownForecast),
            ("conflict", OutcomeConflict),
        ):
            client = in_outage(server, 1)
            server.statuses[:] = [200]
            server.answer = lambda _, status=status: (  # type: ignore[method-assign, misc]
                200,
                {"outcomes": [{"status": "learnt"}, {"status": status}]},
            )
            with pytest.raises(error, match=r"got (id|another for id) 'e1'"):
                client.outcome("s", "e1", 1)
            assert client.buffered == 0


def test_a_request_that_is_too_large_is_split(tmp_path: Path) -> None:
    with (
        service_here(tmp_path / "calibeat.db", limits={"events": 3}) as where,
        Client(where, retries=AT_ONCE) as client,
    ):
        answers = client.predict_many([{"stream": "s", "score": i / 10, "id": f"e{i}"} for i in range(10)])
        assert [answer.id for answer in answers] == [f"e{i}" for i in range(10)]
        assert client.outcomes([outcome(f"e{i}") for i in range(5)]) == ["learnt"] * 5
        client._conversation.buffer.add([outcome(f"e{i}") for i in range(10)])
        assert list(client.flush().values()) == ["repeated"] * 5 + ["learnt"] * 5
        assert client.stream("s")["outcomes"] == 10


def test_long_names_are_split_by_bytes(url: str) -> None:
    names = ["日" * 190 + f"{i:06d}" for i in range(5_000)]
    with Client(url) as client:
        assert len(client.predict_many({"stream": "é" * 200, "score": 0.5, "id": name} for name in names)) == 5_000
        events = [{"stream": "é" * 200, "id": name, "outcome": 1} for name in names]
        assert client.outcomes(events[:4_500]) == ["learnt"] * 4_500
        client._conversation.buffer.add(events)
        assert list(client.flush().values()) == ["repeated"] * 4_500 + ["learnt"] * 500


def test_what_is_left_of_a_batch_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibeat.client.conversation.LARGEST_BATCH", 2)
    with Failing(200, 503) as server:
        client = Client(server.url, retries=AT_ONCE)
        assert client.outcomes([outcome(f"e{i}") for i in range(7)]) == ["learnt"] * 2 + ["buffered"] * 5
        assert client.buffered == 5
        server.statuses[:] = [200, 200, 503]
        with pytest.raises(Busy):
            client.flush()
        assert client.buffered == 1
        server.statuses[:] = [200, 401]
        client.flush()
        with pytest.raises(NotAllowed):  # the caller is told, and nothing is kept behind its back
            client.outcomes([outcome(f"e{i}") for i in range(7)])
        assert client.buffered == 0


def test_the_client_checks_outcomes_as_the_service_does() -> None:
    nothing = object()
    names = ["a", "é" * 200, "x" * 201, "", "a\tb", "a\x7f", "\x1f", "a\ud800", "\uffff", "..", " ", None, 7, nothing]
    for name in names:
        for event in ({"stream": name, "id": "i"}, {"stream": "s", "id": name}):
            try:
                body = msgspec.json.encode({**event, "outcome": 1})
                read_outcomes(body, 1)
                is_good = True
            except (Refusal, TypeError, UnicodeEncodeError):
                is_good = False
            with nullcontext() if is_good else pytest.raises(InvalidInput, match=r" - at event 0$"):
                conversation.outcome_events([{**event, "outcome": 1}])
    for moment in (0, 2.5e11):
        assert conversation.outcome_event("s", "i", 1, moment)["time"] == moment
    for moment in (-1, 2.6e11, float("nan"), "x"):  # type: ignore[assignment]
        with pytest.raises(InvalidInput, match="time must be seconds since 1970"):
            conversation.outcome_event("s", "i", 1, moment)
    for event, words in (
        (3, "event must have stream, id and outcome, got 3"),
        ({"stream": "s", "id": "i"}, "outcome is missing"),
        ({**outcome("i"), "score": 1}, "'score' is not a field of an outcome"),
        (outcome("i", 2), "outcome must be 0 or 1, got 2"),
    ):
        with pytest.raises(InvalidInput, match=f"{words} - at event 1"):
            conversation.outcome_events([outcome("i"), event])  # type: ignore[list-item]
    assert conversation.outcome_events([{**outcome("i", True), "time": None}]) == [outcome("i")]


def test_labels_are_checked_as_the_service_does() -> None:
    for label in ("dog", 3, True, 2.0, np.int64(3), np.str_("dog")):
        event = conversation.outcome_event("s", "i", label=label)
        assert event == {"stream": "s", "id": "i", "label": label}
        assert type(event["label"]) in {str, int, bool, float}
    for bad in ([1], {"dog": 1}, float("nan"), b"dog"):
        with pytest.raises(InvalidInput, match="label must be a string, a number or a bool, got"):
            conversation.outcome_event("s", "i", label=bad)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="event must have either outcome or label, got both"):
        conversation.outcome_event("s", "i", 1, label="dog")


def test_scores_of_classes_by_place(url: str) -> None:
    with Client(url) as client:
        made = client.predict("places", scores=np.array([0.25, 0.25, 0.5]), id="e")
        assert isinstance(made.probabilities, list) and sum(made.probabilities) == pytest.approx(1.0)
        assert client.predict("places", scores=(0.25, 0.25, 0.5), id="e").probabilities == made.probabilities
        assert client.outcome("places", "e", label=np.int64(2)) == "learnt"


def test_an_outcome_that_does_not_fit_its_stream_is_set_aside_and_the_others_are_learnt(tmp_path: Path) -> None:
    """The client cannot know what a stream is; the service says so of one event of many."""
    with service_here(tmp_path / "calibeat.db") as where:
        port, client = int(where.rpartition(":")[2]), Client(where, retries=AT_ONCE)
        client.predict_many([{"stream": "s", "score": 0.5, "id": f"e{i}"} for i in range(5)])
    for i in range(5):
        client.outcome("s", f"e{i}", **({"label": "dog"} if i in {1, 3} else {"outcome": 1}))  # type: ignore[arg-type]
    assert client.buffered == 5
    with service_here(tmp_path / "calibeat.db", port=port):
        done = client.flush()
        assert done == {("s", f"e{i}"): "refused" if i in {1, 3} else "learnt" for i in range(5)}
        assert (client.buffered, client.refused, client.stream("s")["outcomes"]) == (0, 2, 3)
        assert {refusal.event["id"] for refusal in client.refusals} == {"e1", "e3"}
        assert client.refusals[0].reason.startswith("outcome must be 0 or 1, as the stream has two classes")
        client.close()


def test_a_bad_outcome_never_reaches_the_buffer(tmp_path: Path) -> None:
    with service_apart(tmp_path / "calibeat.db", "--method", "ops") as first:
        port = int(first.url.rpartition(":")[2])
        client = Client(first.url, retries=AT_ONCE)
        client.predict_many([{"stream": "s", "score": 0.5, "id": f"e{i}"} for i in range(99)])
    for i in range(50):
        client.outcome("s", f"e{i}", 1)
    with pytest.raises(InvalidInput, match="id must be text of 1 to 200 characters, got 201"):
        client.outcome("s", "e" * 201, 1)
    with pytest.raises(InvalidInput, match="id must be text of 1 to 200 characters, got 201 - at event 1"):
        client.outcomes([outcome("e50"), outcome("e" * 201)])
    client.outcomes([outcome(f"e{i}") for i in range(50, 99)])
    assert client.buffered == 99
    with service_here(tmp_path / "calibeat.db", port=port):
        assert set(client.flush().values()) == {"learnt"}
        assert client.stream("s")["outcomes"] == 99
        client.close()


# ---- threads -------------------------------------------------------------------------------------------------------


def test_one_outage_holds_up_one_thread() -> None:
    with Failing(503, 200) as server:
        client = Client(server.url, retries=Retries(1, first=0.0))
        said: list[str] = []
        first = threading.Thread(target=lambda: said.append(client.outcome("s", "e0", 1)))
        server.hold = threading.Event()
        first.start()
        wait_until(lambda: len(server.bodies) == 1)
        server.hold.set()
        server.hold = held = threading.Event()
        wait_until(lambda: len(server.bodies) == 2)  # it retries, and hears nothing
        assert [client.outcome("s", f"e{i}", 1) for i in (1, 2)] == ["buffered"] * 2
        assert client.outcomes([outcome("e3")]) == ["buffered"]
        assert first.is_alive() and client.buffered == 4 and len(server.bodies) == 2
        other = threading.Thread(target=client.flush)  # waits for its turn
        other.start()
        held.set()
        first.join()
        other.join()
        assert said == ["learnt"] and client.buffered == 0 and len(server.learnt) == 4


def test_after_an_outage_calls_do_not_wait_for_the_buffer() -> None:
    with Failing() as server:
        client = in_outage(server, 3)
        server.statuses[:], server.hold = [200], threading.Event()
        client._conversation._is_away = False  # as after the first of several parts
        other = threading.Thread(target=client.flush)
        other.start()
        wait_until(lambda: len(server.bodies) == 2)
        held, server.hold = server.hold, None
        assert client.outcome("s", "e9", 1) == "learnt"  # by itself
        assert client.outcome("s", "e1", 0) == "buffered"  # behind the other outcome of its event
        held.set()
        other.join()
        assert client.buffered == 0 and server.learnt["e1"] == 0


def test_what_is_being_sent_needs_no_room() -> None:
    with Failing() as server:
        client = in_outage(server, 4, buffer=4)
        server.statuses[:], server.hold = [200], threading.Event()
        other = threading.Thread(target=client.flush)
        other.start()
        wait_until(lambda: len(server.bodies) == 2)
        assert client.outcomes([outcome(f"f{i}") for i in range(5)]) == ["buffered"] * 5
        assert (client.buffered, client.dropped) == (8, 1)
        server.hold.set()
        other.join()
        assert (client.buffered, client.dropped, len(server.learnt)) == (0, 1, 8)
    buffer = Buffer(2)
    buffer.add([outcome("a"), outcome("b")])
    assert buffer.take_turn() is not None and len(buffer.oldest(10)) == 2
    buffer.add([outcome("c")])
    assert (len(buffer), buffer.dropped) == (3, 0)
    buffer.end_turn()  # they were not answered
    assert (len(buffer), buffer.dropped) == (2, 1)


def test_threads_that_report_and_flush_lose_nothing_and_keep_the_order_of_each_event() -> None:
    statuses = [(200, 503, DONE_AND_GONE, 0, 200, 429, 200)[i % 7] for i in range(600)] + [200]
    with Failing(*statuses) as server:
        client = Client(server.url, retries=Retries(1, first=0.0))

        def report(number: int) -> None:
            for i in range(12):
                client.outcome("s", f"{number}-{i}", 0)
                client.outcomes([outcome(f"{number}-{i}"), outcome(f"{number}-{i}-more")])

        def flush() -> None:
            for _ in range(12):
                with suppress(Busy, Unreachable):
                    client.flush()

        threads = [threading.Thread(target=report, args=(n,)) for n in range(4)]
        threads += [threading.Thread(target=flush) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        server.statuses[:] = [200]
        client.flush()
        assert (client.buffered, client.dropped, client.refused) == (0, 0, 0)
        assert len(server.learnt) == 4 * 12 * 2 and set(server.learnt.values()) == {1}


def interrupted(call: Callable[[], Any], at: int) -> bool:
    """Make a call whose `at`-th line of the client's code is a KeyboardInterrupt -> whether it came so far.

    Not in a line `with self._lock`: Python runs no handler of a signal between the end of the block and the release.
    """
    folder, left = str(Path(clients.__file__).parent), at

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.startswith(folder):
            return None
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        if event == "line" and "with self._lock" not in line:
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return trace

    def run() -> None:
        sys.settrace(trace)
        try:
            call()
        except (KeyboardInterrupt, Busy):
            pass
        finally:
            sys.settrace(None)

    thread = threading.Thread(target=run)  # tracing is for each thread
    thread.start()
    thread.join()
    return left <= 0


@pytest.mark.parametrize("way", ["flush", "outcome", "outcomes", "refused"])
def test_an_interrupt_at_any_line_loses_nothing(way: str) -> None:
    with Failing() as server, Client(server.url) as client:
        calls: dict[str, Callable[[], Any]] = {
            "flush": client.flush,
            "refused": client.flush,
            "outcome": lambda: client.outcome("s", "e9", 1),
            "outcomes": lambda: client.outcomes([outcome("e8"), outcome("e9")]),
        }
        for at in range(1, 10_000):
            client._conversation = Conversation(Retries(1, first=0.0), 100)  # a new client takes long
            server.statuses[:] = [503, 200]
            server.learnt.clear()
            server.bodies.clear()
            kept = [] if way == "outcome" else [outcome(id) for id in ("e0", "bad", "e1")[:: 1 + (way != "refused")]]  # noqa: A001
            client._conversation.buffer.add(kept)
            came_so_far = interrupted(calls[way], at)
            bodies = [json.loads(body) for body in server.bodies]
            sent = {event["id"] for body in bodies for event in body.get("events", [body])}
            server.statuses[:] = [200]
            client.flush()
            assert (client.buffered, client.dropped) == (0, 0)
            assert sent | {event["id"] for event in kept} <= server.learnt.keys() | {"bad"}, at
            assert client.refused >= (way == "refused"), at  # set aside twice rather than never
            if not came_so_far:
                break
        assert at > 50


# ---- tasks ---------------------------------------------------------------------------------------------------------


@types.coroutine
def cancelled_at(coroutine: Coroutine[Any, Any, Any], at: int) -> Generator[Any, Any, Any]:
    """Run a coroutine in its task, which is cancelled at the `at`-th moment at which it waits for something."""
    steps = coroutine.__await__()
    try:
        waits_for = next(steps)
        for number in count():
            if number == at:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
            try:
                got = yield waits_for
            except BaseException as error:  # noqa: BLE001 - the coroutine's to see
                waits_for = steps.throw(error)
            else:
                waits_for = steps.send(got)
    except StopIteration as end:
        return end.value


@pytest.mark.parametrize("way", ["flush", "outcome", "outcomes"])
def test_a_call_that_is_cancelled_anywhere_loses_nothing(way: str) -> None:
    async def cancel(server: Failing, at: int) -> bool:
        server.statuses[:] = [503]
        server.learnt.clear()
        client = AsyncClient(server.url, retries=Retries(1, first=0.001))
        kept = [outcome(f"e{i}") for i in range(5)]
        if way == "flush":
            client._conversation.buffer.add(kept)
            call: Coroutine[Any, Any, Any] = client.flush()
        elif way == "outcome":
            call = client.outcome("s", "e0", 1)
        else:
            call = client.outcomes(kept)
        server.statuses[:] = [503, 200]

        async def run() -> Any:
            return await cancelled_at(call, at)

        task = asyncio.create_task(run())
        try:
            await task
        except asyncio.CancelledError:
            is_over = False
        else:
            is_over = True
        server.statuses[:] = [200]
        await client.flush()
        assert (client.buffered, client.dropped) == (0, 0)
        assert len(server.learnt) == (1 if way == "outcome" else 5), at
        await client.close()
        return is_over

    with Failing() as server:
        for at in range(1_000):
            if asyncio.run(cancel(server, at)):
                break
        assert at > 4


def test_tasks_that_are_cancelled_at_random_lose_nothing() -> None:
    async def everything(server: Failing) -> None:
        client = AsyncClient(server.url, retries=Retries(2, first=0.001))

        async def report(number: int) -> None:
            for i in range(10):
                with suppress(TimeoutError):
                    await asyncio.wait_for(client.outcome("s", f"{number}-{i}", 1), 0.001 * (1 + (number + i) % 7))

        async def flush() -> None:
            for i in range(10):
                with suppress(TimeoutError, Busy, Unreachable):
                    await asyncio.wait_for(client.flush(), 0.002 * (1 + i))

        await asyncio.gather(*(report(n) for n in range(5)), *(flush() for _ in range(3)))
        server.statuses[:] = [200]
        await client.flush()
        assert (client.buffered, client.dropped, len(server.learnt)) == (0, 0, 50)
        await client.close()

    with Failing(*[(200, 503, DONE_AND_GONE, 200, 0)[i % 5] for i in range(400)], 200) as server:
        asyncio.run(everything(server))


def test_without_a_buffer_a_cancelled_call_keeps_nothing() -> None:
    async def everything(server: Failing) -> None:
        async with AsyncClient(server.url, retries=Retries(5, first=60.0, longest=60.0), buffer=0) as client:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.outcome("s", "e", 1), 0.2)
            assert (client.buffered, client.dropped, client.refused, client.refusals) == (0, 0, 0, [])

    with Failing(503) as server:
        asyncio.run(everything(server))


def test_waits_grow_and_are_random() -> None:
    retries = Retries(first=1.0, longest=6.0)
    for attempt, most in enumerate([1.0, 2.0, 4.0, 6.0, 6.0]):
        waits = {retries.wait(attempt) for _ in range(20)}
        assert len(waits) > 1 and most / 2 <= min(waits) <= max(waits) <= most
    assert retries.wait(0, "100") == 6.0
    assert retries.wait(0, "soon") <= 1.0
