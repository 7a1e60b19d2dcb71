"""Two classes: AUTO on the second column, with two columns out."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from calibeat._util.types import Ints, Vector
from calibeat.core.presets import AUTO
from calibeat.errors import InvalidInput, SnapshotMismatch
from calibeat.stream.calibrator import Calibrator

from .forecast import MultiForecast, frozen


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
        binary = self._auto.predict(float(score[1]))
        probabilities = _columns(np.array([binary.probability]))[0]
        expert = _columns(np.array([binary.expert]))[0]
        top = label[int(probabilities.argmax())]
        return MultiForecast(
            frozen(probabilities), top, frozen(score), frozen(expert), None, event, binary.seen, issuer, binary
        )

    def update(self, forecast: MultiForecast, y: int, *, latest: bool) -> None:  # noqa: ARG002 - AUTO knows by itself
        """Learn column y of a forecast."""
        if forecast.binary is None or forecast.binary.event != forecast.event:
            raise InvalidInput(f"forecast must hold the receipt of AUTO, got none - at event {forecast.event}")
        self._auto.update(forecast.binary, y)

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


def _columns(p: Vector) -> Vector:
    return np.stack([1.0 - p, p], axis=1)
