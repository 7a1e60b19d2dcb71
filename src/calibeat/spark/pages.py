"""Tables of Arrow in a store of pages: many small pages, so that a batch rewrites what it touches and no more.

A page is found by a hash that came with the data. Each page holds rows with their hashes and stays what it is until one
of its rows changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from calibeat._util.types import Flags, Ints

from .columns import packed, unpacked


class Store(Protocol):
    """Where pages are kept: bytes by a whole number."""

    def get(self, page: int) -> bytes | None:
        """The content of a page, None if there is none."""

    def put(self, page: int, content: bytes) -> None:
        """Replace the content of a page."""

    def remove(self, page: int) -> None:
        """Forget a page."""

    def pages(self) -> list[int]:
        """Which there are."""


class Pages:
    """Rows of one schema, whose first column is `hash`, in `count` pages of a store."""

    def __init__(self, store: Store, schema: Any, count: int) -> None:
        self._store, self.schema, self._count = store, schema, count

    def take(self, hashes: Ints) -> tuple[Any, dict[int, Any]]:
        """The rows with one of these hashes, and by page those that stay: give both back to `put`."""
        import pyarrow as pa

        wanted = np.unique(hashes)
        found, stay = [], {}
        for page in np.unique(self._page_of(wanted)).tolist():
            table = self._read(page)
            mask = _isin(table["hash"].to_numpy(), wanted) if len(table) else np.empty(0, dtype=bool)
            found.append(table.filter(pa.array(mask)))
            stay[page] = table.filter(pa.array(~mask))
        return pa.concat_tables(found) if found else self.schema.empty_table(), stay

    def put(self, rows: Any, stay: dict[int, Any]) -> None:
        """Write the pages that were taken, with these rows in them."""
        import pyarrow as pa

        page_of = self._page_of(rows["hash"].to_numpy()) if len(rows) else np.empty(0, dtype=np.int64)
        order = np.argsort(page_of, kind="stable")
        rows, page_of = rows.take(pa.array(order)), page_of[order]
        for page, kept in stay.items():
            begin, end = np.searchsorted(page_of, [page, page + 1]).tolist()
            self._write(page, pa.concat_tables([kept, rows.slice(begin, end - begin)]))

    def sweep(self, leave: Callable[[Any], Flags]) -> tuple[Any, dict[int, Any]]:
        """Look at every page: the rows that are to leave, and those that stay, as `take` gives them."""
        import pyarrow as pa

        found, stay = [self.schema.empty_table()], {}
        for page in self._store.pages():
            table = self._read(page)
            mask = leave(table)
            if mask.any():
                found.append(table.filter(pa.array(mask)))
                stay[page] = table.filter(pa.array(~mask))
        return pa.concat_tables(found), stay

    def _page_of(self, hashes: Ints) -> Ints:
        # The lowest bits chose the bucket.
        return (hashes >> np.int64(32)) % self._count

    def _read(self, page: int) -> Any:
        import pyarrow as pa

        content = self._store.get(page)
        if content is None:
            return self.schema.empty_table()
        table = unpacked(content)
        for field in self.schema:  # other columns than when the page was written
            if field.name not in table.column_names:
                table = table.append_column(field, pa.nulls(len(table), field.type))
        return table.select(self.schema.names)

    def _write(self, page: int, table: Any) -> None:
        if len(table):
            self._store.put(page, packed(table.combine_chunks()))
        else:
            self._store.remove(page)


def _isin(values: Ints, wanted: Ints) -> Flags:
    """Which values are among the wanted ones, which are sorted."""
    at = np.searchsorted(wanted, values)
    found: Flags = wanted[np.minimum(at, len(wanted) - 1)] == values
    return found
