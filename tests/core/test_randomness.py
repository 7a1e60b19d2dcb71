"""The draws of the compiled core beside SplitMix64 in Python's own whole numbers."""

from __future__ import annotations

import numpy as np
import pytest

from calibeat.core.randomness import mix_words, stream_key, uniforms, uniforms_at

LARGEST = 2**64 - 1


def uniform(key: int, event: int) -> float:
    return float(mix_words(key + event * 0x9E3779B97F4A7C15 & LARGEST) >> 11) * 2.0**-53


@pytest.mark.parametrize("key", [0, 1, stream_key(3, "paris"), LARGEST])
@pytest.mark.parametrize("first", [0, 7, 2**40, 2**62])
def test_the_draws_of_a_stream(key: int, first: int) -> None:
    draws = uniforms(key, first, 50)
    assert draws.tolist() == [uniform(key, first + i) for i in range(50)]
    assert ((draws >= 0.0) & (draws < 1.0)).all()


def test_the_draws_of_many_streams() -> None:
    keys = np.array([stream_key(1, name) for name in "abcde"], dtype=np.uint64)
    events = np.array([0, 5, 2, 2**50, 1], dtype=np.uint64)
    expected = [uniform(key, event) for key, event in zip(keys.tolist(), events.tolist(), strict=True)]
    assert uniforms_at(keys, events).tolist() == expected
    assert uniforms_at(keys[0], events).tolist() == [uniform(int(keys[0]), event) for event in events.tolist()]
    assert uniforms_at(keys[::-1][::-1], events).tolist() == expected and len(uniforms(0, 0, 0)) == 0
