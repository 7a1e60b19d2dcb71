"""What the events of a stream look like: one score or one for each class or model, and which groups beside it.

The first event of a stream says it, or `PUT /v1/streams/NAME` before it. It stays as it is from then on, but for models
that join, and the cells of numbers, which the first numbers fix.
"""

from __future__ import annotations

import json
import secrets
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import UNSET

from calibeat._compiled import REASONS
from calibeat._util.check import check_shares, shown
from calibeat._util.types import Vector
from calibeat.core.auto import Lanes
from calibeat.core.band import Estimate
from calibeat.core.method import Method
from calibeat.core.several import SeveralMethod, default_names
from calibeat.core.vector import VectorMethod
from calibeat.errors import InvalidInput
from calibeat.hosts.groups import Groups, WordMaker, plain_value
from calibeat.hosts.models import Models
from calibeat.hosts.multi import Classes, MultiCalibrator, check_scores
from calibeat.hosts.numbers import Cuts, Known, Number, plain_number

from .events import (
    CorrectionEvent,
    ForecastEvent,
    KeptShares,
    NumberGroup,
    Observed,
    OutcomeEvent,
    StreamSettings,
    bad_name,
)

if TYPE_CHECKING:
    from .store.types import Record

MOST_CLASSES = 1_000  # a receipt of MULTI has 72 bytes for each
Answered = float | list[float] | dict[str, float]  # with a band an `Estimate`
_WORD = 0xFFFFFFFFFFFFFFFF


@dataclass(frozen=True, eq=False)
class Shape:
    """Two classes, or many; the attributes that a stream looks at; its models; and what its log kept.

    Two classes with names are served by the method of the store, as the score of the second one. Of more classes a
    score is K numbers, and MULTI serves them. Of k models a score is k numbers, NaN where one is missing.

    >>> cats = Shape(Classes(["bird", "cat", "dog"]))
    >>> Shape.from_text(cats.to_text()).described()["classes"], cats.numbers
    (['bird', 'cat', 'dog'], 3)
    """

    classes: Classes | None = None
    groups: Groups | None = None  # with the seed of its words
    models: Models | None = None
    kept: tuple[float, float] | None = None  # the shares of ones and zeros
    known: tuple[Known | None, ...] = ()  # of each attribute that is a number: its cells, or its first numbers

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
        if all(getattr(settings, name) is UNSET for name in ("classes", "groups", "models", "kept")):
            raise InvalidInput("classes, groups, models or kept must be given, got none of them")
        more = {
            name: value for name in ("crossings", "cells", "names") if (value := getattr(settings, name)) is not UNSET
        }
        if more and settings.groups is UNSET:
            raise InvalidInput(f"{next(iter(more))} must come with groups, got no groups")
        return _made(settings.classes, settings.groups, method, settings.models, settings.kept, **more)

    # ---- as data ------------------------------------------------------------------------------------------------

    def to_text(self) -> str:
        """As the store keeps it, with the seed of the words; `from_text` is the inverse."""
        known = [None if number.edges else number.state(part) for number, part in self._numeric()]
        return json.dumps(
            {
                "classes": None if self.classes is None else self.classes.given,
                "groups": None if self.groups is None else self.groups.to_dict(),
                "models": None if self.models is None else self.models.names,
                "kept": self.kept,
                "numbers": known,
            }
        )

    @classmethod
    def from_text(cls, text: str | None) -> Shape:
        """The inverse of `to_text`. Most streams have no text: they are plain."""
        if text is None:
            return PLAIN
        found = json.loads(text)
        classes, groups, models, kept = (found[name] for name in ("classes", "groups", "models", "kept"))
        made = cls(
            None if classes is None else Classes(classes),
            None if groups is None else Groups.from_dict(groups),
            None if models is None else Models(models),
            None if kept is None else check_shares("kept", kept),
        )
        numbers = () if made.groups is None else made.groups.numbers
        read = [
            number.start() if number.edges else number.read_state(part)
            for number, part in zip(numbers, found["numbers"], strict=True)
        ]
        return made.knowing(read) if read else made

    def described(self) -> dict[str, Any]:
        """What may be told of it: all but the seed of its words, which is a secret, and the first numbers."""
        groups = None
        if self.groups is not None:
            groups = {name: value for name, value in self.groups.to_dict().items() if name not in ("seed", "extra")}
        return {
            "classes": None if self.classes is None else self.classes.given,
            "groups": groups,
            "models": None if self.models is None else list(self.models.names),
            "kept": None if self.kept is None else dict(zip(("ones", "zeros"), self.kept, strict=True)),
        }

    def is_like(self, other: Shape) -> bool:
        """Whether events of the one are events of the other."""
        return self.described() == other.described()

    # ---- what it means for the rows -----------------------------------------------------------------------------

    @cached_property
    def numbers(self) -> int:
        """How many forecasts an event has: K of more than two classes, else 1."""
        return 1 if self.classes is None or self.classes.count == 2 else self.classes.count

    @cached_property
    def is_wide(self) -> bool:
        """Whether its events give more than one number."""
        return self.numbers > 1 or self.groups is not None or self.models is not None

    @cached_property
    def kind(self) -> tuple[Any, ...]:
        """What streams have in common that can be folded together; those with groups are folded alone."""
        return self.numbers, 0 if self.models is None else len(self.models), self.kept

    @cached_property
    def odds(self) -> float:
        """How many times larger the odds are in the log than in truth."""
        return 1.0 if self.kept is None else self.kept[0] / self.kept[1]

    def odds_of(self, count: int) -> list[float]:
        """The same for so many events; none where they are 1."""
        return [] if self.odds == 1.0 else [self.odds] * count

    @cached_property
    def many(self) -> VectorMethod:
        """The method of more than two classes."""
        return VectorMethod("multi", self.numbers)

    def method_of(self, method: Method) -> Any:
        """The method of such a stream in a store of this method; with groups it has a table beside it."""
        if self.numbers > 1:
            return self.many
        if self.models is not None:
            return _several(len(self.models))
        return method if self.kept is None else _with_kept(method, self.kept)

    def joined(self, name: str | None = None) -> Shape:
        """The same with one model more."""
        names = () if self.models is None else self.models.names
        return replace(self, models=Models([*names, default_names(len(names) + 1)[-1] if name is None else name]))

    def of_first_models(self, count: int) -> Shape:
        """The same as it was when it had so many models."""
        return self if self.models is None else replace(self, models=Models(self.models.names[:count]))

    @cached_property
    def maker(self) -> WordMaker:
        """Makes the words of values."""
        assert self.groups is not None  # noqa: S101 - so it is called
        maker = WordMaker(Groups.from_dict({**self.groups.to_dict(), "names": False}), self.groups.seed or 0)
        if self.known:
            maker._know(self.known)  # noqa: SLF001 - as a table of groups does it
        return maker

    # ---- attributes that are numbers ----------------------------------------------------------------------------

    def _numeric(self) -> list[tuple[Number, Known]]:
        """The attributes that are numbers, in order, and what is known of each."""
        if self.groups is None or not self.groups.numbers:
            return []
        known = dict(zip(self.groups.attributes, self.known, strict=True)) if self.known else {}
        return [(number, known.get(number.name) or number.start()) for number in self.groups.numbers]

    def knowing(self, found: Sequence[Known]) -> Shape:
        """The same with this known of its numbers, in their order."""
        assert self.groups is not None  # noqa: S101 - it has numbers
        by_name = {number.name: part for number, part in zip(self.groups.numbers, found, strict=True)}
        return replace(self, known=tuple(by_name.get(name) for name in self.groups.attributes))

    def after(self, given: bytes | None) -> Shape:
        """The shape behind an event that has given this: first numbers are gathered, until they fix the cells."""
        if given is None or self.groups is None or not self.groups.numbers:
            return self
        found = self._numeric()
        if all(isinstance(known, Cuts) for _, known in found):
            return self
        values = self._values(given)
        parts = [number.codes_in_turn(known, values[k : k + 1])[1] for k, (number, known) in enumerate(found)]
        return self.knowing(parts)

    def _values(self, given: bytes) -> Vector:
        """The numbers of an event, behind its words."""
        assert self.groups is not None  # noqa: S101 - it has numbers
        return np.frombuffer(given)[len(self.groups.attributes) :]

    def words(self, given: bytes) -> bytes:
        """The words of an event, as kernels read them."""
        return given if self.groups is None or not self.groups.numbers else given[: 8 * len(self.groups.attributes)]

    def groups_of(self, given: bytes, book: Mapping[int, Any]) -> dict[str, Any]:
        """The groups of an event by name: numbers as they came, other values by their names, or their hashes."""
        assert self.groups is not None  # noqa: S101 - so it is called
        words = words_of(self.words(given))
        found: dict[str, Any] = {
            name: book.get(word, f"{word & _WORD:016x}")
            for name, word in zip(self.groups.attributes, words, strict=True)
        }
        if self.groups.numbers:
            for number, value in zip(self.groups.numbers, self._values(given).tolist(), strict=True):
                found[number.name] = None if value != value else value  # noqa: PLR0124 - NaN
        return found

    # ---- events -------------------------------------------------------------------------------------------------

    def read(self, event: ForecastEvent) -> tuple[float, bytes | None]:
        """The score of an event, and what it gives beside it: K scores, or the words of its groups.

        Raises
        ------
        InvalidInput : the event is not like the others of its stream.
        """
        if event.score is not UNSET and event.scores is not UNSET:
            raise InvalidInput("event must have either score or scores, got both")
        if self.models is not None:
            return self._of_models(self.models, event)
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

    @staticmethod
    def _of_models(models: Models, event: ForecastEvent) -> tuple[float, bytes | None]:
        """The score of an event of several models is its forecast, which is not made yet."""
        if event.scores is UNSET:
            names = ", ".join(models.names)
            raise InvalidInput(f"scores must be given for the models of the stream, {names}, got {_given(event)}")
        if event.groups is not UNSET:
            raise InvalidInput("groups must be left out, as a stream of models has none, got some")
        return 0.0, models.one(event.scores).tobytes()

    def _in_order(self, scores: list[float | None] | dict[str, float | None]) -> list[float | None]:
        assert self.classes is not None  # noqa: S101 - so it is called
        labels, wanted = self.classes.labels, self.classes.words()
        if None in (scores if isinstance(scores, list) else scores.values()):
            raise InvalidInput(f"scores must have a number for {wanted} of the stream, got null for one")
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
        words = struct.pack(f"<{len(wanted)}q", *self.maker.of_event(event.groups))
        if not self.groups.numbers:
            return words
        numbers = [plain_number(number.name, event.groups[number.name]) for number in self.groups.numbers]
        return words + np.array(numbers).tobytes()

    def names_of(self, event: ForecastEvent, given: bytes) -> list[tuple[int, Any]]:
        """The words of an event and their values, for the book of names."""
        assert self.groups is not None  # noqa: S101 - so it is called
        groups: Any = event.groups
        words = zip(self.groups.given, words_of(self.words(given)), strict=True)
        return [(word, plain_value(name, groups[name])) for name, word in words if isinstance(name, str)]

    def difference(self, record: Record, score: float, given: bytes | None) -> str:
        """What a repeated event has that its forecast had not, or nothing."""
        if self.models is not None:
            known = record.given or b""  # models that have joined since were missing
            return "" if known + NO_NUMBER * (len(self.models) - len(known) // 8) == given else "scores"
        if self.numbers > 1:
            return "scores" if record.given != given else ""
        if record.score != score:
            return "score" if self.classes is None else "scores"
        return "groups" if self._without_cells(record.given) != self._without_cells(given) else ""

    def _without_cells(self, given: bytes | None) -> bytes | None:
        """What an event has given without the words of its numbers, which are others once the cells are fixed."""
        if given is None or self.groups is None or not self.groups.numbers:
            return given
        kept = [given[8 * k : 8 * k + 8] for k, name in enumerate(self.groups.given) if isinstance(name, str)]
        return b"".join(kept) + given[8 * len(self.groups.attributes) :]

    def outcome(self, event: OutcomeEvent | CorrectionEvent) -> Observed:
        """The outcome of an event in numbers. `Model.check_outcome` says whether its stream can learn it.

        Raises
        ------
        InvalidInput : it is none that the stream can have.
        """
        weight = 1.0 if event.weight is UNSET else event.weight
        if event.ones is not UNSET or event.of is not UNSET:
            return self._counted(event, weight)
        if event.outcome is not UNSET and event.label is not UNSET:
            raise InvalidInput("event must have either outcome or label, got both")
        if self.classes is None:
            if event.outcome is UNSET:
                got = "nothing" if event.label is UNSET else "a label"
                raise InvalidInput(f"outcome must be 0 or 1, as the stream has two classes without names, got {got}")
            return Observed(int(event.outcome or 0), weight)
        if event.label is UNSET and event.outcome is not UNSET and self.classes.labels == (0, 1):
            return Observed(int(event.outcome or 0), weight)  # the same by another name
        if event.label is UNSET:
            got = "nothing" if event.outcome is UNSET else f"the outcome {shown(event.outcome)}"
            raise InvalidInput(f"label must be one of {self.classes.words()}, got {got}")
        return Observed(self.classes.column(event.label), weight)

    def _counted(self, event: OutcomeEvent | CorrectionEvent, weight: float) -> Observed:
        """An outcome of many events."""
        if self.classes is not None:
            raise InvalidInput("of must be left out with many classes: a label is one event")
        if event.ones is UNSET or event.of is UNSET:
            raise InvalidInput(f"ones must come with of, got no {'ones' if event.ones is UNSET else 'of'}")
        if event.outcome is not UNSET or event.label is not UNSET:
            raise InvalidInput("event must have either outcome or ones and of, got both")
        if event.ones > event.of:
            raise InvalidInput(f"ones must be at most of, {event.of}, got {event.ones}")
        return Observed(event.ones, weight, event.of)

    def label(self, outcome: int | None) -> Any:
        """What people call an outcome."""
        return outcome if self.classes is None or outcome is None else self.classes.labels[outcome]

    def answer(self, record: Record) -> Answered:
        """The forecast of an event as it is answered."""
        if self.classes is None:
            return record.forecast if record.band is None else estimate_of(record.forecast, record.band)
        p = record.forecast
        values = [1.0 - p, p] if record.issued is None else np.frombuffer(record.issued).tolist()
        return values if isinstance(self.classes.given, int) else self.by_class(values)

    def by_class(self, values: list[float]) -> dict[str, float]:
        """Numbers of all classes by their names."""
        labels: Any = () if self.classes is None else self.classes.labels
        return dict(zip(map(str, labels), values, strict=True))


PLAIN = Shape()  # of most streams: two classes, one score
NO_NUMBER = np.array([np.nan]).tobytes()


@cache
def _several(models: int) -> SeveralMethod:
    return SeveralMethod(models)


@cache
def _with_kept(method: Method, kept: tuple[float, float]) -> Method:
    return replace(method, kept=kept)


def estimate_of(forecast: float, band: bytes) -> Estimate:
    """A forecast that says how sure it is, from the four numbers of its band."""
    low, high, outcomes, reason = np.frombuffer(band).tolist()
    return Estimate(forecast, low, high, outcomes, REASONS[int(reason)])


def words_of(given: bytes) -> tuple[int, ...]:
    """The words of an event's groups, with a sign as kernels have them."""
    return struct.unpack(f"<{len(given) // 8}q", given)


def _given(event: ForecastEvent) -> str:
    return "scores" if event.scores is not UNSET else "score" if event.score is not UNSET else "none"


def _made(classes: Any, groups: Any, method: Method, models: Any = UNSET, kept: Any = UNSET, **more: Any) -> Shape:
    """A new shape: how many classes or their names, the attributes of groups, the names of models, the shares kept."""
    shares = None if kept is UNSET else (kept.ones, kept.zeros) if isinstance(kept, KeptShares) else tuple(kept)
    if models is not UNSET:
        return _of_models(models, method, {"classes": classes, "groups": groups}, shares)
    if classes is not UNSET:
        return _of_classes(classes, method, groups, shares)
    return Shape(kept=shares) if groups is UNSET else _of_groups(groups, method, shares, **more)


def _of_classes(classes: Any, method: Method, groups: Any, kept: Any) -> Shape:
    if groups is not UNSET:
        raise InvalidInput(
            "groups must come with score, got scores or classes: many classes have no groups - use a stream for "
            "each class whose probability matters"
        )
    if kept is not None:
        raise InvalidInput("kept must be left out with classes: it is the shares of ones and of zeros")
    count = classes if isinstance(classes, int) else len(classes)
    if not 2 <= count <= MOST_CLASSES:
        raise InvalidInput(f"classes must be from 2 to {MOST_CLASSES}, got {count}")
    for name in () if isinstance(classes, int) else classes:
        if problem := bad_name("class", name):
            raise InvalidInput(problem)
    if method.band:
        MultiCalibrator(2, band=True)  # which says why there is none
    return Shape(Classes(classes))


def _of_groups(groups: Any, method: Method, kept: Any, **more: Any) -> Shape:
    attributes = [_attribute(given) for given in groups]
    for attribute in attributes:
        if problem := bad_name("group", attribute.name if isinstance(attribute, Number) else attribute):
            raise InvalidInput(problem)
    if not isinstance(method.learner, Lanes):
        raise InvalidInput("groups must be left out, as only auto and gauto take them, got a store of another method")
    if method.band:
        raise InvalidInput("groups must be left out with --band: the interval was not measured with them")
    found = Groups(attributes, seed=secrets.randbits(64), **more)
    made = Shape(groups=found, kept=kept)
    return made.knowing([number.start() for number in found.numbers]) if found.numbers else made


def _of_models(models: Any, method: Method, others: dict[str, Any], kept: Any) -> Shape:
    for name, value in others.items():
        if value is not UNSET:
            raise InvalidInput(f"{name} must be left out with models: several models do not have it yet")
    for name in models:
        if problem := bad_name("model", name):
            raise InvalidInput(problem)
    found = Models(models)
    found.check_setting(replace(method, band=False), kept, None, method.band)
    return Shape(models=found)


def _attribute(given: str | NumberGroup) -> str | Number:
    """An attribute of groups as the library has it."""
    if isinstance(given, str) or not given.number:
        return given if isinstance(given, str) else given.name
    more = {name: value for name in ("first", "cells", "edges") if (value := getattr(given, name)) is not UNSET}
    return Number(given.name, **more)
