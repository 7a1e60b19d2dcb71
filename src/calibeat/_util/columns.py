"""Columns of data frames: pandas, polars and Arrow come in, and the same kind goes out, with its index.

Rows go by position, as in scikit-learn: an index travels along and is never matched. Without narwhals a column is a
`MissingExtra`: the result must not depend on what happens to be installed. Arrays and lists do not need narwhals.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from calibeat.errors import InvalidInput

from .extras import need
from .types import Vector

NAME = "forecast"  # of a column that is given back

_PLAIN = (np.ndarray, list, tuple)
_LIBRARIES = {"pandas", "polars", "pyarrow", "modin", "cudf", "narwhals"}


def to_array(values: Any) -> Any:
    """The values of a column as an array; anything else as it came.

    >>> import polars
    >>> to_array(polars.Series([0.25, 0.5]))
    array([0.25, 0.5 ])
    """
    if type(values) in _PLAIN:
        return values
    column = as_series(values)
    if column is None:
        return values
    import narwhals as nw

    return (column.cast(nw.Float64) if isinstance(column.dtype, nw.Decimal) else column).to_numpy()


def like(values: Any, forecasts: npt.NDArray[np.float64]) -> Any:
    """The forecasts in the kind of `values`: an array for an array, a column (named "forecast") for a column.

    For a column of a kind that others have derived, one of the library's own.

    >>> import pandas, numpy
    >>> like(pandas.Series([0.25, 0.5], index=["a", "b"]), numpy.array([0.3, 0.6]))
    a    0.3
    b    0.6
    Name: forecast, dtype: float64
    """
    if type(values) in _PLAIN:
        return forecasts
    column = as_series(values)
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


def read_column(name: str, values: Any) -> tuple[npt.NDArray[Any], bool]:
    """Any column as a one-dimensional array, and whether its dates have a zone; those come as datetime64 in UTC.

    >>> read_column("scores", [0.25, 0.5])
    (array([0.25, 0.5 ]), False)
    """
    zoned = False
    if not isinstance(values, _PLAIN):
        values, zoned = _from_library(name, values)
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise InvalidInput(f"{name} must be a one-dimensional array, got a ragged {type(values).__name__}") from error
    if isinstance(values, (list, tuple)) and array.dtype.kind in "US":
        array = np.array(values, dtype=object)  # NumPy makes text of everything where one thing is text
    if array.ndim != 1:
        raise InvalidInput(f"{name} must be a one-dimensional array, got shape {array.shape}")
    return array, zoned


def _from_library(name: str, values: Any) -> tuple[Any, bool]:
    """The values of a series of a library as an array, and whether they are dates with a zone."""
    if values is None:
        raise InvalidInput(f"{name} must be an array or a series, got None")
    if type(values).__module__.partition(".")[0] == "pandas" and not hasattr(values, "columns"):
        values = sys.modules["pandas"].Series(values)  # an index or an array of pandas is no series of it
    series = as_series(values)
    if series is None:
        raise InvalidInput(f"{name} must be an array or a series, got {type(values).__name__}")
    import narwhals as nw

    if not isinstance(series.dtype, (nw.Datetime, nw.Date)):
        return series.to_numpy(), False
    moments = series.cast(nw.Datetime("us")) if isinstance(series.dtype, nw.Date) else series
    whole = moments.dt.timestamp("us").fill_null(0).to_numpy().astype(np.int64)
    dates = np.where(series.is_null().to_numpy(), np.datetime64("NaT"), whole.astype("datetime64[us]"))
    return dates, getattr(series.dtype, "time_zone", None) is not None


def as_series(values: Any) -> Any:
    """The values as a narwhals Series; None if they are no column."""
    if _LIBRARIES.isdisjoint(kind.__module__.partition(".")[0] for kind in type(values).__mro__):
        return None
    nw = need("narwhals", extra="frames", what="columns of data frames")
    if _is_arrow_array(values):  # narwhals knows Arrow's columns, which are arrays in chunks
        import pyarrow as pa

        values = pa.chunked_array([values])
    column = from_native(values, allow_series=True, pass_through=True)
    return column if isinstance(column, nw.Series) else None


def _is_arrow_array(values: Any) -> bool:
    kind = type(values)
    return kind.__module__.startswith("pyarrow") and hasattr(values, "buffers") and kind.__name__ != "ChunkedArray"


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
    frame = as_frame(scores)
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
    if isinstance(values, (np.ndarray, list, tuple)):
        return None
    if _LIBRARIES.isdisjoint(kind.__module__.partition(".")[0] for kind in type(values).__mro__):
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
