"""The verdict: which method to use, what it buys, how sure that is, and when to keep the raw score."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from calibeat._util.words import decimals
from calibeat.report.schema import Verdict

from .bootstrap import MEASURES
from .compare import Comparison
from .dependence import Z

FEW = 200  # judged events, or outcomes learnt; fewer settle nothing
FEW_EFFECTIVE = 10.0  # events of equal weight; an interval that rests on fewer is a guess
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


def verdict(compared: Comparison, facts: Facts) -> Verdict:
    """Of the methods in `facts.labels`.

    A gain: the log-loss is below the raw score's beyond the interval of a claim, on this log. Sure: a gain, elsewhere
    too by the stretched block bootstrap, and dependence does not outlive its runs. Likely: a gain, and elsewhere too or
    in each eighth of the log.
    """
    found = _of_measures(compared, facts)
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


def _of_measures(compared: Comparison, facts: Facts) -> Verdict:
    labels = facts.labels
    raw, *others = labels
    if not others:
        return _keep(
            raw, "unclear", "Only the raw score was replayed", ["There was no other method to compare it with."]
        )
    if facts.learnt is not None and facts.learnt < FEW:
        return _little_learnt(raw, facts.learnt)
    moved = [name for name in others if not _same(compared, name)]
    ranked = sorted(moved or others, key=lambda name: compared.measured(name, "log_loss"))
    best = _candidate(compared, ranked)
    buys = [_buys(compared, best, facts), _errors(compared, best, labels)]
    if facts.judged < FEW:
        counted = "one event was" if facts.judged == 1 else f"{facts.judged:,} events were"
        few = f"Only {counted} judged; below {FEW} the answer is mostly chance."
        return _keep(raw, "unclear", "Too few events to tell: keep the raw score for now", [few, *buys])
    if not moved:
        same = "Every method gave the raw score back: nothing was learnt from this log."
        return _keep(raw, "unclear", "Keep the raw score: no method differs from it", [same])
    if facts.ones in {0.0, float(facts.judged)}:
        one = f"Every judged outcome is {int(bool(facts.ones))}. A method that always forecasts it looks perfect. "
        needed = "It has not learnt when the other outcome comes: a log with both is needed."
        return _keep(raw, "unclear", "One kind of outcome only: keep the raw score", [one + needed])
    if compared.effective(best) < FEW_EFFECTIVE:
        rests = (
            f"The difference between {labels[best]} and the raw score rests on about "
            f"{counted_events(compared.effective(best))}: the others hardly count beside them."
        )
        return _keep(raw, "unclear", "Too few events decide: keep the raw score for now", [rests, *buys])
    if not _gains(compared, best):
        return _raw_stays(compared, best, labels, buys)
    share = -compared.claim(best)[0] / compared.measured(raw, "log_loss")
    closer = compared.measured(raw, "ce") - compared.measured(best, "ce")
    if share < SMALL_LOSS and closer < SMALL_CE:
        small = "The difference is real, but it is too small to pay for another part in production."
        return _keep(raw, "likely", f"Keep the raw score: {labels[best]} is hardly better", [*buys, small])
    if not (_elsewhere(compared, best) or compared.throughout(best)):
        return _this_log_only(compared, best, labels, buys)
    return _use(compared, best, ranked, facts, buys)


def _gains(compared: Comparison, name: str) -> bool:
    """Whether the log-loss is below the raw score's beyond the interval of a claim."""
    d, _, high = compared.claim(name)
    return d < -NOTHING and high < 0.0


def _candidate(compared: Comparison, ranked: list[str]) -> str:
    """The method of least log-loss; or AUTO, chosen beforehand, where it has a gain and the best of many has none."""
    best = ranked[0]
    if compared.named in ranked and not _gains(compared, best) and _gains(compared, str(compared.named)):
        return str(compared.named)
    return best


def _elsewhere(compared: Comparison, name: str) -> bool:
    """Whether the gain is beyond the stretched interval of the block bootstrap."""
    return compared.elsewhere(name)[2] < 0.0


def _same(compared: Comparison, name: str) -> bool:
    return all(abs(compared.measured(name, m) - compared.measured(compared.raw, m)) < NOTHING for m in MEASURES)


def _little_learnt(raw: str, learnt: int) -> Verdict:
    if learnt == 0:
        none = "No outcome arrived before the last forecast, so no method could learn anything."
        return _keep(raw, "unclear", "Nothing could be learnt: keep the raw score", [none])
    arrived = "one outcome" if learnt == 1 else f"{learnt:,} outcomes"
    few = f"Only {arrived} arrived before the last forecast; below {FEW} the answer is mostly chance."
    return _keep(raw, "unclear", "Too few outcomes arrived to tell: keep the raw score for now", [few])


def _use(compared: Comparison, best: str, ranked: list[str], facts: Facts, buys: list[str]) -> Verdict:
    labels = facts.labels
    others = [name for name in ranked if name != best]
    tied = [name for name in others if compared.difference(best, name, "log_loss")[2] >= 0.0]
    sure = _elsewhere(compared, best) and not compared.outlived(best)
    sentences = [*buys]
    if best in facts.ignores_score:
        sentences.append(f"{labels[best]} ignores the score: on this log the score is of no use.")
    sentences.append(_spread(compared, best, sure=sure))
    if tied:
        named = _listed([labels[name] for name in tied])
        sentences.append(f"On this log {labels[best]} cannot be told apart from {named} by log-loss.")
    elif others:
        sentences.append(
            f"On this log it is also better than the next best, {labels[others[0]]}, beyond the 95 % interval."
        )
    methods = len(labels) - 1
    evidence = facts.log_e_max[best] - math.log(methods)
    if evidence > math.log(20.0):
        chosen = f" (this allows for the choice among {methods} methods)" if methods > 1 else ""
        sentences.append(
            "The raw score is not calibrated: if it were, the outcomes would favour a method as strongly as they did "
            f"with probability at most {_power(evidence)}{chosen}."
        )
    sentences += _least_error(compared, best, ranked, facts)
    less = -compared.claim(best)[0] / compared.measured(compared.raw, "log_loss")
    return {
        "method": best,
        "headline": f"Use {labels[best]}: {100 * less:.1f} % less log-loss than the raw score",
        "sentences": sentences,
        "confidence": "sure" if sure else "likely",
    }


def _least_error(compared: Comparison, best: str, ranked: list[str], facts: Facts) -> list[str]:
    """The method of least calibration error, if it is another one and that is beyond luck. One that ignores the score
    is never named: it forecasts little but the share of ones, which is calibrated and of no use."""
    named = [name for name in [compared.raw, *ranked] if name not in facts.ignores_score or name == best]
    least = min(named, key=lambda name: compared.measured(name, "ce"))
    if least == best or not compared.less_error(least, best):
        return []
    error = compared.measured(least, "ce")
    shown = f"{error:.{decimals([error])}f}"
    return [f"If you care about calibration error alone, {facts.labels[least]} has the least, beyond luck: {shown}."]


def _spread(compared: Comparison, best: str, *, sure: bool) -> str:
    """In how many eighths the gain is there and how far they differ, and why that makes it sure or likely."""
    parts = compared.eighths(best)
    negative = sum(part < 0.0 for part in parts)
    d = decimals(parts)
    least, most = max(parts), min(parts)
    within = "all eight eighths" if negative == 8 else f"{negative} of the eight eighths"
    range_ = (
        f"The gain is there in {within} of the log, from {least:+.{d}f} in the {_ORDER[parts.index(least)]} to "
        f"{most:+.{d}f} in the {_ORDER[parts.index(most)]}"
    )
    if sure:
        return f"{range_}. Resampled stretches of the log show it too: it is sure, and should hold elsewhere."
    slow = "It changes slowly" if compared.outlived(best) else "It varies"
    return f"{range_}. {slow}, so it is likely, not sure: how large it will be elsewhere, this log cannot say."


def _this_log_only(compared: Comparison, best: str, labels: dict[str, str], buys: list[str]) -> Verdict:
    parts = compared.eighths(best)
    worst = max(parts)
    why = (
        f"{labels[best]} was better on this log, but not throughout, so it may not be elsewhere. In the "
        f"{_ORDER[parts.index(worst)]} eighth of the log it lost to the raw score, by {worst:+.{decimals(parts)}f}."
    )
    return _keep(compared.raw, "unclear", "Keep the raw score: better on this log, not throughout", [*buys, why])


def _raw_stays(compared: Comparison, best: str, labels: dict[str, str], buys: list[str]) -> Verdict:
    d, low, _ = compared.claim(best)
    if low > 0.0:
        worse = f"Every method loses to the raw score; the best of them, {labels[best]}, beyond the 95 % interval."
        return _keep(compared.raw, "sure", "Keep the raw score: no method improves it", [worse, *buys])
    many = f", the best of {len(labels) - 1} methods," if compared.quantile(best) > Z else ""
    luck = f"The luck of the outcomes may explain what {labels[best]}{many} shows: that may be chance."
    certain: Literal["unclear", "likely"] = "unclear" if d < 0.0 else "likely"
    return _keep(compared.raw, certain, "Keep the raw score: no method is surely better", [*buys, luck])


def _keep(raw: str, confidence: Literal["sure", "likely", "unclear"], headline: str, sentences: list[str]) -> Verdict:
    return {"method": raw, "headline": headline, "sentences": sentences, "confidence": confidence}


def _buys(compared: Comparison, best: str, facts: Facts) -> str:
    """The difference in log-loss, and what the luck of the outcomes accounts for."""
    label = facts.labels[best]
    d, low, high = compared.difference(best, compared.raw, "log_loss")
    mine, theirs = compared.measured(best, "log_loss"), compared.measured(compared.raw, "log_loss")
    digits = decimals([d, low, high])
    side = "lower than" if d < 0.0 else "higher than"
    sentence = (
        f"On the {facts.judged:,} judged events {label}'s log-loss of {mine:.{digits}f} is {side} the raw score's "
        f"{theirs:.{digits}f} by {abs(d):.{digits}f}. The luck of single outcomes may have moved that by "
        f"{high - d:.{digits}f}, up or down (95 %): {low:+.{digits}f} to {high:+.{digits}f}."
    )
    if compared.shared(best):
        sentence += " Outcomes under way at the same time moved together; the interval allows for it."
    return sentence


def _errors(compared: Comparison, best: str, labels: dict[str, str]) -> str:
    """The calibration errors beside what luck would show; "less" or "more" only beyond the envelope."""
    mine, theirs = 100 * compared.measured(best, "ce"), 100 * compared.measured(compared.raw, "ce")
    luck, raw_luck = 100 * compared.luck(best), 100 * compared.luck(compared.raw)
    d = decimals([mine, theirs], at_least=2)
    _, low, high = compared.envelope(best)
    settled = "less" if high < 0.0 else "more" if low > 0.0 else ""
    beyond = f"{settled}, beyond luck" if settled else "luck may explain the difference"
    return (
        f"Forecasts of {labels[best]} are off by {mine:.{d}f} points (calibration error), where luck alone would show "
        f"about {luck:.{d}f}; the raw score by {theirs:.{d}f}, luck alone {raw_luck:.{d}f}: {beyond}."
    )


LEGEND = (
    "A bar shows the difference to the raw score on this log with its 95 % interval: left of the line is better. An "
    "interval that crosses the line may be the luck of the outcomes. "
    '"Sure": the gain is beyond the interval, and resampled stretches of the log show it too. "Likely": it is beyond '
    "the interval, and either they show it or each eighth of the log does. For the best of many methods the verdict "
    "wants a wider interval than the bar shows."
)


INTERVALS = (
    "95 % of such intervals hold the difference that these forecasts had in expectation on these events. They allow "
    "for the luck of the outcomes, not for other times: see the eighths in the verdict. No interval is printed for "
    "calibration error, because a method that follows the outcomes hides its own error; compare it with what luck "
    'alone would show, and trust "less" or "more" only where it says beyond luck.'
)


def counted_events(effective: float) -> str:
    """
    >>> counted_events(3.4), counted_events(0.7)
    ('3 events', 'one event')
    """
    whole = max(1, round(effective))
    return "one event" if whole == 1 else f"{whole} events"


_ORDER = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "last")


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _lower(headline: str) -> str:
    return headline[0].lower() + headline[1:]


def _power(evidence: float) -> str:
    return f"{math.exp(-evidence):.2g}" if evidence < 30 else f"1e-{int(evidence / math.log(10.0))}"
