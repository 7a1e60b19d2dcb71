"""The monitor: alarms about calibration that hold their promised rate at every moment. See docs/monitor.md."""

from .alarm import Alarm
from .monitor import Monitor
from .readout import Gain
from .waiting import Waiting

__all__ = ["Alarm", "Gain", "Monitor", "Waiting"]
