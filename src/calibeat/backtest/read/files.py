"""Logs on disk: CSV, JSON Lines, Parquet, Arrow. They are read in batches of a few columns: memory does not grow."""

from __future__ import annotations

import codecs
import glob
import io
import os
import re
import select
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np

from calibeat._util.extras import need
from calibeat._util.times import (
    EARLIEST,
    LATEST,
    MISSING,
    OK,
    UNREADABLE,
    Clock,
    Moments,
    States,
    Times,
    ZoneMismatch,
    moment,
    read_dates,
)
from calibeat._util.types import Flags, Ints
from calibeat._util.words import did_you_mean, visible
from calibeat.backtest.options import Options
from calibeat.errors import InvalidInput

from .jsonl import OnBadRow, Pick, looks_like_json, read_json_lines
from .rows import (
    CHUNK,
    NEEDED_ROLES,
    NO_COLUMN,
    Codes,
    ColumnOf,
    LogBatch,
    Numbers,
    RowReader,
    all_of,
    check_column,
    check_header,
    is_other,
    number_of,
    option_of,
    outcome_of,
)

if TYPE_CHECKING:
    from .attributes import GroupsOfLog
    from .labels import ClassesOfLog

# ---- folders that name a column ----------------------------------------------------------------------------------

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"

Part = tuple[Any, Ints]  # a record batch, and the numbers of its rows, from 1 and without the header


def partitions_of(path: str) -> dict[str, str | None]:
    """The columns that the folders of a file name, with their values; None where the folder stands for no value.

    >>> partitions_of("log/country=DE/day=2024-01-01/part-0.parquet"), partitions_of("log/a%20b=x%2Fy/p.csv")
    ({'country': 'DE', 'day': '2024-01-01'}, {'a b': 'x/y'})
    """
    pairs = (folder.partition("=") for folder in Path(path).parts[:-1])
    return {
        unquote(name): None if value == NO_VALUE else unquote(value) for name, equal, value in pairs if name and equal
    }


def with_partitions(parts: Iterator[Part], values: dict[str, str | None], wanted: set[str]) -> Iterator[Part]:
    """The parts with a column more for each partition that is wanted, once the header of the file is known."""
    import pyarrow as pa

    for part, rows in parts:
        for name in sorted(wanted):
            part = part.append_column(name, pa.repeat(pa.scalar(values[name], pa.string()), part.num_rows))  # noqa: PLW2901
        yield part, rows


# ---- streams of bytes --------------------------------------------------------------------------------------------

HEAD = 1 << 16  # bytes in which the header has to end
_PATIENCE = 0.1  # seconds between two checks whether the stream was stopped


class Source(io.RawIOBase):
    """A stream from its beginning on, of which `head` was read already; all of it must be UTF-8, read or not.

    Arrow reads ahead in its own thread. A process that ends while that thread is in here is aborted, or hangs. A
    caller that stops reading early must call `stop`, which ends the stream and waits for the thread.
    """

    def __init__(self, stream: Any, name: str) -> None:
        self._stream, self._name = stream, name
        self.head: bytes = stream.read(HEAD)
        self._first = self.head
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._reading = threading.Lock()
        self._stopped = False

    def stop(self) -> None:
        """End the stream here, and wait for the thread that reads it."""
        self._stopped = True
        with self._reading:
            pass

    def readable(self) -> bool:  # pragma: no cover - called from a thread of Arrow, which coverage cannot see
        return True

    def readinto(self, buffer: Any) -> int:  # pragma: no cover - see readable
        """Fill the buffer as far as there is anything."""
        with self._reading:
            part = b"" if self._stopped else self._part(len(buffer))
            buffer[: len(part)] = part
            return len(part)

    def _part(self, size: int) -> bytes:  # pragma: no cover - see readable
        part = self._first[:size] or self._more(size)
        self._first = self._first[len(part) :]
        try:
            self._decoder.decode(part, final=not part and not self._stopped)
        except UnicodeDecodeError as error:
            got = f"got byte {error.object[error.start]:#x}: convert it, for instance with iconv"
            raise InvalidInput(f"{self._name} must be text in UTF-8, {got}") from error
        return part

    def _more(self, size: int) -> bytes:  # pragma: no cover - see readable
        part: bytes = self._stream.read(size)
        return part


class StandardInput(Source):
    """Standard input, where the next byte may be hours away: the thread that waits for it can be stopped."""

    def __init__(self, name: str) -> None:
        buffer: Any = sys.stdin.buffer
        super().__init__(buffer, name)
        try:
            self._descriptor = buffer.fileno() if os.name == "posix" else None
        except io.UnsupportedOperation:  # bytes in memory
            self._descriptor = None
        if self._descriptor is not None and self.head:
            self._first += buffer.read(len(buffer.peek()))  # from here on nothing is left between us and the pipe

    def _more(self, size: int) -> bytes:  # pragma: no cover - see readable
        if self._descriptor is None:
            return super()._more(size)
        while not self._stopped:
            if select.select([self._descriptor], [], [], _PATIENCE)[0]:
                return os.read(self._descriptor, size)
        return b""


# ---- one file ----------------------------------------------------------------------------------------------------

CSV, JSON, PARQUET, ARROW = "CSV", "JSON Lines", "Parquet", "Arrow"
COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
SUFFIXES = {
    **{text + packed: CSV for text in (".csv", ".tsv", ".txt") for packed in ("", *COMPRESSED)},
    **{text + packed: JSON for text in (".jsonl", ".ndjson", ".json") for packed in ("", *COMPRESSED)},
    **dict.fromkeys((".parquet", ".pq"), PARQUET),
    **dict.fromkeys((".arrow", ".feather", ".ipc", ".arrows"), ARROW),
}
NOTHING = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "none", "NaT"]
STDIN = "-"
BLOCK = 4 << 20  # bytes of a CSV that are parsed at once, and the longest row
OURS = b"calibeat"  # in the metadata of what --out writes, which is no log


def require_arrow() -> None:
    """Raise `MissingExtra` where pyarrow is not installed."""
    need("pyarrow", extra="backtest", what="logs")


@dataclass(frozen=True)
class LogFile:
    """One file of a log, or standard input."""

    path: str
    kind: str
    delimiter: str | None = None
    notes: list[str] = field(default_factory=list, compare=False)  # what a reader should know, once it was read

    @property
    def name(self) -> str:
        """For people: it can do nothing to a terminal."""
        return "standard input" if self.path == STDIN else visible(self.path)

    @property
    def compression(self) -> str | None:
        """How the file is compressed, by its suffix."""
        return COMPRESSED.get(Path(self.path).suffix.lower())

    def rows(self) -> int | None:
        """How many rows there are, where the file says so; for text an estimate from its first megabyte."""
        if self.path == STDIN:
            return None
        with sentences(self.name):
            if self.kind == PARQUET:
                import pyarrow.parquet as pq

                return int(pq.ParquetFile(self.path).metadata.num_rows)
        if self.kind in (CSV, JSON) and self.compression is None:
            with Path(self.path).open("rb") as file:
                head = file.read(1 << 20)
            lines = head.count(b"\n")
            return int(Path(self.path).stat().st_size / len(head) * lines) if lines else None
        return None

    def batches(self, pick: Pick, on_bad_row: OnBadRow | None, key: str | None = None) -> Iterator[Part]:
        """Record batches of the columns that `pick` chooses from the header; text where the file is text.

        Folders named ``column=value`` are columns too. A row of a CSV with too many or too few fields is handed to
        `on_bad_row` if there is one, and ends the run if not. Of Parquet, the column `key` comes as codes and names.
        """
        values, wanted = partitions_of(self.path), set[str]()

        def pick_within(header: list[str], where: str) -> list[str]:
            chosen = pick([*header, *(name for name in values if name not in header)], where)
            wanted.update(name for name in chosen if name not in header)
            return [name for name in chosen if name in header]

        yield from with_partitions(self._batches(pick_within, on_bad_row, key), values, wanted)

    def _batches(self, pick: Pick, on_bad_row: OnBadRow | None, key: str | None) -> Iterator[Part]:
        with sentences(self.name):
            if self.kind in (CSV, JSON):
                yield from self._text(pick, on_bad_row)
            elif self.kind == PARQUET:
                yield from _numbered(self._parquet(pick, key))
            else:
                yield from _numbered(self._arrow(pick))

    def _parquet(self, pick: Pick, key: str | None) -> Iterator[Any]:
        import pyarrow.parquet as pq

        file = pq.ParquetFile(self.path, pre_buffer=False)  # a buffer of all that was read would grow with it
        if OURS in (file.schema_arrow.metadata or {}):
            raise InvalidInput(f"{self.name} must be a log, got the forecasts that calibeat backtest --out wrote")
        columns = pick(file.schema_arrow.names, self.name)
        if key in columns and is_text(file.schema_arrow.field(key).type):
            file = pq.ParquetFile(self.path, pre_buffer=False, read_dictionary=[key])
        nested = any(file.schema_arrow.field(name).type.num_fields for name in columns)  # lists of many numbers
        size = min(CHUNK, 8192 if nested else max(1024, 16 * CHUNK // len(columns)))
        yield from file.iter_batches(batch_size=size, columns=columns)

    def _arrow(self, pick: Pick) -> Iterator[Any]:
        import pyarrow as pa
        from pyarrow import ipc

        with pa.memory_map(self.path) as source:
            magic = source.read(6)
            source.seek(0)
            if magic == b"ARROW1":
                reader = ipc.open_file(source)
                parts = (reader.get_batch(at) for at in range(reader.num_record_batches))
            else:
                reader = parts = ipc.open_stream(source)
            columns = pick(reader.schema.names, self.name)
            for part in parts:
                chosen = part.select(columns)
                chosen.validate(full=True)  # Arrow trusts a file: a wrong offset in it would end the process
                for at in range(0, part.num_rows, CHUNK):
                    yield chosen.slice(at, CHUNK)

    def _text(self, pick: Pick, on_bad_row: OnBadRow | None) -> Iterator[Part]:
        import pyarrow as pa

        if self.path == STDIN:
            yield from self._text_from(StandardInput(self.name), pick, on_bad_row)
            return
        with pa.input_stream(self.path, compression=self.compression) as stream:
            yield from self._text_from(Source(stream, self.name), pick, on_bad_row)

    def _text_from(self, source: Source, pick: Pick, on_bad_row: OnBadRow | None) -> Iterator[Part]:
        head = source.head
        if not head.strip():
            wanted = "an object a line" if self.kind == JSON else "a header and rows"
            raise InvalidInput(f"{self.name} must hold {wanted}, got nothing")
        if self.kind == JSON or looks_like_json(head):
            yield from read_json_lines(io.BufferedReader(source, 1 << 20), self.name, pick, on_bad_row)
        else:
            yield from self._csv(source, pick, on_bad_row)

    def _csv(self, source: Source, pick: Pick, on_bad_row: OnBadRow | None) -> Iterator[Part]:
        head = source.head
        tabs = re.search(r"\.tsv(\.\w+)?$", self.path, re.IGNORECASE)
        delimiter = self.delimiter or ("\t" if tabs else ",")
        header = _header(head, delimiter, self.name)
        other = _other_delimiter(header, delimiter)
        if other is not None and self.delimiter is not None:
            raise InvalidInput(
                f"{self.name} must have columns between {delimiter!r}, got one column {header[0]!r:.60} - it looks as "
                f"if they were between {_named(other)}: say --delimiter {'tab' if other == chr(9) else repr(other)}"
            )
        if other is not None:
            delimiter, header = other, _header(head, other, self.name)
            self.notes.append(f"The columns are between {_named(other)}, as the header shows.")
        columns = pick(header, self.name)
        if not any(mark in head.strip() for mark in b"\r\n"):
            return  # a header without the end of its line, which Arrow does not take

        broken: list[str] = []
        dropped: list[int] = []

        def bad_row(row: Any) -> str:  # pragma: no cover - called from a thread of Arrow, which coverage cannot see
            where = f"row {row.number - 1:,} of {self.name}"  # Arrow counts the header too
            dropped.append(row.number - 1)
            if on_bad_row is not None:
                on_bad_row(where)
            elif not broken:
                got = f"{row.actual_columns} in {row.text!r:.60}"
                broken.append(f"row must have {row.expected_columns} fields, got {got} - at {where}")
            return "skip"

        first = 0
        for part in _csv_parts(source, columns, delimiter, bad_row):
            rows = _numbers_of_rows(first, part.num_rows, dropped)
            if broken:  # what comes before the broken row may be wrong too, and is then to be named
                before = int(np.count_nonzero(rows < dropped[0]))
                yield part.slice(0, before), rows[:before]
                break
            yield part, rows
            first += part.num_rows
        if broken:
            raise InvalidInput(broken[0])


def _csv_parts(source: Source, columns: list[str], delimiter: str, bad_row: Callable[[Any], str]) -> Iterator[Any]:
    import pyarrow as pa
    from pyarrow import csv

    parts: Iterable[Any] = ()
    try:
        parts = csv.open_csv(
            io.BufferedReader(source, 1 << 20),
            read_options=csv.ReadOptions(block_size=BLOCK, use_threads=False),  # threads do not number the rows
            parse_options=csv.ParseOptions(delimiter=delimiter, newlines_in_values=True, invalid_row_handler=bad_row),
            convert_options=csv.ConvertOptions(
                include_columns=columns,
                column_types=dict.fromkeys(columns, pa.string()),
                null_values=NOTHING,
                strings_can_be_null=True,
            ),
        )
        yield from parts
    finally:
        source.stop()
        with suppress(pa.ArrowException):  # half a row, where the source was stopped
            deque(parts, maxlen=0)  # until Arrow has seen the end, and none of its threads is left in our source


def _numbered(parts: Iterator[Any]) -> Iterator[Part]:
    first = 0
    for part in parts:
        yield part, np.arange(first + 1, first + part.num_rows + 1)
        first += part.num_rows


def _numbers_of_rows(first: int, count: int, dropped: list[int]) -> Ints:
    """The numbers in the file of rows from the `first` that was kept on; rows were dropped before and between them.

    >>> _numbers_of_rows(0, 4, [2, 3]).tolist(), _numbers_of_rows(4, 2, [2, 3, 7]).tolist()
    ([1, 4, 5, 6], [8, 9])
    """
    kept = np.arange(first, first + count)
    gaps = np.array(dropped, dtype=np.int64) - np.arange(1, len(dropped) + 1)  # how many were kept before each
    return kept + 1 + np.searchsorted(gaps, kept, side="right")


def _header(head: bytes, delimiter: str, name: str) -> list[str]:
    import csv

    text = head.decode("utf-8-sig", errors="replace").lstrip("\r\n")  # the 64 KB may end within a letter
    header = next(csv.reader(io.StringIO(text, newline=None), delimiter=delimiter), [])  # a lone \r ends a line too
    if any("\ufffd" in column or "\0" in column for column in header):
        raise InvalidInput(f"{name} must be text in UTF-8, got other bytes in its header")
    return header


def _other_delimiter(header: list[str], delimiter: str) -> str | None:
    """What seems to stand between the columns, where a header has come out as one.

    >>> _other_delimiter(["p;y"], ","), _other_delimiter(["p", "y"], ","), _other_delimiter(["p"], ",")
    (';', None, None)
    """
    marks = [mark for mark in (";", "\t", "|", ",") if mark != delimiter]
    if len(header) != 1 or not any(mark in header[0] for mark in marks):
        return None
    return max(marks, key=header[0].count)


def _named(mark: str) -> str:
    return "a tab" if mark == "\t" else repr(mark)


@contextmanager
def sentences(name: str) -> Iterator[None]:
    """Arrow's errors as ours."""
    import pyarrow as pa

    try:
        yield
    except InvalidInput:
        raise
    except (pa.ArrowException, MemoryError, UnicodeError, RecursionError) as error:
        message = " ".join(str(error).split())
        if "straddling object" in message:  # Arrow's name for a row that does not fit into a block
            got = "got a longer one: is a quote left open?"
            raise InvalidInput(f"{name} must have rows of {BLOCK:,} bytes at most, {got}") from error
        raise InvalidInput(f"{name} must be a log that can be read, got: {message:.200}") from error
    except OSError as error:
        if error.errno is not None:  # of the system, which names the file
            raise
        raise InvalidInput(f"{name} must be a log that can be read, got: {error}") from error


# ---- which files -------------------------------------------------------------------------------------------------


def files_of(log: str, delimiter: str | None = None) -> list[LogFile]:
    """The files of a log in the order of their names, numbers in them by size: a file, a folder, a glob, or `-`."""
    if log == STDIN:
        return [LogFile(STDIN, CSV, delimiter)]
    path = Path(log)
    if path.is_dir():
        found = [str(file) for file in path.rglob("*") if file.is_file() and by_suffix(file.name)]
        if not found:
            raise InvalidInput(f"{log} must be a folder with CSV, JSON Lines, Parquet or Arrow files, got none in it")
    elif path.is_file():
        found = [log]
    elif path.exists():
        if _is_standard_input(path):
            return [LogFile(STDIN, CSV, delimiter)]
        how = "pipe it into standard input, which is -"
        raise InvalidInput(f"log must be a regular file, a folder, a glob or -, got a pipe or a device, {log!r}: {how}")
    else:
        found = [file for file in glob.glob(log, recursive=True) if Path(file).is_file()]  # noqa: PTH207 - as the shell does it
        if not found:
            raise InvalidInput(f"log must be a file, a folder, a glob or -, got {log!r}, which is not there")
    return [LogFile(file, _kind(file), delimiter) for file in sorted(found, key=natural)]


def _is_standard_input(path: Path) -> bool:
    """Whether this is another name of standard input, such as /dev/stdin."""
    try:
        there, ours = path.stat(), os.fstat(sys.stdin.fileno())
    except (OSError, ValueError, AttributeError):  # standard input is closed, or is none of the system's
        return False
    return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)


def natural(name: str) -> list[tuple[int, int, str]]:
    """A key that sorts names as people do: part-2 before part-10.

    >>> sorted(["part-10", "part-2", "part-1b"], key=natural)
    ['part-1b', 'part-2', 'part-10']
    """
    parts = re.split(r"([0-9]+)", name)
    return [(1, int(part), part) if at % 2 else (0, 0, part) for at, part in enumerate(parts)]


def by_suffix(name: str) -> str | None:
    """The kind of file that a name tells of."""
    return next((kind for suffix, kind in SUFFIXES.items() if name.lower().endswith(suffix)), None)


def _kind(path: str) -> str:
    known = by_suffix(Path(path).name)
    if known is not None:
        return known
    with Path(path).open("rb") as file:
        magic = file.read(6)
    return PARQUET if magic[:4] == b"PAR1" else ARROW if magic == b"ARROW1" else CSV  # or JSON Lines, as its text tells


# ---- columns: which holds what. Each guess is reported -----------------------------------------------------------

SCORE_NAMES = (
    *("score", "probability", "prob", "proba", "p", "y_score", "y_prob", "y_proba", "predicted_probability"),
    *("prediction", "predicted", "pred", "p_hat", "phat", "y_pred", "yhat", "forecast", "confidence"),
    "model_score",
)
OUTCOME_NAMES = (
    *("outcome", "label", "y", "y_true", "target", "actual", "result", "truth", "class", "clicked", "click"),
    *("converted", "conversion", "default", "fraud", "churned", "churn"),
)
TIME_NAMES = (
    *("time", "timestamp", "datetime", "at", "ts", "date", "event_time", "event_timestamp", "event_date"),
    *("prediction_time", "prediction_timestamp", "predicted_at", "score_time", "score_timestamp", "scored_at"),
    *("forecast_time", "forecast_at", "issued_at", "created_at", "requested_at", "request_time", "served_at"),
)
OUTCOME_TIME_NAMES = tuple(
    f"{what}_{when}"
    for what in (
        *("outcome", "label", "known", "labelled", "labeled", "resolved", "settled", "feedback", "clicked"),
        *("click", "converted", "conversion", "matured"),
    )
    for when in ("time", "timestamp", "at", "date", "datetime", "ts", "on")
)
ID_NAMES = ("id", "event_id", "prediction_id", "forecast_id", "request_id", "transaction_id", "uuid", "guid")

USUAL_NAMES = {
    "score": SCORE_NAMES,
    "outcome": OUTCOME_NAMES,
    "label": OUTCOME_NAMES,
    "time": TIME_NAMES,
    "outcome time": OUTCOME_TIME_NAMES,
    "id": ID_NAMES,
    "key": (),
}


UNREAD = "it cannot be read"
MEND = (
    "Say how it is written (--time-format), how late outcomes are (--delay), or that it is none (--time none, "
    "--outcome-time none)."
)


@dataclass(eq=False)
class Columns:
    """The column of each role, chosen by the first header: by the name that was asked for, or by a guess.

    `asked` maps roles to names; ``"none"`` switches the guess off. `delayed` tells that a delay was given, which
    settles when outcomes arrive. With `classes` there are a label and the columns `scores` (names and patterns) in the
    place of a score and an outcome. `groups` are attributes, of columns that may have another role too.
    """

    asked: Mapping[str, str | None]
    delayed: bool = False
    classes: ClassesOfLog | None = None
    scores: str = ""
    groups: GroupsOfLog | None = None
    chosen: dict[str, ColumnOf] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    unused: dict[str, tuple[str, str]] = field(default_factory=dict)  # by role: a column that was left out, and why

    def pick(self, header: Sequence[str], where: str) -> list[str]:
        """The columns to read from a file with this header."""
        if self.chosen:
            if missing := [name for name in self.score_names if name not in header]:
                raise InvalidInput(f"score column {missing[0]!r} is not in {where}; the file before had it")
            for role, column in self.chosen.items():
                check_column(role, column["name"], header, where, guessed=column["guessed"])
        else:
            for role in USUAL_NAMES:
                if role not in (("label",) if self.classes is None else ("score", "outcome")):
                    self._choose(role, header, where)
            for role, name in self.asked.items():
                if is_other(role) and name is not None:
                    check_column(role, name, header, where)
                    self.chosen[role] = {"name": name, "guessed": False}
            self._settle_times()
            if self.classes is not None:
                taken = [column["name"] for column in self.chosen.values()]
                self.classes.pick(self.scores, header, taken, where)
            elif self.chosen["score"]["name"] == self.chosen["outcome"]["name"]:
                raise InvalidInput(
                    f"score and outcome must be two columns, got {self.chosen['score']['name']!r} for both"
                )
        self.check_times()
        roles = {role: column["name"] for role, column in self.chosen.items()}
        return list(dict.fromkeys([*self.score_names, *roles.values(), *self._attributes(header, where, roles)]))

    def _attributes(self, header: Sequence[str], where: str, roles: Mapping[str, str]) -> list[str]:
        """The columns of the groups."""
        if self.groups is None:
            return []
        self.groups.settle(header, where)
        self.groups.check_known(roles)
        return self.groups.columns

    @property
    def score_names(self) -> list[str]:
        """The columns of the scores of many classes."""
        return [] if self.classes is None else self.classes.columns

    @property
    def shown(self) -> dict[str, ColumnOf]:
        """The columns by role, for the report."""
        if self.classes is None:
            return dict(self.chosen)
        more = f" and {len(self.score_names) - 8} more" if len(self.score_names) > 8 else ""
        return {"scores": {"name": ", ".join(self.score_names[:8]) + more, "guessed": False}, **self.chosen}

    def check_times(self) -> None:
        """Times of outcomes are compared with times of events."""
        if "outcome time" in self.chosen and "time" not in self.chosen:
            raise InvalidInput("--outcome-time needs --time to be compared with, got it alone")

    def drop(self, role: str, reason: str) -> None:
        """Leave out a guessed column that does not hold what its name promises."""
        self.unused[role] = self.chosen.pop(role)["name"], reason
        self._settle_times()

    @property
    def guessed(self) -> dict[str, str]:
        """The columns that were guessed, by role."""
        return {role: column["name"] for role, column in self.chosen.items() if column["guessed"]}

    @property
    def assumption(self) -> str | None:
        """What the result assumes of the arrival of outcomes where a column of outcome times was not used."""
        assumed = "outcomes as late as --delay says" if self.delayed else "that every outcome is known at once"
        if "outcome time" in self.unused:
            name, reason = self.unused["outcome time"]
            what = "the times at which outcomes were known"
        elif self.unsettled is not None:
            name, reason = self.unused["time"]
            what = "the times of the events"
        else:
            return None
        mend = "" if self.unsettled is None else f" {MEND}"
        looks = f"The column {name!r} looks like {what}, but it was not used: {reason}."
        return f"This result assumes {assumed}. {looks}{mend}"

    @property
    def unsettled(self) -> str | None:
        """The column of times that could not be used, where nobody has said how late outcomes are."""
        late, time = self.unused.get("outcome time"), self.unused.get("time")
        if self.delayed:
            return None
        if late is not None:
            return None if late[1].endswith(f"{NO_COLUMN} was given") else late[0]
        return time[0] if time is not None and time[1].startswith(UNREAD) else None

    @property
    def all_notes(self) -> list[str]:
        """What a reader should know of the columns."""
        left = [
            f"The column {name!r} looks like the {role} of the events, but it was not used: {reason}."
            for role, (name, reason) in self.unused.items()
            if role != "outcome time" and (role != "time" or self.assumption is None)
        ]
        return self.notes + left

    def _choose(self, role: str, header: Sequence[str], where: str) -> None:
        asked = self.asked.get(role)
        usual = usual_columns(role, header)
        if asked is not None and (asked != NO_COLUMN or NO_COLUMN in header or role in NEEDED_ROLES):
            check_column(role, asked, header, where)
            self.chosen[role] = {"name": asked, "guessed": False}
        elif asked is not None:
            if usual:
                self.unused[role] = usual[0], f"{option_of(role)} {NO_COLUMN} was given"
        elif role in NEEDED_ROLES and not usual:
            check_header(header, where)
            raise InvalidInput(_not_named(role, header))
        elif usual:
            check_column(role, usual[0], header, where)
            self.chosen[role] = {"name": usual[0], "guessed": True}
            if others := [name for name in usual[1:] if name not in self._named()]:
                shown = ", ".join(map(repr, others))
                self.notes.append(f"The {role} was guessed to be in {usual[0]!r}; there is also {shown}.")

    def _named(self) -> set[str]:
        return {name for name in self.asked.values() if name is not None}

    def _settle_times(self) -> None:
        """A guess must not take a column that was named for something else, nor contradict a delay."""
        for role in ("time", "outcome time", "id"):
            column = self.chosen.get(role)
            if column and column["guessed"] and column["name"] in self._named():
                del self.chosen[role]
        late = self.chosen.get("outcome time")
        if late is None or not late["guessed"]:
            return
        if self.delayed:
            self.drop("outcome time", "--delay was given")
        elif "time" not in self.chosen:
            time, why = self.unused.get("time", ("", ""))
            known = f"the times of the events are not known: {time!r} was not used, as {why}" if why else ""
            self.drop("outcome time", known or "the times of the events are not known (--time)")


def usual_columns(role: str, header: Sequence[str]) -> list[str]:
    """The columns of a usual name for the role, the most usual first."""
    by_plain_name = {_plain(name): name for name in reversed(header)}
    return [by_plain_name[name] for name in USUAL_NAMES[role] if name in by_plain_name]


def _plain(name: str) -> str:
    """A column's name without case, camel's humps and marks.

    >>> _plain(" outcomeTime"), _plain("Outcome-Time"), _plain("p")
    ('outcome_time', 'outcome_time', 'p')
    """
    humps = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.strip())
    return re.sub(r"[\s.-]+", "_", humps).lower()


def _not_named(role: str, header: Sequence[str]) -> str:
    close = next((name for name in header if did_you_mean(name.strip(), USUAL_NAMES[role], 0.75)), None)
    hint = f" - did you mean {close!r}?" if close else ""
    if role == "score" and (shared := _family(header)):
        hint = f"; if they are scores of many classes, say --scores with '{shared}*' and --label with the class"
    named = f"{role} column must be named, got no column of a usual name"
    return f"{named}; say --{role} with one of {all_of(header)}{hint}"


def _family(header: Sequence[str]) -> str:
    """What three or more columns begin with, if scores do.

    >>> _family(["p_cat", "p_dog", "p_ox", "y"]), _family(["id_a", "id_b", "id_c", "p_cat"])
    ('p_', '')
    """
    starts = Counter(name[: name.index("_") + 1] for name in header if "_" in name)
    return next((start for start, n in starts.items() if n >= 3 and _plain(start)[:-1] in SCORE_NAMES), "")


# ---- columns as numbers, outcomes and keys. Arrow's kernels do the work; Python sees only what they refuse -------

NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is one of text."""
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def plain(column: Any) -> Any:
    """A column without a dictionary, and text of the usual kind."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        column = pc.cast(column, column.type.value_type)
    return pc.cast(column, pa.string()) if str(column.type) == "string_view" else column


def first_of(column: Any) -> str:
    """The first text that is there, without spaces around it; nothing if there is none."""
    valid = column.drop_null()
    return str(valid[0].as_py()).strip() if len(valid) else ""


def numbers_of_text(column: Any, *, decimal: str = ".", percent: bool = False) -> Numbers:
    """Text as float64. What Arrow refuses is looked at again: spaces, a percent sign, words."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = column if decimal == "." else pc.replace_substring(column, pattern=decimal, replacement=".")
    values = None
    if re.match(NUMBER, first_of(text)):  # Arrow takes long to refuse a column
        with suppress(pa.ArrowInvalid):
            values = float64(pc.cast(text, pa.float64()))
    if values is None:
        return _one_by_one_where_needed(column, text, decimal=decimal, percent=percent)
    return Numbers(values, np.where(np.isnan(values), MISSING, OK).astype(np.int8))


def _one_by_one_where_needed(column: Any, text: Any, *, decimal: str, percent: bool) -> Numbers:
    import pyarrow as pa
    import pyarrow.compute as pc

    text = pc.utf8_trim_whitespace(text)
    if percent:
        text = pc.replace_substring_regex(text, pattern=r"\s*%$", replacement="")
    usual = pc.fill_null(pc.match_substring_regex(text, pattern=NUMBER), fill_value=False)
    values = float64(pc.cast(pc.if_else(usual, text, pa.scalar(None, text.type)), pa.float64()))
    states = np.where(np.isnan(values), MISSING, OK).astype(np.int8)
    empty = pc.equal(pc.utf8_length(text), 0)
    rest = pc.and_(pc.invert(usual), pc.invert(pc.fill_null(empty, fill_value=True)))
    odd = np.flatnonzero(numpy_of(rest))
    for row, word in zip(odd.tolist(), column.take(pa.array(odd)).to_pylist(), strict=True):
        found = number_of(word, decimal=decimal, percent=percent)
        if found is not None:
            values[row], states[row] = found, OK
        elif word.strip().lower() not in {"nan", "+nan", "-nan"}:
            states[row] = UNREADABLE
    return Numbers(values, states)


def numpy_of(column: Any) -> Any:
    """A column of numbers or booleans. Arrow's own `to_numpy` imports pandas first, which takes 0.2 s."""
    import pyarrow as pa

    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if whole.null_count or not len(whole):
        return whole.to_numpy(zero_copy_only=False)
    if pa.types.is_boolean(whole.type):
        return numpy_of(whole.cast(pa.uint8())).view(np.bool_)
    kind = np.dtype(whole.type.to_pandas_dtype())
    return np.frombuffer(whole.buffers()[1], kind, len(whole), whole.offset * kind.itemsize)


def float64(column: Any) -> Any:
    """NaN where there is nothing; a copy, since Arrow's memory is not to be written."""
    return np.require(numpy_of(column), np.float64, ["C", "A", "W"])


def indices_of(encoded: Any) -> tuple[Ints, States]:
    """The indices of a column with a dictionary, and which of them are missing."""
    missing = is_null(encoded.indices)
    return numpy_of(encoded.indices.fill_null(len(encoded.dictionary))).astype(np.int64), missing


def is_null(column: Any) -> Any:
    """Which values are missing."""
    return numpy_of(column.is_null())


# What Arrow reads as a date. A zone ends it, or none does.
_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}(:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?)?)?"
_FINER = r"(\.[0-9]{6})[0-9]+"  # nanoseconds are cut off
_ZONE = r"(Z|[+-][0-9]{2}(:?[0-9]{2})?)$"
_KINDS = ((_DATE + "$", None), (_DATE + _ZONE, "UTC"))
_LAST_OF_A_WRONG_DATE = 3  # Arrow takes February 31 for March 2 or 3: days up to this one are looked at again


def times_of_dates(column: Any) -> Times:
    """A column of Arrow's dates or timestamps."""
    import pyarrow as pa
    import pyarrow.compute as pc

    microseconds = pa.timestamp("us", getattr(column.type, "tz", None))
    return _dates(pc.cast(column, options=pc.CastOptions(microseconds, allow_time_truncate=True)))


def times_of_text(column: Any, options: Options) -> Times:
    """A column of text. Where all of it is numbers, they are numbers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if options.time_format is not None:
        return _of_format(column, options.time_format)
    # Arrow takes 20 times as long to refuse a column as to read it: the first value tells which kind to try.
    first = first_of(column)
    for pattern, zone in _KINDS:
        if re.search(pattern, first):
            try:
                return _dates(pc.cast(column, pa.timestamp("us", zone)))
            except pa.ArrowInvalid:
                return _of_many_kinds(column)
    as_numbers = numbers_of_text(column, decimal=options.decimal)
    if not (as_numbers.states == UNREADABLE).any() and (as_numbers.states == OK).any():
        return Times(as_numbers.values, as_numbers.states, dated=False)
    return _of_many_kinds(column)


def _of_many_kinds(column: Any) -> Times:
    """Dates with a zone and dates without, each by Arrow; what is left one by one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    n = len(column)
    whole, naive = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=bool)
    states, left = np.where(is_null(column), MISSING, OK).astype(np.int8), ~is_null(column)
    text = pc.replace_substring_regex(pc.utf8_trim_whitespace(column), pattern=_FINER, replacement=r"\1")
    for pattern, zone in _KINDS:
        usual = pc.fill_null(pc.match_substring_regex(text, pattern=pattern), fill_value=False)
        try:
            dates = pc.cast(pc.if_else(usual, text, pa.scalar(None, text.type)), pa.timestamp("us", zone))
        except pa.ArrowInvalid:  # a day that no month has, somewhere
            continue
        rows = numpy_of(usual)
        whole[rows] = _microseconds(dates)[rows]
        naive[rows], left = zone is None, left & ~rows
    rest = read_dates(_listed(column, left))
    whole[left], naive[left], states[left] = rest.values, rest.naive, rest.states
    return Times(whole, states, dated=True, naive=naive)


def _of_format(column: Any, form: str) -> Times:
    import pyarrow as pa
    import pyarrow.compute as pc

    text = pc.utf8_trim_whitespace(column)
    missing = is_null(pc.if_else(pc.equal(text, ""), pa.scalar(None, text.type), text))
    found = pc.strptime(text, format=form, unit="us", error_is_null=True)
    days = numpy_of(pc.fill_null(pc.day(found), 0))
    zoned = found.type.tz is not None
    whole, naive = _microseconds(found), np.full(len(text), not zoned)
    states = np.where(missing, MISSING, OK).astype(np.int8)
    again = ~missing & (days <= _LAST_OF_A_WRONG_DATE)  # 0: Arrow could not read it
    by_text: dict[str, tuple[int, bool] | None] = {}
    for row, value in zip(np.flatnonzero(again).tolist(), _listed(text, again), strict=True):
        if value not in by_text:
            by_text[value] = _moment(value, form)
        if (read := by_text[value]) is None:
            states[row] = UNREADABLE
        else:
            whole[row], naive[row] = read
    return Times(whole, states, dated=True, naive=naive)


def _moment(text: str, form: str) -> tuple[int, bool] | None:
    try:
        return moment(datetime.strptime(text, form))  # noqa: DTZ007 - `moment` tells whether it has a zone
    except ValueError:
        return None


def _listed(column: Any, rows: Flags) -> list[Any]:
    import pyarrow as pa

    return column.filter(pa.array(rows)).to_pylist()


def _dates(column: Any) -> Times:
    whole = _microseconds(column)
    states = np.full(len(whole), OK, dtype=np.int8)
    if len(whole) and not EARLIEST <= whole.min() <= whole.max() <= LATEST:
        states[(whole < EARLIEST) | (whole > LATEST)] = UNREADABLE
    if column.null_count:
        states[is_null(column)] = MISSING
    return Times(whole, states, dated=True, naive=column.type.tz is None)


def _microseconds(column: Any) -> Ints:
    """0 where there is nothing; a copy, since Arrow's memory is not to be written."""
    import pyarrow as pa

    whole = numpy_of(column.cast(pa.int64()).fill_null(0))
    return np.require(whole, np.int64, ["C", "A", "W"])


def batch_of(part: Any, columns: Columns, name: str, rows: Ints, file: int, options: Options) -> LogBatch:
    """A batch of an Arrow record batch; `rows` are counted from 1, without the header."""
    found = {role: part.column(column["name"]) for role, column in columns.chosen.items()}

    def where(row: int) -> str:
        return f"row {rows[row]:,} of {name}"

    def show(role: str, row: int) -> str:
        if not role.isdigit() or columns.classes is None:
            return shown(found[role][row])
        given = [part.column(each) for each in columns.classes.columns]
        if len(given) > 1:
            return shown(given[int(role)][row])
        return f"{given[0][row].as_py()[int(role)]!r:.60}"

    if columns.classes is None:
        scores, told = numbers(found["score"], "score", options), outcomes(found["outcome"], options)
    else:
        scores = class_scores(part, columns.classes, where, options)
        columns.classes.begin(scores.values.shape[1])
        told = columns.classes.labels(codes(found["label"]))
    return LogBatch(
        scores,
        told,
        show,
        where,
        rows,
        file,
        times(found["time"], "time", options) if "time" in found else None,
        times(found["outcome time"], "outcome time", options) if "outcome time" in found else None,
        codes(found["key"]) if "key" in found else None,
        flat(found["id"], "id").to_pylist() if "id" in found else None,
        {role: numbers(column, role, options) for role, column in found.items() if is_other(role)},
        None if columns.groups is None else words(part, columns.groups, where, options),
    )


def words(part: Any, groups: GroupsOfLog, where: Callable[[int], str], options: Options) -> Ints:
    """The words of the attributes: rows x attributes."""
    found = np.empty((part.num_rows, len(groups.attributes)), dtype=np.uint64)
    for k, attribute in enumerate(groups.attributes):
        column = part.column(attribute.column)
        if attribute.part is not None:
            found[:, k] = groups.words_of_times(k, times(column, "time", options), column, where)
        else:
            encoded = plain(flat(column, "group")).dictionary_encode()
            indices, _ = indices_of(encoded)  # what is missing comes behind all values
            found[:, k] = groups.words_of(k, [*encoded.dictionary.to_pylist(), None], indices, where)
    return found.view(np.int64)


def class_scores(part: Any, classes: ClassesOfLog, where: Callable[[int], str], options: Options) -> Numbers:
    """The scores of many classes as a matrix: several columns, or one column of lists of as many numbers each."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if len(classes.columns) > 1:
        read = [numbers(part.column(name), "score", options) for name in classes.columns]
        return Numbers(np.stack([one.values for one in read], axis=1), np.stack([one.states for one in read], axis=1))
    column = part.column(classes.columns[0])
    kind = column.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
        raise InvalidInput(
            "scores must be several columns, one for each class, or one column of lists, got "
            f"{classes.columns[0]!r} of {kind}"
        )
    sizes = numpy_of(pc.list_value_length(column).fill_null(-1))
    there = sizes >= 0
    K = classes.count or int(sizes[there.argmax()] if there.any() else 0)
    odd = there & (sizes != K)
    if odd.any():
        row = int(odd.argmax())
        raise InvalidInput(f"scores must be {K} numbers, as in the rows before, got {sizes[row]} - at {where(row)}")
    values = np.full((len(sizes), K), np.nan)
    states = np.full(values.shape, MISSING, dtype=np.int8)
    inner = numbers(pc.list_flatten(column), "score", options)
    values[there] = inner.values.reshape(int(there.sum()), K)
    states[there] = inner.states.reshape(int(there.sum()), K)
    return Numbers(values, states)


def shown(value: Any) -> str:
    """An Arrow scalar as an error message shows it."""
    try:
        return f"{value.as_py()!r:.60}"
    except (OverflowError, ValueError):  # a moment that Python has no date for
        return f"{value.cast('string')!s:.60}"


def numbers(column: Any, role: str, options: Options) -> Numbers:
    """A column as float64; where scores are percent, text may end in the sign."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = plain(column)
    kind = column.type
    if is_text(kind):
        percent = options.score_kind == "percent" and not role.endswith("time")
        return numbers_of_text(column, decimal=options.decimal, percent=percent)
    if not (
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind)
    ):
        raise InvalidInput(f"{role} column must hold numbers, got {kind}")
    values = float64(pc.cast(column, pa.float64(), safe=False))
    return Numbers(values, np.where(np.isnan(values), MISSING, OK).astype(np.int8))


def outcomes(column: Any, options: Options) -> Numbers:
    """A column of 0 and 1 (or -1 and 1), false and true, or words; or whatever holds the positive value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = plain(column)
    if options.positive is None:
        if pa.types.is_boolean(column.type):
            return numbers(pc.cast(column, pa.uint8()), "outcome", options)
        if not is_text(column.type):
            return numbers(column, "outcome", options)
    encoded = flat(column, "outcome").dictionary_encode()
    found = [outcome_of(word, options.positive, options.decimal) for word in encoded.dictionary.to_pylist()]
    indices, missing = indices_of(encoded)
    values = np.array([*(np.nan if value is None else value for value in found), np.nan])[indices]
    if is_text(column.type):
        blank = [not word.strip() for word in encoded.dictionary.to_pylist()]
        missing = missing | np.array([*blank, False])[indices]
        values[missing] = np.nan
    states = np.where(missing, MISSING, np.where(np.isnan(values), UNREADABLE, OK))
    return Numbers(values, states.astype(np.int8))


def times(column: Any, role: str, options: Options) -> Times:
    """Dates, text (ISO 8601 or of the format that was given), or numbers."""
    import pyarrow as pa

    column = plain(column)
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        return times_of_dates(column)
    if is_text(column.type):
        return times_of_text(column, options)
    found = numbers(column, role, options)
    return Times(found.values, found.states, dated=False)


def codes(column: Any) -> Codes:
    """Keys as indices into those of this batch; text of nothing but spaces is no key."""
    import pyarrow as pa

    column = flat(column, "key")
    if pa.types.is_dictionary(column.type):  # numbers are told apart faster than text
        encoded = column.indices.dictionary_encode()
        values = column.dictionary.take(encoded.dictionary)
    else:
        encoded = plain(column).dictionary_encode()
        values = encoded.dictionary
    indices, missing = indices_of(encoded)
    names = values.to_pylist()
    blank = [name is None or (isinstance(name, str) and not name.strip()) for name in names]
    if any(blank):
        missing = missing | np.array([*blank, False])[indices]
    return Codes(np.where(missing, -1, indices), names)


def flat(column: Any, role: str) -> Any:
    import pyarrow as pa

    if pa.types.is_nested(column.type):
        raise InvalidInput(f"{role} column must hold text or numbers, got {column.type}")
    return column


# ---- file after file: columns are chosen by the first header and tried on the first rows -------------------------

REPEATED = 0.01  # of the ids: a column in which more come again holds no ids of events


def read_log(
    files: list[LogFile], columns: Columns, options: Options, reader: RowReader, step: Callable[[int], None]
) -> Iterator[LogBatch]:
    """The batches of all files. `step` is told how many rows were read."""

    def bad_row(where: str) -> None:  # pragma: no cover - called from a thread of Arrow, which coverage cannot see
        reader.rows += 1
        reader.skip("row has too many or too few fields", where)

    tried = False
    for number, file in enumerate(files):
        for part, rows in file.batches(columns.pick, bad_row if options.skip_bad else None, columns.asked.get("key")):
            with sentences(file.name):
                columns.notes += [note for note in file.notes if note not in columns.notes]
                if not tried:
                    try_guesses(columns, part, options, lambda row: f"row {rows[row]:,} of {file.name}")  # noqa: B023
                    reader.guessed = columns.guessed
                    tried = True
                batch = batch_of(part, columns, file.name, rows, number, options)
            yield batch
            step(part.num_rows)


def offered(files: list[LogFile], columns: Columns) -> list[str]:
    """The columns of a log by which events could be grouped, judged by the first rows; none of standard input."""
    import pyarrow as pa

    from .attributes import LOOKED_AT, could_be_attribute

    if files[0].path == STDIN or not isinstance(files[0], LogFile):
        return []
    used = {name for name in columns.asked.values() if name} | {c["name"] for c in columns.chosen.values()}
    used |= {name for name, _ in columns.unused.values()} | set(columns.score_names)
    usual = {name for role in USUAL_NAMES for name in USUAL_NAMES[role]}
    free: list[str] = []

    def pick(header: Sequence[str], _: str) -> list[str]:
        free.extend(
            name for name in header if name not in used and header.count(name) == 1 and _plain(name) not in usual
        )
        return free or [header[0]]  # of no column at all nothing can be read

    def look(part: Any, name: str) -> bool:
        column = plain(part.column(name))
        if not (is_text(column.type) or pa.types.is_integer(column.type) or pa.types.is_boolean(column.type)):
            return False
        values = column.slice(0, LOOKED_AT).to_pylist()
        return could_be_attribute(values) and not any(_is_fraction(value) for value in set(values))

    parts: Any = files[0].batches(pick, lambda _: None)
    try:
        with suppress(InvalidInput, OSError):  # an offer is not worth an error
            for part, _ in parts:
                return [name for name in free if look(part, name)]
    finally:
        parts.close()
    return []


def _is_fraction(value: Any) -> bool:
    """Whether this is text of a number that is not whole."""
    return isinstance(value, str) and "." in value and re.match(NUMBER, value.strip()) is not None


def try_guesses(columns: Columns, part: Any, options: Options, where: Callable[[int], str]) -> None:
    """Drop guessed columns that do not hold what their names promise. Only the first rows are tried."""
    clock = Clock(options.zone)
    read: dict[str, Moments] = {}
    for role in ("time", "outcome time"):
        column = columns.chosen.get(role)
        if column is None:
            continue
        try:
            read[role] = clock.read(role, times(part.column(column["name"]), role, options), where)
        except ZoneMismatch:
            raise
        except InvalidInput as error:
            if not column["guessed"]:
                raise
            columns.drop(role, f"{UNREAD} ({error})")
            continue
        problem = _problem(role, read, part.column(column["name"]))
        if column["guessed"] and problem:
            columns.drop(role, problem)
    columns.check_times()
    column = columns.chosen.get("id")
    if column is not None and column["guessed"] and (problem := _problem_of_ids(part.column(column["name"]))):
        columns.drop("id", problem)


def _problem_of_ids(column: Any) -> str | None:
    """Why a column cannot hold the ids of events, if so."""
    import pyarrow as pa

    if pa.types.is_nested(column.type):
        return f"it holds {column.type}"
    repeated = 1.0 - len(column.unique()) / max(1, len(column))
    return f"{repeated:.0%} of its values come again (say --id to use it)" if repeated > REPEATED else None


def _problem(role: str, read: dict[str, Moments], column: Any) -> str | None:
    """Why a column cannot be the times that its name promises, if so."""
    states = read[role].states
    if (states == UNREADABLE).any():
        return f"{UNREAD}, got {shown(column[int((states == UNREADABLE).argmax())])}"
    if role == "time" and (states == MISSING).any():
        return "some of its values are missing"
    if not (states == OK).any():
        return "it is empty"
    if role == "outcome time" and "time" in read:
        ok = (states == OK) & (read["time"].states == OK)
        early = int(np.count_nonzero(read[role].values[ok] < read["time"].values[ok]))
        if early:
            return f"{early:,} of the first {len(states):,} are before the time of their event"
    return None
