"""A calibrator's present map from score to forecast, frozen, in other languages."""

from .frozen import Export

__all__ = ["Export"]
