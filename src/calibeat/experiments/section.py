"""What an experiment leaves behind: words, tables, pictures, numbers, and verdicts on what the text claims."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .stream import FloatArray

NUMBERS = ("mean", "std", "runs")


@dataclass(frozen=True)
class Verdict:
    """A claim of the text, in its words, whether it holds in our runs, and the numbers that say so.

    `holds` is None where the means speak against the claim, but by no more than the runs' noise.
    """

    claim: str
    where: str
    holds: bool | None
    why: str


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
    verdicts: list[Verdict] = field(default_factory=list)


def prose(text: str) -> str:
    """A paragraph from lines."""
    return " ".join(text.split())


def spread(values: FloatArray) -> FloatArray:
    """Standard deviation over the runs, the first axis; NaN for one run."""
    return np.asarray(values.std(axis=0, ddof=1) if len(values) > 1 else np.full(values.shape[1:], np.nan))


def beside(ours: float, std: float, theirs: float | None, digits: int = 4, scale: float = 1.0) -> list[str]:
    """Cells "ours | paper | difference in standard deviations"; empty where the paper gives no number."""
    said = f"{scale * ours:.{digits}f} ± {scale * std:.{digits}f}" if std == std else f"{scale * ours:.{digits}f}"  # noqa: PLR0124 - one run has no standard deviation
    if theirs is None:
        return [said, "", ""]
    gap = f"{(scale * ours - theirs) / (scale * std):+.1f}" if std > 0 else ""
    return [said, f"{theirs:.{digits}f}", gap]
