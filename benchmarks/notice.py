"""What `Silence`, `Shift` and `Notice` cost, and what they do on simulated streams: `python -m benchmarks notice`.

Silence: streams of a year of each kind. The arrivals stop at twelve random places of each; the delay is that from the
last arrival to the deadline. Shift: false alarms at arl 10,000, and how soon a fault is found at the defaults.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from time import process_time

import numpy as np
from numpy.typing import NDArray

from benchmarks import table
from benchmarks.timing import always, interleaved
from calibeat import Calibrator, Notice, Shift, Silence

Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator], Floats]

START, HOUR, DAY, DAYS = 1_700_006_400.0, 3600.0, 86400.0, 365  # a midnight


def notice(*, quick: bool) -> None:
    """Three tables."""
    _cost(20_000 if quick else 200_000)
    _silence(3 if quick else 10)
    _false_alarms(10 if quick else 50)
    _faults(6 if quick else 40)


# ---- cost ----------------------------------------------------------------------------------------------------------


def _cost(n: int) -> None:
    rng = np.random.default_rng(0)
    scores = rng.beta(2, 5, n)
    outcomes, times = (rng.random(n) < scores).astype(float), START + 60.0 * np.arange(n)
    few = n // 20
    contenders = {
        "Shift.run, a score": lambda: lambda: Shift().run(scores),
        "Silence.run, an arrival a minute": lambda: lambda: Silence().run(times),
        "Silence.run, an arrival an hour": lambda: lambda: Silence().run(START + HOUR * np.arange(n)),
        "Notice.run, a forecast and its outcome": lambda: lambda: Notice().run(times, scores, times + 30.0),
        "Calibrator.run": lambda: lambda: Calibrator().run(scores, outcomes),
        "Calibrator.run with a notice": lambda: lambda: Calibrator(notice=Notice()).run(scores, outcomes, times=times),
    }
    best = interleaved(contenders, 3)
    lines = [[name, table.nanoseconds(best[name], n)] for name in contenders]
    single = interleaved(
        {
            "predict + update": always(_one_by_one, scores[:few].tolist(), False),
            "predict + update with a notice": always(_one_by_one, scores[:few].tolist(), True),
        },
        3,
    )
    lines += [[name, table.nanoseconds(spent, few)] for name, spent in single.items()]
    table.show(f"cost, {n:,} events", ["", "ns an event"], lines, ["CPU time, the best of three turns."])


def _one_by_one(scores: list[float], noticed: bool) -> None:
    cal = Calibrator(notice=Notice()) if noticed else Calibrator()
    for score in scores:
        cal.update(cal.predict(score), 1)


# ---- in the service ------------------------------------------------------------------------------------------------


def in_service(*, quick: bool) -> None:
    """What a notice adds to an event in the engine of the service: `python -m benchmarks notice-service`."""
    lines, repeats = list[list[str]](), 3 if quick else 5
    for size, n in ((1, 1_500), (30, 9_000), (1_000, 40_000)):
        spent = {notice: list[float]() for notice in (False, True)}
        for turn in range(repeats):
            for noticed in (False, True) if turn % 2 else (True, False):
                spent[noticed].append(_serve(noticed, size, n))
        without, with_it = (float(np.median(spent[noticed])) / n / 2 * 1e6 for noticed in (False, True))
        lines.append([f"{size:,}", f"{without:.1f}", f"{with_it:.1f}", f"{100.0 * (with_it / without - 1.0):.0f} %"])
    notes = ["us of CPU a forecast or an outcome, 20 streams, AUTO, SQLite, without HTTP; the median of the turns."]
    table.show("a notice in the service", ["events in a group", "without", "with", "more"], lines, notes)


def _serve(noticed: bool, size: int, n: int) -> float:
    """CPU seconds for n forecasts and their outcomes in groups of a size."""
    from calibeat.service.engine import Engine
    from calibeat.service.events import ForecastEvent, OutcomeEvent
    from calibeat.service.settings import EngineSettings

    scores = np.random.default_rng(0).random(n).tolist()
    with tempfile.TemporaryDirectory() as folder:
        engine = Engine.open(f"{folder}/calibeat.db", EngineSettings(method="auto", notice=noticed))
        engine.listening.begin(engine.clock())
        begun = process_time()
        for first in range(0, n, size):
            ids = range(first, min(n, first + size))
            engine.process([(i, [ForecastEvent(f"s{i % 20}", f"e{i}", scores[i])]) for i in ids])
            engine.process([(i, [OutcomeEvent(f"s{i % 20}", f"e{i}", 1)]) for i in ids])
        spent = process_time() - begun
        engine.store.close()
    return spent


# ---- silence -------------------------------------------------------------------------------------------------------


def _poisson(rate: Callable[[Floats], Floats], most: float) -> Draw:
    """Arrivals an hour by the time since the start, at most `most`."""

    def draw(rng: np.random.Generator) -> Floats:
        times = np.sort(rng.uniform(0.0, DAYS * DAY, rng.poisson(most * 24 * DAYS)))
        return START + times[rng.random(len(times)) < rate(times) / most]

    return draw


def _office(times: Floats) -> Floats:
    day, hour = times // DAY, times % DAY / HOUR
    return np.where((day % 7 < 5) & (hour >= 8) & (hour < 18), 20.0, 0.0)  # the start is a Wednesday: any five days do


def _holidays(times: Floats) -> Floats:
    return np.where(np.isin(times // DAY, np.arange(40, 340, 30)), 0.0, _office(times))


def _batches(every: float, spread: float) -> Draw:
    def draw(rng: np.random.Generator) -> Floats:
        at = np.arange(int(DAYS * DAY / every)) * every
        return START + np.sort(at + 9 * HOUR + rng.uniform(-spread, spread, len(at)))

    return draw


def _bursts(rng: np.random.Generator) -> Floats:
    starts = np.sort(rng.uniform(0.0, DAYS * DAY, rng.poisson(6 * DAYS)))
    return START + np.sort((starts[:, None] + np.cumsum(rng.exponential(20.0, (len(starts), 50)), axis=1)).ravel())


def _wandering(rng: np.random.Generator) -> Floats:
    level, logs = 0.0, []
    for _ in range(24 * DAYS):  # an autoregression with a standard deviation of 1 and a memory of two days
        level = np.exp(-1 / 48) * level + np.sqrt(1 - np.exp(-1 / 24)) * rng.standard_normal()
        logs.append(level)
    counts = rng.poisson(10.0 * np.exp(logs))
    return START + np.sort(np.repeat(np.arange(len(logs)), counts) * HOUR + rng.uniform(0.0, HOUR, counts.sum()))


STREAMS: dict[str, Draw] = {
    "Poisson, 10 an hour": _poisson(lambda t: np.full(len(t), 10.0), 10.0),
    "Poisson, 2 a day": _poisson(lambda t: np.full(len(t), 1 / 12), 1 / 12),
    "office hours, 20 an hour": _poisson(_office, 20.0),
    "the same with 10 holidays": _poisson(_holidays, 20.0),
    "one batch a day, +- 20 min": _batches(DAY, 1200.0),
    "one batch a week, +- 2 h": _batches(7 * DAY, 7200.0),
    "bursts of 50, six a day": _bursts,
    "rate wanders (log sd 1, 2 days)": _wandering,
    "every ten minutes": _batches(600.0, 5e-4),
}


def _silence(streams: int) -> None:
    lines = []
    for name, draw in STREAMS.items():
        rng, alarms, delays, gaps = np.random.default_rng(1), 0, list[float](), list[float]()
        for _ in range(streams):
            times = draw(rng)
            silence = Silence()
            stops = np.sort(rng.integers(len(times) // 2, len(times), 12))
            first = 0
            for stop in stops.tolist():
                silence.run(times[first : stop + 1])
                first = max(first, stop + 1)
                if np.isfinite(silence.deadline) and silence.last is not None:
                    delays.append((silence.deadline - silence.last) / HOUR)
            silence.run(times[first:])
            alarms += silence.count
            gaps.append(float(np.quantile(np.diff(times), 0.99)) / HOUR)
        median, most = np.quantile(delays, [0.5, 0.9])
        lines.append([name, f"{alarms / streams:.1f}", f"{median:.2g}", f"{most:.2g}", f"{np.median(gaps):.2g}"])
    table.show(
        f"Silence: {streams} simulated streams of a year each",
        ["", "alarms a year", "delay, hours", "90 %", "99 % gap, hours"],
        lines,
    )


# ---- shift ---------------------------------------------------------------------------------------------------------

CALM: dict[str, Draw] = {
    "uniform": lambda rng: rng.random(20_000),
    "nine values": lambda rng: rng.integers(1, 10, 20_000) / 10.0,
    "rare (beta 0.3, 30)": lambda rng: rng.beta(0.3, 30.0, 20_000),
    "AR(1) of logits, 0.9": lambda rng: _autoregression(rng, 20_000, 0.9),
}


def _autoregression(rng: np.random.Generator, n: int, memory: float) -> Floats:
    level, scores = 0.0, np.empty(n)
    for i, shock in enumerate(rng.standard_normal(n) * np.sqrt(1 - memory**2)):
        level = memory * level + shock
        scores[i] = 1.0 / (1.0 + np.exp(1.0 - level))
    return scores


def _false_alarms(streams: int) -> None:
    lines = []
    for name, draw in CALM.items():
        rng = np.random.default_rng(2)
        alarms = sum(len(Shift(arl=10_000).run(draw(rng))) for _ in range(streams))
        lines.append([name, str(alarms), f"{streams * (20_000 - 1_024) / 10_000:.0f}"])
    table.show(f"Shift, arl 10,000: {streams} calm streams of 20,000 scores", ["", "alarms", "allowed"], lines)


FAULTS: dict[str, Callable[[Floats], Floats]] = {
    "divided by 100": lambda s: s / 100.0,
    "halved": lambda s: s / 2.0,
    "constant": lambda s: np.full(len(s), s[0]),
    "1 - score": lambda s: 1.0 - s,
}


def _faults(streams: int) -> None:
    lines, worlds = [], {"independent": lambda rng: rng.beta(2, 5, 12_000), "AR(1), 0.9": CALM["AR(1) of logits, 0.9"]}
    for world, draw in worlds.items():
        for name, fault in FAULTS.items():
            rng, delays = np.random.default_rng(3), list[float]()
            for _ in range(streams):
                scores = draw(rng)[:12_000]
                scores[10_000:] = fault(scores[10_000:])
                found = [alarm.at - 10_000 + 1 for alarm in Shift().run(scores) if alarm.at >= 10_000]
                delays.append(found[0] if found else np.inf)
            shares = [f"{np.mean(np.array(delays) <= most):.2f}" for most in (100, 1000)]
            lines.append([f"{world}, {name}", f"{np.median(delays):.0f}", *shares])
    table.show(
        f"Shift, defaults: a fault after 10,000 scores, {streams} streams each",
        ["", "median delay, scores", "within 100", "within 1,000"],
        lines,
    )
