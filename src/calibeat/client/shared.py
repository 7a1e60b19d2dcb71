"""What both clients share: requests as data, answers as values, and when to try again."""

from __future__ import annotations

import random
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import msgspec

from calibeat._util.check import shown
from calibeat._util.extras import need
from calibeat.errors import InvalidInput

from .errors import ServiceError, error_of

AGAIN = frozenset({429, 502, 503, 504})  # statuses that say nothing about the request itself
LARGEST_BATCH = 5_000  # events in one request
LARGEST_BODY = 4_000_000  # bytes in one request: the service takes 4 MiB
LONGEST_NAME = 200  # characters of a stream's name and of an id
LATEST_TIME = 253_402_300_799.0  # the end of the year 9999
_UNREADABLE = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")  # control characters, and halves of surrogate pairs


@dataclass(frozen=True)
class Answer:
    """A calibrated forecast. `id` is what its outcome is reported with."""

    stream: str
    id: str
    probability: float

    def __float__(self) -> float:
        return self.probability


@dataclass(frozen=True)
class Retries:
    """How often to try, and how long to wait in between: random times, so that clients do not come back together."""

    times: int = 5
    first: float = 0.1
    longest: float = 5.0

    def wait(self, attempt: int, asked_for: str | None = None) -> float:
        """Seconds to wait after a failed attempt (0, 1, ...); at least what the service asked for.

        >>> 0.2 <= Retries(first=0.4).wait(0) <= 0.4
        True
        >>> Retries().wait(0, "2")
        2.0
        """
        most = min(self.longest, self.first * 2.0**attempt)
        wanted = most * (0.5 + 0.5 * random.random())  # noqa: S311 - no secret
        if asked_for is not None and asked_for.isdecimal():
            wanted = max(wanted, min(float(asked_for), self.longest))
        return wanted


def library() -> Any:
    """The HTTP library, or a sentence."""
    return need("httpx", extra="client", what="the client")


def options(url: str, token: str | None, timeout: float) -> dict[str, Any]:
    """The arguments of both clients of httpx."""
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        raise InvalidInput(f"url must begin with http:// or https://, got {shown(url)}")
    headers = {"content-type": "application/json", "user-agent": "calibeat"}
    if token is not None:
        headers["authorization"] = f"Bearer {token}"
    return {"base_url": url, "headers": headers, "timeout": timeout}


def new_id() -> str:
    """An id that nobody else makes."""
    return uuid.uuid4().hex


def forecast_event(stream: str, score: float, id: str | None, time: float | None) -> dict[str, Any]:  # noqa: A002
    """One forecast as the service reads it. The id is made here, once, so that every retry has the same."""
    event: dict[str, Any] = {"stream": stream, "id": new_id() if id is None else id, "score": float(score)}
    return event if time is None else event | {"time": float(time)}


def outcome_event(
    stream: str,
    id: str,  # noqa: A002
    outcome: int,
    time: float | None = None,
    where: str = "",
) -> dict[str, Any]:
    """One outcome as the service reads it, checked as the service does: what waits in the buffer must be fit to send.

    >>> outcome_event("paris", "e" * 201, 1)
    Traceback (most recent call last):
    ...
    calibeat.errors.InvalidInput: id must be text of 1 to 200 characters, got 201
    """
    for name, text in (("stream", stream), ("id", id)):
        if not isinstance(text, str) or not 0 < len(text) <= LONGEST_NAME:
            got = len(text) if isinstance(text, str) else shown(text)
            raise InvalidInput(f"{name} must be text of 1 to {LONGEST_NAME} characters, got {got}{where}")
        if _UNREADABLE.search(text):
            raise InvalidInput(f"{name} must be text without control characters, got {text!r:.60}{where}")
    if outcome not in (0, 1):
        raise InvalidInput(f"outcome must be 0 or 1, got {shown(outcome)}{where}")
    event: dict[str, Any] = {"stream": str(stream), "id": str(id), "outcome": int(outcome)}
    if time is None:
        return event
    try:
        seconds = float(time)
    except (TypeError, ValueError):
        seconds = -1.0
    if not 0.0 <= seconds <= LATEST_TIME:
        raise InvalidInput(f"time must be seconds since 1970, at most the year 9999, got {shown(time)}{where}")
    return event | {"time": seconds}


def outcome_events(events: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The outcomes of a batch; the first bad one is named, and nothing was sent."""
    checked = []
    for at, event in enumerate(events):
        where = f" - at event {at}"
        if not isinstance(event, Mapping):
            raise InvalidInput(f"event must have stream, id and outcome, got {shown(event)}{where}")
        fields = dict(event)
        if missing := [name for name in ("stream", "id", "outcome") if name not in fields]:
            raise InvalidInput(f"{missing[0]} is missing{where}")
        if unknown := fields.keys() - {"stream", "id", "outcome", "time"}:
            raise InvalidInput(f"{min(map(str, unknown))!r:.60} is not a field of an outcome{where}")
        checked.append(outcome_event(**fields, where=where))
    return checked


def with_ids(events: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The events of a batch; those without an id get one."""
    return [{**event, "id": event["id"] if event.get("id") is not None else new_id()} for event in events]


def batches(events: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Parts that fit into one request, by their number and by their bytes."""
    part: list[dict[str, Any]] = []
    room = LARGEST_BODY
    for event in events:
        size = len(encode(event)) + 1  # and a comma
        if part and (len(part) == LARGEST_BATCH or size > room):
            yield part
            part, room = [], LARGEST_BODY
        part.append(event)
        room -= size
    if part:
        yield part


def encode(body: Any) -> bytes:
    """JSON; what JSON cannot hold is the caller's mistake."""
    try:
        return msgspec.json.encode(body)
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise InvalidInput(f"events must be plain text and numbers: {error}") from None


def decode(status: int, content: bytes) -> Any:
    """The value of an answer, or its error. What is no answer of the service, such as a proxy's page, is an error."""
    if status != 200:
        raise error_of(status, content)
    try:
        return msgspec.json.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise _not_ours() from None


def _not_ours() -> ServiceError:
    return ServiceError("the service must answer in its own JSON, got something else with status 200")


def answers(status: int, content: bytes, key: str, count: int) -> list[dict[str, Any]]:
    """The answers to a batch, one for each event, or an error."""
    found = decode(status, content)
    several = found.get(key) if isinstance(found, dict) else None
    if not isinstance(several, list) or len(several) != count:
        raise _not_ours()
    return several


def status_of(found: Any) -> str:
    """The status of one outcome of an answer."""
    try:
        return str(found["status"])
    except (LookupError, TypeError):
        raise _not_ours() from None


def answer_of(found: Any) -> Answer:
    """One forecast of an answer."""
    try:
        return Answer(found["stream"], found["id"], found["probability"])
    except (LookupError, TypeError):
        raise _not_ours() from None


def stream_path(stream: str, *more: str) -> str:
    """The path of a stream.

    >>> stream_path("a/b c"), stream_path("paris", "history")
    ('/v1/streams/a%2Fb%20c', '/v1/streams/paris/history')
    """
    return "/".join(["/v1/streams", quote(stream, safe=""), *more])


def streams_path(after: str | None, limit: int) -> str:
    """The path of a page of streams, by name."""
    return f"/v1/streams?order=name&limit={int(limit)}" + ("" if after is None else f"&after={quote(after, safe='')}")
