"""Many classes: a model of handwritten digits, fitted when all were equally common, while their shares move."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

from calibeat import MultiCalibrator, metrics

EVENTS, WARM = 8000, 1000
digits = load_digits()
X, y = digits.data, digits.target
rng = np.random.default_rng(0)
order = rng.permutation(len(y))
train, rest = order[:600], order[600:]

# Which digits are asked for changes: each has its season, in which it is fifteen times as common as out of it.
season = np.sin(2.0 * np.pi * (np.arange(EVENTS)[:, None] / 4000.0 + np.arange(10) / 10.0))
shares = np.exp(1.35 * season)
shares /= shares.sum(axis=1, keepdims=True)
wanted = (rng.random(EVENTS)[:, None] > shares.cumsum(axis=1)).sum(axis=1).clip(0, 9)
rows = np.array([rng.choice(rest[y[rest] == digit]) for digit in wanted])

for base in (GaussianNB(), LogisticRegression(max_iter=2000)):
    scores = base.fit(X[train], y[train]).predict_proba(X[rows])
    print(type(base).__name__)
    for method in ("raw", "ots", "multi"):
        cal = MultiCalibrator(10, method)
        P, labels = cal.run(scores, y[rows])[WARM:], y[rows][WARM:]
        hits = np.mean(P.argmax(axis=1) == labels)
        print(
            f"  {method:6} log-loss {metrics.log_loss(labels, P):.3f}  accuracy {hits:.3f}"
            f"  top-label CE {metrics.top_label_calibration_error(labels, P):.3f}"
            f"  class-wise CE {metrics.classwise_calibration_error(labels, P):.4f}"
        )

params = cal.params
common = max(params["bias"], key=params["bias"].get)
rare = min(params["bias"], key=params["bias"].get)
ratio = np.exp(params["bias"][common] - params["bias"][rare])
print(f"lane with the most weight: {max(params['lanes'], key=params['lanes'].get)}")
print(f"in season now: {common}, out of season: {rare}, estimated change of their ratio: {ratio:.1f}")
print(f"the truth:     {shares[-1].argmax()}, {shares[-1].argmin()}, {shares[-1].max() / shares[-1].min():.1f}")
