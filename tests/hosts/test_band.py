"""The band on the hosts: what it refuses, how it travels, and that every way to ask gives the same bits."""

from __future__ import annotations

import copy
import json
import math
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibeat import (
    AUTO,
    GAUTO,
    NOT_YET,
    OPS,
    Bands,
    Bank,
    Calibrator,
    Forecast,
    InvalidInput,
    Lanes,
    Method,
    MultiBank,
    MultiCalibrator,
    SnapshotMismatch,
)
from calibeat.core.band import BLOCK_H, BLOCKS, CELL_H, IS_TEST, LN_KAPPA, RECORD, Estimate
from calibeat.core.weights import in_log, in_truth
from calibeat.hosts.receipts import Receipts

BANDED = replace(AUTO, band=True)
WIDTH = AUTO.width
NAMES = ("low", "high", "outcomes", "reason")


def events(count: int, seed: int = 3) -> tuple[Any, Any]:
    """Scores that are too sure, some of them 0 and 1, and outcomes."""
    rng = np.random.default_rng(seed)
    z = rng.normal(0.0, 1.5, count)
    scores = 1.0 / (1.0 + np.exp(-2.0 * z))
    scores[rng.random(count) < 0.02] = 1.0
    return scores, (rng.random(count) < 1.0 / (1.0 + np.exp(-z))).astype(int)


def wrong(value: Any) -> Any:
    """What a type checker would refuse."""
    return value


def columns(forecasts: list[Any]) -> Bands:
    return Bands(*(np.array([getattr(f, name) for f in forecasts]) for name in ("probability", *NAMES)))


def assert_same(one: Any, other: Any) -> None:
    """Bands, to the last bit."""
    for name, mine, its in zip(Bands._fields, one, other, strict=True):
        np.testing.assert_array_equal(mine, its, err_msg=name)


def one_by_one(host: Any, scores: Any, outcomes: Any) -> list[Any]:
    made = []
    for score, outcome in zip(scores.tolist(), outcomes.tolist(), strict=True):
        made.append(host.predict(score))
        host.update(made[-1], outcome)
    return made


# ---- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Calibrator("ops", band=True), r"requires AUTO: Calibrator\('auto', band=True\), got ops"),
        (lambda: Bank("tops", band=True), "requires AUTO"),
        (lambda: replace(OPS, band=True), "requires AUTO"),
        (lambda: replace(GAUTO, band=True), "requires AUTO.*got gauto"),
        (lambda: replace(AUTO, learner=Lanes(horizon=False), band=True), "requires AUTO.*got another method"),
        (lambda: Calibrator(band=True, groups=["country"]), "groups must be left out with band=True"),
        (lambda: MultiCalibrator(3, band=True), "many classes have no interval"),
        (lambda: MultiBank(2, band=True), "many classes have no interval"),
        (lambda: Calibrator(band=True, level=wrong(0.8)), "level must be left out"),
        (lambda: Bank(band=True, level=wrong(0.8)), "level must be left out"),
        (lambda: Calibrator(band=wrong(0.9)), "band must be True or False"),
        (lambda: Calibrator().run([0.5], [1], band=True), r"requires Calibrator\(band=True\)"),
        (lambda: Calibrator().predict_many([0.5], band=True), r"requires Calibrator\(band=True\)"),
        (lambda: Bank().run([1], [0.5], [1], band=True), r"or Bank\(band=True\)"),
        (lambda: Bank().predict_many([1], [0.5], band=True), r"or Bank\(band=True\)"),
        (lambda: MultiCalibrator(3).predict_many([[0.2, 0.3, 0.5]], band=True), "band requires"),
        (lambda: Calibrator(band=True).run([0.5], [1], band=wrong(0.9)), "band must be True or False"),
        (lambda: Calibrator().issue([0.5]).low, r"receipts.low requires Calibrator\(band=True\)"),
        (lambda: Calibrator().predict(0.5).low, r"f.low requires Calibrator\(band=True\)"),
        (lambda: Calibrator().predict(0.5).reason, "f.reason requires"),
        (lambda: Calibrator("hops").predict(0.44).high, "f.high requires"),
    ],
)
def test_what_has_no_band_says_what_to_do(make: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        make()


def test_a_snapshot_with_a_band_takes_no_groups() -> None:
    with pytest.raises(InvalidInput, match="groups must be left out with band=True"):
        Calibrator.from_json(Calibrator(band=True).to_json(), groups=["country"])


@pytest.mark.parametrize("name", NAMES)
def test_a_forecast_without_a_band_has_no_such_attributes(name: str) -> None:
    """Libraries ask objects what they have, and copy them."""
    f = Calibrator().predict(0.4)
    assert not hasattr(f, name)
    assert getattr(f, name, None) is None
    assert copy.deepcopy(f) == pickle.loads(pickle.dumps(f)) == copy.copy(f) == f  # noqa: S301 - our own bytes
    assert f.band == ()
    assert "low" not in f.to_dict()
    assert "band" not in repr(f)


# ---- off is as before, and forecasts are the same -------------------------------------------------------------------


def test_without_the_band_nothing_is_there() -> None:
    assert (BANDED.width, AUTO.width, AUTO.spec.band) == (WIDTH + RECORD, WIDTH, 0)
    assert "band" not in AUTO.to_dict()
    assert "band" not in repr(AUTO)
    assert "band" not in Calibrator().params


@pytest.mark.parametrize("late", [0, 60])
def test_forecasts_and_the_row_are_those_without_the_band(late: int) -> None:
    scores, outcomes = events(600)
    due = np.arange(600) + 1 + late
    banded, plain = Calibrator(band=True), Calibrator()
    np.testing.assert_array_equal(banded.run(scores, outcomes, due=due), plain.run(scores, outcomes, due=due))
    np.testing.assert_array_equal(banded.row[:WIDTH], plain.row)
    assert banded.predict(0.3).lanes == plain.predict(0.3).lanes
    assert banded.export().json == plain.export().json
    assert banded.evidence == plain.evidence


# ---- the same bits, whatever way one asks ---------------------------------------------------------------------------


def test_all_ways_to_ask_at_once() -> None:
    scores, outcomes = events(700)
    single, batch, bank, keyed = Calibrator(band=True), Calibrator(band=True), Bank(band=True), Bank(band=True)
    said = columns(one_by_one(single, scores, outcomes))
    assert {"", *NOT_YET} <= set(said.reason)
    assert_same(batch.run(scores, outcomes, band=True), said)
    assert_same(bank.run(["k"] * 700, scores, outcomes, band=True), said)
    made = []
    for score, outcome in zip(scores.tolist(), outcomes.tolist(), strict=True):
        made.append(keyed.predict("k", score))
        keyed.update("k", made[-1], outcome)
    assert_same(columns(made), said)
    for host in (batch, bank["k"], keyed["k"]):
        np.testing.assert_array_equal(host.row, single.row)
    more = events(50, 4)[0]
    now = columns([single.peek(score) for score in more.tolist()])
    assert_same(single.predict_many(more, band=True), now)
    assert_same(bank.predict_many(["k"] * 50, more, band=True), now)
    assert_same(bank["k"].predict_many(more, band=True), now)
    assert_same(columns([single.predict(score) for score in more.tolist()]), now)


def test_all_ways_to_ask_with_late_outcomes() -> None:
    """`run` with `due`; issue and learn; fold; single events whose receipts have travelled."""
    n, late = 400, 37
    scores, outcomes = events(n)
    due = np.arange(n) + 1 + late
    single, issued, bank = Calibrator(band=True), Calibrator(band=True), Bank(band=True)
    made: list[Any] = []
    batches: list[Any] = []
    folded: list[bytes] = []
    for i in range(n):
        if i > late:
            f = Forecast.from_json(made[i - late - 1].to_json())
            assert single.update(f, int(outcomes[i - late - 1])) == "learnt"
            assert issued.learn(batches[i - late - 1], outcomes[i - late - 1 : i - late]).tolist() == ["learnt"]
            was = [folded[i - late - 1]]
            given = bank.fold(["k", "k"], [math.nan, scores[i]], [float(outcomes[i - late - 1]), math.nan], was)
        else:
            given = bank.fold(["k"], [scores[i]], [math.nan])
        folded += given.receipts.tolist()
        made.append(single.predict(float(scores[i])))
        batches.append(issued.issue(scores[i : i + 1]))
    said = columns(made)
    assert_same(Calibrator(band=True).run(scores, outcomes, due=due, band=True), said)
    assert_same(Bank(band=True).run(["k"] * n, scores, outcomes, due=due, band=True), said)
    assert_same(columns([batch[0] for batch in batches]), said)
    assert_same(columns([Forecast.from_bytes(data) for data in folded]), said)
    receipts = Receipts.from_bytes(b"".join(folded))
    assert_same(Bands(*(getattr(receipts, name) for name in Bands._fields)), said)
    assert_same(Bands(*(getattr(receipts[3:5], name) for name in Bands._fields)), [column[3:5] for column in said])
    assert len(receipts[:0].low) == 0
    np.testing.assert_array_equal(single.row[1:], bank["k"].row[1:])


def test_a_restart_goes_on_in_the_middle_of_a_block(tmp_path: Path) -> None:
    """Killed with receipts under way: the snapshot and the stored receipts are all that is left."""
    scores, outcomes = events(300)
    alone, bank = Calibrator(band=True, stream="s"), Bank(band=True, stream="s")
    whole = Calibrator(band=True, stream="s")
    open_blocks = 0
    waiting: list[tuple[Any, bytes, bytes, int]] = []
    for i, (score, outcome) in enumerate(zip(scores.tolist(), outcomes.tolist(), strict=True)):
        f, g, h = whole.predict(score), alone.predict(score), bank.predict("k", score)
        assert f.band == g.band == h.band
        waiting.append((f, g.to_bytes(), h.to_bytes(), outcome))
        if i % 7 == 0:
            alone = Calibrator.from_json(alone.to_json())
            bank.save(tmp_path / "b")
            bank = Bank.load(tmp_path / "b")
        while len(waiting) > 11:
            f, one, other, y = waiting.pop(i % 5)
            whole.update(f, y)
            alone.update(Forecast.from_bytes(one), y)
            bank.update("k", Forecast.from_bytes(other), y)
        open_blocks += alone.row[WIDTH + 6] >= 0.0
    assert open_blocks > 200
    np.testing.assert_array_equal(alone.row, whole.row)
    np.testing.assert_array_equal(bank["k"].row, whole.row)


def test_raw_forecasts_before_the_first_outcome_lie_inside() -> None:
    scores = np.array([0.0, 1.0, 0.5, 5e-324])
    said = Calibrator(band=True).run(scores, [0, 1, 1, 0], mature=10, band=True)
    np.testing.assert_array_equal(said.probabilities, scores)
    assert (said.low <= scores).all()
    assert (scores <= said.high).all()


def test_a_column_keeps_its_kind() -> None:
    pandas = pytest.importorskip("pandas")
    column = pandas.Series([0.2, 0.7], index=["a", "b"])
    said = Calibrator(band=True).predict_many(column, band=True)
    assert said.probabilities.index.tolist() == ["a", "b"]
    assert said.reason.tolist() == ["too few outcomes"] * 2


# ---- how it travels -------------------------------------------------------------------------------------------------


def taught() -> Calibrator:
    calibrator = Calibrator(band=True)
    calibrator.run(*events(900))
    return calibrator


@pytest.mark.parametrize("calibrator", [taught(), Calibrator(band=True)], ids=["taught", "new"])
def test_a_receipt_keeps_its_band(calibrator: Calibrator) -> None:
    f = calibrator.predict(0.37)
    data = json.loads(f.to_json())
    assert [data[name] for name in NAMES[:3]] == [f.low, f.high, f.outcomes]
    assert data.get("reason", "") == f.reason
    assert ("reason" in data) == (f.reason != "")
    assert data["candidates"] == [[f.probability, 1.0]]
    for twin in (
        Forecast.from_json(f.to_json()),
        Forecast.from_bytes(f.to_bytes()),
        pickle.loads(pickle.dumps(f)),  # noqa: S301 - our own bytes
        copy.deepcopy(f),
        f.__replace__(),
    ):
        assert (twin, twin.band, twin.to_bytes()[:-8]) == (f, f.band, f.to_bytes()[:-8])
    assert f.__replace__(band=(0.1, 0.2, 3.0, "uneven")) != f
    assert f.to_bytes()[1] == 4
    assert np.frombuffer(f.to_bytes()[72:96]).tolist() == [f.low, f.high, f.outcomes]
    assert f"band={f.band!r}" in repr(f)
    assert calibrator.update(Forecast.from_bytes(f.to_bytes()), 1) == "learnt"


@pytest.mark.parametrize("at", [1, 72, 80, 88, 96])
def test_a_damaged_band_is_refused(at: int) -> None:
    calibrator = Calibrator(band=True)
    data = bytearray(calibrator.predict(0.37).to_bytes())
    data[at + 6 if at > 1 else at] ^= 0x41
    with pytest.raises(InvalidInput):
        calibrator.update(Forecast.from_bytes(bytes(data)), 1)


@pytest.mark.parametrize(
    "changed", [{"reason": "dull"}, {"reason": 3}, {"low": None}, {"high": "0.2"}, {"outcomes": math.nan}]
)
def test_a_band_that_no_receipt_can_have_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=f"forecast {next(iter(changed))}"):
        Forecast.from_dict({**Calibrator(band=True).predict(0.37).to_dict(), **changed})


def test_an_estimate_is_a_number_and_travels() -> None:
    calibrator = taught()
    p, f = calibrator.peek(0.37), calibrator.predict(0.37)
    assert isinstance(p, Estimate)
    assert (p.probability, p.low, p.high, p.outcomes, p.reason) == (f.probability, *f.band)
    twin = pickle.loads(pickle.dumps(p))  # noqa: S301 - our own bytes
    assert (twin, twin.low, twin.reason) == (p, p.low, p.reason)
    assert copy.deepcopy(p).high == p.high
    assert type(Calibrator().peek(0.37)) is float


def test_the_method_travels() -> None:
    assert Method.from_dict(json.loads(json.dumps(BANDED.to_dict()))) == BANDED != AUTO
    assert pickle.loads(pickle.dumps(BANDED)) == copy.deepcopy(BANDED) == BANDED  # noqa: S301 - our own bytes
    assert "band=True" in repr(BANDED)
    assert "AUTO, band=True" in repr(Calibrator(band=True))
    with pytest.raises(InvalidInput, match="same method"):
        Bank(band=True).merge(Bank())


# ---- what is shown of the record, and rows from outside -------------------------------------------------------------


def test_the_record_is_shown() -> None:
    calibrator, bank = taught(), Bank(band=True)
    bank.run(["a"] * 900, *events(900))
    shown = calibrator.params["band"]
    assert shown["blocks"] == calibrator.row[WIDTH + BLOCKS] > 20
    assert shown["kappa"] == pytest.approx(math.exp(calibrator.row[WIDTH + LN_KAPPA]), rel=1e-15)
    assert {name: bank.table[name].tolist() for name in shown} == {name: [value] for name, value in shown.items()}


@pytest.mark.parametrize(
    ("at", "value"),
    [(LN_KAPPA, 6.1), (BLOCKS, 901.0), (BLOCKS, 0.5), (IS_TEST, 2.0), (BLOCK_H, -1.0), (CELL_H, math.nan)],
)
def test_a_record_that_no_stream_can_have_is_refused(at: int, value: float) -> None:
    bank = Bank(band=True)
    bank.run(["a"] * 900, *events(900))
    rows = bank.rows(["a"])
    bank.set_rows(["b"], rows)
    rows[0, WIDTH + at] = value
    with pytest.raises(InvalidInput, match="rows must have"):
        bank.set_rows(["b"], rows)


def test_a_snapshot_of_another_width_is_refused() -> None:
    data = json.loads(Calibrator().to_json())
    data["method"]["band"] = True
    with pytest.raises(SnapshotMismatch):
        Calibrator.from_json(json.dumps(data))


def test_new_keys_of_a_pool_start_with_a_record_of_their_own() -> None:
    bank = Bank(band=True, prior="pooled")
    bank.run(["a"] * 500, *events(500))
    f = bank.predict("b", 0.4)
    np.testing.assert_array_equal(bank["b"].row[WIDTH:], BANDED.initial_row()[WIDTH:])
    assert f.outcomes == 0.0


# ---- kept, weights and counts ---------------------------------------------------------------------------------------


def test_kept_shifts_both_ends_by_the_same_logit() -> None:
    """Between the scores and the answers all is in the odds of the log."""
    scores, outcomes = events(500)
    thinned, log = Calibrator(band=True, kept=(1.0, 0.05)), Calibrator(band=True)
    odds = 20.0
    seen = np.array([in_log(odds, score) for score in scores.tolist()])
    said, own = thinned.run(scores, outcomes, band=True), log.run(seen, outcomes, band=True)
    for name in ("low", "high"):
        expected = [in_truth(odds, p) for p in getattr(own, name).tolist()]
        np.testing.assert_allclose(getattr(said, name), expected, rtol=0, atol=1e-15)
    np.testing.assert_array_equal(said.outcomes, own.outcomes)
    np.testing.assert_array_equal(said.reason, own.reason)
    assert (said.low <= said.probabilities).all()
    assert (said.probabilities <= said.high).all()


def test_equal_weights_are_no_weights() -> None:
    scores, outcomes = events(500)
    plain, heavy = Calibrator(band=True), Calibrator(band=True)
    plain.run(scores, outcomes)
    heavy.run(scores, outcomes, weights=np.full(500, 20.0))
    np.testing.assert_allclose(heavy.row[WIDTH:], plain.row[WIDTH:], rtol=1e-9, atol=1e-9)
    assert plain.row[WIDTH + BLOCK_H] > 0.0


def test_a_count_fills_a_block_like_so_many_outcomes() -> None:
    """H of a count of 8 is that of 8 forecasts; an outcome of weight 0 is none."""
    one, many = Calibrator(band=True), Calibrator(band=True)
    many.update(many.predict(0.4), 3, of=8)
    one.update(one.predict(0.4), 1)
    assert many.row[WIDTH + BLOCK_H] == pytest.approx(8.0 * one.row[WIDTH + BLOCK_H], rel=1e-12)
    before = many.row
    many.update(many.predict(0.4), 1, weight=0.0)
    np.testing.assert_array_equal(many.row[1:], before[1:])
