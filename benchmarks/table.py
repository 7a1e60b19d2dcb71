"""Plain-text tables."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def show(title: str, head: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str] = ()) -> None:
    """Print a title, an aligned table (first column left, the others right) and notes."""
    widths = [max(len(line[i]) for line in (head, *rows)) for i in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        return "  ".join(c.rjust(w) if i else c.ljust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True)))

    text = [title, "=" * len(title), line(head), "  ".join("-" * w for w in widths), *map(line, rows), *notes]
    sys.stdout.write("\n".join(part.rstrip() for part in text) + "\n\n")
    sys.stdout.flush()


def verdict(*, met: bool) -> str:
    """How a goal is printed."""
    return "met" if met else "MISSED"


def nanoseconds(seconds: float, events: int) -> str:
    """Time per event, in ns."""
    return f"{1e9 * seconds / events:.1f}"


def microseconds(seconds: float, events: int) -> str:
    """Time per event, in us."""
    return f"{1e6 * seconds / events:.3f}"
