"""The verdict: methods compared, which one to use, what it buys, how sure that is, and how to deploy it.

The printed interval is for the mean difference in expectation on this log's events, given their past (`intervals`).
It allows for the luck of the outcomes and for nothing else. The moving-block bootstrap (`bootstrap`) shows how other
stretches of the log differ. It is a check, never the printed interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Any, Literal

import numpy as np

from calibeat._util.types import Ints, Vector
from calibeat._util.words import decimals
from calibeat.backtest.read.rows import Chunk
from calibeat.backtest.replay.engine import Replayed, Runner
from calibeat.backtest.replay.late import typical_delay
from calibeat.backtest.replay.tally import COUNT, FORECAST, OUTCOME
from calibeat.report.schema import AnswerInfo, DifferencesTo, ElsewhereInfo, Evidence, Happened, Number, Verdict

from .deployment import HowReplayed, deployment, deployment_of_classes
from .intervals import BRIER, LOG_LOSS, MEASURES, RESAMPLES, Bootstrap, Intervals, Triple, Z
from .measures import MOST_POINTS, Ranks, curve_of, error_of_auc, iso, log_e_values, number

FEW_EVENTS = 200  # judged events, or outcomes learnt; fewer settle nothing
FEW_EFFECTIVE = 10.0  # events of equal weight; an interval that rests on fewer is a guess
NOTHING = 1e-9  # a difference below this is rounding
# A gain below both (share of the log-loss, calibration error) is not worth the work.
SMALL_LOSS, SMALL_CE = 0.002, 0.005
NUMBERED = {"log_loss": LOG_LOSS, "brier": BRIER}

# ---- methods compared --------------------------------------------------------------------------------------------


class Counting:
    """Adds the chunks of a replay to `Intervals`; a run of late labels is as long as their median delay in events."""

    def __init__(self, bins: int) -> None:
        self.sums = Intervals(1, bins)  # until the first chunk shows how many methods there are, and how late it is
        self._began = False

    def add(self, chunk: Chunk, forecasts: dict[str, Vector], place: Ints) -> Vector:
        """Take the forecasts of all methods for a chunk, the raw score first -> those of the leader."""
        if not self._began:
            runs = typical_delay(chunk)
            self.sums, self._began = Intervals(len(forecasts), self.sums.bins, runs, chunk.numbers), True
        return self.sums.add(np.array(list(forecasts.values())), chunk.outcomes, place)


class Comparison:
    """What is known of each method against the raw score and against the others.

    Parameters
    ----------
    names : of the methods, the raw score first.
    named : the method that was chosen before the log was seen (AUTO), if it is among them.
    blind : methods whose forecasts do not depend on the score. None of them is ever the verdict.
    """

    def __init__(
        self,
        names: list[str],
        bootstrap: Bootstrap,
        sums: Intervals,
        named: str | None = None,
        blind: Sequence[str] = (),
    ) -> None:
        self._at = {name: at for at, name in enumerate(names)}
        self.raw, self.named, self.bootstrap, self.sums = names[0], named, bootstrap, sums
        self.candidates = [name for name in names[1:] if name not in blind]

    def measured(self, name: str, measure: str) -> float:
        """On the log itself."""
        return self.bootstrap.measured(name, measure)

    # ---- on this log ----------------------------------------------------------------------------------------------

    def difference(self, name: str, other: str, measure: str, z: float = Z) -> Triple:
        """By how much the log-loss or Brier score of `name` is above that of `other`, with its martingale interval."""
        return self.sums.difference(NUMBERED[measure], self._at[name], self._at[other], z)

    def shared(self, name: str) -> bool:
        """Whether the interval against the raw score allows for late outcomes that moved together."""
        return self.sums.half_width(LOG_LOSS, self._at[name])[1]

    @cached_property
    def most(self) -> float:
        """The quantile for a claim about the best of many: one-sided 97.5 %, for all methods at once (max-t)."""
        among = [self._at[name] for name in self.candidates]
        return max(Z, self.sums.simultaneous(LOG_LOSS, 0.975, one_sided=True, among=among))

    def quantile(self, name: str) -> float:
        """1.96 for the method that was chosen beforehand and where there is only one; max-t for the best of many."""
        return Z if name == self.named or len(self.candidates) == 1 else self.most

    def claim(self, name: str) -> Triple:
        """Log-loss against the raw score, with the interval that a claim about the chosen method goes by."""
        return self.difference(name, self.raw, "log_loss", self.quantile(name))

    def effective(self, name: str) -> float:
        """As how many events of equal weight the difference to the raw score rests on."""
        return self.sums.effective(LOG_LOSS, self._at[name])

    # ---- elsewhere ------------------------------------------------------------------------------------------------

    def elsewhere(self, name: str) -> Triple:
        """Log-loss against the raw score, with the interval of the stretched block bootstrap."""
        return self.bootstrap.difference(name, self.raw, "log_loss")

    def eighths(self, name: str) -> list[float]:
        """The mean difference in log-loss to the raw score in each eighth of the log; empty if it is too short."""
        return self.bootstrap.eighths(name, self.raw)

    def throughout(self, name: str) -> bool:
        """Whether the log-loss is below the raw score's in each eighth."""
        parts = self.eighths(name)
        return bool(parts) and max(parts) < 0.0

    def outlived(self, name: str) -> bool:
        """Whether the difference depends on its past for longer than a run of the bootstrap."""
        return self.bootstrap.outlived(name, self.raw)

    # ---- calibration error ----------------------------------------------------------------------------------------

    def luck(self, name: str) -> float:
        """The calibration error that a perfectly calibrated forecast in these bins would show by luck."""
        return self.sums.luck(self._at[name])

    def envelope(self, name: str) -> Triple:
        """Calibration error less that of the raw score, and an envelope that errs on the safe side."""
        return (0.0, 0.0, 0.0) if name == self.raw else self.sums.error_difference(self._at[name])

    def less_error(self, name: str, other: str) -> bool:
        """Whether `name` has less calibration error beyond luck: its envelope ends below where the other's begins."""
        return self.envelope(name)[2] < self.envelope(other)[1]


def differences(compared: Comparison, name: str, other: str) -> DifferencesTo:
    """For the leaderboard. A calibration error has its envelope against the raw score, and no interval else."""
    ce = compared.measured(name, "ce") - compared.measured(other, "ce")
    return {
        "method": other,
        "log_loss": _triple(compared.difference(name, other, "log_loss")),
        "brier": _triple(compared.difference(name, other, "brier")),
        "ce": _triple(compared.envelope(name)) if other == compared.raw else [number(ce), None, None],
    }


def best_other(replayed: Replayed, name: str, compared: Comparison) -> DifferencesTo | None:
    """Against the method of least log-loss among the others; None where there is none."""
    others = [runner.name for runner in replayed.runners if runner.name != name]
    if not others:
        return None
    return differences(compared, name, min(others, key=lambda other: compared.measured(other, "log_loss")))


def elsewhere(compared: Comparison, name: str) -> ElsewhereInfo:
    """For the leaderboard: how the difference in log-loss to the raw score varies along the log."""
    _, low, high = compared.elsewhere(name)
    return {
        "low": number(low),
        "high": number(high),
        "outlived": compared.outlived(name),
        "eighths": [number(part) for part in compared.eighths(name)],
    }


def _triple(difference: Triple) -> list[Number]:
    return [number(value) for value in difference]


# ---- the verdict -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Facts:
    """What a verdict has to know of the log."""

    labels: dict[str, str]  # how each method is called, the raw score first
    judged: int
    log_e_max: dict[str, float]
    ones: float | None = None  # among the judged outcomes of two classes
    only: str | None = None  # the class of every judged label, where there is one only
    learnt: int | None = None  # outcomes that arrived before the last forecast, where they were late
    ranks: Ranks = field(default_factory=Ranks)  # how well the raw score ranks
    ages: str | None = None  # what to say of ones and zeros that come at clearly different ages
    assumption: str | None = None  # on the arrival of outcomes, where a column of their times was not used
    unsettled: str | None = None  # that column, where nobody has said how late outcomes are
    base: str | None = None  # the base rate among the compared

    @property
    def can_tell(self) -> bool:
        """Whether there are events enough to speak of the score: of both outcomes, and some that could be learnt."""
        learnt = self.learnt is None or self.learnt >= FEW_EVENTS
        return self.judged >= FEW_EVENTS and learnt and self.ranks.in_words != ""


def threshold(methods: int) -> float:
    """The log e-value that one of `methods` ever reaches in at most 5 % of logs whose raw score is calibrated.

    >>> round(math.exp(threshold(9)))
    180
    """
    return math.log(20.0 * max(1, methods))


def evalue(replayed: Replayed) -> Evidence:
    """The log e-value of each method along the log."""
    blocks, used = replayed.blocks, replayed.blocks.used
    at = np.unique(np.linspace(1, used, min(MOST_POINTS, used)).round().astype(int)).tolist() if used else []
    timed = replayed.span is not None
    ends = [int(blocks.end[k - 1]) for k in at]
    x: list[str] | list[int] = [iso(end) for end in ends] if timed else ends
    paths = {runner.name: log_e_values(runner.tally, used, at) for runner in replayed.runners[1:]}
    return {"by": "time" if timed else "event", "x": x, "threshold": threshold(len(paths)), "methods": paths}


def verdict(compared: Comparison, facts: Facts) -> Verdict:
    """Of the methods in `facts.labels`.

    A gain: the log-loss is below the raw score's beyond the interval of a claim, on this log. Sure: a gain, elsewhere
    too by the stretched block bootstrap, and dependence does not outlive its runs. Likely: a gain, and elsewhere too or
    in each eighth of the log.
    """
    found = _of_measures(compared, facts)
    if facts.ages is not None:
        found["sentences"].append(facts.ages)
    unsettled = facts.unsettled is not None and found["method"] != compared.raw
    if facts.assumption is not None:
        found["caveats"].append(facts.assumption)
    if unsettled:
        # Outcomes taken to be known at once can make a small gain look large: no percentage before that is settled.
        _unsettle(found, f"Settle first when outcomes were known: the column {facts.unsettled!r} could not be used")
    if seems_reversed(facts.ranks.auc, facts.judged, facts.ones):
        _unsettle(found, f"The score seems reversed: check its column first. As it is: {_lower(found['headline'])}")
        found["caveats"].insert(
            0,
            "Of two events with outcomes 1 and 0, the first has the higher score in only "
            f"{100 * facts.ranks.auc:.0f} % of the cases (AUC {facts.ranks.auc:.4f}). The column may hold the "
            "probability of the other outcome, or 1 and 0 may be swapped.",
        )
    elif facts.base is not None and facts.can_tell and not unsettled:
        _of_the_base_rate(found, compared, facts, facts.base)
    return found


def _unsettle(found: Verdict, headline: str) -> None:
    """Another headline, and no word of how sure the gain is."""
    found["headline"], found["confidence"] = headline, "unclear"
    found["sentences"] = [sentence for sentence in found["sentences"] if not sentence.startswith(GAIN_IS_THERE)]


def _of_the_base_rate(found: Verdict, compared: Comparison, facts: Facts, base: str) -> None:
    """Say how much of the gain is only the base rate, so that a score that says nothing is not praised."""
    raw, keeps = compared.raw, found["method"] == compared.raw
    every = sorted(compared.candidates or [raw], key=lambda name: compared.measured(name, "log_loss"))
    best = every[0] if keeps else found["method"]
    loss = {name: compared.measured(name, "log_loss") for name in (raw, best, base)}
    what = "how often each class came so far" if facts.ones is None else "the share of ones so far"
    alone = f"to forecast {what}, whatever the score, costs a log-loss of {loss[base]:.4f}"
    better = compared.difference(base, raw, "log_loss")[2] < 0.0
    as_good = compared.difference(best, base, "log_loss")[2] >= 0.0
    label = "the raw score" if best == raw else facts.labels[best]
    if better and as_good and (facts.ranks.says_nothing or not keeps):
        no_use = "The score carries no information: the base rate does as well. Look at the model first"
        weak = f"The base rate does as well as {label}: this log does not show what the score adds"
        _unsettle(found, no_use if facts.ranks.says_nothing else weak)
        ours = "" if best == raw else f", and {label} {loss[best]:.4f}: all that it gains is the base rate"
        found["caveats"].insert(0, f"{_upper(alone)}; the raw score has {loss[raw]:.4f}{ours}. {facts.ranks.in_words}.")
    elif keeps and better:
        found["caveats"].insert(0, f"The base rate does better: {alone}; the raw score has {loss[raw]:.4f}.")
    elif keeps and as_good and facts.ranks.says_nothing and compared.difference(raw, base, "log_loss")[2] >= 0.0:
        nothing = "The score carries no information that this log shows"
        found["caveats"].insert(0, f"{nothing}: {alone}, the raw score {loss[raw]:.4f}. {facts.ranks.in_words}.")
    elif not keeps:
        share = min(1.0, (loss[raw] - loss[base]) / (loss[raw] - loss[best]))
        if share < 0.005:
            found["sentences"].insert(0, f"None of the gain is only the base rate: {alone}.")
            return
        said = f"{100 * share:.0f} % of the gain is only the base rate: {alone}."
        if facts.ranks.says_nothing:
            said += f" {facts.ranks.in_words}: the rest is no merit of the score, but of what was learnt besides."
        found["caveats"].insert(0, said)


def seems_reversed(auc: float, judged: int, ones: float | None) -> bool:
    """Whether an AUC is so far below one half that chance is no explanation (four standard errors, and 0.05).

    >>> seems_reversed(0.2, 1000, 300.0), seems_reversed(0.48, 10**6, 3e5), seems_reversed(0.4, 30, 10.0)
    (True, False, False)
    """
    if ones is None or math.isnan(auc) or auc > 0.45:
        return False
    return auc < 0.5 - 4.0 * error_of_auc(judged, ones)


def _of_measures(compared: Comparison, facts: Facts) -> Verdict:
    labels = facts.labels
    raw, others = compared.raw, compared.candidates
    if not others:
        none = "There was no other method that looks at the score to compare it with."
        return _keep(raw, "unclear", "Only the raw score was replayed", [none])
    if facts.learnt is not None and facts.learnt < FEW_EVENTS:
        return _little_learnt(raw, facts.learnt)
    moved = [name for name in others if not _same(compared, name)]
    ranked = sorted(moved or others, key=lambda name: compared.measured(name, "log_loss"))
    best = _candidate(compared, ranked)
    buys = [_buys(compared, best, facts), _errors(compared, best, labels)]
    if facts.judged < FEW_EVENTS:
        counted = "one event was" if facts.judged == 1 else f"{facts.judged:,} events were"
        few = f"Only {counted} judged; below {FEW_EVENTS} the answer is mostly chance."
        return _keep(raw, "unclear", "Too few events to tell: keep the raw score for now", [few, *buys])
    if not moved:
        same = "Every method gave the raw score back: nothing was learnt from this log."
        return _keep(raw, "unclear", "Keep the raw score: no method differs from it", [same])
    if facts.only is not None or facts.ones in {0.0, float(facts.judged)}:
        return _one_kind(raw, facts)
    if compared.effective(best) < FEW_EFFECTIVE:
        effective = max(1, round(compared.effective(best)))
        rests = (
            f"The difference between {labels[best]} and the raw score rests on about "
            f"{'one event' if effective == 1 else f'{effective} events'}: the others hardly count beside them."
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


def _one_kind(raw: str, facts: Facts) -> Verdict:
    perfect = "A method that always forecasts it looks perfect. It has not learnt when"
    if facts.only is not None:
        only = f"Every judged label is {facts.only!r}. {perfect} another class comes: a log with several is needed."
        return _keep(raw, "unclear", "One class only: keep the raw scores", [only])
    one = int(bool(facts.ones))
    only = f"Every judged outcome is {one}. {perfect} the other outcome comes: a log with both is needed."
    return _keep(raw, "unclear", "One kind of outcome only: keep the raw score", [only])


def _little_learnt(raw: str, learnt: int) -> Verdict:
    if learnt == 0:
        none = "No outcome arrived before the last forecast, so no method could learn anything."
        return _keep(raw, "unclear", "Nothing could be learnt: keep the raw score", [none])
    arrived = "one outcome" if learnt == 1 else f"{learnt:,} outcomes"
    few = f"Only {arrived} arrived before the last forecast; below {FEW_EVENTS} the answer is mostly chance."
    return _keep(raw, "unclear", "Too few outcomes arrived to tell: keep the raw score for now", [few])


def _use(compared: Comparison, best: str, ranked: list[str], facts: Facts, buys: list[str]) -> Verdict:
    labels = facts.labels
    others = [name for name in ranked if name != best]
    tied = [name for name in others if compared.difference(best, name, "log_loss")[2] >= 0.0]
    sure = _elsewhere(compared, best) and not compared.outlived(best)
    sentences = [*buys]
    sentences.append(_spread(compared, best, sure=sure))
    if tied:
        named = _listed([labels[name] for name in tied])
        sentences.append(f"On this log {labels[best]} cannot be told apart from {named} by log-loss.")
    elif others:
        sentences.append(
            f"On this log it is also better than the next best, {labels[others[0]]}, beyond the 95 % interval."
        )
    methods = len(compared.candidates)
    evidence = facts.log_e_max[best] - math.log(methods)
    if evidence > math.log(20.0):
        chosen = f" (this allows for the choice among {methods} methods)" if methods > 1 else ""
        sentences.append(
            "The raw score is not calibrated: if it were, the outcomes would favour a method as strongly as they did "
            f"with probability at most {_power(evidence)}{chosen}."
        )
    sentences += _least_error(compared, best, ranked, labels)
    less = -compared.claim(best)[0] / compared.measured(compared.raw, "log_loss")
    return {
        "method": best,
        "headline": f"Use {labels[best]}: {100 * less:.1f} % less log-loss than the raw score",
        "caveats": [],
        "sentences": sentences,
        "confidence": "sure" if sure else "likely",
    }


def _least_error(compared: Comparison, best: str, ranked: list[str], labels: dict[str, str]) -> list[str]:
    """The method of least calibration error, if it is another one and that is beyond luck."""
    least = min([compared.raw, *ranked], key=lambda name: compared.measured(name, "ce"))
    if least == best or not compared.less_error(least, best):
        return []
    error = compared.measured(least, "ce")
    shown = f"{error:.{decimals([error])}f}"
    return [f"If you care about calibration error alone, {labels[least]} has the least, beyond luck: {shown}."]


GAIN_IS_THERE = "The gain is there"


def _spread(compared: Comparison, best: str, *, sure: bool) -> str:
    """In how many eighths the gain is there and how far they differ, and why that makes it sure or likely."""
    parts = compared.eighths(best)
    negative = sum(part < 0.0 for part in parts)
    d = decimals(parts)
    least, most = max(parts), min(parts)
    within = "all eight eighths" if negative == 8 else f"{negative} of the eight eighths"
    range_ = (
        f"{GAIN_IS_THERE} in {within} of the log, from {least:+.{d}f} in the {_ORDER[parts.index(least)]} to "
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
    many = f", the best of {len(compared.candidates)} methods," if compared.quantile(best) > Z else ""
    luck = f"The luck of the outcomes may explain what {labels[best]}{many} shows: that may be chance."
    certain: Literal["unclear", "likely"] = "unclear" if d < 0.0 else "likely"
    return _keep(compared.raw, certain, "Keep the raw score: no method is surely better", [*buys, luck])


def _keep(raw: str, confidence: Literal["sure", "likely", "unclear"], headline: str, sentences: list[str]) -> Verdict:
    return {"method": raw, "headline": headline, "caveats": [], "sentences": sentences, "confidence": confidence}


def _buys(compared: Comparison, best: str, facts: Facts) -> str:
    """The difference in log-loss, and what the luck of the outcomes accounts for."""
    label = facts.labels[best]
    d, low, high = compared.difference(best, compared.raw, "log_loss")
    mine, theirs = compared.measured(best, "log_loss"), compared.measured(compared.raw, "log_loss")
    digits = decimals([d, low, high])
    side = "lower than" if d < 0.0 else "higher than"
    sentence = (
        f"On the {facts.judged:,} judged events the log-loss of {label}, {mine:.{digits}f}, is {side} the raw score's, "
        f"{theirs:.{digits}f}, by {abs(d):.{digits}f}. The luck of single outcomes may have moved that by "
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


def elsewhere_in_words(bootstrap: Bootstrap, fitted_once: str) -> str:
    """How it is checked whether a gain would hold elsewhere; `fitted_once` is a method that is."""
    return (
        f"Whether a gain would hold elsewhere is checked by a moving-block bootstrap: {RESAMPLES:,} logs put together "
        f"from runs of {bootstrap.run_events:,} consecutive events, stretched to what longer runs show where a "
        "difference depends on its past for longer than a run. It cannot know what lasts as long as the log itself, "
        f"nor another fit of a method that is fitted once, such as {fitted_once}."
    )


_ORDER = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "last")


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _lower(headline: str) -> str:
    return headline[0].lower() + headline[1:]


def _upper(sentence: str) -> str:
    return sentence[0].upper() + sentence[1:]


def _power(evidence: float) -> str:
    return f"{math.exp(-evidence):.2g}" if evidence < 30 else f"1e-{int(evidence / math.log(10.0))}"


# ---- the same for a manager: one number of events, how sure, and what to do --------------------------------------

LEAST_SHARE, LEAST_IN_BIN = 0.01, 50  # of the judged events: a bin with fewer is no example

SURE = {
    ("use", "sure"): "We are sure: the gain is beyond luck on this log (95 %), and it is there in resampled stretches "
    "of the log too.",
    ("use", "likely"): "It is likely, not certain: the gain is beyond luck on this log (95 %), but it changes along "
    "the log, so how large it will be elsewhere is open.",
    ("use", "unclear"): "It is not settled: look at the score first, at its column and at the model behind it.",
    ("keep", "sure"): "We are sure: on this log every method loses to the raw score, beyond luck (95 %).",
    ("keep", "likely"): "It is likely: no method shows a gain that would pay for another part in production.",
    ("keep", "unclear"): "It is not settled: this log is too short or too uneven to tell. A longer log may.",
}


UNSETTLED = (
    "It is not settled: outcomes were taken to be known at once, and the gain would be smaller if they were late. Say "
    "when they were known (--outcome-time, --time-format), or how late they are (--delay)."
)

AGAIN = (
    "Run the backtest again when you have said it. Which method to use depends on it, and so does the code: a method "
    "that has learnt from outcomes at once expects them at once."
)


def answer(replayed: Replayed, found: Verdict, classes: Sequence[str] | None, past: HowReplayed) -> AnswerInfo:
    """From the verdict and the bins of the raw score and of the chosen method; `classes` are the names of many."""
    runners = {runner.name: runner for runner in replayed.runners}
    raw, chosen = replayed.runners[0], runners[found["method"]]
    service, unsettled = None, past.unsettled and chosen is not raw
    if unsettled:
        library, note = "", AGAIN
    elif classes is None:
        library, service, note = deployment(chosen.contender, past, is_raw=chosen is raw)
    else:
        library, note = deployment_of_classes(chosen.contender, classes, past)
    return {
        # Where the raw score is kept, its worst bin would be one that was picked by luck.
        "happened": [] if chosen is raw else example_of([raw, chosen], replayed.blocks.used, replayed.blocks.judged),
        "sure": UNSETTLED if unsettled else SURE["keep" if chosen is raw else "use", found["confidence"]],
        "library": library.splitlines(),
        "service": None if service is None else service.splitlines(),
        "note": note,
    }


def example_of(runners: Sequence[Runner], used: int, judged: int) -> list[Happened]:
    """The bin in which the raw score is off by the most events, and the bin of the choice that is nearest to it.

    A bin counts if it has 50 events and 1 % of those that were judged; where a method has no such bin, all of its
    events do. Letters: n events in a bin, p the sum of their forecasts, y of their outcomes; the bin of the raw score
    has the largest |y - p|.
    """
    tables = [runner.tally.cells(used)[1:].sum(axis=0) for runner in runners]
    least = max(LEAST_IN_BIN, LEAST_SHARE * judged)
    enough = [np.flatnonzero(table[:, COUNT] >= least) for table in tables]
    if all(len(bins) for bins in enough):
        off = np.abs(tables[0][:, OUTCOME] - tables[0][:, FORECAST])[enough[0]]
        raw = enough[0][np.argmax(off)]
        nearest = [bins[np.argmin(np.abs(bins - raw))] for bins in enough]
        tables = [table[[at]] for table, at in zip(tables, nearest, strict=True)]
    return [_happened(runner.name, table) for runner, table in zip(runners, tables, strict=True)]


CLEARLY_OFF = 0.1  # a gap that matters
_OF_BIN: tuple[Literal["forecast", "low", "high", "outcome"], ...] = ("forecast", "low", "high", "outcome")


def bins_off(runner: Runner, used: int, *, many: bool, is_raw: bool) -> list[str]:
    """Sentences on neighbouring bins of forecasts that are clearly off: by 10 points or more, beyond the bands."""
    cells = runner.tally.cells(used)[1:].sum(axis=0)
    curve, bins = curve_of(cells), len(cells)
    sides = [
        (said > came) - (said < came)
        if said is not None and not low <= said <= high and abs(said - came) >= CLEARLY_OFF
        else 0
        for said, low, high, came in zip(*(curve[name] for name in _OF_BIN), strict=True)
    ]
    who = "the raw score" if is_raw else runner.contender.label
    says = f"the confidence of {who} is" if many else f"{who} says"
    sentences = []
    for side, group in groupby(range(bins), key=sides.__getitem__):
        at = list(group)
        n, p, y = cells[at].sum(axis=0).tolist()
        if side and n >= LEAST_IN_BIN:
            low, high = 100 * at[0] / bins, 100 * (at[-1] + 1) / bins
            where = f"{low:.0f} % or more" if high == 100 else f"less than {high:.0f} %" if not low else ""
            where = where or f"{low:.0f} to {high:.0f} %"
            came = f"it is right in {100 * y / n:.0f} %" if many else f"{100 * y / n:.0f} % happened"
            sentences.append(f"But where {says} {where} ({int(n):,} events, {100 * p / n:.0f} % on average), {came}.")
    return sentences


def _happened(name: str, table: Any) -> Happened:
    n, p, y = table.sum(axis=0).tolist()
    return {"method": name, "count": int(n), "forecast": p / n, "outcome": y / n}
