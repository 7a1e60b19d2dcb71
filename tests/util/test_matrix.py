"""Data frames of K columns in, and the same kind out."""

from __future__ import annotations

import sys
from typing import Any

import multi_streams
import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from calibeat import InvalidInput, MissingExtra, MultiCalibrator
from calibeat._util.columns import like_matrix, to_matrix

NAMES = ["cat", "dog", "bird"]


def frames(scores: np.ndarray) -> dict[str, Any]:
    table = pa.table(dict(zip(NAMES, scores.T.copy(), strict=True)))
    return {
        "pandas": pd.DataFrame(scores, columns=NAMES, index=np.arange(len(scores)) * 2),
        "polars": pl.DataFrame(scores, schema=NAMES),
        "arrow": table,
        "narwhals": nw.from_native(table, eager_only=True),
    }


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow", "narwhals"])
def test_a_frame_gives_a_frame_of_its_kind(kind: str) -> None:
    scores, labels = multi_streams.random(40, 3)
    frame = frames(scores)[kind]
    P = MultiCalibrator(3).run(scores, labels)
    out = MultiCalibrator(3).run(frame, labels)
    assert type(out) is type(frame)
    np.testing.assert_array_equal(to_matrix(out), P)
    assert list(nw.from_native(out, eager_only=True, pass_through=True).columns) == NAMES
    cal = MultiCalibrator(NAMES)
    words = np.array(NAMES)[labels]
    given = {"pandas": pd.Series(words), "polars": pl.Series(words), "arrow": pa.array(words)}.get(kind, words)
    np.testing.assert_array_equal(to_matrix(cal.run(frame, given)), P)
    assert type(cal.predict_many(frame)) is type(frame)
    if kind == "pandas":
        assert out.index.equals(frame.index)


def test_one_event_may_be_a_column() -> None:
    cal = MultiCalibrator(3)
    want = cal.peek([0.2, 0.3, 0.5])
    for column in (pd.Series([0.2, 0.3, 0.5]), pl.Series([0.2, 0.3, 0.5])):
        np.testing.assert_array_equal(cal.peek(column), want)


def test_bad_cells_of_a_frame_are_named() -> None:
    frame = frames(np.full((4, 3), 1 / 3))["pandas"]
    frame.iloc[2, 1] = np.nan
    with pytest.raises(InvalidInput, match=r"got nan - at row 2, column 1 \('dog'\)"):
        MultiCalibrator(NAMES).run(frame, ["cat"] * 4)


def test_what_is_no_frame_stays_as_it_is() -> None:
    P = np.eye(3)
    assert to_matrix(P) is P and like_matrix(P, P) is P and to_matrix("abc") == "abc"
    column = pd.Series([1.0])
    assert to_matrix(column) is column


def test_without_narwhals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "narwhals", None)
    with pytest.raises(MissingExtra, match=r"data frames need narwhals: pip install 'calibeat\[frames\]'"):
        to_matrix(pd.DataFrame({"a": [1.0]}))
