"""From columns as they came to chunks that the replay can trust: every row is looked at once, here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from calibeat._check import Vector
from calibeat.errors import InvalidInput
from calibeat.report.payload import Skipped

from .chunk import NEVER, Chunk, Flags, Whole
from .engine import SMALL

CHUNK = 131_072  # rows to a chunk: enough that a call costs nothing, few enough to stay in the cache

FINE, MISSING, UNREADABLE = 0, 1, 2
States = npt.NDArray[np.int8]


@dataclass(frozen=True, eq=False)
class Numbers:
    """A column as numbers, and of each whether it was missing or could not be read."""

    values: Vector
    states: States


@dataclass(frozen=True, eq=False)
class Times:
    """A column of times: microseconds since 1970 where it has dates, numbers of an unknown unit where not."""

    values: Whole | Vector
    states: States
    dated: bool


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


@dataclass(frozen=True)
class Terms:
    """How a log is to be taken."""

    score_kind: str = "probability"  # or "percent" or "logit"
    skip_bad: bool = False
    sort: bool = False
    delay: int = 0  # in events, or in microseconds
    delay_is_time: bool = False
    hint: str = "say {option}"  # how a person sets an option here


@dataclass(eq=False)
class Intake:
    """Checks batches and cuts them into chunks; counts what was skipped, and names the streams."""

    terms: Terms
    rows: int = 0
    names: list[Any] = field(default_factory=list)
    dated: bool = False
    _skipped: dict[str, list[Any]] = field(default_factory=dict)
    _slots: dict[Any, int] = field(default_factory=dict)
    _seen_ids: set[Any] = field(default_factory=set)
    _last_time: int | None = None
    _unit: float | None = None

    @property
    def streams(self) -> int:
        """How many streams there are so far."""
        return max(1, len(self.names))

    @property
    def skipped(self) -> list[Skipped]:
        """What was left out, by reason."""
        return [{"reason": reason, "count": n, "first": first} for reason, (n, first) in self._skipped.items()]

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
        times = self._times(batch.times)
        arrivals = self._times(batch.outcome_times)
        keep = np.ones(len(batch), dtype=bool)
        problems = self._problems(batch, scores)
        order = sorted(problems, key=lambda p: int(p.rows.argmax()))  # the first row that is wrong is named
        for problem in order:
            bad = problem.rows & keep
            if not bad.any():
                continue
            row = int(bad.argmax())
            if not self.terms.skip_bad:
                raise InvalidInput(problem.sentence(row))
            self.skip(problem.reason, batch.where(row), int(np.count_nonzero(bad)))
            keep &= ~bad
        if batch.ids is not None:
            self._check_ids(batch, batch.ids, keep)
        self.rows += len(batch)
        if times is not None and not self.terms.sort:
            self._check_order(batch, times, keep)
        slots = np.zeros(len(batch), dtype=np.int64) if batch.keys is None else self._slots_of(batch.keys)
        return _Piece(
            scores[keep], batch.outcomes.values[keep], slots[keep],
            None if times is None else times[keep], None if arrivals is None else arrivals[keep],
        )  # fmt: skip

    def _problems(self, batch: Batch, scores: Vector) -> list[_Problem]:
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
        look(states == UNREADABLE, "score is not a number", must("score", wanted))
        outside = (states == FINE) & ~((scores >= 0.0) & (scores <= 1.0))
        if outside.any():
            hint = self._looks_like(batch.scores.values[states == FINE])
            plain = must("score", wanted)
            if hint and self.terms.skip_bad and 2 * np.count_nonzero(outside) > len(batch):
                raise InvalidInput(plain(int(outside.argmax())) + hint)
            look(outside, f"score is not {wanted}", lambda row: plain(row) + hint)
        self._look_at_outcomes(batch, look, must)
        self._look_at_times_and_keys(batch, look, must)
        return found

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
    def _look_at_times_and_keys(batch: Batch, look: Any, must: Any) -> None:
        for role, column in (("time", batch.times), ("outcome time", batch.outcome_times)):
            if column is not None:
                look(column.states == UNREADABLE, f"{role} cannot be read", must(role, "an ISO 8601 date or a number"))
        if batch.times is not None:
            look(batch.times.states == MISSING, "time is missing", must("time", "there", "missing"))
        if batch.keys is not None:
            look(batch.keys.indices < 0, "key is missing", must("key", "there", "missing"))

    def _looks_like(self, values: Vector) -> str:
        """A hint, where scores are of another kind."""
        if self.terms.score_kind != "probability":
            return ""
        values = values[np.isfinite(values)]
        if np.mean((values < 0.0) | (values > 1.0)) < 0.1:
            return ""
        low, high = float(values.min()), float(values.max())
        kind = "percent" if low >= 0.0 and 5.0 < high <= 100.0 else "logit" if low < 0.0 and high < 50.0 else ""
        if not kind:
            return ""
        said = {"percent": "percent", "logit": "logits"}[kind]
        option = self.terms.hint.format(option=f"--score-kind {kind}", argument=f"score_kind={kind!r}")
        return f"; the scores look like {said}: {option}"

    def _check_ids(self, batch: Batch, ids: list[Any], keep: Flags) -> None:
        for row in np.flatnonzero(keep).tolist():
            if ids[row] in self._seen_ids:
                if not self.terms.skip_bad:
                    said = f"event id must be there once only, got {batch.said('id', row)} again"
                    raise InvalidInput(f"{said} - at {batch.where(row)}")
                self.skip("event id came before", batch.where(row))
                keep[row] = False
            self._seen_ids.add(ids[row])

    def _check_order(self, batch: Batch, times: Whole, keep: Flags) -> None:
        rows = np.flatnonzero(keep)
        if not len(rows):
            return
        kept = times[rows]
        before = kept[0] if self._last_time is None else self._last_time
        back = np.diff(kept, prepend=before) < 0
        if back.any():
            row = int(rows[back.argmax()])
            option = self.terms.hint.format(option="--sort to sort it in memory", argument="sort=True to sort it")
            raise InvalidInput(
                f"time must not go back, got {batch.said('time', row)} after a later one - at {batch.where(row)}; "
                f"{option}"
            )
        self._last_time = int(kept[-1])

    def _times(self, column: Times | None) -> Whole | None:
        """Microseconds; numbers without dates that look like seconds, milli-, micro- or nanoseconds since 1970 get
        them, others count as seconds."""
        if column is None:
            return None
        fine = column.states == FINE
        if column.dated:
            self.dated = True
            return np.where(fine, column.values, NEVER).astype(np.int64)
        if self._unit is None:
            largest = float(np.abs(column.values[fine]).max(initial=0.0))
            size = np.searchsorted([1e8, 1e11, 1e14, 1e17], largest, side="right")
            self._unit = (1e6, 1e6, 1e3, 1.0, 1e-3)[size]
            self.dated = bool(size > 0)
        scaled = np.where(fine, column.values, 0.0) * self._unit
        if np.abs(scaled).max(initial=0.0) > 9e18:
            raise InvalidInput(
                f"times must be dates or seconds, got numbers as large as {np.abs(column.values).max():g}"
            )
        whole = scaled.round().astype(np.int64)
        whole[~fine] = NEVER
        return whole

    def _slots_of(self, keys: Codes) -> Whole:
        """The stream of each row."""
        known = np.empty(len(keys.names) + 1, dtype=np.int64)
        known[-1] = 0  # where there is no key, which is no row that is used
        for at, name in enumerate(keys.names):
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
        times = piece.times if self.dated else None
        return Chunk(piece.scores, piece.outcomes, piece.slots, clock, arrivals, times)


@dataclass(frozen=True, eq=False)
class _Problem:
    rows: Flags
    reason: str
    sentence: Callable[[int], str]


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

    return _Piece(*(column(name) for name in ("scores", "outcomes", "slots", "times", "arrivals")))


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
        rows = order[at : at + CHUNK]
        arrivals = None if whole.arrivals is None else whole.arrivals[rows]
        yield _Piece(whole.scores[rows], whole.outcomes[rows], whole.slots[rows], whole.times[rows], arrivals)
