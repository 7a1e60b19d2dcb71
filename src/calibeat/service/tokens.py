"""Tokens: made once, kept as hashes, looked up again every second so that a revoked one stops working.

A token may be limited: to reading, to some streams, to a time.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from typing import Literal

from .patterns import matches
from .store.queries import Token

PREFIX = "calibeat_"  # so that scanners for leaked secrets can find one
Scope = Literal["read", "write"]
SCOPES: tuple[Scope, ...] = ("read", "write")


def new_token() -> str:
    """256 random bits as text.

    >>> token = new_token()
    >>> token.startswith("calibeat_"), len(token)
    (True, 52)
    """
    return PREFIX + secrets.token_urlsafe(32)


def hashed(token: str | bytes) -> bytes:
    """What the store keeps. A token is 256 random bits, so a fast hash without salt is enough.

    >>> hashed("calibeat_secret").hex()[:8]
    '86b3647f'
    """
    return hashlib.sha256(token if isinstance(token, bytes) else token.encode()).digest()


class Holder:
    """A token that is valid now, as a request meets it."""

    __slots__ = ("expires", "hash", "name", "scope", "streams")

    def __init__(self, token: Token) -> None:
        self.name, self.scope, self.hash = token.name, token.scope, bytes.fromhex(token.hash)
        self.streams, self.expires = token.streams, token.expires

    def may(self, wanted: Scope) -> bool:
        """Whether it may read, or write."""
        return self.scope == "write" or wanted == "read"

    def covers(self, stream: str) -> bool:
        """Whether it may be used for a stream."""
        return not self.streams or matches(self.streams, stream)


class TokenBook:
    """The tokens that are valid now. `refresh` replaces them; look-ups never touch the store.

    A store that never had a token needs none. The first one closes the service, and nothing opens it again while it
    runs: revoking a token must keep its owner out.

    >>> book = TokenBook(open_without_tokens=True)
    >>> book.is_open
    True
    >>> book.refresh([Token("page", "read", hashed("calibeat_secret").hex(), created=0.0, streams=("paris/*",))])
    >>> book.is_open, book.find(None), book.find(b"bearer calibeat_secret").may("write")
    (False, None, False)
    """

    def __init__(self, *, open_without_tokens: bool) -> None:
        self.is_open = open_without_tokens  # there never was a token, and only this machine can connect
        self._holders: dict[bytes, list[Holder]] = {}  # by the beginning of their hashes

    def refresh(self, tokens: Iterable[Token]) -> None:
        """Take over the tokens of the store, revoked ones too."""
        holders: dict[bytes, list[Holder]] = {}
        for token in tokens:
            self.is_open = False
            if token.revoked is None:
                made = Holder(token)
                holders.setdefault(made.hash[:8], []).append(made)
        self._holders = holders

    @property
    def scopes(self) -> set[str]:
        """The scopes for which there are tokens."""
        return {holder.scope for holder in self._valid()}

    def _valid(self) -> list[Holder]:
        now = time.time()
        every = [holder for holders in self._holders.values() for holder in holders]
        return [holder for holder in every if holder.expires is None or now < holder.expires]

    @property
    def who_may_connect(self) -> str:
        """What must be known when a service starts; nothing if there are tokens."""
        if self.is_open:
            return "; no token yet, so only this machine can connect"
        return "" if self._valid() else "; every token is revoked or has expired, so nobody can connect"

    def find(self, authorization: bytes | None) -> Holder | None:
        """The token of an `Authorization` header; None for one that is unknown, revoked or expired."""
        if authorization is None or authorization[:7].lower() != b"bearer ":
            return None
        return self.find_token(authorization[7:].strip())

    def find_token(self, token: bytes) -> Holder | None:
        """The same for the token alone."""
        digest = hashed(token)
        for holder in self._holders.get(digest[:8], ()):
            if hmac.compare_digest(holder.hash, digest):
                return None if holder.expires is not None and time.time() >= holder.expires else holder
        return None


class Refresher:
    """A thread that reads the tokens every second."""

    def __init__(self, book: TokenBook, read: Callable[[], Iterable[Token]], seconds: float = 1.0) -> None:
        self._book, self._read, self._seconds = book, read, seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="calibeat-tokens", daemon=True)

    def start(self) -> None:
        """Read once, then every second."""
        self._book.refresh(self._read())
        self._thread.start()

    def stop(self) -> None:
        """Wait for the thread's end."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._seconds):
            try:
                self._book.refresh(self._read())
            except Exception:  # noqa: BLE001, S112 - a store that is away for a moment: the tokens stay as they were
                continue
