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

from .events import (
    LATEST_TIME,
    LONGEST_NAME,
    EachStatus,
    ForecastEvent,
    Name,
    Outcome,
    OutcomeEvent,
    OutcomeStatus,
    Probability,
    Refusal,
    Score,
    Time,
    is_text,
)
from .store.queries import MAX_HOURS, MAX_LIMIT, MAX_PAGES, ORDERS, PAGE_ORDERS, SPANS, Delay, Hour, StreamInfo
from .store.types import AlarmInfo


@dataclasses.dataclass(frozen=True)
class Limits:
    """The limits of the service. Each has a refusal of its own. Lengths of names are part of the schema."""

    body: int = 4 * 2**20  # bytes of a request's body
    events: int = 10_000  # events in one request
    connections: int = 4_000  # open at the same time
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


COULD_NOT = "the service could not answer; its log says why"
UNAUTHORIZED = error_body("unauthorized", "a valid token is needed: Authorization: Bearer TOKEN")
FORBIDDEN = error_body("forbidden", "this token may read only; writing needs one of scope write")
INTERNAL = error_body("internal", COULD_NOT)
ENCODED = error_body("unsupported_media_type", "body must be plain, without content-encoding", "content-encoding")
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
_outcomes = msgspec.json.Decoder(OutcomeBody)


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
    return _asked(found, "score", ForecastEvent, body, most)


def read_outcomes(body: bytes, most: int) -> AskedEvents:
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
    return _asked(found, "outcome", OutcomeEvent, body, most)


def _asked(found: Any, field: str, event: Any, body: bytes, most: int) -> AskedEvents:
    """The events of a decoded body. `field` is what an event has besides its stream, id and time."""
    is_single = found.events is UNSET
    if is_single:
        stream, name, value, time = found.stream, found.id, getattr(found, field), found.time
        if stream is UNSET or name is UNSET or value is UNSET:
            raise _missing(found, ("stream", "id", field))
        events: list[Any] = [event(stream, name, value, None if time is UNSET else time)]
    else:
        events = _many(found, ("stream", "id", field, "time"), most)
    if b"\\" in body or b"\x7f" in body:  # without a backslash JSON can hold no control character but this one
        _refuse_controls(events, many=not is_single)
    return AskedEvents(events, is_single)


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


def _whole(most: int, default: int, description: str = "how many at most") -> Parameter:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdecimal() and len(text) < 9 and 1 <= int(text) <= most):
            raise ValueError(f"must be a whole number from 1 to {most}")
        return int(text)

    return Parameter(read, {"type": "integer", "minimum": 1, "maximum": most, "default": default}, description)


def _one_of(words: Iterable[str], default: str, description: str) -> Parameter:
    known = list(words)

    def read(text: str) -> str:
        if text not in known:
            raise ValueError(f"must be one of {', '.join(known)}")
        return text

    return Parameter(read, {"type": "string", "enum": known, "default": default}, description)


def _named(description: str) -> Parameter:
    def read(text: str) -> str:
        if not is_readable(text):
            raise ValueError(f"must be text of 1 to {LONGEST_NAME} characters")
        return text

    return Parameter(read, NAME_SCHEMA, description)


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
        return found


NAME_SCHEMA = {"type": "string", "minLength": 1, "maxLength": LONGEST_NAME, "pattern": r"^[^\u0000-\u001f\u007f]+$"}
_HOUR = Parameter(
    _seconds, {"type": "number", "minimum": 0, "maximum": LATEST_TIME}, "seconds since 1970; whole hours count"
)
_SEARCH = _named("a part of the name")
NO_PARAMETERS = Parameters()
LIMIT_ONLY = Parameters({"limit": _whole(MAX_LIMIT, 100)})
RELIABILITY = Parameters({"from": _HOUR, "to": _HOUR})
HISTORY = Parameters({"from": _HOUR, "to": _HOUR, "limit": _whole(MAX_HOURS, MAX_HOURS)})
STREAMS = Parameters(
    {
        "after": _named("the last stream of the page before"),
        "limit": _whole(MAX_LIMIT, 100),
        "order": _one_of(ORDERS, "name", "the first ones first"),
        "search": _SEARCH,
    }
)
OVERVIEW = Parameters(
    {
        "order": _one_of(PAGE_ORDERS, "attention", "what the first streams have most of"),
        "search": _SEARCH,
        "page": _whole(MAX_PAGES, 1, "25 streams each; one behind the last gives the last"),
    }
)
# The name is in the query: browsers resolve "." and ".." in a path, and a stream may have these names.
VIEW = Parameters(
    {
        "stream": _named("the name of a stream"),
        "span": _one_of(SPANS, "month", "how far back the series goes, from the last event"),
    }
)
