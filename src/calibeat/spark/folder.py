"""A run of `calibrate` on disk: `forecasts/`, `state/`, and `finished/`, which is written last.

A job that was killed leaves no `finished/`, and `open` refuses what it left.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from calibeat import errors
from calibeat._util.extras import LazyModule
from calibeat.errors import CalibeatError, InvalidInput, SnapshotMismatch
from calibeat.hosts.bank import Bank

from .columns import ROW, check_one_kind
from .session import check_libraries, session, without_pandas_warning
from .state import FORMAT, as_state, check_same, check_state, from_bank

F = LazyModule("pyspark.sql.functions")

FORECASTS, STATE, FINISHED = "forecasts", "state", "finished"
_OURS = re.compile(r"calibeat\.errors\.(\w+): (.+)")


class Calibrated(NamedTuple):
    """What `calibrate` and `open` give: two frames, computed when they are used, or read from a folder."""

    forecasts: Any  # the frame with `forecast`, and `judged`: whether the row holds the outcome of its event
    state: Any  # key, row, method, version: see calibeat.spark.state


@without_pandas_warning()
def open(path: str | os.PathLike[str], spark: Any = None) -> Calibrated:  # noqa: A001 - what it does
    """Read what ``calibrate(..., path=path)`` has written: the forecasts and the state, as two frames.

    Parameters
    ----------
    path : the folder of a finished run.
    spark : the session; the active one if not given.

    Raises
    ------
    SnapshotMismatch : there is no such run, its job was killed before its end, or files of it are gone.
    MissingExtra : pyspark, pyarrow, pandas or a Java runtime is not there.

    >>> forecasts, state = open("s3://bucket/run-17")                                # doctest: +SKIP
    """
    check_libraries("calibeat.spark")
    from pyspark.sql import SparkSession

    spark = spark or SparkSession.getActiveSession() or session()
    place = os.fspath(path)
    if not _is_there(spark, _within(place, FINISHED)):
        got = "one whose job did not finish" if _is_there(spark, place) else "nothing"
        raise SnapshotMismatch(f"path must hold a finished run of calibrate(path=...), got {got} - at {place}")
    noted = spark.read.parquet(_within(place, FINISHED)).collect()
    check_same([(row["method"], row["version"]) for row in noted])
    state = spark.read.parquet(_within(place, STATE))
    keys = state.count()
    if keys != noted[0]["keys"]:
        raise SnapshotMismatch(f"state must hold {noted[0]['keys']:,} keys, as it did, got {keys:,} - at {place}")
    return Calibrated(spark.read.parquet(_within(place, FORECASTS)), state)


def check_new(spark: Any, path: str | os.PathLike[str]) -> None:
    """Raise unless nothing is there."""
    if _is_there(spark, os.fspath(path)):
        raise InvalidInput(f"path must be new, got one that exists - at {os.fspath(path)}: remove it or name another")


def write(both: Any, key: Any, text: str, path: str | os.PathLike[str]) -> Calibrated:
    """Forecasts, and among them the final rows of keys, computed once and written to a folder as two frames.

    `key` is the column of keys, `text` describes the rows.
    """
    spark, place = both.sparkSession, os.fspath(path)
    is_row = F.col(ROW).isNotNull()
    both = both.persist()  # on the disks of the workers where their memory is too small
    try:
        with our_sentence():
            both.where(~is_row).drop(ROW).write.parquet(_within(place, FORECASTS))
            rows = both.where(is_row).select(key.alias("key"), F.col(ROW).alias("row"))
            as_state(rows, text).write.parquet(_within(place, STATE))
    finally:
        both.unpersist()
    keys = spark.read.parquet(_within(place, STATE)).count()
    noted = spark.createDataFrame([(text, FORMAT, keys)], "method string, version int, keys bigint")
    noted.coalesce(1).write.parquet(_within(place, FINISHED))
    return open(path, spark)


def state_to_resume(state: Any, frame: Any, key: str, wanted: str) -> Any:
    """A state as a frame of the wanted description, for keys as in `frame`.

    It is given as a frame, as what `calibrate` or `open` gives, as a `Bank`, or as the path of a bank file or of a run.
    """
    if isinstance(state, Calibrated):
        state = state.state
    elif isinstance(state, Bank) or (isinstance(state, (str, os.PathLike)) and Path(state).is_file()):
        state = from_bank(state, frame.sparkSession)
    elif isinstance(state, (str, os.PathLike)):
        state = open(state, frame.sparkSession).state
    found = check_state(state).select("method", "version").distinct().limit(2).collect()
    check_same([(row["method"], row["version"]) for row in found], wanted)
    check_one_kind((frame, key, "the frame"), (state, "key", "the state"))
    return state


@contextmanager
def our_sentence() -> Iterator[None]:
    """An error that calibeat has raised in a worker, raised here: without the tracebacks of Java and Python."""
    try:
        yield
    except CalibeatError:
        raise
    except Exception as error:
        found = _OURS.search(str(error))
        if found is None:
            raise
        raise getattr(errors, found[1])(found[2].strip()) from None


def _within(path: str, name: str) -> str:
    return f"{path.rstrip('/')}/{name}"


def _is_there(spark: Any, path: str) -> bool:
    """Whether a folder exists, wherever it is. Spark finds that out when it is to read it."""
    from pyspark.errors import AnalysisException

    try:
        _ = spark.read.text(path).schema
    except AnalysisException:  # there is none; what else may be wrong with the path, Spark says when it writes
        return False
    return True
