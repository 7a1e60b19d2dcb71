"""The calls of a client as generators of requests and pauses, without a network.

`Client` and `AsyncClient` send the requests and sleep for the pauses, each in its own way. Nothing else differs.
"""

from __future__ import annotations

import logging
import operator
import random
import re
import threading
import time as clock
import uuid
import weakref
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from calibeat._util.check import shown
from calibeat.errors import CalibeatError, InvalidInput, OutcomeConflict, UnknownForecast

from .errors import RETRIED, Busy, ServiceError, Unreachable, detail_of, error_of

log = logging.getLogger("calibeat.client")
T = TypeVar("T")
Label = str | int | float | bool
Scores = Iterable[float] | Mapping[str, float]
INVALID, TOO_LARGE = 400, 413
LARGEST_BATCH = 5_000  # events in one request
LARGEST_BODY = 4_000_000  # bytes in one request: the service takes 4 MiB
LONGEST_NAME = 200  # characters of a stream's name and of an id
LATEST_TIME = 253_402_300_799.0  # the end of the year 9999
KEPT_REFUSALS = 1_000  # the latest ones; `refused` counts all
REFUSED = "refused"  # the status of an outcome that was set aside
HEAVIEST, MOST_TRIALS = 1e12, 10**9  # the largest weight, and the most events of one outcome
OUTCOME_FIELDS = {"stream", "id", "outcome", "time", "label", "weight", "ones", "of"}
SOON = 0.02  # seconds between two looks whether it is this call's turn
_UNREADABLE = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")  # control characters, and halves of surrogate pairs


@dataclass(frozen=True)
class Answer:
    """A calibrated forecast. `id` is what its outcome is reported with.

    With many classes `probabilities` contains all of them, by place or by name, and `probability` is the largest. A
    service with ``--band`` adds the interval from `low` to `high`, the number of `outcomes` of this very score that
    would make the forecast as good, and a `reason` to doubt the interval, or an empty text.
    """

    stream: str
    id: str
    probability: float
    probabilities: list[float] | dict[str, float] | None = None
    low: float | None = None
    high: float | None = None
    outcomes: float | None = None
    reason: str | None = None

    def __float__(self) -> float:
        return self.probability


@dataclass(frozen=True)
class Retries:
    """How often to try again, and how long to wait in between: random times, so that clients do not come together."""

    times: int = 5
    first: float = 0.1  # seconds before the first retry, at most; doubled with each further one
    longest: float = 5.0  # seconds

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


@dataclass(frozen=True)
class RefusedOutcome:
    """An outcome that the service will never take, and the service's reason."""

    event: dict[str, Any]
    reason: str


# ---- requests, pauses and replies ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Send:
    """A request to be sent. The driver answers with a `Reply`."""

    method: str
    path: str
    content: bytes | None
    headers: dict[str, str] | None = None


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

    def predict(
        self,
        stream: str,
        score: float | None = None,
        id: str | None = None,  # noqa: A002 - the word of the service
        *,
        scores: Scores | None = None,
        groups: Mapping[str, Any] | None = None,
        time: float | None = None,
    ) -> Steps[Answer]:
        """Calibrate one score. `float(answer)` is the probability, `answer.id` is what the outcome is reported with.

        Pass `scores` for many classes, by place or by name: `answer.probabilities` contains the calibrated ones. Pass
        them also for several models, ``{"champion": 0.83, "challenger": 0.71}``, with None for a missing one, after
        `define` has named the models. `groups` are attributes of the event, such as ``{"country": "fr"}``. The first
        event of a stream decides which attributes it has.
        `time` is when the score was issued, in seconds since 1970; the service's clock if not given.

        Raises
        ------
        InvalidInput : the service cannot read the event, or it is not like the others of its stream.
        OutcomeConflict : the event of this id had another score.
        NotAllowed, Busy, Unreachable, ServiceError : the token is refused, or no good answer came after all retries.
        """
        event: dict[str, Any] = {"stream": stream, "id": uuid.uuid4().hex if id is None else id}
        if score is not None:
            event["score"] = float(score)
        if scores is not None:
            event["scores"] = plain_scores(scores)
        if groups is not None:
            event["groups"] = dict(groups)
        if time is not None:
            event["time"] = float(time)
        reply = yield from self._send(_post("/v1/forecasts", event), last=self._attempts)
        return answer_of(decode(reply.status, reply.content))

    def predict_many(self, events: Iterable[Mapping[str, Any]]) -> Steps[list[Answer]]:
        """Calibrate many scores: events with `stream`, `score` or `scores`, and `id`, `groups` and `time` if wanted.

        Answers are in order.

        Raises what `predict` raises.
        """
        answers: list[Answer] = []
        named = [{**event, "id": uuid.uuid4().hex if event.get("id") is None else event["id"]} for event in events]
        named = [
            event if "scores" not in event else {**event, "scores": plain_scores(event["scores"])} for event in named
        ]
        for part in list(batches(named)):  # all are encoded before the first is sent
            found = yield from self._send_batch("/v1/forecasts", "forecasts", part, last=self._attempts)
            answers += [answer_of(each) for each in found]
        return answers

    # ---- outcomes ---------------------------------------------------------------------------------------------------

    def outcome(
        self,
        stream: str,
        id: str,  # noqa: A002
        outcome: int | None = None,
        *,
        label: Label | None = None,
        weight: float | None = None,
        ones: int | None = None,
        of: int | None = None,
        time: float | None = None,
    ) -> Steps[str]:
        """Report the outcome of a forecast: ``learnt``, ``repeated``, ``held``, ``corrected``, or ``buffered``.

        It is 0 or 1. With many classes, pass the `label`: the name of the class, or its place. For a count, pass how
        many `ones` there were `of` how many events. `weight` is the number of events that the outcome stands for.
        `time` is when it was known, in seconds since 1970. During an outage the outcome waits behind the others.

        Raises
        ------
        InvalidInput : the outcome cannot be sent, or the service refuses it.
        UnknownForecast : there is no forecast of this id, or it has expired.
        OutcomeConflict : another outcome is known.
        NotAllowed, ServiceError : the service refuses the request. Without a buffer also `Busy` and `Unreachable`.
        """
        event = outcome_event(stream, id, outcome, time, label=label, weight=weight, ones=ones, of=of)
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
        """Report many outcomes -> a status for each, in their order.

        These are the statuses of `outcome`, and ``unknown``, ``expired``, ``conflict``, ``invalid`` (not an outcome of
        its stream) and ``refused`` (the same, of one that was buffered).

        Raises
        ------
        InvalidInput : an event cannot be sent, and then none was.
        NotAllowed, ServiceError : the service refuses the request. Without a buffer also `Busy` and `Unreachable`.
        """
        return (yield from self._report(outcome_events(events)))

    def flush(self) -> Steps[dict[tuple[str, str], str]]:
        """Deliver the outcomes that wait -> the status of each, by stream and id; ``refused``: it was set aside.

        Raises
        ------
        Busy, Unreachable : the service is still away. What was not answered waits on.
        NotAllowed, ServiceError : the service refuses the request as a whole. What was not answered waits on.
        """
        done = yield from self._deliver(last=self._attempts, patient=True)
        return {(event["stream"], event["id"]): status for event, status in done}

    # ---- undo -------------------------------------------------------------------------------------------------------

    def correct(
        self,
        stream: str,
        id: str,  # noqa: A002
        outcome: Any = None,
        *,
        label: Any = None,
        weight: float | None = None,
        ones: int | None = None,
        of: int | None = None,
    ) -> Steps[str]:
        """Put another outcome, or another label or weight, in the place of the one that is known; none retracts it.

        -> ``corrected``: the stream is replayed with it while it goes on; ``repeated``: it is known so already. What
        was not learnt yet is replaced at once.

        Raises
        ------
        InvalidInput : the service cannot read it.
        UnknownForecast : there is no forecast of this id, or it has expired.
        OutcomeConflict : it was learnt before something that was forgotten or pruned.
        NotAllowed, Busy, Unreachable, ServiceError : the token is refused, or no good answer came after all retries.
        """
        what: dict[str, Any] = {"outcome": outcome} if label is None else {"label": label}
        if ones is not None or of is not None:
            what = {name: value for name, value in (("ones", ones), ("of", of)) if value is not None}
        if weight is not None:
            what["weight"] = weight
        request = _post("/v1/outcomes", {"stream": stream, "id": id, **what}, "PUT")
        reply = yield from self._send(request, last=self._attempts)
        return status_of(decode(reply.status, reply.content))

    def define(
        self,
        name: str,
        *,
        classes: int | Iterable[str] | None = None,
        groups: Iterable[str | Mapping[str, Any]] | None = None,
        crossings: Iterable[Iterable[str]] | str | None = None,
        cells: int | None = None,
        names: bool | None = None,
        models: Iterable[str] | None = None,
        kept: Mapping[str, float] | Iterable[float] | None = None,
    ) -> Steps[dict[str, Any]]:
        """Say what a stream is before its first event, as ``PUT /v1/streams/NAME`` takes it -> what it is.

        A group is a name, or ``{"name": "age"}`` where its values are numbers. `kept` are the shares of ones and of
        zeros that the log kept. Called again with one model more, that joins the running stream.

        Raises `InvalidInput` for what no stream can be, and what `copy` raises.
        """
        shares = dict(kept) if isinstance(kept, Mapping) else None if kept is None else list(kept)
        given: dict[str, Any] = {
            "classes": classes,
            "groups": groups,
            "crossings": crossings,
            "cells": cells,
            "names": names,
        }
        given |= {"models": None if models is None else list(models), "kept": shares}
        content = encode({field: value for field, value in given.items() if value is not None})
        return (yield from self._do("PUT", f"/v1/streams/{quote(name, safe='')}", content))

    def freeze(self, name: str) -> Steps[dict[str, Any]]:
        """Freeze a stream: it forecasts with the state of this moment, and outcomes wait -> the stream.

        Raises `UnknownKey` if there is no such stream, and what the calls that read raise.
        """
        return (yield from self._change(name, "freeze"))

    def resume(self, name: str, *, outcomes: str = "learn") -> Steps[dict[str, Any]]:
        """End `freeze` and `passthrough`. What has waited is learnt, or given up with ``outcomes="drop"``.

        Raises what `freeze` raises.
        """
        return (yield from self._change(name, "resume", {"outcomes": outcomes}))

    def passthrough(self, name: str) -> Steps[dict[str, Any]]:
        """Answer the score itself, and learn on. Raises what `freeze` raises."""
        return (yield from self._change(name, "passthrough"))

    def reset(self, name: str) -> Steps[dict[str, Any]]:
        """Begin anew; forecasts that wait for an outcome are given up. Raises what `freeze` raises."""
        return (yield from self._change(name, "reset"))

    def copy(self, name: str, to: str) -> Steps[dict[str, Any]]:
        """Make another stream with the same state -> the new one. Raises what `freeze` raises.

        A name that is taken raises `OutcomeConflict`.
        """
        return (yield from self._change(name, "copy", {"to": to}))

    def rename(self, name: str, to: str) -> Steps[dict[str, Any]]:
        """Give a stream another name. Raises what `copy` raises."""
        return (yield from self._change(name, "rename", {"to": to}))

    def delete(self, name: str) -> Steps[None]:
        """Delete a stream with all its events. Raises what `freeze` raises."""
        yield from self._do("DELETE", f"/v1/streams/{quote(name, safe='')}")

    def forget(self, name: str, id: str) -> Steps[None]:  # noqa: A002
        """Delete one event from the database; what was learnt from it stays.

        Raises `UnknownForecast` if the stream has no such event, and what `freeze` raises.
        """
        yield from self._do("DELETE", f"/v1/streams/{quote(name, safe='')}/events/{quote(id, safe='')}")

    def forget_many(self, events: Iterable[tuple[str, str]]) -> Steps[list[dict[str, Any]]]:
        """Delete events from the database, each a stream and an id -> stream, id and status of each.

        The status is `forgotten`, or `unknown` where there was no such event. What was learnt from them stays.
        """
        asked = [{"stream": stream, "id": id_} for stream, id_ in events]
        return list((yield from self._do("POST", "/v1/forget", encode({"events": asked})))["events"])

    def _change(self, name: str, verb: str, body: dict[str, Any] | None = None) -> Steps[dict[str, Any]]:
        return (yield from self._do("POST", f"/v1/streams/{quote(name, safe='')}/{verb}", encode(body or {})))

    def _do(self, method: str, path: str, content: bytes | None = None) -> Steps[Any]:
        reply = yield from self._send(Send(method, path, content), last=self._attempts)
        return decode(reply.status, reply.content)

    # ---- reading ----------------------------------------------------------------------------------------------------

    def event(self, name: str, id: str) -> Steps[dict[str, Any]]:  # noqa: A002
        """One event: what was told, and what is known since. Raises `UnknownForecast` if there is none."""
        return (yield from self._get(f"/v1/streams/{quote(name, safe='')}/events/{quote(id, safe='')}"))

    def events(self, name: str, after: str | None = None, limit: int = 100) -> Steps[list[dict[str, Any]]]:
        """Events of a stream in the order of their forecasts, `limit` of them after the id that is named."""
        behind = "" if after is None else f"&after={quote(after, safe='')}"
        return (yield from self._get(f"/v1/streams/{quote(name, safe='')}/events?limit={int(limit)}{behind}"))["events"]

    def alarms(self, name: str | None = None, *, open: bool | None = None) -> Steps[list[dict[str, Any]]]:  # noqa: A002
        """The latest alarms, the newest first: of one stream or all; those that are open, or those that are over."""
        asked = "" if name is None else f"&stream={quote(name, safe='')}"
        asked += "" if open is None else f"&open={str(bool(open)).lower()}"
        return (yield from self._get(f"/v1/alarms?limit=1000{asked}"))["alarms"]

    def stream(self, name: str) -> Steps[dict[str, Any]]:
        """What the service knows of a stream. Raises `UnknownKey` if it knows none of this name."""
        return (yield from self._get(f"/v1/streams/{quote(name, safe='')}"))

    def streams(self, after: str | None = None, limit: int = 100) -> Steps[list[dict[str, Any]]]:
        """Streams by name, `limit` of them after the one that is named."""
        after = "" if after is None else f"&after={quote(after, safe='')}"
        return (yield from self._get(f"/v1/streams?order=name&limit={int(limit)}{after}"))["streams"]

    def _get(self, path: str) -> Steps[Any]:
        reply = yield from self._send(Send("GET", path, None), last=self._attempts)
        return decode(reply.status, reply.content)

    # ---- outcomes now or later --------------------------------------------------------------------------------------

    def _report(self, events: list[dict[str, Any]], *, one: bool = False) -> Steps[list[str]]:
        """Send outcomes, or put them into the buffer -> the status of each."""
        statuses: list[str] = []
        rest, are_kept = events, not self.buffer.most
        try:
            for part in batches(events):
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
        except BaseException:  # interrupted or cancelled: what arrived is not known
            if not are_kept:
                self.buffer.add(rest)
            raise
        return statuses

    def _must_wait(self, part: list[dict[str, Any]]) -> bool:
        """Whether outcomes go behind those in the buffer: in an outage, if no call sends those, or for their order.

        While a call delivers the buffer after an outage, others send their own: the buffer must not grow then.
        """
        if not self.buffer:
            return False
        return (
            self._is_away
            or self.buffer.is_idle
            or self.buffer.holds({(event["stream"], event["id"]) for event in part})
        )

    def _send_at_once(self, part: list[dict[str, Any]], *, one: bool) -> Steps[list[str]]:
        """One attempt: if it fails, there is the buffer. Without a buffer, all attempts."""
        last = 1 if self.buffer.most else self._attempts
        if one:
            reply = yield from self._send(_post("/v1/outcomes", part[0]), last=last)
            return [status_of(decode(reply.status, reply.content))]
        found = yield from self._send_batch("/v1/outcomes", "outcomes", part, last=last)
        return [status_of(each) for each in found]

    def _go_on(self, first: int, asked_for: str | None) -> Steps[Done]:
        """Try to end the outage -> what became of the outcomes; nothing if that failed or is not for this call to do.

        A call whose own attempt has failed (`first` is 1) makes the retries. Others make one attempt, if one is
        due: a caller must not wait for the retries with every outcome.
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
        most = LARGEST_BATCH
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
                found = answers(reply.status, reply.content, "outcomes", len(part))
                statuses = [status_of(each) for each in found]
                bad = [at for at, status in enumerate(statuses) if status == "invalid"]
                for at in reversed(bad):
                    self.buffer.refuse(at, str(found[at].get("message", "the service refused it")))
                    statuses[at] = REFUSED
                done += list(zip(part, statuses, strict=True))
                self.buffer.answered(len(part) - len(bad))
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

    def _send_batch(self, path: str, key: str, part: list[dict[str, Any]], *, last: int) -> Steps[list[dict[str, Any]]]:
        """Send a batch, in halves if it is too large for the service or a proxy -> the answers in order."""
        reply = yield from self._send(_post(path, {"events": part}), last=last)
        if reply.status == TOO_LARGE and len(part) > 1:
            half = len(part) // 2
            found = yield from self._send_batch(path, key, part[:half], last=last)
            return found + (yield from self._send_batch(path, key, part[half:], last=last))
        return answers(reply.status, reply.content, key, len(part))

    def _send(self, request: Send, first: int = 0, last: int = 1, asked_for: str | None = None) -> Steps[Reply]:
        """Send a request until there is an answer that says something about it: attempts `first` to `last` - 1."""
        error: CalibeatError = Unreachable("no attempt was made")
        for attempt in range(first, last):
            if attempt:
                yield Pause(self.retries.wait(attempt - 1, asked_for))
            reply = yield request
            assert reply is not None  # noqa: S101 - the driver's part
            if reply.status and reply.status not in RETRIED:
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


# ---- outcomes that wait -------------------------------------------------------------------------------------------


class Turn:
    """The right to send what waits, which one call has at a time."""

    __slots__ = ("__weakref__",)


class Buffer:
    """The outcomes that wait, the oldest first. Any thread may use it; no call waits for the network.

    Those that are being sent stay here until they are answered. When it is full, the oldest one that is not being sent
    goes; `dropped` counts these.

    >>> buffer = Buffer(2)
    >>> buffer.add({"id": id} for id in "abc")
    >>> part = buffer.oldest(10)
    >>> [event["id"] for event in part], buffer.dropped, len(buffer)
    (['b', 'c'], 1, 2)
    >>> buffer.answered(len(part))
    >>> len(buffer)
    0
    """

    def __init__(self, most: int) -> None:
        self._events: deque[dict[str, Any]] = deque()
        self._sending = 0  # how many of the oldest are being sent
        self._lock = threading.Lock()
        # A weak reference: if an interrupt hits a call before it can give its turn back, the turn ends with the call.
        self._turn: weakref.ref[Turn] | None = None
        self.most = most
        self.dropped = 0
        self.refused = 0
        self.refusals: deque[RefusedOutcome] = deque(maxlen=KEPT_REFUSALS)

    def __len__(self) -> int:
        return len(self._events)

    def add(self, events: Iterable[dict[str, Any]]) -> None:
        """Keep outcomes for later."""
        with self._lock:
            for event in events:
                self._events.append(event)
                self._make_room()

    def _make_room(self) -> None:
        """Drop the oldest beyond `most`. Those that are being sent do not count: most of them never come back."""
        while len(self._events) - self._sending > self.most:
            del self._events[self._sending]
            self.dropped += 1

    def holds(self, ids: set[tuple[str, str]]) -> bool:
        """Whether an outcome of one of these events, by stream and id, waits."""
        with self._lock:
            return any((event["stream"], event["id"]) in ids for event in self._events)

    # ---- sending ----------------------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Whether no call is sending."""
        return self._turn is None or self._turn() is None

    def take_turn(self) -> Turn | None:
        """Become the call that sends; None if there is one."""
        with self._lock:
            if not self.is_idle:
                return None
            turn = Turn()
            self._turn = weakref.ref(turn)
            return turn

    def end_turn(self) -> None:
        """What was being sent and not answered waits again."""
        with self._lock:
            self._sending = 0
            self._make_room()
            self._turn = None

    def oldest(self, most: int) -> list[dict[str, Any]]:
        """The oldest outcomes, as many as fit into one request; they are being sent from now on."""
        with self._lock:
            part = next(batches(list(islice(self._events, most))), [])
            self._sending = len(part)
            return part

    def answered(self, count: int) -> None:
        """The oldest ones were answered."""
        with self._lock:
            for _ in range(count):
                self._events.popleft()
                self._sending -= 1

    def reason(self, event: dict[str, Any]) -> str:
        """Why an outcome was refused."""
        with self._lock:
            found = (refusal.reason for refusal in reversed(self.refusals) if refusal.event is event)
            return next(found, "the service refused it")  # older than the reasons that are kept

    def refuse(self, at: int, reason: str) -> None:
        """One of those that were sent is set aside: the service said that it will never take it."""
        with self._lock:
            event = self._events[at]
            self.refusals.append(RefusedOutcome(event, reason))
            self.refused += 1
            del self._events[at]
            self._sending -= 1
        log.warning("an outcome was refused and set aside: %s - stream %r, id %r", reason, event["stream"], event["id"])


# ---- events -------------------------------------------------------------------------------------------------------


def plain_scores(scores: Any) -> Any:
    """Scores as JSON has them: a list of numbers, or an object of them by class or model; null for what is missing."""
    if isinstance(scores, Mapping):
        return {str(name): _plain_score(score) for name, score in scores.items()}
    return [_plain_score(score) for score in scores]


def _plain_score(score: Any) -> float | None:
    number = None if score is None else float(score)
    return None if number != number else number  # noqa: PLR0124 - NaN


def _plain_label(label: Any, where: str) -> Label:
    label = label.item() if hasattr(label, "item") else label  # of NumPy
    if not isinstance(label, (str, int, float)) or label != label:  # noqa: PLR0124 - NaN
        raise InvalidInput(f"label must be a string, a number or a bool, got {shown(label)}{where}")
    return label


def _plain_weight(weight: Any, where: str) -> float:
    try:
        number = float(weight)
    except (TypeError, ValueError):
        number = -1.0
    if isinstance(weight, str) or not 0.0 <= number <= HEAVIEST:
        raise InvalidInput(f"weight must be a number from 0 to 1e12, got {shown(weight)}{where}")
    return number


def _plain_counts(ones: Any, of: Any, where: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, value in (("ones", ones), ("of", of)):
        if value is None:
            raise InvalidInput(f"ones must come with of, got no {name}{where}")
        try:
            found[name] = operator.index(value)
        except TypeError:
            raise InvalidInput(f"{name} must be a whole number, got {shown(value)}{where}") from None
    if not 0 <= found["ones"] <= found["of"] <= MOST_TRIALS:
        limit = f"from 0 to of, which is at most {MOST_TRIALS:,}"
        raise InvalidInput(f"ones must be {limit}, got {found['ones']} of {found['of']}{where}")
    return found


def _result(outcome: Any, label: Any, ones: Any, of: Any, where: str) -> dict[str, Any]:
    """What has happened: an outcome, the label of a class, or so many ones of many events."""
    if ones is not None or of is not None:
        if outcome is not None or label is not None:
            raise InvalidInput(f"event must have either outcome or ones and of, got both{where}")
        return _plain_counts(ones, of, where)
    if label is not None:
        if outcome is not None:
            raise InvalidInput(f"event must have either outcome or label, got both{where}")
        return {"label": _plain_label(label, where)}
    if outcome not in (0, 1):
        raise InvalidInput(f"outcome must be 0 or 1, got {shown(outcome)}{where}")
    return {"outcome": int(outcome)}


def outcome_event(
    stream: str,
    id: str,  # noqa: A002
    outcome: int | None = None,
    time: float | None = None,
    where: str = "",
    label: Label | None = None,
    weight: float | None = None,
    ones: int | None = None,
    of: int | None = None,
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
    event: dict[str, Any] = {"stream": str(stream), "id": str(id)}
    if weight is not None:
        event["weight"] = _plain_weight(weight, where)
    event |= _result(outcome, label, ones, of, where)
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
        needed = ("stream", "id") if {"label", "ones", "of"} & fields.keys() else ("stream", "id", "outcome")
        if missing := [name for name in needed if name not in fields]:
            raise InvalidInput(f"{missing[0]} is missing{where}")
        if unknown := fields.keys() - OUTCOME_FIELDS:
            raise InvalidInput(f"{min(map(str, unknown))!r:.60} is not a field of an outcome{where}")
        checked.append(outcome_event(**fields, where=where))
    return checked


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


def _post(path: str, body: dict[str, Any], method: str = "POST") -> Send:
    """Events as a request. Where all are of one stream, a header names it as a path does: proxies choose by it.

    >>> _post("/v1/forecasts", {"stream": "paris/orly", "id": "e1", "score": 0.5}).headers
    {'x-stream': 'paris%2Forly'}
    """
    content = encode(body)
    name, *others = [event.get("stream") for event in body.get("events", [body])]
    is_one = isinstance(name, str) and all(other == name for other in others)
    return Send(method, path, content, {"x-stream": quote(name, safe="")} if is_one else None)


# ---- answers ------------------------------------------------------------------------------------------------------


def decode(status: int, content: bytes) -> Any:
    """The value of an answer, or its error. What is no answer of the service, such as a proxy's page, is an error."""
    if status != 200:
        raise error_of(status, content)
    try:
        return msgspec.json.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise _not_ours() from None


def answers(status: int, content: bytes, key: str, count: int) -> list[dict[str, Any]]:
    """The answers to a batch, one for each event, or an error."""
    found = decode(status, content)
    several = found.get(key) if isinstance(found, dict) else None
    if not isinstance(several, list) or len(several) != count:
        raise _not_ours()
    return several


def answer_of(found: Any) -> Answer:
    """One forecast of an answer."""
    try:
        if "probabilities" not in found:
            sure = {name: found[name] for name in ("low", "high", "outcomes", "reason") if name in found}
            return Answer(found["stream"], found["id"], found["probability"], **sure)
        each = found["probabilities"]
        largest = max(each.values() if isinstance(each, dict) else each)
        return Answer(found["stream"], found["id"], largest, each)
    except (LookupError, TypeError, ValueError):
        raise _not_ours() from None


def status_of(found: Any) -> str:
    """The status of one outcome of an answer."""
    try:
        return str(found["status"])
    except (LookupError, TypeError):
        raise _not_ours() from None


def _not_ours() -> ServiceError:
    return ServiceError("the service must answer in its own JSON, got something else with status 200")
