"""The code that a report of many classes gives runs as it stands."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from class_logs import NAMES, stream

import calibeat
from calibeat.backtest.judge.classes import class_deployment
from calibeat.backtest.replay.manyclass import CLASS_METHODS


@pytest.mark.parametrize("logits", [False, True])
@pytest.mark.parametrize("names", [list(NAMES), ["0", "1", "2"]])
@pytest.mark.parametrize("method", CLASS_METHODS)
def test_the_code_runs(method: str, names: list[str], logits: bool) -> None:
    P, y = stream(60)
    given = np.log(P) if logits else P
    labels: list[Any] = y.tolist() if names[0] == "0" else [names[k] for k in y]
    known = {"past_scores": given, "past_labels": labels, "scores": given[0], "label": labels[0], "T": 2.0}
    code, note = class_deployment(method, names, logits=logits)
    space: dict[str, Any] = dict(known, scores=P[0]) if method in ("fts", "swts") else dict(known)
    exec(code, space)  # noqa: S102 - it is what people copy
    if method in ("ots", "multi"):
        assert note == "" and space["cal"].outcomes == 61 and space["cal"].method == method
    elif method == "raw":
        assert "go on with the raw scores" in note and space["cal"].outcomes == 1
    else:
        assert space["forecast"].sum() == pytest.approx(1.0) and "no class" in note


def test_many_classes_are_a_number() -> None:
    assert "MultiCalibrator(30)" in class_deployment("multi", [f"class {k}" for k in range(30)], logits=False)[0]


def test_the_example_is_about_the_top_class() -> None:
    P, y = stream(3000)
    told = calibeat.backtest(P, y).payload["answer"]
    raw, chosen = told["happened"]
    assert raw["forecast"] - raw["outcome"] > 0.05 > abs(chosen["forecast"] - chosen["outcome"])
    assert told["service"] is None and told["library"][0] == "from calibeat import MultiCalibrator"
