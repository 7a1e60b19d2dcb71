"""
Many classes
============

A model of handwritten digits was fitted when all digits were equally common. Then each digit has a season. A
`MultiCalibrator` follows.

You need ``pip install 'calibeat[sklearn,plot]'``.
"""

# %%
# A model, and a world that moves
# -------------------------------
# In its season a digit is fifteen times as common as out of it.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

rng = np.random.default_rng(0)
X, y = load_digits(return_X_y=True)
order = rng.permutation(len(y))
train, rest = order[:600], order[600:]
EVENTS = 6000
season = np.sin(2 * np.pi * (np.arange(EVENTS)[:, None] / 3000 + np.arange(10) / 10))
shares = np.exp(1.35 * season)
shares /= shares.sum(axis=1, keepdims=True)
wanted = (rng.random(EVENTS)[:, None] > shares.cumsum(axis=1)).sum(axis=1).clip(0, 9)
rows = np.array([rng.choice(rest[y[rest] == digit]) for digit in wanted])
scores = LogisticRegression(max_iter=2000).fit(X[train], y[train]).predict_proba(X[rows])
labels = y[rows]

# %%
# Three methods
# -------------
# ``raw`` leaves the scores alone. ``ots`` is online temperature scaling: one number. ``multi`` is calibeat's own and
# the default.

from calibeat import MultiCalibrator, metrics

forecasts = {}
for method in ("raw", "ots", "multi"):
    multi = MultiCalibrator(10, method)
    forecasts[method] = multi.run(scores, labels)
    P, seen = forecasts[method][1000:], labels[1000:]
    print(
        f"{method:6} log-loss {metrics.log_loss(seen, P):.3f}  accuracy {np.mean(P.argmax(axis=1) == seen):.3f}  "
        f"top-label CE {metrics.top_label_calibration_error(seen, P):.3f}"
    )

# %%
# A temperature cannot follow shares that move. ``multi`` can, and it also decides better: accuracy rises.

# %%
# The season, as the calibrator sees it
# -------------------------------------

figure, ax = plt.subplots(figsize=(7, 3.5), layout="constrained")
window = np.ones(300) / 300
digit = 3
ax.plot(np.convolve(labels == digit, window, mode="valid"), "k-", lw=2, label="share of threes")
for method, colour in (("raw", "#d55e00"), ("multi", "#009e73")):
    ax.plot(np.convolve(forecasts[method][:, digit], window, mode="valid"), color=colour, label=f"forecast, {method}")
ax.set(xlabel="event", ylabel="mean of the last 300", ylim=(0, None))
ax.legend(frameon=False)

# %%
# One event at a time, with names
# -------------------------------

pets = MultiCalibrator(["cat", "dog", "bird"])
f = pets.predict([0.7, 0.2, 0.1])
pets.update(f, "dog")
f.label, round(f.confidence, 3)

# %%
# :doc:`/multiclass` has the guarantees and the tables.
