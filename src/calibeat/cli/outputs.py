"""Outputs of a command: never over its log, all of them or none, and a run that fails leaves nothing."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from calibeat._util.files import atomic_files, obstacle
from calibeat._util.types import Ints, Vector
from calibeat.backtest.read.files import OURS, STDIN, LogFile, by_suffix
from calibeat.backtest.read.rows import Chunk
from calibeat.errors import InvalidInput

from .stop import Stop


def check_outputs(log: str, files: Sequence[LogFile], outputs: dict[str, Path]) -> None:
    """Refuse, before anything runs, what could not be written, or would be written over the log or each other."""
    for option, path in outputs.items():
        check_place(option, path)
        for file in files:
            if file.path != STDIN and _same(path, Path(file.path)):
                raise InvalidInput(f"{option} must not be the log itself, got {str(path)!r}")
        if log != STDIN and _would_match(path, log):
            raise InvalidInput(
                f"{option} must not be among the files of the log, got {str(path)!r}: the next run would read it"
            )
    if len(outputs) == 2 and _same(*outputs.values()):
        raise InvalidInput(
            f"{' and '.join(outputs)} must be two files, got {str(next(iter(outputs.values())))!r} twice"
        )


def check_place(option: str, path: Path) -> None:
    """Refuse a path where no file can be put."""
    found = obstacle(path)
    if found is not None:
        raise InvalidInput(f"{option} must be a file, got {found} {str(path)!r}")
    there = next(parent for parent in path.absolute().parents if parent.exists())
    if not there.is_dir():
        raise InvalidInput(f"{option} must be in a folder, got {str(path)!r}, and {str(there)!r} is a file")
    if not os.access(there, os.W_OK):
        raise InvalidInput(f"{option} must be in a folder that can be written, got {str(path)!r}")


def _same(one: Path, other: Path) -> bool:
    if one.exists() and other.exists():
        return one.samefile(other)
    return one.resolve() == other.resolve()


def _would_match(path: Path, log: str) -> bool:
    whole = path.resolve()
    if Path(log).is_dir():
        return by_suffix(path.name) is not None and whole.is_relative_to(Path(log).resolve())
    if Path(log).exists():
        return False
    pattern = str(Path(log).absolute())
    return fnmatch.fnmatch(str(whole), pattern) if "**" in log else whole.match(pattern)


@contextmanager
def outputs(paths: Sequence[Path], stop: Stop) -> Iterator[dict[Path, IO[bytes]]]:
    """Open files that take their names together when the block ends well, and then the command is done.

    If the block fails or a signal stops it, no file and no new folder is left.
    """
    if not paths:
        yield {}
        return

    def commit(*_: Path) -> None:
        stop.check()
        stop.hold()

    with _folders(paths), atomic_files(paths, check=commit) as files:
        try:
            yield dict(zip(paths, files, strict=True))
        except BaseException:
            stop.hold()  # a second signal must not break off the cleaning up
            raise
    stop.done()


@contextmanager
def _folders(paths: Sequence[Path]) -> Iterator[None]:
    """The folders of these files; those made here are taken away again where the run fails."""
    made: list[Path] = []
    try:
        for path in paths:
            missing = [parent for parent in path.absolute().parents if not parent.exists()]
            for folder in reversed(missing):
                made.append(folder)  # first, as a signal may come right after it is made
                folder.mkdir()
        yield
    except BaseException:
        for folder in reversed(made):
            with suppress(OSError):  # not made, or no longer empty
                folder.rmdir()
        raise


class Forecasts:
    """Every forecast, written to a Parquet file, which is whole when the block has ended."""

    def __init__(self, file: IO[bytes], streams: list[str], sources: list[str], *, keyed: bool) -> None:
        self._file, self._streams, self._sources, self._keyed = file, streams, sources, keyed
        self._writer: Any = None
        self._event = 0

    def __enter__(self) -> Forecasts:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def write(self, chunk: Chunk, forecasts: dict[str, Vector], place: Ints) -> None:
        """One chunk: `row` and `file` (and `id`) find an event in the log, `event` counts them as replayed."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns: dict[str, Any] = {"event": np.arange(self._event, self._event + len(chunk))}
        if chunk.trace is not None:
            columns["row"] = chunk.trace.rows
            columns["file"] = pa.array(self._sources, pa.string()).take(pa.array(chunk.trace.files))
            if chunk.trace.ids is not None:
                columns["id"] = pa.array(chunk.trace.ids.tolist(), pa.string())
        if self._keyed:
            columns["key"] = pa.array(self._streams, pa.string()).take(pa.array(chunk.slots))
        if chunk.times is not None:
            columns["time"] = pa.array(chunk.times).cast(pa.timestamp("us"))
        many = chunk.scores.ndim == 2
        columns["score"] = _lists(chunk.scores)
        columns["outcome"] = pa.array(chunk.outcomes, from_pandas=True).cast(pa.int32() if many else pa.int8())
        columns["judged"] = place > 0
        columns |= {f"forecast_{name}": _lists(values) for name, values in forecasts.items()}
        table = pa.table(columns).replace_schema_metadata({OURS: b"forecasts"})
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._file, table.schema, compression="zstd")
        self._writer.write_table(table)
        self._event += len(chunk)


def _lists(values: Vector) -> Any:
    """A column; of a matrix, a column of lists."""
    import pyarrow as pa

    if values.ndim == 1:
        return values
    return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])
