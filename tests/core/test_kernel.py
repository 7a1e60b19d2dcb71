"""Single events: the compiled core asks, plays and settles as the kernels do that one reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conformance import delays, same
from streams import STREAMS, extremes, variants

from calibeat import OPS, Calibrator, Forecast, InvalidInput, Method, OutcomeConflict, UnknownForecast
from calibeat.core import kernel
from calibeat.core.randomness import stream_key, uniforms
from calibeat.core.subset import plain
from calibeat.core.weights import Outcome

METHODS = variants() | extremes()
ALONE = [name for name, method in METHODS.items() if not method.needs_history]


def event_of(y: float) -> Outcome:
    """One event."""
    return Outcome(y, 1.0, 1.0)


class Kernels:
    """A stream of the kernels as Python, one event at a time."""

    def __init__(self, method: Method) -> None:
        self.spec, self.row, self.key = method.spec, method.initial_row(), stream_key(5, 0)
        self.events = 0

    def predict(self, score: float) -> tuple[Any, Any, Any]:
        receipt = np.zeros(self.spec.receipt)
        u = uniforms(self.key, self.events, 1)[0] if self.spec.draws else 0.0
        asked = kernel.ask(self.spec, self.row, score, receipt)
        self.events += 1
        return asked, kernel.play(self.spec, self.row, asked, u, receipt), receipt

    def update(self, score: float, played: Any, y: float, receipt: Any) -> None:
        plain(kernel.update)(self.spec, self.row, float(self.events), score, played.cell, event_of(y), receipt)


@pytest.mark.parametrize("name", ALONE)
def test_single_events_are_the_kernels(name: str) -> None:
    """At once, where what was asked is still there, and late, where it is asked again."""
    scores, outcomes = STREAMS["drifting"]()
    for due in (np.arange(300) + 1, delays(300)):
        cal, ours = Calibrator(METHODS[name], seed=5), Kernels(METHODS[name])
        waiting: list[tuple[Forecast, Any, Any]] = []
        arrived, order = 0, np.argsort(due, kind="stable").tolist()
        for i, score in enumerate(scores.tolist()):
            while arrived < 300 and due[order[arrived]] <= i:
                j = order[arrived]
                forecast, played, receipt = waiting[j]
                cal.update(forecast, int(outcomes[j]))
                ours.update(forecast.score, played, float(outcomes[j]), receipt)
                arrived += 1
            forecast = cal.predict(score)
            asked, played, receipt = ours.predict(score)
            said = forecast.probability, forecast.expert, forecast.bin, forecast.cell
            assert said == (played.forecast, asked.expert, played.bin, played.cell)
            assert np.array(forecast.lanes).tobytes() == receipt.tobytes()
            if played.low != played.high:
                expected = (played.low, played.weight), (played.high, 1.0 - played.weight)
                assert forecast.candidates == expected
            waiting.append((forecast, played, receipt))
        same(cal.row[1:].copy(), ours.row[1:])


def test_what_was_asked_is_settled_as_it_stands() -> None:
    """`settle` of what was asked at the same row, and `update`, which asks again, are the same."""
    for name in ALONE:
        one, two = Kernels(METHODS[name]), Kernels(METHODS[name])
        for score, y in zip(*(column[:50].tolist() for column in STREAMS["extreme"]()), strict=True):
            asked, played, receipt = one.predict(score)
            kernel.settle(one.spec, one.row, float(one.events), asked, played.cell, event_of(y), receipt)
            _, played, receipt = two.predict(score)
            two.update(score, played, y, receipt)
        same(one.row, two.row)


@pytest.mark.parametrize("spoilt", ["marked already", "not made yet", "another's", "a conflict"])
def test_an_outcome_that_is_not_settled_changes_nothing(spoilt: str) -> None:
    cal = Calibrator(OPS)
    forecast = cal.predict(0.7)
    if spoilt in ("marked already", "a conflict"):
        cal.update(forecast, 1)
    before, state = cal.row.copy(), cal.to_json()
    if spoilt == "marked already":
        cal.update(forecast, 1)
    elif spoilt == "a conflict":
        with pytest.raises(OutcomeConflict):
            cal.update(forecast, 0)
    else:
        other = forecast.__replace__(event=7) if spoilt == "not made yet" else Calibrator(OPS, seed=2).predict(0.7)
        with pytest.raises(UnknownForecast if spoilt == "another's" else InvalidInput):  # one made by hand has no seal
            cal.update(other, 1)
    same(cal.row.copy(), before)
    assert cal.to_json() == state
