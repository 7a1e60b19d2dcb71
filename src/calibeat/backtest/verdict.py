"""The verdict: which method to use, what it buys, how sure that is, and when to keep the raw score."""

from __future__ import annotations

import math

from calibeat.report.payload import Verdict

from .bootstrap import Bootstrap, Triple

FEW = 200  # judged events; fewer settle nothing
SMALL_LOSS, SMALL_CE = (
    0.002,
    0.005,
)  # a gain below both (share of the log-loss, calibration error) is not worth the work


def threshold(methods: int) -> float:
    """The log e-value that one of so many methods ever reaches in at most 5 % of the logs whose raw score is calibrated.

    >>> round(math.exp(threshold(9)))
    180
    """
    return math.log(20.0 * max(1, methods))


def verdict(bootstrap: Bootstrap, labels: dict[str, str], judged: int, log_e_max: dict[str, float]) -> Verdict:
    """Of the methods in `labels`, the raw score first."""
    raw, *others = labels
    if not others:
        return _keep(
            raw, "unclear", "Only the raw score was replayed", ["There was no other method to compare it with."]
        )
    ranked = sorted(others, key=lambda name: bootstrap.measured(name, "log_loss"))
    best = ranked[0]
    gain = bootstrap.difference(best, raw, "log_loss")
    buys = _buys(bootstrap, best, raw, labels, gain)
    if judged < FEW:
        counted = "one event was" if judged == 1 else f"{judged:,} events were"
        few = f"Only {counted} judged; below {FEW} the answer is mostly chance."
        return _keep(raw, "unclear", "Too few events to tell: keep the raw score for now", [few, buys])
    if gain[2] >= 0.0:
        return _raw_stays(bootstrap, raw, best, labels, gain, buys)
    share = -gain[0] / bootstrap.measured(raw, "log_loss")
    closer = bootstrap.measured(raw, "ce") - bootstrap.measured(best, "ce")
    if share < SMALL_LOSS and closer < SMALL_CE:
        small = "The difference is real, but it is too small to pay for another part in production."
        return _keep(raw, "likely", f"Keep the raw score: {labels[best]} is hardly better", [buys, small])
    return _use(bootstrap, ranked, raw, labels, buys, log_e_max)


def _use(
    bootstrap: Bootstrap, ranked: list[str], raw: str, labels: dict[str, str], buys: str, log_e_max: dict[str, float]
) -> Verdict:
    best = ranked[0]
    tied = [name for name in ranked[1:] if bootstrap.difference(name, best, "log_loss")[1] <= 0.0]
    share = bootstrap.share_better(best, raw)
    sentences = [buys, f"{labels[best]} beats the raw score in {_share(share)} of the resampled logs."]
    if tied:
        named = _listed([labels[name] for name in tied])
        sentences.append(
            f"On this log {labels[best]} cannot be told apart from {named} by log-loss; the choice among them is open, "
            "that calibration pays is not."
        )
    elif len(ranked) > 1:
        sentences.append(f"It is also better than the next best, {labels[ranked[1]]}, beyond the 95 % interval.")
    evidence = log_e_max[best]
    if evidence > math.log(20.0):
        sentences.append(
            "If the raw score were calibrated, a likelihood ratio as large as the one seen would ever have come up "
            f"with probability at most {_power(evidence)}: it is not calibrated."
        )
    honest = min([raw, *ranked], key=lambda name: bootstrap.measured(name, "ce"))
    if honest != best and bootstrap.difference(honest, best, "ce")[2] < 0.0:
        sentences.append(
            f"If calibration error alone is what you are paid by, {labels[honest]} has the least: "
            f"{bootstrap.measured(honest, 'ce'):.4f}."
        )
    less = -bootstrap.difference(best, raw, "log_loss")[0] / bootstrap.measured(raw, "log_loss")
    return {
        "method": best,
        "headline": f"Use {labels[best]}: {100 * less:.1f} % less log-loss than the raw score",
        "sentences": sentences,
        "confidence": "likely" if tied else "sure",
    }


def _raw_stays(bootstrap: Bootstrap, raw: str, best: str, labels: dict[str, str], gain: Triple, buys: str) -> Verdict:
    share = bootstrap.share_better(best, raw)
    if gain[1] > 0.0:
        worse = f"Every method loses to the raw score; the best of them, {labels[best]}, beyond the 95 % interval."
        return _keep(raw, "sure", "Keep the raw score: no method improves it", [worse, buys])
    unsure = f"{labels[best]} beats the raw score in {_share(share)} of the resampled logs: that may be chance."
    certain = "unclear" if gain[0] < 0.0 else "likely"
    return _keep(raw, certain, "Keep the raw score: no method is surely better", [buys, unsure])


def _keep(raw: str, confidence: str, headline: str, sentences: list[str]) -> Verdict:
    return {"method": raw, "headline": headline, "sentences": sentences, "confidence": confidence}  # type: ignore[typeddict-item]  # one of the three words


def _buys(bootstrap: Bootstrap, best: str, raw: str, labels: dict[str, str], gain: Triple) -> str:
    mine, theirs = bootstrap.measured(best, "log_loss"), bootstrap.measured(raw, "log_loss")
    ce, raw_ce = bootstrap.measured(best, "ce"), bootstrap.measured(raw, "ce")
    return (
        f"{labels[best]} has a log-loss of {mine:.4f}, the raw score {theirs:.4f}: a difference of {gain[0]:+.4f} "
        f"(95 % interval {gain[1]:+.4f} to {gain[2]:+.4f}). Forecasts are off by {100 * ce:.2f} points on average "
        f"(calibration error), the raw score by {100 * raw_ce:.2f}."
    )


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _share(share: float) -> str:
    return "all" if share == 1.0 else "none" if share == 0.0 else f"{100 * share:.1f} %"


def _power(evidence: float) -> str:
    return f"{math.exp(-evidence):.2g}" if evidence < 30 else f"1e-{int(evidence / math.log(10.0))}"
