"""What a client says to the service, without saying it: every call is a generator of requests and pauses.

`Client` and `AsyncClient` send the requests and sleep for the pauses, each in its own way. Nothing else differs.
"""

from __future__ import annotations

import time as clock
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from calibeat.errors import CalibeatError, InvalidInput, OutcomeConflict, UnknownForecast

from . import shared
from .buffer import Buffer
from .errors import Busy, Unreachable, detail_of, error_of
from .shared import Answer, Retries

T = TypeVar("T")
INVALID, TOO_LARGE = 400, 413
REFUSED = "refused"  # the status of an outcome that was set aside
SOON = 0.02  # seconds between two looks whether it is this call's turn


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
Done = list[tuple[dict[str, Any], str]]  # outcomes of the buffer that were answered, and their statuses


def _post(path: str, body: Any) -> Send:
    return Send("POST", path, shared.encode(body))


class Conversation:
    """The calls of a client, and the outcomes that it keeps during an outage.

    Without an outage each call sends its own outcomes, and no call waits for another. After a failure the outcomes go
    into the buffer, and only one call at a time tries to deliver it: the others return at once. A call that is
    interrupted or cancelled, at whatever step, leaves in the buffer what was not answered. Some of it may arrive twice,
    which changes nothing: the service knows events by their ids.
    """

    def __init__(self, retries: Retries | int, buffer: int) -> None:
        self.retries = Retries(retries) if isinstance(retries, int) else retries
        self.buffer = Buffer(buffer)
        self._is_away = False  # an attempt to deliver outcomes has failed, and none has succeeded since
        self._away_until = 0.0  # when the next attempt is due
        self._failures = 0

    # ---- forecasts --------------------------------------------------------------------------------------------------

    def predict(self, event: dict[str, Any]) -> Steps[Answer]:
        """Calibrate one score."""
        reply = yield from self._send(_post("/v1/forecasts", event), last=self._attempts)
        return shared.answer_of(shared.decode(reply.status, reply.content))

    def predict_many(self, events: Iterable[Mapping[str, Any]]) -> Steps[list[Answer]]:
        """Calibrate many."""
        answers: list[Answer] = []
        for part in list(shared.batches(shared.with_ids(events))):  # all are encoded before the first is sent
            found = yield from self._send_batch("/v1/forecasts", "forecasts", part, last=self._attempts)
            answers += [shared.answer_of(each) for each in found]
        return answers

    # ---- outcomes ---------------------------------------------------------------------------------------------------

    def outcome(self, event: dict[str, Any]) -> Steps[str]:
        """Report one outcome. During an outage it waits behind the others."""
        (status,) = yield from self._report([event], one=True)
        got = f"id {event['id']!r:.60}"
        if status == REFUSED:
            raise InvalidInput(self.buffer.reason(event))
        if status in {"unknown", "expired"}:
            raise UnknownForecast(f"outcome must be of a pending forecast, got {got}, which is {status}")
        if status == "conflict":
            raise OutcomeConflict(f"outcome must be the one that is known, got another for {got}")
        return status

    def outcomes(self, events: Iterable[Mapping[str, Any]]) -> Steps[list[str]]:
        """Report many outcomes."""
        return (yield from self._report(shared.outcome_events(events)))

    def flush(self) -> Steps[dict[str, str]]:
        """Deliver what waits -> the status of each id."""
        done = yield from self._deliver(last=self._attempts, patient=True)
        return {event["id"]: status for event, status in done}

    def _report(self, events: list[dict[str, Any]], *, one: bool = False) -> Steps[list[str]]:
        """Send outcomes, or put them into the buffer -> the status of each."""
        statuses: list[str] = []
        rest, are_kept = events, not self.buffer.most
        try:
            for part in shared.batches(events):
                rest = events[len(statuses) :]
                first, asked_for = 0, None
                if not self._must_wait(part):
                    try:
                        statuses += yield from self._send_at_once(part, one=one)
                        continue
                    except (Busy, Unreachable) as error:
                        if not self.buffer.most:
                            raise
                        first, asked_for = 1, error.retry_after
                        self._note_failure()
                self.buffer.add(rest)
                are_kept = True
                done = {id(event): status for event, status in (yield from self._go_on(first, asked_for))}
                return statuses + [done.get(id(event), "buffered") for event in rest]
        except CalibeatError:
            raise  # the caller is told; what was in the buffer is there still
        except BaseException:  # interrupted or cancelled: nobody is told what arrived
            if not are_kept:
                self.buffer.add(rest)
            raise
        return statuses

    def _must_wait(self, part: list[dict[str, Any]]) -> bool:
        """Whether outcomes go behind those in the buffer: in an outage, if nobody is sending those, or for their order.

        While a call delivers the buffer after an outage, others send their own: the buffer must not grow then.
        """
        if not self.buffer:
            return False
        return self._is_away or self.buffer.is_idle or self.buffer.holds({event["id"] for event in part})

    def _send_at_once(self, part: list[dict[str, Any]], *, one: bool) -> Steps[list[str]]:
        """One attempt: if it fails, there is the buffer. Without a buffer, all attempts."""
        last = 1 if self.buffer.most else self._attempts
        if one:
            reply = yield from self._send(_post("/v1/outcomes", part[0]), last=last)
            return [shared.status_of(shared.decode(reply.status, reply.content))]
        found = yield from self._send_batch("/v1/outcomes", "outcomes", part, last=last)
        return [shared.status_of(each) for each in found]

    def _go_on(self, first: int, asked_for: str | None) -> Steps[Done]:
        """Try to end the outage -> what became of the outcomes; nothing if that failed or is not for this call to do.

        A call whose own attempt has failed (`first` is 1) makes the retries. Others make one attempt, if it is time for
        one: a caller must not wait for every outcome anew.
        """
        last = self._attempts if first else 1
        if first == last or (not first and self._is_away and clock.monotonic() < self._away_until):
            return []
        try:
            return (yield from self._deliver(first=first, last=last, asked_for=asked_for))
        except (Busy, Unreachable):
            return []

    def _deliver(
        self, *, first: int = 0, last: int, asked_for: str | None = None, patient: bool = False
    ) -> Steps[Done]:
        """Send what waits, if no other call does; a patient call waits for its turn -> what became of the outcomes."""
        while (turn := self.buffer.take_turn()) is None:
            if not patient:
                return []
            yield Pause(SOON)
        try:
            return (yield from self._send_waiting(first, last, asked_for))
        except CalibeatError:
            self._note_failure()
            raise
        finally:
            del turn
            self.buffer.end_turn()

    def _send_waiting(self, first: int, last: int, asked_for: str | None) -> Steps[Done]:
        done: Done = []
        most = shared.LARGEST_BATCH
        while part := self.buffer.oldest(most):
            reply = yield from self._send(_post("/v1/outcomes", {"events": part}), first, last, asked_for)
            first = 0
            if reply.status == TOO_LARGE and len(part) > 1:
                most = len(part) // 2
                continue
            detail = detail_of(reply.content) if reply.status == INVALID else {}
            at = detail.get("at")
            if isinstance(at, int) and 0 <= at < len(part):
                self.buffer.refuse(at, str(detail["message"]))
                done.append((part[at], REFUSED))
            else:
                found = shared.answers(reply.status, reply.content, "outcomes", len(part))
                done += [(event, shared.status_of(each)) for event, each in zip(part, found, strict=True)]
                self.buffer.answered(len(part))
            self._is_away, self._failures = False, 0
        return done

    def _note_failure(self) -> None:
        self._away_until = clock.monotonic() + self.retries.wait(self._failures)
        self._failures += 1
        self._is_away = True

    # ---- requests ---------------------------------------------------------------------------------------------------

    @property
    def _attempts(self) -> int:
        return self.retries.times + 1

    def get(self, path: str) -> Steps[Any]:
        """Read something."""
        reply = yield from self._send(Send("GET", path, None), last=self._attempts)
        return shared.decode(reply.status, reply.content)

    def _send_batch(self, path: str, key: str, part: list[dict[str, Any]], *, last: int) -> Steps[list[dict[str, Any]]]:
        """Send a batch, in halves if it is too large for the service or a proxy -> the answers in order."""
        reply = yield from self._send(_post(path, {"events": part}), last=last)
        if reply.status == TOO_LARGE and len(part) > 1:
            half = len(part) // 2
            found = yield from self._send_batch(path, key, part[:half], last=last)
            return found + (yield from self._send_batch(path, key, part[half:], last=last))
        return shared.answers(reply.status, reply.content, key, len(part))

    def _send(self, request: Send, first: int = 0, last: int = 1, asked_for: str | None = None) -> Steps[Reply]:
        """Send a request until there is an answer that says something about it: attempts `first` to `last` - 1."""
        error: CalibeatError = Unreachable("no attempt was made")
        for attempt in range(first, last):
            if attempt:
                yield Pause(self.retries.wait(attempt - 1, asked_for))
            reply = yield request
            assert reply is not None  # noqa: S101 - the driver's part
            if reply.status and reply.status not in shared.AGAIN:
                return reply
            asked_for = reply.retry_after
            if reply.status:
                error = error_of(reply.status, reply.content, asked_for)
            else:
                error = Unreachable(f"the service must be reachable, got: {reply.content.decode()}")
        try:
            raise error
        finally:
            del error  # else the error and this frame would keep each other, and the frames below with their turn
