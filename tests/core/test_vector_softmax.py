"""Softmax, sums and maxima."""

from __future__ import annotations

import numpy as np
import pytest

from calibeat.core import vector


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 8, 31, 1000])
def test_the_compiled_softmax_has_the_bits_of_the_kernel(size: int) -> None:
    """Logits become probabilities in `ready`, by `softmax` and nothing else."""
    rng = np.random.default_rng(size)
    z = rng.normal(0, 30, size)
    one, two = z.copy(), z.copy()
    assert vector.ready(size, one, 1)[0] == vector.GOOD
    vector.softmax(two)
    np.testing.assert_array_equal(one, two)
    e = np.exp(z - z.max())
    np.testing.assert_allclose(one, e / e.sum(), rtol=1e-13, atol=1e-300)


def test_sums_and_maxima() -> None:
    for size in range(1, 14):
        z = np.random.default_rng(size).normal(0, 1, size)
        assert vector.largest(z) == z.max()
        assert abs(vector.total(z) - z.sum()) <= 1e-14
