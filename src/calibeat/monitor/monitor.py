"""The monitor of one stream: row 0 of `Monitors`, behind a lock and checks of its input."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from calibeat._util.check import (
    check_due,
    check_interval,
    check_lengths,
    check_outcome,
    check_outcomes,
    check_scores,
    check_whole,
)
from calibeat._util.columns import Table
from calibeat._util.types import Ints, Slots, Vector
from calibeat.core.algebra import ln

from .bets import ALARM_AT, ALARMS, BRIER, LOG, PAIRS, PHI, Alarm, Gain, N, Settings, gain_of, table_of
from .detector import Watcher, read_row
from .monitors import EVIDENCE, GAIN_HIGH, GAIN_LOW, LEVEL, Monitors
from .waiting import Waiting

_SLOT: Slots = np.zeros(1, dtype=np.int32)  # slot 0


class Monitor(Watcher):
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
    regions : how many regions of the forecast are watched, 6 or 2. A row takes 142 or 78 numbers.
    sampled : the shares of ones and of zeros that the log kept, each in (0, 1] and known beforehand, if it dropped
        events by their outcome: ``(1, 0.05)`` for all ones and one zero in 20. The forecasts are those of all events.
        What the monitor reports is then about the events that were kept. docs/monitor.md.

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

    Several threads may use one monitor. Snapshots, copies and pickles continue with the same bits:

    >>> Monitor.from_json(monitor.to_json()).outcomes
    6002

    References: Shin, Ramdas & Rinaldo, E-detectors (2024); Howard et al., Time-uniform confidence sequences (2021).
    """

    KIND = "calibeat/monitor"
    _rows: Monitors
    FIELDS = ("settings", "row", "queue", "alarms")

    def __init__(
        self,
        arl: float = 1_000_000,
        alpha: float = 0.05,
        tolerance: float = 0.0,
        quiet: int = 1000,
        warm: int = 1024,
        patience: int = 100_000,
        regions: int = 6,
        sampled: tuple[float, float] | None = None,
    ) -> None:
        settings = Settings(arl, alpha, tolerance, quiet, warm, patience, regions, sampled)
        self._begin(Monitors(settings, detailed=True))
        self._told = 0  # how many alarms `update` and `run` have returned

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
            return self._rows.announce(0)

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
            queue = self._rows.queue(0)
            if queue.counts(number):
                self._rows.update(0, number, (p, y, s))
            else:
                queue.count_late()
            return self._tell([])

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
            return self._tell(self._rows.run(0, p, y, s, arrivals))

    def _tell(self, raised: list[Alarm]) -> list[Alarm]:
        """The alarms since the last call: those that this call has raised, and those of calls that did not say so."""
        told, self._told = self._told, int(self._rows.matrix[0, ALARMS])
        new = self._told - told
        return raised if new == len(raised) else self._rows.queue(0).alarms[-new:]

    @property
    def _has_begun(self) -> bool:
        return self._rows.queue(0).announced > 0

    # ---- state ----------------------------------------------------------------------------------------------------

    def _state(self) -> dict[str, Any]:
        with self._lock:
            queue, settings = self._rows.queue(0), self.settings
            alarms = [[a.at, a.since, settings.cells.index(a.what), a.page] for a in queue.alarms]
            row = self._rows.matrix[0].tolist()
            return {"settings": asdict(settings), "row": row, "queue": queue.to_dict(), "alarms": alarms}

    @classmethod
    def _of_state(cls, state: Any) -> Self:
        monitor = cls(**state["settings"])
        rows, settings, last = monitor._rows, monitor.settings, 0
        rows.matrix[0] = row = read_row(settings, state["row"])
        rows.set_queue(0, state["queue"])
        for at, since, cell, page in state["alarms"]:
            last = check_whole("alarm at", at, last + 1, int(row[ALARM_AT]))
            start = check_interval("alarm since", since, 0.0, last)
            what = settings.cells[check_whole("alarm cell", cell, 0, len(settings.cells) - 1)]
            rows.queues[0].alarms.append(Alarm(last, start, what, bool(page)))
        monitor._told = int(row[ALARMS])
        return monitor

    @classmethod
    def _copied(cls, monitors: Monitors, slot: int) -> Monitor:
        """A copy of one of many, to read from. Of its alarms it knows the last."""
        made = cls(**asdict(monitors.settings))._serve()
        made._rows.matrix[0] = monitors.matrix[slot]
        queue = made._rows.queues[0] = monitors.queue(slot).copy()
        queue.too_late = None
        queue.alarms = [a.last for a in monitors.alarms(np.array([slot])) if a.last is not None]
        return made

    # ---- readings: each is consistent, whatever other threads do ----------------------------------------------------

    @property
    def settings(self) -> Settings:
        """The parameters."""
        return self._rows.settings

    @property
    def outcomes(self) -> int:
        """How many outcomes have been read."""
        return int(self._rows.matrix[0, N])

    @property
    def alarms(self) -> list[Alarm]:
        """The alarms, oldest first; the last 1,000 are kept."""
        with self._lock:
            return list(self._rows.queue(0).alarms)

    @property
    def level(self) -> float:
        """The highest detector as a share of the alarm line: an alarm is raised at 1, and then it is 0 again."""
        with self._lock:
            return self._rows.read_out(_SLOT)[0, LEVEL].item()

    @property
    def dispersion(self) -> float:
        """phi: how many times as much block sums of outcomes vary as independent outcomes would; at least 1."""
        return float(self._rows.matrix[0, PHI])

    @property
    def evidence(self) -> float:
        """Log e-value against "calibrated since the start", in nats.

        If the forecasts are calibrated, the probability that e^evidence ever reaches 1/alpha is at most alpha.
        """
        with self._lock:
            return self._rows.read_out(_SLOT)[0, EVIDENCE].item()

    def alarm(self, alpha: float | None = None) -> bool:
        """Whether the evidence since the start speaks against "calibrated" at level alpha, by default the monitor's.

        Raises
        ------
        InvalidInput : alpha is outside [1e-300, 1].
        """
        level = self.settings.alpha if alpha is None else check_interval("alpha", alpha, 1e-300, 1.0)
        return self.evidence >= -ln(level)

    @property
    def gain(self) -> Gain:
        """Mean Brier score of the raw scores minus that of the forecasts, with an interval that holds at every moment.

        >>> from calibeat import Monitor
        >>> monitor = Monitor()
        >>> alarms = monitor.run([0.3] * 400, [0, 0, 1, 0] * 100, scores=[0.6] * 400)
        >>> [round(x, 3) for x in monitor.gain]
        [0.12, 0.067, 0.173]
        """
        with self._lock:
            row, out = self._rows.matrix[0], self._rows.read_out(_SLOT)[0]
            mean = row[BRIER] / row[PAIRS] if row[PAIRS] else np.float64(math.nan)
            return Gain(mean.item(), out[GAIN_LOW].item(), out[GAIN_HIGH].item())

    @property
    def log_gain(self) -> Gain:
        """The same for the log-loss, in nats; forecasts and scores are clipped to [1e-5, 1 - 1e-5]."""
        with self._lock:
            return Gain(*gain_of(self._rows.matrix[0].tolist(), LOG, self.settings.alpha))

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
            return table_of(self.settings, self._rows.matrix[0])

    @property
    def waiting(self) -> Waiting:
        """Forecasts announced, outcomes received, and what still waits."""
        with self._lock:
            return self._rows.queue(0).count(self._rows.matrix[0])

    def __repr__(self) -> str:
        alarms, pages = self.counts
        shares = "" if self.settings.sampled is None else f" sampled={self.settings.sampled},"
        arl = f"arl={self.settings.arl:,.0f}"
        return f"Monitor({arl},{shares} outcomes={self.outcomes:,}, alarms={alarms}, pages={pages})"


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
