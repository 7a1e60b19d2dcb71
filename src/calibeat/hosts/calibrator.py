"""The host of one stream: `Calibrator` checks what comes in, and stands on one row (`rows`).

`Stream` (`_stream.pxi`) serves single events: a forecast is one call into machine code, and so is the outcome of a
forecast of its own. Such a call holds the interpreter's lock, so no other thread and no signal interrupts it, and no
lock is needed. Everything that takes several steps (monitors, refits, receipts that have travelled, batches, snapshots)
holds the rows, and closes that short way while it is at work.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self

import numpy as np
import numpy.typing as npt

from calibeat._compiled import NOT_MADE, Ledger, Stream
from calibeat._util.check import (
    check_counts,
    check_lengths,
    check_numbers,
    check_outcomes,
    check_score,
    check_scores,
    check_weights,
    check_whole,
    shown,
)
from calibeat._util.columns import like
from calibeat._util.sealed import seal, unseal
from calibeat._util.types import Flags, Ints, Slots, Vector
from calibeat.core import kernel, loops
from calibeat.core.algebra import ln
from calibeat.core.band import Bands, Estimate
from calibeat.core.layout import SQUARES, TOTAL, N
from calibeat.core.limits import check_row
from calibeat.core.loops import NO_NUMBERS
from calibeat.core.method import AUTO, Method, described, method_named, name_of, on_the_ball, params_of
from calibeat.core.randomness import stream_key
from calibeat.core.receipt import watched_event
from calibeat.core.refit import Refitter
from calibeat.core.several import SeveralMethod, default_names, with_one_more
from calibeat.core.weights import Outcome
from calibeat.errors import InvalidInput, OutcomeConflict, SnapshotMismatch, UnknownForecast
from calibeat.export import Export, SeveralExport, frozen_map, frozen_maps
from calibeat.late import moments_of, schedule
from calibeat.monitor.bets import RaisedAlarm
from calibeat.monitor.monitor import Monitor

from .keys import EVERY
from .receipts import Receipts, check_receipts
from .rows import (
    CONFLICT,
    LEARNT,
    REPEATED,
    STATUSES,
    TOO_OLD,
    AnyForecast,
    FoldColumns,
    ReceiptArray,
    Rows,
    StreamBatch,
)

if TYPE_CHECKING:  # loaded by calibrators that have them
    from calibeat.monitor.notice import Notice
    from calibeat.monitor.notices import Notices

    from .groups import Attributes, Groups, GroupTable, Segments
    from .models import Models

Number = int | float | np.floating[Any] | np.integer[Any]
Watched = Monitor | Mapping[str, Monitor] | None

FORMAT = 3  # of snapshots
OURS, RAW_SCORE, NOTICE = "ours", "raw", "notice"  # sources of alarms
COLUMNS = (OURS, RAW_SCORE)  # what a monitor may watch: the forecasts or the scores

HINTS = {  # names of other libraries, and what to use here
    "fit": "run(scores, outcomes), which learns a past event by event; calibeat.sklearn has estimators with fit",
    "partial_fit": "update(forecast, outcome) of one event, or run(scores, outcomes) of many",
    "predict_proba": "predict(score) of one event, or predict_many(scores)",
    "transform": "predict_many(scores), or calibeat.sklearn.ScoreCalibrator",
    "fit_transform": "run(scores, outcomes), or calibeat.sklearn.ScoreCalibrator",
    "learn_one": "update(forecast, outcome), or calibeat.river.OnlineCalibrated",
    "save": "to_json(), the whole state as text, and from_json; a Bank has save and load",
    "load": "Calibrator.from_json(text), where text is what to_json() gave",
}


class MissingName:
    """A name that people look for, and that is not here: the `AttributeError` says what to use.

    One for each name, and no `__getattr__`: with that, each call of a method that is here takes 35 ns more.
    """

    def __init__(self, name: str, instead: str) -> None:
        self.name, self.instead = name, instead

    def __get__(self, host: Any, owner: type) -> NoReturn:
        whose = f"type object {owner.__name__!r}" if host is None else f"{type(host).__name__!r} object"
        raise AttributeError(f"{whose} has no attribute {self.name!r}: use {self.instead}", name=self.name, obj=host)


def add_hints(host: type, hints: Mapping[str, str]) -> None:
    """Have a class say where the names are that it does not have; a type checker knows only those that it has."""
    for name, instead in hints.items():
        setattr(host, name, MissingName(name, instead))


_log = logging.getLogger("calibeat")


# ---- its monitors --------------------------------------------------------------------------------------------------


class Watch:
    """The monitors of one stream by the column that they watch, and its notice. Forecast n is event n of the stream."""

    def __init__(self, monitor: Watched, notice: Notice | None = None, kept: tuple[float, float] | None = None) -> None:
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
        of_log = {column: value.settings.of_log(kept) for column, value in given.items()}
        self.monitors: dict[str, Monitor] = {column: value._serve() for column, value in given.items()}
        for column, settings in of_log.items():
            self.monitors[column]._rows.settings = settings
        self.notice = None if notice is None else notice._serve()

    def __bool__(self) -> bool:
        return bool(self.monitors) or self.notice is not None

    @property
    def notices_times(self) -> bool:
        """Whether it wants to know when each score was issued."""
        return self.notice is not None

    def now(self) -> float:
        """The time of an event that happens now, where it is noticed."""
        return math.nan if self.notice is None else self.notice._now()

    def check_weights(self, weighted: bool, counted: bool) -> None:
        """Raise if a monitor cannot judge outcomes with weights, or counts of trials."""
        for monitor in self.monitors.values():
            if weighted or counted:
                monitor.settings.check_weights(counts=counted)

    def moment(self, slot: int) -> tuple[float, float]:  # noqa: ARG002 - there is one
        """The time of an outcome that comes now, and how many the notice was told of before."""
        return self.now(), 0.0 if self.notice is None else self.notice._rows.told(0)

    def forecast(self, slot: int, events: int, score: Any) -> None:
        """So many forecasts have been made, the last one of this score."""
        for monitor in self.monitors.values():
            with monitor._lock:
                monitor._rows.catch_up(slot, events)
        if self.notice is not None:
            with self.notice._lock:
                self.notice._rows.forecast(slot, events - 1, self.now(), noticed_score(score))

    def outcome(self, slot: int, forecast: Any, y: float, now: float, told: float) -> None:
        """The outcome of a forecast; like a batch it may be told twice."""
        said, came, score = watched_event(forecast, y)
        for monitor, p, s in self._columns(said, score, math.nan):
            with monitor._lock:
                monitor._rows.update(slot, forecast.event, (p, came, s))
        if self.notice is not None:
            with self.notice._lock:
                self.notice._rows.outcome(slot, forecast.event, now, told)

    def fold(self, count: int, columns: FoldColumns, slots: Slots, numbers: int, times: Vector) -> None:  # noqa: ARG002
        """Operations in their order; those of a slot below 0 have not happened. It is called once."""
        done = slots >= 0
        asked, events, (p, y, s) = columns.asked[done], columns.events()[done], (c[done] for c in columns.watched())
        told = list(zip(asked.tolist(), events.tolist(), y.tolist(), strict=True))
        for monitor, own, base in self._columns(p, s, np.full(len(s), np.nan)):
            with monitor._lock:
                for (is_forecast, event, came), ours, raw in zip(told, own.tolist(), base.tolist(), strict=True):
                    if is_forecast:
                        monitor._rows.catch_up(0, event + 1)
                    else:
                        monitor._rows.update(0, event, (ours, came, raw))
        if self.notice is not None:
            heard = noticed_scores(numbers, columns.scores())[done]
            with self.notice._lock:
                tell_notices(self.notice._rows, slots[done], asked, events, times[done], heard)

    def batch(
        self, events: int, batch: StreamBatch, late: loops.Late | None, end: int, columns: tuple[Vector, Vector, Vector]
    ) -> None:
        """A batch after so many events; of late outcomes those that are due at `end` or after it never come.

        It may be called again: a monitor that knows of it is left as it is. To the notice, without times, the whole
        batch happens now.
        """
        forecasts, outcomes, scores = columns
        n = len(batch.outcomes)
        due = None if late is None else np.where(late.due < end, late.due, n + 1)
        for monitor, p, s in self._columns(forecasts, scores, np.full(n, np.nan)):
            with monitor._lock:
                monitor._rows.catch_up(0, events)
                if monitor._rows.queue(0).announced == events:
                    monitor._rows.run(0, p, outcomes, s, due, closed=True)
        if self.notice is not None and n:
            from calibeat.monitor.notices import heard_of

            issued = np.full(n, self.now()) if batch.issued is None else batch.issued
            heard = np.zeros(n, dtype=np.int32), issued, noticed_scores(len(batch.scores) // n, batch.scores), outcomes
            with self.notice._lock:
                self.notice._rows.run(0, events, heard_of(*heard, *((late.due, late.order) if late else ())))

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


def tell_notices(notices: Notices, slots: Slots, asked: Flags, events: Ints, times: Vector, scores: Vector) -> None:
    """Tell of forecasts and outcomes in their order."""
    told = zip(slots.tolist(), asked.tolist(), events.tolist(), times.tolist(), scores.tolist(), strict=True)
    for slot, is_forecast, event, time, score in told:
        if is_forecast:
            notices.forecast(slot, event, time, score)
        else:
            notices.outcome(slot, event, time)


def issue_times(times: Any, events: int) -> Vector | None:
    """When each score was issued, in seconds since 1970; None if nobody says."""
    if times is None:
        return None
    from calibeat.monitor.silence import check_times

    return check_times(moments_of(times, events) / 1e6)


def for_schedule(times: Any, issued: Any, mature: Any, outcome_times: Any) -> Any:
    """The times, where they say when outcomes are learnt. Others are for a notice alone."""
    return None if issued is not None and mature is None and outcome_times is None else times


def checked_stream(stream: Any) -> int | str | None:
    """The name of a stream. A subclass of str, such as NumPy's, has another repr, and would be another stream."""
    if stream is None:
        return None
    return str.__str__(stream) if isinstance(stream, str) else check_whole("stream", stream, -(2**63), 2**63 - 1)


def issuer_name(method: Any, seed: int, stream: int | str, groups: str = "") -> int:
    """The name of a stream on its receipts: 64 bits of its method, as `repr` shows it, its seed, its name, its groups.

    >>> from calibeat import TOPS
    >>> f"{issuer_name(TOPS, 0, 0):016x}"
    'b38b42aca7b5da61'
    """
    return stream_key(stream_key(seed, stream), repr(method) + groups)


def with_band(method: Method, band: bool, level: Any = None) -> Method:
    """The method, with the band if that is asked: what refuses a band for other hosts refuses it here.

    Raises
    ------
    InvalidInput : the method knows of no band, or a level is given.
    """
    if level is not None:
        raise InvalidInput("level must be left out: the interval has one level, which is the one that was measured")
    return method if band is False else replace(method, band=band)


def read_weights(rows: Rows, weights: Any, trials: Vector, outcomes: Vector, needed: Flags | None = None) -> Vector:
    """The weights of outcomes, none where all are 1; those not needed are not read, nor where an outcome is NaN.

    Raises
    ------
    InvalidInput : a weight is impossible, or the method or a monitor cannot learn weights, or counts of trials.
    """
    heavy = NO_NUMBERS
    if weights is not None:
        known = ~np.isnan(outcomes)
        heavy = check_weights(weights, len(outcomes), known if needed is None else known & needed)
        if (heavy == 1.0).all():
            heavy = NO_NUMBERS
    rows._check_weights(len(heavy) > 0, len(trials) > 0)
    return heavy


def read_counts(
    rows: Rows, outcomes: Any, of: Any, needed: Flags | None = None, *, optional: bool = False
) -> tuple[Vector, Vector]:
    """The share of ones of each row, and its trials, as `check_counts` has them.

    Raises
    ------
    InvalidInput : a count is impossible, or the method or a monitor cannot learn counts.
    """
    rows._check_weights(False, True)
    return check_counts(outcomes, of, needed, optional=optional)


class StreamOfRows(Rows):
    """The one row of a `Calibrator`, with what a method needs that fits its past again, and groups."""

    def __init__(self, method: Any, identity: tuple[int, int], **settings: Any) -> None:
        super().__init__(method, lambda _: identity, **settings)
        self.refitter = Refitter(method) if method.needs_history else None
        self._warned_of_ball = False

    def take_table(self, table: GroupTable, row: list[float]) -> None:
        """Take the cells of a snapshot."""
        self.table = table
        self._serve_groups(table.maker, table.cells)
        if table.is_crowded(row):  # which was said before
            self._is_crowded = True

    def restore(self, stream: Stream, row: Vector, events: int, settled: Any) -> None:
        """Continue from a snapshot, in a new generation."""
        self.ledgers[0] = Ledger.load(settled, events, int(row[N]), **self._of_ledger)
        self._take(stream, row, events)
        self.begin_generation()
        self.aim(stream)

    def learn_one(self, stream: Stream, forecast: AnyForecast, y: float, weight: float, trials: float) -> None:
        if self.refitter is None:
            super().learn_one(stream, forecast, y, weight, trials)
            return
        state, event = self.row(0).copy(), forecast.event
        told = float(self.events_of(0)), forecast.score, forecast.cell, Outcome(y, weight, trials)
        clipped = kernel.update(self.method.spec, state, *told, np.array(forecast.lanes))
        if clipped * trials > 0.0:
            self.refitter.learn(state, forecast.score, y, clipped * trials)
        pending = None
        if self.watch is not None:
            pending = self.watch.outcome, (0, forecast, y, *self.watch.moment(0))
        settled = event, y, weight, trials
        self._do([(stream._ledger.settle, settled), (self._take, (stream, state, 0, pending))])

    def _predict_gathering(self, stream: Stream, score: float, groups: Any) -> Any:
        """A forecast while the first numbers of groups are gathered: a batch of one event."""
        self._words(groups)  # raises as `predict` does
        event = [self.table.groups.in_order(groups)]
        with self:
            self.ready()
            self.aim(stream)
            words = self.table.maker.pending(event, 1)
            return Receipts(self.issue(np.zeros(1, dtype=np.int32), np.array([score]), words))[0]

    def after_learning(self) -> None:
        if self.table is not None and not self._is_crowded and self.table.is_crowded(self.row(0)):
            self._is_crowded = True
            _log.warning(self.table.warning(self.row(0)))
        if self.refitter is None:
            return
        with self:
            learnt, learner = int(self.row(0)[N]), self.method.learner
            self.refitter.forget(learnt)
            until = self.refitter.until(learnt, weighted=self.row(0)[TOTAL] > 0.0)
            self._remember_in(self.refitter.past, until)
        if learnt >= learner.after and not self._warned_of_ball and on_the_ball(self.method, self.row(0)):
            self._warned_of_ball = True
            _log.warning(
                "the fit ended on the ball of radius %g: the outcomes learnt so far are separable by the score, so "
                "that no finite optimum exists, or the radius is small",
                learner.radius,
            )


def refuse_models(models: Any, host: str) -> None:
    """Raise where a host takes the scores of one model only."""
    if models is not None:
        raise InvalidInput(f"{host} takes no models - use Calibrator(models=[...]), one for each stream")


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
    kept : the shares of ones and of zeros that the log kept, where negatives were thinned before you see them:
        ``(1.0, 0.05)`` kept every one and a twentieth of the zeros. Scores and forecasts are then true probabilities,
        and no weights are needed. docs/how-to/sampled-logs.md.
    band : whether forecasts say how sure they are: `low`, `high`, `outcomes`, `reason`; AUTO only, without groups.
        Forecasts are the same. docs/how-to/how-sure.md.
    groups : names of attributes of each event, such as country and device, or a `Number` for one such as age, or a
        `Groups`. Forecasts then hold within each of their values, not only on average; methods with `Lanes` (AUTO,
        GAUTO).
    models : how many models score each event, or their names: ``["champion", "challenger"]``. Their scores become one
        forecast, ``predict([0.83, 0.71])`` or ``predict({"champion": 0.83})``; None or NaN where a score is missing.
        AUTO only. docs/how-to/several-models.md.

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
        "method", "seed", "stream", "events", "row", "history", "settled", "monitors",
    )  # fmt: skip
    _OPTIONAL: ClassVar[tuple[str, ...]] = ("groups", "models", "notice")
    _models: Models | None = None  # the names, where there are several
    _rows: Any  # the rows that it stands on: its own, or those of a bank

    def __init__(
        self,
        method: Method | str = AUTO,
        seed: int = 0,
        stream: int | str | None = None,
        *,
        monitor: Watched = None,
        notice: Notice | None = None,
        kept: tuple[float, float] | None = None,
        groups: Groups | Attributes | None = None,
        models: int | Sequence[str] | None = None,
        band: bool = False,
        level: None = None,
    ) -> None:
        if not isinstance(method, Method):
            method = method_named(method)
        if models is not None:
            from .models import Models

            self._models = Models(models)
            self._models.check_setting(method, kept, groups, band)
        if kept is not None:
            method = replace(method, kept=kept)
        method = with_band(method, band, level)
        self._seed, self._stream = check_whole("seed", seed, -(2**63), 2**63 - 1), checked_stream(stream)
        table, own = None, ""
        served: Method | SeveralMethod = method
        if self._models is not None:
            # More models may join, behind those that are there: the first two are in the name on receipts.
            served, own = SeveralMethod(len(self._models)), repr(self._models.names[:2])
        if groups is not None:
            from .groups import Groups, GroupTable

            table = GroupTable(Groups.of(groups), method)
            own = table.groups.identity
        drawn_as = 0 if self._stream is None else self._stream
        identity = issuer_name(method, self._seed, drawn_as, own), stream_key(self._seed, drawn_as)
        self._begin(StreamOfRows(served, identity, generation=None if stream is None else 0, table=table))
        self._set_watch(Watch(monitor, notice, method.kept))

    def _begin(self, rows: Rows) -> None:
        """Be the one stream of these rows, which are new."""
        rows.make_room(1)
        rows._publish(1, 0)
        rows.bind(self, 0)

        if self._models is not None:
            rows._check_score = self._models.one

    def _set_watch(self, watch: Watch) -> None:
        if self._models is not None and RAW_SCORE in watch.monitors:
            raise InvalidInput('monitor must watch "ours" with models, which have no raw score to watch, got "raw"')
        self._watch = watch
        self._rows._watched_by(watch or None)

    # ---- what comes in, and how it goes out: `MultiCalibrator` has its own ------------------------------------------

    def _check_score(self, score: Any) -> Any:
        """The score of one event, or those of its models."""
        return check_score(score) if self._models is None else self._models.one(score)

    def _check_scores(self, scores: Any) -> Vector:
        """The scores of a batch: K numbers for each event, one behind the other."""
        return check_scores(scores) if self._models is None else self._models.many(scores)

    def _check_outcomes(self, outcomes: Any, events: int, needed: npt.NDArray[np.bool_] | None = None) -> Vector:
        """The outcomes of so many events: the column of each label. Where none is needed there may be anything."""
        labels = check_outcomes(outcomes) if needed is None else check_outcomes(outcomes, needed=needed)
        check_lengths(scores=events, outcomes=len(labels))
        return labels

    def _check_known(self, outcomes: Any) -> Vector:
        """Outcomes none of which is missing."""
        return check_outcomes(outcomes)

    def _check_groups(self, groups: Any, events: int) -> Any:
        """The words of the groups of so many events, as `Rows.words_of` takes them; None where there are no groups."""
        table = self._rows.table
        if table is None or groups is None:
            self._rows._words(groups)  # raises where there should be some, or none
            return None
        maker = table.maker
        return maker.pending(groups, events) if maker._gathers else maker.of_events(groups, events)

    def _given_back(self, scores: Any, forecasts: Vector) -> Any:
        """The forecasts in the kind of the scores."""
        if self._models is not None:
            return self._models.like(scores, forecasts)
        return forecasts if type(scores) is np.ndarray else like(scores, forecasts)

    # ---- single events: `predict` and `update` are those of `Stream` -----------------------------------------------

    def peek(self, score: Any, groups: Any = None) -> Any:
        """What `predict` would say of a score, and of its groups, now. No event is made, nothing changes.

        With ``band=True`` the number also has `low`, `high`, `outcomes` and `reason`.

        >>> from calibeat import Calibrator, OPS
        >>> cal = Calibrator(OPS)
        >>> cal.peek(0.25), cal.events
        (0.25, 0)
        """
        score, words = self._check_score(score), self._made()._words(groups)
        with self._held() as rows:
            said = rows._peek(self, score, words)
            return Estimate(*said) if rows.method.spec.band else said

    # ---- many events ----------------------------------------------------------------------------------------------

    def run(
        self,
        scores: npt.ArrayLike,
        outcomes: npt.ArrayLike,
        *,
        weights: Any = None,
        of: Any = None,
        groups: Any = None,
        due: npt.ArrayLike | None = None,
        mature: Any = None,
        times: Any = None,
        outcome_times: Any = None,
        finish: bool = False,
        band: bool = False,
    ) -> Any:
        """Predict and then update, event after event; the same bits as doing so one by one.

        Parameters
        ----------
        scores : probabilities in [0, 1]. With `models` an array (events x models), a list of rows, a dict of columns
            or a data frame with the models' names; NaN where a score is missing.
        outcomes : 0 or 1 (False or True); with `of` the number of ones.
        weights : for a log that kept only some events: how many events each outcome stands for. Only their ratios
            matter. Those of outcomes that never arrive are not read. docs/how-to/sampled-logs.md.
        of : for rows that are counts: how many events each row is, of which `outcomes` are ones.
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
        band : return `Bands` (probabilities, low, high, outcomes, reason), where the calibrator has a band.

        Returns the forecasts, as a column if the scores are one. If something is wrong with one event, none is taken.

        >>> from calibeat import Calibrator, OPS
        >>> Calibrator(OPS).run([0.5, 0.5, 0.5], [1, 1, 1], due=[2, 3, 3]).round(4)
        array([0.5   , 0.5   , 0.5125])
        >>> Calibrator("hops").run([0.5, 0.6, 0.7], [1, 1, 1], mature=1).round(4)    # raw until an outcome has matured
        array([0.5 , 0.6 , 0.75])

        Raises
        ------
        InvalidInput : a score, an outcome, a weight, a group or a due time is impossible; the message names the first
            bad row. Or the method or a monitor cannot learn weights.
        """
        probabilities, rows = self._check_scores(scores), self._made()
        n = len(probabilities) // rows.method.numbers
        issued = None if rows.watch is None or not rows.watch.notices_times else issue_times(times, n)
        planned = schedule(
            n, due, mature, for_schedule(times, issued, mature, outcome_times), outcome_times, finish=finish
        )
        needed = None if planned is None else planned.due <= n
        if of is None:
            labels, trials = self._check_outcomes(outcomes, n, needed), NO_NUMBERS
        else:
            labels, trials = read_counts(rows, outcomes, of, needed)
            check_lengths(scores=n, outcomes=len(labels))
        heavy = read_weights(rows, weights, trials, labels, needed)
        words = self._check_groups(groups, n)
        bands = rows.bands_for(n, band)
        batch = StreamBatch(probabilities, labels, planned, mature is not None, words, issued, heavy, trials, bands)
        forecasts = self._given_back(scores, rows.run_stream(self, batch))
        return Bands.of(forecasts, bands) if band else forecasts

    def predict_many(self, scores: npt.ArrayLike, groups: Any = None, *, band: bool = False) -> Any:
        """Forecast many scores from the present state: no receipts, nothing learnt, nothing changed.

        >>> from calibeat import Calibrator, OPS
        >>> Calibrator(OPS).predict_many([0.1, 0.9]).round(12)
        array([0.1, 0.9])
        >>> bands = Calibrator(band=True).predict_many([0.1, 0.9], band=True)
        >>> bands.low.round(2), bands.high.round(2)
        (array([0.  , 0.29]), array([0.71, 1.  ]))

        Raises
        ------
        InvalidInput : a score is not a number in [0, 1], or a group is impossible; the message names the first bad row.
        """
        probabilities = self._check_scores(scores)
        n = len(probabilities) // self._made().method.numbers
        check_lengths(scores=n)
        words = self._check_groups(groups, n)
        bands = self._rows.bands_for(n, band)
        forecasts = self._given_back(scores, self._rows.predict_many(self, probabilities, words, bands))
        return Bands.of(forecasts, bands) if band else forecasts

    def issue(self, scores: npt.ArrayLike, groups: Any = None) -> Receipts:
        """Forecast many events -> a batch of receipts. The same bits as `predict` one by one.

        Store the batch with the events, and bring it or parts of it to `learn` when the outcomes are known:
        docs/receipts.md.

        Parameters
        ----------
        scores, groups : as in `run`.

        >>> from calibeat import Calibrator
        >>> cal = Calibrator("ops")
        >>> batch = cal.issue([0.25, 0.5, 0.75])
        >>> batch.probabilities, len(batch.to_bytes())
        (array([0.25, 0.5 , 0.75]), 336)
        >>> cal.learn(batch[1:], [1, 0]).tolist(), cal.update(batch[0], 1)
        (['learnt', 'learnt'], 'learnt')

        Raises
        ------
        InvalidInput : a score is not a number in [0, 1], or a group is impossible; the message names the first bad row.
        """
        probabilities, rows = self._check_scores(scores), self._made()
        n = len(probabilities) // rows.method.numbers
        check_lengths(scores=n)
        words = self._check_groups(groups, n)
        with self._held():
            rows.check_writable("issue receipts")
            return Receipts(rows.issue(self._slots(n), probabilities, words), rows.labels)

    def learn(
        self, batch: Receipts, outcomes: npt.ArrayLike, weights: Any = None, of: Any = None
    ) -> npt.NDArray[np.str_]:
        """Learn the outcomes of many receipts, in their order -> a status for each. The same bits as `update`.

        ============  ==============================================================================================
        status        means
        ============  ==============================================================================================
        "learnt"      it was learnt
        "repeated"    it was learnt before: nothing changes
        "conflict"    another outcome was learnt before
        "unknown"     the receipt is of another calibrator, key or copy, or too old: where `update` is UnknownForecast
        "invalid"     the receipt is damaged
        ============  ==============================================================================================

        Only what is wrong with an outcome is an error. It has to be known: leave out the receipts of all others, they
        stay open. A call happens whole or not at all; of a method that fits its past again, event by event.

        Parameters
        ----------
        batch : of `issue`, or made by `Receipts.from_bytes` or `Receipts.from_arrow`.
        outcomes : 0 or 1 for each receipt; of many classes the label; with `of` the number of ones.
        weights, of : as in `run`.

        >>> from calibeat import Calibrator
        >>> cal, other = Calibrator("ops"), Calibrator("ops", stream="other")
        >>> batch = cal.issue([0.2, 0.7])
        >>> cal.learn(batch, [0, 1]).tolist(), cal.learn(batch, [0, 0]).tolist(), other.learn(batch, [0, 1]).tolist()
        (['learnt', 'learnt'], ['repeated', 'conflict'], ['unknown', 'unknown'])

        Raises
        ------
        InvalidInput : an outcome is missing or impossible (the message names the first bad row), or there are not as
            many as receipts, or these are no batch.
        """
        rows, trials = self._made(), NO_NUMBERS
        if of is None:
            labels = self._check_known(outcomes)
        else:
            labels, trials = read_counts(rows, outcomes, of)
        check_lengths(receipts=len(check_receipts(batch)), outcomes=len(labels))
        heavy = read_weights(rows, weights, trials, labels)
        with self._held():
            rows.check_writable("learn")
            given = batch.of_type(rows.receipt_type)
            if given is None and self._models is not None:
                from .models import widened

                given = widened(batch, rows.method)
            found = batch.strangers() if given is None else self._learn_batch(rows, labels, heavy, trials, given, batch)
        rows.after_learning()
        return STATUSES[found]

    def _learn_batch(
        self, rows: Rows, outcomes: Vector, weights: Vector, trials: Vector, given: ReceiptArray, batch: Receipts
    ) -> Ints:
        slots = self._slots(len(outcomes))
        if rows.refitter is None:
            return rows.learn(slots, outcomes, given, weights, trials)
        found = np.zeros(len(outcomes), dtype=np.int64)
        names = rows.issuers(slots)
        rows._judge(given, EVERY, slots, names, found, strict=False)
        for at in (found == LEARNT).nonzero()[0].tolist():
            try:
                weight, of = weights[at] if len(weights) else None, int(trials[at]) if len(trials) else None
                y = round(outcomes[at] * (1 if of is None else of))
                found[at] = REPEATED if self.update(batch[at], y, weight, of) == "repeated" else LEARNT
            except OutcomeConflict:
                found[at] = CONFLICT
            except UnknownForecast:
                found[at] = TOO_OLD
        return found

    def _slots(self, count: int) -> Slots:
        """The row of so many events. The caller holds the rows."""
        return np.full(count, self._slot, dtype=np.int32)

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
        with self._held() as rows:
            events, row = self._events, rows.row(self._slot)
            self._ledger.catch_up(events)
            refitter, table = rows.refitter, rows.table
            state = {
                **self._described(),
                "events": events,
                "row": row.tolist(),
                "history": {} if refitter is None else refitter.dump(int(row[N])),
                "settled": self._ledger.dump(),
                **(Watch(None) if self._key is not None else self._watch).dump(),
                **({} if table is None else {"groups": table.to_dict()}),
                **({} if self._models is None else {"models": list(self._models.names)}),
            }
        return seal(self._KIND, FORMAT, state)

    def _described(self) -> dict[str, Any]:
        """What a snapshot says of the calibrator itself; `_like` makes another one of it."""
        return {"method": self.method.to_dict(), "seed": self._seed, "stream": self._stream}

    @classmethod
    def _like(cls, state: dict[str, Any]) -> Self:
        groups, models = cls._groups_in(state), state.get("models")
        return cls(cls._method_in(state), state["seed"], state["stream"], groups=groups, models=models)

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
        if state.get("models") is not None:
            from .models import Models

            width = SeveralMethod(len(Models(state["models"]))).width
        if not isinstance(row, list) or len(row) != width:
            got = len(row) if isinstance(row, list) else type(row).__name__
            raise SnapshotMismatch(f"snapshot must have a row of width {width} for its method, got {got}")

    @classmethod
    def from_json(cls, text: str | bytes, *, groups: Groups | Attributes | None = None) -> Self:
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
        return cls._restored({**state, **cls._fresh_groups(state, groups)}, has_cells="groups" in state)

    @classmethod
    def _restored(cls, state: dict[str, Any], *, has_cells: bool) -> Self:
        """A calibrator in this state; with `has_cells` also the cells of its groups are there."""
        try:
            calibrator = cls._like(state)
            rows = calibrator._rows
            method = rows.method
            events = check_whole("events", state["events"], 0, 2**53)
            row = check_numbers("row", state["row"])
            check_row(method, row, events, cls._groups_in(state))
            if has_cells:
                calibrator._restore_groups(state["groups"], row.tolist())
            elif rows.table is not None:
                row = rows.table.initial_row(row)
            calibrator._restore_history(int(row[N]), state["history"])
            rows.restore(calibrator, row, events, state["settled"])
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
        if "models" in state:
            raise InvalidInput("groups must be left out, the snapshot has models, which take no groups")
        if (known := cls._groups_in(state)) is not None:
            names = ", ".join(known.attributes)
            raise InvalidInput(f"groups must be left out, the snapshot has its own: {names}")
        return {"groups": GroupTable(Groups.of(groups), cls._method_in(state)).groups.to_dict()}

    def _restore_groups(self, data: Any, row: list[float]) -> None:
        from .groups import GroupTable

        self._rows.take_table(GroupTable.from_dict(data, self._rows.method, row), row)

    def _restore_history(self, outcomes: int, columns: Any) -> None:
        if self._rows.refitter is not None:
            self._rows.refitter.load(outcomes, columns)
        elif columns != {}:
            raise InvalidInput(f"history must hold nothing for this method, got {columns!r:.60}")

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies, also those of other processes, are made of the snapshot."""
        return type(self).from_json, (self.to_json(),)

    # ---- readings: each is of one moment, whatever other threads do -----------------------------------------------

    @property
    def method(self) -> Method:
        """The parts that it is made of; of several models AUTO, which each of them has."""
        method: Method = self._rows.method if self._models is None else AUTO
        return method

    @property
    def models(self) -> tuple[str, ...] | None:
        """The names of the models in the order of their scores; None where there is one score.

        >>> from calibeat import Calibrator
        >>> Calibrator(models=["champion", "challenger"]).models, Calibrator().models
        (('champion', 'challenger'), None)
        """
        return None if self._models is None else self._models.names

    def with_model(self, name: str | None = None) -> Self:
        """Return a calibrator with one model more, as if its score had been missing so far; this one stays as it is.

        The new one continues from here, as one from a snapshot does: it learns the receipts of this one too. Forecasts
        of the old scores change only by the new model's share of the weights.

        Parameters
        ----------
        name : of the new model, whose score is the last one of an event.

        >>> from calibeat import Calibrator
        >>> cal = Calibrator(models=["champion", "challenger"])
        >>> p = cal.run([[0.8, 0.7], [0.3, 0.4]], [1, 0])
        >>> more = cal.with_model("new")
        >>> more.models, more.events
        (('champion', 'challenger', 'new'), 2)
        >>> f = more.predict({"champion": 0.8, "new": 0.6})

        Raises
        ------
        InvalidInput : the name is taken, there are sixteen models already, or this calibrator has one score.
        """
        if self._models is None:
            raise InvalidInput("with_model needs a calibrator of several models, got one - Calibrator(models=[...])")
        count = len(self._models)
        names = [*self._models.names, default_names(count + 1)[-1] if name is None else name]
        type(self._models)(names)  # raises where the name cannot be
        state = unseal(self._KIND, FORMAT, self._STATE, self.to_json(), optional=self._OPTIONAL)
        row = with_one_more(check_numbers("row", state["row"]), count)
        return self._restored({**state, "models": names, "row": row.tolist()}, has_cells=False)

    @property
    def events(self) -> int:
        """How many forecasts were made."""
        with self._held():
            return self._events

    @property
    def outcomes(self) -> int:
        """How many outcomes were learnt."""
        with self._held() as rows:
            return int(rows.row(self._slot)[N])

    @property
    def monitor(self) -> Monitor | None:
        """The monitor of the forecasts, if there is one.

        >>> from calibeat import Calibrator, Monitor
        >>> cal = Calibrator("ops", monitor=Monitor(arl=100_000))
        >>> p = cal.run([0.2, 0.7, 0.6], [0, 1, 1])
        >>> cal.monitor.outcomes, cal.monitor.alarms
        (3, [])
        """
        return self._watch_now().monitors.get(OURS)

    @property
    def monitors(self) -> dict[str, Monitor]:
        """The monitors by what they watch: "ours", "raw"."""
        return dict(self._watch_now().monitors)

    @property
    def notice(self) -> Notice | None:
        """The notice of the stream, if there is one: ask its `check` now and then.

        >>> from calibeat import Calibrator, Notice
        >>> cal = Calibrator("ops", notice=Notice())
        >>> p = cal.run([0.2, 0.7, 0.6], [0, 1, 1], times=["2026-03-01 09:00", "2026-03-01 10:00", "2026-03-01 11:00"])
        >>> cal.notice.forecasts, cal.notice.check(), cal.notice.state
        (3, [], 'learning')
        """
        return self._watch_now().notice

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
        with self._held() as rows:
            return self._watch.new_alarms() if self._key is None else rows.new_alarms(self._slot)

    @property
    def params(self) -> dict[str, Any]:
        """The parameters by their names in the paper; for a histogram its edges and means.

        With groups, ``"groups"`` has the weights of expert, still and fleeting; the spread of each column in logits,
        which says what matters; how full the table is; and of each `Number` its edges and range, or the values that
        are gathered for them.

        For `Lanes`, with x = logit f and g = log f + log(1 - f) + log 4: slope a of x, bend c of g and offset b, as
        means over the lanes with their weights (the raw score counts as (1, 0, 0), the paper's OPS as (a, 0, b)), and
        under ``"lanes"`` the weights themselves, which say how fast the world moves.

        With ``band=True``, ``"band"`` has the record of the intervals: how many blocks of outcomes were judged, how
        many lay outside, and kappa, by which the blocks have widened the variance.

        >>> from calibeat import Calibrator, OBS
        >>> Calibrator().params["lanes"]["slow"] == 1 / 6
        True

        AIOLI's parameters depend on the score at hand; shown is the part that does not, -Q^-1 c.

        >>> Calibrator(OBS).params
        {'a': 1.0, 'b': -1.0, 'c': 0.0}
        """
        row, method, table = self.row.tolist(), self._rows.method, self._rows.table
        if self._models is not None:
            found: dict[str, Any] = method.params(row, self._models.names)
            return found
        params = params_of(method, row[: method.width])
        return params if table is None else {**params, "groups": table.params(row)}

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
        table = self._rows.table
        if table is None:
            raise InvalidInput("segments must be those of groups, got a calibrator without - Calibrator(groups=[...])")
        with self._held() as rows:
            found: Segments = table.segments(rows.row(self._slot), least)
            return found

    @property
    def on_the_ball(self) -> bool:
        """Whether the parameters lie on the ball that bounds them: separable data, or a radius that is too small."""
        method = self._rows.method
        if self._models is not None:
            return False
        return on_the_ball(method, self.row[: method.width])

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

        **Weights.** Outcomes with weights make no fair bet, and so no e-value; those with counts do.

        >>> import math
        >>> from calibeat import Calibrator
        >>> cal = Calibrator()
        >>> p = cal.run([0.8] * 40, [1, 0] * 20)
        >>> round(cal.evidence, 2), cal.evidence >= math.log(1 / 0.05), cal.evidence >= math.log(1 / 0.001)
        (6.33, True, False)

        References: Ville (1939); Shafer, Shen, Vereshchagin & Vovk (2011).
        """
        method = self._rows.method
        if self._models is not None:
            raise InvalidInput("evidence must be that against one score, got several models: their AUTOs learn apart")
        if not method.mixes:
            raise InvalidInput(
                "evidence must be kept by a method with Lanes or a Spline, such as AUTO, "
                f"got {name_of(method) or method}"
            )
        with self._held() as rows:
            row = rows.row(self._slot).copy()
        if row[TOTAL] != row[SQUARES]:
            raise InvalidInput(
                "evidence must be that of outcomes without weights: with weights it is no e-value - the gain over the "
                'score is params["weights"]["gain"]'
            )
        at = method.spec.evidence
        return float(row[at] + ln(float(row[at + 1])))

    @property
    def row(self) -> Vector:
        """The state of the stream, a read-only copy: [t, n, theta, matrix, cells, guard, evidence, tail, groups]."""
        with self._held() as rows:
            row = rows.row(self._slot).copy()
        row.flags.writeable = False
        return row

    def export(self) -> Export | SeveralExport:
        """The present map from score to forecast, frozen: as numbers and as Python, SQL, JSON or ONNX. See `Export`.

        Of several models it is a `SeveralExport`, of events whose scores are all there.

        Raises
        ------
        InvalidInput : the method has no formula (it draws, or solves an equation for each score), or there are groups.
        """
        if self._rows.table is not None:
            raise InvalidInput(
                "export needs a calibrator without groups: with them there is no map from the score alone - "
                "use predict_many(scores, groups=...), or a service"
            )
        if self._models is not None:
            return frozen_maps(self._models.names, self.row)
        return frozen_map(self._rows.method, self.row.tolist())

    def __repr__(self) -> str:
        method, table = self._rows.method, self._rows.table
        groups = "" if table is None else f", groups={table.groups.given}"
        shown_method = f"{described(method)}{groups}"
        if self._models is not None:
            shown_method = f"models={list(self._models.names)}"
        with self._held():
            return f"Calibrator({shown_method}, events={self._events}, outcomes={self.outcomes})"

    # ---- inner ----------------------------------------------------------------------------------------------------

    @contextmanager
    def _held(self) -> Iterator[Any]:
        """The rows, with nothing left to be done, and the row of this stream found."""
        with self._made() as rows:
            rows.ready()
            rows.aim(self)
            yield rows

    def _made(self) -> Any:
        """The rows that it stands on."""
        if self._rows is None:
            raise InvalidInput(NOT_MADE)
        return self._rows

    def _watch_now(self) -> Watch:
        """Its monitors and its notice; of a key of a bank copies, as they are now."""
        if self._key is None:
            return self._watch
        with self._held() as rows:
            watch: Watch = rows.watch_of(self._slot)
            return watch

    @property
    def _events(self) -> int:
        """How many forecasts were made. The caller holds the rows."""
        return self._rows.events_of(self._slot)


add_hints(Calibrator, HINTS)
