"""Columns of a frame by their roles, as numbers that the workers read; and what is wrong with a row, as a sentence.

All of it are expressions of Spark's own, so that the same rules hold for jobs that stop and for rows put aside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from calibeat._util.extras import LazyModule
from calibeat._util.times import check_age
from calibeat._util.words import did_you_mean
from calibeat.errors import InvalidInput

from .session import check_frame, check_libraries

pa = LazyModule("pyarrow")
F = LazyModule("pyspark.sql.functions")

REASON, SCORE, OUTCOME, TIME, ARRIVAL, ROW, PLACE = (
    f"__calibeat_{name}" for name in ("reason", "score", "outcome", "time", "arrival", "row", "place")
)
OWN = (REASON, SCORE, OUTCOME, TIME, ARRIVAL, ROW, PLACE)

# A place is one whole number to sort by: the highest 7 bits are the group of the key, all others come from the order.
GROUP_BIT = 57
_EXACT = 1 << 54  # orders up to here have places of their own; beyond them, 256 neighbours share one

_WHOLE = ("byte", "short", "integer", "long")
_NUMBERS = (*_WHOLE, "float", "double", "decimal")
_MOMENTS = ("timestamp", "timestamp_ntz", "date")
TIMESTAMPS = (("timestamp", "timestamp_ntz"), "timestamps")
# By role: the types that a column may have, and what it then holds.
_NAMES = ((*_WHOLE, "string"), "whole numbers or strings")
_TIMES = ((*_MOMENTS, *_NUMBERS), "times or numbers")
_HOLDS = {
    "key": _NAMES,
    "id": _NAMES,
    "score": (_NUMBERS, "numbers"),
    "outcome": ((*_NUMBERS, "boolean"), "0 and 1, or booleans"),
    "time": _TIMES,
    "outcome_time": _TIMES,
}


@dataclass(frozen=True)
class Roles:
    """Which column is what. `order` sorts the events of a key; with `arrival` outcomes are late."""

    key: str
    score: str
    outcome: str
    order: tuple[str, ...]
    time: str | None = None
    arrival: str | None = None

    @classmethod
    def of(cls, frame: Any, key: Any, score: Any, outcome: Any, order: Any, time: Any, arrival: Any) -> Roles:
        """As given by name, each checked against the frame and its type."""
        if arrival is not None and time is None:
            raise InvalidInput("outcome_time needs time to be compared with, got none")
        orders = [order] if isinstance(order, str) else list(order) if isinstance(order, Sequence) else [order]
        if not orders:
            raise InvalidInput("order must name one column at least, got none")
        check_names(frame)
        named = [("key", key), ("score", score), ("outcome", outcome), *(("order", name) for name in orders)]
        named += [(role, name) for role, name in (("time", time), ("outcome_time", arrival)) if name is not None]
        for role, name in named:
            check_column(frame, role, name)
        return cls(key, score, outcome, tuple(orders), time, arrival)


def check_names(frame: Any) -> None:
    """Raise unless each name stands for one column, and none is our own."""
    names = frame.columns
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidInput(f"columns must have different names, got {twice!r} twice")
    taken = next((name for name in ("forecast", "judged", *OWN) if name in names), None)
    if taken is not None:
        raise InvalidInput(f"columns must not be named {taken!r}, which is the result's, got one; rename it")


def check_column(frame: Any, role: str, name: Any, holds: tuple[tuple[str, ...], str] | None = None) -> None:
    """Raise unless the frame has a column of that name, of a type that holds what the role asks for."""
    if not isinstance(name, str):
        raise InvalidInput(f"{role} must be the name of a column, got {type(name).__name__} {name!r:.60}")
    if name not in frame.columns:
        raise InvalidInput(f"{role} must be a column of the frame, got {name!r}{did_you_mean(name, frame.columns)}")
    kind, (kinds, wanted) = frame.schema[name].dataType.typeName(), holds or _HOLDS.get(role, ((), ""))
    if kinds and kind not in kinds:
        raise InvalidInput(f"{role} column must hold {wanted}, got {kind} - in column {name!r}")


def check_one_kind(*places: tuple[Any, str, str]) -> bool:
    """Whether keys are strings, which they must be in both places or in none: a frame, the column, what it is."""
    kinds = [frame.schema[key].dataType.typeName() for frame, key, _ in places]
    if (kinds[0] == "string") != (kinds[1] == "string"):
        got = " and ".join(f"{kind} in {what}" for kind, (_, _, what) in zip(kinds, places, strict=True))
        raise InvalidInput(f"keys must be of one kind, got {got}")
    return bool(kinds[0] == "string")


def duration(name: str, given: Any, least: int = 0) -> int | None:
    """A time such as 30d in microseconds, if there is one; no number of events: those of all keys have no order."""
    age, is_time = (None, True) if given is None else check_age(name, given)
    if not is_time or (age is not None and age < least):
        raise InvalidInput(f"{name} must be a time such as 30d, got {given!r}")
    return age


def in_tables(batches: Iterator[Any], size: int, cut: Callable[[Any], int] = len) -> Iterator[Any]:
    """Batches as tables of at least `size` rows, each up to where `cut` says (0: not yet); the last may be shorter."""
    waiting: list[Any] = []
    count = 0
    for batch in batches:
        waiting.append(batch)
        count += batch.num_rows
        if count >= size:
            table = pa.Table.from_batches(waiting).combine_chunks()
            end = cut(table)
            if end:
                yield table.slice(0, end)
            waiting, count = table.slice(end).to_batches(), len(table) - end
    if count:
        yield pa.Table.from_batches(waiting).combine_chunks()


def read(frame: Any, roles: Roles) -> Any:
    """The frame with our own columns: what is wrong with each row (null if nothing is), and its numbers."""
    columns = {SCORE: F.col(quoted(roles.score)).cast("double"), OUTCOME: F.col(quoted(roles.outcome)).cast("double")}
    if roles.time is not None:
        columns[TIME] = microseconds(frame, roles.time)
    if roles.arrival is not None:
        columns[ARRIVAL] = microseconds(frame, roles.arrival)
    numbers = frame.select("*", *(column.alias(name) for name, column in columns.items()))
    return numbers.withColumn(REASON, _reason(roles))


def numbered(frame: Any, roles: Roles) -> Any:
    """The frame as the workers need it: as `read`, without numbers that they can take from the given columns."""
    given = {SCORE: roles.score, OUTCOME: roles.outcome}
    return read(frame, roles).drop(
        *(own for own, name in given.items() if frame.schema[name].dataType.typeName() != "decimal")
    )


def place(frame: Any, roles: Roles) -> Any:
    """Where a row stands in its partition: by group of keys, then by the first order. None if its type forbids that.

    Spark sorts by one whole number several times faster than by two columns. Rows of a state have no order: they come
    first.
    """
    kinds = [frame.schema[name].dataType.typeName() for name in roles.order]
    if kinds[0] not in (*_WHOLE, "timestamp") or not {*kinds} <= {*_NUMBERS, *_MOMENTS, "boolean", "string"}:
        return None
    column = F.col(quoted(roles.order[0]))
    order = F.unix_micros(column) if kinds[0] == "timestamp" else column.cast("long")
    inner = F.least(F.greatest(order, F.lit(-_EXACT)), F.lit(_EXACT))
    rising = inner + F.shiftright(order - inner, 8) + F.lit(1 << GROUP_BIT - 1)
    if ROW in frame.columns:
        rising = F.when(F.col(ROW).isNotNull(), 0).otherwise(rising)
    # Not a sum: Spark may add in another order, and overflow.
    return F.shiftleft(F.xxhash64(quoted(roles.key)), GROUP_BIT).bitwiseOR(rising)


def quoted(name: str) -> str:
    """The name of a column as Spark takes it, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


def microseconds(frame: Any, name: str) -> Any:
    """A column of times as whole microseconds; numbers are seconds."""
    column = F.col(quoted(name))
    if frame.schema[name].dataType.typeName() in _MOMENTS:
        return F.unix_micros(column.cast("timestamp"))
    return F.round(column.cast("double") * 1e6).cast("long")


def _reason(roles: Roles) -> Any:
    score, y = F.col(SCORE), F.col(OUTCOME)
    checks = [(F.col(quoted(roles.key)).isNull(), roles.key, "key must be there")]
    checks += [(F.col(quoted(name)).isNull(), name, "order must be there") for name in roles.order]
    checks.append((score.isNull() | ~score.between(0.0, 1.0), roles.score, "score must be in [0, 1]"))
    wrong = y.isNotNull() & ~y.isin(0.0, 1.0)
    checks.append((wrong, roles.outcome, "outcome must be 0 or 1, or null where it is not known"))
    if roles.time is not None:
        checks.append((F.col(TIME).isNull(), roles.time, "time must be there"))
    if roles.arrival is not None:
        arrival, time = F.col(ARRIVAL), F.col(TIME)
        checks += [
            (arrival.isNull() & y.isNotNull(), roles.arrival, "outcome time must be there with an outcome"),
            (arrival.isNotNull() & y.isNull(), roles.outcome, "outcome must be there with its time"),
            (arrival < time, roles.arrival, "outcome time must not be before the time of its event"),
        ]
    return first_wrong(checks)


def first_wrong(checks: list[tuple[Any, str, str]]) -> Any:
    """A sentence of what is wrong with a row, null if nothing is. Of each check: wrong or not, its column, the rule."""
    sentence = F.lit(None).cast("string")
    for wrong, name, rule in reversed(checks):
        got = F.coalesce(F.col(quoted(name)).cast("string"), F.lit("nothing"))
        sentence = F.when(wrong, F.concat(F.lit(f"{rule}, got "), got)).otherwise(sentence)
    return sentence


def bad_rows(
    frame: Any,
    *,
    key: str,
    score: str,
    outcome: str,
    order: Any,
    time: str | None = None,
    outcome_time: str | None = None,
) -> Any:
    """The rows of a frame that cannot be used, with a column `reason`: what ``calibrate(..., bad="skip")`` leaves out.

    A row is bad if its key, an order or a needed time is null, if its score is not in [0, 1], if its outcome is neither
    0 nor 1 nor null, or if its outcome is known before its own event or without a time.

    Raises
    ------
    InvalidInput : the frame is a stream or no frame, or a column is missing or of a wrong type.
    MissingExtra : pyspark, pyarrow or pandas is not installed.
    """
    check_libraries("calibeat.spark")
    roles = Roles.of(check_frame(frame), key, score, outcome, order, time, outcome_time)
    found = read(frame, roles)
    return found.where(found[REASON].isNotNull()).select(
        *(quoted(name) for name in frame.columns), found[REASON].alias("reason")
    )
