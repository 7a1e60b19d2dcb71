"""The top of the page: the verdict, one number that anybody understands, how sure it is, what to do. Then the
leaderboard: one row a method, numbers, and small pictures of the intervals, readable without JavaScript.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import Literal, NamedTuple
from xml.etree.ElementTree import Element

from calibeat._util.words import NOTHING, count, decimals, duration, number, percent

from .elements import how_to_read, labels_of, name, scroller, section, tag, typeset
from .schema import AnswerInfo, Happened, LeaderboardRow, Number, Payload, Triple

CONFIDENCE = {"sure": "We are sure", "likely": "Likely, not certain", "unclear": "Not settled by this log"}
BAR_WIDTH, BAR_HEIGHT = 400, 14
LOG_LOSS = (
    " is how surprised the forecasts were by what happened, on average: 0 is perfect, {same}, and to be sure and wrong "
    "costs most."
)

# ---- verdict -----------------------------------------------------------------------------------------------------


def verdict(payload: Payload) -> Element:
    """The section."""
    found = payload["verdict"]
    sentences = [tag("p", typeset(sentence), class_="lead") for sentence in found["sentences"]]
    return tag(
        "section",
        tag("p", CONFIDENCE[found["confidence"]], class_=f"confidence {found['confidence']}"),
        tag("h1", typeset(found["headline"]).replace("log-loss", "log\u2011loss")),
        *(tag("p", typeset(caveat), class_="caveat") for caveat in found["caveats"]),
        tag("p", typeset(payload["later"]["sentence"]), id="assumes", class_="caveat") if "later" in payload else None,
        *_for_everybody(payload, payload["answer"]),
        tag("details", tag("summary", "The numbers behind it, for experts"), *sentences, id="expert"),
        _figures(payload),
        id="verdict",
    )


def _for_everybody(payload: Payload, answer: AnswerInfo) -> list[Element]:
    happened = answer["happened"]
    shown = [
        tag("p", typeset(example(payload)), class_="lead", id="example"),
        tag("div", *(_happened(payload, one, scale_of(happened)) for one in happened), class_="happened"),
    ]
    return [
        *(shown if happened else []),
        tag("p", typeset(answer["sure"]), class_="lead", id="sure"),
        tag("p", tag("b", "Log-loss"), typeset(LOG_LOSS.format(same=_same(payload))), id="log-loss"),
        _do_this(answer, settled=is_settled(payload)),
    ]


def _same(payload: Payload) -> str:
    """What it costs to know nothing."""
    if "classes" not in payload:
        return "to say 50 % each time costs 0.693"
    total = payload["classes"]["total"]
    return f"to give each of {total} classes the same chance costs {math.log(total):.3f}"


def is_settled(payload: Payload) -> bool:
    """Whether the choice may be deployed as it is; to keep the raw score is always settled."""
    return payload["verdict"]["confidence"] != "unclear" or not payload["answer"]["happened"]


def scale_of(happened: list[Happened]) -> int:
    """Of how many events to speak: a thousand, or more where less than ten of them are forecast.

    >>> scale_of([{"method": "raw", "count": 9, "forecast": 0.35, "outcome": 0.2}])
    1000
    >>> scale_of([{"method": "raw", "count": 9, "forecast": 0.0002, "outcome": 0.2}])
    100000
    """
    least = max(min(one["forecast"] for one in happened), 1e-6)
    return 1000 * 10 ** max(0, math.ceil(-2.0 - math.log10(least) - 1e-9))


def example(payload: Payload) -> str:
    """Of a thousand events or more at about the same forecast, how many happened: the raw score, then the choice.

    Nothing where the raw score is kept.
    """
    labels, happened = labels_of(payload), payload["answer"]["happened"]
    scale = scale_of(happened) if happened else 0
    sentences: list[str] = []
    for one in happened:
        who = "the raw score" if one["method"] == payload["methods"][0]["name"] else labels[one["method"]]
        again = " events" if not sentences else ""
        if "classes" in payload:
            sentences.append(
                f"Of {scale:,}{again} whose top class {who} gives about {_about(one['forecast'])}, it is right in "
                f"{round(scale * one['outcome']):,}."
            )
            continue
        sentences.append(
            f"Of {scale:,}{again} that {who} puts at about {_about(one['forecast'])}, "
            f"{round(scale * one['outcome']):,} happened."
        )
    return " ".join(sentences)


def _about(share: float) -> str:
    """
    >>> _about(0.3499), _about(0.0123), _about(0.00021)
    ('35 %', '1.2 %', '0.021 %')
    """
    if 0.1 <= share <= 0.99:
        return f"{100 * share:.0f} %"
    return f"{100 * share:.1f} %" if share > 0.001 else percent(share).replace("\u00a0", " ")


def _happened(payload: Payload, one: Happened, scale: int) -> Element:
    """A bar as long as what happened, and a stroke where the forecast was."""
    labels, pair = labels_of(payload), payload["answer"]["happened"]
    most = max(max(each["forecast"], each["outcome"]) for each in pair) * 1.08 or 1.0
    said, came = (f"{BAR_WIDTH * value / most:.1f}" for value in (one["forecast"], one["outcome"]))
    picture = tag(
        "svg",
        tag("rect", x="0", y="2", width=came, height=f"{BAR_HEIGHT - 4}", class_="came"),
        tag("line", x1=said, x2=said, y1="0", y2=f"{BAR_HEIGHT}", class_="said"),
        viewBox=f"0 0 {BAR_WIDTH} {BAR_HEIGHT}",
        preserveAspectRatio="none",
        aria_hidden="true",
    )
    came_true = "right" if "classes" in payload else "happened"
    text = (
        f"{round(scale * one['outcome']):,} of {scale:,} {came_true}, {round(scale * one['forecast']):,} were forecast"
    )
    kind = "raw" if one["method"] == payload["methods"][0]["name"] else "ours"
    return tag("div", tag("b", name(labels[one["method"]])), picture, tag("span", text), class_=kind)


def _heading_of(answer: AnswerInfo, *, settled: bool) -> str:
    if not answer["library"]:
        return "Settle that first"
    return "Do this" if settled else "When that is settled, do this"


def _do_this(answer: AnswerInfo, *, settled: bool) -> Element:
    parts = (("In Python", answer["library"]), ("As a service", answer["service"]))
    codes = [_code(title, lines) for title, lines in parts if lines]
    return tag(
        "div",
        tag("h2", _heading_of(answer, settled=settled)),
        tag("p", typeset(answer["note"])) if answer["note"] else None,
        tag("div", *codes, class_="codes") if codes else None,
        id="deploy",
    )


def _code(title: str, lines: list[str]) -> Element:
    return tag("div", tag("h3", title), tag("pre", tag("code", "\n".join(lines))), class_="command")


def _figures(payload: Payload) -> Element:
    found, data = payload["verdict"], payload["data"]
    table = {row["method"]: row for row in payload["table"]}
    chosen, raw = table[found["method"]], table[payload["methods"][0]["name"]]
    label = next(m["label"] for m in payload["methods"] if m["name"] == found["method"])
    digits = decimals([raw["log_loss"], raw["ce"], chosen["ce"]])
    many = "classes" in payload
    error = "top-label CE" if many else "calibration error"
    figures = [
        (count(data["judged"]), "event judged" if data["judged"] == 1 else "events judged"),
        (percent(data["base_rate"]), "accuracy, raw" if many else "base rate"),
        (percent(data["mean_score"]), "mean confidence, raw" if many else "mean raw score"),
        (number(raw["ce"], digits), f"{error}, raw (luck alone {number(raw['ce_luck'], digits)})"),
    ]
    if chosen is not raw:
        luck = number(chosen["ce_luck"], digits)
        figures.append((number(chosen["ce"], digits), f"{error}, {label} (luck alone {luck})"))
    return tag("dl", *(tag("div", tag("dd", value), tag("dt", text)) for value, text in figures), class_="figures")


# ---- leaderboard -------------------------------------------------------------------------------------------------

Metric = Literal["log_loss", "brier", "ce"]
METRICS: tuple[tuple[Metric, str], ...] = (("log_loss", "Log-loss"), ("brier", "Brier"), ("ce", "CE"))
MOST_BEST = 3  # a best value that more methods share is not marked
INTERVAL_WIDTH, INTERVAL_HEIGHT, INTERVAL_EDGE = 150, 18, 8


class Measure(NamedTuple):
    field: Literal["log_loss", "brier", "ce", "shp", "refinement", "accuracy", "auc", "classwise_ce"]
    label: str
    explained: str
    best: Literal["low", "high"]


MEASURES = (
    Measure("log_loss", "Log-loss", "mean surprise at the outcomes in nats; lower is better", "low"),
    Measure("brier", "Brier", "mean squared error of the forecast; lower is better", "low"),
    Measure("ce", "CE", "calibration error: how far stated and observed frequencies are apart; lower is better", "low"),
    Measure("shp", "SHP", "sharpness: how well bins of forecasts tell ones from zeros; higher is better", "high"),
    Measure("refinement", "Refinement", "what is left unexplained inside the bins; lower is better", "low"),
    Measure("accuracy", "Accuracy", "share of events on the right side of one half; higher is better", "high"),
    Measure("auc", "AUC", "how often a positive event is ranked above a negative one; higher is better", "high"),
)
CLASS_MEASURES = (
    MEASURES[0],
    Measure("brier", "Brier", "mean squared error of the forecast, summed over the classes; lower is better", "low"),
    Measure("ce", "Top-label CE", "how far confidence in the top class is from how often it is right", "low"),
    Measure("classwise_ce", "Class-wise CE", "the mean over the classes of the calibration error of each", "low"),
    Measure("accuracy", "Accuracy", "share of events in which the top class is right; higher is better", "high"),
)
USUAL = ("log_loss", "ce", "classwise_ce", "brier", "auc")  # columns that are shown at first
AGAINST_RAW = "difference to the raw score on this log with its 95 % interval; negative is better"
CE_AGAINST_RAW = "difference to the raw score; less or more only where luck cannot explain it"
LUCK = "the calibration error that perfectly calibrated forecasts in these bins would show by luck"
AGAINST_OTHER = "the same difference to the best of the other methods"
REGRET = "nats lost in all to the best fixed parameters in hindsight; negative where nothing fixed was as good"
E_VALUE = "logarithm of how many times more probable the outcomes were under the method than under the raw score"
TIME = "how long the replay took"


def methods(payload: Payload) -> Element:
    """The section."""
    about = [(method["label"], method["about"]) for method in payload["methods"]]
    return section(
        "methods",
        "Which method",
        how_to_read("Each row is a method. All are scored on the same events. " + payload["intervals"]["legend"]),
        tag("div", class_="controls", id="leaderboard-metric"),
        scroller("Leaderboard", leaderboard(payload)),
        tag("p", "Every method made its forecast before it learnt the outcome. Warm-up events are not scored."),
        tag(
            "details",
            tag("summary", "How the intervals are made"),
            tag("p", typeset(f"{payload['intervals']['sentence']} {payload['bootstrap']['sentence']}"), class_="small"),
        ),
        _explained("What the methods are", about),
        _explained("What the columns mean", columns_of(payload)),
    )


def _explained(summary: str, terms: Sequence[tuple[str, str]]) -> Element:
    meanings = (tag("div", tag("dt", term), tag("dd", typeset(meaning))) for term, meaning in terms)
    return tag("details", tag("summary", summary), tag("dl", *meanings, class_="about"))


def columns_of(payload: Payload) -> tuple[tuple[str, str], ...]:
    """The columns and what they mean."""
    many = "classes" in payload
    return (
        *((measure.label, measure.explained) for measure in (CLASS_MEASURES if many else MEASURES)),
        ("CE, luck", LUCK),
        ("Against raw", AGAINST_RAW),
        ("CE against raw", CE_AGAINST_RAW),
        ("Against the best other", AGAINST_OTHER),
        *(() if many else (("Regret", REGRET),)),
        ("ln e-value", E_VALUE),
        ("Time", TIME),
    )


def leaderboard(payload: Payload) -> Element:
    """The table."""
    rows = sorted(payload["table"], key=lambda row: math.inf if row["log_loss"] is None else row["log_loss"])
    labels = labels_of(payload)
    about = {method["name"]: method for method in payload["methods"]}
    many = "classes" in payload
    measures = CLASS_MEASURES if many else MEASURES
    head = tag("tr", _heading("Method", "text", "the name; what it does is told below"), _named(MEASURES[0]))
    for metric, label in METRICS:
        explained = CE_AGAINST_RAW if metric == "ce" else AGAINST_RAW
        head.append(_heading(f"{label} against raw", "low", explained, metric))
        head.append(_rare(_heading("Against the best other", "low", AGAINST_OTHER, metric)))
    head.extend(_second(_named(m), m.field) for m in measures[1:])
    if not many:
        head.append(_rare(_heading("Regret", "low", REGRET)))
    head.append(_rare(_heading("ln e-value", "high", E_VALUE)))
    head.append(_rare(_heading("Time", "low", TIME)))
    columns = {m.field: [_value(payload, row, m) for row in rows] for m in measures}
    scales = {metric: _scale(rows, metric) for metric, _ in METRICS}
    body = tag("tbody")
    for at, row in enumerate(rows):
        info = about[row["method"]]
        chosen = row["method"] == payload["verdict"]["method"]
        line = tag("tr", class_="chosen" if chosen else None, data_method=row["method"])
        name = tag("span", info["label"], class_="method-name")
        badge = tag("span", "our choice", class_="badge") if chosen and is_settled(payload) else None
        line.append(tag("th", name, badge, scope="row", data_value=info["label"], title=info["about"]))
        measured = {m.field: _measure(m, columns[m.field][at], columns[m.field]) for m in measures}
        line.append(measured.pop("log_loss"))
        for metric, _ in METRICS:
            against_raw, against_other = _differences(row, metric, scales[metric], labels)
            line.extend([against_raw, _rare(against_other)])
        line.extend(_second(cell, field) for field, cell in measured.items())
        luck = f"luck {number(row['ce_luck'], decimals(columns['ce']))}"
        measured["ce"].append(tag("span", luck, class_="luck", title=LUCK))
        if not many:
            line.append(_rare(_cell(row["regret"], number(row["regret"], 1))))
        line.append(_rare(_cell(row["log_e_value"], number(row["log_e_value"], 1))))
        line.append(_rare(_cell(info["seconds"], duration(info["seconds"]))))
        body.append(line)
    return tag("table", tag("thead", head), body, id="leaderboard", class_="sortable")


def _value(payload: Payload, row: LeaderboardRow, measure: Measure) -> Number:
    if measure.field == "classwise_ce":
        return payload["classes"]["methods"][row["method"]]["classwise_ce"]
    return row[measure.field]


def _second(cell: Element, field: str) -> Element:
    """A cell of a column that has no place on a phone, or none at first."""
    return _rare(cell, "second" if field in USUAL else "rare")


def _rare(cell: Element, kind: str = "rare") -> Element:
    """A cell of a column that is shown on request."""
    cell.set("class", f"{cell.get('class', '')} {kind}".strip())
    return cell


def _heading(label: str, first: str, explained: str, metric: Metric | None = None) -> Element:
    return tag("th", label, scope="col", data_sort=first, title=explained, data_metric=metric)


def _named(measure: Measure) -> Element:
    return _heading(measure.label, measure.best, measure.explained)


def _cell(value: Number, text: str, class_: str = "") -> Element:
    return tag("td", text, class_=f"number {class_}".strip(), data_value=None if value is None else repr(float(value)))


def _measure(measure: Measure, value: Number, column: Sequence[Number]) -> Element:
    known = [v for v in column if v is not None]
    top = (min if measure.best == "low" else max)(known, default=None)
    best = value is not None and value == top and known.count(top) <= min(MOST_BEST, len(known) - 1)
    text = number(value, decimals(column))
    cell = _cell(value, "" if best else text, "best" if best else "")
    if best:
        cell.extend([tag("strong", text), tag("span", " best", class_="sr-only")])
    return cell


def _interval(row: LeaderboardRow, metric: Metric) -> Triple | None:
    return None if row["vs_raw"] is None else _whole(row["vs_raw"][metric])


def _other(row: LeaderboardRow, metric: Metric) -> Triple | None:
    return None if row["vs_best_other"] is None else _whole(row["vs_best_other"][metric])


def _whole(triple: Triple) -> Triple | None:
    """Nothing, where the difference or an end of its interval is unknown."""
    return None if None in triple else triple


def _differences(row: LeaderboardRow, metric: Metric, scale: Scale, labels: dict[str, str]) -> list[Element]:
    if metric == "ce":
        return _error_differences(row, scale.digits, labels)
    against_raw, against_other = _interval(row, metric), _other(row, metric)
    cells = []
    for triple, picture, other in (
        (against_raw, None if against_raw is None else bar(against_raw, scale), None),
        (against_other, None, None if row["vs_best_other"] is None else row["vs_best_other"]["method"]),
    ):
        text = NOTHING if triple is None else _triple(triple, scale.digits, other and labels.get(other, other))
        cells.append(tag("td", picture, text, class_="interval", data_metric=metric))
        if triple is not None:
            cells[-1].set("data-value", repr(triple[0]))
    return cells


def _error_differences(row: LeaderboardRow, digits: int, labels: dict[str, str]) -> list[Element]:
    """Calibration errors have no honest interval: the difference, and whether luck may explain it."""
    cells = []
    for against in (row["vs_raw"], row["vs_best_other"]):
        difference, low, high = (None, None, None) if against is None else against["ce"]
        cell = tag("td", class_="interval", data_metric="ce")
        cells.append(cell)
        if difference is None:
            cell.text = NOTHING
            continue
        cell.set("data-value", repr(difference))
        shown = tag("span", tag("span", number(difference, digits, sign=True), class_="difference"), class_="triple")
        if low is not None and high is not None:
            luck = "less, beyond luck" if high < 0 else "more, beyond luck" if low > 0 else "may be luck"
            shown.append(tag("span", luck, class_="ends"))
        if against is row["vs_best_other"] and row["vs_best_other"] is not None:
            other = row["vs_best_other"]["method"]
            shown.append(tag("span", f" to {labels.get(other, other)}", class_="to"))
        cell.append(shown)
    return cells


def _triple(triple: Triple, digits: int, other: str | None = None) -> Element:
    value, low, high = (number(part, digits, sign=True) for part in triple)
    to = tag("span", f" to {other}", class_="to") if other else None
    ends = tag("span", f"{low} to {high}", class_="ends")
    return tag("span", tag("span", value, class_="difference"), to, " ", ends, class_="triple")


class Scale(NamedTuple):
    """From where to where the bars of a column reach, zero among it, and the digits of its numbers."""

    low: float
    high: float
    digits: int

    def at(self, value: float) -> float:
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return INTERVAL_EDGE + (INTERVAL_WIDTH - 2 * INTERVAL_EDGE) * share


def _scale(rows: Sequence[LeaderboardRow], metric: Metric) -> Scale:
    """One hopeless method must not make all others a dot: what is worse by three times the median ends in an arrow."""
    shown = [triple for row in rows if (triple := _interval(row, metric))]
    every = shown + [triple for row in rows if (triple := _other(row, metric))]
    ends = [end for triple in shown for end in triple if end is not None]
    limit = 3 * median(max(abs(end or 0.0) for end in triple) for triple in shown) if shown else 0.0
    low, high = min(0.0, *ends, 0.0), min(limit, max(0.0, *ends, 0.0))
    margin = 0.1 * (high - low) or 1.0
    return Scale(min(low, -margin), max(high, margin), decimals(end for triple in every for end in triple))


def bar(triple: Triple, scale: Scale) -> Element:
    """The interval as a line with a dot at the difference; a stroke where there is no difference."""
    value, low, high = (part or 0.0 for part in triple)
    side = "better" if high < 0 else "worse" if low > 0 else "open"
    y, zero = INTERVAL_HEIGHT / 2, f"{scale.at(0.0):.1f}"
    picture = tag(
        "svg",
        tag("line", x1=zero, x2=zero, y1="1", y2=f"{INTERVAL_HEIGHT - 1}", class_="zero"),
        tag("line", x1=f"{scale.at(low):.1f}", x2=f"{scale.at(high):.1f}", y1=f"{y}", y2=f"{y}", class_="range"),
        viewBox=f"0 0 {INTERVAL_WIDTH} {INTERVAL_HEIGHT}",
        width=f"{INTERVAL_WIDTH}",
        height=f"{INTERVAL_HEIGHT}",
        class_=f"bar {side}",
        aria_hidden="true",
    )
    if scale.low <= value <= scale.high:
        picture.append(tag("circle", cx=f"{scale.at(value):.1f}", cy=f"{y}", r="4.5", class_="dot"))
    for beyond, tip, direction in ((low < scale.low, 0, 1), (high > scale.high, INTERVAL_WIDTH, -1)):
        if beyond:
            back = tip + 7 * direction
            picture.append(tag("polygon", points=f"{tip},{y} {back},{y - 4} {back},{y + 4}", class_="beyond"))
    return picture
