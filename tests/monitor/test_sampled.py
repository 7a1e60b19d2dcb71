"""Monitors of a log that kept only some ones and zeros: their bets on every route, and how often they err."""

from __future__ import annotations

import copy
import json
import math
import pickle
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from monitors import same, small, stream

from calibeat import Bank, Calibrator, InvalidInput, Monitor
from calibeat.monitor.bets import ALARMS, COUNTED, FORECASTS, WEIGHTED, Settings
from calibeat.monitor.monitors import EVIDENCE, Monitors

Vector = np.ndarray[tuple[int], np.dtype[np.float64]]
KEPT = (1.0, 0.05)
EDGES = np.array([0.0, 5e-324, 1e-300, 0.5, 1.0 - 2.0**-53, 1.0])


def seen(p: Any, k1: float = 1.0, k0: float = 0.05) -> Any:
    """The probability of 1, given that the log kept the event."""
    return p * k1 / (p * k1 + (1.0 - p) * k0)


# ---- what it bets against ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [(1.0, 0.05), (0.3, 1.0)])
def test_the_same_bits_as_a_monitor_of_the_odds_in_the_log(kept: tuple[float, float]) -> None:
    p, y, s = stream()
    ours, plain = small(sampled=kept), small()
    assert ours.run(p, y, s) == plain.run(seen(p, *kept), y, seen(s, *kept))
    same(ours, plain)
    assert (ours.evidence, ours.level, ours.gain, ours.log_gain) == (
        (plain.evidence, plain.level, plain.gain, plain.log_gain)
    )
    other = small()
    other.run(p, y, s)
    assert ours.evidence != other.evidence and ours.gain != other.gain  # that of all events is another


@pytest.mark.parametrize("kept", [(1.0, 1.0), (0.05, 0.05), (5e-324, 5e-324)])
def test_a_log_that_keeps_both_alike_keeps_the_odds(kept: tuple[float, float]) -> None:
    p, y, s = (np.concatenate([column, edges]) for column, edges in zip(stream(), (EDGES, EDGES, EDGES), strict=True))
    y = np.round(y)
    ours, plain = small(sampled=kept), small()
    assert ours.run(p, y, s) == plain.run(p, y, s)
    same(ours, plain)


@pytest.mark.parametrize("kept", [(1.0, 5e-324), (5e-324, 1.0), (1e-200, 1e-300), (5e-324, 1e-323)])
def test_shares_near_zero_and_certain_forecasts(kept: tuple[float, float]) -> None:
    settings = Settings(sampled=kept)
    found = settings.seen(EDGES)
    assert found[0] == 0.0 and found[-1] == 1.0
    assert (found >= 0.0).all() and (found <= 1.0).all() and (np.diff(found) >= 0.0).all()
    share = float(Fraction(kept[0]) / (Fraction(kept[0]) + Fraction(kept[1])))
    assert found[3] == pytest.approx(share, rel=1e-12, abs=5e-324)
    monitor = Monitor(sampled=kept, warm=0)
    monitor.run(np.tile(EDGES, 2), np.repeat([0.0, 1.0], len(EDGES)), np.tile(EDGES[::-1], 2))
    assert np.isfinite(monitor.row).all() and math.isfinite(monitor.evidence)
    same(Monitor.from_json(monitor.to_json()), monitor)


# ---- every route -------------------------------------------------------------------------------------------------


def test_events_and_batches_with_late_outcomes_are_the_run() -> None:
    p, y, s = stream(120)
    whole, single, late = (small(sampled=KEPT, patience=200) for _ in range(3))
    whole.run(p, y, s)
    numbers = [single.announce() for _ in p]
    for number in numbers[::-1]:
        single.update(number, p[number], y[number], s[number])
        if number == 60:  # outcomes that wait travel as they are
            single = pickle.loads(pickle.dumps(single))  # noqa: S301
    same(single, whole)
    late.run(p[:60], y[:60], s[:60], due=np.full(60, 60))
    late.run(p[60:], y[60:], s[60:], due=np.arange(60) + 1 + (np.arange(60) % 7))
    assert late.waiting.waiting > 0
    n, read = late.waiting.forecasts, late.outcomes
    short = small(sampled=KEPT)
    short.run(p[:read], y[:read], s[:read])
    assert n == 120 and late.evidence == short.evidence and late.alarms == short.alarms


@pytest.mark.parametrize("threads", [1, 3])
def test_batches_folds_and_files_of_a_bank(threads: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    scores, keys = rng.random(4_000), rng.integers(0, 9, 4_000)
    outcomes = (rng.random(4_000) < scores**2).astype(float)
    monitor = small(sampled=KEPT)
    batch, folded = Bank("ops", monitor=monitor, threads=threads), Bank("ops", monitor=monitor, threads=threads)
    forecasts = batch.run(keys, scores, outcomes)
    batch.save(tmp_path / "b.bank")
    for first in range(0, 4_000, 1_000):
        part = slice(first, first + 1_000)
        both = [np.repeat(column[part], 2) for column in (keys, scores, outcomes)]
        asked = np.tile([True, False], 1_000)
        both[2][asked] = np.nan
        folded.fold(*both, of=np.where(asked, -1, np.arange(2_000) - 1))
    loaded = Bank.load(tmp_path / "b.bank")
    assert loaded.watched == batch.watched == monitor.settings and loaded.watched is not None
    for key in range(9):
        own = keys == key
        alone = small()
        alone.run(seen(forecasts[own]), outcomes[own], seen(scores[own]))
        for bank in (batch, folded, loaded):
            np.testing.assert_array_equal(bank[key].monitor.row, alone.row)
    with pytest.raises(InvalidInput, match="banks must have the same watched"):
        batch.merge(Bank("ops", monitor=small()))


def test_a_calibrator_feeds_its_monitors_of_forecasts_and_of_scores() -> None:
    p, y, _ = stream()
    cal = Calibrator("ops", monitor={"ours": small(sampled=KEPT), "raw": small(sampled=KEPT)})
    forecasts = cal.run(p, y)
    ours, raw = small(), small()
    ours.run(seen(forecasts), y, seen(p))
    raw.run(seen(p), y)
    for found in (cal, copy.deepcopy(cal), Calibrator.from_json(cal.to_json())):
        for column, plain in (("ours", ours), ("raw", raw)):
            np.testing.assert_array_equal(found.monitors[column].row, plain.row)
            assert found.monitors[column].settings.sampled == KEPT


# ---- a setting like the others -----------------------------------------------------------------------------------


def test_it_is_one_of_the_settings() -> None:
    monitor = Monitor(sampled=KEPT)
    assert monitor.settings.sampled == KEPT and Monitor().settings.sampled is None
    assert monitor.settings == Settings(sampled=KEPT) != Settings()
    assert repr(monitor) == "Monitor(arl=1,000,000, sampled=(1.0, 0.05), outcomes=0, alarms=0, pages=0)"
    assert Monitor.from_json(monitor.to_json()).settings == monitor.settings
    assert json.loads(monitor.to_json())["settings"]["sampled"] == [1.0, 0.05]
    assert Settings(sampled=[1, Decimal("0.05")]).sampled == KEPT  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "sampled",
    [
        0.05, True, "ab", (), (1.0,), (1.0, 0.05, 0.5), ((1.0, 0.5), 0.5), {1.0: 0.05}, np.float64(0.5),
        (1.0, 0.0), (0.0, 1.0), (1.0, -0.1), (1.0, 1.0 + 1e-9), (20, 1), (1.0, math.nan), (math.inf, 1.0),
        (True, 0.05), (1.0, None), (1.0, "0.05"),
    ],
)  # fmt: skip
def test_what_is_refused(sampled: Any) -> None:
    wanted = r"sampled must be two numbers in \(0, 1\], the shares of ones and of zeros that the log kept, got "
    with pytest.raises(InvalidInput, match=wanted):
        Monitor(sampled=sampled)


def test_weights_need_the_shares_and_counts_are_refused() -> None:
    Settings(sampled=KEPT).check_weights()
    with pytest.raises(InvalidInput) as refused:
        Settings().check_weights()
    assert str(refused.value) == WEIGHTED and "give Monitor(sampled=(k1, k0))" in WEIGHTED
    for settings in (Settings(), Settings(sampled=KEPT)):
        with pytest.raises(InvalidInput) as refused:
            settings.check_weights(counts=True)
        assert str(refused.value) == COUNTED


# ---- how often it errs -------------------------------------------------------------------------------------------


def logs(streams: int, n: int, r: float, shift: float) -> tuple[Any, Any]:
    """Forecasts that are `shift` logits too low, and outcomes, of the events that are left when one zero in r is kept.

    A row each.
    """
    rng = np.random.default_rng(11)
    P, Y = np.empty((streams, n)), np.empty((streams, n))
    for p, y in zip(P, Y, strict=True):
        some = rng.beta(0.8, 49.0, int(1.2 * n / (0.016 + 0.984 / r)))  # ones are rare: that is where zeros are dropped
        ones = rng.random(len(some)) < some * math.exp(shift) / (1.0 - some + some * math.exp(shift))
        kept = np.flatnonzero(ones | (rng.random(len(some)) < 1.0 / r))[:n]
        p[:], y[:] = some[kept], ones[kept]
    return P, Y


def ever(P: Any, Y: Any, sampled: tuple[float, float] | None) -> tuple[float, float]:
    """The share of streams whose evidence ever reaches 20, looked at after every event, and their alarms."""
    monitors, streams = Monitors(Settings(arl=1_500, warm=0, sampled=sampled)), len(P)
    monitors.resize(streams)
    slots, highest = np.arange(streams, dtype=np.int32), np.zeros(streams)
    for p, y in zip(np.ascontiguousarray(P.T), np.ascontiguousarray(Y.T), strict=True):
        monitors.read_many(slots, (0, streams), p, y, p)
        np.maximum(highest, monitors.read_out(slots)[:, EVIDENCE], out=highest)
    assert (monitors.matrix[:streams, FORECASTS] == P.shape[1]).all()
    return float(np.mean(highest >= math.log(20.0))), float(monitors.matrix[:streams, ALARMS].mean())


@pytest.mark.slow
@pytest.mark.parametrize("r", [5.0, 20.0, 100.0])
def test_false_alarms_and_power_on_thinned_logs(r: float) -> None:
    streams, n, kept = 400, 1_500, (1.0, 1.0 / r)
    calm = logs(streams, n, r, 0.0)
    wrong, alarms = ever(*calm, kept)
    allowed = 0.05 + 3.0 * math.sqrt(0.05 * 0.95 / streams)
    assert wrong <= allowed and alarms <= 1.2  # 1 alarm a stream is allowed at this arl
    assert ever(*calm, None)[0] > 0.99  # who ignores that zeros were dropped is always wrong
    found, _ = ever(*logs(streams, n, r, 0.5), kept)
    assert found > 0.9
