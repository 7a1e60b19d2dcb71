"""Workers that own streams, as clients see them: any worker answers for any stream, also while streams change hands."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import psycopg
import pytest
from postgres import Postgres
from served import service_here, wait_until
from services import desk

from calibeat import InvalidInput
from calibeat.service import forward
from calibeat.service.engine import Engine, Settings
from calibeat.service.forward import Router
from calibeat.service.operate import check, info, replay_check
from calibeat.service.operations import ForecastEvent, OutcomeEvent, Refusal
from calibeat.service.store import ownership
from calibeat.service.store.ownership import PARTITIONS, Member

SHARES = """SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid::bigint = %s AND objsubid = 2
AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) GROUP BY pid"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name: the path of a socket has 107 bytes at most."""
    with TemporaryDirectory() as made:
        yield Path(made)


def shares(url: str) -> list[int]:
    """How many partitions each worker has."""
    with psycopg.connect(url) as database:
        return sorted(count for (count,) in database.execute(SHARES, (ownership._PARTITION,)).fetchall())


@contextmanager
def service(url: str, folder: Path) -> Iterator[httpx.Client]:
    """One worker of a service, on a port of its own."""
    with service_here(url, sharing="own", peers=folder) as where, httpx.Client(base_url=where) as http:
        yield http


@contextmanager
def two(url: str, folder: Path) -> Iterator[tuple[httpx.Client, httpx.Client]]:
    """Two workers, each with half of the streams."""
    with service(url, folder) as one, service(url, folder) as other:
        wait_until(lambda: shares(url) == [32, 32])
        yield one, other


def test_any_worker_answers_for_any_stream(server: Postgres, folder: Path) -> None:
    url = server.database()
    events = [{"stream": f"s{i % 9}", "id": f"e{i}", "score": i / 100} for i in range(60)]
    with two(url, folder) as workers:
        turn = itertools.cycle(workers)
        answers = [next(turn).post("/v1/forecasts", json=event).json() for event in events]
        next(turn)
        assert [next(turn).post("/v1/forecasts", json=event).json() for event in events] == answers
        together = [worker.post("/v1/forecasts", json={"events": events}).json()["forecasts"] for worker in workers]
        assert together == [answers, answers]
        told = [{"stream": e["stream"], "id": e["id"], "outcome": 1} for e in events]
        assert next(turn).post("/v1/outcomes", json=told[0]).json() == {"status": "learnt"}
        unknown = {"stream": "s1", "id": "no", "outcome": 1}
        found = next(turn).post("/v1/outcomes", json={"events": [*told, unknown]}).json()["outcomes"]
        assert [each["id"] for each in found] == [each["id"] for each in (*told, unknown)]
        assert [each["status"] for each in found] == ["repeated", *["learnt"] * 59, "unknown"]
        # A batch is taken whole or refused whole, also one of several owners.
        new = [{"stream": f"s{i}", "id": f"new{i}", "score": 0.5} for i in range(20)]
        taken = [{"stream": stream, "id": "e5", "score": score} for stream, score in (("s5", 0.9), ("s7", 0.05))]
        for worker, event in itertools.product(workers, taken):
            answer = worker.post("/v1/forecasts", json={"events": [*new, event]})
            assert answer.status_code == 409 and answer.json()["error"]["at"] == 20
            assert answer.json()["error"]["message"].endswith("it had, got 'e5' - at event 20")
            itself = worker.post("/v1/forecasts", json={"events": [*new, new[3] | {"score": 0.6}]})
            assert itself.status_code == 409 and "must be new or have the score it had, got 'new3'" in itself.text
    assert info(url)["outcomes"] == info(url)["forecasts"] == 60
    assert replay_check(url).is_same and check(url) == []


def test_streams_that_change_hands_under_load(server: Postgres, folder: Path) -> None:
    """A worker comes and another goes; every request is answered, and nothing is done twice."""
    url, ended = server.database(), threading.Event()
    wrong: list[Any] = []
    counts = [0, 0]

    def work(me: int, http: httpx.Client) -> None:
        while not ended.is_set():
            first = counts[me]
            events = [{"stream": f"s{(first + i) % 40}", "id": f"{me}-{first + i}", "score": 0.3} for i in range(8)]
            for body in ({"events": events}, {"events": events}):  # and once more
                answer = http.post("/v1/forecasts", json=body)
                wrong.extend([] if answer.status_code == 200 else [answer.text])
            told = [{"stream": e["stream"], "id": e["id"], "outcome": 1} for e in events]
            answer = http.post("/v1/outcomes", json={"events": told})
            wrong.extend(each for each in answer.json()["outcomes"] if each["status"] not in {"learnt", "repeated"})
            counts[me] += 8

    with service(url, folder) as one:
        wait_until(lambda: shares(url) == [PARTITIONS])
        with service(url, folder) as two, ExitStack() as stack:
            threads = [threading.Thread(target=work, args=pair) for pair in enumerate((one, two))]
            for thread in threads:
                thread.start()
            stack.callback(ended.set)
            wait_until(lambda: shares(url) == [32, 32])
            with service(url, folder):
                wait_until(lambda: len(shares(url)) == 3 and sum(shares(url)) == PARTITIONS)
            wait_until(lambda: shares(url) == [32, 32])
            done = counts[0]
            wait_until(lambda: counts[0] > done + 16)
            ended.set()
            for thread in threads:
                thread.join(60)
        assert wrong == [] and min(counts) > 0
        wait_until(lambda: shares(url) == [PARTITIONS])  # the second has ended
        again = one.post("/v1/outcomes", json={"stream": "s0", "id": "1-0", "outcome": 1})
        assert again.json() == {"status": "repeated"}
    assert info(url)["forecasts"] == info(url)["outcomes"] == sum(counts)
    assert replay_check(url).is_same and check(url) == []


# ---- a router on a loop of the test ---------------------------------------------------------------------------------


class Routed:
    """A router and what it delivers."""

    def __init__(self, url: str, folder: Path, **settings: Any) -> None:
        self.engine = Engine.open(url, Settings(method="ops", **settings), member=Member.of(folder))
        self.router = Router(self.engine, url, folder)
        self.answers: asyncio.Queue[tuple[Any, Any]] = asyncio.Queue()

    async def __aenter__(self) -> Routed:
        loop = asyncio.get_running_loop()
        self.router.start(loop, lambda answers: [self.answers.put_nowait(answer) for answer in answers] and None)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.router.finish()
        self.router.stop()

    async def ask(self, *events: Any) -> Any:
        self.router.submit(0, list(events), checked=True)
        return (await asyncio.wait_for(self.answers.get(), 30))[1]


def test_an_owner_that_cannot_be_reached_is_waited_for_but_not_for_ever(
    server: Postgres, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = server.database()

    async def asking() -> None:
        with desk(url, Member.of(folder), method="ops") as silent:  # it owns everything and answers nobody
            silent.engine.turn([])
            async with Routed(url, folder) as routed:
                monkeypatch.setattr(forward, "PATIENCE", 0.2)
                refused = await routed.ask(ForecastEvent("paris", "e1", 0.5))
                assert isinstance(refused, Refusal) and (refused.code, refused.status) == ("handover", 503)
                monkeypatch.setattr(forward, "PATIENCE", 20.0)
                waiting = asyncio.create_task(routed.ask(ForecastEvent("paris", "e1", 0.5)))
                await asyncio.sleep(0.1)
                silent.close()  # as if it had died: its session is gone
                assert isinstance(await waiting, list)

    asyncio.run(asking())


def test_there_is_a_limit_to_what_waits(server: Postgres, folder: Path) -> None:
    async def asking() -> None:
        async with Routed(server.database(), folder, queue=2, queue_events=5) as routed:
            for at in range(2):
                routed.router.submit(at, [ForecastEvent("paris", f"e{at}", 0.5)], checked=True)
            with pytest.raises(Refusal, match="there must be room, got 2 events that wait - try again"):
                routed.router.submit(2, [ForecastEvent("paris", "e2", 0.5)], checked=True)
            assert {(await asyncio.wait_for(routed.answers.get(), 30))[0] for _ in range(2)} == {0, 1}
            routed.engine._stopping = True  # the engine takes nothing more
            refused = await routed.ask(OutcomeEvent("paris", "e1", 1))
            assert isinstance(refused, Refusal) and refused.code == "stopping"
            routed.engine._stopping = False
        with pytest.raises(Refusal) as caught:  # it has finished: the others must ask somebody else
            routed.router._from_guest(None, [])
        assert caught.value.code == "elsewhere"
        routed.router._from_engine([(None, [])])  # the loop may be closed by now

    asyncio.run(asking())


def test_a_folder_that_cannot_have_sockets(server: Postgres, tmp_path: Path) -> None:
    url = server.database()
    with desk(url, Member.of(tmp_path)) as owner, pytest.raises(InvalidInput, match="workers must have a folder for"):
        Router(owner.engine, url, tmp_path / ("long" * 30))


def test_a_refusal_names_the_event_of_the_whole_request() -> None:
    of_part = Refusal("conflict", "id must be new, got 'e' - at event 1", 1, 409)
    placed = forward._placed(of_part, [4, 7])
    assert (placed.message, placed.at, placed.status) == ("id must be new, got 'e' - at event 7", 7, 409)
    assert forward._placed(Refusal("full", "no room", None, 503), [4, 7]).message == "no room"
