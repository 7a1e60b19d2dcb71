"""The row of a monitor and its settings as numbers: where everything stands.

The row, with R regions::

    n, phi, Brier (S, V, c), log-loss (S, V, c), pairs, forecasts     counts, dispersion, gain over the raw score
    3 x (sum g, sum v)                                                dispersion, blocks of 128, 1024, 8192
    2 x (4 R, 4 S)                                                    detectors of all events and of "sure"
    R x (count, sum p, sum y, sum (y-p)^2, 4 W, 4 R, 4 S)             regions; W = log wealth since the start
    alarms, pages, last, since, cell, sum of the numbers that wait    the last alarm, and what waits
    3 x (last z, sum of half d^2)                                     dispersion, blocks that are closed

The four bets are in the order +0.25, +1, -0.25, -1. Six regions take 140 numbers, two take 76. What an outcome touches
comes first and in groups of eight, which is a cache line; what it seldom touches is counted from the end of the row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calibeat._util.check import check_interval, check_whole, shown
from calibeat._util.types import Vector
from calibeat.errors import InvalidInput

# ---- the row -----------------------------------------------------------------------------------------------------
N, PHI = 0, 1
BRIER, LOG, PAIRS, FORECASTS = 2, 5, 8, 9  # BRIER and LOG are followed by V and c
BLOCKS = 10  # three pairs
WHOLE, SURE = 16, 24  # detectors: four R, four S
REGIONS, REGION = 32, 16  # where the regions start, and how many numbers one takes
COUNT, SUM_P, SUM_Y, SQUARES, WEALTH, DETECTOR = 0, 1, 2, 3, 4, 8  # in a region
ALARMS, PAGES, LAST, SINCE, CELL, WAITING, CLOSED = range(-12, -5)  # CLOSED: three pairs
TAIL = 12

# ---- the spec ----------------------------------------------------------------------------------------------------
LINE, UP, DOWN, QUIET, WARM, KINDS, EDGE = range(7)  # from EDGE on: the inner edges of the regions
SPEC_WIDTH = EDGE + 5

EDGES = {2: (0.5,), 6: (0.05, 0.2, 0.5, 0.8, 0.95)}  # 0.5 is always one: "sure" turns round there
THIRDS, DIRECTIONS, SIZES = 3.0, 2.0, 2.0  # an alarm's line is their product times arl


@dataclass(frozen=True)
class Settings:
    """What a monitor is asked for. The parameters are those of `Monitor`."""

    arl: float = 1_000_000.0
    alpha: float = 0.05
    tolerance: float = 0.0
    quiet: int = 1000
    warm: int = 1024
    patience: int = 100_000
    regions: int = 6

    def __post_init__(self) -> None:
        check = object.__setattr__
        check(self, "arl", check_interval("arl", self.arl, 1.0, 1e15))
        check(self, "alpha", check_interval("alpha", self.alpha, 1e-12, 0.5))
        check(self, "tolerance", check_interval("tolerance", self.tolerance, 0.0, 10.0))
        check(self, "quiet", check_whole("quiet", self.quiet, 0, 2**53))
        check(self, "warm", check_whole("warm", self.warm, 0, 2**53))
        check(self, "patience", check_whole("patience", self.patience, 1, 2**31))
        if type(self.regions) is not int or self.regions not in EDGES:
            raise InvalidInput(f"regions must be {' or '.join(map(str, EDGES))}, got {shown(self.regions)}")

    @property
    def edges(self) -> tuple[float, ...]:
        """The edges of the regions, 0 and 1 included."""
        return 0.0, *EDGES[self.regions], 1.0

    @property
    def width(self) -> int:
        """How many numbers a row takes."""
        return REGIONS + REGION * self.regions + TAIL

    @property
    def spec(self) -> Vector:
        """The settings as the kernels read them."""
        spec = np.zeros(SPEC_WIDTH)
        spec[LINE] = THIRDS * DIRECTIONS * SIZES * self.arl
        spec[UP], spec[DOWN] = math.exp(self.tolerance), math.exp(-self.tolerance)
        spec[QUIET], spec[WARM], spec[KINDS] = self.quiet, self.warm, self.regions
        inner = EDGES[self.regions]
        spec[EDGE : EDGE + len(inner)] = inner
        return spec

    def initial_row(self) -> Vector:
        """The row before the first outcome."""
        row = np.zeros(self.width)
        row[PHI] = 1.0
        return row

    def check_rows(self, rows: npt.NDArray[np.float64]) -> None:
        """Raise unless a monitor with these settings can hold each of the rows."""
        if rows.ndim != 2 or rows.shape[1] != self.width:
            raise InvalidInput(f"row must have {self.width} numbers, got {rows.shape[-1]}")
        n = rows[:, N]
        regions = rows[:, REGIONS:-TAIL].reshape(-1, self.regions, REGION)
        own = regions[:, :, DETECTOR:].reshape(len(rows), DETECTOR * self.regions)
        detectors = np.hstack([rows[:, WHOLE:REGIONS], own])
        whole = rows[:, [N, ALARMS, PAGES, LAST, CELL, PAIRS, FORECASTS]]
        counted = (whole >= 0.0) & (whole <= 2.0**53) & (whole == np.floor(whole))
        sums = (regions[:, :, :WEALTH] >= 0.0).all(axis=(1, 2))
        squares = rows[:, [BRIER + 1, BRIER + 2, LOG + 1, LOG + 2]]
        sound = {
            "finite numbers": np.isfinite(rows).all(axis=1),
            "counts that are whole numbers": counted.all(axis=1),
            "phi of at least 1": rows[:, PHI] >= 1.0,
            "pages <= alarms <= n": (rows[:, PAGES] <= rows[:, ALARMS]) & (rows[:, ALARMS] <= n),
            "its last alarm and its start within the outcomes": (rows[:, SINCE] >= 0.0)
            & (rows[:, SINCE] <= n)
            & (rows[:, LAST] <= n),
            "a cell that exists": rows[:, CELL] < 2 * (2 + self.regions),
            "no more outcomes than forecasts": (rows[:, PAIRS] <= n) & (n <= rows[:, FORECASTS]),
            "as many outcomes in the regions as in all": regions[:, :, COUNT].sum(axis=1) == n,
            "sums that are not negative": sums & (squares >= 0.0).all(axis=1),
            "detectors that are not negative": (detectors >= 0.0).all(axis=1),
        }
        for wanted, met in sound.items():
            if not met.all():
                row = int((~met).argmax())
                got = shown(rows[row, :REGIONS].tolist())
                raise InvalidInput(f"monitor row must have {wanted}, got {got} - at row {row}")
