"""Single events of a bank of many classes: the same bits as each key alone, and the same promises on receipts."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import multi_streams
import numpy as np
import pytest

from calibeat import (
    InvalidInput,
    MultiBank,
    MultiCalibrator,
    MultiForecast,
    OutcomeConflict,
    UnknownForecast,
    UnknownKey,
)
from calibeat._compiled import CLOSED

N = 90
SCORE = [0.2, 0.5, 0.3]


def stream(K: int) -> tuple[Any, Any, Any]:
    scores, labels = multi_streams.drifting(N, K)
    return np.random.default_rng(K).integers(0, 3, N).tolist(), scores, labels.tolist()


@pytest.mark.parametrize("method", ["raw", "ots", "multi"])
@pytest.mark.parametrize("K", [2, 3, 65])
def test_single_events_have_the_bits_of_a_calibrator_of_their_own(K: int, method: str) -> None:
    keys, scores, labels = stream(K)
    bank, alone = MultiBank(K, method), {key: MultiCalibrator(K, method) for key in range(3)}
    waiting: list[Any] = []
    for i, key in enumerate(keys):
        mine, theirs = bank.predict(key, scores[i]), alone[key].predict(scores[i])
        np.testing.assert_array_equal(mine.probabilities, theirs.probabilities)
        assert (mine.label, mine.event, mine.seen) == (theirs.label, theirs.event, theirs.seen)
        waiting.append((key, mine, theirs, labels[i]))
        while len(waiting) > i % 5:  # at once, late, and in another order
            key_of, receipt, other, label = waiting.pop((7 * i) % len(waiting))
            bank.update(key_of, receipt, label)
            alone[key_of].update(other, label)
    for key, cal in alone.items():
        np.testing.assert_array_equal(bank.row(key), cal.row)


@pytest.mark.parametrize("K", [2, 3])
def test_single_events_and_batches_go_together(K: int) -> None:
    keys, scores, labels = stream(K)
    mixed, batch = MultiBank(K), MultiBank(K)
    expected = batch.run(keys, scores, labels)
    first = mixed.run(keys[:30], scores[:30], labels[:30])
    single = []
    for i in range(30, 60):
        single.append(mixed.predict(keys[i], scores[i]))
        mixed.update(keys[i], MultiForecast.from_json(single[-1].to_json()), labels[i])
    last = mixed.run(keys[60:], scores[60:], labels[60:])
    np.testing.assert_array_equal(np.vstack([first, *(f.probabilities for f in single), last]), expected)
    np.testing.assert_array_equal(mixed.row(0), batch.row(0))


def test_repeats_change_nothing_and_contradictions_are_noticed() -> None:
    bank = MultiBank(["cat", "dog", "bird"])
    forecast = bank.predict("rome", SCORE)
    bank.update("rome", forecast, "dog")
    row = bank.row("rome")
    bank.update("rome", forecast, "dog")
    np.testing.assert_array_equal(bank.row("rome"), row)
    with pytest.raises(OutcomeConflict, match="already learnt, 'dog', got 'cat'"):
        bank.update("rome", forecast, "cat")
    bank.predict("oslo", SCORE)
    with pytest.raises(UnknownForecast, match="must come from this calibrator"):
        bank.update("oslo", forecast, "dog")
    with pytest.raises(UnknownForecast):
        bank.update("rome", MultiBank(3).predict("rome", SCORE), "dog")
    with pytest.raises(UnknownKey, match="one of the 2 keys of the bank, got 'paris'"):
        bank.update("paris", forecast, "dog")
    with pytest.raises(InvalidInput, match="keys must be strings like those of the bank, got ints"):
        bank.predict(7, SCORE)
    with pytest.raises(InvalidInput, match="must be a MultiForecast"):
        bank.update("rome", 0.5, "dog")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="label must be one of"):
        bank.update("rome", forecast, "fish")
    with pytest.raises(InvalidInput, match="must sum to 1"):
        bank.predict("rome", [0.5, 0.6, 0.7])
    assert len(bank) == 2


def test_events_of_a_batch_have_no_receipts() -> None:
    bank = MultiBank(3)
    forecast = bank.predict("rome", SCORE)
    bank.run(["rome"] * 100, [SCORE] * 100, [None] * 50 + [1] * 50)
    bank.update("rome", forecast, 2)
    assert bank.table["outcomes"].tolist() == [51]
    assert bank.predict("rome", SCORE).event == 101
    assert bank["rome"]._ledger.mark(7) == CLOSED


@pytest.mark.parametrize("K", [2, 3])
def test_receipts_outlive_a_file(K: int, tmp_path: Path) -> None:
    keys, scores, labels = stream(K)
    bank = MultiBank(K)
    receipts = [(key, bank.predict(key, score)) for key, score in zip(keys[:20], scores, strict=False)]
    bank.update(*receipts[3], labels[3])
    bank.save(tmp_path / "a.bank")
    after = bank.predict(keys[0], scores[0])
    twin = MultiBank.load(tmp_path / "a.bank")
    for (key, receipt), label in zip(receipts, labels, strict=False):
        copy = MultiForecast.from_json(receipt.to_json())
        twin.update(key, copy, label)
        bank.update(key, receipt, label)
    np.testing.assert_array_equal(twin.row(keys[0])[2:], bank.row(keys[0])[2:])
    with pytest.raises(OutcomeConflict):
        twin.update(*receipts[0], 1 - labels[0])
    twin.predict(keys[0], scores[0])
    with pytest.raises(UnknownForecast, match="after the snapshot"):
        twin.update(keys[0], after, labels[0])


@pytest.mark.parametrize(("K", "method"), [(2, "multi"), (3, "multi"), (3, "ots")])
def test_banks_are_merged(K: int, method: str) -> None:
    keys, scores, labels = stream(K)
    whole, east, west = (MultiBank(K, method) for _ in range(3))
    whole.run(keys, scores, labels)
    for bank, part in ((east, [0, 1]), (west, [2])):
        own = [i for i in range(N) if keys[i] in part]
        bank.run([keys[i] for i in own], scores[own], [labels[i] for i in own])
    mine, theirs = east.predict(0, scores[0]), west.predict(2, scores[0])
    east.merge(west)
    assert sorted(east) == [0, 1, 2]
    east.update(0, mine, labels[0])
    east.update(2, theirs, labels[0])
    one, two = whole.predict(0, scores[0]), whole.predict(2, scores[0])
    whole.update(0, one, labels[0])
    whole.update(2, two, labels[0])
    for key in range(3):
        np.testing.assert_array_equal(east.row(key), whole.row(key))
    with pytest.raises(InvalidInput, match="no key in common, got 2 in both"):
        east.merge(west)
    assert len(east) == 3
    empty = MultiBank(K, method)
    empty.merge(MultiBank(K, method))
    empty.merge(west)
    assert list(empty) == [2]


def test_banks_that_cannot_be_merged() -> None:
    bank = MultiBank(3)
    for other, what in (
        (MultiBank(4), "classes"),
        (MultiBank(3, "ots"), "method"),
        (MultiBank(3, logits=True), "logits"),
    ):
        with pytest.raises(InvalidInput, match=f"banks must have the same {what}"):
            bank.merge(other)
    with pytest.raises(InvalidInput, match="merged with a MultiBank, got int"):
        bank.merge(3)  # type: ignore[arg-type]
    names, numbers = MultiBank(3), MultiBank(3)
    names.predict("rome", SCORE)
    numbers.predict(7, SCORE)
    with pytest.raises(InvalidInput, match="keys must be strings"):
        names.merge(numbers)


def test_threads_share_a_bank() -> None:
    bank, each = MultiBank(3), 60
    scores, labels = multi_streams.drifting(each, 3)
    errors: list[BaseException] = []

    def serve(key: int) -> None:
        try:
            for score, label in zip(scores, labels.tolist(), strict=True):
                bank.update(key, bank.predict(key, score), label)
                bank.run([100], [score], [label])
        except BaseException as error:  # noqa: BLE001 - told below
            errors.append(error)

    threads = [threading.Thread(target=serve, args=(key,)) for key in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    alone = MultiCalibrator(3)
    alone.run(scores, labels)
    assert errors == []
    for key in range(4):
        np.testing.assert_array_equal(bank.row(key), alone.row)
    assert bank.table["events"].sum() == 4 * each * 2
