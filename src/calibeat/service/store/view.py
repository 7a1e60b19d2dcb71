"""One stream on the dashboard: over time, reliability by week, what was learnt, how late outcomes are, its alarms."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from calibeat.core.method import method_named, params_of
from calibeat.errors import InvalidInput
from calibeat.hosts.bank import Bank
from calibeat.metrics import wilson

from .overview import AlarmRow, alarm_rows
from .reader import Delay, Reader, StreamInfo
from .types import CALIBRATED, HOUR, RAW, TENTHS

SPANS = {"day": 24, "week": 168, "month": 30 * 24, "all": None}  # in hours
WIDTHS = (1, 2, 3, 6, 12, 24, 48, 168, 336, 672, 2688, 8736)  # hours of a point
POINTS, FEWEST = 168, 14  # of a picture
ENOUGH = 40  # outcomes of a point, on average
WEEK = 168
MONDAY = 72  # 1970 began on a Thursday: so many hours after a Monday
WEEKS = 10
ALARMS = 50
BINS = 10
GRID = 51
KINDS = {"raw": RAW, "calibrated": CALIBRATED}

Number = float | None


@dataclass
class Series:
    """Points in time, those without an event left out. Means are over forecasts whose outcome is learnt."""

    seconds: float  # that a point stands for
    start: list[float] = field(default_factory=list)
    forecasts: list[int] = field(default_factory=list)
    outcomes: list[int] = field(default_factory=list)
    forecast: list[Number] = field(default_factory=list)
    score: list[Number] = field(default_factory=list)
    happened: list[Number] = field(default_factory=list)
    low: list[Number] = field(default_factory=list)  # Wilson's 95 % interval of what happened
    high: list[Number] = field(default_factory=list)
    log_loss: list[Number] = field(default_factory=list)
    raw_log_loss: list[Number] = field(default_factory=list)


@dataclass
class Period:
    """A part of the time."""

    label: str
    count: int


@dataclass
class Curve:
    """Ten bins of one kind of forecast in one period."""

    count: list[int]
    forecast: list[Number]
    outcome: list[Number]
    low: list[Number]
    high: list[Number]


@dataclass
class Curves:
    """Reliability as the report draws it: periods, and for each kind a curve in each period."""

    bins: int
    periods: list[Period]
    methods: dict[str, list[Curve]]


@dataclass
class Map:
    """What a score becomes now."""

    score: list[float]
    forecast: list[float]


@dataclass
class View:
    """Everything that the screen of a stream shows."""

    stream: StreamInfo
    method: str
    monitored: bool
    span: str
    series: Series
    reliability: Curves
    params: dict[str, float]
    lanes: dict[str, float]  # weights of the experts that AUTO mixes; empty for other methods
    map: Map | None  # None for methods that draw: each forecast is one of several
    delays: list[Delay]
    alarms: list[AlarmRow]


def view(reader: Reader, now: float, name: str, span: str = "month") -> View | None:
    """One stream, or None if there is no such stream."""
    if span not in SPANS:
        raise InvalidInput(f"span must be one of {', '.join(SPANS)}, got {span!r}")
    info = reader.stream(name)
    if info is None:
        return None
    meta = dict(reader.select("SELECT name, value FROM meta"))
    number, sums, state = reader.select("SELECT number, sums, state FROM stream WHERE name = ?", (name,))[0]
    first, last = reader.select("SELECT min(hour), max(hour) FROM rollup WHERE stream = ?", (number,))[0]
    if first is None:  # its state came from elsewhere, and nothing has happened since
        first = last = now // HOUR
    # A client's clock may be wrong by years: what lies ahead of this one's does not decide what "the last week" is.
    end = min(int(last), max(int(first), int(now // HOUR)))
    length = SPANS[span]
    start = int(first) if length is None else max(int(first), end - length + 1)
    params, lanes = _learnt(meta["method"], bytes(state))
    return View(
        stream=info,
        method=meta["method"],
        monitored=meta.get("monitor", "null") != "null",
        span=span,
        series=_series(reader, number, start, end),
        reliability=_reliability(reader, number, int(first), end, array("d", bytes(sums))),
        params=params,
        lanes=lanes,
        map=_map(meta["method"], bytes(state)),
        delays=reader.delays(name) or [],
        alarms=alarm_rows(reader, "WHERE a.stream = ?", (number,), ALARMS),
    )


def _series(reader: Reader, number: int, start: int, end: int) -> Series:
    within = (number, start, end)
    where = "FROM rollup WHERE stream = ? AND hour >= ? AND hour <= ?"
    learnt = reader.select(f"SELECT sum(outcomes) {where} AND kind = {CALIBRATED}", within)[0][0]
    points = min(POINTS, max(FEWEST, int(learnt or 0) // ENOUGH))  # a point of few outcomes shows luck
    width = next((w for w in WIDTHS if (end - start) // w < points), WIDTHS[-1])
    sums = "sum(forecasts), sum(outcomes), sum(sum_p), sum(sum_y), sum(log_loss)"
    rows = reader.select(f"SELECT (hour + {MONDAY}) / {width}, kind, {sums} {where} GROUP BY 1, 2 ORDER BY 1", within)
    kinds = {(at, kind): numbers for at, kind, *numbers in rows}
    made = Series(width * HOUR)
    for at in sorted({at for at, _ in kinds}):
        forecasts, outcomes, *calibrated = kinds[at, CALIBRATED]
        raw = kinds[at, RAW][2:]
        forecast, happened, log_loss = (v / outcomes if outcomes else None for v in calibrated)
        score, _, raw_log_loss = (v / outcomes if outcomes else None for v in raw)
        made.start.append((at * width - MONDAY) * HOUR)
        made.forecasts.append(int(forecasts))
        made.outcomes.append(int(outcomes))
        made.forecast.append(forecast)
        made.score.append(score)
        made.happened.append(happened)
        made.log_loss.append(log_loss)
        made.raw_log_loss.append(raw_log_loss)
    made.low, made.high = _interval(made.happened, made.outcomes)
    return made


def _interval(share: list[Number], count: list[int]) -> tuple[list[Number], list[Number]]:
    ends = wilson([np.nan if v is None else v for v in share], count)
    low, high = ([None if np.isnan(v) else float(v) for v in end] for end in ends)
    return low, high


# ---- reliability ----------------------------------------------------------------------------------------------------

Cells = dict[tuple[int, int], tuple[float, float, float]]  # kind, tenth -> outcomes, sum of forecasts, sum of outcomes


def _reliability(reader: Reader, number: int, first: int, end: int, sums: array[float]) -> Curves:
    """All time from the stream's own sums; the last seven days and each week from the roll-ups."""
    at = {(kind, t): TENTHS + 30 * kind + 3 * t for kind in (CALIBRATED, RAW) for t in range(BINS)}
    parts: list[tuple[str, Cells]] = [
        ("All time", {cell: (sums[i], sums[i + 1], sums[i + 2]) for cell, i in at.items()})
    ]
    if end - first >= WEEK:
        select = "SELECT {what}, kind, tenth, sum(outcomes), sum(sum_p), sum(sum_y) FROM rollup WHERE stream = ? "
        within = "AND hour >= ? AND hour <= ? GROUP BY 1, 2, 3 ORDER BY 1"
        days = reader.select(select.format(what="0") + within, (number, end - WEEK + 1, end))
        parts.insert(0, ("Last 7 days", _cells(days)))
        since = ((end + MONDAY) // WEEK - WEEKS + 1) * WEEK - MONDAY
        found: dict[int, list[Any]] = defaultdict(list)
        for row in reader.select(select.format(what=f"(hour + {MONDAY}) / {WEEK}") + within, (number, since, end)):
            found[int(row[0])].append(row)
        year = _day(end).year
        parts += [
            (_week_label(week, year), _cells(found[week]))
            for week in sorted(found, reverse=True)
            if sum(row[3] for row in found[week])
        ]
    curves = {name: [_curve(cells, kind) for _, cells in parts] for name, kind in KINDS.items()}
    periods = [Period(label, sum(curves["raw"][i].count)) for i, (label, _) in enumerate(parts)]
    return Curves(BINS, periods, curves)


def _cells(rows: Iterable[Any]) -> Cells:
    return {(kind, tenth): (count, sum_p, sum_y) for _, kind, tenth, count, sum_p, sum_y in rows}


def _curve(cells: Cells, kind: int) -> Curve:
    tenths = [cells.get((kind, t), (0.0, 0.0, 0.0)) for t in range(BINS)]
    count = [int(n) for n, _, _ in tenths]
    outcome = [sum_y / n if n else None for n, _, sum_y in tenths]
    low, high = _interval(outcome, count)
    return Curve(count, [sum_p / n if n else None for n, sum_p, _ in tenths], outcome, low, high)


def _day(hour: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(hours=hour)


def _week_label(week: int, year: int) -> str:
    """
    >>> _week_label((datetime(2026, 11, 16, tzinfo=UTC) - datetime(1969, 12, 29, tzinfo=UTC)).days // 7, 2026)
    '16–22 Nov'
    """
    monday = _day(week * WEEK - MONDAY)
    sunday = monday + timedelta(days=6)
    end = f"{sunday.day} {sunday:%b}" + ("" if sunday.year == year else f" {sunday.year}")
    return f"{monday.day}–{end}" if monday.month == sunday.month else f"{monday.day} {monday:%b} – {end}"


# ---- what was learnt ------------------------------------------------------------------------------------------------


def _learnt(method: str, state: bytes) -> tuple[dict[str, float], dict[str, float]]:
    """Parameters by their names in the paper, and the weights of the lanes."""
    chosen = method_named(method)
    params, lanes = dict[str, float](), dict[str, float]()
    for name, value in params_of(chosen, np.frombuffer(state)[: chosen.width].tolist()).items():
        if name == "lanes":
            lanes = {lane: float(weight) for lane, weight in value.items()}
        elif isinstance(value, dict):
            params |= {f"{name} {part}": float(v) for part, v in value.items() if isinstance(v, float)}
        else:
            params[name] = float(value)
    return params, lanes


def _map(method: str, state: bytes) -> Map | None:
    """Forecasts of a grid of scores from the present state; nothing is learnt or changed."""
    chosen = method_named(method)
    if chosen.draws:
        return None
    bank = Bank(chosen)
    bank.set_rows([""], np.frombuffer(state)[None, :].copy())
    scores = np.linspace(0.0, 1.0, GRID)
    forecasts: Any = bank.predict_many([""] * GRID, scores)
    return Map([round(float(score), 2) for score in scores], [float(p) for p in forecasts])
