"""GAUTO and AUTO with groups beside the sum of their parts: AUTO, and what comes on top of it, measured alone.

A guard alone is BM, which says the score itself, with a guard and over AUTO's forecasts, less the same without a guard.
GAUTO says just what that says. Groups alone are a method that says the score itself, with groups and over AUTO's
forecasts, less the same without groups. Loops are called as hosts call them: checks, draws and hashes are made before.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from benchmarks import table
from benchmarks.stream import drifting
from benchmarks.timing import Maker, Work, interleaved
from calibeat import AUTO, BM, GAUTO, Guard
from calibeat.core.layout import Spec
from calibeat.core.loops import Batch, Late, one_stream, place_before, receipts_under_way, run_batch
from calibeat.core.randomness import stream_key, uniforms
from calibeat.hosts.groups import Groups, GroupTable

GOAL = 1.3  # of the sum
ATTRIBUTES = (1, 2, 4, 6)
VALUES = 30  # of each attribute
DELAY = 100
GUARDED = replace(BM, guard=Guard())

Vector = NDArray[np.float64]


class World:
    """A stream, with AUTO's forecasts of it, and its attributes."""

    def __init__(self, events: int, *, delayed: bool) -> None:
        stream, self.events = drifting(events), events
        self.scores, self.outcomes, self.draws = stream.scores, stream.outcomes, uniforms(stream_key(0, 0), 0, events)
        self.delayed = delayed
        self.attributes = np.random.default_rng(0).integers(0, VALUES, (events, max(ATTRIBUTES)))
        self.auto = self.forecasts(AUTO.spec, AUTO.initial_row(), self.scores)

    def loop(self, spec: Spec, row: Vector, scores: Vector, forecasts: Vector, table: GroupTable | None = None) -> Work:
        """The stream through a loop, from this row on."""
        late, room = None, 0
        if self.delayed:
            due, order = np.arange(self.events) + DELAY, np.arange(self.events - DELAY)
            late = Late(0, np.zeros(self.events, dtype=np.int64), due, order, 0)
            room = receipts_under_way(due, order, self.events)
        width = spec.receipt if table is None else table.receipt_width
        batch = Batch(scores, self.outcomes, self.draws, forecasts, np.empty(room * width))
        streams, end = one_stream(row.copy(), 0), self.events
        if table is None:
            return lambda: run_batch(spec, streams, batch, late, place_before(), end)
        words = table.maker.of_events(self.attributes[:, : table.cells.attributes], end)
        with_words = batch._replace(words=words)
        return lambda: run_batch(spec, streams, with_words, late, place_before(), end, table.cells)

    def forecasts(self, spec: Spec, row: Vector, scores: Vector) -> Vector:
        """What a method says."""
        forecasts = np.empty(self.events)
        self.loop(spec, row, scores, forecasts)()
        return forecasts

    def contender(self, spec: Spec, row: Vector, scores: Vector) -> Maker:
        """A method without groups."""
        return lambda: self.loop(spec, row, scores, np.empty(self.events))

    def grouped(self, spec: Spec, scores: Vector, attributes: int) -> Maker:
        """A method with groups. Its row is that of AUTO."""
        groups = Groups([f"a{k}" for k in range(attributes)], seed=1)

        def make() -> Work:
            table = GroupTable(groups, AUTO)
            return self.loop(spec, table.initial_row(), scores, np.empty(self.events), table)

        return make

    def contenders(self) -> dict[str, Maker]:
        """Everything that is measured."""
        bare = BM.spec
        says_the_score = AUTO.spec._replace(features=bare.features, learner=bare.learner, calibeater=bare.calibeater)
        found = {
            "AUTO": self.contender(AUTO.spec, AUTO.initial_row(), self.scores),
            "BM": self.contender(BM.spec, BM.initial_row(), self.auto),
            "guard": self.contender(GUARDED.spec, GUARDED.initial_row(), self.auto),
            "GAUTO": self.contender(GAUTO.spec, GAUTO.initial_row(), self.scores),
            "no groups": self.contender(says_the_score, AUTO.initial_row(), self.auto),
        }
        for K in ATTRIBUTES:
            found[f"groups {K}"] = self.grouped(says_the_score, self.auto, K)
            found[f"AUTO with groups {K}"] = self.grouped(AUTO.spec, self.scores, K)
        return found


def parts(*, quick: bool) -> None:
    """Table: ns of an event, at once and late."""
    events, repeats = (100_000, 5) if quick else (300_000, 15)
    for delayed in (False, True):
        world, rows = World(events, delayed=delayed), []
        best = {name: 1e9 * seconds / events for name, seconds in interleaved(world.contenders(), repeats).items()}
        whole = {"GAUTO": ("GAUTO", best["guard"] - best["BM"])}
        for K in ATTRIBUTES:
            whole[f"AUTO, groups of {K}"] = (f"AUTO with groups {K}", best[f"groups {K}"] - best["no groups"])
        for title, (name, more) in whole.items():
            ratio = best[name] / (best["AUTO"] + more)
            numbers = [f"{number:.0f}" for number in (best[name], best["AUTO"], more)]
            rows.append([title, *numbers, f"{ratio:.2f}", f"{GOAL}", table.verdict(met=ratio <= GOAL)])
        said = world.forecasts(GUARDED.spec, GUARDED.initial_row(), world.auto)
        same = np.array_equal(said, world.forecasts(GAUTO.spec, GAUTO.initial_row(), world.scores))
        when = f"outcomes {DELAY} forecasts late" if delayed else "outcomes at once"
        note = f"GAUTO and the guard over AUTO's forecasts say {'the same' if same else 'DIFFERENT THINGS'}."
        head = ["method", "ns", "AUTO", "the rest alone", "of the sum", "goal", ""]
        table.show(f"Methods beside the sum of their parts, {events:,} events, {when}", head, rows, [note])
