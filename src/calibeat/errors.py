"""Every error that calibeat raises on purpose. Messages read: what, requirement, got, where."""

from __future__ import annotations


class CalibeatError(Exception):
    """The root: ``except CalibeatError`` catches everything that calibeat raises on purpose."""


class InvalidInput(CalibeatError, ValueError):
    """A score, an outcome, an array or a hyper-parameter breaks the rule that the message states."""


class WithoutBand(InvalidInput, AttributeError):
    """A forecast without a band is asked how sure it is."""


class UnknownMethod(CalibeatError, ValueError):
    """No method has that name."""


class SnapshotMismatch(CalibeatError):
    """A saved state cannot be restored: it is cut, edited, of another version or of another program."""


class _Missing(CalibeatError, KeyError):
    def __str__(self) -> str:
        # KeyError shows the repr of its argument; a sentence should be shown as it is.
        return str(self.args[0]) if self.args else ""


class UnknownForecast(_Missing):
    """The forecast was not issued by this calibrator."""


class UnknownKey(_Missing):
    """The bank has no such key."""


class OutcomeConflict(CalibeatError):
    """The forecast already has another outcome."""


class MissingExtra(CalibeatError, ImportError):
    """An optional dependency is not installed."""
