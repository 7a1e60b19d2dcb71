"""What is done to streams of a store from the command line, as a service does it: see `controls` and `rework`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from calibeat._util.progress import Step, no_progress
from calibeat.errors import InvalidInput, OutcomeConflict, UnknownKey

from .engine import Engine, on_store
from .events import Control, Refusal
from .store import reading

FORGOTTEN_AT_ONCE = 1000


def change(url: str, control: Control) -> str:
    """Do something to a stream -> a word for it. On PostgreSQL services may run meanwhile.

    Raises
    ------
    UnknownKey : there is no such stream.
    OutcomeConflict : the new name is taken.
    InvalidInput : a service writes to the store.
    """
    with on_store(url) as engine:
        done = _ask(engine, control)
        engine.finish_all()
        return done


def forget(url: str, ids: Sequence[str], stream: str | None = None, step: Step = no_progress) -> int:
    """Delete events from the database, those of one stream or of all -> how many. What was learnt from them stays.

    Raises
    ------
    UnknownKey : there is no such stream.
    InvalidInput : a service writes to the store.
    """
    with reading(url) as connection:
        names = [name for (name,) in connection.all("SELECT name FROM stream WHERE events > 0 ORDER BY number")]
    if stream is not None and stream not in names:
        raise UnknownKey(f"stream must be one of the store, got {stream!r:.60}")
    with on_store(url) as engine:
        for name in names if stream is None else [stream]:
            for first in range(0, len(ids), FORGOTTEN_AT_ONCE):
                try:
                    _ask(engine, Control("forget", name, ids=tuple(ids[first : first + FORGOTTEN_AT_ONCE])))
                except UnknownKey:
                    continue  # none of them is in this stream
            step(1)
        return engine.rework_all()


def _ask(engine: Engine, control: Control) -> str:
    answers = engine.process([(None, [control])])
    if not answers:  # it is recorded
        return ""
    answer: Any = answers[0][1]
    if isinstance(answer, Refusal):
        kind = {404: UnknownKey, 409: OutcomeConflict}.get(answer.status, InvalidInput)
        raise kind(answer.message)
    return str(answer[0])
