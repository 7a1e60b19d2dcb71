"""The whole of a backtest, which `calibeat.backtest` and the command share: batches in, the report's numbers out."""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain

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
    Data,
    LeaderboardRow,
    MethodInfo,
    OfferedInfo,
    Payload,
    SkippedInfo,
    Trajectories,
    Trajectory,
)

from .judge.by_key import by_key, sentence_on_keys
from .judge.certificates import certificates
from .judge.classes import Stretches, class_section, label_counts
from .judge.decisions import Deciding, decisions
from .judge.delays import delay, notice_of_ages
from .judge.deployment import HowReplayed
from .judge.history import DataHistory, Periods, sentences_on_periods
from .judge.intervals import RESAMPLES, Bootstrap, Intervals
from .judge.later import FirstEvents
from .judge.measures import Ranks, auc, iso, number, overall, ranks_of_classes, reliability, windows
from .judge.paging import Trails
from .judge.segments import segment_section, segments_of
from .judge.verdict import (
    INTERVALS,
    LEGEND,
    Comparison,
    Counting,
    Facts,
    answer,
    best_other,
    bins_off,
    differences,
    elsewhere,
    elsewhere_in_words,
    evalue,
    verdict,
)
from .options import Options
from .read.files import Columns, offered, read_log
from .read.named import Given
from .read.rows import Chunk, LogBatch, LogColumns, Origin, RowReader
from .replay.contenders import (
    Contender,
    GroupedReplay,
    chosen,
    with_auto,
    with_base_rate,
    with_groups,
    with_key_variants,
    with_others,
)
from .replay.engine import Replayed, Runner, replay_log
from .replay.tally import Blocks, Issued, judged
from .result import BacktestResult

# ---- from Python -------------------------------------------------------------------------------------------------


def run_arrays(table: LogColumns, options: Options, *, keep_forecasts: bool = False) -> BacktestResult:
    """`calibeat.backtest` of columns."""
    columns, kept = table.columns, _Kept()
    options.check_times(columns["times"], columns["outcome_times"])
    reader = RowReader(options, trace=keep_forecasts, classes=table.classes, groups=table.groups)
    more = [name for name, column in columns.items() if name not in {"scores", "outcomes"} and column is not None]
    more += [] if table.groups is None else ["groups"]
    source = LogInfo.of_call(options, "scores", "outcomes" if table.classes is None else "labels", *more)
    source.offered = table.offered
    payload = run(
        table.batches(options),
        source,
        reader,
        keyed=columns["keys"] is not None,
        others=table.names,
        on_forecasts=kept.keep if keep_forecasts else None,
    )
    return BacktestResult(payload, kept.by_row(reader.rows))


def run_files(log: Given, options: Options, *, keep_forecasts: bool = False) -> BacktestResult:
    """`calibeat.backtest` of a log on disk: as `calibeat backtest` has it."""
    kept = _Kept()
    with _in_python():
        files, columns, others = log.files(options)
        reader = RowReader(options, trace=keep_forecasts, classes=columns.classes, groups=columns.groups)
        source = LogInfo(
            options.title,
            [file.name for file in files],
            score_kind=options.score_kind,
            columns=columns,
            command=options.call(repr(log.path)),
        )
        payload = run(
            kept.counted(read_log(files, columns, options, reader, lambda _: None)),
            source,
            reader,
            keyed=log.named["key"] is not None,
            others=others,
            on_forecasts=kept.keep if keep_forecasts else None,
        )
        if columns.groups is None and columns.classes is None and (found := offered(files, columns)):
            payload["offered"] = offer(found, options)
        payload["verdict"]["caveats"] = [_as_arguments(caveat) for caveat in payload["verdict"]["caveats"]]
        payload["answer"]["sure"] = _as_arguments(payload["answer"]["sure"])
    return BacktestResult(payload, kept.by_row(reader.rows))


@contextmanager
def _in_python() -> Iterator[None]:
    """Errors of the reader name options of the command; in Python they are arguments."""
    try:
        yield
    except InvalidInput as error:
        raise type(error)(_as_arguments(str(error))) from error


def _as_arguments(text: str) -> str:
    """
    >>> _as_arguments("say --time-format, or --time none")
    "say time_format=, or time='none'"
    """
    text = text.replace("--scores ", "--score ")
    said = re.sub(r"--([a-z-]+) none\b", lambda option: option[1].replace("-", "_") + "='none'", text)
    return re.sub(r"--([a-z]+(?:-[a-z]+)*)", lambda option: option[1].replace("-", "_") + "=", said)


class _Kept:
    """The forecasts of all events, on request."""

    def __init__(self) -> None:
        self._parts: list[tuple[Origin, dict[str, Vector]]] = []
        self._first = np.zeros(1, dtype=np.int64)  # row of each file among all rows, and the end of the last

    def counted(self, batches: Iterable[LogBatch]) -> Iterator[LogBatch]:
        """The batches of files, whose rows are counted from 1 in each."""
        for batch in batches:
            while len(self._first) < batch.file + 2:
                self._first = np.append(self._first, self._first[-1])
            self._first[-1] = self._first[-2] + batch.rows[-1]
            yield batch

    def keep(self, chunk: Chunk, forecasts: dict[str, Vector], _: Ints) -> None:
        if chunk.trace is not None:
            self._parts.append((chunk.trace, {name: values.copy() for name, values in forecasts.items()}))

    def by_row(self, rows: int) -> dict[str, Vector]:
        """Each forecast at the row of its event; NaN where a row was skipped."""
        found: dict[str, Vector] = {}
        for trace, by_method in self._parts:
            at = trace.rows if len(self._first) == 1 else self._first[trace.files] + trace.rows - 1
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
    classes: list[str] | None = None  # the names of many
    command: str | None = None
    offered: list[str] = field(default_factory=list)  # columns by which events could be grouped
    past: HowReplayed = field(default_factory=HowReplayed)  # how it was replayed

    @classmethod
    def of_call(cls, options: Options, scores: str, outcomes: str, *more: str) -> LogInfo:
        """Of columns from Python, by the names of the arguments that hold them."""
        call = options.call(scores, outcomes, *(f"{name}={name}" for name in more))
        return cls(options.title, ["arrays"], score_kind=options.score_kind, command=call)

    def learn(self, reader: RowReader, blocks: Blocks, notes: list[str]) -> None:
        """What the reader knows once the log has ended.

        Raises
        ------
        InvalidInput : if there is nothing to judge.
        """
        what = reader.what
        if not blocks.labelled:
            raise InvalidInput(f"log must hold at least one {what.split()[1]}, got none in {reader.rows:,} rows")
        if not blocks.judged:
            raise InvalidInput(
                f"warmup must be less than the {blocks.labelled:,} events that have {what}, got {blocks.warmup:,}"
            )
        self.rows, self.skipped = reader.rows, list(reader.skipped)
        self.classes = None if reader.classes is None else reader.classes.names
        self.notes += ([] if reader.classes is None else [reader.classes.note]) + notes + reader.notes


def run(
    batches: Iterable[LogBatch],
    source: LogInfo,
    reader: RowReader,
    *,
    keyed: bool,
    others: Mapping[str, str] | None = None,
    on_forecasts: Callable[[Chunk, dict[str, Vector], Ints], None] | None = None,
) -> Payload:
    """Replay the batches by the options of the reader. What the reader learns of the log goes into `source`.

    `others` are the names of further columns by role, in the order of the batches: rivals, scores of other models.

    Raises
    ------
    InvalidInput : if a row or an option cannot be used, or nothing can be judged.
    UnknownMethod : if no preset has a name in the options.
    """
    options, chunks, numbers = reader.options, _some(reader, batches), 1
    if reader.classes is not None:
        if options.costs is not None:
            raise InvalidInput("threshold and costs must not be given with many classes: decisions are about two")
        chunks = chain([next(chunks)], chunks)  # which tells how many classes there are
        numbers = reader.classes.count
    contenders, notes = chosen(options.methods, keyed=keyed, numbers=numbers)
    variants, groups = None, reader.groups
    if groups is not None:
        contenders = with_auto(contenders)
    if keyed:
        contenders, variants = with_key_variants(contenders)
    if groups is not None:
        contenders = with_groups(contenders, groups.groups)
    contenders, more = with_others(contenders, others or {}, asked=options.methods is not None)
    contenders = with_base_rate(contenders, numbers)
    hidden = {each.name for each in contenders if each.hidden}
    collector = Collector(options, contenders)

    def hand_on(chunk: Chunk, forecasts: dict[str, Vector], place: Ints, issued: Issued) -> None:
        shown = {name: values for name, values in forecasts.items() if name not in hidden}
        collector.add(chunk, forecasts, shown, place, issued)
        if on_forecasts is not None:
            on_forecasts(chunk, shown, place)

    replayed = replay_log(
        chunks,
        contenders,
        bins=options.bins,
        warmup=options.warmup,
        keyed=keyed,
        seed=options.seed,
        names=reader.names,
        maturity=options.maturity,
        on_forecasts=hand_on,
    )
    reader.check_end()
    source.learn(reader, replayed.blocks, notes + more)
    missing, timed = replayed.never > 0, reader.has_outcome_times
    unsettled = source.columns is not None and source.columns.unsettled is not None
    source.past = HowReplayed.of(options, keyed=keyed, missing=missing, outcome_times=timed, unsettled=unsettled)
    replayed.key_variants = variants
    if keyed:
        source.keys = list(reader.names)
    made = summarise(replayed, source, collector)
    _add_segments(made, replayed, source, collector, reader)
    _add_later(made, replayed, collector, options.seed)
    return made


def _add_later(made: Payload, replayed: Replayed, collected: Collector, seed: int) -> None:
    """What the choice would be worth if outcomes came later, where nobody knows when they came."""
    best = next(each for each in replayed.runners if each.name == made["verdict"]["method"])
    if best is not replayed.runners[0] and made["verdict"]["confidence"] != "unclear":  # no percentage before it is
        later = collected.first_events.replay(replayed, best, seed)
        if later is not None:
            made["later"] = later


def _add_segments(made: Payload, replayed: Replayed, source: LogInfo, collected: Collector, reader: RowReader) -> None:
    """What was found in the segments of the groups; or, without groups, columns that could be some."""
    if reader.groups is not None and collected.segments is not None:
        grouped = next(each.replay for each in replayed.runners if isinstance(each.replay, GroupedReplay))
        made["segments"] = segment_section(collected.segments, reader.groups, grouped)
    elif source.offered:
        made["offered"] = offer(source.offered, reader.options)


def offer(columns: list[str], options: Options) -> OfferedInfo:
    """Columns by which events could be grouped, and how to ask for it."""
    listed = ", ".join(columns)
    how = options.how(f"--groups {','.join(columns)}", f"groups={columns!r}")
    sentence = f"Segments can be judged: {listed} ({how}; only what is known when the score is issued)."
    return {"columns": columns, "sentence": sentence}


def _some(reader: RowReader, batches: Iterable[LogBatch]) -> Iterator[Chunk]:
    """The chunks of a log, one at least."""
    any_chunk = False
    for chunk in reader.chunks(batches):
        any_chunk = True
        yield chunk
    if not any_chunk:
        got = f"{reader.rows:,} that were all skipped" if reader.rows else "a header at most"
        raise InvalidInput(f"log must hold at least one row that can be used, got {got}")


class Collector:
    """Sees each chunk with the forecasts of all methods, the raw score first. Sums only: memory is constant."""

    def __init__(self, options: Options, contenders: Sequence[Contender]) -> None:
        self._counting = Counting(options.bins)
        self.deciding = None if options.costs is None else Deciding(options.costs)
        self.history, self.periods = DataHistory(), Periods(options)
        self.paging = Trails(named=next((each.name for each in contenders if each.is_default), None))
        self.stretches: Stretches | None = None  # of many classes
        self.segments = segments_of(contenders, options.maturity)  # of groups
        self.first_events = FirstEvents()

    def add(
        self,
        chunk: Chunk,
        every: dict[str, Vector],
        forecasts: dict[str, Vector],
        place: Ints,
        issued: Issued | None = None,
    ) -> None:
        """Count a chunk, in threads: compiled kernels release the interpreter.

        `every` are also those not shown; `issued` are the same and what they lost.
        """

        def count() -> None:
            leader = self._counting.add(chunk, every, place, issued)
            if self.deciding is not None:
                self.deciding.add(chunk, forecasts, place, leader)

        raw = judged(chunk.scores, chunk.outcomes)
        tasks: list[Callable[[], None]] = [
            count,
            partial(self.history.add, chunk, raw),
            partial(self.periods.add, chunk, forecasts, place),
        ]
        if chunk.numbers > 1:
            self.stretches = self.stretches or Stretches()
            tasks.append(partial(self.stretches.add, chunk, forecasts))
        if self.segments is not None:
            tasks.append(partial(self.segments.add, chunk, forecasts, place))
        self.first_events.add(chunk, place)
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
    runners, used, sums = replayed.runners, replayed.blocks.used, collected.sums
    tallies = {runner.name: runner.tally for runner in runners}
    bootstrap = Bootstrap(tallies, used, replayed.blocks.length)
    named = next((runner.name for runner in runners if runner.contender.is_default), None)
    compared = Comparison(list(tallies), bootstrap, sums, named, blind=[r.name for r in runners if _is_blind(r)])
    base = next(runner.name for runner in runners if runner.contender.is_base_rate)
    runners = [runner for runner in runners if not runner.contender.hidden]
    replayed = replace(replayed, runners=runners)
    labels = {runner.name: runner.contender.label for runner in runners}
    found = verdict(compared, _facts(replayed, source, labels, base))
    chosen_one = next(runner for runner in runners if runner.name == found["method"])
    found["caveats"] += bins_off(chosen_one, used, many=source.classes is not None, is_raw=chosen_one is runners[0])
    if replayed.key_variants is not None:
        found["sentences"].append(sentence_on_keys(compared, replayed.key_variants, labels))
    source.notes += sentences_on_periods(collected.periods.found, labels)
    made: Payload = {
        "schema": 1,
        "title": source.title,
        "command": source.command,
        "versions": versions(),
        "data": _data(replayed, source),
        "verdict": found,
        "methods": [_method(runner) for runner in runners],
        "table": [_row(replayed, runner, compared) for runner in runners],
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
            "sentence": elsewhere_in_words(bootstrap, "FPS" if source.classes is None else "FTS"),
        },
        "windows": windows(replayed),
        "reliability": reliability(replayed),
        "trajectories": _trajectories(replayed),
        "keys": None if source.keys is None else by_key(replayed, source.keys, found["method"], labels),
        "delay": None if replayed.delays is None else delay(replayed, replayed.delays),
        "certificates": certificates(replayed),
        "evalue": evalue(replayed),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "answer": answer(replayed, found, source.classes, source.past),
        "history": collected.history.for_report(),
        "paging": collected.paging.for_report(found["method"], labels),
        "periods": collected.periods.found,
    }
    if source.classes is None:
        made["decisions"] = decisions(replayed, collected.deciding, labels, found["method"], sums.runs)
    elif collected.stretches is not None:
        made["classes"] = class_section(replayed, collected.stretches, source.classes)
    return made


def _facts(replayed: Replayed, source: LogInfo, labels: dict[str, str], base: str) -> Facts:
    """What the verdict has to know of the log."""
    runners = replayed.runners
    facts = Facts(
        labels,
        replayed.blocks.judged,
        {runner.name: float(runner.tally.running[1]) for runner in runners},
        base=base,
        learnt=None if replayed.delays is None else replayed.delays.learnt,
        assumption=None if source.columns is None else source.columns.assumption,
        unsettled=None if source.columns is None else source.columns.unsettled,
    )
    if source.classes is not None:
        seen = np.flatnonzero(label_counts(replayed))
        only = source.classes[seen[0]] if len(seen) == 1 else None
        return replace(facts, only=only, ranks=ranks_of_classes(runners[0].tally.by_class))
    ones = float(replayed.totals[1])
    return replace(
        facts,
        ones=ones,
        ranks=Ranks.of(auc(runners[0].tally)[0], facts.judged, ones),
        ages=None if replayed.ages is None else notice_of_ages(replayed, replayed.ages, labels),
    )


def versions() -> dict[str, str]:
    """Of calibeat, and of what its numbers may depend on."""
    return {"calibeat": __version__, "python": platform.python_version(), "numpy": np.__version__}


def _is_blind(runner: Runner) -> bool:
    """Whether the forecasts do not depend on the score: the base rate, and F99."""
    method = runner.method
    foster = Hedging(start="first", groups=1)
    is_foster = isinstance(method, Method) and method.features is None and method.calibeater == foster
    return is_foster or runner.contender.is_base_rate


def _method(runner: Runner) -> MethodInfo:
    contender = runner.contender
    return {"name": contender.name, "label": contender.label, "about": contender.about, "seconds": runner.seconds}


def _data(replayed: Replayed, source: LogInfo) -> Data:
    blocks, many = replayed.blocks, source.classes is not None
    what, one = ("label", "a label") if many else ("outcome", "an outcome")
    floor = (
        f"A score below {EPS:g} counts as {EPS:g}, also in the log-loss. The Brier score is summed over the classes."
        if many
        else "In the log-loss an outcome counts as forecast with at least "
        f"{LOSS_FLOOR:g}: a method may forecast 0 or 1."
    )
    notes = [
        (
            f"Every forecast was made before its {what} was learnt. The first {blocks.warmup:,} events with {one} are "
            f"warm-up and are not scored. All methods are scored on the same {blocks.judged:,} events."
        ),
        floor,
        *([] if source.columns is None else source.columns.all_notes),
        *source.notes,
        *([] if many else _oddities(replayed, source.score_kind)),
    ]
    if replayed.delays is not None:
        notes.append(
            f"{one.capitalize()} that had not arrived when the log ended was never learnt. Its event is scored if the "
            f"log holds the {what}. With late {what}s an e-value is valid if neither delays nor later scores depend on "
            f"{what}s that are still under way."
        )
    if replayed.maturity is not None:
        notes.append(
            f"Each {what} was learnt when it had arrived and had reached the age that was asked for. Until a stream "
            f"had learnt its first {what}, every method forecast the raw score."
        )
    if not many:
        notes += _note_on_auc(replayed)
    return {
        "source": source.names,
        "rows": source.rows,
        "used": replayed.events,
        "warmup": min(blocks.warmup, blocks.labelled),
        "judged": blocks.judged,
        "base_rate": number(replayed.totals[1] / max(1, blocks.judged)),
        "mean_score": number(replayed.totals[0] / max(1, blocks.judged)),
        "span": None if replayed.span is None else [iso(t) for t in replayed.span],
        "skipped": source.skipped,
        "columns": {} if source.columns is None else source.columns.shown,
        "keys": None if source.keys is None else len(source.keys),
        "score_kind": source.score_kind,
        "notes": notes,
    }


def _note_on_auc(replayed: Replayed) -> list[str]:
    # What hedging says is one of a few points: forecasts of one rank are equal indeed.
    error = max(auc(runner.tally)[1] for runner in replayed.runners if not runner.contender.hedges)
    if not error < 0.01:  # where it seems more, forecasts are equal indeed
        return []
    equal = "For the AUC forecasts within 1/256 of one another (towards 0 and towards 1) count as equal"
    return [f"{equal}: it is off by at most {error:.1g}."]


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
    used, tally, raw = replayed.blocks.used, runner.tally, replayed.runners[0].name
    measured = overall(tally.cells(used)[1:], tally.sums(used)[1:])
    is_raw, two = runner.name == raw, replayed.numbers == 1
    best = replayed.scores.least_loss(runner.method) if two and isinstance(runner.method, Method) else None
    return {
        "method": runner.name,
        "log_loss": number(measured["log_loss"]),
        "brier": number(measured["brier"]),
        "ce": number(measured["ce"]),
        "shp": number(measured["shp"]) if two else None,
        "refinement": number(measured["refinement"]) if two else None,
        "accuracy": number(measured["accuracy"]),
        "auc": number(auc(tally)[0]) if two else None,
        "ce_luck": number(compared.luck(runner.name)),
        "vs_raw": None if is_raw else differences(compared, runner.name, raw),
        "vs_best_other": best_other(replayed, runner.name, compared),
        "elsewhere": None if is_raw else elsewhere(compared, runner.name),
        "regret": None if best is None else number(float(tally.sums(used)[1:, 0].sum()) - best[0]),
        "log_e_value": None if is_raw else number(float(tally.running[0])),
        "log_e_max": None if is_raw else number(float(tally.running[1])),
    }


def _trajectories(replayed: Replayed) -> Trajectories:
    if replayed.numbers > 1:  # see `judge.classes`
        return {"by": "event", "x": [], "methods": {}}
    timed = bool(replayed.mark_times)
    methods = {}
    for runner in replayed.runners:
        method = runner.method
        if not isinstance(method, Method) or method.learner is None or isinstance(method.features, Histogram):
            continue
        if runner.trail:
            methods[runner.name] = _trajectory(method, runner.trail)
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
