"""A client of the service: `Client` and `AsyncClient`, with retries that never count an event twice."""

from __future__ import annotations

from .asynchronous import AsyncClient
from .buffer import Refusal
from .errors import Busy, NotAllowed, ServiceError, Unreachable
from .shared import Retries
from .synchronous import Client

__all__ = ["AsyncClient", "Busy", "Client", "NotAllowed", "Refusal", "Retries", "ServiceError", "Unreachable"]
