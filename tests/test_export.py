"""Exports run for real: Python, SQLite, DuckDB, JSON and onnxruntime say what the calibrator says."""

from __future__ import annotations

import json
import math
import sqlite3
import sys
from functools import cache
from typing import Any

import duckdb
import numpy as np
import onnxruntime
import pytest
from streams import variants

from calibeat import (
    AIOLI,
    AUTO,
    BM,
    HOPS,
    OBS,
    OPS,
    TOPS,
    Calibrator,
    InvalidInput,
    Method,
    MissingExtra,
    Platt,
    Temperature,
    Tracking,
)
from calibeat.export import Export

METHODS = {
    **{name: m for name, m in variants().items() if not any(part.no_formula for part in m.parts)},
    "a thousand bins": Method(Platt(), None, Tracking(bins=1000)),
    "a slope without end": Method(Platt(start=(5000.0, 0.0)), None),
    "the same, tracked": Method(Platt(start=(-5000.0, 3.0)), None, Tracking()),
}


def trained(method: Method, events: int) -> Calibrator:
    rng = np.random.default_rng(events)
    cal = Calibrator(method)
    if events:
        scores = rng.random(events)
        scores[::17], scores[::19] = 0.0, 1.0
        cal.run(scores, rng.random(events) < 0.1 + 0.8 * scores**2)
    return cal


@cache
def hard_scores() -> tuple[float, ...]:
    """The ends, numbers near them, the edges of bins and their neighbours, and others."""
    edges = [k / m for m in (3, 5, 7, 10, 20) for k in range(m + 1)]
    beside = [float(np.nextafter(edge, to)) for edge in edges for to in (-1.0, 2.0)]
    rng = np.random.default_rng(0)
    ends = [5e-324, 1e-300, 1e-16, 1e-5, 1.1e-5, 1.0 - 1e-5, 1.0 - 1e-16]
    return tuple(sorted({*ends, *edges, *(b for b in beside if 0.0 <= b <= 1.0), *rng.random(50).tolist()}))


def by_python(exported: Export, scores: list[float]) -> list[float]:
    space: dict[str, Any] = {}
    exec(exported.python, space)  # noqa: S102 - that it runs is what is tested
    assert set(space) == {"__builtins__", "math", "calibrate"}
    return [space["calibrate"](score) for score in scores]


def by_json(exported: Export, scores: list[float]) -> list[float]:
    data = json.loads(exported.json)
    assert (data["format"], data["version"], data["domain"]) == ("calibeat/map", 1, [0, 1])
    answers = []
    for score in scores:
        known = {"score": score}
        for name, expression in data["steps"]:
            known[name] = value_of(expression, known)
        answers.append(known["forecast"])
    return answers


def value_of(expression: Any, known: dict[str, float]) -> float:
    """The whole of an evaluator, for whoever wants to write one elsewhere."""
    if isinstance(expression, str):
        return known[expression]
    if not isinstance(expression, list):
        return float(expression)
    operator, *parts = expression
    if operator == "lookup":
        return parts[2][sum(edge <= known[parts[0]] for edge in parts[1])]
    if operator == "interpolate":
        return float(np.interp(known[parts[0]], range(len(parts[1])), parts[1]))
    if operator.startswith("if"):
        left, right = value_of(parts[0], known), value_of(parts[1], known)
        yes = {"<": left < right, "<=": left <= right, ">=": left >= right}[operator[2:]]
        return value_of(parts[2 if yes else 3], known)
    values = [value_of(part, known) for part in parts]
    match operator:
        case "+":
            return sum(values)
        case "*":
            return math.prod(values)
        case "-":
            return values[0] - values[1]
        case "/":
            return values[0] / values[1]
        case "ln":
            return math.log(values[0])
        case "exp":
            return math.exp(values[0])
        case "clamp":
            return min(max(values[0], values[1]), values[2])
    raise AssertionError(operator)


def by_sqlite(exported: Export, scores: list[float | None]) -> list[float | None]:
    database = sqlite3.connect(":memory:")
    for name, function in (("ln", math.log), ("exp", math.exp)):
        try:
            database.execute(f"SELECT {name}(1.0)")
        except sqlite3.OperationalError:  # built without its mathematical functions
            database.create_function(name, 1, function)
    database.execute("CREATE TABLE log (id INTEGER, score REAL)")
    database.executemany("INSERT INTO log VALUES (?, ?)", enumerate(scores))
    answer = [row[0] for row in database.execute(f"SELECT {exported.sql} FROM log ORDER BY id")]  # noqa: S608 - our text
    database.close()
    return answer


def by_duckdb(exported: Export, scores: list[float | None]) -> list[float | None]:
    with duckdb.connect() as database:
        database.execute(
            "CREATE TABLE log AS SELECT unnest(?) AS id, unnest(?)::DOUBLE AS score", [list(range(len(scores))), scores]
        )
        answer = database.execute(f"SELECT {exported.sql} FROM log ORDER BY id")  # noqa: S608 - our text
        return [row[0] for row in answer.fetchall()]


@pytest.mark.parametrize("run", [by_python, by_json, by_sqlite, by_duckdb])
@pytest.mark.parametrize("name", METHODS)
def test_every_text_says_what_the_calibrator_says(name: str, run: Any) -> None:
    for events in (0, 7, 150):
        cal = trained(METHODS[name], events)
        exported = cal.export()
        edges = exported.numbers.get("edges", [])
        scores = [*hard_scores(), *edges, *(float(np.nextafter(edge, 0.0)) for edge in edges)]
        said, want = np.array(run(exported, scores), dtype=float), cal.predict_many(scores)
        assert np.abs(said - want).max() <= 1e-12


def test_a_frozen_ops_is_two_numbers() -> None:
    cal = trained(OPS, 250)
    exported = cal.export()
    assert exported.numbers == {**cal.params, "clip": 1e-5}
    a, b = cal.params.values()
    for p in (0.001, 0.3, 0.9):
        assert abs(1 / (1 + math.exp(-(a * math.log(p / (1 - p)) + b))) - cal.predict_many([p])[0]) < 1e-12
    assert exported.sql.count("ln(") == 1 and "SELECT" not in exported.sql
    assert len(exported.python.splitlines()) == 10


def test_the_numbers_are_plain() -> None:
    for method in METHODS.values():
        numbers = trained(method, 60).export().numbers
        assert json.loads(json.dumps(numbers)) == numbers
    assert trained(BM, 5).export().numbers == {}
    tops = trained(TOPS, 250).export().numbers
    assert len(tops["bins"]) == 9 and len(tops["forecasts"]) == 10
    assert sum(trained(AUTO, 250).export().numbers["weight"]) == pytest.approx(1.0)


def test_an_export_does_not_move_with_its_stream() -> None:
    cal = trained(AUTO, 50)
    exported = cal.export()
    before = exported.json
    cal.run([0.3] * 50, [1] * 50)
    assert exported.json == before and cal.export().json != before


def test_scores_that_are_none() -> None:
    for method in (BM, OPS, TOPS, AUTO):
        exported = trained(method, 30).export()
        for run in (by_sqlite, by_duckdb):
            assert run(exported, [None, -0.1, 1.1, 0.5])[:3] == [None, None, None]
        space: dict[str, Any] = {}
        exec(exported.python, space)  # noqa: S102 - that it runs is what is tested
        for bad in (-0.1, 1.1, math.nan):
            with pytest.raises(ValueError, match=r"score must be in \[0, 1\]"):
                space["calibrate"](bad)


KINDS = {
    "TEXT": ["0.1", "1.0", "1e-3", ".5", " 0.9 ", "0.123456789012345678", "1"],
    "VARCHAR(20)": ["0.1", "1.0", "1e-3", ".5", "0.9", "0"],
    "INTEGER": [0, 1],
    "DECIMAL(9, 4)": [0.1, 0.5, 0.25, 1, 0],
    "NUMERIC(5, 3)": [0.125, 0.999],
    "REAL": [0.5, 0.25, 1.0],
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("connect", [lambda: sqlite3.connect(":memory:"), duckdb.connect], ids=["SQLite", "DuckDB"])
def test_columns_of_other_kinds(connect: Any, kind: str) -> None:
    for method in (BM, OPS, TOPS, AUTO, variants()["whb"]):
        cal = trained(method, 150)
        database = connect()
        database.execute(f"CREATE TABLE log (id INTEGER, score {kind})")
        database.executemany("INSERT INTO log VALUES (?, ?)", [list(row) for row in enumerate(KINDS[kind])])
        database.execute("INSERT INTO log VALUES (?, ?)", [99, None])
        answer = database.execute(f"SELECT {cal.export().sql} FROM log ORDER BY id").fetchall()  # noqa: S608 - our text
        *said, nothing = [row[0] for row in answer]
        want = cal.predict_many([float(value) for value in KINDS[kind]])
        assert nothing is None and np.abs(np.array(said) - want).max() <= 1e-12
        database.close()


def test_text_that_is_no_number() -> None:
    texts = ["abc", "0.5abc", "", " ", "1.5", "-0.1", "nan", "0,5"]
    for method in (BM, OPS, AUTO):
        exported = trained(method, 30).export()
        for kind in ("TEXT", ""):  # SQLite also has columns of no kind at all
            with sqlite3.connect(":memory:") as database:
                database.execute(f"CREATE TABLE log (score {kind})")
                database.executemany("INSERT INTO log VALUES (?)", [(text,) for text in texts])
                answer = database.execute(f"SELECT {exported.sql} FROM log").fetchall()  # noqa: S608 - our text
            assert answer == [(None,)] * len(texts)
            database.close()
        with duckdb.connect() as database, pytest.raises(duckdb.ConversionException, match="abc"):  # it says so itself
            database.execute(f"SELECT {exported.sql} FROM (SELECT 'abc' AS score)").fetchall()  # noqa: S608 - our text


@pytest.mark.parametrize(
    "method",
    [
        BM,
        OPS,
        OBS,
        Method(Temperature(), None),
        Method(Platt(start=(0.05, 2.0)), None),
        Method(Platt(start=(5000.0, 0.0)), None),
    ],
)
def test_onnx(method: Method) -> None:
    cal = trained(method, 250)
    session = onnxruntime.InferenceSession(cal.export().onnx())
    scores = np.array(hard_scores())
    (said,) = session.run(None, {"score": scores})
    assert np.abs(said - cal.predict_many(scores)).max() <= 1e-6
    (nothing,) = session.run(None, {"score": scores[:0]})
    assert len(nothing) == 0
    (none,) = session.run(None, {"score": np.array([-0.1, 1.1, math.nan, math.inf, -math.inf])})
    assert np.isnan(none).all()


def test_what_cannot_be_exported() -> None:
    for method, said in (
        (HOPS, "got HOPS, whose Hedging draws its forecast at random"),
        (Method(Platt(), AIOLI()), "whose AIOLI solves an equation for every score"),
    ):
        with pytest.raises(InvalidInput, match=said):
            Calibrator(method).export()
    for method in (TOPS, AUTO):
        with pytest.raises(InvalidInput, match="onnx needs a method that only scales"):
            Calibrator(method).export().onnx()
    with pytest.raises(InvalidInput, match=r"onnx needs a method that only scales .* got one with edges, means"):
        trained(variants()["whb"], 100).export().onnx()


def test_without_onnx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingExtra, match=r"pip install 'calibeat\[onnx\]'"):
        Calibrator(OPS).export().onnx()
