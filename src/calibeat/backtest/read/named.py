"""What `calibeat.backtest` was given: columns, a data frame and the names of its columns, or the path of a log."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from calibeat._util.columns import is_matrix
from calibeat.backtest.options import Options
from calibeat.errors import InvalidInput

from .attributes import GroupsOfLog
from .files import Columns, LogFile, files_of, require_arrow
from .labels import ClassesOfLog, classes_of
from .rows import ARGUMENTS, LogColumns, is_frame, names_of

BY_ROLE = {role.replace(" ", "_"): argument for role, argument in ARGUMENTS.items() if role != "score"}
OF_FILES = ("label", "id", "delimiter")


@dataclass(frozen=True)
class Given:
    """The arguments of the function, each once: `named` are those that have two names, by the singular one."""

    scores: Any
    score: Any
    named: Mapping[str, Any]
    rivals: Any
    groups: Any
    classes: Any
    of_files: Mapping[str, str | None]

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Given:
        """From all arguments by name.

        Raises
        ------
        InvalidInput : if an argument was given under both of its names, or names and columns are mixed.
        """
        scores, score, named = arguments["scores"], arguments["score"], dict[str, Any]()
        for one, other in BY_ROLE.items():
            if arguments[one] is not None and arguments[other] is not None:
                raise InvalidInput(f"{one} and {other} are the same, got both")
            named[one] = arguments[other] if arguments[one] is None else arguments[one]
        given = cls(
            scores,
            score,
            named,
            arguments["rivals"],
            arguments["groups"],
            arguments["classes"],
            {name: arguments[name] for name in OF_FILES},
        )
        by_name = given.path is not None or (is_frame(scores) and not given._is_matrix)
        first, second = arguments["outcomes"], arguments["keys"]
        if by_name and score is None and isinstance(first, str):  # backtest(frame, "p", "y")
            more = repr(second) if isinstance(second, str) else "..."
            raise InvalidInput(f"columns must be named, got {first!r:.60}; say score={first!r:.60}, outcome={more:.60}")
        for one, value in named.items():
            given._check_one(one, value, by_name=by_name)
        if given.path is None and (wrong := next((name for name in OF_FILES if arguments[name] is not None), None)):
            raise InvalidInput(f"{wrong} must be given with the path of a log only, got {arguments[wrong]!r:.60}")
        return given

    def _check_one(self, name: str, value: Any, *, by_name: bool) -> None:
        what = "the log" if self.path is not None else "the data frame"
        if by_name and value is not None and not isinstance(value, (str, int)):
            raise InvalidInput(f"{name} must name a column of {what}, got {type(value).__name__}")
        if not by_name and isinstance(value, str):
            raise InvalidInput(f"{name} must be a column where scores are one, got the name {value!r:.60} and no frame")

    @property
    def path(self) -> str | None:
        """The path of the log, if that is what was given."""
        return os.fspath(self.scores) if isinstance(self.scores, (str, os.PathLike)) else None

    @property
    def _is_matrix(self) -> bool:
        """Whether the scores are those of many classes."""
        outcome = self.named["outcome"]
        return outcome is not None and not isinstance(outcome, (str, int)) and is_matrix(self.scores)

    def columns(self, options: Options) -> LogColumns:
        """The columns, where there is no file."""
        by_argument = {"scores": self.scores} | {BY_ROLE[one]: value for one, value in self.named.items()}
        if self._is_matrix:
            for argument in ("score", "rivals", "groups"):
                if getattr(self, argument) is not None:
                    got = type(getattr(self, argument)).__name__
                    raise InvalidInput(f"{argument} must not be given with many classes, got {got}")
            if options.positive is not None:
                raise InvalidInput(f"positive must not be given with many classes, got {options.positive!r:.60}")
            by_argument["scores"], found = classes_of(self.scores, self.classes)
            return LogColumns(by_argument, classes=found)
        if self.classes is not None:
            raise InvalidInput("classes must be given with a matrix of scores only, got a vector of them")
        named = {"score": self.score} | {one.replace("_", " "): value for one, value in self.named.items()}
        return LogColumns.of(by_argument, named, self.rivals, self.groups, options)

    def files(self, options: Options) -> tuple[list[LogFile], Columns, dict[str, str]]:
        """The files of the log, their columns, and the names of further columns by role.

        Raises
        ------
        MissingExtra : if the library that reads files is not installed.
        """
        require_arrow()
        found = files_of(str(self.path), self.of_files["delimiter"])
        many = self.of_files["label"] is not None or self.classes is not None
        scores = names_of("score", self.score) or [None]
        others = {} if many else {f"score {at}": name for at, name in enumerate(scores[1:], 2)}
        others |= {f"rival {at}": name for at, name in enumerate(names_of("rivals", self.rivals), 1)}
        asked = {
            "score": None if many else scores[0],
            "label": self.of_files["label"],
            "id": self.of_files["id"],
            **{one.replace("_", " "): value for one, value in self.named.items()},
            **others,
        }
        columns = Columns(asked, delayed=bool(options.delay_events or options.delay_microseconds))
        if many:
            columns.classes = ClassesOfLog(None if self.classes is None else list(self.classes))
            columns.scores = ",".join(str(name) for name in scores)
        if self.groups is not None:
            columns.groups = GroupsOfLog.of(self.groups, options)
        return found, columns, others
