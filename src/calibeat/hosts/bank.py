"""The host of many streams: `Bank` checks what comes in, and stands on rows that are found by key (`keyed_rows`)."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from calibeat._compiled import OPEN, Forecast, MultiForecast, Stream
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
from calibeat._util.processes import usable_cores
from calibeat._util.types import Flags, Ints, Slots, UpdateStatus, Vector
from calibeat.core.band import Bands
from calibeat.core.layout import N
from calibeat.core.limits import MOST_COUNT, check_row, check_rows
from calibeat.core.loops import NO_NUMBERS
from calibeat.core.method import AUTO, Method, described, method_named, name_of
from calibeat.core.randomness import stream_key
from calibeat.core.stats import EVENTS, LAST
from calibeat.errors import CalibeatError, InvalidInput, UnknownForecast, UnknownKey
from calibeat.late import schedule
from calibeat.monitor.bets import Alarm, RaisedAlarm, Settings
from calibeat.monitor.monitor import Monitor
from calibeat.monitor.monitors import Broken, Monitors
from calibeat.monitor.notice import Notice
from calibeat.monitor.notices import Notices, NoticeSettings
from calibeat.monitor.silence import check_away, check_time

from . import bankfile
from .calibrator import (
    Calibrator,
    Watch,
    add_hints,
    checked_stream,
    for_schedule,
    issue_times,
    read_counts,
    read_weights,
    refuse_models,
    with_band,
)
from .keyed_rows import NO_GROUPS, KeyedRows, SlotWatch
from .keys import Key, KeyColumn, check_key, check_keys, plain_key
from .receipts import Receipts, check_receipts
from .rows import STATUSES, AnyMethod, Fold, Matrix, StreamBatch, read_receipts, receipt_type

HINTS = {  # what people look for, and where it is
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
AnyAlarm = TypeVar("AnyAlarm", bound=Alarm)
_MOST_STREAMS = 65_536  # of keys served one event at a time, that are kept ready


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
    kept : the shares of ones and of zeros that the log kept, as of a `Calibrator`.
    band : whether forecasts say how sure they are, as of a `Calibrator`: AUTO only.
    notice : a `Notice`; each key then has one with its settings: that nothing comes, that the score has moved. See
        `check`, `away`, `table`. The time of an event is what its clock says, or what `times` say.
    threads : how many for a batch; as many as this process may use processors if not given. Results never depend on it.

    Raises
    ------
    UnknownMethod : there is no preset of this name.
    InvalidInput : the method fits its past again, or another argument is not as above. A bank has no `groups`: a table
        for each key would splinter the data. Pass the key as an attribute, ``Calibrator(groups=["key", "country"])``.
        Nor has it `models`.
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
    when Ctrl-C interrupts it. A row takes 8 bytes for each number of the method's state (TOPS 34, AUTO 178, HOPS 214)
    and 56 for its stats.
    """

    _SHARED: ClassVar[tuple[str, ...]] = (
        "method",
        "seed",
        "stream",
        "prior",
        "watched",
        "noticed",
    )  # by banks that merge

    def __init__(
        self,
        method: Method | str = AUTO,
        seed: int = 0,
        stream: int | str | None = None,
        *,
        prior: str | None = None,
        threads: int | None = None,
        monitor: Monitor | None = None,
        notice: Notice | None = None,
        kept: tuple[float, float] | None = None,
        groups: Any = None,
        models: Any = None,
        band: bool = False,
        level: None = None,
    ) -> None:
        refuse_groups(groups)
        refuse_models(models, "Bank")
        if not isinstance(method, Method):
            method = method_named(method)
        if kept is not None:
            method = replace(method, kept=kept)
        method = with_band(method, band, level)
        if method.needs_history:
            raise InvalidInput(
                f"a bank needs a method that lives in a row, got {shown(name_of(method) or method)}, which fits its "
                "past again - use AUTO, OPS or TOPS, or a Calibrator for each key"
            )
        self._seed, self._stream = check_whole("seed", seed, -(2**63), 2**63 - 1), checked_stream(stream)
        self._begin(method, repr(method), prior, threads, monitor, notice)

    def _begin(
        self,
        method: AnyMethod,
        described: str,
        prior: str | None,
        threads: int | None,
        monitor: Monitor | None,
        notice: Notice | None,
        door: Any = None,
    ) -> None:
        """Stand on rows of a method. What is `described` tells its receipts from those of other banks.

        `door` is that of the classes, where they are not 0 and 1.
        """
        self._prior = None if prior is None else check_choice("prior", prior, ("pooled",))
        self._threads = thread_count(threads)
        if monitor is not None and not isinstance(monitor, Monitor):
            raise InvalidInput(f"monitor must be a Monitor, got {shown(monitor)}")
        if notice is not None and not isinstance(notice, Notice):
            raise InvalidInput(f"notice must be a Notice, got {shown(notice)}")
        of_log = None if monitor is None else monitor.settings.of_log(getattr(method, "kept", None))
        settings = of_log, None if notice is None else notice.settings
        now: Callable[[], float] = (lambda: math.nan) if notice is None else notice._now
        # Keys of a bank without a name draw as calibrators of these names do, and those of another bank otherwise.
        draws = self._seed if self._stream is None else stream_key(self._seed, self._stream)
        name = stream_key(stream_key(draws, "a bank"), described)
        self._rows = KeyedRows(
            method,
            (name, draws),
            SlotWatch(*settings, now),
            pooled=self._prior is not None,
            generation=None if self._stream is None else 0,
            **({} if door is None else {"classes": door.classes.count, "face": door.face}),
        )
        self._streams: dict[Key, Stream] = {}  # of keys that were served one event at a time

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

    def _check_known(self, outcomes: Any) -> Vector:
        """Outcomes none of which is missing."""
        return check_outcomes(outcomes)

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
        settings = {"seed": self._seed, "stream": self._stream, "prior": self._prior}
        return {"method": self._rows.method.to_dict(), **settings}

    @classmethod
    def _of_header(cls, header: dict[str, Any], threads: int, watched: dict[str, Any]) -> Bank:
        if "multi" in header:
            raise InvalidInput("a bank of many classes, which MultiBank.load reads")
        try:
            method = Method.from_dict(header["method"])
        except InvalidInput as error:
            raise InvalidInput(f"a method that this version does not know: {error}") from error
        return cls(method, header["seed"], header["stream"], prior=header["prior"], threads=threads, **watched)

    def _calibrator(self) -> Calibrator:
        """A calibrator that is to be bound to a row."""
        member = Calibrator.__new__(Calibrator)
        member._seed, member._watch = self._seed, Watch(None)
        return member

    # ---- settings and contents --------------------------------------------------------------------------------------

    @property
    def method(self) -> Method:
        """The method of every key: its parts."""
        method: Method = self._rows.method
        return method

    @property
    def seed(self) -> int:
        """The seed of the draws of a hedging method."""
        return self._seed

    @property
    def stream(self) -> int | str | None:
        """The name of the bank: two banks of one seed with different names draw independently. None: it has no name."""
        return self._stream

    @property
    def prior(self) -> str | None:
        """How a new key starts: "pooled", or None."""
        return self._prior

    @property
    def watched(self) -> Settings | None:
        """The settings of the keys' monitors, if there are any."""
        monitors = self._rows.watching.monitors
        return None if monitors is None else monitors.settings

    @property
    def noticed(self) -> NoticeSettings | None:
        """The settings of the keys' notices, if there are any."""
        notices = self._rows.watching.notices
        return None if notices is None else notices.settings

    @property
    def kind(self) -> str:
        """What the keys are: "ints", "strings", or "none" as long as there are no keys."""
        return self._rows.kind

    @property
    def events(self) -> int:
        """How many forecasts were made for the keys that are here."""
        with self._rows as rows:
            rows.ready()
            return int(rows.stats(EVENTS).sum())

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the rows, the keys and their index take."""
        return self._rows.nbytes

    @property
    def params(self) -> dict[str, npt.NDArray[Any]]:
        """The keys and their parameters, as a mapping of arrays that any data frame library takes.

        >>> from calibeat import Bank
        >>> bank = Bank("ops")
        >>> p = bank.run([7, 8, 7], [0.5, 0.5, 0.5], [1, 0, 1])
        >>> {name: column.round(3).tolist() for name, column in bank.params.items()}
        {'key': [7, 8], 'a': [1.0, 1.0], 'b': [0.098, -0.05]}

        For AUTO also the weight of each lane, named as in `Calibrator.params`; with a band `blocks`, `outside`
        and `kappa`.
        """
        with self._rows as rows:
            rows.ready()
            return {"key": rows.names(slice(rows.count)), **rows.params()}

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
        with self._rows as rows:
            rows.ready()
            return rows.columns()

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
        with self._rows as rows:
            found = self._monitors().broken()
            return found._replace(keys=rows.names(found.keys))

    def miscalibrated(self, alpha: float = 0.05) -> npt.NDArray[Any]:
        """The keys whose forecasts were not calibrated since the start, the clearest first (e-BH).

        At any one time the expected share of wrong names is at most alpha. Do not collect names over time: the promise
        is about one list.

        Raises
        ------
        InvalidInput : the bank has no monitors, or alpha is not in (0, 1].
        """
        level = check_interval("alpha", alpha, 1e-300, 1.0)
        with self._rows as rows:
            return rows.names(self._monitors().miscalibrated(level))

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
        with self._rows as rows:
            notices = self._notices()
            raised = notices.check(check_time("now", rows.watching.now() if now is None else now))
            return self._named(raised)

    def away(self, a: float, b: float) -> list[tuple[Key, Alarm]]:
        """Say that nobody listened from a to b, for any key: neither a silence nor a delay -> alarms of before a.

        Raises
        ------
        InvalidInput : the bank has no notices, or was opened with ``mmap=True``; or a time is not in [0, 1e11].
        """
        a, b = check_away(a, b)
        with self._rows:
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
        with self._rows as rows:
            rows.ready()
            rows.check_writable("be asked")
            return self._named(rows.watching.new_alarms())

    def _named(self, raised: list[tuple[int, AnyAlarm]]) -> list[tuple[Key, AnyAlarm]]:
        names = self._rows.names(np.array([slot for slot, _ in raised], dtype=np.int32)).tolist() if raised else ()
        return [(key, alarm) for key, (_, alarm) in zip(names, raised, strict=True)]

    def _notices(self) -> Notices:
        self._rows.ready()
        self._rows.check_writable("be asked")
        notices = self._rows.watching.notices
        if notices is None:
            raise InvalidInput("a bank must have notices for this, got Bank(..., notice=None)")
        self._rows.watching.resize(self._rows.count)
        return notices

    def _monitors(self) -> Monitors:
        self._rows.ready()
        monitors = self._rows.watching.monitors
        if monitors is None:
            raise InvalidInput("a bank must have monitors for this, got Bank(..., monitor=None)")
        self._rows.watching.resize(self._rows.count)
        return monitors

    def table_of(self, keys: Any) -> dict[str, npt.NDArray[Any]]:
        """The rows of `table` for some keys, without a look at the others.

        Raises
        ------
        UnknownKey : the bank does not have one of the keys.
        """
        with self._rows as rows:
            rows.ready()
            return rows.columns(self._slots_of(keys))

    @property
    def receipt_type(self) -> np.dtype[np.void]:
        """The layout of the receipts of `fold`: ``receipts.view(bank.receipt_type)["event"]``."""
        return receipt_type(self._rows.method)

    # ---- many events ------------------------------------------------------------------------------------------------

    def run(
        self,
        keys: Any,
        scores: Any,
        outcomes: Any,
        *,
        weights: Any = None,
        of: Any = None,
        due: Any = None,
        mature: Any = None,
        times: Any = None,
        outcome_times: Any = None,
        finish: bool = False,
        threads: int | None = None,
        groups: Any = None,
        band: bool = False,
    ) -> Any:
        """Predict and then update, event after event in the order of the arrays, each on the row of its key.

        Parameters
        ----------
        keys : ints or strings, old and new: a list, or a column of NumPy, Arrow, pandas or polars.
        scores : probabilities in [0, 1].
        outcomes : 0 or 1 (False or True); NaN where it is not known: such an event is forecast and not learnt.
        weights, of : as in `Calibrator.run`; each key learns from the ratios of its own weights.
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
        band : return `Bands` (probabilities, low, high, outcomes, reason), where the bank has a band.

        Returns the forecasts, in the kind of `scores` (array, Series). Either all events are taken or, if something is
        wrong with one, none. Ctrl-C is heard when all of the batch is done: ten million events take some seconds.

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
        column, probabilities, rows = check_keys(keys), self._check_scores(scores), self._rows
        count, n = len(column), len(probabilities) // rows.method.numbers
        issued = issue_times(times, n) if rows.watching.notices_times else None
        planned = schedule(
            n, due, mature, for_schedule(times, issued, mature, outcome_times), outcome_times, finish=finish
        )
        needed, trials = None if planned is None else planned.due <= n, NO_NUMBERS
        if of is None:
            labels = self._check_outcomes(outcomes, needed)
        else:
            labels, trials = read_counts(rows, outcomes, of, needed, optional=True)
        check_lengths(keys=count, scores=n, outcomes=len(labels))
        heavy = read_weights(rows, weights, trials, labels, needed)
        bands = rows.bands_for(n, band)
        batch = StreamBatch(probabilities, labels, planned, mature is not None, None, issued, heavy, trials, bands)
        workers = self._threads if threads is None else thread_count(threads)
        with rows:
            self._ready_to("learn")
            forecasts = self._given_back(scores, rows.run(rows.add(rows.check_kind(column)), batch, workers))
        return Bands.of(forecasts, bands) if band else forecasts

    def predict_many(self, keys: Any, scores: Any, groups: Any = None, *, band: bool = False) -> Any:
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
        column, probabilities, rows = check_keys(keys), self._check_scores(scores), self._rows
        check_lengths(keys=len(column), scores=len(probabilities) // rows.method.numbers)
        bands = rows.bands_for(len(column), band)
        # Where the rows do not change, several threads may work at the same time.
        with rows if rows.writable else nullcontext():
            if rows.writable:
                rows.ready()
            forecasts = rows.predict_keys(rows.find(rows.check_kind(column)), column, probabilities, bands)
        given = self._given_back(scores, forecasts)
        return Bands.of(given, bands) if band else given

    def fold(
        self,
        keys: Any,
        scores: Any,
        outcomes: Any,
        receipts: Any = (),
        *,
        of: Any = None,
        weights: Any = None,
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
        weights : as in `run`; those of forecasts are not read.
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
        (2, 112)
        >>> bank.fold(["rome", "oslo", "oslo"], [nan, nan, 0.8], [0, 1, nan], stored[::-1]).forecasts.round(4)
        array([   nan,    nan, 0.8092])
        """
        refuse_groups(groups)
        if type(keys) is list and len(keys) == 1 and of is None and weights is None and times is None:
            alone = self._fold_one(keys[0], scores, outcomes, receipts)
            if alone is not None:
                return alone
        column, rows = check_keys(keys), self._rows
        labels = self._check_outcomes(outcomes)
        asked = np.isnan(labels)
        probabilities = self._check_some_scores(scores, asked)
        check_lengths(keys=len(column), scores=len(probabilities) // rows.method.numbers, outcomes=len(labels))
        positions = None if of is None else np.asarray(of).astype(np.int64, casting="same_kind")
        if times is not None and not rows.watching.notices_times:
            raise InvalidInput("times must come with notices, which they are for, got a bank without")
        heavy = read_weights(rows, weights, NO_NUMBERS, labels)
        issued = issue_times(times, len(column))
        own = _own_forecasts(asked, positions)
        given = read_receipts(rows.method, receipts, int((~asked & (own < 0)).sum()))
        with rows:
            self._ready_to("learn")
            happened = np.full(len(column), rows.watching.now()) if issued is None else issued
            slots = self._slots_of_operations(rows.check_kind(column), asked)
            if (bad := (own >= 0) & (slots[np.maximum(own, 0)] != slots)).any():
                row = int(bad.argmax())
                raise UnknownForecast(f"outcome must be of a forecast of its own key, got another key's - at row {row}")
            columns, made = rows.fold(slots, probabilities, labels, own, given, happened, weights=heavy)
        return Fold(self._folded(columns.forecasts), made.view(f"V{made.itemsize}"))

    def _fold_one(self, key: Any, scores: Any, outcomes: Any, receipts: Any) -> Fold | None:
        """`fold` of one plain operation on a key that is here, by `predict` or `update`: it takes a tenth of the time.

        None where anything is unusual: `fold` itself does it then, or says what is wrong.
        """
        plain = type(scores) is list and type(outcomes) is list and len(scores) == len(outcomes) == 1
        if not plain or (type(key) is not str and type(key) is not int) or self._rows.labels is not None:
            return None
        stream = self._streams.get(key)
        if stream is None:
            with self._rows:
                self._ready_to("learn")
                if (slot := self._slot(key)) < 0:
                    return None
                stream = self._stream_of(key, slot)
        y, width = outcomes[0], receipt_type(self._rows.method).itemsize
        if type(y) is float and y != y:  # noqa: PLR0124 - NaN: a forecast
            if type(scores[0]) is not float or not 0.0 <= scores[0] <= 1.0 or len(receipts):
                return None
            forecast = stream.predict(scores[0])
            return Fold(
                np.array([forecast.probability]), np.frombuffer(bytearray(forecast.to_bytes()), dtype=f"V{width}")
            )
        if type(y) not in (int, float) or y not in (0, 1) or type(receipts) is not list or len(receipts) != 1:
            return None
        try:
            given = Forecast.from_bytes(receipts[0])
            if stream._ledger.mark(given.event) != OPEN:
                return None
            stream.update(given, int(y))
        except CalibeatError:
            return None
        return Fold(np.array([np.nan]), np.empty(0, dtype=f"V{width}"))

    def issue(self, keys: Any, scores: Any, groups: Any = None) -> Receipts:
        """Forecast many events -> a batch of receipts. The same bits as `predict` one by one. Keys may be new.

        Store the batch, and bring it or parts of it to `learn` when the outcomes are known: docs/receipts.md.

        Raises
        ------
        InvalidInput : a key or a score is not as in `run`, the bank was opened with ``mmap=True``, or there are
            `groups`, which a bank does not have.

        >>> from calibeat import Bank
        >>> bank = Bank("ops")
        >>> batch = bank.issue(["oslo", "rome", "oslo"], [0.8, 0.3, 0.6])
        >>> len(batch), len(bank), bank.learn(batch[1:], [0, 1]).tolist()
        (3, 2, ['learnt', 'learnt'])
        """
        refuse_groups(groups)
        column, probabilities, rows = check_keys(keys), self._check_scores(scores), self._rows
        check_lengths(keys=len(column), scores=len(probabilities) // rows.method.numbers)
        with rows:
            self._ready_to("issue receipts")
            return Receipts(rows.issue(rows.add(rows.check_kind(column)), probabilities), rows.labels)

    def learn(self, batch: Receipts, outcomes: Any, weights: Any = None, of: Any = None) -> npt.NDArray[np.str_]:
        """Learn the outcomes of many receipts, in their order -> a status for each. The same bits as `update`.

        A receipt says whose it is, so no keys are needed. The statuses are those of `Calibrator.learn`; receipts of
        keys that the bank does not have are "unknown". Outcomes have to be known: leave out the receipts of others.
        Weights and counts are as in `run`.

        Raises
        ------
        InvalidInput : an outcome is missing or impossible (the message names the first bad row), there are not as many
            as receipts, these are no batch, or the bank was opened with ``mmap=True``.

        >>> from calibeat import Bank
        >>> bank, other = Bank("ops"), Bank("ops", stream="other")
        >>> batch = bank.issue(["oslo", "rome"], [0.8, 0.3])
        >>> bank.learn(batch, [1, 0]).tolist(), bank.learn(batch, [1, 1]).tolist(), other.learn(batch, [1, 0]).tolist()
        (['learnt', 'learnt'], ['repeated', 'conflict'], ['unknown', 'unknown'])
        """
        rows, trials = self._rows, NO_NUMBERS
        if of is None:
            labels = self._check_known(outcomes)
        else:
            labels, trials = read_counts(rows, outcomes, of)
        check_lengths(receipts=len(check_receipts(batch)), outcomes=len(labels))
        heavy = read_weights(rows, weights, trials, labels)
        with rows:
            self._ready_to("learn")
            found, given = batch.strangers(), batch.of_type(rows.receipt_type)
            if given is None:
                return STATUSES[found]
            slots = rows.issued_by(given["issuer"].astype(np.uint64)).astype(np.int32)
            here = slots >= 0
            if here.all():
                found = rows.learn(slots, labels, given, heavy, trials)
            elif here.any():
                told = (column[here] if len(column) else column for column in (heavy, trials))
                found[here] = rows.learn(slots[here], labels[here], given[here], *told)
        return STATUSES[found]

    def _slots_of_operations(self, column: KeyColumn, asked: Flags) -> Slots:
        """The slot of each operation of `fold`; a new key is opened by its first forecast."""
        slots = self._rows.find(column)
        new = slots < 0
        if new.any():
            slots = self._rows.add(column)
            # Slots are given in the order of the operations, so the first operation of a new slot is the one that is
            # larger than all before it.
            first = new & (slots > np.maximum.accumulate(np.concatenate([[-1], slots[:-1]])))
            bad = first & ~asked
            if bad.any():
                row = int(bad.argmax())
                raise UnknownKey(f"key must have had a forecast before an outcome, got a new key - at row {row}")
        return slots

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
        if groups is None and (type(key) is str or type(key) is int) and (stream := self._streams.get(key)) is not None:
            return stream.predict(score)
        refuse_groups(groups)
        with self._rows as rows:
            rows.ready()
            key = _named_key(key)
            slot = rows.find_one(plain_key(key))
            if slot >= 0:
                return self._stream_of(key, slot).predict(score)
            checked = self._check_score(score)  # before a row is made for it
            stream = Stream()
            if not rows.writable:  # what a new key would get, without a row for it
                return rows.apart(key, -1).predict(score)
            forecast = rows.predict_first(stream, key, checked)
            self._keep_ready(key, stream)
            return forecast

    def update(self, key: Key, forecast: Any, outcome: Any = None, weight: Any = None, of: Any = None) -> UpdateStatus:
        """Learn the outcome of a forecast of this key, now or any time later, in any order -> "learnt" or "repeated".

        `weight` and `of` are as in `Calibrator.update`.

        Raises
        ------
        UnknownKey : the bank does not have this key.
        UnknownForecast : the forecast was not made by this bank for this key, or is too old.
        OutcomeConflict : the other outcome of this forecast was learnt before; the same one again changes nothing.
        InvalidInput : the outcome is not 0 or 1, the forecast is damaged, or the bank was opened with ``mmap=True``.
        """
        if (type(key) is str or type(key) is int) and (stream := self._streams.get(key)) is not None:
            return stream.update(forecast, outcome, weight, of)
        if outcome is None and isinstance(key, (Forecast, MultiForecast)):
            raise InvalidInput("key must come first, got a forecast - the order is bank.update(key, forecast, outcome)")
        with self._rows:
            self._ready_to("learn")
            return self._stream_of(_named_key(key), self._known(key)).update(forecast, outcome, weight, of)

    def _stream_of(self, key: Key, slot: int) -> Stream:
        """The stream of a key, to be served one event at a time. The caller holds the rows."""
        stream = self._streams.get(key)
        if stream is None:
            stream = Stream()
            self._rows.bind(stream, slot, key)
            if self._rows.writable:
                self._keep_ready(key, stream)
        return stream

    def _keep_ready(self, key: Key, stream: Stream) -> None:
        if len(self._streams) >= _MOST_STREAMS:
            self._streams.clear()
        self._streams[key] = stream

    # ---- as a collection --------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        with self._rows as rows:
            rows.ready()
            return len(rows)

    def __iter__(self) -> Iterator[Key]:
        with self._rows as rows:
            rows.ready()
            return iter([] if rows.index is None else list(rows.index))

    def __contains__(self, key: object) -> bool:
        with self._rows as rows:
            rows.ready()
            return self._slot(key) >= 0

    def __repr__(self) -> str:
        with self._rows as rows:
            keys, events = len(self), int(rows.stats(EVENTS).sum())
        return f"Bank({described(self._rows.method)}, keys={keys}, events={events})"

    def __getitem__(self, key: Key) -> Calibrator:
        """A live `Calibrator` on the row of a key: what it learns the bank has learnt, and the other way round.

        Raises
        ------
        UnknownKey : the bank does not have this key.
        """
        with self._rows as rows:
            rows.ready()
            slot, member = self._known(key), self._calibrator()
            name = _named_key(key)
            rows.bind(member, slot, name)
            member._stream = name
            return member

    def __delitem__(self, key: Key) -> None:
        """Forget a key. The key of the last row takes its place, so the order of the keys changes.

        Raises
        ------
        UnknownKey : the bank does not have this key.
        """
        with self._rows as rows:
            self._ready_to("forget")
            slot = self._known(key)
            self._streams.pop(_named_key(key), None)
            rows.uninterrupted(rows.remove, slot)

    # ---- rows out and rows in ---------------------------------------------------------------------------------------

    def rows(self, keys: Any) -> Matrix:
        """The rows of some keys, as a copy: `method.width` numbers of state and seven of stats; `set_rows` takes them.

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
        with self._rows as rows:
            rows.ready()
            return rows.matrix[self._slots_of(keys)]

    def set_rows(self, keys: Any, rows: Any) -> None:
        """Put rows in place, of old and of new keys: exact bytes, from `rows` of a bank of the same method.

        Receipts of the forecasts that they count are accepted from then on. All rows are taken or none.

        Raises
        ------
        InvalidInput : a row is not one that the method can have (its number is named), a key comes twice, or the bank
            was opened with ``mmap=True``.
        """
        with self._rows as store:
            self._ready_to("take rows")
            column, matrix = store.check_kind(check_keys(keys)), np.asarray(rows)
            if matrix.dtype != np.float64 or matrix.shape != (len(column), store.stride):
                wanted = f"float64 of shape ({len(column)}, {store.stride})"
                raise InvalidInput(f"rows must be {wanted}, got {matrix.dtype} of shape {matrix.shape}")
            check_rows(store.method, matrix, MOST_COUNT)
            clock = max(store.clock, int(matrix[:, store.width + LAST].max(initial=0.0)))
            if len(np.unique(store.add(column))) != len(column):
                raise InvalidInput("keys must be different, got one of them twice")
            store.uninterrupted(store.put, column, matrix, clock)

    @property
    def pool(self) -> Vector:
        """The row that new keys start from with ``prior="pooled"``, as a copy. It may be set, like `set_rows`."""
        with self._rows as rows:
            rows.ready()
            return rows.pool.copy()

    @pool.setter
    def pool(self, row: Any) -> None:
        with self._rows as rows:
            self._ready_to("take rows")
            pool, width = np.array(row, dtype=np.float64), rows.width
            if pool.shape != (width,):
                raise InvalidInput(f"pool must be {width} numbers, got shape {pool.shape}")
            check_row(rows.method, pool, pool[N])
            rows.hold_pool(pool)

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
        with first._rows, second._rows:
            self._ready_to("take keys")
            other._rows.ready()
            self._merge(other)

    def _merge(self, other: Bank) -> None:
        for what in self._SHARED:
            our, their = getattr(self, what), getattr(other, what)
            if our != their:
                raise InvalidInput(f"banks must have the same {what}, got {shown(our)} and {shown(their)}")
        rows, theirs = self._rows, other._rows
        if theirs.index is not None:
            common = rows.find(rows.check_kind(theirs.index.column())) >= 0
            if common.any():
                key = theirs.index.key(int(common.argmax()))
                raise InvalidInput(f"banks must have no key in common, got {shown(key)} in both")
        rows.uninterrupted(rows.take, theirs)

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
        with self._rows as rows:
            self._ready_to("forget")
            idle = rows.stats(LAST) <= rows.clock - before
            dropped, kept = self._empty(), self._empty()._rows
            dropped._rows.watching.now = rows.watching.now
            rows.copy_to(dropped._rows, idle)
            dropped._rows.begin_generation()
            if idle.any():
                rows.copy_to(kept, ~idle)
                rows.uninterrupted(rows.become, kept)
                self._streams.clear()
            return dropped

    def _empty(self) -> Bank:
        """A bank of the same settings without keys. Its monitors come with its rows."""
        return Bank(self._rows.method, self._seed, self._stream, prior=self._prior, threads=self._threads)

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
        with self._rows as rows:
            rows.ready()
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
        with self._rows as rows:
            rows.ready()
            arrays = {name: array.copy() for name, array in bankfile.sections_of(self).items()}
            return bankfile.copied, (type(self), bankfile.header_of(self), arrays, self._threads)

    # ---- inner ------------------------------------------------------------------------------------------------------

    def _ready_to(self, what: str) -> None:
        """Finish what was left, and raise unless the rows may change. The caller holds the rows."""
        self._rows.ready()
        self._rows.check_writable(what)

    def _slots_of(self, keys: Any) -> Slots:
        """The slots of keys that must be here."""
        slots = self._rows.find(self._rows.check_kind(check_keys(keys)))
        missing = slots < 0
        if missing.any():
            raise UnknownKey(f"key must be one of the {len(self)} keys of the bank - at row {int(missing.argmax())}")
        return slots

    def _slot(self, key: Any) -> int:
        """The slot of a key, -1 if there is none."""
        try:
            return self._rows.find_one(plain_key(key))
        except InvalidInput:
            return -1

    def _known(self, key: Any) -> int:
        slot = self._slot(key)
        if slot < 0:
            known = f"key must be one of the {len(self)} keys of the bank, got {shown(key)}"
            raise UnknownKey(f"{known} - predict(key, score) and run make new ones")
        return slot


add_hints(Bank, HINTS)


def _named_key(key: Any) -> Key:
    """A key as Python has it."""
    return key if type(key) is str or type(key) is int else check_key(key)


def thread_count(threads: int | None) -> int:
    """The number of threads, checked; if none is given, as many as this process may use processors."""
    return usable_cores() if threads is None else check_whole("threads", threads, 1, 1024)


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


def refuse_groups(groups: Any) -> None:
    """Raise `InvalidInput` where a bank is given groups."""
    if groups is not None:
        raise InvalidInput(NO_GROUPS)


# ---- rows for another host ---------------------------------------------------------------------------------------


# The clock of a bank counts events of all its keys, and no clock spans many machines. So a row leaves without the time
# of its last event (0), and every row that comes back counts as just seen. Behind a row are its monitor's numbers.


def row_width(bank: Bank) -> int:
    """How many numbers such a row has."""
    return bank._rows.stride + sum(part.settings.width for part in bank._rows.watching.parts)


def check_takes_weights(bank: Bank) -> None:
    """Raise unless outcomes of this bank may have weights."""
    bank._rows._check_weights(weighted=True, counted=False)


def rows_out(bank: Bank) -> tuple[npt.NDArray[Any], Matrix]:
    """The keys and their rows, in the order of the bank."""
    with bank._rows as store:
        store.ready()
        store.watching.resize(store.count)
        rows = store.matrix[: store.count].copy()
        rows[:, store.width + LAST] = 0.0
        for part in store.watching.parts:
            if part.queues:
                slot = min(part.queues)
                raise InvalidInput(
                    "a bank with monitors must have no outcome under way when its rows leave, got one of key "
                    f"{store.names(np.array([slot], dtype=np.int32))[0]!r}"
                )
            rows = np.hstack([rows, part.matrix[: store.count]])
        return store.names(), rows


def rows_in(bank: Bank, keys: Any, rows: Matrix, *, seen: bool = False) -> None:
    """Put such rows in place. With `seen` the bank's clock becomes the events of all of them, and they are of now."""
    store = bank._rows
    if rows.ndim != 2 or rows.shape[1] != row_width(bank):
        raise InvalidInput(f"rows must have {row_width(bank)} numbers each, got shape {rows.shape}")
    own = np.ascontiguousarray(rows[:, : store.stride])
    if seen:
        own[:, store.width + LAST] = own[:, store.width + EVENTS].sum()
    bank.set_rows(keys, own)
    at = store.stride
    for part in store.watching.parts:
        watched = rows[:, at : at + part.settings.width]
        at += part.settings.width
        part.settings.check_rows(watched)
        with store:
            part.matrix[store.find(check_keys(keys))] = watched
