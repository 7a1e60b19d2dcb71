"""Columns of data frames: pandas, polars and Arrow come in, and the same kind goes out, with its index.

Rows go by position, as in scikit-learn: an index travels along and is never matched. Without narwhals a column is a
`MissingExtra`: what comes back must not depend on what happens to be installed. Arrays and lists never touch it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from calibeat.errors import MissingExtra

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
    column = _column(values)
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
    column = _column(values)
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


def _column(values: Any) -> Any:
    """The values as a narwhals Series; None if they are no column."""
    if _LIBRARIES.isdisjoint(kind.__module__.partition(".")[0] for kind in type(values).__mro__):
        return None
    try:
        import narwhals as nw
    except ImportError as error:
        raise MissingExtra("columns of data frames need narwhals: pip install 'calibeat[frames]'") from error
    if _is_arrow_array(values):  # narwhals knows Arrow's columns, which are arrays in chunks
        import pyarrow as pa

        values = pa.chunked_array([values])
    column = nw.from_native(values, allow_series=True, pass_through=True)
    return column if isinstance(column, nw.Series) else None


def _is_arrow_array(values: Any) -> bool:
    kind = type(values)
    return kind.__module__.startswith("pyarrow") and hasattr(values, "buffers") and kind.__name__ != "ChunkedArray"
