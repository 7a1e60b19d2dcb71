"""What is collected while a log is replayed, and the numbers of the report that are made of it."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, version

import numpy as np

from calibeat._util.processes import usable_cores
from calibeat._util.types import Ints, Vector
from calibeat._version import __version__
from calibeat.backtest.options import Options
from calibeat.backtest.read.batch import Chunk
from calibeat.backtest.read.guess import Columns
from calibeat.backtest.replay.contenders import Contender
from calibeat.backtest.replay.engine import Replayed, Runner
from calibeat.core.auto import Lanes
from calibeat.core.calibeating import Hedging
from calibeat.core.method import Method, params_of
from calibeat.core.refit import Histogram
from calibeat.core.stats import LOSS_FLOOR
from calibeat.report.schema import (
    Data,
    DifferencesTo,
    Evidence,
    LeaderboardRow,
    MethodInfo,
    Payload,
    SkippedInfo,
    Trajectories,
    Trajectory,
)

from .bootstrap import RESAMPLES, Bootstrap
from .by_key import by_key, sentence_on_keys
from .certificates import certificates
from .decisions import Deciding, decisions
from .delays import delay, notice_of_ages
from .history import DataHistory, Periods, sentences_on_periods
from .intervals import Intervals
from .measures import MOST_POINTS, Counted, auc, iso, log_e_values, mass_curve, number, overall, reliability, windows
from .paging import Trails
from .verdict import INTERVALS, LEGEND, Comparison, Counting, Facts, answer, differences, elsewhere, threshold, verdict


@dataclass
class LogInfo:
    """What is known of a log beside its numbers."""

    title: str
    names: list[str]
    rows: int = 0
    skipped: list[SkippedInfo] = field(default_factory=list)
    columns: Columns | None = None
    score_kind: str = "probability"
    notes: list[str] = field(default_factory=list)
    keys: list[str] | None = None
    command: str | None = None


class Collector:
    """Sees each chunk with the forecasts of all methods, the raw score first. Sums only: memory is constant."""

    def __init__(self, options: Options, contenders: Sequence[Contender]) -> None:
        self._counting = Counting(options.bins)
        self.deciding = None if options.costs is None else Deciding(options.costs)
        self.history, self.periods = DataHistory(), Periods(options)
        self.paging = Trails(named=next((each.name for each in contenders if each.preset == "auto"), None))

    def add(self, chunk: Chunk, forecasts: dict[str, Vector], place: Ints) -> None:
        """Count a chunk, in threads: compiled kernels release the interpreter."""

        def count() -> None:
            leader = self._counting.add(chunk, forecasts, place)
            if self.deciding is not None:
                self.deciding.add(chunk, forecasts, place, leader)

        tasks: list[Callable[[], None]] = [
            count,
            partial(self.history.add, chunk),
            partial(self.periods.add, chunk, forecasts, place),
        ]
        tasks += self.paging.tasks(chunk, forecasts, place)
        with ThreadPoolExecutor(usable_cores()) as pool:
            for done in [pool.submit(task) for task in tasks]:
                done.result()

    @property
    def sums(self) -> Intervals:
        """The sums of the martingale intervals."""
        return self._counting.sums


def summarise(replayed: Replayed, source: LogInfo, collected: Collector) -> Payload:
    """The contract with the report; see `calibeat.report.schema`."""
    blocks, used, sums = replayed.blocks, replayed.blocks.used, collected.sums
    tallies = {runner.name: runner.tally for runner in replayed.runners}
    labels = {runner.name: runner.contender.label for runner in replayed.runners}
    bootstrap = Bootstrap(tallies, used, blocks.length)
    named = next((runner.name for runner in replayed.runners if runner.contender.preset == "auto"), None)
    compared = Comparison(list(labels), bootstrap, sums, named)
    log_e_max = {name: float(tally.running[1]) for name, tally in tallies.items()}
    facts = Facts(
        labels,
        blocks.judged,
        log_e_max,
        ones=float(replayed.totals[1]),
        learnt=None if replayed.delays is None else replayed.delays.learnt,
        ignores_score=frozenset(runner.name for runner in replayed.runners if _ignores_score(runner)),
        raw_auc=auc(replayed.runners[0].tally)[0],
        assumption=None if source.columns is None else source.columns.assumption,
        ages=None if replayed.ages is None else notice_of_ages(replayed, replayed.ages, labels),
    )
    found = verdict(compared, facts)
    if replayed.key_variants is not None:
        found["sentences"].append(sentence_on_keys(compared, replayed.key_variants, labels))
    source.notes += sentences_on_periods(collected.periods.found, labels)
    return {
        "schema": 1,
        "title": source.title,
        "command": source.command,
        "versions": versions(),
        "data": _data(replayed, source),
        "verdict": found,
        "methods": [_method(runner) for runner in replayed.runners],
        "table": [_row(replayed, runner, compared) for runner in replayed.runners],
        "intervals": {
            "quantile_of_best": compared.most,
            "run_events": sums.runs,
            "sentence": INTERVALS,
            "legend": LEGEND,
        },
        "bootstrap": {
            "blocks": -(-used // bootstrap.run),
            "block_length": bootstrap.run_events,
            "resamples": RESAMPLES,
            "sentence": elsewhere_in_words(bootstrap, "FPS"),
        },
        "windows": windows(replayed),
        "reliability": {
            **reliability(replayed),
            "mass": {name: mass_curve(tally, replayed.bins) for name, tally in tallies.items()},
        },
        "trajectories": _trajectories(replayed),
        "keys": None if source.keys is None else by_key(replayed, source.keys, found["method"], labels),
        "delay": None if replayed.delays is None else delay(replayed, replayed.delays),
        "certificates": certificates(replayed),
        "evalue": evalue(replayed),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "answer": answer(replayed, found),
        "decisions": decisions(replayed, collected.deciding, labels, found["method"], sums.runs),
        "history": collected.history.for_report(),
        "paging": collected.paging.for_report(found["method"], labels),
        "periods": collected.periods.found,
    }


def elsewhere_in_words(bootstrap: Bootstrap, fitted_once: str) -> str:
    """How it is checked whether a gain would hold elsewhere; `fitted_once` is a method that is."""
    return (
        f"Whether a gain would hold elsewhere is checked by a moving-block bootstrap: {RESAMPLES:,} logs put together "
        f"from runs of {bootstrap.run_events:,} consecutive events, stretched to what longer runs show where a "
        "difference depends on its past for longer than a run. It cannot know what lasts as long as the log itself, "
        f"nor another fit of a method that is fitted once, such as {fitted_once}."
    )


def versions() -> dict[str, str]:
    """Of calibeat and of the libraries that its numbers may depend on."""
    try:
        numba = version("numba")
    except PackageNotFoundError:  # everything works without it, only slower
        numba = "not installed"
    return {"calibeat": __version__, "python": platform.python_version(), "numpy": np.__version__, "numba": numba}


def _ignores_score(runner: Runner) -> bool:
    """Whether the forecasts do not depend on the score, as those of F99."""
    method = runner.method
    return method is not None and method.features is None and method.calibeater == Hedging(start="first", groups=1)


def _method(runner: Runner) -> MethodInfo:
    contender = runner.contender
    return {"name": contender.name, "label": contender.label, "about": contender.about, "seconds": runner.seconds}


def _data(replayed: Replayed, source: LogInfo) -> Data:
    blocks = replayed.blocks
    judged = max(1, blocks.judged)
    notes = [
        (
            f"Every forecast was made before its outcome was learnt. The first {blocks.warmup:,} events with an "
            f"outcome are warm-up and are not scored. All methods are scored on the same {blocks.judged:,} events."
        ),
        f"In the log-loss an outcome counts as forecast with at least {LOSS_FLOOR:g}: a method may forecast 0 or 1.",
        *([] if source.columns is None else source.columns.all_notes),
        *source.notes,
    ]
    notes += _oddities(replayed, source.score_kind)
    if replayed.delays is not None:
        notes.append(
            "An outcome that had not arrived when the log ended was never learnt. Its event is scored if the log holds "
            "the outcome. With late outcomes an e-value is valid if neither delays nor later scores depend on outcomes "
            "that are still under way."
        )
    if replayed.maturity is not None:
        notes.append(
            "Each outcome was learnt when it had arrived and had reached the age that was asked for. Until a stream "
            "had learnt its first outcome, every method forecast the raw score."
        )
    # What hedging says is one of a few points: forecasts of one rank are equal indeed.
    error = max(auc(runner.tally)[1] for runner in replayed.runners if not runner.contender.hedges)
    if error < 0.01:  # where it seems more, forecasts are equal indeed
        notes.append(
            "For the AUC forecasts within 1/256 of one another (towards 0 and towards 1) count as equal: it is off by "
            f"at most {error:.1g}."
        )
    return {
        "source": source.names,
        "rows": source.rows,
        "used": replayed.events,
        "warmup": min(blocks.warmup, blocks.labelled),
        "judged": blocks.judged,
        "base_rate": number(replayed.totals[1] / judged) if blocks.judged else None,
        "mean_score": number(replayed.totals[0] / judged) if blocks.judged else None,
        "span": None if replayed.span is None else [iso(t) for t in replayed.span],
        "skipped": source.skipped,
        "columns": {} if source.columns is None else dict(source.columns.chosen),
        "keys": None if source.keys is None else len(source.keys),
        "score_kind": source.score_kind,
        "notes": notes,
    }


def _oddities(replayed: Replayed, score_kind: str) -> list[str]:
    """What a reader should know of a log that leaves little to learn."""
    notes = []
    ones = replayed.totals[1]
    if ones in {0.0, float(replayed.blocks.judged)}:
        notes.append(f"Every judged outcome is {int(ones > 0)}: there is nothing to tell apart, and no AUC.")
    if replayed.scores.distinct == 1 and replayed.events > 1:
        notes.append("The score is all but constant: a method can only learn the share of ones.")
    judged, mean = max(1, replayed.blocks.judged), float(replayed.totals[0])
    if score_kind == "probability" and ones > 0.0 and mean > 20.0 * ones:
        notes.append(
            f"The mean score is {mean / ones:,.0f} times the share of ones, {ones / judged:.2g}. If the scores are "
            "percent, say --score-kind percent."
        )
    return notes


def _row(replayed: Replayed, runner: Runner, compared: Comparison) -> LeaderboardRow:
    used = replayed.blocks.used
    tally = runner.tally
    measured = overall(tally.cells(used)[1:], tally.sums(used)[1:])
    raw = replayed.runners[0].name
    best = replayed.scores.least_loss(runner.method)
    area, _ = auc(tally)
    is_raw = runner.name == raw
    return {
        "method": runner.name,
        "log_loss": number(measured["log_loss"]),
        "brier": number(measured["brier"]),
        "ce": number(measured["ce"]),
        "shp": number(measured["shp"]),
        "refinement": number(measured["refinement"]),
        "accuracy": number(measured["accuracy"]),
        "auc": number(area),
        "ce_luck": number(compared.luck(runner.name)),
        "vs_raw": None if is_raw else differences(compared, runner.name, raw),
        "vs_best_other": best_other(replayed, runner.name, compared),
        "elsewhere": None if is_raw else elsewhere(compared, runner.name),
        "regret": None if best is None else number(float(tally.sums(used)[1:, 0].sum()) - best[0]),
        "log_e_value": None if is_raw else number(float(tally.running[0])),
        "log_e_max": None if is_raw else number(float(tally.running[1])),
    }


def best_other(replayed: Counted, name: str, compared: Comparison) -> DifferencesTo | None:
    others = [runner.name for runner in replayed.runners if runner.name != name]
    if not others:
        return None
    return differences(compared, name, min(others, key=lambda other: compared.measured(other, "log_loss")))


def _trajectories(replayed: Replayed) -> Trajectories:
    timed = bool(replayed.mark_times)
    methods = {}
    for runner in replayed.runners:
        method = runner.method
        if method is None or method.learner is None or isinstance(method.features, Histogram):
            continue
        if runner.replay.trail:
            methods[runner.name] = _trajectory(method, runner.replay.trail)
    x: list[str] | list[int] = [iso(t) for t in replayed.mark_times] if timed else replayed.marks
    return {"by": "time" if timed else "event", "x": x, "methods": methods}


def _trajectory(method: Method, trail: list[Vector]) -> Trajectory:
    expert = replace(method, guard=None)  # what is noted of a row ends before the guard
    points = [params_of(expert, noted.tolist()) for noted in trail]
    mixes = isinstance(method.learner, Lanes)
    names = [name for name in points[0] if name in ("a", "b", "c")]
    return {
        "params": {name: [number(point[name]) for point in points] for name in names},
        "lanes": {lane: [number(point["lanes"][lane]) for point in points] for lane in points[0]["lanes"]}
        if mixes
        else None,
    }


def evalue(replayed: Counted) -> Evidence:
    blocks, used = replayed.blocks, replayed.blocks.used
    at = np.unique(np.linspace(1, used, min(MOST_POINTS, used)).round().astype(int)).tolist() if used else []
    timed = replayed.span is not None
    ends = [int(blocks.end[k - 1]) for k in at]
    x: list[str] | list[int] = [iso(end) for end in ends] if timed else ends
    paths = {runner.name: log_e_values(runner.tally, used, at) for runner in replayed.runners[1:]}
    return {"by": "time" if timed else "event", "x": x, "threshold": threshold(len(paths)), "methods": paths}


__all__ = ["LogInfo", "best_other", "elsewhere_in_words", "evalue", "summarise", "versions"]
