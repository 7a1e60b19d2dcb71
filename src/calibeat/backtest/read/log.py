"""A log on disk, file after file, as batches. Columns are chosen by the first header and tried on the first rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from calibeat._util.times import MISSING, OK, UNREADABLE, Clock, Moments, ZoneMismatch
from calibeat._util.types import Ints
from calibeat.backtest.options import Options
from calibeat.errors import InvalidInput

from .arrow import batch_of, shown, times
from .batch import Batch
from .files import LogFile, sentences
from .guess import Columns
from .rows import RowReader

REPEATED = 0.01  # of the ids: a column in which more come again holds no ids of events


MakeBatch = Callable[[Any, str, Ints, int, Options], Batch]  # of a record batch, its file's name, rows and number


def read_log(
    files: list[LogFile],
    columns: Columns,
    options: Options,
    reader: RowReader,
    step: Callable[[int], None],
    make: MakeBatch | None = None,
) -> Iterator[Batch]:
    """The batches of all files. `step` is told how many rows were read. `make` is for logs of many classes."""

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
                if make is None:
                    chosen = {role: part.column(column["name"]) for role, column in columns.chosen.items()}
                    batch = batch_of(chosen, file.name, rows, number, options)
                else:
                    batch = make(part, file.name, rows, number, options)
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
