"""The first screen's numbers: ranked streams, searched, page by page; alarms with their times."""

from __future__ import annotations

import pytest
from services import DAY, START, desk

from calibeat.errors import InvalidInput
from calibeat.service.store import open_reader
from calibeat.service.store.queries import PAGE_ROWS, overview


@pytest.fixture(scope="module")
def reader(module_url):
    """Three streams: much pending, badly calibrated, and one that has raised an alarm."""
    with desk(module_url, method="ops") as service:
        service.ask(*(("waiting", f"w{i}", 0.5) for i in range(60)))
        service.tell(("waiting", "w0", 1))
        service.now += 10.0
        service.ask(*(("wrong", f"x{i}", 0.9) for i in range(200)))
        service.tell(*(("wrong", f"x{i}", 0) for i in range(200)))
        service.now += 10.0
        service.ask(*(("Loud_100%", f"l{i}", 0.5) for i in range(120)))
        service.tell(*(("Loud_100%", f"l{i}", i % 2) for i in range(110)))
        connection = service.engine.store.connection
        number = connection.all("SELECT number FROM stream WHERE name = ?", ("Loud_100%",))[0][0]
        connection.run(
            "INSERT INTO alarm (stream, time, at, since, what, page) VALUES (?, ?, 100, 90.5, 'too sure', 1)",
            (number, service.now),
        )
    opened = open_reader(module_url)
    yield opened
    opened.close()


def names(found):
    return [row.name for row in found.rows]


def test_a_store_without_events_is_all_zeros(url):
    with desk(url):
        pass
    reader = open_reader(url)
    found = overview(reader, START)
    reader.close()
    assert (found.streams, found.events, found.pending, found.fresh_alarms) == (0, 0, 0, 0)
    assert found.rows == [] and found.alarms == [] and found.error is None and found.oldest_pending is None
    assert (found.page, found.pages, found.method, found.monitored) == (1, 1, "tops", False)


def test_the_store_in_numbers(reader):
    found = overview(reader, START + 20)
    assert (found.streams, found.events, found.outcomes, found.pending) == (3, 380, 311, 69)
    assert found.oldest_pending == START and found.fresh_alarms == 1
    weighted = sum(row.error * row.outcomes for row in found.rows) / 311
    assert found.error == pytest.approx(weighted) and found.raw_error > 0.5


def test_each_row_is_what_the_reader_says_of_the_stream(reader):
    for row in overview(reader, START + 20).rows:
        info = reader.stream(row.name)
        same = "events outcomes pending oldest_pending last_event error raw_error log_loss raw_log_loss"
        for field in same.split():
            assert getattr(row, field) == getattr(info, field), field


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("attention", ["Loud_100%", "wrong", "waiting"]),
        ("events", ["wrong", "Loud_100%", "waiting"]),
        ("name", ["Loud_100%", "waiting", "wrong"]),
    ],
)
def test_streams_are_ranked(reader, order, expected):
    assert names(overview(reader, START + 20, order)) == expected


def test_an_alarm_ranks_first_as_long_as_it_is_open(reader):
    assert names(overview(reader, START + 20 + 8 * DAY))[0] == "Loud_100%"
    assert overview(reader, START + 20 + 8 * DAY).fresh_alarms == 0


@pytest.mark.parametrize(
    ("search", "expected"),
    [("W", {"waiting", "wrong"}), ("loud", {"Loud_100%"}), ("_100%", {"Loud_100%"}), ("%g", set()), ("\\", set())],
)
def test_a_search_is_a_part_of_the_name_and_no_pattern(reader, search, expected):
    found = overview(reader, START, search=search)
    assert set(names(found)) == expected and found.found == len(expected) and found.streams == 3


def test_pages_hold_25_streams_and_the_last_one_is_the_last(url):
    with desk(url) as service:
        service.ask(*((f"s{i:03d}", f"e{i}", 0.5) for i in range(2 * PAGE_ROWS + 3)))
    reader = open_reader(url)
    second, beyond = overview(reader, START, "name", page=2), overview(reader, START, "name", page=99)
    reader.close()
    assert names(second)[0] == f"s{PAGE_ROWS:03d}" and len(second.rows) == PAGE_ROWS and second.pages == 3
    assert beyond.page == 3 and len(beyond.rows) == 3


def test_an_alarm_says_since_when(reader):
    (alarm,) = overview(reader, START).alarms
    assert (alarm.stream, alarm.what, alarm.at, alarm.since, alarm.page) == ("Loud_100%", "too sure", 100, 90.5, True)
    assert alarm.since_time == START + 20.0


def test_another_order_is_refused(reader):
    with pytest.raises(InvalidInput, match=r"order must be one of name, .* got 'size'"):
        overview(reader, START, "size")
