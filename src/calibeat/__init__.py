"""Online probability calibration: scores in, probabilities you can trust out, learning from every outcome."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._compiled import Forecast, MultiForecast
from ._version import __version__
from .backtest import backtest
from .core.auto import Lanes
from .core.band import NOT_YET, Bands
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
from .hosts.calibrator import Calibrator

if TYPE_CHECKING:
    from . import bounds, late, metrics, rivals
    from .backtest.result import BacktestResult
    from .hosts.bank import Bank
    from .hosts.groups import Groups
    from .hosts.multi import MultiBank, MultiCalibrator
    from .hosts.numbers import Number
    from .monitor.monitor import Monitor
    from .monitor.notice import Notice
    from .monitor.shift import Shift
    from .monitor.silence import Silence

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
    "NOT_YET",
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
    "Bands",
    "Bank",
    "Beta",
    "CalibeatError",
    "Calibrator",
    "Fixed",
    "Forecast",
    "Groups",
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
    "Notice",
    "Number",
    "OutcomeConflict",
    "Platt",
    "Shift",
    "Silence",
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
]

# `import calibeat` loads what `Calibrator` needs. The rest loads when it is first used (PEP 562).
_MODULES = {
    "BacktestResult": "backtest.result",
    "Bank": "hosts.bank",
    "Groups": "hosts.groups",
    "Monitor": "monitor.monitor",
    "MultiBank": "hosts.multi",
    "MultiCalibrator": "hosts.multi",
    "Notice": "monitor.notice",
    "Number": "hosts.numbers",
    "Shift": "monitor.shift",
    "Silence": "monitor.silence",
    "bounds": "bounds",
    "late": "late",
    "metrics": "metrics",
    "rivals": "rivals",
}
_ADAPTERS = ("client", "export", "monitor", "plot", "river", "service", "sklearn", "spark")
_IN_ADAPTERS = {
    "AsyncClient": "client",
    "Client": "client",
    "OnlineCalibrated": "river",
    "OnlineCalibratedClassifier": "sklearn",
    "ReliabilityDisplay": "plot",
    "ScoreCalibrator": "sklearn",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{_hint(name)}")
    module = import_module(f".{_MODULES[name]}", __name__)
    value = globals()[name] = module if name == _MODULES[name] else getattr(module, name)
    return value


def _hint(name: str) -> str:
    """Where a name is that the package itself does not have, as the end of a message; nothing where nobody knows."""
    if name in _ADAPTERS:
        return f": import calibeat.{name} first"
    if name in _IN_ADAPTERS:
        return f": from calibeat.{_IN_ADAPTERS[name]} import {name}"
    from ._util.words import did_you_mean

    return "" if name.startswith("_") else did_you_mean(name, __all__, 0.7)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
