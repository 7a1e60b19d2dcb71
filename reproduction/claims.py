"""What the text claims of Figures 5 to 9 and 12 to 15, each claim in its words, beside the rule that decides it."""

from __future__ import annotations

from dataclasses import dataclass

from .replay import EPSILONS
from .rules import (
    MUCH,
    SLIGHTLY,
    SMALL_DROP,
    Decide,
    Streams,
    almost_as_good,
    best_of,
    both,
    brier_gain,
    epsilon_ratio,
    gap_is_smaller,
    invisible_bars,
    lower_at_the_end,
    margin,
    most_often_best,
    never_beaten,
    ratio,
    sharpness_kept,
    tracking_idles,
    unmoved_by_epsilon,
    within_the_theorem,
)
from .section import Verdict, undecided_if_few


@dataclass(frozen=True)
class Claim:
    """The text's own words, where they stand, and how to decide."""

    text: str
    where: str
    decide: Decide
    verbatim: bool = True

    def judged(self, streams: Streams) -> Verdict:
        """The verdict in our runs."""
        found = self.decide(streams)
        verdict = Verdict(self.text, self.where, found.holds, found.why, found.asked, found.fails_at_two, self.verbatim)
        return undecided_if_few([verdict], min(summary.runs for summary in streams.values()))[0]


FAMILY = ("BM", "FPS", "WPS", "OPS", "TOPS", "HOPS")
RIVALS_OF_TOPS = ("BM", "FPS", "WPS", "OPS", "HOPS")
ALL_RIVALS = (*RIVALS_OF_TOPS, "WBS", "OBS", "TOBS", "HOBS", "WHB", "TWHB")  # all that the paper plots

DRIFT = (
    Claim(
        "OPS consistently performs better than BM, FPS, and WPS",
        "Figure 5",
        never_beaten("OPS", ("BM", "FPS", "WPS"), "drift"),
    ),
    Claim(
        "TOPS is the best-performing among all methods across datasets and time",
        "Figure 5",
        never_beaten("TOPS", RIVALS_OF_TOPS, "drift"),
    ),
    Claim(
        "TOPS performs the best by a margin compared to other methods",
        "Section 4.1",
        margin("TOPS", RIVALS_OF_TOPS, "drift"),
    ),
    Claim(
        "both forms of calibeating typically improve OPS further",
        "Section 4.1",
        both(lower_at_the_end("TOPS", "OPS", "drift"), lower_at_the_end("HOPS", "OPS", "drift")),
    ),
    Claim(
        "The plots have invisible error bars since variation across the 100 runs was small",
        "Figure 5",
        invisible_bars("ce", FAMILY, "drift"),
    ),
    Claim(
        "The drop in SHP is insignificant in each case (around 0.005)",
        "Section 4.1",
        sharpness_kept("drift", MUCH * SMALL_DROP, ()),
    ),
    Claim(
        "The drop in expected sharpness is below 0.005 at all times except on the Fetal Health Dataset",
        "Figure 8",
        sharpness_kept("drift", SMALL_DROP, ("fetal-drift",)),
    ),
    Claim(
        "The plots have invisible error bars since variation across the 100 runs was small",
        "Figure 8",
        invisible_bars("shp", FAMILY, "drift"),
    ),
)
IID = (
    Claim("the gap in CE between BM, FPS, OPS, and WPS is smaller", "Section 4.1", gap_is_smaller),
    Claim(
        "TOPS achieves the smallest values of CE throughout", "Figure 6", never_beaten("TOPS", RIVALS_OF_TOPS, "iid")
    ),
    Claim(
        "TOPS performs the best in all scenarios, typically by a margin",
        "Section 4.1",
        both(never_beaten("TOPS", RIVALS_OF_TOPS, "iid"), margin("TOPS", RIVALS_OF_TOPS, "iid", 0.5)),
    ),
    Claim(
        "The plots have invisible error bars since variation across runs was small",
        "Figure 6",
        invisible_bars("ce", FAMILY, "iid"),
    ),
    Claim(
        "The drop in expected sharpness is less than 0.005 in all cases except for the HOPS forecaster on the Fetal "
        "Health dataset, where it is 0.01",
        "Figure 9",
        sharpness_kept("iid", SMALL_DROP, ("fetal-iid HOPS",), "fetal-iid HOPS"),
    ),
    Claim(
        "Hedging keeps E CE of HOPS below epsilon/2 + 2 sqrt(1/(epsilon^2 T))",
        "Theorem 3.2, all streams",
        within_the_theorem,
        verbatim=False,
    ),
    Claim(
        "the Brier-score of the TOPS forecasts [...] is better than the corresponding Brier-score of the OPS "
        "forecasts [...], by roughly the squared calibration error of [...] (minus a log T term)",
        "Section 3.1, all streams",
        brier_gain,
    ),
    Claim(
        "TOPS had the best calibration performance in most experiments",
        "Section 3.2, all streams",
        most_often_best("TOPS", RIVALS_OF_TOPS),
    ),
    Claim(
        "In all experiments with real data, WPS performs almost as good as OPS",
        "Section 4.2, all streams",
        almost_as_good("WPS", "OPS"),
    ),
    Claim(
        "we found ONS to be significantly faster than AIOLI while also giving better calibration",
        "Section 2.2, the second half, all streams",
        lower_at_the_end("OPS", "OPS (AIOLI)"),
    ),
    Claim(
        "The TOPS method we proposed has the lowest calibration error in all experimental scenarios we considered",
        "Section 6, all streams of real data and all epsilons; ten dimensions are judged at Figure 7",
        never_beaten("TOPS", ALL_RIVALS, epsilons=EPSILONS),
    ),
)
TEN = (
    Claim("In all cases, TOPS has the lowest CE across time", "Figure 7", never_beaten("TOPS", RIVALS_OF_TOPS)),
    Claim(
        "OPS and TOPS continue performing well, but WPS performs much worse",
        "Section 4.2",
        ratio("WPS", "OPS", MUCH, design="drift"),
    ),
)
EPSILON = (
    Claim(
        "The qualitative results remain identical, with TOPS still the best performer",
        "Appendix A.3",
        never_beaten("TOPS", RIVALS_OF_TOPS, epsilons=(0.05, 0.2)),
    ),
    Claim(
        "hardly affected by the changing epsilon",
        "Appendix A.3, of TOPS",
        epsilon_ratio("TOPS", (0.05, 0.2), 1 / SLIGHTLY, SLIGHTLY),
    ),
    Claim(
        "the plots for all methods except HOPS are indistinguishable from their epsilon=0.1 counterparts at first "
        "glance",
        "Appendix A.3",
        unmoved_by_epsilon(("BM", "FPS", "WPS", "OPS", "TOPS")),
    ),
    Claim(
        "the performance improves slightly with epsilon = 0.05",
        "Appendix A.3, of HOPS",
        epsilon_ratio("HOPS", (0.05,), 1 / SLIGHTLY, 1.0),
    ),
    Claim(
        "and worsens slightly with epsilon=0.2", "Appendix A.3, of HOPS", epsilon_ratio("HOPS", (0.2,), 1.0, SLIGHTLY)
    ),
)
BETA = (
    Claim("OBS further improves upon OPS in most cases", "Figure 14", lower_at_the_end("OBS", "OPS")),
    Claim("OBS performs better than both OPS and WBS", "Appendix B", never_beaten("OBS", ("OPS", "WBS"))),
    Claim(
        "In each plot, TOBS is the best-performing method",
        "Figure 14",
        never_beaten("TOBS", ("WPS", "OPS", "WBS", "OBS", "HOBS")),
    ),
)
HISTOGRAM = (
    Claim(
        "WHB often performs better than OPS and OBS in the i.i.d. case",
        "Appendix A.3",
        best_of("WHB", ("OPS", "OBS"), "iid"),
    ),
    Claim(
        "and results are mixed in the drifting case",
        "Appendix A.3",
        best_of("WHB", ("OPS", "OBS"), "drift", 1e-9, 1 - 1e-9),
    ),
    Claim("WHB performs well with i.i.d. data", "Figure 15", best_of("WHB", ("OPS", "OBS"), "iid")),
    Claim("while OBS performs well for drifting data", "Figure 15", best_of("OBS", ("OPS", "WHB"), "drift")),
    Claim(
        "TOBS and TOPS are the best-performing methods in every plot",
        "Figure 15, among tracking methods",
        both(never_beaten("TOBS", ("TWHB",)), never_beaten("TOPS", ("TWHB",))),
    ),
    Claim("Tracking typically does not improve WHB much", "Figure 15", tracking_idles),
)
