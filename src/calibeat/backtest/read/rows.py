"""From columns as they came to chunks that the replay can trust: every row is looked at once, here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from calibeat._util.times import FINE, MISSING, UNREADABLE, Clock, Moments, States, Times
from calibeat._util.types import Vector
from calibeat.backtest.replay.chunk import NEVER, Chunk, Flags, Trace, Whole
from calibeat.backtest.replay.engine import SMALL
from calibeat.errors import InvalidInput
from calibeat.report.schema import Skipped

from . import hints

CHUNK = 131_072  # rows to a chunk: enough that a call costs nothing, few enough to stay in the cache


@dataclass(frozen=True, eq=False)
class Numbers:
    """A column as numbers, and of each whether it was missing or could not be read."""

    values: Vector
    states: States


@dataclass(frozen=True, eq=False)
class Codes:
    """A column of keys: an index into `names` for each row, negative where there is none."""

    indices: Whole
    names: list[Any]


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows as they came. `said` shows what stood in a column (by its role) at a row, `where` names the row."""

    scores: Numbers
    outcomes: Numbers
    said: Callable[[str, int], str]
    where: Callable[[int], str]
    rows: Whole  # the number of each row in its file
    file: int = 0
    times: Times | None = None
    outcome_times: Times | None = None
    keys: Codes | None = None
    ids: list[Any] | None = None

    def __len__(self) -> int:
        return len(self.scores.values)


@dataclass(eq=False)
class _Piece:
    """Rows that can be used."""

    scores: Vector
    outcomes: Vector
    slots: Whole
    times: Whole | None
    arrivals: Whole | None  # outcome times
    rows: Whole | None = None  # where they came from, if that is asked for
    files: Whole | None = None
    ids: Any = None

    def take(self, rows: Any) -> _Piece:
        """Some of the rows."""
        columns: Any = (getattr(self, name) for name in _COLUMNS)
        taken: Any = [None if column is None else column[rows] for column in columns]
        return _Piece(*taken)


_COLUMNS = tuple(column.name for column in fields(_Piece))


@dataclass(frozen=True)
class Terms:
    """How a log is to be taken."""

    score_kind: str = "probability"  # or "percent" or "logit"
    skip_bad: bool = False
    sort: bool = False
    delay: int = 0  # in events, or in microseconds
    delay_is_time: bool = False
    hint: str = "say {option}"  # how a person sets an option here
    trace: bool = False  # whether chunks say where their events stand in the log


@dataclass(eq=False)
class Intake:
    """Checks batches and cuts them into chunks; counts what was skipped, and names the streams."""

    terms: Terms
    rows: int = 0
    names: list[str] = field(default_factory=list)
    clock: Clock = field(default_factory=Clock)
    _skipped: dict[str, list[Any]] = field(default_factory=dict)
    _notes: dict[str, int] = field(default_factory=dict)
    _slots: dict[str, int] = field(default_factory=dict)
    _seen_ids: set[str] = field(default_factory=set)
    _last_time: int | None = None

    @property
    def streams(self) -> int:
        """How many streams there are so far."""
        return max(1, len(self.names))

    @property
    def skipped(self) -> list[Skipped]:
        """What was left out, by reason."""
        return [{"reason": reason, "count": n, "first": first} for reason, (n, first) in self._skipped.items()]

    @property
    def notes(self) -> list[str]:
        """What a reader should know of how the log was read."""
        odd = [f"{count:,} scores were skipped{said}." for said, count in self._notes.items()]
        return self.clock.notes + odd

    def chunks(self, batches: Iterable[Batch]) -> Iterator[Chunk]:
        """The chunks of a log: the first is all of it or has 20,000 events."""
        pieces = (self._check(batch) for batch in batches)
        number = 0
        for piece in _gathered(_sorted(pieces) if self.terms.sort else pieces):
            yield self._chunk(piece, number)
            number += len(piece.scores)

    def skip(self, reason: str, first: str, count: int = 1) -> None:
        """Count rows that are left out."""
        entry = self._skipped.setdefault(reason, [0, first])
        entry[0] += count

    # ---- rows -----------------------------------------------------------------------------------------------------

    def _check(self, batch: Batch) -> _Piece:
        """The rows of a batch that can be used; raises on the first that cannot, unless those are to be skipped."""
        scores = _probabilities(batch.scores.values, self.terms.score_kind)
        times = None if batch.times is None else self.clock.read("time", batch.times)
        arrivals = None if batch.outcome_times is None else self.clock.read("outcome time", batch.outcome_times)
        keep = np.ones(len(batch), dtype=bool)
        # Each look is at the rows before what was found so far: what is raised last was first in the log.
        wrong = self._skip_or_stop(batch, self._problems(batch, scores, times, arrivals), keep)
        again = self._check_ids(batch, keep) if batch.ids is not None else None
        back = self._check_order(batch, times.values, keep) if times is not None and not self.terms.sort else None
        if found := back or again or wrong:
            raise InvalidInput(found)
        self.rows += len(batch)
        piece = _Piece(
            scores, batch.outcomes.values,
            np.zeros(len(batch), dtype=np.int64) if batch.keys is None else self._slots_of(batch.keys, keep),
            None if times is None else times.values, None if arrivals is None else arrivals.values,
        )  # fmt: skip
        if self.terms.trace:
            piece.rows, piece.files = batch.rows, np.full(len(batch), batch.file)
            piece.ids = None if batch.ids is None else np.array([_name(value) for value in batch.ids], dtype=object)
        return piece.take(keep)

    def _skip_or_stop(self, batch: Batch, problems: list[_Problem], keep: Flags) -> str | None:
        order = sorted(problems, key=lambda p: int(p.rows.argmax()))  # the first row that is wrong is named
        if order and not self.terms.skip_bad:
            row = int(order[0].rows.argmax())
            keep[row:] = False
            return order[0].sentence(row)
        for problem in order:
            bad = problem.rows & keep
            if bad.any():
                self.skip(problem.reason, batch.where(int(bad.argmax())), int(np.count_nonzero(bad)))
                keep &= ~bad
        return None

    def _problems(
        self, batch: Batch, scores: Vector, times: Moments | None, arrivals: Moments | None
    ) -> list[_Problem]:
        found = []

        def look(rows: Flags, reason: str, sentence: Callable[[int], str]) -> None:
            if rows.any():
                found.append(_Problem(rows, reason, sentence))

        def must(role: str, requirement: str, state: str = "") -> Callable[[int], str]:
            def sentence(row: int) -> str:
                got = "nothing" if state == "missing" else batch.said(role, row)
                return f"{role} must be {requirement}, got {got} - at {batch.where(row)}"

            return sentence

        wanted = {"probability": "in [0, 1]", "percent": "in [0, 100]", "logit": "a number"}[self.terms.score_kind]
        states = batch.scores.states
        look(states == MISSING, "score is missing", must("score", wanted, "missing"))
        plain = must("score", wanted)
        unreadable = states == UNREADABLE
        if unreadable.any():
            kind = hints.of_text(batch.said("score", int(unreadable.argmax())))
            hint = self._hint(kind, unreadable, plain)
            look(unreadable, "score is not a number", lambda row: plain(row) + hint)
        outside = (states == FINE) & ~((scores >= 0.0) & (scores <= 1.0))
        if outside.any():
            probable = self.terms.score_kind == "probability"
            kind = hints.of_numbers(batch.scores.values[states == FINE]) if probable else ""
            other = self._hint(kind, outside, plain)
            look(outside, f"score is not {wanted}", lambda row: plain(row) + other)
        self._look_at_outcomes(batch, look, must)
        self._look_at_times_and_keys(batch, times, arrivals, look, must)
        return found

    def _hint(self, kind: str, bad: Flags, said: Callable[[int], str]) -> str:
        """What the scores look like; where so many are of another kind, they are not skipped."""
        if not kind:
            return ""
        hint, count = hints.sentence(kind, self.terms.hint), int(np.count_nonzero(bad))
        if self.terms.skip_bad:
            if hints.no_accident(count, len(bad)):
                raise InvalidInput(said(int(bad.argmax())) + hint)
            self._notes[hint] = self._notes.get(hint, 0) + count
        return hint

    @staticmethod
    def _look_at_outcomes(batch: Batch, look: Any, must: Any) -> None:
        states, values = batch.outcomes.states, batch.outcomes.values
        missing = states == MISSING
        if batch.outcome_times is not None:  # an outcome without a value or a time has not arrived yet
            untimed = batch.outcome_times.states == MISSING
            late = must("outcome time", "there where there is an outcome", "missing")
            look(untimed & ~missing, "outcome time is missing", late)
            missing = missing & ~untimed
        look(missing, "outcome is missing", must("outcome", "0 or 1", "missing"))
        wrong = (states == UNREADABLE) | ((states == FINE) & (values != 0.0) & (values != 1.0))
        look(wrong, "outcome is not 0 or 1", must("outcome", "0 or 1 (or false or true)"))

    @staticmethod
    def _look_at_times_and_keys(
        batch: Batch, times: Moments | None, arrivals: Moments | None, look: Any, must: Any
    ) -> None:  # fmt: skip
        moment = "a date of the years 1 to 9999 (ISO 8601) or a number"
        for role, column in (("time", times), ("outcome time", arrivals)):
            if column is not None:
                look(column.states == UNREADABLE, f"{role} cannot be read", must(role, moment))
        if times is not None:
            look(times.states == MISSING, "time is missing", must("time", "there", "missing"))
        if times is not None and arrivals is not None:
            both = (times.states == FINE) & (arrivals.states == FINE)

            def early(row: int) -> str:
                said = f"outcome time must not be before the time of its event, {batch.said('time', row)}"
                return f"{said}, got {batch.said('outcome time', row)} - at {batch.where(row)}"

            look(both & (arrivals.values < times.values), "outcome time is before the time of its event", early)
        if batch.keys is not None:
            look(batch.keys.indices < 0, "key is missing", must("key", "there", "missing"))

    def _check_ids(self, batch: Batch, keep: Flags) -> str | None:
        ids = batch.ids or []
        for row in np.flatnonzero(keep).tolist():
            name = _name(ids[row])
            if name in self._seen_ids:
                if not self.terms.skip_bad:
                    keep[row:] = False
                    return (
                        f"event id must be there once only, got {batch.said('id', row)} again - at {batch.where(row)}"
                    )
                self.skip("event id came before", batch.where(row))
                keep[row] = False
            self._seen_ids.add(name)
        return None

    def _check_order(self, batch: Batch, times: Whole, keep: Flags) -> str | None:
        rows = np.flatnonzero(keep)
        if not len(rows):
            return None
        kept = times[rows]
        before = kept[0] if self._last_time is None else self._last_time
        back = np.diff(kept, prepend=before) < 0
        self._last_time = int(kept[-1])
        if not back.any():
            return None
        row = int(rows[back.argmax()])
        option = self.terms.hint.format(option="--sort to sort it in memory", argument="sort=True to sort it")
        said = f"time must not go back, got {batch.said('time', row)} after a later one"
        return f"{said} - at {batch.where(row)}; {option}"

    def _slots_of(self, keys: Codes, keep: Flags) -> Whole:
        """The stream of each row that is kept; a key is what it reads as, also where files have it in other types."""
        known = np.zeros(len(keys.names) + 1, dtype=np.int64)  # the last is where there is no key
        for at in np.unique(keys.indices[keep]).tolist():
            name = _name(keys.names[at])
            slot = self._slots.get(name)
            if slot is None:
                slot = self._slots[name] = len(self.names)
                self.names.append(name)
            known[at] = slot
        return known[keys.indices]

    # ---- arrivals -------------------------------------------------------------------------------------------------

    def _chunk(self, piece: _Piece, number: int) -> Chunk:
        n, delay = len(piece.scores), self.terms.delay
        clock = arrivals = None
        if piece.arrivals is not None:
            clock, arrivals = piece.times, piece.arrivals
        elif delay and self.terms.delay_is_time:
            if piece.times is None:
                raise InvalidInput("a delay in time needs the time of each event, got none")
            clock, arrivals = piece.times, piece.times + delay
        elif delay:
            clock = np.arange(number, number + n)
            arrivals = clock + 1 + delay
        if arrivals is not None:
            arrivals = np.where(np.isnan(piece.outcomes), NEVER, arrivals)
        times = piece.times if self.clock.dated else None
        trace = None
        if piece.rows is not None and piece.files is not None:
            trace = Trace(piece.rows, piece.files, piece.ids)
        return Chunk(piece.scores, piece.outcomes, piece.slots, clock, arrivals, times, trace)


@dataclass(frozen=True, eq=False)
class _Problem:
    rows: Flags
    reason: str
    sentence: Callable[[int], str]


def _name(value: Any) -> str:
    """A key or an id as it reads: 1, "1" and 1.0 are one."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _probabilities(values: Vector, kind: str) -> Vector:
    if kind == "percent":
        return values / 100.0
    if kind == "logit":
        return 0.5 * (1.0 + np.tanh(0.5 * values))
    return values


def _gathered(pieces: Iterable[_Piece]) -> Iterator[_Piece]:
    """Pieces put together until there is enough for a chunk."""
    waiting: list[_Piece] = []
    for piece in pieces:
        waiting.append(piece)
        if sum(len(one.scores) for one in waiting) >= max(CHUNK // 2, SMALL):
            yield _joined(waiting)
            waiting = []
    if sum(len(one.scores) for one in waiting):
        yield _joined(waiting)


def _joined(pieces: list[_Piece]) -> _Piece:
    def column(name: str) -> Any:
        columns = [getattr(piece, name) for piece in pieces]
        return None if columns[0] is None else np.concatenate(columns)

    return _Piece(*(column(name) for name in _COLUMNS))


def _sorted(pieces: Iterable[_Piece]) -> Iterator[_Piece]:
    """All of the log in the order of its times, equal ones in the order of the rows; in memory."""
    all_pieces = list(pieces)
    if not all_pieces:
        return
    whole = _joined(all_pieces)
    if whole.times is None:
        raise InvalidInput("to sort a log needs the time of each event, got none")
    order = np.argsort(whole.times, kind="stable")
    for at in range(0, len(order), CHUNK):
        yield whole.take(order[at : at + CHUNK])
