"""Workers that own streams, on a real PostgreSQL: who has what, what changes hands, who is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from postgres import Postgres
from served import wait_until
from services import DAY, Desk, desk

from calibeat import Bank, InvalidInput
from calibeat.service.engine import Engine, Settings
from calibeat.service.operate import check, info, replay_check
from calibeat.service.operations import ForecastEvent, OutcomeEvent, Refusal
from calibeat.service.store import open_reader, open_store, owned, ownership
from calibeat.service.store.ownership import IN_SQL, PARTITIONS, Member, partition


def take_turns(*workers: Desk) -> None:
    """Until every partition has an owner, and everybody has a share."""

    def is_settled() -> bool:
        for worker in workers:
            worker.engine.look()
            worker.engine.turn([])
        mine = [worker.engine.owner.mine for worker in workers]  # type: ignore[union-attr]
        return sum(map(len, mine)) == PARTITIONS and min(map(len, mine)) >= PARTITIONS // len(workers)

    wait_until(is_settled)


def stream_of(worker: Desk) -> str:
    """A stream that a worker owns."""
    owner = worker.engine.owner
    assert owner is not None
    return next(name for name in map("s{}".format, range(1000)) if owner.owns([name]))


@contextmanager
def two(url: str, folder: Path, **settings: object) -> Iterator[tuple[Desk, Desk]]:
    """Two workers of one service, each with half of the streams."""
    with ExitStack() as stack:
        one, other = [stack.enter_context(desk(url, Member.of(folder), **settings)) for _ in range(2)]
        take_turns(one, other)
        yield one, other


def test_partitions_are_the_same_in_python_and_in_sql(server: Postgres) -> None:
    names = ["", "paris", "Zürich", "東京", "a b/c%d", *map(str, range(300))]
    with psycopg.connect(server.database()) as database:
        asked = "SELECT s.name, " + IN_SQL + " FROM unnest(%s::text[]) AS s (name)"  # noqa: S608 - our own expression
        rows = database.execute(asked, (names,)).fetchall()
    assert dict(rows) == {name: partition(name) for name in names}
    assert set(dict(rows).values()) == set(range(PARTITIONS))


def test_partitions_are_disjoint_and_complete_as_workers_come_and_go(server: Postgres, tmp_path: Path) -> None:
    url = server.database()
    with desk(url, Member.of(tmp_path)) as one:
        take_turns(one)
        assert one.engine.owner.mine == set(range(PARTITIONS))  # type: ignore[union-attr]
        with desk(url, Member.of(tmp_path)) as two, desk(url, Member.of(tmp_path)) as three:
            workers = (one, two, three)
            take_turns(*workers)
            for worker in workers:
                worker.engine.look()
                worker.engine.turn([])
            owners = [worker.engine.owner for worker in workers]
            assert sorted(p for owner in owners if owner for p in owner.mine) == list(range(PARTITIONS))
            assert sorted(len(owner.mine) for owner in owners if owner) == [21, 21, 22]
            for owner in owners:  # everybody knows who has what
                assert owner is not None and owner.owners == owners[0].owners  # type: ignore[union-attr]
                assert {p for p in range(PARTITIONS) if owner.owners[p] == owner.number} == owner.mine
        take_turns(one)  # the others have ended, and so have their locks


def test_a_stream_of_another_worker_is_given_back(server: Postgres, tmp_path: Path) -> None:
    with two(server.database(), tmp_path) as (one, other):
        heard: list[tuple[int, object]] = []
        one.engine._deliver = heard.extend
        mine, not_mine = stream_of(one), stream_of(other)
        requests = [
            (0, [ForecastEvent(mine, "a", 0.5)]),
            (1, [ForecastEvent(mine, "b", 0.5), ForecastEvent(not_mine, "c", 0.5)]),
        ]
        assert one.engine.turn(requests) == requests[:1]
        ((ticket, answer),) = heard
        assert ticket == 1 and isinstance(answer, Refusal) and (answer.code, answer.status) == ("elsewhere", 503)


def test_a_stream_that_changes_hands_goes_on_where_it_was(server: Postgres, tmp_path: Path) -> None:
    url, bank, rng = server.database(), Bank("tops"), np.random.default_rng(1)

    def work(worker: Desk, name: str, first: int) -> None:
        for at in range(first, first + 5):
            score, outcome = float(rng.random()), int(rng.random() < 0.3)
            made = bank.fold([name], [score], [np.nan])
            assert worker.ask((name, f"{name}-{at}", score)) == made.forecasts.tolist()
            assert worker.tell((name, f"{name}-{at}", outcome)) == ["learnt"]
            bank.fold([name], [np.nan], [float(outcome)], made.receipts)

    with desk(url, Member.of(tmp_path)) as one:
        take_turns(one)
        with desk(url, Member.of(tmp_path)) as other:
            names = [f"s{i}" for i in range(8)]
            for name in names:
                work(one, name, 0)
            take_turns(one, other)
            assert {stream_of(one), stream_of(other)} <= set(names)  # some have moved, some have not
            for name in names:
                owner = one if one.engine.owner.owns([name]) else other  # type: ignore[union-attr]
                work(owner, name, 100)
        take_turns(one)  # and back
        for name in names:
            work(one, name, 200)
    assert replay_check(url).is_same and check(url) == []


def test_a_worker_that_loses_its_session_can_write_nothing(server: Postgres, tmp_path: Path) -> None:
    url = server.database()
    with two(url, tmp_path) as (one, other):
        name = stream_of(one)
        one.ask((name, "e1", 0.5))
        with psycopg.connect(url) as database:
            lost = one.engine.store.connection.database.info.backend_pid
            database.execute("SELECT pg_terminate_backend(%s)", (lost,))
        take_turns(other)
        assert other.tell((name, "e1", 1)) == ["learnt"]
        with pytest.raises(one.engine.store.failures):  # which ends the process
            one.ask((name, "e2", 0.5))
        one.engine.look()
        with pytest.raises(one.engine.store.failures):
            one.engine.turn([])
    assert replay_check(url).is_same


def test_an_owner_does_not_lock_or_read_again(server: Postgres, tmp_path: Path) -> None:
    with two(server.database(), tmp_path) as (one, _):
        name = stream_of(one)
        one.ask((name, "e1", 0.5))
        store: Any = one.engine.store
        run, seen = store._run, list[str]()
        store._run = lambda statement, *more, **rest: seen.append(statement) or run(statement, *more, **rest)
        one.ask((name, "e2", 0.5))
        assert [statement for statement in seen if "SELECT" in statement and "FROM stream" in statement] == []
        assert not any("FOR UPDATE" in statement for statement in seen)


def test_each_worker_expires_and_matures_its_own(server: Postgres, tmp_path: Path) -> None:
    url = server.database()
    with two(url, tmp_path, expire=30 * DAY, mature=DAY) as (one, other):
        for worker in (one, other):
            name = stream_of(worker)
            worker.ask((name, f"{name}-a", 0.5), (name, f"{name}-b", 0.5))
            assert worker.tell((name, f"{name}-a", 1)) == ["held"]
        one.tick(2 * DAY)
        assert (one.engine.numbers.outcomes, other.engine.numbers.outcomes) == (1, 0)
        assert info(url)["outcomes"] == 1
        other.tick(40 * DAY)
        assert (other.engine.numbers.outcomes, other.engine.numbers.expired) == (1, 1)
        assert (info(url)["outcomes"], info(url)["expired"]) == (2, 1)
        one.tick(40 * DAY)
        assert info(url)["expired"] == 2
    assert replay_check(url).is_same and check(url) == []


def test_two_owners_take_the_same_id_at_the_same_time(server: Postgres, tmp_path: Path) -> None:
    url = server.database()
    with two(url, tmp_path) as (one, other):
        one.ask((stream_of(one), "e1", 0.5))
        known, store = other.engine.store.known, other.engine.store
        answers = iter([{}])  # as if both had looked at one moment
        store.known = lambda ids: next(answers, None) or known(ids)  # type: ignore[method-assign]
        (answer,) = other.engine._try([(0, [ForecastEvent(stream_of(other), "e1", 0.5)])])
        assert isinstance(answer[1], Refusal) and answer[1].status == 409
        other.ask((stream_of(other), "e2", 0.5))
    assert replay_check(url).is_same and check(url) == []


def test_a_stream_that_somebody_else_has_written_is_read_again(server: Postgres, tmp_path: Path) -> None:
    """It cannot happen as long as PostgreSQL keeps its locks. If it did, nothing would be lost."""
    url = server.database()
    with two(url, tmp_path) as (one, other):
        name = stream_of(one)
        one.ask((name, "e1", 0.5))
        other.ask((name, "e2", 0.5))  # past its own check
        with pytest.raises(one.engine.store.retries, match="streams must be as they were read, got 1 that others"):
            one.tell((name, "e1", 1))
        one.engine.forget()
        assert one.engine._try([(0, [OutcomeEvent(name, "e1", 1)])]) == [(0, ["learnt"])]
        assert other.engine._try([(0, [ForecastEvent(name, "e3", 0.5)])])
    assert replay_check(url).is_same and check(url) == []


# ---- who may share a store ------------------------------------------------------------------------------------------


def test_rows_and_ownership_do_not_mix(server: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownership, "PATIENCE", 0.1)
    monkeypatch.setattr("calibeat.service.store.postgres.PATIENCE", 0.1)
    url, other = server.database(), tmp_path / "other"
    with desk(url, Member.of(tmp_path)):
        with pytest.raises(InvalidInput, match="store must be shared by rows to be used by several, got one"):
            Engine.open(url, Settings())
        with pytest.raises(InvalidInput, match="store must be served by one service with --sharing own, got one that"):
            Engine.open(url, Settings(), member=Member.of(other))
        with pytest.raises(InvalidInput, match="store must not be in use for this"), owned(url):
            pass
        open_store(url).close()  # tokens can be made and the store can be read all the same
        open_reader(url).close()
    with desk(url), pytest.raises(InvalidInput, match="with --sharing own, got one that others write: stop them, or"):
        Engine.open(url, Settings(), member=Member.of(tmp_path))


def test_a_service_that_was_killed_does_not_keep_the_next_one_out(server: Postgres, tmp_path: Path) -> None:
    """Its sessions may end a moment after it."""
    url = server.database()
    with desk(url, Member.of(tmp_path)) as first, ExitStack() as stack:
        pid = first.engine.store.connection.database.info.backend_pid
        reader = stack.enter_context(psycopg.connect(url, autocommit=True))
        looks = iter([lambda: reader.execute("SELECT pg_terminate_backend(%s)", (pid,))])
        sleep = ownership.time.sleep

        def end_the_first(seconds: float) -> None:
            next(looks, lambda: None)()
            sleep(seconds)

        stack.enter_context(pytest.MonkeyPatch.context()).setattr(ownership.time, "sleep", end_the_first)
        with desk(url, Member.of(tmp_path / "next")) as second:
            take_turns(second)
