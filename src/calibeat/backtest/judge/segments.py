"""Who is miscalibrated? Segments of events by their attributes, judged in the order in which outcomes arrive.

A segment is a cell of the groups: an attribute with a value, or two attributes with theirs. Three forecasts are judged:
the raw score, AUTO, and AUTO with groups. Each has an e-value of its own in each segment, by the same bet (`won` of
`core.groups`): if the forecasts of a segment are right, it reaches 1/alpha with probability alpha at most, whenever one
looks.
Which of many segments are called miscalibrated is decided by e-BH, with a false discovery rate of 5 %.

Judged events count: not the warm-up, and also those whose outcome arrives after the last forecast, in the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from calibeat._util.types import Ints, Vector
from calibeat.backtest.options import Maturity
from calibeat.backtest.read.attributes import LEAST_EVENTS, GroupsOfLog
from calibeat.backtest.read.rows import Chunk
from calibeat.backtest.replay.contenders import Contender, GroupedReplay
from calibeat.backtest.replay.late import Underway
from calibeat.core.algebra import exp
from calibeat.core.groups import stake, won
from calibeat.core.randomness import cross_words
from calibeat.core.subset import entry, kernel
from calibeat.hosts.groups import ALPHA, Groups, e_bh
from calibeat.report.schema import HeatMap, SegmentColumns, SegmentsInfo, SpreadRow

MOST_SEGMENTS = 2**17  # that are followed: the first of the log
INDEX_SLOTS = 4 * MOST_SEGMENTS
MOST_SHOWN = 2000
MOST_IN_MAP = 20  # values of an attribute
MOST_RIVALS = 3  # forecasts: raw, AUTO, groups

# Numbers of a segment; behind them three of each forecast.
EVENTS, ONES, COLUMN, FIRST_FORECAST = 0, 1, 2, 3
SUM_FORECAST, VARIANCE, LOG_E, FORECAST_WIDTH = 0, 1, 2, 3
SEGMENT_WIDTH = FIRST_FORECAST + MOST_RIVALS * FORECAST_WIDTH


class Followed(NamedTuple):
    """The segments that are followed. `places` lead from a word to a segment, counted from 1; 0: a free place.

    `parents` are the words of the two attributes of a segment (its own and 0, where it has one). `used` counts the
    segments, and visits to those that are not followed.
    """

    attributes: int
    columns: int
    pairs: Ints
    places: Ints
    words: Ints
    parents: Ints
    numbers: Vector
    used: Ints


@kernel
def segment_of(to: Followed, word: int, k: int, first: int, second: int) -> int:
    """The segment of a word, which is followed from now on if there is room; -1 if there is none."""
    at = word & (INDEX_SLOTS - 1)
    while to.places[at] != 0:
        if to.words[to.places[at] - 1] == word:
            return to.places[at] - 1
        at = (at + 1) & (INDEX_SLOTS - 1)
    if to.used[0] == len(to.words):
        to.used[1] += 1
        return -1
    segment = to.used[0]
    to.used[0] = segment + 1
    to.places[at] = segment + 1
    to.words[segment] = word
    to.parents[2 * segment], to.parents[2 * segment + 1] = first, second
    to.numbers[segment * SEGMENT_WIDTH + COLUMN] = k
    return segment


@entry
def tally_segments(to: Followed, words: Ints, outcomes: Vector, forecasts: Vector, order: Ints) -> None:
    """Count the events of `order` in their segments. `forecasts` has three of each event, event by event."""
    K = to.attributes
    for j in range(len(order)):
        i = order[j]
        y = outcomes[i]
        for k in range(to.columns):
            first, second = 0, 0
            if k < K:
                first = words[i * K + k]
                word = first
            else:
                pair = 2 * (k - K)
                first, second = words[i * K + to.pairs[pair]], words[i * K + to.pairs[pair + 1]]
                word = cross_words(first, second)
            segment = segment_of(to, word, k, first, second)
            if segment >= 0:
                count_segment(to.numbers, segment * SEGMENT_WIDTH, y, forecasts, i * MOST_RIVALS)


@kernel
def count_segment(numbers: Vector, at: int, y: float, forecasts: Vector, event: int) -> None:
    """One event: a bet against each forecast, then the sums."""
    for f in range(MOST_RIVALS):
        p, own = forecasts[event + f], at + FIRST_FORECAST + f * FORECAST_WIDTH
        theta = stake(numbers[at + ONES], numbers[own + SUM_FORECAST], numbers[own + VARIANCE])
        numbers[own + LOG_E] += won(theta, exp(theta), y, 1.0, p)
        numbers[own + SUM_FORECAST] += p
        numbers[own + VARIANCE] += p * (1.0 - p)
    numbers[at + EVENTS] += 1.0
    numbers[at + ONES] += y


class SegmentTally:
    """Counts the chunks of a log in segments. Memory is bounded: the first segments are followed, and no others."""

    def __init__(self, groups: Groups, names: Sequence[str], maturity: Maturity | None) -> None:
        self.groups, self.names = groups, list(names)  # of the raw score, AUTO, and AUTO with groups
        self._underway: Underway | None = None
        self._maturity = maturity
        K = len(groups.attributes)
        self._followed = Followed(
            K,
            len(groups.columns),
            np.array(groups.pairs, dtype=np.int64).reshape(-1),
            np.zeros(INDEX_SLOTS, dtype=np.int64),
            np.zeros(MOST_SEGMENTS, dtype=np.int64),
            np.zeros(2 * MOST_SEGMENTS, dtype=np.int64),
            np.zeros(MOST_SEGMENTS * SEGMENT_WIDTH),
            np.zeros(2, dtype=np.int64),
        )
        # Of events under way:
        self._words = np.empty((0, K), dtype=np.int64)
        self._forecasts, self._outcomes = np.empty((0, MOST_RIVALS)), np.empty(0)

    def add(self, chunk: Chunk, forecasts: dict[str, Vector], place: Ints) -> None:
        """Count the outcomes that arrive within a chunk."""
        if chunk.words is None:  # pragma: no cover - the reader was told to read the attributes
            raise TypeError("a chunk without attributes has no segments")
        said = np.column_stack([forecasts[name] for name in self.names])
        outcomes = np.where(place > 0, chunk.outcomes, np.nan)  # the warm-up is judged nowhere
        if chunk.clock is None:
            self._count(chunk.words, outcomes, said, np.arange(len(chunk)))
            return
        self._underway = self._underway or Underway(self._maturity)
        plan = self._underway.plan(chunk)
        words = np.concatenate([self._words, chunk.words])
        said, outcomes = np.concatenate([self._forecasts, said]), np.concatenate([self._outcomes, outcomes])
        self._count(words, outcomes, said, plan.order)
        self._words, self._forecasts, self._outcomes = words[plan.left], said[plan.left], outcomes[plan.left]

    def finish(self) -> None:
        """Count the outcomes that arrive after the last forecast."""
        if self._underway is not None:
            self._count(self._words, self._outcomes, self._forecasts, self._underway.rest())
            self._outcomes = np.full(len(self._outcomes), np.nan)

    def _count(self, words: Ints, outcomes: Vector, said: Vector, order: Ints) -> None:
        known = order[~np.isnan(outcomes[order])]
        flat = np.ascontiguousarray(words).reshape(-1)
        tally_segments(self._followed, flat, outcomes, np.ascontiguousarray(said).reshape(-1), known)

    @property
    def left_out(self) -> bool:
        """Whether there were segments that are not followed."""
        return bool(self._followed.used[1])

    def table(self) -> SegmentTable:
        """All segments with enough events, strongest evidence against AUTO first."""
        count = int(self._followed.used[0])
        numbers = self._followed.numbers.reshape(-1, SEGMENT_WIDTH)[:count]
        enough = np.flatnonzero(numbers[:, EVENTS] >= LEAST_EVENTS)
        auto = numbers[enough, FIRST_FORECAST + FORECAST_WIDTH + LOG_E]
        enough = enough[np.lexsort((self._followed.words[enough], -auto))]
        return SegmentTable(numbers[enough], self._followed.parents.reshape(-1, 2)[enough])


class SegmentTable:
    """Segments as columns. Forecasts come first in the shape of `said`, `log_e` and `flagged`: three rows each."""

    def __init__(self, numbers: Vector, parents: Ints) -> None:
        self.parents = parents
        self.column = numbers[:, COLUMN].astype(np.int64)
        self.events = numbers[:, EVENTS]
        self.rate = numbers[:, ONES] / self.events
        by_forecast = numbers[:, FIRST_FORECAST:].reshape(-1, MOST_RIVALS, FORECAST_WIDTH)
        self.said: Vector = by_forecast[:, :, SUM_FORECAST].T / self.events
        self.log_e: Vector = by_forecast[:, :, LOG_E].T
        self.flagged: npt.NDArray[np.bool_] = np.array([e_bh(log_e, ALPHA) for log_e in self.log_e], dtype=np.bool_)

    def __len__(self) -> int:
        return len(self.column)


# ---- the section -------------------------------------------------------------------------------------------------


def segments_of(contenders: Sequence[Contender], maturity: Maturity | None) -> SegmentTally | None:
    """What counts the segments, where one contender has groups."""
    grouped = next((each for each in contenders if each.groups is not None), None)
    if grouped is None or grouped.groups is None:
        return None
    auto = next(each for each in contenders if each.is_default)
    return SegmentTally(grouped.groups, [contenders[0].name, auto.name, grouped.name], maturity)


def segment_section(segments: SegmentTally, log: GroupsOfLog, replay: GroupedReplay) -> SegmentsInfo:
    """What the page shows of the segments, once the log has ended."""
    segments.finish()
    table, groups, spread = segments.table(), segments.groups, replay.spread
    K = len(groups.attributes)
    attributes = [(k,) for k in range(K)] + groups.pairs

    def value(row: int) -> list[str]:
        return [
            log.name_of(k, int(word))
            for k, word in zip(attributes[table.column[row]], table.parents[row], strict=False)
        ]

    shown = range(min(len(table), MOST_SHOWN))
    flagged = dict(zip(segments.names, table.flagged.sum(axis=1).tolist(), strict=True)) if len(table) else {}
    rows: SegmentColumns = {
        "attribute": [groups.columns[table.column[row]] for row in shown],
        "value": [value(row) for row in shown],
        "events": [int(table.events[row]) for row in shown],
        "rate": [float(table.rate[row]) for row in shown],
        "methods": {
            name: {
                "said": table.said[f, : len(shown)].tolist(),
                "log_e": table.log_e[f, : len(shown)].tolist(),
                "flagged": table.flagged[f, : len(shown)].tolist(),
            }
            for f, name in enumerate(segments.names)
        },
    }
    return {
        "attributes": list(groups.attributes),
        "least": LEAST_EVENTS,
        "rate": ALPHA,
        "total": len(table),
        "flagged": {name: int(flagged.get(name, 0)) for name in segments.names},
        "sentence": sentence(table),
        "spread": spreads(spread),
        "map": heat_map(segments, table, log, spread),
        "rows": rows,
        "notes": notes(segments, table, replay.warning),
    }


def sentence(table: SegmentTable) -> str:
    """How many segments there are, and how many of them are shown to be miscalibrated under each forecast."""
    total = len(table)
    if total == 0:
        return f"No segment has {LEAST_EVENTS} judged events or more: there is nothing to tell."
    raw, auto, grouped = table.flagged.sum(axis=1).tolist()
    among = f"Of {total:,} segments with {LEAST_EVENTS} events or more" if total > 1 else "In the only segment"
    if raw + auto + grouped == 0:
        return f"{among}, none is shown to be miscalibrated. That is not proof that none is."
    verb = "is" if raw == 1 else "are"
    return (
        f"{among}, {raw:,} {verb} shown to be miscalibrated under the raw score, {auto:,} under AUTO, {grouped:,} with "
        f"groups (false discovery rate {100 * ALPHA:.0f} %)."
    )


def spreads(spread: dict[str, float]) -> list[SpreadRow]:
    """How much the values of each column differ, largest first: in logits, and in points where a forecast is 50 %."""
    order = sorted(spread, key=lambda column: -spread[column])
    return [
        {"column": column, "spread": spread[column], "points": 100.0 * (1.0 / (1.0 + math.exp(-spread[column])) - 0.5)}
        for column in order
    ]


def heat_map(segments: SegmentTally, table: SegmentTable, log: GroupsOfLog, spread: dict[str, float]) -> HeatMap | None:
    """The two attributes whose crossing has the largest spread: what happened less what was said, in each cell."""
    groups, K = segments.groups, len(segments.groups.attributes)
    crossings = [k for k in range(K, len(groups.columns)) if (table.column == k).any()]
    if not crossings:
        return None
    k = max(crossings, key=lambda column: spread[groups.columns[column]])
    of = groups.pairs[k - K]
    values = {attribute: _most_common(table, attribute, log.rank_of) for attribute in of}
    second, first = sorted(of, key=lambda attribute: len(values[attribute]))  # more values go down than across
    down, across = values[first], values[second]
    at = {frozenset(parents): row for row, parents in enumerate(table.parents.tolist()) if table.column[row] == k}
    cells = [[at.get(frozenset((a, b))) for b in across] for a in down]

    def each(column: Any) -> Any:
        return [[None if row is None else column[row].item() for row in line] for line in cells]

    return {
        "attributes": [groups.attributes[first], groups.attributes[second]],
        "down": [log.name_of(first, word) for word in down],
        "across": [log.name_of(second, word) for word in across],
        "events": each(table.events.astype(np.int64)),
        "methods": {
            name: {"gap": each(table.rate - table.said[f]), "flagged": each(table.flagged[f])}
            for f, name in enumerate(segments.names)
            if f > 0
        },
    }


def _most_common(table: SegmentTable, k: int, rank: Callable[[int], tuple[int, float, str]]) -> list[int]:
    """The words of the most common values of an attribute, in the order in which people read them."""
    rows = np.flatnonzero(table.column == k)
    rows = rows[np.argsort(-table.events[rows], kind="stable")][:MOST_IN_MAP]
    return sorted((int(table.parents[row, 0]) for row in rows), key=rank)


def notes(segments: SegmentTally, table: SegmentTable, warning: str | None) -> list[str]:
    """What a reader must know beside the numbers."""
    found = []
    if len(segments.groups.attributes) > 1:
        found.append("Segments overlap; an offset is what is left when the others are accounted for.")
    if len(table) > MOST_SHOWN:
        found.append(f"The table has the {MOST_SHOWN:,} segments with the strongest evidence against AUTO.")
    if segments.left_out:
        found.append(f"There are more segments: the first {MOST_SEGMENTS:,} of the log were followed.")
    return found if warning is None else [*found, f"{warning[0].upper()}{warning[1:]}."]
