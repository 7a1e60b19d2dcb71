"""The section on decisions: what forecasts change in actions and cost, and net benefit by threshold."""

from __future__ import annotations

from xml.etree.ElementTree import Element

from calibeat._util.words import count, number, percent, significant

from .elements import figure, how_to_read, labels_of, name, plain_table, section, table_row, tag, typeset
from .schema import Action, Decisions, Payload, Prices


def decisions(payload: Payload, found: Decisions) -> Element:
    """The section."""
    costs = found["costs"]
    return section(
        "decisions",
        "Decisions",
        *([] if costs is None else _costs(payload, found, costs)),
        figure(
            "benefit",
            "For every threshold from which one acts: how many of 1,000 events are rightly acted on, less the actions "
            "for nothing, which weigh t / (1 − t) at the threshold t. Higher is better. Acting on every event and "
            "never acting (zero) are there too: forecasts are of use where they are above both.",
        ),
        tag(
            "p",
            "To see actions and costs at one threshold, run it with --threshold or --cost-fp and --cost-fn.",
            class_="small",
        )
        if costs is None
        else None,
    )


def _costs(payload: Payload, found: Decisions, costs: Prices) -> list[Element | None]:
    unit = (
        "in your units"
        if costs["given"]
        else "in missed events: an action for nothing costs " + significant(costs["fp"])
    )
    return [
        tag("p", typeset(found["sentence"]), class_="lead"),
        how_to_read(
            f"Each method acts where its forecast is {percent(costs['threshold'])} or more. Costs are {unit}. What was "
            "saved is compared with acting by the raw score; its 95 % interval allows for the luck of the outcomes on "
            "this log. An interval that holds 0 settles nothing."
        ),
        _table(payload, found),
        figure(
            "saved",
            "What a method had saved against the raw score by each moment: above zero it was cheaper. The band is the "
            "95 % interval at that moment.",
        )
        if len(found["actions"]) > 1
        else None,
    ]


def _table(payload: Payload, found: Decisions) -> Element:
    labels = labels_of(payload)
    headings = (
        "Method",
        "Actions",
        "Right",
        "For nothing",
        "Missed",
        "More than raw",
        "Fewer than raw",
        "Cost per 1,000",
        "Saved per 1,000",
        "95 %",
    )
    raw, *others = found["actions"]
    rows = [_row(raw, labels[raw["method"]], is_raw=True)]
    for action in sorted(others, key=lambda action: action["cost"]):
        line = _row(action, labels[action["method"]])
        if action["method"] == payload["verdict"]["method"]:
            line.set("class", "chosen")
        rows.append(line)
    return plain_table("Decisions", headings, rows, class_="plain tight", id_="actions")


def _row(action: Action, label: str, *, is_raw: bool = False) -> Element:
    saved, low, high = action["saved_per_1000"]
    cells = [
        count(action["actions"]),
        count(action["hits"]),
        count(action["for_nothing"]),
        count(action["missed"]),
        "–" if is_raw else f"{count(action['new'])} ({count(action['new_hits'])} right)",
        "–" if is_raw else f"{count(action['dropped'])} ({count(action['dropped_hits'])} right)",
        significant(action["cost_per_1000"]),
        "–" if is_raw else number(saved, 2, sign=True),
        "–" if is_raw else f"{number(low, 2, sign=True)} to {number(high, 2, sign=True)}",
    ]
    return table_row(name(label), cells)
