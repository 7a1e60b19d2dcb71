"""
Behind a river model
====================

A river model learns with every event. Its probabilities are often too sure. `calibeat.river.OnlineCalibrated` wraps it.

You need ``pip install 'calibeat[river]'``.
"""

# %%
# A stream
# --------
# Phishing pages, from river's own datasets: 1,250 events, one after the other.

from river import datasets, evaluate, metrics, naive_bayes, utils

from calibeat.river import Brier, CalibrationError, OnlineCalibrated

# %%
# With and without
# ----------------
# ``progressive_val_score`` asks for each forecast first and shows the label after. The wrapper asks the model for its
# score before the model learns, so the calibrator never sees a score of a model that knows the answer.

for name, model in (
    ("naive Bayes", naive_bayes.GaussianNB()),
    ("behind calibeat", OnlineCalibrated(naive_bayes.GaussianNB())),
):
    measures = metrics.LogLoss() + Brier() + CalibrationError()
    evaluate.progressive_val_score(datasets.Phishing(), model, measures)
    log_loss, brier, error = measures.get()
    print(f"{name:16} log-loss {log_loss:.3f}  Brier {brier:.3f}  calibration error {error:.3f}")

# %%
# What it has learnt
# ------------------
# The calibrator's parameters are those of any `Calibrator`. The slope ``a`` below 1 says that the model is too sure of
# itself.

params = model.calibrator.params
{name: round(params[name], 3) for name in ("a", "b", "c")}

# %%
# Over a window
# -------------
# The metrics can be taken back, so they work in river's rolling windows.

import matplotlib.pyplot as plt

rolling = {"naive Bayes": naive_bayes.GaussianNB(), "behind calibeat": OnlineCalibrated(naive_bayes.GaussianNB())}
figure, ax = plt.subplots(figsize=(7, 3.5), layout="constrained")
for colour, (name, model) in zip(("#d55e00", "#009e73"), rolling.items(), strict=True):
    error, errors = utils.Rolling(CalibrationError, window_size=250), []
    for x, label in datasets.Phishing():
        error.update(label, model.predict_proba_one(x))
        model.learn_one(x, label)
        errors.append(error.get())
    ax.plot(range(250, len(errors)), errors[250:], color=colour, label=name)
ax.set(xlabel="event", ylabel="calibration error, last 250 events", ylim=(0, None))
ax.legend(frameon=False)

# %%
# If labels are late, ``OnlineCalibrated(model, remember=1000)`` keeps that many forecasts until their labels come.
