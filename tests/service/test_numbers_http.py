"""Groups whose values are numbers, over HTTP: the first ones fix the cells, whatever is refused or asked again."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
from served import service_here
from services import DAY, desk, whole

from calibeat import Calibrator, Groups, Number
from calibeat.service.engine import EngineSettings
from calibeat.service.events import ForecastEvent, KeptShares, NumberGroup, OutcomeEvent, Refusal, StreamSettings
from calibeat.service.maintenance import prune
from calibeat.service.store import open_reader
from calibeat.service.upgrade import upgrade

AGE = NumberGroup("age", first=20, cells=3)
WANTED = 'groups must be a list of attributes: names, or {"name": ...} for one whose values are numbers'


def put(url: str, **settings: Any) -> tuple[int, Any]:
    answer = httpx.put(f"{url}/v1/streams/s", json=settings)
    return answer.status_code, answer.json() if answer.status_code == 200 else answer.json()["error"]["message"]


def test_a_number_is_an_object_among_the_names(tmp_path: Path) -> None:
    with service_here(tmp_path / "a.db", settings=EngineSettings(method="auto")) as url:
        for group, sentence in (
            ({"name": "age", "first": 0}, "first of age must be a whole number in [1, 10000], got 0"),
            ({"name": "age", "edges": [3.0, 2.0]}, "edges of age must increase, got 2.0 after 3.0"),
            ({"name": "age", "cell": 3}, f'{WANTED}, got [{{"name":"age","cell":3}}]'),
            ({"first": 3}, f'{WANTED}, got [{{"first":3}}]'),
            (3, f"{WANTED}, got [3]"),
        ):
            assert put(url, groups=[group]) == (400, sentence)
        status, made = put(url, groups=["country", {"name": "age", "number": True, "edges": [18.0, 65.0]}], names=True)
        number = {"name": "age", "first": 500, "cells": 8, "edges": [18.0, 65.0]}
        assert status == 200 and made["groups"]["attributes"] == ["country", number]
        assert put(url, groups=made["groups"]["attributes"], names=True) == (200, made)  # as it was answered
        for value, sentence in (
            ("old", "age must be a number or None, got str 'old'"),
            (True, "age must be a number or None, got bool True"),
        ):
            body = {"stream": "s", "id": "e", "score": 0.5, "groups": {"country": "fr", "age": value}}
            answer = httpx.post(f"{url}/v1/forecasts", json=body)
            assert (answer.status_code, answer.json()["error"]["message"]) == (400, f"{sentence} - at event 0")
        for i in range(60):
            body = {"stream": "s", "id": f"e{i}", "score": 0.5, "groups": {"country": "fr", "age": 20.5 + 2 * (i % 30)}}
            assert httpx.post(f"{url}/v1/forecasts", json=body).status_code == 200
            httpx.post(f"{url}/v1/outcomes", json={"stream": "s", "id": f"e{i}", "outcome": int(i % 30 > 21)})
        table = httpx.get(f"{url}/v1/streams/s/segments?least=10").json()["segments"]
        assert {each["value"] for each in table if each["attribute"] == "age"} == {"18 to 65", "65 or more"}
        assert ["fr", "65 or more"] in [each["value"] for each in table if each["attribute"] == "country x age"]


def test_edges_that_were_given_survive_a_restart(url: str) -> None:
    with desk(url, method="auto") as service:
        service.group(
            [StreamSettings("s", groups=[NumberGroup("age", edges=[18.0, 65.0]), NumberGroup("pay", first=3)])]
        )
        for i in range(5):
            service.group([ForecastEvent("s", f"e{i}", 0.4, groups={"age": 10.0 * i, "pay": i})])
    with desk(url, method="auto") as service:
        assert len(service.group([ForecastEvent("s", "e5", 0.4, groups={"age": -1e300, "pay": None})])[0]) == 1
    assert whole(url)


def event(i: int, name: str | None = None, **more: Any) -> ForecastEvent:
    groups = {"country": "fr" if i % 2 else "it", "age": None if i % 9 == 4 else 20 + (7 * i) % 50}
    return ForecastEvent("s", name or f"e{i}", (i % 19 + 1) / 20, groups={**groups, **more})


def test_first_numbers_are_those_of_events_that_were_taken(url: str) -> None:
    """A batch that is refused has gathered nothing, and an event that is asked again gathers nothing more."""
    cal = Calibrator(groups=Groups(["country", Number("age", first=20, cells=3)]))
    with desk(url, method="auto") as service:
        service.group([StreamSettings("s", groups=["country", AGE])])
        for i in range(0, 60, 3):
            batch = [event(at) for at in range(i, i + 3)]
            (refused,) = service.group([event(1, name="x"), *batch, event(2, name="y", age="old")])
            assert isinstance(refused, Refusal) and refused.at == 4
            (told,) = service.group(batch)
            receipts = [cal.predict(each.score, each.groups) for each in batch]
            assert told == [receipt.probability for receipt in receipts]
            assert service.group([event(0), *batch])[0][1:] == told  # also behind the cells that were fixed since
            service.group([OutcomeEvent("s", f"e{at}", at % 2) for at in range(i, i + 3)])
            for at, receipt in enumerate(receipts, i):
                cal.update(receipt, at % 2)
        (conflict,) = service.group([event(0, age=99)])
        assert isinstance(conflict, Refusal) and conflict.message.startswith("id must be new or have the groups it had")
        (conflict,) = service.group([event(0, country="de")])
        assert isinstance(conflict, Refusal) and conflict.status == 409
    assert whole(url)


def test_the_cells_stay_over_a_copy_a_reset_and_a_correction(url: str) -> None:
    with desk(url, method="auto") as service:
        service.group([StreamSettings("s", groups=["country", AGE], names=True)])
        for i in range(40):
            service.group([event(i)], [OutcomeEvent("s", f"e{i}", i % 2)])
        assert service.do("copy", "s", to="t") == "copied"
        copied = [ForecastEvent("t", f"n{i}", 0.4, groups=event(i).groups) for i in range(10)]
        assert service.group(copied) == service.group([ForecastEvent("s", e.id, 0.4, groups=e.groups) for e in copied])
        assert service.correct(("s", "e7", 0)) == ["corrected"]
        assert service.engine.corrections.do_all() == 1
        assert service.do("reset", "s") == "reset"
        service.group([event(i, name=f"m{i}") for i in range(10)])
        known = service.engine.streams["s"].shape.known
    with desk(url, method="auto") as service:
        service.group([event(50)])
        assert service.engine.streams["s"].shape.known == known
    with closing(open_reader(url)) as reader:
        info = reader.stream("s")
        assert info is not None and info.groups is not None and "numbers" not in info.groups
    assert whole(url)


def test_the_cells_stay_when_the_numbers_that_have_made_them_are_pruned(url: str, tmp_path: Path) -> None:
    target = str(tmp_path / "new.db")
    with desk(url, method="auto") as service:
        service.group([StreamSettings("s", groups=["country", AGE], names=True)])
        for i in range(40):
            service.group([event(i)], [OutcomeEvent("s", f"e{i}", i % 2)])
        service.now += 100 * DAY
        service.group([event(50)], [OutcomeEvent("s", "e50", 1)])
        known, now = service.engine.streams["s"].shape.known, service.now
    assert prune(url, 10 * DAY, now=now) == 40 and whole(url)
    assert upgrade(url, target).lost == [] and whole(target)
    for store in (url, target):
        with desk(store, method="auto") as service:
            service.group([event(60)])
            assert service.engine.streams["s"].shape.known == known
        assert whole(store)
    with desk(url, method="auto") as service:
        service.group([event(61)])
        assert service.forget("s", "e60") == 1
    assert whole(url)


def test_first_numbers_are_gathered_again_by_an_upgrade(tmp_path: Path) -> None:
    url, target = str(tmp_path / "a.db"), str(tmp_path / "b.db")
    with desk(url, method="auto") as service:
        service.group([StreamSettings("s", groups=["country", AGE], names=True)])
        service.group([event(i) for i in range(5)])
        known = service.engine.streams["s"].shape.to_text()
    assert upgrade(url, target).lost == []
    with desk(target, method="auto") as service:
        service.group([event(0)])
        assert service.engine.streams["s"].shape.to_text() == known
    assert whole(target)


def test_classes_keep_no_shares(tmp_path: Path) -> None:
    with desk(str(tmp_path / "a.db")) as service:
        (refused,) = service.group([StreamSettings("s", classes=3, kept=KeptShares(1.0, 0.5))])
        assert isinstance(refused, Refusal) and "kept must be left out with classes" in refused.message
