"""Sections as Markdown, CSV, PNG and SVG, and the page that holds them all."""

from __future__ import annotations

import csv
import io
import platform
import re
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from calibeat import __version__

from .forests import TREES
from .registry import EXPERIMENTS, Experiment
from .section import Section, Table, prose
from .settings import Settings
from .storage import write_text

PAGE, FOLDER = "reproduction.md", "reproduction"
MADE_WITH = "Made with: "
HOLDS, FAILS, OPEN = "holds", "**does not hold**", "undecided"
COLOURS = 64
ABOUT = prose("""
    Every table and figure of *Online Platt Scaling with Calibeating* (Gupta & Ramdas, ICML 2023), computed anew, our
    numbers beside the paper's. This page is written by `calibeat reproduce`; each section names its command. "Paper" is
    what the paper prints or, where it only plots, the final value of the experiments that were published with it (ten
    seeds). ± is one standard deviation over the runs, and differences are counted in it. A curve is "clearly" above
    another where the mean difference, run by run, exceeds three of its standard errors. This number, and those that
    stand for words such as "slightly" and "typically", are ours, and were settled with first results in view; so each
    verdict shows what it asks and the numbers, and "clearly" also the count at two standard errors. Claims are
    shortened, and here and there reworded, to what can be decided; the place named is where to read them in full. Where
    the text and the published experiments differ, DEVIATIONS.md of the repository says what is done. The paper made 100
    runs. Made with:
""")
LIBRARIES = ("numpy", "numba", "scikit-learn", "scipy", "pandas", "matplotlib")


def write(experiment: Experiment, section: Section, settings: Settings, out: Path) -> None:
    """NAME.md, NAME.csv and the figures of one experiment into OUT/reproduction."""
    folder = out / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for stem, figure in section.figures.items():
        save(figure, folder / stem)
    write_text(folder / f"{experiment.name}.csv", comma_separated(section.csv_head, section.csv_rows))
    write_text(folder / f"{experiment.name}.md", markdown(experiment, section, settings))


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
    Image.open(drawn).convert("RGB").quantize(COLOURS).save(path.with_suffix(".png"), optimize=True)


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
    parts = [f"## {f'{shows}: ' if shows else ''}{experiment.title}", *section.words]
    for stem in section.figures:
        caption = section.captions[stem]
        parts.append(f"![{caption}]({stem}.png)\n\n*{caption}* ([SVG]({stem}.svg))")
    parts += [markdown_table(table) for table in section.tables]
    if section.verdicts:
        said = {True: HOLDS, False: FAILS, None: OPEN}
        rows = [[f"“{v.claim}” ({v.where})", said[v.holds], v.why] for v in section.verdicts]
        parts.append(markdown_table(Table("What the text says", ["claim", "in our runs", "numbers"], rows)))
    parts.append(f"Every number: [{experiment.name}.csv]({experiment.name}.csv). `{command(experiment, settings)}`")
    parts.append(MADE_WITH + made_with(experiment, settings))
    return "\n\n".join(part for part in parts if part) + "\n"


def markdown_table(table: Table) -> str:
    """A table in pipes; a stroke inside a cell would end it."""
    rules = ["---", *("---:" for _ in table.head[1:])] if table.head[0] != "claim" else ["---"] * len(table.head)
    lines = [table.head, rules, *table.rows]
    text = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
    return f"**{table.caption}**\n\n{text}"


def assemble(out: Path) -> Path:
    """OUT/reproduction.md from the pages of all the experiments that are there, in the order of the list."""
    files = {name: out / FOLDER / f"{name}.md" for name in EXPERIMENTS}
    pages = [file.read_text(encoding="utf-8") for file in files.values() if file.is_file()]
    whole = "\n".join(pages)
    held, failed, undecided = (
        re.findall(rf"^\| (“.*?”.*?) \| {re.escape(verdict)} \|", whole, flags=re.MULTILINE)
        for verdict in (HOLDS, FAILS, OPEN)
    )
    made = sorted(set(re.findall(rf"^{re.escape(MADE_WITH)}(.*)$", whole, flags=re.MULTILINE)))
    counted = prose(f"""
        Of the claims of the text, **{len(held)} hold** in these runs, **{len(failed)} do not**, and {len(undecided)}
        are undecided: the means speak against them, but within the noise of the runs. Those that do not hold:
    """)
    headings = [page.splitlines()[0].removeprefix("## ") for page in pages]
    parts = [
        "# The paper, reproduced",
        ABOUT,
        "\n".join(f"- {line}" for line in made),
        counted,
        "\n".join(f"- {claim}" for claim in failed),
        "Undecided:" if undecided else "",
        "\n".join(f"- {claim}" for claim in undecided),
        "The numbers stand beside each claim, in its section:",
        "\n".join(f"- [{heading}](#{anchor(heading)})" for heading in headings),
        *(re.sub(r"\]\((?!https?:|#)", f"]({FOLDER}/", page) for page in pages),
    ]
    path = out / PAGE
    write_text(path, "\n\n".join(part.strip() for part in parts if part) + "\n")
    return path


def anchor(heading: str) -> str:
    """As GitHub makes it of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def command(experiment: Experiment, settings: Settings) -> str:
    """What to type for the same numbers."""
    runs = f" --runs {settings.runs}" if experiment.has_runs else ""
    seed = f" --seed {settings.seed}" if settings.seed else ""
    return f"calibeat reproduce {experiment.name}{runs}{seed}"


def made_with(experiment: Experiment, settings: Settings) -> str:
    """Runs, seeds and versions: everything that the numbers depend on."""
    small = "" if settings.trees == TREES and not settings.events else (
        f" Not the paper's size: {settings.trees} trees, {settings.events or 'all'} events."
    )  # fmt: skip
    runs = f"{settings.runs} runs, seeds {settings.seeds[0]} to {settings.seeds[-1]}; " if experiment.has_runs else ""
    return f"{runs}{versions()}.{small}"


def versions() -> str:
    """Of calibeat, Python and the libraries that numbers may depend on."""
    found = [f"calibeat {__version__}", f"Python {platform.python_version()}"]
    for library in LIBRARIES:
        try:
            found.append(f"{library} {version(library)}")
        except PackageNotFoundError:  # pragma: no cover - all of them are there where a report was made
            continue
    return ", ".join(found)
