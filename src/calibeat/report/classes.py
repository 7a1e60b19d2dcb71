"""The sections of the page that only many classes have: each class by itself, and where their priors went."""

from __future__ import annotations

from xml.etree.ElementTree import Element

from calibeat._util.words import count, decimals, number, percent

from .elements import figure, how_to_read, labels_of, name, scroller, section, tag
from .schema import Payload


def by_class(payload: Payload) -> Element:
    """The section class by class."""
    classes = payload["classes"]
    shown, total = len(classes["names"]), classes["total"]
    these = f"the {shown} most common of {count(total)} classes" if shown < total else f"all {count(total)} classes"
    return section(
        "classes",
        "Class by class",
        figure(
            "panels",
            "A panel is a class: of the events to which a method gave it 30 %, 30 % should be of that class. Dashed: "
            f"the raw scores. Shown are {these}, the most common first. All panels have the same scale. The small ones "
            "leave out bins of fewer than ten events.",
        ),
        how_to_read(
            "The mean score and the mean forecast of a class should equal the share of the labels that are of that "
            "class. Its calibration error says how far the points of its panel are from the diagonal."
        ),
        scroller("Classes", _table(payload)),
    )


def _table(payload: Payload) -> Element:
    classes, raw = payload["classes"], payload["methods"][0]["name"]
    chosen = _beside(payload)
    labels = labels_of(payload)
    judged = max(1, payload["data"]["judged"])
    digits = decimals(ce for method in classes["methods"].values() for ce in method["ce"])
    headings = [
        ("Class", "text", "the class"),
        ("Labels", "high", "judged events of this class"),
        ("Share", "high", "of the judged labels"),
        ("Mean raw score", "high", "over all labelled events"),
        ("CE, raw", "high", "calibration error of the raw scores for this class"),
    ]
    if chosen:
        headings += [
            (f"Mean {labels[chosen]}", "high", "mean forecast of the method"),
            (f"CE, {labels[chosen]}", "high", "calibration error of the method for this class"),
        ]
    head = tag("tr", *(tag("th", label, scope="col", data_sort=sort, title=title) for label, sort, title in headings))
    body = tag("tbody")
    for at, label in enumerate(classes["names"]):
        share = classes["count"][at] / judged
        cells: list[tuple[float | None, str]] = [
            (classes["count"][at], count(classes["count"][at])),
            (share, percent(share)),
            (classes["mean_score"][at], percent(classes["mean_score"][at])),
            (classes["methods"][raw]["ce"][at], number(classes["methods"][raw]["ce"][at], digits)),
        ]
        if chosen:
            mine = classes["methods"][chosen]
            cells += [(mine["mean"][at], percent(mine["mean"][at])), (mine["ce"][at], number(mine["ce"][at], digits))]
        row = tag("tr", tag("th", name(label), scope="row", class_="key", data_value=label, title=label))
        for value, text in cells:
            row.append(tag("td", text, class_="number", data_value=None if value is None else repr(float(value))))
        body.append(row)
    return tag("table", tag("thead", head), body, id="classes-table", class_="sortable")


def _beside(payload: Payload) -> str | None:
    """The method that stands beside the raw scores: the choice, or the last of the others."""
    others = [method["name"] for method in payload["methods"][1:]]
    chosen = payload["verdict"]["method"]
    return chosen if chosen in others else (others[-1] if others else None)


def priors(payload: Payload) -> Element | None:
    """The section on priors; nothing where there is one stretch only."""
    told = payload["classes"]["priors"]
    if len(told["x"]) < 2:
        return None
    times = (
        figure(
            "times",
            "How many times as common each class is as the scores assume, as MULTI estimated it at each moment: "
            "exp(bias), scaled so that the priors sum to one. At × 1 the scores have the prior right. A line that "
            "moves: the class became more or less common, and MULTI followed.",
        )
        if told["times"] is not None
        else None
    )
    return section(
        "priors",
        "Where the class priors went",
        times,
        figure(
            "shares",
            "The share of the labels that were of a class, beside the mean raw score and the mean forecast that it "
            "had. A forecast that follows the share has learnt the prior.",
        ),
        link="Class priors",
    )
