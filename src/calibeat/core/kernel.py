"""Predict and update on (spec, row): the only place where features, learner, calibeater and guard meet.

``spec`` is the method as a float64 vector, ``row`` is the stream (`layout` has the indices of both). Kernels work in
place, allocate nothing per event, raise nothing and draw nothing: the uniform draw ``u`` is an argument. What an event
must remember until its outcome comes, if the method wants that, lies in ``receipt`` from ``at`` on (`receipt`).

``small`` says that the method neither mixes nor guards (`is_small`). A loop passes it as a constant, so the compiler
leaves out what a small method never does: a method that does little would notice the tests. False is always right.

The picture, for one event::

    score -> features -> expert -> play -> forecast            (predict = ask + play: reads the row)
    outcome -> settle: learner step, cell -> history           (update: moves the row)
"""

from __future__ import annotations

import math

from calibeat._util.types import Bytes, Vector

from .algebra import sigmoid, theta_dot, theta_start
from .auto import clipped, inside, lanes_start, lanes_step, mix, weigh_evidence
from .calibeating import KEEP, SPLINE, TRACK, bin_of, hedge, track, tracking_start
from .features import HISTOGRAM, RAW, features_of, logit_of
from .guard import centre, clip_expert, guard, guard_step
from .jit import compilable, single_kernel
from .layout import (
    AFTER,
    BALL,
    BINS,
    CALIBEATER,
    CELLS,
    CONTROL,
    EVIDENCE,
    FEATURES,
    GAIN,
    GROUPS,
    GUARD,
    GUARD_CELLS,
    GUARD_RECEIPT,
    HISTOGRAM_BINS,
    HORIZON,
    LEARNER,
    MIXES,
    OWN,
    PRIOR,
    RECEIPT,
    SCORE_CLIP,
    SLACK,
    SPRING,
    STRICT,
    THETA,
    D,
    N,
    T,
)
from .learners import (
    AIOLI_STEP,
    LANES,
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
from .refit import histogram_mean, wants_history, wants_refit
from .spline import spline, spline_step

Asked = tuple[float, float, float, float, float]  # the features x, the expert, its logit
Played = tuple[float, int, int, float, float, float]  # the forecast, the cell; bin, two points, weight of the lower


@compilable
def is_small(spec: Vector) -> bool:
    """Whether the method neither mixes nor guards, so that no event has a receipt."""
    return spec[RECEIPT] == 0.0


@compilable
def expert(spec: Vector, row: Vector, score: float, x0: float, x1: float, x2: float) -> tuple[float, float]:
    """The scaled probability of a score with features x, and its logit (0 where there is none)."""
    kind, learner = spec[FEATURES], spec[LEARNER]
    if kind == RAW or (learner == REFIT and row[N] < spec[AFTER]):
        return score, 0.0
    if kind == HISTOGRAM:
        return histogram_mean(row, int(spec[HISTOGRAM_BINS]), score), 0.0
    d = spec[D]
    z = aioli_logit(row, d, x0, x1, x2) if learner == AIOLI_STEP else theta_dot(row, d, x0, x1, x2)
    return sigmoid(z), z


@compilable
def ask(spec: Vector, row: Vector, score: float, receipt: Vector, at: int, small: bool) -> Asked:
    """Features, expert and its logit for the score of a new event; what a mixture needs goes into the receipt."""
    clip = spec[SCORE_CLIP]
    x0, x1, x2 = features_of(spec[FEATURES], clip, score)
    if small or spec[MIXES] == 0.0:
        p, z = expert(spec, row, score, x0, x1, x2)
        return x0, x1, x2, p, z
    receipt[at + SEEN] = row[N]
    receipt[at + SCORE] = score
    if spec[LEARNER] == LANES:
        p, z = mix(row, clip, x0, x1, int(spec[HORIZON]), receipt, at), 0.0
    else:
        p, z = expert(spec, row, score, x0, x1, x2)
    receipt[at + EXPERT] = inside(p)
    return x0, x1, x2, p, z


@compilable
def ask_again(spec: Vector, row: Vector, score: float) -> Asked:
    """The same, now, for the score of an earlier event; lanes look after themselves."""
    x0, x1, x2 = features_of(spec[FEATURES], spec[SCORE_CLIP], score)
    p, z = (0.0, 0.0) if spec[LEARNER] == LANES else expert(spec, row, score, x0, x1, x2)
    return x0, x1, x2, p, z


@compilable
def play(
    spec: Vector, row: Vector, p: float, x0: float, x1: float, u: float, receipt: Vector, at: int, small: bool
) -> Played:
    """What calibeater and guard make of the expert p -> (forecast, cell, bin, low, high, weight of low).

    The forecast is drawn from two points, low and high; where nothing is drawn they are equal.
    """
    kind, m = spec[CALIBEATER], spec[BINS]
    b = bin_of(p, m)
    low, high, weight, cell, forecast = p, p, 1.0, b, p
    if kind == TRACK:
        forecast = track(row, int(spec[CELLS]), b, m, spec[PRIOR])
    elif not small and kind == SPLINE:
        x = logit_of(spec[FEATURES], x0, x1)
        forecast = spline(row, spec[SCORE_CLIP], x, int(spec[CELLS]), spec[CONTROL], receipt, at)
    elif kind != KEEP:
        own = b if spec[OWN] == 1.0 else -1
        if spec[GROUPS] != m:
            b = bin_of(p, spec[GROUPS])
        left, right, d, e = hedge(row, int(spec[CELLS]) + 2 * b * int(m), m, own)
        point = left if u * (d + e) <= d else right
        low, high, weight = (left + 0.5) / m, (right + 0.5) / m, d / (d + e)
        cell, forecast = b * int(m) + point, (point + 0.5) / m
    if not small and spec[MIXES] == 1.0:
        receipt[at + FORECAST] = forecast
    if not small and spec[GUARD] > 0.0:
        p, strict, place = clip_expert(forecast), spec[STRICT] == 1.0, at + int(spec[GUARD_RECEIPT])
        low, high, weight = guard(row, int(spec[GUARD]), spec[GUARD_CELLS], spec[SLACK], spec[SPRING], strict, p)
        forecast = low if u < weight else high
        receipt[place + GUARDED], receipt[place + ISSUED] = p, forecast
        if strict:
            low, high = centre(low, spec[GUARD_CELLS]), centre(high, spec[GUARD_CELLS])
            forecast = low if u < weight else high
    return forecast, cell, b, low, high, weight


@compilable
def predict(
    spec: Vector, row: Vector, score: float, u: float, receipt: Vector, at: int
) -> tuple[float, int, float, float, float, float, float, int, float, float, float]:
    """Forecast one event; the row is read only -> (forecast, cell, x, expert, its logit, bin, low, high, weight)."""
    x0, x1, x2, p, z = ask(spec, row, score, receipt, at, False)
    forecast, cell, b, low, high, weight = play(spec, row, p, x0, x1, u, receipt, at, False)
    return forecast, cell, x0, x1, x2, p, z, b, low, high, weight


@compilable
def settle(
    spec: Vector,
    row: Vector,
    t: float,
    x0: float,
    x1: float,
    x2: float,
    p: float,
    z: float,
    cell: int,
    y: float,
    receipt: Vector,
    at: int,
    small: bool,
) -> None:
    """Learn outcome y of an event with features x, whose expert would now say p (logit z), and whose forecast played
    `cell`; t is the number of forecasts made so far."""
    learner = spec[LEARNER]
    if learner == ONS_STEP:
        ons_step(row, THETA, spec[D], x0, x1, x2, p - y, spec[GAIN], spec[BALL])
    elif learner == OGD_STEP:
        ogd_step(row, spec[D], x0, x1, x2, p - y, spec[GAIN] / math.sqrt(row[N] + 1.0), spec[BALL])
    elif learner == AIOLI_STEP:
        aioli_step(row, spec[D], x0, x1, x2, p, z, y, spec[GAIN])
    elif not small and learner == LANES:
        lanes_step(row, spec[SCORE_CLIP], x0, x1, row[N] + 1.0, y, int(spec[HORIZON]), receipt, at)
    kind = spec[CALIBEATER]
    if kind != KEEP:
        if not small and kind == SPLINE:
            x = logit_of(spec[FEATURES], x0, x1)
            spline_step(row, spec[SCORE_CLIP], x, int(spec[CELLS]), row[N] + 1.0, y, receipt, at)
        else:
            cells = int(spec[CELLS]) + 2 * cell
            row[cells] += y
            row[cells + 1] += 1.0
    if not small and spec[GUARD] > 0.0:
        place = at + int(spec[GUARD_RECEIPT])
        p, q, strict = receipt[place + GUARDED], receipt[place + ISSUED], spec[STRICT] == 1.0
        guard_step(row, int(spec[GUARD]), spec[GUARD_CELLS], strict, p, q, y)
    if not small and spec[MIXES] == 1.0:
        score = receipt[at + SCORE]
        weigh_evidence(row, int(spec[EVIDENCE]), y, receipt[at + FORECAST], clipped(score, spec[SCORE_CLIP]), score)
    row[T] = t
    row[N] += 1.0


@compilable
def remember(
    spec: Vector, row: Vector, x0: float, x1: float, y: float, h0: Vector, h1: Vector, hy: Vector, dropped: int
) -> bool:
    """Put an event that was just settled in the host's history; whether the host has to refit now.

    From the history the first `dropped` events are gone already.
    """
    if wants_history(spec, row[N] - 1.0):
        last = int(row[N]) - dropped
        h0[last - 1] = x0
        if spec[D] == 3.0:
            h1[last - 1] = x1
        hy[last - 1] = y
    return wants_refit(spec, row[N])


@compilable
def update(
    spec: Vector,
    row: Vector,
    t: float,
    score: float,
    cell: int,
    y: float,
    receipt: Vector,
    at: int,
    h0: Vector,
    h1: Vector,
    hy: Vector,
    dropped: int,
) -> bool:
    """Learn a late outcome; whether the host has to refit now.

    The expert is asked again at the parameters of now, the cell is the one that was played.
    """
    x0, x1, x2, p, z = ask_again(spec, row, score)
    settle(spec, row, t, x0, x1, x2, p, z, cell, y, receipt, at, False)
    return spec[LEARNER] == REFIT and remember(spec, row, x0, x1, y, h0, h1, hy, dropped)


@compilable
def start_from(spec: Vector, pool: Vector, row: Vector) -> None:
    """A new row takes what the pool, a stream of the same method that learns from all events, has learnt."""
    learner = spec[LEARNER]
    if learner == LANES:
        lanes_start(pool, row)
    elif learner == AIOLI_STEP:
        aioli_start(spec[D], pool, row)
    else:
        theta_start(spec[D], pool, row)
    if spec[CALIBEATER] == TRACK:
        tracking_start(pool, row, int(spec[CELLS]), spec[BINS])


# ---- one event at a time -------------------------------------------------------------------------------------------
# A call from Python costs more than the arithmetic of an event, and each number that goes in or comes out adds to it.
# So what lies between the forecast and the outcome of the latest event stays in an array, `asked`: features, expert and
# logit, and then these.

CELL_PLAYED = 5
SEEN_THEN = 6  # outcomes learnt when the forecast was made
LATEST = 7  # the number of the event; -1 if none
NEXT = 8  # the number of the next event
SHUT = 9  # 1 while a longer piece of work wants nobody between its steps
ASKED = 10


@single_kernel
def predict_one(
    spec: Vector, row: Vector, score: float, asked: Vector, receipt: Vector
) -> tuple[float, float, int, int, int]:
    """`predict` for a method that does not draw -> (forecast, expert, bin, outcomes learnt so far, event).

    The event is counted. It is -1, and nothing has happened, while `asked` is shut.
    """
    if asked[SHUT] != 0.0:
        return 0.0, 0.0, 0, 0, -1
    asked[LATEST] = -1.0  # until all of it is there
    x0, x1, x2, p, z = ask(spec, row, score, receipt, 0, False)
    forecast, cell, b, _, _, _ = play(spec, row, p, x0, x1, 0.0, receipt, 0, False)
    event = asked[NEXT]
    asked[0] = x0
    asked[1] = x1
    asked[2] = x2
    asked[3] = p
    asked[4] = z
    asked[CELL_PLAYED] = cell
    asked[SEEN_THEN] = row[N]
    asked[NEXT] = event + 1.0
    asked[LATEST] = event
    return forecast, p, b, int(row[N]), int(event)


@single_kernel
def settle_one(
    spec: Vector, row: Vector, event: int, y: float, asked: Vector, receipt: Vector, marks: Bytes, first: int
) -> bool:
    """Learn the outcome of the latest event, and mark it as settled: 2 for a zero, 3 for a one.

    False, and nothing has happened, if it is not the latest one, if another outcome was learnt since its forecast, if
    it has a mark already, or while `asked` is shut. `marks` are of the events from `first` on; the last of them is not
    0 if they are not in use any more.
    """
    at, last = event - first, len(marks) - 1
    if asked[SHUT] != 0.0 or asked[LATEST] != event or asked[SEEN_THEN] != row[N] or not 0 <= at < last:
        return False
    if marks[at] != 0 or marks[last] != 0:
        return False
    x0, x1, x2, p, z = asked[0], asked[1], asked[2], asked[3], asked[4]
    settle(spec, row, asked[NEXT], x0, x1, x2, p, z, int(asked[CELL_PLAYED]), y, receipt, 0, False)
    marks[at] = 3 if y == 1.0 else 2
    return True
