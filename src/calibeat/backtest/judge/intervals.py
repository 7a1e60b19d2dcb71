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
from calibeat.backtest.replay.tally import COUNT, FORECAST, OUTCOME, Tally, floor_of, mark
from calibeat.core.calibeating import bin_of
from calibeat.core.subset import kernel, loop
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
    products: Table  # resid or model, measure, contrasts i <= j as [j, i]
    fourths: Table  # sum (b (y - r))^4
    gaps: Table  # method, bin: sum of forecast - outcome
    cells: Table  # resid or model, method j, bin of the raw score, bin of j: covariance of the sums of outcomes
    own: Table  # of many classes, where methods have outcomes of their own: resid or model, method, bin
    run: Table  # measure, method: sums of the run under way
    run_products: Table
    state: Vector  # events, runs


class Contrasts(NamedTuple):
    """Scratch for one event."""

    slopes: Table  # measure, method (, class of many): what losing depends on
    errors: Table  # of many classes: measure, method
    gap: Vector  # outcome - r of each method
    cell: Ints  # bin of each method


@loop
def count_events(
    K: int,
    P: Vector,
    y: Vector,
    place: Ints,
    clip: float,
    bins: int,
    run: int,
    sums: IntervalSums,
    work: Contrasts,
    led: Vector,
) -> None:
    """Add a chunk of events. P are forecasts by method, event and class, the raw score first; r goes to `led`.

    K = 1: two classes. `place` < 0: the event does not count; 0: it is of the warm-up and counts for `lead` only.
    """
    if K == 1:  # a constant: the compiler leaves out what only many classes need
        event_sums(1, P, y, place, clip, bins, run, sums, work, led)
    else:
        event_sums(K, P, y, place, clip, bins, run, sums, work, led)


@kernel
def event_sums(  # noqa: C901 - one loop for two classes and many
    K: int,
    P: Vector,
    y: Vector,
    place: Ints,
    clip: float,
    bins: int,
    run: int,
    sums: IntervalSums,
    work: Contrasts,
    led: Vector,
) -> None:
    """The loop of `count_events`."""
    methods, n = len(sums.lead), len(y)
    for t in range(n):
        if place[t] < 0:
            continue
        best = 0
        for j in range(1, methods):
            if sums.lead[j] < sums.lead[best]:
                best = j
        r = P[(best * n + t) * K : (best * n + t + 1) * K]
        led[t] = r[0]
        for j in range(methods):
            at = (j * n + t) * K
            one = mark(P[at : at + K], y[t])
            loss = -math.log(max(one.chance, clip))
            sums.lead[j] += loss
            if place[t] == 0:
                continue
            sums.losses[LOG_LOSS, j] += loss
            sums.losses[BRIER, j] += one.square
            cell, chance = bin_of(one.forecast, float(bins)), r[one.top]
            gap = one.outcome - chance
            work.cell[j] = cell
            work.gap[j] = gap
            sums.gaps[j, cell] += one.forecast - one.outcome
            sums.cells[RESID, j, work.cell[0], cell] += work.gap[0] * gap
            if K > 1:
                sums.own[RESID, j, cell] += gap * gap
                sums.own[MODEL, j, cell] += chance * (1.0 - chance)
                continue
            sums.cells[MODEL, j, work.cell[0], cell] += chance * (1.0 - chance)
            p = one.forecast
            other = math.log(max(y[t] * (1.0 - p) + (1.0 - y[t]) * p, clip))  # of what did not happen
            work.slopes[LOG_LOSS, j] = (2.0 * y[t] - 1.0) * (other + loss)
            work.slopes[BRIER, j] = 1.0 - 2.0 * p
        if place[t] == 0:
            continue
        sums.state[0] += 1.0
        if K > 1:
            class_contrasts(K, P, t, n, int(y[t]), r, clip, methods, work)
            add_class_products(K, r, methods, work, sums)
        else:
            add_products(methods, y[t] - r[0], r[0] * (1.0 - r[0]), work, sums)
        if run > 0 and sums.state[0] % run == 0.0:
            close_run(methods, sums)


@kernel
def add_products(methods: int, e: float, v: float, work: Contrasts, sums: IntervalSums) -> None:
    """The products of the contrasts of one event with residual e, whose variance would be v if r were right."""
    for m in range(2):
        for j in range(1, methods):
            work.slopes[m, j] -= work.slopes[m, 0]
        for j in range(1, methods):
            b = work.slopes[m, j]
            sums.run[m, j] += b * e
            sums.fourths[m, j] += b * b * b * b * e * e * e * e
            for i in range(1, j + 1):
                w = b * work.slopes[m, i]
                sums.products[RESID, m, j, i] += w * e * e
                sums.products[MODEL, m, j, i] += w * v


@kernel
def class_contrasts(
    K: int, P: Vector, t: int, n: int, y: int, r: Vector, clip: float, methods: int, work: Contrasts
) -> None:
    """Slopes <- D_j(k) - E_r D_j of both measures, and errors <- its value at the label."""
    s = work.slopes
    for j in range(methods):
        for k in range(K):
            p = P[(j * n + t) * K + k]
            s[LOG_LOSS, j, k] = -math.log(max(p, clip))
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
        k, many = methods, numbers > 1
        self.sums = IntervalSums(
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
        slopes = np.zeros((2, k, numbers) if many else (2, k))
        self._work = Contrasts(slopes, np.zeros((2, k)), np.zeros(k), np.zeros(k, dtype=np.int64))

    @property
    def events(self) -> int:
        """How many events were judged."""
        return int(self.sums.state[0])

    def add(self, forecasts: Vector, outcomes: Vector, place: Ints | None = None) -> Vector:
        """Count a chunk; forecasts[j, t] of method j for event t, in the order of events -> r, the leader's forecasts.

        r is 0 for events that do not count. Many classes: forecasts[j, t, k], and outcomes are columns of labels.
        """
        shape = (self.methods, len(outcomes), self.numbers)[: 3 if self.numbers > 1 else 2]
        if forecasts.shape != shape:
            raise InvalidInput(f"forecasts must have shape {shape}, got {forecasts.shape}")
        placed = np.ones(len(outcomes), dtype=np.int64) if place is None else place
        led = np.zeros(len(outcomes))
        events = self.numbers, np.ascontiguousarray(forecasts).reshape(-1), outcomes, placed
        count_events(*events, floor_of(self.numbers), self.bins, self.runs, self.sums, self._work, led)
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
