"""The streams that an engine has in memory; others are read again when something happens to them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import islice

from calibeat.monitor.monitors import first_unread

from . import ops
from .events import Observed
from .listening import Listening
from .model import Model
from .store import Store
from .store.types import StreamState, settled_after, stored_cells, stored_names

MOST_STREAMS = 100_000  # of 3 to 6 KB each
MOST_TABLES = 256  # streams with groups whose tables are in memory, of 3 MB each at most
_WAITING = (
    "SELECT nth, kind, x, weight, trials FROM op WHERE stream = ? AND position > ? "  # noqa: S608 - our own numbers
    f"AND kind IN ({ops.CORRECT}, {ops.FORGET}) AND corrects IS NOT NULL ORDER BY position"
)


class StreamCache(dict[str, StreamState]):
    """Streams by their names; the one used last is at the end."""

    def __init__(self, store: Store, model: Model, listening: Listening) -> None:
        super().__init__()
        self._store, self._model, self._listening = store, model, listening
        self._tables: dict[str, None] = {}  # streams with groups among them, the one used last at the end

    def clear(self) -> None:
        """Forget all: memory is ahead of the store."""
        super().clear()
        self._tables.clear()

    def load(self, names: Collection[str]) -> None:
        """Have the streams of these names, those that there are."""
        wanted = [name for name in names if name not in self]
        if wanted:
            self._take(self._store.streams(wanted).values())

    def load_numbers(self, numbers: Collection[int]) -> dict[int, StreamState]:
        """Have the streams of these numbers -> all of them that there are."""
        known = {state.number: state for state in self.values()}
        wanted = [number for number in numbers if number not in known]
        if wanted:
            found = self._store.streams(wanted, "number").values()
            self._take(found)
            known |= {state.number: state for state in found}
        return known

    def _take(self, found: Collection[StreamState]) -> None:
        """Streams from the tables."""
        connection, streams = self._store.connection, list(found)
        is_watched = self._model.watched is not None
        unread = [
            settled_after(connection, state, first_unread(state.monitor)) if is_watched and state.monitor else {}
            for state in streams
        ]
        self._listening.check(streams)
        grouped = [state for state in streams if state.shape.groups is not None]
        self._model.load(streams, unread, {state.name: stored_cells(connection, state.number) for state in grouped})
        for state in grouped:
            if state.shape.groups is not None and state.shape.groups.names:
                names = stored_names(connection, state.number)
                state.book = {word: value for word, _, value in names}
                state.named = names[-1][1] + 1 if names else 0
        for state in streams:
            for nth, kind, x, weight, trials in connection.all(_WAITING, (state.number, state.applied)):
                if kind == ops.FORGET:
                    state.forgetting.add(nth)
                else:
                    state.waiting[nth] = None if x is None else Observed.of_stored(int(x), weight, trials)
            self[state.name] = state

    def use(self, names: Iterable[str]) -> None:
        """These were used last. Only the order of many matters: it says which leave."""
        is_half_full = len(self) > MOST_STREAMS // 2
        for name in names:
            state = self.get(name)
            if state is None:
                continue
            if is_half_full:
                del self[name]
                self[name] = state
            if state.table is not None:
                self._tables.pop(name, None)
                self._tables[name] = None

    @property
    def is_full(self) -> bool:
        """Whether some should leave soon."""
        return len(self) > MOST_STREAMS or len(self._tables) > MOST_TABLES

    def drop_unused(self) -> None:
        """Forget those that were not used for longest, if there are too many. All must be in the tables."""
        if len(self) > MOST_STREAMS:  # many at once: to look for the first one passes all that are gone
            for name in list(islice(self, len(self) - MOST_STREAMS * 3 // 4)):
                del self[name]
                self._tables.pop(name, None)
        while len(self._tables) > MOST_TABLES:
            oldest = next(iter(self._tables))
            del self._tables[oldest]
            self.pop(oldest, None)
