"""Predict and update on (spec, row): the only place where features, learner, calibeater and guard meet.

``spec`` is the method by its numbers, ``row`` is the stream (`layout` has both). Kernels work in place, make no arrays,
raise nothing and draw nothing: the uniform draw ``u`` is an argument. What an event must remember until its outcome
comes, if the method wants that, lies in ``receipt`` (`receipt`).

The picture, for one event::

    score -> features -> expert -> play -> forecast            (predict = ask + play: reads the row)
    outcome -> settle: learner step, cell -> history           (update: moves the row)
"""

from __future__ import annotations

import math
from typing import NamedTuple

from calibeat._util.types import Vector

from .algebra import exps, lns, sigmoid, theta_dot, theta_start
from .auto import (
    LANE_LOGS,
    LATE,
    PHI,
    SAYS,
    SPLINE_EXPONENTS,
    SPLINE_LOGS,
    Hindsight,
    awake,
    clipped,
    inside,
    is_beginner,
    lane_likelihoods,
    lanes_are_late,
    lanes_exponents,
    lanes_logarithms,
    lanes_now,
    lanes_start,
    lanes_step,
    mix,
    temper_lanes,
    weigh_evidence,
)
from .band import Band, band_of, record_outcome
from .calibeating import KEEP, MOST_IMAGINED, SPLINE, TRACK, bin_of, hedge, track, tracking_start
from .features import BETA, HISTOGRAM, RAW, features_of, logit_of
from .guard import clip_expert, guard, guard_step
from .layout import THETA, N, Spec, T
from .learners import (
    AIOLI_STEP,
    LANES,
    NONE,
    OGD_STEP,
    ONS_STEP,
    REFIT,
    aioli_logit,
    aioli_start,
    aioli_step,
    ogd_step,
    ons_step,
)
from .receipt import EXPERT, FORECAST, GUARDED, ISSUED, SCORE, SEEN
from .refit import histogram_mean
from .spline import spline, spline_exponents, spline_logarithms, spline_step, splines_are_late, temper_splines
from .subset import blank, entry, kernel, loop
from .weights import (
    Lesson,
    Outcome,
    in_log,
    in_truth,
    is_nothing,
    is_plain,
    note_event,
    one_event,
    pace,
    scale_of_weights,
    spread,
)


class Asked(NamedTuple):
    """What is known of a score before calibeating: its features x, the expert, and the expert's logit."""

    x0: float
    x1: float
    x2: float
    expert: float
    logit: float


class Played(NamedTuple):
    """A forecast, drawn from `low`, which has this weight, and `high`; they are equal where nothing is drawn."""

    forecast: float
    cell: int
    bin: int
    low: float
    high: float
    weight: float


@kernel
def expert(spec: Spec, row: Vector, score: float, x0: float, x1: float, x2: float) -> Asked:
    """The scaled probability of a score with features x, and its logit (0 where there is none)."""
    if spec.features == RAW or (spec.learner == REFIT and row[N] < spec.after):
        return Asked(x0, x1, x2, score, 0.0)
    if spec.features == HISTOGRAM:
        return Asked(x0, x1, x2, histogram_mean(row, spec.histogram_bins, score), 0.0)
    aioli = spec.learner == AIOLI_STEP
    z = aioli_logit(row, spec.d, x0, x1, x2) if aioli else theta_dot(row, spec.d, x0, x1, x2)
    return Asked(x0, x1, x2, sigmoid(z), z)


@kernel
def ask(spec: Spec, row: Vector, score: float, receipt: Vector) -> Asked:
    """Features, expert and its logit for the score of a new event; what a mixture needs goes into the receipt.

    From here to the forecast everything is in the odds of the log (`Method`, kept).
    """
    score = in_log(spec.odds, score)
    x0, x1, x2 = features_of(spec.features, spec.clip, score)
    if not spec.mixes:
        return expert(spec, row, score, x0, x1, x2)
    receipt[SEEN] = row[N]
    receipt[SCORE] = score
    if spec.learner == LANES:
        asked = Asked(x0, x1, x2, mix(row, spec.clip, x0, x1, spec.horizon, receipt), 0.0)
    else:
        asked = expert(spec, row, score, x0, x1, x2)
    receipt[EXPERT] = inside(asked.expert)
    return asked


@kernel
def ask_again(spec: Spec, row: Vector, score: float) -> Asked:
    """The same, now, for the score of an earlier event; lanes look after themselves."""
    score = in_log(spec.odds, score)
    x0, x1, x2 = features_of(spec.features, spec.clip, score)
    if spec.mixes and spec.learner == LANES:
        return Asked(x0, x1, x2, 0.0, 0.0)
    return expert(spec, row, score, x0, x1, x2)


@kernel
def play(spec: Spec, row: Vector, asked: Asked, u: float, receipt: Vector) -> Played:
    """What calibeater and guard make of the expert."""
    p, m = asked.expert, spec.bins
    b = bin_of(p, m)
    low, high, weight, cell, forecast = p, p, 1.0, b, p
    if spec.calibeater == TRACK:
        prior = spec.prior / scale_of_weights(row) if spec.prior > 0.0 else 0.0
        forecast = track(row, spec.cells, b, m, prior)
    elif spec.mixes and spec.calibeater == SPLINE:
        x = logit_of(spec.features, asked.x0, asked.x1)
        forecast = spline(row, spec.clip, x, spec.cells, receipt)
    elif spec.calibeater != KEEP:
        own = b if spec.own else -1
        if spec.groups != m:
            b = bin_of(p, spec.groups)
        left, right, d, e = hedge(row, spec.cells + 2 * b * int(m), m, own)
        point = left if u * (d + e) <= d else right
        low, high, weight = (left + 0.5) / m, (right + 0.5) / m, d / (d + e)
        cell, forecast = b * int(m) + point, (point + 0.5) / m
    if spec.mixes:
        receipt[FORECAST] = forecast
    if spec.guard > 0:
        p = clip_expert(forecast)
        low, high, weight = guard(row, spec.guard, spec.guard_bins, spec.slack, spec.spring, p)
        forecast = low if u < weight else high
        receipt[spec.guard_receipt + GUARDED], receipt[spec.guard_receipt + ISSUED] = p, forecast
    forecast, low, high = in_truth(spec.odds, forecast), in_truth(spec.odds, low), in_truth(spec.odds, high)
    return Played(forecast, cell, b, low, high, weight)


@kernel
def how_sure(spec: Spec, row: Vector, asked: Asked, forecast: float, receipt: Vector) -> Band:
    """The band of a forecast that was just played."""
    found = band_of(row, spec.band, spec.clip, spec.cells, spec.horizon, asked.x0, asked.x1, receipt)
    low, high = in_truth(spec.odds, found.low), in_truth(spec.odds, found.high)
    return Band(min(low, forecast), max(high, forecast), found.outcomes, found.reason)


@kernel
def note_how_sure(spec: Spec, row: Vector, asked: Asked, forecast: float, receipt: Vector, numbers: Vector) -> None:
    """Write it where an answer is kept: four numbers."""
    found = how_sure(spec, row, asked, forecast, receipt)
    numbers[0], numbers[1], numbers[2], numbers[3] = found.low, found.high, found.outcomes, found.reason


@kernel
def settle(spec: Spec, row: Vector, t: float, asked: Asked, cell: int, outcome: Outcome, receipt: Vector) -> float:
    """Learn the outcome of an event whose expert would now say what was asked, and whose forecast played `cell`; t is
    the number of forecasts made so far -> its weight, as it was clipped."""
    if spec.draws or is_plain(row, outcome):  # hosts refuse weights where forecasts are drawn
        return settle_plain(spec, row, t, asked, cell, outcome.y, receipt)
    return settle_apart(spec, row, t, asked, cell, outcome, receipt)


@kernel
def settle_plain(spec: Spec, row: Vector, t: float, asked: Asked, cell: int, y: float, receipt: Vector) -> float:
    """`settle` for one event of weight 1, in a stream that never had another one."""
    learn_lesson(spec, row, t, asked, cell, one_event(y), receipt)
    if takes_weights(spec):
        note_event(row, row[N] - 1.0, spread(y, issued_or_expert(spec, asked, receipt)))
    return 1.0


@kernel
def takes_weights(spec: Spec) -> bool:
    """Whether weights make a difference to a method, and it can learn them."""
    return not spec.draws and (spec.learner != NONE or spec.calibeater != KEEP)


@loop  # apart from those who never need it
def settle_apart(
    spec: Spec, row: Vector, t: float, asked: Asked, cell: int, outcome: Outcome, receipt: Vector
) -> float:
    """`settle` in a stream whose outcomes have weights."""
    if is_auto(spec):
        return settle_weighted(as_auto(spec), row, t, asked, cell, outcome, receipt)
    return settle_weighted(spec, row, t, asked, cell, outcome, receipt)


@kernel
def settle_weighted(
    spec: Spec, row: Vector, t: float, asked: Asked, cell: int, outcome: Outcome, receipt: Vector
) -> float:
    """The same, for loops in which all outcomes have weights."""
    if is_nothing(outcome):
        return 0.0
    if is_plain(row, outcome):
        return settle_plain(spec, row, t, asked, cell, outcome.y, receipt)
    lesson = pace(row, outcome, spread(outcome.y, issued_or_expert(spec, asked, receipt)))
    learn_lesson(spec, row, t, asked, cell, lesson, receipt)
    return lesson.weight


@kernel
def issued_or_expert(spec: Spec, asked: Asked, receipt: Vector) -> float:
    """The forecast as it was issued; of methods that do not remember it, what the expert says now.

    Of learners that fit again it is the score: a fit may come before this outcome or behind it (`refit`).
    """
    if spec.mixes:
        return receipt[FORECAST]
    if spec.learner == REFIT:
        return asked.x0 if spec.features == HISTOGRAM else sigmoid(logit_of(spec.features, asked.x0, asked.x1))
    return asked.expert


@kernel
def learn_lesson(spec: Spec, row: Vector, t: float, asked: Asked, cell: int, lesson: Lesson, receipt: Vector) -> None:
    """All parts learn an outcome."""
    if spec.mixes and spec.band > 0:
        record_outcome(row, spec.band, spec.clip, spec.cells, spec.horizon, asked.x0, asked.x1, lesson, receipt)
    late = blank(LATE)
    back = look_back(spec, row, asked, lesson, receipt[EXPERT] if spec.mixes else 0.0, receipt, late)
    settle_learner(spec, row, asked, lesson, receipt, back)
    settle_rest(spec, row, t, asked, cell, lesson, receipt, back)


@kernel
def look_back(  # noqa: C901 - what is taken together stands together
    spec: Spec, row: Vector, asked: Asked, lesson: Lesson, m: float, receipt: Vector, late: Vector
) -> Hindsight:
    """Take together the logarithms, then the exponentials that a late outcome needs; splines stand on the expert m.

    So does an outcome that is worth more or less than one event. Where the forecast was a beginner's, the splines learn
    around what the learner says now instead.
    """
    n, x0, x1, beginner, around = row[N] + 1.0, asked.x0, asked.x1, False, m
    weighted = lesson.omega != 1.0 or lesson.is_share
    is_late = spec.mixes and n - 1.0 > receipt[SEEN]
    lanes = spec.mixes and spec.learner == LANES and (weighted or lanes_are_late(row, n, spec.horizon, receipt))
    splines = spec.mixes and spec.calibeater == SPLINE and (weighted or splines_are_late(row, spec.cells, n, receipt))
    if weighted and not is_late and not awake(row, spec.horizon):  # what was issued is what all say now
        if splines:
            spline_logarithms(row, spec.cells, lesson, m, receipt, late)
        if lanes:
            lane_likelihoods(lesson, receipt, late)
        lns(late[SPLINE_LOGS : LANE_LOGS + 5])
        if splines:
            temper_splines(row, spec.cells, lesson.omega, late)
        if lanes:
            temper_lanes(row, x0, x1, lesson, spec.horizon, late)
        exps(late[SPLINE_EXPONENTS + 2 : SAYS])
    elif lanes or splines:
        if splines:
            spline_logarithms(row, spec.cells, lesson, m, receipt, late)
        if lanes:
            lanes_logarithms(row, spec.clip, x0, x1, lesson, spec.horizon, receipt, late)
        lns(late[SPLINE_LOGS:SPLINE_EXPONENTS])
        if splines:
            x = logit_of(spec.features, x0, x1)
            spline_exponents(row, spec.clip, x, spec.cells, lesson.omega, m, receipt, late)
        if lanes:
            lanes_exponents(row, spec.clip, x0, x1, lesson, spec.horizon, receipt, late)
        exps(late[SPLINE_EXPONENTS:PHI])
        # A learner that fits again says now what it says before or behind a fit, which may come at either time.
        beginner = splines and spec.learner != REFIT and is_beginner(row[N], receipt[SEEN])
        if beginner and lanes:
            around = lanes_now(row, clipped(receipt[SCORE], spec.clip), spec.horizon, late)
        elif beginner:
            around = inside(asked.expert)
    return Hindsight(lanes, splines, beginner, around, late)


@kernel
def settle_learner(spec: Spec, row: Vector, asked: Asked, lesson: Lesson, receipt: Vector, back: Hindsight) -> None:
    """The learner's part of `settle`."""
    x0, x1, x2, p = asked.x0, asked.x1, asked.x2, asked.expert
    if spec.learner == ONS_STEP:
        ons_step(row, THETA, spec.d, x0, x1, x2, p, lesson, spec.gain, spec.radius)
    elif spec.learner == OGD_STEP:
        ogd_step(row, spec.d, x0, x1, x2, p, lesson, spec.gain / math.sqrt(row[N] + 1.0), spec.radius)
    elif spec.learner == AIOLI_STEP:
        aioli_step(row, spec.d, x0, x1, x2, p, asked.logit, lesson, spec.gain)
    elif spec.mixes and spec.learner == LANES:
        lanes_step(row, spec.clip, x0, x1, row[N] + 1.0, lesson, spec.horizon, receipt, back)


@kernel
def settle_rest(
    spec: Spec, row: Vector, t: float, asked: Asked, cell: int, lesson: Lesson, receipt: Vector, back: Hindsight
) -> None:
    """What stands behind the learner: calibeater, guard, evidence and the counts."""
    if spec.calibeater != KEEP:
        if spec.mixes and spec.calibeater == SPLINE:
            x = logit_of(spec.features, asked.x0, asked.x1)
            spline_step(row, spec.clip, x, spec.cells, row[N] + 1.0, lesson, receipt, back)
        else:  # a mean, of all events behind the outcomes
            weight = lesson.weight * lesson.trials
            row[spec.cells + 2 * cell] += weight * lesson.y
            row[spec.cells + 2 * cell + 1] += weight
    if spec.guard > 0:
        given, issued = receipt[spec.guard_receipt + GUARDED], receipt[spec.guard_receipt + ISSUED]
        guard_step(row, spec.guard, spec.guard_bins, given, issued, lesson.y)
    if spec.mixes:
        score = receipt[SCORE]
        weigh_evidence(row, spec.evidence, lesson, receipt[FORECAST], clipped(score, spec.clip), score)
    row[T] = t
    row[N] += 1.0


@entry
def update(spec: Spec, row: Vector, t: float, score: float, cell: int, outcome: Outcome, receipt: Vector) -> float:
    """Learn a late outcome: the expert is asked again at the parameters of now, the cell is the one that was played."""
    return settle(spec, row, t, ask_again(spec, row, score), cell, outcome, receipt)


@kernel
def is_auto(spec: Spec) -> bool:
    """Whether the method is AUTO, on a log that kept all."""
    parts = spec.features == BETA and spec.learner == LANES and spec.calibeater == SPLINE
    return parts and spec.guard == 0 and spec.odds == 1.0


@kernel
def as_auto(spec: Spec) -> Spec:
    """The same spec with what makes it AUTO as constants, so that the compiler leaves out all else."""
    parts = spec._replace(features=BETA, d=3, learner=LANES, calibeater=SPLINE)
    return parts._replace(mixes=True, draws=False, guard=0, odds=1.0)


@kernel
def start_from(spec: Spec, pool: Vector, row: Vector) -> None:
    """A new row takes what the pool, a stream of the same method that learns from all events, has learnt."""
    if spec.learner == LANES:
        lanes_start(pool, row)
    elif spec.learner == AIOLI_STEP:
        aioli_start(spec.d, pool, row)
    else:
        theta_start(spec.d, pool, row)
    if spec.calibeater == TRACK:
        tracking_start(pool, row, spec.cells, spec.bins, MOST_IMAGINED / scale_of_weights(pool))
