"""Online probability calibration: scores in, probabilities you can trust out, learning from every outcome."""

from . import bounds, metrics
from ._version import __version__
from .calibeating import Hedging, Tracking
from .calibrator import Calibrator
from .errors import (
    CalibeatError,
    InvalidInput,
    MissingExtra,
    OutcomeConflict,
    SnapshotMismatch,
    UnknownForecast,
    UnknownMethod,
)
from .features import Beta, Platt, Temperature
from .forecast import Forecast
from .learners import AIOLI, OGD, ONS
from .method import Method
from .presets import BM, F99, FBS, FPS, HOBS, HOPS, OBS, OPS, SWBS, SWPS, TOBS, TOPS, TWHB, WBS, WHB, WPS
from .refit import FTL, Fixed, Histogram

__all__ = [
    "AIOLI",
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
    "Beta",
    "CalibeatError",
    "Calibrator",
    "Fixed",
    "Forecast",
    "Hedging",
    "Histogram",
    "InvalidInput",
    "Method",
    "MissingExtra",
    "OutcomeConflict",
    "Platt",
    "SnapshotMismatch",
    "Temperature",
    "Tracking",
    "UnknownForecast",
    "UnknownMethod",
    "__version__",
    "bounds",
    "metrics",
]
