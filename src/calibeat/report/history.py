"""The section on what happened to the data: a few small pictures along the log, and a table by period."""

from __future__ import annotations

from xml.etree.ElementTree import Element

from calibeat._util.words import count, duration, number, percent

from .elements import tag
from .frame import figure, how_to_read, scroller, section
from .names import name
from .schema import DataOverTime, Payload


def history(payload: Payload) -> Element | None:
    """Nothing for a payload of schema 2."""
    told = payload.get("history")
    if told is None:
        return None
    return section(
        "history",
        "What happened to the data",
        tag("div", *_pictures(told), class_="pair"),
        _periods(told),
        link="The data over time",
    )


def _pictures(told: DataOverTime) -> list[Element]:
    unit = told["unit"]
    pictures = []
    if told["by"] == "time":
        pictures.append(figure("volume", f"Events per {unit}. A gap or a jump may be a fault of the pipeline."))
    if any(told["missing"]):
        pictures.append(
            figure("missing", f"Share of events without an outcome, per {unit}. At the end it may still be on its way.")
        )
    if told["ones_delay"] is not None:
        pictures.append(
            figure(
                "delays",
                f"Median delay of ones and of zeros, per {unit}. If they differ, recent outcomes are a skewed sample.",
            )
        )
    pictures.append(
        figure("scores", f"The raw score, per {unit}: its median, and from the 10th to the 90th percentile (band).")
    )
    return pictures


def _periods(told: DataOverTime) -> Element:
    late = told["ones_delay"] is not None
    shown = duration if told["delay_is_time"] else _events
    named = ["Period", "Events", "No outcome", *(["Delay of ones", "Delay of zeros"] if late else [])]
    named += ["Base rate", "Mean score", "PSI of the score"]
    body = tag("tbody")
    for period in told["periods"]:
        cells = [count(period["count"]), percent(period["missing"])]
        cells += [shown(period["ones_delay"]), shown(period["zeros_delay"])] if late else []
        cells += [percent(period["base_rate"]), percent(period["mean_score"]), number(period["psi"], 3)]
        line = tag("tr", tag("th", name(period["label"]), scope="row"))
        line.extend(tag("td", cell, class_="number") for cell in cells)
        body.append(line)
    head = tag("tr", *(tag("th", label, scope="col") for label in named))
    return tag(
        "div",
        how_to_read(
            "PSI (population stability index) tells how far the scores of a period are from those of the first, in ten "
            "groups; 0.1 is often called some change, 0.25 a large one. It is no alarm: scores may move and stay "
            "calibrated, or stay and lose their calibration. Delays are medians."
        ),
        scroller("Periods", tag("table", tag("thead", head), body, class_="plain", id="periods")),
    )


def _events(value: float | None) -> str:
    return number(value, 0)
