"""How good the forecasts are on the development streams, beside other libraries.

The streams lie in `shared/streams/dev.npz` beside the repository. Every method sees the same scores and outcomes, each
outcome right after its forecast; the first events of a stream (`warm_up`) count for nobody, and are what FPS, WPS, SWPS
and WHB get before their first fit. Vowpal Wabbit and river learn on the logit of the clipped score.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from benchmarks import peers, table
from benchmarks.development import SEEDS, STREAMS, Named, read, told_when
from benchmarks.stream import CLIP, Stream
from calibeat import AUTO, BM, FPS, HOPS, OBS, OPS, SWPS, TOBS, TOPS, WHB, WPS, Calibrator, metrics

BLOCK = 500

METHODS = {
    "BM": BM,
    "FPS": FPS,
    "WPS": WPS,
    "SWPS": SWPS,
    "OPS": OPS,
    "TOPS": TOPS,
    "HOPS": HOPS,
    "OBS": OBS,
    "TOBS": TOBS,
    "WHB": WHB,
    "AUTO": AUTO,
}
OTHERS: dict[str, Callable[[Stream], list[float]]] = {
    "Vowpal Wabbit": lambda stream: peers.quiet(peers.wabbit_native, peers.wabbit(), stream),
    "river SGD": lambda stream: peers.quiet(peers.river, peers.sgd(), stream),
}
MEASURES = ("log-loss", "Brier", "CE", "block CE")
SHOWN = ("SWPS", "OPS", "TOPS", "OBS", "Vowpal Wabbit", "river SGD", "AUTO")

Vector = NDArray[np.float64]


def forecasts_of(contender: str, named: Named) -> Vector:
    """What a contender says of every event."""
    if contender in OTHERS:
        return np.array(OTHERS[contender](named.stream))
    method = told_when(METHODS[contender], named.warm_up)
    return Calibrator(method, seed=0).run(named.stream.scores, named.stream.outcomes)


def measured(contender: str, named: Named) -> list[float]:
    """Times 1000: log-loss (clipped at 1e-5), Brier, CE, and the mean CE of blocks of 500 events."""
    p, y = forecasts_of(contender, named)[named.warm_up :], named.stream.outcomes[named.warm_up :]
    blocks = [
        metrics.calibration_error(y[i : i + BLOCK], p[i : i + BLOCK]) for i in range(0, len(p) - BLOCK + 1, BLOCK)
    ]
    return [
        1000.0 * value
        for value in (
            metrics.log_loss(y, p, clip=CLIP),
            metrics.brier_score(y, p),
            metrics.calibration_error(y, p),
            float(np.mean(blocks)),
        )
    ]


def quality(*, quick: bool) -> None:
    """Tables: means over streams; AUTO against each; log-loss and CE stream by stream."""
    if not STREAMS.exists():
        print(f"quality: left out, {STREAMS.name} is not there (the folder `shared` beside the repository holds it)\n")
        return
    found = read(SEEDS[:1], 20_000) if quick else read(SEEDS, 10**9)
    names = sorted({named.name for named in found})
    results = {
        contender: {
            name: np.mean([measured(contender, named) for named in found if named.name == name], axis=0)
            for name in names
        }
        for contender in (*METHODS, *OTHERS)
    }
    grid = {contender: np.array([results[contender][name] for name in names]) for contender in results}
    overall(grid, len(names), len(found))
    paired(grid, len(names))
    for column in (0, 2):
        stream_by_stream(grid, names, column)


def overall(grid: dict[str, NDArray[np.float64]], streams: int, runs: int) -> None:
    """Means over streams, and on how many streams a contender is the best of all."""
    every = np.array(list(grid.values()))
    first = (every == every.min(axis=0)).sum(axis=1)
    rows = [
        [name, *(f"{value:.1f}" for value in values.mean(axis=0)), *(str(wins) for wins in first[i])]
        for i, (name, values) in enumerate(grid.items())
    ]
    table.show(
        f"forecasts, mean of {streams} streams ({runs} runs)",
        ["method", *MEASURES, *(f"best {measure}" for measure in MEASURES)],
        rows,
        [
            "Times 1000, lower is better; log-loss of forecasts clipped to [1e-5, 1 - 1e-5].",
            "best: on how many streams the method is first of all.",
        ],
    )


def paired(grid: dict[str, NDArray[np.float64]], streams: int) -> None:
    """AUTO minus each other: mean difference, and the number of streams on which AUTO is better."""
    rows = []
    for name, values in grid.items():
        if name != "AUTO":
            difference = grid["AUTO"] - values
            worst = difference[:, 0].max()
            wins = (difference < 0.0).sum(axis=0)
            rows.append([name, *(f"{d:+.1f}" for d in difference.mean(axis=0)), f"{worst:+.1f}", *map(str, wins)])
    table.show(
        f"AUTO minus the other, mean of {streams} streams",
        ["other", *MEASURES, "worst log-loss", *(f"won {measure}" for measure in MEASURES)],
        rows,
        [f"Times 1000, negative: AUTO is better. won: on how many of the {streams} streams AUTO is better."],
    )


def stream_by_stream(grid: dict[str, NDArray[np.float64]], names: list[str], column: int) -> None:
    """One measure for the contenders that come near, the best of each stream marked."""
    rows = []
    for i, name in enumerate(names):
        values = [float(grid[contender][i, column]) for contender in SHOWN]
        shown = [f"{value:.1f}" for value in values]
        best = min(shown, key=float)
        rows.append([name, *(text + ("*" if text == best else " ") for text in shown)])
    table.show(
        f"{MEASURES[column]} by stream", ["stream", *SHOWN], rows, ["Times 1000, mean over seeds; * best shown."]
    )
