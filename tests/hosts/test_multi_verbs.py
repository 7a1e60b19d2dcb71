"""Every verb of `Calibrator` and of `Bank` for K classes: what one does, so do the others."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import multi_streams
import numpy as np
import pytest

from calibeat import InvalidInput, Monitor, MultiBank, MultiCalibrator, MultiForecast, OutcomeConflict, UnknownKey
from calibeat.cli.main import main

EVENTS = 240
KINDS = [(2, "multi"), (3, "multi"), (3, "ots"), (3, "raw"), (70, "multi")]
kinds = pytest.mark.parametrize(("K", "method"), KINDS)


def stream(K: int) -> tuple[np.ndarray[Any, Any], Any, Any]:
    scores, labels = multi_streams.drifting(EVENTS, K)
    return np.random.default_rng(K).integers(0, 5, EVENTS), scores, labels


def own(keys: Any, key: int) -> Any:
    return np.flatnonzero(keys == key)


@kinds
def test_a_maturity(K: int, method: str) -> None:
    keys, scores, labels = stream(K)
    by_age, by_due = MultiCalibrator(K, method), MultiCalibrator(K, method)
    P = by_age.run(scores, labels, mature=9)
    Q = by_due.run(scores, labels, due=np.arange(EVENTS) + 10)
    np.testing.assert_allclose(P[:10], scores[:10], rtol=0, atol=1e-15)  # raw until a label has matured
    np.testing.assert_array_equal(P[10:], Q[10:])
    times = np.datetime64("2026-01-01T00:00") + np.arange(EVENTS) * np.timedelta64(1, "m")
    timed = MultiCalibrator(K, method)
    np.testing.assert_array_equal(timed.run(scores, labels, mature="570s", times=times), P)
    bank = MultiBank(K, method)
    many = bank.run(keys, scores, labels, mature=9)
    first = own(keys, 3)[0]
    np.testing.assert_allclose(many[first], scores[first], rtol=0, atol=1e-15)


@kinds
def test_late_labels_of_keys(K: int, method: str) -> None:
    """The bits of a stream of its own, with arrivals counted in the key's own events; also by single events."""
    keys, scores, labels = stream(K)
    due = np.arange(EVENTS) + 1 + np.random.default_rng(1).integers(0, 30, EVENTS)
    bank = MultiBank(K, method)
    P = bank.run(keys, scores, labels, due=due, finish=True)
    for key in range(5):
        mine = own(keys, key)
        alone = MultiCalibrator(K, method)
        counted = np.searchsorted(mine, due[mine]) + np.maximum(due[mine] - EVENTS, 0)
        Q = alone.run(scores[mine], labels[mine], due=counted, finish=True)
        np.testing.assert_array_equal(P[mine], Q)
        np.testing.assert_array_equal(bank.row(key), alone.row)


@kinds
def test_threads_change_no_bit(K: int, method: str) -> None:
    keys, scores, labels = (
        np.tile(column, (90, *([1] * (column.ndim - 1)))).reshape(-1, *column.shape[1:]) for column in stream(K)
    )
    if K > 3:
        keys, scores, labels = keys[:3000], scores[:3000], labels[:3000]
    due = np.arange(len(labels)) + 40
    for arguments in ({}, {"due": due}):
        one, two = MultiBank(K, method, threads=1), MultiBank(K, method, threads=2)
        np.testing.assert_array_equal(
            one.run(keys, scores, labels, **arguments), two.run(keys, scores, labels, **arguments)
        )
        np.testing.assert_array_equal(one.rows(range(5)), two.rows(range(5)))


@kinds
def test_fold_is_predict_and_update(K: int, method: str) -> None:
    keys, scores, labels = stream(K)
    bank, alone = MultiBank(K, method), {key: MultiCalibrator(K, method) for key in range(5)}
    told = bank.fold(keys[:60], scores[:60], [None] * 60)
    assert told.forecasts.shape == (60, K)
    kept = [alone[int(key)].predict(score) for key, score in zip(keys[:60], scores[:60], strict=True)]
    np.testing.assert_array_equal(told.forecasts, [f.probabilities for f in kept])
    receipts = told.receipts.tolist()
    for receipt, forecast in zip(receipts, kept, strict=True):
        found = MultiForecast.from_bytes(receipt)
        np.testing.assert_array_equal(found.probabilities, forecast.probabilities)
        assert (found.event, found.seen) == (forecast.event, forecast.seen)
    order = np.random.default_rng(2).permutation(60)
    blank = np.full((60, K), np.nan)
    bank.fold(keys[order], blank, labels[order].tolist(), [receipts[i] for i in order])
    for i in order:
        alone[int(keys[i])].update(kept[i], int(labels[i]))
    for key in range(5):
        np.testing.assert_array_equal(bank.row(key), alone[key].row)
    with pytest.raises(OutcomeConflict, match="brought once"):
        bank.fold(keys[:1], blank[:1], [0], receipts[:1])
    both = bank.fold([1, 1], np.stack([scores[0], np.full(K, np.nan)]), [None, 1], of=[-1, 0])
    forecast = alone[1].predict(scores[0])
    alone[1].update(forecast, 1)
    np.testing.assert_array_equal(both.forecasts[0], forecast.probabilities)
    np.testing.assert_array_equal(bank.row(1), alone[1].row)


def test_damaged_receipts_of_fold() -> None:
    bank = MultiBank(3)
    receipt = bank.fold(["a"], [[0.2, 0.3, 0.5]], [None]).receipts.tolist()[0]
    blank = [[np.nan] * 3]
    for at, value in ((0, 9), (1, 2), (2, 1), (8 * 13 + 7, 0x7F), (-1, 0xFF), (-25, 0x41)):
        damaged = bytearray(receipt)
        damaged[at] = value
        with pytest.raises(InvalidInput, match="receipt must be"):
            bank.fold(["a"], blank, [1], [bytes(damaged)])
    with pytest.raises(InvalidInput, match="receipt must be 504 bytes"):
        bank.fold(["a"], blank, [1], [receipt[:-1]])
    assert bank.table["outcomes"].tolist() == [0]


@kinds
def test_rows_leave_and_come_back(K: int, method: str, tmp_path: Path) -> None:
    keys, scores, labels = stream(K)
    bank, other = MultiBank(K, method), MultiBank(K, method)
    bank.run(keys, scores, labels)
    other.set_rows(range(5), bank.rows(range(5)))
    np.testing.assert_array_equal(other.predict_many(keys, scores), bank.predict_many(keys, scores))
    bank.save(tmp_path / "bank")
    mapped = MultiBank.load(tmp_path / "bank", mmap=True)
    np.testing.assert_array_equal(mapped.predict_many(keys, scores), bank.predict_many(keys, scores))
    np.testing.assert_array_equal(mapped.predict(1, scores[0]).probabilities, bank[1].peek(scores[0]))
    with pytest.raises(InvalidInput, match="opened with mmap=True cannot learn"):
        mapped.run(keys, scores, labels)
    for twin in (copy.deepcopy(bank), pickle.loads(pickle.dumps(bank))):  # noqa: S301 - our own bytes
        np.testing.assert_array_equal(
            twin.run(keys, scores, labels), MultiBank.load(tmp_path / "bank").run(keys, scores, labels)
        )
    impossible = bank.rows([0])
    impossible[0, 1] = 1e9
    with pytest.raises(InvalidInput, match="row"):
        bank.set_rows([0], impossible)


@kinds
def test_members_keys_and_tables(K: int, method: str) -> None:
    keys, scores, labels = stream(K)
    bank = MultiBank(K, method)
    bank.run(keys, scores, labels)
    assert (
        np.int64(3) in bank
        and 2**70 not in bank
        and "3" not in bank
        and list(bank) == list(dict.fromkeys(keys.tolist()))
    )
    member = bank[3]
    assert type(member) is MultiCalibrator and member.row.tolist() == bank[3].row.tolist()
    forecast = member.predict(scores[0])
    bank.update(3, MultiForecast.from_bytes(forecast.to_bytes()), 1)
    assert member.outcomes == len(own(keys, 3)) + 1 and bank.table_of([3])["outcomes"] == [member.outcomes]
    member.run(scores[:5], labels[:5])
    alone = MultiCalibrator.from_json(member.to_json())
    np.testing.assert_array_equal(alone.peek(scores[0]), member.peek(scores[0]))
    assert type(copy.deepcopy(member)) is MultiCalibrator
    table = bank.table
    assert set(table) >= {
        "key",
        "events",
        "outcomes",
        "idle",
        "raw_log_loss",
        "log_loss",
        "raw_brier",
        "brier",
        "evidence",
    }
    mine = own(keys, 1)
    chosen = labels[mine], scores[mine]
    raw = -np.log(np.maximum(1e-5, chosen[1][np.arange(len(mine)), chosen[0]])).mean()
    assert table["raw_log_loss"][list(bank).index(1)] == pytest.approx(raw, rel=1e-9)
    assert len(bank.params["key"]) == 5
    del bank[3]
    assert 3 not in bank and len(bank) == 4
    with pytest.raises(UnknownKey, match="which it has forgotten"):
        member.predict(scores[0])
    dropped = bank.drop_idle(before=10)
    assert len(dropped) + len(bank) == 4 and isinstance(dropped, MultiBank)


@kinds
def test_a_pooled_start(K: int, method: str) -> None:
    """A new key starts where the pool is; late and single events teach the pool as batches do."""
    keys, scores, labels = stream(K)
    bank, single = MultiBank(K, method, prior="pooled"), MultiBank(K, method, prior="pooled")
    bank.run(keys, scores, labels)
    for key, score, label in zip(keys.tolist(), scores, labels.tolist(), strict=True):
        single.update(key, single.predict(key, score), label)
    np.testing.assert_array_equal(bank.pool, single.pool)
    np.testing.assert_array_equal(bank.rows(range(5))[:, :-6], single.rows(range(5))[:, :-6])
    fresh = MultiBank(K, method).predict("new", scores[0]).probabilities
    started = bank.predict(99, scores[0]).probabilities
    assert (started == fresh).all() == (method == "raw")
    twin = pickle.loads(pickle.dumps(bank))  # noqa: S301 - our own bytes
    np.testing.assert_array_equal(twin.pool, bank.pool)
    bank.run(keys, scores, labels, due=np.arange(EVENTS) + 7)
    assert bank.pool[1] > twin.pool[1]


@pytest.mark.parametrize("K", [2, 4])
def test_monitors_watch_the_class_that_is_named(K: int) -> None:
    scores, labels = multi_streams.random(1500, K)
    batch, single = (MultiCalibrator(K, "raw", monitor=Monitor(arl=2000)) for _ in range(2))
    batch.run(scores, labels)
    for score, label in zip(scores, labels.tolist(), strict=True):
        single.update(single.predict(score), label)
    alone = Monitor(arl=2000)
    named = scores.argmax(axis=1)
    best = batch.predict_many(scores).max(axis=1)
    alone.run(best, (labels == named).astype(float), scores=scores.max(axis=1))
    assert batch.monitor is not None and single.monitor is not None
    assert batch.monitor.alarms == single.monitor.alarms == alone.alarms and alone.alarms
    bank = MultiBank(K, "raw", monitor=Monitor(arl=2000))
    bank.run([7] * 1500, scores, labels)
    assert bank.table["alarms"].tolist() == [len(alone.alarms)]
    assert bank.broken().keys.tolist() == bank.miscalibrated().tolist() == [7]
    late = MultiBank(K, "raw", monitor=Monitor(arl=2000))
    late.run([7] * 1500, scores, labels, due=np.arange(1500) + 9, finish=True)
    assert late.table["alarms"].tolist() == [len(alone.alarms)]
    restored = MultiCalibrator.from_json(batch.to_json())
    assert restored.monitor is not None and restored.monitor.alarms == alone.alarms


def test_the_command_line_reads_such_a_bank(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys, scores, labels = stream(3)
    bank = MultiBank(["cat", "dog", "bird"])
    bank.run(keys, scores, [["cat", "dog", "bird"][y] for y in labels])
    bank.save(tmp_path / "animals.bank")
    assert main(["bank", "info", str(tmp_path / "animals.bank"), "--json", "--verify"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["method"], found["classes"], found["keys"]) == ("multi", 3, 5)
    assert main(["bank", "show", str(tmp_path / "animals.bank"), "3"]) == 0
    assert "log_loss" in capsys.readouterr().out


def test_labels_of_many_hundred_classes_and_new_keys_of_a_mapped_file(tmp_path: Path) -> None:
    K = 300
    bank, alone = MultiBank(K), MultiCalibrator(K)
    scores = np.full(K, 1.0 / K)
    for host, first in ((bank, ("k",)), (alone, ())):
        made = host.predict(*first, scores)
        assert host.update(*first, made, K - 1) == "learnt" and host.update(*first, made, K - 1) == "repeated"
        with pytest.raises(OutcomeConflict):
            host.update(*first, made, K - 2)
    bank.save(tmp_path / "bank")
    mapped = MultiBank.load(tmp_path / "bank", mmap=True)
    new = mapped.predict("new", scores)
    np.testing.assert_array_equal(new.probabilities, MultiCalibrator(K).predict(scores).probabilities)
    assert "new" not in mapped


def test_a_raw_score_of_zero_while_nothing_has_matured_leaves_the_evidence_finite() -> None:
    scores, labels = np.array([[0.0, 1.0, 0.0], [0.2, 0.3, 0.5]] * 30), np.array([0, 1] * 30)
    cal = MultiCalibrator(3)
    forecasts = cal.run(scores, labels, mature=5)
    assert forecasts[0].tolist() == [0.0, 1.0, 0.0]  # the label is 0
    assert np.isfinite(cal.evidence)
