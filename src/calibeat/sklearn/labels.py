"""Labels as scikit-learn's users give them, and, of two classes, as outcomes 0 and 1."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import assert_all_finite, column_or_1d

from calibeat._util.types import Vector

Labels = npt.NDArray[Any]


def refuse_weights(estimator: BaseEstimator, args: tuple[Any, ...], params: dict[str, Any]) -> None:
    """Raise if there are weights, or arguments that nobody knows."""
    name = type(estimator).__name__
    # By scikit-learn's custom what comes next by position are weights.
    if params.pop("sample_weight", None) is not None or any(value is not None for value in args):
        raise TypeError(f"{name} does not support sample_weight: each outcome happened once, and is learnt once.")
    if params:
        raise TypeError(f"{name} got unexpected arguments: {', '.join(params)}")


def checked_labels(y: Any) -> Labels:
    """Labels as an array of one dimension, without missing ones."""
    y = column_or_1d(y, warn=True)
    assert_all_finite(y, input_name="y")
    check_classification_targets(y)
    return np.asarray(y)


def check_binary(y: Labels) -> None:
    """Raise unless there are two classes."""
    kind = type_of_target(y, input_name="y", raise_unknown=True)
    if kind != "binary":
        raise ValueError(f"Only binary classification is supported. The type of the target is {kind}.")


def classes_of(model: Any, seen: Labels | None) -> Labels:
    """The classes of a fitted model, in its own order; those seen if it does not say."""
    classes = getattr(model, "classes_", seen)
    if classes is None or len(classes) < 2:
        got = "no classes_" if classes is None else f"{len(classes)} classes"
        name = type(getattr(model, "estimator", model)).__name__
        raise ValueError(f"The base must have two classes or more. {name} has {got}.")
    return np.asarray(classes)


def check_classes(classes: Any, known: Labels) -> None:
    """Raise unless the classes that are named, if any are, are the known ones."""
    if classes is not None and not np.array_equal(np.unique(classes), np.unique(known)):
        raise ValueError(f"classes must be {known.tolist()}, got {np.asarray(classes).tolist()}")


def two_classes(y: Labels, classes: Any) -> Labels:
    """The two labels that are named, or seen, or known by custom from the one that is seen."""
    seen = np.unique(y if classes is None else column_or_1d(classes))
    if len(seen) == 1:
        for custom in ([0, 1], [-1, 1]):
            if seen.dtype.kind in "biuf" and seen[0] in custom:
                return np.array(custom).astype(seen.dtype)
        raise ValueError(f"y has one class only so far, {seen.tolist()}: name both by classes=, in partial_fit")
    check_binary(seen)
    return seen


def outcomes_of(y: Labels, classes: Labels) -> Vector | Labels:
    """Of two classes 1 for the second and 0 for the first; of more the labels as they are, if the base knows them."""
    known = np.isin(y, classes)
    if not known.all():
        raise ValueError(f"y contains previously unseen labels: {np.unique(y[~known]).tolist()}")
    return (y == classes[1]).astype(np.float64) if len(classes) == 2 else y
