from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from calibeat._util.types import UpdateStatus
from calibeat.errors import InvalidInput

MADE_FROM: str  # a hash of the files that it was compiled from

def checksum(content: Any, before: int) -> int: ...
def numbers_of(values: list[Any], numbers: Any, booleans: bool) -> bool: ...
def bytes_of(values: list[Any], size: int, joined: Any) -> bool: ...
def draw_in_order(key: int, first: int, draws: Any) -> None: ...
def draw_each(keys: Any, events: Any, draws: Any) -> None: ...
def __getattr__(name: str) -> Any: ...  # entries of kernels, which `core.subset.entry` looks up

class EventWords:
    _cached: list[dict[Any, tuple[type, int]]]
    def _serve(self, attributes: tuple[str, ...], takes_more: bool) -> None: ...
    def of_event(self, values: Any) -> list[int]: ...

class Forecast(float):
    probability: float
    score: float
    expert: float
    bin: int
    cell: int
    event: int
    seen: int
    issuer: str
    lanes: tuple[float, ...]
    hedge: tuple[tuple[float, float], ...]
    candidates: tuple[tuple[float, float], ...]
    words: tuple[int, ...]
    def __init__(
        self,
        probability: float,
        score: float,
        expert: float,
        bin: int,
        cell: int,
        event: int,
        seen: int,
        issuer: str,
        lanes: tuple[float, ...] = (),
        hedge: tuple[tuple[float, float], ...] = (),
        words: tuple[int, ...] = (),
    ) -> None: ...
    def __replace__(self, **changes: Any) -> Forecast: ...
    def to_dict(self) -> dict[str, Any]: ...
    def to_json(self) -> str: ...
    @classmethod
    def from_json(cls, text: str | bytes) -> Forecast: ...
    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Forecast: ...
    def to_bytes(self) -> bytes: ...
    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> Forecast: ...

class MultiForecast:
    probabilities: npt.NDArray[np.float64]
    label: Any
    score: npt.NDArray[np.float64]
    lanes: npt.NDArray[np.float64]
    event: int
    seen: int
    issuer: str
    binary: Forecast | None
    column: int
    confidence: float
    def __init__(
        self,
        probabilities: Any,
        label: Any,
        score: Any,
        lanes: Any,
        event: int,
        seen: int,
        issuer: str,
        binary: Forecast | None = None,
    ) -> None: ...
    def __replace__(self, **changes: Any) -> MultiForecast: ...
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]: ...
    def to_dict(self) -> dict[str, Any]: ...
    def to_json(self) -> str: ...
    @classmethod
    def from_json(cls, text: str | bytes) -> MultiForecast: ...
    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> MultiForecast: ...
    def to_bytes(self) -> bytes: ...
    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview, classes: Any = None) -> MultiForecast: ...

def not_a_receipt(given: Any, kind: str, outcome: Any) -> InvalidInput: ...

class Marks:
    span: tuple[int, bytearray]
    others: dict[int, int]

class LedgerOfStream:
    settled: Any

class Stream:
    _events: int
    _is_busy: bool
    _is_forked: bool
    _is_watched: bool
    _is_member: bool
    _needs_history: bool
    _has_batch: bool
    _is_crowded: bool
    _row: Any
    _lock: Any
    _owed: tuple[Any, ...] | None
    _announce: Callable[[int, Any], None]
    _signature: str
    _receipts: Any
    def predict(self, score: Any, groups: Any = None) -> Any: ...
    def update(self, forecast: Any, outcome: Any) -> UpdateStatus: ...
    def _serve(self, spec: Any, row: Any, needs_history: bool) -> None: ...
    def _serve_groups(self, maker: EventWords, cells: Any) -> None: ...
    def _begin_generation(self, signature: str, key: int) -> None: ...
    def _is_own(self, forecast: Any) -> bool: ...
    def _is_latest(self, forecast: Any) -> bool: ...
    def _words(self, groups: Any) -> bytes | None: ...
    def _forecast(self, score: Any, words: bytes | None = None) -> Any: ...
    def _peek(self, score: Any, words: bytes | None = None) -> Any: ...
    def _learn(self, forecast: Any, y: float) -> None: ...
    def _settle(self, forecast: Any, y: float, settled: Marks, owed: Any, row: Any = None) -> None: ...
    def _take_batch(self, row: Any, events: int, settled: Marks, owed: Any) -> None: ...

class VectorStream(Stream):
    def _serve_classes(self, labels: tuple[Any, ...], columns: dict[Any, int], logits: bool, work: Any) -> None: ...
