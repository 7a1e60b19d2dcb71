"""What sections are made of: headings, sentences on how to read a picture, places for pictures, tables that scroll."""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element

from .elements import Child, tag


def typeset(sentence: str) -> str:
    r"""A number stays on one line with its %, and a minus is no hyphen.

    >>> typeset("a difference of -0.02 (5 % of the log-loss, p = 1e-9)")
    'a difference of −0.02 (5\xa0% of the log-loss, p = 1e-9)'
    """
    return re.sub(r"(?<![\w-])-(?=\d)", "−", re.sub(r"(?<=\d) %", "\u00a0%", sentence))


def section(name: str, title: str, *children: Child, link: str | None = None) -> Element:
    """A part of the page; `link` is what the list of parts calls it, if the title is long."""
    return tag("section", tag("h2", title), *children, id=name, aria_label=link or title)


def how_to_read(sentence: str) -> Element:
    return tag("p", tag("b", "How to read it. "), typeset(sentence), class_="read")


def figure(name: str, sentence: str) -> Element:
    return tag("figure", tag("figcaption", how_to_read(sentence)), needs_script(), id=name, class_="chart")


def needs_script() -> Element:
    return tag("noscript", tag("p", "This part is drawn by JavaScript, which is off.", class_="small"))


def scroller(name: str, table: Element) -> Element:
    """A table that scrolls sideways where it must, by keyboard too; its frame fades the edge that hides columns."""
    inner = tag("div", table, class_="scroller", role="region", aria_label=f"{name}, a table", tabindex="0")
    return tag("div", inner, class_="sideways")
