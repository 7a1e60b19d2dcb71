"""What the pages read: streams in every order, reliability, history, delays, alarms, totals and tokens."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from services import DAY, START, Desk, desk

from calibeat import InvalidInput, metrics
from calibeat.service.store import Reader, open_reader


@pytest.fixture
def service(url: str) -> Iterator[Desk]:
    with desk(url) as made:
        yield made


@pytest.fixture
def reader(url: str, service: Desk) -> Iterator[Reader]:
    assert service.engine.store is not None  # the store is there before anybody reads it
    made = open_reader(url)
    yield made
    made.close()


def test_an_empty_store(reader: Reader) -> None:
    assert reader.streams() == [] and reader.alarms() == []
    assert reader.stream("no") is reader.history("no") is reader.reliability("no") is reader.delays("no") is None
    totals = reader.totals()
    assert (totals.streams, totals.events, totals.oldest_pending, totals.log_loss) == (0, 0, None, None)
    reader.ping()


def test_a_stream_in_numbers(service: Desk, reader: Reader) -> None:
    service.ask(("paris", "e1", 0.83), ("paris", "e2", 0.2))
    service.now += 5.0
    service.ask(("paris", "e3", 0.4))
    told = service.ask(("paris", "e1", 0.83), ("paris", "e2", 0.2))
    service.tell(("paris", "e1", 1))
    found = reader.stream("paris")
    assert found is not None
    assert (found.events, found.outcomes, found.pending, found.oldest_pending) == (3, 1, 2, START)
    assert found.last_event == START + 5.0
    assert found.raw_log_loss == pytest.approx(metrics.log_loss([1], [0.83]))
    assert found.log_loss == pytest.approx(metrics.log_loss([1], [told[0]]))
    assert found.raw_error == pytest.approx(0.17) and found.error == pytest.approx(1.0 - told[0])
    assert set(found.params) == {"a", "b"}
    totals = reader.totals()
    assert (totals.streams, totals.events, totals.outcomes, totals.pending) == (1, 3, 1, 2)
    assert totals.oldest_pending == START and totals.raw_log_loss == pytest.approx(found.raw_log_loss)


def test_streams_are_found_in_every_order_page_by_page(service: Desk, reader: Reader) -> None:
    for at, name in enumerate(["delta", "alpha", "100%", "b_ta"]):
        service.ask(*[(name, f"{name}{i}", 0.5) for i in range(at + 1)])
        service.now += 1.0
    service.tell(("alpha", "alpha0", 0), ("alpha", "alpha1", 0))
    names = {order: [s.name for s in reader.streams(order=order)] for order in ("name", "events", "attention")}
    assert names["name"] == ["100%", "alpha", "b_ta", "delta"]
    assert names["events"] == ["b_ta", "100%", "alpha", "delta"]
    assert names["attention"] == ["alpha", "b_ta", "100%", "delta"]
    for order, expected in names.items():
        pages, after = [], None
        while page := reader.streams(after, 3, order):
            pages += [stream.name for stream in page]
            after = page[-1].name
        assert pages == expected
    assert [s.name for s in reader.streams(search="a", order="events")] == ["b_ta", "alpha", "delta"]
    assert [s.name for s in reader.streams(search="%")] == ["100%"]
    assert [s.name for s in reader.streams(search="b_")] == ["b_ta"]
    assert reader.streams(search="\\") == []
    assert reader.streams("nothing", order="events")  # an unknown name is the start
    with pytest.raises(InvalidInput, match="order must be one of name"):
        reader.streams(order="size")


def test_reliability_and_history_are_sums_of_events(service: Desk, reader: Reader) -> None:
    service.play(200, streams=1)
    rows = service.engine.store.connection.all(
        "SELECT e.time, o.x, o.told, e.outcome FROM event e JOIN op o ON o.position = e.position "
        "WHERE e.outcome IS NOT NULL ORDER BY e.time"
    )
    found = reader.reliability("s0")
    assert found is not None
    for bins, column in ((found.raw, 1), (found.calibrated, 2)):
        for one in bins:
            own = [row for row in rows if min(9, int(10 * row[column])) == one.tenth]
            assert one.count == len(own)
            assert one.sum_p == pytest.approx(sum(row[column] for row in own))
            assert one.sum_y == sum(row[3] for row in own)
    hours = reader.history("s0")
    assert hours is not None and sum(hour.forecasts for hour in hours) == 200 and len(hours) > 2
    assert sum(hour.outcomes for hour in hours) == len(rows)
    assert sum(hour.sum_score for hour in hours) == pytest.approx(sum(row[1] for row in rows))
    assert sum(hour.log_loss for hour in hours) == pytest.approx(reader.totals().log_loss * len(rows))  # type: ignore[operator]
    middle = hours[1].start
    early, late = reader.history("s0", end=middle - 1.0), reader.history("s0", start=middle)
    assert early == hours[:1] and late == hours[1:]
    half = reader.reliability("s0", start=middle, end=hours[-1].start)
    assert half is not None and sum(b.count for b in half.raw) == sum(hour.outcomes for hour in hours[1:])
    delays = reader.delays("s0")
    assert delays is not None and sum(delay.count for delay in delays) == len(rows)
    service.tick(DAY)


def test_the_version_changes_with_every_commit_and_only_then(service: Desk, reader: Reader) -> None:
    seen = [reader.version()]
    assert reader.version() == seen[0]
    for name in ("e1", "e2"):
        service.ask(("paris", name, 0.5))
        assert reader.version() not in seen
        seen.append(reader.version())
    service.ask(("paris", "e1", 0.5))  # a repeat changes nothing
    assert reader.streams()[0].events == 2


def test_tokens(reader: Reader) -> None:
    reader.tokens.add("bot", "write", "hash-1")
    reader.tokens.add("page", "read", "hash-2")
    with pytest.raises(InvalidInput, match="token must have a name of its own, got 'bot', which is taken"):
        reader.tokens.add("bot", "read", "hash-3")
    assert reader.tokens.revoke("bot") and not reader.tokens.revoke("bot") and not reader.tokens.revoke("no")
    found = [(token.name, token.scope, token.hash, token.revoked is None) for token in reader.tokens.list()]
    assert found == [("bot", "write", "hash-1", False), ("page", "read", "hash-2", True)]
