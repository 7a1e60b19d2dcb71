"""The reports of Tables 1 and 2, and of the time of refits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from calibeat.examples.stream import FloatArray

from . import diagrams, refits, regret
from .datasets import DATASETS, read
from .forests import ForestStream
from .rules import MUCH, SLIGHTLY, STANDARD_ERRORS
from .section import Section, Table, Verdict, number, plural, prose, spread
from .settings import Settings
from .tasks import Task

Results = Mapping[str, Sequence[Mapping[str, Any]]]

HALF_WAY = 1.5  # from 1, by which log T grows again when T is multiplied, to 2, for sqrt T when it is quadrupled


# ---- Table 1 -----------------------------------------------------------------------------------------------------


RUNS = 5


def table1_tasks(settings: Settings) -> list[Task]:
    """Regret hardly varies: a handful of runs is enough. Time is measured on the first."""
    regrets = [regret.regret_task(seed, settings.events) for seed in settings.seeds[:RUNS]]
    return [*regrets, regret.clock_task(settings.seed, settings.events)]


def table1(_settings: Settings, results: Results) -> Section:
    """Regret against the bounds, time against T."""
    runs = results["regret"]
    lengths = [int(length) for length in runs[0]["lengths"]]
    regrets, seconds = np.stack([run["regret"] for run in runs]), results["clock"][0]["seconds"]
    mean, std = regrets.mean(axis=0), spread(regrets)
    nanoseconds = 1e9 * seconds / lengths  # for each event, by turn, learner, B, stream and T
    fastest, usual, varied = nanoseconds.min(axis=0), nanoseconds.mean(axis=0), spread(nanoseconds)
    rows, csv_rows = [], []
    for (i, name), (j, radius), (k, stream) in product(
        enumerate(regret.LEARNERS), enumerate(regret.RADII), enumerate(regret.STREAMS)
    ):
        limits = [regret.BOUNDS[name](radius, length) for length in lengths]
        who = [name, f"{radius:g}", stream]
        for m, length in enumerate(lengths):
            at = i, j, k, m
            measured = [f"{mean[at]:.3f}", number(std[at], 3), str(len(runs)), f"{limits[m]:.3f}"]
            times = [number(times[at], 1) for times in (fastest, usual, varied)]
            csv_rows.append([*who, str(length), *measured, *times, str(len(seconds)) if times[0] else ""])
        first, last = mean[i, j, k, 0], mean[i, j, k, -1]
        rows.append([*who, f"{first:.0f}", f"{last:.0f}", f"{limits[-1]:.0f}", f"{last / limits[-1]:.2f}",
                     number(fastest[i, j, k, -1], 0)])  # fmt: skip
    ends = [f"T = {lengths[0]:,}", f"T = {lengths[-1]:,}"]
    caption = f"Regret at {ends[0]} and {ends[1]}, mean of {plural(len(runs), 'run')}; the bound at the latter, the "
    caption += f"share of it; CPU time, best of {len(seconds)} turns on the first run"
    return Section(
        words=[TABLE1_WORDS],
        tables=[Table(caption, ["learner", "B", "stream", *ends, "bound", "share", "ns/event"], rows)],
        figures={"table-1": diagrams.regrets(mean, np.array(lengths, dtype=float))},
        captions={"table-1": "Table 1 measured: regret against T, with the bounds"},
        csv_head=["learner", "B", "stream", "T", "regret_mean", "regret_std", "runs", "bound", "ns_per_event_best",
                  "ns_per_event_mean", "ns_per_event_std", "turns"],
        csv_rows=csv_rows,
        verdicts=table1_verdicts(regrets, fastest, lengths),
    )  # fmt: skip


def table1_verdicts(regrets: FloatArray, fastest: FloatArray, lengths: Sequence[int]) -> list[Verdict]:
    """What the text says of the learners; `regrets` by [run, learner, B, stream, T], ns per event without the run."""

    def listed(values: FloatArray, shown: str) -> str:
        return ", ".join(f"{name} {value:{shown}}" for name, value in zip(regret.LEARNERS, values, strict=True))

    bounds = np.array([
        [[[regret.BOUNDS[name](radius, length) for length in lengths]] for radius in regret.RADII]
        for name in regret.LEARNERS
    ])  # fmt: skip
    share = (regrets.max(axis=0) / bounds).max(axis=(1, 2, 3))
    per_event = np.nanmin(fastest, axis=(1, 2))  # by learner and T
    growth, last = per_event[:, -1] / per_event[:, 0], per_event[:, -1]
    times = f"ns per event at the longest T: {listed(last, '.0f')}"
    return [
        Verdict("Regret: OGD B sqrt T, ONS e^B log T, AIOLI B log(BT)", "Table 1 and Theorem 2.1",
                bool((share <= 1.0).all()),
                f"largest regret over its bound, over all runs, B, streams and T: {listed(share, '.2f')}",
                "at most the bound of `calibeat.bounds` in every run", verbatim=False),
        Verdict("Running time: T for OGD and ONS, T log T for AIOLI", "Table 1", bool((growth < MUCH).all()),
                f"time per event at the longest T over that at the shortest: {listed(growth, '.2f')}. AIOLI is linear "
                "here, by one scalar equation for each event", f"below {MUCH:g} times", verbatim=False),
        Verdict("a second-order method like ONS runs almost as fast as a first-order method like OGD", "Table 1",
                bool(last[1] <= SLIGHTLY * last[0]), times, f"ONS takes at most {SLIGHTLY:g} times as long"),
        Verdict("we found ONS to be significantly faster than AIOLI while also giving better calibration",
                "Section 2.2, the first half", bool(MUCH * last[1] <= last[2]), times,
                f"AIOLI takes at least {MUCH:g} times as long"),
        logarithmic(regrets, growth),
    ]  # fmt: skip


def logarithmic(regrets: FloatArray, growth: FloatArray) -> Verdict:
    """Whether the regret of ONS and AIOLI grows like log T, and their time like T."""
    steady = [k for k, stream in enumerate(regret.STREAMS) if stream != "flip"]
    grown = np.diff(regrets[:, :3, :, steady], axis=-1)[..., -2:]  # by run, learner, B, stream; the last two steps of T
    ratios = grown[..., 1].mean(axis=0) / grown[..., 0].mean(axis=0)
    above = grown[..., 1] - HALF_WAY * grown[..., 0]
    z = above.mean(axis=0) / np.maximum(spread(above) / np.sqrt(len(above)), 1e-12)  # NaN for one run
    over, clearly, by_two = ratios[1:] > HALF_WAY, z[1:] > STANDARD_ERRORS, z[1:] > 2.0
    slow = bool((growth[1:3] >= MUCH).any())
    holds = False if slow or clearly.any() else None if over.any() or np.isnan(z).any() else True
    shown = "; ".join(
        f"{name} {ratios[i].min():.2f} to {ratios[i].max():.2f}" for i, name in enumerate(regret.LEARNERS[:3])
    )
    most = (
        f", above {HALF_WAY:g} by {z[1:].max():.1f} standard errors at most" if over.any() and len(regrets) > 1 else ""
    )
    return Verdict(
        "we identify AIOLI and Online Newton Step (ONS) as the best candidates for implementing OPS, since they both "
        "have O(log T) regret and Õ(T) running time", "Section 2.1", holds,
        f"regret gained in the last step of T over that in the step before, over all B, stationary and adversary: "
        f"{shown}{most}; with hyper-parameters of the theorems",
        f"at most {HALF_WAY:g} for both (log T has 1, sqrt T has 2), and time per event as above; above it by less "
        f"than {STANDARD_ERRORS:g} standard errors leaves it undecided",
        fails_at_two=bool(holds is None and by_two.any()),
    )  # fmt: skip


TABLE1_WORDS = prose(f"""
    Scores are uniform in logit over [0.01, 0.99]; learners start at (a, b) = (0, 0).
    `stationary`: outcomes of one Platt curve; `flip`: of one that turns
    round every {regret.FLIP} events, where no fixed curve is good and regret is negative if the learner follows;
    `adversary`: y = 1{{p <= 0.5}}, chosen after seeing the forecast. Learners have the hyper-parameters under which
    their bounds are proved (`ONS.of_theorem(B)`, `AIOLI.of_theorem(B)`, `OGD(radius=B, diameter=2B)`); `ONS as used`
    has those of the paper's experiments, for which nothing is proved, and is held against the bound of ONS. The paper
    gives rates without constants, so the bounds are those of `calibeat.bounds`. The fourth row of the paper's table,
    the aggregating algorithm with its B^18 T^24, is not measured.
""")


# ---- Table 2 -----------------------------------------------------------------------------------------------------


def datasets(settings: Settings, _results: Results) -> Section:
    """Table 2, with what the files hold."""
    rows = []
    for dataset in DATASETS.values():
        frame = read(dataset, settings.data) if settings.data else None
        count = "" if frame is None else f"{len(frame):,}"
        rate = "" if frame is None else f"{frame[dataset.target].isin(dataset.positive).mean():.3f}"
        noise = "-1, 0 or 1" if dataset.integer_noise else f"N(0, {dataset.noise:g})" if dataset.noise else "none"
        rows.append([dataset.title, str(dataset.train), str(dataset.calibration), str(dataset.window), dataset.sort_by,
                     noise, count, f"{dataset.rows or len(frame) if frame is not None else 0:,}", rate,
                     dataset.checksum[:12], dataset.source])  # fmt: skip
    head = [
        "name",
        "T_train",
        "T_cal",
        "W",
        "sort by",
        "noise",
        "rows",
        "used",
        "share of ones",
        "SHA-256",
        "link to dataset",
    ]
    return Section(
        words=[TABLE2_WORDS],
        tables=[Table("The four datasets", head, rows)],
        csv_head=head,
        csv_rows=rows,
    )  # fmt: skip


TABLE2_WORDS = prose("""
    T_train, T_cal, W and the sorting covariate are the paper's. Rows are shuffled first, so that equal values of the
    covariate come in random order; countries come as France, Spain, Germany. Appendix A.1 says that "In each case some
    noise was added to the covariate"; as published, churn has none, its three countries being shuffled each.
    Columns of words become indicators, which
    the paper does not say. All four files are under the CC0 licence.
""")


# ---- the time of refits ------------------------------------------------------------------------------------------


def refit_stream(settings: Settings) -> ForestStream:
    """The longest stream."""
    return ForestStream("credit", "iid", trees=settings.trees, events=settings.events)


def refit_tasks(settings: Settings) -> list[Task]:
    """One stream, once."""
    return [refits.task(refit_stream(settings), settings.seed)]


def refit_report(settings: Settings, results: Results) -> Section:
    """Seconds of WPS beside SciPy and scikit-learn."""
    name = refit_stream(settings).name
    run = results[f"refits {name}"][0]
    turns: FloatArray = run["seconds"]
    best, usual, varied = turns.min(axis=0), turns.mean(axis=0), spread(turns)
    rows = [
        [contender, f"{best[i]:.3f}", f"{best[i] / best[0]:.1f}", f"{usual[i]:.4f}", number(varied[i], 4),
         str(len(turns)), f"{run['theta'][i, 0]:.5f}", f"{run['theta'][i, 1]:.5f}"]
        for i, contender in enumerate(refits.CONTENDERS)
    ]  # fmt: skip
    caption = f"CPU seconds on one thread; the best of {len(turns)} turns, and all of them"
    about = f"{int(run['refits'])} refits on all the past of {name}, {int(run['events']):,} events"
    head = ["contender", "seconds", "times ours", "mean", "std", "turns", "last a", "last b"]
    return Section(
        words=[f"{about}. {REFIT_WORDS}"],
        tables=[Table(caption, head, rows)],
        csv_head=["contender", "seconds", "times_ours", "seconds_mean", "seconds_std", "turns", "a", "b"],
        csv_rows=rows,
    )  # fmt: skip


REFIT_WORDS = prose("""
    Ours is the whole `Calibrator.run`, forecasts included; the others are the fits alone, on logits that are made
    before the clock starts. Times are measured anew by every command, on this machine, and never kept.
""")
