"""Labels as they are in life: late, never, wrong; and clocks that go back."""

from __future__ import annotations

import queue
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from served import wait_until
from services import DAY, START, desk

from calibeat.service.engine import Engine
from calibeat.service.events import CorrectionEvent, ForecastEvent, OutcomeEvent, Refusal
from calibeat.service.maintenance import check, info, rebuild, replay_check
from calibeat.service.settings import EngineSettings
from calibeat.service.store import open_connection, open_reader
from calibeat.service.store.queries import Delay


def whole(url: str) -> bool:
    return replay_check(url).is_same and check(url) == []


# ---- maturity -------------------------------------------------------------------------------------------------------


def test_ones_and_zeros_are_learnt_at_the_same_age(url: str) -> None:
    with desk(url, mature=7 * DAY) as service:
        service.ask(("paris", "e1", 0.8), ("paris", "e2", 0.8))
        service.now += DAY
        assert service.tell(("paris", "e1", 1)) == ["held"]
        assert service.tell(("paris", "e1", 1), ("paris", "e1", 0)) == ["repeated", "conflict"]
        unlearnt = service.ask(("paris", "e3", 0.8))
        assert unlearnt == service.ask(("paris", "e2", 0.8))
        service.tick(6 * DAY - 1.0)
        assert service.engine.counters.outcomes == 0
        service.tick(2.0)  # nobody has to come for it
        assert service.engine.counters.outcomes == 1
        assert service.ask(("paris", "e4", 0.8)) != unlearnt
        assert service.tell(("paris", "e2", 0)) == ["learnt"]  # old enough when it comes
        assert service.tell(("paris", "e1", 1)) == ["repeated"]
    assert whole(url)


def test_what_is_held_survives_a_restart(url: str) -> None:
    with desk(url, mature=7 * DAY) as service:
        service.ask(("paris", "e1", 0.8))
        service.tell(("paris", "e1", 1))
    with desk(url, mature=7 * DAY) as service:
        service.tick(7 * DAY + 1.0)
        assert service.engine.counters.outcomes == 1
    assert whole(url)


def test_an_outcome_that_was_held_keeps_the_time_when_it_came(url: str) -> None:
    with desk(url, mature=7 * DAY) as service:
        service.ask(("paris", "e1", 0.8))
        service.now += 100.0
        service.tell(("paris", "e1", 1))
        service.tick(8 * DAY)
        assert service.engine.store.connection.all("SELECT outcome_time FROM event") == [(START + 100.0,)]
    with closing(open_reader(url)) as reader:
        assert reader.delays("paris") == [Delay(128.0, 1)]


def test_a_forecast_and_its_outcome_in_one_group_are_held_too(url: str) -> None:
    with desk(url, mature=DAY) as service:
        service.group([ForecastEvent("paris", "e1", 0.8)], [OutcomeEvent("paris", "e1", 1)])
        service.tick(DAY)
        assert service.engine.counters.outcomes == 1
    assert whole(url)


def test_the_thread_looks_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibeat.service.engine.AGE_SECONDS", 0.01)
    now = [START]
    engine = Engine.open(str(tmp_path / "a.db"), EngineSettings(method="tops", mature=DAY), clock=lambda: now[0])
    heard: queue.SimpleQueue[object] = queue.SimpleQueue()
    engine.start(heard.put)
    engine.submit(0, [ForecastEvent("paris", "e1", 0.8)])
    engine.submit(1, [OutcomeEvent("paris", "e1", 1)])
    while heard.get(timeout=60) == []:
        pass
    now[0] += 2 * DAY
    wait_until(lambda: engine.counters.outcomes == 1)
    engine.stop()


# ---- expiry ---------------------------------------------------------------------------------------------------------


def test_a_forecast_without_an_outcome_expires(url: str) -> None:
    with desk(url, expire=30 * DAY) as service:
        service.ask(("paris", "e1", 0.8), ("paris", "e2", 0.8))
        service.tell(("paris", "e1", 1))
        service.tick(30 * DAY + 1.0)
        assert service.engine.counters.expired == 1
        assert service.ask(("paris", "e2", 0.8)) == service.ask(("paris", "e1", 0.8))  # what was told stays told
        assert service.engine.counters.outcomes == 1  # nothing was learnt from it
        assert whole(url)
    found = info(url)
    assert (found["pending"], found["expired"], found["outcomes"]) == (0, 1, 1)


def statuses(url: str, stream: str = "paris") -> dict[str, str]:
    with closing(open_reader(url)) as reader:
        return {event.id: event.status for event in reader.events(stream) or ()}


@pytest.mark.parametrize("shape", ["plain", "classes", "groups"])
def test_an_outcome_that_comes_late_is_learnt_and_is_late(url: str, tmp_path: Path, shape: str) -> None:
    """The state is that of a stream without expiry; only the monitors have gone on without it."""
    more: dict[str, Any] = {"plain": {}, "groups": {"groups": {"land": "fr"}}, "classes": {}}[shape]

    def forecast(name: str, score: float) -> ForecastEvent:
        if shape == "classes":
            return ForecastEvent("paris", name, scores=[score, 0.7 - score / 2, 0.3 - score / 2])
        return ForecastEvent("paris", name, score, **more)

    def outcome(name: str, y: int) -> OutcomeEvent:
        return OutcomeEvent("paris", name, label=y) if shape == "classes" else OutcomeEvent("paris", name, y)

    settings = {"method": "auto", "monitor": 1000.0, "notice": False}
    with desk(url, expire=30 * DAY, **settings) as service, desk(str(tmp_path / "beside.db"), **settings) as beside:
        for both in (service, beside):
            both.group([forecast(f"e{at}", at / 20) for at in range(10)])
            both.group([outcome(f"e{at}", at % 2) for at in range(0, 10, 2)])
            both.tick(31 * DAY)
            both.group([forecast("later", 0.3)], [outcome("later", 0)])
            assert both.group([outcome("e1", 1), outcome("e3", 0)]) == [["learnt", "learnt"]]
            assert both.group([outcome("e1", 1), outcome("e3", 1)]) == [["repeated", "conflict"]]
        assert [both.engine.streams["paris"].pending for both in (service, beside)] == [0, 3]
        states = [both.engine.streams["paris"].state for both in (service, beside)]
        assert states[0] == states[1]
        assert statuses(url) == {
            **{f"e{at}": "learnt" for at in range(0, 10, 2)},
            "later": "learnt",
            "e1": "late",
            "e3": "late",
            "e5": "expired",
            "e7": "expired",
            "e9": "expired",
        }
        if shape == "groups":  # each stream draws its own words
            return
        found = service.group([forecast("next", 0.4)]), beside.group([forecast("next", 0.4)])
        assert found[0] == found[1]
    found_info = info(url)
    assert (found_info["pending"], found_info["expired"], found_info["outcomes"]) == (1, 5, 8)
    with desk(url, **settings) as again:  # the monitors are loaded with what they hold
        again.group([outcome("e5", 1), outcome("next", 1)])
    assert whole(url)


def test_a_late_outcome_may_be_corrected_and_retracted(url: str) -> None:
    with desk(url, expire=DAY, monitor=1000.0) as service:
        service.ask(*[("paris", f"e{at}", at / 20) for at in range(10)])
        service.tell(*[("paris", f"e{at}", at % 2) for at in range(0, 10, 3)])
        service.tick(2 * DAY)
        service.tell(("paris", "e1", 1), ("paris", "e2", 1))
        assert service.correct(("paris", "e1", 0), ("paris", "e2", None), ("paris", "e3", 0)) == ["corrected"] * 3
        assert service.engine.corrections.do_all() == 3
        assert statuses(url)["e1"] == "late" and statuses(url)["e2"] == "expired"
        assert whole(url)
        assert service.correct(("paris", "e2", None)) == ["repeated"]
        assert service.tell(("paris", "e2", 0), ("paris", "e4", 1)) == ["learnt", "learnt"]  # by the state as it is
        assert service.forget("paris", "e1") == 1
        assert whole(url)
        found = info(url)
        assert (found["pending"], found["expired"], found["outcomes"]) == (0, 5, 6)


def test_what_was_given_up_for_good_stays_so(url: str) -> None:
    with desk(url, expire=DAY) as service:
        service.ask(("paris", "e1", 0.8), ("rome", "e1", 0.8), ("oslo", "e1", 0.8))
        service.do("reset", "paris")
        service.do("freeze", "oslo")
        service.tick(2 * DAY)
        assert service.tell(("paris", "e1", 1)) == ["expired"]
        assert service.tell(("oslo", "e1", 1)) == ["held"]  # nothing expires in a frozen stream
        service.do("freeze", "rome")
        assert service.tell(("rome", "e1", 1)) == ["expired"]
        service.do("resume", "rome")
        assert service.tell(("rome", "e1", 1)) == ["learnt"]
    assert whole(url)


def test_another_method_learns_late_outcomes_too(url: str, tmp_path: Path) -> None:
    with desk(url, expire=DAY) as service:
        service.ask(*[("paris", f"e{at}", at / 20) for at in range(10)])
        service.tell(*[("paris", f"e{at}", at % 2) for at in range(0, 10, 3)])
        service.tick(2 * DAY)
        service.tell(("paris", "e1", 1))
    rebuild(url, "ops")
    with desk(url, method="ops") as service, desk(str(tmp_path / "beside.db"), method="ops") as beside:
        beside.ask(*[("paris", f"e{at}", at / 20) for at in range(10)])
        beside.tell(*[("paris", f"e{at}", at % 2) for at in range(0, 10, 3)])
        beside.tell(("paris", "e1", 1))
        for both in (service, beside):
            assert both.tell(("paris", "e2", 1)) == ["learnt"]
        assert service.ask(("paris", "next", 0.3)) == beside.ask(("paris", "next", 0.3))
    assert whole(url)


def test_expired_forecasts_may_count_as_zero(url: str, tmp_path: Path) -> None:
    with desk(url, expire=30 * DAY, expire_as=0) as service, desk(str(tmp_path / "zeros.db")) as other:
        for both in (service, other):
            both.ask(("paris", "e1", 0.8))
        service.tick(30 * DAY + 1.0)
        other.tell(("paris", "e1", 0))
        assert service.ask(("paris", "e2", 0.8)) == other.ask(("paris", "e2", 0.8))
        assert service.tell(("paris", "e1", 1)) == ["expired"]
    assert whole(url)


def test_many_expire_in_pieces(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibeat.service.engine.AGED_AT_ONCE", 4)
    with desk(url, expire=DAY) as service:
        service.ask(*[(f"s{i % 3}", f"e{i}", 0.5) for i in range(10)])
        service.tick(2 * DAY)
        assert service.engine.counters.expired == 4
        service.tick()
        service.tick()
        assert service.engine.counters.expired == 10
    assert whole(url)


# ---- corrections ----------------------------------------------------------------------------------------------------


def test_another_outcome_is_a_conflict_and_a_correction_is_none(url: str) -> None:
    with desk(url) as service:
        service.ask(("paris", "e1", 0.8))
        service.tell(("paris", "e1", 1))
        assert service.tell(("paris", "e1", 0)) == ["conflict"]
        before = service.ask(("paris", "e2", 0.8))
        assert service.correct(("paris", "e1", 0)) == ["corrected"]
        assert service.ask(("paris", "e3", 0.8)) == before  # recorded, and learnt by the replay
        service.ask(("rome", "r1", 0.5))
        service.tell(("rome", "r1", 1))
        service.now += 1.0
        assert service.correct(("rome", "r1", 0)) == ["corrected"]
        service.now += 1.0
        assert service.correct(("rome", "r1", 0)) == ["repeated"]  # what was said last; the correction still waits
    assert whole(url)
    assert info(url)["corrections that wait"] == 2
    assert rebuild(url).corrected == 2
    assert whole(url) and info(url)["corrections that wait"] == 0
    with desk(url) as service:
        assert service.tell(("paris", "e1", 0)) == ["repeated"]
        assert service.ask(("paris", "e4", 0.8)) != before
        assert service.ask(("paris", "e2", 0.8)) == before  # what was told stays told
        assert service.tell(("paris", "e2", 1)) == ["learnt"]
    assert whole(url)
    reader = open_reader(url)
    stream = reader.stream("paris")
    reader.close()
    assert stream is not None and stream.outcomes == 2


def test_a_correction_of_what_is_only_held_takes_its_place(url: str) -> None:
    with desk(url, mature=DAY) as service:
        service.ask(("paris", "e1", 0.8), ("paris", "e2", 0.8))
        assert service.tell(("paris", "e1", 1), ("paris", "e2", 1)) == ["held", "held"]
        assert service.correct(("paris", "e1", 0), ("paris", "e2", None)) == ["corrected", "corrected"]
        service.tick(2 * DAY)
        assert service.tell(("paris", "e1", 0), ("paris", "e2", 0)) == ["repeated", "learnt"]
    assert whole(url)


def outcome_of(url: str, name: str) -> object:
    with closing(open_connection(url)) as connection:
        return connection.all("SELECT outcome FROM event WHERE id = ?", (name,))[0][0]


def test_correcting_back_is_a_correction(url: str) -> None:
    with desk(url) as service:
        service.ask(("paris", "e1", 0.8), ("paris", "e2", 0.8))
        service.tell(("paris", "e1", 1), ("paris", "e2", 1))
        assert service.correct(("paris", "e1", 0)) == ["corrected"]
        assert service.correct(("paris", "e1", 1)) == ["corrected"]
        assert service.correct(("paris", "e1", 1), ("paris", "e2", 1)) == ["repeated", "repeated"]
    with desk(url) as service:
        assert service.tell(("paris", "e1", 1), ("paris", "e1", 0)) == ["repeated", "conflict"]
    assert info(url)["corrections that wait"] == 2
    assert rebuild(url).corrected == 0  # it is again what was learnt
    assert outcome_of(url, "e1") == 1 and info(url)["corrections that wait"] == 0
    assert whole(url)


def test_the_last_correction_counts_whatever_its_time(url: str) -> None:
    with desk(url) as service:
        service.ask(("paris", "e1", 0.8), ("paris", "e2", 0.8), ("rome", "e3", 0.8))
        service.tell(("paris", "e1", 1), ("paris", "e2", 1), ("rome", "e3", 1))
        late, early = service.now + 9.0, service.now
        told = service.correct(("paris", "e1", 0, late), ("paris", "e1", 1, early), ("paris", "e1", 0, early))
        assert told == ["corrected"] * 3
        assert service.correct(("paris", "e2", 0, late), ("paris", "e2", 1, early)) == ["corrected"] * 2
        assert service.correct(("rome", "e3", 0, early)) == ["corrected"]
    assert rebuild(url).corrected == 2
    assert [outcome_of(url, name) for name in ("e1", "e2", "e3")] == [0, 1, 0]
    assert whole(url)


def test_what_is_learnt_and_corrected_in_one_group(url: str) -> None:
    with desk(url) as service:
        answers = service.group(
            [ForecastEvent("paris", "e1", 0.8)],
            [OutcomeEvent("paris", "e1", 1)],
            [CorrectionEvent("paris", "e1", 0), CorrectionEvent("paris", "e1", 0)],
        )
        assert answers[1:] == [["learnt"], ["corrected", "repeated"]]
    assert rebuild(url).corrected == 1 and outcome_of(url, "e1") == 0
    assert whole(url)


def test_what_is_held_can_be_corrected_back(url: str) -> None:
    with desk(url, mature=DAY) as service:
        service.ask(("paris", "e1", 0.8))
        assert service.tell(("paris", "e1", 1)) == ["held"]
        told = [service.correct(("paris", "e1", outcome))[0] for outcome in (0, 1, 1)]
        assert told == ["corrected", "corrected", "repeated"]
        service.tick(2 * DAY)
        assert service.tell(("paris", "e1", 1)) == ["repeated"]
    assert outcome_of(url, "e1") == 1
    assert whole(url)


# ---- clocks ---------------------------------------------------------------------------------------------------------


def test_times_are_the_clients_or_the_servers(url: str) -> None:
    with desk(url) as service:
        service.ask(("paris", "e1", 0.8, START - 5 * DAY), ("paris", "e2", 0.8))
        service.tell(("paris", "e1", 1, START - 3 * DAY), ("paris", "e2", 0))
        times = service.engine.store.connection.all("SELECT time, outcome_time FROM event ORDER BY id")
        assert times == [(START - 5 * DAY, START - 3 * DAY), (START, START)]
    reader = open_reader(url)
    history = reader.history("paris")
    delays = reader.delays("paris")
    reader.close()
    assert history is not None and [hour.start for hour in history] == [
        3600.0 * ((START - 5 * DAY) // 3600.0),
        3600.0 * (START // 3600.0),
    ]
    assert delays is not None and [(delay.within, delay.count) for delay in delays] == [(1.0, 1), (2.0**18, 1)]


def test_a_clock_that_goes_back_does_no_harm(url: str) -> None:
    with desk(url, mature=60.0, expire=DAY) as service:
        service.ask(("paris", "e1", 0.8))
        service.now -= 10 * DAY
        service.ask(("paris", "e2", 0.8))
        assert service.tell(("paris", "e1", 1), ("paris", "e2", 0)) == ["held", "held"]
        service.tick(61.0)
        assert service.engine.counters.outcomes == 1  # e2 is old enough, whatever the clock said before
        service.ask(("paris", "e3", 0.8))
        service.now -= 5 * DAY
        assert service.tell(("paris", "e3", 1)) == ["held"]
        service.tick(30 * DAY)
        assert service.engine.counters.outcomes == 3
    assert whole(url)


# ---- a history over HTTP --------------------------------------------------------------------------------------------


def test_forecasts_that_are_too_old_are_refused_and_never_expire_silently(url: str) -> None:
    with desk(url, expire=30 * DAY) as service:
        service.ask(("paris", "e1", 0.5, START - 29 * DAY))
        with pytest.raises(Refusal) as caught:
            service.ask(("paris", "e2", 0.5), ("paris", "e3", 0.5, START - 30 * DAY), ("rome", "e4", 0.5))
        refusal = caught.value
        assert (refusal.status, refusal.code, refusal.at) == (400, "too_old", 1)
        assert "time must be younger than --expire by the clock of the service" in refusal.message
        assert "`calibeat store import` takes a history" in refusal.message
        assert service.tell(("paris", "e1", 1)) == ["learnt"]
        service.tick(2 * DAY)
        service.ask(("paris", "e1", 0.5, START - 29 * DAY))  # asked again: it is stored
        assert service.tell(("paris", "e2", 1)) == ["unknown"]  # a batch is refused whole
    assert info(url)["forecasts"] == 1 and info(url)["expired"] == 0


def test_without_an_age_any_time_is_taken(url: str) -> None:
    with desk(url) as service:
        service.ask(("paris", "e1", 0.5, 1.0))
        assert service.tell(("paris", "e1", 1)) == ["learnt"]
