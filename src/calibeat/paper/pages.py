"""Sections as Markdown, CSV, PNG and SVG, and the page that holds them all."""

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
from .registry import EXPERIMENTS, Experiment
from .rules import MUCH, SLIGHTLY, STANDARD_ERRORS
from .section import FEWEST_RUNS, Section, Table, Verdict, prose
from .settings import Settings
from .storage import write_text

PAGE, FOLDER = "reproduction.md", "reproduction"
HOLDS, FAILS, OPEN, TOO_FEW = "holds", "**does not hold**", "undecided", "too few runs to decide"
AT_TWO = " (at two standard errors: does not hold)"
COLOURS = 64
ABOUT = prose("""
    Every table and figure of *Online Platt Scaling with Calibeating* (Gupta & Ramdas, ICML 2023), computed anew, our
    numbers beside the paper's. This page is written by `calibeat reproduce`; each section names its command. "Paper" is
    what the paper prints or, where it only plots, the final value of the experiments that were published with it (ten
    seeds). ± is one standard deviation over the runs, and differences are counted in it. Words between “ and ” are the
    text's own, with [...] where some are left out; the place named is where to read them in full. Where the text and
    the published experiments differ, DEVIATIONS.md of the repository says what is done. The paper made 100 runs. To
    cite these numbers, cite the paper and calibeat with its version (CITATION.cff of the repository); the page, its
    figures and its CSVs are under calibeat's licence. Made with:
""")
HOW = prose(f"""
    **How claims are judged.** The paper's lines are means over runs, and so are ours. A curve is "clearly" above
    another where the mean difference, run by run, exceeds {STANDARD_ERRORS:g} of its standard errors. "Always" fails by
    one clear exception, and is undecided if there are exceptions, but none is clear. "Slightly", "almost" and "hardly"
    are a factor of at most {SLIGHTLY:g}, "by a margin" is more; "much" and "significantly" are at least {MUCH:g};
    "typically", "most" and "mostly" are more than half, "often" and "performs well" at least half. These numbers are
    ours; each verdict shows what it asks. With fewer than {FEWEST_RUNS} runs (Table 1: fewer than five) no claim about
    a mean is judged. These rules were not all settled before the first results were seen. Changed afterwards:
""")
CHANGED = """
    "clearly": from two standard errors to three, for all claims of the form "always" (what two would say is shown);
    Figure 15, "performs well": from more than half of the streams to at least half, for OBS under drift and for WHB;
    Figure 16: one claim was split in two, then both were held to what follows the 2,000th instance, run by run, and not
        to the later half of the record, all runs together;
    Table 1, "best candidates": first by the size of the regret beside OGD's, now by its growth in T, which is the
        reason that the text gives;
    "slightly": first only a direction in Section 1.2 and for epsilon 0.05, now one factor everywhere;
    "almost as fast" in Table 1: from a factor of 1.5 to that of "almost";
    Section 3.1, the Brier score: first "better" alone on all streams, which fails on some of them, now with the amount
        and the log T term that the text gives;
    Section 1.2, 5501-6000, "high accuracy and calibration": first accuracy alone, now CE too;
    Figure 9: first all of fetal health was excepted, now HOPS alone, and the 0.01 is asked too;
    Section 6, "all experimental scenarios": first without TOBS, HOBS, TWHB and the other epsilons;
    claims added after the first results: error bars, "by a margin", "hardly affected", "almost as good", "most
        experiments", "around 0.005", the label and regression drifts of Section 1.2, and those of Appendix A.3 on WHB;
    a claim dropped: calibeating improving OPS on i.i.d. data, which the text says of drift
"""
LIBRARIES = ("numpy", "numba", "scikit-learn", "scipy", "pandas", "matplotlib")


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
    if section.verdicts:
        rows = [[quoted(v), shown(v), v.asked, v.why] for v in section.verdicts]
        parts.append(markdown_table(Table("What the text says", ["claim", "in our runs", "asked", "numbers"], rows)))
    if section.findings:
        parts.append("**Known from the published experiments**")
        parts.append(bullets([f"Published: {finding}" for finding in section.findings]))
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
    return {True: HOLDS, False: FAILS, None: OPEN}[verdict.holds] + (AT_TWO if verdict.fails_at_two else "")


def markdown_table(table: Table) -> str:
    """A table in pipes; a stroke inside a cell would end it."""
    rules = ["---", *("---:" for _ in table.head[1:])] if table.head[0] != "claim" else ["---"] * len(table.head)
    lines = [table.head, rules, *table.rows]
    text = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
    return f"**{table.caption}**\n\n{text}"


def assemble(out: Path) -> Path:
    """OUT/reproduction.md from the pages of all the experiments that are there, in the order of the list."""
    folder = out / FOLDER
    names = [name for name in EXPERIMENTS if (folder / f"{name}.json").is_file()]
    pages = [(folder / f"{name}.md").read_text(encoding="utf-8") for name in names]
    facts = [json.loads((folder / f"{name}.json").read_text(encoding="utf-8")) for name in names]
    parts = [
        "# The paper, reproduced",
        ABOUT,
        bullets(sorted({about["made_with"] for about in facts})),
        *summary(
            [Verdict(**verdict) for about in facts for verdict in about["verdicts"]],
            [finding for about in facts for finding in about["findings"]],
        ),
        "The numbers stand beside each claim, in its section:",
        bullets([f"[{about['heading']}](#{anchor(about['heading'])})" for about in facts]),
        HOW,
        bullets([prose(line) for line in CHANGED.split(";\n")]),
        *(re.sub(r"\]\((?!https?:|#)", f"]({FOLDER}/", page) for page in pages),
    ]
    path = out / PAGE
    write_text(path, "\n\n".join(part.strip() for part in parts if part) + "\n")
    return path


def summary(verdicts: Sequence[Verdict], findings: Sequence[str]) -> list[str]:
    """How many claims hold, those that do not, and what was known before."""
    judged = [verdict for verdict in verdicts if not verdict.too_few]
    held, failed, undecided = ([v for v in judged if v.holds is holds] for holds in (True, False, None))
    text = f"Of the claims of the text, **{len(held)} hold** in these runs, **{len(failed)} do not**, and "
    text += f"{len(undecided)} {'is' if len(undecided) == 1 else 'are'} undecided: the means speak against the "
    text += "claim, but within the noise of the runs."
    if undecided:
        at_two = sum(verdict.fails_at_two for verdict in undecided)
        text += f" If two standard errors were enough, {at_two} of the undecided would not hold."
    if len(judged) < len(verdicts):
        few = len(verdicts) - len(judged)
        text += f" {few} more {'was' if few == 1 else 'were'} not judged: too few runs to decide."
    return [
        text,
        "Those that do not hold:" if failed else "",
        bullets([quoted(verdict) for verdict in failed]),
        "Undecided:" if undecided else "",
        bullets([quoted(verdict) + (AT_TWO if verdict.fails_at_two else "") for verdict in undecided]),
        "What the published experiments themselves do not bear out of the text, and what our runs say:"
        if findings
        else "",
        bullets(findings),
    ]


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
    return f"calibeat reproduce {experiment.name}{runs}{seed}"


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
