"""Counter-based randomness: the draw of an event is a function of (seed, stream, event) and of nothing else.

So it does not matter how events are batched, on which machine they run, or whether the process was restarted in
between. The generator is SplitMix64 (Steele, Lea & Flood 2014) read at position `event`; its start is a hash of the
seed and the stream.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from calibeat._compiled import draw_each, draw_in_order, draw_next
from calibeat._util.types import Bytes, Ints, Slots, Vector

from .subset import entry, kernel

_MASK = 0xFFFFFFFFFFFFFFFF
_INTS, _TEXTS = 1, 2  # which kind of stream a hash begins with: 1 and "1" are two streams
_BYTES_AT_ONCE = 7  # of a text: as many as make a whole number in any host


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


def uniforms_next(keys: npt.NDArray[np.uint64], counts: Vector, slots: Slots) -> Vector:
    """The draws of the next events of streams, in order; `counts` says how many each has had, and is counted on."""
    draws = np.empty(len(slots))
    draw_next(keys, counts, slots, draws)
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


# ---- the keys of streams -------------------------------------------------------------------------------------------


def stream_key(seed: int, stream: int | str) -> int:
    """64 bits that no other (seed, stream) is likely to share.

    It is no signature: an attacker can find two streams with the same key.
    """
    if isinstance(stream, str):
        text = stream.encode(errors="surrogatepass")
        return text_key(_start(int(seed), _TEXTS), text, 0, len(text)) & _MASK  # type: ignore[arg-type]  # read like an array
    return cross_words(_start(int(seed), _INTS), stream) & _MASK


def stream_keys(seed: int, texts: bool, text: Bytes, starts: Ints, ends: Ints) -> npt.NDArray[np.uint64]:
    """`stream_key` of many streams: the texts text[start:end], or the integers that stand in place of the starts."""
    keys = np.empty(len(starts), dtype=np.int64)
    if texts:
        text_keys(_start(seed, _TEXTS), text, starts, ends, keys)
    else:
        int_keys(_start(seed, _INTS), starts, keys)
    return keys.view(np.uint64)


@lru_cache(64)
def _start(seed: int, kind: int) -> int:
    return cross_words(cross_words(kind, seed), kind)


@kernel
def hash_of_text(start: int, text: Bytes, begin: int, end: int) -> int:
    """A word of text[begin:end]: its bytes, seven at once, then how many they are."""
    h = start
    word = room = 0
    for j in range(begin, end):
        word = word * 256 + int(text[j])
        room += 1
        if room == _BYTES_AT_ONCE:
            h = cross_words(h, word)
            word = room = 0
    return cross_words(cross_words(h, word), end - begin)


@entry
def text_key(start: int, text: Bytes, begin: int, end: int) -> int:
    """The key of one text."""
    return hash_of_text(start, text, begin, end)


@entry
def text_keys(start: int, text: Bytes, starts: Ints, ends: Ints, keys: Ints) -> None:
    """The key of each text."""
    for i in range(len(keys)):
        keys[i] = hash_of_text(start, text, starts[i], ends[i])


@entry
def int_keys(start: int, streams: Ints, keys: Ints) -> None:
    """The key of each integer."""
    for i in range(len(keys)):
        keys[i] = cross_words(start, streams[i])


# ---- the numbers of events -----------------------------------------------------------------------------------------


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
