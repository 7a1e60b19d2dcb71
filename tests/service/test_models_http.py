"""Several models over HTTP: their scores by name, one of them missing, another one that joins a running stream."""

from __future__ import annotations

import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from served import Process, service_here
from services import DAY, desk, desk_beside, whole

from calibeat import Calibrator, InvalidInput
from calibeat.backtest.options import Options
from calibeat.backtest.read.files import files_of
from calibeat.service.engine import EngineSettings
from calibeat.service.events import CorrectionEvent, ForecastEvent, OutcomeEvent, Refusal, StreamSettings
from calibeat.service.maintenance import prune, rebuild
from calibeat.service.store import open_reader
from calibeat.service.transfer import EventColumns, Stage, StoreLog, export, import_events

TWO, THREE = ["champion", "challenger"], ["champion", "challenger", "late"]
RNG = np.random.default_rng(8)
SCORES = RNG.random((200, 3))
OUTCOMES = (RNG.random(200) < SCORES[:, 0]).astype(int).tolist()


def given(i: int, names: list[str]) -> dict[str, float | None]:
    """The scores of an event; now and then one is missing."""
    found: dict[str, float | None] = dict(zip(names, SCORES[i].tolist(), strict=False))
    if i % 7 == 3:
        found[names[i % len(names)]] = None
    return found


def forecast(i: int, names: list[str]) -> ForecastEvent:
    return ForecastEvent("s", f"e{i}", scores=given(i, names), time=1.8e9 + 600.0 * i)


def outcome(i: int) -> OutcomeEvent:
    return OutcomeEvent("s", f"e{i}", OUTCOMES[i], 1.8e9 + 600.0 * i + 300.0)


def put(url: str, **settings: Any) -> httpx.Response:
    return httpx.put(f"{url}/v1/streams/s", json=settings)


def ask(url: str, i: int, names: list[str]) -> float:
    answer = httpx.post(f"{url}/v1/forecasts", json={"stream": "s", "id": f"e{i}", "scores": given(i, names)})
    assert answer.status_code == 200, answer.text
    return float(answer.json()["probability"])


def test_a_model_joins_a_running_stream(tmp_path: Path) -> None:
    """Forecasts are those of `with_model`; receipts of before are still learnt, also over kill -9."""
    store, cal, open_ones = tmp_path / "a.db", Calibrator(models=TWO), list[tuple[int, Any]]()
    names = TWO
    service = Process(store)
    try:
        assert put(service.url, models=TWO).json()["models"] == TWO
        for i in range(60):
            if i == 30:
                before = cal.peek(given(29, TWO))
                answer = put(service.url, models=THREE)
                assert answer.status_code == 200 and answer.json()["models"] == THREE
                assert put(service.url, models=THREE).json() == answer.json()
                cal, names = cal.with_model("late"), THREE
                assert cal.peek(given(29, TWO)) == pytest.approx(before, abs=0.05)  # forecasts do not jump
            if i == 36:
                service.end(signal.SIGKILL)
                service = Process(store)
            f = cal.predict(given(i, names))
            assert ask(service.url, i, names) == f.probability
            open_ones.append((i, f))
            if i >= 10:
                event, f = open_ones.pop(0)  # ten events late: some receipts are older than the third model
                told = httpx.post(
                    f"{service.url}/v1/outcomes", json={"stream": "s", "id": f"e{event}", "outcome": OUTCOMES[event]}
                )
                assert told.json() == {"status": "learnt"}
                assert cal.update(f, OUTCOMES[event]) == "learnt"
        assert ask(service.url, 5, TWO) == httpx.get(f"{service.url}/v1/streams/s/events/e5").json()["probability"]
        again = {"stream": "s", "id": "e5", "scores": {**given(5, TWO), "late": 0.5}}
        assert httpx.post(f"{service.url}/v1/forecasts", json=again).status_code == 409
        shown = httpx.get(f"{service.url}/v1/streams/s").json()
        assert shown["models"] == THREE and shown["raw_log_loss"] is None and shown["log_loss"] > 0.0
        assert {"weights champion", "weights late", "weights still"} <= set(shown["params"])
        assert httpx.get(f"{service.url}/v1/view?stream=s").json()["map"] is None
        event = httpx.get(f"{service.url}/v1/streams/s/events/e5").json()
        assert event["scores"] == {**given(5, TWO), "late": None} and event["score"] is None
    finally:
        service.end()
    assert whole(str(store))


def fill(service: Any, first: int, end: int, names: list[str], late: int = 8) -> None:
    for i in range(first, end):
        service.group([forecast(i, names)], *([[outcome(i - late)]] if i >= late else []))


def test_what_is_corrected_before_a_model_joined_is_replayed_over_it(url: str, tmp_path: Path) -> None:
    with desk(url, method="auto", monitor=1000.0) as service, desk_beside(tmp_path, method="auto") as beside:
        for each in (service, beside):
            each.group([StreamSettings("s", models=TWO)])
            wrong, OUTCOMES[4] = OUTCOMES[4], OUTCOMES[4] ^ (each is beside)
            fill(each, 0, 30, TWO)
            OUTCOMES[4] = wrong
            (joined,) = each.group([StreamSettings("s", models=THREE)])
            assert isinstance(joined, dict) and joined["models"] == THREE
            fill(each, 30, 60, THREE)
        assert service.group([CorrectionEvent("s", "e4", OUTCOMES[4] ^ 1)]) == [["corrected"]]
        assert service.engine.corrections.do_all() == 1
        assert service.group([forecast(60, THREE)]) == beside.group([forecast(60, THREE)])
        assert service.forget("s", "e2", "e40") == 2
        assert whole(url)
        service.group([StreamSettings("s", models=[*THREE, "fourth"])])
        assert service.group([forecast(61, [*THREE, "fourth"])])
    assert whole(url)


def test_a_stream_with_a_model_that_joined_is_pruned_copied_reset_and_rebuilt(url: str) -> None:
    with desk(url, method="auto") as service:
        service.group([StreamSettings("s", models=TWO)])
        fill(service, 0, 30, TWO)
        service.group([StreamSettings("s", models=THREE)])
        fill(service, 30, 50, THREE)
    assert whole(url)
    assert prune(url, 0.0, now=1.8e9 + 600.0 * 20) > 5
    assert whole(url)
    with desk(url, method="auto") as service:
        assert service.do("copy", "s", to="t") == "copied"
        told = service.group([forecast(50, THREE)])
        (copied,) = service.group([ForecastEvent("t", "e50", scores=given(50, THREE), time=1.8e9 + 600.0 * 50)])
        assert [copied] == told
        service.group([StreamSettings("t", models=[*THREE, "fourth"])])
    assert whole(url)
    assert prune(url, 0.0, now=1.8e9 + 600.0 * 45) > 5
    assert whole(url)
    with desk(url, method="auto") as service:
        assert service.do("reset", "s") == "reset"
        fill(service, 60, 70, THREE, late=200)
    assert whole(url)
    rebuild(url)
    with desk(url, method="auto") as service:
        fill(service, 70, 75, THREE, late=200)
    assert whole(url)
    with pytest.raises(ValueError, match="method must be auto, as stream 's' has models, got 'tops'"):
        rebuild(url, "tops")


def test_an_outcome_may_be_assumed_or_late(url: str, tmp_path: Path) -> None:
    with desk(url, method="auto", expire=DAY, expire_as=0) as service, desk_beside(tmp_path, method="auto") as beside:
        for each in (service, beside):
            each.group([StreamSettings("s", models=TWO)])
            each.group([ForecastEvent("s", "e1", scores=[0.2, None])])
        service.tick(2 * DAY)
        assert beside.group([OutcomeEvent("s", "e1", 0)]) == [["learnt"]]
        later = ForecastEvent("s", "e2", scores={"challenger": 0.4})
        assert service.group([later]) == beside.group([later])
    assert whole(url)


# ---- what is refused -------------------------------------------------------------------------------------------------


def sentence(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["message"]


def test_what_cannot_be_is_refused_with_the_reason_of_the_library(tmp_path: Path) -> None:
    with service_here(tmp_path / "a.db", settings=EngineSettings(method="auto")) as url:
        refused = [
            ({"models": ["one"]}, "models must be 2 or more, got 1 - one model needs no models=: Calibrator()"),
            ({"models": [f"m{i}" for i in range(17)]}, "models must be a whole number in [2, 16], got 17"),
            ({"models": ["a", "a"]}, "models must have different names, got 'a' twice"),
            ({"models": ["a", "fast"]}, "models must not be called still or fast, as the lanes are - at model 1"),
            (
                {"models": TWO, "groups": ["country"]},
                "groups must be left out with models: several models do not have it yet",
            ),
            (
                {"models": TWO, "kept": [1.0, 0.5]},
                "kept must be left out with models: several models do not have it yet",
            ),
            ({"models": TWO, "classes": 2}, "classes must be left out with models: several models do not have it yet"),
            ({"models": "two"}, 'models must be a list of the names of models, got "two"'),
            ({"models": ["a", "\u0007"]}, "model must be text without control characters, got '\\x07'"),
        ]
        for settings, text in refused:
            found = sentence(put(url, **settings))
            assert found == (400, text)
        assert httpx.get(f"{url}/v1/streams/s").status_code == 404
        assert put(url, models=TWO).status_code == 200
        assert put(url, models=THREE).json()["models"] == THREE  # there is no event yet
        assert put(url, models=TWO).json()["models"] == TWO
        ask(url, 0, TWO)
        for settings in ({"models": THREE[1:]}, {"models": [*reversed(TWO), "late"]}, {"classes": 2}):
            assert sentence(put(url, **settings))[0] == 409
        assert put(url, models=[*TWO, "champion"]).status_code == 400
        assert sentence(put(url, models=[*TWO, "\u0007"])) == (
            *(400, "model must be text without control characters, got '\\x07'"),
        )
        assert put(url, models=TWO).json()["models"] == TWO  # nothing has changed
        events = [
            ({"scores": {}}, "at least one score must be given, of champion, challenger, got none"),
            ({"scores": {"champion": None}}, "at least one score must be given, of champion, challenger, got none"),
            (
                {"scores": {"champio": 0.5}},
                "scores must be of champion, challenger, got 'champio' - did you mean 'champion'?",
            ),
            ({"scores": [0.5]}, "scores must be 2 numbers, of champion, challenger, got 1"),
            ({"scores": [0.5, 1.5]}, "score must be in [0, 1], got 1.5 - of challenger"),
            ({"score": 0.5}, "scores must be given for the models of the stream, champion, challenger, got score"),
            (
                {"scores": [0.5, 0.5], "groups": {"a": 1}},
                "groups must be left out, as a stream of models has none, got some",
            ),
        ]
        for fields, text in events:
            answer = httpx.post(f"{url}/v1/forecasts", json={"stream": "s", "id": "x", **fields})
            assert sentence(answer) == (400, f"{text} - at event 0")
        answer = httpx.post(f"{url}/v1/streams/s/passthrough", json={})
        assert sentence(answer)[0] == 400 and "got one of several models" in sentence(answer)[1]
    with service_here(tmp_path / "tops.db", settings=EngineSettings(method="tops")) as url:
        assert sentence(put(url, models=TWO)) == (
            *(400, "models need the method AUTO, got another: Calibrator(models=...) without a method"),
        )


def test_there_is_no_raw_score_that_could_raise_an_alarm(tmp_path: Path) -> None:
    url = str(tmp_path / "a.db")
    with desk(url, method="auto", monitor=50.0) as service:
        service.group([StreamSettings("s", models=TWO)])
        for first in range(0, 1600, 20):
            ids = range(first, first + 20)
            service.group([ForecastEvent("s", f"e{i}", scores=[0.5, 0.5]) for i in ids])
            service.group([OutcomeEvent("s", f"e{i}", 1 if i > 1300 else i % 2) for i in ids])
    with closing(open_reader(url)) as reader:
        found = reader.alarms(stream="s")
        assert found and not any(alarm.what.startswith("raw") for alarm in found)
    assert whole(url)


def test_a_join_is_refused_for_a_stream_of_another_kind(tmp_path: Path) -> None:
    with desk(str(tmp_path / "a.db"), method="auto") as service:
        service.ask(("s", "e1", 0.4))
        (found,) = service.group([StreamSettings("s", models=TWO)])
        assert isinstance(found, Refusal) and found.status == 409


def test_a_backtest_of_a_store_leaves_out_events_without_a_score(tmp_path: Path) -> None:
    store = str(tmp_path / "a.db")
    with desk(store, method="auto") as service:
        service.group([StreamSettings("duel", models=["a", "b"])])
        for at in range(5):
            service.group([ForecastEvent("duel", f"e{at}", scores={"a": 0.5, "b": 0.25})])
            service.ask(("plain", f"e{at}", 0.5))
    (part, _), *_ = StoreLog(store).batches(lambda columns, _: columns)
    assert part.column("stream").to_pylist() == ["plain"] * 5


def test_a_log_with_other_models_than_the_store_is_refused(tmp_path: Path) -> None:
    one, other, log = str(tmp_path / "a.db"), str(tmp_path / "b.db"), tmp_path / "log.parquet"
    for store, names in ((one, ["a", "b"]), (other, ["x", "y"])):
        with desk(store, method="auto") as service:
            service.group([StreamSettings("duel", models=names)])
            service.group([ForecastEvent("duel", "e1", scores=dict.fromkeys(names, 0.5))])
    assert export(one, log) == 1
    with Stage() as stage:
        stage.read(files_of(str(log)), EventColumns({}), Options())
        with pytest.raises(InvalidInput, match=r"log must fit the store, got: .* - stream 'duel'"):
            import_events(other, stage, EngineSettings())
