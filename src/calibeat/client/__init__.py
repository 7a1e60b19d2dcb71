"""A client of the service: `Client` and `AsyncClient`, with retries that never count an event twice."""

from __future__ import annotations

from .client import AsyncClient, Client
from .conversation import RefusedOutcome, Retries
from .errors import Busy, NotAllowed, ServiceError, Unreachable

__all__ = ["AsyncClient", "Busy", "Client", "NotAllowed", "RefusedOutcome", "Retries", "ServiceError", "Unreachable"]
