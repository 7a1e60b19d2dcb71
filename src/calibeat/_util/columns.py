"""Columns as they come in, and forecasts as they go out.

`read_column` is the one reader of scores, outcomes, labels, keys, times and attributes of groups: NumPy, lists and
other sequences, pandas, polars, Arrow, and any object that exports Arrow data (`__arrow_c_array__`,
`__arrow_c_stream__`). `like` and `like_matrix` give forecasts back in the kind of the scores, with their index.

Rows go by position, as in scikit-learn: an index travels along and is never matched. Without narwhals a column is a
`MissingExtra`: the result must not depend on what happens to be installed. Arrays and lists do not need narwhals.
"""

from __future__ import annotations

import array as arrays
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from calibeat.errors import InvalidInput

from .extras import need
from .types import Flags, Ints, Vector

NAME = "forecast"  # of a column that is given back

PLAIN = (np.ndarray, list, tuple)
_LIBRARIES = {"pandas", "polars", "pyarrow", "modin", "cudf", "narwhals"}
_EXPORTS = ("__arrow_c_stream__", "__arrow_c_array__")  # the methods of Arrow's PyCapsule interface
_NUMBERS = "biuf"  # kinds of arrays


# ---- a column that comes in --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Column:
    """The values of a column, whatever it came in.

    values : an array of numbers, booleans, dates or text; of anything else a list, each value as it came.
    missing : where a value is masked or null, and `values` holds anything; None if none is. A NaN, or None in a list,
        stays a value: `absent` counts it too.
    zoned : whether these are dates with a time zone. They are in UTC then.
    """

    values: npt.NDArray[Any] | list[Any]
    missing: Flags | None = None
    zoned: bool = False

    def __len__(self) -> int:
        return len(self.values)

    def absent(self) -> Flags:
        """Where there is no value: it is masked or null, None, NaN, NA or NaT."""
        values, found = self.values, np.zeros(len(self), dtype=np.bool_)
        if isinstance(values, list):
            if not set(map(type, values)) <= {str, int, bool}:
                found[:] = [is_absent(value) for value in values]
        elif values.dtype.kind in "mM":
            found = np.isnat(values)
        elif values.dtype.kind == "f":
            found = np.isnan(values)
        return found if self.missing is None else found | self.missing

    def part(self, rows: slice) -> Column:
        """Some rows."""
        return Column(self.values[rows], None if self.missing is None else self.missing[rows], self.zoned)

    def only(self, rows: Flags) -> Column:
        """The column with 0 in all other rows, if it has as many; if not, itself: the caller will say so."""
        if len(rows) != len(self) or rows.all():
            return self
        missing = None if self.missing is None else self.missing & rows
        if isinstance(self.values, list):
            return Column([value if row else 0 for value, row in zip(self.values, rows, strict=True)], missing)
        return Column(np.where(rows, self.values, 0), missing) if self.values.dtype.kind in _NUMBERS else self

    def as_array(self) -> npt.NDArray[Any]:
        """As an array: what is missing is NaN among numbers, NaT among dates and None among all else."""
        values, missing = self.values, self.missing
        if isinstance(values, list):
            with suppress(ValueError):  # they have different lengths
                array = np.asarray(values)
                if array.dtype.kind not in "US" and array.ndim == 1:  # NumPy makes all text where one thing is text
                    return array
            return _objects(values)
        if missing is None:
            return values
        kind = values.dtype.kind
        if kind in "mM":
            return np.where(missing, np.array("NaT", values.dtype), values)
        if kind in "iuf":
            return np.where(missing, math.nan, values)
        array = values.astype(object)
        array[missing] = None
        return array

    def codes(self) -> tuple[list[Any], Ints]:
        """The distinct values as Python has them, and the place of each row's value among them.

        What is absent among numbers, masked or null is the value None. In a list 1, 1.0 and True are three values. If
        a value cannot be hashed, all rows count as distinct.

        >>> read_column("keys", ["b", "a", "b"]).codes()
        (['b', 'a'], array([0, 1, 0]))
        """
        values = self.values
        if isinstance(values, np.ndarray) and values.dtype.kind in _NUMBERS:
            absent = self.absent()
            if not absent.any():
                return _codes_of_numbers(values)
            distinct, among = _codes_of_numbers(values[~absent])
            codes = np.full(len(values), len(distinct))
            codes[~absent] = among
            return [*distinct, None], codes
        if isinstance(values, np.ndarray):
            # Python's own dates would look like whole numbers or lose their kind.
            values = list(values) if values.dtype.kind in "mM" else values.tolist()
        if self.missing is not None:
            values = [None if gone else value for value, gone in zip(values, self.missing, strict=True)]
        return _codes_of_list(values)

    def places(self, index: Mapping[Any, int]) -> Ints:
        """The place of each value by an index; -1 for a value that it does not have.

        >>> read_column("labels", ["b", "a", "c"]).places({"a": 0, "b": 1})
        array([ 1,  0, -1])
        """
        distinct, codes = self.codes()
        return np.array([_place(index, value) for value in distinct], dtype=np.int64)[codes]

    def value(self, row: int) -> Any:
        """The value of a row as Python has it; None if it is missing."""
        if self.missing is not None and self.missing[row]:
            return None
        value = self.values[row]
        return value.item() if isinstance(value, np.generic) and value.dtype.kind not in "mM" else value


def _place(index: Mapping[Any, int], value: Any) -> int:
    try:
        return index.get(value, -1)
    except TypeError:  # it cannot be hashed
        return -1


def _objects(values: list[Any]) -> npt.NDArray[np.object_]:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def is_absent(value: Any) -> bool:
    """Whether it stands for a missing value: None or NaN, or NA and NaT of pandas, which need not be there."""
    if isinstance(value, (float, np.floating)):
        return math.isnan(value)
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return bool(np.isnat(value))
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def _codes_of_numbers(values: npt.NDArray[Any]) -> tuple[list[Any], Ints]:
    """Numbers none of which is NaN. Whole numbers that are close together need no sorting."""
    with np.errstate(invalid="ignore"):
        whole = values.astype(np.int64)
    if len(whole) and (values.dtype.kind in "bi" or (whole == values).all()):
        low, high = int(whole.min()), int(whole.max())
        if high - low <= max(1024, 2 * len(whole)):
            there = np.zeros(high - low + 1, dtype=np.bool_)
            there[whole - low] = True
            distinct = np.flatnonzero(there)
            place = np.cumsum(there) - 1
            return (distinct + low).astype(values.dtype).tolist(), place[whole - low]
    different, codes = np.unique(values, return_inverse=True)
    return different.tolist(), codes.reshape(-1)


def _codes_of_list(values: list[Any]) -> tuple[list[Any], Ints]:
    one_kind = len(set(map(type, values))) <= 1
    keys: Sequence[Any] = values if one_kind else list(zip(map(type, values), values, strict=True))
    try:
        places = dict.fromkeys(keys, 0)
    except TypeError:
        return values, np.arange(len(values))
    for place, key in enumerate(places):
        places[key] = place
    codes = np.fromiter(map(places.__getitem__, keys), dtype=np.int64, count=len(keys))
    return list(places) if one_kind else [value for _, value in places], codes


def _no_hint(shape: tuple[int, ...]) -> str:  # noqa: ARG001 - others look at it
    return ""


def read_column(
    name: str, column: Any, wanted: str = "a one-dimensional array", hint: Callable[[tuple[int, ...]], str] = _no_hint
) -> Column:
    """Read a column of any kind.

    Parameters
    ----------
    name, wanted : what messages call it, and what it must be.
    hint : what a message ends with where the column has another shape.

    Raises
    ------
    InvalidInput : it is no column, or has not one dimension.
    MissingExtra : it is of a library of data frames or exports Arrow data, and narwhals or pyarrow is missing.

    >>> read_column("scores", [0.25, 0.5]).values
    [0.25, 0.5]
    >>> import polars
    >>> read_column("labels", polars.Series([1, None])).missing
    array([False,  True])
    """
    if not isinstance(column, PLAIN):
        series = as_series(_of_pandas(column))
        if series is not None:
            return _column_of_series(series)
        if isinstance(column, Sequence) and not isinstance(column, (str, bytes, bytearray, memoryview, arrays.array)):
            column = list(column)
    if isinstance(column, (list, tuple)) and not (column and isinstance(column[0], (list, tuple, np.ndarray))):
        return Column(list(column))
    try:
        array = np.asarray(column)
    except ValueError as error:
        raise InvalidInput(f"{name} must be {wanted}, got a ragged {type(column).__name__}") from error
    if array.ndim != 1:
        is_array = array.ndim > 0 or isinstance(column, np.ndarray)
        got = f"shape {array.shape}" if is_array else "None" if column is None else type(column).__name__
        raise InvalidInput(f"{name} must be {wanted}, got {got}{hint(array.shape)}")
    missing = np.ma.getmaskarray(column) if np.ma.is_masked(column) else None
    # NumPy's strings of any length are as good as Python's.
    return Column(array.tolist() if array.dtype.kind in "OT" else array, missing)


def _column_of_series(series: Any) -> Column:
    """The values of a narwhals Series."""
    import narwhals as nw

    kind = series.dtype
    if isinstance(kind, nw.String):
        return Column(series.to_list())
    missing = series.is_null().to_numpy() if series.null_count() else None
    if isinstance(kind, (nw.Datetime, nw.Date)):
        moments = series.cast(nw.Datetime("us")) if isinstance(kind, nw.Date) else series
        whole = moments.dt.timestamp("us").fill_null(0).to_numpy().astype(np.int64)
        return Column(whole.astype("datetime64[us]"), missing, getattr(kind, "time_zone", None) is not None)
    if isinstance(kind, nw.Decimal):
        series, kind = series.cast(nw.Float64), nw.Float64()
    if missing is not None and (kind.is_numeric() or isinstance(kind, nw.Boolean)):
        series = series.fill_null(False if isinstance(kind, nw.Boolean) else 0)
    array = np.asarray(series.to_numpy())
    return Column(array.tolist() if array.dtype.kind == "O" else array, missing)


def as_series(values: Any) -> Any:
    """The values as a narwhals Series; None if they are no column."""
    if is_exported(values):
        values = _imported(values)
    return _series_of_library(values)


def _series_of_library(values: Any) -> Any:
    if not _is_of_library(values):
        return None
    nw = need("narwhals", extra="frames", what="columns of data frames")
    if _is_arrow_array(values):  # narwhals knows Arrow's columns, which are arrays in chunks
        import pyarrow as pa

        values = pa.chunked_array([values])
    column = from_native(values, allow_series=True, pass_through=True)
    return column if isinstance(column, nw.Series) else None


def _is_of_library(values: Any) -> bool:
    return not _LIBRARIES.isdisjoint(kind.__module__.partition(".")[0] for kind in type(values).__mro__)


def _is_arrow_array(values: Any) -> bool:
    kind = type(values)
    return kind.__module__.startswith("pyarrow") and hasattr(values, "buffers") and kind.__name__ != "ChunkedArray"


def _of_pandas(values: Any) -> Any:
    """An index or an array of pandas, which is no series of it, as one; anything else as it came."""
    if type(values).__module__.partition(".")[0] == "pandas" and not hasattr(values, "columns"):
        return sys.modules["pandas"].Series(values)
    return values


def is_exported(values: Any) -> bool:
    """Whether a library that is not one of ours exports these as Arrow data. Many a stream can be read only once."""
    return any(hasattr(type(values), name) for name in _EXPORTS) and not _is_of_library(values)


def _imported(values: Any) -> Any:
    """Exported data as a column of pyarrow, or as its table if they have several."""
    pa = need("pyarrow", extra="frames", what="columns of exported Arrow arrays")
    stream = hasattr(values, "__arrow_c_stream__")
    column = pa.chunked_array(values) if stream else pa.chunked_array([pa.array(values)])
    return pa.Table.from_struct_array(column) if pa.types.is_struct(column.type) else column


# ---- a column that goes out --------------------------------------------------------------------------------------


def like(values: Any, forecasts: npt.NDArray[np.float64]) -> Any:
    """The forecasts in the kind of `values`: an array for an array, a column (named "forecast") for a column.

    For a column of a kind that others have derived, one of the library's own.

    >>> import pandas, numpy
    >>> like(pandas.Series([0.25, 0.5], index=["a", "b"]), numpy.array([0.3, 0.6]))
    a    0.3
    b    0.6
    Name: forecast, dtype: float64
    """
    if type(values) in PLAIN:
        return forecasts
    column = _series_of_library(values)
    if column is None:
        return forecasts
    import narwhals as nw

    index = nw.maybe_get_index(column)
    native: Any = nw.new_series(NAME, forecasts, nw.Float64, backend=column.implementation).to_native()
    if index is not None:  # narwhals' maybe_set_index would lose its name
        native.index = index
    if isinstance(values, nw.Series):
        return nw.from_native(native, series_only=True)
    return native.combine_chunks() if _is_arrow_array(values) else native


def to_matrix(scores: Any) -> Any:
    """The values of a frame as a matrix; anything else as it came.

    >>> import polars
    >>> to_matrix(polars.DataFrame({"cat": [0.25, 0.5], "dog": [0.75, 0.5]}))
    array([[0.25, 0.75],
           [0.5 , 0.5 ]])
    """
    frame = as_frame(scores)
    return scores if frame is None else frame.to_numpy()


def column_names(scores: Any) -> list[str] | None:
    """The names of a frame's columns; None for anything else.

    >>> import polars
    >>> column_names(polars.DataFrame({"cat": [0.25], "dog": [0.75]})), column_names([[0.25, 0.75]])
    (['cat', 'dog'], None)
    """
    frame = as_frame(scores)
    return None if frame is None else [str(name) for name in frame.columns]


def is_matrix(scores: Any) -> bool:
    """Whether these have several columns, one for each class: a frame, a two-dimensional array, or a list of rows.

    >>> is_matrix([[0.25, 0.75]]), is_matrix([0.25, 0.75]), is_matrix(np.ones((2, 3))), is_matrix(np.ones((2, 1)))
    (True, False, True, False)
    """
    if isinstance(scores, (list, tuple)):
        return bool(scores) and isinstance(scores[0], (list, tuple, np.ndarray)) and len(scores[0]) > 1
    matrix = to_matrix(scores)
    return getattr(matrix, "ndim", 1) == 2 and matrix.shape[1] > 1


def like_matrix(scores: Any, forecasts: Vector) -> Any:
    """The forecasts in the kind of `scores`: a matrix for a matrix, a frame with the same columns for a frame.

    >>> import pandas, numpy
    >>> like_matrix(pandas.DataFrame({"cat": [0.2], "dog": [0.8]}, index=["a"]), numpy.array([[0.3, 0.7]]))
       cat  dog
    a  0.3  0.7
    """
    frame = None if isinstance(scores, PLAIN) else _frame_of_library(scores)
    if frame is None:
        return forecasts
    import narwhals as nw

    columns = {name: np.ascontiguousarray(forecasts[:, at]) for at, name in enumerate(frame.columns)}
    native: Any = nw.from_dict(columns, backend=frame.implementation).to_native()
    index = nw.maybe_get_index(frame)
    if index is not None:
        native.index = index
    return nw.from_native(native, eager_only=True) if isinstance(scores, nw.DataFrame) else native


def as_frame(values: Any) -> Any:
    """The values as a narwhals DataFrame; None if they are none."""
    if isinstance(values, PLAIN):
        return None
    return _frame_of_library(_imported(values) if is_exported(values) else values)


def _frame_of_library(values: Any) -> Any:
    if not _is_of_library(values):
        return None
    nw = need("narwhals", "frames", "data frames")
    frame = from_native(values, eager_only=True, pass_through=True)
    return frame if isinstance(frame, nw.DataFrame) else None


def from_native(values: Any, **how: bool) -> Any:
    """As narwhals' own, which must be there; two columns of one name are `InvalidInput`."""
    import narwhals as nw

    try:
        return nw.from_native(values, **how)
    except nw.exceptions.DuplicateError as error:
        raise InvalidInput("columns of a data frame must have different names, got one twice") from error


class Table(dict[str, npt.NDArray[Any]]):
    """A mapping of arrays that any data frame library takes. A call gives the same: `table()` is `table`.

    >>> import numpy as np
    >>> table = Table(count=np.array([1, 2]))
    >>> table()["count"]
    array([1, 2])
    """

    def __call__(self) -> Table:
        """Itself, so that `table()` works like `table`."""
        return self
