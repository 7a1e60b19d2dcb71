"""Who has issued a receipt: the name of a calibrator, and the lives that it has had.

The name is a fingerprint of method, seed and stream: calibrators that were made alike have the same one. A calibrator
that continues from a snapshot, or a copy of one, also in a forked process, begins a new life at its first forecast,
with a random number behind the name. So a receipt that was issued after the snapshot was taken, or by another copy, is
told from its own.
"""

from __future__ import annotations

import re
import secrets
from typing import Any

from calibeat._util.check import check_whole
from calibeat.core.method import Method
from calibeat.core.randomness import stream_key
from calibeat.errors import InvalidInput

DIGITS = 16  # of a name
MOST_LIVES = 64

# The first event of a life, and its number: 8 hexadecimal digits, nothing for the very first life, None for one that
# has issued no receipt yet.
Life = tuple[int, str | None]


class Issuer:
    """The name of one stream and its lives, in the order of their first events.

    >>> from calibeat.stream.issuer import Issuer
    >>> issuer = Issuer("00c0ffee00c0ffee")
    >>> issuer.signature
    '00c0ffee00c0ffee'
    >>> issuer.begin(100)                            # restored from a snapshot that was taken after 100 forecasts
    >>> signature = issuer.sign()                    # such as '00c0ffee00c0ffee-5eed5eed'
    >>> issuer.issued(99, issuer.name), issuer.issued(100, issuer.name), issuer.issued(100, signature)
    (True, False, True)
    """

    __slots__ = ("lives", "name")

    def __init__(self, name: str, lives: tuple[Life, ...] = ((0, ""),)) -> None:
        self.name = name
        self.lives = lives

    @property
    def signature(self) -> str:
        """What receipts of the present life carry; empty while it has issued none."""
        return self._signature(self.lives[-1][1])

    def _signature(self, life: str | None) -> str:
        return "" if life is None else f"{self.name}-{life}" if life else self.name

    def sign(self, life: str | None = None) -> str:
        """Give the present life a number, this one or a random one, if it has none."""
        first, number = self.lives[-1]
        if number is None:
            self.lives = (*self.lives[:-1], (first, life or new_life()))
        return self.signature

    def begin(self, event: int) -> None:
        """Begin a new life, whose first event is this one."""
        lives = self.lives if self.lives[-1][0] < event else self.lives[:-1]  # one without an event leaves no trace
        self.lives = (*lives[1 - MOST_LIVES :], (event, None))

    def is_own(self, signature: str) -> bool:
        """Whether a receipt is of this stream, in whatever life."""
        return signature[:DIGITS] == self.name

    def issued(self, event: int, signature: str) -> bool:
        """Whether this signature may be on the receipt of this event: before the first life that is known, any may."""
        for first, life in reversed(self.lives):
            if first <= event:
                return signature == self._signature(life)
        return True

    def dump(self, events: int, settled: int) -> list[list[Any]]:
        """The lives that matter: those with an event that is made, and not settled for sure."""
        lives = [life for life in self.lives if life[0] < events]
        ends = [first for first, _ in lives[1:]] + [events]
        kept = [list(life) for life, end in zip(lives, ends, strict=False) if end > settled]
        return [] if kept == [[0, ""]] else kept

    def load(self, data: Any, events: int) -> None:
        """The inverse of `dump`."""
        if not isinstance(data, list) or len(data) > MOST_LIVES or not all(map(_is_life, data)):
            raise InvalidInput(f"lives must be pairs of a first event and a number, got {data!r:.60}")
        firsts = [check_whole("first event of a life", first, 0, events) for first, _ in data]
        if firsts != sorted(set(firsts)):
            raise InvalidInput(f"lives must be in the order of their first events, got {data!r:.60}")
        if data:
            self.lives = tuple((first, life) for first, life in data)


def issuer_name(method: Method, seed: int, stream: int | str) -> str:
    """The name of a stream: 16 hexadecimal digits of its method, as `repr` shows it, its seed and its name.

    >>> from calibeat import TOPS
    >>> issuer_name(TOPS, 0, 0)
    'd9169e331ae0b5d7'
    """
    return f"{stream_key(stream_key(seed, stream), repr(method)):016x}"


def new_life() -> str:
    """A random number, 0 left out, as 8 hexadecimal digits."""
    return f"{secrets.randbelow(2**32 - 1) + 1:08x}"


def _is_life(pair: Any) -> bool:
    if not isinstance(pair, list) or len(pair) != 2:
        return False
    return pair[1] in (None, "") or (isinstance(pair[1], str) and re.fullmatch("[0-9a-f]{8}", pair[1]) is not None)
