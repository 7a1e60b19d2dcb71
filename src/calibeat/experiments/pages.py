"""Sections as Markdown, CSV, PNG and SVG, and the page that holds them all."""

from __future__ import annotations

import csv
import io
import platform
import re
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from calibeat import __version__

from .registry import EXPERIMENTS, Experiment
from .section import Section, Table
from .settings import Settings
from .storage import write_text

PAGE, FOLDER = "reproduction.md", "reproduction"
LIBRARIES = ("numpy", "numba", "scikit-learn", "scipy", "pandas", "matplotlib")


def write(experiment: Experiment, section: Section, settings: Settings, out: Path) -> None:
    """NAME.md, NAME.csv and the figures of one experiment into OUT/reproduction."""
    folder = out / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for stem, figure in section.figures.items():
        save(figure, folder / stem)
    write_text(folder / f"{experiment.name}.csv", comma_separated(section.csv_head, section.csv_rows))
    write_text(folder / f"{experiment.name}.md", markdown(experiment, section, settings))


def save(figure: object, path: Path) -> None:
    """A picture as PNG and as SVG, the same bytes for the same picture."""
    from matplotlib import rc_context

    with rc_context({"svg.hashsalt": "calibeat", "svg.fonttype": "none"}):
        for ending, about in ((".png", {"Software": None}), (".svg", {"Date": None, "Creator": None})):
            figure.savefig(path.with_suffix(ending), metadata=about)  # type: ignore[attr-defined]


def comma_separated(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A CSV file."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return text.getvalue()


def markdown(experiment: Experiment, section: Section, settings: Settings) -> str:
    """One experiment's page; its links are relative to its own folder."""
    shows = ", ".join(experiment.shows)
    parts = [f"## {f'{shows}: ' if shows else ''}{experiment.title}", f"`{command([experiment.name], settings)}`"]
    parts += section.words
    parts += [f"![{section.captions[stem]}]({stem}.png)\n\n*{section.captions[stem]}* ([SVG]({stem}.svg))"
              for stem in section.figures]  # fmt: skip
    parts += [markdown_table(table) for table in section.tables]
    if section.verdicts:
        rows = [
            [f"“{v.claim}” ({v.where})", "holds" if v.holds else "**does not hold**", v.why] for v in section.verdicts
        ]
        parts.append(markdown_table(Table("What the text says", ["claim", "in our runs", "numbers"], rows)))
    runs = f", {settings.runs} runs" if experiment.has_runs else ""
    parts.append(f"Every number: [{experiment.name}.csv]({experiment.name}.csv){runs}.")
    return "\n\n".join(part for part in parts if part) + "\n"


def markdown_table(table: Table) -> str:
    """A table in pipes; a stroke inside a cell would end it."""
    rules = ["---", *("---:" for _ in table.head[1:])] if table.head[0] != "claim" else ["---"] * len(table.head)
    lines = [table.head, rules, *table.rows]
    text = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
    return f"**{table.caption}**\n\n{text}"


def assemble(settings: Settings, out: Path) -> Path:
    """OUT/reproduction.md from the pages of all the experiments that are there, in the order of the list."""
    folder = out / FOLDER
    pages = {
        name: (folder / f"{name}.md").read_text(encoding="utf-8")
        for name in EXPERIMENTS if (folder / f"{name}.md").is_file()
    }  # fmt: skip
    contents = [
        f"- [{page.splitlines()[0].removeprefix('## ')}](#{anchor(page.splitlines()[0])})" for page in pages.values()
    ]
    failed = [
        f"- {claim}" for page in pages.values()
        for claim in re.findall(r"^\| (“.*?”.*?) \| \*\*does not hold\*\* \|", page, flags=re.MULTILINE)
    ]  # fmt: skip
    held = sum(len(re.findall(r"^\| “.*?”.*? \| holds \|", page, flags=re.MULTILINE)) for page in pages.values())
    here = [re.sub(r"\]\((?!https?:|#)", f"]({FOLDER}/", page) for page in pages.values()]
    text = "\n\n".join([
        "# The paper, reproduced",
        "Every table and figure of *Online Platt Scaling with Calibeating* (Gupta & Ramdas, ICML 2023), computed anew, "
        "our numbers beside the paper's. This page is written by the command, not by hand:",
        f"```console\n$ {command(['all'], settings)}\n```",
        f"Runs: {settings.runs}, seeds {settings.seeds[0]} to {settings.seeds[-1]} (the paper: 100). Made with "
        f"{versions()}. \"Paper\" is what the paper prints, and where it only plots, the final values of the experiments "
        "that were published with it; ± is one standard deviation over the runs, and differences are counted in it. "
        "Where the paper and its published experiments disagree, [DEVIATIONS.md](../DEVIATIONS.md) says what is done.",
        f"Of the claims of the text that can be decided from these runs, {held} hold and {len(failed)} do not:",
        "\n".join(failed) or "- none",
        "The numbers are beside each claim, in its section:",
        "\n".join(contents),
        *here,
    ])  # fmt: skip
    path = out / PAGE
    write_text(path, text.rstrip() + "\n")
    return path


def anchor(heading: str) -> str:
    """As GitHub makes it of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.removeprefix("## ").lower()).replace(" ", "-")


def command(names: Sequence[str], settings: Settings) -> str:
    """What to type for the same page."""
    seed = f" --seed {settings.seed}" if settings.seed else ""
    return f"calibeat reproduce {' '.join(names)} --runs {settings.runs}{seed}"


def versions() -> str:
    """Of calibeat, Python and the libraries that numbers may depend on."""
    found = [f"calibeat {__version__}", f"Python {platform.python_version()}"]
    for library in LIBRARIES:
        try:
            found.append(f"{library} {version(library)}")
        except PackageNotFoundError:  # pragma: no cover - all of them are there where a report was made
            continue
    return ", ".join(found)
