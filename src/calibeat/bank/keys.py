"""A column of keys as it comes in (a list, NumPy, Arrow, pandas, polars), checked once and laid out for the kernels."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from calibeat._util.check import shown
from calibeat._util.columns import to_array
from calibeat.core.jit import compilable, for_size
from calibeat.errors import InvalidInput

Key = int | str

_LEAST, _MOST = -(2**63), 2**63 - 1
_AT_ONCE = 4096
FEW = 64  # keys that are looked up one by one, in plain Python, rather than by compiled code


@dataclass(frozen=True)
class IntColumn:
    """Keys that are 64-bit integers."""

    keys: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.keys)

    def plain(self) -> list[int]:
        """The keys as a list."""
        return self.keys.tolist()


@dataclass(frozen=True)
class StringColumn:
    """Keys that are strings: UTF-8, one behind the other; key i is text[offsets[i]:offsets[i + 1]]."""

    text: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @classmethod
    def of(cls, strings: Sequence[str]) -> StringColumn:
        """From Python strings; a few thousand at once, so that each is fetched from memory once and not thrice."""
        parts: list[bytes] = []
        offsets = np.zeros(len(strings) + 1, dtype=np.int64)
        for first in range(0, len(strings), _AT_ONCE):
            chunk = list(strings[first : first + _AT_ONCE])
            joined = "".join(chunk)
            try:
                parts.append(joined.encode())
            except UnicodeEncodeError:
                row = next(row for row, string in enumerate(strings) if not _is_text(string))
                got = shown(strings[row])
                raise InvalidInput(f"key must be text that can be written as UTF-8, got {got} - at row {row}") from None
            # In plain ASCII a string has as many bytes as characters.
            ascii_only = len(parts[-1]) == len(joined)
            sizes = map(len, chunk) if ascii_only else (len(string.encode()) for string in chunk)
            offsets[first + 1 : first + 1 + len(chunk)] = np.fromiter(sizes, dtype=np.int64, count=len(chunk))
        np.cumsum(offsets, out=offsets)
        return cls(np.frombuffer(bytearray().join(parts), dtype=np.uint8), offsets)

    @classmethod
    def of_array(cls, strings: npt.NDArray[np.str_]) -> StringColumn:
        """From NumPy's strings of a fixed width, which need not become Python strings if they are plain ASCII."""
        strings = np.require(strings, strings.dtype.newbyteorder("="), ["C", "A"])
        width = strings.dtype.itemsize // 4
        text, offsets = np.empty(strings.size * width, dtype=np.uint8), np.zeros(strings.size + 1, dtype=np.int64)
        codes = strings.view(np.uint32) if text.size else np.empty(0, dtype=np.uint32)
        if for_size(narrow, len(strings))(np.require(codes, requirements=["W"]), width, text, offsets):
            return cls(text, offsets)
        return cls.of(strings.tolist())

    def plain(self) -> list[bytes]:
        """The keys as a list."""
        text, offsets = self.text.tobytes(), self.offsets.tolist()
        return [text[start:end] for start, end in pairwise(offsets)]


KeyColumn = IntColumn | StringColumn


@compilable
def narrow(
    codes: npt.NDArray[np.uint32], width: int, text: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]
) -> bool:
    """Strings of a fixed width, filled up with zeros, one behind the other; False if one is not plain ASCII."""
    used = 0
    for i in range(len(offsets) - 1):
        last = width
        while last > 0 and codes[i * width + last - 1] == 0:
            last -= 1
        for j in range(i * width, i * width + last):
            if codes[j] > 127:
                return False
            text[used] = codes[j]
            used += 1
        offsets[i + 1] = used
    return True


def check_key(key: Any) -> Key:
    """One key: an integer of 64 bits or a string."""
    if isinstance(key, str):
        if not _is_text(key):
            raise InvalidInput(f"key must be text that can be written as UTF-8, got {shown(key)}")
        return str.__str__(key)  # the text itself, also of an enumeration
    if isinstance(key, (int, np.integer)) and not isinstance(key, bool):
        if not _LEAST <= key <= _MOST:
            raise InvalidInput(f"key must fit into 64 bits, got {shown(key)}")
        return int(key)
    raise InvalidInput(f"key must be an int or a string, got {type(key).__name__} {shown(key)}")


def plain_key(key: Any) -> int | bytes:
    """One key as an index takes it: an int, or the UTF-8 of a string."""
    checked = check_key(key)
    return checked if isinstance(checked, int) else checked.encode()


def check_keys(keys: Any) -> KeyColumn:
    """A column of keys, all ints or all strings; names the first bad row."""
    if isinstance(keys, (str, bytes, bytearray, memoryview)):
        raise InvalidInput(f"keys must be a one-dimensional array of ints or strings, got {type(keys).__name__}")
    keys = to_array(keys)
    if isinstance(keys, Sequence) and not hasattr(keys, "__array__"):
        keys = list(keys)  # NumPy would make one kind of all of them
    else:
        keys = _array(keys)
        if keys.dtype.kind in "iu":
            return IntColumn(_int64(keys))
        if keys.dtype.kind == "U":
            return StringColumn.of_array(keys)
        if keys.dtype.kind != "O" and len(keys):
            raise InvalidInput(_not_a_key(keys))
    return _of_objects(keys)


def _array(keys: Any) -> npt.NDArray[Any]:
    array = np.asarray(keys)
    if array.ndim != 1:
        raise InvalidInput(f"keys must be a one-dimensional array of ints or strings, got shape {array.shape}")
    if isinstance(keys, np.ma.MaskedArray) and np.ma.is_masked(keys):
        row = int(np.ma.getmaskarray(keys).argmax())
        raise InvalidInput(f"key must be an int or a string, got a masked value - at row {row}")
    if array.dtype.kind == "T":  # NumPy's strings of any length
        return array.astype(object)
    return array


def _int64(keys: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    if keys.dtype == np.uint64 and (keys > np.uint64(_MOST)).any():
        row = int((keys > np.uint64(_MOST)).argmax())
        raise InvalidInput(f"key must fit into 64 bits with a sign, got {int(keys[row])} - at row {row}")
    return np.require(keys, np.int64, ["C", "A", "W"])


def _not_a_key(keys: npt.NDArray[Any]) -> str:
    """What is wrong with an array of floats, booleans, dates, bytes: a missing key first, it is the likely cause."""
    missing = np.isnan(keys) if keys.dtype.kind == "f" else np.zeros(len(keys), dtype=bool)
    row = int(missing.argmax())
    return f"key must be an int or a string, got {keys.dtype} {shown(keys[row].item())} - at row {row}"


def _of_objects(keys: Any) -> KeyColumn:
    if len(keys) and isinstance(keys[0], str):
        with suppress(TypeError):  # one of them is no string; the loop below finds it
            return StringColumn.of(keys)
    if len(keys) and set(map(type, keys)) == {int} and min(keys) >= _LEAST and max(keys) <= _MOST:
        return IntColumn(np.array(keys, dtype=np.int64))
    checked: list[Any] = []
    for row, key in enumerate(keys):
        try:
            checked.append(check_key(key))
        except InvalidInput as error:
            raise InvalidInput(f"{error} - at row {row}") from None
        if type(checked[row]) is not type(checked[0]):
            raise InvalidInput(
                f"keys must be all ints or all strings, got {type(checked[row]).__name__} {shown(key)} after "
                f"{type(checked[0]).__name__} {shown(checked[0])} - at row {row}"
            )
    return IntColumn(np.array(checked, dtype=np.int64))


def _is_text(string: str) -> bool:
    try:
        string.encode()
    except UnicodeEncodeError:
        return False
    return True
