"""What both clients share: requests as data, answers as values, and when to try again."""

from __future__ import annotations

import random
import uuid
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import msgspec

from calibeat._util.check import shown
from calibeat._util.extras import need
from calibeat.errors import InvalidInput

from .errors import error_of

AGAIN = frozenset({429, 502, 503, 504})  # statuses that say nothing about the request itself
LARGEST_BATCH = 5_000  # events in one request of `predict_many` and `outcomes`


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


def outcome_event(stream: str, id: str, outcome: int, time: float | None) -> dict[str, Any]:  # noqa: A002
    """One outcome as the service reads it."""
    if outcome not in (0, 1):
        raise InvalidInput(f"outcome must be 0 or 1, got {shown(outcome)}")
    event: dict[str, Any] = {"stream": stream, "id": id, "outcome": int(outcome)}
    return event if time is None else event | {"time": float(time)}


def with_ids(events: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The events of a batch; those without an id get one."""
    return [{**event, "id": event["id"] if event.get("id") is not None else new_id()} for event in events]


def batches(events: list[dict[str, Any]]) -> Iterable[list[dict[str, Any]]]:
    """Parts that fit into one request."""
    return (events[first : first + LARGEST_BATCH] for first in range(0, len(events), LARGEST_BATCH))


def encode(body: Any) -> bytes:
    """JSON; what JSON cannot hold is the caller's mistake."""
    try:
        return msgspec.json.encode(body)
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise InvalidInput(f"events must be plain text and numbers: {error}") from None


def decode(status: int, content: bytes) -> Any:
    """The value of an answer, or its error."""
    if status >= 400:
        raise error_of(status, content)
    return msgspec.json.decode(content)


def answer_of(found: Mapping[str, Any]) -> Answer:
    """One forecast of an answer."""
    return Answer(found["stream"], found["id"], found["probability"])


def stream_path(stream: str, *more: str) -> str:
    """The path of a stream.

    >>> stream_path("a/b c"), stream_path("paris", "history")
    ('/v1/streams/a%2Fb%20c', '/v1/streams/paris/history')
    """
    return "/".join(["/v1/streams", quote(stream, safe=""), *more])


def streams_path(after: str | None, limit: int) -> str:
    """The path of a page of streams, by name."""
    return f"/v1/streams?order=name&limit={int(limit)}" + ("" if after is None else f"&after={quote(after, safe='')}")


class Buffer:
    """Outcomes that could not be delivered yet, oldest first. The oldest go when it is full; `dropped` counts them.

    >>> buffer = Buffer(2)
    >>> for id in "abc":
    ...     buffer.add({"id": id})
    >>> [event["id"] for event in buffer.take(10)], buffer.dropped, len(buffer)
    (['b', 'c'], 1, 0)
    """

    def __init__(self, most: int) -> None:
        self._events: deque[dict[str, Any]] = deque()
        self.most = most
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._events)

    def add(self, event: dict[str, Any]) -> None:
        """Keep an outcome for later."""
        self._events.append(event)
        if len(self._events) > self.most:
            self._events.popleft()
            self.dropped += 1

    def take(self, count: int) -> list[dict[str, Any]]:
        """Take out the oldest ones."""
        return [self._events.popleft() for _ in range(min(count, len(self._events)))]

    def put_back(self, events: list[dict[str, Any]]) -> None:
        """They were not delivered: they are the oldest again."""
        self._events.extendleft(reversed(events))
