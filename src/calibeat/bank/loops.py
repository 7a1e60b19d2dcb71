"""What the loops of a bank need beside those of `calibeat.core.loops`: outcomes of one stream that came late."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from calibeat._util.types import Vector
from calibeat.core.jit import kernel
from calibeat.core.stats import add_losses


@kernel
def add_late_losses(
    stats: Vector, scores: Vector, forecasts: Vector, outcomes: Vector, order: npt.NDArray[np.int64]
) -> None:
    """The losses of outcomes of one stream, in the order in which they came."""
    for i in order:
        add_losses(stats, 0, scores[i], forecasts[i], outcomes[i])
