"""`calibrate`: a frame through one bank a partition, with the bits of one bank on one machine."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any, NamedTuple

from calibeat._util.check import check_choice
from calibeat._util.times import check_age
from calibeat.core.method import Method
from calibeat.errors import InvalidInput
from calibeat.hosts.bank import Bank
from calibeat.monitor.monitor import Monitor

from .columns import OWN, PLACE, REASON, ROW, Roles, numbered, place, quoted, read
from .partition import Partition
from .session import check_frame, check_libraries
from .state import FORMAT, check_same, check_state, described, from_bank


class Calibrated(NamedTuple):
    """What `calibrate` gives back: two frames, computed when they are used."""

    forecasts: Any  # the frame with `forecast`, and `judged`: whether the row holds the outcome of its event
    state: Any  # key, row, method, version: see calibeat.spark.state


def calibrate(
    frame: Any,
    *,
    key: str,
    score: str,
    outcome: str,
    order: Any,
    method: Method | str = "auto",
    outcome_time: str | None = None,
    time: str | None = None,
    state: Any = None,
    monitor: Monitor | None = None,
    seed: int = 0,
    independent: bool = False,
    mature: Any = None,
    finish: bool = False,
    bad: str = "stop",
    partitions: int | None = None,
    path: str | os.PathLike[str] | None = None,
) -> Calibrated:
    """Forecast every event of a frame and learn its outcome, key by key: the bits of `Bank.run` on one machine.

    Parameters
    ----------
    frame : a DataFrame of Spark, not a stream.
    key, score, outcome : names of columns. Keys are whole numbers or strings; outcomes 0, 1 or booleans, and null where
        none is known: such an event is forecast and not learnt.
    order : a column, or several, by which the events of a key are sorted. It must tell them apart.
    method : a `Method` or the name of a preset. Methods that keep their past (FPS, WPS, ...) are refused, as in `Bank`.
    time, outcome_time : when a score was issued and when its outcome was known, for late outcomes. An outcome is learnt
        before the first forecast of its key that is issued then or later; several at once in the order of their events.
        These are the bits of `Calibrator.run` with ``due=``. An outcome that is known after the last event of its key
        is not learnt, unless with `finish`. Times are timestamps, dates, or numbers of seconds.
    state : where to go on from: a state frame, a `Bank`, or the path of a bank file.
    monitor : a `Monitor`: each key then has one with its settings. Its numbers travel with the state.
    seed, independent : as in `Bank`, for hedging methods.
    mature : the age at which outcomes are learnt, a time such as ``"7d"``; needs `time`. As in `Bank.run`.
    finish : learn outcomes that are known after the last event of their key, at the end. Use it where the state goes on
        to serve: what is not learnt here is not learnt later.
    bad : "stop": the job fails at the first row that cannot be used, and names it. "skip": such rows are left out;
        `bad_rows` gives them with the reason.
    partitions : so many; as Spark has it set if not given. Results never depend on it.
    path : a folder to write both results to, once, as Parquet; both frames then read from it. Without it each frame
        computes when it is used, with the same bits: cache them, or give a path, where both are used.

    Returns ``(forecasts, state)``. Docs: docs/scale.md.
    """
    check_libraries("calibeat.spark")
    check_frame(frame)
    check_choice("bad", bad, ("stop", "skip"))
    bank = Bank(method, seed, independent=independent, monitor=monitor, threads=1)
    age = _age(mature, time)
    # Without late outcomes times are not looked at.
    late = outcome_time is not None or age is not None
    roles = Roles.of(frame, key, score, outcome, order, time if late else None, outcome_time)
    work = Partition(described(bank), roles, tuple(frame.columns), age, finish, resumed=state is not None)
    events = frame if bad == "stop" else _good(frame, roles)
    if state is not None:
        events = events.unionByName(_stored(frame, state, roles, work.described), allowMissingColumns=True)
    spread = events.repartition(quoted(key)) if partitions is None else events.repartition(partitions, quoted(key))
    placed = numbered(_sorted(spread, roles, late=late), roles)
    if bad == "skip":
        placed = placed.drop(REASON)
    return _written(frame, placed, work, path) if path is not None else _lazy(frame, placed, work)


def _age(mature: Any, time: str | None) -> int | None:
    if mature is None:
        return None
    age, is_time = check_age("mature", mature)
    if not is_time:
        raise InvalidInput(f"mature must be a time such as 7d, events of all keys have no order here, got {mature!r}")
    if time is None:
        raise InvalidInput("mature needs the time of each event, got none; give time=")
    return age


def _good(frame: Any, roles: Roles) -> Any:
    found = read(frame, roles)
    return found.where(found[REASON].isNull()).select(*map(quoted, frame.columns))


def _sorted(spread: Any, roles: Roles, *, late: bool) -> Any:
    """The events of a key in order, after the row of its state: by place, or key by key where that cannot be."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    where = None if late else place(spread, roles)
    if where is not None:
        return spread.sortWithinPartitions(where).withColumn(PLACE, where)
    first = [F.col(ROW).isNull()] if ROW in spread.columns else []
    return spread.sortWithinPartitions(quoted(roles.key), *first, *map(quoted, roles.order))


def _stored(frame: Any, state: Any, roles: Roles, wanted: str) -> Any:
    """The rows of a state as rows of the frame: nothing but the key, and the bytes."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    if isinstance(state, (str, os.PathLike, Bank)):
        state = from_bank(state, frame.sparkSession)
    found = check_state(state).select("method", "version").distinct().limit(2).collect()
    check_same([(row["method"], row["version"]) for row in found], wanted)
    kinds = frame.schema[roles.key].dataType.typeName(), state.schema["key"].dataType.typeName()
    if (kinds[0] == "string") != (kinds[1] == "string"):
        raise InvalidInput(f"keys must be of one kind, got {kinds[0]} in the frame and {kinds[1]} in the state")
    return state.select(F.col("key").cast(frame.schema[roles.key].dataType).alias(roles.key), F.col("row").alias(ROW))


def _lazy(frame: Any, placed: Any, work: Partition) -> Calibrated:
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    forecasts = placed.mapInArrow(replace(work, rows=False), _forecast_schema(frame))
    narrow = placed.select(*_needed(placed, work))
    kind = _key_kind(frame, work.roles)
    rows = narrow.mapInArrow(replace(work, events=False, columns=()), f"key {kind}, row binary")
    state = rows.select("key", "row", F.lit(work.described).alias("method"), F.lit(FORMAT).alias("version"))
    return Calibrated(forecasts, state)


def _written(frame: Any, placed: Any, work: Partition, path: str | os.PathLike[str]) -> Calibrated:
    """Both results in one pass, written to a folder and read from there."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
    from pyspark.sql.types import BinaryType, StructField, StructType

    fields = [StructField(field.name, field.dataType) for field in _forecast_schema(frame).fields]
    both = placed.mapInArrow(work, StructType([*fields, StructField(ROW, BinaryType())]))
    both.write.parquet(os.fspath(path))
    both = frame.sparkSession.read.parquet(os.fspath(path))
    rows = both.where(F.col(ROW).isNotNull())
    own = F.col(quoted(work.roles.key)).cast(_key_kind(frame, work.roles)).alias("key")
    given = F.lit(work.described).alias("method"), F.lit(FORMAT).alias("version")
    return Calibrated(both.where(F.col(ROW).isNull()).drop(ROW), rows.select(own, F.col(ROW).alias("row"), *given))


def _needed(placed: Any, work: Partition) -> list[str]:
    """What the workers read where no forecasts are asked for."""
    roles = work.roles
    own = [name for name in OWN if name in placed.columns]
    return [quoted(name) for name in dict.fromkeys([roles.key, roles.score, roles.outcome, *roles.order, *own])]


def _forecast_schema(frame: Any) -> Any:
    from pyspark.sql.types import BooleanType, DoubleType, StructField, StructType

    return StructType(
        [*frame.schema.fields, StructField("forecast", DoubleType()), StructField("judged", BooleanType())]
    )


def _key_kind(frame: Any, roles: Roles) -> str:
    return "string" if frame.schema[roles.key].dataType.typeName() == "string" else "bigint"
