"""Attributes of events on the side of a host: which there are, their values as words, and the table of cells.

`Groups` says which attributes a calibrator looks at. `GroupTable` is the state of one stream: the cells that
`core.groups` fills, the secret that words are made with, and the book of names. The rest of the state is in the row.
"""

from __future__ import annotations

import base64
import hashlib
import math
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import combinations
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from calibeat._compiled import EventWords
from calibeat._util.check import check_whole, shown
from calibeat._util.columns import Column, Table, as_frame, is_absent, read_column
from calibeat._util.extras import need
from calibeat._util.processes import new_lock
from calibeat._util.types import Ints, Vector
from calibeat.core.auto import Lanes
from calibeat.core.groups import (
    CELL_NUMBERS,
    CELL_WIDTH,
    COLUMN,
    EVENTS,
    EVICTED,
    GROUP_STALENESS,
    GROUP_SUMS,
    GROUP_TEMPER,
    GROUPED_RECEIPT_WIDTH,
    INFO,
    KNOWN_WIDTH,
    LANES,
    LOG_E,
    MOST_ATTRIBUTES,
    MOST_COLUMNS,
    N0,
    NATURAL,
    ONES,
    OPENED,
    PRIOR,
    SUM_EXPERT,
    SUM_FORECAST,
    SUM_SCORE,
    TAU0,
    TAU_LEAST,
    TAU_MOST,
    WAYS,
    WEIGHTS,
    Cells,
    cell_limits,
    forget_touched,
    row_limits,
)
from calibeat.core.layout import TOTAL, N
from calibeat.core.limits import MOST_COUNT, Block
from calibeat.core.method import Method
from calibeat.core.randomness import cross_words
from calibeat.errors import InvalidInput

from .numbers import MISSING, NOT_YET, OCTAVES, OUTSIDE, Cuts, Known, Number, plain_number, plain_numbers

Words = npt.NDArray[np.uint64]
Value = str | int | bool | None
Attributes: TypeAlias = "Sequence[str | Number]"  # in place of a `Groups`

PAIRS_UP_TO = 6  # attributes that are all crossed with each other, unless the user says otherwise
MOST_CELLS = 2**26
CACHED = 65_536  # words that are kept for each attribute, for single events
AT_ONCE = 2**18  # values of a column that are read at once: their words take no more memory than those of these
ALPHA = 0.05  # the false discovery rate of `segments`
_MASK = 0xFFFFFFFFFFFFFFFF
_LEAST_INT, _MOST_INT = -(2**63), 2**63 - 1

# A slot as a file or a database keeps it: 24 numbers of 8 bytes.
SLOT = np.dtype([("word", "<u8"), ("first", "<u8"), ("second", "<u8"), ("numbers", "<f8", (CELL_NUMBERS,))])
SlotArray = npt.NDArray[np.void]


# ---- which attributes ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, init=False)
class Groups:
    """The attributes that a calibrator looks at beside the score.

    Parameters
    ----------
    attributes : their names, at most 16, or a `Number` for one whose values are numbers, such as age. Their order is
        that of values given as a sequence.
    crossings : pairs of attributes that get an offset of their own, beside that of each attribute. ``"auto"`` takes
        every pair of up to six attributes, and none of more. A list of pairs of names takes those; ``[]`` takes none.
        Attributes and crossings together are at most 32.
    cells : how many values, of all attributes and crossings together, are remembered: a power of two, 8 or more. A
        cell takes 200 bytes. Where there is no room, the value that is worth least is forgotten.
    seed : 64 bits, the secret of the hashes; None draws it. Nobody can choose values that collide without it.
    names : whether values are kept, so that `segments` can show them. Otherwise only their hashes are.
    extra : ``"ignore"`` takes dicts and data frames with further names; ``"refuse"`` does not.

    Raises
    ------
    InvalidInput : a name is no string, or is there twice; there are too many attributes or columns; a crossing is not
        of two attributes, or is there twice; `cells`, `seed`, `names` or `extra` is out of range.

    >>> Groups(["country", "device"]).columns
    ('country', 'device', 'country x device')
    >>> Groups(["country", "device", "hour"], crossings=[("country", "hour")]).columns
    ('country', 'device', 'hour', 'country x hour')
    >>> Groups(["country", Number("age")]).columns
    ('country', 'age', 'country x age')
    """

    attributes: tuple[str, ...]
    crossings: tuple[tuple[str, str], ...]
    cells: int
    seed: int | None
    names: bool
    extra: str
    numbers: tuple[Number, ...]  # those of the attributes whose values are numbers

    def __init__(
        self,
        attributes: Sequence[str | Number],
        crossings: Sequence[Sequence[str]] | str = "auto",
        cells: int = 2**14,
        seed: int | None = None,
        names: bool = False,
        extra: str = "refuse",
    ) -> None:
        checked = _check_attributes(attributes)
        size = check_whole("cells of groups", cells, WAYS, MOST_CELLS)
        if size & (size - 1):
            raise InvalidInput(f"cells of groups must be a power of two, got {size}")
        if not isinstance(names, (bool, np.bool_)):
            raise InvalidInput(f"names of groups must be True or False, got {shown(names)}")
        if extra not in ("refuse", "ignore"):
            raise InvalidInput(f'extra of groups must be "refuse" or "ignore", got {shown(extra)}')
        fields = {
            "attributes": checked,
            "crossings": _check_crossings(checked, crossings),
            "cells": size,
            "seed": None if seed is None else check_whole("seed of groups", seed, 0, _MASK),
            "names": bool(names),
            "extra": extra,
            "numbers": tuple(attribute for attribute in attributes if isinstance(attribute, Number)),
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    @classmethod
    def of(cls, groups: Any) -> Groups:
        """From what `Calibrator` takes: a `Groups`, or the names of the attributes."""
        return groups if isinstance(groups, Groups) else cls(groups)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns: attributes first, then crossings."""
        return (*self.attributes, *(f"{a} x {b}" for a, b in self.crossings))

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The crossings by the numbers of their attributes."""
        return [(self.attributes.index(a), self.attributes.index(b)) for a, b in self.crossings]

    @property
    def row_width(self) -> int:
        """How many numbers of a row are theirs."""
        return GROUP_SUMS + 4 * len(self.columns)

    def limits(self) -> list[Block]:
        """What they can be."""
        return row_limits(len(self.columns))

    @property
    def identity(self) -> str:
        """What tells the receipts of a stream with these groups from others."""
        return repr((self.attributes, self.crossings, *self.numbers))

    @property
    def given(self) -> list[str | Number]:
        """The attributes as they were given: names and numbers."""
        numbers = {number.name: number for number in self.numbers}
        return [numbers.get(name, name) for name in self.attributes]

    def refuse_numbers(self, where: str) -> Groups:
        """Themselves, unless a value is a number: not every host knows where its cells are.

        Raises
        ------
        InvalidInput : an attribute is a `Number`.
        """
        if self.numbers:
            raise InvalidInput(
                f"groups of {where} must be names of attributes, got Number({self.numbers[0].name!r}) - "
                "cut its values into bands first, or use Calibrator(groups=...)"
            )
        return self

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able data; `from_dict` is the inverse."""
        return {
            "attributes": [asdict(a) if isinstance(a, Number) else a for a in self.given],
            "crossings": [list(pair) for pair in self.crossings],
            "cells": self.cells,
            "seed": None if self.seed is None else f"{self.seed:016x}",
            "names": self.names,
            "extra": self.extra,
        }

    @classmethod
    def from_dict(cls, data: Any) -> Groups:
        """The inverse of `to_dict`.

        Raises
        ------
        InvalidInput : a field is missing or holds what no groups can hold.
        """
        fields = ("attributes", "crossings", "cells", "seed", "names", "extra")
        if not isinstance(data, Mapping) or not set(fields) <= set(data):
            raise InvalidInput(f"groups must be an object with {', '.join(fields)}, got {shown(data)}")
        seed = None if data["seed"] is None else _word_from_hex("seed of groups", data["seed"])
        attributes = data["attributes"]
        if isinstance(attributes, list):
            attributes = [_number_from_dict(entry) if isinstance(entry, dict) else entry for entry in attributes]
        others = {name: data[name] for name in fields if name not in ("attributes", "seed")}
        return cls(attributes, seed=seed, **others)

    # ---- values by their names -----------------------------------------------------------------------------------

    def in_order(self, values: Any) -> Sequence[Any]:
        """The values of one event in the order of the attributes, from a dict or a sequence.

        Raises
        ------
        InvalidInput : a name is missing or unknown, or the sequence has another length.
        """
        if isinstance(values, Mapping):
            self.check_names(values)
            return [values[name] for name in self.attributes]
        if isinstance(values, (tuple, list)) or (isinstance(values, np.ndarray) and values.ndim == 1):
            if len(values) != len(self.attributes):
                raise InvalidInput(f"groups must be {self._wanted()}, in this order, got {len(values)} values")
            return values  # type: ignore[return-value]  # an array is as good
        raise InvalidInput(f"groups must be a dict or a sequence of {self._wanted()}, got {shown(values)}")

    def check_names(self, given: Iterable[Any]) -> None:
        """Raise `InvalidInput` unless each attribute is there, and nothing else that is not to be ignored."""
        names = set(given)
        if missing := [name for name in self.attributes if name not in names]:
            raise InvalidInput(f"groups must be {self._wanted()}, got none for {missing[0]!r}")
        if self.extra == "refuse" and (unknown := names.difference(self.attributes)):
            first = min(unknown, key=str)
            raise InvalidInput(
                f"groups must be {self._wanted()}, got {shown(first)} too - Groups(..., extra='ignore') takes it"
            )

    def _wanted(self) -> str:
        return ", ".join(self.attributes)


def _number_from_dict(data: dict[str, Any]) -> Number:
    if set(data) != {"name", "first", "cells", "edges"}:
        raise InvalidInput(f"number must be an object with name, first, cells, edges, got {shown(data)}")
    return Number(**data)


def _check_attributes(names: Any) -> tuple[str, ...]:
    if isinstance(names, (str, bytes)) or not isinstance(names, (Sequence, np.ndarray)):
        raise InvalidInput(f"groups must be a list of names of attributes, got {shown(names)}")
    names = [name.name if isinstance(name, Number) else name for name in names]
    for name in names:
        if not isinstance(name, str) or not name:
            raise InvalidInput(f"groups must be names of attributes, got {shown(name)}")
        canonical("name of an attribute", str(name))
    attributes = tuple(str(name) for name in names)
    if not attributes:
        raise InvalidInput("groups must have an attribute, got none - leave groups out instead")
    if len(attributes) > MOST_ATTRIBUTES:
        raise InvalidInput(f"groups must have at most {MOST_ATTRIBUTES} attributes, got {len(attributes)}")
    for i, name in enumerate(attributes):
        if name in attributes[:i]:
            raise InvalidInput(f"groups must have different names, got {name!r} twice")
    return attributes


def _check_crossings(attributes: tuple[str, ...], crossings: Any) -> tuple[tuple[str, str], ...]:
    if isinstance(crossings, str):
        if crossings != "auto":
            raise InvalidInput(f'crossings must be "auto" or pairs of names, got {shown(crossings)}')
        return tuple(combinations(attributes, 2)) if len(attributes) <= PAIRS_UP_TO else ()
    if not isinstance(crossings, (Sequence, np.ndarray)):
        raise InvalidInput(f'crossings must be "auto" or pairs of names, got {shown(crossings)}')
    pairs: list[tuple[str, str]] = []
    for crossing in crossings:
        pair = () if isinstance(crossing, str) else tuple(crossing) if isinstance(crossing, Iterable) else ()
        if len(pair) != 2 or not all(isinstance(name, str) and name in attributes for name in pair):
            raise InvalidInput(f"crossing must be a pair of {', '.join(attributes)}, got {shown(crossing)}")
        if pair[0] == pair[1]:
            raise InvalidInput(f"crossing must be of two attributes, got {pair[0]!r} with itself")
        if pair in pairs or pair[::-1] in pairs:
            raise InvalidInput(f"crossings must be different, got {pair[0]!r} with {pair[1]!r} twice")
        pairs.append((str(pair[0]), str(pair[1])))
    columns = len(attributes) + len(pairs)
    if columns > MOST_COLUMNS:
        raise InvalidInput(
            f"groups must have at most {MOST_COLUMNS} columns, got {columns}: "
            f"{len(attributes)} attributes and {len(pairs)} crossings"
        )
    return tuple(pairs)


# ---- values as words -------------------------------------------------------------------------------------------------


def plain_value(name: str, value: Any) -> Value:
    """A value of an attribute as one of the four kinds that there are: str, int, bool, or None for a missing one.

    Raises
    ------
    InvalidInput : it is none of them.

    >>> plain_value("hour", 7.0), plain_value("hour", float("nan")), plain_value("hour", "07")
    (7, None, '07')
    """
    kind = type(value)
    if kind is str or kind is bool or (kind is int and _LEAST_INT <= value <= _MOST_INT):
        return value
    if is_absent(value):
        return None
    is_span = isinstance(value, np.timedelta64)  # NumPy counts it among whole numbers
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, str):
        return str.__str__(value)  # the text itself, also of an enumeration
    if isinstance(value, (float, np.floating)):
        if not math.isfinite(value) or value != math.floor(value):
            hint = f"cut numbers into bands first (a Calibrator takes Number({name!r}))"
            raise InvalidInput(f"{name} must be a string, a whole number, a bool or None, got {float(value)!r}; {hint}")
        value = int(value)
    if isinstance(value, (int, np.integer)) and not is_span:
        if not _LEAST_INT <= value <= _MOST_INT:
            raise InvalidInput(f"{name} must fit into 64 bits with a sign, got {shown(value)}")
        return int(value)
    raise InvalidInput(f"{name} must be a string, a whole number, a bool or None, got {kind.__name__} {shown(value)}")


def canonical(name: str, value: Value) -> bytes:
    """A plain value as bytes: one of its kind, then the content. So 1, "1" and True are three values."""
    if value is None:
        return b"\0"
    if isinstance(value, bool):
        return b"\1" + bytes([value])
    if isinstance(value, int):
        return b"\2" + value.to_bytes(8, "little", signed=True)
    try:
        return b"\3" + value.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{name} must be text that can be written as UTF-8, got {shown(value)}") from None


def hash_word(key: bytes, k: int, content: bytes) -> int:
    """The 64 bits of attribute k with a value, never 0."""
    return int.from_bytes(hashlib.blake2b(bytes([k]) + content, digest_size=8, key=key).digest(), "little") or 1


def signed(word: int) -> int:
    """64 bits as kernels have them."""
    return word - (word >> 63 << 64)


def _word_from_hex(what: str, text: Any) -> int:
    if not isinstance(text, str) or len(text) != 16 or text.strip("0123456789abcdef"):
        raise InvalidInput(f"{what} must be 16 hexadecimal digits, got {shown(text)}")
    return int(text, 16)


class PendingWords(NamedTuple):
    """The words of many events but for those of numbers, which depend on the numbers of events before them."""

    words: Words  # a row for each event
    numbers: dict[int, Vector]  # by attribute


class WordMaker(EventWords):
    """Makes words of values, keeps those of values that come often, and fills the book of names.

    While first numbers are gathered, what is known of them changes with each event, in one step with the rows
    (`after`, `_know`).
    """

    def __init__(self, groups: Groups, seed: int) -> None:
        self.groups, self.seed = groups, seed
        self.book: dict[int, Value] = {}
        self._key = seed.to_bytes(8, "little")
        self._lock = new_lock()
        self._serve(groups.attributes, groups.extra == "ignore")
        self._settings = [a if isinstance(a, Number) else None for a in groups.given]
        self._of_codes: list[dict[int, int]] = [{} for _ in groups.attributes]
        self._know(tuple(None if number is None else number.start() for number in self._settings))

    def _in_order(self, values: Any) -> Sequence[Any]:
        return self.groups.in_order(values)

    def _make(self, k: int, value: Any) -> int:
        """The word of a value that is not kept, which is kept then; or that of a number, from what is known now."""
        if (known := self._numbers[k]) is not None:
            number = plain_number(self.groups.attributes[k], value)
            absent = number != number  # noqa: PLR0124 - NaN
            return self._of_code(k, MISSING if absent else known.code(number) if isinstance(known, Cuts) else NOT_YET)
        word = signed(self.of_value(k, value))
        if value is None or plain_value("", value) is not None:  # a NaN would never be found again
            cached = self._cached[k]
            if len(cached) >= CACHED:
                cached.clear()
            cached[value] = type(value), word
        return word

    def _of_code(self, k: int, code: int) -> int:
        """The word of the code of a number of attribute k, with a sign."""
        word = self._of_codes[k].get(code)
        if word is None:
            word = self._of_codes[k][code] = signed(hash_word(self._key, k, canonical("code", code)))
        return word

    @cached_property
    def codes(self) -> dict[int, tuple[int, int]]:
        """Words of numbers -> the attribute and the code: all that there can be."""
        beyond = range(OUTSIDE, OUTSIDE + OCTAVES)
        possible = [NOT_YET, MISSING, *range(OUTSIDE), *beyond, *(-code for code in beyond)]
        numeric = [k for k, number in enumerate(self._settings) if number is not None]
        return {self._of_code(k, code) & _MASK: (k, code) for k in numeric for code in possible}

    def name_of(self, word: int) -> Value:
        """The value of a word as `segments` shows it: the word itself, where no name is known."""
        if self.groups.numbers and word in self.codes:
            k, code = self.codes[word]
            if code in (MISSING, NOT_YET):
                return "missing" if code == MISSING else "not yet"
            if isinstance(known := self._numbers[k], Cuts) and not len(known.edges) < code < OUTSIDE:
                return known.name_of(code)
        return self.book.get(word, f"{word:016x}")

    def of_value(self, k: int, value: Any) -> int:
        """The word of a value of attribute k."""
        return self._words(k, [value])[0]

    def _words(self, k: int, values: list[Any]) -> list[int]:
        name = self.groups.attributes[k]
        plain = [plain_value(name, value) for value in values]
        words = [hash_word(self._key, k, canonical(name, value)) for value in plain]
        if self.groups.names:
            for word, value in zip(words, plain, strict=True):
                self._note(word, value)
        return words

    def _note(self, word: int, value: Value) -> None:
        """Write a name in the book; the oldest leaves where there is no room."""
        if word in self.book:
            return
        with self._lock:  # single events are read without that of the calibrator
            self.book[word] = value
            if len(self.book) > self.groups.cells:
                del self.book[next(iter(self.book))]
                for cached in self._cached:  # or a value whose name has left would never be noted again
                    cached.clear()

    # ---- many events ---------------------------------------------------------------------------------------------

    def of_events(self, columns: Any, events: int, first_row: int = 0) -> Ints:
        """The words of many events, as kernels read them: K of each, one event behind the other.

        `columns` is a dict of columns, a data frame, an Arrow table, or rows of values: an array of two dimensions or a
        list of sequences. Messages count rows from `first_row` on.

        Raises
        ------
        InvalidInput : a name is missing or unknown, a column has another length, or a value is none that an attribute
            can have. The message names the attribute and the first bad row.
        """
        return self.after(self.pending(columns, events, first_row), in_turn=False)[0]

    def pending(self, columns: Any, events: int, first_row: int = 0) -> PendingWords:
        """The same, with numbers as they are: `after` makes their words."""
        words, numbers = np.empty((events, len(self.groups.attributes)), dtype=np.uint64), {}
        for k, (name, column) in enumerate(zip(self.groups.attributes, self._columns(columns), strict=True)):
            values = read_column(name, column, "a one-dimensional column")
            if len(values) != events:
                raise InvalidInput(f"{name} must have a value for each of the {events} scores, got {len(values)}")
            if self._settings[k] is None:
                self.of_column(k, values, words[:, k], first_row)
            else:
                numbers[k] = plain_numbers(name, values)
        return PendingWords(words, numbers)

    def after(self, events: PendingWords, *, in_turn: bool = True) -> tuple[Ints, tuple[Known | None, ...]]:
        """The words of events that come one after the other, and what is known of numbers after them.

        Not in turn, each is the next one. Nothing changes: `_know` takes what is known.
        """
        words, found = events.words.view(np.int64), list(self._numbers)
        for k, numbers in events.numbers.items():
            number: Any = self._settings[k]
            if in_turn:
                codes, found[k] = number.codes_in_turn(found[k], numbers)
            else:
                codes = number.codes(found[k], numbers)
            distinct, places = np.unique(codes, return_inverse=True)
            words[:, k] = np.array([self._of_code(k, code) for code in distinct.tolist()])[places]
        return words.reshape(-1), tuple(found)

    def of_column(self, k: int, column: Column, words: Words, first_row: int = 0) -> None:
        """Fill in the words of values of attribute k. Each distinct value is hashed once.

        Raises
        ------
        InvalidInput : a value is none that an attribute can have; the message names its row.
        """
        for first in range(0, len(column), AT_ONCE):
            distinct, codes = column.part(slice(first, first + AT_ONCE)).codes()
            try:
                found = self.of_values(k, distinct)
            except InvalidInput:
                self._refuse(k, distinct, codes, first_row + first)
                raise  # pragma: no cover - one of them is bad
            words[first : first + AT_ONCE] = found[codes]

    def of_values(self, k: int, values: list[Any]) -> Words:
        """The word of each value of attribute k.

        Raises
        ------
        InvalidInput : a value is none that an attribute can have.
        """
        return np.array(self._words(k, values), dtype=np.uint64)

    def _refuse(self, k: int, distinct: list[Any], codes: Ints, first_row: int) -> None:
        """Raise the error of the first row whose value has one."""
        name, errors = self.groups.attributes[k], np.zeros(len(distinct), dtype=object)
        for code, value in enumerate(distinct):
            try:
                canonical(name, plain_value(name, value))
            except InvalidInput as error:
                errors[code] = error
        row = int(errors.astype(bool)[codes].argmax())
        raise InvalidInput(f"{errors[codes[row]]} - at row {first_row + row}") from None

    def _columns(self, columns: Any) -> list[Any]:
        """One column for each attribute, in order."""
        groups = self.groups
        if isinstance(columns, Mapping):
            groups.check_names(columns)
            return [columns[name] for name in groups.attributes]
        if isinstance(columns, (list, tuple)):
            rows = [_row(groups, row, i) for i, row in enumerate(columns)]
            return [[row[k] for row in rows] for k in range(len(groups.attributes))]
        if isinstance(columns, np.ndarray):
            if columns.ndim != 2 or columns.shape[1] != len(groups.attributes):
                wanted = f"(events, {len(groups.attributes)})"
                raise InvalidInput(f"groups must be an array of shape {wanted} or columns by name, got {columns.shape}")
            return list(columns.T)
        frame = as_frame(columns)
        if frame is None:
            raise InvalidInput(
                f"groups must be a dict of columns, a data frame or a 2-d array of {', '.join(groups.attributes)}, "
                f"got {type(columns).__name__}"
            )
        groups.check_names(frame.columns)
        return [frame[name] for name in groups.attributes]


def _row(groups: Groups, row: Any, at: int) -> Sequence[Any]:
    try:
        return groups.in_order(row)
    except InvalidInput as error:
        raise InvalidInput(f"{error} - at row {at}") from None


# ---- the state of one stream -----------------------------------------------------------------------------------------


class Segments(Table):
    """What `segments` gives: names of columns -> arrays of one length, best evidence first."""

    def to_frame(self) -> Any:
        """As a data frame of pandas.

        Raises
        ------
        MissingExtra : pandas is not installed.
        """
        return need("pandas", extra="frames", what="to_frame").DataFrame(dict(self))


class GroupedMethod:
    """The method of a stream with groups, as `FoldColumns` asks for it: rows and receipts are wider."""

    numbers = 1

    def __init__(self, table: GroupTable) -> None:
        method = self.method = table.method
        self.table, self.spec, self.cells, self.draws = table, method.spec, method.cells, method.draws
        self.width, self.receipt_width = table.width, table.receipt_width

    def initial_row(self) -> Vector:
        """The row of a stream that has seen nothing."""
        return self.table.initial_row()

    def scratch(self) -> Vector:
        """Room for the kernels to work in."""
        return self.method.scratch()


class GroupTable:
    """The cells of one stream whose calibrator looks at groups.

    A row of such a stream is longer than that of its method by what `initial_row` puts behind it; `cells` is what the
    kernels take.

    Raises
    ------
    InvalidInput : the method has no `Lanes`.
    """

    def __init__(self, groups: Groups, method: Method) -> None:
        if not isinstance(method.learner, Lanes):
            raise InvalidInput("groups must have a method with the learner Lanes (auto, gauto), got another")
        if method.band:
            raise InvalidInput("groups must be left out with band=True: the interval was not measured with them")
        self.groups, self.method = groups, method
        self.seed = secrets.randbits(64) if groups.seed is None else groups.seed
        self.maker = WordMaker(groups, self.seed)
        C, slots = len(groups.columns), groups.cells
        # Zeros that nobody has written to take no memory: a table costs what its cells take, page by page.
        self.cells = Cells(
            attributes=len(groups.attributes),
            columns=C,
            slots=slots,
            start=method.width,
            receipt=method.receipt_width,
            pairs=np.array(groups.pairs, dtype=np.int64).reshape(-1),
            tags=_aligned_zeros(slots).view(np.int64),
            parents=np.zeros(2 * slots, dtype=np.int64),
            numbers=_aligned_zeros((slots + MOST_COLUMNS) * CELL_WIDTH),
            found=np.zeros(2 * MOST_COLUMNS, dtype=np.int64),
            known=np.zeros(MOST_COLUMNS * KNOWN_WIDTH),
            touched=np.zeros(slots + 1, dtype=np.int64),
            marks=np.zeros(slots, dtype=np.uint8),
        )

    @property
    def width(self) -> int:
        """How many numbers a row has."""
        return self.method.width + self.groups.row_width

    @property
    def receipt_width(self) -> int:
        """How many numbers a receipt has, beside its words."""
        return self.method.receipt_width + GROUPED_RECEIPT_WIDTH

    @property
    def grouped(self) -> GroupedMethod:
        """The method with these groups."""
        return GroupedMethod(self)

    def initial_row(self, row: Vector | None = None) -> Vector:
        """The row of a stream that has seen nothing; or the row of a stream without groups, with fresh groups."""
        method_row = self.method.initial_row() if row is None else row
        return np.concatenate([method_row, [0.0, 1.0, *PRIOR, 0.0, 0.0], np.zeros(4 * self.cells.columns)])

    def touched(self) -> Ints:
        """The slots that have changed since the last call, in the order of their first change."""
        changed = self.cells.touched[1 : 1 + int(self.cells.touched[0])].copy()
        forget_touched(self.cells)
        return changed

    # ---- slots as data -------------------------------------------------------------------------------------------

    def occupied(self) -> Ints:
        """The slots that hold a cell."""
        return np.flatnonzero(self.cells.tags)

    def _matrix(self) -> Vector:
        return self.cells.numbers.reshape(-1, CELL_WIDTH)[:, :CELL_NUMBERS]

    def read_slots(self, slots: Ints) -> SlotArray:
        """What these slots hold: 192 bytes each."""
        found = np.zeros(len(slots), dtype=SLOT)
        found["word"] = self.cells.tags.view(np.uint64)[slots]
        found["first"], found["second"] = self.cells.parents.view(np.uint64).reshape(-1, 2)[slots].T
        found["numbers"] = self._matrix()[slots]
        return found

    def write_slots(self, slots: Ints, held: SlotArray) -> None:
        """The inverse of `read_slots`."""
        self.cells.tags.view(np.uint64)[slots] = held["word"]
        self.cells.parents.view(np.uint64).reshape(-1, 2)[slots] = np.stack([held["first"], held["second"]], axis=1)
        self._matrix()[slots] = held["numbers"]

    def to_dict(self) -> dict[str, Any]:
        """All but the row, JSON-able; `from_dict` is the inverse, to the last bit."""
        slots = self.occupied()
        return {
            **self.groups.to_dict(),
            "seed": f"{self.seed:016x}",
            "slots": slots.tolist(),
            "held": base64.b64encode(self.read_slots(slots).tobytes()).decode(),
            "book": [[f"{word:016x}", value] for word, value in list(self.maker.book.items())[-self.groups.cells :]],
            **({"numbers": self._known_numbers()} if self.groups.numbers else {}),
        }

    def _known_numbers(self) -> dict[str, Any]:
        """What is known of the numbers that have no edges of their own."""
        known = dict(zip(self.groups.attributes, self.maker._numbers, strict=True))
        return {number.name: number.state(known[number.name]) for number in self.groups.numbers if not number.edges}

    @classmethod
    def from_dict(cls, data: Any, method: Method, row: Sequence[float]) -> GroupTable:
        """The inverse of `to_dict`, for the row that goes with it, which is checked already: kernels trust tables.

        Raises
        ------
        InvalidInput : a field is missing, or a slot holds what no slot can hold.
        """
        groups = Groups.from_dict(data)
        if groups.seed is None:
            raise InvalidInput("groups must have a seed, got None")
        table = cls(groups, method)
        slots, book = data.get("slots"), data.get("book")
        if not isinstance(slots, list) or not isinstance(book, list):
            raise InvalidInput("groups must have lists of slots and names, got others")
        places = np.array([check_whole("slot", slot, 0, groups.cells - 1) for slot in slots], dtype=np.int64)
        try:
            held = np.frombuffer(base64.b64decode(data.get("held"), validate=True), dtype=SLOT)
        except (TypeError, ValueError) as error:
            raise InvalidInput("groups must hold 192 bytes for each slot, as base64, got others") from error
        if len(held) != len(places):
            raise InvalidInput(f"groups must hold one cell for each of {len(places)} slots, got {len(held)}")
        if len(book) > groups.cells or (book and not groups.names):
            raise InvalidInput(f"book must have at most {groups.cells if groups.names else 0} names, got {len(book)}")
        for entry in book:
            if not isinstance(entry, list) or len(entry) != 2:
                raise InvalidInput(f"book must hold pairs of a word and a value, got {shown(entry)}")
            table.maker.book[_word_from_hex("word", entry[0])] = plain_value("value in the book", entry[1])
        known = {number.name: number.start() for number in groups.numbers}
        given, wanted = data.get("numbers", {}), [number for number in groups.numbers if not number.edges]
        if not isinstance(given, dict) or set(given) != {number.name for number in wanted}:
            raise InvalidInput(f"groups must hold what is known of each number, got {shown(given)}")
        known.update({number.name: number.read_state(given[number.name]) for number in wanted})
        table.maker._know(tuple(known.get(name) for name in groups.attributes))
        table.check_slots(places, held, row)
        table.write_slots(places, held)
        return table

    def check_slots(self, slots: Ints, held: SlotArray, row: Sequence[float]) -> None:
        """Check that these can be all the cells of a stream with this row, which is checked already.

        Raises
        ------
        InvalidInput : a number of a cell is outside its limits, or a cell is in a slot where it is not found.
        """
        words, numbers = held["word"], held["numbers"]
        until = row[N] if row[TOTAL] == 0.0 else MOST_COUNT
        cell_limits(self.cells.columns).check(numbers, until, "cells", "cell", weighted=row[TOTAL] != 0.0)
        pairs = np.array([(k, -1) for k in range(self.cells.attributes)] + self.groups.pairs)
        singles = pairs[numbers[:, COLUMN].astype(np.int64), 1] < 0
        parents = zip(held["first"].tolist(), held["second"].tolist(), strict=True)
        crossed = np.array([cross_words(a, b) & _MASK for a, b in parents], dtype=np.uint64)
        good = np.where(singles, (held["first"] == words) & (held["second"] == 0), crossed == words)
        in_bucket = words & np.uint64(self.groups.cells // WAYS - 1) == (slots // WAYS).astype(np.uint64)
        found = (words != 0) & good & in_bucket
        if not found.all():
            raise InvalidInput(
                f"slot must hold a cell that is found there, got another - at slot {slots[found.argmin()]}"
            )
        if len(np.unique(slots)) != len(slots) or len(np.unique(words)) != len(words):
            raise InvalidInput("slots must be different and hold different words, got one twice")
        start = self.cells.start
        if row[start + OPENED] - row[start + EVICTED] != len(slots):
            wanted = int(row[start + OPENED] - row[start + EVICTED])
            raise InvalidInput(f"slots must be as many as were opened and not evicted, {wanted}, got {len(slots)}")

    # ---- what it has learnt --------------------------------------------------------------------------------------

    def variances(self, row: Vector) -> Vector:
        """tau of each lane (two rows) and column."""
        at, C = self.cells.start + GROUP_SUMS, self.cells.columns
        A, B = np.asarray(row[at:], dtype=np.float64).reshape(2, LANES, C)
        return np.clip((A + N0 * TAU0) / (B + N0), TAU_LEAST, TAU_MOST)

    def params(self, row: Vector) -> dict[str, Any]:
        """What `params["groups"]` shows: which lane is trusted, which columns matter, and how full the table is."""
        at = self.cells.start
        still, fleeting = np.sqrt(self.variances(row)).tolist()
        return {
            "weights": dict(zip(("expert", "still", "fleeting"), map(float, row[at + 2 : at + 5]), strict=True)),
            "spread": dict(zip(self.groups.columns, still, strict=True)),
            "fleeting_spread": dict(zip(self.groups.columns, fleeting, strict=True)),
            "temper": float(row[at + GROUP_TEMPER]),
            "staleness": float(row[at + GROUP_STALENESS]),
            "cells": int(row[at + OPENED] - row[at + EVICTED]),
            "opened": int(row[at + OPENED]),
            "evicted": int(row[at + EVICTED]),
            **({"numbers": self._known_numbers()} if self.groups.numbers else {}),
        }

    def is_crowded(self, row: Sequence[float] | Vector) -> bool:
        """Whether as many cells were evicted as the table holds."""
        return bool(row[self.cells.start + EVICTED] >= self.groups.cells)

    def warning(self, row: Vector) -> str:
        """What to say of a table that is crowded: which attribute is probably an id."""
        counts = np.bincount(self._matrix()[self.occupied(), COLUMN].astype(np.int64), minlength=self.cells.columns)
        name = self.groups.columns[int(counts.argmax())]
        return (
            f"groups have forgotten {int(row[self.cells.start + EVICTED])} cells, most of the {self.groups.cells} that "
            f"are left are of {name!r}: it is probably an id, not a segment"
        )

    def segments(self, row: Vector, least: int = 100) -> Segments:
        """One row for each cell with `least` outcomes or more, best evidence first; see `Calibrator.segments`."""
        least = check_whole("least", least, 1, 2**53)
        slots = self.occupied()
        slots = slots[self._matrix()[slots, EVENTS] >= least]
        slots = slots[np.lexsort((self.cells.tags.view(np.uint64)[slots], -self._matrix()[slots, LOG_E]))]
        held = self.read_slots(slots)
        numbers = held["numbers"]
        column, events, weights = (numbers[:, at] for at in (COLUMN, EVENTS, WEIGHTS))
        column, ones = column.astype(np.int64), numbers[:, ONES]
        tau = self.variances(row)[0][column]
        v = tau / (1.0 + tau * numbers[:, INFO])
        log_e = numbers[:, LOG_E]
        return Segments(
            column=column,
            attribute=_objects([self.groups.columns[k] for k in column]),
            value=_objects([self._value(*words) for words in held[["word", "first", "second"]].tolist()]),
            word=held["word"].copy(),
            events=events.astype(np.int64),
            ones=ones.astype(np.int64) if row[TOTAL] == 0.0 else ones.copy(),
            rate=ones / weights,
            mean_score=numbers[:, SUM_SCORE] / weights,
            mean_expert=numbers[:, SUM_EXPERT] / weights,
            mean_forecast=numbers[:, SUM_FORECAST] / weights,
            offset=numbers[:, NATURAL] * v,
            sd=np.sqrt(v),
            log_e=log_e.copy(),
            flagged=e_bh(log_e, ALPHA),
            whole=np.full(len(slots), bool(row[self.cells.start + EVICTED] == 0.0)),
        )

    def _value(self, word: int, first: int, second: int) -> Any:
        """A value by its name, where that is known, else its word; a pair of them for a crossing."""
        names = [self.maker.name_of(part) for part in ((first, second) if second else (word,))]
        return names[0] if len(names) == 1 else tuple(names)


def e_bh(log_e: Vector, alpha: float) -> npt.NDArray[np.bool_]:
    """Which of M e-values e-BH rejects: the k largest, for the largest k with e_(k) >= M/(alpha k).

    The false discovery rate is at most alpha, however the e-values depend on each other (Wang & Ramdas 2022).

    >>> e_bh(np.log([1000.0, 30.0, 0.5]), 0.05)
    array([ True,  True, False])
    """
    M = len(log_e)
    order = np.argsort(-log_e, kind="stable")
    passed = log_e[order] >= np.log(M / (alpha * np.arange(1, M + 1)))
    flagged = np.zeros(M, dtype=np.bool_)
    if passed.any():
        flagged[order[: int(np.flatnonzero(passed)[-1]) + 1]] = True
    return flagged


def _aligned_zeros(size: int) -> Vector:
    """Zeros that begin where a cache line does."""
    whole = np.zeros(size + 7)
    first = -whole.ctypes.data // 8 % 8
    return whole[first : first + size]


def _objects(values: list[Any]) -> npt.NDArray[np.object_]:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array
