"""The leaderboard: one row a method, the numbers, and small pictures of the intervals. Readable without JavaScript."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import Literal, NamedTuple
from xml.etree.ElementTree import Element

from .elements import tag
from .numbers import NOTHING, decimals, duration, number
from .payload import Number, Payload, Row, Triple

Metric = Literal["log_loss", "brier", "ce"]
METRICS: tuple[tuple[Metric, str], ...] = (("log_loss", "log-loss"), ("brier", "Brier"), ("ce", "CE"))
BAR_WIDTH, BAR_HEIGHT = 132, 18


class Measure(NamedTuple):
    field: Literal["log_loss", "brier", "ce", "shp", "refinement", "accuracy", "auc"]
    label: str
    explained: str
    best: Literal["low", "high"]


MEASURES = (
    Measure("log_loss", "Log-loss", "mean surprise at the outcomes in nats; lower is better", "low"),
    Measure("brier", "Brier", "mean squared error of the forecast; lower is better", "low"),
    Measure("ce", "CE", "calibration error: how far stated and observed frequencies are apart; lower is better", "low"),
    Measure("shp", "SHP", "sharpness: how decided the forecasts are when they are right; higher is better", "high"),
    Measure("refinement", "Refinement", "the error that no recalibration could remove; lower is better", "low"),
    Measure("accuracy", "Accuracy", "share of events on the right side of one half; higher is better", "high"),
    Measure("auc", "AUC", "how often a positive event is ranked above a negative one; higher is better", "high"),
)


def leaderboard(payload: Payload) -> Element:
    rows = sorted(payload["table"], key=lambda row: math.inf if row["log_loss"] is None else row["log_loss"])
    labels = {method["name"]: method["label"] for method in payload["methods"]}
    about = {method["name"]: method for method in payload["methods"]}
    head = tag("tr", _heading("Method", "text", "the name; what it does is told below"), _named(MEASURES[0]))
    for metric, label in METRICS:
        head.append(_heading(f"{label} against raw", "low", "difference to the raw score; negative is better", metric))
        head.append(_heading("against the best other", "low", f"difference in {label}; negative is better", metric))
    head.extend(_named(m) for m in MEASURES[1:])
    head.append(_heading("Regret", "low", "nats lost in all to the best fixed parameters in hindsight"))
    head.append(_heading("ln e-value", "high", "logarithm of the evidence that the raw score is not calibrated"))
    head.append(_heading("Time", "low", "how long the replay took"))
    columns = {m.field: [row[m.field] for row in rows] for m in MEASURES}
    scales = {metric: _extent([_interval(row, metric) for row in rows]) for metric, _ in METRICS}
    body = tag("tbody")
    for row in rows:
        info = about[row["method"]]
        chosen = row["method"] == payload["verdict"]["method"]
        line = tag("tr", class_="chosen" if chosen else None, data_method=row["method"])
        name = tag("span", info["label"], class_="method-name")
        badge = tag("span", "our choice", class_="badge") if chosen else None
        line.append(tag("th", name, badge, scope="row", data_value=info["label"], title=info["about"]))
        measured = [_measure(m, row[m.field], columns[m.field]) for m in MEASURES]
        line.append(measured[0])
        for metric, _ in METRICS:
            line.extend(_differences(row, metric, scales[metric], labels))
        line.extend(measured[1:])
        line.append(_cell(row["regret"], number(row["regret"], 1)))
        line.append(_cell(row["log_e_value"], number(row["log_e_value"], 1)))
        line.append(_cell(info["seconds"], duration(info["seconds"])))
        body.append(line)
    return tag("table", tag("thead", head), body, id="leaderboard", class_="sortable")


def _heading(label: str, first: str, explained: str, metric: Metric | None = None) -> Element:
    return tag("th", label, scope="col", data_sort=first, title=explained, data_metric=metric)


def _named(measure: Measure) -> Element:
    return _heading(measure.label, measure.best, measure.explained)


def _cell(value: Number, text: str, class_: str = "") -> Element:
    return tag("td", text, class_=f"number {class_}".strip(), data_value=None if value is None else repr(float(value)))


def _measure(measure: Measure, value: Number, column: Sequence[Number]) -> Element:
    known = [v for v in column if v is not None]
    best = bool(known) and len(known) > 1 and value == (min(known) if measure.best == "low" else max(known))
    text = number(value, decimals(column))
    cell = _cell(value, "" if best else text, "best" if best else "")
    if best:
        cell.extend([tag("strong", text), tag("span", " best", class_="sr-only")])
    return cell


def _interval(row: Row, metric: Metric) -> Triple | None:
    return None if row["vs_raw"] is None else row["vs_raw"].get(metric)


def _differences(row: Row, metric: Metric, extent: float, labels: dict[str, str]) -> list[Element]:
    against_raw = _interval(row, metric)
    if against_raw is None or against_raw[0] is None:
        raw = tag("td", NOTHING, class_="interval number", data_metric=metric)
    else:
        raw = tag("td", bar(against_raw, extent), _triple(against_raw), class_="interval", data_metric=metric)
        raw.set("data-value", repr(float(against_raw[0])))
    others = row["vs_best_other"]
    difference = None if others is None else others.get(metric)
    if others is None or not isinstance(difference, list) or difference[0] is None:
        return [raw, tag("td", NOTHING, class_="interval number", data_metric=metric)]
    other = tag("td", _triple(difference, labels.get(others["method"], others["method"])), class_="interval")
    other.set("data-metric", metric)
    other.set("data-value", repr(float(difference[0])))
    return [raw, other]


def _triple(triple: Triple, other: str | None = None) -> Element:
    digits = decimals(triple)
    difference = tag("span", number(triple[0], digits, sign=True), class_="difference")
    low, high = (number(end, digits, sign=True) for end in triple[1:])
    to = tag("span", f" to {other}", class_="to") if other else None
    return tag("span", difference, to, " ", tag("span", f"{low} to {high}", class_="ends"), class_="triple")


def _extent(intervals: Sequence[Triple | None]) -> float:
    """Half the width of the scale. One hopeless method must not make all others a dot: beyond it, bars end in an arrow."""
    reach = [max(abs(v) for v in t if v is not None) for t in intervals if t is not None and t[0] is not None]
    return min(max(reach), 3 * median(reach)) or 1.0 if reach else 1.0


def bar(triple: Triple, extent: float) -> Element:
    """The interval as a line with a dot at the difference, on a scale whose middle is no difference."""
    middle, reach = BAR_WIDTH / 2, BAR_WIDTH / 2 - 6

    def at(value: float) -> float:
        return middle + reach * max(-1.0, min(1.0, value / extent))

    value = triple[0] or 0.0
    low, high = (value if end is None else end for end in triple[1:])
    side = "better" if high < 0 else "worse" if low > 0 else "open"
    y = BAR_HEIGHT / 2
    picture = tag(
        "svg", viewBox=f"0 0 {BAR_WIDTH} {BAR_HEIGHT}", width=str(BAR_WIDTH), height=str(BAR_HEIGHT), aria_hidden="true"
    )
    picture.set("class", f"bar {side}")
    picture.append(tag("line", x1=str(middle), x2=str(middle), y1="1", y2=str(BAR_HEIGHT - 1), class_="zero"))
    ends = {"x1": f"{at(low):.1f}", "x2": f"{at(high):.1f}"}
    picture.append(tag("line", **ends, y1=str(y), y2=str(y), class_="range"))
    if abs(value) <= extent:
        picture.append(tag("circle", cx=f"{at(value):.1f}", cy=str(y), r="3.5", class_="dot"))
    for end, direction in ((low, -1), (high, 1)):
        if direction * end > extent:
            tip = middle + direction * (reach + 5)
            points = f"{tip},{y} {tip - direction * 6},{y - 4} {tip - direction * 6},{y + 4}"
            picture.append(tag("polygon", points=points, class_="beyond"))
    return picture
