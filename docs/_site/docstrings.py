"""The house style of docstrings as numpydoc reads it.

``name : what it means`` becomes a parameter with a description; a stroke or a star in a formula is what it is. What
stands behind a section, such as an example, becomes a section of its own.
"""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

PARAMETER = re.compile(r"^(\*{0,2}\w+(?:, \*{0,2}\w+)*) : (.+)$")
SECTIONS = ("Parameters", "Attributes", "Returns", "Raises")
ADDED = re.compile(r"set_\w+_request|get_metadata_routing")
LITERAL = re.compile(r"(``.*?``|`[^`]*`)")
PAGE = re.compile(r"\bdocs/([\w/-]+)\.md\b")


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
    out: list[str] = []
    section, example = "", False
    for at, line in enumerate(lines):
        if line.lstrip().startswith(">>>"):
            example = True
        elif not line.strip():
            example = False
        rule = lines[at + 1].strip() if at + 1 < len(lines) else ""
        if line in SECTIONS and set(rule) == {"-"}:
            section = line
        elif section and not lines[at - 1].strip() and is_prose(line):
            section = ""
            out += [] if "Examples" in (*lines, *out) else ["Examples", "--------"]
        if example:
            out.append(line)
            continue
        found = PARAMETER.match(line) if section else None
        if found:
            out += [found[1], "    " + plain(found[2])]
        else:
            out.append(plain(line))
    if section and out and out[-1] != "":
        out.append("")
    lines[:] = out


def not_ours(_app: Sphinx, _what: str, name: str, _obj: object, _skip: bool, _options: Any) -> bool | None:
    """Leave out what scikit-learn adds to every estimator."""
    return True if ADDED.fullmatch(name) else None


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", in_numpydoc, priority=100)
    app.connect("autodoc-skip-member", not_ours)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
