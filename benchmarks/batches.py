"""Where the time of the service goes, in batches: `python -m benchmarks batches` and `service-growth`.

The engine runs in this process, without HTTP, on an SQLite store. Half of the events are forecasts, the other half
outcomes of forecasts two groups ago. The parts are CPU time: see `Clocks`.

`python -m benchmarks.batches FORECASTS STREAMS PENDING` measures the growth at another size than `service-growth`:
first so many forecasts and their outcomes of a thousand streams; then so many streams that are all new, and more
forecasts of them until so many are pending.
"""

from __future__ import annotations

import gc
import resource
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import thread_time, time
from typing import Any
from unittest.mock import patch

import msgspec
import numpy as np

from benchmarks import table
from benchmarks.serve import LEARNS, contenders
from benchmarks.serve_load import load
from benchmarks.timing import Clocks
from calibeat.cli.serve import few_collections
from calibeat.service import engine as engine_module
from calibeat.service.engine import Engine
from calibeat.service.events import ForecastEvent, OutcomeEvent
from calibeat.service.listening import Listening
from calibeat.service.maintenance import prune
from calibeat.service.model import Model
from calibeat.service.pending import Pending
from calibeat.service.plan import Plan
from calibeat.service.settings import EngineSettings
from calibeat.service.store import open_reader
from calibeat.service.store.queries import overview, view
from calibeat.service.store.sqlite import SqliteStore
from calibeat.service.wire import (
    ForecastAnswer,
    ForecastAnswers,
    OutcomeAnswerOfMany,
    OutcomeAnswers,
    read_forecasts,
    read_outcomes,
)

STREAMS, BATCH, GOAL = 1_000, 100, 10.0
SETTINGS = {
    "bare": EngineSettings(method="tops", notice=False),
    "notice": EngineSettings(method="tops"),
    "notice and monitor": EngineSettings(method="tops", monitor=1e6),
}
_encode = msgspec.json.Encoder().encode
# A part of the engine: who has the function, and its name.
PARTS: dict[str, list[tuple[Any, str]]] = {
    "look-up of ids": [(SqliteStore, "known")],
    "streams read": [(SqliteStore, "streams")],
    "plan": [(Plan, "take")],
    "fold": [(Model, "fold")],
    "roll-ups": [(Pending, "finish")],
    "added to others": [(Pending, "add")],
    "log": [(SqliteStore, "append")],
    "finish": [(Plan, "run")],
    "notices": [(Listening, "hear")],
    "rows": [(engine_module, "rows_of")],
    "answers": [(Plan, "answer")],
    "commit": [(SqliteStore, "commit")],
}


@contextmanager
def watching(clocks: Clocks) -> Iterator[None]:
    """The parts of the engine are on the clock."""
    with ExitStack() as stack:
        for part, places in PARTS.items():
            for owner, name in places:
                stack.enter_context(patch.object(owner, name, clocks.timed(part, getattr(owner, name))))
        many = clocks.timed(lambda _, head, *__: f"SQL {_table(head)}", SqliteStore._many)
        stack.enter_context(patch.object(SqliteStore, "_many", many))
        yield


def _table(head: str) -> str:
    """The table of a statement."""
    words = head.split()
    return words[words.index("INTO") + 1] if "INTO" in words else "settle"


def bodies(first: int, batches: int, what: str, scores: Any) -> list[bytes]:
    """Requests of 100 events each."""
    made = []
    for batch in range(batches):
        begin = first + batch * BATCH
        events = [
            {"stream": f"s{i * 7919 % STREAMS}", "id": f"a3f9-{i}", what: value}
            for i, value in zip(range(begin, begin + BATCH), scores[begin : begin + BATCH], strict=True)
        ]
        made.append(_encode({"events": events}))
    return made


def serve(settings: EngineSettings, requests: int, groups: int, spent: Clocks | None = None) -> float:
    """CPU us an event: groups of so many requests, after some that do not count."""
    half, rng = requests // 2, np.random.default_rng(0)
    scores = rng.random((groups + 12) * half * BATCH)
    outcomes = (rng.random(len(scores)) < scores).astype(int).tolist()
    scores = scores.round(6).tolist()
    with tempfile.TemporaryDirectory() as folder, few_collections(), ExitStack() as stack:
        engine = Engine.open(f"{folder}/calibeat.db", settings)
        engine.listening.begin(engine.clock())
        engine.behind.may_wait = True
        process, write = engine.process, engine.write_in_time
        if spent is not None:
            stack.enter_context(watching(spent))
            process, write = spent.timed("rest", process), spent.timed("rest", write)
        read_f, read_o, encode = (
            (read_forecasts, read_outcomes, _encoded)
            if spent is None
            else (
                spent.timed("JSON in", read_forecasts),
                spent.timed("JSON in", read_outcomes),
                spent.timed("JSON out", _encoded),
            )
        )
        total = 0.0
        for group in range(groups + 10):
            if group == 10:
                engine.write_out()
                if spent is not None:
                    spent.seconds.clear()
            asked = bodies(group * half * BATCH, half, "score", scores)
            told = bodies((group - 2) * half * BATCH, half, "outcome", outcomes) if group >= 2 else []
            begun = thread_time()
            queue = [(None, read_f(body, 10_000).events) for body in asked]
            queue += [(None, read_o(body, 10_000).events) for body in told]
            for (_, answer), (_, events) in zip(process(queue), queue, strict=True):
                encode(events, answer)
            write()
            if group >= 10:
                total += thread_time() - begun
        begun = thread_time()
        engine.write_out()
        total += thread_time() - begun
        engine.store.close()
    return 1e6 * total / (groups * 2 * half * BATCH)


def _encoded(events: Any, answer: Any) -> bytes:
    """An answer as it is sent."""
    if isinstance(answer[0], float):
        found = [ForecastAnswer(e.stream, e.id, p) for e, p in zip(events, answer, strict=True)]
        return _encode(ForecastAnswers(found))
    return _encode(
        OutcomeAnswers([OutcomeAnswerOfMany(e.stream, e.id, s) for e, s in zip(events, answer, strict=True)])
    )


def parts(*, quick: bool) -> None:
    """CPU us an event of a batch, by part."""
    for requests, groups in ((8, 200), (40, 40)):  # several times the tables follow the log
        size, repeats = requests * BATCH, 2 if quick else 4
        whole = {name: list[float]() for name in SETTINGS}
        found = {name: Clocks() for name in SETTINGS}
        for _ in range(repeats):
            for name, settings in SETTINGS.items():
                gc.collect()
                whole[name].append(serve(settings, requests, groups))
        for name, settings in SETTINGS.items():
            serve(settings, requests, groups, found[name])
        count = groups * size
        names = sorted({part for spent in found.values() for part in spent.seconds})
        rows = [
            [part, *(f"{1e6 * spent.seconds.get(part, 0.0) / count:.2f}" for spent in found.values())] for part in names
        ]
        rows.append(["sum, with the clocks", *(f"{1e6 * sum(s.seconds.values()) / count:.1f}" for s in found.values())])
        rows.append(["without the clocks", *(f"{min(turns):.1f}" for turns in whole.values())])
        best = min(whole["notice"])
        table.show(
            f"groups of {size:,} events in {requests} requests, {STREAMS:,} streams, TOPS, SQLite, no HTTP",
            ["us of CPU an event", *SETTINGS],
            rows,
            [f"with notices at most {GOAL:g} us: {best:.1f}, {table.verdict(met=best <= GOAL)}"],
        )

    over_http(quick=quick)


def over_http(*, quick: bool) -> None:
    """The same over HTTP, and single events, beside a service that only answers: CPU of the processes, in turns."""
    turns, seconds = (2, 3.0) if quick else (4, 9.0)
    with contenders() as found:
        for connections, size, share in ((8, BATCH, 0.5), (64, 1, 0.9)):
            best = dict[str, float]()
            for _ in range(turns):
                for name, contender in found.items():
                    before = contender.cpu()
                    measured = load(contender.url, connections, seconds if size > 1 else seconds / 3, size)
                    each = 1e6 * (contender.cpu() - before) / max(1, measured.requests * size)
                    best[name] = min(best.get(name, each), each)
            bare, learns, ours = best["bare"], best[LEARNS], best["SQLite"]
            notes = [f"SQLite at least {share:g} of bare: {bare / ours:.2f}, {table.verdict(met=bare / ours >= share)}"]
            if size > 1:
                notes.append(f"at most {GOAL:g} us: {ours:.1f}, {table.verdict(met=ours <= GOAL)}")
            table.show(
                f"over HTTP: {connections} connections, {size} events a request, TOPS, notices on",
                ["service", "CPU us an event", "of bare", "of bare that learns"],
                [[name, f"{each:.1f}", f"{bare / each:.2f}", f"{learns / each:.2f}"] for name, each in best.items()],
                notes,
            )


# ---- growth ---------------------------------------------------------------------------------------------------------

STEPS = (0.01, 0.1, 0.25, 0.5, 0.75, 1.0)  # of the events, after which it is measured
WINDOW = 40  # groups that a measurement is made of: some of them also write what others have left
AT_ONCE = 2_000  # forecasts in a group


def growth(*, quick: bool) -> None:
    """What an event costs as the store grows."""
    grow(*((100_000, 50_000, 100_000) if quick else (1_000_000, 200_000, 400_000)))


def grow(events: int, streams: int, pending: int) -> None:
    """The curves: settled events of a thousand streams, then pending forecasts of many."""
    head = ["forecasts so far", "CPU us an operation", "of the first", "RSS MiB", "store MiB"]
    for many in (False, True):
        count, names = (pending, streams) if many else (events, STREAMS)
        with tempfile.TemporaryDirectory() as folder, few_collections():
            path = Path(folder) / "calibeat.db"
            rows = list(_grow(path, count, names, settles=not many))
            what = "all pending" if many else "outcomes two groups later"
            title = f"{count:,} forecasts of {names:,} streams, {what}, groups of {AT_ONCE:,} forecasts, TOPS"
            table.show(title, head, rows, _questions(path, f"s{names // 2}"))


def _grow(path: Path, count: int, names: int, *, settles: bool) -> Iterator[list[str]]:
    """Rows of the table, as the store grows."""
    engine = Engine.open(str(path), SETTINGS["notice"])
    engine.listening.begin(engine.clock())
    engine.behind.may_wait = True
    marks = [max(WINDOW, int(count * step) // AT_ONCE) for step in STEPS]
    spent, at_first, rng = list[float](), 0.0, np.random.default_rng(0)
    groups = count // AT_ONCE
    for group in range(groups):
        ids = range(group * AT_ONCE, (group + 1) * AT_ONCE)
        scores = rng.random(AT_ONCE).tolist()
        events: list[Any] = [
            ForecastEvent(_stream(i, names), f"a3f9-{i}", score) for i, score in zip(ids, scores, strict=True)
        ]
        if settles and group >= 2:
            old = range((group - 2) * AT_ONCE, (group - 1) * AT_ONCE)
            events += [OutcomeEvent(_stream(i, names), f"a3f9-{i}", i * 31 % 97 % 2) for i in old]
        queue = [(None, events[first : first + BATCH]) for first in range(0, len(events), BATCH)]
        begun = thread_time()
        engine.process(queue)
        engine.write_in_time()
        spent.append((thread_time() - begun) / len(events))
        if group + 1 in marks:
            now = 1e6 * float(np.mean(spent[-WINDOW:]))
            at_first = at_first or now
            beside = [path, path.with_name(path.name + "-wal")]
            size = sum(file.stat().st_size for file in beside if file.exists()) / 2**20
            sign = [
                f"{(group + 1) * AT_ONCE:,}",
                f"{now:.1f}",
                f"{now / at_first:.2f}",
                f"{_resident():.0f}",
                f"{size:.0f}",
            ]
            yield sign
    engine.write_out()
    engine.store.close()


def _stream(i: int, names: int) -> str:
    """The streams in an order that jumps about."""
    return f"s{i * 7919 % names}"


def _resident() -> float:
    """MiB of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def _questions(path: Path, stream: str) -> list[str]:
    """What a reader and a clean-up take on the store as it is in the end."""
    reader, now = open_reader(str(path)), time()
    questions: dict[str, Callable[[], object]] = {
        "the totals of /metrics": reader.totals,
        "the dashboard's first page": lambda: overview(reader, now),
        "a stream's page": lambda: view(reader, now, stream, "all"),
    }
    found = []
    for name, question in questions.items():
        begun = thread_time()
        question()
        found.append(f"{name}: {1e3 * (thread_time() - begun):.1f} ms of CPU")
    reader.close()
    begun, size = thread_time(), path.stat().st_size / 2**20
    deleted = prune(str(path), 0.0)
    after = path.stat().st_size / 2**20
    found.append(
        f"store prune: {deleted:,} events in {thread_time() - begun:.1f} s of CPU, {size:.0f} -> {after:.0f} MiB"
    )
    return found


if __name__ == "__main__":
    grow(*map(int, sys.argv[1:4]))
