"""Every compiled kernel, loaded at a time of the user's choice."""

from __future__ import annotations

import numpy as np

from calibeat.core.jit import compiling_at_once
from calibeat.core.presets import AUTO, HOPS
from calibeat.stream.dispatch import warm_streams

from .bank import Bank


def warm_up(*, bank: bool = False) -> None:
    """Load every compiled kernel now; calibrators made from then on serve single events by them too.

    With ``bank=True`` also those of a `Bank`.

    Nobody has to call this. Single events run as plain Python at first, which is there at once. Where the compiled
    kernels lie in the cache, they are loaded at the first batch, or after some thousand single events. Call it to have
    them from the first event on, or to compile them at a time of your choice: loading takes half a second, and on a
    machine that has never compiled them it takes several seconds. So call it when an image is built, as the user who
    owns the installation or the one who will run it, and again when a service starts.

    >>> import calibeat
    >>> calibeat.warm_up()
    >>> float(calibeat.Calibrator("ops").predict(0.25))
    0.25
    """
    warm_streams()
    if bank:
        with compiling_at_once():
            _load_bank()


def _load_bank() -> None:
    scores, outcomes, keys = np.full(100, 0.5), np.ones(100), np.arange(100)
    for column in (keys, keys.astype("U")):
        made = Bank(AUTO, prior="pooled")
        made.run(column, scores, outcomes)
        made.predict_many(column, scores)
    made.run(column, scores, outcomes, due=keys + 1)
    made.fold(column, scores, np.full(100, np.nan))
    made = Bank(HOPS)
    made.run(keys, scores, outcomes)
