"""Numbers as people read them: as many digits as say something, a real minus sign, thousands apart."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from typing import Any

Number = float | None

NOTHING = "–"


def number(value: Number, decimals: int = 4, *, sign: bool = False) -> str:
    """A measured number.

    >>> number(0.46123), number(-0.00012, 5, sign=True), number(0.0021, 3, sign=True), number(None), number(4.2e9)
    ('0.4612', '−0.00012', '+0.002', '–', '4.2e+09')
    """
    if value is None or not math.isfinite(value):
        return NOTHING
    large_or_lost = abs(value) >= 1e7 or (value != 0 and abs(value) < 0.5 * 10.0**-decimals)
    text = f"{abs(value):.2g}" if large_or_lost else f"{abs(value):,.{decimals}f}"
    return ("−" if value < 0 else "+" if sign and value > 0 else "") + text


def significant(value: Number) -> str:
    """A number of any size, with four digits.

    >>> significant(7421.5), significant(0.0331234), significant(12.0), significant(None)
    ('7,422', '0.03312', '12', '–')
    """
    if value is None or not math.isfinite(value):
        return NOTHING
    return (f"{value:,.0f}" if 1e4 > abs(value) >= 1e3 else f"{value:,.4g}").replace("-", "−")


def decimals(values: Iterable[Number], at_least: int = 4) -> int:
    """How many digits after the point a column needs for three significant ones of its largest number.

    >>> decimals([0.46, 0.51]), decimals([0.00021, None]), decimals([])
    (4, 6, 4)
    """
    largest = max((abs(v) for v in values if v is not None and math.isfinite(v)), default=0.0)
    return at_least if largest == 0 else min(9, max(at_least, 2 - math.floor(math.log10(largest))))


def count(value: int | None) -> str:
    """
    >>> count(1234567)
    '1,234,567'
    """
    return NOTHING if value is None else f"{value:,}"


def counted(value: int, one: str, more: str | None = None) -> str:
    """
    >>> counted(1, "event"), counted(1234, "event"), counted(0, "was", "were")
    ('1 event', '1,234 events', '0 were')
    """
    return f"{value:,} {one if value == 1 else more or one + 's'}"


def percent(value: Number) -> str:
    r"""
    >>> percent(0.2345), percent(0.00004), percent(None)
    ('23.4\xa0%', '0.004\xa0%', '–')
    """
    if value is None or not math.isfinite(value):
        return NOTHING
    return f"{100 * value:.1f}\u00a0%" if value == 0 or abs(value) >= 0.001 else f"{100 * value:.2g}\u00a0%"


def duration(seconds: Number) -> str:
    """
    >>> [duration(s) for s in (0, 0.00003, 0.0045, 0.25, 42, 3600, 86400, 200000, 4e7, None)]
    ['0 s', '30 µs', '4.5 ms', '0.25 s', '42 s', '1 h', '1 day', '2.31 days', '1.27 years', '–']
    """
    if seconds is None or not math.isfinite(seconds):
        return NOTHING
    for size, unit in ((365.25 * 86400, "years"), (86400, "days"), (3600, "h"), (60, "min")):
        if abs(seconds) >= size:
            text = f"{seconds / size:.3g}" if abs(seconds) < 1000 * size else f"{seconds / size:,.0f}"
            return f"{text} {unit.removesuffix('s') if text == '1' else unit}"
    small = 0 < abs(seconds) < 0.1
    size, unit = (1.0, "s") if not small else (1e-3, "ms") if abs(seconds) >= 1e-4 else (1e-6, "µs")
    return f"{seconds / size:.3g} {unit}"


def did_you_mean(asked: str, known: Iterable[str], cutoff: float = 0.5) -> str:
    """A hint to append to an error about a name, or nothing.

    >>> did_you_mean("topz", ["tops", "hops", "auto"]), did_you_mean("xyz", ["tops"])
    (" - did you mean 'tops'?", '')
    """
    by_lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(asked.lower(), by_lower, n=1, cutoff=cutoff)
    return f" - did you mean {by_lower[close[0]]!r}?" if close else ""


def visible(text: object) -> str:
    r"""Text from a file, fit for a terminal: control characters and direction marks are shown as escapes.

    >>> visible("caf\u00e9.csv"), visible("a\x1b[31m\u202e.csv")
    ('café.csv', 'a\\x1b[31m\\u202e.csv')
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in str(text))


def made_here(names: Mapping[str, Any]) -> list[str]:
    """The public names of a module, given its globals, without what it imports."""
    here = names["__name__"]
    return [name for name, thing in names.items() if name[0] != "_" and getattr(thing, "__module__", "") == here]
