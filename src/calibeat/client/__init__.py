"""A client of the service: `Client` and `AsyncClient`, with retries that never count an event twice."""

from __future__ import annotations

from calibeat._util.extras import missing

try:
    from .client import AsyncClient, Client
    from .conversation import RefusedOutcome, Retries
    from .errors import Busy, NotAllowed, ServiceError, Unreachable
except ImportError as error:
    raise missing("msgspec", "client", "calibeat.client") from error

__all__ = ["AsyncClient", "Busy", "Client", "NotAllowed", "RefusedOutcome", "Retries", "ServiceError", "Unreachable"]
