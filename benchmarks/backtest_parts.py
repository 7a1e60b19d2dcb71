"""Where the CPU time of a backtest goes, part by part.

The command runs in this process with a clock around each part: see `Clocks`. What no clock covers is the rest.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack, redirect_stdout
from io import StringIO
from pathlib import Path
from time import process_time
from typing import Any
from unittest.mock import patch

from benchmarks import table
from benchmarks.backtest import NO_TIMES, kernels, write_keyed_log, write_log
from benchmarks.timing import Clocks
from calibeat.backtest import run
from calibeat.backtest.judge import history, paging, verdict
from calibeat.backtest.read import rows
from calibeat.backtest.replay import contenders, engine, tally
from calibeat.cli import backtest, main

REPLAY, TALLIES, PAIRS = "replay of the methods", "losses, bins, ranks, evidence", "intervals: all pairs of methods"
MONITORS, SCORES, READING = "monitors", "scores by rank, history", "reading and checking rows"
PLACES, VERDICT, PAGE, REST = "places, draws", "verdict, bootstrap, what if later", "page", "the rest"
TIMED: dict[str, list[tuple[Any, str]]] = {
    REPLAY: [
        (contenders.MethodReplay, "feed"),
        (contenders.OneStreamReplay, "feed"),
        (contenders.PooledReplay, "feed"),
        (contenders.BaseRateReplay, "feed"),
    ],
    TALLIES: [(tally.Tally, "count"), (tally.Tally, "count_keys")],
    PAIRS: [(verdict.Counting, "add")],
    MONITORS: [(paging.Trail, "add")],
    SCORES: [(tally.ScoreTally, "count"), (history.DataHistory, "add")],
    PLACES: [(tally.Blocks, "place"), (engine, "uniforms_at"), (engine._ReplayLoop, "_numbers")],
    VERDICT: [(run, "summarise"), (run, "_add_later")],
    PAGE: [(backtest, "html")],
}


def parts_of(log: Path, *more: str) -> tuple[dict[str, float], float]:
    """CPU seconds of each part of the command, and of all of it but the start of Python."""
    clocks = Clocks()
    with ExitStack() as stack:
        for part, places in TIMED.items():
            for owner, name in places:
                stack.enter_context(patch.object(owner, name, clocks.timed(part, getattr(owner, name))))
        stack.enter_context(patch.object(rows.RowReader, "chunks", clocks.each(READING, rows.RowReader.chunks)))
        stack.enter_context(redirect_stdout(StringIO()))
        began = process_time()
        main.main(["backtest", str(log), *more, "--report", str(log.with_suffix(".html")), "--json"])
        whole = process_time() - began
    clocks.seconds[REST] = whole - sum(clocks.seconds.values())
    return clocks.seconds, whole


def parts(*, quick: bool) -> None:
    """Two tables: a log of scores and outcomes, and one with keys and times beside the same without."""
    plain, keyed, turns = (200_000, 100_000, 1) if quick else (10_000_000, 1_000_000, 2)
    with tempfile.TemporaryDirectory() as name:
        log, with_keys = Path(name) / "log.parquet", Path(name) / "keyed.parquet"
        write_log(log, plain)
        write_keyed_log(with_keys, keyed)
        found = [parts_of(log) for _ in range(turns)]
        bare = [parts_of(with_keys, *NO_TIMES) for _ in range(turns)]
        named = "--key", "key", "--time", "time", "--outcome-time", "none"
        more = [parts_of(with_keys, *named) for _ in range(turns)]
        alone = kernels(plain)
    best = min(found, key=lambda one: one[1])
    shares = sorted(best[0], key=best[0].__getitem__, reverse=True)
    table.show(
        f"calibeat backtest, {plain:,} rows of two columns, ten methods: CPU time by part, without the start of Python",
        ["part", "CPU s", "ns a row", "of the kernels"],
        [
            *([part, *_shown(best[0][part], plain, alone)] for part in shares),
            ["all", *_shown(best[1], plain, alone)],
            ["the kernels alone (Calibrator.run)", *_shown(alone, plain, alone)],
        ],
    )
    fewer, with_all = (min(each, key=lambda one: one[1]) for each in (bare, more))
    shares = sorted(with_all[0], key=lambda part: with_all[0][part] - fewer[0].get(part, 0.0), reverse=True)
    table.show(
        f"{keyed:,} rows, us a row by part",
        ["part", "two columns", "with --key --time", "added"],
        [[part, *_beside(fewer[0].get(part, 0.0), with_all[0][part], keyed)] for part in shares]
        + [["all", *_beside(fewer[1], with_all[1], keyed)]],
    )


def _shown(seconds: float, events: int, kernels: float) -> list[str]:
    return [f"{seconds:.2f}", table.nanoseconds(seconds, events), f"{seconds / kernels:.2f}"]


def _beside(few: float, many: float, events: int) -> list[str]:
    return [table.microseconds(seconds, events) for seconds in (few, many, many - few)]
