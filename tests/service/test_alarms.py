"""One cause is one message. Alarms are open or over, acknowledged, muted: over HTTP and from the command line."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from receivers import Receiver
from served import service_here, wait_until
from services import desk

from calibeat.cli.main import main
from calibeat.core.groups import LOG_E
from calibeat.hosts.groups import SLOT
from calibeat.monitor.bets import ALARM_AT, ALARMS, N, Settings
from calibeat.service.alarms import AlarmKeeper, SegmentWatch, _of_pair, close_quiet, is_quiet, sentence
from calibeat.service.events import ForecastEvent, OutcomeEvent, StreamSettings
from calibeat.service.settings import EngineSettings
from calibeat.service.store import open_connection, open_reader, open_store
from calibeat.service.watch import SEGMENT
from calibeat.service.webhook import Webhook, WebhookFormat


def monitor_bytes(outcomes: int, last: int) -> bytes:
    """A monitor that has read so many outcomes, with an alarm at one of them."""
    row = np.zeros(Settings(1e6).width + 1)
    row[N], row[:-1][ALARM_AT], row[:-1][ALARMS] = outcomes, last, 1.0
    return row.tobytes()


def raise_alarms(url: str, names: list[str], *, what: str = "too sure", page: int = 1, at: float | None = None) -> None:
    """One alarm in each stream, at about the same time, as the engine writes them."""
    with closing(open_connection(url, write=True)) as connection:
        for name in names:
            connection.run(
                "INSERT INTO stream (number, name, events) "
                "SELECT coalesce(max(number), 0) + 1, ?, 1 FROM stream WHERE true ON CONFLICT (name) DO NOTHING",
                (name,),
            )
            connection.run(
                "INSERT INTO body (stream, monitor) SELECT number, ? FROM stream WHERE name = ? "
                "ON CONFLICT (stream) DO NOTHING",
                (monitor_bytes(70, 70), name),
            )
            connection.run(
                "INSERT INTO alarm (stream, time, at, since, what, page) "
                "SELECT number, ?, 70, 40, ?, ? FROM stream WHERE name = ?",
                (time.time() - 3600.0 if at is None else at, what, page, name),
            )


def go_on(url: str, outcomes: int) -> None:
    """All streams read outcomes without an alarm."""
    with closing(open_connection(url, write=True)) as connection:
        connection.run("UPDATE body SET monitor = ?", (monitor_bytes(outcomes, 70),))
        close_quiet(connection)


@contextmanager
def sending(url: str, kind: WebhookFormat = "json") -> Iterator[Receiver]:
    """A webhook that is quick."""
    with Receiver() as receiver:
        hook = Webhook(url, receiver.url, None, pause=0.01, kind=kind, page="https://calibration.example")
        hook._with_connection(hook._begin)
        receiver.hook = hook  # type: ignore[attr-defined]
        try:
            yield receiver
        finally:
            hook.stop()


def start(receiver: Any) -> None:
    receiver.hook.start()


def bodies(receiver: Receiver) -> list[Any]:
    return [json.loads(body) for _, body in receiver.taken]


@pytest.fixture
def store(url: str) -> str:
    open_store(url).close()
    return url


FORTY = [f"s{at:02}" for at in range(40)]


def test_one_cause_in_forty_streams_is_one_message_and_one_more_when_it_is_over(store: str) -> None:
    with sending(store) as receiver:
        raise_alarms(store, FORTY[:30])
        raise_alarms(store, FORTY[30:], what="too low")
        raise_alarms(store, FORTY, page=0)
        start(receiver)
        wait_until(lambda: len(receiver.taken) == 2)
        page, follow_up = bodies(receiver)
        assert (page["streams"], page["page"], page["state"], page["ended"]) == (40, True, "open", None)
        assert page["text"] == (
            "calibeat: 40 streams, s00, s01, s02 and 37 more: forecasts too sure in 30, too low in 10. "
            "Look first at the inputs of the model; then train it again."
        )
        assert page["url"] == "https://calibration.example/#/" and len(page["alarms"]) == 40
        assert (follow_up["streams"], follow_up["page"]) == (40, False)  # pages go first
        go_on(store, 1070)
        assert len(receiver.taken) == 2  # 1,000 outcomes: not over yet
        go_on(store, 1071)
        wait_until(lambda: len(receiver.taken) == 3)
        over = bodies(receiver)[2]
        assert (over["state"], over["streams"], over["page"]) == ("over", 40, True) and over["ended"] > 1e9
        assert over["text"].startswith("calibeat: over since ") and "Look first" not in over["text"]
        deliveries = [headers["x-calibeat-delivery"] for headers, _ in receiver.taken]
        assert len(set(deliveries)) == 3 and deliveries[2] == f"{deliveries[0]}-over"


def test_alarms_that_come_soon_wait_for_each_other(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with sending(store) as receiver:
        hook: Any = receiver.hook  # type: ignore[attr-defined]
        hook._pause = 1.0
        raise_alarms(store, ["a"], at=time.time())
        hook._with_connection(hook._deliver)
        assert not receiver.taken  # others may follow
        raise_alarms(store, ["b"], at=time.time())
        monkeypatch.setattr("calibeat.service.webhook.GATHER", 0.0)
        hook._with_connection(hook._deliver)
        raise_alarms(store, ["c"], at=time.time())
        hook._with_connection(hook._deliver)
        assert [body["streams"] for body in bodies(receiver)] == [2]  # the third waits for the minute to end
        hook._quiet_until = 0.0
        hook._with_connection(hook._deliver)
        assert [body["streams"] for body in bodies(receiver)] == [2, 1]


def test_muted_streams_and_follow_ups_of_acknowledged_ones_are_not_sent(store: str) -> None:
    run = ["alarm", "mute", "s0*", "--store", store, "--for", "1h"]
    assert main(run) == 0
    raise_alarms(store, ["rome"])
    with sending(store) as receiver:
        raise_alarms(store, FORTY)
        assert main(["alarm", "acknowledge", "rome", "--store", store]) == 0
        raise_alarms(store, ["rome"], page=0)
        start(receiver)
        wait_until(lambda: len(receiver.taken) == 1)
        assert bodies(receiver)[0]["streams"] == 30
        raise_alarms(store, ["rome"])  # a new page is sent all the same
        wait_until(lambda: len(receiver.taken) == 2)
        assert [alarm["stream"] for alarm in bodies(receiver)[1]["alarms"]] == ["rome"]
        assert main(["alarm", "unmute", "s0*", "--store", store]) == 0
        raise_alarms(store, ["s00"])
        wait_until(lambda: len(receiver.taken) == 3)


def test_what_slack_takes(store: str) -> None:
    with sending(store, "slack") as receiver:
        raise_alarms(store, ["<slack&co>", "b"], at=time.time() - 1000.0)
        start(receiver)
        wait_until(lambda: receiver.taken)
        body = bodies(receiver)[0]
    assert body.keys() == {"text"} and "2 streams, &lt;slack&amp;co&gt;, b: forecasts too sure" in body["text"]
    assert body["text"].endswith(" <https://calibration.example/#/|Open the dashboard>")


def test_alarms_over_http(store: str) -> None:
    raise_alarms(store, FORTY)
    raise_alarms(store, ["rome"], what="too low from 0.8 to 0.95", at=time.time())
    settings = EngineSettings(method="ops", monitor=1e6)
    with service_here(store, settings=settings) as url, httpx.Client(base_url=url) as http:
        found = http.get("/v1/alarms").json()
        assert [(group["streams"], group["ended"]) for group in found["groups"]] == [(1, None), (40, None)]
        assert found["groups"][0]["text"].endswith("Look first at events of that region since then.")
        assert len(http.get("/v1/alarms?stream=rome&open=true").json()["alarms"]) == 1
        assert http.get("/v1/alarms?open=false").json() == {"alarms": [], "groups": []}
        assert http.get("/v1/alarms?stream=rome&open=1").json() == http.get("/v1/alarms?stream=rome&open=true").json()
        assert http.get("/v1/alarms?open=yes").status_code == 400
        done = http.post("/v1/alarms/acknowledge", json={"streams": "s*"})
        assert done.json() == {"acknowledged": 40}
        found = http.get("/v1/alarms").json()
        assert [group["acknowledged"] for group in found["groups"]] == [False, True]
        muted = http.post("/v1/mutes", json={"streams": "s*", "seconds": 3600}).json()
        assert muted["until"] - muted["created"] == pytest.approx(3600)
        assert http.get("/v1/mutes").json() == {"mutes": [muted]}
        assert http.delete("/v1/mutes", params={"streams": "s*"}).json() == {"mutes": []}
        again = http.delete("/v1/mutes", params={"streams": "s*"})
        assert (again.status_code, again.json()["error"]["code"]) == (404, "unknown")
        for bad in ({}, {"streams": "*s"}, {"streams": "s", "seconds": 0}, {"streams": "s", "more": 1}):
            assert http.post("/v1/mutes", json=bad).status_code == 400
        packed = http.post("/v1/mutes", content=b"{}", headers={"content-encoding": "gzip"})
        assert packed.status_code == 415
        assert http.delete("/v1/mutes").status_code == 400


def test_only_who_may_write_and_only_own_streams(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url, tokens = str(tmp_path / "calibeat.db"), []
    for name, more in (("read", ["--scope", "read"]), ("paris", ["--scope", "write", "--streams", "paris/*"])):
        assert main(["token", "create", "--store", url, "--name", name, *more]) == 0
        tokens.append({"authorization": f"Bearer {capsys.readouterr().out.strip()}"})
    raise_alarms(url, ["paris/orly", "rome"])
    assert main(["alarm", "mute", "rome", "--store", url]) == 0
    read, paris = tokens
    with service_here(url) as where, httpx.Client(base_url=where) as http:
        assert http.post("/v1/mutes", json={"streams": "rome"}, headers=read).status_code == 403
        assert http.post("/v1/mutes", json={"streams": "rome"}).status_code == 401
        assert http.post("/v1/mutes", json={"streams": "*"}, headers=paris).status_code == 403
        assert http.post("/v1/mutes", json={"streams": "paris/o*"}, headers=paris).status_code == 200
        assert http.delete("/v1/mutes?streams=rome", headers=paris).status_code == 403
        odd = {"events": [{"id": "e1", "outcome": 1}, 7]}  # of no stream at all
        told = http.post("/v1/outcomes", json=odd, headers=paris).json()
        assert [each["status"] for each in told["outcomes"]] == ["invalid", "invalid"]
        own = [each["streams"] for each in http.get("/v1/mutes", headers=paris).json()["mutes"]]
        assert own == ["paris/o*"]  # what others have muted is not seen
        assert http.delete("/v1/mutes?streams=paris/o*", headers=paris).json() == {"mutes": []}
        assert [a["stream"] for a in http.get("/v1/alarms", headers=paris).json()["alarms"]] == ["paris/orly"]
        assert http.get("/v1/alarms?stream=rome", headers=paris).json()["alarms"] == []
        done = http.post("/v1/alarms/acknowledge", json={"streams": "paris/*"}, headers=paris)
        assert done.json() == {"acknowledged": 1}
        who = http.get("/v1/alarms", headers=paris).json()["alarms"][0]["acknowledged_by"]
        assert who == "paris"


def test_alarms_on_the_command_line(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["alarm", "list", "--store", store]) == 0
    assert capsys.readouterr().out == "no alarms\n"
    raise_alarms(store, ["paris"], at=1_790_000_000.0)
    assert main(["alarm", "acknowledge", "paris", "--store", store]) == 0
    assert main(["alarm", "mute", "paris", "--store", store]) == 0
    assert capsys.readouterr().out == "1 alarm acknowledged\nparis is muted\n"
    assert main(["alarm", "list", "--store", store, "--open"]) == 0
    line, muted = capsys.readouterr().out.splitlines()
    assert line.startswith("2026-09-21 14:13:20Z  acknowledged  page  paris: forecasts too sure.")
    assert muted == "muted: paris"
    go_on(store, 5000)
    assert main(["alarm", "list", "--store", store, "--json", "--stream", "paris"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["groups"][0]["ended"] > 1e9 and found["mutes"][0]["until"] is None
    assert main(["alarm", "list", "--store", store, "--open"]) == 0
    assert capsys.readouterr().out.startswith("no alarms\n")
    assert main(["alarm", "unmute", "rome", "--store", store]) == 2
    assert main(["alarm", "mute", "*s", "--store", store]) == 2
    assert main(["alarm", "list", "--store", "no-such.db"]) == 2


def set_evidence(url: str, log_e: float) -> str:
    """Put this evidence into the first cell of each stream with groups -> what the cell is about."""
    with closing(open_connection(url, write=True)) as connection:
        slot, held = connection.all("SELECT slot, held FROM cell WHERE is_base = 0 ORDER BY slot")[0]
        cell = np.frombuffer(bytes(held), dtype=SLOT).copy()
        cell["numbers"][0, LOG_E] = log_e
        connection.run("UPDATE cell SET held = ? WHERE slot = ? AND is_base = 0", (cell.tobytes(), slot))
    with closing(open_reader(url)) as reader:
        first = (reader.segments("shop") or [])[0]
        return f"{first.attribute} = {first.value}"


def test_segments_that_are_wrong_are_named_until_they_are_right(url: str) -> None:
    keeper = AlarmKeeper(url, seconds=0.01, segment_seconds=0.01)
    with desk(url, method="auto", monitor=1e6) as service:
        service.group([StreamSettings("shop", groups=["country"], names=True)])
        service.group([ForecastEvent("pets", "e1", scores=[0.2, 0.3, 0.5])])

        def sell(first: int) -> None:
            ids = range(first, first + 200)
            service.group(*([ForecastEvent("shop", f"e{at}", 0.5, groups={"country": "fr"})] for at in ids))
            service.group(*([OutcomeEvent("shop", f"e{at}", at % 2)] for at in ids))

        sell(0)
        watch = SegmentWatch()
        with closing(open_connection(url, write=True)) as connection, closing(open_reader(url)) as reader:
            watch.look(reader, connection)
            assert reader.alarms() == []
            service.engine.forget()
            detail = set_evidence(url, 10.0)
            sell(200)  # a stream that has learnt nothing is not looked at again
            detail = set_evidence(url, 10.0)
            for _ in range(2):
                watch.look(reader, connection)
                (alarm,) = reader.alarms(open=True)
            assert (alarm.part, alarm.page, alarm.detail, alarm.at) == (SEGMENT, False, detail, 400)
            assert detail == "country = fr" and alarm.what in {"too low", "too high"}
            assert f"shop: forecasts {alarm.what} in country = fr" in sentence([alarm], None, None)
            assert close_quiet(connection) == 0
        set_evidence(url, 0.0)
        keeper.start()
        try:
            wait_until(lambda: not alarms_of_segments(url))
        finally:
            keeper.stop()


def alarms_of_segments(url: str) -> list[Any]:
    with closing(open_reader(url)) as reader:
        return reader.alarms(open=True)


def test_without_monitors_no_segment_is_named(store: str) -> None:
    with closing(open_connection(store, write=True)) as connection, closing(open_reader(store)) as reader:
        SegmentWatch().look(reader, connection)
        assert reader.alarms() == []


def test_a_pair_of_values_is_one_segment() -> None:
    assert _of_pair(["fr", 3]) == "fr x 3"


def test_a_running_service_notes_that_an_alarm_is_over(tmp_path: Path) -> None:
    url = str(tmp_path / "calibeat.db")
    open_store(url).close()
    raise_alarms(url, ["paris"])
    keeper = AlarmKeeper(url, seconds=0.01)
    keeper.start()
    with closing(open_connection(url, write=True)) as connection:
        connection.run("UPDATE body SET monitor = ?", (monitor_bytes(5000, 70),))
        wait_until(lambda: connection.all("SELECT ended FROM alarm")[0][0])
    keeper.stop()
    assert is_quiet(None)
