"""Calibeating without bins: interpolated corrections of the expert, mixed with it by log-loss.

In a row, from `CELLS` on: 3 weights, 2 cells for scores at the clip, and the knots of two splines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from calibeat._util.types import Vector
from calibeat.errors import InvalidInput

from .algebra import exp, exps, ln
from .auto import EPS, LARGEST, LAZY, SHARE, SPLINE_EXPONENTS, SPLINE_LOGS, Hindsight, clipped, flatten, inside
from .calibeating import SPLINE
from .features import Scaling
from .limits import Block, Limit, tallies, tempering, weights
from .parts import Calibeater, Expression, Features, Formula, at_the_clip
from .receipt import EXPERT, EXPERT_SPLINE, FORECAST, SCORE, SCORE_SPLINE, SEEN
from .subset import blank, kernel, large_kernel
from .weights import Lesson, likelihood_of, lump, portion

KNOTS, X_MAX = 25, 6.0  # spline on the score's logit: knots -6, -5.5, ..., 6
EXPERT_KNOTS = 11  # spline on the expert: knots 0, 0.1, ..., 1
INFORMATION = 10.0  # what a knot knows at first; an event at p = 1/2 brings 1/4
FURTHEST_KNOT = 700.0  # a knot moves by 1e-8 per outcome where it is far
ATOM_PRIOR = 10.0  # imaginary events, at the expert, of the cell of scores 0 or 1

# ---- its part of the row -----------------------------------------------------------------------------------------
SPLINE_WEIGHT = 0  # of the expert, of the spline on the score, of the spline on the expert
ATOMS = 3  # sum of outcomes and count at score 0, then at score 1
SCORE_OFFSETS, SCORE_INFORMATION = 7, 7 + KNOTS  # spline on the score
EXPERT_OFFSETS = SCORE_INFORMATION + KNOTS  # spline on the expert
EXPERT_INFORMATION = EXPERT_OFFSETS + EXPERT_KNOTS
SPLINE_STALENESS = EXPERT_INFORMATION + EXPERT_KNOTS  # as those of `Lanes`
SPLINE_TEMPER = SPLINE_STALENESS + 1


@dataclass(frozen=True)
class Spline(Calibeater):
    r"""Correct the expert m by interpolated logit offsets, as far as log-loss says that this helps.

    s = sigmoid(logit m + offset(logit f)), 25 knots;  r = sigmoid(logit m + offset'(m)), 11 knots;
    forecast = v_0 m + v_1 s + v_2 r, weights v by log-loss with a share of 0.5/n, as in `Lanes`.

    An event moves the two knots beside it, each by (y - s)/information. Scores at the clip (exactly 0 or 1, mostly)
    have a cell of their own instead, a mean of outcomes that starts at the expert. So the forecast loses at most
    ln 3 + (1/3) ln T + 0.304 nats to the expert (`bounds.spline_loss`), where ten bins cost whatever is lost inside
    them.

    >>> from calibeat import Calibrator, Method, ONS, Platt, Spline
    >>> cal = Calibrator(Method(Platt(), ONS(), Spline()))
    >>> round(cal.predict(0.8).probability, 6)
    0.8
    >>> p = cal.run([1.0, 0.8, 0.3, 0.8] * 50, [1, 1, 0, 0] * 50)
    >>> [round(float(cal.predict(score)), 2) for score in (1.0, 0.8, 0.3)]
    [1.0, 0.51, 0.08]

    References: Foster & Hart (2023) for calibeating; Herbster & Warmuth (1998) for the weights.
    """

    code: ClassVar[int] = SPLINE
    bins: ClassVar[int] = 10  # type: ignore[misc]  # `Forecast.bin` speaks of tenths, as without a calibeater
    receipt: ClassVar[tuple[int, ...]] = (EXPERT, SCORE_SPLINE, EXPERT_SPLINE, FORECAST)

    def check_features(self, features: Features | None) -> None:
        if features is None or features.dimension == 0:
            got = "None" if features is None else type(features).__name__
            raise InvalidInput(f"Spline needs a scaling to correct (Platt, Beta or Temperature), got {got}")

    def initial(self) -> list[float]:
        zeros, known = [0.0] * KNOTS, [INFORMATION] * KNOTS
        expert = [*zeros[:EXPERT_KNOTS], *known[:EXPERT_KNOTS]]
        return [*[1.0 / 3.0] * 3, *[0.0] * 4, *zeros, *known, *expert, 0.0, 1.0]

    def numbers(self) -> dict[str, float]:
        return {**super().numbers(), "bins": float(self.bins)}

    def limits(self) -> list[Block]:
        blocks = [weights("splines", ATOMS), tallies(2), *knot_limits(KNOTS), *knot_limits(EXPERT_KNOTS)]
        return [*blocks, tempering()]

    def export(self, formula: Formula, cells: list[float], features: Features | None, scale: float) -> None:  # noqa: ARG002
        """`spline` on the frozen row."""
        if not isinstance(features, Scaling):  # pragma: no cover - `check_features` has seen to it
            raise TypeError(features)
        clip, weights = features.clip, cells[:ATOMS]
        low, low_count, high, high_count = cells[ATOMS:SCORE_OFFSETS]
        on_score = cells[SCORE_OFFSETS:SCORE_INFORMATION]
        on_expert = cells[EXPERT_OFFSETS:EXPERT_INFORMATION]
        formula.numbers.update(
            spline_weight=weights, atoms=cells[ATOMS:SCORE_OFFSETS], score_knots=on_score, expert_knots=on_expert
        )
        if "f" not in dict(formula.steps):  # the expert is the score itself
            formula.numbers.update(clip=clip)
            formula.add("f", ("clamp", "score", clip, 1.0 - clip))
        formula.add("m", ("clamp", "expert", EPS, LARGEST))
        formula.add("place", ("*", ("+", features.logit, X_MAX), 2.0))
        formula.add("shift", ("interpolate", "place", on_score))
        corrected = at_the_clip(clip, _atom(low, low_count), _atom(high, high_count), _shifted("shift"))
        formula.add("s", ("clamp", corrected, EPS, LARGEST))
        formula.add("tenths", ("*", "m", 10.0))
        formula.add("bend", ("interpolate", "tenths", on_expert))
        formula.add("r", ("clamp", _shifted("bend"), EPS, LARGEST))
        mean = ("+", ("*", weights[0], "m"), ("*", weights[1], "s"), ("*", weights[2], "r"))
        formula.add("p", ("clamp", mean, EPS, LARGEST))


def knot_limits(count: int) -> list[Block]:
    """What the offsets of knots and their information can be."""
    known = Limit("information of knots", INFORMATION, INFORMATION, rises=0.26)
    return [Block((Limit("knots", -FURTHEST_KNOT, FURTHEST_KNOT),), count), Block((known,), count)]


def _atom(total: float, count: float) -> Expression:
    """The mean outcome of scores at the clip, which starts at the expert."""
    return ("/", ("+", total, ("*", ATOM_PRIOR, "m")), count + ATOM_PRIOR)


def _shifted(shift: str) -> Expression:
    """`shifted` as an expression."""
    return ("/", "m", ("+", "m", ("*", ("-", 1.0, "m"), ("exp", ("-", 0.0, shift)))))


@kernel
def knot(place: float, last: int) -> tuple[int, float]:
    """A place in units of knots -> the knot to its left and the weight of the one to its right."""
    place = place if place > 0.0 else 0.0
    place = place if place < last else float(last)
    j = int(place)
    j = j if j < last else last - 1
    return j, place - j


@kernel
def shifts(row: Vector, clip: float, f: float, x: float, cells: int, m: float) -> tuple[float, float]:
    """Minus the offsets of the two splines; a score at the clip has none."""
    c = 0.0
    if clip < f < 1.0 - clip:
        j, t = knot((x + X_MAX) * 2.0, KNOTS - 1)
        c = (1.0 - t) * row[cells + SCORE_OFFSETS + j] + t * row[cells + SCORE_OFFSETS + j + 1]
    return -c, expert_shift(row, cells, m)


@kernel
def expert_shift(row: Vector, cells: int, m: float) -> float:
    """Minus the offset of the spline on the expert."""
    j, t = knot(m * 10.0, EXPERT_KNOTS - 1)
    return -((1.0 - t) * row[cells + EXPERT_OFFSETS + j] + t * row[cells + EXPERT_OFFSETS + j + 1])


@large_kernel
def expert_exponential(row: Vector, cells: int, b: float) -> float:
    """Its exponential at b, which is known only when the lanes have been asked again."""
    return exp(expert_shift(row, cells, b))


@kernel
def shifted(m: float, e: float) -> float:
    """sigmoid(logit m + c), without the logarithm; e = exp(-c)."""
    return inside(m / (m + (1.0 - m) * e))


@kernel
def corrected(row: Vector, clip: float, f: float, cells: int, m: float, c: float, d: float) -> tuple[float, float]:
    """What the two splines say now of the expert m; c and d are the exponentials of `shifts`."""
    if clip < f < 1.0 - clip:
        return shifted(m, c), shifted(m, d)
    cell = cells + ATOMS + (2 if f > 0.5 else 0)
    return inside((row[cell] + ATOM_PRIOR * m) / (row[cell + 1] + ATOM_PRIOR)), shifted(m, d)


@kernel
def spline(row: Vector, clip: float, x: float, cells: int, receipt: Vector) -> float:
    """The forecast, for a receipt that holds f and m; what each spline says is put in the receipt."""
    m, f = receipt[EXPERT], clipped(receipt[SCORE], clip)
    c, d = shifts(row, clip, f, x, cells, m)
    both = blank(2)
    both[0], both[1] = c, d
    exps(both)
    s, r = corrected(row, clip, f, cells, m, both[0], both[1])
    receipt[SCORE_SPLINE], receipt[EXPERT_SPLINE] = s, r
    weight = cells + SPLINE_WEIGHT
    return inside(row[weight] * receipt[EXPERT] + row[weight + 1] * s + row[weight + 2] * r)


@kernel
def splines_are_late(row: Vector, cells: int, n: float, receipt: Vector) -> bool:
    """Whether the n-th outcome is late, or the weights are tempered."""
    return n - 1.0 - receipt[SEEN] > 0.0 or row[cells + SPLINE_TEMPER] != 1.0


@kernel
def spline_logarithms(row: Vector, cells: int, lesson: Lesson, m: float, receipt: Vector, late: Vector) -> None:
    """What the splines on the expert m need logarithms of (`auto` says what `late` is)."""
    l0, l1 = likelihood_of(m, lesson), likelihood_of(receipt[SCORE_SPLINE], lesson)
    l2 = likelihood_of(receipt[EXPERT_SPLINE], lesson)
    weight, L = cells + SPLINE_WEIGHT, SPLINE_LOGS
    fresh = row[weight] * l0 + row[weight + 1] * l1 + row[weight + 2] * l2
    late[L], late[L + 1], late[L + 2] = l0, l1, l2
    late[L + 3] = fresh / likelihood_of(receipt[FORECAST], lesson)


@kernel
def spline_exponents(
    row: Vector, clip: float, x: float, cells: int, omega: float, m: float, receipt: Vector, late: Vector
) -> None:
    """What they need exponentials of."""
    c, d = shifts(row, clip, clipped(receipt[SCORE], clip), x, cells, m)
    late[SPLINE_EXPONENTS], late[SPLINE_EXPONENTS + 1] = c, d
    temper_splines(row, cells, omega, late)


@kernel
def temper_splines(row: Vector, cells: int, omega: float, late: Vector) -> None:
    """The exponents of L_k^(omega/T), from the logarithms; of a lump those of L_k over the largest."""
    E, temper = SPLINE_EXPONENTS, row[cells + SPLINE_TEMPER]
    if temper != omega:
        top = largest_log(late) if omega > temper else 0.0
        for k in range(3):
            late[E + 2 + k] = (omega / temper) * (late[SPLINE_LOGS + k] - top)


@kernel
def largest_log(late: Vector) -> float:
    """The largest logarithm of what the three gave to an outcome."""
    return max(late[SPLINE_LOGS], late[SPLINE_LOGS + 1], late[SPLINE_LOGS + 2])


@kernel
def spline_step(
    row: Vector, clip: float, x: float, cells: int, n: float, lesson: Lesson, receipt: Vector, back: Hindsight
) -> None:
    """Learn the n-th outcome: the weights judge what was issued, the knots move from where they are now.

    The knots stand on `back.around`, which is the issued expert m unless the forecast was a beginner's.
    """
    m, f, b = receipt[EXPERT], clipped(receipt[SCORE], clip), back.around
    s, r = receipt[SCORE_SPLINE], receipt[EXPERT_SPLINE]
    l0, l1, l2, stale = likelihood_of(m, lesson), likelihood_of(s, lesson), likelihood_of(r, lesson), 0.0
    if back.splines:
        E, late = SPLINE_EXPONENTS, back.late
        temper = row[cells + SPLINE_TEMPER]
        if n - 1.0 - receipt[SEEN] > 0.0:  # else nothing has moved, and what was issued is what they say now
            stale = lesson.omega * max(0.0, late[SPLINE_LOGS + 3])
            if back.beginner:
                late[E + 1] = expert_exponential(row, cells, b)
            s, r = corrected(row, clip, f, cells, b, late[E], late[E + 1])
        if temper != lesson.omega:
            l0, l1, l2 = late[E + 2], late[E + 3], late[E + 4]
        if lesson.omega > temper:
            weight = cells + SPLINE_WEIGHT
            fresh = row[weight] * likelihood_of(m, lesson) + row[weight + 1] * likelihood_of(
                receipt[SCORE_SPLINE], lesson
            )
            fresh += row[weight + 2] * likelihood_of(receipt[EXPERT_SPLINE], lesson)
            total = row[weight] * l0 + row[weight + 1] * l1 + row[weight + 2] * l2
            stale += lump(temper, total, largest_log(late), ln(fresh), lesson.omega)
    weigh_splines(row, cells, n, l0, l1, l2, stale)
    if lesson.omega == 1.0:
        move_splines(row, clip, f, x, cells, b, s, r, lesson.y, 1.0)
    else:
        move_splines_by_portions(row, clip, f, x, cells, b, s, r, lesson)


@kernel
def move_splines(
    row: Vector, clip: float, f: float, x: float, cells: int, b: float, s: float, r: float, y: float, part: float
) -> None:
    """A portion of an outcome for both splines on the expert b, which say s and r."""
    if f <= clip or f >= 1.0 - clip:
        cell = cells + ATOMS + (2 if f > 0.5 else 0)
        row[cell] += part * y
        row[cell + 1] += part
    else:
        j, t = knot((x + X_MAX) * 2.0, KNOTS - 1)
        move_knots(row, cells + SCORE_OFFSETS + j, cells + SCORE_INFORMATION + j, t, s, y, part)
    j, t = knot(b * 10.0, EXPERT_KNOTS - 1)
    move_knots(row, cells + EXPERT_OFFSETS + j, cells + EXPERT_INFORMATION + j, t, r, y, part)


@kernel
def move_splines_by_portions(
    row: Vector, clip: float, f: float, x: float, cells: int, b: float, s: float, r: float, lesson: Lesson
) -> None:
    """The same for an omega that is not 1; after each portion both are asked again."""
    left, done = lesson.omega, 0.0
    while left > 0.0:
        part = portion(left, done)
        if done > 0.0:
            c, d = shifts(row, clip, f, x, cells, b)
            s, r = corrected(row, clip, f, cells, b, exp(c), exp(d))
        move_splines(row, clip, f, x, cells, b, s, r, lesson.y, part)
        left -= part
        done += part


@kernel
def weigh_splines(row: Vector, cells: int, n: float, l0: float, l1: float, l2: float, stale: float) -> None:
    """The weights of the expert and of the two splines, by their tempered likelihoods (`auto` has the formulas)."""
    weight = cells + SPLINE_WEIGHT
    u0, u1, u2 = row[weight] * l0, row[weight + 1] * l1, row[weight + 2] * l2
    alpha = SHARE / n
    keep, gift = (1.0 - alpha) / (u0 + u1 + u2), alpha / 3.0
    row[weight] = keep * u0 + gift
    row[weight + 1] = keep * u1 + gift
    row[weight + 2] = keep * u2 + gift
    if stale > 0.0:
        row[cells + SPLINE_STALENESS] += stale
        if 1.0 + row[cells + SPLINE_STALENESS] > LAZY * row[cells + SPLINE_TEMPER]:
            flatten(row, weight, 3, 0, cells + SPLINE_TEMPER, 1.0 / 3.0)


@kernel
def move_knots(row: Vector, c: int, info: int, t: float, e: float, y: float, part: float) -> None:
    """The knots c (weight 1 - t) and c + 1 (weight t) together said e: information first, then the offset."""
    h = part * (e * (1.0 - e))
    error = part * (y - e)
    left, right = (1.0 - t), t
    row[info] = known = row[info] + left * h
    row[c] += left * error / known
    row[info + 1] = known = row[info + 1] + right * h
    row[c + 1] += right * error / known
