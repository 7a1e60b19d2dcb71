"""Contenders beside our methods: rivals, columns, other scores, and other kinds of keys; outcomes late or at once."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from streams import drifting

import calibeat
from calibeat import AUTO, HOPS, OPS, TOPS, Bank, Calibrator, InvalidInput, metrics
from calibeat.backtest.read import rows as row_reader
from calibeat.rivals import Host

N = 600
SCORES, OUTCOMES = drifting(N)
KEYS = np.random.default_rng(1).choice(["a", "b", "c", "d"], N, p=[0.6, 0.3, 0.07, 0.03])
OTHER = np.clip(0.5 * SCORES + 0.25, 0.0, 1.0)
WAITS = np.random.default_rng(2).integers(1, 40, N)
SECONDS = 10 * np.arange(N)
DUE = np.arange(N) + WAITS  # an outcome that is known just when a score is issued is learnt before it


class Mean:
    """The mean outcome so far, and the score: what it says depends on what it has learnt."""

    def __init__(self) -> None:
        self.sum, self.n = 0.5, 1.0

    def predict(self, score: float) -> float:
        return 0.5 * score + 0.5 * self.sum / self.n

    def update(self, score: float, outcome: float) -> None:
        assert 0.0 <= score <= 1.0
        self.sum, self.n = self.sum + outcome, self.n + 1.0


@pytest.fixture(params=[None, 90], ids=["whole", "cut"])
def cut(request, monkeypatch):
    """However the log is cut into chunks."""
    if request.param is not None:
        monkeypatch.setattr(row_reader, "CHUNK", request.param)
        monkeypatch.setattr(row_reader, "FIRST_EVENTS", 0)


def replayed(*columns, **options):
    result = calibeat.backtest(*columns, keep_forecasts=True, **options)
    return {name: values.tolist() for name, values in result.forecasts.items()}


LATE = {"times": SECONDS, "outcome_times": SECONDS + 10 * WAITS}


@pytest.mark.parametrize("rival", [Mean, Mean(), partial(Mean)], ids=["class", "object", "function"])
def test_a_rival_learns_when_outcomes_are_due(cut, rival):  # noqa: ARG001 - cuts the log
    at_once = replayed(SCORES, OUTCOMES, methods={"mine": rival, "ops": OPS})
    assert list(at_once) == ["raw", "mine", "ops"]
    assert at_once["mine"] == Host(Mean).run(SCORES, OUTCOMES).tolist()
    late = replayed(SCORES, OUTCOMES, methods={"mine": rival}, **LATE)
    assert late["mine"] == Host(Mean).run(SCORES, OUTCOMES, due=DUE).tolist()
    events = replayed(SCORES, OUTCOMES, methods={"mine": rival}, delay=7)
    assert events["mine"] == Host(Mean).run(SCORES, OUTCOMES, due=np.arange(N) + 8).tolist()


def test_every_key_has_a_rival_of_its_own(cut):  # noqa: ARG001
    known = np.where(np.arange(N) % 5 == 4, np.nan, OUTCOMES)
    found = replayed(SCORES, known, KEYS, methods={"mine": Mean})["mine"]
    for key in np.unique(KEYS):
        mine = key == KEYS
        assert np.array(found)[mine].tolist() == Host(Mean).run(SCORES[mine], known[mine]).tolist()


def test_a_rival_forecasts_the_raw_score_until_it_has_learnt_where_that_is_asked(cut):  # noqa: ARG001
    found = np.array(replayed(SCORES, OUTCOMES, KEYS, methods={"mine": Mean}, mature=25)["mine"])
    plain = np.array(replayed(SCORES, OUTCOMES, KEYS, methods={"mine": Mean}, delay=25)["mine"])
    for key in np.unique(KEYS):
        rows = np.flatnonzero(key == KEYS)
        early = rows[: np.searchsorted(rows, rows[0] + 26)]
        assert found[early].tolist() == SCORES[early].tolist()
        assert found[rows[len(early) :]].tolist() == plain[rows[len(early) :]].tolist()


def test_a_rival_that_says_nonsense_is_named():
    wrong = type("Wrong", (), {"predict": lambda _, score: score + 1.0, "update": Mean.update})
    with pytest.raises(InvalidInput, match=r"mine must predict a probability in \[0, 1\], got 1\..* - at event 0"):
        calibeat.backtest(SCORES, OUTCOMES, methods={"mine": wrong})
    with pytest.raises(InvalidInput, match="methods must map names to methods, presets' names or objects with predict"):
        calibeat.backtest(SCORES, OUTCOMES, methods={"mine": 3})
    with pytest.raises(InvalidInput, match="methods must not give the name of the raw score"):
        calibeat.backtest(SCORES, OUTCOMES, methods={"raw": Mean})


def test_a_column_of_forecasts_is_judged_as_it_is(cut):  # noqa: ARG001
    result = calibeat.backtest(SCORES, OUTCOMES, rivals={"theirs": OTHER, "auto": OTHER}, methods="auto", warmup=100)
    assert result.table["method"].tolist() == ["raw", "auto", "theirs", "auto (log)"]
    at = result.table["method"].tolist().index("theirs")
    assert result.table["log_loss"][at] == pytest.approx(metrics.log_loss(OUTCOMES[100:], OTHER[100:]))
    assert result.table["ce"][at] == pytest.approx(metrics.calibration_error(OUTCOMES[100:], OTHER[100:]))
    assert next(m["about"] for m in result.payload["methods"] if m["name"] == "theirs").startswith("Forecasts that")


@pytest.mark.parametrize(
    ("rival", "said"),
    [
        (np.where(np.arange(N) == 7, 1.5, OTHER), r"rival 1 must be in \[0, 1\], got 1.5 - at row 7; say skip_bad"),
        (np.where(np.arange(N) == 7, np.nan, OTHER), r"rival 1 must be in \[0, 1\], got nothing - at row 7"),
    ],
)
def test_a_rival_must_forecast_every_event(rival, said):
    with pytest.raises(InvalidInput, match=said):
        calibeat.backtest(SCORES, OUTCOMES, rivals={"theirs": rival}, methods="ops")
    data = calibeat.backtest(SCORES, OUTCOMES, rivals={"theirs": rival}, methods="ops", skip_bad=True).payload["data"]
    assert data["used"] == N - 1 and data["skipped"][0]["reason"] == "rival is not in [0, 1]"


def test_a_rival_of_logits_is_a_probability():
    logits = np.log(SCORES / (1.0 - SCORES))
    found = replayed(
        logits, OUTCOMES, rivals={"theirs": OTHER}, score={"new": logits}, methods="ops", score_kind="logit"
    )
    assert found["theirs"] == OTHER.tolist()
    np.testing.assert_allclose(found["new"], SCORES)


@pytest.mark.parametrize("late", [{}, LATE], ids=["at once", "late"])
def test_another_model_is_replayed_on_its_own_scores(cut, late):  # noqa: ARG001
    found = replayed(SCORES, OUTCOMES, score={"new": OTHER}, methods=["ops", "fps", "raw"], **late)
    assert list(found) == ["raw", "ops", "fps", "new", "OPS of new", "FPS of new"]
    plain = replayed(OTHER, OUTCOMES, methods=["ops", "fps"], **late)
    assert (found["new"], found["OPS of new"], found["FPS of new"]) == (OTHER.tolist(), plain["ops"], plain["fps"])
    few = calibeat.backtest(SCORES, OUTCOMES, score={"new": OTHER}, **late)
    assert [name for name in few.table["method"].tolist() if "new" in name] == ["new", "AUTO of new"]
    assert any("Methods of 'new' say so in their names" in note for note in few.payload["data"]["notes"])


@pytest.mark.parametrize("method", [OPS, AUTO])
@pytest.mark.parametrize("late", [{}, {"delay": 17}], ids=["at once", "late"])
def test_keys_are_also_tried_without_and_with_a_pooled_start(cut, method, late):  # noqa: ARG001
    found = replayed(SCORES, OUTCOMES, KEYS, methods={"it": method}, **late)
    due = np.arange(N) + 18 if late else None  # a bank learns what comes between two events of a key by position
    assert list(found) == ["raw", "it", "it without keys", "it with a pooled start"]
    assert found["it without keys"] == Calibrator(method).run(SCORES, OUTCOMES, due=due).tolist()
    pooled = Bank(method, prior="pooled").run(KEYS, SCORES, OUTCOMES, due=due)
    assert found["it with a pooled start"] == pooled.tolist()
    assert found["it"] == Bank(method).run(KEYS, SCORES, OUTCOMES, due=due).tolist()


def test_a_pooled_start_where_outcomes_are_missing_and_where_a_method_draws(cut):  # noqa: ARG001
    missing = np.arange(N) % 7 == 3
    some, due = np.where(missing, np.nan, OUTCOMES), np.where(missing, N + 1, np.arange(1, N + 1))
    for method in (AUTO, TOPS, HOPS):
        found = replayed(SCORES, some, KEYS, methods={"it": method})
        assert found["it with a pooled start"] == Bank(method, prior="pooled").run(KEYS, SCORES, some).tolist()
        if method != HOPS:  # without keys it draws other numbers: they count within a key
            assert found["it without keys"] == Calibrator(method).run(SCORES, OUTCOMES, due=due).tolist()


def test_with_rivals_only_there_are_no_other_kinds_of_keys():
    assert list(replayed(SCORES, OUTCOMES, KEYS, methods={"mine": Mean})) == ["raw", "mine"]


def test_ones_that_come_later_do_not_mature_a_rival():
    """Where ones and zeros come at different ages AUTO is replayed at one age; a rival is not."""
    waits = np.where(OUTCOMES == 1.0, 600, 10)
    names = replayed(SCORES, OUTCOMES, None, SECONDS, SECONDS + waits, methods={"mine": Mean})
    assert list(names) == ["raw", "mine"]


# ---- the base rate -----------------------------------------------------------------------------------------------


def shares(known, K):
    """What the base rate forecasts once these labels are known."""
    return (np.bincount(np.array(known, dtype=int), minlength=K) + 1.0 / K) / (len(known) + 1.0)


@pytest.mark.parametrize("delayed", [False, True])
@pytest.mark.usefixtures("cut")
def test_the_base_rate_is_the_mean_of_the_outcomes_that_are_known(delayed):
    outcomes = np.where(np.arange(N) % 11 == 4, np.nan, OUTCOMES)
    known = np.where(np.isnan(outcomes), np.nan, SECONDS + 10.0 * (WAITS - 0.5))
    late = {"times": SECONDS, "outcome_times": known} if delayed else {}
    result = calibeat.backtest(SCORES, outcomes, methods=["ops", "base rate"], keep_forecasts=True, **late)
    due = DUE if delayed else np.arange(N) + 1
    there = ~np.isnan(outcomes)
    expected = [shares(outcomes[there & (due <= i)], 2)[1] for i in range(N)]
    np.testing.assert_allclose(result.forecasts["base rate"], expected, rtol=1e-14)
    assert result.table["method"].tolist() == ["raw", "ops", "base rate"]
    if delayed:
        assert "base rate" in result.payload["delay"]["immediate"]


@pytest.mark.parametrize("delay", [0, 25])
@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.usefixtures("cut")
def test_the_base_rate_of_many_classes(K, delay):
    rng = np.random.default_rng(K)
    P, labels = rng.dirichlet(np.ones(K), 300), rng.integers(0, K, 300)
    result = calibeat.backtest(P, labels, keep_forecasts=True, delay=delay)
    expected = [shares(labels[: max(0, i - delay)], K) for i in range(300)]
    np.testing.assert_allclose(result.forecasts["base rate"], expected, rtol=1e-14)


@pytest.mark.usefixtures("cut")
def test_the_base_rate_looks_at_no_keys_and_waits_for_its_first_outcome():
    plain, keyed = (
        calibeat.backtest(SCORES, OUTCOMES, keys, methods="auto, base rate", keep_forecasts=True)
        for keys in (None, KEYS)
    )
    np.testing.assert_array_equal(plain.forecasts["base rate"], keyed.forecasts["base rate"])
    held = calibeat.backtest(SCORES, OUTCOMES, methods="ops, base rate", mature=30, keep_forecasts=True).forecasts
    np.testing.assert_array_equal(held["base rate"][:31], SCORES[:31])
    assert held["base rate"][31] == shares(OUTCOMES[:1], 2)[1]


def test_the_base_rate_is_replayed_by_default_and_shown_where_it_was_asked_for():
    usual = calibeat.backtest(SCORES, OUTCOMES, keep_forecasts=True)
    assert usual.table["method"].tolist()[-1] == "base rate" and "base rate" in usual.forecasts
    named = calibeat.backtest(SCORES, OUTCOMES, methods="ops", keep_forecasts=True)
    assert named.table["method"].tolist() == list(named.forecasts) == ["raw", "ops"]
    shown = named.payload
    assert "base rate" not in {*shown["windows"]["methods"], *shown["evalue"]["methods"], *shown["paging"]["methods"]}
    assert any("base rate" in sentence for sentence in shown["verdict"]["caveats"] + shown["verdict"]["sentences"])
    mine = calibeat.backtest(SCORES, OUTCOMES, methods={"base rate": OPS})
    assert mine.table["log_loss"][1] == named.table["log_loss"][1]
