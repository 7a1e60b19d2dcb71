"""What travels over HTTP: types of requests and answers, query parameters, limits; and how bad requests are explained.

The types are the schema: `calibeat.service.openapi` makes `/openapi.json` from them.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import parse_qsl

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from calibeat.core.band import Estimate

from .alarms import LONGEST_MUTE, AlarmGroup, Mute
from .events import (
    LATEST_TIME,
    LONGEST_NAME,
    Control,
    CorrectionEvent,
    Count,
    EachStatus,
    ForecastEvent,
    GroupValues,
    InvalidEvent,
    Label,
    Name,
    Outcome,
    OutcomeEvent,
    OutcomeStatus,
    Probability,
    Refusal,
    Score,
    Scores,
    StreamSettings,
    Time,
    Weight,
    bad_name,
    is_text,
)
from .states import STATES
from .store.queries import (
    MAX_HOURS,
    MAX_LIMIT,
    MAX_PAGES,
    ORDERS,
    SPANS,
    AlarmRow,
    EventInfo,
    Hour,
    Segment,
    StreamInfo,
)


@dataclasses.dataclass(frozen=True)
class Limits:
    """The limits of the service. Each has a refusal of its own. Lengths of names are part of the schema."""

    body: int = 4 * 2**20  # bytes of a request's body
    events: int = 10_000  # events in one request
    connections: int = 4_000  # open at the same time
    memory: int = 256 * 2**20  # bytes that all requests hold: their bodies, and what these are decoded to
    request_seconds: float = 20.0  # from the first byte of a request to its last
    answer_seconds: float = 60.0  # from the last byte of a request to the last of its answer
    idle_seconds: float = 75.0  # between two requests of a connection


DEFAULT_LIMITS = Limits()


# ---- requests ----------------------------------------------------------------------------------------------------


class ForecastBody(Struct, forbid_unknown_fields=True):
    """One event, or many as `events`."""

    stream: Name | UnsetType = UNSET
    id: Name | UnsetType = UNSET
    score: Score | UnsetType = UNSET
    time: Time | UnsetType | None = UNSET
    scores: Scores | UnsetType = UNSET
    groups: GroupValues | UnsetType = UNSET
    events: list[ForecastEvent] | UnsetType = UNSET


class OutcomeBody(Struct, forbid_unknown_fields=True):
    """One event, or many as `events`."""

    stream: Name | UnsetType = UNSET
    id: Name | UnsetType = UNSET
    outcome: Outcome | UnsetType = UNSET
    time: Time | UnsetType | None = UNSET
    label: Label | UnsetType = UNSET
    weight: Weight | UnsetType = UNSET
    ones: Count | UnsetType = UNSET
    of: Count | UnsetType = UNSET
    events: list[OutcomeEvent] | UnsetType = UNSET


class CorrectionBody(Struct, forbid_unknown_fields=True):
    """One event, or many as `events`; null where the outcome is unknown again."""

    stream: Name | UnsetType = UNSET
    id: Name | UnsetType = UNSET
    outcome: Outcome | UnsetType | None = UNSET
    time: Time | UnsetType | None = UNSET
    label: Label | UnsetType | None = UNSET
    weight: Weight | UnsetType = UNSET
    ones: Count | UnsetType = UNSET
    of: Count | UnsetType = UNSET
    events: list[CorrectionEvent] | UnsetType = UNSET


class ResumeBody(Struct, forbid_unknown_fields=True):
    """What becomes of the outcomes that came while the stream was frozen: they are learnt, or dropped."""

    outcomes: Literal["learn", "drop"] = "learn"


class NameBody(Struct, forbid_unknown_fields=True):
    """The name of the copy, or the new name of the stream."""

    to: Name


class NoBody(Struct, forbid_unknown_fields=True):
    """Nothing is asked for beside the address."""


class ForecastBatch(Struct, forbid_unknown_fields=True):
    """Scores of any streams, in their order. A batch is taken whole or refused whole."""

    events: Annotated[list[ForecastEvent], Meta(min_length=1)]


class OutcomeBatch(Struct, forbid_unknown_fields=True):
    """Outcomes of any streams. Each gets its own status: a bad one does not hold up the others."""

    events: Annotated[list[OutcomeEvent], Meta(min_length=1)]


class CorrectionBatch(Struct, forbid_unknown_fields=True):
    """Corrections of any streams. Each gets its own status."""

    events: Annotated[list[CorrectionEvent], Meta(min_length=1)]


# ---- answers -----------------------------------------------------------------------------------------------------


class ForecastAnswer(Struct, omit_defaults=True):
    """A calibrated forecast. The same id gets the same answer, however often it is asked.

    Of one score it is a probability; of scores those of all classes, as the scores came: a list or an object. With a
    band it says how sure it is: an interval, the number of outcomes of its score that would make it as good, and a
    reason to doubt the interval, empty where none is known.
    """

    stream: str
    id: str
    probability: Probability | UnsetType = UNSET
    probabilities: list[Probability] | dict[str, Probability] | UnsetType = UNSET
    low: Probability | UnsetType = UNSET
    high: Probability | UnsetType = UNSET
    outcomes: Annotated[float, Meta(ge=0.0)] | UnsetType = UNSET
    reason: Literal["", "too few outcomes", "untested", "drifting", "uneven"] | UnsetType = UNSET

    def __post_init__(self) -> None:
        told: Any = self.probabilities
        if type(told) is Estimate:
            self.probability, self.probabilities = told.probability, UNSET
            self.low, self.high, self.outcomes, self.reason = told.low, told.high, told.outcomes, told.reason  # type: ignore[assignment]  # one of these


class ForecastAnswers(Struct):
    """One answer for each event, in the order of the request."""

    forecasts: list[ForecastAnswer]


class OutcomeAnswer(Struct):
    """What happened: `learnt`; `held` until it is mature or its stream is resumed; `repeated`: known before.

    `corrected`: recorded; the stream is replayed with it while it goes on.
    """

    status: OutcomeStatus


class OutcomeAnswerOfMany(Struct, omit_defaults=True):
    """What happened to one outcome of a batch. One that is `invalid` has a sentence; its stream or id may be null."""

    stream: str | None
    id: str | None
    status: EachStatus
    message: str | UnsetType = UNSET


class OutcomeAnswers(Struct):
    """One answer for each event, in the order of the request."""

    outcomes: list[OutcomeAnswerOfMany]


class StreamsAnswer(Struct):
    """A page of streams; `next` is what `after` must be for the next page, null on the last one."""

    streams: list[StreamInfo]
    next: str | None


class StreamAnswer(Struct):
    """What a stream is: its classes, by number or name; its groups; its models; and what its log kept."""

    stream: str
    classes: int | list[str] | None
    groups: dict[str, Any] | None
    models: list[str] | None
    kept: dict[str, float] | None


class SegmentsAnswer(Struct):
    """The segments of a stream with groups, best evidence first."""

    segments: list[Segment]


class HistoryAnswer(Struct):
    """The hours of a stream in order; those without an event are left out.

    There are 10,000 at most; `next` is what `from` must be for the next ones, null on the last page.
    """

    hours: list[Hour]
    next: float | None


class AlarmsAnswer(Struct):
    """The latest alarms, the newest first; and the same as groups of one cause each."""

    alarms: list[AlarmRow]
    groups: list[AlarmGroup]


_STREAMS = {"pattern": r"^([^\u0000-\u001f\u007f*]+\*?|\*)$"}
Pattern = Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME, extra_json_schema=_STREAMS)]


class AcknowledgeBody(Struct, forbid_unknown_fields=True):
    """Whose open alarms somebody looks after: a stream, or `paris/*`."""

    streams: Pattern


class AcknowledgeAnswer(Struct):
    """How many alarms are acknowledged by this."""

    acknowledged: int


class MuteBody(Struct, forbid_unknown_fields=True):
    """Whose alarms are not sent: a stream, or `paris/*`; for so long, or until it is deleted."""

    streams: Pattern
    seconds: Annotated[float, Meta(ge=1.0, le=LONGEST_MUTE)] | None = None


class MutesAnswer(Struct):
    """What is muted now."""

    mutes: list[Mute]


class EventsAnswer(Struct):
    """Events of a stream in the order of their forecasts; `next` is what `after` must be for the next page, or null."""

    events: list[EventInfo]
    next: str | None


class ForgottenAnswer(Struct):
    """The event is gone from the database. What was learnt from it stays in the state of its stream."""

    stream: str
    id: str
    status: Literal["forgotten"] = "forgotten"


class EventName(Struct, frozen=True, forbid_unknown_fields=True):
    """An event by its stream and id."""

    stream: Name
    id: Name


class ForgetBody(Struct, forbid_unknown_fields=True):
    """Events of any streams that are to be deleted."""

    events: Annotated[list[EventName], Meta(min_length=1)]


class ForgottenOfMany(Struct):
    """`forgotten`, or `unknown`: there was no such event."""

    stream: str
    id: str
    status: Literal["forgotten", "unknown"]


class ForgetAnswer(Struct):
    """One answer for each event, in the order of the request, once all of them are gone from the database."""

    events: list[ForgottenOfMany]


class DeletedAnswer(Struct):
    """The stream has no name any more, and its events are being deleted."""

    stream: str
    status: Literal["deleted"] = "deleted"


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


COULD_NOT = "the service could not answer; its log says why"
UNAUTHORIZED = error_body("unauthorized", "a valid token is needed: Authorization: Bearer TOKEN")
FORBIDDEN = error_body("forbidden", "this token may read only; writing needs one of scope write")
STARTING = error_body(
    "not_ready", "the service must lead its store, got one that starts, waits for it or stands by - try again"
)
INTERNAL = error_body("internal", COULD_NOT)
ENCODED = error_body("unsupported_media_type", "body must be plain, without content-encoding", "content-encoding")
PACKED = error_body("unsupported_media_type", "body must be plain JSON, got gzip")
LINES = error_body(
    "unsupported_media_type", 'body must be one JSON object, got one a line: send {"events": [ ... ]} instead'
)
NOT_JSON = error_body("unsupported_media_type", "content-type must be application/json from a web page", "content-type")
WRONG_HOST = error_body(
    "misdirected",
    "without tokens the Host header must be localhost, 127.0.0.1, [::1] or the address that the service listens on",
    "host",
)


# ---- reading a body ----------------------------------------------------------------------------------------------


class AskedEvents(NamedTuple):
    """The events of a body, and whether it was one without `events`."""

    events: list[Any]
    single: bool


UNREADABLE = (msgspec.MsgspecError, UnicodeError, RecursionError)  # what msgspec raises for a body
_forecasts = msgspec.json.Decoder(ForecastBody)
_forget = msgspec.json.Decoder(ForgetBody)
_settings = msgspec.json.Decoder(StreamSettings)


class OutcomeKind(NamedTuple):
    """Outcomes, or what takes their place."""

    decoder: Any
    event: Any
    rules: dict[str, str]


def read_forecasts(body: bytes, most: int) -> AskedEvents:
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
        if found.stream is UNSET or found.id is UNSET or (found.score is UNSET and found.scores is UNSET):
            raise _missing(found, ("stream", "id", "score"))
        time = None if found.time is UNSET else found.time
        events = [ForecastEvent(found.stream, found.id, found.score, time, found.scores, found.groups)]
    else:
        events = _many(found, ("stream", "id", "score", "time", "scores", "groups"), most)
    for number, event in enumerate(events):
        if (event.score is UNSET) == (event.scores is UNSET):
            lost = event.score is UNSET
            what = "score is missing" if lost else "event must have either score or scores, got both"
            is_one = found.events is UNSET
            raise bad(what if is_one else f"{what} - at event {number}", "score" if is_one else number)
    if _may_hold_controls(body):
        for number, event in enumerate(events):
            if problem := _control_in(event):
                is_one = found.events is UNSET
                sentence = f"{problem[1]}{'' if is_one else f' - at event {number}'}"
                raise bad(sentence, problem[0] if is_one else number)
    return AskedEvents(events, found.events is UNSET)


def read_corrections(body: bytes, most: int) -> AskedEvents:
    """What takes the place of outcomes, as `read_outcomes`: null, where they are unknown again.

    >>> read_corrections(b'{"stream": "paris", "id": "e1", "outcome": null}', 100).events[0].outcome is None
    True
    """
    return read_outcomes(body, most, CORRECTIONS)


def read_outcomes(body: bytes, most: int, kind: OutcomeKind | None = None) -> AskedEvents:
    """The outcomes that a body brings, or `Refusal`. A bad one of a batch is an `InvalidEvent` in its place.

    >>> read_outcomes(b'{"stream": "paris", "id": "e1", "outcome": 2}', 100)
    Traceback (most recent call last):
        ...
    calibeat.service.events.Refusal: outcome must be 0 or 1, got 2
    """
    kind = kind or OUTCOMES
    try:
        found = kind.decoder.decode(body)
    except UNREADABLE as error:
        return _one_by_one(body, error, most, kind)
    if found.events is UNSET:
        if found.stream is UNSET or found.id is UNSET or _has_no_outcome(found):
            raise _missing(found, ("stream", "id", "outcome"))
        time = None if found.time is UNSET else found.time
        told = found.outcome, time, found.label, found.weight, found.ones, found.of
        events: list[Any] = [kind.event(found.stream, found.id, *told)]
        if _may_hold_controls(body) and (problem := _control_in(events[0])):
            raise bad(problem[1], problem[0])
        return AskedEvents(events, single=True)
    events = _many(found, ("stream", "id", "outcome", "time", "label", "weight", "ones", "of"), most)
    looks = _may_hold_controls(body)
    for number, event in enumerate(events):
        if _has_no_outcome(event):
            events[number] = InvalidEvent(f"outcome is missing - at event {number}", event.stream, event.id)
        elif looks and (problem := _control_in(event)):
            events[number] = InvalidEvent(f"{problem[1]} - at event {number}", event.stream, event.id)
    return AskedEvents(events, single=False)


def _one_by_one(body: bytes, error: Exception, most: int, kind: OutcomeKind) -> AskedEvents:
    """A body that cannot be read as a whole: each event stands for itself; 0.0 and 1.0 are whole numbers to JSON."""
    try:
        found: Any = msgspec.json.decode(body)
        events = found.get("events", found)
    except (*UNREADABLE, AttributeError):
        raise explained(error, body, rules=kind.rules) from None
    if isinstance(events, dict) and (whole := _whole_numbers(events)):
        return read_outcomes(_encode({**events, **whole}), most, kind)
    if not isinstance(events, list) or len(found) > 1 or len(events) > most:
        if isinstance(events, list) and len(events) > most and len(found) == 1:
            raise Refusal("too_many", f"events must be {most} at most, got {len(events)}", "events", 413)
        raise explained(error, body, rules=kind.rules) from None
    return AskedEvents([_outcome_or_not(event, number, kind) for number, event in enumerate(events)], single=False)


def _has_no_outcome(event: Any) -> bool:
    """Whether it says nothing of what has happened."""
    return all(getattr(event, field) is UNSET for field in ("outcome", "label", "ones", "of"))


def _whole_numbers(event: Any) -> dict[str, int]:
    """Those of its fields that are written as 1.0."""
    given = event if isinstance(event, dict) else {}
    found = {field: given.get(field) for field in ("outcome", "ones", "of")}
    return {field: int(value) for field, value in found.items() if isinstance(value, float) and value.is_integer()}


def _outcome_or_not(event: Any, number: int, kind: OutcomeKind) -> Any:
    """One outcome of a batch."""
    if whole := _whole_numbers(event):
        event = {**event, **whole}
    try:
        read = msgspec.convert(event, kind.event)
        problem = "outcome is missing" if _has_no_outcome(read) else (_control_in(read) or ("", ""))[1]
        if not problem:
            return read
    except msgspec.ValidationError as error:
        problem = explained(error, _encode(event), what="event", rules=kind.rules).message
    stream, name = (
        part if isinstance(part := event.get(field) if isinstance(event, dict) else None, str) else None
        for field in ("stream", "id")
    )
    return InvalidEvent(f"{problem} - at event {number}", stream, name)


def read_settings(body: bytes, stream: str) -> StreamSettings:
    """What a stream is to be, or `Refusal`.

    >>> read_settings(b'{"groups": ["country", "device"], "names": true}', "paris").groups
    ['country', 'device']
    """
    try:
        found = _settings.decode(body)
    except UNREADABLE as error:
        raise explained(error, body, rules=SETTINGS_RULES) from None
    for field in ("stream", "id"):
        if getattr(found, field):
            raise bad(f"{field!r} is not a field of this request", field)
    return msgspec.structs.replace(found, stream=stream)


def read_forget(body: bytes, most: int) -> list[EventName]:
    """The events that are to be deleted, or `Refusal`.

    >>> read_forget(b'{"events": [{"stream": "paris", "id": "e1"}]}', 10)
    [EventName(stream='paris', id='e1')]
    """
    try:
        events = _forget.decode(body).events
    except UNREADABLE as error:
        raise explained(error, body) from None
    if len(events) > most:
        raise Refusal("too_many", f"events must be at most {most}, got {len(events)}", "events", 413)
    for at, event in enumerate(events):
        for what in ("stream", "id"):
            if problem := bad_name(what, getattr(event, what)):
                raise Refusal("invalid", f"{problem} - at event {at}", at, 400)
    return events


def read_control(verb: str, stream: str, body: bytes) -> Control:
    """What is to be done to a stream, or `Refusal`.

    >>> read_control("resume", "paris", b'{"outcomes": "drop"}').outcomes
    'drop'
    >>> read_control("rename", "paris", b"")
    Traceback (most recent call last):
        ...
    calibeat.service.events.Refusal: to is missing
    """
    try:
        found = msgspec.json.decode(body.strip() or b"{}", type=VERB_BODIES[verb])
    except UNREADABLE as error:
        raise explained(error, body, rules=VERB_RULES) from None
    more = {name: getattr(found, name) for name in found.__struct_fields__}
    if not is_text(more.get("to", "")):
        raise bad(f"to must be text without control characters, got {more['to']!r:.60}", "to")
    return Control(verb, stream, **more)  # type: ignore[arg-type]  # a key of VERB_BODIES


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


def _may_hold_controls(body: bytes) -> bool:
    """Without a backslash JSON can hold no control character but one."""
    return b"\\" in body or b"\x7f" in body


def _control_in(event: Any) -> tuple[str, str] | None:
    """The field of an event that has a control character, and a sentence."""
    for field in ("stream", "id"):
        if not is_text(value := getattr(event, field)):
            return field, f"{field} must be text without control characters, got {value!r:.60}"
    return None


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
    "scores": "must be a list of numbers, or an object with a number for each class or model",
    "weight": "must be a number from 0 to 1e12",
    "ones": "must be a whole number from 0 to 1,000,000,000",
    "of": "must be a whole number from 0 to 1,000,000,000",
    "groups": "must be an object with a string, a whole number, a bool or null for each name",
    "label": "must be a string, a number or a bool",
}
SETTINGS_RULES = {
    "classes": "must be a number of classes, 2 or more, or a list of their names",
    "groups": 'must be a list of attributes: names, or {"name": ...} for one whose values are numbers',
    "crossings": 'must be "auto" or a list of pairs of names',
    "cells": "must be a whole number, a power of two",
    "names": "must be true or false",
    "models": "must be a list of the names of models",
    "kept": "must be the shares of ones and of zeros that the log kept, each above 0 and at most 1",
}
OUTCOMES = OutcomeKind(msgspec.json.Decoder(OutcomeBody), OutcomeEvent, RULES)
CORRECTIONS = OutcomeKind(
    msgspec.json.Decoder(CorrectionBody),
    CorrectionEvent,
    RULES | {"outcome": "must be 0, 1 or null", "label": "must be a string, a number, a bool or null"},
)
VERB_RULES = {"to": _NAMED, "outcomes": 'must be "learn" or "drop"'}
VERB_BODIES: dict[str, Any] = {
    "freeze": NoBody,
    "resume": ResumeBody,
    "passthrough": NoBody,
    "reset": NoBody,
    "copy": NameBody,
    "rename": NameBody,
}
_PLACE = re.compile(r" - at `(?:key in )?\$(?:\.events\[(\d+)\])?(?:\.(\w+))?(?:\[.*?\])*`$")


def explained(error: Exception, body: bytes, what: str | None = None, rules: dict[str, str] | None = None) -> Refusal:
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
    rules = rules or RULES
    if field in rules:
        return bad(
            f"{field} {rules[field]}, got {_value(body, event, field)}{where}", field if event is None else event
        )
    if match := re.search(r"unknown field `(.*?)`", message):
        return bad(f"{match[1]!r:.60} is not a field of this request{where}", match[1][:60] if event is None else event)
    if match := re.search(r"missing required field `(\w+)`", message):
        return bad(f"{match[1]} is missing{where}", match[1] if event is None else event)
    what = what or ("body" if event is None else "event")
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


# ---- parameters in the query -------------------------------------------------------------------------------------


def is_readable(name: str) -> bool:
    """Whether a stream can have this name."""
    return 0 < len(name) <= LONGEST_NAME and is_text(name)


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One parameter: how its text is read (`ValueError` says what it must be), and what the schema says of it."""

    read: Callable[[str], Any]
    schema: dict[str, Any]
    description: str
    required: bool = False


def _whole(most: int, default: int, description: str = "how many at most") -> Parameter:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdecimal() and len(text) < 9 and 1 <= int(text) <= most):
            raise ValueError(f"must be a whole number from 1 to {most}")
        return int(text)

    return Parameter(read, {"type": "integer", "minimum": 1, "maximum": most, "default": default}, description)


def _one_of(words: Iterable[str], default: str | None, description: str) -> Parameter:
    known = list(words)

    def read(text: str) -> str:
        if text not in known:
            raise ValueError(f"must be one of {', '.join(known)}")
        return text

    schema = {"type": "string", "enum": known} | ({} if default is None else {"default": default})
    return Parameter(read, schema, description)


def _named(description: str, *, required: bool = False) -> Parameter:
    def read(text: str) -> str:
        if not is_readable(text):
            raise ValueError(f"must be text of 1 to {LONGEST_NAME} characters")
        return text

    return Parameter(read, NAME_SCHEMA, description, required)


_FLAG: dict[str, Any] = {"anyOf": [{"type": "boolean"}, {"type": "integer", "enum": [0, 1]}]}


def _flag(text: str) -> bool:
    if text not in {"true", "false", "1", "0"}:
        raise ValueError("must be true or false")
    return text in {"true", "1"}


def _seconds(text: str) -> float:
    try:
        value = float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        value = math.nan
    if not 0.0 <= value <= LATEST_TIME:
        raise ValueError("must be seconds since 1970")
    return value


@dataclasses.dataclass(frozen=True)
class Parameters:
    """The parameters of one route."""

    known: dict[str, Parameter] = dataclasses.field(default_factory=dict)

    def read(self, query: str) -> dict[str, Any]:
        """The values of a query, or a refusal that names the first bad one.

        >>> RELIABILITY.read("from=0&to=3600")
        {'from': 0.0, 'to': 3600.0}
        """
        found: dict[str, Any] = {}
        for name, text in parse_qsl(query, keep_blank_values=True):
            if name not in self.known:
                wanted = f"one of {', '.join(self.known)}" if self.known else "none"
                raise bad(f"parameter must be {wanted}, got {name!r:.60}", name[:60])
            if name in found:
                raise bad(f"{name} must be given once, got it twice", name)
            try:
                found[name] = self.known[name].read(text)
            except ValueError as error:
                raise bad(f"{name} {error}, got {text!r:.60}", name) from None
        for name, parameter in self.known.items():
            if parameter.required and name not in found:
                raise bad(f"{name} must be given, got none", name)
        return found


NAME_SCHEMA = {"type": "string", "minLength": 1, "maxLength": LONGEST_NAME, "pattern": r"^[^\u0000-\u001f\u007f]+$"}
_HOUR = Parameter(
    _seconds, {"type": "number", "minimum": 0, "maximum": LATEST_TIME}, "seconds since 1970; whole hours count"
)
_SEARCH = _named("a part of the name")
_STATE = _one_of(STATES, None, "only streams in this state")
NO_PARAMETERS = Parameters()
ALARMS = Parameters(
    {
        "stream": _named("only of this stream"),
        "open": Parameter(_flag, _FLAG, "only those that are open, or only those that are over"),
        "limit": _whole(MAX_LIMIT, 100),
    }
)
MUTED = Parameters({"streams": _named("as it was muted: a stream, or paris/*", required=True)})
EVENTS = Parameters({"after": _named("the id of the last event of the page before"), "limit": _whole(MAX_LIMIT, 100)})
SEGMENTS = Parameters(
    {"least": _whole(10_000_000, 100, "outcomes that a segment must have"), "limit": _whole(MAX_LIMIT, MAX_LIMIT)}
)
RELIABILITY = Parameters({"from": _HOUR, "to": _HOUR})
HISTORY = Parameters({"from": _HOUR, "to": _HOUR, "limit": _whole(MAX_HOURS, MAX_HOURS)})
STREAMS = Parameters(
    {
        "after": _named("the last stream of the page before"),
        "limit": _whole(MAX_LIMIT, 100),
        "order": _one_of(ORDERS, "name", "the first ones first"),
        "search": _SEARCH,
        "state": _STATE,
    }
)
OVERVIEW = Parameters(
    {
        "order": _one_of(ORDERS, "attention", "what the first streams have most of"),
        "search": _SEARCH,
        "state": _STATE,
        "page": _whole(MAX_PAGES, 1, "25 streams each; one behind the last gives the last"),
    }
)
# The name is in the query: browsers resolve "." and ".." in a path, and a stream may have these names.
VIEW = Parameters(
    {
        "stream": _named("the name of a stream", required=True),
        "span": _one_of(SPANS, "month", "how far back the series goes, from the last event"),
    }
)
