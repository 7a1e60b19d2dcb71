"""Two classes, many classes and groups: the service says what the library says, to the last bit, on both stores."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import browser
import httpx
import numpy as np
import pytest
from conformance import ServedCase, delays, said, served_cases
from dashboards import open_dashboard, text_of
from served import service_here
from services import Desk, desk

from calibeat import Calibrator, Groups
from calibeat.backtest.options import Options
from calibeat.backtest.read.files import files_of
from calibeat.client import Client
from calibeat.errors import InvalidInput
from calibeat.service import ops
from calibeat.service.events import ForecastEvent, OutcomeEvent, Refusal, StreamSettings
from calibeat.service.maintenance import check, info, prune, rebuild, replay_check
from calibeat.service.model import Model
from calibeat.service.settings import EngineSettings
from calibeat.service.shape import PLAIN, Shape
from calibeat.service.store import open_connection, open_reader, owned_store
from calibeat.service.store.types import stored_cells
from calibeat.service.transfer import EventColumns, Stage, export, export_bank, import_events

EVENTS = 90
CELLS = 32  # fewer than there are values: some are evicted
CASES = served_cases(EVENTS)
GROUPED = CASES[-1]
LATE = delays(EVENTS)


def forecast(case: ServedCase, i: int) -> ForecastEvent:
    return ForecastEvent(case.name, f"e{i}", **case.fields(i))


def outcome(case: ServedCase, i: int) -> OutcomeEvent:
    return OutcomeEvent(case.name, f"e{i}", **case.outcome(i))


def log_of(case: ServedCase, due: Any) -> list[Any]:
    """Forecasts and outcomes in the order of a stream whose outcomes come at `due`."""
    order, arrived, log = np.argsort(due, kind="stable"), 0, list[Any]()
    for i in range(EVENTS):
        while arrived < EVENTS and due[order[arrived]] <= i:
            log.append(outcome(case, int(order[arrived])))
            arrived += 1
        log.append(forecast(case, i))
    return log


def reference(case: ServedCase, log: list[Any], groups: Groups | None) -> tuple[Any, dict[str, list[float]]]:
    """What the library says of each event."""
    calibrator, made = case.calibrator(groups), dict[str, Any]()
    for event in log:
        i = int(event.id[1:])
        if isinstance(event, ForecastEvent):
            made[event.id] = case.predict(calibrator, i)
        else:
            calibrator.update(made[event.id], case.label(i))
    return calibrator, {name: np.atleast_1d(said(f)).tolist() for name, f in made.items()}


def groups_of(service: Desk, name: str) -> Groups | None:
    return service.engine.streams[name].shape.groups


@contextmanager
def prepared(url: str, case: ServedCase, **settings: Any) -> Iterator[Desk]:
    with desk(url, method="auto", **settings) as service:
        if case.attributes is not None and service.engine.streams.get(case.name) is None:
            service.group([StreamSettings(case.name, groups=["a0", "a1"], cells=CELLS)])
        yield service


# ---- the same bits ---------------------------------------------------------------------------------------------------


def one_by_one(service: Desk, log: list[Any]) -> Iterator[tuple[Any, Any]]:
    for event in log:
        (answer,) = service._only([event])
        yield event, answer


def in_groups(service: Desk, log: list[Any]) -> Iterator[tuple[Any, Any]]:
    """Seven requests in one group."""
    for first in range(0, len(log), 7):
        part = log[first : first + 7]
        for event, answer in zip(part, service.group(*([event] for event in part)), strict=True):
            yield event, answer[0]


def in_batches(service: Desk, log: list[Any]) -> Iterator[tuple[Any, Any]]:
    """Events of one kind that follow each other are one request."""
    first = 0
    while first < len(log):
        end = first
        while end < len(log) and type(log[end]) is type(log[first]):
            end += 1
        yield from zip(log[first:end], service._only(log[first:end]), strict=True)
        first = end


@pytest.mark.parametrize("send", [one_by_one, in_groups, in_batches], ids=lambda send: send.__name__)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_service_is_the_library(tmp_path: Path, case: ServedCase, send: Callable[..., Any]) -> None:
    with prepared(str(tmp_path / "calibeat.db"), case) as service:
        log = log_of(case, np.arange(1, EVENTS + 1) if send is one_by_one else LATE)
        told = {event.id: case.told(answer) for event, answer in send(service, log) if isinstance(event, ForecastEvent)}
        calibrator, expected = reference(case, log, groups_of(service, case.name))
        assert told == expected
        same_state(service, case, calibrator)


def same_state(service: Desk, case: ServedCase, calibrator: Any) -> None:
    """Rows and cells are those of the library, which has no stats behind its row."""
    state = service.engine.streams[case.name]
    row = np.frombuffer(state.state or b"")
    ours, theirs = row[1 : len(calibrator.row)], calibrator.row[1:]
    np.testing.assert_array_equal(ours.view(np.int64), np.ascontiguousarray(theirs).view(np.int64))
    if case.attributes is not None:
        table = calibrator._rows.table
        slots = table.occupied()
        assert calibrator.params["groups"]["evicted"] > 0
        held = list(zip(slots.tolist(), [cell.tobytes() for cell in table.read_slots(slots)], strict=True))
        assert held == stored_cells(service.engine.store.connection, state.number)


def test_all_streams_in_one_store_and_one_group(url: str) -> None:
    """Late, in groups of all streams, with restarts and replays; a stream does not see the others."""
    logs = {case.name: log_of(case, LATE) for case in CASES}
    told: dict[str, dict[str, list[float]]] = {case.name: {} for case in CASES}
    third = len(logs["two"]) // 3
    for part in range(3):
        with prepared(url, GROUPED, monitor=500.0) as service:
            for first in range(part * third, (part + 1) * third, 20):
                requests = [
                    [event] for log in logs.values() for event in log[first : min(first + 20, part * third + third)]
                ]
                for (event,), answer in zip(requests, service.group(*requests), strict=True):
                    assert not isinstance(answer, Refusal), answer
                    if isinstance(event, ForecastEvent):
                        told[event.stream][event.id] = answer[0]
            found = replay_check(url)
            assert found.is_same, found.differences
            grouped = groups_of(service, "groups")
        assert check(url) == []
    for case in CASES:
        log = logs[case.name][: 3 * third]
        _, expected = reference(case, log, grouped if case.attributes is not None else None)
        assert {name: case.told(answer) for name, answer in told[case.name].items()} == expected
    assert info(url)["with many classes"] == 3 and info(url)["with groups"] == 1


def test_processes_take_turns_with_streams_of_all_shapes(url: str) -> None:
    """Each reads what the one before it has written: rows and cells."""
    case, told = GROUPED, dict[str, list[float]]()
    log = log_of(case, LATE)
    for at in range(0, len(log), 20):
        with prepared(url, GROUPED) if at == 0 else desk(url, method="auto") as service:
            for event in log[at : at + 20]:
                (answer,) = service._only([event])
                if isinstance(event, ForecastEvent):
                    told[event.id] = case.told(answer)
            assert at + 20 < len(log) or told == reference(case, log, groups_of(service, case.name))[1]
    assert replay_check(url).is_same and check(url) == []


def test_states_are_made_anew_and_old_events_go(url: str) -> None:
    """`replay` makes the state that is there; `prune` moves the base, from which replays are the same."""
    with prepared(url, GROUPED) as service:
        for case in CASES:
            for _ in in_groups(service, log_of(case, LATE)[:100]):
                service.now += 60.0
        now = service.now
    before = tables_of(url)
    rebuild(url)
    assert tables_of(url) == before and replay_check(url).is_same and check(url) == []
    assert prune(url, 2000.0, now=now) > 100
    assert replay_check(url).is_same and check(url) == [] and tables_of(url) == before
    with prepared(url, GROUPED) as service:
        for case in CASES:
            list(in_groups(service, log_of(case, LATE)[100:]))
    found = replay_check(url)
    assert found.is_same and check(url) == []
    rebuild(url)
    assert replay_check(url).is_same and check(url) == []
    with pytest.raises(InvalidInput, match="method must be auto or gauto, as stream 'groups' has groups, got 'tops'"):
        rebuild(url, "tops")
    rebuild(url, "gauto")
    assert replay_check(url).is_same


def tables_of(url: str) -> Any:
    connection = open_connection(url)
    try:
        states = (
            "SELECT name, state, text FROM stream JOIN body ON body.stream = number "
            "LEFT JOIN shape ON shape.stream = number ORDER BY name"
        )
        cells = "SELECT stream, slot, held FROM cell WHERE is_base = 0 ORDER BY stream, slot"
        return connection.all(states), connection.all(cells)
    finally:
        connection.close()


def test_a_commit_writes_the_cells_that_it_touched_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with desk(str(tmp_path / "calibeat.db"), method="auto") as service:
        written: list[Any] = []
        write = service.engine.store.write
        monkeypatch.setattr(service.engine.store, "write", lambda rows: (written.append(rows), write(rows)))
        for _ in one_by_one(service, log_of(GROUPED, np.arange(1, EVENTS + 1))):
            cells = written[-1]["cell"]
            assert len(cells) == (0 if written[-1]["event"] else 3)  # two attributes and their crossing
            assert not written[-1]["name"]
        assert len(stored_cells(service.engine.store.connection, 1)) > 60


def test_tables_that_were_not_used_for_long_leave_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibeat.service.streams.MOST_TABLES", 2)
    with desk(str(tmp_path / "calibeat.db"), method="auto") as service:
        for i in range(12):
            service._only([ForecastEvent(f"s{i % 4}", f"e{i}", 0.4, groups={"c": i})])
            assert service._only([OutcomeEvent(f"s{i % 4}", f"e{i}", 1)]) == ["learnt"]
        assert sum(state.table is not None for state in service.engine.streams.values()) == 2
    assert replay_check(str(tmp_path / "calibeat.db")).is_same


# ---- what is refused -------------------------------------------------------------------------------------------------

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("two", {"scores": [0.5, 0.5]}, "score must be given, as the stream has two classes, got scores"),
    ("two", {"score": 0.5, "groups": {"a": 1}}, "groups must be left out, as the stream has none, got some"),
    ("three", {"score": 0.5}, "scores must be given for the column numbers 0 to 2 of the stream, got score"),
    ("three", {"scores": [0.5, 0.5]}, "scores must have 3 numbers, one for each class, got 2"),
    ("three", {"scores": [0.5, 0.5, 0.1]}, "scores of an event must sum to 1 within 1e-06, got 1.1"),
    (
        "three",
        {"scores": [1.5, -0.5, 0.0]},
        "score must be 0 or more, got -0.5 - at column 1 - logits want logits=True",
    ),
    (
        "three",
        {"scores": {"a": 1.0}},
        "scores must be a list with a number for the column numbers 0 to 2 of the stream",
    ),
    (
        "three named",
        {"scores": [0.2, 0.2, 0.6]},
        "scores must be an object with a number for the 3 classes 'bird', 'cat'",
    ),
    (
        "three named",
        {"scores": {"cat": 0.4, "dog": 0.6}},
        "the 3 classes 'bird', 'cat', 'dog' of the stream, got none for",
    ),
    (
        "three named",
        {"scores": {"cat": 0.4, "dog": 0.6, "bird": 0.0, "cow": 0.0}},
        "scores must have a number for the 3 classes 'bird', 'cat', 'dog' of the stream, got one for 'cow' too",
    ),
    (
        "three",
        {"scores": [0.2, 0.3, 0.5], "groups": {"a": 1}},
        "groups must be left out, as a stream of classes has none, got some",
    ),
    ("groups", {"score": 0.5}, "groups must be given for the stream: a0, a1, got none"),
    ("groups", {"score": 0.5, "groups": {"a0": 1}}, "groups must be a0, a1 for the stream, got none for 'a1'"),
    (
        "groups",
        {"score": 0.5, "groups": {"a0": 1, "a1": 1, "a2": 1}},
        "groups must be a0, a1 for the stream, got 'a2' too",
    ),
    (
        "groups",
        {"score": 0.5, "groups": {"a0": 1, "a1": 37.5}},
        "a1 must be a string, a whole number, a bool or None, got 37.5; cut numbers into bands first",
    ),
    ("new", {"scores": [1.0]}, "classes must be from 2 to 1000, got 1"),
    ("new", {"scores": {"a\n": 0.5, "b": 0.5}}, "class must"),
    ("two", {"score": 0.5, "scores": [0.5, 0.5]}, "event must have either score or scores, got both"),
    ("two", {"score": 0.5, "groups": {"a": 1}}, "groups must be left out, as the stream has none, got some"),
    ("new", {"scores": [0.5, 0.5], "groups": {"a": 1}}, "groups must come with score, got scores or classes"),
    ("new", {"score": 0.5, "groups": {"a\n": 1}}, "group must be text without control characters, got"),
    ("new", {"score": 0.5, "groups": {}}, "groups must have an attribute, got none"),
    (
        "new",
        {"score": 0.5, "groups": {f"g{k}": 1 for k in range(17)}},
        "groups must have at most 16 attributes, got 17",
    ),
]


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """A store with a stream of each kind."""
    with prepared(str(tmp_path_factory.mktemp("busy") / "calibeat.db"), GROUPED) as service:
        for case in CASES:
            list(in_batches(service, log_of(case, LATE)[:5]))
        yield service


@pytest.mark.parametrize(("stream", "fields", "sentence"), REFUSED)
def test_events_that_differ_are_refused_with_a_sentence(
    busy: Desk, stream: str, fields: dict[str, Any], sentence: str
) -> None:
    good = ForecastEvent("two", "never", 0.5)
    with pytest.raises(Refusal) as caught:
        busy._only([good, ForecastEvent(stream, "bad", **fields)])
    assert sentence in caught.value.message and caught.value.message.endswith(" - at event 1")
    assert (caught.value.code, caught.value.status, caught.value.at) == ("invalid", 400, 1)
    assert busy._only([OutcomeEvent("two", "never", 1)]) == ["unknown"] and "new" not in busy.engine.streams


def test_an_id_keeps_its_scores_and_groups(busy: Desk) -> None:
    for case in CASES:
        first, other = forecast(case, 0), forecast(case, 1)
        again = busy._only([first])
        assert again == busy._only([first])
        changed = ForecastEvent(case.name, "e0", score=other.score, scores=other.scores, groups=other.groups)
        with pytest.raises(Refusal, match=r"id must be new or have the (score|scores) it had, got 'e0' - at event 0"):
            busy._only([changed])
    moved = ForecastEvent("groups", "e0", forecast(GROUPED, 0).score, groups={"a0": "x", "a1": "y"})
    with pytest.raises(Refusal, match="id must be new or have the groups it had, got 'e0'"):
        busy._only([moved])


def test_groups_need_a_method_that_takes_them(tmp_path: Path) -> None:
    with desk(str(tmp_path / "calibeat.db"), method="tops") as service:
        with pytest.raises(Refusal, match="groups must be left out, as only auto and gauto take them"):
            service._only([ForecastEvent("s", "e", 0.5, groups={"a": 1})])
        assert service._only([ForecastEvent("s", "e", scores=[0.5, 0.25, 0.25])])  # MULTI serves many classes


def test_a_method_without_groups_loads_no_stream_with_groups(busy: Desk) -> None:
    streams = [busy.engine.streams["groups"]]
    with pytest.raises(InvalidInput, match=r"method must be auto or gauto for a stream with groups.* - at 'groups'"):
        Model.named("tops").load(streams, [{}])


@pytest.mark.parametrize("name", [case.name for case in CASES])
def test_a_row_that_no_stream_has_is_not_loaded(busy: Desk, name: str) -> None:
    model, stream = busy.engine.model, busy.engine.streams[name]
    row = model.rows([stream])
    row[0, 2] = 1e308
    stream.state = row.tobytes()
    with pytest.raises(InvalidInput, match=r"rows must have .* in \[.*\], got 1e\+308 - at row 0"):
        model.load([stream], [{}])


def test_an_event_of_two_classes_is_its_score() -> None:
    assert PLAIN.read(ForecastEvent("s", "e", 0.3)) == (0.3, None)
    with pytest.raises(InvalidInput, match="score must be given, as the stream has two classes, got none"):
        PLAIN.read(ForecastEvent("s", "e"))


def test_the_same_id_in_two_streams_is_two_events(url: str) -> None:
    with desk(url, method="ops") as service:
        assert service.ask(("paris", "e1", 0.8), ("rome", "e1", 0.3)) == [0.8, 0.3]
        assert service.tell(("rome", "e1", 0), ("paris", "e1", 1), ("oslo", "e1", 1)) == ["learnt", "learnt", "unknown"]
        assert len(service.ask(("rome", "e1", 0.3))) == 1
        with pytest.raises(Refusal, match="id must be new or have the score it had"):
            service.ask(("rome", "e1", 0.8))
    assert replay_check(url).is_same and check(url) == []


# ---- settings of a stream --------------------------------------------------------------------------------------------


def test_a_stream_can_be_said_before_its_first_event(url: str) -> None:
    with desk(url, method="auto") as service:
        (answer,) = service.group([StreamSettings("s", groups=["z", "a", "m"], crossings=[["m", "z"]], names=True)])
        wanted = {"attributes": ["z", "a", "m"], "crossings": [["m", "z"]], "cells": 2**14, "names": True}
        assert answer == {"stream": "s", "classes": None, "groups": wanted, "models": None, "kept": None}
        service.group([StreamSettings("k", classes=["z", "a"])])
        with closing(open_reader(url)) as reader:
            assert reader.segments("s") == []  # nothing is learnt
    with desk(url, method="auto") as service:
        (answered,) = service._only([ForecastEvent("k", "e", scores={"a": 0.9, "z": 0.1})])
        assert list(answered) == ["z", "a"] and sum(answered.values()) == 1.0
        service._only([ForecastEvent("s", "e", 0.4, groups={"a": 1, "m": "x", "z": None})])
        assert groups_of(service, "s").attributes == ("z", "a", "m")  # type: ignore[union-attr]
        assert service.group([StreamSettings("s", groups=["z", "a", "m"], crossings=[["m", "z"]], names=True)]) == [
            answer
        ]
        for other in (StreamSettings("s", groups=["a", "z", "m"]), StreamSettings("s", classes=3)):
            (refused,) = service.group([other])
            assert (refused.code, refused.status) == ("conflict", 409)
            assert refused.message == "stream must stay as its first event has made it, got other settings for 's'"
        for bad in (
            StreamSettings("n"),
            StreamSettings("n", classes=3, names=True),
            StreamSettings("n", classes=1),
            StreamSettings("n", classes=["a\n", "b"]),
            StreamSettings("n", groups=["a", "a"]),
        ):
            (refused,) = service.group([bad])
            assert (refused.code, refused.status) == ("invalid", 400)
    assert check(url) == [] and replay_check(url).is_same and info(url)["streams"] == 2


def test_cells_that_were_changed_in_the_store_are_noticed(url: str) -> None:
    with desk(url, method="auto") as service:
        for at in range(20):
            service._only([ForecastEvent("s", f"e{at}", 0.4, groups={"a": at % 3})])
            service.tell(("s", f"e{at}", at % 2))
    assert replay_check(url).is_same
    with owned_store(url) as store:
        connection = store.connection
        (slot, held), *_ = connection.all("SELECT slot, held FROM cell WHERE is_base = 0 ORDER BY slot")
        changed = bytes(held)[:-8] + struct.pack("<d", 0.25)
        connection.run("UPDATE cell SET held = ? WHERE is_base = 0 AND slot = ?", (changed, slot))
    (difference,) = replay_check(url).differences
    assert "the cells of its groups differ" in difference


def test_names_are_sorted_by_the_first_event() -> None:
    method = Calibrator().method
    event = ForecastEvent("s", "e", scores={"dog": 0.2, "cat": 0.8})
    assert Shape.of_event(event, method).described()["classes"] == ["cat", "dog"]  # type: ignore[arg-type]
    event = ForecastEvent("s", "e", 0.5, groups={"b": 1, "a": 2})
    assert Shape.of_event(event, method).described()["groups"]["attributes"] == ["a", "b"]  # type: ignore[arg-type]
    assert "seed" not in Shape.of_event(event, method).described()["groups"]  # type: ignore[arg-type]


def test_values_are_kept_only_where_names_are_asked_for(url: str) -> None:
    hidden = "a value that nobody may find"
    with desk(url, method="auto") as service:
        service.group([StreamSettings("open", groups=["who"], names=True, cells=8)])
        for stream in ("open", "closed"):
            for i in range(20):
                value = hidden if i == 19 else f"v{i}"
                service._only([ForecastEvent(stream, f"e{i}", 0.4, groups={"who": value})])
                service._only([OutcomeEvent(stream, f"e{i}", 1)])
        assert len(service.engine.streams["open"].book) == 8
        kept = service.engine.store.connection.all("SELECT stream, value FROM name ORDER BY number")
        assert len(kept) == 8 and {stream for stream, _ in kept} == {service.engine.streams["open"].number}
        assert hidden in kept[-1][1]
        connection, opened = service.engine.store.connection, service.engine.streams["open"].number
        assert connection.all("SELECT stream, count(*) FROM op WHERE kind = ? GROUP BY stream", (ops.NAME,)) == [
            (opened, 20)
        ]
        connection.run("DELETE FROM op WHERE kind = ?", (ops.NAME,))
        tables = [name for name in connection.tables() if name != "name"]
        assert not any(hidden in repr(connection.all(f"SELECT * FROM {name}")) for name in tables)  # noqa: S608
    with desk(url, method="auto") as service:  # the book is as it was
        service._only([ForecastEvent("open", "f", 0.4, groups={"who": "more"})])
        assert list(service.engine.streams["open"].book.values())[-2:] == [hidden, "more"]


# ---- over HTTP -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    store = tmp_path_factory.mktemp("served") / "calibeat.db"
    with service_here(store, settings=EngineSettings(method="auto", monitor=1000.0)) as url:
        yield url


def test_classes_over_http(served: str) -> None:
    with Client(served) as client:
        answer = client.predict("pets", scores={"dog": 0.5, "cat": 0.2, "bird": 0.3}, id="e1")
        assert list(answer.probabilities or ()) == ["bird", "cat", "dog"] and float(answer) == max(
            answer.probabilities.values()
        )  # type: ignore[union-attr]
        assert client.outcome("pets", "e1", label="dog") == "learnt"
        events = [{"stream": "pets", "scores": {"dog": 0.5, "cat": 0.2, "bird": 0.3}, "id": f"m{i}"} for i in range(3)]
        assert len(client.predict_many(events)) == 3
        outcomes = [
            {"stream": "pets", "id": "m0", "label": "cat"},
            {"stream": "pets", "id": "m1", "label": "cow"},
            {"stream": "pets", "id": "m2", "outcome": 1},
        ]
        assert client.outcomes(outcomes) == ["learnt", "invalid", "invalid"]
        with pytest.raises(InvalidInput, match="label must be one of the 3 classes 'bird', 'cat', 'dog', got 'cow'"):
            client.outcome("pets", "m1", label="cow")
        assert client.stream("pets")["classes"] == ["bird", "cat", "dog"]
        assert "bias cat" in client.stream("pets")["params"]
    view = httpx.get(f"{served}/v1/view", params={"stream": "pets"})
    assert view.status_code == 200 and view.json()["map"] is None and view.json()["method"] == "multi"
    assert httpx.get(f"{served}/v1/overview").status_code == 200


def test_a_bad_outcome_of_a_batch_does_not_hold_up_the_others(served: str) -> None:
    httpx.post(
        f"{served}/v1/forecasts", json={"events": [{"stream": "two", "id": f"i{i}", "score": 0.5} for i in range(4)]}
    )
    body = {
        "events": [
            {"stream": "two", "id": "i0", "outcome": True},
            {"stream": "two", "id": "i1", "outcome": 2},
            {"stream": "two", "id": "i1", "outcome": 1.0},
            {"stream": "two", "id": "i2"},
            "no event",
            {"stream": "two", "id": "i2", "label": "dog"},
            {"stream": "two", "id": "i2", "outcome": False, "more": 1},
            {"stream": "two", "id": "i3", "outcome": False},
        ]
    }
    answer = httpx.post(f"{served}/v1/outcomes", json=body)
    assert answer.status_code == 200
    found = answer.json()["outcomes"]
    assert [each["status"] for each in found] == [
        *("learnt", "invalid", "learnt", "invalid", "invalid", "invalid", "invalid", "learnt")
    ]
    assert [each.get("message") for each in found] == [
        None,
        "outcome must be 0 or 1, got 2 - at event 1",
        None,
        "outcome is missing - at event 3",
        "event must be a JSON object - at event 4",
        "outcome must be 0 or 1, as the stream has two classes without names, got a label",
        "'more' is not a field of this request - at event 6",
        None,
    ]
    assert found[1]["stream"] == "two" and found[4]["stream"] is None
    for bad in ({"stream": "two", "id": "i2", "outcome": 2}, {"stream": "two", "id": "i2"}, {"stream": "two"}):
        assert httpx.post(f"{served}/v1/outcomes", json=bad).status_code == 400
    both = {"stream": "two", "id": "i2", "outcome": 1, "label": 1}
    assert "either outcome or label" in httpx.post(f"{served}/v1/outcomes", json=both).json()["error"]["message"]


def test_two_classes_by_their_places_have_labels_or_outcomes(served: str) -> None:
    events = [{"stream": "places", "id": f"i{i}", "scores": [0.3, 0.7]} for i in range(3)]
    httpx.post(f"{served}/v1/forecasts", json={"events": events})
    told = [{"outcome": True}, {"label": 1}, {"outcome": 0}]
    body = {"events": [{"stream": "places", "id": f"i{i}", **each} for i, each in enumerate(told)]}
    assert [each["status"] for each in httpx.post(f"{served}/v1/outcomes", json=body).json()["outcomes"]] == [
        "learnt"
    ] * 3
    path = f"{served}/v1/streams/places/events"
    assert [event["label"] for event in httpx.get(path).json()["events"]] == [1, 1, 0]
    bad = httpx.post(f"{served}/v1/outcomes", json={"stream": "places", "id": "i0", "label": 2}).json()["error"]
    assert (bad["message"], bad["at"]) == ("label must be one of the column numbers 0 to 1, got 2", "label")


def test_groups_over_http(served: str) -> None:
    put = httpx.put(
        f"{served}/v1/streams/world", json={"groups": ["country", "device"], "crossings": [], "names": True}
    )
    assert put.status_code == 200 and put.json()["groups"]["attributes"] == ["country", "device"]
    with Client(served) as client:
        events = [
            {
                "stream": "world",
                "id": f"w{i}",
                "score": 0.5,
                "groups": {"country": "fr" if i % 2 else "it", "device": i % 3},
            }
            for i in range(120)
        ]
        client.predict_many(events)
        client.outcomes([{"stream": "world", "id": f"w{i}", "outcome": i % 2} for i in range(120)])
        client.predict("world", 0.5, groups={"country": "fr", "device": None})
        assert "groups spread of country" in client.stream("world")["params"]
    segments = httpx.get(f"{served}/v1/streams/world/segments", params={"least": 40}).json()["segments"]
    assert {(s["attribute"], s["value"]) for s in segments} == {
        *(("country", "fr"), ("country", "it"), ("device", 0), ("device", 1), ("device", 2))
    }
    assert {s["value"]: s["rate"] for s in segments if s["attribute"] == "country"} == {"fr": 1.0, "it": 0.0}
    view = httpx.get(f"{served}/v1/view", params={"stream": "world"})
    assert view.status_code == 200 and view.json()["map"] is None
    assert httpx.get(f"{served}/v1/streams/pets/segments").status_code == 404
    assert httpx.get(f"{served}/v1/streams/nobody/segments").status_code == 404
    assert httpx.put(f"{served}/v1/streams/later", json={"groups": ["a"]}).status_code == 200
    assert httpx.get(f"{served}/v1/streams/later/segments").json() == {"segments": []}  # no event yet
    assert httpx.put(f"{served}/v1/streams/world", json={"groups": ["country"]}).status_code == 409
    for bad in ({"groups": "country"}, {"classes": 1}, {"more": 1}, {"stream": "x", "classes": 3}, []):
        assert httpx.put(f"{served}/v1/streams/new", json=bad).status_code == 400
    assert httpx.get(f"{served}/v1/streams/new").status_code == 404


def test_the_dashboard_shows_streams_of_all_shapes(served: str) -> None:
    events = [{"stream": "page", "id": f"{i}", "score": 0.5, "groups": {"country": "fr"}} for i in range(110)]
    httpx.post(f"{served}/v1/forecasts", json={"events": events}).raise_for_status()
    told = [{"stream": "page", "id": f"{i}", "outcome": i % 2} for i in range(110)]
    httpx.post(f"{served}/v1/outcomes", json={"events": told}).raise_for_status()
    httpx.post(f"{served}/v1/forecasts", json={"stream": "page K", "id": "e", "scores": [0.2, 0.3, 0.5]})
    httpx.post(f"{served}/v1/outcomes", json={"stream": "page K", "id": "e", "label": 1})
    with browser.browser() as chrome:
        open_dashboard(chrome, f"{served}/#/stream/page")
        assert len(browser.texts(chrome, "#segments tbody tr")) == 1 and "Groups: country." in text_of(
            chrome, "#stream .lead"
        )
        open_dashboard(chrome, f"{served}/#/stream/page%20K")
        assert "3 classes." in text_of(chrome, "#stream .lead") and chrome.execute_script(
            "return document.getElementById('segments-part').hidden"
        )
        assert browser.complaints(chrome) == []


def test_scores_and_groups_that_cannot_be_read(served: str) -> None:
    def refused(**fields: Any) -> str:
        answer = httpx.post(f"{served}/v1/forecasts", json={"events": [{"stream": "n", "id": "e", **fields}]})
        assert answer.status_code == 400 and answer.json()["error"]["at"] == 0
        return str(answer.json()["error"]["message"])

    assert refused() == "score is missing - at event 0"
    assert refused(score=0.5, scores=[0.5, 0.5]) == "event must have either score or scores, got both - at event 0"
    assert refused(scores="x") == (
        'scores must be a list of numbers, or an object with a number for each class or model, got "x" - at event 0'
    )
    assert refused(scores=[0.5, "x"]).startswith("scores must be a list of numbers, or an object")
    assert refused(score=0.5, groups=[1]).startswith(
        "groups must be an object with a string, a whole number, a bool or"
    )
    assert refused(score=0.5, groups={"a": [1]}).startswith("groups must be an object with a string")


# ---- out of the store ------------------------------------------------------------------------------------------------


def test_the_log_and_the_states_leave_the_store(url: str, tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    with desk(url, method="auto") as service:
        service.group([StreamSettings("named", groups=["c"], names=True)])
        for stream, fields, result in (
            ("two", {"score": 0.3}, {"outcome": 1}),
            ("pets", {"scores": {"cat": 0.25, "dog": 0.75, "cow": 0.0}}, {"label": "cat"}),
            ("named", {"score": 0.3, "groups": {"c": "fr"}}, {"outcome": 0}),
            ("hashed", {"score": 0.3, "groups": {"c": "fr"}}, {"outcome": 0}),
        ):
            service._only([ForecastEvent(stream, "e", **fields)])  # type: ignore[arg-type]
            service._only([OutcomeEvent(stream, "e", **result)])  # type: ignore[arg-type]
    assert export(url, tmp_path / "log.parquet") == 4
    rows = {row["stream"]: row for row in pq.read_table(tmp_path / "log.parquet").to_pylist()}
    assert rows["two"]["score"] == 0.3 and rows["two"]["scores"] is None and rows["two"]["groups"] is None
    assert rows["pets"]["score"] is None and rows["pets"]["outcome"] is None and rows["pets"]["label"] == "cat"
    assert (
        rows["pets"]["scores"] == [("cat", 0.25), ("cow", 0.0), ("dog", 0.75)] and len(rows["pets"]["forecasts"]) == 3
    )
    assert rows["named"]["groups"] == '{"c": "fr"}' and "fr" not in rows["hashed"]["groups"]
    assert export_bank(url, tmp_path / "states.bank") == 1  # the stream of two classes without groups


@pytest.mark.parametrize(
    ("column", "value", "sentence"),
    [
        ("stream", "a\tb", "stream must be text without control characters, got 'a\\tb'"),
        ("id", "", "id must be a text of 1 to 200 characters, got 0"),
        ("time", None, "time must be there, got nothing"),
    ],
)
def test_an_exported_log_that_was_changed_is_refused_with_its_row(
    tmp_path: Path, column: str, value: Any, sentence: str
) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    with desk(str(tmp_path / "calibeat.db"), method="auto") as service:
        for name in ("a", "b"):
            service._only([ForecastEvent("pets", name, scores={"cat": 0.25, "dog": 0.75, "cow": 0.0})])
    export(str(tmp_path / "calibeat.db"), tmp_path / "log.parquet")
    table = pq.read_table(tmp_path / "log.parquet")
    rows = table.to_pylist()
    rows[1][column] = value
    pq.write_table(pa.Table.from_pylist(rows, table.schema), tmp_path / "log.parquet")
    with Stage() as stage, pytest.raises(InvalidInput) as caught:
        stage.read(files_of(str(tmp_path / "log.parquet")), EventColumns({}), Options())
    assert str(caught.value) == f"{sentence} - at row 2 of {tmp_path / 'log.parquet'}"


def test_an_exported_log_is_imported_again(tmp_path: Path) -> None:
    """Forecasts are the same bits, but for the groups whose cells were evicted: the words of another seed."""
    first, second = (str(tmp_path / name) for name in ("first.db", "second.db"))
    with desk(first, method="auto") as service:
        service.group([StreamSettings("groups", groups=["a0", "a1"], names=True)])
        for case in CASES:
            for _ in one_by_one(service, log_of(case, np.arange(1, EVENTS + 1))):
                service.now += 60.0
    export(first, tmp_path / "log.parquet")
    settings = EngineSettings(method="auto")
    for again in (False, True):
        with Stage() as stage:
            stage.read(files_of(str(tmp_path / "log.parquet")), EventColumns({}), Options())
            found = import_events(second, stage, settings)
        assert found.forecasts == (0 if again else 6 * EVENTS)
    told = (
        "SELECT name, e.id, o.told, o.issued, outcome FROM event e JOIN op o ON o.position = e.position "
        "JOIN stream ON number = e.stream ORDER BY name, e.nth"
    )
    logs = []
    for url in (first, second):
        connection = open_connection(url)
        logs.append(connection.all(told))
        connection.close()
    assert logs[0] == logs[1] and replay_check(second).is_same and check(second) == []
