"""The exponential of plain arithmetic."""

from __future__ import annotations

import math

import numpy as np

from calibeat.core import vector
from calibeat.core.jit import compiled, plain


def test_it_is_the_exponential() -> None:
    z = -np.concatenate([np.linspace(0.0, 700.0, 4001), np.geomspace(1e-300, 700.0, 2000), [0.0, -vector.LOWEST]])
    ours = np.array([vector.exp_of_negative(value) for value in z.tolist()])
    theirs = np.array([math.exp(value) for value in z.tolist()])
    assert (np.abs(ours - theirs) <= 4.5e-16 * theirs).all()
    assert vector.exp_of_negative(0.0) == 1.0 and vector.exp_of_negative(vector.LOWEST) > 0.0


def test_compiled_and_plain_agree() -> None:
    rng = np.random.default_rng(0)
    for size in (1, 2, 3, 4, 5, 8, 31, 1000):
        z = rng.normal(0, 30, size)
        one, two = z.copy(), z.copy()
        compiled(vector.softmax)(one)
        plain(vector.softmax)(two)
        np.testing.assert_array_equal(one, two)
        e = np.exp(z - z.max())
        np.testing.assert_allclose(one, e / e.sum(), rtol=1e-13, atol=1e-300)


def test_sums_and_maxima() -> None:
    for size in range(1, 14):
        z = np.random.default_rng(size).normal(0, 1, size)
        assert vector.largest(z.data) == z.max()
        assert abs(vector.total(z.data) - z.sum()) <= 1e-14
