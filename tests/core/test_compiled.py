"""The compiled core has the bits of the same files run as Python.

While a `Comparison` is in force, every entry that the library calls runs twice: as Python on a copy of its arguments,
then compiled on the arguments themselves. Result and arrays must be equal to the last bit. So what is compared are the
calls that people's programs make. Which entries each test must have compared is listed, and together that is all.
"""

from __future__ import annotations

import re
import struct
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import class_logs
import group_streams
import multi_streams
import numpy as np
import pytest
import several_streams
from banks import as_strings
from conformance import delays
from streams import STREAMS, drifting, extremes, variants
from test_all_hosts_agree import KINDS, sequences
from twice import called_twice

import calibeat
from calibeat import AUTO, HOPS, OPS, TOPS, Bank, Calibrator, Hedging, Method, Monitor, Tracking
from calibeat.backtest.judge import segments
from calibeat.backtest.judge.intervals import Intervals
from calibeat.backtest.replay.tally import Counted, Tally
from calibeat.core import algebra, kernel, layout, limits, loops, randomness, several, subset, vector
from calibeat.core.features import Scaling
from calibeat.core.stats import STATS
from calibeat.core.units import UNITS
from calibeat.core.weights import Lesson, Outcome
from calibeat.hosts import keys as keys_of_banks
from calibeat.hosts import pool
from calibeat.hosts.groups import Groups
from calibeat.monitor.notices import Notices
from calibeat.service.model import Model, StreamBytes
from calibeat.service.rollups import Rollups
from calibeat.service.shape import Shape
from calibeat.service.store.types import SUMS

PACKAGE = Path(calibeat.__file__).parent
FILES = [file for file in PACKAGE.rglob("*.py") if re.search(r"^@(entry|loop)$", file.read_text(), re.MULTILINE)]
for file in FILES:  # an entry is known when its file is imported
    import_module(".".join(["calibeat", *file.relative_to(PACKAGE).with_suffix("").parts]))

ENTRIES = {entry.__name__: entry for entry in subset._PLAIN}
COMPILED = type(loops.run)


# ---- what is compared ------------------------------------------------------------------------------------------------


class Comparison:
    """Runs entries twice, and counts which of them."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._thread = threading.local()

    def call(self, entry: Callable[..., Any], *arguments: Any) -> Any:
        """The result of an entry, which is that of its Python."""
        if getattr(self._thread, "is_inside", False):  # one entry has called another: all of it is Python
            return subset.plain(entry)(*arguments)
        result = called_twice(partial(self._plainly, entry), entry, *arguments)
        self.names.add(entry.__name__)
        return result

    def _plainly(self, entry: Callable[..., Any], *arguments: Any) -> Any:
        self._thread.is_inside = True
        try:
            return subset.plain(entry)(*arguments)
        finally:
            self._thread.is_inside = False


@pytest.fixture
def comparison(monkeypatch: pytest.MonkeyPatch) -> Comparison:
    """Every entry, under every name that a module has for it."""
    found = Comparison()
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "calibeat" and name.removeprefix("calibeat.") not in UNITS:
            for own, value in list(vars(module).items()):
                if isinstance(value, COMPILED) and value in subset._PLAIN:
                    monkeypatch.setattr(module, own, partial(found.call, value))
    monkeypatch.setattr(calibeat.Notice, "_now", lambda _: 1.7e9)  # the clock stands
    monkeypatch.setattr(Scaling, "refit", staticmethod(partial(found.call, ENTRIES["core_fit_refit_scaling"])))
    return found


# ---- programs that call them -----------------------------------------------------------------------------------------

Scenario = Callable[[], None]
SCENARIOS: dict[Scenario, set[str]] = {}


def compares(*names: str) -> Callable[[Scenario], Scenario]:
    """Register what compares these entries."""

    def register(scenario: Scenario) -> Scenario:
        SCENARIOS[scenario] = set(names)
        return scenario

    return register


# Every method on a stream at once and late: rows, forecasts, cells, receipts and what a refit leaves.
METHODS = variants() | extremes()
OF_METHODS = {"core_loops_run", "core_loops_run_late", "core_loops_predict_many"}
OF_REFITS = {"core_kernel_update", "core_features_features_of_all"}


def run_method(method: Method, scores: Any, outcomes: Any) -> None:
    cal, late = Calibrator(method, seed=2), Calibrator(method, seed=2)
    cal.run(scores, outcomes)
    late.run(scores, outcomes, due=delays(len(scores)))
    cal.predict_many(scores[:100])
    if method.needs_history:  # else an event by itself is not for the kernels' entries
        new = Calibrator(method)
        new.update(new.predict(0.3), 1)


@compares("core_fit_refit_scaling", "core_refit_cut_into_bins", "core_fit_fit")
def refits_and_hindsight() -> None:
    for name in ("wps", "swbs", "whb", "temperature refitted"):
        Calibrator(METHODS[name]).run(*STREAMS["drifting"]())
    for name in ("ops", "obs"):
        calibeat.metrics.best_parameters(name, *STREAMS["random"]())


@compares("core_limits_find_bad")
def rows_from_outside() -> None:
    for method in (AUTO, HOPS, TOPS):
        bank = Bank(method, seed=1)
        bank.run(np.arange(60) % 2, *drifting(60))
        good = bank.rows([0, 1])
        for column, value in product(range(good.shape[1]), (-1e9, 1e9, 0.5, np.inf)):
            bad = good.copy()
            bad[1, column] = value
            with suppress(calibeat.InvalidInput):
                limits.check_rows(method, bad, 60.0)


@compares("core_loops_run")
def rows_that_streams_seldom_reach() -> None:
    """Matrices that rounding has eaten up, a lane at the ends of its scale, forecasts beside the edges of bins."""

    def run(method: Method, row: Any, stream: str) -> None:
        scores, outcomes = (column[:40] for column in STREAMS[stream]())
        batch = loops.Batch(scores, outcomes, np.empty(0), np.zeros(40), np.empty(0))
        loops.run_batch(method.spec, loops.one_stream(row, 0), batch, None, loops.place_before(), 40)

    for name in ("ops", "obs", "aioli", "aioli of three"):
        row = METHODS[name].initial_row()
        row[layout.THETA + METHODS[name].dimension : METHODS[name].spec.cells] = 1.0
        run(METHODS[name], row, "drifting")
    for slope in (30.0, -30.0):
        row = AUTO.initial_row()
        row[layout.OPS_A] = slope
        run(AUTO, row, "extreme")
    for bins in (10, 49, 50):
        edges = np.arange(1, bins) / bins
        scores = np.concatenate([edges, np.nextafter(edges, 0.0), np.nextafter(edges, 1.0)])
        for calibeater in (Tracking(bins=bins), Hedging(bins=bins)):
            Calibrator(Method(None, None, calibeater)).run(scores, np.arange(len(scores)) % 2)


@compares(
    "core_loops_run_classes",
    "hosts_pool_start_row",
    "hosts_rows_fold_rows",
    "monitor_bets_read",
    "hosts_keys_hash_ints",
    "hosts_keys_int_hash",
    "hosts_keys_hash_strings",
    "hosts_keys_short_hash",
    "hosts_keys_find_key",
    "hosts_keys_link",
    "late_is_in_order",
    "late_list_arrivals",
    "late_read_lists",
    "late_wait_for_key",
)
def hosts() -> None:
    """Every verb on every host, at random."""
    with TemporaryDirectory() as folder:
        for kind in KINDS:
            sequences(kind, range(25), Path(folder))


@compares(
    "hosts_pool_pool_rows",
    "hosts_keys_narrow",
    "hosts_keys_find_keys",
    "monitor_monitors_read_rows",
    "monitor_monitors_read_out",
)
def banks() -> None:
    """So many events that rows and keys are asked for before their turn; keys of every form."""
    rng = np.random.default_rng(1)
    scores, outcomes = drifting(900)
    outcomes = np.where(np.arange(900) % 13 == 4, np.nan, outcomes)
    keys = as_strings(rng.integers(-40, 150, 900))
    for method in (AUTO, METHODS["aioli of three"]):
        bank = Bank(method, prior="pooled", threads=1, monitor=Monitor(arl=50.0, warm=3))
        bank.run(keys[:500], scores[:500], outcomes[:500])
        bank.run(keys[500:], scores[500:], outcomes[500:], due=np.arange(400) + rng.integers(1, 90, 400))
        bank.run(["nothing to compare it with"], [0.5], [np.nan])
        bank.predict_many(keys, scores)
        assert len(bank.table["key"]) == len(bank)
    multi = calibeat.MultiBank(3, "ots", prior="pooled")
    multi.run(np.arange(60) % 7, *multi_streams.drifting(60, 3))
    for names in (["", "a", "bc"], ["ascii", "käse"]):
        Bank(TOPS).run(np.array(names * 20), scores[: 20 * len(names)], np.ones(20 * len(names)))


@compares("core_loops_run_late", "core_loops_predict_many")
def bands() -> None:
    """Scores as forecasts until a key has learnt, at the edges too; then forecasts with an interval of their own."""
    scores, outcomes = drifting(300)
    scores[:4] = 0.0, 1.0, 0.001, 0.999
    for mature in (10, 100):
        bank = Bank(band=True, threads=1)
        bank.run(np.arange(300) % 3, scores, outcomes, mature=mature, band=True)
        bank.predict_many(np.arange(40) % 4, scores[:40], band=True)


@compares("core_randomness_text_key", "core_randomness_text_keys", "core_randomness_int_keys")
def keys_of_streams() -> None:
    for names in ([-(2**63), -1, 0, 1, 2**63 - 1], ["", "1", "1234567", "12345678", "käse", "x" * 100]):
        column = keys_of_banks.check_keys(names)
        assert column.stream_keys(5).tolist() == [randomness.stream_key(5, name) for name in names]


@compares("hosts_keys_find_key")
def damaged_tables_of_keys() -> None:
    """Of files that nobody has checked: every place taken, a slot that is not there, text beyond the end."""
    key, text = (np.frombuffer(name, dtype=np.uint8) for name in (b"abc", b"abd"))
    word, full = 5, np.zeros(4, dtype=np.int32)
    for table in (full, full + 7):
        for start in (0, 1):
            marks = np.array([start, (3 << 31) | word])
            assert keys_of_banks.find_key(True, text, marks, table, 1, key, 0, 3, word) == keys_of_banks.DAMAGED
        assert keys_of_banks.find_key(False, text, np.array([3]), table, 1, key, 4, 4, word) == keys_of_banks.DAMAGED


@compares("core_loops_run", "core_loops_run_late", "core_loops_run_classes", "core_randomness_number_events")
def loops_that_hosts_seldom_call() -> None:
    """Slots of another thread; streams that are raw until something is learnt; one step behind the last event."""
    K, slots = 3, (np.arange(300) % 3).astype(np.int32)
    for method in (AUTO, HOPS, TOPS, vector.VectorMethod("multi", K)):
        scores, labels = multi_streams.drifting(300, K)
        batch, late = multi_streams.batch_of(vector.VectorMethod("multi", K), scores, labels, np.arange(300) + 5)
        assert late is not None
        if not method.spec.classes:
            scores, outcomes = drifting(300)
            receipts = np.zeros(300 * method.receipt_width)
            batch = loops.Batch(scores, outcomes, np.linspace(0, 1, 300), np.zeros(300), receipts)
            late = late._replace(cells=np.zeros(300, dtype=np.int64))
        for raw_below in (0, 1):
            rows = np.zeros((3, method.width + STATS))
            rows[:, : method.width] = method.initial_row()
            streams = loops.Streams(rows.reshape(-1), rows.shape[1], slots, 0, 2, method.width, 0.0)
            when = late._replace(raw_below=raw_below)
            loops.run_batch(method.spec, streams, batch, when, loops.place_before(), 301)
            loops.run_batch(method.spec, streams, batch, None, loops.place_before(), 300)
    randomness.number_events(np.array([3.0, 0.0, 1.0]), slots, np.zeros(300, dtype=np.int64))


@compares(
    "core_vector_read",
    "core_vector_ready",
    "core_vector_ask_horizon",
    "core_vector_learn_late",
    "core_vector_predict",
    "core_vector_settle",
    "core_vector_update",
    "hosts_pool_learn_label",
)
def classes() -> None:
    """Scores that are none, weights as small and as large as they become; single events, by the entries for them."""
    for K in (3, 65):
        for method in (vector.VectorMethod(name, K) for name in vector.CODES):
            row, work = method.initial_row(), vector.scratch(K)
            receipt, forecast = np.zeros(method.receipt_width), np.zeros(K)
            for i, score in enumerate(multi_streams.edge(10, K)[0]):
                vector.predict(*method.code, row, score, receipt, work, forecast)
                learn = vector.settle if i % 2 else vector.update
                learn(*method.code, row, float(i), multi_streams.one(1), receipt, work, forecast)
            pool.learn_label(*method.code, row, score, multi_streams.one(1), work)
        row = vector.VectorMethod("multi", K).initial_row()
        vector.read(K, score, work)
        vector.ask_horizon(K, np.full(5, 0.3), -np.arange(4.0 * K), work)
        vector.learn_late(K, row, 1, 1.0, 1.0, -np.arange(4.0 * K), np.linspace(0.1, 0.9, 17), work)
    nearly = multi_streams.random(50, 5)[0] * (1.0 + 1e-9)
    assert vector.ready(5, nearly.reshape(-1), 0)[0] == vector.GOOD
    for bad in ([np.nan, 1.0, 0.0], [-0.5, 1.0, 0.5], [0.5, 0.1, 0.1]):
        assert vector.ready(3, np.array(bad), 0)[0] != vector.GOOD


# What the calls of these three return is held by tests/monitor.


@compares("monitor_shift_read_values")
def shifts() -> None:
    """An alarm of each bet, scores at both ends of the bins, delays, and more scores than the memory holds."""
    rng = np.random.default_rng(7)
    usual, low, is_low = rng.uniform(0.3, 0.7, 600), rng.random(200) / 100.0, rng.random(200) < 0.5
    faults = {
        "lower": low,
        "higher": 1.0 - low,
        "wider": np.where(is_low, low, 1.0 - low),
        "narrower": 0.5 + (low - 0.005),
        "stuck": np.full(200, 0.6),
    }
    for word, fault in faults.items():
        (alarm, *_) = calibeat.Shift(arl=1e4, warm=256).run(np.concatenate([usual, fault]))
        assert alarm.what == word
    calibeat.Shift(arl=1e4, warm=256).run(np.tile([0.0, 1e-9, 1.0 - 1e-9, 1.0], 100))
    delays = np.concatenate([rng.exponential(60.0, 600), rng.exponential(6e4, 100)])
    calibeat.Shift(arl=1e4, warm=256, of="delay").run(delays)
    calibeat.Shift().run(rng.random(8500))


@compares("monitor_silence_read_arrivals", "monitor_silence_ring_now", "monitor_silence_leave_from")
def silences() -> None:
    """Silences that ring at an arrival and by the clock, that last for months, and downtime before, in and after."""
    day, start = 86400.0, 1.7e9
    silence = calibeat.Silence()
    silence.away(start - day, start)
    daily = start + day * np.arange(40.0)
    assert len(silence.run([*daily, daily[-1] + 0.5, daily[-1] + 30.0 * day])) == 1
    silence.run(daily[-1] + day * np.arange(31.0, 330.0))
    last = silence.last
    assert last is not None
    for _ in range(2):  # said again it changes nothing
        silence.away(last + 600.0, last + 600.0 + 2.0 * day)
    assert silence.check(silence.deadline + 1.0) is not None
    silence.away(last + 20.0 * day, last + 21.0 * day)
    silence.arrive(last + 200.0 * day)
    calibeat.Silence().run(start + 30.0 * day * np.arange(12.0))


@compares(
    "monitor_notices_hear_events",
    "monitor_notices_hear_rows",
    "monitor_notices_find_deadlines",
    "monitor_notices_ask_rows",
    "monitor_notices_leave_rows",
)
def notices() -> None:
    """Every alarm of one stream, of a bank, and of rows that a host tells what happens."""
    day, rng = 86400.0, np.random.default_rng(6)
    times, scores = 1.7e9 + 600.0 * np.arange(2000.0), rng.random(2000)
    scores[1800:] /= 100.0
    end = float(times[-1])
    notice = calibeat.Notice(arl=1e4, warm=256)
    came = times + np.where(np.arange(2000) < 1500, 30.0, 3000.0)
    raised = notice.run(times, scores, np.where(came < end, came, np.nan))
    assert {alarm.what for alarm in raised if alarm.page} == {"no outcomes", "outcomes later", "score lower"}
    notice.away(end + 60.0, end + 7200.0)
    assert len(notice.check(end + 10.0 * day)) == 2
    notice.away(end + 11.0 * day, end + 12.0 * day)
    bank = Bank(OPS, notice=calibeat.Notice(arl=1e4, warm=256), threads=1)
    bank.run(np.arange(2000) % 2, scores, np.where(times < end - day, 1.0, np.nan), times=times)
    bank.check(end + 10.0 * day)
    # Rows: outcomes that stop, outcomes that never came, nothing at all.
    many, every = Notices(notice.settings), np.arange(3, dtype=np.int32)
    many.resize(3)
    nothing, answered, asked = np.full(2000, np.nan), np.zeros(2000, dtype=np.int32), np.ones(1000, dtype=np.int32)
    many.observe(answered, times, nothing, np.full(2000, 60.0))
    many.observe(answered, times + (end - times[0]), scores[::-1].copy(), nothing)
    many.observe(asked, times[:1000], scores[:1000], nothing[:1000])
    many.away(times[999], times[999] + day, every[1:])
    assert many.deadlines(every)[1:].tolist() == [times[0] + 9.0 * day, np.inf]
    ((_, alarm),) = many.check(times[0] + 9.0 * day, every[1:])
    assert alarm.what == "never an outcome"


@compares(
    "backtest_replay_tally_losses",
    "backtest_replay_tally_tally",
    "backtest_replay_tally_tally_keys",
    "backtest_replay_tally_tally_scores",
    "backtest_judge_intervals_count_events",
    "backtest_judge_intervals_add_rest",
    "backtest_judge_history_count_history",
    "backtest_judge_decisions_count_actions",
    "backtest_judge_segments_tally_segments",
)
def backtests() -> None:
    rng = np.random.default_rng(5)
    scores, outcomes = drifting(2500)
    scores[::100], scores[1::100] = 0.0, 1.0
    outcomes[rng.random(2500) < 0.05] = np.nan
    keys = rng.integers(0, 7, 2500)
    calibeat.backtest(scores, outcomes, keys, methods="ops,tops,auto", threshold=0.3)
    Intervals(2).add(np.array([scores, scores**2]), outcomes, np.where(np.isnan(outcomes), -1, 1))
    times = np.datetime64("2024-01-01", "s") + 60 * np.arange(2500)
    arrived = times + rng.integers(0, 40_000, 2500)
    calibeat.backtest(scores, outcomes, None, times, arrived, methods="ops,fps", cost_fp=1.0, cost_fn=5.0)
    groups = {"a": keys[:600], "b": rng.integers(0, 90, 600)}
    calibeat.backtest(scores[:600], outcomes[:600], groups=groups, methods="ops", delay=20)
    # Two words that want one place, and a third segment for which there is no room.
    words = np.array([5, 5 + segments.INDEX_SLOTS, 7])
    places, numbers = np.zeros(segments.INDEX_SLOTS, dtype=np.int64), np.zeros(2 * segments.SEGMENT_WIDTH)
    of = (places, np.zeros(2, dtype=np.int64), np.zeros(4, dtype=np.int64), numbers, np.zeros(2, dtype=np.int64))
    followed = segments.Followed(1, 1, np.empty(0, dtype=np.int64), *of)
    forecasts, order = np.full(3 * segments.MOST_RIVALS, 0.4), np.arange(3)
    segments.tally_segments(followed, words, np.ones(3), forecasts, order)
    assert followed.used.tolist() == [2, 1] and followed.words.tolist() == words[:2].tolist()


@compares(
    "backtest_replay_contenders_replay_temperature",
    "backtest_judge_intervals_count_class_events",
    "backtest_replay_tally_losses",
    "backtest_replay_tally_tally",
    "backtest_replay_tally_tally_classes",
    "backtest_replay_tally_marks",
)
def backtests_of_classes() -> None:
    P, y = class_logs.stream(2100)
    calibeat.backtest(P, [None if i % 50 == 7 else int(label) for i, label in enumerate(y)])
    calibeat.backtest(P[:1300], y[:1300], delay=60, methods="fts,ots")
    calibeat.backtest(P[:400], y[:400], np.arange(400) % 3, methods="multi")
    sure, labels = np.array([[0.0, 1.0], [0.2, 0.8]]), np.array([0.0, 1.0])  # what came had no chance
    Tally(10, 2).count(Counted.of(sure, labels, np.ones(2, dtype=np.int64), np.zeros(2)))
    Intervals(2, numbers=2).add(np.array([sure, sure]), labels, np.array([-1, 1]))


@compares("service_rollups_add_operations", "service_rollups_tenth")
def rollups() -> None:
    rng = np.random.default_rng(6)
    n = 500
    Rollups(
        slots=rng.choice([0, 2], n).tolist(),
        times=(3600.0 * rng.random(n) * 5).tolist(),
        scores=rng.choice([0.0, 0.3, 1.0, *rng.random(9)], n).tolist(),
        forecasts=rng.random(n).tolist(),
        outcomes=rng.choice([0.0, 1.0, np.nan], n).tolist(),
        ages=np.where(rng.random(n) < 0.1, 0.0, 10.0 ** (9.0 * rng.random(n))).tolist(),
        numbers=[7, 8, 9],
        sums=[bytes(8 * SUMS)] * 3,
        losses=dict.fromkeys(range(0, n, 3), (0.5, 0.7, 0.2, 0.3)),  # those are of many classes
    )
    for p in (0.0, 0.05, 0.1, 0.3, 0.7, 1.0):
        calibeat.service.rollups.tenth(p)


@compares("core_loops_run_grouped", "core_loops_run_grouped_late", "core_groups_forget_touched")
def groups() -> None:
    """So few cells that those of one event fill a bucket; some streams are raw until something is learnt."""
    for method, slots in ((AUTO, 8), (calibeat.GAUTO, 64), (Method(AUTO.features, AUTO.learner), 64)):
        scores, outcomes, columns = group_streams.world(150, 4, 6)
        for due in (None, group_streams.delays(150, 20.0)):
            host = group_streams.Host(Groups(["a", "b", "c", "d"], cells=slots, seed=1), method)
            words = host.words(columns)
            host.run(scores, outcomes, words, due, raw_below=1)
            calibeat.core.groups.forget_touched(host.table.cells)
            host.predict_many(scores, words)


@compares("core_loops_run_weighted", "core_loops_run_classes", "core_kernel_settle_apart", "core_groups_learn_weighted")
def weights() -> None:
    """Outcomes that stand for no event, for one, for many, and for far more than all others; counts of trials."""
    scores, outcomes = drifting(300)
    heavy = np.where(outcomes == 1.0, 1.0, 20.0)
    heavy[::50], heavy[7], heavy[200] = 0.0, 1e9, 1e9
    trials = np.arange(300) % 5
    ones = np.minimum(trials, np.arange(300) // 7 % 5)
    keys, values = np.arange(300) % 4, {"a": np.arange(300) % 7}
    for due in (None, delays(300)):
        for method in (AUTO, TOPS, METHODS["aioli"], METHODS["wps"], METHODS["whb"]):
            Calibrator(method).run(scores, outcomes, weights=heavy, due=due)
            Calibrator(method).run(scores, ones, weights=heavy, of=trials, due=due)
        for method in (AUTO, TOPS):
            Bank(method, threads=1, prior="pooled").run(keys, scores, outcomes, weights=heavy, due=due)
        Calibrator(groups=["a"]).run(scores, ones, of=trials, groups=values, due=due)
        classes, labels = multi_streams.drifting(100, 3)
        for name in vector.CODES:
            given = None if due is None else due[:100]
            calibeat.MultiCalibrator(3, name).run(classes, labels, weights=heavy[:100], due=given)
    for method in (AUTO, OPS):  # those that a batch of one weight leaves to another call
        row, receipt = method.initial_row(), np.zeros(method.receipt_width)
        asked = kernel.ask(method.spec, row, 0.7, receipt)
        played = kernel.play(method.spec, row, asked, 0.0, receipt)
        kernel.settle_apart(method.spec, row, 1.0, asked, played.cell, Outcome(0.25, 3.0, 4.0), receipt)
        assert row[layout.N] == 1.0 and row[layout.TOTAL] == 12.0
    host = group_streams.Host(Groups(["a"], cells=8, seed=1))
    words, receipt = host.words(np.zeros((1, 1), dtype=np.int64)), np.zeros(host.table.receipt_width)
    host.predict(0.7, 0.0, words, receipt)
    spec, cells = host.method.spec, host.table.cells
    asked, lesson = kernel.ask_again(spec, host.row, 0.7), Lesson(0.25, 3.0, 3.0, 4.0, True, False)
    calibeat.core.groups.find_cells(cells, words, cells.found)
    calibeat.core.groups.learn_weighted(spec, cells, host.row, 1.0, asked, 0, lesson, words, receipt)
    assert host.row[layout.N] == 1.0


@compares("core_loops_run_models", "core_several_ask", "core_several_settle")
def models() -> None:
    """Batches at once, late and when all is over; single events by the entries for them; scores that are missing."""
    for k, events in ((2, 100), (3, 50), (5, 30), (16, 8)):
        for stream in several_streams.STREAMS.values():
            scores, outcomes = stream(events, k)
            scores = several_streams.holes(scores, 0.3)
            half = np.arange(events) + events // 2  # so late that the spline is tempered too
            for due in (None, delays(events), half, np.full(events, events)):
                cal = Calibrator(models=k)
                cal.run(scores, outcomes, due=due, finish=due is not None)
                cal.predict_many(scores)
        method = several.SeveralMethod(k)
        row, room, receipts = method.initial_row(), method.scratch(), np.zeros((8, method.receipt_width))
        for score, receipt in zip(scores, receipts, strict=False):
            several.put_scores(k, score, receipt)
            several.ask(k, row, receipt, room)
        several.settle(k, row, 8.0, 1.0, receipts[7], room, True)
        several.settle(k, row, 8.0, 0.0, receipts[0], room, False)
        assert row[layout.N] == 2.0


@compares("core_algebra_exps", "core_algebra_lns")
def exponentials_and_logarithms() -> None:
    x = np.geomspace(1e-300, 1e300, 101)
    algebra.lns(x)
    algebra.exps(x)


@compares("hosts_rows_fold_rows")
def served_groups() -> None:
    nan, words = float("nan"), [struct.pack("<2q", 5 + at % 3, 7 + at % 2) for at in range(60)]
    for method in ("auto", "gauto"):
        model, stream = Model.named(method), StreamBytes("s", shape=Shape(groups=Groups(["a", "b"], cells=8, seed=1)))
        rng, receipts = np.random.default_rng(3), list[bytes]()
        for first in range(0, 60, 20):  # forecasts; outcomes of those before; outcomes of some of them
            n, given = len(receipts), words[first : first + 20]
            outcomes = [nan] * 20 + [1.0] * n + [0.0] * 5
            own = [-1] * (20 + n) + list(range(5))
            scores = [*rng.random(20).tolist(), *[nan] * (n + 5)]
            before = words[first - n : first] if n else []
            made = model.fold([stream], [0] * len(own), scores, outcomes, own, receipts, (), given + before + given[:5])
            receipts = made.receipts[5:]
    for _ in range(120):  # always the less likely outcome: the guard begins to draw
        (forecast,), (receipt,), *_ = model.fold([stream], [0], [0.5], [nan], [-1], [], (), words[:1])
        model.fold([stream], [0], [nan], [float(forecast < 0.5)], [-1], [receipt], (), words[:1])
    with pytest.raises(calibeat.OutcomeConflict):
        model.fold([StreamBytes("t", shape=stream.shape)], [0], [nan], [1.0], [-1], receipts[:1], (), words[:1])


# ---- all entries are compared ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", METHODS)
def test_every_method(name: str, comparison: Comparison) -> None:
    for stream in ("drifting", "extreme", "T = 1"):
        run_method(METHODS[name], *STREAMS[stream]())
    assert comparison.names >= OF_METHODS | (OF_REFITS if METHODS[name].needs_history else set())


@pytest.mark.no_cover  # it reaches no line that the others do not
@pytest.mark.parametrize("name", METHODS)
def test_every_method_on_longer_and_on_other_streams(name: str, comparison: Comparison) -> None:
    for stream in STREAMS.keys() - {"drifting", "extreme", "T = 1"}:
        run_method(METHODS[name], *STREAMS[stream]())
    if name not in extremes():
        run_method(METHODS[name], *drifting(2000))
    assert comparison.names >= OF_METHODS


def test_every_entry_is_compared_somewhere() -> None:
    assert set.union(OF_METHODS, OF_REFITS, *SCENARIOS.values()) == set(ENTRIES)


def test_every_entry_of_the_core_is_known() -> None:
    modules = [import_module(f"calibeat.{unit}") for unit in UNITS]
    made = {name for module in modules for name, value in vars(module).items() if isinstance(value, COMPILED)}
    assert {name for name in made if not name.startswith("_")} >= set(ENTRIES)
    assert {name for name in made - set(ENTRIES) if name.partition("_")[0] in FOLDERS} == set()


FOLDERS = {file.relative_to(PACKAGE).with_suffix("").parts[0] for file in FILES}


def test_a_difference_of_one_bit_is_found(comparison: Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
    def other(K: int, score: Any, work: Any) -> None:
        real(K, score, work)
        work[-1] = -0.0

    real = subset.plain(vector_read := ENTRIES["core_vector_read"])
    monkeypatch.setitem(subset._PLAIN, vector_read, other)
    with pytest.raises(AssertionError, match="core_vector_read"):
        comparison.call(vector_read, 3, np.array([0.2, 0.3, 0.5]), np.zeros(vector.HEAD + 39))


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_compiled_is_plain(scenario: Scenario, comparison: Comparison) -> None:
    scenario()
    assert comparison.names >= SCENARIOS[scenario]
