"""Log-loss when outcomes are late: fixed, random and batched delays, delays that depend on the outcome, and time-outs.

The development streams are those of `benchmarks.quality`; without their folder the tables are about the streams that
are made here, the flights and the drift of the demo.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks import table
from benchmarks.development import SEEDS, STREAMS, Named, read, told_when
from benchmarks.quality import METHODS, Vector
from benchmarks.stream import CLIP, Stream
from calibeat import AUTO, Calibrator, metrics
from calibeat.examples import covariate_drift, flights
from calibeat.late import corrected, share_known

RIVALS = ("BM", "SWPS", "OPS", "TOPS", "AUTO")
TIME_OUT, SOON = 1000, 50  # a zero after so many events, a one after so many in the mean
Ints = NDArray[np.int64]


class Pattern(NamedTuple):
    """How late outcomes are; `size` is the delay that a stream must be many times longer than."""

    size: int
    delay: Callable[[Vector, np.random.Generator], Vector]  # of outcomes, in events between forecast and outcome


def exponential(mean: float) -> Callable[[Vector, np.random.Generator], Vector]:
    """Delays of this mean."""
    return lambda y, rng: rng.exponential(mean, len(y))


def batches(length: int) -> Callable[[Vector, np.random.Generator], Vector]:
    """The outcomes of so many events arrive together."""
    return lambda y, _: np.asarray(length - 1.0 - np.arange(len(y)) % length, dtype=np.float64)


def clicks(y: Vector, rng: np.random.Generator) -> Vector:
    """A one soon, a zero when the time is out."""
    return np.where(y == 1.0, rng.exponential(SOON, len(y)), TIME_OUT)


PATTERNS = {
    **{
        f"{late} late": Pattern(late, lambda y, _, late=late: np.full(len(y), float(late)))  # type: ignore[misc]
        for late in (0, 10, 100, 200, 1000, 5000)
    },
    "exponential, mean 200": Pattern(200, exponential(200)),
    "exponential, mean 1000": Pattern(1000, exponential(1000)),
    "batches of 500": Pattern(500, batches(500)),
    "batches of 2000": Pattern(2000, batches(2000)),
    "1 % are 1000 late": Pattern(1000, lambda y, rng: np.where(rng.random(len(y)) < 0.01, 1000.0, 0.0)),
    "ones 50, zeros 1000 late": Pattern(TIME_OUT, clicks),
}


def due_of(pattern: Pattern, y: Vector) -> Ints:
    """When the outcomes of a stream arrive."""
    waits = pattern.delay(y, np.random.default_rng(0))
    return np.arange(1, len(y) + 1) + np.round(waits).astype(np.int64)


def loss(contender: str, named: Named, pattern: Pattern) -> float:
    """Log-loss times 1000 after the warm-up."""
    method, y = told_when(METHODS[contender], named.warm_up), named.stream.outcomes
    p = Calibrator(method, seed=0).run(named.stream.scores, y, due=due_of(pattern, y))
    return nats(y[named.warm_up :], p[named.warm_up :])


def nats(y: Vector, p: Vector) -> float:
    """Log-loss times 1000."""
    return 1000.0 * metrics.log_loss(y, p, clip=CLIP)


# ---- streams that are made here ----------------------------------------------------------------------------------


def made(name: str, events: int = 20_000) -> Named:
    """A score that is too sure of itself, in a world that stands still, jumps, swings, or turns its sign."""
    rng = np.random.default_rng(7)
    t, z = np.arange(events), rng.normal(0.0, 1.5, events)
    shift = {
        "jump": np.where(t < events // 2, 0.0, 1.5),
        "season of 4000": 1.2 * np.sin(t / 4000 * 2.0 * np.pi),
        "rare ones": np.full(events, -4.5),
    }.get(name, np.zeros(events))
    truth = z * np.where((name == "flip") & (t >= events // 2), -1.0, 1.0) + shift
    sure = 1.6 * z + (-4.5 if name == "rare ones" else 0.0)
    scores = 1.0 / (1.0 + np.exp(-sure))
    outcomes = (rng.random(events) < 1.0 / (1.0 + np.exp(-truth))).astype(np.float64)
    return Named(f"own_{name}", Stream(scores, outcomes, sure))


def regimes(length: int, events: int = 100_000) -> Named:
    """A score that says nothing, and a rate of outcomes that jumps between 5 % and 95 %: the past misleads the late."""
    rng = np.random.default_rng(0)
    scores = np.clip(0.5 + rng.normal(0.0, 0.01, events), 0.0, 1.0)
    rate = np.where(np.arange(events) // length % 2 == 0, 0.95, 0.05)
    return Named(f"regimes of {length}", Stream(scores, (rng.random(events) < rate).astype(np.float64), scores))


def repository() -> list[Named]:
    """The streams that need no folder beside the repository."""
    found = []
    for name, one in (("flights", flights()), ("covariate drift", covariate_drift())):
        scores, outcomes = one.scores[one.labelled], one.outcomes[one.labelled]
        found.append(Named(name, Stream(scores, outcomes, scores)))
    found += [made(name) for name in ("still", "jump", "season of 4000", "rare ones", "flip")]
    return [*found, regimes(800), regimes(3000)]


# ---- tables ------------------------------------------------------------------------------------------------------


def late(*, quick: bool) -> None:
    """Tables: by delay over the development streams, stream by stream over those of the repository, time-outs."""
    own = repository()
    chosen = ("0 late", "200 late", "1000 late", "exponential, mean 200", "batches of 500")
    rows = []
    for named in own:
        for name in chosen:
            losses = [loss(rival, named, PATTERNS[name]) for rival in RIVALS]
            rows.append([f"{named.name}, {name}", *(f"{value:.1f}" for value in losses)])
    times = "Times 1000, after the warm-up; BM is the raw score."
    table.show(
        "log-loss when outcomes are late, streams of the repository", ["stream, outcomes", *RIVALS], rows, [times]
    )
    streams = own
    if STREAMS.exists():
        streams = read(SEEDS[:1], 20_000) if quick else read(SEEDS, 10**9)
        for delays in (3, 20):
            by_delay(streams, delays)
    depends_on_outcome(streams)
    time_outs(streams)


def by_delay(streams: Sequence[Named], delays: int) -> None:
    """Means over the development streams that are so many delays long."""
    rows = []
    for label, pattern in PATTERNS.items():
        members = [named for named in streams if len(named.stream.scores) >= delays * pattern.size]
        names = sorted({named.name for named in members})
        losses = np.array(
            [
                np.mean([[loss(rival, n, pattern) for rival in RIVALS] for n in members if n.name == name], axis=0)
                for name in names
            ]
        )
        gain = losses[:, RIVALS.index("AUTO")] - losses[:, RIVALS.index("OPS")]
        least = losses[:, [RIVALS.index(rival) for rival in ("BM", "OPS", "TOPS")]].min(axis=1)
        over = losses[:, RIVALS.index("AUTO")] - least
        rows.append(
            [
                label,
                str(len(names)),
                *(f"{value:.1f}" for value in losses.mean(axis=0)),
                f"{gain.mean():+.1f}",
                f"{(gain < 0.0).sum()} of {len(gain)}",
                f"{over.max():+.1f} {names[int(over.argmax())]}",
            ]
        )
    table.show(
        f"log-loss when outcomes are late, development streams of at least {delays} delays",
        ["outcomes", "streams", *RIVALS, "AUTO - OPS", "better than OPS", "worst against the best other"],
        rows,
        ["Times 1000, after the warm-up; means over seeds, then over streams. The best other: of BM, OPS and TOPS."],
    )


def depends_on_outcome(streams: Sequence[Named]) -> None:
    """A one after 50 events in the mean, a zero after 1000: as they come, both held back, and a wish."""
    rivals = ("BM", "OPS", "TOPS", "AUTO")
    first = {named.name: named for named in reversed(streams) if len(named.stream.scores) >= 4000}
    rows = []
    for label, pattern, mature in (
        ("as they come", PATTERNS["ones 50, zeros 1000 late"], None),
        ("mature=1000", PATTERNS["ones 50, zeros 1000 late"], TIME_OUT),
        ("both exponential, mean 50", Pattern(SOON, exponential(SOON)), None),
    ):
        losses = []
        for named in first.values():
            y, row = named.stream.outcomes, []
            for rival in rivals:
                cal = Calibrator(METHODS[rival], seed=0)
                p = cal.run(named.stream.scores, y, due=due_of(pattern, y), mature=mature)
                row.append([nats(y[:1000], p[:1000]), nats(y[1000:3000], p[1000:3000]), nats(y[3000:], p[3000:])])
            losses.append(row)
        mean = np.mean(losses, axis=0)
        rows.append([label, *(" / ".join(f"{value:.0f}" for value in part) for part in mean)])
    table.show(
        f"a one after 50 events in the mean, a zero after 1000: {len(first)} streams",
        ["outcomes are learnt", *rivals],
        rows,
        ["Log-loss times 1000 in events 1-1000 / 1001-3000 / after 3000, one seed. The last line is a wish."],
    )


def time_outs(streams: Sequence[Named]) -> None:
    """Ones after 500 events in the mean, called zeros for good when the time is out."""
    first = {named.name: named for named in reversed(streams) if 4000 <= len(named.stream.scores) <= 20_000}
    rows = []
    for name, named in first.items():
        y, n = named.stream.outcomes, len(named.stream.scores)
        waits = np.random.default_rng(1).exponential(500, n)
        age = n - np.arange(n)
        come = (y == 1.0) & (waits <= age)  # what is in the log when it ends
        share = share_known(waits, come, 200, watched=age)
        said = {}
        for out in (200, 2000):
            known = y * (waits <= out)
            said[out] = Calibrator(AUTO).run(named.stream.scores, known, mature=out)
        values = said[200], corrected(said[200], share), said[2000]
        rows.append([name, *(f"{nats(y[3000:], p[3000:]):.1f}" for p in values), f"{share:.3f}"])
    table.show(
        "AUTO where ones come after 500 events in the mean, and are called 0 at a time-out for good",
        ["stream", "time-out 200", "200, p/F", "time-out 2000", "F"],
        rows,
        ["Log-loss times 1000 after 3000 events. F from the log's own delays; in truth it is 0.330."],
    )
