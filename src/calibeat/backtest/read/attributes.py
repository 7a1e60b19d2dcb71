"""Attributes of the events of a log: in which columns they stand, their values as words, and the names of those.

An attribute is a column, or the hour, the weekday or the month of a column of times.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from typing import Any

import numpy as np

from calibeat._util.columns import Column
from calibeat._util.times import OK, PARTS_OF_TIME, UNREADABLE, Clock, Times, part_of_time
from calibeat._util.types import Flags, Ints, Vector
from calibeat.backtest.options import Options
from calibeat.errors import InvalidInput
from calibeat.hosts.groups import Groups, Value, WordMaker, Words, plain_value

from .rows import check_column

MOST_NAMES = 2**17  # of values, for the report
_PART = re.compile(rf"\s*({'|'.join(PARTS_OF_TIME)})\s*\(\s*(.+?)\s*\)\s*")
_SEED_BITS = 0xFFFFFFFFFFFFFFFF


@dataclass(frozen=True)
class Attribute:
    """An attribute by its name in the report, the column where it stands, and which part of a time it is, if any."""

    name: str
    column: str
    part: str | None = None

    @classmethod
    def of(cls, name: str, header: Iterable[str] = ()) -> Attribute:
        """From what a person writes: a column that is there goes before a part of a time.

        >>> Attribute.of("hour( at )")
        Attribute(name='hour(at)', column='at', part='hour')
        """
        match = _PART.fullmatch(name)
        if name in header or match is None:
            return cls(name, name)
        return cls(f"{match[1]}({match[2]})", match[2], match[1])


def names_in(text: str) -> list[str]:
    """The attributes that a person types, between commas that are in no brackets.

    >>> names_in("country, device,hour(at)")
    ['country', 'device', 'hour(at)']
    """
    return [name.strip() for name in re.split(r",(?![^(]*\))", text) if name.strip()]


class _Book(WordMaker):
    """Makes words, and notes the names of the first values."""

    most = MOST_NAMES

    def _note(self, word: int, value: Value) -> None:
        if len(self.book) < self.most:
            self.book[word] = value


@dataclass(eq=False)
class GroupsOfLog:
    """The attributes of a log, and what is known of their values so far.

    `attributes` are those of `groups`, in order. Hours, weekdays and months are those of the time zone of the options,
    or of UTC.
    """

    attributes: list[Attribute]
    groups: Groups
    options: Options
    _book: _Book = field(init=False)
    _clocks: dict[str, Clock] = field(default_factory=dict)  # by attribute: columns of times are not compared

    def __post_init__(self) -> None:
        noted = Groups(self.groups.attributes, crossings=[], seed=self.groups.seed, names=True)
        self._book = _Book(noted, self.groups.seed or 0)

    @classmethod
    def of(cls, asked: Any, options: Options, header: Sequence[str] = ()) -> GroupsOfLog:
        """From names, text of names between commas, or a `Groups`.

        Raises
        ------
        InvalidInput : if they are no names, or there are too many.
        """
        plan = asked.refuse_numbers("a backtest") if isinstance(asked, Groups) else None
        names = plan.attributes if plan else names_in(asked) if isinstance(asked, str) else asked
        checked = Groups(names, crossings=[]).refuse_numbers("a backtest")  # what is wrong with them is said there
        attributes = [Attribute.of(name, header) for name in checked.attributes]
        settings: dict[str, Any] = {}
        if plan is not None:
            crossings = [[Attribute.of(name, header).name for name in pair] for pair in plan.crossings]
            settings = {"crossings": crossings, "cells": plan.cells}
        seed = options.seed & _SEED_BITS if plan is None or plan.seed is None else plan.seed
        groups = Groups([attribute.name for attribute in attributes], seed=seed, **settings)
        return cls(attributes, groups, options)

    def settle(self, header: Sequence[str], where: str) -> None:
        """Once the columns of the log are known: a column named as a part of a time is a column.

        Raises
        ------
        InvalidInput : if a column is not there.
        """
        for at, attribute in enumerate(self.attributes):
            self.attributes[at] = found = Attribute.of(attribute.name, header)
            check_column(f"group {found.name}" if found.part else "group", found.column, header, where)

    def check_known(self, roles: Mapping[str, str]) -> None:
        """Refuse attributes that tell the outcome: `roles` are names of columns by role.

        Raises
        ------
        InvalidInput : if an attribute is made of the outcome, or of the time at which it was known.
        """
        for role in ("outcome", "outcome time"):
            for attribute in self.attributes:
                if attribute.column == roles.get(role):
                    got = f"got {attribute.name!r}, which is made of the {role}"
                    raise InvalidInput(f"groups must be known when the score is issued, {got}")

    @property
    def columns(self) -> list[str]:
        """The columns of the log that they stand in."""
        return list(dict.fromkeys(attribute.column for attribute in self.attributes))

    @property
    def notes(self) -> list[str]:
        """What a reader should know of how they were read."""
        parts = [attribute.name for attribute in self.attributes if attribute.part]
        zone = self.options.time_zone or "UTC"
        count = "hours count from 0, weekdays from Monday, which is 0, months from 1"
        return [f"The values of {', '.join(parts)} are those of the time zone {zone}; {count}."] if parts else []

    # ---- values as words -----------------------------------------------------------------------------------------

    def words_of(self, k: int, distinct: list[Any], indices: Ints, where: Callable[[int], str]) -> Words:
        """The words of a column as indices into distinct values.

        Raises
        ------
        InvalidInput : if a value is none that an attribute can have.
        """
        try:
            words = self._book.of_values(k, distinct)
        except InvalidInput:
            self._refuse(self.attributes[k].name, distinct, indices, where)
            raise  # pragma: no cover - one of them is bad
        return np.asarray(words[indices])

    def _refuse(self, name: str, distinct: list[Any], indices: Ints, where: Callable[[int], str]) -> None:
        """Raise the error of the first row whose value is none, with its row."""
        bad: dict[int, str] = {}
        for at, value in enumerate(distinct):
            try:
                plain_value(name, value)
            except InvalidInput as error:
                is_date = hasattr(value, "year")
                bad[at] = f"{error}; say hour({name}), weekday({name}) or month({name})" if is_date else str(error)
        rows = np.flatnonzero(np.isin(indices, list(bad)))
        if len(rows):
            raise InvalidInput(f"{bad[int(indices[rows[0]])]} - at {where(int(rows[0]))}")

    def words_of_times(self, k: int, column: Times, given: Any, where: Callable[[int], str]) -> Words:
        """The words of the hours, weekdays or months of a column of times, `given` as it came.

        A missing time is a value of its own.

        Raises
        ------
        InvalidInput : if a time cannot be read, unless bad rows are skipped, or the times are no dates.
        """
        words = np.empty(len(column.states), dtype=np.uint64)
        self._book.of_column(k, Column(self.parts_of(k, column, given, where)), words)
        return words

    def parts_of(self, k: int, column: Times, given: Any, where: Callable[[int], str]) -> Vector:
        """The hours, weekdays or months of a column of times, NaN where one is missing."""
        attribute = self.attributes[k]
        how = self.options.how("--time-zone NAME", "time_zone=NAME")
        clock = self._clocks.setdefault(attribute.name, Clock(self.options.zone, how))
        role = f"{attribute.column} of {attribute.name}"
        found = clock.read("time", column, where)
        if not clock.dated and (found.states == OK).any():
            raise InvalidInput(f"{attribute.name} needs dates, got seconds of an unknown start in {attribute.column!r}")
        bad: Flags = found.states == UNREADABLE
        if bad.any() and not self.options.skip_bad:
            row = int(bad.argmax())
            got = getattr(given[row], "as_py", lambda: given[row])()  # of Arrow, or of NumPy
            raise InvalidInput(f"{role} must be a date (ISO 8601) or a number, got {got!r:.60} - at {where(row)}")
        values = np.full(len(found.states), np.nan)
        there = found.states == OK
        zone = self.options.zone or UTC
        values[there] = part_of_time(str(attribute.part), found.values[there], zone)
        return values

    def words_of_columns(self, columns: Mapping[str, Any], events: int, first_row: int = 0) -> Ints:
        """Those of columns from Python, as `Calibrator.run` makes them: events x attributes."""
        return self._book.of_events(dict(columns), events, first_row).reshape(events, len(self.attributes))

    # ---- names ---------------------------------------------------------------------------------------------------

    def keep_all_names(self) -> None:
        """Note the name of every value, however many there are: `values_of` needs them."""
        self._book.most = sys.maxsize

    def values_of(self, words: Sequence[int]) -> dict[str, Value]:
        """The values of an event by attribute."""
        book = self._book.book
        values = (book[word & _SEED_BITS] for word in words)
        return {attribute.name: value for attribute, value in zip(self.attributes, values, strict=True)}

    def name_of(self, k: int, word: int) -> str:
        """A value as the report shows it; its word where the name was not kept.

        >>> groups = GroupsOfLog.of("weekday(at)", Options())
        >>> groups.words_of_columns({"weekday(at)": [0, 6, None]}, 3).shape
        (3, 1)
        >>> [groups.name_of(0, word) for word in groups._book.book]
        ['Mon', 'Sun', '(missing)']
        """
        unsigned = word & _SEED_BITS
        if unsigned not in self._book.book:
            return f"{unsigned:016x}"
        value, part = self._book.book[unsigned], self.attributes[k].part
        if value is None:
            return "(missing)"
        if part == "weekday" and isinstance(value, int):
            return ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")[value]
        if part == "month" and isinstance(value, int):
            return ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")[value - 1]
        return str(value) if value != "" else "(empty)"

    def rank_of(self, word: int) -> tuple[int, float, str]:
        """What puts values in the order in which people read them: numbers by size, then text, then what is missing."""
        value = self._book.book.get(word & _SEED_BITS)
        if isinstance(value, int):
            return 0, float(value), ""
        if isinstance(value, str):
            digits = re.fullmatch(r"\s*(-?\d+)\s*", value)
            return (0, float(digits[1]), value) if digits else (1, 0.0, value)
        return 2, 0.0, ""


# ---- columns that could be attributes ----------------------------------------------------------------------------

LEAST_EVENTS = 100  # of a segment that is judged
MOST_VALUES = 50
LOOKED_AT = 100_000  # rows


def could_be_attribute(values: Iterable[Any]) -> bool:
    """Whether a column splits a log into segments: it has a few values, and two of them are common.

    >>> could_be_attribute(["fr", "it"] * 100), could_be_attribute(range(1000)), could_be_attribute([1] * 1000)
    (True, False, False)
    """
    counts: dict[Any, int] = {}
    for value in values:
        if isinstance(value, float) and not value.is_integer():  # a number; or missing, if it is none
            if value == value:  # noqa: PLR0124 - not NaN
                return False
            value = None  # noqa: PLW2901
        try:
            counts[value] = counts.get(value, 0) + 1
        except TypeError:  # a list or a dict
            return False
        if len(counts) > MOST_VALUES:
            return False
    return len(counts) > 1 and sorted(counts.values())[-2] >= LEAST_EVENTS
