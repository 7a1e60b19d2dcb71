"""The host of many streams with the same classes: a matrix with a row for each key."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from calibeat._util.check import check_choice, check_due, check_whole, shown
from calibeat._util.columns import to_array
from calibeat._util.matrix import like_matrix
from calibeat._util.types import Ints, Vector
from calibeat.bank import file as bankfile
from calibeat.bank.bank import Bank
from calibeat.bank.check import check_index, check_table, check_text
from calibeat.bank.hashing import MOST_SEED, Seed
from calibeat.bank.index import Index, IntIndex, StringIndex, with_room
from calibeat.bank.keys import IntColumn, Key, KeyColumn, check_key, check_keys, plain_key
from calibeat.bank.late import Arrivals
from calibeat.core.jit import for_cost
from calibeat.core.presets import AUTO
from calibeat.errors import InvalidInput, SnapshotMismatch, UnknownKey

from . import layout, loops
from .calibrator import METHODS
from .check import Classes, Label, check_scores
from .receipts import PENDING
from .vector import PLAIN_SECONDS

_BAD_FILE = (InvalidInput, KeyError, TypeError, ValueError, AttributeError, OverflowError)


class MultiBank:
    r"""A `MultiCalibrator` for each of any number of keys: same classes, same method, same bits.

    Parameters
    ----------
    classes, method, logits : as of a `MultiCalibrator`.

    >>> from calibeat import MultiBank
    >>> bank = MultiBank(["cat", "dog", "bird"])
    >>> keys, scores = ["paris", "rome", "paris"], [[0.2, 0.5, 0.3], [0.1, 0.1, 0.8], [0.4, 0.4, 0.2]]
    >>> P = bank.run(keys, scores, ["cat", "bird", "cat"])
    >>> len(bank), "rome" in bank, list(bank), P.shape
    (2, True, ['paris', 'rome'], (3, 3))
    >>> bank.table["events"]
    array([2, 1])

    A key takes 8 (77 + 20 K) bytes, and 16 K^2 more up to K = 64: a million keys of ten classes take 3.8 GB. Threads
    may share a bank; each call waits for the one before. A call takes effect whole or not at all.
    """

    def __init__(self, classes: Any, method: str = "multi", logits: bool = False) -> None:
        if not isinstance(logits, (bool, np.bool_)):
            raise InvalidInput(f"logits must be True or False, got {logits!r:.60}")
        self._classes = Classes(classes)
        self._method, self._logits = check_choice("method", method, METHODS), bool(logits)
        pair = self._classes.count == 2 and self._method == "multi"
        self._rows: _Rows | _Pairs = _Pairs() if pair else _Rows(layout.CODES[self._method], self._classes.count)
        self._lock = threading.RLock()

    # ---- many events ----------------------------------------------------------------------------------------------

    def run(self, keys: Any, scores: Any, labels: Any, *, due: Any = None, finish: bool = False) -> Any:
        """Predict and then update, event after event in the order of the arrays, each on the row of its key.

        Parameters
        ----------
        keys : ints or strings, old and new: a list, or a column of NumPy, Arrow, pandas or polars.
        scores : a matrix or a data frame of K columns, a row for each event.
        labels : the label of each event; None or NaN where it is not known: such an event is forecast and not learnt.
        due : for late labels, positions in this batch. Label i arrives before event ``due[i]`` (> i), whatever its
            key, and is learnt before the next event of its own key, or at the end if there is none. One that is due
            at ``len(scores)`` or later never arrives, and its place in `labels` may hold anything.
        finish : labels that are due later are learnt at the end, after the last event.

        Returns the forecasts, as a frame if the scores are one. If something is wrong with one event, none is taken.

        >>> from calibeat import MultiBank
        >>> MultiBank(3).run([7, 8, 7], [[0.2, 0.5, 0.3]] * 3, [0, 1, 2]).round(3).tolist()
        [[0.2, 0.5, 0.3], [0.2, 0.5, 0.3], [0.305, 0.416, 0.278]]
        """
        column, matrix = check_keys(keys), check_scores(scores, self._classes, self._logits)
        n = len(matrix)
        if len(column) != n:
            raise InvalidInput(f"arrays must have the same length, got keys {len(column)}, scores {n}")
        known, arrivals = _known(labels, n), None
        if due is not None:
            arrivals = np.minimum(check_due(due, n), n if finish else n + 1)
            known &= arrivals <= (n if finish else n - 1)
        columns = self._classes.columns(labels, n, needed=None if known.all() else known)
        columns[~known] = PENDING
        with self._lock:
            self._rows.check(column)
            return like_matrix(scores, self._rows.run(column, matrix, columns, arrivals))

    def predict_many(self, keys: Any, scores: Any) -> Any:
        """Forecast many events from the present state: nothing is learnt, nothing changes.

        A key that the bank does not know gets the forecast that it would get as a new one.
        """
        column, matrix = check_keys(keys), check_scores(scores, self._classes, self._logits)
        if len(column) != len(matrix):
            raise InvalidInput(f"arrays must have the same length, got keys {len(column)}, scores {len(matrix)}")
        with self._lock:
            self._rows.check(column)
            return like_matrix(scores, self._rows.predict_many(column, matrix))

    # ---- as a collection ------------------------------------------------------------------------------------------

    @property
    def classes(self) -> tuple[Label, ...]:
        """The labels in the order of the columns."""
        return self._classes.labels

    @property
    def method(self) -> str:
        """``"raw"``, ``"ots"`` or ``"multi"``."""
        return self._method

    @property
    def table(self) -> dict[str, npt.NDArray[Any]]:
        """A column each of key, events, outcomes and evidence (see `MultiCalibrator.evidence`), a row for each key."""
        with self._lock:
            return self._rows.table()

    def row(self, key: Key) -> Vector:
        """The state of a key, as a copy: the row of a `MultiCalibrator` that has seen its events alone."""
        with self._lock:
            return self._rows.row(check_key(key), plain_key(key))

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Key]:
        return iter(self.table["key"].tolist())

    def __contains__(self, key: object) -> bool:
        with self._lock:
            return isinstance(key, (int, str)) and self._rows.has(plain_key(check_key(key)))

    def __repr__(self) -> str:
        return f"MultiBank({self._classes.count} classes, method={self._method!r}, keys={len(self)})"

    # ---- files ----------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the bank to one file: versioned, checksummed, and whole or not at all."""
        with self._lock:
            header = {
                "multi": {"v": 1, "classes": self._classes.given, "method": self._method, "logits": self._logits},
                **self._rows.header(),
            }
            bankfile.save_sections(Path(path), header, self._rows.sections(), check=type(self).load)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> MultiBank:
        """Continue from a file; one that was cut, damaged or is no such bank is a `SnapshotMismatch`.

        >>> import tempfile, pathlib
        >>> from calibeat import MultiBank
        >>> bank = MultiBank(3)
        >>> P = bank.run(["oslo", "rome"], [[0.2, 0.5, 0.3], [0.1, 0.1, 0.8]], [0, 1])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     bank.save(pathlib.Path(folder) / "cities.bank")
        ...     twin = MultiBank.load(pathlib.Path(folder) / "cities.bank")
        >>> (twin.row("rome") == bank.row("rome")).all()
        np.True_
        """
        header, sections = bankfile.load_sections(Path(path))
        try:
            kind = header["multi"]
            check_whole("version", kind["v"], 1, 1)
            bank = cls(kind["classes"], kind["method"], kind["logits"])
            bank._rows.restore(header, sections)
        except _BAD_FILE as error:
            raise SnapshotMismatch(f"bank file must hold a bank of many classes: {error!s:.200} - in {path}") from error
        return bank


class _Rows:
    """The rows of "raw", "ots" and "multi", and the keys they belong to."""

    def __init__(self, method: int, K: int) -> None:
        self.method, self.K = method, K
        self.fresh = layout.initial_row(method, K)
        self.matrix = np.empty((0, len(self.fresh)))
        self.index: Index | None = None  # ints or strings: the first key tells

    def __len__(self) -> int:
        return 0 if self.index is None else self.index.count

    def check(self, column: KeyColumn) -> None:
        """Raise if the keys are of another kind than those that are here."""
        ints = isinstance(column, IntColumn)
        if self.index is not None and ints != isinstance(self.index, IntIndex):
            wanted, got = ("strings", "ints") if ints else ("ints", "strings")
            raise InvalidInput(f"keys must be {wanted} like those of the bank, got {got} - at row 0")

    def run(self, column: KeyColumn, scores: Vector, labels: Ints, due: Ints | None) -> Vector:
        """On copies of the rows that are touched, which then take their place: all of it happens, or nothing."""
        index = self.index or (IntIndex() if isinstance(column, IntColumn) else StringIndex())
        before = index.count
        try:
            slots = index.add(column)
            used, places = np.unique(slots, return_inverse=True)
            rows = np.empty((len(used), len(self.fresh)))
            rows[used < before] = self.matrix[used[used < before]]
            rows[used >= before] = self.fresh
            forecasts = self._run(rows, places.astype(np.int64), scores, labels, due)
            matrix = with_room(self.matrix, before, index.count)
        except BaseException:
            index.relink(before)
            raise
        matrix[used] = rows
        self.index, self.matrix = index, matrix
        return forecasts

    def _run(self, rows: Vector, slots: Ints, scores: Vector, labels: Ints, due: Ints | None) -> Vector:
        forecasts, work = np.empty(scores.shape), layout.scratch(self.K)
        width, seconds = layout.receipt_width(self.method, self.K), PLAIN_SECONDS * scores.size
        streams = self.method, self.K, rows.reshape(-1), rows.shape[1], slots
        batch = scores.reshape(-1), labels, forecasts.reshape(-1)
        if due is None:
            for_cost(loops.run_rows, seconds)(*streams, *batch, np.empty(width), work)
        else:
            known = np.where(labels == PENDING, np.nan, 0.0)
            late = Arrivals(due, known, slots.astype(np.int32), len(rows))
            run = for_cost(loops.run_rows_late, seconds)
            run(*streams, *batch, np.empty(len(labels) * width), work, late.moments, late.order)
        return forecasts

    def predict_many(self, column: KeyColumn, scores: Vector) -> Vector:
        """From copies of the rows, which are thrown away."""
        found = self._find(column)
        used, places = np.unique(found, return_inverse=True)
        rows = np.where(used[:, None] >= 0, self.matrix[used] if len(self) else self.fresh, self.fresh)
        unknown = np.full(len(scores), PENDING, dtype=np.int64)
        return self._run(rows, places.astype(np.int64), scores, unknown, None)

    def _find(self, column: KeyColumn) -> npt.NDArray[np.int32]:
        return np.full(len(column), -1, dtype=np.int32) if self.index is None else self.index.find(column)

    def has(self, key: int | bytes) -> bool:
        """Whether a key is here."""
        same = isinstance(key, int) == isinstance(self.index, IntIndex)
        return self.index is not None and same and self.index.find_one(key) >= 0

    def row(self, key: Key, name: int | bytes) -> Vector:
        if self.index is None or not self.has(name):
            raise UnknownKey(f"key must be one of the {len(self)} in the bank, got {shown(key)}")
        return self.matrix[self.index.find_one(name), :-2].copy()

    def table(self) -> dict[str, npt.NDArray[Any]]:
        rows = self.matrix[: len(self)]
        keys: npt.NDArray[Any] = np.empty(0, dtype=np.int64) if self.index is None else self.index.names()
        events, outcomes = rows[:, layout.T].astype(np.int64), rows[:, layout.N].astype(np.int64)
        evidence = np.array([log + math.log(product) for log, product in rows[:, -2:].tolist()], dtype=np.float64)
        return {"key": keys, "events": events, "outcomes": outcomes, "evidence": evidence}

    # ---- as a file ------------------------------------------------------------------------------------------------

    def header(self) -> dict[str, Any]:
        index = self.index
        kind = "none" if index is None else "ints" if isinstance(index, IntIndex) else "strings"
        return {"count": len(self), "keys": kind, "hash_seed": None if index is None else index.seed.value}

    def sections(self) -> dict[str, npt.NDArray[Any]]:
        keys = {} if self.index is None else self.index.arrays()
        return {"pool": np.empty(0), **keys, "rows": self.matrix[: len(self)].reshape(-1)}

    def restore(self, header: dict[str, Any], sections: dict[str, npt.NDArray[Any]]) -> None:
        """The inverse of `header` and `sections`, checked."""
        count = check_whole("count", header["count"], 0, 2**31)
        matrix = sections["rows"].reshape(-1, len(self.fresh)).copy()
        if len(matrix) != count or not np.isfinite(matrix).all():
            raise InvalidInput(f"rows must be {count} of finite numbers, got {len(matrix)}")
        for row in matrix:
            layout.check_row(self.method, self.K, row, int(row[layout.T]))
        if header["keys"] != "none":
            lengths = {"keys": count, "marks": 2 * count}
            if any(len(sections[name]) != size for name, size in lengths.items() if name in sections):
                raise InvalidInput(f"keys must be {count}, got others")
            check_table(sections["table"], count)
            if "marks" in sections:
                check_text(sections["text"], sections["marks"])
            seed = Seed(check_whole("hash_seed", header["hash_seed"], 0, MOST_SEED))
            index: Index = IntIndex(seed) if header["keys"] == "ints" else StringIndex(seed)
            index.restore(count, {name: array.copy() for name, array in sections.items()})
            check_index(index)
            self.index = index
        self.matrix = matrix


class _Pairs:
    """Two classes: a `Bank` of AUTO on the second column."""

    def __init__(self) -> None:
        self.bank = Bank(AUTO)

    def __len__(self) -> int:
        return len(self.bank)

    def check(self, column: KeyColumn) -> None:
        """The bank does."""
        self.bank._store.check(column)

    def run(self, column: KeyColumn, scores: Vector, labels: Ints, due: Ints | None) -> Vector:
        outcomes = np.where(labels == PENDING, np.nan, labels)
        score = np.ascontiguousarray(scores[:, 1])
        return _columns(self.bank.run(_plain(column), score, outcomes, due=due, finish=due is not None))

    def predict_many(self, column: KeyColumn, scores: Vector) -> Vector:
        return _columns(self.bank.predict_many(_plain(column), np.ascontiguousarray(scores[:, 1])))

    def has(self, key: int | bytes) -> bool:
        store = self.bank._store
        same = isinstance(key, int) == isinstance(store.index, IntIndex)
        return store.index is not None and same and store.find_one(key) >= 0

    def row(self, key: Key, name: int | bytes) -> Vector:  # noqa: ARG002 - as of others
        return self.bank[key].row.copy()

    def table(self) -> dict[str, npt.NDArray[Any]]:
        table = self.bank.table
        evidence = np.array([self.bank[key].evidence for key in self.bank], dtype=np.float64)
        return {"key": table["key"], "events": table["events"], "outcomes": table["outcomes"], "evidence": evidence}

    def header(self) -> dict[str, Any]:
        return bankfile.header_of(self.bank)

    def sections(self) -> dict[str, npt.NDArray[Any]]:
        return bankfile.sections_of(self.bank)

    def restore(self, header: dict[str, Any], sections: dict[str, npt.NDArray[Any]]) -> None:
        arrays = {name: array.copy() for name, array in sections.items()}
        bank = bankfile.revived(Bank, header, arrays, 1, verify=True)
        if bank.method != AUTO:
            raise InvalidInput(f"method must be AUTO for two classes, got {bank.method!r:.80}")
        bank._store.adopt()
        self.bank = bank


def _plain(column: KeyColumn) -> Any:
    return column.keys if isinstance(column, IntColumn) else [key.decode() for key in column.plain()]


def _columns(p: Vector) -> Vector:
    return np.stack([1.0 - p, p], axis=1)


def _known(labels: Any, n: int) -> npt.NDArray[np.bool_]:
    """Where there is a label; if there are not as many as events, whoever reads them will say so."""
    values = to_array(labels)
    array = values if isinstance(values, np.ndarray) else None
    if array is not None and array.dtype.kind == "f":
        known = ~np.isnan(array)
    elif array is not None and array.dtype.kind != "O":
        known = np.ones(array.shape, dtype=np.bool_)
    else:
        items = list(values)
        known = np.array([not (label is None or label != label) for label in items], dtype=np.bool_)  # noqa: PLR0124
    return known if known.shape == (n,) else np.ones(n, dtype=np.bool_)
