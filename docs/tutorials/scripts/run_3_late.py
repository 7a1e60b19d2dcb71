"""
Late labels
===========

A forecast is made now. Its outcome is known days later, and others come in between. This page shows the three ways to
handle that, and what it costs.

You need ``pip install 'calibeat[plot]'``.
"""

# %%
# One event at a time: receipts
# -----------------------------
# A forecast is a receipt. Store it with your event. Any process that has the calibrator can take it back.

from calibeat import Calibrator, Forecast

cal = Calibrator()
stored = {event: cal.predict(score).to_json() for event, score in {"a": 0.8, "b": 0.3, "c": 0.6}.items()}
cal.update(Forecast.from_json(stored["c"]), 1)  # outcomes come in any order ...
cal.update(Forecast.from_json(stored["a"]), 0)
cal.update(Forecast.from_json(stored["a"]), 0)  # ... and sometimes twice: that changes nothing
cal.outcomes

# %%
# A contradiction is an error, also after a restart.

from calibeat import OutcomeConflict

try:
    cal.update(Forecast.from_json(stored["a"]), 1)
except OutcomeConflict as error:
    print(error)

# %%
# A batch: due
# ------------
# ``due[i]`` is the position of the forecast just before which outcome i arrives. Here every outcome comes 500 events
# late, and the world changes in the middle.

import numpy as np

rng = np.random.default_rng(0)
T, DELAY = 20_000, 500
scores = rng.random(T)
truth = np.where(np.arange(T) < T // 2, 0.2 + 0.6 * scores, 0.1 + 0.3 * scores)
outcomes = rng.random(T) < truth
due = np.arange(T) + 1 + DELAY

at_once = Calibrator().run(scores, outcomes)
late = Calibrator().run(scores, outcomes, due=due)

# %%
# What lateness costs
# -------------------
# After the change both have to learn again. The late one starts 500 events later: it cannot know better.

import matplotlib.pyplot as plt

figure, ax = plt.subplots(figsize=(7, 3.5), layout="constrained")
window = np.ones(200) / 200
for name, forecasts, colour in (
    ("raw score", scores, "#d55e00"),
    ("outcomes 500 late", late, "#0072b2"),
    ("outcomes at once", at_once, "#009e73"),
):
    error = np.convolve(np.abs(forecasts - truth), window, mode="valid")
    ax.plot(np.arange(len(error)) + 200, error, color=colour, label=name)
ax.axvline(T // 2, color="k", lw=0.8, ls=":")
ax.set(xlabel="event", ylabel="distance to the true probability", xlim=(8_000, 14_000), ylim=(0, None))
ax.legend(frameon=False)

# %%
# Ones come soon, zeros at a time-out
# -----------------------------------
# A click is known within minutes. That there was none is known only when the time is up. Then the first outcomes to
# come are all ones, and every method is misled. ``mature`` learns all outcomes at one age.

wait = np.where(outcomes, 50, 1000)
misled = Calibrator().run(scores, outcomes, due=np.arange(T) + 1 + wait)
patient = Calibrator().run(scores, outcomes, due=np.arange(T) + 1 + wait, mature=1000)
for name, forecasts in (("as they come", misled), ("mature=1000", patient)):
    early = slice(200, 3000)
    print(f"{name:13} mean forecast {forecasts[early].mean():.3f}, truth {truth[early].mean():.3f}")

# %%
# :doc:`/late-outcomes` has the details and the measurements.
