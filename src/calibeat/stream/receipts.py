"""What a stream knows of its receipts: who issues them, which are settled, and what one from outside must look like."""

from __future__ import annotations

from typing import Any

import numpy as np

from calibeat._util.check import check_interval, check_score, check_whole
from calibeat.core.method import Method
from calibeat.errors import InvalidInput, OutcomeConflict, UnknownForecast

from .forecast import Forecast
from .issuer import Issuer
from .settled import CLOSED, OPEN, ZERO, Settled


class Receipts:
    """The receipts of one stream."""

    __slots__ = ("_method", "issuer", "known", "settled")

    def __init__(self, method: Method, issuer: Issuer, settled: Settled, known: int = 0) -> None:
        self._method = method
        self.issuer = issuer
        self.settled = settled
        self.known = known  # of a bank's member: how many of its forecasts are accounted for here

    def check(self, forecast: Forecast, events: int, outcomes: int) -> Forecast:
        """The receipt, if it was issued for one of the events and says nothing impossible; raise if not.

        The kernels trust a receipt blindly, so one that has travelled is looked at here. `events` forecasts have been
        made, and `outcomes` of them learnt.
        """
        if not _is_typed(forecast):
            forecast = Forecast.from_dict(forecast.to_dict())
        event, signature = forecast.event, forecast.issuer
        if not self.issuer.is_own(signature):
            raise UnknownForecast(
                "forecast must come from this calibrator, got one that was made by another method, seed or stream - "
                f"at event {event}"
            )
        if not self.issuer.issued(event, signature):
            raise UnknownForecast(
                "forecast must come from this calibrator, got one that a copy of it has made, or that it made itself "
                f"after the snapshot from which it continues - at event {event}"
            )
        if not 0 <= event < events:
            raise UnknownForecast(
                f"forecast must be one of the {events} that this calibrator has made, got event {event}"
            )
        check_whole("forecast seen", forecast.seen, 0, outcomes)
        if not self._method.receipt_is_sound(forecast.lanes, forecast.score, forecast.seen, forecast.probability):
            raise InvalidInput(
                f"forecast must remember the {self._method.receipt_width} numbers of its mixture as they were issued, "
                f"got {forecast.lanes!r:.60} - at event {event}"
            )
        check_score(forecast.score)
        check_interval("forecast probability", forecast.probability, 0.0, 1.0)
        if self._method.cells:  # a cell that was damaged on the way must not reach the row
            check_whole("forecast cell", forecast.cell, 0, self._method.cells - 1)
        return forecast

    def is_repeat(self, event: int, y: float) -> bool:
        """Whether the outcome of an event is known already; raise if another one is."""
        mark = self.settled.mark(event)
        if mark == OPEN:
            return False
        if mark == CLOSED and event < self.settled.given_up:
            raise UnknownForecast(
                "forecast must be young enough to know whether its outcome was learnt, got one from before event "
                f"{self.settled.given_up} - at event {event}"
            )
        if mark != CLOSED and mark - ZERO != y:
            raise OutcomeConflict(
                f"outcome must be the one already learnt, {mark - ZERO}, got {y:.0f} - at event {event}"
            )
        return True

    def catch_up(self, events: int) -> None:
        """Close the events up to here that are not accounted for: a batch made them, and gave no receipts."""
        if events > self.known:
            self.settled = self.settled.after(self.known, np.full(events - self.known, CLOSED, dtype=np.uint8))
            self.known = events

    def is_open(self, events: int) -> bool:
        """Whether a receipt among so many events waits for its outcome."""
        return self.settled.is_open_before(min(events, self.known))

    def copy(self, events: int) -> Receipts:
        """For a copy of the stream, which begins a new life after so many events."""
        self.catch_up(events)
        issuer = Issuer(self.issuer.name, self.issuer.lives)
        issuer.begin(events)
        return Receipts(self._method, issuer, self.settled.after(events, np.empty(0, dtype=np.uint8)), events)

    # ---- as data --------------------------------------------------------------------------------------------------

    def dump(self, events: int) -> dict[str, Any]:
        """For a snapshot of a stream that has made so many forecasts."""
        settled = self.settled.dump()
        return {"settled": settled, "lives": self.issuer.dump(events, settled["first"])}

    @classmethod
    def load(
        cls, method: Method, name: str, data: dict[str, Any], events: int, outcomes: int, *, keep: int | None = None
    ) -> Receipts:
        """The inverse of `dump`, in a new life."""
        issuer = Issuer(name)
        issuer.load(data["lives"], events)
        issuer.begin(events)
        return cls(method, issuer, Settled.load(data["settled"], events, outcomes, keep=keep), events)


def _is_typed(forecast: Forecast) -> bool:
    """Whether the fields have the types that `predict` gives them; a receipt made by hand may have others."""
    probability, score, _, _, cell, event, seen, issuer, lanes, _ = forecast
    return (
        type(probability) is type(score) is float
        and type(cell) is type(event) is type(seen) is int
        and type(issuer) is str
        and type(lanes) is tuple
        and all(type(number) is float for number in lanes)
    )
