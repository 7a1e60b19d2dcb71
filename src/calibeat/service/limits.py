"""What one client may take: sizes, numbers and times. Each has a clear refusal."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """The limits of the service. Lengths of names are part of the schema: see `calibeat.service.wire`."""

    body: int = 4 * 2**20  # bytes of a request's body
    events: int = 10_000  # events in one request
    connections: int = 4_000  # open at the same time
    request_seconds: float = 20.0  # from the first byte of a request to its last
    answer_seconds: float = 60.0  # from the last byte of a request to the last of its answer
    idle_seconds: float = 75.0  # between two requests of a connection


DEFAULT = Limits()
