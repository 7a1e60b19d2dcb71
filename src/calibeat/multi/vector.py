"""One stream of vectors: a row, the kernels that move it, and the choice between plain and compiled."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from calibeat._util.types import Ints, Vector
from calibeat.core.jit import can_load, compiled, for_cost, is_cached, is_compiled, plain
from calibeat.errors import InvalidInput

from . import kernel, layout, loops
from .export import frozen_numbers
from .forecast import MultiForecast, frozen

SINGLE = (kernel.predict, kernel.settle, kernel.update)
PLAIN_SECONDS = 18e-6  # of plain Python for a class of an event
PLAIN_WORK = 10_000  # classes times events as plain Python, a fifth of a second, before the cache is looked into
_looked = [False]  # whether this process has looked


class VectorStream:
    """The state and the arithmetic of "raw", "ots" and "multi"; whoever calls has checked what comes in."""

    def __init__(self, method: str, K: int) -> None:
        self.method, self.K = layout.CODES[method], K
        self.row = layout.initial_row(self.method, K)
        self._work = layout.scratch(K)
        self._receipt = np.zeros(layout.receipt_width(self.method, K))
        self._done = 0
        self._predict, self._settle, self._update = plain(kernel.predict), plain(kernel.settle), plain(kernel.update)
        self._plain = True
        self.take_compiled()

    @property
    def width(self) -> int:
        """Of the row, without the evidence."""
        return len(self.row) - 2

    @property
    def outcomes(self) -> int:
        return int(self.row[layout.N])

    def predict(self, score: Vector, event: int, label: Any, issuer: str) -> MultiForecast:
        """Forecast one event; `label` says which label a column is."""
        self._count()
        forecast = np.empty(self.K)
        self._predict(self.method, self.K, self.row, score, self._receipt, self._work, forecast)
        self.row[layout.T] = event + 1.0
        seen, slope, expert = int(self.row[layout.N]), None, None
        if self.method != layout.RAW:
            slope = float(self._receipt[layout.ISSUED_SLOPE])
        if self.method == layout.MULTI:
            expert = frozen(self._receipt[layout.SCORE + self.K :].copy())
        top = label[int(forecast.argmax())]
        return MultiForecast(frozen(forecast), top, frozen(score), expert, slope, event, seen, issuer)

    def update(self, forecast: MultiForecast, y: int, *, latest: bool) -> None:
        """Learn column y of a forecast of this stream; `latest` if the scratch is still about it."""
        self._count()
        issued = float(forecast.probabilities[y])
        before = self.row.copy() if self._plain else None  # plain kernels write one number after the other
        try:
            if latest and forecast.seen == self.row[layout.N]:
                self._settle(self.method, self.K, self.row, y, self._receipt, self._work, issued)
            else:
                receipt = self._receipt_of(forecast)
                self._update(self.method, self.K, self.row, y, receipt, self._work, issued)
        except BaseException:
            if before is not None:
                self.row[:] = before
            raise

    def _receipt_of(self, forecast: MultiForecast) -> Vector:
        slope = 1.0 if forecast.slope is None else forecast.slope
        expert = () if forecast.expert is None else forecast.expert
        return np.concatenate(([forecast.seen, slope], forecast.score, expert))

    def run(self, scores: Vector, labels: Ints, events: int, late: tuple[Ints, Ints] | None, *, finish: bool) -> Vector:
        """Predict and learn, event after event. If anything breaks off the loop, nothing has happened."""
        del finish  # the order in `late` says it
        row, forecasts = self.row.copy(), np.empty(scores.shape)
        flat, out, t = scores.reshape(-1), forecasts.reshape(-1), float(events)
        seconds = PLAIN_SECONDS * scores.size
        if late is None:
            for_cost(loops.run, seconds)(self.method, self.K, row, t, flat, labels, out, self._receipt, self._work)
        else:
            receipts, n = np.empty(len(scores) * len(self._receipt)), len(scores)
            for_cost(loops.run_late, seconds)(
                self.method, self.K, row, t, flat, labels, out, receipts, self._work, *late, 0, 0, n, 0
            )
        self.row[:] = row
        self._look_in_cache()
        return forecasts

    def predict_many(self, scores: Vector) -> Vector:
        """Forecast many scores from the present row."""
        forecasts = np.empty(scores.shape)
        for_cost(loops.predict_many, PLAIN_SECONDS * scores.size)(
            self.method, self.K, self.row, scores.reshape(-1), forecasts.reshape(-1), self._receipt, self._work
        )
        return forecasts

    @property
    def evidence(self) -> float:
        return float(self.row[-2] + math.log(self.row[-1]))

    def params(self, labels: tuple[Any, ...]) -> dict[str, Any]:
        """See `MultiCalibrator.params`."""
        row, K = self.row, self.K
        if self.method == layout.RAW:
            return {}
        if self.method == layout.ONLINE_TEMPERATURE:
            return {"a": float(row[2])}
        w = row[layout.W : layout.W + 6]
        theta = row[layout.THETA : layout.OFFSET].reshape(4, layout.THETA_WIDTH)[:, :3]
        a, c, d = (w[:4] @ theta).tolist()
        biases = row[layout.BIAS : layout.BIAS + 8 * K].reshape(4, 2, K)[:, 0]
        stages = ("lanes", "factors", "confusion") if K <= layout.MOST_CONFUSED else ("lanes", "factors")
        return {
            "lanes": _named(layout.LANE_NAMES, w),
            "a": float(a + w[4] + w[5] * row[layout.SLOPE]),
            "c": c,
            "d": d,
            "bias": _named(labels, w[:4] @ biases),
            "online temperature": float(row[layout.SLOPE]),
            "stages": _named(stages, row[layout.V :]),
            "top": _named(("plain", "spline"), row[layout.Z :]),
            "guard": _named(("expert", "online temperature"), row[layout.G :]),
        }

    def frozen(self) -> tuple[dict[str, Any], None]:
        """For `MultiCalibrator.export`."""
        return frozen_numbers(self.method, self.K, self.row), None

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
        layout.check_row(self.method, self.K, row, events)
        self.row[:] = row

    # ---- plain or compiled ----------------------------------------------------------------------------------------

    def take_compiled(self) -> None:
        """Serve single events by the compiled kernels from now on, if they are in memory: the same bits."""
        if is_compiled(*SINGLE):  # pragma: no cover - the leg that measures coverage has the JIT off
            self._predict, self._settle = compiled(kernel.predict), compiled(kernel.settle)
            self._update, self._plain = compiled(kernel.update), False

    def _count(self) -> None:
        self._done += self.K
        if self._done - self.K < PLAIN_WORK <= self._done:
            self._look_in_cache()

    def _look_in_cache(self) -> None:
        if not _looked[0]:
            _looked[0] = True
            if is_cached(*SINGLE) and all(  # pragma: no cover - as above
                can_load(function, *arguments) for function, arguments in _single_calls()
            ):
                load_single()
        self.take_compiled()


def load_single() -> None:
    """Compile the kernels of single events, or read them from the cache."""
    for function, arguments in _single_calls():
        compiled(function)(*arguments)


def _single_calls() -> list[tuple[Any, tuple[Any, ...]]]:
    """A call of each kernel of single events: one signature serves all methods and all numbers of classes."""
    K, method = 3, layout.MULTI
    row, receipt, work = layout.initial_row(method, K), np.zeros(2 + 2 * K), layout.scratch(K)
    score, forecast = np.array([0.5, 0.25, 0.25]), np.empty(K)
    return [
        (kernel.predict, (method, K, row, score, receipt, work, forecast)),
        (kernel.settle, (method, K, row, 0, receipt, work, 0.5)),
        (kernel.update, (method, K, row, 0, receipt, work, 0.5)),
    ]


def _named(names: tuple[Any, ...], values: Vector) -> dict[Any, float]:
    return dict(zip(names, values[: len(names)].tolist(), strict=True))
