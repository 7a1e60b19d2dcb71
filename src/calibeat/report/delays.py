"""The section on outcomes that came late: how late, and what the wait cost."""

from __future__ import annotations

from xml.etree.ElementTree import Element

from calibeat._util.words import counted, duration, number

from .elements import tag
from .frame import figure, how_to_read, scroller, section, typeset
from .schema import Delay, Histogram, Payload

TINY = 0.001  # of all outcomes: what so few waited for would only stretch the picture


def late_outcomes(payload: Payload) -> Element | None:
    delay = payload["delay"]
    if delay is None:
        return None
    return section(
        "delay",
        "Late outcomes",
        tag("p", typeset(delay["sentence"])),
        _different_ages(delay),
        _quantiles(delay),
        figure(
            "histogram",
            "How long outcomes took to arrive: each bar counts the outcomes with that delay. Where few came sooner or "
            "later than the rest, the first and the last bar take them in.",
        ),
        _immediate(payload, delay),
    )


def _different_ages(delay: Delay) -> Element | None:
    ages = delay["ages"]
    if ages is None or not ages["differ"]:
        return None
    advice = (
        f"Learn both at the same age, such as {ages['mature']} (--mature), by which 95 % of each kind are known. In "
        "production, hold each outcome back until it has that age, and act on the raw score until the first has."
    )
    return tag("p", f"{typeset(ages['sentence'])} {advice}", id="ages")


def _quantiles(delay: Delay) -> Element:
    shown = duration if delay["unit"] == "time" else _events
    head = tag(
        "tr",
        tag("th", "Outcomes known by then", scope="col"),
        *(tag("th", name, scope="col") for name in delay["quantiles"]),
    )
    body = tag("tbody")
    if delay["unit"] == "time":
        cells = (tag("td", shown(value), class_="number") for value in delay["quantiles"].values())
        body.append(tag("tr", tag("th", "Delay", scope="row"), *cells))
        body.extend(_by_outcome(delay))
    later = {name: delay["events_quantiles"].get(name) for name in delay["quantiles"]}
    if delay["unit"] == "events":
        later = delay["quantiles"]
    cells = (tag("td", _events(value), class_="number") for value in later.values())
    body.append(tag("tr", tag("th", "Forecasts made meanwhile", scope="row"), *cells))
    missing = tag("p", " ".join(_missing(delay)), class_="small")
    return tag("div", scroller("Delay", tag("table", tag("thead", head), body, class_="plain")), missing)


def _by_outcome(delay: Delay) -> list[Element]:
    ages = delay["ages"]
    if ages is None:
        return []
    rows = (("Delay of ones", ages["ones"]), ("Delay of zeros", ages["zeros"]))
    return [
        tag(
            "tr",
            tag("th", label, scope="row"),
            *(tag("td", duration(values.get(name)), class_="number") for name in delay["quantiles"]),
        )
        for label, values in rows
    ]


def _missing(delay: Delay) -> list[str]:
    """Who is not among the quantiles: an outcome that takes long is likelier to be under way when the log ends."""
    sentences = []
    if delay["too_late"]:
        left_out = (
            "counted in the delays, but not in the forecasts made meanwhile, which would be more"
            if delay["unit"] == "time"
            else "left out of the table and the picture, which would show longer delays"
        )
        under_way = counted(delay["too_late"], "outcome was", "outcomes were")
        sentences.append(
            f"{under_way} still under way at the last forecast: {left_out} with {_them(delay['too_late'])}."
        )
    if delay["never"]:
        sentences.append(f"{counted(delay['never'], 'event has', 'events have')} no outcome at all, and no delay.")
    return sentences or ["Every outcome had arrived by the last forecast."]


def _them(value: int) -> str:
    return "it" if value == 1 else "them"


def folded(histogram: Histogram) -> Histogram:
    """The same outcomes without a tail of tiny bars at either end: one bar takes them all.

    >>> folded({"edges": [3.0, 7.0, 15.0, 31.0], "count": [1, 5000, 7000]})
    {'edges': [0.0, 15.0, 31.0], 'count': [5001, 7000]}
    """
    edges, counts = histogram["edges"], histogram["count"]
    few = TINY * sum(counts)
    first = next((i for i in range(len(counts)) if sum(counts[: i + 1]) >= few), 0)
    last = next((i for i in reversed(range(len(counts))) if sum(counts[i:]) >= few), len(counts) - 1)
    if first == 0 and last == len(counts) - 1:
        return histogram
    low = 0.0 if first else edges[0]
    if first == last:
        return {"edges": [low, edges[-1]], "count": [sum(counts)]}
    return {
        "edges": [low, *edges[first + 1 : last + 1], edges[-1]],
        "count": [sum(counts[: first + 1]), *counts[first + 1 : last], sum(counts[last:])],
    }


def _immediate(payload: Payload, delay: Delay) -> Element | None:
    at_once = delay["immediate"]
    if not at_once:
        return None
    late = {row["method"]: row for row in payload["table"]}
    labels = {method["name"]: method["label"] for method in payload["methods"]}
    named = ("Method", "Log-loss, as it was", "if told at once", "CE, as it was", "if told at once")
    body = tag("tbody")
    for name, row in at_once.items():
        values = (late[name]["log_loss"], row["log_loss"], late[name]["ce"], row["ce"])
        cells = (tag("td", number(value), class_="number") for value in values)
        body.append(tag("tr", tag("th", labels.get(name, name), scope="row"), *cells))
    head = tag("tr", *(tag("th", name, scope="col") for name in named))
    return tag(
        "div",
        tag("h3", "What the wait cost"),
        how_to_read("The same methods told each outcome at once: the difference is the price of waiting."),
        scroller("What the wait cost", tag("table", tag("thead", head), body, class_="plain")),
    )


def _events(value: float | None) -> str:
    return number(value, 0)
