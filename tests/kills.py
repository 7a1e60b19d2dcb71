"""Clients that retry, and engines that are killed with SIGKILL in the middle of their work.

``python tests/kills.py STORE METHOD`` is a worker: an engine that reads requests from its standard input, one JSON list
a line, and writes answers. The rest of the file are the clients, which check everything that they are told.
"""

from __future__ import annotations

import json
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

WINDOW = 60  # requests without an answer


# ---- the worker -----------------------------------------------------------------------------------------------------


def deliver(answers: list[tuple[Any, Any]]) -> None:
    """Write answers to the pipe."""
    from calibeat.service.events import Refusal

    lines = [json.dumps([ticket, answer.code if isinstance(answer, Refusal) else answer]) for ticket, answer in answers]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def requests() -> Iterator[tuple[Any, list[Any]]]:
    """What comes from the pipe: tickets and events."""
    from calibeat.service.events import ForecastEvent, OutcomeEvent

    print("ready", flush=True)  # noqa: T201 - the protocol of the pipe
    for line in sys.stdin:
        ticket, kind, events = json.loads(line)
        make: Any = ForecastEvent if kind == "forecasts" else OutcomeEvent
        yield ticket, [make(*event) for event in events]


def serve(url: str, method: str) -> None:
    """An engine behind two pipes."""
    from calibeat.service.engine import Engine, EngineSettings

    engine = Engine.open(url, EngineSettings(method=method))
    engine.start(deliver)
    for ticket, events in requests():
        engine.submit(ticket, events)
    engine.stop()


# ---- the clients ----------------------------------------------------------------------------------------------------


class Worker:
    """A process with an engine, as the clients see it."""

    def __init__(self, url: str, method: str, log: Any, before: Any = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, url, method],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            preexec_fn=before,  # noqa: PLW1509 - limits of the process, in a test
        )
        self.answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        first = self.answers.get(timeout=120)
        if first != "ready":
            raise RuntimeError(f"the worker must start, got {first!r} and status {self.process.wait()}")

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self.answers.put(line.rstrip("\n"))
        self.answers.put(None)

    def send(self, request: list[Any]) -> None:
        """Send a request; a worker that is dead hears nothing."""
        try:
            assert self.process.stdin is not None
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except OSError:
            pass

    def kill(self) -> int:
        """At once, without a word -> the exit status, which is its own if it had ended before."""
        self.process.send_signal(signal.SIGKILL)
        return self._end()

    def stop(self) -> int:
        """Let it finish -> its exit status."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self._end()

    def _end(self) -> int:
        status = self.process.wait(timeout=120)
        self._reader.join(timeout=60)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        return status


@dataclass
class Clients:
    """What was sent, what was told, and what was wrong with it."""

    seed: int
    streams: int = 20
    most: int = 5  # events in a request
    told: dict[str, tuple[str, float, float]] = field(default_factory=dict)  # name -> stream, score, forecast
    acknowledged: dict[str, list[tuple[str, int]]] = field(default_factory=lambda: defaultdict(list))
    waiting: dict[int, list[Any]] = field(default_factory=dict)  # requests without an answer, by ticket
    answered: dict[int, list[Any]] = field(default_factory=dict)  # and with one; a request sent twice may get two
    wrong: list[str] = field(default_factory=list)
    repeats: int = 0
    _tickets: int = 0
    _ids: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)  # noqa: S311 - a test

    def request(self) -> list[Any]:
        """A new request: forecasts, or outcomes that are late, doubled, contradicting or of nothing."""
        self._tickets += 1
        dice = self.random
        if not self.told or dice.random() < 0.5:
            events = [self._forecast() for _ in range(dice.randint(1, self.most))]
            made = [self._tickets, "forecasts", events]
        else:
            ids = dice.choices(list(self.told), k=dice.randint(1, self.most))
            made = [self._tickets, "outcomes", [self._outcome(name) for name in ids]]
        self.waiting[self._tickets] = made
        return made

    def _forecast(self) -> list[Any]:
        if self.told and self.random.random() < 0.1:
            self.repeats += 1
            name, (stream, score, _) = self.random.choice(list(self.told.items()))
            return [stream, name, score]
        self._ids += 1
        return [f"stream-{self.random.randrange(self.streams)}", f"e{self._ids}", self.random.random()]

    def _outcome(self, name: str) -> list[Any]:
        if self.random.random() < 0.03:
            return ["stream-0", f"never-{name}", 1]
        stream, score, _ = self.told[name]
        if name in self.acknowledged:
            self.repeats += 1
            return [stream, name, self.random.randrange(2)]  # the same or a contradiction
        return [stream, name, int(self.random.random() < score)]

    def hear(self, line: str) -> None:
        """An answer: it must fit everything that was said before."""
        ticket, answer = json.loads(line)
        request = self.answered[ticket] = self.waiting.pop(ticket, None) or self.answered[ticket]
        if not isinstance(answer, list):
            self.wrong.append(f"a batch was refused: {answer}")
            return
        for event, told in zip(request[2], answer, strict=True):
            stream, name = event[:2]
            if request[1] == "forecasts":
                now = (stream, event[2], told)
                if self.told.setdefault(name, now) != now:
                    self.wrong.append(f"a forecast changed: {self.told[name]} and {now}")
            elif name.startswith("never-"):
                if told != "unknown":
                    self.wrong.append(f"an outcome of nothing was {told}")
            else:
                self.acknowledged[name].append((told, event[2]))


def run(
    url: str, method: str, kills: int, *, workers: int = 1, most: int = 5, seed: int = 0, log: Any = None
) -> Clients:
    """Serve requests and kill workers at random moments, one after another; the last ones end in peace."""
    clients = Clients(seed, most=most)
    moments = random.Random(seed + 1)  # noqa: S311 - a test
    start = partial(Worker, url, method, log)
    alive = [start() for _ in range(workers)]
    for _ in range(kills):
        victim = moments.randrange(workers)
        _work(clients, alive, moments.uniform(0.02, 0.4))
        alive[victim].kill()
        drain(clients, alive[victim])
        alive[victim] = start()
        for request in list(clients.waiting.values()):  # the same ids once more
            alive[moments.randrange(workers)].send(request)
    _work(clients, alive, 0.3)
    for worker in alive:
        status = worker.stop()
        if status:
            clients.wrong.append(f"a worker ended with status {status}")
        drain(clients, worker)
    if clients.waiting:
        clients.wrong.append(f"{len(clients.waiting)} requests were never answered")
    return clients


def _work(clients: Clients, alive: list[Worker], seconds: float) -> None:
    end = time.monotonic() + seconds
    heard = 0
    while heard == 0 or time.monotonic() < end:
        while len(clients.waiting) < WINDOW:
            request = clients.request()
            alive[request[0] % len(alive)].send(request)
        for worker in alive:
            try:
                line = worker.answers.get(timeout=0.002)
            except queue.Empty:
                continue
            if line is None:
                raise RuntimeError(f"the worker must run, got status {worker.process.wait()}")
            clients.hear(line)
            heard += 1


def drain(clients: Clients, worker: Worker) -> None:
    """What was answered before the end was committed."""
    while (line := worker.answers.get(timeout=60)) is not None:
        clients.hear(line)


# ---- the verdict ----------------------------------------------------------------------------------------------------


def compare(clients: Clients, url: str) -> dict[str, Any]:
    """What the store says of everything that was told."""
    from calibeat.service.maintenance import replay_check
    from calibeat.service.store import open_connection

    connection = open_connection(url)
    try:
        names = dict(connection.all("SELECT number, name FROM stream"))
        events = connection.all("SELECT id, stream, score, forecast, outcome FROM event")
        stored = {name: (names[stream], *values) for name, stream, *values in events}
    finally:
        connection.close()
    lost = [name for name in clients.told if name not in stored]
    changed = [name for name, told in clients.told.items() if name in stored and stored[name][:3] != told]
    lost_outcomes, doubled, contradicted = [], [], []
    for name, answers in clients.acknowledged.items():
        outcome = stored[name][3] if name in stored else None
        if outcome is None:
            lost_outcomes.append(name)
        doubled += [name] * (sum(status == "learnt" for status, _ in answers) > 1)
        for status, sent in answers:
            if (status == "conflict") == (sent == outcome) or status not in {"learnt", "repeated", "conflict"}:
                contradicted.append(name)
    replay = replay_check(url)
    return {
        "differ": plain_differences(url),
        "forecasts": len(clients.told),
        "outcomes": len(clients.acknowledged),
        "repeats": clients.repeats,
        "lost": len(lost) + len(lost_outcomes),
        "doubled": len(doubled) + len(events) - len(stored),
        "changed": len(changed) + len(contradicted),
        "wrong": clients.wrong,
        "streams": replay.streams,
        "differences": replay.differences,
    }


def plain_differences(url: str) -> int:
    """How many stored forecasts are not those of a plain `Bank` that is given the log event by event, in its order."""
    from calibeat import Bank
    from calibeat.core.method import method_named
    from calibeat.service.store import open_connection
    from calibeat.service.store.schema import get_meta

    connection = open_connection(url)
    try:
        meta = get_meta(connection)
        names = dict(connection.all("SELECT number, name FROM stream"))
        events = connection.all("SELECT stream, seq, score, forecast, outcome, outcome_seq FROM event")
    finally:
        connection.close()
    log: list[tuple[int, int, int, Any]] = []  # stream, number in it, event, its outcome or None
    for at, (stream, seq, _, _, outcome, outcome_seq) in enumerate(events):
        log.append((stream, seq, at, None))
        if outcome_seq is not None:
            log.append((stream, outcome_seq, at, outcome))
    method = method_named(meta["method"])
    bank, made, differ = Bank(method, int(meta["seed"]), independent=method.draws), {}, 0
    for stream, _, at, outcome in sorted(log, key=lambda entry: entry[:2]):
        if outcome is None:
            made[at] = bank.predict(names[stream], events[at][2])
            differ += made[at].probability != events[at][3]
        else:
            bank.update(names[stream], made.pop(at), outcome)
    return differ


NOTHING_WRONG = {"differ": 0, "lost": 0, "doubled": 0, "changed": 0, "wrong": [], "differences": []}

if __name__ == "__main__":
    if Path(sys.argv[0]).name == "kills.py":
        serve(sys.argv[1], sys.argv[2])
