"""Write a page if it has changed, and keep links right where a text is shown in another folder."""

from __future__ import annotations

import os
import re
from pathlib import Path

DOCS = Path(__file__).parents[1]
ROOT = DOCS.parent
OUT = DOCS  # where pages are written
WRITTEN: set[Path] = set()
FOLDERS = ("reference/api", "reference/methods", "reference/command-line")  # nothing else is in them
# Files of the repository's root that the site shows as pages.
SHOWN = {
    "CONTRIBUTING.md": "explanation/design.md",
    "DEVIATIONS.md": "evidence/deviations.md",
    "CHANGELOG.md": "reference/changelog.md",
    "README.md": "index.md",
}
LINK = re.compile(r"(\]\()(?!https?:|#|mailto:)([^)#\s]+)")
REMARK = "<!-- Written by docs/_site when the site is built. -->\n\n"


def write(page: str, text: str) -> str:
    """Write docs/PAGE unless it is there with this text; its name for a toctree."""
    path = OUT / page
    path.parent.mkdir(parents=True, exist_ok=True)
    WRITTEN.add(path)
    text = REMARK + text.rstrip() + "\n"
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
    return page.removesuffix(".md")


def relink(text: str, written_in: Path, shown_in: Path) -> str:
    """The text with links that are right in the folder where it is shown."""

    def there(found: re.Match[str]) -> str:
        target = (written_in / found[2]).resolve()
        if target.is_relative_to(ROOT):
            shown = SHOWN.get(str(target.relative_to(ROOT)))
            target = DOCS / shown if shown else target
        return found[1] + os.path.relpath(target, shown_in)

    return LINK.sub(there, text)


def table(head: list[str], rows: list[list[str]]) -> str:
    """A table in pipes."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def toctree(names: list[str], *options: str) -> str:
    """A list of pages."""
    head = "\n".join(f":{option}:" for option in options)
    return "```{toctree}\n" + (head + "\n\n" if head else "") + "\n".join(names) + "\n```"
