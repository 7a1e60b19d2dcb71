"""The process: how many cores it may use, and what a fork does to locks and hosts.

A child process is a copy in which the other threads are gone. What they were moving would stay torn, a lock that they
held would stay held for ever, and two processes would sign their receipts alike. So a fork waits until no step is at
work; each child makes the locks anew, and tells the hosts, which begin a new generation.
"""

from __future__ import annotations

import os
import weakref
from threading import RLock
from typing import Any, Protocol

from calibeat._compiled import after_fork, before_fork


def usable_cores() -> int:
    """The cores of the affinity mask where the system has one, as in a container that may use 2 of 64.

    >>> 1 <= usable_cores() <= os.cpu_count()
    True
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Copied(Protocol):
    """Something that has to know that it is a copy in a child process."""

    def _forked(self) -> None: ...


_locks: set[weakref.ref[Any]] = set()
_hosts: set[weakref.ref[Copied]] = set()


def new_lock() -> RLock:
    """A lock that is free in each child process, unless the thread that forks holds it itself."""
    lock = RLock()
    _locks.add(weakref.ref(lock, _locks.discard))
    return lock


def register(host: Copied) -> None:
    """Let a host know in each child process, for as long as it lives."""
    _hosts.add(weakref.ref(host, _hosts.discard))


def _in_child() -> None:
    after_fork()
    for known in list(_locks):
        lock = known()
        if lock is not None:
            if lock.acquire(blocking=False):
                lock.release()
            else:
                lock._at_fork_reinit()  # noqa: SLF001 - as the standard library does with its own
    for reference in list(_hosts):
        host = reference()
        if host is not None:
            host._forked()  # noqa: SLF001 - a part of this, not of what the host offers to others


if hasattr(os, "register_at_fork"):  # pragma: no branch - there is no fork on Windows
    os.register_at_fork(before=before_fork, after_in_parent=after_fork, after_in_child=_in_child)
