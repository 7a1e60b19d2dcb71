"""`python -m benchmarks.which_way PNG` shows which way the scores of six classifiers err, in a table and a picture.

Four features decide, and twelve repeat them with noise; the truth is a logistic regression. 2,000 rows are fitted on,
48,000 are judged. One seed. The slope is that of a logistic regression of the outcome on the logit
of the score: below 1 the scores are too sure, above 1 not sure enough.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import table
from calibeat import metrics
from calibeat.metrics import reliability_curve

ROWS, FITTED = 50_000, 2_000
CLIP = 1e-5  # of scores, for their logits
SHOWN = {"naive Bayes": ("#D55E00", "o"), "logistic regression": ("#009E73", "s"), "random forest": ("#0072B2", "^")}

Vector = NDArray[np.float64]


def scores() -> tuple[NDArray[np.int64], dict[str, Vector]]:
    """The labels of the judged rows, and what each model says of them."""
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB
    from sklearn.neural_network import MLPClassifier
    from sklearn.svm import LinearSVC

    rng = np.random.default_rng(0)
    told = rng.normal(size=(ROWS, 4))
    y = (rng.random(ROWS) < 1.0 / (1.0 + np.exp(-2.0 * told.sum(axis=1)))).astype(np.int64)
    repeats = [told + 0.5 * rng.normal(size=told.shape) for _ in range(3)]
    X = np.hstack([told, *repeats])
    models: dict[str, Any] = {
        "logistic regression": LogisticRegression(),
        "naive Bayes": GaussianNB(),
        "boosted trees": HistGradientBoostingClassifier(random_state=0),
        "neural network": MLPClassifier(max_iter=3000, random_state=0),
        "random forest": RandomForestClassifier(random_state=0),
        "linear SVM, its margin as a logit": LinearSVC(),
    }
    found = {}
    for name, model in models.items():
        model.fit(X[:FITTED], y[:FITTED])
        rest = X[FITTED:]
        if hasattr(model, "predict_proba"):
            found[name] = model.predict_proba(rest)[:, 1]
        else:
            found[name] = 1.0 / (1.0 + np.exp(-model.decision_function(rest)))
    return y[FITTED:], found


def slope(y: NDArray[np.int64], p: Vector) -> float:
    """How much the logit of what happened moves with the logit of the score."""
    from sklearn.linear_model import LogisticRegression

    s = np.clip(p, CLIP, 1.0 - CLIP)
    fitted = LogisticRegression(C=np.inf).fit(np.log(s / (1.0 - s)).reshape(-1, 1), y)
    return float(fitted.coef_[0, 0])


def show(y: NDArray[np.int64], found: dict[str, Vector]) -> None:
    """The table."""
    rows = []
    for name, p in found.items():
        a = slope(y, p)
        word = "about right" if 0.9 < a < 1.1 else "too sure" if a < 1.0 else "not sure enough"
        numbers = (
            metrics.log_loss(y, np.clip(p, CLIP, 1.0 - CLIP)),
            metrics.brier_score(y, p),
            metrics.calibration_error(y, p),
        )
        rows.append([name, word, f"{a:.2f}", *(f"{number:.3f}" for number in numbers)])
    table.show("which way scores err", ["model", "errs", "slope", "log-loss", "Brier", "CE"], rows)


def draw(y: NDArray[np.int64], found: dict[str, Vector], path: Path) -> None:
    """Three reliability diagrams in one."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter

    figure = Figure(figsize=(6.4, 5.6), dpi=150, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="black", linewidth=0.8, linestyle=":", label="calibrated")
    for name, (colour, marker) in SHOWN.items():
        curve = reliability_curve(y, found[name])
        axes.plot(curve.mean_forecast, curve.mean_outcome, marker=marker, color=colour, label=name, markersize=5)
    axes.annotate("below the line:\nmore was promised than came", (0.97, 0.12), ha="right", fontsize=9, color="dimgray")
    axes.annotate("above it:\nmore came", (0.03, 0.62), ha="left", fontsize=9, color="dimgray")
    axes.set_xlabel("the score: what the model said")
    axes.set_ylabel("the share of these events that happened")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))
    axes.set_aspect("equal")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper left", frameon=False, fontsize=9)
    figure.savefig(path, format="png")


def main() -> None:
    """Measure, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("png", type=Path, help="where to draw")
    args = parser.parse_args()
    y, found = scores()
    show(y, found)
    draw(y, found, args.png)


if __name__ == "__main__":
    main()
