"""Weights and counts: against golden numbers and the oracle, and what must hold whatever the weights are."""

from __future__ import annotations

import math
from typing import Any

import auto_oracle
import golden
import groups_oracle
import numpy as np
import pytest
import weighted
from conformance import same
from group_streams import names_of
from group_streams import world as grouped_world
from hypothesis import given, settings
from hypothesis import strategies as st
from weighted import STREAMS, Weighted, delays, one_by_one

from calibeat import AUTO, Calibrator, Groups
from calibeat.core import layout
from calibeat.core.groups import COLUMN, EVENTS, EVICTED, GROUP_SUMS, GROUP_WEIGHT, OPENED, VARIANCE, WEIGHTS
from calibeat.core.limits import check_row
from calibeat.core.method import PRESETS

LEARN_WEIGHTS = [name for name, method in PRESETS.items() if not method.draws]


def golden_stream(name: str) -> tuple[dict[str, Any], Weighted]:
    g = golden.weights()[name]
    return g, Weighted(g["score"], np.rint(g["outcome"] * g["trials"]), g["weight"], g["trials"])


AT_ONCE = [name for name, g in golden.weights().items() if "due" not in g]
LATE = [name for name, g in golden.weights().items() if "due" in g]


def near(row: Any, expected: Any) -> None:
    """Rows; what staleness and lumps have cost are small differences of logarithms."""
    np.testing.assert_allclose(row, expected, rtol=1e-9, atol=1e-11)


# ---- golden numbers --------------------------------------------------------------------------------------------------


def test_all_golden_cases_are_there() -> None:
    assert len(AT_ONCE) == 10 and LATE == ["late_any_order", "late_with_zeros"]


@pytest.mark.parametrize("name", AT_ONCE)
def test_golden_of_auto(name: str) -> None:
    g, stream = golden_stream(name)
    cal, alone, experts = Calibrator(AUTO), Calibrator(AUTO), []
    due = unknown(stream, np.arange(1, len(stream.scores) + 1))
    forecasts = cal.run(stream.scores, np.nan_to_num(stream.ones), due=due, **stream.how())
    np.testing.assert_allclose(forecasts, g["forecast"], rtol=0, atol=1e-12)
    for i, score in enumerate(stream.scores.tolist()):
        forecast = alone.predict(score)
        experts.append(forecast.expert)
        weighted.settle(alone, stream, i, forecast)
    np.testing.assert_allclose(experts, g["expert"], rtol=0, atol=1e-12)
    near(auto_oracle.as_reference(alone.row), g["row"])


@pytest.mark.parametrize("name", AT_ONCE)
@pytest.mark.parametrize("method", ["ops", "tops"])
def test_golden_of_ops_and_tops(name: str, method: str) -> None:
    g, stream = golden_stream(name)
    cal = Calibrator(method)
    np.testing.assert_allclose(one_by_one(cal, stream), g[method], rtol=0, atol=1e-12)
    check_row_of_ops(cal, g["ops_row"])


def check_row_of_ops(cal: Calibrator, expected: Any) -> None:
    row = np.asarray(cal.row)
    for there, here, count in auto_oracle.OPS_SAME:
        near(row[here : here + count], expected[there : there + count])
    near(auto_oracle.sums_of(row), expected[6:10])
    if cal.method.width > 14:
        bins = row[cal.method.spec.cells :][:20].reshape(10, 2)
        near(bins.T.reshape(-1), expected[10:])


@pytest.mark.parametrize("name", LATE)
def test_golden_streams_that_are_late(name: str) -> None:
    """The oracle learns from beginners, which the vectors do not; of one stream no outcome is a beginner's."""
    g, stream = golden_stream(name)
    cal = Calibrator(AUTO)
    forecasts = cal.run(stream.scores, stream.ones, due=g["due"], **stream.how())
    expected, _, row = auto_oracle.run(g["score"], g["outcome"], g["due"], g["weight"], g["trials"])
    np.testing.assert_allclose(forecasts, expected, rtol=0, atol=1e-12)
    if name == "late_with_zeros":
        np.testing.assert_allclose(forecasts, g["forecast"], rtol=0, atol=1e-12)
        near(row, g["row"])


# ---- the oracle ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
@pytest.mark.parametrize("stream", STREAMS)
def test_auto_is_the_oracle(stream: str, late: bool) -> None:
    given = STREAMS[stream](2500, 3)
    cal, due = Calibrator(AUTO), delays(2500) if late else None
    expected, _, row = auto_oracle.run(given.scores, given.shares, due, given.weights, given.trials)
    if due is None:
        forecasts = one_by_one(cal, given)
    else:
        forecasts = cal.run(given.scores, np.nan_to_num(given.ones), due=unknown(given, due), **given.how())
        expected, _, row = auto_oracle.run(given.scores, given.shares, due, given.weights, given.trials)
    np.testing.assert_allclose(forecasts, expected, rtol=0, atol=1e-11)
    np.testing.assert_allclose(auto_oracle.as_reference(cal.row), row, rtol=1e-8, atol=1e-9)


def unknown(stream: Weighted, due: Any) -> Any:
    """When outcomes come: as in the oracle, none that is due at the end."""
    n = len(stream.scores)
    return np.where(np.isnan(stream.ones) | (due >= n), n + 1, due)


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("method", ["ops", "tops"])
def test_ops_and_tops_are_the_oracle(stream: str, method: str) -> None:
    given = STREAMS[stream](2500, 4)
    cal = Calibrator(method)
    ops, tops, row = auto_oracle.ops_run(given.scores, given.shares, given.weights, given.trials)
    np.testing.assert_allclose(one_by_one(cal, given), ops if method == "ops" else tops, rtol=0, atol=1e-12)
    check_row_of_ops(cal, row)


anything = st.tuples(
    st.floats(0.0, 1.0),
    st.one_of(st.just(1.0), st.just(0.0), st.floats(1e-6, 1e6)),
    st.one_of(st.just(1), st.integers(0, 300)),
    st.floats(0.0, 1.0),
    st.integers(1, 30),
)


@settings(max_examples=60)
@given(st.lists(anything, min_size=1, max_size=60), st.booleans())
def test_auto_is_the_oracle_whatever_comes(events: list[Any], late: bool) -> None:
    scores, weights, trials, shares, lag = map(np.array, zip(*events, strict=True))
    n, ones = len(scores), np.rint(shares * trials)
    given = Weighted(scores, ones, weights, trials.astype(float))
    due = np.arange(n) + lag if late else None
    forecasts = Calibrator(AUTO).run(scores, ones, due=None if due is None else unknown(given, due), **given.how())
    expected, _, _ = auto_oracle.run(scores, given.shares, due, weights, trials)
    np.testing.assert_allclose(forecasts, expected, rtol=0, atol=1e-10)


# ---- groups ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("late", [0, 60], ids=["at once", "late"])
@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("cells", [64, 2**10])
def test_groups_are_the_oracle(stream: str, late: int, cells: int) -> None:
    n = 900
    given = STREAMS[stream](n, 5)
    _, _, columns = grouped_world(n, 2, 20, seed=6)
    due = delays(n, late) if late else np.arange(1, n + 1)
    learnt = np.where(due >= n, np.nan, given.shares)  # the oracle leaves them out
    cal = Calibrator(AUTO, groups=Groups(names_of(2), cells=cells, seed=5))
    words = groups_oracle.Oracle(2, cells=cells, seed=5)
    expected, _, _, oracle = groups_oracle.run(
        given.scores,
        [words.words(row.tolist()) for row in columns],
        learnt,
        due,
        given.weights,
        given.trials,
        cells=cells,
        seed=5,
    )
    come = np.where(np.isnan(learnt), n + 1, due)
    forecasts = cal.run(given.scores, np.nan_to_num(given.ones), due=come, groups=columns, **given.how())
    np.testing.assert_allclose(forecasts, expected, rtol=0, atol=1e-10)
    numbers = np.asarray(cal.row)[AUTO.width :]
    close = {"rtol": 1e-7, "atol": 1e-9}
    np.testing.assert_allclose(numbers[:GROUP_WEIGHT], [oracle.G, oracle.T], **close)
    np.testing.assert_allclose(numbers[GROUP_WEIGHT:OPENED], oracle.w, **close)
    assert (numbers[OPENED], numbers[EVICTED]) == (oracle.opened, oracle.evicted)
    np.testing.assert_allclose(numbers[GROUP_SUMS:].reshape(2, 2, 3), [oracle.A, oracle.B], **close)
    table = cal.segments(least=1)
    found = {(int(k), int(word)): at for at, (k, word) in enumerate(zip(table["column"], table["word"], strict=True))}
    shown = ["events", "mean_score", "mean_expert", "mean_forecast", "log_e"]
    for k, word, events, ones, *means in oracle.segments():
        if events > 0:
            at = found[k, word]
            ours = [table[name][at] for name in shown]
            np.testing.assert_allclose([table["ones"][at], *ours], [ones, events, *means], **close)
    check_records(cal, oracle)


def check_records(cal: Calibrator, oracle: Any) -> None:
    """What a segment does not show: the sums of weights, and V."""
    held = cal._rows.table.read_slots(cal._rows.table.occupied())
    cells = {(cell.column, h): cell for bucket in oracle.buckets.values() for h, cell in bucket}
    assert len(held) == len(cells)
    for record in held:
        numbers = record["numbers"]
        cell = cells[int(numbers[COLUMN]), int(record["word"])]
        ours = numbers[[EVENTS, WEIGHTS, VARIANCE]]
        np.testing.assert_allclose(ours, [cell.events, cell.weight, cell.V], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(("stream", "bets"), [("counted", True), ("heavy", False)])
def test_groups_bet_until_an_outcome_has_another_weight(stream: str, bets: bool) -> None:
    given, n = STREAMS[stream](600, 1), 600
    _, _, columns = grouped_world(n, 1, 3, seed=6)
    cal = Calibrator(AUTO, groups=["a"])
    cal.run(given.scores[:300], (given.ones[:300] > 0) + 0.0, groups=columns[:300])
    before = dict(zip(*[cal.segments(least=1)[name].tolist() for name in ("word", "log_e")], strict=True))
    cal.run(given.scores[300:], given.ones[300:], groups=columns[300:], **given.part(slice(300, n)).how())
    after = dict(zip(*[cal.segments(least=1)[name].tolist() for name in ("word", "log_e")], strict=True))
    assert len(before) == 3 and all((before[word] != after[word]) == bets for word in before)


# ---- only ratios matter ----------------------------------------------------------------------------------------------

SCORES, P, CHANCE = weighted.world(3000, 2)
OUTCOMES = (CHANCE.random(3000) < P).astype(float)


@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
@pytest.mark.parametrize("method", LEARN_WEIGHTS)
def test_equal_weights_are_no_weights(method: str, late: bool) -> None:
    due = {"due": delays(3000)} if late else {}
    plain = Calibrator(method)
    expected = plain.run(SCORES, OUTCOMES, **due)
    for weight in (1.0, 3.0, 0.1, 1e12, 2.0**-30):
        cal = Calibrator(method)
        forecasts = cal.run(SCORES, OUTCOMES, weights=np.full(3000, weight), **due)
        if method in ("tops", "tobs", "twhb") and weight == 0.1:  # means in bins: their sums are rounded
            np.testing.assert_allclose(forecasts, expected, rtol=0, atol=1e-13)
        else:
            same(forecasts, expected)
        if weight == 1.0:
            same(cal.row, plain.row)


@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
@pytest.mark.parametrize("stream", ["thinned", "heavy", "both", "first later"])
@pytest.mark.parametrize("method", LEARN_WEIGHTS)
def test_weights_times_eight_are_the_same(method: str, stream: str, late: bool) -> None:
    given = STREAMS[stream](2600, 6)
    due = unknown(given, delays(2600) if late else np.arange(1, 2601))
    ones, more = np.nan_to_num(given.ones), {} if given.trials is None else {"of": given.trials}
    assert given.weights is not None
    once, eight = (
        Calibrator(method).run(given.scores, ones, weights=w * given.weights, due=due, **more) for w in (1.0, 8.0)
    )
    same(once, eight)
    ignored = Calibrator(method).run(given.scores, ones, due=due, **more)
    if method != "bm" and stream != "first later":  # they are not left out
        assert (once != ignored).any()


@pytest.mark.parametrize("stream", ["heavy", "thinned"])
def test_groups_learn_from_ratios(stream: str) -> None:
    given = STREAMS[stream](1200, 6)
    _, _, columns = grouped_world(1200, 2, 20, seed=6)
    assert given.weights is not None

    def run(weights: Any, outcomes: Any) -> Any:
        due = unknown(given._replace(ones=outcomes), np.arange(1, 1201))
        cal = Calibrator(AUTO, groups=Groups(names_of(2), cells=64, seed=5))
        return cal.run(given.scores, np.nan_to_num(outcomes), weights=weights, groups=columns, due=due)

    same(run(given.weights, given.ones), run(8.0 * given.weights, given.ones))
    for weight in (1.0, 3.0, 0.1):
        same(run(np.full(1200, weight), given.ones), run(None, given.ones))


# ---- the sums that a row keeps ---------------------------------------------------------------------------------------


def test_the_row_says_what_the_weights_were() -> None:
    given = weighted.heavy(300, 1)
    cal = Calibrator("ops")
    one_by_one(cal, given)
    assert given.weights is not None
    learnt = given.weights[given.weights > 0.0]
    assert cal.outcomes == len(learnt) < 300
    clipped = float(cal.row[layout.CLIPPED])
    assert cal.row[layout.TOTAL] == pytest.approx(learnt.sum()) or clipped > 0
    plain = Calibrator("ops")
    plain.run(SCORES, OUTCOMES)
    assert (plain.row[layout.TOTAL : layout.TOTAL + 3] == 0.0).all() and plain.row[layout.SUM_SQUARED] == 0.0


def test_one_wild_weight_does_not_decide() -> None:
    """One weight of 1e6 among ones: clipped, and the stream goes on nearly as without it."""
    weights = np.ones(3000)
    weights[200] = 1e6
    cal = Calibrator(AUTO)
    wild, calm = cal.run(SCORES, OUTCOMES, weights=weights), Calibrator(AUTO).run(SCORES, OUTCOMES)
    assert cal.row[layout.CLIPPED] == 1.0

    def loss(forecasts: Any) -> float:
        return float(-np.log(np.where(OUTCOMES == 1.0, forecasts, 1.0 - forecasts)).mean())

    assert loss(wild) < loss(calm) + 0.02


# ---- whatever the weights are ----------------------------------------------------------------------------------------

EACH = 10_000


def of_kind(kind: str, n: int, seed: int) -> Weighted:
    scores, p, rng = weighted.world(n, seed)
    y = (rng.random(n) < p).astype(float)
    match kind:
        case "counts":
            trials = np.floor(np.exp(rng.uniform(0.0, math.log(1e6 + 1.0), n)))
            return Weighted(scores, rng.binomial(trials.astype(np.int64), p).astype(float), None, trials)
        case "counts and weights":
            trials = np.floor(np.exp(rng.uniform(0.0, math.log(1e6 + 1.0), n)))
            ones = rng.binomial(trials.astype(np.int64), p).astype(float)
            return Weighted(scores, ones, np.exp(rng.uniform(math.log(1e-6), math.log(1e6), n)), trials)
        case "against":
            ones = (scores < 0.5).astype(float)
            return Weighted(scores, ones, np.where(rng.random(n) < 0.01, 1e6, 1e-6))
    weights = {
        "lognormal": lambda: np.exp(rng.normal(0.0, 5.0, n)),
        "one in a thousand": lambda: np.where(np.arange(n) % 1000 == 500, 1e6, 1.0),
        "from 1e-6 to 1e6": lambda: np.exp(rng.uniform(math.log(1e-6), math.log(1e6), n)),
        "alternating": lambda: np.where(np.arange(n) % 2 == 1, 1e6, 1.0),
        "pareto": lambda: rng.pareto(0.5, n) + 1e-6,
        "rises": lambda: 10.0 ** np.linspace(-6.0, 6.0, n),
        "falls": lambda: 10.0 ** np.linspace(6.0, -6.0, n),
    }[kind]()
    return Weighted(scores, y, np.clip(weights, 1e-6, 1e12))


WILD = (
    "lognormal",
    "one in a thousand",
    "from 1e-6 to 1e6",
    "alternating",
    "pareto",
    "rises",
    "falls",
    "counts",
    "counts and weights",
    "against",
)


def lost(p: Any, y: Any) -> Any:
    """The log-loss of forecasts, in nats; y may be a share."""
    return -(y * np.log(p) + (1.0 - y) * np.log1p(-p))


@pytest.mark.slow
@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
@pytest.mark.parametrize("kind", WILD)
def test_what_is_proved_holds_for_wild_weights(kind: str, late: bool) -> None:
    """200,000 events in all. The certificates: the mixture against each lane, the forecast against the mixture."""
    given, due = of_kind(kind, EACH, 9), delays(EACH, 60.0) if late else np.arange(1, EACH + 1)
    cal, waiting, learnt, omegas = Calibrator(AUTO), {}, [], []
    sums, trials = np.zeros(4), np.ones(EACH) if given.trials is None else given.trials
    order, next_one, said = np.argsort(due, kind="stable"), 0, np.empty((EACH, 9))
    heavy = np.ones(EACH) if given.weights is None else given.weights
    forecasts = np.empty(EACH)
    for i in range(EACH + 1):
        while next_one < EACH and due[order[next_one]] <= i and (i < EACH or not late):
            at = int(order[next_one])
            weighted.settle(cal, given, at, waiting.pop(at))
            v = auto_oracle.spread(given.shares[at], forecasts[at])
            omega, _ = auto_oracle.pace(sums, 0, len(learnt), heavy[at], trials[at], v)
            omegas.append(omega)
            learnt.append(at)
            next_one += 1
        if i < EACH:
            waiting[i] = forecast = cal.predict(float(given.scores[i]))
            forecasts[i], said[i] = forecast.probability, forecast.lanes[2:11]
    assert np.isfinite(forecasts).all() and ((forecasts > 0.0) & (forecasts < 1.0)).all()
    check_row(AUTO, cal.row, cal.events)
    row, n, omega, y = auto_oracle.as_reference(cal.row), len(learnt), np.array(omegas), given.shares[learnt]
    near(row[auto_oracle.S1 :], sums)
    lanes = np.column_stack([said[learnt, :5], np.clip(given.scores[learnt], 1e-5, 1.0 - 1e-5)])
    mixture = float((omega * lost(said[learnt, 5], y)).sum())
    best = float((omega[:, None] * lost(lanes, y[:, None])).sum(axis=0).min())
    K = 7 if late else 6
    assert (row[auto_oracle.WH] > 0.0) == late
    slack = 1e-9 * (1.0 + mixture)
    assert mixture <= best + allowed(K, n, row[auto_oracle.GW]) + slack
    forecast = float((omega * lost(forecasts[learnt], y)).sum())
    assert forecast <= mixture + allowed(3, n, row[auto_oracle.GV]) + slack


def allowed(K: int, n: int, G: float) -> float:
    """What a mixture of K parts may lose more than its best part, after n outcomes, in nats."""
    regret = math.log(K) + (1.0 - 1.0 / K) / 2.0 * math.log(n) + math.lgamma(0.5 + 0.5 / K)
    return (1.0 + G) * regret + G


@settings(max_examples=100)
@given(st.lists(st.tuples(st.floats(0.0, 1.0), st.booleans(), st.floats(0.0, 1e12)), min_size=1, max_size=40))
@pytest.mark.parametrize("method", ["auto", "tobs", "whb", "wbs", "bm"])
def test_any_weight_that_is_taken_does_no_harm(method: str, events: list[tuple[float, bool, float]]) -> None:
    """Also those that floats hardly hold."""
    scores, outcomes, weights = map(np.array, zip(*events, strict=True))
    cal = Calibrator(method)
    for late in ({}, {"due": np.arange(len(scores)) + 3}):
        forecasts = cal.run(scores, outcomes, weights=weights, **late)
        assert np.isfinite(forecasts).all() and ((forecasts >= 0.0) & (forecasts <= 1.0)).all()
    check_row(cal.method, cal.row, cal.events)
    Calibrator.from_json(cal.to_json())
