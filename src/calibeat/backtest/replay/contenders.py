"""What is replayed and compared: methods, rivals, columns of the log, scores of other models, other ways to use keys.

A `Contender` starts a replay. The engine feeds it chunk after chunk, and it learns each outcome when it is due.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from calibeat._util.types import Ints, Vector
from calibeat._util.words import did_you_mean
from calibeat.backtest.read.rows import Chunk
from calibeat.core import loops, vector
from calibeat.core.algebra import ln
from calibeat.core.auto import EPS
from calibeat.core.groups import NO_CELLS, Cells
from calibeat.core.layout import N
from calibeat.core.method import AUTO, BM, PRESETS, Method, method_named, name_of
from calibeat.core.refit import Refitter
from calibeat.core.subset import entry, kernel, large_kernel
from calibeat.core.vector import VectorMethod, softmax
from calibeat.errors import InvalidInput, UnknownMethod
from calibeat.hosts.groups import Groups, GroupTable
from calibeat.hosts.pool import Pool, pool_rows
from calibeat.rivals import READY, READY_ABOUT, Rival, is_rival, maker_of, play, takes_groups

from .late import LearningPlan, plan_at_once

# Constant cost per event and constant memory; FPS, which most people deploy, keeps its first 1,000 outcomes.
BASE_RATE = "base rate"
DEFAULT = ("raw", "auto", "fps", "ops", "tops", "hops", "obs", "tobs", "hobs", "f99", BASE_RATE)
WITHOUT_KEYS, POOLED_START, WITH_GROUPS = "without keys", "with a pooled start", "+ groups"
ABOUT = {
    "auto": "calibeat's own: six paces of drift mixed by log-loss, then an interpolated correction.",
    "bm": "The base model's score as it came.",
    "ops": "Online Platt scaling: two numbers, one Newton step per outcome.",
    "tops": "OPS, then the average outcome of its bin.",
    "hops": "OPS, then a randomised forecast that is calibrated even against an adversary.",
    "obs": "Online beta scaling: three numbers, the two ends bend apart.",
    "tobs": "OBS, then the average outcome of its bin.",
    "hobs": "OBS, then a randomised forecast that is calibrated even against an adversary.",
    "fps": "Platt scaling fitted once, on the first 1,000 outcomes: what most people deploy.",
    "fbs": "Beta scaling fitted once, on the first 1,000 outcomes.",
    "wps": "Platt scaling fitted again on all the past every 500 outcomes.",
    "wbs": "Beta scaling fitted again on all the past every 500 outcomes.",
    "swps": "Platt scaling fitted again every 100 outcomes on the last 1,000.",
    "swbs": "Beta scaling fitted again every 100 outcomes on the last 1,000.",
    "whb": "Histogram binning, fitted again every 500 outcomes.",
    "twhb": "Histogram binning, fitted again every 500 outcomes, then the average outcome of its bin.",
    "f99": "Foster's forecaster, which ignores the score: calibrated, and no more than that.",
}

# Of many classes:
ABOUT_CLASSES = {
    "raw": "The model's scores as they came, with a floor of 1e-7.",
    "fts": "Temperature scaling fitted once, on the first 1,000 labels: what most people deploy.",
    "swts": "Temperature scaling fitted again every 500 labels on the last 2,000.",
    "ots": "Online temperature scaling: one number, one Newton step per label.",
    "multi": "calibeat's own: temperature, class priors and confusions at several speeds of drift, mixed by log-loss.",
    BASE_RATE: "How often each class came so far, whatever the scores.",
}
ABOUT_BASE_RATE = "The share of ones so far, whatever the score. What it gains is no merit of a score."
ABOUT_PAIR = "calibeat's own: two classes are served by AUTO."

AnyMethod = Method | VectorMethod
_NOTHING: Ints = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Context:
    """A chunk, and what the engine knows about it.

    `plan` says when outcomes are learnt, None where each arrives at once. `draws` are uniform numbers, one an event.
    `streams` is how many streams there are so far. `marks` are events of the chunk at which to note the parameters.
    `into` is memory that a replay may write its forecasts to: new memory would cost more than what is written there.
    """

    chunk: Chunk
    plan: LearningPlan | None
    draws: Vector
    streams: int = 1
    marks: Ints = field(default_factory=lambda: _NOTHING)
    into: Vector | None = None

    @property
    def room(self) -> Vector:
        """For the forecasts of the chunk."""
        return np.empty(self.chunk.scores.shape) if self.into is None else self.into


class AnyReplay(Protocol):
    """A contender on its way through the log."""

    trail: list[Vector]  # the parameters at the marks; empty for a contender that has none

    def feed(self, context: Context) -> Vector:
        """The forecasts of the next chunk."""


@dataclass(frozen=True, eq=False)
class Contender:
    """A name, what it is, and how its replay starts.

    Where `method` is None, there are no parameters to show, no regret and no guarantee.
    """

    name: str
    about: str
    start: Callable[[bool], AnyReplay]  # with True: a stream forecasts the raw score until it has learnt an outcome
    method: AnyMethod | None = None  # with a stream for each key
    base: AnyMethod | None = None  # the method that is replayed in another way, where there is one:
    one_stream: bool = False  # without keys, or ...
    pooled: bool = False  # ... with a pooled start, or ...
    groups: Groups | None = None  # ... with these attributes
    age: str = ""  # at which it learns outcomes, if that is another age than for the rest: "3d"
    numbers: int = 1  # of a forecast: K, where there are many classes
    refits: Refits | None = None  # of a temperature
    is_base_rate: bool = False
    hidden: bool = False  # whether it was not asked for: the verdict looks at it, and it is not shown

    @property
    def label(self) -> str:
        """The name in the report: presets in capitals."""
        ending = f", mature {self.age}" if self.age else ""
        name = self.name.removesuffix(ending)
        presets: Iterable[str] = PRESETS if self.numbers == 1 else ABOUT_CLASSES
        return (name.upper() if name in presets and name not in ("raw", BASE_RATE) else name) + ending

    @property
    def is_default(self) -> bool:
        """Whether it is AUTO or MULTI: the method that is chosen before a log is seen."""
        return self.method == AUTO or (isinstance(self.method, VectorMethod) and self.method.name == "multi")

    @property
    def calibrates(self) -> bool:
        """Whether it is a method of ours, and not the raw score."""
        return self.method is not None and self.method != BM and self.name != "raw"

    @property
    def hedges(self) -> bool:
        """Whether its forecasts are random."""
        method = self.method or self.base
        return method is not None and method.draws

    @property
    def needs_history(self) -> bool:
        """Whether it keeps past outcomes beside its row."""
        return self.refits is not None or (self.method is not None and self.method.needs_history)

    def maturing(self, age: str) -> Contender:
        """The same, for outcomes that are learnt at one age."""
        about = f"{self.about} Every outcome is learnt at an age of {age}; until then it forecasts the raw score."
        return replace(self, name=f"{self.name}, mature {age}", about=about, age=age)


def chosen(methods: Any, *, keyed: bool, numbers: int = 1) -> tuple[list[Contender], list[str]]:
    """The contenders that were asked for, the raw score first and none twice; and notes on what was left out.

    `numbers` is that of a forecast: 1 of two classes, K of many.

    Raises
    ------
    InvalidInput : if `methods` are no names, methods or rivals, or there are none.
    UnknownMethod : if no preset has a name.

    >>> [contender.name for contender in chosen("tops, ops", keyed=False)[0]]
    ['raw', 'tops', 'ops']
    """
    if numbers == 1:
        found = [each for each in _listed(DEFAULT if methods is None else methods) if each.method != BM]
        picked = {each.name: each for each in [method_contender("raw", BM), *found]}
    else:
        names = ["raw", *class_methods(methods)]
        picked = {name: class_contender(name, numbers) for name in dict.fromkeys(names)}
    if not keyed:
        return list(picked.values()), []
    kept = [each for each in picked.values() if not each.needs_history]
    left = [each.name.upper() for each in picked.values() if each.needs_history]
    note = (
        f"{', '.join(left)} left out: with keys each stream lives in a row of numbers, and these methods keep past "
        "outcomes besides."
    )
    return kept, [note] if left else []


def class_methods(asked: Any) -> list[str]:
    """The methods of many classes that were asked for; all if none were named.

    >>> class_methods("multi, ots")
    ['multi', 'ots']
    """
    if asked is None:
        return list(ABOUT_CLASSES)
    names = asked.split(",") if isinstance(asked, str) else asked
    if not isinstance(names, Iterable):
        raise InvalidInput(f"methods must be names, got {type(names).__name__} {names!r:.60}")
    found = [str(name).strip().lower() for name in names]
    if not found:
        raise InvalidInput("methods must name one at least, got none")
    for name in found:
        if name not in ABOUT_CLASSES:
            known = ", ".join(ABOUT_CLASSES)
            raise UnknownMethod(f"method must be one of {known}, got {name!r}{did_you_mean(name, ABOUT_CLASSES)}")
    return found


def _listed(methods: Any) -> list[Contender]:
    if isinstance(methods, Mapping):
        found = [_of_pair(name, method) for name, method in methods.items()]
    elif isinstance(methods, str):
        found = [_named(name.strip()) for name in methods.split(",") if name.strip()]
    elif isinstance(methods, Method):
        found = [_named(methods)]
    elif isinstance(methods, Iterable):
        found = [_named(method) for method in methods]
    else:
        raise InvalidInput(f"methods must be names of presets or methods, got {type(methods).__name__} {methods!r:.60}")
    for each in found:
        if each.name.lower() == "raw" and each.method != BM:
            got = each.about if each.method is None else each.method
            raise InvalidInput(f"methods must not give the name of the raw score to another, got {each.name!r}: {got}")
    if not found:
        raise InvalidInput("methods must name one at least, got none")
    return found


def _of_pair(name: Any, method: Any) -> Contender:
    """A method, or a rival: an object with `predict` and `update`, or a function that makes one."""
    if isinstance(name, str) and isinstance(method, Method):
        return method_contender(name, method)
    if isinstance(name, str) and isinstance(method, str):
        return replace(_named(method.strip()), name=name)
    if isinstance(name, str) and is_rival(method):
        return rival_contender(name, method)
    raise InvalidInput(
        "methods must map names to methods, presets' names or objects with predict and update, got "
        f"{name!r:.60}: {method!r:.60}"
    )


def _named(method: Any) -> Contender:
    if isinstance(method, Method):
        return method_contender(name_of(method) or str(method), method)
    if isinstance(method, str) and method.lower() == "raw":
        return method_contender("raw", BM)
    if isinstance(method, str) and method.lower() == BASE_RATE:
        return base_rate_contender(1)
    if isinstance(method, str) and method.lower() in READY:
        return rival_contender(method.lower(), READY[method.lower()], READY_ABOUT[method.lower()])
    found = method_named(method)
    return method_contender(str(method).lower(), found)


def with_base_rate(contenders: list[Contender], numbers: int) -> list[Contender]:
    """The contenders, and the base rate if it is not among them: the verdict needs it, nobody asked to see it."""
    if any(each.is_base_rate for each in contenders):
        return contenders
    name = _free(BASE_RATE, {each.name: each for each in contenders})
    return [*contenders, replace(base_rate_contender(numbers), name=name, hidden=True)]


def with_others(
    contenders: list[Contender], columns: Mapping[str, str], *, asked: bool
) -> tuple[list[Contender], list[str]]:
    """The contenders, and those of other columns of the log; and notes. `columns` are names by role, in order.

    Of another model's scores the raw score is compared, and AUTO; all the methods, if they were `asked` for by name.
    """
    found = {each.name: each for each in contenders}
    notes: list[str] = []

    def add(name: str, about: str, start: Callable[[bool], AnyReplay], base: Method | None = None) -> None:
        free = _free(name, found)
        found[free] = Contender(free, about, start, base=base)

    for at, (role, name) in enumerate(columns.items()):
        if role.startswith("rival"):
            add(name, f"Forecasts that stand in the log, as {name!r}.", _column(at))
            continue
        add(name, f"The raw score of another model, {name!r}.", _column(at))
        for each in contenders:
            if isinstance(each.method, Method) and each.calibrates and (asked or each.method == AUTO):
                about = f"{each.label} on the scores of another model, {name!r}."
                add(f"{each.label} of {name}", about, _other_score(each.method, at), each.method)
        notes.append(f"Methods of {name!r} say so in their names. The others, and raw, are of the first score.")
    return list(found.values()), notes


@dataclass(frozen=True)
class KeyVariants:
    """The names of one method with keys, without them, and with keys that start from what all keys have taught."""

    keyed: str
    without: str
    pooled: str


def with_key_variants(contenders: list[Contender]) -> tuple[list[Contender], KeyVariants | None]:
    """AUTO, or the first method, is also replayed without keys and with a pooled start."""
    keyed = auto_or_first(contenders)
    if keyed is None or keyed.method is None:
        return contenders, None
    method, numbers, taken = keyed.method, keyed.numbers, {each.name: each for each in contenders}
    without, pooled = (_free(f"{keyed.label} {kind}", taken) for kind in (WITHOUT_KEYS, POOLED_START))
    variants = [
        Contender(
            without,
            f"{keyed.label} on all events as one stream: keys are not looked at.",
            _start(OneStreamReplay, method, numbers),
            base=method,
            one_stream=True,
            numbers=numbers,
        ),
        Contender(
            pooled,
            f"{keyed.label} with a stream for each key; a new key starts from what all keys have taught.",
            _start(PooledReplay, method, numbers),
            base=method,
            pooled=True,
            numbers=numbers,
        ),
    ]
    return [*contenders, *variants], KeyVariants(keyed.name, without, pooled)


def with_auto(contenders: list[Contender]) -> list[Contender]:
    """The contenders, and AUTO if it is not among them: groups are compared with it."""
    if any(each.is_default for each in contenders):
        return contenders
    name = _free("auto", {each.name: each for each in contenders})
    return [*contenders, method_contender(name, AUTO)]


def with_groups(contenders: list[Contender], groups: Groups) -> list[Contender]:
    """The contenders, and AUTO with groups, on all events as one stream."""
    auto = next(each for each in contenders if each.is_default)
    name = _free(f"{auto.label} {WITH_GROUPS}", {each.name: each for each in contenders})
    about = f"{auto.label} that also learns an offset for each value of {', '.join(groups.columns)}."
    return [
        *contenders,
        Contender(
            name, about, lambda raw: GroupedReplay(groups, raw_first=raw), base=AUTO, one_stream=True, groups=groups
        ),
    ]


def auto_or_first(contenders: Iterable[Contender]) -> Contender | None:
    """AUTO (or MULTI) if it is among them, else the first method that calibrates."""
    ours = [each for each in contenders if each.calibrates]
    return next((each for each in ours if each.is_default), ours[0] if ours else None)


def _free(name: str, taken: Mapping[str, object]) -> str:
    """A name that no other contender has."""
    while name in taken or name.lower() == "raw":
        name += " (log)"
    return name


# ---- methods -----------------------------------------------------------------------------------------------------


def method_contender(name: str, method: Method) -> Contender:
    """A method with a stream for each key."""
    about = ABOUT.get(name_of(method) or "", str(method))
    if method == BM:
        return Contender(name, about, lambda _: RawReplay(), method)
    return Contender(name, about, _start(MethodReplay, method), method)


def class_contender(name: str, K: int) -> Contender:
    """A method of many classes; of two, MULTI is AUTO on the second column."""
    if name == BASE_RATE:
        return base_rate_contender(K)
    if name in REFITS:
        refits = REFITS[name]
        return Contender(name, ABOUT_CLASSES[name], lambda _: TemperatureReplay(refits, K), numbers=K, refits=refits)
    pair = name == "multi" and K == 2
    method: AnyMethod = AUTO if pair else VectorMethod(name, K)
    about = ABOUT_PAIR if pair else ABOUT_CLASSES[name]
    return Contender(name, about, _start(MethodReplay, method, K), method, numbers=K)


def _start(kind: type[MethodReplay], method: AnyMethod, numbers: int = 1) -> Callable[[bool], AnyReplay]:
    """How a replay starts; a method of two classes whose forecasts have two columns gets the second."""

    def start(raw_first: bool) -> AnyReplay:
        replay = kind(method, raw_first=raw_first)
        return PairReplay(replay) if numbers == 2 and isinstance(method, Method) else replay

    return start


class RawReplay:
    """The raw score: nothing is learnt."""

    def __init__(self) -> None:
        self.trail: list[Vector] = []

    def feed(self, context: Context) -> Vector:
        """The scores."""
        return context.chunk.scores


class MethodReplay:
    """A method on its way through the log: a row for every stream, and the receipts of what is under way.

    Forecasts have the same bits as those of `Calibrator.run` over the whole log, however it is cut into chunks.
    """

    def __init__(self, method: AnyMethod, *, raw_first: bool = False) -> None:
        self.method = method
        self.raw_first = raw_first  # whether a stream forecasts the raw score until it has learnt an outcome
        self.trail: list[Vector] = []  # what was learnt, at the marks asked for
        self._initial = method.initial_row()
        self._rows = self._initial.copy()
        self._refitter = Refitter(method) if isinstance(method, Method) and method.needs_history else None
        self._work = vector.scratch(method.classes) if isinstance(method, VectorMethod) else loops.NO_NUMBERS
        self._made = 0
        self._cells, self._receipts = _NOTHING, np.empty((0, method.receipt_width))  # of events under way
        self._issued: Vector | None = None
        self._words = np.empty((0, 0), dtype=np.int64)  # with groups, of each event

    @property
    def _groups(self) -> Cells:
        """The cells of the groups."""
        return NO_CELLS

    def feed(self, context: Context) -> Vector:
        """The forecasts of a chunk."""
        chunk, plan = context.chunk, context.plan
        self._open(context.streams)
        forecasts = self._feed_now(context) if plan is None else self._feed_late(plan, context)
        if self._refitter is not None:
            self._refitter.forget(int(self._rows[N]))
        self._made += len(chunk)
        return forecasts

    def _feed_now(self, context: Context) -> Vector:
        chunk, forecasts = context.chunk, context.room
        events = chunk.scores.reshape(-1), chunk.outcomes, context.draws, forecasts.reshape(-1)
        batch = loops.Batch(*events, loops.NO_NUMBERS, self._work, self._words.reshape(-1))
        self._play(chunk.slots, batch, None, (0, len(chunk)), context.marks)
        return forecasts

    def _feed_late(self, plan: LearningPlan, context: Context) -> Vector:
        total, first = len(plan.scores), plan.first
        forecasts, cells = np.empty(plan.scores.shape), np.empty(total, dtype=np.int64)
        receipts = np.empty((total, self._receipts.shape[1]))
        cells[:first], receipts[:first] = self._cells, self._receipts
        if self._issued is not None:
            forecasts[:first] = self._issued
        events = plan.scores.reshape(-1), plan.outcomes, context.draws, forecasts.reshape(-1)
        batch = loops.Batch(*events, receipts.reshape(-1), self._work, self._words.reshape(-1))
        streams = len(self._rows) // len(self._initial)
        late = loops.Late(first, cells, plan.due, plan.order, streams if self.raw_first else 0)
        # A forecast does not move a row. So a row is noted after its event, behind the outcomes that came before it.
        self._play(plan.slots, batch, late, (first, total), first + context.marks + 1)
        self._cells, self._receipts, self._issued = cells[plan.left], receipts[plan.left], forecasts[plan.left]
        return forecasts[first:]

    def _play(
        self, slots: Ints, batch: loops.Batch, late: loops.Late | None, span: tuple[int, int], marks: Ints
    ) -> None:
        """Play the span of events; the loop stops where a row is to be noted and where a refit is due."""
        width, refitter, (begin, end) = len(self._initial), self._refitter, span
        streams = len(self._rows) // width
        known = slots.astype(np.int32) if streams > 1 else loops.NO_SLOTS
        rows = loops.Streams(self._rows, width, known, 0, streams, 0, float(self._made))
        place, noted = loops.place_before(begin), 0
        for stop in (end,) if refitter is None else refitter.stretches(self._rows, batch, late, end):
            # A late outcome that arrives at a mark belongs to what follows, and so does a fit after it.
            until = int(np.searchsorted(marks, stop, side="left" if late is None else "right"))
            for mark in marks[noted:until].tolist():
                loops.run_batch(self.method.spec, rows, batch, late, place, mark, self._groups)
                self._note()
            noted = until
            loops.run_batch(self.method.spec, rows, batch, late, place, stop, self._groups)

    def _note(self) -> None:
        """Note the row without its cells, which say nothing of the parameters; of many classes the biases."""
        row, method = self._rows[: len(self._initial)], self.method
        if isinstance(method, Method):
            tail = [] if method.learner is None else method.learner.tail()
            self.trail.append(np.concatenate([row[: method.spec.cells], row[len(row) - len(tail) :]]))
        elif method.name == "multi":
            K = method.classes
            lanes = row[vector.BIAS : vector.BIAS + 8 * K].reshape(4, 2, K)[:, 0]
            self.trail.append(row[vector.W : vector.W + 4] @ lanes)

    def _open(self, streams: int) -> None:
        """Make room for `streams`, each starting from nothing."""
        width = len(self._initial)
        have = len(self._rows) // width
        if streams > have:
            more = max(streams, have + have // 2) - have
            self._rows = np.concatenate([self._rows, np.tile(self._initial, more)])


def parted(method: AnyMethod | None) -> tuple[Method, Method] | None:
    """The expert of a method, and its calibeater alone, whose scores are the forecasts of the expert.

    Where outcomes arrive at once, the two in a row have the bits of the method: the calibeater looks at what the expert
    says and at nothing else. None where a method has no such parts.

    >>> parted(PRESETS["tops"]) == (PRESETS["ops"], Method(calibeater=PRESETS["tops"].calibeater))
    True
    """
    if not isinstance(method, Method) or method.learner is None or method.calibeater is None:
        return None
    if method.mixes or method.guard is not None:
        return None
    return replace(method, calibeater=None), Method(calibeater=method.calibeater)


class PairReplay:
    """Two classes with a column each: a method of one number on the second."""

    def __init__(self, replay: MethodReplay) -> None:
        self._replay = replay
        self.trail = replay.trail

    def feed(self, context: Context) -> Vector:
        """The forecasts of a chunk, a matrix."""
        plan = context.plan and replace(context.plan, scores=_second(context.plan.scores))
        one = replace(context.chunk, scores=_second(context.chunk.scores))
        p = self._replay.feed(replace(context, chunk=one, plan=plan, into=None))
        return np.stack([1.0 - p, p], axis=1)


def _second(scores: Vector) -> Vector:
    return np.ascontiguousarray(scores[:, 1])


# ---- the base rate -----------------------------------------------------------------------------------------------


def base_rate_contender(numbers: int) -> Contender:
    """The running mean of the outcomes; of many classes, the shares of the labels."""
    about = ABOUT_BASE_RATE if numbers == 1 else ABOUT_CLASSES[BASE_RATE]

    def start(raw_first: bool) -> AnyReplay:
        return BaseRateReplay(numbers, raw_first=raw_first)

    return Contender(BASE_RATE, about, start, numbers=numbers, is_base_rate=True)


class BaseRateReplay:
    """Forecasts (n_k + 1/K) / (n + 1), where n_k of the n outcomes known so far are k. Keys are not looked at."""

    def __init__(self, numbers: int, *, raw_first: bool = False) -> None:
        self.trail: list[Vector] = []
        self._numbers, self._raw_first = numbers, raw_first
        self._known = np.zeros(max(2, numbers), dtype=np.int64)

    def feed(self, context: Context) -> Vector:
        """The forecasts of a chunk."""
        plan = context.plan
        if plan is None:  # before each event, of this chunk, so many were learnt
            known = ~np.isnan(context.chunk.outcomes)
            labels, learnt = context.chunk.outcomes[known].astype(np.int64), np.cumsum(known) - known
        else:
            labels, events = plan.outcomes[plan.order].astype(np.int64), np.arange(plan.first, len(plan.outcomes))
            learnt = np.searchsorted(plan.due[plan.order], events, side="right")
        total, classes = self._known.sum(), len(self._known)
        columns = []
        for k in range(classes) if self._numbers > 1 else [1]:
            came = self._known[k] + np.concatenate([[0], np.cumsum(labels == k)])[learnt]
            columns.append((came + 1.0 / classes) / (total + learnt + 1.0))
        forecasts = np.stack(columns, axis=1) if self._numbers > 1 else columns[0]
        if self._raw_first and not total:
            forecasts[learnt == 0] = context.chunk.scores[learnt == 0]
        self._known += np.bincount(labels, minlength=classes)
        return forecasts


# ---- temperature scaling -----------------------------------------------------------------------------------------
#
# The forecast is softmax(A x), x_k = ln max(score_k, 1e-7), A = 1/temperature. A has the least log-loss over the labels
# in a window, the derivative of which rises with A:
#
#     g(A) = sum_i  E_{softmax(A x_i)} x - x_{i, y_i}

MOST_SLOPE = 100.0  # of A: where every label is the top class, nothing else would end the fit
SLOPE, LEARNT = 0, 1  # of the state


@dataclass(frozen=True)
class Refits:
    """When a temperature is fitted: after so many labels, then every so many (0: never again), on the last of them."""

    after: int
    every: int
    window: int


REFITS = {"fts": Refits(after=1000, every=0, window=1000), "swts": Refits(after=1000, every=500, window=2000)}


@kernel
def scaled(A: float, x: Vector, p: Vector) -> None:
    """p <- softmax(A x)."""
    for k in range(len(x)):
        p[k] = A * x[k]
    softmax(p)


@large_kernel
def fit_slope(K: int, X: Vector, Y: Ints, count: int, A: float, p: Vector) -> float:
    """The A of least log-loss over `count` events, by Newton's steps inside a bracket; A is where it starts."""
    low, high = 0.0, MOST_SLOPE
    for _ in range(60):
        g = h = 0.0
        for i in range(count):
            x = X[i * K : (i + 1) * K]
            scaled(A, x, p)
            origin = x[Y[i]]
            mean = square = 0.0
            for k in range(K):
                d = x[k] - origin
                mean += p[k] * d
                square += p[k] * d * d
            g += mean
            h += square - mean * mean
        if g > 0.0:
            high = A
        else:
            low = A
        newton = A - g / h if h > 0.0 else low
        to = newton if low < newton < high else 0.5 * (low + high)
        step = to - A
        A = to
        if -1e-9 < step < 1e-9 or high - low < 1e-9:
            break
    return A


@entry
def replay_temperature(
    K: int,
    state: Vector,
    X: Vector,
    Y: Ints,
    after: int,
    every: int,
    scores: Vector,
    labels: Vector,
    forecasts: Vector,
    first: int,
    due: Ints,
    order: Ints,
    work: Vector,
) -> None:
    """Forecast the events from `first` on; those before it are under way. Label i is learnt just before event due[i].

    `order` sorts by `due`. X and Y hold the last labels that were learnt, in a ring.
    """
    window = len(Y)
    x, p = work[:K], work[K : 2 * K]
    arrived = 0
    for i in range(first, len(labels) + 1):
        while arrived < len(order) and due[order[arrived]] <= i:
            j = order[arrived]
            arrived += 1
            at = int(state[LEARNT]) % window
            for k in range(K):
                X[at * K + k] = ln(max(scores[j * K + k], EPS))
            Y[at] = int(labels[j])
            state[LEARNT] += 1.0
            n = int(state[LEARNT])
            if n == after or (every > 0 and n > after and (n - after) % every == 0):
                state[SLOPE] = fit_slope(K, X, Y, min(n, window), state[SLOPE], p)
        if i == len(labels):
            break
        for k in range(K):
            x[k] = ln(max(scores[i * K + k], EPS))
        scaled(state[SLOPE], x, forecasts[(i - first) * K : (i - first + 1) * K])


class TemperatureReplay:
    """Temperature scaling that is fitted once, or again and again on a window."""

    def __init__(self, refits: Refits, K: int) -> None:
        self.refits, self.K = refits, K
        self.trail: list[Vector] = []
        self.state = np.array([1.0, 0.0])
        self._x, self._y = np.zeros(refits.window * K), np.zeros(refits.window, dtype=np.int64)

    def feed(self, context: Context) -> Vector:
        """The forecasts of a chunk, a matrix."""
        plan = context.plan or plan_at_once(context.chunk)
        forecasts = np.empty((len(plan.outcomes) - plan.first, self.K))
        learnt = self.K, self.state, self._x, self._y, self.refits.after, self.refits.every
        events = plan.scores.reshape(-1), plan.outcomes, forecasts.reshape(-1), plan.first, plan.due, plan.order
        replay_temperature(*learnt, *events, np.empty(2 * self.K))
        return forecasts


# ---- rivals ------------------------------------------------------------------------------------------------------


def rival_contender(name: str, thing: Any, about: str = "") -> Contender:
    """An object with `predict` and `update`, or a function that makes one; each stream gets its own."""
    make = maker_of(thing, name)
    shown = about or f"A rival: {getattr(thing, '__qualname__', type(thing).__qualname__)}."
    return Contender(name, shown, lambda raw_first: RivalReplay(make, name, raw_first=raw_first))


class RivalReplay:
    """A rival on its way through the log, one object a stream. One that looks at groups does not look at keys."""

    def __init__(self, make: Callable[[], Rival], name: str, *, raw_first: bool = False) -> None:
        self._make, self._name, self._raw_first = make, name, raw_first
        self._rivals: list[Rival] = [make()]  # a rival that cannot be made fails before the log is read
        self._learnt = np.zeros(1, dtype=np.int64)
        self._made = 0
        self._words: Ints | None = None  # of the groups: of events under way
        self.trail: list[Vector] = []

    def feed(self, context: Context) -> Vector:
        """The forecasts of a chunk."""
        if takes_groups(self._rivals[0]):
            context = in_one_stream(context)
        chunk, plan, streams = context.chunk, context.plan, context.streams
        self._rivals += [self._make() for _ in range(streams - len(self._rivals))]
        self._learnt = np.concatenate([self._learnt, np.zeros(streams - len(self._learnt), dtype=np.int64)])
        plan = plan or plan_at_once(chunk)
        words = chunk.words if self._words is None else np.concatenate([self._words, chunk.words])
        forecasts = play(
            self._rivals.__getitem__,
            plan.slots.tolist(),
            plan.scores,
            plan.outcomes,
            plan.due.tolist(),
            plan.order.tolist(),
            words=words,
            first=plan.first,
            name=self._name,
            begin=self._made,
        )
        if self._raw_first:
            self._raw_until_learnt(plan, forecasts)
        self._words = None if words is None else words[plan.left]
        self._made += len(chunk)
        return forecasts

    def _raw_until_learnt(self, plan: LearningPlan, forecasts: Vector) -> None:
        """A stream that had learnt nothing when an event came has forecast its raw score."""
        when = np.where(self._learnt > 0, -1, len(plan.scores) + 1)
        np.minimum.at(when, plan.slots[plan.order], plan.due[plan.order])
        events = np.arange(plan.first, len(plan.scores))
        early = when[plan.slots[plan.first :]] > events
        forecasts[early] = plan.scores[plan.first :][early]
        np.add.at(self._learnt, plan.slots[plan.order], 1)


# ---- columns of the log ------------------------------------------------------------------------------------------


def _column(at: int) -> Callable[[bool], AnyReplay]:
    return lambda _: ColumnReplay(at)


class ColumnReplay:
    """The forecasts of a column: nothing is learnt."""

    def __init__(self, at: int) -> None:
        self._at = at
        self.trail: list[Vector] = []

    def feed(self, context: Context) -> Vector:
        """The column."""
        return other_column(context.chunk, self._at)


def other_column(chunk: Chunk, at: int) -> Vector:
    """A column of the chunk that is neither score nor outcome."""
    if chunk.others is None:  # pragma: no cover - the reader was told to read the column
        raise TypeError("a chunk without other columns has none to give")
    return np.ascontiguousarray(chunk.others[:, at])


def _other_score(method: Method, at: int) -> Callable[[bool], AnyReplay]:
    return lambda raw_first: OtherScoreReplay(method, at, raw_first=raw_first)


class OtherScoreReplay(MethodReplay):
    """A method whose scores stand in another column."""

    def __init__(self, method: Method, at: int, *, raw_first: bool = False) -> None:
        super().__init__(method, raw_first=raw_first)
        self._at = at
        self._waiting = np.empty(0)  # the scores of events under way

    def feed(self, context: Context) -> Vector:
        """The forecasts of a chunk."""
        scores, plan = other_column(context.chunk, self._at), context.plan
        if plan is not None:
            waiting = np.concatenate([self._waiting, scores])
            plan, self._waiting = replace(plan, scores=waiting), waiting[plan.left]
        return super().feed(replace(context, chunk=replace(context.chunk, scores=scores), plan=plan))


# ---- other ways to use keys --------------------------------------------------------------------------------------


class OneStreamReplay(MethodReplay):
    """A method that does not look at keys."""

    def __init__(self, method: AnyMethod, *, raw_first: bool = False) -> None:
        super().__init__(method, raw_first=raw_first)
        self.keys: PooledReplay | None = None  # whose new keys start from this stream: it is their pool

    def feed(self, context: Context) -> Vector:
        """The forecasts of a chunk."""
        if self.keys is None:
            return super().feed(in_one_stream(context))
        said = context.room
        self.keys.open(context, self._rows, said)
        return said


def in_one_stream(context: Context) -> Context:
    """The same events without their keys."""
    mine = replace(context.chunk, slots=np.zeros_like(context.chunk.slots))
    plan = None if context.plan is None else replace(context.plan, slots=np.zeros_like(context.plan.slots))
    return replace(context, chunk=mine, plan=plan, streams=1)


class GroupedReplay(OneStreamReplay):
    """AUTO with groups: forecasts have the bits of ``Calibrator(groups=...).run``. Keys are not looked at."""

    def __init__(self, groups: Groups, *, raw_first: bool = False) -> None:
        super().__init__(AUTO, raw_first=raw_first)
        self._table = GroupTable(groups, AUTO)
        self._initial = self._table.initial_row()
        self._rows = self._initial.copy()
        self._receipts = np.empty((0, self._table.receipt_width))
        self._words = np.empty(
            (0, len(groups.attributes)), dtype=np.int64
        )  # of events under way, then of the chunk too

    @property
    def _groups(self) -> Cells:
        return self._table.cells

    @property
    def spread(self) -> dict[str, float]:
        """How much the values of each column differ, in logits, by what was learnt so far."""
        spread: dict[str, float] = self._table.params(self._rows)["spread"]
        return spread

    @property
    def warning(self) -> str | None:
        """What to say of a table that has forgotten many cells."""
        return self._table.warning(self._rows) if self._table.is_crowded(self._rows) else None

    def feed(self, context: Context) -> Vector:
        """The forecasts of a chunk."""
        words, plan = context.chunk.words, context.plan
        if words is None:  # pragma: no cover - the reader was told to read the attributes
            raise TypeError("a chunk without attributes has none to give")
        self._words = np.ascontiguousarray(words if plan is None else np.concatenate([self._words, words]))
        forecasts = super().feed(replace(context, marks=_NOTHING))
        if plan is not None:
            self._words = self._words[plan.left]
        return forecasts


def _told(scores: Vector, outcomes: Vector) -> loops.Batch:
    """Scores and outcomes alone, as the pool reads them."""
    return loops.Batch(scores.reshape(-1), outcomes, loops.NO_NUMBERS, loops.NO_NUMBERS, loops.NO_NUMBERS)


class PooledReplay(MethodReplay):
    """A method whose new keys start from what all keys have taught, as in ``Bank(prior="pooled")``."""

    def __init__(self, method: AnyMethod, *, raw_first: bool = False) -> None:
        super().__init__(method, raw_first=raw_first)
        self._pool = method.initial_row()
        self._slot_of = np.empty(0, dtype=np.int64)  # of a stream: its slot, in the order of first events; -1: none yet
        self._opened = 0
        self._slots: Ints | None = None  # of a chunk whose new keys are open already

    def lean_on(self, stream: AnyReplay) -> bool:
        """Take a stream of the same method that learns from all events as the pool, if it is one -> whether it is."""
        if type(stream) is not OneStreamReplay or stream.method != self.method or not isinstance(self.method, Method):
            return False
        if not self.method.draws:  # a pool draws nothing
            stream.keys = self
        return not self.method.draws

    def feed(self, context: Context) -> Vector:
        """The forecasts of a chunk."""
        plan = context.plan
        if plan is None:
            slots = self.open(context, self._pool, loops.NO_NUMBERS) if self._slots is None else self._slots
            self._slots = None
        else:
            opened, slots = self._opened, self._open_slots(context)
            plan = replace(plan, slots=self._slot_of[plan.slots])
            events = plan.slots.astype(np.int32), _told(plan.scores, plan.outcomes)
            pool = Pool(True, self._pool, self._initial, opened, self._work)
            pool_rows(self.method.spec, pool, self._rows, len(self._initial), *events, *plan.arrival_lists)
        mine = replace(context.chunk, slots=slots)
        return super().feed(replace(context, chunk=mine, plan=plan, streams=self._opened))

    def open(self, context: Context, pool: Vector, said: Vector) -> Ints:
        """Take the pool through a chunk, and let new keys start from it -> the slots of the events."""
        chunk, opened = context.chunk, self._opened
        self._slots = slots = self._open_slots(context)
        events = slots.astype(np.int32), _told(chunk.scores, chunk.outcomes)
        shared = Pool(True, pool, self._initial, opened, self._work, said)
        pool_rows(self.method.spec, shared, self._rows, len(self._initial), *events, loops.NO_INTS, loops.NO_INTS)
        return slots

    def _open_slots(self, context: Context) -> Ints:
        """Slots in the order of first events, as the pool's loop wants them; with room for the new ones."""
        streams_of = context.chunk.slots
        self._slot_of = np.concatenate([self._slot_of, np.full(max(0, context.streams - len(self._slot_of)), -1)])
        new = streams_of[self._slot_of[streams_of] < 0]
        seen, first = np.unique(new, return_index=True)
        order = seen[np.argsort(first, kind="stable")]
        self._slot_of[order] = self._opened + np.arange(len(order))
        self._opened += len(order)
        self._open(self._opened)
        return self._slot_of[streams_of]
