"""What the scores of several models are worth together, and where they lose: real data, and worlds made here.

The models are trained on the first rows of the four datasets of `data`, in the order of the stream, and score the rest.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks import table
from benchmarks.stream import CLIP
from calibeat import Calibrator, metrics
from reproduction.datasets import DATASETS, ordered, read
from reproduction.datasets import table as table_of

DATA = Path(__file__).parents[1] / "data"
WARM = 500  # events that are not scored
EVERY, WINDOW = 100, 1000  # refits of the logistic regression
RIDGE = 1.0  # of its coefficients; scikit-learn's default
DELAYS = (0, 100, 1000)
DELAYS_IN_A_STREAM = 5  # at least, or the stream is in no table of late outcomes
MANY_DELAYS = 20  # from here on a stream has a column of its own in them
TREES, LEAF = 100, 5
MADE = 10_000  # events of a world
SPREAD = 1.2  # of its logits
SPAN = 2_500  # events after which a world changes
AGES = ((0, 200), (0, 500), (500, 1000), (1000, 5000), (5000, 30_000))  # of a stream

Vector = NDArray[np.float64]
Ints = NDArray[np.int64]
TOGETHER, MEAN, REFIT = "together", "mean of logits, AUTO", f"refit, last {WINDOW:,}"


class Stream(NamedTuple):
    """Scores of several models for the same events, a column for each; NaN: missing."""

    name: str
    scores: Vector
    outcomes: Vector


# ---- streams -------------------------------------------------------------------------------------------------------


def real(seed: int) -> Iterator[Stream]:
    """Each dataset in the order of its drift and shuffled, behind three sets of models."""
    for name in DATASETS:
        for design in ("drift", "iid"):
            scored, outcomes = scored_by_all(name, design, seed)
            for models in ("halves", "linear, forest", "linear, forest, bayes"):
                used = ["first half", "second half"] if models == "halves" else models.split(", ")
                order = "drift" if design == "drift" else "shuffled"
                yield Stream(f"{name}, {order}: {models}", np.stack([scored[m] for m in used], axis=1), outcomes)


@cache
def scored_by_all(name: str, design: str, seed: int) -> tuple[dict[str, Vector], Vector]:
    """The scores of five models, which were trained on the first rows, for the rows that follow."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    dataset = DATASETS[name]
    X, y, key = table_of(dataset, read(dataset, DATA))
    rows = ordered(dataset, key, design, np.random.RandomState(seed))
    X, y, n = X[rows], y[rows], dataset.train
    forest = partial(RandomForestClassifier, TREES, min_samples_leaf=LEAF, random_state=seed)
    every = np.arange(X.shape[1])
    models: dict[str, tuple[Any, Ints]] = {
        "first half": (forest(), every[::2]),
        "second half": (forest(), every[1::2]),
        "linear": (make_pipeline(StandardScaler(), LogisticRegression()), every),
        "forest": (forest(), every),
        "bayes": (GaussianNB(), every),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a column that never changed among the first rows
        scored = {
            model: np.asarray(fitted.fit(X[:n, columns], y[:n]).predict_proba(X[n:, columns])[:, 1])
            for model, (fitted, columns) in models.items()
        }
    return scored, y[n:]


WORLDS = (
    "evidence adds up",
    "one right, one noise",
    "they take turns",
    "weights rotate",
    "both flatter",
    "a product",
    "neither knows",
)


def truth(world: str, a: Vector, b: Vector, time: Vector) -> Vector:
    """The logit of the outcome, of the logits a and b that the models say."""
    match world:
        case "evidence adds up":
            return a + b
        case "one right, one noise":
            return a
        case "they take turns":
            return np.where(time // SPAN % 2 == 0.0, a, b)
        case "weights rotate":
            return 1.5 * (a * np.cos(time / SPAN) + b * np.sin(time / SPAN))
        case "both flatter":
            return 0.4 * (a + b) - 0.5
        case "a product":
            return 1.2 * a * b + 0.5 * a
        case _:
            return np.zeros(len(a))


def made(seed: int) -> Iterator[Stream]:
    """Worlds of two scores with independent logits a and b."""
    for i, world in enumerate(WORLDS):
        rng = np.random.default_rng([seed, i])
        a, b = SPREAD * rng.normal(size=(2, MADE))
        chance = sigmoid(truth(world, a, b, np.arange(MADE, dtype=np.float64)))
        yield Stream(f"made: {world}", sigmoid(np.stack([a, b], axis=1)), (rng.random(MADE) < chance).astype(float))


def sigmoid(z: Vector) -> Vector:
    """1 / (1 + e^-z)"""
    return 1.0 / (1.0 + np.exp(-z))


def logit(p: Vector) -> Vector:
    """Of a score, clipped."""
    p = np.clip(p, CLIP, 1.0 - CLIP)
    return np.log(p / (1.0 - p))


# ---- what goes wrong -----------------------------------------------------------------------------------------------


def changed(change: str, stream: Stream) -> Stream:
    """The same stream with something wrong with its second score."""
    S, rng = stream.scores.copy(), np.random.default_rng(len(stream.scores))
    middle = len(S) // 2
    match change:
        case "useless from the middle":
            S[middle:, 1] = rng.permutation(S[middle:, 1])
        case "missing from the middle":
            S[middle:, 1] = np.nan
        case "30 % missing":
            S[rng.random(len(S)) < 0.3, 1] = np.nan
        case "a duplicate":
            S = S[:, [0, 0]]
    return stream._replace(scores=S)


CHANGES = ("none", "useless from the middle", "missing from the middle", "30 % missing", "a duplicate")


# ---- what is made of them --------------------------------------------------------------------------------------------


def together(S: Vector, y: Vector, due: Ints) -> Vector:
    """`Calibrator(models=)`."""
    return Calibrator(models=S.shape[1]).run(S, y, due=due)


def mean_of_logits(S: Vector, y: Vector, due: Ints) -> Vector:
    """AUTO behind the mean of the logits that are there."""
    return Calibrator().run(sigmoid(np.nanmean(logit(S), axis=1)), y, due=due)


def refitted(S: Vector, y: Vector, due: Ints) -> Vector:
    """A logistic regression of the logits, 0 where one is missing, on the last outcomes that have arrived."""
    x = np.column_stack([np.ones(len(S)), np.nan_to_num(logit(S))])
    theta = np.array([0.0, *[1.0 / S.shape[1]] * S.shape[1]])
    p, order = np.empty(len(S)), np.argsort(due, kind="stable")
    for first in range(0, len(S), EVERY):
        arrived = order[: np.searchsorted(due[order], first, side="right")][-WINDOW:]
        if len(arrived) >= EVERY:
            theta = logistic(x[arrived], y[arrived], theta)
        p[first : first + EVERY] = sigmoid(x[first : first + EVERY] @ theta)
    return p


def logistic(x: Vector, y: Vector, theta: Vector) -> Vector:
    """Newton's steps from where it stands."""
    ridge = RIDGE * np.diag([0.0, *[1.0] * (x.shape[1] - 1)])
    for _ in range(25):
        p = sigmoid(x @ theta)
        gradient = x.T @ (y - p) - ridge @ theta
        step = np.linalg.solve((x * (p * (1.0 - p))[:, None]).T @ x + ridge + 1e-9 * np.eye(len(theta)), gradient)
        theta = theta + step / max(1.0, float(np.abs(step).max()))
        if np.abs(step).max() < 1e-6:
            break
    return theta


WAYS = {MEAN: mean_of_logits, REFIT: refitted, TOGETHER: together}


def alone(S: Vector, y: Vector, due: Ints) -> list[Vector]:
    """AUTO behind each score; where its score is missing, AUTO behind another one that is there."""
    given = ~np.isnan(S)
    columns = []
    for j in range(S.shape[1]):
        events = np.flatnonzero(given[:, j])
        column = np.full(len(S), np.nan)
        column[events] = Calibrator().run(S[events, j], y[events], due=np.searchsorted(events, due[events]))
        columns.append(column)
    any_other = np.array(columns)[np.argmax(given, axis=1), np.arange(len(S))]
    return [np.where(np.isnan(column), any_other, column) for column in columns]


# ---- tables ----------------------------------------------------------------------------------------------------------


class Result(NamedTuple):
    """Of one stream."""

    name: str
    events: int
    best: float  # mean loss of the best single AUTO
    ahead: dict[str, float]  # each way minus it
    young: dict[str, list[float]]  # the same by age, as far as the stream has events of that age
    errors: dict[str, float]  # calibration error


BEST = "best alone"


def result(stream: Stream, delay: int) -> Result:
    """All ways on one stream; the best single AUTO is that of the least loss after the warm-up."""
    S, y = stream.scores, stream.outcomes
    due = np.arange(len(y)) + max(delay, 1)
    forecasts = {way: forecast(S, y, due) for way, forecast in WAYS.items()}
    best = min(alone(S, y, due), key=lambda p: float(losses(p, y)[WARM:].sum()))
    differences = {way: losses(p, y) - losses(best, y) for way, p in forecasts.items()}
    return Result(
        stream.name,
        len(y),
        float(losses(best, y)[WARM:].mean()),
        {way: float(d[WARM:].mean()) for way, d in differences.items()},
        {way: [float(d[a:b].mean()) for a, b in AGES if len(d) > a] for way, d in differences.items()},
        {way: 1000.0 * metrics.calibration_error(y[WARM:], p[WARM:]) for way, p in (forecasts | {BEST: best}).items()},
    )


def losses(p: Vector, y: Vector) -> Vector:
    """Log-loss of each event, times 1000."""
    p = np.clip(p, 1e-7, 1.0 - 1e-7)
    return -1000.0 * np.log(np.where(y == 1.0, p, 1.0 - p))


def quality(*, quick: bool) -> None:
    """Tables: means over streams by what goes wrong and how late; over the life of a stream; stream by stream."""
    seeds = (0,) if quick else (0, 1, 2)
    for title, source in (("models of real data", real), ("worlds made here", made)):
        streams = [stream for seed in seeds for stream in source(seed)][:: 4 if quick else 1]
        complete: dict[int, dict[str, list[Result]]] = {}
        for delay in DELAYS:
            used = [s for s in streams if len(s.outcomes) >= max(2 * WARM, DELAYS_IN_A_STREAM * delay)]
            by_change = {change: [result(changed(change, stream), delay) for stream in used] for change in CHANGES}
            overall(title, by_change, delay)
            complete[delay] = {stream.name: [] for stream in used}
            for stream, found in zip(used, by_change["none"], strict=True):
                complete[delay][stream.name].append(found)
        life(title, [found for of_name in complete[0].values() for found in of_name])
        stream_by_stream(title, complete)


def overall(title: str, by_change: dict[str, list[Result]], delay: int) -> None:
    """Each way against the best single AUTO in hindsight, and calibration errors."""
    rows, many = [], MANY_DELAYS * delay
    for change, results in by_change.items():
        cells = [spread([r.ahead[way] for r in results]) for way in WAYS]
        long = spread([r.ahead[TOGETHER] for r in results if r.events >= many])
        above = sum(r.ahead[TOGETHER] > 1.0 for r in results)
        errors = [f"{np.mean([r.errors[way] for r in results]):.1f}" for way in (BEST, TOGETHER)]
        best = f"{np.mean([r.best for r in results]):.1f}"
        rows.append([change, best, *cells, *([long] if delay else []), str(above), *errors])
    notes = [
        f"Mean over runs, and the worst run. Times 1000, lower is better, from event {WARM:,} on.",
        f"above +1: runs where {TOGETHER} is worse than {BEST} by more than 1. The worst: {worst(by_change)}.",
    ]
    if delay:
        runs = sum(r.events >= many for r in by_change["none"])
        notes.append(f"long: {TOGETHER} on the {runs} runs of {MANY_DELAYS} delays or more.")
    table.show(
        f"{title}, outcomes {when(delay)}: log-loss minus that of the best single AUTO, {len(by_change['none'])} runs",
        ["change of score 2", BEST, *WAYS, *(["long"] if delay else []), "above +1", f"CE, {BEST}", f"CE, {TOGETHER}"],
        rows,
        notes,
    )


def worst(by_change: dict[str, list[Result]]) -> str:
    """The stream and the change where several models lose most."""
    change, found = max(
        ((change, r) for change, results in by_change.items() for r in results),
        key=lambda pair: pair[1].ahead[TOGETHER],
    )
    return f"{found.name}, {change}"


def life(title: str, results: list[Result]) -> None:
    """Young and old streams."""
    rows = []
    for i, (first, last) in enumerate(AGES):
        old = [r for r in results if len(r.young[TOGETHER]) > i]
        rows.append([f"{first:,} to {last:,}", str(len(old)), *(spread([r.young[w][i] for r in old]) for w in WAYS)])
    table.show(
        f"{title}, outcomes at once, over the life of a stream",
        ["events", "runs", *WAYS],
        rows,
        [f"Mean over runs, and the worst run; minus the AUTO that is best from event {WARM:,} on."],
    )


def stream_by_stream(title: str, complete: dict[int, dict[str, list[Result]]]) -> None:
    """Complete scores, the mean of the seeds."""
    rows = []
    for name, results in complete[0].items():
        cells = [mean_of(results, way) for way in WAYS]
        late = [mean_of(complete[delay].get(name, []), TOGETHER) for delay in DELAYS[1:]]
        rows.append([name, f"{np.mean([r.best for r in results]):.1f}", *cells, *late])
    table.show(
        f"{title}, stream by stream, complete scores",
        ["stream", BEST, *WAYS, *(f"{TOGETHER}, {when(delay)}" for delay in DELAYS[1:])],
        rows,
        [f"Minus {BEST}; late: minus {BEST} as late. -: fewer than {DELAYS_IN_A_STREAM} delays of events."],
    )


def mean_of(results: list[Result], way: str) -> str:
    """Of the seeds of a stream."""
    return f"{np.mean([r.ahead[way] for r in results]):+.1f}" if results else "-"


def spread(values: list[float]) -> str:
    """The mean and the worst."""
    return f"{np.mean(values):+.1f}, {max(values):+.1f}" if values else "-"


def when(delay: int) -> str:
    """In words."""
    return f"{delay:,} late" if delay else "at once"
