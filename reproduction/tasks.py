"""Units of work that are done once. Each finished one is a file, so a killed command resumes."""

from __future__ import annotations

import hashlib
import json
import logging
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TextIO

from calibeat._util.progress import Step, progress

from .forests import ForestStream
from .storage import load_arrays, save_arrays, source_digest

Arrays = dict[str, Any]
Results = Mapping[str, Sequence[Mapping[str, Any]]]  # of all runs, by the task's name


@dataclass(frozen=True)
class Task:
    """One run: what is computed (`work`), on what (`about`: a stream, or a name), with which seed.

    `work` is a function of a module, called with the task, the folder of the datasets and the cache.
    """

    work: Callable[[Task, Path | None, Path], Arrays]
    kind: str
    about: ForestStream | str
    seed: int
    small: int = 0  # a shorter version for trials: so many events; 0 is the paper's length
    kept: bool = True  # a measured time is true of the moment: it is never taken from the cache

    @property
    def name(self) -> str:
        """What all runs of one kind on one stream share."""
        return f"{self.kind} {self.about if isinstance(self.about, str) else self.about.name}".rstrip()

    def path(self, cache: Path) -> Path:
        """Where its result is kept; another version of calibeat does not find it."""
        about = self.about if isinstance(self.about, str) else self.about.key(self.seed)
        key = {"kind": self.kind, "about": about, "seed": self.seed, "small": self.small, "source": source_digest()}
        digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
        return cache / "runs" / self.name.replace(" ", "-") / f"{self.seed}-{digest}.npz"


def finish(task: Task, data: Path | None, cache: Path) -> None:
    """Compute and keep the result, unless it is there already."""
    path = task.path(cache)
    if load_arrays(path) is None:
        with _quiet():
            save_arrays(path, **task.work(task, data, cache))


def run_all(
    tasks: Iterable[Task], data: Path | None, cache: Path, jobs: int = 1, log: TextIO | None = None
) -> Mapping[str, list[Arrays]]:
    """Every task finished, in `jobs` processes; the results by the task's name, in the order of seeds.

    What measures time comes last, one after the other, when nothing else of ours is running.
    """
    wanted = sorted(set(tasks), key=lambda task: (task.name, task.seed))
    left = [task for task in wanted if task.kept and load_arrays(task.path(cache)) is None]
    timed = [task for task in wanted if not task.kept]
    measured: dict[Task, Arrays] = {}
    done = len(wanted) - len(left) - len(timed)
    with progress(len(wanted), log or sys.stderr, unit="runs", done=done) as step:
        if jobs == 1 or len(left) <= 1:
            for task in left:
                step(0, task.name)
                finish(task, data, cache)
                step(1, task.name)
        else:
            _in_processes(left, data, cache, jobs, step)
        for task in timed:
            step(0, task.name)
            with _quiet():
                measured[task] = task.work(task, data, cache)
            step(1, task.name)
    results: dict[str, list[Arrays]] = {}
    for task in wanted:
        arrays = measured.get(task) or load_arrays(task.path(cache))
        if arrays is None:  # pragma: no cover - somebody emptied the cache this very moment
            arrays = task.work(task, data, cache)
        results.setdefault(task.name, []).append(arrays)
    return results


def _in_processes(left: list[Task], data: Path | None, cache: Path, jobs: int, step: Step) -> None:
    # Processes are started afresh: a forked one could inherit a lock of a thread that it does not have.
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_leave_interrupts_to_the_parent)
    try:
        waiting = {pool.submit(finish, task, data, cache): task for task in left}
        for done in as_completed(waiting):
            done.result()
            step(1, waiting[done].name)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _leave_interrupts_to_the_parent() -> None:  # pragma: no cover - runs in the processes of the pool
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _quiet() -> Iterator[None]:
    """Fits that end on the ball say so in the log, many times over; the report is the place to read of it."""
    log = logging.getLogger("calibeat")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)
