"""The house style of docstrings as numpydoc reads it.

``name : what it means`` becomes a parameter with a description; a stroke or a star in a formula is what it is. What
stands behind a section is put behind all sections: text under "Notes", examples under "Examples".
"""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

PARAMETER = re.compile(r"^(\*{0,2}\w+(?:, \*{0,2}\w+)*) : (.+)$")
SECTIONS = ("Parameters", "Attributes", "Returns", "Raises")
ADDED = re.compile(r"set_\w+_request|get_metadata_routing")
LITERAL = re.compile(r"(``.*?``|`[^`]*`|(?<!\w)\*\*\w[^*]*\*\*(?!\w))")  # code, names, bold words
PAGE = re.compile(r"`?\bdocs/([\w/-]+)\.md\b`?")


def plain(line: str) -> str:
    """Strokes and stars outside of quoted code are letters; a page of the docs becomes a link with its title."""
    parts = LITERAL.split(PAGE.sub(r":doc:`/\1`", line))
    return "".join(
        part if place % 2 else re.sub(r"(?<!\\)([|*])|(?<=\w)(_)(?=\W|$)", r"\\\1\2", part)
        for place, part in enumerate(parts)
    )


def is_prose(line: str) -> bool:
    """Whether a line is neither empty, nor indented, nor a rule, nor a parameter."""
    return line != "" and not line.startswith(" ") and set(line) != {"-"} and " : " not in line


def in_numpydoc(_app: Sphinx, _what: str, _name: str, _obj: object, _options: Any, lines: list[str]) -> None:
    """Change the lines in place; examples stay as they are."""
    out, behind = list[str](), list[str]()
    section, example, outside = "", False, False
    for at, line in enumerate(lines):
        if line.lstrip().startswith(">>>"):
            example = True
        elif not line.strip():
            example = False
        rule = lines[at + 1].strip() if at + 1 < len(lines) else ""
        if rule and set(rule) == {"-"}:  # a heading
            section, outside = line if line in SECTIONS else "", False
        elif section and not lines[at - 1].strip() and is_prose(line):
            section, outside = "", True
        to = behind if outside else out
        found = PARAMETER.match(line) if section and not example else None
        if found:
            to += [found[1], "    " + plain(found[2])]
        else:
            to.append(line if example else plain(line))
    lines[:] = [*out, "", *_behind(behind, has_examples="Examples" in out)]


def _behind(lines: list[str], *, has_examples: bool) -> list[str]:
    """What stands behind the sections, under headings; an example begins with the paragraph that leads to it."""
    paragraphs = [part for part in "\n".join(lines).split("\n\n") if part.strip()]
    shown = [at for at, part in enumerate(paragraphs) if part.lstrip().startswith(">>>")]
    first = max(0, shown[0] - 1) if shown else len(paragraphs)
    if shown and shown[0] and not paragraphs[first].rstrip().endswith(":"):
        first = shown[0]
    parts = {"Notes": paragraphs[:first], "Examples": paragraphs[first:]}
    if has_examples:
        parts = {"Notes": paragraphs}
    headed = [[name, "-" * len(name), "", *"\n\n".join(part).split("\n"), ""] for name, part in parts.items() if part]
    return [line for part in headed for line in part]


def not_ours(_app: Sphinx, _what: str, name: str, _obj: object, _skip: bool, _options: Any) -> bool | None:
    """Leave out what scikit-learn adds to every estimator."""
    return True if ADDED.fullmatch(name) else None


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", in_numpydoc, priority=100)
    app.connect("autodoc-skip-member", not_ours)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
