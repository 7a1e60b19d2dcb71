"""Online probability calibration: scores in, probabilities you can trust out, learning from every outcome."""

from . import bounds, late, metrics, rivals
from ._version import __version__
from .backtest import BacktestResult, backtest
from .bank.bank import Bank
from .core.auto import Lanes
from .core.calibeating import Hedging, Tracking
from .core.features import Beta, Platt, Temperature
from .core.guard import Guard
from .core.learners import AIOLI, OGD, ONS
from .core.method import (
    AUTO,
    BM,
    F99,
    FBS,
    FPS,
    GAUTO,
    GOPS,
    GTOPS,
    HOBS,
    HOPS,
    OBS,
    OPS,
    SWBS,
    SWPS,
    TOBS,
    TOPS,
    TWHB,
    WBS,
    WHB,
    WPS,
    Method,
)
from .core.refit import FTL, Fixed, Histogram
from .core.spline import Spline
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
from .monitor.monitor import Monitor
from .multi.bank import MultiBank
from .multi.calibrator import MultiCalibrator
from .multi.forecast import MultiForecast
from .stream.calibrator import Calibrator
from .stream.forecast import Forecast
from .warm import warm_up

__all__ = [
    "AIOLI",
    "AUTO",
    "BM",
    "F99",
    "FBS",
    "FPS",
    "FTL",
    "GAUTO",
    "GOPS",
    "GTOPS",
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
    "Guard",
    "Hedging",
    "Histogram",
    "InvalidInput",
    "Lanes",
    "Method",
    "MissingExtra",
    "Monitor",
    "MultiBank",
    "MultiCalibrator",
    "MultiForecast",
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
    "late",
    "metrics",
    "rivals",
    "warm_up",
]
