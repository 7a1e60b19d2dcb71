"""The state of many streams as a frame: a row of bytes for each key, and which method it belongs to.

==========  =================================================================================================
column      holds
==========  =================================================================================================
`key`       the key, a long or a string
`row`       float64, little-endian: the method's state, six stats, and behind them the monitor's numbers if there is one
`method`    the name of a preset, or JSON where a name does not say all (a method of your own, a seed, classes, ...)
`version`   of this layout: 1
==========  =================================================================================================
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from calibeat._util.check import shown
from calibeat._util.extras import LazyModule
from calibeat.core.method import AUTO, Method, method_named, name_of
from calibeat.errors import InvalidInput, SnapshotMismatch
from calibeat.hosts.bank import Bank, row_width, rows_in, rows_out
from calibeat.hosts.bankfile import holds_classes
from calibeat.hosts.multi import Door, MultiBank
from calibeat.monitor.monitor import Monitor

from .session import check_frame, check_libraries, has_streams, without_pandas_warning

pa = LazyModule("pyarrow")
F = LazyModule("pyspark.sql.functions")

FORMAT = 3  # the version of this layout
COLUMNS = ("key", "row", "method", "version")
STATE = "key {key}, row binary, method string, version int"


# ---- what the rows belong to -------------------------------------------------------------------------------------


def new_bank(method: Any, classes: Any = None, *, logits: bool = False, **settings: Any) -> Bank:
    """An empty bank: of two classes, or of those given; then "auto" is "multi". `settings` are those of `Bank`.

    >>> new_bank("auto").method.learner, new_bank("auto", ["cat", "dog", "bird"])
    (Lanes(horizon=True), MultiBank(3 classes, method='multi', keys=0))
    """
    if classes is None:
        if logits:
            raise InvalidInput("logits must come with classes, got no classes")
        return Bank(method, **settings, threads=1)
    name = "multi" if method == AUTO or (isinstance(method, str) and method.lower() == "auto") else method
    own = {name: value for name, value in settings.items() if name != "seed"}  # nothing is drawn
    return MultiBank(classes, name, logits, **own, threads=1)


def door_of(bank: Bank) -> Door | None:
    """How scores and labels of many classes come in and go out; None for two classes without names."""
    return Door(bank.classes, bank.method, bank.logits) if isinstance(bank, MultiBank) else None


def described(bank: Bank) -> str:
    """Method, seed, classes and monitor of a bank as text.

    >>> described(Bank("tops")), described(Bank("tops", seed=7))
    ('tops', '{"method": "tops", "monitor": null, "seed": 7}')
    >>> described(MultiBank(["cat", "dog"], "ots"))
    '{"classes": ["cat", "dog"], "logits": false, "method": "ots", "monitor": null}'
    """
    monitor = None if bank.watched is None else asdict(bank.watched)
    if isinstance(bank, MultiBank):
        count = len(bank.classes)
        classes = count if bank.classes == tuple(range(count)) else list(bank.classes)
        many = {"classes": classes, "method": bank.method, "logits": bank.logits, "monitor": monitor}
        return json.dumps(many, sort_keys=True)
    name = name_of(bank.method)
    plain = bank.seed == 0 and bank.watched is None
    if name is not None and plain:
        return name
    settings = {"method": name or bank.method.to_dict(), "seed": bank.seed, "monitor": monitor}
    return json.dumps(settings, sort_keys=True)


def bank_of(text: str) -> Bank:
    """An empty bank of that description.

    >>> bank_of('{"method": "tops", "monitor": null, "seed": 7}').seed
    7
    """
    if not text.startswith("{"):
        return Bank(text, threads=1)
    try:
        settings = json.loads(text)
        if settings["monitor"] is not None:
            settings["monitor"] = Monitor(**settings["monitor"])
        if "classes" not in settings:
            method = settings["method"]
            settings["method"] = method_named(method) if isinstance(method, str) else Method.from_dict(method)
        return new_bank(**settings)
    except (KeyError, TypeError, ValueError) as error:
        raise SnapshotMismatch(f"state must name a method that this version knows, got {text!r:.200}") from error


# ---- rows as bytes -----------------------------------------------------------------------------------------------


def to_bytes(rows: npt.NDArray[np.float64]) -> list[bytes]:
    """Each row as bytes."""
    return np.ascontiguousarray(rows, dtype="<f8").view(f"V{8 * rows.shape[1]}").ravel().tolist() if len(rows) else []


def from_bytes(bank: Bank, rows: list[Any], keys: Any) -> npt.NDArray[np.float64]:
    """The inverse of `to_bytes`, for the rows of such a bank."""
    size = 8 * row_width(bank)
    for key, row in zip(keys, rows, strict=True):
        if row is None or len(row) != size:
            got = "nothing" if row is None else f"{len(row)}"
            raise SnapshotMismatch(
                f"state rows of {described(bank)} must have {size} bytes, got {got} - at key {key!r}"
            )
    return np.frombuffer(b"".join(rows), dtype="<f8").reshape(len(rows), -1).astype(np.float64)


# ---- frames ------------------------------------------------------------------------------------------------------


def check_state(frame: Any) -> Any:
    """A frame with the columns of a state."""
    check_frame(frame, "state")
    missing = [name for name in COLUMNS if name not in frame.columns]
    if missing:
        raise SnapshotMismatch(f"state must have the columns {', '.join(COLUMNS)}, got none named {missing[0]!r}")
    return frame


def check_same(found: list[tuple[Any, Any]], wanted: str | None = None) -> str:
    """The one description of all rows, given the distinct pairs of method and version."""
    for method, version in found:
        if version != FORMAT:
            raise SnapshotMismatch(f"state must be of version {FORMAT}, got {shown(version)}")
        if wanted is not None and method != wanted:
            raise SnapshotMismatch(f"state must be of {wanted}, got rows of {method}")
    if len(found) > 1:
        raise SnapshotMismatch(f"state must be of one method, got {found[0][0]} and {found[1][0]}")
    if not found:
        raise InvalidInput("state must hold one key at least, got none")
    return str(found[0][0])


def as_state(rows: Any, text: str) -> Any:
    """A frame of `key` and `row` as a state frame of that description."""
    return rows.select("key", "row", F.lit(text).alias("method"), F.lit(FORMAT).alias("version"))


@without_pandas_warning()
def to_bank(state: Any) -> Bank:
    """A state frame as one `Bank` in the memory of the driver: to save it, to serve from it, to look at it.

    Every key counts as just seen: `Bank.drop_idle` drops none of them before its own time has passed.

    Raises
    ------
    SnapshotMismatch : the frame is no state, or one of several methods or of another version.
    InvalidInput : it holds no key.
    MissingExtra : pyspark, pyarrow or pandas is not installed.
    """
    check_libraries("calibeat.spark")
    taken = check_state(state).select(*COLUMNS)
    table = taken.toArrow() if hasattr(taken, "toArrow") else _from_pandas(taken)
    table = table.combine_chunks()
    pairs = table.group_by(["method", "version"]).aggregate([])
    found = sorted(zip(pairs["method"].to_pylist(), pairs["version"].to_pylist(), strict=True), key=str)
    bank = bank_of(check_same(found))
    keys = table["key"].to_pylist()
    rows_in(bank, keys, from_bytes(bank, table["row"].to_pylist(), keys), seen=True)
    return bank


def _from_pandas(frame: Any) -> Any:  # pragma: no cover - Spark 3.5, which has no toArrow
    return pa.Table.from_pandas(frame.toPandas(), preserve_index=False)


@without_pandas_warning()
def from_bank(bank: Any, spark: Any) -> Any:
    """A bank, or the file of one, as a state frame: `calibrate` and `calibrate_stream` go on from it.

    Receipts that wait for their outcome do not travel. A pool (``prior="pooled"``) does not either: such a bank is
    refused, because its new keys would start otherwise on each machine.

    Raises
    ------
    InvalidInput : `bank` is neither a bank nor a path, or its prior is pooled.
    SnapshotMismatch : the file is no bank file of this version.
    MissingExtra : pyspark, pyarrow or pandas is not installed.
    """
    check_libraries("calibeat.spark")
    if isinstance(bank, (str, os.PathLike)):
        bank = (MultiBank if holds_classes(Path(bank)) else Bank).load(bank, threads=1)
    if not isinstance(bank, Bank):
        raise InvalidInput(f"bank must be a Bank or the path of its file, got {type(bank).__name__}")
    if bank.prior is not None:
        raise InvalidInput('a bank with prior="pooled" learns from all keys in one order and cannot be spread, got one')
    names, rows = rows_out(bank)
    kind = "string" if bank.kind == "strings" else "bigint"
    columns = {"key": names, "row": to_bytes(rows), "method": [described(bank)] * len(names)}
    table = pa.table({**columns, "version": np.full(len(names), FORMAT, dtype=np.int32)})
    # Spark 3.5 takes no table of Arrow.
    return spark.createDataFrame(table if has_streams(spark.version) else table.to_pandas(), STATE.format(key=kind))
