"""What the band costs: single calls and batches of AUTO with `band=True` beside those without; CPU time, in turns."""

from __future__ import annotations

from functools import partial
from time import thread_time
from typing import Any

import numpy as np

from benchmarks import table
from benchmarks.timing import once
from calibeat import Calibrator

GOALS = {"predict": 60.0, "update": 25.0}  # nanoseconds more, with outcomes at once


def cost(*, quick: bool) -> None:
    """Table: nanoseconds an event without the band, with it, and the difference; outcomes at once and 100 late."""
    events, repeats = (20_000, 10) if quick else (50_000, 40)
    rng = np.random.default_rng(1)
    scores = rng.random(events)
    outcomes = (rng.random(events) < scores).astype(int)
    rows = []
    for late in (0, 100):
        spent: dict[tuple[str, bool], float] = {}
        for _ in range(repeats):
            for band in (False, True):
                for call, seconds in seconds_of(late, scores, outcomes, band=band).items():
                    spent[call, band] = min(seconds, spent.get((call, band), np.inf))
        for call in ("predict", "predict and update", "update", "run", "run, with columns"):
            if call == "update":  # the rest of both
                for band in (False, True):
                    spent[call, band] = spent["predict and update", band] - spent["predict", band]
            without, banded = (1e9 * spent[call, band] / events for band in (False, True))
            goal = GOALS.get(call) if late == 0 else None
            met = ("", "") if goal is None else (f"{goal:g}", table.verdict(met=banded - without <= goal))
            rows.append([call, f"{late} late", f"{without:.0f}", f"{banded:.0f}", f"{banded - without:+.0f}", *met])
    head = ["call", "outcomes", "without ns", "band ns", "more", "at most", "met"]
    table.show(f"what the band costs, {events:,} events of one stream of AUTO", head, rows)


def seconds_of(late: int, scores: Any, outcomes: Any, *, band: bool) -> dict[str, float]:
    """CPU seconds of all events: one by one, and as a batch, with the answers of the band and without."""
    one, given, came = Calibrator(band=band), scores.tolist(), outcomes.tolist()
    both = once(partial(play, one, given, came, late), thread_time)
    due = np.arange(len(given)) + 1 + late if late else None
    columns = {"band": True} if band else {}
    return {
        "predict and update": both,
        "predict": once(partial(predict_all, one, given), thread_time),
        "run": once(partial(Calibrator(band=band).run, scores, outcomes, due=due), thread_time),
        "run, with columns": once(
            partial(Calibrator(band=band).run, scores, outcomes, due=due, **columns), thread_time
        ),
    }


def play(calibrator: Calibrator, scores: list[float], outcomes: list[int], late: int) -> None:
    """Forecast all events; each outcome is learnt after so many other forecasts."""
    if not late:
        for score, outcome in zip(scores, outcomes, strict=True):
            calibrator.update(calibrator.predict(score), outcome)
        return
    waiting = [calibrator.predict(score) for score in scores[:late]]
    for at in range(late, len(scores)):
        place = at % late
        calibrator.update(waiting[place], outcomes[at - late])
        waiting[place] = calibrator.predict(scores[at])


def predict_all(calibrator: Calibrator, scores: list[float]) -> None:
    """Forecast all events, and keep nothing."""
    for score in scores:
        calibrator.predict(score)
