"""A store and the settings it is opened with: what the replay depends on is written once, and must stay."""

from __future__ import annotations

import json
from math import nan

from calibeat._util.check import shown
from calibeat.core.jit import compiling_at_once
from calibeat.core.method import Method, method_named
from calibeat.errors import InvalidInput, SnapshotMismatch
from calibeat.hosts.bank import Bank
from calibeat.monitor.monitor import Monitor

from .rollups import Books
from .settings import Settings
from .store import Store
from .store.schema import Connection, get_meta, set_meta
from .store.types import SUMS

DEFAULT = "auto"


def settle_meta(store: Store, settings: Settings) -> tuple[str, int]:
    """The method and the seed of a store; a new store takes those of the settings."""
    meta = get_meta(store.connection)
    if "method" not in meta:
        method, seed = (settings.method or DEFAULT).lower(), settings.seed or 0
        _check_method(method)
        claim_meta(store.connection, method, seed, settings.monitor)
        meta = get_meta(store.connection)  # another process may have been first
    elif json.loads(meta.get("monitor", "null")) != settings.monitor:
        # Monitors that begin, end or change in the middle cannot be replayed.
        set_meta(store.connection, "monitor", json.dumps(settings.monitor))
        set_meta(store.connection, "monitor_whole", "0")
    method, seed = meta["method"], int(meta["seed"])
    check_described(meta)
    if settings.method is not None and settings.method.lower() != method:
        raise InvalidInput(
            f"method must be that of the store, {method!r}, got {settings.method!r} - "
            f"`calibeat store replay --method {settings.method}` moves the store to it"
        )
    if settings.seed is not None and settings.seed != seed:
        raise InvalidInput(f"seed must be that of the store, {seed}, got {settings.seed}")
    return method, seed


def claim_meta(connection: Connection, method: str, seed: int, monitor: float | None) -> None:
    """What a replay needs to know, in one statement; whoever comes second changes nothing."""
    known = {"method": method, "seed": str(seed), "described": description_of(method), "monitor": json.dumps(monitor)}
    connection.run(
        "INSERT INTO meta (name, value) VALUES (?, ?), (?, ?), (?, ?), (?, ?) ON CONFLICT (name) DO NOTHING",
        [part for pair in known.items() for part in pair],
    )


def description_of(method: str) -> str:
    """A method with all its numbers, so that a preset that has changed is noticed."""
    return repr(method_named(method))


def check_described(meta: dict[str, str]) -> None:
    """Raise if the preset of this name is not the one that the store was made with."""
    if meta.get("described") != description_of(meta["method"]):
        raise SnapshotMismatch(
            f"store must be used with the {meta['method']!r} that it was made with, got one with other numbers - "
            f"`calibeat store replay --method {meta['method']}` makes its state anew"
        )


def _check_method(name: str) -> Method:
    method = method_named(name)
    if method.needs_history:
        raise InvalidInput(f"method must be one that lives in a row, such as auto or tops, got {shown(name)}")
    return method


def bank_of(method: str, seed: int, settings: Settings) -> Bank:
    """The bank of a store; draws of a hedging method are by stream and event number."""
    monitor = None if settings.monitor is None else Monitor(arl=settings.monitor)
    chosen = _check_method(method)
    return Bank(chosen, seed, independent=chosen.draws, monitor=monitor)


def warm(bank: Bank) -> None:
    """Load the compiled kernels before the first request needs them."""
    with compiling_at_once():
        keys = [str(key) for key in range(100)]
        made = Bank(bank.method, bank.seed, independent=bank.independent)
        receipts = made.fold(keys, [0.5] * 100, [nan] * 100).receipts
        made.fold(keys, [nan] * 100, [1.0] * 100, receipts)
        made.set_rows(keys, made.rows(keys))
        one = {"times": [0.0], "scores": [0.5], "forecasts": [0.5], "outcomes": [1.0], "ages": [0.0]}
        Books(streams=[0], **one, numbers=[0], sums=[bytes(8 * SUMS)])
