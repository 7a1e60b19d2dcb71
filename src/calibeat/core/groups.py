"""Groups: what the attributes of an event (country, device, hour) say beside its score.

A *column* is an attribute, or a crossing of two. A *cell* is a column with a value: "country=fr", or "country=fr and
device=ios". An event has one cell in each of the C columns. Attributes come first, in their order, then crossings.

Two lanes, `still` (rate 0) and `fleeting` (rate 0.01), are logistic models with the expert's logit l as offset. A cell
has an offset mu and, in the columns of single attributes, a slope s::

    l = clip(logit m, -8, 8);  x = clip(l, -4, 4);  logit e = l + sum over the event's cells (mu + s x)
    g = w_0 m + w_1 e_still + w_2 e_fleeting

g, the grouped expert, takes the place of the expert m in what stands behind the learner.

**Cells.** A lane keeps in a cell only what the data said: information L and natural mean H (of the slope: sL and sH).
The prior enters when the cell is read, so that its variance tau can be learnt. A and B of a column are the sums of
a = mu^2 and b = 1 - v/tau over its cells::

    tau = clip((A + N0 TAU0)/(B + N0), 1e-4, 4);  v = 1/(1/tau + L);  mu = H v

**Table.** A cell is found by its word: 64 bits, a keyed hash of column and value. The table has `slots` places, in
buckets of eight. Only outcomes open cells. A full bucket gives up the cell that is worth least and was not seen for
longest. So memory is bounded, whatever the attributes are.

**Records** of each cell: events, sums of ones, score, expert and forecast by the weights of the events, and a bet
against the forecast. The bet's logarithm, log e, is evidence that the forecasts in this cell are wrong. Once an outcome
had a weight other than 1 no bet would be fair: log e stays as it is.

Kernels see words only. In a row the numbers of the groups stand behind those of the method, from `Cells.start` on.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from calibeat._util.types import Bytes, Ints, Vector

from .algebra import exps, ln, power
from .auto import LATE, LAZY, SHARE, STEP, bounded, inside, issued_logit, squashed, staleness
from .kernel import Asked, Played, look_back, play, settle_learner, settle_rest
from .layout import N, Spec
from .limits import MOST_WEIGHT, Block, Limit, RowLimits, tempering
from .limits import weights as weight_limits
from .randomness import cross_words
from .receipt import EXPERT, FORECAST, ISSUED, MOST_RECEIPT, SCORE, SEEN
from .subset import blank, entry, kernel, large_kernel, loop, prefetch, scratch
from .weights import (
    Lesson,
    Outcome,
    is_nothing,
    is_plain,
    likelihood_of,
    lump,
    note_event,
    one_event,
    pace,
    portion,
    spread,
)

RATES = (0.0, 0.01)  # still, fleeting: what a visit takes from a cell, divided by the columns of an event
PRIOR = (1.0 / 2.0, 1.0 / 3.0, 1.0 / 6.0)  # weights of expert, still, fleeting
LANES = 2
X_MOST = 4.0  # the expert's logit as the factor of a slope
TAU0, N0, TAU_LEAST, TAU_MOST = 0.05, 2.0, 1e-4, 4.0  # prior variance of a column: first guess, its weight, bounds
SLOPE_TAU = 0.3  # prior variance of a slope / that of an offset
BET_INFORMATION, BET_MOST = 3.0, 1.0  # of the bet: prior information, largest offset
WAYS = 8  # slots of a bucket: their words are one cache line
CACHE_LINE = 8  # numbers
WORTH_UNIT = 1048576.0  # worth is rounded to 1/2^20, so that the last bits of a float decide nothing
LEAST_WORTH = 0.001
MOST_ATTRIBUTES, MOST_COLUMNS = 16, 32

# ---- in a row, from `Cells.start` on ---------------------------------------------------------------------------------
GROUP_STALENESS, GROUP_TEMPER = 0, 1
GROUP_WEIGHT = 2  # of expert, still, fleeting
OPENED, EVICTED = 5, 6  # cells
GROUP_SUMS = 7  # A of still (C numbers), A of fleeting, B of still, B of fleeting

# ---- a cell: numbers of a slot ---------------------------------------------------------------------------------------
INFO, NATURAL, SLOPE_INFO, SLOPE_NATURAL = 0, 1, 2, 3  # L, H, sL, sH of still; those of fleeting are 4 later
LANE_WIDTH = 4
TERMS = 8  # a, b of still, a, b of fleeting
COLUMN, LAST = 12, 13  # its column; the outcome that visited it last
EVENTS, ONES, SUM_SCORE, SUM_EXPERT, SUM_FORECAST, VARIANCE, LOG_E = 14, 15, 16, 17, 18, 19, 20
WEIGHTS = 21  # of its events, which the sums are of
SUMS = {"ones": ONES, "scores": SUM_SCORE, "experts": SUM_EXPERT, "forecasts": SUM_FORECAST}
CELL_NUMBERS = 22
CELL_WIDTH = 24  # with what fills the third cache line; the first has all that a forecast needs

# ---- in a receipt, from `Cells.receipt` on; its words are kept beside it ---------------------------------------------
STILL, FLEETING, GROUPED = 0, 1, 2
GROUPED_RECEIPT_WIDTH = 3
MOST_GROUPED_RECEIPT = MOST_RECEIPT + GROUPED_RECEIPT_WIDTH

KNOWN_WIDTH = 5  # numbers of `Cells.known` for each column: mu, v, s, sv, tau


class Cells(NamedTuple):
    """The table of a stream, and what its columns are.

    `pairs` has the two attributes of each crossing. `tags` has the word of each slot, 0 where it is free; `parents` the
    words of its two attributes (its own and 0, where it has one); `numbers` its numbers, and behind them those of
    `MOST_COLUMNS` spare cells, for events that find no room.

    `found` has the words of an event's cells and, behind them, their slots; `known` is scratch. `touched` counts in its
    first number the slots that have changed, and lists them. `marks` has 1 for each of them.
    """

    attributes: int
    columns: int
    slots: int
    start: int
    receipt: int
    pairs: Ints
    tags: Ints
    parents: Ints
    numbers: Vector
    found: Ints
    known: Vector
    touched: Ints
    marks: Bytes


_NO_INTS: Ints = np.empty(0, dtype=np.int64)
_NO_NUMBERS: Vector = np.empty(0)
NO_CELLS = Cells(
    attributes=0,
    columns=0,
    slots=0,
    start=0,
    receipt=0,
    pairs=_NO_INTS,
    tags=_NO_INTS,
    parents=_NO_INTS,
    numbers=_NO_NUMBERS,
    found=_NO_INTS,
    known=_NO_NUMBERS,
    touched=_NO_INTS,
    marks=np.empty(0, dtype=np.uint8),
)  # of a stream without groups


# ---- what numbers from outside must be -------------------------------------------------------------------------------

ROUNDING = 1e-3  # of sums that cells enter and leave
MOST_OFFSET = 1e15  # the square of a cell's offset


def row_limits(columns: int) -> list[Block]:
    """What the numbers of the groups in a row can be."""
    opened = Limit("opened cells", 0.0, 0.0, rises=float(columns), whole=True)
    sums = Limit("sums over cells", -ROUNDING, MOST_OFFSET)
    return [
        tempering(),
        weight_limits("groups", LANES + 1),
        Block((opened, opened._replace(name="evicted cells", under=-1))),
        Block((sums,), 2 * LANES * columns),
    ]


def cell_limits(columns: int) -> RowLimits:
    """What the numbers of a cell can be; each counts its own outcomes."""
    most = 10.0 * MOST_OFFSET
    own = Limit("information", -ROUNDING, 1.0, rises=5.0), Limit("natural means", -most, most)
    count = Limit("outcomes", 1.0, 0.0, whole=True, until=True)
    sums = (Limit(f"a sum of {name}", 0.0, 0.0, rises=1.0, under=WEIGHTS - at) for name, at in SUMS.items())
    variance, weights = Limit("a variance", 0.0, 0.0, rises=MOST_WEIGHT), Limit("a sum of weights", 0.0, 0.0, rises=1.0)
    return RowLimits(
        [
            Block(own, 2 * LANES),
            Block((Limit("a squared offset", 0.0, MOST_OFFSET), Limit("a share", -1.0, 1.0)), LANES),
            Block((Limit("a column", 0.0, columns - 1.0, whole=True), count._replace(name="a last outcome"), count)),
            Block((*sums, variance, Limit("log e", 0.0, 0.0, 2.0, 2.0), weights)),
        ],
        EVENTS,
    )


# ---- finding cells ---------------------------------------------------------------------------------------------------


@kernel
def word_of(cells: Cells, words: Ints, k: int) -> int:
    """The word of an event's cell in column k; `words` are those of its attributes."""
    if k < cells.attributes:
        return words[k]
    pair = 2 * (k - cells.attributes)
    return cross_words(words[cells.pairs[pair]], words[cells.pairs[pair + 1]])


@kernel
def bucket_of(cells: Cells, word: int) -> int:
    """The first slot of the bucket that a word belongs to."""
    return (word & (cells.slots // WAYS - 1)) * WAYS


@kernel
def find(cells: Cells, word: int) -> int:
    """The slot of a cell, -1 where it is not there. Which of the eight it is would be a guess for a branch."""
    first, slot = bucket_of(cells, word), -1
    for other in range(first, first + WAYS):
        slot = other if cells.tags[other] == word else slot
    return slot


@kernel
def find_cells(cells: Cells, words: Ints, found: Ints) -> None:
    """The words of an event's cells and, behind them, their slots. Memory is asked for before it is needed."""
    for k in range(cells.columns):
        word = word_of(cells, words, k)
        found[k] = word
        prefetch(cells.tags, bucket_of(cells, word))
    for k in range(cells.columns):
        slot = find(cells, found[k])
        found[MOST_COLUMNS + k] = slot
        if slot >= 0:
            for line in range(CELL_WIDTH // CACHE_LINE):
                prefetch(cells.numbers, slot * CELL_WIDTH + line * CACHE_LINE)
        else:  # what is worth least in the bucket may have to leave
            for other in range(bucket_of(cells, found[k]), bucket_of(cells, found[k]) + WAYS):
                prefetch(cells.numbers, other * CELL_WIDTH + TERMS)


@kernel
def place_cell(cells: Cells, row: Vector, words: Ints, k: int, n: float) -> None:
    """See to it that an event has a slot in column k at outcome n. A cell that is not there is opened."""
    slot = cells.found[MOST_COLUMNS + k]
    # A cell that this event has opened may have taken the slot.
    if slot < 0 or cells.tags[slot] != cells.found[k]:
        slot = open_cell(cells, row, words, cells.found[k], k, n)
        cells.found[MOST_COLUMNS + k] = slot
    elif cells.marks[slot] == 0:
        touch(cells, slot)
    cells.numbers[slot * CELL_WIDTH + LAST] = n


@large_kernel
def open_cell(cells: Cells, row: Vector, words: Ints, word: int, k: int, n: float) -> int:
    """A slot with all numbers 0: a free one; or that of the cell worth least; or one that is kept nowhere."""
    slot = slot_to_fill(cells, word, n)
    if slot < 0:  # all cells of the bucket are of this event: use a spare one, once
        slot = cells.slots + k
    else:
        if cells.marks[slot] == 0:
            touch(cells, slot)
        if cells.tags[slot] != 0:
            evict(cells, row, slot)
        row[cells.start + OPENED] += 1.0
        cells.tags[slot] = word
        pair = 2 * (k - cells.attributes)
        cells.parents[2 * slot] = word if pair < 0 else words[cells.pairs[pair]]
        cells.parents[2 * slot + 1] = 0 if pair < 0 else words[cells.pairs[pair + 1]]
    for i in range(CELL_NUMBERS):
        cells.numbers[slot * CELL_WIDTH + i] = 0.0
    cells.numbers[slot * CELL_WIDTH + COLUMN] = k
    return slot


@kernel
def slot_to_fill(cells: Cells, word: int, n: float) -> int:
    """The first free slot of the bucket; else the one with the least worth for its age; -1 if all are of outcome n."""
    first = bucket_of(cells, word)
    slot, least = -1, math.inf
    for other in range(first, first + WAYS):
        if cells.tags[other] == 0:
            return other
        at = other * CELL_WIDTH
        if cells.numbers[at + LAST] < n:
            worth = int(cells.numbers[at + TERMS + 1] * WORTH_UNIT + 0.5) / WORTH_UNIT
            value = (worth + LEAST_WORTH) / (1.0 + (n - cells.numbers[at + LAST]) / cells.slots)
            if value < least:
                slot, least = other, value
    return slot


@kernel
def evict(cells: Cells, row: Vector, slot: int) -> None:
    """A cell leaves, and its terms leave the sums of its column."""
    at = slot * CELL_WIDTH
    k = int(cells.numbers[at + COLUMN])
    sums = cells.start + GROUP_SUMS
    for lane in range(LANES):
        row[sums + lane * cells.columns + k] -= cells.numbers[at + TERMS + 2 * lane]
        row[sums + (LANES + lane) * cells.columns + k] -= cells.numbers[at + TERMS + 2 * lane + 1]
    row[cells.start + EVICTED] += 1.0


@large_kernel
def touch(cells: Cells, slot: int) -> None:
    """List a slot that changes for the first time."""
    count = cells.touched[0]
    cells.marks[slot] = 1
    cells.touched[count + 1] = slot
    cells.touched[0] = count + 1


@entry
def forget_touched(cells: Cells) -> None:
    """From here on slots that change are listed anew."""
    for j in range(cells.touched[0]):
        cells.marks[cells.touched[j + 1]] = 0
    cells.touched[0] = 0


# ---- forecast --------------------------------------------------------------------------------------------------------


@kernel
def prior_variance(cells: Cells, row: Vector, lane: int, k: int) -> float:
    """tau of a lane in column k."""
    sums = cells.start + GROUP_SUMS + lane * cells.columns + k
    tau = (row[sums] + N0 * TAU0) / (row[sums + LANES * cells.columns] + N0)
    return bounded_variance(tau)


@kernel
def bounded_variance(tau: float) -> float:
    """tau inside its bounds."""
    tau = max(TAU_LEAST, tau)
    return min(TAU_MOST, tau)


@kernel
def shrunk(top: float, information: float) -> float:
    """1/(1/top + information), the variance of a parameter with prior variance top."""
    return top / (1.0 + top * information)


@kernel
def said(cells: Cells, row: Vector, lane: int, k: int, slot: int, x: float) -> float:
    """mu + s x of a cell."""
    at = slot * CELL_WIDTH + lane * LANE_WIDTH
    tau = prior_variance(cells, row, lane, k)
    mu = cells.numbers[at + NATURAL] * shrunk(tau, cells.numbers[at + INFO])
    if k >= cells.attributes:
        return mu
    return mu + cells.numbers[at + SLOPE_NATURAL] * shrunk(SLOPE_TAU * tau, cells.numbers[at + SLOPE_INFO]) * x


@kernel
def grouped(cells: Cells, row: Vector, words: Ints, found: Ints, receipt: Vector) -> float:
    """g, for a receipt that holds m; what each lane says is put in the receipt."""
    find_cells(cells, words, found)
    e0, e1, g = grouped_on(cells, row, found, receipt[EXPERT])
    at = cells.receipt
    receipt[at + STILL], receipt[at + FLEETING], receipt[at + GROUPED] = e0, e1, g
    return g


@kernel
def grouped_on(cells: Cells, row: Vector, found: Ints, m: float) -> tuple[float, float, float]:
    """What the two lanes say on the expert m, and g. A cell that is not there says 0."""
    logit = issued_logit(m)
    x = bounded(logit, X_MOST)
    still, fleeting = logit, logit
    for k in range(cells.columns):
        slot = found[MOST_COLUMNS + k]
        if slot >= 0:
            still += said(cells, row, 0, k, slot, x)
            fleeting += said(cells, row, 1, k, slot, x)
    e0, e1 = squashed(still), squashed(fleeting)
    weight = cells.start + GROUP_WEIGHT
    return e0, e1, inside(row[weight] * m + row[weight + 1] * e0 + row[weight + 2] * e1)


@large_kernel
def grouped_now(cells: Cells, row: Vector, b: float) -> float:
    """What the groups say now on the expert b, where `cells.found` has what `find_cells` finds."""
    _, _, g = grouped_on(cells, row, cells.found, b)
    return g


@kernel
def play_grouped(
    spec: Spec, cells: Cells, row: Vector, asked: Asked, u: float, words: Ints, found: Ints, receipt: Vector
) -> Played:
    """As `play`, on the grouped expert. What `find_cells` finds is left in `found`."""
    g = grouped(cells, row, words, found, receipt)
    m = receipt[EXPERT]
    receipt[EXPERT] = g
    played = play(spec, row, asked._replace(expert=g), u, receipt)
    receipt[EXPERT] = m
    return played


# ---- learning --------------------------------------------------------------------------------------------------------


@kernel
def settle_grouped(
    spec: Spec,
    cells: Cells,
    row: Vector,
    t: float,
    asked: Asked,
    cell: int,
    outcome: Outcome,
    words: Ints,
    receipt: Vector,
) -> None:
    """As `settle`: the cells learn around the expert m, what stands behind them around the grouped expert g."""
    find_cells(cells, words, cells.found)
    settle_found(spec, cells, row, t, asked, cell, outcome, words, receipt)


@kernel
def settle_found(
    spec: Spec,
    cells: Cells,
    row: Vector,
    t: float,
    asked: Asked,
    cell: int,
    outcome: Outcome,
    words: Ints,
    receipt: Vector,
) -> None:
    """The same, where `cells.found` has what `find_cells` finds."""
    if is_plain(row, outcome):
        learn_found(spec, cells, row, t, asked, cell, one_event(outcome.y), words, receipt)
        if not spec.draws:
            note_event(row, row[N] - 1.0, spread(outcome.y, issued(spec, receipt)))
    elif not is_nothing(outcome):
        lesson = pace(row, outcome, spread(outcome.y, issued(spec, receipt)))
        learn_weighted(spec, cells, row, t, asked, cell, lesson, words, receipt)


@loop  # apart from those who never need it
def learn_weighted(
    spec: Spec,
    cells: Cells,
    row: Vector,
    t: float,
    asked: Asked,
    cell: int,
    lesson: Lesson,
    words: Ints,
    receipt: Vector,
) -> None:
    """`learn_found` where outcomes have weights."""
    learn_found(spec, cells, row, t, asked, cell, lesson, words, receipt)


@kernel
def learn_found(
    spec: Spec,
    cells: Cells,
    row: Vector,
    t: float,
    asked: Asked,
    cell: int,
    lesson: Lesson,
    words: Ints,
    receipt: Vector,
) -> None:
    """All parts learn an outcome."""
    late = blank(LATE)
    back = look_back(spec, row, asked, lesson, receipt[cells.receipt + GROUPED], receipt, late)
    m = receipt[EXPERT]
    b = m
    if back.beginner:
        b = back.around
        back = back._replace(around=grouped_now(cells, row, b))
    settle_learner(spec, row, asked, lesson, receipt, back)
    settle_cells(cells, row, row[N] + 1.0, lesson, issued(spec, receipt), b, words, receipt)
    receipt[EXPERT] = receipt[cells.receipt + GROUPED]
    settle_rest(spec, row, t, asked, cell, lesson, receipt, back)
    receipt[EXPERT] = m


@kernel
def issued(spec: Spec, receipt: Vector) -> float:
    """The forecast as it was issued, behind the guard."""
    return receipt[FORECAST] if spec.guard == 0 else receipt[spec.guard_receipt + ISSUED]


@kernel
def settle_cells(
    cells: Cells, row: Vector, n: float, lesson: Lesson, p: float, b: float, words: Ints, receipt: Vector
) -> None:
    """Learn the n-th outcome: weights judge what was issued, cells move from where they are now. p was issued.

    Cells learn around b, which is the issued expert m unless the forecast was a beginner's (`auto`).
    """
    weigh_groups(cells, row, n, lesson, receipt)
    for k in range(cells.columns):
        place_cell(cells, row, words, k, n)
    logit = issued_logit(b)
    x = bounded(logit, X_MOST)
    for lane in range(LANES):
        learn_lane_by_portions(cells, row, lane, logit, x, lesson)
    odds = scratch(MOST_COLUMNS)  # exp(theta) of each column, taken together
    for k in range(cells.columns):
        at = cells.found[MOST_COLUMNS + k] * CELL_WIDTH
        odds[k] = stake(cells.numbers[at + ONES], cells.numbers[at + SUM_FORECAST], cells.numbers[at + VARIANCE])
    exps(odds[: cells.columns])
    for k in range(cells.columns):
        record(cells, cells.found[MOST_COLUMNS + k] * CELL_WIDTH, lesson, p, receipt[SCORE], receipt[EXPERT], odds[k])


@kernel
def weigh_groups(cells: Cells, row: Vector, n: float, lesson: Lesson, receipt: Vector) -> None:
    """The weights of expert, still and fleeting (`auto` has the formulas); they start at `PRIOR`."""
    at, weight, temper = cells.receipt, cells.start + GROUP_WEIGHT, row[cells.start + GROUP_TEMPER]
    l0, l1 = likelihood_of(receipt[EXPERT], lesson), likelihood_of(receipt[at + STILL], lesson)
    l2, stale = likelihood_of(receipt[at + FLEETING], lesson), 0.0
    fresh = row[weight] * l0 + row[weight + 1] * l1 + row[weight + 2] * l2
    if n - 1.0 > receipt[SEEN]:
        stale = lesson.omega * staleness(fresh, likelihood_of(receipt[at + GROUPED], lesson))
    if temper != lesson.omega:
        s, top = lesson.omega / temper, 1.0
        if s > 1.0:
            top = max(l0, l1, l2)
        l0, l1, l2 = power(l0 / top, s), power(l1 / top, s), power(l2 / top, s)
        if s > 1.0:
            total = row[weight] * l0 + row[weight + 1] * l1 + row[weight + 2] * l2
            stale += lump(temper, total, ln(top), ln(fresh), lesson.omega)
    u0, u1, u2 = row[weight] * l0, row[weight + 1] * l1, row[weight + 2] * l2
    alpha = SHARE / n
    keep = (1.0 - alpha) / (u0 + u1 + u2)
    row[weight] = keep * u0 + alpha * PRIOR[0]
    row[weight + 1] = keep * u1 + alpha * PRIOR[1]
    row[weight + 2] = keep * u2 + alpha * PRIOR[2]
    if stale > 0.0:
        row[cells.start + GROUP_STALENESS] += stale
        if 1.0 + row[cells.start + GROUP_STALENESS] > LAZY * temper:
            flatten_groups(row, cells.start)


@large_kernel
def flatten_groups(row: Vector, start: int) -> None:
    """Flatten the weights to the temper 1 + G: w_i <- w_i^c w0_i^(1 - c), normalised, c = T/(1 + G)."""
    after = 1.0 + row[start + GROUP_STALENESS]
    c = row[start + GROUP_TEMPER] / after
    total = 0.0
    for i in range(LANES + 1):
        u = power(row[start + GROUP_WEIGHT + i], c) * power(PRIOR[i], 1.0 - c)
        row[start + GROUP_WEIGHT + i] = u
        total += u
    for i in range(LANES + 1):
        row[start + GROUP_WEIGHT + i] /= total
    row[start + GROUP_TEMPER] = after


@kernel
def learn_lane_by_portions(cells: Cells, row: Vector, lane: int, logit: float, x: float, lesson: Lesson) -> None:
    """One outcome for a lane, in portions; the step back to the prior comes with the last of them."""
    rate = RATES[lane] / cells.columns
    if lesson.omega == 1.0:
        learn_lane(cells, row, lane, rate, logit, x, lesson.y, 1.0)
    else:
        left, done = lesson.omega, 0.0
        while left > 0.0:
            part = portion(left, done)
            left -= part
            done += part
            learn_lane(cells, row, lane, 0.0 if left > 0.0 else rate, logit, x, lesson.y, part)


@kernel
def learn_lane(
    cells: Cells, row: Vector, lane: int, rate: float, logit: float, x: float, y: float, part: float
) -> None:
    """One step of a diagonal Gaussian filter for logit e = l + sum over cells (mu + s x), b is the portion::

    S = sum (v + sv x^2);  h = b e (1 - e);  d = b (y - e)/(1 + h S), and |d S| is at most STEP
    mean += var f d;  var = 1/(1/var + f^2 h/(1 + h (S - var f^2)))
    mean *= 1 - r/2;  var = min(var + r (top - var), top)
    """
    columns, known, xx = cells.columns, cells.known, x * x
    z, S = logit, 0.0
    for k in range(columns):
        at, to = cells.found[MOST_COLUMNS + k] * CELL_WIDTH + lane * LANE_WIDTH, k * KNOWN_WIDTH
        tau = prior_variance(cells, row, lane, k)
        v = shrunk(tau, cells.numbers[at + INFO])
        mu = cells.numbers[at + NATURAL] * v
        s = sv = 0.0
        if k < cells.attributes:
            sv = shrunk(SLOPE_TAU * tau, cells.numbers[at + SLOPE_INFO])
            s = cells.numbers[at + SLOPE_NATURAL] * sv
        known[to], known[to + 1], known[to + 2], known[to + 3], known[to + 4] = mu, v, s, sv, tau
        z += mu + s * x
        S += v + sv * xx
    e = squashed(z)
    h = part * (e * (1.0 - e))
    d = part * (y - e) / (1.0 + h * S)
    # if |d S| > STEP: d *= STEP / |d S|
    d *= STEP / (max(STEP, abs(d * S)))
    # 1/(1/var + f^2 h/(1 + h (S - var f^2))) is var (1 - var f^2 q): one division for all cells.
    q = h / (1.0 + h * S)
    for k in range(columns):
        slot, to = cells.found[MOST_COLUMNS + k], k * KNOWN_WIDTH
        at, tau = slot * CELL_WIDTH, known[to + 4]
        mu, v = moved(known[to], known[to + 1], 1.0, d, q, rate, tau)
        own, precision, prior = at + lane * LANE_WIDTH, 1.0 / v, 1.0 / tau
        cells.numbers[own + INFO], cells.numbers[own + NATURAL] = precision - prior, mu * precision
        if slot < cells.slots:  # it is kept
            a, b = mu * mu, 1.0 - v * prior
            terms, sums = at + TERMS + 2 * lane, cells.start + GROUP_SUMS + lane * columns + k
            row[sums] += a - cells.numbers[terms]
            row[sums + LANES * columns] += b - cells.numbers[terms + 1]
            cells.numbers[terms], cells.numbers[terms + 1] = a, b
        if k < cells.attributes:
            s, sv = moved(known[to + 2], known[to + 3], x, d, q, rate, SLOPE_TAU * tau)
            precision = 1.0 / sv
            cells.numbers[own + SLOPE_INFO] = precision - prior / SLOPE_TAU
            cells.numbers[own + SLOPE_NATURAL] = s * precision


@kernel
def moved(mean: float, var: float, f: float, d: float, q: float, rate: float, top: float) -> tuple[float, float]:
    """A parameter with feature f and prior variance top, moved by an outcome and then a step back to its prior."""
    mean += var * f * d
    var *= 1.0 - var * f * f * q
    return mean * (1.0 - 0.5 * rate), min(top, var + rate * (top - var))


@kernel
def record(cells: Cells, at: int, lesson: Lesson, p: float, score: float, m: float, odds: float) -> None:
    """The records of a cell: a bet against p, with odds = exp(theta), then the sums."""
    numbers = cells.numbers
    ones, weight = lesson.weight * lesson.trials * lesson.y, lesson.weight * lesson.trials
    if lesson.is_bet:
        theta = stake(numbers[at + ONES], numbers[at + SUM_FORECAST], numbers[at + VARIANCE])
        numbers[at + LOG_E] += won(theta, odds, ones, lesson.trials, p)
    numbers[at + EVENTS] += lesson.trials
    numbers[at + WEIGHTS] += weight
    numbers[at + ONES] += ones
    numbers[at + SUM_SCORE] += weight * score
    numbers[at + SUM_EXPERT] += weight * m
    numbers[at + SUM_FORECAST] += weight * p
    numbers[at + VARIANCE] += lesson.weight * weight * (p * (1.0 - p))


@kernel
def stake(ones: float, said: float, variance: float) -> float:
    """theta, the offset of a bet, which is known before y: from ones, the sums of p and of p(1 - p) so far."""
    return bounded((ones - said) / (variance + BET_INFORMATION), BET_MOST)


@kernel
def won(theta: float, odds: float, ones: float, trials: float, p: float) -> float:
    """What bets against p win in some trials, as a logarithm; odds = exp(theta).

    If an event is 1 with probability p, exp of it is 1 in the mean: E exp(y theta) = 1 - p + p exp(theta).
    """
    return ones * theta - trials * ln(1.0 - p + p * odds)
