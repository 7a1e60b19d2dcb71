"""A store is replayed with monitors: its alarms are those that the same events had raised over HTTP."""

from __future__ import annotations

import json
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from services import DAY, START, Desk, desk, whole

from calibeat import InvalidInput
from calibeat.cli.main import main
from calibeat.monitor.bets import Settings
from calibeat.service import maintenance
from calibeat.service.alarms import acknowledge
from calibeat.service.events import ForecastEvent, OutcomeEvent
from calibeat.service.maintenance import info, prune, rebuild
from calibeat.service.notices import NEVER_AN_OUTCOME
from calibeat.service.store import open_connection
from calibeat.service.watch import CLASS, NOTICED, OURS, RAW

ARL = 300.0
ALARMS = (
    "SELECT s.name, a.part, a.at, a.since, a.what, a.page, a.detail FROM alarm a JOIN stream s ON s.number = a.stream "
    "WHERE a.part >= 0 ORDER BY s.name, a.part, a.at"
)
MONITORS = "SELECT name, alarms, watched_from, monitor FROM stream JOIN body ON stream = number ORDER BY name"
SAID = "SELECT s.name, d.nth, d.forecast FROM said d JOIN stream s ON s.number = d.stream ORDER BY 1, 2"
KINDS = ("two", "many", "groups")


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Monitors that are awake after few outcomes, and have several episodes in a short log."""
    monkeypatch.setattr("calibeat.service.model.Settings", partial(Settings, warm=60, quiet=100))


def stored(url: str, statement: str) -> list[Any]:
    with closing(open_connection(url)) as connection:
        rows = connection.all(statement)
    return [tuple(bytes(v) if isinstance(v, memoryview) else v for v in row) for row in rows]


def fields(kind: str, scores: Any) -> dict[str, Any]:
    """What an event asks."""
    if kind == "many":
        return {"scores": [float(score) for score in scores]}
    score = {"score": float(scores[0])}
    return score if kind == "two" else {**score, "groups": {"device": int(1e6 * scores[1]) % 3}}


def serve(
    service: Desk, kind: str, n: int, *, seed: int = 0, lies: bool = False, never: float = 0.0, ends: bool = True
) -> list[Any]:
    """Events of two streams in groups of several, with outcomes that come late; with `lies` the least likely is true.

    Some `never` come. Unless it `ends`, some are still missing then.
    """
    rng, told, waiting = np.random.default_rng(seed), list[Any](), list[OutcomeEvent]()
    while n > 0:
        requests: list[list[Any]] = []
        for _ in range(int(rng.integers(1, 12))):
            n -= 1
            scores, stream, name = rng.dirichlet([2.0, 1.0, 1.0]), f"s{rng.integers(2)}", f"e{seed}-{n}"
            requests.append([ForecastEvent(stream, name, **fields(kind, scores))])
            label = int(scores.argmin() if lies else rng.choice(3, p=scores))
            outcome = {"label": label} if kind == "many" else {"outcome": int(label == 0)}
            if rng.random() >= never:
                waiting.append(OutcomeEvent(stream, name, **outcome))
            if len(waiting) > 9:
                requests.append([waiting.pop(int(rng.integers(9)))])
        told += service.group(*requests)
        service.now += float(rng.random() * 1000.0)
    return told + service.group(waiting if ends else [])


@pytest.mark.parametrize("at_once", [5_000, 60])
@pytest.mark.parametrize("kind", KINDS)
def test_a_replay_raises_the_alarms_that_http_raised(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, at_once: int
) -> None:
    monkeypatch.setattr(maintenance, "OPERATIONS_AT_ONCE", at_once)
    beside = str(tmp_path / "beside.db")
    settings = {"method": "auto", "expire": 5_000.0}
    for address, monitor in ((url, None), (beside, ARL)):
        with desk(address, monitor=monitor, **settings) as service:
            serve(service, kind, 300, never=0.03)
            serve(service, kind, 400, seed=1, lies=True, never=0.03, ends=False)
            now = service.now
    assert stored(url, ALARMS) == []
    found = rebuild(url, monitor=ARL)
    alarms = stored(url, ALARMS)
    assert alarms == stored(beside, ALARMS) and found.alarms == len(alarms) > 2 and info(url)["monitor"] == ARL
    parts = {alarm[1] for alarm in alarms}
    assert {OURS, RAW} <= parts and (kind != "many" or max(parts) >= CLASS)
    assert stored(url, MONITORS) == stored(beside, MONITORS) and whole(url)
    assert stored(url, "SELECT DISTINCT delivered FROM alarm") == [(3,)]  # nobody is paged for history
    told = []
    for address in (url, beside):  # a service goes on
        with desk(address, monitor=ARL, **settings) as service:
            service.now = now
            told.append([serve(service, kind, 200, seed=2), serve(service, kind, 300, seed=3, lies=True)])
    assert told[0] == told[1]
    assert len(stored(url, ALARMS)) > len(alarms)
    assert stored(url, ALARMS) == stored(beside, ALARMS) and stored(url, MONITORS) == stored(beside, MONITORS)
    assert whole(url)


@pytest.mark.parametrize("kind", KINDS[:2])
def test_what_was_done_to_a_stream_and_another_method(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Monitors read what the method says, also where something else was told."""
    monkeypatch.setattr(maintenance, "OPERATIONS_AT_ONCE", 50)
    for address, monitor, method in ((url, None, "ops"), (str(tmp_path / "beside.db"), ARL, "tops")):
        with desk(address, monitor=monitor, method=method) as service:
            serve(service, kind, 200)
            serve(service, kind, 300, seed=5, lies=True)
            service.do("reset", "s0")
            service.now += 1.0
            serve(service, kind, 200, seed=1)
            service.do("passthrough", "s0")
            service.do("freeze", "s1")
            serve(service, kind, 300, seed=2, lies=True)
            service.do("resume", "s1", outcomes="drop")
            service.engine.finish_all()
            service.now += 1.0
            serve(service, kind, 100, seed=3, lies=True, ends=False)
            now = service.now
    beside = str(tmp_path / "beside.db")
    rebuild(url, "tops", monitor=ARL)
    assert stored(url, ALARMS) == stored(beside, ALARMS) != [] and whole(url)
    assert stored(url, MONITORS) == stored(beside, MONITORS)
    assert stored(url, SAID) != []
    for address in (url, beside):
        with desk(address, monitor=ARL, method=None) as service:  # which reads what is held
            service.now = now
            serve(service, kind, 100, seed=4)
    assert stored(url, ALARMS) == stored(beside, ALARMS) and stored(url, MONITORS) == stored(beside, MONITORS)
    assert whole(url)


def test_a_pruned_stream_is_watched_from_its_base_on(url: str) -> None:
    with desk(url) as service:
        serve(service, "two", 300)
        cut = service.now - 5_000.0
        serve(service, "two", 300, seed=1, lies=True)
        now = service.now
    assert prune(url, now - cut, now=now) > 100
    rebuild(url, monitor=ARL)
    alarms = stored(url, ALARMS)
    assert alarms and whole(url)
    with desk(url, monitor=ARL) as service:
        service.now = now
        serve(service, "two", 100, seed=2, lies=True)
    assert whole(url)
    assert prune(url, 0.0, now=now) > 100 and whole(url)
    rebuild(url)  # without monitors, as ever
    assert whole(url) and info(url)["alarms"] == 0


@pytest.mark.parametrize("is_rebuilt", [False, True])
def test_a_stream_that_says_something_else_now_can_be_corrected_forgotten_and_pruned(
    url: str, is_rebuilt: bool
) -> None:
    """What the monitor had not read at the base was told otherwise than the method says it now."""
    with desk(url, monitor=ARL) as service:
        serve(service, "two", 100)
    if is_rebuilt:
        rebuild(url, "ops", monitor=ARL)
    with desk(url, method=None, monitor=ARL) as service:
        service.now = START + DAY
        first = service.engine.store.connection.all(
            "SELECT s.name, e.id, 1 - e.outcome FROM event e JOIN stream s ON s.number = e.stream WHERE e.nth = 2"
        )
        assert service.correct(*first) == ["corrected"] * 2
        serve(service, "two", 100, seed=1)
        service.engine.rework_all()
        assert whole(url)
        forgotten = service.engine.store.connection.all("SELECT id FROM event WHERE stream = 1 AND nth = 20")
        (name,) = service.engine.store.connection.all("SELECT name FROM stream WHERE number = 1")[0]
        assert service.forget(name, *forgotten[0]) == 1 and whole(url)
        cut = service.now - 3_000.0
        serve(service, "two", 100, seed=2)
        now = service.now
    assert prune(url, now - cut, now=now) > 50 and whole(url)
    with desk(url, method=None, monitor=ARL) as service:
        service.now = now
        serve(service, "two", 50, seed=3)
    assert whole(url)


def test_a_copy_and_an_empty_stream_are_watched_from_now_on(url: str) -> None:
    with desk(url) as service:
        serve(service, "two", 50)
        service.do("copy", "s0", to="copy")
        service.do("reset", "s1")
    rebuild(url, monitor=ARL)
    assert whole(url)
    with desk(url, monitor=ARL) as service:
        service.now = START + DAY
        serve(service, "two", 50, seed=1)
        service.ask(("copy", "e1", 0.5))
        service.tell(("copy", "e1", 1))
    assert whole(url)


def test_alarms_that_are_known_stay_and_others_go(url: str) -> None:
    with desk(url, monitor=ARL) as service:
        serve(service, "two", 300)
        serve(service, "two", 300, seed=1, lies=True)
        service.ask(("silent", "e1", 0.5))
        connection = service.engine.store.connection
        number = connection.all("SELECT number FROM stream WHERE name = 'silent'")[0][0]
        insert = "INSERT INTO alarm (stream, time, at, since, what, page, part) VALUES (?, ?, 1, 0.0, ?, 1, ?)"
        connection.run(insert, (number, service.now, NEVER_AN_OUTCOME, NOTICED))
        connection.run(insert, (number, service.now, "too low", OURS))  # of nothing that is in the log
        acknowledge(connection, "*", "me")
    every = "SELECT * FROM alarm ORDER BY number"
    before, monitors = stored(url, every), stored(url, MONITORS)
    for _ in range(2):
        rebuild(url, monitor=ARL)
        assert stored(url, every) == before[:-1] and whole(url)
    assert stored(url, MONITORS)[:2] == monitors[:2]
    assert stored(url, "SELECT alarms FROM stream WHERE name = 'silent'") == [(1,)]
    rebuild(url, monitor=1e6)
    assert len(stored(url, ALARMS)) < len(before) - 2 and whole(url)


def test_as_it_is_typed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = str(tmp_path / "calibeat.db")
    with desk(url) as service:
        serve(service, "two", 300)
        serve(service, "two", 300, seed=1, lies=True)
    replay = ["store", "replay", "--store", url]
    assert main([*replay, "--check", "--monitor"]) == 2
    assert "--check must come without --monitor: it changes nothing, got both" in capsys.readouterr().err
    assert main([*replay, "--monitor", str(ARL), "--json"]) == 0
    count = json.loads(capsys.readouterr().out)["alarms"]
    assert count == len(stored(url, ALARMS)) > 0
    assert main([*replay, "--monitor", str(ARL)]) == 0
    assert f"made anew, and its monitors have raised {count} alarms" in capsys.readouterr().out
    assert main([*replay, "--monitor", "-1"]) == 2
    assert "arl must" in capsys.readouterr().err
    assert main([*replay, "--json"]) == 0
    assert "alarms" not in json.loads(capsys.readouterr().out)
    with pytest.raises(InvalidInput, match="arl"):
        rebuild(url, monitor=0.0)
