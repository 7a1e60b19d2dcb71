"""Plots: two displays side by side, for the raw scores and for AUTO; writes plots.png into the folder named."""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from calibeat import Calibrator
from calibeat.examples import flights
from calibeat.plot import CalibrationOverTimeDisplay, ReliabilityDisplay

stream, n = flights(), 100_000
forecasts = Calibrator().run(stream.scores[:n], stream.outcomes[:n], due=stream.due[:n])
known = ~np.isnan(stream.outcomes[:n])
outcomes = stream.outcomes[:n][known]

figure = Figure(figsize=(11, 4.6), layout="constrained")
left, right = figure.subplots(1, 2)
for name, p in (("raw score", stream.scores[:n]), ("AUTO", forecasts)):
    ReliabilityDisplay.from_predictions(outcomes, p[known], name=name, ax=left)
    over_time = CalibrationOverTimeDisplay.from_predictions(outcomes, p[known], windows=25, name=name, ax=right)
    above = np.mean(over_time.error > over_time.noise)
    print(f"{name:9}  mean error of a window {over_time.error.mean():.3f}, above the shade in {above:.0%} of them")
path = Path(sys.argv[1] if len(sys.argv) > 1 else ".") / "plots.png"
figure.savefig(path, dpi=110)
print(f"picture written to {path.name}")
