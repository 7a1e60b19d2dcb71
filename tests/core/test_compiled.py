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
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import class_logs
import group_streams
import multi_streams
import numpy as np
import pytest
from banks import as_strings
from conformance import delays
from streams import STREAMS, drifting, extremes, variants
from twice import called_twice

import calibeat
from calibeat import AUTO, HOPS, OPS, TOPS, Bank, Calibrator, Hedging, Method, Monitor, Tracking
from calibeat.backtest.judge import segments
from calibeat.backtest.judge.intervals import Intervals
from calibeat.backtest.replay.tally import Counted, Tally
from calibeat.core import algebra, layout, limits, loops, subset, vector
from calibeat.core.features import Scaling
from calibeat.core.groups import NO_CELLS
from calibeat.core.units import UNITS
from calibeat.hosts import keys as keys_of_banks
from calibeat.hosts import pool, rows
from calibeat.hosts.groups import Groups
from calibeat.monitor import shift
from calibeat.monitor.notices import Notices
from calibeat.monitor.silence import EPOCH
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
        cal.update(cal.predict(0.3), 1)


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
        bank.run(np.arange(300) % 7, *drifting(300))
        good = bank._rows.matrix[: len(bank)].copy()
        limits.check_rows(method, good, bank._rows.clock)
        stats, cells = method.width, method.spec.cells
        changes = {
            stats: -1.0,
            stats + 1: 1e9,
            stats + 2: -1.0,
            layout.N: 99.0,
            layout.T: 99.0,
            cells + 4: -2.0,
            5: np.inf,
        }
        if method is AUTO:  # a variance and a covariance of a lane, and of the horizon lane
            lane, horizon = layout.VAR_A + 4, method.width - layout.HORIZON_WIDTH + layout.HORIZON_COVARIANCE
            changes |= {layout.VAR_A + 2: 0.0, lane: 1e3, horizon: -1.0, horizon + 1: 1e3, method.width - 1: 1e3}
        else:
            changes |= {layout.THETA + 2: -1.0, layout.THETA + 3: 1e3}
        for column, value in changes.items():
            bad = good.copy()
            bad[3, column] = value
            with pytest.raises(calibeat.InvalidInput, match="at row 3"):
                limits.check_rows(method, bad, bank._rows.clock)


@compares("core_loops_run", "core_loops_run_late", "core_randomness_number_events", "hosts_pool_start_row")
def single_loops() -> None:
    """Slots of another thread."""
    scores, outcomes = drifting(600)
    order, due = np.arange(595), np.arange(600) + 5
    slots = (np.arange(600) % 3).astype(np.int32)
    for method in (AUTO, HOPS, TOPS):
        for where in (slots, loops.NO_SLOTS):
            rows = np.tile(method.initial_row(), 3)
            streams = loops.Streams(rows, method.width, where, 0, 2 if len(where) else 1, 0, 7.0)
            receipts, u = np.zeros(50 * method.receipt_width), np.linspace(0, 1, 600)
            batch = loops.Batch(scores, outcomes, u, np.zeros(600), receipts)
            late = loops.Late(0, np.zeros(600, dtype=np.int64), due, order, 2)
            loops.run_batch(method.spec, streams, batch, late, loops.place_before(), 601)
            loops.run_batch(method.spec, streams, batch, None, loops.place_before(), 600)
    calibeat.core.randomness.number_events(np.array([3.0, 0.0, 1.0]), slots, np.zeros(600, dtype=np.int64))
    fresh = TOPS.initial_row()
    pool.start_row(TOPS.spec, pool.Pool(True, fresh + 0.25, fresh, 0), np.ones(TOPS.width + 6))


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
    "hosts_pool_pool_rows",
    "late_list_arrivals",
    "late_wait_for_key",
    "late_read_lists",
    "late_is_in_order",
    "hosts_keys_hash_ints",
    "hosts_keys_int_hash",
    "hosts_keys_find_key",
    "hosts_keys_find_keys",
    "monitor_monitors_read_rows",
    "monitor_monitors_read_out",
)
def banks_of_ints() -> None:
    rng = np.random.default_rng(1)
    scores, outcomes = drifting(900)
    outcomes = np.where(np.arange(900) % 13 == 4, np.nan, outcomes)
    keys = rng.integers(-40, 150, 900)
    for method in (AUTO, TOPS, HOPS, OPS, METHODS["aioli of three"], METHODS["tops guarded loosely"]):
        monitor = Monitor(arl=50.0, warm=3) if method is AUTO else None
        bank = Bank(method, prior="pooled", threads=1, monitor=monitor)
        bank.run(keys[:500], scores[:500], outcomes[:500])
        bank.run(keys[500:], scores[500:], outcomes[500:], due=np.arange(400) + rng.integers(1, 90, 400))
        bank.predict_many(keys + 20, scores)
        assert (int(keys[0]) in bank, 10_000 in bank) == (True, False)
        if monitor is not None:
            bank.run([1000], [0.5], [np.nan])  # nothing to compare it with
            assert len(bank.table["key"]) == len(bank)
            bank.broken()
            bank.miscalibrated()


@compares(
    "hosts_keys_narrow",
    "hosts_keys_short_hash",
    "hosts_keys_hash_strings",
    "hosts_keys_link",
    "hosts_keys_find_key",
    "hosts_keys_find_keys",
)
def banks_of_strings() -> None:
    scores, outcomes = drifting(900)
    keys = as_strings(np.random.default_rng(2).integers(0, 400, 900))
    keys[::50] = [f"{i} of a length that is not hashed by the polynomial, but by BLAKE2b " * 2 for i in range(18)]
    bank = Bank(TOPS, threads=1)
    bank.run(keys, scores, outcomes)
    bank.run(keys[:30], scores[:30], outcomes[:30])
    bank.predict_many([*keys, "unknown", ""], [*scores, 0.5, 0.5])
    bank.run(np.array(["", "a", "bc", "def", "ghij"] * 20), scores[:100], outcomes[:100])
    bank.run(np.array(["ascii", "käse"] * 50), scores[:100], outcomes[:100])
    del bank["def"]
    bank.run(["def"], [0.5], [1])
    # Tables of files that nobody has checked: every place taken, a slot that is not there, text beyond the end.
    key, word = np.frombuffer(b"abc", dtype=np.uint8), 5
    text, full = np.frombuffer(b"abd", dtype=np.uint8), np.zeros(4, dtype=np.int32)
    for start in (0, 1):
        marks = np.array([start, (3 << 31) | word])
        for table in (full, full + 7):
            found = keys_of_banks.find_key(True, text, marks, table, 1, key, 0, 3, word)
            assert found == keys_of_banks.DAMAGED
    for table in (full, full + 7):
        found = keys_of_banks.find_key(False, text, np.array([3]), table, 1, key, 4, 4, word)
        assert found == keys_of_banks.DAMAGED


@compares("hosts_rows_fold_rows")
def folds() -> None:
    rng = np.random.default_rng(3)
    scores = rng.random(60)
    for method in (AUTO, TOPS, HOPS, METHODS["tops guarded loosely"]):
        for prior in ("pooled", None):
            bank = Bank(method, prior=prior, threads=1)
            keys, nothing = rng.integers(0, 9, 60), np.full(60, np.nan)
            receipts = bank.fold(keys, scores, nothing).receipts.tolist()
            mixed = np.concatenate([keys, keys]), np.concatenate([nothing, scores])
            outcomes = np.concatenate([(rng.random(60) < scores).astype(float), nothing])
            bank.fold(*mixed, outcomes, receipts)
            member = bank[int(keys[0])]
            member.update(member.predict(0.4), 1)
            bank.update(77, bank.predict(77, 0.4), 1)
            bank.fold([78, 78], [0.5, np.nan], [np.nan, 1.0], of=[-1, 0])
            with pytest.raises(calibeat.OutcomeConflict):
                bank.fold([78, 78], [np.nan, np.nan], [1.0, 1.0], [bank.predict(78, 0.5).to_bytes()] * 2)
            one = [79] * 60, scores, nothing
            receipts = bank.fold(*one).receipts.tolist()
            bank.fold([79] * 60, nothing, np.arange(60) % 2, receipts)
            bank.fold(*one)


@compares(
    "core_loops_run_classes",
    "core_loops_predict_many",
    "hosts_pool_learn_label",
    "core_vector_read",
    "core_vector_ready",
    "core_vector_ask_horizon",
    "core_vector_learn_late",
    "core_vector_predict",
    "core_vector_settle",
    "core_vector_update",
    "hosts_pool_pool_rows",
    "hosts_rows_fold_rows",
)
def many_classes() -> None:
    for K, n in ((3, 400), (10, 200), (65, 12)):
        for make in (multi_streams.drifting, multi_streams.edge):
            scores, labels = make(n, K)
            for method in (vector.VectorMethod(name, K) for name in vector.CODES):
                fresh, work = method.initial_row(), vector.scratch(K)
                slots, width = (np.arange(n) % 3).astype(np.int32), method.width + 6
                for due in (None, multi_streams.delays(n, "reordered")):
                    batch, late = multi_streams.batch_of(method, scores, labels, due)
                    matrix = np.zeros(3 * width)
                    shared = pool.Pool(True, fresh.copy(), fresh, 0, work)
                    where = matrix, width, slots, batch.scores, batch.outcomes
                    lists = loops.NO_INTS, loops.NO_INTS
                    if late is not None:
                        lists = np.full(n, -1), np.full(n, -1)
                        lists[0][1:] = np.arange(n - 1)
                    pool.pool_rows(method.spec, shared, *where, *lists)
                    many = loops.Streams(matrix, width, slots, 0, 3, method.width, 0.0)
                    of_another_thread = loops.Streams(matrix.copy(), width, slots, 0, 2, method.width, 0.0)
                    for streams in (many, of_another_thread, loops.one_stream(fresh.copy(), 0)):
                        place = loops.place_before()
                        if late is not None:  # raw until something is learnt; and one step behind the last event
                            late = late._replace(raw_below=1)
                        loops.run_batch(method.spec, streams, batch, late, place, n + (late is not None))
                        loops.predict_many(method.spec, NO_CELLS, streams, fresh, batch._replace(work=work))
                fold_classes(method, batch)
                receipt, forecast = np.zeros(method.receipt_width), np.zeros(K)
                vector.predict(*method.code, fresh, batch.scores[:K], receipt, work, forecast)
                pool.learn_label(*method.code, fresh, batch.scores[:K], 1.0, work)
                streams = loops.one_stream(fresh, 0)
                loops.run_batch(method.spec, streams, batch, None, loops.place_before(), min(n, 20))
                vector.predict(*method.code, fresh, batch.scores[:K], receipt, work, forecast)
                vector.settle(*method.code, fresh, 1.0, 1, receipt, work, float(forecast[1]))
                vector.update(*method.code, fresh, 1.0, 0, receipt, work, float(forecast[0]))
                if method.name == "multi":
                    vector.ask_horizon(K, np.full(5, 0.3), -np.arange(4.0 * K), work)
                    vector.learn_late(K, fresh, 1, 1.0, -np.arange(4.0 * K), np.linspace(0.1, 0.9, 17), work)
    logits = np.log(multi_streams.random(50, 5)[0]).reshape(-1)
    assert vector.ready(5, logits, 1)[0] == vector.GOOD
    nearly = multi_streams.random(50, 5)[0] * (1.0 + 1e-9)
    assert vector.ready(5, nearly.reshape(-1), 0)[0] == vector.GOOD
    for bad in ([np.nan, 1.0, 0.0], [-0.5, 1.0, 0.5], [0.5, 0.1, 0.1]):
        assert vector.ready(3, np.array(bad), 0)[0] != vector.GOOD
    work = vector.scratch(3)
    vector.read(3, np.array([0.2, 0.0, 0.8]), work)


def fold_classes(method: vector.VectorMethod, batch: loops.Batch) -> None:
    """A forecast of each event of two keys with a pooled start, then the label of each."""
    n = len(batch.outcomes)
    outcomes = np.concatenate([np.full(n, np.nan), batch.outcomes])
    sources = np.concatenate([np.arange(n), np.arange(n)])
    receipts = np.zeros(2 * n, dtype=rows.receipt_type(method))
    receipts["scores"][:n] = batch.scores.reshape(n, -1)
    memory = receipts.view(np.float64), receipts.view(np.int64), receipts.itemsize // 8
    slots = (np.arange(2 * n) % n % 2).astype(np.int32)
    work = rows.FoldWork(slots, outcomes, np.empty(0), sources, *memory, vector.scratch(method.classes))
    fresh, width = method.initial_row(), method.width + 6
    shared = pool.Pool(True, fresh.copy(), fresh, 0, vector.scratch(method.classes))
    assert rows.fold_rows(method.spec, NO_CELLS, np.zeros(2 * width), width, 0.0, work, shared) == -1


@compares("monitor_bets_read")
def monitors() -> None:
    rng = np.random.default_rng(4)
    for regions in (2, 6):
        monitor = Monitor(arl=200.0, warm=20, quiet=30, tolerance=0.05 * (regions == 2), regions=regions)
        p = rng.beta(0.6, 0.6, 20_000)
        bent = np.where(np.arange(20_000) % 3000 < 2000, p, 0.5 + 0.3 * (p - 0.5))
        y = (rng.random(20_000) < bent).astype(float)
        monitor.run(p[:15_000], y[:15_000], p[:15_000] ** 1.3)
        monitor.run(p[15_000:], y[15_000:])
        assert monitor.alarms


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
        assert (alarm.what, alarm.page, alarm.at >= 600) == (word, True, True)
    assert calibeat.Shift(arl=1e4, warm=256).run(np.tile([0.0, 1e-9, 1.0 - 1e-9, 1.0], 100)) == []
    delays = np.concatenate([rng.exponential(60.0, 600), rng.exponential(6e4, 100)])
    assert calibeat.Shift(arl=1e4, warm=256, of="delay").run(delays)[0].what == "higher"
    long = calibeat.Shift()
    long.run(rng.random(8500))
    assert long.row[shift.WEIGHT] == pytest.approx(shift.MEMORY)
    assert long.row[: shift.BINS].sum() == pytest.approx(shift.MEMORY)


@compares("monitor_silence_read_arrivals", "monitor_silence_ring_now", "monitor_silence_leave_from")
def silences() -> None:
    """Silences that ring at an arrival and by the clock, that last for months, and downtime before, in and after."""
    day, start = 86400.0, 1.7e9
    silence = calibeat.Silence()
    silence.away(start - day, start)
    assert silence.last is None  # nothing has come yet, so nothing was missed
    daily = start + day * np.arange(40.0)
    rang = silence.run([*daily, daily[-1] + 0.5, daily[-1] + 30.0 * day])
    assert [alarm.since for alarm in rang] == [daily[-1]]
    silence.run(daily[-1] + day * np.arange(31.0, 330.0))
    assert silence.row[EPOCH] > start + 100.0 * day  # the third: after half of the age
    last, before = silence.last, silence.deadline
    assert last is not None
    for _ in range(2):  # said again it changes nothing
        assert silence.away(last + 600.0, last + 600.0 + 2.0 * day) is None
        assert silence.deadline == pytest.approx(before + 2.0 * day, abs=600.0)
    assert silence.check(silence.deadline + 1.0) is not None
    assert silence.away(last + 20.0 * day, last + 21.0 * day) is None  # it rang before
    assert silence.is_open
    assert silence.arrive(last + 200.0 * day) is None
    assert (silence.count, silence.is_open) == (2, False)
    monthly = calibeat.Silence()
    assert monthly.run(start + 30.0 * day * np.arange(12.0)) == []
    assert monthly.deadline == start + (330.0 + 56.0) * day  # no longer, however rare they are


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
    assert notice.away(end + 60.0, end + 7200.0) == []
    silent = [(alarm.what, alarm.page) for alarm in notice.check(end + 10.0 * day)]
    assert silent == [("no forecasts", True), ("no outcomes", False)]
    assert notice.away(end + 11.0 * day, end + 12.0 * day) == []
    bank = Bank(OPS, notice=calibeat.Notice(arl=1e4, warm=256), threads=1)
    bank.run(np.arange(2000) % 2, scores, np.where(times < end - day, 1.0, np.nan), times=times)
    assert {alarm.what for _, alarm in bank.check(end + 10.0 * day) if alarm.page} == {"no forecasts"}
    # Rows: outcomes that stop, outcomes that never came, nothing at all.
    many, every = Notices(notice.settings), np.arange(3, dtype=np.int32)
    many.resize(3)
    nothing, answered, asked = np.full(2000, np.nan), np.zeros(2000, dtype=np.int32), np.ones(1000, dtype=np.int32)
    assert many.observe(answered, times, nothing, np.full(2000, 60.0)) == []
    ((_, alarm),) = many.observe(answered, times + (end - times[0]), scores[::-1].copy(), nothing)[:1]
    assert (alarm.what, alarm.page) == ("no outcomes", True)
    many.observe(asked, times[:1000], scores[:1000], nothing[:1000])
    assert many.deadlines(every)[1:].tolist() == [times[0] + 8.0 * day, np.inf]
    assert many.away(times[999], times[999] + day, every[1:]) == []
    assert many.deadlines(every)[1:].tolist() == [times[0] + 9.0 * day, np.inf]
    ((slot, alarm),) = many.check(times[0] + 9.0 * day, every[1:])
    assert (slot, alarm.what, alarm.page) == (1, "never an outcome", True)


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


@compares(
    "core_loops_run_grouped", "core_loops_run_grouped_late", "core_loops_predict_many", "core_groups_forget_touched"
)
def groups() -> None:
    for method, slots in ((AUTO, 64), (AUTO, 8), (calibeat.GAUTO, 64), (Method(AUTO.features, AUTO.learner), 64)):
        scores, outcomes, columns = group_streams.world(150, 4, 6)
        for due in (None, group_streams.delays(150, 20.0)):
            host = group_streams.Host(Groups(["a", "b", "c", "d"], cells=slots, seed=1), method)
            words = host.words(columns)
            host.run(scores, outcomes, words, due)
            host.predict_many(scores, words)
            calibeat.core.groups.forget_touched(host.table.cells)
            host.run(scores[:30], outcomes[:30], words)
    for due in (None, group_streams.delays(150, 20.0)):
        host = group_streams.Host(Groups(["a", "b", "c", "d"], cells=64, seed=1), AUTO)
        host.run(scores, outcomes, host.words(columns), due, raw_below=1)


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
