"""calibeat behind scikit-learn's interfaces."""

from .classifier import OnlineCalibratedClassifier, ScoreCalibrator

__all__ = ["OnlineCalibratedClassifier", "ScoreCalibrator"]
