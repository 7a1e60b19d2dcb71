"""Rows of a log: batches of columns as they came, a check of every row, and chunks that the replay can trust."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
import numpy.typing as npt

from calibeat._util.check import check_lengths
from calibeat._util.columns import as_series, from_native, read_column
from calibeat._util.extras import need
from calibeat._util.times import (
    MISSING,
    NEVER,
    OK,
    UNREADABLE,
    Clock,
    Moments,
    States,
    Times,
    is_missing,
    read_dates,
    read_times,
)
from calibeat._util.types import Flags, Ints, Vector
from calibeat._util.words import did_you_mean
from calibeat.backtest.options import Options
from calibeat.errors import InvalidInput

if TYPE_CHECKING:
    from .attributes import GroupsOfLog
    from .labels import ClassesOfLog

# ---- batches and chunks ------------------------------------------------------------------------------------------

CHUNK = 131_072  # rows in a batch: enough that a call costs nothing, few enough to stay in the cache
NUMBERS = 16 * CHUNK  # of many classes: scores in a batch
FIRST_EVENTS = 20_000  # the first chunk of a log has at least so many events, or all of them


@dataclass(frozen=True, eq=False)
class Numbers:
    """A column as numbers, and the state of each: OK, MISSING or UNREADABLE."""

    values: Vector
    states: States


@dataclass(frozen=True, eq=False)
class Codes:
    """A column of keys: an index into `names` for each row, negative where there is no key."""

    indices: Ints
    names: list[Any]


@dataclass(frozen=True, eq=False)
class LogBatch:
    """Rows as they came. `show` tells what stands in a column (by its role) at a row, `where` names the row.

    Many classes: `scores` is a matrix, whose columns have their numbers as roles, and `outcomes` are columns of labels.
    """

    scores: Numbers
    outcomes: Numbers
    show: Callable[[str, int], str]
    where: Callable[[int], str]
    rows: Ints  # the number of each row in its file
    file: int = 0
    times: Times | None = None
    outcome_times: Times | None = None
    keys: Codes | None = None
    ids: list[Any] | None = None
    others: dict[str, Numbers] = field(default_factory=dict)  # by role: forecasts of rivals, scores of other models
    words: Ints | None = None  # of the groups: rows x attributes

    def __len__(self) -> int:
        return len(self.scores.values)


@dataclass(frozen=True, eq=False)
class Origin:
    """Where events stand in the log: row and file of each, and its id where there are ids."""

    rows: Ints
    files: Ints
    ids: npt.NDArray[np.object_] | None


@dataclass(frozen=True, eq=False)
class Chunk:
    """Consecutive events, all checked.

    `scores` is one number an event or, of many classes, a matrix of K columns; `outcomes` are then columns of labels.
    `outcomes` is NaN where none ever arrives. `slots` is the stream of each event (one stream: all 0).
    `clock` rises with the events. `arrivals` tells, on the same clock, when an outcome is known (`NEVER`: not at all).
    Both are None where every outcome arrives at once. `clock_is_time` tells whether the clock counts microseconds or
    events. `times` are microseconds since 1970, for people. `trace` is there on request. `others` has a column for each
    rival's forecasts and each other model's scores, `words` one for each attribute of the groups.
    """

    scores: Vector
    outcomes: Vector
    slots: Ints
    clock: Ints | None = None
    arrivals: Ints | None = None
    times: Ints | None = None
    trace: Origin | None = None
    clock_is_time: bool = False
    others: Vector | None = None
    words: Ints | None = None

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def numbers(self) -> int:
        """How many a score has: 1, or K of many classes."""
        return 1 if self.scores.ndim == 1 else self.scores.shape[1]

    def part(self, rows: slice) -> Chunk:
        """Some of the events."""

        def cut(column: Any) -> Any:
            return None if column is None else column[rows]

        trace = self.trace
        return replace(
            self,
            scores=self.scores[rows],
            outcomes=self.outcomes[rows],
            slots=self.slots[rows],
            clock=cut(self.clock),
            arrivals=cut(self.arrivals),
            times=cut(self.times),
            trace=None if trace is None else Origin(trace.rows[rows], trace.files[rows], cut(trace.ids)),
            others=cut(self.others),
            words=cut(self.words),
        )


# ---- columns by role ---------------------------------------------------------------------------------------------

NEEDED_ROLES = ("score", "outcome", "label")
NO_COLUMN = "none"  # what a person types so that nothing is guessed
OTHERS = ("rival ", "score ")  # how the role of a further column of probabilities begins


class ColumnOf(TypedDict):
    """The column of a role, and whether it was guessed by its name."""

    name: str
    guessed: bool


def option_of(role: str) -> str:
    """What a person types to name the column of a role.

    >>> option_of("outcome time")
    '--outcome-time'
    """
    return "--" + role.replace(" ", "-")


def is_other(role: str) -> bool:
    """Whether a role is that of a rival's forecasts, or of another model's scores.

    >>> is_other("rival 1"), is_other("score 2"), is_other("score")
    (True, True, False)
    """
    return role.startswith(OTHERS)


def check_column(role: str, name: str, header: Sequence[str], where: str, *, guessed: bool = False) -> None:
    """Refuse a column that is not there, or there more than once."""
    if name not in header:
        check_header(header, where)
        hint = did_you_mean(name, header) or f"; there are {all_of(header)}"
        if guessed and role not in NEEDED_ROLES:
            hint += f"; it was guessed: say {option_of(role)} {NO_COLUMN} to leave it out"
        raise InvalidInput(f"{role} column {name!r} is not in {where}{hint}")
    if header.count(name) > 1:
        raise InvalidInput(f"{role} column must be there once, got {header.count(name)} named {name!r} in {where}")


def check_header(header: Sequence[str], where: str) -> None:
    """Refuse a header in which numbers stand where names should: the first row of a file that has none."""
    if 2 * sum(number_of(name) is not None for name in header) >= len(header):
        raise InvalidInput(
            f"{where} must begin with a header, got {all_of(header)}: put a line with the names of the columns before "
            "the first row, such as score,outcome"
        )


def all_of(header: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in header[:20])
    return shown + (f" and {len(header) - 20} more" if len(header) > 20 else "")


# ---- single values -----------------------------------------------------------------------------------------------

WORDS = {"false": 0.0, "true": 1.0, "no": 0.0, "yes": 1.0, "f": 0.0, "t": 1.0, "n": 0.0, "y": 1.0}


def name_of(value: Any) -> str:
    """A key, an id or an outcome as it reads: 1, "1" and 1.0 are one.

    >>> name_of(1.0), name_of("1"), name_of(np.int8(1)), name_of(True)
    ('1', '1', '1', 'True')
    """
    return str(int(value)) if isinstance(value, (float, np.floating)) and float(value).is_integer() else str(value)


def number_of(value: Any, *, decimal: str = ".", percent: bool = False) -> float | None:
    """A number, also as text; None for anything else. With `percent` text may end in its sign.

    >>> number_of("0,25", decimal=","), number_of("63.7%", percent=True), number_of("high"), number_of(True)
    (0.25, 63.7, None, None)
    """
    if isinstance(value, (bool, np.bool_)):
        return None
    if isinstance(value, str):
        value = value.strip().removesuffix("%") if percent else value
        value = value.replace(decimal, ".") if decimal != "." else value
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return None if math.isnan(number) else number


def outcome_of(value: Any, positive: Any = None, decimal: str = ".") -> float | None:
    """A number, a boolean, or a word such as yes and no; None for anything else.

    With `positive` that value is 1, and every other is 0.

    >>> outcome_of("yes"), outcome_of("-1"), outcome_of("fraud"), outcome_of("fraud", "fraud"), outcome_of(2, "1")
    (1.0, -1.0, None, 1.0, 0.0)
    """
    if positive is not None:
        return float(same(value, positive))
    if isinstance(value, str):
        word = value.strip().lower()
        return WORDS[word] if word in WORDS else number_of(word, decimal=decimal)
    return float(value) if isinstance(value, (bool, np.bool_)) else number_of(value)


def same(value: Any, positive: Any) -> bool:
    """Whether a value is the one that was named; booleans in any spelling.

    >>> same(True, "true"), same("Fraud ", "Fraud"), same("fraud", "Fraud"), same(1.0, "1")
    (True, True, False, True)
    """
    one, other = name_of(value).strip(), name_of(positive).strip()
    if isinstance(value, (bool, np.bool_)) or isinstance(positive, (bool, np.bool_)):
        return one.lower() == other.lower()
    return one == other


# ---- columns from Python: NumPy arrays and lists, and the series of pandas, polars and Arrow ---------------------

NEEDED = ("scores", "outcomes")
ARGUMENTS = {"score": "scores", "outcome": "outcomes", "key": "keys", "time": "times", "outcome time": "outcome_times"}
SHOWN = {**ARGUMENTS, "label": "outcomes"}
Column = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class LogColumns:
    """The columns that `calibeat.backtest` was given: one by one, or by name from a data frame.

    `columns` are by argument. `others` are by role; `names` are their names in the report. With `classes` the scores
    are a matrix, and the outcomes labels. `attributes` are the columns of the `groups`, by the names of those.
    `offered` are columns of a frame by which events could be grouped.
    """

    columns: dict[str, Any]
    others: dict[str, Any] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    classes: ClassesOfLog | None = None
    groups: GroupsOfLog | None = None
    attributes: dict[str, Any] = field(default_factory=dict)
    offered: list[str] = field(default_factory=list)

    @classmethod
    def of(
        cls, columns: Mapping[str, Any], named: Mapping[str, Any], rivals: Any, groups: Any, options: Options
    ) -> LogColumns:
        """From the arguments of the function.

        Raises
        ------
        InvalidInput : if a column is missing, or names and columns are mixed.
        """
        if is_frame(columns["scores"]):
            return cls._of_frame(columns, named, rivals, groups, options)
        if columns["outcomes"] is None:
            raise InvalidInput("outcomes must be a one-dimensional array, got None")
        more = {"score": (2, _mapping("score", named["score"])), "rival": (1, _mapping("rivals", rivals))}
        others = {f"{what} {k}": c for what, (first, of) in more.items() for k, c in enumerate(of.values(), first)}
        names = {f"{what} {k}": str(n) for what, (first, of) in more.items() for k, n in enumerate(of, first)}
        if groups is None:
            return cls(dict(columns), others, names)
        return cls(dict(columns), others, names, None, *_attributes(groups, options))

    @classmethod
    def _of_frame(
        cls, columns: Mapping[str, Any], named: Mapping[str, Any], rivals: Any, groups: Any, options: Options
    ) -> LogColumns:
        from .attributes import GroupsOfLog

        frame = columns["scores"]
        scores = names_of("score", named["score"])
        if not scores or named["outcome"] is None:
            gone = "outcome" if scores else "score"
            raise InvalidInput(f"{gone} must name a column of the data frame, got None")
        roles = {role: name for role, name in named.items() if role != "score" and name is not None}
        others = {f"score {k}": name for k, name in enumerate(scores[1:], 2)}
        others |= {f"rival {k}": name for k, name in enumerate(names_of("rivals", rivals), 1)}
        grouped = None if groups is None else GroupsOfLog.of(groups, options, header_of(frame))
        if grouped is not None:
            grouped.check_known(roles)
        members = {} if grouped is None else {f"group {each.name}": each.column for each in grouped.attributes}
        found = frame_columns(frame, {"score": scores[0], **roles, **others, **members})
        by_argument = {argument: found.get(role) for role, argument in ARGUMENTS.items()}
        return cls(
            by_argument,
            {role: found[role] for role in others},
            {role: str(name) for role, name in others.items()},
            groups=grouped,
            attributes={role.removeprefix("group "): found[role] for role in members},
            offered=[] if grouped else offered_columns(frame, {str(scores[0]), *map(str, (roles | others).values())}),
        )

    def batches(self, options: Options) -> Iterator[LogBatch]:
        """The columns, checked for their lengths, in batches.

        Raises
        ------
        InvalidInput : if a column cannot be read, or two have different lengths.
        """
        given = {**self.columns, **self.others}
        classes = self.classes
        matrix = {} if classes is None else {"scores": (given.pop("scores"), False)}
        read = matrix | {
            name: _array(name, values) for name, values in given.items() if values is not None or name in NEEDED
        }
        columns = {name: column for name, (column, _) in read.items()}
        zoned = {name: zone for name, (_, zone) in read.items()}
        check_lengths(**{name: len(column) for name, column in columns.items()})
        percent = options.score_kind == "percent"
        size = CHUNK if classes is None else max(1024, min(CHUNK, NUMBERS // classes.count))
        attributes = {name: _sliceable(column) for name, column in self.attributes.items()}
        check_lengths(
            scores=len(columns["scores"]), **{f"group {name}": len(column) for name, column in attributes.items()}
        )

        def number(value: Any) -> float | None:
            return number_of(value, decimal=options.decimal, percent=percent)

        def batch(at: int) -> LogBatch:
            part = {name: column[at : at + size] for name, column in columns.items()}

            def show(role: str, row: int) -> str:
                value = part["scores"][row, int(role)] if role.isdigit() else part[SHOWN.get(role, role)][row]
                if isinstance(value, np.datetime64):  # which Python may have no date for
                    return str(value)
                return repr(value.item() if isinstance(value, np.generic) else value)[:60]

            def moments(name: str) -> Any:
                return times_by(part[name], options, zoned=zoned[name]) if name in part else None

            return LogBatch(
                numbers_by(part["scores"], number),
                _outcomes(part["outcomes"], options)
                if classes is None
                else classes.labels(codes_of(part["outcomes"], at, "label")),
                show,
                lambda row: f"row {at + row}",
                np.arange(at, at + len(part["scores"])),
                0,
                moments("times"),
                moments("outcome_times"),
                codes_of(part["keys"], at) if "keys" in part else None,
                None,
                {role: numbers_by(part[role], number) for role in self.others},
                None if self.groups is None else _words(self.groups, attributes, slice(at, at + len(part["scores"]))),
            )

        return (batch(at) for at in range(0, len(columns["scores"]), size))


def _array(name: str, values: Any) -> tuple[npt.NDArray[Any], bool]:
    """A column as an array, and whether its dates have a zone."""
    column = read_column(name, values)
    return column.as_array(), column.zoned


def _sliceable(column: Any) -> Any:
    """A column whose rows can be taken by position."""
    if isinstance(column, (list, tuple, np.ndarray)):
        return column
    series = as_series(column)
    return list(column) if series is None else series


def _words(groups: GroupsOfLog, columns: Mapping[str, Any], rows: slice) -> Ints:
    """Those of the attributes of some events: rows x attributes."""
    values = {name: column[rows] for name, column in columns.items()}
    for k, attribute in enumerate(groups.attributes):
        if attribute.part is not None:
            column, zoned = _array(attribute.name, values[attribute.name])
            moments = times_by(column, groups.options, zoned=zoned)
            values[attribute.name] = groups.parts_of(k, moments, column, lambda row: f"row {rows.start + row}")
    return groups.words_of_columns(values, rows.stop - rows.start, rows.start)


def _attributes(groups: Any, options: Options) -> tuple[GroupsOfLog, dict[str, Any]]:
    """The attributes that stand beside columns, by name."""
    from .attributes import GroupsOfLog

    if not is_frame(groups):
        raise InvalidInput(
            "groups must map names to columns, or be a data frame, where no data frame is given, got "
            f"{type(groups).__name__} {groups!r:.60}"
        )
    names = header_of(groups)
    found = frame_columns(groups, {name: name for name in names})
    grouped = GroupsOfLog.of(names, options)
    return grouped, {attribute.name: found[name] for attribute, name in zip(grouped.attributes, names, strict=True)}


def names_of(what: str, names: Any) -> list[Any]:
    if names is None:
        return []
    if isinstance(names, str) or not isinstance(names, Iterable):
        return [names]
    if isinstance(names, Mapping):
        raise InvalidInput(f"{what} must be names of columns where a data frame is given, got a mapping")
    return list(names)


def _mapping(what: str, columns: Any) -> Mapping[str, Any]:
    if columns is None:
        return {}
    if not isinstance(columns, Mapping):
        raise InvalidInput(
            f"{what} must map names to columns where no data frame is given, got {type(columns).__name__} "
            f"{columns!r:.60}"
        )
    return columns


def numbers_by(column: Column, read: Callable[[Any], float | None]) -> Numbers:
    """A column or a matrix as float64; `read` is for what is no number yet."""
    if column.dtype.kind in "iuf":
        values = column.astype(np.float64)
        return Numbers(values, np.where(np.isnan(values), MISSING, OK).astype(np.int8))
    found = _one_by_one(column.reshape(-1), read)
    return Numbers(found.values.reshape(column.shape), found.states.reshape(column.shape))


def _outcomes(column: Column, options: Options) -> Numbers:
    def read(value: Any) -> float | None:
        return outcome_of(value, options.positive, options.decimal)

    if options.positive is not None:
        return _one_by_one(column, read)
    return numbers_by(column.astype(np.float64) if column.dtype.kind == "b" else column, read)


def times_by(column: Column, options: Options, *, zoned: bool) -> Times:
    """A column of times, by the format of the options if there is one."""
    if options.time_format is None or column.dtype.kind in "Miuf":
        return read_times(column, zoned=zoned)
    return read_dates([_moment(value, options.time_format) for value in column.tolist()])


def _moment(value: Any, form: str) -> Any:
    """Text of the format as a moment; anything else as it is."""
    if not isinstance(value, str) or is_missing(value):
        return value
    try:
        return datetime.strptime(value.strip(), form)  # noqa: DTZ007 - it may have a zone or none
    except ValueError:
        return "not a time of the format"


def _one_by_one(column: Column, read: Callable[[Any], float | None]) -> Numbers:
    values, states = np.full(len(column), np.nan), np.full(len(column), UNREADABLE, dtype=np.int8)
    for row, value in enumerate(column):
        if is_missing(value):
            states[row] = MISSING
        elif (found := read(value)) is not None:
            values[row], states[row] = found, OK
    return Numbers(values, states)


def codes_of(column: Column, first: int, role: str = "key") -> Codes:
    """Keys or labels as indices into those of this part."""
    if column.dtype.kind in "iubUS":
        names, indices = np.unique(column, return_inverse=True)
        return Codes(indices.astype(np.int64), names.tolist())
    seen: dict[Any, int] = {}
    found = np.full(len(column), -1, dtype=np.int64)
    for row, value in enumerate(column.tolist()):
        if not is_missing(value):
            try:
                found[row] = seen.setdefault(value, len(seen))
            except TypeError:
                got = f"got {value!r:.60} - at row {first + row}"
                raise InvalidInput(f"{role} must be text or a number, {got}") from None
    return Codes(found, list(seen))


_PLAIN = (list, tuple)


def is_frame(values: Any) -> bool:
    """Whether this is a table of named columns, and no column.

    >>> import numpy as np, polars
    >>> is_frame(polars.DataFrame({"p": [0.5]})), is_frame({"p": [0.5]}), is_frame(np.array([0.5])), is_frame([0.5])
    (True, True, False, False)
    """
    if isinstance(values, Mapping):
        return True
    kind = type(values)  # a lazy frame would warn if its own columns were asked for
    return not isinstance(values, _PLAIN) and (hasattr(kind, "columns") or hasattr(kind, "column_names"))


def frame_columns(frame: Any, names: Mapping[str, str]) -> dict[str, Any]:
    """The columns of a frame by role, from their names by role."""
    if isinstance(frame, Mapping):
        header = [str(name) for name in frame]
        _check(names, header)
        return {role: frame[name] for role, name in names.items()}
    nw = need("narwhals", extra="frames", what="data frames")
    _check(names, header_of(frame))
    table = from_native(frame).select(*dict.fromkeys(names.values()))
    if isinstance(table, nw.LazyFrame):
        table = table.collect()
    return {role: table[name].to_native() for role, name in names.items()}


def header_of(frame: Any) -> list[str]:
    """The names of the columns of a frame."""
    if isinstance(frame, Mapping):
        return [str(name) for name in frame]
    need("narwhals", extra="frames", what="data frames")
    try:
        return [str(name) for name in from_native(frame).collect_schema().names()]
    except TypeError:
        raise InvalidInput(f"scores must be a column or a data frame, got {type(frame).__name__}") from None


def offered_columns(frame: Any, used: set[str]) -> list[str]:
    """The columns of a frame by which events could be grouped, beside those that are used; none of a lazy one."""
    from .attributes import LOOKED_AT, could_be_attribute

    if isinstance(frame, Mapping):
        columns = {str(name): column for name, column in frame.items() if str(name) not in used}
        found = {name: read_column(name, column).as_array() for name, column in columns.items()}
        return [
            name
            for name, column in found.items()
            if column.dtype.kind in "OUSbiu" and could_be_attribute(column[:LOOKED_AT].tolist())
        ]
    nw = need("narwhals", extra="frames", what="data frames")
    table = from_native(frame)
    if isinstance(table, nw.LazyFrame):
        return []
    table, names = table.head(LOOKED_AT), []
    for name in table.columns:
        kind = table.schema[name]
        wordy = kind in (nw.String, nw.Categorical, nw.Enum, nw.Boolean) or kind.is_integer()
        if name not in used and wordy and could_be_attribute(table[name].to_list()):
            names.append(str(name))
    return names


def _check(names: Mapping[str, str], header: list[str]) -> None:
    for role, name in names.items():
        check_column(role, name, header, "the frame")


# ---- scores that are no probabilities ----------------------------------------------------------------------------

NO_ACCIDENT, SHARE_NO_ACCIDENT = 20, 0.05  # so many bad rows, and such a share of them, are no accident


def kind_of_numbers(values: Vector) -> str:
    """``"percent"``, ``"logit"`` or nothing, from all the scores that are numbers.

    >>> [kind_of_numbers(np.array(v)) for v in ([0.2, 63.0], [-2.0, 1.5], [0.2, 2000.0])]
    ['percent', 'logit', '']
    """
    values = values[np.isfinite(values)]
    if not len(values) or np.mean((values < 0.0) | (values > 1.0)) < 0.01:
        return ""
    low, high = float(values.min()), float(values.max())
    return "percent" if low >= 0.0 and 1.01 < high <= 100.0 else "logit" if low < -0.01 and high < 50.0 else ""


def kind_of_text(shown: Sequence[str]) -> str:
    """The same from the texts of unreadable scores; ``"comma"`` and ``"thousands"`` tell what their commas are.

    >>> [kind_of_text(texts) for texts in (["'63.7%'"], ["'1,000'", "'0,250'"], ["'1,000'"], ["'high'"])]
    ['percent', 'comma', 'thousands', '']
    """
    kinds = [_kind_of_one(text.strip("'\" ")) for text in shown]
    first = next((kind for kind in kinds if kind), "")
    return "comma" if first == "thousands" and "comma" in kinds else first


def _kind_of_one(text: str) -> str:
    if re.fullmatch(r"[-+]?[\d.,]+\s*%", text):
        return "percent"
    if re.fullmatch(r"[-+]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?", text):
        return "thousands"
    return "comma" if re.fullmatch(r"[-+]?\d*,\d+", text) else ""


def hint_of_kind(kind: str, how: str) -> str:
    """The end of an error message; `how` tells how a person sets the kind."""
    if kind == "comma":
        return f"; the numbers have decimal commas: {how}"
    if kind == "thousands":
        return "; the number has commas between its thousands: write it without"
    name = {"percent": "percent", "logit": "logits"}[kind]
    return f"; the scores look like {name}: {how}"


def too_many_to_skip(bad: int, rows: int) -> bool:
    """Whether so many bad rows are another kind of score, and not to be skipped."""
    return 2 * bad > rows or (bad >= NO_ACCIDENT and bad >= SHARE_NO_ACCIDENT * rows)


# ---- what is known of a log so far -------------------------------------------------------------------------------


@dataclass(eq=False)
class ScoreKind:
    """What was seen so far of the columns of scores, where they are said to be percent or logits.

    Percent must exceed 1 somewhere, or have their sign. Logits must be outside [0, 1] somewhere, unless they are few.
    """

    options: Options
    _seen: dict[str, int] = field(default_factory=dict)  # by role: scores that may be probabilities
    _sure: set[str] = field(default_factory=set)  # roles of which one score is none

    def look(self, role: str, scores: Numbers, show: Callable[[str, int], str]) -> None:
        """Some rows of a column."""
        kind = self.options.score_kind
        if kind == "probability" or self.options.insist or role in self._sure:
            return
        there = scores.states == OK
        values = scores.values[there]
        sign = kind == "percent" and there.any() and show(role, int(there.argmax())).strip("'\" ").endswith("%")
        if sign or (values > 1.0).any() or (kind == "logit" and (values < 0.0).any()):
            self._sure.add(role)
        else:
            self._seen[role] = self._seen.get(role, 0) + len(values)

    def check(self) -> None:
        """Once the log has ended."""
        kind, least = self.options.score_kind, NO_ACCIDENT if self.options.score_kind == "logit" else 1
        for role, count in self._seen.items():
            if role not in self._sure and count >= least:
                wanted = "above 1 somewhere" if kind == "percent" else "outside [0, 1] somewhere"
                how = self.options.how("--insist", "insist=True")
                raise InvalidInput(
                    f"{role}s must be {wanted} where they are {kind}, got {count:,} in [0, 1]: they look like "
                    f"probabilities; {how} if they are {kind}"
                )


_MOST_SHOWN = 10  # values of the column, where the positive one is not among them


@dataclass(eq=False)
class Outcomes:
    """What is known of the outcomes of a log so far."""

    options: Options
    unknown: int = 0  # events without an outcome
    _positive_seen: bool = False
    _values: list[str] = field(default_factory=list)  # where the positive one was not seen yet
    _signs: set[float] = field(default_factory=set)  # which of 0 and -1 were seen

    def read(self, batch: LogBatch) -> Vector:
        """The outcomes of a batch, with 0 for -1 where the log has -1 and 1."""
        values = batch.outcomes.values
        if self.options.positive is not None:
            self._look_for_positive(batch)
            return values
        rows = {sign: values == sign for sign in (0.0, -1.0)}
        before, self._signs = self._signs, self._signs | {sign for sign, found in rows.items() if found.any()}
        if -1.0 not in self._signs:
            return values
        if 0.0 in self._signs:
            row = max(int(found.argmax()) for sign, found in rows.items() if sign not in before)
            how = self.options.how("--positive VALUE", "positive=VALUE")
            raise InvalidInput(
                f"outcomes must be 0 and 1 or -1 and 1, got 0 and -1 - at {batch.where(row)}; {how} to name the value "
                "that counts as 1"
            )
        return np.where(values == -1.0, 0.0, values)

    def _look_for_positive(self, batch: LogBatch) -> None:
        self._positive_seen = self._positive_seen or bool((batch.outcomes.values == 1.0).any())
        if not self._positive_seen and len(self._values) < _MOST_SHOWN:
            rows = np.flatnonzero(batch.outcomes.states != MISSING)[:1000].tolist()
            shown = (batch.show("outcome", row) for row in rows)
            self._values = list(dict.fromkeys([*self._values, *shown]))[:_MOST_SHOWN]

    def check_positive(self) -> None:
        """Once the log has ended: the value that counts as 1 must have been there."""
        if self.options.positive is not None and not self._positive_seen:
            raise InvalidInput(
                f"positive must be a value of the outcome column, got {self.options.positive!r:.60}, which is not "
                f"there; there are {', '.join(self._values) or 'none'}"
            )

    @property
    def notes(self) -> list[str]:
        """What a reader should know of the outcomes."""
        if not self.unknown:
            return self.how_read
        events = "One event has" if self.unknown == 1 else f"{self.unknown:,} events have"
        return [f"{events} no outcome. Such events were forecast and not judged.", *self.how_read]

    @property
    def how_read(self) -> list[str]:
        """How the values of the column were read."""
        notes = []
        if -1.0 in self._signs:
            notes.append("Outcomes are -1 and 1. -1 was read as 0.")
        if self.options.positive is not None:
            notes.append(f"An outcome of {self.options.positive!r:.60} counts as 1, every other value as 0.")
        return notes


# ---- rows that can be used ---------------------------------------------------------------------------------------

LEAST_EVENTS = max(CHUNK // 2, FIRST_EVENTS)  # in a chunk


@dataclass(eq=False)
class Piece:
    """Rows that can be used."""

    scores: Vector
    outcomes: Vector
    slots: Ints
    times: Ints | None
    arrivals: Ints | None  # outcome times
    others: Vector | None = None  # a column for each rival and each other score
    words: Ints | None = None  # a column for each attribute of the groups
    rows: Ints | None = None  # where they came from, if that is asked for
    files: Ints | None = None
    ids: Any = None

    def take(self, rows: Any) -> Piece:
        """Some of the rows."""
        columns: Any = (getattr(self, name) for name in _COLUMNS)
        taken: Any = [None if column is None else column[rows] for column in columns]
        return Piece(*taken)


_COLUMNS = tuple(column.name for column in fields(Piece))


def gathered(pieces: Iterable[Piece], least: int = LEAST_EVENTS) -> Iterator[Piece]:
    """Pieces put together until there is enough for a chunk."""
    waiting: list[Piece] = []
    for piece in pieces:
        waiting.append(piece)
        if sum(len(one.scores) for one in waiting) >= least:
            yield joined(waiting)
            waiting = []
    if sum(len(one.scores) for one in waiting):
        yield joined(waiting)


def joined(pieces: list[Piece]) -> Piece:
    """One piece of many."""

    def column(name: str) -> Any:
        columns = [getattr(piece, name) for piece in pieces]
        return None if columns[0] is None else np.concatenate(columns)

    return Piece(*(column(name) for name in _COLUMNS))


# ---- the reader --------------------------------------------------------------------------------------------------

_WANTED = {"probability": "in [0, 1]", "percent": "in [0, 100]", "logit": "a number"}
MOST_GUESSED_IDS = 1_000_000  # ids are kept in memory; of a guessed column no more than these


class Skipped(TypedDict):
    """How many rows were left out for one reason, and the first of them."""

    reason: str
    count: int
    first: str


@dataclass(eq=False)
class RowReader:
    """Checks batches and cuts them into chunks. Counts what was skipped, and names the streams.

    With `trace` chunks tell where their events stand in the log. `guessed` maps roles to columns that were guessed.
    With `classes` a row has K scores and a label. With `groups` it has attributes.
    """

    options: Options
    trace: bool = False
    guessed: dict[str, str] = field(default_factory=dict)
    classes: ClassesOfLog | None = None
    groups: GroupsOfLog | None = None
    rows: int = 0
    names: list[str] = field(default_factory=list)
    has_outcome_times: bool = False
    clock: Clock = field(init=False)
    outcomes: Outcomes = field(init=False)
    kind: ScoreKind = field(init=False)
    _skipped: dict[str, Skipped] = field(default_factory=dict)
    _notes: dict[str, int] = field(default_factory=dict)
    _slots: dict[str, int] = field(default_factory=dict)
    _seen_ids: set[str] = field(default_factory=set)
    _last_time: int | None = None

    def __post_init__(self) -> None:
        how = self.options.how("--time-zone NAME", "time_zone=NAME")
        self.clock, self.outcomes = Clock(self.options.zone, how), Outcomes(self.options)
        self.kind = ScoreKind(self.options)

    @property
    def what(self) -> str:
        """What is learnt of an event."""
        return "an outcome" if self.classes is None else "a label"

    @property
    def skipped(self) -> list[Skipped]:
        """What was left out, by reason."""
        return list(self._skipped.values())

    @property
    def notes(self) -> list[str]:
        """What a reader should know of how the log was read."""
        odd = [f"{count:,} scores were skipped{hint}." for hint, count in self._notes.items()]
        if "id" in self.guessed and len(self._seen_ids) >= MOST_GUESSED_IDS:
            odd.append(
                f"The ids of the first {len(self._seen_ids):,} events were compared. Name the column (--id) to compare "
                "all."
            )
        return self.clock.notes + self.outcomes.notes + odd + ([] if self.groups is None else self.groups.notes)

    def chunks(self, batches: Iterable[LogBatch]) -> Iterator[Chunk]:
        """The chunks of a log: the first is all of it or has 20,000 events."""
        pieces, number = self.pieces(batches), 0
        least = LEAST_EVENTS if self.classes is None else FIRST_EVENTS
        for piece in gathered(self._sorted(pieces) if self.options.sort else pieces, least):
            yield self._chunk(piece, number)
            number += len(piece.scores)

    def pieces(self, batches: Iterable[LogBatch]) -> Iterator[Piece]:
        """The rows that can be used, as they come."""
        return (self._check(batch) for batch in batches)

    def check_end(self) -> None:
        """Once the log has ended: what only all of it can tell."""
        self.outcomes.check_positive()
        self.kind.check()

    def skip(self, reason: str, first: str, count: int = 1) -> None:
        """Count rows that are left out."""
        entry = self._skipped.setdefault(reason, {"reason": reason, "count": 0, "first": first})
        entry["count"] += count

    # ---- rows -----------------------------------------------------------------------------------------------------

    def _check(self, batch: LogBatch) -> Piece:
        """The rows of a batch that can be used; raises on the first that cannot, unless those are to be skipped."""
        scores, outcomes = self._probabilities(batch), self._outcomes(batch)
        others = {}
        for role, column in batch.others.items():
            if role.startswith("score"):
                self.kind.look(role, column, batch.show)
            others[role] = _probabilities(column.values, self._kind_of(role))
        times = None if batch.times is None else self.clock.read("time", batch.times, batch.where)
        arrivals = None
        if batch.outcome_times is not None:
            arrivals = self.clock.read("outcome time", batch.outcome_times, batch.where)
        keep = np.ones(len(batch), dtype=bool)
        # Each look is at the rows before what was found so far: what is raised last was first in the log.
        problems = self._problems(batch, scores, outcomes, times, arrivals)
        for role, values in others.items():
            problems += self._problems_of_others(batch, role, values)
        wrong = self._skip_or_stop(batch, problems, keep)
        again = self._check_ids(batch, keep) if batch.ids is not None else None
        back = self._check_order(batch, times, keep) if times is not None and not self.options.sort else None
        if found := back or again or wrong:
            raise InvalidInput(found)
        self.rows += len(batch)
        slots = np.zeros(len(batch), dtype=np.int64) if batch.keys is None else self._slots_of(batch.keys, keep)
        when, known = None if times is None else times.values, None if arrivals is None else arrivals.values
        self.outcomes.unknown += int(np.count_nonzero(np.isnan(outcomes[keep])))
        piece = Piece(scores, outcomes, slots, when, known)
        if others:
            piece.others = np.column_stack(list(others.values()))
        piece.words = batch.words
        if self.trace:
            piece.rows, piece.files = batch.rows, np.full(len(batch), batch.file)
            piece.ids = None if batch.ids is None else np.array([name_of(value) for value in batch.ids], dtype=object)
        return piece if keep.all() else piece.take(keep)

    def _skip_or_stop(self, batch: LogBatch, problems: list[_Problem], keep: Flags) -> str | None:
        order = sorted(problems, key=lambda p: int(p.rows.argmax()))  # the first row that is wrong is named
        if order and not self.options.skip_bad:
            row = int(order[0].rows.argmax())
            keep[row:] = False
            return order[0].sentence(row)
        for problem in order:
            bad = problem.rows & keep
            if bad.any():
                self.skip(problem.reason, batch.where(int(bad.argmax())), int(np.count_nonzero(bad)))
                keep &= ~bad
        return None

    def _kind_of(self, role: str) -> str:
        """What the numbers of another column are: scores as the score, a rival's forecasts never logits."""
        kind = self.options.score_kind
        return "probability" if role.startswith("rival") and kind == "logit" else kind

    def _problems_of_others(self, batch: LogBatch, role: str, values: Vector) -> list[_Problem]:
        """What is wrong with a rival's forecasts or another model's scores."""
        what, _, _ = role.partition(" ")
        wanted = _WANTED[self._kind_of(role)]

        def sentence(row: int) -> str:
            missing = batch.others[role].states[row] == MISSING
            got = "nothing" if missing else batch.show(role, row)
            return f"{role} must be {wanted}, got {got} - at {batch.where(row)}{self._how_to_skip}"

        bad = ~((values >= 0.0) & (values <= 1.0))
        return [_Problem(bad, f"{what} is not {wanted}", sentence)] if bad.any() else []

    def _problems(
        self, batch: LogBatch, scores: Vector, outcomes: Vector, times: Moments | None, arrivals: Moments | None
    ) -> list[_Problem]:
        found = []

        def look(rows: Flags, reason: str, sentence: Callable[[int], str]) -> None:
            if rows.any():
                found.append(_Problem(rows, reason, sentence))

        def must(role: str, requirement: str, state: str = "") -> Callable[[int], str]:
            def sentence(row: int) -> str:
                got = "nothing" if state == "missing" else batch.show(role, row)
                return f"{role} must be {requirement}, got {got} - at {batch.where(row)}{self._about_guess(role)}"

            return sentence

        self._look_at_scores(batch, scores, look, must)
        self._look_at_outcomes(batch, outcomes, look, must)
        self._look_at_times_and_keys(batch, times, arrivals, look, must)
        return found

    def _probabilities(self, batch: LogBatch) -> Vector:
        if self.classes is not None:
            return self.classes.probabilities(batch.scores, self.options.score_kind)
        self.kind.look("score", batch.scores, batch.show)
        return _probabilities(batch.scores.values, self.options.score_kind)

    def _outcomes(self, batch: LogBatch) -> Vector:
        return self.outcomes.read(batch) if self.classes is None else batch.outcomes.values

    def _look_at_scores(self, batch: LogBatch, scores: Vector, look: Any, must: Any) -> None:
        if self.classes is not None:
            self._look_at_scores_of_classes(batch, self.classes, look)
            return
        wanted = _WANTED[self.options.score_kind]
        states = batch.scores.states
        gone = must("score", wanted, "missing")
        look(states == MISSING, "score is missing", lambda row: gone(row) + self._how_to_skip)
        plain = must("score", wanted)
        unreadable = states == UNREADABLE
        if unreadable.any():
            first = np.flatnonzero(unreadable)[:NO_ACCIDENT].tolist()
            kind = kind_of_text([batch.show("score", row) for row in first])
            hint = self._hint(kind, unreadable, plain)
            look(unreadable, "score is not a number", lambda row: plain(row) + hint)
        outside = (states == OK) & ~((scores >= 0.0) & (scores <= 1.0))
        if outside.any():
            probable = self.options.score_kind == "probability"
            kind = kind_of_numbers(batch.scores.values[states == OK]) if probable else ""
            other = self._hint(kind, outside, plain)
            look(outside, f"score is not {wanted}", lambda row: plain(row) + other)

    def _look_at_scores_of_classes(self, batch: LogBatch, classes: ClassesOfLog, look: Any) -> None:
        kind = self.options.score_kind
        given = batch.scores.values / (100.0 if kind == "percent" else 1.0)
        for rows, bad, reason, requirement in classes.wrong(given, batch.scores.states, kind):
            hint = ""
            if kind == "probability" and too_many_to_skip(int(rows.sum()), len(rows)):
                other = classes.other_kind(batch.scores.values[rows], reason)
                typed = "--logits" if other == "logit" else f"--score-kind {other}"
                hint = hint_of_kind(other, self.options.how(typed, f"score_kind={other!r}")) if other else ""

            def sentence(row: int, bad: Any = bad, requirement: str = requirement, hint: str = hint) -> str:
                if bad is None:
                    total = math.fsum(given[row].tolist())
                    return f"scores of an event must {requirement}, got {total:.9g} - at {batch.where(row)}{hint}"
                column = int(bad[row].argmax())
                missing = batch.scores.states[row, column] == MISSING
                got = "nothing" if missing else batch.show(str(column), row)
                place = f"{batch.where(row)}, column {classes.score_name(column)!r}"
                return f"score must be {requirement}, got {got} - at {place}{self._how_to_skip if missing else hint}"

            look(rows, reason, sentence)

    def _hint(self, kind: str, bad: Flags, sentence: Callable[[int], str]) -> str:
        """What the scores look like; where so many are of another kind, they are not skipped."""
        if not kind:
            return ""
        how = self.options.how(f"--score-kind {kind}", f"score_kind={kind!r}")
        if kind == "comma":
            how = self.options.how("--decimal ','", "decimal=','")
        hint, count = hint_of_kind(kind, how), int(np.count_nonzero(bad))
        if self.options.skip_bad:
            if too_many_to_skip(count, len(bad)):
                raise InvalidInput(sentence(int(bad.argmax())) + hint)
            self._notes[hint] = self._notes.get(hint, 0) + count
        return hint

    @property
    def _how_to_skip(self) -> str:
        return f"; {self.options.how('--skip-bad', 'skip_bad=True')} to skip such rows and count them"

    def _about_guess(self, role: str) -> str:
        """How to leave out a column that was guessed."""
        if role not in self.guessed or role in NEEDED_ROLES:
            return ""
        option = f"{option_of(role)} {NO_COLUMN}"
        return f"; the {role} was guessed to be in {self.guessed[role]!r}: say {option} to leave it out"

    def _look_at_outcomes(self, batch: LogBatch, values: Vector, look: Any, must: Any) -> None:
        """A missing outcome is no mistake: the event is forecast, and not judged."""
        states, classes = batch.outcomes.states, self.classes
        if batch.outcome_times is not None:
            untimed = batch.outcome_times.states == MISSING
            late = must("outcome time", f"there where there is {self.what}", "missing")
            look(untimed & (states != MISSING), "outcome time is missing", lambda row: late(row) + self._how_to_skip)
        if classes is not None:
            unknown = must("label", classes.words())
            look(
                states == UNREADABLE,
                "label is no class",
                lambda row: unknown(row) + classes.hint(batch.show("label", row).strip("'\"")),
            )
            return
        wrong = (states == UNREADABLE) | ((states == OK) & (values != 0.0) & (values != 1.0))
        plain = must("outcome", "0 or 1 (or false or true)")
        hint = f"; {self.options.how('--positive VALUE', 'positive=VALUE')} to name the value that counts as 1"
        look(wrong, "outcome is not 0 or 1", lambda row: plain(row) + hint)

    def _look_at_times_and_keys(
        self, batch: LogBatch, times: Moments | None, arrivals: Moments | None, look: Any, must: Any
    ) -> None:
        form = self.options.time_format
        moment = "a date of the years 1 to 9999 (ISO 8601) or a number" if form is None else f"of the format {form!r}"
        how = self.options.how("--time-format FORMAT", "time_format=")
        hint = f"; {how} for another kind, such as %d/%m/%Y" if form is None else ""
        for role, column in (("time", times), ("outcome time", arrivals)):
            if column is not None:
                plain = must(role, moment)
                look(column.states == UNREADABLE, f"{role} cannot be read", lambda row, say=plain: say(row) + hint)
        if times is not None:
            look(times.states == MISSING, "time is missing", must("time", "there", "missing"))
        if times is not None and arrivals is not None:
            both = (times.states == OK) & (arrivals.states == OK)
            self._look_at_early_outcomes(batch, both & (arrivals.values < times.values), look)
        if batch.keys is not None and self.options.blank_key is None:
            gone = must("key", "there", "missing")
            how = self.options.how("--blank-key NAME", "blank_key=NAME")
            hint = f"; {how} to give such events a stream of their own"
            look(batch.keys.indices < 0, "key is missing", lambda row: gone(row) + hint)

    def _look_at_early_outcomes(self, batch: LogBatch, early: Flags, look: Any) -> None:
        def sentence(row: int) -> str:
            required = f"outcome time must not be before the time of its event, {batch.show('time', row)}"
            got = f"got {batch.show('outcome time', row)} - at {batch.where(row)}"
            return f"{required}, {got}{self._about_guess('outcome time')}"

        look(early, "outcome time is before the time of its event", sentence)

    def _check_ids(self, batch: LogBatch, keep: Flags) -> str | None:
        if "id" in self.guessed and len(self._seen_ids) >= MOST_GUESSED_IDS:
            return None
        rows = np.flatnonzero(keep).tolist()
        names = [name_of((batch.ids or [])[row]) for row in rows]
        if len(set(names)) == len(names) and self._seen_ids.isdisjoint(names):
            self._seen_ids.update(names)
            return None
        for row, name in zip(rows, names, strict=True):
            if name in self._seen_ids:
                if not self.options.skip_bad:
                    keep[row:] = False
                    again = f"event id must be there once only, got {batch.show('id', row)} again"
                    return f"{again} - at {batch.where(row)}{self._about_guess('id')}"
                self.skip("event id came before", batch.where(row))
                keep[row] = False
            self._seen_ids.add(name)
        return None

    def _check_order(self, batch: LogBatch, times: Moments, keep: Flags) -> str | None:
        kept = times.values if keep.all() else times.values[keep]
        if not len(kept):
            return None
        before = kept[0] if self._last_time is None else self._last_time
        back = np.diff(kept, prepend=before) < 0
        self._last_time = int(kept[-1])
        if not back.any():
            return None
        row = int(np.flatnonzero(keep)[back.argmax()])
        how = self.options.how("--sort to sort it in memory", "sort=True to sort it")
        if times.twice is not None and times.twice[row]:  # to sort would mix the two hours
            how = f"the clock of {self.options.time_zone} was set back then: write the times in UTC, or with their zone"
        back_at = f"time must not go back, got {batch.show('time', row)} after a later one"
        return f"{back_at} - at {batch.where(row)}; {how}{self._about_guess('time')}"

    def _slots_of(self, keys: Codes, keep: Flags) -> Ints:
        """The stream of each row that is kept; a key is what it reads as, also where files have it in other types."""
        known = np.zeros(len(keys.names) + 1, dtype=np.int64)  # the last is where there is no key
        used = np.zeros(len(known), dtype=bool)
        used[keys.indices[keep]] = True
        for at in [*([-1] if used[-1] else []), *np.flatnonzero(used[:-1]).tolist()]:
            name = str(self.options.blank_key) if at < 0 else name_of(keys.names[at])
            slot = self._slots.get(name)
            if slot is None:
                slot = self._slots[name] = len(self.names)
                self.names.append(name)
            known[at] = slot
        return known[keys.indices]

    def _sorted(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        """All of the log in the order of its times, equal ones in the order of the rows; in memory."""
        all_pieces = list(pieces)
        if not all_pieces:
            return
        whole = joined(all_pieces)
        if whole.times is None:
            how = self.options.how("--time NAME", "times=")
            raise InvalidInput(f"to sort a log needs the time of each event, got none; {how}")
        order = np.argsort(whole.times, kind="stable")
        for at in range(0, len(order), CHUNK):
            yield whole.take(order[at : at + CHUNK])

    # ---- arrivals -------------------------------------------------------------------------------------------------

    def _chunk(self, piece: Piece, number: int) -> Chunk:
        options = self.options
        clock = arrivals = None
        timed = piece.arrivals is not None or options.delay_microseconds > 0
        if piece.arrivals is not None:
            clock, arrivals, self.has_outcome_times = piece.times, piece.arrivals, True
        elif options.delay_microseconds:
            if piece.times is None:
                how = options.how("--time NAME", "times=")
                raise InvalidInput(f"a delay in time needs the time of each event, got none; {how}")
            clock, arrivals = piece.times, piece.times + options.delay_microseconds
        elif options.delay_events:
            clock = np.arange(number, number + len(piece.scores))
            arrivals = clock + 1 + options.delay_events
        elif options.maturity is not None:  # every outcome is there at once, and learnt at its age
            if options.maturity.microseconds and piece.times is None:
                how = options.how("--time NAME", "times=")
                raise InvalidInput(f"an age in time needs the time of each event, got none; {how}")
            timed = bool(options.maturity.microseconds)
            clock = arrivals = piece.times if timed else np.arange(number, number + len(piece.scores))
        if arrivals is not None:
            arrivals = np.where(np.isnan(piece.outcomes), NEVER, arrivals)
        times = piece.times if self.clock.dated else None
        trace = None
        if piece.rows is not None and piece.files is not None:
            trace = Origin(piece.rows, piece.files, piece.ids)
        events = piece.scores, piece.outcomes, piece.slots
        others, words = piece.others, piece.words
        return Chunk(*events, clock, arrivals, times, trace, clock_is_time=timed, others=others, words=words)


@dataclass(frozen=True, eq=False)
class _Problem:
    rows: Flags
    reason: str
    sentence: Callable[[int], str]


def _probabilities(values: Vector, kind: str) -> Vector:
    if kind == "percent":
        return values / 100.0
    if kind == "logit":
        return 0.5 * (1.0 + np.tanh(0.5 * values))
    return values
