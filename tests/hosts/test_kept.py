"""Known thinning: a log that kept known shares of ones and zeros, behind forecasts in true odds."""

from __future__ import annotations

import dataclasses
from math import inf, nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibeat import AUTO, OPS, Bank, Calibrator, Forecast, InvalidInput, Method, Monitor, UnknownForecast
from calibeat._util.types import Vector
from calibeat.core.method import PRESETS

KEPT = (1.0, 0.05)
ODDS = 20.0
METHODS = [name for name in PRESETS if name not in ("wps", "wbs", "swbs", "fbs")]  # one of each kind of fit


def in_log(p: Vector) -> Vector:
    """The odds of the log, written out."""
    return p * ODDS / (p * ODDS + (1.0 - p))


def in_truth(p: Vector) -> Vector:
    return p / (p + (1.0 - p) * ODDS)


def thinned(events: int = 4000, seed: int = 5) -> tuple[Vector, Vector]:
    """Scores and outcomes that a log kept: all ones, a twentieth of the zeros. The score is too high."""
    rng = np.random.default_rng(seed)
    truth = rng.beta(0.6, 12.0, events)
    outcomes = rng.random(events) < truth
    seen = outcomes | (rng.random(events) < KEPT[1])
    return np.minimum(1.6 * truth[seen] + 0.01, 0.999), outcomes[seen].astype(float)


@pytest.mark.parametrize("name", METHODS)
def test_it_is_the_plain_method_in_the_odds_of_the_log(name: str) -> None:
    scores, outcomes = thinned(20_000)
    mine, plain = Calibrator(name, kept=KEPT, seed=2), Calibrator(name, seed=2)
    forecasts = mine.run(scores, outcomes)
    expected = in_truth(plain.run(in_log(scores), outcomes))
    np.testing.assert_allclose(forecasts, expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(mine.row, plain.row, rtol=1e-9, atol=1e-9)  # rows live in the odds of the log


def test_forecasts_are_true_probabilities() -> None:
    scores, outcomes = thinned(200_000)
    rng = np.random.default_rng(1)
    truth = rng.beta(0.6, 12.0, 50_000)
    asked = np.minimum(1.6 * truth + 0.01, 0.999)
    cal, ignored = Calibrator(kept=KEPT), Calibrator()
    for each in (cal, ignored):
        each.run(scores, outcomes)
    assert cal.predict_many(asked).mean() == pytest.approx(truth.mean(), rel=0.08)
    assert ignored.predict_many(asked).mean() > 5.0 * truth.mean()


@pytest.mark.parametrize("name", ["auto", "ops", "tops", "hops", "gops"])
def test_all_verbs_have_the_same_bits(name: str, tmp_path: Path) -> None:
    scores, outcomes = thinned()
    n = len(scores)
    whole = Calibrator(name, kept=KEPT, seed=4, stream="s")
    expected = whole.run(scores, outcomes)
    single = Calibrator(name, kept=KEPT, seed=4, stream="s")
    for i in range(n):
        forecast = single.predict(scores[i])
        assert forecast.probability == expected[i]
        sent = (forecast, Forecast.from_json(forecast.to_json()), Forecast.from_bytes(forecast.to_bytes()))[i % 3]
        assert sent.probability == expected[i]
        assert single.update(sent, int(outcomes[i])) == "learnt"
        if i == n // 2:
            text = single.to_json()
            single = Calibrator.from_json(text)
    assert (single.row == whole.row).all()
    columns = Calibrator(name, kept=KEPT, seed=4, stream="s")
    for i in range(n):
        batch = columns.issue(scores[i : i + 1])
        assert batch.probabilities[0] == expected[i]
        columns.learn(batch, outcomes[i : i + 1])
    assert (columns.row == whole.row).all()
    bank = Bank(name, kept=KEPT, seed=4)
    keys = ["a", "b", "c"] * (n // 3)
    m = len(keys)
    forecasts = bank.run(keys, scores[:m], outcomes[:m])
    bank.save(tmp_path / "thinned.bank")
    loaded = Bank.load(tmp_path / "thinned.bank")
    for place, key in enumerate("abc"):
        alone = Calibrator(name, kept=KEPT, seed=4, stream=key)
        assert (alone.run(scores[place:m:3], outcomes[place:m:3]) == forecasts[place:m:3]).all()
        assert (loaded[key].row == alone.row).all()
    folded = Bank(name, kept=KEPT, seed=4)
    at_once = folded.fold(keys, scores[:m], np.full(m, nan))
    learnt = folded.fold(keys, np.full(m, nan), outcomes[:m], at_once.receipts.tolist())
    assert len(learnt.receipts) == 0
    one = Calibrator(name, kept=KEPT, seed=4, stream="a")
    made = one.issue(scores[:m:3])
    assert (made.probabilities == at_once.forecasts[::3]).all()
    one.learn(made, outcomes[:m:3])
    assert (folded["a"].row == one.row).all()


def test_receipts_are_of_the_thinned_stream_alone() -> None:
    thin, plain = Calibrator("ops", kept=KEPT, stream="s"), Calibrator("ops", stream="s")
    with pytest.raises(UnknownForecast):
        plain.update(thin.predict(0.2), 1)


def test_certain_scores_and_equal_shares_change_nothing() -> None:
    thin = Calibrator("ops", kept=KEPT)
    assert (float(thin.predict(0.0)), float(thin.predict(1.0))) == (
        pytest.approx(0.0, abs=1e-5),
        pytest.approx(1.0, abs=1e-3),
    )
    assert (float(Calibrator("bm", kept=KEPT).predict(0.0)), float(Calibrator("bm", kept=KEPT).predict(1.0))) == (
        0.0,
        1.0,
    )
    scores, outcomes = thinned()
    assert (Calibrator(kept=(0.3, 0.3)).run(scores, outcomes) == Calibrator().run(scores, outcomes)).all()


def test_parameters_speak_of_true_odds() -> None:
    scores, outcomes = thinned(20_000)
    cal = Calibrator("ops", kept=KEPT)
    cal.run(scores, outcomes)
    a, b = cal.params["a"], cal.params["b"]
    x = np.log(scores) - np.log1p(-scores)
    np.testing.assert_allclose(cal.predict_many(scores), 1.0 / (1.0 + np.exp(-(a * x + b))), rtol=1e-6)
    bank = Bank("ops", kept=KEPT)
    bank.run(["x"] * len(scores), scores, outcomes)
    assert bank.params["b"][0] == pytest.approx(b, rel=1e-12)


@pytest.mark.parametrize("name", ["auto", "ops", "tops", "bm", "fps", "whb"])
def test_the_exported_map_forecasts_true_probabilities(name: str) -> None:
    scores, outcomes = thinned(60_000)
    cal = Calibrator(name, kept=KEPT)
    cal.run(scores, outcomes)
    made: dict[str, Any] = {}
    exec(cal.export().python, made)  # noqa: S102 - our own text
    forecast = next(value for name, value in made.items() if callable(value) and not name.startswith("_"))
    for score in (0.0, 1e-7, *scores[:60].tolist(), 1.0):
        assert forecast(score) == pytest.approx(cal.peek(score), rel=1e-12, abs=1e-300)


def test_mean_losses_are_those_of_all_events() -> None:
    scores, outcomes = thinned()
    bank = Bank("ops", kept=KEPT)
    forecasts = bank.run(["x"] * len(scores), scores, outcomes)
    losses = -np.where(outcomes == 1.0, np.log(forecasts), np.log1p(-forecasts))
    stand_for = np.where(outcomes == 1.0, 1.0, ODDS)
    assert bank.table["log_loss"][0] == pytest.approx((stand_for * losses).sum() / stand_for.sum(), rel=1e-9)


def test_monitors_live_in_the_odds_of_the_log() -> None:
    scores, outcomes = thinned(20_000)
    watched, alone = Calibrator(kept=KEPT, monitor=Monitor(arl=1000)), Monitor(arl=1000, sampled=KEPT)
    forecasts = watched.run(scores, outcomes)
    alone.run(forecasts, outcomes, scores)
    monitor = watched.monitor
    assert monitor is not None
    assert (monitor.settings.sampled, monitor.evidence) == (KEPT, alone.evidence)
    bank = Bank(kept=KEPT, monitor=Monitor(arl=1000))
    assert bank.watched is not None
    assert bank.watched.sampled == KEPT
    with pytest.raises(InvalidInput, match=r"sampled must be left out, or be the kept \(1.0, 0.05\), got \(0.5, 0.5\)"):
        Calibrator(kept=KEPT, monitor=Monitor(sampled=(0.5, 0.5)))


def test_weights_go_with_it() -> None:
    scores, outcomes = thinned()
    weights = np.random.default_rng(0).lognormal(0.0, 0.5, len(scores))
    mine, plain = Calibrator(kept=KEPT), Calibrator()
    forecasts = mine.run(scores, outcomes, weights=weights)
    np.testing.assert_allclose(forecasts, in_truth(plain.run(in_log(scores), outcomes, weights=weights)), rtol=1e-9)


@pytest.mark.parametrize(
    "kept",
    [0.05, (1.0,), (1.0, 0.05, 1.0), (1.0, 0.0), (-1.0, 0.5), (1.5, 0.5), (nan, 0.5), (1.0, inf), (True, 0.5), "ab"],
)
def test_shares_that_cannot_be(kept: Any) -> None:
    for host in (Calibrator, Bank):
        with pytest.raises(InvalidInput, match="kept must be two numbers in"):
            host(kept=kept)


def test_a_method_knows_its_shares() -> None:
    method = dataclasses.replace(OPS, kept=KEPT)
    assert Method.from_dict(method.to_dict()) == method
    assert Method.from_dict(AUTO.to_dict()).kept is None
    assert repr(Calibrator(kept=KEPT)) == "Calibrator(AUTO, kept=(1.0, 0.05), events=0, outcomes=0)"
    assert repr(Bank("tops", kept=KEPT)) == "Bank(TOPS, kept=(1.0, 0.05), keys=0, events=0)"
    thin, plain = Bank("ops", kept=KEPT), Bank("ops")
    with pytest.raises(InvalidInput, match="banks must have the same method"):
        thin.merge(plain)
