"""Columns by name, as the hosts give them out."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt


class Table(dict[str, npt.NDArray[Any]]):
    """A mapping of arrays that any data frame library takes. A call gives the same: `table()` is `table`.

    >>> import numpy as np
    >>> table = Table(count=np.array([1, 2]))
    >>> table()["count"]
    array([1, 2])
    """

    def __call__(self) -> Table:
        """Itself: for those who take the table for a method."""
        return self
