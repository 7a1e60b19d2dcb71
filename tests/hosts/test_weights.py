"""Weights and counts on the hosts: what a call takes and refuses, what the ledger remembers, and snapshots."""

from __future__ import annotations

import base64
import pickle
import struct
from collections.abc import Callable
from math import inf, nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import weighted
from conformance import same
from scipy.optimize import minimize
from weighted import STREAMS, delays, one_by_one

from calibeat import (
    AUTO,
    FTL,
    OPS,
    Bank,
    Beta,
    Calibrator,
    Fixed,
    Histogram,
    InvalidInput,
    Method,
    Monitor,
    MultiBank,
    MultiCalibrator,
    OutcomeConflict,
    Platt,
    SnapshotMismatch,
    Tracking,
)
from calibeat._compiled import Ledger
from calibeat._util.sealed import seal, unseal
from calibeat.core import layout
from calibeat.core.method import PRESETS
from calibeat.hosts.calibrator import FORMAT
from calibeat.hosts.receipts import Receipts

SCORES = [0.2, 0.7, 0.4, 0.6, 0.9]
REFITS = {
    "fixed": Method(Platt(), Fixed(after=200)),
    "all the past": Method(Platt(), FTL(every=40, after=100)),
    "sliding": Method(Beta(), FTL(every=30, after=90, window=120)),
    "histogram": Method(Histogram(bins=8), Fixed(after=200)),
    "tracked histogram": Method(Histogram(bins=8), FTL(every=50, after=100), Tracking(bins=7)),
}
METHODS: dict[str, Any] = {"ops": OPS, "tops": "tops", "auto": AUTO, "obs": "obs", **REFITS}

# ---- one outcome -----------------------------------------------------------------------------------------------------


def test_nothing_settles_the_event_and_changes_no_number() -> None:
    for how, outcome in (({"weight": 0.0}, 1), ({"of": 0}, 0), ({"weight": 3.0, "of": 0}, 0)):
        cal = Calibrator()
        cal.run(SCORES, [0, 1, 1, 0, 1])
        forecast, before = cal.predict(0.3), cal.row
        assert cal.update(forecast, outcome, **how) == "learnt"
        same(np.asarray(cal.row), np.asarray(before))
        assert cal.update(forecast, outcome, **how) == "repeated"
        with pytest.raises(OutcomeConflict):
            cal.update(forecast, 1)
        assert (cal.events, cal.outcomes) == (6, 5)


CONFLICTS = [
    ({}, 1, {"weight": 2.0}, 1, "must be the one already learnt, 1, got 1 with weight 2.0"),
    ({"weight": 20.0}, 0, {}, 0, "must be the one already learnt, 0 with weight 20.0, got 0 - at event 0"),
    ({"weight": 20.0}, 0, {"weight": 20.5}, 0, "0 with weight 20.0, got 0 with weight 20.5"),
    ({"weight": 20.0}, 0, {"weight": 20.0}, 1, "0 with weight 20.0, got 1 with weight 20.0"),
    ({"weight": 1.0000001}, 0, {}, 0, "0 with weight 1.0000001, got 0 - at"),
    ({"of": 50}, 3, {"of": 51}, 3, "must be the one already learnt, 3 of 50, got 3 of 51"),
    ({"of": 50}, 3, {"of": 50}, 4, "3 of 50, got 4 of 50"),
    ({"of": 50}, 3, {}, 1, "3 of 50, got 1 - at event 0"),
    ({"of": 50, "weight": 2.5}, 3, {"of": 50}, 3, "3 of 50 with weight 2.5, got 3 of 50"),
    ({"of": 0}, 0, {}, 0, "0 of 0, got 0 - at event 0"),
    ({}, 0, {"of": 2}, 0, "already learnt, 0, got 0 of 2"),
    ({"weight": 0.0}, 1, {}, 1, "1 with weight 0.0, got 1 - at"),
]


@pytest.mark.parametrize(("how", "y", "other", "z", "message"), CONFLICTS)
def test_a_repeat_with_another_weight_or_count_is_a_conflict(
    how: dict[str, Any], y: int, other: dict[str, Any], z: int, message: str
) -> None:
    cal = Calibrator("ops")
    forecast = cal.predict(0.3)
    assert cal.update(forecast, y, **how) == "learnt"
    row = cal.row
    for host in (cal, Calibrator.from_json(cal.to_json())):
        with pytest.raises(OutcomeConflict) as caught:
            host.update(forecast, z, **other)
        assert message in str(caught.value)
        assert host.update(forecast, y, **how) == "repeated"
        same(np.asarray(host.row), np.asarray(row))
    batch = cal.issue([0.4])
    columns, others = as_columns(how), as_columns(other)
    assert cal.learn(batch, [y], **columns).tolist() == ["learnt"]
    assert cal.learn(batch, [z], **others).tolist() == ["conflict"]
    assert cal.learn(batch, [y], **columns).tolist() == ["repeated"]


def as_columns(how: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `update` as those of `learn`."""
    return {{"weight": "weights", "of": "of"}[name]: [value] for name, value in how.items()}


def test_one_trial_is_the_plain_outcome() -> None:
    plain, counted = Calibrator(), Calibrator()
    for i, score in enumerate(SCORES):
        first, second = plain.predict(score), counted.predict(score)
        plain.update(first, i % 2)
        counted.update(second, i % 2, of=1)
        assert counted.update(second, i % 2) == "repeated"
    same(np.asarray(plain.row), np.asarray(counted.row))


# ---- every way into a host gives the same bits -----------------------------------------------------------------------


def restart(cal: Any) -> Any:
    return type(cal).from_json(cal.to_json())


def pickled(cal: Any) -> Any:
    return pickle.loads(pickle.dumps(cal))  # noqa: S301 - our own bytes


@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("method", METHODS)
def test_run_is_predict_and_update(method: str, stream: str, late: bool) -> None:
    """Also after a restart in the middle, in pieces, and where a part of the stream has no weights."""
    n, given = 700, STREAMS[stream](700, 11).weightless()
    due = delays(n) if late else None
    whole, alone = Calibrator(METHODS[method]), Calibrator(METHODS[method])
    forecasts = whole.run(given.scores, given.ones, due=due, **given.how())
    same(forecasts, one_by_one(alone, given, due))
    same(np.asarray(whole.row), np.asarray(alone.row))
    if late:
        return
    half = n // 2
    first = given.part(slice(half))
    for copied in (restart, pickled):
        cal = Calibrator(METHODS[method])
        begun = cal.run(first.scores, first.ones, **first.how())
        cal = copied(cal)
        rest = one_by_one(cal, given, None, half)
        same(np.concatenate([begun, rest]), forecasts)
        same(np.asarray(cal.row), np.asarray(whole.row))


@pytest.mark.parametrize("method", METHODS)
def test_a_batch_without_weights_after_one_with_small_ones(method: str) -> None:
    """There a weight of 1 is clipped."""
    given = weighted.heavy(600, 2)
    assert given.weights is not None
    weights = np.where(np.arange(600) < 300, 1e-6 * given.weights, 1.0)
    cal, alone = Calibrator(METHODS[method]), Calibrator(METHODS[method])
    first = cal.run(given.scores[:300], given.ones[:300], weights=weights[:300])
    rest = cal.run(given.scores[300:], given.ones[300:])
    assert cal.row[layout.CLIPPED] > 0.0
    same(np.concatenate([first, rest]), one_by_one(alone, given._replace(weights=weights)))
    same(np.asarray(cal.row), np.asarray(alone.row))


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("method", METHODS)
def test_issue_and_learn_is_predict_and_update(method: str, stream: str) -> None:
    given, alone, cal = STREAMS[stream](400, 12), Calibrator(METHODS[method]), Calibrator(METHODS[method])
    for begin in range(0, 400, 50):
        span = slice(begin, begin + 50)
        batch = cal.issue(given.scores[span])
        known = np.flatnonzero(~np.isnan(given.ones[span]))
        order = np.random.default_rng(begin).permutation(known)
        one_at_a_time = [alone.predict(score) for score in given.scores[span].tolist()]
        same(batch.probabilities, np.array([forecast.probability for forecast in one_at_a_time]))
        if len(order):
            how = {name: column[span][order] for name, column in given.how().items()}
            come = Receipts.from_bytes(b"".join([batch[i].to_bytes() for i in order.tolist()]))
            assert (cal.learn(come, given.ones[span][order], **how) == "learnt").all()
            assert (cal.learn(come, given.ones[span][order], **how) == "repeated").all()
        for i in order.tolist():
            weighted.settle(alone, given, begin + i, one_at_a_time[i])
    same(np.asarray(cal.row), np.asarray(alone.row))


@pytest.mark.parametrize("prior", [None, "pooled"])
@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("method", ["ops", "tops", "auto", "obs"])
def test_a_bank_has_the_bits_of_its_keys(method: str, stream: str, prior: str | None, tmp_path: Path) -> None:
    n, given = 900, STREAMS[stream](900, 13)
    keys = np.random.default_rng(1).choice(["a", "b", "c"], n)
    bank = Bank(method, prior=prior)
    forecasts = bank.run(keys, given.scores, given.ones, threads=2, **given.how())
    single = Bank(method, prior=prior)
    singly = np.empty(n)
    for i, key in enumerate(keys.tolist()):
        forecast = single.predict(key, float(given.scores[i]))
        singly[i] = forecast.probability
        if not np.isnan(given.ones[i]):
            assert single.update(key, forecast, int(given.ones[i]), **given.one(i)) == "learnt"
        if i == n // 2:
            single.save(tmp_path / "bank")
            single = Bank.load(tmp_path / "bank")
    same(forecasts, singly)
    same(bank.rows(["a", "b", "c"])[:, : bank._rows.width], single.rows(["a", "b", "c"])[:, : bank._rows.width])
    if prior is None:
        for key in "abc":
            mine = np.flatnonzero(keys == key)
            alone = Calibrator(method)
            same(one_by_one(alone, given.part(mine)), forecasts[mine])
            same(np.asarray(alone.row), np.asarray(bank[key].row))


@pytest.mark.parametrize("stream", ["thinned", "heavy", "first later"])
@pytest.mark.parametrize("method", ["tops", "auto"])
def test_fold_has_the_bits_of_run(method: str, stream: str) -> None:
    n, given = 300, STREAMS[stream](300, 14)
    assert given.weights is not None
    keys = np.random.default_rng(1).choice([5, 6, 7], n)
    bank = Bank(method)
    expected = bank.run(keys, given.scores, given.ones, weights=given.weights)
    operations = [
        operation
        for i in range(n)
        for operation in [(i, "forecast"), *([] if np.isnan(given.ones[i]) else [(i, "outcome")])]
    ]
    of, at, own = [], {}, 0
    for place, (i, what) in enumerate(operations):
        at[i] = at.get(i, place)
        of.append(-1 if what == "forecast" else at[i])
    own = np.array([i for i, _ in operations])
    is_asked = np.array([what == "forecast" for _, what in operations])
    folded, other = Bank(method), Bank(method)
    made = folded.fold(
        keys[own],
        np.where(is_asked, given.scores[own], nan),
        np.where(is_asked, nan, given.ones[own]),
        [],
        of=of,
        weights=np.where(is_asked, nan, given.weights[own]),
    )
    same(made.forecasts[is_asked], expected)
    same(folded.rows([5, 6, 7])[:, : bank._rows.width], bank.rows([5, 6, 7])[:, : bank._rows.width])
    other.run(keys, given.scores, given.ones)
    assert (other.rows([5, 6, 7]) != folded.rows([5, 6, 7])).any()


@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
@pytest.mark.parametrize("method", ["multi", "ots", "raw"])
def test_many_classes_with_weights(method: str, late: bool, tmp_path: Path) -> None:
    n, rng = 500, np.random.default_rng(4)
    scores, labels = rng.dirichlet([1.0, 2.0, 1.0], n), rng.integers(0, 3, n)
    weights = np.exp(rng.normal(0.0, 1.5, n))
    weights[rng.random(n) < 0.05] = 0.0
    due = delays(n, 10.0) if late else np.arange(1, n + 1)
    cal, alone = MultiCalibrator(3, method), MultiCalibrator(3, method)
    forecasts = cal.run(scores, labels, weights=weights, due=due if late else None)
    waiting: dict[int, Any] = {}
    order, made = sorted(range(n), key=lambda i: (due[i], i)), []
    for i in range(n + 1):
        for j in [j for j in order if j in waiting and due[j] <= i and (i < n or not late)]:
            alone.update(waiting.pop(j), int(labels[j]), weight=float(weights[j]))
        if i < n:
            waiting[i] = alone.predict(scores[i])
            made.append(waiting[i].probabilities)
    same(forecasts, np.array(made))
    same(np.asarray(cal.row), np.asarray(alone.row))
    if late:
        return
    bank = MultiBank(3, method)
    same(bank.run(["k"] * n, scores, labels, weights=weights), forecasts)
    bank.save(tmp_path / "bank")
    for equal in (np.full(n, 3.0), np.ones(n)):
        once = MultiCalibrator(3, method).run(scores, labels, weights=equal)
        np.testing.assert_allclose(once, MultiCalibrator(3, method).run(scores, labels), rtol=0, atol=1e-14)
    same(MultiCalibrator(3, method).run(scores, labels, weights=8.0 * weights), forecasts)
    unweighted = MultiCalibrator(3, method).run(scores, labels)
    assert method == "raw" or (unweighted != forecasts).any()


# ---- maximum likelihood with weights ---------------------------------------------------------------------------------


def test_a_fit_has_weights() -> None:
    """Against a fit by another way. No weight is clipped."""
    n, rng = 1200, np.random.default_rng(8)
    x = rng.normal(0.0, 1.0, n)
    scores, weights = 1.0 / (1.0 + np.exp(-x)), rng.uniform(0.5, 3.0, n)
    y = (rng.random(n) < 1.0 / (1.0 + np.exp(0.5 - 0.6 * x))).astype(float)
    cal = Calibrator("wps")
    cal.run(scores, y, weights=weights)
    assert cal.row[layout.CLIPPED] == 0.0
    x = np.log(scores / (1.0 - scores))[:1000]

    def loss(theta: Any) -> float:
        z = theta[0] * x + theta[1]
        return float((weights[:1000] * (np.logaddexp(0.0, z) - y[:1000] * z)).sum())

    best = minimize(loss, [1.0, 0.0], method="BFGS", options={"gtol": 1e-9}).x
    np.testing.assert_allclose([cal.params["a"], cal.params["b"]], best, rtol=1e-5)
    plain = Calibrator("wps")
    plain.run(scores, y)
    assert abs(plain.params["b"] - best[1]) > 1e-3


def test_a_fit_of_counts_is_a_fit_of_their_events() -> None:
    """Of counts that come before the fit, and of the same events one by one: the same optimum."""
    n, rng = 300, np.random.default_rng(9)
    scores, trials = np.round(rng.uniform(0.05, 0.95, n), 2), rng.integers(1, 9, n)
    ones = rng.binomial(trials, 0.7 * scores)
    counted = Calibrator(Method(Platt(), Fixed(after=n)))
    counted.run(scores, ones, of=trials)
    events = Calibrator(Method(Platt(), Fixed(after=int(trials.sum()))))
    each = np.concatenate([np.arange(size) < k for k, size in zip(ones, trials, strict=True)])
    events.run(np.repeat(scores, trials), each)
    assert counted.params["a"] == pytest.approx(events.params["a"], rel=1e-7)
    assert counted.params["b"] == pytest.approx(events.params["b"], rel=1e-7)


def test_bins_of_equal_weight() -> None:
    scores = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    cal = Calibrator(Method(Histogram(bins=2), Fixed(after=6)))
    cal.run(scores, [1, 0, 0, 1, 0, 1], weights=[1.0, 1.0, 1.0, 1.0, 2.0, 2.0])
    assert cal.params["edges"] == [0.5]
    np.testing.assert_allclose(cal.params["means"], [0.5, 0.5])


# ---- what is refused -------------------------------------------------------------------------------------------------

BAD_WEIGHTS: list[tuple[Any, str]] = [
    (-1.0, "weight must be a finite number >= 0, got -1.0"),
    (nan, "weight must be a finite number >= 0, got nan"),
    (inf, "weight must be a finite number >= 0, got inf"),
    (-inf, "weight must be a finite number >= 0, got -inf"),
    (1.1e12, "weight must be a finite number in [0, 1e+12], got 1100000000000.0"),
    (True, "weight must be a finite number >= 0, got bool True"),
    ("2", "weight must be a finite number >= 0, got str '2'"),
    ([2.0], "weight must be a finite number >= 0, got list [2.0]"),
]
BAD_COUNTS: list[tuple[Any, Any, str]] = [
    (3, 2, "outcome, the number of ones of 2, must be a whole number in [0, 2], got 3"),
    (-1, 2, "outcome, the number of ones of 2, must be a whole number in [0, 2], got -1"),
    (1.5, 2, "outcome, the number of ones of 2, must be a whole number"),
    (1, 2.5, "of must be a whole number in [0, 1000000000], got 2.5"),
    (1, 10**9 + 1, "of must be a whole number in [0, 1000000000], got 1000000001"),
    (1, -1, "of must be a whole number in [0, 1000000000], got -1"),
    (1, True, "of must be a whole number"),
    (1, "2", "of must be a whole number"),
]


@pytest.mark.parametrize(("weight", "message"), BAD_WEIGHTS)
def test_a_bad_weight(weight: Any, message: str) -> None:
    cal, bank = Calibrator(), Bank("ops")
    forecast, of_bank = cal.predict(0.3), bank.predict("a", 0.3)
    before = cal.to_json()
    for call in (
        lambda: cal.update(forecast, 1, weight=weight),
        lambda: bank.update("a", of_bank, 1, weight=weight),
        lambda: bank["a"].update(of_bank, 1, weight=weight),
    ):
        with pytest.raises(InvalidInput) as caught:
            call()
        assert message in str(caught.value)
    assert cal.to_json() == before and cal.update(forecast, 1) == "learnt"
    assert bank.update("a", of_bank, 1) == "learnt"


@pytest.mark.parametrize("weight", [-1.0, nan, inf, 2e12, "x", True, None])
@pytest.mark.parametrize("verb", ["run", "learn", "bank.run", "bank.learn", "fold", "classes", "late"])
def test_a_bad_weight_of_a_batch(verb: str, weight: Any) -> None:
    """The row is named, and nothing has happened."""
    cal, bank, multi = Calibrator(), Bank("ops"), MultiCalibrator(3)
    batch, receipts = cal.issue([0.3, 0.4]), bank.issue(["a", "b"], [0.3, 0.4])
    before, rows = cal.to_json(), bank.rows(["a", "b"])
    weights = [1.0, weight] if weight is not True else [True, True]
    calls: dict[str, Callable[[], Any]] = {
        "run": lambda: cal.run([0.3, 0.4], [0, 1], weights=weights),
        "learn": lambda: cal.learn(batch, [0, 1], weights=weights),
        "bank.run": lambda: bank.run(["a", "b"], [0.3, 0.4], [0, 1], weights=weights),
        "bank.learn": lambda: bank.learn(receipts, [0, 1], weights=weights),
        "fold": lambda: bank.fold(
            ["a", "b"], [nan, nan], [0, 1], [receipts[i].to_bytes() for i in range(2)], weights=weights
        ),
        "classes": lambda: multi.run([[0.2, 0.3, 0.5]] * 2, [0, 1], weights=weights),
        "late": lambda: cal.run([0.3, 0.4, 0.5], [0, 1, 1], due=[1, 2, 3], weights=[*weights, weights[0]]),
    }
    with pytest.raises(InvalidInput, match="weight") as caught:
        calls[verb]()
    if weight not in ("x", True):
        assert str(caught.value).endswith("- at row 1")
    assert cal.to_json() == before and (bank.rows(["a", "b"]) == rows).all() and multi.events == 0
    assert (cal.learn(batch, [0, 1]) == "learnt").all() and (bank.learn(receipts, [0, 1]) == "learnt").all()


def test_weights_that_nobody_needs_are_not_read() -> None:
    cal = Calibrator("ops")
    cal.run([0.3, 0.4], [1, 0], due=[1, 3], weights=[2.0, nan])
    assert cal.outcomes == 1
    bank = Bank("ops")
    bank.run(["a", "a"], [0.3, 0.4], [1, nan], weights=[2.0, -5.0])
    assert bank["a"].outcomes == 1


@pytest.mark.parametrize(("ones", "of", "message"), BAD_COUNTS)
def test_a_bad_count(ones: Any, of: Any, message: str) -> None:
    cal = Calibrator()
    forecast, before = cal.predict(0.3), cal.to_json()
    with pytest.raises(InvalidInput) as caught:
        cal.update(forecast, ones, of=of)
    assert message in str(caught.value)
    assert cal.to_json() == cal.to_json()
    batch = cal.issue([0.1, 0.2])
    before = cal.to_json()
    for call in (lambda: cal.run([0.3, 0.4], [0, ones], of=[1, of]), lambda: cal.learn(batch, [0, ones], of=[1, of])):
        if of is True:  # in a column of numbers it is a 1
            continue
        with pytest.raises(InvalidInput) as caught:
            call()
        assert "outcome" in str(caught.value) or "of" in str(caught.value)
        assert of == "2" or str(caught.value).endswith("- at row 1")
    assert cal.to_json() == before and cal.update(forecast, 1) == "learnt"


def test_columns_of_another_length() -> None:
    cal, bank = Calibrator(), Bank("ops")
    for call in (
        lambda: cal.run([0.3, 0.4], [0, 1], weights=[1.0]),
        lambda: cal.run([0.3, 0.4], [0, 1], of=[1]),
        lambda: cal.run([0.3, 0.4], [0, 1], of=[1, 1, 1]),
        lambda: bank.run(["a", "a"], [0.3, 0.4], [0, 1], weights=[1.0, 2.0, 3.0]),
        lambda: bank.run(["a", "a"], [0.3, 0.4], [0, 1], of=[2]),
        lambda: bank.fold(["a"], [0.3], [nan], weights=[1.0, 2.0]),
    ):
        with pytest.raises(InvalidInput, match="arrays must have the same length"):
            call()
    assert cal.events == 0 and len(bank) == 0


@pytest.mark.parametrize("method", [name for name, method in PRESETS.items() if method.draws])
def test_methods_that_draw_take_no_weights(method: str) -> None:
    cal, bank = Calibrator(method), Bank(method)
    forecast, of_bank, batch = cal.predict(0.3), bank.predict("a", 0.3), cal.issue([0.4])
    before = cal.to_json()
    calls: list[tuple[str, Callable[[], Any]]] = [
        ("weight", lambda: cal.update(forecast, 1, weight=2.0)),
        ("of", lambda: cal.update(forecast, 1, of=2)),
        ("weight", lambda: cal.run([0.3], [1], weights=[2.0])),
        ("of", lambda: cal.run([0.3], [1], of=[2])),
        ("weight", lambda: cal.learn(batch, [1], weights=[2.0])),
        ("of", lambda: cal.learn(batch, [1], of=[2])),
        ("weight", lambda: bank.update("a", of_bank, 1, weight=2.0)),
        ("of", lambda: bank["a"].update(of_bank, 1, of=2)),
        ("weight", lambda: bank.run(["a"], [0.3], [1], weights=[2.0])),
        ("of", lambda: bank.run(["a"], [0.3], [1], of=[2])),
        ("weight", lambda: bank.fold(["a"], [nan], [1], [of_bank.to_bytes()], weights=[2.0])),
    ]
    for what, call in calls:
        with pytest.raises(InvalidInput, match=f"{what} must be left out with {method}"):
            call()
    assert cal.to_json() == before
    assert cal.update(forecast, 1) == "learnt" and bank.update("a", of_bank, 1) == "learnt"


@pytest.mark.parametrize("outcome", [1, 2])
def test_many_classes_take_no_counts(outcome: int) -> None:
    cal, bank = MultiCalibrator(3), MultiBank(3)
    forecast, of_bank, batch = (
        cal.predict([0.2, 0.3, 0.5]),
        bank.predict("a", [0.2, 0.3, 0.5]),
        cal.issue([[0.2, 0.3, 0.5]]),
    )
    before = cal.to_json()
    for call in (
        lambda: cal.update(forecast, outcome, of=5),
        lambda: cal.run([[0.2, 0.3, 0.5]], [outcome], of=[5]),
        lambda: cal.learn(batch, [outcome], of=[5]),
        lambda: bank.update("a", of_bank, outcome, of=5),
        lambda: bank.run(["a"], [[0.2, 0.3, 0.5]], [outcome], of=[5]),
    ):
        with pytest.raises(InvalidInput, match="of must be left out with many classes"):
            call()
    assert cal.to_json() == before
    assert cal.update(forecast, outcome) == "learnt"


def test_labels_that_are_words_take_no_counts() -> None:
    cal = MultiCalibrator(["cat", "dog", "owl"])
    with pytest.raises(InvalidInput, match="of must be left out with many classes"):
        cal.update(cal.predict([0.2, 0.3, 0.5]), "dog", of=5)
    with pytest.raises(InvalidInput, match="of must be left out with many classes"):
        cal.run([[0.2, 0.3, 0.5]], ["dog"], of=[5])


@pytest.mark.parametrize("sampled", [None, (1.0, 0.05)])
@pytest.mark.parametrize("host", ["calibrator", "bank"])
def test_monitors(host: str, sampled: Any) -> None:
    """A monitor reads weights only where it knows what the log kept, and counts never."""
    monitor, of_bank = Monitor(sampled=sampled), host == "bank"
    cal: Any = Bank("ops", monitor=monitor) if of_bank else Calibrator("ops", monitor=monitor)
    named, columns = (["a"], [["a"]]) if of_bank else ([], [])
    forecast, batch = cal.predict(*named, 0.3), cal.issue(*columns, [0.3])
    weights: list[Callable[[], Any]] = [
        lambda: cal.update(*named, forecast, 1, weight=2.0),
        lambda: cal.learn(batch, [1], weights=[3.0]),
        lambda: cal.run(*columns, [0.3], [1], weights=[2.0]),
    ]
    counts: list[Callable[[], Any]] = [
        lambda: cal.update(*named, forecast, 1, of=2),
        lambda: cal.learn(batch, [1], of=[2]),
        lambda: cal.run(*columns, [0.3], [1], of=[2]),
    ]
    for call in counts:
        with pytest.raises(InvalidInput, match="a monitor cannot judge counts"):
            call()
    for call in weights if sampled is None else []:
        with pytest.raises(InvalidInput, match="a monitor cannot judge weighted outcomes"):
            call()
    stream = cal["a"] if of_bank else cal
    assert (stream.events, stream.outcomes) == (2, 0)
    if sampled is not None:
        assert weights[0]() == "learnt" and (weights[1]() == "learnt").all()
        weights[2]()
        assert stream.outcomes == 3


# ---- what the ledger writes ------------------------------------------------------------------------------------------


def ledger(seed: int = 0) -> tuple[Ledger, dict[int, tuple[float, float, float]]]:
    """A ledger with weights and counts, some events open, and what it was told."""
    rng, made, told = np.random.default_rng(seed), Ledger(keep=30), {}
    for event in range(80):
        if rng.random() < 0.7:
            trials = 1.0 if rng.random() < 0.5 else float(rng.integers(0, 40))
            ones = float(rng.integers(0, trials + 1))
            weight = 1.0 if rng.random() < 0.4 else float(rng.lognormal())
            told[event] = (ones / max(trials, 1.0), weight, trials)
            made.settle(event, *told[event])
    made.known = 80
    return made, told


def test_a_ledger_comes_back() -> None:
    made, told = ledger()
    for copied in (made, made.copy(), Ledger.load(made.dump(), 80, 80, keep=30)):
        for event, (y, weight, trials) in told.items():
            if event >= copied.first:
                assert copied.is_same(event, y, weight, trials)
                assert not copied.is_same(event, y, weight + 1.0, trials)
                assert not copied.is_same(event, y, weight, trials + 1.0)
        assert [copied.mark(event) for event in range(made.first, 80)] == [made.mark(i) for i in range(made.first, 80)]
        assert copied.packed()[2] == made.packed()[2] or copied is made


def test_a_damaged_ledger_is_refused() -> None:
    made, told = ledger(1)
    first, given_up, packed = made.packed()
    count = struct.unpack_from("<q", packed)[0]
    at = 9 + count  # of the first weight
    outcomes = len(told)
    assert Ledger.unpacked(first, given_up, packed, 80, outcomes, keep=30).packed()[2] == packed

    def with_told(weight: float, trials: int, ones: int) -> bytes:
        return packed[:at] + struct.pack("<dQ", weight, ((trials + 1) << 32) | ones) + packed[at + 16 :]

    damaged = {
        "as many as they say": [
            packed[:5],
            packed[:8] + b"\2" + packed[9:],
            struct.pack("<q", count + 10**6) + packed[8:],
        ],
        "as long as they say": [packed[:-1], packed + b"\0", packed[:8] + b"\0" + packed[9:]],
        "weights must be in": [
            with_told(-1.0, 3, 1),
            with_told(nan, 3, 1),
            with_told(2e12, 3, 1),
            with_told(inf, 3, 1),
            with_told(1.0, 3, 4),
            with_told(1.0, 10**9 + 1, 4),
        ],
    }
    for message, cases in damaged.items():
        for case in cases:
            with pytest.raises(InvalidInput, match=message):
                Ledger.unpacked(first, given_up, case, 80, outcomes, keep=30)
    Ledger.unpacked(first, given_up, with_told(2.0, 3, 1), 80, outcomes, keep=30)
    with pytest.raises(InvalidInput, match="must be in"):
        Ledger.unpacked(first, given_up, packed, 80, outcomes, keep=30, classes=3)
    learnt = sum(event >= first and weight * trials > 0.0 for event, (_, weight, trials) in told.items())
    Ledger.unpacked(first, given_up, packed, 80, learnt, keep=30)  # what has no weight is no outcome
    with pytest.raises(InvalidInput, match="must fit"):
        Ledger.unpacked(first, given_up, packed, 80, learnt - 1, keep=30)


def test_a_snapshot_with_a_damaged_weight_is_refused() -> None:
    cal = Calibrator("ops")
    for weight in (2.0, 1.0, 0.0):
        cal.update(cal.predict(0.3), 1, weight=weight)
    state = unseal(Calibrator._KIND, FORMAT, Calibrator._STATE, cal.to_json())
    marks = base64.b64decode(state["settled"]["marks"])
    state["settled"]["marks"] = base64.b64encode(marks[:-16] + struct.pack("<dQ", -2.0, 0)).decode()
    with pytest.raises(SnapshotMismatch, match="settled weights must be in"):
        Calibrator.from_json(seal(Calibrator._KIND, FORMAT, state))


def test_a_bank_file_remembers_weights_and_counts(tmp_path: Path) -> None:
    bank = Bank("ops")
    receipts = [bank.predict(key, 0.3) for key in ("a", "a", "b", "a")]
    bank.update("a", receipts[0], 3, 2.5, 50)
    bank.update("b", receipts[2], 1, weight=20.0)
    bank.update("a", receipts[3], 1, weight=0.0)
    bank.save(tmp_path / "bank")
    loaded = Bank.load(tmp_path / "bank")
    for host in (bank, loaded, pickle.loads(pickle.dumps(loaded))):  # noqa: S301 - our own bytes
        assert host.update("a", receipts[0], 3, weight=2.5, of=50) == "repeated"
        assert host.update("a", receipts[3], 1, weight=0.0) == "repeated"
        for how in ({}, {"weight": 2.5}, {"of": 50}, {"weight": 2.5, "of": 51}):
            with pytest.raises(OutcomeConflict):
                host.update("a", receipts[0], 1, **how)
        with pytest.raises(OutcomeConflict, match=r"1 with weight 0.0, got 1 - at"):
            host.update("a", receipts[3], 1)
    bank["a"].update(receipts[1], 1)
    loaded.update("a", receipts[1], 1)
    same(bank.rows(["a", "b"])[:, : bank._rows.width], loaded.rows(["a", "b"])[:, : bank._rows.width])
