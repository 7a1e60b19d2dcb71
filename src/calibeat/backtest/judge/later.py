"""What if outcomes come later? Where a log has no times of outcomes, each is taken to be known before the next score.

The first events are kept, and the chosen method is replayed on them with outcomes that are late.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from calibeat._util.times import NEVER
from calibeat._util.types import Flags, Ints, Vector
from calibeat.backtest.read.rows import Chunk
from calibeat.backtest.replay.contenders import Contender, Context
from calibeat.backtest.replay.engine import Replayed, Runner
from calibeat.backtest.replay.late import Underway
from calibeat.backtest.replay.tally import floor_of, judged
from calibeat.core.randomness import stream_key, uniforms
from calibeat.report.schema import LaterInfo, LaterRow

MOST_KEPT = 200_000  # events, and
MOST_NUMBERS = 4 * MOST_KEPT  # scores, of many classes
EVENTS_LATE = (100, 1000)  # the second where there are no days
DAY = 86_400_000_000
LEAST_DAYS = 3  # of a log that is replayed with outcomes of a day


@dataclass(frozen=True)
class Lateness:
    """How late outcomes come: by events, or by microseconds."""

    text: str
    events: int = 0
    microseconds: int = 0

    def clock(self, chunk: Chunk) -> tuple[Ints, Ints]:
        """The clock of a chunk, and when its outcomes arrive on it."""
        clock = chunk.times if self.microseconds and chunk.times is not None else np.arange(len(chunk))
        arrivals = clock + (self.microseconds or 1 + self.events)
        return clock, np.where(np.isnan(chunk.outcomes), NEVER, arrivals)


class FirstEvents:
    """Keeps the first events of a log whose outcomes are known at once."""

    def __init__(self) -> None:
        self._chunks: list[Chunk] = []
        self._judged: list[Flags] = []
        self._full = False

    def add(self, chunk: Chunk, place: Ints) -> None:
        """Keep a chunk, as far as there is room."""
        most = max(1, min(MOST_KEPT, MOST_NUMBERS // chunk.numbers)) - sum(map(len, self._chunks))
        if chunk.clock is None and not self._full:
            self._chunks.append(replace(chunk.part(slice(0, most)), trace=None))
            self._judged.append(place[:most] > 0)
            self._full = most <= len(chunk)

    def replay(self, replayed: Replayed, runner: Runner, seed: int) -> LaterInfo | None:
        """The chosen method with outcomes at once and late; None where it cannot be told."""
        contender = runner.contender
        if not self._chunks or not np.any(np.concatenate(self._judged)) or (contender.method or contender.base) is None:
            return None
        chunk, counted = _joined(self._chunks), np.concatenate(self._judged)
        later = [lateness for lateness in _latenesses(chunk) if _fits(lateness, chunk)]
        if not later:
            return None
        raw = _loss(chunk, chunk.scores, counted)
        rows: list[LaterRow] = []
        for lateness in (None, *later):
            forecasts = _forecasts(contender, chunk, lateness, replayed.streams, seed)
            loss = _loss(chunk, forecasts, counted)
            text = "at once" if lateness is None else lateness.text
            rows.append({"delay": text, "log_loss": loss, "gain": (raw - loss) / raw})
        return {
            "method": runner.name,
            "events": len(chunk),
            "whole": len(chunk) == replayed.events,
            "raw_log_loss": raw,
            "rows": rows,
            "sentence": sentence(rows, contender.label, None if len(chunk) == replayed.events else len(chunk)),
        }


def _joined(chunks: list[Chunk]) -> Chunk:
    first = chunks[0]

    def column(name: str) -> Any:
        return None if getattr(first, name) is None else np.concatenate([getattr(chunk, name) for chunk in chunks])

    columns = {name: column(name) for name in ("scores", "outcomes", "slots", "times", "others", "words")}
    return replace(first, **columns)


def _latenesses(chunk: Chunk) -> list[Lateness]:
    """A hundred events, and a day; a thousand events where there are no days."""
    few, many = (Lateness(f"{events:,} events late", events=events) for events in EVENTS_LATE)
    days = 0.0 if chunk.times is None else float(chunk.times[-1] - chunk.times[0]) / DAY
    return [few, Lateness("a day late", microseconds=DAY) if days >= LEAST_DAYS else many]


def _fits(lateness: Lateness, chunk: Chunk) -> bool:
    """Whether half of the outcomes arrive before the last score."""
    clock, arrivals = lateness.clock(chunk)
    return bool(2 * np.count_nonzero(arrivals <= clock[-1]) >= np.count_nonzero(~np.isnan(chunk.outcomes)))


def _forecasts(contender: Contender, chunk: Chunk, lateness: Lateness | None, streams: int, seed: int) -> Vector:
    draws = uniforms(stream_key(seed, 0), 0, len(chunk))
    replay = contender.start(False)
    if lateness is None:
        return replay.feed(Context(chunk, None, draws, streams))
    clock, arrivals = lateness.clock(chunk)
    late = replace(chunk, clock=clock, arrivals=arrivals)
    return replay.feed(Context(late, Underway().plan(late), draws, streams))


def _loss(chunk: Chunk, forecasts: Vector, counted: Flags) -> float:
    """The log-loss of what is judged, as the leaderboard has it."""
    chances = judged(forecasts[counted], chunk.outcomes[counted]).chances
    return float(-np.log(np.maximum(chances, floor_of(chunk.numbers))).mean())


def sentence(rows: list[LaterRow], label: str, first: int | None) -> str:
    """What is assumed, and what the gain would be if it were not so."""
    told = [f"{row['delay']}, {_gain(row['gain'])}" for row in rows[1:]]
    where = "" if first is None else f" (on the first {first:,} events, where it is {_gain(rows[0]['gain'])} at once)"
    return (
        "This assumes that each outcome is known before the next score. If outcomes came later, "
        f"{label} would have, against the raw score: {'; '.join(told)}{where}."
    )


def _gain(gain: float) -> str:
    if not math.isfinite(gain):
        return "as much log-loss"
    return f"{100 * abs(gain):.1f} % {'less' if gain >= 0.0 else 'more'} log-loss"
