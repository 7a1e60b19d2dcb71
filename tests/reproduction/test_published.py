"""Exact where exactness is possible: the printed tables and the metrics over time, from stored scores."""

from __future__ import annotations

from dataclasses import replace

import golden
import numpy as np
import pytest

from calibeat import FTL, HOBS, HOPS, ONS, TOBS, TOPS, TWHB, Calibrator, Hedging, Method, Platt, Tracking, metrics
from reproduction import drifts, published, replay, section1

PUBLISHED_OPS = Method(Platt(start=(0.0, 0.0)), ONS())  # the published experiments start at 0


def printed(value: float, like: str) -> str:
    """As the paper prints it: as many digits as there."""
    return f"{value:.{len(like.partition('.')[2])}f}"


@pytest.mark.parametrize(
    ("stem", "kind", "frozen"), [("sec1_cov_seed0", "covariate", False), ("sec1_label_seed0", "label", True)]
)
def test_printed_tables_of_section_1(stem: str, kind: str, frozen: bool) -> None:
    g = golden.load(stem)
    a, b = section1.trajectory(PUBLISHED_OPS, g["scores"], g["y"])
    table = section1.table(g["score_train"], g["prob_train"], g["scores"], g["prob_stream"], a, b)
    rows = dict(zip(section1.ROWS, table, strict=True))
    ours = [rows[f"{name}, b frozen" if frozen and name.endswith("OPS") else name] for name in published.PRINTED_ROWS]
    np.testing.assert_allclose(ours, g["table"], rtol=0, atol=1e-9)
    compared = 0
    for (accuracy, ce), (their_accuracy, their_ce) in zip(ours, published.SECTION1[kind], strict=True):
        assert f"{accuracy:.2f}" == f"{their_accuracy:.2f}"
        assert printed(ce, str(their_ce)) == str(their_ce)
        compared += 2
    assert compared == 14
    if frozen:  # ours with b_t beside it: the algorithm itself is better than the printed rows
        for first, last in section1.WINDOWS:
            assert rows[f"{first}-{last} OPS"][1] < rows[f"{first}-{last} OPS, b frozen"][1]


def test_base_models_of_section_1() -> None:
    g = golden.load("sec1_label_seed0")
    score = drifts.base_model("label", g["x_train"], g["y_train"])
    np.testing.assert_allclose(score(g["x_stream"]), g["scores"], rtol=0, atol=1e-5)
    for stem, kind in (("sec1_cov_seed0", "covariate"), ("sec1_reg_seed0", "regression")):
        g = golden.load(stem)
        truth = drifts.probability(kind, g["x_stream"], np.arange(1000, 6000))
        np.testing.assert_allclose(truth, g["prob_stream"], rtol=0, atol=1e-12)


@pytest.mark.parametrize("stem", [stem for stem in golden.BATCHED if stem.startswith("real_fetal")])
def test_metrics_over_time(stem: str) -> None:
    """Fits and base model as published; what starts elsewhere (OPS at 0, ties of WHB) agrees at the end."""
    g = golden.load(stem)
    n, w = int(g["n_val"]), int(g["spacing"])
    run = replay.replay(g["scores"], g["y"], n, w)
    assert run.points.tolist() == g["eval_n"].tolist()
    at = {method: i for i, method in enumerate(replay.METHODS)}
    p = golden.ours(g["scores"][n:], 10)  # scores of 1000 trees often lie on an edge, which falls to the left there
    for ours, array in zip(replay.over_time(g["y"][n:], p, run.points - n, 10), ("ce_bm", "shp_bm"), strict=True):
        np.testing.assert_allclose(ours, g[array], rtol=0, atol=1e-12)
    for method in ("FPS", "WPS", "FBS", "WBS"):
        np.testing.assert_allclose(run.ce[at[method], 1], g[f"ce_{method.lower()}"], rtol=0, atol=2e-3)
        np.testing.assert_allclose(run.shp[at[method], 1], g[f"shp_{method.lower()}"], rtol=0, atol=2e-3)
    for method, array in (("OPS", "ops"), ("TOPS", "tops10"), ("OBS", "obs"), ("TOBS", "tobs10"), ("WHB", "whb")):
        assert run.ce[at[method], 1, -1] == pytest.approx(g[f"ce_{array}"][-1], abs=0.012), method


@pytest.fixture(scope="module")
def stream() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(4)
    scores = rng.random(900).round(2)
    return scores, (rng.random(900) < 0.2 + 0.5 * scores).astype(float)


def test_calibeating_the_forecasts_of_an_expert_is_the_method_of_three_parts(
    stream: tuple[np.ndarray, np.ndarray],
) -> None:
    scores, outcomes = stream
    run = replay.replay(scores, outcomes, 200, 50, seed=3, name="x")
    refit = FTL(every=50, after=200)
    for method in (TOPS, HOPS, TOBS, HOBS, replace(TWHB, learner=refit)):
        name = {TOPS: "TOPS", HOPS: "HOPS", TOBS: "TOBS", HOBS: "HOBS"}.get(method, "TWHB")
        for j, epsilon in enumerate(replay.EPSILONS):
            m = round(1 / epsilon)
            calibeater = Tracking(bins=m) if isinstance(method.calibeater, Tracking) else Hedging(bins=m)
            p = Calibrator(replace(method, calibeater=calibeater), seed=3, stream="x").run(scores, outcomes)[200:]
            i, y = replay.METHODS.index(name), outcomes[200:]
            assert run.ce[i, j, -1] == pytest.approx(metrics.calibration_error(y, p, bins=m), abs=1e-14), (name, m)
            assert run.shp[i, j, -1] == pytest.approx(metrics.sharpness(y, p, bins=m), abs=1e-14)
            assert run.brier[i, j] == pytest.approx(metrics.brier_score(y, p), abs=1e-14)
            assert run.log_loss[i, j] == pytest.approx(metrics.log_loss(y, p, clip=1e-5), abs=1e-14)


def test_metrics_at_every_point_are_those_of_the_events_so_far() -> None:
    rng = np.random.default_rng(0)
    y, p = (rng.random(103) < 0.4).astype(float), rng.random(103).round(1)  # many forecasts on the edges
    for m in (5, 10, 20):
        ends = np.array([1, 10, 11, 60, 103])
        ce, shp = replay.over_time(y, p, ends, m)
        for i, end in enumerate(ends):
            assert ce[i] == pytest.approx(metrics.calibration_error(y[:end], p[:end], bins=m), abs=1e-14)
            assert shp[i] == pytest.approx(metrics.sharpness(y[:end], p[:end], bins=m), abs=1e-14)


def test_points_of_the_plots() -> None:
    assert replay.points(11_000, 1000, 500)[[0, 1, -1]].tolist() == [2000, 2500, 11_000]
    assert replay.points(1530, 300, 100)[[0, -2, -1]].tolist() == [500, 1500, 1530]  # the end is a point, too
