"""Outcomes with weights and counts of trials over HTTP: what is a repeat, a conflict, a correction; what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from served import service_here
from services import DAY, desk, desk_beside, whole

from calibeat import Calibrator
from calibeat.core.stats import log_loss
from calibeat.service.engine import EngineSettings
from calibeat.service.events import CorrectionEvent, ForecastEvent, InvalidEvent, OutcomeEvent, StreamSettings
from calibeat.service.maintenance import rebuild, replay_check
from calibeat.service.store import open_reader
from calibeat.service.store.queries import EventInfo


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with service_here(tmp_path_factory.mktemp("weights") / "a.db", settings=EngineSettings(method="auto")) as where:
        events = [{"stream": "s", "id": f"e{i}", "score": (i + 1) / 30} for i in range(25)]
        assert httpx.post(f"{where}/v1/forecasts", json={"events": events}).status_code == 200
        yield where


def report(url: str, name: str, **told: Any) -> tuple[int, str]:
    """The status of an answer, and its word or sentence."""
    answer = httpx.post(f"{url}/v1/outcomes", json={"stream": "s", "id": name, **told})
    found = answer.json()
    return answer.status_code, found["status"] if answer.status_code == 200 else found["error"]["message"]


def test_the_same_numbers_are_a_repeat_and_others_a_conflict(served: str) -> None:
    assert report(served, "e0", outcome=1, weight=20.0) == (200, "learnt")
    assert report(served, "e0", outcome=1, weight=20) == (200, "repeated")
    for other in ({"outcome": 1}, {"outcome": 1, "weight": 19.0}, {"outcome": 0, "weight": 20.0}):
        assert report(served, "e0", **other)[0] == 409
    assert report(served, "e1", ones=3, of=50) == (200, "learnt")
    assert report(served, "e1", ones=3, of=50.0) == (200, "repeated")
    assert [report(served, "e1", **told)[0] for told in ({"ones": 3, "of": 51}, {"ones": 2, "of": 50})] == [409, 409]
    assert report(served, "e1", ones=3, of=50, weight=2.0)[0] == 409
    assert report(served, "e2", ones=1, of=1) == (200, "learnt")  # which is one event
    assert report(served, "e2", outcome=1, weight=1.0) == (200, "repeated")
    assert report(served, "e3", outcome=0, weight=0.0) == (200, "learnt")  # of which nothing is learnt
    assert report(served, "e4", ones=0, of=0) == (200, "learnt")
    shown = {event["id"]: event for event in httpx.get(f"{served}/v1/streams/s/events").json()["events"]}
    fields = ("outcome", "weight", "ones", "of")
    assert [[shown[name][part] for part in fields] for name in ("e0", "e1", "e2", "e3", "e4")] == [
        [1, 20.0, None, None],
        [None, None, 3, 50],
        [1, None, None, None],
        [0, 0.0, None, None],
        [None, None, 0, 0],
    ]


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        ({"outcome": 1, "weight": -1.0}, "weight must be a number from 0 to 1e12, got -1.0"),
        ({"outcome": 1, "weight": 2e12}, "weight must be a number from 0 to 1e12, got 2000000000000.0"),
        ({"outcome": 1, "weight": "2"}, 'weight must be a number from 0 to 1e12, got "2"'),
        ({"weight": 2.0}, "outcome is missing: body must have stream, id, outcome, or events"),
        ({"ones": 3}, "ones must come with of, got no of"),
        ({"of": 3}, "ones must come with of, got no ones"),
        ({"ones": 4, "of": 3}, "ones must be at most of, 3, got 4"),
        ({"ones": 1.5, "of": 3}, "ones must be a whole number from 0 to 1,000,000,000, got 1.5"),
        ({"ones": 1, "of": 10**10}, "of must be a whole number from 0 to 1,000,000,000, got 10000000000"),
        ({"ones": 1, "of": 2, "outcome": 1}, "event must have either outcome or ones and of, got both"),
        ({"ones": 1, "of": 2, "label": "a"}, "event must have either outcome or ones and of, got both"),
    ],
)
def test_what_is_no_outcome_is_refused(served: str, told: dict[str, Any], sentence: str) -> None:
    assert report(served, "e20", **told) == (400, sentence)


def test_a_bad_one_of_a_batch_does_not_hold_up_the_others(served: str) -> None:
    events = [{"outcome": 1, "weight": 2.0}, {"ones": 4, "of": 3}, {"ones": 3, "of": 4}, {"outcome": 1, "weight": -2}]
    sent = [{"stream": "s", "id": f"e{10 + at}", **told} for at, told in enumerate(events)]
    found = httpx.post(f"{served}/v1/outcomes", json={"events": sent}).json()["outcomes"]
    assert [each["status"] for each in found] == ["learnt", "invalid", "learnt", "invalid"]
    assert found[1]["message"] == "ones must be at most of, 3, got 4"


# ---- what cannot be learnt is refused as the library refuses it ------------------------------------------------------


def reason(cal: Any, scores: Any, outcome: Any, **more: Any) -> str:
    with pytest.raises(ValueError, match=r"must be|cannot") as caught:
        cal.update(cal.predict(scores), outcome, **more)
    return str(caught.value)


def test_what_the_method_cannot_learn_is_refused_with_its_reason(tmp_path: Path) -> None:
    heavy, counted = {"weight": 2.0}, {"ones": 1, "of": 2}
    with desk(str(tmp_path / "hops.db"), method="hops") as service:
        service.ask(("s", "e1", 0.3), ("s", "e2", 0.3), ("s", "e3", 0.3))
        found = service.group(
            [OutcomeEvent("s", "e1", 1, **heavy), OutcomeEvent("s", "e2", **counted), OutcomeEvent("s", "e3", 1)]
        )[0]
        hops = Calibrator("hops")
        sentences = [reason(hops, 0.3, 1, weight=2.0), reason(hops, 0.3, 1, of=2)]
        assert found == [*(InvalidEvent(text, "s", f"e{at}") for at, text in enumerate(sentences, 1)), "learnt"]
        assert service.tell(("s", "e1", 1)) == ["learnt"]  # nothing was half done
    with desk(str(tmp_path / "models.db"), method="auto") as service:
        service.group([StreamSettings("s", models=["a", "b"])])
        service.group([ForecastEvent("s", "e1", scores=[0.2, 0.4])])
        (found,) = service.group([OutcomeEvent("s", "e1", 1, **heavy), OutcomeEvent("s", "e1", **counted)])
        models = Calibrator(models=["a", "b"])
        assert [each.message for each in found] == [
            reason(models, [0.2, 0.4], 1, weight=2.0),
            reason(models, [0.2, 0.4], 1, of=2),
        ]
    with desk(str(tmp_path / "classes.db"), method="auto") as service:
        service.group([ForecastEvent("s", "e1", scores=[0.2, 0.3, 0.5])])
        (found,) = service.group([OutcomeEvent("s", "e1", **counted)])
        assert found[0].message == "of must be left out with many classes: a label is one event"
        assert service.group([OutcomeEvent("s", "e1", label=1, **heavy)]) == [["learnt"]]
    with desk(str(tmp_path / "watched.db"), method="auto", monitor=1000.0) as service:
        service.ask(("s", "e1", 0.3))
        (found,) = service.group([OutcomeEvent("s", "e1", 1, **heavy), OutcomeEvent("s", "e1", **counted)])
        assert found[0].message.startswith("a monitor cannot judge weighted outcomes")
        assert found[1].message.startswith("a monitor cannot judge counts")
        assert service.tell(("s", "e1", 1)) == ["learnt"]


# ---- corrections, maturity, sums -------------------------------------------------------------------------------------


def mean_loss(events: list[EventInfo]) -> float:
    """The mean log-loss of some events, over those that their outcomes stand for."""
    total = loss = 0.0
    for event in events:
        weight, p = 1.0 if event.weight is None else event.weight, event.probability
        ones, of = (event.outcome, 1) if event.of is None else (event.ones, event.of)
        if ones is not None and p is not None:
            total += weight * of
            loss += weight * (ones * log_loss(p, 1.0) + (of - ones) * log_loss(p, 0.0))
    return loss / total


def fill(service: Any, right: dict[str, dict[str, Any]]) -> None:
    service.ask(*[("s", f"e{at}", (at + 1) / 30) for at in range(20)])
    for at in range(20):
        told = right.get(f"e{at}", {"outcome": at % 2, "weight": 1.0 + at})
        if told:
            assert service.group([OutcomeEvent("s", f"e{at}", **told)]) == [["learnt"]]


def test_corrections_have_weights_and_counts(url: str, tmp_path: Path) -> None:
    right: dict[str, dict[str, Any]] = {
        "e3": {"outcome": 1, "weight": 7.0},
        "e4": {"ones": 2, "of": 9},
        "e5": {"outcome": 1, "weight": 6.0},  # as it was
        "e6": {},
    }
    with desk(url, method="auto") as service:
        fill(service, {"e4": {"ones": 1, "of": 9}})
        asked = [CorrectionEvent("s", name, **(told or {"outcome": None})) for name, told in right.items()]
        assert service.group(asked) == [["corrected", "corrected", "repeated", "corrected"]]
        assert service.group(asked) == [["repeated"] * 4]  # before and after it is applied
        assert service.engine.corrections.do_all() == 3
        assert service.group(asked) == [["repeated"] * 4]
        both = CorrectionEvent("s", "e7", None, ones=1, of=2)
        assert service.group([both])[0][0].message == "event must have either outcome or ones and of, got both"
        with desk_beside(tmp_path, method="auto") as beside:
            fill(beside, right)
            assert service.ask(("s", "next", 0.4)) == beside.ask(("s", "next", 0.4))
    with closing(open_reader(url)) as reader:
        info, events = reader.stream("s"), reader.events("s") or []
        assert info is not None and info.outcomes == 19
        assert info.log_loss == pytest.approx(mean_loss(events))
        event = reader.event("s", "e4")
        assert event is not None and (event.ones, event.of, event.corrected) == (2, 9, False)
    assert whole(url)


def test_a_weighted_event_is_forgotten_with_its_weight(url: str) -> None:
    with desk(url, method="auto") as service:
        fill(service, {})
        assert service.forget("s", "e7", "e8") == 2
    assert whole(url)


def test_a_weighted_outcome_is_held_until_it_is_mature(url: str, tmp_path: Path) -> None:
    with desk(url, method="auto", mature=DAY) as service, desk_beside(tmp_path, method="auto") as beside:
        service.ask(("s", "e1", 0.3), ("s", "e2", 0.6))
        told = [OutcomeEvent("s", "e1", 1, weight=3.0), OutcomeEvent("s", "e2", ones=3, of=7)]
        assert service.group(told) == [["held", "held"]]
        assert service.group([CorrectionEvent("s", "e1", 1, weight=4.0)]) == [["corrected"]]
        service.tick(2 * DAY)
        beside.ask(("s", "e1", 0.3), ("s", "e2", 0.6))
        assert beside.group([OutcomeEvent("s", "e1", 1, weight=4.0), told[1]]) == [["learnt", "learnt"]]
        assert service.ask(("s", "e3", 0.5)) == beside.ask(("s", "e3", 0.5))
    assert whole(url)


def test_means_are_over_the_events_that_outcomes_stand_for(url: str) -> None:
    with desk(url, method="auto") as service:
        service.group([StreamSettings("s", kept=[1.0, 0.1])])
        p, q = service.ask(("s", "e1", 0.3), ("s", "e2", 0.6))
        service.group([OutcomeEvent("s", "e1", 0, weight=2.0), OutcomeEvent("s", "e2", ones=3, of=4)])
    loss = 20.0 * log_loss(p, 0.0) + 3.0 * log_loss(q, 1.0) + 10.0 * log_loss(q, 0.0)
    with closing(open_reader(url)) as reader:
        info = reader.stream("s")
        assert info is not None and info.outcomes == 2
        assert info.log_loss == pytest.approx(loss / 33.0)
        totals = reader.totals()
        assert totals.log_loss == pytest.approx(loss / 33.0)
        (hour,) = reader.history("s") or ()
        assert (hour.outcomes, hour.weight, hour.sum_outcome) == (2, pytest.approx(33.0), pytest.approx(3.0))
        found = reader.reliability("s")
        assert found is not None
        assert sum(each.weight for each in found.calibrated) == pytest.approx(33.0)
        assert sum(each.sum_p for each in found.calibrated) == pytest.approx(20.0 * p + 13.0 * q)
    assert whole(url)


def test_another_method_learns_the_weights_too(url: str, tmp_path: Path) -> None:
    with desk(url, method="auto") as service:
        fill(service, {"e4": {"ones": 1, "of": 9}})
    rebuild(url, "ops")
    with desk(url, method="ops") as service, desk_beside(tmp_path, method="ops") as beside:
        fill(beside, {"e4": {"ones": 1, "of": 9}})
        assert service.ask(("s", "next", 0.4)) == beside.ask(("s", "next", 0.4))
    assert replay_check(url).differences == []
