"""The host of one stream: it keeps the row, the history where a refit needs one, and checks what comes in."""

from __future__ import annotations

import logging
import math
from array import array
from typing import Any

import numpy as np
import numpy.typing as npt

from calibeat._util.check import (
    check_due,
    check_interval,
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
from calibeat.core.params import on_the_ball, params_of
from calibeat.core.presets import AUTO, method_named, name_of
from calibeat.core.randomness import stream_key, uniform, uniforms
from calibeat.errors import InvalidInput, OutcomeConflict, SnapshotMismatch, UnknownForecast
from calibeat.export.frozen import Export, frozen_map

from . import snapshot
from .dispatch import load_single_if_cached, single_is_compiled
from .forecast import Forecast, Issuer
from .history import History

Number = int | float | np.floating[Any] | np.integer[Any]

_log = logging.getLogger("calibeat")
_new = tuple.__new__


class Calibrator:
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

    A calibrator is not for two threads at once; give each stream its own.
    """

    def __init__(self, method: Method | str = AUTO, seed: int = 0, stream: int | str = 0) -> None:
        if not isinstance(method, Method):
            method = method_named(method)
        stream = stream if isinstance(stream, str) else check_whole("stream", stream, -(2**63), 2**63 - 1)
        row = array("d", method.initial_row())
        self._begin(method, check_whole("seed", seed, -(2**63), 2**63 - 1), stream, row)

    def _begin(self, method: Method, seed: int, stream: int | str, row: Any) -> None:
        self._method, self._seed, self._stream = method, seed, stream
        # What the plain kernels read fastest: a tuple of floats and an array of the array module, which NumPy can
        # look at without copying. To the type checker both are the NumPy vectors that the compiled kernels get.
        self._spec: Any = tuple(method.spec.tolist())
        self._row: Any = row
        self._last_event = -1  # the latest forecast made here, and its features, expert and logit
        self._last = (0.0,) * 5
        self._receipt: Any = array("d", bytes(8 * method.receipt_width))  # and what a mixture remembers of it
        self._mixes = method.receipt_width > 0
        # Single events run as plain Python, or by the compiled kernels if those are in memory: the same bits.
        self._predict, self._settle, self._update = kernel.predict, kernel.settle, kernel.update
        self._hand: tuple[Any, Any, Any] = self._spec, self._row, self._receipt
        self._take_compiled_kernels()
        self._history = History(method)
        self._keeps = method.needs_history
        self._events = 0
        self._key = stream_key(self._seed, self._stream)
        self._hedges = method.draws
        self._issuer = Issuer(f"{stream_key(self._key, repr(method)):016x}")
        self._adopted = 0  # receipts below this number may come from the calibrator that this one continues
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
        event, (spec, row, receipt) = self._events, self._hand
        q, cell, x0, x1, x2, p, z, b, low, high, weight = self._predict(spec, row, score, 0.0, receipt, 0)
        if low == high:
            candidates: tuple[tuple[float, float], ...] = ((q, 1.0),)
        else:  # the draw matters: only now is it worth making
            q, cell, *_ = self._predict(spec, row, score, uniform(self._key, event), receipt, 0)
            candidates = (low, weight), (high, 1.0 - weight)
        self._events = event + 1
        self._last_event = event
        self._last = x0, x1, x2, p, z
        seen, lanes = int(self._row[layout.N]), tuple(self._receipt) if self._mixes else ()
        return _new(Forecast, (q, score, p, b, candidates, event, seen, cell, self._issuer, lanes))

    def update(self, forecast: Forecast, outcome: Number | np.bool_) -> None:
        """Learn the outcome of a forecast, now or any time later, in any order.

        The same outcome a second time changes nothing; another one is an `OutcomeConflict`. A receipt that came
        back as JSON is a new object each time: who sends those has to see to it that each is sent once (more
        outcomes than forecasts are noticed all the same).

        >>> from calibeat import Calibrator, OPS
        >>> cal = Calibrator(OPS)
        >>> first, second = cal.predict(0.9), cal.predict(0.4)
        >>> cal.update(second, 0)
        >>> cal.update(first, 1)
        """
        if type(forecast) is not Forecast:
            raise InvalidInput(f"forecast must be a Forecast made by predict, got {type(forecast).__name__}")
        y = float(outcome) if type(outcome) is int and 0 <= outcome <= 1 else check_outcome(outcome)
        if forecast.issuer is not self._issuer:
            self._check_receipt(forecast)
        if forecast._learnt and self._has_learnt(forecast, y):
            return
        events = self._events
        n = self._row[layout.N]
        if n >= events:
            raise OutcomeConflict(
                f"outcome must be of a forecast that has none yet, got one more than the {events} forecasts - "
                f"at event {forecast.event}"
            )
        if self._keeps:
            self._update_and_remember(forecast, y)
        else:
            if forecast.event == self._last_event and forecast.seen == n and forecast.issuer is self._issuer:
                # Nothing was learnt since: what the forecast was made from still holds, and is at hand.
                x0, x1, x2, p, z = self._last
            else:
                x0, x1, x2, p, z = kernel.ask_again(self._spec, self._row, forecast.score)
                self._receipt[:] = array("d", forecast.lanes)
            spec, row, receipt = self._hand
            self._settle(spec, row, float(events), x0, x1, x2, p, z, forecast.cell, y, receipt, 0)
        forecast._learnt += ((self._issuer, y),)

    # ---- many events ----------------------------------------------------------------------------------------------

    def run(self, scores: npt.ArrayLike, outcomes: npt.ArrayLike, *, due: npt.ArrayLike | None = None) -> Vector:
        """Predict and then update, event after event; the same bits as doing so one by one.

        Parameters
        ----------
        scores : probabilities in [0, 1].
        outcomes : 0 or 1 (False or True).
        due : for late outcomes. Outcome i is learnt just before prediction ``due[i]`` (> i), in order of (due, i);
            one that is due at ``len(scores)`` or later never arrives, and its place in `outcomes` may hold anything.

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
            return like(scores, self._run(loops.run, probabilities, labels))
        arrivals = check_due(due, n) if n else np.empty(0, dtype=np.int64)
        labels = check_outcomes(outcomes, needed=arrivals < n)
        check_lengths(scores=n, outcomes=len(labels))
        order = np.argsort(arrivals, kind="stable")
        order = order[: np.searchsorted(arrivals[order], n)]
        played = np.empty(n, dtype=np.int64)
        return like(scores, self._run(loops.run_late, probabilities, labels, 0, played, arrivals, order))

    def _run(self, loop: Any, scores: Vector, outcomes: Vector, *late: Any) -> Vector:
        row = np.array(self._row)  # a copy: if anything breaks off the loop, nothing has happened
        history = self._history
        history.reserve(int(row[layout.N]), len(scores))
        forecasts = np.empty(len(scores))
        events, one_stream = len(scores), (row, len(row), loops.NO_SLOTS, 0, 1, 0)
        play, place = compiled(loop), loops.place_before()
        batch = scores, outcomes, self._draws(events), forecasts, self._receipts(events if late else 1)
        while play(self._method.spec, *one_stream, float(self._events), *batch, *history.columns, place, events, *late):
            history.refit(row)
        self._view()[:] = row
        self._events += len(scores)
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
        self._refresh()
        forecasts = np.empty(len(probabilities))
        draws = self._draws(len(probabilities))
        row = self._view()
        compiled(loops.predict_many)(
            self._method.spec, row, len(row), row, loops.NO_SLOTS, probabilities, draws, forecasts, self._receipts(1)
        )
        return like(scores, forecasts)

    def _receipts(self, count: int) -> Vector:
        return np.empty(count * self._method.receipt_width)

    def _draws(self, count: int) -> Vector:
        return uniforms(self._key, self._events, count) if self._hedges else np.empty(0)

    # ---- what it believes -----------------------------------------------------------------------------------------

    @property
    def method(self) -> Method:
        """The three parts."""
        return self._method

    @property
    def events(self) -> int:
        """How many forecasts were made."""
        self._refresh()
        return self._events

    @property
    def outcomes(self) -> int:
        """How many outcomes were learnt."""
        self._refresh()
        return int(self._row[layout.N])

    @property
    def params(self) -> dict[str, Any]:
        """The parameters by their names in the paper; for a histogram its edges and means.

        For `Lanes`, with x = logit f and g = log f + log(1 - f) + log 4: slope a of x, bend c of g and offset b, as
        means over the lanes with their weights (the raw score counts as (1, 0, 0), the paper's OPS as (a, 0, b)), and
        under ``"lanes"`` the weights themselves, which say how fast the world moves.

        >>> from calibeat import Calibrator, OBS
        >>> Calibrator().params["lanes"]["slow"] == 1 / 6
        True

        AIOLI's parameters depend on the score at hand; shown is the part that does not, -Q^-1 c.

        >>> Calibrator(OBS).params
        {'a': 1.0, 'b': -1.0, 'c': 0.0}
        """
        self._refresh()
        return params_of(self._method, self._row)

    @property
    def on_the_ball(self) -> bool:
        """Whether the parameters lie on the ball that bounds them: separable data, or a radius that is too small."""
        self._refresh()
        return on_the_ball(self._method, self._row)

    @property
    def evidence(self) -> float:
        """Log likelihood ratio of the forecasts against the raw scores, over the outcomes learnt so far, in nats.

        Positive: the forecasts have served better. If the scores were the true probabilities, exp(evidence) would be
        a supermartingale that starts at 1 and would ever reach 1/alpha with probability at most alpha: an e-value,
        valid at any time. (Beyond the clip of the features the score or the clip counts, whichever did better, and
        forecasts count as if they stayed in [1e-7, 1 - 1e-7].) When outcomes are late, this wants that neither their
        delay nor later scores depend on outcomes still under way. Kept by methods with `Lanes` or a `Spline`.

        >>> from calibeat import Calibrator
        >>> cal = Calibrator()
        >>> p = cal.run([0.8] * 40, [1, 0] * 20)
        >>> round(cal.evidence, 2), cal.alarm(), cal.alarm(alpha=0.001)
        (6.33, True, False)

        References: Ville (1939); Shafer, Shen, Vereshchagin & Vovk (2011).
        """
        if not self._method.mixes:
            raise InvalidInput(
                "evidence must be kept by a method with Lanes or a Spline, such as AUTO, "
                f"got {name_of(self._method) or self._method}"
            )
        self._refresh()
        at = int(self._spec[layout.EVIDENCE])
        return float(self._row[at] + math.log(self._row[at + 1]))

    def alarm(self, alpha: float = 0.05) -> bool:
        """Whether the evidence now speaks against "the raw score is calibrated" at level alpha.

        Look as often as you like: if the raw score is calibrated, the probability that it is ever True is at most
        alpha (Ville's inequality; for late outcomes under the condition of `evidence`). It may turn False again, when
        a score that was wrong has become right.
        """
        return self.evidence >= -math.log(check_interval("alpha", alpha, 1e-300, 1.0))

    @property
    def row(self) -> Vector:
        """The state of the stream: [t, n, theta..., matrix..., cells..., evidence], a read-only view."""
        self._refresh()
        return np.frombuffer(memoryview(self._row).toreadonly())

    def export(self) -> Export:
        """The present map from score to forecast, frozen: as numbers and as Python, SQL, JSON or ONNX. See `Export`."""
        return frozen_map(self)

    def _view(self) -> Vector:
        return np.frombuffer(self._row)

    def __repr__(self) -> str:
        name = name_of(self._method)
        self._refresh()
        return f"Calibrator({name.upper() if name else self._method}, events={self._events}, outcomes={self.outcomes})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies, also those of other processes, are made of the snapshot."""
        return Calibrator.from_json, (self.to_json(),)

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
        self._refresh()
        return snapshot.dump({
            "method": self._method.to_dict(),
            "seed": self._seed,
            "stream": self._stream,
            "events": self._events,
            "row": self._row.tolist(),
            "history": self._history.remembered(self.outcomes),
        })  # fmt: skip

    @classmethod
    def from_json(cls, text: str | bytes) -> Calibrator:
        """Continue from `to_json`. Damaged, foreign or newer text is a `SnapshotMismatch` that says what is wrong."""
        state = snapshot.load(text)
        try:
            calibrator = cls(state["method"], state["seed"], state["stream"])
            calibrator._row[:] = array("d", state["row"])
            calibrator._events = calibrator._adopted = state["events"]
            calibrator._history.restore(calibrator.outcomes, state["history"])
        except InvalidInput as error:
            raise SnapshotMismatch(f"snapshot must hold what a calibrator can hold: {error}") from error
        return calibrator

    # ---- inner ----------------------------------------------------------------------------------------------------

    def _check_receipt(self, forecast: Forecast) -> None:
        """Raise unless the receipt is ours after all: it travelled, or we continue from the one who issued it."""
        if forecast.issuer != self._issuer:
            raise UnknownForecast(
                "forecast must come from this calibrator, got one that was made by another method, seed or stream - "
                f"at event {forecast.event}"
            )
        if not 0 <= forecast.event < self._events:
            raise UnknownForecast(
                f"forecast must be one of the {self._events} that this calibrator has made, got event {forecast.event}"
            )
        check_whole("forecast seen", forecast.seen, 0, self.outcomes)
        if not forecast._remembers(self._method):
            raise InvalidInput(
                f"forecast must remember the {len(self._receipt)} numbers of its mixture as they were issued, "
                f"got {forecast.lanes!r:.60} - at event {forecast.event}"
            )
        alive, own = isinstance(forecast.issuer, Issuer), forecast.issuer is self._issuer
        if alive and not own and forecast.event >= self._adopted:
            raise UnknownForecast(
                f"forecast must come from this calibrator, got one that its twin has made - at event {forecast.event}"
            )
        check_score(forecast.score)
        check_interval("forecast probability", forecast.probability, 0.0, 1.0)
        if self._method.cells:  # a cell that was damaged on the way must not reach the row
            check_whole("forecast cell", forecast.cell, 0, self._method.cells - 1)

    def _refresh(self) -> None:
        """Nothing to do for a stream with a row of its own; the member of a bank looks where its row is now."""

    def _take_compiled_kernels(self) -> None:
        if single_is_compiled():  # pragma: no cover - the leg that measures coverage has the JIT off
            self._predict, self._settle = compiled(kernel.predict), compiled(kernel.settle)
            self._update = compiled(kernel.update)
            self._hand = self._method.spec, self._view(), np.frombuffer(self._receipt) if self._mixes else np.empty(0)

    def _update_and_remember(self, forecast: Forecast, y: float) -> None:
        """`update` for a learner that refits."""
        spec, row, receipt = self._hand
        self._history.reserve(self.outcomes, 1)
        self._receipt[:] = array("d", forecast.lanes)
        late = forecast.score, forecast.cell, y, receipt, 0
        if self._update(spec, row, float(self._events), *late, *self._history.columns):
            self._history.refit(self._view(), compiled if single_is_compiled() else plain)
        self._after_learning()

    def _has_learnt(self, forecast: Forecast, y: float) -> bool:
        """Whether this calibrator, and not one that it was copied from, has learnt the outcome; raise if another."""
        for issuer, known in forecast._learnt:
            if issuer is self._issuer:
                if known != y:
                    raise OutcomeConflict(
                        f"outcome must be the one already learnt, {known:.0f}, got {y:.0f} - at event {forecast.event}"
                    )
                return True
        return False

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
