"""What a bank from outside must hold, looked at for all rows at once: numbers, counts, keys, and the index.

`Method.check_row` says what a row can be, one at a time. Here a million rows are screened with NumPy first; it is then
asked about the rows that look odd, and its word counts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from calibeat.core.auto import CAP_AC, CAP_B, HORIZON_CAP, Lanes
from calibeat.core.calibeating import MOST_IMAGINED, Hedging, Tracking
from calibeat.core.guard import FLOOR, MOST_WEALTH, SUMS, Guard
from calibeat.core.layout import (
    CELLS,
    COV_AB,
    COV_AC,
    COV_CB,
    HORIZON_COVARIANCE,
    HORIZON_THETA,
    HORIZON_WEIGHT,
    MEAN_LAG,
    OPS_A,
    OPS_B,
    OPS_MATRIX,
    SLOPE,
    STALENESS,
    TEMPER,
    THETA,
    VAR_A,
    VAR_B,
    VAR_C,
    WEIGHT,
    N,
    T,
)
from calibeat.core.learners import AIOLI, OGD, ONS
from calibeat.core.method import Method
from calibeat.core.parts import Features
from calibeat.core.spline import (
    ATOMS,
    COUNT,
    EXPERT_INFORMATION,
    EXPERT_OFFSETS,
    INFORMATION,
    RESIDUAL,
    SCORE_INFORMATION,
    SCORE_OFFSETS,
    SPLINE_STALENESS,
    SPLINE_TEMPER,
    Spline,
)
from calibeat.core.stats import EVENTS, LAST, STATS
from calibeat.errors import InvalidInput

from .index import Index

Matrix = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

_KNOWN = (Features, ONS, AIOLI, OGD, Lanes, Tracking, Hedging, Spline, Guard)
_AT_ONCE = 4096  # rows; the file may be larger than memory
_MOST = 2.0**53  # counts above are no longer exact


def check_rows(method: Method, matrix: Matrix, clock: float) -> None:
    """Raise `InvalidInput`, which names the first bad row, unless all rows are such as this method can have."""
    for first in range(0, len(matrix), _AT_ONCE):
        part = matrix[first : first + _AT_ONCE]
        for sentence, good in _stats_checks(method, part, clock):
            if not good.all():
                raise InvalidInput(f"{sentence}, got others - at row {first + int((~good).argmax())}")
        for row in np.flatnonzero(_odd(method, part[:, : method.width])):
            try:
                method.check_row(part[row, : method.width].tolist(), int(part[row, method.width + EVENTS]))
            except InvalidInput as error:
                raise InvalidInput(f"{error} - at row {first + int(row)}") from None


def _stats_checks(method: Method, part: Matrix, clock: float) -> list[tuple[str, Flags]]:
    stats = part[:, method.width :]
    events, last = stats[:, EVENTS], stats[:, LAST]
    with np.errstate(invalid="ignore"):
        counts = (events >= 0) & (events <= _MOST) & (events == np.floor(events))
        times = (last >= 0) & (last <= clock) & (last == np.floor(last))
        return [
            ("rows must hold finite numbers", np.isfinite(part).all(axis=1)),
            ("rows must count their events in whole numbers", counts),
            ("rows must have had their last event by now", times),
            ("rows must count no more outcomes than forecasts", (part[:, N] <= part[:, T]) & (part[:, T] <= events)),
            ("rows must have losses of at least 0", (stats[:, LAST + 1 : STATS] >= 0).all(axis=1)),
        ]


def _odd(method: Method, rows: Matrix) -> Flags:
    """Rows that `Method.check_row` may refuse; rows that it would accept may be among them.

    A part that is not known here makes all rows odd: slow, and still right.
    """
    tail = 0 if method.learner is None else len(method.learner.tail())
    cells, evidence = int(method.spec[CELLS]), rows.shape[1] - tail - 2 * method.mixes
    end = evidence - (0 if method.guard is None else len(method.guard.initial()))
    known = all(isinstance(part, _KNOWN) for part in method.parts)
    expected = cells + (0 if method.calibeater is None else len(method.calibeater.initial()))
    if not known or expected != end:
        return np.ones(len(rows), dtype=np.bool_)
    t, n = rows[:, T], rows[:, N]
    good: Flags = (n >= 0) & (n <= t) & (n == np.floor(n)) & (t == np.floor(t))
    with np.errstate(all="ignore"):
        if isinstance(method.learner, (ONS, AIOLI)):
            good &= _good_matrix(rows, method.dimension)
        elif isinstance(method.learner, Lanes):
            good &= _good_lanes(rows, n, rows[:, rows.shape[1] - tail :])
        if isinstance(method.calibeater, Spline):
            good &= _good_spline(rows[:, cells:end], n)
        elif method.calibeater is not None:
            imagined = MOST_IMAGINED if isinstance(method.calibeater, Tracking) else 0.0
            good &= _good_cells(rows[:, cells:end], n, imagined)
        if method.guard is not None:
            good &= _good_guard(rows[:, end:evidence], n)
        if method.mixes:
            good &= (rows[:, evidence + 1] >= 1e-100) & (rows[:, evidence + 1] <= 1e100)
    return ~good


def _good_matrix(rows: Matrix, d: int) -> Flags:
    """As `learners.check_diagonal`."""
    diagonal = [THETA + d + i * d - i * (i - 1) // 2 for i in range(d)]
    good: Any = ((rows[:, diagonal] > 0.0) & (rows[:, diagonal] < 1e150)).all(axis=1)
    for i in range(d):
        for j in range(i + 1, d):
            beside, product = rows[:, diagonal[i] + j - i], rows[:, diagonal[i]] * rows[:, diagonal[j]]
            good &= beside * beside <= product * (1.0 + 1e-6)
    return good


def _good_cells(cells: Matrix, n: Matrix, imagined: float) -> Flags:
    totals, counts = cells[:, ::2], cells[:, 1::2]
    whole = (counts == np.floor(counts)) & ((imagined > 0.0) | (totals == np.floor(totals)))
    good: Flags = (whole & (totals >= 0.0) & (totals <= counts) & (counts <= n[:, None] + imagined)).all(axis=1)
    return good


def _good_weights(weights: Matrix, n: Matrix) -> Flags:
    each = (weights >= 0.01 / (n[:, None] + 1.0)) & (weights <= 1.0)
    return each.all(axis=1) & (np.abs(weights.sum(axis=1) - 1.0) <= 0.9e-9)


def _good_temper(stale: Matrix, temper: Matrix) -> Flags:
    """As `mixtures.check_temper`."""
    return (stale >= 0.0) & (temper >= 1.0) & (temper <= 1.0 + stale)


def _good_horizon(lane: Matrix) -> Flags:
    """As `mixtures.check_horizon`."""
    theta, packed = lane[:, HORIZON_THETA:HORIZON_COVARIANCE], lane[:, HORIZON_COVARIANCE:]
    i, j = np.triu_indices(theta.shape[1])
    variances = packed[:, i == j]
    bounded = (variances > 0.0).all(axis=1) & (variances <= 1.1 * HORIZON_CAP).all(axis=1)
    covariances = (packed**2 <= variances[:, i] * variances[:, j] * (1.0 + 1e-6)).all(axis=1)
    small: Any = (np.abs(theta) <= 1e6).all(axis=1)
    return bounded & covariances & small


def _good_lanes(rows: Matrix, n: Matrix, lane: Matrix) -> Flags:
    """As `Lanes.check`; `lane` is the horizon lane, of no width where there is none."""
    parameters = rows[:, [*range(SLOPE, VAR_A), OPS_A, OPS_B]]
    aa, cc, bb = (rows[:, at : at + 4] for at in (VAR_A, VAR_C, VAR_B))
    variances = (aa > 0.0) & (aa <= 1.1 * CAP_AC) & (cc > 0.0) & (cc <= 1.1 * CAP_AC) & (bb > 0.0) & (bb <= 1.1 * CAP_B)
    for at, product in ((COV_AC, aa * cc), (COV_AB, aa * bb), (COV_CB, cc * bb)):
        variances &= rows[:, at : at + 4] ** 2 <= product * (1.0 + 1e-6)
    h00, h01, h11 = rows[:, OPS_MATRIX : OPS_MATRIX + 3].T
    positive = (h00 > 0.0) & (h00 < 1e150) & (h11 > 0.0) & (h11 < 1e150) & (h01 * h01 < h00 * h11)
    bounded = (np.abs(parameters) <= 1e6).all(axis=1)
    weights = _good_weights(rows[:, WEIGHT : WEIGHT + 6], n)
    if lane.shape[1]:
        seven = np.column_stack([rows[:, WEIGHT : WEIGHT + 6], lane[:, HORIZON_WEIGHT]])
        asleep = lane[:, HORIZON_WEIGHT] == 0.0
        weights = ((asleep & weights) | (~asleep & _good_weights(seven, n))) & _good_horizon(lane)
    lags = _good_temper(rows[:, STALENESS], rows[:, TEMPER]) & (rows[:, MEAN_LAG] >= 0.0) & (rows[:, MEAN_LAG] <= n)
    return weights & bounded & variances.all(axis=1) & positive & lags


def _good_spline(cells: Matrix, n: Matrix) -> Flags:
    """As `Spline.check`."""
    information = cells[:, [*range(SCORE_INFORMATION, EXPERT_OFFSETS), *range(EXPERT_INFORMATION, RESIDUAL)]]
    offsets = cells[:, [*range(SCORE_OFFSETS, SCORE_INFORMATION), *range(EXPERT_OFFSETS, EXPERT_INFORMATION)]]
    knots = (information >= INFORMATION).all(axis=1) & (np.abs(offsets) <= 700.0).all(axis=1)
    totals = np.concatenate([cells[:, ATOMS:SCORE_OFFSETS:2], np.abs(cells[:, RESIDUAL:COUNT])], axis=1)
    counts = np.concatenate([cells[:, ATOMS + 1 : SCORE_OFFSETS : 2], cells[:, COUNT : COUNT + 10]], axis=1)
    sums = ((totals >= 0.0) & (totals <= counts) & (counts <= n[:, None])).all(axis=1)
    temper = _good_temper(cells[:, SPLINE_STALENESS], cells[:, SPLINE_TEMPER])
    return _good_weights(cells[:, :ATOMS], n) & knots & sums & temper


def _good_guard(numbers: Matrix, n: Matrix) -> Flags:
    """As `Guard.check`."""
    wealth = ((numbers[:, :SUMS] >= FLOOR) & (numbers[:, :SUMS] <= MOST_WEALTH)).all(axis=1)
    totals, spreads = np.abs(numbers[:, SUMS::2]), numbers[:, SUMS + 1 :: 2]
    bounds = n[:, None]
    sums = (totals <= bounds) & (spreads >= 0.0) & (spreads <= 0.25 * bounds + 1e-9 * bounds)
    return np.asarray(wealth & sums.all(axis=1))


# ---- keys --------------------------------------------------------------------------------------------------------


def check_text(text: npt.NDArray[np.uint8], marks: npt.NDArray[np.int64]) -> None:
    """Raise unless each pair of marks cuts whole characters out of the text, which is UTF-8."""
    starts, sizes = marks[::2], marks[1::2] >> 31
    if not ((starts >= 0) & (sizes >= 0) & (starts <= len(text) - sizes)).all():
        raise InvalidInput("marks must point into the text, got others")
    bytes(text).decode()  # raises a ValueError that says where
    padded = np.append(text, np.uint8(0))
    if ((padded[starts] & 0xC0) == 0x80).any() or ((padded[starts + sizes] & 0xC0) == 0x80).any():
        raise InvalidInput("marks must point at whole characters of the text, got others")


def check_table(table: npt.NDArray[np.int32], count: int) -> None:
    """Raise unless a table has a free place and points once at each slot, and nowhere else."""
    slots = np.sort(table[table != -1])
    if len(table) <= count or not np.array_equal(slots, np.arange(count)):
        raise InvalidInput(f"table must point once at each of the {count} slots and have places left, got another")


def check_index(index: Index) -> None:
    """Raise unless each key is found in its own slot: no key is there twice, and none is lost."""
    found = index.find(index.column())
    wrong = found != np.arange(index.count)
    if wrong.any():
        slot = int(wrong.argmax())
        what = "a key that is not found" if found[slot] < 0 else "the same key twice"
        raise InvalidInput(f"index must find each key in its own slot, got {what} - at slot {slot}")
