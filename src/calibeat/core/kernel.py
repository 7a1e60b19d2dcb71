"""Predict and update on (spec, row): the only place where features, learner and calibeater meet.

``spec`` is the method as a float64 vector, ``row`` is the stream: [t, n, theta..., matrix..., cells...]. Kernels work
in place, allocate nothing per event, raise nothing and draw nothing: the uniform draw ``u`` is an argument. What an
event must remember until its outcome comes, if the method wants that, lies in ``q`` from ``at`` on: its receipt.

The picture, for one event::

    score -> features -> expert -> play -> forecast            (predict: reads the row)
    outcome -> settle: learner step, cell -> history, refit    (update: moves the row)
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from calibeat._util.types import Vector

from .calibeating import HEDGE, KEEP, SPLINE, TRACK, bin_of, hedge, track
from .features import BETA, HISTOGRAM, RAW, features, sigmoid
from .jit import kernel, rare_kernel
from .learners import (
    AIOLI_STEP,
    LANES,
    OGD_STEP,
    ONS_STEP,
    REFIT,
    THETA,
    aioli_logit,
    aioli_step,
    ogd_step,
    ons_step,
    store_theta,
    theta_dot,
)
from .mixtures import SCORE, SEEN, F, M, P, inside, lanes_step, mix, weigh_evidence
from .refit import fit, fit_histogram, histogram_mean
from .spline import spline, spline_step

# ---- the row -----------------------------------------------------------------------------------------------------
T = 0  # forecasts made when the row last moved
N = 1  # outcomes learnt

# ---- the spec ----------------------------------------------------------------------------------------------------
FEATURES, D, CLIP, HISTOGRAM_BINS = 0, 1, 2, 3
LEARNER = 4
GAIN, RADIUS = 5, 6  # ONS: 1/gamma, R.  OGD: D/G, R.  AIOLI: 1/(1 + B R_x).  Refits: R
AFTER, EVERY, WINDOW = 7, 8, 9  # refits: T_cal, W (0 = once), window (0 = all)
CALIBEATER, BINS, GROUPS, PRIOR, OWN, CELLS = 10, 11, 12, 13, 14, 15  # OWN: hedging tries the expert's bin first
CONTROL = 16  # of the spline
RECEIPT, EVIDENCE = 17, 18  # the width of a receipt (0: none is needed), where the evidence stands in the row
SPEC_WIDTH = 19


@kernel
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


@kernel
def play(spec: Vector, row: Vector, p: float, u: float) -> tuple[int, int, int, float, int, float]:
    """What the calibeater makes of the expert p -> (bin, low, high, weight of low, cell played, forecast)."""
    kind, m = spec[CALIBEATER], spec[BINS]
    b = bin_of(p, m)
    if kind == KEEP or kind == SPLINE:  # noqa: PLR1714, SIM109 - a tuple would be made for every event
        return b, b, b, 1.0, b, p  # the spline speaks later: it needs more than p
    if kind == TRACK:
        return b, b, b, 1.0, b, track(row, int(spec[CELLS]), b, m, spec[PRIOR])
    own = b if spec[OWN] == 1.0 else -1
    if spec[GROUPS] != m:
        b = bin_of(p, spec[GROUPS])
    low, high, d, e = hedge(row, int(spec[CELLS]) + 2 * b * int(m), m, own)
    said = low if u * (d + e) <= d else high
    return b, low, high, d / (d + e), b * int(m) + said, (said + 0.5) / m


@kernel
def predict(
    spec: Vector, row: Vector, score: float, u: float, q: Vector, at: int
) -> tuple[float, int, float, float, float, float, float, int, int, int, float]:  # fmt: skip
    """Forecast one event; the row is read only -> (forecast, cell, x, expert, its logit, bin, low, high, weight)."""
    x0, x1, x2 = features(spec[FEATURES], spec[CLIP], score)
    if spec[RECEIPT] == 0.0:
        p, z = expert(spec, row, score, x0, x1, x2)
        b, low, high, weight, cell, forecast = play(spec, row, p, u)
    else:
        clip = spec[CLIP]
        q[at + SEEN] = row[N]
        q[at + SCORE] = score
        f = score if score > clip else clip
        q[at + F] = f if f < 1.0 - clip else 1.0 - clip
        if spec[LEARNER] == LANES:
            p, z = mix(row, clip, x0, x1, q, at), 0.0
        else:
            p, z = expert(spec, row, score, x0, x1, x2)
        q[at + M] = inside(p)
        b, low, high, weight, cell, forecast = play(spec, row, p, u)
        if spec[CALIBEATER] == SPLINE:
            forecast = spline(row, clip, logit(spec, x0, x1), int(spec[CELLS]), spec[CONTROL], q, at)
        q[at + P] = forecast
    return forecast, cell, x0, x1, x2, p, z, b, low, high, weight


@kernel
def logit(spec: Vector, x0: float, x1: float) -> float:
    """The logit of the clipped score, from its features."""
    return x0 - x1 if spec[FEATURES] == BETA else x0


@kernel
def settle(
    spec: Vector, row: Vector, t: float, x0: float, x1: float, x2: float, p: float, z: float, cell: int, y: float,
    q: Vector, at: int,
) -> None:  # fmt: skip
    """Learn outcome y of an event with features x, whose expert would now say p (logit z), and whose forecast played
    `cell`; t is the number of forecasts made so far."""
    learner = spec[LEARNER]
    if learner == ONS_STEP:
        ons_step(row, THETA, spec[D], x0, x1, x2, p - y, spec[GAIN], spec[RADIUS])
    elif learner == OGD_STEP:
        ogd_step(row, spec[D], x0, x1, x2, p - y, spec[GAIN] / math.sqrt(row[N] + 1.0), spec[RADIUS])
    elif learner == AIOLI_STEP:
        aioli_step(row, spec[D], x0, x1, x2, p, z, y, spec[GAIN])
    elif learner == LANES:
        lanes_step(row, spec[CLIP], x0, x1, row[N] + 1.0, y, q, at)
    kind = spec[CALIBEATER]
    if kind != KEEP:
        if kind == SPLINE:
            spline_step(row, spec[CLIP], logit(spec, x0, x1), int(spec[CELLS]), row[N] + 1.0, y, q, at)
        else:
            cells = int(spec[CELLS]) + 2 * cell
            row[cells] += y
            row[cells + 1] += 1.0
    if spec[RECEIPT] > 0.0:
        weigh_evidence(row, int(spec[EVIDENCE]), y, q[at + P], q[at + F], q[at + SCORE])
    row[T] = t
    row[N] += 1.0


@kernel
def remember(
    spec: Vector, row: Vector, x0: float, x1: float, y: float, h0: Vector, h1: Vector, hy: Vector, dropped: int
) -> None:  # fmt: skip
    """Put an event that was just settled in the host's history, and refit if it is time.

    From the history the first `dropped` events are gone already.
    """
    last = int(row[N]) - dropped
    if wants_history(spec, row[N] - 1.0):
        h0[last - 1] = x0
        if spec[D] == 3.0:
            h1[last - 1] = x1
        hy[last - 1] = y
    if wants_refit(spec, row[N]):
        refit(spec, row, h0, h1, hy, last)


@kernel
def ask_again(spec: Vector, row: Vector, score: float) -> tuple[float, float, float, float, float]:
    """Features, expert and its logit, now, for the score of an earlier event; lanes look after themselves."""
    x0, x1, x2 = features(spec[FEATURES], spec[CLIP], score)
    p, z = (0.0, 0.0) if spec[LEARNER] == LANES else expert(spec, row, score, x0, x1, x2)
    return x0, x1, x2, p, z


@kernel
def update(
    spec: Vector, row: Vector, t: float, score: float, cell: int, y: float, q: Vector, at: int,
    h0: Vector, h1: Vector, hy: Vector, dropped: int,
) -> None:  # fmt: skip
    """Learn a late outcome: the expert is asked again at the parameters of now, the cell is the one that was played."""
    x0, x1, x2, p, z = ask_again(spec, row, score)
    settle(spec, row, t, x0, x1, x2, p, z, cell, y, q, at)
    if spec[LEARNER] == REFIT:
        remember(spec, row, x0, x1, y, h0, h1, hy, dropped)


@kernel
def wants_history(spec: Vector, n: float) -> bool:
    """Whether the event learnt after n others will be looked at again: Fixed needs only the first ones."""
    return spec[EVERY] > 0.0 or n < spec[AFTER]


@kernel
def wants_refit(spec: Vector, n: float) -> bool:
    """Whether a refit falls on the n-th outcome."""
    since = n - spec[AFTER]
    return since == 0.0 or (spec[EVERY] > 0.0 and since > 0.0 and since % spec[EVERY] == 0.0)


@rare_kernel
def refit(spec: Vector, row: Vector, h0: Vector, h1: Vector, hy: Vector, last: int) -> None:
    """Fit the history up to `last`, or its last `window` events, and put the result in the row."""
    first = max(0, last - int(spec[WINDOW])) if spec[WINDOW] > 0.0 else 0
    if spec[FEATURES] == HISTOGRAM:
        fit_histogram(row, int(spec[HISTOGRAM_BINS]), h0, hy, first, last)
    else:
        d = spec[D]
        t0 = row[THETA]
        t1 = row[THETA + 1] if d > 1.0 else 0.0
        t2 = row[THETA + 2] if d > 2.0 else 0.0
        t0, t1, t2 = fit(d, h0, h1, hy, first, last, t0, t1, t2, spec[RADIUS])
        store_theta(row, d, t0, t1, t2)


# ---- batches -----------------------------------------------------------------------------------------------------


@kernel
def run(
    spec: Vector, row: Vector, t: float, scores: Vector, outcomes: Vector, u: Vector, forecasts: Vector, q: Vector,
    h0: Vector, h1: Vector, hy: Vector, dropped: int,
) -> None:  # fmt: skip
    """Predict, then learn, event after event; t forecasts were made before."""
    hedged = spec[CALIBEATER] == HEDGE
    for i in range(len(scores)):
        forecasts[i], cell, x0, x1, x2, p, z, _, _, _, _ = predict(spec, row, scores[i], u[i] if hedged else 0.0, q, 0)
        settle(spec, row, t + i + 1.0, x0, x1, x2, p, z, cell, outcomes[i], q, 0)
        if spec[LEARNER] == REFIT:
            remember(spec, row, x0, x1, outcomes[i], h0, h1, hy, dropped)


@kernel
def run_late(
    spec: Vector, row: Vector, t: float, scores: Vector, outcomes: Vector, u: Vector, forecasts: Vector, q: Vector,
    h0: Vector, h1: Vector, hy: Vector, dropped: int,
    due: npt.NDArray[np.int64], order: npt.NDArray[np.int64], played: npt.NDArray[np.int64],
) -> None:  # fmt: skip
    """Predict every event; outcome i is learnt just before prediction due[i], at the end if that is one too many.

    `order` sorts by (due, i).
    """
    hedged = spec[CALIBEATER] == HEDGE
    width = int(spec[RECEIPT])
    arrived = 0
    for i in range(len(scores) + 1):
        while arrived < len(order) and due[order[arrived]] <= i:
            j = order[arrived]
            update(spec, row, t + i, scores[j], played[j], outcomes[j], q, j * width, h0, h1, hy, dropped)
            arrived += 1
        if i < len(scores):
            said = predict(spec, row, scores[i], u[i] if hedged else 0.0, q, i * width)
            forecasts[i], played[i] = said[0], said[1]


@kernel
def predict_many(spec: Vector, row: Vector, scores: Vector, u: Vector, forecasts: Vector, q: Vector) -> None:
    """Forecast every score from the same row."""
    hedged = spec[CALIBEATER] == HEDGE
    for i in range(len(scores)):
        forecasts[i] = predict(spec, row, scores[i], u[i] if hedged else 0.0, q, 0)[0]
