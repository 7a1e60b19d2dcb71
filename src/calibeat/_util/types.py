"""The types that everybody speaks of."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]
Table = npt.NDArray[np.float64]  # of two or more dimensions
Ints = npt.NDArray[np.int64]
Slots = npt.NDArray[np.int32]
Flags = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
UpdateStatus = Literal["learnt", "repeated"]  # what `update` says of an outcome: new, or known already
