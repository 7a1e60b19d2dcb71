"""The page that holds all experiments: does the paper hold up, then the figures, then its text sentence by sentence."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from . import reader
from .pages import AT_TWO, FOLDER, anchor, bullets, markdown_table, quoted, shown
from .registry import EXPERIMENTS
from .rules import MUCH, SLIGHTLY, STANDARD_ERRORS
from .section import FEWEST_RUNS, Table, Verdict, prose
from .storage import write_text

PAGE = "reproduction.md"
LETTER = "Wordings that do not hold to the letter"
ABOUT = prose("""
    Every table and figure of *Online Platt Scaling with Calibeating* (Gupta & Ramdas, ICML 2023), computed anew. This
    page is written by `python -m reproduction all --runs 100`; each section names its own command. "Paper" is what the
    paper prints or, where it only plots, the final value of the experiments that were published with it (ten seeds).
    CE is the calibration error: the less, the better.
""")
SHORT = prose("""
    CE is at the end of the stream, as a mean over the streams. An arrow goes from the other method to the one that the
    claim is about. Results of fewer than ten runs are marked "few".
""")
FIGURES = prose("""
    Each section has our figure, and a table with our numbers beside the paper's. ± is one standard deviation over the
    runs, and differences are counted in it. Where the text and the published experiments differ, DEVIATIONS.md of the
    repository says what is done.
""")
SENTENCES = prose("""
    Every sentence of the text that can be checked, with the rule that was applied and our numbers. Words between “ and
    ” are the text's own, with [...] where some are left out.
""")
WORDINGS = prose("""
    These sentences fail as they are worded: there is an exception to "always" or "in each plot", a factor is not
    "slight", an error bar can be seen. The claims behind most of them are in the first table, where they hold.
""")
CITE = prose("""
    To cite these numbers, cite the paper and calibeat with its version (CITATION.cff of the repository). The page, its
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


def assemble(out: Path) -> Path:
    """OUT/reproduction.md from the pages of all the experiments that are there, in the order of the list."""
    folder = out / FOLDER
    names = [name for name in EXPERIMENTS if (folder / f"{name}.json").is_file()]
    facts = [json.loads((folder / f"{name}.json").read_text(encoding="utf-8")) for name in names]
    sections = [(folder / f"{name}.md").read_text(encoding="utf-8") for name in names]
    numbers = reader.Numbers(folder)
    verdicts = [
        [reader.better_than_said(Verdict(**verdict), numbers) for verdict in about["verdicts"]] for about in facts
    ]
    every = [verdict for several in verdicts for verdict in several]
    parts = [
        "# The paper, reproduced",
        ABOUT,
        "## Does the paper hold up?",
        *main_claims(numbers),
        tally(every),
        "## The figures and tables",
        FIGURES,
        bullets([f"[{about['heading']}](#{anchor(about['heading'])})" for about in facts]),
        *(re.sub(r"\]\((?!https?:|#)", f"]({FOLDER}/", page) for page in sections),
        "## The text, sentence by sentence",
        SENTENCES,
        *(sentences(about["heading"], several) for about, several in zip(facts, verdicts, strict=True)),
        *known([finding for about in facts for finding in about["findings"]]),
        HOW,
        bullets([prose(line) for line in CHANGED.split(";\n")]),
        CITE,
        bullets(sorted({about["made_with"] for about in facts})),
        *wordings(every),
    ]
    path = out / PAGE
    write_text(path, "\n\n".join(part.strip() for part in parts if part) + "\n")
    return path


def main_claims(numbers: reader.Numbers) -> list[str]:
    """The table that a reader wants first."""
    rows = reader.main_claims(numbers)
    if not rows:
        return ["The experiments that the main claims rest on were not run."]
    return [markdown_table(Table("The main claims", reader.HEAD, rows)), SHORT]


def tally(verdicts: Sequence[Verdict]) -> str:
    """How many sentences of the text hold."""
    judged = [verdict for verdict in verdicts if not verdict.too_few]
    better = sum(verdict.better for verdict in judged)
    held, failed, undecided = (sum(v.holds is holds for v in judged) for holds in (True, False, None))
    text = f"Of the {len(judged)} sentences of the text that were judged, **{held} hold{'s' * (held == 1)}**"
    text += f", in {better} the result is better than they say" if better else ""
    do = "does" if failed - better == 1 else "do"
    text += f", **{failed - better} {do} not hold to the letter**, and {undecided} {be(undecided)} undecided: the "
    text += "means speak against the sentence, but within the noise of the runs."
    if undecided:
        at_two = sum(verdict.fails_at_two for verdict in judged)
        text += f" If two standard errors were enough, {at_two} of the undecided would not hold."
    if few := len(verdicts) - len(judged):
        text += f" {few} more {'was' if few == 1 else 'were'} not judged: too few runs to decide."
    if failed > better:
        text += f" [The last section](#{anchor(LETTER)}) lists those that do not hold."
    return text


def be(count: int) -> str:
    """Is or are."""
    return "is" if count == 1 else "are"


def sentences(heading: str, verdicts: Sequence[Verdict]) -> str:
    """The sentences that one experiment decides."""
    if not verdicts:
        return ""
    rows = [[quoted(v), shown(v), v.asked, v.why] for v in verdicts]
    table = markdown_table(Table("", ["claim", "in our runs", "asked", "numbers"], rows))
    return f"**{heading}**\n\n{table.removeprefix('****').strip()}"


def known(findings: Sequence[str]) -> list[str]:
    """What was known from the published experiments."""
    if not findings:
        return []
    return [
        "What the published experiments themselves do not bear out of the text, and what our runs say:",
        bullets(findings),
    ]


def wordings(verdicts: Sequence[Verdict]) -> list[str]:
    """Last: sentences that are undecided, whose result is better, or that fail as they are worded."""
    judged = [verdict for verdict in verdicts if not verdict.too_few]
    undecided = [v for v in judged if v.holds is None]
    better = [v for v in judged if v.better]
    failed = [v for v in judged if v.holds is False and not v.better]
    return [
        "## Undecided" if undecided else "",
        bullets([quoted(verdict) + (AT_TWO if verdict.fails_at_two else "") for verdict in undecided]),
        "## Better than the text says" if better else "",
        bullets([f"{quoted(verdict)}: {verdict.why}" for verdict in better]),
        f"## {LETTER}" if failed else "",
        WORDINGS if failed else "",
        bullets([f"{quoted(verdict)}: {verdict.why}" for verdict in failed]),
    ]
