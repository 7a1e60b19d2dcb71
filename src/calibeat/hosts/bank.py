"""The host of many streams: a matrix with a row for each key, served by the kernels that serve one stream.

===========  ===============================================================================================
of a `Bank`  is
===========  ===============================================================================================
`_store`     a `RowStore`: the rows, the index that finds them by key, the monitors and notices
`_members`   `Members`: the receipts of keys that were served one event at a time, and the objects ``bank[key]``
`_draws`     `Draws`: the random numbers of a hedging method
`_pool`      the row that learns from all keys, with ``prior="pooled"``
`_undo`      an `Undo`: the change that is being made, which happens whole or not at all
===========  ===============================================================================================
"""

from __future__ import annotations

import math
import os
from array import array
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar, TypeVar
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from calibeat._compiled import Forecast, MultiForecast
from calibeat._util import processes
from calibeat._util.check import (
    check_choice,
    check_interval,
    check_lengths,
    check_outcomes,
    check_score,
    check_scores,
    check_whole,
    shown,
)
from calibeat._util.columns import like
from calibeat._util.files import checked_path
from calibeat._util.types import Ints, Slots, UpdateStatus, Vector
from calibeat.core import loops
from calibeat.core.groups import NO_CELLS
from calibeat.core.layout import N
from calibeat.core.limits import MOST_COUNT, check_row, check_rows
from calibeat.core.loops import NO_INTS
from calibeat.core.method import AUTO, Method, method_named, name_of
from calibeat.core.randomness import numbered, stream_key, uniforms_at
from calibeat.core.receipt import receipt_of, watched_columns, watched_event
from calibeat.core.stats import EVENTS, LAST, add_class_losses, add_losses
from calibeat.errors import CalibeatError, InvalidInput, OutcomeConflict, UnknownForecast, UnknownKey
from calibeat.hosts.calibrator import (
    NOTICE,
    OURS,
    Calibrator,
    for_schedule,
    issue_times,
    noticed_score,
    noticed_scores,
    tell_elsewhere,
)
from calibeat.hosts.ledger import DIGITS, OPEN, OTHER, ZERO, AnyMethod, Issuer, Ledger, SettledEvents, new_generation
from calibeat.late import Arrivals, Schedule, schedule
from calibeat.monitor.bets import Alarm, RaisedAlarm, Settings
from calibeat.monitor.monitor import Monitor
from calibeat.monitor.monitors import Broken, Monitors
from calibeat.monitor.notice import Notice
from calibeat.monitor.notices import Notices, NoticeSettings, heard_of
from calibeat.monitor.silence import check_away, check_time
from calibeat.monitor.slots import Aside

from . import bankfile
from .keys import Key, KeyColumn, check_key, check_keys, plain_key
from .pool import Pool, learn, pool_rows, start_row
from .rows import Flags, Fold, FoldColumns, Matrix, ReceiptArray, RowStore, check_receipts, read_receipts, receipt_type
from .threads import Barrier, Serve, SlotRange, run_in_threads, slot_ranges, thread_count

ELSEWHERE = {  # what people look for, and where it is
    "fit": "run(keys, scores, outcomes), which learns a past event by event",
    "partial_fit": "update(key, forecast, outcome) of one event, or run(keys, scores, outcomes) of many",
    "predict_proba": "predict(key, score) of one event, or predict_many(keys, scores)",
    "transform": "predict_many(keys, scores)",
    "to_json": "save(path) and Bank.load(path); bank[key].to_json() is a calibrator of its own",
    "from_json": "save(path) and Bank.load(path)",
    "keys": "list(bank)",
    "monitor": "watched, the settings of the monitors; bank[key].monitor is that of a key",
    "notice": "noticed, the settings of the notices; bank[key].notice is that of a key",
    "alarms": "new_alarms(), or the columns of table; bank[key].monitor.alarms are those of a key",
    "groups": 'Calibrator(groups=["key", ...]): a bank has none',
}
_WORTH_A_THREAD = 20_000  # scores; fewer are done before another thread has begun
AnyAlarm = TypeVar("AnyAlarm", bound=Alarm)
NOWHERE: Flags = np.zeros(1, dtype=np.bool_)
_OUTCOMES_KEPT = 64  # events of a key, before its oldest one without an outcome, whose outcomes are remembered


class Bank:
    r"""A calibrator for each of any number of keys: same method, same bits as a `Calibrator` per key.

    Parameters
    ----------
    method : a `Method`, or the name of a preset such as ``"tops"``; AUTO if not given. It has to live in a row: the
        methods that fit their past again (FPS, WPS, WHB and their kin) do not.
    seed : for the draws of a hedging method. Keys draw independently: key k is ``Calibrator(method, seed, stream=k)``.
    prior : "pooled" starts a new key from a calibrator that learns on all keys' events; None (the default) from
        nothing, as a `Calibrator` does. It helps where keys are many and their events few.
    monitor : a `Monitor`; each key then has one with its settings, and `arl` counts outcomes of the whole bank. See
        `broken`, `miscalibrated`, `table` and docs/monitor.md.
    notice : a `Notice`; each key then has one with its settings: that nothing comes, that the score has moved. See
        `check`, `away`, `table`. The time of an event is what its clock says, or what `times` say.
    threads : how many for a batch; as many as this process may use processors if not given. Results never depend on it.

    Raises
    ------
    UnknownMethod : there is no preset of this name.
    InvalidInput : the method fits its past again, or another argument is not as above. A bank has no `groups`: a table
        for each key would splinter the data. Pass the key as an attribute, ``Calibrator(groups=["key", "country"])``.
    CalibeatError : by every call after an error in the middle of a large batch: load the bank anew.

    >>> from calibeat import Bank, TOPS
    >>> bank = Bank(TOPS)
    >>> p = bank.run(["paris", "rome", "paris"], [0.8, 0.3, 0.7], [1, 0, 1])     # keys: ints or strings
    >>> len(bank), "rome" in bank, list(bank)
    (2, True, ['paris', 'rome'])
    >>> bank["paris"].events                   # a Calibrator on that row
    2
    >>> f = bank.predict("oslo", 0.4)          # or one event at a time, with outcomes any time later
    >>> bank.update("oslo", f, 1)
    'learnt'
    >>> bank.table["events"]
    array([2, 1, 1])

    Any number of threads may use a bank: its calls run one after another. A call takes effect whole or not at all, also
    when Ctrl-C interrupts it. A row takes 8 bytes for each number of the method's state (TOPS 27, AUTO 171, HOPS 207)
    and 48 for its stats.
    """

    _SHARED: ClassVar[tuple[str, ...]] = ("method", "seed", "prior", "watched", "noticed")  # by banks that merge

    def __init__(
        self,
        method: Method | str = AUTO,
        seed: int = 0,
        *,
        prior: str | None = None,
        threads: int | None = None,
        monitor: Monitor | None = None,
        notice: Notice | None = None,
        groups: Any = None,
    ) -> None:
        refuse_groups(groups)
        if not isinstance(method, Method):
            method = method_named(method)
        if method.needs_history:
            raise InvalidInput(
                f"a bank needs a method that lives in a row, got {shown(name_of(method) or method)}, which fits its "
                "past again - use AUTO, OPS or TOPS, or a Calibrator for each key"
            )
        seed = check_whole("seed", seed, -(2**63), 2**63 - 1)
        self._begin(method, seed, repr(method), prior, threads, monitor, notice)

    def _begin(
        self,
        method: AnyMethod,
        seed: int,
        identity: str,
        prior: str | None,
        threads: int | None,
        monitor: Monitor | None,
        notice: Notice | None,
        labels: tuple[Any, ...] | None = None,
    ) -> None:
        """Hold rows of a method. `identity` tells its receipts from those of other banks; `labels` are the classes."""
        self._method, self._seed, self._numbers = method, seed, method.numbers
        self._identity, self._labels = identity, labels
        self._prior = None if prior is None else check_choice("prior", prior, ("pooled",))
        self._threads = thread_count(threads)
        self._lock = processes.new_lock()
        if monitor is not None and not isinstance(monitor, Monitor):
            raise InvalidInput(f"monitor must be a Monitor, got {shown(monitor)}")
        if notice is not None and not isinstance(notice, Notice):
            raise InvalidInput(f"notice must be a Notice, got {shown(notice)}")
        settings = None if monitor is None else monitor.settings, None if notice is None else notice.settings
        self._store = RowStore(method, *settings)
        self._now: Callable[[], float] = (lambda: math.nan) if notice is None else notice._now  # the time of events
        self._pool = method.initial_row()  # the row of the pool
        self._clock = 0  # forecasts made so far, of all keys
        self._writable = True
        self._broken = ""  # why, if a batch was broken off in its middle
        self._undo: Undo | None = None  # a change that is not finished
        self._owed: tuple[Any, ...] | None = None  # what the monitors have not been told yet: a function, its arguments
        self._is_forked = False  # whether this is a copy in a new process that has not been used yet
        self._hedges = method.draws
        self._receipt = np.dtype(f"V{receipt_type(method).itemsize}")
        self._draws = Draws(self._seed, hedges=self._hedges)
        self._members = Members(self)
        processes.register(self)

    def _forked(self) -> None:
        """In a child process: the first call begins a new generation of receipts."""
        self._is_forked = True

    # ---- what comes in, and how it goes out: `MultiBank` has its own ------------------------------------------------

    def _check_score(self, score: Any) -> Any:
        """The score of one event."""
        return check_score(score)

    def _check_scores(self, scores: Any) -> Vector:
        """The scores of a batch: `_numbers` for each event, one behind the other."""
        return check_scores(scores)

    def _check_outcomes(self, outcomes: Any, needed: Flags | None = None) -> Vector:
        """The outcomes of a batch: the column of each label; NaN where none is known or needed."""
        return check_outcomes(outcomes, needed, optional=True)

    def _check_some_scores(self, scores: Any, asked: Flags) -> Vector:
        """The scores of a fold; where none is asked for there may be anything."""
        return check_scores(scores, needed=asked)

    def _given_back(self, scores: Any, forecasts: Vector) -> Any:
        """The forecasts in the kind of the scores."""
        return like(scores, forecasts)

    def _folded(self, forecasts: Vector) -> Vector:
        """What `fold` gives of the forecasts of its operations."""
        return forecasts

    def _header(self) -> dict[str, Any]:
        """What a file says of the bank itself; `_of_header` makes another one of it."""
        return {"method": self._method.to_dict(), "seed": self._seed, "prior": self._prior}

    @classmethod
    def _of_header(cls, header: dict[str, Any], threads: int, watched: dict[str, Any]) -> Bank:
        if "multi" in header:
            raise InvalidInput("a bank of many classes, which MultiBank.load reads")
        try:
            method = Method.from_dict(header["method"])
        except InvalidInput as error:
            raise InvalidInput(f"a method that this version does not know: {error}") from error
        return cls(method, header["seed"], prior=header["prior"], threads=threads, **watched)

    def _member(self, key: Key, slot: int) -> Member:
        return Member(self, key, slot)

    def _alone(self, key: Key) -> Calibrator:
        """A calibrator as a new key would have it."""
        return Calibrator(self._method, self._seed, key)

    # ---- settings and contents --------------------------------------------------------------------------------------

    @property
    def method(self) -> Method:
        """The method of every key: its parts."""
        return self._method

    @property
    def seed(self) -> int:
        """The seed of the draws of a hedging method."""
        return self._seed

    @property
    def prior(self) -> str | None:
        """How a new key starts: "pooled", or None."""
        return self._prior

    @property
    def watched(self) -> Settings | None:
        """The settings of the keys' monitors, if there are any."""
        return self._store.watched

    @property
    def noticed(self) -> NoticeSettings | None:
        """The settings of the keys' notices, if there are any."""
        return self._store.noticed

    @property
    def kind(self) -> str:
        """What the keys are: "ints", "strings", or "none" as long as there are no keys."""
        return self._store.kind

    @property
    def events(self) -> int:
        """How many forecasts were made for the keys that are here."""
        with self._lock:
            self._check_not_broken()
            return int(self._store.stats(EVENTS).sum())

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the rows, the keys and their index take."""
        return self._store.nbytes

    @property
    def params(self) -> dict[str, npt.NDArray[Any]]:
        """The keys and their parameters, as a mapping of arrays that any data frame library takes.

        >>> from calibeat import Bank
        >>> bank = Bank("ops")
        >>> p = bank.run([7, 8, 7], [0.5, 0.5, 0.5], [1, 0, 1])
        >>> {name: column.round(3).tolist() for name, column in bank.params.items()}
        {'key': [7, 8], 'a': [1.0, 1.0], 'b': [0.098, -0.05]}

        For AUTO also the weight of each lane, named as in `Calibrator.params`.
        """
        with self._lock:
            self._check_not_broken()
            return {"key": self._store.names(), **self._store.params()}

    @property
    def table(self) -> dict[str, npt.NDArray[Any]]:
        """A row for each key, as a mapping of arrays that any data frame library takes.

        ============================  ============================================================================
        column                        holds
        ============================  ============================================================================
        key                           the key
        events, outcomes              forecasts made, outcomes learnt
        idle                          events of the whole bank since the last one of this key
        (parameters)                  as in `params`
        raw_log_loss, log_loss        mean log-loss of the scores and of the forecasts, over the outcomes learnt
        raw_brier, brier              their mean Brier score
        alarms, pages                 with monitors: alarms ever, and how many of them paged
        alarm_at, since, what         the last alarm: after how many outcomes, since when, what was wrong
        level                         the detector as a share of the alarm line
        log_e                         log e-value against "calibrated since the start"
        gain_low, gain_high           interval of the mean Brier gain over the score, valid at every moment
        state                         with notices: learning, good, silent, no outcomes, score moved, ...
        notices                       alarms of the notice ever
        noticed                       the last one: what was noticed,
        noticed_at, noticed_since     when, and since when, in seconds since 1970
        next_check                    the moment at which `check` is to be asked next
        ============================  ============================================================================

        In the log-loss the probability of what happened counts as at least 1e-5. Means over no outcome are NaN.

        >>> from calibeat import Bank
        >>> bank = Bank("ops")
        >>> p = bank.run([7, 8, 7], [0.5, 0.5, 0.5], [1, 0, 1])
        >>> bank.table["log_loss"].round(4)
        array([0.6808, 0.6931])
        """
        with self._lock:
            self._check_not_broken()
            return self._store.table(self._clock)

    def broken(self) -> Broken:
        """The keys that look broken now, the worst first, with a bound on the wrong names among them.

        It is the longest list of r keys whose level is at least 1/r each; an alarm counts 1 for the next `quiet`
        outcomes of its key. If `bound` is b, the expected share of wrong names is at most b. docs/monitor.md.

        Raises
        ------
        InvalidInput : the bank has no monitors.

        >>> from calibeat import Bank, Monitor
        >>> bank = Bank("ops", monitor=Monitor(arl=1_000_000, warm=0))
        >>> p = bank.run(["oslo", "rome"] * 500, [0.3] * 1000, [0, 1] * 500)
        >>> bank.broken().keys, bank.miscalibrated()
        (array(['rome', 'oslo'], dtype=object), array(['rome', 'oslo'], dtype=object))
        """
        with self._lock:
            found = self._monitors().broken()
            return found._replace(keys=self._store.names(found.keys))

    def miscalibrated(self, alpha: float = 0.05) -> npt.NDArray[Any]:
        """The keys whose forecasts were not calibrated since the start, the clearest first (e-BH).

        At any one time the expected share of wrong names is at most alpha. Do not collect names over time: the promise
        is about one list.

        Raises
        ------
        InvalidInput : the bank has no monitors, or alpha is not in (0, 1].
        """
        level = check_interval("alpha", alpha, 1e-300, 1.0)
        with self._lock:
            return self._store.names(self._monitors().miscalibrated(level))

    def check(self, now: float | None = None) -> list[tuple[Key, Alarm]]:
        """Ask the clock whether keys are silent for too long -> the new alarms, each with its key.

        `now`, by default what the notice's clock says, is in seconds since 1970. Each silence is one alarm. Ask now and
        then, or when the earliest ``next_check`` of `table` has passed. Alarms that events raise are in `table`.

        Raises
        ------
        InvalidInput : the bank has no notices, or was opened with ``mmap=True``; or the time is not in [0, 1e11].

        >>> from calibeat import Bank, Notice
        >>> bank = Bank("ops", notice=Notice())
        >>> times = [1_700_000_000 + 3600 * hour for hour in range(24 * 30)]
        >>> p = bank.run(["oslo"] * 720, [0.3] * 720, [0, 1] * 360, times=times)
        >>> [(key, alarm.what, alarm.page) for key, alarm in bank.check(times[-1] + 6 * 3600)]
        [('oslo', 'no forecasts', True), ('oslo', 'no outcomes', False)]
        >>> bank.table["state"]
        array(['silent'], dtype=object)
        """
        with self._lock:
            notices = self._notices()
            raised = notices.check(check_time("now", self._now() if now is None else now))
            return self._named(raised)

    def away(self, a: float, b: float) -> list[tuple[Key, Alarm]]:
        """Say that nobody listened from a to b, for any key: neither a silence nor a delay -> alarms of before a.

        Raises
        ------
        InvalidInput : the bank has no notices, or was opened with ``mmap=True``; or a time is not in [0, 1e11].
        """
        a, b = check_away(a, b)
        with self._lock:
            return self._named(self._notices().away(a, b))

    def new_alarms(self) -> list[tuple[Key, RaisedAlarm]]:
        """The alarms that monitors and notices of the keys have raised since the last call, each with its key, once.

        A key gives its last alarm of each source: "ours" is the monitor, "notice" the notice; it pages if one of those
        since the last call did. What `check` has raised is among them. A file knows which were given.

        This looks at every key. In a loop over single events, ``bank[key].new_alarms()`` asks one.

        Raises
        ------
        InvalidInput : the bank was opened with ``mmap=True``.

        >>> from calibeat import Bank, Monitor
        >>> bank = Bank("bm", monitor=Monitor(arl=1000, warm=0))
        >>> p = bank.run(["oslo", "rome"] * 30, [0.9] * 60, [0, 1] * 30)
        >>> [(key, alarm.what, alarm.page) for key, alarm in bank.new_alarms()], bank.new_alarms()
        ([('oslo', 'too high', True)], [])
        """
        with self._lock:
            return self._new_alarms()

    def _new_alarms(self, slots: Slots | None = None) -> list[tuple[Key, RaisedAlarm]]:
        """The same of some slots. The caller holds the lock."""
        self._check_writable("be asked")
        found: list[tuple[int, RaisedAlarm]] = []
        for source, watcher in ((OURS, self._store.monitors), (NOTICE, self._store.notices)):
            if watcher is not None:
                found += [(slot, RaisedAlarm.of(alarm, source)) for slot, alarm in watcher.new_alarms(slots)]
        return self._named(found)

    def _named(self, raised: list[tuple[int, AnyAlarm]]) -> list[tuple[Key, AnyAlarm]]:
        names = self._store.names(np.array([slot for slot, _ in raised], dtype=np.int32)).tolist() if raised else ()
        return [(key, alarm) for key, (_, alarm) in zip(names, raised, strict=True)]

    def _notices(self) -> Notices:
        self._check_writable("be asked")
        if self._store.notices is None:
            raise InvalidInput("a bank must have notices for this, got Bank(..., notice=None)")
        return self._store.notices

    def _monitors(self) -> Monitors:
        self._check_not_broken()
        if self._store.monitors is None:
            raise InvalidInput("a bank must have monitors for this, got Bank(..., monitor=None)")
        return self._store.monitors

    def table_of(self, keys: Any) -> dict[str, npt.NDArray[Any]]:
        """The rows of `table` for some keys, without a look at the others.

        Raises
        ------
        UnknownKey : the bank does not have one of the keys.
        """
        with self._lock:
            self._check_not_broken()
            return self._store.table(self._clock, self._slots_of(keys))

    @property
    def receipt_type(self) -> np.dtype[np.void]:
        """The layout of the receipts of `fold`: ``receipts.view(bank.receipt_type)["event"]``."""
        return receipt_type(self._method)

    # ---- many events ------------------------------------------------------------------------------------------------

    def run(
        self,
        keys: Any,
        scores: Any,
        outcomes: Any,
        *,
        due: Any = None,
        mature: Any = None,
        times: Any = None,
        outcome_times: Any = None,
        finish: bool = False,
        threads: int | None = None,
        groups: Any = None,
    ) -> Any:
        """Predict and then update, event after event in the order of the arrays, each on the row of its key.

        Parameters
        ----------
        keys : ints or strings, old and new: a list, or a column of NumPy, Arrow, pandas or polars.
        scores : probabilities in [0, 1].
        outcomes : 0 or 1 (False or True); NaN where it is not known: such an event is forecast and not learnt.
        due : for late outcomes, positions in this batch. Outcome i arrives before event ``due[i]`` (> i), whatever its
            key, and is learnt before the next event of its own key; of several at once the earlier event's comes first.
            One that is due at ``len(scores)`` or later never arrives, and its place in `outcomes` may hold anything.
        mature : the age at which an outcome is learnt, ones and zeros alike: a number of positions of this batch, or a
            time such as ``"30min"`` with `times`. One that is due later than that is learnt when it is due. Until a key
            has learnt its first outcome its forecasts are the raw scores (unless it started from a pool that had learnt
            some).
        times : when each score was issued, in order, where `mature` is a time, or where there are notices. To a notice
            an outcome comes when its key learns it; without times the whole batch happens now, by the notice's clock.
        outcome_times : with `times`, instead of `due`: when each outcome is known; missing where it never is. Several
            that a key learns at once are learnt in the order of these times.
        finish : outcomes that are due later are learnt at the end, after the last event, in the order of `due`.
        threads : for this batch, instead of the bank's own number.

        Returns the forecasts, in the kind of `scores` (array, Series). Either all events are taken or, if something is
        wrong with one, none. Ctrl-C interrupts a small batch at once and undoes it. A large one (20,000 events) goes on
        in the background, and the next call waits for its end.

        With `due`, key k gets the bits of ``Calibrator.run(..., due=own)`` on its own events, where own counts how many
        of them come before position due.

        Raises
        ------
        InvalidInput : a key, score, outcome, `due` or age is not as above (the first bad row is named), the arrays
            differ in length, the bank was opened with ``mmap=True``, or there are `groups`, which a bank does not have.

        >>> from calibeat import Bank
        >>> Bank("ops").run([7, 8, 7], [0.5, 0.5, 0.5], [1, 0, 1]).round(4)
        array([0.5   , 0.5   , 0.5125])
        >>> Bank("ops").run([7, 8, 7], [0.5, 0.5, 0.5], [1, 0, 1], due=[3, 3, 3]).round(4)
        array([0.5, 0.5, 0.5])
        """
        refuse_groups(groups)
        column = check_keys(keys)
        count, probabilities = len(column), self._check_scores(scores)
        n = len(probabilities) // self._numbers
        issued = None if self._store.notices is None else issue_times(times, n)
        planned = schedule(
            n, due, mature, for_schedule(times, issued, mature, outcome_times), outcome_times, finish=finish
        )
        labels = self._check_outcomes(outcomes, None if planned is None else planned.due <= n)
        check_lengths(keys=count, scores=n, outcomes=len(labels))
        workers = self._threads if threads is None else thread_count(threads)
        with self._lock:
            self._check_writable("learn")
            batch = self._store.check(column), probabilities, labels, planned, workers
            return self._given_back(scores, self._run(*batch, issued, raw_first=mature is not None))

    def predict_many(self, keys: Any, scores: Any, groups: Any = None) -> Any:
        """Forecast many scores from the present state: no receipts, nothing learnt, nothing changed.

        A key that the bank does not know gets the forecast that it would get as a new one.

        Raises
        ------
        InvalidInput : a key or a score is not as in `run`, or there are `groups`.

        >>> from calibeat import Bank
        >>> Bank("ops").predict_many(["a", "b"], [0.1, 0.9]).round(12)
        array([0.1, 0.9])
        """
        refuse_groups(groups)
        column, probabilities, K = check_keys(keys), self._check_scores(scores), self._numbers
        n = len(probabilities) // K
        check_lengths(keys=len(column), scores=n)
        with self._lock:
            self._check_not_broken()
            store = self._store
            slots = store.find(store.check(column))
            draws = self._draws.of_all(store, column, slots)
            fresh, forecasts, work = self._fresh_row(), np.empty(n * K), self._method.scratch()

            def play() -> None:
                for part in loops.pieces(n, K):
                    rows = loops.Streams(store.flat, store.stride, slots[part], 0, len(store), 0, 0.0)
                    numbers = slice(part.start * K, part.stop * K)
                    columns = probabilities[numbers], loops.NO_NUMBERS, draws[part], forecasts[numbers]
                    batch = loops.Batch(*columns, loops.NO_NUMBERS, work)
                    loops.predict_many(self._method.spec, NO_CELLS, rows, fresh, batch)

            if self._writable:
                play()
        if not self._writable:  # the rows do not change, so several threads may work at the same time
            play()
        return self._given_back(scores, forecasts)

    def fold(
        self,
        keys: Any,
        scores: Any,
        outcomes: Any,
        receipts: Any = (),
        *,
        of: Any = None,
        times: Any = None,
        groups: Any = None,
    ) -> Fold:
        """Forecasts and late outcomes of many keys, mixed, in one pass: the same bits as `predict`, `update`.

        Parameters
        ----------
        keys : the key of each operation, in order.
        scores : the score of a forecast; NaN for an outcome.
        outcomes : 0 or 1 for an outcome; NaN for a forecast.
        receipts : of the outcomes whose forecast was made in an earlier call, in order: bytes, as `fold` gave them.
            Those that a copy of the bank has issued, or this one after the snapshot it continues from, are refused.
        of : for outcomes of forecasts in this same call, the position of the forecast; -1 for all others.
        times : where there are notices, when each operation happened, in order; by default now, by the notice's clock.

        Returns ``(forecasts, receipts)``: a forecast for each operation (NaN for an outcome), and a receipt of fixed
        width for each forecast, as an array whose ``.tolist()`` is a list of bytes. Its layout is `receipt_type`.
        Either all operations are taken or none. Bring each receipt once: the store of the receipts has to see to that.

        Raises
        ------
        InvalidInput : a key, score, outcome, position or receipt is not as above, the bank cannot learn, or there are
            `groups`, which a bank does not have.
        UnknownKey : an outcome comes before the first forecast of its key.
        UnknownForecast : a receipt is of another bank, key or copy, or `of` points at a forecast of another key.
        OutcomeConflict : a receipt was brought before.

        >>> from math import nan
        >>> from calibeat import Bank
        >>> bank = Bank("ops")
        >>> first = bank.fold(["oslo", "rome"], [0.8, 0.3], [nan, nan])
        >>> stored = first.receipts.tolist()
        >>> len(stored), len(stored[0])
        (2, 104)
        >>> bank.fold(["rome", "oslo", "oslo"], [nan, nan, 0.8], [0, 1, nan], stored[::-1]).forecasts.round(4)
        array([   nan,    nan, 0.8092])
        """
        refuse_groups(groups)
        if type(keys) is list and len(keys) == 1 and of is None and times is None:
            alone = self._fold_one(keys[0], scores, outcomes, receipts)
            if alone is not None:
                return alone
        column = check_keys(keys)
        labels = self._check_outcomes(outcomes)
        asked = np.isnan(labels)
        probabilities = self._check_some_scores(scores, asked)
        check_lengths(keys=len(column), scores=len(probabilities) // self._numbers, outcomes=len(labels))
        positions = None if of is None else np.asarray(of).astype(np.int64, casting="same_kind")
        if times is not None and self._store.notices is None:
            raise InvalidInput("times must come with notices, which they are for, got a bank without")
        issued = issue_times(times, len(column))
        with self._lock:
            self._check_writable("learn")
            happened = np.full(len(column), self._now()) if issued is None else issued
            return self._fold(self._store.check(column), probabilities, labels, receipts, positions, happened)

    def _fold_one(self, key: Any, scores: Any, outcomes: Any, receipts: Any) -> Fold | None:
        """`fold` of one operation, for a key that is here, by `predict` or `update`: it takes a third of the time.

        None where anything is unusual: `fold` itself does it then, or says what is wrong.
        """
        lists = type(key) in (int, str) and type(scores) is list and type(outcomes) is list
        if not lists or not len(scores) == len(outcomes) == 1 or self._labels is not None:
            return None
        score, y = scores[0], outcomes[0]
        asks = type(y) is float and y != y  # noqa: PLR0124 - NaN
        if asks:
            good = type(score) is float and 0.0 <= score <= 1.0 and len(receipts) == 0
        else:
            known = type(y) in (int, float) and y in (0, 1)
            good = known and type(receipts) is list and len(receipts) == 1 and type(receipts[0]) is bytes
        with self._lock:
            self._check_writable("learn")
            slot = self._slot(key) if good else -1
            if slot < 0:
                return None
            member = self._members.serving(key, slot)
            if asks:
                forecast = member._predict_taken(score)
                made = np.frombuffer(bytearray(forecast.to_bytes()), dtype=self._receipt)
                return Fold(np.array([forecast.probability]), made)
            try:
                given = Forecast.from_bytes(receipts[0])
                if member._receipts.settled.mark(given.event) != OPEN:
                    return None
                member._update_taken(given, int(y))
            except CalibeatError:
                return None
            return Fold(np.array([np.nan]), np.empty(0, dtype=self._receipt))

    # ---- one event --------------------------------------------------------------------------------------------------

    def predict(self, key: Key, score: Any, groups: Any = None) -> Any:
        """Forecast one event of a key; the forecast is the receipt for `update`. A key may be new.

        Raises
        ------
        InvalidInput : the score is not a number in [0, 1], the key is not of the kind of the bank's keys, or there are
            `groups`: a bank has none.

        >>> from calibeat import Bank
        >>> Bank("ops").predict("paris", 0.25).probability
        0.25
        """
        refuse_groups(groups)
        with self._lock:
            self._check_not_broken()
            name = plain_key(key)
            slot = self._store.find_one(name)
            key = name if isinstance(name, int) else check_key(key)
            if slot >= 0:
                return self._members.serving(key, slot)._predict_taken(score)
            self._check_score(score)  # before a row is made for it; the score itself is read once, with the row
            if not self._writable:  # what a new key would get, without a row for it
                unknown = self._alone(key)
                unknown._row[:] = array("d", self._fresh_row())
                return unknown.predict(score)
            with Undo(self) as undo:
                slot = self._store.open_one(name)
                self._store.matrix[slot, : self._method.width] = self._fresh_row()
                forecast = self._members.serving(key, slot)._predict_taken(score)
                undo.keep()
            return forecast

    def update(self, key: Key, forecast: Any, outcome: Any = None) -> UpdateStatus:
        """Learn the outcome of a forecast of this key, now or any time later, in any order -> "learnt" or "repeated".

        Raises
        ------
        UnknownKey : the bank does not have this key.
        UnknownForecast : the forecast was not made by this bank for this key, or is too old.
        OutcomeConflict : the other outcome of this forecast was learnt before; the same one again changes nothing.
        InvalidInput : the outcome is not 0 or 1, the forecast is damaged, or the bank was opened with ``mmap=True``.
        """
        if outcome is None and isinstance(key, (Forecast, MultiForecast)):
            raise InvalidInput("key must come first, got a forecast - the order is bank.update(key, forecast, outcome)")
        with self._lock:
            self._check_writable("learn")
            slot = self._known(key)
            key = check_key(key) if type(key) is not str else key
            return self._members.serving(key, slot)._update_taken(forecast, outcome)

    # ---- as a collection --------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        with self._lock:
            self._recover()
            return len(self._store)

    def __iter__(self) -> Iterator[Key]:
        with self._lock:
            self._recover()
            return iter([] if self._store.index is None else list(self._store.index))

    def __contains__(self, key: object) -> bool:
        with self._lock:
            self._recover()
            return self._slot(key) >= 0

    def __repr__(self) -> str:
        name = name_of(self._method)
        with self._lock:
            keys, events = len(self), int(self._store.stats(EVENTS).sum())
        return f"Bank({name.upper() if name else self._method}, keys={keys}, events={events})"

    def __getitem__(self, key: Key) -> Calibrator:
        """A live `Calibrator` on the row of a key: what it learns the bank has learnt, and the other way round.

        Raises
        ------
        UnknownKey : the bank does not have this key.
        """
        with self._lock:
            self._recover()
            return self._members.of(key)

    def __delitem__(self, key: Key) -> None:
        """Forget a key. The key of the last row takes its place, so the order of the keys changes.

        Raises
        ------
        UnknownKey : the bank does not have this key.
        """
        with self._lock:
            self._check_writable("forget")
            name, slot = check_key(key), self._known(key)
            with Undo(self) as undo:
                undo.remember_key(slot)
                self._draws.forget_from(slot)
                self._store.remove(slot)
                undo.keep(lambda: self._members.forget([name]))

    # ---- rows out and rows in ---------------------------------------------------------------------------------------

    def rows(self, keys: Any) -> Matrix:
        """The rows of some keys, as a copy: `method.width` numbers of state and six of stats; `set_rows` takes them.

        ``rows[i].tobytes()`` is what a database keeps of a key.

        Raises
        ------
        UnknownKey : the bank does not have one of the keys.

        >>> from calibeat import Bank
        >>> east, west = Bank("ops"), Bank("ops")
        >>> p = east.run(["oslo", "rome"], [0.8, 0.3], [1, 0])
        >>> west.set_rows(["rome"], east.rows(["rome"]))
        >>> west.predict_many(["rome"], [0.3]) == east.predict_many(["rome"], [0.3])
        array([ True])
        """
        with self._lock:
            self._check_not_broken()
            return self._store.matrix[self._slots_of(keys)]

    def set_rows(self, keys: Any, rows: Any) -> None:
        """Put rows in place, of old and of new keys: exact bytes, from `rows` of a bank of the same method.

        Ledger of the forecasts that they count are accepted from then on. All rows are taken or none.

        Raises
        ------
        InvalidInput : a row is not one that the method can have (its number is named), a key comes twice, or the bank
            was opened with ``mmap=True``.
        """
        with self._lock:
            self._check_writable("take rows")
            store, column, matrix = self._store, self._store.check(check_keys(keys)), np.asarray(rows)
            if matrix.dtype != np.float64 or matrix.shape != (len(column), store.stride):
                wanted = f"float64 of shape ({len(column)}, {store.stride})"
                raise InvalidInput(f"rows must be {wanted}, got {matrix.dtype} of shape {matrix.shape}")
            check_rows(self._method, matrix, MOST_COUNT)
            clock = max(self._clock, int(matrix[:, self._method.width + LAST].max(initial=0.0)))
            with Undo(self) as undo:
                slots = store.open(column)
                if len(np.unique(slots)) != len(slots):
                    raise InvalidInput("keys must be different, got one of them twice")
                undo.remember(slots)
                store.matrix[slots] = matrix
                store.accept_foreign(slots)
                for watcher in store.watchers:
                    watcher.restart_changed(slots, store.stats(EVENTS)[slots])
                self._clock = clock
                store.moves += 1  # so that members look again
                self._members.complete = False
                undo.keep(lambda: self._members.let_go(column.plain()))

    @property
    def pool(self) -> Vector:
        """The row that new keys start from with ``prior="pooled"``, as a copy. It may be set, like `set_rows`."""
        with self._lock:
            self._check_not_broken()
            return self._pool.copy()

    @pool.setter
    def pool(self, row: Any) -> None:
        with self._lock:
            self._check_writable("take rows")
            pool, width = np.array(row, dtype=np.float64), self._method.width
            if pool.shape != (width,):
                raise InvalidInput(f"pool must be {width} numbers, got shape {pool.shape}")
            check_row(self._method, pool, pool[N])
            self._pool = pool

    # ---- growing and shrinking --------------------------------------------------------------------------------------

    def merge(self, other: Bank) -> None:
        """Take the keys of another bank of the same method, as shards of several machines come together.

        How long ago a key had its last event is kept, in events of the bank that it came from. A pool stays as it is
        here, unless it has seen nothing yet.

        Raises
        ------
        InvalidInput : the banks have a key in common, which is named, or differ in a setting. Nothing is taken then.

        >>> from calibeat import Bank
        >>> east, west = Bank("ops"), Bank("ops")
        >>> p, q = east.run(["oslo"], [0.5], [1]), west.run(["rome"], [0.5], [0])
        >>> east.merge(west)
        >>> sorted(east)
        ['oslo', 'rome']
        """
        if type(other) is not type(self):
            raise InvalidInput(f"bank must be merged with a {type(self).__name__}, got {type(other).__name__}")
        first, second = sorted((self, other), key=id)  # in one order, or two banks could wait for each other
        with first._lock, second._lock:
            self._check_writable("take keys")
            other._check_not_broken()
            self._merge(other)

    def _merge(self, other: Bank) -> None:
        for what in self._SHARED:
            our, their = getattr(self, what), getattr(other, what)
            if our != their:
                raise InvalidInput(f"banks must have the same {what}, got {shown(our)} and {shown(their)}")
        store, theirs, first = self._store, other._store, len(self)
        column = None if theirs.index is None else store.check(theirs.index.column())
        if column is not None and theirs.index is not None:
            common = store.find(column) >= 0
            if common.any():
                key = theirs.index.key(int(common.argmax()))
                raise InvalidInput(f"banks must have no key in common, got {shown(key)} in both")
        with Undo(self) as undo:
            if self._clock < other._clock:
                undo.remember(np.arange(first, dtype=np.int32))
            if column is not None:
                store.take(column, theirs)
            self._members.take(other._members)
            clock = max(self._clock, other._clock)
            store.stats(LAST)[:first] += clock - self._clock
            store.stats(LAST)[first:] += clock - other._clock
            self._clock = clock
            if self._pool[N] == 0.0:
                self._pool[:] = other._pool
            undo.keep()

    def drop_idle(self, before: int) -> Bank:
        """Forget the keys without an event among the last `before` of the bank, and return them as a bank.

        This bounds the memory: at most `before` keys are left (after a merge, `before` of each bank).

        >>> from calibeat import Bank
        >>> bank = Bank("ops")
        >>> p = bank.run([7, 8, 8], [0.5, 0.5, 0.5], [1, 0, 1])
        >>> list(bank.drop_idle(before=2)), list(bank)
        ([7], [8])
        """
        before = check_whole("before", before, 0, 2**53)
        with self._lock:
            self._check_writable("forget")
            store, idle = self._store, self._store.stats(LAST) <= self._clock - before
            dropped = self._empty()
            dropped._clock, dropped._pool, dropped._now = self._clock, self._pool.copy(), self._now
            dropped._store = store.selected(idle)
            dropped._store.accept_foreign_rows()
            dropped._members.take(self._members)
            if idle.any():
                kept, gone = store.selected(~idle), list(dropped)
                kept.moves += store.moves + 1  # so that members look again
                with Undo(self) as undo:
                    self._draws.forget_from(0)
                    self._store = kept
                    undo.keep(lambda: self._members.forget(gone))
            return dropped

    def _empty(self) -> Bank:
        """A bank of the same settings without keys. Its monitors come with its rows."""
        return Bank(self._method, self._seed, prior=self._prior, threads=self._threads)

    # ---- files ------------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the bank to one file: versioned, checksummed, and whole or not at all.

        The new file is read again, and replaces the old one only if it holds what was written. A crash in the middle
        leaves the file that was there before. Other threads wait while it is written, and go on while it is checked.

        Raises
        ------
        OSError : the file cannot be written.
        SnapshotMismatch : the written file does not hold what was written; the old one stays.
        """
        with self._lock:
            self._check_not_broken()
        bankfile.save(self, checked_path(path))

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, mmap: bool = False, verify: bool = True, threads: int | None = None
    ) -> Bank:
        """Continue from a file.

        Parameters
        ----------
        mmap : read the file where it lies, without a copy; several processes share its pages, and it may be larger
            than memory. Such a bank can be read and asked for forecasts, but cannot learn.
        verify : compare the checksums, and check every row and key, for which all of it is read. The header and the
            length of the file are looked at in any case. Leave it out only for files that you trust.

        Raises
        ------
        SnapshotMismatch : the file was cut or damaged, or does not hold a bank.
        InvalidInput : the file does not fit in memory.

        >>> import tempfile, pathlib
        >>> from calibeat import Bank
        >>> bank = Bank("tops")
        >>> p = bank.run(["oslo", "rome"], [0.4, 0.6], [0, 1])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     bank.save(pathlib.Path(folder) / "cities.bank")
        ...     twin = Bank.load(pathlib.Path(folder) / "cities.bank")
        >>> twin["rome"].to_json() == bank["rome"].to_json()
        True
        """
        return bankfile.load(cls, checked_path(path), mmap=mmap, verify=verify, threads=thread_count(threads))

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies, also those of other processes, are banks of their own, in memory."""
        with self._lock:
            self._check_not_broken()
            arrays = {name: array.copy() for name, array in bankfile.sections_of(self).items()}
            return bankfile.copied, (type(self), bankfile.header_of(self), arrays, self._threads)

    # ---- a batch ----------------------------------------------------------------------------------------------------

    def _run(
        self,
        column: KeyColumn,
        scores: Vector,
        outcomes: Vector,
        planned: Schedule | None,
        workers: int,
        issued: Vector | None,
        *,
        raw_first: bool,
    ) -> Vector:
        """The forecasts of a batch, which is learnt: all its events or none. The caller holds the lock.

        A small batch is undone if it is broken off: its rows are put aside before. A large one runs in threads that no
        Ctrl-C reaches; once they have begun they finish it. The interrupt is raised at once, and the next call waits.
        """
        store, forecasts, n = self._store, np.empty(len(scores)), len(outcomes)
        large = len(scores) >= _WORTH_A_THREAD
        if large:  # the threads may read them when the caller has them back
            scores, outcomes = scores.copy(), outcomes.copy()
        with Undo(self) as undo:
            slots = store.open(column)
            count = len(store)
            arrivals = None if planned is None else Arrivals(planned, outcomes, slots, count)
            raw_below = self._raw_below(slots, arrivals) if raw_first and arrivals is not None else 0
            serve = self._server(slots, scores, outcomes, arrivals, forecasts, raw_below)
            if store.monitors is not None:
                watched = partial(watched_columns, self._numbers, forecasts, outcomes, scores)
                serve = store.monitors.after(serve, slots, watched, None if planned is None else planned.due)
            if store.notices is not None and n:
                times = np.full(n, self._now()) if issued is None else issued
                heard = slots, times, noticed_scores(self._numbers, scores), outcomes
                late = () if arrivals is None else (arrivals.moments, arrivals.order)
                serve = store.notices.after(serve, heard_of(*heard, *late))
            if not large:
                undo.remember(slots)
            if self._prior:
                self._teach_pool(undo.count, slots, scores, outcomes, arrivals)
            done = False
            if large:
                barrier, workers = Barrier(), max(1, min(workers, len(scores) // _WORTH_A_THREAD))
                undo.leave_to(barrier, n)
                done = run_in_threads(serve, slot_ranges(slots, count, workers), barrier)
            if not done:
                if large:
                    undo.remember(slots)
                serve((0, count))
            self._clock = undo.clock + n
            undo.keep()
        return forecasts

    def _server(
        self,
        slots: Slots,
        scores: Vector,
        outcomes: Vector,
        arrivals: Arrivals | None,
        forecasts: Vector,
        raw_below: int,
    ) -> Serve:
        """A function that serves a range of slots. Everything that it needs is made here."""
        store, method, n, width = self._store, self._method, len(outcomes), self._store.receipt_width
        late, end, receipts = None, n, loops.NO_NUMBERS
        if arrivals is not None:
            end, receipts = n + 1, np.empty(n * width)  # of all ranges
            late = loops.Late(0, np.empty(n, dtype=np.int64), arrivals.moments, arrivals.order, raw_below)
        columns = scores, outcomes, self._draws.of(store, slots), forecasts, receipts
        rows = store.flat, store.stride, slots
        clock = float(self._clock)

        def serve(part: SlotRange) -> None:
            streams, batch = loops.Streams(*rows, *part, method.width, clock), loops.Batch(*columns, method.scratch())
            loops.run_batch(method.spec, streams, batch, late, loops.place_before(), end)

        return serve

    def _raw_below(self, slots: Slots, arrivals: Arrivals) -> int:
        """Streams of slots below this forecast the raw score until they have learnt an outcome.

        Those that start from a pool that has learnt something do not. Slots are given in the order of first events.
        """
        if not self._prior:
            return len(self._store)
        if self._pool[N] > 0.0:
            return 0
        first = int((arrivals.heads >= 0).argmax()) if (arrivals.heads >= 0).any() else len(slots)
        return int(slots[:first].max(initial=-1)) + 1

    def _teach_pool(
        self, opened: int, slots: Slots, scores: Vector, outcomes: Vector, arrivals: Arrivals | None
    ) -> None:
        """The pool's way through the batch; it also starts the rows from slot `opened` on."""
        store, pool = self._store, Pool(True, self._pool, self._store.fresh, opened, self._method.scratch())
        lists = (NO_INTS, NO_INTS) if arrivals is None else (arrivals.heads, arrivals.following)
        pool_rows(self._method.spec, pool, store.flat, store.stride, slots, scores, outcomes, *lists)

    def _fold(
        self, column: KeyColumn, scores: Vector, outcomes: Vector, receipts: Any, of: Ints | None, times: Vector
    ) -> Fold:
        """`fold` on input whose lengths and values were checked. The caller holds the lock."""
        asked, store, members = np.isnan(outcomes), self._store, self._members
        own = _own_forecasts(asked, of)
        given = read_receipts(self._method, receipts, int((~asked & (own < 0)).sum()))
        with Undo(self) as undo:
            slots = self._slots_of_operations(column, asked)
            undo.remember(slots)
            columns = FoldColumns(self._method, slots, scores, outcomes, own)
            members.identify(columns)
            bad = (own >= 0) & (slots[np.maximum(own, 0)] != slots) if of is not None else NOWHERE
            if bad.any():
                row = int(bad.argmax())
                raise UnknownForecast(f"outcome must be of a forecast of its own key, got another key's - at row {row}")
            if len(given):
                self._check_given(given, columns)
                columns.bring(given)
            pool = None if self._prior is None else self._pool
            draws = self._draws.of(store, slots[asked])
            columns.run(store.flat, undo.clock, draws, pool, store.fresh, undo.count)
            columns.watch(store.monitors)
            columns.notice(store.notices, times)
            made, settled = columns.made(), columns.settled()
            result = Fold(self._folded(columns.forecasts), made.view(self._receipt))
            self._clock = undo.clock + len(made)
            undo.keep(lambda: members.fold(settled))
        return result

    def _slots_of_operations(self, column: KeyColumn, asked: Flags) -> Slots:
        """The slot of each operation of `fold`; a new key is opened by its first forecast."""
        slots = self._store.find(column)
        new = slots < 0
        if new.any():
            slots = self._store.open(column)
            # Slots are given in the order of the operations, so the first operation of a new slot is the one that is
            # larger than all before it.
            first = new & (slots > np.maximum.accumulate(np.concatenate([[-1], slots[:-1]])))
            bad = first & ~asked
            if bad.any():
                row = int(bad.argmax())
                raise UnknownKey(f"key must have had a forecast before an outcome, got a new key - at row {row}")
        return slots

    def _check_given(self, given: ReceiptArray, columns: FoldColumns) -> None:
        """Raise unless each receipt is one that this bank, or one that it continues, has issued for the key."""
        rows = columns.brought
        same = given["issuer"] == columns.issuers[rows]
        matrix, slots = self._store.matrix, columns.slots[rows]
        check_receipts(self._method, matrix[slots, self._method.width + EVENTS], matrix[slots, N], given, rows, same)
        self._members.check_given(given, columns)

    # ---- inner ------------------------------------------------------------------------------------------------------

    def _recover(self) -> None:
        """Finish what an interrupted call or a fork has left. The caller holds the lock.

        If it is interrupted itself, the next call does it.
        """
        if self._undo is not None:
            self._undo.finish()
        if self._owed is not None:
            self._tell()
        if self._is_forked:
            self._members.begin_generation()
            self._is_forked = False

    def _tell(self) -> None:
        """Tell the monitors what they do not know yet; they may be told twice."""
        if self._owed is not None:
            tell, *arguments = self._owed
            tell(*arguments)
            self._owed = None

    def _check_not_broken(self) -> None:
        if self._undo is not None or self._owed is not None or self._is_forked:
            self._recover()
        if self._broken:  # only some events of a batch were taken
            raise CalibeatError(
                f"a bank must be loaded anew after an error in the middle of a batch, got {self._broken}"
            )

    def _slots_of(self, keys: Any) -> Slots:
        """The slots of keys that must be here."""
        slots = self._store.find(self._store.check(check_keys(keys)))
        missing = slots < 0
        if missing.any():
            raise UnknownKey(f"key must be one of the {len(self)} keys of the bank - at row {int(missing.argmax())}")
        return slots

    def _slot(self, key: Any) -> int:
        """The slot of a key, -1 if there is none."""
        try:
            return self._store.find_one(plain_key(key))
        except InvalidInput:
            return -1

    def _known(self, key: Any) -> int:
        slot = self._slot(key)
        if slot < 0:
            known = f"key must be one of the {len(self)} keys of the bank, got {shown(key)}"
            raise UnknownKey(f"{known} - predict(key, score) and run make new ones")
        return slot

    def _fresh_row(self) -> Vector:
        """The row that a new key would get now."""
        row = np.empty(self._method.width)
        if self._prior:
            start_row(self._method.spec, Pool(True, self._pool, self._store.fresh, 0), row)
        else:
            row[:] = self._store.fresh
        return row

    def _pool_after(self, score: Any, y: float) -> Vector:
        """The pool when it has learnt an outcome that came alone; the bank's own stays as it is."""
        if not self._prior:
            return self._pool
        pool = self._pool.copy()
        learning = Pool(True, pool, self._store.fresh, 0, self._method.scratch())
        learn(self._method.spec, learning, np.atleast_1d(score), y)
        return pool

    def _check_writable(self, what: str) -> None:
        self._check_not_broken()
        if not self._writable:
            raise InvalidInput(f"a bank that was opened with mmap=True cannot {what}, load it without")


tell_elsewhere(Bank, ELSEWHERE)


def _own_forecasts(asked: Flags, of: Ints | None) -> Ints:
    """For an outcome of a forecast in this same call, where that is; -1 for all others."""
    n = len(asked)
    if of is None:
        return np.full(n, -1)
    check_lengths(keys=n, of=len(of))
    own = np.where(asked, -1, of)
    bad = (own < -1) | (own >= np.arange(n)) | ((own >= 0) & ~asked[np.clip(own, 0, n - 1)])
    if bad.any():
        row = int(bad.argmax())
        raise InvalidInput(f"of must be the position of an earlier forecast or -1, got {int(own[row])} - at row {row}")
    return own


# ---- one key: ``bank[key]`` --------------------------------------------------------------------------------------


def refuse_groups(groups: Any) -> None:
    """Raise `InvalidInput` where a bank is given groups."""
    if groups is not None:
        raise InvalidInput(
            "a bank has no groups: a table for each key would splinter the data - pass the key as an attribute, "
            'Calibrator(groups=["key", ...])'
        )


class Member(Calibrator):
    """What ``bank[key]`` gives: a calibrator that works on a copy of the key's row and puts it back in one step.

    It and the bank share their state. A copy, a pickle or `to_json` gives a calibrator of its own.
    """

    def __init__(self, bank: Bank, key: Key, slot: int) -> None:
        self._bank = bank
        self._gone = False
        self._whole = memoryview(array("d", bytes(8 * bank._store.stride)))
        self._stats = self._whole[bank._method.width :]
        self._serve_row(self._whole[: bank._method.width])
        self._is_member = True  # the record is marked with the bank, not before
        self._lock = bank._lock
        self._aim(key, slot)

    def _serve_row(self, row: Any) -> None:
        self._begin(self._bank._method, self._bank._seed, 0, row, "")

    def _aim(self, key: Key, slot: int) -> None:
        """Be the member of a key."""
        bank = self._bank
        self._moves = -1  # until all of it is there
        self._key_of_bank, self._slot = key, slot
        self._stream, self._key = key, stream_key(bank._seed, key)
        self._receipts = bank._members.receipts(key, slot)
        self._begin_generation(self._receipts.issuer.signature, self._key)
        self._take_row()
        self._moves = bank._store.moves

    def _take_row(self) -> None:
        store = self._bank._store
        at = self._slot * store.stride
        self._whole[:] = store.view[at : at + store.stride]
        self._events = int(self._stats[EVENTS])
        if self._receipts.known != self._events:
            self._receipts.catch_up(self._events)

    def _refresh(self) -> None:
        with self._lock:
            self._bank._check_not_broken()
            if self._gone:
                key = shown(self._key_of_bank)
                raise UnknownKey(f"key must be one of the bank's, got {key}, which it has forgotten")
            if self._moves != self._bank._store.moves:
                self._aim(self._key_of_bank, self._bank._known(self._key_of_bank))
            else:
                self._take_row()

    def _sign(self) -> str:
        self._signature = self._receipts.issuer.ensure_signature(self._bank._members.generation)
        return self._signature

    def predict(self, score: Any, groups: Any = None) -> Any:
        refuse_groups(groups)
        with self._lock:
            self._refresh()
            return self._predict_taken(score)

    def update(self, forecast: Any, outcome: Any) -> UpdateStatus:
        with self._lock:
            self._bank._check_writable("learn")
            self._refresh()
            return self._update_taken(forecast, outcome)

    def _predict_taken(self, score: Any) -> Any:
        """Forecast from the copy of the row; then count the event, in one step."""
        bank, view, receipts = self._bank, self._bank._store.view, self._receipts
        forecast = super().predict(score)
        if bank._writable:
            store, clock, events = bank._store, bank._clock + 1, forecast.event + 1
            at = self._slot * bank._store.stride + len(self._row)
            count, time = events + 0.0, clock + 0.0
            owed = None
            if store.watchers:
                heard = noticed_score(receipt_of(forecast).score)
                owed = store.tell_forecast, self._slot, events, heard, bank._now()
            # One line, without a call: an interrupt comes before all of it or after all of it.
            view[at + EVENTS], view[at + LAST], bank._clock, receipts.known, bank._owed = (
                count, time, clock, events, owed,
            )  # fmt: skip
            if owed is not None:
                bank._tell()
        return forecast

    def _update_taken(self, forecast: Any, outcome: Any) -> UpdateStatus:
        """Learn on the copy of the row; then put it back, in one step."""
        if type(forecast) is Forecast and self._is_latest(forecast) and type(outcome) is int and 0 <= outcome <= 1:
            first, marks = self._receipts.settled.span
            at = forecast.event - first
            if 0 <= at < len(marks) and marks[at] == OPEN:
                self._take_over(forecast, float(outcome), self._receipts.settled)
                return "learnt"
        return super().update(forecast, outcome)

    def _take_over(self, forecast: Any, y: float, settled: SettledEvents) -> None:
        """Learn on the copy of the row; then put it back, with the pool and the mark, in one step."""
        bank, store, slot, receipts, whole = self._bank, self._bank._store, self._slot, self._receipts, self._whole
        first, last = slot * store.stride, (slot + 1) * store.stride
        begin, marks = settled.span
        event, column = forecast.event, int(y)
        at, mark = event - begin, min(ZERO + column, OTHER)
        if mark == OTHER:  # nobody reads it before the mark is there
            settled.others[event] = column
        self._learn(forecast, y)
        given = receipt_of(forecast)
        if isinstance(given, Forecast):
            add_losses(self._stats, 0, given.score, given.probability, y)  # type: ignore[arg-type]
        else:
            add_class_losses(self._stats, 0, given.score, given.probabilities, column)  # type: ignore[arg-type]
        pool, owed = bank._pool_after(given.score, y), None
        if store.watchers:
            owed = store.tell_outcome, slot, event, watched_event(given, y), bank._now(), store.told(slot)
        # One line, without a call: an interrupt comes before all of it or after all of it.
        store.view[first:last], bank._pool, marks[at], receipts.settled, bank._owed = whole, pool, mark, settled, owed
        if owed is not None:
            bank._tell()

    def run(
        self,
        scores: npt.ArrayLike,
        outcomes: npt.ArrayLike,
        *,
        due: npt.ArrayLike | None = None,
        mature: Any = None,
        times: Any = None,
        outcome_times: Any = None,
        finish: bool = False,
        groups: Any = None,
    ) -> Vector:
        refuse_groups(groups)
        with self._lock:
            self._bank._check_writable("learn")
            self._refresh()
            keys = [self._key_of_bank] * (len(self._check_scores(scores)) // self._numbers)
            when = {"due": due, "mature": mature, "times": times, "outcome_times": outcome_times}
            return self._bank.run(keys, scores, outcomes, **when, finish=finish)

    @property
    def monitor(self) -> Monitor | None:
        """A copy of the key's monitor as it is now, if the bank has monitors; of its alarms it knows the last."""
        with self._lock:
            self._refresh()
            monitors = self._bank._store.monitors
            return None if monitors is None else Monitor._copied(monitors, self._slot)

    @property
    def notice(self) -> Notice | None:
        """A copy of the key's notice as it is now, if the bank has notices; of its alarms it knows the last."""
        with self._lock:
            self._refresh()
            notices = self._bank._store.notices
            return None if notices is None else Notice._copied(notices, self._slot)

    def new_alarms(self) -> list[RaisedAlarm]:
        """As `Bank.new_alarms`, of this key."""
        with self._lock:
            self._refresh()
            return [alarm for _, alarm in self._bank._new_alarms(np.array([self._slot], dtype=np.int32))]

    @classmethod
    def from_json(cls, text: str | bytes) -> Calibrator:  # type: ignore[override]
        """As `Calibrator.from_json`: a calibrator of its own."""
        return Calibrator.from_json(text)


class Members:
    """The members of a bank, and its records: what it knows of the receipts of its keys.

    There is one member a key, as long as it is referenced, and one that serves all single events of the bank.

    A key that is only served in batches has no receipts, and no record. A key that was served one event at a time has
    a record as long as an outcome is open. The `RECORDS` keys served last have one also afterwards, so that
    contradictions are noticed. Without a record a repeat still changes nothing.
    """

    RECORDS = 65_536

    def __init__(self, bank: Bank) -> None:
        self._bank = bank
        self._records: dict[Key, Ledger] = {}
        self._alive: WeakValueDictionary[Key, Member] = WeakValueDictionary()  # the members that are referenced
        self._many = self.RECORDS
        self._serving: Member | None = None
        self._fingerprints: dict[Key, int] = {}  # of the keys that were asked for lately
        self._shared: int | None = None  # the fingerprint of keys that share their draws, before their own is added
        # Both hold as long as rows have not moved: fingerprints by slot, 0 if not asked for yet; keys with a record.
        self._issuers: tuple[int, npt.NDArray[np.uint64]] = -1, np.empty(0, dtype=np.uint64)
        self._places: tuple[int, int, dict[int, Key]] = -1, 0, {}
        # On the receipts of records that begin from now on: nothing in a bank that has all keys that it ever had.
        self.generation: str | None = None
        # Whether a key without a record has no open events: unknown after `fold`.
        self.complete = True

    def of(self, key: Any) -> Member:
        """The member of a key."""
        key = check_key(key) if type(key) not in (int, str) else key
        member: Member | None = self._alive.get(key)
        if member is None:
            member = self._alive[key] = self._bank._member(key, self._bank._known(key))
        return member

    def serving(self, key: Key, slot: int) -> Member:
        """The member that serves single events, at a key."""
        member = self._serving
        if member is None:
            member = self._serving = self._bank._member(key, slot)
        elif member._key_of_bank != key or member._moves != self._bank._store.moves:
            member._aim(key, slot)
        else:
            member._take_row()
        return member

    def fingerprint(self, key: Key) -> int:
        """64 bits on each receipt of a key: of method, seed and key."""
        found = self._fingerprints.get(key)
        if found is None:
            if len(self._fingerprints) >= self.RECORDS:
                self._fingerprints.clear()
            found = self._fingerprints[key] = self._fingerprint(key)
        return found

    def _fingerprint(self, key: Key) -> int:
        if self._shared is None:
            self._shared = stream_key(self._bank._seed, self._bank._identity)
        return stream_key(self._shared, key)

    def receipts(self, key: Key, slot: int) -> Ledger:
        """The record of a key, made if there is none."""
        found = self._records.get(key)
        if found is None:
            if len(self._records) >= self._many:
                self._sweep()
            found = self._records[key] = self._made(key, slot)
            moves, count, places = self._places
            if count == len(self._records) - 1:
                places[slot] = key
                self._places = moves, count + 1, places
        return found

    def _made(self, key: Key, slot: int) -> Ledger:
        store = self._bank._store
        at = slot * store.stride
        events = int(store.view[at + store.method.width + EVENTS])
        # A bank that has all keys that it ever had signs with the name alone. `fold` may have issued receipts already.
        generation = "" if self.generation is None else None if self.complete else self.generation
        issuer = Issuer(self._name(key), ((store.foreign_until(slot), generation),))
        return self._ledger(issuer, events, events if self.complete else int(store.view[at + N]))

    def _ledger(self, issuer: Issuer, events: int, outcomes: int) -> Ledger:
        labels = self._bank._labels
        classes = 2 if labels is None else len(labels)
        settled = SettledEvents.unknown(events, outcomes, keep=_OUTCOMES_KEPT, classes=classes)
        return Ledger(self._bank._method, issuer, settled, events, labels)

    def _name(self, key: Key) -> str:
        return f"{self.fingerprint(key):016x}"

    def _sweep(self) -> None:
        """Let go of the records of keys without an open event."""
        for key, events in self._counts():
            if key not in self._alive and not self._records[key].is_open(events):
                del self._records[key]
        self._places = -1, 0, {}
        self._many = max(self.RECORDS, 2 * len(self._records))

    def _counts(self) -> list[tuple[Key, int]]:
        """The keys with a record, and how many forecasts each has had."""
        keys = list(self._records)
        if not keys:
            return []
        slots = self._bank._store.find(check_keys(keys))
        return list(zip(keys, self._bank._store.stats(EVENTS)[slots].astype(int).tolist(), strict=True))

    def forget(self, keys: list[Key]) -> None:
        """The keys are gone: their members are of no more use, and their receipts are not those of a later namesake."""
        for key in keys:
            self._records.pop(key, None)
        if keys:
            if not self.complete:  # what `fold` has issued for the others is good for what it was
                self._bank._store.accept_foreign()
            self.generation = new_generation()
        self._serving = None
        for key in keys:
            member = self._alive.pop(key, None)
            if member is not None:
                member._gone = True

    def let_go(self, keys: list[Any]) -> None:
        """Let go of the records of keys: their rows have come from elsewhere."""
        for key in keys:
            self._records.pop(key, None)

    def forget_unknown(self) -> None:
        """Let go of the records of keys that are not here."""
        for key in [key for key in self._records if self._bank._slot(key) < 0]:
            del self._records[key]

    def begin_generation(self) -> None:
        """Begin a new generation, in a process that is a copy of another: what was issued before is good in both."""
        if self._bank._writable:  # a bank that cannot learn takes no receipts, and its rows are not to be looked at
            for key, events in self._counts():
                self._records[key].catch_up(events)
                self._records[key].issuer.begin_generation(events)
            self._bank._store.accept_foreign()
        self._bank._store.moves += 1  # so that members look again
        self.generation = new_generation()

    def take(self, other: Members) -> None:
        """The records of another bank, for keys that are here now. Both begin a new generation."""
        for key, events in other._counts():
            if self._bank._slot(key) >= 0:
                self._records[key] = other._records[key].copy(events)
        if not self.complete:  # what `fold` has issued without a record is good for what it was
            self._bank._store.accept_foreign()
        self.generation = new_generation()
        self.complete = self.complete and other.complete

    # ---- receipts of `Bank.fold`, which come and go as bytes --------------------------------------------------------

    def generation_of(self, key: Key) -> int:
        """The number of the generation that issues the receipts of a key; 0 if it has none."""
        record = self._records.get(key)
        generation = (
            self.generation if record is None else record.issuer.ensure_signature(self.generation)[DIGITS + 1 :]
        )
        return int(generation or "0", 16)

    def check_given(self, given: ReceiptArray, columns: FoldColumns) -> None:
        """Raise if a receipt was issued in another generation, or if its outcome is known to have been learnt."""
        rows, foreign = columns.brought, self._bank._store.foreign
        slots, events, generations = columns.slots[rows], given["event"], given["generation"]
        until = np.zeros(len(rows))
        until[slots < len(foreign)] = foreign[slots[slots < len(foreign)]]
        issued = (events < until) | (generations == columns.generations[rows])
        for at in np.flatnonzero(np.isin(slots, list(columns.recorded))).tolist() if columns.recorded else ():
            key, event, generation = columns.recorded[int(slots[at])], int(events[at]), int(generations[at])
            record = self._records[key]
            issued[at] = record.issuer.issued(event, self._name(key) + (f"-{generation:08x}" if generation else ""))
            if issued[: at + 1].all() and event < record.known and record.settled.mark(event) != OPEN:
                raise OutcomeConflict(
                    f"receipt must be brought once, got one whose outcome is learnt - at row {int(rows[at])}"
                )
        if not issued.all():
            raise UnknownForecast(
                "receipt must come from this bank, got one that a copy of it has made, or that it made itself after "
                f"the snapshot from which it continues - at row {int(rows[int((~issued).argmax())])}"
            )

    def identify(self, columns: FoldColumns) -> None:
        """The issuers and generations of the receipts of a call, and the keys that have a record, by slot."""
        slots, own = columns.slots, int(self.generation or "0", 16)
        columns.issuers = self._issuers_of(slots)
        columns.generations = np.full(len(slots), own, dtype=np.uint32)
        if self._records:
            places = self._recorded_slots()
            columns.recorded = {slot: places[slot] for slot in {*slots.tolist()} if slot in places}
            for slot, key in columns.recorded.items():
                columns.generations[slots == slot] = self.generation_of(key)

    def _issuers_of(self, slots: Slots) -> npt.NDArray[np.uint64]:
        """The fingerprints of the keys in these slots."""
        store, (moves, known) = self._bank._store, self._issuers
        if moves != store.moves:
            known = known[:0]
        if len(known) < len(store):
            known = np.append(known, np.zeros(max(len(known) // 2, len(store) - len(known)), dtype=np.uint64))
            self._issuers = store.moves, known
        found = known[slots]
        if not found.all():
            new = np.unique(slots[found == 0])
            known[new] = [self.fingerprint(key) for key in store.names(new).tolist()]
            found = known[slots]
        return found

    def _recorded_slots(self) -> dict[int, Key]:
        """The keys that have a record, by slot."""
        moves, count, places = self._places
        if moves != self._bank._store.moves or count != len(self._records):
            keys = list(self._records)
            places = dict(zip(self._bank._store.find(check_keys(keys)).tolist(), keys, strict=True))
            self._places = self._bank._store.moves, len(keys), places
        return places

    def fold(self, settled: dict[Key, list[tuple[int, float]]]) -> None:
        """Note what a call has done: the outcomes learnt of the keys that have a record."""
        self.complete = False
        for key, outcomes in settled.items():
            record, slot = self._records[key], self._bank._slot(key)
            record.known = int(self._bank._store.stats(EVENTS)[slot])
            for event, y in outcomes:
                if record.settled.mark(event) == OPEN:
                    record.settled.settle(event, int(y))

    # ---- as data ----------------------------------------------------------------------------------------------------

    def dump(self) -> list[list[Any]]:
        """The records with an open event, as JSON-able data, in the order of their keys' slots."""
        found = []
        for key, events in self._counts():
            self._records[key].catch_up(events)
            if self._records[key].is_open(events):
                found.append([key, self._records[key].dump(events)])
        return sorted(found, key=lambda record: self._bank._slot(record[0]))

    def load(self, data: Any, *, complete: bool) -> None:
        """The inverse of `dump`, in a new generation."""
        self.generation, self.complete = new_generation(), complete
        for key, state in data:
            slot = self._bank._known(key)
            events = int(self._bank._store.stats(EVENTS)[slot])
            outcomes = int(self._bank._store.matrix[slot, N])
            self._records[key] = self._ledger(Issuer(self._name(key)), 0, 0).load(state, events, outcomes)


# ---- changes that happen whole or not at all ---------------------------------------------------------------------


class Undo:
    """A change of a bank, which happens whole or not at all. The caller holds the bank's lock.

    The pattern::

        with Undo(bank) as undo:
            ...                      # change the bank
            undo.keep()              # from here on it has happened

    An interrupt may come while it is undone, and another one then. So the bank knows of the change until it is
    finished, and the next call finishes it before it does anything else. So does a process that was forked meanwhile.
    """

    def __init__(self, bank: Bank) -> None:
        store, members = bank._store, bank._members
        self._bank, self._store, self._index = bank, store, store.index
        self.count, self.clock, self._pool = len(store), bank._clock, bank._pool.copy() if bank._prior else None
        self._foreign = store.foreign
        self._receipts = members.generation, members.complete
        self._aside: tuple[Slots, Matrix] | None = None
        self._watchers_before: list[Aside] = []
        self._entry: tuple[int, Ints] | None = None
        self._threads: tuple[Barrier, int] | None = None
        self._then: Callable[[], None] | None = None
        self.kept = False

    def __enter__(self) -> Undo:
        self._bank._undo = self
        return self

    def __exit__(self, *_: object) -> None:
        if self._threads is None or not self._threads[0].is_at_work:  # if not, the next call finishes it
            self.finish()

    def remember(self, slots: Slots) -> None:
        """Put rows aside that are about to change."""
        if len(slots) > 1:  # each of them once; NumPy's `unique` takes three times as long
            slots = np.sort(slots)
            slots = slots[np.append(True, slots[1:] != slots[:-1])]
        self._aside = slots, self._store.matrix[slots]
        self._watchers_before = [watcher.remember(slots[slots < self.count]) for watcher in self._store.watchers]

    def remember_key(self, slot: int) -> None:
        """Put a key aside that is about to be forgotten, with its row."""
        self.remember(np.array([slot], dtype=np.int32))
        if self._index is not None:
            self._entry = slot, self._index.entry(slot).copy()
        moved = np.unique([slot, self.count - 1]).astype(np.int32)  # the last takes its place
        self._watchers_before = [watcher.remember(moved) for watcher in self._store.watchers]

    def leave_to(self, barrier: Barrier, events: int) -> None:
        """Threads behind a barrier make the change, of this many events. Once it is open they finish it."""
        self._threads = barrier, events

    def keep(self, then: Callable[[], None] | None = None) -> None:
        """The change has happened. `then` is called next; after an interrupt it is called again."""
        self._then, self.kept = then, True

    def finish(self) -> None:
        """Put everything back, unless the change has happened. It is called again if it was broken off itself."""
        if self._threads is not None:
            self._wait(*self._threads)
        if not self.kept:
            self._restore()
        elif self._then is not None:
            self._then()
        self._bank._undo = None

    def _wait(self, barrier: Barrier, events: int) -> None:
        if barrier.is_open:
            barrier.finish()
            if barrier.served or barrier.is_lost:  # if not, each failed before it began
                self._bank._clock = self.clock + events
                if barrier.failures:
                    error = barrier.failures[0]
                    self._bank._broken = f"{type(error).__name__}: {error}"
                self.kept = True

    def _restore(self) -> None:
        bank, store = self._bank, self._store
        if self._aside is not None:
            slots, rows = self._aside
            store.matrix[slots] = rows
        if self._entry is not None and self._index is not None:
            slot, entry = self._entry
            self._index.entry(slot)[:] = entry
        for watcher, before in zip(store.watchers, self._watchers_before, strict=False):  # none before `remember`
            watcher.restore(before)
        store.truncate(self._index, self.count, self._foreign)
        bank._draws.forget_from(self.count)
        bank._store, bank._clock, bank._owed = store, self.clock, None
        if self._pool is not None:
            bank._pool[:] = self._pool
        bank._members.generation, bank._members.complete = self._receipts
        bank._members.forget_unknown()


# ---- parts of a batch --------------------------------------------------------------------------------------------


class Draws:
    """The draws of keys: each has a stream that is named after it; nothing at all where nothing is drawn."""

    def __init__(self, seed: int, *, hedges: bool) -> None:
        self._seed, self._hedges = seed, hedges
        self._streams: npt.NDArray[np.uint64] = np.empty(0, dtype=np.uint64)  # of the first slots, as far as asked for

    def of(self, store: RowStore, slots: Slots) -> Vector:
        """The draw of each event, whose slots are given in the order of the events."""
        if not self._hedges:
            return np.empty(0)
        streams = self._named(store)[slots]
        if len(slots) < len(store):  # few events: do not look at all the rows
            used, places = np.unique(slots, return_inverse=True)
            return uniforms_at(streams, numbered(store.stats(EVENTS)[used], places.astype(np.int32)))
        return uniforms_at(streams, numbered(store.stats(EVENTS).copy(), slots))

    def of_all(self, store: RowStore, column: KeyColumn, slots: Slots) -> Vector:
        """The same where some keys have no slot: each of these is a stream that begins."""
        known = slots >= 0
        if not self._hedges or known.all():
            return self.of(store, slots)
        unknown = RowStore(store.method)
        draws = Draws(self._seed, hedges=True).of(unknown, unknown.open(column))
        draws[known] = self.of(store, slots[known])
        return draws

    def forget_from(self, slot: int) -> None:
        """The slots from this one on belong to other keys now."""
        self._streams = self._streams[:slot]

    def _named(self, store: RowStore) -> npt.NDArray[np.uint64]:
        streams, keys = self._streams, store.index  # read once: several threads may ask a bank that cannot learn
        if len(streams) < len(store) and keys is not None:
            new = [stream_key(self._seed, keys.key(slot)) for slot in range(len(streams), len(store))]
            self._streams = streams = np.concatenate([streams, np.array(new, dtype=np.uint64)])
        return streams


# ---- rows for another host ---------------------------------------------------------------------------------------


# The clock of a bank counts events of all its keys, and no clock spans many machines. So a row leaves without the time
# of its last event (0), and every row that comes back counts as just seen. Behind a row are its monitor's numbers.


def row_width(bank: Bank) -> int:
    """How many numbers such a row has."""
    return bank._store.stride + sum(watcher.settings.width for watcher in bank._store.watchers)


def rows_out(bank: Bank) -> tuple[npt.NDArray[Any], Matrix]:
    """The keys and their rows, in the order of the bank."""
    with bank._lock:
        bank._check_not_broken()
        store = bank._store
        rows = store.matrix[: len(store)].copy()
        rows[:, store.method.width + LAST] = 0.0
        for watcher in store.watchers:
            if watcher.queues:
                slot = min(watcher.queues)
                raise InvalidInput(
                    "a bank with monitors must have no outcome under way when its rows leave, got one of key "
                    f"{store.names(np.array([slot], dtype=np.int32))[0]!r}"
                )
            rows = np.hstack([rows, watcher.matrix[: len(store)]])
        return store.names(), rows


def rows_in(bank: Bank, keys: Any, rows: Matrix, *, seen: bool = False) -> None:
    """Put such rows in place. With `seen` the bank's clock becomes the events of all of them, and they are of now."""
    store = bank._store
    if rows.ndim != 2 or rows.shape[1] != row_width(bank):
        raise InvalidInput(f"rows must have {row_width(bank)} numbers each, got shape {rows.shape}")
    own = np.ascontiguousarray(rows[:, : store.stride])
    if seen:
        own[:, store.method.width + LAST] = own[:, store.method.width + EVENTS].sum()
    bank.set_rows(keys, own)
    at = store.stride
    for watcher in store.watchers:
        watched = rows[:, at : at + watcher.settings.width]
        at += watcher.settings.width
        watcher.settings.check_rows(watched)
        with bank._lock:
            watcher.matrix[store.find(check_keys(keys))] = watched
