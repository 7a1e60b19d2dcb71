"""A data frame and the names of its columns: the same as the columns one by one."""

from __future__ import annotations

import numpy as np
import pytest
from streams import drifting

import calibeat
from calibeat import InvalidInput, MissingExtra

N = 300
SCORES, OUTCOMES = drifting(N)
COLUMNS = {
    "p": SCORES,
    "y": OUTCOMES.astype(bool),
    "where": np.array(["a", "b", "c"] * (N // 3)),
    "at": np.datetime64("2024-03-01T00:00:00", "us") + np.arange(N) * np.timedelta64(1, "h"),
    "known": np.datetime64("2024-03-01T05:00:00", "us") + np.arange(N) * np.timedelta64(1, "h"),
    "theirs": np.sqrt(SCORES),
}
PLAIN = calibeat.backtest(
    SCORES,
    OUTCOMES,
    COLUMNS["where"],
    COLUMNS["at"],
    COLUMNS["known"],
    rivals={"theirs": COLUMNS["theirs"]},
    methods="ops",
).payload["table"]


def frame_of(library):
    if library == "dict":
        return COLUMNS
    if library == "lazy":
        return pytest.importorskip("polars").LazyFrame(COLUMNS)
    module = pytest.importorskip(library)
    return module.table(COLUMNS) if library == "pyarrow" else module.DataFrame(COLUMNS)


@pytest.mark.parametrize("library", ["dict", "pandas", "polars", "lazy", "pyarrow"])
def test_a_frame_is_its_columns(library):
    names = {"score": "p", "outcome": "y", "key": "where", "time": "at", "outcome_time": "known", "rivals": "theirs"}
    assert calibeat.backtest(frame_of(library), **names, methods="ops").payload["table"] == PLAIN


def test_two_models_of_a_frame():
    found = calibeat.backtest(COLUMNS, score=["p", "theirs"], outcome="y", methods="ops")
    assert found.table["method"].tolist() == ["raw", "ops", "theirs", "OPS of theirs"]
    plain = calibeat.backtest(SCORES, OUTCOMES, score={"theirs": COLUMNS["theirs"]}, methods="ops")
    assert found.payload["table"] == plain.payload["table"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(({"p": [0.5]},), r"score must name a column of the data frame, got None"), (({"p": [0.5]},), r"score must name")],
)
def test_a_column_must_be_named(arguments, said):
    with pytest.raises(InvalidInput, match=said):
        calibeat.backtest(*arguments)


def test_names_and_columns_are_not_mixed(monkeypatch):
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"p": SCORES, "y": OUTCOMES})
    for options, said in (
        ({"score": "p"}, "outcome must name a column of the data frame, got None"),
        ({"score": "p", "outcome": "yy"}, "outcome column 'yy' is not in the frame"),
        ({"score": "p", "outcome": "y", "keys": SCORES}, "key must name a column of the data frame, got ndarray"),
        ({"score": "p", "outcome": "y", "rivals": {"q": SCORES}}, "rivals must be names of columns"),
    ):
        with pytest.raises(InvalidInput, match=said):
            calibeat.backtest(frame, **options)
    with pytest.raises(InvalidInput, match="outcome and outcomes are the same, got both"):
        calibeat.backtest(SCORES, OUTCOMES, outcome="y")
    with pytest.raises(InvalidInput, match="rivals must map names to columns where no data frame is given, got list"):
        calibeat.backtest(SCORES, OUTCOMES, rivals=["q"])
    with pytest.raises(InvalidInput, match="scores must be a column or a data frame, got Odd"):
        calibeat.backtest(type("Odd", (), {"columns": ()})(), score="p", outcome="y")
    monkeypatch.setitem(__import__("sys").modules, "narwhals", None)
    with pytest.raises(MissingExtra, match=r"data frames need narwhals: pip install 'calibeat\[frames\]'"):
        calibeat.backtest(frame, score="p", outcome="y")
