"""The guard as a part of a method: what hosts, receipts and snapshots make of it."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from guard_oracle import Oracle, even_edges
from streams import drifting

from calibeat import (
    AUTO,
    GAUTO,
    GOPS,
    GTOPS,
    HOPS,
    OPS,
    TOPS,
    Bank,
    Calibrator,
    Forecast,
    Guard,
    InvalidInput,
    Method,
    Platt,
    SnapshotMismatch,
    UnknownForecast,
)
from calibeat.core.randomness import stream_key, uniforms
from calibeat.core.receipt import FORECAST

SCORES, OUTCOMES = drifting(1500)


@pytest.mark.parametrize(("guarded", "expert"), [(GAUTO, AUTO), (GOPS, OPS), (GTOPS, TOPS)])
def test_a_preset_is_its_expert_with_a_guard(guarded, expert):
    assert guarded == replace(expert, guard=Guard())
    assert guarded.width == expert.width + 22
    assert guarded.receipt_width == expert.receipt_width + 2
    assert replace(guarded, guard=None) == expert


@pytest.mark.parametrize("guard", [Guard(), Guard(bins=5, slack=0.0, spring=2.0)], ids=str)
@pytest.mark.parametrize("expert", [AUTO, OPS, TOPS], ids=["auto", "ops", "tops"])
def test_the_expert_is_untouched_and_the_guard_is_the_oracle(expert, guard):
    method = replace(expert, guard=guard)
    cal, alone = Calibrator(method, seed=5), Calibrator(expert)
    said, given = cal.run(SCORES, OUTCOMES), alone.run(SCORES, OUTCOMES)
    oracle = Oracle(even_edges(guard.bins), guard.slack, guard.spring, guard.spring)
    key = stream_key(5, 0)
    for t, (p, y, issued) in enumerate(zip(given.tolist(), OUTCOMES.tolist(), said.tolist(), strict=True)):
        p, low, high, weight = oracle.say(p)  # noqa: PLW2901 - clipped
        q = low if uniforms(key, t, 1)[0] < weight else high
        assert issued == pytest.approx(q, rel=0.0, abs=1e-9), t
        oracle.learn(p, q, y)
    at = method.spec.guard
    np.testing.assert_array_equal(np.delete(cal.row, np.arange(at, at + len(guard.initial()))), alone.row)


def test_candidates_are_both_points_with_their_probabilities():
    cal = Calibrator(GTOPS, seed=1)
    drawn = 0
    for score, outcome in zip(SCORES.tolist(), OUTCOMES.tolist(), strict=True):
        forecast = cal.predict(score)
        assert sum(weight for _, weight in forecast.candidates) == pytest.approx(1.0)
        assert forecast.probability in [point for point, _ in forecast.candidates]
        assert 0.0 < forecast.probability < 1.0
        if len(forecast.candidates) == 2:
            (low, _), (high, _) = forecast.candidates
            assert 0.0 < high - low <= 1.01e-6
            drawn += 1
        cal.update(forecast, int(outcome))
    assert drawn > 0


def test_receipts_travel_and_forged_ones_are_refused():
    cal, twin = Calibrator(GAUTO, seed=2), Calibrator(GAUTO, seed=2)
    cal.run(SCORES, OUTCOMES)
    twin.run(SCORES, OUTCOMES)
    live, stored = cal.predict(0.31), twin.predict(0.31)
    text = stored.to_json()
    twin.update(Forecast.from_json(text), 1)
    cal.update(live, 1)
    np.testing.assert_array_equal(cal.row, twin.row)
    data = json.loads(twin.predict(0.6).to_json())
    name = next(name for name, value in data.items() if isinstance(value, list) and len(value) == GAUTO.receipt_width)
    # The last would be clipped to what the guard was given, and then be learnt as it is.
    for changes in ({-1: 0.123}, {-2: 0.123}, {-1: 2.0}, {FORECAST: 1e300, -2: 1.0 - 1e-7}):
        numbers = list(data[name])
        for place, number in changes.items():
            numbers[place] = number
        with pytest.raises((InvalidInput, UnknownForecast)):
            twin.update(Forecast.from_json(json.dumps({**data, name: numbers})), 1)


def test_snapshots_and_banks():
    cal = Calibrator(GOPS, seed=3)
    cal.run(SCORES[:700], OUTCOMES[:700])
    rest = Calibrator.from_json(cal.to_json()).run(SCORES[700:], OUTCOMES[700:])
    np.testing.assert_array_equal(cal.run(SCORES[700:], OUTCOMES[700:]), rest)
    bank = Bank(GOPS, seed=3)
    whole = Calibrator(GOPS, seed=3, stream="a")
    np.testing.assert_array_equal(bank.run(["a"] * 1500, SCORES, OUTCOMES), whole.run(SCORES, OUTCOMES))
    data = json.loads(cal.to_json())
    for at, wrong in ((OPS.width, 0.0), (OPS.width + 2, 1e9), (OPS.width + 3, -1.0)):
        row = list(data["row"])
        row[at] = wrong
        with pytest.raises(SnapshotMismatch):
            Calibrator.from_json(json.dumps({**data, "row": row}))


def test_a_method_says_that_it_guards():
    cal = Calibrator(replace(OPS, guard=Guard(slack=0.0)), seed=3)
    assert cal.params["guard"] == {"log_loss_wealth": 1.0, "brier_wealth": 1.0, "out_of_balance": []}
    cal.update(cal.predict(0.55), 1)
    (bin_,) = cal.params["guard"]["out_of_balance"]
    assert (bin_["from"], bin_["to"]) == (0.5, 0.6) and bin_["debt"] == pytest.approx(0.45)
    assert cal.params["a"] != 1.0


def test_a_guard_that_is_not_there_is_not_shown():
    assert "guard" not in repr(TOPS) and TOPS.to_dict()["guard"] is None
    assert "guard" in repr(GTOPS)
    assert Method.from_dict(GTOPS.to_dict()) == GTOPS
    assert Method.from_dict(json.loads(json.dumps(replace(AUTO, guard=Guard(bins=30)).to_dict()))).guard.bins == 30


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: replace(HOPS, guard=Guard()), "drawn at random"),
        (lambda: Guard(bins=0), "bins must be"),
        (lambda: Guard(slack=-1.0), "slack must be"),
        (lambda: Guard(spring=0.0), "spring must be"),
        (lambda: Method(Platt(), None, Guard()), "belongs in the guard"),
        (lambda: Calibrator(GOPS).export(), "without its guard"),
    ],
)
def test_bad_guards(wrong, message):
    with pytest.raises(InvalidInput, match=message):
        wrong()
