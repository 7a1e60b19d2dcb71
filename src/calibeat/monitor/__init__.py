"""The monitor: alarms about calibration that hold their promised rate at every moment. See docs/monitor.md.

`notice`, `silence` and `shift` see what it cannot, because it needs outcomes; docs/explanation/notice.md.
"""

from .bets import Alarm, Gain
from .monitor import Monitor
from .waiting import Waiting

__all__ = ["Alarm", "Gain", "Monitor", "Waiting"]
