"""Many classes: `MultiCalibrator` is the host of one stream, `MultiBank` of one stream for each key.

Two classes are served by AUTO: `PairStream` and `PairRows` give a `Calibrator` and a `Bank` the shape of `VectorStream`
and `VectorRows`, which serve the others by the kernels of `core/vector.py`.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import threading
from collections.abc import Hashable, Iterable, Iterator, KeysView, Sequence
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from calibeat._compiled import Forecast
from calibeat._util.check import check_choice, check_due, check_interval, check_whole, shown
from calibeat._util.columns import like_matrix, to_array, to_matrix
from calibeat._util.sealed import seal, unseal
from calibeat._util.types import Ints, Vector
from calibeat._util.words import did_you_mean
from calibeat.core import loops, vector
from calibeat.core.method import AUTO
from calibeat.core.receipt import MultiForecast, frozen
from calibeat.errors import CalibeatError, InvalidInput, SnapshotMismatch, UnknownKey
from calibeat.export import MultiExport
from calibeat.hosts import bankfile
from calibeat.hosts.bank import Bank
from calibeat.hosts.keys import (
    MOST_SEED,
    Index,
    IntColumn,
    IntIndex,
    Key,
    KeyColumn,
    Seed,
    StringIndex,
    check_index,
    check_key,
    check_keys,
    check_table,
    check_text,
    plain_key,
    with_room,
)
from calibeat.late import Arrivals

from .calibrator import Calibrator
from .ledger import PENDING, Issuer, LabelLedger, new_generation

Label = str | int | float | bool

METHODS = ("raw", "ots", "multi")
MOST_CLASSES = 1_000_000
KIND, FORMAT = "calibeat/multi", 1  # of snapshots; a bank file has the same version
FIELDS = ("classes", "method", "logits", "events", "stream", "settled", "lives")
KEPT_EVENTS = 64  # of a key, before its oldest event without a label, whose labels are remembered
_BAD_FILE = (CalibeatError, KeyError, TypeError, ValueError, AttributeError, OverflowError)


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

    def columns(self, labels: Any, length: int, needed: npt.NDArray[np.bool_] | None = None) -> Ints:
        """The columns of many labels; where none is needed, 0."""
        values = to_array(labels)
        try:
            array = np.asarray(values)
        except ValueError as error:
            raise InvalidInput(
                f"labels must be a one-dimensional array, got a ragged {type(labels).__name__}"
            ) from error
        if array.ndim != 1:
            raise InvalidInput(f"labels must be a one-dimensional array, got shape {array.shape}")
        if len(array) != length:
            raise InvalidInput(f"arrays must have the same length, got scores {length}, labels {len(array)}")
        if isinstance(self.given, int) and array.dtype.kind in "iu" and needed is None:
            bad = (array < 0) | (array >= self.count)
            if bad.any():
                self._refuse(array[bad.argmax()].item(), f" - at row {bad.argmax()}")
            return np.array(array, dtype=np.int64)
        # A list keeps the type of each element, which NumPy would change: [1, "a"] is no list of strings.
        items = list(values) if isinstance(values, (list, tuple)) else array.tolist()
        columns = np.zeros(length, dtype=np.int64)
        for row, label in enumerate(items):
            if needed is None or needed[row]:
                found = self.index.get(label, -1) if isinstance(label, Hashable) else -1
                if found < 0:
                    self._refuse(label, f" - at row {row}")
                columns[row] = found
        return columns

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
    values = to_array(classes)
    if isinstance(values, np.ndarray):
        values = values.tolist()
    if isinstance(values, (str, bytes, dict, set, frozenset)) or not isinstance(values, Iterable):
        raise InvalidInput(
            f"classes must be a number of classes, or their labels in the order of the columns, got {shown(classes)}"
        )
    labels = tuple(label.item() if isinstance(label, np.generic) else label for label in values)
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
    values = scores if one else to_matrix(scores)
    try:
        array = np.asarray(to_array(values) if one else values)
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
        raise InvalidInput(f"score must be a finite number, got {given!r} - at {place}")
    if wrong == vector.NEGATIVE:
        raise InvalidInput(f"score must be 0 or more, got {given!r} - at {place} - logits want logits=True")
    got = math.fsum(event.tolist())
    where = f" - at {row}" if row else ""
    raise InvalidInput(f"scores of an event must sum to 1 within {vector.TOLERANCE:g}, got {got:.9g}{where}")


# ---- one stream ----------------------------------------------------------------------------------------------------


class VectorStream:
    """The state and the arithmetic of "raw", "ots" and "multi". The caller has checked all arguments."""

    def __init__(self, method: str, K: int) -> None:
        self.method, self.K = vector.CODES[method], K
        self.row = vector.initial_row(self.method, K)
        self._work = vector.scratch(K)
        self._receipt = np.zeros(vector.receipt_width(self.method, K))

    @property
    def numbers(self) -> Vector:
        """The row without the evidence."""
        return self.row[:-2]

    @property
    def events(self) -> int:
        return int(self.row[vector.T])

    @property
    def outcomes(self) -> int:
        return int(self.row[vector.N])

    def predict(self, score: Vector, label: Any, issuer: str) -> MultiForecast:
        """Forecast one event, and count it; `label` says which label a column is."""
        forecast, event = np.empty(self.K), self.events
        vector.predict(self.method, self.K, self.row, score, self._receipt, self._work, forecast)
        seen, slope, expert = int(self.row[vector.N]), None, None
        if self.method != vector.RAW_SCORES:
            slope = float(self._receipt[vector.ISSUED_SLOPE])
        if self.method == vector.MULTI:
            expert = frozen(self._receipt[vector.SCORE + self.K :].copy())
        top = label[int(forecast.argmax())]
        made = MultiForecast(frozen(forecast), top, frozen(score), expert, slope, event, seen, issuer)
        self.row[vector.T] = event + 1.0
        return made

    def update(self, forecast: MultiForecast, y: int, *, latest: bool) -> None:
        """Learn column y of a forecast of this stream; `latest` if the scratch is still about it."""
        issued = float(forecast.probabilities[y])
        if latest and forecast.seen == self.row[vector.N]:
            vector.settle(self.method, self.K, self.row, y, self._receipt, self._work, issued)
        else:
            vector.update(self.method, self.K, self.row, y, self._receipt_of(forecast), self._work, issued)

    def _receipt_of(self, forecast: MultiForecast) -> Vector:
        slope = 1.0 if forecast.slope is None else forecast.slope
        expert = () if forecast.expert is None else forecast.expert
        return np.concatenate(([forecast.seen, slope], forecast.score, expert))

    def run(self, scores: Vector, labels: Ints, late: tuple[Ints, Ints] | None, *, finish: bool) -> Vector:
        """Predict and learn, event after event. If anything breaks off the loop, nothing has happened."""
        del finish  # the order in `late` says it
        row, forecasts, n, arrived = self.row.copy(), np.empty(scores.shape), len(scores), 0
        flat, out, t = scores.reshape(-1), forecasts.reshape(-1), row[vector.T]
        receipts = np.empty(n * len(self._receipt) if late else 0)
        for part in loops.pieces(n, self.K):
            if late is None:
                batch = scores[part].reshape(-1), labels[part], forecasts[part].reshape(-1)
                vector.run(self.method, self.K, row, t + part.start, *batch, self._receipt, self._work)
            else:
                place = 0, part.start, part.stop, arrived
                whole = flat, labels, out, receipts, self._work, *late, *place
                arrived = vector.run_late(self.method, self.K, row, t, *whole)
        self.row[:] = row
        return forecasts

    def predict_many(self, scores: Vector) -> Vector:
        """Forecast many scores from the present row."""
        forecasts = np.empty(scores.shape)
        for part in loops.pieces(len(scores), self.K):
            batch = scores[part].reshape(-1), forecasts[part].reshape(-1)
            vector.predict_many(self.method, self.K, self.row, *batch, self._receipt, self._work)
        return forecasts

    @property
    def evidence(self) -> float:
        return float(self.row[-2] + math.log(self.row[-1]))

    def params(self, labels: tuple[Any, ...]) -> dict[str, Any]:
        """See `MultiCalibrator.params`."""
        row, K = self.row, self.K
        if self.method == vector.RAW_SCORES:
            return {}
        if self.method == vector.ONLINE_TEMPERATURE:
            return {"a": float(row[2])}
        w = row[vector.W : vector.W + 6]
        theta = row[vector.THETA : vector.OFFSET].reshape(4, vector.THETA_WIDTH)[:, :3]
        a, c, d = (w[:4] @ theta).tolist()
        biases = row[vector.BIAS : vector.BIAS + 8 * K].reshape(4, 2, K)[:, 0]
        stages = ("lanes", "factors", "confusion") if K <= vector.MOST_CONFUSED else ("lanes", "factors")
        return {
            "lanes": _named(vector.LANE_NAMES, w),
            "a": float(a + w[4] + w[5] * row[vector.SLOPE]),
            "c": c,
            "d": d,
            "bias": _named(labels, w[:4] @ biases),
            "online temperature": float(row[vector.SLOPE]),
            "stages": _named(stages, row[vector.V :]),
            "top": _named(("plain", "spline"), row[vector.Z :]),
            "guard": _named(("expert", "online temperature"), row[vector.G :]),
        }

    def frozen(self) -> tuple[dict[str, Any], None]:
        """For `MultiCalibrator.export`."""
        return vector.frozen_numbers(self.method, self.K, self.row), None

    def state(self) -> dict[str, Any]:
        """What a snapshot holds of it."""
        return {"row": self.row.tolist()}

    def restore(self, state: dict[str, Any], events: int) -> None:
        """The inverse of `state`."""
        row = state["row"]
        if not isinstance(row, list) or len(row) != len(self.row):
            got = len(row) if isinstance(row, list) else type(row).__name__
            raise InvalidInput(f"row must have the width {len(self.row)}, got {got}")
        if not all(type(number) in (float, int) and math.isfinite(number) for number in row):
            raise InvalidInput("row must hold finite numbers, got others")
        vector.check_row(self.method, self.K, row, events)
        self.row[:] = row


def _named(names: tuple[Any, ...], values: Vector) -> dict[Any, float]:
    return dict(zip(names, values[: len(names)].tolist(), strict=True))


class PairStream:
    """A `Calibrator` in the shape of a `VectorStream`."""

    def __init__(self) -> None:
        self._auto = Calibrator(AUTO)

    @property
    def numbers(self) -> Vector:
        return self._auto.row

    @property
    def events(self) -> int:
        return self._auto.events

    @property
    def outcomes(self) -> int:
        return self._auto.outcomes

    def predict(self, score: Vector, label: Any, issuer: str) -> MultiForecast:
        """Forecast one event."""
        return replace(_forecast(self._auto.predict(float(score[1])), score, label), issuer=issuer)

    def update(self, forecast: MultiForecast, y: int, *, latest: bool) -> None:  # noqa: ARG002 - AUTO knows by itself
        """Learn column y of a forecast."""
        self._auto.update(_binary(forecast), y)

    def run(self, scores: Vector, labels: Ints, late: tuple[Ints, Ints] | None, *, finish: bool) -> Vector:
        """Predict and learn, event after event."""
        column, due = np.ascontiguousarray(scores[:, 1]), None if late is None else late[0]
        return _columns(self._auto.run(column, labels, due=due, finish=finish))

    def predict_many(self, scores: Vector) -> Vector:
        """Forecast many scores from the present row."""
        return _columns(self._auto.predict_many(np.ascontiguousarray(scores[:, 1])))

    @property
    def evidence(self) -> float:
        return self._auto.evidence

    def params(self, labels: tuple[Any, ...]) -> dict[str, Any]:
        """See `MultiCalibrator.params`."""
        params = self._auto.params
        return {**params, "bias": {labels[0]: 0.0, labels[1]: float(params["b"])}}

    def frozen(self) -> tuple[dict[str, Any], str]:
        """For `MultiCalibrator.export`."""
        exported = self._auto.export()
        return exported.numbers, exported.python

    def state(self) -> dict[str, Any]:
        """What a snapshot holds of it."""
        return {"auto": json.loads(self._auto.to_json())}

    def restore(self, state: dict[str, Any], events: int) -> None:
        """The inverse of `state`."""
        try:
            auto = Calibrator.from_json(json.dumps(state["auto"]))
        except SnapshotMismatch as error:
            raise InvalidInput(f"auto must be a snapshot of AUTO: {error}") from error
        if auto.method != AUTO or auto.events != events:
            raise InvalidInput(f"auto must be AUTO after {events} events, got {auto!r:.80}")
        self._auto = auto


def _forecast(binary: Forecast, score: Vector, labels: Any) -> MultiForecast:
    """AUTO's forecast of the second class as one of both."""
    probabilities = _columns(np.array([binary.probability]))[0]
    expert = _columns(np.array([binary.expert]))[0]
    top, issuer = labels[int(probabilities.argmax())], str(binary.issuer)
    return MultiForecast(
        frozen(probabilities), top, frozen(score), frozen(expert), None, binary.event, binary.seen, issuer, binary
    )


def _binary(forecast: MultiForecast) -> Forecast:
    """The receipt of AUTO inside one of two classes."""
    if forecast.binary is None or forecast.binary.event != forecast.event:
        raise InvalidInput(f"forecast must hold the receipt of AUTO, got none - at event {forecast.event}")
    return forecast.binary


def _columns(p: Vector) -> Vector:
    return np.stack([1.0 - p, p], axis=1)


class _Host:
    """What both hosts have: classes, a method, and a lock."""

    def __init__(self, classes: Any, method: str, logits: bool) -> None:
        if not isinstance(logits, (bool, np.bool_)):
            raise InvalidInput(f"logits must be True or False, got {logits!r:.60}")
        self._classes = Classes(classes)
        self._method, self._logits = check_choice("method", method, METHODS), bool(logits)
        self._is_pair = self._classes.count == 2 and self._method == "multi"
        self._identity = repr((self._method, self._logits, self._classes.labels))
        self._lock = threading.RLock()

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


class MultiCalibrator(_Host):
    r"""Turns K scores into K probabilities, one stream of events, learning from every label.

    Parameters
    ----------
    classes : the number of classes, or their labels in the order of the columns.
    method : ``"multi"`` learns what helps: temperature, class priors, confusions, at several speeds of drift;
        ``"ots"`` is online temperature scaling alone; ``"raw"`` changes nothing. Two classes are served by AUTO.
    logits : whether the scores are logits (any finite numbers), to be sent through softmax first. Otherwise they are
        probabilities, each 0 or more, of sum 1 within 1e-6.

    >>> from calibeat import MultiCalibrator
    >>> cal = MultiCalibrator(["cat", "dog", "bird"])
    >>> f = cal.predict([0.2, 0.5, 0.3])       # a forecast is also a receipt
    >>> f.probabilities.round(6).tolist(), f.label
    ([0.2, 0.5, 0.3], 'dog')
    >>> cal.update(f, "bird")                  # now or any time later, in any order
    >>> cal.predict([0.2, 0.5, 0.3]).probabilities.round(3).tolist()
    [0.188, 0.421, 0.391]

    Over arrays, with the same bits as the loop above, from the present state on:

    >>> P = cal.run([[0.1, 0.8, 0.1], [0.6, 0.3, 0.1]], ["dog", "cat"])
    >>> P.shape
    (2, 3)

    A stream is 75 + 20 K numbers, and 2 K^2 more up to K = 64. Threads may share a calibrator; each call waits for
    the one before.

    References: Gupta & Ramdas (2023), whose future work this is; Guo et al. (2017); `docs/multiclass.md`.
    """

    def __init__(self, classes: Any, method: str = "multi", logits: bool = False) -> None:
        super().__init__(classes, method, logits)
        self._stream: VectorStream | PairStream = (
            PairStream() if self._is_pair else VectorStream(self._method, self._classes.count)
        )
        self._latest: MultiForecast | None = None  # the latest forecast made here
        issuer = Issuer(hashlib.blake2b(self._identity.encode(), digest_size=8).hexdigest())
        self._receipts = LabelLedger(issuer, self._classes.labels)
        # A stream takes effect in one step, and its ledger in another one. What is under way is noted here, so that
        # the call after an interrupt puts the ledger right: a label of this event, when so many were learnt; the
        # ledger after a batch, when so many events were made.
        self._settling: tuple[int, int] | None = None
        self._following: tuple[LabelLedger, int] | None = None

    def _recover(self) -> None:
        """Finish what an interrupt left undone. If this is interrupted too, the next call does it."""
        if self._settling is not None:
            event, learnt = self._settling
            if self.outcomes == learnt:
                self._receipts.reopen(event)
            self._settling = None
        if self._following is not None:
            ledger, events = self._following
            if self.events != events:
                self._receipts = ledger
            self._following = None

    # ---- one event ------------------------------------------------------------------------------------------------

    def predict(self, scores: npt.ArrayLike) -> MultiForecast:
        """Forecast one event of K scores. Nothing is learnt; keep the forecast until the label is known.

        >>> from calibeat import MultiCalibrator
        >>> MultiCalibrator(3, method="raw").predict([0.5, 0.25, 0.25]).probabilities.tolist()
        [0.5, 0.25, 0.25]

        Raises
        ------
        InvalidInput : the scores are not K probabilities of sum 1 (or K finite logits).
        """
        score = check_scores(scores, self._classes, self._logits, one=True)
        with self._lock:
            self._recover()
            signature = self._receipts.issuer.ensure_signature()
            self._latest = None
            forecast = self._latest = self._stream.predict(score, self._classes.labels, signature)
        return forecast

    def update(self, forecast: MultiForecast, label: Label) -> None:
        """Learn the label of a forecast, now or any time later, in any order.

        The same label a second time changes nothing; another one is an `OutcomeConflict`, also when the receipt
        travelled as JSON or the calibrator was restored in between. `docs/receipts.md` says how far back that reaches.

        >>> from calibeat import MultiCalibrator
        >>> cal = MultiCalibrator(["cat", "dog", "bird"])
        >>> first, second = cal.predict([0.1, 0.1, 0.8]), cal.predict([0.3, 0.3, 0.4])
        >>> cal.update(second, "cat")
        >>> cal.update(first, "bird")

        Raises
        ------
        InvalidInput : the label is no class, or the receipt is damaged.
        UnknownForecast : another stream has issued the receipt, or it is too old.
        OutcomeConflict : another label of this event was learnt.
        """
        if not isinstance(forecast, MultiForecast):
            raise InvalidInput(f"forecast must be a MultiForecast made by predict, got {type(forecast).__name__}")
        y = self._classes.column(label)
        with self._lock:
            self._recover()
            if forecast is not self._latest:
                self._receipts.check(forecast, self.events, self.outcomes, expert=self._method == "multi")
            if self._receipts.is_repeat(forecast.event, y):
                return
            latest, self._latest = forecast is self._latest, None
            self._settling = forecast.event, self.outcomes
            self._receipts.settle(forecast.event, y)
            self._stream.update(forecast, y, latest=latest)
            self._settling = None

    def peek(self, scores: npt.ArrayLike) -> Vector:
        """What `predict` would say now: the probabilities alone, no event is made."""
        score = check_scores(scores, self._classes, self._logits, one=True)
        with self._lock:
            self._latest = None
            return self._stream.predict_many(score[None, :])[0]

    # ---- many events ----------------------------------------------------------------------------------------------

    def run(self, scores: Any, labels: Any, *, due: npt.ArrayLike | None = None, finish: bool = False) -> Any:
        """Predict and then update, event after event; the same bits as doing so one by one.

        Parameters
        ----------
        scores : a matrix or a data frame of K columns, a row for each event.
        labels : the label of each event.
        due : for late labels. Label i is learnt just before prediction ``due[i]`` (> i), in order of (due, i); one
            that is due at ``len(scores)`` or later never arrives, and its place in `labels` may hold anything.
        finish : labels that are due later are learnt at the end, after the last prediction.

        Returns the forecasts, as a frame if the scores are one. If something is wrong with one event, none is taken.

        >>> from calibeat import MultiCalibrator
        >>> cal = MultiCalibrator(3)
        >>> labels = [0, 0, 1, 0, 2, 0, 0, 1] * 50
        >>> P = cal.run([[0.2, 0.5, 0.3]] * 400, labels)      # the truth is 5/8, 2/8, 1/8
        >>> P[0].round(3).tolist(), P[200:].mean(axis=0).round(2).tolist()
        ([0.2, 0.5, 0.3], [0.63, 0.24, 0.12])

        Raises
        ------
        InvalidInput : a score, a label or a due time is impossible; the message names the first bad row.
        """
        matrix = check_scores(scores, self._classes, self._logits)
        n = len(matrix)
        late = None
        if due is None:
            columns = self._classes.columns(labels, n)
            learnt = columns
        else:
            arrivals = np.minimum(check_due(due, n), n if finish else n + 1)
            comes = arrivals <= (n if finish else n - 1)
            columns = self._classes.columns(labels, n, needed=comes)
            order = np.argsort(arrivals, kind="stable")
            late = arrivals, order[comes[order]]
            learnt = np.where(comes, columns, PENDING)
        with self._lock:
            self._recover()
            self._latest = None
            self._following = self._receipts.after(self.events, learnt), self.events
            forecasts = self._stream.run(matrix, columns, late, finish=finish)
            self._recover()
        return like_matrix(scores, forecasts)

    def predict_many(self, scores: Any) -> Any:
        """Forecast many events from the present state: no receipts, nothing learnt, nothing changed.

        >>> from calibeat import MultiCalibrator
        >>> MultiCalibrator(3, logits=True).predict_many([[0.0, 0.0, 0.0]]).round(6).tolist()
        [[0.333333, 0.333333, 0.333333]]
        """
        matrix = check_scores(scores, self._classes, self._logits)
        with self._lock:
            self._latest = None
            return like_matrix(scores, self._stream.predict_many(matrix))

    # ---- what it believes -----------------------------------------------------------------------------------------

    @property
    def events(self) -> int:
        """How many forecasts were made."""
        return self._stream.events

    @property
    def outcomes(self) -> int:
        """How many labels were learnt."""
        return self._stream.outcomes

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
        with self._lock:
            return self._stream.params(self._classes.labels)

    @property
    def row(self) -> Vector:
        """The state of the stream, a read-only copy: [t, n, weights, shared numbers, ...], see `core/vector.py`."""
        with self._lock:
            row = np.array(self._stream.numbers)
        row.flags.writeable = False
        return row

    @property
    def evidence(self) -> float:
        """Log likelihood ratio of the forecasts against the raw scores, over the labels learnt so far, in nats.

        Positive: the forecasts have served better. If the scores were the true probabilities, exp(evidence) would be
        a supermartingale that starts at 1, an e-value, valid at any time. (A score below 1e-7 counts as 1e-7.)

        >>> from calibeat import MultiCalibrator
        >>> cal = MultiCalibrator(3)
        >>> P = cal.run([[0.8, 0.1, 0.1]] * 60, [0, 1, 2] * 20)
        >>> cal.evidence > 10, cal.alarm(alpha=0.001)
        (True, True)

        References: Ville (1939); Shafer, Shen, Vereshchagin & Vovk (2011).
        """
        with self._lock:
            return self._stream.evidence

    def alarm(self, alpha: float = 0.05) -> bool:
        """Whether the evidence now speaks against "the raw scores are calibrated" at level alpha.

        Look as often as you like: if they are, the probability that it is ever True is at most alpha (Ville's
        inequality; for late labels if neither their delay nor later scores depend on labels still under way).
        """
        return self.evidence >= -math.log(check_interval("alpha", alpha, 1e-300, 1.0))

    def export(self) -> MultiExport:
        """The present map from scores to forecasts, frozen: as numbers, and as Python or JSON. See `MultiExport`."""
        with self._lock:
            numbers, pair = self._stream.frozen()
        return MultiExport(numbers, self._classes.labels, self._method, self._logits, pair)

    def __repr__(self) -> str:
        return (
            f"MultiCalibrator({self._classes.count} classes, method={self._method!r}, events={self.events}, "
            f"outcomes={self.outcomes})"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies, also those of other processes, are made of the snapshot."""
        return MultiCalibrator.from_json, (self.to_json(),)

    # ---- state ----------------------------------------------------------------------------------------------------

    def to_json(self) -> str:
        """The whole state as text: versioned, checksummed, every float exact.

        >>> from calibeat import MultiCalibrator
        >>> cal = MultiCalibrator(3)
        >>> P = cal.run([[0.2, 0.5, 0.3]], [2])
        >>> twin = MultiCalibrator.from_json(cal.to_json())
        >>> (twin.peek([0.2, 0.5, 0.3]) == cal.peek([0.2, 0.5, 0.3])).all()
        np.True_
        """
        with self._lock:
            self._recover()
            return seal(
                KIND,
                FORMAT,
                {
                    "classes": self._classes.given,
                    "method": self._method,
                    "logits": self._logits,
                    "events": self.events,
                    "stream": self._stream.state(),
                    **self._receipts.dump(self.events),
                },
            )

    @classmethod
    def from_json(cls, text: str | bytes) -> MultiCalibrator:
        """Continue from `to_json`.

        Raises
        ------
        SnapshotMismatch : the text is damaged, or holds no `MultiCalibrator`; the message says what is wrong.
        """
        state = unseal(KIND, FORMAT, FIELDS, text)
        try:
            calibrator = cls(state["classes"], state["method"], state["logits"])
            events = check_whole("events", state["events"], 0, 2**53)
            calibrator._stream.restore(state["stream"], events)
            name, labels = calibrator._receipts.issuer.name, calibrator._classes.labels
            calibrator._receipts = LabelLedger.load(name, labels, state, events, calibrator.outcomes)
        except (InvalidInput, TypeError, KeyError) as error:
            raise SnapshotMismatch(f"snapshot must hold what a calibrator can hold: {error}") from error
        return calibrator


# ---- a stream for each key -----------------------------------------------------------------------------------------


class KeyLedgers:
    """The ledgers of keys that were served one event at a time, by the rules of a `Bank`.

    A key without a ledger has no open events. `identity` describes classes and method: receipts of another bank, or of
    another key, are told from those of this one.
    """

    RECORDS = 65_536

    def __init__(self, identity: str, labels: tuple[Label, ...]) -> None:
        self._identity, self._labels = identity, labels
        self._records: dict[Key, LabelLedger] = {}
        self._many = self.RECORDS
        self.generation: str | None = None  # of a bank that continues from a file, or that took keys of another

    @property
    def keys(self) -> KeysView[Key]:
        return self._records.keys()

    def of(self, key: Key, events: int) -> LabelLedger:
        """The record of a key that has made so many forecasts, made if there is none."""
        found = self._records.get(key)
        if found is None:
            if len(self._records) >= self._many:
                self._sweep()
            generation = (0, "") if self.generation is None else (events, None)
            issuer = Issuer(self._name(key), (generation,))
            found = self._records[key] = LabelLedger(issuer, self._labels, events, keep=KEPT_EVENTS)
        found.catch_up(events)
        return found

    def _name(self, key: Key) -> str:
        return hashlib.blake2b(repr((self._identity, key)).encode(), digest_size=8).hexdigest()

    def _sweep(self) -> None:
        """Drop the ledgers of keys without an open event."""
        self._records = {key: record for key, record in self._records.items() if record.is_open()}
        self._many = max(self.RECORDS, 2 * len(self._records))

    def merged(self, other: KeyLedgers, events: dict[Key, int], others: dict[Key, int]) -> KeyLedgers:
        """The records of both banks, in a new generation; `events` and `others` count the forecasts of each key."""
        both = KeyLedgers(self._identity, self._labels)
        both._records = {
            **{key: self._records[key].copy(count) for key, count in events.items()},
            **{key: other._records[key].copy(count) for key, count in others.items()},
        }
        both.generation = new_generation()
        return both

    # ---- as data --------------------------------------------------------------------------------------------------

    def dump(self, events: dict[Key, int]) -> list[list[Any]]:
        """The records with an open event, as JSON-able data."""
        found = []
        for key, count in events.items():
            self._records[key].catch_up(count)
            if self._records[key].is_open():
                found.append([key, self._records[key].dump(count)])
        return found

    def load(self, data: Any, counts: dict[Key, tuple[int, int]]) -> None:
        """The inverse of `dump`, in a new generation; `counts` are the forecasts and the labels of each key."""
        self.generation = new_generation()
        for key, state in data:
            if not isinstance(state, dict):
                raise InvalidInput(f"record must be an object, got {shown(state)}")
            name = self._name(key)
            self._records[key] = LabelLedger.load(name, self._labels, state, *counts[key], keep=KEPT_EVENTS)


class VectorRows:
    """The rows of "raw", "ots" and "multi", one for each key.

    Single events are served by one stream, which takes a copy of the key's row and puts it back in one step.
    """

    def __init__(self, method: str, classes: Classes, identity: str) -> None:
        self.method, self.K, self.classes = vector.CODES[method], classes.count, classes
        self.fresh = vector.initial_row(self.method, self.K)
        self.matrix = np.empty((0, len(self.fresh)))
        self.index: Index | None = None  # ints or strings: the first key tells
        self.records = KeyLedgers(identity, classes.labels)
        self._serving = VectorStream(method, self.K)
        self._latest: tuple[Key, MultiForecast] | None = None  # the forecast that the scratch is about
        # What is under way, so that the call after an interrupt undoes it: keys from this number on that are only in
        # the index; and a label of an event in a ledger, of a slot that had learnt so many.
        self._opening: tuple[Index, int] | None = None
        self._settling: tuple[LabelLedger, int, int, float] | None = None

    def recover(self) -> None:
        """Undo what an interrupt left half done. If this is interrupted too, the next call does it."""
        if self._opening is not None:
            index, count = self._opening
            index.relink(count)
            self._opening = None
        if self._settling is not None:
            receipts, event, slot, learnt = self._settling
            if self.matrix[slot, vector.N] == learnt:
                receipts.reopen(event)
            self._settling = None

    def _begin(self, *, ints: bool) -> Index:
        """The index, which is about to get new keys. They are there when `_opening` is None again."""
        index = self.index or (IntIndex() if ints else StringIndex())
        self._opening = index, index.count
        return index

    def __len__(self) -> int:
        return 0 if self.index is None else self.index.count

    def check(self, column: KeyColumn) -> None:
        """Raise if the keys are of another kind than those that are here."""
        self.check_kind(ints=isinstance(column, IntColumn))

    def check_kind(self, *, ints: bool) -> None:
        """Raise if ints, or strings, are no keys of this bank."""
        if self.index is not None and ints != isinstance(self.index, IntIndex):
            wanted, got = ("strings", "ints") if ints else ("ints", "strings")
            raise InvalidInput(f"keys must be {wanted} like those of the bank, got {got} - at row 0")

    def run(self, column: KeyColumn, scores: Vector, labels: Ints, due: Ints | None) -> Vector:
        """On copies of the rows that are touched, which then take their place: all of it happens, or nothing."""
        self._latest, index = None, self._begin(ints=isinstance(column, IntColumn))
        before = index.count
        slots = index.add(column)
        used, places = np.unique(slots, return_inverse=True)
        rows = np.empty((len(used), len(self.fresh)))
        rows[used < before] = self.matrix[used[used < before]]
        rows[used >= before] = self.fresh
        forecasts = self._run(rows, places.astype(np.int64), scores, labels, due)
        matrix = with_room(self.matrix, before, index.count)
        # One line, without a call: an interrupt comes before all of it or after all of it.
        matrix[used], self.index, self.matrix, self._opening = rows, index, matrix, None
        return forecasts

    def _run(self, rows: Vector, slots: Ints, scores: Vector, labels: Ints, due: Ints | None) -> Vector:
        forecasts, work = np.empty(scores.shape), vector.scratch(self.K)
        width = vector.receipt_width(self.method, self.K)
        streams = self.method, self.K, rows.reshape(-1), rows.shape[1]
        if due is None:
            for part in loops.pieces(len(labels), self.K):
                batch = slots[part], scores[part].reshape(-1), labels[part], forecasts[part].reshape(-1)
                vector.run_rows(*streams, *batch, np.empty(width), work)
        else:
            known = np.where(labels == PENDING, np.nan, 0.0)
            late = Arrivals(due, known, slots.astype(np.int32), len(rows))
            batch = slots, scores.reshape(-1), labels, forecasts.reshape(-1)
            receipts = np.empty(len(labels) * width)
            vector.run_rows_late(*streams, *batch, receipts, work, late.moments, late.order)
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
        return self.matrix[self._slot(key, name), :-2].copy()

    def table(self) -> dict[str, npt.NDArray[Any]]:
        rows = self.matrix[: len(self)]
        keys: npt.NDArray[Any] = np.empty(0, dtype=np.int64) if self.index is None else self.index.names()
        events, outcomes = rows[:, vector.T].astype(np.int64), rows[:, vector.N].astype(np.int64)
        evidence = np.array([log + math.log(product) for log, product in rows[:, -2:].tolist()], dtype=np.float64)
        return {"key": keys, "events": events, "outcomes": outcomes, "evidence": evidence}

    # ---- one event ------------------------------------------------------------------------------------------------

    def predict(self, key: Key, name: int | bytes, score: Vector) -> MultiForecast:
        """Forecast one event of a key, which is new or not."""
        self.check_kind(ints=isinstance(name, int))
        slot = -1 if self.index is None else self.index.find_one(name)
        row = self.fresh if slot < 0 else self.matrix[slot]
        events = int(row[vector.T])
        receipts = self.records.of(key, events)
        signature = receipts.issuer.ensure_signature(self.records.generation)
        self._latest, self._serving.row[:] = None, row
        forecast = self._serving.predict(score, self.classes.labels, signature)
        index, matrix, count, made = self.index, self.matrix, events + 1.0, (key, forecast)
        if slot < 0:  # a new key
            index = self._begin(ints=isinstance(name, int))
            before, slot = index.count, index.add_one(name)
            matrix = with_room(self.matrix, before, index.count)
            matrix[slot] = self.fresh
        # To forecast counts the event, and moves nothing else of a row. One line, without a call: see `run`.
        matrix[slot, vector.T], receipts.known, self.index, self.matrix, self._latest, self._opening = (
            count, events + 1, index, matrix, made, None,
        )  # fmt: skip
        return forecast

    def update(self, key: Key, name: int | bytes, forecast: MultiForecast, y: int) -> None:
        """Learn column y of a forecast of a key."""
        slot = self._slot(key, name)
        row = self.matrix[slot]
        events, outcomes = int(row[vector.T]), int(row[vector.N])
        receipts = self.records.of(key, events)
        latest = self._latest is not None and self._latest[0] == key and self._latest[1] is forecast
        if not latest:
            receipts.check(forecast, events, outcomes, expert=self.method == vector.MULTI)
        if receipts.is_repeat(forecast.event, y):
            return
        self._latest, self._serving.row[:] = None, row
        self._settling = receipts, forecast.event, slot, float(outcomes)
        receipts.settle(forecast.event, y)
        self._serving.update(forecast, y, latest=latest)
        row[:], self._settling = self._serving.row, None

    def _slot(self, key: Key, name: int | bytes) -> int:
        if self.index is None or not self.has(name):
            raise UnknownKey(f"key must be one of the {len(self)} in the bank, got {shown(key)}")
        return self.index.find_one(name)

    # ---- keys of another bank -------------------------------------------------------------------------------------

    def merge(self, other: VectorRows) -> None:
        """Take the rows and the records of another bank."""
        if other.index is None:
            return
        column = other.index.column()
        self.check(column)
        common = self._find(column) >= 0
        if common.any():
            key = other.index.key(int(common.argmax()))
            raise InvalidInput(f"banks must have no key in common, got {shown(key)} in both")
        records = self.records.merged(other.records, self._events(), other._events())
        index = self._begin(ints=isinstance(column, IntColumn))
        before, slots = index.count, index.add(column)
        matrix = with_room(self.matrix, before, index.count)
        matrix[slots] = other.matrix[: len(other)]
        # One line, without a call: see `run`.
        self.index, self.matrix, self.records, self._latest, self._opening = index, matrix, records, None, None

    def _events(self) -> dict[Key, int]:
        """How many forecasts each key with a record has had; a key that broke off at its first forecast is not here."""
        if self.index is None:
            return {}
        found = ((key, self.index.find_one(key if isinstance(key, int) else key.encode())) for key in self.records.keys)
        return {key: int(self.matrix[slot, vector.T]) for key, slot in found if slot >= 0}

    # ---- as a file ------------------------------------------------------------------------------------------------

    def header(self) -> dict[str, Any]:
        index = self.index
        kind = "none" if index is None else "ints" if isinstance(index, IntIndex) else "strings"
        seed = None if index is None else index.seed.value
        return {"count": len(self), "keys": kind, "hash_seed": seed, "records": self.records.dump(self._events())}

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
            vector.check_row(self.method, self.K, row, int(row[vector.T]))
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
        self._load_records(header["records"])

    def _load_records(self, data: Any) -> None:
        counts = {}
        for key, _ in data:
            row = self.matrix[self._slot(key, key if isinstance(key, int) else key.encode())]
            counts[key] = int(row[vector.T]), int(row[vector.N])
        self.records.load(data, counts)


class PairRows:
    """A `Bank` of AUTO in the shape of `VectorRows`."""

    def __init__(self, classes: Classes) -> None:
        self.bank = Bank(AUTO)
        self.classes = classes

    def __len__(self) -> int:
        return len(self.bank)

    def recover(self) -> None:
        """The bank does."""

    def check(self, column: KeyColumn) -> None:
        """The bank does."""
        self.bank._store.check(column)

    def run(self, column: KeyColumn, scores: Vector, labels: Ints, due: Ints | None) -> Vector:
        outcomes = np.where(labels == PENDING, np.nan, labels)
        score = np.ascontiguousarray(scores[:, 1])
        return _columns(self.bank.run(_plain(column), score, outcomes, due=due, finish=due is not None))

    def predict_many(self, column: KeyColumn, scores: Vector) -> Vector:
        return _columns(self.bank.predict_many(_plain(column), np.ascontiguousarray(scores[:, 1])))

    def predict(self, key: Key, name: int | bytes, score: Vector) -> MultiForecast:  # noqa: ARG002 - as of others
        return _forecast(self.bank.predict(key, float(score[1])), score, self.classes.labels)

    def update(self, key: Key, name: int | bytes, forecast: MultiForecast, y: int) -> None:  # noqa: ARG002 - as of others
        self.bank.update(key, _binary(forecast), y)

    def merge(self, other: PairRows) -> None:
        self.bank.merge(other.bank)

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
        bank._store.accept_foreign_rows()
        self.bank = bank


def _plain(column: KeyColumn) -> Any:
    return column.keys if isinstance(column, IntColumn) else [key.decode() for key in column.plain()]


class MultiBank(_Host):
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
        super().__init__(classes, method, logits)
        self._rows: Any = (
            PairRows(self._classes) if self._is_pair else VectorRows(self._method, self._classes, self._identity)
        )

    def _whole(self) -> Any:
        """The rows, without what an interrupt has left half done. The caller holds the lock."""
        self._rows.recover()
        return self._rows

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
            return self._whole().predict(check_key(key), plain_key(key), score)

    def update(self, key: Key, forecast: MultiForecast, label: Label) -> None:
        """Learn the label of a forecast of this key, now or any time later, in any order.

        The same label a second time changes nothing.

        Raises
        ------
        InvalidInput : the label is no class, or the receipt is damaged.
        UnknownKey : the bank has no such key.
        UnknownForecast : another key or bank has issued the receipt, or it is too old.
        OutcomeConflict : another label of this event was learnt.
        """
        if not isinstance(forecast, MultiForecast):
            raise InvalidInput(f"forecast must be a MultiForecast made by predict, got {type(forecast).__name__}")
        y = self._classes.column(label)
        with self._lock:
            self._whole().update(check_key(key), plain_key(key), forecast, y)

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

        Raises
        ------
        InvalidInput : a key, a score, a label or a due time is impossible; the message names the first bad row.
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
            self._whole().check(column)
            return like_matrix(scores, self._rows.run(column, matrix, columns, arrivals))

    def predict_many(self, keys: Any, scores: Any) -> Any:
        """Forecast many events from the present state: nothing is learnt, nothing changes.

        A key that the bank does not know gets the forecast that it would get as a new one.
        """
        column, matrix = check_keys(keys), check_scores(scores, self._classes, self._logits)
        if len(column) != len(matrix):
            raise InvalidInput(f"arrays must have the same length, got keys {len(column)}, scores {len(matrix)}")
        with self._lock:
            self._whole().check(column)
            return like_matrix(scores, self._rows.predict_many(column, matrix))

    # ---- as a collection ------------------------------------------------------------------------------------------

    @property
    def table(self) -> dict[str, npt.NDArray[Any]]:
        """A column each of key, events, outcomes and evidence (see `MultiCalibrator.evidence`), a row for each key."""
        with self._lock:
            return self._whole().table()

    def row(self, key: Key) -> Vector:
        """The state of a key, as a copy: the row of a `MultiCalibrator` that has seen its events alone."""
        with self._lock:
            return self._whole().row(check_key(key), plain_key(key))

    def __len__(self) -> int:
        with self._lock:
            return len(self._whole())

    def __iter__(self) -> Iterator[Key]:
        return iter(self.table["key"].tolist())

    def __contains__(self, key: object) -> bool:
        with self._lock:
            return isinstance(key, (int, str)) and self._whole().has(plain_key(check_key(key)))

    def __repr__(self) -> str:
        return f"MultiBank({self._classes.count} classes, method={self._method!r}, keys={len(self)})"

    def merge(self, other: MultiBank) -> None:
        """Take the keys of another bank of the same classes and method, as shards of several machines come together.

        Receipts that the other bank has issued before can be brought here.

        >>> from calibeat import MultiBank
        >>> east, west = MultiBank(3), MultiBank(3)
        >>> P, Q = east.run(["oslo"], [[0.2, 0.5, 0.3]], [1]), west.run(["rome"], [[0.2, 0.5, 0.3]], [0])
        >>> east.merge(west)
        >>> list(east)
        ['oslo', 'rome']

        Raises
        ------
        InvalidInput : the banks differ in classes or method, or both have a key, which the message names. Nothing has
            happened then.
        """
        if not isinstance(other, MultiBank):
            raise InvalidInput(f"bank must be merged with a MultiBank, got {type(other).__name__}")
        for what in ("classes", "method", "logits"):
            our, their = getattr(self, what), getattr(other, what)
            if our != their:
                raise InvalidInput(f"banks must have the same {what}, got {shown(our)} and {shown(their)}")
        first, second = sorted((self, other), key=id)  # in one order, or two banks could wait for each other
        with first._lock, second._lock:
            self._whole().merge(other._whole())

    # ---- files ----------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the bank to one file: versioned, checksummed, and whole or not at all."""
        with self._lock:
            rows = self._whole()
            header = {
                "multi": {"v": FORMAT, "classes": self._classes.given, "method": self._method, "logits": self._logits},
                **rows.header(),
            }
            bankfile.save_sections(Path(path), header, rows.sections(), check=type(self).load)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> MultiBank:
        """Continue from a file.

        >>> import tempfile, pathlib
        >>> from calibeat import MultiBank
        >>> bank = MultiBank(3)
        >>> P = bank.run(["oslo", "rome"], [[0.2, 0.5, 0.3], [0.1, 0.1, 0.8]], [0, 1])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     bank.save(pathlib.Path(folder) / "cities.bank")
        ...     twin = MultiBank.load(pathlib.Path(folder) / "cities.bank")
        >>> (twin.row("rome") == bank.row("rome")).all()
        np.True_

        Raises
        ------
        SnapshotMismatch : the file was cut or damaged, or holds no such bank.
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
    """Where there is a label. If there are not as many labels as events, `Classes.columns` raises."""
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


def calibrator_of(classes: Any, method: Any, seed: int = 0) -> Calibrator | MultiCalibrator:
    """The calibrator of a model of these classes: of two classes one of the second. "auto" is "multi" of more classes.

    >>> type(calibrator_of([0, 1], "tops")).__name__, type(calibrator_of("abc", "auto")).__name__
    ('Calibrator', 'MultiCalibrator')
    """
    if len(classes) == 2:
        return Calibrator(method, seed)
    if not isinstance(method, str) or method not in ("auto", *METHODS):
        raise InvalidInput(
            f"method must be 'auto' (which is 'multi'), 'multi', 'ots' or 'raw' for {len(classes)} classes, "
            f"got {shown(method)}"
        )
    return MultiCalibrator(list(classes), "multi" if method == "auto" else method)
