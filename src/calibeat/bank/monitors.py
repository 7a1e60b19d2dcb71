"""The monitors of a bank as a database keeps them: bytes out, bytes in, forecasts that are given up, new alarms.

The bytes of a monitor are its row and the number of the first forecast that it has not read. The outcomes that it
holds, because an earlier one is missing, are not among them: whoever stores the events has them already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from calibeat.errors import InvalidInput
from calibeat.monitor.bets import ALARMS, FORECASTS, PAGES, N, Settings
from calibeat.monitor.monitor import Alarm, last_alarm
from calibeat.monitor.monitors import Monitors
from calibeat.monitor.waiting import Event, Queue

if TYPE_CHECKING:
    from .bank import Bank


def monitor_states(bank: Bank, keys: Any) -> list[bytes]:
    """The monitors of some keys, as bytes.

    >>> from calibeat import Bank, Monitor
    >>> bank = Bank("ops", monitor=Monitor())
    >>> p = bank.run(["oslo"], [0.5], [1])
    >>> first_unread(monitor_states(bank, ["oslo"])[0])
    1
    """
    with bank._lock:
        bank._check_not_broken()
        monitors, slots = bank._watching(), bank._slots_of(keys)
        rows = monitors.matrix[slots]
        return [_to_bytes(monitors, slot, row) for slot, row in zip(slots.tolist(), rows, strict=True)]


def _to_bytes(monitors: Monitors, slot: int, row: Any) -> bytes:
    queue = monitors.queues.get(slot)
    following = int(row[FORECASTS]) if queue is None else queue.next
    return bytes(row.tobytes() + following.to_bytes(8, "little"))


def first_unread(state: bytes) -> int:
    """The number of the first forecast that a monitor has not read; outcomes of later ones are held."""
    return int.from_bytes(state[-8:], "little")


def set_monitor_states(bank: Bank, keys: Any, states: Sequence[bytes], held: Sequence[Mapping[int, Event]]) -> None:
    """Put monitors in place, of keys that are there; `held` are the outcomes learnt after the first unread forecast."""
    with bank._lock:
        bank._check_not_broken()
        monitors, slots = bank._watching(), bank._slots_of(keys)
        width = monitors.settings.width
        if any(len(state) != 8 * width + 8 for state in states):
            raise InvalidInput(f"monitor states must be {8 * width + 8} bytes each, got others")
        rows = np.array([np.frombuffer(state, count=width) for state in states]).reshape(len(states), width)
        monitors.settings.check_rows(rows)
        for slot, row, state, waiting in zip(slots.tolist(), rows, states, held, strict=True):
            monitors.matrix[slot] = row
            monitors.queues.pop(slot, None)
            announced, following = int(row[FORECASTS]), first_unread(state)
            if following < announced:
                queue = monitors.queues[slot] = Queue(monitors.settings.patience)
                queue.announced, queue.next, queue.given_up = announced, following, following - int(row[N])
                queue.held = {number: event for number, event in waiting.items() if number > following}


def readings(settings: Settings, state: bytes) -> dict[str, Any]:
    """What a stored monitor says, by the names of `Bank.table`: alarms, level, evidence, gain."""
    monitors = Monitors(settings)
    monitors.resize(1)
    monitors.matrix[0] = np.frombuffer(state, count=settings.width)
    columns = monitors.columns(np.zeros(1, dtype=np.int32))
    return {name: column[0].item() for name, column in columns.items()}


def give_up(bank: Bank, events: Iterable[tuple[str, int]]) -> None:
    """The outcomes of these forecasts (key, number) will never come: those behind them need not wait."""
    with bank._lock:
        bank._check_not_broken()
        monitors = bank._store.monitors
        if monitors is not None:
            for key, number in events:
                monitors.update(bank._known(key), number, None)


class Alarms(NamedTuple):
    """How many alarms a key has had, how many of them paged, and the last one."""

    alarms: int
    pages: int
    last: Alarm | None


def alarms_of(bank: Bank, keys: Any) -> list[Alarms]:
    """The alarms of some keys."""
    with bank._lock:
        bank._check_not_broken()
        monitors = bank._watching()
        found: list[Alarms] = []
        for row in monitors.matrix[bank._slots_of(keys)]:
            count, pages, last = int(row[ALARMS]), int(row[PAGES]), None
            if count:
                last = last_alarm(monitors.settings, row, page=pages == count)
            found.append(Alarms(count, pages, last))
        return found
