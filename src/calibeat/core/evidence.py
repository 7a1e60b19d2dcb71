"""The evidence that forecasts are better than raw scores: a likelihood ratio, two numbers at the end of the row."""

from __future__ import annotations

import math

from calibeat._util.types import Vector

from .jit import compilable
from .weights import inside, likelihood


@compilable
def weigh_evidence(row: Vector, at: int, y: float, p: float, f: float, score: float) -> None:
    """Multiply the likelihood ratio of forecast p over the score into row[at + 1]; overflow goes to row[at] as a log.

    Of the score and its clipped self f, the one that did better counts: finite, and if the score is the true
    probability s < clip, then s p/clip + (1 - s) (1 - p)/(1 - s) <= 1, so the product is still no winning bet.
    The logarithm of every ratio would be dearer than a product that is folded away now and then.
    """
    raw, clipped = likelihood(score, y), likelihood(f, y)
    product = row[at + 1] * (likelihood(inside(p), y) / (max(clipped, raw)))
    if product < 1e-100 or product > 1e100:
        row[at] += math.log(product)
        product = 1.0
    row[at + 1] = product
