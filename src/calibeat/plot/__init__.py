"""Pictures of calibration in scikit-learn's Display convention, for matplotlib.

A display holds numbers; `plot` draws them on the axes that it is given, or on a figure of its own (`figure_`), and
leaves matplotlib's global state alone: no pyplot, no styles. With pyplot, pass ``ax=plt.gca()``.

Displays raise `InvalidInput` if outcomes, forecasts, times or parameters are not what they must be, and `MissingExtra`
if matplotlib is not installed.
"""

from calibeat.metrics import wilson

from .band import BandDisplay
from .calibration import (
    CalibrationOverTimeDisplay,
    ClasswiseReliabilityDisplay,
    ConfidenceReliabilityDisplay,
    ReliabilityDisplay,
)
from .monitor import MonitorDisplay

__all__ = [
    "BandDisplay",
    "CalibrationOverTimeDisplay",
    "ClasswiseReliabilityDisplay",
    "ConfidenceReliabilityDisplay",
    "MonitorDisplay",
    "ReliabilityDisplay",
    "wilson",
]
