"""Real services under load that are killed, stopped and cut off from their database.

``python tests/faults.py`` is the nursery: a process that has imported the service, and forks a `calibeat serve` for
each line of its standard input, which is the list of its arguments. A service then starts in a fraction of a second.
The rest of the file sends requests to the services over HTTP. The clients, and what they compare in the end, are those
of `kills`.
"""

from __future__ import annotations

import http.client
import json
import os
import queue
import random
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import kills

LOST_ANSWERS = 0.03  # requests whose sender hangs up before the answer
PATIENCE = 1.5  # seconds after which a request without an answer is sent again, perhaps to the other service
FEW = 20  # answers before each fault
SENDERS = 4  # connections to a service
MONITOR = "2000"  # outcomes between false alarms
# How the engine calls what was done.
DONE = {"freeze": "frozen", "resume": "resumed", "passthrough": "passthrough", "reset": "reset", "forget": "forgotten"}
ENDS = {0, -signal.SIGKILL}  # how a service may end: stopped, killed; a database that is away ends none


# ---- the nursery ----------------------------------------------------------------------------------------------------


def nurse() -> None:
    """Fork a service for each line, and tell which were born and which have ended."""
    for module in ("cli.serve", "service.main"):  # what a service needs
        import_module(f"calibeat.{module}")
    alive: set[int] = set()
    while True:
        if select.select([sys.stdin], [], [], 0.01)[0]:
            line = sys.stdin.readline()
            if not line:
                break
            pid = os.fork()
            if pid == 0:
                _be_a_service(json.loads(line))
            alive.add(pid)
            _tell("born", pid, 0)
        for pid in list(alive):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                alive.remove(pid)
                _tell("ended", pid, os.waitstatus_to_exitcode(status))
    for pid in alive:
        os.kill(pid, signal.SIGKILL)


def _be_a_service(arguments: list[str]) -> None:
    from calibeat.cli.main import main

    status = 99
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)  # standard error stays, for what goes wrong
        status = main(["serve", *arguments])
    finally:
        sys.stderr.flush()
        os._exit(status)


def _tell(*words: Any) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


class Nursery:
    """The process that forks services, as the load sees it."""

    def __init__(self, log: Any = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, bufsize=1
        )
        self._born: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.ended: dict[int, int] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            what, pid, status = json.loads(line)
            if what == "born":
                self._born.put(pid)
            else:
                self.ended[pid] = status

    def bear(self, arguments: list[str]) -> int:
        """Start a service -> its process."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(arguments) + "\n")
        return self._born.get(timeout=300)

    def wait(self, pid: int, seconds: float = 60.0) -> int:
        """The exit status of a service that ends."""
        end = time.monotonic() + seconds
        while pid not in self.ended:
            if time.monotonic() > end:
                raise TimeoutError(f"service {pid} must end within {seconds:g} s")
            time.sleep(0.005)
        return self.ended[pid]

    def close(self) -> None:
        """End the nursery and whatever still runs of its services."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)
        self._reader.join(timeout=60)
        assert self._process.stdout is not None
        self._process.stdout.close()


# ---- services under load --------------------------------------------------------------------------------------------


class Service:
    """A `calibeat serve`, and threads that send it requests. An answer goes to `answers` as `Clients.hear` wants it."""

    def __init__(self, nursery: Nursery, arguments: list[str], answers: queue.SimpleQueue[Any]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port = listener.getsockname()[1]
        self.pid = nursery.bear([*arguments, "--port", str(self.port)])
        self._nursery, self._answers = nursery, answers
        self._requests: queue.SimpleQueue[list[Any] | None] = queue.SimpleQueue()
        self.hung_up = 0
        self._await_ready()
        for number in range(SENDERS):
            dice = random.Random(self.port + number)  # noqa: S311 - a test
            threading.Thread(target=self._send, args=(dice,), daemon=True).start()

    @property
    def is_alive(self) -> bool:
        return self.pid not in self._nursery.ended

    def _await_ready(self) -> None:
        end = time.monotonic() + 120
        while self.is_alive and time.monotonic() < end:
            if self._status("/healthz") == 200:
                return
            time.sleep(0.01)
        raise RuntimeError(f"a service must start, got status {self._nursery.ended.get(self.pid)}")

    def _status(self, path: str) -> int:
        with closing(self._connection()) as connection, suppress(OSError, http.client.HTTPException):
            return _ask(connection, "GET", path)[0]
        return 0

    @property
    def leads(self) -> bool:
        """Whether it is ready: of two services one is, the other stands by."""
        return self._status("/readyz") == 200

    def _connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)

    def send(self, request: list[Any]) -> None:
        self._requests.put(request)

    def _send(self, dice: random.Random) -> None:
        connection = self._connection()
        while (request := self._requests.get()) is not None:
            ticket, kind, events = request
            try:
                if dice.random() < LOST_ANSWERS:
                    self.hung_up += 1
                    connection.request(*_written(kind, events))
                    connection.close()
                    continue
                status, answer = _ask(connection, *_written(kind, events))
            except (OSError, http.client.HTTPException):
                connection.close()  # and perhaps it is dead: `Load` sends the request again
                continue
            if status < 500:  # 500 and 503 promise nothing: it is sent again
                self._answers.put(json.dumps([ticket, _heard(kind, events, status, answer)]))
        connection.close()

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def end(self, number: int) -> int:
        """Send a signal that ends it, and its senders -> its exit status."""
        if self.is_alive:
            self.signal(number)
        status = self._nursery.wait(self.pid)
        for _ in range(SENDERS):
            self._requests.put(None)
        return status


def _written(kind: str, events: list[Any]) -> tuple[str, ...]:
    """A request of `Clients` as HTTP has it: method, path and perhaps a body."""
    if kind == "control":
        (control,) = events
        path = f"/v1/streams/{control['stream']}"
        if control["verb"] == "forget":
            return "DELETE", f"{path}/events/{control['ids'][0]}"
        body = {"outcomes": control["outcomes"]} if control["verb"] == "resume" else {}
        return "POST", f"{path}/{control['verb']}", json.dumps(body)
    fields: Any = kills.fields_of if kind == "forecasts" else kills.result_of
    body = {"events": [{"stream": stream, "id": name, **fields(stream, value)} for stream, name, value in events]}
    method, path = ("PUT", "outcomes") if kind == "corrections" else ("POST", kind)
    return method, f"/v1/{path}", json.dumps(body)


def _heard(kind: str, events: list[Any], status: int, answer: Any) -> Any:
    """An answer as `Clients.hear` wants it."""
    if kind == "control":
        return DONE[events[0]["verb"]] if status == 200 else answer["error"]["code"]
    if status != 200:
        return f"{status} {answer}"
    if kind == "forecasts":
        return [each.get("probability", each.get("probabilities")) for each in answer["forecasts"]]
    return [each["status"] for each in answer["outcomes"]]


def _ask(connection: http.client.HTTPConnection, *request: str) -> tuple[int, Any]:
    connection.request(*request)
    answer = connection.getresponse()
    content = answer.read()
    return answer.status, json.loads(content) if content else None


class Load:
    """Clients who keep services busy, and send again what was not answered."""

    def __init__(self, nursery: Nursery, arguments: list[str], services: int, clients: kills.Clients) -> None:
        self.clients, self._nursery, self._arguments, self.url = clients, nursery, arguments, arguments[1]
        self.dice = random.Random(clients.seed + 1)  # noqa: S311 - a test
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._sent: dict[int, float] = {}  # ticket -> when
        self.numbers = Counter[str]()
        self.services = [self._start() for _ in range(services)]

    def _start(self) -> Service:
        return Service(self._nursery, self._arguments, self._answers)

    def work(self, seconds: float, *, until: Callable[[], bool] = lambda: False, more: bool = True) -> None:
        """Send and hear for so long, or until a condition holds."""
        end, waiting = time.monotonic() + seconds, self.clients.waiting
        while (now := time.monotonic()) < end and not until():
            for ticket, since in list(self._sent.items()):
                if ticket not in waiting:
                    del self._sent[ticket]
                elif now - since > PATIENCE:
                    self.numbers["sent again"] += 1
                    self.clients.repeat(waiting[ticket])
                    self._send(waiting[ticket])
            while more and len(waiting) < kills.WINDOW:
                self._send(self.clients.request())
            try:
                self.clients.hear(self._answers.get(timeout=0.005))
            except queue.Empty:
                continue
            self.numbers["answers"] += 1

    def get_busy(self) -> None:
        """Work for a short random time after some requests were answered, however slow the machine is."""
        enough = self.numbers["answers"] + FEW
        self.work(60.0, until=lambda: self.numbers["answers"] >= enough)
        self.work(self.dice.uniform(0.0, 0.3))

    def leader(self) -> Service:
        """The service that answers; the others stand by."""
        end = time.monotonic() + 60.0
        while time.monotonic() < end:
            if found := next((service for service in self.services if service.leads), None):
                return found
            self.work(0.05)
        raise RuntimeError("a service must lead, got none in a minute")

    def _send(self, request: list[Any]) -> None:
        self._sent[request[0]] = time.monotonic()
        self.dice.choice(self.services).send(request)

    def mend(self) -> None:
        """A new service for each one that has ended."""
        for at, service in enumerate(self.services):
            if not service.is_alive:
                self.end(service, signal.SIGKILL)
                self.services[at] = self._start()
                self._send_again()

    def _send_again(self) -> None:
        """What was not answered may be lost with a service that has ended."""
        if len(self.services) > 1:  # or the other one does it later: the next `work` sends it
            self._sent = dict.fromkeys(self._sent, 0.0)
            return
        for request in list(self.clients.waiting.values()):  # no other copy of it is under way
            self.numbers["sent again"] += 1
            self._send(request)

    def end(self, service: Service, number: int) -> None:
        """End a service, as it must end."""
        status = service.end(number)
        self.numbers["hung up"] += service.hung_up
        wanted = {0} if number == signal.SIGTERM else ENDS
        if status not in wanted:
            self.clients.wrong.append(f"a service ended with status {status}")

    def finish(self) -> None:
        """Let all requests be answered, then stop the services in peace."""
        self.work(60.0, until=lambda: not self.clients.waiting, more=False)
        if self.clients.waiting:
            self.clients.wrong.append(f"{len(self.clients.waiting)} requests were never answered")
        for service in self.services:
            self.end(service, signal.SIGTERM)


# ---- the faults -----------------------------------------------------------------------------------------------------


def kill_service(load: Load, _: Any) -> None:
    """SIGKILL of the service that leads."""
    load.leader().end(signal.SIGKILL)
    load.clients.unwritten += kills.is_behind(load.url)


def stop_service(load: Load, _: Any) -> None:
    """SIGTERM of the service that leads: it lets the other one lead at once."""
    load.end(load.leader(), signal.SIGTERM)


def oversleep(load: Load, _: Any) -> None:
    """SIGSTOP of the service that leads for longer than its lease, and SIGCONT once another one leads."""
    victim = load.leader()
    victim.signal(signal.SIGSTOP)
    load.work(60.0, until=lambda: any(service.leads for service in load.services if service is not victim))
    load.work(load.dice.uniform(0.1, 1.0))
    victim.signal(signal.SIGCONT)


def read_only(load: Load, server: Any) -> None:
    """The database takes no writes for a while, as a replica that is not the first server yet."""
    server.set("default_transaction_read_only", "on")
    load.work(0.5)
    server.set("default_transaction_read_only", "off")


def kill_server(load: Load, server: Any) -> None:
    """SIGKILL of PostgreSQL; services refuse until it is started again."""
    server.kill()
    load.work(0.5)
    server.start()


def freeze(load: Load, _: Any) -> None:
    """SIGSTOP of one service, wherever it is, and SIGCONT a while later."""
    victim = load.dice.choice(load.services)
    victim.signal(signal.SIGSTOP)
    load.work(load.dice.uniform(0.1, 1.5))
    victim.signal(signal.SIGCONT)


def cut(load: Load, server: Any) -> None:
    """All sessions with the database are ended by its administrator."""
    server.cut_sessions()
    load.work(1.0)


FAULTS = {
    "service killed": kill_service,
    "server killed": kill_server,
    "stopped": freeze,
    "stopped for long": oversleep,
    "sessions cut": cut,
    "read only": read_only,
    "service stopped": stop_service,
}


def run(
    nursery: Nursery,
    url: str,
    method: str,
    faults: list[str],
    *,
    services: int = 1,
    most: int = 5,
    seed: int = 0,
    server: Any = None,
    shapes: tuple[str, ...] = ("",),
    verbs: bool = False,
) -> Load:
    """Serve requests, do these faults at random moments, one after another, and end in peace."""
    arguments = ["--store", url, "--method", method, "--seed", "7", "--monitor", MONITOR]
    load = Load(nursery, arguments, services, kills.Clients(seed, most=most, shapes=shapes, verbs=verbs))
    for fault in faults:
        load.get_busy()
        FAULTS[fault](load, server)
        load.mend()
        load.numbers[fault] += 1
    load.get_busy()
    load.mend()
    load.finish()
    return load


if __name__ == "__main__" and Path(sys.argv[0]).name == "faults.py":
    nurse()
