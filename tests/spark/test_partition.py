"""One partition without Spark: pieces of any size, keys that go on, states, ties, and times that go back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from calibeat import Bank, InvalidInput, Monitor, SnapshotMismatch
from calibeat.hosts.bank import rows_in, rows_out
from calibeat.spark import frame as partitions
from calibeat.spark.columns import ARRIVAL, GROUP_BIT, OUTCOME, PLACE, REASON, ROW, SCORE, TIME, Roles
from calibeat.spark.frame import Partition
from calibeat.spark.state import bank_of, check_same, described, from_bytes, to_bytes

pa = pytest.importorskip("pyarrow")

ROLES = Roles("key", "score", "outcome", ("number",))
LATE = replace(ROLES, time="number", arrival="known")


def table(n: int = 900, keys: int = 7) -> Any:
    rng = np.random.default_rng(0)
    key = np.sort(rng.integers(0, keys, n))
    score = rng.random(n)
    columns = {"key": key, "number": np.arange(n), SCORE: score, OUTCOME: (rng.random(n) < score).astype(float)}
    known = np.arange(n) + rng.integers(0, 300, n)
    return pa.table({**columns, TIME: np.arange(n), ARRIVAL: known, REASON: pa.nulls(n, pa.string())})


def run(work: Partition, rows: Any, size: int) -> tuple[list[float], dict[Any, bytes]]:
    made = list(work(iter(rows.to_batches(max_chunksize=size))))
    forecasts = [batch for batch in made if "forecast" in batch.schema.names]
    state = [batch for batch in made if "row" in batch.schema.names]
    keys, values = ([v for batch in state for v in batch[name].to_pylist()] for name in ("key", "row"))
    assert len(set(keys)) == len(keys)
    return [p for batch in forecasts for p in batch["forecast"].to_pylist()], dict(zip(keys, values, strict=True))


@pytest.mark.parametrize("late", [False, True])
def test_pieces_of_any_size_give_the_same(late: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = table()
    roles = LATE if late else ROLES
    forecast, state = (Partition("tops", roles, ("key",), **only) for only in ({"rows": False}, {"events": False}))
    wanted = run(forecast, rows, 1000)[0], run(state, rows, 1000)[1]
    bank = Bank("tops")
    if not late:
        direct = bank.run(*(rows[name].to_numpy() for name in ("key", SCORE, OUTCOME)))
        names, found = rows_out(bank)
        assert wanted == (direct.tolist(), dict(zip(names.tolist(), to_bytes(found), strict=True)))
    for piece, size in ((1, 50), (60, 7), (130, 1000), (300, 13)):
        monkeypatch.setattr(partitions, "PIECE", piece)
        assert (run(forecast, rows, size)[0], run(state, rows, size)[1]) == wanted


def by_place(rows: Any) -> Any:
    """Sorted by groups of two keys, then by half the number: two rows share a place, the later one first."""
    number = rows["number"].to_numpy() - 100
    place = (rows["key"].to_numpy() // 2 - 2 << GROUP_BIT) + (1 << GROUP_BIT - 1) + number // 2
    order = np.lexsort((-number, place))
    return rows.append_column(PLACE, pa.array(place)).take(pa.array(order))


@pytest.mark.parametrize("strings", [False, True])
def test_groups_of_keys_by_place_give_the_same(strings: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = table(240).take(pa.array(np.random.default_rng(1).permutation(240)))
    rows = rows.set_column(1, "number", pa.array(np.arange(240)))  # keys take turns
    if strings:
        rows = rows.append_column("name", rows["key"].cast(pa.string()))
    roles = replace(ROLES, key="name") if strings else ROLES
    bank = Bank("tops")
    keys = rows[roles.key].to_pylist()
    wanted = bank.run(keys, *(rows[name].to_numpy() for name in (SCORE, OUTCOME))).tolist()
    names, found = rows_out(bank)
    final = dict(zip(names.tolist(), to_bytes(found), strict=True))
    for piece, size in ((1, 1), (40, 7), (90, 1000)):
        monkeypatch.setattr(partitions, "PIECE", piece)
        batches = by_place(rows).to_batches(max_chunksize=size)
        work = Partition("tops", roles, ("number",), rows=False)
        made = pa.Table.from_batches(list(work(iter(batches)))).sort_by("number")
        assert made["forecast"].to_pylist() == wanted
        assert run(Partition("tops", roles, (), events=False), by_place(rows), size)[1] == final


def test_a_state_comes_before_the_events_of_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = table().append_column(ROW, pa.nulls(900, pa.binary()))
    half = rows["number"].to_numpy() % 2 == 0
    work = Partition("tops", ROLES, ("key",), events=False)
    _, state = run(work, rows.filter(pa.array(half)), 1000)
    schema = pa.schema([("key", pa.int64()), (ROW, pa.binary())])
    stored = pa.table({"key": [*state, 99, 100], ROW: [*state.values(), state[0], state[1]]}, schema=schema)
    both = pa.concat_tables([stored, rows.filter(pa.array(~half))], promote_options="default").sort_by("key")
    bank = bank_of("tops")
    rows_in(bank, list(state), from_bytes(bank, list(state.values()), list(state)))
    rest = rows.filter(pa.array(~half))
    wanted = bank.run(*(rest[name].to_numpy() for name in ("key", SCORE, OUTCOME)))
    names, found = rows_out(bank)
    final = dict(zip(names.tolist(), to_bytes(found), strict=True)) | {99: state[0], 100: state[1]}  # without an event
    for piece, size in ((1, 1), (100, 40), (10_000, 40)):
        monkeypatch.setattr(partitions, "PIECE", piece)
        resumed = Partition("tops", ROLES, ("key",), resumed=True, rows=False)
        assert run(resumed, both, size)[0] == wanted.tolist()
        _, after = run(Partition("tops", ROLES, ("key",), resumed=True, events=False), both, size)
        assert after == final
    together = list(Partition("tops", ROLES, ("key",), resumed=True)(iter(both.to_batches())))
    found = pa.Table.from_batches(together)
    assert found.column_names == ["key", "forecast", "judged", ROW] and len(found) == len(rest) + len(after)


def test_outcomes_are_learnt_at_one_age() -> None:
    rows = table(keys=1)
    work = Partition("tops", replace(ROLES, time="number"), ("key",), age=50, rows=False)
    columns = (rows[name].to_numpy() for name in ("key", SCORE, OUTCOME))
    assert run(work, rows, 100)[0] == Bank("tops").run(*columns, due=np.arange(900) + 50, mature=0).tolist()
    assert list(work(iter([]))) == []


def test_the_numbers_of_monitors_travel() -> None:
    watched = [Bank("ops", monitor=Monitor(arl=1e6)) for _ in range(2)]
    watched[0].run(["a", "b"] * 50, [0.5] * 100, [1, 0] * 50)
    rows_in(watched[1], *rows_out(watched[0]), seen=True)
    assert watched[1].table["log_e"].tolist() == watched[0].table["log_e"].tolist()
    assert watched[1].table["idle"].tolist() == [0, 0]


def test_what_is_wrong_is_named_by_key_and_order(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(sentence: str, rows: Any, roles: Roles = ROLES, size: int = 1000) -> None:
        with pytest.raises(InvalidInput, match=sentence):
            run(Partition("tops", roles, ("key",)), rows, size)

    rows = table(6, keys=1)
    twice = rows.set_column(1, "number", pa.array([0, 1, 1, 3, 4, 5]))
    refused("order must tell the events of a key apart, got the same twice - at key 0, number 1", twice)
    back = rows.set_column(4, TIME, pa.array([0, 1, 5, 3, 5, 6]))
    refused("time must not go back within a key, got an earlier one after a later one - at key 0, number 3", back, LATE)
    refused("order must tell the events of a key apart, got the same twice - at key 0, number 1", by_place(twice))
    bad = rows.set_column(6, REASON, pa.array([None, "score must be in [0, 1], got 2", None, None, None, None]))
    refused(r"score must be in \[0, 1\], got 2 - at key 0, number 1", bad)
    nowhere = bad.append_column(PLACE, pa.array([None, None, 1, 2, 3, 4], pa.int64()))
    refused(r"score must be in \[0, 1\], got 2 - at key 0, number 1", nowhere)
    monkeypatch.setattr(partitions, "PIECE", 2)
    refused("got the same twice - at key 0, number 1", twice, size=2)


def test_rows_of_another_method_or_version_are_refused() -> None:
    bank = Bank("tops", seed=1, monitor=Monitor(arl=1e6, sampled=(1.0, 0.05)))
    assert described(bank_of(described(bank))) == described(bank)
    assert bank_of(described(bank)).watched == bank.watched
    with pytest.raises(SnapshotMismatch, match="must have 1464 bytes, got 5 - at key 'a'"):
        from_bytes(bank, [b"short"], ["a"])
    with pytest.raises(SnapshotMismatch, match="got nothing - at key 'a'"):
        from_bytes(bank, [None], ["a"])
    with pytest.raises(SnapshotMismatch, match="state must be of version 3, got 2"):
        check_same([("tops", 2)])
    with pytest.raises(SnapshotMismatch, match="state must be of one method, got ops and tops"):
        check_same([("ops", 3), ("tops", 3)])
    with pytest.raises(SnapshotMismatch, match="a method that this version knows"):
        bank_of('{"method": "tops"}')


def test_rows_leave_a_bank_only_when_no_monitor_waits() -> None:
    bank = Bank("ops", monitor=Monitor(arl=1e6))
    bank.predict("a", 0.5)
    with pytest.raises(InvalidInput, match="no outcome under way when its rows leave, got one of key 'a'"):
        rows_out(bank)
    with pytest.raises(InvalidInput, match="rows must have 163 numbers each, got shape"):
        rows_in(bank, ["a"], np.zeros((1, 3)))
