"""The whole of a backtest, which `calibeat.backtest` and the command share: batches in, the report's numbers out."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from calibeat._util.processes import usable_cores
from calibeat._util.types import Ints, Vector
from calibeat._version import __version__
from calibeat.core.auto import EPS, Lanes
from calibeat.core.calibeating import Hedging
from calibeat.core.method import Method, params_of
from calibeat.core.refit import Histogram
from calibeat.core.stats import LOSS_FLOOR
from calibeat.errors import InvalidInput
from calibeat.report.schema import (
    AnswerInfo,
    Certificate,
    ColumnInfo,
    Data,
    LeaderboardRow,
    MethodInfo,
    Payload,
    SkippedInfo,
    Trajectories,
    Trajectory,
    Verdict,
)

from .judge.by_key import by_key, sentence_on_keys
from .judge.certificates import certificates
from .judge.classes import ClassIntervals, class_answer, class_certificates, class_section, class_verdict
from .judge.decisions import Deciding, decisions
from .judge.delays import delay, notice_of_ages
from .judge.history import DataHistory, Periods, sentences_on_periods
from .judge.intervals import RESAMPLES, Bootstrap, Intervals
from .judge.measures import Counted, CountedMethod, auc, iso, mass_curve, number, overall, reliability, windows
from .judge.paging import Trails
from .judge.verdict import (
    INTERVALS,
    LEGEND,
    Comparison,
    Counting,
    Facts,
    answer,
    best_other,
    differences,
    elsewhere,
    elsewhere_in_words,
    evalue,
    verdict,
)
from .options import Options
from .read.guess import Columns
from .read.manyclass import ClassArrays, ClassColumns, ClassReader, Labels
from .read.rows import Chunk, LogBatch, LogColumns, RowReader
from .replay.contenders import Contender, chosen, with_key_variants, with_others
from .replay.engine import OnForecasts, Replayed, Runner, replay_log
from .replay.late import typical_delay
from .replay.manyclass import (
    ABOUT_PAIR,
    METHOD_ABOUT,
    METHOD_LABELS,
    ClassReplayed,
    chosen_methods,
    columns_of,
    replay_classes,
)
from .replay.tally import Blocks
from .result import BacktestResult

# ---- from Python -------------------------------------------------------------------------------------------------


def run_arrays(table: LogColumns, options: Options, *, keep_forecasts: bool = False) -> BacktestResult:
    """`calibeat.backtest` of columns."""
    columns, kept = table.columns, _Kept()
    options.check_times(columns["times"], columns["outcome_times"])
    reader = RowReader(options, trace=keep_forecasts)
    more = [name for name, column in columns.items() if name not in {"scores", "outcomes"} and column is not None]
    payload = run(
        table.batches(options),
        LogInfo.of_call(options, "scores", "outcomes", *more),
        reader,
        keyed=columns["keys"] is not None,
        others=table.names,
        on_forecasts=kept.keep if keep_forecasts else None,
    )
    return BacktestResult(payload, kept.by_row(reader.rows))


def run_matrix(
    scores: Any,
    labels: Any,
    times: Any,
    outcome_times: Any,
    options: Options,
    *,
    classes: Any = None,
    keep_forecasts: bool = False,
) -> BacktestResult:
    """`calibeat.backtest` where the scores are a matrix."""
    options.check_times(times, outcome_times)
    kept, source = _Kept(), ClassArrays.of(scores, classes, options)
    reader = ClassReader(options, trace=keep_forecasts, source=source)
    more = [name for name, column in (("times", times), ("outcome_times", outcome_times)) if column is not None]
    payload = run_classes(
        source.batches(labels, times, outcome_times),
        LogInfo.of_call(options, "scores", "labels", *more),
        reader,
        on_forecasts=kept.keep if keep_forecasts else None,
    )
    return BacktestResult(payload, kept.by_row(len(source.matrix)))


class _Kept:
    """The forecasts of all events, on request."""

    def __init__(self) -> None:
        self._parts: list[tuple[Ints, dict[str, Vector]]] = []

    def keep(self, chunk: Chunk, forecasts: dict[str, Vector], _: Ints) -> None:
        if chunk.trace is not None:
            self._parts.append((chunk.trace.rows, forecasts))

    def by_row(self, rows: int) -> dict[str, Vector]:
        """Each forecast at the row of its event; NaN where a row was skipped."""
        found: dict[str, Vector] = {}
        for at, by_method in self._parts:
            for name, values in by_method.items():
                found.setdefault(name, np.full((rows, *values.shape[1:]), np.nan))[at] = values
        return found


# ---- replay and collect ------------------------------------------------------------------------------------------


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

    @classmethod
    def of_call(cls, options: Options, scores: str, outcomes: str, *more: str) -> LogInfo:
        """Of columns from Python, by the names of the arguments that hold them."""
        call = options.call(scores, outcomes, *(f"{name}={name}" for name in more))
        return cls(options.title, ["arrays"], score_kind=options.score_kind, command=call)

    def learn(self, reader: RowReader, blocks: Blocks, notes: list[str], what: str) -> None:
        """What the reader knows once the log has ended. `what` is an outcome or a label.

        Raises
        ------
        InvalidInput : if there is nothing to judge.
        """
        if not blocks.labelled:
            raise InvalidInput(f"log must hold at least one {what.split()[1]}, got none in {reader.rows:,} rows")
        if not blocks.judged:
            raise InvalidInput(
                f"warmup must be less than the {blocks.labelled:,} events that have {what}, got {blocks.warmup:,}"
            )
        self.rows, self.skipped = reader.rows, list(reader.skipped)
        self.notes += notes + reader.notes


def run(
    batches: Iterable[LogBatch],
    source: LogInfo,
    reader: RowReader,
    *,
    keyed: bool,
    others: Mapping[str, str] | None = None,
    on_forecasts: OnForecasts | None = None,
) -> Payload:
    """Replay the batches by the options of the reader. What the reader learns of the log goes into `source`.

    `others` are the names of further columns by role, in the order of the batches: rivals, scores of other models.

    Raises
    ------
    InvalidInput : if a row or an option cannot be used, or nothing can be judged.
    UnknownMethod : if no preset has a name in the options.
    """
    options = reader.options
    contenders, notes = chosen(options.methods, keyed=keyed)
    variants = None
    if keyed:
        contenders, variants = with_key_variants(contenders)
    contenders, more = with_others(contenders, others or {}, asked=options.methods is not None)
    collector = Collector(options, contenders)

    def hand_on(chunk: Chunk, forecasts: dict[str, Vector], place: Ints) -> None:
        collector.add(chunk, forecasts, place)
        if on_forecasts is not None:
            on_forecasts(chunk, forecasts, place)

    replayed = replay_log(
        _some(reader, batches),
        contenders,
        bins=options.bins,
        warmup=options.warmup,
        keyed=keyed,
        seed=options.seed,
        streams=lambda: reader.streams,
        maturity=options.maturity,
        on_forecasts=hand_on,
    )
    reader.check_end()
    source.learn(reader, replayed.blocks, notes + more, "an outcome")
    replayed.key_variants = variants
    if keyed:
        source.keys = list(reader.names)
    return summarise(replayed, source, collector)


def run_classes(
    batches: Iterable[LogBatch], source: LogInfo, reader: ClassReader, *, on_forecasts: OnForecasts | None = None
) -> Payload:
    """The same for many classes.

    Raises
    ------
    InvalidInput : as above, or if an option is for two classes only.
    UnknownMethod : if there is no method of a name in the options.
    """
    options = reader.options
    if options.maturity is not None:
        raise InvalidInput("mature must not be given with many classes: labels are learnt as they arrive")
    if options.costs is not None:
        raise InvalidInput("threshold and costs must not be given with many classes: decisions are about two")
    methods = chosen_methods(options.methods)
    chunks = _some(reader, batches)
    first = next(chunks)
    K = first.scores.shape[1]
    sums = ClassIntervals(len(methods), K, options.bins, typical_delay(first))

    def hand_on(chunk: Chunk, forecasts: dict[str, Vector], place: Ints) -> None:
        sums.add_classes(np.array(list(forecasts.values())), columns_of(chunk.outcomes), place)
        if on_forecasts is not None:
            on_forecasts(chunk, forecasts, place)

    replayed = replay_classes(
        chain([first], chunks), methods, K=K, bins=options.bins, warmup=options.warmup, on_forecasts=hand_on
    )
    source.learn(reader, replayed.blocks, [_classes_in_words(reader.labels)], "a label")
    return summarise_classes(replayed, source, sums, reader.labels.names)


def _some(reader: RowReader, batches: Iterable[LogBatch]) -> Iterator[Chunk]:
    """The chunks of a log, one at least."""
    any_chunk = False
    for chunk in reader.chunks(batches):
        any_chunk = True
        yield chunk
    if not any_chunk:
        got = f"{reader.rows:,} that were all skipped" if reader.rows else "a header at most"
        raise InvalidInput(f"log must hold at least one row that can be used, got {got}")


def _classes_in_words(labels: Labels) -> str:
    shown = ", ".join(map(repr, labels.names[:12])) + (f" and {labels.count - 12:,} more" if labels.count > 12 else "")
    numbers = " The labels are column numbers, from 0 on." if labels.numbered else ""
    return f"The {labels.count:,} classes are {shown}.{numbers}"


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


# ---- the numbers of the report -----------------------------------------------------------------------------------


def summarise(replayed: Replayed, source: LogInfo, collected: Collector) -> Payload:
    """The contract with the report; see `calibeat.report.schema`."""
    labels = {runner.name: runner.contender.label for runner in replayed.runners}
    named = next((runner.name for runner in replayed.runners if runner.contender.preset == "auto"), None)
    compared = _compared(replayed, collected.sums, named)
    facts = replace(
        _facts(replayed, source, labels),
        ones=float(replayed.totals[1]),
        ignores_score=frozenset(runner.name for runner in replayed.runners if _ignores_score(runner)),
        raw_auc=auc(replayed.runners[0].tally)[0],
        ages=None if replayed.ages is None else notice_of_ages(replayed, replayed.ages, labels),
    )
    found = verdict(compared, facts)
    if replayed.key_variants is not None:
        found["sentences"].append(sentence_on_keys(compared, replayed.key_variants, labels))
    source.notes += sentences_on_periods(collected.periods.found, labels)
    made = _payload(
        replayed,
        source,
        compared,
        found,
        methods=[_method(runner) for runner in replayed.runners],
        data=_data(replayed, source),
        fitted_once="FPS",
        promises=certificates(replayed),
        deploy=answer(replayed, found),
    )
    for row, runner in zip(made["table"], replayed.runners, strict=True):
        _add_measures_of_two(row, replayed, runner)
    made["reliability"]["mass"] = {runner.name: mass_curve(runner.tally, replayed.bins) for runner in replayed.runners}
    made["trajectories"] = _trajectories(replayed)
    if source.keys is not None:
        made["keys"] = by_key(replayed, source.keys, found["method"], labels)
    made["decisions"] = decisions(replayed, collected.deciding, labels, found["method"], collected.sums.runs)
    made["history"] = collected.history.for_report()
    made["paging"] = collected.paging.for_report(found["method"], labels)
    made["periods"] = collected.periods.found
    return made


def summarise_classes(replayed: ClassReplayed, source: LogInfo, sums: ClassIntervals, names: list[str]) -> Payload:
    """The same for many classes, whose names are `names`."""
    labels = {runner.name: METHOD_LABELS[runner.name] for runner in replayed.runners}
    compared = _compared(replayed, sums, "multi" if "multi" in labels else None)
    found = class_verdict(replayed, compared, _facts(replayed, source, labels), names)
    about = METHOD_ABOUT | ({"multi": ABOUT_PAIR} if replayed.K == 2 else {})
    made = _payload(
        replayed,
        source,
        compared,
        found,
        methods=[
            {"name": each.name, "label": labels[each.name], "about": about[each.name], "seconds": each.seconds}
            for each in replayed.runners
        ],
        data=_data_of_classes(replayed, source),
        fitted_once="FTS",
        promises=class_certificates(replayed),
        deploy=class_answer(replayed, found, names, source.score_kind),
    )
    made["classes"] = class_section(replayed, names)
    return made


def _compared(replayed: Counted, sums: Intervals, named: str | None) -> Comparison:
    tallies = {runner.name: runner.tally for runner in replayed.runners}
    return Comparison(list(tallies), Bootstrap(tallies, replayed.blocks.used, replayed.blocks.length), sums, named)


def _facts(replayed: Counted, source: LogInfo, labels: dict[str, str]) -> Facts:
    """What a verdict has to know of any log."""
    return Facts(
        labels,
        replayed.blocks.judged,
        {runner.name: float(runner.tally.running[1]) for runner in replayed.runners},
        learnt=None if replayed.delays is None else replayed.delays.learnt,
        assumption=None if source.columns is None else source.columns.assumption,
    )


def _payload(
    replayed: Counted,
    source: LogInfo,
    compared: Comparison,
    found: Verdict,
    *,
    methods: list[MethodInfo],
    data: Data,
    fitted_once: str,
    promises: list[Certificate],
    deploy: AnswerInfo,
) -> Payload:
    """What every report has."""
    bootstrap, used = compared.bootstrap, replayed.blocks.used
    return {
        "schema": 1,
        "title": source.title,
        "command": source.command,
        "versions": versions(),
        "data": data,
        "verdict": found,
        "methods": methods,
        "table": [_row(replayed, runner, compared) for runner in replayed.runners],
        "intervals": {
            "quantile_of_best": compared.most,
            "run_events": compared.sums.runs,
            "sentence": INTERVALS,
            "legend": LEGEND,
        },
        "bootstrap": {
            "blocks": -(-used // bootstrap.run),
            "block_length": bootstrap.run_events,
            "resamples": RESAMPLES,
            "sentence": elsewhere_in_words(bootstrap, fitted_once),
        },
        "windows": windows(replayed),
        "reliability": reliability(replayed),
        "trajectories": {"by": "event", "x": [], "methods": {}},
        "keys": None,
        "delay": None if replayed.delays is None else delay(replayed, replayed.delays),
        "certificates": promises,
        "evalue": evalue(replayed),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "answer": deploy,
    }


def versions() -> dict[str, str]:
    """Of calibeat, and of what its numbers may depend on."""
    return {"calibeat": __version__, "python": platform.python_version(), "numpy": np.__version__}


def _ignores_score(runner: Runner) -> bool:
    """Whether the forecasts do not depend on the score, as those of F99."""
    method = runner.method
    return method is not None and method.features is None and method.calibeater == Hedging(start="first", groups=1)


def _method(runner: Runner) -> MethodInfo:
    contender = runner.contender
    return {"name": contender.name, "label": contender.label, "about": contender.about, "seconds": runner.seconds}


def _data(replayed: Replayed, source: LogInfo) -> Data:
    judged = max(1, replayed.blocks.judged)
    floor = f"In the log-loss an outcome counts as forecast with at least {LOSS_FLOOR:g}: a method may forecast 0 or 1."
    data = _any_data(replayed, source, "outcome", floor, _oddities(replayed, source.score_kind))
    data["base_rate"], data["mean_score"] = number(replayed.totals[1] / judged), number(replayed.totals[0] / judged)
    if replayed.maturity is not None:
        data["notes"].append(
            "Each outcome was learnt when it had arrived and had reached the age that was asked for. Until a stream "
            "had learnt its first outcome, every method forecast the raw score."
        )
    # What hedging says is one of a few points: forecasts of one rank are equal indeed.
    error = max(auc(runner.tally)[1] for runner in replayed.runners if not runner.contender.hedges)
    if error < 0.01:  # where it seems more, forecasts are equal indeed
        data["notes"].append(
            "For the AUC forecasts within 1/256 of one another (towards 0 and towards 1) count as equal: it is off by "
            f"at most {error:.1g}."
        )
    return data


def _data_of_classes(replayed: ClassReplayed, source: LogInfo) -> Data:
    floor = (
        f"A score below {EPS:g} counts as {EPS:g}, also in the log-loss. The Brier score is summed over the classes."
    )
    data = _any_data(replayed, source, "label", floor, [])
    count, confidence, hits = replayed.runners[0].tally.cells(replayed.blocks.used)[1:].sum(axis=(0, 1))
    data["base_rate"], data["mean_score"] = number(hits / count), number(confidence / count)
    if isinstance(source.columns, ClassColumns):
        names = source.columns.score_names
        more = f" and {len(names) - 8} more" if len(names) > 8 else ""
        scores: ColumnInfo = {"name": ", ".join(names[:8]) + more, "guessed": False}
        data["columns"] = {"scores": scores, **data["columns"]}
    return data


def _any_data(replayed: Counted, source: LogInfo, what: str, floor: str, odd: list[str]) -> Data:
    """What every report says of its log; `what` is learnt: an outcome, or a label."""
    blocks, one = replayed.blocks, f"{'an' if what == 'outcome' else 'a'} {what}"
    notes = [
        (
            f"Every forecast was made before its {what} was learnt. The first {blocks.warmup:,} events with {one} are "
            f"warm-up and are not scored. All methods are scored on the same {blocks.judged:,} events."
        ),
        floor,
        *([] if source.columns is None else source.columns.all_notes),
        *source.notes,
        *odd,
    ]
    if replayed.delays is not None:
        notes.append(
            f"{one.capitalize()} that had not arrived when the log ended was never learnt. Its event is scored if the "
            f"log holds the {what}. With late {what}s an e-value is valid if neither delays nor later scores depend on "
            f"{what}s that are still under way."
        )
    return {
        "source": source.names,
        "rows": source.rows,
        "used": replayed.events,
        "warmup": min(blocks.warmup, blocks.labelled),
        "judged": blocks.judged,
        "base_rate": None,
        "mean_score": None,
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


def _row(replayed: Counted, runner: CountedMethod, compared: Comparison) -> LeaderboardRow:
    used, tally, raw = replayed.blocks.used, runner.tally, replayed.runners[0].name
    measured = overall(tally.cells(used)[1:], tally.sums(used)[1:])
    is_raw = runner.name == raw
    return {
        "method": runner.name,
        "log_loss": number(measured["log_loss"]),
        "brier": number(measured["brier"]),
        "ce": number(measured["ce"]),
        "shp": None,
        "refinement": None,
        "accuracy": number(measured["accuracy"]),
        "auc": None,
        "ce_luck": number(compared.luck(runner.name)),
        "vs_raw": None if is_raw else differences(compared, runner.name, raw),
        "vs_best_other": best_other(replayed, runner.name, compared),
        "elsewhere": None if is_raw else elsewhere(compared, runner.name),
        "regret": None,
        "log_e_value": None if is_raw else number(float(tally.running[0])),
        "log_e_max": None if is_raw else number(float(tally.running[1])),
    }


def _add_measures_of_two(row: LeaderboardRow, replayed: Replayed, runner: Runner) -> None:
    """The measures that only two classes have."""
    used, tally = replayed.blocks.used, runner.tally
    measured = overall(tally.cells(used)[1:], tally.sums(used)[1:])
    best = replayed.scores.least_loss(runner.method)
    row["shp"], row["refinement"] = number(measured["shp"]), number(measured["refinement"])
    row["auc"] = number(auc(tally)[0])
    row["regret"] = None if best is None else number(float(tally.sums(used)[1:, 0].sum()) - best[0])


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
