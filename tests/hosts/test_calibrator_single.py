"""One event at a time: by the short way, by the long way, and without making an event."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from conformance import same
from streams import STREAMS, variants

from calibeat import OPS, Calibrator, Forecast, Monitor
from calibeat.hosts import rows


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


@pytest.mark.parametrize("name", variants())
def test_peek_says_what_predict_will_say(name: str) -> None:
    cal = Calibrator(variants()[name], seed=4)
    cal.run(*(column[:60] for column in STREAMS["random"]()))
    receipt = cal.predict(0.4)
    before = cal.to_json()
    for score in (0.0, 0.3, 1, np.float32(0.5)):
        said = cal.peek(score)
        assert type(said) is float and said == float(Calibrator.from_json(before).predict(score))
        assert cal.to_json() == before
    twin = Calibrator.from_json(before)
    cal.update(receipt, 1)  # asking in between does no harm
    twin.update(receipt, 1)
    same(cal.row, twin.row)


@pytest.mark.parametrize("method", ["ops", "auto", "hops", "swps"])
def test_outcomes_that_are_learnt_at_the_end(method: str) -> None:
    """`finish` is a loop that predicts everything and then learns what is left, in order of (due, event)."""
    scores, outcomes = (column[:80] for column in STREAMS["random"]())
    due = np.arange(80) + 1 + np.arange(80) % 30
    batch, loop = Calibrator(method), Calibrator(method)
    forecasts = batch.run(scores, outcomes, due=due, finish=True)
    waiting = [(int(d), i) for i, d in enumerate(due)]
    receipts: list[Forecast] = []
    for i in range(due.max() + 1):
        for _, j in sorted(pair for pair in waiting if pair[0] == i):
            loop.update(receipts[j], int(outcomes[j]))
        if i < 80:
            receipts.append(loop.predict(float(scores[i])))
    same(forecasts, np.array([float(receipt) for receipt in receipts]))
    same(batch.row, loop.row)
    assert batch.to_json() == loop.to_json() and batch.outcomes == batch.events == 80
