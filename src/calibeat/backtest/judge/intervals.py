"""Martingale intervals: for the mean difference that the methods had in expectation on this log's events.

Letters: forecasts p_j of method j and q of the raw score (j = 0), outcome y, and r, the forecast of the method with the
least log-loss so far. All but y are known before y::

    s_j = l(p_j, 1) - l(p_j, 0)          b_j = s_j - s_raw          d_j = l(p_j, y) - l(q, y)
    d_j - E[d_j | past] = b_j (y - mu)
    V_resid(j, k) = sum b_j b_k (y - r)^2          V_model(j, k) = sum b_j b_k r (1 - r)
    interval of the mean of E[d_j | past]:  mean d_j +- z sqrt(max(V_resid, V_model)) / n

E[(b (y - r))^2 | past] = b^2 (mu (1 - mu) + (mu - r)^2), so V_resid errs on the safe side for every r, and no
stationarity is needed. V_model is there for rare outcomes that have not happened yet. Sums only: memory does not grow
with the log, and chunks of any size give the same bits.

Of many classes s_j(k) is the loss that method j has if the label is k, y the label, and D_j = s_j - s_raw::

    d_j - E[d_j | past] = D_j(y) - sum_k mu_k D_j(k)
    V_resid(i, j) = sum (D_i(y) - E_r D_i) (D_j(y) - E_r D_j)          V_model(i, j) = sum Cov_r(D_i, D_j)

E[(D(y) - E_r D)^2 | past] = Var_mu D + (E_mu D - E_r D)^2, so V_resid errs on the safe side again. For two classes
these are the sums above. The calibration error is that of the confidence in the top class (`Mark`).

Late labels: outcomes under way at the same time may share a shock. Then the sums of b (y - r) over runs as long as the
delay vary more than single events do; `Intervals(runs=...)` keeps them, and `half_width` allows for them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from calibeat._util.types import Ints, Table, Vector
from calibeat.backtest.replay.tally import COUNT, FORECAST, OUTCOME, Lost, Tally, floor_of, lost, mark
from calibeat.core.algebra import ln
from calibeat.core.calibeating import bin_among, edges_of
from calibeat.core.subset import entry, kernel, loop, scratch
from calibeat.errors import InvalidInput
from calibeat.metrics import calibration_error_of_gaps

Z = 1.959963984540054  # of 95 %
GROWS = 1.25  # a spread that is larger by this factor is more than the noise of a few runs
_STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)  # 97.5 %, 1 to 9 degrees of freedom
LOG_LOSS, BRIER = 0, 1  # as in the sums of a `Tally`
RESID, MODEL = 0, 1
NO_SPREAD = 1e-12  # an eigenvalue below this share of the largest is a rounding error
DRAWS, DRAWS_SEED = 4000, 0  # of the normal vectors behind a max-t quantile: an interval is a function of its log
CLEAR = 3.0  # standard deviations: from there on the sign of a bin's gap is known


class IntervalSums(NamedTuple):
    """Sums over a log; contrasts are to the raw score, method 0."""

    lead: Vector  # log-loss so far, with the warm-up
    losses: Table  # measure, method
    products: Table  # resid or model, measure, contrasts i <= j as [j, i]; above i = j is nothing
    fourths: Table  # measure, method: sum (b (y - r))^4
    gaps: Table  # method, bin: sum of forecast - outcome
    cells: Table  # resid or model, method j, bin of the raw score, bin of j: covariance of the sums of outcomes
    own: Table  # of many classes, where methods have outcomes of their own: resid or model, method, bin
    run: Table  # measure, method: sums of the run under way
    run_products: Table
    state: Vector  # events, runs


# ---- two classes: events are taken together, so that a processor adds up four at once ----------------------------

TOGETHER = 32
LANES = 4  # a sum is four: over the events 0, 4, 8, ... of the log, over 1, 5, 9, ... and so on
SQUARES, RESIDS, MODELS, ROWS = 1, 2, 4, 6  # kinds of rows, behind the losses; RESIDS, MODELS: one for each measure


class Together(NamedTuple):
    """Up to 32 events, and sums over those before them. Which event is in which lane does not depend on chunks."""

    rows: Vector  # kind, method, event: losses, Brier scores, b (y - r), b sqrt(r (1 - r)); 0 of what does not count
    sums: Vector  # of losses and Brier scores, of fourth powers, of the products of all pairs: four lanes each
    cells: Table  # method j, bin of the raw score, bin of j: (y - r)^2, r (1 - r), forecast - outcome
    state: Vector  # how many events are in the rows


class Leader(NamedTuple):
    """Scratch for the events of a call: log-loss of a method before each, the least one, whose forecast r, y - r and
    sqrt(r (1 - r))."""

    before: Vector
    least: Vector
    r: Vector
    e: Vector
    spread: Vector


class Seen(NamedTuple):
    """A chunk of events: forecasts by method and event, the raw score first, and what they lost (`Lost`).

    `place` < 0: the event does not count; 0: it is of the warm-up and counts for `lead` only.
    """

    P: Vector
    loss: Vector
    slope: Vector
    y: Vector
    place: Ints


@loop
def count_events(seen: Seen, edges: Vector, run: int, sums: IntervalSums, together: Together, led: Vector) -> None:
    """Add a chunk of events. r goes to `led`."""
    n, first = len(seen.y), 0
    before = scratch(TOGETHER)
    least = scratch(TOGETHER)
    r = scratch(TOGETHER)
    e = scratch(TOGETHER)
    spread = scratch(TOGETHER)
    leader = Leader(before, least, r, e, spread)
    while first < n:
        begin = int(together.state[0])
        count = min(TOGETHER - begin, n - first)
        follow(seen, first, count, sums, leader, led)
        put_rows(seen, first, count, begin, together, leader)
        add_cells(seen, first, count, edges, together, leader)
        for i in range(count):
            if seen.place[first + i] > 0:
                sums.state[0] += 1.0
                if run > 0:
                    add_to_run(begin + i, run, sums, together)
        first += count
        together.state[0] = float(begin + count)
        if begin + count == TOGETHER:
            add_rows(len(sums.lead), together)


@kernel
def follow(seen: Seen, first: int, count: int, sums: IntervalSums, leader: Leader, led: Vector) -> None:
    """Who leads before each event, and what follows from its forecast."""
    n = len(seen.y)
    for i in range(count):
        leader.least[i] = math.inf
    for j in range(len(sums.lead)):
        at, lead = j * n + first, sums.lead[j]
        for i in range(count):
            leader.before[i] = lead
            lead += seen.loss[at + i] if seen.place[first + i] >= 0 else 0.0
        sums.lead[j] = lead
        for i in range(count):
            p, before, least, r = seen.P[at + i], leader.before[i], leader.least[i], leader.r[i]
            leader.least[i] = min(least, before)
            leader.r[i] = p if before < least else r
    for i in range(count):
        r, y, place = leader.r[i], seen.y[first + i], seen.place[first + i]
        e, spread = y - r, math.sqrt(r * (1.0 - r))
        led[first + i] = r if place >= 0 else 0.0
        leader.e[i] = e if place > 0 else 0.0
        leader.spread[i] = spread if place > 0 else 0.0


@kernel
def put_rows(seen: Seen, first: int, count: int, begin: int, together: Together, leader: Leader) -> None:
    """Put events into the rows, from `begin` on. Here and above nothing is read that is written in the same loop, and
    values are taken before they are chosen: so the compiler makes vectors of it."""
    n = len(seen.y)
    methods = len(seen.P) // n
    size = methods * TOGETHER
    loss = scratch(TOGETHER)
    square = scratch(TOGETHER)
    b = scratch(TOGETHER)
    c = scratch(TOGETHER)
    for j in range(methods):
        for i in range(count):
            raw = first + i
            at = j * n + raw
            counts = seen.place[raw] > 0
            lost, slope, gap = seen.loss[at], seen.slope[at] - seen.slope[raw], seen.y[raw] - seen.P[at]
            loss[i] = lost if counts else 0.0
            square[i] = gap * gap if counts else 0.0
            b[i] = slope if counts else 0.0
            c[i] = 2.0 * (seen.P[raw] - seen.P[at])
        to = together.rows[j * TOGETHER + begin : ROWS * size]
        for i in range(count):
            to[i] = loss[i]
        for i in range(count):
            to[i + SQUARES * size] = square[i]
        for i in range(count):
            to[i + RESIDS * size] = b[i] * leader.e[i]
        for i in range(count):
            to[i + (RESIDS + 1) * size] = c[i] * leader.e[i]
        for i in range(count):
            to[i + MODELS * size] = b[i] * leader.spread[i]
        for i in range(count):
            to[i + (MODELS + 1) * size] = c[i] * leader.spread[i]


@kernel
def add_cells(seen: Seen, first: int, count: int, edges: Vector, together: Together, leader: Leader) -> None:
    """Count events in the bins of all methods."""
    n = len(seen.y)
    for i in range(count):
        if seen.place[first + i] > 0:
            y, resid, model = seen.y[first + i], leader.e[i] * leader.e[i], leader.r[i] * (1.0 - leader.r[i])
            raw = bin_among(edges, seen.P[first + i])
            for j in range(len(seen.P) // n):
                p = seen.P[j * n + first + i]
                cell = bin_among(edges, p)
                together.cells[j, raw, cell, 0] += resid
                together.cells[j, raw, cell, 1] += model
                together.cells[j, raw, cell, 2] += p - y


@kernel
def add_to_run(at: int, run: int, sums: IntervalSums, together: Together) -> None:
    """Add an event of the rows to the run under way, and close it where it ends."""
    methods = len(sums.lead)
    for m in range(2):
        for j in range(1, methods):
            sums.run[m, j] += together.rows[((RESIDS + m) * methods + j) * TOGETHER + at]
    if int(sums.state[0]) % run == 0:
        close_run(methods, sums)


@kernel
def add_rows(methods: int, together: Together) -> None:
    """Add the events in the rows to the sums; then there are none."""
    rows, sums, to = together.rows, together.sums, 0
    w = scratch(TOGETHER)
    n = int(together.state[0])  # 32; where the compiler knew that, it would make a vector of other things
    for row in range(RESIDS * methods):
        add_lanes(rows[row * TOGETHER : (row + 1) * TOGETHER], n, sums[to : to + LANES])
        to += LANES
    for row in range(RESIDS * methods, MODELS * methods):
        a = rows[row * TOGETHER : (row + 1) * TOGETHER]
        for k in range(n):
            w[k] = a[k] * a[k] * (a[k] * a[k])
        add_lanes(w, n, sums[to : to + LANES])
        to += LANES
    for kind in range(RESIDS, ROWS):
        for j in range(1, methods):
            b = rows[(kind * methods + j) * TOGETHER : (kind * methods + j + 1) * TOGETHER]
            for i in range(1, j + 1):
                a = rows[(kind * methods + i) * TOGETHER : (kind * methods + i + 1) * TOGETHER]
                for k in range(n):
                    w[k] = a[k] * b[k]
                add_lanes(w, n, sums[to : to + LANES])
                to += LANES
    together.state[0] = 0.0


@kernel
def add_lanes(a: Vector, n: int, to: Vector) -> None:
    """to + a, lane by lane."""
    w, x, y, z = to[0], to[1], to[2], to[3]
    for i in range(0, n, LANES):
        w += a[i]
        x += a[i + 1]
        y += a[i + 2]
        z += a[i + 3]
    to[0] = w
    to[1] = x
    to[2] = y
    to[3] = z


@entry
def add_rest(methods: int, together: Together) -> None:
    """`add_rows`, for Python."""
    add_rows(methods, together)


# ---- many classes ------------------------------------------------------------------------------------------------


class Contrasts(NamedTuple):
    """Scratch for one event."""

    slopes: Table  # measure, method, class: what losing depends on
    errors: Table  # measure, method
    gap: Vector  # outcome - r of each method
    cell: Ints  # bin of each method


@loop
def count_class_events(
    K: int, seen: Seen, clip: float, edges: Vector, run: int, sums: IntervalSums, work: Contrasts, led: Vector
) -> None:
    """The same for K classes: forecasts by method, event and class."""
    methods, n, P = len(sums.lead), len(seen.y), seen.P
    for t in range(n):
        if seen.place[t] < 0:
            continue
        best = 0
        for j in range(1, methods):
            if sums.lead[j] < sums.lead[best]:
                best = j
        r = P[(best * n + t) * K : (best * n + t + 1) * K]
        led[t] = r[0]
        for j in range(methods):
            at = j * n + t
            sums.lead[j] += seen.loss[at]
            if seen.place[t] == 0:
                continue
            one = mark(P[at * K : (at + 1) * K], seen.y[t])
            sums.losses[LOG_LOSS, j] += seen.loss[at]
            sums.losses[BRIER, j] += one.square
            cell, chance = bin_among(edges, one.forecast), r[one.top]
            gap = one.outcome - chance
            work.cell[j] = cell
            work.gap[j] = gap
            sums.gaps[j, cell] += one.forecast - one.outcome
            sums.cells[RESID, j, work.cell[0], cell] += work.gap[0] * gap
            sums.own[RESID, j, cell] += gap * gap
            sums.own[MODEL, j, cell] += chance * (1.0 - chance)
        if seen.place[t] > 0:
            sums.state[0] += 1.0
            class_contrasts(K, P, t, n, int(seen.y[t]), r, clip, methods, work)
            add_class_products(K, r, methods, work, sums)
            if run > 0 and int(sums.state[0]) % run == 0:
                close_run(methods, sums)


@kernel
def class_contrasts(
    K: int, P: Vector, t: int, n: int, y: int, r: Vector, clip: float, methods: int, work: Contrasts
) -> None:
    """Slopes <- D_j(k) - E_r D_j of both measures, and errors <- its value at the label."""
    s = work.slopes
    for j in range(methods):
        for k in range(K):
            p = P[(j * n + t) * K + k]
            s[LOG_LOSS, j, k] = -ln(max(p, clip))
            s[BRIER, j, k] = -2.0 * p  # without what is the same for every label
            if j > 0:
                s[LOG_LOSS, j, k] -= s[LOG_LOSS, 0, k]
                s[BRIER, j, k] -= s[BRIER, 0, k]
    for m in range(2):
        for j in range(1, methods):
            mean = 0.0
            for k in range(K):
                mean += r[k] * s[m, j, k]
            for k in range(K):
                s[m, j, k] -= mean
            work.errors[m, j] = s[m, j, y]


@kernel
def add_class_products(K: int, r: Vector, methods: int, work: Contrasts, sums: IntervalSums) -> None:
    """The products of the contrasts of one event: at its label, and in the mean if r were right."""
    for m in range(2):
        for j in range(1, methods):
            e = work.errors[m, j]
            sums.run[m, j] += e
            sums.fourths[m, j] += e * e * e * e
            for i in range(1, j + 1):
                v = 0.0
                for k in range(K):
                    v += r[k] * work.slopes[m, i, k] * work.slopes[m, j, k]
                sums.products[RESID, m, j, i] += work.errors[m, i] * e
                sums.products[MODEL, m, j, i] += v


@kernel
def close_run(methods: int, sums: IntervalSums) -> None:
    """Add the products of the sums over a run, and begin another."""
    sums.state[1] += 1.0
    for m in range(2):
        for j in range(1, methods):
            for i in range(1, j + 1):
                sums.run_products[m, j, i] += sums.run[m, i] * sums.run[m, j]
        for j in range(1, methods):
            sums.run[m, j] = 0.0


class Intervals:
    """Sums over a log, and the intervals that follow from them.

    Parameters
    ----------
    methods : how many, the raw score included; method 0 is the raw score.
    numbers : of a forecast: 1 of two classes, K of many.
    bins : of the calibration error.
    runs : how many consecutive events a run has, where labels are late: their median delay in events. 0: not late.

    >>> rng = np.random.default_rng(0)
    >>> raw = rng.random(5000)
    >>> y = (rng.random(5000) < raw**2).astype(float)
    >>> sums = Intervals(2)
    >>> leader = sums.add(np.array([raw, raw**2]), y)
    >>> [round(x, 3) for x in sums.difference(LOG_LOSS, 1)]
    [-0.087, -0.098, -0.077]
    """

    def __init__(self, methods: int, bins: int = 10, runs: int = 0, numbers: int = 1) -> None:
        self.methods, self.numbers, self.bins, self.runs = methods, numbers, bins, runs
        self._edges = edges_of(bins)
        k, many = methods, numbers > 1
        self._sums = IntervalSums(
            lead=np.zeros(k),
            losses=np.zeros((2, k)),
            products=np.zeros((2, 2, k, k)),
            fourths=np.zeros((2, k)),
            gaps=np.zeros((k, bins)),
            cells=np.zeros((2, k, bins, bins)),
            own=np.zeros((2, k, bins if many else 0)),
            run=np.zeros((2, k)),
            run_products=np.zeros((2, k, k)),
            state=np.zeros(2),
        )
        self._pairs = np.tril_indices(k - 1)
        self._together = Together(
            rows=np.zeros(0 if many else ROWS * k * TOGETHER),
            sums=np.zeros(0 if many else LANES * (4 * k + 4 * len(self._pairs[0]))),
            cells=np.zeros((0 if many else k, bins, bins, 3)),
            state=np.zeros(1),
        )
        self._summed = False  # whether the sums are those of all lanes
        slopes = np.zeros((2, k, numbers if many else 0))
        self._work = Contrasts(slopes, np.zeros((2, k)), np.zeros(k), np.zeros(k, dtype=np.int64))

    @property
    def sums(self) -> IntervalSums:
        """The sums so far."""
        if self.numbers == 1 and not self._summed:
            self._sum_lanes()
        return self._sums

    def _sum_lanes(self) -> None:
        """Of two classes: the sums of all four lanes, and of events that are not added yet."""
        k, sums, now = self.methods, self._sums, self._together
        rows = now.rows.reshape(-1, TOGETHER).copy()
        rows[:, int(now.state[0]) :] = 0.0
        all_of = now._replace(rows=rows.reshape(-1), sums=now.sums.copy(), state=np.array([float(TOGETHER)]))
        add_rest(k, all_of)
        total = all_of.sums.reshape(-1, LANES).sum(axis=1)
        sums.losses[:], sums.fourths[:] = total[: 4 * k].reshape(2, 2, k)
        sums.products[:, :, 1:, 1:][:, :, *self._pairs] = total[4 * k :].reshape(2, 2, -1)
        sums.cells[RESID], sums.cells[MODEL] = now.cells[..., 0], now.cells[..., 1]
        sums.gaps[:] = now.cells[..., 2].sum(axis=1)
        self._summed = True

    @property
    def events(self) -> int:
        """How many events were judged."""
        return int(self._sums.state[0])

    def add(self, forecasts: Vector, outcomes: Vector, place: Ints | None = None, known: Lost | None = None) -> Vector:
        """Count a chunk; forecasts[j, t] of method j for event t, in the order of events -> r, the leader's forecasts.

        r is 0 for events that do not count. Many classes: forecasts[j, t, k], and outcomes are columns of labels.
        `known` is what they lost, a row for each, if somebody has it.
        """
        shape = (self.methods, len(outcomes), self.numbers)[: 3 if self.numbers > 1 else 2]
        if forecasts.shape != shape:
            raise InvalidInput(f"forecasts must have shape {shape}, got {forecasts.shape}")
        placed = np.ones(len(outcomes), dtype=np.int64) if place is None else place
        led = np.zeros(len(outcomes))
        found = known or Lost(*map(np.array, zip(*(lost(p, outcomes, placed) for p in forecasts), strict=True)))
        flat = np.ascontiguousarray(forecasts).reshape(-1), found.loss.reshape(-1), found.slope.reshape(-1)
        seen, edges, sums = Seen(*flat, outcomes, placed), self._edges, self._sums
        self._summed = False
        if self.numbers == 1:
            count_events(seen, edges, self.runs, sums, self._together, led)
        else:
            floor = floor_of(self.numbers)
            count_class_events(self.numbers, seen, floor, edges, self.runs, sums, self._work, led)
        return led

    # ---- log-loss and Brier score ---------------------------------------------------------------------------------

    def variance(self, measure: int, method: int, other: int = 0) -> float:
        """Of the sum of loss(method) - loss(other)."""
        return max(_contrast(self.sums.products[kind, measure], method, other) for kind in (RESID, MODEL))

    def half_width(self, measure: int, method: int, other: int = 0, z: float = Z) -> tuple[float, bool]:
        """Half of the interval's width, and whether it allows for outcomes that moved together.

        It does where the runs show a standard deviation that is larger by more than a quarter.
        """
        v, runs = self.variance(measure, method, other), self.sums.state[1]
        half, shared = z * math.sqrt(v), False
        if runs >= 2.0:
            wide = _contrast(self.sums.run_products[measure], method, other) * self.events / (runs * self.runs)
            if wide > GROWS**2 * v:
                half, shared = max(half, z / Z * student(runs - 1.0) * math.sqrt(wide)), True
        return half / max(1, self.events), shared

    def difference(self, measure: int, method: int, other: int = 0, z: float = Z) -> tuple[float, float, float]:
        """Mean loss(method) - loss(other), and the ends of its interval; z = 1.96 if not given."""
        losses = self.sums.losses[measure]
        d = (losses[method] - losses[other]) / max(1, self.events)
        half, _ = self.half_width(measure, method, other, z)
        return float(d), float(d - half), float(d + half)

    def effective(self, measure: int, method: int) -> float:
        """As how many events of equal weight the difference to the raw score rests on; 0 without a difference."""
        fourth = float(self.sums.fourths[measure, method])
        return float(self.sums.products[RESID, measure, method, method]) ** 2 / fourth if fourth > 0.0 else 0.0

    def simultaneous(
        self, measure: int, level: float = 0.95, *, one_sided: bool = False, among: Sequence[int] | None = None
    ) -> float:
        """The quantile that holds for all methods against the raw score at once (max-t), instead of 1.96.

        For claims about the best of many: ``level=0.975, one_sided=True``. `among`: of these methods only.
        """
        methods = np.arange(1, self.methods) if among is None else np.array(among, dtype=np.int64)
        table = _symmetric(self.sums.products[RESID, measure])[np.ix_(methods, methods)]
        spread = np.sqrt(np.diag(table))
        used = spread > 0.0
        if not used.any():
            return Z
        draws = _normal(table[np.ix_(used, used)] / np.outer(spread[used], spread[used]), DRAWS)
        return float(np.quantile((draws if one_sided else np.abs(draws)).max(axis=1), level))

    # ---- calibration error ----------------------------------------------------------------------------------------

    def luck(self, method: int) -> float:
        """The calibration error that a perfectly calibrated forecast in these bins shows on average by luck."""
        variance = np.maximum(self._own(RESID, method), self._own(MODEL, method))
        return math.sqrt(2.0 / math.pi) * float(np.sqrt(variance).sum()) / max(1, self.events)

    def spread(self, method: int) -> Vector:
        """The covariance of the gaps of the raw score's bins and of a method's."""
        raw, mine, both = self._own(RESID, 0), self._own(RESID, method), self.sums.cells[RESID, method]
        return np.block([[np.diag(raw), both], [both.T, np.diag(mine)]])

    def _own(self, kind: int, method: int) -> Vector:
        """The variance of the sum of outcomes in each bin of a method."""
        many = self.numbers > 1
        return self.sums.own[kind, method] if many else self.sums.cells[kind, method].sum(axis=0)

    def error_difference(self, method: int) -> tuple[float, float, float]:
        """Calibration error of a method minus that of the raw score, and an envelope that errs on the safe side.

        It is about the errors against the true chances. A bin whose gap is beyond three standard deviations moves with
        its sign, the others in whichever direction hurts.
        """
        bins, n, table = self.bins, max(1, self.events), self.spread(method)
        draws = _normal(table, 1000)
        gaps = np.concatenate([self.sums.gaps[0], self.sums.gaps[method]])
        sign = np.repeat([-1.0, 1.0], bins)
        clear = np.abs(gaps) > CLEAR * np.sqrt(np.diag(table))
        known = (draws * sign * np.sign(gaps) * clear).sum(axis=1)
        rest = (np.abs(draws) * ~clear).sum(axis=1)
        d = float((sign * np.abs(gaps)).sum()) / n
        low, high = np.quantile(known + rest, 0.975), np.quantile(rest - known, 0.975)
        return d, d - float(low) / n, d + float(high) / n


def student(freedom: float) -> float:
    """The 97.5 % quantile of Student's t.

    >>> student(3), round(student(10), 2), round(student(1000), 2)
    (3.182, 2.23, 1.96)
    """
    whole = max(1, math.floor(freedom))
    if whole <= len(_STUDENT):
        return _STUDENT[whole - 1]
    return Z + (Z**3 + Z) / (4.0 * whole) + (5.0 * Z**5 + 16.0 * Z**3 + 3.0 * Z) / (96.0 * whole * whole)


def _symmetric(lower: Vector) -> Vector:
    return np.tril(lower) + np.tril(lower, -1).T


def _contrast(lower: Vector, method: int, other: int) -> float:
    table = _symmetric(lower)
    return max(0.0, float(table[method, method] + table[other, other] - 2.0 * table[method, other]))


def _normal(table: Vector, draws: int) -> Vector:
    """Normal vectors with this covariance.

    The root of the covariance is the symmetric one. It is unique: the signs of eigenvectors, and the bases of equal
    eigenvalues, differ between processors.
    """
    values, vectors = np.linalg.eigh(table)
    values[values < NO_SPREAD * values.max()] = 0.0
    white = np.random.default_rng(DRAWS_SEED).normal(size=(draws, len(values)))
    return white @ (vectors * np.sqrt(values) @ vectors.T)


# ---- would it hold elsewhere? ------------------------------------------------------------------------------------
#
# The moving-block bootstrap resamples runs of consecutive events, so that events which depend on each other stay
# together. It shows how other stretches of a log differ. The printed intervals are those above, for this log.

RESAMPLES = 1000
RESAMPLING_SEED = 20130  # of the resampling: a report is a function of its log
MEASURES = ("log_loss", "brier", "ce")
FEWEST_RUNS, SEEN_RUNS = 4, 8

Triple = tuple[float, float, float]


class Bootstrap:
    """Measures of every method on the log and on resamples of it, the same resamples for all."""

    def __init__(self, tallies: dict[str, Tally], used: int, length: int) -> None:
        self.run = max(1, round(used**0.5))  # in blocks: as many runs as blocks in a run
        self.run_events = self.run * length
        count = next(iter(tallies.values())).cells(used)[1:, :, COUNT].sum(axis=1)
        self._count = count
        columns = [count[:, None]]
        for tally in tallies.values():
            sums, cells = tally.sums(used)[1:], tally.cells(used)[1:]
            columns += [sums[:, [LOG_LOSS, BRIER]], cells[:, :, FORECAST] - cells[:, :, OUTCOME]]
        blocks = np.hstack(columns)
        resampled, log = _weights(used, self.run) @ blocks, blocks.sum(axis=0, keepdims=True)
        width = 2 + next(iter(tallies.values())).bins
        self._blocks: dict[str, Vector] = {}
        self._stretched: dict[tuple[str, str, str], tuple[float, bool]] = {}
        self._resampled: dict[str, dict[str, Vector]] = {}
        self._measured: dict[str, dict[str, float]] = {}
        for at, name in enumerate(tallies):
            part = slice(1 + at * width, 1 + (at + 1) * width)
            self._resampled[name] = _measures(resampled[:, 0], resampled[:, part])
            found = _measures(log[:, 0], log[:, part])
            self._blocks[name] = _linear(blocks[:, part])
            self._measured[name] = {measure: float(values[0]) for measure, values in found.items()}

    def measured(self, name: str, measure: str) -> float:
        """On the log itself."""
        return self._measured[name][measure]

    def difference(self, name: str, other: str, measure: str) -> Triple:
        """By how much `name` is above `other`, with a 95 % interval.

        The spread is that of the resamples, its middle the difference on the log: resampling adds noise to a
        calibration error, which would shift the interval. It is stretched where dependence outlives a run. It never
        leaves the possible range: no measure is below zero, so neither can fall by more than it was.
        """
        mine, theirs = self._measured[name][measure], self._measured[other][measure]
        d = mine - theirs
        draws = self._resampled[name][measure] - self._resampled[other][measure]
        low, high = np.quantile(draws - draws.mean(), [0.025, 0.975]) * self._stretch(name, other, measure)[0]
        return d, max(d + float(low), -theirs), min(d + float(high), mine)

    def outlived(self, name: str, other: str, measure: str = "log_loss") -> bool:
        """Whether the difference depends on its past for longer than a run."""
        return self._stretch(name, other, measure)[1]

    def eighths(self, name: str, other: str) -> list[float]:
        """By how much the log-loss of `name` is above the other's in each eighth; empty for fewer than eight blocks."""
        series = self._blocks[name][0] - self._blocks[other][0]
        if len(series) < 8:
            return []
        parts = zip(np.array_split(series, 8), np.array_split(self._count, 8), strict=True)
        return [float(sums.sum() / count.sum()) for sums, count in parts]

    def _stretch(self, name: str, other: str, measure: str) -> tuple[float, bool]:
        wanted = min(name, other), max(name, other), measure
        if wanted not in self._stretched:
            at = MEASURES.index(measure)
            self._stretched[wanted] = stretch(self._blocks[name][at] - self._blocks[other][at], self.run)
        return self._stretched[wanted]


def _linear(sums: Vector) -> Vector:
    """What each block adds to log-loss, Brier and calibration error: the gap of a bin with the sign of its total."""
    return np.array([sums[:, 0], sums[:, 1], sums[:, 2:] @ np.sign(sums[:, 2:].sum(axis=0))])


def _measures(count: Vector, sums: Vector) -> dict[str, Vector]:
    """From the sums of log-loss, Brier and forecast - outcome of each bin, one row a log."""
    ce = calibration_error_of_gaps(sums[:, 2:], count)
    return {"log_loss": sums[:, 0] / count, "brier": sums[:, 1] / count, "ce": ce}


def _weights(used: int, run: int) -> Vector:
    """How often each block is in each resample: as many runs as fill the log."""
    rng = np.random.default_rng(RESAMPLING_SEED)
    starts = rng.integers(0, used - run + 1, (RESAMPLES, -(-used // run)))
    changes = np.zeros((RESAMPLES, used + 1))
    rows = np.arange(RESAMPLES)[:, None]
    np.add.at(changes, (rows, starts), 1.0)
    np.add.at(changes, (rows, starts + run), -1.0)
    return np.cumsum(changes[:, :-1], axis=1)


# ---- dependence --------------------------------------------------------------------------------------------------
#
# A moving-block bootstrap is right when a run is long beside the dependence between events. Where it is not, the spread
# of the mean is larger in longer runs. Then the interval is stretched to the largest, with Student's quantile for the
# few runs there are. Dependence as long as the log itself cannot be seen from it.


def stretch(series: Vector, run: int) -> tuple[float, bool]:
    """By how much to stretch an interval from runs of `run` blocks, and whether dependence outlives them.

    >>> rng = np.random.default_rng(0)
    >>> stretch(rng.normal(size=2500), 50)[1], stretch(np.repeat(rng.normal(size=10), 250), 50)[1]
    (False, True)
    """
    n = len(series)
    if n < SEEN_RUNS * run:
        return 1.0, False
    base = _spread(series, run)
    if base <= 1e-12 * max(1.0, float(np.abs(series).max())):  # the same difference everywhere, up to rounding
        return 1.0, False
    whitened = _whitened(series, run)
    lengths = {run * 2**k for k in range(1, 12)} | {n // 4}
    longer = {length: _spread(series, length) for length in lengths if run < length <= n // FEWEST_RUNS}
    seen = [spread for length, spread in longer.items() if length <= n // SEEN_RUNS]
    half = max(Z * base, student(n / run - 2.0) * whitened)
    grows = max([whitened, *seen]) > GROWS * base
    if grows:
        half = max([half, *(student(n / length - 1.0) * spread for length, spread in longer.items())])
    return half / (Z * base), grows


def _spread(series: Vector, run: int) -> float:
    """The standard error of the mean as runs of a length show it; runs of one log miss what they share."""
    n = len(series)
    path = np.concatenate([[0.0], np.cumsum(series - series.mean())])
    means = (path[run:] - path[:-run]) / run
    return float(np.sqrt(np.mean(means**2) * run / n / (1.0 - run / n)))


def _whitened(series: Vector, run: int) -> float:
    """The standard error if the means of runs follow an autoregression of first order.

    Its coefficient is that of least squares with Kendall's correction for the few runs, and 0.97 at most.
    """
    runs = len(series) // run
    means = series[: runs * run].reshape(runs, run).mean(axis=1)
    means -= means.mean()
    squares = float(means[:-1] @ means[:-1])
    if squares == 0.0:
        return 0.0
    rho = float(means[1:] @ means[:-1]) / squares
    rho = min(0.97, rho + (1.0 + 3.0 * rho) / runs)
    left = means[1:] - rho * means[:-1]
    return math.sqrt(float(left @ left) / (runs - 2) / runs) / (1.0 - rho)
