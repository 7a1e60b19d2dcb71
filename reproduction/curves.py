"""What the reports of streams over time share: their summaries, and tables of final values beside the paper's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

from . import published
from .forests import ForestStream
from .section import Table, beside, number, plus_minus
from .summary import Summary
from .tasks import Results

PLATT = ("BM", "FPS", "WPS", "OPS", "TOPS", "HOPS")
OURS = ("SWPS", "SWBS", "AUTO")  # not in the paper
SCALE = 1e4  # final CE is shown times 10,000


def summaries(streams: Sequence[ForestStream], results: Results) -> dict[str, Summary]:
    """By the stream's name."""
    return {stream.name: Summary(stream, results[f"replay {stream.name}"]) for stream in streams}


def rows_of(found: Mapping[str, Summary], design: str, title: str = "") -> tuple[str, list[Summary]]:
    """One row of panels."""
    return title, [summary for summary in found.values() if summary.stream.design == design]


def beaten(summary: Summary, method: str, rivals: Sequence[str]) -> str:
    """At how many points some rival has less CE than the method."""
    lowest = np.min([summary.mean("ce", rival) for rival in rivals], axis=0)
    return f"{int((lowest < summary.mean('ce', method)).sum())} of {len(summary.points)}"


def final_table(
    found: Mapping[str, Summary],
    methods: Sequence[str],
    theirs: Mapping[str, Mapping[str, float]] | None = None,
    their_runs: int = published.SEEDS,
) -> Table:
    """Final CE: ours, the published one, their distance in our standard deviations and in standard errors."""
    theirs = theirs or published.FINAL_CE
    rows, far, compared = [], 0, 0
    for name, summary in found.items():
        for method in methods:
            mean, std = summary.final("ce", method)
            other = theirs.get(name, {}).get(method)
            z = ""
            if other is not None and std > 0:
                error = SCALE * std * (1 / summary.runs + 1 / their_runs) ** 0.5
                distance = (SCALE * mean - other) / error
                z, far, compared = f"{distance:+.1f}", far + (abs(distance) > 2), compared + 1
            rows.append([name, method, *beside(mean, std, other, 0, SCALE), z])
    caption = "Final CE x 10,000"
    if compared:
        caption += f"; {far} of {compared} differences exceed two standard errors"
    return Table(caption, ["stream", "method", "ours", "paper", "difference in std", "in standard errors"], rows)


def others_table(found: Mapping[str, Summary]) -> Table:
    """What the paper has not: sliding windows, and AUTO; beside the paper's best."""
    methods = ("TOPS", "TOBS", *OURS)
    rows = [
        [name, *(plus_minus(mean, std, 0, SCALE) for mean, std in (s.final("ce", m) for m in methods))]
        for name, s in found.items()
    ]
    return Table("Final CE x 10,000 of methods that the paper has not, beside its best", ["stream", *methods], rows)


def measures_table(found: Mapping[str, Summary], methods: Sequence[str]) -> Table:
    """Brier score and log-loss, which the paper does not report."""
    rows = [
        [name, measure, *(f"{s.final(metric, method)[0]:.4f}" for method in methods)]
        for name, s in found.items()
        for measure, metric in (("Brier", "brier"), ("log-loss", "log_loss"))
    ]
    caption = "Brier score and log-loss (clipped at 1e-5) from T_cal on, which the paper does not report"
    return Table(caption, ["stream", "measure", *methods], rows)


def scores_csv(found: Mapping[str, Summary], methods: Sequence[str], epsilons: Sequence[float] = (0.1,)) -> Table:
    """Brier score and log-loss at the end, as a CSV."""
    rows = []
    for name, summary in found.items():
        for method, epsilon, metric in product(methods, epsilons, ("brier", "log_loss")):
            mean, std = summary.final(metric, method, epsilon)
            rows.append([name, method, f"{epsilon:g}", metric, number(mean), number(std), str(summary.runs)])
    return Table("Brier score and log-loss", ["stream", "method", "epsilon", "metric", "mean", "std", "runs"], rows)
