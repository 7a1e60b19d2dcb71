"""The verdict: which method to use, what it buys, how sure that is, and when to keep the raw score."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from calibeat._util.words import decimals
from calibeat.report.schema import Verdict

from .bootstrap import MEASURES, Bootstrap, Triple

FEW = 200  # judged events, or outcomes learnt; fewer settle nothing
NOTHING = 1e-9  # a difference below this is rounding
# A gain below both (share of the log-loss, calibration error) is not worth the work.
SMALL_LOSS, SMALL_CE = 0.002, 0.005


@dataclass(frozen=True)
class Facts:
    """What a verdict has to know of the log."""

    labels: dict[str, str]  # how each method is called, the raw score first
    judged: int
    log_e_max: dict[str, float]
    ones: float | None = None  # among the judged outcomes, where that is known
    learnt: int | None = None  # outcomes that arrived before the last forecast, where they were late


def threshold(methods: int) -> float:
    """The log e-value that one of so many methods ever reaches in at most 5 % of logs whose raw score is calibrated.

    >>> round(math.exp(threshold(9)))
    180
    """
    return math.log(20.0 * max(1, methods))


def verdict(bootstrap: Bootstrap, facts: Facts) -> Verdict:
    """Of the methods in `facts.labels`."""
    labels = facts.labels
    raw, *others = labels
    if not others:
        return _keep(
            raw, "unclear", "Only the raw score was replayed", ["There was no other method to compare it with."]
        )
    if facts.learnt is not None and facts.learnt < FEW:
        return _little_learnt(raw, facts.learnt)
    moved = [name for name in others if not _same(bootstrap, name, raw)]
    ranked = sorted(moved or others, key=lambda name: bootstrap.measured(name, "log_loss"))
    best = ranked[0]
    gain = bootstrap.difference(best, raw, "log_loss")
    buys = _buys(bootstrap, best, raw, labels, gain)
    if facts.judged < FEW:
        counted = "one event was" if facts.judged == 1 else f"{facts.judged:,} events were"
        few = f"Only {counted} judged; below {FEW} the answer is mostly chance."
        return _keep(raw, "unclear", "Too few events to tell: keep the raw score for now", [few, buys])
    if not moved:
        same = "Every method said what the raw score says: nothing was learnt from this log."
        return _keep(raw, "unclear", "Keep the raw score: no method differs from it", [same])
    if facts.ones in {0.0, float(facts.judged)}:
        one = f"Every judged outcome is {int(bool(facts.ones))}. A method that says so looks perfect, and has learnt "
        return _keep(
            raw, "unclear", "One kind of outcome only: keep the raw score",
            [one + "nothing of when the other comes. A log with both is needed."],
        )  # fmt: skip
    if not _better(bootstrap, best, raw):
        return _raw_stays(bootstrap, raw, best, labels, gain, buys)
    share = -gain[0] / bootstrap.measured(raw, "log_loss")
    closer = bootstrap.measured(raw, "ce") - bootstrap.measured(best, "ce")
    if share < SMALL_LOSS and closer < SMALL_CE:
        small = "The difference is real, but it is too small to pay for another part in production."
        return _keep(raw, "likely", f"Keep the raw score: {labels[best]} is hardly better", [buys, small])
    return _use(bootstrap, ranked, raw, facts, buys)


def _better(bootstrap: Bootstrap, best: str, other: str) -> bool:
    """Beyond the interval; or, where dependence outlives the runs, in every eighth of the log."""
    d, _, high = bootstrap.difference(best, other, "log_loss")
    if d > -NOTHING:
        return False
    return high < 0.0 or (bootstrap.outlived(best, other) and bootstrap.eighths(best, other) == 8)


def _same(bootstrap: Bootstrap, name: str, raw: str) -> bool:
    return all(abs(bootstrap.measured(name, m) - bootstrap.measured(raw, m)) < NOTHING for m in MEASURES)


def _little_learnt(raw: str, learnt: int) -> Verdict:
    if learnt == 0:
        none = "No outcome arrived before the last forecast, so no method could learn anything."
        return _keep(raw, "unclear", "Nothing could be learnt: keep the raw score", [none])
    arrived = "one outcome" if learnt == 1 else f"{learnt:,} outcomes"
    few = f"Only {arrived} arrived before the last forecast; below {FEW} the answer is mostly chance."
    return _keep(raw, "unclear", "Too few outcomes arrived to tell: keep the raw score for now", [few])


def _use(bootstrap: Bootstrap, ranked: list[str], raw: str, facts: Facts, buys: str) -> Verdict:
    best, labels = ranked[0], facts.labels
    tied = [name for name in ranked[1:] if not _better(bootstrap, best, name)]
    share = bootstrap.share_better(best, raw)
    outlived = bootstrap.outlived(best, raw)
    sentences = [buys, f"{labels[best]} beats the raw score in {_share(share)} of the resampled logs."]
    if outlived:
        sentences.append(_long_memory(bootstrap, best, raw))
    if tied:
        named = _listed([labels[name] for name in tied])
        sentences.append(
            f"On this log {labels[best]} cannot be told apart from {named} by log-loss; the choice among them is open"
            + (", that calibration pays is not." if not outlived else ".")
        )
    elif len(ranked) > 1:
        sentences.append(
            f"It is also better than the next best, {labels[ranked[1]]}, {_beyond(bootstrap, best, ranked[1])}."
        )
    methods = len(labels) - 1
    evidence = facts.log_e_max[best] - math.log(methods)
    if evidence > math.log(20.0):
        chosen = f" (allowing for the choice among {methods} methods)" if methods > 1 else ""
        sentences.append(
            "If the raw score were calibrated, a likelihood ratio as large as the one seen would ever have come up "
            f"with probability at most {_power(evidence)}{chosen}: it is not calibrated."
        )
    honest = min([raw, *ranked], key=lambda name: bootstrap.measured(name, "ce"))
    if honest != best and bootstrap.difference(honest, best, "ce")[2] < 0.0:
        least = bootstrap.measured(honest, "ce")
        sentences.append(
            f"If calibration error alone is what you are paid by, {labels[honest]} has the least: "
            f"{least:.{decimals([least])}f}."
        )
    less = -bootstrap.difference(best, raw, "log_loss")[0] / bootstrap.measured(raw, "log_loss")
    return {
        "method": best,
        "headline": f"Use {labels[best]}: {100 * less:.1f} % less log-loss than the raw score",
        "sentences": sentences,
        "confidence": "likely" if tied or outlived else "sure",
    }


def _beyond(bootstrap: Bootstrap, best: str, other: str) -> str:
    beyond = bootstrap.difference(best, other, "log_loss")[2] < 0.0
    return "beyond the 95 % interval" if beyond else "in every eighth of the log"


def _long_memory(bootstrap: Bootstrap, best: str, raw: str) -> str:
    eighths = bootstrap.eighths(best, raw)
    within = "all eight eighths" if eighths == 8 else f"{eighths} of eight eighths"
    return (
        "The gain changes slowly: it depends on its past for longer than the runs of the bootstrap, so the interval "
        f"was stretched and is a rough one. The gain is there in {within} of the log."
    )


def _raw_stays(bootstrap: Bootstrap, raw: str, best: str, labels: dict[str, str], gain: Triple, buys: str) -> Verdict:
    share = bootstrap.share_better(best, raw)
    slow = [_long_memory(bootstrap, best, raw)] if bootstrap.outlived(best, raw) and gain[0] < 0.0 else []
    if gain[1] > 0.0:
        worse = f"Every method loses to the raw score; the best of them, {labels[best]}, beyond the 95 % interval."
        return _keep(
            raw, "likely" if bootstrap.outlived(best, raw) else "sure", "Keep the raw score: no method improves it",
            [worse, buys],
        )  # fmt: skip
    unsure = f"{labels[best]} beats the raw score in {_share(share)} of the resampled logs: that may be chance."
    certain: Literal["unclear", "likely"] = "unclear" if gain[0] < 0.0 else "likely"
    return _keep(raw, certain, "Keep the raw score: no method is surely better", [buys, unsure, *slow])


def _keep(raw: str, confidence: Literal["sure", "likely", "unclear"], headline: str, sentences: list[str]) -> Verdict:
    return {"method": raw, "headline": headline, "sentences": sentences, "confidence": confidence}


def _buys(bootstrap: Bootstrap, best: str, raw: str, labels: dict[str, str], gain: Triple) -> str:
    mine, theirs = bootstrap.measured(best, "log_loss"), bootstrap.measured(raw, "log_loss")
    ce, raw_ce = bootstrap.measured(best, "ce"), bootstrap.measured(raw, "ce")
    d = decimals(gain)
    points = decimals([100 * ce, 100 * raw_ce], at_least=2)
    return (
        f"{labels[best]} has a log-loss of {mine:.{d}f}, the raw score {theirs:.{d}f}: a difference of "
        f"{gain[0]:+.{d}f} (95 % interval {gain[1]:+.{d}f} to {gain[2]:+.{d}f}). Forecasts are off by "
        f"{100 * ce:.{points}f} points on average (calibration error), the raw score by {100 * raw_ce:.{points}f}."
    )


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _share(share: float) -> str:
    return "all" if share == 1.0 else "none" if share == 0.0 else f"{100 * share:.1f} %"


def _power(evidence: float) -> str:
    return f"{math.exp(-evidence):.2g}" if evidence < 30 else f"1e-{int(evidence / math.log(10.0))}"
