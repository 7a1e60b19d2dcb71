"""How sure forecasts are: the interval over time, on the flights; writes band.png into the folder named."""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from calibeat import NOT_YET, Calibrator
from calibeat.examples import flights
from calibeat.plot import BandDisplay

stream, n = flights(), 30_000
cal = Calibrator(band=True)
bands = cal.run(stream.scores[:n], stream.outcomes[:n], due=stream.due[:n], band=True)

ax = Figure(figsize=(9, 4.2), layout="constrained").add_subplot()
times = None if stream.times is None else stream.times[:n]
display = BandDisplay.from_run(bands, stream.outcomes[:n], times=times, windows=60, name="AUTO, low to high", ax=ax)
ax.set_ylabel("share of flights that are late")

for first in (0, 1000, 20_000):
    part = slice(first, first + 1000)
    width = (bands.high - bands.low)[part].mean()
    early = np.isin(bands.reason[part], NOT_YET).mean()
    print(f"flights {first:6,} to {first + 1000:6,}: mean width {width:.2f}, not enough yet {early:.0%}")
record = cal.params["band"]
print(f"outside {record['outside']:.0f} of {record['blocks']:.0f} blocks")
path = Path(sys.argv[1] if len(sys.argv) > 1 else ".") / "band.png"
display.figure_.savefig(path, dpi=110)
print(f"picture written to {path.name}")
