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
    ignores_score: frozenset[str] = frozenset()  # methods whose forecasts do not depend on the score
    raw_auc: float = math.nan
    ages: str | None = None  # what to say of ones and zeros that come at clearly different ages
    assumption: str | None = None  # on the arrival of outcomes, where a column of their times was not used


def threshold(methods: int) -> float:
    """The log e-value that one of so many methods ever reaches in at most 5 % of logs whose raw score is calibrated.

    >>> round(math.exp(threshold(9)))
    180
    """
    return math.log(20.0 * max(1, methods))


def verdict(bootstrap: Bootstrap, facts: Facts) -> Verdict:
    """Of the methods in `facts.labels`."""
    found = _of_measures(bootstrap, facts)
    if facts.ages is not None:
        found["sentences"].append(facts.ages)
    if facts.assumption is not None:
        found["sentences"].append(facts.assumption)
    if seems_reversed(facts.raw_auc, facts.judged, facts.ones):
        found["headline"] = f"The score seems reversed: check its column first. As it is: {_lower(found['headline'])}"
        found["confidence"] = "unclear"
        found["sentences"].insert(
            0,
            f"Of two events with outcomes 1 and 0, the first has the higher score in only {100 * facts.raw_auc:.0f} % "
            f"of the cases (AUC {facts.raw_auc:.4f}). The column may hold the probability of the other outcome, or 1 "
            "and 0 may be swapped.",
        )
    return found


def seems_reversed(auc: float, judged: int, ones: float | None) -> bool:
    """Whether an AUC is so far below one half that chance is no explanation (four standard errors, and 0.05).

    >>> seems_reversed(0.2, 1000, 300.0), seems_reversed(0.48, 10**6, 3e5), seems_reversed(0.4, 30, 10.0)
    (True, False, False)
    """
    if ones is None or math.isnan(auc) or auc > 0.45:
        return False
    zeros = judged - ones
    # The standard error of Mann and Whitney's statistic where the score says nothing.
    error = math.sqrt((judged + 1.0) / (12.0 * ones * zeros))
    return auc < 0.5 - 4.0 * error


def _of_measures(bootstrap: Bootstrap, facts: Facts) -> Verdict:
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
        same = "Every method gave the raw score back: nothing was learnt from this log."
        return _keep(raw, "unclear", "Keep the raw score: no method differs from it", [same])
    if facts.ones in {0.0, float(facts.judged)}:
        one = f"Every judged outcome is {int(bool(facts.ones))}. A method that always forecasts it looks perfect. "
        needed = "It has not learnt when the other outcome comes: a log with both is needed."
        return _keep(raw, "unclear", "One kind of outcome only: keep the raw score", [one + needed])
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
    outlived = bootstrap.outlived(best, raw)
    sentences = [buys]
    if best in facts.ignores_score:
        sentences.append(f"{labels[best]} ignores the score: on this log the score is of no use.")
    if outlived:
        sentences.append(_long_memory(bootstrap, best, raw))
    else:
        share = _share(bootstrap.share_better(best, raw))
        sentences.append(f"{labels[best]} beats the raw score in {share} of the resampled logs.")
    if tied:
        named = _listed([labels[name] for name in tied])
        sentences.append(f"On this log {labels[best]} cannot be told apart from {named} by log-loss.")
    elif len(ranked) > 1:
        sentences.append(
            f"It is also better than the next best, {labels[ranked[1]]}, {_beyond(bootstrap, best, ranked[1])}."
        )
    methods = len(labels) - 1
    evidence = facts.log_e_max[best] - math.log(methods)
    if evidence > math.log(20.0):
        chosen = f" (this allows for the choice among {methods} methods)" if methods > 1 else ""
        sentences.append(
            "The raw score is not calibrated: if it were, the outcomes would favour a method as strongly as they did "
            f"with probability at most {_power(evidence)}{chosen}."
        )
    sentences += _least_error(bootstrap, ranked, raw, facts)
    less = -bootstrap.difference(best, raw, "log_loss")[0] / bootstrap.measured(raw, "log_loss")
    return {
        "method": best,
        "headline": f"Use {labels[best]}: {100 * less:.1f} % less log-loss than the raw score",
        "sentences": sentences,
        "confidence": "likely" if tied or outlived else "sure",
    }


def _least_error(bootstrap: Bootstrap, ranked: list[str], raw: str, facts: Facts) -> list[str]:
    """The method of least calibration error, if it is another one. One that ignores the score is never named: it
    forecasts little but the share of ones, which is calibrated and of no use."""
    best = ranked[0]
    named = [name for name in [raw, *ranked] if name not in facts.ignores_score or name == best]
    least = min(named, key=lambda name: bootstrap.measured(name, "ce"))
    if least == best or bootstrap.difference(least, best, "ce")[2] >= 0.0:
        return []
    error = bootstrap.measured(least, "ce")
    shown = f"{error:.{decimals([error])}f}"
    return [f"If you care about calibration error alone, {facts.labels[least]} has the least: {shown}."]


def _beyond(bootstrap: Bootstrap, best: str, other: str) -> str:
    beyond = bootstrap.difference(best, other, "log_loss")[2] < 0.0
    return "beyond the 95 % interval" if beyond else "in each eighth of the log"


def _long_memory(bootstrap: Bootstrap, best: str, raw: str) -> str:
    eighths = bootstrap.eighths(best, raw)
    within = "each eighth of the log" if eighths == 8 else f"{eighths} of eight parts of the log"
    _, _, high = bootstrap.difference(best, raw, "log_loss")
    slow = "The gain changes slowly, so its interval is wide and rough"
    if high < 0.0:
        return f"{slow}. The gain is there in {within}."
    settled = "which makes it likely, but not sure" if eighths == 8 else "which is not enough"
    return f"{slow}: it reaches past zero and settles nothing by itself. The gain is there in {within}, {settled}."


def _raw_stays(bootstrap: Bootstrap, raw: str, best: str, labels: dict[str, str], gain: Triple, buys: str) -> Verdict:
    slow = bootstrap.outlived(best, raw) and gain[0] < 0.0
    if gain[1] > 0.0:
        worse = f"Every method loses to the raw score; the best of them, {labels[best]}, beyond the 95 % interval."
        sure: Literal["sure", "likely"] = "likely" if bootstrap.outlived(best, raw) else "sure"
        return _keep(raw, sure, "Keep the raw score: no method improves it", [worse, buys])
    share = _share(bootstrap.share_better(best, raw))
    unsure = f"{labels[best]} beats the raw score in {share} of the resampled logs: that may be chance."
    certain: Literal["unclear", "likely"] = "unclear" if gain[0] < 0.0 else "likely"
    why = _long_memory(bootstrap, best, raw) if slow else unsure
    return _keep(raw, certain, "Keep the raw score: no method is surely better", [buys, why])


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


def legend(bootstrap: Bootstrap, raw: str, methods: list[str]) -> str:
    """How to read the intervals of the leaderboard, in the words of the verdict."""
    read = (
        "A bar shows the difference to the raw score with its 95 % interval: left of the line is better. An interval "
        "that crosses the line does not settle by itself which is better."
    )
    slow = [
        name
        for name in methods
        if bootstrap.difference(name, raw, "log_loss")[2] >= 0.0 and _better(bootstrap, name, raw)
    ]
    if not slow:
        return read
    return (
        f"{read} Where a gain changes slowly the interval is wide. Such a gain counts as likely if it is there in each "
        "eighth of the log."
    )


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _share(share: float) -> str:
    return "all" if share == 1.0 else "none" if share == 0.0 else f"{100 * share:.1f} %"


def _lower(headline: str) -> str:
    return headline[0].lower() + headline[1:]


def _power(evidence: float) -> str:
    return f"{math.exp(-evidence):.2g}" if evidence < 30 else f"1e-{int(evidence / math.log(10.0))}"
