"""Kill -9 under load: nothing lost, nothing doubled, no answer changed, the state equal to a replay bit for bit."""

from __future__ import annotations

from pathlib import Path

import kills
import pytest


@pytest.mark.parametrize(("method", "most"), [("tops", 50), ("auto", 5)], ids=["tops, large groups", "auto"])
def test_ten_kills_lose_nothing(tmp_path: Path, method: str, most: int) -> None:
    url = str(tmp_path / "calibeat.db")
    clients = kills.run(url, method, 5, most=most)
    found = kills.compare(clients, url)
    assert {name: found[name] for name in kills.NOTHING_WRONG} == kills.NOTHING_WRONG
    assert found["forecasts"] > 50 and found["outcomes"] > 20 and found["repeats"] > 10
