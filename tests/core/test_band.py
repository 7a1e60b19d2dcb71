"""The interval of a forecast: against golden numbers and the oracle, and what must hold whatever happens."""

from __future__ import annotations

import math
from typing import Any

import band_oracle
import golden
import numpy as np
import pytest
import weighted
from band_oracle import REASONS
from conformance import delays, one_by_one_late, same
from hypothesis import given, settings
from hypothesis import strategies as st
from streams import STREAMS

from calibeat import Bands, Bank, Calibrator
from calibeat.core import band
from calibeat.core.kernel import ask, how_sure

CASES = sorted(golden.band())
RECORD = band_oracle.WIDTH


def record_of(cal: Any) -> Any:
    """The record, behind AUTO's row."""
    return np.array(cal.row[cal.method.spec.band :][:RECORD])


def near(found: Bands, expected: Any) -> None:
    """The answers of the oracle, or of a golden case."""
    np.testing.assert_allclose(found.probabilities, expected["probability"], rtol=0, atol=1e-9)
    np.testing.assert_allclose(found.low, expected["low"], rtol=0, atol=1e-9)
    np.testing.assert_allclose(found.high, expected["high"], rtol=0, atol=1e-9)
    np.testing.assert_allclose(found.outcomes, expected["outcomes"], rtol=1e-7, atol=1e-7)
    assert found.reason.tolist() == [REASONS[int(code)] for code in expected["reason"]]


def near_record(cal: Any, expected: Any) -> None:
    """The record; of the open block only if there is one."""
    np.testing.assert_allclose(record_of(cal), expected, rtol=1e-7, atol=1e-7)


# ---- golden numbers and the oracle ---------------------------------------------------------------------------------


def test_all_golden_cases_are_there() -> None:
    assert CASES == ["atoms", "over", "random_late", "rare_batches", "walk_late"]
    seen = np.concatenate([g["reason"] for g in golden.band().values()])
    assert set(seen.tolist()) == set(range(len(REASONS)))


@pytest.mark.parametrize("case", CASES)
def test_golden(case: str) -> None:
    g = golden.band()[case]
    cal = Calibrator(band=True)
    near(cal.run(g["score"], g["outcome"], due=g["due"], band=True), g)
    near_record(cal, g["record"])


@pytest.mark.parametrize("case", CASES)
def test_the_oracle_gives_the_golden_numbers(case: str) -> None:
    g = golden.band()[case]
    found = band_oracle.run(g["score"], g["outcome"].astype(float), g["due"])
    for name in ("probability", "low", "high", "outcomes", "record"):
        np.testing.assert_allclose(
            getattr(found, name), g[name], rtol=1e-9, atol=2e-7 if name == "probability" else 1e-9
        )
    assert found.reason.tolist() == g["reason"].tolist()


PATTERNS: dict[str, Any] = {
    "at once": lambda n: np.arange(1, n + 1),
    "seven late": lambda n: np.arange(n) + 8,
    "batches": lambda n: np.arange(n) // 25 * 25 + 25,
    "random": lambda n: np.arange(n) + 1 + np.random.default_rng(n).integers(0, 60, n),
    "some never": delays,
}


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("stream", ["random", "drifting", "adversarial", "extreme"])
def test_it_is_the_oracle(stream: str, pattern: str) -> None:
    scores, outcomes = STREAMS[stream]()
    due = PATTERNS[pattern](len(scores))
    cal, expected = Calibrator(band=True), band_oracle.run(scores, outcomes, due)
    near(cal.run(scores, outcomes, due=due, band=True), expected._asdict())
    near_record(cal, expected.record)


@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
@pytest.mark.parametrize("stream", weighted.STREAMS)
def test_weights_and_counts_are_the_oracle(stream: str, late: bool) -> None:
    """An outcome worth omega events counts omega times in blocks and cells."""
    of = weighted.STREAMS[stream](1500, 5)
    n = len(of.scores)
    due = weighted.delays(n) if late else np.arange(1, n + 1)
    due = np.where(np.isnan(of.ones), n + 1, due)
    cal = Calibrator(band=True)
    found = cal.run(of.scores, np.nan_to_num(of.ones), due=due, band=True, **of.how())
    expected = band_oracle.run(of.scores, of.shares, due, of.weights, of.trials)
    for name in ("low", "high"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=0, atol=1e-8)
    assert found.reason.tolist() == [REASONS[int(code)] for code in expected.reason]
    np.testing.assert_allclose(record_of(cal), expected.record, rtol=1e-6, atol=1e-6)
    same(Calibrator.from_json(cal.to_json()).row.copy(), cal.row.copy())  # the limits of a row let weights through


@pytest.mark.parametrize("kept", [(1.0, 0.05), (0.2, 1.0)])
def test_a_thinned_log_is_the_oracle(kept: tuple[float, float]) -> None:
    """The row and its record are in the odds of the log, the answers in those of all events."""
    scores, outcomes = STREAMS["drifting"]()
    cal, plain = Calibrator(band=True, kept=kept), Calibrator(band=True)
    found, expected = cal.run(scores, outcomes, band=True), band_oracle.run(scores, outcomes, kept=kept)
    near(found, expected._asdict())
    near_record(cal, expected.record)
    odds = kept[0] / kept[1]
    in_log = plain.run(scores * odds / (scores * odds + 1.0 - scores), outcomes, band=True)
    for name in ("low", "high"):
        p, q = getattr(found, name), getattr(in_log, name)
        np.testing.assert_allclose(p * odds / (1.0 - p), q / (1.0 - q), rtol=1e-7)
    np.testing.assert_allclose(found.outcomes, in_log.outcomes, rtol=1e-7, atol=1e-9)


# ---- laws ----------------------------------------------------------------------------------------------------------

anything = st.tuples(
    st.one_of(st.floats(0.0, 1.0), st.sampled_from([0.0, 1e-5, 1e-300, 0.5, 1.0 - 1e-5, 1.0])),
    st.booleans(),
    st.integers(1, 40),
)


def check_laws(found: Any, learned: Any) -> None:
    """What holds of each answer; `learned`: how many outcomes were known."""
    assert ((found.low >= 0.0) & (found.low <= found.probabilities)).all()
    assert ((found.probabilities <= found.high) & (found.high <= 1.0)).all()
    assert ((found.outcomes >= 0.0) & (found.outcomes <= learned)).all()
    assert (found.reason[found.outcomes == 0.0] == "too few outcomes").all()
    assert (found.reason[found.outcomes < 10.0] == "too few outcomes").all()
    assert np.isfinite(np.stack([found.low, found.high, found.outcomes])).all()


def known_at(due: Any) -> Any:
    """How many outcomes were known at each event."""
    return np.searchsorted(np.sort(due), np.arange(len(due)), side="right")


@settings(max_examples=60, deadline=None)
@given(st.lists(anything, min_size=1, max_size=120))
def test_the_laws_whatever_happens(events: list[Any]) -> None:
    scores, outcomes, lag = map(np.array, zip(*events, strict=True))
    due = np.arange(len(scores)) + lag
    found = Calibrator(band=True).run(scores, outcomes.astype(float), due=due, band=True)
    check_laws(found, known_at(due))


@pytest.mark.parametrize("score", [0.0, 1e-7, 1e-4, 0.03, 0.5, 0.999, 1.0])
@pytest.mark.parametrize("outcome", [0.0, 1.0])
def test_the_laws_where_one_score_has_one_outcome_forever(score: float, outcome: float) -> None:
    n = 20_000
    scores = np.full(n, score)
    scores[::50] = np.linspace(0.0, 1.0, n // 50)
    found = Calibrator(band=True).run(scores, np.full(n, outcome), band=True)
    check_laws(found, np.arange(n))


def test_the_interval_narrows_in_a_still_world_and_widens_after_a_change() -> None:
    rng = np.random.default_rng(2)
    scores = 1.0 / (1.0 + np.exp(-rng.normal(0.0, 1.5, 6000)))
    truth = np.where(np.arange(6000) < 4000, scores, scores**3)
    outcomes = (rng.random(6000) < truth).astype(float)
    found = Calibrator(band=True).run(scores, outcomes, band=True)
    width = [(found.high - found.low)[first : first + 500].mean() for first in (0, 500, 3500, 4100)]
    assert width[0] > width[1] > width[2] and width[3] > 1.5 * width[2]
    inside = (found.low <= truth) & (truth <= found.high)
    assert inside[200:4000].mean() > 0.95
    assert inside[4000:4050].mean() < 0.9  # nobody can know yet
    assert inside[4500:].mean() > 0.85


ADVERSARIES: dict[str, Any] = {
    "alternating": lambda n: np.arange(n) % 2,
    "runs of 50": lambda n: np.arange(n) // 50 % 2,
    "runs of 200": lambda n: np.arange(n) // 200 % 2,
    "runs that grow": lambda n: np.floor(np.sqrt(np.arange(n))) % 2,
    "always one": np.ones,
}
ALL_WRONG = 62.0  # ln 400 / 0.1, and what the larger first steps add
NEAR_CAP = math.log(band_oracle.K_HIGH) - 0.5


@pytest.mark.parametrize("wide", [False, True], ids=["one score", "all scores"])
@pytest.mark.parametrize("adversary", ADVERSARIES)
def test_the_theorem_of_the_record(adversary: str, wide: bool) -> None:
    """Of K blocks at most .05 + 62/K lie outside, whatever the stream does, while kappa has not reached its cap."""
    n, step = 20_000, 100
    outcomes = ADVERSARIES[adversary](n).astype(float)
    scores = np.random.default_rng(0).random(n) if wide else np.full(n, 0.5)
    cal, most = Calibrator(band=True), 0.0
    for first in range(0, n, step):
        cal.run(scores[first : first + step], outcomes[first : first + step])
        most = max(most, record_of(cal)[band_oracle.LK])
        if most > NEAR_CAP:  # a hundred outcomes hold one or two blocks outside, which raise it by a tenth each
            break
        check_theorem(cal)
    blocks = record_of(cal)[band_oracle.K]
    assert blocks > (3 if adversary == "always one" else 150)
    assert adversary != "runs that grow" or most > NEAR_CAP


@pytest.mark.parametrize("late", [0, 30])
def test_the_theorem_against_one_who_reads_the_forecast(late: int) -> None:
    """Each outcome is the one that the forecast thinks less likely."""
    rng, cal, waiting = np.random.default_rng(1), Calibrator(band=True), []
    for score in rng.random(8000).tolist():
        f = cal.predict(score)
        waiting.append((f, int(f.probability < 0.5)))
        if len(waiting) > late:
            cal.update(*waiting.pop(0))
    check_theorem(cal)
    record = record_of(cal)
    assert record[band_oracle.K] > 200 and record[band_oracle.LK] < NEAR_CAP


def check_theorem(cal: Any) -> None:
    record = record_of(cal)
    blocks, outside = record[band_oracle.K], record[band_oracle.MISSED]
    assert cal.params["band"] == pytest.approx(
        {"blocks": blocks, "outside": outside, "kappa": math.exp(record[band_oracle.LK])}, rel=1e-12
    )
    assert outside <= band_oracle.MISS * blocks + ALL_WRONG


# ---- forecasts keep their bits -------------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("stream", ["random", "drifting", "extreme"])
def test_the_band_moves_no_forecast_and_no_number_of_the_row(stream: str, pattern: str) -> None:
    scores, outcomes = STREAMS[stream]()
    due = PATTERNS[pattern](len(scores))
    off, on, asked = Calibrator(), Calibrator(band=True), Calibrator(band=True)
    plain = off.run(scores, outcomes, due=due)
    same(on.run(scores, outcomes, due=due), plain)
    same(asked.run(scores, outcomes, due=due, band=True).probabilities, plain)
    row = asked.row.copy()
    same(row, on.row.copy())
    same(row[: asked.method.spec.band].copy(), off.row.copy())
    same(asked.predict_many(scores), off.predict_many(scores))
    assert len(off.row) + RECORD <= len(row)


@pytest.mark.parametrize("stream", ["thinned", "both"])
def test_the_band_moves_no_forecast_with_weights(stream: str) -> None:
    of = weighted.STREAMS[stream](400, 1)
    due = np.where(np.isnan(of.ones), 401, np.arange(1, 401))
    off, on = Calibrator(), Calibrator(band=True)
    plain = off.run(of.scores, np.nan_to_num(of.ones), due=due, **of.how())
    same(on.run(of.scores, np.nan_to_num(of.ones), due=due, band=True, **of.how()).probabilities, plain)


@pytest.mark.parametrize("pattern", ["at once", "random"])
def test_every_host_gives_the_same_bits(pattern: str) -> None:
    scores, outcomes = STREAMS["drifting"]()
    n = len(scores)
    due = PATTERNS[pattern](n)
    whole, single, bank = Calibrator(band=True), Calibrator(band=True), Bank(band=True)
    found = whole.run(scores, outcomes, due=due, band=True)
    made: list[Any] = []

    class Noting:
        """A calibrator whose forecasts are kept."""

        update = single.update

        def predict(self, score: float) -> Any:
            made.append(single.predict(score))
            return made[-1]

    same(one_by_one_late(Noting(), scores, outcomes, due), found.probabilities)
    same(np.array([f.low for f in made]), found.low)
    same(np.array([f.high for f in made]), found.high)
    same(np.array([f.outcomes for f in made]), found.outcomes)
    assert [f.reason for f in made] == found.reason.tolist()
    in_bank = bank.run(["k"] * n, scores, outcomes, due=due, band=True)
    for name in ("probabilities", "low", "high", "outcomes"):
        same(getattr(in_bank, name), getattr(found, name))
    assert in_bank.reason.tolist() == found.reason.tolist()
    many, batch = whole.predict_many(scores, band=True), whole.issue(scores)
    for i in range(0, n, 17):
        peeked = whole.peek(float(scores[i]))
        assert (peeked.low, peeked.high, peeked.outcomes, peeked.reason) == tuple(
            column[i] for column in (many.low, many.high, many.outcomes, many.reason)
        )
        assert (batch.low[i], batch.high[i], batch.reason[i]) == (many.low[i], many.high[i], many.reason[i])


def test_each_reason_by_its_record() -> None:
    """The kernel as Python: reasons in the order of the table, each by the numbers of the row that bring it."""
    calibrator = Calibrator(band=True)
    scores = np.random.default_rng(0).random(1500)
    calibrator.run(scores, np.random.default_rng(1).random(1500) < scores)
    method, forecast = calibrator.method, calibrator.predict(0.6)
    record, receipt = method.spec.band, np.array(forecast.lanes)
    asked = ask(method.spec, calibrator.row.copy(), 0.6, receipt.copy())

    def reason(**changes: float) -> float:
        row = calibrator.row.copy()
        for name, value in changes.items():
            row[record + getattr(band, name)] = value
        return how_sure(method.spec, row, asked, float(forecast), receipt).reason

    cells = {"SPREAD": 4000.0, "SQUARES": 1000.0}
    assert reason(LN_KAPPA=6.0) == 1.0
    assert reason(TESTS=0.0) == 2.0
    assert reason(LN_KAPPA=1.2) == 3.0
    assert reason(**cells) in (1.0, 4.0)
    assert reason() == 0.0
