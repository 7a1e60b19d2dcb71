"""The monitor: alarms about calibration that hold their promised rate at every moment. See docs/monitor.md."""

from .monitor import Alarm, Monitor
from .readout import Gain
from .waiting import Waiting

__all__ = ["Alarm", "Gain", "Monitor", "Waiting"]
