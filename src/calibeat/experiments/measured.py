"""The reports of what is measured without forests: Tables 1 and 2, Figure 16, and the time of refits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from . import diagrams, published, rain, refits, regret
from .datasets import DATASETS, read
from .forests import ForestStream
from .section import Section, Table, Verdict, prose, spread
from .settings import Settings
from .stream import FloatArray
from .tasks import Task

Results = Mapping[str, Sequence[Mapping[str, Any]]]


# ---- Table 1 -----------------------------------------------------------------------------------------------------


def table1_tasks(settings: Settings) -> list[Task]:
    """Regret needs no forests: a handful of runs is enough, for it hardly varies."""
    return [Task("regret", "", seed, settings.events) for seed in settings.seeds[:5]]


def table1(_settings: Settings, results: Results) -> Section:
    """Regret against the bounds, time against T."""
    runs = results["regret"]
    lengths = [int(length) for length in runs[0]["lengths"]]
    regrets, seconds = (np.stack([run[name] for run in runs]) for name in ("regret", "seconds"))
    mean, std, fastest = regrets.mean(axis=0), spread(regrets), seconds.min(axis=0)
    rows, csv_rows = [], []
    for (i, name), (j, radius), (k, stream) in product(
        enumerate(regret.LEARNERS), enumerate(regret.RADII), enumerate(regret.STREAMS)
    ):
        times = ["" if np.isnan(t) else f"{1e9 * t / n:.0f}" for t, n in zip(fastest[i, j, k], lengths, strict=True)]
        limits = [regret.BOUNDS[name](radius, length) for length in lengths]
        who = [name, f"{radius:g}", stream]
        for m, length in enumerate(lengths):
            measured = [f"{mean[i, j, k, m]:.3f}", f"{std[i, j, k, m]:.3f}", str(len(runs))]
            csv_rows.append([*who, str(length), *measured, f"{limits[m]:.3f}", times[m]])
        first, last = mean[i, j, k, 0], mean[i, j, k, -1]
        rows.append([*who, f"{first:.0f}", f"{last:.0f}", f"{limits[-1]:.0f}", f"{last / limits[-1]:.2f}", times[-1]])
    ends = [f"T = {lengths[0]:,}", f"T = {lengths[-1]:,}"]
    caption = f"Regret at {ends[0]} and {ends[1]}, the bound at the latter, the share of it, CPU time; {len(runs)} runs"
    return Section(
        words=[TABLE1_WORDS],
        tables=[Table(caption, ["learner", "B", "stream", *ends, "bound", "share", "ns/event"], rows)],
        figures={"table-1": diagrams.regrets(mean, np.array(lengths, dtype=float))},
        captions={"table-1": "Table 1 measured: regret against T, with the bounds"},
        csv_head=["learner", "B", "stream", "T", "regret_mean", "regret_std", "runs", "bound", "ns_per_event"],
        csv_rows=csv_rows,
        verdicts=table1_verdicts(regrets, fastest, lengths),
    )


def table1_verdicts(regrets: FloatArray, fastest: FloatArray, lengths: Sequence[int]) -> list[Verdict]:
    """What the text says of the learners; `regrets` by [run, learner, B, stream, T], `fastest` without the run."""

    def listed(values: FloatArray, shown: str) -> str:
        return ", ".join(f"{name} {value:{shown}}" for name, value in zip(regret.LEARNERS, values, strict=True))

    bounds = np.array([
        [[[regret.BOUNDS[name](radius, length) for length in lengths]] for radius in regret.RADII]
        for name in regret.LEARNERS
    ])  # fmt: skip
    share = (regrets.max(axis=0) / bounds).max(axis=(1, 2, 3))
    per_event = np.nanmin(fastest, axis=(1, 2)) / lengths  # by learner and T
    growth, last = per_event[:, -1] / per_event[:, 0], per_event[:, -1]
    both = regrets.mean(axis=0)[:, regret.RADII.index(2.0), [0, 2], -1].sum(axis=1)
    times = f"ns per event at the longest T: {listed(1e9 * last, '.0f')}; asked: a factor of 1.5"
    return [
        Verdict("Regret: OGD B sqrt T, ONS e^B log T, AIOLI B log(BT)", "Table 1 and Theorem 2.1",
                bool((share <= 1.0).all()),
                f"largest regret over its bound, over all runs, B, streams and T: {listed(share, '.2f')}"),
        Verdict("Running time: T for OGD and ONS, T log T for AIOLI", "Table 1", bool((growth < 1.5).all()),
                f"time per event at the longest T over that at the shortest: {listed(growth, '.2f')}; asked: below "
                "1.5. AIOLI is linear here, by one scalar equation for each event"),
        Verdict("a second-order method like ONS runs almost as fast as a first-order method like OGD", "Table 1",
                bool(last[1] < 1.5 * last[0]), times),
        Verdict("we found ONS to be significantly faster than AIOLI", "Section 2.2",
                bool(1.5 * last[1] < last[2]), times),
        Verdict("we identify AIOLI and ONS as the best candidates", "Section 2.1", bool((both[1:3] < both[0]).all()),
                f"regret at T = {lengths[-1]:,} and B = 2, stationary and adversary together: {listed(both, '.0f')}; "
                "asked: both, with the theorem's hyper-parameters, below OGD"),
    ]  # fmt: skip


TABLE1_WORDS = prose(f"""
    Scores are uniform in logit over [0.01, 0.99]. `stationary`: outcomes of one Platt curve; `flip`: of one that turns
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
                     dataset.checksum[:12]])  # fmt: skip
    head = ["name", "T_train", "T_cal", "W", "sort by", "noise", "rows", "used", "share of ones", "SHA-256"]
    return Section(
        words=[TABLE2_WORDS],
        tables=[Table("The four datasets", head, rows)],
        csv_head=head,
        csv_rows=rows,
    )  # fmt: skip


TABLE2_WORDS = prose("""
    T_train, T_cal, W and the sorting covariate are the paper's. Rows are shuffled first, so that equal values of the
    covariate come in random order; countries come as France, Spain, Germany. Columns of words become indicators, which
    the paper does not say. All four files are under the CC0 licence.
""")


# ---- Figure 16 ---------------------------------------------------------------------------------------------------


def rain_tasks(settings: Settings) -> list[Task]:
    """One run for each seed: F99 draws."""
    return [Task("rain", "", seed, settings.events) for seed in settings.seeds]


def rain_report(_settings: Settings, results: Results) -> Section:
    """Figure 16."""
    runs = results["rain"]
    rows, why, average, one_point = [], [], True, True
    for record, airport in product(rain.RECORDS, rain.AIRPORTS):
        outcomes = runs[0][f"outcomes {record}, {airport}"]
        said = np.stack([run[f"forecasts {record}, {airport}"] for run in runs])  # by run and hour
        rate, late = float(outcomes.mean()), said[:, said.shape[1] // 2 :]
        values, counts = np.unique(late, return_counts=True)
        usual, share = float(values[counts.argmax()]), float(counts.max() / counts.sum())
        near = float((np.abs(late - rate) <= 0.1).mean())
        average, one_point = average and near > 0.95, one_point and share == 1.0
        rows.append([f"{airport}, {record}", f"{len(outcomes):,}", f"{rate:.3f}", f"{near:.3f}", f"{usual:.2f}",
                     f"{share:.3f}", str(len(runs))])  # fmt: skip
        why.append(f"{airport}, {record}: rain in {rate:.3f}, {near:.1%} near it, {share:.1%} are {usual:.2f}")
    head = ["record", "hours", "share with rain", "forecasts within 0.1 of it", "usual forecast", "share of it", "runs"]
    numbers = f"of the forecasts of the later half - {'; '.join(why)}"
    settled = "after around 2000 instances, the forecaster always predicts one grid point, the one close to the average"
    return Section(
        words=[prose((rain.__doc__ or "").split("\n\n")[1]), RAIN_WORDS],
        tables=[Table("F99 on hourly rain; forecasts are those of the later half", head, rows)],
        figures={"figure-16": diagrams.rain(runs[0])},
        captions={"figure-16": "Figure 16: F99 on the rain of three New York airports, 2013"},
        csv_head=head,
        csv_rows=rows,
        verdicts=[
            Verdict("F99's hedging algorithm simply predicts the average y_t value in the long run", "Section 3.3",
                    average, f"asked: more than 95 % within 0.1 of the average; {numbers}"),
            Verdict(settled, "Appendix D", one_point, f"asked: all of the later half; {numbers}"),
        ],
    )  # fmt: skip


RAIN_WORDS = prose(f"""
    The paper: it rained in {published.RAIN_RATE} of the recorded hours, and after about 2000 instances F99 always says
    {published.RAIN_FORECAST}.
""")


# ---- the time of refits ------------------------------------------------------------------------------------------


def refit_stream(settings: Settings) -> ForestStream:
    """The longest stream where the data are at hand, else one that needs none."""
    if settings.data:
        return ForestStream("credit", "iid", trees=settings.trees, events=settings.events)
    return ForestStream("label", "drift", "text", settings.trees, settings.events)


def refit_tasks(settings: Settings) -> list[Task]:
    """One stream, once."""
    return [Task("refits", refit_stream(settings), settings.seed)]


def refit_report(settings: Settings, results: Results) -> Section:
    """Seconds of WPS beside SciPy and scikit-learn."""
    name = refit_stream(settings).name
    run = results[f"refits {name}"][0]
    rows = [
        [contender, f"{seconds:.3f}", f"{seconds / run['seconds'][0]:.1f}", f"{a:.5f}", f"{b:.5f}"]
        for contender, seconds, (a, b) in zip(refits.CONTENDERS, run["seconds"], run["theta"], strict=True)
    ]
    caption = f"CPU seconds on one thread, best of {refits.REPEATS} turns"
    about = f"{int(run['refits'])} refits on all the past of {name}, {int(run['events']):,} events"
    return Section(
        words=[f"{about}. {REFIT_WORDS}"],
        tables=[Table(caption, ["contender", "seconds", "times ours", "last a", "last b"], rows)],
        csv_head=["contender", "seconds", "times_ours", "a", "b"],
        csv_rows=rows,
    )  # fmt: skip


REFIT_WORDS = prose("""
    Ours is the whole `Calibrator.run`, forecasts included; the others are the fits alone, on logits that are made
    before the clock starts.
""")
