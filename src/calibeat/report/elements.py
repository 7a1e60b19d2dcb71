"""HTML as a tree: every piece of text is escaped by the serialiser, so that a column name cannot become markup."""

from __future__ import annotations

from xml.etree import ElementTree as ET

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
