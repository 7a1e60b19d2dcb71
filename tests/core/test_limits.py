"""Limits of rows: no row that a stream can reach is refused, by any door; a number outside its limits is, by name."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from banks import IN_A_ROW, OTHERS, with_array

from calibeat import (
    AIOLI,
    AUTO,
    GAUTO,
    HOPS,
    OGD,
    ONS,
    OPS,
    TOPS,
    Bank,
    Beta,
    Calibrator,
    Guard,
    Hedging,
    InvalidInput,
    Lanes,
    Method,
    MultiBank,
    MultiCalibrator,
    Platt,
    SnapshotMismatch,
    Spline,
    Temperature,
    Tracking,
)
from calibeat._util.sealed import checksum
from calibeat.core import layout, vector
from calibeat.core.limits import MOST_TRIALS, MOST_WEIGHT, check_row, check_rows, limits_of
from calibeat.core.method import PRESETS
from calibeat.core.spline import SCORE_OFFSETS
from calibeat.core.stats import RAW_LOG_LOSS, STATS
from calibeat.core.vector import VectorMethod
from calibeat.hosts.groups import Groups, GroupTable

SHARP = 1e-15  # the smallest clip
EXTREME = {
    "sharp platt": Method(Platt(clip=SHARP), ONS(rho=1e-10, gamma=1e-10)),
    "sharp beta": Method(Beta(clip=SHARP), ONS(rho=1e-10, gamma=1e-3, radius=1e10), Spline()),
    "blunt platt": Method(Platt(clip=0.499), ONS(), Tracking(bins=1000)),
    "sharp aioli": Method(Temperature(clip=SHARP), AIOLI(lam=1e-10), Hedging(bins=3, groups=50)),
    "beta aioli": Method(Beta(clip=SHARP), AIOLI(), Tracking(prior=1e10)),
    "wide ogd": Method(Platt(clip=SHARP), OGD(diameter=1e10), Spline(), Guard(slack=0)),
    "sharp lanes": Method(Beta(clip=SHARP), Lanes(), Spline(), Guard(bins=100)),
    "few lanes": Method(Beta(), Lanes(horizon=False), Tracking(bins=1)),
    "scaling alone": Method(Platt(start=(-3.0, 1e10))),
}
METHODS = {**PRESETS, **OTHERS, **EXTREME}
MULTI = VectorMethod("multi", 4)
CLASSES = [VectorMethod(name, K) for name in vector.CODES for K in (3, 64, 65)]
EDGES = [0.0, 1.0, 5e-324, 1.0 - 2.0**-53, 1e-300, SHARP, 1e-7, 1e-5, 1.0 - 1e-5, 0.3, 0.5, 0.999]


def streams(n: int, seed: int = 1) -> Iterator[tuple[Any, Any]]:
    rng = np.random.default_rng(seed)
    edges, anywhere = rng.choice(EDGES, n), rng.random(n)
    z = rng.normal(0.0, 20.0, (2, n))
    outliers, truth = 1.0 / (1.0 + np.exp(-z))
    yield edges, rng.integers(0, 2, n).astype(float)
    yield edges, (edges < 0.5).astype(float)  # the outcome that costs most
    yield anywhere, (anywhere < 0.5).astype(float)
    yield outliers, (rng.random(n) < truth).astype(float)
    yield np.zeros(n), np.ones(n)
    yield np.full(n, 0.3), np.arange(n) % 2.0
    turns = np.where(np.arange(n) // 300 % 2 == 0, 1.0 - 2.0**-53, 5e-324)
    yield turns, (turns < 0.5).astype(float)


def due_within(n: int, late: int, seed: int = 2) -> dict[str, Any]:
    """Arguments of `run` under which outcomes are up to `late` events late."""
    if late == 0:
        return {}
    return {"due": np.minimum(np.arange(n) + 1 + np.random.default_rng(seed).integers(0, late, n), n)}


def scores_of_classes(n: int, K: int, spread: float, seed: int = 3) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    z = rng.normal(0.0, spread, (n, K))
    p = np.exp(z - z.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    return p, np.where(rng.random(n) < 0.5, p.argmin(axis=1), rng.integers(0, K, n))


def resealed(text: str, **changes: Any) -> str:
    """A snapshot with other content and the right checksum, as a forger would write it."""
    state = {**json.loads(text), **changes}
    del state["checksum"]
    return json.dumps({**state, "checksum": checksum(state)})


# ---- what streams reach ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
@pytest.mark.filterwarnings("ignore")  # some fits end on their ball
@pytest.mark.parametrize("late", [0, 7, 400])
def test_no_row_of_a_calibrator_is_refused(method: Method, late: int) -> None:
    n = 1500
    for scores, outcomes in streams(n):
        calibrator = Calibrator(method, seed=1)
        calibrator.run(scores, outcomes, **due_within(n, late))
        other = Calibrator.from_json(calibrator.to_json())
        assert np.array_equal(other.row, calibrator.row)


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
@pytest.mark.filterwarnings("ignore")
def test_no_row_is_refused_whoever_chooses_the_outcomes(method: Method) -> None:
    """Each outcome is the one that the forecast did not expect; the first ones come late."""
    rng = np.random.default_rng(4)
    calibrator, waiting = Calibrator(method, seed=1), []
    for i in range(300):
        forecast = calibrator.predict(float(rng.choice(EDGES) if i % 2 else rng.random()))
        waiting.append(forecast)
        for open_forecast in waiting if i % 20 == 19 or i > 200 else ():
            calibrator.update(open_forecast, 0 if open_forecast.probability > 0.5 else 1)
        waiting = [] if i % 20 == 19 or i > 200 else waiting
        check_row(method, np.array(calibrator.row), calibrator.events)


@pytest.mark.parametrize("method", IN_A_ROW.values(), ids=IN_A_ROW)
@pytest.mark.parametrize("prior", [None, "pooled"])
def test_no_row_of_a_bank_is_refused(method: Method, prior: str | None, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    bank, other = Bank(method, prior=prior, seed=1), Bank(method, prior=prior, seed=1)
    for scores, outcomes in streams(900):
        keys = np.minimum(rng.geometric(0.05, 900), 50 + rng.integers(0, 50, 900))
        bank.run(keys, scores, outcomes, **due_within(900, 30))
    bank.predict(1000, 0.0)
    keys = list(bank)
    other.set_rows(keys, bank.rows(keys))
    assert np.array_equal(other.rows(keys), bank.rows(keys))
    if prior is not None:
        other.pool = bank.pool
    bank.save(tmp_path / "bank")
    assert np.array_equal(Bank.load(tmp_path / "bank").rows(keys), bank.rows(keys))


@pytest.mark.parametrize("kept", [(1.0, 0.05), (0.3, 0.1), (0.05, 1.0)])
def test_no_row_of_a_thinned_log_is_refused(kept: tuple[float, float], tmp_path: Path) -> None:
    """Each zero stands for more events than a one, or for fewer."""
    bank = Bank(replace(AUTO, kept=kept))
    bank.run(np.zeros(300, dtype=int), np.full(300, 0.9), np.zeros(300))
    bank.set_rows([0], bank.rows([0]))
    bank.save(tmp_path / "bank")
    assert np.array_equal(Bank.load(tmp_path / "bank").rows([0]), bank.rows([0]))


@pytest.mark.parametrize("K", [2, 3, 20, 65])
@pytest.mark.parametrize("name", vector.CODES)
@pytest.mark.parametrize("late", [0, 60])
def test_no_row_of_many_classes_is_refused(name: str, K: int, late: int, tmp_path: Path) -> None:
    n = 400
    for spread in (0.5, 5.0, 40.0, 400.0):
        scores, labels = scores_of_classes(n, K, spread)
        calibrator = MultiCalibrator(K, method=name)
        calibrator.run(scores, labels, **due_within(n, late))
        assert MultiCalibrator.from_json(calibrator.to_json()).to_json() == calibrator.to_json()
        bank = MultiBank(K, method=name)
        bank.run(np.arange(n) % 7, scores, labels, **due_within(n, late))
        bank.save(tmp_path / "bank")
        other = MultiBank.load(tmp_path / "bank")
        other.set_rows(list(bank), bank.rows(list(bank)))


def test_a_score_above_one_by_a_rounding_has_a_loss_below_zero() -> None:
    bank = MultiBank(2, method="raw")
    bank.run([1] * 50, [[1.0 + 5e-13, 0.0]] * 50, [0] * 50)
    rows = bank.rows([1])
    assert rows[0, RAW_LOG_LOSS - STATS] < 0.0
    bank.set_rows([1], rows)


def grouped(n: int = 3000, cells: int = 64, late: int = 0) -> Calibrator:
    """So few cells that many are evicted."""
    rng = np.random.default_rng(6)
    calibrator = Calibrator(GAUTO, seed=1, groups=Groups(["a", "b", "c"], cells=cells))
    scores, outcomes = rng.choice(EDGES, n), rng.integers(0, 2, n).astype(float)
    values = {"a": rng.integers(0, 3, n), "b": rng.integers(0, 40, n), "c": rng.integers(0, 400, n)}
    calibrator.run(scores, outcomes, groups=values, **due_within(n, late))
    return calibrator


@pytest.mark.parametrize("late", [0, 50])
def test_no_row_with_groups_is_refused(late: int) -> None:
    for cells in (64, 4096):
        calibrator = grouped(3000, cells, late)
        assert Calibrator.from_json(calibrator.to_json()).to_json() == calibrator.to_json()


# ---- what they do not reach ------------------------------------------------------------------------------------------


def learnt(method: Any) -> Any:
    """A row, and its stats, of a stream that has learnt."""
    rows: Any
    if isinstance(method, VectorMethod):
        many = MultiBank(method.classes, method=method.name)
        many.run([1] * 30, *scores_of_classes(30, method.classes, 1.0), **due_within(30, 5))
        rows = many.rows([1])
    elif method.needs_history:
        scores, outcomes = next(streams(2500))
        calibrator = Calibrator(method)
        calibrator.run(scores, outcomes)
        rows = np.array([[*calibrator.row, calibrator.events, *[0.0] * (STATS - 1)]])
    else:
        bank = Bank(method)
        bank.run([1] * 30, *next(streams(30)), **due_within(30, 5))
        rows = bank.rows([1])
    return rows[0]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", [*METHODS.values(), *CLASSES], ids=[*METHODS, *map(repr, CLASSES)])
def test_each_number_is_refused_outside_its_limits(method: Any) -> None:
    row, found = learnt(method), limits_of(method)
    assert len(found) == len(row) == method.width + STATS
    check_row(method, method.initial_row(), 0.0)
    good = np.stack([row, row, row])
    check_rows(method, good, 1e9)
    n, bounds = row[layout.N], found.bounds
    columns = range(len(found)) if len(found) < 1000 else np.random.default_rng(7).integers(0, len(found), 300)
    for at in columns:
        grown = n * MOST_WEIGHT * MOST_TRIALS if at == layout.TOTAL else n  # a row with a total had weights
        low, high = bounds.low[at] - bounds.falls[at] * n, bounds.high[at] + bounds.rises[at] * grown
        high = 1e9 if found.name(at) == "a last event" else high
        for value in (math.nan, math.inf, -math.inf, 1e308, -1e308, np.nextafter(low, -9e9), high + 1e-7 * abs(high)):
            bad = good.copy()
            bad[1, at] = value
            if low <= value <= high:
                continue  # where it is too small to be added
            with pytest.raises(InvalidInput) as error:
                check_rows(method, bad, 1e9)
            where = re.fullmatch(r"rows must have (.*) in \[.*\], got (.*) - at row 1", str(error.value))
            assert where is not None, error.value
            assert where[1] == found.name(at)
            assert where[2] == repr(float(value))


@pytest.mark.parametrize(
    ("method", "at", "value", "message"),
    [
        (OPS, layout.THETA, 1e308, "theta in [-100, 100], got 1e+308"),
        (OPS, layout.THETA + 2, 99.0, "A in [100, "),
        (OPS, layout.THETA + 3, 1e5, "A in [-"),
        (TOPS, layout.SUM, 31.0, "sums of weights in [0, 26], got 31.0"),
        (TOPS, layout.CLIPPED, 0.5, "clipped weights as a whole number, got 0.5"),
        (TOPS, layout.CLIPPED, 27.0, "clipped weights in [0, 26], got 27.0"),
        (TOPS, TOPS.spec.cells, -1.0, "a sum of outcomes in [0, 2e+13], got -1.0"),
        (TOPS, TOPS.spec.cells + 1, 1e14, "a count of outcomes in [0, 2e+13], got 100000000000000.0"),
        (HOPS, HOPS.spec.cells + 1, 51.0, "a count of outcomes in [0, 26], got 51.0"),
        (TOPS, layout.N, 29.5, "outcomes as a whole number, got 29.5"),
        (TOPS, layout.N, 31.0, "outcomes in [0, 28], got 31.0"),
        (TOPS, layout.T, 31.0, "events at the last outcome in [0, 30], got 31.0"),
        (AUTO, layout.WEIGHT, 0.9, "weights of lanes that sum to 1, got "),
        (AUTO, -layout.HORIZON_WIDTH, 0.9, "weights of lanes that sum to 1, got "),
        (AUTO, layout.COV_AC + 1, 0.26, "covariances of lanes in [-0."),
        (AUTO, layout.MEAN_LAG, 31.0, "a mean lag in [0, 26], got 31.0"),
        (AUTO, AUTO.spec.cells, 0.99, "weights of splines that sum to 1, got "),
        (AUTO, layout.THETA, 1e300, "parameters of lanes in [-1e+09, 1e+09], got 1e+300"),
        (AUTO, layout.VAR_A, -1.0, "covariances of lanes in [0, 1.1], got -1.0"),
        (AUTO, AUTO.spec.cells + SCORE_OFFSETS, -1000.0, "knots in [-700, 700], got -1000.0"),
        (AUTO, AUTO.spec.evidence + 1, 0.0, "evidence in [1e-100, 1e+100], got 0.0"),
        (MULTI, layout.SUM, 53.0, "sums of weights in [0, 52"),
        (MULTI, vector.W, 0.9, "weights of lanes that sum to 1, got "),
        (MULTI, vector.Z, 2.0, "weights of the spline in ["),
        (MULTI, vector.SLOPE, 101.0, "a slope in [-100, 100], got 101.0"),
        (MULTI, vector.BIAS, 1e10, "biases in ["),
        (MULTI, vector.late_at(4) + vector.TEMPER, 0.5, "temper in [1, "),
        (MULTI, vector.late_at(4) + vector.ETA, 1e10, "eta in ["),
        (MULTI, MULTI.width - 1, math.nan, "evidence in [1e-100, 1e+100], got nan"),
    ],
)
def test_what_is_wrong_is_said(method: Any, at: int, value: float, message: str) -> None:
    row = learnt(method)
    row[at - STATS if at < 0 else at] = value
    with pytest.raises(InvalidInput) as error:
        check_rows(method, row[None], 1e9)
    assert str(error.value).startswith(f"rows must have {message}")
    assert str(error.value).endswith(" - at row 0")
    with pytest.raises(InvalidInput) as alone:
        check_row(method, row[:-STATS], row[-STATS])
    assert str(alone.value) == str(error.value).replace("rows", "row").replace(" - at row 0", "")


def test_ones_cannot_be_more_than_outcomes() -> None:
    row, cells = learnt(TOPS), TOPS.spec.cells
    used = cells + 2 * int(np.flatnonzero(row[cells + 1 : -STATS : 2])[0])
    row[used] = row[used + 1] + 1.0
    with pytest.raises(InvalidInput, match=rf"a sum of outcomes in \[0, {row[used + 1]:g}\], got {row[used]:.1f}"):
        check_rows(TOPS, row[None], 1e9)


def test_the_first_bad_row_is_named() -> None:
    rows = np.tile(learnt(GAUTO), (50, 1))
    rows[[31, 7, 40], [3, 90, 0]] = math.nan
    with pytest.raises(InvalidInput, match=r"got nan - at row 7$"):
        check_rows(GAUTO, rows, 1e9)


@pytest.mark.parametrize("method", [OPS, TOPS, AUTO, PRESETS["hops"], PRESETS["gops"]], ids=repr)
def test_every_door_refuses_the_same(method: Method, tmp_path: Path) -> None:
    bank = Bank(method, prior="pooled")
    bank.run([1, 2, 3] * 10, *next(streams(30)))
    bank.save(tmp_path / "good")
    whole, good = (tmp_path / "good").read_bytes(), bank.rows([1, 2, 3])
    calibrator = Calibrator(method)
    calibrator.run(*next(streams(30)))
    text, found = calibrator.to_json(), limits_of(method)
    for at in range(method.width):
        bad, name = good.copy(), re.escape(found.name(at))
        bad[2, at] = 1e308
        named = rf"rows must have {name} in \[.*\], got 1e\+308 - at row 2"
        with pytest.raises(InvalidInput, match=named):
            bank.set_rows([1, 2, 3], bad)
        (tmp_path / "bad").write_bytes(with_array(whole, "rows", bad))
        with pytest.raises(SnapshotMismatch, match=named):
            Bank.load(tmp_path / "bad")
        alone = rf"row must have {name} in \[.*\], got 1e\+308"
        with pytest.raises(InvalidInput, match=alone):
            bank.pool = bad[2, : method.width]
        (tmp_path / "bad").write_bytes(with_array(whole, "pool", bad[2, : method.width]))
        with pytest.raises(SnapshotMismatch, match=alone):
            Bank.load(tmp_path / "bad")
        row = [*calibrator.row]
        row[at] = 1e308
        with pytest.raises(SnapshotMismatch, match=alone):
            Calibrator.from_json(resealed(text, row=row))
    assert np.array_equal(bank.rows([1, 2, 3]), good)


def test_each_number_of_groups_is_refused_outside_its_limits() -> None:
    calibrator = grouped(500)
    text, row = calibrator.to_json(), np.array(calibrator.row)
    found = limits_of(GAUTO, calibrator._rows.table.groups)  # type: ignore[union-attr]  # it has groups
    for at in range(GAUTO.width, len(row)):
        for value in (1e308, -1e308):
            bad = row.copy()
            bad[at] = value
            with pytest.raises(
                SnapshotMismatch, match=rf"row must have {found.name(at)} in .*, got {value!r}".replace("+", r"\+")
            ):
                Calibrator.from_json(resealed(text, row=bad.tolist()))


def test_each_number_of_a_cell_is_refused_outside_its_limits() -> None:
    calibrator = grouped(500)
    table: GroupTable = calibrator._rows.table  # type: ignore[assignment]  # it has groups
    slots, row = table.occupied(), calibrator.row
    held = table.read_slots(slots)
    table.check_slots(slots, held, row)
    for at in range(held["numbers"].shape[1]):
        for value in (math.nan, math.inf, 1e300, -1e300):
            bad = held.copy()
            bad["numbers"][3, at] = value
            with pytest.raises(
                InvalidInput, match=rf"cells must have .* in \[.*\], got {value!r} - at cell 3".replace("+", r"\+")
            ):
                table.check_slots(slots, bad, row)


def test_parts_declare_their_own_limits() -> None:
    """A wider ball has wider limits."""
    wide = replace(OPS, learner=ONS(radius=1e4))
    row = learnt(OPS)
    row[layout.THETA] = 5e3
    check_rows(wide, row[None], 1e9)
    with pytest.raises(InvalidInput, match="theta in"):
        check_rows(OPS, row[None], 1e9)
