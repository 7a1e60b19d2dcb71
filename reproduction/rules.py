"""Rules that decide a claim on streams over time: each says what it asks, and shows the numbers.

The paper's lines are means over runs, and so are ours. "Clearly" means that the mean difference, run by run on the same
stream, is more than three standard errors. A claim of the form "always" fails by one clear exception; exceptions that
are not clear leave it undecided. A word such as "slightly" has one number everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from calibeat import bounds
from calibeat._util.types import Vector

from .replay import EPSILONS
from .summary import Summary

STANDARD_ERRORS = 3.0  # not two: there are hundreds of points, and some would exceed two by chance
SLIGHTLY = 1.25  # "slightly", "almost" and "hardly" are at most so many times; "by a margin" is more
MUCH = 1.5  # "much" and "significantly" are at least so many times
SMALL_DROP = 0.005  # of sharpness, as the text says
AT_FIRST_GLANCE = 0.005  # CE that nobody sees in the plots
INVISIBLE = 0.02  # of the height of a plot: a bar no longer than a marker


@dataclass(frozen=True)
class Decided:
    """What a rule found; `fails_at_two`: undecided, but decided against the claim by two standard errors."""

    holds: bool | None
    why: str
    asked: str
    fails_at_two: bool = False


Streams = Mapping[str, Summary]  # by the stream's name
Decide = Callable[[Streams], Decided]


def of_design(streams: Streams, design: str) -> dict[str, Summary]:
    """The streams of one design; of all for the empty name."""
    return {name: summary for name, summary in streams.items() if design in ("", summary.stream.design)}


def z_scores(summary: Summary, method: str, rival: str, epsilon: float = 0.1) -> Vector:
    """By how many standard errors the method's mean CE is above the rival's at each point; 0 where it is not above."""
    gap = summary.values("ce", method, epsilon) - summary.values("ce", rival, epsilon)
    error = gap.std(axis=0, ddof=1) / np.sqrt(summary.runs) if summary.runs > 1 else np.full(gap.shape[1], np.inf)
    mean = gap.mean(axis=0)
    # Above, but by less than can be told in a run alone: the least positive number keeps it above 0.
    return np.where(mean > 0, np.maximum(mean / np.maximum(error, 1e-12), 1e-9), 0.0)


def never_beaten(method: str, rivals: Sequence[str], design: str = "", epsilons: Sequence[float] = (0.1,)) -> Decide:
    """At no point of any stream has a rival less CE."""

    def decide(streams: Streams) -> Decided:
        exceptions, scores = [], []
        for name, summary in of_design(streams, design).items():
            for epsilon in epsilons:
                by_rival = {rival: z_scores(summary, method, rival, epsilon) for rival in rivals}
                scores.append(np.maximum.reduce(list(by_rival.values())))
                by = [
                    f"{rival} {(z > 0).sum()} (clearly {(z > STANDARD_ERRORS).sum()})"
                    for rival, z in by_rival.items()
                    if (z > 0).any()
                ]
                if by:
                    of = f"{name}, epsilon {epsilon:g}" if len(epsilons) > 1 else name
                    exceptions.append(f"{of}: by {', '.join(by)} of {len(summary.points)}")
        z = np.concatenate(scores)
        asked = f"no mean CE below that of {method} at any point by more than {STANDARD_ERRORS:g} standard errors; one "
        asked += "that is lower by less leaves it undecided"
        if not exceptions:
            return Decided(True, f"{method} has the least mean CE at all {len(z)} points", asked)
        at_all, by_two, clearly = ((z > limit).sum() for limit in (0.0, 2.0, STANDARD_ERRORS))
        why = f"{method} is beaten at {at_all} of {len(z)} points, by two standard errors at {by_two}, clearly at "
        why += f"{clearly}, by {z.max():.2f} at most - {'; '.join(exceptions)}"
        return Decided(False if clearly else None, why, asked, fails_at_two=bool(by_two and not clearly))

    return decide


def lower_at_the_end(method: str, rival: str, design: str = "") -> Decide:
    """On more than half of the streams the method ends with less CE than the rival, on average."""

    def decide(streams: Streams) -> Decided:
        pairs = {
            name: (s.final("ce", method)[0], s.final("ce", rival)[0]) for name, s in of_design(streams, design).items()
        }
        lost = [f"{name} ({ours:.4f} > {theirs:.4f})" for name, (ours, theirs) in pairs.items() if ours >= theirs]
        won = len(pairs) - len(lost)
        why = f"{method} has the lower final CE than {rival} on {won} of {len(pairs)} streams"
        why += f"; not on {', '.join(lost)}" if lost else ""
        return Decided(won > len(pairs) / 2, why, f"a lower mean final CE of {method} on more than half of the streams")

    return decide


def both(*rules: Decide) -> Decide:
    """All rules hold."""

    def decide(streams: Streams) -> Decided:
        results = [rule(streams) for rule in rules]
        verdicts = [result.holds for result in results]
        holds = False if False in verdicts else None if None in verdicts else True
        why, asked = ". ".join(r.why for r in results), "; and ".join(dict.fromkeys(r.asked for r in results))
        return Decided(holds, why, asked, holds is None and any(result.fails_at_two for result in results))

    return decide


def within(
    values: Mapping[str, float], what: str, least: float, most: float, share: float = 1.0, digits: int = 2
) -> Decided:
    """The values lie in [least, most], on every stream or on more than a share of them."""
    inside = sum(least <= value <= most for value in values.values())
    span = f"at least {least:g}" if most == np.inf else f"at most {most:g}" if not least else f"{least:g} to {most:g}"
    often = "on every stream" if share == 1.0 else f"on more than {share:g} of the streams"
    holds = inside == len(values) if share == 1.0 else inside > share * len(values)
    listed = ", ".join(f"{name} {value:.{digits}f}" for name, value in values.items())
    return Decided(holds, f"{what}: {listed}", f"{span}, {often}")


def ratio(method: str, rival: str, least: float = 0.0, most: float = np.inf, design: str = "") -> Decide:
    """The method's final CE over the rival's, on every stream."""

    def decide(streams: Streams) -> Decided:
        found = {
            name: s.final("ce", method)[0] / s.final("ce", rival)[0] for name, s in of_design(streams, design).items()
        }
        return within(found, f"final CE of {method} over that of {rival}", least, most)

    return decide


def almost_as_good(method: str, rival: str) -> Decide:
    """At every point of every stream the method's mean CE is at most `SLIGHTLY` times the rival's."""

    def decide(streams: Streams) -> Decided:
        found, ends = {}, []
        for name, summary in streams.items():
            over = summary.mean("ce", method) / summary.mean("ce", rival)
            found[name] = float(over.max())
            ends.append(f"{name} {over[-1]:.2f}")
        decided = within(found, f"largest CE of {method} over that of {rival}", 0.0, SLIGHTLY)
        return Decided(decided.holds, f"{decided.why}; at the end: {', '.join(ends)}", f"{decided.asked}, at all times")

    return decide


def margin(method: str, rivals: Sequence[str], design: str, share: float = 1.0) -> Decide:
    """The next best method ends with more than `SLIGHTLY` times the method's CE."""

    def decide(streams: Streams) -> Decided:
        found = {
            name: min(summary.final("ce", rival)[0] for rival in rivals) / summary.final("ce", method)[0]
            for name, summary in of_design(streams, design).items()
        }
        return within(found, f"final CE of the next best over that of {method}", SLIGHTLY, np.inf, share)

    return decide


def sharpness_kept(design: str, limit: float, except_for: Sequence[str], rounded: str = "") -> Decide:
    """SHP of TOPS and HOPS is nowhere so far below that of OPS, but for some; and that of `rounded` prints as 0.01."""

    def decide(streams: Streams) -> Decided:
        drops = {
            f"{name} {method}": float((summary.mean("shp", "OPS") - summary.mean("shp", method)).max())
            for name, summary in of_design(streams, design).items()
            for method in ("TOPS", "HOPS")
        }
        counted = {name: drop for name, drop in drops.items() if not name.startswith(tuple(except_for) or ("-",))}
        shown = ", ".join(f"{name} {drop:.4f}" for name, drop in drops.items())
        asked = f"below {limit:g} at all times" + (f", but for {', '.join(except_for)}" if except_for else "")
        asked += f", which rounds to 0.01: {rounded}" if rounded else ""
        holds = max(counted.values()) < limit and (not rounded or f"{drops[rounded]:.2f}" == "0.01")
        return Decided(holds, f"largest drop below OPS over time: {shown}", asked)

    return decide


def invisible_bars(metric: str, methods: Sequence[str], design: str) -> Decide:
    """Bars of one standard deviation, above and below, are shorter than a marker in every plot."""

    def decide(streams: Streams) -> Decided:
        longest, shrunk = {}, 0.0
        for name, summary in of_design(streams, design).items():
            means = np.stack([summary.mean(metric, method) for method in methods])
            bars = np.nan_to_num([2.0 * summary.std(metric, method) for method in methods])
            height = means.max() - (means.min() if metric == "shp" else 0.0)
            longest[name] = float((bars / height).max())
            shrunk = max(shrunk, longest[name] / np.sqrt(summary.runs))
        decided = within(longest, "longest bar of one standard deviation over the height of the plot", 0.0, INVISIBLE)
        why = f"{decided.why}. The published plots have std / sqrt(100), which is not what the text says; bars of std "
        why += f"over the root of the runs would take {shrunk:.3f} at most"
        return Decided(decided.holds, why, decided.asked)

    return decide


def gap_is_smaller(streams: Streams) -> Decided:
    """Between BM, FPS, WPS and OPS, i.i.d. against drift, dataset by dataset."""
    gaps = {}
    for name, summary in streams.items():
        ends = [summary.final("ce", method)[0] for method in ("BM", "FPS", "WPS", "OPS")]
        gaps[name] = max(ends) - min(ends)
    kinds = sorted({summary.stream.kind for summary in streams.values()})
    why = ", ".join(f"{kind} {gaps[f'{kind}-iid']:.4f} against {gaps[f'{kind}-drift']:.4f}" for kind in kinds)
    holds = all(gaps[f"{kind}-iid"] < gaps[f"{kind}-drift"] for kind in kinds)
    return Decided(holds, f"largest minus smallest final CE: {why}", "smaller than under drift on every dataset")


def unmoved_by_epsilon(methods: Sequence[str]) -> Decide:
    """No method's final CE moves visibly when epsilon does."""

    def decide(streams: Streams) -> Decided:
        moved = {
            (abs(summary.final("ce", method, epsilon)[0] - summary.final("ce", method)[0]), method, name, epsilon)
            for name, summary in streams.items()
            for method in methods
            for epsilon in EPSILONS
        }
        most, method, name, epsilon = max(moved)
        why = f"largest move from epsilon 0.1: {most:.4f} ({method} on {name} at {epsilon:g})"
        return Decided(most <= AT_FIRST_GLANCE, why, f"final CE moves by at most {AT_FIRST_GLANCE:g}")

    return decide


def epsilon_ratio(method: str, epsilons: Sequence[float], least: float, most: float) -> Decide:
    """The method's final CE at these epsilons over that at 0.1 stays in [least, most] on every stream."""

    def decide(streams: Streams) -> Decided:
        found = {
            (f"{name} ({epsilon:g})" if len(epsilons) > 1 else name): summary.final("ce", method, epsilon)[0]
            / summary.final("ce", method)[0]
            for name, summary in streams.items()
            for epsilon in epsilons
        }
        of = " and ".join(f"{epsilon:g}" for epsilon in epsilons)
        return within(found, f"final CE of {method} at {of} over that at 0.1", least, most)

    return decide


def within_the_theorem(streams: Streams) -> Decided:
    """E CE(HOPS) <= epsilon/2 + 2 sqrt(1/(epsilon^2 T)) at the end of every stream, for every epsilon."""
    worst = max(
        summary.final("ce", "HOPS", epsilon)[0]
        / bounds.hops_calibration(epsilon, int(summary.points[-1]) - summary.stream.calibration)
        for summary in streams.values()
        for epsilon in EPSILONS
    )
    why = f"the largest share of the bound that is reached, over streams and epsilons: {worst:.2f}"
    return Decided(worst <= 1.0, why, "mean final CE at most the bound, for every stream and epsilon")


def brier_gain(streams: Streams) -> Decided:
    """Brier(OPS) - Brier(TOPS) is at least CE(OPS)^2 less a log T term, with the term of the paper's Theorem 3.1."""
    shown, holds, vacuous, better = [], True, 0, 0
    for name, summary in streams.items():
        events = int(summary.points[-1]) - summary.stream.calibration
        term = 10 * (np.log(events) + 1) / events
        gain = summary.final("brier", "OPS")[0] - summary.final("brier", "TOPS")[0]
        squared = summary.final("ce", "OPS")[0] ** 2
        holds, vacuous, better = holds and gain >= squared - term, vacuous + (squared < term), better + (gain > 0)
        shown.append(f"{name} {gain:+.5f} against {squared:.5f} - {term:.5f}")
    why = f"Brier(OPS) - Brier(TOPS) against CE(OPS)^2 - 10 (log T + 1) / T: {', '.join(shown)}. On {vacuous} of "
    why += (
        f"{len(streams)} streams the log T term is the larger, so that nothing is promised; Brier is lower on {better}"
    )
    return Decided(holds, why, "at least that much on every stream, of means, in ten bins")


def least(summary: Summary, methods: Sequence[str]) -> str:
    """The method that ends with the least CE."""
    return min(methods, key=lambda method: summary.final("ce", method)[0])


def best_of(winner: str, rivals: Sequence[str], design: str, fewest: float = 0.5, most: float = 1.0) -> Decide:
    """On a share of the design's streams in [fewest, most] the winner ends with the least CE."""

    def decide(streams: Streams) -> Decided:
        firsts = {name: least(summary, (*rivals, winner)) for name, summary in of_design(streams, design).items()}
        won = sum(first == winner for first in firsts.values())
        why = f"least final CE: {', '.join(f'{name} {first}' for name, first in firsts.items())}"
        span = "at least half of the streams" if most == 1.0 else "some streams, but not on all"
        return Decided(fewest * len(firsts) <= won <= most * len(firsts), why, f"{winner} is the least on {span}")

    return decide


def most_often_best(winner: str, rivals: Sequence[str]) -> Decide:
    """On more than half of all streams."""

    def decide(streams: Streams) -> Decided:
        lost = {n: first for n, s in streams.items() if (first := least(s, (*rivals, winner))) != winner}
        why = f"{winner} ends with the least CE on {len(streams) - len(lost)} of {len(streams)} streams"
        why += "; not on " + ", ".join(f"{name} ({first})" for name, first in lost.items()) if lost else ""
        return Decided(len(lost) < len(streams) / 2, why, "on more than half of the streams")

    return decide


def tracking_idles(streams: Streams) -> Decided:
    """Tracking makes WHB's CE less than `SLIGHTLY` times smaller on more than half of the streams."""
    kept = {n: s.final("ce", "TWHB")[0] / s.final("ce", "WHB")[0] for n, s in streams.items()}
    return within(kept, "final CE of TWHB over that of WHB", 1 / SLIGHTLY, np.inf, 0.5)
