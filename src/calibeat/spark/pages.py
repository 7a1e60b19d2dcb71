"""Tables of Arrow in a store of pages: many small pages, so that a batch rewrites what it touches and no more.

A page is found by a hash that came with the data. Each page holds rows with their hashes and stays what it is until one
of its rows changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from calibeat._util.types import Flags, Ints


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


class Region:
    """Some of the pages of a store, from one number to another, with numbers of their own from 0 on."""

    def __init__(self, store: Store, begin: int, end: int) -> None:
        self._store, self._begin, self._end = store, begin, end

    def get(self, page: int) -> bytes | None:
        """The content of a page, None if there is none."""
        return self._store.get(self._begin + page)

    def put(self, page: int, content: bytes) -> None:
        """Replace the content of a page."""
        self._store.put(self._begin + page, content)

    def remove(self, page: int) -> None:
        """Forget a page."""
        self._store.remove(self._begin + page)

    def pages(self) -> list[int]:
        """Which there are."""
        return [page - self._begin for page in self._store.pages() if self._begin <= page < self._end]


class Taken(NamedTuple):
    """Pages that were taken, to be given back to `put`: which they are, and the rows in them that stay."""

    pages: Ints
    rest: Any


class Pages:
    """Rows of one schema, whose first column is `hash`, in `count` pages of a store."""

    def __init__(self, store: Store, schema: Any, count: int) -> None:
        self._store, self.schema, self._count = store, schema, count

    def take(self, hashes: Ints) -> tuple[Any, Taken]:
        """The rows with one of these hashes, out of their pages."""
        wanted = np.sort(hashes)
        pages = np.flatnonzero(np.bincount(self._page_of(hashes), minlength=self._count))
        table = self._read(pages.tolist())
        mask = is_in(table["hash"].to_numpy(), wanted) if len(table) else np.empty(0, dtype=bool)
        return self._split(table, mask, pages)

    def sweep(self, leave: Callable[[Any], Flags]) -> tuple[Any, Taken]:
        """Look at every page: the rows that are to leave, out of their pages."""
        tables = {page: self._read([page]) for page in self._store.pages()}
        masks = {page: leave(table) for page, table in tables.items()}
        pages = [page for page, mask in masks.items() if mask.any()]
        if not pages:
            return self.schema.empty_table(), Taken(np.empty(0, dtype=np.int64), self.schema.empty_table())
        import pyarrow as pa

        table, mask = (
            pa.concat_tables([tables[page] for page in pages]),
            np.concatenate([masks[page] for page in pages]),
        )
        return self._split(table, mask, np.array(pages))

    def _split(self, table: Any, mask: Flags, pages: Ints) -> tuple[Any, Taken]:
        import pyarrow as pa

        if not mask.any():
            return self.schema.empty_table(), Taken(pages, table)
        return table.filter(pa.array(mask)), Taken(pages, table.filter(pa.array(~mask)))

    def put(self, rows: Any, taken: Taken) -> None:
        """Write the pages that were taken, with these rows in them."""
        import pyarrow as pa

        table = pa.concat_tables([taken.rest, rows])
        page_of = self._page_of(table["hash"].to_numpy()) if len(table) else np.empty(0, dtype=np.int64)
        order = np.argsort(page_of.astype(np.uint16), kind="stable")  # by counting
        table, page_of = table.take(pa.array(order)).combine_chunks(), page_of[order]
        begins, ends = (np.searchsorted(page_of, taken.pages, side=side).tolist() for side in ("left", "right"))
        for page, begin, end in zip(taken.pages.tolist(), begins, ends, strict=True):
            if begin < end:
                self._store.put(page, packed(table.slice(begin, end - begin)))
            else:
                self._store.remove(page)

    def _page_of(self, hashes: Ints) -> Ints:
        # The lowest bits chose the bucket.
        return (hashes >> np.int64(32)) % self._count

    def _read(self, pages: list[int]) -> Any:
        import pyarrow as pa

        contents = [self._store.get(page) for page in pages]
        tables = [with_columns(unpacked(content), self.schema) for content in contents if content is not None]
        return pa.concat_tables(tables).combine_chunks() if tables else self.schema.empty_table()


def is_in(values: Ints, wanted: Ints) -> Flags:
    """Which values are among the wanted ones, which are sorted."""
    at = np.searchsorted(wanted, values)
    found: Flags = wanted[np.minimum(at, len(wanted) - 1)] == values
    return found


def with_columns(table: Any, schema: Any) -> Any:
    """A table with the columns of a schema, empty where it has none of that name."""
    import pyarrow as pa

    for field in schema:
        if field.name not in table.column_names:
            table = table.append_column(field, pa.nulls(len(table), field.type))
    return table.select(schema.names)


def packed(table: Any) -> bytes:
    """A table as bytes: a stream of Arrow's IPC, compressed: Spark needs longer for the bytes that this saves."""
    import pyarrow as pa

    options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def unpacked(content: Any) -> Any:
    """The inverse."""
    import pyarrow as pa

    return pa.ipc.open_stream(content, options=pa.ipc.IpcReadOptions(use_threads=False)).read_all()
