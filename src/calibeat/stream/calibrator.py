"""The host of one stream: it keeps the row, the history where a refit needs one, and checks what comes in."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
import numpy.typing as npt

from calibeat._util import forks
from calibeat._util.check import check_lengths, check_outcomes, check_scores, check_whole
from calibeat._util.columns import like
from calibeat._util.types import Vector
from calibeat.core import layout, loops
from calibeat.core.kernel import LATEST, NEXT, SHUT
from calibeat.core.method import AUTO, Method, method_named
from calibeat.core.randomness import uniforms
from calibeat.core.receipt import LANE
from calibeat.errors import InvalidInput, SnapshotMismatch
from calibeat.late import due_of

from . import snapshot
from .dispatch import for_batch, load_single_if_cached, single_is_compiled
from .receipts import Receipts
from .settled import ZERO, Settled
from .single import Number, SingleEvents
from .watch import Watch, Watched

__all__ = ["Calibrator", "Number"]


class Calibrator(SingleEvents):
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
    ) -> None:
        if not isinstance(method, Method):
            method = method_named(method)
        # A subclass of str, such as NumPy's, has another repr, and would be another stream.
        stream = str.__str__(stream) if isinstance(stream, str) else check_whole("stream", stream, -(2**63), 2**63 - 1)
        row = array("d", method.initial_row())
        self._begin(method, check_whole("seed", seed, -(2**63), 2**63 - 1), stream, row)
        self._set_watch(Watch(method, monitor))
        forks.register(self)

    def _forked(self) -> None:
        """In a child process: the short way is shut until the first call has begun a new life."""
        self._is_forked, self._asked[SHUT] = True, 1.0

    # ---- many events ----------------------------------------------------------------------------------------------

    def run(
        self,
        scores: npt.ArrayLike,
        outcomes: npt.ArrayLike,
        *,
        due: npt.ArrayLike | None = None,
        mature: Any = None,
        times: Any = None,
        finish: bool = False,
    ) -> Vector:
        """Predict and then update, event after event; the same bits as doing so one by one.

        Parameters
        ----------
        scores : probabilities in [0, 1].
        outcomes : 0 or 1 (False or True).
        due : for late outcomes. Outcome i is learnt just before prediction ``due[i]`` (> i), in order of (due, i);
            one that is due at ``len(scores)`` or later never arrives, and its place in `outcomes` may hold anything.
        mature : the age at which an outcome is learnt, ones and zeros alike: so many further forecasts, or a time
            such as ``"30min"`` or a timedelta, with `times`. An outcome that is due later is learnt when it is due.
            Until the first outcome is learnt the forecasts are the raw scores. See docs/late-outcomes.md.
        times : when each score was issued, in order, where `mature` is a time.
        finish : outcomes that are due later are learnt at the end, after the last prediction.

        Returns the forecasts, as a column if the scores are one. If something is wrong with one event, none is taken.

        >>> from calibeat import Calibrator, OPS
        >>> Calibrator(OPS).run([0.5, 0.5, 0.5], [1, 1, 1], due=[2, 3, 3]).round(4)
        array([0.5   , 0.5   , 0.5125])
        >>> Calibrator("hops").run([0.5, 0.6, 0.7], [1, 1, 1], mature=1).round(4)    # raw until an outcome has matured
        array([0.5 , 0.6 , 0.75])
        """
        probabilities = check_scores(scores)
        n = len(probabilities)
        at_once = due is None and mature is None and times is None
        arrivals = None if at_once else due_of(n, due, mature, times)
        if arrivals is None:
            labels = check_outcomes(outcomes)
            check_lengths(scores=n, outcomes=len(labels))
            forecasts = self._run(loops.run, n, probabilities, labels)
            return forecasts if type(scores) is np.ndarray else like(scores, forecasts)
        if finish:
            arrivals = np.minimum(arrivals, n)
        last = n if finish else n - 1
        labels = check_outcomes(outcomes, needed=arrivals <= last)
        check_lengths(scores=n, outcomes=len(labels))
        order = np.argsort(arrivals, kind="stable")
        order = order[: np.searchsorted(arrivals[order], last, side="right")]
        late = 0, np.empty(n, dtype=np.int64), arrivals, order, int(mature is not None)
        return like(scores, self._run(loops.run_late, last + 1, probabilities, labels, *late))

    def _run(self, loop: Any, end: int, scores: Vector, outcomes: Vector, *late: Any) -> Vector:
        """Work on a copy of the row: if anything breaks off the loop, nothing has happened."""
        with self._lock:
            self._refresh()
            receipts, asked, owed = self._receipts, self._asked, None
            try:
                asked[SHUT] = 1.0
                events, row = self._events, self._view().copy()
                forecasts, still = self._play(loop, end, row, scores, outcomes, late)
                settled, old = self._settled_after(events, outcomes, late, end), receipts.settled.span[1]
                after, count = array("d", row.tobytes()), events + len(scores)
                if self._is_watched:
                    owed = self._watch.run, events, scores, forecasts, outcomes, still, late[-3] if late else None, end
                # One line, without a call: an interrupt comes before all of it or after all of it.
                self._row[:], asked[NEXT], asked[LATEST], receipts.settled, old[-1], self._owed = (
                    after, count, -1.0, settled, 1, owed,
                )  # fmt: skip
                self._recover()
            finally:
                asked[SHUT] = self._is_forked
            if self._keeps:
                self._after_learning()
            load_single_if_cached()
            if self._is_plain and single_is_compiled():  # pragma: no cover - one leg has no JIT, the other a cache
                self._take_kernels()
            return forecasts

    def _settled_after(self, events: int, outcomes: Vector, late: tuple[Any, ...], end: int) -> Settled:
        """Which events are settled after a batch; an outcome that is not due before `end` leaves its event open."""
        if not late:
            return self._receipts.settled.after_all(events, outcomes)
        marks = outcomes.astype(np.uint8)
        marks += ZERO
        marks *= late[2] < end
        return self._receipts.settled.after(events, marks)

    def _play(
        self, loop: Any, end: int, row: Vector, scores: Vector, outcomes: Vector, late: tuple[Any, ...]
    ) -> tuple[Vector, Vector]:
        """Let the loop move this row -> the forecasts, and what the still lane says of each event if it is watched."""
        method, history, forecasts = self._method, self._history, np.empty(len(scores))
        if self._keeps:
            history.reserve(int(row[layout.N]), len(scores))
        one_stream = method.spec, row, len(row), loops.NO_SLOTS, 0, 1, 0, float(self._events)
        held = loops.receipts_under_way(late[2], late[3], len(scores)) if late and self._width else 1
        batch = scores, outcomes, self._draws(len(scores)), forecasts, self._scratch(held)
        play, place = for_batch(loop, method, len(scores)), loops.place_before()
        still = self._watch.room(len(scores)) if self._is_watched else loops.NO_LANE
        for stop in range(1, end + 1) if len(still) else (end,):
            while play(*one_stream, *batch, *history.columns, place, stop, *late):
                history.refit(row)
            if stop <= len(still):  # noted now: a late outcome writes over what the lanes said
                still[stop - 1] = batch[-1][(stop - 1) % held * (self._width if late else 0) + LANE]
        return forecasts, still

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
        return np.empty(count * self._width)

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
                self._asked[SHUT] = 1.0
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
            finally:
                self._asked[SHUT] = self._is_forked
        return snapshot.dump(state)

    @classmethod
    def from_json(cls, text: str | bytes) -> Calibrator:
        """Continue from `to_json`. Damaged or foreign text is a `SnapshotMismatch` that says what is wrong."""
        state = snapshot.load(text)
        try:
            calibrator = cls(state["method"], state["seed"], state["stream"])
            calibrator._row[:] = array("d", state["row"])
            calibrator._events, outcomes = state["events"], calibrator.outcomes
            calibrator._history.restore(outcomes, state["history"])
            name = calibrator._receipts.issuer.name
            calibrator._receipts = Receipts.load(calibrator._method, name, state, calibrator._events, outcomes)
            calibrator._signature = ""  # a new life, which gets its own with its first forecast
            calibrator._set_watch(Watch.load(calibrator._method, state["monitors"], calibrator._events))
        except InvalidInput as error:
            raise SnapshotMismatch(f"snapshot must hold what a calibrator can hold: {error}") from error
        return calibrator

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies, also those of other processes, are made of the snapshot."""
        return Calibrator.from_json, (self.to_json(),)
