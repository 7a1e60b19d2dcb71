"""What happened to the data, recomputed with plain NumPy: volume, missing outcomes, delays, scores, PSI."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import calibeat
from calibeat.backtest.judge.history import DELAY_STEPS, MOST_BINS, RANKS, STEPS, DataHistory, psi, score_of
from calibeat.backtest.read.rows import Chunk
from calibeat.backtest.replay.tally import judged, rank_of

N = 12_000
RNG = np.random.default_rng(4)
SCORES = 1 / (1 + np.exp(-RNG.normal(-1.0 + np.linspace(0.0, 1.0, N), 1.0)))
START = np.datetime64("2026-01-05T00:00:00")  # a Monday
TIMES = START + (np.sort(RNG.random(N)) * 90 * 86_400).astype("timedelta64[s]")
OUTCOMES = (RNG.random(N) < SCORES).astype(float)
KNOWN = TIMES + (RNG.exponential(np.where(OUTCOMES == 1.0, 4.0, 30.0)) * 3600).astype("timedelta64[s]")
GONE = RNG.random(N) < 0.1


def add(history, chunk):
    history.add(chunk, judged(chunk.scores, chunk.outcomes))


def with_gaps():
    outcomes, known = OUTCOMES.copy(), KNOWN.copy()
    outcomes[GONE], known[GONE] = np.nan, np.datetime64("NaT")
    return outcomes, known


@pytest.fixture(scope="module")
def told():
    outcomes, known = with_gaps()
    result = calibeat.backtest(SCORES, outcomes, times=TIMES, outcome_times=known, methods="ops")
    return result.payload["history"]


def test_volume_missing_delays_and_scores_by_day(told):
    assert told["by"] == "time" and told["unit"] == "12 hours" and told["delay_is_time"]
    start = np.array(told["start"], dtype="datetime64[s]")
    assert start[0] == START and np.all(np.diff(start) == np.timedelta64(12, "h"))
    at = (TIMES - START) // np.timedelta64(12, "h")
    waited = (KNOWN - TIMES).astype(float)
    for k in range(len(start)):
        inside = at == k
        assert told["count"][k] == inside.sum()
        assert told["missing"][k] == pytest.approx(GONE[inside].mean())
        for name, outcome in (("ones_delay", 1.0), ("zeros_delay", 0.0)):
            kind = inside & ~GONE & (outcome == OUTCOMES)
            assert told[name][k] == pytest.approx(_lower(waited[kind], 0.5), rel=1.01 / DELAY_STEPS)
        for name, q in (("score_low", 0.1), ("score_median", 0.5), ("score_high", 0.9)):
            assert told[name][k] == pytest.approx(_lower(SCORES[inside], q), rel=1.0 / STEPS)


def _lower(values, share):
    """The least value that so many do not exceed."""
    return np.sort(values)[max(0, int(np.ceil(share * len(values))) - 1)]


def test_periods_and_their_psi(told):
    month = TIMES.astype("datetime64[M]")
    names = {"Jan 2026": "2026-01", "Feb 2026": "2026-02", "Mar 2026": "2026-03", "Apr 2026": "2026-04"}
    assert [period["label"] for period in told["periods"]] == list(names)
    first = SCORES[month == np.datetime64("2026-01")]
    edges = np.quantile(first, np.arange(1, 10) / 10)
    for period in told["periods"]:
        inside = month == np.datetime64(names[period["label"]])
        assert period["count"] == inside.sum() and period["missing"] == pytest.approx(GONE[inside].mean())
        assert period["base_rate"] == pytest.approx(OUTCOMES[inside & ~GONE].mean())
        assert period["mean_score"] == pytest.approx(SCORES[inside].mean())
        a, e = (np.bincount(np.searchsorted(edges, s), minlength=10) + 0.5 for s in (SCORES[inside], first))
        a, e = a / a.sum(), e / e.sum()
        # Groups are made of whole ranks: they differ a little from the exact tenths.
        exact = float(((a - e) * np.log(a / e)).sum())
        assert (
            period["psi"] is None if period["label"] == "Jan 2026" else period["psi"] == pytest.approx(exact, rel=0.15)
        )
    drift = [period["psi"] for period in told["periods"][1:]]
    assert drift == sorted(drift) and drift[0] > 0.02


def test_psi_by_hand():
    reference, counts = np.array([30.0, 0.0, 30.0, 40.0]), np.array([10.0, 5.0, 45.0, 40.0])
    a, e = (np.array([c[0] + c[1], c[2], c[3]]) + 0.5 for c in (counts, reference))
    a, e = a / a.sum(), e / e.sum()
    assert psi(reference, counts) == pytest.approx(((a - e) * np.log(a / e)).sum())


def test_without_times_bins_hold_so_many_events():
    told = calibeat.backtest(SCORES, OUTCOMES, methods="ops", delay=40).payload["history"]
    assert told["by"] == "event" and told["unit"] == "32 events" and told["count"] == [32] * (N // 32)
    assert told["start"][:2] == [1, 33] and not told["delay_is_time"]
    assert (
        told["ones_delay"][0] == pytest.approx(40.0, rel=1 / DELAY_STEPS)
        and told["periods"][0]["label"] == "events 1–992"
    )
    at_once = calibeat.backtest(SCORES[:500], OUTCOMES[:500], methods="ops").payload["history"]
    assert at_once["ones_delay"] is None and at_once["periods"][0]["zeros_delay"] is None


def test_outcomes_at_once_with_gaps_have_no_delay():
    outcomes, known = with_gaps()
    known = np.where(GONE, np.datetime64("NaT"), TIMES)
    told = calibeat.backtest(SCORES, outcomes, times=TIMES, outcome_times=known, methods="ops").payload["history"]
    assert told["ones_delay"] is None and max(told["missing"]) > 0.05


def chunk(part, times):
    return Chunk(SCORES[part], OUTCOMES[part], np.zeros(len(SCORES[part]), dtype=np.int64), times=times[part])


@pytest.mark.parametrize("span", [10, 86_400, 400 * 86_400, 30 * 365 * 86_400])
def test_bins_widen_as_the_log_grows_and_chunks_of_any_size_agree(span):
    times = (1_600_000_000 + np.sort(RNG.random(N)) * span).astype(np.int64) * 1_000_000
    found = []
    for cuts in ((0, N), (0, 1, 5, 4000, 4001, N)):
        history = DataHistory()
        for a, b in pairwise(cuts):
            add(history, chunk(slice(a, b), times))
        add(history, chunk(slice(0, 0), times))
        found.append(history.for_report())
    means = [[period.pop("mean_score") for period in told["periods"]] for told in found]
    assert means[0] == pytest.approx(means[1], rel=1e-12)  # sums of sums round differently
    assert found[0] == found[1] and sum(found[0]["count"]) == N and len(found[0]["count"]) <= MOST_BINS
    assert len(found[0]["periods"]) <= 12


def test_few_events_at_a_time_give_the_same_bits():
    """The plain kernel counts them; missing outcomes and delays too. More than half of the ones come at once."""
    n = 90
    outcomes = np.where(np.arange(n) % 7 == 3, np.nan, np.arange(n) % 2)
    clock = np.arange(n) * 1_000_000
    arrivals = clock + np.where(outcomes == 1.0, np.where(np.arange(n) % 3, 0, 5_000_000), 9_000_000)
    slots = np.zeros(n, dtype=np.int64)
    found = []
    for step in (n, 4):
        history = DataHistory()
        for a in range(0, n, step):
            columns = [column[a : a + step] for column in (SCORES[:n], outcomes, slots, clock, arrivals, clock)]
            add(history, Chunk(*columns, clock_is_time=True))
        found.append(history.for_report())
    assert found[0]["periods"][0].pop("mean_score") == pytest.approx(found[1]["periods"][0].pop("mean_score"))
    assert found[0] == found[1] and sum(found[0]["count"]) == n
    period = found[0]["periods"][0]
    assert period["ones_delay"] == 0.0 and period["zeros_delay"] == pytest.approx(9.0, rel=1 / DELAY_STEPS)
    assert period["missing"] == pytest.approx(np.isnan(outcomes[: period["count"]]).mean())


def test_a_rank_and_its_middle():
    for rank in (1, 40, 200, RANKS // 2 - 2, RANKS // 2 + 1, RANKS - 40):
        assert rank_of(score_of(rank), STEPS) == rank
    assert score_of(0) == 0.0 and score_of(RANKS - 1) == 1.0 and score_of(RANKS // 2 - 1) == 0.5
