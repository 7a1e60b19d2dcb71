"""What the page draws, in types: the shape of a backtest's payload. Numbers are finite or None, times are ISO text."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

Number = float | None
Axis = Literal["time", "event"]
Triple = list[Number]  # difference, and the ends of its 95 % interval


class Column(TypedDict):
    name: str
    guessed: bool


class Skipped(TypedDict):
    reason: str
    count: int
    first: str


class Data(TypedDict):
    source: list[str]
    rows: int
    used: int
    warmup: int
    judged: int
    base_rate: Number
    mean_score: Number
    span: list[str] | None
    skipped: list[Skipped]
    columns: dict[str, Column]
    keys: int | None
    score_kind: str
    notes: list[str]


class Verdict(TypedDict):
    method: str
    headline: str
    sentences: list[str]
    confidence: Literal["sure", "likely", "unclear"]


class MethodInfo(TypedDict):
    name: str
    label: str
    about: str
    seconds: Number


class Differences(TypedDict):
    log_loss: Triple
    brier: Triple
    ce: Triple  # its ends are those of the envelope against the raw score, None against another method


class Elsewhere(TypedDict):
    """How the difference to the raw score in log-loss varies along the log: a check, not the printed interval."""

    low: Number  # by the block bootstrap
    high: Number
    outlived: bool  # whether the difference depends on its past for longer than a run
    eighths: list[Number]  # the mean difference in each; empty where the log is too short


class DifferencesTo(Differences):
    method: str


class Row(TypedDict):
    method: str
    log_loss: Number
    brier: Number
    ce: Number
    ce_luck: Number  # what a perfectly calibrated forecast in these bins would show by luck
    shp: Number
    refinement: Number
    accuracy: Number
    auc: Number
    vs_raw: Differences | None
    vs_best_other: DifferencesTo | None
    elsewhere: Elsewhere | None
    regret: Number
    log_e_value: Number
    log_e_max: Number


class Intervals(TypedDict):
    """Martingale intervals of the differences in log-loss and Brier score, for this log's events."""

    quantile_of_best: float  # instead of 1.96, where the best of many is claimed to beat the raw score
    run_events: int  # where labels are late: over so many events they may move together; 0 where they are not
    sentence: str
    legend: str  # how to read the bars of the leaderboard


class Bootstrap(TypedDict):
    blocks: int
    block_length: int
    resamples: int
    sentence: str


class WindowScores(TypedDict):
    ce: list[Number]
    log_loss: list[Number]
    brier: list[Number]


class Windows(TypedDict):
    by: Axis
    start: list[str] | list[int]
    end: list[str] | list[int]
    count: list[int]
    base_rate: list[Number]
    mean_score: list[Number]
    methods: dict[str, WindowScores]


class Period(TypedDict):
    label: str
    count: int


class Curve(TypedDict):
    count: list[int]
    forecast: list[Number]
    outcome: list[Number]
    low: list[Number]
    high: list[Number]


class Reliability(TypedDict):
    bins: int
    periods: list[Period]
    methods: dict[str, list[Curve]]


class Trajectory(TypedDict):
    params: dict[str, list[Number]]
    lanes: dict[str, list[Number]] | None


class Trajectories(TypedDict):
    by: Axis
    x: list[str] | list[int]
    methods: dict[str, Trajectory]


class KeyScores(TypedDict):
    log_loss: Number
    brier: Number
    ce: Number


class KeyRow(TypedDict):
    key: str
    events: int
    base_rate: Number
    raw_log_loss: Number
    methods: dict[str, KeyScores]


class Keys(TypedDict):
    total: int
    shown: int
    sentence: str
    rows: list[KeyRow]


class Histogram(TypedDict):
    edges: list[float]
    count: list[int]


class Immediate(TypedDict):
    log_loss: Number
    ce: Number


class AgesByOutcome(TypedDict):
    ones: dict[str, Number]  # quantiles of the ages of ones at their arrival, in seconds
    zeros: dict[str, Number]
    ones_later: Number  # share of the pairs of a one and a zero in which the one has the higher age
    differ: bool  # whether they are clearly different
    mature: str  # an age by which 95 % of both are known
    sentence: str  # nothing, where they are not clearly different


class Delay(TypedDict):
    unit: Literal["events", "time"]
    quantiles: dict[str, Number]
    events_quantiles: dict[str, Number]
    never: int  # not in the log
    too_late: int  # in the log, but after the last forecast
    histogram: Histogram
    sentence: str
    immediate: dict[str, Immediate] | None
    ages: AgesByOutcome | None


class Certificate(TypedDict):
    method: str
    what: str
    statement: str
    bound: Number
    observed: Number
    holds: bool
    promised: bool  # whether a theorem says so of this log; where not, it is a yardstick
    in_expectation: bool  # whether it is promised of the mean over the method's draws, not of each
    applies: str


class Evidence(TypedDict):
    by: Axis
    x: list[str] | list[int]
    threshold: float  # log of 20 x methods: one of them ever gets there in at most 5 % of calibrated logs
    methods: dict[str, list[Number]]


class ClassMethod(TypedDict):
    """What a method did for each class that is shown."""

    classwise_ce: Number  # the mean over all classes, shown or not
    ce: list[Number]
    mean: list[Number]  # forecast
    curves: list[Curve]


class Priors(TypedDict):
    """Shares of the classes that are shown, over stretches of the log."""

    by: Axis
    x: list[str] | list[int]  # where each stretch begins
    happened: list[list[Number]]  # a list for each class
    scores: list[list[Number]]  # the mean raw score
    forecasts: dict[str, list[list[Number]]]  # the mean forecast of each method
    times: list[list[Number]] | None  # how many times as common as the scores assume, by MULTI's biases


class Classes(TypedDict):
    """Many classes. In the rest of the payload forecasts are confidences of the top class, outcomes its hits."""

    total: int
    names: list[str]  # of those that are shown, the most common first
    count: list[int]  # judged labels
    mean_score: list[Number]
    methods: dict[str, ClassMethod]
    priors: Priors


class Payload(TypedDict):
    schema: Literal[2]
    title: str
    command: str | None
    versions: dict[str, str]
    data: Data
    verdict: Verdict
    methods: list[MethodInfo]
    table: list[Row]
    intervals: Intervals
    bootstrap: Bootstrap
    windows: Windows
    reliability: Reliability
    trajectories: Trajectories
    keys: Keys | None
    delay: Delay | None
    certificates: list[Certificate]
    evalue: Evidence
    classes: NotRequired[Classes]  # where there are more than two outcomes
