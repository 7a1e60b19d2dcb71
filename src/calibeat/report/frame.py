"""What sections are made of: headings, sentences on how to read a picture, places for pictures, tables that scroll."""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element

from .elements import Child, tag


def unbroken(sentence: str) -> str:
    """A number stays on one line with its %."""
    return re.sub(r"(?<=\d) %", "\u00a0%", sentence)


def section(name: str, title: str, *children: Child) -> Element:
    return tag("section", tag("h2", title), *children, id=name, aria_label=title)


def how_to_read(sentence: str) -> Element:
    return tag("p", tag("b", "How to read it. "), unbroken(sentence), class_="read")


def figure(name: str, sentence: str) -> Element:
    return tag("figure", tag("figcaption", how_to_read(sentence)), needs_script(), id=name, class_="chart")


def needs_script() -> Element:
    return tag("noscript", tag("p", "This part is drawn by JavaScript, which is off.", class_="small"))


def scroller(name: str, table: Element) -> Element:
    return tag("div", table, class_="scroller", role="region", aria_label=name, tabindex="0")
