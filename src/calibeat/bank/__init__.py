"""A calibrator for each of any number of keys, in one matrix of rows."""

from .bank import Bank

__all__ = ["Bank"]
