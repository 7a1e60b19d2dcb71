"""The sums of each stream and the hourly roll-ups, in one compiled pass over a group.

An operation is a forecast that was made (its outcome is NaN) or an outcome that was learnt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from calibeat._util.types import Ints, Vector
from calibeat.core.stats import log_loss
from calibeat.core.subset import entry
from calibeat.metrics import calibration_error_of_gaps

from .store.types import (
    BRIER,
    CALIBRATED_KIND,
    DELAY_COUNT,
    DELAYS,
    FORECASTS,
    HOUR,
    LOG_LOSS,
    OUTCOMES,
    RAW_BRIER,
    RAW_KIND,
    RAW_LOG_LOSS,
    ROLLUP_NUMBERS,
    SUM_LOG_LOSS,
    SUM_P,
    SUM_Y,
    SUMS,
    TENTHS,
    WEIGHT,
    WEIGHTS,
    Errors,
    TableRow,
)

CELLS = 20  # of an hour: the tenths of the forecasts, then those of the scores
NUMBERS = len(ROLLUP_NUMBERS)


@entry
def tenth(probability: float) -> int:
    """Which tenth of [0, 1] a probability is in.

    >>> tenth(0.0), tenth(0.37), tenth(1.0)
    (0, 3, 9)
    """
    return min(9, int(probability * 10.0))


@entry
def add_operations(
    streams: Ints,
    hours: Ints,
    scores: Vector,
    forecasts: Vector,
    outcomes: Vector,
    ages: Vector,
    losses: Vector,
    weights: Vector,
    sums: Vector,
    rollups: Vector,
) -> None:
    """Operation after operation: stream streams[i] has its row in `sums`, hour hours[i] has its cells in `rollups`.

    `losses` has four numbers for each operation, as `class_losses` gives them, NaN where there are two classes. It is
    empty where all operations are of two classes. `weights` has two, for how many ones and zeros an outcome stands, NaN
    where it is one event. It is empty where all are.
    """
    for i in range(len(scores)):
        y = outcomes[i]
        learnt = y == y  # noqa: PLR0124 - not NaN
        one, zero, is_weighted = y, 1.0 - y, False
        if learnt and len(weights) > 0 and weights[2 * i] == weights[2 * i]:
            one, zero, is_weighted = weights[2 * i], weights[2 * i + 1], True
        total = one + zero if is_weighted else 1.0
        first = streams[i] * SUMS
        for kind in range(2):
            p = forecasts[i] if kind == CALIBRATED_KIND else scores[i]
            cell = tenth(p)
            at = (hours[i] * CELLS + 10 * kind + cell) * NUMBERS
            if not learnt:
                rollups[at + FORECASTS] += 1.0
                continue
            if len(losses) > 0 and losses[4 * i] == losses[4 * i]:
                loss, brier = total * losses[4 * i + kind], total * losses[4 * i + 2 + kind]
            elif is_weighted:
                loss = one * log_loss(p, 1.0) + zero * log_loss(p, 0.0)
                brier = one * (p - 1.0) * (p - 1.0) + zero * p * p
            else:
                loss, brier = log_loss(p, y), (p - y) * (p - y)
            rollups[at + OUTCOMES] += 1.0
            rollups[at + SUM_P] += total * p
            rollups[at + SUM_Y] += one
            rollups[at + SUM_LOG_LOSS] += loss
            rollups[at + WEIGHT] += total
            sums[first + (LOG_LOSS if kind == CALIBRATED_KIND else RAW_LOG_LOSS)] += loss
            sums[first + (BRIER if kind == CALIBRATED_KIND else RAW_BRIER)] += brier
            at = first + TENTHS + 30 * kind + 3 * cell
            sums[at] += total
            sums[at + 1] += total * p
            sums[at + 2] += one
        if learnt:
            sums[first + WEIGHTS] += total
            age, power = int(ages[i]), 0
            while age > 0 and power < DELAY_COUNT - 1:
                age >>= 1
                power += 1
            sums[first + DELAYS + power] += 1.0


def class_losses(given: bytes, issued: bytes, y: int) -> tuple[float, float, float, float]:
    """What a label cost the forecasts and the scores of K classes: log-losses of both, then Brier scores of both.

    >>> from struct import pack
    >>> class_losses(pack("3d", 0.5, 0.25, 0.25), pack("3d", 0.0, 1.0, 0.0), 1)
    (-0.0, 1.3862943611198906, 0.0, 0.875)
    """
    kinds = [np.frombuffer(numbers) for numbers in (issued, given)]
    hit = np.zeros(len(kinds[0]))
    hit[y] = 1.0
    logs = [log_loss(float(p[y]), 1.0) for p in kinds]
    briers = [float(((p - hit) ** 2).sum()) for p in kinds]
    return logs[0], logs[1], briers[0], briers[1]


def weights_of(
    records: Sequence[Any], outcomes: Sequence[float], odds: Sequence[float] = ()
) -> dict[int, tuple[float, float]]:
    """For how many ones and zeros outcomes stand, by the number of the operation; those of one event are left out.

    `records` have `weight` and `trials`, None where it is 1. Where the log has `odds` times the true ones, each zero
    stands for as many events more; they may be left out where they are 1.
    """
    found = dict[int, tuple[float, float]]()
    for at, (record, y) in enumerate(zip(records, outcomes, strict=True)):
        if (odds or record.weight is not None or record.trials is not None) and y == y:  # noqa: PLR0124 - not NaN
            total = (1.0 if record.weight is None else record.weight) * (1 if record.trials is None else record.trials)
            found[at] = total * y, total * (1.0 - y) * (odds[at] if odds else 1.0)
    return found


class Rollups:
    """Sums and roll-ups of some operations.

    >>> nan, none = float("nan"), bytes(8 * SUMS)
    >>> made = Rollups(
    ...     slots=[0, 0], times=[0.0, 0.0], scores=[0.3, 0.3], forecasts=[0.25, 0.25], outcomes=[nan, 1.0],
    ...     ages=[0.0, 60.0], numbers=[7], sums=[none],
    ... )
    >>> for row in made.rollups:
    ...     print(row)
    (7, 0, 0, 2, 1.0, 1.0, 0.25, 1.0, 1.3862943611198906, 1.0)
    (7, 0, 1, 3, 1.0, 1.0, 0.3, 1.0, 1.2039728043259361, 1.0)
    """

    def __init__(
        self,
        *,
        slots: Sequence[int],
        times: Sequence[float],
        scores: Sequence[float],
        forecasts: Sequence[float],
        outcomes: Sequence[float],
        ages: Sequence[float],
        numbers: Sequence[int],
        sums: Sequence[bytes],
        losses: Mapping[int, tuple[float, float, float, float]] | None = None,
        weights: Mapping[int, tuple[float, float]] | None = None,
    ) -> None:
        """The operations as columns (slot: the place of their stream, age: seconds from the forecast to its outcome).
        Then the streams: their numbers, and their sums so far. A stream may have no operation.

        Of many classes, scores and forecasts are those of the class named, outcomes say whether it came, and `losses`
        has what the label cost, by the number of the operation: see `class_losses`. `weights` has, in the same way, for
        how many ones and zeros an outcome stands, where it is not one event: see `weights_of`."""
        of_stream, hours = np.array(slots, dtype=np.int64), np.floor_divide(times, HOUR).astype(np.int64)
        first = int(hours.min(initial=2**62))
        span = int(hours.max(initial=first)) - first + 1
        found, of_hour = np.unique(of_stream * span + (hours - first), return_inverse=True)
        self._heads = np.array(numbers, dtype=np.int64)[found // span], found % span + first  # stream, hour
        self._sums = np.frombuffer(bytearray().join(sums))
        self._rollups = np.zeros(len(found) * CELLS * NUMBERS)
        of_classes = np.full((len(slots), 4), np.nan) if losses else np.empty(0)
        for at, numbers_of_label in (losses or {}).items():
            of_classes[at] = numbers_of_label
        of_weights = np.full((len(slots), 2), np.nan) if weights else np.empty(0)
        for at, both in (weights or {}).items():
            of_weights[at] = both
        loop: Any = add_operations
        loop(
            of_stream,
            of_hour,
            np.array(scores, dtype=float),
            np.array(forecasts, dtype=float),
            np.array(outcomes, dtype=float),
            np.clip(np.array(ages, dtype=float), 0.0, 2.0**DELAY_COUNT),
            of_classes.reshape(-1),
            of_weights.reshape(-1),
            self._sums,
            self._rollups,
        )

    @property
    def sums(self) -> list[bytes]:
        """The new sums of the streams."""
        whole, width = self._sums.tobytes(), 8 * SUMS
        return [whole[at : at + width] for at in range(0, len(whole), width)]

    @property
    def errors(self) -> list[Errors]:
        """The calibration errors of the streams, over all that they have learnt."""
        return errors_of(self._sums)

    @property
    def rollups(self) -> list[TableRow]:
        """What is to be added: stream, hour, kind, tenth, and the six numbers."""
        cells = self._rollups.reshape(-1, NUMBERS)
        used = np.flatnonzero(cells[:, FORECASTS] + cells[:, OUTCOMES])
        hours, cell = np.divmod(used, CELLS)
        columns = *(head[hours] for head in self._heads), *np.divmod(cell, 10), *cells[used].T
        return list(zip(*(column.tolist() for column in columns), strict=True))


def errors_of(sums: Vector) -> list[Errors]:
    """For each row of sums: the calibration error over tenths of the forecasts, and that of the scores."""
    tenths = sums.reshape(-1, SUMS)[:, TENTHS : TENTHS + 60].reshape(-1, 2, 10, 3)
    counts = tenths[..., 0].sum(axis=2)
    errors = calibration_error_of_gaps(tenths[..., 1] - tenths[..., 2], np.maximum(counts, 1.0))
    pairs = zip(errors.tolist(), counts[:, CALIBRATED_KIND].tolist(), strict=True)
    return [(pair[CALIBRATED_KIND], pair[RAW_KIND]) if count else (None, None) for pair, count in pairs]
