"""The evidence and late outcomes: what it promises."""

from __future__ import annotations

import numpy as np
import pytest

from calibeat import Calibrator


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
