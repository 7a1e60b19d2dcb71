"""What scores look like that are not probabilities: percent, logits, numbers with a comma."""

from __future__ import annotations

import re

import numpy as np

from calibeat._util.types import Vector

FEW, SHARE = 20, 0.05  # so many rows, and such a share of them, are no accident


def of_numbers(values: Vector) -> str:
    """``"percent"``, ``"logit"`` or nothing, from all the scores that are numbers.

    >>> of_numbers(np.array([0.2, 63.0])), of_numbers(np.array([-2.0, 1.5])), of_numbers(np.array([0.2, 2000.0]))
    ('percent', 'logit', '')
    """
    values = values[np.isfinite(values)]
    if not len(values) or np.mean((values < 0.0) | (values > 1.0)) < 0.01:
        return ""
    low, high = float(values.min()), float(values.max())
    return "percent" if low >= 0.0 and 1.01 < high <= 100.0 else "logit" if low < -0.01 and high < 50.0 else ""


def of_text(said: str) -> str:
    """The same from how an unreadable score is written.

    >>> of_text("'63.7%'"), of_text("'0,25'"), of_text("'high'")
    ('percent', 'comma', '')
    """
    text = said.strip("'\" ")
    if re.fullmatch(r"[-+]?[\d.,]+\s*%", text):
        return "percent"
    return "comma" if re.fullmatch(r"[-+]?\d*,\d+", text) else ""


def sentence(kind: str, how: str) -> str:
    """The end of an error message; `how` is how a person sets an option here."""
    if kind == "comma":
        return "; the scores have decimal commas: write them with a point"
    said = {"percent": "percent", "logit": "logits"}[kind]
    option = how.format(option=f"--score-kind {kind}", argument=f"score_kind={kind!r}")
    return f"; the scores look like {said}: {option}"


def no_accident(bad: int, rows: int) -> bool:
    """Whether so many bad rows are another kind of score, and not to be skipped."""
    return 2 * bad > rows or (bad >= FEW and bad >= SHARE * rows)
