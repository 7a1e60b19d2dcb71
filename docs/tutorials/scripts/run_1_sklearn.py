"""
Behind a scikit-learn model
===========================

A model is trained once and deployed. The world moves on. calibeat stands behind the model and keeps its probabilities
right, without touching the model.

You need ``pip install 'calibeat[sklearn,plot]'``.
"""

# %%
# A world that drifts
# -------------------
# Customers buy or do not. What they buy depends on price and age. Month by month, fewer of them buy, and the price
# counts for less.

import matplotlib.pyplot as plt
import numpy as np

rng = np.random.default_rng(0)
MONTHS, EACH = 24, 1000
month = np.repeat(np.arange(MONTHS), EACH)
X = rng.normal(size=(MONTHS * EACH, 2))  # price and age, standardised
logit = (2.0 - month / 16) * X[:, 0] + X[:, 1] - month / 8
y = np.where(rng.random(len(X)) < 1 / (1 + np.exp(-logit)), "buys", "leaves")

# %%
# A model of the first two months
# -------------------------------

from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

model = LogisticRegression().fit(X[month < 2], y[month < 2])
model.classes_

# %%
# calibeat behind it
# ------------------
# ``FrozenEstimator`` says that the model is fitted already. ``partial_fit`` is for labels that have arrived: here,
# once a month. Forecasts come first, labels after.

from calibeat.sklearn import OnlineCalibratedClassifier

online = OnlineCalibratedClassifier(FrozenEstimator(model))
online.partial_fit(X[month < 2], y[month < 2])
raw, calibrated = [], []
for now in range(2, MONTHS):
    rows = month == now
    raw.append(model.predict_proba(X[rows])[:, 0])
    calibrated.append(online.predict_proba(X[rows])[:, 0])  # forecasts of this month ...
    online.partial_fit(X[rows], y[rows])  # ... and then its labels

# %%
# What it brought
# ---------------

from calibeat import metrics

bought = y[month >= 2] == "buys"
for name, forecasts in (("model", raw), ("behind calibeat", calibrated)):
    p = np.concatenate(forecasts)
    print(f"{name:16} log-loss {metrics.log_loss(bought, p):.3f}  CE {metrics.calibration_error(bought, p):.3f}")

# %%
# Month by month: the model stays where it was, calibeat follows one month behind, because labels come once a month.

figure, ax = plt.subplots(figsize=(7, 3.5), layout="constrained")
months = np.arange(2, MONTHS)
ax.plot(months, [np.mean(y[month == m] == "buys") for m in months], "k-", lw=2.5, label="what happened")
ax.plot(months, [p.mean() for p in raw], "--", color="#d55e00", label="model")
ax.plot(months, [p.mean() for p in calibrated], color="#009e73", label="behind calibeat")
ax.set(xlabel="month", ylabel="share that buys", ylim=(0, None))
ax.legend(frameon=False)

# %%
# A reliability diagram over all months: on the dotted line the forecasts were right.

from calibeat.plot import ReliabilityDisplay

figure, ax = plt.subplots(figsize=(5, 4.5), layout="constrained")
ReliabilityDisplay.from_predictions(bought, np.concatenate(raw), name="model").plot(ax=ax)
ReliabilityDisplay.from_predictions(bought, np.concatenate(calibrated), name="behind calibeat").plot(ax=ax)

# %%
# If labels come sooner, call ``partial_fit`` sooner. ``OnlineCalibratedClassifier`` goes into pipelines and through
# ``GridSearchCV``; it clones and pickles.
