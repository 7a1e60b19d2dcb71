"""What travels over HTTP: the types of requests and answers, and how a bad request is explained.

The types are the schema: `calibeat.service.openapi` makes `/openapi.json` from them.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from .events import (
    LATEST,
    LONGEST,
    ForecastEvent,
    Name,
    Outcome,
    OutcomeEvent,
    Probability,
    Refusal,
    Score,
    Time,
    is_text,
)
from .store.reader import AlarmInfo, Delay, Hour, StreamInfo

LONGEST_NAME, LAST_TIME = LONGEST, LATEST

# ---- requests ----------------------------------------------------------------------------------------------------


class ForecastBody(Struct, forbid_unknown_fields=True):
    """One event, or many as `events`."""

    stream: Name | UnsetType = UNSET
    id: Name | UnsetType = UNSET
    score: Score | UnsetType = UNSET
    time: Time | UnsetType | None = UNSET
    events: list[ForecastEvent] | UnsetType = UNSET


class OutcomeBody(Struct, forbid_unknown_fields=True):
    """One event, or many as `events`."""

    stream: Name | UnsetType = UNSET
    id: Name | UnsetType = UNSET
    outcome: Outcome | UnsetType = UNSET
    time: Time | UnsetType | None = UNSET
    events: list[OutcomeEvent] | UnsetType = UNSET


class ForecastBatch(Struct, forbid_unknown_fields=True):
    """Scores of any streams, in their order. A batch is taken whole or refused whole."""

    events: Annotated[list[ForecastEvent], Meta(min_length=1)]


class OutcomeBatch(Struct, forbid_unknown_fields=True):
    """Outcomes of any streams. Each gets its own status."""

    events: Annotated[list[OutcomeEvent], Meta(min_length=1)]


# ---- answers -----------------------------------------------------------------------------------------------------


class ForecastAnswer(Struct):
    """A calibrated forecast. The same id gets the same answer, however often it is asked."""

    stream: str
    id: str
    probability: Probability


class ForecastAnswers(Struct):
    """One answer for each event, in the order of the request."""

    forecasts: list[ForecastAnswer]


OutcomeStatus = Literal["learnt", "held", "repeated", "corrected"]
EachStatus = Literal["learnt", "held", "repeated", "corrected", "unknown", "conflict", "expired"]


class OutcomeAnswer(Struct):
    """`learnt`; `held` until it is mature; `repeated`: known before, nothing changed; `corrected`: recorded."""

    status: OutcomeStatus


class OutcomeAnswerOfMany(Struct):
    """What happened to one outcome of a batch."""

    stream: str
    id: str
    status: EachStatus


class OutcomeAnswers(Struct):
    """One answer for each event, in the order of the request."""

    outcomes: list[OutcomeAnswerOfMany]


class StreamsAnswer(Struct):
    """A page of streams; `next` is what `after` must be for the next page, null on the last one."""

    streams: list[StreamInfo]
    next: str | None


class HistoryAnswer(Struct):
    """The hours of a stream in order; those without an event are left out.

    There are 10,000 at most; `next` is what `from` must be for the next ones, null on the last page.
    """

    hours: list[Hour]
    next: float | None


class DelaysAnswer(Struct):
    """How late outcomes came."""

    delays: list[Delay]


class AlarmsAnswer(Struct):
    """The latest alarms, the newest first."""

    alarms: list[AlarmInfo]


class ErrorDetail(Struct):
    """A code for programs, a sentence for people, and where: the number of the event, or the name of a field."""

    code: str
    message: str
    at: int | str | None = None


class ErrorAnswer(Struct):
    """Every refusal looks like this."""

    error: ErrorDetail


class Health(Struct):
    """The process answers (`alive`), or the store does too (`ready`)."""

    status: Literal["alive", "ready"]


_encode = msgspec.json.Encoder().encode


def error_body(code: str, message: str, at: int | str | None = None) -> bytes:
    r"""
    >>> error_body("conflict", "id 'e1' is taken", 3)
    b'{"error":{"code":"conflict","message":"id \'e1\' is taken","at":3}}'
    """
    return _encode(ErrorAnswer(ErrorDetail(code, message, at)))


def refusal_body(refusal: Refusal) -> bytes:
    """A refusal of the engine as JSON."""
    return error_body(refusal.code, refusal.message, refusal.at)


# ---- reading a body ----------------------------------------------------------------------------------------------


class Asked(NamedTuple):
    """The events of a body, and whether it was one without `events`."""

    events: list[Any]
    single: bool


UNREADABLE = (msgspec.MsgspecError, UnicodeError, RecursionError)  # what msgspec raises for a body
_forecasts = msgspec.json.Decoder(ForecastBody)
_outcomes = msgspec.json.Decoder(OutcomeBody)


def read_forecasts(body: bytes, most: int) -> Asked:
    """The forecasts that a body asks for, or `Refusal` with a sentence and the number of the first bad event.

    >>> read_forecasts(b'{"stream": "paris", "id": "e1", "score": 0.83}', 100).single
    True
    >>> read_forecasts(b'{"events": [{"stream": "paris", "id": "e1", "score": 1.3}]}', 100)
    Traceback (most recent call last):
        ...
    calibeat.service.events.Refusal: score must be a number in [0, 1], got 1.3 - at event 0
    """
    try:
        found = _forecasts.decode(body)
    except UNREADABLE as error:
        raise explained(error, body) from None
    if found.events is UNSET:
        stream, name, score = found.stream, found.id, found.score
        if stream is UNSET or name is UNSET or score is UNSET:
            raise _missing(found, ("stream", "id", "score"))
        time = found.time
        events: list[Any] = [ForecastEvent(stream, name, score, None if time is UNSET else time)]
    else:
        events = _many(found, ("stream", "id", "score", "time"), most)
    if b"\\" in body or b"\x7f" in body:  # without a backslash JSON can hold no control character but this one
        _refuse_controls(events, many=found.events is not UNSET)
    return Asked(events, found.events is UNSET)


def read_outcomes(body: bytes, most: int) -> Asked:
    """The outcomes that a body brings, or `Refusal`.

    >>> read_outcomes(b'{"stream": "paris", "id": "e1", "outcome": 2}', 100)
    Traceback (most recent call last):
        ...
    calibeat.service.events.Refusal: outcome must be 0 or 1, got 2
    """
    try:
        found = _outcomes.decode(body)
    except UNREADABLE as error:
        whole = _with_whole_outcomes(body)
        if whole is None:
            raise explained(error, body) from None
        return read_outcomes(whole, most)
    if found.events is UNSET:
        stream, name, outcome = found.stream, found.id, found.outcome
        if stream is UNSET or name is UNSET or outcome is UNSET:
            raise _missing(found, ("stream", "id", "outcome"))
        time = found.time
        events: list[Any] = [OutcomeEvent(stream, name, outcome, None if time is UNSET else time)]
    else:
        events = _many(found, ("stream", "id", "outcome", "time"), most)
    if b"\\" in body or b"\x7f" in body:
        _refuse_controls(events, many=found.events is not UNSET)
    return Asked(events, found.events is UNSET)


def _with_whole_outcomes(body: bytes) -> bytes | None:
    """The body with 0 and 1 where it has 0.0 and 1.0, which are whole numbers to JSON; None if it has none of them."""
    try:
        found: Any = msgspec.json.decode(body)
        events = [found, *found["events"]] if "events" in found else [found]
        parts = [
            event for event in events if isinstance(event.get("outcome"), float) and event["outcome"] in {0.0, 1.0}
        ]
    except (*UNREADABLE, TypeError, AttributeError):
        return None
    for event in parts:
        event["outcome"] = int(event["outcome"])
    return _encode(found) if parts else None


def _many(found: Any, fields: tuple[str, ...], most: int) -> list[Any]:
    if any(getattr(found, field) is not UNSET for field in fields):
        raise bad("body must have either events or the fields of one event, got both")
    if not found.events:
        raise bad("events must hold one event at least, got none", "events")
    if len(found.events) > most:
        raise Refusal("too_many", f"events must be {most} at most, got {len(found.events)}", "events", 413)
    return found.events


def _missing(found: Any, fields: tuple[str, ...]) -> Refusal:
    lost = next(field for field in fields if getattr(found, field) is UNSET)
    return bad(f"{lost} is missing: body must have {', '.join(fields)}, or events", lost)


def _refuse_controls(events: list[Any], *, many: bool) -> None:
    for number, event in enumerate(events):
        for field in ("stream", "id"):
            if not is_text(value := getattr(event, field)):
                where = f" - at event {number}" if many else ""
                sentence = f"{field} must be text without control characters, got {value!r:.60}{where}"
                raise bad(sentence, number if many else field)


def bad(message: str, at: int | str | None = None) -> Refusal:
    """A request that can never succeed as it is."""
    return Refusal("invalid", message, at, 400)


# ---- what is wrong with it ---------------------------------------------------------------------------------------

_NAMED = f"must be text of 1 to {LONGEST_NAME} characters"
RULES = {
    "stream": _NAMED,
    "id": _NAMED,
    "score": "must be a number in [0, 1]",
    "outcome": "must be 0 or 1",
    "time": "must be seconds since 1970, at most the year 9999, or null",
    "events": "must be a list of events",
}
_PLACE = re.compile(r" - at `\$(?:\.events\[(\d+)\])?(?:\.(\w+))?`$")


def explained(error: Exception, body: bytes) -> Refusal:
    """What msgspec found, said as the rest of calibeat says it: what, requirement, got, where."""
    if isinstance(error, UnicodeDecodeError):
        byte = error.object[error.start]
        return Refusal("malformed", f"body must be JSON in UTF-8, got the byte 0x{byte:02x}", None, 400)
    if not isinstance(error, msgspec.ValidationError):
        return Refusal("malformed", f"body must be JSON in UTF-8: {error}", None, 400)
    message = str(error)
    place = _PLACE.search(message)
    event = int(place[1]) if place and place[1] else None
    field = place[2] if place else None
    where = "" if event is None else f" - at event {event}"
    if field in RULES:
        return bad(
            f"{field} {RULES[field]}, got {_value(body, event, field)}{where}", field if event is None else event
        )
    if match := re.search(r"unknown field `(.*?)`", message):
        return bad(f"{match[1]!r:.60} is not a field of this request{where}", match[1][:60] if event is None else event)
    if match := re.search(r"missing required field `(\w+)`", message):
        return bad(f"{match[1]} is missing{where}", match[1] if event is None else event)
    what = "body" if event is None else "event"
    return bad(f"{what} must be a JSON object{where}", event)


def _value(body: bytes, event: int | None, field: str) -> str:
    """The value as it was sent, cut to a readable length."""
    try:
        found: Any = msgspec.json.decode(body)
        found = found if event is None else found["events"][event]
        text = msgspec.json.encode(found[field]).decode()
    except (*UNREADABLE, LookupError, TypeError):  # such as 1e999, which no number can hold
        return "what cannot be read"
    return text if len(text) <= 60 else text[:57] + "..."
