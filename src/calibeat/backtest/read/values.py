"""One value of a column: what number it is, what outcome it means, what a key is called."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

WORDS = {"false": 0.0, "true": 1.0, "no": 0.0, "yes": 1.0, "f": 0.0, "t": 1.0, "n": 0.0, "y": 1.0}


def name_of(value: Any) -> str:
    """A key, an id or an outcome as it reads: 1, "1" and 1.0 are one.

    >>> name_of(1.0), name_of("1"), name_of(np.int8(1)), name_of(True)
    ('1', '1', '1', 'True')
    """
    return str(int(value)) if isinstance(value, (float, np.floating)) and float(value).is_integer() else str(value)


def number_of(value: Any, *, decimal: str = ".", percent: bool = False) -> float | None:
    """A number, also as text; None for anything else. With `percent` text may end in its sign.

    >>> number_of("0,25", decimal=","), number_of("63.7%", percent=True), number_of("high"), number_of(True)
    (0.25, 63.7, None, None)
    """
    if isinstance(value, (bool, np.bool_)):
        return None
    if isinstance(value, str):
        value = value.strip().removesuffix("%") if percent else value
        value = value.replace(decimal, ".") if decimal != "." else value
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return None if math.isnan(number) else number


def outcome_of(value: Any, positive: Any = None, decimal: str = ".") -> float | None:
    """A number, a boolean, or a word such as yes and no; None for anything else.

    With `positive` that value is 1, and every other is 0.

    >>> outcome_of("yes"), outcome_of("-1"), outcome_of("fraud"), outcome_of("fraud", "fraud"), outcome_of(2, "1")
    (1.0, -1.0, None, 1.0, 0.0)
    """
    if positive is not None:
        return float(same(value, positive))
    if isinstance(value, str):
        word = value.strip().lower()
        return WORDS[word] if word in WORDS else number_of(word, decimal=decimal)
    return float(value) if isinstance(value, (bool, np.bool_)) else number_of(value)


def same(value: Any, positive: Any) -> bool:
    """Whether a value is the one that was named; booleans in any spelling.

    >>> same(True, "true"), same("Fraud ", "Fraud"), same("fraud", "Fraud"), same(1.0, "1")
    (True, True, False, True)
    """
    one, other = name_of(value).strip(), name_of(positive).strip()
    if isinstance(value, (bool, np.bool_)) or isinstance(positive, (bool, np.bool_)):
        return one.lower() == other.lower()
    return one == other
