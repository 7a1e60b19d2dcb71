"""How the streams of a store learn: a method, the seed of its draws, and the settings of its monitors.

A stream is bytes: its row, and its monitor. A fold copies those of some streams into matrices, does all operations in
one compiled call and gives the streams new bytes. There are no keys and nothing to undo: whoever fails to commit what
a fold has made throws it away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from calibeat._util.check import shown
from calibeat._util.types import Slots, Vector
from calibeat.core.method import Method, method_named
from calibeat.core.randomness import numbered, stream_key, uniforms_at
from calibeat.core.stats import EVENTS
from calibeat.errors import InvalidInput
from calibeat.hosts.rows import Matrix, check_rows, fold_on_rows, new_rows
from calibeat.monitor.bets import ALARMS, FORECASTS, PAGES, Alarm, Settings
from calibeat.monitor.monitors import Monitors
from calibeat.monitor.waiting import Event, Queue


@dataclass(slots=True, eq=False)
class StreamBytes:
    """What a model knows of a stream. None: it has seen nothing."""

    name: str
    state: bytes | None = None  # the row: state of the method, and stats behind it
    monitor: bytes | None = None  # as `Monitors.states` gives it
    queue: Queue | None = None  # what waits in the monitor; the store has it as events
    alarms: int = 0  # of the monitor
    draws: int | None = None  # names the stream's draws; made when it first draws


class Raised(NamedTuple):
    """The last alarm that a fold has raised in a stream. It pages if any of them did."""

    slot: int
    alarm: Alarm
    page: bool


class Folded(NamedTuple):
    """What a fold gives: for each operation its forecast or NaN, for each forecast its receipt, and new alarms."""

    forecasts: list[float]
    receipts: list[bytes]
    raised: list[Raised]


@dataclass(frozen=True)
class Model:
    """A method, the seed of its draws, and what its monitors are asked for, if there are any.

    >>> model, paris = Model.named("ops"), StreamBytes("paris")
    >>> model.fold([paris], [0, 0], [0.83, float("nan")], [float("nan"), 1.0], [-1, 0]).forecasts
    [0.83, nan]
    >>> len(paris.state) == 8 * model.width
    True
    """

    method: Method
    seed: int = 0
    watched: Settings | None = None

    @classmethod
    def named(cls, method: str, seed: int = 0, arl: float | None = None) -> Model:
        """The model of a preset; `arl` is that of its monitors.

        Raises
        ------
        UnknownMethod : there is no such preset.
        InvalidInput : its state does not fit a row.
        """
        chosen = method_named(method)
        if chosen.needs_history:
            raise InvalidInput(f"method must be one that lives in a row, such as auto or tops, got {shown(method)}")
        return cls(chosen, seed, None if arl is None else Settings(arl))

    @property
    def width(self) -> int:
        """How many numbers the row of a stream has."""
        return len(self._fresh) // 8

    @cached_property
    def _fresh(self) -> bytes:
        return new_rows(self.method, 1).tobytes()

    def rows(self, streams: Sequence[StreamBytes]) -> Matrix:
        """A copy of the rows."""
        joined = bytearray().join([stream.state or self._fresh for stream in streams])
        return np.frombuffer(joined).reshape(len(streams), self.width)

    def load(self, streams: Sequence[StreamBytes], unread: Sequence[Mapping[int, Event | None]]) -> None:
        """Check bytes that come from a store. `unread` is what the monitors hold, which their bytes leave out.

        Raises
        ------
        InvalidInput : a row or a monitor is not one that this model can have.
        """
        check_rows(self.method, self.rows(streams), 0.0)
        if self.watched is None:
            for stream in streams:
                stream.monitor = stream.queue = None
            return
        known = [(stream, stream.monitor, held) for stream, held in zip(streams, unread, strict=True) if stream.monitor]
        monitors, slots = Monitors(self.watched), np.arange(len(known), dtype=np.int32)
        monitors.resize(len(known))
        monitors.set_states(slots, [state for _, state, _ in known], [held for *_, held in known])
        for slot, (stream, *_) in enumerate(known):
            stream.queue = monitors.queues.get(slot)

    def fold(
        self,
        streams: Sequence[StreamBytes],
        slots: Sequence[int],
        scores: Sequence[float],
        outcomes: Sequence[float],
        own: Sequence[int],
        receipts: Sequence[bytes] = (),
        given_up: Iterable[tuple[int, int]] = (),
    ) -> Folded:
        """Do operations in their order, as `fold_on_rows`. `slots` are places in `streams`, which get new bytes.

        `given_up` are forecasts (slot, number) whose outcome will never come, for the monitors.
        """
        rows, at, known = self.rows(streams), np.array(slots, dtype=np.int32), np.array(outcomes)
        draws = self._draws(streams, rows, at[np.isnan(known)]) if self.method.draws else np.empty(0)
        monitors = None if self.watched is None else self._monitors(self.watched, streams, rows)
        before = None if monitors is None else monitors.matrix[:, [ALARMS, PAGES]]
        of = np.array(own, dtype=np.int64)
        made = fold_on_rows(self.method, rows, at, np.array(scores), known, of, receipts, draws, monitors)
        whole, size = rows.tobytes(), 8 * self.width
        for slot, stream in enumerate(streams):
            stream.state = whole[slot * size : (slot + 1) * size]
        raised: list[Raised] = []
        if monitors is not None and before is not None:
            for slot, number in given_up:
                monitors.update(slot, number, None)
            every = np.arange(len(streams), dtype=np.int32)
            states, counts = monitors.states(every), monitors.matrix[:, ALARMS].astype(int).tolist()
            for slot, stream in enumerate(streams):
                stream.monitor, stream.queue, stream.alarms = states[slot], monitors.queues.get(slot), counts[slot]
            new = np.flatnonzero(monitors.matrix[:, ALARMS] > before[:, 0]).astype(np.int32)
            pages = (monitors.matrix[:, PAGES] > before[:, 1]).tolist()
            for slot, found in zip(new.tolist(), monitors.alarms(new), strict=True):
                if found.last is not None:
                    raised.append(Raised(slot, found.last, pages[slot]))
        return Folded(made.forecasts.tolist(), made.receipts.tolist(), raised)

    def _draws(self, streams: Sequence[StreamBytes], rows: Matrix, slots: Slots) -> Vector:
        """The draws of forecasts: by seed, stream and number of the event."""
        for stream in streams:
            if stream.draws is None:
                stream.draws = stream_key(self.seed, stream.name)
        keys = np.array([stream.draws for stream in streams], dtype=np.uint64)
        return uniforms_at(keys[slots], numbered(rows[:, self.method.width + EVENTS].copy(), slots))

    def _monitors(self, settings: Settings, streams: Sequence[StreamBytes], rows: Matrix) -> Monitors:
        """The monitors of streams. One that is not there yet begins with the next forecast."""
        monitors = Monitors(settings)
        monitors.resize(len(streams))
        monitors.matrix[:, FORECASTS] = rows[:, self.method.width + EVENTS]
        known = [slot for slot, stream in enumerate(streams) if stream.monitor is not None]
        states = np.frombuffer(b"".join([streams[slot].monitor or b"" for slot in known]))
        monitors.matrix[known] = states.reshape(len(known), settings.width + 1)[:, :-1]
        monitors.queues = {slot: stream.queue for slot, stream in enumerate(streams) if stream.queue is not None}
        return monitors

    def map(self, state: bytes, count: int) -> tuple[list[float], list[float]]:
        """Some scores from 0 to 1, and what each becomes now. Nothing is learnt or changed."""
        scores, none = np.linspace(0.0, 1.0, count), np.full(count, np.nan)
        rows = np.tile(np.frombuffer(state), (count, 1))
        slots, own = np.arange(count, dtype=np.int32), np.full(count, -1)
        made = fold_on_rows(self.method, rows, slots, scores, none, own, (), np.empty(0))
        return [round(score, 2) for score in scores.tolist()], made.forecasts.tolist()
