"""What the library has learned, over HTTP: weights, counts, kept logs, numbers, models and bands.

The service forecasts as a `Calibrator` that gets the same events, bit for bit: over a restart, over kill -9, and in a
store that was made of its exported log.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from served import Process, service_here

from calibeat import Calibrator, Groups, Number
from calibeat.backtest.options import Options
from calibeat.backtest.read.files import files_of
from calibeat.service.engine import EngineSettings
from calibeat.service.maintenance import check, info, replay_check
from calibeat.service.store import open_reader
from calibeat.service.transfer import EventColumns, Stage, export, import_events

EVENTS = 120
BATCH = 10
LATE = 7  # outcomes come so many events later


class Draws:
    """Events of a stream, the same ones every time."""

    def __init__(self) -> None:
        rng = np.random.default_rng(44)
        self.scores = rng.random(EVENTS + BATCH)
        self.others = np.where(rng.random((EVENTS + BATCH, 3)) < 0.2, np.nan, rng.random((EVENTS + BATCH, 3)))
        self.others[np.isnan(self.others).all(axis=1), 0] = 0.5
        self.outcomes = (rng.random(EVENTS + BATCH) < self.scores**2).astype(int)
        self.weights = rng.choice([1.0, 20.0, 3.5, 0.0], EVENTS + BATCH)
        self.trials = rng.integers(0, 60, EVENTS + BATCH)
        self.ones = (self.trials * rng.random(EVENTS + BATCH)).astype(int)
        self.ages = np.where(rng.random(EVENTS + BATCH) < 0.1, np.nan, rng.integers(18, 90, EVENTS + BATCH) + 0.5)


DRAWS = Draws()
NAMES = ["champion", "challenger", "third"]


def age(i: int) -> float | None:
    found = float(DRAWS.ages[i])
    return None if found != found else found  # noqa: PLR0124 - NaN


def groups(i: int) -> dict[str, Any]:
    return {"country": "fr" if i % 3 else "it", "age": age(i)}


def several(i: int, names: list[str]) -> dict[str, float | None]:
    scores = [None if s != s else s for s in DRAWS.others[i].tolist()]  # noqa: PLR0124 - NaN
    return dict(zip(names, scores, strict=False))


def score(i: int) -> dict[str, Any]:
    return {"score": float(DRAWS.scores[i])}


def plain(i: int) -> dict[str, Any]:
    return {"outcome": int(DRAWS.outcomes[i])}


def weighted(i: int) -> dict[str, Any]:
    return {"outcome": int(DRAWS.outcomes[i]), "weight": float(DRAWS.weights[i])}


def counted(i: int) -> dict[str, Any]:
    return {"ones": int(DRAWS.ones[i]), "of": int(DRAWS.trials[i])}


@dataclass
class Case:
    """A stream of the service, and the calibrator that it must be like."""

    calibrator: Callable[[], Any]
    settings: dict[str, Any] = field(default_factory=dict)
    forecast: Callable[[int], dict[str, Any]] = score
    outcome: Callable[[int], dict[str, Any]] = plain
    serve: tuple[str, ...] = ()
    has_band: bool = False

    def predict(self, cal: Any, i: int) -> Any:
        asked = self.forecast(i)
        given = asked["scores"] if "scores" in asked else asked["score"]
        return cal.predict(given, asked["groups"]) if "groups" in asked else cal.predict(given)

    def update(self, cal: Any, forecast: Any, i: int) -> None:
        told = self.outcome(i)
        more = {name: told[name] for name in ("weight", "of") if name in told}
        assert cal.update(forecast, told.get("ones", told.get("outcome")), **more) == "learnt"


NUMBER = {"name": "age", "first": 40, "cells": 4}
CASES = {
    "weights": Case(Calibrator, outcome=weighted),
    "counts": Case(Calibrator, outcome=lambda i: {**counted(i), "weight": 2.0 if i % 4 else 1.0}),
    "counts of TOPS": Case(partial(Calibrator, "tops"), outcome=counted, serve=("--method", "tops")),
    "kept": Case(
        partial(Calibrator, kept=(1.0, 0.05)), {"kept": {"ones": 1.0, "zeros": 0.05}}, serve=("--monitor", "1000")
    ),
    "kept with weights and groups": Case(
        partial(Calibrator, kept=(0.5, 0.1), groups=["country"]),
        {"kept": [0.5, 0.1], "groups": ["country"], "names": True},
        lambda i: {**score(i), "groups": {"country": groups(i)["country"]}},
        weighted,
        ("--monitor", "1000"),
    ),
    "numbers": Case(
        lambda: Calibrator(groups=Groups(["country", Number("age", first=40, cells=4)])),
        {"groups": ["country", NUMBER], "names": True},
        lambda i: {**score(i), "groups": groups(i)},
    ),
    "models": Case(
        partial(Calibrator, models=NAMES),
        {"models": NAMES},
        lambda i: {"scores": several(i, NAMES)},
        serve=("--monitor", "1000"),
    ),
    "band": Case(partial(Calibrator, band=True), serve=("--band",), has_band=True, outcome=weighted),
    "band of a kept log": Case(
        partial(Calibrator, band=True, kept=(1.0, 0.2)), {"kept": [1.0, 0.2]}, serve=("--band",), has_band=True
    ),
}
SURE = ("low", "high", "outcomes", "reason")


class Pair:
    """The stream of the service and the calibrator, event by event."""

    def __init__(self, case: Case) -> None:
        self.case, self.calibrator = case, case.calibrator()
        self.waiting: list[tuple[int, Any]] = []
        self.answers: list[dict[str, Any]] = []

    def ask(self, url: str, first: int) -> list[dict[str, Any]]:
        """A batch of forecasts, and the same of the calibrator."""
        events = [{"stream": "s", "id": f"e{i}", **self.case.forecast(i)} for i in range(first, first + BATCH)]
        answer = httpx.post(f"{url}/v1/forecasts", json={"events": events})
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["forecasts"]
        for i, told in enumerate(found, first):
            forecast = self.case.predict(self.calibrator, i)
            assert told["probability"] == forecast.probability, i
            assert self.case.has_band == ("low" in told)
            if self.case.has_band:
                assert [told[name] for name in SURE] == [getattr(forecast, name) for name in SURE]
            self.waiting.append((i, forecast))
        self.answers += found
        again = httpx.post(f"{url}/v1/forecasts", json={"events": events[:3]}).json()["forecasts"]
        assert again == found[:3]
        return found

    def tell(self, url: str) -> None:
        """The outcomes of all but the last events."""
        ready, self.waiting = self.waiting[:-LATE], self.waiting[-LATE:]
        events = [{"stream": "s", "id": f"e{i}", **self.case.outcome(i)} for i, _ in ready]
        if not events:
            return
        answer = httpx.post(f"{url}/v1/outcomes", json={"events": events}).json()["outcomes"]
        assert {each["status"] for each in answer} == {"learnt"}, answer
        for i, forecast in ready:
            self.case.update(self.calibrator, forecast, i)
        answer = httpx.post(f"{url}/v1/outcomes", json={"events": events}).json()["outcomes"]
        assert {each["status"] for each in answer} == {"repeated"}

    def play(self, url: str, first: int, end: int) -> None:
        for at in range(first, end, BATCH):
            self.ask(url, at)
            self.tell(url)


def imported(store: Path, into: Path, **settings: Any) -> None:
    log = into.with_suffix(".parquet")
    assert export(str(store), log) == EVENTS
    with Stage() as stage:
        stage.read(files_of(str(log)), EventColumns({}), Options())
        made = import_events(str(into), stage, EngineSettings(method="auto", notice=False, **settings))
    assert (made.forecasts, made.outcomes) == (EVENTS, EVENTS - LATE)


@pytest.mark.parametrize("name", CASES)
def test_the_service_says_what_the_library_says(name: str, tmp_path: Path) -> None:
    case, store = CASES[name], tmp_path / "calibeat.db"
    pair, part = Pair(case), EVENTS // 3
    for at, end in ((0, signal.SIGKILL), (part, signal.SIGTERM), (2 * part, signal.SIGTERM)):
        process = Process(store, *(case.serve or ("--method", "auto")))
        try:
            if case.settings and at == 0:
                defined = httpx.put(f"{process.url}/v1/streams/s", json=case.settings)
                assert defined.status_code == 200, defined.text
                assert httpx.put(f"{process.url}/v1/streams/s", json=case.settings).json() == defined.json()
            pair.play(process.url, at, at + part)
        finally:
            process.end(end)
    assert replay_check(str(store)).differences == [] and check(str(store)) == []
    assert info(str(store))["outcomes"] == EVENTS - LATE
    with closing(open_reader(str(store))) as reader:
        shown = {event.id: event for event in reader.events("s", limit=1000) or ()}
        for told in pair.answers:
            assert shown[told["id"]].probability == told["probability"]
            assert [getattr(shown[told["id"]], name) for name in SURE] == [told.get(name) for name in SURE]
        found = reader.stream("s")
        assert found is not None and found.log_loss is not None
    if "tops" in case.serve:
        return
    again = tmp_path / "again.db"
    imported(store, again, band=case.has_band or None)
    assert replay_check(str(again)).differences == [] and check(str(again)) == []
    with service_here(again, settings=EngineSettings()) as url:
        events = httpx.get(f"{url}/v1/streams/s/events?limit=1000").json()["events"]
        assert [
            {name: event[name] for name in told} for event, told in zip(events, shown_of(pair), strict=True)
        ] == shown_of(pair)
        pair.ask(url, EVENTS)


def shown_of(pair: Pair) -> list[dict[str, Any]]:
    """The answers as events show them."""
    return [{name: value for name, value in told.items() if name != "stream"} for told in pair.answers]
