"""The client: weights, counts, models, kept logs and bands, with and without await."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from served import service_here

from calibeat import InvalidInput, OutcomeConflict
from calibeat.client import AsyncClient, Client
from calibeat.service.engine import EngineSettings


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = EngineSettings(method="auto")
    with service_here(tmp_path_factory.mktemp("client") / "a.db", settings=settings) as where:
        yield where


def test_weights_and_counts_are_reported_and_corrected(url: str) -> None:
    with Client(url) as client:
        for name in ("e1", "e2", "e3", "e4"):
            client.predict("s", 0.3, id=name)
        assert client.outcome("s", "e1", 0, weight=20) == "learnt"
        assert client.outcome("s", "e1", 0, weight=20.0) == "repeated"
        with pytest.raises(OutcomeConflict):
            client.outcome("s", "e1", 0)
        assert client.outcome("s", "e2", ones=3, of=50) == "learnt"
        events: list[dict[str, Any]] = [
            {"stream": "s", "id": "e3", "ones": 1, "of": 4, "weight": 2.0},
            {"stream": "s", "id": "e2", "ones": 4, "of": 50},
        ]
        assert client.outcomes(events) == ["learnt", "conflict"]
        assert client.correct("s", "e2", ones=4, of=50) == "corrected"
        assert client.correct("s", "e1", 0, weight=10.0) == "corrected"
        shown = client.event("s", "e3")
        assert (shown["ones"], shown["of"], shown["weight"], shown["outcome"]) == (1, 4, 2.0, None)


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        ({"outcome": 1, "weight": -1.0}, r"weight must be a number from 0 to 1e12, got -1\.0"),
        ({"outcome": 1, "weight": []}, r"weight must be a number from 0 to 1e12, got \[\]"),
        ({"outcome": 1, "weight": "2"}, "weight must be a number from 0 to 1e12, got '2'"),
        ({"outcome": 1, "weight": float("nan")}, "weight must be a number from 0 to 1e12, got nan"),
        ({"ones": 3}, "ones must come with of, got no of"),
        ({"of": 3}, "ones must come with of, got no ones"),
        ({"ones": 4, "of": 3}, "ones must be from 0 to of, which is at most 1,000,000,000, got 4 of 3"),
        ({"ones": 1.5, "of": 3}, r"ones must be a whole number, got 1\.5"),
        ({"ones": 1, "of": 3, "outcome": 1}, "event must have either outcome or ones and of, got both"),
        ({"ones": 1, "of": 3, "label": "a"}, "event must have either outcome or ones and of, got both"),
        ({"weight": 1.0}, "outcome must be 0 or 1, got None"),
    ],
)
def test_what_no_service_would_take_is_not_sent(told: dict[str, Any], sentence: str) -> None:
    with Client("http://127.0.0.1:9") as client:
        with pytest.raises(InvalidInput, match=sentence):
            client.outcome("s", "e1", **told)
        with pytest.raises(InvalidInput, match=r"(missing|" + sentence + ") - at event 0"):
            client.outcomes([{"stream": "s", "id": "e1", **told}])
        assert client.buffered == 0


def test_models_are_defined_asked_and_join(url: str) -> None:
    async def ask(name: str) -> float:
        async with AsyncClient(url) as client:
            made = await client.define("duel", models=["a", "b", "c"])
            assert made["models"] == ["a", "b", "c"]
            return float(await client.predict("duel", id=name, scores={"a": 0.5, "c": 0.4, "b": float("nan")}))

    with Client(url) as client:
        assert client.define("duel", models=("a", "b"))["models"] == ["a", "b"]
        first = client.predict("duel", id="e1", scores={"a": 0.5, "b": None})
        assert first.low is None and 0.4 < first.probability < 0.6
        assert client.predict_many([{"stream": "duel", "id": "e1", "scores": [0.5, None]}]) == [first]
        assert client.outcome("duel", "e1", 1) == "learnt"
        assert 0.3 < asyncio.run(ask("e2")) < 0.7
        assert client.define("ads", kept=(1.0, 0.05), groups=["c", {"name": "age", "first": 9}])["kept"] == {
            "ones": 1.0,
            "zeros": 0.05,
        }
        assert client.define("log", kept={"ones": 0.5, "zeros": 0.5}, groups=["c"], crossings=[], cells=64, names=True)
        with pytest.raises(InvalidInput, match="models must be 2 or more"):
            client.define("x", models=["a"])
