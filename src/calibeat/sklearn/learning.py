"""What the classifier and the transformer share: a calibrator, rows that teach it, and the names of the columns."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from calibeat._util.check import check_whole, shown
from calibeat._util.types import Vector
from calibeat.hosts.calibrator import Calibrator
from calibeat.hosts.multi import METHODS, MultiCalibrator


def binary_calibrator(estimator: Any) -> Calibrator:
    """The calibrator of an estimator that has seen nothing."""
    return Calibrator(estimator.method, 0 if estimator.random_state is None else estimator.random_state)


def new_calibrator(estimator: Any, classes: Any) -> Calibrator | MultiCalibrator:
    """The calibrator of an estimator that has seen nothing, for so many classes."""
    method = estimator.method
    if len(classes) == 2:
        return binary_calibrator(estimator)
    if not isinstance(method, str) or method not in ("auto", *METHODS):
        raise ValueError(
            f"method must be 'auto' (which is 'multi'), 'multi', 'ots' or 'raw' for a base of {len(classes)} classes, "
            f"got {shown(method)}"
        )
    return MultiCalibrator(classes, "multi" if method == "auto" else method)


def take_features(estimator: Any, other: Any) -> None:
    """What is known of the columns is what the other knows; nothing stays of an earlier fit."""
    for name in ("n_features_in_", "feature_names_in_"):
        if hasattr(other, name):
            setattr(estimator, name, getattr(other, name))
        elif hasattr(estimator, name):
            delattr(estimator, name)


def delay_of_fit(delay: int | None, rows: int) -> int:
    """How late the labels of `fit` come: as told, or by a quarter of the rows, and at least one.

    Nothing tells `fit` how far ahead it will be asked. All labels at the end make AUTO too careful, each in turn too
    bold; a quarter is better than both on most streams (docs/gallery.md).
    """
    return max(1, rows // 4) if delay is None else check_whole("delay", delay, 0, sys.maxsize)


def learn_late(calibrator: Calibrator | MultiCalibrator, scores: Vector, outcomes: Any, delay: int | None) -> None:
    """Forecast row after row and learn the outcome of each `delay` rows later, or (also None) at the end."""
    n = len(scores)
    late = n if delay is None else check_whole("delay", delay, 0, sys.maxsize)
    if late == 0:
        calibrator.run(scores, outcomes)
    else:
        calibrator.run(scores, outcomes, due=np.arange(n) + 1 + min(late, n), finish=True)
