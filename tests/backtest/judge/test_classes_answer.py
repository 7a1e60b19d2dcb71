"""The code that a report of many classes gives runs as it stands."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from class_logs import NAMES, stream

import calibeat
from calibeat.backtest.judge.deployment import HowReplayed, deployment_of_classes
from calibeat.backtest.replay.contenders import ABOUT_CLASSES, BASE_RATE, class_contender, with_key_variants


@pytest.mark.parametrize("logits", [False, True])
@pytest.mark.parametrize("names", [list(NAMES), ["0", "1", "2"]])
@pytest.mark.parametrize("method", [name for name in ABOUT_CLASSES if name != BASE_RATE])
def test_the_code_runs(method: str, names: list[str], logits: bool) -> None:
    P, y = stream(60)
    given = np.log(P) if logits else P
    labels: list[Any] = y.tolist() if names[0] == "0" else [names[k] for k in y]
    known = {"past_scores": given, "past_labels": labels, "scores": given[0], "label": labels[0], "T": 2.0}
    code, note = deployment_of_classes(
        class_contender(method, 3), names, HowReplayed(score_kind="logit" if logits else "probability")
    )
    space: dict[str, Any] = dict(known, scores=P[0]) if method in ("fts", "swts") else dict(known)
    exec(code, space)  # noqa: S102 - it is what people copy
    if method in ("ots", "multi"):
        assert note == "" and space["cal"].outcomes == 61 and space["cal"].method == method
    elif method == "raw":
        assert "go on with the raw scores" in note and space["cal"].outcomes == 1
    else:
        assert space["forecast"].sum() == pytest.approx(1.0) and "no class" in note


def test_many_classes_are_a_number() -> None:
    names = [f"class {k}" for k in range(30)]
    code, _ = deployment_of_classes(class_contender("multi", 30), names, HowReplayed())
    assert "MultiCalibrator(30)" in code


def test_the_code_for_keys_runs() -> None:
    P, y = stream(60)
    contenders, variants = with_key_variants([class_contender("multi", 3)])
    multi, without, pooled = contenders
    code, note = deployment_of_classes(multi, NAMES, HowReplayed(keyed=True))
    labels = [NAMES[k] for k in y]
    space: dict[str, Any] = {"past_keys": ["a", "b"] * 30, "past_scores": P, "past_labels": labels}
    space |= {"key": "a", "scores": P[0], "label": labels[0]}
    exec(code, space)  # noqa: S102 - as above
    assert note == "" and space["bank"].table["outcomes"].tolist() == [31, 30] and variants is not None
    code, note = deployment_of_classes(without, NAMES, HowReplayed(keyed=True))
    assert "MultiCalibrator(['cat', 'dog', 'bird'])" in code and "keys are not looked at" in note
    code, _ = deployment_of_classes(pooled, NAMES, HowReplayed(keyed=True))
    assert "MultiBank(['cat', 'dog', 'bird'], prior=\"pooled\")" in code


def test_the_example_is_about_the_top_class() -> None:
    P, y = stream(3000)
    told = calibeat.backtest(P, y).payload["answer"]
    raw, chosen = told["happened"]
    assert raw["forecast"] - raw["outcome"] > 0.05 > abs(chosen["forecast"] - chosen["outcome"])
    assert told["service"] is None and told["library"][0] == "from calibeat import MultiCalibrator"
