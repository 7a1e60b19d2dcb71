"""An engine without its thread and with a clock that is set by hand: one request, one group, one answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from calibeat.service.engine import Engine
from calibeat.service.events import Control, CorrectionEvent, ForecastEvent, OutcomeEvent, Refusal
from calibeat.service.maintenance import check, replay_check
from calibeat.service.settings import EngineSettings
from calibeat.service.store import open_reader

DAY = 86_400.0
START = 1_800_000_000.0

# A program that answers for 100 events of the store at its address and is killed before they are in the tables.
KILLED = """
import os, sys
from calibeat.service.engine import Engine
from calibeat.service.settings import EngineSettings
from calibeat.service.events import ForecastEvent, OutcomeEvent
engine = Engine.open(sys.argv[1], EngineSettings(method="auto"))
engine.listening.begin(engine.clock())
engine.behind.may_wait = True
asked = [ForecastEvent("paris", f"e{at}", at / 100) for at in range(100)]
engine.process([(None, asked), (None, [OutcomeEvent("paris", f"e{at}", at % 2) for at in range(50)])])
os._exit(9)
"""


class Desk:
    """What a client sees of an engine."""

    def __init__(self, url: str, *, clock: Any = None, **settings: Any) -> None:
        self.now = START
        self.engine = Engine.open(url, EngineSettings(**{"method": "tops", **settings}), clock or (lambda: self.now))

    def ask(self, *events: tuple[Any, ...]) -> Any:
        """A request of forecasts: (stream, id, score[, time])."""
        return self._only([ForecastEvent(*event) for event in events])

    def tell(self, *events: tuple[Any, ...]) -> Any:
        """A request of outcomes: (stream, id, outcome[, time])."""
        return self._only([OutcomeEvent(*event) for event in events])

    def correct(self, *events: tuple[Any, ...]) -> Any:
        """A request of corrections: (stream, id, outcome or None[, time])."""
        return self._only([CorrectionEvent(*event) for event in events])

    def do(self, verb: Any, stream: str, **more: Any) -> Any:
        """Something is done to a stream."""
        (answer,) = self._only([Control(verb, stream, **more)])
        return answer

    def forget(self, stream: str, *ids: str) -> int:
        """Forget events -> how many."""
        self.engine.process([(None, [Control("forget", stream, ids=ids)])])
        return self.engine.corrections.do_all()

    def group(self, *requests: list[Any]) -> list[Any]:
        """Several requests in one group."""
        return [answer for _, answer in self.engine.process(list(enumerate(requests)))]

    def tick(self, seconds: float = 0.0) -> None:
        """Time passes, and nobody comes."""
        self.now += seconds
        self.engine.process([])

    def _only(self, events: list[Any]) -> Any:
        (answer,) = self.group(events)
        if isinstance(answer, Refusal):
            raise answer
        return answer

    def play(self, n: int, *, streams: int = 3, seed: int = 0, late: int = 5) -> None:
        """Some events of some streams, with outcomes that come late; a few never."""
        rng = np.random.default_rng(seed)
        open_events: list[OutcomeEvent] = []
        requests: list[list[Any]] = []
        for at in range(n):
            name, score, event = f"s{rng.integers(streams)}", float(rng.random()), f"p{seed}-{at}"
            requests.append([ForecastEvent(name, event, score)])
            open_events.append(OutcomeEvent(name, event, int(rng.random() < score**2)))
            if len(open_events) > late:
                outcome = open_events.pop(int(rng.integers(len(open_events))))
                if rng.random() < 0.9:
                    requests.append([outcome])
            if len(requests) > 9 or at == n - 1:
                self.group(*requests)
                requests = []
                self.now += float(rng.random() * 1000.0)

    def close(self) -> None:
        """Close the store."""
        self.engine.store.close()


@contextmanager
def desk(url: str, **settings: Any) -> Iterator[Desk]:
    """An engine that is closed at the end."""
    made = Desk(url, **settings)
    try:
        yield made
    finally:
        made.close()


@contextmanager
def living(store: Any) -> Iterator[None]:
    """A store whose engine has nothing to write, as the engine's thread keeps it."""
    is_over = threading.Event()

    def stay() -> None:
        while not is_over.wait(0.1):
            store.stay()

    thread = threading.Thread(target=stay)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


# ---- streams that something is done to ------------------------------------------------------------------------------


def whole(url: str) -> bool:
    found, problems = replay_check(url), check(url)
    assert [*found.differences, *problems] == [], "\n".join([*found.differences, *problems])
    return True


def stream_of(url: str, name: str = "paris") -> Any:
    with closing(open_reader(url)) as reader:
        return reader.stream(name)


def feed(service: Desk, n: int, *, stream: str = "paris", seed: int = 0, invert: bool = False, late: int = 3) -> None:
    """Events whose outcomes come a little later; the last ones stay pending."""
    rng = np.random.default_rng(seed)
    requests: list[list[Any]] = []
    waiting: list[OutcomeEvent] = []
    for at in range(n):
        score = float(rng.random())
        requests.append([ForecastEvent(stream, f"{stream}-{seed}-{at}", score)])
        waiting.append(OutcomeEvent(stream, f"{stream}-{seed}-{at}", int((rng.random() < score) != invert)))
        if len(waiting) > late:
            requests.append([waiting.pop(0)])
    service.group(*requests)


SCORES = (0.1, 0.5, 0.9)


def told(service: Desk, name: str, stream: str = "paris") -> list[float]:
    return list(service.ask(*((stream, f"{name}-{score}", score) for score in SCORES)))


def desk_beside(tmp_path: Path, **settings: Any) -> Any:
    """Another store, for what had happened otherwise."""
    return desk(str(tmp_path / "beside.db"), **settings)
