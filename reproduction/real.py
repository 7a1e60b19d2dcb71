"""Figures 5, 6, 8, 9 and 12 to 15: four real datasets scored by forests, methods over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from . import claims, figures, published, rules
from .curves import (
    OURS,
    PLATT,
    SCALE,
    beaten,
    final_table,
    measures_table,
    others_table,
    rows_of,
    scores_csv,
    summaries,
)
from .datasets import DATASETS, DESIGNS
from .forests import ForestStream
from .replay import EPSILONS, METHODS, task
from .section import Section, Table, plus_minus
from .settings import Settings
from .summary import CSV_HEAD, Summary
from .tasks import Results, Task

BETA = ("WPS", "OPS", "WBS", "OBS", "TOBS", "HOBS")
HISTOGRAM = ("WHB", "OPS", "OBS", "TWHB", "TOPS", "TOBS")

WORDS = (
    "CE and SHP are over the events from T_cal on, in ten bins; bars are one standard deviation over the runs. The "
    "paper plots these curves and prints no numbers; beside ours stands the final CE of the published experiments, a "
    "mean of ten seeds: its distance is in standard deviations of one run, and in standard errors of the difference of "
    "the two means, as if their draws had nothing in common."
)


def streams(settings: Settings, designs: Sequence[str] = DESIGNS) -> list[ForestStream]:
    """The eight streams of Section 4.1, or those of some designs."""
    return [
        ForestStream(name, design, trees=settings.trees, events=settings.events)
        for design in designs
        for name in DATASETS
    ]


def tasks(settings: Settings, designs: Sequence[str] = DESIGNS) -> list[Task]:
    """All runs on real data; every experiment on both designs needs the same."""
    return [task(stream, seed) for stream in streams(settings, designs) for seed in settings.seeds]


def drift_tasks(settings: Settings) -> list[Task]:
    """Figures 5 and 8 need no other streams."""
    return tasks(settings, ("drift",))


def drift(settings: Settings, results: Results) -> Section:
    """Figures 5 and 8."""
    return _plain(summaries(streams(settings, ("drift",)), results), "drift", claims.DRIFT)


def iid(settings: Settings, results: Results) -> Section:
    """Figures 6 and 9."""
    found = summaries(streams(settings), results)
    section = _plain(found, "iid", claims.IID)
    authors = final_table({"bank-iid": found["bank-iid"]}, PLATT, {"bank-iid": published.AUTHORS_BANK_IID}, 100)
    caption = "Final CE x 10,000 beside the authors' own 100 runs, as far as these are on record"
    section.tables.insert(1, replace(authors, caption=caption))
    section.findings = iid_findings(found)
    return section


def iid_findings(found: Mapping[str, Summary]) -> list[str]:
    """What the published experiments do not bear out, and what ours say of it."""
    fetal = found["fetal-iid"]
    below = int((fetal.mean("ce", "OPS") < fetal.mean("ce", "TOPS")).sum())
    lower = {
        metric: sum(s.final(metric, "TOPS")[0] < s.final(metric, "OPS")[0] for s in found.values())
        for metric in ("ce", "brier")
    }
    hedged = [
        f"{name} {int((s.mean('ce', 'HOPS') < s.mean('ce', 'OPS')).sum())} of {len(s.points)}"
        for name, s in found.items()
        if s.stream.kind == "fetal"
    ]
    return [
        f"TOPS is not best throughout on fetal-iid. Ours: OPS is below TOPS at {below} of {len(fetal.points)} points.",
        f"HOPS never improves OPS on fetal health. Ours: points where HOPS is below OPS: {', '.join(hedged)}.",
        f"TOPS lowers CE, not Brier. Ours: CE on {lower['ce']} of {len(found)} streams, Brier on {lower['brier']}.",
    ]


def _plain(found: Mapping[str, Summary], design: str, judged: Sequence[claims.Claim]) -> Section:
    line = rows_of(found, design)
    here = {summary.stream.name: summary for summary in line[1]}
    ce, shp = {"drift": ("figure-5", "figure-8"), "iid": ("figure-6", "figure-9")}[design]
    section = Section(
        words=[WORDS],
        tables=[
            final_table(here, (*PLATT, "OBS", "TOBS", "WHB")),
            others_table(here),
            measures_table(here, (*PLATT, *OURS)),
        ],
        figures={ce: figures.over_time([line], PLATT, "ce"), shp: figures.over_time([line], PLATT, "shp")},
        captions={ce: f"{_figure(ce)}: calibration error over time", shp: f"{_figure(shp)}: sharpness over time"},
        csv_head=CSV_HEAD,
        verdicts=[claim.judged(found) for claim in judged],
    )
    section.more[f"real-{design}-scores"] = scores_csv(here, METHODS)
    section.csv_rows = [row for s in here.values() for row in s.csv_rows(METHODS, (0.1,))]
    return section


def epsilons(settings: Settings, results: Results) -> Section:
    """Figures 12 and 13."""
    found = summaries(streams(settings), results)
    rows = [rows_of(found, "iid", "i.i.d."), rows_of(found, "drift", "drift")]
    table_rows = []
    for name, summary in found.items():
        for method in PLATT:
            ends = [summary.final("ce", method, epsilon) for epsilon in EPSILONS]
            table_rows.append([name, method, *(plus_minus(mean, std, 0, SCALE) for mean, std in ends)])
    worse = {n: s.final("ce", "HOPS", 0.2)[0] / s.final("ce", "HOPS")[0] for n, s in found.items()}
    worst = max(worse, key=lambda name: worse[name])
    return Section(
        words=["Epsilon is the width of the bins of calibeating, of hedging and of the metrics alike."],
        tables=[Table("Final CE x 10,000", ["stream", "method", *(f"epsilon {e:g}" for e in EPSILONS)], table_rows)],
        figures={
            "figure-12": figures.over_time(rows, PLATT, "ce", 0.05),
            "figure-13": figures.over_time(rows, PLATT, "ce", 0.2),
        },
        captions={"figure-12": "Figure 12: epsilon = 0.05", "figure-13": "Figure 13: epsilon = 0.2"},
        csv_head=CSV_HEAD,
        csv_rows=[row for summary in found.values() for row in summary.csv_rows(PLATT, EPSILONS)],
        more={"epsilon-scores": scores_csv(found, PLATT, EPSILONS)},
        verdicts=[claim.judged(found) for claim in claims.EPSILON],
        findings=[f"HOPS at epsilon 0.2 worsens by up to 2.6 times. Ours: {worse[worst]:.1f} times, on {worst}."],
    )


def beta(settings: Settings, results: Results) -> Section:
    """Figure 14."""
    section = _family(settings, results, BETA, "figure-14", "Figure 14: beta scaling", claims.BETA)
    found = summaries(streams(settings), results)
    counts = {name: beaten(found[name], "TOBS", BETA) for name in ("churn-drift", "bank-drift")}
    last = rules.least(found["bank-drift"], BETA)
    points = ", ".join(f"{name} {count}" for name, count in counts.items())
    known = "TOBS is not best in each plot (churn-drift, the end of bank-drift)."
    ours = f"Ours: points where another method is below TOBS: {points}; least at the end of bank-drift: {last}."
    section.findings = [f"{known} {ours}"]
    return section


def histogram(settings: Settings, results: Results) -> Section:
    """Figure 15."""
    section = _family(
        settings,
        results,
        HISTOGRAM,
        "figure-15",
        "Figure 15: histogram binning",
        claims.HISTOGRAM,
        dotted=("WHB", "OPS", "OBS"),
    )
    section.words.append(
        "The paper does not say how many bins WHB has; 20, as in the published experiments. Equal scores stay together."
    )
    return section


def _family(
    settings: Settings,
    results: Results,
    methods: Sequence[str],
    stem: str,
    caption: str,
    judged: Sequence[claims.Claim],
    dotted: Sequence[str] = (),
) -> Section:
    found = summaries(streams(settings), results)
    rows = [rows_of(found, "iid", "i.i.d."), rows_of(found, "drift", "drift")]
    return Section(
        tables=[final_table(found, methods)],
        figures={stem: figures.over_time(rows, methods, "ce", dotted=dotted)},
        captions={stem: caption},
        csv_head=CSV_HEAD,
        csv_rows=[row for summary in found.values() for row in summary.csv_rows(methods, (0.1,))],
        verdicts=[claim.judged(found) for claim in judged],
    )


def _figure(stem: str) -> str:
    return stem.replace("-", " ").capitalize()
