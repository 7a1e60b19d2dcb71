"""Streams with attributes, and the plainest host of groups: one row, one table, a batch or event after event."""

from __future__ import annotations

from typing import Any

import numpy as np

from calibeat import AUTO, Method
from calibeat.core import loops
from calibeat.core.groups import play_grouped, settle_grouped
from calibeat.core.kernel import ask, ask_again
from calibeat.core.loops import Batch, Late, one_stream, place_before, receipts_under_way, run_batch
from calibeat.core.receipt import SCORE
from calibeat.core.weights import Outcome
from calibeat.hosts.groups import Groups, GroupTable


def world(events: int, attributes: int, values: int, seed: int = 0) -> tuple[Any, Any, Any]:
    """Scores, outcomes and whole numbers as attributes, skewed; each value has an offset that the score lacks."""
    rng = np.random.default_rng(seed)
    columns = np.minimum(rng.geometric(3.0 / (values + 2), (events, attributes)), values) - 1
    offsets = rng.normal(0.0, 0.8, (attributes, values))
    x = rng.normal(0.0, 1.2, events)
    z = x + sum(offsets[k, columns[:, k]] for k in range(attributes))
    scores = 1.0 / (1.0 + np.exp(-x))
    scores[::97], scores[5::211] = 0.0, 1.0
    return scores, (rng.random(events) < 1.0 / (1.0 + np.exp(-z))).astype(float), columns


def delays(events: int, mean: float, seed: int = 1) -> Any:
    """When outcomes arrive: in any order, some never."""
    rng = np.random.default_rng(seed)
    return np.arange(events) + 1 + rng.geometric(1.0 / mean, events) * (rng.random(events) < 0.8)


class Host:
    """A stream with groups."""

    def __init__(self, groups: Groups, method: Method = AUTO) -> None:
        self.table = GroupTable(groups, method)
        self.method = method
        self.row = self.table.initial_row()
        self.events = 0
        self.receipts = np.empty((0, self.table.receipt_width))  # of the events of `one_by_one`

    @property
    def numbers(self) -> Any:
        """The numbers of the groups in the row."""
        return self.row[self.method.width :]

    def words(self, columns: Any) -> Any:
        return self.table.maker.of_events(columns, len(columns))

    def run(self, scores: Any, outcomes: Any, words: Any, due: Any = None, raw_below: int = 0) -> Any:
        """Forecasts of a batch."""
        n, width = len(scores), self.table.receipt_width
        late, room = None, 0
        if due is not None:
            due = np.asarray(due, dtype=np.int64)
            order = np.argsort(due, kind="stable")
            order = order[due[order] <= n]
            late, room = Late(0, np.zeros(n, dtype=np.int64), due, order, raw_below), receipts_under_way(due, order, n)
        u = np.random.default_rng(3).random(n)
        receipts = np.empty(room * width)
        batch = Batch(np.asarray(scores, dtype=float), outcomes, u, np.empty(n), receipts, words=words)
        streams = one_stream(self.row, self.events)
        end, place = n + (due is not None), place_before()
        run_batch(self.method.spec, streams, batch, late, place, end, self.table.cells)
        self.events += n
        return batch.forecasts

    def predict_many(self, scores: Any, words: Any) -> Any:
        """Forecasts of scores as the next event."""
        n, nothing = len(scores), np.empty(0)
        batch = Batch(scores, nothing, np.random.default_rng(3).random(n), np.empty(n), nothing, words=words)
        loops.predict_many(self.method.spec, self.table.cells, one_stream(self.row, self.events), self.row, batch)
        return batch.forecasts

    def predict(self, score: float, u: float, words: Any, receipt: Any) -> float:
        """The forecast of one event, by the kernels as Python."""
        spec, cells = self.method.spec, self.table.cells
        asked = ask(spec, self.row, score, receipt)
        return play_grouped(spec, cells, self.row, asked, u, words, cells.found, receipt).forecast

    def update(self, t: float, y: float, words: Any, receipt: Any) -> None:
        """Its outcome, now or later."""
        spec, cells = self.method.spec, self.table.cells
        asked = ask_again(spec, self.row, receipt[SCORE])
        settle_grouped(spec, cells, self.row, t, asked, 0, Outcome(y, 1.0, 1.0), words, receipt)

    def one_by_one(self, scores: Any, outcomes: Any, words: Any, due: Any = None) -> Any:
        """The same, event after event."""
        n, K = len(scores), self.table.cells.attributes
        due = np.arange(1, n + 1) if due is None else np.asarray(due)
        order = np.argsort(due, kind="stable")
        u = np.random.default_rng(3).random(n)
        forecasts, receipts, arrived = np.empty(n), np.zeros((n, self.table.receipt_width)), 0
        for i in range(n):
            own = words[i * K : (i + 1) * K]
            forecasts[i] = self.predict(scores[i], u[i], own, receipts[i])
            while arrived < n and due[order[arrived]] <= i + 1:
                j = order[arrived]
                arrived += 1
                own, t = words[j * K : (j + 1) * K], float(self.events + i + 1)
                self.update(t, outcomes[j], own, receipts[j])
        self.events += n
        self.receipts = receipts
        return forecasts


def names_of(attributes: int) -> list[str]:
    return [f"a{k}" for k in range(attributes)]
