"""A store as weeks of use leave it: many streams, late outcomes, drifts; written by the engine itself."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from calibeat.service.engine import Engine
from calibeat.service.events import ForecastEvent, OutcomeEvent, StreamSettings
from calibeat.service.settings import EngineSettings
from calibeat.service.store import open_connection

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
    # Faults, each in days before the end.
    stopped: float = 0.0  # there are no forecasts since then,
    unheard: float = 0.0  # or no outcomes
    divided: float = 0.0  # the score is a hundredth since then
    inverted: float = 0.0  # outcomes are the wrong way round since then


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
    scores, outcomes, due_by, is_made = _with_faults(streams, which, times, scores, np.array(outcomes), end)
    median, never = (np.array([getattr(stream, field) for stream in streams]) for field in ("delay", "never"))
    due = times + median[which] * rng.lognormal(0.0, 0.7, events)
    due[rng.random(events) < never[which]] = np.inf
    outcomes = np.where(due > due_by[1], 1 - outcomes, outcomes).tolist()
    due[due > due_by[0]] = np.inf
    due[~is_made] = np.inf
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
        forecasts = [
            ForecastEvent(names[which[i]], f"e{i}", float(scores[i]), float(times[i])) for i in here if is_made[i]
        ]
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


def _with_faults(streams, which, times, scores, outcomes, end):
    """Scores and outcomes with the faults of their streams; times after which an outcome does not come, or comes the
    wrong way round; and which forecasts are made."""

    def begins(fault):
        days = np.array([getattr(stream, fault) for stream in streams])
        return np.where(days > 0, end - days * DAY, np.inf)[which]

    scores = np.where(times > begins("divided"), scores / 100, scores)
    return scores, outcomes, (begins("unheard"), begins("inverted")), times <= begins("stopped")


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

# ---- a product with 30 streams, of which five are broken ------------------------------------------------------------

BROKEN = {
    "churn/mobile-app": {"never": 1.0},
    "credit/germany": {"unheard": 20.0},
    "delivery/berlin": {"stopped": 16.0},
    "fraud/cards-us": {"divided": 12.0},
    "support/escalation": {"inverted": 10.0},
}
_HEALTHY = (
    *("ads/click-search", "ads/click-feed", "ads/install", "churn/web", "churn/tv", "credit/france", "credit/spain"),
    *("credit/italy", "delivery/paris", "delivery/rome", "delivery/madrid", "delivery/oslo", "fraud/cards-eu"),
    *("fraud/cards-uk", "fraud/wires", "fraud/login", "returns/shoes", "returns/dresses", "returns/toys"),
    *("support/refund", "support/reopen", "travel/late-arrival", "travel/no-show", "travel/upgrade", "travel/rebook"),
)


def product(*, seed: int = 3) -> list[Stream]:
    """Thirty streams of a company: sizes, faults of their scores and delays differ. Those of `BROKEN` are broken."""
    rng = np.random.default_rng(seed)
    return [
        Stream(
            name,
            share=float(rng.uniform(0.6, 1.8)),
            slope=float(rng.uniform(0.5, 1.2)),
            shift=float(rng.normal(0.0, 0.5)),
            delay=float(rng.choice([600.0, 6 * 3600.0, DAY])),
            **{"never": 0.01, **BROKEN.get(name, {})},
        )
        for name in sorted((*BROKEN, *_HEALTHY))
    ]


def shaped(path: Path, *, end: float = END, events: int = 3_000, seed: int = 0) -> None:
    """Two more streams: one of five classes, one with groups of which one segment is wrong."""
    rng = np.random.default_rng(seed)
    labels = ["invoice", "contract", "letter", "photo", "spam"]
    engine = Engine.open(str(path), EngineSettings(method="auto", monitor=20_000.0, expire=7 * DAY), clock=lambda: now)
    now = end - 20 * DAY
    engine.process([(None, [StreamSettings("signup/convert", groups=["country", "device"], names=True)])])
    for first in range(0, events, 500):
        now = end - 20 * DAY * (1 - (first + 500) / events)
        forecasts, outcomes = list[ForecastEvent](), list[OutcomeEvent]()
        for i in range(first, first + 500):
            scores = rng.dirichlet([2.0, 1.2, 0.8, 0.5, 0.3])
            truth = scores**1.6 / (scores**1.6).sum()
            named = dict(zip(labels, (scores / scores.sum()).tolist(), strict=True))
            forecasts.append(ForecastEvent("documents/kind", f"d{i}", time=now, scores=named))
            outcomes.append(
                OutcomeEvent("documents/kind", f"d{i}", time=now, label=labels[int(rng.choice(5, p=truth))])
            )
            country, device = str(rng.choice(["de", "fr", "it", "pl"])), str(rng.choice(["phone", "web"]))
            score, gap = float(rng.uniform(0.1, 0.8)), 0.18 * (country == "pl") - 0.1 * (device == "web")
            groups = {"country": country, "device": device}
            forecasts.append(ForecastEvent("signup/convert", f"s{i}", score, now, groups=groups))
            outcomes.append(OutcomeEvent("signup/convert", f"s{i}", int(rng.random() < score + gap), now))
        engine.process([(None, forecasts)])
        engine.process([(None, outcomes)])
    engine.store.close()


def opened(path: Path, stream: str, what: str, *, days: float, end: float = END, over: bool = False) -> None:
    """An alarm that was raised so many days before the end and is open, as a notice leaves it, or over."""
    with closing(open_connection(str(path), write=True)) as connection:
        number = connection.all("SELECT number FROM stream WHERE name = ?", (stream,))[0][0]
        connection.run(
            "INSERT INTO alarm (stream, time, at, since, what, page, ended) VALUES (?, ?, 0, 0, ?, 1, ?)",
            (number, end - days * DAY, what, end if over else None),
        )
