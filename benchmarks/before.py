"""Every method in this checkout and in an older one: `CALIBEAT_BEFORE=OLD_CHECKOUT python -m benchmarks before`.

Two processes, one for each checkout, do the same work in turn. The least CPU time of each counts.

Both processes keep the memory that they free. If they gave it back, a batch would have to ask the system for it again
page by page, up to 10 ns an event, or not, by the largest array that the process happened to free before.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from benchmarks import table
from benchmarks.timing import once

HERE = Path(__file__).parents[1]
REFITS = {
    "fps",
    "wps",
    "fbs",
    "wbs",
    "swps",
    "swbs",
    "whb",
    "twhb",
}  # fit to the past again and again: fewer events, not in a bank
ALLOWED = 1.03
MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 25),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 32),
    "MALLOC_TOP_PAD_": str(1 << 27),
}  # of glibc; others have no such settings
WORK = ("batch", "late batch", "single", "bank, few keys", "bank, many keys", "bank, new keys")
HOSTS = (
    "single",
    "bank, single",
    "bank, single, many keys",
    "bank, fold of 50",
    "snapshot",
    "resume",
)  # of some methods
CLASSES = (
    "batch",
    "single",
    "bank",
    "snapshot",
    "resume",
)  # of K classes; late labels are learnt otherwise than before


def compare(*, quick: bool) -> None:
    """The ratio of this checkout to the older one, for each method and each way to use it."""
    _compare(quick=quick, hosts=False)


def hosts(*, quick: bool) -> None:
    """The same for single events of a bank, for snapshots, and for many classes."""
    _compare(quick=quick, hosts=True)


def _compare(*, quick: bool, hosts: bool) -> None:
    old = os.environ.get("CALIBEAT_BEFORE", "")
    if not (Path(old) / "src" / "calibeat").is_dir():
        sys.stdout.write("before: left out, CALIBEAT_BEFORE must be the path of an older checkout\n\n")
        return
    pair = [_start(Path(old)), _start(HERE)]
    try:
        if hosts:
            _show(pair, "hosts", ["ops", "tops", "auto", "hops"], HOSTS, quick=quick)
            _show(pair, "many classes", [f"multi, {K} classes" for K in (3, 10, 100)], CLASSES, quick=quick)
        else:
            methods = [name for name in _ask(pair[0], None) if name in _ask(pair[1], None)]
            _show(pair, "methods", methods, WORK, quick=quick)
    finally:
        for worker in pair:
            worker.communicate(b"")


def _show(
    pair: list[subprocess.Popen[bytes]], what: str, names: list[str], works: tuple[str, ...], *, quick: bool
) -> None:
    rows, slower = [], []
    for name in names:
        cells = []
        for work in works:
            ratio = _ratio(pair, name, work, 3 if quick else 9)
            if ratio is not None and ratio > ALLOWED:  # once more with patience, before it is called slower
                ratio = min(ratio, _ratio(pair, name, work, 3 if quick else 15) or ratio)
            if ratio is not None and ratio > ALLOWED:
                slower.append(f"{name}, {work}: {ratio:.2f}")
            cells.append("-" if ratio is None else f"{ratio:.2f}")
        rows.append([name, *cells])
    notes = [f"slower by more than 3 %: {'; '.join(slower) or 'none'}"]
    table.show(f"{what}: CPU time of this checkout / the older one (below 1: faster)", ("", *works), rows, notes)


def _start(checkout: Path) -> subprocess.Popen[bytes]:
    here = {**os.environ, **MEMORY, "PYTHONPATH": os.pathsep.join((str(checkout / "src"), str(HERE)))}
    command = [sys.executable, "-m", "benchmarks.before"]
    return subprocess.Popen(command, cwd=HERE, env=here, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def _ask(worker: subprocess.Popen[bytes], what: Any) -> Any:
    if worker.stdin is None or worker.stdout is None:
        raise RuntimeError("a worker must have pipes")
    worker.stdin.write(json.dumps(what).encode() + b"\n")
    worker.stdin.flush()
    return json.loads(worker.stdout.readline())


def _ratio(pair: list[subprocess.Popen[bytes]], method: str, work: str, turns: int) -> float | None:
    if method in REFITS and work not in {"batch", "single"}:
        return None
    found = [[_ask(worker, [method, work]) for worker in pair] for _ in range(turns)]
    old, new = (min(turn[at] for turn in found) for at in (0, 1))
    return float(new / old)


# ---- the worker: only names that both checkouts have ---------------------------------------------------------------


def _work(name: str, work: str) -> Callable[[], object]:
    """What is timed; it is made anew for each turn."""
    return _work_of_classes(int(name.split()[1]), work) if name.startswith("multi") else _work_of_method(name, work)


def _work_of_method(method: str, work: str) -> Callable[[], object]:
    from calibeat import Bank, Calibrator

    rng = np.random.default_rng(0)
    count = 20_000 if method in REFITS else 200_000 if work in WORK and work != "single" else 5_000
    scores = rng.random(count)
    outcomes = (rng.random(count) < scores).astype(int)
    cal = Calibrator(method, 0)
    if work in {"batch", "late batch"}:
        due = np.arange(count) + 101 if work == "late batch" else None
        return lambda: cal.run(scores, outcomes, due=due)
    if work == "single":
        events = list(zip(scores.tolist(), outcomes.tolist(), strict=True))

        def one_by_one() -> None:
            for score, outcome in events:
                cal.update(cal.predict(score), outcome)

        return one_by_one
    if work in {"snapshot", "resume"}:
        return _snapshots(cal, list(zip(scores[:500].tolist(), outcomes[:500].tolist(), strict=True)), work)
    if work == "bank, fold of 50":
        return _folds(method)
    if work.startswith("bank, single"):
        return _single_of_bank(method, 10_000 if work.endswith("many keys") else 100, scores, outcomes)
    many = {"bank, few keys": 100, "bank, many keys": 50_000, "bank, new keys": 200_000}[work]
    keys = rng.integers(0, many, count)
    bank = Bank(method, 0)
    if work != "bank, new keys":
        bank.run(np.arange(many), np.full(many, 0.5), np.zeros(many, dtype=int))
    return lambda: bank.run(keys, scores, outcomes)


def _single_of_bank(method: str, keys: int, scores: Any, outcomes: Any) -> Callable[[], object]:
    """One event of a random key after the other, each learnt at once."""
    from calibeat import Bank

    bank, names = Bank(method, 0), [f"merchant-{key}" for key in range(keys)]
    bank.run(names, np.full(keys, 0.5), np.zeros(keys, dtype=int))
    asked = np.random.default_rng(1).choice(names, len(scores)).tolist()
    events = list(zip(asked, scores.tolist(), outcomes.tolist(), strict=True))

    def one_by_one() -> None:
        for key, score, outcome in events:
            bank.update(key, bank.predict(key, score), outcome)

    return one_by_one


def _folds(method: str) -> Callable[[], object]:
    """Forecasts of 50 keys in one call, and their outcomes in the next."""
    from calibeat import Bank

    bank, names, nothing = Bank(method, 0), [f"merchant-{key}" for key in range(50)], [float("nan")] * 50

    def by_fifties() -> None:
        for _ in range(50):
            receipts = bank.fold(names, [0.3] * 50, nothing).receipts.tolist()
            bank.fold(names, nothing, [1.0] * 50, receipts)

    return by_fifties


def _work_of_classes(K: int, work: str) -> Callable[[], object]:
    """The same for `MultiCalibrator` and `MultiBank`."""
    from calibeat import MultiBank, MultiCalibrator

    rng = np.random.default_rng(0)
    count = 300_000 // (K + 7) if work in {"batch", "bank"} else 1_000
    scores = rng.dirichlet(np.ones(K), count)
    labels = rng.integers(0, K, count)
    cal = MultiCalibrator(K)
    if work == "bank":
        keys, bank = rng.integers(0, 100, count), MultiBank(K)
        return lambda: bank.run(keys, scores, labels)
    if work == "batch":
        return lambda: cal.run(scores, labels)
    events = list(zip(scores.tolist(), labels.tolist(), strict=True))
    if work in {"snapshot", "resume"}:
        return _snapshots(cal, events[:500], work)

    def one_by_one() -> None:
        for score, label in events:
            cal.update(cal.predict(score), label)

    return one_by_one


def _snapshots(cal: Any, events: list[tuple[Any, Any]], work: str) -> Callable[[], object]:
    """`to_json`, or `from_json` of what it gives."""
    for score, outcome in events:
        cal.update(cal.predict(score), outcome)
    text = cal.to_json()
    if work == "snapshot":
        return lambda: [cal.to_json() for _ in range(300)]
    return lambda: [type(cal).from_json(text) for _ in range(300)]


def _serve() -> None:
    import calibeat

    getattr(calibeat, "warm_up", int)()  # of older checkouts, which compile while they run
    presets = _presets()
    done: set[tuple[str, str]] = set()  # once before its clock runs
    for line in sys.stdin:
        asked = json.loads(line)
        if asked is None:
            answer: Any = presets
        else:
            if tuple(asked) not in done:
                _work(*asked)()
                done.add(tuple(asked))
            answer = once(_work(*asked), process_time)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _presets() -> list[str]:
    """The names of the methods, wherever the checkout keeps them."""
    try:
        from calibeat.core.method import PRESETS
    except ImportError:
        from calibeat.presets import PRESETS  # type: ignore[import-not-found,no-redef]
    return list(PRESETS)


if __name__ == "__main__":
    _serve()
