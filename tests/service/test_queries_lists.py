"""The whole store in a few numbers, and lists of streams: every order, search and state, page by page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from services import DAY, START, desk

from calibeat import Bank
from calibeat.service.events import ForecastEvent, OutcomeEvent
from calibeat.service.maintenance import check, prune, rebuild
from calibeat.service.store import Reader, open_reader, queries
from calibeat.service.store.queries import ORDERS, Totals
from calibeat.service.transfer import import_bank

STREAMS = 61
COUNTS = ("events", "outcomes", "pending", "held", "expired", "alarms")


def totals(url: str) -> Totals:
    """Those of the store, which are what its streams add up to."""
    with closing(open_reader(url)) as reader:
        found, streams = reader.totals(), reader.streams(limit=1000)
    assert found.streams == len(streams)
    for name in COUNTS:
        assert getattr(found, name) == sum(getattr(stream, name) for stream in streams), name
    for name in ("raw_log_loss", "log_loss"):
        sums = [getattr(stream, name) * stream.outcomes for stream in streams if stream.outcomes]
        assert (getattr(found, name) or 0.0) * found.outcomes == pytest.approx(sum(sums))
    assert check(url) == []
    return found


def test_totals_are_those_of_the_streams(url: str) -> None:
    with desk(url, mature=600.0, expire=3000.0, monitor=100.0) as service:
        assert totals(url) == Totals(0, 0, 0, 0, 0, 0, 0, None, None, None)
        service.play(120)
        found = totals(url)
        assert (found.streams, found.events) == (3, 120) and found.held > 0 and found.expired > 0
        service.now += 700.0
        service.ask(("late", "l0", 0.5), ("late", "l1", 0.5))
        service.now += 700.0
        service.tell(("late", "l0", 1), ("late", "l1", 1))
        service.correct(("late", "l0", 0), ("late", "l1", 0))
        assert service.engine.corrections.do_all() == 2
        before = totals(url)
        assert before.outcomes > 90
        assert service.forget("late", "l1") == 1
        assert (totals(url).events, totals(url).outcomes) == (122, before.outcomes - 1)  # it was forecast, all the same
        now = service.now
    rebuild(url)
    assert totals(url).outcomes == before.outcomes - 1
    assert prune(url, DAY, now=now + 10 * DAY) > 0
    assert totals(url).outcomes == before.outcomes - 1


def test_alarms_count(url: str) -> None:
    with desk(url, method="ops", monitor=100.0) as service:
        for first in range(0, 2000, 50):
            events = range(first, first + 50)
            service.group(
                [ForecastEvent("wrong", f"w{at}", 0.1) for at in events],
                [OutcomeEvent("wrong", f"w{at}", int(at > 1500 or at % 9 == 0)) for at in events],
            )
        assert totals(url).alarms >= service.engine.counters.alarms > 0
    rebuild(url)  # monitors begin anew
    assert totals(url).alarms == 0


def test_an_imported_bank_counts(url: str, tmp_path: Path) -> None:
    bank = Bank("tops")
    bank.run(["a", "b", "b"], [0.5, 0.6, 0.7], [1, 0, 1])
    bank.save(tmp_path / "a.bank")
    with desk(url) as service:
        service.play(20)
    before = totals(url)
    import_bank(url, tmp_path / "a.bank")
    found = totals(url)
    assert found.streams == before.streams + 2 and found.outcomes == before.outcomes + 3
    with desk(url) as service:
        service.ask(("a", "e1", 0.5))
        service.tell(("a", "e1", 1))
    assert totals(url).outcomes == before.outcomes + 4


def test_a_wrong_loss_is_noticed(url: str) -> None:
    with desk(url) as service:
        service.play(20, streams=1)
        service.engine.store.connection.run("UPDATE stream SET log_loss = log_loss + 0.5")
    assert check(url) == ["stream 's0': its log-losses must be those of its sums, got others"]


# ---- lists ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def listed(module_url: str) -> str:
    """Streams with many ties, of which some have alarms and one is frozen."""
    rng = np.random.default_rng(4)
    with desk(module_url, method="ops") as service:
        for at in range(STREAMS - 1):
            events = [(f"s{at:02d}", f"{at}-{i}", 0.5) for i in range(int(rng.integers(1, 4)))]
            service.ask(*events)
            service.tell(*[(*event[:2], int(rng.integers(2))) for event in events[: int(rng.integers(4))]])
        service.ask(*[("s07", f"many{i}", 0.5) for i in range(150)])
        service.tell(*[("s07", f"many{i}", int(i % 3 == 0)) for i in range(140)])
        service.ask(*[("s60", f"never{i}", 0.5) for i in range(30)])
        service.do("freeze", "s09")
        connection = service.engine.store.connection
        for at, what in (
            (3, "too low"),
            (50, "no forecasts"),
            (51, "too sure"),
            (52, "raw score too low"),
            (9, "too low"),
        ):
            number = connection.all("SELECT number FROM stream WHERE name = ?", (f"s{at:02d}",))[0][0]
            connection.run(
                "INSERT INTO alarm (stream, time, at, since, what, page) VALUES (?, ?, 1, 0.0, ?, 1)",
                (number, START, what),
            )
    return module_url


@pytest.fixture
def reader(listed: str) -> Iterator[Reader]:
    with closing(open_reader(listed)) as made:
        yield made


def attention(row: Any) -> tuple[Any, ...]:
    """A frozen stream with an open alarm stands where its alarm puts it."""
    words = {"s50": 1, "s03": 4, "s51": 4, "s09": 4}
    cost = 0.0 if row.error is None else -row.error * row.error * row.outcomes
    return words.get(row.name, 98 if row.state == "no outcomes" else 99), cost, -row.pending, row.name


EXPECTED: dict[str, Any] = {
    "name": lambda row: row.name,
    "events": lambda row: (-row.events, row.name),
    "attention": attention,
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("limit", [7, 1000])
def test_every_order_page_by_page(reader: Reader, order: str, limit: int) -> None:
    found: list[Any] = []
    while page := reader.streams(found[-1].name if found else None, limit, order):
        found += page
    assert len(found) == STREAMS and found == sorted(found, key=EXPECTED[order])


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("search", ["", "S0"])
@pytest.mark.parametrize("rows", [2, 25])
def test_every_order_of_the_dashboard_page_by_page(
    reader: Reader, order: str, search: str, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "PAGE_ROWS", rows)
    first = queries.overview(reader, START, order, search)
    assert first.found == (10 if search else STREAMS)
    pages = [queries.overview(reader, START, order, search, page) for page in range(1, first.pages + 1)]
    found = [row for page in pages for row in page.rows]
    assert len(found) == first.found and found == sorted(found, key=EXPECTED[order])


@pytest.mark.parametrize("order", ORDERS)
def test_a_list_of_a_state_has_the_streams_that_are_counted(reader: Reader, order: str) -> None:
    every, counted = reader.streams(limit=1000, order=order), queries.overview(reader, START).states
    assert Counter(stream.state for stream in every) == counted and len(counted) >= 6
    for state in counted:
        assert reader.streams(limit=1000, order=order, state=state) == [s for s in every if s.state == state]
        found = queries.overview(reader, START, order, state=state)
        assert found.found == counted[state] and {row.state for row in found.rows} == {state}
    assert reader.streams(state="correcting", order=order) == []


def test_the_other_way_round(reader: Reader) -> None:
    """What a list says of a stream is what the stream says."""
    for row in reader.streams(limit=1000):
        one = reader.stream(row.name)
        assert one is not None and all(
            getattr(row, name) == getattr(one, name) for name in (*COUNTS, "state", "log_loss")
        )
