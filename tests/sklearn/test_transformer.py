"""calibeat in scikit-learn: the transformer of bare scores."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from classifiers import by_hand
from sklearn.exceptions import NotFittedError

from calibeat import OPS
from calibeat.sklearn import ScoreCalibrator


def test_scores_in_three_shapes() -> None:
    rng = np.random.default_rng(2)
    scores = rng.random(500)
    labels = rng.random(500) < scores**2
    want = by_hand(scores, labels, scores)
    for given in (scores, scores[:, None], np.column_stack([1 - scores, scores])):
        calibrator = ScoreCalibrator(order="time").fit(given, labels)
        got = calibrator.transform(given)
        assert got.shape == given.shape
        assert np.allclose(got if got.ndim == 1 else got[:, -1], want, atol=1e-12)
    assert np.allclose(got.sum(axis=1), 1.0)
    halves = ScoreCalibrator("ops").partial_fit(scores[:250], labels[:250]).partial_fit(scores[250:], labels[250:])
    want = by_hand(scores, labels, scores, OPS)
    assert np.array_equal(halves.transform(scores), want)
    logits = ScoreCalibrator("ops", scale="logit", order="time").fit(np.log(scores / (1 - scores)), labels)
    assert np.allclose(logits.transform([0.0]), by_hand(scores, labels, [0.5], OPS), atol=1e-9)
    assert np.array_equal(pickle.loads(pickle.dumps(halves)).transform(scores), want)  # noqa: S301 - our own bytes


def test_labels_of_the_transformer() -> None:
    scores = [0.2, 0.4, 0.6]
    for first, both in (([0] * 3, [0, 1]), ([True] * 3, [False, True]), ([-1] * 3, [-1, 1]), ([1.0] * 3, [0.0, 1.0])):
        assert ScoreCalibrator().fit(scores, first).classes_.tolist() == both
    named = ScoreCalibrator().partial_fit(scores, ["a"] * 3, classes=["b", "a"])
    assert named.classes_.tolist() == ["a", "b"]
    assert named.partial_fit(scores, ["b"] * 3).calibrator_.outcomes == 6


def test_a_column_comes_back_as_a_column() -> None:
    calibrator = ScoreCalibrator().fit(pl.Series([0.1, 0.6, 0.9]), pl.Series([0, 1, 1]))
    assert isinstance(calibrator.transform(pl.Series([0.2])), pl.Series)
    assert calibrator.transform(pd.Series([0.2, 0.3], index=["a", "b"])).index.tolist() == ["a", "b"]
    assert isinstance(calibrator.transform([0.2, 0.3]), np.ndarray)


def test_set_output() -> None:
    calibrator = ScoreCalibrator().set_output(transform="pandas")
    frame = pd.DataFrame({"score": [0.1, 0.6, 0.9]}, index=[7, 8, 9])
    assert calibrator.fit(frame, [0, 1, 1]).transform(frame).index.tolist() == [7, 8, 9]
    assert calibrator.get_feature_names_out().tolist() == ["score"]


def test_set_output_for_another_library() -> None:
    scores, labels = pd.Series([0.1, 0.6, 0.9], index=["a", "b", "c"]), [0, 1, 1]
    plain = ScoreCalibrator().fit(scores, labels)
    want = plain.transform(scores).tolist()
    frame = ScoreCalibrator().set_output(transform="polars").fit(scores, labels).transform(scores)
    assert isinstance(frame, pl.DataFrame) and frame["x0"].to_list() == want
    frame = ScoreCalibrator().set_output(transform="pandas").fit(scores, labels).transform(scores)
    assert frame["x0"].tolist() == want and frame.index.tolist() == ["a", "b", "c"]
    frame = ScoreCalibrator().set_output(transform="pandas").fit(scores, labels).transform(pl.Series(scores))
    assert isinstance(frame, pd.DataFrame) and frame["x0"].tolist() == want


def test_a_fit_that_is_refused_leaves_a_calibrator_as_it_was() -> None:
    calibrator = ScoreCalibrator().fit(pd.DataFrame({"score": [0.1, 0.6, 0.9]}), [0, 1, 1])
    before, asked = dict(vars(calibrator)), pd.DataFrame({"score": [0.3, 0.5]})
    for scores, labels in (([[0.5, 0.6]], [1]), ([[0.5, 0.5]], ["a"]), ([0.1, 2.0], [0, 1]), ([0.1, 0.2], None)):
        with pytest.raises(ValueError, match=r"sum to 1|one class only|score must be|requires y"):
            calibrator.fit(scores, labels)
        assert vars(calibrator) == before
    assert calibrator.transform(asked).shape == (2, 1)
    calibrator.fit(np.array([[0.1], [0.6]]), [0, 1])
    assert not hasattr(calibrator, "feature_names_in_")


def test_classes_are_looked_at_in_every_call() -> None:
    calibrator = ScoreCalibrator().partial_fit([0.1, 0.6], [0, 1])
    with pytest.raises(ValueError, match=r"classes must be \[0, 1\], got \['x', 'y'\]"):
        calibrator.partial_fit([0.1], [0], classes=["x", "y"])
    assert calibrator.partial_fit([0.1], [0], classes=[1, 0]).calibrator_.outcomes == 3


def test_what_a_transformer_refuses() -> None:
    y = [0, 1, 1]
    fitted = ScoreCalibrator().fit([0.1, 0.5, 0.7], y)
    for error, message, work in (
        (
            ValueError,
            r"score must be in \[0, 1\], got 1.3 - at row 2",
            lambda: ScoreCalibrator().fit([0.1, 0.2, 1.3], y),
        ),
        (ValueError, "contains NaN", lambda: ScoreCalibrator().fit([0.1, 0.2, np.nan], y)),
        (ValueError, "sum to 1, got .* at row 1", lambda: ScoreCalibrator().fit([[0.5, 0.5], [0.5, 0.6]], [0, 1])),
        (ValueError, "3 columns, one for each class, .* got .0, 1.", lambda: ScoreCalibrator().fit(np.eye(3), y)),
        (
            ValueError,
            "one column of logits, or one for each of many classes, got 2",
            lambda: ScoreCalibrator(scale="logit").fit(np.eye(3)[:, :2], y),
        ),
        (ValueError, "scale must be", lambda: ScoreCalibrator(scale="odds").fit([0.1, 0.5, 0.7], y)),
        (ValueError, "1 features", lambda: fitted.transform([[0.5, 0.5]])),
        (ValueError, "requires y", lambda: ScoreCalibrator().fit([0.1, 0.5, 0.7], None)),
        (ValueError, "one class only so far, \\['a'\\]", lambda: ScoreCalibrator().fit([0.1, 0.5, 0.7], ["a"] * 3)),
        (ValueError, "Only binary", lambda: ScoreCalibrator().fit([0.1, 0.5, 0.7], ["a", "b", "c"])),
        (ValueError, "unseen labels", lambda: fitted.partial_fit([0.1], [2])),
        (TypeError, "weights", lambda: fitted.fit([0.1, 0.5, 0.7], y, weights=[1, 2, 3])),
        (NotFittedError, "not fitted", lambda: ScoreCalibrator().transform([0.5])),
    ):
        with pytest.raises(error, match=message):
            work()
