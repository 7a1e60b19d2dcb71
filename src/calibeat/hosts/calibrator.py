"""The host of one stream: `Calibrator` keeps the row and the ledger, and checks what comes in.

`Stream` (`_stream.pxi`) serves single events: a forecast is one call into machine code, and so is the outcome of a
forecast of its own. Such a call holds the interpreter's lock, so no other thread and no signal interrupts it, and no
lock is needed. Everything that takes several steps (monitors, refits, receipts that have travelled, batches, snapshots)
takes the calibrator's lock, and closes the fast path while it is at work.

What takes several steps takes effect in one of them, a call into machine code (`_forecast`, `_settle`, `_take_batch`):
an interrupt, or a fork, comes before all of it or after all of it.
What the monitors must be told of it is kept in `_owed` until they know. After an interrupt the next call tells them.

Where there are groups, a batch changes their cells in place. `GroupTable` remembers what they held until `_take_batch`,
and what was broken off before is undone, at once or by the next call that looks at cells.
"""

from __future__ import annotations

import logging
import math
from array import array
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self

import numpy as np
import numpy.typing as npt

from calibeat._compiled import Stream
from calibeat._util import processes
from calibeat._util.check import (
    check_lengths,
    check_numbers,
    check_outcomes,
    check_score,
    check_scores,
    check_whole,
    shown,
)
from calibeat._util.columns import like
from calibeat._util.processes import new_lock
from calibeat._util.sealed import seal, unseal
from calibeat._util.types import Ints, UpdateStatus, Vector
from calibeat.core import kernel, loops
from calibeat.core.algebra import ln
from calibeat.core.groups import NO_CELLS
from calibeat.core.layout import N
from calibeat.core.limits import check_row
from calibeat.core.method import AUTO, Method, method_named, name_of, on_the_ball, params_of
from calibeat.core.randomness import stream_key, uniforms
from calibeat.core.receipt import receipt_of, watched_columns, watched_event
from calibeat.core.refit import Refitter
from calibeat.errors import InvalidInput, OutcomeConflict, SnapshotMismatch
from calibeat.export import Export, frozen_map
from calibeat.late import in_order, moments_of, schedule
from calibeat.monitor.bets import RaisedAlarm
from calibeat.monitor.monitor import Monitor

from .ledger import NO_DUE, OPEN, AnyForecast, AnyMethod, Issuer, Ledger, SettledEvents, issuer_name

if TYPE_CHECKING:  # loaded by calibrators that have them
    from calibeat.monitor.notice import Notice
    from calibeat.monitor.notices import Heard

    from .groups import Groups, GroupTable, Segments

Number = int | float | np.floating[Any] | np.integer[Any]
Watched = Monitor | Mapping[str, Monitor] | None

FORMAT = 2  # of snapshots
OURS, RAW_SCORE, NOTICE = "ours", "raw", "notice"  # sources of alarms
COLUMNS = (OURS, RAW_SCORE)  # what a monitor may watch: the forecasts or the scores

ELSEWHERE = {  # names of other libraries, and what to use here
    "fit": "run(scores, outcomes), which learns a past event by event; calibeat.sklearn has estimators with fit",
    "partial_fit": "update(forecast, outcome) of one event, or run(scores, outcomes) of many",
    "predict_proba": "predict(score) of one event, or predict_many(scores)",
    "transform": "predict_many(scores), or calibeat.sklearn.ScoreCalibrator",
    "fit_transform": "run(scores, outcomes), or calibeat.sklearn.ScoreCalibrator",
    "learn_one": "update(forecast, outcome), or calibeat.river.OnlineCalibrated",
    "save": "to_json(), the whole state as text, and from_json; a Bank has save and load",
    "load": "Calibrator.from_json(text), where text is what to_json() gave",
}


class Elsewhere:
    """A name that people look for, and that is not here: the `AttributeError` says what to use.

    One for each name, and no `__getattr__`: with that, each call of a method that is here takes 35 ns more.
    """

    def __init__(self, name: str, instead: str) -> None:
        self.name, self.instead = name, instead

    def __get__(self, host: Any, owner: type) -> NoReturn:
        whose = f"type object {owner.__name__!r}" if host is None else f"{type(host).__name__!r} object"
        raise AttributeError(f"{whose} has no attribute {self.name!r}: use {self.instead}", name=self.name, obj=host)


def tell_elsewhere(host: type, elsewhere: Mapping[str, str]) -> None:
    """Have a class say where the names are that it does not have; a type checker knows only those that it has."""
    for name, instead in elsewhere.items():
        setattr(host, name, Elsewhere(name, instead))


_log = logging.getLogger("calibeat")


# ---- its monitors --------------------------------------------------------------------------------------------------


class Watch:
    """The monitors of one stream by the column that they watch, and its notice. Forecast n is event n of the stream."""

    def __init__(self, monitor: Watched, notice: Notice | None = None) -> None:
        given: Any = {OURS: monitor} if isinstance(monitor, Monitor) else {} if monitor is None else monitor
        if not isinstance(given, Mapping) or not all(isinstance(value, Monitor) for value in given.values()):
            raise InvalidInput(f"monitor must be a Monitor or a mapping of Monitors, got {shown(monitor)}")
        for column in given:
            if column not in COLUMNS:
                raise InvalidInput(f"monitor must watch {', '.join(map(repr, COLUMNS))}, got {shown(column)}")
        if len({id(value) for value in given.values()}) < len(given):
            raise InvalidInput("monitors must be different objects, got one for two columns")
        if notice is not None:
            from calibeat.monitor.notice import Notice

            if not isinstance(notice, Notice):
                raise InvalidInput(f"notice must be a Notice, got {shown(notice)}")
        self.monitors: dict[str, Monitor] = {column: value._serve() for column, value in given.items()}
        self.notice = None if notice is None else notice._serve()

    def __bool__(self) -> bool:
        return bool(self.monitors) or self.notice is not None

    def now(self) -> float:
        """The time of an event that happens now, where it is noticed."""
        return math.nan if self.notice is None else self.notice._now()

    def moment(self) -> tuple[float, float]:
        """The time of an outcome that comes now, and how many the notice was told of before."""
        return self.now(), 0.0 if self.notice is None else self.notice._rows.told(0)

    def announce(self, events: int, score: Any) -> None:
        """So many forecasts have been made, the last one of this score."""
        for monitor in self.monitors.values():
            with monitor._lock:
                monitor._rows.catch_up(0, events)
        if self.notice is not None:
            with self.notice._lock:
                self.notice._rows.forecast(0, events - 1, self.now(), noticed_score(score))

    def update(self, forecast: Any, y: float, now: float, told: float) -> None:
        """The outcome of a forecast; like a batch it may be told twice."""
        said, came, score = watched_event(forecast, y)
        for monitor, p, s in self._columns(said, score, math.nan):
            with monitor._lock:
                monitor._rows.update(0, forecast.event, (p, came, s))
        if self.notice is not None:
            with self.notice._lock:
                self.notice._rows.outcome(0, forecast.event, now, told)

    def heard(
        self, K: int, times: Vector | None, scores: Vector, outcomes: Vector, late: loops.Late | None
    ) -> Heard | None:
        """What the notice hears of a batch; without times, that it happens now."""
        if self.notice is None or len(outcomes) == 0:
            return None
        from calibeat.monitor.notices import heard_of

        n = len(outcomes)
        issued = np.full(n, self.now()) if times is None else times
        batch = np.zeros(n, dtype=np.int32), issued, noticed_scores(K, scores), outcomes
        return heard_of(*batch) if late is None else heard_of(*batch, late.due, late.order)

    def run(
        self,
        events: int,
        forecasts: Vector,
        outcomes: Vector,
        scores: Vector,
        due: Ints | None,
        end: int,
        heard: Heard | None,
    ) -> None:
        """A batch after so many events; of late outcomes those that are due at `end` or after it never come.

        Like `announce` and `update` it may be called again: a monitor that knows of it is left as it is.
        """
        due = None if due is None else np.where(due < end, due, len(scores) + 1)
        for monitor, p, s in self._columns(forecasts, scores, np.full(len(scores), np.nan)):
            with monitor._lock:
                monitor._rows.catch_up(0, events)
                if monitor._rows.queue(0).announced == events:
                    monitor._rows.run(0, p, outcomes, s, due, closed=True)
        if self.notice is not None and heard is not None:
            with self.notice._lock:
                self.notice._rows.run(0, events, heard)

    def new_alarms(self) -> list[RaisedAlarm]:
        """The alarms raised since the last call, with their source: those of each monitor, then those of the notice."""
        watchers: dict[str, Any] = self.monitors if self.notice is None else {**self.monitors, NOTICE: self.notice}
        found = []
        for source, watcher in watchers.items():
            with watcher._lock:
                found += [RaisedAlarm.of(alarm, source) for _, alarm in watcher._rows.new_alarms()]
        return found

    def _columns(self, ours: Any, raw: Any, nothing: Any) -> list[tuple[Monitor, Any, Any]]:
        """Each monitor, what it watches, and what that must beat; the raw score has no gain over itself."""
        columns = {OURS: (ours, raw), RAW_SCORE: (raw, nothing)}
        return [(monitor, *columns[column]) for column, monitor in self.monitors.items()]

    # ---- as data --------------------------------------------------------------------------------------------------

    def dump(self) -> dict[str, Any]:
        """For a snapshot."""
        notice = {} if self.notice is None else {"notice": self.notice._state()}
        return {"monitors": {column: monitor._state() for column, monitor in self.monitors.items()}, **notice}

    @classmethod
    def load(cls, data: Any, notice: Any, events: int) -> Watch:
        """The inverse of `dump`, for a stream that has made so many forecasts."""
        if not isinstance(data, dict):
            raise InvalidInput(f"monitors must be an object, got {shown(data)}")
        watch = cls({column: Monitor() for column in data})
        watch.monitors = {column: Monitor._restored(state) for column, state in data.items()}
        for monitor in watch.monitors.values():
            if monitor.waiting.forecasts > events:
                raise InvalidInput(f"monitors must have at most {events} forecasts, got {monitor.waiting.forecasts}")
            monitor._hosted = True
        if notice is not None:
            from calibeat.monitor.notice import Notice

            watch.notice = Notice._restored(notice)
            if watch.notice.forecasts != events:
                raise InvalidInput(f"notice must know of {events} forecasts, got {watch.notice.forecasts}")
            watch.notice._hosted = True
        return watch


def noticed_score(score: Any) -> float:
    """What a notice hears of a score: of many classes the largest."""
    return score if isinstance(score, float) else float(score.max())


def noticed_scores(K: int, scores: Vector) -> Vector:
    """The same of a batch."""
    return scores if K == 1 else scores.reshape(-1, K).max(axis=1)


def issue_times(times: Any, events: int) -> Vector | None:
    """When each score was issued, in seconds since 1970; None if nobody says."""
    if times is None:
        return None
    from calibeat.monitor.silence import check_times

    return check_times(moments_of(times, events) / 1e6)


def for_schedule(times: Any, issued: Any, mature: Any, outcome_times: Any) -> Any:
    """The times, where they say when outcomes are learnt. Others are for a notice alone."""
    return None if issued is not None and mature is None and outcome_times is None else times


# ---- the host ------------------------------------------------------------------------------------------------------


class Calibrator(Stream):
    r"""Turns scores into probabilities, one stream of events, learning from every outcome.

    Parameters
    ----------
    method : a `Method`, or the name of a preset such as ``"tops"``; AUTO if not given.
    seed : for the draws of a hedging method; the same seed gives the same draws.
    stream : a name for the stream; two streams of one seed draw independently.
    monitor : a new `Monitor`, which then watches the forecasts; or several by what they watch, ``{"ours": ...,
        "raw": ...}``: the forecasts, the raw scores. docs/monitor.md.
    notice : a new `Notice`, which then notices that nothing comes, and that the score has moved. The time of an event
        is what its clock says, or in `run` what `times` say.
    groups : names of attributes of each event, such as country and device, or a `Groups`. Forecasts then hold within
        each of their values, not only on average; methods with `Lanes` (AUTO, GAUTO).

    >>> from calibeat import Calibrator
    >>> cal = Calibrator()
    >>> f = cal.predict(0.83)        # a forecast is also a receipt
    >>> round(f.probability, 6)
    0.83
    >>> cal.update(f, 0)             # now or any time later, in any order
    'learnt'
    >>> round(float(cal.predict(0.83)), 6)
    0.670817

    Over arrays, with the same bits as the loop above, from the present state on:

    >>> p = cal.run([0.2, 0.7, 0.6], [0, 1, 1])
    >>> p.shape
    (3,)

    With groups, by name or in their order:

    >>> cal = Calibrator(groups=["country", "device"])
    >>> f = cal.predict(0.83, groups={"country": "fr", "device": "ios"})
    >>> cal.update(f, 0)
    'learnt'
    >>> p = cal.run([0.2, 0.7], [0, 1], groups={"country": ["fr", "it"], "device": ["ios", "web"]})

    A receipt that comes back twice is learnt once, and an outcome that contradicts the one learnt is an
    `OutcomeConflict`, also after a restart from `to_json`. Threads may share a calibrator: a lock makes each call
    happen as a whole, and an interrupted call has happened or has not. docs/receipts.md has the details.
    """

    _KIND: ClassVar[str] = "calibeat/calibrator"  # of snapshots, and the fields that they have
    _STATE: ClassVar[tuple[str, ...]] = (
        "method", "seed", "stream", "events", "row", "history", "settled", "generations", "monitors",
    )  # fmt: skip
    _OPTIONAL: ClassVar[tuple[str, ...]] = ("groups", "notice")
    _table: GroupTable | None = None  # of the groups

    def __init__(
        self,
        method: Method | str = AUTO,
        seed: int = 0,
        stream: int | str = 0,
        *,
        monitor: Watched = None,
        notice: Notice | None = None,
        groups: Groups | Sequence[str] | None = None,
    ) -> None:
        if not isinstance(method, Method):
            method = method_named(method)
        # A subclass of str, such as NumPy's, has another repr, and would be another stream.
        stream = str.__str__(stream) if isinstance(stream, str) else check_whole("stream", stream, -(2**63), 2**63 - 1)
        seed = check_whole("seed", seed, -(2**63), 2**63 - 1)
        if groups is None:
            self._begin(method, seed, stream, array("d", method.initial_row()), issuer_name(method, seed, stream))
        else:
            from .groups import Groups, GroupTable

            table = GroupTable(Groups.of(groups), method)
            name = issuer_name(method, seed, stream, table.groups.identity)
            self._begin(method, seed, stream, array("d", table.initial_row()), name)
            self._set_table(table)
        self._set_watch(Watch(monitor, notice))
        processes.register(self)

    def _forked(self) -> None:
        """In a child process: the fast path stays closed until the first call has begun a new generation."""
        self._is_forked = True

    def _begin(
        self,
        method: AnyMethod,
        seed: int,
        stream: int | str,
        row: Any,
        name: str,
        labels: tuple[Any, ...] | None = None,
    ) -> None:
        """Serve a row. `name` is on its receipts; `labels` are the classes, if they are not 0 and 1."""
        self._method, self._seed, self._stream = method, seed, stream
        self._lock = new_lock()
        self._key = stream_key(seed, stream)
        self._serve(method.spec, row, method.needs_history)
        self._refitter = Refitter(method) if method.needs_history else None
        self._hedges, self._width, self._numbers = method.draws, method.receipt_width, method.numbers
        self._set_watch(Watch(None))
        settled = SettledEvents(classes=2 if labels is None else len(labels))
        self._receipts = Ledger(method, Issuer(name), settled, labels=labels)
        self._begin_generation(name, self._key)
        self._warned_of_ball = False

    def _set_table(self, table: GroupTable) -> None:
        self._table, self._width = table, table.receipt_width
        self._serve_groups(table.maker, table.cells)

    def _set_watch(self, watch: Watch) -> None:
        self._watch, self._announce, self._is_watched = watch, watch.announce, bool(watch)

    # ---- what comes in, and how it goes out: `MultiCalibrator` has its own ------------------------------------------

    def _check_score(self, score: Any) -> Any:
        """The score of one event."""
        return check_score(score)

    def _check_scores(self, scores: Any) -> Vector:
        """The scores of a batch: `_numbers` for each event, one behind the other."""
        return check_scores(scores)

    def _check_outcomes(self, outcomes: Any, events: int, needed: npt.NDArray[np.bool_] | None = None) -> Vector:
        """The outcomes of so many events: the column of each label. Where none is needed there may be anything."""
        labels = check_outcomes(outcomes) if needed is None else check_outcomes(outcomes, needed=needed)
        check_lengths(scores=events, outcomes=len(labels))
        return labels

    def _check_groups(self, groups: Any, events: int) -> Ints | None:
        """The words of the groups of so many events; None where there are no groups."""
        if self._table is None or groups is None:
            self._words(groups)  # raises where there should be some, or none
            return None
        return self._table.maker.of_events(groups, events)

    def _given_back(self, scores: Any, forecasts: Vector) -> Any:
        """The forecasts in the kind of the scores."""
        return forecasts if type(scores) is np.ndarray else like(scores, forecasts)

    # ---- single events: `predict` and `update` are those of `Stream` -----------------------------------------------

    def _predict_alone(self, score: Any, words: bytes | None = None) -> Any:
        """`predict` where something else must be done first, or afterwards."""
        with self._lock:
            self._recover()
            forecast = self._forecast(score, words)
            self._recover()
            return forecast

    def peek(self, score: Any, groups: Any = None) -> Any:
        """What `predict` would say of a score, and of its groups, now. No event is made, nothing changes.

        >>> from calibeat import Calibrator, OPS
        >>> cal = Calibrator(OPS)
        >>> cal.peek(0.25), cal.events
        (0.25, 0)
        """
        score, words = self._check_score(score), self._words(groups)
        with self._lock:
            self._refresh()
            self._undo_batch()
            return self._peek(score, words)

    def _sign(self) -> str:
        """The signature of a generation that begins with this forecast."""
        with self._lock:
            self._signature = self._receipts.issuer.ensure_signature()
            return self._signature

    def _update_alone(self, forecast: AnyForecast, y: float) -> UpdateStatus:
        """`update` of any receipt, or where something else must be done before or afterwards."""
        with self._lock:
            try:
                self._is_busy = True
                self._recover()
                ledger, learnt = self._receipts, int(self._row[N])
                if not self._is_own(forecast):
                    ledger.check(forecast, self._events, learnt, self._table)
                event, settled = forecast.event, ledger.settled
                first, marks = settled.span
                has_room = 0 <= event - first < len(marks)
                if not (has_room and marks[event - first] == OPEN) and ledger.is_repeat(event, y):
                    return "repeated"
                if learnt >= self._events:  # of a bank that does not know which events `fold` has settled
                    raise OutcomeConflict(
                        f"outcome must be of a forecast that has none yet, got one more than the {self._events} "
                        f"forecasts - at event {event}"
                    )
                if not has_room:
                    settled = settled.with_room(event)
                self._take_over(forecast, y, settled)
            finally:
                self._is_busy = False
            self._after_learning()
            self._warn_of_crowd()
            return "learnt"

    def _take_over(self, forecast: Any, y: float, settled: SettledEvents) -> None:
        """Make the outcome take effect: the row, and the mark of its event."""
        owed = (self._watch.update, receipt_of(forecast), y, *self._watch.moment()) if self._is_watched else None
        row = None
        if self._refitter is not None:  # a refit may follow, so learn in a copy
            row = self._view().copy()
            outcome = float(self._events), forecast.score, forecast.cell, y, np.array(forecast.lanes)
            kernel.update(self._method.spec, row, *outcome)
            self._refitter.learn(row, forecast.score, y)
        self._settle(forecast, y, settled, owed, row)
        self._recover()

    def _after_learning(self) -> None:
        """For learners that fit their past again."""
        if self._refitter is None:
            return
        learnt = self.outcomes
        self._refitter.forget(learnt)
        learner: Any = self._method.learner
        if learnt >= learner.after and not self._warned_of_ball and self.on_the_ball:
            self._warned_of_ball = True
            _log.warning(
                "the fit ended on the ball of radius %g: the outcomes learnt so far are separable by the score, so "
                "that no finite optimum exists, or the radius is small",
                learner.radius,
            )

    def _warn_of_crowd(self) -> None:
        """Once, when the groups have forgotten many cells."""
        if self._table is not None and not self._is_crowded:
            with self._lock:
                if self._is_crowded or not self._table.is_crowded(self._row):
                    return
                sentence = self._table.warning(self._view())
                self._is_crowded = True
            _log.warning(sentence)

    # ---- many events ----------------------------------------------------------------------------------------------

    def run(
        self,
        scores: npt.ArrayLike,
        outcomes: npt.ArrayLike,
        *,
        groups: Any = None,
        due: npt.ArrayLike | None = None,
        mature: Any = None,
        times: Any = None,
        outcome_times: Any = None,
        finish: bool = False,
    ) -> Vector:
        """Predict and then update, event after event; the same bits as doing so one by one.

        Parameters
        ----------
        scores : probabilities in [0, 1].
        outcomes : 0 or 1 (False or True).
        groups : the values of the attributes, where the calibrator has groups: a dict of columns, a data frame, an
            Arrow table, or a 2-d array (events x attributes).
        due : for late outcomes. Outcome i is learnt just before prediction ``due[i]`` (> i), in order of (due, i);
            one that is due at ``len(scores)`` or later never arrives, and its place in `outcomes` may hold anything.
        mature : the age at which an outcome is learnt, ones and zeros alike: a number of forecasts, or a time
            such as ``"30min"`` or a timedelta, with `times`. An outcome that is due later is learnt when it is due.
            Until the first outcome is learnt the forecasts are the raw scores. See docs/late-outcomes.md.
        times : when each score was issued, in order, where `mature` is a time, or where there is a notice. To a notice
            an outcome comes when it is learnt; without times the whole batch happens now, by its clock.
        outcome_times : with `times`, instead of `due`: when each outcome is known; missing where it never is. It is
            learnt before the first prediction at that time or later, in the order of these times.
        finish : outcomes that are due later are learnt at the end, after the last prediction, in the order of `due`.

        Returns the forecasts, as a column if the scores are one. If something is wrong with one event, none is taken.

        >>> from calibeat import Calibrator, OPS
        >>> Calibrator(OPS).run([0.5, 0.5, 0.5], [1, 1, 1], due=[2, 3, 3]).round(4)
        array([0.5   , 0.5   , 0.5125])
        >>> Calibrator("hops").run([0.5, 0.6, 0.7], [1, 1, 1], mature=1).round(4)    # raw until an outcome has matured
        array([0.5 , 0.6 , 0.75])

        Raises
        ------
        InvalidInput : a score, an outcome, a group or a due time is impossible; the message names the first bad row.
        """
        probabilities = self._check_scores(scores)
        n = len(probabilities) // self._numbers
        issued = None if self._watch.notice is None else issue_times(times, n)
        planned = schedule(
            n, due, mature, for_schedule(times, issued, mature, outcome_times), outcome_times, finish=finish
        )
        if planned is None:
            labels, words = self._check_outcomes(outcomes, n), self._check_groups(groups, n)
            return self._given_back(scores, self._run(n, probabilities, labels, words=words, issued=issued))
        comes = planned.due <= n
        labels, words = self._check_outcomes(outcomes, n, comes), self._check_groups(groups, n)
        order = in_order(planned.due, planned.in_turn(np.flatnonzero(comes)), n)
        late = loops.Late(0, np.empty(n, dtype=np.int64), planned.due, order, int(mature is not None))
        return self._given_back(scores, self._run(n + 1, probabilities, labels, late, words, issued))

    def _run(
        self,
        end: int,
        scores: Vector,
        outcomes: Vector,
        late: loops.Late | None = None,
        words: Ints | None = None,
        issued: Vector | None = None,
    ) -> Vector:
        """Work on a copy of the row: if anything breaks off the loop, nothing has happened."""
        with self._lock:
            self._refresh()
            try:
                self._is_busy = True
                self._undo_batch()
                events, row, owed = self._events, self._view().copy(), None
                forecasts = self._play(end, row, scores, outcomes, late, words)
                settled = self._settled_after(events, outcomes, late, end)
                if self._is_watched:
                    watched = watched_columns(self._numbers, forecasts, outcomes, scores)
                    heard = self._watch.heard(self._numbers, issued, scores, outcomes, late)
                    owed = (self._watch.run, events, *watched, late and late.due, end, heard)
                self._take_batch(row, events + len(outcomes), settled, owed)
                self._recover()
            finally:
                self._undo_batch()
                self._is_busy = False
            self._after_learning()
            self._warn_of_crowd()
            return forecasts

    def _undo_batch(self) -> None:
        """Take back what a batch that was broken off has done to the cells. The caller holds the lock."""
        if self._table is not None:
            if self._has_batch:
                self._table.undo()
                self._has_batch = False
            else:
                self._table.close()

    def _settled_after(self, events: int, outcomes: Vector, late: loops.Late | None, end: int) -> SettledEvents:
        """Which events are settled after a batch; an outcome that is not due before `end` leaves its event open."""
        due = NO_DUE if late is None else late.due
        return self._receipts.settled.after(events, outcomes, due, end)

    def _play(
        self,
        end: int,
        row: Vector,
        scores: Vector,
        outcomes: Vector,
        late: loops.Late | None,
        words: Ints | None = None,
    ) -> Vector:
        """Return the forecasts of the loop, which moves this row."""
        method, refitter, n = self._method, self._refitter, len(outcomes)
        stream = loops.one_stream(row, self._events)
        held = loops.receipts_under_way(late.due, late.order, n) if late else 0
        forecasts, receipts = np.empty(len(scores)), np.empty(held * self._width)
        batch = loops.Batch(scores, outcomes, self._draws(n), forecasts, receipts, method.scratch())
        if self._table is not None and words is not None:
            self._has_batch = True
            self._table.run(stream, batch._replace(words=words), late, end)
            return forecasts
        place = loops.place_before()
        for stop in (end,) if refitter is None else refitter.stretches(row, scores, outcomes, late, end):
            for part in loops.pieces(stop, self._numbers, int(place[loops.EVENT])):
                loops.run_batch(method.spec, stream, batch, late, place, part.stop)
        return forecasts

    def predict_many(self, scores: npt.ArrayLike, groups: Any = None) -> Vector:
        """Forecast many scores from the present state: no receipts, nothing learnt, nothing changed.

        >>> from calibeat import Calibrator, OPS
        >>> Calibrator(OPS).predict_many([0.1, 0.9]).round(12)
        array([0.1, 0.9])

        Raises
        ------
        InvalidInput : a score is not a number in [0, 1], or a group is impossible; the message names the first bad row.
        """
        probabilities, K = self._check_scores(scores), self._numbers
        forecasts, n = np.empty(len(probabilities)), len(probabilities) // K
        check_lengths(scores=n)
        words = self._check_groups(groups, n)
        with self._lock:
            self._refresh()
            if self._table is not None and words is not None:
                try:
                    self._is_busy = True  # the cells must stay as they are
                    self._undo_batch()
                    self._table.predict_many(self._view(), probabilities, self._draws(n), words, forecasts)
                finally:
                    self._is_busy = False
                return self._given_back(scores, forecasts)
            draws = self._draws(n)
            row = self._view().copy()
            stream, work = loops.one_stream(row, self._events), self._method.scratch()
            for part in loops.pieces(n, K):
                numbers = slice(part.start * K, part.stop * K)
                columns = probabilities[numbers], loops.NO_NUMBERS, draws[part], forecasts[numbers]
                batch = loops.Batch(*columns, loops.NO_NUMBERS, work)
                loops.predict_many(self._method.spec, NO_CELLS, stream, row, batch)
        return self._given_back(scores, forecasts)

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
                self._is_busy = True
                self._undo_batch()
                state = {
                    **self._described(),
                    "events": self._events,
                    "row": self._row.tolist(),
                    "history": {} if self._refitter is None else self._refitter.dump(self.outcomes),
                    **self._receipts.dump(self._events),
                    **self._watch.dump(),
                    **({} if self._table is None else {"groups": self._table.to_dict()}),
                }
            finally:
                self._is_busy = False
        return seal(self._KIND, FORMAT, state)

    def _described(self) -> dict[str, Any]:
        """What a snapshot says of the calibrator itself; `_like` makes another one of it."""
        return {"method": self._method.to_dict(), "seed": self._seed, "stream": self._stream}

    @classmethod
    def _like(cls, state: dict[str, Any]) -> Self:
        return cls(cls._method_in(state), state["seed"], state["stream"], groups=cls._groups_in(state))

    @classmethod
    def _groups_in(cls, state: dict[str, Any]) -> Groups | None:
        if state.get("groups") is None:
            return None
        from .groups import Groups

        return Groups.from_dict(state["groups"])

    @classmethod
    def _method_in(cls, state: dict[str, Any]) -> Any:
        try:
            return Method.from_dict(state["method"])
        except InvalidInput as error:
            raise SnapshotMismatch(f"snapshot must hold a method that this version knows: {error}") from error

    @classmethod
    def _check_width(cls, state: dict[str, Any]) -> None:
        """Raise unless the row of a snapshot is as wide as its method needs."""
        row, width = state["row"], cls._method_in(state).width
        if (groups := cls._groups_in(state)) is not None:
            width += groups.row_width
        if not isinstance(row, list) or len(row) != width:
            got = len(row) if isinstance(row, list) else type(row).__name__
            raise SnapshotMismatch(f"snapshot must have a row of width {width} for its method, got {got}")

    @classmethod
    def from_json(cls, text: str | bytes, *, groups: Groups | Sequence[str] | None = None) -> Self:
        """Continue from `to_json`. A stream that has no groups can be given `groups`, which begin with no cells.

        Receipts that it issued without groups are those of another calibrator then.

        Raises
        ------
        SnapshotMismatch : the text is damaged, or is no snapshot of a calibrator; the message says what is wrong.
        InvalidInput : `groups` are impossible, or the snapshot has its own.
        """
        try:
            state = unseal(cls._KIND, FORMAT, cls._STATE, text, check=cls._check_width, optional=cls._OPTIONAL)
        except (InvalidInput, TypeError, KeyError) as error:
            raise SnapshotMismatch(f"snapshot must hold what a calibrator can hold: {error}") from error
        fresh = cls._fresh_groups(state, groups)
        try:
            calibrator = cls._like({**state, **fresh})
            method = calibrator._method
            events = check_whole("events", state["events"], 0, 2**53)
            row = check_numbers("row", state["row"])
            check_row(method, row, events, cls._groups_in(state))
            if "groups" in state:
                calibrator._restore_groups(state["groups"], row.tolist())
            elif calibrator._table is not None:
                row = calibrator._table.initial_row(row)
            calibrator._row[:] = array("d", row.tobytes())
            calibrator._events, outcomes = events, calibrator.outcomes
            calibrator._restore_history(outcomes, state["history"])
            calibrator._receipts = calibrator._receipts.load(state, events, outcomes)
            calibrator._signature = ""  # a new generation, which gets its own with its first forecast
            calibrator._set_watch(Watch.load(state["monitors"], state.get("notice"), events))
        except (InvalidInput, TypeError, KeyError) as error:
            raise SnapshotMismatch(f"snapshot must hold what a calibrator can hold: {error}") from error
        return calibrator

    @classmethod
    def _fresh_groups(cls, state: dict[str, Any], groups: Any) -> dict[str, Any]:
        """The groups that a snapshot is given beside it, as a snapshot has them."""
        if groups is None:
            return {}
        from .groups import Groups, GroupTable

        if "groups" not in cls._OPTIONAL:
            raise InvalidInput("groups must be left out, many classes have none")
        if (known := cls._groups_in(state)) is not None:
            names = ", ".join(known.attributes)
            raise InvalidInput(f"groups must be left out, the snapshot has its own: {names}")
        return {"groups": GroupTable(Groups.of(groups), cls._method_in(state)).groups.to_dict()}

    def _restore_groups(self, data: Any, row: list[float]) -> None:
        from .groups import GroupTable

        table = GroupTable.from_dict(data, self._method, row)
        self._set_table(table)
        self._is_crowded = table.is_crowded(row)  # which was said before

    def _restore_history(self, outcomes: int, columns: Any) -> None:
        if self._refitter is not None:
            self._refitter.load(outcomes, columns)
        elif columns != {}:
            raise InvalidInput(f"history must hold nothing for this method, got {columns!r:.60}")

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies, also those of other processes, are made of the snapshot."""
        return type(self).from_json, (self.to_json(),)

    # ---- readings: each is of one moment, whatever other threads do -----------------------------------------------

    @property
    def method(self) -> Method:
        """The parts that it is made of."""
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
        return int(self._row[N])

    @property
    def monitor(self) -> Monitor | None:
        """The monitor of the forecasts, if there is one.

        >>> from calibeat import Calibrator, Monitor
        >>> cal = Calibrator("ops", monitor=Monitor(arl=100_000))
        >>> p = cal.run([0.2, 0.7, 0.6], [0, 1, 1])
        >>> cal.monitor.outcomes, cal.monitor.alarms
        (3, [])
        """
        return self._watch.monitors.get(OURS)

    @property
    def monitors(self) -> dict[str, Monitor]:
        """The monitors by what they watch: "ours", "raw"."""
        return dict(self._watch.monitors)

    @property
    def notice(self) -> Notice | None:
        """The notice of the stream, if there is one: ask its `check` now and then.

        >>> from calibeat import Calibrator, Notice
        >>> cal = Calibrator("ops", notice=Notice())
        >>> p = cal.run([0.2, 0.7, 0.6], [0, 1, 1], times=["2026-03-01 09:00", "2026-03-01 10:00", "2026-03-01 11:00"])
        >>> cal.notice.forecasts, cal.notice.check(), cal.notice.state
        (3, [], 'learning')
        """
        return self._watch.notice

    def new_alarms(self) -> list[RaisedAlarm]:
        """The alarms that monitors and notice have raised since the last call: each is given once, oldest first.

        ``alarm.source`` says which of them: "ours" or "raw" is a monitor, by what it watches; "notice" the notice.
        What `Notice.check` has raised is among them. A snapshot knows which were given: after a restart from it
        those come again that were given later. Of more than 1,000 of one watcher, the last 1,000.

        >>> from calibeat import Calibrator, Monitor
        >>> cal = Calibrator("ops", monitor={"raw": Monitor(arl=1000, warm=0)})
        >>> for outcome in [0] * 20:
        ...     status = cal.update(cal.predict(0.9), outcome)
        ...     for alarm in cal.new_alarms():
        ...         print(alarm.source, alarm.what, "after", alarm.at, "outcomes: wake somebody" if alarm.page else "")
        raw too high after 11 outcomes: wake somebody
        """
        with self._lock:
            self._refresh()
            return self._watch.new_alarms()

    @property
    def params(self) -> dict[str, Any]:
        """The parameters by their names in the paper; for a histogram its edges and means.

        With groups, ``"groups"`` has the weights of expert, still and fleeting; the spread of each column in logits,
        which says what matters; and how full the table is.

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
        with self._lock:
            self._refresh()
            row = self._row[:]
        params = params_of(self._method, row[: self._method.width])
        return params if self._table is None else {**params, "groups": self._table.params(row)}

    def segments(self, least: int = 100) -> Segments:
        """Who is miscalibrated: a table with one row for each value of a group, and for each pair of values that cross.

        Only those with `least` outcomes or more are shown, best evidence first. The columns: `column` (its number),
        `attribute`, `value` (its hash, unless the groups have ``names=True``), `word`, `events`, `ones`, `rate`,
        `mean_score`, `mean_expert`, `mean_forecast`, `offset` and `sd` (what was learnt of it, in logits), `log_e`,
        `flagged`, and `whole` (False once a value was forgotten: the row may have begun late).

        exp(log_e) is an e-value against "the forecasts of this segment are right". `flagged` are those that e-BH calls
        miscalibrated: at most 5 % of them are expected to be right.

        >>> from calibeat import Calibrator, Groups
        >>> cal = Calibrator(groups=Groups(["country"], names=True))
        >>> p = cal.run([0.5] * 400, [1, 0] * 200, groups={"country": ["fr", "it"] * 200})
        >>> table = cal.segments()
        >>> sorted(zip(table["value"], table["rate"].tolist(), table["events"].tolist()))
        [('fr', 1.0, 200), ('it', 0.0, 200)]

        Raises
        ------
        InvalidInput : the calibrator has no groups.
        """
        if self._table is None:
            raise InvalidInput("segments must be those of groups, got a calibrator without - Calibrator(groups=[...])")
        with self._lock:
            self._refresh()
            try:
                self._is_busy = True
                self._undo_batch()
                return self._table.segments(self._view(), least)
            finally:
                self._is_busy = False

    @property
    def on_the_ball(self) -> bool:
        """Whether the parameters lie on the ball that bounds them: separable data, or a radius that is too small."""
        with self._lock:
            self._refresh()
            return on_the_ball(self._method, self._row[: self._method.width])

    @property
    def evidence(self) -> float:
        """Log likelihood ratio of the forecasts against the raw scores, over the outcomes learnt so far, in nats.

        Positive: the forecasts have served better. If the scores were the true probabilities, exp(evidence) would be
        a supermartingale that starts at 1 and would ever reach 1/alpha with probability at most alpha: an e-value,
        valid at any time. So you may look after every event: if you stop when it reaches log(1/alpha), you are wrong
        with probability at most alpha. (Beyond the clip of the features the score or the clip counts, whichever did
        better, and forecasts count as if they stayed in [1e-7, 1 - 1e-7].) Kept by methods with `Lanes` or a `Spline`.

        **Late outcomes.** This holds for any delay while no outcome overtakes that of an earlier event. If some do, it
        holds only if neither their delay nor later scores depend on outcomes still under way. Where ones are reported
        at once and zeros after a time-out, as conversions are, the first outcomes to arrive are all ones, and the
        evidence against a calibrated score rises nearly always. Then learn the outcomes in the order of the events:
        hold each back until all earlier ones are known.

        >>> import math
        >>> from calibeat import Calibrator
        >>> cal = Calibrator()
        >>> p = cal.run([0.8] * 40, [1, 0] * 20)
        >>> round(cal.evidence, 2), cal.evidence >= math.log(1 / 0.05), cal.evidence >= math.log(1 / 0.001)
        (6.33, True, False)

        References: Ville (1939); Shafer, Shen, Vereshchagin & Vovk (2011).
        """
        if not self._method.mixes:
            raise InvalidInput(
                "evidence must be kept by a method with Lanes or a Spline, such as AUTO, "
                f"got {name_of(self._method) or self._method}"
            )
        at = self._method.spec.evidence
        with self._lock:
            self._refresh()
            row = self._row[:]
            return float(row[at] + ln(float(row[at + 1])))

    @property
    def row(self) -> Vector:
        """The state of the stream, a read-only copy: [t, n, theta, matrix, cells, guard, evidence, tail, groups]."""
        with self._lock:
            self._refresh()
            row = self._view().copy()
        row.flags.writeable = False
        return row

    def export(self) -> Export:
        """The present map from score to forecast, frozen: as numbers and as Python, SQL, JSON or ONNX. See `Export`.

        Raises
        ------
        InvalidInput : the method has no formula (it draws, or solves an equation for each score), or there are groups.
        """
        if self._table is not None:
            raise InvalidInput(
                "export needs a calibrator without groups: with them there is no map from the score alone - "
                "use predict_many(scores, groups=...), or a service"
            )
        with self._lock:
            self._refresh()
            return frozen_map(self._method, self._view().tolist())

    def _view(self) -> Vector:
        return np.frombuffer(self._row)

    def __repr__(self) -> str:
        name = name_of(self._method)
        self._refresh()
        groups = "" if self._table is None else f", groups={list(self._table.groups.attributes)}"
        shown_method = f"{name.upper() if name else self._method}{groups}"
        return f"Calibrator({shown_method}, events={self._events}, outcomes={self.outcomes})"

    def _refresh(self) -> None:
        """Finish what an interrupted call has left. The member of a bank also finds its row again."""
        if self._owed is not None or self._is_forked:
            with self._lock:
                self._recover()

    def _recover(self) -> None:
        """Finish what an interrupt left undone; in a new process, begin a generation. The caller holds the lock.

        If this is interrupted too, the next call does it.
        """
        if self._owed is not None:
            tell, *arguments = self._owed
            tell(*arguments)
            self._owed = None
        self._undo_batch()
        if self._is_forked:
            self._receipts.issuer.begin_generation(self._events)
            self._begin_generation("", self._key)
            self._is_forked = False


tell_elsewhere(Calibrator, ELSEWHERE)
