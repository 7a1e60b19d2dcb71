"""What can be read off a monitor: alarms, level, evidence, gain, regions, and what still waits."""

from __future__ import annotations

import math
from collections import deque
from typing import Any

import numpy as np

from calibeat._util.check import check_interval
from calibeat._util.columns import Table
from calibeat._util.types import Vector

from . import readout
from .alarm import Alarm
from .layout import ALARMS, BRIER, LOG, PAGES, PHI, WAITING, N, Settings
from .readout import Gain, gain_of, table_of
from .waiting import Queue, Waiting


class Readings:
    """The readable half of `Monitor`. Each reading is of one moment, whatever other threads do."""

    _settings: Settings
    _plain_spec: Any
    _row: Any
    _queue: Queue
    _alarms: deque[Alarm]
    _lock: Any  # an RLock

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
            return readout.level(self._plain_spec, self._row)

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
            return readout.evidence(self._plain_spec, self._row)

    def alarm(self, alpha: float | None = None) -> bool:
        """Whether the evidence since the start now speaks against "calibrated" at level alpha (the monitor's own)."""
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
            return gain_of(self._row, at, self._settings.alpha)

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
        """The state as one row of numbers, a copy; `calibeat.monitor.layout` says what stands where."""
        with self._lock:
            return np.array(self._row)

    def __repr__(self) -> str:
        alarms, pages = self.counts
        return f"Monitor(arl={self._settings.arl:,.0f}, outcomes={self.outcomes:,}, alarms={alarms}, pages={pages})"
