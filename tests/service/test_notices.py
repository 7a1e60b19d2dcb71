"""Silence, late outcomes and a score that has moved are noticed of every stream, and survive restarts."""

from __future__ import annotations

import json
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from postgres import cut
from served import service_here, wait_until
from services import DAY, START, Desk, desk, stream_of, whole

from calibeat import InvalidInput, Notice
from calibeat.cli.main import main
from calibeat.monitor.notices import FORECASTS, OUTCOMES, WIDTH
from calibeat.monitor.silence import DEADLINE, FROM, OPEN
from calibeat.service.alarms import close_quiet, sentence
from calibeat.service.events import ForecastEvent, OutcomeEvent
from calibeat.service.maintenance import configure
from calibeat.service.notices import WORDS, Deadlines, GroupArrivals, Listener, NoticeSettings, due_at, is_over
from calibeat.service.settings import EngineSettings
from calibeat.service.store import open_connection, open_reader

HOUR = 3600.0


def past(service: Desk, days: int, *streams: str, outcomes: bool = True, late: float = 60.0) -> None:
    """A history is sent that ends two days ago: once an hour a forecast, and its outcome. Then comes one live event."""
    rng = np.random.default_rng(int(service.now))
    for stream in streams:
        made: list[Any] = []
        for at in range(24 * days):
            when, p = service.now - (days + 2) * DAY - HOUR + HOUR * at, float(rng.random())
            made.append([ForecastEvent(stream, f"{when:.0f}", p, when)])
            if outcomes:
                made.append([OutcomeEvent(stream, f"{when:.0f}", int(rng.random() < p), when + late)])
        service.group(*made)
    service.now -= HOUR
    live(service, 1, *streams, outcomes=outcomes)


def live(service: Desk, hours: int, *streams: str, outcomes: bool = True) -> None:
    """Hours in which each stream is asked once an hour, and told the outcome at once."""
    rng = np.random.default_rng(int(service.now))
    for _ in range(hours):
        service.now += HOUR
        made: list[Any] = []
        for stream in streams:
            name, p = f"{service.now:.0f}", float(rng.random())
            made.append([ForecastEvent(stream, name, p)])
            if outcomes:
                made.append([OutcomeEvent(stream, name, int(rng.random() < p))])
        service.group(*made)


def alarms(url: str, **which: Any) -> list[Any]:
    """Oldest first."""
    with closing(open_reader(url)) as reader:
        return reader.alarms(**which)[::-1]


def words(url: str, **which: Any) -> list[tuple[str, str, bool, bool]]:
    return [(each.stream, each.what, each.page, each.ended is not None) for each in alarms(url, **which)]


def test_silence_is_noticed_and_is_over_with_the_next_arrival(url: str) -> None:
    with desk(url) as service:
        service.engine.listening.begin(service.now)
        past(service, 20, "paris", "rome")
        live(service, 3, "paris", "rome")
        assert words(url) == []
        live(service, 12, "rome")
        assert words(url) == [("paris", "no forecasts", True, False), ("paris", "no outcomes", False, False)]
        found = alarms(url)[0]
        last = service.now - 12 * HOUR
        assert found.since == found.since_time == last and last + HOUR < found.at < last + 4 * HOUR
        assert stream_of(url).notice["state"] == "silent" and stream_of(url).alarms == 2
        assert sentence([found], found.since_time, None).startswith("paris: no forecasts, since about 20")
        live(service, 1, "paris", "rome")
        assert [is_over for *_, is_over in words(url)] == [True, True]
        assert alarms(url)[0].ended == service.now and words(url, open=True) == []
        assert stream_of(url).notice["state"] == "learning" and stream_of(url, "rome").notice["state"] == "learning"
    assert whole(url)


def test_it_is_the_notice_of_the_library(url: str) -> None:
    """The same row, whatever groups the events came in."""
    notice, rng = Notice(), np.random.default_rng(3)
    with desk(url) as service:
        service.engine.listening.begin(service.now)
        for at in range(200):
            requests: list[Any] = []
            for part in range(3):
                score = float(rng.random())
                requests += [[ForecastEvent("paris", f"{at}-{part}", score)]]
                notice.forecast(service.now, score)
                if part:
                    requests += [[OutcomeEvent("paris", f"{at - 1}-{part}", 1)]] if at else []
                    notice.outcome(service.now, service.now - 3600.0) if at else None
            service.group(*requests)
            service.now += 3600.0
        row = service.engine.streams["paris"].notice
        assert row == notice.row.tobytes()
        found = stream_of(url)
        assert found.notice["next_check"] == notice.deadline < 1e300 and found.notice["state"] == notice.state
        assert list(found.notice["watches"].values()) == list(notice.watches.values()) == [True, True, False, False]
        assert (
            found.watched
            and found.watching == "watched: forecasts, outcomes; not yet: the score, the delay of outcomes"
        )


def test_outcomes_that_stop_or_never_come(url: str) -> None:
    with desk(url) as service:
        service.engine.listening.begin(service.now)
        past(service, 20, "stopped")
        live(service, 2, "stopped")
        live(service, 12, "stopped", outcomes=False)
        assert words(url) == [("stopped", "no outcomes", True, False)]
        assert stream_of(url, "stopped").notice["state"] == "no outcomes"
        for day in range(8):
            service.group(*([ForecastEvent("never", f"{day}-{at}", at / 130)] for at in range(130)))
            assert words(url, stream="never") == []
            service.now += DAY
        service.tick(1.0)
        assert words(url, stream="never") == [("never", "never an outcome", True, False)]
        assert stream_of(url, "never").notice["state"] == "never an outcome"
        service.tell(("never", "0-0", 1))
        assert words(url, stream="never") == [("never", "never an outcome", True, True)]


def test_outcomes_that_come_later_and_a_score_that_has_moved(url: str) -> None:
    rng = np.random.default_rng(1)

    def go_on(service: Desk, n: int, late: float, share: float) -> None:
        requests: list[Any] = []
        for _ in range(n):
            service.now += 10.0
            name = f"{service.now:.0f}"
            requests.append([ForecastEvent("paris", name, float(rng.random()) * share, service.now - 3 * DAY)])
            requests.append([OutcomeEvent("paris", name, 1, service.now - 3 * DAY + late)])
        service.group(*requests)

    with desk(url) as service:
        service.engine.listening.begin(service.now)
        for _ in range(5):
            go_on(service, 300, 1.0, 1.0)
        assert words(url) == []
        go_on(service, 300, 50_000.0, 0.01)
        found = alarms(url)
        assert {(each.what, each.page) for each in found} == {("outcomes later", True), ("score moved", True)}
        (moved,) = (each for each in found if each.what == "score moved")
        assert moved.detail in {"lower", "narrower"} and moved.since_time == moved.since
        text = sentence([moved], None, None)
        assert f"paris: score moved ({moved.detail})." in text and "Look first at the unit" in text
        with closing(open_connection(url, write=True)) as connection:
            assert close_quiet(connection) == 0
        for _ in range(5):
            go_on(service, 2000, 50_000.0, 0.01)
        with closing(open_connection(url, write=True)) as connection:
            close_quiet(connection)
        assert words(url, open=True) == []


def test_many_classes_are_heard_by_their_largest_score(url: str) -> None:
    with desk(url) as service:
        service.group([ForecastEvent("cats", "e1", scores=[0.2, 0.7, 0.1])])
        notice = Notice()
        notice.forecast(START, 0.7)
        assert service.engine.streams["cats"].notice == notice.row.tobytes()


def test_downtime_is_no_silence(url: str) -> None:
    with desk(url) as service:
        service.engine.listening.begin(service.now)
        past(service, 20, "paris", "rome")
        live(service, 2, "paris", "rome")
        service.engine.listening.beat()
    before = stream_of(url).notice["next_check"]
    service = Desk(url)
    service.now = before + 5 * DAY  # nobody listened
    try:
        service.engine.listening.begin(service.now)
        service.tick()
        assert words(url) == []
        live(service, 2, "rome")
        assert words(url) == []
        assert stream_of(url).notice["next_check"] > before + 5 * DAY
        live(service, 3, "rome")
        assert words(url) == [("paris", "no forecasts", True, False), ("paris", "no outcomes", False, False)]
        assert stream_of(url, "rome").notice["state"] == "learning"
    finally:
        service.close()
    assert whole(url)


def test_a_silence_that_began_before_the_downtime_is_told_once(url: str) -> None:
    with desk(url) as service:
        service.engine.listening.begin(service.now)
        past(service, 20, "paris")
        live(service, 2, "paris")
        service.now += DAY / 2
        service.tick()
        assert len(words(url)) == 2
        service.engine.listening.beat()
    for _ in range(2):
        with desk(url) as service:
            service.now += 30 * DAY
            service.engine.listening.begin(service.now)
            service.tick()
            assert len(words(url, open=True)) == 2
    with desk(url) as service:
        service.now += 31 * DAY
        service.engine.listening.begin(service.now)
        live(service, 1, "paris")
        assert words(url, open=True) == [] and len(words(url)) == 2


def test_one_page_where_many_streams_fall_silent(url: str) -> None:
    streams = [f"s{at}" for at in range(30)]
    with desk(url) as service:
        service.engine.listening.begin(service.now)
        past(service, 12, *streams, outcomes=False)
        live(service, 2, *streams, outcomes=False)
        service.now += DAY
        service.tick()
        found = alarms(url)
        assert len(found) == 30 and {each.what for each in found} == {"no forecasts"}
        (page,) = [each for each in found if each.page]
        assert page.detail == "upstream: 30 of 30 streams within an hour"
        assert "(upstream: 30 of 30 streams within an hour)" in sentence(found, None, None)
        live(service, 3, *streams[:28], outcomes=False)
        service.now += DAY
        service.tick()
        assert sum(each.page for each in alarms(url)) == 2


def test_some_of_many_streams_page_for_themselves(tmp_path: Path) -> None:
    url, streams = str(tmp_path / "calibeat.db"), [f"s{at}" for at in range(30)]
    with desk(url) as service:
        service.engine.listening.begin(service.now)
        past(service, 12, *streams, outcomes=False)
        live(service, 2, *streams, outcomes=False)
        live(service, 12, *streams[3:], outcomes=False)
        live(service, 12, *streams[6:], outcomes=False)  # six of thirty in a day, but not at once
        assert [(each.page, each.detail) for each in alarms(url)] == [(True, None)] * 6


def test_a_history_that_is_sent_is_not_silent_while_it_comes(url: str) -> None:
    """Its times are days ago; only when nothing more comes for ten minutes the clock counts."""
    with desk(url) as service:
        service.engine.listening.begin(service.now)
        for day in range(15):
            first = START - 40 * DAY + day * DAY
            service.group(*([ForecastEvent("old", f"{day}-{at}", 0.5, first + at * HOUR)] for at in range(24)))
            service.tick(1.0)
        assert words(url) == []
        service.tick(700.0)
        assert words(url) == [("old", "no forecasts", True, False)]
        assert alarms(url)[0].since < START - 25 * DAY + 1.0


def test_streams_are_found_under_other_names_and_not_when_they_are_gone(url: str) -> None:
    with desk(url) as service:
        service.engine.listening.begin(service.now)
        past(service, 12, "paris", "rome", "oslo", "bern", outcomes=False)
        live(service, 2, "paris", "rome", "oslo", "bern", outcomes=False)
        service.do("rename", "paris", to="lutetia")
        service.do("delete", "rome")
        service.do("freeze", "oslo")
        service.do("copy", "oslo", to="copy")
        with closing(open_connection(url, write=True)) as connection:  # it was heard, and has left memory since
            connection.run("UPDATE stream SET deadline = ? WHERE name = 'bern'", (2.0 * START,))
        service.engine.streams.clear()
        service.now += DAY
        service.tick()
        assert sorted(words(url)) == [("lutetia", "no forecasts", True, False), ("oslo", "no forecasts", True, False)]
        service.engine.listening.list_deadlines()
        assert service.engine.listening._deadlines.first == 2.0 * START
        live(service, 1, "oslo", outcomes=False)
        assert words(url, stream="oslo") == [("oslo", "no forecasts", True, True)]
    assert whole(url)


def test_without_notice_nothing_is_heard(url: str) -> None:
    with desk(url) as service:
        service.engine.listening.begin(service.now)
        past(service, 12, "paris")
        live(service, 2, "paris")
    configure(url, notice=False)
    with desk(url, notice=False) as service:
        service.now += DAY
        service.engine.listening.begin(service.now)
        service.engine.listening.beat()
        live(service, 1, "paris")
        service.tick(DAY)
        found = stream_of(url)
        assert words(url) == [] and found.notice is None and not found.watched
        assert found.watching == "nothing is watched: no event has come while --notice or --monitor was on"
    configure(url, notice=True)
    with desk(url) as service:
        service.now += 20 * DAY
        service.engine.listening.begin(service.now)
        live(service, 1, "paris")
        assert words(url) == [] and stream_of(url).notice["state"] == "learning"
        assert not stream_of(url).watched and stream_of(url).watching.startswith(
            "nothing can be seen yet: silence takes"
        )


def test_a_row_that_is_none_is_refused() -> None:
    listener = Listener(NoticeSettings())
    with pytest.raises(InvalidInput, match="notice states must be"):
        listener.check([b"1234"])
    with pytest.raises(InvalidInput, match="finite numbers"):
        listener.check([np.full(WIDTH, np.nan).tobytes()])


def test_delays_are_without_the_time_in_which_nobody_listened() -> None:
    listener, arrivals = Listener(NoticeSettings()), GroupArrivals([0], [START], [0.5], [float("nan")])
    (row,), *_ = listener.hear([None], arrivals)
    outcome = GroupArrivals([0], [START + 1000.0], [float("nan")], [1000.0])
    (with_downtime,), *_ = listener.hear([row], outcome, [(START + 5.0, START + 985.0)], now=START + 1000.0)
    assert 20.0 in np.frombuffer(with_downtime) and 1000.0 not in np.frombuffer(with_downtime)
    (other,), *_ = listener.hear([row], outcome)
    assert 1000.0 in np.frombuffer(other)


def test_the_earliest_deadline_comes_first() -> None:
    deadlines = Deadlines()
    assert deadlines.first == float("inf") and deadlines.take(1e9, 10) == []
    deadlines.replace([(5.0, 1, "a"), (3.0, 2, "b")])
    deadlines.set(1, "a", 9.0)  # later: found out when it is asked
    deadlines.set(2, "b", 1.0)
    assert deadlines.first == 1.0 and deadlines.take(4.0, 1) == [(2, "b")] and deadlines.take(4.0, 1) == []
    assert deadlines.take(6.0, 10) == [(1, "a")]
    assert due_at(None, 1.0, is_history=True) == float("inf") and due_at(7.0, 6.0, is_history=False) == 7.0
    assert due_at(7.0, 500.0, is_history=True) == 1100.0


def test_an_import_gives_the_alarms_that_the_same_log_gave_when_it_happened(url: str, tmp_path: Path) -> None:
    lines = []
    with desk(url, method="ops") as service:
        service.engine.listening.begin(service.now)
        rng = np.random.default_rng(0)
        for hour in range(24 * 25):
            requests: list[Any] = []
            for stream in ("paris", "rome"):
                if stream == "paris" and 450 < hour < 500:
                    continue
                score, made = float(rng.random()), service.now
                requests.append([ForecastEvent(stream, f"e{hour}", score)])
                row = {"stream": stream, "id": f"e{hour}", "score": score, "time": made}
                if hour:
                    requests.append([OutcomeEvent(stream, f"e{hour - 1}", 1)])
                if hour + 1 < 600 and not (stream == "paris" and 449 < hour < 500):
                    row |= {"outcome": 1, "outcome_time": made + HOUR}
                lines.append(json.dumps(row))
            service.group(*requests)
            service.now += HOUR
    told = [(each.stream, each.at, each.since, each.what, each.page) for each in alarms(url)]
    assert [each[3] for each in told] == ["no forecasts", "no outcomes"]
    log, other = tmp_path / "log.jsonl", str(tmp_path / "other.db")
    log.write_text("\n".join(lines) + "\n")
    assert main(["store", "import", str(log), "--store", other, "--create", "--method", "ops"]) == 0
    assert [(each.stream, each.at, each.since, each.what, each.page) for each in alarms(other)] == told
    assert all(each.ended is not None for each in alarms(other))
    assert stream_of(other).notice == stream_of(url).notice
    assert main(["store", "replay", "--method", "tops", "--store", other]) == 0
    assert stream_of(other).notice == stream_of(url).notice  # when things arrived, another method does not change
    third = str(tmp_path / "third.db")
    assert main(["store", "import", str(log), "--store", third, "--create", "--method", "ops", "--no-notice"]) == 0
    assert alarms(third) == [] and stream_of(third).notice is None
    with desk(other, method=None) as service:  # from the end of the log until a service runs nobody listened
        service.now = START + 40 * DAY
        service.engine.listening.begin(service.now)
        service.tick()
        assert words(other, open=True) == []
        service.tick(DAY)
        assert len(words(other, open=True)) == 4


def test_a_running_service_asks_the_clock_by_itself(url: str) -> None:
    """Over HTTP, with the clock of the machine: a stream whose rhythm was imported, and then nothing comes."""
    now = time.time()
    with desk(url, method="ops") as service:
        service.now = now
        service.engine.listening.begin(service.now)
        past(service, 20, "paris")
        service.engine.listening.beat()
    with closing(open_connection(url, write=True)) as connection:
        connection.run("UPDATE stream SET deadline = ?", (now + 1.0,))
        row = np.frombuffer(bytes(connection.all("SELECT notice FROM body")[0][0])).copy()
        row[[FORECASTS + DEADLINE, OUTCOMES + DEADLINE]] = now + 1.0
        row[[FORECASTS + FROM, OUTCOMES + FROM]] = now + 100.0  # it knows of the restart
        connection.run("UPDATE body SET notice = ?", (row.tobytes(),))
    with service_here(url, settings=EngineSettings(method="ops")) as address, httpx.Client(base_url=address) as http:
        found = wait_until(lambda: http.get("/v1/alarms").json()["alarms"])
        assert [(each["what"], each["page"]) for each in found[::-1]] == [
            ("no forecasts", True),
            ("no outcomes", False),
        ]
        assert http.get("/v1/streams/paris").json()["notice"]["state"] == "silent"
        http.post("/v1/forecasts", json={"stream": "paris", "id": "new", "score": 0.5})
        found = http.get("/v1/alarms?open=true").json()["alarms"]
        assert [each["what"] for each in found] == ["no outcomes"]
        assert http.get("/v1/streams/paris").json()["watched"] is True
    with closing(open_connection(url)) as connection:
        assert float(dict(connection.all("SELECT name, value FROM meta"))["alive"]) > now


def test_the_time_in_which_the_database_was_away_is_no_silence(server: Any) -> None:
    """The engine ends, and the next one has not heard what came meanwhile."""
    url = server.database()
    with desk(url) as service:
        service.engine.listening.begin(service.now)
        past(service, 12, "paris")
        live(service, 2, "paris")
        service.engine.listening.beat()
        now = service.now
        cut(service.engine)
        with pytest.raises(service.engine.store.failures):
            live(service, 1, "paris")
    for away, downtimes in ((3 * DAY, 1), (0.0, 1)):  # for long, and for a moment
        with desk(url) as service:
            service.now = now = now + away
            service.engine.listening.begin(now)
            assert len(service.engine.listening._downtimes) == downtimes
            service.tick()
            assert words(url) == []
            service.engine.listening.beat()
    with desk(url) as service:
        service.now = now
        service.engine.listening.begin(now)
        service.tick(DAY)
        assert len(words(url)) == 2


def test_what_is_done_between_groups(url: str) -> None:
    with desk(url) as service:
        service.engine.listening.begin(service.now)
        live(service, 1, "paris")
        service.now += 1000.0
        service.engine.listening._next_beat = -float("inf")
        service.engine._turn([])
        with closing(open_connection(url)) as connection:
            assert float(dict(connection.all("SELECT name, value FROM meta"))["alive"]) == service.now
        # A stream of this name that is another one, as after a deletion.
        engine = service.engine
        assert list(engine.listening.still_overdue({-5: "paris"}, service.now, engine.streams)) == []


def test_an_alarm_is_over_by_the_row_of_its_stream() -> None:
    fresh = NoticeSettings().initial_row().tobytes()
    assert all(is_over(what, None) and is_over(what, fresh) for what in WORDS)
    row = np.frombuffer(fresh).copy()
    row[FORECASTS + OPEN] = 1.0
    assert not is_over("no forecasts", row.tobytes()) and is_over("no outcomes", row.tobytes())
