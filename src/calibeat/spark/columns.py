"""Columns of Arrow as arrays of NumPy and back, without an object for each value."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from calibeat._util.types import Flags, Ints
from calibeat.errors import SnapshotMismatch


def one_array(column: Any) -> Any:
    """A column of a table in one piece."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def numbered(hashes: Ints, names: list[Any]) -> tuple[Ints, Ints]:
    """Number what has the same names: where each number is first, and the number of each row.

    Rows are told apart by their hashes first. Where two names share a hash, the names themselves decide.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    names = [one_array(name) for name in names]
    _, first, codes = np.unique(hashes, return_index=True, return_inverse=True)
    representative = pa.array(first[codes])
    if all(pc.all(pc.equal(name, name.take(representative))).as_py() is not False for name in names):
        return first, codes
    numbers: dict[Any, int] = {}
    rows = zip(*(name.to_pylist() for name in names), strict=True)
    codes = np.array([numbers.setdefault(row, len(numbers)) for row in rows], dtype=np.int64)
    return np.unique(codes, return_index=True)[1], codes


def matrix_of(column: Any, size: int, what: str) -> tuple[npt.NDArray[np.uint8], Ints]:
    """Values of bytes that all have one size, as the rows of a matrix; and of each value its row, -1 for nothing."""
    array = one_array(column)
    n = len(array)
    there = np.asarray(array.is_valid().to_numpy(zero_copy_only=False), dtype=bool)
    if not there.any():
        return np.empty((0, size), dtype=np.uint8), np.full(n, -1)
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)[array.offset : array.offset + n + 1].astype(np.int64)
    wrong = there & (np.diff(ends) != size)
    if wrong.any():
        got = int(np.diff(ends)[int(wrong.argmax())])
        raise SnapshotMismatch(f"{what} must have {size} bytes, got {got}; is the state of another method?")
    content = np.frombuffer(data, dtype=np.uint8)[ends[0] : ends[-1]].reshape(-1, size)
    return content, np.where(there, np.cumsum(there) - 1, -1)


def bytes_of(matrix: npt.NDArray[Any], there: Flags | None = None) -> Any:
    """The rows of a matrix as a column of bytes; with `there`, nothing where it is False, and a row for each True."""
    import pyarrow as pa

    size = matrix.dtype.itemsize * (matrix.shape[1] if matrix.ndim > 1 else 1)
    n = len(matrix) if there is None else len(there)
    sizes = np.full(n, size) if there is None else there * size
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    valid = None if there is None else pa.py_buffer(np.packbits(there, bitorder="little").tobytes())
    data = pa.py_buffer(np.ascontiguousarray(matrix).tobytes())
    return pa.Array.from_buffers(pa.binary(), n, [valid, pa.py_buffer(offsets.tobytes()), data])


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
