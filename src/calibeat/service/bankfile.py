"""The states of a store as a bank file, and back: learn from history elsewhere, serve from here, with the same bits.

Only states travel. Events, receipts that wait for their outcome, roll-ups and monitors stay where they are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from calibeat.core.layout import N
from calibeat.core.method import name_of
from calibeat.core.stats import EVENTS, LAST, LOSSES
from calibeat.errors import InvalidInput
from calibeat.hosts.bank import Bank, rows_in
from calibeat.hosts.bankfile import MAGIC
from calibeat.hosts.rows import Matrix

from .events import bad_name
from .settings import Settings
from .setup import bank_of, check_described, claim_meta
from .store import open_connection, owned
from .store.schema import get_meta
from .store.types import BRIER, LOG_LOSS, RAW_BRIER, RAW_LOG_LOSS, SUMS


def is_bank_file(path: Path) -> bool:
    """Whether this is a file, and begins as banks do."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def export_bank(url: str, path: Path) -> int:
    """Write the states of all streams as a bank file, whole or not at all -> how many. A service may run meanwhile."""
    connection = open_connection(url)
    try:
        connection.begin_reading()
        meta = get_meta(connection)
        check_described(meta)
        found = connection.all("SELECT name, state FROM stream WHERE state IS NOT NULL ORDER BY number")
    finally:
        connection.close()
    bank = bank_of(meta["method"], int(meta["seed"]), Settings())
    if found:
        rows = np.frombuffer(bytearray(b"".join(bytes(state) for _, state in found))).reshape(len(found), -1)
        rows_in(bank, [name for name, _ in found], rows, seen=True)
    bank.save(path)
    return len(found)


def import_bank(url: str, path: Path, method: str | None = None) -> int:
    """Put the rows of a bank file into a store as streams, all or none -> how many. No service may run meanwhile.

    A store that is new gets the method and the seed of the bank. The streams go on from where the keys were. Replays
    start from these rows, as they do after pruning.
    """
    bank = Bank.load(path, threads=1)
    name, streams = _check_bank(bank, path, method), [str(key) for key in bank]
    rows = bank.rows(list(bank))
    rows[:, bank.method.width + LAST] = 0.0
    with owned(url, create=True) as connection:
        claim_meta(connection, name, bank.seed, None)
        meta = get_meta(connection)
        check_described(meta)
        if (meta["method"], int(meta["seed"])) != (name, bank.seed):
            raise InvalidInput(
                f"bank must have the method and the seed of the store, {meta['method']!r} and {meta['seed']}, "
                f"got {name!r} and {bank.seed} - in {path}"
            )
        _insert(connection, streams, rows, rows[:, bank.method.width :])
    return len(streams)


def _check_bank(bank: Bank, path: Path, wanted: str | None) -> str:
    """The name of its method, if a store can go on with it."""
    name = name_of(bank.method)
    if name is None:
        raise InvalidInput(f"bank must be of a method that has a name, got {bank.method!r:.200} - in {path}")
    if wanted is not None and wanted.lower() != name:
        raise InvalidInput(f"method must be that of the bank, {name!r}, got {wanted!r}")
    if bank.method.draws and not (bank.independent and all(isinstance(key, str) for key in bank)):
        raise InvalidInput(
            f"bank of {name} must draw for each key by itself (independent=True) and have keys of text, "
            f"got another, whose draws a service cannot go on with - in {path}"
        )
    for key in bank:
        problem = bad_name("key", str(key))
        if problem:
            raise InvalidInput(f"{problem} - in {path}")
    return name


def _insert(connection: Any, streams: list[str], rows: Matrix, stats: Matrix) -> None:
    """New streams, whose base is these rows. A stream that has events already is refused."""
    there = {name for (name,) in connection.all("SELECT name FROM stream WHERE events > 0")}
    taken = next((stream for stream in streams if stream in there), None)
    if taken is not None:
        raise InvalidInput(f"keys must be new to the store, got {taken!r}, which has events there")
    sums = np.zeros((len(rows), SUMS))
    sums[:, [RAW_LOG_LOSS, LOG_LOSS, RAW_BRIER, BRIER]] = stats[:, list(LOSSES.values())]
    events, outcomes = stats[:, EVENTS].astype(int), rows[:, N].astype(int)
    # Numbers of operations begin behind those that the rows have seen.
    columns = "name, seq, events, outcomes, sums, state, base_seq, base_events, base"
    connection.run_many(
        f"INSERT INTO stream ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) "  # noqa: S608 - our own columns
        "ON CONFLICT (name) DO UPDATE SET seq = excluded.seq, events = excluded.events, outcomes = excluded.outcomes, "
        "sums = excluded.sums, state = excluded.state, base_seq = excluded.base_seq, "
        "base_events = excluded.base_events, base = excluded.base, version = stream.version + 1",
        [
            (stream, made + learnt, made, learnt, known.tobytes(), row.tobytes(), made + learnt, made, row.tobytes())
            for stream, made, learnt, known, row in zip(
                streams, events.tolist(), outcomes.tolist(), sums, rows, strict=True
            )
        ],
    )
