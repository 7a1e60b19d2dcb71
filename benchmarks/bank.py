"""The bank: events per second over a million keys, beside the memory floor in C; memory, threads, strings, files.

Times are CPU seconds. The floor reads and writes each cache line of the same rows in the same
order and computes nothing; `C loop` computes TOPS on them as well, as a C programmer would.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import pickle
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import nan
from pathlib import Path
from time import perf_counter, process_time, thread_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import floor, table
from benchmarks.before import MEMORY
from benchmarks.memory import resident
from benchmarks.timing import always, interleaved
from calibeat import AUTO, TOPS, Bank, Lanes
from calibeat._compiled import checksum
from calibeat.core import loops
from calibeat.hosts.keys import check_keys

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def scores_and_outcomes(events: int) -> tuple[Floats, Floats]:
    """Scores that say what they mean."""
    rng = np.random.default_rng(1)
    scores = rng.random(events)
    return scores, (rng.random(events) < scores).astype(np.float64)


def uniform_keys(events: int, keys: int) -> Ints:
    """Every key is as likely as any other."""
    return np.random.default_rng(2).integers(0, keys, events)


def zipf_keys(events: int, keys: int, exponent: float = 1.1) -> Ints:
    """The k-th of the keys comes with a probability like k to the power of -1.1; which one that is, is shuffled."""
    rng = np.random.default_rng(3)
    shares = np.cumsum(np.arange(1, keys + 1) ** -exponent)
    slices = [rng.random(min(5_000_000, events - at)) for at in range(0, events, 5_000_000)]
    ranks = np.concatenate([np.searchsorted(shares, shares[-1] * part) for part in slices])
    return rng.permutation(keys)[np.minimum(ranks, keys - 1)]


def as_numbers(keys: Ints) -> Ints:
    """Numbers that are not simply 0, 1, 2, ..."""
    return keys * 7919 + 12345


def seconds(work: Callable[[], object]) -> float:
    """CPU seconds of the process: a large batch is served in threads, even if it is only one."""
    begin = process_time()
    work()
    return process_time() - begin


def in_c(name: str, bank: Bank, slots: NDArray[np.int32], *arrays: Floats) -> float:
    """Seconds of one of the C loops over the bank's rows."""
    matrix = bank._rows.matrix.copy()
    places = slots.ctypes.data_as(ctypes.POINTER(ctypes.c_int32))
    loop = getattr(floor.library(()), name)
    sizes = ctypes.c_int64(len(slots)), places, ctypes.c_int64(matrix.shape[1])
    return seconds(partial(loop, *sizes, floor.address(matrix), *map(floor.address, arrays)))


def millions(*, quick: bool) -> None:
    """Many keys: the whole of `run`, then look-up and rows apart, beside C; and bytes per key."""
    events, keys = (5_000_000, 200_000) if quick else (50_000_000, 1_000_000)
    scores, outcomes = scores_and_outcomes(events)
    lines = []
    notes = []
    for name, make in (("Zipf 1.1", zipf_keys), ("uniform", uniform_keys)):
        numbers = as_numbers(make(events, keys))
        before = resident()
        bank = Bank(TOPS, threads=1)
        whole = seconds(partial(bank.run, numbers, scores, outcomes))
        after = resident()
        column = check_keys(numbers)
        slots, forecasts = bank._rows.find(column), np.empty(events)
        lookup = seconds(partial(bank._rows.find, column))
        streams = loops.Streams(bank._rows.flat, bank._rows.stride, slots, 0, len(bank), TOPS.width, 0.0)
        batch = loops.Batch(scores, outcomes, np.empty(0), forecasts, np.empty(0))
        update = seconds(partial(loops.run_batch, TOPS.spec, streams, batch, None, loops.place_before(), events))
        touched = in_c("touch", bank, slots)
        computed = in_c("tops_rows", bank, slots, scores, outcomes, forecasts)
        rate = events / whole / 1e6
        lines.append(
            [
                name,
                f"{len(bank):,}",
                table.nanoseconds(whole, events),
                f"{rate:.2f} million/s",
                table.nanoseconds(lookup, events),
                table.nanoseconds(update, events),
                table.nanoseconds(touched, events),
                f"{update / touched:.2f}",
                f"{update / computed:.2f}",
            ]
        )
        goal = f", goal 3: {table.verdict(met=rate >= 3)}" if name == "Zipf 1.1" else ""
        index = bank.nbytes / len(bank) - 8 * TOPS.width
        ratio = update / touched
        spent = f"the process grew by {(after - before) / 2**20:.0f} MiB, when the forecasts were let go"
        notes.append(f"{name}: {rate:.2f} million events per second on one core{goal}.")
        notes.append(f"{name}: the rows cost {ratio:.2f} times the floor, goal 3: {table.verdict(met=ratio <= 3)}.")
        notes.append(
            f"{name}: {8 * TOPS.width} bytes of state, {index:.1f} of stats and index per key, goal 64: "
            f"{table.verdict(met=index <= 64)}; {spent}."
        )
    head = ["keys", "opened", "run ns", "rate", "look-up ns", "rows ns", "floor ns", "rows/floor", "rows/C loop"]
    table.show(f"bank: {events:,} events of TOPS over {keys:,} integer keys, one thread", head, lines, notes)


def threads(*, quick: bool) -> None:
    """Two threads beside one, keys grouped: by the clock on the wall, and by the CPU time of the busier thread."""
    events, keys = (4_000_000, 100_000) if quick else (20_000_000, 1_000_000)
    scores, outcomes = scores_and_outcomes(events)
    numbers = np.sort(uniform_keys(events, keys))
    best = {1: (float("inf"), float("inf")), 2: (float("inf"), float("inf"))}
    for _ in range(3):
        for count in best:
            bank = Bank(TOPS, threads=count)
            bank.run(np.arange(keys), np.full(keys, 0.5), np.ones(keys))
            spent = watched_threads()
            begin, own = perf_counter(), thread_time()
            bank.run(numbers, scores, outcomes)
            wall, alone = perf_counter() - begin, thread_time() - own
            best[count] = min(best[count][0], wall), min(best[count][1], alone + max(spent(), default=0.0))
    lines = [[str(count), f"{wall:.2f}", f"{path:.2f}"] for count, (wall, path) in best.items()]
    by_wall, by_path = best[1][0] / best[2][0], best[1][1] / best[2][1]
    note = (
        f"Two threads: {by_wall:.2f} times by the wall, goal 1.6: {table.verdict(met=by_wall >= 1.6)}; "
        f"{by_path:.2f} times by the longest path of CPU time, which other work on the machine does not change."
    )
    table.show(
        f"threads: {events:,} events over {keys:,} grouped keys", ["threads", "wall s", "longest path s"], lines, [note]
    )


def watched_threads() -> Callable[[], list[float]]:
    """From now on: the CPU seconds of each thread that was started and has ended."""
    spent: list[float] = []
    work = threading.Thread.run

    def watched(self: threading.Thread) -> None:
        begin = thread_time()
        work(self)
        spent.append(thread_time() - begin)

    threading.Thread.run = watched  # type: ignore[method-assign]

    def stop() -> list[float]:
        threading.Thread.run = work  # type: ignore[method-assign]
        return spent

    return stop


def strings(*, quick: bool) -> None:
    """String keys beside integer keys, the first time (when they are new) and again."""
    events, keys = (2_000_000, 100_000) if quick else (10_000_000, 1_000_000)
    scores, outcomes = scores_and_outcomes(events)
    numbers = uniform_keys(events, keys)
    names = np.array([f"merchant-{key:07d}" for key in range(keys)])
    objects = names.astype(object)
    columns: dict[str, Any] = {
        "int64": as_numbers(numbers),
        "NumPy strings": names[numbers],
        "Python strings in an array": objects[numbers],
        "Python strings in a list": objects[numbers].tolist(),
    }
    found: dict[str, tuple[float, float]] = {}
    sizes = {}
    for name, column in columns.items():
        bank = Bank(TOPS, threads=1)
        work = partial(bank.run, column, scores, outcomes)
        found[name] = seconds(work), seconds(work)
        sizes[name] = bank.nbytes / len(bank)
    first, again = found["int64"]
    lines = [
        [
            name,
            table.nanoseconds(a, events),
            f"{a / first:.2f}",
            table.nanoseconds(b, events),
            f"{b / again:.2f}",
            f"{sizes[name]:.0f}",
        ]
        for name, (a, b) in found.items()
    ]
    notes = [
        f"{name}: {max(a / first, b / again):.2f} times at most, goal 3: "
        + table.verdict(met=max(a / first, b / again) <= 3)
        for name, (a, b) in list(found.items())[1:]
    ]
    head = ["keys", "new keys ns", "ratio", "old keys ns", "ratio", "bytes/key"]
    table.show(f"strings: {events:,} events of TOPS over {keys:,} keys in no order", head, lines, notes)


ANCHORS = {"save": "write and fsync", "load": "read", "load, file trusted": "read"}
GOALS = {"save": 1.5, "load": 1.2, "load, file trusted": 1.2}


def files(*, quick: bool) -> None:
    """Save and load beside writing and reading the same bytes, by CPU time; and beside a pickled dictionary."""
    share = 10 if quick else 1
    kinds = {"TOPS": (TOPS, 1_000_000), "TOPS, string keys": (TOPS, 800_000), "AUTO": (AUTO, 160_000)}
    found, sizes = {}, []
    for name, (method, keys) in kinds.items():
        column: Any = as_numbers(np.arange(keys // share))
        if "string" in name:
            column = np.array([f"merchant-{key:07d}" for key in column])
        bank = Bank(method)
        for _ in range(2):
            bank.run(column, np.full(len(column), 0.4), np.ones(len(column)))
        found[name], size = of_file(bank, 3 if quick else 15)
        sizes.append(f"{name} {len(bank):,} keys and {size / 2**20:.0f} MiB")
        if name == "TOPS":
            few = column[:2_000].tolist()
            pickled = len(pickle.dumps({key: bank[key] for key in few})) / len(few)
            per_key = (
                f"TOPS: {size / len(bank):.0f} bytes per key; a pickled dictionary of calibrators takes {pickled:.0f}."
            )
    lines, notes = [], []
    for step in found["TOPS"]:
        lines.append([step])
        for name, best in found.items():
            ratio = best[step] / best[ANCHORS[step]] if step in ANCHORS else nan
            lines[-1] += [f"{best[step]:.3f}", f"{ratio:.2f}" if step in ANCHORS else ""]
            if step in GOALS:
                met = table.verdict(met=ratio <= GOALS[step])
                notes.append(f"{name}: {step}: {ratio:.2f} times {ANCHORS[step]}, goal {GOALS[step]:g}: {met}")
    head = ["step, CPU s", *(part for name in found for part in (name, "ratio"))]
    table.show(f"files: {', '.join(sizes)}", head, lines, [*notes, per_key])


def of_file(bank: Bank, repeats: int) -> tuple[dict[str, float], int]:
    """CPU seconds of each thing that can be done with the file of a bank, and its bytes."""
    with tempfile.TemporaryDirectory() as folder:
        path, raw = Path(folder) / "bank", Path(folder) / "raw"
        asked, scores = list(bank)[:1_000], np.full(1_000, 0.3)
        bank.save(path)
        content = path.read_bytes()
        write_raw(raw, content)  # each time there is an old file to be removed, as there is for `save`
        steps: dict[str, Callable[[], object]] = {
            "write and fsync": lambda: write_raw(raw, content),
            "read": path.read_bytes,
            "read into large pages": lambda: read_raw(path),
            "checksum": lambda: checksum(content, 0),
            "SHA-256": lambda: hashlib.sha256(content).digest(),
            "save": lambda: bank.save(path),
            "load": lambda: Bank.load(path),
            "load, file trusted": lambda: Bank.load(path, verify=False),
            "open with mmap, all checked": lambda: Bank.load(path, mmap=True),
            "open with mmap, file trusted": lambda: Bank.load(path, mmap=True, verify=False),
            "and 1,000 forecasts from it": lambda: Bank.load(path, mmap=True, verify=False).predict_many(asked, scores),
        }
        return interleaved({name: always(work) for name, work in steps.items()}, repeats), len(content)


def write_raw(path: Path, content: bytes) -> None:
    """A new file, in pieces as `save` writes them, which is on the disk before it replaces the old one.

    Were the old one removed first, the new one would get its memory; `save` must take new memory, which may cost more.
    """
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        for first in range(0, len(content), 2**23):
            file.write(memoryview(content)[first : first + 2**23])
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def read_raw(path: Path) -> object:
    """All of a file into new memory, as `Bank.load` reads it."""
    content = np.empty(path.stat().st_size, dtype=np.uint8)
    with path.open("rb") as file:
        file.readinto(content)  # type: ignore[arg-type]  # an array is a buffer
    return content


_NEW_KEYS = """
import json, sys, numpy as np
from time import process_time
from calibeat import Bank
method, keys, named = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "named"
rng = np.random.default_rng(0)
column = rng.permutation(keys) * 7919 + 12345
if named:
    column = np.array([f"merchant-{key:07d}" for key in column])
scores = rng.random(keys)
outcomes = (rng.random(keys) < scores).astype(float)
best = [1e9, 1e9]
for _ in range(15):
    bank = Bank(method, threads=1)
    for i in range(2):
        begin = process_time()
        bank.run(column, scores, outcomes)
        best[i] = min(best[i], process_time() - begin)
print(json.dumps(best))
"""


def new_keys(*, quick: bool) -> None:
    """The first event of every key in a batch, beside the same batch again."""
    share = 4 if quick else 1
    works = [("ops", 100_000, ""), ("tops", 100_000, ""), ("tops", 100_000, "named"), ("auto", 10_000, "")]
    lines, notes = [], []
    for method, count, named in [*works, ("hops", 10_000, "")]:
        keys = count // share
        new, known = (1e9 * spent / keys for spent in in_kept_memory(_NEW_KEYS, method, str(keys), named))
        name = f"{method.upper()}{', string keys' if named else ''}"
        met = table.verdict(met=new <= 2 * known)
        lines.append([name, f"{keys:,}", f"{new:.0f}", f"{known:.0f}", f"{new / known:.2f}"])
        notes.append(f"{name}: {new / known:.2f} times a known key, goal 2: {met}")
    notes.append("In a process that has had the memory before. New memory from the system costs what the system takes.")
    table.show("new keys: ns of an event", ["method", "keys", "new", "known", "ratio"], lines, notes)


def in_kept_memory(program: str, *arguments: str) -> Any:
    """The least of what a program prints as JSON, in three processes that keep the memory that they free."""
    command, env = [sys.executable, "-c", program, *arguments], {**os.environ, **MEMORY}
    done = [subprocess.run(command, env=env, capture_output=True, text=True, check=True) for _ in range(3)]
    return [min(found) for found in zip(*(json.loads(one.stdout) for one in done), strict=True)]


def lean(*, quick: bool) -> None:
    """AUTO with and without the lane that sleeps until an outcome is late."""
    keys, events = (20_000, 100_000) if quick else (200_000, 1_000_000)
    scores, outcomes = scores_and_outcomes(events)
    numbers = uniform_keys(events, keys)
    shorter = replace(AUTO, learner=Lanes(horizon=False))
    banks = {"AUTO": Bank(AUTO, threads=1), "without the horizon lane": Bank(shorter, threads=1)}
    bits = [bank.run(numbers, scores, outcomes).tobytes() for bank in banks.values()]
    works = {name: always(bank.run, numbers, scores, outcomes) for name, bank in banks.items()}
    best = dict.fromkeys(works, float("inf"))
    for _ in range(5):
        for name, work in works.items():
            best[name] = min(best[name], seconds(work()))
    lines = [
        [name, str(bank.method.width), f"{bank.nbytes / len(bank):.0f}", table.nanoseconds(best[name], events)]
        for name, bank in banks.items()
    ]
    whole, less = (bank.nbytes for bank in banks.values())
    same = "yes" if bits[0] == bits[1] else "NO"
    notes = [f"Outcomes at once: the same bits: {same}; {100 * (1 - less / whole):.0f} % fewer bytes."]
    title = f"lean: {events:,} events over {keys:,} keys"
    table.show(title, ["method", "numbers", "bytes/key", "ns"], lines, notes)


def ten_millions(*, quick: bool) -> None:
    """Ten million keys of TOPS: bytes, first events, known keys in no order, save, mmap."""
    keys = 1_000_000 if quick else 10_000_000
    numbers, (scores, outcomes) = as_numbers(np.arange(keys)), scores_and_outcomes(keys)
    before = resident()
    bank = Bank(TOPS, threads=1)
    first = seconds(partial(bank.run, numbers, scores, outcomes))
    grown = resident() - before
    np.random.default_rng(4).shuffle(numbers)
    again = seconds(partial(bank.run, numbers, scores, outcomes))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bank"
        save = seconds(partial(bank.save, path))
        size, nbytes = path.stat().st_size, bank.nbytes
        del bank
        opened = seconds(lambda: Bank.load(path, mmap=True, verify=False).predict_many(numbers[:1_000], scores[:1_000]))
    lines = [
        ["first event of each key, in order", table.nanoseconds(first, keys)],
        ["an event of each key, in no order", table.nanoseconds(again, keys)],
        ["save", table.nanoseconds(save, keys)],
    ]
    notes = [
        f"{nbytes / keys:.1f} bytes a key; the process grew by {grown / 2**30:.2f} GiB.",
        f"The file has {size / 2**30:.2f} GiB.",
        f"Opened with mmap, and 1,000 forecasts: {1e3 * opened:.0f} ms.",
    ]
    table.show(f"ten millions: {keys:,} keys of TOPS, one thread", ["step", "CPU ns a key"], lines, notes)
