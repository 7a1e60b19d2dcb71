"""Two classes: AUTO on the second column, with two columns out."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from calibeat._util.types import Ints, Vector
from calibeat.core.method import AUTO
from calibeat.errors import InvalidInput, SnapshotMismatch
from calibeat.hosts import bankfile
from calibeat.hosts.bank import Bank
from calibeat.hosts.keys import IntColumn, IntIndex, Key, KeyColumn
from calibeat.stream.calibrator import Calibrator
from calibeat.stream.forecast import Forecast

from .check import Classes
from .forecast import MultiForecast, frozen
from .receipts import PENDING


class PairStream:
    """A `Calibrator` in the shape of a `VectorStream`."""

    def __init__(self) -> None:
        self._auto = Calibrator(AUTO)

    @property
    def row(self) -> Vector:
        return self._auto.row

    @property
    def width(self) -> int:
        return len(self._auto.row)

    @property
    def outcomes(self) -> int:
        return self._auto.outcomes

    def predict(self, score: Vector, event: int, label: Any, issuer: str) -> MultiForecast:
        """Forecast one event."""
        return replace(_forecast(self._auto.predict(float(score[1])), score, label), event=event, issuer=issuer)

    def update(self, forecast: MultiForecast, y: int, *, latest: bool) -> None:  # noqa: ARG002 - AUTO knows by itself
        """Learn column y of a forecast."""
        self._auto.update(_binary(forecast), y)

    def run(self, scores: Vector, labels: Ints, events: int, late: tuple[Ints, Ints] | None, *, finish: bool) -> Vector:
        """Predict and learn, event after event; AUTO counts the events itself."""
        del events
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


class PairRows:
    """A `Bank` of AUTO in the shape of `Rows`."""

    def __init__(self, classes: Classes) -> None:
        self.bank = Bank(AUTO)
        self.classes = classes

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


def _plain(column: KeyColumn) -> Any:
    return column.keys if isinstance(column, IntColumn) else [key.decode() for key in column.plain()]


def _columns(p: Vector) -> Vector:
    return np.stack([1.0 - p, p], axis=1)
