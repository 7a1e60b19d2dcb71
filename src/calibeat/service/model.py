"""How the streams of a store learn: a method, the seed of its draws, and the settings of its monitors.

A stream is bytes: its row, and its monitor. A fold copies those of some streams into matrices, does all operations in
one compiled call and gives the streams new bytes. There are no keys and nothing to undo: whoever fails to commit what
a fold has made throws it away.

Streams of two classes share a matrix, those of K classes or of k models, or of one kept log, another one. A stream
with groups has its row, and a table of cells that the fold changes in place and lists the changes of. Streams do not
see each other, so it is the same whether their operations are done in one call or in several.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from calibeat._util.check import shown
from calibeat._util.types import Ints, Slots, Vector
from calibeat.core.auto import Lanes
from calibeat.core.limits import check_rows
from calibeat.core.loops import NO_NUMBERS
from calibeat.core.method import Method, method_named
from calibeat.core.randomness import numbered, stream_key, uniforms_at
from calibeat.core.several import SeveralMethod, with_one_more
from calibeat.core.stats import EVENTS
from calibeat.errors import InvalidInput
from calibeat.hosts.calibrator import with_band
from calibeat.hosts.groups import SLOT, GroupedMethod, GroupTable
from calibeat.hosts.models import widened
from calibeat.hosts.receipts import Receipts
from calibeat.hosts.rows import Fold, FoldColumns, Matrix, check_learns, fold_on_rows, new_rows, receipt_type
from calibeat.monitor.bets import Settings
from calibeat.monitor.waiting import Queue

from .events import Observed
from .shape import PLAIN, Shape
from .watch import Raised, Settled, StreamMonitors

StoredCell = tuple[int, bytes]  # a slot, and what it holds


@dataclass(slots=True, eq=False)
class StreamBytes:
    """What a model knows of a stream. None: it has seen nothing."""

    name: str
    state: bytes | None = None  # the row: state of the method, and stats behind it
    monitor: bytes | None = None  # its monitors: see `watch`
    notice: bytes | None = None  # when things arrived: see `notices`
    deadline: float | None = None  # the moment at which something is overdue; None: nothing can be missed
    queue: Queue | None = None  # what waits in the monitors; the store has it as events
    alarms: int = 0
    draws: int | None = None  # names the stream's draws; made when it first draws
    key: str | None = None  # the name that its draws are made of, where it was renamed
    shape: Shape = PLAIN
    table: GroupTable | None = None  # of a stream with groups; a fold changes it in place
    changed: list[StoredCell] = field(default_factory=list)  # what the last folds have changed in it


class Folded(NamedTuple):
    """What a fold gives: for each operation its forecast or NaN, for each forecast its receipt, and new alarms.

    Of K classes the forecast is that of the class named, the one with the largest probability. `classes` has, by
    the number of the operation, which class that is, and all K forecasts as bytes. `bands` has, in the same way, the
    four numbers of each band as bytes: low, high, outcomes, and the place of the reason.
    """

    forecasts: list[float]
    receipts: list[bytes]
    raised: list[Raised]
    classes: dict[int, tuple[int, bytes]]
    bands: dict[int, bytes] = {}  # noqa: RUF012 - nobody changes it


class GroupedStream(GroupedMethod):
    """The method of a stream with groups. Its receipts leave out the words of the event: the store has them beside."""

    def fold(
        self,
        rows: Matrix,
        slots: Slots,
        scores: Vector,
        outcomes: Vector,
        own: Ints,
        receipts: Any,
        draws: Vector,
        watch: StreamMonitors | None,
        words: Ints,
        given_up: Collection[tuple[int, int]],
        weights: Vector,
        trials: Vector,
    ) -> Fold:
        """As `fold_on_rows`, on the one row of the stream and its table."""
        columns = FoldColumns(self, slots, scores, outcomes, own)
        columns.cells, columns.words, columns.trials = self.table.cells, words, trials
        made = fold_on_rows(self, rows, slots, scores, outcomes, own, receipts, draws, columns, weights)
        if watch is not None:
            watch.read(columns, given_up)
        return made


@dataclass(frozen=True)
class Model:
    """A method, the seed of its draws, and what its monitors are asked for, if there are any.

    >>> model, paris = Model.named("ops"), StreamBytes("paris")
    >>> model.fold([paris], [0, 0], [0.83, float("nan")], [float("nan"), 1.0], [-1, 0]).forecasts
    [0.83, nan]
    >>> len(paris.state) == 8 * model.width
    True
    """

    method: Method
    seed: int = 0
    watched: Settings | None = None

    @classmethod
    def named(cls, method: str, seed: int = 0, arl: float | None = None, *, band: bool = False) -> Model:
        """The model of a preset; `arl` is that of its monitors; with a band forecasts say how sure they are.

        Raises
        ------
        UnknownMethod : there is no such preset.
        InvalidInput : its state does not fit a row, or it knows of no band.
        """
        chosen = with_band(method_named(method), band)
        if chosen.needs_history:
            raise InvalidInput(f"method must be one that lives in a row, such as auto or tops, got {shown(method)}")
        return cls(chosen, seed, None if arl is None else Settings(arl))

    @property
    def width(self) -> int:
        """How many numbers the row of a stream of two classes has."""
        return len(self._fresh) // 8

    @cached_property
    def _fresh(self) -> bytes:
        return new_rows(self.method, 1).tobytes()

    @property
    def has_groups(self) -> bool:
        """Whether its streams can look at groups."""
        return isinstance(self.method.learner, Lanes)

    def begin_anew(self, stream: StreamBytes) -> None:
        """The state of a stream that has learnt nothing. Its forecasts are counted on: their numbers stay unique."""
        rows, width = self.rows([stream]), self.method_of(stream).width
        stream.state = stream.table = stream.monitor = None
        stream.alarms, stream.changed, stream.queue = 0, [], None
        fresh = self.rows([stream])
        fresh[:, width + EVENTS] = rows[:, width + EVENTS]
        stream.state = fresh.tobytes()

    def method_of(self, stream: StreamBytes) -> Any:
        """The method of a stream, by its shape. A stream with groups gets its table with it."""
        shape = stream.shape
        if shape.groups is None:
            return self.method if shape is PLAIN else shape.method_of(self.method)
        if stream.table is None:
            stream.table = GroupTable(shape.groups, shape.method_of(self.method))
        return GroupedStream(stream.table)

    def watched_of(self, shape: Shape) -> Settings | None:
        """What the monitors of a stream are asked for: behind a log that kept some, they know what it kept."""
        return None if self.watched is None else self.watched.of_log(shape.kept)

    def check_outcome(self, shape: Shape, outcome: Observed) -> None:
        """Raise unless a stream can learn an outcome of this weight, and of so many events.

        Raises
        ------
        InvalidInput : its method or its monitors cannot; the message says why.
        """
        weighted, counted = outcome.weight != 1.0, outcome.of != 1
        if not weighted and not counted:
            return
        method = shape.method_of(self.method)
        check_learns(method, weighted=weighted, counted=counted, has_labels=shape.classes is not None)
        if (watched := self.watched_of(shape)) is not None:
            watched.check_weights(counts=counted)

    def join(self, stream: StreamBytes, name: str | None = None) -> None:
        """Another model joins a stream of several, as if its score had been missing so far."""
        before: SeveralMethod = self.method_of(stream)
        if stream.state is not None:
            row, width = np.frombuffer(stream.state), before.width
            stream.state = np.concatenate([with_one_more(row[:width], before.models), row[width:]]).tobytes()
        stream.shape = stream.shape.joined(name)

    def rows(self, streams: Sequence[StreamBytes]) -> Matrix:
        """A copy of the rows of streams that have one shape."""
        shape = streams[0].shape if streams else PLAIN
        is_plain = shape.kind == PLAIN.kind and shape.groups is None
        fresh = self._fresh if is_plain else new_rows(self.method_of(streams[0]), 1).tobytes()
        joined = bytearray().join([stream.state or fresh for stream in streams])
        return np.frombuffer(joined).reshape(len(streams), len(fresh) // 8)

    def load(
        self,
        streams: Sequence[StreamBytes],
        unread: Sequence[Mapping[int, Settled | None]],
        cells: Mapping[str, Sequence[StoredCell]] | None = None,
    ) -> None:
        """Check bytes that come from a store. `unread` is what the monitors hold, which their bytes leave out.

        `cells` are those of the streams with groups, by the name of the stream.

        Raises
        ------
        InvalidInput : a row, a monitor or a cell is not one that this model can have.
        """
        for part in _parts(streams):
            self._load_rows([streams[at] for at in part], cells or {})
        if self.watched is None:
            for stream in streams:
                stream.monitor, stream.queue = None, None
            return
        for stream, held in zip(streams, unread, strict=True):
            if stream.monitor is not None:
                watch = self._monitors(stream.shape, np.zeros(1))
                watch.load([stream.monitor], [held])
                (stream.monitor,), stream.queue = watch.states(), watch.queues.get(0)

    def _load_rows(self, streams: list[StreamBytes], cells: Mapping[str, Sequence[StoredCell]]) -> None:
        """Check the rows of streams of one shape, and fill the table of one with groups."""
        groups = streams[0].shape.groups
        if groups is None:
            check_rows(self.method_of(streams[0]), self.rows(streams), 0.0)
            return
        for stream in streams:
            if not self.has_groups:
                raise InvalidInput(
                    f"method must be auto or gauto for a stream with groups, got another - at {stream.name!r}"
                )
            stream.table = None
            grouped, row = self.method_of(stream), self.rows([stream])
            table = grouped.table
            check_rows(grouped.method, row, 0.0, groups)
            held = cells.get(stream.name, ())
            slots = np.array([slot for slot, _ in held], dtype=np.int64)
            numbers = np.frombuffer(b"".join(bytes(cell) for _, cell in held), dtype=SLOT)
            table.check_slots(slots, numbers, row[0, : grouped.width])
            table.write_slots(slots, numbers)

    def fold(
        self,
        streams: Sequence[StreamBytes],
        slots: Sequence[int],
        scores: Sequence[float],
        outcomes: Sequence[float],
        own: Sequence[int],
        receipts: Sequence[bytes] = (),
        given_up: Collection[tuple[int, int]] = (),
        given: Sequence[bytes | None] = (),
        weights: Sequence[float] = (),
        trials: Sequence[float] = (),
    ) -> Folded:
        """Do operations in their order, as `fold_on_rows`. `slots` are places in `streams`, which get new bytes.

        `outcomes` are 0 or 1, the column of a label, or the share of ones among the events that an outcome is, and NaN
        for a forecast. `weights` and `trials` are columns beside them; each may be left out where it is 1 everywhere.
        `given_up` are forecasts (slot, number) whose outcome will never come, for the monitors, or comes late. `given`
        is what the event of each operation gives beside its score: see `Shape.read`; it may be left out where no stream
        is wide.
        """
        plain = PLAIN.kind
        if all(stream.shape is PLAIN or (stream.shape.kind == plain and not stream.shape.groups) for stream in streams):
            return self._fold(streams, slots, scores, outcomes, own, receipts, given_up, given, weights, trials)
        brought = iter(receipts)
        receipt_of = {at: next(brought) for at, y in enumerate(outcomes) if y == y and own[at] < 0}  # noqa: PLR0124
        forecasts, made, raised = [np.nan] * len(slots), dict[int, bytes](), list[Raised]()
        classes, bands = dict[int, tuple[int, bytes]](), dict[int, bytes]()
        for part in _parts(streams):
            place = {slot: new for new, slot in enumerate(part)}
            chosen = [at for at, slot in enumerate(slots) if slot in place]
            where = {at: new for new, at in enumerate(chosen)} | {-1: -1}
            found = self._fold(
                [streams[slot] for slot in part],
                [place[slots[at]] for at in chosen],
                [scores[at] for at in chosen],
                [outcomes[at] for at in chosen],
                [where[own[at]] for at in chosen],
                [receipt_of[at] for at in chosen if at in receipt_of],
                [(place[slot], number) for slot, number in given_up if slot in place],
                [given[at] for at in chosen] if given else (),
                [weights[at] for at in chosen] if weights else (),
                [trials[at] for at in chosen] if trials else (),
            )
            for at, forecast in zip(chosen, found.forecasts, strict=True):
                forecasts[at] = forecast
            asked = [at for at in chosen if outcomes[at] != outcomes[at]]
            made |= dict(zip(asked, found.receipts, strict=True))
            raised += [each._replace(slot=part[each.slot]) for each in found.raised]
            classes |= {chosen[at]: numbers for at, numbers in found.classes.items()}
            bands |= {chosen[at]: band for at, band in found.bands.items()}
        return Folded(forecasts, [made[at] for at in sorted(made)], raised, classes, bands)

    def _fold(
        self,
        streams: Sequence[StreamBytes],
        slots: Sequence[int],
        scores: Sequence[float],
        outcomes: Sequence[float],
        own: Sequence[int],
        receipts: Sequence[bytes],
        given_up: Collection[tuple[int, int]],
        given: Sequence[bytes | None],
        weights: Sequence[float],
        trials: Sequence[float],
    ) -> Folded:
        """The same for streams of one shape."""
        method: Any = self.method_of(streams[0]) if streams else self.method
        shape = streams[0].shape if streams else PLAIN
        rows, at, known = self.rows(streams), np.array(slots, dtype=np.int32), np.array(outcomes, dtype=float)
        draws = self._draws(streams, rows, at[np.isnan(known)], method.width) if method.draws else np.empty(0)
        watch = self._watch(streams, rows, method)
        of, K = np.array(own, dtype=np.int64), shape.numbers
        heavy = np.array(weights, dtype=float) if weights else NO_NUMBERS
        many = np.array(trials, dtype=float) if trials else NO_NUMBERS
        if not slots:  # something else has happened to the streams
            made = Fold(np.empty((0, K)), np.empty(0, dtype="V8"))
        elif isinstance(method, GroupedStream):
            words = np.frombuffer(b"".join([shape.words(part or b"") for part in given]), dtype=np.int64)
            told = words, given_up, heavy, many
            made = method.fold(rows, at, np.array(scores), known, of, receipts, draws, watch, *told)
            assert streams[0].table is not None  # noqa: S101 - `method_of` has made it
            streams[0].changed += changed_cells(streams[0].table)
        else:
            column = np.array(scores)
            if method.numbers > 1:
                column = _scores_of_many(given, known, method.numbers)
            columns = FoldColumns(method, at, column, known, of)
            columns.trials = many
            brought = receipts if shape.models is None else _of_all_models(receipts, method)
            made = fold_on_rows(method, rows, at, column, known, of, brought, draws, columns, heavy)
            if watch is not None:
                watch.read(columns, given_up)
        whole, size = rows.tobytes(), 8 * rows.shape[1]
        for slot, stream in enumerate(streams):
            stream.state = whole[slot * size : (slot + 1) * size]
        raised: list[Raised] = []
        if watch is not None:
            watch.give_up(given_up)
            counts, raised = watch.raised()
            for slot, (stream, state) in enumerate(zip(streams, watch.states(), strict=True)):
                stream.monitor, stream.queue = state, watch.queues.get(slot)
                stream.alarms += counts[slot]
        asked = np.flatnonzero(np.isnan(known)).tolist()
        if K == 1:
            bands = _bands_of(method, made, asked) if method.spec.band else {}
            return Folded(made.forecasts.tolist(), made.receipts.tolist(), raised, {}, bands)
        named = {i: int(made.forecasts[i].argmax()) for i in asked}
        said = [float(made.forecasts[i, named[i]]) if i in named else np.nan for i in range(len(slots))]
        return Folded(said, made.receipts.tolist(), raised, {i: (named[i], made.forecasts[i].tobytes()) for i in asked})

    def _draws(self, streams: Sequence[StreamBytes], rows: Matrix, slots: Slots, width: int) -> Vector:
        """The draws of forecasts: by seed, stream and number of the event."""
        for stream in streams:
            if stream.draws is None:
                stream.draws = stream_key(self.seed, stream.key or stream.name)
        keys = np.array([stream.draws for stream in streams], dtype=np.uint64)
        return uniforms_at(keys[slots], numbered(rows[:, width + EVENTS].copy(), slots))

    def _monitors(self, shape: Shape, announced: Vector) -> StreamMonitors:
        """Monitors of streams of a shape; of several models there is no raw score to watch."""
        settings = self.watched_of(shape)
        assert settings is not None  # noqa: S101 - so it is called
        return StreamMonitors(settings, shape.numbers, announced, has_raw=shape.models is None)

    def _watch(self, streams: Sequence[StreamBytes], rows: Matrix, method: Any) -> StreamMonitors | None:
        """The monitors of streams, if they are watched. Those that are not there yet begin with the next forecast."""
        if self.watched is None:
            return None
        watch = self._monitors(streams[0].shape if streams else PLAIN, rows[:, method.width + EVENTS])
        watch.resume([stream.monitor for stream in streams], [stream.queue for stream in streams])
        return watch

    def map(self, state: bytes, count: int, shape: Shape = PLAIN) -> tuple[list[float], list[float]]:
        """Some scores from 0 to 1, and what each becomes now. Nothing is learnt or changed."""
        scores, none = np.linspace(0.0, 1.0, count), np.full(count, np.nan)
        rows = np.tile(np.frombuffer(state), (count, 1))
        slots, own = np.arange(count, dtype=np.int32), np.full(count, -1)
        made = fold_on_rows(shape.method_of(self.method), rows, slots, scores, none, own, (), np.empty(0))
        return [round(score, 2) for score in scores.tolist()], made.forecasts.tolist()


def _parts(streams: Sequence[StreamBytes]) -> list[list[int]]:
    """The places of streams that can be folded together: of one kind, and each with groups alone."""
    parts: dict[Any, list[int]] = defaultdict(list)
    for at, stream in enumerate(streams):
        parts[stream.name if stream.shape.groups is not None else stream.shape.kind].append(at)
    return list(parts.values())


def _scores_of_many(given: Sequence[bytes | None], outcomes: Vector, K: int) -> Vector:
    """The scores of forecasts of K classes or models, K numbers each; nothing is asked of outcomes."""
    none = bytes(8 * K)
    parts = [(part or none) if asked else none for part, asked in zip(given, np.isnan(outcomes).tolist(), strict=True)]
    return np.frombuffer(b"".join(parts))


def _of_all_models(receipts: Sequence[bytes], method: SeveralMethod) -> list[bytes]:
    """Receipts of several models; on those from before a model joined it is missing."""
    size, found = receipt_type(method).itemsize, list[bytes]()
    for receipt in receipts:
        given = bytes(receipt)
        wide = None if len(given) == size else widened(Receipts.from_bytes(given, size=len(given)), method)
        found.append(given if wide is None else wide.tobytes())
    return found


def _bands_of(method: Any, made: Fold, asked: list[int]) -> dict[int, bytes]:
    """The bands of forecasts by the number of their operation, from their receipts."""
    numbers = made.receipts.view(receipt_type(method))["hedge"]
    return {at: row.tobytes() for at, row in zip(asked, numbers, strict=True)}


def changed_cells(table: GroupTable) -> list[StoredCell]:
    """The cells that have changed since the last time."""
    return cells_at(table, table.touched())


def cells_at(table: GroupTable, slots: Ints) -> list[StoredCell]:
    """What some slots hold, as a store keeps them."""
    held = table.read_slots(slots).tobytes()
    size = SLOT.itemsize
    return [(slot, held[at * size : (at + 1) * size]) for at, slot in enumerate(slots.tolist())]


def all_cells(table: GroupTable) -> list[StoredCell]:
    """All cells of a table."""
    return cells_at(table, table.occupied())
