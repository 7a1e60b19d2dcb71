"""Seeded hashes of keys: 31 bits, the same in plain Python, in NumPy and in compiled code.

Each bank has a random seed, which its file holds. Whoever chooses keys without knowing the seed cannot make them
collide, so a look-up stays short. Nothing but the order of the hash table depends on the seed.

- An integer is mixed twice (SplitMix64's finaliser), with a part of the seed before each.
- A string of up to 64 bytes is a polynomial in a secret point, modulo 2^31 - 1, with three bytes in each coefficient:
  two different strings collide with a probability of at most 23 in 2^31 (Carter & Wegman 1979). Then it is mixed.
- A longer string is hashed by BLAKE2b with the seed as its key.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from calibeat.core.jit import compilable
from calibeat.core.randomness import mix_words

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.int32]

LONG = 64  # bytes of a string; longer ones are hashed one by one
PRIME = 2**31 - 1
_MASK = 0xFFFFFFFFFFFFFFFF
MOST_SEED = 2**64 - 1


@dataclass(frozen=True)
class Seed:
    """The secret of one bank's hash table; `value` is what a file holds."""

    value: int

    @classmethod
    def random(cls) -> Seed:
        """A seed that nobody can guess."""
        return cls(secrets.randbits(64))

    @cached_property
    def words(self) -> tuple[int, int]:
        """Two numbers of 64 bits, for integers."""
        return mix_words(self.value + 1 & _MASK), mix_words(self.value + 2 & _MASK)

    @cached_property
    def point(self) -> tuple[int, int, int]:
        """Point, start and mask of the polynomial, for strings."""
        a, b, c = (mix_words(self.value + i & _MASK) for i in (3, 4, 5))
        return 256 + a % (PRIME - 256), b % PRIME, c & 0xFFFFFFFF

    def of_int(self, key: int) -> int:
        """The hash of one integer."""
        first, second = self.words
        return int(mix_words(mix_words((key & _MASK) ^ first) ^ second) >> 33)

    def of_ints(self, keys: npt.NDArray[np.int64]) -> Hashes:
        """The hash of each integer."""
        first, second = (np.uint64(word) for word in self.words)
        words: npt.NDArray[np.uint64] = mix_words(mix_words(keys.view(np.uint64) ^ first) ^ second)
        return (words >> np.uint64(33)).astype(np.int32)

    def of_bytes(self, key: bytes) -> int:
        """The hash of one string, given as UTF-8."""
        if len(key) > LONG:
            return self._of_long(key)
        return short_hash(key, 0, len(key), *self.point)  # type: ignore[arg-type]  # bytes are read like an array

    def of_strings(self, hash_short: Any, text: Bytes, starts: Offsets, ends: Offsets) -> Hashes:
        """The hash of each string text[start:end]; `hash_short` is `hash_strings`, plain or compiled."""
        hashes = np.empty(len(starts), dtype=np.int32)
        hash_short(text, starts, ends, *self.point, hashes)
        for i in np.flatnonzero(ends - starts > LONG):
            hashes[i] = self._of_long(text[starts[i] : ends[i]].tobytes())
        return hashes

    def _of_long(self, key: bytes) -> int:
        digest = hashlib.blake2b(key, digest_size=4, key=self.value.to_bytes(8, "little")).digest()
        return int.from_bytes(digest, "little") >> 1


@compilable
def short_hash(text: Bytes, start: int, end: int, point: int, begin: int, mask: int) -> int:
    """The hash of text[start:end], in numbers that never leave 63 bits: the same in every host."""
    h = begin
    j = start
    while j + 3 <= end:
        h = (h * point + text[j] + text[j + 1] * 256 + text[j + 2] * 65536) % PRIME
        j += 3
    rest = 0
    if j < end:
        rest = text[j] + 0
    if j + 1 < end:
        rest += text[j + 1] * 256
    h = (h * point + rest) % PRIME
    h = (h * point + (end - start)) % PRIME
    h ^= mask
    h = ((h ^ (h >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
    h = ((h ^ (h >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
    return (h ^ (h >> 16)) & 0x7FFFFFFF


@compilable
def hash_strings(
    text: Bytes, starts: Offsets, ends: Offsets, point: int, begin: int, mask: int, hashes: Hashes
) -> None:
    """The hash of each string that is not long."""
    for i in range(len(hashes)):
        if ends[i] - starts[i] <= LONG:
            hashes[i] = short_hash(text, starts[i], ends[i], point, begin, mask)
