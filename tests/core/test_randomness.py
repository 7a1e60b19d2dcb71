"""The draws of the compiled core beside SplitMix64 in Python's own whole numbers."""

from __future__ import annotations

import numpy as np
import pytest

from calibeat.core.randomness import mix_words, stream_key, stream_keys, uniforms, uniforms_at, uniforms_next
from calibeat.hosts.keys import KeyColumn

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


def test_a_stream_has_a_key_of_its_own() -> None:
    streams: list[int | str] = [*range(-50, 50), -(2**63), 2**63 - 1, "", "\0", "\0\0", "a", "b", "1234567", "12345678"]
    streams += [str(number) for number in range(-50, 50)] + ["x" * length for length in range(2, 40)] + ["\ud800"]
    keys = {stream_key(seed, stream) for seed in (-1, 0, 1, 2**63, LARGEST - 1) for stream in streams}
    assert len(keys) == 5 * len(streams) and all(0 <= key <= LARGEST for key in keys)


def test_a_stream_has_the_same_key_in_every_type() -> None:
    assert stream_key(3, np.str_("paris")) == stream_key(3, "paris")  # type: ignore[arg-type]
    assert stream_key(3, np.int64(-7)) == stream_key(3, -7)  # type: ignore[arg-type]
    assert stream_key(-1, "paris") == stream_key(LARGEST, "paris")  # a seed is 64 bits


def test_keys_of_streams_in_one_call() -> None:
    numbers = np.array([-(2**63), -1, 0, 1, 2**63 - 1])
    none = np.empty(0, dtype=np.uint8)
    assert stream_keys(5, False, none, numbers, numbers).tolist() == [stream_key(5, n) for n in numbers.tolist()]
    text = np.frombuffer("abcäöü".encode(), dtype=np.uint8)
    starts, ends = np.array([0, 1, 3, 0]), np.array([3, 1, 9, 9])
    names = ["abc", "", "äöü", "abcäöü"]
    assert stream_keys(5, True, text, starts, ends).tolist() == [stream_key(5, name) for name in names]


def test_bits_of_keys_are_even() -> None:
    """Each bit is set in about half of the keys of neighbours: in 4096, beyond 6 standard deviations never."""
    numbers = np.arange(4096)
    texts = KeyColumn.of_strings([f"merchant-{number}" for number in numbers])
    for keys in (KeyColumn.of_ints(numbers).stream_keys(0), texts.stream_keys(0)):
        set_bits = np.unpackbits(keys.view(np.uint8).reshape(-1, 8), axis=1).sum(axis=0)
        assert (abs(set_bits - 2048.0) < 6 * 32).all()


def test_the_next_draws_of_streams() -> None:
    keys, counts = np.array([4, LARGEST], dtype=np.uint64), np.array([3.0, 0.0])
    draws = uniforms_next(keys, counts, np.array([0, 1, 0, 0, 1], dtype=np.int32))
    at = [(4, 3), (LARGEST, 0), (4, 4), (4, 5), (LARGEST, 1)]
    assert draws.tolist() == [uniform(key, event) for key, event in at] and counts.tolist() == [6.0, 2.0]
