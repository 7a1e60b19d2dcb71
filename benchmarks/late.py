"""How good the forecasts are when outcomes come late: generated streams, the flights, and the development streams.

A stream is played with every pattern of delays that fits into it twenty times. The first 1,000 events are not scored
(fewer for short development streams). Each method gets the same events with the same delays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import table
from benchmarks.development import SEEDS, STREAMS, Named, read, told_when
from benchmarks.stream import CLIP, Stream
from calibeat import AUTO, BM, OPS, SWPS, TOPS, Calibrator, MissingExtra, metrics

Vector = NDArray[np.float64]
Due = NDArray[np.int64]

METHODS = {"raw": BM, "SWPS": SWPS, "OPS": OPS, "TOPS": TOPS, "AUTO": AUTO}
RIVALS = tuple(METHODS)
FITS = 20  # delays that a stream must be long


# ---- how late ----------------------------------------------------------------------------------------------------


def fixed(delay: int) -> Callable[[Vector], Due]:
    """Every outcome so many forecasts late."""
    return lambda y: np.arange(len(y)) + 1 + delay


def exponential(mean: int) -> Callable[[Vector], Due]:
    """Exponentially late."""
    return lambda y: np.arange(len(y)) + 1 + np.random.default_rng(mean).exponential(mean, len(y)).astype(np.int64)


def batches(size: int) -> Callable[[Vector], Due]:
    """The outcomes of so many events arrive together."""
    return lambda y: (np.arange(len(y)) // size + 1) * size


def few(y: Vector) -> Due:
    """One outcome in a hundred is 1,000 late, the others come at once."""
    return np.arange(len(y)) + 1 + 1000 * (np.random.default_rng(1).random(len(y)) < 0.01)


def clicks(y: Vector) -> Due:
    """A one comes after some 50 events, a zero only when 1,000 have gone by: the delay tells the outcome."""
    soon = np.random.default_rng(50).exponential(50, len(y)).astype(np.int64)
    return np.arange(len(y)) + 1 + np.where(y == 1.0, soon, 1000)


PATTERNS: dict[str, tuple[int, Callable[[Vector], Due]]] = {  # the delay in events, and when each outcome is due
    "at once": (0, fixed(0)),
    "10 late": (10, fixed(10)),
    "100 late": (100, fixed(100)),
    "200 late": (200, fixed(200)),
    "1,000 late": (1000, fixed(1000)),
    "exponential, mean 200": (200, exponential(200)),
    "exponential, mean 1,000": (1000, exponential(1000)),
    "in batches of 500": (500, batches(500)),
    "one in 100 is 1,000 late": (1000, few),
    "ones after 50, zeros after 1,000": (1000, clicks),
}


# ---- generated streams -------------------------------------------------------------------------------------------


def generated(events: int) -> list[Named]:
    """Worlds that stand still, jump, swing, wander, turn round and are rare; the score is always the same kind."""
    rng = np.random.default_rng(0)
    t = np.arange(events)
    wander = np.cumsum(rng.normal(0.0, 0.02, events))
    worlds: dict[str, tuple[Any, Any]] = {
        "calibrated": (1.0, 0.0),
        "too sure": (0.4, 0.3),
        "jumps": (np.where(t // 4000 % 2 == 0, 1.2, 0.6), np.where(t // 4000 % 2 == 0, 0.8, -0.8)),
        "season": (0.8, 1.2 * np.sin(t * 2.0 * np.pi / 5000.0)),
        "wanders": (0.8, wander),
        "turns round": (np.where(t < events // 2, 0.8, -0.8), 0.0),
        "rare": (0.8, -4.0),
    }
    made = []
    for name, (slope, level) in worlds.items():
        logits = rng.normal(0.0, 1.5, events)
        truth = 1.0 / (1.0 + np.exp(-(slope * logits + level)))
        scores = 1.0 / (1.0 + np.exp(-logits))
        made.append(Named(name, Stream(scores, (rng.random(events) < truth).astype(np.float64), logits)))
    return made


def regimes(events: int, length: int = 800) -> Named:
    """A score that says nothing, and a rate of outcomes that jumps between 5 % and 95 %: the past misleads the late."""
    rng = np.random.default_rng(0)
    scores = np.clip(0.5 + rng.normal(0.0, 0.01, events), 0.0, 1.0)
    rate = np.where(np.arange(events) // length % 2 == 0, 0.95, 0.05)
    return Named(f"regimes of {length}", Stream(scores, (rng.random(events) < rate).astype(np.float64), scores))


def flown() -> Named | None:
    """The flights of the demo, as far as their outcome is known; None where the data is not installed."""
    from calibeat.examples.flights import flights

    try:
        year = flights()
    except MissingExtra:
        return None
    scores, outcomes = year.scores[year.labelled], year.outcomes[year.labelled]
    return Named("flights", Stream(scores, outcomes, scores))


# ---- the table ---------------------------------------------------------------------------------------------------


def loss(contender: str, named: Named, when: Callable[[Vector], Due]) -> float:
    """Log-loss times 1000 after the warm-up; what was said of an outcome counts as at least 1e-5."""
    method, y = told_when(METHODS[contender], named.warm_up), named.stream.outcomes
    p = Calibrator(method, seed=0).run(named.stream.scores, y, due=when(y))
    return 1000.0 * metrics.log_loss(y[named.warm_up :], p[named.warm_up :], clip=CLIP)


def rows_of(group: list[Named]) -> list[list[str]]:
    """A row for each pattern: means over the streams that are long enough, and how AUTO does against the others."""
    rows = []
    for pattern, (delay, when) in PATTERNS.items():
        members = [named for named in group if len(named.stream.scores) >= FITS * delay]
        if not members:
            continue
        names = sorted({named.name for named in members})
        grid = np.array([
            np.mean([[loss(rival, n, when) for rival in RIVALS] for n in members if n.name == name], axis=0)
            for name in names
        ])  # fmt: skip
        auto, others = grid[:, -1], grid[:, :-1].min(axis=1)
        gap = auto - others
        rows.append([
            pattern, str(len(names)), *(f"{value:.1f}" for value in grid.mean(axis=0)),
            f"{(auto - grid[:, RIVALS.index('OPS')]).mean():+.1f}", str((auto < grid[:, RIVALS.index("OPS")]).sum()),
            str((gap > 2.0).sum()), f"{gap.max():+.1f} {names[int(gap.argmax())]}",
        ])  # fmt: skip
    return rows


def late(*, quick: bool) -> None:
    """Tables: log-loss by how late outcomes are, on generated streams, and on real ones where they are at hand."""
    events = 20_000 if quick else 100_000
    groups = {f"generated streams of {events:,} events": generated(events), "regimes of 800": [regimes(events)]}
    flights = None if quick else flown()
    if flights is not None:
        groups["flights"] = [flights]
    if STREAMS.exists():
        groups["development streams"] = read(SEEDS[:1], 20_000) if quick else read(SEEDS, 10**9)
    for group, members in groups.items():
        table.show(
            f"log-loss when outcomes are late: {group}",
            ["outcomes", "streams", *RIVALS, "AUTO - OPS", "below OPS", "over 2", "worst, against the best other"],
            rows_of(members),
            [
                f"Times 1000, lower is better; means over seeds, then over streams of at least {FITS} delays.",
                "below OPS: on how many streams AUTO is. over 2: on how many it is more than 2 above the best other.",
            ],
        )
