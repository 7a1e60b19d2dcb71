"""Events that have their outcome: written once, and found by their hash where a score or an outcome comes again.

The events that are settled in one micro-batch of a bucket are one segment, which is never changed. An index in pages
tells for each hash in which segment it is. So a micro-batch writes what is new and the index, and reads no segment
unless something is repeated.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from calibeat._util.types import Ints

from .columns import packed, unpacked
from .pages import Pages, Region, Store, Taken, is_in, with_columns

# Places in the store of events: its own pages are below.
INDEX, META, SEGMENTS, END = 1 << 12, 1 << 13, 1 << 20, (1 << 31) - 1
_SWEPT = -1  # the line of the table of segments that says up to which time events are forgotten


class Settled:
    """The settled events of a bucket, in a store that it shares with those that wait."""

    def __init__(self, store: Store, schema: Any, pages: int, *, forgets: bool) -> None:
        import pyarrow as pa

        self._store, self._schema, self._forgets = store, schema, forgets
        kinds = pa.schema([("hash", pa.int64()), ("segment", pa.int32())])
        self._index = Pages(Region(store, INDEX, META), kinds, pages)
        self._segments = pa.schema([("segment", pa.int32()), ("latest", pa.int64())])

    def find(self, hashes: Ints) -> tuple[Any, tuple[Any, Taken]]:
        """The events with one of these hashes; and their places in the index, to be given back to `add`."""
        import pyarrow as pa

        places, taken = self._index.take(hashes)
        found = [self._schema.empty_table()]
        if len(places):
            segments = np.unique(places["segment"].to_numpy())
            swept = int(self._latest()[_SWEPT])
            for segment in segments.tolist():
                content = self._store.get(SEGMENTS + segment)
                if content is not None:
                    table = with_columns(unpacked(content), self._schema)
                    mask = is_in(table["hash"].to_numpy(), np.unique(hashes)) & (table["time"].to_numpy() > swept)
                    found.append(table.filter(pa.array(mask)))
        return pa.concat_tables(found), (places, taken)

    def add(self, rows: Any, places: tuple[Any, Taken]) -> None:
        """Events that are settled now."""
        import pyarrow as pa

        if not len(rows):
            return
        latest = self._latest()
        segment = max(latest) + 1
        stored = [name for name in rows.column_names if name not in ("receipt", "known")]
        self._store.put(SEGMENTS + segment, packed(rows.select(stored).combine_chunks()))
        new = pa.table([rows["hash"], pa.array(np.full(len(rows), segment, dtype=np.int32))], names=["hash", "segment"])
        known, taken = places
        self._index.put(pa.concat_tables([known, new]), taken)
        # Where nothing is ever forgotten, only the last number is needed.
        before = latest if self._forgets else {_SWEPT: latest[_SWEPT]}
        self._note({**before, segment: int(rows["time"].to_numpy().max())})

    def forget(self, limit: int) -> None:
        """Forget events up to a time. Segments go when all of their events are that old."""
        latest = self._latest()
        if not latest.keys() - {_SWEPT}:
            return
        gone = [segment for segment, time in latest.items() if segment != _SWEPT and time <= limit]
        for segment in gone:
            self._store.remove(SEGMENTS + segment)
        if gone:
            _, taken = self._index.sweep(lambda table: np.isin(table["segment"].to_numpy(), gone))
            self._index.put(self._index.schema.empty_table(), taken)
        # The last one stays in the table, so that no number is given twice.
        kept = {segment: time for segment, time in latest.items() if segment not in gone or segment == max(latest)}
        self._note({**kept, _SWEPT: max(limit, latest[_SWEPT])})

    def _latest(self) -> dict[int, int]:
        """By segment, the latest time of its events."""
        content = self._store.get(META)
        if content is None:
            return {_SWEPT: np.iinfo(np.int64).min}
        table = unpacked(content)
        return dict(zip(table["segment"].to_pylist(), table["latest"].to_pylist(), strict=True))

    def _note(self, latest: dict[int, int]) -> None:
        import pyarrow as pa

        self._store.put(META, packed(pa.table([list(latest), list(latest.values())], schema=self._segments)))
