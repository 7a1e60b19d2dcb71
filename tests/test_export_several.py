"""Exports of several models run for real: Python, SQLite, DuckDB and JSON say what the calibrator says."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Callable
from functools import cache
from typing import Any

import duckdb
import numpy as np
import pytest
from test_export import hard_scores, value_of

from calibeat import Calibrator, InvalidInput
from calibeat._util.types import Vector
from calibeat.export import SeveralExport

NAMES = (
    ("champion", "challenger"),
    ("model 1", "model 2"),
    ("f", "score_0", "forecast"),  # names that the formulas have too
    ('a "good" one', "order", "{it's}", "\\"),
)
LATE = {"at once": 1, "late": 60}


@cache
def trained(names: tuple[str, ...], events: int, late: int, missing: float = 0.0) -> Calibrator:
    """A calibrator after some events; scores at 0 and 1 among them."""
    rng = np.random.default_rng([events, late, len(names)])
    cal = Calibrator(models=list(names))
    if events:
        truth = rng.random(events)
        S = np.clip(truth[:, None] + rng.normal(0.0, 0.2, (events, len(names))), 0.0, 1.0)
        S[rng.random(S.shape) < missing] = math.nan
        S[np.isnan(S).all(axis=1)] = 0.5
        cal.run(S, rng.random(events) < truth, due=np.arange(events) + late)
    return cal


def asked(k: int) -> Vector:
    """Complete scores: the ends, edges and neighbours of one model against those of another, and others."""
    rng = np.random.default_rng(k)
    hard = np.array(hard_scores())
    pairs = np.stack([rng.permutation(hard) for _ in range(k)], axis=1)
    ends = np.array(np.meshgrid(*[[0.0, 1.0]] * k)).reshape(k, -1).T
    return np.vstack([ends, pairs, rng.random((50, k))])


def by_python(exported: SeveralExport, S: Vector) -> list[float]:
    calibrate = function_of(exported)
    said = [calibrate(row) for row in S.tolist()]
    assert said == [calibrate(dict(zip(exported.models, row, strict=True))) for row in S.tolist()]
    return said


def function_of(exported: SeveralExport) -> Callable[[Any], float]:
    space: dict[str, Any] = {}
    exec(exported.python, space)  # noqa: S102 - that it runs is what is tested
    return space["calibrate"]


def by_json(exported: SeveralExport, S: Vector) -> list[float]:
    data = json.loads(exported.json)
    assert (data["format"], data["version"], data["domain"]) == ("calibeat/several-map", 1, [0, 1])
    assert data["inputs"] == [part["model"] for part in data["parts"]] == list(exported.models)
    answers = []
    for row in S.tolist():
        known: dict[str, float] = {}
        for j, (score, part) in enumerate(zip(row, data["parts"], strict=True)):
            known |= {f"score_{j}": score, f"forecast_{j}": value_at_the_end(part["steps"], {"score": score})}
        answers.append(value_at_the_end(data["steps"], known))
    return answers


def value_at_the_end(steps: list[Any], known: dict[str, float]) -> float:
    known = dict(known)
    for name, expression in steps:
        known[name] = value_of(expression, known)
    return known["forecast"]


def by_sqlite(exported: SeveralExport, S: Any, kind: str = "DOUBLE") -> list[float | None]:
    with sqlite3.connect(":memory:") as database:
        answers = answers_of(database, exported, S, kind)
    database.close()
    return answers


def by_duckdb(exported: SeveralExport, S: Any, kind: str = "DOUBLE") -> list[float | None]:
    with duckdb.connect() as database:
        return answers_of(database, exported, S, kind)


def answers_of(database: Any, exported: SeveralExport, S: Any, kind: str) -> list[float | None]:
    columns = ", ".join('"' + name.replace('"', '""') + f'" {kind}' for name in exported.models)
    database.execute(f"CREATE TABLE log (place INTEGER, {columns})")
    marks = ", ".join("?" * (1 + len(exported.models)))
    rows = [[i, *row] for i, row in enumerate(S.tolist() if isinstance(S, np.ndarray) else S)]
    database.executemany(f"INSERT INTO log VALUES ({marks})", rows)  # noqa: S608 - our text
    answer = database.execute(f"SELECT {exported.sql} FROM log ORDER BY place").fetchall()  # noqa: S608 - our text
    return [row[0] for row in answer]


@pytest.mark.parametrize("run", [by_python, by_json, by_sqlite, by_duckdb])
@pytest.mark.parametrize("late", LATE)
@pytest.mark.parametrize("names", NAMES)
def test_every_text_says_what_the_calibrator_says(names: tuple[str, ...], late: str, run: Any) -> None:
    for events in (0, 7, 300):
        cal, S = trained(names, events, LATE[late]), asked(len(names))
        said, want = np.array(run(cal.export(), S), dtype=float), cal.predict_many(S)
        assert np.abs(said - want).max() <= 1e-12


def test_a_calibrator_that_has_missed_scores_has_a_map_of_complete_ones() -> None:
    cal, S = trained(NAMES[0], 400, 1, missing=0.4), asked(2)
    said = np.array(by_python(cal.export(), S))
    assert np.abs(said - cal.predict_many(S)).max() <= 1e-12


def test_sixteen_models() -> None:
    names = tuple(f"model {j + 1}" for j in range(16))
    cal, S = trained(names, 200, 1), np.random.default_rng(0).random((20, 16))
    for run in (by_python, by_sqlite):
        assert np.abs(np.array(run(cal.export(), S), dtype=float) - cal.predict_many(S)).max() <= 1e-12


def test_the_numbers_are_plain_and_named() -> None:
    exported = trained(NAMES[0], 300, 1).export()
    numbers = exported.numbers
    assert json.loads(json.dumps(numbers)) == numbers
    assert list(numbers["scores"]) == ["champion", "challenger"]
    assert sum(numbers["together"]["weight"]) == pytest.approx(1.0)
    assert [len(numbers["together"][lane]) for lane in ("still", "fast")] == [5, 5]


def test_an_export_does_not_move_with_its_stream() -> None:
    cal = Calibrator(models=2)
    exported = cal.export()
    before = exported.json
    cal.run([[0.3, 0.4]] * 50, [1] * 50)
    assert exported.json == before and cal.export().json != before


def test_a_missing_score_is_refused() -> None:
    exported = trained(NAMES[0], 100, 1).export()
    calibrate = function_of(exported)
    for scores in ([0.5, None], [0.5, math.nan], {"champion": 0.5}, {"champion": 0.5, "challenger": None}):
        with pytest.raises(ValueError, match="needs all scores, 'challenger' is missing"):
            calibrate(scores)
    for scores, said in (
        ([0.5], "scores must be 2, got 1"),
        ([0.5, 1.1], r"score must be in \[0, 1\], got 1.1 of 'challenger'"),
        ([-0.1, 0.5], r"score must be in \[0, 1\], got -0.1 of 'champion'"),
    ):
        with pytest.raises(ValueError, match=said):
            calibrate(scores)
    rows = [[None, 0.5], [0.5, None], [0.5, 1.1], [-0.1, 0.5], [0.5, 0.5]]
    for run in (by_sqlite, by_duckdb):
        *nothing, last = run(exported, rows)
        assert nothing == [None] * 4 and last is not None


@pytest.mark.parametrize("kind", ["TEXT", "NUMERIC(5, 3)", "REAL"])
@pytest.mark.parametrize("run", [by_sqlite, by_duckdb])
def test_columns_of_other_kinds(run: Any, kind: str) -> None:
    cal = trained(NAMES[0], 300, 1)
    rows = [["0.125", "0.5"], ["1", "0.25"]] if kind == "TEXT" else [[0.125, 0.5], [1, 0.25]]
    said = np.array(run(cal.export(), rows, kind), dtype=float)
    assert np.abs(said - cal.predict_many([[0.125, 0.5], [1.0, 0.25]])).max() <= 1e-12


def test_text_that_is_no_number() -> None:
    assert by_sqlite(trained(NAMES[0], 100, 1).export(), [["abc", "0.5"], ["0.5", ""], ["0.5", "0.5x"]], "TEXT") == [
        None,
        None,
        None,
    ]


def test_there_is_no_onnx() -> None:
    with pytest.raises(InvalidInput, match="onnx needs a method that only scales, got several models"):
        trained(NAMES[0], 100, 1).export().onnx()
