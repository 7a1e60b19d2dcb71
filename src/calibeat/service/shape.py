"""What the events of a stream look like: one score or one for each class, and which groups beside it.

The first event of a stream says it, or `PUT /v1/streams/NAME` before it. It stays as it is from then on.
"""

from __future__ import annotations

import json
import secrets
import struct
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import UNSET

from calibeat._util.check import shown
from calibeat.core.auto import Lanes
from calibeat.core.method import Method
from calibeat.core.vector import VectorMethod
from calibeat.errors import InvalidInput
from calibeat.hosts.groups import Groups, WordMaker, plain_value
from calibeat.hosts.multi import Classes, check_scores

from .events import CorrectionEvent, ForecastEvent, OutcomeEvent, StreamSettings, bad_name

if TYPE_CHECKING:
    from .store.types import Record

MOST_CLASSES = 1_000  # a receipt of MULTI has 72 bytes for each
Answered = float | list[float] | dict[str, float]


@dataclass(frozen=True, eq=False)
class Shape:
    """Two classes, or many; and the attributes that a stream looks at.

    Two classes with names are served by the method of the store, as the score of the second one. Of more classes a
    score is K numbers, and MULTI serves them.

    >>> cats = Shape(Classes(["bird", "cat", "dog"]))
    >>> Shape.from_text(cats.to_text()).described()["classes"], cats.numbers
    (['bird', 'cat', 'dog'], 3)
    """

    classes: Classes | None = None
    groups: Groups | None = None  # with the seed of its words

    @classmethod
    def of_event(cls, event: ForecastEvent, method: Method) -> Shape:
        """The shape that the first event of a stream has.

        Raises
        ------
        InvalidInput : no stream can have such events.
        """
        if event.scores is UNSET and event.groups is UNSET:
            return PLAIN
        classes: Any = UNSET if event.scores is UNSET else event.scores
        named = sorted(classes) if isinstance(classes, dict) else UNSET if classes is UNSET else len(classes)
        return _made(named, UNSET if event.groups is UNSET else sorted(event.groups), method)

    @classmethod
    def of_settings(cls, settings: StreamSettings, method: Method) -> Shape:
        """The shape that a stream is asked to have.

        Raises
        ------
        InvalidInput : no stream can have it.
        """
        if settings.classes is UNSET and settings.groups is UNSET:
            raise InvalidInput("classes or groups must be given, got neither")
        more = {
            name: value for name in ("crossings", "cells", "names") if (value := getattr(settings, name)) is not UNSET
        }
        if more and settings.groups is UNSET:
            raise InvalidInput(f"{next(iter(more))} must come with groups, got no groups")
        return _made(settings.classes, settings.groups, method, **more)

    # ---- as data ------------------------------------------------------------------------------------------------

    def to_text(self) -> str:
        """As the store keeps it, with the seed of the words; `from_text` is the inverse."""
        classes = None if self.classes is None else self.classes.given
        return json.dumps({"classes": classes, "groups": None if self.groups is None else self.groups.to_dict()})

    @classmethod
    def from_text(cls, text: str | None) -> Shape:
        """The inverse of `to_text`. Most streams have no text: they are plain."""
        if text is None:
            return PLAIN
        found = json.loads(text)
        classes, groups = found["classes"], found["groups"]
        return cls(None if classes is None else Classes(classes), None if groups is None else Groups.from_dict(groups))

    def described(self) -> dict[str, Any]:
        """What may be told of it: all but the seed of its words, which is a secret."""
        groups = None
        if self.groups is not None:
            groups = {name: value for name, value in self.groups.to_dict().items() if name not in ("seed", "extra")}
        return {"classes": None if self.classes is None else self.classes.given, "groups": groups}

    def is_like(self, other: Shape) -> bool:
        """Whether events of the one are events of the other."""
        return self.described() == other.described()

    # ---- what it means for the rows -----------------------------------------------------------------------------

    @cached_property
    def numbers(self) -> int:
        """How many numbers the score of an event has in a row: K of more than two classes, else 1."""
        return 1 if self.classes is None or self.classes.count == 2 else self.classes.count

    @cached_property
    def is_wide(self) -> bool:
        """Whether its events give more than one number."""
        return self.numbers > 1 or self.groups is not None

    @cached_property
    def many(self) -> VectorMethod:
        """The method of more than two classes."""
        return VectorMethod("multi", self.numbers)

    @cached_property
    def maker(self) -> WordMaker:
        """Makes the words of values."""
        assert self.groups is not None  # noqa: S101 - so it is called
        return WordMaker(Groups.from_dict({**self.groups.to_dict(), "names": False}), self.groups.seed or 0)

    # ---- events -------------------------------------------------------------------------------------------------

    def read(self, event: ForecastEvent) -> tuple[float, bytes | None]:
        """The score of an event, and what it gives beside it: K scores, or the words of its groups.

        Raises
        ------
        InvalidInput : the event is not like the others of its stream.
        """
        if event.score is not UNSET and event.scores is not UNSET:
            raise InvalidInput("event must have either score or scores, got both")
        if self.classes is None:
            if event.score is UNSET:
                raise InvalidInput(f"score must be given, as the stream has two classes, got {_given(event)}")
            return event.score, self._words(event)
        if event.scores is UNSET:
            raise InvalidInput(f"scores must be given for {self.classes.words()} of the stream, got {_given(event)}")
        if event.groups is not UNSET:
            raise InvalidInput("groups must be left out, as a stream of classes has none, got some")
        scores = check_scores(self._in_order(event.scores), self.classes, False, one=True)
        return (0.0, scores.tobytes()) if self.numbers > 1 else (float(scores[1]), None)

    def _in_order(self, scores: list[float] | dict[str, float]) -> list[float]:
        assert self.classes is not None  # noqa: S101 - so it is called
        labels, wanted = self.classes.labels, self.classes.words()
        if isinstance(self.classes.given, int):
            if not isinstance(scores, list):
                raise InvalidInput(f"scores must be a list with a number for {wanted} of the stream, got an object")
            return scores
        if not isinstance(scores, dict):
            raise InvalidInput(f"scores must be an object with a number for {wanted} of the stream, got a list")
        if lost := [label for label in labels if label not in scores]:
            raise InvalidInput(f"scores must have a number for {wanted} of the stream, got none for {lost[0]!r:.60}")
        if len(scores) > len(labels):
            extra = min(set(scores).difference(self.classes.index))
            raise InvalidInput(f"scores must have a number for {wanted} of the stream, got one for {extra!r:.60} too")
        return [scores[label] for label in labels]  # type: ignore[index]

    def _words(self, event: ForecastEvent) -> bytes | None:
        if self.groups is None:
            if event.groups is not UNSET:
                raise InvalidInput("groups must be left out, as the stream has none, got some")
            return None
        wanted = self.groups.attributes
        names = ", ".join(wanted)
        if event.groups is UNSET:
            raise InvalidInput(f"groups must be given for the stream: {names}, got none")
        if lost := [name for name in wanted if name not in event.groups]:
            raise InvalidInput(f"groups must be {names} for the stream, got none for {lost[0]!r:.60}")
        if len(event.groups) > len(wanted):
            raise InvalidInput(
                f"groups must be {names} for the stream, got {min(set(event.groups).difference(wanted))!r:.60} too"
            )
        return struct.pack(f"<{len(wanted)}q", *self.maker.of_event(event.groups))

    def names_of(self, event: ForecastEvent, given: bytes) -> list[tuple[int, Any]]:
        """The words of an event and their values, for the book of names."""
        assert self.groups is not None  # noqa: S101 - so it is called
        wanted = self.groups.attributes
        groups: Any = event.groups
        return list(zip(words_of(given), [plain_value(name, groups[name]) for name in wanted], strict=True))

    def difference(self, record: Record, score: float, given: bytes | None) -> str:
        """What a repeated event has that its forecast had not, or nothing."""
        if self.numbers > 1:
            return "scores" if record.given != given else ""
        if record.score != score:
            return "score" if self.classes is None else "scores"
        return "groups" if record.given != given else ""

    def outcome(self, event: OutcomeEvent | CorrectionEvent) -> int:
        """The outcome of an event as a number: 0 or 1, or the column of its label.

        Raises
        ------
        InvalidInput : it is none that the stream can have.
        """
        if event.outcome is not UNSET and event.label is not UNSET:
            raise InvalidInput("event must have either outcome or label, got both")
        if self.classes is None:
            if event.outcome is UNSET:
                got = "nothing" if event.label is UNSET else "a label"
                raise InvalidInput(f"outcome must be 0 or 1, as the stream has two classes without names, got {got}")
            return int(event.outcome or 0)
        if event.label is UNSET and event.outcome is not UNSET and self.classes.labels == (0, 1):
            return int(event.outcome or 0)  # the same by another name
        if event.label is UNSET:
            got = "nothing" if event.outcome is UNSET else f"the outcome {shown(event.outcome)}"
            raise InvalidInput(f"label must be one of {self.classes.words()}, got {got}")
        return self.classes.column(event.label)

    def label(self, outcome: int | None) -> Any:
        """What people call an outcome."""
        return outcome if self.classes is None or outcome is None else self.classes.labels[outcome]

    def answer(self, record: Record) -> Answered:
        """The forecast of an event as it is answered."""
        if self.classes is None:
            return record.forecast
        p = record.forecast
        values = [1.0 - p, p] if record.issued is None else np.frombuffer(record.issued).tolist()
        return values if isinstance(self.classes.given, int) else self.by_class(values)

    def by_class(self, values: list[float]) -> dict[str, float]:
        """Numbers of all classes by their names."""
        labels: Any = () if self.classes is None else self.classes.labels
        return dict(zip(map(str, labels), values, strict=True))


PLAIN = Shape()  # of most streams: two classes, one score


def words_of(given: bytes) -> tuple[int, ...]:
    """The words of an event's groups, with a sign as kernels have them."""
    return struct.unpack(f"<{len(given) // 8}q", given)


def _given(event: ForecastEvent) -> str:
    return "scores" if event.scores is not UNSET else "score" if event.score is not UNSET else "none"


def _made(classes: Any, groups: Any, method: Method, **more: Any) -> Shape:
    """A new shape of classes (how many, or their names) or of groups (the names of attributes)."""
    if classes is not UNSET:
        if groups is not UNSET:
            raise InvalidInput(
                "groups must come with score, got scores or classes: many classes have no groups - use a stream for "
                "each class whose probability matters"
            )
        count = classes if isinstance(classes, int) else len(classes)
        if not 2 <= count <= MOST_CLASSES:
            raise InvalidInput(f"classes must be from 2 to {MOST_CLASSES}, got {count}")
        for name in () if isinstance(classes, int) else classes:
            if problem := bad_name("class", name):
                raise InvalidInput(problem)
        return Shape(Classes(classes))
    for name in groups:
        if problem := bad_name("group", name):
            raise InvalidInput(problem)
    if not isinstance(method.learner, Lanes):
        raise InvalidInput("groups must be left out, as only auto and gauto take them, got a store of another method")
    return Shape(groups=Groups(groups, seed=secrets.randbits(64), **more))
