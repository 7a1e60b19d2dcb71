"""Columns from Python: NumPy arrays and lists, and through narwhals the series of pandas, polars and Arrow."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from calibeat._util.check import check_lengths
from calibeat._util.times import FINE, MISSING, UNREADABLE, States, Times
from calibeat.errors import InvalidInput, MissingExtra

from .rows import CHUNK, Batch, Codes, Numbers

WORDS = {"false": 0.0, "true": 1.0, "no": 0.0, "yes": 1.0, "f": 0.0, "t": 1.0, "n": 0.0, "y": 1.0}
Column = npt.NDArray[Any]


def batches(
    scores: Any, outcomes: Any, keys: Any = None, times: Any = None, outcome_times: Any = None, *, percent: bool = False
) -> Iterator[Batch]:
    """The columns, checked for their lengths, in batches."""
    named = {"scores": scores, "outcomes": outcomes, "keys": keys, "times": times, "outcome_times": outcome_times}
    needed = ("scores", "outcomes")
    columns = {name: _column(name, values) for name, values in named.items() if values is not None or name in needed}
    check_lengths(**{name: len(column) for name, column in columns.items()})
    roles = {"score": "scores", "outcome": "outcomes", "key": "keys", "time": "times", "outcome time": "outcome_times"}
    total = len(columns["scores"])

    def batch(at: int) -> Batch:
        part = {name: column[at : at + CHUNK] for name, column in columns.items()}

        def said(role: str, row: int) -> str:
            value = part[roles[role]][row]
            if isinstance(value, np.datetime64):  # which Python may have no date for
                return str(value)
            return repr(value.item() if isinstance(value, np.generic) else value)[:60]

        return Batch(
            _numbers(part["scores"], percent=percent),
            _outcomes(part["outcomes"]),
            said,
            lambda row: f"row {at + row}",
            np.arange(at, at + len(part["scores"])),
            0,
            _times(part["times"]) if "times" in part else None,
            _times(part["outcome_times"]) if "outcome_times" in part else None,
            _codes(part["keys"], at) if "keys" in part else None,
        )

    return (batch(at) for at in range(0, total, CHUNK))


def _column(name: str, values: Any) -> Column:
    if not isinstance(values, (list, tuple, np.ndarray)):
        values = _from_frame(name, values)
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise InvalidInput(f"{name} must be a one-dimensional array, got a ragged {type(values).__name__}") from error
    if isinstance(values, (list, tuple)) and array.dtype.kind in "US":
        array = np.array(values, dtype=object)  # NumPy makes text of everything where one thing is text
    if array.ndim != 1:
        raise InvalidInput(f"{name} must be a one-dimensional array, got shape {array.shape}")
    return array


def _from_frame(name: str, values: Any) -> Any:
    if values is None:
        raise InvalidInput(f"{name} must be an array or a series, got None")
    try:
        import narwhals as nw
    except ImportError as error:
        raise MissingExtra(
            "series of pandas, polars and Arrow need narwhals of the extra 'backtest': pip install 'calibeat[backtest]'"
        ) from error
    try:
        series = nw.from_native(_as_series(values), series_only=True)
    except TypeError as error:
        raise InvalidInput(f"{name} must be an array or a series, got {type(values).__name__}") from error
    if isinstance(series.dtype, (nw.Datetime, nw.Date)):
        moments = series.cast(nw.Datetime("us")) if isinstance(series.dtype, nw.Date) else series
        numbers = moments.dt.timestamp("us")
        missing = series.is_null().to_numpy()
        whole = numbers.fill_null(0).to_numpy().astype(np.int64)
        return np.where(missing, np.datetime64("NaT"), whole.astype("datetime64[us]"))
    return series.to_numpy()


def _as_series(values: Any) -> Any:
    """A column of a library that is no series of it: an index or array of pandas, an array of Arrow."""
    library = type(values).__module__.partition(".")[0]
    if library == "pandas" and not hasattr(values, "columns"):
        return sys.modules["pandas"].Series(values)
    if library == "pyarrow" and hasattr(values, "type"):
        pa = sys.modules["pyarrow"]
        return values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])
    return values


# ---- what stands in a column ---------------------------------------------------------------------------------------


def _numbers(column: Column, *, percent: bool = False) -> Numbers:
    if column.dtype.kind in "iuf":
        values = column.astype(np.float64)
        return Numbers(values, np.where(np.isnan(values), MISSING, FINE).astype(np.int8))
    return _one_by_one(column, _percent if percent else _number)


def _outcomes(column: Column) -> Numbers:
    return _numbers(column.astype(np.float64) if column.dtype.kind == "b" else column) \
        if column.dtype.kind in "biuf" else _one_by_one(column, outcome_of)  # fmt: skip


def _one_by_one(column: Column, read: Any) -> Numbers:
    values, states = np.full(len(column), np.nan), np.full(len(column), UNREADABLE, dtype=np.int8)
    for row, value in enumerate(column):
        if is_missing(value):
            states[row] = MISSING
        elif (found := read(value)) is not None:
            values[row], states[row] = found, FINE
    return Numbers(values, states)


def is_missing(value: Any) -> bool:
    """None, NaN, NaT, the NA of pandas, or text that is empty."""
    if value is None or type(value).__name__ in {"NAType", "NaTType"}:
        return True
    if isinstance(value, str):
        return not value.strip()
    return isinstance(value, (float, np.floating)) and math.isnan(value)


def _number(value: Any) -> float | None:
    if isinstance(value, (bool, np.bool_)):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return None if math.isnan(number) else number


def _percent(value: Any) -> float | None:
    return _number(value.strip().removesuffix("%") if isinstance(value, str) else value)


def outcome_of(value: Any) -> float | None:
    """A number, a boolean, or a word such as yes and no; None for anything else."""
    if isinstance(value, str):
        word = value.strip().lower()
        return WORDS[word] if word in WORDS else _number(word)
    return float(value) if isinstance(value, (bool, np.bool_)) else _number(value)


def _times(column: Column) -> Times:
    if column.dtype.kind == "M":
        years = column.astype("datetime64[Y]").astype(np.int64) + 1970  # microseconds overflow where years do not
        missing, far = np.isnat(column), (years < 1) | (years > 9999)
        whole = np.where(far, np.datetime64(0, "us"), column.astype("datetime64[us]")).astype(np.int64)
        return Times(whole, np.where(missing, MISSING, np.where(far, UNREADABLE, FINE)).astype(np.int8), dated=True)
    if column.dtype.kind in "iuf":
        numbers = _numbers(column)
        return Times(numbers.values, numbers.states, dated=False)
    values, states = np.zeros(len(column), dtype=np.int64), np.zeros(len(column), dtype=np.int8)
    for row, value in enumerate(column):
        if is_missing(value):
            states[row] = MISSING
        elif (found := moment(value)) is not None:
            values[row] = found
        else:
            states[row] = UNREADABLE
    return Times(values, states, dated=True)


def moment(value: Any) -> int | None:
    """A date as microseconds since 1970; without a zone it is taken for UTC."""
    if not isinstance(value, datetime):
        try:
            value = datetime.fromisoformat(str(value).strip())
        except ValueError:
            return None
    if value.tzinfo is None:
        value = value.replace(tzinfo=UTC)
    since = value - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _codes(column: Column, first: int) -> Codes:
    if column.dtype.kind in "iubUS":
        names, indices = np.unique(column, return_inverse=True)
        return Codes(indices.astype(np.int64), names.tolist())
    seen: dict[Any, int] = {}
    codes = np.full(len(column), -1, dtype=np.int64)
    for row, value in enumerate(column.tolist()):
        if not is_missing(value):
            try:
                codes[row] = seen.setdefault(value, len(seen))
            except TypeError:
                raise InvalidInput(f"key must be text or a number, got {value!r:.60} - at row {first + row}") from None
    return Codes(codes, list(seen))


__all__ = ["States", "batches", "is_missing", "moment", "outcome_of"]
