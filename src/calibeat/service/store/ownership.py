"""Which worker writes which streams: partitions of the streams, shared out by advisory locks of PostgreSQL.

A partition belongs to the session that holds its lock. It is the session that writes, so nobody can write for a worker
whose session is gone: its locks went with it, and so did its transaction. The list of all locks, `pg_locks`, is also
the list of the workers that live and of what each of them has. No table is needed.
"""

from __future__ import annotations

import hashlib
import secrets
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from calibeat.errors import InvalidInput

PARTITIONS = 64
NOBODY = 0  # the number of a worker that is not there
OFTEN, SOON = 0.5, 0.05  # seconds between two looks at the locks: as a rule, and while partitions change hands
PATIENCE = 3.0  # seconds in which the sessions of a service that was killed may end

# Classes of locks with two numbers. The locks of `postgres.py` have one number, so they are others.
_GROUP, _PARTITION, _WORKER = 0x63616C69, 0x63616C6A, 0x63616C6B
_HELD = (
    "SELECT classid::bigint, objid::bigint, pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 2 "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND classid::bigint = ANY(%s)"
)
# The partition of a stream in SQL: the same as `partition`. 63 is PARTITIONS - 1.
IN_SQL = "(get_byte(sha256(convert_to(s.name, 'UTF8')), 0) & 63)"

Run = Callable[..., Any]  # runs a statement with its arguments -> a cursor


@lru_cache(maxsize=1 << 17)
def partition(stream: str) -> int:
    """The partition of a stream, from 0 to 63.

    >>> partition("paris"), partition("rome")
    (22, 40)
    """
    return hashlib.sha256(stream.encode()).digest()[0] % PARTITIONS


@dataclass(frozen=True)
class Member:
    """One worker of a group of workers that share a store.

    Group 0 locks rows, and anybody may join it, from any machine. The workers of any other group own partitions and
    send each other what they do not own. They are of one service, for they must reach each other.
    """

    group: int
    number: int = NOBODY

    @classmethod
    def of(cls, folder: Path) -> Member:
        """A new worker of those that meet in a folder of this machine."""
        found = hashlib.sha256(f"{socket.gethostname()}:{folder}".encode()).digest()
        return cls(1 + int.from_bytes(found[:4], "big") % (2**31 - 1), 1 + secrets.randbelow(2**31 - 1))


ROWS = Member(0)


def join(run: Run, member: Member, alone: Callable[[], Any]) -> None:
    """Join a group, or raise: a store has one group at a time. `alone` is a transaction that one session has at once.

    The lock of the group goes with the session.
    """
    end = time.monotonic() + PATIENCE
    while True:
        with alone():
            others = {number for _, number, _ in run(_HELD, ([_GROUP],)).fetchall()} - {member.group}
            if not others:
                run("SELECT pg_advisory_lock_shared(%s, %s)", (_GROUP, member.group))
                return
        if time.monotonic() > end:
            break
        time.sleep(SOON)
    if member == ROWS:
        raise InvalidInput(
            "store must be shared by rows to be used by several, got one that a service with --sharing own writes"
        )
    raise InvalidInput(
        "store must be served by one service with --sharing own, got one that others write: stop them, "
        "or use --sharing rows for all of them"
    )


class Ownership:
    """What a worker owns, and what the others do. All calls but `hurry` come from the thread that writes."""

    def __init__(self, run: Run, member: Member) -> None:
        self._run, self.number = run, member.number
        self.mine: frozenset[int] = frozenset()
        self.owners: tuple[int, ...] = (NOBODY,) * PARTITIONS  # of each partition, the number of its worker
        self.on_change: Callable[[], None] = lambda: None
        self._is_known = False
        self._next = 0.0

    def wait(self) -> float:
        """Seconds until the next look."""
        return max(0.0, self._next - time.monotonic())

    def hurry(self) -> None:
        """Look before the next group. Any thread may call it."""
        self._next = 0.0

    def owns(self, streams: Iterable[str]) -> bool:
        """Whether all of these streams are in partitions of this worker."""
        mine = self.mine
        return all(partition(stream) in mine for stream in streams)

    def turn(self) -> frozenset[int]:
        """Between two groups: give partitions to workers that have too few, take free ones -> those given away."""
        if self.wait():
            return frozenset()
        if not self._is_known:  # not before the first turn: from now on the others leave a share to this worker
            self._run("SELECT pg_advisory_lock(%s, %s)", (_WORKER, self.number))
            self._is_known = True
        workers, holders = self._look()
        share, order = self._share(workers)
        given = frozenset([p for p in order if p in self.mine][share:])
        if given:
            self._run(f"SELECT pg_advisory_unlock({_PARTITION}, p) FROM unnest(%s::int[]) AS p", (list(given),))  # noqa: S608
        free = [p for p in order if p not in holders]
        taken = self._take(free[: max(0, share - len(self.mine))])
        self.mine = (self.mine - given) | taken
        holders = {p: pid for p, pid in holders.items() if p not in given and p not in self.mine}
        self._tell(
            tuple(self.number if p in self.mine else workers.get(holders.get(p, 0), NOBODY) for p in range(PARTITIONS))
        )
        is_settled = len(holders) + len(self.mine) == PARTITIONS and len(self.mine) == share
        self._next = time.monotonic() + (OFTEN if is_settled else SOON)
        return given

    def _look(self) -> tuple[dict[int, int], dict[int, int]]:
        """The workers by the process of their session, and the processes that hold partitions."""
        workers, holders = {}, {}
        for kind, number, pid in self._run(_HELD, ([_WORKER, _PARTITION],)).fetchall():
            if kind == _WORKER:
                workers[pid] = number
            else:
                holders[number] = pid
        return workers, holders

    def _share(self, workers: dict[int, int]) -> tuple[int, list[int]]:
        """How many partitions this worker should have, and in which order it takes them: each begins elsewhere."""
        rank, count = sorted(workers.values()).index(self.number), len(workers)
        first, end = rank * PARTITIONS // count, (rank + 1) * PARTITIONS // count
        return end - first, [*range(first, PARTITIONS), *range(first)]

    def _take(self, wanted: list[int]) -> frozenset[int]:
        if not wanted:
            return frozenset()
        rows = self._run(f"SELECT p, pg_try_advisory_lock({_PARTITION}, p) FROM unnest(%s::int[]) AS p", (wanted,))  # noqa: S608
        return frozenset(p for p, is_taken in rows.fetchall() if is_taken)

    def _tell(self, owners: tuple[int, ...]) -> None:
        if owners != self.owners:
            self.owners = owners
            self.on_change()
