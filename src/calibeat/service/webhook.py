"""Alarms to a web address: signed, pages first, again and again until they are taken; never in the way of a commit.

One cause is one message: alarms that are raised within a minute go together. A further message says when all of them
are over. Each alarm in the store says whether it was delivered, so none is lost when a process ends. A message can
arrive twice: `x-calibeat-delivery` tells.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import ssl
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

import httpx
import msgspec

from calibeat.errors import InvalidInput

from .alarms import TOGETHER, group_of, mutes, page_of
from .patterns import matches
from .store import open_connection
from .store.queries import AlarmRow, alarm_rows
from .watch import RAW

log = logging.getLogger("calibeat.service")
WebhookFormat = Literal["json", "slack"]
BEGUN = "webhook_begun"  # in the store: alarms are delivered since there was a webhook for the first time
LOOK = 1.0  # seconds between two looks for new alarms
GATHER = 5.0  # seconds that the first alarm waits for others of the same cause
LONGEST_PAUSE = 60.0
PATIENCE = 10.0  # seconds for one request, whatever the receiver does
STOP = 2.0  # seconds that the end of the process waits for a request that is under way
MOST = 1000  # alarms in one message
LISTED = 100  # of them in full
WAITING, SENT, TOLD_OVER, NOT_SENT = range(4)  # the column `delivered`
# The alarms that a message may tell of. What is muted or acknowledged is noted as not sent.
_NEW = f"WHERE a.delivered = {WAITING}"
# All alarms of a message must be over, and it was a page.
_OVER = (
    f"WHERE a.delivered = {SENT} AND a.page = 1 AND a.message = (SELECT min(b.message) FROM alarm b WHERE "  # noqa: S608
    f"b.delivered = {SENT} AND b.page = 1 AND NOT EXISTS (SELECT 1 FROM alarm c WHERE "
    f"c.delivered = {SENT} AND c.message = b.message AND c.ended IS NULL))"
)
_PAGES_FIRST = "a.page DESC, a.number"


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


# ---- what is sent ---------------------------------------------------------------------------------------------------


def message(alarms: Sequence[AlarmRow], base: str, kind: WebhookFormat) -> Any:
    """Alarms of one cause as a receiver wants them."""
    group = group_of(alarms)
    streams = list(dict.fromkeys(alarm.stream for alarm in alarms))
    url = page_of(base, streams)
    if kind == "slack":
        mark = ":large_green_circle:" if group.ended is not None else ":rotating_light:" if group.page else ":bell:"
        return {"text": f"{mark} calibeat: {_slack(group.text)} <{url}|Open the dashboard>"}
    return {
        "text": f"calibeat: {group.text}",
        "url": url,
        "state": "open" if group.ended is None else "over",
        "page": group.page,
        "streams": group.streams,
        "since_time": group.since_time,
        "ended": group.ended,
        "alarms": [{**msgspec.to_builtins(alarm), "url": page_of(base, [alarm.stream])} for alarm in alarms[:LISTED]],
    }


def _slack(text: str) -> str:
    """Text of others in Slack's marks."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


class Webhook:
    """A thread that delivers alarms."""

    def __init__(
        self,
        store: str,
        url: str,
        secret: bytes | None,
        pause: float = 1.0,
        *,
        kind: WebhookFormat = "json",
        page: str = "",
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise InvalidInput(f"webhook must begin with http:// or https://, got {url!r:.100}")
        self._store, self._url, self._secret, self._pause = store, url, secret, pause
        self._kind, self._page = kind, page
        self._failures = 0  # since the last delivery
        self._quiet_until = 0.0  # by this process's clock: what is raised before goes together
        self._is_left = False  # the process did not wait for the thread's end, and the store is closed
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="calibeat-webhook", daemon=True)

    def start(self) -> None:
        """Alarms from now on, and those that an earlier process could not deliver."""
        self._with_connection(self._begin)
        self._thread.start()

    def stop(self) -> None:
        """What is not delivered yet stays in the store. A request that takes long is left behind."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(STOP)
            self._is_left = self._thread.is_alive()

    def _with_connection(self, use: Callable[[Any], None]) -> None:
        with closing(open_connection(self._store, write=True)) as connection:
            use(connection)

    def _begin(self, connection: Any) -> None:
        connection.begin()
        begins = "INSERT INTO meta (name, value) VALUES (?, '1') ON CONFLICT (name) DO NOTHING"
        if connection.run(begins, (BEGUN,)):  # once in the life of a store
            connection.run("UPDATE alarm SET delivered = ?", (NOT_SENT,))
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
        """Everything that was not taken yet, one message after the other."""
        while not self._stop.is_set():
            found, state = self._next(connection, _NEW), SENT
            if not found:
                found, state = self._next(connection, _OVER), TOLD_OVER
            if not found:
                return
            body = msgspec.json.encode(message(found, self._page, self._kind))
            self.post(body, str(found[0].number) + ("-over" if state == TOLD_OVER else ""))
            self._failures = 0
            if state == SENT:
                self._quiet_until = time.monotonic() + TOGETHER * self._pause
            if self._is_left:
                return  # the next process sends it once more
            _set_delivered(connection, found, state, found[0].number)

    def _next(self, connection: Any, where: str) -> list[AlarmRow]:
        """The alarms of the next message; none as long as others may come that belong to it."""
        found = alarm_rows(connection.all, where, (), MOST, order=_PAGES_FIRST)
        if where == _NEW:
            silent = _not_to_be_sent(connection, found)
            _set_delivered(connection, silent, NOT_SENT)
            found = [alarm for alarm in found if alarm not in silent]
        else:
            return found
        group = [
            alarm for alarm in found if alarm.page == found[0].page and abs(alarm.time - found[0].time) <= TOGETHER
        ]
        if group:
            age = time.time() - min(alarm.time for alarm in group)
            if age < 0.0:  # the clock was ahead when they were raised
                return group
            if age < GATHER * self._pause or (time.monotonic() < self._quiet_until and age < TOGETHER * self._pause):
                return []
        return group

    def post(self, body: bytes, delivery: str) -> None:
        """Send one message.

        Raises
        ------
        OSError : it was not taken with a status of 2xx within `PATIENCE`.
        """
        timestamp = str(int(time.time()))
        headers = {
            "content-type": "application/json",
            "user-agent": "calibeat",
            "x-calibeat-delivery": delivery,
            "x-calibeat-timestamp": timestamp,
        }
        if self._secret is not None:
            headers["x-calibeat-signature"] = signature(self._secret, timestamp, body)
        # On a thread of its own: on Python 3.11 coverage loses the callers of an `asyncio.run` in which a coroutine
        # catches a cancellation. A daemon: the process can end before the request does.
        answer = Future[int]()
        threading.Thread(target=_run_apart, args=(answer, self._status(body, headers)), daemon=True).start()
        status = answer.result()
        if not 200 <= status < 300:  # also a redirect: a signed alarm goes to the configured address and to no other
            raise OSError(f"the receiver answered with status {status}")

    async def _status(self, body: bytes, headers: dict[str, str]) -> int:
        """Send a request and return the status of its answer.

        One time limit covers all of it. Those of httpx are for each step, such as a read: a receiver that sends a byte
        now and then could hold a request for ever. To connect and to shake hands take a third each at most: httpx
        closes the socket of a handshake that is late, and not that of one that is cancelled.
        """
        steps = httpx.Timeout(PATIENCE, connect=PATIENCE / 3)
        try:
            async with (
                asyncio.timeout(PATIENCE),
                httpx.AsyncClient(timeout=steps, verify=ssl.create_default_context()) as client,
                client.stream("POST", self._url, content=body, headers=headers) as answer,
            ):
                return answer.status_code
        except (TimeoutError, httpx.TimeoutException):
            raise TimeoutError(f"the receiver timed out within {PATIENCE:g} seconds") from None


def _run_apart(answer: Future[int], status: Coroutine[Any, Any, int]) -> None:
    """Run a request to its end, and hand over what came of it."""
    try:
        answer.set_result(asyncio.run(status))
    except BaseException as error:  # noqa: BLE001 - raised where the answer is awaited
        answer.set_exception(error)


def _set_delivered(connection: Any, alarms: Sequence[AlarmRow], state: int, message: int | None = None) -> None:
    """Note what was done with some alarms, and with which message: it is named by the first of them."""
    update = "UPDATE alarm SET delivered = ?, message = ? WHERE number = ?"
    connection.run_many(update, [(state, message, alarm.number) for alarm in alarms])


def _not_to_be_sent(connection: Any, alarms: Sequence[AlarmRow]) -> list[AlarmRow]:
    """Alarms of muted streams and of raw scores, and follow-ups of an alarm that somebody looks after."""
    if not alarms:
        return []
    muted = [each.streams for each in mutes(connection.all)]
    looked_after = {
        name
        for (name,) in connection.all(
            "SELECT DISTINCT s.name FROM alarm a JOIN stream s ON s.number = a.stream "
            "WHERE a.ended IS NULL AND a.acknowledged IS NOT NULL"
        )
    }
    return [
        alarm
        for alarm in alarms
        if alarm.part == RAW or matches(muted, alarm.stream) or (not alarm.page and alarm.stream in looked_after)
    ]
