"""The monitor: false alarms while nothing is wrong, delay when something breaks, beside other detectors; and its speed.

`python -m benchmarks monitor monitor-sampled`. probcal joins the table where it is installed (`pip install probcal`).
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from river import drift

from benchmarks import table, watch
from benchmarks.timing import always, interleaved
from calibeat import TOPS, Calibrator, Monitor
from calibeat.monitor.bets import ALARMS, Settings
from calibeat.monitor.monitors import EVIDENCE, Monitors

Floats = NDArray[np.float64]
Law = Callable[[np.random.Generator, int], Floats]
Find = Callable[[Floats, Floats], list[int]]  # forecasts, outcomes -> at which outcomes, from 1, it raised an alarm

LAWS: dict[str, Law] = {
    "uniform": lambda rng, n: rng.random(n),
    "beta(2,5)": lambda rng, n: rng.beta(2, 5, n),
    "rare, 1.6 %": lambda rng, n: rng.beta(0.8, 49, n),
    "U-shaped": lambda rng, n: rng.beta(0.3, 0.3, n),
    "nine values": lambda rng, n: rng.integers(1, 10, n) / 10,
    "exact 0 and 1": lambda rng, n: np.where(rng.random(n) < 0.3, rng.integers(0, 2, n), rng.random(n)),
    "near one half": lambda rng, n: 0.5 + 0.02 * (rng.random(n) - 0.5),
}


def _logit(p: Floats) -> Floats:
    q = np.clip(p, 1e-9, 1 - 1e-9)
    return np.log(q / (1 - q))


def _chance(z: Floats) -> Floats:
    return 1 / (1 + np.exp(-z))


# What the world does after the break: forecasts -> true chances.
BREAKS: dict[str, Callable[[Floats], Floats]] = {
    "rate +0.2": lambda p: _chance(_logit(p) + 0.2),
    "rate +1": lambda p: _chance(_logit(p) + 1.0),
    "rate -0.5": lambda p: _chance(_logit(p) - 0.5),
    "slope 0.6": lambda p: _chance(0.6 * _logit(p)),
    "slope 1.5": lambda p: _chance(1.5 * _logit(p)),
    "one region": lambda p: np.where((p >= 0.5) & (p < 0.8), _chance(_logit(p) - 1.0), p),
    "5 % flips": lambda p: 0.95 * p + 0.05 * (1 - p),
}


def peek(P: Floats, Y: Floats, warm: int, sampled: tuple[float, float] | None = None) -> tuple[Floats, Floats]:
    """Read streams, one a row, and look after every outcome -> the alarms of each, and its highest evidence ever."""
    monitors, streams = Monitors(Settings(arl=10_000, warm=warm, sampled=sampled)), len(P)
    monitors.resize(streams)
    slots, highest = np.arange(streams, dtype=np.int32), np.zeros(streams)
    for p, y in zip(np.ascontiguousarray(P.T), np.ascontiguousarray(Y.T), strict=True):
        monitors.read_many(slots, (0, streams), p, y, p)
        np.maximum(highest, monitors.read_out(slots)[:, EVIDENCE], out=highest)
    return monitors.matrix[:streams, ALARMS], highest


# ---- detectors ---------------------------------------------------------------------------------------------------


def by_monitor(arl: float, p: Floats, y: Floats) -> list[int]:
    """The monitor at its defaults but for arl."""
    return [int(alarm.at) for alarm in Monitor(arl=arl).run(p, y)]


def by_river(detector: str, p: Floats, y: Floats) -> list[int]:
    """A detector of river at its defaults: on the residual, or for DDM on the error of the decision."""
    made: Any = drift.binary.DDM() if detector == "DDM" else getattr(drift, detector)()
    values = (((p >= 0.5) != (y == 1.0)) if detector == "DDM" else y - p).tolist()
    found = []
    for i, value in enumerate(values):
        made.update(value)
        if made.drift_detected:
            found.append(i + 1)
    return found


def by_probcal(p: Floats, y: Floats) -> list[int]:
    """probcal's monitor, in batches of 100 with a window of 20: its alarm stays on, so there is one at most."""
    made = importlib.import_module("probcal.monitor").CalibrationMonitor(alpha=0.001, plug_in_window=20)
    p = np.clip(p, 1e-6, 1 - 1e-6)
    for first in range(0, len(p), 100):
        if made.update(y[first : first + 100], p[first : first + 100], label=str(first)).alarm:
            return [first + 100]
    return []


def has_probcal() -> bool:
    """Whether it is installed."""
    try:
        importlib.import_module("probcal.monitor")
    except ImportError:
        return False
    return True


# ---- tables ------------------------------------------------------------------------------------------------------


def monitor(*, quick: bool) -> None:
    """All of them."""
    false_alarms(quick=quick)
    detection(quick=quick)
    ageing(quick=quick)
    late(quick=quick)
    watch.keys(BREAKS, quick=quick)
    speed(quick=quick)
    watch.cost(quick=quick)


def false_alarms(*, quick: bool) -> None:
    """Calibrated streams, looked at after every outcome."""
    streams, n, rivals = (40, 10_000, 3) if quick else (400, 10_000, 20)
    rng = np.random.default_rng(1)
    lines = []
    for name, law in LAWS.items():
        alarms, ever, classical = np.zeros(2), np.zeros(2), np.zeros(2)
        others = dict.fromkeys(("ADWIN", "PageHinkley", "DDM"), 0)
        P, Y = np.empty((streams, n)), np.empty((streams, n))
        for p, y in zip(P, Y, strict=True):
            p[:] = law(rng, n)
            y[:] = rng.random(n) < p
            classical += _classical(p, y)
        for i, warm in enumerate((0, 1024)):
            found, highest = peek(P, Y, warm)
            alarms[i], ever[i] = found.sum(), np.count_nonzero(highest >= math.log(20.0))
        for p, y in zip(P[:rivals], Y[:rivals], strict=True):
            for rival in others:
                others[rival] += len(by_river(rival, p, y))
        lines.append(
            [
                name,
                *(f"{count / streams:.2f}" for count in alarms),
                *(f"{count / streams:.3f}" for count in ever),
                *(f"{count / streams:.2f}" for count in classical),
                *(f"{count / rivals:.2f}" for count in others.values()),
            ]
        )
    table.show(
        f"false alarms: {streams} calibrated streams of {n:,} outcomes for each law",
        [
            "scores",
            "alarms, warm 0",
            "alarms",
            "e >= 20, warm 0",
            "e >= 20",
            "gap z",
            "Spiegelhalter",
            "ADWIN",
            "Page-Hinkley",
            "DDM",
        ],
        lines,
        [
            "alarms per stream at arl 10,000: 1.00 is allowed.",
            "e >= 20: share of streams in which the evidence since the start ever says so: 0.05 is allowed.",
            "gap z, Spiegelhalter: share in which the classical test at 5 % ever rejects, from outcome 100 on.",
            f"River's detectors at their defaults: alarms per stream, {rivals} streams. They promise no rate.",
        ],
    )


def _classical(p: Floats, y: Floats) -> Floats:
    """Whether the z of the mean gap and Spiegelhalter's z ever pass 1.96."""
    gap, variance = np.cumsum(y - p), np.cumsum(p * (1 - p))
    turned = 1 - 2 * p
    other, spread = np.cumsum((y - p) * turned), np.cumsum(turned**2 * p * (1 - p))
    found = [np.abs(s[99:]) > 1.96 * np.sqrt(v[99:] + 1e-300) for s, v in ((gap, variance), (other, spread))]
    return np.array([test.any() for test in found], dtype=np.float64)


def detection(*, quick: bool) -> None:
    """Median outcomes from the break to the first alarm."""
    streams, calm, more = (8, 3_000, 10_000) if quick else (60, 3_000, 10_000)
    finders: dict[str, tuple[Find, int]] = {
        "arl 1e4": (partial(by_monitor, 1e4), streams),
        "arl 1e6": (partial(by_monitor, 1e6), streams),
        "ADWIN": (partial(by_river, "ADWIN"), max(4, streams // 3)),
        "Page-Hinkley": (partial(by_river, "PageHinkley"), max(4, streams // 3)),
        "DDM": (partial(by_river, "DDM"), max(4, streams // 3)),
    }
    if has_probcal():
        finders["probcal"] = (by_probcal, 2 if quick else 6)
    lines = []
    for law in ("uniform", "beta(2,5)", "rare, 1.6 %"):
        for name, after in BREAKS.items():
            cells = [law, name]
            for find, count in finders.values():
                rng, delays = np.random.default_rng(2), []
                for _ in range(count):
                    p = LAWS[law](rng, calm + more)
                    truth = np.where(np.arange(calm + more) < calm, p, after(p))
                    found = find(p, (rng.random(calm + more) < truth).astype(np.float64))
                    delays.append(next((at - calm for at in found if at > calm), math.inf))
                cells.append(_median(delays))
            lines.append(cells)
    table.show(
        f"delay: median outcomes to the alarm, break after {calm:,} calm outcomes",
        ["scores", "break", *finders],
        lines,
        [
            f"{streams} streams for the monitor, a third for river's detectors, {2 if quick else 6} for probcal.",
            f"In brackets: the share found within {more:,}, where not all are. never: fewer than half.",
            "ADWIN and Page-Hinkley look at the residual, DDM at the error of the decision.",
            "probcal looks at batches of 100; its alarm is at e >= 1000.",
        ],
    )


def _median(delays: list[float]) -> str:
    share = sum(map(math.isfinite, delays)) / len(delays)
    middle = sorted(delays)[(len(delays) - 1) // 2]
    said = f"{middle:,.0f}" if math.isfinite(middle) else "never"
    return said if share == 1.0 else f"{said} ({share:.2f})"


def ageing(*, quick: bool) -> None:
    """Why evidence since the start is no detector: it ages."""
    streams, more = (6, 10_000) if quick else (40, 20_000)
    lines = []
    for calm in (0, 1_000, 10_000, 50_000):
        cells = [f"{calm:,}"]
        for name in ("rate +1", "rate -0.5"):
            rng, detector, since = np.random.default_rng(3), [], []
            for _ in range(streams):
                p = rng.random(calm + more)
                y = (rng.random(calm + more) < np.where(np.arange(calm + more) < calm, p, BREAKS[name](p))) * 1.0
                made = Monitor(arl=100_000, warm=0)
                if calm:
                    made.run(p[:calm], y[:calm])
                first, rejected = math.inf, math.inf
                for at in range(calm, calm + more, 25):
                    alarms = made.run(p[at : at + 25], y[at : at + 25])
                    first = min(first, *(alarm.at - calm for alarm in alarms), math.inf)
                    if made.alarm(0.001):
                        rejected = min(rejected, at + 25.0 - calm)
                    if math.isfinite(first + rejected):
                        break
                detector.append(first)
                since.append(rejected)
            cells += [_median(detector), _median(since)]
        lines.append(cells)
    table.show(
        f"ageing: median outcomes to the alarm after a calm, uniform scores, {streams} streams",
        ["calm outcomes", "+1: detector", "since the start", "-0.5: detector", "since the start"],
        lines,
        [f"detector: arl 100,000. since the start: e >= 1000, looked at every 25. Found within {more:,}."],
    )


def late(*, quick: bool) -> None:
    """Late outcomes of calibrated forecasts, read as they arrive and in the order of forecasts; and storms."""
    streams, n = (10, 10_000) if quick else (100, 10_000)
    delays: dict[str, Callable[[np.random.Generator, Floats], Floats]] = {
        "random, mean 150": lambda rng, y: rng.geometric(1 / 150, len(y)).astype(np.float64),
        "ones 200, zeros 100": lambda _, y: np.where(y == 1.0, 200.0, 100.0),
        "ones at once, zeros after 1,000": lambda _, y: np.where(y == 1.0, 1.0, 1000.0),
    }
    lines = []
    for name, delay in delays.items():
        rng, alarms, ever = np.random.default_rng(5), np.zeros(2), np.zeros(2)
        P, Y = np.empty((2, streams, n)), np.empty((2, streams, n))  # as they arrive, and in the order of forecasts
        for stream in range(streams):
            p = rng.random(n)
            y = (rng.random(n) < p).astype(np.float64)
            arrived = np.argsort(np.arange(n) + delay(rng, y), kind="stable")
            P[0, stream], P[1, stream], Y[0, stream], Y[1, stream] = p[arrived], p, y[arrived], y
        for i in range(2):
            found, highest = peek(P[i], Y[i], warm=0)
            alarms[i], ever[i] = found.sum(), np.count_nonzero(highest >= math.log(20.0))
        cells = [f"{a / streams:.2f}" for a in alarms] + [f"{e / streams:.2f}" for e in ever]
        lines.append([name, cells[0], cells[2], cells[1], cells[3]])
    for warm in (0, 1024):
        rng, storms, told = np.random.default_rng(6), np.empty((streams, 3 * n)), np.empty((streams, 3 * n))
        for p, y in zip(storms, told, strict=True):
            p[:] = rng.random(3 * n)
            shock = np.repeat(rng.normal(0.0, 0.5, 3 * n // 100), 100)
            y[:] = rng.random(3 * n) < _chance(_logit(p) + shock)
        found, highest = peek(storms, told, warm=warm)
        cells = [f"{found.sum() / streams / 3:.2f}", f"{np.mean(highest >= math.log(20.0)):.2f}"]
        lines.append([f"storms of 100, warm {warm}", "", "", *cells])
    table.show(
        f"late outcomes and storms, {streams} streams: alarms per 10,000 outcomes (1.00 allowed), ever e >= 20 (0.05)",
        ["", "by arrival: alarms", "e >= 20", "by forecast: alarms", "e >= 20"],
        lines,
        [
            "arl 10,000. Delays: warm 0, 10,000 outcomes. The monitor reads by forecast.",
            "Storms: 30,000 outcomes; the logit of each 100 is moved together by a normal shock of sd 0.5.",
        ],
    )


def sampled(*, quick: bool) -> None:
    """Logs that kept every one and few zeros: false alarms of a monitor that knows it and of one that does not."""
    streams, n = (100, 1_500) if quick else (1_000, 1_500)
    lines = []
    for law in ("uniform", "beta(2,5)", "rare, 1.6 %"):
        for r in (5, 20, 100):
            rng, kept = np.random.default_rng(8), (1.0, 1.0 / r)
            calm, moved = (_thinned(rng, LAWS[law], change, streams, n, r) for change in (lambda p: p, _up))
            tried = ((*calm, 0, None), (*calm, 0, kept), (*moved, 0, kept))
            shares = [np.mean(peek(*each)[1] >= math.log(20.0)) for each in tried]
            lines.append([law, f"1 in {r}", f"{calm[1].mean():.2f}", *(f"{share:.3f}" for share in shares)])
    table.show(
        f"share of {streams:,} logs whose evidence ever reaches 20 within {n:,} events that were kept",
        ["scores", "zeros kept", "ones in the log", "calibrated: ignored", "sampled (0.05)", "+0.5 logit: sampled"],
        lines,
        ["All ones are kept: sampled=(1, 1/r). warm 0. 0.05 is allowed where the forecasts are calibrated."],
    )


def _up(p: Floats) -> Floats:
    return _chance(_logit(p) + 0.5)


def _thinned(
    rng: np.random.Generator, law: Law, change: Callable[[Floats], Floats], streams: int, n: int, r: int
) -> tuple[Floats, Floats]:
    """Forecasts and outcomes of the first n events that each log keeps: all ones, and one zero in r."""
    P, Y = np.empty((streams, n)), np.empty((streams, n))
    for row in range(streams):
        count = 0
        while count < n:
            some = law(rng, 10_000)
            ones = rng.random(len(some)) < change(some)
            kept = np.flatnonzero(ones | (rng.random(len(some)) < 1.0 / r))[: n - count]
            P[row, count : count + len(kept)], Y[row, count : count + len(kept)] = some[kept], ones[kept]
            count += len(kept)
    return P, Y


def _by_event(p: list[float], y: list[int]) -> None:
    made = Monitor()
    for forecast, outcome in zip(p, y, strict=True):
        made.update(made.announce(), forecast, outcome)


def speed(*, quick: bool) -> None:
    """CPU time per outcome beside TOPS's `run`."""
    events, few, repeats = (300_000, 5_000, 3) if quick else (3_000_000, 20_000, 5)
    rng = np.random.default_rng(4)
    p = rng.random(events)
    y = (rng.random(events) < p).astype(np.float64)
    raw = np.clip(p + 0.1 * rng.normal(size=events), 0.0, 1.0)
    sides = {
        "TOPS, run": always(lambda: Calibrator(TOPS).run(p, y)),
        "Monitor, run": always(lambda: Monitor().run(p, y)),
        "Monitor, run with gain": always(lambda: Monitor().run(p, y, raw)),
        "Monitor, run, 2 regions": always(lambda: Monitor(regions=2).run(p, y)),
    }
    best = interleaved(sides, repeats)
    short = p[:few].tolist(), y[:few].astype(int).tolist()
    slow = {
        "Monitor, announce + update": always(_by_event, *short),
        "river ADWIN, update": always(by_river, "ADWIN", p[:few], y[:few]),
    }
    best |= {name: t * events / few for name, t in interleaved(slow, repeats).items()}
    base, goal = best["TOPS, run"], 2.2
    table.show(
        f"monitor: time per outcome, {events:,} outcomes",
        ["", "ns", "times TOPS", "goal", ""],
        [
            [name, table.nanoseconds(t, events), f"{t / base:.2f}"]
            + ([f"{goal}", table.verdict(met=t <= goal * base)] if ", run" in name and "TOPS" not in name else ["", ""])
            for name, t in best.items()
        ],
        [f"CPU time, best of {repeats} interleaved; by event: {few:,} outcomes."],
    )
