"""`exp` and `ln` against exact arithmetic, and what is made of them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from decimal import Decimal, localcontext
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from calibeat.core.algebra import LACKS, LEAST_POWER, MOST_POWER, POWERS, exp, exps, ln, lns, power, solve, whole_part
from calibeat.core.learners import half_tanh
from calibeat.core.subset import plain
from calibeat.core.units import UNITS
from calibeat.monitor.bets import psi
from calibeat.monitor.shift import asinh

Floats = NDArray[np.float64]
SIDE = 1000  # a million points are sums, or products, of a thousand numbers and a thousand others


def doubled(function: Callable[[Decimal], Decimal], numbers: Floats) -> tuple[Floats, Floats]:
    """The values of a function to 32 digits: the nearest floats, and what they lack."""
    with localcontext(prec=50):
        values = [function(Decimal(number)) for number in numbers.tolist()]
        near = [float(value) for value in values]
        return np.array(near), np.array([float(value - Decimal(low)) for value, low in zip(values, near, strict=True)])


def exact_sum(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """a + b and its rounding error (Knuth)."""
    total = a + b
    c = total - a
    return total, (a - (total - c)) + (b - c)


def exact_product(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """a b and its rounding error (Dekker)."""
    product, (a_high, a_low), (b_high, b_low) = a * b, halves(a), halves(b)
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def halves(a: Floats) -> tuple[Floats, Floats]:
    high = 134217729.0 * a - (134217729.0 * a - a)
    return high, a - high


def units(ours: Floats, near: Floats, lack: Floats) -> float:
    """The largest error, in units of the last place of the true value."""
    near, lack = exact_sum(near, lack)
    return float((np.abs((ours - near) - lack) / np.spacing(np.abs(near))).max())


def steps(rng: np.random.Generator, low: float, high: float, size: float) -> Floats:
    """Random multiples of a power of two."""
    return rng.integers(int(low / size), int(high / size), SIDE) * size


@pytest.mark.parametrize(
    ("most", "coarse", "fine"), [(690.0, 2.0**-10, 2.0**-43), (36.0, 2.0**-8, 2.0**-47), (1.0, 2.0**-12, 2.0**-53)]
)
def test_a_million_exponentials(most: float, coarse: float, fine: float) -> None:
    """e^(a + b) = e^a e^b, where a + b is exact."""
    rng = np.random.default_rng(0)
    a, b = steps(rng, -most, most, coarse), steps(rng, 0.0, coarse, fine)
    x = np.add.outer(a, b)
    (p, p_lack), (q, q_lack) = doubled(Decimal.exp, a), doubled(Decimal.exp, b)
    near, error = exact_product(p[:, None], q)
    ours = x.reshape(-1).copy()
    exps(ours)
    assert units(ours, near.reshape(-1), (error + p[:, None] * q_lack + p_lack[:, None] * q).reshape(-1)) <= 0.55
    some = x.reshape(-1)[:: SIDE // 10].copy()
    each = [exp(value) for value in some.tolist()]
    plain(exps)(some)
    assert each == some.tolist() == ours[:: SIDE // 10].tolist()


EDGES = [
    0.0,
    *(sign * value for sign in (1.0, -1.0) for value in (5e-324, 1e-300, 2.0**-53, 1e-9, math.log(2.0) / 128.0)),
]
EDGES += [np.nextafter(edge, to).item() for edge in (-708.0, 709.0, 0.0) for to in (-800.0, 800.0)] + [-708.0, 709.0]
# Where the nearest step changes, from both sides.
EDGES += [np.nextafter((i + 0.5) * math.log(2.0) / 64.0, to).item() for i in range(-200, 200) for to in (-800.0, 800.0)]


def test_the_edges_of_the_exponential() -> None:
    inside = np.array([x for x in EDGES if -708.0 <= x <= 709.0])
    ours = inside.copy()
    exps(ours)
    assert units(ours, *doubled(Decimal.exp, inside)) <= 0.55
    assert exp(0.0) == exp(-0.0) == 1.0
    for x in (-708.0000001, -745.2, -1e10, -1e17, -1e300, -math.inf):
        assert exp(x) == LEAST_POWER == pytest.approx(math.exp(-708.0), rel=1e-15)
    for x in (709.0000001, 709.8, 1e10, 1e17, 1e300, math.inf):
        assert exp(x) == MOST_POWER == pytest.approx(math.exp(709.0), rel=1e-15)
    beyond = np.array([-1e300, 1e300, math.nan])
    exps(beyond)
    assert beyond[:2].tolist() == [LEAST_POWER, MOST_POWER] and math.isnan(beyond[2]) and math.isnan(exp(math.nan))


def test_the_table_of_powers() -> None:
    with localcontext(prec=50):
        for i, (near, lack) in enumerate(zip(POWERS, LACKS, strict=True)):
            true = Decimal(2) ** (Decimal(i) / 64)
            assert near == float(true)
            assert lack == pytest.approx(float((true - Decimal(near)) / true), rel=1e-12)


@pytest.mark.parametrize("around", [None, 2.0**-3, 2.0**-8, 2.0**-16, 2.0**-24])
def test_a_million_logarithms(around: float | None) -> None:
    """ln(a b) = ln a + ln b, where a b is exact: of all sizes, and around 1."""
    rng = np.random.default_rng(0)
    if around is None:
        a, b = (
            np.ldexp(steps(rng, 1.0, 2.0, 2.0**-25), rng.integers(-500, 500, SIDE).astype(np.int32)) for _ in range(2)
        )
    else:
        a, b = 1.0 + steps(rng, -around, around, 2.0**-25), 1.0 + steps(rng, -around, around, 2.0**-25)
        a[0] = b[0] = 1.0
    x = np.multiply.outer(a, b).reshape(-1)
    (p, p_lack), (q, q_lack) = doubled(Decimal.ln, a), doubled(Decimal.ln, b)
    near, error = exact_sum(p[:, None], q)
    ours = x.copy()
    lns(ours)
    near, lack = near.reshape(-1), (error + (p_lack[:, None] + q_lack)).reshape(-1)
    assert (ours[near == 0.0] == 0.0).all()
    assert units(ours[near != 0.0], near[near != 0.0], lack[near != 0.0]) <= 0.85
    some = x[:: SIDE // 10].copy()
    each = [ln(value) for value in some.tolist()]
    plain(lns)(some)
    assert each == some.tolist() == ours[:: SIDE // 10].tolist()


def test_the_edges_of_the_logarithm() -> None:
    edges = [
        2.0**-1022,
        np.nextafter(2.0**-1022, 1.0),
        1.7976931348623157e308,
        0.5,
        2.0,
        math.sqrt(2.0),
        1e-5,
        1 - 1e-5,
    ]
    edges += [np.nextafter(x, to) for x in (1.0, math.sqrt(2.0), math.sqrt(0.5), 2.0) for to in (0.0, 3.0)]
    x = np.array([float(edge) for edge in edges])
    ours = x.copy()
    lns(ours)
    assert units(ours, *doubled(Decimal.ln, x)) <= 0.85
    assert ln(1.0) == 0.0


def relative(function: Callable[[float], float], true: Callable[[Decimal], Decimal], numbers: Sequence[float]) -> float:
    """The largest relative error."""
    with localcontext(prec=60):
        values = [(Decimal(function(number)), true(Decimal(number))) for number in numbers]
        return max(float(abs(ours / value - 1)) for ours, value in values)


def test_what_is_made_of_them() -> None:
    small = [10.0**-k for k in range(1, 12)]
    halves = [*small, *np.linspace(0.05, 40.0, 400).tolist(), 1.0, np.nextafter(1.0, 0.0).item()]
    assert relative(half_tanh, lambda z: (z.exp() - 1) / (z.exp() + 1), halves) <= 5e-16
    assert half_tanh(0.0) == 0.0
    assert all(half_tanh(-z) == -half_tanh(z) for z in halves)
    shares = [*small, *np.linspace(0.001, 0.75, 400).tolist(), 0.25, np.nextafter(0.25, 1.0).item()]
    assert relative(psi, lambda x: -(1 - x).ln() - x, shares) <= 1e-14
    assert psi(0.0) == 0.0
    assert relative(lambda x: power(x, 0.4), lambda x: x ** Decimal("0.4"), [*shares, 1.0, 1e-300]) <= 1e-13
    assert power(1.0, 0.4) == 1.0
    assert 0.0 <= power(0.0, 0.4) <= 1e-100
    assert all(abs(asinh(x) - math.asinh(x)) <= 1e-14 for x in np.linspace(-17.0, 17.0, 101).tolist())


def test_whole_parts() -> None:
    for x in (0.0, 0.5, 1.0, 2.5, 3.9999, 2.0**51 + 0.5, 2.0**52 - 0.5, 2.0**52 + 1.0, 2.0**53, 1e300):
        assert whole_part(x) == math.floor(x)
        assert whole_part(np.nextafter(x, 0.0).item()) == math.floor(np.nextafter(x, 0.0))


def test_the_compiled_core_calls_no_mathematical_function_of_the_c_library() -> None:
    """Each library has its own last bits. Square roots, and what is exact, are the same everywhere."""
    names = "exp expm1 exp2 log log1p log2 log10 pow sin cos tan asin acos atan sinh cosh tanh hypot cbrt fma fmod"
    for unit in UNITS:
        file = Path(str(import_module(f"calibeat.{unit}").__file__))
        assert re.findall(rb"\0_?(%s)f?\0" % "|".join(names.split()).encode(), file.read_bytes()) == []


def test_a_matrix_that_rounding_has_made_singular_is_still_solved() -> None:
    flat = solve(2.0, 1e17, 1e17, 0.0, 1e17, 0.0, 0.0, 1.0, 1.0, 0.0)
    assert np.isfinite(flat).all()
    assert flat[0] + flat[1] == pytest.approx(1e-17)
    deep = solve(3.0, 4.0, 2.0, 2.0, 1.0, 1.0, 1.0, 2.0, 1.0, 1.0)
    assert np.isfinite(deep).all()
    assert 2.0 * deep[0] + deep[1] + deep[2] == pytest.approx(1.0)
