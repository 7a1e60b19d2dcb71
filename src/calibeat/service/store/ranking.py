"""Streams in every order in which they are listed, from indexes.

Almost every event changes the place of its stream in some order. Indexes over the table of streams would make every
group up to twice as expensive. So the places are in a table of their own, which the writer brings up to date in pieces,
about once a second, for the streams that were written since: an order is up to a second old, or more while many hundred
streams are written in every second. The numbers that a list shows are not taken from here.

Keys are smallest first, and streams with equal keys are in the order of their names, so that one comparison of rows
finds the next page.
"""

from __future__ import annotations

from typing import Any

ENOUGH = 100  # outcomes, below which a calibration error is mostly luck
EVERY = 1.0  # seconds between two pieces at least, and
SHARE = 0.01  # of the writer's time at most; or
QUIET = 0.1  # seconds between them, if nobody sends anything meanwhile
AT_ONCE = 250  # streams in a piece
BEFORE = -1e300  # every key

# Order -> its keys. "attention" is what miscalibration costs: outcomes x squared error, as the Brier score counts it.
KEYS: dict[str, tuple[str, ...]] = {
    "events": ("events",),
    "pending": ("pending",),
    "alarms": ("alarms",),
    "error": ("error",),
    "recent": ("recent",),
    "attention": ("cost", "pending"),
    "name": (),
}
_VALUES = {
    "version": "version",
    "events": "-events",
    "pending": "-pending",
    "alarms": "-alarms",
    "error": f"CASE WHEN error IS NULL THEN 4 WHEN outcomes >= {ENOUGH} THEN -error ELSE 2 - error END",
    "recent": "-coalesce(last_time, 0)",
    "cost": "-coalesce(error * error * outcomes, 0)",
}
_INSERT = (
    f"INSERT INTO ranking (stream, name, {', '.join(_VALUES)}) "  # noqa: S608 - our own columns
    f"SELECT number, name, {', '.join(_VALUES.values())} FROM stream WHERE events > 0 AND "
)
# Where two processes bring the same stream up to date, the later state stays.
_UPDATE = (
    f" ORDER BY number ON CONFLICT (stream) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in _VALUES)} "
    "WHERE ranking.version < excluded.version"
)


def statement(which: str) -> str:
    """The statement that brings the streams of a condition up to date, in the order of their numbers."""
    return f"{_INSERT}{which}{_UPDATE}"


def refresh(connection: Any) -> None:
    """Bring all streams up to date: after a process that had no time to, or a command that changed streams."""
    connection.run(
        statement("NOT EXISTS (SELECT 1 FROM ranking r WHERE r.stream = number AND r.version = stream.version)")
    )


def is_whole(connection: Any) -> bool:
    """Whether all processes that have written have also brought their streams up to date."""
    return not connection.all("SELECT 1 FROM total WHERE unranked = 1")


def first_key(order: str) -> tuple[Any, ...]:
    """What comes before all streams."""
    return (*(BEFORE for _ in KEYS[order]), "")


def behind(order: str) -> tuple[str, str]:
    """The condition for streams behind a key, of the columns of `r`; and the order, with the same columns."""
    columns = ", ".join(f"r.{key}" for key in (*KEYS[order], "name"))
    marks = ", ".join("?" for _ in (*KEYS[order], "name"))
    return f"({columns}) > ({marks})", columns
