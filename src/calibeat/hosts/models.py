"""The door of a calibrator of several models: their names, and the scores of events by name or in order."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from calibeat._compiled import seal_receipts
from calibeat._util.check import check_score, check_scores, check_whole, shown
from calibeat._util.columns import as_frame, is_absent, like, read_column
from calibeat._util.types import Vector
from calibeat._util.words import did_you_mean
from calibeat.core.method import AUTO
from calibeat.core.several import LANE_NAMES, MISSING, MOST_MODELS, SeveralMethod, default_names
from calibeat.errors import InvalidInput

from .receipts import Receipts
from .rows import ReceiptArray, are_whole, numbers_on, receipt_type, scores_on

NUMBERS = ("probability", "score", "expert", "hedge")  # of a receipt, before its lanes


class Models:
    """The names of the models in the order of their scores.

    Parameters
    ----------
    given : how many models there are, or their names.

    Raises
    ------
    InvalidInput : fewer than two, more than sixteen, or a name that is empty or not the only one.
    """

    def __init__(self, given: Any) -> None:
        if isinstance(given, (int, np.integer)) and not isinstance(given, bool):
            self.names = default_names(self._count(int(given)))
            return
        wanted = f"a number of models or their names, 2 to {MOST_MODELS}"
        if isinstance(given, (str, bytes, Mapping, set, frozenset)) or not isinstance(given, (Sequence, np.ndarray)):
            raise InvalidInput(f"models must be {wanted}, got {shown(given)}")
        for place, name in enumerate(given):
            if not isinstance(name, str) or not name:
                raise InvalidInput(f"models must be {wanted}, got {shown(name)} as a name - at model {place}")
            if name in LANE_NAMES:
                lanes = " or ".join(LANE_NAMES)
                raise InvalidInput(f"models must not be called {lanes}, as the lanes are - at model {place}")
        self.names = tuple(str.__str__(name) for name in given)
        if len(set(self.names)) < len(self.names):
            twice = next(name for name in self.names if self.names.count(name) > 1)
            raise InvalidInput(f"models must have different names, got {twice!r} twice")
        self._count(len(self.names))

    def _count(self, count: int) -> int:
        if count == 1:
            raise InvalidInput("models must be 2 or more, got 1 - one model needs no models=: Calibrator()")
        return check_whole("models", count, 2, MOST_MODELS)

    def __len__(self) -> int:
        return len(self.names)

    def check_setting(self, method: Any, kept: Any, groups: Any, band: bool) -> None:
        """Raise unless several models can be combined with the other arguments of a calibrator."""
        if method != AUTO:
            raise InvalidInput("models need the method AUTO, got another: Calibrator(models=...) without a method")
        for name, value in (("kept", kept), ("groups", groups), ("band", band or None)):
            if value is not None:
                raise InvalidInput(f"{name} must be left out with models: several models do not have it yet")

    def one(self, scores: Any) -> Vector:
        """The scores of one event in order; NaN where one is missing."""
        found = np.array([self._score(*named) for named in zip(self.names, self.in_order(scores), strict=True)])
        if np.isnan(found).all():
            raise InvalidInput(f"at least one score must be given, of {self._words()}, got none")
        return found

    def _score(self, name: str, score: Any) -> float:
        try:
            return math.nan if is_absent(score) else check_score(score)
        except InvalidInput as error:
            raise InvalidInput(f"{error} - of {name}") from None

    def in_order(self, scores: Any) -> list[Any]:
        """What was given for each model; None where nothing was."""
        if isinstance(scores, Mapping):
            self._check_names(scores)
            return [scores.get(name) for name in self.names]
        if isinstance(scores, np.ndarray) and scores.ndim == 1:
            scores = scores.tolist()
        if not isinstance(scores, (list, tuple)):
            hint = "" if isinstance(scores, np.ndarray) else f" - {{{self.names[0]!r}: 0.83}} is one of them by name"
            raise InvalidInput(f"scores must be {len(self)} numbers, of {self._words()}, got {shown(scores)}{hint}")
        if len(scores) != len(self):
            raise InvalidInput(f"scores must be {len(self)} numbers, of {self._words()}, got {len(scores)}")
        return list(scores)

    def many(self, scores: Any) -> Vector:
        """The scores of many events, one event behind the other; NaN where one is missing."""
        columns = [self._column(*named) for named in zip(self.names, self._columns(scores), strict=True)]
        events = {len(column) for column in columns if column is not None}
        if len(events) != 1:
            raise InvalidInput(f"scores must have columns of one length, got {sorted(events)}")
        (count,) = events
        matrix = np.full((count, len(self)), np.nan)
        for k, column in enumerate(columns):
            if column is not None:
                matrix[:, k] = column
        empty = np.isnan(matrix).all(axis=1)
        if empty.any():
            raise InvalidInput(
                f"at least one score must be given, of {self._words()}, got none - at row {int(empty.argmax())}"
            )
        return matrix.reshape(-1)

    def _columns(self, scores: Any) -> list[Any]:
        """A column for each model; None where there is none."""
        if isinstance(scores, np.ndarray):
            if scores.ndim != 2 or scores.shape[1] != len(self):
                wanted = f"an array of {len(self)} columns, of {self._words()}"
                raise InvalidInput(f"scores must be {wanted}, got shape {scores.shape}")
            return list(scores.T)
        if isinstance(scores, (list, tuple)):
            rows = [self._row(row, at) for at, row in enumerate(scores)]
            return [[row[k] for row in rows] for k in range(len(self))]
        frame = None if isinstance(scores, Mapping) else as_frame(scores)
        if frame is None and not isinstance(scores, Mapping):
            kinds = "an array or a list of rows, a dict of columns or a data frame"
            raise InvalidInput(f"scores must be {kinds}, of {self._words()}, got {type(scores).__name__}")
        columns = scores if frame is None else frame
        names = list(scores if frame is None else frame.columns)
        self._check_names(names)
        found = [columns[name] if name in names else None for name in self.names]
        if all(column is None for column in found):
            raise InvalidInput(f"scores must have columns of {self._words()}, got none")
        return found

    def _row(self, row: Any, at: int) -> list[Any]:
        try:
            return self.in_order(row)
        except InvalidInput as error:
            raise InvalidInput(f"{error} - at row {at}") from None

    def _column(self, name: str, column: Any) -> Vector | None:
        if column is None:
            return None
        values = read_column(f"scores of {name!r}", column)
        absent = values.absent()
        found = check_scores(column, f"score of {name!r}", ~absent)
        found[absent] = np.nan
        return found

    def _check_names(self, given: Iterable[Any]) -> None:
        for name in given:
            if name not in self.names:
                hint = did_you_mean(name, self.names, 0.6) if isinstance(name, str) else ""
                raise InvalidInput(f"scores must be of {self._words()}, got {shown(name)}{hint}")

    def like(self, scores: Any, forecasts: Vector) -> Any:
        """The forecasts as an array; as a column, if the scores are a data frame."""
        frame = None if isinstance(scores, Mapping) else as_frame(scores)
        return forecasts if frame is None else like(frame[frame.columns[0]].to_native(), forecasts)

    def _words(self) -> str:
        return ", ".join(self.names)


def widened(batch: Receipts, method: SeveralMethod) -> ReceiptArray | None:
    """Receipts from before a model was added, as those of now, on which it is missing; None if they are none.

    The seal of a receipt that was damaged stays wrong.
    """
    for fewer in range(method.models - 1, 1, -1):
        given = batch.of_type(receipt_type(SeveralMethod(fewer)))
        if given is not None:
            wide = np.zeros(len(given), dtype=receipt_type(method))
            for name in ("version", "candidates", "generation", "bin", "cell", "event", "seen", "issuer", *NUMBERS):
                wide[name] = given[name]
            scores_on(wide["lanes"])[:] = MISSING
            wide["lanes"][:, : given["lanes"].shape[1]] = given["lanes"]
            wide["numbers"] = given["numbers"] + (numbers_on(method, 0) - numbers_on(SeveralMethod(fewer), 0))
            seal_receipts(wide.view(np.uint8), wide.itemsize)
            wide["seal"] ^= np.where(are_whole(given), 0, 1).astype(np.uint64)
            return wide
    return None
