"""One stream of a bank: a calibrator whose row lies in the bank's matrix."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from calibeat._util.check import check_due, check_outcome, check_outcomes, check_scores, said
from calibeat._util.types import Vector
from calibeat.core.jit import compiled
from calibeat.core.layout import N
from calibeat.core.randomness import stream_key
from calibeat.core.stats import EVENTS, LAST, add_losses
from calibeat.errors import UnknownKey
from calibeat.stream.calibrator import Calibrator, Number
from calibeat.stream.forecast import Forecast, Issuer

from .keys import Key, check_key
from .loops import add_late_losses
from .start import learn_late

if TYPE_CHECKING:
    from .bank import Bank


class Member(Calibrator):
    """What ``bank[key]`` gives. Whatever happens to it has happened to the bank, and the other way round.

    A copy, a pickle or `to_json` gives a calibrator of its own.
    """

    def __init__(self, bank: Bank, key: Key, issuers: MutableMapping[Key, Issuer]) -> None:
        self._bank, self._key_of_bank = bank, key
        self._moves = bank._store.moves
        self._books: Any = None
        self._gone = False
        slot = bank._known(key)
        self._begin(bank._method, bank._seed, bank._stream(key), self._row_at(slot))
        # Two keys may share their draws, but not their receipts.
        name = f"{stream_key(int(self._issuer, 16), key):016x}"
        self._issuer = issuers.setdefault(key, Issuer(name))
        self._adopted = bank._store.adopted(slot)
        self._refresh()

    def _row_at(self, slot: int) -> Any:
        whole = memoryview(self._bank._store.matrix[slot])
        width = self._bank._method.width
        self._books = whole[width:]
        return whole[:width]

    def _refresh(self) -> None:
        if self._gone:
            raise UnknownKey(f"key must be one of the bank's, got {said(self._key_of_bank)}, which it has forgotten")
        if self._moves != self._bank._store.moves:
            self._row = self._row_at(self._bank._known(self._key_of_bank))
            self._moves = self._bank._store.moves
            self._hand = self._spec, self._row, self._receipt
            self._take_compiled_kernels()
        self._events = int(self._books[EVENTS])

    def predict(self, score: Number) -> Forecast:
        self._refresh()
        forecast = super().predict(score)
        bank = self._bank
        if bank._writable:
            bank._clock += 1
            self._books[EVENTS], self._books[LAST] = float(self._events), float(bank._clock)
        return forecast

    def update(self, forecast: Forecast, outcome: Number | np.bool_) -> None:
        self._bank._check_writable("learn")
        self._refresh()
        before = self._row[N]
        super().update(forecast, outcome)
        if self._row[N] > before:  # else it was known already
            y = check_outcome(outcome)
            add_losses(self._books, 0, forecast.score, forecast.probability, y)
            self._bank._learn_together(forecast.score, y)

    def run(self, scores: npt.ArrayLike, outcomes: npt.ArrayLike, *, due: npt.ArrayLike | None = None) -> Vector:
        bank = self._bank
        bank._check_writable("learn")
        self._refresh()
        if due is None:
            return bank.run([self._key_of_bank] * len(check_scores(scores)), scores, outcomes)
        probabilities = check_scores(scores)
        n = len(probabilities)
        forecasts = super().run(probabilities, outcomes, due=due)
        arrivals = check_due(due, n)
        order = np.argsort(arrivals, kind="stable")
        order = order[: np.searchsorted(arrivals[order], n)]
        labels = check_outcomes(outcomes, needed=arrivals < n)
        compiled(add_late_losses)(np.frombuffer(self._books), probabilities, forecasts, labels, order)
        if bank._prior:
            receipt = np.empty(self._method.receipt_width)
            compiled(learn_late)(self._method.spec, bank._pool, probabilities, labels, order, receipt)
        bank._clock += n
        self._books[EVENTS], self._books[LAST] = float(self._events), float(bank._clock)
        return forecasts

    @classmethod
    def from_json(cls, text: str | bytes) -> Calibrator:
        """As `Calibrator.from_json`: a calibrator of its own."""
        return Calibrator.from_json(text)


class Members:
    """The members of a bank: one object a key, as long as somebody holds it, and some at hand for single events."""

    MOST = 4096  # kept at hand

    def __init__(self, bank: Bank) -> None:
        self._bank = bank
        self._at_hand: dict[Key, Member] = {}
        self._alive: WeakValueDictionary[Key, Member] = WeakValueDictionary()
        self._issuers: WeakValueDictionary[Key, Issuer] = WeakValueDictionary()  # of receipts that are about

    def at_hand(self, key: Any) -> Member | None:
        """The member of a key, if it is near."""
        return self._at_hand.get(key) if type(key) in (int, str) else None

    def of(self, key: Any) -> Member:
        """The member of a key."""
        member = self.at_hand(key)
        if member is None:
            self._bank._known(key)
            key = check_key(key)
            member = self._alive.get(key)
            if member is None:
                member = self._alive[key] = Member(self._bank, key, self._issuers)
            if len(self._at_hand) >= self.MOST:
                self._at_hand.clear()
            self._at_hand[key] = member
        return member

    def forget(self, keys: list[Key]) -> None:
        """The keys are gone: their members are of no more use, and their receipts are not those of a later namesake."""
        for key in keys:
            self._at_hand.pop(key, None)
            self._issuers.pop(key, None)
            member = self._alive.pop(key, None)
            if member is not None:
                member._gone = True
