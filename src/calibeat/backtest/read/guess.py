"""Guesses, each of which is reported: which column holds what, and what scores look like that are no probabilities."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from calibeat._util.types import Vector
from calibeat._util.words import did_you_mean
from calibeat.errors import InvalidInput

if TYPE_CHECKING:
    from .classes import Classes

SCORE_NAMES = (
    *("score", "probability", "prob", "proba", "p", "y_score", "y_prob", "y_proba", "predicted_probability"),
    *("prediction", "predicted", "pred", "p_hat", "phat", "y_pred", "yhat", "forecast", "confidence"),
    "model_score",
)
OUTCOME_NAMES = (
    *("outcome", "label", "y", "y_true", "target", "actual", "result", "truth", "class", "clicked", "click"),
    *("converted", "conversion", "default", "fraud", "churned", "churn"),
)
TIME_NAMES = (
    *("time", "timestamp", "datetime", "at", "ts", "date", "event_time", "event_timestamp", "event_date"),
    *("prediction_time", "prediction_timestamp", "predicted_at", "score_time", "score_timestamp", "scored_at"),
    *("forecast_time", "forecast_at", "issued_at", "created_at", "requested_at", "request_time", "served_at"),
)
OUTCOME_TIME_NAMES = tuple(
    f"{what}_{when}"
    for what in (
        *("outcome", "label", "known", "labelled", "labeled", "resolved", "settled", "feedback", "clicked"),
        *("click", "converted", "conversion", "matured"),
    )
    for when in ("time", "timestamp", "at", "date", "datetime", "ts", "on")
)
ID_NAMES = ("id", "event_id", "prediction_id", "forecast_id", "request_id", "transaction_id", "uuid", "guid")

USUAL_NAMES = {
    "score": SCORE_NAMES,
    "outcome": OUTCOME_NAMES,
    "label": OUTCOME_NAMES,
    "time": TIME_NAMES,
    "outcome time": OUTCOME_TIME_NAMES,
    "id": ID_NAMES,
    "key": (),
}
NEEDED = ("score", "outcome", "label")
NO_COLUMN = "none"  # what a person types so that nothing is guessed
OTHERS = ("rival ", "score ")  # how the role of a further column of probabilities begins


class Column(TypedDict):
    """The column of a role, and whether it was guessed by its name."""

    name: str
    guessed: bool


def option_of(role: str) -> str:
    """What a person types to name the column of a role.

    >>> option_of("outcome time")
    '--outcome-time'
    """
    return "--" + role.replace(" ", "-")


def is_other(role: str) -> bool:
    """Whether a role is that of a rival's forecasts, or of another model's scores.

    >>> is_other("rival 1"), is_other("score 2"), is_other("score")
    (True, True, False)
    """
    return role.startswith(OTHERS)


# ---- columns -----------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Columns:
    """The column of each role, chosen by the first header: by the name that was asked for, or by a guess.

    `asked` maps roles to names; ``"none"`` switches the guess off. `delayed` tells that a delay was given, which
    settles when outcomes arrive. With `classes` there are a label and the columns `scores` (names and patterns) in the
    place of a score and an outcome.
    """

    asked: Mapping[str, str | None]
    delayed: bool = False
    classes: Classes | None = None
    scores: str = ""
    chosen: dict[str, Column] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    unused: dict[str, tuple[str, str]] = field(default_factory=dict)  # by role: a column that was left out, and why

    def pick(self, header: Sequence[str], where: str) -> list[str]:
        """The columns to read from a file with this header."""
        if self.chosen:
            if missing := [name for name in self._score_names if name not in header]:
                raise InvalidInput(f"score column {missing[0]!r} is not in {where}; the file before had it")
            for role, column in self.chosen.items():
                check_column(role, column["name"], header, where, guessed=column["guessed"])
        else:
            for role in USUAL_NAMES:
                if role not in (("label",) if self.classes is None else ("score", "outcome")):
                    self._choose(role, header, where)
            for role, name in self.asked.items():
                if is_other(role) and name is not None:
                    check_column(role, name, header, where)
                    self.chosen[role] = {"name": name, "guessed": False}
            self._settle_times()
            if self.classes is not None:
                taken = [column["name"] for column in self.chosen.values()]
                self.classes.pick(self.scores, header, taken, where)
            elif self.chosen["score"]["name"] == self.chosen["outcome"]["name"]:
                raise InvalidInput(
                    f"score and outcome must be two columns, got {self.chosen['score']['name']!r} for both"
                )
        self.check_times()
        return list(dict.fromkeys([*self._score_names, *(column["name"] for column in self.chosen.values())]))

    @property
    def _score_names(self) -> list[str]:
        """The columns of the scores of many classes."""
        return [] if self.classes is None else self.classes.columns

    @property
    def shown(self) -> dict[str, Column]:
        """The columns by role, for the report."""
        if self.classes is None:
            return dict(self.chosen)
        more = f" and {len(self._score_names) - 8} more" if len(self._score_names) > 8 else ""
        return {"scores": {"name": ", ".join(self._score_names[:8]) + more, "guessed": False}, **self.chosen}

    def check_times(self) -> None:
        """Times of outcomes are compared with times of events."""
        if "outcome time" in self.chosen and "time" not in self.chosen:
            raise InvalidInput("--outcome-time needs --time to be compared with, got it alone")

    def drop(self, role: str, reason: str) -> None:
        """Leave out a guessed column that does not hold what its name promises."""
        self.unused[role] = self.chosen.pop(role)["name"], reason
        self._settle_times()

    @property
    def guessed(self) -> dict[str, str]:
        """The columns that were guessed, by role."""
        return {role: column["name"] for role, column in self.chosen.items() if column["guessed"]}

    @property
    def assumption(self) -> str | None:
        """What the result assumes of the arrival of outcomes where a column of outcome times was not used."""
        if "outcome time" not in self.unused:
            return None
        name, reason = self.unused["outcome time"]
        assumed = "outcomes as late as --delay says" if self.delayed else "that every outcome is known at once"
        return (
            f"This result assumes {assumed}. The column {name!r} looks like the times at which outcomes were known, "
            f"but it was not used: {reason}."
        )

    @property
    def all_notes(self) -> list[str]:
        """What a reader should know of the columns."""
        left = [
            f"The column {name!r} looks like the {role} of the events, but it was not used: {reason}."
            for role, (name, reason) in self.unused.items()
            if role != "outcome time"
        ]
        return self.notes + left

    def _choose(self, role: str, header: Sequence[str], where: str) -> None:
        asked = self.asked.get(role)
        usual = usual_columns(role, header)
        if asked is not None and (asked != NO_COLUMN or NO_COLUMN in header or role in NEEDED):
            check_column(role, asked, header, where)
            self.chosen[role] = {"name": asked, "guessed": False}
        elif asked is not None:
            if usual:
                self.unused[role] = usual[0], f"{option_of(role)} {NO_COLUMN} was given"
        elif role in NEEDED and not usual:
            raise InvalidInput(_not_named(role, header))
        elif usual:
            check_column(role, usual[0], header, where)
            self.chosen[role] = {"name": usual[0], "guessed": True}
            if others := [name for name in usual[1:] if name not in self._named()]:
                shown = ", ".join(map(repr, others))
                self.notes.append(f"The {role} was guessed to be in {usual[0]!r}; there is also {shown}.")

    def _named(self) -> set[str]:
        return {name for name in self.asked.values() if name is not None}

    def _settle_times(self) -> None:
        """A guess must not take a column that was named for something else, nor contradict a delay."""
        for role in ("time", "outcome time", "id"):
            column = self.chosen.get(role)
            if column and column["guessed"] and column["name"] in self._named():
                del self.chosen[role]
        late = self.chosen.get("outcome time")
        if late is None or not late["guessed"]:
            return
        if self.delayed:
            self.drop("outcome time", "--delay was given")
        elif "time" not in self.chosen:
            self.drop("outcome time", "the times of the events are not known (--time)")


def usual_columns(role: str, header: Sequence[str]) -> list[str]:
    """The columns of a usual name for the role, the most usual first."""
    by_plain_name = {_plain(name): name for name in reversed(header)}
    return [by_plain_name[name] for name in USUAL_NAMES[role] if name in by_plain_name]


def _plain(name: str) -> str:
    """A column's name without case, camel's humps and marks.

    >>> _plain(" outcomeTime"), _plain("Outcome-Time"), _plain("p")
    ('outcome_time', 'outcome_time', 'p')
    """
    humps = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.strip())
    return re.sub(r"[\s.-]+", "_", humps).lower()


def check_column(role: str, name: str, header: Sequence[str], where: str, *, guessed: bool = False) -> None:
    """Refuse a column that is not there, or there more than once."""
    if name not in header:
        hint = did_you_mean(name, header) or f"; there are {_all(header)}"
        if guessed and role not in NEEDED:
            hint += f"; it was guessed: say {option_of(role)} {NO_COLUMN} to leave it out"
        raise InvalidInput(f"{role} column {name!r} is not in {where}{hint}")
    if header.count(name) > 1:
        raise InvalidInput(f"{role} column must be there once, got {header.count(name)} named {name!r} in {where}")


def _not_named(role: str, header: Sequence[str]) -> str:
    close = next((name for name in header if did_you_mean(name.strip(), USUAL_NAMES[role], 0.75)), None)
    hint = f" - did you mean {close!r}?" if close else ""
    return f"{role} column must be named, got no column of a usual name; say --{role} with one of {_all(header)}{hint}"


def _all(header: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in header[:20])
    return shown + (f" and {len(header) - 20} more" if len(header) > 20 else "")


# ---- scores ------------------------------------------------------------------------------------------------------

NO_ACCIDENT, SHARE_NO_ACCIDENT = 20, 0.05  # so many bad rows, and such a share of them, are no accident


def kind_of_numbers(values: Vector) -> str:
    """``"percent"``, ``"logit"`` or nothing, from all the scores that are numbers.

    >>> [kind_of_numbers(np.array(v)) for v in ([0.2, 63.0], [-2.0, 1.5], [0.2, 2000.0])]
    ['percent', 'logit', '']
    """
    values = values[np.isfinite(values)]
    if not len(values) or np.mean((values < 0.0) | (values > 1.0)) < 0.01:
        return ""
    low, high = float(values.min()), float(values.max())
    return "percent" if low >= 0.0 and 1.01 < high <= 100.0 else "logit" if low < -0.01 and high < 50.0 else ""


def kind_of_text(shown: Sequence[str]) -> str:
    """The same from the texts of unreadable scores; ``"comma"`` and ``"thousands"`` tell what their commas are.

    >>> [kind_of_text(texts) for texts in (["'63.7%'"], ["'1,000'", "'0,250'"], ["'1,000'"], ["'high'"])]
    ['percent', 'comma', 'thousands', '']
    """
    kinds = [_kind_of_one(text.strip("'\" ")) for text in shown]
    first = next((kind for kind in kinds if kind), "")
    return "comma" if first == "thousands" and "comma" in kinds else first


def _kind_of_one(text: str) -> str:
    if re.fullmatch(r"[-+]?[\d.,]+\s*%", text):
        return "percent"
    if re.fullmatch(r"[-+]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?", text):
        return "thousands"
    return "comma" if re.fullmatch(r"[-+]?\d*,\d+", text) else ""


def hint_of_kind(kind: str, how: str) -> str:
    """The end of an error message; `how` tells how a person sets the kind."""
    if kind == "comma":
        return f"; the numbers have decimal commas: {how}"
    if kind == "thousands":
        return "; the number has commas between its thousands: write it without"
    name = {"percent": "percent", "logit": "logits"}[kind]
    return f"; the scores look like {name}: {how}"


def too_many_to_skip(bad: int, rows: int) -> bool:
    """Whether so many bad rows are another kind of score, and not to be skipped."""
    return 2 * bad > rows or (bad >= NO_ACCIDENT and bad >= SHARE_NO_ACCIDENT * rows)
