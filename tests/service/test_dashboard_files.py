"""What is sent to the dashboard: its files, and answers that cost no scan of the events."""

from __future__ import annotations

import sqlite3
import time

import httpx
import pytest
from served import service_here
from service_fill import Stream, fill

from calibeat.service.store import open_reader
from calibeat.service.store.queries import overview, view


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    with service_here(tmp_path_factory.mktemp("pages") / "calibeat.db") as address:
        yield address


def test_files_are_sent_once(url):
    for name in ("dashboard.js", "dashboard.css", "icon.svg", "../"):
        first = httpx.get(f"{url}/static/{name}")
        again = httpx.get(f"{url}/static/{name}", headers={"if-none-match": first.headers["etag"]})
        assert first.status_code == 200 and again.status_code == 304 and not again.content
    assert httpx.get(f"{url}/static/nothing.js").status_code == 404


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/v1/overview?order=size", "order must be one of name, events, attention"),
        ("/v1/overview?state=ill", "state must be one of silent, no outcomes, score moved, "),
        ("/v1/streams?state=ill", "state must be one of silent, no outcomes, score moved, "),
        ("/v1/overview?page=0", "page must be a whole number from 1 to "),
        ("/v1/overview?limit=3", "parameter must be one of order, search, state, page, got 'limit'"),
        ("/v1/view?span=week", "stream must be given, got none"),
        ("/v1/view?stream=paris&span=year", "span must be one of day, week, month, all, got 'year'"),
    ],
)
def test_bad_questions_are_refused_with_a_sentence(url, path, message):
    answer = httpx.get(url + path)
    assert answer.status_code == 400 and message in answer.json()["error"]["message"]


def test_a_stream_that_is_not_there_is_404(url):
    answer = httpx.get(f"{url}/v1/view?stream=nobody")
    assert answer.status_code == 404 and answer.json()["error"]["code"] == "unknown_stream"


def test_the_page_scans_no_events_and_no_states(tmp_path):
    """The overview and the view of a stream read rows of streams, roll-ups and alarms; the rest by an index."""
    store = tmp_path / "calibeat.db"
    fill(store, [Stream("paris"), Stream("rome")], 300, 10)
    reader = open_reader(str(store))
    asked = []
    reader._connection.database.set_trace_callback(asked.append)
    overview(reader, time.time())
    view(reader, time.time(), "paris")
    reader.close()
    database = sqlite3.connect(store)
    for statement in asked:
        if statement.lstrip().startswith("SELECT"):
            plan = " ".join(str(row[3]) for row in database.execute(f"EXPLAIN QUERY PLAN {statement}"))
            assert "SCAN event" not in plan.replace("SCAN event USING", "") and "SCAN e " not in plan, plan
            assert "SCAN rollup" not in plan and "SCAN b" not in plan, plan
    database.close()
