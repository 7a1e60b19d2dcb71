"""A calibrator of several models: what an event may look like, names, watchers, receipts, a model that joins, refusals.

Golden numbers, laws, and that batches, single events, late outcomes and restarts agree are in `core/test_several.py`.
"""

from __future__ import annotations

import copy
import json
import math
import pickle
from collections.abc import Callable
from threading import Thread
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import several_oracle as oracle
from several_streams import Vector, given, halves, holes, play

from calibeat import (
    AUTO,
    TOPS,
    Bank,
    Calibrator,
    Forecast,
    InvalidInput,
    Monitor,
    MultiBank,
    MultiCalibrator,
    Notice,
    OutcomeConflict,
    SnapshotMismatch,
    UnknownForecast,
)
from calibeat._util.sealed import checksum
from calibeat.core.several import parts_of
from calibeat.monitor.bets import BRIER, FORECASTS

NAMES = ["champion", "challenger"]
EVENTS = 300
SCORES, OUTCOMES = halves(EVENTS, 2, missing=0.3)
NAN = math.nan


def fresh(**settings: Any) -> Calibrator:
    return Calibrator(models=NAMES, **settings)


def learned() -> Calibrator:
    cal = fresh()
    cal.run(SCORES, OUTCOMES)
    return cal


# ---- what an event may look like -------------------------------------------------------------------------------------

COMPLETE: list[Any] = [
    [0.83, 0.71],
    (0.83, 0.71),
    np.array([0.83, 0.71]),
    [np.float64(0.83), np.float64(0.71)],
    {"champion": 0.83, "challenger": 0.71},
    {"challenger": 0.71, "champion": 0.83},
]
HALF: list[Any] = [
    [0.83, None],
    (0.83, NAN),
    np.array([0.83, NAN]),
    [0.83, np.float64(NAN)],
    np.array([0.83, None], dtype=object),
    {"champion": 0.83},
    {"champion": 0.83, "challenger": None},
    {"challenger": NAN, "champion": 0.83},
]


@pytest.mark.parametrize(("forms", "score"), [(COMPLETE, (0.83, 0.71)), (HALF, (0.83, None))])
def test_an_event_in_every_form(forms: list[Any], score: tuple[float | None, ...]) -> None:
    cal = learned()
    peeked = cal.peek(forms[0])
    assert 0.0 < peeked < 1.0
    for event in forms:
        assert cal.peek(event) == peeked
        f = cal.predict(event)
        assert (f.probability, f.score) == (peeked, score)
        assert float(f) == peeked


def test_whole_numbers_are_scores() -> None:
    cal = learned()
    assert cal.predict([1, 0]).score == (1.0, 0.0) and cal.peek([1, None]) == cal.peek([1.0, NAN])


def columns(scores: Vector) -> dict[str, list[float | None]]:
    return {name: given(column) for name, column in zip(NAMES, scores.T, strict=True)}


TABLE = columns(SCORES)
BATCHES: dict[str, Any] = {
    "array": SCORES,
    "array by columns": np.asfortranarray(SCORES),
    "every second row": np.repeat(SCORES, 2, axis=0)[::2],
    "objects": np.array([given(row) for row in SCORES], dtype=object),
    "rows": [given(row) for row in SCORES],
    "rows with NaN": [tuple(row) for row in SCORES.tolist()],
    "rows by name": [dict(zip(NAMES, given(row), strict=True)) for row in SCORES],
    "masked array": np.ma.masked_invalid(SCORES),
    "columns": TABLE,
    "columns of arrays": dict(zip(NAMES, SCORES.T, strict=True)),
    "columns in another order": dict(reversed(TABLE.items())),
    "pandas": pd.DataFrame(TABLE),
    "pandas in another order": pd.DataFrame(TABLE)[NAMES[::-1]],
    "polars": pl.DataFrame(TABLE),
    "polars with NaN": pl.DataFrame(dict(zip(NAMES, SCORES.T, strict=True))),
    "arrow": pa.table(TABLE),
    "arrow in chunks": pa.concat_tables([pa.table(columns(SCORES[:70])), pa.table(columns(SCORES[70:]))]),
    "pandas with nulls": pd.DataFrame(TABLE).astype("Float64"),
}


@pytest.mark.parametrize("form", BATCHES)
def test_a_batch_in_every_form(form: str) -> None:
    batch, whole = BATCHES[form], fresh()
    expected = whole.run(SCORES, OUTCOMES)
    cal = fresh()
    np.testing.assert_array_equal(np.asarray(cal.run(batch, OUTCOMES)), expected)
    assert cal.to_json() == whole.to_json()
    many = whole.predict_many(SCORES)
    np.testing.assert_array_equal(np.asarray(cal.predict_many(batch)), many)
    receipts = cal.issue(batch)
    np.testing.assert_array_equal(receipts.probabilities, many)
    assert [f.score for f in receipts] == [tuple(given(row)) for row in SCORES]


def test_a_column_that_is_not_there_is_missing() -> None:
    gone = SCORES.copy()
    gone[:, 1], gone[np.isnan(gone[:, 0]), 0] = NAN, 0.5
    expected = fresh().run(gone, OUTCOMES)
    for table in ({"champion": gone[:, 0]}, {"champion": gone[:, 0], "challenger": [None] * EVENTS}):
        np.testing.assert_array_equal(fresh().run(table, OUTCOMES), expected)


def test_late_outcomes_by_due_by_age_and_by_times() -> None:
    due = np.arange(EVENTS) + 21
    expected = fresh().run(SCORES, OUTCOMES, due=due)
    np.testing.assert_array_equal(fresh().run(SCORES, OUTCOMES, due=due, finish=True), expected)
    np.testing.assert_array_equal(fresh().run(SCORES, OUTCOMES, mature=20)[21:], expected[21:])
    at = np.arange(EVENTS) * 60.0
    told = at + 20.5 * 60.0
    np.testing.assert_array_equal(fresh().run(SCORES, OUTCOMES, times=at, outcome_times=told), expected)
    finished, not_finished = fresh(), fresh()
    finished.run(SCORES, OUTCOMES, due=due, finish=True)
    not_finished.run(SCORES, OUTCOMES, due=due)
    assert (finished.outcomes, not_finished.outcomes) == (EVENTS, EVENTS - 21)


def test_outcomes_that_never_arrive() -> None:
    due = np.where(np.arange(EVENTS) % 3 == 2, EVENTS, np.arange(EVENTS) + 1)
    unknown = np.where(due == EVENTS, NAN, OUTCOMES)
    cal = fresh()
    p = cal.run(SCORES, unknown, due=due)
    np.testing.assert_array_equal(p, fresh().run(SCORES, OUTCOMES, due=due))
    assert (cal.events, cal.outcomes) == (EVENTS, EVENTS * 2 // 3)


def test_forecasts_of_a_frame_are_a_column() -> None:
    cal = learned()
    frame = pd.DataFrame(TABLE, index=np.arange(EVENTS) + 7)
    found = cal.predict_many(frame)
    assert isinstance(found, pd.Series) and (found.index == frame.index).all()
    assert isinstance(cal.predict_many(pl.DataFrame(TABLE)), pl.Series)
    assert isinstance(cal.predict_many(pa.table(TABLE)), pa.ChunkedArray)
    assert type(cal.predict_many(TABLE)) is type(cal.predict_many(SCORES)) is np.ndarray


def test_threads_share_a_calibrator() -> None:
    cal = fresh()

    def work(thread: int) -> None:
        for i in range(200):
            cal.update(cal.predict([0.3, 0.4 if (i + thread) % 3 else None]), i % 2)

    threads = [Thread(target=work, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (cal.events, cal.outcomes) == (800, 800)
    assert parts_of(cal.row, 2).weights.sum() == pytest.approx(1.0)


# ---- names and readings ----------------------------------------------------------------------------------------------


def test_names() -> None:
    assert Calibrator(models=3).models == ("model 1", "model 2", "model 3")
    assert fresh().models == ("champion", "challenger") and Calibrator().models is None
    named, counted = fresh(), Calibrator(models=2)
    np.testing.assert_array_equal(counted.run(SCORES, OUTCOMES), named.run(SCORES, OUTCOMES))
    assert counted.with_model().models == ("model 1", "model 2", "model 3")
    assert counted.peek({"model 2": 0.4}) == named.peek({"challenger": 0.4}) == named.peek([None, 0.4])
    text = repr(learned())
    assert "champion" in text and "challenger" in text and "events=300" in text and "outcomes=300" in text


def test_params_by_name() -> None:
    cal = fresh()
    cal.run(SCORES, OUTCOMES, due=np.arange(EVENTS) + 30)
    params, parts = cal.params, parts_of(cal.row, 2)
    assert list(params["weights"]) == ["champion", "challenger", "still", "fast"]
    assert sum(params["weights"].values()) == pytest.approx(1.0)
    assert list(params["weights"].values()) == parts.weights.tolist()
    assert list(params["spline"]) == ["expert", "spline"]
    assert list(params["spline"].values()) == parts.spline_weights.tolist()
    assert params["mean_lag"] == parts.mean_lag and 20.0 < parts.mean_lag < 30.0
    assert params["temper"] == parts.temper > 1.0
    assert set(params["scores"]) == set(NAMES)
    assert set(params["scores"]["champion"]) == set(Calibrator().params)
    assert set(params["together"]) == {"still", "fast"}
    for lane, theta in zip(("still", "fast"), parts.theta.tolist(), strict=True):
        told = params["together"][lane]
        assert told["constant"] == theta[0]
        for place, kind in enumerate(("calibrated", "raw", "missing")):
            assert list(told[kind]) == NAMES
            assert list(told[kind].values()) == theta[1 + 2 * place : 3 + 2 * place]
    json.dumps(params)


def test_the_params_of_a_model_are_those_of_its_own_calibrator() -> None:
    complete = halves(EVENTS, 2)[0]
    cal, alone = fresh(), Calibrator()
    cal.run(complete, OUTCOMES)
    alone.run(complete[:, 1], OUTCOMES)
    assert cal.params["scores"]["challenger"] == alone.params


def test_an_export_says_what_the_calibrator_says_of_complete_scores() -> None:
    cal = fresh()
    cal.run(SCORES, OUTCOMES, due=np.arange(EVENTS) + 20)
    space: dict[str, Any] = {}
    exec(cal.export().python, space)  # noqa: S102 - our own code
    grid = np.random.default_rng(0).random((50, 2))
    grid[:4] = [[0.0, 1.0], [1.0, 1.0], [1e-7, 0.5], [0.5, 1e-5]]
    said = [space["calibrate"](row) for row in grid.tolist()]
    np.testing.assert_allclose(said, cal.predict_many(grid), rtol=0, atol=1e-12)


# ---- watchers --------------------------------------------------------------------------------------------------------


def test_a_monitor_watches_the_forecasts() -> None:
    def new() -> Monitor:
        return Monitor(arl=50, warm=20, quiet=40)

    batch, single, alone = fresh(monitor=new()), fresh(monitor=new()), new()
    forecasts = batch.run(SCORES, OUTCOMES)
    np.testing.assert_array_equal(forecasts, fresh().run(SCORES, OUTCOMES))
    alone.run(forecasts, OUTCOMES)
    play(single, SCORES, OUTCOMES)
    assert batch.monitor is not None and single.monitor is not None
    assert batch.monitor.alarms == single.monitor.alarms == alone.alarms
    np.testing.assert_array_equal(batch.monitor.row, single.monitor.row)
    own = np.r_[:BRIER, FORECASTS : len(alone.row)]  # without the gain over a raw score: there is none
    np.testing.assert_array_equal(batch.monitor.row[own], alone.row[own])
    again = Calibrator.from_json(batch.to_json())
    assert again.monitor is not None and again.models == batch.models
    np.testing.assert_array_equal(again.monitor.row, batch.monitor.row)


def test_a_monitor_raises_when_the_models_turn_wrong() -> None:
    cal = fresh(monitor=Monitor(arl=500))
    scores, outcomes = halves(3000, 2)
    cal.run(scores, outcomes)
    before = len(cal.monitors["ours"].alarms)
    cal.run(scores, 1.0 - outcomes)
    assert len(cal.monitors["ours"].alarms) > before and cal.new_alarms()


def test_a_notice_hears_the_same_by_every_verb() -> None:
    settings: dict[str, Any] = {"arl": 500.0, "warm": 64, "quiet": 100, "every": "30d"}
    times = 1.7e9 + 3600.0 * np.arange(EVENTS)
    clock = [0.0]
    batch = fresh(notice=Notice(**settings))
    single = fresh(notice=Notice(**settings, clock=lambda: clock[0]))
    batch.run(SCORES, OUTCOMES, times=times)
    for row, outcome, time in zip(SCORES, OUTCOMES, times.tolist(), strict=True):
        clock[0] = time
        single.update(single.predict(given(row)), int(outcome))
    assert batch.notice is not None and single.notice is not None and batch.notice.forecasts == EVENTS
    np.testing.assert_array_equal(batch.notice.row, single.notice.row)
    again = Calibrator.from_json(batch.to_json())
    assert again.notice is not None
    np.testing.assert_array_equal(again.notice.row, batch.notice.row)


# ---- snapshots and copies --------------------------------------------------------------------------------------------


def test_a_snapshot_has_the_names() -> None:
    cal = learned()
    text = cal.to_json()
    assert json.loads(text)["models"] == NAMES and "models" not in json.loads(Calibrator().to_json())
    again = Calibrator.from_json(text)
    assert again.models == cal.models and again.to_json() == text
    np.testing.assert_array_equal(again.run(SCORES, OUTCOMES), cal.run(SCORES, OUTCOMES))


def test_copies() -> None:
    cal = learned()
    receipt = cal.predict([0.2, None])
    for copied in (copy.copy(cal), copy.deepcopy(cal), pickle.loads(pickle.dumps(cal))):  # noqa: S301
        assert copied.models == cal.models and copied.to_json() == cal.to_json()
        assert copied.update(receipt, 1) == "learnt"
    assert cal.outcomes == EVENTS and cal.update(receipt, 0) == "learnt"


def resealed(text: str, change: Callable[[dict[str, Any]], Any]) -> str:
    state = json.loads(text)
    del state["checksum"]
    change(state)
    return json.dumps({**state, "checksum": checksum(state)})


WIDTH = len(Calibrator(models=2).row)
DAMAGED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no names": lambda state: state.pop("models"),
    "none": lambda state: state.__setitem__("models", None),
    "one name": lambda state: state["models"].pop(),
    "three names": lambda state: state["models"].append("late"),
    "equal names": lambda state: state.__setitem__("models", ["champion", "champion"]),
    "a short row": lambda state: state["row"].pop(),
    "another method": lambda state: state.__setitem__("method", TOPS.to_dict()),
    "a large weight": lambda state: state["row"].__setitem__(weight_at(), 2.0),
    "a covariance": lambda state: state["row"].__setitem__(WIDTH - 2 * AUTO.width - 1, -1.0),
    "a number of AUTO": lambda state: state["row"].__setitem__(WIDTH - 1, -5.0),
}


def weight_at() -> int:
    """Where the weight of the first model stands in a row."""
    row = learned().row
    return int(np.flatnonzero(row == parts_of(row, 2).weights[0])[0])


@pytest.mark.parametrize("how", DAMAGED)
def test_a_damaged_snapshot_is_refused(how: str) -> None:
    text = learned().to_json()
    with pytest.raises(SnapshotMismatch, match="snapshot must"):
        Calibrator.from_json(resealed(text, DAMAGED[how]))


def test_snapshots_do_not_mix() -> None:
    with pytest.raises(SnapshotMismatch):
        Calibrator.from_json(resealed(Calibrator().to_json(), lambda state: state.__setitem__("models", NAMES)))
    with pytest.raises(SnapshotMismatch):
        MultiCalibrator.from_json(learned().to_json())


# ---- receipts --------------------------------------------------------------------------------------------------------


def test_a_receipt_as_json_and_as_bytes() -> None:
    cal = learned()
    f = cal.predict({"champion": 0.83})
    data = json.loads(f.to_json())
    assert data["score"] == [0.83, None] and len(data["lanes"]) == 6 + 2 * AUTO.receipt_width
    for again in (Forecast.from_json(f.to_json()), Forecast.from_bytes(f.to_bytes()), pickle.loads(pickle.dumps(f))):  # noqa: S301
        assert again == f and again.score == (0.83, None) and again.lanes == f.lanes
        assert again.expert == f.expert and float(again) == float(f)
    assert "0.83" in repr(f) and "None" in repr(f)
    assert cal.update(Forecast.from_bytes(f.to_bytes()), 1) == "learnt"
    assert cal.update(f, 1) == "repeated"
    with pytest.raises(OutcomeConflict):
        cal.update(Forecast.from_json(f.to_json()), 0)


def test_receipts_of_others_are_refused() -> None:
    cal = fresh()
    cal.predict([0.4, 0.5])
    before = cal.to_json()
    others = {
        "of one score": Calibrator().predict(0.4),
        "of three": Calibrator(models=3).predict([0.4, 0.5, 0.6]),
        "other names": Calibrator(models=["a", "b"]).predict([0.4, 0.5]),
        "names in another order": Calibrator(models=NAMES[::-1]).predict([0.4, 0.5]),
        "another seed": fresh(seed=9).predict([0.4, 0.5]),
    }
    for name, receipt in others.items():
        with pytest.raises((UnknownForecast, InvalidInput)):
            cal.update(receipt, 1)
        assert cal.to_json() == before, name
    with pytest.raises(UnknownForecast):
        Calibrator().update(cal.predict([0.4, 0.5]), 1)


DAMAGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "one score": lambda data: data["score"].pop(),
    "three scores": lambda data: data["score"].append(0.5),
    "a plain score": lambda data: data.__setitem__("score", 0.4),
    "no score": lambda data: data.__setitem__("score", [None, None]),
    "a score above one": lambda data: data["score"].__setitem__(0, 1.5),
    "text": lambda data: data["score"].__setitem__(0, "0.4"),
    "lanes of AUTO": lambda data: data.__setitem__("lanes", data["lanes"][:12]),
    "too many lanes": lambda data: data["lanes"].append(0.5),
    "an expert of zero": lambda data: data["lanes"].__setitem__(1, 0.0),
    "a lane above one": lambda data: data["lanes"].__setitem__(5, 1.5),
    "from the future": lambda data: data["lanes"].__setitem__(0, 1e9),
    "a model that said 0": lambda data: data["lanes"].__setitem__(6 + 10, 0.0),
    "another probability": lambda data: data.__setitem__("probability", 0.123),
}


@pytest.mark.parametrize("how", DAMAGES)
def test_damaged_receipts_are_refused(how: str) -> None:
    cal = learned()
    receipt = cal.predict([0.4, 0.5])
    before, data = cal.to_json(), json.loads(receipt.to_json())
    DAMAGES[how](data)
    with pytest.raises(InvalidInput, match="forecast"):
        cal.update(Forecast.from_dict(data), 1)
    assert cal.to_json() == before
    assert cal.update(receipt, 1) == "learnt"


# ---- a model that joins ----------------------------------------------------------------------------------------------


def test_a_model_joins_and_forecasts_do_not_jump() -> None:
    """While its score is missing nothing changes; where all are given, the mixture moves by its weight alone."""
    old = learned()
    text = old.to_json()
    new = old.with_model("newcomer")
    assert new.models == (*NAMES, "newcomer") and (new.events, new.outcomes) == (old.events, old.outcomes)
    assert old.to_json() == text and old.models == tuple(NAMES)
    fresh_score, parts = Calibrator().peek, 4  # of the old mixture
    for row in SCORES[:80]:
        before, event = old.predict(given(row)), given(row)
        missing = new.predict([*event, None])
        assert missing.probability == pytest.approx(before.probability, abs=1e-13)
        assert missing.expert == pytest.approx(before.expert, abs=1e-13)
        for score in (0.0, 0.3, 1.0) if None not in event else ():
            own = new.predict([*event, score])
            expected = (parts * before.expert + fresh_score(score)) / (parts + 1)
            assert own.expert == pytest.approx(expected, abs=1e-12)


def test_a_model_joins_as_in_the_oracle() -> None:
    """With old receipts under way, which the new calibrator learns; then the new model learns too."""
    scores, outcomes = halves(400, 3, seed=3)
    scores[:200, 2] = NAN
    scores = np.where(np.isnan(holes(scores, 0.2)) & (np.arange(3) < 2), NAN, scores)
    scores[np.isnan(scores).all(axis=1), 0] = 0.5
    cal, row = fresh(), oracle.Row(2)
    waiting: list[tuple[Forecast, Any, int]] = []
    for i in range(400):
        if i == 200:
            cal, row = cal.with_model("newcomer"), oracle.with_model(row)
            assert len(waiting) == 30
            waiting = [(f, oracle.widened(q), j) for f, q, j in waiting]
        if len(waiting) == 30:
            f, q, j = waiting.pop(0)
            assert cal.update(f, int(outcomes[j])) == "learnt"
            oracle.update(row, q, float(outcomes[j]))
        event = scores[i, : row.k]
        waiting.append((cal.predict(given(event)), oracle.predict(row, event), i))
        assert waiting[-1][0].probability == pytest.approx(waiting[-1][1].p, abs=1e-9)
    oracle.check_parts(parts_of(cal.row, 3), row, rtol=1e-7, atol=1e-8)


def test_old_receipts_travel_to_the_new_calibrator() -> None:
    old = learned()
    first, second, third = (old.predict([0.4, None]) for _ in range(3))
    assert old.update(first, 1) == "learnt"
    new = old.with_model("newcomer")
    assert new.update(first, 1) == "repeated"
    with pytest.raises(OutcomeConflict):
        new.update(first, 0)
    assert new.update(Forecast.from_bytes(second.to_bytes()), 1) == "learnt"
    again = Calibrator.from_json(new.to_json())
    assert again.update(Forecast.from_json(third.to_json()), 0) == "learnt"
    assert again.models == new.models and again.outcomes == EVENTS + 3
    batch = old.issue(SCORES[:20])
    older = old.with_model("newcomer")
    older.learn(batch, OUTCOMES[:20])
    assert older.outcomes == EVENTS + 21
    with pytest.raises(UnknownForecast):
        old.update(new.predict([0.4, None, 0.2]), 1)


def test_a_challenger_that_knows_more_wins() -> None:
    scores, outcomes = halves(4000, 3, seed=5)
    old = fresh()
    old.run(scores[:2000, :2], outcomes[:2000])
    new = old.with_model("newcomer")
    p = new.run(scores[2000:], outcomes[2000:])
    without = old.run(scores[2000:, :2], outcomes[2000:])

    def loss(q: Vector) -> float:
        y = outcomes[2500:]
        return float(-np.log(np.where(y == 1.0, q[500:], 1.0 - q[500:])).mean())

    assert loss(p) < loss(without) - 0.02
    assert new.params["together"]["still"]["calibrated"]["newcomer"] > 0.1


def test_watchers_stay_when_a_model_joins() -> None:
    old = fresh(monitor=Monitor(arl=500))
    old.run(SCORES, OUTCOMES)
    new = old.with_model("newcomer")
    assert new.monitor is not None and old.monitor is not None
    np.testing.assert_array_equal(new.monitor.row, old.monitor.row)
    new.run(np.column_stack([SCORES, np.full(EVENTS, 0.5)]), OUTCOMES)
    assert new.monitor.outcomes == 2 * EVENTS and old.monitor.outcomes == EVENTS


# ---- refusals --------------------------------------------------------------------------------------------------------

BAD_EVENTS: dict[str, tuple[Any, str]] = {
    "no score": ([None, NAN], "at least one"),
    "no score by name": ({}, "at least one"),
    "one score": (0.83, "2 scores|champion, challenger"),
    "too few": ([0.83], "2 scores|champion, challenger"),
    "too many": ([0.83, 0.71, 0.5], "2 scores|champion, challenger"),
    "unknown name": ({"champion": 0.8, "chalenger": 0.7}, "'chalenger'"),
    "above one": ([0.83, 1.5], r"score .*must be in \[0, 1\].*1\.5"),
    "below zero": ({"challenger": -0.1}, r"score .*must be in \[0, 1\].*-0\.1"),
    "text": (["0.83", 0.71], "score"),
    "infinite": ([math.inf, 0.71], "score"),
    "True": ([True, 0.71], "score"),
    "two rows": ([[0.83, 0.71], [0.2, 0.3]], "score"),
    "a string": ("ab", "score"),
    "None": (None, "score"),
}


@pytest.mark.parametrize("how", BAD_EVENTS)
def test_bad_events_are_refused_with_a_sentence_and_change_nothing(how: str) -> None:
    event, sentence = BAD_EVENTS[how]
    cal = learned()
    before = cal.to_json()
    for verb in (cal.predict, cal.peek):
        with pytest.raises(InvalidInput, match=sentence):
            verb(event)
    assert cal.to_json() == before


BAD_BATCHES: dict[str, tuple[Any, str]] = {
    "no score": ([[0.5, None], [None, None]], "at least one .*row 1"),
    "a vector": ([0.5, 0.4], "2 scores|champion, challenger"),
    "three columns": (np.full((2, 3), 0.5), "2 scores|champion, challenger"),
    "ragged": ([[0.5, 0.4], [0.5]], "row 1|2 scores|champion, challenger"),
    "unknown column": ({"champion": [0.5, 0.4], "other": [0.5, 0.4]}, "'other'"),
    "a frame of others": (pd.DataFrame({"a": [0.5, 0.4], "b": [0.5, 0.4]}), "'a'"),
    "a frame without names": (pd.DataFrame([[0.5, 0.4], [0.5, 0.4]]), "scores must be of champion, challenger, got 0"),
    "above one": ([[0.5, 0.4], [0.5, 1.2]], r"must be in \[0, 1\], got 1\.2.*row 1"),
    "columns of two lengths": ({"champion": [0.5, 0.4], "challenger": [0.5]}, "challenger|length|2"),
    "text": ([["a", 0.4], [0.5, 0.4]], "score"),
}


@pytest.mark.parametrize("how", BAD_BATCHES)
def test_bad_batches_are_refused_with_a_sentence_and_change_nothing(how: str) -> None:
    batch, sentence = BAD_BATCHES[how]
    cal = learned()
    before = cal.to_json()
    verbs: list[Callable[[], Any]] = [
        lambda: cal.run(batch, [0, 1]),
        lambda: cal.run(batch, [0, 1], due=[1, 2]),
        lambda: cal.predict_many(batch),
        lambda: cal.issue(batch),
    ]
    for verb in verbs:
        with pytest.raises(InvalidInput, match=sentence):
            verb()
    assert cal.to_json() == before


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "one model": (lambda: Calibrator(models=1), r"models must be 2 or more, got 1 - .*Calibrator\(\)"),
    "one name": (lambda: Calibrator(models=["champion"]), r"models must be 2 or more, got 1 - .*Calibrator\(\)"),
    "no model": (lambda: Calibrator(models=0), r"models.*2.*16"),
    "seventeen": (lambda: Calibrator(models=17), "models.*16.*17"),
    "seventeen names": (lambda: Calibrator(models=[f"m{j}" for j in range(17)]), "models.*16.*17"),
    "equal names": (lambda: Calibrator(models=["a", "a"]), "models.*'a'"),
    "empty name": (lambda: Calibrator(models=["a", ""]), "models"),
    "names that are no text": (lambda: Calibrator(models=["a", 2]), "models"),  # type: ignore[list-item]
    "a name of a lane": (lambda: Calibrator(models=["a", "still"]), "models must not be called still or fast"),
    "text": (lambda: Calibrator(models="champion"), "models"),
    "True": (lambda: Calibrator(models=True), "models"),
    "half": (lambda: Calibrator(models=2.5), "models"),  # type: ignore[arg-type]
    "another method": (lambda: Calibrator("tops", models=2), "models.*AUTO"),
    "hops": (lambda: Calibrator("hops", models=2), "models.*AUTO"),
    "gauto": (lambda: Calibrator("gauto", models=2), "models.*AUTO"),
    "groups": (lambda: Calibrator(models=2, groups=["country"]), "groups.*models"),
    "groups of an event": (lambda: learned().predict([0.4, 0.5], groups=("fr",)), "groups must be left out"),
    "groups of a batch": (lambda: learned().run([[0.4, 0.5]], [1], groups=[("fr",)]), "groups must be left out"),
    "kept": (lambda: Calibrator(models=2, kept=(1.0, 0.05)), "kept"),
    "weight": (lambda: learned().update(learned().predict([0.4, 0.5]), 1, weight=2.0), "weight"),
    "weights": (lambda: learned().run([[0.4, 0.5]], [1], weights=[2.0]), "weight"),
    "counts": (lambda: learned().run([[0.4, 0.5]], [1], of=[2]), "of|count"),
    "counts of one": (lambda: learned().update(learned().predict([0.4, 0.5]), 1, of=2), "of|count"),
    "weights of receipts": (lambda: learned().learn(learned().issue([[0.4, 0.5]]), [1], weights=[2.0]), "weight"),
    "a bank": (lambda: Bank(models=2), "models"),  # type: ignore[call-arg]
    "many classes": (lambda: MultiCalibrator(3, models=2), "models"),  # type: ignore[call-arg]
    "a bank of many classes": (lambda: MultiBank(3, models=2), "models"),  # type: ignore[call-arg]
    "a monitor of raw scores": (lambda: fresh(monitor={"raw": Monitor()}), 'monitor must watch "ours" with models'),
    "groups of a snapshot": (
        lambda: Calibrator.from_json(learned().to_json(), groups=["a"]),
        "groups must be left out",
    ),
    "evidence": (lambda: learned().evidence, "evidence"),
    "segments": (lambda: learned().segments(), "segments"),
    "a name that is there": (lambda: learned().with_model("champion"), "'champion'"),
    "an empty name": (lambda: learned().with_model(""), "name"),
    "no text": (lambda: learned().with_model(3), "name"),  # type: ignore[arg-type]
    "a plain calibrator": (lambda: Calibrator().with_model("new"), "models"),
    "one too many": (lambda: Calibrator(models=16).with_model("new"), "16"),
}


@pytest.mark.parametrize("how", REFUSED)
def test_what_is_refused(how: str) -> None:
    call, sentence = REFUSED[how]
    with pytest.raises(InvalidInput, match=sentence):
        call()


def test_a_plain_calibrator_takes_one_score() -> None:
    for event in ([0.4, 0.5], {"champion": 0.4}, (0.4,)):
        with pytest.raises(InvalidInput, match="score"):
            Calibrator().predict(event)  # type: ignore[arg-type]


def test_scores_that_are_no_columns_and_receipts_of_one_score() -> None:
    cal = fresh()
    with pytest.raises(InvalidInput, match="a dict of columns or a data frame"):
        cal.run(0.5, [1])
    with pytest.raises(InvalidInput, match="must have columns of"):
        cal.run({}, [1])
    other = Calibrator()
    assert cal.learn(other.issue([0.5]), [1]).tolist() == ["unknown"]
