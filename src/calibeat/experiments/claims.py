"""What the text claims of Figures 5 to 9 and 12 to 15, each claim beside the rule that decides it from our runs.

The paper's lines are means over runs, and so are ours. "Clearly" means that the mean difference, run by run on the same
stream, is more than three standard errors. A claim of the form "always" fails by one clear exception; exceptions that
are not clear leave it undecided. Words such as "slightly" are given a number, which is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calibeat import bounds

from .replay import EPSILONS
from .section import Verdict
from .summary import Summary

Streams = Mapping[str, Summary]  # by the stream's name
Decided = tuple[bool | None, str]
Decide = Callable[[Streams], Decided]
BoolArray = npt.NDArray[np.bool_]

STANDARD_ERRORS = 3.0  # not two: there are hundreds of points, and some would exceed two by chance
SMALL_DROP = 0.005  # of sharpness, as the text says
MUCH = 1.5  # "much worse" is at least so many times
SLIGHTLY = 1.25  # "slightly worse" is at most so many times
AT_FIRST_GLANCE = 0.005  # CE that nobody sees in the plots


@dataclass(frozen=True)
class Claim:
    """The text's own words, where they stand, and how to decide."""

    text: str
    where: str
    decide: Decide

    def judged(self, streams: Streams) -> Verdict:
        """The verdict in our runs."""
        holds, why = self.decide(streams)
        return Verdict(self.text, self.where, holds, why)


def of_design(streams: Streams, design: str) -> dict[str, Summary]:
    """The streams of one design."""
    return {name: summary for name, summary in streams.items() if summary.stream.design == design}


# ---- rules -------------------------------------------------------------------------------------------------------


def higher(summary: Summary, method: str, rival: str, epsilon: float = 0.1) -> tuple[BoolArray, ...]:
    """At which points the method's mean CE is above the rival's at all, by two standard errors, and clearly."""
    gap = summary.values("ce", method, epsilon) - summary.values("ce", rival, epsilon)
    error = gap.std(axis=0, ddof=1) / np.sqrt(summary.runs) if summary.runs > 1 else np.zeros(gap.shape[1])
    return tuple(gap.mean(axis=0) > errors * error for errors in (0.0, 2.0, STANDARD_ERRORS))


def never_beaten(method: str, rivals: Sequence[str], design: str = "", epsilons: Sequence[float] = (0.1,)) -> Decide:
    """At no point of any stream has a rival less CE."""

    def decide(streams: Streams) -> Decided:
        exceptions, points, lost = [], 0, np.zeros(3, dtype=np.int64)
        for name, summary in (of_design(streams, design) if design else streams).items():
            for epsilon in epsilons:
                beaten = {rival: higher(summary, method, rival, epsilon) for rival in rivals}
                anywhere = np.logical_or.reduce(list(beaten.values()))  # by rank of certainty and point
                points, lost = points + anywhere.shape[1], lost + anywhere.sum(axis=1)
                by = [f"{rival} {at[0].sum()} (clearly {at[2].sum()})" for rival, at in beaten.items() if at[0].any()]
                if by:
                    of = f"{name}, epsilon {epsilon:g}" if len(epsilons) > 1 else name
                    exceptions.append(f"{of}: by {', '.join(by)} of {anywhere.shape[1]}")
        if not exceptions:
            return True, f"{method} has the least mean CE at all {points} points"
        at_all, by_two, clearly = lost
        why = f"{method} is beaten at {at_all} of {points} points, by two standard errors at {by_two}"
        return (False if clearly else None), f"{why}, clearly at {clearly} - {'; '.join(exceptions)}"

    return decide


def lower_at_the_end(method: str, rival: str, least_share: float, design: str = "", metric: str = "ce") -> Decide:
    """On at least this share of the streams the method ends lower than the rival, on average."""

    def decide(streams: Streams) -> Decided:
        chosen = of_design(streams, design) if design else streams
        pairs = {name: (s.final(metric, method)[0], s.final(metric, rival)[0]) for name, s in chosen.items()}
        won = [name for name, (ours, theirs) in pairs.items() if ours < theirs]
        lost = [f"{name} ({ours:.4f} > {theirs:.4f})" for name, (ours, theirs) in pairs.items() if ours >= theirs]
        label = {"ce": "CE", "brier": "Brier score"}[metric]
        why = f"{method} has the lower final {label} than {rival} on {len(won)} of {len(pairs)} streams"
        return len(won) >= least_share * len(pairs), why + (f"; not on {', '.join(lost)}" if lost else "")

    return decide


def both(*rules: Decide) -> Decide:
    """All rules hold."""

    def decide(streams: Streams) -> Decided:
        results = [rule(streams) for rule in rules]
        verdicts = [holds for holds, _ in results]
        return False if False in verdicts else None if None in verdicts else True, ". ".join(why for _, why in results)

    return decide


def sharpness_kept(design: str) -> Decide:
    """SHP of TOPS and HOPS is nowhere more than 0.005 below that of OPS, fetal health left aside."""

    def decide(streams: Streams) -> Decided:
        drops = {
            (name, method): float((summary.mean("shp", "OPS") - summary.mean("shp", method)).max())
            for name, summary in of_design(streams, design).items()
            for method in ("TOPS", "HOPS")
        }
        shown = ", ".join(f"{name} {method} {drop:.4f}" for (name, method), drop in drops.items())
        most = max(drop for (name, _), drop in drops.items() if not name.startswith("fetal"))
        return most < SMALL_DROP, f"largest drop below OPS over time: {shown}; asked: below {SMALL_DROP} but for fetal"

    return decide


def gap_is_smaller(streams: Streams) -> Decided:
    """Between BM, FPS, WPS and OPS, i.i.d. against drift, dataset by dataset."""
    spread = {}
    for name, summary in streams.items():
        ends = [summary.final("ce", method)[0] for method in ("BM", "FPS", "WPS", "OPS")]
        spread[name] = max(ends) - min(ends)
    kinds = sorted({summary.stream.kind for summary in streams.values()})
    why = ", ".join(f"{kind} {spread[f'{kind}-iid']:.4f} against {spread[f'{kind}-drift']:.4f}" for kind in kinds)
    return all(spread[f"{kind}-iid"] < spread[f"{kind}-drift"] for kind in kinds), f"largest minus smallest: {why}"


def much_worse(method: str, rival: str) -> Decide:
    """Under every drift the method ends with at least `MUCH` times the rival's CE."""

    def decide(streams: Streams) -> Decided:
        ratios = {
            name: summary.final("ce", method)[0] / summary.final("ce", rival)[0]
            for name, summary in of_design(streams, "drift").items()
        }
        why = ", ".join(f"{name} {ratio:.1f}" for name, ratio in ratios.items())
        return min(ratios.values()) >= MUCH, f"final CE of {method} over that of {rival}: {why}; asked: {MUCH:g}"

    return decide


def unmoved_by_epsilon(methods: Sequence[str]) -> Decide:
    """No method's final CE moves visibly when epsilon does."""

    def decide(streams: Streams) -> Decided:
        moved = {
            (abs(summary.final("ce", method, epsilon)[0] - summary.final("ce", method)[0]), method, name, epsilon)
            for name, summary in streams.items() for method in methods for epsilon in EPSILONS
        }  # fmt: skip
        most, method, name, epsilon = max(moved)
        why = f"largest move from epsilon 0.1: {most:.4f} ({method} on {name} at {epsilon:g}); asked: {AT_FIRST_GLANCE}"
        return most <= AT_FIRST_GLANCE, why

    return decide


def hedging_ratio(epsilon: float, least: float, most: float) -> Decide:
    """HOPS's final CE at epsilon over that at 0.1 stays in [least, most] on every stream."""

    def decide(streams: Streams) -> Decided:
        ratios = {n: s.final("ce", "HOPS", epsilon)[0] / s.final("ce", "HOPS")[0] for n, s in streams.items()}
        why = ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items())
        holds = min(ratios.values()) >= least and max(ratios.values()) <= most
        return holds, f"CE of HOPS at {epsilon:g} over that at 0.1: {why}; asked: {least:g} to {most:g} everywhere"

    return decide


def within_the_theorem(streams: Streams) -> Decided:
    """E CE(HOPS) <= epsilon/2 + 2 sqrt(1/(epsilon^2 T)) at the end of every stream, for every epsilon."""
    worst = 0.0
    for summary in streams.values():
        events = int(summary.points[-1]) - summary.stream.calibration
        for epsilon in EPSILONS:
            ce = summary.final("ce", "HOPS", epsilon)[0]
            worst = max(worst, ce / bounds.hops_calibration(epsilon, events))
    return worst <= 1.0, f"the largest share of the bound that is reached, over streams and epsilons: {worst:.2f}"


def least(summary: Summary, methods: Sequence[str]) -> str:
    """The method that ends with the least CE."""
    return min(methods, key=lambda method: summary.final("ce", method)[0])


def best_of(winner: str, rivals: Sequence[str], design: str) -> Decide:
    """On at least half of the design's streams the winner ends with the least CE."""

    def decide(streams: Streams) -> Decided:
        chosen = of_design(streams, design)
        firsts = {name: least(summary, (*rivals, winner)) for name, summary in chosen.items()}
        won = sum(first == winner for first in firsts.values())
        why = ", ".join(f"{name} {first}" for name, first in firsts.items())
        return won >= len(firsts) / 2, f"least final CE: {why}; asked: {winner} on at least half"

    return decide


def tracking_idles(streams: Streams) -> Decided:
    """Tracking takes less than a fifth off WHB's CE on more than half of the streams."""
    kept = {n: s.final("ce", "TWHB")[0] / s.final("ce", "WHB")[0] for n, s in streams.items()}
    why = ", ".join(f"{name} {ratio:.2f}" for name, ratio in kept.items())
    holds = sum(ratio > 0.8 for ratio in kept.values()) > len(kept) / 2
    return holds, f"final CE of TWHB over that of WHB: {why}; asked: above 0.8 on more than half"


# ---- claims ------------------------------------------------------------------------------------------------------

FAMILY = ("BM", "FPS", "WPS", "OPS", "TOPS", "HOPS")
RIVALS_OF_TOPS = ("BM", "FPS", "WPS", "OPS", "HOPS")

DRIFT = (
    Claim("OPS consistently performs better than BM, FPS, and WPS", "Figure 5",
          never_beaten("OPS", ("BM", "FPS", "WPS"), "drift")),
    Claim("TOPS is the best-performing among all methods across datasets and time", "Figure 5",
          never_beaten("TOPS", RIVALS_OF_TOPS, "drift")),
    Claim("both forms of calibeating typically improve OPS further", "Section 4.1",
          both(lower_at_the_end("TOPS", "OPS", 0.51, "drift"), lower_at_the_end("HOPS", "OPS", 0.51, "drift"))),
    Claim("The drop in expected sharpness is below 0.005 at all times except on the Fetal Health Dataset", "Figure 8",
          sharpness_kept("drift")),
)  # fmt: skip
IID = (
    Claim("the gap in CE between BM, FPS, OPS, and WPS is smaller", "Section 4.1", gap_is_smaller),
    Claim("TOPS achieves the smallest values of CE throughout", "Figure 6",
          never_beaten("TOPS", RIVALS_OF_TOPS, "iid")),
    Claim("both forms of calibeating typically improve OPS further", "Section 4.1, here for i.i.d. data",
          both(lower_at_the_end("TOPS", "OPS", 0.51, "iid"), lower_at_the_end("HOPS", "OPS", 0.51, "iid"))),
    Claim("The drop in expected sharpness is less than 0.005 in all cases except for the HOPS forecaster on the Fetal "
          "Health dataset", "Figure 9", sharpness_kept("iid")),
    Claim("HOPS provably controls miscalibration: E CE <= epsilon/2 + 2 sqrt(1/(epsilon^2 T))", "Theorem 3.2",
          within_the_theorem),
    Claim("the Brier-score of the TOPS forecasts is better than that of the OPS forecasts", "Section 3.1, all streams",
          lower_at_the_end("TOPS", "OPS", 1.0, metric="brier")),
    Claim("we found ONS to be giving better calibration than AIOLI", "Section 2.2, all streams",
          lower_at_the_end("OPS", "OPS (AIOLI)", 0.51)),
    Claim("The TOPS method we proposed has the lowest calibration error in all experimental scenarios", "Section 6",
          never_beaten("TOPS", (*RIVALS_OF_TOPS, "OBS", "WHB", "FBS", "WBS"))),
)  # fmt: skip
TEN = (
    Claim("In all cases, TOPS has the lowest CE across time", "Figure 7", never_beaten("TOPS", RIVALS_OF_TOPS)),
    Claim(
        "OPS and TOPS continue performing well, but WPS performs much worse", "Section 4.2", much_worse("WPS", "OPS")
    ),
)
EPSILON = (
    Claim("The qualitative results remain identical, with TOPS still the best performer", "Appendix A.3",
          never_beaten("TOPS", RIVALS_OF_TOPS, epsilons=(0.05, 0.2))),
    Claim("the plots for all methods except HOPS are indistinguishable from their epsilon = 0.1 counterparts at first "
          "glance", "Appendix A.3", unmoved_by_epsilon(("BM", "FPS", "WPS", "OPS", "TOPS"))),
    Claim("the performance of HOPS improves slightly with epsilon = 0.05", "Appendix A.3",
          hedging_ratio(0.05, 0.0, 1.0)),
    Claim("the performance of HOPS worsens slightly with epsilon = 0.2", "Appendix A.3",
          hedging_ratio(0.2, 1.0, SLIGHTLY)),
)  # fmt: skip
BETA = (
    Claim("OBS further improves upon OPS in most cases", "Figure 14", lower_at_the_end("OBS", "OPS", 0.51)),
    Claim("OBS performs better than both OPS and WBS", "Appendix B", never_beaten("OBS", ("OPS", "WBS"))),
    Claim("In each plot, TOBS is the best-performing method", "Figure 14",
          never_beaten("TOBS", ("WPS", "OPS", "WBS", "OBS", "HOBS"))),
)  # fmt: skip
HISTOGRAM = (
    Claim("Among non-tracking methods, WHB performs well with i.i.d. data", "Figure 15",
          best_of("WHB", ("OPS", "OBS"), "iid")),
    Claim("while OBS performs well for drifting data", "Figure 15", best_of("OBS", ("OPS", "WHB"), "drift")),
    Claim("Among tracking methods, TOBS and TOPS are the best-performing methods in every plot", "Figure 15",
          both(never_beaten("TOBS", ("TWHB",)), never_beaten("TOPS", ("TWHB",)))),
    Claim("Tracking typically does not improve WHB much", "Figure 15", tracking_idles),
)  # fmt: skip
