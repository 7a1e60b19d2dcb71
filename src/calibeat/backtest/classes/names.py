"""Which columns hold the scores, what the classes are called, and which column a label means."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from calibeat._util.types import Ints
from calibeat._util.words import did_you_mean
from calibeat.errors import InvalidInput

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
    if isinstance(value, (bool, np.bool_)):
        return str(int(value))
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return str(int(value))
    return str(value).strip()
