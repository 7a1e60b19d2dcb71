"""Every table and figure of the paper, by the name under which `python -m reproduction` knows it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from calibeat._util.words import did_you_mean, duration
from calibeat.errors import InvalidInput

from . import platt, rain, real, refits, section1, table1, table2, ten
from .section import Section
from .settings import MOST, Settings
from .tasks import Results, Task

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
        Experiment(
            "platt",
            ("Figure 1",),
            "Platt scaling, online logistic regression, calibeating",
            nothing,
            platt.figure1,
            most_runs=0,
        ),
        Experiment(
            "pipeline", ("Figure 2",), "Online adversarial post-hoc calibration", nothing, platt.figure2, most_runs=0
        ),
        Experiment(
            "covariate-drift",
            ("Figure 3",),
            "Section 1: covariate drift",
            section1.tasks("covariate"),
            section1.report("covariate", 3),
            seconds=0.2,
        ),
        Experiment(
            "small-drifts",
            ("Figure 4",),
            "Section 1: label and regression-function drift, the short version",
            section1.figure4_tasks,
            section1.figure4,
            most_runs=1,
        ),
        Experiment(
            "table1",
            ("Table 1",),
            "Regret and running time of OGD, ONS and AIOLI",
            table1.tasks,
            table1.report,
            seconds=5.0,
            most_runs=table1.RUNS,
        ),
        Experiment(
            "real-drift",
            ("Figure 5", "Figure 8"),
            "Four real datasets with drift: CE and SHP over time",
            real.drift_tasks,
            real.drift,
            needs_data=True,
            forests=4,
        ),
        Experiment(
            "real-iid",
            ("Figure 6", "Figure 9"),
            "Four real datasets, i.i.d.: CE and SHP over time",
            real.tasks,
            real.iid,
            needs_data=True,
            forests=8,
        ),
        Experiment(
            "ten-dimensions",
            ("Figure 7",),
            "Covariate and label drift in ten dimensions, text and published",
            ten.tasks,
            ten.report,
            forests=8,
        ),
        Experiment(
            "datasets",
            ("Table 2",),
            "The four datasets: sizes, designs, checksums",
            nothing,
            table2.report,
            needs_data=True,
            most_runs=0,
        ),
        Experiment(
            "label-drift",
            ("Figure 10",),
            "Section 1: label drift",
            section1.tasks("label"),
            section1.report("label", 10),
            seconds=0.2,
        ),
        Experiment(
            "regression-drift",
            ("Figure 11",),
            "Section 1: regression-function drift",
            section1.tasks("regression"),
            section1.report("regression", 11),
            seconds=0.2,
        ),
        Experiment(
            "epsilon",
            ("Figure 12", "Figure 13"),
            "Bins of width 0.05 and 0.2",
            real.tasks,
            real.epsilons,
            needs_data=True,
            forests=8,
        ),
        Experiment(
            "beta",
            ("Figure 14",),
            "Online beta scaling and its calibeating variants",
            real.tasks,
            real.beta,
            needs_data=True,
            forests=8,
        ),
        Experiment(
            "histogram",
            ("Figure 15",),
            "Windowed histogram binning",
            real.tasks,
            real.histogram,
            needs_data=True,
            forests=8,
        ),
        Experiment("rain", ("Figure 16",), "F99 on hourly rain", rain.tasks, rain.report, seconds=0.2),
        Experiment(
            "refits",
            (),
            "Not in the paper: the time of WPS beside SciPy and scikit-learn",
            refits.tasks,
            refits.report,
            needs_data=True,
            forests=1,
            seconds=2.0,
            most_runs=1,
        ),
    )
}


def chosen(names: Sequence[str]) -> list[Experiment]:
    """The experiments of these names, in the order of the list; "all", or nothing, is every one."""
    wanted = set(names) or {"all"}
    for name in sorted(wanted - {"all"} - set(EXPERIMENTS)):
        close = f" - did you mean {' or '.join(map(repr, found))}?" if (found := meant(name)) else ""
        hint = close or did_you_mean(name, EXPERIMENTS) or f" - there are all, {', '.join(EXPERIMENTS)}"
        raise InvalidInput(f"NAME must be one of the experiments, got {name!r:.60}{hint}")
    return [experiment for name, experiment in EXPERIMENTS.items() if "all" in wanted or name in wanted]


def meant(name: str) -> list[str]:
    """Experiments that show the figure or table of this name, or else begin with it."""
    plain = re.sub(r"[\W_]", "", name.lower()).replace("fig", "figure").replace("figureure", "figure")
    shows = [e.name for e in EXPERIMENTS.values() if plain in {s.lower().replace(" ", "") for s in e.shows}]
    begins = [known for known in EXPERIMENTS if name and known.startswith(name.lower())]
    return shows or begins


def listing(settings: Settings, names: Sequence[str] = ()) -> str:
    """What `--list` prints, of everything or of these."""
    lines = [f"{'NAME':17} {'SHOWS':21} {'FIRST TIME':>10} {'AGAIN':>7}  WHAT"]
    for experiment in chosen(names):
        first, again = experiment.estimate(settings)
        needs = " [needs the data]" if experiment.needs_data else ""
        shows, first_time, once_more = (
            ", ".join(experiment.shows) or "-",
            duration(max(1.0, first)),
            duration(max(1.0, again)),
        )
        lines.append(f"{experiment.name:17} {shows:21} {first_time:>10} {once_more:>7}  {experiment.title}{needs}")
    lines += [
        f"Estimates for --runs {settings.runs} --jobs {settings.jobs}; AGAIN is when the scores are in the cache.",
        "The experiments on real data share their forests and their runs: all of them take as long as one.",
    ]
    return "\n".join(lines)
