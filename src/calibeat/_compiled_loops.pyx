# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False, nonecheck=False
"""Batches, and what banks do with keys and rows. `core/units.py` says whose kernels are here."""

include "_head.pxi"
include "kernels_loops.pxi"
