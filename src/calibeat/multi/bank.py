"""The host of many streams with the same classes: a matrix with a row for each key."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from calibeat._util.check import check_choice, check_due, shown
from calibeat._util.columns import like_matrix, to_array
from calibeat._util.types import Vector
from calibeat.errors import CalibeatError, InvalidInput, SnapshotMismatch
from calibeat.hosts import bankfile
from calibeat.hosts.keys import Key, check_key, check_keys, plain_key

from .calibrator import METHODS
from .check import Classes, Label, check_scores
from .forecast import MultiForecast
from .pair import PairRows
from .receipts import PENDING
from .rows import Rows

FORMAT = 1  # the version of what a file of the bank's format holds here
_BAD_FILE = (CalibeatError, KeyError, TypeError, ValueError, AttributeError, OverflowError)


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
        identity = repr((self._method, self._logits, self._classes.labels))
        self._rows: Any = PairRows(self._classes) if pair else Rows(self._method, self._classes, identity)
        self._lock = threading.RLock()

    # ---- one event ------------------------------------------------------------------------------------------------

    def predict(self, key: Key, scores: npt.ArrayLike) -> MultiForecast:
        """Forecast one event of a key, old or new; the forecast is the receipt for `update`.

        >>> from calibeat import MultiBank
        >>> bank = MultiBank(["cat", "dog", "bird"])
        >>> forecast = bank.predict("paris", [0.2, 0.5, 0.3])
        >>> bank.update("paris", forecast, "bird")             # now or any time later, in any order
        >>> bank.table["outcomes"].tolist()
        [1]
        """
        score = check_scores(scores, self._classes, self._logits, one=True)
        with self._lock:
            return self._rows.predict(check_key(key), plain_key(key), score)

    def update(self, key: Key, forecast: MultiForecast, label: Label) -> None:
        """Learn the label of a forecast of this key, now or any time later, in any order.

        The same label a second time changes nothing; another one is an `OutcomeConflict`. A receipt of another key is
        an `UnknownForecast`.
        """
        if not isinstance(forecast, MultiForecast):
            raise InvalidInput(f"forecast must be a MultiForecast made by predict, got {type(forecast).__name__}")
        y = self._classes.column(label)
        with self._lock:
            self._rows.update(check_key(key), plain_key(key), forecast, y)

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
    def logits(self) -> bool:
        """Whether the scores are logits."""
        return self._logits

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

    def merge(self, other: MultiBank) -> None:
        """Take the keys of another bank of the same classes and method, as shards of several machines come together.

        A key that both have is an error that names it, and nothing has happened. Receipts that the other bank has
        issued before can be brought here.

        >>> from calibeat import MultiBank
        >>> east, west = MultiBank(3), MultiBank(3)
        >>> P, Q = east.run(["oslo"], [[0.2, 0.5, 0.3]], [1]), west.run(["rome"], [[0.2, 0.5, 0.3]], [0])
        >>> east.merge(west)
        >>> list(east)
        ['oslo', 'rome']
        """
        if not isinstance(other, MultiBank):
            raise InvalidInput(f"bank must be merged with a MultiBank, got {type(other).__name__}")
        for what in ("classes", "method", "logits"):
            our, their = getattr(self, what), getattr(other, what)
            if our != their:
                raise InvalidInput(f"banks must have the same {what}, got {shown(our)} and {shown(their)}")
        first, second = sorted((self, other), key=id)  # in one order, or two banks could wait for each other
        with first._lock, second._lock:
            self._rows.merge(other._rows)

    # ---- files ----------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the bank to one file: versioned, checksummed, and whole or not at all."""
        with self._lock:
            header = {
                "multi": {"v": FORMAT, "classes": self._classes.given, "method": self._method, "logits": self._logits},
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
            if type(kind["v"]) is not int or kind["v"] != FORMAT:
                raise InvalidInput(f"version must be {FORMAT}, got {shown(kind['v'])}")
            bank = cls(kind["classes"], kind["method"], kind["logits"])
            bank._rows.restore(header, sections)
        except _BAD_FILE as error:
            raise SnapshotMismatch(f"bank file must hold a bank of many classes: {error!s:.200} - in {path}") from error
        return bank


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
