"""What a person sees of a calibrator, and the parts of it that no other test reaches."""

from __future__ import annotations

import json
import logging

import numpy as np
import pytest
from conformance import same
from streams import STREAMS

from calibeat import (
    AIOLI,
    BM,
    F99,
    FPS,
    FTL,
    HOPS,
    OBS,
    OPS,
    SWPS,
    TOPS,
    WHB,
    Calibrator,
    Fixed,
    Forecast,
    Method,
    Platt,
)
from calibeat.core import refit
from calibeat.core.algebra import solve
from calibeat.core.method import PRESETS, name_of
from calibeat.core.refit import Histogram


def test_widths_are_the_ones_promised() -> None:
    assert (OPS.width, TOPS.width, HOPS.width) == (7, 27, 207)
    assert (BM.width, OBS.width, F99.width, WHB.width) == (2, 11, 22, 42)
    for method in PRESETS.values():
        assert Calibrator(method).row.shape == (method.width,)


def test_presets_by_name() -> None:
    for name, method in PRESETS.items():
        assert Calibrator(name).method is method
        assert Calibrator(name.upper()).method is method
        assert name_of(method) == name
    assert name_of(Method(Platt(), Fixed(after=7))) is None


def test_repr_says_what_and_how_far() -> None:
    calibrator = Calibrator(TOPS)
    calibrator.predict(0.5)
    calibrator.update(calibrator.predict(0.5), 1)
    assert repr(calibrator) == "Calibrator(TOPS, events=2, outcomes=1)"
    assert repr(Calibrator(Method(None))) == "Calibrator(BM, events=0, outcomes=0)"
    assert "Fixed(after=7" in repr(Calibrator(Method(Platt(), Fixed(after=7))))


def test_forecast_is_a_number_and_a_receipt() -> None:
    forecast = Calibrator(TOPS).predict(0.83)
    assert float(forecast) == forecast.probability == 0.85
    assert (forecast.score, forecast.bin, forecast.candidates) == (0.83, 8, ((0.85, 1.0),))
    assert forecast.expert == pytest.approx(0.83)
    assert Forecast.from_dict(json.loads(json.dumps(forecast.to_dict()))) == forecast
    assert f"{forecast:.1%}" == "85.0%"
    assert f"{forecast}".startswith("Forecast(probability=0.85, score=0.83")


def test_hedging_shows_both_candidates() -> None:
    calibrator = Calibrator(F99)
    seen = []
    for outcome in (1, 0) * 20:
        forecast = calibrator.predict(0.5)
        seen.append(forecast.candidates)
        calibrator.update(forecast, outcome)
    pairs = [candidates for candidates in seen if len(candidates) == 2]
    assert pairs
    for (low, _), (high, _) in pairs:
        assert high - low == pytest.approx(0.1)


def test_params() -> None:
    assert Calibrator(BM).params == Calibrator(F99).params == {}
    assert Calibrator(FPS).params == {"a": 1.0, "b": 0.0}
    aioli = Calibrator(Method(Platt(), AIOLI()))
    assert aioli.params == {"a": 0.0, "b": 0.0}
    scores, outcomes = STREAMS["random"]()
    aioli.run(scores, outcomes)
    assert aioli.params["a"] > 0.3
    assert Calibrator(WHB).params == {"edges": [], "means": []}


def test_separable_data_stops_on_the_ball_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    scores = np.linspace(0.1, 0.9, 50)
    for method in (Method(Platt(), Fixed(after=50)), Method(Platt(), FTL(every=10, after=20))):
        with caplog.at_level(logging.WARNING, logger="calibeat"):
            calibrator = Calibrator(method)
            assert not calibrator.on_the_ball
            calibrator.run(scores, scores > 0.5)
        assert calibrator.on_the_ball
        assert np.hypot(*calibrator.params.values()) == pytest.approx(100.0)
        assert "the fit ended on the ball of radius 100" in caplog.text
        assert len(caplog.records) == 1  # said once, not at every refit
        caplog.clear()
    assert not Calibrator(Method(Platt(), AIOLI())).on_the_ball
    assert not Calibrator(BM).on_the_ball
    assert not Calibrator(WHB).on_the_ball


def test_a_start_that_is_sure_of_everything_and_wrong() -> None:
    """No curvature is left at such a start; the fit begins again from zero."""
    scores, outcomes = STREAMS["random"]()
    scores = np.clip(scores, 0.001, 0.4)
    far = Calibrator(Method(Platt(start=(-100.0, -900.0), clip=1e-3), Fixed(after=300)))
    near = Calibrator(Method(Platt(clip=1e-3), Fixed(after=300)))
    far.run(scores, outcomes)
    near.run(scores, outcomes)
    assert list(far.params.values()) == pytest.approx(list(near.params.values()), abs=1e-9)


def test_separated_beyond_what_floats_can_tell() -> None:
    calibrator = Calibrator(Method(Platt(), Fixed(after=10)))
    calibrator.run([1.0] * 10, [1] * 10)
    assert calibrator.on_the_ball
    assert calibrator.predict(1.0).probability == 1.0


def test_history_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refit, "STALE_EVENTS", 30)
    scores, outcomes = STREAMS["random"]()
    for method in (SWPS, Method(Histogram(), FTL(every=5, after=10, window=20))):
        window = method.learner.window
        pieces = Calibrator(method)
        for _ in range(20):
            pieces.run(scores, outcomes)
        assert len(pieces._rows.refitter.past.y) <= 2 * window + len(scores) + 30
        whole = Calibrator(method)
        whole.run(np.tile(scores, 20), np.tile(outcomes, 20))
        assert len(whole._rows.refitter.past.y) == window  # the columns that the batch needed are given back
        same(pieces.row, whole.row)
        assert pieces.to_json() == whole.to_json()
        assert len(json.loads(pieces.to_json())["history"]["y"]) == window
    fps = Calibrator(Method(Platt(), Fixed(after=100)))
    fps.run(scores, outcomes)
    assert len(fps._rows.refitter.past.y) == 0
    assert json.loads(fps.to_json())["history"] == {}


def test_a_matrix_that_rounding_has_made_singular_is_still_solved() -> None:
    flat = solve(2.0, 1e17, 1e17, 0.0, 1e17, 0.0, 0.0, 1.0, 1.0, 0.0)
    assert np.isfinite(flat).all()
    assert flat[0] + flat[1] == pytest.approx(1e-17)
    deep = solve(3.0, 4.0, 2.0, 2.0, 1.0, 1.0, 1.0, 2.0, 1.0, 1.0)
    assert np.isfinite(deep).all()
    assert 2.0 * deep[0] + deep[1] + deep[2] == pytest.approx(1.0)
