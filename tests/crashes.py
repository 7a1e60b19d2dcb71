"""Engines that end in the middle of anything, as after SIGKILL, in the process of a test.

What SQLite has committed is there afterwards, and nothing else: no file is written to an end, nothing is folded.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from services import Desk


def drop(engine: Any) -> None:
    """End an engine without a word: what it has not committed is gone."""
    store = engine.store
    store.connection.database.close()  # not `close`: nothing is written or folded
    os.close(store._lock)


@contextmanager
def killed(url: str, **settings: Any) -> Iterator[Desk]:
    """An engine that answers out of the log, and ends without a word."""
    made = Desk(url, **settings)
    made.engine.behind.may_wait = True
    yield made
    drop(made.engine)


def die_in(engine: Any, steps: int) -> None:
    """Let all statements of an engine fail, from one in the middle of which it is after so many steps of SQLite."""
    left = [steps]

    def is_over() -> int:
        left[0] -= 1
        return int(left[0] <= 0)

    engine.store.connection.database.set_progress_handler(is_over, 1)
