"""Before Sphinx reads: pages from the code, and the repository's own files as pages."""

from __future__ import annotations

import re

from sphinx.application import Sphinx

from . import api, commands, http, methods
from .pages import DOCS, FOLDERS, ROOT, SHOWN, WRITTEN, relink, write

PERHAPS = re.compile(r"^(\S+)\?$", re.MULTILINE)
TITLES = {
    "CONTRIBUTING.md": "Design of the code, and how to contribute",
    "DEVIATIONS.md": "Where the paper and its experiments differ",
    "CHANGELOG.md": "Changelog",
}


def root_pages() -> None:
    """Files of the repository's root as pages, with links that are right there."""
    for name, title in TITLES.items():
        page = SHOWN[name]
        text = re.sub(r"\A# .*", f"# {title}", (ROOT / name).read_text(encoding="utf-8"))
        write(page, relink(text, ROOT, (DOCS / page).parent))


def remove_old() -> None:
    """Pages of names, commands and tutorials that are not there any more."""
    for folder in FOLDERS:
        for path in (DOCS / folder).glob("*.md"):
            if path not in WRITTEN:
                path.unlink()
    scripts = {path.stem for path in (DOCS / "tutorials" / "scripts").glob("*.py")}
    for path in (DOCS / "tutorials" / "pages").glob("*.rst"):
        if path.stem not in {*scripts, "index", "sg_execution_times"}:
            path.unlink()


def before(_app: Sphinx) -> None:
    """Write the pages."""
    root_pages()
    for part in (api, commands, http, methods):
        part.generate()
    remove_old()


def read(_app: Sphinx, name: str, source: list[str]) -> None:
    """Links to files that the site shows as pages lead there. ``name?`` in a toctree is listed if it exists."""
    folder = (DOCS / name).parent
    if not (DOCS / f"{name}.md").is_file():
        return
    text = PERHAPS.sub(lambda found: found[1] if (folder / f"{found[1]}.md").is_file() else "", source[0])
    text = text.replace("\n\n```\n", "\n```\n")  # the empty line ends an example for doctest; a reader needs none
    source[0] = relink(text, folder, folder)


def setup(app: Sphinx) -> dict[str, bool]:
    """For Sphinx."""
    app.connect("builder-inited", before, priority=100)
    app.connect("source-read", read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
