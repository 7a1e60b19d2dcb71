"""What a client says to the service, without saying it: every call is a generator of requests and pauses.

`Client` and `AsyncClient` send the requests and sleep for the pauses, each in its own way. Nothing else differs.
"""

from __future__ import annotations

import time as clock
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from calibeat.errors import CalibeatError

from . import shared
from .errors import Busy, Unreachable, error_of
from .shared import Answer, Buffer, Retries

T = TypeVar("T")


@dataclass(frozen=True)
class Send:
    """A request to be sent. The driver answers with a `Reply`."""

    method: str
    path: str
    content: bytes | None


@dataclass(frozen=True)
class Pause:
    """Seconds to sleep."""

    seconds: float


@dataclass(frozen=True)
class Reply:
    """What came back; status 0 and a reason if nothing did."""

    status: int
    content: bytes
    retry_after: str | None = None


Steps = Generator[Send | Pause, Reply | None, T]


class Conversation:
    """The calls of a client, and the outcomes that it keeps during an outage."""

    def __init__(self, retries: Retries | int, buffer: int) -> None:
        self.retries = Retries(retries) if isinstance(retries, int) else retries
        self.buffer = Buffer(buffer)
        self._away_until = 0.0  # during an outage, when the next attempt is due
        self._failures = 0

    # ---- forecasts --------------------------------------------------------------------------------------------------

    def predict(self, event: dict[str, Any]) -> Steps[Answer]:
        """Calibrate one score."""
        return shared.answer_of((yield from self._post("/v1/forecasts", event)))

    def predict_many(self, events: Iterable[Mapping[str, Any]]) -> Steps[list[Answer]]:
        """Calibrate many."""
        answers: list[Answer] = []
        for part in shared.batches(shared.with_ids(events)):
            found = yield from self._post("/v1/forecasts", {"events": part})
            answers += [shared.answer_of(each) for each in found["forecasts"]]
        return answers

    # ---- outcomes ---------------------------------------------------------------------------------------------------

    def outcome(self, event: dict[str, Any]) -> Steps[str]:
        """Report one outcome. During an outage it waits behind the others."""
        if self.buffer:
            self.buffer.add(event)
            return (yield from self._go_on()).get(event["id"], "buffered")
        try:
            return str((yield from self._post("/v1/outcomes", event))["status"])
        except (Busy, Unreachable):
            if not self.buffer.most:
                raise
            self._keep([event])
            return "buffered"

    def outcomes(self, events: Iterable[Mapping[str, Any]]) -> Steps[list[str]]:
        """Report many outcomes."""
        statuses: list[str] = []
        for part in shared.batches([dict(event) for event in events]):
            if self.buffer:
                self._keep(part)
                done = yield from self._go_on()
                statuses += [done.get(str(event.get("id")), "buffered") for event in part]
                continue
            try:
                found = yield from self._post("/v1/outcomes", {"events": part})
                statuses += [str(each["status"]) for each in found["outcomes"]]
            except (Busy, Unreachable):
                if not self.buffer.most:
                    raise
                self._keep(part)
                statuses += ["buffered"] * len(part)
        return statuses

    def flush(self, attempts: int | None = None) -> Steps[dict[str, str]]:
        """Deliver what waits -> the status of each id."""
        done: dict[str, str] = {}
        while part := self.buffer.take(shared.LARGEST_BATCH):
            try:
                found = yield from self._post("/v1/outcomes", {"events": part}, attempts)
            except (Busy, Unreachable):
                self.buffer.put_back(part)
                self._failures += 1
                self._away_until = clock.monotonic() + self.retries.wait(self._failures)
                raise
            self._failures = 0
            done |= {str(each["id"]): str(each["status"]) for each in found["outcomes"]}
        return done

    def _keep(self, events: list[dict[str, Any]]) -> None:
        for event in events:
            self.buffer.add(event)
        self._away_until = clock.monotonic() + self.retries.wait(self._failures)

    def _go_on(self) -> Steps[dict[str, str]]:
        """One attempt to end the outage, if it is time for one: a caller must not wait for every outcome anew."""
        if clock.monotonic() < self._away_until:
            return {}
        try:
            return (yield from self.flush(attempts=1))
        except (Busy, Unreachable):
            return {}

    # ---- requests ---------------------------------------------------------------------------------------------------

    def get(self, path: str) -> Steps[Any]:
        """Read something."""
        return (yield from self._request(Send("GET", path, None), None))

    def _post(self, path: str, body: Any, attempts: int | None = None) -> Steps[Any]:
        return (yield from self._request(Send("POST", path, shared.encode(body)), attempts))

    def _request(self, request: Send, attempts: int | None) -> Steps[Any]:
        """Send a request until there is an answer that says something about it."""
        most = self.retries.times + 1 if attempts is None else attempts
        error: CalibeatError = Unreachable("no attempt was made")
        for attempt in range(most):
            reply = yield request
            assert reply is not None  # noqa: S101 - the driver's part
            if reply.status and reply.status not in shared.AGAIN:
                return shared.decode(reply.status, reply.content)
            if reply.status:
                error = error_of(reply.status, reply.content)
            else:
                error = Unreachable(f"the service must be reachable, got: {reply.content.decode()}")
            if attempt + 1 < most:
                yield Pause(self.retries.wait(attempt, reply.retry_after))
        raise error
