"""The section on outcomes that came late: how late, and what the wait cost."""

from __future__ import annotations

from xml.etree.ElementTree import Element

from calibeat._util.words import count, counted, duration, number, percent

from .elements import figure, how_to_read, labels_of, plain_table, section, table_row, tag, typeset
from .schema import DelayHistogram, DelayInfo, LaterInfo, Payload

TINY = 0.001  # of all outcomes: what so few waited for would only stretch the picture


def delays(payload: Payload, delay: DelayInfo) -> Element:
    """The section."""
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


def _different_ages(delay: DelayInfo) -> Element | None:
    ages = delay["ages"]
    if ages is None or not ages["differ"]:
        return None
    tried = f"By an age of {ages['mature']} 95 % of each kind are known. {ages['advice']}"
    return tag("p", typeset(f"{ages['sentence']} {tried}".strip()), id="ages")


def _quantiles(delay: DelayInfo) -> Element:
    names, ages = list(delay["quantiles"]), delay["ages"]
    rows, later = [], delay["quantiles"]
    if delay["unit"] == "time":
        of = {"Delay": delay["quantiles"]}
        if ages is not None:
            of |= {"Delay of ones": ages["ones"], "Delay of zeros": ages["zeros"]}
        rows = [table_row(label, [duration(values.get(name)) for name in names]) for label, values in of.items()]
        later = delay["events_quantiles"]
    rows.append(table_row("Forecasts made meanwhile", [number(later.get(name), 0) for name in names]))
    missing = tag("p", " ".join(_missing(delay)), class_="small")
    return tag("div", plain_table("Delay", ["Outcomes known by then", *names], rows), missing)


def _missing(delay: DelayInfo) -> list[str]:
    """What is not among the quantiles: an outcome that takes long is likelier to be under way when the log ends."""
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


def folded(histogram: DelayHistogram) -> DelayHistogram:
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


def later(payload: Payload, info: LaterInfo) -> Element:
    """The section where a log does not say when outcomes were known."""
    label = labels_of(payload)[info["method"]]
    rows = [
        table_row(
            row["delay"],
            (number(row["log_loss"]), f"{percent(abs(row['gain']))} {'less' if row['gain'] >= 0 else 'more'}"),
        )
        for row in info["rows"]
    ]
    where = "" if info["whole"] else f" On the first {count(info['events'])} events of the log."
    return section(
        "later",
        "What if outcomes come later?",
        how_to_read(
            "This log does not say when outcomes were known, so each was learnt before the next score. In production "
            f"they may come later. The table replays {label} as if they had.{where}"
        ),
        plain_table("What if outcomes come later?", ("Outcomes come", f"Log-loss, {label}", "Against raw"), rows),
        tag("p", "If you know how late outcomes are, say it: --outcome-time, or --delay.", class_="small"),
        link="Later outcomes",
    )


def _immediate(payload: Payload, delay: DelayInfo) -> Element | None:
    at_once = delay["immediate"]
    if not at_once:
        return None
    late, labels = {row["method"]: row for row in payload["table"]}, labels_of(payload)
    headings = ("Method", "Log-loss, as it was", "if told at once", "CE, as it was", "if told at once")
    rows = []
    for method, row in at_once.items():
        values = (late[method]["log_loss"], row["log_loss"], late[method]["ce"], row["ce"])
        rows.append(table_row(labels.get(method, method), map(number, values)))
    return tag(
        "div",
        tag("h3", "What the wait cost"),
        how_to_read("The same methods told each outcome at once: the difference is the price of waiting."),
        plain_table("What the wait cost", headings, rows),
    )
