"""The current map from K scores to K forecasts, frozen, for places where calibeat does not run."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from calibeat._util.types import Vector
from calibeat.core.auto import EPS

from . import layout

KIND, FORMAT = "calibeat/multi-map", 1

_READ = '''def calibrate(scores):
    """K scores in, K probabilities out."""
    if len(scores) != K or not all(-1e300 < s < 1e300 for s in scores):
        raise ValueError(f"scores must be {K} finite numbers")
    if LOGITS:
        scores = _softmax(list(scores))
    elif min(scores) < 0.0 or abs(sum(scores) - 1.0) > 1e-6:
        raise ValueError("scores must be 0 or more and sum to 1")
    total = math.fsum(scores)
    scores = [s / total for s in scores]
    g = [max(s, FLOOR) for s in scores]
    total = math.fsum(g)
    f, x = [v / total for v in g], [math.log(v) for v in g]
'''

_MULTI = """    u = [1.0 if s <= FLOOR else 0.0 for s in scores]
    o = _softmax([SLOPE * v for v in x])
    m = [LANE_WEIGHTS[4] * f[k] + LANE_WEIGHTS[5] * o[k] for k in range(K)]
    for (a, c, d), b, w in zip(SHARED, BIASES, LANE_WEIGHTS):
        e = _softmax([a * x[k] + c * f[k] + d * u[k] + b[k] for k in range(K)])
        m = [m[k] + w * e[k] for k in range(K)]
    s = _normalised([m[k] * _interpolated(KNOTS, FACTORS[k], m[k]) for k in range(K)])
    stages = [m, s]
    if CONFUSION:
        kappa = CONFUSION[max(range(K), key=lambda k: scores[k])]
        stages.append(_normalised([s[k] * kappa[k] for k in range(K)]))
    c = [math.fsum(v * stage[k] for v, stage in zip(STAGE_WEIGHTS, stages)) for k in range(K)]
    i = max(range(K), key=lambda k: c[k])
    rest = math.fsum(c[k] for k in range(K) if k != i)
    C, D = _inside(c[i] / (c[i] + rest)), _inside(rest / (c[i] + rest))
    odds = D * math.exp(-_interpolated([k / 10 for k in range(11)], OFFSETS, C))
    t, t_rest = _inside(C / (C + odds)), _inside(odds / (C + odds))
    scale = (TOP_WEIGHTS[0] * D + TOP_WEIGHTS[1] * t_rest) / rest
    p = [v * scale for v in c]
    p[i] = TOP_WEIGHTS[0] * C + TOP_WEIGHTS[1] * t
    return [(GUARD_WEIGHTS[0] * p[k] + GUARD_WEIGHTS[1] * o[k] + FLOOR) / (1.0 + K * FLOOR) for k in range(K)]
"""

_HELPERS = """

def _softmax(z):
    top = max(z)
    e = [math.exp(max(v - top, -700.0)) for v in z]
    total = math.fsum(e)
    return [v / total for v in e]


def _normalised(values):
    total = math.fsum(values)
    return [v / total for v in values]


def _inside(p):
    return min(max(p, FLOOR), 1.0 - FLOOR)


def _interpolated(knots, values, at):
    for j in range(1, len(knots)):
        if at <= knots[j] or j == len(knots) - 1:
            h = min((at - knots[j - 1]) / (knots[j] - knots[j - 1]), 1.0)
            return (1.0 - h) * values[j - 1] + h * values[j]
"""

_PAIR = '''

_of_the_second = calibrate


def calibrate(scores):
    """Two scores in, two probabilities out."""
    first, second = scores
    if LOGITS:
        first, second = (math.exp(s - max(scores)) for s in scores)
    elif min(scores) < 0.0 or abs(first + second - 1.0) > 1e-6:
        raise ValueError("scores must be 0 or more and sum to 1")
    p = _of_the_second(second / (first + second))
    return [1.0 - p, p]
'''


@dataclass(frozen=True)
class MultiExport:
    """What `MultiCalibrator.export` gives: the present map as numbers, and as text in Python and JSON.

    Attributes
    ----------
    numbers : the map as plain numbers, by name; `docs/multiclass.md` has the equations.
    python : source of a function ``calibrate(scores)``, which needs `math` and nothing else.
    json : the numbers, with the method and the classes.

    The Python source agrees with `MultiCalibrator.predict_many` to 1e-12. Nothing is learnt in a copy: export again
    when the stream has moved.

    >>> from calibeat import MultiCalibrator
    >>> cal = MultiCalibrator(3)
    >>> P = cal.run([[0.2, 0.5, 0.3], [0.1, 0.1, 0.8]] * 20, [0, 2] * 20)
    >>> space = {}
    >>> exec(cal.export().python, space)
    >>> ours, theirs = cal.peek([0.2, 0.5, 0.3]).tolist(), space["calibrate"]([0.2, 0.5, 0.3])
    >>> max(abs(p - q) for p, q in zip(ours, theirs)) < 1e-12
    True
    """

    numbers: dict[str, Any]
    classes: tuple[Any, ...]
    method: str
    logits: bool
    pair: str | None = None

    @property
    def python(self) -> str:
        """A Python function ``calibrate(scores)``."""
        if self.pair is not None:
            return f"{self.pair.rstrip()}\n\n\nLOGITS = {self.logits}\n{_PAIR}"
        constants = "".join(f"{name.upper()} = {value!r}\n" for name, value in self.numbers.items())
        body = {"raw": "    return f\n", "ots": "    return _softmax([SLOPE * v for v in x])\n", "multi": _MULTI}
        head = f"import math\n\nK, LOGITS, FLOOR = {len(self.classes)}, {self.logits}, {EPS!r}\n{constants}\n\n"
        return head + _READ + body[self.method] + _HELPERS

    @property
    def json(self) -> str:
        """The numbers, the method and the classes as JSON."""
        return json.dumps(
            {
                "format": KIND,
                "version": FORMAT,
                "method": self.method,
                "classes": list(self.classes),
                "logits": self.logits,
                "numbers": self.numbers,
            }
        )


def frozen_numbers(method: int, K: int, row: Vector) -> dict[str, Any]:
    """The numbers of a row that a forecast needs, by name."""
    if method == layout.RAW:
        return {}
    if method == layout.ONLINE_TEMPERATURE:
        return {"slope": float(row[2])}
    rho, kappa = layout.BIAS + 8 * K, layout.BIAS + 20 * K
    confusion = row[kappa : kappa + K * K].reshape(K, K).tolist() if K <= layout.MOST_CONFUSED else []
    return {
        "slope": float(row[layout.SLOPE]),
        "lane_weights": row[layout.W : layout.W + 6].tolist(),
        "shared": row[layout.THETA : layout.OFFSET].reshape(4, layout.THETA_WIDTH)[:, :3].tolist(),
        "biases": row[layout.BIAS : rho].reshape(4, 2, K)[:, 0].tolist(),
        "knots": [0.0, 0.01, 0.1, 0.5, 0.9, 1.0],
        "factors": row[rho : rho + 6 * K].reshape(K, 6).tolist(),
        "confusion": confusion,
        "stage_weights": row[layout.V : layout.V + (3 if confusion else 2)].tolist(),
        "offsets": row[layout.OFFSET : layout.KNOWN].tolist(),
        "top_weights": row[layout.Z : layout.Z + 2].tolist(),
        "guard_weights": row[layout.G : layout.G + 2].tolist(),
    }
