"""Sections as Markdown, CSV, PNG and SVG."""

from __future__ import annotations

import csv
import io
import json
import platform
import re
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from calibeat import __version__
from calibeat._util.files import atomic
from calibeat._util.words import counted

from .forests import TREES
from .registry import Experiment
from .section import Section, Table, Verdict
from .settings import Settings
from .storage import write_text

FOLDER = "reproduction"
HOLDS, FAILS, OPEN, TOO_FEW = "holds", "**does not hold**", "undecided", "too few runs to decide"
BETTER = "better than said"
AT_TWO = " (at two standard errors: does not hold)"
COLOURS = 64
LIBRARIES = ("numpy", "scikit-learn", "scipy", "pandas", "matplotlib")


def write(experiment: Experiment, section: Section, settings: Settings, out: Path) -> None:
    """NAME.md, NAME.csv, NAME.json (the verdicts) and the figures of one experiment into OUT/reproduction."""
    folder = out / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for stem, figure in section.figures.items():
        save(figure, folder / stem)
    write_text(folder / f"{experiment.name}.csv", comma_separated(section.csv_head, section.csv_rows))
    for stem, table in section.more.items():
        write_text(folder / f"{stem}.csv", comma_separated(table.head, table.rows))
    write_text(folder / f"{experiment.name}.md", markdown(experiment, section, settings))
    facts = {
        "heading": heading(experiment),
        "made_with": made_with(experiment, settings),
        "verdicts": [asdict(verdict) for verdict in section.verdicts],
        "findings": section.findings,
    }
    write_text(folder / f"{experiment.name}.json", json.dumps(facts, indent=1, ensure_ascii=False) + "\n")


def save(figure: Any, path: Path) -> None:
    """A picture as PNG and as SVG, the same bytes for the same picture."""
    from matplotlib import rc_context
    from PIL import Image

    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # laid out once, not once for each file
    text = io.StringIO()
    with rc_context({"svg.hashsalt": "calibeat", "svg.fonttype": "none"}):
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    # Coordinates to a hundredth of a point: a third of the file, and nothing that could be seen.
    short = re.sub(
        r' (?:d|x|y|transform)="[^"]*"', lambda found: re.sub(r"(\.\d\d)\d+", r"\1", found[0]), text.getvalue()
    )
    write_text(path.with_suffix(".svg"), short)
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png")
    # A drawing has few colours: with a palette it takes a third of the space.
    with atomic(path.with_suffix(".png")) as file:
        Image.open(drawn).convert("RGB").quantize(COLOURS).save(file, format="PNG", optimize=True)


def comma_separated(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A CSV file."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return text.getvalue()


def markdown(experiment: Experiment, section: Section, settings: Settings) -> str:
    """One experiment's page; its links are relative to its own folder."""
    parts = [f"## {heading(experiment)}", *section.words]
    for stem in section.figures:
        caption = section.captions[stem]
        parts.append(f"![{caption}]({stem}.png)\n\n*{caption}* ([SVG]({stem}.svg))")
    parts += [markdown_table(table) for table in section.tables]
    files = ", ".join(f"[{stem}.csv]({stem}.csv)" for stem in (experiment.name, *section.more))
    parts.append(f"Every number: {files}. `{command(experiment, settings)}`")
    parts.append(f"Made with: {made_with(experiment, settings)}")
    return "\n\n".join(part for part in parts if part) + "\n"


def heading(experiment: Experiment) -> str:
    """Figure 5, Figure 8: what they show."""
    shows = ", ".join(experiment.shows)
    return f"{shows}: {experiment.title}" if shows else experiment.title


def quoted(verdict: Verdict) -> str:
    """The claim and its place; in quotation marks only if it is verbatim."""
    claim = f"“{verdict.claim}”" if verdict.verbatim else verdict.claim
    return f"{claim} ({verdict.where})"


def shown(verdict: Verdict) -> str:
    """The verdict, and what two standard errors would say if that is something else."""
    if verdict.too_few:
        return TOO_FEW
    if verdict.better:
        return BETTER
    return {True: HOLDS, False: FAILS, None: OPEN}[verdict.holds] + (AT_TWO if verdict.fails_at_two else "")


def markdown_table(table: Table) -> str:
    """A table in pipes; a stroke inside a cell would end it."""
    rules = ["---", *("---:" for _ in table.head[1:])] if table.head[0] != "claim" else ["---"] * len(table.head)
    lines = [table.head, rules, *table.rows]
    text = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
    return f"**{table.caption}**\n\n{text}"


def bullets(lines: Sequence[str]) -> str:
    """A list."""
    return "\n".join(f"- {line}" for line in lines)


def anchor(heading: str) -> str:
    """As GitHub makes it of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def command(experiment: Experiment, settings: Settings) -> str:
    """What to type for the same numbers."""
    count = experiment.runs(settings)
    runs = f" --runs {count}" if experiment.most_runs > 1 else ""
    seed = f" --seed {settings.seed}" if settings.seed and count else ""
    return f"python -m reproduction {experiment.name}{runs}{seed}"


def made_with(experiment: Experiment, settings: Settings) -> str:
    """Runs, seeds and versions: everything that the numbers depend on."""
    small = (
        ""
        if settings.trees == TREES and not settings.events
        else (f" Not the paper's size: {settings.trees} trees, {settings.events or 'all'} events.")
    )
    count, first = experiment.runs(settings), settings.seed
    seeds = f"seed {first}" if count == 1 else f"seeds {first} to {first + count - 1}"
    return (f"{counted(count, 'run')}, {seeds}; " if count else "") + f"{versions()}.{small}"


def versions() -> str:
    """Of calibeat, Python and the libraries that numbers may depend on."""
    found = [f"calibeat {__version__}", f"Python {platform.python_version()}"]
    for library in LIBRARIES:
        try:
            found.append(f"{library} {version(library)}")
        except PackageNotFoundError:  # pragma: no cover - all of them are there where a report was made
            continue
    return ", ".join(found)
