"""Many classes: `MultiCalibrator` is a `Calibrator` of K classes, `MultiBank` a `Bank` of them.

Both are faces: labels become columns at the door and scores rows of K numbers, and the hosts behind them are those of
two classes. Two classes are served by AUTO, whose score is that of the second class.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Hashable, Iterable, Iterator, KeysView, Sequence, ValuesView
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from calibeat._util.check import check_choice, check_lengths, check_whole, shown
from calibeat._util.columns import PLAIN, Column, is_exported, like_matrix, read_column, to_matrix
from calibeat._util.types import Flags, Ints, Vector
from calibeat._util.words import did_you_mean
from calibeat.core import vector
from calibeat.core.algebra import lns
from calibeat.core.layout import T
from calibeat.core.method import AUTO
from calibeat.core.randomness import stream_key
from calibeat.core.vector import VectorMethod
from calibeat.errors import InvalidInput
from calibeat.export import MultiExport
from calibeat.monitor.monitor import Monitor
from calibeat.monitor.notice import Notice

from .bank import Bank
from .calibrator import Calibrator, StreamOfRows, Watch, Watched, checked_stream, refuse_models
from .keys import Key
from .rows import Rows

Label = str | int | float | bool

METHODS = ("raw", "ots", "multi")
MOST_CLASSES = 1_000_000


# ---- classes, labels and scores from outside -----------------------------------------------------------------------


class Classes:
    """The labels in the order of the columns, and where each stands."""

    def __init__(self, classes: Any) -> None:
        if isinstance(classes, (int, np.integer)) and not isinstance(classes, bool):
            self.given: int | list[Label] = check_whole("classes", classes, 2, MOST_CLASSES)
            self.labels: tuple[Label, ...] = tuple(range(self.given))
        else:
            self.labels = _labels(classes)
            self.given = list(self.labels)
        self.count = len(self.labels)
        self.index: dict[Hashable, int] = {label: column for column, label in enumerate(self.labels)}

    def column(self, label: Any) -> int:
        """The column of one label."""
        found = self.index.get(label, -1) if isinstance(label, Hashable) else -1
        if found < 0:
            self._refuse(label)
        return found

    def columns(self, labels: Column, needed: Flags | None = None) -> Ints:
        """The columns of many labels; where none is needed, 0."""
        found = labels.places(self.index)
        bad = found < 0
        if needed is not None:
            found[~needed] = 0
            bad &= needed
        if bad.any():
            row = int(bad.argmax())
            self._refuse(labels.value(row), f" - at row {row}")
        return found

    def _refuse(self, label: Any, place: str = "") -> None:
        strings = [known for known in self.labels if isinstance(known, str)]
        hint = did_you_mean(label, strings, 0.6) if isinstance(label, str) and strings else ""
        raise InvalidInput(f"label must be one of {self.words()}, got {shown(label)}{place}{hint}")

    def words(self) -> str:
        """The classes as a message shows them."""
        if isinstance(self.given, int):
            return f"the column numbers 0 to {self.count - 1}"
        shown = ", ".join(map(repr, self.labels[:5]))
        return f"the {self.count} classes {shown}{', ...' if self.count > 5 else ''}"

    def name(self, column: int) -> str:
        """A column as a message shows it."""
        return f"column {column}" if isinstance(self.given, int) else f"column {column} ({self.labels[column]!r:.40})"


def _labels(classes: Any) -> tuple[Label, ...]:
    wanted = "a number of classes, or their labels in the order of the columns"
    is_many = isinstance(classes, Iterable) or is_exported(classes)
    if isinstance(classes, (str, bytes, dict, set, frozenset)) or not is_many:
        raise InvalidInput(f"classes must be {wanted}, got {shown(classes)}")
    listed = list(classes) if isinstance(classes, (Iterator, KeysView, ValuesView)) else classes
    given = read_column("classes", listed, wanted)
    labels = tuple(map(given.value, range(len(given))))
    for column, label in enumerate(labels):
        if not isinstance(label, (str, int, float)) or (isinstance(label, float) and not math.isfinite(label)):
            raise InvalidInput(f"class must be a string or a number, got {shown(label)} - at column {column}")
    if not 2 <= len(labels) <= MOST_CLASSES:
        raise InvalidInput(f"classes must be at least 2 and at most {MOST_CLASSES}, got {len(labels)}")
    seen: set[Label] = set()
    for column, label in enumerate(labels):
        if label in seen:
            raise InvalidInput(f"classes must be different from one another, got {label!r} again - at column {column}")
        seen.add(label)
    return labels


def check_scores(scores: Any, classes: Classes, logits: bool, *, one: bool = False) -> Vector:
    """n x K probabilities, each row of sum 1, from scores or logits; a fresh array. `one`: K numbers of one event."""
    K = classes.count
    values: Any = to_matrix(scores)
    if one and not isinstance(values, PLAIN):
        values = read_column("scores", values, _shape(K, one)).as_array()
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise InvalidInput(f"scores must be {_shape(K, one)}, got a ragged {type(scores).__name__}") from error
    if array.ndim != (1 if one else 2):
        raise InvalidInput(f"scores must be {_shape(K, one)}, got shape {array.shape}")
    if array.shape[-1] != K:
        many = "numbers" if one else "columns"
        raise InvalidInput(f"scores must have {K} {many}, one for each class, got {array.shape[-1]}")
    if array.dtype.kind not in "iuf" or isinstance(values, (list, tuple)):
        array = _numbers(array, values, classes, one)
    matrix = np.array(array, dtype=np.float64, order="C")
    if len(matrix) == 0:
        raise InvalidInput("arrays must not be empty, got length 0 for scores")
    flat = matrix.reshape(-1)
    wrong, row, column = vector.ready(K, flat, 1 if logits else 0)
    if wrong:
        given = float(array[column]) if one else float(array[row, column])
        event = array if one else array[row]
        _refuse(wrong, given, event, classes.name(column), "" if one else f"row {row}")
    return matrix


def _shape(K: int, one: bool) -> str:
    return f"{K} numbers, one for each class" if one else f"a matrix of {K} columns, one for each class"


def _numbers(array: npt.NDArray[Any], values: Any, classes: Classes, one: bool) -> Vector:
    """Elements of a list or of an array of objects, looked at one by one: NumPy would make numbers of mistakes."""
    if array.dtype.kind not in "iufO" and not isinstance(values, (list, tuple)):
        raise InvalidInput(f"score must be a number, got an array of {array.dtype}")
    rows: Sequence[Any] = [values] if one else values
    for row, event in enumerate(rows):
        for column, value in enumerate(event):
            if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real):
                place = classes.name(column) if one else f"row {row}, {classes.name(column)}"
                raise InvalidInput(f"score must be a number, got {type(value).__name__} {shown(value)} - at {place}")
    return np.asarray(array, dtype=np.float64)


def _refuse(wrong: int, given: float, event: npt.NDArray[Any], column: str, row: str) -> None:
    place = f"{row}, {column}" if row else column
    if wrong == vector.NOT_A_NUMBER:
        rule = "a number between -1e300 and 1e300" if math.isfinite(given) else "a finite number"
        raise InvalidInput(f"score must be {rule}, got {given!r} - at {place}")
    if wrong == vector.NEGATIVE:
        raise InvalidInput(f"score must be 0 or more, got {given!r} - at {place} - logits want logits=True")
    got = math.fsum(event.tolist())
    where = f" - at {row}" if row else ""
    raise InvalidInput(f"scores of an event must sum to 1 within {vector.TOLERANCE:g}, got {got:.9g}{where}")


# ---- what both hosts have ------------------------------------------------------------------------------------------


class Door:
    """Classes, and what comes in and goes out by them: scores as rows of K numbers, labels as columns.

    The host behind it has the method of K classes, or AUTO for two: then its score is that of the second class.
    """

    def __init__(self, classes: Any, method: str, logits: bool) -> None:
        if not isinstance(logits, (bool, np.bool_)):
            raise InvalidInput(f"logits must be True or False, got {logits!r:.60}")
        self.classes, self.logits = Classes(classes), bool(logits)
        self.name = check_choice("method", method, METHODS)
        self.is_pair = self.classes.count == 2 and self.name == "multi"
        self.method: Any = AUTO if self.is_pair else VectorMethod(self.name, self.classes.count)
        self.identity = repr((self.name, self.logits, self.classes.labels))

    def face(self, rows: Rows) -> None:
        """Have rows serve single events of these classes."""
        labels = self.classes.labels
        rows._serve_classes(labels, self.classes.index, self.logits, self.is_pair, vector.scratch(len(labels)))
        rows._check_score, rows._check_label = self.score, self.classes.column

    def score(self, scores: Any) -> Vector:
        """The scores of one event."""
        return check_scores(scores, self.classes, self.logits, one=True)

    def described(self) -> dict[str, Any]:
        """As JSON-able data."""
        return {"classes": self.classes.given, "method": self.name, "logits": self.logits}

    def scores(self, scores: Any) -> Vector:
        """The scores of a batch as the host takes them."""
        matrix = check_scores(scores, self.classes, self.logits)
        return np.ascontiguousarray(matrix[:, 1]) if self.is_pair else matrix.reshape(-1)

    def some_scores(self, scores: Any, asked: Flags) -> Vector:
        """The same of a fold; where none is asked for there may be anything."""
        matrix = np.array(to_matrix(scores), dtype=np.float64)
        if matrix.shape == (len(asked), self.classes.count):
            matrix[~asked] = 0.0 if self.logits else 1.0 / self.classes.count
        return self.scores(matrix)

    def outcomes(self, labels: Column, needed: Flags | None = None) -> Vector:
        """The columns of labels, as outcomes; NaN where none is needed."""
        columns = self.classes.columns(labels, needed).astype(np.float64)
        if needed is not None:
            columns[~needed] = np.nan
        return columns

    def forecasts(self, forecasts: Vector) -> Vector:
        """The forecasts of a host as a matrix."""
        if self.is_pair:
            return np.stack([1.0 - forecasts, forecasts], axis=1)
        return forecasts.reshape(-1, self.classes.count)

    def params(self, params: dict[str, Any]) -> dict[str, Any]:
        """The parameters of a stream, with the labels in place of the columns."""
        labels = self.classes.labels
        if self.is_pair:
            return {**params, "bias": {labels[0]: 0.0, labels[1]: float(params["b"])}}
        return {**params, "bias": dict(zip(labels, params["bias"], strict=True))} if "bias" in params else params


class Face:
    """What both faces have: a door, and what a host asks of it."""

    _door: Door

    @property
    def classes(self) -> tuple[Label, ...]:
        """The labels in the order of the columns."""
        return self._door.classes.labels

    @property
    def method(self) -> str:
        """``"raw"``, ``"ots"`` or ``"multi"``."""
        return self._door.name

    @property
    def logits(self) -> bool:
        """Whether the scores are logits."""
        return self._door.logits

    def _check_score(self, scores: Any) -> Vector:
        return self._door.score(scores)

    def _check_scores(self, scores: Any) -> Vector:
        return self._door.scores(scores)

    def _check_known(self, outcomes: Any) -> Vector:
        return self._door.outcomes(read_column("labels", outcomes))

    def _given_back(self, scores: Any, forecasts: Vector) -> Any:
        return like_matrix(scores, self._door.forecasts(forecasts))


# ---- one stream ----------------------------------------------------------------------------------------------------


def _refuse_groups(groups: Any) -> None:
    if groups is not None:
        raise InvalidInput(
            "many classes have no groups - use a Calibrator(groups=[...]) for each class whose probability matters, "
            "with the key, if there is one, as an attribute"
        )


def _refuse_band(band: bool) -> None:
    if band is not False:
        raise InvalidInput(
            "many classes have no interval, it was not measured for them - use a Calibrator(band=True) for the class "
            "whose probability matters"
        )


class MultiCalibrator(Face, Calibrator):  # type: ignore[misc]  # its method is a name
    r"""Turns K scores into K probabilities, one stream of events, learning from every label.

    Parameters
    ----------
    classes : the number of classes, or their labels in the order of the columns.
    method : ``"multi"`` learns what helps: temperature, class priors, confusions, at several speeds of drift;
        ``"ots"`` is online temperature scaling alone; ``"raw"`` changes nothing. Two classes are served by AUTO.
    logits : whether the scores are logits (numbers between -1e300 and 1e300), to be sent through softmax first.
        Otherwise they are probabilities, each 0 or more, of sum 1 within 1e-6.
    monitor : as of a `Calibrator`. What is watched is the class with the largest probability: whether it comes as
        often as is said.
    notice : as of a `Calibrator`; of the scores it hears the largest.

    >>> from calibeat import MultiCalibrator
    >>> cal = MultiCalibrator(["cat", "dog", "bird"])
    >>> f = cal.predict([0.2, 0.5, 0.3])       # a forecast is also a receipt
    >>> f.probabilities.round(6).tolist(), f.label
    ([0.2, 0.5, 0.3], 'dog')
    >>> cal.update(f, "bird")                  # now or any time later, in any order
    'learnt'
    >>> cal.predict([0.2, 0.5, 0.3]).probabilities.round(3).tolist()
    [0.188, 0.421, 0.391]

    Over arrays, with the same bits as the loop above, from the present state on:

    >>> P = cal.run([[0.1, 0.8, 0.1], [0.6, 0.3, 0.1]], ["dog", "cat"])
    >>> P.shape
    (2, 3)

    `run` takes `due`, `mature`, `times` and `finish` as `Calibrator.run` does; scores are a matrix or a data frame of K
    columns, and so are the forecasts. Everything that a `Calibrator` promises about receipts, threads and interrupts
    holds here. core/vector.py says how many numbers a stream is.

    References: Gupta & Ramdas (2023), whose future work this is; Guo et al. (2017); `docs/multiclass.md`.
    """

    _KIND: ClassVar[str] = "calibeat/multi"
    _STATE: ClassVar[tuple[str, ...]] = (
        "classes", "method", "logits", "stream", "events", "row", "history", "settled", "monitors",
    )  # fmt: skip

    _OPTIONAL: ClassVar[tuple[str, ...]] = ("notice",)

    def __init__(
        self,
        classes: Any,
        method: str = "multi",
        logits: bool = False,
        stream: int | str | None = None,
        *,
        monitor: Watched = None,
        notice: Notice | None = None,
        groups: Any = None,
        models: Any = None,
        band: bool = False,
    ) -> None:
        _refuse_groups(groups)
        refuse_models(models, "MultiCalibrator")
        _refuse_band(band)
        self._door, self._stream = Door(classes, method, logits), checked_stream(stream)
        name = hashlib.blake2b(repr((self._door.identity, self._stream or 0)).encode(), digest_size=8).digest()
        identity = int.from_bytes(name, "big"), stream_key(0, 0)
        generation = None if stream is None else 0
        rows = StreamOfRows(self._door.method, identity, generation=generation, classes=self._door.classes.count)
        self._door.face(rows)
        self._begin(rows)
        self._set_watch(Watch(monitor, notice))

    def _check_outcomes(self, outcomes: Any, events: int, needed: Flags | None = None) -> Vector:
        labels = read_column("labels", outcomes)
        check_lengths(scores=events, labels=len(labels))
        return self._door.outcomes(labels, needed)

    def _described(self) -> dict[str, Any]:
        return {**self._door.described(), "stream": self._stream}

    @classmethod
    def _like(cls, state: dict[str, Any]) -> Self:
        return cls(state["classes"], state["method"], state["logits"], state["stream"])

    @classmethod
    def _method_in(cls, state: dict[str, Any]) -> Any:
        return Door(state["classes"], state["method"], state["logits"]).method

    @property
    def params(self) -> dict[str, Any]:
        """What was learnt, in words.

        ``"lanes"``: the weight of each speed of drift (still, slow, fast, priors only), of the raw score and of the
        online temperature. As means over the lanes with these weights: ``"a"``, ``"c"``, ``"d"``, the numbers that
        all classes share (slope of the logarithm of the score, of the score itself, of a score at the floor), and
        ``"bias"`` per class. exp(bias) is the estimated change of the class prior since the scores were made; only
        ratios between classes matter. ``"stages"``, ``"top"`` and ``"guard"`` are the weights of the later stages.

        For ``"ots"``: ``"a"``, one over the temperature. For two classes: the parameters of AUTO, and the bias.

        >>> from calibeat import MultiCalibrator
        >>> cal = MultiCalibrator(["cat", "dog", "bird"])
        >>> P = cal.run([[0.4, 0.3, 0.3]] * 400, ["bird", "bird", "cat", "dog"] * 100)      # birds are more common
        >>> bias = cal.params["bias"]
        >>> max(bias, key=bias.get)
        'bird'
        """
        return self._door.params(super().params)

    @property
    def row(self) -> Vector:
        """The state of the stream, a read-only copy: [t, n, weights, shared numbers, ...], see `core/vector.py`.

        t is the number of forecasts made. The evidence, which is no part of the method, is left out.
        """
        with self._held():
            row = super().row
            if self._door.is_pair:
                return row
            row = row[:-2].copy()
            row[T] = self._events
        row.flags.writeable = False
        return row

    def export(self) -> MultiExport:  # type: ignore[override]  # of another shape
        """The present map from scores to forecasts, frozen: as numbers, and as Python or JSON. See `MultiExport`."""
        door, pair = self._door, None
        if door.is_pair:
            exported = super().export()
            numbers, pair = exported.numbers, exported.python
        else:
            with self._held() as rows:
                numbers = vector.frozen_numbers(door.method, rows.row(self._slot).copy())
        return MultiExport(numbers, door.classes.labels, door.name, door.logits, pair)

    def __repr__(self) -> str:
        return (
            f"MultiCalibrator({self._door.classes.count} classes, method={self._door.name!r}, events={self.events}, "
            f"outcomes={self.outcomes})"
        )


# ---- a stream for each key -----------------------------------------------------------------------------------------


class MultiBank(Face, Bank):  # type: ignore[misc]  # its method is a name
    r"""A `MultiCalibrator` for each of any number of keys: same classes, same method, same bits.

    Parameters
    ----------
    classes, method, logits : as of a `MultiCalibrator`.
    prior, threads, monitor, notice : as of a `Bank`; a monitor watches the class with the largest probability, and a
        notice hears the largest score.

    >>> from calibeat import MultiBank
    >>> bank = MultiBank(["cat", "dog", "bird"])
    >>> keys, scores = ["paris", "rome", "paris"], [[0.2, 0.5, 0.3], [0.1, 0.1, 0.8], [0.4, 0.4, 0.2]]
    >>> P = bank.run(keys, scores, ["cat", "bird", "cat"])
    >>> len(bank), "rome" in bank, list(bank), P.shape
    (2, True, ['paris', 'rome'], (3, 3))
    >>> bank.table["events"]
    array([2, 1])
    >>> f = bank.predict("oslo", [0.2, 0.5, 0.3])      # or one event at a time, with labels any time later
    >>> bank.update("oslo", f, "bird")
    'learnt'

    Every verb of `Bank` works, and promises the same. Labels that are None or NaN in `run` are not known: such an event
    is forecast and not learnt. A key takes 8 bytes for each number of its stream and 56 for its stats.
    """

    _SHARED: ClassVar[tuple[str, ...]] = ("classes", "method", "logits", "stream", "prior", "watched", "noticed")

    def __init__(
        self,
        classes: Any,
        method: str = "multi",
        logits: bool = False,
        stream: int | str | None = None,
        *,
        prior: str | None = None,
        threads: int | None = None,
        monitor: Monitor | None = None,
        notice: Notice | None = None,
        groups: Any = None,
        models: Any = None,
        band: bool = False,
    ) -> None:
        _refuse_groups(groups)
        refuse_models(models, "MultiBank")
        _refuse_band(band)
        self._door = door = Door(classes, method, logits)
        self._seed, self._stream = 0, checked_stream(stream)
        self._begin(door.method, door.identity, prior, threads, monitor, notice, door)

    def _check_some_scores(self, scores: Any, asked: Flags) -> Vector:
        return self._door.some_scores(scores, asked)

    def _check_outcomes(self, outcomes: Any, needed: Flags | None = None) -> Vector:
        labels = read_column("labels", outcomes)
        known = ~labels.absent()
        if needed is not None and len(needed) == len(known):
            known &= needed
        return self._door.outcomes(labels, None if known.all() else known)

    def _folded(self, forecasts: Vector) -> Vector:
        return self._door.forecasts(forecasts)

    def _calibrator(self) -> Calibrator:
        member = MultiCalibrator.__new__(MultiCalibrator)
        member._door, member._watch = self._door, Watch(None)
        return member

    def _empty(self) -> MultiBank:
        described = self._door.described()
        return MultiBank(**described, stream=self._stream, prior=self._prior, threads=self._threads)

    def _header(self) -> dict[str, Any]:
        return {"multi": self._door.described(), "stream": self._stream, "prior": self._prior}

    @classmethod
    def _of_header(cls, header: dict[str, Any], threads: int, watched: dict[str, Any]) -> MultiBank:
        if "multi" not in header:
            raise InvalidInput("a bank of two classes, which Bank.load reads")
        return cls(**header["multi"], stream=header["stream"], prior=header["prior"], threads=threads, **watched)

    @property
    def table(self) -> dict[str, npt.NDArray[Any]]:
        """As `Bank.table`, and for each key its evidence (see `MultiCalibrator.evidence`)."""
        with self._rows as rows:
            table = super().table
            at, states = rows.method.spec.evidence, rows.matrix[: rows.count]
            ratios = states[:, at + 1].copy()
            lns(ratios)
            return {**table, "evidence": states[:, at] + ratios}

    @property
    def params(self) -> dict[str, npt.NDArray[Any]]:
        """As `Bank.params`, and of each class its bias, as the column ``"bias cat"``."""
        with self._rows as rows:
            params, door = super().params, self._door
            if not door.is_pair and door.name == "multi":
                biases = door.method.params_of_rows(rows.matrix[: rows.count], named=True)["bias"]
                params |= {f"bias {label}": biases[:, k].copy() for k, label in enumerate(door.classes.labels)}
            return params

    def row(self, key: Key) -> Vector:
        """The state of a key, as a copy: the row of a `MultiCalibrator` that has seen its events alone."""
        return self[key].row.copy()

    def __repr__(self) -> str:
        return f"MultiBank({self._door.classes.count} classes, method={self._door.name!r}, keys={len(self)})"


def calibrator_of(classes: Any, method: Any, seed: int = 0, groups: Any = None) -> Calibrator | MultiCalibrator:
    """The calibrator of a model of these classes: of two classes one of the second. "auto" is "multi" of more classes.

    >>> type(calibrator_of([0, 1], "tops")).__name__, type(calibrator_of("abc", "auto")).__name__
    ('Calibrator', 'MultiCalibrator')
    """
    if len(classes) == 2:
        return Calibrator(method, seed, groups=groups)
    if not isinstance(method, str) or method not in ("auto", *METHODS):
        raise InvalidInput(
            f"method must be 'auto' (which is 'multi'), 'multi', 'ots' or 'raw' for {len(classes)} classes, "
            f"got {shown(method)}"
        )
    return MultiCalibrator(list(classes), "multi" if method == "auto" else method, groups=groups)
