"""Time per event: `Calibrator.run` beside the C loop and beside other libraries, and predict + update from Python."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks import floor, table
from benchmarks.peers import NEWTON, PARTIAL_FIT, PEERS, SGD, contender
from benchmarks.stream import Stream, drifting
from benchmarks.timing import always, interleaved
from calibeat import AUTO, BM, F99, HOBS, HOPS, OBS, OPS, TOBS, TOPS, Calibrator, Method

PRESETS = {
    "AUTO": AUTO,
    "OPS": OPS,
    "TOPS": TOPS,
    "HOPS": HOPS,
    "OBS": OBS,
    "TOBS": TOBS,
    "HOBS": HOBS,
    "BM": BM,
    "F99": F99,
}

FLOOR_GOALS = {"OPS": 1.1, "TOPS": 1.1, "HOPS": 1.1}  # times the C loop, at most
EVENT_GOAL = 4.0  # us, predict + update


def batch(method: Method, stream: Stream) -> NDArray[np.float64]:
    """The stream through a fresh Calibrator in one call."""
    return Calibrator(method, seed=0).run(stream.scores, stream.outcomes)


def loop(method: Method, scores: list[float], outcomes: list[int]) -> None:
    """The stream through a fresh Calibrator, predict and update in turn."""
    calibrator = Calibrator(method, seed=0)
    predict, update = calibrator.predict, calibrator.update
    for score, outcome in zip(scores, outcomes, strict=True):
        update(predict(score), outcome)


def against_floor(*, quick: bool) -> None:
    """Table: OPS, TOPS and HOPS over the C loop of the same arithmetic; best of interleaved repeats."""
    events, repeats = (500_000, 3) if quick else (5_000_000, 5)
    stream, rows = drifting(events), []
    for name, goal in FLOOR_GOALS.items():
        difference = np.abs(batch(PRESETS[name], stream) - floor.run(name, stream))
        best = interleaved({"run": always(batch, PRESETS[name], stream)} | floor.contenders(name, stream), repeats)
        plain, native = (best[flags] for flags in floor.FLAGS)
        ratio = best["run"] / plain
        rows.append(
            [
                name,
                *(table.nanoseconds(t, events) for t in (plain, native, best["run"])),
                f"{ratio:.2f}",
                f"{best['run'] / native:.2f}",
                f"{goal:.1f}",
                table.verdict(met=ratio <= goal),
                f"{difference.max():.1e}",
            ]
        )
    table.show(
        f"run beside a hand-written C loop, {events:,} events",
        ["method", "C ns", "C native ns", "run ns", "run / C", "run / native", "goal", "", "max |difference|"],
        rows,
        [
            f"CPU ns per event, best of {repeats} interleaved.",
            "C is gcc -O3 -ffp-contract=off, native adds -march=native; the goal is against the former.",
        ],
    )


def against_peers(*, quick: bool) -> None:
    """Table: OPS by `run` against other libraries fed one event at a time; best of interleaved repeats."""
    events, repeats = (4_000, 1) if quick else (20_000, 3)
    stream, long = drifting(events), drifting(50 * events)
    short = Stream(*(column[: events // 10] for column in stream))
    given = {name: short if name == PARTIAL_FIT else stream for name in PEERS}
    sides = {"run": always(batch, OPS, long)} | {name: contender(PEERS[name], given[name]) for name in PEERS}
    best = interleaved(sides, repeats)
    rows = [["calibeat OPS, run", table.microseconds(best["run"], len(long.scores)), "1", "", ""]]
    for name, peer in PEERS.items():
        ratio = best[name] / len(given[name].scores) / (best["run"] / len(long.scores))
        goal = [f"{peer.goal:.0f}", table.verdict(met=ratio >= peer.goal)] if peer.goal else ["", ""]
        rows.append([name, table.microseconds(best[name], len(given[name].scores)), f"{ratio:.0f}", *goal])
    table.show(
        f"run beside other libraries, {events:,} events",
        ["contender", "us per event", "times run", "goal", ""],
        rows,
        [
            f"CPU, best of {repeats} interleaved.",
            f"sklearn sees {len(short.scores):,} events, run {len(long.scores):,}.",
            "The others forecast, then learn, one event at a time from ready-made logits.",
            "The native example of Vowpal Wabbit goes beneath its Python classes, whose docstring advises against it.",
        ],
    )


def by_event(*, quick: bool) -> None:
    """Table: predict + update from a Python loop, beside river's predict_proba_one + learn_one."""
    events, repeats = (5_000, 2) if quick else (20_000, 9)
    stream = drifting(events)
    scores, outcomes = stream.scores.tolist(), stream.outcomes.astype(int).tolist()
    sides = {name: always(loop, method, scores, outcomes) for name, method in PRESETS.items()}
    best = interleaved(sides | {name: contender(PEERS[name], stream) for name in (NEWTON, SGD)}, repeats)
    rows = []
    for name in (*PRESETS, NEWTON, SGD):
        met = 1e6 * best[name] / events < EVENT_GOAL and best[name] < best[NEWTON]
        goal = table.verdict(met=met) if name in PRESETS else ""
        times = (f"{best[rival] / best[name]:.2f}" for rival in (NEWTON, SGD))
        rows.append([name, table.microseconds(best[name], events), goal, *times])
    table.show(
        f"predict + update from Python, {events:,} events",
        ["contender", "us", "goal", "river Newton / us", "river SGD / us"],
        rows,
        [
            f"CPU time per event, best of {repeats} interleaved.",
            f"Goal: under {EVENT_GOAL:.0f} us and faster than river's Newton.",
        ],
    )
