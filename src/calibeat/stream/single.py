"""One event at a time: `predict`, `update` and `peek` of a calibrator.

Where the kernels are compiled, a forecast is one call into machine code, and so is the outcome of the latest forecast.
Such a call keeps the interpreter's lock: no other thread and no signal comes between its steps, and nothing else has to
be locked. Everything that takes several steps (plain kernels, draws, late outcomes, batches, snapshots) takes the
calibrator's lock, and shuts the short way while it is at work.

A call takes effect in one line that calls nothing: an interrupt, or a fork, comes before all of it or after all of it.
What the monitors are to be told of it stands in `_owed` until they know. If an interrupt comes before that, the next
call tells them.
"""

from __future__ import annotations

import logging
import sys
from array import array
from struct import Struct
from typing import Any

import numpy as np

from calibeat._util.check import check_outcome, check_score
from calibeat._util.forks import new_lock
from calibeat.core import kernel, layout
from calibeat.core.jit import plain
from calibeat.core.kernel import LATEST, NEXT, SEEN_THEN, SHUT
from calibeat.core.method import Method
from calibeat.core.randomness import stream_key, uniform
from calibeat.errors import InvalidInput, OutcomeConflict

from .beliefs import Beliefs
from .dispatch import LOOK_EVERY, box, loaded_after, single_kernels
from .forecast import Forecast
from .history import History
from .issuer import Issuer, issuer_name
from .receipts import Receipts
from .settled import OPEN, ZERO, Settled
from .watch import Watch

Number = int | float | np.floating[Any] | np.integer[Any]
Pairs = tuple[tuple[float, float], ...]

_log = logging.getLogger("calibeat")
_new = tuple.__new__
_ONE_AT_A_TIME = getattr(sys, "_is_gil_enabled", lambda: True)()  # threads of this Python


class SingleEvents(Beliefs):
    """The half of `Calibrator` that serves one event at a time."""

    def _begin(self, method: Method, seed: int, stream: int | str, row: Any, work: Any = None) -> None:
        self._method, self._seed, self._stream = method, seed, stream
        self._lock = new_lock()
        # What the plain kernels read fastest: a tuple of floats and an array of the array module, which NumPy can
        # look at without copying. To the type checker both are the NumPy vectors that the compiled kernels get.
        self._spec: Any = tuple(method.spec.tolist())
        self._row: Any = row
        self._work: Any = array("d", row) if work is None else work  # where an outcome that comes alone is learnt
        self._owed: tuple[Any, ...] | None = None  # what the monitors have not been told yet: a function, its arguments
        self._is_forked = False  # whether this is a copy in a new process that has not been used yet
        self._latest: Forecast | None = None  # the latest forecast made here, and what it was made from:
        self._asked: Any = array("d", bytes(8 * kernel.ASKED))  # for compiled kernels; also the count of events
        self._made = (0.0,) * 5  # for plain ones
        self._receipt: Any = array("d", bytes(8 * method.receipt_width))  # what a mixture remembers of it
        self._aside: Any = array("d", self._receipt)  # the same, of forecasts that are not made
        self._history = History(method)
        self._keeps, self._hedges, self._width = method.needs_history, method.draws, method.receipt_width
        self._watch, self._is_watched = Watch(method, None), False
        self._take_kernels()
        self._key = stream_key(self._seed, self._stream)
        name = issuer_name(method, seed, stream)
        self._receipts = Receipts(method, Issuer(name), Settled())
        self._signature = name
        self._told_about_ball = False

    def _take_kernels(self) -> None:
        """Single events run as plain Python, or by the compiled kernels if those are in memory: the same bits.

        Each attribute is set in one step, with arrays that fit its kernels.
        """
        kernels = box(single_kernels())
        self._is_plain, width = kernels.predict is kernel.predict, len(self._receipt)
        spec, row, work, asked, receipt = self._spec, self._row, self._work, self._asked, self._receipt
        if not self._is_plain:  # pragma: no cover - the leg that measures coverage has the JIT off
            receipt = np.frombuffer(self._receipt) if width else np.empty(0)
            spec, asked = self._method.spec, np.frombuffer(self._asked)
            row, work = self._view(), np.frombuffer(self._work)
        lanes_of = Struct(f"{width}d").unpack if width else None
        alone = self._is_plain or self._is_watched or not _ONE_AT_A_TIME
        self._others = kernels, spec, row, receipt
        self._learning = kernels, spec, work, receipt
        self._settling = None if alone or self._keeps else (kernels, spec, row, asked, receipt)
        self._asking = None if alone or self._hedges else (kernels, spec, row, asked, receipt, lanes_of)

    def _set_watch(self, watch: Watch) -> None:
        self._watch, self._is_watched = watch, bool(watch)
        if watch:  # monitors want to be told of every event
            self._take_kernels()

    # ---- a forecast -----------------------------------------------------------------------------------------------

    def predict(self, score: Number) -> Forecast:
        """Forecast one event. The row does not change; keep the forecast until the outcome is known.

        >>> from calibeat import Calibrator, OPS
        >>> Calibrator(OPS).predict(0.25).probability
        0.25
        """
        if type(score) is not float or not 0.0 <= score <= 1.0:
            score = check_score(score)
        if self._asking is None:
            with self._lock:
                return self._predict_alone(score, -1)
        kernels, spec, row, asked, receipt, lanes_of = self._asking
        q, p, b, seen, event = kernels.predict_one(spec, row, score, asked, receipt)
        lanes = lanes_of(receipt) if lanes_of else ()
        if event < 0 or (lanes and self._asked[LATEST] != event):  # another thread is at work, or came between
            with self._lock:
                return self._predict_alone(score, event)
        signature = self._signature or self._sign()
        forecast = self._latest = _new(Forecast, (q, score, p, b, b, event, seen, signature, lanes, ()))
        return forecast

    def _predict_alone(self, score: float, event: int) -> Forecast:
        """`predict` when nobody comes between. An event that has a number already has been counted."""
        if self._owed is not None or self._is_forked:
            self._recover()
        asked, is_plain = self._asked, self._is_plain
        events = int(asked[NEXT])
        if event < 0:
            event = events
            events += 1
            if is_plain and events % LOOK_EVERY == 0 and loaded_after(LOOK_EVERY):
                self._take_kernels()  # pragma: no cover - the leg that measures coverage has the JIT off
                is_plain = self._is_plain  # pragma: no cover - as above
        self._latest = None
        try:
            if not is_plain:  # pragma: no cover - as above
                asked[SHUT], asked[LATEST] = 1.0, -1.0
            kernels, spec, row, receipt = self._others
            q, cell, x0, x1, x2, p, z, b, low, high, weight = kernels.predict(spec, row, score, 0.0, receipt, 0)
            hedge: Pairs = ()
            if low != high:  # the draw matters: only now is it worth making
                q, cell, *_ = kernels.predict(spec, row, score, uniform(self._key, event), receipt, 0)
                hedge = (low, weight), (high, 1.0 - weight)
            n = self._row[layout.N]
            lanes = tuple(self._receipt) if len(receipt) else ()
            signature = self._signature or self._sign()
            forecast = _new(Forecast, (q, score, p, b, cell, event, int(n), signature, lanes, hedge))
            owed = (self._watch.announce, events) if self._is_watched else None
            if is_plain:
                self._made = x0, x1, x2, p, z
                asked[NEXT], self._latest, self._owed = events, forecast, owed
            else:  # pragma: no cover - as above
                now = array("d", (x0, x1, x2, p, z, cell, n, event, events, 1.0))
                asked[:], self._latest, self._owed = now, forecast, owed
            if owed is not None:
                self._recover()
            return forecast
        finally:
            if not is_plain:  # pragma: no cover - as above
                asked[SHUT] = self._is_forked

    def peek(self, score: Number) -> float:
        """What `predict` would say of a score now. No event is made, nothing changes.

        >>> from calibeat import Calibrator, OPS
        >>> cal = Calibrator(OPS)
        >>> cal.peek(0.25), cal.events
        (0.25, 0)
        """
        score = check_score(score)
        with self._lock:
            self._refresh()
            kernels, spec, _, _ = self._others
            row, aside = self._row[:], self._aside
            if not self._is_plain:  # pragma: no cover - the leg that measures coverage has the JIT off
                row, aside = np.array(row), np.frombuffer(aside) if len(aside) else np.empty(0)
            u = uniform(self._key, self._events) if self._hedges else 0.0
            return float(kernels.predict(spec, row, score, u, aside, 0)[0])

    def _sign(self) -> str:
        """The signature of a life that begins with this forecast."""
        with self._lock:
            self._signature = self._receipts.issuer.sign()
            return self._signature

    # ---- its outcome ----------------------------------------------------------------------------------------------

    def update(self, forecast: Forecast, outcome: Number | np.bool_) -> None:
        """Learn the outcome of a forecast, now or any time later, in any order.

        The same outcome a second time changes nothing, and another one is an `OutcomeConflict`; it does not matter
        whether the receipt is the object itself or was read from JSON, nor whether the calibrator was restored from a
        snapshot in between. How far back this reaches: docs/receipts.md.

        >>> from calibeat import Calibrator, OPS
        >>> cal = Calibrator(OPS)
        >>> first, second = cal.predict(0.9), cal.predict(0.4)
        >>> cal.update(second, 0)
        >>> cal.update(first, 1)
        >>> cal.update(first, 1)     # a repeat
        >>> cal.outcomes
        2
        """
        if type(forecast) is not Forecast:
            raise InvalidInput(f"forecast must be a Forecast made by predict, got {type(forecast).__name__}")
        y = float(outcome) if type(outcome) is int and 0 <= outcome <= 1 else check_outcome(outcome)
        if self._settling is not None and forecast is self._latest:
            kernels, spec, row, asked, receipt = self._settling
            first, _, marks = self._receipts.settled.span
            if kernels.settle_one(spec, row, forecast.event, y, asked, receipt, marks, first):
                return
        with self._lock:
            self._update_alone(forecast, y)

    def _update_alone(self, forecast: Forecast, y: float) -> None:
        """`update` of whatever receipt, when nobody comes between: learn beside the row, then take it over."""
        asked, receipts = self._asked, self._receipts
        try:
            asked[SHUT] = 1.0
            if self._owed is not None or self._is_forked:
                self._recover()
            n, latest = self._row[layout.N], forecast is self._latest
            if not latest:
                forecast = receipts.check(forecast, int(asked[NEXT]), int(n))
            event, settled = forecast.event, receipts.settled
            first, old, _ = settled.span
            marks, at, sealed = old, event - first, 0
            has_room = 0 <= at < len(old) - 1
            if not (has_room and old[at] == OPEN) and receipts.is_repeat(event, y):
                return
            made, self._latest = self._latest, None  # what was kept of it may be written over
            self._move(forecast, y, latest=latest)
            if not has_room:
                settled, sealed = settled.with_outcome(event, int(y)), 1
                first, marks, _ = settled.span
                at = event - first
            self._take_over(forecast, y, settled, marks, at, old, sealed)
            self._latest = made
        finally:
            asked[SHUT] = self._is_forked
        if self._keeps:
            self._after_learning()

    def _take_over(
        self, forecast: Forecast, y: float, settled: Settled, marks: bytearray, at: int, old: bytearray, sealed: int
    ) -> None:
        """It has happened: the outcome is in the row, and its event has a mark, at a place in the settled events.

        Those that were there before, `old`, are sealed if others take their place.
        """
        receipts, work, mark = self._receipts, self._work, ZERO + (y == 1.0)
        owed = (self._watch.update, forecast, y) if self._is_watched else None
        # One line, without a call: an interrupt comes before all of it or after all of it.
        self._row[:], marks[at], receipts.settled, old[-1], self._owed = work, mark, settled, sealed, owed
        if owed is not None:
            self._recover()

    def _move(self, forecast: Forecast, y: float, *, latest: bool) -> None:
        """Learn an outcome in a copy of the row."""
        row, work, asked, n = self._row, self._work, self._asked, self._row[layout.N]
        if work is not row:
            work[:] = row
        if latest and self._is_plain and not self._keeps and forecast.seen == n:
            _, spec, _, receipt = self._learning
            kernel.settle(spec, work, asked[NEXT], *self._made, forecast.cell, y, receipt, 0, False)
        else:
            self._learn_late(forecast, y, fresh=latest and asked[LATEST] == forecast.event and asked[SEEN_THEN] == n)

    def _learn_late(self, forecast: Forecast, y: float, *, fresh: bool) -> None:
        """The same of any receipt. What the mixture remembers of a fresh forecast is still at hand."""
        kernels, spec, work, receipt = self._learning
        learnt = int(self._work[layout.N])
        if learnt >= self._events:  # of a bank that does not know which events `fold` has settled
            raise OutcomeConflict(
                f"outcome must be of a forecast that has none yet, got one more than the {self._events} forecasts - "
                f"at event {forecast.event}"
            )
        if not fresh:
            self._asked[LATEST] = -1.0
            self._receipt[:] = array("d", forecast.lanes)
        self._history.reserve(learnt, 1)
        late = forecast.score, forecast.cell, y, receipt, 0
        if kernels.update(spec, work, self._asked[NEXT], *late, *self._history.columns):
            self._history.refit(np.frombuffer(self._work), plain if self._is_plain else None)

    def _after_learning(self) -> None:
        """For learners that fit their past again."""
        learnt = self.outcomes
        self._history.forget(learnt)
        learner: Any = self._method.learner
        if learnt >= learner.after and not self._told_about_ball and self.on_the_ball:
            self._told_about_ball = True
            _log.warning(
                "the fit ended on the ball of radius %g: the outcomes learnt so far are separable by the score, so "
                "that no finite optimum exists, or the radius is small",
                learner.radius,
            )
