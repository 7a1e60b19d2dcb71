"""Tokens: made once, kept as hashes, looked up again every second so that a revoked one stops working."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
from collections.abc import Callable, Iterable
from typing import Any, Literal

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


class TokenBook:
    """The tokens that are valid now. `refresh` replaces them; look-ups never touch the store.

    A store that never had a token needs none. The first one closes the service, and nothing opens it again while it
    runs: revoking a token must keep its owner out.
    """

    def __init__(self, *, open_without_tokens: bool) -> None:
        self.is_open = open_without_tokens  # there never was a token, and only this machine can connect
        self._scopes: dict[bytes, list[tuple[bytes, Scope]]] = {}

    def refresh(self, rows: Iterable[tuple[bytes, Scope | None]]) -> None:
        """Take over the hashes and scopes of the store; a revoked token has no scope."""
        scopes: dict[bytes, list[tuple[bytes, Scope]]] = {}
        for digest, scope in rows:
            self.is_open = False
            if scope is not None:
                scopes.setdefault(digest[:8], []).append((digest, scope))
        self._scopes = scopes

    @property
    def scopes(self) -> set[Scope]:
        """The scopes for which there are tokens."""
        return {scope for tokens in self._scopes.values() for _, scope in tokens}

    @property
    def who_may_connect(self) -> str:
        """What must be known when a service starts; nothing if there are tokens."""
        if self.is_open:
            return "; no token yet, so only this machine can connect"
        return "" if self._scopes else "; every token is revoked, so nobody can connect"

    def scope_of(self, token: bytes) -> Scope | None:
        """The scope of a token; None for one that is unknown or revoked."""
        digest = hashed(token)
        for known, scope in self._scopes.get(digest[:8], ()):
            if hmac.compare_digest(known, digest):
                return scope
        return None

    def allows(self, authorization: bytes | None, wanted: Scope) -> bool | None:
        """True: go on. False: the token is valid but for reading only. None: no valid token.

        >>> book = TokenBook(open_without_tokens=True)
        >>> book.allows(None, "write")
        True
        >>> book.refresh([(hashed("calibeat_secret"), "read")])
        >>> book.allows(None, "read"), book.allows(b"Bearer calibeat_secret", "read")
        (None, True)
        >>> book.allows(b"bearer calibeat_secret", "write")
        False
        """
        if self.is_open:
            return True
        if authorization is None or authorization[:7].lower() != b"bearer ":
            return None
        return self.allows_token(authorization[7:].strip(), wanted)

    def allows_token(self, token: bytes, wanted: Scope) -> bool | None:
        """As `allows`, for the token alone."""
        scope = self.scope_of(token)
        return None if scope is None else scope == "write" or wanted == "read"


class Refresher:
    """A thread that reads the tokens every second."""

    def __init__(self, book: TokenBook, read: Callable[[], Any], seconds: float = 1.0) -> None:
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
