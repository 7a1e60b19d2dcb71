"""The columns that `calibeat.backtest` was given: one by one, or by name from a data frame."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from calibeat.errors import InvalidInput

from .options import Options
from .read.frames import columns_of, is_frame

ARGUMENTS = {"score": "scores", "outcome": "outcomes", "key": "keys", "time": "times", "outcome time": "outcome_times"}


def check_times(times: object, outcome_times: object, options: Options) -> None:
    """Raise if arguments contradict each other on when outcomes arrive."""
    if outcome_times is not None and times is None:
        raise InvalidInput("outcome_times need times to be compared with, got none")
    if outcome_times is not None and (options.delay_events or options.delay_microseconds):
        raise InvalidInput("delay must not be set where outcome_times say when outcomes arrived, got both")


@dataclass(frozen=True, eq=False)
class Table:
    """Columns by argument. `others` are by role; `names` tells what each of them is called."""

    columns: dict[str, Any]
    others: dict[str, Any] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, columns: Mapping[str, Any], named: Mapping[str, Any], rivals: Any) -> Table:
        """From the arguments of the function."""
        if is_frame(columns["scores"]):
            return cls._of_frame(columns, named, rivals)
        if columns["outcomes"] is None:
            raise InvalidInput("outcomes must be an array or a series, got None")
        wrong = next((role for role, name in named.items() if name is not None and role != "score"), None)
        if wrong is not None:
            argument = wrong.replace(" ", "_")
            raise InvalidInput(
                f"{argument} must name a column of a data frame, got {named[wrong]!r:.60} and no frame; say "
                f"{ARGUMENTS[wrong]}= for a column"
            )
        groups = {"score": (2, _mapping("score", named["score"])), "rival": (1, _mapping("rivals", rivals))}
        others = {f"{what} {k}": c for what, (first, of) in groups.items() for k, c in enumerate(of.values(), first)}
        names = {f"{what} {k}": str(n) for what, (first, of) in groups.items() for k, n in enumerate(of, first)}
        return cls(dict(columns), others, names)

    @classmethod
    def _of_frame(cls, columns: Mapping[str, Any], named: Mapping[str, Any], rivals: Any) -> Table:
        frame = columns["scores"]
        if extra := [name for name, column in columns.items() if name != "scores" and column is not None]:
            one = next(role for role, argument in ARGUMENTS.items() if argument == extra[0]).replace(" ", "_")
            kind = type(frame).__name__
            raise InvalidInput(
                f"scores must be an array or a series where {extra[0]} are given, got {kind}; say {one}= with the name "
                "of a column"
            )
        scores = _names("score", named["score"])
        if not scores or named["outcome"] is None:
            gone = "outcome" if scores else "score"
            raise InvalidInput(f"{gone} must name a column of the data frame, got None")
        roles = {role: name for role, name in named.items() if role != "score" and name is not None}
        others = {f"score {k}": name for k, name in enumerate(scores[1:], 2)}
        others |= {f"rival {k}": name for k, name in enumerate(_names("rivals", rivals), 1)}
        found = columns_of(frame, {"score": scores[0], **roles, **others})
        by_argument = {argument: found.get(role) for role, argument in ARGUMENTS.items()}
        return cls(
            by_argument, {role: found[role] for role in others}, {role: str(name) for role, name in others.items()}
        )


def _names(what: str, names: Any) -> list[Any]:
    if names is None:
        return []
    if isinstance(names, str) or not isinstance(names, Iterable):
        return [names]
    if isinstance(names, Mapping):
        raise InvalidInput(f"{what} must be names of columns where a data frame is given, got a mapping")
    return list(names)


def _mapping(what: str, columns: Any) -> Mapping[str, Any]:
    if columns is None:
        return {}
    if not isinstance(columns, Mapping):
        raise InvalidInput(
            f"{what} must map names to columns where no data frame is given, got {type(columns).__name__} "
            f"{columns!r:.60}"
        )
    return columns
