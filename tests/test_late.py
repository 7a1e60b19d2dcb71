"""When a batch learns its outcomes, and the share of ones that are known by an age."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from calibeat import InvalidInput, late
from calibeat._util.times import check_age, duration_named


def test_an_age_in_events_is_a_due_computed_for_them() -> None:
    assert late.due_of(3) is None
    assert late.due_of(3, mature=0).tolist() == [1, 2, 3]
    assert late.due_of(3, mature=5).tolist() == [6, 7, 8]
    assert late.due_of(3, due=[9, 2, 3], mature=1).tolist() == [9, 3, 4]
    assert late.due_of(3, due=[9, 2, 3]).tolist() == [9, 2, 3]


@pytest.mark.parametrize(
    "times",
    [
        [0, 60, 60, 3600, 7260],
        np.array([0, 60, 60, 3600, 7260], dtype="datetime64[s]"),
        [
            "1970-01-01T00:00:00Z",
            "1970-01-01T00:01:00Z",
            "1970-01-01T01:01:00+01:00",
            "1970-01-01T01:00Z",
            "1970-01-01T02:01Z",
        ],
    ],
)
@pytest.mark.parametrize("age", ["1h", "60min", timedelta(hours=1), np.timedelta64(1, "h")])
def test_an_age_in_time_ends_before_the_first_forecast_that_is_so_much_later(times: Any, age: Any) -> None:
    assert late.due_of(5, mature=age, times=times).tolist() == [3, 4, 4, 4, 5]


def test_no_outcome_is_learnt_before_its_own_forecast() -> None:
    assert late.due_of(3, mature="0s", times=[5, 5, 5]).tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mature": -1}, r"mature must be a whole number in \[0, 1000000000000000\], got -1"),
        ({"mature": "soon"}, "mature must be a number of events or a time such as 30s, 30min, 2h or 7d, got 'soon'"),
        ({"mature": timedelta(-1)}, "mature must be a time from 0 to 1,000 years, got"),
        ({"mature": "9999999d"}, "mature must be 1,000 years at most"),
        ({"mature": "7d"}, "mature must be a number of events where there are no times, got a time; give times="),
        ({"times": [1, 2, 3]}, "times must come with mature, which they are for, got times alone"),
        ({"mature": "1h", "times": [1, 2]}, "arrays must have the same length, got scores 3, times 2"),
        ({"mature": "1h", "times": [1, 3, 2]}, "time must not go back, .* - at row 2"),
        (
            {"mature": "1h", "times": [1, np.nan, 2]},
            r"time must be a date \(ISO 8601\) or a number, got none - at row 1",
        ),
    ],
)
def test_errors_name_what_is_wrong(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        late.due_of(3, **arguments)


def test_ages_read_as_they_are_typed() -> None:
    for typed in ("7d", "36h", "90min", "17s", "5ms", "3us"):
        assert duration_named(check_age("mature", typed)[0]) == typed


def test_the_share_known_of_a_whole_log_is_the_plain_share() -> None:
    rng = np.random.default_rng(0)
    delays, outcomes = rng.exponential(500, 20_000), (rng.random(20_000) < 0.3).astype(int)
    plain = late.share_known(delays, outcomes, 200)
    assert abs(plain - (1 - np.exp(-0.4))) < 0.02
    assert plain == pytest.approx(late.share_known(delays, outcomes, 200, watched=np.full(20_000, 1e9)))


def test_the_share_known_allows_for_recent_events() -> None:
    """Ones that are still to come are not in the log: the plain share is too large, the other is not."""
    rng = np.random.default_rng(0)
    n = 40_000
    watched = np.linspace(3000, 1, n)
    delays = rng.exponential(500, n)
    outcomes = (delays <= watched).astype(int)  # every event is a one, some of them are not known yet
    truth = 1 - np.exp(-0.4)
    plain = late.share_known(delays, outcomes, 200)
    allowed = late.share_known(delays, outcomes, 200, watched=watched)
    assert plain > truth + 0.04
    assert abs(allowed - truth) < 0.015


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0], [0], 5), "outcomes must hold at least one 1, got none"),
        (([1.0, np.nan], [0, 1], 5), "delay of a 1 must be a number from 0 on, got nan - at row 1"),
        (([1.0, 7.0], [0, 1], 5, [9.0, 6.0]), "watched must be at least the delay of the 1, got 6.0 - at row 1"),
        (([1.0, 7.0], [0], 5), "arrays must have the same length, got delays 2, outcomes 1"),
    ],
)
def test_errors_of_the_share(arguments: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        late.share_known(*arguments)


def test_corrected_forecasts_are_calibrated_again() -> None:
    """Positives that come after the time-out are called 0 for good; p / F forecasts those that come at all."""
    rng = np.random.default_rng(1)
    n = 30_000
    truth = rng.uniform(0.05, 0.6, n)
    comes = rng.random(n) < truth
    delays = rng.exponential(500, n)
    share = late.share_known(delays, comes, 200)
    known = comes & (delays <= 200)
    assert abs(late.corrected(truth * known.sum() / comes.sum(), share).mean() - comes.mean()) < 0.01
    assert late.corrected([0.9], 0.5).tolist() == [1.0]
    with pytest.raises(InvalidInput, match=r"share must be in \[1e-06, 1\], got 0"):
        late.corrected([0.9], 0)
