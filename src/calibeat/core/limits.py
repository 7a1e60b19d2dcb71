"""What the numbers of a row must be: each part declares limits, and rows from outside are checked.

A limit never refuses a row that a stream can reach. It keeps out what the kernels do not expect: NaN and infinity, a
parameter outside its ball, more ones than outcomes, a number of memory that is not there. What grows with the outcomes
has limits that grow with them: after n outcomes a number is in [low - falls n, high + rises n]. Where outcomes had
weights, each may count as much as the largest weight of the most trials.

    from .limits import Block, Limit

    def limits(self) -> list[Block]:                      # ten times two columns
        return [Block((Limit("sum", 0.0, 0.0, rises=1.0, under=1), Limit("count", 0.0, 0.0, rises=1.0)), 10)]
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from calibeat._util.types import Ints, Table, Vector
from calibeat.errors import InvalidInput

from .algebra import whole_part
from .layout import CLIPPED, TOTAL, N
from .stats import EVENTS, LOSS_FLOOR, LOSSES, STATS
from .subset import loop

MOST_COUNT = 2.0**53  # counts above are no longer exact
LEAST_WEIGHT = 1e-18  # of a part of a mixture, which gets a share of 0.5/n back with each outcome
MOST_WEIGHT, MOST_TRIALS = 1e12, 1e9  # of an outcome
MOST_PARAMETER = 1e9  # of a parameter that no ball bounds: it moves by less than 3 per outcome, back and forth
NATS_PER_OUTCOME = 17.0  # what an outcome can cost a probability inside [1e-7, 1 - 1e-7], and more
ROUNDED = 1.0 + 1e-9  # room for rounding
SUM_TOLERANCE = 1e-9


class Limit(NamedTuple):
    """What one number must be after n outcomes: in [low - falls n, high + rises n].

    `under`: it is at most the number that many columns further on (or, below 0, before). `until`: it is at most a
    number that is given with the rows. `mixture`: together with all numbers of this name it sums to 1.
    """

    name: str
    low: float
    high: float
    falls: float = 0.0
    rises: float = 0.0
    whole: bool = False
    under: int = 0
    until: bool = False
    mixture: str = ""


class Block(NamedTuple):
    """Columns that repeat; or the upper triangles of d x d matrices, where the `lanes` of an entry stand together."""

    columns: tuple[Limit, ...]
    times: int = 1
    d: int = 0
    lanes: int = 1


def matrices(name: str, diagonal: Sequence[tuple[float, float, float]], lanes: int = 1) -> Block:
    """Symmetric matrices, by the low, the high and the rise of each number of the diagonal."""
    high, rises = (max(limit[at] for limit in diagonal) for at in (1, 2))
    other = Limit(name, -high, high, rises, rises)
    columns: list[Limit] = []
    for i, (least, most, rise) in enumerate(diagonal):
        columns += [Limit(name, least, most, 0.0, rise)] * lanes
        columns += [other] * (lanes * (len(diagonal) - 1 - i))
    return Block(tuple(columns), 1, len(diagonal), lanes)


def weights(of: str, count: int, low: float = LEAST_WEIGHT) -> Block:
    """Weights of a mixture."""
    return Block((Limit(f"weights of {of}", low, 1.0, mixture=of),), count)


def tallies(count: int, imagined: float = 0.0) -> Block:
    """Pairs of a sum of outcomes and their count; `imagined` of them need not have happened."""
    most = imagined * MOST_WEIGHT  # imagined events count in the weights of the pool that they come from
    total = Limit("a sum of outcomes", 0.0, most, rises=1.0, under=1)
    return Block((total, Limit("a count of outcomes", 0.0, most, rises=1.0)), count)


def tempering(falls: float = 0.0, rises: float = NATS_PER_OUTCOME) -> Block:
    """What stale weights have cost, and the temper in force."""
    return Block((Limit("staleness", 0.0, 0.0, falls, rises), Limit("temper", 1.0, 1.0, rises=rises)))


def evidence(falls: float, rises: float) -> Block:
    """A likelihood ratio: what was folded away, as a logarithm, and what was not."""
    fold = math.log(1e100) + 1.0
    return Block((Limit("log evidence", -fold, fold, falls, rises), Limit("evidence", 1e-100, 1e100)))


# ---- compiled --------------------------------------------------------------------------------------------------------


class Bounds(NamedTuple):
    """The limits of a whole row, a number for each column; and those between columns."""

    low: Vector
    high: Vector
    falls: Vector
    rises: Vector
    outcomes: int  # the column with n
    total: int  # the column that is above 0 where outcomes had weights; -1: there is none
    weighted: bool  # whether all rows had weights
    whole: Ints  # columns
    under: Ints  # pairs of columns: the first is at most the second
    mixtures: Ints  # of each mixture: how many columns it has, and these
    matrices: Ints  # of each block: its column, d and lanes


OUTSIDE, FRACTION, NO_MIXTURE = 0, 1, 2


@loop
def find_bad(rows: Vector, stride: int, bounds: Bounds, wrong: Vector) -> int:  # noqa: C901 - one rule after the other
    """The first row with a number that it cannot have, or -1.

    `wrong` gets the first such column, what is wrong with it, and what it must be between (or the sum of a mixture).
    """
    for i in range(len(rows) // stride):
        row = rows[i * stride : (i + 1) * stride]
        n, what = row[bounds.outcomes], OUTSIDE
        grown = n
        if bounds.weighted or (bounds.total >= 0 and row[bounds.total] != 0.0):
            grown = n * (MOST_WEIGHT * MOST_TRIALS)
        column = -1 if 0.0 <= n <= MOST_COUNT else bounds.outcomes
        low, high = bounds.low[bounds.outcomes], bounds.high[bounds.outcomes]
        for j in range(stride):
            least, most = bounds.low[j] - bounds.falls[j] * grown, bounds.high[j] + bounds.rises[j] * grown
            if column < 0 and not least <= row[j] <= most:
                column, low, high = j, least, most
        for k in range(len(bounds.whole)):
            if column < 0 and row[bounds.whole[k]] != whole_part(row[bounds.whole[k]]):
                column, what = bounds.whole[k], FRACTION
        for k in range(0, len(bounds.under), 2):
            if column < 0 and row[bounds.under[k]] > row[bounds.under[k + 1]]:
                column, low, high = bounds.under[k], 0.0, row[bounds.under[k + 1]]
        at = 0
        while at < len(bounds.mixtures):
            first, total = at + 1, 0.0
            at = first + bounds.mixtures[at]
            for k in range(first, at):
                total += row[bounds.mixtures[k]]
            if column < 0 and abs(total - 1.0) > SUM_TOLERANCE:
                column, what, low = bounds.mixtures[first], NO_MIXTURE, total
        for k in range(0, len(bounds.matrices), 3):
            at, d, lanes = bounds.matrices[k], bounds.matrices[k + 1], bounds.matrices[k + 2]
            for a in range(d):
                one, other = at, at  # where the two diagonals of a number stand, which allow it to be so far from 0
                for b in range(a, d):
                    for lane in range(lanes):
                        most = row[one + lane] * row[other + lane]
                        if column < 0 and row[at + lane] * row[at + lane] > most * (1.0 + 1e-6):
                            column, low, high = at + lane, -math.sqrt(most), math.sqrt(most)
                    at += lanes
                    other += (d - b) * lanes
        if column >= 0:
            wrong[0], wrong[1], wrong[2], wrong[3] = column, what, low, high
            return i
    return -1


# ---- rows from outside -----------------------------------------------------------------------------------------------


class RowLimits:
    """The limits of a row that consists of these blocks.

    `outcomes` is the column that counts them, and `total`, if there is one, is above 0 where they had weights.
    """

    def __init__(self, blocks: Iterable[Block], outcomes: int, total: int = -1) -> None:
        self._blocks = list(blocks)
        parts, mixtures, triangles, at = [], dict[str, list[int]](), list[int](), 0
        for block in self._blocks:
            numbers = [limit[1 : Limit._fields.index("mixture")] for limit in block.columns]
            parts.append(np.tile(np.array(numbers, dtype=np.float64), (block.times, 1)))
            if block.d:
                triangles += [at, block.d, block.lanes]
            if name := block.columns[0].mixture:
                mixtures.setdefault(name, []).extend(range(at, at + block.times))
            at += len(parts[-1])
        low, high, falls, rises, whole, under, until = np.ascontiguousarray(np.concatenate(parts).T)
        above = np.flatnonzero(under)
        sums = [number for places in mixtures.values() for number in (len(places), *places)]
        self._until = until > 0.0
        self.bounds = Bounds(
            low,
            high,
            falls,
            rises,
            outcomes,
            total,
            False,
            np.flatnonzero(whole),
            np.stack([above, above + under[above].astype(np.int64)], axis=1).reshape(-1),
            np.array(sums, dtype=np.int64),
            np.array(triangles, dtype=np.int64),
        )

    def __len__(self) -> int:
        """How many columns a row has."""
        return len(self.bounds.low)

    def name(self, column: int) -> str:
        """The name of a column."""
        for block in self._blocks:
            size = len(block.columns) * block.times
            if column < size:
                break
            column -= size
        return block.columns[column % len(block.columns)].name

    def check(
        self, rows: Table, until: float = 0.0, what: str = "rows", at: str = "row", *, weighted: bool = False
    ) -> None:
        """Check rows, which have no other columns; `what` they are, and what one of them is called, if it is named.

        `weighted` says that outcomes had weights, where no column of the rows does.

        Raises
        ------
        InvalidInput : a number cannot be in such a row. The message names the first one.
        """
        bounds = self.bounds._replace(high=np.where(self._until, until, self.bounds.high), weighted=weighted)
        flat = np.ascontiguousarray(rows).reshape(-1)
        wrong = np.zeros(4)
        row = find_bad(flat, len(self), bounds, wrong)
        if row < 0:
            return
        (column, rule), (low, high) = wrong[:2].astype(int).tolist(), wrong[2:].tolist()
        name, got = self.name(column), float(flat[row * len(self) + column])
        must = f"have {name} in [{low:.9g}, {high:.9g}]"
        if rule == FRACTION:
            must = f"have {name} as a whole number"
        elif rule == NO_MIXTURE:
            must, got = f"have {name} that sum to 1", low
        raise InvalidInput(f"{what} must {must}, got {got!r}{f' - at {at} {row}' if at else ''}")


def _counts(width: int, spread: float) -> list[Block]:
    """The first columns of a row of this width: its counts, and the sums of weights.

    `spread` is the largest squared residual of a forecast.
    """
    events = Limit("events at the last outcome", 0.0, MOST_COUNT, whole=True, under=width + EVENTS)
    counts = Block((events, Limit("outcomes", 0.0, MOST_COUNT, whole=True, under=-1)))
    once, squared = (
        Limit("sums of weights", 0.0, 0.0, rises=spread),
        Limit("squared weights", 0.0, 0.0, rises=MOST_WEIGHT),
    )
    clipped = Limit("clipped weights", 0.0, MOST_COUNT, whole=True, under=N - CLIPPED)
    return [counts, Block((once, squared)), Block((once, squared)), Block((once, squared, clipped))]


def _stats(heaviest: float) -> list[Block]:
    """The stats behind a row, where an outcome of weight 1 stands for so many events at most."""
    events = Limit("events", 0.0, MOST_COUNT, whole=True)
    last = Limit("a last event", 0.0, 0.0, whole=True, until=True)
    # A score of many classes may be above 1 by a rounding, and its loss below 0.
    rises = 1.01 * heaviest * max(2.0, -math.log(LOSS_FLOOR))
    losses = (Limit(name, 0.0, 0.0, 1e-11, rises) for name in LOSSES)
    return [Block((events, last, *losses, Limit("a sum of weights", 0.0, 0.0, rises=heaviest * ROUNDED)))]


@lru_cache(maxsize=64)
def limits_of(method: Any, groups: Any = None) -> RowLimits:
    """The limits of a row of a method, behind it the numbers of groups, if there are any, and the stats."""
    own = [*method.limits(), *(() if groups is None else groups.limits())]
    width = method.width + (0 if groups is None else groups.row_width)
    spread = 1.0 if method.numbers == 1 else 2.0 * ROUNDED
    return RowLimits([*_counts(width, spread), *own, *_stats(max(1.0, method.spec.odds))], N, TOTAL)


def check_rows(method: Any, matrix: Table, clock: float, groups: Any = None) -> None:
    """Check a matrix of rows that comes from outside, with the stats behind each row: kernels trust their rows.

    `clock` is how many events their host has had.

    Raises
    ------
    InvalidInput : no stream of this method can have such a row. The message names the first one, and its number.
    """
    limits_of(method, groups).check(matrix, clock)


def check_row(method: Any, row: Sequence[float] | Vector, events: float, groups: Any = None) -> None:
    """Check one row that comes from outside without its stats, of a stream that has made so many forecasts.

    Raises
    ------
    InvalidInput : no stream of this method can have it.
    """
    stats = np.zeros(STATS)
    stats[EVENTS] = events
    limits_of(method, groups).check(np.concatenate([row, stats])[None], what="row", at="")
