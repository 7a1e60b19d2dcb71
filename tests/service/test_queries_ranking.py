"""Lists of streams: every order, page by page, from indexes alone; and how the order is kept up to date."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from services import DAY, START, Desk, desk, has_scan, plans_of

from calibeat.service.engine import Engine, EngineSettings
from calibeat.service.events import ForecastEvent
from calibeat.service.maintenance import rebuild
from calibeat.service.store import Reader, open_connection, open_reader, queries
from calibeat.service.store.queries import ORDERS

STREAMS = 60


@pytest.fixture(scope="module")
def listed(module_url: str) -> str:
    """Streams with many ties, of which some had alarms."""
    rng = np.random.default_rng(4)
    with desk(module_url, method="ops") as service:
        for at in range(STREAMS):
            events = [(f"s{at:02d}", f"{at}-{i}", 0.5) for i in range(int(rng.integers(1, 4)))]
            service.ask(*events)
            service.tell(*[(*event[:2], int(rng.integers(2))) for event in events[: int(rng.integers(4))]])
            service.now += float(rng.integers(2))
        service.ask(*[("s07", f"many{i}", 0.5) for i in range(150)])
        service.tell(*[("s07", f"many{i}", int(i % 3 == 0)) for i in range(140)])
        connection = service.engine.store.connection
        for at, alarms in ((3, 1), (50, 2), (51, 2), (52, 0), (9, 1)):
            number = connection.all("SELECT number FROM stream WHERE name = ?", (f"s{at:02d}",))[0][0]
            connection.run("UPDATE stream SET alarms = ?, version = version + 1 WHERE number = ?", (alarms, number))
            for _ in range(alarms):
                connection.run(
                    "INSERT INTO alarm (stream, time, at, since, what, page) VALUES (?, ?, 1, 0.0, 'x', 1)",
                    (number, START - (8 * DAY if at == 9 else 0.0)),
                )
    rebuilt = open_connection(module_url, write=True)
    queries.refresh_ranking(rebuilt)
    rebuilt.close()
    return module_url


@pytest.fixture
def reader(listed: str) -> Iterator[Reader]:
    with closing(open_reader(listed)) as made:
        yield made


def cost(row: Any) -> float:
    return 0.0 if row.error is None else -row.error * row.error * row.outcomes


def judged(row: Any) -> tuple[float, ...]:
    if row.error is None:
        return (2, 0.0)
    return (0, -row.error) if row.outcomes >= queries.ENOUGH_OUTCOMES else (1, -row.error)


EXPECTED: dict[str, Any] = {
    "name": lambda row: row.name,
    "events": lambda row: (-row.events, row.name),
    "pending": lambda row: (-row.pending, row.name),
    "alarms": lambda row: (-row.alarms, row.name),
    "error": lambda row: (judged(row), row.name),
    "recent": lambda row: (-row.last_event, row.name),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("limit", [7, 1000])
def test_every_order_page_by_page(reader: Reader, order: str, limit: int) -> None:
    found: list[Any] = []
    while page := reader.streams(found[-1].name if found else None, limit, order):
        found += page
    assert len(found) == STREAMS and found == sorted(found, key=EXPECTED[order])


FRESH: dict[str, Any] = {
    # All alarms are open, and of one kind.
    "attention": lambda row: (row.state != "drifting", row.state != "no outcomes", cost(row), -row.pending, row.name),
    "alarms": lambda row: (-row.fresh_alarms, -row.alarms, row.name),
}


@pytest.mark.parametrize("order", queries.PAGE_ORDERS)
@pytest.mark.parametrize("search", ["", "S0"])
@pytest.mark.parametrize("rows", [2, 3, 25])
def test_every_order_of_the_dashboard_page_by_page(
    reader: Reader, order: str, search: str, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "PAGE_ROWS", rows)
    first = queries.overview(reader, START, order, search)
    assert first.found == (10 if search else STREAMS) and first.fresh_alarms == 5
    pages = [queries.overview(reader, START, order, search, page) for page in range(1, first.pages + 1)]
    found = [row for page in pages for row in page.rows]
    assert len(found) == first.found and found == sorted(found, key={**EXPECTED, **FRESH}[order])


# ---- no scan --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("after", [None, "s07"])
def test_no_page_scans_or_sorts_streams(reader: Reader, listed: str, order: str, after: str | None) -> None:
    plans = plans_of(reader, listed, lambda: reader.streams(after, 10, order))
    assert plans and not any(map(has_scan, plans)), plans
    assert f"ranking_{order}" in plans[-1] or order == "name", plans


@pytest.mark.parametrize("order", queries.PAGE_ORDERS)
@pytest.mark.parametrize("page", [1, 3])
def test_no_page_of_the_dashboard_scans_or_sorts_streams(
    reader: Reader, listed: str, order: str, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "PAGE_ROWS", 5)
    plans = plans_of(reader, listed, lambda: queries.overview(reader, START, order, page=page))
    # Streams with alarms are found in the table of alarms, and are sorted: they are few. So are the days of a page.
    bad = [plan for plan in plans if has_scan(plan, sorts=not ("alarm" in plan or "rollup" in plan))]
    assert not bad, bad
    assert any(f"ranking_{order}" in plan for plan in plans), plans


def test_a_plan_that_scans_is_noticed(reader: Reader, listed: str) -> None:
    for bad in ("SELECT count(events) FROM stream s", "SELECT name FROM stream s WHERE name > '' ORDER BY events"):
        plans = plans_of(reader, listed, lambda bad=bad: reader.select(bad))
        assert len(plans) == 1 and has_scan(plans[0]), plans


# ---- kept up to date ------------------------------------------------------------------------------------------------


def names(url: str, order: str = "events") -> list[str]:
    with closing(open_reader(url)) as reader:
        return [stream.name for stream in reader.streams(order=order)]


def written(service: Desk, *events: tuple[Any, ...]) -> None:
    """Forecasts that the lists do not know yet."""
    service.engine.process([(0, [ForecastEvent(*event) for event in events])])


def test_streams_are_ranked_in_pieces(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibeat.service.store.queries.RANKED_AT_ONCE", 2)
    with desk(url) as service:
        written(service, ("a", "a1", 0.5), ("b", "b1", 0.5), ("c", "c1", 0.5))
        assert names(url) == [] and names(url, "name") == ["a", "b", "c"]  # names are always there
        service.engine.rank()
        assert names(url) == ["a", "b"]
        service.engine.rank()
        assert names(url) == ["a", "b", "c"]
        written(service, ("c", "c2", 0.5))
        service.engine.rank()
        assert names(url) == ["c", "a", "b"]


def test_what_a_killed_process_left_is_ranked_by_the_next(url: str) -> None:
    with desk(url) as service:
        service.ask(("a", "a1", 0.5), ("b", "b1", 0.5))
        written(service, ("b", "b2", 0.5), ("c", "c1", 0.5))
        assert names(url) == ["a", "b"]
    with desk(url):
        assert names(url) == ["b", "a", "c"]


def test_a_clean_stop_leaves_nothing_to_do(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine.open(url, EngineSettings(method="tops"))
    engine.submit(0, [ForecastEvent("a", "a1", 0.5)])
    engine.start(lambda _: None)
    engine.stop()
    assert names(url) == ["a"]

    def unneeded(_: Any) -> None:
        raise AssertionError("nothing must be left")

    monkeypatch.setattr(queries, "refresh_ranking", unneeded)
    with desk(url):
        pass


def test_a_stop_does_not_wait_for_many(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibeat.service.store.queries.RANKED_AT_ONCE", 1)
    engine = Engine.open(url, EngineSettings(method="tops"))
    engine.submit(0, [ForecastEvent(f"s{at}", f"e{at}", 0.5) for at in range(50)])
    engine.start(lambda _: None)
    engine.stop()
    assert len(names(url)) < 50
    with desk(url):  # the next one does the rest
        assert len(names(url)) == 50


def test_a_command_ranks_what_it_changes(url: str) -> None:
    with desk(url) as service:
        written(service, ("a", "a1", 0.5))
    rebuild(url)
    assert names(url) == ["a"]
    with closing(open_connection(url)) as connection:
        assert queries.is_ranking_whole(connection)


def test_the_thread_ranks_when_nobody_comes(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibeat.service.store.queries.QUIET_SECONDS", 0.01)
    monkeypatch.setattr("calibeat.service.store.queries.RANK_SECONDS", 1e9)
    engine = Engine.open(url, EngineSettings(method="tops"))
    engine.start(lambda _: None)
    for name in ("a", "b", "c"):
        engine.submit(0, [ForecastEvent(name, name, 0.5)])
    end = time.monotonic() + 60.0
    while names(url) != ["a", "b", "c"] and time.monotonic() < end:
        time.sleep(0.01)
    assert names(url) == ["a", "b", "c"]
    engine.stop()


def test_a_stream_that_others_rank_at_the_same_time_is_ranked_later(tmp_path: Path) -> None:
    url = str(tmp_path / "a.db")
    with desk(url) as service:
        written(service, ("a", "a1", 0.5))
        store = service.engine.store
        store.retries, real = (ValueError,), store.alone

        def busy(*_: Any) -> None:
            raise ValueError("overtaken")

        store.alone = busy  # type: ignore[method-assign]
        service.engine.rank()
        assert names(url) == []
        store.alone = real  # type: ignore[method-assign]
        service.engine.rank()
        assert names(url) == ["a"]


def test_an_older_state_does_not_take_the_place_of_a_later_one(server: Any) -> None:
    url = server.database()
    with desk(url) as one, desk(url) as two:
        written(one, ("a", "a1", 0.5), ("b", "b1", 0.5))
        written(two, ("b", "b2", 0.5))
        two.engine.rank()
        one.engine.rank()
        assert names(url) == ["b", "a"]
