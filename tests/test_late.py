"""When a batch learns its outcomes, and the share of ones that are known by an age."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from calibeat import Bank, Calibrator, InvalidInput, MultiBank, MultiCalibrator, late
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
        (
            {"times": [1, 2, 3]},
            "times must come with mature or outcome_times, which they are for, got times without them",
        ),
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


# ---- when outcomes are known, as times -------------------------------------------------------------------------------

RANDOM = np.random.default_rng(11)
ISSUED = np.datetime64("2026-01-01", "us") + np.cumsum(RANDOM.integers(0, 90, 400)) * np.timedelta64(1, "s")
KNOWN = ISSUED + RANDOM.integers(0, 4000, 400) * np.timedelta64(1, "s")
KNOWN[::13] = np.datetime64("NaT")
SCORES = RANDOM.random(400)
OUTCOMES = (RANDOM.random(400) < SCORES).astype(int)


def one_by_one(age: np.timedelta64 | int) -> list[float]:
    """Forecasts as a program in production would have made them."""
    cal, waiting, forecasts = Calibrator(), list[tuple[Any, int, Any]](), list[float]()
    for i, (now, score) in enumerate(zip(ISSUED, SCORES, strict=True)):
        by_events = isinstance(age, int)
        ripe = [each for each in waiting if each[0] <= now and (not by_events or each[1] + 1 + age <= i)]
        # What waited for this very forecast, and for nothing else, is learnt with its time.
        for each in sorted(
            ripe, key=lambda w: now if by_events and w[1] + 1 + age == i and w[0] <= ISSUED[i - 1] else w[0]
        ):
            cal.update(each[2], OUTCOMES[each[1]])
            waiting.remove(each)
        made = cal.predict(score)
        forecasts.append(made.probability if cal.outcomes or not age else score)
        if not np.isnat(KNOWN[i]):
            waiting.append((KNOWN[i] if by_events else max(KNOWN[i], now + age), i, made))
    return forecasts


@pytest.mark.parametrize("age", [np.timedelta64(0, "s"), np.timedelta64(1800, "s"), 0, 25])
def test_outcomes_are_learnt_in_the_order_of_their_times(age: Any) -> None:
    by_events = isinstance(age, int)
    mature = {} if not age else {"mature": age if by_events else "30min"}
    when: dict[str, Any] = {"times": ISSUED, "outcome_times": KNOWN}
    found = Calibrator().run(SCORES, OUTCOMES, **when, **mature)
    np.testing.assert_array_equal(found, one_by_one(age))
    np.testing.assert_array_equal(Bank().run(["k"] * 400, SCORES, OUTCOMES, **when, **mature), found)
    by_position = Calibrator().run(SCORES, OUTCOMES, due=np.minimum(late.due_of(400, **when, **mature), 400))
    assert not np.array_equal(by_position, found)  # the order matters


def test_what_is_known_never_is_not_learnt_at_the_end_either() -> None:
    cal = Calibrator()
    cal.run(SCORES, np.where(np.isnat(KNOWN), 7, OUTCOMES), times=ISSUED, outcome_times=KNOWN, finish=True)
    assert cal.outcomes == 400 - int(np.isnat(KNOWN).sum())


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"outcome_times": KNOWN}, "outcome_times must come with times, those of the scores, got none"),
        ({"times": ISSUED, "outcome_times": KNOWN, "due": np.arange(1, 401)}, "due and outcome_times must not come"),
        ({"times": ISSUED}, "times must come with mature or outcome_times"),
        ({"times": ISSUED, "outcome_times": KNOWN[1:]}, "got scores 400, outcome_times 399"),
        ({"times": ISSUED, "outcome_times": ["soon"] * 400}, r"outcome_time must be a date \(ISO 8601\).* - at row 0"),
    ],
)
def test_times_that_do_not_fit_are_refused(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        Calibrator().run(SCORES, OUTCOMES, **given)


@pytest.mark.parametrize(
    "age", [(2**60, "D"), (2**62, "s"), (-(2**60), "D"), (2**63 - 1, "W"), (1001, "Y"), ("NaT", "h")]
)
def test_ages_of_numpy_that_do_not_fit_in_microseconds(age: tuple[Any, Any]) -> None:
    with pytest.raises(InvalidInput, match="mature must be a time from 0 to 1,000 years, got"):
        late.due_of(3, mature=np.timedelta64(*age), times=[1, 2, 3])


@pytest.mark.parametrize("age", [(2, "s"), (2_000_000, "us"), (2 * 10**9, "ns"), (2 * 10**12, "ps")])
def test_ages_of_numpy_in_every_unit(age: tuple[int, Any]) -> None:
    found = late.due_of(4, mature=np.timedelta64(*age), times=[1, 2, 3, 4])
    assert found is not None and found.tolist() == [2, 3, 4, 4]
    longest = late.due_of(2, mature=np.timedelta64(1000 * 365, "D"), times=[1, 2])
    assert longest is not None and longest.tolist() == [2, 2]


def hosts_of_a_key() -> dict[str, Any]:
    """A host, what comes before the scores in its calls, and whether it has two classes."""
    return {
        "Calibrator": (Calibrator(), [], True),
        "Bank": (Bank(), ["k"], True),
        "MultiCalibrator": (MultiCalibrator(3), [], False),
        "MultiBank": (MultiBank(3), ["k"], False),
    }


@pytest.mark.parametrize("host", hosts_of_a_key())
def test_what_is_left_at_the_end_is_learnt_in_the_order_of_due(host: str) -> None:
    """`finish=True` is as if the outcomes that are due behind the end came one by one."""
    n, rng = 60, np.random.default_rng(3)
    due = np.arange(1, n + 1) + rng.integers(0, 2 * n, n)
    batch, key, is_binary = hosts_of_a_key()[host]
    single = hosts_of_a_key()[host][0]
    scores = rng.random(n) if is_binary else rng.dirichlet([1.0] * 3, n)
    outcomes = rng.integers(0, 2, n)
    batch.run(*([["k"] * n] if key else []), scores, outcomes, due=due, finish=True)
    receipts = {}
    for now in range(3 * n + 1):
        for i in np.flatnonzero(due == now).tolist():
            single.update(*key, receipts.pop(i), int(outcomes[i]))
        if now < n:
            receipts[now] = single.predict(*key, scores[now].tolist())
    assert not receipts
    ask = ([key * 3] if key else []) + [scores[:3]]
    np.testing.assert_array_equal(batch.predict_many(*ask), single.predict_many(*ask))
    table = [each[key[0]] if key else each for each in (batch, single)]
    assert table[0].params == table[1].params
