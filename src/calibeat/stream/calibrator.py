"""The host of one stream: it keeps the row, the history where a refit needs one, and checks what comes in."""

from __future__ import annotations

import logging
from array import array
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
from calibeat.core.receipt import LANE
from calibeat.errors import InvalidInput, OutcomeConflict, SnapshotMismatch

from . import snapshot
from .beliefs import Beliefs
from .dispatch import LOOK_EVERY, for_batch, load_single_if_cached, loaded_after, single_is_compiled
from .forecast import Forecast
from .history import History
from .issuer import Issuer, issuer_name
from .receipts import Receipts
from .settled import ZERO, Settled
from .watch import Watch, Watched

Number = int | float | np.floating[Any] | np.integer[Any]

_log = logging.getLogger("calibeat")
_new = tuple.__new__


class Calibrator(Beliefs):
    r"""Turns scores into probabilities, one stream of events, learning from every outcome.

    Parameters
    ----------
    method : a `Method`, or the name of a preset such as ``"tops"``; AUTO if not given.
    seed : for the draws of a hedging method; the same seed gives the same draws.
    stream : a name for the stream; two streams of one seed draw independently.
    monitor : a new `Monitor`, which then watches the forecasts; or several by what they watch, ``{"ours": ...,
        "raw": ..., "still": ...}``: the forecasts, the raw scores, the lane of AUTO that never moves. docs/monitor.md.

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

    def __init__(
        self, method: Method | str = AUTO, seed: int = 0, stream: int | str = 0, *, monitor: Watched = None
    ) -> None:  # fmt: skip
        if not isinstance(method, Method):
            method = method_named(method)
        # A subclass of str, such as NumPy's, has another repr, and would be another stream.
        stream = str.__str__(stream) if isinstance(stream, str) else check_whole("stream", stream, -(2**63), 2**63 - 1)
        row = array("d", method.initial_row())
        self._begin(method, check_whole("seed", seed, -(2**63), 2**63 - 1), stream, row)
        self._watch = Watch(method, monitor)

    def _begin(self, method: Method, seed: int, stream: int | str, row: Any) -> None:
        self._method, self._seed, self._stream = method, seed, stream
        self._lock = RLock()
        # What the plain kernels read fastest: a tuple of floats and an array of the array module, which NumPy can
        # look at without copying. To the type checker both are the NumPy vectors that the compiled kernels get.
        self._spec: Any = tuple(method.spec.tolist())
        self._row: Any = row
        self._latest: Forecast | None = None  # the latest forecast made here ...
        self._asked = (0.0,) * 5  # ... its features, expert and logit ...
        self._receipt: Any = array("d", bytes(8 * method.receipt_width))  # ... and what a mixture remembers of it
        self._mixes = method.receipt_width > 0
        # Single events run as plain Python, or by the compiled kernels if those are in memory: the same bits.
        self._predict, self._settle, self._update = kernel.predict, kernel.settle, kernel.update
        self._arrays: tuple[Any, Any, Any] = self._spec, self._row, self._receipt
        self._plain = True
        self._take_compiled_kernels()
        self._history = History(method)
        self._keeps = method.needs_history
        self._events = 0
        self._key = stream_key(self._seed, self._stream)
        self._hedges = method.draws
        name = issuer_name(method, seed, stream)
        self._receipts = Receipts(method, Issuer(name), Settled())
        self._signature = name
        self._told_about_ball = False
        self._watch = Watch(method, None)

    # ---- one event ------------------------------------------------------------------------------------------------

    def predict(self, score: Number) -> Forecast:
        """Forecast one event. The row does not change; keep the forecast until the outcome is known.

        >>> from calibeat import Calibrator, OPS
        >>> Calibrator(OPS).predict(0.25).probability
        0.25
        """
        if type(score) is not float or not 0.0 <= score <= 1.0:
            score = check_score(score)
        with self._lock:
            signature = self._signature or self._sign()
            if self._plain and self._events % LOOK_EVERY == LOOK_EVERY - 1 and loaded_after(LOOK_EVERY):
                self._take_compiled_kernels()  # pragma: no cover - the leg that measures coverage has the JIT off
            event, (spec, row, receipt) = self._events, self._arrays
            self._latest = None
            q, cell, x0, x1, x2, p, z, b, low, high, weight = self._predict(spec, row, score, 0.0, receipt, 0)
            hedge: tuple[tuple[float, float], ...] = ()
            if low != high:  # the draw matters: only now is it worth making
                q, cell, *_ = self._predict(spec, row, score, uniform(self._key, event), receipt, 0)
                hedge = (low, weight), (high, 1.0 - weight)
            seen, lanes = int(self._row[layout.N]), tuple(self._receipt) if self._mixes else ()
            forecast = _new(Forecast, (q, score, p, b, cell, event, seen, signature, lanes, hedge))
            self._asked = x0, x1, x2, p, z
            self._latest = forecast
            self._events = event + 1
            if self._watch:
                self._watch.announce(event + 1)
            return forecast

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
            spec, row, receipt = self._arrays
            if self._mixes:
                self._latest = None  # what was remembered of it is written over
            u = uniform(self._key, self._events) if self._hedges else 0.0
            return float(self._predict(spec, row, score, u, receipt, 0)[0])

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
        with self._lock:
            n, latest = self._row[layout.N], forecast is self._latest
            if not latest:
                forecast = self._receipts.check(forecast, self._events, int(n))
            event, settled = forecast.event, self._receipts.settled
            first, marks = settled.span
            if event - first != len(marks) and self._receipts.is_repeat(event, y):
                return
            if n >= self._events:
                raise OutcomeConflict(
                    f"outcome must be of a forecast that has none yet, got one more than the {self._events} "
                    f"forecasts - at event {event}"
                )
            before = self._row[:] if self._plain else None  # plain kernels write one number after the other
            try:
                settled.settle(event, y == 1.0)
                self._learn(forecast, y, fresh=latest and forecast.seen == n)
                if self._watch:
                    self._watch.update(forecast, y)
            except BaseException:
                if before is not None:
                    self._row[:] = before
                if self._row[layout.N] == n:
                    settled.reopen(event)
                raise
            if self._keeps:
                self._after_learning()

    def _learn(self, forecast: Forecast, y: float, *, fresh: bool) -> None:
        """Move the row. Nothing was learnt since a fresh forecast: what it was made from still holds."""
        spec, row, receipt = self._arrays
        if not fresh:
            self._latest = None
            self._receipt[:] = array("d", forecast.lanes)
        if self._keeps:
            self._history.reserve(self.outcomes, 1)
            late = forecast.score, forecast.cell, y, receipt, 0
            if self._update(spec, row, float(self._events), *late, *self._history.columns):
                self._history.refit(self._view(), plain if self._plain else None)
            return
        x0, x1, x2, p, z = self._asked if fresh else kernel.ask_again(self._spec, self._row, forecast.score)
        self._settle(spec, row, float(self._events), x0, x1, x2, p, z, forecast.cell, y, receipt, 0)

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
            receipts, events, before = self._receipts, self._events, self._view().copy()
            row, settled = before.copy(), receipts.settled
            history = self._history
            history.reserve(int(row[layout.N]), len(scores))
            forecasts = np.empty(len(scores))
            one_stream = self._method.spec, row, len(row), loops.NO_SLOTS, 0, 1, 0, float(events)
            batch = scores, outcomes, self._draws(len(scores)), forecasts, self._scratch(len(scores) if late else 1)
            play, place = for_batch(loop, self._method, len(scores)), loops.place_before()
            still, width = self._watch.room(len(scores)), self._method.receipt_width if late else 0
            for stop in range(1, end + 1) if len(still) else (end,):
                while play(*one_stream, *batch, *history.columns, place, stop, *late):
                    history.refit(row)
                if stop <= len(still):  # noted now: a late outcome writes over what the lanes said
                    still[stop - 1] = batch[-1][(stop - 1) * width + LANE]
            marks = (outcomes + ZERO).astype(np.uint8)
            if late:
                marks[np.setdiff1d(np.arange(len(scores)), late[-1])] = 0
            after = settled.after(events, marks)
            try:
                self._view()[:] = row
                self._events = events + len(scores)
                receipts.settled = after
            except BaseException:
                self._view()[:] = before
                self._events, receipts.settled = events, settled
                raise
            if self._watch:
                self._watch.run(events, scores, forecasts, outcomes, still, late[-2] if late else None, end)
            self._after_learning()
            load_single_if_cached()
            self._take_compiled_kernels()
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
            stream = self._method.spec, self._view(), self._method.width, self._view(), loops.NO_SLOTS
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
            state = {
                "method": self._method.to_dict(),
                "seed": self._seed,
                "stream": self._stream,
                "events": self._events,
                "row": self._row.tolist(),
                "history": self._history.remembered(self.outcomes),
                **self._receipts.dump(self._events),
                **self._watch.dump(),
            }
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
            calibrator._watch = Watch.load(calibrator._method, state.get("monitors", {}), calibrator._events)
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

    def _take_compiled_kernels(self) -> None:
        if single_is_compiled():  # pragma: no cover - the leg that measures coverage has the JIT off
            self._predict, self._settle = compiled(kernel.predict), compiled(kernel.settle)
            self._update = compiled(kernel.update)
            self._plain = False
            self._arrays = self._method.spec, self._view(), np.frombuffer(self._receipt) if self._mixes else np.empty(0)

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
