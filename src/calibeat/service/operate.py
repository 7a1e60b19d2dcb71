"""What is done to a store that no service writes to: replay, check, prune. The command line calls these."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from calibeat.bank.bank import Bank

from . import replay
from .replay import Replay
from .settings import Settings
from .setup import bank_of, check_described
from .store import open_connection
from .store.schema import get_meta

Step = Callable[..., None]


def _nothing(*_: Any) -> None:
    """A step where nobody looks."""


def replay_check(url: str, step: Step = _nothing) -> Replay:
    """Replay a store and compare every bit."""
    connection = open_connection(url)
    try:
        connection.begin_reading()
        meta = get_meta(connection)
        check_described(meta)
        return replay.check(connection, lambda: bank_from(meta), step)
    finally:
        connection.close()


def bank_from(meta: dict[str, str], method: str | None = None) -> Bank:
    """A bank as the store's own, without its streams."""
    monitor = json.loads(meta.get("monitor", "null"))
    return bank_of(method or meta["method"], int(meta["seed"]), Settings(monitor=monitor))
