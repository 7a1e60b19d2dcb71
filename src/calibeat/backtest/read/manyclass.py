"""Logs of many classes: columns of scores, names of classes, and rows of K scores and a label."""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from calibeat._util.check import check_lengths
from calibeat._util.columns import column_names, read_column, to_matrix
from calibeat._util.times import MISSING, OK, UNREADABLE
from calibeat._util.types import Flags, Ints, Vector
from calibeat._util.words import did_you_mean
from calibeat.backtest.options import Options
from calibeat.core import vector
from calibeat.errors import InvalidInput
from calibeat.hosts.multi import MOST_CLASSES

from . import arrow, guess
from .rows import (
    CHUNK,
    FIRST_EVENTS,
    Codes,
    LogBatch,
    Numbers,
    RowReader,
    codes_of,
    name_of,
    number_of,
    numbers_by,
    times_by,
)

# ---- names -------------------------------------------------------------------------------------------------------

_MARKS = "_.-: /|"  # between what all columns share and the name of a class


def score_columns(asked: str | Sequence[str], header: Sequence[str], others: Sequence[str], where: str) -> list[str]:
    """The columns of the scores: names and patterns between commas, each column once, in the order given.

    A pattern takes its columns in the order of the header, without those in `others`, which hold something else.

    >>> score_columns("p_*", ["y", "p_cat", "p_dog"], ["y"], "log.csv")
    ['p_cat', 'p_dog']
    """
    wanted = [part.strip() for part in asked.split(",")] if isinstance(asked, str) else list(asked)
    found: list[str] = []
    for name in wanted:
        if name in header:
            matched = [name]
        elif any(mark in name for mark in "*?["):
            matched = [column for column in header if fnmatch.fnmatchcase(column, name) and column not in others]
        else:
            matched = []
        if not matched:
            hint = did_you_mean(name, header) or f"; there are {', '.join(map(repr, header[:20]))}"
            raise InvalidInput(f"scores must name columns of {where}, got {name!r}, which is none{hint}")
        found += matched
    twice = next((name for name in found if found.count(name) > 1), None)
    if twice is not None:
        raise InvalidInput(f"scores must name each column once, got {twice!r} twice")
    if clash := next((name for name in found if name in others), None):
        raise InvalidInput(f"scores must not be the column of something else, got {clash!r}")
    for name in found:
        if header.count(name) > 1:
            raise InvalidInput(f"score column must be there once, got {header.count(name)} named {name!r} in {where}")
    return found


def class_names(columns: Sequence[str]) -> list[list[str]]:
    """What the classes of these columns may be called, the likeliest first.

    That is: without what all share up to a mark, without all that they share, and as they are.

    >>> class_names(["p_cat", "p_car"])
    [['cat', 'car'], ['t', 'r'], ['p_cat', 'p_car']]
    """
    prefix = _shared(columns)
    suffix = _shared([name[::-1] for name in columns])[::-1]
    to_mark = re.match(rf".*[{re.escape(_MARKS)}]", prefix)
    from_mark = re.search(rf"[{re.escape(_MARKS)}].*$", suffix)
    ends = (to_mark[0] if to_mark else "", from_mark[0] if from_mark else ""), (prefix, suffix)
    ways = [[_between(name, *pair) for name in columns] for pair in ends]
    ways.append(list(columns))
    good = [way for way in ways if all(way) and len(set(way)) == len(way)]
    return [way for at, way in enumerate(good) if way not in good[:at]]


def _shared(names: Sequence[str]) -> str:
    """What all names begin with."""
    low, high = min(names), max(names)  # what these two share, all share
    return low[: next((at for at, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low))]


def _between(name: str, prefix: str, suffix: str) -> str:
    rest = name.removeprefix(prefix)
    return rest.removesuffix(suffix) if len(suffix) < len(rest) else ""


class Labels:
    """The classes in the order of the columns, and the column of each label.

    `ways` are the names that the classes may have. The first labels settle which it is; labels that are none of them
    may be column numbers.
    """

    def __init__(self, ways: list[list[str]]) -> None:
        self._ways, self.names = ways, ways[0]
        self.numbered = False  # whether labels are column numbers
        self._index: dict[str, int] | None = None

    @property
    def count(self) -> int:
        return len(self.names)

    @property
    def settled(self) -> bool:
        """Whether the first labels were seen."""
        return self._index is not None

    def settle(self, values: Sequence[Any], counts: Ints) -> None:
        """Choose the names that most of these labels have; `counts` is how often each of them is there."""
        numbers = [str(k) for k in range(self.count)]
        ways = [(names, names) for names in self._ways] + [(self._ways[0], numbers)]
        told = [plain(value) for value in values]

        def known(keys: Sequence[str]) -> int:
            return int(sum(n for value, n in zip(told, counts.tolist(), strict=True) if value in keys))

        self.names, keys = max(ways, key=lambda way: known(way[1]))  # the first of equals
        self.numbered = keys is numbers
        self._index = {key: column for column, key in enumerate(keys)}

    def columns(self, values: Sequence[Any]) -> Ints:
        """The column of each label, -1 for one that is no class."""
        index = self._index or {}
        return np.array([index.get(plain(value), -1) for value in values], dtype=np.int64)

    def words(self) -> str:
        """The classes as a message shows them."""
        shown = ", ".join(map(repr, self.names[:8])) + (", ..." if self.count > 8 else "")
        if self.numbered and self.names != [str(k) for k in range(self.count)]:
            return f"a column number from 0 to {self.count - 1} ({shown})"
        return f"one of the {self.count} classes {shown}"

    def hint(self, value: Any) -> str:
        return did_you_mean(str(value), self.names)


def plain(value: Any) -> str:
    """A label as it reads: 1, "1" and 1.0 are one, and so are True and 1.

    >>> [plain(value) for value in (1, "1 ", 1.0, True, "cat")]
    ['1', '1', '1', '1', 'cat']
    """
    return name_of(int(value) if isinstance(value, (bool, np.bool_)) else value).strip()


LABEL = "label"
NUMBERS_IN_BATCH = 16 * CHUNK  # scores in a batch of arrays


@dataclass(eq=False)
class ClassColumns(guess.Columns):
    """The columns of the scores and of each role, chosen by the first header; see `Columns`.

    `scores` are names and patterns of columns. `classes` names the classes; without it the columns do.
    """

    scores: str = ""
    classes: Sequence[str] | None = None
    score_names: list[str] = field(default_factory=list)
    labels: Labels | None = None

    def pick(self, header: Sequence[str], where: str) -> list[str]:
        """The columns to read from a file with this header."""
        if self.chosen:
            missing = [name for name in self.score_names if name not in header]
            if missing:
                raise InvalidInput(f"score column {missing[0]!r} is not in {where}; the file before had it")
            for role, column in self.chosen.items():
                guess.check_column(role, column["name"], header, where, guessed=column["guessed"])
        else:
            self._choose_label(header, where)
            for role in ("time", "outcome time", "id"):
                self._choose(role, header, where)
            self._settle_times()
            others = [column["name"] for column in self.chosen.values()]
            self.score_names = score_columns(self.scores, header, others, where)
        self.check_times()
        return list(dict.fromkeys([*self.score_names, *(column["name"] for column in self.chosen.values())]))

    def _choose_label(self, header: Sequence[str], where: str) -> None:
        asked = self.asked.get(LABEL)
        usual = guess.usual_columns("outcome", header)
        name = asked if asked is not None else next(iter(usual), None)
        if name is None:
            raise InvalidInput(
                f"label column must be named, got no column of a usual name in {where}; say --label with one of "
                f"{', '.join(map(repr, header[:20]))}"
            )
        guess.check_column(LABEL, name, header, where)
        self.chosen[LABEL] = {"name": name, "guessed": asked is None}

    # ---- batches from Arrow ---------------------------------------------------------------------------------------

    def batch(self, part: Any, name: str, rows: Ints, file: int, options: Options) -> LogBatch:
        """A batch of an Arrow record batch; `rows` are counted from 1, without the header."""
        chosen = {role: part.column(column["name"]) for role, column in self.chosen.items()}
        where: Callable[[int], str] = lambda row: f"row {rows[row]:,} of {name}"  # noqa: E731 - two users
        scores = self._scores(part, where, options)
        labels = self._settled(scores.values.shape[1])
        told, show_label = _labels(arrow.codes(chosen[LABEL]), labels)

        def show(role: str, row: int) -> str:
            if role == LABEL:
                return show_label(row)
            if role in chosen:
                return arrow.shown(chosen[role][row])
            return self._shown_score(part, int(role), row)

        return LogBatch(
            scores,
            told,
            show,
            where,
            rows,
            file,
            arrow.times(chosen["time"], "time", options) if "time" in chosen else None,
            arrow.times(chosen["outcome time"], "outcome time", options) if "outcome time" in chosen else None,
            None,
            arrow.flat(chosen["id"], "id").to_pylist() if "id" in chosen else None,
        )

    def _scores(self, part: Any, where: Callable[[int], str], options: Options) -> Numbers:
        import pyarrow as pa

        if len(self.score_names) == 1:
            column = part.column(self.score_names[0])
            if not (
                pa.types.is_list(column.type)
                or pa.types.is_large_list(column.type)
                or pa.types.is_fixed_size_list(column.type)
            ):
                raise InvalidInput(
                    "scores must be several columns, one for each class, or one column of lists, got "
                    f"{self.score_names[0]!r} of {column.type}"
                )
            return _of_lists(column, where, self.labels.count if self.labels else 0, options)
        read = [arrow.numbers(part.column(name), "score", options) for name in self.score_names]
        return Numbers(np.stack([one.values for one in read], axis=1), np.stack([one.states for one in read], axis=1))

    def _shown_score(self, part: Any, column: int, row: int) -> str:
        if len(self.score_names) > 1:
            return arrow.shown(part.column(self.score_names[column])[row])
        return f"{part.column(self.score_names[0])[row].as_py()[column]!r:.60}"

    def _settled(self, K: int) -> Labels:
        """The classes; the first batch tells how many there are."""
        if self.labels is None:
            self.labels = Labels(_ways(self.classes, self.score_names, K))
        return self.labels

    def score_name(self, column: int) -> str:
        """How a message names the column of a score."""
        return self.score_names[column] if len(self.score_names) > 1 else f"{self.score_names[0]}[{column}]"


def _of_lists(column: Any, where: Callable[[int], str], K: int, options: Options) -> Numbers:
    """A column of lists as a matrix; all must have as many numbers."""
    import pyarrow.compute as pc

    sizes = pc.list_value_length(column).fill_null(-1).to_numpy(zero_copy_only=False)
    there = sizes >= 0
    K = K or int(sizes[there.argmax()] if there.any() else 0)
    odd = there & (sizes != K)
    if odd.any():
        row = int(odd.argmax())
        raise InvalidInput(f"scores must be {K} numbers, as in the rows before, got {sizes[row]} - at {where(row)}")
    values = np.full((len(sizes), K), np.nan)
    states = np.full(values.shape, MISSING, dtype=np.int8)
    inner = arrow.numbers(pc.list_flatten(column), "score", options)
    values[there] = inner.values.reshape(int(there.sum()), K)
    states[there] = inner.states.reshape(int(there.sum()), K)
    return Numbers(values, states)


def _ways(classes: Sequence[str] | None, columns: Sequence[str], K: int) -> list[list[str]]:
    """The names that the classes may have."""
    if not 2 <= K <= MOST_CLASSES:
        raise InvalidInput(f"scores must be of 2 to {MOST_CLASSES:,} classes, got {K}")
    if classes is not None:
        names = [str(name) for name in classes]
        if len(names) != K or len(set(names)) != K:
            raise InvalidInput(f"classes must be {K} names, one for each column of scores, got {len(set(names))}")
        return [names]
    return class_names(columns) if len(columns) == K else [[str(k) for k in range(K)]]


def _labels(codes: Codes, labels: Labels) -> tuple[Numbers, Callable[[int], str]]:
    """The column of each label, and how a message shows one."""
    known = codes.indices >= 0
    if not labels.settled and known.any():
        labels.settle(codes.names, np.bincount(codes.indices[known], minlength=len(codes.names)))
    columns = np.append(labels.columns(codes.names), -1)[codes.indices]
    states = np.where(~known, MISSING, np.where(columns < 0, UNREADABLE, OK)).astype(np.int8)
    values = np.where(columns < 0, np.nan, columns)
    return Numbers(values, states), lambda row: repr(codes.names[codes.indices[row]])[:60]


# ---- arrays ------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class ClassArrays:
    """Scores and labels from Python: a matrix or a data frame of K columns, and a list, an array or a series."""

    matrix: Any
    names: list[str]
    labels: Labels
    options: Options

    @classmethod
    def of(cls, scores: Any, classes: Any, options: Options) -> ClassArrays:
        """The matrix, and the names of its columns where it is a frame."""
        try:
            matrix = np.asarray(to_matrix(scores))
        except ValueError as error:
            raise InvalidInput("scores must be a matrix, a column for each class, got a ragged list") from error
        named = column_names(scores)
        names = [str(k) for k in range(matrix.shape[1])] if named is None else named
        return cls(matrix, names, Labels(_ways(classes, names, matrix.shape[1])), options)

    def _number(self, value: Any) -> float | None:
        percent = self.options.score_kind == "percent"
        return number_of(value, decimal=self.options.decimal, percent=percent)

    def score_name(self, column: int) -> str:
        """How a message names the column of a score."""
        return self.names[column]

    def batches(self, labels: Any, times: Any, outcome_times: Any) -> Iterator[LogBatch]:
        """The columns, checked for their lengths, in batches."""
        given = {"labels": labels, "times": times, "outcome_times": outcome_times}
        read = {
            name: read_column(name, values) for name, values in given.items() if values is not None or name == "labels"
        }
        columns = {name: column for name, (column, _) in read.items()}
        check_lengths(scores=len(self.matrix), **{name: len(column) for name, column in columns.items()})
        size = max(1024, min(CHUNK, NUMBERS_IN_BATCH // self.matrix.shape[1]))
        return (self._batch(at, at + size, columns, read) for at in range(0, len(self.matrix), size))

    def _batch(self, at: int, end: int, columns: dict[str, Any], read: dict[str, Any]) -> LogBatch:
        part = {name: column[at:end] for name, column in columns.items()}
        given = self.matrix[at:end]
        flat = numbers_by(given.reshape(-1), self._number)
        scores = Numbers(flat.values.reshape(given.shape), flat.states.reshape(given.shape))
        told, show_label = _labels(codes_of(part["labels"], at, LABEL), self.labels)
        roles = {"time": "times", "outcome time": "outcome_times"}

        def show(role: str, row: int) -> str:
            if role == LABEL:
                return show_label(row)
            value = part[roles[role]][row] if role in roles else self.matrix[at + row, int(role)]
            plain_value = value.item() if isinstance(value, np.generic) else value
            return str(value) if isinstance(value, np.datetime64) else f"{plain_value!r:.60}"

        def moments(name: str) -> Any:
            return times_by(part[name], self.options, zoned=read[name][1]) if name in part else None

        rows = np.arange(at, at + len(scores.values))
        where: Callable[[int], str] = lambda row: f"row {at + row}"  # noqa: E731 - one line
        return LogBatch(scores, told, show, where, rows, 0, moments("times"), moments("outcome_times"))


# ---- rows --------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class ClassReader(RowReader):
    """Checks rows of K scores and a label; chunks have a matrix of scores, and the column of each label as outcome."""

    source: ClassColumns | ClassArrays = field(kw_only=True)
    least: int = FIRST_EVENTS

    @property
    def labels(self) -> Labels:
        return cast(Labels, self.source.labels)  # the first batch has settled them

    def _probabilities(self, batch: LogBatch) -> Vector:
        """Rows that can be used become probabilities, by the kernel that a `MultiCalibrator` checks with."""
        scores = np.ascontiguousarray(batch.scores.values, dtype=np.float64)
        if self.options.score_kind == "percent":
            scores = scores / 100.0
        logits = self.options.score_kind == "logit"
        good = ~np.any([rows for rows, *_ in _wrong(scores, batch.scores.states, logits=logits)], axis=0)
        usable = scores[good]
        K = scores.shape[1]
        vector.ready(K, usable.reshape(-1), int(logits))
        scores = scores.copy() if scores is batch.scores.values else scores
        scores[good] = usable
        return scores

    def _look_at_scores(self, batch: LogBatch, scores: Vector, look: Any, must: Any) -> None:  # noqa: ARG002 - as its base
        kind = self.options.score_kind
        given = batch.scores.values / (100.0 if kind == "percent" else 1.0)
        for rows, bad, reason, requirement in _wrong(given, batch.scores.states, logits=kind == "logit"):
            if not rows.any():
                continue
            hint = self._what_they_look_like(batch, rows, reason)

            def sentence(row: int, bad: Any = bad, requirement: str = requirement, hint: str = hint) -> str:
                if bad is None:
                    total = math.fsum(given[row].tolist())
                    return f"scores of an event must {requirement}, got {total:.9g} - at {batch.where(row)}{hint}"
                column = int(bad[row].argmax())
                missing = batch.scores.states[row, column] == MISSING
                got = "nothing" if missing else batch.show(str(column), row)
                end = self._how_to_skip if missing else hint
                place = f"{batch.where(row)}, column {self.source.score_name(column)!r}"
                return f"score must be {requirement}, got {got} - at {place}{end}"

            look(rows, reason, sentence)

    def _what_they_look_like(self, batch: LogBatch, rows: Flags, reason: str) -> str:
        """A hint at another kind of score, where most rows are wrong."""
        if self.options.score_kind != "probability" or not guess.too_many_to_skip(int(rows.sum()), len(rows)):
            return ""
        values = batch.scores.values[rows]
        if reason == WRONG_SUM and np.median(np.abs(values.sum(axis=1) - 100.0)) < 1.0:
            how = self.options.how("--score-kind percent", "score_kind='percent'")
            return f"; the scores look like percent: {how}"
        if reason == NEGATIVE or (reason == WRONG_SUM and values.max() > 1.0):
            return f"; the scores look like logits: {self.options.how('--logits', 'score_kind=' + repr('logit'))}"
        return ""

    def _outcomes(self, batch: LogBatch) -> Vector:
        return batch.outcomes.values

    def _look_at_outcomes(self, batch: LogBatch, values: Vector, look: Any, must: Any) -> None:  # noqa: ARG002 - as its base
        """A missing label is no mistake: the event is forecast, and not judged."""
        states = batch.outcomes.states
        if batch.outcome_times is not None:
            untimed = batch.outcome_times.states == MISSING
            late = must("outcome time", "there where there is a label", "missing")
            look(untimed & (states != MISSING), "outcome time is missing", late)
        unknown = must(LABEL, self.labels.words())
        look(
            states == UNREADABLE,
            "label is no class",
            lambda row: unknown(row) + self.labels.hint(batch.show(LABEL, row).strip("'\"")),
        )


NEGATIVE, WRONG_SUM = "score is negative", "scores do not sum to 1"


def _wrong(scores: Vector, states: Any, *, logits: bool) -> list[tuple[Flags, Any, str, str]]:
    """(rows, places, reason, requirement) of all that may be wrong; no row is there twice."""
    number = "a finite number" if logits else "a number of 0 or more"
    kinds: list[tuple[Any, str, str]] = [
        (states == MISSING, "score is missing", number),
        ((states == UNREADABLE) | ((states == OK) & ~(np.abs(scores) < 1e300)), "score is not a number", number),
    ]
    if not logits:
        kinds.append(((states == OK) & (scores < 0.0), NEGATIVE, "0 or more"))
    found: list[tuple[Flags, Any, str, str]] = []
    before = np.zeros(len(scores), dtype=bool)
    for places, reason, requirement in kinds:
        rows = places.any(axis=1) & ~before
        before |= rows
        found.append((rows, places, reason, requirement))
    if not logits:
        with np.errstate(invalid="ignore", over="ignore"):
            off = ~(np.abs(scores.sum(axis=1) - 1.0) <= vector.TOLERANCE) & ~before
        found.append((off, None, WRONG_SUM, f"sum to 1 within {vector.TOLERANCE:g}"))
    return found
