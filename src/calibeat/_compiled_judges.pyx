# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False, nonecheck=False
"""Monitors and backtests. `core/units.py` says whose kernels are here."""

include "_head.pxi"
include "kernels_judges.pxi"
