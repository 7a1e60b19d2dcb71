"""The theorems beside what was observed: bounds that hold for any scores and outcomes, and how far off they were."""

from __future__ import annotations

import math
from dataclasses import replace

from calibeat import bounds
from calibeat.backtest.replay.engine import Replayed, Runner
from calibeat.core.calibeating import Hedging, Tracking
from calibeat.core.guard import Guard
from calibeat.core.method import AUTO, HOPS, OPS, TOPS, Method, name_of
from calibeat.report.schema import Certificate

from .measures import number, overall


def certificates(replayed: Replayed) -> list[Certificate]:
    """One entry for each theorem whose methods were replayed; none for keyed streams, each of which is its own."""
    T = replayed.blocks.labelled
    if replayed.keyed or T < 10:
        return []
    if replayed.numbers > 1:
        return _classes(replayed, replayed.numbers, T)
    ops, tops, hops, auto = (_runner(replayed, method) for method in (OPS, TOPS, HOPS, AUTO))
    applies = (
        "It holds for any sequence of outcomes that arrive at once, as here."
        if replayed.delays is None
        else "It is proved for outcomes that arrive at once; here they were late, and nothing is promised."
    )
    listed: list[Certificate] = []
    best = replayed.scores.least_loss(OPS, warmup=True)
    if ops is not None and best is not None:
        listed.append(_regret(replayed, ops, best, T))
    if ops is not None and auto is not None:
        statement = "AUTO loses at most ln 18 + (3/4) ln T + 0.73 + 1e-7 T nats to OPS"
        gap = total_loss(replayed, auto) - total_loss(replayed, ops)
        listed.append(_entry(replayed, auto, "log-loss", statement, bounds.auto_loss(T), gap, applies))
    if ops is not None and tops is not None and _same_bins(replayed, TOPS):
        statement = "SHP of TOPS is at least SHP of OPS less e + e²/4 + (log T + 1)/(e T) (Theorem 3.1)"
        gap, bound = (
            _all(replayed, ops)["shp"] - _all(replayed, tops)["shp"],
            bounds.tops_sharpness(1 / replayed.bins, T),
        )
        listed.append(_entry(replayed, tops, "sharpness", statement, bound, gap, applies))
    if ops is not None and hops is not None and _same_bins(replayed, HOPS):
        listed += _hops(replayed, ops, hops, T, applies)
    for runner in replayed.runners:
        if isinstance(runner.method, Method) and runner.method.guard is not None:
            listed += _guard(replayed, runner, runner.method, runner.method.guard, T, applies)
    return listed


def _hops(replayed: Replayed, ops: Runner, hops: Runner, T: int, applies: str) -> list[Certificate]:
    eps = 1.0 / replayed.bins
    applies = f"In expectation over its draws. {applies}"
    mine, theirs = _all(replayed, hops), _all(replayed, ops)
    return [
        _entry(replayed, hops, what, statement, bound, observed, applies, in_expectation=True)
        for what, statement, bound, observed in (
            (
                "calibration error",
                "CE of HOPS is at most e/2 + 2 sqrt(1/(e² T)) (Theorem 3.2)",
                bounds.hops_calibration(eps, T),
                mine["ce"],
            ),
            (
                "sharpness",
                "SHP of HOPS is at least SHP of OPS less e + (log T + 1)/(e² T) (Theorem 3.2)",
                bounds.hops_sharpness(eps, T),
                theirs["shp"] - mine["shp"],
            ),
            (
                "Brier score",
                "Brier of HOPS is at most Brier of OPS + 2e + e²/4 + (log T + 1)/(e² T) (Theorem D.3)",
                bounds.hops_brier(eps, T),
                mine["brier"] - theirs["brier"],
            ),
        )
    ]


def _classes(replayed: Replayed, K: int, T: int) -> list[Certificate]:
    """The two theorems of MULTI; two classes are AUTO's, whose theorem is about OPS."""
    runners = {runner.name: runner for runner in replayed.runners}
    if "multi" not in runners or K == 2:
        return []
    late = replayed.delays is not None or replayed.never > 0
    applies = (
        "It is proved for labels that arrive at once; here some were late, and nothing is promised."
        if late
        else "It holds for any sequence of labels that arrive at once, as here."
    )
    guard = "MULTI loses at most ln 2 + (1/4) ln T + 0.204 + K T 1e-7 nats to OTS"
    lanes = "MULTI loses at most ln 72 + (5/4) ln T + 1.14 + (K+1) T 1e-7 nats to raw"
    listed: list[Certificate] = []
    for other, bound, theorem in (("ots", bounds.multi_guard(K, T), guard), ("raw", bounds.multi_loss(K, T), lanes)):
        if other in runners:
            observed = total_loss(replayed, runners["multi"]) - total_loss(replayed, runners[other])
            found = _entry(replayed, runners["multi"], "log-loss", theorem, bound, observed, applies)
            statement = f"{theorem}, over all {T:,} labels, warm-up included (docs/multiclass.md)"
            listed.append({**found, "statement": statement, "promised": not late})
    return listed


def _guard(replayed: Replayed, runner: Runner, method: Method, guard: Guard, T: int, applies: str) -> list[Certificate]:
    """Calibration over its bins; losses beside its expert, if that was replayed."""
    applies = f"In expectation over its draws. {applies}"
    mine, found = _all(replayed, runner), list[tuple[str, str, float, float]]()
    name = name_of(method)
    name = name.upper() if name else runner.name
    if guard.bins == replayed.bins:
        bound = bounds.guard_calibration(T, guard.bins, guard.slack, guard.spring)
        found.append(
            ("calibration error", f"CE of {name}, whoever chooses the outcomes (Theorem 1)", bound, mine["ce"])
        )
    expert = _runner(replayed, replace(method, guard=None))
    if expert is not None:
        excess = total_loss(replayed, runner) - total_loss(replayed, expert)
        statement = f"log-loss of {name} is at most that of its expert + ln(G / 2 lam) nats (Theorem 2)"
        found.append(("log-loss", statement, bounds.guard_log_loss(T, guard.spring), excess))
        excess = T * (mine["brier"] - _all(replayed, expert)["brier"])
        statement = f"total Brier score of {name} is at most that of its expert + 2 ln(G / 2 mu) (Theorem 2)"
        found.append(("Brier score", statement, bounds.guard_brier(T, guard.spring), excess))
    return [
        _entry(replayed, runner, what, f"{statement}, docs/guard.md", bound, observed, applies, in_expectation=True)
        for what, statement, bound, observed in found
    ]


def _regret(replayed: Replayed, ops: Runner, best: tuple[float, tuple[float, ...]], T: int) -> Certificate:
    loss, theta = best
    B = min(700.0, max(1.0, math.hypot(*theta)))
    applies = (
        "The theorem wants scores in [0.01, 0.99] and its own step size; OPS here has the step size of the paper's "
        "experiments, so this is a yardstick and not a promise."
        + ("" if replayed.delays is None else " Outcomes were late besides.")
    )
    statement = f"regret of ONS against the best of |theta| <= B is at most 2 (e^B + 10 B) log T + 1, B = {B:.2f}"
    observed, bound = total_loss(replayed, ops) - loss, bounds.ons_regret(B, T)
    return {
        **_entry(replayed, ops, "regret", f"{statement} (Theorem 2.1)", bound, observed, applies),
        "promised": False,
    }


def _runner(replayed: Replayed, method: object) -> Runner | None:
    return next((runner for runner in replayed.runners if runner.method == method), None)


def _same_bins(replayed: Replayed, method: Method) -> bool:
    calibeater = method.calibeater
    return isinstance(calibeater, (Tracking, Hedging)) and calibeater.bins == replayed.bins


def _all(replayed: Replayed, runner: Runner) -> dict[str, float]:
    used = replayed.blocks.used
    return overall(runner.tally.cells(used), runner.tally.sums(used))


def total_loss(replayed: Replayed, runner: Runner) -> float:
    """The log-loss of all events without the clip: the theorems are about forecasts as they were made."""
    return float(runner.tally.sums(replayed.blocks.used)[:, 0].sum() + runner.tally.running[2])


def _entry(
    replayed: Replayed,
    runner: Runner,
    what: str,
    statement: str,
    bound: float,
    observed: float,
    applies: str,
    *,
    in_expectation: bool = False,
) -> Certificate:
    return {
        "method": runner.name,
        "what": what,
        "statement": f"{statement}, over all {replayed.blocks.labelled:,} events, warm-up included",
        "bound": bound,
        "observed": number(observed),  # OPS may have given what happened no chance at all
        "holds": observed <= bound,
        "promised": replayed.delays is None,
        "in_expectation": in_expectation,
        "applies": applies,
    }
