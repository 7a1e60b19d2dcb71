"""How often the interval of a forecast contains the truth: made worlds, the flights, thinned logs, and Venn-Abers.

The truth of a made world is the probability with which its outcome was drawn. Of the flights only outcomes are known:
there the next outcomes with similar forecasts are compared, and the record that each calibrator keeps of itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks import table
from calibeat import Calibrator
from calibeat.examples import flights

EVENTS = 20_000
LATE = (0, 100, 1000)  # events between forecast and outcome
PROMISED = 0.9
TOLERANCE = 0.01
# What the design measured on its own two streams of each world: coverage at once, 100 late, 1,000 late.
DESIGN = {
    "calib": (1.00, 1.00, 1.00),
    "over": (0.98, 1.00, 1.00),
    "skew": (1.00, 1.00, 1.00),
    "rwslow": (0.88, 0.97, 0.96),
    "rwfast": (0.97, 0.92, 0.86),
    "sine": (0.98, 0.95, 0.95),
    "abrupt": (0.95, 0.95, 0.87),
    "slope": (0.95, 1.00, 1.00),
    "jagged": (0.92, 0.97, 0.99),
    "atoms": (0.99, 1.00, 1.00),
    "rare": (1.00, 1.00, 1.00),
    "raredrift": (0.96, 1.00, 0.99),
}
SHORTFALL = (0.002, 0.0, 0.006)  # of the design: mean over the worlds of how far coverage is below 0.90
REASONS = ("too few outcomes", "untested", "drifting", "uneven", "")
STATED = np.array([[0.5, 0.55], [0.7, 0.4], [0.8, 0.75], [0.9, 0.6], [0.95, 0.97], [1.0, 0.8]])  # confidence, truth

Vector = NDArray[np.float64]
Pair = tuple[float, float]


class World(NamedTuple):
    """A stream and the probabilities with which its outcomes were drawn."""

    scores: Vector
    truth: Vector
    outcomes: Vector


class Answers(NamedTuple):
    """What a calibrator answered, event by event."""

    p: Vector
    low: Vector
    high: Vector
    reason: NDArray[np.str_]


# ---- worlds --------------------------------------------------------------------------------------------------------


def sigmoid(z: Vector) -> Vector:
    """1 / (1 + e^-z)"""
    return 1.0 / (1.0 + np.exp(-z))


def walk(step: float, most: float, n: int, rng: np.random.Generator) -> Vector:
    """A random walk that stays in [-most, most]."""
    level, path = 0.0, np.empty(n)
    for t, move in enumerate(rng.normal(0.0, step, n).tolist()):
        level = min(most, max(-most, level + move))
        path[t] = level
    return path


def world(name: str, seed: int, n: int = EVENTS) -> World:
    """Logits of scores N(0, 1.5), and the logit of the truth by the kind of world."""
    rng = np.random.default_rng([seed, list(DESIGN).index(name)])
    x, t = rng.normal(0.0, 1.5, n), np.arange(n)
    if name == "atoms":
        scores, truth = STATED[rng.integers(0, len(STATED), n)].T
    else:
        shift = {"rare": -7.5, "raredrift": -5.5}.get(name, 0.0)
        kinds: dict[str, Callable[[], Vector]] = {
            "over": lambda: 0.5 * x,
            "skew": lambda: 0.6 * x - 1.0,
            "rwslow": lambda: x + walk(0.01, 2.5, n, rng),
            "rwfast": lambda: x + walk(0.05, 2.5, n, rng),
            "sine": lambda: x + np.sin(2.0 * np.pi * t / 2000.0),
            "abrupt": lambda: x + rng.uniform(-1.5, 1.5, n // 1500 + 1)[t // 1500],
            "slope": lambda: x * (1.0 - 0.8 * t / n),
            "jagged": lambda: x + 0.8 * np.sin(6.0 * x),
            "rare": lambda: x - 0.8,
            "raredrift": lambda: x + walk(0.02, 1.5, n, rng),
        }
        z = kinds[name]() if name in kinds else x
        scores, truth = sigmoid(x + shift), sigmoid(z + shift)
    return World(scores, truth, (rng.random(n) < truth).astype(np.float64))


def arrival(n: int, late: int) -> NDArray[np.int64]:
    """When outcomes arrive that are so many events late."""
    return np.arange(1, n + 1) + late


# ---- what is measured ----------------------------------------------------------------------------------------------


def answers(
    scores: Vector, outcomes: Vector, due: NDArray[np.int64], weights: Vector | None = None, kept: Pair | None = None
) -> Answers:
    """The forecasts of a stream with their intervals."""
    found = Calibrator(kept=kept, band=True).run(scores, outcomes, due=due, weights=weights, band=True)
    return Answers(found.probabilities, found.low, found.high, np.asarray(found.reason, dtype=str))


def covered(truth: Vector, said: Answers) -> NDArray[np.bool_]:
    """Whether each interval contains the truth."""
    return (said.low <= truth) & (truth <= said.high)


def cell(hit: NDArray[np.bool_], said: Answers) -> str:
    """A cell: share covered, mean width."""
    return f"{hit.mean():.3f} ({(said.high - said.low).mean():.3f})"


# ---- tables --------------------------------------------------------------------------------------------------------


def band(*, quick: bool) -> None:
    """Tables: worlds, reasons, the flights, thinned logs, Venn-Abers."""
    seeds = range(2 if quick else 10)
    coverage(seeds)
    on_flights()
    thinned(seeds)
    counted(seeds)
    venn_abers(100 if quick else 1000)


def coverage(seeds: Sequence[int]) -> None:
    """The truth of each world, and the reasons."""
    rows, falls = [], []
    hits: dict[tuple[int, str], list[NDArray[np.bool_]]] = {}
    for name, designed in DESIGN.items():
        cells = []
        for late, expected in zip(LATE, designed, strict=True):
            runs = []
            for seed in seeds:
                made = world(name, seed)
                said = answers(made.scores, made.outcomes, arrival(EVENTS, late))
                hit = covered(made.truth, said)
                runs.append((hit.mean(), (said.high - said.low).mean(), hit[: 200 + late].mean(), hit[5000:].mean()))
                for reason in REASONS:
                    hits.setdefault((late, reason), []).append(hit[said.reason == reason])
            mean, width, first, rest = np.mean(runs, axis=0)
            cells += [f"{mean:.3f} ({width:.3f})", f"{first:.2f}", f"{rest:.2f}"]
            cells.append(f"{expected:.2f}")
            falls.append((max(0.0, PROMISED - mean), max(0.0, PROMISED - expected)))
        rows.append([name, *cells])
    fall = np.reshape(falls, (-1, len(LATE), 2))
    excess = (fall[..., 0] - fall[..., 1]).max(axis=0)
    table.show(
        f"the true probability inside [low, high], {EVENTS:,} events, streams of each world: {len(seeds)}",
        ["world"] + [f"{head}" for late in LATE for head in (_late(late), "start", "> 5,000", "design")],
        rows,
        [
            "Share covered (mean width). start: events before 200 outcomes are known. > 5,000: from event 5,000 on.",
            "design: what the design measured on two streams.",
            *(
                f"{_late(late)}: shortfall below {PROMISED}, mean of the worlds: {got:.4f}, of the design {want:.3f}; "
                f"largest excess of a world over the design: {most:.3f}: "
                + table.verdict(met=bool(got <= want + TOLERANCE and most <= TOLERANCE))
                for late, got, want, most in zip(LATE, fall[..., 0].mean(axis=0), SHORTFALL, excess, strict=True)
            ),
        ],
    )
    reasons = []
    for reason in REASONS:
        cells = []
        for late in LATE:
            flags = np.concatenate(hits[late, reason])
            total = sum(len(part) for other in REASONS for part in hits[late, other])
            cells += [f"{len(flags) / total:.3f}", f"{flags.mean():.3f}" if len(flags) else "-"]
        reasons.append([f'"{reason}"', *cells])
    table.show(
        "by reason, all worlds together",
        ["reason", *(f"{head}{_late(late)}" for late in LATE for head in ("share, ", "covered, "))],
        reasons,
    )


def _late(late: int) -> str:
    return f"{late:,} late" if late else "at once"


# ---- the flights ---------------------------------------------------------------------------------------------------

MOMENTS, AHEAD, HALF = 200, 100, 50
NORMAL = 1.96


def on_flights() -> None:
    """The next outcomes with similar forecasts, and the record of blocks, as the flights land and with fixed delays."""
    stream = flights()
    known, n, rows = stream.labelled, len(stream.scores), []
    scores, outcomes, landed = stream.scores, np.nan_to_num(stream.outcomes), np.asarray(stream.due)
    for name, arrives in [("as they land", landed), *((_late(late), arrival(n, late)) for late in LATE)]:
        due = np.where(known, arrives, n + 1)  # an outcome that is not known never arrives
        cal = Calibrator(band=True)
        said = cal.run(scores, outcomes, due=due, band=True)
        record = cal.params["band"]
        inside, moments = [], np.linspace(1000, n - 3 * AHEAD, MOMENTS).astype(int)
        for at in moments.tolist():
            inside += next_outcomes(scores, outcomes, due, known, at)
        rows.append(
            [
                name,
                f"{np.mean([wide for wide, _ in inside]):.3f}",
                f"{np.mean([none for _, none in inside]):.3f}",
                f"{(said.high - said.low).mean():.3f}",
                f"{int(record['outside'])} of {int(record['blocks']):,}",
                f"{record['outside'] / record['blocks']:.3f}",
                f"{(said.reason == '').mean():.2f}",
            ]
        )
    table.show(
        f"{n:,} flights: the next outcomes inside, and the record of blocks",
        ["outcomes", "next 50 inside", "without width", "mean width", "blocks outside", "share", "no reason"],
        rows,
        [
            f"At {MOMENTS} moments the row is frozen; the next {AHEAD} flights with an outcome are put in two halves",
            "by forecast: inside if |mean outcome - mean forecast| <= sqrt(half-width^2 + 1.96^2 p(1-p)/50).",
            "Without width: the same with a half-width of 0. Blocks: of the record, the promise is 0.05 + 62/K.",
        ],
    )


def next_outcomes(
    scores: Vector, outcomes: Vector, due: NDArray[np.int64], known: NDArray[np.bool_], at: int
) -> list[tuple[bool, bool]]:
    """Whether the next outcomes with similar forecasts lie inside, by the row of event `at`; and if it had no width."""
    cal = Calibrator(band=True)
    cal.run(scores[:at], outcomes[:at], due=due[:at])
    ahead = at + np.flatnonzero(known[at : at + 3 * AHEAD])[:AHEAD]
    said, y = cal.predict_many(scores[ahead], band=True), outcomes[ahead]
    order = np.argsort(said.probabilities, kind="stable")
    found = []
    for half in (order[:HALF], order[HALF:]):
        p, width = said.probabilities[half].mean(), (said.high - said.low)[half].mean() / 2.0
        gap, noise = abs(y[half].mean() - p), NORMAL**2 * p * (1.0 - p) / HALF
        found.append((bool(gap <= np.sqrt(width**2 + noise)), bool(gap <= np.sqrt(noise))))
    return found


# ---- thinned logs --------------------------------------------------------------------------------------------------

THINNED = ("calib", "over", "skew", "rwslow", "sine", "abrupt", "rare")


class Sampling(NamedTuple):
    """The share of the outcomes that a log has."""

    share: float = 1.0  # at score 0
    slope: float = 0.0  # how much more at score 1
    zero: float = 1.0  # of zeros, as a share of that of ones

    def chance(self, made: World) -> Vector:
        """The probability that each outcome is seen."""
        return (self.share + self.slope * made.scores) * np.where(made.outcomes == 1.0, 1.0, self.zero)


SEEN = {
    "5 % at random": Sampling(0.05),
    "1 % to 9 %, by score": Sampling(0.01, 0.08),
    "zeros 1 in 5": Sampling(zero=0.2),
    "zeros 1 in 20": Sampling(zero=0.05),
}
HOW = ("plain", "weights", "kept")


def thinned(seeds: Sequence[int]) -> None:
    """Coverage of the truth where the log has some of the outcomes: weights of one by the share, or `kept`."""
    rows = []
    for name in THINNED:
        worlds = [world(name, seed) for seed in seeds]
        for what, sampling in SEEN.items():
            cells = []
            for late in (0, 100):
                for how in HOW:
                    if how == "kept" and sampling.zero == 1.0:
                        cells.append("-")
                        continue
                    runs = [
                        thinned_once(made, seed, sampling, how, late) for seed, made in zip(seeds, worlds, strict=True)
                    ]
                    mean, width = np.mean(runs, axis=0)
                    cells.append(f"{mean:.3f} ({width:.3f})")
            rows.append([name, what, *cells])
    table.show(
        f"the true probability inside [low, high] where only some outcomes are seen, streams of each: {len(seeds)}",
        ["world", "outcomes seen", *(f"{how}, {_late(late)}" for late in (0, 100) for how in HOW)],
        rows,
        [
            "Share of all events covered (mean width). plain: as many outcomes, drawn at random, without weights.",
            "weights: 1 / the probability of being seen. kept: (1, 0.2) and (1, 0.05).",
        ],
    )


def thinned_once(made: World, seed: int, sampling: Sampling, how: str, late: int) -> Pair:
    """Coverage and mean width of one stream."""
    chance = sampling.chance(made)
    if how == "plain":
        chance = np.full(EVENTS, chance.mean())
    seen = np.random.default_rng([seed, 7]).random(EVENTS) < chance
    due = np.where(seen, arrival(EVENTS, late), EVENTS + 1)
    weights = np.where(seen, 1.0 / chance, 1.0) if how == "weights" else None
    said = answers(made.scores, made.outcomes, due, weights, (1.0, sampling.zero) if how == "kept" else None)
    return float(covered(made.truth, said).mean()), float((said.high - said.low).mean())


TRIALS = 20


def counted(seeds: Sequence[int]) -> None:
    """Coverage of the truth where a row is some trials of one score."""
    rows = []
    for name in THINNED:
        cells = []
        for late in LATE:
            runs = []
            for seed in seeds:
                made = world(name, seed)
                ones = np.random.default_rng([seed, 8]).binomial(TRIALS, made.truth)
                of, due = np.full(EVENTS, TRIALS), arrival(EVENTS, late)
                found = Calibrator(band=True).run(made.scores, ones, of=of, due=due, band=True)
                hit = (found.low <= made.truth) & (made.truth <= found.high)
                runs.append((hit.mean(), (found.high - found.low).mean()))
            mean, width = np.mean(runs, axis=0)
            cells.append(f"{mean:.3f} ({width:.3f})")
        rows.append([name, *cells])
    table.show(
        f"the true probability inside [low, high], rows of {TRIALS} trials (of=), streams of each: {len(seeds)}",
        ["world", *map(_late, LATE)],
        rows,
        ["Share of rows covered (mean width)."],
    )


# ---- Venn-Abers ----------------------------------------------------------------------------------------------------

KNOWN = (50, 200, 1000, 5000, 19_000)
PAIRS = 5  # test scores for each history


def venn_abers(histories: int) -> None:
    """The pair p0, p1 of the inductive Venn-Abers predictor beside the interval, in a still and calibrated world."""
    rows = []
    for n in KNOWN:
        runs = max(20, min(histories, histories * 1000 // n))
        found = [both_intervals(n, np.random.default_rng([n, run])) for run in range(runs)]
        pair, ours = (np.mean([each[k] for each in found], axis=0) for k in (0, 1))
        rows.append([f"{n:,}", str(runs * PAIRS), f"{pair[0]:.2f} ({pair[1]:.3f})", f"{ours[0]:.2f} ({ours[1]:.3f})"])
    table.show(
        "a calibrated world that stands still: the truth inside, by the outcomes known",
        ["outcomes", "scores", "Venn-Abers p0 to p1", "low to high"],
        rows,
        ["Share covered (mean width). The truth is the score itself; logits of scores N(0, 1.5)."],
    )


def both_intervals(n: int, rng: np.random.Generator) -> tuple[Pair, Pair]:
    """Coverage and width of Venn-Abers' pair, and of the interval, after n outcomes."""
    from sklearn.isotonic import IsotonicRegression

    scores, asked = sigmoid(rng.normal(0.0, 1.5, n)), sigmoid(rng.normal(0.0, 1.5, PAIRS))
    outcomes = (rng.random(n) < scores).astype(np.float64)
    pair = np.empty((2, PAIRS))
    for at, score in enumerate(asked.tolist()):
        for y in (0, 1):
            fit = IsotonicRegression(y_min=0.0, y_max=1.0).fit([*scores, score], [*outcomes, y])
            pair[y, at] = fit.predict([score])[0]
    cal = Calibrator(band=True)
    cal.run(scores, outcomes, due=np.arange(1, n + 1), finish=True)
    said = cal.predict_many(asked, band=True)
    hit = (pair[0] <= asked) & (asked <= pair[1])
    inside = (said.low <= asked) & (asked <= said.high)
    return (
        (float(hit.mean()), float((pair[1] - pair[0]).mean())),
        (float(inside.mean()), float((said.high - said.low).mean())),
    )
