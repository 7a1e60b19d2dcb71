"""A result in a notebook: verdict, leaderboard and one picture, small, without a script."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import cast
from xml.etree.ElementTree import Element

from calibeat._util.words import NOTHING, counted, decimals, number, percent

from .elements import harmless, labels_of, markup, name, tag, typeset
from .schema import BinnedCurve, LeaderboardRow, Payload
from .verdict import CONFIDENCE, example

MOST_ROWS = 6
WHOLE = "the whole report: .to_html(path)"
NUMBER, NAME = "text-align: right; padding: 2px 8px", "text-align: left; padding: 2px 8px 2px 0; font-weight: normal"
SIZE, EDGE = 220, 30  # of the picture, and of its margin
RAW_COLOUR, OUR_COLOUR = "#888888", "#0072b2"  # both stand out from white and from black


def snippet(payload: Mapping[str, object]) -> str:
    """The result as HTML of some kilobytes. Names are text, never markup."""
    safe = cast(Payload, harmless(payload))
    verdict, shown = safe["verdict"], example(safe)
    assumed = [safe["later"]["sentence"]] if "later" in safe else []
    chosen = [safe["methods"][0]["name"], verdict["method"]]
    return markup(
        tag(
            "div",
            tag("p", tag("b", typeset(verdict["headline"])), f" · {CONFIDENCE[verdict['confidence']]}"),
            *(tag("p", typeset(caveat)) for caveat in [*verdict["caveats"], *assumed]),
            tag("p", typeset(shown)) if shown else None,
            tag(
                "div",
                _picture(safe, list(dict.fromkeys(chosen))),
                _table(safe),
                style="display: flex; flex-wrap: wrap; gap: 8px 28px; align-items: flex-start",
            ),
            class_="calibeat-result",
            style="max-width: 900px",
        )
    )


def _table(payload: Payload) -> Element:
    """The best, the chosen method and the raw score; the rest is in `table` and in the page."""
    ranked = sorted(payload["table"], key=lambda row: math.inf if row["log_loss"] is None else row["log_loss"])
    kept = [payload["methods"][0]["name"], payload["verdict"]["method"]]
    best = [row for row in ranked if row["method"] not in kept][: MOST_ROWS - len(set(kept))]
    rows = [row for row in ranked if row in best or row["method"] in kept]
    labels = labels_of(payload)
    digits = decimals(row["log_loss"] for row in rows)
    body = tag("tbody")
    for row in rows:
        label: Element = name(labels[row["method"]])
        cells = (number(row["log_loss"], digits), _against_raw(row, digits), number(row["ce"]), number(row["ce_luck"]))
        head = tag("th", tag("b", label) if row["method"] == kept[1] else label, style=NAME)
        body.append(tag("tr", head, *(tag("td", cell, style=NUMBER) for cell in cells)))
    named = ("", "log-loss", "against raw (95 %)", "CE", "luck alone")
    left = len(payload["table"]) - len(rows)
    return tag(
        "div",
        tag("table", tag("thead", tag("tr", *(tag("th", label, style=NUMBER) for label in named))), body),
        tag("p", f"{left} more in .table; {WHOLE}" if left else WHOLE.capitalize()),
    )


def _against_raw(row: LeaderboardRow, digits: int) -> str:
    if row["vs_raw"] is None:
        return NOTHING
    value, low, high = (number(end, digits, sign=True) for end in row["vs_raw"]["log_loss"])
    return f"{value} [{low}, {high}]"


def _picture(payload: Payload, names: list[str]) -> Element:
    """The reliability diagram of the raw score and of the choice."""
    labels = labels_of(payload)
    inner = SIZE - EDGE - 8

    def at(x: float, y: float) -> tuple[str, str]:
        return f"{EDGE + inner * x:.1f}", f"{8 + inner * (1.0 - y):.1f}"

    picture = tag(
        "svg",
        tag("title", "Reliability: what happened against what was forecast"),
        viewBox=f"0 0 {SIZE} {SIZE}",
        width=f"{SIZE}",
        height=f"{SIZE}",
        role="img",
        style="font: 11px sans-serif",
    )
    corners = " ".join(",".join(at(x, y)) for x, y in ((0, 0), (1, 0), (1, 1), (0, 1), (0, 0), (1, 1)))
    picture.append(tag("polyline", points=corners, fill="none", stroke="currentColor", opacity="0.35"))
    for value in (0.0, 0.5, 1.0):
        (x, _), (_, y) = at(value, 0.0), at(0.0, value)
        picture.append(tag("text", f"{value:g}", x=x, y=f"{SIZE - 10}", text_anchor="middle", fill="currentColor"))
        picture.append(tag("text", f"{value:g}", x=f"{EDGE - 5}", y=y, text_anchor="end", fill="currentColor"))
    came = "right" if "classes" in payload else "happened"
    for place, (method, colour) in enumerate(zip(names, (RAW_COLOUR, OUR_COLOUR), strict=False)):
        points = _points(payload["reliability"]["methods"][method][0])
        path = " ".join(",".join(at(p, q)) for p, q, _ in points)
        picture.append(tag("polyline", points=path, fill="none", stroke=colour, stroke_width="1.6", opacity="0.5"))
        most = max((n for *_, n in points), default=1)
        for p, q, n in points:  # a dot is as large as its bin has events: few of them say little
            (cx, cy), radius = at(p, q), f"{1.2 + 3.3 * math.sqrt(n / most):.1f}"
            said = tag("title", f"{counted(n, 'event')} at about {percent(p)}, {percent(q)} {came}")
            picture.append(tag("circle", said, cx=cx, cy=cy, r=radius, fill=colour))
        height = f"{22 + 15 * place}"
        picture.append(tag("text", labels[method], x=f"{EDGE + 8}", y=height, fill=colour, font_weight="600"))
    return picture


def _points(curve: BinnedCurve) -> list[tuple[float, float, int]]:
    bins = zip(curve["forecast"], curve["outcome"], curve["count"], strict=True)
    return [(x, y, n) for x, y, n in bins if x is not None and y is not None]
