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
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from calibeat import Calibrator, Groups, InvalidInput, Number
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
    model.fit(X[:200], y[:200], group_values=kinds(frame[:200])[kind])
    assert np.array_equal(model.calibrator_.row, by_hand.row)
    bare = ScoreCalibrator(order="time", delay=0, groups=GROUPS)
    bare.fit(scores[:200], y[:200], group_values=kinds(frame[:200])[kind])
    assert np.array_equal(bare.calibrator_.row, by_hand.row)
    rest = kinds(frame[200:])[kind]
    want = by_hand.predict_many(scores[200:], groups=frame[200:])
    assert np.array_equal(bare.transform(scores[200:], group_values=rest), want)
    # Receipts say the same, and a label behind each is an event of the calibrator.
    receipts = bare.forecast(scores[200:], group_values=rest)
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
        model.fit(X[:600], y[:600], group_values=past)
        losses.append(log_loss(y[600:], model.predict_proba(X[600:], group_values=ahead)))
    assert losses[1] == losses[2] == losses[3] < losses[0] - 0.05
    assert set(model.calibrator_.params["groups"]["spread"]) == {"country"}
    twin = pickle.loads(pickle.dumps(model))  # noqa: S301 - our own bytes
    asked = {"group_values": frame[["country"]][600:]}
    assert np.array_equal(twin.predict_proba(X[600:], **asked), model.predict_proba(X[600:], **asked))
    assert clone(model).groups == ["country"]
    assert model.partial_fit(X[600:], y[600:], group_values=frame[["country"]][600:]).calibrator_.outcomes == 900


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_groups_are_columns_of_x(library: str) -> None:
    X, y, frame = segmented()
    table: Any = pd.concat([pd.DataFrame(X, columns=["a", "b", "c"]), frame], axis=1)
    if library == "polars":
        table = pl.DataFrame(table)
    base = make_pipeline(make_column_transformer((StandardScaler(), ["a", "b", "c"])), LogisticRegression())
    model = OnlineCalibratedClassifier(base, groups=GROUPS).fit(table[:600], y[:600])
    given = OnlineCalibratedClassifier(base, groups=GROUPS).fit(table[:600], y[:600], group_values=frame[:600])
    p = model.predict_proba(table[600:])
    assert np.array_equal(p, given.predict_proba(table[600:], group_values=frame[600:]))
    assert model.score(table[600:], y[600:]) == np.mean(model.predict(table[600:]) == y[600:])
    assert model.partial_fit(table[600:], y[600:]).calibrator_.outcomes == 900
    scores = pd.concat([pd.Series(p[:, 1], name="score"), frame[600:].reset_index(drop=True)], axis=1)
    beside = ScoreCalibrator(groups=GROUPS).fit(scores, y[600:])
    assert beside.feature_names_in_.tolist() == ["score"]
    apart = ScoreCalibrator(groups=GROUPS).fit(scores[["score"]], y[600:], group_values=frame[600:])
    assert np.array_equal(beside.transform(scores), apart.transform(scores[["score"]], group_values=frame[600:]))


@pytest.mark.usefixtures("routing")
def test_groups_are_routed_through_pipelines_and_searches() -> None:
    X, y, frame = segmented(300)
    country = frame[["country"]]
    asking = OnlineCalibratedClassifier(LogisticRegression(), cv=2, groups=["country"])
    asking.set_fit_request(group_values=True).set_predict_proba_request(group_values=True).set_score_request(
        group_values=True
    )
    asking.set_partial_fit_request(group_values=True).set_predict_request(group_values=True)
    pipeline = make_pipeline(StandardScaler(), asking).fit(X, y, group_values=country)
    by_hand = clone(asking).fit(StandardScaler().fit_transform(X), y, group_values=country)
    want = by_hand.predict_proba(StandardScaler().fit_transform(X), group_values=country)
    assert np.array_equal(pipeline.predict_proba(X, group_values=country), want)
    search = GridSearchCV(asking, {"estimator__C": [0.1, 1.0]}, cv=2, error_score="raise")
    search.fit(X, y, group_values=country)
    assert search.best_estimator_.calibrator_.outcomes == 300


@pytest.mark.usefixtures("routing")
def test_groups_of_a_splitter_and_values_of_groups_go_their_own_ways() -> None:
    X, y, frame = segmented(300)
    clients = np.arange(300) // 10
    model = OnlineCalibratedClassifier(LogisticRegression(), cv=2, groups=["country"])
    for ask in ("fit", "predict", "predict_proba", "score"):
        getattr(model, f"set_{ask}_request")(group_values=True)
    given = {"groups": clients, "group_values": frame[["country"]]}
    how: Any = {"cv": GroupKFold(3), "params": given, "error_score": "raise", "return_indices": True}
    found = cross_validate(model, X, y, **how)
    for train, test, score in zip(*found["indices"].values(), found["test_score"], strict=True):
        assert set(clients[train]).isdisjoint(clients[test])
        by_hand = clone(model).fit(X[train], y[train], group_values=frame[["country"]].iloc[train])
        assert by_hand.score(X[test], y[test], group_values=frame[["country"]].iloc[test]) == score
    search = GridSearchCV(model, {"estimator__C": [0.1, 1.0]}, cv=GroupKFold(3), error_score="raise")
    assert search.fit(X, y, **given).best_estimator_.calibrator_.outcomes == 300


@pytest.mark.parametrize("routed", [False, True])
def test_groups_that_are_columns_of_x_need_no_request_beside_a_splitter(routed: bool) -> None:
    X, y, frame = segmented(300)
    table = pd.concat([pd.DataFrame(X, columns=["a", "b", "c"]), frame], axis=1)
    base = make_pipeline(make_column_transformer((StandardScaler(), ["a", "b", "c"])), LogisticRegression())
    model, clients = OnlineCalibratedClassifier(base, cv=2, groups=GROUPS), np.arange(300) // 10
    how: Any = {"params": {"groups": clients}} if routed else {"groups": clients}
    with sklearn.config_context(enable_metadata_routing=routed):
        scores = cross_validate(model, table, y, cv=GroupKFold(3), error_score="raise", **how)["test_score"]
    assert len(scores) == 3 and min(scores) > 0.5


def test_numbers_are_attributes_too() -> None:
    X, y, frame = segmented(900)
    frame["age"] = np.random.default_rng(3).normal(40.0, 12.0, 900)
    groups, base = ["country", Number("age", first=200)], FrozenEstimator(LogisticRegression().fit(X, y))
    groups = Groups(groups, seed=3)
    values = frame[["country", "age"]]
    model = OnlineCalibratedClassifier(base, order="time", delay=0, groups=groups).fit(X, y, group_values=values)
    bare = ScoreCalibrator(order="time", delay=0, groups=clone(model).groups)
    scores, by_hand = sigmoid(base.decision_function(X)), Calibrator(groups=groups)
    by_hand.run(scores, y == "yes", groups=values)
    bare.fit(pd.concat([pd.Series(scores, name="score"), values], axis=1), y)
    assert model.calibrator_.row.tolist() == bare.calibrator_.row.tolist() == by_hand.row.tolist()
    assert len(model.calibrator_.params["groups"]["numbers"]["age"]["edges"]) == 7
    mixed = OnlineCalibratedClassifier(base, groups=groups).fit(X, y, group_values=values)
    assert mixed.calibrator_.params["groups"]["numbers"]["age"] != by_hand.params["groups"]["numbers"]["age"]


def test_what_is_refused() -> None:
    X, y, frame = segmented(90)
    frozen = FrozenEstimator(LogisticRegression().fit(X, y))
    named = OnlineCalibratedClassifier(frozen, groups=NAMES)
    fitted = clone(named).fit(X, y, group_values=frame)
    plain = OnlineCalibratedClassifier(frozen).fit(X, y)
    three = np.array(["a", "b", "c"])[np.arange(90) % 3]
    for message, work in (
        (r"columns of X, or be given by group_values=: country, hour; got none for 'country'", lambda: named.fit(X, y)),
        (r"got none for 'country'", lambda: fitted.predict_proba(X)),
        (
            r"groups must be named first, OnlineCalibratedClassifier\(..., groups=\[...\]\)",
            lambda: plain.predict(X, frame),
        ),
        (
            r"groups must be country, hour, got none for 'hour'",
            lambda: named.fit(X, y, group_values=frame[["country"]]),
        ),
        (r"inconsistent numbers of samples", lambda: named.fit(X, y, group_values=frame[:50])),
        (r"hour must be a string, .* got 37.5", lambda: fitted.predict(X, group_values=frame.assign(hour=37.5))),
        (r"method with the learner Lanes", lambda: clone(named).set_params(method="ops").fit(X, y, group_values=frame)),
        (
            r"many classes have no groups",
            lambda: OnlineCalibratedClassifier(LogisticRegression(), groups=NAMES).fit(X, three, group_values=frame),
        ),
    ):
        with pytest.raises(ValueError, match=message):
            work()
    assert fitted.calibrator_.outcomes == 90


def test_groups_of_another_kind_are_refused() -> None:
    X, y, frame = segmented(200)
    model = OnlineCalibratedClassifier(LogisticRegression(), groups=GROUPS).fit(X, y, group_values=frame)
    with pytest.raises(TypeError, match="unexpected arguments: groups - values of groups are group_values="):
        model.fit(X, y, groups=frame)
    with pytest.raises(InvalidInput, match="groups must be a data frame or columns by name, got str"):
        model.forecast(X[:2], group_values="ab")
