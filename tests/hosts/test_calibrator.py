"""What a person sees of a calibrator, one event at a time, and the evidence that it gathers."""

from __future__ import annotations

import json
import logging
import threading
from functools import partial
from typing import Any

import multi_streams
import numpy as np
import pytest
from conformance import one, said, same
from streams import STREAMS, variants

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
    Beta,
    Calibrator,
    Fixed,
    Forecast,
    Method,
    Monitor,
    MultiCalibrator,
    Platt,
    Tracking,
)
from calibeat.core import refit
from calibeat.core.method import PRESETS, name_of
from calibeat.core.refit import Histogram
from calibeat.hosts import rows


def test_widths_are_the_ones_promised() -> None:
    assert (OPS.width, TOPS.width, HOPS.width) == (14, 34, 214)
    assert (BM.width, OBS.width, F99.width, WHB.width) == (9, 18, 29, 49)
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


# ---- one event at a time -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", variants())
def test_the_long_way_has_the_same_bits(name: str) -> None:
    """Where somebody watches, and for receipts that have travelled, a call takes several steps."""
    method = variants()[name]
    scores, outcomes = (column[:150] for column in STREAMS["drifting"]())
    short, watched, posted = (
        Calibrator(method, stream=0),
        Calibrator(method, stream=0, monitor=Monitor()),
        Calibrator(method, stream=0),
    )
    late: list[tuple[Forecast, Forecast, Forecast, int]] = []
    for i, (score, y) in enumerate(zip(scores.tolist(), outcomes.astype(int).tolist(), strict=True)):
        made = short.predict(score), watched.predict(score), Forecast.from_bytes(posted.predict(score).to_bytes())
        assert made[0] == made[1] == made[2]
        late.append((*made, y))
        for *receipts, z in [late.pop()] if i % 7 != 3 else [late.pop(0)] if i % 20 == 0 else []:
            for calibrator, receipt in zip((short, watched, posted), receipts, strict=True):
                calibrator.update(receipt, z)
                calibrator.update(receipt, z)  # a repeat
    same(short.row, watched.row)
    same(short.row, posted.row)
    assert short.to_json() == posted.to_json()


@pytest.mark.parametrize("kind", ["fresh", "restored", "forked"])
def test_no_batch_begins_while_a_generation_gets_its_number(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first forecast of a new generation signs first, in Python, where another thread may take over."""
    cal = Calibrator(OPS)
    if kind != "fresh":
        cal.predict(0.5)
        cal = Calibrator.from_json(cal.to_json()) if kind == "restored" else cal
        if kind == "forked":
            cal._rows._forked()
    number, thread = rows.new_generation, threading.Thread(target=cal.run, args=([0.2, 0.4], [1, 0]))

    def meddling() -> int:
        thread.start()
        thread.join(0.1)
        return number()

    monkeypatch.setattr(rows, "new_generation", meddling)
    before = cal.events
    forecast = cal.predict(0.3)
    thread.join()
    assert forecast.event == before and cal.events == before + 3 and cal.outcomes == 2
    cal.update(forecast, 1)
    assert cal.outcomes == 3


PEEKED: dict[str, Any] = {name: partial(Calibrator, method, seed=4) for name, method in variants().items()}
PEEKED |= {"three classes": partial(MultiCalibrator, 3), "two classes": partial(MultiCalibrator, 2)}


@pytest.mark.parametrize("name", PEEKED)
def test_peek_says_what_predict_will_say(name: str) -> None:
    cal, scores = PEEKED[name](), [0.0, 0.3, 1, np.float32(0.5)]
    if isinstance(cal, MultiCalibrator):
        cal.run(*multi_streams.random(60, len(cal.classes)))
        scores = list(multi_streams.random(4, len(cal.classes))[0])
    else:
        cal.run(*(column[:60] for column in STREAMS["random"]()))
    receipt = cal.predict(scores[1])
    before = cal.to_json()
    for score in scores:
        peeked = cal.peek(score)
        same(np.array(peeked), np.array(said(type(cal).from_json(before).predict(score))))
        assert type(peeked) is (float if np.ndim(score) == 0 else np.ndarray)
        assert cal.to_json() == before
    twin = type(cal).from_json(before)
    cal.update(receipt, 1)  # asking in between does no harm
    twin.update(receipt, 1)
    same(cal.row, twin.row)


FINISHED: dict[str, Any] = {name: partial(Calibrator, name) for name in ("ops", "auto", "hops", "swps")}
FINISHED |= {f"{K} classes": partial(MultiCalibrator, K) for K in (2, 3, 65)}


@pytest.mark.parametrize("name", FINISHED)
def test_outcomes_that_are_learnt_at_the_end(name: str) -> None:
    """`finish` is a loop that predicts everything and then learns what is left, in order of (due, event)."""
    batch, loop = FINISHED[name](), FINISHED[name]()
    scores, outcomes = (column[:80] for column in STREAMS["random"]())
    if isinstance(batch, MultiCalibrator):
        scores, outcomes = multi_streams.drifting(80, len(batch.classes))
    due = np.arange(80) + 1 + np.arange(80) % 30
    forecasts = batch.run(scores, outcomes, due=due, finish=True)
    waiting = [(int(d), i) for i, d in enumerate(due)]
    receipts: list[Any] = []
    for i in range(due.max() + 1):
        for _, j in sorted(pair for pair in waiting if pair[0] == i):
            loop.update(receipts[j], int(outcomes[j]))
        if i < 80:
            receipts.append(loop.predict(one(scores[i])))
    same(forecasts, np.array([said(receipt) for receipt in receipts]))
    same(batch.row, loop.row)
    assert batch.to_json() == loop.to_json() and batch.outcomes == batch.events == 80


# ---- the evidence --------------------------------------------------------------------------------------------------


def conversions(events: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A calibrated score."""
    rng = np.random.default_rng(seed)
    scores = rng.uniform(0.05, 0.3, events)
    return scores, (rng.random(events) < scores).astype(int)


def test_in_the_order_of_the_events_any_delay_will_do() -> None:
    """Each outcome held back until all earlier ones are known: the evidence is as rarely wrong as it promises."""
    alarms = 0
    for seed in range(40):
        scores, outcomes = conversions(200, seed)
        arrival = np.arange(200) + np.where(outcomes == 1, 1, 60)  # zeros after a time-out
        in_order = np.maximum.accumulate(arrival)
        cal = Calibrator()
        cal.run(scores, outcomes, due=in_order, finish=True)
        alarms += cal.evidence >= np.log(20.0)
    assert alarms <= 4  # at level 0.05, and a supermartingale has slack


def test_evidence_in_order_does_not_depend_on_when_the_outcomes_came() -> None:
    """Once all are there, the evidence is the product over the events, whoever overtook whom."""
    cal = Calibrator()
    waiting = [cal.predict(score) for score in (0.2, 0.8, 0.5, 0.4)]
    ratio = sum(np.log(p if y else 1 - p) for p, y in zip(map(float, waiting), (1, 0, 1, 0), strict=True))
    raw = sum(np.log(f.score if y else 1 - f.score) for f, y in zip(waiting, (1, 0, 1, 0), strict=True))
    for i in (3, 0, 2, 1):
        cal.update(waiting[i], (1, 0, 1, 0)[i])
    assert cal.evidence == pytest.approx(ratio - raw, abs=1e-12)


@pytest.mark.parametrize(
    "method",
    [
        Method(Beta(), FTL(every=7, after=20, window=30)),
        Method(Platt(), FTL(every=400, after=400)),
        Method(Platt(), Fixed(after=150), Tracking()),
        Method(Histogram(bins=4), FTL(every=9, after=5)),
    ],
)
def test_single_events_and_batches_in_turn_are_fit_as_one_batch(method: Method) -> None:
    """Past many fits, larger columns and what is let go of; also on a copy, and with outcomes in another order."""
    rng = np.random.default_rng(8)
    scores = rng.random(900)
    outcomes = (rng.random(900) < scores**2).astype(int)
    whole, mixed = Calibrator(method), Calibrator(method)
    expected = whole.run(scores, outcomes).tolist()
    given: list[float] = []
    while (i := len(given)) < 900:
        if i % 200 == 50:
            given += mixed.run(scores[i : i + 37], outcomes[i : i + 37]).tolist()
            continue
        if i % 211 == 3:
            mixed = Calibrator.from_json(mixed.to_json())
        forecast = mixed.predict(scores[i])
        assert mixed.update(forecast, outcomes[i]) == "learnt"
        given.append(forecast.probability)
    assert given == expected
    assert mixed.row.tolist() == whole.row.tolist()
    assert json.loads(mixed.to_json())["history"] == json.loads(whole.to_json())["history"]
