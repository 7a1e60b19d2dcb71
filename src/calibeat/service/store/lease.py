"""Which process writes a PostgreSQL: one at a time, by a lease in a row of the database.

The row has the number of the present holder, the epoch, and a time until which nobody else may take it. A commit first
locks the row and checks the epoch, in its own transaction. So a process that lost the lease, such as one that was
stopped and wakes up, writes nothing: the epoch decides, not the clocks. The time only says when a standby may take
over. All times are those of the database's clock.
"""

from __future__ import annotations

import os
import socket
import time
from typing import Any

from calibeat.service.store.types import StoreInUse

LEASE = 3.0  # seconds after which a standby takes over from a leader that says nothing
RENEWAL = 1.0  # seconds from one renewal to the next
LOOK = 0.1  # seconds between two looks at a lease that is not ours yet
STANDBY_LOOK = 0.5  # the same for a standby, which may wait for weeks

_MAKE = (
    "CREATE TABLE IF NOT EXISTS leader (epoch BIGINT NOT NULL, holder TEXT NOT NULL, until TIMESTAMPTZ NOT NULL)",
    "INSERT INTO leader SELECT 0, '', '-infinity' WHERE NOT EXISTS (SELECT 1 FROM leader)",
)
# A lease that ends further ahead than any lease can was given before the server's clock was set back.
_IS_FREE = "(until <= clock_timestamp() OR until > clock_timestamp() + 2 * ? * interval '1 second' OR epoch = ?)"
# A transaction that holds the row locked holds the lease, too, however long it takes: nobody waits for it here.
_TAKE = (
    "UPDATE leader SET epoch = epoch + 1, holder = ?, until = clock_timestamp() + ? * interval '1 second' "  # noqa: S608
    f"WHERE epoch = (SELECT epoch FROM leader WHERE {_IS_FREE} FOR UPDATE SKIP LOCKED) RETURNING epoch"
)
_RENEW = "UPDATE leader SET until = clock_timestamp() + ? * interval '1 second'"


class NotLeader(StoreInUse):
    """Another process writes the store. Nothing of what this one wanted to write was written."""

    def __init__(self, sentence: str, holder: str) -> None:
        super().__init__(sentence)
        self.holder = holder


class Lease:
    """The right to write a store. `epoch` is that of the latest `take`."""

    def __init__(self, epoch: int = -1) -> None:
        self.epoch = epoch  # one that this process had before can be taken again at once
        self._renewed = 0.0

    def take(self, connection: Any) -> None:
        """Take the lease, outside of any transaction; wait for one that nobody renews.

        Raises
        ------
        NotLeader : another process holds it, and lives.
        """
        end, seen = time.monotonic() + 2.0 * LEASE, None
        while True:
            asked = time.monotonic()
            if rows := connection.all(_TAKE, (_name(), LEASE, LEASE, self.epoch)):
                self.epoch, self._renewed = rows[0][0], asked
                return
            ((holder, until),) = connection.all("SELECT holder, until::text FROM leader")
            if seen not in {None, until} or asked > end:
                raise NotLeader(f"store must be used by one service at a time, got one that {holder} writes", holder)
            seen = until
            time.sleep(LOOK)

    def check(self, connection: Any) -> None:
        """At the begin of a transaction: the lease is ours, and until its end nobody else can take it.

        Raises
        ------
        NotLeader : another process has taken it. Roll back.
        """
        # A lock makes no new version of the row. An update at every commit would, and all of them would stay for as
        # long as somebody reads at one moment, such as a backup.
        if not connection.all("SELECT 1 FROM leader WHERE epoch = ? FOR UPDATE", (self.epoch,)):
            ((holder,),) = connection.all("SELECT holder FROM leader")
            raise NotLeader(
                f"store must be written by the service that leads, got one that {holder} has taken over", holder
            )

    def renew(self, connection: Any) -> None:
        """At the end of such a transaction, right before its commit: renew the lease, if it is time."""
        if self.is_due:
            self._renewed = time.monotonic()
            connection.run(_RENEW, (LEASE,))

    @property
    def is_due(self) -> bool:
        """Whether it is time to renew it, also without anything to write."""
        return time.monotonic() >= self._renewed + RENEWAL

    def release(self, connection: Any) -> None:
        """Let a standby take over at once."""
        connection.run("UPDATE leader SET until = '-infinity' WHERE epoch = ?", (self.epoch,))


def make(connection: Any) -> None:
    """Make the row, inside a transaction, where there is none."""
    for statement in _MAKE:
        connection.run(statement)


def is_free(connection: Any) -> bool:
    """Whether the leader has ended, or says nothing any more."""
    return bool(connection.all(f"SELECT 1 FROM leader WHERE {_IS_FREE}", (LEASE, -1)))  # noqa: S608 - our own text


def _name() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"
