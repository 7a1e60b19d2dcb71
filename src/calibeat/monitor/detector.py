"""What a monitor, a notice and the detectors that need no outcomes share: their state as text, and back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from calibeat._util.check import check_interval, check_number, shown
from calibeat._util.processes import new_lock
from calibeat._util.sealed import seal, unseal
from calibeat._util.types import Vector
from calibeat.errors import InvalidInput, SnapshotMismatch

from .bets import Alarm

FORMAT = 1
KEPT = 1000  # alarms that are remembered one by one


def check_sound(what: str, rows: npt.NDArray[np.float64], sound: dict[str, Any]) -> None:
    """Raise a sentence with the first requirement that a row does not meet."""
    for wanted, met in sound.items():
        if not np.all(met):
            row = int((~np.asarray(met)).argmax())
            raise InvalidInput(f"{what} row must have {wanted}, got {shown(rows[row, :32].tolist())} - at row {row}")


class Snapshots(ABC):
    """A state that goes into a snapshot of its own, or into that of a host."""

    KIND: ClassVar[str]
    FIELDS: ClassVar[tuple[str, ...]] = ("settings", "row", "alarms")

    @abstractmethod
    def _state(self) -> dict[str, Any]:
        """The fields, JSON-able."""

    @classmethod
    @abstractmethod
    def _of_state(cls, state: Any) -> Self:
        """The inverse of `_state`. What is missing or of another kind may raise any error."""

    def to_json(self) -> str:
        """The whole state as text: versioned, checksummed, every float exact."""
        return seal(self.KIND, FORMAT, self._state())

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Continue from `to_json`.

        Raises
        ------
        SnapshotMismatch : the text is damaged, or of something else. The message says what is wrong.
        """
        state = unseal(cls.KIND, FORMAT, cls.FIELDS, text)
        try:
            return cls._restored(state)
        except InvalidInput as error:
            raise SnapshotMismatch(f"snapshot must hold what a {cls.__name__.lower()} can hold: {error}") from error

    @classmethod
    def _restored(cls, state: Any) -> Self:
        """The inverse of `_state`, of what may hold anything."""
        try:
            return cls._of_state(state)
        except InvalidInput:
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInput(f"{cls.__name__.lower()} must be as it was saved, got {error!r:.100}") from error

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle by the snapshot."""
        return type(self).from_json, (self.to_json(),)


class Watcher(Snapshots):
    """Row 0 of `Monitors` or `Notices`, alone or in a host, which feeds `_rows` itself, locked and with checked input.

    Readings are consistent, whatever other threads do.
    """

    def _begin(self, rows: Any) -> None:
        self._rows = rows
        self._rows.resize(1)
        self._hosted = False
        self._lock = new_lock()

    @property
    @abstractmethod
    def _has_begun(self) -> bool:
        """Whether it knows of a forecast."""

    def _serve(self) -> Self:
        """Join a host: from now on only the host may tell it of events."""
        name = type(self).__name__.lower()
        with self._lock:
            if self._hosted or self._has_begun:
                raise InvalidInput(f"{name} must be new, got one that has seen forecasts or belongs to another host")
            self._hosted = True
        return self

    def _check_free(self) -> None:
        if self._hosted:
            name = type(self).__name__.lower()
            raise InvalidInput(f"{name} must be fed by its calibrator, to which it belongs, got a call from outside")

    @property
    @abstractmethod
    def alarms(self) -> list[Alarm]:
        """The alarms, oldest first; the last 1,000 are kept."""

    @property
    def pages(self) -> list[Alarm]:
        """The alarms for which somebody should be woken."""
        return [alarm for alarm in self.alarms if alarm.page]

    @property
    def counts(self) -> tuple[int, int]:
        """How many alarms were raised ever, and how many of them paged."""
        with self._lock:
            alarms, pages = self._rows.matrix[0, [self._rows.RAISED_AT, self._rows.RAISED_AT + 1]]
            return int(alarms), int(pages)

    @property
    def row(self) -> Vector:
        """A copy of the state, one row of float64."""
        with self._lock:
            row: Vector = self._rows.matrix[0].copy()
            return row


def read_row(settings: Any, numbers: Any) -> Vector:
    """A row as a snapshot lists it, which these settings can have."""
    row = np.array([check_number(f"row[{i}]", number) for i, number in enumerate(numbers)])
    settings.check_rows(row[None])
    return row


class Detector(Snapshots):
    """One row of a detector. What a call changes it changes in a copy, and puts it in place in one statement."""

    SETTINGS: ClassVar[Any]

    def _begin(self, settings: Any) -> None:
        self._settings = settings
        self._row: Vector = settings.initial_row()
        self._alarms: list[Alarm] = []  # the last ones; it is replaced, never changed
        self._lock = new_lock()

    @property
    def settings(self) -> Any:
        """The parameters."""
        return self._settings

    @property
    def alarms(self) -> list[Alarm]:
        """The alarms, oldest first; the last 1,000 are kept."""
        with self._lock:
            return list(self._alarms)

    @property
    def row(self) -> Vector:
        """A copy of the state, one row of float64."""
        with self._lock:
            return self._row.copy()

    def _state(self) -> dict[str, Any]:
        with self._lock:
            return {
                "settings": asdict(self._settings),
                "row": self._row.tolist(),
                "alarms": written_alarms(self._alarms),
            }

    @classmethod
    def _of_state(cls, state: Any) -> Self:
        made = cls(**state["settings"])
        made._row, made._alarms = read_row(made._settings, state["row"]), read_alarms(state["alarms"])
        return made


def written_alarms(alarms: list[Alarm]) -> list[list[Any]]:
    """Alarms as a snapshot lists them; `read_alarms` is the inverse."""
    return [[alarm.at, alarm.since, alarm.what, alarm.page] for alarm in alarms]


def read_alarms(lines: Any) -> list[Alarm]:
    """Alarms as a snapshot lists them."""
    alarms = []
    for at, since, what, page in lines:
        if not isinstance(what, str) or not isinstance(page, bool):
            raise InvalidInput(f"alarm must say what it is and whether it pages, got {what!r:.40}, {page!r:.40}")
        when = check_number("alarm at", at) if isinstance(at, float) else at
        alarms.append(Alarm(when, check_interval("alarm since", since, 0.0, 1e300), what, page))
    return alarms
