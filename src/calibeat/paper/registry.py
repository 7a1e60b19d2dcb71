"""Every table and figure of the paper, by the name under which `calibeat reproduce` knows it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calibeat.errors import InvalidInput

from . import curves, measured, rainfall, reports
from .section import Section
from .settings import MOST, Settings
from .tasks import Task

Results = Mapping[str, Sequence[Mapping[str, Any]]]

FOREST_SECONDS = 2.6  # one forest of 1000 trees with its scores, on one core
STREAM_SECONDS = 0.1  # one stream replayed through every method at every epsilon


@dataclass(frozen=True)
class Experiment:
    """A part of the paper that is computed together."""

    name: str
    shows: tuple[str, ...]  # "Figure 5", "Table 1"
    title: str
    tasks: Callable[[Settings], list[Task]]
    report: Callable[[Settings, Results], Section]
    needs_data: bool = False
    forests: int = 0  # for each run
    seconds: float = 1.0  # for everything else, for each run; of one that has no runs, in all
    most_runs: int = MOST  # however many are asked for; 0: nothing is random

    def runs(self, settings: Settings) -> int:
        """How many runs are made."""
        return min(settings.runs, self.most_runs)

    def estimate(self, settings: Settings) -> tuple[float, float]:
        """Seconds with an empty cache, and seconds when the scores are there."""
        runs = max(1, self.runs(settings))
        again = runs * (self.seconds + self.forests * STREAM_SECONDS)
        return (again + runs * self.forests * FOREST_SECONDS) / settings.jobs, again / settings.jobs


def nothing(_settings: Settings) -> list[Task]:
    """A figure that is drawn without computing."""
    return []


EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        Experiment("platt", ("Figure 1",), "Platt scaling, online logistic regression, calibeating", nothing,
                   reports.platt, most_runs=0),
        Experiment("pipeline", ("Figure 2",), "Online adversarial post-hoc calibration", nothing, reports.pipeline,
                   most_runs=0),
        Experiment("covariate-drift", ("Figure 3",), "Section 1: covariate drift", reports.section1_tasks("covariate"),
                   reports.section1_report("covariate", 3), seconds=0.2),
        Experiment("small-drifts", ("Figure 4",), "Section 1: label and regression-function drift, the short version",
                   reports.figure4_tasks, reports.figure4, most_runs=1),
        Experiment("table1", ("Table 1",), "Regret and running time of OGD, ONS and AIOLI", measured.table1_tasks,
                   measured.table1, seconds=5.0, most_runs=measured.RUNS),
        Experiment("real-drift", ("Figure 5", "Figure 8"), "Four real datasets with drift: CE and SHP over time",
                   curves.drift_tasks, curves.drift, needs_data=True, forests=4),
        Experiment("real-iid", ("Figure 6", "Figure 9"), "Four real datasets, i.i.d.: CE and SHP over time",
                   curves.real_tasks, curves.iid, needs_data=True, forests=8),
        Experiment("ten-dimensions", ("Figure 7",), "Covariate and label drift in ten dimensions, text and published",
                   curves.ten_tasks, curves.ten_dimensions, forests=8),
        Experiment("datasets", ("Table 2",), "The four datasets: sizes, designs, checksums", nothing, measured.datasets,
                   needs_data=True, most_runs=0),
        Experiment("label-drift", ("Figure 10",), "Section 1: label drift", reports.section1_tasks("label"),
                   reports.section1_report("label", 10), seconds=0.2),
        Experiment("regression-drift", ("Figure 11",), "Section 1: regression-function drift",
                   reports.section1_tasks("regression"), reports.section1_report("regression", 11), seconds=0.2),
        Experiment("epsilon", ("Figure 12", "Figure 13"), "Bins of width 0.05 and 0.2", curves.real_tasks,
                   curves.epsilons, needs_data=True, forests=8),
        Experiment("beta", ("Figure 14",), "Online beta scaling and its calibeating variants", curves.real_tasks,
                   curves.beta, needs_data=True, forests=8),
        Experiment("histogram", ("Figure 15",), "Windowed histogram binning", curves.real_tasks, curves.histogram,
                   needs_data=True, forests=8),
        Experiment("rain", ("Figure 16",), "F99 on hourly rain", rainfall.tasks, rainfall.report,
                   seconds=0.2),
        Experiment("refits", (), "Not in the paper: the time of WPS beside SciPy and scikit-learn",
                   measured.refit_tasks, measured.refit_report, needs_data=True, forests=1, seconds=2.0,
                   most_runs=1),
    )
}  # fmt: skip


def chosen(names: Sequence[str]) -> list[Experiment]:
    """The experiments of these names, in the order of the list; "all", or nothing, is every one."""
    wanted = set(names) or {"all"}
    for name in sorted(wanted - {"all"} - set(EXPERIMENTS)):
        close = meant(name)
        hint = f"did you mean {' or '.join(map(repr, close))}?" if close else f"there are all, {', '.join(EXPERIMENTS)}"
        raise InvalidInput(f"NAME must be one of the experiments, got {name!r:.60} - {hint}")
    return [experiment for name, experiment in EXPERIMENTS.items() if "all" in wanted or name in wanted]


def meant(name: str) -> list[str]:
    """Experiments that show the figure or table of this name, or begin with it; else the one that is spelt like it."""
    plain = re.sub(r"[\W_]", "", name.lower()).replace("fig", "figure").replace("figureure", "figure")
    shows = [e.name for e in EXPERIMENTS.values() if plain in {s.lower().replace(" ", "") for s in e.shows}]
    begins = [known for known in EXPERIMENTS if name and known.startswith(name.lower())]
    return shows or begins or difflib.get_close_matches(name, EXPERIMENTS, n=1, cutoff=0.5)


def listing(settings: Settings, names: Sequence[str] = ()) -> str:
    """What `--list` prints, of everything or of these."""
    lines = [f"{'NAME':17} {'SHOWS':21} {'FIRST TIME':>10} {'AGAIN':>7}  WHAT"]
    for experiment in chosen(names):
        first, again = experiment.estimate(settings)
        needs = " [needs the data]" if experiment.needs_data else ""
        shows, first_time, once_more = ", ".join(experiment.shows) or "-", duration(first), duration(again)
        lines.append(f"{experiment.name:17} {shows:21} {first_time:>10} {once_more:>7}  {experiment.title}{needs}")
    lines += [
        f"Estimates for --runs {settings.runs} --jobs {settings.jobs}; AGAIN is when the scores are in the cache.",
        "The experiments on real data share their forests and their runs: all of them take as long as one.",
    ]
    return "\n".join(lines)


def duration(seconds: float) -> str:
    """For people: 8 s, 3 min, 2 h."""
    if seconds < 100:
        return f"{max(1.0, seconds):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
