"""How a monitor went: its numbers along a stream, for pictures and reports."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calibeat._util.check import check_lengths, check_outcomes, check_scores, check_whole
from calibeat._util.types import Ints, Vector

from .alarm import Alarm
from .monitor import Monitor


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

    >>> from calibeat import Monitor
    >>> from calibeat.monitor.trace import trace
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
