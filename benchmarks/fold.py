"""Serving: single events and groups of a bank, few keys and many; what the lock, a new key and prefetching cost.

Times are CPU seconds of the thread.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from math import nan
from pathlib import Path
from threading import RLock
from time import thread_time
from typing import Any

import numpy as np

from benchmarks import table
from benchmarks.timing import once
from calibeat import AUTO, HOPS, TOPS, Bank, Method

HERE = Path(__file__).parents[1]
METHODS = {"TOPS": TOPS, "AUTO": AUTO, "HOPS": HOPS}


def filled(method: Method, keys: int, **arguments: Any) -> tuple[Bank, list[str]]:
    """A bank whose keys have seen one event each."""
    bank = Bank(method, **arguments)
    names = [f"merchant-{key:06d}" for key in range(keys)]
    bank.run(names, np.full(keys, 0.5), np.ones(keys))
    return bank, names


def spent(work: Callable[[], object]) -> float:
    """CPU seconds of this thread, without the garbage collector's."""
    return once(work, thread_time)


def by_event(method: Method, keys: int, events: int) -> tuple[float, float, float]:
    """Seconds to predict, to update later, and to do both at once: one event of a random key after the other."""
    bank, names = filled(method, keys)
    rng = random.Random(1)  # noqa: S311 - a benchmark
    asked = [(rng.choice(names), rng.random()) for _ in range(events)]
    receipts: list[Any] = []
    predict = spent(lambda: receipts.extend(bank.predict(key, score) for key, score in asked))

    def later() -> None:
        for (key, _), receipt in zip(asked, receipts, strict=True):
            bank.update(key, receipt, 1)

    def at_once() -> None:
        for key, score in asked:
            bank.update(key, bank.predict(key, score), 0)

    return predict, spent(later), spent(at_once)


def in_groups(method: Method, keys: int, events: int, group: int, **arguments: Any) -> float:
    """Seconds of `fold`: half forecasts, half outcomes of earlier ones; receipts to bytes and back included."""
    bank, names = filled(method, keys, **arguments)
    rng = random.Random(2)  # noqa: S311 - a benchmark
    waiting: list[tuple[str, bytes]] = []
    total = 0.0
    for _ in range(events // group):
        late = [waiting.pop(rng.randrange(len(waiting))) for _ in range(min(len(waiting), (group + 1) // 2))]
        new = [rng.choice(names) for _ in range(group - len(late))]
        todo = [key for key, _ in late] + new
        scores = [nan] * len(late) + [rng.random() for _ in new]
        outcomes = [rng.randrange(2) for _ in late] + [nan] * len(new)
        order = rng.sample(range(group), group)
        keys_, scores_, outcomes_ = ([column[i] for i in order] for column in (todo, scores, outcomes))
        receipts = [late[i][1] for i in order if i < len(late)]
        begin = thread_time()
        made = bank.fold(keys_, scores_, outcomes_, receipts).receipts.tolist()
        total += thread_time() - begin
        waiting += zip([todo[i] for i in order if i >= len(late)], made, strict=True)
    return total


def fold(*, quick: bool) -> None:
    """Single events and groups, at 1,000 and at 100,000 keys."""
    events = 10_000 if quick else 40_000
    many = 100_000
    single, groups, notes = [], [], []
    for name, method in METHODS.items():
        few, lot = by_event(method, 1_000, events), by_event(method, many, events)
        cells = [f"{1e6 * seconds / events:.1f}" for pair in zip(few, lot, strict=True) for seconds in pair]
        single.append([name, *cells])
        ratio = max(b / a for a, b in zip(few, lot, strict=True))
        notes.append(
            f"{name}: at most {ratio:.2f} times slower at 100,000 keys, goal 2: {table.verdict(met=ratio <= 2)}"
        )
    head = ["method", *(f"{what} {keys}" for what in ("predict", "update", "both") for keys in ("1k", "100k"))]
    table.show(f"serving: microseconds of one event, {events:,} events, string keys", head, single, notes)
    notes = []
    for name, method in METHODS.items():
        micro = [
            1e6 * in_groups(method, keys, count, group, **arguments) / count
            for keys, count, group, arguments in (
                (100, events, 1, {}),
                (many, events // 4, 10, {}),
                (1_000, events, 100, {}),
                (many, events, 100, {}),
                (1_000, 10 * events, 4_000, {}),
                (many, events, 100, {"prior": "pooled"}),
            )
        ]
        groups.append([name, *(f"{value:.2f}" if value < 1 else f"{value:.1f}" for value in micro)])
        for what, value, goal in (("alone", micro[0], 20.0), ("in groups of 4,000", micro[4], 0.6)):
            notes.append(f"{name}: {value:.2f} us {what}, goal {goal:g}: {table.verdict(met=value <= goal)}")
    head = ["method", "alone, 100 keys", "10", "100, 1k keys", "100", "4,000, 1k keys", "100, pooled"]
    title = "fold: microseconds of one operation, alone and in groups, 100,000 keys, receipts included"
    table.show(title, head, groups, notes)


def lock_and_growth(*, quick: bool) -> None:
    """What the lock costs when nobody waits for it, and the slowest new key of a growing bank."""
    lock, rounds = RLock(), 1_000_000

    def locked() -> None:
        for _ in range(rounds):
            with lock:
                pass

    def unlocked() -> None:
        for _ in range(rounds):
            pass

    cost = (spent(locked) - spent(unlocked)) / rounds
    keys = 500_000 if quick else 5_000_000
    bank = Bank(TOPS)
    bank.run(np.arange(keys), np.full(keys, 0.5), np.ones(keys))
    slowest, new = 0.0, 0
    while new < 4 or (slowest < 0.005 and new < 20_000):
        key = keys + new
        slowest = max(slowest, spent(lambda key=key: bank.predict(key, 0.5)))  # type: ignore[misc]
        new += 1
    lines = [
        ["the lock, taken and given back", f"{1e9 * cost:.0f} ns"],
        [f"the slowest of {new:,} new keys after {keys:,}", f"{1e3 * slowest:.1f} ms"],
    ]
    table.show("lock and growth", ["what", "CPU time"], lines)


_PREFETCH = """
import json, sys, numpy as np
from time import thread_time
from calibeat import TOPS, Bank
from calibeat.hosts.keys import check_keys
from calibeat.core import loops
def least(work):
    spent = []
    for _ in range(5):
        begin = thread_time()
        work()
        spent.append(thread_time() - begin)
    return min(spent)
keys, events = int(sys.argv[1]), int(sys.argv[2])
rng = np.random.default_rng(1)
scores, numbers = rng.random(events), rng.integers(0, keys, events)
outcomes = (rng.random(events) < scores).astype(float)
names = np.array([f"merchant-{key:07d}" for key in range(keys)])
found = {}
for kind, column in (("ints", numbers * 7919), ("strings", names[numbers])):
    bank = Bank(TOPS, threads=1)
    bank.run(column[:100], scores[:100], outcomes[:100])
    bank.run(column, scores, outcomes)
    checked = check_keys(column)
    slots = bank._store.find(checked)
    found[f"look-up of {kind}"] = least(lambda: bank._store.find(checked))
streams = loops.Streams(bank._store.flat, bank._store.stride, slots, 0, len(bank), TOPS.width, 0.0)
batch = loops.Batch(scores, outcomes, np.empty(0), np.empty(events), loops.NO_NUMBERS, np.empty(0))
found["rows"] = least(lambda: loops.run_batch(TOPS.spec, streams, batch, None, loops.place_before(), events))
print(json.dumps(found))
"""


def prefetch(*, quick: bool) -> None:
    """The same loops with and without asking for memory ahead; the latter are compiled here, from a copy."""
    if find_spec("Cython") is None:
        sys.stdout.write("prefetch: left out, cython is not installed (the extra is calibeat[dev])\n\n")
        return
    keys, events = (300_000, 2_000_000) if quick else (1_000_000, 10_000_000)
    with tempfile.TemporaryDirectory() as folder:
        without = Path(folder) / "src"
        shutil.copytree(HERE / "src", without, ignore=shutil.ignore_patterns("_compiled*.so", "_compiled*.pyd"))
        command = [sys.executable, "setup.py", "--quiet", "build_ext", "--build-lib", str(without)]
        flags = {"CALIBEAT_CFLAGS": "-w -D__builtin_prefetch(...)=((void)0)"}
        subprocess.run(command, cwd=HERE, env={**os.environ, **flags}, check=True, stdout=subprocess.DEVNULL)
        found = {"with": _timed(HERE / "src", keys, events), "without": _timed(without, keys, events)}
    lines = [
        [what, table.nanoseconds(a, events), table.nanoseconds(b, events), f"{b / a:.2f}"]
        for what, a, b in ((what, found["with"][what], found["without"][what]) for what in found["with"])
    ]
    title = f"prefetch: {events:,} events of TOPS over {keys:,} keys in no order"
    table.show(title, ["step", "with ns", "without ns", "ratio"], lines)


def _timed(source: Path, keys: int, events: int) -> dict[str, float]:
    command, env = [sys.executable, "-c", _PREFETCH, str(keys), str(events)], {**os.environ, "PYTHONPATH": str(source)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found
