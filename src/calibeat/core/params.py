"""The parameters in a row, by their names in the paper."""

from __future__ import annotations

from typing import Any

from .learners import AIOLI, THETA, matrix, solve
from .method import Method
from .mixtures import Lanes, lanes_params
from .refit import Histogram


def params_of(method: Method, row: Any) -> dict[str, Any]:
    """What `Calibrator.params` shows. Of a matrix with a stream in each column: arrays (not for AIOLI, histograms)."""
    features = method.features
    if features is None:
        return {}
    if isinstance(method.learner, Lanes):
        return lanes_params(row)
    if isinstance(features, Histogram):
        used, edges, means = int(row[THETA]), THETA + 1, THETA + features.bins
        return {"edges": list(row[edges : edges + max(0, used - 1)]), "means": list(row[means : means + used])}
    d = len(features.names)
    theta = tuple(row[THETA : THETA + d])
    if isinstance(method.learner, AIOLI):
        c = [*theta, 0.0, 0.0][:3]
        theta = tuple(0.0 - value for value in solve(d, *matrix(row, d), *c)[:d])
    return dict(zip(features.names, theta, strict=True))
