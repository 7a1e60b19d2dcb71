"""The monitor of one stream: it checks its input, reads outcomes in the order of forecasts, and names the alarms."""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from calibeat._util.check import (
    check_due,
    check_interval,
    check_lengths,
    check_number,
    check_outcome,
    check_outcomes,
    check_scores,
    check_whole,
)
from calibeat._util.columns import Table
from calibeat._util.processes import new_lock
from calibeat._util.sealed import seal, unseal
from calibeat._util.types import Ints, Vector
from calibeat.errors import InvalidInput, SnapshotMismatch

from .bets import (
    ALARM_AT,
    ALARMS,
    BRIER,
    CELL,
    FORECASTS,
    LOG,
    PAGES,
    PHI,
    SINCE,
    WAITING,
    Gain,
    N,
    Settings,
    compare,
    evidence,
    gain_of,
    level,
    read,
    step,
    table_of,
)
from .waiting import Event, Queue, Step, Waiting

_WORDS = ("too low", "too high", "not sure enough", "too sure")


class Alarm(NamedTuple):
    """One alarm of a monitor.

    Attributes
    ----------
    at : how many outcomes had been read when it was raised, that one included.
    since : the estimated outcome number at which the fault began.
    what : which bet won: "too low", "too high", "too sure", "not sure enough", or "too low from 0.8 to 0.95".
    page : False if another alarm was raised within the last `quiet` outcomes: the same episode.
    low, high : the forecasts that it concerns, [low, high).
    cell : 2 x scope + direction. Scopes: 0 all events, 1 "sure", 2 and up the regions. Direction 0 is "too low".
    """

    at: int
    since: float
    what: str
    page: bool
    low: float
    high: float
    cell: int


def last_alarm(settings: Settings, row: Any, *, page: bool) -> Alarm:
    """The last alarm of a row."""
    return alarm_of(settings, int(row[ALARM_AT]), float(row[SINCE]), int(row[CELL]), page)


def alarm_of(settings: Settings, at: int, since: float, cell: int, page: bool) -> Alarm:
    """An alarm by its numbers."""
    if cell < len(_WORDS):
        return Alarm(at, since, _WORDS[cell], page, 0.0, 1.0, cell)
    low, high = settings.edges[cell // 2 - 2 : cell // 2]
    return Alarm(at, since, f"{_WORDS[cell % 2]} from {low:g} to {high:g}", page, low, high, cell)


def read_events(settings: Settings, spec: Any, row: Any, events: Sequence[Event]) -> list[Alarm]:
    """Read outcomes in the order of their forecasts, in plain Python -> the alarms raised."""
    raised = []
    for p, y, s in events:
        pages = row[PAGES]
        if not math.isnan(s):
            compare(row, p, y, s)
        if step(spec, row, p, y):
            raised.append(last_alarm(settings, row, page=row[PAGES] > pages))
    return raised


KIND, FORMAT = "calibeat/monitor", 1
_FIELDS = ("settings", "row", "queue", "alarms")
_KEPT = 1000  # alarms that are remembered one by one


class Monitor:
    r"""Watches one column of forecasts and raises an alarm when they are not calibrated any more.

    Under the null hypothesis, "an outcome of forecast p is 1 with probability p, given the outcomes before it", the
    expected number of alarms by any time t is at most t / arl. Look as often as you like.

    Parameters
    ----------
    arl : average run length, in outcomes, from 1 to 1e15: at most one false alarm is expected in this many outcomes.
    alpha : level of the e-values, bands and intervals, a probability from 1e-12 to 0.5.
    tolerance : ignore miscalibration of at most this many logits, from 0 to 10.
    quiet : a further alarm within this many outcomes belongs to the same episode, and does not page.
    warm : bet only after this many outcomes. They measure how strongly outcomes cluster.
    patience : give up a missing outcome after this many further forecasts.
    regions : how many regions of the forecast are watched, 6 or 2. A row takes 140 or 76 numbers.

    Raises
    ------
    InvalidInput : a parameter is outside its range.

    >>> import numpy as np
    >>> from calibeat import Monitor
    >>> rng = np.random.default_rng(0)
    >>> forecasts = rng.uniform(size=6000)
    >>> truth = np.where(np.arange(6000) < 5000, forecasts, 0.6 * forecasts)     # breaks at 5,000
    >>> monitor = Monitor(arl=100_000)
    >>> alarms = monitor.run(forecasts, rng.uniform(size=6000) < truth)
    >>> alarms[0].at, round(alarms[0].since), alarms[0].what, alarms[0].page
    (5060, 4978, 'too high', True)
    >>> monitor.counts                         # alarms, and those that page: the same fault pages once
    (8, 1)

    One event at a time, with outcomes that come late and in any order:

    >>> first, second = monitor.announce(), monitor.announce()
    >>> monitor.update(second, 0.9, 1), monitor.update(first, 0.2, 0)
    ([], [])

    Several threads may use one monitor.

    References: Shin, Ramdas & Rinaldo, E-detectors (2024); Howard et al., Time-uniform confidence sequences (2021).
    """

    def __init__(
        self,
        arl: float = 1_000_000,
        alpha: float = 0.05,
        tolerance: float = 0.0,
        quiet: int = 1000,
        warm: int = 1024,
        patience: int = 100_000,
        regions: int = 6,
    ) -> None:
        self._settings = settings = Settings(arl, alpha, tolerance, quiet, warm, patience, regions)
        self._spec = settings.spec
        self._plain_spec: Any = tuple(self._spec.tolist())  # what the plain kernels read fastest
        self._row: Any = array("d", settings.initial_row())
        self._queue = Queue(settings.patience)
        self._alarms: deque[Alarm] = deque(maxlen=_KEPT)
        self._untold: list[Alarm] = []  # raised since `update` or `run` last returned
        self._hosted = False
        self._lock = new_lock()

    # ---- one event ------------------------------------------------------------------------------------------------

    def announce(self) -> int:
        """Say that a forecast is made -> its number, from 0, for `update`.

        This may give up the outcome of an old forecast. The outcomes behind it are then read and may raise alarms,
        which the next `update` or `run` returns.

        Raises
        ------
        InvalidInput : the monitor belongs to a calibrator, which feeds it.
        """
        with self._lock:
            self._check_free()
            return self._announce()

    def update(self, number: int, forecast: float, outcome: Any, score: float | None = None) -> list[Alarm]:
        """Take the outcome of an announced forecast, in any order -> the alarms raised since the last call.

        Parameters
        ----------
        number : as `announce` gave it.
        forecast : the probability that was forecast.
        outcome : 0 or 1.
        score : the raw score, if the gain over it is wanted.

        The outcome of a forecast that was given up is counted in `waiting.too_late` and otherwise ignored.

        Raises
        ------
        InvalidInput : a forecast or score outside [0, 1], an outcome other than 0 or 1, or a monitor that belongs to a
            calibrator.
        UnknownForecast : the number was never announced.
        OutcomeConflict : the forecast has an outcome already.

        >>> from calibeat import Monitor
        >>> monitor = Monitor()
        >>> monitor.update(monitor.announce(), 0.7, 1, score=0.9)
        []
        """
        number = check_whole("number", number, 0, 2**53)
        p = check_interval("forecast", forecast, 0.0, 1.0)
        y = check_outcome(outcome)
        s = math.nan if score is None else check_interval("score", score, 0.0, 1.0)
        with self._lock:
            self._check_free()
            if self._queue.counts(number):
                self._take(number, (p, y, s))
            else:
                self._queue.too_late += 1
            return self._tell()

    # ---- many events ----------------------------------------------------------------------------------------------

    def run(
        self,
        forecasts: npt.ArrayLike,
        outcomes: npt.ArrayLike,
        scores: npt.ArrayLike | None = None,
        due: npt.ArrayLike | None = None,
    ) -> list[Alarm]:
        """Announce and update, event after event; the same bits as doing so one by one -> the alarms raised.

        Parameters
        ----------
        forecasts : probabilities in [0, 1].
        outcomes : 0 or 1.
        scores : the raw scores, if the gain over them is wanted.
        due : for late outcomes. Outcome i comes just before forecast ``due[i]`` (> i) of this batch. One that is due
            after the end, ``due[i] > len(forecasts)``, still waits; its place in `outcomes` may hold anything.

        Raises
        ------
        InvalidInput : columns of different lengths, a number outside its range (the message names the row), or a
            monitor that belongs to a calibrator. No event is taken then.

        >>> from calibeat import Monitor
        >>> monitor = Monitor()
        >>> monitor.run([0.2, 0.7, 0.6], [0, 1, 1], due=[3, 2, 9])
        []
        >>> monitor.waiting.outcomes, monitor.waiting.waiting
        (2, 1)
        """
        p = check_scores(forecasts, "forecast")
        n = len(p)
        arrivals = None if due is None or n == 0 else check_due(due, n)
        y = check_outcomes(outcomes, needed=None if arrivals is None else arrivals <= n)
        check_lengths(forecasts=n, outcomes=len(y))
        s = np.full(n, np.nan)
        if scores is not None:
            s = check_scores(scores)
            check_lengths(forecasts=n, scores=len(s))
        with self._lock:
            self._check_free()
            self._run(p, y, s, arrivals)
            return self._tell()

    # ---- for hosts, which check the input, hold the lock and handle second outcomes ---------------------------------

    def _serve(self) -> Monitor:
        """Join a host: from now on only the host may feed it."""
        with self._lock:
            if self._hosted or self._queue.announced:
                raise InvalidInput("monitor must be new, got one that has seen forecasts or belongs to another host")
            self._hosted = True
        return self

    def _check_free(self) -> None:
        if self._hosted:
            raise InvalidInput("monitor must be fed by its calibrator, to which it belongs, got a call from outside")

    def _catch_up(self, forecasts: int) -> None:
        """Announce so many forecasts in all."""
        while self._queue.announced < forecasts:
            self._announce()

    def _learn(self, number: int, p: float, y: float, s: float) -> None:
        """Take an outcome, if its forecast waits for one."""
        if self._queue.is_open(number):
            self._take(number, (p, y, s))

    def _run(self, p: Vector, y: Vector, s: Vector, due: Ints | None, *, closed: bool = False) -> None:
        """A batch; if it is closed, outcomes that are due after its end never come."""
        # Copies: an interrupted loop changes nothing.
        queue, n, row, raised = self._queue.copy(), len(p), self._row[:], []
        if due is None and queue.next == queue.announced:  # nothing waits, nothing will
            queue.announced += n
            queue.next += n
        else:
            p, y, s = queue.take_many(p, y, s, np.arange(1, n + 1) if due is None else due, closed=closed)
        row[FORECASTS] = queue.announced
        row[WAITING] = sum(range(queue.next, queue.announced)) - sum(queue.held)
        kernel, view, first = read, np.frombuffer(row), 0
        while first < len(p):
            alarms, pages = row[ALARMS], row[PAGES]
            first = kernel(self._spec, view, p, y, s, first)
            if row[ALARMS] > alarms:
                raised.append(last_alarm(self._settings, row, page=row[PAGES] > pages))
        alarms, untold = self._with(raised)
        # One statement without a call: an interrupt comes before or after all of it. The same below.
        self._queue, self._row, self._alarms, self._untold = queue, row, alarms, untold

    # ---- inner ----------------------------------------------------------------------------------------------------

    def _announce(self) -> int:
        row = self._row[:]
        step = self._queue.step(row)
        self._keep(row, step)
        return step.announced - 1

    def _take(self, number: int, event: Event) -> None:
        row = self._row[:]
        self._keep(row, self._queue.step(row, number, event))

    def _keep(self, row: Any, step: Step) -> None:
        """Read what can be read into a copy of the row, and publish it."""
        queue, alarms, untold = self._queue, self._alarms, self._untold
        if step.ready and (raised := read_events(self._settings, self._plain_spec, row, step.ready)):
            alarms, untold = self._with(raised)
        announced, following, given_up, left = step.announced, step.next, step.given_up, None if step.is_done else step
        self._row, self._alarms, self._untold, queue.announced, queue.next, queue.given_up, queue.left = (
            row, alarms, untold, announced, following, given_up, left,
        )  # fmt: skip
        queue.finish()

    def _with(self, raised: list[Alarm]) -> tuple[deque[Alarm], list[Alarm]]:
        """The alarms kept and those not yet returned, after these have been raised."""
        if not raised:
            return self._alarms, self._untold
        untold = self._untold if self._hosted else [*self._untold, *raised]
        return deque([*self._alarms, *raised], maxlen=_KEPT), untold

    def _tell(self) -> list[Alarm]:
        told = list(self._untold)
        self._untold.clear()
        return told

    # ---- state ----------------------------------------------------------------------------------------------------

    def to_json(self) -> str:
        """The whole state as text: versioned, checksummed, every float exact.

        >>> from calibeat import Monitor
        >>> monitor = Monitor()
        >>> alarms = monitor.run([0.2, 0.7], [0, 1])
        >>> Monitor.from_json(monitor.to_json()).outcomes
        2
        """
        return seal(KIND, FORMAT, self._state())

    def _state(self) -> dict[str, Any]:
        with self._lock:
            alarms = [[alarm.at, alarm.since, alarm.cell, alarm.page] for alarm in self._alarms]
            queue = self._queue.to_dict()
            return {"settings": asdict(self._settings), "row": self._row.tolist(), "queue": queue, "alarms": alarms}

    @classmethod
    def from_json(cls, text: str | bytes) -> Monitor:
        """Continue from `to_json`.

        Raises
        ------
        SnapshotMismatch : the text is damaged, or not of a monitor. The message says what is wrong.
        """
        state = unseal(KIND, FORMAT, _FIELDS, text)
        try:
            return cls._restored(state)
        except InvalidInput as error:
            raise SnapshotMismatch(f"snapshot must hold what a monitor can hold: {error}") from error

    @classmethod
    def _restored(cls, state: Any) -> Monitor:
        """The inverse of `_state`."""
        try:
            return cls._checked(state)
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, InvalidInput):
                raise
            raise InvalidInput(f"monitor must be as it was saved, got {error!r:.100}") from error

    @classmethod
    def _checked(cls, state: Any) -> Monitor:
        monitor = cls(**state["settings"])
        row = [check_number(f"row[{i}]", number) for i, number in enumerate(state["row"])]
        settings = monitor._settings
        settings.check_rows(np.array([row]))
        monitor._row[:] = array("d", row)
        queue = monitor._queue = Queue.from_dict(settings.patience, state["queue"])
        if queue.next != row[N] + queue.given_up or queue.announced != row[FORECASTS]:
            raise InvalidInput(f"queue must fit the row, got {queue.next} forecasts done, {row[N]:.0f} outcomes read")
        last = 0
        for at, since, cell, page in state["alarms"]:
            last = check_whole("alarm at", at, last + 1, int(row[ALARM_AT]))
            start = check_interval("alarm since", since, 0.0, last)
            where = check_whole("alarm cell", cell, 0, 2 * settings.regions + 3)
            monitor._alarms.append(alarm_of(settings, last, start, where, bool(page)))
        return monitor

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle by the snapshot."""
        return type(self).from_json, (self.to_json(),)

    # ---- readings: each is consistent, whatever other threads do ----------------------------------------------------

    @property
    def settings(self) -> Settings:
        """The parameters."""
        return self._settings

    @property
    def outcomes(self) -> int:
        """How many outcomes have been read."""
        return int(self._row[N])

    @property
    def alarms(self) -> list[Alarm]:
        """The alarms, oldest first; the last 1,000 are kept."""
        with self._lock:
            return list(self._alarms)

    @property
    def counts(self) -> tuple[int, int]:
        """How many alarms were raised ever, and how many of them paged."""
        with self._lock:
            return int(self._row[ALARMS]), int(self._row[PAGES])

    @property
    def level(self) -> float:
        """The highest detector as a share of the alarm line: an alarm is raised at 1, and then it is 0 again."""
        with self._lock:
            return level(self._plain_spec, self._row)

    @property
    def dispersion(self) -> float:
        """phi: how many times as much block sums of outcomes vary as independent outcomes would; at least 1."""
        return float(self._row[PHI])

    @property
    def evidence(self) -> float:
        """Log e-value against "calibrated since the start", in nats.

        If the forecasts are calibrated, the probability that e^evidence ever reaches 1/alpha is at most alpha.
        """
        with self._lock:
            return evidence(self._plain_spec, self._row)

    def alarm(self, alpha: float | None = None) -> bool:
        """Whether the evidence since the start speaks against "calibrated" at level alpha, by default the monitor's.

        Raises
        ------
        InvalidInput : alpha is outside [1e-300, 1].
        """
        level = self._settings.alpha if alpha is None else check_interval("alpha", alpha, 1e-300, 1.0)
        return self.evidence >= -math.log(level)

    @property
    def gain(self) -> Gain:
        """Mean Brier score of the raw scores minus that of the forecasts, with an interval that holds at every moment.

        >>> from calibeat import Monitor
        >>> monitor = Monitor()
        >>> alarms = monitor.run([0.3] * 400, [0, 0, 1, 0] * 100, scores=[0.6] * 400)
        >>> [round(x, 3) for x in monitor.gain]
        [0.12, 0.067, 0.173]
        """
        return self._gain(BRIER)

    @property
    def log_gain(self) -> Gain:
        """The same for the log-loss, in nats; forecasts and scores are clipped to [1e-5, 1 - 1e-5]."""
        return self._gain(LOG)

    def _gain(self, at: int) -> Gain:
        with self._lock:
            return Gain(*gain_of(self._row, at, self._settings.alpha))

    @property
    def table(self) -> Table:
        """An element for each region of the forecast, as a mapping of arrays that any data frame library takes.

        =================================  =======================================================================
        column                             holds
        =================================  =======================================================================
        low, high                          the forecasts of the region, [low, high)
        count                              outcomes read
        forecast, outcome                  their means
        gap, gap_low, gap_high             outcome - forecast, and a band that holds at every moment for all regions
        log_e_too_low, log_e_too_high      log e-values since the start
        =================================  =======================================================================

        >>> from calibeat import Monitor
        >>> monitor = Monitor(regions=2)
        >>> alarms = monitor.run([0.3] * 400, [0, 0, 1, 0] * 100)
        >>> monitor.table["gap"].round(3)
        array([-0.05,   nan])
        """
        with self._lock:
            return table_of(self._settings, np.array(self._row))

    @property
    def waiting(self) -> Waiting:
        """Forecasts announced, outcomes received, and what still waits."""
        with self._lock:
            return self._queue.count(self.outcomes, self._row[WAITING])

    @property
    def row(self) -> Vector:
        """A copy of the state, one row of float64; `calibeat.monitor.bets` says what each number is."""
        with self._lock:
            return np.array(self._row)

    def __repr__(self) -> str:
        alarms, pages = self.counts
        return f"Monitor(arl={self._settings.arl:,.0f}, outcomes={self.outcomes:,}, alarms={alarms}, pages={pages})"


@dataclass(frozen=True)
class Trace:
    """A monitor along a stream, at some of its outcomes.

    Attributes
    ----------
    at : outcomes read so far.
    level : the detector as a share of the alarm line. An alarm shows twice: at 1, and at 0 where it starts again.
    evidence : log e-value since the start.
    gain, gain_low, gain_high : mean Brier gain over the raw score and its interval; NaN without scores.
    alarms : those raised on the way.
    """

    at: Ints
    level: Vector
    evidence: Vector
    gain: Vector
    gain_low: Vector
    gain_high: Vector
    alarms: tuple[Alarm, ...]


def trace(
    monitor: Monitor,
    forecasts: npt.ArrayLike,
    outcomes: npt.ArrayLike,
    scores: npt.ArrayLike | None = None,
    points: int = 300,
) -> Trace:
    """Run the monitor over a stream, in the order of forecasts, and note its numbers at `points` outcomes.

    Raises
    ------
    InvalidInput : columns of different lengths, a number outside its range, or points not in [1, 1,000,000].

    >>> from calibeat import Monitor
    >>> from calibeat.monitor.monitor import trace
    >>> went = trace(Monitor(arl=20, warm=0), [0.9] * 40, [0] * 40, points=4)
    >>> [alarm.at for alarm in went.alarms], went.at.tolist()
    ([6, 12, 18, 24, 30, 36], [6, 6, 10, 12, 12, 18, 18, 20, 24, 24, 30, 30, 36, 36, 40])
    """
    p, y = check_scores(forecasts, "forecast"), check_outcomes(outcomes)
    s = None if scores is None else check_scores(scores)
    check_lengths(forecasts=len(p), outcomes=len(y), scores=len(p if s is None else s))
    points = check_whole("points", points, 1, 10**6)
    edges = np.unique(np.linspace(0, len(p), points + 1).astype(np.int64))
    lines: list[tuple[float, ...]] = []
    alarms: list[Alarm] = []
    for first, last in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        found = monitor.run(p[first:last], y[first:last], None if s is None else s[first:last])
        alarms += found
        now = (monitor.evidence, *monitor.gain)
        for alarm in found:
            lines += [(alarm.at, 1.0, *now), (alarm.at, 0.0, *now)]
        if not found or found[-1].at < monitor.outcomes:
            lines.append((monitor.outcomes, monitor.level, *now))
    at, level, evidence, gain, low, high = np.array(lines).T
    return Trace(at.astype(np.int64), level, evidence, gain, low, high, tuple(alarms))
