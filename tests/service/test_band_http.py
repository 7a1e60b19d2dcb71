"""How sure a forecast is, over HTTP: `serve --band`."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from served import service_here
from services import desk, whole

from calibeat import Calibrator, InvalidInput, MultiCalibrator
from calibeat.client import Client
from calibeat.service.engine import EngineSettings
from calibeat.service.events import CorrectionEvent, ForecastEvent, KeptShares, OutcomeEvent, Refusal, StreamSettings
from calibeat.service.maintenance import configure, info, prune, replay_check
from calibeat.service.store import open_connection, open_reader

SURE = ("low", "high", "outcomes", "reason")


def fill(service: Any, first: int, end: int, stream: str = "s") -> list[Any]:
    answers = []
    for i in range(first, end):
        answers += service.ask((stream, f"e{i}", (i % 19 + 1) / 20, 1.8e9 + 60.0 * i))
        service.tell((stream, f"e{i}", int(i % 3 == 0), 1.8e9 + 60.0 * i + 30.0))
    return answers


def sure(told: Any) -> list[Any]:
    return [getattr(told, name) for name in SURE]


def test_an_answer_says_how_sure_it_is_and_a_repeat_says_the_same(tmp_path: Path) -> None:
    store, cal = tmp_path / "a.db", Calibrator(band=True)
    settings = EngineSettings(method="auto", band=True)
    with service_here(store, settings=settings) as url, Client(url) as client:
        answers = []
        for i in range(30):
            answer, wanted = client.predict("s", (i + 1) / 40, id=f"e{i}"), cal.predict((i + 1) / 40)
            assert answer.probability == wanted.probability and sure(answer) == sure(wanted)
            answers.append(answer)
            client.outcome("s", f"e{i}", i % 2)
            cal.update(wanted, i % 2)
        body = {"stream": "s", "id": "e3", "score": 4 / 40}
        found = httpx.post(f"{url}/v1/forecasts", json=body).json()
        assert list(found) == ["stream", "id", "probability", *SURE]
        assert answers[3].low is not None and found["low"] == answers[3].low
        assert answers[0].reason == "too few outcomes"
        assert client.event("s", "e3")["high"] == answers[3].high
    with service_here(store, settings=EngineSettings()) as url, Client(url) as client:
        assert [client.predict("s", (i + 1) / 40, id=f"e{i}") for i in range(30)] == answers
    assert whole(str(store))


def test_what_has_no_interval_is_refused_with_the_reason_of_the_library(tmp_path: Path) -> None:
    def reason(make: Any) -> str:
        with pytest.raises(InvalidInput) as caught:
            make()
        return str(caught.value)

    with desk(str(tmp_path / "a.db"), method="auto", band=True) as service:
        classes = reason(lambda: MultiCalibrator(3, band=True))
        several = reason(lambda: Calibrator(models=["a", "b"], band=True))
        groups = "groups must be left out with --band: the interval was not measured with them"
        for asked, text in (
            (StreamSettings("s", classes=3), classes),
            (StreamSettings("s", classes=["a", "b"]), classes),
            (StreamSettings("s", groups=["country"]), groups),
            (StreamSettings("s", models=["a", "b"]), several),
            (ForecastEvent("s", "e", scores=[0.2, 0.3, 0.5]), f"{classes} - at event 0"),
            (ForecastEvent("s", "e", 0.5, groups={"country": "fr"}), f"{groups} - at event 0"),
        ):
            (found,) = service.group([asked])
            assert isinstance(found, Refusal) and (found.status, found.message) == (400, text)
        assert service.ask(("s", "e", 0.5))  # nothing is left of it
    with pytest.raises(InvalidInput, match="the interval requires AUTO"), desk(str(tmp_path / "b.db"), band=True):
        pass
    with pytest.raises(InvalidInput, match="--band must be that of the store, on, got off"):
        desk(str(tmp_path / "a.db"), method="auto", band=False).__enter__()


def test_a_store_gets_bands_and_gives_them_up(url: str) -> None:
    with desk(url, method="auto", monitor=1000.0) as service:
        before = fill(service, 0, 60)
    with desk(url, method="auto", monitor=1000.0) as service:
        service.ask(("s", "open", 0.3))
    assert prune(url, 0.0, now=1.8e9 + 60.0 * 20) > 5
    assert configure(url, band=True).band is True and whole(url) and info(url)["band"] is True
    with desk(url, method="auto") as service:
        assert service.ask(("s", "e40", (40 % 19 + 1) / 20)) == [before[40]]  # as it was told
        assert type(before[40]) is float
        (told,) = service.ask(("s", "next", 0.3))
        assert 0.0 < told.low < told.probability < told.high < 1.0
        assert service.tell(("s", "open", 1), ("s", "next", 0)) == ["learnt", "learnt"]
    assert whole(url)
    assert configure(url, band=False).band is False and whole(url)
    with desk(url, method="auto") as service:
        (again, plain) = service.ask(("s", "next", 0.3), ("s", "last", 0.3))
        assert sure(again) == sure(told) and type(plain) is float
    assert whole(url)


def test_bands_move_no_forecast_and_no_correction_moves_a_band(url: str, tmp_path: Path) -> None:
    with desk(url, method="auto", band=True) as service, desk(str(tmp_path / "b.db"), method="auto") as beside:
        told = fill(service, 0, 50)
        assert told == fill(beside, 0, 50)
        for each in (service, beside):
            assert each.correct(("s", "e3", 0), ("s", "e9", None)) == ["corrected"] * 2
            assert each.engine.corrections.do_all() == 2
        (answer,), (plain,) = (each.ask(("s", "e50", 0.4)) for each in (service, beside))
        assert answer == plain and answer.low < answer
        assert [sure(again) for again in service.ask(("s", "e3", 4 / 20), ("s", "e20", (20 % 19 + 1) / 20))] == [
            sure(told[3]),
            sure(told[20]),
        ]
        assert service.do("passthrough", "s") == "passthrough"
        assert [type(each) for each in service.ask(("s", "raw", 0.4))] == [float]
        assert service.do("resume", "s") == "resumed"
        service.group([CorrectionEvent("s", "e4", 1)], [OutcomeEvent("s", "e50", 1, weight=3.0)])
        assert service.engine.corrections.do_all() == 1
        assert service.forget("s", "e5") == 1
    assert whole(url)


def test_streams_with_groups_keep_a_store_without_bands(tmp_path: Path) -> None:
    url = str(tmp_path / "a.db")
    for name, asked in (("groups", {"groups": ["c"]}), ("classes", {"classes": 3}), ("models", {"models": ["a", "b"]})):
        with desk(url, method="auto") as service:
            service.group([StreamSettings("s", **asked)])  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match=f"band must be off, as stream 's' has {name}"):
            configure(url, band=True)
        assert info(url)["band"] is False
        with desk(url, method="auto") as service:
            service.group([ForecastEvent("t", "e", 0.4)])
        Path(url).unlink()


def test_the_log_has_the_band_as_it_was_told(tmp_path: Path) -> None:
    url = str(tmp_path / "a.db")
    with desk(url, method="auto", band=True) as service:
        (told,) = service.ask(("s", "e1", 0.3))
    with closing(open_connection(url)) as connection:
        (band,) = connection.all("SELECT band FROM op WHERE kind = 0")[0]
        assert len(bytes(band)) == 32
    with closing(open_reader(url)) as reader:
        event = reader.event("s", "e1")
        assert event is not None and sure(event) == sure(told)


def test_a_band_that_was_changed_in_the_log_is_noticed(tmp_path: Path) -> None:
    url = str(tmp_path / "a.db")
    with desk(url, method="auto", band=True) as service:
        fill(service, 0, 30)
        service.engine.store.connection.run("UPDATE op SET band = ? WHERE nth = 9 AND kind = 0", (bytes(32),))
    assert replay_check(url).differences == ["stream 's': 1 bands differ"]


def test_a_stream_without_events_gets_a_band_too(tmp_path: Path) -> None:
    url = str(tmp_path / "a.db")
    with desk(url, method="auto") as service:
        service.group([StreamSettings("later", kept=KeptShares(1.0, 0.5))])
        fill(service, 0, 5)
    assert configure(url, band=True).band is True
    with desk(url, method="auto", band=True) as service:
        assert sure(service.ask(("later", "e1", 0.5))[0])[0] is not None
    assert whole(url)
