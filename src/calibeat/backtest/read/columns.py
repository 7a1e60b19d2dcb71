"""Which column holds what: by the name that was asked for, or by a guess that is said aloud."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from calibeat.errors import InvalidInput
from calibeat.report.schema import Column

SCORE_NAMES = (
    "score", "probability", "prob", "proba", "p", "y_score", "y_prob", "y_proba", "predicted_probability", "prediction",
    "predicted", "pred", "p_hat", "phat", "y_pred", "yhat", "forecast", "confidence", "model_score",
)  # fmt: skip
OUTCOME_NAMES = (
    "outcome", "label", "y", "y_true", "target", "actual", "result", "truth", "class", "clicked", "click",
    "converted", "conversion", "default", "fraud", "churned", "churn",
)  # fmt: skip


def find(role: str, asked: str | None, header: Sequence[str], where: str) -> Column:
    """The column for a role ("score", "outcome", ...); raises with the closest name where there is none."""
    name = _guess(role, header) if asked is None else asked
    if name not in header:
        raise InvalidInput(f"{role} column {name!r} is not in {where}{_closest(name, header)}")
    if header.count(name) > 1:
        raise InvalidInput(f"{role} column must be there once, got {header.count(name)} named {name!r} in {where}")
    return {"name": name, "guessed": asked is None}


def rivals(role: str, name: str, header: Sequence[str]) -> str:
    """Other columns of a usual name for the role, as text; empty where there are none.

    >>> rivals("score", "probability", ["probability", "prediction", "y"])
    "'prediction'"
    """
    known = {"score": SCORE_NAMES, "outcome": OUTCOME_NAMES}[role]
    return ", ".join(repr(other) for other in header if other.strip().lower() in known and other != name)


def _guess(role: str, header: Sequence[str]) -> str:
    known = {"score": SCORE_NAMES, "outcome": OUTCOME_NAMES}[role]
    by_plain_name = {name.strip().lower(): name for name in reversed(header)}
    for name in known:
        if name in by_plain_name:
            return by_plain_name[name]
    close = [name for name in by_plain_name if difflib.get_close_matches(name, known, n=1, cutoff=0.75)]
    hint = f" - did you mean {by_plain_name[close[0]]!r}?" if close else ""
    raise InvalidInput(
        f"{role} column must be named, got no column of a usual name; say --{role} with one of {_all(header)}{hint}"
    )


def _closest(asked: str, header: Sequence[str]) -> str:
    plain = {name.lower(): name for name in header}
    close = difflib.get_close_matches(asked.lower(), plain, n=1, cutoff=0.5)
    return f" - did you mean {plain[close[0]]!r}?" if close else f"; there are {_all(header)}"


def _all(header: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in header[:20])
    return shown + (f" and {len(header) - 20} more" if len(header) > 20 else "")
