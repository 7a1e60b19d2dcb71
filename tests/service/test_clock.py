"""A clock that jumps, and a process that was stopped: nothing expires at once, no false page, no missed page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from services import DAY, START, Desk, whole

from calibeat.service.clock import SETTLE, SMALL, STOPPED, Gap, ServiceClock, steady_time
from calibeat.service.engine import Engine
from calibeat.service.events import ForecastEvent, OutcomeEvent
from calibeat.service.notices import GRACE
from calibeat.service.settings import EngineSettings
from calibeat.service.store import open_reader

HOUR, YEAR = 3600.0, 365 * DAY


class Times:
    """The two clocks of a machine."""

    def __init__(self) -> None:
        self.wall, self.steady = START, 0.0
        self.clock = ServiceClock(lambda: self.wall, lambda: self.steady)

    def pass_by(self, seconds: float) -> None:
        self.wall, self.steady = self.wall + seconds, self.steady + seconds


def test_small_steps_are_followed() -> None:
    times = Times()
    for _ in range(10):
        times.pass_by(30.0)
        times.wall += SMALL / 2
        assert times.clock.look() is None and times.clock() == times.wall
    times.wall -= SMALL
    assert times.clock() == times.wall


@pytest.mark.parametrize("jump", [YEAR, 10.0, -10.0, -3 * DAY])
def test_a_jump_that_does_not_last_changes_nothing(jump: float) -> None:
    times = Times()
    times.wall += jump
    for _ in range(2):
        assert times.clock.look() is None and times.clock.disbelieved == jump
        assert times.clock() == times.wall - jump
        times.pass_by(SETTLE / 2)
    times.wall -= jump
    assert times.clock.look() is None and times.clock.disbelieved is None and times.clock() == times.wall
    times.pass_by(SETTLE)
    assert times.clock.look() is None


@pytest.mark.parametrize("jump", [YEAR, 10.0, -10.0, -3 * DAY])
def test_a_jump_that_lasts_is_believed(jump: float) -> None:
    times = Times()
    times.wall += jump
    assert times.clock.look() is None
    times.pass_by(SETTLE)
    assert times.clock.look() == Gap(times.wall - jump, times.wall)
    assert times.clock() == times.wall and times.clock.look() is None


def test_a_jump_that_moves_begins_to_last_again() -> None:
    times = Times()
    for _ in range(5):
        times.wall += DAY
        assert times.clock.look() is None
        times.pass_by(SETTLE * 0.9)
    assert times.clock.look() is None
    times.pass_by(SETTLE * 0.1)
    assert times.clock.look() == Gap(times.wall - 5 * DAY, times.wall)


def test_a_process_that_was_stopped_has_missed_the_time() -> None:
    times = Times()
    times.pass_by(STOPPED)
    assert times.clock.look() is None
    begun = times.wall
    times.pass_by(2 * DAY)
    assert times.clock.look() == Gap(begun, times.wall)
    assert times.clock.look() is None


def test_the_steady_clock_of_this_system_is_steady() -> None:
    first = steady_time()
    assert 0.0 <= steady_time() - first < 60.0


# ---- a service -------------------------------------------------------------------------------------------------------


class Machine(Desk):
    """An engine on a machine whose clock may be wrong. It is awake, unless it is stopped."""

    def __init__(self, url: str, **settings: Any) -> None:
        self.times = Times()
        super().__init__(url, clock=self.times.clock, **settings)
        self.engine.listening.begin(self.engine.clock())

    def look(self) -> None:
        """What the thread does again and again."""
        self.engine.listening.look_at_clock(self.engine.streams)
        self.engine.process([])

    def run(self, seconds: float, step: float = 60.0) -> None:
        """Time passes, and the process is awake."""
        for _ in range(round(seconds / step)):
            self.times.pass_by(step)
            self.look()

    def wait(self, seconds: float) -> None:
        """The same, in one step."""
        self.times.pass_by(seconds)
        self.times.clock.look()
        self.engine.process([])

    def days(self, count: int, name: str) -> None:
        """An event of each stream in each hour, with its outcome."""
        for hour in range(24 * count):
            self.wait(HOUR)
            self.group(
                [ForecastEvent(f"s{at}", f"{name}{hour}", 0.4) for at in range(12)],
                [OutcomeEvent(f"s{at}", f"{name}{hour}", hour % 2) for at in range(12)],
            )

    def alarms(self) -> list[tuple[str, bool]]:
        with closing(open_reader(self.url)) as reader:
            return [(alarm.what, alarm.page) for alarm in reader.alarms(limit=1000)]


@pytest.fixture
def machine(url: str) -> Iterator[Machine]:
    made = Machine(url, expire=7 * DAY)
    made.url = url
    made.days(12, "a")
    assert made.alarms() == []
    made.ask(("s0", "pending", 0.5))
    yield made
    made.close()
    assert whole(url)


def test_a_silence_is_noticed(machine: Machine) -> None:
    """Or the other tests show nothing."""
    machine.wait(20 * DAY)
    found = machine.alarms()
    assert len(found) == 24 and sum(page for _, page in found) == 1
    assert machine.tell(("s0", "pending", 1)) == ["learnt"]


@pytest.mark.parametrize("jump", [20 * DAY, 400 * DAY, -3 * DAY])
def test_a_clock_that_is_wrong_for_a_moment_changes_nothing(
    machine: Machine, jump: float, caplog: pytest.LogCaptureFixture
) -> None:
    before = machine.times.wall
    machine.times.wall += jump
    machine.look()
    machine.ask(("s0", "meanwhile", 0.5))
    machine.run(4.0, 1.0)
    machine.times.wall -= jump
    machine.run(120.0)
    assert machine.alarms() == [] and machine.engine.counters.expired == 0
    assert caplog.text.count("the system's clock has jumped by") == 1
    times = machine.engine.store.connection.all("SELECT time FROM event WHERE id = 'meanwhile'")
    assert times == [(before,)]
    assert machine.engine.store.connection.all("SELECT * FROM downtime") == []


@pytest.mark.parametrize("how", ["stopped", "set", "asleep"])
def test_a_machine_that_was_away_pages_nobody(machine: Machine, how: str) -> None:
    """Stopped: all clocks go on; asleep, on a system whose steady clock stops then: the system's clock has jumped."""
    if how == "stopped":
        machine.times.pass_by(20 * DAY)
    else:
        machine.times.wall += 20 * DAY
    machine.look()
    machine.run(120.0, 20.0)
    assert machine.alarms() == [] and machine.engine.counters.expired == 0
    ((begun, ended),) = machine.engine.store.connection.all("SELECT begun, ended FROM downtime")
    assert ended - begun == pytest.approx(20 * DAY)
    machine.run(GRACE)
    assert machine.engine.counters.expired == 1
    assert machine.tell(("s0", "pending", 1)) == ["learnt"]  # late
    machine.days(3, "b")
    assert machine.alarms() == []
    machine.wait(20 * DAY)  # a true silence
    found = machine.alarms()
    assert len(found) == 24 and sum(page for _, page in found) == 1


@pytest.mark.parametrize("meanwhile", [False, True])
def test_a_clock_that_was_ahead_for_long_misses_no_silence(machine: Machine, *, meanwhile: bool) -> None:
    machine.times.wall += 400 * DAY
    machine.run(120.0, 20.0)
    if meanwhile:
        machine.days(1, "ahead")
        machine.wait(20 * DAY)  # it pages, in the wrong year
        assert sum(page for _, page in machine.alarms()) == 1
    before = len(machine.alarms())
    machine.times.wall -= 400 * DAY
    machine.run(120.0, 20.0)
    assert len(machine.alarms()) == before
    machine.days(3, "b")
    assert len(machine.alarms()) == before
    machine.wait(20 * DAY)
    found = machine.alarms()
    assert len(found) == before + 24 and sum(page for _, page in found) == 1 + meanwhile


def test_without_notices_a_clock_that_was_ahead_is_set_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    url = str(tmp_path / "a.db")
    machine = Machine(url, notice=False)
    machine.times.wall += 400 * DAY
    machine.run(120.0, 20.0)
    machine.times.wall -= 400 * DAY
    machine.run(120.0, 20.0)
    assert f"the clock was set back by {400 * DAY:.0f} seconds" in caplog.text
    assert machine.engine.clock() == machine.times.wall
    assert machine.engine.store.connection.all("SELECT * FROM downtime") == []
    machine.close()
    assert whole(url)


def test_a_clock_that_was_ahead_until_the_process_ended(url: str) -> None:
    first = Machine(url, expire=7 * DAY)
    first.times.wall += 400 * DAY
    first.times.clock._ahead += 400 * DAY  # as it was when the process began
    first.url = url
    first.days(12, "a")
    first.engine.listening.beat()
    first.close()
    second = Machine(url, expire=7 * DAY)
    second.url = url
    second.times.pass_by(12 * DAY)
    second.times.clock.look()
    second.engine.listening.begin(second.engine.clock())
    second.days(3, "b")
    assert second.alarms() == []
    second.wait(20 * DAY)
    found = second.alarms()
    assert len(found) == 24 and sum(page for _, page in found) == 1
    second.close()
    assert whole(url)


@pytest.mark.parametrize("settings", [{}, {"notice": False}, {"mature": DAY}])
def test_a_service_that_nobody_asks_looks_at_the_clock(tmp_path: Path, settings: dict[str, Any]) -> None:
    engine = Engine.open(str(tmp_path / "a.db"), EngineSettings(method="ops", **settings))
    engine.listening.begin(engine.clock())
    assert engine._idle() < STOPPED
    engine.store.close()


def test_a_clock_that_is_set_by_hand_is_believed(tmp_path: Path) -> None:
    engine = Engine.open(str(tmp_path / "a.db"), EngineSettings(method="ops"), lambda: START)
    engine.listening.look_at_clock(engine.streams)
    assert engine.clock() == START
    engine.store.close()
