"""The whole store in a few numbers, kept with every group, so that nobody has to add up all streams.

Table `total` has a row for each writer. A group adds to its writer's row in its own transaction: the sums are those of
the streams at every moment, and two processes never wait for each other's row. Whoever reads adds up the rows.
"""

from __future__ import annotations

from math import isclose
from typing import Any

import numpy as np

COUNTS = ("streams", "events", "outcomes", "pending", "held", "expired", "alarms", "judged")
# Of all learnt outcomes; the errors are those of the streams, times the outcomes that each stream has.
FLOATS = ("raw_log_loss", "log_loss", "error", "raw_error")
COLUMNS = (*COUNTS, *FLOATS)
ADD = f"UPDATE total SET {', '.join(f'{name} = {name} + ?' for name in COLUMNS)} WHERE writer = ?"  # noqa: S608
BEGIN = "INSERT INTO total (writer, unranked) VALUES (?, 1) ON CONFLICT (writer) DO UPDATE SET unranked = 1"
READ = f"SELECT {', '.join(f'coalesce(sum({name}), 0)' for name in COLUMNS)} FROM total"  # noqa: S608
WRITERS = 64  # most rows; processes beyond them share one
NEAR = 1e-6  # sums of floating-point numbers depend on their order

# Of the table of streams, in the order of `COUNTS` and then the errors of `FLOATS`.
_SUMS = (
    "SELECT count(*), coalesce(sum(events), 0), coalesce(sum(outcomes), 0), coalesce(sum(pending), 0), "
    "coalesce(sum(held), 0), coalesce(sum(expired), 0), coalesce(sum(alarms), 0), "
    "coalesce(sum(CASE WHEN error IS NULL THEN 0 ELSE outcomes END), 0), coalesce(sum(error * outcomes), 0.0), "
    "coalesce(sum(raw_error * outcomes), 0.0) FROM stream WHERE events > 0"
)
_LOSSES = "SELECT substr(sums, 1, 16) FROM stream WHERE outcomes > 0"  # the first two sums of a stream
_AT_ONCE = 10_000


def stored(connection: Any) -> dict[str, float]:
    """The totals that are kept."""
    return named(connection.all(READ)[0])


def named(row: Any) -> dict[str, float]:
    """A row of `READ` by the names of its columns."""
    return {name: int(value) if name in COUNTS else float(value) for name, value in zip(COLUMNS, row, strict=True)}


def counted(connection: Any) -> dict[str, float]:
    """The same, added up from all streams."""
    found = connection.all(_SUMS)[0]
    losses, part = np.zeros(2), list[bytes]()
    for (sums,) in connection.each(_LOSSES):
        part.append(bytes(sums))
        if len(part) == _AT_ONCE:
            losses += np.frombuffer(b"".join(part)).reshape(-1, 2).sum(axis=0)
            part = []
    losses += np.frombuffer(b"".join(part)).reshape(-1, 2).sum(axis=0)
    return named((*found[: len(COUNTS)], *losses.tolist(), *found[len(COUNTS) :]))


def recount(connection: Any) -> None:
    """Keep what all streams add up to, after a command that has changed them; nobody else may write meanwhile."""
    connection.run("DELETE FROM total")
    connection.run("INSERT INTO total (writer) VALUES (0)")
    connection.run(ADD, (*counted(connection).values(), 0))


def problems(connection: Any) -> list[str]:
    """What is wrong with the totals, as sentences."""
    kept, found = stored(connection), counted(connection)
    return [
        f"the total of {name} must be that of the streams, {found[name]:g}, got {kept[name]:g}"
        for name in COLUMNS
        if kept[name] != found[name]
        and (name in COUNTS or not isclose(kept[name], found[name], rel_tol=NEAR, abs_tol=NEAR))
    ]
