"""Decisions: what forecasts change in actions and cost at one threshold, and net benefit at every threshold.

Act where the forecast is at least t. An action for nothing costs fp, a missed event costs fn, and t = fp / (fp + fn).
Letters: a and a_raw are the actions of a method and of the raw score, y the outcome, r the leader's forecast::

    cost(a, y) = a (1 - y) fp + (1 - a) y fn          saved = cost(a_raw, y) - cost(a, y)
    saved - E[saved | past] = b (y - mu)              b = (a - a_raw) (fp + fn)

Only events on which the actions differ count, and the interval is the one of `intervals`: V = max(sum b^2 (y - r)^2,
sum b^2 r (1 - r)). Sums by block only: memory does not grow with the log.
"""

from __future__ import annotations

import math

import numpy as np

from calibeat._util.types import Ints, Table, Vector
from calibeat.backtest.options import Costs
from calibeat.backtest.read.rows import Chunk
from calibeat.backtest.replay.engine import Replayed
from calibeat.backtest.replay.tally import MOST_BLOCKS, RANKS, STEPS, Blocks, Tally, rank_of
from calibeat.core.subset import entry
from calibeat.report.schema import Action, ActionsOverTime, DecisionCurve, Decisions

from .intervals import GROWS, Z, student
from .measures import cuts_of, iso, number, threshold_of

ACTS, HITS, NEW, NEW_ONES, DROPPED, DROPPED_ONES, RESID, MODEL, GAP, WIDTH = range(10)
THRESHOLDS = 99  # of the curve


@entry
def count_actions(P: Table, y: Vector, place: Ints, r: Vector, t: float, sums: Table) -> None:
    """Add a chunk. P[j, i] are forecasts, the raw score first; sums[j, block] as listed above."""
    methods, n = P.shape
    for i in range(n):
        if place[i] <= 0:
            continue
        at, raw, e = place[i] - 1, P[0, i] >= t, y[i] - r[i]
        for j in range(methods):
            act = P[j, i] >= t
            if act:
                sums[j, at, ACTS] += 1.0
                sums[j, at, HITS] += y[i]
            if act != raw:
                which = NEW if act else DROPPED
                sums[j, at, which] += 1.0
                sums[j, at, which + 1] += y[i]
                sums[j, at, RESID] += e * e
                sums[j, at, MODEL] += r[i] * (1.0 - r[i])
                sums[j, at, GAP] += e if act else -e


class Deciding:
    """Counts the actions of every method in the blocks of the replay."""

    def __init__(self, costs: Costs) -> None:
        self.costs = costs
        self._blocks = Blocks(0)  # those of the replay again: they begin with the first judged event and merge alike
        self._sums = np.zeros((0, MOST_BLOCKS, WIDTH))

    def add(self, chunk: Chunk, forecasts: dict[str, Vector], place: Ints, leader: Vector) -> None:
        """Take a chunk with the forecasts of all methods and of the leader."""
        if not len(self._sums):
            self._sums = np.zeros((len(forecasts), MOST_BLOCKS, WIDTH))
        at = self._blocks.place(place > 0, None, [self])
        count_actions(np.array(list(forecasts.values())), chunk.outcomes, at, leader, self.costs.threshold, self._sums)

    def merge(self) -> None:
        """Merge the blocks by pairs."""
        half = MOST_BLOCKS // 2
        self._sums[:, :half] = self._sums[:, ::2] + self._sums[:, 1::2]
        self._sums[:, half:] = 0.0

    def action(self, at: int, name: str, judged: int, ones: float, run: int) -> Action:
        """The actions of the method at a place in the list, over the whole log; `run` as of late outcomes."""
        costs, used = self.costs, self._blocks.used
        acts, hits, new, new_ones, dropped, dropped_ones, *_ = self._sums[at].sum(axis=0).tolist()
        cost = (acts - hits) * costs.fp + (ones - hits) * costs.fn
        saved, half = self._saved(self._sums[at].sum(axis=0), self._longer(at, used, run))
        scale = 1000.0 / max(1, judged)
        return {
            "method": name,
            "actions": int(acts),
            "hits": int(hits),
            "for_nothing": int(acts - hits),
            "missed": int(ones - hits),
            "new": int(new),
            "new_hits": int(new_ones),
            "dropped": int(dropped),
            "dropped_hits": int(dropped_ones),
            "cost": cost,
            "cost_per_1000": cost * scale,
            "saved_per_1000": [saved * scale, (saved - half) * scale, (saved + half) * scale],
        }

    def _saved(self, sums: Vector, longer: float = 0.0) -> tuple[float, float]:
        """What was saved against the raw score, and half of its 95 % interval."""
        fp, fn = self.costs.fp, self.costs.fn
        gained = sums[NEW_ONES] * fn - (sums[NEW] - sums[NEW_ONES]) * fp
        lost = sums[DROPPED_ONES] * fn - (sums[DROPPED] - sums[DROPPED_ONES]) * fp
        half = Z * math.sqrt(max(sums[RESID], sums[MODEL]))
        return float(gained - lost), (fp + fn) * max(half, longer)

    def _longer(self, at: int, used: int, run: int) -> float:
        """Half of the interval as runs of late outcomes show it, where they vary more than single events do; else 0."""
        blocks = max(1, -(-run // self._blocks.length))
        runs = used // blocks
        if not run or runs < 2:
            return 0.0
        gaps = self._sums[at, : runs * blocks, GAP].reshape(runs, blocks).sum(axis=1)
        wide = float(gaps @ gaps) * used / (runs * blocks)
        plain = float(max(self._sums[at, :used, RESID].sum(), self._sums[at, :used, MODEL].sum()))
        return student(runs - 1.0) * math.sqrt(wide) if wide > GROWS**2 * plain else 0.0

    def over_time(self, names: list[str], cuts: list[int]) -> dict[str, list[list[float]]]:
        """What each method had saved by the end of each window, with its interval: [saved, low, high]."""
        paths: dict[str, list[list[float]]] = {}
        for at, name in enumerate(names):
            sums = np.cumsum(self._sums[at], axis=0)
            paths[name] = []
            for cut in cuts[1:]:
                saved, half = self._saved(sums[cut - 1])
                paths[name].append([saved, saved - half, saved + half])
        return paths


def decisions(
    replayed: Replayed, deciding: Deciding | None, labels: dict[str, str], chosen: str, run: int
) -> Decisions:
    """For the report: the curve always, actions and costs where they were asked for."""
    found: Decisions = {"curve": curve(replayed), "costs": None, "actions": [], "over_time": None, "sentence": ""}
    if deciding is None:
        return found
    judged, ones, costs = replayed.blocks.judged, float(replayed.totals[1]), deciding.costs
    names = [runner.name for runner in replayed.runners]
    actions = [deciding.action(at, name, judged, ones, run) for at, name in enumerate(names)]
    blocks, cuts = replayed.blocks, cuts_of(replayed)
    timed = replayed.span is not None
    over_time: ActionsOverTime = {
        "by": "time" if timed else "event",
        "x": [iso(int(blocks.end[b - 1])) if timed else int(blocks.end[b - 1]) for b in cuts[1:]],
        "methods": deciding.over_time(names, cuts),
    }
    found["costs"] = {"threshold": costs.threshold, "fp": costs.fp, "fn": costs.fn, "given": costs.given}
    found["actions"], found["over_time"] = actions, over_time
    found["sentence"] = _sentence(actions, chosen, labels, costs, judged)
    return found


def _sentence(actions: list[Action], chosen: str, labels: dict[str, str], costs: Costs, judged: int) -> str:
    act = f"Act where the forecast is {100 * costs.threshold:.3g} % or more."
    ours = next((action for action in actions[1:] if action["method"] == chosen), None)
    if ours is None:
        return act
    saved, low, high = (value or 0.0 for value in ours["saved_per_1000"])
    unit = "" if costs.given else " missed events"
    ends = f"(95 %: {low:+.3g} to {high:+.3g})"
    worth = f"Against the raw score that is worth {saved:+.3g}{unit} per 1,000 events, which may be luck {ends}."
    if low > 0.0 or high < 0.0:
        effect = "saves" if low > 0.0 else "costs"
        effect += "" if costs.given else " as much as"
        worth = f"That {effect} {abs(saved):.3g}{unit} per 1,000 events against the raw score {ends}."
    return (
        f"{act} {labels[chosen]} decides otherwise than the raw score on {ours['new'] + ours['dropped']:,} of "
        f"{judged:,} events: {ours['new']:,} more actions, of which {ours['new_hits']:,} were right, and "
        f"{ours['dropped']:,} fewer, of which {ours['dropped_hits']:,} would have been right. {worth}"
    )


# ---- net benefit -----------------------------------------------------------------------------------------------------


def curve(replayed: Replayed) -> DecisionCurve:
    """Net benefit TP / n - FP / n t / (1 - t) of each method and of acting on every event.

    Thresholds are the edges of ranks that are nearest below 1 %, 2 %, ..., 99 %, so that the counts are exact.
    """
    ranks = [rank_of(k / (THRESHOLDS + 1.0), STEPS) for k in range(1, THRESHOLDS + 1)]
    thresholds = np.array([threshold_of(rank) for rank in ranks])
    n = max(1, replayed.blocks.judged)
    ones = float(replayed.totals[1])
    odds = thresholds / (1.0 - thresholds)
    everyone = ones / n - (n - ones) / n * odds
    return {
        "threshold": thresholds.tolist(),
        "everyone": [number(value) for value in everyone],
        "methods": {
            runner.name: [number(value) for value in _benefit(runner.tally, ranks, odds, n)]
            for runner in replayed.runners
        },
    }


def _benefit(tally: Tally, ranks: list[int], odds: Vector, n: int) -> Vector:
    zeros, ones = tally.ranks[:RANKS], tally.ranks[RANKS : 2 * RANKS]
    false, true = (np.cumsum(counts[::-1])[::-1][ranks] for counts in (zeros, ones))
    return np.asarray(true / n - false / n * odds)
