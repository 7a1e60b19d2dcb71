"""What happened to the data along the log, and two periods of it side by side.

Volume, missing outcomes, delays of ones and of zeros, and scores.

Events are counted in bins of time (a second, ..., an hour, ..., a day, a week), or of a number of events without times.
When there are too many bins, the next larger unit takes them together: memory does not grow with the log.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from calibeat._util.types import Flags, Ints, Table, Vector
from calibeat._util.words import counted, decimals
from calibeat.backtest.options import Options
from calibeat.backtest.read.rows import Chunk
from calibeat.backtest.replay.tally import OCTAVES, Judged, floor_of, judged, rank_of
from calibeat.core.algebra import scale_of
from calibeat.core.subset import entry
from calibeat.errors import InvalidInput
from calibeat.report.schema import DataOverTime, DataPeriod, Number, SplitPeriod

from .measures import MOST_PERIODS, calendar, cuts, groups_of, iso, number

SECOND = 1_000_000
DAY = 86_400 * SECOND
MONDAY = -3 * DAY  # 1970 began on a Thursday
UNITS = (
    *((n * SECOND, f"{n} s" if n > 1 else "second") for n in (1, 5, 15)),
    *((n * 60 * SECOND, f"{n} min" if n > 1 else "minute") for n in (1, 5, 15)),
    *((n * 3600 * SECOND, f"{n} hours" if n > 1 else "hour") for n in (1, 3, 12)),
    *((n * DAY, name) for n, name in ((1, "day"), (7, "week"), (28, "4 weeks"), (364, "52 weeks"), (3640, "10 years"))),
    (36_400 * DAY, "100 years"),  # the years 1 to 9999 are 101 of them
)
MOST_BINS = 400

STEPS = 16  # of scores, in an octave towards 0 and towards 1
RANKS = 2 * (2 + OCTAVES * STEPS)
DELAY_STEPS = 8  # in an octave
DELAYS = 64 * DELAY_STEPS
COUNT, MISSING, ONES, SCORE, SCORES = 0, 1, 2, 3, 4  # sums of a bin, then scores by rank, delays of zeros and of ones
ZERO_DELAYS = SCORES + RANKS
ONE_DELAYS = ZERO_DELAYS + DELAYS
WIDTH = ONE_DELAYS + DELAYS
GROUPS = 10  # of scores, of equal mass in the first period, for the PSI


@entry
def count_history(at: Ints, scores: Vector, outcomes: Vector, waited: Ints, sums: Table) -> None:
    """Add a chunk: event i is in bin at[i], and its outcome came after waited[i] (negative: at once or never)."""
    for i in range(len(at)):
        k = at[i]
        sums[k, COUNT] += 1.0
        sums[k, SCORE] += scores[i]
        sums[k, SCORES + rank_of(scores[i], STEPS)] += 1.0
        if math.isnan(outcomes[i]):
            sums[k, MISSING] += 1.0
            continue
        sums[k, ONES] += outcomes[i]
        if waited[i] >= 0:
            mantissa, exponent = scale_of(waited[i] + 1.0)
            place = int(exponent) * DELAY_STEPS + int((mantissa - 1.0) * DELAY_STEPS)
            sums[k, (ONE_DELAYS if outcomes[i] == 1.0 else ZERO_DELAYS) + place] += 1.0


class DataHistory:
    """Counts the events of a log along its axis."""

    def __init__(self) -> None:
        self.timed: bool | None = None
        self._late = self._late_in_time = False
        self._unit = 0
        self._first = 0  # the absolute number of the first bin
        self._used = 0
        self._events = 0
        self._sums = np.zeros((0, WIDTH))

    @property
    def width(self) -> int:
        """Of a bin: microseconds, or events."""
        return UNITS[self._unit][0] if self.timed else int(2**self._unit)

    def add(self, chunk: Chunk, raw: Judged) -> None:
        """Count a chunk, whose times rise. `raw` is what the raw scores are judged by."""
        if not len(chunk):
            return
        axis = np.arange(self._events, self._events + len(chunk)) if chunk.times is None else chunk.times - MONDAY
        if self.timed is None:
            self.timed = chunk.times is not None
            self._late, self._late_in_time = chunk.arrivals is not None, chunk.clock_is_time
            self._sums = np.zeros((MOST_BINS, WIDTH))
            self._first = int(axis[0]) // self.width
        while int(axis[-1]) // self.width - self._first >= MOST_BINS:
            self._widen()
        at = axis // self.width - self._first
        waited = np.full(len(chunk), -1)
        if chunk.arrivals is not None and chunk.clock is not None:
            waited = np.maximum(chunk.arrivals - chunk.clock - (0 if self._late_in_time else 1), 0)
        count_history(at, raw.forecasts, raw.outcomes, waited, self._sums)
        self._used = int(at[-1]) + 1
        self._events += len(chunk)

    def _widen(self) -> None:
        before = self.width
        self._unit += 1
        ratio = self.width // before
        at = (self._first + np.arange(self._used)) // ratio
        merged = np.zeros_like(self._sums)
        self._first //= ratio
        np.add.at(merged, at - self._first, self._sums[: self._used])
        self._sums, self._used = merged, int(at[-1]) + 1 - self._first if self._used else 0

    # ---- what it found -----------------------------------------------------------------------------------------------

    def for_report(self) -> DataOverTime:
        """What it found."""
        sums = self._sums[: self._used]
        begins = [(self._first + k) * self.width + (MONDAY if self.timed else 0) for k in range(len(sums))]
        scale = 1e-6 if self._late_in_time else 1.0
        at_once = sums[:, ZERO_DELAYS].sum() + sums[:, ONE_DELAYS].sum()
        self._late = self._late and bool(sums[:, ZERO_DELAYS:].sum() > at_once)
        quantiles = [[_score_at(row, q) for row in sums] for q in (0.1, 0.5, 0.9)]
        return {
            "by": "time" if self.timed else "event",
            "unit": UNITS[self._unit][1] if self.timed else f"{self.width:,} events",
            "start": [iso(begin) if self.timed else begin + 1 for begin in begins],
            "count": [int(row[COUNT]) for row in sums],
            "missing": [number(row[MISSING] / row[COUNT]) if row[COUNT] else None for row in sums],
            "ones_delay": [_delay_at(row[ONE_DELAYS:], scale) for row in sums] if self._late else None,
            "zeros_delay": [_delay_at(row[ZERO_DELAYS:ONE_DELAYS], scale) for row in sums] if self._late else None,
            "delay_is_time": self._late_in_time,
            "score_low": quantiles[0],
            "score_median": quantiles[1],
            "score_high": quantiles[2],
            "periods": self._periods(begins, sums, scale),
        }

    def _periods(self, begins: list[int], sums: Vector, scale: float) -> list[DataPeriod]:
        parts = calendar(begins) if self.timed else None
        if parts is None:
            edges = list(pairwise(cuts(len(sums), min(MOST_PERIODS, len(sums)))))
            parts = [(self._label(begins[a], begins[b - 1]), a, b) for a, b in edges]
        reference = sums[parts[0][1] : parts[0][2]].sum(axis=0)
        found: list[DataPeriod] = []
        for at, (label, a, b) in enumerate(parts):
            row = sums[a:b].sum(axis=0)
            n, known = row[COUNT], row[COUNT] - row[MISSING]
            found.append(
                {
                    "label": label,
                    "count": int(n),
                    "missing": number(row[MISSING] / n) if n else None,
                    "base_rate": number(row[ONES] / known) if known else None,
                    "mean_score": number(row[SCORE] / n) if n else None,
                    "ones_delay": _delay_at(row[ONE_DELAYS:], scale) if self._late else None,
                    "zeros_delay": _delay_at(row[ZERO_DELAYS:ONE_DELAYS], scale) if self._late else None,
                    "psi": psi(reference[SCORES:ZERO_DELAYS], row[SCORES:ZERO_DELAYS]) if at and n else None,
                }
            )
        return found

    def _label(self, first: int, last: int) -> str:
        if self.timed:
            return f"{iso(first)} to {iso(last + self.width)}".replace("T", " ")
        return f"events {first + 1:,}–{min(last + self.width, self._events):,}"


def psi(reference: Vector, counts: Vector) -> float:
    """The population stability index: sum (a - e) ln(a / e) over groups of scores that share the reference evenly.

    a and e are the shares of a group, with half an event added to each group. Groups are made of whole ranks.

    >>> psi(np.full(100, 10.0), np.full(100, 7.0))
    0.0
    """
    group = groups_of(reference, GROUPS)
    shares = []
    for each in (counts, reference):
        inside = np.bincount(group, each) + 0.5
        shares.append(inside / inside.sum())
    a, e = shares
    return float(((a - e) * np.log(a / e)).sum())


def score_of(rank: int) -> float:
    """The middle of a rank of scores."""
    low = min(rank, RANKS - 1 - rank)
    octave, step = divmod(low - 1, STEPS)
    value = 0.0 if low == 0 else (0.5 + (step + 0.5) / (2.0 * STEPS)) * 2.0 ** (octave - OCTAVES)
    value = min(value, 0.5)
    return value if rank == low else 1.0 - value


def _score_at(row: Vector, share: float) -> Number:
    counts = row[SCORES:ZERO_DELAYS]
    total = counts.sum()
    return score_of(int(np.searchsorted(np.cumsum(counts), share * total, side="left"))) if total else None


def _delay_at(counts: Vector, scale: float) -> Number:
    """The median, to within a step of 1/8 and with its place in the step by proportion."""
    path = np.cumsum(counts[:DELAYS])
    if not path[-1]:
        return None
    at = int(np.searchsorted(path, 0.5 * path[-1], side="left"))
    if at == 0:
        return 0.0
    octave, step = divmod(at, DELAY_STEPS)
    share = (0.5 * path[-1] - path[at - 1]) / counts[at]
    return float(scale * (2.0**octave * (1.0 + (step + share) / DELAY_STEPS) - 1.0))


BEFORE, AFTER = 0, 1


class Periods:
    """Sums over the judged events of two periods, for each method."""

    def __init__(self, options: Options) -> None:
        self._options, self._bins, self._split = options, options.bins, options.split_at
        self._edges = np.arange(1, self._bins) / self._bins  # an edge falls to the right
        self._judged = np.zeros((2, 2))  # by period: events, ones (of many classes: of the raw scores)
        self._sums: dict[str, Vector] = {}  # by method: period x (log-loss, Brier)
        self._gaps: dict[str, Vector] = {}  # by method: period x bin, the sum of forecast - outcome

    def add(self, chunk: Chunk, forecasts: dict[str, Vector], place: Ints) -> None:
        """Count a chunk."""
        if self._split is None:
            return
        if chunk.times is None:
            how = self._options.how("--time NAME", "times=")
            raise InvalidInput(f"two periods need dates of the events, got none; {how}")
        late = chunk.times >= self._split
        for period, within in ((BEFORE, ~late), (AFTER, late)):
            self._count(period, within & (place > 0), chunk, forecasts)

    def _count(self, period: int, rows: Flags, chunk: Chunk, forecasts: dict[str, Vector]) -> None:
        for at, (name, values) in enumerate(forecasts.items()):
            found = judged(values[rows], chunk.outcomes[rows])
            p, y = found.forecasts, found.outcomes
            if at == 0:
                self._judged[period] += len(y), y.sum()
            loss = -np.log(np.maximum(found.chances, floor_of(chunk.numbers)))
            sums = self._sums.setdefault(name, np.zeros((2, 2)))
            sums[period] += loss.sum(), found.squares.sum()
            gaps = self._gaps.setdefault(name, np.zeros((2, self._bins)))
            gaps[period] += np.bincount(np.searchsorted(self._edges, p, side="right"), p - y, minlength=self._bins)

    @property
    def found(self) -> list[SplitPeriod]:
        """The two periods, if a moment was given."""
        if self._split is None:
            return []
        names = f"before {iso(self._split)}", f"from {iso(self._split)}"
        return [self._period(period, names[period]) for period in (BEFORE, AFTER)]

    def _period(self, period: int, name: str) -> SplitPeriod:
        n, ones = self._judged[period].tolist()
        of = max(1.0, n)
        return {
            "name": name,
            "judged": int(n),
            "base_rate": number(ones / n) if n else None,
            "methods": {
                method: {
                    "log_loss": number(sums[period, 0] / of) if n else None,
                    "brier": number(sums[period, 1] / of) if n else None,
                    "ce": number(np.abs(self._gaps[method][period]).sum() / of) if n else None,
                }
                for method, sums in self._sums.items()
            },
        }


def sentences_on_periods(periods: list[SplitPeriod], labels: dict[str, str]) -> list[str]:
    """Each period in a sentence: log-loss of every method, the least first."""
    found = []
    for period in periods:
        losses = {labels[name]: m["log_loss"] for name, m in period["methods"].items() if m["log_loss"] is not None}
        ranked = sorted(losses, key=losses.__getitem__)
        digits = decimals(losses.values())
        shown = ", ".join(f"{label} {losses[label]:.{digits}f}" for label in ranked) or "nothing to compare"
        name = period["name"]
        found.append(f"{name[0].upper()}{name[1:]}, {counted(period['judged'], 'judged event')}: log-loss {shown}.")
    return found
