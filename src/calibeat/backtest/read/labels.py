"""Many classes in a log: the columns of their scores, their names, what a label means, and checks of K scores."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from calibeat._util.columns import column_names, to_matrix
from calibeat._util.times import MISSING, OK, UNREADABLE, States
from calibeat._util.types import Flags, Ints, Vector
from calibeat._util.words import did_you_mean
from calibeat.core import vector
from calibeat.errors import InvalidInput
from calibeat.hosts.multi import MOST_CLASSES

from .rows import Codes, Numbers, name_of

# ---- names -------------------------------------------------------------------------------------------------------

_MARKS = "_.-: /|"  # between what all columns share and the name of a class


def score_columns(asked: str, header: Sequence[str], others: Sequence[str], where: str) -> list[str]:
    """The columns of the scores: names and patterns between commas, each column once, in the order given.

    A pattern takes its columns in the order of the header, without those in `others`, which hold something else.

    >>> score_columns("p_*", ["y", "p_cat", "p_dog"], ["y"], "log.csv")
    ['p_cat', 'p_dog']
    """
    found: list[str] = []
    for name in (part.strip() for part in asked.split(",")):
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


NEGATIVE, WRONG_SUM = "score is negative", "scores do not sum to 1"


class ClassesOfLog:
    """The classes in the order of their columns of scores, and the column of each label.

    `asked` names the classes. Without it the columns do: the first labels settle which of their names it is. Labels
    that are none of them may be column numbers. `columns` are the names of the columns of scores; of a column of lists
    there is one.
    """

    def __init__(self, asked: Sequence[Any] | None = None, columns: Sequence[str] = ()) -> None:
        self._asked, self.columns = asked, list(columns)
        self._ways: list[list[str]] = []
        self.names: list[str] = []
        self.numbered = False  # whether labels are column numbers
        self._index: dict[str, int] | None = None

    @property
    def count(self) -> int:
        """How many there are; 0 before the first scores were seen."""
        return len(self.names)

    def pick(self, asked: str, header: Sequence[str], others: Sequence[str], where: str) -> None:
        """Choose the columns of the scores; see `score_columns`."""
        self.columns = score_columns(asked, header, others, where)

    def begin(self, K: int) -> None:
        """The first scores tell how many classes there are.

        Raises
        ------
        InvalidInput : if there are too few or too many, or not as many names.
        """
        if self.names:
            return
        if not 2 <= K <= MOST_CLASSES:
            raise InvalidInput(f"scores must be of 2 to {MOST_CLASSES:,} classes, got {K}")
        if self._asked is not None:
            names = [str(name) for name in self._asked]
            if len(names) != K or len(set(names)) != K:
                raise InvalidInput(f"classes must be {K} names, one for each column of scores, got {len(set(names))}")
            self._ways = [names]
        else:
            self._ways = class_names(self.columns) if len(self.columns) == K else [[str(k) for k in range(K)]]
        self.names = self._ways[0]

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

    def columns_of(self, values: Sequence[Any]) -> Ints:
        """The column of each label, -1 for one that is no class."""
        index = self._index or {}
        return np.array([index.get(plain(value), -1) for value in values], dtype=np.int64)

    def labels(self, codes: Codes) -> Numbers:
        """The column of each label of a batch."""
        known = codes.indices >= 0
        if self._index is None and known.any():
            self.settle(codes.names, np.bincount(codes.indices[known], minlength=len(codes.names)))
        columns = np.append(self.columns_of(codes.names), -1)[codes.indices]
        states = np.where(~known, MISSING, np.where(columns < 0, UNREADABLE, OK)).astype(np.int8)
        return Numbers(np.where(columns < 0, np.nan, columns), states)

    def probabilities(self, scores: Numbers, kind: str) -> Vector:
        """Rows that can be used become probabilities, by the kernel that a `MultiCalibrator` checks with."""
        values = np.array(scores.values, dtype=np.float64, order="C")
        if kind == "percent":
            values /= 100.0
        good = ~np.any([rows for rows, *_ in self.wrong(values, scores.states, kind)], axis=0)
        usable = values[good]
        vector.ready(values.shape[1], usable.reshape(-1), int(kind == "logit"))
        values[good] = usable
        return values

    def wrong(self, scores: Vector, states: States, kind: str) -> list[tuple[Flags, Any, str, str]]:
        """(rows, places, reason, requirement) of all that may be wrong with K scores; no row is there twice."""
        number = "a finite number" if kind == "logit" else "a number of 0 or more"
        kinds: list[tuple[Any, str, str]] = [
            (states == MISSING, "score is missing", number),
            ((states == UNREADABLE) | ((states == OK) & ~(np.abs(scores) < 1e300)), "score is not a number", number),
        ]
        if kind != "logit":
            kinds.append(((states == OK) & (scores < 0.0), NEGATIVE, "0 or more"))
        found: list[tuple[Flags, Any, str, str]] = []
        before = np.zeros(len(scores), dtype=bool)
        for places, reason, requirement in kinds:
            rows = places.any(axis=1) & ~before
            before |= rows
            found.append((rows, places, reason, requirement))
        if kind != "logit":
            with np.errstate(invalid="ignore", over="ignore"):
                off = ~(np.abs(scores.sum(axis=1) - 1.0) <= vector.TOLERANCE) & ~before
            found.append((off, None, WRONG_SUM, f"sum to 1 within {vector.TOLERANCE:g}"))
        return found

    def other_kind(self, scores: Vector, reason: str) -> str:
        """What scores look like that are wrong as probabilities for this reason: percent, logits or nothing."""
        if reason == WRONG_SUM and np.median(np.abs(scores.sum(axis=1) - 100.0)) < 1.0:
            return "percent"
        return "logit" if reason == NEGATIVE or (reason == WRONG_SUM and scores.max() > 1.0) else ""

    def score_name(self, column: int) -> str:
        """How a message names the column of a score."""
        return self.columns[column] if len(self.columns) > 1 else f"{self.columns[0]}[{column}]"

    def words(self) -> str:
        """The classes as a message shows them."""
        shown = ", ".join(map(repr, self.names[:8])) + (", ..." if self.count > 8 else "")
        if self.numbered and self.names != [str(k) for k in range(self.count)]:
            return f"a column number from 0 to {self.count - 1} ({shown})"
        return f"one of the {self.count} classes {shown}"

    def hint(self, value: Any) -> str:
        """The end of a message about a label that is no class."""
        return did_you_mean(str(value), self.names)

    @property
    def note(self) -> str:
        """What a reader should know of the classes."""
        shown = ", ".join(map(repr, self.names[:12])) + (f" and {self.count - 12:,} more" if self.count > 12 else "")
        numbers = " The labels are column numbers, from 0 on." if self.numbered else ""
        return f"The {self.count:,} classes are {shown}.{numbers}"


def plain(value: Any) -> str:
    """A label as it reads: 1, "1" and 1.0 are one, and so are True and 1.

    >>> [plain(value) for value in (1, "1 ", 1.0, True, "cat")]
    ['1', '1', '1', '1', 'cat']
    """
    return name_of(int(value) if isinstance(value, (bool, np.bool_)) else value).strip()


def classes_of(scores: Any, asked: Any) -> tuple[Any, ClassesOfLog]:
    """A matrix of scores, and its classes: those asked for, the columns of a frame, or column numbers.

    Raises
    ------
    InvalidInput : if rows have different lengths, or there are not as many names as columns.
    """
    try:
        matrix = np.asarray(to_matrix(scores))
    except ValueError as error:
        raise InvalidInput("scores must be a matrix, a column for each class, got a ragged list") from error
    named = column_names(scores)
    found = ClassesOfLog(asked, [str(k) for k in range(matrix.shape[1])] if named is None else named)
    found.begin(matrix.shape[1])
    return matrix, found
