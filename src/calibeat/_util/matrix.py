"""Data frames of K columns: pandas, polars and Arrow come in, and the same kind goes out, with its index."""

from __future__ import annotations

from typing import Any

import numpy as np

from .columns import _LIBRARIES
from .extras import need
from .types import Vector


def to_matrix(scores: Any) -> Any:
    """The values of a frame as a matrix; anything else as it came.

    >>> import polars
    >>> to_matrix(polars.DataFrame({"cat": [0.25, 0.5], "dog": [0.75, 0.5]}))
    array([[0.25, 0.75],
           [0.5 , 0.5 ]])
    """
    frame = _frame(scores)
    return scores if frame is None else frame.to_numpy()


def column_names(scores: Any) -> list[str] | None:
    """The names of a frame's columns; None for anything else.

    >>> import polars
    >>> column_names(polars.DataFrame({"cat": [0.25], "dog": [0.75]})), column_names([[0.25, 0.75]])
    (['cat', 'dog'], None)
    """
    frame = _frame(scores)
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
    frame = _frame(scores)
    if frame is None:
        return forecasts
    import narwhals as nw

    columns = {name: np.ascontiguousarray(forecasts[:, at]) for at, name in enumerate(frame.columns)}
    native: Any = nw.from_dict(columns, backend=frame.implementation).to_native()
    index = nw.maybe_get_index(frame)
    if index is not None:
        native.index = index
    return nw.from_native(native, eager_only=True) if isinstance(scores, nw.DataFrame) else native


def _frame(values: Any) -> Any:
    """The values as a narwhals DataFrame; None if they are none."""
    if isinstance(values, (np.ndarray, list, tuple)):
        return None
    if _LIBRARIES.isdisjoint(kind.__module__.partition(".")[0] for kind in type(values).__mro__):
        return None
    nw = need("narwhals", "frames", "data frames")
    frame = nw.from_native(values, eager_only=True, pass_through=True)
    return frame if isinstance(frame, nw.DataFrame) else None
