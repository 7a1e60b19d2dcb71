"""The books of the service beside sums that are made one by one."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable

import numpy as np
import pytest

from calibeat.core.subset import plain
from calibeat.service.rollups import Rollups, add_operations, errors_of
from calibeat.service.store.types import BRIER, DELAYS, LOG_LOSS, RAW_BRIER, RAW_LOG_LOSS, SUMS, TENTHS, WEIGHTS

STREAMS = [3, 8, 11]


@pytest.mark.parametrize("add", [add_operations, plain(add_operations)])
def test_sums_and_roll_ups_are_those_of_the_operations(
    add: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("calibeat.service.rollups.add_operations", add)
    rng = np.random.default_rng(0)
    n = 600
    stream = rng.choice(STREAMS[:2], n).tolist()
    time = rng.choice([0.0, 3599.9, 3600.0, 1e6], n).tolist()
    score, forecast = (rng.choice([0.0, 0.05, 0.1, 0.37, 0.999, 1.0], n).tolist() for _ in range(2))
    outcome = rng.choice([math.nan, 0.0, 1.0], n).tolist()
    age = rng.choice([-5.0, 0.0, 0.9, 1.0, 3.0, 100.0, 1e30], n).tolist()
    weight = {at: tuple(rng.random(2).tolist()) for at in range(0, n, 3) if not math.isnan(outcome[at])}
    before = np.random.default_rng(1).random((3, SUMS))
    books = Rollups(
        slots=[STREAMS.index(s) for s in stream],
        times=time,
        scores=score,
        forecasts=forecast,
        outcomes=outcome,
        ages=age,
        numbers=STREAMS,
        sums=[row.tobytes() for row in before],
        weights=weight,
    )

    rollups: dict[tuple[int, int, int, int], list[float]] = defaultdict(lambda: [0.0] * 6)
    sums = before.copy()
    for i, (s, t, f, p, y, seconds) in enumerate(zip(stream, time, score, forecast, outcome, age, strict=True)):
        one, zero = weight.get(i, (y, 1.0 - y))
        row = sums[STREAMS.index(s)]
        for kind, said, loss_at, brier_at in ((0, p, LOG_LOSS, BRIER), (1, f, RAW_LOG_LOSS, RAW_BRIER)):
            tenth = min(9, int(said * 10))
            cell = rollups[s, int(t // 3600), kind, tenth]
            if math.isnan(y):
                cell[0] += 1
                continue
            loss = -one * math.log(max(1e-5, said)) - zero * math.log(max(1e-5, 1.0 - said))
            for at, value in enumerate((1.0, (one + zero) * said, one, loss, one + zero), start=1):
                cell[at] += value
            row[loss_at] += loss
            row[brier_at] += one * (said - 1.0) ** 2 + zero * said**2
            row[TENTHS + 30 * kind + 3 * tenth : TENTHS + 30 * kind + 3 * tenth + 3] += (
                *(one + zero, (one + zero) * said, one),
            )
        if not math.isnan(y):
            row[WEIGHTS] += one + zero
            power = 0
            while power < 31 and 2.0**power <= max(0.0, seconds):
                power += 1
            row[DELAYS + power] += 1.0
    assert [np.frombuffer(each) for each in books.sums] == [pytest.approx(row, rel=1e-12) for row in sums]
    found = {row[:4]: list(row[4:]) for row in books.rollups}
    assert found.keys() == rollups.keys()
    assert all(found[key] == pytest.approx(rollups[key], rel=1e-12) for key in rollups)
    tenths = sums[:, TENTHS : TENTHS + 60].reshape(3, 2, 10, 3)
    assert np.allclose(books.errors, np.abs(tenths[..., 1] - tenths[..., 2]).sum(axis=2) / tenths[..., 0].sum(axis=2))
    assert errors_of(np.frombuffer(b"".join(books.sums))) == books.errors


def test_streams_without_an_operation_keep_their_sums() -> None:
    kept = [np.arange(float(SUMS)).tobytes(), bytes(8 * SUMS)]
    books = Rollups(slots=[], times=[], scores=[], forecasts=[], outcomes=[], ages=[], numbers=[5, 6], sums=kept)
    assert books.sums == kept and books.rollups == []
    assert books.errors[0] != (None, None) == books.errors[1]
