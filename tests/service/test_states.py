"""The state of each stream: reached, listed, counted, filtered and told in words, the same on both stores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import httpx
import numpy as np
import pytest
from served import service_here
from services import DAY, START, Desk, desk

from calibeat.service.alarms import LOOK_FIRST
from calibeat.service.events import CorrectionEvent, ForecastEvent, OutcomeEvent
from calibeat.service.routes import look_in_words
from calibeat.service.settings import EngineSettings
from calibeat.service.states import BASES, NEED_A_PERSON, NOTES, STATES
from calibeat.service.store import Reader, open_reader, queries
from calibeat.service.store.queries import Look, overview, view

ALARMS = {  # stream -> the alarms that are open
    "silent": ["outcomes later", "no forecasts"],
    "unheard": ["no outcomes"],
    "never": ["never an outcome"],
    "moved": ["too low", "score moved"],
    "stuck": ["score stuck"],
    "drift": ["too low from 0.2 to 0.4"],
    "late": ["outcomes later"],
    "frozen with an alarm": ["too low"],
}
STATE = {
    "silent": "silent",
    "unheard": "no outcomes",
    "never": "no outcomes",
    "in plain sight": "no outcomes",
    "moved": "score moved",
    "stuck": "score moved",
    "drift": "drifting",
    "late": "outcomes late",
    "frozen with an alarm": "frozen",
    "frozen": "frozen",
    "raw": "passthrough",
    "both": "frozen, passthrough",
    "resuming": "resuming",
    "corrected": "correcting",
    "few": "learning",
    "new": "learning",
    "recovered": "good",
    "fine": "good",
}


def feed(service: Desk, name: str, outcomes: int, pending: int = 0) -> None:
    events = [(name, f"{name}{i}", 0.5) for i in range(outcomes + pending)]
    service.ask(*events)
    if outcomes:
        service.tell(*((name, f"{name}{i}", i % 2) for i in range(outcomes)))
    service.now += 1.0


def alarm(service: Desk, name: str, what: str, ended: float | None = None) -> None:
    connection = service.engine.store.connection
    number = connection.all("SELECT number FROM stream WHERE name = ?", (name,))[0][0]
    connection.run(
        "INSERT INTO alarm (stream, time, at, since, what, page, ended) VALUES (?, ?, 0, 0, ?, 1, ?)",
        (number, service.now, what, ended),
    )


def fill(service: Desk) -> None:
    for name in STATE:
        feed(service, name, {"in plain sight": 0, "never": 0, "few": 99, "new": 0}.get(name, 120), 19)
    feed_more = [ForecastEvent("in plain sight", "one more", 0.5)]
    service.group(feed_more)
    for name in ("frozen", "frozen with an alarm", "both", "resuming"):
        service.do("freeze", name)
    service.do("passthrough", "raw")
    service.do("passthrough", "both")
    service.tell(*(("resuming", f"resuming{i}", 1) for i in range(120, 130)))
    service.engine.process([(None, [CorrectionEvent("corrected", "corrected0", 1)])])
    for name, whats in ALARMS.items():
        for what in whats:
            alarm(service, name, what)
    alarm(service, "recovered", "too low", ended=service.now)
    connection = service.engine.store.connection
    connection.run("UPDATE stream SET mode = 4 WHERE name = 'resuming'")


@pytest.fixture(scope="module")
def filled(module_url: str) -> str:
    with desk(module_url, method="ops", monitor=100_000.0) as service:
        fill(service)
    return module_url


@pytest.fixture
def reader(filled: str) -> Iterator[Reader]:
    with closing(open_reader(filled)) as made:
        yield made


# ---- reached --------------------------------------------------------------------------------------------------------


def test_every_state_but_without_monitor_is_reached() -> None:
    assert set(STATE.values()) | {"no monitor"} == set(STATES) == {*NOTES, *BASES, "no monitor"}
    assert len(NEED_A_PERSON) == 5 and NEED_A_PERSON[0] == "silent"


def test_a_stream_has_its_state_in_every_answer(reader: Reader) -> None:
    alone = {name: reader.stream(name).state for name in STATE}  # type: ignore[union-attr]
    listed = {stream.name: stream.state for stream in reader.streams(order="events")}
    shown = {row.name: row.state for row in overview(reader, START).rows}
    assert alone == listed == shown == STATE


def test_a_store_without_a_monitor_calls_nothing_good(tmp_path: Any) -> None:
    url = str(tmp_path / "a.db")
    with desk(url) as service:
        feed(service, "paris", 120)
        feed(service, "rome", 3)
    with closing(open_reader(url)) as reader:
        assert [stream.state for stream in reader.streams()] == ["no monitor", "learning"]
        assert overview(reader, START).states == {"no monitor": 1, "learning": 1}
        assert [row.name for row in overview(reader, START, state="no monitor").rows] == ["paris"]
        assert reader.streams(state="good") == [] and overview(reader, START, state="good").rows == []


def test_a_correction_that_is_applied_is_no_state(url: str) -> None:
    with desk(url, monitor=1e5) as service:
        feed(service, "paris", 120)
        service.correct(("paris", "paris0", 1))
        service.engine.corrections.do_all()
    with closing(open_reader(url)) as reader:
        assert reader.stream("paris").state == "good"  # type: ignore[union-attr]


# ---- counted and filtered -------------------------------------------------------------------------------------------


def test_states_are_counted(reader: Reader) -> None:
    expected = {state: list(STATE.values()).count(state) for state in set(STATE.values())}
    assert overview(reader, START).states == expected


@pytest.mark.parametrize("state", STATES)
def test_a_filter_gives_the_streams_of_a_state(reader: Reader, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "PAGE_ROWS", 2)
    expected = {name for name, own in STATE.items() if own == state}
    for order in queries.ORDERS:
        found: list[Any] = []
        while page := reader.streams(found[-1].name if found else None, 2, order, state=state):
            found += page
        assert {stream.name for stream in found} == expected and len(found) == len(expected)
        assert found == sorted(found, key=lambda one: one.name) or order != "name"
        first = overview(reader, START, order, state=state)
        assert first.found == len(expected)
        pages = [overview(reader, START, order, page=page, state=state) for page in range(1, first.pages + 1)]
        names = [row.name for page in pages for row in page.rows]
        assert sorted(names) == sorted(expected)


def test_a_filter_and_a_search_are_both_kept(reader: Reader) -> None:
    assert [row.name for row in overview(reader, START, search="PLAIN", state="no outcomes").rows] == ["in plain sight"]
    assert overview(reader, START, search="zzz", state="no outcomes").found == 0
    found = reader.streams(search="un", among=["un*"], state="no outcomes")
    assert [stream.name for stream in found] == ["unheard"]


# ---- what to look at first ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 3, 25])
def test_streams_that_need_a_person_come_first(reader: Reader, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "PAGE_ROWS", rows)
    pages = overview(reader, START).pages
    names = [row.name for page in range(1, pages + 1) for row in overview(reader, START, page=page).rows]
    assert sorted(names) == sorted(STATE)
    first = ["silent", "never", "unheard", "moved", "stuck", "drift", "frozen with an alarm", "late", "in plain sight"]
    assert names[0] == "silent" and set(names[1:3]) == {"never", "unheard"} and set(names[3:5]) == {"moved", "stuck"}
    assert set(names[: len(first)]) == set(first) and names[7:9] == ["late", "in plain sight"]


def test_the_first_of_them_is_told_with_the_time_since_when(reader: Reader) -> None:
    told = overview(reader, START).first
    assert told is not None and (told.stream, told.state, told.what) == ("silent", "silent", "no forecasts")
    assert told.since == reader.stream("silent").last_event  # type: ignore[union-attr]
    rows = {row.name: row for row in overview(reader, START).rows}
    assert rows["in plain sight"].since == reader.stream("in plain sight").oldest_pending  # type: ignore[union-attr]
    assert rows["moved"].what == "score moved" and rows["fine"].since is None and rows["fine"].what is None


def test_each_stream_tells_its_own(reader: Reader) -> None:
    looks = {name: view(reader, START, name).first for name in STATE}  # type: ignore[union-attr]
    assert {name for name, look in looks.items() if look} == {*ALARMS, "in plain sight"}
    assert looks["in plain sight"].what is None and looks["late"].what == "outcomes later"  # type: ignore[union-attr]


def test_nothing_is_first_where_nothing_is_wrong(url: str) -> None:
    with desk(url, monitor=1e5) as service:
        feed(service, "paris", 120)
    with closing(open_reader(url)) as reader:
        assert overview(reader, START).first is None and look_in_words(None) is None


@pytest.mark.parametrize(
    ("state", "what", "text", "do"),
    [
        ("silent", "no forecasts", "no forecast has come", "whoever "),
        ("no outcomes", "no outcomes", "no outcome has come", "the pipeline of outcomes"),
        ("no outcomes", None, "no outcome has ever come", "whether anybody sends"),
        ("no outcomes", "never an outcome", "no outcome has ever come", "whether anybody sends"),
        ("score moved", "score moved", "the score is not what it was", "the unit, the version and the inputs"),
        ("drifting", "too sure", "forecasts too sure", LOOK_FIRST["too sure"]),
        ("outcomes late", "outcomes later", "outcomes come later than they used to", "the pipeline of outcomes"),
        ("drifting", "the sum of K", "forecasts the sum of K", "its events since then"),
        ("frozen", "too low", "forecasts too low", LOOK_FIRST["too low"]),
    ],
)
def test_it_says_what_happened_and_what_to_do(state: str, what: str | None, text: str, do: str) -> None:
    told = look_in_words(Look("paris", state, what, START))
    assert told is not None and told.text == text and told.do.startswith(do)


def test_a_segment_or_a_class_is_named(url: str) -> None:
    for part, detail, words in ((-2, "country = pl", " in country = pl"), (3, "cat", " of cat"), (-1, "lower", "")):
        with desk(url, monitor=1e5) as service:
            feed(service, f"paris{part}", 120)
            alarm(service, f"paris{part}", "too low")
            service.engine.store.connection.run("UPDATE alarm SET part = ?, detail = ?", (part, detail))
        with closing(open_reader(url)) as reader:
            found = view(reader, START, f"paris{part}")
            first = overview(reader, START).first
        assert found is not None and found.first is not None and found.first.where == words and first is not None
        assert look_in_words(found.first).text == f"forecasts too low{words}"  # type: ignore[union-attr]


def test_somebody_who_looks_after_it_is_shown(url: str) -> None:
    with desk(url, monitor=1e5) as service:
        feed(service, "paris", 120)
        alarm(service, "paris", "too low")
        with closing(open_reader(url)) as reader:
            assert not overview(reader, START).rows[0].acknowledged
            assert not view(reader, START, "paris").muted  # type: ignore[union-attr]
            connection = service.engine.store.connection
            connection.run("UPDATE alarm SET acknowledged = 1.0")
            connection.run("INSERT INTO mute (streams, until, created) VALUES ('par*', ?, 0)", (START + 10.0,))
            assert overview(reader, START).rows[0].acknowledged
            assert view(reader, START, "paris").muted  # type: ignore[union-attr]
            assert not view(reader, START + 20.0, "paris").muted  # type: ignore[union-attr]


# ---- trends ---------------------------------------------------------------------------------------------------------


def test_a_trend_is_four_weeks_of_days(url: str) -> None:
    with desk(url, method="ops") as service:
        service.ask(
            ("paris", "old", 0.5, START - 40 * DAY), ("paris", "a", 0.5, START - DAY), ("paris", "b", 0.5, START)
        )
        service.tell(("paris", "a", 1))
    with closing(open_reader(url)) as reader:
        trend = overview(reader, START).rows[0].trend
        assert len(trend.forecasts) == queries.TREND_DAYS == len(trend.outcomes) == len(trend.log_loss)
        assert trend.forecasts[-2:] == [1, 1] and trend.outcomes[-2:] == [1, 0] and sum(trend.forecasts) == 2
        assert trend.log_loss[-2] == pytest.approx(np.log(2)) and trend.log_loss[-1] is None


def test_a_trend_is_kept_for_a_minute_and_only_so_many(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with desk(url) as service, closing(open_reader(url)) as reader:
        service.ask(("paris", "a", 0.5), ("rome", "a", 0.5))
        made = lambda now: overview(reader, now, "name").rows[0].trend.forecasts[-1]  # noqa: E731
        assert made(START) == 1
        service.ask(("paris", "b", 0.5))
        assert made(START + 30.0) == 1 and made(START + 61.0) == 2
        assert made(START - 5.0) == 2  # a clock that was set back
        monkeypatch.setattr(queries, "TRENDS_KEPT", 1)
        assert made(START + 200.0) == 2 and len(reader._trends) == 1


# ---- classes --------------------------------------------------------------------------------------------------------


def test_classes_are_what_the_events_say(url: str) -> None:
    rng = np.random.default_rng(0)
    scores = rng.dirichlet([3.0, 2.0, 1.0], 60)
    labels = rng.integers(3, size=60)
    with desk(url, method="auto") as service:
        made = [ForecastEvent("docs", f"e{i}", scores=(scores[i] / scores[i].sum()).tolist()) for i in range(60)]
        (told,) = service.group(made)
        service.group([OutcomeEvent("docs", f"e{i}", label=int(labels[i])) for i in range(50)])
        service.ask(("one score", "a", 0.5))
    with closing(open_reader(url)) as reader:
        found = reader.classes("docs")
        shown = view(reader, START, "docs")
        assert reader.classes("nobody") is None
        assert reader.classes("one score") is None
        assert view(reader, START, "one score").classes == []  # type: ignore[union-attr]
    assert found is not None and shown is not None and shown.classes == found
    assert [one.labels for one in found] == sorted(np.bincount(labels[:50]), reverse=True)
    issued = np.array(told)[:50]
    for one in found:
        came = (labels[:50] == one.label).astype(float)
        assert one.events == 50 and one.rate == pytest.approx(came.mean())
        assert one.mean_score == pytest.approx(scores[:50, one.label].mean())
        assert one.mean_forecast == pytest.approx(issued[:, one.label].mean())
        tenths = np.minimum(9, (issued[:, one.label] * 10).astype(int))
        gaps = [abs((issued[tenths == t, one.label] - came[tenths == t]).sum()) for t in range(10)]
        assert one.error == pytest.approx(sum(gaps) / 50) and one.raw_error > 0
        assert one.count == np.bincount(tenths, minlength=10).tolist()
        for t in range(10):
            assert (one.outcome[t] is None) == (one.forecast[t] is None) == (one.count[t] == 0)


def test_classes_without_an_outcome_are_none(url: str) -> None:
    with desk(url, method="auto") as service:
        service.group([ForecastEvent("docs", "e", scores=[0.2, 0.3, 0.5])])
    with closing(open_reader(url)) as reader:
        assert reader.classes("docs") == []


# ---- over HTTP ------------------------------------------------------------------------------------------------------


def test_states_and_classes_over_http(tmp_path: Any) -> None:
    with service_here(tmp_path / "a.db", settings=EngineSettings(method="ops")) as url:
        events = [{"stream": "paris", "id": f"e{i}", "score": 0.4} for i in range(20)]
        httpx.post(f"{url}/v1/forecasts", json={"events": events}).raise_for_status()
        httpx.post(f"{url}/v1/forecasts", json={"stream": "docs", "id": "a", "scores": [0.5, 0.3, 0.2]})
        httpx.post(f"{url}/v1/outcomes", json={"stream": "docs", "id": "a", "label": 0})
        assert httpx.get(f"{url}/v1/streams/paris").json()["state"] == "no outcomes"
        assert httpx.post(f"{url}/v1/streams/docs/freeze", json={}).json()["state"] == "frozen"
        (listed,) = httpx.get(f"{url}/v1/streams", params={"state": "frozen"}).json()["streams"]
        assert (listed["name"], listed["state"]) == ("docs", "frozen")
        classes = httpx.get(f"{url}/v1/view?stream=docs").json()["classes"]
        assert [one["label"] for one in classes] == [0, 1, 2] and classes[0]["labels"] == 1
        first = httpx.get(f"{url}/v1/overview").json()["first"]
        assert first["stream"] == "paris" and first["text"] == "no outcome has ever come"
        assert httpx.get(f"{url}/v1/view", params={"stream": "paris"}).json()["first"] == first
