"""The report of Figure 16: what F99 says of hourly rain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from calibeat.examples.stream import FloatArray

from . import diagrams, published, rain
from .section import NUMBERS, Section, Table, Verdict, number, prose, spread, undecided_if_one
from .settings import Settings
from .tasks import Task

Results = Mapping[str, Sequence[Mapping[str, Any]]]

SETTLED = 2000  # instances, as the text says
GRID_STEP = 0.1
MOSTLY = 0.95
QUANTITIES = ("forecasts within 0.1 of the average", "share of the usual forecast", "usual forecast")


def tasks(settings: Settings) -> list[Task]:
    """One run for each seed: F99 draws."""
    return [rain.task(seed, settings.events) for seed in settings.seeds]


def settled(hours: int) -> int:
    """How many instances are left out; of a trial that has no more, the first half."""
    return SETTLED if hours > SETTLED else hours // 2


def measured(said: FloatArray, rate: float) -> FloatArray:
    """The three quantities, run by run; `said` by run and hour, after F99 has settled."""
    rows = []
    for run in said:
        values, counts = np.unique(run, return_counts=True)
        near = np.abs(run - rate) <= GRID_STEP
        rows.append((near.mean(), counts.max() / len(run), values[counts.argmax()]))
    return np.array(rows)


def report(_settings: Settings, results: Results) -> Section:
    """Figure 16."""
    runs = results["rain"]
    rows, csv_rows, found = [], [], {}
    for record, airport in product(rain.RECORDS, rain.AIRPORTS):
        outcomes = runs[0][f"outcomes {record}, {airport}"]
        said = np.stack([run[f"forecasts {record}, {airport}"] for run in runs])  # by run and hour
        name, rate, hours = f"{airport}, {record}", float(outcomes.mean()), len(outcomes)
        by_run = measured(said[:, settled(hours) :], rate)
        found[name] = rate, by_run
        mean, std = by_run.mean(axis=0), spread(by_run)
        rows.append([name, f"{hours:,}", f"{rate:.3f}", f"{mean[0]:.3f}", f"{by_run[:, 0].min():.3f}",
                     f"{np.median(by_run[:, 2]):.2f}", f"{mean[1]:.3f}", f"{by_run[:, 1].min():.3f}"])  # fmt: skip
        csv_rows += [[name, "hours", str(hours), "", str(len(runs))], [name, "rain", f"{rate:.6f}", "", str(len(runs))]]
        csv_rows += [
            [name, quantity, number(mean[i]), number(std[i]), str(len(runs))] for i, quantity in enumerate(QUANTITIES)
        ]
    head = ["record", "hours", "share with rain", "forecasts within 0.1 of it", "in the worst run", "usual forecast",
            "share of it", "in the worst run"]  # fmt: skip
    return Section(
        words=[prose((rain.__doc__ or "").split("\n\n")[1]), RAIN_WORDS],
        tables=[Table(f"F99 on hourly rain; forecasts are those after the first {SETTLED:,} hours", head, rows)],
        figures={"figure-16": diagrams.rain(runs[0])},
        captions={"figure-16": "Figure 16: F99 on the rain of three New York airports, 2013, our first run"},
        csv_head=["record", "quantity", *NUMBERS],
        csv_rows=csv_rows,
        more={"figure-16": curves(runs[0])},
        verdicts=undecided_if_one(verdicts(found), len(runs)),
    )


def verdicts(found: Mapping[str, tuple[float, FloatArray]]) -> list[Verdict]:
    """Of the records' rates and quantities, run by run."""
    near = {name: by_run[:, 0] for name, (_, by_run) in found.items()}
    one = {
        name: (by_run[:, 1] == 1.0) & (np.abs(by_run[:, 2] - rate) <= GRID_STEP)
        for name, (rate, by_run) in found.items()
    }
    shares = "; ".join(f"{name} {s.mean():.1%}, in the worst run {s.min():.1%}" for name, s in near.items())
    counts = "; ".join(f"{name} in {hits.sum()} of {len(hits)} runs" for name, hits in one.items())
    return [
        Verdict("F99's hedging algorithm simply predicts the average y_t value in the long run", "Section 3.3",
                all(bool((share > MOSTLY).all()) for share in near.values()),
                f"forecasts within {GRID_STEP} of the average: {shares}",
                f"after {SETTLED:,} instances, more than {MOSTLY:.0%} of them, in every run on every record"),
        Verdict("after around 2000 instances, the forecaster always predicts 0.35. This is close to the average number "
                "of instances that it did rain", "Appendix D", all(bool(hits.all()) for hits in one.values()),
                f"always the same grid point, and that near the average: {counts}",
                f"after {SETTLED:,} instances one grid point only, within {GRID_STEP} of the average, in every run on "
                "every record"),
    ]  # fmt: skip


def curves(run: Mapping[str, FloatArray]) -> Table:
    """Every forecast and outcome of a run; hours with the same of both are one row."""
    rows = []
    for record, airport in product(rain.RECORDS, rain.AIRPORTS):
        said, rained = run[f"forecasts {record}, {airport}"], run[f"outcomes {record}, {airport}"]
        change = np.flatnonzero((np.diff(said) != 0) | (np.diff(rained) != 0)) + 1
        starts, ends = np.append(0, change), np.append(change, len(said))
        rows += [
            [f"{airport}, {record}", str(start + 1), str(end), f"{said[start]:.2f}", f"{rained[start]:.0f}"]
            for start, end in zip(starts, ends, strict=True)
        ]
    return Table("Figure 16", ["record", "first hour", "last hour", "forecast", "rain"], rows)


RAIN_WORDS = prose(f"""
    The paper: it rained in {published.RAIN_RATE} of the recorded hours, and after about 2000 instances F99 always says
    {published.RAIN_FORECAST}.
""")
