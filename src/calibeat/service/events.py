"""What is asked of the service, and what it refuses. Events are checked once, where they are read: HTTP, or a log."""

from __future__ import annotations

import re
from typing import Annotated, Literal, NamedTuple

from calibeat._util.check import HEAVIEST, MOST_TRIALS, shown
from calibeat._util.extras import missing

try:
    import msgspec
    from msgspec import UNSET, UnsetType
except ImportError as error:  # pragma: no cover - only where the extra is missing
    raise missing("msgspec", "service", "the service") from error

LONGEST_NAME = 200  # characters of a stream's name and of an id
LATEST_TIME = 253_402_300_799.0  # the end of the year 9999, in seconds since 1970

OutcomeStatus = Literal["learnt", "held", "repeated", "corrected"]
EachStatus = Literal["learnt", "held", "repeated", "corrected", "unknown", "conflict", "expired", "final", "invalid"]

# Control characters stand for nothing that a person can read, and no database takes all of them. Halves of surrogate
# pairs are not text.
_UNREADABLE = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


# What msgspec checks while it reads JSON, and what the schema of the service says.
_TEXT = {"pattern": r"^[^\u0000-\u001f\u007f]+$"}
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_NAME, extra_json_schema=_TEXT)]
Score = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Time = Annotated[float, msgspec.Meta(ge=0.0, le=LATEST_TIME, description="seconds since 1970")]
Probability = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Outcome = Annotated[int, msgspec.Meta(ge=0, le=1)] | bool
Label = str | int | float | bool
# A number for each class or model, by its place or by its name; null where a model has given none.
Scores = list[float | None] | dict[Name, float | None]
GroupValues = dict[Name, str | int | float | bool | None]
Weight = Annotated[float, msgspec.Meta(ge=0.0, le=HEAVIEST, description="how many events the outcome stands for")]
Count = Annotated[int, msgspec.Meta(ge=0, le=MOST_TRIALS)]
Share = Annotated[float, msgspec.Meta(gt=0.0, le=1.0)]


class ForecastEvent(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A score to be calibrated, or one for each class or model; and its groups, where the stream looks at some.

    `time` is in seconds since 1970; the server's clock counts where there is none.
    """

    stream: Name
    id: Name
    score: Score | UnsetType = UNSET
    time: Time | None = None
    scores: Scores | UnsetType = UNSET
    groups: GroupValues | UnsetType = UNSET


class OutcomeEvent(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """What has happened to an earlier forecast: the outcome 0 or 1, or the label of a class, or `ones` of many events.

    `weight` is how many events like it the outcome stands for, in a log that kept only some.
    """

    stream: Name
    id: Name
    outcome: Outcome | UnsetType = UNSET
    time: Time | None = None
    label: Label | UnsetType = UNSET
    weight: Weight | UnsetType = UNSET
    ones: Count | UnsetType = UNSET
    of: Count | UnsetType = UNSET


class Observed(NamedTuple):
    """An outcome in numbers: 0, 1 or the column of a label; or so many ones `of` events; and its weight.

    >>> Observed(1), Observed(3, of=50).share
    (Observed(outcome=1, weight=1.0, of=1), 0.06)
    """

    outcome: int
    weight: float = 1.0
    of: int = 1

    @property
    def share(self) -> float:
        """The share of ones, or the column of the label, as kernels take it."""
        return self.outcome / max(self.of, 1)

    @property
    def stored(self) -> tuple[int, float | None, int | None]:
        """The same as columns: most outcomes are one event of weight 1, and have nothing in the other two."""
        return self.outcome, None if self.weight == 1.0 else self.weight, None if self.of == 1 else self.of

    @classmethod
    def of_stored(cls, outcome: int, weight: float | None, of: int | None) -> Observed:
        """The inverse of `stored`."""
        return cls(outcome, 1.0 if weight is None else weight, 1 if of is None else of)


class NumberGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An attribute whose values are numbers: see `calibeat.Number`."""

    name: Name
    number: bool = True
    first: int | UnsetType = UNSET
    cells: int | UnsetType = UNSET
    edges: list[float] | UnsetType | None = UNSET


class KeptShares(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The shares of ones and of zeros that the log kept."""

    ones: Share
    zeros: Share


class StreamSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a stream is to be from its first event on: its classes, in their order; its groups; or its models.

    `crossings`, `cells` and `names` are those of `calibeat.Groups`. With `names` the values of groups are stored, so
    that segments have names; otherwise only their hashes are. `kept` are the shares of ones and of zeros that the log
    kept. To a running stream of models another one may be added, behind those that are there.
    """

    stream: Name = ""
    id: str = ""  # as events have one
    classes: Annotated[int, msgspec.Meta(ge=2)] | list[Name] | UnsetType = UNSET
    groups: list[Name | NumberGroup] | UnsetType = UNSET
    crossings: list[list[Name]] | Literal["auto"] | UnsetType = UNSET
    cells: int | UnsetType = UNSET
    names: bool | UnsetType = UNSET
    models: list[Name] | UnsetType = UNSET
    kept: Annotated[list[Share], msgspec.Meta(min_length=2, max_length=2)] | KeptShares | UnsetType = UNSET


class InvalidEvent(msgspec.Struct, frozen=True):
    """An outcome in a batch that cannot be one, and why. The others are learnt."""

    message: str
    stream: str | None = None
    id: str | None = None


class CorrectionEvent(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """What has really happened to an earlier forecast: another outcome, or null where it is unknown again."""

    stream: Name
    id: Name
    outcome: Outcome | UnsetType | None = UNSET
    time: Time | None = None
    label: Label | UnsetType | None = UNSET
    weight: Weight | UnsetType = UNSET
    ones: Count | UnsetType = UNSET
    of: Count | UnsetType = UNSET


Verb = Literal["freeze", "resume", "passthrough", "reset", "copy", "rename", "delete", "forget", "join"]


class Control(msgspec.Struct, frozen=True):
    """Something that is done to a stream, or to one event of it.

    `to` is the new name of a copied or renamed stream. `outcomes` says what a resumed stream does with those that have
    waited. `ids` are the events to be forgotten. `models` are those that join.
    """

    verb: Verb
    stream: str
    to: str = ""
    outcomes: Literal["learn", "drop"] = "learn"
    ids: tuple[str, ...] = ()
    models: tuple[str, ...] = ()


Event = ForecastEvent | OutcomeEvent


class Refusal(Exception):
    """A request that is not done, and why.

    Attributes
    ----------
    code : a word for programs: "invalid", "conflict", "full", "stopping", "internal".
    message : a sentence for people.
    at : the position of the event in its batch, or the name of what is wrong.
    status : the HTTP status that fits.

    >>> Refusal("conflict", "id must be new or have the score it had, got 'e1' - at event 0", 0, 409).status
    409
    """

    def __init__(self, code: str, message: str, at: int | str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.code, self.message, self.at, self.status = code, message, at, status


def is_text(name: str) -> bool:
    r"""Whether a name has no control characters.

    >>> is_text("paris"), is_text("a\tb")
    (True, False)
    """
    return _UNREADABLE.search(name) is None


def bad_name(what: str, text: object) -> str:
    """What is wrong with the name of a stream or an event, or nothing."""
    if type(text) is not str or not 0 < len(text) <= LONGEST_NAME:
        got = shown(text) if not isinstance(text, str) else f"{len(text)}"
        return f"{what} must be a text of 1 to {LONGEST_NAME} characters, got {got}"
    if _UNREADABLE.search(text):
        return f"{what} must be text without control characters, got {shown(text)}"
    return ""
