"""One stream's screen: over time, by week, what was learnt; all of it against the events themselves."""

from __future__ import annotations

import math

import numpy as np
import pytest
from services import DAY, desk

from calibeat import Calibrator
from calibeat.core.stats import log_loss
from calibeat.errors import InvalidInput
from calibeat.metrics import wilson
from calibeat.service.events import ForecastEvent, OutcomeEvent
from calibeat.service.store import open_reader
from calibeat.service.store.queries import MOST_POINTS, view

MONDAY = 1_794_787_200.0  # 16 November 2026, 00:00 UTC


@pytest.fixture(scope="module")
def filled(module_url):
    """Five weeks of one stream, a forecast every two hours; the outcomes of the last day are missing."""
    rng = np.random.default_rng(0)
    times = MONDAY - 35 * DAY + 7200.0 * np.arange(420)
    scores = rng.random(420).round(3)
    outcomes = (rng.random(420) < scores**2).astype(int)
    with desk(module_url, method="tops") as service:
        forecasts = []
        for i in range(420):
            service.now = float(times[i]) + 600.0
            (told,), *_ = service.group(
                [ForecastEvent("rome", f"e{i}", float(scores[i]), float(times[i]))],
                *([[OutcomeEvent("rome", f"e{i}", int(outcomes[i]))]] if i < 408 else []),
            )
            forecasts.append(told)
        service.ask(("silent", "s1", 0.4, float(times[-1])))
    reader = open_reader(module_url)
    yield reader, times, scores, np.array(forecasts), outcomes
    reader.close()


def test_there_is_no_view_of_no_stream(filled):
    assert view(filled[0], MONDAY, "nobody") is None


def test_a_span_is_one_of_four(filled):
    with pytest.raises(InvalidInput, match="span must be one of day, week, month, all, got 'year'"):
        view(filled[0], MONDAY, "rome", "year")


@pytest.mark.parametrize(("span", "days"), [("day", 1), ("week", 7), ("month", 30), ("all", 35)])
def test_the_series_are_means_of_the_events(filled, span, days):
    reader, times, scores, forecasts, outcomes = filled
    series = view(reader, MONDAY, "rome", span).series
    inside = times > times[-1] - days * DAY
    assert sum(series.forecasts) == inside.sum()
    assert len(series.start) <= MOST_POINTS
    learnt = np.arange(420) < 408
    for i, start in enumerate(series.start):
        here = inside & (times >= start) & (times < start + series.seconds)
        known = here & learnt
        assert series.forecasts[i] == here.sum() and series.outcomes[i] == known.sum()
        if not known.any():
            assert series.happened[i] is None and series.low[i] is None and series.log_loss[i] is None
            continue
        assert series.forecast[i] == pytest.approx(forecasts[known].mean())
        assert series.score[i] == pytest.approx(scores[known].mean())
        assert series.happened[i] == pytest.approx(outcomes[known].mean())
        low, high = wilson(outcomes[known].mean(), known.sum())
        assert (series.low[i], series.high[i]) == (pytest.approx(float(low)), pytest.approx(float(high)))
        loss = np.mean([log_loss(p, y) for p, y in zip(forecasts[known], outcomes[known], strict=True)])
        assert series.log_loss[i] == pytest.approx(loss)


def test_points_hold_enough_outcomes_to_say_something(filled):
    series = view(filled[0], MONDAY, "rome", "all").series
    assert series.seconds == 2 * DAY or series.seconds == 7 * DAY
    assert len(series.start) <= 20


def test_reliability_is_by_week_from_monday(filled):
    reader, times, _, _, outcomes = filled
    curves = view(reader, MONDAY, "rome").reliability
    labels = [period.label for period in curves.periods]
    assert labels == ["Last 7 days", "All time", "9–15 Nov", "2–8 Nov", "26 Oct – 1 Nov", "19–25 Oct", "12–18 Oct"]
    learnt = np.arange(420) < 408
    week = learnt & (times >= MONDAY - 14 * DAY) & (times < MONDAY - 7 * DAY)
    at = labels.index("2–8 Nov")
    assert curves.periods[at].count == week.sum() == 84
    raw = curves.methods["raw"][at]
    happened = sum(n * y for n, y in zip(raw.count, raw.outcome, strict=True) if n)
    assert happened == pytest.approx(outcomes[week].sum())
    assert curves.periods[1].count == 408


def test_the_bins_of_a_curve_are_tenths(filled):
    reader, _, scores, _, outcomes = filled
    curve = view(reader, MONDAY, "rome").reliability.methods["raw"][1]
    for tenth in range(10):
        here = (np.floor(scores * 10) == tenth) & (np.arange(420) < 408)
        assert curve.count[tenth] == here.sum()
        assert curve.forecast[tenth] == pytest.approx(scores[here].mean())
        assert curve.outcome[tenth] == pytest.approx(outcomes[here].mean())
        assert curve.low[tenth] <= curve.outcome[tenth] < curve.high[tenth]


def test_what_was_learnt_is_what_a_calibrator_has_learnt(filled):
    reader, _, scores, _, outcomes = filled
    cal = Calibrator("tops")
    for i in range(420):
        forecast = cal.predict(float(scores[i]))
        if i < 408:
            cal.update(forecast, int(outcomes[i]))
    found = view(reader, MONDAY, "rome")
    assert found.params == pytest.approx(cal.params) and found.lanes == {}
    assert found.map.forecast == pytest.approx([cal.peek(score) for score in found.map.score])


def test_the_weights_of_the_lanes_are_apart_from_the_parameters(tmp_path):
    with desk(str(tmp_path / "a.db"), method="gauto") as service:
        service.ask(("a", "e1", 0.3))
        service.tell(("a", "e1", 1))
    reader = open_reader(str(tmp_path / "a.db"))
    found = view(reader, service.now, "a")
    reader.close()
    assert math.isclose(sum(found.lanes.values()), 1.0) and "slow" in found.lanes
    assert {"a", "b", "c", "mean_lag", "temper", "guard brier_wealth"} <= found.params.keys()
    assert found.map is None  # the guard draws: a score has more than one forecast


def test_a_stream_without_outcomes_has_a_view(filled):
    found = view(filled[0], MONDAY, "silent")
    assert found.stream.pending == 1 and found.delays == [] and found.alarms == []
    assert found.series.happened == [None] and found.series.forecasts == [1]
    assert [period.label for period in found.reliability.periods] == ["All time"]


def test_a_clock_that_is_wrong_by_years_does_not_hide_the_present(tmp_path):
    with desk(str(tmp_path / "a.db")) as service:
        service.now = MONDAY
        service.ask(("a", "e1", 0.3, MONDAY), ("a", "e2", 0.3, MONDAY + 20_000 * DAY))
        service.tell(("a", "e1", 1), ("a", "e2", 1))
    reader = open_reader(str(tmp_path / "a.db"))
    found = view(reader, MONDAY + 60.0, "a", "week")
    reader.close()
    assert found.series.start == [MONDAY] and found.series.outcomes == [1]
