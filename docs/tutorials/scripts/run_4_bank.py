"""
A bank of keys
==============

One model serves a thousand shops. It is right on average and wrong in each shop. A `Bank` keeps a calibrator for each
key, in one matrix.

You need ``pip install 'calibeat[plot]'``.
"""

# %%
# A thousand shops
# ----------------
# Each shop has its own level and its own slope. Some shops are large, most are small.

import matplotlib.pyplot as plt
import numpy as np

from calibeat import Bank, metrics

rng = np.random.default_rng(0)
SHOPS, EVENTS = 1000, 200_000
names = np.array([f"shop-{i:04d}" for i in range(SHOPS)])
level, slope = rng.normal(0, 1, SHOPS), np.exp(rng.normal(0, 0.3, SHOPS))
shop = (SHOPS * rng.random(EVENTS) ** 3).astype(int)
scores = 1 / (1 + np.exp(-rng.normal(-1, 1, EVENTS)))
logit = slope[shop] * np.log(scores / (1 - scores)) + level[shop]
outcomes = rng.random(EVENTS) < 1 / (1 + np.exp(-logit))

# %%
# One calibrator for all, one for each
# ------------------------------------
# The order of the arrays is the order of the events. ``prior="pooled"`` starts a new key from what all keys have in
# common.

from calibeat import Calibrator

together = Calibrator("ops").run(scores, outcomes)
bank = Bank("ops", prior="pooled")
apart = bank.run(names[shop], scores, outcomes)
for name, forecasts in (("raw score", scores), ("one for all", together), ("one for each", apart)):
    print(f"{name:13} log-loss {metrics.log_loss(outcomes, forecasts):.4f}")

# %%
# Look inside
# -----------
# ``bank.table`` has the counts and the losses of every key.

table = bank.table
sorted(table)

# %%
# The parameters of a shop are close to the truth where it has had many events.

learnt = np.array([bank[name].params["b"] for name in names])
events = np.bincount(shop, minlength=SHOPS)
figure, ax = plt.subplots(figsize=(5.5, 4), layout="constrained")
points = ax.scatter(level, learnt, c=np.log10(events), s=10, cmap="viridis")
ax.axline((0, 0), slope=1, color="k", lw=0.8, ls=":")
ax.set(xlabel="true level of the shop", ylabel="level that the bank has learnt")
figure.colorbar(points, label="events, log10")

# %%
# Keep it
# -------
# A bank is one file. It loads in milliseconds, also where it lies (``mmap=True``).

import tempfile
from pathlib import Path

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "shops.bank"
    bank.save(path)
    again = Bank.load(path)
    print(again)
    print(f"{path.stat().st_size / len(again):.0f} bytes a key")
print(again["shop-0000"].peek(0.3) == bank["shop-0000"].peek(0.3))

# %%
# ``calibeat bank top shops.bank --by log-loss-gain`` lists the shops that gain most. :doc:`/bank` has the rest.
