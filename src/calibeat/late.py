"""Outcomes that come late: when a batch learns them (`due`), and how many ones are known by then (`share_known`).

Often a one is reported soon, and a zero only when nothing has come for a while. A calibrator that learns each outcome
on arrival then sees only ones at first. With `mature=`, in a batch or a backtest, all outcomes are learnt at one age.
docs/late-outcomes.md tells when to use it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from calibeat._util.check import check_due, check_interval, check_lengths, check_outcomes, check_scores
from calibeat._util.columns import read_column, to_array
from calibeat._util.times import OK, Clock, check_age, read_times
from calibeat._util.types import Ints, Vector
from calibeat.errors import InvalidInput

__all__ = ["corrected", "due_of", "share_known"]


def due_of(length: int, due: Any = None, mature: Any = None, times: Any = None) -> Ints | None:
    """The position before which each outcome is learnt: when it has arrived and has reached its age.

    Parameters
    ----------
    length : how many events there are.
    due : when each outcome arrives, as in `Calibrator.run`; if not given, right after its own event.
    mature : the age at which an outcome may be learnt: a number of further forecasts, or a time such as ``"7d"`` or a
        timedelta.
    times : when each score was issued, in order: needed where the age is a time.

    Returns None where every outcome is learnt at once.

    Raises
    ------
    InvalidInput : `due` is not later than its event, `mature` is no age, or times are missing, unreadable or go back.

    >>> due_of(4, mature=2)
    array([3, 4, 5, 6])
    >>> due_of(4, due=[1, 4, 3, 4], mature="1h", times=[0, 1800, 3600, 7200])
    array([2, 4, 3, 4])
    """
    if mature is None and times is not None:
        raise InvalidInput("times must come with mature, which they are for, got times alone")
    arrivals = None if due is None else check_due(due, length) if length else np.empty(0, dtype=np.int64)
    if mature is None:
        return arrivals
    age, is_time = check_age("mature", mature)
    if is_time:
        issued = _moments(times, length)
        ripe = np.searchsorted(issued, issued + age, side="left")  # the first forecast at that age or later
        ripe = np.maximum(ripe, np.arange(1, length + 1))
    else:
        ripe = np.arange(1, length + 1) + age
    return ripe if arrivals is None else np.maximum(arrivals, ripe)


def _moments(times: Any, length: int) -> Ints:
    """Microseconds that never go back."""
    if times is None:
        raise InvalidInput("mature must be a number of events where there are no times, got a time; give times=")
    column, zoned = read_column("times", times)
    found = Clock().read("time", read_times(column, zoned=zoned))
    check_lengths(scores=length, times=len(found.values))
    if (found.states != OK).any():
        row = int((found.states != OK).argmax())
        raise InvalidInput(f"time must be a date (ISO 8601) or a number, got none - at row {row}")
    back = np.diff(found.values) < 0
    if back.any():
        row = int(back.argmax()) + 1
        raise InvalidInput(f"time must not go back, got an earlier one after a later one - at row {row}")
    return found.values


def share_known(
    delays: npt.ArrayLike, outcomes: npt.ArrayLike, age: float, watched: npt.ArrayLike | None = None
) -> float:
    r"""The share F of ones that are known by an age, from the delays of a log: for `corrected`.

    Parameters
    ----------
    delays : how long each outcome took to arrive, in any unit. Only those of ones are used.
    outcomes : 0 or 1.
    age : by which an outcome is called 0 if no 1 has come, in the unit of the delays.
    watched : how long each event has been watched: the end of the log less the time of the event. A one that takes
        longer is not in the log yet, so recent events show short delays only. With this argument that is allowed for:

        .. math:: F(a) = \prod_{d_j > a} (1 - n_j / R_j),

        with :math:`n_j` the ones of delay :math:`d_j`, and :math:`R_j` those of at most this delay that were watched at
        least so long (the product-limit estimator for right truncation, Lynden-Bell 1971). Without it, F is the plain
        share, which is too large where many events are recent.

    F is relative to the ones that come within the longest time watched: nothing in a log tells of those that take
    longer. It is one number for all: the delay must not depend on the score or the season.

    Raises
    ------
    InvalidInput : there is no 1, or a 1 has no delay, or one that is longer than it was watched.

    >>> round(share_known([1, 2, 8, 3], [1, 1, 1, 0], age=5), 4)
    0.6667
    >>> round(share_known([1, 1, 8, 1], [1, 1, 1, 1], age=5, watched=[9, 9, 9, 4]), 4)
    0.6667
    """
    taken = np.asarray(to_array(delays), dtype=np.float64)
    labels = check_outcomes(outcomes)
    check_lengths(delays=len(taken), outcomes=len(labels))
    ones = labels == 1.0
    bad = ones & ~(taken >= 0.0)
    if bad.any():
        row = int(bad.argmax())
        raise InvalidInput(f"delay of a 1 must be a number from 0 on, got {float(taken[row])!r} - at row {row}")
    if not ones.any():
        raise InvalidInput("outcomes must hold at least one 1, got none")
    waited = taken[ones]
    if watched is None:
        return float(np.mean(waited <= age))
    seen = np.asarray(to_array(watched), dtype=np.float64)
    check_lengths(delays=len(taken), watched=len(seen))
    seen = seen[ones]
    if not (seen >= waited).all():
        row = int(np.flatnonzero(ones)[int((~(seen >= waited)).argmax())])
        raise InvalidInput(
            f"watched must be at least the delay of the 1, got {float(np.asarray(watched)[row])!r} - at row {row}"
        )
    later, count = np.unique(waited[waited > age], return_counts=True)
    # R_j = #(d <= d_j) - #(w < d_j), as d <= w
    at_risk = np.searchsorted(np.sort(waited), later, side="right") - np.searchsorted(np.sort(seen), later, side="left")
    return float(np.prod(1.0 - count / at_risk))


def corrected(forecasts: npt.ArrayLike, share: float) -> Vector:
    """Forecasts of "a 1 is known by the age" as forecasts of "a 1 comes at all": p / F, at most 1.

    Where positives that come after the age are called 0 for good, a calibrator learns the chance that a one comes in
    time. With F the `share_known`, p / F is the chance that it comes. It is only as good as F: where F is estimated
    10 % too small, every forecast is 10 % too large.

    Raises
    ------
    InvalidInput : a forecast is not in [0, 1], or the share not in [1e-6, 1].

    >>> corrected([0.1, 0.3], share=0.5)
    array([0.2, 0.6])
    """
    share = check_interval("share", share, 1e-6, 1.0)
    return np.minimum(check_scores(forecasts, "forecast") / share, 1.0)
