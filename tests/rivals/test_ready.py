"""scikit-learn's and river's methods as rivals: what those libraries say, to the last bit or nearly."""

from __future__ import annotations

import pickle
import sys

import numpy as np
import pytest
from streams import drifting

import calibeat
from calibeat import MissingExtra
from calibeat.rivals import READY, Host, Isotonic, RiverSGD, Sigmoid, logit, takes_groups

N = 700
SCORES, OUTCOMES = drifting(N)


def test_isotonic_is_that_of_scikit_learn() -> None:
    isotonic = pytest.importorskip("sklearn.isotonic")
    found = Host(Isotonic(window=300, every=200)).run(SCORES, OUTCOMES)
    assert found[:50].tolist() == SCORES[:50].tolist()
    for learnt, upto in ((50, 100), (100, 200), (200, 400), (400, 600), (600, N)):
        past = slice(max(0, learnt - 300), learnt)
        fitted = isotonic.IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(SCORES[past], OUTCOMES[past])
        np.testing.assert_allclose(found[learnt:upto], fitted.predict(SCORES[learnt:upto]), atol=1e-12)


def test_sigmoid_is_that_of_scikit_learn() -> None:
    calibration = pytest.importorskip("sklearn.calibration")
    found = Host(Sigmoid(window=300, every=200)).run(SCORES, OUTCOMES)
    logits = np.array([logit(score) for score in SCORES])
    for learnt, upto in ((50, 100), (200, 400), (600, N)):
        past = slice(max(0, learnt - 300), learnt)
        fitted = calibration._SigmoidCalibration().fit(logits[past], OUTCOMES[past])
        np.testing.assert_allclose(found[learnt:upto], fitted.predict(logits[learnt:upto]), atol=1e-9)


def test_river_takes_a_step_for_each_outcome() -> None:
    linear = pytest.importorskip("river.linear_model")
    optim = pytest.importorskip("river.optim")
    model = linear.LogisticRegression(optim.SGD(0.01), intercept_lr=0.01, initializer=optim.initializers.Constant(1.0))
    expected = []
    for score, y in zip(SCORES, OUTCOMES, strict=True):
        expected.append(model.predict_proba_one({"logit": logit(score)})[True])
        model.learn_one({"logit": logit(score)}, bool(y))
    found = Host(RiverSGD).run(SCORES, OUTCOMES)
    assert found[0] == SCORES[0] and found[1:].tolist() == expected[1:]  # it starts from the raw score


@pytest.mark.parametrize("name", [name for name, made in READY.items() if not takes_groups(made)])
def test_ready_rivals_can_be_named(name: str) -> None:
    pytest.importorskip("river" if name == "river-sgd" else "sklearn")
    result = calibeat.backtest(SCORES, OUTCOMES, methods=["ops", name], keep_forecasts=True)
    assert result.table["method"].tolist() == ["raw", "ops", name]
    assert result.forecasts[name].tolist() == Host(READY[name]).run(SCORES, OUTCOMES).tolist()
    assert "outcome" in next(m["about"] for m in result.payload["methods"] if m["name"] == name)
    kept = pickle.loads(pickle.dumps(READY[name]()))  # noqa: S301 - our own
    kept.update(0.5, 1.0)
    assert kept.predict(0.5) == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize(
    ("name", "library", "said"),
    [
        ("isotonic", "sklearn.isotonic", r"the rival isotonic needs sklearn: pip install 'calibeat\[sklearn\]'"),
        ("sigmoid", "sklearn.calibration", r"the rival sigmoid needs sklearn: pip install 'calibeat\[sklearn\]'"),
        ("river-sgd", "river.linear_model", r"the rival river-sgd needs river: pip install 'calibeat\[river\]'"),
        ("hashed-lr", "river.linear_model", r"the rival hashed-lr needs river: pip install 'calibeat\[river\]'"),
        ("mcgrad", "mcgrad.methods", r"the rival mcgrad needs mcgrad: pip install 'calibeat\[mcgrad\]'"),
    ],
)
def test_without_the_library_there_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, name: str, library: str, said: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtra, match=said):
        calibeat.backtest(SCORES, OUTCOMES, methods=name)


def test_a_window_of_one_kind_of_outcome_is_not_fitted() -> None:
    pytest.importorskip("sklearn")
    host = Host(Isotonic(every=50))
    assert host.run(np.full(120, 0.5), np.ones(120)).tolist() == [0.5] * 120
