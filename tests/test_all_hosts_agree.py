"""All hosts agree: whatever is done to one, in any order, gives the bits of single events on calibrators.

A sequence does things to a host at random: single events, batches, folds, restarts, copies, merges, deletions.
Its twin is one calibrator for each key, which does `predict` and `update` and nothing else. After each verb the
forecasts are the same to the last bit, and so is what a call returns or raises.

To add a verb, write a function of a `World` and put it in `VERBS`; to add a host or a method, put it in `KINDS`.
"""

from __future__ import annotations

import copy
import itertools
import os
import pickle
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibeat import (
    FTL,
    Bands,
    Bank,
    Beta,
    Calibrator,
    Forecast,
    Groups,
    Histogram,
    Method,
    Monitor,
    MultiBank,
    MultiCalibrator,
    MultiForecast,
    Notice,
    Number,
    OutcomeConflict,
    Platt,
    Tracking,
    UnknownForecast,
    UnknownKey,
)
from calibeat._compiled import REASONS
from calibeat.core.method import PRESETS
from calibeat.hosts.receipts import Receipts

ONE = "the only stream"  # the key of a host that has no keys
EDGES = (0.0, 1.0, 0.5, 5e-324, 1.0 - 2.0**-53)
ODD = (None, nan, 0.0, -0.0, 1, 5e-324, -1.7e308, 1.7e308)  # numbers of groups
MOST_KEYS = 6
CLOCK = [1.7e9]  # what time it is


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Notice, "_now", lambda _: CLOCK[0])


# ---- hosts ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """A host with its settings, and the calibrator that a key of it is."""

    make: Callable[[], Any]
    alone: Callable[[Any], Any]  # of a key
    classes: int = 0  # 0: a score is one number
    models: int = 0  # how many scores an event has, some of them missing; 0: one, which is there
    logits: bool = False
    groups: bool = False
    numbers: bool = False  # of the values of the second attribute
    has_keys: bool = True
    whole_keys: bool = False  # keys are whole numbers, not strings
    weights: bool = False  # outcomes have weights
    counts: bool = False  # outcomes are counts
    is_pooled: bool = False  # then the twin is a bank, since keys learn from each other
    band: bool = False  # forecasts say how sure they are

    @property
    def read(self) -> Any:
        """The class of its receipts."""
        return MultiForecast if self.classes else Forecast

    @property
    def labels(self) -> int:
        """How many outcomes there are."""
        return self.classes or 2


@dataclass(frozen=True)
class Outcome:
    """What comes of a forecast: a label, or how many ones there are among how many events."""

    y: int
    weight: float | None = None
    of: int | None = None

    def how(self) -> dict[str, Any]:
        """The arguments that `update` takes beside the outcome."""
        named = {"weight": self.weight, "of": self.of}
        return {name: value for name, value in named.items() if value is not None}


def columns_of(outcomes: list[Outcome]) -> dict[str, Any]:
    """The weights and counts of many outcomes as columns; none where all are 1."""
    made: dict[str, Any] = {}
    if any(outcome.weight is not None for outcome in outcomes):
        made["weights"] = [1.0 if outcome.weight is None else outcome.weight for outcome in outcomes]
    if any(outcome.of is not None for outcome in outcomes):
        made["of"] = [1 if outcome.of is None else outcome.of for outcome in outcomes]
    return made


def bank(method: str | Method, prior: str | None = None, **more: Any) -> Kind:
    return Kind(
        lambda: Bank(method, seed=3, prior=prior),
        lambda key: Calibrator(method, seed=3, stream=key),
        is_pooled=prior is not None,
        **more,
    )


def bank_of_classes(K: int, method: str, prior: str | None = None, *, logits: bool = False, **more: Any) -> Kind:
    return Kind(
        lambda: MultiBank(K, method, logits=logits, prior=prior),
        lambda _: MultiCalibrator(K, method, logits=logits),
        K,
        logits=logits,
        is_pooled=prior is not None,
        **more,
    )


def stream(method: str | Method, *, groups: bool = False, numbers: bool = False, **more: Any) -> Kind:
    """A calibrator; of groups with so few cells that some are forgotten."""
    attributes = ["a", Number("b", first=12, cells=4) if numbers else "b"]
    grouped: dict[str, Any] = {"groups": Groups(attributes, cells=16, seed=11, names=True)} if groups else {}
    makers: Any = [lambda *_: Calibrator(method, seed=3, **grouped)] * 2
    return Kind(*makers, groups=groups, numbers=numbers, has_keys=False, **more)


def stream_of_classes(K: int, method: str, *, logits: bool = False, **more: Any) -> Kind:
    makers: Any = [lambda *_: MultiCalibrator(K, method, logits=logits)] * 2
    return Kind(*makers, K, logits=logits, has_keys=False, **more)


def stream_of_models(models: int) -> Kind:
    makers: Any = [lambda *_: Calibrator(models=models)] * 2
    return Kind(*makers, models=models, has_keys=False)


def watched(
    host: Callable[..., Any], *given: Any, raw: bool = False, sampled: Any = None, **more: Any
) -> Callable[..., Any]:
    """Its monitor is soon warm and soon gives up, its notice knows the time; raw scores may have a monitor too."""

    def make(*_: Any) -> Any:
        monitors = [Monitor(arl=50, warm=3, quiet=5, patience=4, sampled=sampled) for _ in range(2)]
        monitor: Any = dict(zip(("ours", "raw"), monitors, strict=True)) if raw else monitors[0]
        return host(*given, monitor=monitor, notice=Notice(warm=64), **more)

    return make


SLIDING = Method(Beta(), FTL(every=2, after=4, window=6), Tracking(bins=4))
HISTOGRAM = Method(Histogram(bins=3), FTL(every=3, after=5))
SLOW = Method(Platt(), FTL(every=50, after=8))
WEIGHTS: dict[str, Any] = {"weights": True}
ALL: dict[str, Any] = {"weights": True, "counts": True}
THINNED = (0.9, 0.05)


def of_thinned_log(name: str) -> Method:
    """A preset on a log that kept these shares of ones and zeros."""
    return replace(PRESETS[name], kept=THINNED)


BAND: dict[str, Any] = {"band": True}
WITH_BAND = replace(PRESETS["auto"], band=True)

KINDS = {
    "Bank ops": bank("ops"),
    "Bank tops": bank("tops", whole_keys=True),
    "Bank hops": bank("hops"),
    "Bank hops of numbers": bank("hops", whole_keys=True),
    "Bank auto": bank("auto"),
    "Bank watched": Kind(*[watched(host, "ops", sampled=(0.9, 0.3)) for host in (Bank, Calibrator)]),
    "Bank pooled": bank("tops", "pooled"),
    "MultiBank 2": bank_of_classes(2, "multi", logits=True),
    "MultiBank 3": bank_of_classes(3, "multi", logits=True),
    "MultiBank 65": bank_of_classes(65, "multi"),
    "MultiBank ots": bank_of_classes(4, "ots", whole_keys=True),
    "MultiBank raw": bank_of_classes(3, "raw", logits=True),
    "MultiBank watched": Kind(watched(MultiBank, 3, "ots"), watched(MultiCalibrator, 3, "ots"), 3),
    "MultiBank pooled": bank_of_classes(3, "multi", "pooled", logits=True),
    "Calibrator ops": stream("ops"),
    "Calibrator hops": stream("hops"),
    "Calibrator auto": stream("auto"),
    "Calibrator fps": stream("fps"),
    "Calibrator whb": stream("whb"),
    "Calibrator groups": stream("auto", groups=True),
    "Calibrator groups, guarded": stream("gauto", groups=True),
    "Calibrator groups, numbers": stream("auto", groups=True, numbers=True),
    "Calibrator groups, guarded, numbers": stream("gauto", groups=True, numbers=True),
    "Calibrator watched": Kind(*[watched(Calibrator, "tops", raw=True)] * 2, has_keys=False),
    "MultiCalibrator 2": stream_of_classes(2, "multi", logits=True),
    "MultiCalibrator 3": stream_of_classes(3, "multi"),
    "MultiCalibrator ots": stream_of_classes(3, "ots"),
    "Calibrator sliding": stream(SLIDING),
    "Bank ops, weights": bank("ops", **ALL),
    "Bank tracked with a prior, weights": bank(Method(Platt(), None, Tracking(bins=3, prior=2.0)), **ALL),
    "Bank auto, weights": bank("auto", **ALL),
    "Bank tops, counts": bank("tops", counts=True, whole_keys=True),
    "Bank watched, weights": Kind(
        *[watched(host, "auto", sampled=(0.9, 0.3)) for host in (Bank, Calibrator)], weights=True
    ),
    "Bank pooled, weights": bank("auto", "pooled", **ALL),
    "MultiBank 3, weights": bank_of_classes(3, "multi", logits=True, weights=True),
    "MultiBank ots, weights": bank_of_classes(4, "ots", weights=True),
    "MultiBank pooled, weights": bank_of_classes(3, "multi", "pooled", weights=True),
    "Calibrator auto, weights": stream("auto", **ALL),
    "Calibrator bm, weights": stream("bm", **ALL),
    "Calibrator sliding, weights": stream(SLIDING, **ALL),
    "Calibrator histogram, weights": stream(HISTOGRAM, **ALL),
    "Calibrator fitted once, weights": stream(SLOW, **WEIGHTS),
    "Calibrator groups, weights": stream("auto", groups=True, **ALL),
    "Calibrator groups, numbers, weights": stream("auto", groups=True, numbers=True, **WEIGHTS),
    "MultiCalibrator 3, weights": stream_of_classes(3, "multi", weights=True),
    "Bank auto, kept, weights": bank(of_thinned_log("auto"), **ALL),
    "Bank hops, kept": bank(of_thinned_log("hops")),
    "Bank pooled, kept": bank(of_thinned_log("tops"), "pooled"),
    "Bank watched, kept": Kind(*[watched(host, of_thinned_log("ops")) for host in (Bank, Calibrator)]),
    "Calibrator gauto, kept": stream(of_thinned_log("gauto")),
    "Calibrator groups, kept, weights": stream(of_thinned_log("auto"), groups=True, **ALL),
    "Bank auto, band": bank(WITH_BAND, **BAND),
    "Bank pooled, band, weights": bank(WITH_BAND, "pooled", **BAND, **ALL),
    "Calibrator auto, band, kept, weights": stream(replace(WITH_BAND, kept=THINNED), **BAND, **ALL),
    "Calibrator sliding, kept": stream(replace(SLIDING, kept=THINNED)),
    "Calibrator 2 models": stream_of_models(2),
    "Calibrator 5 models": stream_of_models(5),
    "Calibrator 2 models, watched": Kind(*[watched(Calibrator, models=2)] * 2, models=2, has_keys=False),
}


# ---- a host and its twin -------------------------------------------------------------------------------------------


@dataclass
class Event:
    """A forecast that was made, with the receipts of the host and of its twin."""

    key: Any
    receipt: Any
    twin: Any
    outcome: Outcome | None = None


@dataclass
class World:
    """A host, its twin, and the forecasts that they have made."""

    kind: Kind
    seed: int
    folder: Path
    done: list[str] = field(default_factory=list)  # the verbs so far

    def __post_init__(self) -> None:
        self.rng: Any = np.random.default_rng(self.seed)
        self.models = self.kind.models
        self.host = self.kind.make()
        self.twins: dict[Any, Any] = {}
        self.pooled = self.kind.make() if self.kind.is_pooled else None
        self.waiting: list[Event] = []
        self.settled: list[Event] = []
        self.names = itertools.count()
        self.only_counts = False  # rows were put in place: which of their events are settled is not known
        self.members: dict[Any, Any] = {}

    # ---- chance -----------------------------------------------------------------------------------------------------

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def number(self, below: int) -> int:
        return int(self.rng.integers(below))

    def score(self) -> Any:
        K, rng = self.kind.classes, self.rng
        if self.models:
            scores = [None if self.chance(0.25) else self.probability() for _ in range(self.models)]
            return scores if any(score is not None for score in scores) else [*scores[:-1], self.probability()]
        if not K:
            return self.probability()
        if self.kind.logits:
            return rng.normal(0.0, 300.0 if self.chance(0.1) else 3.0, K).tolist()
        return np.eye(K)[self.number(K)].tolist() if self.chance(0.1) else rng.dirichlet([1.0] * K).tolist()

    def probability(self) -> float:
        return EDGES[self.number(len(EDGES))] if self.chance(0.1) else float(self.rng.random())

    def outcome(self, *, may_count: bool = True) -> Outcome:
        kind, weight, of = self.kind, None, None
        if kind.weights and self.chance(0.7):  # from nothing to very much
            weight = 0.0 if self.chance(0.1) else float(np.exp(self.rng.normal(0.0, 2.0)))
            weight = 1.0 if self.chance(0.1) else weight
        if kind.counts and may_count and self.chance(0.5):
            of = self.number(2 if self.chance(0.3) else 60)
        return Outcome(self.number(kind.labels if of is None else of + 1), weight, of)

    def values(self) -> Any:
        """Of the groups of an event, where there are any."""
        if self.kind.numbers:
            return f"a{self.number(9)}", ODD[self.number(len(ODD))] if self.chance(0.3) else float(self.rng.normal())
        return (f"a{self.number(9)}", self.number(7)) if self.kind.groups else None

    def new_key(self) -> Any:
        if not self.kind.has_keys:
            return ONE
        return next(self.names) * 7 - 3 if self.kind.whole_keys else f"käse {next(self.names)}"

    def known(self) -> list[Any]:
        return list(self.twins) if self.pooled is None else list(self.pooled)

    def key(self) -> Any:
        """One that is there, or a new one."""
        known = self.known()
        new = not known or (self.kind.has_keys and len(known) < MOST_KEYS and self.chance(0.2))
        return self.new_key() if new else known[self.number(len(known))]

    # ---- calls ------------------------------------------------------------------------------------------------------

    def named(self, key: Any) -> list[Any]:
        """The arguments that name a key: none where there are no keys."""
        return [key] if self.kind.has_keys else []

    def grouped(self, values: Any) -> dict[str, Any]:
        return {"groups": values} if self.kind.groups else {}

    def banded(self) -> dict[str, Any]:
        """What asks a batch how sure its forecasts are."""
        return {"band": True} if self.kind.band else {}

    def twin_predicts(self, key: Any, score: Any, values: Any = None) -> Any:
        if self.pooled is not None:
            return self.pooled.predict(key, score)
        if key not in self.twins:
            self.twins[key] = self.kind.alone(key)
        return self.twins[key].predict(score, **self.grouped(values))

    def twin_learns(self, event: Event, outcome: Outcome) -> None:
        if self.pooled is not None:
            assert self.pooled.update(event.key, event.twin, outcome.y, **outcome.how()) == "learnt"
        else:
            assert self.twins[event.key].update(event.twin, outcome.y, **outcome.how()) == "learnt"

    def forget(self, key: Any) -> None:
        """A key is gone, with its receipts."""
        if self.pooled is not None:
            del self.pooled[key]
        else:
            del self.twins[key]
        self.waiting = [event for event in self.waiting if event.key != key]
        self.settled = [event for event in self.settled if event.key != key]
        self.members.pop(key, None)

    def take(self) -> Event | None:
        """An event that waits for its outcome."""
        return self.waiting.pop(self.number(len(self.waiting))) if self.waiting else None

    def travelled(self, receipt: Any) -> Any:
        """The receipt, or one that comes back from a store."""
        read = self.kind.read
        match self.number(4):
            case 0:
                return read.from_bytes(receipt.to_bytes())
            case 1:
                return read.from_json(receipt.to_json())
            case 2:
                return pickle.loads(pickle.dumps(receipt))  # noqa: S301 - our own bytes
        return receipt

    def replace(self, host: Any) -> None:
        """Go on with a copy."""
        self.host, self.members = host, {}

    def path(self) -> Path:
        return self.folder / "host"


def numbers(forecast: Any) -> Any:
    """Its probability, or its probabilities; and how sure it is, where it says so."""
    if isinstance(forecast, MultiForecast):
        return forecast.probabilities
    band = getattr(forecast, "band", ())
    return [float(forecast), *band[:3], REASONS.index(band[3])] if band else float(forecast)


def columns_said(said: Any) -> Any:
    """What a batch gives, as `numbers` has it of each event."""
    if not isinstance(said, Bands):
        return said
    reasons = [REASONS.index(reason) for reason in said.reason]
    return np.stack([said.probabilities, said.low, said.high, said.outcomes, reasons], axis=1)


def same(host: Any, twin: Any) -> None:
    """To the last bit."""
    assert np.asarray(host).tobytes() == np.asarray(twin).tobytes(), f"host {host!r}, twin {twin!r}"


# ---- verbs: single events ------------------------------------------------------------------------------------------


def predict(world: World) -> None:
    key, score, values = world.key(), world.score(), world.values()
    made = world.host.predict(*world.named(key), score, **world.grouped(values))
    twin = world.twin_predicts(key, score, values)
    same(numbers(made), numbers(twin))
    world.waiting.append(Event(key, made, twin))


def update(world: World) -> None:
    if event := world.take():
        outcome = world.outcome()
        receipt = world.travelled(event.receipt)
        assert world.host.update(*world.named(event.key), receipt, outcome.y, **outcome.how()) == "learnt"
        world.twin_learns(event, outcome)
        event.outcome = outcome
        world.settled.append(event)


def repeat(world: World) -> None:
    """The same outcome again changes nothing, and another one is refused."""
    if not world.settled or world.only_counts:
        return
    event = world.settled[world.number(len(world.settled))]
    key, receipt = world.named(event.key), world.travelled(event.receipt)
    learnt = event.outcome
    assert learnt is not None
    assert world.host.update(*key, receipt, learnt.y, **learnt.how()) == "repeated"
    try:
        other = another_than(world, learnt)
        assert world.host.update(*key, receipt, other.y, **other.how()) == "repeated"
        assert world.kind.has_keys  # a bank remembers which outcome it was only of keys with open events
    except OutcomeConflict:
        pass


def another_than(world: World, learnt: Outcome) -> Outcome:
    """Another outcome, or the same one with another weight or count."""
    if world.kind.weights and world.chance(0.5):
        return replace(learnt, weight=2.0 if learnt.weight is None else learnt.weight + 1.0)
    if world.kind.counts and world.chance(0.5):
        return replace(learnt, of=2 if learnt.of is None else learnt.of + 1)
    labels = world.kind.labels if learnt.of is None else learnt.of + 1
    return replace(learnt, y=(learnt.y + 1) % labels) if labels > 1 else replace(learnt, of=3)


def use_member(world: World) -> None:
    """`bank[key]` is live, also one that was taken long ago."""
    keys = world.known()
    if not keys:
        return
    key = keys[world.number(len(keys))]
    member = world.members.setdefault(key, world.host[key])
    score = world.score()
    made, twin = member.predict(score), world.twin_predicts(key, score)
    same(numbers(made), numbers(twin))
    event = Event(key, made, twin)
    if world.chance(0.5):
        world.waiting.append(event)
        return
    event.outcome = outcome = world.outcome()
    assert member.update(world.travelled(made), outcome.y, **outcome.how()) == "learnt"
    world.twin_learns(event, outcome)
    world.settled.append(event)


# ---- verbs: many events --------------------------------------------------------------------------------------------


def run(world: World) -> None:
    """A batch, with outcomes at once, late, or never; also of one key, by `bank[key]`."""
    n = 1 + world.number(7)
    keys = [world.key() for _ in range(n)]
    of_one = bool(world.known()) and world.kind.has_keys and world.chance(0.2)
    if of_one:
        keys = [world.known()[0]] * n
    is_late = world.chance(0.4) and world.pooled is None
    finish = world.chance(0.5) or is_watched(world)
    known = (
        np.array([world.kind.has_keys and world.chance(0.1) and not (of_one or is_watched(world)) for _ in range(n)])
        == 0
    )
    scores, outcomes, values = (
        [world.score() for _ in keys],
        [world.outcome() for _ in keys],
        [world.values() for _ in keys],
    )
    due = np.arange(1, n + 1) + world.rng.integers(0, 2 * n + 1, n) if is_late else np.arange(1, n + 1)
    given = [outcome.y if k else nan for outcome, k in zip(outcomes, known, strict=True)]
    more: dict[str, Any] = {"due": due, "finish": finish} if is_late else {}
    more |= columns_of(outcomes)
    host, names = (world.host[keys[0]], []) if of_one else (world.host, world.named(keys))
    made = columns_said(host.run(*names, scores, given, **more, **world.grouped(values), **world.banded()))
    if not is_late:
        finish = True
    events: list[Event] = []
    late: list[int] = []  # whose outcomes have not come
    for i, key in enumerate(keys):
        for j in [j for j in late if keys[j] == key and due[j] <= i]:
            world.twin_learns(events[j], outcomes[j])
            late.remove(j)
        twin = world.twin_predicts(key, scores[i], values[i])
        same(made[i], numbers(twin))
        events.append(Event(key, None, twin))
        if known[i]:
            late.append(i)
        if not is_late and known[i]:
            world.twin_learns(events[i], outcomes[i])
            late.remove(i)
    for j in sorted(late, key=lambda j: (max(int(due[j]), n), j)):  # at the end of the batch
        if finish or due[j] < n:
            world.twin_learns(events[j], outcomes[j])


def issue(world: World) -> None:
    """A batch of receipts; outcomes come later, by any verb."""
    keys = [world.key() for _ in range(1 + world.number(7))]
    scores, values = [world.score() for _ in keys], [world.values() for _ in keys]
    batch = world.host.issue(*world.named(keys), scores, **world.grouped(values))
    for at, key in enumerate(keys):
        twin = world.twin_predicts(key, scores[at], values[at])
        same(numbers(batch[at]), numbers(twin))
        if world.kind.band:
            same(columns_said(Bands(*(getattr(batch, name) for name in Bands._fields)))[at], numbers(twin))
        world.waiting.append(Event(key, batch[at], twin))


def learn(world: World) -> None:
    """Outcomes of receipts that were issued by any verb, some of them known already."""
    events = [event for event in (world.take() for _ in range(1 + world.number(7))) if event is not None]
    if not events:
        return
    size = len(events[0].receipt.to_bytes())  # of one batch; those from before a model was added are shorter
    world.waiting += [event for event in events if len(event.receipt.to_bytes()) != size]
    events = [event for event in events if len(event.receipt.to_bytes()) == size]
    outcomes = [world.outcome() for _ in events]
    known = [] if world.only_counts else [event for event in world.settled if world.chance(0.2)]
    known = [event for event in known if len(event.receipt.to_bytes()) == size]
    batch = Receipts.from_bytes(b"".join([world.travelled(event.receipt).to_bytes() for event in [*events, *known]]))
    told = [*outcomes, *[event.outcome for event in known if event.outcome is not None]]
    found = world.host.learn(batch, [outcome.y for outcome in told], **columns_of(told))
    assert found.tolist() == ["learnt"] * len(events) + ["repeated"] * len(known)
    for event, outcome in zip(events, outcomes, strict=True):
        world.twin_learns(event, outcome)
        event.outcome = outcome
        world.settled.append(event)


def fold(world: World) -> None:
    """Forecasts and outcomes, mixed; some outcomes are of forecasts of the same call."""
    n = 1 + world.number(6)
    nothing = [nan] * world.kind.classes if world.kind.classes else nan
    keys, scores, outcomes, receipts, of = [], [], [], [], []
    todo: list[tuple[Event, Outcome | None]] = []
    own: list[tuple[int, Event]] = []  # forecasts of this call that have no outcome yet
    for at in range(n):
        kind = world.number(4)
        if kind == 0 and own:
            where, event = own.pop(world.number(len(own)))
            todo.append((event, world.outcome(may_count=False)))
            of.append(where)
        elif kind == 1 and (found := world.take()):
            event = found
            todo.append((event, world.outcome(may_count=False)))
            of.append(-1)
            receipts.append(event.receipt.to_bytes())
        else:
            names = [event.key for event, _ in todo]  # new keys of this call are no keys of the twin yet
            event = Event(names[world.number(len(names))] if names and world.chance(0.3) else world.key(), None, None)
            todo.append((event, None))
            of.append(-1)
            own.append((at, event))
        keys.append(event.key)
        outcome = todo[-1][1]
        scores.append(world.score() if outcome is None else nothing)
        outcomes.append(nan if outcome is None else float(outcome.y))
    more: dict[str, Any] = {"of": of} if max(of) >= 0 or world.chance(0.5) else {}
    if world.kind.weights:  # those of forecasts are not read
        more["weights"] = [nan if outcome is None else outcome.how().get("weight", 1.0) for _, outcome in todo]
    folded = world.host.fold(keys, scores, outcomes, receipts, **more)
    made = iter(folded.receipts.tolist())
    for at, (event, outcome) in enumerate(todo):
        if outcome is None:
            event.twin = world.twin_predicts(event.key, scores[at])
            event.receipt = world.kind.read.from_bytes(next(made))
            same(folded.forecasts[at], event.twin.probabilities if world.kind.classes else float(event.twin))
            same(numbers(event.receipt), numbers(event.twin))
        else:
            world.twin_learns(event, outcome)
            event.outcome = outcome
            world.settled.append(event)
    world.waiting += [event for _, event in own]


def predict_many(world: World) -> None:
    look(world, world.host)


def look(world: World, host: Any) -> None:
    """What a host would say now, also of a key that it does not know; nothing changes."""
    keys = world.known() if world.pooled is not None or not world.kind.has_keys else [*world.known(), world.new_key()]
    for key in keys:
        scores, values = [world.score() for _ in range(3)], [world.values() for _ in range(3)]
        said = host.predict_many(*world.named([key] * 3), scores, **world.grouped(values), **world.banded())
        if world.pooled is not None:
            twin = world.pooled.predict_many([key] * 3, scores, **world.banded())
        else:
            alone = world.twins.get(key) or world.kind.alone(key)
            twin = alone.predict_many(scores, **world.grouped(values), **world.banded())
        same(columns_said(said), columns_said(twin))


# ---- verbs: copies -------------------------------------------------------------------------------------------------


def restart(world: World) -> None:
    world.replace(saved(world))


def saved(world: World, **how: Any) -> Any:
    """The host as another process loads it."""
    if world.kind.has_keys:
        world.host.save(world.path())
        return type(world.host).load(world.path(), **how)
    return type(world.host).from_json(world.host.to_json())


def pickled(world: World) -> None:
    world.replace(pickle.loads(pickle.dumps(world.host)))  # noqa: S301 - our own bytes


def deepcopied(world: World) -> None:
    world.replace(copy.deepcopy(world.host))


def copied(world: World) -> None:
    world.replace(copy.copy(world.host))


def read_only(world: World) -> None:
    """A process that maps the file forecasts the same and learns nothing."""
    mapped = saved(world, mmap=True)
    look(world, mapped)
    for key in world.known():
        score = world.score()
        same(
            numbers(mapped.predict(key, score)),
            columns_said(world.host.predict_many([key], [score], **world.banded()))[0],
        )


def copy_goes_its_own_way(world: World) -> None:
    """What a copy issues is not taken here, and the other way round."""
    other = copy.deepcopy(world.host)
    key, score, values = world.key(), world.score(), world.values()
    foreign = other.predict(*world.named(key), score, **world.grouped(values))
    predict_as(world, key, score, values)
    for host, receipt in ((world.host, foreign), (other, world.waiting[-1].receipt)):
        with pytest.raises(UnknownForecast):
            host.update(*world.named(key), world.travelled(receipt), 0)


def predict_as(world: World, key: Any, score: Any, values: Any) -> None:
    made = world.host.predict(*world.named(key), score, **world.grouped(values))
    twin = world.twin_predicts(key, score, values)
    same(numbers(made), numbers(twin))
    world.waiting.append(Event(key, made, twin))


def fork(world: World) -> None:
    """A child goes on with the same bits; what it issues is not taken by its parent."""
    if not hasattr(os, "fork"):
        return
    key, score, values = world.key(), world.score(), world.values()
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads that other tests have left
        child = os.fork()
    if child == 0:
        try:
            predict_as(world, key, score, values)
            os.write(write, world.waiting[-1].receipt.to_bytes())
            for _ in range(3):
                update(world)
                predict(world)
            look(world, world.host)
            os._exit(0)
        finally:
            os._exit(1)
    os.close(write)
    receipt = os.read(read, 65536)
    os.close(read)
    assert os.waitpid(child, 0)[1] == 0, "the child differs"
    predict_as(world, key, score, values)
    with pytest.raises(UnknownForecast):
        world.host.update(*world.named(key), world.kind.read.from_bytes(receipt), 0)


# ---- verbs: keys come and go ---------------------------------------------------------------------------------------


def merge(world: World) -> None:
    """A shard of new keys comes in, or the bank goes into it; receipts of both stay good."""
    host, ours, members = world.host, world.known(), world.members
    world.host, kept = world.kind.make(), world.twins
    world.twins, world.members, waiting, world.waiting = {}, {}, world.waiting, []
    for _ in range(world.number(4)):
        [predict, update, run, fold][world.number(4)](world)
    world.twins, world.waiting = {**kept, **world.twins}, waiting + world.waiting
    assert len(world.host) + len(ours) == len(world.twins)
    if world.chance(0.5):
        host.merge(world.host)
        world.host, world.members = host, members
    else:
        world.host.merge(host)


def delete(world: World) -> None:
    keys = world.known()
    if not keys:
        return
    key = keys[world.number(len(keys))]
    gone = [event for event in world.waiting if event.key == key]
    del world.host[key]
    assert key not in world.host
    for event in gone:
        with pytest.raises(UnknownKey):
            world.host.update(key, event.receipt, 0)
    world.forget(key)
    if gone and world.chance(0.5):  # a namesake
        predict_as(world, key, world.score(), None)
        with pytest.raises(UnknownForecast):
            world.host.update(key, gone[0].receipt, 0)


def drop_idle(world: World) -> None:
    """Keys leave, for ever or for a while."""
    dropped = world.host.drop_idle(1 + world.number(20))
    assert sorted([*dropped, *world.host]) == sorted(world.known())
    if world.pooled is None and world.chance(0.5):
        for key in dropped:
            world.members.pop(key, None)
        if world.chance(0.5):
            world.host.merge(dropped)
        else:
            dropped.merge(world.host)
            world.replace(dropped)
        return
    for key in dropped:
        world.forget(key)


def rows_out_and_in(world: World) -> None:
    """A database gives back what it was given."""
    keys = world.known()
    if keys:
        world.host.set_rows(keys, world.host.rows(keys))
        world.only_counts = True  # what was learnt of each is counted from here on


# ---- verbs: models join --------------------------------------------------------------------------------------------


def another_model(world: World) -> None:
    """A model joins; receipts from before stay good."""
    if world.models < 8:
        world.models += 1
        world.replace(world.host.with_model())
        world.twins = {key: twin.with_model() for key, twin in world.twins.items()}
        world.twins = world.twins or {ONE: world.kind.alone(ONE).with_model()}


Verb = Callable[[World], None]
VERBS: dict[str, Verb] = {
    "predict": predict,
    "update": update,
    "repeat": repeat,
    "run": run,
    "issue": issue,
    "learn": learn,
    "predict_many": predict_many,
    "restart": restart,
    "pickle": pickled,
    "deepcopy": deepcopied,
    "copy": copied,
    "a copy": copy_goes_its_own_way,
}
VERBS_OF_BANKS: dict[str, Verb] = {
    "fold": fold,
    "member": use_member,
    "mmap": read_only,
    "delete": delete,
    "drop_idle": drop_idle,
    "rows": rows_out_and_in,
}
MERGES: dict[str, Verb] = {"merge": merge}  # not of pooled banks: a pool stays as it is, so the twin has no such pool
VERBS_OF_MODELS: dict[str, Verb] = {"another model": another_model}
OFTEN = ("predict", "update", "fold", "run", "issue", "learn")


def is_watched(world: World) -> bool:
    """Whether there are monitors; they are told that outcomes never come at the end of a batch, the twin's are not."""
    return getattr(world.host, "watched", None) is not None or getattr(world.host, "monitor", None) is not None


# ---- sequences -----------------------------------------------------------------------------------------------------


def verbs_of(world: World) -> list[Verb]:
    """The verbs of a sequence: some of all, so that each is also met without some others; frequent ones twice."""
    kind = world.kind
    known = VERBS | (VERBS_OF_BANKS if kind.has_keys else {}) | (MERGES if kind.has_keys and not kind.is_pooled else {})
    known |= VERBS_OF_MODELS if kind.models else {}
    chosen = [name for name in known if name in ("predict", "update") or world.chance(0.5)]
    return [known[name] for name in chosen for _ in range(3 if name in OFTEN else 1)]


def check_sequence(name: str, seed: int, folder: Path, extra: Iterable[Verb] = ()) -> None:
    """Some verbs at random on a host; at the end all that is known of it is that of its twin."""
    world = World(KINDS[name], seed, folder)
    try:
        verbs = [*verbs_of(world), *extra]
        for _ in range(4 + world.number(16)):
            verb = verbs[world.number(len(verbs))]
            world.done.append(verb.__name__)
            CLOCK[0] += float(world.number(5000))
            verb(world)
        for event in [*world.waiting] if world.chance(0.5) else []:
            world.done.append("update at the end")
            assert world.host.update(*world.named(event.key), event.receipt, 1) == "learnt"
            world.twin_learns(event, Outcome(1))
        world.done.append("compare")
        check_all(world)
    except BaseException as error:
        error.add_note(f"check_sequence({name!r}, {seed}): {', '.join(world.done)}")
        raise


def check_all(world: World) -> None:
    """The host and its twin know the same."""
    host = world.host
    if world.kind.has_keys:
        assert sorted(host) == sorted(world.known())
    for key in world.known():
        mine = host[key] if world.kind.has_keys else host
        twin = world.twins[key] if world.pooled is None else world.pooled[key]
        assert (mine.events, mine.outcomes) == (twin.events, twin.outcomes)
        same(mine.row, twin.row)
        if world.kind.groups:
            assert mine.params["groups"] == twin.params["groups"]
        for column, monitor in twin.monitors.items():
            same(mine.monitors[column].row, monitor.row)
        if twin.notice is not None:
            same(mine.notice.row, twin.notice.row)
    look(world, host)


def sequences(name: str, seeds: Iterable[int], folder: Path, extra: Iterable[Verb] = ()) -> None:
    for seed in seeds:
        check_sequence(name, seed, folder, extra)


@pytest.mark.parametrize("name", KINDS)
def test_random_sequences(name: str, tmp_path: Path) -> None:
    sequences(name, range(10), tmp_path)


@pytest.mark.parametrize("name", KINDS)
def test_many_more_random_sequences(name: str, tmp_path: Path) -> None:
    """Some five thousand in all; CALIBEAT_SEQUENCES=5000 tries as many of each kind by hand."""
    sequences(name, range(10, int(os.environ.get("CALIBEAT_SEQUENCES", "100"))), tmp_path)


@pytest.mark.parametrize("name", ["Bank ops", "MultiBank ots", "Calibrator watched", "MultiCalibrator 3"])
def test_forks_among_the_verbs(name: str, tmp_path: Path) -> None:
    sequences(name, range(4), tmp_path, [fork] * 4)
