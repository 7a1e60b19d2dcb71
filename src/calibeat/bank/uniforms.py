"""The draws of a bank's hedging: for each event a function of the seed, its stream and its number in the stream."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from calibeat._util.types import Slots, Vector
from calibeat.core.randomness import numbered, stream_key, uniforms_at
from calibeat.core.stats import EVENTS

from .keys import KeyColumn
from .store import RowStore


class Draws:
    """One stream for all keys, or one that is named after each; nothing at all where nothing is drawn."""

    def __init__(self, seed: int, *, independent: bool, hedges: bool) -> None:
        self._seed, self._independent, self._hedges = seed, independent, hedges
        self._streams: npt.NDArray[np.uint64] = np.empty(0, dtype=np.uint64)  # of the first slots, as far as asked for

    def of(self, store: RowStore, slots: Slots) -> Vector:
        """The draw of each event, whose slots are given in the order of the events."""
        if not self._hedges:
            return np.empty(0)
        streams = self._named(store)[slots] if self._independent else np.uint64(stream_key(self._seed, 0))
        if len(slots) < len(store):  # few events: do not look at all the rows
            used, places = np.unique(slots, return_inverse=True)
            return uniforms_at(streams, numbered(store.stats(EVENTS)[used], places.astype(np.int32)))
        return uniforms_at(streams, numbered(store.stats(EVENTS).copy(), slots))

    def of_all(self, store: RowStore, column: KeyColumn, slots: Slots) -> Vector:
        """The same where some keys have no slot: each of these is a stream that begins."""
        known = slots >= 0
        if not self._hedges or known.all():
            return self.of(store, slots)
        strangers = RowStore(store.method)
        draws = Draws(self._seed, independent=self._independent, hedges=True).of(strangers, strangers.open(column))
        draws[known] = self.of(store, slots[known])
        return draws

    def forget_from(self, slot: int) -> None:
        """The slots from this one on belong to other keys now."""
        self._streams = self._streams[:slot]

    def _named(self, store: RowStore) -> npt.NDArray[np.uint64]:
        streams, keys = self._streams, store.index  # read once: several threads may ask a bank that nobody changes
        if len(streams) < len(store) and keys is not None:
            new = [stream_key(self._seed, keys.key(slot)) for slot in range(len(streams), len(store))]
            self._streams = streams = np.concatenate([streams, np.array(new, dtype=np.uint64)])
        return streams
