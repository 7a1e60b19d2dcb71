"""How many cores this process may use."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """The cores of the affinity mask where the system has one, as in a container that may use 2 of 64.

    >>> 1 <= usable_cores() <= os.cpu_count()
    True
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
