"""The section "Who is miscalibrated?": counts, which attributes matter, two maps, the segments one by one."""

from __future__ import annotations

import math
from itertools import pairwise
from xml.etree.ElementTree import Element

from calibeat._util.words import count, counted, number, percent

from .elements import Child, how_to_read, labels_of, name, needs_script, plain_table, scroller, section, tag, typeset
from .schema import HeatMap, HeatMapOf, OfferedInfo, Payload, SegmentsInfo

MOST_WORST = 10
MOST_CERTAIN = 1_000_000  # no odds are shown beyond these
STEPS = (2.0, 5.0, 10.0, 20.0)  # points at which a map changes its shade
LONG_NAME, FEW_COLUMNS = 3, 8  # letters: longer names of columns stand upright; and columns that may be wide
BAR_WIDTH, BAR_HEIGHT = 400, 12


def segments(payload: Payload, info: SegmentsInfo) -> Element:
    """The section."""
    return section(
        "segments",
        "Who is miscalibrated?",
        tag("p", typeset(info["sentence"]), class_="lead"),
        *(tag("p", typeset(note), class_="small") for note in info["notes"]),
        *_spread(info),
        *([] if info["map"] is None else _maps(payload, info, info["map"])),
        *(_worst(payload, info) if info["total"] else []),
        *(_all(info) if info["total"] else []),
        link="Segments",
    )


def offered(info: OfferedInfo) -> Element:
    """What stands in its place where no attributes were named."""
    return section("segments", "Who is miscalibrated?", tag("p", info["sentence"]), link="Segments")


# ---- which attributes matter -------------------------------------------------------------------------------------


def _spread(info: SegmentsInfo) -> list[Element]:
    most = max(row["spread"] for row in info["spread"])
    rows = []
    for row in info["spread"]:
        bar = tag(
            "svg",
            tag("rect", x="0", y="1", width=f"{BAR_WIDTH * row['spread'] / most:.1f}", height=f"{BAR_HEIGHT - 2}"),
            viewBox=f"0 0 {BAR_WIDTH} {BAR_HEIGHT}",
            preserveAspectRatio="none",
            aria_hidden="true",
        )
        text = f"{number(row['spread'], 2)} in logit, {_points(row['points'])} at 50 %"
        rows.append(tag("div", tag("b", name(row["column"])), bar, tag("span", typeset(text))))
    return [
        tag("h3", "Which attributes matter"),
        how_to_read(
            "How much the values of an attribute, or of two together, differ from what the score says of them: a value "
            "is typically off by so much. Near 0: it does not matter."
        ),
        tag("div", *rows, class_="spreads"),
    ]


def _points(points: float) -> str:
    digits = 0 if points >= 2.0 else 1
    shown = number(points, digits)
    return f"{shown} point" if shown == "1" else f"{shown} points"


# ---- the two maps ------------------------------------------------------------------------------------------------


def _maps(payload: Payload, info: SegmentsInfo, heat: HeatMap) -> list[Element]:
    labels = labels_of(payload)
    down, across = heat["attributes"]
    return [
        tag("h3", "Where: ", name(down), " and ", name(across)),
        how_to_read(
            "What happened less what was said, in points, for each pair of values. In colour: shown to be "
            f"miscalibrated. Grey: luck may explain it. A dash: fewer than {info['least']} events. Both maps have the "
            "same colours."
        ),
        _legend(),
        tag("div", *(_map(labels[method], heat, of) for method, of in heat["methods"].items()), class_="maps"),
    ]


def _map(label: str, heat: HeatMap, of: HeatMapOf) -> Element:
    upright = max((len(value) for value in heat["across"]), default=0) > LONG_NAME
    head = tag("tr", tag("th", name(heat["attributes"][0]), scope="col"), class_="upright" if upright else None)
    head.extend(tag("th", name(value), scope="col", title=value) for value in heat["across"])
    body = tag("tbody")
    for at, value in enumerate(heat["down"]):
        line = tag("tr", tag("th", name(value), scope="row", title=value))
        for other, (gap, flagged) in enumerate(zip(of["gap"][at], of["flagged"][at], strict=True)):
            where = f"{value}, {heat['across'][other]}"
            line.append(_cell(where, gap, bool(flagged), heat["events"][at][other]))
        body.append(line)
    wide = len(heat["across"]) <= FEW_COLUMNS and not upright
    table = tag("table", tag("thead", head), body, class_="heat wide" if wide else "heat")
    return tag("div", tag("h4", name(label)), scroller(f"{label}: {' and '.join(heat['attributes'])}", table))


def _cell(where: str, gap: float | None, flagged: bool, events: int | None) -> Element:
    if gap is None or events is None:
        return tag("td", "–", class_="few", title=f"{where}: too few events")
    points = 100 * gap
    shown = number(round(points), 0, sign=True) if abs(points) >= 0.5 else "0"
    side = "more" if points > 0 else "less"
    sure = "shown to be miscalibrated" if flagged else "luck may explain it"
    title = f"{where}: {counted(events, 'event')}, happened {abs(points):.1f} points {side} often than said; {sure}"
    return tag("td", shown, class_=shade(points) if flagged else "luck", title=title)


def shade(points: float) -> str:
    """The class of a coloured cell: m5 (much less happened than was said) to p5 (much more).

    >>> shade(-30.0), shade(1.0), shade(7.0)
    ('m5', 'p1', 'p3')
    """
    return ("p" if points > 0 else "m") + str(1 + sum(abs(points) >= step for step in STEPS))


def _legend() -> Element:
    edges = [0, *(int(step) for step in STEPS)]
    names = [f"{low} to {high}" for low, high in pairwise(edges)] + [f"{edges[-1]} or more"]
    less = [tag("span", text, class_=f"m{at}") for at, text in reversed(list(enumerate(names, 1)))]
    more = [tag("span", text, class_=f"p{at}") for at, text in enumerate(names, 1)]
    return tag(
        "div",
        tag("div", tag("b", "Less than said"), *less),
        tag("div", tag("b", "More than said"), *more),
        tag("div", tag("span", "luck may explain it", class_="luck")),
        class_="heat-legend",
    )


# ---- segments one by one -----------------------------------------------------------------------------------------


def evidence(log_e: float) -> str:
    """How improbable so much evidence is if the forecasts are right, as odds.

    >>> evidence(-0.3), evidence(math.log(12.3)), evidence(math.log(12345.0)), evidence(100.0)
    ('none', '1 in 12', '1 in 12,000', 'under 1 in 1,000,000')
    """
    if log_e < math.log(1.5):
        return "none"
    if log_e >= math.log(MOST_CERTAIN):
        return f"under 1 in {MOST_CERTAIN:,}"
    e = math.exp(log_e)
    size = 10.0 ** max(0, math.floor(math.log10(e)) - 1)
    return f"1 in {round(e / size) * size:,.0f}"


def _worst(payload: Payload, info: SegmentsInfo) -> list[Element]:
    labels, table = labels_of(payload), info["rows"]
    methods = list(table["methods"])
    lines = []
    for at in range(min(MOST_WORST, len(table["events"]))):
        line = tag("tr", tag("th", *_segment(table["attribute"][at], table["value"][at]), scope="row", class_="key"))
        line.append(tag("td", count(table["events"][at]), class_="number"))
        line.append(tag("td", percent(table["rate"][at]), class_="number"))
        for method in methods:
            own = table["methods"][method]
            off = own["flagged"][at]
            cell = tag("td", percent(own["said"][at]), class_="number off" if off else "number")
            cell.append(tag("span", evidence(own["log_e"][at]), class_="luck"))
            if off:
                cell.append(tag("span", ", miscalibrated", class_="sr-only"))
            line.append(cell)
        lines.append(line)
    said = [f"{'Raw score' if at == 0 else labels[method]} said" for at, method in enumerate(methods)]
    return [
        tag("h3", "The strongest evidence"),
        how_to_read(
            f"The segments in which {labels[methods[1]]} is most surely off, and what the raw score and groups say "
            "there. Below each forecast stands the evidence against it: were the forecasts of the segment right, "
            "so much would be seen with that probability at most, whenever one looks. In colour: shown to be "
            "miscalibrated, with all segments that were looked at allowed for."
        ),
        plain_table("Segments", ("Segment", "Events", "Happened", *said), lines, id_="segments-worst"),
    ]


def _segment(attribute: str, value: list[str]) -> list[Child]:
    """A segment in words: country fr, or country fr and device ios."""
    attributes = attribute.split(" x ") if len(value) == 2 else [attribute]
    if len(attributes) != len(value):  # an attribute whose name has an x of its own
        return [name(attribute), " ", name(", ".join(value))]
    parts: list[Child] = []
    for own, each in zip(attributes, value, strict=True):
        parts += [", ", name(own), " ", tag("b", name(each))] if parts else [name(own), " ", tag("b", name(each))]
    return parts


def _all(info: SegmentsInfo) -> list[Element]:
    return [
        tag("h3", f"All {counted(info['total'], 'segment')}" if info["total"] > 1 else "The segment"),
        tag("div", class_="controls", id="segments-controls"),
        scroller("All segments", tag("table", id="segments-table", class_="sortable")),
        tag("div", class_="controls pager", id="segments-pager"),
        needs_script(),
    ]
