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
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np

from calibeat._util.extras import need
from calibeat._util.times import MISSING, OK, UNREADABLE, Clock, Moments, ZoneMismatch
from calibeat._util.types import Ints
from calibeat._util.words import visible
from calibeat.backtest.options import Options
from calibeat.errors import InvalidInput

from .arrow import batch_of, shown, times
from .guess import Columns
from .jsonl import OnBadRow, Pick, looks_like_json, read_json_lines
from .rows import CHUNK, LogBatch, RowReader

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

    def batches(self, pick: Pick, on_bad_row: OnBadRow | None) -> Iterator[Part]:
        """Record batches of the columns that `pick` chooses from the header; text where the file is text.

        Folders named ``column=value`` are columns too. A row of a CSV with too many or too few fields is handed to
        `on_bad_row` if there is one, and ends the run if not.
        """
        values, wanted = partitions_of(self.path), set[str]()

        def pick_within(header: list[str], where: str) -> list[str]:
            chosen = pick([*header, *(name for name in values if name not in header)], where)
            wanted.update(name for name in chosen if name not in header)
            return [name for name in chosen if name in header]

        yield from with_partitions(self._batches(pick_within, on_bad_row), values, wanted)

    def _batches(self, pick: Pick, on_bad_row: OnBadRow | None) -> Iterator[Part]:
        with sentences(self.name):
            if self.kind in (CSV, JSON):
                yield from self._text(pick, on_bad_row)
            elif self.kind == PARQUET:
                yield from _numbered(self._parquet(pick))
            else:
                yield from _numbered(self._arrow(pick))

    def _parquet(self, pick: Pick) -> Iterator[Any]:
        import pyarrow.parquet as pq

        file = pq.ParquetFile(self.path, pre_buffer=False)  # a buffer of all that was read would grow with it
        if OURS in (file.schema_arrow.metadata or {}):
            raise InvalidInput(f"{self.name} must be a log, got the forecasts that calibeat backtest --out wrote")
        columns = pick(file.schema_arrow.names, self.name)
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
        for part, rows in file.batches(columns.pick, bad_row if options.skip_bad else None):
            with sentences(file.name):
                columns.notes += [note for note in file.notes if note not in columns.notes]
                if not tried:
                    try_guesses(columns, part, options, lambda row: f"row {rows[row]:,} of {file.name}")  # noqa: B023
                    reader.guessed = columns.guessed
                    tried = True
                batch = batch_of(part, columns, file.name, rows, number, options)
            yield batch
            step(part.num_rows)


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
            columns.drop(role, f"it cannot be read ({error})")
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
        return f"it cannot be read, got {shown(column[int((states == UNREADABLE).argmax())])}"
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
