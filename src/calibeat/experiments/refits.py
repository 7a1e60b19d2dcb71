"""The time of WPS: our refits beside the same fits by SciPy's L-BFGS and scikit-learn's LogisticRegression."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

from calibeat import FTL, Calibrator, Method, Platt

from .stream import FloatArray

Fit = Callable[[FloatArray, FloatArray], FloatArray]


def sklearn_fit(x: FloatArray, y: FloatArray) -> FloatArray:
    """Maximum likelihood by LogisticRegression without a penalty."""
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LogisticRegression(C=np.inf).fit(x.reshape(-1, 1), y)
    return np.array([model.coef_[0, 0], model.intercept_[0]])


def scipy_fit(x: FloatArray, y: FloatArray) -> FloatArray:
    """Maximum likelihood by L-BFGS with the gradient at hand, from the identity."""
    from scipy.optimize import minimize
    from scipy.special import expit

    def loss(theta: FloatArray) -> tuple[float, FloatArray]:
        z = theta[0] * x + theta[1]
        g = expit(z) - y
        return float(np.mean(np.logaddexp(0.0, z) - y * z)), np.array([g @ x, g.sum()]) / len(y)

    return np.asarray(minimize(loss, np.array([1.0, 0.0]), jac=True, method="L-BFGS-B").x)


PEERS: dict[str, Fit] = {"sklearn LogisticRegression(C=inf)": sklearn_fit, "SciPy L-BFGS-B": scipy_fit}
CONTENDERS = ("calibeat WPS", *PEERS)


def run(scores: FloatArray, outcomes: FloatArray, calibration: int, window: int) -> dict[str, Any]:
    """Seconds of all refits of a stream, their number, and the last parameters, by contender."""
    method = Method(Platt(), FTL(every=window, after=calibration))
    Calibrator(method).run(scores[: calibration + 1], outcomes[: calibration + 1])  # compiled, if it is to be
    seconds, theta = np.empty(len(CONTENDERS)), np.empty((len(CONTENDERS), 2))
    calibrator = Calibrator(method)
    begin = perf_counter()
    calibrator.run(scores, outcomes)
    seconds[0] = perf_counter() - begin
    theta[0] = list(calibrator.params.values())
    f = np.clip(scores, 1e-5, 1.0 - 1e-5)
    logits, ends = np.log(f / (1.0 - f)), range(calibration, len(scores) + 1, window)
    for i, fit in enumerate(PEERS.values(), start=1):
        begin = perf_counter()
        for end in ends:
            theta[i] = fit(logits[:end], outcomes[:end])
        seconds[i] = perf_counter() - begin
    return {"seconds": seconds, "theta": theta, "refits": np.array(len(ends)), "events": np.array(len(scores))}
