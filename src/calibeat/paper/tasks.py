"""Units of work that are done once: each finished one is a file, so that a run that was killed goes on where it was."""

from __future__ import annotations

import hashlib
import json
import logging
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TextIO

from . import rain, refits, regret, replay, section1
from .forests import ForestStream, scored
from .storage import load_arrays, save_arrays, source_digest

Arrays = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """One run: what is computed (`kind`), on what (`about`: a stream, or a name), with which seed."""

    kind: str
    about: ForestStream | str
    seed: int
    small: int = 0  # a shorter version for trials: so many events; 0 is the paper's length

    @property
    def kept(self) -> bool:
        """A measured time is true of the moment: it is never taken from the cache."""
        return self.kind not in ("clock", "refits")

    @property
    def name(self) -> str:
        """What all runs of one kind on one stream share."""
        return f"{self.kind} {self.about if isinstance(self.about, str) else self.about.name}".rstrip()

    def path(self, cache: Path) -> Path:
        """Where its result is kept; another version of calibeat does not find it."""
        about = self.about if isinstance(self.about, str) else self.about.key(self.seed)
        key = {**asdict(self), "about": about, "source": source_digest()}
        digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
        return cache / "runs" / self.name.replace(" ", "-") / f"{self.seed}-{digest}.npz"


def compute(task: Task, data: Path | None, cache: Path) -> Arrays:
    """Do the work."""
    small = task.small
    if isinstance(task.about, ForestStream):
        if task.kind == "replay":
            return dict(replay.run(task.about, task.seed, data, cache))
        scores, outcomes = scored(task.about, task.seed, data, cache)
        return refits.run(scores, outcomes, task.about.calibration, task.about.window)
    if task.kind == "section1":
        return section1.run(task.about, task.seed)
    if task.kind == "regret":
        return regret.run(task.seed, regret.lengths(small))
    if task.kind == "clock":
        return regret.clock(task.seed, regret.lengths(small))
    return rain.run(task.seed, small or None)


def finish(task: Task, data: Path | None, cache: Path) -> None:
    """Compute and keep the result, unless it is there already."""
    path = task.path(cache)
    if load_arrays(path) is None:
        with _quiet():
            save_arrays(path, **compute(task, data, cache))


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
    with progress(len(wanted), len(wanted) - len(left) - len(timed), log or sys.stderr) as step:
        if jobs == 1 or len(left) <= 1:
            for task in left:
                step(task.name, 0)
                finish(task, data, cache)
                step(task.name, 1)
        else:
            _in_processes(left, data, cache, jobs, step)
        for task in timed:
            step(task.name, 0)
            with _quiet():
                measured[task] = compute(task, data, cache)
            step(task.name, 1)
    results: dict[str, list[Arrays]] = {}
    for task in wanted:
        arrays = measured.get(task) or load_arrays(task.path(cache))
        if arrays is None:  # pragma: no cover - somebody emptied the cache this very moment
            arrays = compute(task, data, cache)
        results.setdefault(task.name, []).append(arrays)
    return results


def _in_processes(
    left: list[Task], data: Path | None, cache: Path, jobs: int, step: Callable[[str, int], None]
) -> None:  # fmt: skip
    # Processes are started afresh: a forked one could inherit a lock of a thread that it does not have.
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_leave_interrupts_to_the_parent)
    try:
        waiting = {pool.submit(finish, task, data, cache): task for task in left}
        for done in as_completed(waiting):
            done.result()
            step(waiting[done].name, 1)
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


@contextmanager
def progress(total: int, done: int, log: TextIO) -> Iterator[Callable[[str, int], None]]:
    """A bar on a terminal, nothing elsewhere."""
    if not log.isatty():
        yield lambda _name, _count: None
        return
    try:
        from tqdm import tqdm
    except ImportError:
        yield lambda _name, _count: None
        return
    with tqdm(total=total, initial=done, file=log, leave=False, unit="run") as bar:

        def step(name: str, count: int) -> None:
            bar.set_description_str(name)
            bar.update(count)

        yield step
