"""calibeat behind scikit-learn's interfaces."""

from calibeat._util.extras import missing

try:
    from .estimators import OnlineCalibratedClassifier, ScoreCalibrator
except ImportError as error:
    raise missing("scikit-learn 1.6 or newer", "sklearn", "calibeat.sklearn") from error

__all__ = ["OnlineCalibratedClassifier", "ScoreCalibrator"]
