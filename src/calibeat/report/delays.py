"""The section on outcomes that came late: how late, and what the wait cost."""

from __future__ import annotations

from xml.etree.ElementTree import Element

from .elements import tag
from .frame import figure, how_to_read, scroller, section, typeset
from .numbers import count, duration, number
from .payload import Delay, Payload


def late_outcomes(payload: Payload) -> Element | None:
    delay = payload["delay"]
    if delay is None:
        return None
    return section(
        "delay",
        "Late outcomes",
        tag("p", typeset(delay["sentence"])),
        _quantiles(delay),
        figure("histogram", "How long outcomes took to arrive: each bar counts the outcomes with that delay."),
        _immediate(payload, delay),
    )


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
    later = {name: delay["events_quantiles"].get(name) for name in delay["quantiles"]}
    if delay["unit"] == "events":
        later = delay["quantiles"]
    cells = (tag("td", _events(value), class_="number") for value in later.values())
    body.append(tag("tr", tag("th", "Forecasts made meanwhile", scope="row"), *cells))
    never = tag("p", f"Outcomes that never arrived: {count(delay['never'])}.", class_="small")
    return tag("div", scroller("Delay", tag("table", tag("thead", head), body, class_="plain")), never)


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
