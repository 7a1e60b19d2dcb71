"""A stream with a monitor is corrected, forgotten and pruned, also after its method has changed."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from services import DAY, START, Desk, desk, whole

from calibeat.monitor.bets import Settings
from calibeat.service.events import ForecastEvent, OutcomeEvent
from calibeat.service.maintenance import prune, rebuild

ARL = 300.0


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Monitors that are awake after few outcomes."""
    monkeypatch.setattr("calibeat.service.model.Settings", partial(Settings, warm=60, quiet=100))


def serve(service: Desk, n: int, *, seed: int = 0) -> None:
    """Events of two streams in groups of several, with outcomes that come late."""
    rng, waiting = np.random.default_rng(seed), list[OutcomeEvent]()
    while n > 0:
        requests: list[list[Any]] = []
        for _ in range(int(rng.integers(1, 12))):
            n -= 1
            score, stream, name = float(rng.random()), f"s{rng.integers(2)}", f"e{seed}-{n}"
            requests.append([ForecastEvent(stream, name, score)])
            waiting.append(OutcomeEvent(stream, name, int(rng.random() < score)))
            if len(waiting) > 9:
                requests.append([waiting.pop(int(rng.integers(9)))])
        service.group(*requests)
        service.now += float(rng.random() * 1000.0)
    service.group(waiting)


@pytest.mark.parametrize("is_rebuilt", [False, True])
def test_a_stream_that_says_something_else_now_can_be_corrected_forgotten_and_pruned(
    url: str, is_rebuilt: bool
) -> None:
    """What the monitor had not read at the base was told otherwise than the method says it now."""
    with desk(url, monitor=ARL) as service:
        serve(service, 100)
    if is_rebuilt:
        rebuild(url, "ops")
    with desk(url, method=None, monitor=ARL) as service:
        service.now = START + DAY
        first = service.engine.store.connection.all(
            "SELECT s.name, e.id, 1 - e.outcome FROM event e JOIN stream s ON s.number = e.stream WHERE e.nth = 2"
        )
        assert service.correct(*first) == ["corrected"] * 2
        serve(service, 100, seed=1)
        service.engine.corrections.do_all()
        assert whole(url)
        forgotten = service.engine.store.connection.all("SELECT id FROM event WHERE stream = 1 AND nth = 20")
        (name,) = service.engine.store.connection.all("SELECT name FROM stream WHERE number = 1")[0]
        assert service.forget(name, *forgotten[0]) == 1 and whole(url)
        cut = service.now - 3_000.0
        serve(service, 100, seed=2)
        now = service.now
    assert prune(url, now - cut, now=now) > 50 and whole(url)
    with desk(url, method=None, monitor=ARL) as service:
        service.now = now
        serve(service, 50, seed=3)
    assert whole(url)
