"""A bank with monitors: broken keys among many, false pages, and what watching costs. Part of `benchmarks monitor`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import process_time

import numpy as np
from numpy.typing import NDArray

from benchmarks import table
from benchmarks.timing import once
from calibeat import AUTO, BM, TOPS, Bank, Monitor
from calibeat.monitor.bets import ALARMS, PAGES

Floats = NDArray[np.float64]
Change = Callable[[Floats], Floats]


def keys(breaks: dict[str, Change], *, quick: bool) -> None:
    """Many keys, some of which break: who is paged, who is listed."""
    count, broken, outcomes, calm = (1_000, 10, 1_000, 300) if quick else (10_000, 50, 1_000, 300)
    sizes = count, broken, outcomes, calm
    lines = [
        [name, f"{arl:,}", *_one_bank(breaks[name], arl, *sizes)]
        for name in ("rate +1", "rate -0.5", "slope 0.6", "one region")
        for arl in (count * 100, count * 1_000)
    ]
    table.show(
        f"bank: {count:,} keys x {outcomes:,} outcomes, {broken} keys break at their {calm}th",
        ["break", "arl", "paged", "false pages", "allowed", "median delay", "listed", "right", "e-BH 10 %", "right"],
        lines,
        [
            "arl counts outcomes of the whole bank; warm 0, raw scores. Delays are in outcomes of the key.",
            "listed: bank.broken() at the end. e-BH: bank.miscalibrated(0.1) at the end.",
        ],
    )


def _one_bank(after: Change, arl: float, count: int, broken: int, outcomes: int, calm: int) -> list[str]:
    rng = np.random.default_rng(7)
    bank = Bank(BM, monitor=Monitor(arl=arl, warm=0))
    every, step, false = np.arange(count), 10, 0
    first = np.full(broken, np.inf)
    for at in range(0, outcomes, step):
        chosen = np.concatenate([rng.permutation(every) for _ in range(step)])
        p = rng.random(len(chosen))
        truth = np.where((chosen < broken) & (at >= calm), after(p), p)
        bank.run(chosen, p, rng.random(len(chosen)) < truth)
        if at + step == calm:
            false += _pages(bank, every)  # nothing is broken yet
        alarms = _rows(bank, every[:broken])[:, ALARMS] > (0 if at >= calm else np.inf)
        first = np.where(alarms & np.isinf(first), at + step - calm, first)
    false += _pages(bank, every[broken:])
    found = first[np.isfinite(first)]
    listed, named = bank.broken().keys, bank.miscalibrated(0.1)
    return [
        f"{len(found)} of {broken}",
        str(false),
        f"{count * outcomes / arl:.0f}",
        f"{np.median(found):.0f}" if len(found) else "",
        str(len(listed)),
        str(int((listed < broken).sum())),
        str(len(named)),
        str(int((named < broken).sum())),
    ]


def _rows(bank: Bank, chosen: NDArray[np.int64]) -> Floats:
    """The monitors of some keys."""
    monitors = bank._rows.watching.monitors
    assert monitors is not None  # noqa: S101 - it was made with one
    return monitors.matrix[bank._slots_of(chosen)]


def _pages(bank: Bank, chosen: NDArray[np.int64]) -> int:
    return int(_rows(bank, chosen)[:, PAGES].sum())


def cost(*, quick: bool) -> None:
    """CPU time per event of a shuffled bank with monitors and without."""
    count, events, repeats = (20_000, 500_000, 2) if quick else (100_000, 3_000_000, 4)
    rng = np.random.default_rng(8)
    chosen, scores = rng.integers(0, count, events), rng.random(events)
    outcomes = rng.random(events) < scores
    goal, lines = 2.5, []
    for name, method in (("TOPS", TOPS), ("AUTO", AUTO)):
        banks = {
            "without": Bank(method, threads=1),
            "6 regions": Bank(method, threads=1, monitor=Monitor(warm=0)),
            "2 regions": Bank(method, threads=1, monitor=Monitor(warm=0, regions=2)),
        }
        for bank in banks.values():
            bank.run(chosen, scores, outcomes)
        best = dict.fromkeys(banks, float("inf"))
        for _ in range(repeats):
            for which, bank in banks.items():  # in turn; of the whole process, since a batch is served in threads
                best[which] = min(best[which], once(partial(bank.run, chosen, scores, outcomes), process_time))
        for which, seconds in best.items():
            ratio = seconds / best["without"]
            met = ["", ""] if which == "without" else [f"{goal}", table.verdict(met=ratio <= goal)]
            size = f"{banks[which].nbytes / count:.0f}"
            lines.append([f"{name}, {which}", table.nanoseconds(seconds, events), f"{ratio:.2f}", *met, size])
    table.show(
        f"bank with monitors: {events:,} events of {count:,} keys in no order, one thread",
        ["bank", "ns per event", "times without", "goal", "", "bytes per key"],
        lines,
        [f"CPU time, best of {repeats} interleaved; warm 0, so that every outcome is bet on."],
    )
