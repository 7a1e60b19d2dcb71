"""Columns of a frame by their roles, as numbers that the workers read; and what is wrong with a row, as a sentence.

All of it are expressions of Spark's own, so that the same rules hold for jobs that stop and for rows put aside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibeat._util.check import HEAVIEST
from calibeat._util.extras import LazyModule
from calibeat._util.times import check_age
from calibeat._util.types import Flags, Vector
from calibeat._util.words import did_you_mean
from calibeat.core.vector import TOLERANCE
from calibeat.errors import InvalidInput
from calibeat.hosts.multi import Classes, Door

from .session import check_frame, check_libraries

pa = LazyModule("pyarrow")
F = LazyModule("pyspark.sql.functions")

REASON, SCORE, OUTCOME, WEIGHT, TIME, ARRIVAL, ROW, PLACE = (
    f"__calibeat_{name}" for name in ("reason", "score", "outcome", "weight", "time", "arrival", "row", "place")
)
OWN = (REASON, SCORE, OUTCOME, WEIGHT, TIME, ARRIVAL, ROW, PLACE)

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
    "weight": (_NUMBERS, "numbers"),
    "time": _TIMES,
    "outcome_time": _TIMES,
}
WEIGHT_RULE = "weight must be in [0, 1e12], or null for 1"
_ARRAYS = tuple(f"array of {kind}" for kind in _NUMBERS)


@dataclass(frozen=True)
class Many:
    """Many classes in columns of Spark: a score is an array of K numbers, an outcome the label of a class."""

    labels: tuple[Any, ...]
    logits: bool = False

    @classmethod
    def of(cls, door: Door | None) -> Many | None:
        """Those of a bank of many classes; None for two classes without names."""
        if door is None:
            return None
        labels = door.classes.labels
        if 0 < sum(isinstance(label, str) for label in labels) < len(labels):
            raise InvalidInput("classes must be all strings or all numbers in a column of Spark, got both")
        return cls(labels, door.logits)

    @property
    def named(self) -> bool:
        """Whether labels are strings."""
        return isinstance(self.labels[0], str)

    @property
    def numbered(self) -> bool:
        """Whether labels are the numbers of the columns."""
        return self.labels == tuple(range(len(self.labels)))

    @property
    def holds(self) -> dict[str, tuple[tuple[str, ...], str]]:
        """By role: the types that a column may have, and what it then holds."""
        labels = (("string",), "strings") if self.named else ((*_NUMBERS, "boolean"), "numbers")
        return {"score": (_ARRAYS, "arrays of numbers"), "outcome": (labels[0], f"{labels[1]}, as the classes are")}

    def label(self, column: Any) -> Any:
        """A column of labels as they are compared."""
        return column if self.named else column.cast("double")

    def position(self, label: Any) -> Any:
        """The column number of a label: null without one, -1 for one that is no class."""
        if self.numbered:
            return F.when(label.isNull() | self._is_known(label), label).otherwise(F.lit(-1.0))
        labels = F.array(*(F.lit(known if self.named else float(known)) for known in self.labels))
        return (F.array_position(labels, label) - 1).cast("double")

    def label_at(self, position: Any) -> Any:
        """The inverse."""
        if self.numbered:
            return F.when(position >= 0.0, position.cast("bigint"))
        labels = F.array(*(F.lit(known if self.named else float(known)) for known in self.labels))
        return F.when(position >= 0.0, F.element_at(labels, (position + 1).cast("int")))

    def _is_known(self, label: Any) -> Any:
        if self.numbered:
            return label.between(0.0, len(self.labels) - 1.0) & (label == F.floor(label))
        return label.isin(*(known if self.named else float(known) for known in self.labels))

    def wrong_label(self, label: Any) -> tuple[Any, str]:
        """Whether a label is no class, and the rule."""
        return label.isNotNull() & ~self._is_known(label), f"label must be one of {Classes(self.labels).words()}"

    def wrong_scores(self, scores: Any) -> list[tuple[Any, str]]:
        """What may be wrong with the scores of an event, each with its rule."""
        count = len(self.labels)
        size = scores.isNull() | (F.size(scores) != count)
        found = [(size, f"scores must be {count} numbers, one for each class")]
        found.append((F.exists(scores, lambda s: s.isNull() | ~(F.abs(s) < 1e300)), "score must be a finite number"))
        if not self.logits:
            total = F.aggregate(scores, F.lit(0.0), lambda sum_, s: sum_ + s)
            off = ~(F.abs(total - 1.0) <= TOLERANCE)
            found.append((F.exists(scores, lambda s: s < 0.0), "score must be 0 or more"))
            found.append((off, f"scores of an event must sum to 1 within {TOLERANCE:g}"))
        return found


@dataclass(frozen=True)
class Roles:
    """Which column is what. `order` sorts the events of a key; with `arrival` outcomes are late.

    With `many` a score is an array of numbers, and an outcome a label. With `weight` outcomes have weights.
    """

    key: str
    score: str
    outcome: str
    order: tuple[str, ...]
    time: str | None = None
    arrival: str | None = None
    many: Many | None = None
    weight: str | None = None

    @classmethod
    def of(
        cls,
        frame: Any,
        names: tuple[Any, Any, Any],
        order: Any,
        time: Any,
        arrival: Any,
        many: Many | None,
        weight: Any = None,
    ) -> Roles:
        """As given by name (`names`: key, score, outcome), each checked against the frame and its type."""
        key, score, outcome = names
        if arrival is not None and time is None:
            raise InvalidInput("outcome_time needs time to be compared with, got none")
        orders = [order] if isinstance(order, str) else list(order) if isinstance(order, Sequence) else [order]
        if not orders:
            raise InvalidInput("order must name one column at least, got none")
        check_names(frame)
        named = [("key", key), ("score", score), ("outcome", outcome), *(("order", name) for name in orders)]
        others = ("time", time), ("outcome_time", arrival), ("weight", weight)
        named += [(role, name) for role, name in others if name is not None]
        for role, name in named:
            check_column(frame, role, name, None if many is None else many.holds.get(role))
        return cls(key, score, outcome, tuple(orders), time, arrival, many, weight)


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
    kind, (kinds, wanted) = kind_of(frame, name), holds or _HOLDS.get(role, ((), ""))
    if kinds and kind not in kinds:
        hint = "; classes= says which classes there are" if role == "score" and kind in _ARRAYS else ""
        raise InvalidInput(f"{role} column must hold {wanted}, got {kind} - in column {name!r}{hint}")


def kind_of(frame: Any, name: str) -> str:
    """The type of a column in a word, or in three: array of double."""
    found = frame.schema[name].dataType
    kind: str = found.typeName()
    return f"array of {found.elementType.typeName()}" if kind == "array" else kind


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


def matrix_of_lists(column: Any, width: int) -> Vector:
    """A column of lists, each of that many numbers, as the rows of a matrix."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    values = array.flatten().cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return np.require(values.reshape(len(array), width), np.float64, ["C", "A", "W"])


def lists_of(matrix: Vector, there: Flags | None = None) -> Any:
    """The rows of a matrix as a column of lists; with `there`, nothing where it is False."""
    count, width = matrix.shape
    offsets = np.arange(0, count * width + 1, width, dtype=np.int32)
    values = pa.array(np.ascontiguousarray(matrix).reshape(-1))
    mask = None if there is None else pa.array(~there)
    return pa.ListArray.from_arrays(pa.array(offsets), values, mask=mask)


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
    score, outcome, many = F.col(quoted(roles.score)), F.col(quoted(roles.outcome)), roles.many
    columns = {SCORE: score.cast("double" if many is None else "array<double>")}
    columns[OUTCOME] = outcome.cast("double") if many is None else many.label(outcome)
    if roles.weight is not None:
        columns[WEIGHT] = F.col(quoted(roles.weight)).cast("double")
    if roles.time is not None:
        columns[TIME] = microseconds(frame, roles.time)
    if roles.arrival is not None:
        columns[ARRIVAL] = microseconds(frame, roles.arrival)
    numbers = frame.select("*", *(column.alias(name) for name, column in columns.items()))
    return numbers.withColumn(REASON, _reason(roles))


def numbered(frame: Any, roles: Roles) -> Any:
    """The frame as the workers need it: as `read`, without numbers that they can take from the given columns."""
    given = {SCORE: roles.score, OUTCOME: roles.outcome, WEIGHT: roles.weight}
    return read(frame, roles).drop(
        *(own for own, name in given.items() if name is not None and not kind_of(frame, name).endswith("decimal"))
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
    scores, label = wrong_values(score, y, roles.many)
    checks += [(wrong, roles.score, rule) for wrong, rule in scores]
    checks.append((label[0], roles.outcome, f"{label[1]}, or null where it is not known"))
    if roles.weight is not None:
        checks.append((y.isNotNull() & wrong_weight(F.col(WEIGHT)), roles.weight, WEIGHT_RULE))
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


def wrong_values(score: Any, outcome: Any, many: Many | None) -> tuple[list[tuple[Any, str]], tuple[Any, str]]:
    """What may be wrong with a score, and with an outcome that is there: whether it is, and the rule."""
    if many is not None:
        return many.wrong_scores(score), many.wrong_label(outcome)
    wrong = outcome.isNotNull() & ~outcome.isin(0.0, 1.0)
    return [(score.isNull() | ~score.between(0.0, 1.0), "score must be in [0, 1]")], (wrong, "outcome must be 0 or 1")


def wrong_weight(weight: Any) -> Any:
    """Whether a weight is none that an outcome can have; null is 1."""
    return weight.isNotNull() & ~weight.between(0.0, HEAVIEST)


def first_wrong(checks: list[tuple[Any, str, str]]) -> Any:
    """A sentence of what is wrong with a row, null if nothing is. Of each check: wrong or not, its column, the rule."""
    sentence = F.lit(None).cast("string")
    for wrong, name, rule in reversed(checks):
        got = F.coalesce(F.substring(F.col(quoted(name)).cast("string"), 1, 200), F.lit("nothing"))
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
    classes: Any = None,
    logits: bool = False,
    weight: str | None = None,
) -> Any:
    """The rows of a frame that cannot be used, with a column `reason`: what ``calibrate(..., bad="skip")`` leaves out.

    A row is bad if its key, an order or a needed time is null, if its score is not in [0, 1], if its outcome is neither
    0 nor 1 nor null, if its outcome is known before its own event or without a time, or if the weight of its outcome is
    neither in [0, 1e12] nor null. Of many classes: if the scores are not a number for each class that sum to 1, or the
    label is no class.

    Raises
    ------
    InvalidInput : the frame is a stream or no frame, or a column is missing or of a wrong type.
    MissingExtra : pyspark, pyarrow or pandas is not installed.
    """
    check_libraries("calibeat.spark")
    many = None if classes is None else Many.of(Door(classes, "multi", logits))
    roles = Roles.of(check_frame(frame), (key, score, outcome), order, time, outcome_time, many, weight)
    found = read(frame, roles)
    return found.where(found[REASON].isNotNull()).select(
        *(quoted(name) for name in frame.columns), found[REASON].alias("reason")
    )
