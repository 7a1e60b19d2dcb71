"""The parameters in a row, by their names in the paper."""

from __future__ import annotations

import math
from typing import Any

from calibeat._util.types import Vector

from .layout import GUARD, THETA
from .method import Method
from .parts import Columns


def params_of(method: Method, row: Any) -> dict[str, Any]:
    """The parameters that a row of this method holds: what `Calibrator.params` shows.

    >>> from calibeat import OPS
    >>> from calibeat.core.params import params_of
    >>> params_of(OPS, OPS.initial_row().tolist())
    {'a': 1.0, 'b': 0.0}
    """
    params: dict[str, Any] = {}
    if method.features is not None:
        learner = method.learner
        params = method.features.params(row) if learner is None else learner.params(row, method.features)
    if method.guard is not None:
        at = int(method.spec[GUARD])
        params = {**params, "guard": method.guard.params(row[at : at + len(method.guard.initial())])}
    return params


def params_of_rows(method: Method, rows: Vector) -> Columns:
    """The parameters of many rows, one row a stream: a column for each."""
    if method.features is None:
        return {}
    if method.learner is None:
        return dict(method.features.params(rows.T))
    return method.learner.params_of_rows(rows, method.features)


def on_the_ball(method: Method, row: Any) -> bool:
    """Whether the parameters in a row lie on the ball that bounds them."""
    ball = None if method.learner is None else method.learner.ball
    if ball is None or method.dimension == 0:
        return False
    return math.hypot(*row[THETA : THETA + method.dimension]) >= ball * (1.0 - 1e-9)
