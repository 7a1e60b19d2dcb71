"""A log of many classes: `python -m benchmarks.digits digits.csv` writes scores and labels of handwritten digits.

The model was fitted when all digits were equally common; then each has its season, in which it is fifteen times as
common as out of it. The gallery's script on many classes uses the same stream.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

EVENTS = 8000


def write(path: Path) -> None:
    """Columns p_0 to p_9, the digit, and an hour for each event."""
    from sklearn.datasets import load_digits
    from sklearn.naive_bayes import GaussianNB

    digits = load_digits()
    X, y = digits.data, digits.target
    rng = np.random.default_rng(0)
    order = rng.permutation(len(y))
    train, rest = order[:600], order[600:]
    season = np.sin(2.0 * np.pi * (np.arange(EVENTS)[:, None] / 4000.0 + np.arange(10) / 10.0))
    shares = np.exp(1.35 * season)
    shares /= shares.sum(axis=1, keepdims=True)
    wanted = (rng.random(EVENTS)[:, None] > shares.cumsum(axis=1)).sum(axis=1).clip(0, 9)
    rows = np.array([rng.choice(rest[y[rest] == digit]) for digit in wanted])
    scores = GaussianNB().fit(X[train], y[train]).predict_proba(X[rows])
    hours = np.datetime64("2024-01-01T00", "h") + np.arange(EVENTS)
    with path.open("w") as file:
        file.write(",".join([*(f"p_{k}" for k in range(10)), "digit", "time"]) + "\n")
        for score, label, hour in zip(scores.tolist(), y[rows].tolist(), hours.tolist(), strict=True):
            file.write(",".join([*map(repr, score), str(label), hour.isoformat()]) + "\n")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
