"""Alarms to a web address: signed, pages first, again and again until they are taken; never in the way of a commit.

Each alarm in the store says whether it was delivered, so none is lost when a process ends, or when several processes
commit alarms in another order than that of their numbers. An alarm can arrive twice: the number in
`x-calibeat-delivery` tells.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import io
import logging
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from calibeat.errors import InvalidInput

from .store import open_connection, sqlite_path
from .store.queries import SELECT_ALARMS, alarm_info

log = logging.getLogger("calibeat.service")
BEGUN = "webhook_begun"  # in the store: alarms are delivered since there was a webhook for the first time
LOOK = 1.0  # seconds between two looks for new alarms
LONGEST_PAUSE = 60.0
PATIENCE = 10.0  # seconds for one request, whatever the receiver does
STOP = 2.0  # seconds that the end of the process waits for a request that is under way
_NEXT = SELECT_ALARMS + "WHERE a.delivered = 0 ORDER BY a.page DESC, a.number LIMIT 1"


def signature(secret: bytes, timestamp: str, body: bytes) -> str:
    """What `x-calibeat-signature` must be: HMAC-SHA256 over the time, a dot and the body.

    >>> signature(b"secret", "1790000000", b"{}")[:20]
    'sha256=d0cadd434460d'
    """
    return "sha256=" + hmac.new(secret, timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


def read_secret(path: Path | None) -> bytes | None:
    """The shared secret: the file without white space around it."""
    if path is None:
        return None
    secret = path.read_bytes().strip()
    if len(secret) < 16:
        raise InvalidInput(f"webhook secret must be 16 bytes or more, got {len(secret)} - in {path}")
    return secret


class Webhook:
    """A thread that delivers alarms."""

    def __init__(self, store: str, url: str, secret: bytes | None, pause: float = 1.0) -> None:
        if not url.startswith(("http://", "https://")):
            raise InvalidInput(f"webhook must begin with http:// or https://, got {url!r:.100}")
        self._store, self._url, self._secret, self._pause = store, url, secret, pause
        self._failures = 0  # since the last delivery
        self._is_left = False  # the process did not wait for the thread's end, and the store is closed
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="calibeat-webhook", daemon=True)
        self._opener = urllib.request.build_opener(_NoRedirect, _Http, _Https)

    def start(self) -> None:
        """Alarms from now on, and those that an earlier process could not deliver."""
        self._with_connection(self._begin)
        self._thread.start()

    def stop(self) -> None:
        """What is not delivered yet stays in the store. A request that takes long is left behind."""
        self._stop.set()
        self._thread.join(STOP)
        self._is_left = self._thread.is_alive()

    def _with_connection(self, use: Callable[[Any], None]) -> None:
        with closing(open_connection(self._store, write=True)) as connection:
            use(connection)

    def _begin(self, connection: Any) -> None:
        connection.begin()
        begins = "INSERT INTO meta (name, value) VALUES (?, '1') ON CONFLICT (name) DO NOTHING"
        if connection.run(begins, (BEGUN,)):  # once in the life of a store
            connection.run("UPDATE alarm SET delivered = 1")
        connection.commit()

    def _run(self) -> None:
        while not self._stop.wait(self._wait()):
            try:
                self._with_connection(self._deliver)
            except Exception as error:  # noqa: BLE001 - the receiver's or the store's fault: later again
                self._failures += 1
                log.warning("alarms could not be delivered, trying again: %s", error)

    def _wait(self) -> float:
        """Seconds until the next look, or the next attempt."""
        if not self._failures:
            return LOOK * self._pause
        return min(LONGEST_PAUSE, self._pause * 2.0 ** (min(self._failures, 10) - 1))

    def _deliver(self, connection: Any) -> None:
        """Everything that was not taken yet, one after the other."""
        # Several processes may deliver from PostgreSQL. A transaction keeps its alarm from the others until it was
        # taken. If a process hangs inside, the database ends its session, and another one sends the alarm. SQLite has
        # one process, and a transaction there would hold up the engine.
        is_shared = sqlite_path(self._store) is None
        if is_shared:
            connection.run("SET idle_in_transaction_session_timeout = '60s'")
        while not self._stop.is_set():
            if is_shared:
                connection.begin()
            found = connection.all(_NEXT + " FOR UPDATE OF a SKIP LOCKED" if is_shared else _NEXT)
            if not found:
                return
            alarm = alarm_info(found[0])
            self.post(msgspec.json.encode({"alarm": alarm}), str(alarm.number))
            self._failures = 0
            if self._is_left:
                return  # the next process sends it once more
            connection.run("UPDATE alarm SET delivered = 1 WHERE number = ?", (alarm.number,))
            if is_shared:
                connection.commit()

    def post(self, body: bytes, delivery: str) -> None:
        """Send one alarm; raises unless it was taken with a status of 2xx."""
        timestamp = str(int(time.time()))
        headers = {
            "content-type": "application/json",
            "user-agent": "calibeat",
            "x-calibeat-delivery": delivery,
            "x-calibeat-timestamp": timestamp,
        }
        if self._secret is not None:
            headers["x-calibeat-signature"] = signature(self._secret, timestamp, body)
        request = urllib.request.Request(self._url, body, headers, method="POST")  # noqa: S310 - checked above
        with self._opener.open(request, timeout=PATIENCE):
            pass


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """A signed alarm goes to the address that was configured, and to no other."""


# ---- one time limit for a whole request ----------------------------------------------------------------------------
# The time limit of a socket is for each read: a receiver that sends a byte now and then could hold a request for ever.


def _left(end: float) -> float:
    """Seconds until a moment; raises when it is over."""
    left = end - time.monotonic()
    if left <= 0.0:
        raise TimeoutError("timed out")
    return left


class _Connection(http.client.HTTPConnection):
    """A connection that must be done with its request within its time limit."""

    def __init__(self, host: str, *, timeout: float = PATIENCE, **more: Any) -> None:
        super().__init__(host, timeout=timeout, **more)
        self._end = time.monotonic() + timeout

    def connect(self) -> None:
        super().connect()
        self.sock.settimeout(_left(self._end))

    def response_class(self, sock: socket.socket, *args: Any, **more: Any) -> http.client.HTTPResponse:  # type: ignore[override]
        """What `http.client` reads an answer with."""
        return http.client.HTTPResponse(_Received(sock, self._end), *args, **more)  # type: ignore[arg-type]


class _TlsConnection(_Connection, http.client.HTTPSConnection):
    pass


class _Received(io.RawIOBase):
    """What a socket receives until a moment."""

    def __init__(self, sock: socket.socket, end: float) -> None:
        super().__init__()
        self._sock, self._end = sock, end

    def makefile(self, _: str) -> io.BufferedReader:
        """What `http.client` asks of a socket."""
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._sock.settimeout(_left(self._end))
        return self._sock.recv_into(buffer)


class _Http(urllib.request.HTTPHandler):
    def do_open(self, http_class: Any, req: urllib.request.Request, **more: Any) -> http.client.HTTPResponse:  # noqa: ARG002
        return super().do_open(_Connection, req, **more)


class _Https(urllib.request.HTTPSHandler):
    def do_open(self, http_class: Any, req: urllib.request.Request, **more: Any) -> http.client.HTTPResponse:  # noqa: ARG002
        return super().do_open(_TlsConnection, req, **more)
