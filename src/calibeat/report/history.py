"""The section on what happened to the data: a few small pictures along the log, and a table by period."""

from __future__ import annotations

from xml.etree.ElementTree import Element

from calibeat._util.words import count, duration, number, percent

from .elements import figure, how_to_read, name, plain_table, section, table_row, tag
from .schema import DataOverTime


def history(found: DataOverTime, *, many: bool = False) -> Element:
    """The section; of many classes scores are the confidence in the top class, and ones are where it was right."""
    return section(
        "history",
        "What happened to the data",
        tag("div", *_pictures(found, many=many), class_="pair"),
        _periods(found, many=many),
        link="The data over time",
    )


def _pictures(found: DataOverTime, *, many: bool) -> list[Element]:
    unit = found["unit"]
    pictures = []
    if found["by"] == "time":
        pictures.append(figure("volume", f"Events per {unit}. A gap or a jump may be a fault of the pipeline."))
    if any(found["missing"]):
        pictures.append(
            figure("missing", f"Share of events without an outcome, per {unit}. At the end it may still be on its way.")
        )
    if found["ones_delay"] is not None:
        pictures.append(
            figure(
                "delays",
                f"Median delay of {_kinds(many)[0]} and of {_kinds(many)[1]}, per {unit}. If they differ, recent "
                "outcomes are a skewed sample.",
            )
        )
    score = "The confidence of the raw scores" if many else "The raw score"
    pictures.append(
        figure("scores", f"{score}, per {unit}: its median, and from the 10th to the 90th percentile (band).")
    )
    return pictures


def _kinds(many: bool) -> tuple[str, str]:
    """What ones and zeros are."""
    return ("labels that are the top class", "other labels") if many else ("ones", "zeros")


def _periods(found: DataOverTime, *, many: bool) -> Element:
    late = found["ones_delay"] is not None
    shown = duration if found["delay_is_time"] else _events
    delays = ["Delay, top class right", "Delay, wrong"] if many else ["Delay of ones", "Delay of zeros"]
    headings = ["Period", "Events", "No outcome", *(delays if late else [])]
    of_scores = ["Accuracy, raw", "Mean confidence, raw", "PSI of it"] if many else None
    headings += of_scores or ["Base rate", "Mean score", "PSI of the score"]
    rows = []
    for period in found["periods"]:
        cells = [count(period["count"]), percent(period["missing"])]
        cells += [shown(period["ones_delay"]), shown(period["zeros_delay"])] if late else []
        cells += [percent(period["base_rate"]), percent(period["mean_score"]), number(period["psi"], 3)]
        rows.append(table_row(name(period["label"]), cells))
    return tag(
        "div",
        how_to_read(
            "PSI (population stability index) tells how far the scores of a period are from those of the first, in ten "
            "groups; 0.1 is often called some change, 0.25 a large one. It is no alarm: scores may move and stay "
            "calibrated, or stay and lose their calibration. Delays are medians."
        ),
        plain_table("Periods", headings, rows, id_="periods"),
    )


def _events(value: float | None) -> str:
    return number(value, 0)
