"""Online probability calibration: scores in, probabilities you can trust out, learning from every outcome."""

from . import bounds, metrics
from ._version import __version__
from .backtest import BacktestResult, backtest
from .bank import Bank
from .calibeating import Hedging, Tracking
from .calibrator import Calibrator
from .errors import (
    CalibeatError,
    InvalidInput,
    MissingExtra,
    OutcomeConflict,
    SnapshotMismatch,
    UnknownForecast,
    UnknownKey,
    UnknownMethod,
)
from .features import Beta, Platt, Temperature
from .forecast import Forecast
from .learners import AIOLI, OGD, ONS
from .method import Method
from .mixtures import Lanes
from .presets import AUTO, BM, F99, FBS, FPS, HOBS, HOPS, OBS, OPS, SWBS, SWPS, TOBS, TOPS, TWHB, WBS, WHB, WPS
from .refit import FTL, Fixed, Histogram
from .spline import Spline
from .warm import warm_up

__all__ = [
    "AIOLI",
    "AUTO",
    "BM",
    "F99",
    "FBS",
    "FPS",
    "FTL",
    "HOBS",
    "HOPS",
    "OBS",
    "OGD",
    "ONS",
    "OPS",
    "SWBS",
    "SWPS",
    "TOBS",
    "TOPS",
    "TWHB",
    "WBS",
    "WHB",
    "WPS",
    "BacktestResult",
    "Bank",
    "Beta",
    "CalibeatError",
    "Calibrator",
    "Fixed",
    "Forecast",
    "Hedging",
    "Histogram",
    "InvalidInput",
    "Lanes",
    "Method",
    "MissingExtra",
    "OutcomeConflict",
    "Platt",
    "SnapshotMismatch",
    "Spline",
    "Temperature",
    "Tracking",
    "UnknownForecast",
    "UnknownKey",
    "UnknownMethod",
    "__version__",
    "backtest",
    "bounds",
    "metrics",
    "warm_up",
]
