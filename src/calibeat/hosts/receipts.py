"""Receipts in columns: what `issue` gives and `learn` wants back, as one block of bytes."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Self, overload

import numpy as np
import numpy.typing as npt

from calibeat._compiled import Forecast, MultiForecast
from calibeat._util.check import shown
from calibeat._util.columns import as_series
from calibeat._util.extras import need
from calibeat._util.types import Ints, Vector
from calibeat.core.band import reasons_of
from calibeat.core.receipt import BANDED
from calibeat.errors import InvalidInput, WithoutBand

from .rows import CLASSES_FOLLOW, DAMAGED, HEAD, HEDGE, NOT_OURS, PROBABILITY, ReceiptArray, are_whole

LEAST = 8 * (HEAD + 1)  # bytes of a receipt without lanes
_CELL = 2  # of the numbers of a receipt: of many classes how many they are


class Receipts:
    """A batch of receipts, each as `Forecast.to_bytes` writes it, in their order. Nothing in it can be changed.

    An index gives a `Forecast` (of many classes a `MultiForecast`), a slice a batch. Batches are equal if their bytes
    are. They can be pickled, written as bytes, and as a column of Arrow, which Parquet keeps.

    >>> from calibeat import Calibrator
    >>> from calibeat.hosts.receipts import Receipts
    >>> cal = Calibrator("ops")
    >>> batch = cal.issue([0.25, 0.5, 0.75])
    >>> len(batch), batch[1].probability, batch[1:].probabilities.round(6)
    (3, 0.5, array([0.5 , 0.75]))
    >>> Receipts.from_bytes(batch.to_bytes()) == batch
    True
    """

    __slots__ = ("_classes", "_data")

    def __init__(self, data: npt.NDArray[np.void], classes: Sequence[Any] | None = None) -> None:
        self._data = np.ascontiguousarray(data).view(f"V{data.dtype.itemsize}")
        self._data.flags.writeable = False
        self._classes = None if classes is None else tuple(classes)

    def __len__(self) -> int:
        return len(self._data)

    @overload
    def __getitem__(self, at: slice) -> Receipts: ...
    @overload
    def __getitem__(self, at: int) -> Any: ...
    def __getitem__(self, at: Any) -> Any:
        """The receipts of a slice, or one of them.

        Raises
        ------
        InvalidInput : the one is damaged, so that no forecast can be made of it.
        """
        if isinstance(at, slice):
            return Receipts(self._data[at], self._classes)
        data = self._data[operator.index(at)].tobytes()
        if self._classes is not None or data[1] == CLASSES_FOLLOW:
            return MultiForecast.from_bytes(data, self._classes)
        return Forecast.from_bytes(data)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Receipts):
            return NotImplemented
        return len(self) == len(other) and self._data.tobytes() == other._data.tobytes()

    __hash__ = None  # type: ignore[assignment]  # two that are equal may be large

    def __repr__(self) -> str:
        return f"Receipts({len(self)} of {self.size} bytes)"

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_bytes, (self.to_bytes(), self._classes, self.size)

    @property
    def size(self) -> int:
        """How many bytes each receipt has."""
        return self._data.dtype.itemsize

    @property
    def probabilities(self) -> Vector:
        """The forecasts: a number for each event; of many classes a row of K numbers."""
        numbers = self._data.view(np.float64).reshape(len(self), self.size // 8)
        if len(self) and self._data.view(np.uint8)[1] == CLASSES_FOLLOW:
            K = min(int(self._data.view(np.int64)[_CELL]), (self.size - LEAST) // 16)
            return numbers[:, HEAD : HEAD + K].copy()
        forecasts = numbers[:, PROBABILITY].copy()
        return forecasts if self._classes is None else np.stack([1.0 - forecasts, forecasts], axis=1)

    @property
    def low(self) -> Vector:
        """The lower end of each interval, where they were issued with ``band=True``."""
        return self._of_band("low", 0)

    @property
    def high(self) -> Vector:
        """The upper end of each interval."""
        return self._of_band("high", 1)

    @property
    def outcomes(self) -> Vector:
        """How many outcomes of exactly its score would make each forecast as good."""
        return self._of_band("outcomes", 2)

    @property
    def reason(self) -> npt.NDArray[np.str_]:
        """Why each may be worse than its interval says; empty where nothing is known."""
        return reasons_of(self._of_band("reason", 3))

    def _of_band(self, name: str, at: int) -> Vector:
        if (self._data.view(np.uint8).reshape(len(self), self.size)[:, 1] != BANDED).any():
            raise WithoutBand(f"receipts.{name} requires Calibrator(band=True) or Bank(band=True)")
        return self._data.view(np.float64).reshape(len(self), self.size // 8)[:, HEDGE + at].copy()

    def to_bytes(self) -> bytes:
        """The receipts one behind the other, each as `Forecast.to_bytes` gives it."""
        return self._data.tobytes()

    @classmethod
    def from_bytes(cls, data: bytes, classes: Sequence[Any] | None = None, *, size: int | None = None) -> Self:
        """The inverse of `to_bytes`; also what `Forecast.to_bytes` gave of several forecasts, joined.

        Parameters
        ----------
        classes : the labels of many classes, as they are to be given back; without them their numbers.
        size : how many bytes each receipt has. If it is not given, the first one says; those of more than 9,000 classes
            cannot, and it must be given.

        Raises
        ------
        InvalidInput : these are no bytes, or no whole number of receipts.
        """
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise InvalidInput(f"receipts must be bytes made by to_bytes, got {shown(data)}")
        data = bytes(data)
        size = _size_of_first(data) if size is None else size
        if size < LEAST or size % 8 or len(data) % size:
            raise InvalidInput(f"receipts must be bytes of a whole number of receipts of {size} bytes, got {len(data)}")
        return cls(np.frombuffer(data, dtype=f"V{size}"), classes)

    def to_arrow(self) -> Any:
        """As a column of Arrow, of binary values of fixed size.

        Raises
        ------
        MissingExtra : pyarrow is not installed.
        """
        pa = need("pyarrow", extra="frames", what="columns of receipts")
        return pa.Array.from_buffers(pa.binary(self.size), len(self), [None, pa.py_buffer(self._data)])

    @classmethod
    def from_arrow(cls, column: Any, classes: Sequence[Any] | None = None) -> Self:
        """The inverse of `to_arrow`; any column of binary values of one size: of pyarrow, polars, pandas, DuckDB.

        Parameters
        ----------
        classes : as in `from_bytes`.

        Raises
        ------
        InvalidInput : it is no column of binary values, one is missing, or they have different sizes.
        MissingExtra : narwhals or pyarrow is not installed.
        """
        pa = need("pyarrow", extra="frames", what="columns of receipts")
        series = as_series(column)
        if series is None:
            raise InvalidInput(f"receipts must be a column of binary values, got {shown(column)}")
        values = series.to_arrow()
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        kind = values.type
        if not (pa.types.is_fixed_size_binary(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
            raise InvalidInput(f"receipts must be a column of binary values, got {kind}")
        if values.null_count:
            row = int(np.asarray(values.is_null()).argmax())
            raise InvalidInput(f"receipt must be bytes made by to_bytes, got a missing value - at row {row}")
        if not pa.types.is_fixed_size_binary(kind):
            size = len(values[0].as_py()) if len(values) else LEAST
            try:
                values = values.cast(pa.binary(size))
            except pa.ArrowInvalid as error:
                raise InvalidInput(f"receipts must have one size, got others than {size} bytes: {error}") from error
        size, first = values.type.byte_width, values.offset
        data = memoryview(values.buffers()[1])[first * size : (first + len(values)) * size]
        return cls.from_bytes(data, classes, size=size)  # type: ignore[arg-type]  # a view of bytes

    # ---- for hosts --------------------------------------------------------------------------------------------------

    def of_type(self, kind: np.dtype[np.void]) -> ReceiptArray | None:
        """The receipts as records; None if those have another size."""
        return self._data.view(kind) if kind.itemsize == self.size else None

    def strangers(self) -> Ints:
        """What becomes of outcomes whose receipts have been issued elsewhere."""
        return np.where(are_whole(self._data), NOT_OURS, DAMAGED)


def check_receipts(batch: Any) -> Receipts:
    """Raise unless it is a batch of receipts."""
    if not isinstance(batch, Receipts):
        hint = " - use update for one" if isinstance(batch, (Forecast, MultiForecast)) else ""
        raise InvalidInput(f"receipts must be a batch made by issue or Receipts.from_bytes, got {shown(batch)}{hint}")
    return batch


def _from_bytes(data: bytes, classes: Any, size: int) -> Receipts:
    return Receipts.from_bytes(data, classes, size=size)


def _size_of_first(data: bytes) -> int:
    """How many bytes the first receipt says that it has."""
    if len(data) < LEAST:
        return LEAST
    numbers = int.from_bytes(data[2:4], "little")
    if data[1] != CLASSES_FOLLOW:  # lanes, and words of groups
        return LEAST + 8 * (numbers % 256 + numbers // 256)
    least = 2 * int.from_bytes(data[8 * _CELL : 8 * _CELL + 8], "little", signed=True)  # forecasts and scores
    return LEAST + 8 * (least + (numbers - least) % 65536)
