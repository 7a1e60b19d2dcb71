"""Kill -9 under load: nothing lost, nothing doubled, no answer changed, the state equal to a replay bit for bit."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import faults
import kills
import pytest
from components import postgres_folder
from postgres import Postgres


@pytest.mark.parametrize(("method", "most"), [("tops", 50), ("auto", 5)], ids=["tops, large groups", "auto"])
def test_ten_kills_lose_nothing(tmp_path: Path, method: str, most: int) -> None:
    url = str(tmp_path / "calibeat.db")
    clients = kills.run(url, method, 5, most=most)
    found = kills.compare(clients, url)
    assert {name: found[name] for name in kills.NOTHING_WRONG} == kills.NOTHING_WRONG
    assert found["forecasts"] > 50 and found["outcomes"] > 20 and found["repeats"] > 10
    assert found["unwritten"] > 0


def test_kills_lose_nothing_of_streams_of_all_shapes(url: str) -> None:
    """Two classes, three classes and groups: what is learnt again is the library's, cells and all."""
    clients = kills.run(url, "auto", 4, most=10, shapes=("", "k", "g"))
    found = kills.compare(clients, url)
    assert {name: found[name] for name in kills.NOTHING_WRONG} == kills.NOTHING_WRONG
    assert found["forecasts"] > 50 and found["outcomes"] > 20


def test_kills_lose_nothing_of_what_is_corrected_frozen_and_forgotten(url: str) -> None:
    """Corrections, retractions, freezes, resets and forgetting among the events, in streams of all shapes."""
    clients = kills.run(url, "auto", 6, most=10, shapes=("", "k", "g"), verbs=True, seed=2)
    found = kills.compare(clients, url)
    assert {name: found[name] for name in kills.NOTHING_WRONG} == kills.NOTHING_WRONG
    assert found["corrected"] > 10 and found["forgotten"] > 2 and found["controls"] > 10


@pytest.fixture
def nursery() -> Iterator[faults.Nursery]:
    found = faults.Nursery(subprocess.DEVNULL)
    yield found
    found.close()


def test_services_that_are_killed_lose_nothing(tmp_path: Path, nursery: faults.Nursery) -> None:
    url = str(tmp_path / "calibeat.db")
    load = faults.run(nursery, url, "auto", ["service killed"] * 3, most=20, shapes=("", "k", "g"), verbs=True)
    check(load, url)


def test_two_services_on_one_server_lose_nothing_by_any_fault(nursery: faults.Nursery) -> None:
    server = Postgres(postgres_folder())
    try:
        url = server.database()
        load = faults.run(nursery, url, "tops", list(faults.FAULTS), services=2, server=server, verbs=True)
        check(load, url)
    finally:
        server.close()


def check(load: faults.Load, url: str) -> None:
    found = kills.compare(load.clients, url)
    assert {name: found[name] for name in kills.NOTHING_WRONG} == kills.NOTHING_WRONG
    assert found["forecasts"] > 50 and found["outcomes"] > 10 and load.numbers["sent again"] > 0
    assert found["forgotten"] > 0 and found["controls"] > 5
