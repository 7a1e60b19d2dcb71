"""The time of WPS: our refits beside the same fits by SciPy's L-BFGS and scikit-learn's LogisticRegression."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from time import process_time
from typing import Any, cast

import numpy as np

from calibeat import FTL, Calibrator, Method, Platt
from calibeat._util.types import Vector

from .forests import ForestStream, scored
from .section import Section, Table, number, prose, spread
from .settings import Settings
from .tasks import Arrays, Results, Task

Fit = Callable[[Vector, Vector], Vector]


def sklearn_fit(x: Vector, y: Vector) -> Vector:
    """Maximum likelihood by LogisticRegression without a penalty."""
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LogisticRegression(C=np.inf).fit(x.reshape(-1, 1), y)
    return np.array([model.coef_[0, 0], model.intercept_[0]])


def scipy_fit(x: Vector, y: Vector) -> Vector:
    """Maximum likelihood by L-BFGS with the gradient at hand, from the identity."""
    from scipy.optimize import minimize
    from scipy.special import expit

    def loss(theta: Vector) -> tuple[float, Vector]:
        z = theta[0] * x + theta[1]
        g = expit(z) - y
        return float(np.mean(np.logaddexp(0.0, z) - y * z)), np.array([g @ x, g.sum()]) / len(y)

    return np.asarray(minimize(loss, np.array([1.0, 0.0]), jac=True, method="L-BFGS-B").x)


PEERS: dict[str, Fit] = {"sklearn LogisticRegression(C=inf)": sklearn_fit, "SciPy L-BFGS-B": scipy_fit}
REPEATS = 3
CONTENDERS = ("calibeat WPS", *PEERS)


def task(stream: ForestStream, seed: int) -> Task:
    """All refits of one stream, timed."""
    return Task(_work, "refits", stream, seed, kept=False)


def _work(task: Task, data: Path | None, cache: Path) -> Arrays:
    stream = cast("ForestStream", task.about)
    return run(*scored(stream, task.seed, data, cache), stream.calibration, stream.window)


def run(scores: Vector, outcomes: Vector, calibration: int, window: int, repeats: int = REPEATS) -> dict[str, Any]:
    """CPU seconds of all refits of a stream by [turn, contender], their number, and the last parameters."""
    from threadpoolctl import threadpool_limits  # a dependency of scikit-learn

    f = np.clip(scores, 1e-5, 1.0 - 1e-5)
    logits, ends = np.log(f / (1.0 - f)), range(calibration, len(scores) + 1, window)
    method = Method(Platt(), FTL(every=window, after=calibration))

    def ours() -> Vector:
        calibrator = Calibrator(method)
        calibrator.run(scores, outcomes)
        return np.array(list(calibrator.params.values()))

    def theirs(fit: Fit) -> Vector:
        return [fit(logits[:end], outcomes[:end]) for end in ends][-1]

    contenders: list[Callable[[], Vector]] = [ours, *(partial(theirs, fit) for fit in PEERS.values())]
    seconds, theta = np.full((repeats, len(contenders)), np.nan), np.empty((len(contenders), 2))
    with threadpool_limits(1):  # threads that wait for each other would count as work, and these fits are too small
        for turn, (i, contender) in product(range(repeats), enumerate(contenders)):
            begin = process_time()
            theta[i] = contender()
            seconds[turn, i] = process_time() - begin
    return {"seconds": seconds, "theta": theta, "refits": np.array(len(ends)), "events": np.array(len(scores))}


# ---- the report --------------------------------------------------------------------------------------------------


def stream_of(settings: Settings) -> ForestStream:
    """The longest stream."""
    return ForestStream("credit", "iid", trees=settings.trees, events=settings.events)


def tasks(settings: Settings) -> list[Task]:
    """One stream, once."""
    return [task(stream_of(settings), settings.seed)]


def report(settings: Settings, results: Results) -> Section:
    """Seconds of WPS beside SciPy and scikit-learn."""
    name = stream_of(settings).name
    run = results[f"refits {name}"][0]
    turns: Vector = run["seconds"]
    best, usual, varied = turns.min(axis=0), turns.mean(axis=0), spread(turns)
    rows = [
        [
            contender,
            f"{best[i]:.3f}",
            f"{best[i] / best[0]:.1f}",
            f"{usual[i]:.4f}",
            number(varied[i], 4),
            str(len(turns)),
            f"{run['theta'][i, 0]:.5f}",
            f"{run['theta'][i, 1]:.5f}",
        ]
        for i, contender in enumerate(CONTENDERS)
    ]
    caption = f"CPU seconds on one thread; the best of {len(turns)} turns, and all of them"
    about = f"{int(run['refits'])} refits on all the past of {name}, {int(run['events']):,} events"
    head = ["contender", "seconds", "times ours", "mean", "std", "turns", "last a", "last b"]
    return Section(
        words=[f"{about}. {WORDS}"],
        tables=[Table(caption, head, rows)],
        csv_head=["contender", "seconds", "times_ours", "seconds_mean", "seconds_std", "turns", "a", "b"],
        csv_rows=rows,
    )


WORDS = prose("""
    Ours is the whole `Calibrator.run`, forecasts included; the others are the fits alone, on logits that are made
    before the clock starts. Times are measured anew by every command, on this machine, and never kept.
""")
