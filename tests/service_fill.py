"""A store as weeks of use leave it: many streams, late outcomes, drifts; written by the engine itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from calibeat.service.engine import Engine, EngineSettings
from calibeat.service.events import ForecastEvent, OutcomeEvent

END = 1_790_000_000.0  # 21 September 2026, a Monday
DAY = 86_400.0
GROUP = 5_000


@dataclass(frozen=True)
class Stream:
    """How often a stream is used, how wrong its scores are, and whether they change in the middle."""

    name: str
    share: float = 1.0
    slope: float = 0.6  # of the truth's logit in the score's logit
    shift: float = -0.3
    after: tuple[float, float] | None = None  # slope and shift of the last third
    delay: float = 0.3 * DAY  # median of the outcomes' delay
    never: float = 0.02  # share of outcomes that never come


def fill(
    path: Path,
    streams: Sequence[Stream],
    events: int,
    days: float,
    *,
    method: str = "auto",
    monitor: float | None = 20_000.0,
    expire: float | None = 7 * DAY,
    end: float = END,
    seed: int = 0,
) -> None:
    """Forecasts over `days` up to `end`, and the outcomes that had come by then.

    Monitors read in the order of forecasts: without `expire` they would wait for the outcomes that never come.
    """
    rng = np.random.default_rng(seed)
    shares = np.array([stream.share for stream in streams])
    which = rng.choice(len(streams), events, p=shares / shares.sum())
    times = np.sort(end - days * DAY * rng.random(events))
    scores = rng.beta(1.2, 1.8, events).round(6)
    truth = _truth(streams, which, scores, times > end - days * DAY / 3)
    outcomes = (rng.random(events) < truth).astype(int).tolist()
    median, never = (np.array([getattr(stream, field) for stream in streams]) for field in ("delay", "never"))
    due = times + median[which] * rng.lognormal(0.0, 0.7, events)
    due[rng.random(events) < never[which]] = np.inf
    clock = [end]
    engine = Engine.open(
        str(path), EngineSettings(method=method, monitor=monitor, expire=expire), clock=lambda: clock[0]
    )
    order, told = np.argsort(due), 0
    in_order = due[order]
    names = [stream.name for stream in streams]
    group = min(GROUP, max(1, int(events / days)))  # about a day: older forecasts would be refused under `expire`
    for first in range(0, events, group):
        here = range(first, min(first + group, events))
        forecasts = [ForecastEvent(names[which[i]], f"e{i}", float(scores[i]), float(times[i])) for i in here]
        clock[0] = float(times[here[-1]])
        engine.process([(None, forecasts)])
        until = int(np.searchsorted(in_order, clock[0] if here[-1] < events - 1 else end))
        # Only of forecasts that were made: an outcome of this very group may be earlier than its group.
        late = [int(i) for i in order[told:until]]
        told = until
        reported = [OutcomeEvent(names[which[i]], f"e{i}", outcomes[i], float(due[i])) for i in late]
        for at in range(0, len(reported), GROUP):
            engine.process([(None, reported[at : at + GROUP])])
    engine.store.close()


def _truth(streams, which, scores, is_late):
    """The probability of a one: the score's logit, stretched and moved."""
    inner = np.clip(scores, 1e-4, 1 - 1e-4)
    logit = np.log(inner / (1 - inner))
    early = np.array([(stream.slope, stream.shift) for stream in streams])
    late = np.array([stream.after or (stream.slope, stream.shift) for stream in streams])
    slope, shift = np.where(is_late[:, None], late[which], early[which]).T
    return 1 / (1 + np.exp(-(slope * logit + shift)))


def cities(count: int, *, seed: int = 1) -> list[Stream]:
    """Streams of very different sizes and faults; some go wrong in the last third."""
    rng = np.random.default_rng(seed)
    made = []
    for i in range(count):
        goes_wrong = i % 7 == 3
        made.append(
            Stream(
                f"checkout/{_CITIES[i % len(_CITIES)]}-{i // len(_CITIES):03d}" if i >= len(_CITIES) else _CITIES[i],
                share=float(rng.pareto(1.2) + 0.2),
                slope=float(rng.uniform(0.3, 1.3)),
                shift=float(rng.normal(0.0, 0.6)),
                after=(-0.8, 0.5) if goes_wrong else None,
                delay=float(rng.choice([600.0, 6 * 3600.0, DAY, 3 * DAY])),
            )
        )
    return made


_CITIES = ("paris", "oslo", "lima", "quito", "cairo", "osaka", "turin", "hanoi", "accra", "dakar", "porto", "perth")
