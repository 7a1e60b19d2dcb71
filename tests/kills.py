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
from array import array
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

WINDOW = 60  # requests without an answer
LAST = 300  # answers that are heard in peace, so that a slow machine has some of everything, too


# ---- the worker -----------------------------------------------------------------------------------------------------


def deliver(answers: list[tuple[Any, Any]]) -> None:
    """Write answers to the pipe."""
    from calibeat.service.events import Refusal

    lines = [json.dumps([ticket, answer.code if isinstance(answer, Refusal) else answer]) for ticket, answer in answers]
    sys.stdout.write("".join(f"{line}\n" for line in lines))  # there may be none
    sys.stdout.flush()


def requests() -> Iterator[tuple[Any, list[Any]]]:
    """What comes from the pipe: tickets and events."""
    from calibeat.service.events import Control, CorrectionEvent, ForecastEvent, OutcomeEvent

    print("ready", flush=True)  # noqa: T201 - the protocol of the pipe
    for line in sys.stdin:
        ticket, kind, events = json.loads(line)
        if kind == "forecasts":
            yield ticket, [ForecastEvent(stream, name, **fields_of(stream, score)) for stream, name, score in events]
        elif kind == "control":
            (control,) = events
            yield ticket, [Control(**control)]
        else:
            make: Any = CorrectionEvent if kind == "corrections" else OutcomeEvent
            yield ticket, [make(stream, name, **result_of(stream, y)) for stream, name, y in events]


def serve(url: str, method: str) -> None:
    """An engine behind two pipes."""
    from calibeat.service.engine import Engine
    from calibeat.service.events import Refusal
    from calibeat.service.settings import EngineSettings

    print("opening", flush=True)  # noqa: T201 - the protocol of the pipe
    engine = Engine.open(url, EngineSettings(method=method, monitor=2000.0))
    engine.start(deliver)
    for ticket, events in requests():
        try:
            engine.submit(ticket, events)
        except Refusal as refusal:  # the database is away
            deliver([(ticket, refusal)])
    engine.stop()


# ---- streams of all shapes ------------------------------------------------------------------------------------------
#
# A stream whose name begins with "k" has three classes, one with "g" has groups; both follow from one number.


def fields_of(stream: str, score: float) -> dict[str, Any]:
    """What a forecast is asked with."""
    if stream.startswith("k"):
        return {"scores": [score / 2, 1.0 - score, score / 2]}
    if stream.startswith("g"):
        return {"score": score, "groups": {"tenth": int(score * 10), "hundredth": str(int(score * 100))}}
    return {"score": score}


def result_of(stream: str, outcome: int | None) -> dict[str, Any]:
    """What an outcome is told with."""
    return {"label": outcome} if stream.startswith("k") else {"outcome": outcome}


def calibrator_of(stream: str, text: str | None, method: Any, seed: int) -> Any:
    """A plain calibrator of the library for such a stream; `text` is its shape in the store."""
    from calibeat import Calibrator, MultiCalibrator
    from calibeat.service.shape import Shape

    shape = Shape.from_text(text)
    return MultiCalibrator(3) if stream.startswith("k") else Calibrator(method, seed, stream, groups=shape.groups)


# ---- the clients ----------------------------------------------------------------------------------------------------


class Worker:
    """A process with an engine, as the clients see it."""

    def __init__(self, url: str, method: str, log: Any, before: Any = None, *, waits: bool = True) -> None:
        """A worker that is ready, or (not `waits`) one that opens its store now."""
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
        for word in ("opening", "ready") if waits else ("opening",):
            if (found := self.answers.get(timeout=120)) != word:
                raise RuntimeError(f"the worker must start, got {found!r} and status {self.process.wait()}")

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
    shapes: tuple[str, ...] = ("",)  # what the names of streams begin with
    most: int = 5  # events in a request
    verbs: bool = False  # whether something is done to the first half of the streams, and their events
    corrected: dict[str, Any] = field(default_factory=dict)  # name -> what its outcome was corrected to
    final: set[str] = field(default_factory=set)  # those that could not be corrected
    forgetting: dict[str, bool] = field(default_factory=dict)  # name -> whether it was answered
    controls: int = 0
    repeated: set[str] = field(default_factory=set)  # events of requests that were sent more than once
    told: dict[str, tuple[str, float, float]] = field(default_factory=dict)  # name -> stream, score, forecast
    acknowledged: dict[str, list[tuple[str, int]]] = field(default_factory=lambda: defaultdict(list))
    waiting: dict[int, list[Any]] = field(default_factory=dict)  # requests without an answer, by ticket
    answered: dict[int, list[Any]] = field(default_factory=dict)  # and with one; a request sent twice may get two
    wrong: list[str] = field(default_factory=list)
    repeats: int = 0
    unwritten: int = 0  # kills after which the log had operations that were in no other table
    _tickets: int = 0
    _ids: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)  # noqa: S311 - a test

    def request(self) -> list[Any]:
        """A new request: forecasts, or outcomes that are late, doubled, contradicting or of nothing."""
        self._tickets += 1
        dice = self.random
        if self.verbs and self.told and dice.random() < 0.15:
            made = [self._tickets, *self._verb()]
        elif not self.told or dice.random() < 0.5:
            events = [self._forecast() for _ in range(dice.randint(1, self.most))]
            made = [self._tickets, "forecasts", events]
        else:
            ids = dice.choices(self._left(), k=dice.randint(1, self.most))
            made = [self._tickets, "outcomes", [self._outcome(name) for name in ids]]
        self.waiting[self._tickets] = made
        return made

    def _forecast(self) -> list[Any]:
        if self.told and self.random.random() < 0.1:
            self.repeats += 1
            name = self.random.choice(self._left())
            return [*self.told[name][:1], name, self.told[name][1]]
        self._ids += 1
        number = self.random.randrange(self.streams)
        return [f"{self.shapes[number % len(self.shapes)]}stream-{number}", f"e{self._ids}", self.random.random()]

    def _left(self) -> list[str]:
        """The events of which nothing was corrected or forgotten."""
        return [name for name in self.told if name not in self.corrected and name not in self.forgetting]

    def is_touched(self, stream: str) -> bool:
        """Whether something is done to a stream."""
        return self.verbs and int(stream.rpartition("-")[2]) < self.streams // 2

    def _verb(self) -> tuple[str, list[Any]]:
        """Something that is done to a stream or to its events. After it nothing else is said of these events."""
        dice = self.random
        # What was sent and not answered may be done after this, by another worker.
        busy = {event[1] for request in self.waiting.values() if request[1] != "control" for event in request[2]}
        busy |= self.repeated
        names = [name for name in self._left() if self.is_touched(self.told[name][0]) and name not in busy]
        known = [name for name in names if name in self.acknowledged]
        kind = dice.random()
        if kind < 0.5 and known:
            chosen = dice.sample(known, k=min(len(known), dice.randint(1, self.most)))
            self.corrected |= {name: dice.choice((0, 1, None)) for name in chosen}
            return "corrections", [[self.told[name][0], name, self.corrected[name]] for name in chosen]
        if kind < 0.65 and names:
            name = dice.choice(names)
            self.forgetting[name] = False
            return "control", [{"verb": "forget", "stream": self.told[name][0], "ids": [name]}]
        number = dice.randrange(self.streams // 2)
        stream = f"{self.shapes[number % len(self.shapes)]}stream-{number}"
        verb = dice.choice(("freeze", "resume", "resume", "passthrough", "reset"))
        return "control", [{"verb": verb, "stream": stream, "outcomes": dice.choice(("learn", "drop"))}]

    def repeat(self, request: list[Any]) -> None:
        """A request is sent once more. A copy of it may be on its way when another one was answered long ago."""
        if request[1] != "control":
            self.repeated |= {event[1] for event in request[2]}

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
        if request[1] == "control":
            self._hear_control(request[2][0], answer)
            return
        if not isinstance(answer, list):
            self.wrong.append(f"a batch was refused: {answer}")
            return
        for event, told in zip(request[2], answer, strict=True):
            stream, name = event[:2]
            if name in self.forgetting:
                continue  # it may be made anew by what was sent before
            if request[1] == "corrections":
                self.final |= {name} if told in {"final", "expired"} else set()
                if told not in {"corrected", "repeated", "learnt", "held", "final", "expired"}:
                    self.wrong.append(f"a correction was {told}")
            elif request[1] == "forecasts":
                now = (stream, event[2], told)
                if self.told.setdefault(name, now) != now:
                    self.wrong.append(f"a forecast changed: {self.told[name]} and {now}")
            elif name.startswith("never-"):
                if told != "unknown":
                    self.wrong.append(f"an outcome of nothing was {told}")
            else:
                self.acknowledged[name].append((told, event[2]))

    def _hear_control(self, control: dict[str, Any], answer: Any) -> None:
        """A stream without an event is unknown, and so is an event that was forgotten before the answer was lost."""
        self.controls += 1
        if control["verb"] == "forget":
            self.forgetting[control["ids"][0]] |= answer != "stopping"
            expected: set[Any] = {"forgotten", "unknown", "stopping"}
        else:
            expected = {"frozen", "resumed", "passthrough", "reset", "unknown_stream"}
        if (answer if isinstance(answer, str) else answer[0]) not in expected:
            self.wrong.append(f"{control} was answered with {answer}")


def run(
    url: str,
    method: str,
    kills: int,
    *,
    workers: int = 1,
    most: int = 5,
    seed: int = 0,
    log: Any = None,
    shapes: tuple[str, ...] = ("",),
    verbs: bool = False,
) -> Clients:
    """Serve requests and kill workers at random moments, one after another; the last ones end in peace."""
    clients = Clients(seed, most=most, shapes=shapes, verbs=verbs)
    moments = random.Random(seed + 1)  # noqa: S311 - a test
    start = partial(Worker, url, method, log)
    alive = [start() for _ in range(workers)]
    for _ in range(kills):
        victim = moments.randrange(workers)
        _work(clients, alive, moments.uniform(0.02, 0.4))
        alive[victim].kill()
        clients.unwritten += is_behind(url)
        drain(clients, alive[victim])
        while moments.random() < 0.5:  # the next one is killed too, while it recovers or begins to apply corrections
            unready = start(waits=False)
            time.sleep(moments.uniform(0.0, 0.1))
            unready.kill()
        alive[victim] = start()
        for request in list(clients.waiting.values()):  # the same ids once more
            alive[moments.randrange(workers)].send(request)
    _work(clients, alive, 0.3, least=LAST)
    for worker in alive:
        status = worker.stop()
        if status:
            clients.wrong.append(f"a worker ended with status {status}")
        drain(clients, worker)
    if clients.waiting:
        clients.wrong.append(f"{len(clients.waiting)} requests were never answered")
    return clients


def is_behind(url: str) -> bool:
    """Whether a process that was killed had answered what is in no table yet, except the log."""
    from calibeat.service.store import open_connection

    with closing(open_connection(url)) as connection:
        return bool(
            connection.all("SELECT 1 FROM op JOIN meta ON name = 'flushed' WHERE position > CAST(value AS INT)")
        )


def _work(clients: Clients, alive: list[Worker], seconds: float, least: int = 1) -> None:
    """For so many seconds, and until so many answers were heard."""
    end = time.monotonic() + seconds
    heard = 0
    while heard < least or time.monotonic() < end:
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
    from calibeat.service.maintenance import apply_waiting, check, replay_check
    from calibeat.service.store import open_connection

    apply_waiting(url)
    connection = open_connection(url)
    try:
        names = dict(connection.all("SELECT number, name FROM stream"))
        events = connection.all(
            "SELECT e.id, e.stream, o.x, o.told, e.outcome, o.given, o.issued "
            "FROM event e JOIN op o ON o.position = e.position"
        )
        # What is in the log of each event: one forecast, and what is learnt or kept for it once.
        twice = connection.all(
            "SELECT stream, nth FROM op WHERE kind IN (0, 1, 3) GROUP BY stream, nth "
            "HAVING sum(CASE WHEN kind = 0 THEN 1 ELSE 0 END) <> 1 OR sum(CASE WHEN kind > 0 THEN 1 ELSE 0 END) > 1"
        )
        alone = connection.all(
            "SELECT o.position FROM op o LEFT JOIN event e ON e.position = o.position WHERE o.kind = 0 AND e.id IS NULL"
        )
        stored = {name: (names[stream], *values[:3]) for name, stream, *values in events}
        for name, stream, *_, outcome, given, issued in events:
            if issued is not None:
                score = clients.told[name][1] if name in clients.told else float("nan")
                is_same = array("d", fields_of(names[stream], score)["scores"]).tobytes() == bytes(given)
                stored[name] = names[stream], score if is_same else given, array("d", bytes(issued)).tolist(), outcome
    finally:
        connection.close()
    gone = {name for name, is_answered in clients.forgetting.items() if is_answered}
    kept = [name for name in gone if name in stored]
    lost = [name for name in clients.told if name not in stored and name not in clients.forgetting]
    changed = [
        name
        for name, told in clients.told.items()
        if name in stored and stored[name][:3] != told and name not in clients.forgetting
    ]
    changed += kept
    lost_outcomes, doubled, contradicted = [], [], []
    for name, outcome in clients.corrected.items():
        found = stored[name][3] if name in stored else outcome
        # What waited may have been dropped, or given up by a reset.
        if name not in clients.final and found != outcome and found is not None:
            contradicted.append(name)
    for name, answers in clients.acknowledged.items():
        if clients.is_touched(clients.told[name][0]):
            continue
        outcome = stored[name][3] if name in stored else None
        if outcome is None:
            lost_outcomes.append(name)
        doubled += [name] * (sum(status == "learnt" for status, _ in answers) > 1)
        for status, sent in answers:
            if (status == "conflict") == (sent == outcome) or status not in {"learnt", "repeated", "conflict"}:
                contradicted.append(name)
    replay = replay_check(url)
    return {
        "differ": plain_differences(url, clients),
        "problems": check(url),
        "corrected": len(clients.corrected),
        "forgotten": len(gone),
        "controls": clients.controls,
        "forecasts": len(clients.told),
        "outcomes": len(clients.acknowledged),
        "repeats": clients.repeats,
        "unwritten": clients.unwritten,
        "lost": len(lost) + len(lost_outcomes),
        "doubled": len(doubled) + len(events) - len(stored) + len(twice) + len(alone),
        "changed": len(changed) + len(contradicted),
        "wrong": clients.wrong,
        "streams": replay.streams,
        "differences": replay.differences,
    }


def plain_differences(url: str, clients: Clients) -> int:
    """How many stored forecasts are not those of the library that is given the log event by event, in its order.

    Streams to which something was done have another log, and are left to the replay. Plain streams are keys of a
    `Bank`, others have calibrators of their own.
    """
    from calibeat import Bank
    from calibeat.core.method import method_named
    from calibeat.service.store import open_connection
    from calibeat.service.store.schema import get_meta

    connection = open_connection(url)
    try:
        meta = get_meta(connection)
        names = dict(connection.all("SELECT number, name FROM stream"))
        shapes = dict(connection.all("SELECT stream, text FROM shape"))
        events = connection.all(
            "SELECT e.stream, e.position, o.x, o.told, e.outcome, e.learnt, o.given, o.issued "
            "FROM event e JOIN op o ON o.position = e.position"
        )
        events = [(*event[:6], *(part and array("d", bytes(part)).tolist() for part in event[6:])) for event in events]
    finally:
        connection.close()
    log: list[tuple[int, int, int, Any]] = []  # stream, position, event, its outcome or None
    for at, (stream, position, _, _, outcome, learnt, *_) in enumerate(events):
        if clients.is_touched(names[stream]):
            continue
        log.append((stream, position, at, None))
        if learnt is not None:
            log.append((stream, learnt, at, outcome))
    method = method_named(meta["method"])
    bank, made, differ = Bank(method, int(meta["seed"])), {}, 0
    alone = {number: calibrator_of(names[number], text, method, int(meta["seed"])) for number, text in shapes.items()}
    for stream, _, at, outcome in sorted(log, key=lambda entry: entry[:2]):
        _, _, score, forecast, *_, given, issued = events[at]
        if stream in alone and outcome is not None:
            alone[stream].update(made.pop(at), outcome)
        elif stream in alone and issued is not None:
            made[at] = alone[stream].predict(given)
            differ += made[at].probabilities.tolist() != issued
        elif stream in alone:
            made[at] = alone[stream].predict(score, fields_of(names[stream], score)["groups"])
            differ += made[at].probability != forecast
        elif outcome is None:
            made[at] = bank.predict(names[stream], events[at][2])
            differ += made[at].probability != events[at][3]
        else:
            bank.update(names[stream], made.pop(at), outcome)
    return differ


NOTHING_WRONG = {"differ": 0, "lost": 0, "doubled": 0, "changed": 0, "wrong": [], "differences": [], "problems": []}

if __name__ == "__main__":
    if Path(sys.argv[0]).name == "kills.py":
        serve(sys.argv[1], sys.argv[2])
