"""The reports of what is measured without forests: Tables 1 and 2, Figure 16, and the time of refits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from . import diagrams, published, rain, refits, regret
from .datasets import DATASETS, read
from .forests import ForestStream
from .section import NUMBERS, Section, Table, Verdict, spread
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
    lengths = runs[0]["lengths"]
    regrets, seconds = (np.stack([run[name] for run in runs]) for name in ("regret", "seconds"))
    mean, std, fastest = regrets.mean(axis=0), spread(regrets), seconds.min(axis=0)
    rows, csv_rows = [], []
    for i, name in enumerate(regret.LEARNERS):
        for j, radius in enumerate(regret.RADII):
            for k, stream in enumerate(regret.STREAMS):
                for m, length in enumerate(lengths):
                    bound = regret.BOUNDS[name](radius, int(length))
                    time = 1e9 * fastest[i, j, k, m] / length
                    csv_rows.append([name, f"{radius:g}", stream, str(length), f"{mean[i, j, k, m]:.3f}",
                                     f"{std[i, j, k, m]:.3f}", str(len(runs)), f"{bound:.3f}", f"{time:.1f}"])  # fmt: skip
                worst = mean[i, j, k, -1]
                rows.append([name, f"{radius:g}", stream, f"{mean[i, j, k, 0]:.0f}", f"{worst:.0f}", f"{bound:.0f}",
                             f"{worst / bound:.2f}", "" if np.isnan(time) else f"{time:.0f}"])  # fmt: skip
    every = np.array(
        [[[[regret.BOUNDS[n](r, int(t)) for t in lengths]] for r in regret.RADII] for n in regret.LEARNERS]
    )
    share = (regrets.max(axis=0) / every).max(axis=(1, 2, 3))
    per_event = np.nanmin(fastest, axis=(1, 2)) / lengths  # by learner and T
    growth = per_event[:, -1] / per_event[:, 0]
    j = regret.RADII.index(2.0)
    stationary = mean[:, j, 0]
    words = ", ".join(f"{n} {v:.2f}" for n, v in zip(regret.LEARNERS, share, strict=True))
    times = ", ".join(f"{n} {1e9 * v:.0f} ns" for n, v in zip(regret.LEARNERS, per_event[:, -1], strict=True))
    return Section(
        words=[TABLE1_WORDS],
        tables=[Table(f"Regret at T = {lengths[0]:,} and {lengths[-1]:,}, the bound at the latter, and CPU time",
                      ["learner", "B", "stream", f"T = {lengths[0]:,}", f"T = {lengths[-1]:,}", "bound", "share",
                       "ns/event"], rows)],
        figures={"table-1": diagrams.regrets(mean, lengths)},
        captions={"table-1": "Table 1 measured: regret against T, with the bounds"},
        csv_head=["learner", "B", "stream", "T", *(f"regret_{n}" if n != "runs" else n for n in NUMBERS), "bound",
                  "ns_per_event"],
        csv_rows=csv_rows,
        verdicts=[
            Verdict("Regret: OGD B sqrt T, ONS e^B log T, AIOLI B log(BT)", "Table 1 and Theorem 2.1",
                    bool((share <= 1.0).all()), f"largest regret over its bound, over all runs, B, streams and T: {words}"),
            Verdict("Running time: T for OGD and ONS, T log T for AIOLI", "Table 1", bool((growth < 1.5).all()),
                    "time per event at the longest T over that at the shortest: "
                    + ", ".join(f"{n} {g:.2f}" for n, g in zip(regret.LEARNERS, growth, strict=True))
                    + "; asked: below 1.5. One root of one scalar equation makes AIOLI linear here"),
            Verdict("a second-order method like ONS runs almost as fast as a first-order method like OGD", "Table 1",
                    bool(per_event[1, -1] < 1.5 * per_event[0, -1]), f"per event: {times}"),
            Verdict("we found ONS to be significantly faster than AIOLI", "Section 2.2",
                    bool(1.5 * per_event[1, -1] < per_event[2, -1]), f"per event: {times}"),
            Verdict("AIOLI and ONS have O(log T) regret, OGD has not", "Section 2.1",
                    bool(_ratio(stationary[0]) > _ratio(stationary[2])),
                    "growth of the regret on the stationary stream at B = 2 from the shortest T to the longest: "
                    + ", ".join(f"{n} {_ratio(r):.1f}" for n, r in zip(regret.LEARNERS, stationary, strict=True))),
        ],
    )  # fmt: skip


def _ratio(values: FloatArray) -> float:
    return float(values[-1] / values[0])


TABLE1_WORDS = (
    "Scores are uniform in logit over [0.01, 0.99]. `stationary`: outcomes of one Platt curve; `flip`: of one that turns "
    f"round every {regret.FLIP} events, where no fixed curve is good and regret is negative if the learner follows; "
    "`adversary`: y = 1{p <= 0.5}, chosen after seeing the forecast. Learners have the hyper-parameters under which their "
    "bounds are proved (`ONS.of_theorem(B)`, `AIOLI.of_theorem(B)`, `OGD(radius=B, diameter=2B)`). The paper gives rates "
    "without constants, so the bounds are those of `calibeat.bounds`. The fourth row, the aggregating algorithm with its "
    "B^18 T^24, is not measured."
)


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
        words=["T_train, T_cal, W and the sorting covariate are the paper's. Rows are shuffled first, so that equal "
               "values of the covariate come in random order; countries come as France, Spain, Germany. Columns of words "
               "become indicators, which the paper does not say. All four files are under the CC0 licence."],
        tables=[Table("The four datasets", head, rows)],
        csv_head=head,
        csv_rows=rows,
    )  # fmt: skip


# ---- Figure 16 ---------------------------------------------------------------------------------------------------


def rain_tasks(settings: Settings) -> list[Task]:
    """One run for each seed: F99 draws."""
    return [Task("rain", "", seed, settings.events) for seed in settings.seeds]


def rain_report(_settings: Settings, results: Results) -> Section:
    """Figure 16."""
    runs = results["rain"]
    rates = runs[0]["outcomes"].mean(axis=1)
    hours = runs[0]["outcomes"].shape[1]
    said = np.stack([run["forecasts"] for run in runs])  # run, airport, hour
    late = said[:, :, hours // 4 :]
    rows, constant = [], True
    for i, airport in enumerate(rain.AIRPORTS):
        values, counts = np.unique(late[:, i], return_counts=True)
        usual, share = float(values[counts.argmax()]), float(counts.max() / counts.sum())
        settled = [int(np.flatnonzero(run[i] != usual).max(initial=-1)) + 1 for run in said]
        near = abs(usual - rates[i]) <= 0.1
        constant = constant and share > 0.99 and near
        rows.append([airport, f"{hours:,}", f"{rates[i]:.3f}", f"{usual:.2f}", f"{share:.4f}",
                     f"{np.mean(settled):.0f}", f"{spread(np.array(settled, dtype=float)):.0f}", str(len(runs))])  # fmt: skip
    head = ["airport", "hours", "share of rainy hours", "usual forecast", "share of it after a quarter",
            "settled after, mean", "std", "runs"]  # fmt: skip
    return Section(
        words=[rain.__doc__.split("\n\n")[1] if rain.__doc__ else "",
               f"The paper: it rained in {published.RAIN_RATE} of its recorded hours, and after about 2000 instances F99 "
               f"always says {published.RAIN_FORECAST}."],
        tables=[Table("F99 on hourly rain", head, rows)],
        figures={"figure-16": diagrams.rain(runs[0])},
        captions={"figure-16": "Figure 16: F99 on the rain of three New York airports, 2013"},
        csv_head=head,
        csv_rows=rows,
        verdicts=[Verdict("F99's hedging algorithm simply predicts the average y_t value in the long run",
                          "Section 3.3 and Figure 16", constant,
                          "; ".join(f"{r[0]}: it rains in {r[2]} of the hours, F99 says {r[3]} in {r[4]} of its "
                                    "forecasts after the first quarter" for r in rows))],
    )  # fmt: skip


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
        [contender, f"{seconds:.3f}", f"{seconds / run['seconds'][0]:.0f}", f"{a:.5f}", f"{b:.5f}"]
        for contender, seconds, (a, b) in zip(refits.CONTENDERS, run["seconds"], run["theta"], strict=True)
    ]
    about = f"{int(run['refits'])} refits on all the past of {name}, {int(run['events']):,} events"
    return Section(
        words=[f"{about}. Ours is the whole `Calibrator.run`, forecasts included; the others are the fits alone, on "
               "logits that are made before the clock starts."],
        tables=[Table("Seconds of wall time", ["contender", "seconds", "times ours", "last a", "last b"], rows)],
        csv_head=["contender", "seconds", "times_ours", "a", "b"],
        csv_rows=rows,
    )  # fmt: skip
