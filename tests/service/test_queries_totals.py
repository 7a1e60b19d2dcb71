"""The whole store in a few numbers: always what the streams add up to, whoever wrote them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from services import DAY, START, desk

from calibeat import Bank
from calibeat.service.events import ForecastEvent, OutcomeEvent
from calibeat.service.maintenance import check, prune, rebuild
from calibeat.service.store import open_connection, open_reader, queries
from calibeat.service.transfer import import_bank


def kept(url: str) -> dict[str, float]:
    """The totals, which must be those of the streams."""
    with closing(open_connection(url)) as connection:
        connection.begin_reading()
        assert queries.totals_problems(connection) == []
        return queries.stored_totals(connection)


def test_totals_are_those_of_the_streams(url: str) -> None:
    with desk(url, mature=600.0, expire=3000.0, monitor=100.0) as service:
        assert set(kept(url).values()) == {0}
        service.play(120)
        found = kept(url)
        assert (found["streams"], found["events"]) == (3, 120) and found["held"] > 0 and found["expired"] > 0
        service.now += 700.0
        service.ask(("late", "l0", 0.5), ("late", "l1", 0.5))
        service.now += 700.0
        service.tell(("late", "l0", 1), ("late", "l1", 1))
        service.correct(("late", "l0", 0), ("late", "l0", 1), ("late", "l1", 0))
        found = kept(url)
        assert found["judged"] == found["outcomes"] > 90
        pending = service.engine.counters.pending
    with desk(url, mature=600.0, monitor=100.0) as service:
        service.now = START + 100 * DAY
        assert service.engine.counters.pending == pending == kept(url)["pending"]
        service.play(30, seed=1)
        now = service.now
    assert kept(url)["events"] == 152
    assert rebuild(url).corrected == 1
    assert kept(url)["events"] == 152
    assert prune(url, DAY, now=now) > 0
    assert kept(url)["events"] == 152
    assert check(url) == []


def test_alarms_count(url: str) -> None:
    with desk(url, method="ops", monitor=100.0) as service:
        for first in range(0, 2000, 50):
            events = range(first, first + 50)
            service.group(
                [ForecastEvent("wrong", f"w{at}", 0.1) for at in events],
                [OutcomeEvent("wrong", f"w{at}", int(at > 1500 or at % 9 == 0)) for at in events],
            )
        assert kept(url)["alarms"] >= service.engine.counters.alarms > 0
    rebuild(url)  # monitors begin anew
    assert kept(url)["alarms"] == 0


def test_an_imported_bank_counts(url: str, tmp_path: Path) -> None:
    bank = Bank("tops")
    bank.run(["a", "b", "b"], [0.5, 0.6, 0.7], [1, 0, 1])
    bank.save(tmp_path / "a.bank")
    with desk(url) as service:
        service.play(20)
    before = kept(url)
    import_bank(url, tmp_path / "a.bank")
    found = kept(url)
    assert found["streams"] == before["streams"] + 2 and found["outcomes"] == before["outcomes"] + 3
    assert found["judged"] == before["judged"]  # their errors are not known
    with desk(url) as service:
        service.ask(("a", "e1", 0.5))
        service.tell(("a", "e1", 1))
    assert kept(url)["judged"] == before["judged"] + 2


def test_nothing_is_counted_of_a_group_that_broke_off(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise ValueError("a fault")

    with desk(url) as service:
        service.play(20)
        before = kept(url)
        with monkeypatch.context() as patched:
            patched.setattr(service.engine.store, "commit", broken)
            with pytest.raises(ValueError, match="a fault"):
                service.play(20, seed=1)
            service.engine.forget()
        assert kept(url) == before


@pytest.mark.parametrize("most", [64, 1])
def test_workers_have_rows_of_their_own_as_long_as_there_are_some(
    server: Any, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(queries, "WRITERS", most)
    url = server.database()
    with desk(url) as one, desk(url) as two:
        one.play(30)
        two.play(30, seed=1)
        one.play(30, seed=2)
        found = kept(url)
        assert (found["streams"], found["events"]) == (3, 90)
        rows = one.engine.store.connection.all("SELECT events FROM total ORDER BY writer")
        assert rows == ([(60,), (30,)] if most > 1 else [(90,)])
    with desk(url) as one:  # rows of processes that are gone count
        one.play(5, seed=3)
    assert kept(url)["events"] == 95
    rebuild(url)
    assert kept(url)["events"] == 95 and check(url) == []


def test_a_wrong_total_is_noticed(url: str) -> None:
    with desk(url) as service:
        service.play(20)
        service.engine.store.connection.run("UPDATE total SET pending = pending + 1, log_loss = log_loss + 0.5")
    first, second = check(url)
    assert first.startswith("the total of pending must be that of the streams, ") and "log_loss" in second
    rebuild(url)  # any command that has the store for itself counts anew
    assert check(url) == []


def test_sums_of_many_streams_are_added_in_pieces(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "_LOSSES_AT_ONCE", 2)
    with desk(url) as service:
        service.play(60, streams=5)
    assert kept(url)["log_loss"] > 0


def test_totals_and_metrics_read_no_streams(tmp_path: Path) -> None:
    url = str(tmp_path / "a.db")
    with desk(url) as service:
        service.play(20)
    with closing(open_reader(url)) as reader:
        asked: list[str] = []
        reader._connection.database.set_trace_callback(asked.append)
        assert reader.totals().events == 20
        plans = [
            str(row[3]) for statement in asked for row in open_connection(url).all(f"EXPLAIN QUERY PLAN {statement}")
        ]
    assert len(asked) == 2 and not any("FROM stream" in statement for statement in asked)
    assert plans == ["SCAN total", "SEARCH event USING INDEX event_pending"]
