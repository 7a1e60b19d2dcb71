"""What the page draws, in types: the shape of a backtest's payload. Numbers are finite or None, times are ISO text."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

Number = float | None
Axis = Literal["time", "event"]
Triple = list[Number]  # difference, and the ends of its 95 % interval


class ColumnInfo(TypedDict):
    name: str
    guessed: bool


class SkippedInfo(TypedDict):
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
    skipped: list[SkippedInfo]
    columns: dict[str, ColumnInfo]
    keys: int | None
    score_kind: str
    notes: list[str]


class Verdict(TypedDict):
    method: str
    headline: str
    caveats: list[str]  # what everybody must read beside the headline
    sentences: list[str]  # the numbers behind it
    confidence: Literal["sure", "likely", "unclear"]


class Happened(TypedDict):
    """Of `count` events, forecast at `forecast` on average, the share `outcome` happened."""

    method: str
    count: int
    forecast: float
    outcome: float


class AnswerInfo(TypedDict):
    """What a manager reads: events of about the same forecast, how sure, what to do."""

    happened: list[Happened]  # the raw score and the chosen method; none where the raw score is kept
    sure: str
    library: list[str]  # lines of Python that deploy the choice; none before it is settled when outcomes were known
    service: list[str] | None  # the same as commands
    note: str


class MethodInfo(TypedDict):
    name: str
    label: str
    about: str
    seconds: Number


class Differences(TypedDict):
    log_loss: Triple
    brier: Triple
    ce: Triple  # its ends are those of the envelope against the raw score, None against another method


class ElsewhereInfo(TypedDict):
    """How the difference to the raw score in log-loss varies along the log: a check, not the printed interval."""

    low: Number  # by the block bootstrap
    high: Number
    outlived: bool  # whether the difference depends on its past for longer than a run
    eighths: list[Number]  # the mean difference in each; empty where the log is too short


class DifferencesTo(Differences):
    method: str


class LeaderboardRow(TypedDict):
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
    elsewhere: ElsewhereInfo | None
    regret: Number
    log_e_value: Number
    log_e_max: Number


class IntervalsInfo(TypedDict):
    """Martingale intervals of the differences in log-loss and Brier score, for this log's events."""

    quantile_of_best: float  # instead of 1.96, where the best of many is claimed to beat the raw score
    run_events: int  # where labels are late: the number of events over which they may move together; else 0
    sentence: str
    legend: str  # how to read the bars of the leaderboard


class BootstrapInfo(TypedDict):
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


class PeriodInfo(TypedDict):
    label: str
    count: int


class BinnedCurve(TypedDict):
    count: list[int]
    forecast: list[Number]
    outcome: list[Number]
    low: list[Number]
    high: list[Number]


class MassCurve(BinnedCurve):
    edge: list[float]  # the least forecast of each bin


class ReliabilityInfo(TypedDict):
    bins: int
    periods: list[PeriodInfo]
    methods: dict[str, list[BinnedCurve]]
    mass: dict[str, MassCurve]  # the whole log in bins of equal mass


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


class KeyDifference(TypedDict):
    """A key on which the forecasts of a method are off. `gap` is outcome - forecast; its interval is for all keys."""

    key: str
    events: int
    forecast: float
    outcome: float
    gap: Triple


class KeysThatDiffer(TypedDict):
    method: str
    tested: int
    beyond: int  # beyond luck
    rows: list[KeyDifference]


class Keys(TypedDict):
    differ: KeysThatDiffer | None
    total: int
    shown: int
    sentence: str
    rows: list[KeyRow]


class DelayHistogram(TypedDict):
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
    mature: str  # an age by which 95 % of both are known: the one that was tried, if one was
    sentence: str  # nothing, where they are not clearly different
    advice: str  # whether it paid to learn both at that age; nothing, where it was not tried


class DelayInfo(TypedDict):
    unit: Literal["events", "time"]
    quantiles: dict[str, Number]
    events_quantiles: dict[str, Number]
    never: int  # not in the log
    too_late: int  # in the log, but after the last forecast
    histogram: DelayHistogram
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


class Page(TypedDict):
    """An alarm of a monitor that pages, with those that follow it closely. Places are on the axis of `Paging`."""

    at: str | int
    heard: str | int | None  # when the last outcome that it rests on had arrived; None if that is not on the axis
    since: str | int  # the estimated start
    what: str
    low: float  # of the forecasts that it concerns
    high: float
    alarms: int  # in the episode, the first included
    last: str | int


class Watched(TypedDict):
    alarms: int
    pages: int
    shown: list[Page]  # all, or the first hundred and the latest hundred
    gain: Triple  # Brier score of the raw score less that of the method, with its confidence sequence
    x: list[str | int]
    level: list[Number]  # of the detector, as a share of the alarm line
    gains: list[Triple]


class Paging(TypedDict):
    by: Axis
    arl: float
    outcomes: int
    sentence: str
    methods: dict[str, Watched]  # not all of them


class DataPeriod(TypedDict):
    label: str
    count: int
    missing: Number  # share of events without an outcome
    base_rate: Number
    mean_score: Number
    ones_delay: Number  # medians, to within an eighth
    zeros_delay: Number
    psi: Number  # population stability index of the scores against the first period, which has none


class DataOverTime(TypedDict):
    """What happened to the data, in bins of `unit`."""

    by: Axis
    unit: str
    start: list[str | int]
    count: list[int]
    missing: list[Number]
    ones_delay: list[Number] | None  # None where outcomes came at once
    zeros_delay: list[Number] | None
    delay_is_time: bool  # seconds, else forecasts made meanwhile
    score_low: list[Number]  # the 10th, 50th and 90th percentile, to within 1/16
    score_median: list[Number]
    score_high: list[Number]
    periods: list[DataPeriod]


class PeriodScores(TypedDict):
    log_loss: Number
    brier: Number
    ce: Number


class SplitPeriod(TypedDict):
    """One of two periods that were asked for: before a moment, or from it on."""

    name: str
    judged: int
    base_rate: Number
    methods: dict[str, PeriodScores]


class Prices(TypedDict):
    """Act where the forecast is at least the threshold fp / (fp + fn)."""

    threshold: float
    fp: float  # what an action for nothing costs
    fn: float  # what a missed event costs; 1 where only the threshold was given
    given: bool


class Action(TypedDict):
    method: str
    actions: int
    hits: int  # actions where it happened
    for_nothing: int
    missed: int
    new: int  # actions where the raw score does not act, and how many of them were right
    new_hits: int
    dropped: int  # the other way round
    dropped_hits: int
    cost: float
    cost_per_1000: float
    saved_per_1000: Triple  # against the raw score, with its 95 % interval


class ActionsOverTime(TypedDict):
    by: Axis
    x: list[str | int]
    methods: dict[str, list[list[float]]]  # saved against the raw score so far, low, high


class DecisionCurve(TypedDict):
    threshold: list[float]
    everyone: list[Number]  # net benefit of acting on every event
    methods: dict[str, list[Number]]


class Decisions(TypedDict):
    curve: DecisionCurve
    costs: Prices | None  # nothing below without them
    actions: list[Action]
    over_time: ActionsOverTime | None
    sentence: str


class ClassMethod(TypedDict):
    """What a method did for each class that is shown."""

    classwise_ce: Number  # the mean over all classes, shown or not
    ce: list[Number]
    mean: list[Number]  # forecast
    curves: list[BinnedCurve]


class Priors(TypedDict):
    """Shares of the classes that are shown, over stretches of the log."""

    by: Axis
    x: list[str] | list[int]  # where each stretch begins
    happened: list[list[Number]]  # a list for each class
    scores: list[list[Number]]  # the mean raw score
    forecasts: dict[str, list[list[Number]]]  # the mean forecast of each method
    times: list[list[Number]] | None  # how many times as common as the scores assume, by MULTI's biases


class ClassesInfo(TypedDict):
    """Many classes. In the rest of the payload forecasts are confidences of the top class, outcomes its hits."""

    total: int
    names: list[str]  # of those that are shown, the most common first
    count: list[int]  # judged labels
    mean_score: list[Number]
    methods: dict[str, ClassMethod]
    priors: Priors


class SegmentScores(TypedDict):
    """What one forecast said in each segment, and the evidence against it: the logarithm of an e-value."""

    said: list[float]
    log_e: list[float]
    flagged: list[bool]


class SegmentColumns(TypedDict):
    """Segments as columns of a table, the strongest evidence against AUTO first."""

    attribute: list[str]  # or two of them: "country x device"
    value: list[list[str]]  # one, or one of each of the two
    events: list[int]
    rate: list[float]  # of what happened
    methods: dict[str, SegmentScores]  # the raw score, AUTO, AUTO with groups


class SpreadRow(TypedDict):
    """How much the values of a column differ by what groups have learnt: in logits, and in points at 50 %."""

    column: str
    spread: float
    points: float


class HeatMapOf(TypedDict):
    """Lines of cells: what happened less what was said, and whether that is shown to be no luck."""

    gap: list[list[Number]]  # None below the least number of events
    flagged: list[list[bool | None]]


class HeatMap(TypedDict):
    attributes: list[str]  # the one that goes down, the one that goes across
    down: list[str]
    across: list[str]
    events: list[list[int | None]]
    methods: dict[str, HeatMapOf]  # AUTO, AUTO with groups


class SegmentsInfo(TypedDict):
    """Who is miscalibrated: segments by attributes."""

    attributes: list[str]
    least: int  # events of a segment that is judged
    rate: float  # of false discoveries
    total: int
    flagged: dict[str, int]  # how many are shown to be miscalibrated, by method
    sentence: str
    spread: list[SpreadRow]
    map: HeatMap | None
    rows: SegmentColumns
    notes: list[str]


class LaterRow(TypedDict):
    delay: str  # "at once", "100 events late"
    log_loss: float
    gain: float  # against the raw score, as a share of its log-loss


class LaterInfo(TypedDict):
    """The chosen method with outcomes that come later, where a log does not say when they were known."""

    method: str
    events: int  # that were replayed so: the first of the log
    whole: bool  # whether that is all of it
    raw_log_loss: float
    rows: list[LaterRow]
    sentence: str


class OfferedInfo(TypedDict):
    """Columns by which events could be grouped, where none were named."""

    columns: list[str]
    sentence: str


class Payload(TypedDict):
    schema: Literal[1]
    title: str
    command: str | None
    versions: dict[str, str]
    data: Data
    verdict: Verdict
    methods: list[MethodInfo]
    table: list[LeaderboardRow]
    intervals: IntervalsInfo
    bootstrap: BootstrapInfo
    windows: Windows
    reliability: ReliabilityInfo
    trajectories: Trajectories
    keys: Keys | None
    delay: DelayInfo | None
    certificates: list[Certificate]
    evalue: Evidence
    answer: AnswerInfo
    created: str  # ISO, UTC
    paging: Paging
    periods: list[SplitPeriod]  # two, if a moment was given that splits the log
    history: DataOverTime
    decisions: NotRequired[Decisions]  # of two classes only
    classes: NotRequired[ClassesInfo]  # of many classes only
    later: NotRequired[LaterInfo]  # where outcomes were taken to be known at once, and a method was chosen
    segments: NotRequired[SegmentsInfo]  # where attributes were named ...
    offered: NotRequired[OfferedInfo]  # ... or columns that could be, where some were found
