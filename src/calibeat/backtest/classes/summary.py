"""From what a replay of many classes left behind to the numbers of the report."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np

from calibeat import bounds
from calibeat._util.types import Ints, Vector
from calibeat.backtest.judge.bootstrap import RESAMPLES, Bootstrap
from calibeat.backtest.judge.delays import delay
from calibeat.backtest.judge.measures import curve_of, iso, number, overall, reliability, windows
from calibeat.backtest.judge.summary import LogInfo, best_other, elsewhere_in_words, evalue, versions
from calibeat.backtest.judge.verdict import INTERVALS, LEGEND, Comparison, Facts, differences, elsewhere, verdict
from calibeat.backtest.read.guess import Columns
from calibeat.backtest.replay.tally import Tally
from calibeat.core.auto import EPS
from calibeat.report.schema import Certificate, ClassesInfo, ColumnInfo, Data, LeaderboardRow, Payload, Priors, Verdict

from .answer import answer
from .methods import ABOUT, LABELS, PAIR, RAW
from .read import ClassColumns
from .replay import FORECASTS, SCORES, ClassReplayed, ClassRunner
from .replay import LABELS as CAME

MOST_CLASSES = 24  # with panels of their own
MOST_POINTS = 96  # of a line over time ...
LABELS_IN_POINT = 50  # ... each of at least so many labels
LEAST_PRIOR = 1e-12


def summarise(replayed: ClassReplayed, source: LogInfo, names: list[str]) -> Payload:
    """The contract with the report; see `calibeat.report.schema`. `names` are those of the classes."""
    blocks, used = replayed.blocks, replayed.blocks.used
    tallies: dict[str, Tally] = {runner.name: runner.tally for runner in replayed.runners}
    labels = {name: LABELS[name] for name in tallies}
    bootstrap = Bootstrap(tallies, used, blocks.length)
    compared = Comparison(list(labels), bootstrap, replayed.sums, "multi" if "multi" in labels else None)
    facts = Facts(
        labels,
        blocks.judged,
        {name: float(tally.running[1]) for name, tally in tallies.items()},
        learnt=None if replayed.delays is None else replayed.delays.learnt,
        assumption=None if source.columns is None else source.columns.assumption,
    )
    found = _verdict(replayed, compared, facts, names)
    return {
        "schema": 1,
        "title": source.title,
        "command": source.command,
        "versions": versions(),
        "data": _data(replayed, source),
        "verdict": found,
        "methods": [
            {
                "name": runner.name,
                "label": labels[runner.name],
                "about": PAIR if runner.name == "multi" and replayed.K == 2 else ABOUT[runner.name],
                "seconds": runner.seconds,
            }
            for runner in replayed.runners
        ],
        "table": [_row(replayed, runner, compared) for runner in replayed.runners],
        "intervals": {
            "quantile_of_best": compared.most,
            "run_events": replayed.sums.runs,
            "sentence": INTERVALS,
            "legend": LEGEND,
        },
        "bootstrap": {
            "blocks": -(-used // bootstrap.run),
            "block_length": bootstrap.run_events,
            "resamples": RESAMPLES,
            "sentence": elsewhere_in_words(bootstrap, "FTS"),
        },
        "windows": windows(replayed),
        "reliability": reliability(replayed),
        "trajectories": {"by": "event", "x": [], "methods": {}},
        "keys": None,
        "delay": None if replayed.delays is None else delay(replayed, replayed.delays),
        "certificates": _certificates(replayed),
        "evalue": evalue(replayed),
        "answer": answer(replayed, found, names, source.score_kind),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "classes": _classes(replayed, names),
    }


def _verdict(replayed: ClassReplayed, compared: Comparison, facts: Facts, names: list[str]) -> Verdict:
    seen = np.flatnonzero(replayed.counts)
    if len(seen) == 1:
        only = (
            f"Every judged label is {names[seen[0]]!r}. A method that always forecasts it looks perfect. It has not "
            "learnt when another class comes: a log with several is needed."
        )
        headline = "One class only: keep the raw scores"
        return {"method": RAW, "headline": headline, "sentences": [only], "confidence": "unclear"}
    return verdict(compared, facts)


def _row(replayed: ClassReplayed, runner: ClassRunner, compared: Comparison) -> LeaderboardRow:
    used, tally = replayed.blocks.used, runner.tally
    measured = overall(tally.cells(used)[1:], tally.sums(used)[1:])
    is_raw = runner.name == RAW
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
        "vs_raw": None if is_raw else differences(compared, runner.name, RAW),
        "vs_best_other": best_other(replayed, runner.name, compared),
        "elsewhere": None if is_raw else elsewhere(compared, runner.name),
        "regret": None,
        "log_e_value": None if is_raw else number(float(tally.running[0])),
        "log_e_max": None if is_raw else number(float(tally.running[1])),
    }


def _data(replayed: ClassReplayed, source: LogInfo) -> Data:
    blocks = replayed.blocks
    raw = replayed.runners[0].tally.cells(blocks.used)[1:].sum(axis=(0, 1))
    notes = [
        (
            f"Every forecast was made before its label was learnt. The first {blocks.warmup:,} events with a label are "
            f"warm-up and are not scored. All methods are scored on the same {blocks.judged:,} events."
        ),
        f"A score below {EPS:g} counts as {EPS:g}, also in the log-loss. The Brier score is summed over the classes.",
        *([] if source.columns is None else source.columns.all_notes),
        *source.notes,
    ]
    if replayed.delays is not None:
        notes.append(
            "A label that had not arrived when the log ended was never learnt. Its event is scored if the log holds "
            "the label. With late labels an e-value is valid if neither delays nor later scores depend on labels that "
            "are still under way."
        )
    return {
        "source": source.names,
        "rows": source.rows,
        "used": replayed.events,
        "warmup": min(blocks.warmup, blocks.labelled),
        "judged": blocks.judged,
        "base_rate": number(raw[2] / raw[0]),
        "mean_score": number(raw[1] / raw[0]),
        "span": None if replayed.span is None else [iso(t) for t in replayed.span],
        "skipped": source.skipped,
        "columns": {} if source.columns is None else {"scores": _named(source.columns), **source.columns.chosen},
        "keys": None,
        "score_kind": source.score_kind,
        "notes": notes,
    }


def _named(columns: Columns) -> ColumnInfo:
    """The columns of the scores, by name."""
    names = columns.score_names if isinstance(columns, ClassColumns) else []
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return {"name": ", ".join(names[:8]) + more, "guessed": False}


# ---- classes -----------------------------------------------------------------------------------------------------


def _classes(replayed: ClassReplayed, names: list[str]) -> ClassesInfo:
    shown = np.argsort(-replayed.counts, kind="stable")[:MOST_CLASSES]
    raw = replayed.stretches.sums[SCORES].sum(axis=0)
    labelled = max(1, replayed.blocks.labelled)
    return {
        "total": replayed.K,
        "names": [names[k] for k in shown],
        "count": [int(replayed.counts[k]) for k in shown],
        "mean_score": [number(raw[k] / labelled) for k in shown],
        "methods": {
            runner.name: {
                "classwise_ce": number(runner.tally.classwise_error),
                "ce": [number(runner.tally.errors[k]) for k in shown],
                "mean": [number(v) for v in _means(runner)[shown]],
                "curves": [curve_of(runner.tally.by_class[k]) for k in shown],
            }
            for runner in replayed.runners
        },
        "priors": _priors(replayed, shown.tolist()),
    }


def _means(runner: ClassRunner) -> Vector:
    """The mean forecast of each class."""
    counts, forecasts, _ = np.moveaxis(runner.tally.by_class, 2, 0)
    return np.asarray(forecasts.sum(axis=1) / np.maximum(counts.sum(axis=1), 1.0))


def _priors(replayed: ClassReplayed, shown: list[int]) -> Priors:
    stretches = replayed.stretches
    points = max(1, min(MOST_POINTS, stretches.used, replayed.blocks.labelled // LABELS_IN_POINT))
    starts = np.arange(0, stretches.used, -(-stretches.used // points))
    events = np.add.reduceat(stretches.sums[CAME, : stretches.used].sum(axis=1), starts)
    some = np.where(events > 0.0, events, np.nan)

    def shares(row: int) -> list[list[float | None]]:
        means = np.add.reduceat(stretches.sums[row, : stretches.used][:, shown], starts, axis=0) / some[:, None]
        return [[number(v) for v in column] for column in means.T]

    timed = replayed.span is not None
    begin = [stretches.begin[at] for at in starts]
    x: list[str] | list[int] = [iso(t) for t in begin] if timed else begin
    return {
        "by": "time" if timed else "event",
        "x": x,
        "happened": shares(CAME),
        "scores": shares(SCORES),
        "forecasts": {runner.name: shares(FORECASTS + at) for at, runner in enumerate(replayed.runners)},
        "times": _times_as_common(replayed, shown, starts),
    }


def _times_as_common(replayed: ClassReplayed, shown: list[int], at: Ints) -> list[list[float | None]] | None:
    """How many times as common each class is as the scores assume: exp(bias), scaled so that priors sum to one."""
    trail = next((runner.replay.trail for runner in replayed.runners if runner.name == "multi"), [])
    if not trail:
        return None
    assumed = replayed.stretches.sums[SCORES].sum(axis=0)
    assumed = np.maximum(assumed / max(1.0, assumed.sum()), LEAST_PRIOR)
    bias = np.array(trail)[at]
    times = np.exp(bias - bias.max(axis=1, keepdims=True))
    times /= (times @ assumed)[:, None]
    return [[number(v) for v in times[:, k]] for k in shown]


# ---- guarantees --------------------------------------------------------------------------------------------------


def _certificates(replayed: ClassReplayed) -> list[Certificate]:
    """The two theorems of MULTI, where it was replayed; two classes are AUTO's, whose theorem is about OPS."""
    runners = {runner.name: runner for runner in replayed.runners}
    T, K = replayed.blocks.labelled, replayed.K
    if "multi" not in runners or K == 2 or T < 10:
        return []
    late = replayed.delays is not None or replayed.never > 0
    applies = (
        "It is proved for labels that arrive at once; here some were late, and nothing is promised."
        if late
        else "It holds for any sequence of labels that arrive at once, as here."
    )
    listed: list[Certificate] = []
    for other, bound, statement in (
        ("ots", bounds.multi_guard(K, T), "MULTI loses at most ln 2 + (1/4) ln T + 0.204 + K T 1e-7 nats to OTS"),
        (RAW, bounds.multi_loss(K, T), "MULTI loses at most ln 72 + (5/4) ln T + 1.14 + (K+1) T 1e-7 nats to raw"),
    ):
        if other in runners:
            observed = _total(replayed, runners["multi"]) - _total(replayed, runners[other])
            listed.append(
                {
                    "method": "multi",
                    "what": "log-loss",
                    "statement": f"{statement}, over all {T:,} labels, warm-up included (docs/multiclass.md)",
                    "bound": bound,
                    "observed": number(observed),
                    "holds": observed <= bound,
                    "promised": not late,
                    "in_expectation": False,
                    "applies": applies,
                }
            )
    return listed


def _total(replayed: ClassReplayed, runner: ClassRunner) -> float:
    """The log-loss of all events without the clip."""
    return float(runner.tally.sums(replayed.blocks.used)[:, 0].sum() + runner.tally.running[2])
