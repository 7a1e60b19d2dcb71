"""HTML as a tree, and what sections are made of: headings, sentences, places for pictures, tables that scroll.

The serialiser escapes every piece of text, so a column name cannot become markup.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any
from xml.etree import ElementTree as ET

from calibeat._util.words import visible

from .schema import Payload

Child = ET.Element | str | None


def tag(name: str, *children: Child, **attributes: str | bool | None) -> ET.Element:
    """An element; `class_` means class, `data_value` means data-value, None and False leave an attribute out.

    >>> markup(tag("p", "1 < 2, ", tag("b", "<script>"), class_="note", hidden=True, title=None))
    '<p class="note" hidden="">1 &lt; 2, <b>&lt;script&gt;</b></p>'
    """
    element = ET.Element(name)
    for key, value in attributes.items():
        if value is not None and value is not False:
            element.set(key.rstrip("_").replace("_", "-"), "" if value is True else value)
    for child in children:
        if isinstance(child, str):
            _append_text(element, child)
        elif child is not None:
            element.append(child)
    return element


def markup(element: ET.Element) -> str:
    """The element as HTML."""
    return ET.tostring(element, encoding="unicode", method="html")


def _append_text(element: ET.Element, text: str) -> None:
    if len(element):
        element[-1].tail = (element[-1].tail or "") + text
    else:
        element.text = (element.text or "") + text


# ---- text from people and files ----------------------------------------------------------------------------------


def harmless(value: Any) -> Any:
    r"""A payload in which control characters and direction marks are written as escapes, in names and keys alike.

    >>> harmless({"title": "a\u202eb", "source": ["\x1b[31m.csv"], "rows": 3})
    {'title': 'a\\u202eb', 'source': ['\\x1b[31m.csv'], 'rows': 3}
    """
    if isinstance(value, str):
        return value if value.isprintable() else visible(value)
    if isinstance(value, dict):
        return {harmless(key): item if type(item) is float else harmless(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [item if type(item) is float else harmless(item) for item in value]  # thousands are numbers
    return value


def name(text: str) -> ET.Element:
    """A name in the page: whatever its script, the text around it keeps its direction."""
    return tag("bdi", text)


def labels_of(payload: Payload) -> dict[str, str]:
    """What the page calls each method."""
    return {method["name"]: method["label"] for method in payload["methods"]}


def typeset(sentence: str) -> str:
    r"""A number stays on one line with its %, and a minus is no hyphen.

    >>> typeset("a difference of -0.02 (5 % of the log-loss, p = 1e-9)")
    'a difference of −0.02 (5\xa0% of the log-loss, p = 1e-9)'
    """
    return re.sub(r"(?<![\w-])-(?=\d)", "−", re.sub(r"(?<=\d) %", "\u00a0%", sentence))


# ---- parts of a section ------------------------------------------------------------------------------------------


def section(name: str, title: str, *children: Child, link: str | None = None) -> ET.Element:
    """A part of the page; `link` is what the list of parts calls it, if the title is long."""
    return tag("section", tag("h2", title), *children, id=name, aria_label=link or title)


def how_to_read(sentence: str) -> ET.Element:
    """A sentence on how to read the picture or table that follows."""
    return tag("p", tag("b", "How to read it. "), typeset(sentence), class_="read")


def figure(name: str, sentence: str) -> ET.Element:
    """The place of a picture that static/*.js draws."""
    return tag("figure", tag("figcaption", how_to_read(sentence)), needs_script(), id=name, class_="chart")


def needs_script() -> ET.Element:
    """What stands in the place of a picture without JavaScript."""
    return tag("noscript", tag("p", "This part is drawn by JavaScript, which is off.", class_="small"))


def scroller(name: str, table: ET.Element) -> ET.Element:
    """A table that scrolls sideways where it must, by keyboard too; its frame fades the edge that hides columns."""
    inner = tag("div", table, class_="scroller", role="region", aria_label=f"{name}, a table", tabindex="0")
    return tag("div", inner, class_="sideways")


def plain_table(
    name: str, headings: Iterable[str], rows: Iterable[ET.Element], *, class_: str = "plain", id_: str | None = None
) -> ET.Element:
    """A table that does not sort, in a scroller."""
    head = tag("tr", *(tag("th", heading, scope="col") for heading in headings))
    return scroller(name, tag("table", tag("thead", head), tag("tbody", *rows), class_=class_, id=id_))


def table_row(head: Child, cells: Iterable[Child], *, class_: str | None = "number") -> ET.Element:
    """A row with its heading; `class_` is that of its cells."""
    return tag("tr", tag("th", head, scope="row"), *(tag("td", cell, class_=class_) for cell in cells))
