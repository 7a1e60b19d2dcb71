"""What a stream of many classes knows of its receipts: who issues them, and which label each event has learnt."""

from __future__ import annotations

import base64
import binascii
from array import array
from typing import Any

import numpy as np

from calibeat._util.check import check_whole
from calibeat._util.types import Ints
from calibeat.errors import InvalidInput, OutcomeConflict, UnknownForecast
from calibeat.stream.receipts import CLOSED, ONE, OPEN, Issuer, Settled

from .check import Classes
from .forecast import MultiForecast

PENDING = -1  # no label yet


class Receipts:
    """The receipts of one stream.

    `Settled` remembers which events have a label, for a bounded past (see there). Beside each of its marks stands the
    column of the label, so that a repeat is told from a contradiction.
    """

    def __init__(self, issuer: Issuer, events: int = 0, *, keep: int | None = None) -> None:
        self.issuer = issuer
        self.known = events  # events that are accounted for; those that a batch of a bank made have no receipts
        self.settled = Settled(events, keep=keep)
        self._first, self._columns = events, array("i")  # the columns of the labels from this event on

    def check(self, forecast: MultiForecast, events: int, outcomes: int, K: int, *, expert: bool) -> None:
        """Raise unless the receipt was issued for one of the events and says nothing impossible."""
        event = forecast.event
        if not self.issuer.is_own(forecast.issuer):
            raise UnknownForecast(
                "forecast must come from this calibrator, got one that was made with other classes or by another "
                f"method - at event {event}"
            )
        if not self.issuer.issued(event, forecast.issuer):
            raise UnknownForecast(
                "forecast must come from this calibrator, got one that a copy of it has made, or that it made itself "
                f"after the snapshot from which it continues - at event {event}"
            )
        if not 0 <= event < events:
            raise UnknownForecast(
                f"forecast must be one of the {events} that this calibrator has made, got event {event}"
            )
        check_whole("forecast seen", forecast.seen, 0, outcomes)
        if len(forecast.probabilities) != K or not (forecast.probabilities > 0.0).all():
            got = f"{forecast.probabilities!r:.60}"
            raise InvalidInput(f"forecast must have {K} positive probabilities, got {got} - at event {event}")
        if expert and (forecast.expert is None or not (forecast.expert > 0.0).all()):
            raise InvalidInput(f"forecast must hold what its expert said, got none - at event {event}")

    def is_repeat(self, event: int, column: int, classes: Classes) -> bool:
        """Whether the label of an event is known already; raise if another one is."""
        mark = self.settled.mark(event)
        if mark == OPEN:
            return False
        if mark == CLOSED and event < self.settled.given_up:
            raise UnknownForecast(
                "forecast must be young enough to know whether its label was learnt, got one from before event "
                f"{self.settled.given_up} - at event {event}"
            )
        if mark != CLOSED and self._columns[event - self._first] != column:
            known = classes.labels[self._columns[event - self._first]]
            raise OutcomeConflict(
                f"label must be the one already learnt, {known!r}, got {classes.labels[column]!r} - at event {event}"
            )
        return True

    def settle(self, event: int, column: int) -> None:
        """An open event has learnt this label."""
        self.settled.settle(event, 1)
        self._columns.extend([PENDING] * (event + 1 - self._first - len(self._columns)))
        self._columns[event - self._first] = column
        self._trim()

    def settle_all(self, first: int, columns: Ints) -> None:
        """Events from `first` on, which nobody knows yet, have learnt these labels; `PENDING` where none came."""
        self.settled = self.settled.after(first, np.where(columns == PENDING, OPEN, ONE).astype(np.uint8))
        self._columns.extend([PENDING] * (first - self._first - len(self._columns)))
        self._columns.frombytes(columns.astype(np.int32).tobytes())
        self._trim()

    def catch_up(self, events: int) -> None:
        """Close the events up to here that are not accounted for: a batch made them, and gave no receipts."""
        if events > self.known:
            self.settled = self.settled.after(self.known, np.full(events - self.known, CLOSED, dtype=np.uint8))
            self._columns.extend([PENDING] * (events - self._first - len(self._columns)))
            self._trim()
            self.known = events

    def is_open(self) -> bool:
        """Whether a receipt waits for its label."""
        return self.settled.is_open_before(self.known)

    def copy(self, events: int) -> Receipts:
        """For a copy of the stream, which begins a new life after so many events."""
        self.catch_up(events)
        issuer = Issuer(self.issuer.name, self.issuer.lives)
        issuer.begin(events)
        made = Receipts(issuer, events)
        made.settled = self.settled.after(events, np.empty(0, dtype=np.uint8))
        made._first, made._columns = self._first, array("i", self._columns)
        made._trim()
        return made

    def _trim(self) -> None:
        first = self.settled.span[0]
        if first > self._first:
            del self._columns[: first - self._first]
            self._first = first

    # ---- as data --------------------------------------------------------------------------------------------------

    def dump(self, events: int) -> dict[str, Any]:
        """For a snapshot of a stream that has made so many forecasts."""
        settled = self.settled.dump()
        first, marks, _ = self.settled.span
        size = first + len(marks.rstrip(b"\0")) - settled["first"]
        kept = np.array(self._columns[settled["first"] - self._first :][: max(0, size)], dtype="<i4")
        settled["labels"] = base64.b64encode(kept.tobytes()).decode()
        return {"settled": settled, "lives": self.issuer.dump(events, settled["first"])}

    @classmethod
    def load(
        cls, name: str, data: dict[str, Any], events: int, outcomes: int, K: int, *, keep: int | None = None
    ) -> Receipts:
        """The inverse of `dump`, in a new life."""
        receipts = cls(Issuer(name), events, keep=keep)
        receipts.issuer.load(data["lives"], events)
        receipts.issuer.begin(events)
        if not isinstance(data["settled"], dict) or "labels" not in data["settled"]:
            raise InvalidInput(f"settled must be an object with labels, got {data['settled']!r:.60}")
        settled = dict(data["settled"])
        try:
            columns = np.frombuffer(base64.b64decode(settled.pop("labels"), validate=True), dtype="<i4")
        except (TypeError, ValueError, binascii.Error) as error:
            raise InvalidInput(f"settled labels must be in base 64, got {data['settled']!r:.60}") from error
        receipts.settled = Settled.load(settled, events, outcomes, keep=keep)
        first, marks, _ = receipts.settled.span
        known = np.frombuffer(marks.rstrip(b"\0"), dtype=np.uint8) == ONE
        if len(known) != len(columns) or not ((columns >= 0) == known).all() or (columns >= K).any():
            raise InvalidInput(f"settled labels must be those of the {int(known.sum())} settled events, got others")
        receipts._first, receipts._columns = first, array("i", columns.tolist())
        return receipts
