"""How good MULTI is, and where it loses: streams made here, and the development streams where they lie beside."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks import table
from calibeat import Calibrator, MultiCalibrator, metrics

WARM = 1000  # events that are not scored, and what the fixed temperature is fitted on
EVERY, WINDOW = 500, 2000  # refits of the sliding methods
MOST_MATRIX = 16  # classes up to which matrix scaling is tried: K (K + 1) parameters

Vector = NDArray[np.float64]
Ints = NDArray[np.int64]
Stream = tuple[Vector, Ints]


# ---- streams -----------------------------------------------------------------------------------------------------


def _softmax(z: Vector) -> Vector:
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def _made(K: int, events: int, seed: int, kind: str) -> Stream:
    """Logits of a model, and labels of a world that differs from it in one known way."""
    rng = np.random.default_rng([seed, K])
    z, time = rng.normal(0.0, 2.0, (events, K)), np.arange(events)[:, None]
    truth = z.copy()
    match kind:
        case "over-confident":
            truth = 0.4 * z
        case "priors jump":
            truth = z + rng.normal(0.0, 1.5, (5, K))[(5 * time[:, 0]) // events]
        case "priors rotate":
            truth = z + 2.0 * np.sin(2.0 * np.pi * (time / 1500.0 + np.arange(K) / K))
        case "temperature drifts":
            truth = np.linspace(1.2, 0.2, events)[:, None] * z
        case "confused pairs":  # half of the events of a class are of its neighbour
            p = _softmax(z)
            truth = np.log(0.5 * p + 0.5 * p[:, np.arange(K) ^ 1 if K % 2 == 0 else np.roll(np.arange(K), 1)])
        case "mixed logits":  # what only a matrix can undo
            truth = z @ (0.6 * np.eye(K) + rng.normal(0.0, 0.35, (K, K)))
        case "calibrated":
            pass
    labels = (rng.random(events)[:, None] > _softmax(truth).cumsum(axis=1)).sum(axis=1).clip(0, K - 1)
    return _softmax(z), labels.astype(np.int64)


def made(*, quick: bool) -> Iterator[tuple[str, Stream]]:
    """The streams of this file."""
    events = 2500 if quick else 8000
    for K, kind in (
        (3, "over-confident"),
        (5, "priors jump"),
        (10, "priors rotate"),
        (10, "temperature drifts"),
        (10, "confused pairs"),
        (100, "over-confident"),
        (100, "confused pairs"),
        (6, "mixed logits"),
        (10, "calibrated"),
    ):
        yield f"{kind}, K = {K}", _made(K, events, 0, kind)


def development(*, quick: bool) -> Iterator[tuple[str, Stream]]:
    """Scores of real models with drifts, where the file lies beside the checkout; else nothing."""
    path = Path(__file__).parents[2] / "shared" / "multi" / "dev_streams.npz"
    if not path.exists():
        return
    with np.load(path) as file:
        names = sorted({name.split("/")[0] for name in file.files})
        for name in names[::4] if quick else names:
            P, y = file[f"{name}/p"].astype(np.float64), file[f"{name}/y"].astype(np.int64)
            yield name, (P / P.sum(axis=1, keepdims=True), y)


# ---- methods -----------------------------------------------------------------------------------------------------


def _fit(x: Vector, y: Ints, start: Vector, features: str) -> Vector:
    """The parameters with the least log-loss and a small ridge towards the identity."""
    from scipy.optimize import minimize

    n, K = x.shape
    onehot = np.zeros((n, K))
    onehot[np.arange(n), y] = 1.0
    home = _identity(K, features)

    def loss(parameters: Vector) -> tuple[float, Vector]:
        p = _softmax(_scaled(x, parameters, features))
        error = (p - onehot) / n
        if features == "temperature":
            gradient = np.array([(error * x).sum()])
        elif features == "bias":
            gradient = np.array([(error * x).sum(), *error.sum(axis=0)])
        else:
            gradient = np.concatenate([(x.T @ error).ravel(), error.sum(axis=0)])
        away = parameters - home
        value = -np.log(np.maximum(p[np.arange(n), y], 1e-300)).mean() + 0.5e-3 * away @ away
        return float(value), gradient + 1e-3 * away

    return np.asarray(minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 60}).x)


def _identity(K: int, features: str) -> Vector:
    if features == "temperature":
        return np.ones(1)
    return np.array([1.0, *np.zeros(K)]) if features == "bias" else np.concatenate([np.eye(K).ravel(), np.zeros(K)])


def _scaled(x: Vector, parameters: Vector, features: str) -> Vector:
    K = x.shape[1]
    if features == "temperature":
        return parameters[0] * x
    if features == "bias":
        return parameters[0] * x + parameters[1:]
    return x @ parameters[: K * K].reshape(K, K) + parameters[K * K :]


def refitted(P: Vector, y: Ints, features: str, *, once: bool) -> Vector:
    """Fitted on the first events once, or again and again on a sliding window; the raw scores before."""
    x = np.log(np.maximum(P, 1e-7))
    out, parameters = P.copy(), _identity(P.shape[1], features)
    for first in range(WARM, len(P), len(P) if once else EVERY):
        window = slice(max(0, first - WINDOW), first)
        parameters = _fit(x[window], y[window], parameters, features)
        part = slice(first, None if once else first + EVERY)
        out[part] = _softmax(_scaled(x[part], parameters, features))
    return out


def classwise_auto(P: Vector, y: Ints) -> Vector:
    """AUTO on "is it this class?" for each class, then normalised."""
    columns = [Calibrator().run(np.ascontiguousarray(P[:, k]), (y == k).astype(float)) for k in range(P.shape[1])]
    out = np.stack(columns, axis=1)
    return out / out.sum(axis=1, keepdims=True)


METHODS: dict[str, Callable[[Vector, Ints], Vector]] = {
    "raw": lambda P, y: MultiCalibrator(P.shape[1], "raw").run(P, y),
    "fixed temperature": lambda P, y: refitted(P, y, "temperature", once=True),
    "sliding temperature": lambda P, y: refitted(P, y, "temperature", once=False),
    "sliding temp. + bias": lambda P, y: refitted(P, y, "bias", once=False),
    "sliding matrix": lambda P, y: refitted(P, y, "matrix", once=False),
    "ots": lambda P, y: MultiCalibrator(P.shape[1], "ots").run(P, y),
    "class-wise AUTO": classwise_auto,
    "multi": lambda P, y: MultiCalibrator(P.shape[1]).run(P, y),
    "multi, 100 late": lambda P, y: MultiCalibrator(P.shape[1]).run(P, y, due=np.arange(len(y)) + 100),
}


def measured(P: Vector, y: Ints) -> list[float]:
    """1000 times log-loss, Brier, top-label and class-wise calibration error, after the warm-up."""
    P, y = P[WARM:], y[WARM:]
    return [
        1000.0 * metrics.log_loss(y, P, clip=1e-7),
        1000.0 * metrics.brier_score(y, P),
        1000.0 * metrics.top_label_calibration_error(y, P),
        1000.0 * metrics.classwise_calibration_error(y, P),
    ]


def quality(*, quick: bool) -> None:
    """Tables: log-loss on each stream, and the mean of four measures over the streams."""
    for title, streams in (("streams made here", made(quick=quick)), ("development streams", development(quick=quick))):
        results: dict[str, dict[str, list[float]]] = {}
        for name, (P, y) in streams:
            results[name] = {
                method: measured(forecast(P, y), y)
                for method, forecast in METHODS.items()
                if method != "sliding matrix" or P.shape[1] <= MOST_MATRIX
            }
        if results:
            _show(title, results)


def _show(title: str, results: dict[str, dict[str, list[float]]]) -> None:
    rows = []
    for name, by_method in results.items():
        rivals = {method: m[0] for method, m in by_method.items() if not method.startswith("multi")}
        best = min(rivals, key=lambda method: rivals[method])
        ahead = by_method["multi"][0] - rivals[best]
        line = [f"{by_method[method][0]:.1f}" if method in by_method else "" for method in METHODS]
        rows.append([name, *line, f"{ahead:+.1f}", best])
    table.show(
        f"log-loss x 1000, {title}",
        ["stream", *METHODS, "multi against the best other", "which is"],
        rows,
        [f"The first {WARM:,} events are not scored. Sliding: refitted every {EVERY} events on the last {WINDOW:,}."],
    )
    everywhere = [method for method in METHODS if all(method in by for by in results.values())]
    means = {m: np.mean([by[m] for by in results.values()], axis=0) for m in everywhere}
    table.show(
        f"mean over the {len(results)} {title}, x 1000",
        ["method", "log-loss", "Brier", "top-label CE", "class-wise CE"],
        [[method, *(f"{value:.1f}" for value in mean)] for method, mean in means.items()],
        ["Brier is summed over the classes. CE: ten bins of equal width."],
    )
