"""`backtest` of a frame: methods are replayed by key on the workers, and judged in the order of the log on the driver.

The driver reads the sorted log once, piece by piece, with the forecasts beside it. It counts them with the code of
`calibeat.backtest`, in the same order and cut at the same rows. So every number has the same bits, and neither the log
nor the forecasts are ever in one place.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from calibeat.backtest.judge.summary import LogInfo
from calibeat.backtest.options import Options
from calibeat.backtest.read.arrow import batch_of
from calibeat.backtest.read.batch import Batch
from calibeat.backtest.replay.contenders import chosen
from calibeat.backtest.result import BacktestResult
from calibeat.backtest.run import run
from calibeat.core.method import Method
from calibeat.errors import InvalidInput

from .columns import packed, unpacked
from .replays import AT_ONCE, FORECAST, Made, PartitionReplay, in_tables
from .rows import check_names, column_of, quoted
from .session import check_frame, check_libraries

PACKED = 32_768  # rows in one parcel to the driver


def backtest(
    frame: Any,
    *,
    score: str,
    outcome: str,
    key: str | None = None,
    time: str | None = None,
    outcome_time: str | None = None,
    order: Any = None,
    rivals: Any = (),
    partitions: int | None = None,
    **options: Any,
) -> BacktestResult:
    """The backtest of a log that does not fit one machine: the numbers and the page of `calibeat.backtest`.

    Parameters
    ----------
    frame : a DataFrame of Spark.
    score, outcome, key, time, outcome_time : names of columns, as in `calibeat.backtest`.
    order : a column, or several, that put the events of the whole log in their order; `time` if not given. It must tell
        events apart, or the numbers depend on how Spark sorts equals.
    rivals : names of columns with forecasts of others.
    partitions : of the keys; as Spark has it set if not given. Results never depend on it.
    options : the others of `calibeat.backtest`: methods, bins, warmup, delay, mature, score_kind, skip_bad, ...

    With keys the workers replay the methods, each its own keys. Without keys, and where a delay or an age is a number
    of events of the whole log, the driver replays them while it reads. It also replays contenders that learn from all
    keys at once (a pooled start) and those of other libraries. Memory does not grow with the log.
    """
    check_libraries("calibeat.spark")
    check_frame(frame)
    check_names(frame)
    chosen_options = Options(**options)
    named = {"score": score, "outcome": outcome, "key": key, "time": time, "outcome time": outcome_time}
    columns = {role: name for role, name in named.items() if name is not None}
    others = {f"rival {k}": name for k, name in enumerate([rivals] if isinstance(rivals, str) else rivals, 1)}
    for role, name in (columns | others).items():
        column_of(frame, role, name, None, "")
    if outcome_time is not None and time is None:
        raise InvalidInput("outcome_time needs time to be compared with, got none")
    if outcome_time is not None and chosen_options.delay:
        raise InvalidInput("delay must not be set where outcome_time says when outcomes arrived, got both")
    orders = [order] if isinstance(order, str) else list(order or ([] if time is None else [time]))
    if not orders:
        raise InvalidInput("order must name the columns that sort the log, got none and no time")
    for name in orders:
        column_of(frame, "order", name, None, "")
    needed = list(dict.fromkeys([*columns.values(), *others.values(), *orders]))
    log = frame.select(*map(quoted, needed))
    by_keys = _by_keys(chosen_options, keyed=key is not None)
    if by_keys:
        log = _replayed(log, by_keys, columns, orders, partitions, chosen_options)
    reader = Made(chosen_options, trace=True, methods=tuple(by_keys))
    source = LogInfo(chosen_options.title, ["a frame of Spark"], score_kind=chosen_options.score_kind)
    given = {**{role.replace(" ", "_"): name for role, name in columns.items()}, "order": order, **options}
    listed = ", ".join(f"{name}={value!r}" for name, value in given.items() if value is not None)
    source.command = f"calibeat.spark.backtest(frame, {listed})"
    batches = _batches(log.orderBy(*map(quoted, orders)), columns | others, reader)
    payload = run(batches, source, reader, keyed=key is not None, others=others, elsewhere=reader)
    return BacktestResult(payload)


def _by_keys(options: Options, *, keyed: bool) -> dict[str, Method]:
    """The methods that the workers replay: those that live in a row, where no count of the whole log matters."""
    counts = options.delay_events or (options.maturity is not None and options.maturity.events)
    if not keyed or counts:
        return {}
    contenders, _ = chosen(options.methods, keyed=True)
    return {each.name: each.method for each in contenders if each.method is not None}


def _replayed(
    log: Any,
    methods: dict[str, Method],
    columns: dict[str, str],
    orders: list[str],
    partitions: int | None,
    options: Options,
) -> Any:
    from pyspark.sql.types import DoubleType, StructField, StructType

    late = "outcome time" in columns or options.delay_microseconds > 0 or options.maturity is not None
    names = [FORECAST.format(at) for at in range(len(methods))]
    names += [AT_ONCE.format(at) for at in range(len(methods))] if late else []
    key = quoted(columns["key"])
    spread = log.repartition(key) if partitions is None else log.repartition(partitions, key)
    work = PartitionReplay(options, columns, tuple(methods.values()), late)
    schema = StructType([*log.schema.fields, *(StructField(name, DoubleType()) for name in names)])
    return spread.sortWithinPartitions(*map(quoted, orders)).mapInArrow(work, schema)


# ---- from the cluster to the driver, in order ----------------------------------------------------------------------


def _batches(log: Any, columns: dict[str, str], reader: Made) -> Iterator[Batch]:
    """The log in its order as batches; their forecasts go to the reader."""
    rows = log.mapInArrow(parcels, "content binary").toLocalIterator(prefetchPartitions=True)
    first = 0
    for table in in_tables(batch for row in rows for batch in unpacked(bytes(row["content"])).to_batches()):
        reader.add(first, table)
        roles = {role: table[name].combine_chunks() for role, name in columns.items()}
        yield batch_of(roles, "the frame", np.arange(first, first + len(table)), 0, reader.options)
        first += len(table)


def parcels(batches: Iterator[Any]) -> Iterator[Any]:
    """Many rows as one: a row for the driver costs as much as thousands inside a parcel."""
    import pyarrow as pa

    for table in in_tables(batches, PACKED):
        content = pa.array([packed(table)], pa.binary())
        yield pa.RecordBatch.from_arrays([content], names=["content"])
