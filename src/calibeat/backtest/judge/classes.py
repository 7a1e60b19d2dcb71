"""The judgement of many classes: intervals, verdict, what to deploy, guarantees, and the section class by class.

The martingale intervals are the sums of `judge.intervals`, with residuals over K labels.

Letters: s_j(k) is the loss that method j has if the label is k, r the forecast of the method with the least log-loss so
far, y the label, D_j = s_j - s_raw::

    d_j - E[d_j | past] = D_j(y) - sum_k mu_k D_j(k)
    V_resid(i, j) = sum (D_i(y) - E_r D_i) (D_j(y) - E_r D_j)          V_model(i, j) = sum Cov_r(D_i, D_j)

E[(D(y) - E_r D)^2 | past] = Var_mu D + (E_mu D - E_r D)^2, so V_resid errs on the safe side for every r. For two
classes these are the sums of the binary intervals.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from calibeat import bounds
from calibeat._util.types import Ints, Table, Vector
from calibeat.backtest.replay.manyclass import CAME, FORECASTS, RAW_METHOD, SCORES, ClassReplayed, ClassRunner
from calibeat.core.auto import EPS
from calibeat.core.calibeating import bin_of
from calibeat.core.subset import entry, kernel
from calibeat.report.schema import AnswerInfo, Certificate, ClassesInfo, Priors, Verdict

from .certificates import total_loss
from .intervals import BRIER, LOG_LOSS, MODEL, RESID, Intervals, close_run
from .measures import curve_of, iso, number
from .verdict import SURE, Comparison, Facts, example_of, verdict

# ---- intervals ---------------------------------------------------------------------------------------------------


@entry
def count_classes(
    K: int,
    P: Table,
    labels: Ints,
    place: Ints,
    clip: float,
    bins: int,
    run: int,
    lead: Vector,
    L: Table,
    S: Table,
    B4: Table,
    G: Table,
    C: Table,
    own: Table,
    Q: Table,
    T: Table,
    state: Vector,
    s: Table,
    e: Table,
    gap: Vector,
    cell: Ints,
) -> None:
    """Add a chunk of events. P[j, t, k] are forecasts, the raw scores first.

    `place` < 0: the event does not count; 0: it is of the warm-up and counts for `lead` only.
    """
    methods = P.shape[0]
    for t in range(len(labels)):
        if place[t] < 0:
            continue
        y, best = labels[t], 0
        for j in range(1, methods):
            if lead[j] < lead[best]:
                best = j
        for j in range(methods):
            loss = -math.log(max(P[j, t, y], clip))
            lead[j] += loss
            if place[t] > 0:
                L[LOG_LOSS, j] += loss
        if place[t] == 0:
            continue
        state[0] += 1.0
        count_tops(K, P, t, y, best, bins, L, G, C, own, gap, cell)
        losses_by_class(K, P, t, y, best, clip, s, e)
        add_class_products(K, P, t, best, s, e, S, B4, Q)
        if run > 0 and state[0] % run == 0.0:
            close_run(methods, Q, T, state)


@kernel
def count_tops(
    K: int,
    P: Table,
    t: int,
    y: int,
    best: int,
    bins: int,
    L: Table,
    G: Table,
    C: Table,
    own: Table,
    gap: Vector,
    cell: Ints,
) -> None:
    """The Brier score of each method, and its top class: the bin of its confidence, whether it was right, r of it."""
    for j in range(P.shape[0]):
        top, squares = 0, 0.0
        for k in range(K):
            p = P[j, t, k]
            squares += p * p
            if p > P[j, t, top]:
                top = k
        L[BRIER, j] += squares - 2.0 * P[j, t, y] + 1.0
        hit, chance = 1.0 if top == y else 0.0, P[best, t, top]
        cell[j] = bin_of(P[j, t, top], float(bins))
        G[j, cell[j]] += P[j, t, top] - hit
        gap[j] = hit - chance
        own[RESID, j, cell[j]] += gap[j] * gap[j]
        own[MODEL, j, cell[j]] += chance * (1.0 - chance)
        C[RESID, j, cell[0], cell[j]] += gap[0] * gap[j]


@kernel
def losses_by_class(K: int, P: Table, t: int, y: int, best: int, clip: float, s: Table, e: Table) -> None:
    """s <- D_j(k) - E_r D_j of both measures, and e <- its value at the label."""
    for j in range(P.shape[0]):
        for k in range(K):
            s[LOG_LOSS, j, k] = -math.log(max(P[j, t, k], clip))
            s[BRIER, j, k] = -2.0 * P[j, t, k]  # without what is the same for every label
            if j > 0:
                s[LOG_LOSS, j, k] -= s[LOG_LOSS, 0, k]
                s[BRIER, j, k] -= s[BRIER, 0, k]
    for m in range(2):
        for j in range(1, P.shape[0]):
            mean = 0.0
            for k in range(K):
                mean += P[best, t, k] * s[m, j, k]
            for k in range(K):
                s[m, j, k] -= mean
            e[m, j] = s[m, j, y]


@kernel
def add_class_products(K: int, P: Table, t: int, best: int, s: Table, e: Table, S: Table, B4: Table, Q: Table) -> None:
    """The products of the contrasts of one event: at its label, and in the mean if r were right."""
    methods = P.shape[0]
    for m in range(2):
        for j in range(1, methods):
            Q[m, j] += e[m, j]
            B4[m, j] += e[m, j] * e[m, j] * e[m, j] * e[m, j]
            for i in range(1, j + 1):
                v = 0.0
                for k in range(K):
                    v += P[best, t, k] * s[m, i, k] * s[m, j, k]
                S[RESID, m, i, j] += e[m, i] * e[m, j]
                S[MODEL, m, i, j] += v


class ClassIntervals(Intervals):
    """`Intervals` over forecasts of K classes; the calibration error is that of the top class's confidence."""

    def __init__(self, methods: int, K: int, bins: int = 10, runs: int = 0, clip: float = EPS) -> None:
        super().__init__(methods, bins, runs, clip)
        self.K = K
        self.own = np.zeros((2, methods, bins))  # variance of the hits in each bin of a method

    def add_classes(self, forecasts: Vector, labels: Ints, place: Ints) -> None:
        """Count a chunk; forecasts[j, t, k] of method j for event t and class k."""
        n = self.methods
        sums = self.losses, self.products, self.fourths, self.gaps, self.cells, self.own
        runs = self._run, self.run_products, self._state
        work: Any = np.empty((2, n, self.K)), np.empty((2, n)), np.empty(n), np.empty(n, dtype=np.int64)
        count_classes(self.K, forecasts, labels, place, self.clip, self.bins, self.runs, self.lead, *sums, *runs, *work)

    def luck(self, method: int) -> float:
        """The calibration error that perfectly calibrated confidences in these bins show on average by luck."""
        variance = np.maximum(self.own[RESID, method], self.own[MODEL, method])
        return math.sqrt(2.0 / math.pi) * float(np.sqrt(variance).sum()) / max(1, self.events)

    def spread(self, method: int) -> Vector:
        """The covariance of the gaps of the raw scores' bins and of a method's."""
        both = self.cells[RESID, method]
        return np.block([[np.diag(self.own[RESID, 0]), both], [both.T, np.diag(self.own[RESID, method])]])


# ---- verdict, and what to deploy ---------------------------------------------------------------------------------

CODE_USE = """\
from calibeat import MultiCalibrator

cal = MultiCalibrator({classes}{method}{logits})
cal.run(past_scores, past_labels)   # once, with what is known already

forecast = cal.predict(scores)      # act on forecast.probabilities
cal.update(forecast, label)         # when it is known, in any order
"""

CODE_KEEP_RAW = """\
from calibeat import MultiCalibrator

cal = MultiCalibrator({classes}{logits})   # beside the raw scores
forecast = cal.predict(scores)
cal.update(forecast, label)
cal.alarm()                                # whether they deserve less trust by now
"""

CODE_FITTED = """\
import numpy as np

forecast = np.exp(np.log(scores) / T)   # T has the least log-loss on {which}
forecast /= forecast.sum()
"""
FITTED_ON = {"fts": "the first 1,000 labels", "swts": "the last 2,000 labels, fitted again every 500"}


def class_verdict(replayed: ClassReplayed, compared: Comparison, facts: Facts, names: list[str]) -> Verdict:
    """The verdict, unless there is only one class."""
    seen = np.flatnonzero(replayed.counts)
    if len(seen) == 1:
        only = (
            f"Every judged label is {names[seen[0]]!r}. A method that always forecasts it looks perfect. It has not "
            "learnt when another class comes: a log with several is needed."
        )
        headline = "One class only: keep the raw scores"
        return {"method": RAW_METHOD, "headline": headline, "sentences": [only], "confidence": "unclear"}
    return verdict(compared, facts)


def class_answer(replayed: ClassReplayed, found: Verdict, names: list[str], score_kind: str) -> AnswerInfo:
    """From the verdict and the bins of the confidence of the raw scores and of the chosen method."""
    runners = {runner.name: runner for runner in replayed.runners}
    chosen = found["method"]
    pair = [runners[RAW_METHOD]] if chosen == RAW_METHOD else [runners[RAW_METHOD], runners[chosen]]
    library, note = class_deployment(chosen, names, logits=score_kind == "logit")
    return {
        "happened": example_of(pair, replayed.blocks.used, replayed.blocks.judged),
        "sure": SURE["keep" if chosen == RAW_METHOD else "use", found["confidence"]],
        "library": library.splitlines(),
        "service": None,
        "note": note,
    }


def class_deployment(name: str, names: list[str], *, logits: bool) -> tuple[str, str]:
    """The code that puts a method to work, and a remark.

    >>> print(class_deployment("multi", ["cat", "dog", "bird"], logits=True)[0].splitlines()[2])
    cal = MultiCalibrator(['cat', 'dog', 'bird'], logits=True)
    """
    numbered = names == [str(k) for k in range(len(names))]
    classes = str(len(names)) if numbered or len(names) > 10 else repr(names)
    end = ", logits=True" if logits else ""
    if name == RAW_METHOD:
        return CODE_KEEP_RAW.format(classes=classes, logits=end), "Nothing to deploy: go on with the raw scores."
    if name in FITTED_ON:
        return CODE_FITTED.format(
            which=FITTED_ON[name]
        ), "A temperature that is fitted now and then is no class of calibeat."
    method = "" if name == "multi" else f", method={name!r}"
    return CODE_USE.format(classes=classes, method=method, logits=end), ""


# ---- classes -----------------------------------------------------------------------------------------------------

MOST_CLASSES = 24  # with panels of their own
MOST_POINTS = 96  # of a line over time ...
LABELS_IN_POINT = 50  # ... each of at least so many labels
LEAST_PRIOR = 1e-12


def class_section(replayed: ClassReplayed, names: list[str]) -> ClassesInfo:
    """The section: each class by itself, and their shares along the log."""
    shown = np.argsort(-replayed.counts, kind="stable")[:MOST_CLASSES]
    raw = replayed.stretches.sums[SCORES].sum(axis=0)
    labelled = max(1, replayed.blocks.labelled)
    return {
        "total": replayed.K,
        "names": [names[k] for k in shown],
        "count": [int(replayed.counts[k]) for k in shown],
        "mean_score": [number(raw[k] / labelled) for k in shown],
        "methods": {
            runner.name: {
                "classwise_ce": number(runner.tally.classwise_error),
                "ce": [number(runner.tally.errors[k]) for k in shown],
                "mean": [number(v) for v in _means(runner)[shown]],
                "curves": [curve_of(runner.tally.by_class[k]) for k in shown],
            }
            for runner in replayed.runners
        },
        "priors": _priors(replayed, shown.tolist()),
    }


def _means(runner: ClassRunner) -> Vector:
    """The mean forecast of each class."""
    counts, forecasts, _ = np.moveaxis(runner.tally.by_class, 2, 0)
    return np.asarray(forecasts.sum(axis=1) / np.maximum(counts.sum(axis=1), 1.0))


def _priors(replayed: ClassReplayed, shown: list[int]) -> Priors:
    stretches = replayed.stretches
    points = max(1, min(MOST_POINTS, stretches.used, replayed.blocks.labelled // LABELS_IN_POINT))
    starts = np.arange(0, stretches.used, -(-stretches.used // points))
    events = np.add.reduceat(stretches.sums[CAME, : stretches.used].sum(axis=1), starts)
    some = np.where(events > 0.0, events, np.nan)

    def shares(row: int) -> list[list[float | None]]:
        means = np.add.reduceat(stretches.sums[row, : stretches.used][:, shown], starts, axis=0) / some[:, None]
        return [[number(v) for v in column] for column in means.T]

    timed = replayed.span is not None
    begin = [stretches.begin[at] for at in starts]
    x: list[str] | list[int] = [iso(t) for t in begin] if timed else begin
    return {
        "by": "time" if timed else "event",
        "x": x,
        "happened": shares(CAME),
        "scores": shares(SCORES),
        "forecasts": {runner.name: shares(FORECASTS + at) for at, runner in enumerate(replayed.runners)},
        "times": _times_as_common(replayed, shown, starts),
    }


def _times_as_common(replayed: ClassReplayed, shown: list[int], at: Ints) -> list[list[float | None]] | None:
    """How many times as common each class is as the scores assume: exp(bias), scaled so that priors sum to one."""
    trail = next((runner.replay.trail for runner in replayed.runners if runner.name == "multi"), [])
    if not trail:
        return None
    assumed = replayed.stretches.sums[SCORES].sum(axis=0)
    assumed = np.maximum(assumed / max(1.0, assumed.sum()), LEAST_PRIOR)
    bias = np.array(trail)[at]
    times = np.exp(bias - bias.max(axis=1, keepdims=True))
    times /= (times @ assumed)[:, None]
    return [[number(v) for v in times[:, k]] for k in shown]


# ---- guarantees --------------------------------------------------------------------------------------------------


def class_certificates(replayed: ClassReplayed) -> list[Certificate]:
    """The two theorems of MULTI, where it was replayed; two classes are AUTO's, whose theorem is about OPS."""
    runners = {runner.name: runner for runner in replayed.runners}
    T, K = replayed.blocks.labelled, replayed.K
    if "multi" not in runners or K == 2 or T < 10:
        return []
    late = replayed.delays is not None or replayed.never > 0
    applies = (
        "It is proved for labels that arrive at once; here some were late, and nothing is promised."
        if late
        else "It holds for any sequence of labels that arrive at once, as here."
    )
    listed: list[Certificate] = []
    for other, bound, statement in (
        ("ots", bounds.multi_guard(K, T), "MULTI loses at most ln 2 + (1/4) ln T + 0.204 + K T 1e-7 nats to OTS"),
        (
            RAW_METHOD,
            bounds.multi_loss(K, T),
            "MULTI loses at most ln 72 + (5/4) ln T + 1.14 + (K+1) T 1e-7 nats to raw",
        ),
    ):
        if other in runners:
            observed = total_loss(replayed, runners["multi"]) - total_loss(replayed, runners[other])
            listed.append(
                {
                    "method": "multi",
                    "what": "log-loss",
                    "statement": f"{statement}, over all {T:,} labels, warm-up included (docs/multiclass.md)",
                    "bound": bound,
                    "observed": number(observed),
                    "holds": observed <= bound,
                    "promised": not late,
                    "in_expectation": False,
                    "applies": applies,
                }
            )
    return listed
