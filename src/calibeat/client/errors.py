"""What a client raises: calibeat's own errors where they fit, and four for what only a network has."""

from __future__ import annotations

from typing import Any

import msgspec

from calibeat.errors import CalibeatError, InvalidInput, OutcomeConflict, UnknownForecast, UnknownKey


class ServiceError(CalibeatError):
    """The service refused, for a reason that has no error of its own. `code`, `at` and `status` say more."""

    code = "unknown"
    at: int | str | None = None
    status = 0


class NotAllowed(ServiceError):
    """The token is missing, unknown, revoked, or may only read."""


class Busy(ServiceError):
    """The service asked to be left alone for a while, and did so until the last retry."""


class Unreachable(ServiceError):
    """No answer came, until the last retry."""


def error_of(status: int, content: bytes) -> CalibeatError:
    """The error that an answer stands for, with the service's own sentence.

    >>> error_of(409, b'{"error": {"code": "conflict", "message": "outcome must ...", "at": "id"}}')
    OutcomeConflict('outcome must ...')
    """
    detail: dict[str, Any] = {}
    try:
        detail = msgspec.json.decode(content)["error"]
        message, code = str(detail["message"]), str(detail["code"])
    except (msgspec.MsgspecError, LookupError, TypeError):
        message, code = f"the service answered {status} without a reason", "unknown"
    kind: type[CalibeatError] = ServiceError
    if code in {"unknown", "expired"} and status in {404, 410}:
        kind = UnknownForecast
    elif code == "unknown_stream":
        kind = UnknownKey
    elif status == 409:
        kind = OutcomeConflict
    elif status in {400, 413, 415}:
        kind = InvalidInput
    elif status in {401, 403}:
        kind = NotAllowed
    elif status in {429, 503, 504}:
        kind = Busy
    error = kind(message)
    if isinstance(error, ServiceError):
        error.code, error.at, error.status = code, detail.get("at"), status
    return error
