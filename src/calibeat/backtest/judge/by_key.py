"""By key: where the raw score loses most, where forecasts are off beyond luck, and whether keys are worth it."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from calibeat._util.types import Ints, Vector
from calibeat._util.words import decimals
from calibeat.backtest.replay.contenders import KeyVariants
from calibeat.backtest.replay.engine import MOST_KEYS_WITH_CE, Replayed
from calibeat.backtest.replay.tally import KEY_BRIER, KEY_COUNT, KEY_LOSS, KEY_ONES, KEY_SQUARES
from calibeat.metrics import calibration_error_of_gaps
from calibeat.report.schema import KeyDifference, KeyRow, Keys, KeysThatDiffer

from .verdict import Comparison

MOST_KEYS = 2000  # shown
MOST_DIFFERENT = 10
LEAST_EVENTS, LEAST_VARIANCE = 30, 3.0  # of a key that is tested: with less, no normal law helps


def by_key(replayed: Replayed, names: list[str], chosen: str, labels: dict[str, str]) -> Keys:
    """The keys on which the raw score loses most, and those on which the forecasts are off."""
    streams = len(names)
    found = {runner.name: runner.tally.by_key(streams) for runner in replayed.runners}
    raw = replayed.runners[0].name
    others = [name for name in found if name != raw] or [raw]
    rival = chosen if chosen != raw else min(others, key=lambda name: float(found[name][0][:, KEY_LOSS].sum()))
    lost = found[raw][0][:, KEY_LOSS] - found[rival][0][:, KEY_LOSS]
    counts = found[raw][0]
    judged = np.flatnonzero(counts[:, KEY_COUNT] > 0)
    order = judged[np.argsort(-lost[judged], kind="stable")][:MOST_KEYS]
    n, columns = counts[order, KEY_COUNT], {name: _columns(order, *of) for name, of in found.items()}
    rows: list[KeyRow] = [
        {
            "key": names[slot],
            "events": int(count),
            "base_rate": ones,
            "raw_log_loss": columns[raw][0][at],
            "methods": {
                name: {"log_loss": loss[at], "brier": brier[at], "ce": ce[at]}
                for name, (loss, brier, ce) in columns.items()
            },
        }
        for at, (slot, count, ones) in enumerate(
            zip(order.tolist(), n.tolist(), (counts[order, KEY_ONES] / n).tolist(), strict=True)
        )
    ]
    sentence = (
        "Each key is a stream with parameters of its own. First come the keys on which the raw score loses most to "
        f"{labels[rival]}, in nats over all of their events."
    )
    if streams > MOST_KEYS_WITH_CE:
        sentence += f" Calibration errors are kept for the first {MOST_KEYS_WITH_CE:,} keys of the log."
    differ = _differ(names, chosen, found[chosen])
    return {"differ": differ, "total": streams, "shown": len(rows), "sentence": sentence, "rows": rows}


def _columns(order: Ints, sums: Vector, gaps: Vector) -> tuple[list[float], list[float], list[float | None]]:
    """Log-loss, Brier score and calibration error of some streams; no error where the gaps were not kept."""
    n, kept = sums[order, KEY_COUNT], order < len(gaps)
    errors = iter(calibration_error_of_gaps(gaps[order[kept]], n[kept]).tolist())
    loss, brier = sums[order, KEY_LOSS] / n, sums[order, KEY_BRIER] / n
    return loss.tolist(), brier.tolist(), [next(errors) if known else None for known in kept.tolist()]


def _differ(names: list[str], method: str, found: tuple[Vector, Vector]) -> KeysThatDiffer | None:
    """The keys whose outcomes are farthest from the forecasts of a method, in standard deviations.

    Of many classes p is the confidence in the top class, and y whether it was right. The sum of y - p over a key is off
    its expectation by a martingale of variance at most sum (y - p)^2 in the mean.
    The interval is for all tested keys at once (Bonferroni, 95 %).
    """
    sums, gaps = found
    n, ones, variance = sums[: len(gaps), [KEY_COUNT, KEY_ONES, KEY_SQUARES]].T
    tested = np.flatnonzero((n >= LEAST_EVENTS) & (variance >= LEAST_VARIANCE))
    if len(tested) < 2:
        return None
    off = -gaps.sum(axis=1)  # sum of y - p
    z = NormalDist().inv_cdf(1.0 - 0.025 / len(tested))
    score = np.abs(off[tested]) / np.sqrt(variance[tested])
    rows = []
    for slot in tested[np.argsort(-score, kind="stable")][:MOST_DIFFERENT].tolist():
        events, outcome = float(n[slot]), float(ones[slot] / n[slot])
        gap, half = float(off[slot]) / events, z * float(np.sqrt(variance[slot])) / events
        rows.append(
            KeyDifference(
                key=names[slot],
                events=int(events),
                forecast=outcome - gap,
                outcome=outcome,
                gap=[gap, gap - half, gap + half],
            )
        )
    return {"method": method, "tested": len(tested), "beyond": int(np.count_nonzero(score > z)), "rows": rows}


def sentence_on_keys(compared: Comparison, variants: KeyVariants, labels: dict[str, str]) -> str:
    """Which of the three has the least log-loss, and whether that is beyond the 95 % interval."""
    label = labels[variants.keyed]
    kinds = {
        variants.keyed: "with a stream for each key",
        variants.pooled: "with keys that start from what all keys have taught",
        variants.without: "without keys",
    }
    losses = {name: compared.measured(name, "log_loss") for name in kinds}
    best, *others = sorted(kinds, key=losses.__getitem__)
    ends = [compared.difference(best, other, "log_loss") for other in others]
    digits = decimals(losses.values())
    shown = ", ".join(f"{losses[name]:.{digits}f} {kinds[name]}" for name in kinds)
    tied = [kinds[other] for other, (_, _, high) in zip(others, ends, strict=True) if high >= 0.0]
    apart = " and ".join(f"{label} {kind}" for kind in tied)
    settled = f"not to be told apart from {apart}" if tied else "beyond the 95 % interval"
    return f"Log-loss of {label}: {shown}. Best is {label} {kinds[best]}, {settled}."
