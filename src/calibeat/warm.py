"""Every compiled kernel, loaded at a time of the user's choice."""

from __future__ import annotations

import numpy as np

from calibeat.core.jit import compiling_at_once
from calibeat.hosts.bank import warm_bank
from calibeat.hosts.dispatch import warm_streams
from calibeat.hosts.multi import MultiBank, MultiCalibrator, load_single


def warm_up(*, bank: bool = False, multi: bool = False) -> None:
    """Load every compiled kernel now. Calibrators made afterwards use them for single events too.

    With ``bank=True`` also those of a `Bank`; with ``multi=True`` also those of many classes, which are the same for
    every method and number of classes (with both, those of a `MultiBank` too).

    Calling it is optional. Single events first run as plain Python. Cached kernels are loaded at the first batch, or
    after some thousand single events. Call it to have them from the first event on, or to compile them at a time of
    your choice: loading takes half a second, the first compilation on a machine several seconds. So call it when an
    image is built, as the user who owns the installation or the one who will run it, and again when a service starts.

    >>> import calibeat
    >>> calibeat.warm_up()
    >>> float(calibeat.Calibrator("ops").predict(0.25))
    0.25
    """
    warm_streams()
    with compiling_at_once():
        if bank:
            warm_bank()
        if multi:
            _warm_multi(bank=bank)


def _warm_multi(*, bank: bool) -> None:
    scores, labels, late = np.full((4, 3), 1.0 / 3.0), np.zeros(4, dtype=np.int64), np.arange(4) + 1
    load_single()
    calibrator = MultiCalibrator(3)
    calibrator.run(scores, labels)
    calibrator.run(scores, labels, due=late)
    calibrator.predict_many(scores)
    if bank:
        streams = MultiBank(3)
        streams.run(np.zeros(4, dtype=np.int64), scores, labels)
        streams.run(np.zeros(4, dtype=np.int64), scores, labels, due=late)
