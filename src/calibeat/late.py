"""Outcomes that come late: when each is learnt, in which order, and how many ones are known by then (`share_known`).

Often a one is reported soon, and a zero only when nothing has come for a while. A calibrator that learns each outcome
on arrival then sees only ones at first. With `mature=`, in a batch or a backtest, all outcomes are learnt at one age.
docs/late-outcomes.md tells when to use it.

Every host asks here: `schedule` gives the position before which each outcome is learnt, `in_order` their order in one
stream, and `Arrivals` both for many streams.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from calibeat._util.check import check_due, check_interval, check_lengths, check_outcomes, check_scores
from calibeat._util.columns import read_column
from calibeat._util.times import NEVER, OK, UNREADABLE, Clock, check_age, read_times
from calibeat._util.types import Ints, Slots, Vector
from calibeat.core.subset import entry
from calibeat.errors import InvalidInput

__all__ = ["corrected", "due_of", "share_known"]


class Schedule(NamedTuple):
    """When the outcomes of a batch are learnt."""

    due: Ints  # before which event; a position behind the last one is never, or at the end
    moments: Ints | None = None  # the order of those that are due together: when each is learnt, if that is known

    def in_turn(self, outcomes: Ints) -> Ints:
        """Some outcomes, those that are due together in their order."""
        if self.moments is None:
            return outcomes
        return outcomes[np.argsort(self.moments[outcomes], kind="stable")]


def due_of(
    length: int, due: Any = None, mature: Any = None, times: Any = None, outcome_times: Any = None
) -> Ints | None:
    """The position before which each outcome is learnt: when it has arrived and has reached its age.

    Parameters
    ----------
    length : how many events there are.
    due : when each outcome arrives, as in `Calibrator.run`; if not given, right after its own event.
    mature : the age at which an outcome may be learnt: a number of further forecasts, or a time such as ``"7d"`` or a
        timedelta.
    times : when each score was issued, in order: needed where the age is a time, and with `outcome_times`.
    outcome_times : when each outcome is known, instead of `due`; missing where it never is.

    Returns None where every outcome is learnt at once.

    Raises
    ------
    InvalidInput : `due` is not later than its event, `mature` is no age, or times are missing, unreadable or go back.

    >>> due_of(4, mature=2)
    array([3, 4, 5, 6])
    >>> due_of(4, due=[1, 4, 3, 4], mature="1h", times=[0, 1800, 3600, 7200])
    array([2, 4, 3, 4])
    >>> due_of(4, times=[0, 1800, 3600, 7200], outcome_times=[900, 7000, 3600, None])
    array([1, 3, 3, 5])
    """
    found = _planned(length, due, mature, times, outcome_times)
    return None if found is None else found.due


def _planned(length: int, due: Any, mature: Any, times: Any, outcome_times: Any) -> Schedule | None:
    """When each outcome is learnt; None where all are learnt at once."""
    if outcome_times is not None:
        return _planned_by_times(length, due, mature, times, outcome_times)
    positions = None if due is None else check_due(due, length) if length else np.empty(0, dtype=np.int64)
    if mature is None:
        if times is not None:
            raise InvalidInput(
                "times must come with mature or outcome_times, which they are for, got times without them"
            )
        return None if positions is None else Schedule(positions)
    age, is_time = check_age("mature", mature)
    ripe = next_forecasts(moments_of(times, length), age=age) if is_time else np.arange(1, length + 1) + age
    return Schedule(ripe if positions is None else np.maximum(positions, ripe))


def _planned_by_times(length: int, due: Any, mature: Any, times: Any, outcome_times: Any) -> Schedule:
    """As `_planned`, where it is known when each outcome is known."""
    if due is not None:
        raise InvalidInput("due and outcome_times must not come together, got both")
    if times is None:
        raise InvalidInput("outcome_times must come with times, those of the scores, got none; give times=")
    clock = Clock(how="give times and outcome_times a zone, or neither")
    issued, known = moments_of(times, length, clock), _known_times(outcome_times, length, clock)
    age, is_time = (0, True) if mature is None else check_age("mature", mature)
    never = known == NEVER
    moments = known = np.where(never, NEVER, np.maximum(known, issued + age)) if is_time else known
    positions = next_forecasts(issued, known)
    if not is_time:  # some wait for the forecast that makes them old enough
        ripe = np.arange(1, length + 1) + age
        waits = (ripe > positions) & ~never
        moments = np.where(waits, issued[np.minimum(ripe, length - 1)], known)
        positions = np.maximum(positions, ripe)
    return Schedule(np.where(never, length + 1, positions), moments)


def _known_times(outcome_times: Any, length: int, clock: Clock) -> Ints:
    """When each outcome is known, in microseconds since 1970; NEVER where it is missing."""
    column = read_column("outcome_times", outcome_times)
    found = clock.read("outcome_time", read_times(column.as_array(), zoned=column.zoned))
    check_lengths(scores=length, outcome_times=len(found.values))
    if (found.states == UNREADABLE).any():
        row = int((found.states == UNREADABLE).argmax())
        raise InvalidInput(f"outcome_time must be a date (ISO 8601) or a number, got none - at row {row}")
    return found.values


def moments_of(times: Any, length: int, clock: Clock | None = None) -> Ints:
    """When each score was issued, in microseconds since 1970 that never go back.

    >>> moments_of(["1970-01-01T00:00:01", "1970-01-01T00:00:02"], 2)
    array([1000000, 2000000])
    """
    if times is None:
        raise InvalidInput("mature must be a number of events where there are no times, got a time; give times=")
    column = read_column("times", times)
    found = (clock or Clock()).read("time", read_times(column.as_array(), zoned=column.zoned))
    check_lengths(scores=length, times=len(found.values))
    if (found.states != OK).any():
        row = int((found.states != OK).argmax())
        raise InvalidInput(f"time must be a date (ISO 8601) or a number, got none - at row {row}")
    back = np.diff(found.values) < 0
    if back.any():
        row = int(back.argmax()) + 1
        raise InvalidInput(f"time must not go back, got an earlier one after a later one - at row {row}")
    return found.values


# ---- when each outcome of a batch is learnt ----------------------------------------------------------------------


def schedule(
    length: int, due: Any = None, mature: Any = None, times: Any = None, outcome_times: Any = None, *, finish: bool
) -> Schedule | None:
    """As `due_of`, for a batch that ends: what is due at its end or later is learnt at the end, if it is to `finish`.

    If not, or if it is never known, it is never learnt. Its position is then `length + 1`. What is learnt at the end is
    so in the order of `due`.

    >>> schedule(4, mature=2, finish=True).due, schedule(4, mature=2, finish=False).due
    (array([3, 4, 4, 4]), array([3, 5, 5, 5]))
    """
    found = _planned(length, due, mature, times, outcome_times)
    if found is None:
        return None
    comes = finish or found.due < length
    if found.moments is not None:
        comes = comes & (found.moments != NEVER)
    moments = found.moments
    if moments is None and finish and (found.due > length).any():  # of what is left, what is due first is learnt first
        moments = np.maximum(found.due, length)
    return Schedule(np.where(comes, np.minimum(found.due, length), length + 1), moments)


def next_forecasts(issued: Ints, arrivals: Ints | None = None, groups: Ints | None = None, *, age: int = 0) -> Ints:
    """The first event behind each that is issued when its outcome has arrived, at this age; how many there are if none.

    With `groups`, a number for each event that never falls, only events of the same group count; times never go back
    within a group. Without `arrivals` outcomes arrive at once.

    >>> next_forecasts(np.array([0, 5, 9]), np.array([5, 6, 7])), next_forecasts(np.array([0, 5, 9]), age=6)
    (array([1, 2, 3]), array([2, 3, 3]))
    >>> next_forecasts(np.array([0, 5, 1, 9]), np.array([5, 6, 1, 7]), np.array([0, 0, 1, 1]))
    array([1, 4, 3, 4])
    """
    n = len(issued)
    later = np.arange(1, n + 1)
    arrivals = issued + age if arrivals is None else np.maximum(arrivals, issued + age)
    if groups is None:
        return np.maximum(np.searchsorted(issued, arrivals), later)
    # Ranks in the place of times: so group and time make one whole number, which rises along the events.
    moments, rank = np.unique(issued, return_inverse=True)
    first = groups * (len(moments) + 1)
    found = np.maximum(np.searchsorted(first + rank, first + np.searchsorted(moments, arrivals)), later)
    return np.where(found < np.searchsorted(groups, groups, side="right"), found, n)


@entry
def list_arrivals(due: Ints, outcomes: Ints, heads: Ints, following: Ints) -> None:
    """For each position a list of the outcomes that are due: heads[position], following[it], ..., -1."""
    for k in range(len(outcomes) - 1, -1, -1):
        j = outcomes[k]
        following[j] = heads[due[j]]
        heads[due[j]] = j


@entry
def read_lists(heads: Ints, following: Ints, order: Ints) -> None:
    """All lists, one behind the other."""
    count = 0
    for position in range(len(heads)):
        j = heads[position]
        while j >= 0:
            order[count] = j
            count += 1
            j = following[j]


@entry
def wait_for_key(slots: Slots, heads: Ints, following: Ints, next_event: Ints, moments: Ints) -> None:
    """When each outcome is learnt: at the next event of its key after its arrival, or at the end of the batch, n."""
    n = len(slots)
    for i in range(n, -1, -1):
        if i < n:
            next_event[slots[i]] = i
        j = heads[i]
        while j >= 0:
            moments[j] = next_event[slots[j]]
            j = following[j]


@entry
def is_in_order(due: Ints, outcomes: Ints) -> bool:
    """Whether these outcomes are due one after another."""
    k = 1
    while k < len(outcomes) and due[outcomes[k]] >= due[outcomes[k - 1]]:
        k += 1
    return k >= len(outcomes)


def arrival_lists(due: Ints, outcomes: Ints, end: int) -> tuple[Ints, Ints]:
    """By position up to `end` the outcomes that are due there, as `list_arrivals` has them, in the given order.

    >>> arrival_lists(np.array([3, 2, 3]), np.array([0, 1, 2]), 3)
    (array([-1, -1,  1,  0]), array([ 2, -1, -1]))
    """
    heads, following = np.full(end + 1, -1), np.full(len(due), -1)
    list_arrivals(due, outcomes, heads, following)
    return heads, following


def in_order(due: Ints, outcomes: Ints, end: int) -> Ints:
    """Outcomes in the order in which they are learnt: by `due`, which is at most `end`; equals stay as they were.

    >>> in_order(np.array([3, 2, 3, 9]), np.array([0, 1, 2]), 4)
    array([1, 0, 2])
    """
    if is_in_order(due, outcomes):
        return outcomes
    order = np.empty(len(outcomes), dtype=np.int64)
    read_lists(*arrival_lists(due, outcomes, end), order)
    return order


class Arrivals:
    """When each outcome of a batch arrives (lists by position), and when its key learns it (moments, in order).

    Event i has position i in the batch. Its outcome arrives at position due[i], before the event there. It is learnt
    before the next event of its own key, or at the end of the batch if there is none. Several outcomes that a key
    learns at the same moment are learnt in the order of their positions, or of their times if they have some. So a key
    learns just what `Calibrator.run` would learn, had it the key's events alone, with the arrivals counted in the key's
    own events.
    """

    def __init__(self, planned: Schedule, outcomes: Vector, slots: Slots, count: int) -> None:
        due = planned.due
        n = len(due)
        learnt = planned.in_turn(np.flatnonzero((due <= n) & ~np.isnan(outcomes)))
        self.heads, self.following = arrival_lists(due, learnt, n)
        self.moments = np.full(n, -1)
        wait_for_key(slots, self.heads, self.following, np.full(count, n), self.moments)
        self.order = in_order(self.moments, learnt, n)


# ---- ones that come later than the age ---------------------------------------------------------------------------


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
    taken = read_column("delays", delays).as_array().astype(np.float64)
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
    all_seen = read_column("watched", watched).as_array().astype(np.float64)
    check_lengths(delays=len(taken), watched=len(all_seen))
    seen = all_seen[ones]
    if not (seen >= waited).all():
        row = int(np.flatnonzero(ones)[int((~(seen >= waited)).argmax())])
        raise InvalidInput(f"watched must be at least the delay of the 1, got {float(all_seen[row])!r} - at row {row}")
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
