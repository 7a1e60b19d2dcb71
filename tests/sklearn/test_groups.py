"""Groups in scikit-learn: by columns of X, by metadata, and the bits of `Calibrator(groups=).run`."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import sklearn
from classifiers import events
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from calibeat import Calibrator, Groups, InvalidInput
from calibeat.sklearn import OnlineCalibratedClassifier, ScoreCalibrator
from calibeat.sklearn.estimators import sigmoid

NAMES = ["country", "hour"]
GROUPS = Groups(NAMES, seed=7)


def segmented(n: int = 900) -> tuple[Any, Any, Any]:
    """Rows whose rate differs by country, which the base does not see."""
    X, _ = events(n)
    rng = np.random.default_rng(1)
    country = np.array(["fr", "it", "de"])[rng.integers(0, 3, n)]
    shift = np.where(country == "fr", 2.0, np.where(country == "it", -2.0, 0.0))
    y = np.where(rng.random(n) < 1 / (1 + np.exp(-(2 * X[:, 0] + shift))), "yes", "no")
    return X, y, pd.DataFrame({"country": country, "hour": rng.integers(0, 24, n)})


@pytest.fixture
def routing() -> Iterator[None]:
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def kinds(frame: pd.DataFrame) -> dict[str, Any]:
    """The same values in whatever holds them."""
    return {
        "pandas": frame,
        "polars": pl.DataFrame(frame),
        "arrow": pa.Table.from_pandas(frame),
        "dict": {name: frame[name].tolist() for name in frame},
        "dict of arrays": {name: frame[name].to_numpy() for name in frame},
        "array": frame.to_numpy(dtype=object),
        "rows": list(frame.itertuples(index=False, name=None)),
    }


@pytest.mark.parametrize("kind", list(kinds(segmented(4)[2])))
def test_the_bits_of_a_run(kind: str) -> None:
    X, y, frame = segmented(300)
    base = FrozenEstimator(LogisticRegression().fit(X, y))
    scores = sigmoid(base.decision_function(X))
    by_hand = Calibrator(groups=GROUPS)
    by_hand.run(scores[:200], y[:200] == "yes", groups=frame[:200])
    model = OnlineCalibratedClassifier(base, order="time", delay=0, groups=GROUPS)
    model.fit(X[:200], y[:200], groups=kinds(frame[:200])[kind])
    assert np.array_equal(model.calibrator_.row, by_hand.row)
    bare = ScoreCalibrator(order="time", delay=0, groups=GROUPS)
    bare.fit(scores[:200], y[:200], groups=kinds(frame[:200])[kind])
    assert np.array_equal(bare.calibrator_.row, by_hand.row)
    rest = kinds(frame[200:])[kind]
    want = by_hand.predict_many(scores[200:], groups=frame[200:])
    assert np.array_equal(bare.transform(scores[200:], groups=rest), want)
    # Receipts say the same, and a label behind each is an event of the calibrator.
    receipts = bare.forecast(scores[200:], groups=rest)
    assert np.array_equal([float(f) for f in receipts], want)
    bare.update(receipts, y[200:])
    values = frame[200:].itertuples(index=False, name=None)
    kept = [by_hand.predict(s, groups=value) for s, value in zip(scores[200:].tolist(), values, strict=True)]
    for receipt, outcome in zip(kept, y[200:], strict=True):
        by_hand.update(receipt, int(outcome == "yes"))
    assert np.array_equal(bare.calibrator_.row, by_hand.row)


def test_shuffled_rows_keep_their_groups() -> None:
    X, y, frame = segmented()
    plain = OnlineCalibratedClassifier(LogisticRegression()).fit(X[:600], y[:600])
    model = OnlineCalibratedClassifier(LogisticRegression(), groups=["country"])
    losses = [log_loss(y[600:], plain.predict_proba(X[600:]))]
    for country in (frame[["country"]], frame[["country"]].to_numpy(), {"country": frame["country"]}):
        past, ahead = (
            {"country": country["country"][rows]} if isinstance(country, dict) else country[rows]
            for rows in (slice(0, 600), slice(600, 900))
        )
        model.fit(X[:600], y[:600], groups=past)
        losses.append(log_loss(y[600:], model.predict_proba(X[600:], groups=ahead)))
    assert losses[1] == losses[2] == losses[3] < losses[0] - 0.05
    assert set(model.calibrator_.params["groups"]["spread"]) == {"country"}
    twin = pickle.loads(pickle.dumps(model))  # noqa: S301 - our own bytes
    asked = {"groups": frame[["country"]][600:]}
    assert np.array_equal(twin.predict_proba(X[600:], **asked), model.predict_proba(X[600:], **asked))
    assert clone(model).groups == ["country"]
    assert model.partial_fit(X[600:], y[600:], groups=frame[["country"]][600:]).calibrator_.outcomes == 900


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_groups_are_columns_of_x(library: str) -> None:
    X, y, frame = segmented()
    table: Any = pd.concat([pd.DataFrame(X, columns=["a", "b", "c"]), frame], axis=1)
    if library == "polars":
        table = pl.DataFrame(table)
    base = make_pipeline(make_column_transformer((StandardScaler(), ["a", "b", "c"])), LogisticRegression())
    model = OnlineCalibratedClassifier(base, groups=GROUPS).fit(table[:600], y[:600])
    given = OnlineCalibratedClassifier(base, groups=GROUPS).fit(table[:600], y[:600], groups=frame[:600])
    p = model.predict_proba(table[600:])
    assert np.array_equal(p, given.predict_proba(table[600:], groups=frame[600:]))
    assert model.score(table[600:], y[600:]) == np.mean(model.predict(table[600:]) == y[600:])
    assert model.partial_fit(table[600:], y[600:]).calibrator_.outcomes == 900
    scores = pd.concat([pd.Series(p[:, 1], name="score"), frame[600:].reset_index(drop=True)], axis=1)
    beside = ScoreCalibrator(groups=GROUPS).fit(scores, y[600:])
    assert beside.feature_names_in_.tolist() == ["score"]
    apart = ScoreCalibrator(groups=GROUPS).fit(scores[["score"]], y[600:], groups=frame[600:])
    assert np.array_equal(beside.transform(scores), apart.transform(scores[["score"]], groups=frame[600:]))


@pytest.mark.usefixtures("routing")
def test_groups_are_routed_through_pipelines_and_searches() -> None:
    X, y, frame = segmented(300)
    country = frame[["country"]]
    asking = OnlineCalibratedClassifier(LogisticRegression(), cv=2, groups=["country"])
    asking.set_fit_request(groups=True).set_predict_proba_request(groups=True).set_score_request(groups=True)
    asking.set_partial_fit_request(groups=True).set_predict_request(groups=True)
    pipeline = make_pipeline(StandardScaler(), asking).fit(X, y, groups=country)
    by_hand = clone(asking).fit(StandardScaler().fit_transform(X), y, groups=country)
    want = by_hand.predict_proba(StandardScaler().fit_transform(X), groups=country)
    assert np.array_equal(pipeline.predict_proba(X, groups=country), want)
    search = GridSearchCV(asking, {"estimator__C": [0.1, 1.0]}, cv=2, error_score="raise")
    search.fit(X, y, groups=country)
    assert search.best_estimator_.calibrator_.outcomes == 300


def test_what_is_refused() -> None:
    X, y, frame = segmented(90)
    frozen = FrozenEstimator(LogisticRegression().fit(X, y))
    named = OnlineCalibratedClassifier(frozen, groups=NAMES)
    fitted = clone(named).fit(X, y, groups=frame)
    plain = OnlineCalibratedClassifier(frozen).fit(X, y)
    three = np.array(["a", "b", "c"])[np.arange(90) % 3]
    for message, work in (
        (r"columns of X, or be given by groups=: country, hour; got none for 'country'", lambda: named.fit(X, y)),
        (r"got none for 'country'", lambda: fitted.predict_proba(X)),
        (
            r"groups must be named first, OnlineCalibratedClassifier\(..., groups=\[...\]\)",
            lambda: plain.predict(X, frame),
        ),
        (r"groups must be country, hour, got none for 'hour'", lambda: named.fit(X, y, groups=frame[["country"]])),
        (r"inconsistent numbers of samples", lambda: named.fit(X, y, groups=frame[:50])),
        (r"hour must be a string, .* got 37.5", lambda: fitted.predict(X, groups=frame.assign(hour=37.5))),
        (r"method with the learner Lanes", lambda: clone(named).set_params(method="ops").fit(X, y, groups=frame)),
        (
            r"many classes have no groups",
            lambda: OnlineCalibratedClassifier(LogisticRegression(), groups=NAMES).fit(X, three, groups=frame),
        ),
    ):
        with pytest.raises(ValueError, match=message):
            work()
    assert fitted.calibrator_.outcomes == 90


def test_groups_of_another_kind_are_refused() -> None:
    X, y, frame = segmented(200)
    model = OnlineCalibratedClassifier(LogisticRegression(), groups=GROUPS).fit(X, y, groups=frame)
    with pytest.raises(InvalidInput, match="groups must be a data frame or columns by name, got str"):
        model.forecast(X[:2], groups="ab")
