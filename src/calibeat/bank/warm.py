"""The compiled kernels of a bank, all of them called once."""

from __future__ import annotations

import numpy as np

from calibeat.core.method import AUTO, HOPS

from .bank import Bank


def warm_bank() -> None:
    """Load, or compile, the kernels of a `Bank`: see `calibeat.warm_up`."""
    scores, outcomes, keys = np.full(100, 0.5), np.ones(100), np.arange(100)
    for column in (keys, keys.astype("U")):
        made = Bank(AUTO, prior="pooled")
        made.run(column, scores, outcomes)
        made.predict_many(column, scores)
    made.run(column, scores, outcomes, due=keys + 1)
    made.fold(column, scores, np.full(100, np.nan))
    made = Bank(HOPS)
    made.run(keys, scores, outcomes)
