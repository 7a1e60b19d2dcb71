"""The monitor on every stream: stored with the rest, the same after a restart, alarms told once."""

from __future__ import annotations

from contextlib import closing
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from services import START, Desk, desk, whole

from calibeat import Bank, InvalidInput, Monitor
from calibeat.monitor.bets import Settings
from calibeat.monitor.monitors import first_unread
from calibeat.service.alarms import close_quiet, sentence
from calibeat.service.events import ForecastEvent, OutcomeEvent
from calibeat.service.maintenance import check, configure, prune, rebuild, replay_check
from calibeat.service.store import open_connection, open_reader
from calibeat.service.watch import CLASS, OURS, RAW, StreamMonitors, alarms_of, part_count
from calibeat.service.webhook import _not_to_be_sent, message


def go_wrong(service: Desk, n: int, *, first: int = 0, share: float = 0.95) -> None:
    """Many outcomes of a stream whose scores say 0.1."""
    rng = np.random.default_rng(first)
    for at in range(first, first + n, 50):
        names = [f"w{i}" for i in range(at, at + 50)]
        service.group(
            [ForecastEvent("wrong", name, 0.1) for name in names],
            [OutcomeEvent("wrong", name, int(rng.random() < share)) for name in names],
        )


def test_alarms_are_stored_and_told_once(url: str) -> None:
    heard: list[Any] = []
    with desk(url, method="ops", monitor=1000.0) as service:
        service.engine.hooks.on_alarm = heard.extend
        go_wrong(service, 1500, share=0.1)
        assert heard == []
        go_wrong(service, 500, first=1500, share=0.9)
        told = len(heard)
        assert told >= 1 and heard[0].stream == "wrong" and heard[0].what and heard[0].page
        assert service.engine.counters.alarms == told
        state = service.engine.streams["wrong"]
        assert state.alarms == alarms_of(state.monitor) >= sum(alarm.part == OURS for alarm in heard) > 0
        service.ask(("other", "x", 0.5))
        assert len(heard) == told
    reader = open_reader(url)
    stored, stream = reader.alarms(), reader.stream("wrong")
    reader.close()
    assert [(alarm.stream, alarm.at, alarm.what) for alarm in reversed(stored)] == [
        (alarm.stream, alarm.at, alarm.what) for alarm in heard
    ]
    assert stream is not None and stream.alarms >= told and stream.monitor is not None
    assert stream.monitor["alarms"] == stream.alarms and stream.monitor["level"] >= 0.0
    with desk(url, method="ops", monitor=1000.0) as service:  # after a restart nothing is told again
        service.engine.hooks.on_alarm = heard.extend
        service.ask(("wrong", "after", 0.1))
        assert len(heard) == told
    assert replay_check(url).is_same and check(url) == []


def test_an_error_of_who_listens_to_alarms_does_no_harm(url: str, caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: Any) -> None:
        raise RuntimeError("no network")

    with desk(url, method="ops", monitor=100.0) as service:
        service.engine.hooks.on_alarm = broken
        go_wrong(service, 1500, share=0.1)
        go_wrong(service, 500, first=1500, share=0.95)
    assert "alarms could not be told" in caplog.text and replay_check(url).is_same


def test_late_outcomes_survive_restarts(url: str) -> None:
    """Outcomes that a monitor holds, because an earlier one is missing, are read from the log again."""
    for seed in range(4):
        with desk(url, monitor=1000.0) as service:
            service.play(60, seed=seed, late=20)
    assert replay_check(url).is_same and check(url) == []


def test_forecasts_that_expire_hold_up_nothing(url: str) -> None:
    with desk(url, monitor=1000.0, expire=3000.0) as service:
        service.ask(("paris", "never", 0.5))
        service.ask(("paris", "e1", 0.5))
        service.tell(("paris", "e1", 1))
        paris = service.engine.streams["paris"]
        assert first_unread(paris.monitor or b"") == 0
        service.tick(4000.0)
        assert first_unread(paris.monitor or b"") == 2
        service.play(60)
    assert replay_check(url).is_same


def test_a_monitor_that_begins_later_is_not_replayed_but_the_rest_is(url: str) -> None:
    with desk(url) as service:
        service.play(30)
    configure(url, monitor=1000.0)
    with desk(url, monitor=1000.0) as service:
        service.play(30, seed=1)
    with desk(url, monitor=1000.0) as service:
        service.play(30, seed=2)
    assert replay_check(url).is_same
    rebuild(url)
    with desk(url, monitor=1000.0) as service:
        service.play(30, seed=3)
    assert replay_check(url).is_same


def test_a_damaged_monitor_is_noticed(url: str) -> None:
    with desk(url, monitor=1000.0) as service:
        service.play(30)
        damaged = bytearray(service.engine.streams["s0"].monitor or b"")
        damaged[8:16] = np.float64(2.0).tobytes()  # phi
        _put_monitor(service, bytes(damaged))
    assert replay_check(url).differences == ["stream 's0': the monitor differs"]
    damaged[8:16] = np.float64(0.5).tobytes()
    for bad, problem in ((bytes(damaged), "phi of at least 1"), (b"short", "monitor states must be 2288 bytes each")):
        with desk(url, monitor=1000.0) as service:
            _put_monitor(service, bad)
            with pytest.raises(InvalidInput, match=problem):
                service.ask(("s0", "next", 0.5))
            service.engine.forget()


def _put_monitor(service: Desk, state: bytes) -> None:
    service.engine.store.connection.run(
        "UPDATE body SET monitor = ? WHERE stream = (SELECT number FROM stream WHERE name = 's0')", (state,)
    )


def test_what_expired_before_a_restart_or_was_pruned_holds_up_nothing(url: str) -> None:
    """A forecast that was given up behind one that waits is known to the monitor that is read from the store."""
    for seed in range(3):
        with desk(url, method="auto", monitor=300.0, expire=3000.0) as service:
            service.play(250, seed=seed, late=15)
            service.tick(2000.0)
        assert replay_check(url).is_same
    assert prune(url, 30_000.0, now=START + 60_000.0) > 0
    assert replay_check(url).is_same and check(url) == []
    with desk(url, method="auto", monitor=300.0, expire=3000.0) as service:
        service.play(100, seed=3, late=15)
    assert replay_check(url).is_same and check(url) == []


def test_outcomes_that_came_late_behind_what_is_pruned_are_replayed(url: str) -> None:
    """Before it, and after it where a monitor has still to read the event."""
    with desk(url, method="auto", monitor=300.0, expire=3000.0) as service:
        service.ask(("paris", "gone", 0.4), ("paris", "late", 0.4))
        service.ask(("paris", "read first", 0.3, service.now + 2000.0), ("paris", "unread", 0.4))
        service.tick(4000.0)
        service.tick(50_000.0)
        service.ask(("paris", "young", 0.3))
        assert service.tell(("paris", "late", 1)) == ["learnt"]
        service.ask(("paris", "after it", 0.5))
        now = service.now
    assert prune(url, 30_000.0, now=now) > 0 and replay_check(url).is_same
    with desk(url, method="auto", monitor=300.0, expire=3000.0) as service:
        service.now = now
        service.play(30)
        for name in ("gone", "unread", "read first"):
            service.tell(("paris", name, 1))
            service.ask(("paris", f"after {name}", 0.5))
    assert whole(url)


def test_the_raw_score_has_a_monitor_of_its_own_that_pages_nobody(url: str) -> None:
    with desk(url, method="ops", monitor=1000.0) as service:
        go_wrong(service, 3000, share=0.6)  # from the beginning: the forecasts follow soon
        with closing(open_reader(url)) as reader:
            found = reader.alarms()
        raw = [alarm for alarm in found if alarm.part == RAW]
        state = service.engine.streams["wrong"]
        assert state.alarms == alarms_of(state.monitor) == sum(alarm.part == OURS for alarm in found) == 0
        assert raw and {alarm.what.partition(" from")[0] for alarm in raw} <= {"raw score too low"}
        assert not any(alarm.page for alarm in raw)
        assert "wrong: raw score too low" in sentence(raw[:1], None, None)
        assert "Look first at " in sentence(raw[:1], None, None)
        with closing(open_connection(url, write=True)) as connection:
            assert [alarm.part for alarm in _not_to_be_sent(connection, raw)] == [RAW] * len(raw)
            close_quiet(connection)
        with closing(open_reader(url)) as reader:  # it goes on being wrong, and being alarmed, so it is open
            assert any(alarm.part == RAW for alarm in reader.alarms(open=True))
    assert whole(url)


def test_each_class_has_a_monitor(url: str) -> None:
    """Class-wise beside the class that is named: which class, and since when."""
    heard: list[Any] = []
    names = ("cat", "dog", "bird")

    def feed_classes(service: Desk, n: int, first: int, chances: tuple[float, ...]) -> None:
        rng = np.random.default_rng(first)
        for at in range(first, first + n, 100):
            ids = [f"k{i}" for i in range(at, at + 100)]
            scores = {"cat": 0.2, "dog": 0.3, "bird": 0.5}
            service.group([ForecastEvent("pets", name, scores=scores) for name in ids])
            labels = rng.choice(3, size=100, p=chances)
            told = [OutcomeEvent("pets", name, label=names[k]) for name, k in zip(ids, labels, strict=True)]
            service.group(told[1:])
            service.group(told[:1])  # the others have waited for it

    with desk(url, method="ops", monitor=1000.0) as service:
        service.engine.hooks.on_alarm = heard.extend
        feed_classes(service, 1500, 0, (0.2, 0.3, 0.5))
        assert heard == []
        feed_classes(service, 300, 1500, (0.05, 0.45, 0.5))  # the class that is named comes as often as before
    assert {alarm.detail for alarm in heard} & {"class cat", "class dog"}
    assert all(alarm.part >= CLASS and alarm.since > 1000 for alarm in heard if alarm.detail)
    (alarm,) = (alarm for alarm in open_alarms(url) if alarm.number == 1)
    assert f"of {alarm.detail}" in sentence([alarm], None, None)
    assert f"of {alarm.detail}" in message([alarm], "https://calibration.example", "json")["text"]
    with desk(url, method="ops", monitor=1000.0) as service:  # a restart, with outcomes that wait for an earlier one
        service.group(
            [ForecastEvent("pets", f"l{at}", scores={"cat": 0.2, "dog": 0.3, "bird": 0.5}) for at in range(9)]
        )
        service.group([OutcomeEvent("pets", f"l{at}", label="dog") for at in range(1, 9)])
    with desk(url, method="ops", monitor=1000.0) as service:
        service.group([OutcomeEvent("pets", "l0", label="cat")])
    assert whole(url)


def open_alarms(url: str) -> list[Any]:
    with closing(open_reader(url)) as reader:
        return reader.alarms(open=True)


def test_more_than_ten_classes_are_watched_by_the_one_that_is_named() -> None:
    assert [part_count(numbers) for numbers in (1, 3, 10, 11)] == [2, 5, 12, 2]
    with pytest.raises(InvalidInput, match="monitor states must be"):
        StreamMonitors(Settings(1e6), 3, np.zeros(1)).load([bytes(8)], [{}])


def test_a_fold_gives_up_on_what_waits_too_long() -> None:
    """What never comes is given up by the forecast that follows, and is not taken for an outcome."""
    bank = Bank("ops", monitor=Monitor(arl=1e6, patience=2))
    watching = StreamMonitors(Settings(1e6, patience=2), 1, np.zeros(1))
    for _ in range(4):
        bank.predict("a", 0.3)
    receipts = {"probability": np.full(4, 0.3), "score": np.full(4, 0.3), "event": np.arange(4)}
    asked, slots = np.ones(4, dtype=bool), np.zeros(4, dtype=np.int32)
    columns = {"receipts": receipts, "sources": np.arange(4), "asked": asked, "outcomes": np.full(4, np.nan)}
    watching.read(SimpleNamespace(**columns, slots=slots))
    queue, row = watching.queues[0], watching.parts[OURS].matrix[0]
    assert queue.count(row)[:7] == bank["a"].monitor.waiting[:7]  # type: ignore[union-attr]
    assert queue.count(row).given_up == 2
