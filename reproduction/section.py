"""What an experiment leaves behind: words, tables, pictures, numbers, and verdicts on what the text claims."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from calibeat._util.types import Vector
from calibeat._util.words import counted

NUMBERS = ("mean", "std", "runs")
FEWEST_RUNS = 10  # with fewer, a standard error is itself mostly noise, and no claim about a mean is decided


@dataclass(frozen=True)
class Verdict:
    """A claim of the text, whether it holds in our runs, the numbers that say so, and the rule that was applied.

    `holds` is None where nothing is decided: the means speak against the claim, but by no more than the runs' noise, or
    there were too few runs (`too_few`). `fails_at_two` says that it would not hold if two standard errors were enough.
    `verbatim` claims are in the text's own words. `better` says that the claim fails only because the result is better
    for the paper's method than the text says.
    """

    claim: str
    where: str
    holds: bool | None
    why: str
    asked: str
    fails_at_two: bool = False
    verbatim: bool = True
    too_few: bool = False
    better: bool = False


@dataclass(frozen=True)
class Table:
    """A table of a page; the first column is to the left, the others to the right."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass
class Section:
    """One experiment's part of the report."""

    words: list[str] = field(default_factory=list)  # paragraphs
    tables: list[Table] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)  # file stem -> matplotlib Figure
    captions: dict[str, str] = field(default_factory=dict)  # file stem -> what is to be seen
    csv_head: Sequence[str] = ()
    csv_rows: list[list[str]] = field(default_factory=list)
    more: dict[str, Table] = field(default_factory=dict)  # file stem -> a further CSV
    verdicts: list[Verdict] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)  # what the published experiments contradict, and what ours say


def prose(text: str) -> str:
    """A paragraph from lines."""
    return " ".join(text.split())


def undecided_if_few(verdicts: Iterable[Verdict], runs: int, fewest: int = FEWEST_RUNS) -> list[Verdict]:
    """The verdicts, each undecided if there were fewer than `fewest` runs."""
    if runs >= fewest:
        return list(verdicts)
    why = f"{counted(runs, 'run')}, and a verdict needs at least {fewest}"
    return [replace(v, holds=None, fails_at_two=False, too_few=True, why=f"{why}; {v.why}") for v in verdicts]


def spread(values: Vector) -> Vector:
    """Standard deviation over the runs, the first axis; NaN for one run."""
    return np.asarray(values.std(axis=0, ddof=1) if len(values) > 1 else np.full(values.shape[1:], np.nan))


def plus_minus(mean: float, std: float, digits: int = 4, scale: float = 1.0) -> str:
    """A mean with its standard deviation; one run has none."""
    text = f"{scale * mean:.{digits}f}"
    return text if np.isnan(std) else f"{text} ± {scale * std:.{digits}f}"


def number(value: float, digits: int = 6) -> str:
    """A cell of a CSV; empty where there is no number."""
    return "" if np.isnan(value) else f"{value:.{digits}f}"


def beside(ours: float, std: float, theirs: float | None, digits: int = 4, scale: float = 1.0) -> list[str]:
    """Cells "ours | paper | difference in standard deviations"; empty where the paper gives no number."""
    text = plus_minus(ours, std, digits, scale)
    if theirs is None:
        return [text, "", ""]
    gap = f"{(scale * ours - theirs) / (scale * std):+.1f}" if std > 0 else ""
    return [text, f"{theirs:.{digits}f}", gap]
