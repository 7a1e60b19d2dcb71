"""Rules that decide claims: each can go both ways, and noise alone decides nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from reproduction import claims, pages, rain, rules, section, section1, table1
from reproduction.forests import ForestStream
from reproduction.replay import EPSILONS, METHODS
from reproduction.settings import Settings
from reproduction.summary import Summary


def summary(kind: str = "bank", design: str = "drift", runs: int = 12, noise: float = 1e-5, **ce: float) -> Summary:
    """A stream whose methods have these CEs at both of its points, with a little noise; 0.05 where none is said."""
    rng = np.random.default_rng(0)
    shape = len(METHODS), len(EPSILONS)
    values = []
    for _ in range(runs):
        run = {name: np.full((*shape, 2), 0.05) for name in ("ce", "shp")}
        run |= {name: np.full(shape, 0.2) for name in ("brier", "log_loss")}
        for method, level in ce.items():
            run["ce"][METHODS.index(method)] = level + rng.normal(0, noise, (len(EPSILONS), 2))
        values.append({**run, "points": np.array([1500, 2000])})
    return Summary(ForestStream(kind, design), values)


def edited(given: Summary, metric: str, method: str, value: Any, epsilon: float | None = None) -> Summary:
    """The same stream with another number for one method."""
    at = slice(None) if epsilon is None else EPSILONS.index(epsilon)
    given._values[metric][:, METHODS.index(method), at] = value
    return given


def test_never_beaten() -> None:
    rule = rules.never_beaten("TOPS", ("OPS", "HOPS"))
    found = rule({"bank-drift": summary(TOPS=0.01, OPS=0.03)})
    assert found.holds and "2 points" in found.why and "3 standard errors" in found.asked
    found = rule({"bank-drift": summary(TOPS=0.04, OPS=0.03)})
    assert found.holds is False and not found.fails_at_two
    assert "beaten at 2 of 2 points, by two standard errors at 2, clearly at 2, by " in found.why
    assert "bank-drift: by OPS 2 (clearly 2) of 2" in found.why
    # Of another design it says nothing; at two epsilons it says at which.
    both = {"bank-drift": summary(TOPS=0.04, OPS=0.03), "bank-iid": summary(design="iid", TOPS=0.01)}
    assert rules.never_beaten("TOPS", ("OPS",), "iid")(both).holds
    found = rules.never_beaten("TOPS", ("OPS",), epsilons=(0.05, 0.2))({"x": summary(TOPS=0.04, OPS=0.03)})
    assert "x, epsilon 0.05" in found.why


def test_between_two_and_three_standard_errors_is_undecided_and_says_so() -> None:
    given = summary(runs=12)
    edited(given, "ce", "OPS", 0.05)
    # Mean 1 and standard error 0.4: two and a half standard errors.
    edited(given, "ce", "TOPS", 0.05 + 1e-3 * (1 + np.array([-1, 1] * 6) * 0.4 * np.sqrt(11))[:, None, None])
    assert rules.z_scores(given, "TOPS", "OPS") == pytest.approx(2.5)
    found = rules.never_beaten("TOPS", ("OPS",))({"x": given})
    assert found.holds is None and found.fails_at_two and "by 2.50 at most" in found.why
    verdict = claims.Claim("c", "w", rules.never_beaten("TOPS", ("OPS",))).judged({"x": given})
    assert pages.shown(verdict) == "undecided (at two standard errors: does not hold)"
    assert rules.both(rules.never_beaten("TOPS", ("OPS",)), rules.most_often_best("BM", ()))({"x": given}).fails_at_two


@pytest.mark.parametrize("runs", [1, 2, 9])
@pytest.mark.parametrize("tops", [0.01, 0.09])
def test_few_runs_decide_nothing(tops: float, runs: int) -> None:
    streams = {
        f"{kind}-{design}": edited(summary(kind, design, runs=runs, TOPS=tops), "shp", "BM", 0.5)
        for kind in ("bank", "fetal")
        for design in ("drift", "iid")
    }
    for claim in (*claims.DRIFT, *claims.IID, *claims.EPSILON, *claims.BETA, *claims.HISTOGRAM):
        verdict = claim.judged(streams)
        assert verdict.holds is None and verdict.too_few and "a verdict needs at least 10; " in verdict.why
        assert "nan" not in verdict.why and verdict.asked and pages.shown(verdict) == "too few runs to decide"
    assert np.isnan(streams["bank-iid"].std("ce", "OPS")).all() == (runs == 1)


def test_ten_runs_are_enough() -> None:
    assert section.FEWEST_RUNS == 10
    found = claims.TEN[0].judged({"x": summary(runs=10, TOPS=0.01)})
    assert found.holds and not found.too_few
    verdict = section.Verdict("c", "w", True, "why", "asked")
    assert section.undecided_if_few([verdict], 10) == [verdict]
    (few,) = section.undecided_if_few([verdict], 4, 5)
    assert few.too_few and few.holds is None and few.why == "4 runs, and a verdict needs at least 5; why"
    assert section.undecided_if_few([verdict], 5, 5) == [verdict]


def test_one_run_has_no_deviation() -> None:
    assert np.isnan(section.spread(np.ones((1, 2)))).all()
    assert replace(Settings(), runs=3, seed=5).seeds == range(5, 8)
    assert section1.ROWS[0] == "1-1000 Base"


def test_rules_can_go_both_ways() -> None:
    fine = {"bank-drift": summary(OPS=0.03, WPS=0.09, TOPS=0.01), "bank-iid": summary(design="iid", OPS=0.03)}
    assert rules.lower_at_the_end("TOPS", "OPS", "drift")(fine).holds
    found = rules.lower_at_the_end("TOPS", "OPS")(fine)
    assert not found.holds and "not on bank-iid (0.0500 > 0.0300)" in found.why  # a half is not most
    assert rules.ratio("WPS", "OPS", rules.MUCH, design="drift")(fine).holds
    assert not rules.ratio("BM", "OPS", rules.MUCH)({"x": summary(OPS=0.049)}).holds
    assert rules.almost_as_good("WPS", "OPS")({"x": summary(WPS=0.06)}).holds
    assert not rules.almost_as_good("WPS", "OPS")(fine).holds
    assert rules.margin("TOPS", ("OPS",), "drift")(fine).holds
    assert not rules.margin("TOPS", ("OPS",), "")(fine).holds
    assert not rules.margin("TOPS", ("OPS",), "", 0.5)(fine).holds
    assert rules.unmoved_by_epsilon(("OPS",))(fine).holds
    assert rules.best_of("TOPS", ("OPS",), "drift")(fine).holds
    assert not rules.best_of("OPS", ("TOPS",), "drift")(fine).holds
    assert rules.best_of("TOPS", ("OPS",), "", 1e-9, 1 - 1e-9)(fine).holds  # mixed
    assert not rules.best_of("TOPS", ("OPS",), "drift", 1e-9, 1 - 1e-9)(fine).holds
    assert rules.most_often_best("OPS", ("BM",))(fine).holds
    found = rules.most_often_best("TOPS", ("OPS",))(fine)
    assert not found.holds and "1 of 2 streams; not on bank-iid (OPS)" in found.why
    assert rules.gap_is_smaller({"bank-drift": summary(BM=0.2), "bank-iid": summary(design="iid")}).holds
    assert not rules.gap_is_smaller({"bank-drift": summary(), "bank-iid": summary(design="iid", BM=0.2)}).holds
    assert rules.tracking_idles({"x": summary(WHB=0.03, TWHB=0.03)}).holds
    assert not rules.tracking_idles({"x": summary(WHB=0.03, TWHB=0.01)}).holds
    assert rules.within_the_theorem(fine).holds
    assert not rules.within_the_theorem({"x": summary(HOPS=0.9)}).holds


def test_slightly_is_one_number() -> None:
    assert rules.SLIGHTLY == 1.25
    for claim, epsilon, fine, wrong in (
        (claims.EPSILON[3], 0.05, (0.041, 0.049), (0.039, 0.051)),
        (claims.EPSILON[4], 0.2, (0.051, 0.062), (0.049, 0.063)),
    ):
        assert "slightly" in claim.text
        for level in (*fine, *wrong):
            given = {"x": edited(summary(), "ce", "HOPS", level, epsilon)}
            assert claim.judged(given).holds == (level in fine), (claim.text, level)


def test_sharpness() -> None:
    def of(**drops: float) -> dict[str, Summary]:
        streams = {"bank-iid": summary(design="iid"), "fetal-iid": summary("fetal", "iid")}
        for key, drop in drops.items():
            kind, method = key.split("_")
            edited(streams[f"{kind}-iid"], "shp", method, 0.05 - drop)
        return streams

    figure9 = next(claim for claim in claims.IID if claim.where == "Figure 9")
    assert figure9.judged(of(fetal_HOPS=0.0091)).holds
    for wrong in (
        {"fetal_HOPS": 0.02},
        {"fetal_HOPS": 0.01, "fetal_TOPS": 0.006},
        {"fetal_HOPS": 0.01, "bank_TOPS": 0.006},
    ):
        assert not figure9.judged(of(**wrong)).holds
    assert rules.sharpness_kept("iid", 0.005, ())(of()).holds


def test_error_bars() -> None:
    rule = rules.invisible_bars("ce", ("BM", "OPS"), "drift")
    assert rule({"x": summary(BM=0.1, OPS=0.05)}).holds
    found = rule({"x": summary(BM=0.1, OPS=0.05, noise=0.01)})
    assert not found.holds and "std / sqrt(100)" in found.why
    assert rules.invisible_bars("shp", ("BM", "OPS"), "drift")({"x": edited(summary(), "shp", "BM", 0.5)}).holds


def test_the_brier_score_gains_the_squared_calibration_error() -> None:
    small = rules.brier_gain({"x": summary(OPS=0.03)})
    assert small.holds and "On 1 of 1 streams the log T term is the larger" in small.why
    large = summary(OPS=0.5)
    assert not rules.brier_gain({"x": large}).holds
    assert rules.brier_gain({"x": edited(large, "brier", "TOPS", -0.05)}).holds


def test_rules_together() -> None:
    noisy = summary(TOPS=0.03, OPS=0.03)
    means = {method: noisy.mean("ce", method) for method in ("TOPS", "OPS")}
    loser, winner = ("TOPS", "OPS") if (means["TOPS"] > means["OPS"]).any() else ("OPS", "TOPS")
    open_, fails = rules.never_beaten(loser, (winner,)), rules.never_beaten("BM", ("OPS",))
    assert open_({"x": noisy}).holds is None  # the means say so, within the noise
    assert rules.both(open_, rules.never_beaten("OPS", ("BM",)))({"x": noisy}).holds is None
    assert rules.both(open_, fails)({"x": noisy}).holds is False
    assert rules.both(rules.never_beaten("OPS", ("BM",)), rules.never_beaten("TOPS", ("BM",)))({"x": noisy}).holds


def test_verdicts_of_section_1_can_go_both_ways() -> None:
    good = np.array(
        [
            (90.0, 0.1),
            *[(60.0, 0.3), (85.0, 0.1), (85.0, 0.1)],
            *[(50.0, 0.35), (85.0, 0.1), (85.0, 0.1)],
            *[(40.0, 0.4), (85.0, 0.1), (85.0, 0.1)],
        ]
    )
    bad = np.array([(90.0, 0.1), *[(85.0, 0.1), (40.0, 0.4), (40.0, 0.4)] * 3])
    for kind in ("label", "regression"):
        assert [v.holds for v in section1.verdicts(kind, good)] == [True, True, True]
        assert [v.holds for v in section1.verdicts(kind, bad)] == [False, False, False]
    assert "regression-function drift" in section1.verdicts("regression", bad)[2].where
    assert [v.holds for v in section1.verdicts("covariate", good)] == [False, False, True]  # far more than slightly
    assert [v.holds for v in section1.verdicts("covariate", bad)] == [False, False, False]
    slightly = good.copy()
    slightly[[1, 2, 4, 5]] = (84.0, 0.11), (85.0, 0.1), (80.0, 0.12), (85.0, 0.1)
    assert [v.holds for v in section1.verdicts("covariate", slightly)] == [True, True, True]


def test_verdicts_of_table_1_can_go_both_ways() -> None:
    lengths = (1000, 4000, 16_000)
    shape = len(table1.LEARNERS), len(table1.RADII), len(table1.STREAMS), len(lengths)
    speed = np.ones(shape) * np.array([1.0, 1.2, 4.0, 1.2])[:, None, None, None]
    noise = np.random.default_rng(0).normal(0, 1e-3, (3, *shape))
    like_log, like_root = (np.ones((3, *shape)) * growth + noise for growth in ([3.0, 4.0, 5.0], [3.0, 6.0, 12.0]))
    assert all(v.holds for v in table1.verdicts(like_log, speed, lengths))
    assert [v.holds for v in table1.verdicts(like_root, speed, lengths)] == [True, True, True, True, False]
    slow = speed[::-1] * np.array([1.0, 1.0, 9.0])
    assert not any(v.holds for v in table1.verdicts(1e9 * like_log, slow, lengths))
    # One learner above, but within the noise; and one run.
    unclear = like_log.copy()
    unclear[:, 1, 0, 0] = [[3.0, 4.0, 5.4], [3.0, 4.0, 5.5], [3.0, 4.0, 5.7]]
    verdict = table1.verdicts(unclear, speed, lengths)[4]
    assert verdict.holds is None and "standard errors at most" in verdict.why
    assert table1.verdicts(like_log[:1], speed, lengths)[4].holds is None


def test_verdicts_on_rain_go_run_by_run_and_look_at_the_point() -> None:
    def holds(*runs: list[float], rate: float = 0.2) -> list[bool | None]:
        return [v.holds for v in rain.verdicts({"x": (rate, rain.measured(np.array(runs), rate))})]

    assert holds([0.25] * 100, [0.15] * 100) == [True, True]
    assert holds([0.25] * 100, [0.45] * 100) == [False, False]  # always one point, but another one
    assert holds([0.25] * 100, [0.25] * 99 + [0.15]) == [True, False]
    assert holds([0.25] * 100, [0.25] * 90 + [0.45] * 10) == [False, False]
    assert (rain.settled(8000), rain.settled(100)) == (2000, 50)
