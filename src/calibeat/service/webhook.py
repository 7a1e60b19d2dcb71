"""Alarms to a web address: signed, in order, again and again until they are taken; never in the way of a commit.

The store keeps the alarms and the number of the last one that was taken, so nothing is lost when a process ends. An
alarm can arrive twice: the number in `x-calibeat-delivery` tells.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
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

from .store import open_connection
from .store.schema import get_meta, set_meta

log = logging.getLogger("calibeat.service")
DELIVERED = "webhook_delivered"  # in the store: the number of the last alarm that was taken
AT_ONCE = 100
LOOK = 1.0  # seconds between two looks for new alarms
LONGEST_PAUSE = 60.0
PATIENCE = 10.0  # seconds for one request


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
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="calibeat-webhook", daemon=True)
        self._opener = urllib.request.build_opener(_NoRedirect)

    def start(self) -> None:
        """Alarms from now on, and those that an earlier process could not deliver."""
        self._with_connection(self._begin)
        self._thread.start()

    def stop(self) -> None:
        """What is not delivered yet stays in the store."""
        self._stop.set()
        self._thread.join()

    def _with_connection(self, use: Callable[[Any], None]) -> None:
        with closing(open_connection(self._store, write=True)) as connection:
            use(connection)

    def _begin(self, connection: Any) -> None:
        if DELIVERED not in get_meta(connection):
            last = connection.all("SELECT coalesce(max(number), 0) FROM alarm")[0][0]
            set_meta(connection, DELIVERED, str(int(last)))

    def _run(self) -> None:
        failures = 0
        while not self._stop.wait(min(LONGEST_PAUSE, self._pause * 2.0**failures) if failures else LOOK * self._pause):
            try:
                self._with_connection(self._deliver)
                failures = 0
            except Exception as error:  # noqa: BLE001 - the receiver's or the store's fault: later again
                failures = min(failures + 1, 10)
                log.warning("alarms could not be delivered, trying again: %s", error)

    def _deliver(self, connection: Any) -> None:
        """Everything that was not taken yet, one after the other."""
        delivered = int(get_meta(connection)[DELIVERED])
        while not self._stop.is_set():
            rows = connection.all(
                "SELECT a.number, s.name, a.time, a.at, a.since, a.what, a.page FROM alarm a "
                "JOIN stream s ON s.number = a.stream WHERE a.number > ? ORDER BY a.number LIMIT ?",
                (delivered, AT_ONCE),
            )
            if not rows:
                return
            for number, stream, moment, at, since, what, page in rows:
                alarm = {
                    "number": number,
                    "stream": stream,
                    "time": moment,
                    "at": at,
                    "since": since,
                    "what": what,
                    "page": bool(page),
                }
                self.post(msgspec.json.encode({"alarm": alarm}), str(number))
                delivered = int(number)
                set_meta(connection, DELIVERED, str(delivered))

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
