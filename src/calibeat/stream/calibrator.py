"""The host of one stream: it keeps the row, the history where a refit needs one, and checks what comes in."""

from __future__ import annotations

import logging
import sys
from array import array
from struct import Struct
from threading import RLock
from typing import Any

import numpy as np
import numpy.typing as npt

from calibeat._util.check import (
    check_due,
    check_lengths,
    check_outcome,
    check_outcomes,
    check_score,
    check_scores,
    check_whole,
)
from calibeat._util.columns import like
from calibeat._util.types import Vector
from calibeat.core import kernel, layout, loops
from calibeat.core.jit import compiled, plain
from calibeat.core.method import Method
from calibeat.core.presets import AUTO, method_named
from calibeat.core.randomness import stream_key, uniform, uniforms
from calibeat.errors import InvalidInput, OutcomeConflict, SnapshotMismatch

from . import snapshot
from .beliefs import Beliefs
from .dispatch import LOOK_EVERY, for_batch, load_single_if_cached, loaded_after, single_kernels
from .forecast import Forecast
from .history import History
from .issuer import Issuer, issuer_name
from .receipts import Receipts
from .settled import OPEN, ZERO, Settled

Number = int | float | np.floating[Any] | np.integer[Any]

Pairs = tuple[tuple[float, float], ...]

_log = logging.getLogger("calibeat")
_new = tuple.__new__
_ONE_AT_A_TIME = getattr(sys, "_is_gil_enabled", lambda: True)()  # threads of this Python


class Calibrator(Beliefs):
    r"""Turns scores into probabilities, one stream of events, learning from every outcome.

    Parameters
    ----------
    method : a `Method`, or the name of a preset such as ``"tops"``; AUTO if not given.
    seed : for the draws of a hedging method; the same seed gives the same draws.
    stream : a name for the stream; two streams of one seed draw independently.

    >>> from calibeat import Calibrator
    >>> cal = Calibrator()
    >>> f = cal.predict(0.83)        # a forecast is also a receipt
    >>> round(f.probability, 6)
    0.83
    >>> cal.update(f, 0)             # now or any time later, in any order
    >>> round(float(cal.predict(0.83)), 6)
    0.670817

    Over arrays, with the same bits as the loop above, from the present state on:

    >>> p = cal.run([0.2, 0.7, 0.6], [0, 1, 1])
    >>> p.shape
    (3,)

    A receipt that comes back twice is learnt once, and an outcome that contradicts the one learnt is an
    `OutcomeConflict`, also after a restart from `to_json`. Threads may share a calibrator: a lock makes each call
    happen as a whole, and an interrupted call has happened or has not. docs/receipts.md has the details.
    """

    def __init__(self, method: Method | str = AUTO, seed: int = 0, stream: int | str = 0) -> None:
        if not isinstance(method, Method):
            method = method_named(method)
        # A subclass of str, such as NumPy's, has another repr, and would be another stream.
        stream = str.__str__(stream) if isinstance(stream, str) else check_whole("stream", stream, -(2**63), 2**63 - 1)
        row = array("d", method.initial_row())
        self._begin(method, check_whole("seed", seed, -(2**63), 2**63 - 1), stream, row)

    def _begin(self, method: Method, seed: int, stream: int | str, row: Any) -> None:
        self._method, self._seed, self._stream = method, seed, stream
        self._lock = RLock()
        # What the plain kernels read fastest: a tuple of floats and an array of the array module, which NumPy can
        # look at without copying. To the type checker both are the NumPy vectors that the compiled kernels get.
        self._spec: Any = tuple(method.spec.tolist())
        self._row: Any = row
        self._latest: Forecast | None = None  # the latest forecast made here ...
        self._asked: Any = array("d", bytes(8 * kernel.ASKED))  # ... what it was made from, and the count of events ...
        self._receipt: Any = array("d", bytes(8 * method.receipt_width))  # ... and what a mixture remembers of it
        self._aside: Any = array("d", self._receipt)  # the same, of forecasts that are not made
        self._history = History(method)
        self._keeps, self._hedges = method.needs_history, method.draws
        self._take_kernels()
        self._key = stream_key(self._seed, self._stream)
        name = issuer_name(method, seed, stream)
        self._receipts = Receipts(method, Issuer(name), Settled())
        self._signature = name
        self._told_about_ball = False

    # ---- one event ------------------------------------------------------------------------------------------------

    def predict(self, score: Number) -> Forecast:
        """Forecast one event. The row does not change; keep the forecast until the outcome is known.

        >>> from calibeat import Calibrator, OPS
        >>> Calibrator(OPS).predict(0.25).probability
        0.25
        """
        if type(score) is not float or not 0.0 <= score <= 1.0:
            score = check_score(score)
        predict_one, spec, row, asked, receipt, lanes_of, alone = self._asking
        if alone:
            with self._lock:
                return self._predict_alone(score)
        q, p, b, seen, event = predict_one(spec, row, score, asked, receipt)
        lanes = lanes_of(receipt) if lanes_of else ()
        if event < 0 or (lanes and self._asked[kernel.LATEST] != event):  # another thread is, or was, at work
            with self._lock:
                return self._predict_alone(score, event)
        signature = self._signature or self._sign()
        forecast = self._latest = _new(Forecast, (q, score, p, b, b, event, seen, signature, lanes, ()))
        return forecast

    def _predict_alone(self, score: float, event: int = -1) -> Forecast:
        """`predict` when nobody comes between: for plain kernels, which take many steps, and for methods that draw.

        An event that has a number already has been counted.
        """
        asked = self._asked
        if self._is_plain and self._events % LOOK_EVERY == LOOK_EVERY - 1 and loaded_after(LOOK_EVERY):
            self._take_kernels()  # pragma: no cover - the leg that measures coverage has the JIT off
        self._latest, hedge = None, ()
        try:
            asked[kernel.SHUT] = 1.0
            signature = self._signature or self._sign()
            predict, _, spec, row, receipt = self._others
            events = self._events
            event, events = (events, events + 1) if event < 0 else (event, events)
            asked[kernel.LATEST] = -1.0
            q, cell, x0, x1, x2, p, z, b, low, high, weight = predict(spec, row, score, 0.0, receipt, 0)
            if low != high:  # the draw matters: only now is it worth making
                q, cell, *_ = predict(spec, row, score, uniform(self._key, event), receipt, 0)
                m = self._spec[layout.BINS]
                hedge = ((low + 0.5) / m, weight), ((high + 0.5) / m, 1.0 - weight)
            n = self._row[layout.N]
            lanes = tuple(self._receipt)
            forecast = _new(Forecast, (q, score, p, b, cell, event, int(n), signature, lanes, hedge))
            asked[:] = array("d", (x0, x1, x2, p, z, cell, n, event, events, 1.0))
            self._latest = forecast
            return forecast
        finally:
            asked[kernel.SHUT] = 0.0

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
            predict, _, spec, _, _ = self._others
            row, aside = self._row[:], self._aside
            if not self._is_plain:  # pragma: no cover - the leg that measures coverage has the JIT off
                row, aside = np.array(row), np.frombuffer(aside) if len(aside) else np.empty(0)
            u = uniform(self._key, self._events) if self._hedges else 0.0
            return float(predict(spec, row, score, u, aside, 0)[0])

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
        if forecast is self._latest and self._settling is not None:
            settle_one, spec, row, asked, receipt = self._settling
            first, _, marks = self._receipts.settled.span
            if settle_one(spec, row, forecast.event, y, asked, receipt, marks, first):
                return
        with self._lock:
            self._update_alone(forecast, y)

    def _update_alone(self, forecast: Forecast, y: float) -> None:
        """`update` of whatever receipt, when nobody comes between."""
        asked, n, settled, latest = self._asked, self._row[layout.N], self._receipts.settled, forecast is self._latest
        before: Any = None
        event = -1
        try:
            asked[kernel.SHUT] = 1.0
            n = self._row[layout.N]
            if not latest:
                forecast = self._receipts.check(forecast, self._events, int(n))
            if self._receipts.is_repeat(forecast.event, y):
                return
            if n >= self._events:
                raise OutcomeConflict(
                    f"outcome must be of a forecast that has none yet, got one more than the {self._events} forecasts "
                    f"- at event {forecast.event}"
                )
            before, event = self._row[:], forecast.event
            self._learn(forecast, y, fresh=latest and asked[kernel.LATEST] == event and asked[kernel.SEEN_THEN] == n)
            settled.settle(event, y == 1.0)
        except BaseException:
            if before is not None:
                self._row[:] = before
                settled.reopen(event)
            raise
        finally:
            asked[kernel.SHUT] = 0.0
        self._after_learning()

    def _learn(self, forecast: Forecast, y: float, *, fresh: bool) -> None:
        """Move the row. Nothing was learnt since a fresh forecast: what it was made from still holds."""
        _, update, spec, row, receipt = self._others
        if fresh and self._is_plain and not self._keeps:
            x0, x1, x2, p, z, cell, *_ = self._asked
            kernel.settle(spec, row, float(self._events), x0, x1, x2, p, z, int(cell), y, receipt, 0)
            return
        if not fresh:
            self._asked[kernel.LATEST] = -1.0
            self._receipt[:] = array("d", forecast.lanes)
        self._history.reserve(self.outcomes, 1)
        late = forecast.score, forecast.cell, y, receipt, 0
        if update(spec, row, float(self._events), *late, *self._history.columns):
            self._history.refit(self._view(), plain if self._is_plain else compiled)

    # ---- many events ----------------------------------------------------------------------------------------------

    def run(
        self, scores: npt.ArrayLike, outcomes: npt.ArrayLike, *, due: npt.ArrayLike | None = None, finish: bool = False
    ) -> Vector:  # fmt: skip
        """Predict and then update, event after event; the same bits as doing so one by one.

        Parameters
        ----------
        scores : probabilities in [0, 1].
        outcomes : 0 or 1 (False or True).
        due : for late outcomes. Outcome i is learnt just before prediction ``due[i]`` (> i), in order of (due, i);
            one that is due at ``len(scores)`` or later never arrives, and its place in `outcomes` may hold anything.
        finish : outcomes that are due later are learnt at the end, after the last prediction.

        Returns the forecasts, as a column if the scores are one. If something is wrong with one event, none is taken.

        >>> from calibeat import Calibrator, OPS
        >>> Calibrator(OPS).run([0.5, 0.5, 0.5], [1, 1, 1], due=[2, 3, 3]).round(4)
        array([0.5   , 0.5   , 0.5125])
        """
        probabilities = check_scores(scores)
        n = len(probabilities)
        if due is None:
            labels = check_outcomes(outcomes)
            check_lengths(scores=n, outcomes=len(labels))
            return like(scores, self._run(loops.run, n, probabilities, labels))
        arrivals = check_due(due, n) if n else np.empty(0, dtype=np.int64)
        if finish:
            arrivals = np.minimum(arrivals, n)
        last = n if finish else n - 1
        labels = check_outcomes(outcomes, needed=arrivals <= last)
        check_lengths(scores=n, outcomes=len(labels))
        order = np.argsort(arrivals, kind="stable")
        order = order[: np.searchsorted(arrivals[order], last, side="right")]
        played = np.empty(n, dtype=np.int64)
        return like(scores, self._run(loops.run_late, last + 1, probabilities, labels, 0, played, arrivals, order))

    def _run(self, loop: Any, end: int, scores: Vector, outcomes: Vector, *late: Any) -> Vector:
        """Work on a copy of the row: if anything breaks off the loop, nothing has happened."""
        with self._lock:
            self._refresh()
            receipts, asked, before, settled = self._receipts, self._asked, None, self._receipts.settled
            try:
                asked[kernel.SHUT] = 1.0
                events, row = self._events, self._view().copy()
                history = self._history
                history.reserve(int(row[layout.N]), len(scores))
                forecasts = np.empty(len(scores))
                one_stream = self._method.spec, row, len(row), loops.NO_SLOTS, 0, 1, 0, float(events)
                batch = scores, outcomes, self._draws(len(scores)), forecasts, self._scratch(len(scores) if late else 1)
                play, place = for_batch(loop, self._method, len(scores)), loops.place_before()
                while play(*one_stream, *batch, *history.columns, place, end, *late):
                    history.refit(row)
                marks = (outcomes + ZERO).astype(np.uint8)
                if late:
                    marks[np.setdiff1d(np.arange(len(scores)), late[-1])] = OPEN
                after, before = settled.after(events, marks), self._row[:]
                self._view()[:] = row
                self._events = events + len(scores)
                asked[kernel.LATEST] = -1.0
                receipts.settled = after
                settled.seal()
            except BaseException:
                if before is not None:
                    self._row[:] = before
                    self._events, receipts.settled = events, settled
                    settled.seal(sealed=False)
                raise
            finally:
                asked[kernel.SHUT] = 0.0
            self._after_learning()
            load_single_if_cached()
            self._take_kernels()
            return forecasts

    def predict_many(self, scores: npt.ArrayLike) -> Vector:
        """Forecast many scores from the present state: no receipts, nothing learnt, nothing changed.

        >>> from calibeat import Calibrator, OPS
        >>> Calibrator(OPS).predict_many([0.1, 0.9]).round(12)
        array([0.1, 0.9])
        """
        probabilities = check_scores(scores)
        check_lengths(scores=len(probabilities))
        forecasts = np.empty(len(probabilities))
        with self._lock:
            self._refresh()
            draws = self._draws(len(probabilities))
            row = self._view().copy()
            stream = self._method.spec, row, len(row), row, loops.NO_SLOTS
            loop = for_batch(loops.predict_many, self._method, len(probabilities))
            loop(*stream, probabilities, draws, forecasts, self._scratch(1))
        return like(scores, forecasts)

    def _scratch(self, count: int) -> Vector:
        return np.empty(count * self._method.receipt_width)

    def _draws(self, count: int) -> Vector:
        return uniforms(self._key, self._events, count) if self._hedges else np.empty(0)

    # ---- state ----------------------------------------------------------------------------------------------------

    def to_json(self) -> str:
        """The whole state as text: versioned, checksummed, every float exact.

        >>> from calibeat import Calibrator, TOPS
        >>> cal = Calibrator(TOPS)
        >>> p = cal.run([0.3, 0.6], [0, 1])
        >>> twin = Calibrator.from_json(cal.to_json())
        >>> float(twin.predict(0.6)) == float(cal.predict(0.6))
        True
        """
        with self._lock:
            self._refresh()
            try:
                self._asked[kernel.SHUT] = 1.0
                state = {
                    "method": self._method.to_dict(),
                    "seed": self._seed,
                    "stream": self._stream,
                    "events": self._events,
                    "row": self._row.tolist(),
                    "history": self._history.remembered(self.outcomes),
                    **self._receipts.dump(self._events),
                }
            finally:
                self._asked[kernel.SHUT] = 0.0
        return snapshot.dump(state)

    @classmethod
    def from_json(cls, text: str | bytes) -> Calibrator:
        """Continue from `to_json`. Damaged, foreign or newer text is a `SnapshotMismatch` that says what is wrong."""
        state = snapshot.load(text)
        try:
            calibrator = cls(state["method"], state["seed"], state["stream"])
            calibrator._row[:] = array("d", state["row"])
            calibrator._events, outcomes = state["events"], calibrator.outcomes
            calibrator._history.restore(outcomes, state["history"])
            name = calibrator._receipts.issuer.name
            calibrator._receipts = Receipts.load(calibrator._method, name, state, calibrator._events, outcomes)
            calibrator._signature = ""  # a new life, which gets its own with its first forecast
        except InvalidInput as error:
            raise SnapshotMismatch(f"snapshot must hold what a calibrator can hold: {error}") from error
        return calibrator

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies, also those of other processes, are made of the snapshot."""
        return Calibrator.from_json, (self.to_json(),)

    # ---- inner ----------------------------------------------------------------------------------------------------

    def _sign(self) -> str:
        """The signature of a life that begins with this forecast."""
        self._signature = self._receipts.issuer.sign()
        return self._signature

    def _take_kernels(self) -> None:
        """Single events run as plain Python, or by the compiled kernels if those are in memory: the same bits.

        Each attribute is set in one step, with arrays that fit its kernels.
        """
        predict_one, settle_one, predict, update = single_kernels()
        self._is_plain, width = predict is kernel.predict, len(self._receipt)
        spec, row, asked, receipt = self._spec, self._row, self._asked, self._receipt
        if not self._is_plain:  # pragma: no cover - the leg that measures coverage has the JIT off
            receipt = np.frombuffer(self._receipt) if width else np.empty(0)
            spec, row, asked = self._method.spec, self._view(), np.frombuffer(self._asked)
        lanes_of = Struct(f"{width}d").unpack if width else None
        self._others = predict, update, spec, row, receipt
        alone = self._is_plain or self._hedges or not _ONE_AT_A_TIME
        self._settling = None if self._is_plain or self._keeps else (settle_one, spec, row, asked, receipt)
        self._asking = predict_one, spec, row, asked, receipt, lanes_of, alone

    def _after_learning(self) -> None:
        if not self._keeps:
            return
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
