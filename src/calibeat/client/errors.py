"""What a client raises: calibeat's own errors where they fit, and four for what only a network has."""

from __future__ import annotations

from typing import Any

import msgspec

from calibeat.errors import CalibeatError, InvalidInput, OutcomeConflict, UnknownForecast, UnknownKey

RETRIED = frozenset({429, 502, 503, 504})  # statuses that say nothing about the request itself


class ServiceError(CalibeatError):
    """The service refused, for a reason that has no error of its own. `code`, `at` and `status` say more."""

    code = "unknown"
    at: int | str | None = None
    status = 0
    retry_after: str | None = None  # seconds, if the service asked for some


class NotAllowed(ServiceError):
    """The token is missing, unknown, revoked, or may only read."""


class Busy(ServiceError):
    """The service asked to be left alone for a while, and did so until the last retry."""


class Unreachable(ServiceError):
    """No answer came, until the last retry."""


def detail_of(content: bytes) -> dict[str, Any]:
    """What an answer says about an error: `code`, `message`, `at`; empty if the service did not write it.

    >>> detail_of(b'{"error": {"code": "full", "message": "the queue is full", "at": null}}')["code"]
    'full'
    >>> detail_of(b"<html>")
    {}
    """
    try:
        detail = msgspec.json.decode(content)["error"]
        return dict(detail) if "message" in detail and "code" in detail else {}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, LookupError, TypeError, ValueError):
        return {}


def error_of(status: int, content: bytes, retry_after: str | None = None) -> CalibeatError:
    """The error that an answer stands for, with the service's own sentence.

    >>> error_of(409, b'{"error": {"code": "conflict", "message": "outcome must ...", "at": "id"}}')
    OutcomeConflict('outcome must ...')
    """
    detail = detail_of(content)
    message = str(detail.get("message", f"the service answered {status} without a reason"))
    code = str(detail.get("code", "unknown"))
    kind: type[CalibeatError] = ServiceError
    if detail and code in {"unknown", "expired"} and status in {404, 410}:
        kind = UnknownForecast
    elif code == "unknown_stream":
        kind = UnknownKey
    elif status == 409:
        kind = OutcomeConflict
    elif status in {400, 413, 415}:
        kind = InvalidInput
    elif status in {401, 403}:
        kind = NotAllowed
    elif status in RETRIED:
        kind = Busy
    error = kind(message)
    if isinstance(error, ServiceError):
        error.code, error.at, error.status, error.retry_after = code, detail.get("at"), status, retry_after
    return error
