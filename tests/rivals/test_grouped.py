"""Rivals that look at attributes: the protocol, river's hashed logistic regression, MCGrad."""

from __future__ import annotations

import copy
import pickle
import sys
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import calibeat
from calibeat import AUTO, Calibrator, Forecast, Groups, InvalidInput
from calibeat.backtest.read import rows
from calibeat.rivals import GroupedRival, HashedLogistic, Host, MCGrad, Rival, logit, play

N = 400
RNG = np.random.default_rng(3)
SCORES = RNG.beta(2.0, 3.0, N)
COUNTRY, DEVICE = RNG.choice(["fr", "it", "es"], N).tolist(), RNG.integers(0, 2, N).tolist()
OUTCOMES = (RNG.random(N) < np.clip(SCORES + 0.4 * (np.array(COUNTRY) == "fr"), 0.0, 1.0)).astype(float)
FRAME = {"country": COUNTRY, "device": DEVICE}
NAMES = ["country", "device"]
LATE = np.arange(N) + 1 + np.random.default_rng(0).integers(0, 40, N)


class Share:
    """The share of ones of each combination of values."""

    takes_groups = True

    def __init__(self) -> None:
        self.counts: dict[Any, tuple[float, float]] = {}

    def predict(self, score: float, groups: tuple[int, ...]) -> float:
        ones, events = self.counts.get(groups, (score, 1.0))
        return ones / events

    def update(self, score: float, outcome: float, groups: tuple[int, ...]) -> None:
        ones, events = self.counts.get(groups, (score, 1.0))
        self.counts[groups] = ones + outcome, events + 1.0


class Lazy(Share):
    """The same, as it was at every tenth outcome. It counts how often it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.fitted, self.learnt, self.calls = Share(), 0, 0

    def predict(self, score: float, groups: tuple[int, ...]) -> float:
        self.calls += 1
        return self.fitted.predict(score, groups)

    def update(self, score: float, outcome: float, groups: tuple[int, ...]) -> None:
        super().update(score, outcome, groups)
        self.learnt += 1
        if self.learnt % 10 == 0:
            self.fitted.counts = dict(self.counts)


class LazyBatches(Lazy):
    """And it is asked for many at once."""

    @property
    def changes_next(self) -> bool:
        return (self.learnt + 1) % 10 == 0

    def predict_many(self, scores: list[float], groups: list[tuple[int, ...]]) -> list[float]:
        self.calls += 1
        return [self.fitted.predict(score, own) for score, own in zip(scores, groups, strict=True)]


def by_hand(due: Any = None) -> list[float]:
    """What `Share` forecasts, with the values themselves as keys."""
    rival, said, arrived = Share(), [], 0
    when = np.arange(1, N + 1) if due is None else due
    order = np.lexsort((np.arange(N), when))
    values: list[Any] = list(zip(COUNTRY, DEVICE, strict=True))
    for i in range(N):
        while arrived < N and when[order[arrived]] <= i:
            j = order[arrived]
            rival.update(float(SCORES[j]), OUTCOMES[j], values[j])
            arrived += 1
        said.append(rival.predict(float(SCORES[i]), values[i]))
    return said


@pytest.mark.parametrize("due", [None, LATE], ids=["at once", "late"])
def test_a_rival_gets_the_hash_of_each_value(due: Any) -> None:
    assert isinstance(Share(), GroupedRival) and isinstance(Share(), Rival)
    assert Host(Share, groups=NAMES).run(SCORES, OUTCOMES, due=due, groups=FRAME).tolist() == by_hand(due)


def test_single_events_carry_the_hashes_in_their_receipts() -> None:
    host, said = Host(Share, groups=Groups(NAMES, seed=7)), []
    for score, y, *values in zip(SCORES, OUTCOMES, COUNTRY, DEVICE, strict=True):
        forecast = host.predict(score, groups=dict(zip(NAMES, values, strict=True)))
        said.append(forecast.probability)
        host = pickle.loads(pickle.dumps(host))  # noqa: S301 - our own
        host.update(Forecast.from_json(forecast.to_json()), y)
    assert said == by_hand() and all(0 < word < 2**64 for key in host.rival.counts for word in key)


@pytest.mark.parametrize("due", [None, LATE], ids=["at once", "late"])
def test_a_rival_that_seldom_changes_is_asked_for_many_at_once(due: Any) -> None:
    one, many = Host(Lazy, groups=NAMES), Host(LazyBatches, groups=NAMES)
    expected = one.run(SCORES, OUTCOMES, due=due, groups=FRAME)
    assert many.run(SCORES, OUTCOMES, due=due, groups=FRAME).tolist() == expected.tolist()
    assert one.rival.calls == N and many.rival.calls <= 1 + N // 10


def test_streams_have_rivals_of_their_own() -> None:
    words = np.stack([RNG.integers(1, 4, N), RNG.integers(1, 3, N)], axis=1)
    streams = RNG.integers(0, 3, N).tolist()
    order = list(range(N))
    events = (streams, SCORES, OUTCOMES, [i + 1 for i in order], order)
    said = []
    for kind in (Lazy, LazyBatches):
        rivals = [kind() for _ in range(3)]
        said.append(play(rivals.__getitem__, *events, words=words).tolist())
    assert said[0] == said[1] and len({rival.learnt for rival in rivals}) > 1


@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
@pytest.mark.parametrize("keys", [None, np.arange(N) % 3], ids=["no keys", "keys"])
def test_a_backtest_gives_the_groups_and_no_keys(late: bool, keys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bits of a `Host`, over chunks of the log. Keys are not looked at: they may be an attribute."""
    monkeypatch.setattr(rows, "CHUNK", 128)
    monkeypatch.setattr(rows, "LEAST_EVENTS", 64)
    own: dict[str, Any] = {"delay": 25} if late else {}
    result = calibeat.backtest(
        SCORES, OUTCOMES, keys, groups=FRAME, methods={"auto": AUTO, "mine": LazyBatches}, keep_forecasts=True, **own
    )
    due = np.arange(N) + 1 + 25 if late else None
    expected = Host(LazyBatches, groups=NAMES).run(SCORES, OUTCOMES, due=due, groups=FRAME)
    assert result.forecasts["mine"].tolist() == expected.tolist()


def test_what_is_not_as_it_must_be_is_said() -> None:
    def refused(sentence: str, call: Any) -> None:
        with pytest.raises(InvalidInput, match=sentence):
            call()

    class Plain:
        def predict(self, score: float) -> float:
            return score

        def update(self, score: float, outcome: float) -> None:
            pass

    host = Host(Share, groups=NAMES)
    refused("groups of rival must be named, the rival looks at them", lambda: Host(Share))
    refused("groups of mine must be left out, the rival takes none", lambda: Host(Plain, "mine", groups=NAMES))
    refused("groups must be country, device, got none", lambda: host.predict(0.5))
    refused("groups must be country, device, got none", lambda: host.run([0.5], [1]))
    refused("groups must be left out, the host has none", lambda: Host(Plain).predict(0.5, groups=("fr", 1)))
    refused("got 1.5; cut numbers into bands", lambda: host.predict(0.5, groups=("fr", 1.5)))
    refused(
        "mine looks at groups, got none - name their c",
        lambda: calibeat.backtest(SCORES, OUTCOMES, methods={"mine": Share}),
    )
    assert host.events == 0


# ---- hashed logistic regression -----------------------------------------------------------------------------------


def test_hashed_logistic_regression_is_that_of_river() -> None:
    linear, optim = pytest.importorskip("river.linear_model"), pytest.importorskip("river.optim")
    hasher = pytest.importorskip("river.preprocessing").FeatureHasher(2**18, seed=0)
    model = linear.LogisticRegression(optim.AdaGrad(0.05), intercept_lr=0.05)
    expected = []
    maker = Calibrator(groups=Groups(NAMES, seed=0))._rows.table.maker
    words = maker.of_events(FRAME, N).view(np.uint64).reshape(N, 2).tolist()
    for i, (score, y) in enumerate(zip(SCORES.tolist(), OUTCOMES, strict=True)):
        tokens = [f"{k}={word}" for k, word in enumerate(words[i])]
        tokens += [f"{a} & {b}" for a, b in combinations(tokens, 2)]
        x = hasher.transform_one({"logit": logit(score), **dict.fromkeys(tokens, 1.0)})
        expected.append(model.predict_proba_one(x)[True])
        model.learn_one(x, bool(y))
    found = Host(HashedLogistic, groups=NAMES).run(SCORES, OUTCOMES, groups=FRAME)
    assert found[:50].tolist() == SCORES[:50].tolist() and found[50:].tolist() == expected[50:]


def test_hashed_logistic_regression_learns_what_the_score_does_not_know() -> None:
    pytest.importorskip("river")
    found = Host(HashedLogistic, groups=NAMES).run(SCORES, OUTCOMES, groups=FRAME)
    plain = Calibrator().run(SCORES, OUTCOMES)
    assert np.mean((found[200:] - OUTCOMES[200:]) ** 2) < np.mean((plain[200:] - OUTCOMES[200:]) ** 2)
    kept = pickle.loads(pickle.dumps(HashedLogistic()))  # noqa: S301 - our own
    kept.update(0.5, 1.0, tuple(range(1, 8)))  # seven attributes have no pairs
    assert len(kept._model.weights) <= 8


def test_hashed_logistic_regression_can_be_named() -> None:
    pytest.importorskip("river")
    result = calibeat.backtest(SCORES, OUTCOMES, groups=FRAME, methods="auto,hashed-lr", keep_forecasts=True)
    assert {"auto", "hashed-lr"} < set(result.table["method"].tolist())
    assert result.forecasts["hashed-lr"][:50].tolist() == SCORES[:50].tolist() != result.forecasts["auto"][:50].tolist()
    assert "hashed attributes" in next(m["about"] for m in result.payload["methods"] if m["name"] == "hashed-lr")


# ---- MCGrad -------------------------------------------------------------------------------------------------------


class Stand:
    """Stands in for MCGrad where that is not installed: the share of ones of each combination."""

    fits: list[int] = []  # noqa: RUF012 - the test looks at it

    def fit(self, df: Any, score: str, label: str, *, categorical_feature_column_names: list[str]) -> None:
        Stand.fits.append(len(df))
        assert df[score].between(0, 1).all() and set(df[label]) == {0, 1}
        self.shares = df.groupby(categorical_feature_column_names)[label].mean()

    def predict(self, df: Any, score: str, *, categorical_feature_column_names: list[str]) -> Any:
        keys = list(zip(*(df[name] for name in categorical_feature_column_names), strict=True))
        return np.array([self.shares.get(key, p) for key, p in zip(keys, df[score], strict=True)])


def test_mcgrad_is_fitted_to_the_past_as_its_users_would(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas")
    monkeypatch.setitem(sys.modules, "mcgrad", SimpleNamespace(methods=SimpleNamespace(MCGrad=Stand)))
    monkeypatch.setitem(sys.modules, "mcgrad.methods", SimpleNamespace(MCGrad=Stand))
    monkeypatch.setattr(MCGrad, "_first", 50)
    Stand.fits = []
    host = Host(MCGrad(window=250, every=150), groups=NAMES)
    found = host.run(SCORES, OUTCOMES, groups=FRAME)
    assert Stand.fits == [50, 100, 150, 250]  # after 50, 100, 150 and 300 outcomes
    assert found[:50].tolist() == SCORES[:50].tolist()
    both = list(zip(COUNTRY, DEVICE, strict=True))
    for learnt, upto in ((50, 100), (100, 150), (150, 300), (300, N)):
        for i in range(learnt, upto):
            same = [OUTCOMES[j] for j in range(max(0, learnt - 250), learnt) if both[j] == both[i]]
            assert found[i] == pytest.approx(np.mean(same))
    assert host.predict(0.5, groups=("fr", 1)).probability > host.predict(0.5, groups=("it", 1)).probability
    assert copy.deepcopy(host.rival)._model is host.rival._model  # a fit is replaced, never changed


@pytest.mark.slow  # it is in no environment of ours: pip install 'calibeat[mcgrad]' brings PyTorch, 6 GB
def test_mcgrad_itself() -> None:
    """The real package: what its own fit says, and better than the raw score where attributes matter."""
    methods = pytest.importorskip("mcgrad.methods")
    import pandas as pd

    rng = np.random.default_rng(0)
    scores, country = rng.beta(2.0, 3.0, 2500), rng.choice(["fr", "it"], 2500)
    outcomes = (rng.random(2500) < np.clip(scores + np.where(country == "fr", 0.3, -0.2), 0, 1)).astype(float)
    found = Host(MCGrad, groups=["country"]).run(scores, outcomes, groups={"country": country})
    assert found[:1000].tolist() == scores[:1000].tolist()
    frame = pd.DataFrame({"score": scores, "outcome": outcomes.astype(int), "country": country})
    own = methods.MCGrad()
    own.fit(frame[:1000], "score", "outcome", categorical_feature_column_names=["country"])
    expected = own.predict(frame[1000:2000], "score", categorical_feature_column_names=["country"])
    np.testing.assert_allclose(found[1000:2000], expected, atol=0.05)  # it encodes values by their order
    assert np.mean((found[1000:] - outcomes[1000:]) ** 2) < np.mean((scores[1000:] - outcomes[1000:]) ** 2) - 0.01
