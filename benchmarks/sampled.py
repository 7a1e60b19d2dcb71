"""Log-loss and calibration error of all events where a log has the outcomes of only some, or counts of them.

The streams are the four of `tests/golden/scores`: scores that random forests gave to rows of the datasets in `data`,
and their outcomes. The development streams of `benchmarks.quality` have a table of their own where they are at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks import development, table
from benchmarks.stream import CLIP
from calibeat import Calibrator, metrics

SCORES = Path(__file__).parents[1] / "tests" / "golden" / "scores"
SHARE = 0.05  # of the outcomes is seen
ODDS = 6.0  # how many times as often a one is seen as a zero of the same score
WINDOWS = (50, 200, 1000)  # events whose counts arrive together
DRAWS = 10  # of what is seen

Vector = NDArray[np.float64]
Pair = tuple[float, float]


class Events(NamedTuple):
    """All events of a stream."""

    name: str
    scores: Vector
    outcomes: Vector


class Sampling(NamedTuple):
    """Which outcomes a log has: the probability that each is seen, and shares of ones and zeros that are constant."""

    chance: Callable[[Events], Vector]
    kept: Pair | None = None  # at each score in this ratio; None: no ratio is constant


def read() -> list[Events]:
    """The four streams of the repository."""
    found = []
    for path in sorted(SCORES.glob("*.npz")):
        with np.load(path) as file:
            found.append(Events(path.name.split("_")[0], file["scores"], file["y"]))
    return found


# ---- what a log has ------------------------------------------------------------------------------------------------


def thinned(r: int) -> Sampling:
    """Every one, and one zero in r."""
    return Sampling(lambda events: np.where(events.outcomes == 1.0, 1.0, 1.0 / r), (1.0, 1.0 / r))


def thinned_more(events: Events) -> Vector:
    """Every one, and one zero in 5 in the first half, one in 50 in the second."""
    early = np.arange(len(events.scores)) < len(events.scores) // 2
    return np.where(events.outcomes == 1.0, 1.0, np.where(early, 1.0 / 5.0, 1.0 / 50.0))


def by_score(events: Events) -> Vector:
    """The larger the score the more: from 0.5 % to 18.5 %."""
    rank = np.searchsorted(np.sort(events.scores), events.scores, side="right") / len(events.scores)
    return SHARE * (0.1 + 3.6 * rank**3)


def by_score_and_outcome(events: Events) -> Vector:
    """As `by_score`, and ones six times as often as zeros of the same score."""
    chance = by_score(events) * np.where(events.outcomes == 1.0, ODDS, 1.0)
    return np.minimum(1.0, chance * (SHARE / chance.mean()))


SAMPLINGS = {
    "zeros 1 in 5": thinned(5),
    "zeros 1 in 20": thinned(20),
    "zeros 1 in 100": thinned(100),
    "zeros 1 in 5, then 1 in 50": Sampling(thinned_more),
    "5 % at random": Sampling(lambda events: np.full(len(events.scores), SHARE)),
    "5 %, by score": Sampling(by_score),
    "5 %, by score, ones x 6": Sampling(by_score_and_outcome, (1.0, 1.0 / ODDS)),
}
IGNORED, WEIGHT, KEPT = "ignored", "weight", "kept"
WAYS = [
    ("AUTO", IGNORED),
    ("AUTO", WEIGHT),
    ("AUTO", KEPT),
    ("OPS", WEIGHT),
    ("OPS", KEPT),
    ("TOPS", WEIGHT),
    ("TOPS", KEPT),
]


# ---- what is made of it --------------------------------------------------------------------------------------------


def forecasts(method: str, how: str, sampling: Sampling, events: Events, draw: int) -> Vector:
    """The forecasts of all events by a calibrator that learns the outcomes seen."""
    n, chance = len(events.scores), sampling.chance(events)
    seen = np.random.default_rng(draw).random(n) < chance
    due = np.where(seen, np.arange(1, n + 1), n + 1)  # an outcome that is not seen never arrives
    cal = Calibrator(method, kept=sampling.kept) if how == KEPT else Calibrator(method)
    return cal.run(events.scores, events.outcomes, weights=1.0 / chance if how == WEIGHT else None, due=due)


def measured(outcomes: Vector, p: Vector) -> Pair:
    """Log-loss and calibration error, times 1000."""
    return 1000.0 * metrics.log_loss(outcomes, p, clip=CLIP), 1000.0 * metrics.calibration_error(outcomes, p)


def results(way: tuple[str, str], sampling: Sampling, streams: Sequence[Events], draws: int) -> list[Pair]:
    """Of each stream, the means over draws; none where there is nothing constant to keep."""
    if way[1] == KEPT and sampling.kept is None:
        return []
    return [
        mean([measured(events.outcomes, forecasts(*way, sampling, events, draw)) for draw in range(draws)])
        for events in streams
    ]


def unsampled(streams: Sequence[Events]) -> tuple[str, str]:
    """Raw scores, and AUTO with all outcomes seen."""
    raw = [measured(y, scores) for _, scores, y in streams]
    return shown(raw), shown([measured(y, Calibrator().run(scores, y)) for _, scores, y in streams])


def mean(found: Sequence[Pair]) -> Pair:
    """The means of log-loss and calibration error."""
    loss, error = np.mean(found, axis=0)
    return float(loss), float(error)


def shown(found: Sequence[Pair]) -> str:
    """A cell: the means of log-loss and calibration error."""
    if not found:
        return "-"
    loss, error = mean(found)
    return f"{loss:.1f} ({error:.0f})"


# ---- tables --------------------------------------------------------------------------------------------------------


def sampled(*, quick: bool) -> None:
    """Tables: outcomes of some events, stream by stream where zeros are thinned, and counts."""
    streams, draws = read(), 2 if quick else DRAWS
    by_sampling("streams", streams, draws)
    by_stream(streams, draws)
    counts(streams)
    if development.STREAMS.exists():
        others = [
            Events(each.name, each.stream.scores, each.stream.outcomes)
            for each in development.read(development.SEEDS[:1], 20_000 if quick else 10**9)
        ]
        by_sampling("development streams", others, 1 if quick else 5)


def by_sampling(what: str, streams: Sequence[Events], draws: int) -> None:
    """What each way makes of each log."""
    rows = []
    for name, sampling in SAMPLINGS.items():
        found = {way: results(way, sampling, streams, draws) for way in WAYS}
        weighted, kept = found["AUTO", WEIGHT], found["AUTO", KEPT]
        gaps = np.array(kept)[:, 0] - np.array(weighted)[:, 0] if kept else np.empty(0)
        against = f"{(gaps < 0.0).sum()} ({gaps.max():+.1f})" if kept else "-"
        rows.append([name, *map(shown, found.values()), against])
    raw, everything = unsampled(streams)
    table.show(
        f"log-loss (calibration error) of all events, mean of {len(streams)} {what}, draws of what is seen: {draws}",
        ["outcomes seen", *(f"{method}, {how}" for method, how in WAYS), "kept better"],
        rows,
        [
            f"Times 1000, lower is better. Raw score: {raw}. AUTO with all outcomes seen: {everything}.",
            "Zeros 1 in r: and every one. By score: from 0.5 % to 18.5 %, more of the high scores.",
            "weight: 1 / the probability that the outcome is seen. kept: (1, 1/r), (1, 1/6); -: no ratio is constant.",
            "kept better: on how many streams AUTO has the lower log-loss with kept (the worst: kept - weight).",
        ],
    )


def by_stream(streams: Sequence[Events], draws: int) -> None:
    """The streams one by one, where one zero in 20 is seen."""
    rows = []
    for events in streams:
        raw, everything = unsampled([events])
        cells = [shown(results(way, SAMPLINGS["zeros 1 in 20"], [events], draws)) for way in WAYS[:3]]
        rows.append([events.name, f"{len(events.scores):,}", f"{events.outcomes.mean():.0%}", raw, *cells, everything])
    table.show(
        f"zeros 1 in 20, stream by stream, draws of what is seen: {draws}",
        ["stream", "events", "ones", "raw score", *(f"{method}, {how}" for method, how in WAYS[:3]), "all seen"],
        rows,
        ["Log-loss (calibration error) of all events, times 1000."],
    )


def counts(streams: Sequence[Events]) -> None:
    """Rows of n events of one score, of which k were ones, beside the same events one by one."""
    rows = []
    for window in WINDOWS:
        raw, single, counted, sizes = [], [], [], []
        for events in streams:
            y = events.outcomes
            p, size = in_rows(events, window)
            raw.append(measured(y, events.scores.round(1)))
            single.append(measured(y, one_by_one(events, window)))
            counted.append(measured(y, p))
            sizes.append(size)
        rows.append([f"{window:,} events", f"{np.mean(sizes):.0f}", shown(raw), shown(single), shown(counted)])
    table.show(
        f"counts: scores rounded to tenths, outcomes at the end of each window, mean of {len(streams)} streams",
        ["window", "events a row", "raw score", "AUTO, one by one", "AUTO, of="],
        rows,
        ["Log-loss (calibration error) times 1000. A row: all events of one rounded score in a window."],
    )


def one_by_one(events: Events, window: int) -> Vector:
    """Forecasts of single events whose outcomes arrive at the end of their window."""
    n = len(events.scores)
    return Calibrator().run(events.scores.round(1), events.outcomes, due=(np.arange(n) // window + 1) * window)


def in_rows(events: Events, window: int) -> tuple[Vector, float]:
    """Forecasts of the same events, each that of its row, and how many events a row has."""
    tenths = (10.0 * events.scores).round().astype(np.int64)
    windows = np.arange(len(tenths)) // window
    rows, row_of, of = np.unique(windows * 11 + tenths, return_inverse=True, return_counts=True)
    ones = np.bincount(row_of, events.outcomes).astype(np.int64)
    due = np.searchsorted(rows // 11, rows // 11, side="right")  # before the first row of the next window
    p = Calibrator().run(rows % 11 / 10.0, ones, of=of, due=due)
    return p[row_of], len(tenths) / len(rows)
