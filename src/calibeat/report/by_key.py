"""The section by key: where the raw score loses most, and on which keys the forecasts are off."""

from __future__ import annotations

from xml.etree.ElementTree import Element

from calibeat._util.words import count, counted, number, percent

from .elements import how_to_read, labels_of, name, needs_script, plain_table, scroller, section, tag
from .schema import Keys, KeysThatDiffer, Payload


def by_key(payload: Payload, table: Keys) -> Element:
    """The section."""
    differ = table["differ"]
    return section(
        "keys",
        "By key",
        how_to_read(
            "Worst keys first. A negative difference means that the method did better than the raw score on that key."
        ),
        tag("p", table["sentence"], class_="small"),
        tag("div", class_="controls", id="keys-controls"),
        scroller("Keys", tag("table", id="keys-table", class_="sortable")),
        tag("div", class_="controls pager", id="keys-pager"),
        needs_script(),
        *([] if differ is None else _differ(payload, differ)),
    )


def _differ(payload: Payload, differ: KeysThatDiffer) -> list[Element]:
    many = "classes" in payload
    raw = differ["method"] == payload["methods"][0]["name"]
    who = "the raw score" if raw else labels_of(payload)[differ["method"]]
    rows = []
    for row in differ["rows"]:
        gap, low, high = (None if end is None else 100 * end for end in row["gap"])
        cells = [
            count(row["events"]),
            percent(row["forecast"]),
            percent(row["outcome"]),
            number(gap, 1, sign=True),
            f"{number(low, 1, sign=True)} to {number(high, 1, sign=True)}",
        ]
        line = tag("tr", tag("th", name(row["key"]), scope="row", class_="key"))
        line.extend(tag("td", cell, class_="number") for cell in cells)
        rows.append(line)
    said, came = ("Confidence", "Right") if many else ("Forecast", "Happened")
    headings = ("Key", "Events", said, came, "Gap, in points", "95 %, for all keys at once")
    off = f"the confidence of {who} in its top class is farthest from how often that was right"
    off = off if many else f"the mean forecast of {who} is farthest from what happened"
    beyond = f"{counted(differ['beyond'], 'is', 'are')} off" if differ["beyond"] else "none is off"
    return [
        tag("h3", "Keys that differ most"),
        how_to_read(
            f"The keys on which {off}. Of {count(differ['tested'])} keys with enough events {beyond} beyond luck, by "
            "an interval that is without 0."
        ),
        plain_table("Keys that differ most", headings, rows, id_="keys-differ"),
    ]
