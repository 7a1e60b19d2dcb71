"""Columns, names of classes, and what a label means."""

from __future__ import annotations

import numpy as np
import pytest

from calibeat import InvalidInput
from calibeat.backtest.read.labels import ClassesOfLog, class_names, plain, score_columns
from calibeat.backtest.read.rows import Codes

HEADER = ["id", "p_cat", "p_dog", "p_bird", "y"]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("p_cat,p_dog", ["p_cat", "p_dog"]),
        ("p_*", ["p_cat", "p_dog", "p_bird"]),
        (" p_dog , p_c* ", ["p_dog", "p_cat"]),
        ("*[tgd]", ["p_cat", "p_dog", "p_bird"]),
    ],
)
def test_columns_by_name_and_by_pattern(asked, found):
    assert score_columns(asked, HEADER, ["id", "y"], "log.csv") == found


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("p_cta", "scores must name columns of log.csv, got 'p_cta', which is none - did you mean 'p_cat'?"),
        ("q_*", "got 'q_*', which is none"),
        ("p_cat,p_c*", "scores must name each column once, got 'p_cat' twice"),
        ("p_cat,y", "scores must not be the column of something else, got 'y'"),
    ],
)
def test_columns_that_cannot_be(asked, message):
    with pytest.raises(InvalidInput) as error:
        score_columns(asked, HEADER, ["y"], "log.csv")
    assert message in str(error.value)
    with pytest.raises(InvalidInput, match="score column must be there once, got 2 named 'p_cat'"):
        score_columns("p_cat", ["p_cat", "p_cat"], [], "log.csv")


@pytest.mark.parametrize(
    ("columns", "likeliest"),
    [
        (["p_cat", "p_dog"], ["cat", "dog"]),
        (["p_cat", "p_car"], ["cat", "car"]),
        (["cat_score", "dog_score"], ["cat", "dog"]),
        (["p.cat.v2", "p.dog.v2"], ["cat", "dog"]),
        (["score1", "score2"], ["score1", "score2"]),
        (["cat", "dog"], ["cat", "dog"]),
        (["p_", "p_dog"], ["p_", "p_dog"]),
        (["0", "1", "2"], ["0", "1", "2"]),
    ],
)
def test_names_of_classes(columns, likeliest):
    assert class_names(columns)[0] == likeliest
    assert columns in class_names(columns)


@pytest.mark.parametrize(
    ("columns", "labels", "names", "found"),
    [
        (["p_cat", "p_dog"], ["dog", "cat"], ["cat", "dog"], [1, 0]),
        (["p_cat", "p_dog"], ["p_dog", "p_cat"], ["p_cat", "p_dog"], [1, 0]),
        (["score1", "score2"], [2, 1], ["1", "2"], [1, 0]),
        (["p_cat", "p_dog"], [1, 0, 1.0, "0"], ["cat", "dog"], [1, 0, 1, 0]),
        (["p_1", "p_0"], [1, 0], ["1", "0"], [0, 1]),
        (["p_cat", "p_dog"], [True, False], ["cat", "dog"], [1, 0]),
        (["p_cat", "p_dog"], ["dog", "fish"], ["cat", "dog"], [1, -1]),
    ],
)
def test_labels_are_names_or_numbers(columns, labels, names, found):
    known = ClassesOfLog(columns=columns)
    known.begin(len(columns))
    told = known.labels(Codes(np.arange(len(labels)), labels))
    assert known.names == names and known.columns_of(labels).tolist() == found
    assert np.nan_to_num(told.values, nan=-1.0).tolist() == found


def test_words_for_messages():
    known = ClassesOfLog([f"class {k}" for k in range(9)])
    known.begin(9)
    assert known.words().startswith("one of the 9 classes 'class 0', ") and known.words().endswith("'class 7', ...")
    assert known.hint("clas 3") == " - did you mean 'class 3'?"
    known.settle([1, 2], np.array([5, 5]))
    assert known.words().startswith("a column number from 0 to 8 ('class 0'")
    assert plain(np.float64(2.0)) == "2" and plain(2.5) == "2.5"
