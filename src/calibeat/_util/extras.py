"""Optional libraries: one way to ask for one, and one sentence when it is missing."""

from __future__ import annotations

import importlib
from typing import Any

from calibeat.errors import MissingExtra


def need(library: str, extra: str, what: str) -> Any:
    """The module of an optional library, or `MissingExtra`, which says what needs it and how to install it.

    >>> need("math", extra="backtest", what="logs").pi > 3
    True
    >>> need("no_such_library", extra="backtest", what="logs")
    Traceback (most recent call last):
        ...
    calibeat.errors.MissingExtra: logs need no_such_library: pip install 'calibeat[backtest]'
    """
    try:
        return importlib.import_module(library)
    except ImportError as error:
        raise missing(library.partition(".")[0], extra, what) from error


class LazyModule:
    """A module that is imported when something of it is first used; `need` has been asked before.

    >>> LazyModule("math").pi > 3
    True
    """

    def __init__(self, library: str) -> None:
        self._library = library

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what Python asks of any object; the library is not meant
            raise AttributeError(name)
        return getattr(importlib.import_module(self._library), name)


def missing(library: str, extra: str, what: str) -> MissingExtra:
    """The error itself, for modules that import many names of one library."""
    verb = "need" if what.endswith("s") and not what.endswith(("ss", "sklearn")) else "needs"
    return MissingExtra(f"{what} {verb} {library}: pip install 'calibeat[{extra}]'")
