"""Calibeating without bins: interpolated corrections of the expert, mixed with it by log-loss.

In a row, from `CELLS` on: 3 weights, 2 cells for scores at the clip, the knots of two splines, and 10 cells of the
residual control.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from calibeat._util.check import check_interval
from calibeat._util.types import Vector
from calibeat.errors import InvalidInput

from .calibeating import SPLINE
from .jit import kernel, large_kernel
from .mixtures import SEEN, SHARE, F, M, P, R, S, inside, likelihood, pull_of

KNOTS, X_MAX = 25, 6.0  # spline on the score's logit: knots -6, -5.5, ..., 6
EXPERT_KNOTS = 11  # spline on the expert: knots 0, 0.1, ..., 1
INFORMATION = 10.0  # what a knot knows at first; an event at p = 1/2 brings 1/4
ATOM_PRIOR = 10.0  # imaginary events, at the expert, of the cell of scores 0 or 1
CONTROL_BINS, CONTROL_PRIOR, CONTROL_EDGE, CONTROL_LEAST = 10, 20.0, 1e-6, 1e-4

# ---- its part of the row -----------------------------------------------------------------------------------------
V = 0  # weights of the expert, of the spline on the score, of the spline on the expert
ATOMS = 3  # sum of outcomes and count at score 0, then at score 1
XC, XL = 7, 7 + KNOTS  # spline on the score: offsets and information
MC, ML = XL + KNOTS, XL + KNOTS + EXPERT_KNOTS  # spline on the expert, likewise
RESIDUAL, COUNT = ML + EXPERT_KNOTS, ML + EXPERT_KNOTS + CONTROL_BINS
CELLS_OF_SPLINE = COUNT + CONTROL_BINS


@dataclass(frozen=True)
class Spline:
    r"""Correct the expert m by interpolated logit offsets, as far as log-loss says that this helps.

    s = sigmoid(logit m + offset(logit f)), 25 knots;  r = sigmoid(logit m + offset'(m)), 11 knots;
    forecast = v_0 m + v_1 s + v_2 r, weights v by log-loss with a share of 0.5/n, as in `Lanes`.

    An event moves the two knots beside it, each by (y - s)/information. Scores at the clip (exactly 0 or 1, mostly)
    have a cell of their own instead, a mean of outcomes that starts at the expert. So the forecast loses at most
    ln 3 + (1/3) ln T + 0.304 nats to the expert (`bounds.spline_loss`), where ten bins cost whatever is lost inside
    them.

    Parameters
    ----------
    control : 1 adds the mean residual of past forecasts of the same tenth, S/(N + 20), without leaving that tenth;
        0 does not. This presses the measured CE below what even the true probabilities score: it improves the
        metric, not the forecast, and no bound covers it.

    >>> from calibeat import Calibrator, Method, ONS, Platt, Spline
    >>> cal = Calibrator(Method(Platt(), ONS(), Spline()))
    >>> round(cal.predict(0.8).probability, 6)
    0.8
    >>> p = cal.run([1.0, 0.8, 0.3, 0.8] * 50, [1, 1, 0, 0] * 50)
    >>> [round(float(cal.predict(score)), 2) for score in (1.0, 0.8, 0.3)]
    [1.0, 0.51, 0.08]

    References: Foster & Hart (2023) for calibeating; Herbster & Warmuth (1998) for the weights.
    """

    control: float = 0.0

    code: ClassVar[float] = SPLINE
    bins: ClassVar[int] = 10  # `Forecast.bin` speaks of tenths, as without a calibeater

    def __post_init__(self) -> None:
        object.__setattr__(self, "control", check_interval("Spline control", self.control, 0.0, 1.0))

    @property
    def initial(self) -> list[float]:
        """The numbers of this part in the row of a stream that has seen nothing."""
        zeros, known = [0.0] * KNOTS, [INFORMATION] * KNOTS
        expert = [*zeros[:EXPERT_KNOTS], *known[:EXPERT_KNOTS]]
        return [*[1.0 / 3.0] * 3, *[0.0] * 4, *zeros, *known, *expert, *[0.0] * (2 * CONTROL_BINS)]


def check_spline(cells: Sequence[float], n: float) -> None:
    """Raise `InvalidInput` unless the weights, knots and counts of a row from outside are such."""
    weights = cells[:ATOMS]
    if not all(0.01 / (n + 1.0) <= v <= 1.0 for v in weights) or abs(math.fsum(weights) - 1.0) > 1e-9:
        raise InvalidInput(f"row must have weights of splines that sum to one, none of them lost, got {list(weights)}")
    if not all(known >= INFORMATION for known in (*cells[XL:MC], *cells[ML:RESIDUAL])):
        raise InvalidInput(f"row must have knots with an information of {INFORMATION:g} or more, got others")
    if not all(abs(offset) <= 700.0 for offset in (*cells[XC:XL], *cells[MC:ML])):
        raise InvalidInput("row must have knots with offsets in [-700, 700], got others")
    atoms, control = cells[ATOMS:XC], zip(cells[RESIDUAL:COUNT], cells[COUNT:], strict=True)
    pairs = [(atoms[0], atoms[1]), (atoms[2], atoms[3]), *((abs(total), count) for total, count in control)]
    if not all(0.0 <= total <= count <= n for total, count in pairs):
        raise InvalidInput("row must have sums of outcomes within their counts, got others")


@kernel
def knot(place: float, last: int) -> tuple[int, float]:
    """A place in units of knots -> the knot to its left and the weight of the one to its right."""
    place = place if place > 0.0 else 0.0
    place = place if place < last else float(last)
    j = int(place)
    j = j if j < last else last - 1
    return j, place - j


@kernel
def shifted(m: float, c: float) -> float:
    """sigmoid(logit m + c), without the logarithm."""
    return inside(m / (m + (1.0 - m) * math.exp(-c)))


@kernel
def corrected(row: Vector, clip: float, x: float, cells: int, q: Vector, at: int) -> tuple[float, float]:
    """What the two splines say now of the issued expert."""
    m, f = q[at + M], q[at + F]
    if f <= clip or f >= 1.0 - clip:
        cell = cells + ATOMS + (2 if f > 0.5 else 0)
        s = inside((row[cell] + ATOM_PRIOR * m) / (row[cell + 1] + ATOM_PRIOR))
    else:
        j, t = knot((x + X_MAX) * 2.0, KNOTS - 1)
        s = shifted(m, (1.0 - t) * row[cells + XC + j] + t * row[cells + XC + j + 1])
    j, t = knot(m * 10.0, EXPERT_KNOTS - 1)
    return s, shifted(m, (1.0 - t) * row[cells + MC + j] + t * row[cells + MC + j + 1])


@large_kernel
def spline(row: Vector, clip: float, x: float, cells: int, control: float, q: Vector, at: int) -> float:
    """The forecast, for a receipt that holds f and m; what each spline says is put in the receipt."""
    s, r = corrected(row, clip, x, cells, q, at)
    q[at + S], q[at + R] = s, r
    p = inside(row[cells + V] * q[at + M] + row[cells + V + 1] * s + row[cells + V + 2] * r)
    if control > 0.0:
        b = tenth(p)
        c = p + control * row[cells + RESIDUAL + b] / (row[cells + COUNT + b] + CONTROL_PRIOR)
        c = max(b / 10.0 + CONTROL_EDGE, min(c, (b + 1) / 10.0 - CONTROL_EDGE))
        # Near 0 and 1 the nearest hundredth of a per cent is as far as a mean of residuals can see.
        p = max(min(p, CONTROL_LEAST), min(c, max(p, 1.0 - CONTROL_LEAST)))
    return p


@kernel
def tenth(p: float) -> int:
    """The tenth of [0, 1] that p falls in."""
    b = int(p * 10.0)
    return b if b < CONTROL_BINS else CONTROL_BINS - 1


@large_kernel
def spline_step(row: Vector, clip: float, x: float, cells: int, n: float, y: float, q: Vector, at: int) -> None:
    """Learn y, the n-th outcome: the weights judge what was issued, the knots move from where they are now."""
    m, f, s, r, p = q[at + M], q[at + F], q[at + S], q[at + R], q[at + P]
    lag = n - 1.0 - q[at + SEEN]
    u0 = row[cells + V] * likelihood(m, y)
    u1 = row[cells + V + 1] * likelihood(s, y)
    u2 = row[cells + V + 2] * likelihood(r, y)
    alpha = SHARE / n
    pull = 0.0
    if lag > 0.0:
        pull = pull_of(lag, n)
        s, r = corrected(row, clip, x, cells, q, at)
    keep = (1.0 - pull) * (1.0 - alpha) / (u0 + u1 + u2)
    gift = (1.0 - pull) * (alpha / 3.0)
    row[cells + V] = keep * u0 + gift + pull
    row[cells + V + 1] = keep * u1 + gift
    row[cells + V + 2] = keep * u2 + gift
    if f <= clip or f >= 1.0 - clip:
        cell = cells + ATOMS + (2 if f > 0.5 else 0)
        row[cell] += y
        row[cell + 1] += 1.0
    else:
        j, t = knot((x + X_MAX) * 2.0, KNOTS - 1)
        move_knots(row, cells + XC + j, cells + XL + j, t, s, y)
    j, t = knot(m * 10.0, EXPERT_KNOTS - 1)
    move_knots(row, cells + MC + j, cells + ML + j, t, r, y)
    b = tenth(p)  # also without control, so that it can be switched on for a stream that has run without
    row[cells + RESIDUAL + b] += y - p
    row[cells + COUNT + b] += 1.0


@kernel
def move_knots(row: Vector, c: int, info: int, t: float, e: float, y: float) -> None:
    """The knots c (weight 1 - t) and c + 1 (weight t) together said e: information first, then the offset."""
    h = e * (1.0 - e)
    error = y - e
    left, right = (1.0 - t), t
    row[info] = known = row[info] + left * h
    row[c] += left * error / known
    row[info + 1] = known = row[info + 1] + right * h
    row[c + 1] += right * error / known
