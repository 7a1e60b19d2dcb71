"""Counter-based randomness: the draw of an event is a function of (seed, stream, event) and of nothing else.

So it does not matter how events are batched, on which machine they run, or whether the process was restarted in
between. The generator is SplitMix64 (Steele, Lea & Flood 2014) read at position `event`; its start is a hash of the
seed and the stream.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt

from calibeat._compiled import draw_each, draw_in_order
from calibeat._util.types import Ints, Slots, Vector

from .subset import entry

_MASK = 0xFFFFFFFFFFFFFFFF


def stream_key(seed: int, stream: int | str) -> int:
    """64 bits that no other (seed, stream) is likely to share."""
    return int.from_bytes(hashlib.blake2b(repr((seed, stream)).encode(), digest_size=8).digest(), "little")


def uniforms(key: int, first: int, count: int) -> Vector:
    """The draws in [0, 1) of events first, ..., first + count - 1."""
    draws = np.empty(count)
    draw_in_order(key, first, draws)
    return draws


def uniforms_at(keys: np.uint64 | npt.NDArray[np.uint64], events: npt.NDArray[np.uint64]) -> Vector:
    """The draws of any events, of one stream or of one stream each."""
    draws = np.empty(len(events))
    draw_each(np.broadcast_to(keys, events.shape), events, draws)
    return draws


def mix_words(x: Any) -> Any:
    """SplitMix64's finaliser on a Python int or an array of uint64 (which wraps by itself): for hashes of keys."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & _MASK
    return x ^ (x >> 31)


def mix_word(word: int) -> int:
    """The same of one word. Kernels call it too; there, 64 bits are a whole number with a sign."""
    return signed(mix_words(int(word) & _MASK))


def cross_words(a: int, b: int) -> int:
    """The word of a pair of words, never 0, in the same way."""
    return mix_word(int(a) * 0x9E3779B97F4A7C15 ^ int(b)) or 1


def signed(word: int) -> int:
    """64 bits as a whole number with a sign."""
    return int(word - (word >> 63 << 64))


@entry
def number_events(counts: Vector, slots: Slots, numbers: Ints) -> None:
    """Which event of its own stream each event is; `counts` says how many each stream has had, and is counted on."""
    for i in range(len(slots)):
        numbers[i] = int(counts[slots[i]])
        counts[slots[i]] += 1.0


def numbered(counts: Vector, slots: Slots) -> npt.NDArray[np.uint64]:
    """The numbers of events within their streams, as `uniforms_at` wants them."""
    numbers = np.empty(len(slots), dtype=np.int64)
    number_events(counts, slots, numbers)
    return numbers.view(np.uint64)
