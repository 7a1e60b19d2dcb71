"""calibeat on Apache Spark: calibrate frames and streams that do not fit one machine. docs/scale.md tells when.

Every call needs the extra: ``pip install 'calibeat[spark]'``. Batch works from Spark 3.5 on, streaming from 4.0 on.
"""

from __future__ import annotations

from .columns import bad_rows
from .folder import Calibrated, open  # noqa: A004 - calibeat.spark.open
from .frame import calibrate
from .session import session
from .state import from_bank, to_bank
from .stream import calibrate_stream, stream_state

__all__ = [
    "Calibrated",
    "bad_rows",
    "calibrate",
    "calibrate_stream",
    "from_bank",
    "open",
    "session",
    "stream_state",
    "to_bank",
]
