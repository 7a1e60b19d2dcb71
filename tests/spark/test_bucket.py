"""One bucket without Spark: late, early, repeated and contradicting outcomes, maturity, expiry, pages, same bits."""

from __future__ import annotations

from math import isnan, nan
from typing import Any

import numpy as np
import pytest
from naive_stream import NaiveBucket
from stream_pages import Operation, batch, bucket_of, columns_of, hash_of, stored_rows

from calibeat import Bank, MultiBank, SnapshotMismatch
from calibeat.core.stats import LAST, STATS
from calibeat.spark.bucket import SEGMENTS, Bucket, Rules, packed
from calibeat.spark.state import described, to_bytes

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")


def served(bucket: Bucket, *operations: Operation, now: int | None = None, collide: bool = False) -> dict[str, Any]:
    return columns_of(bucket.serve(batch(*operations, collide=collide), now)[0])


def said(columns: dict[str, list[Any]]) -> list[tuple[str, str, float]]:
    return list(zip(columns["id"], columns["status"], columns["outcome"], strict=True))


def aged(bucket: Bucket, now: int) -> list[tuple[str, str, float]]:
    return said(columns_of(bucket.aged(now)))


def told_rows(columns: dict[str, list[Any]]) -> list[tuple[Any, ...]]:
    """Of many classes lists as tuples."""
    names = ("key", "id", "time", "status", "score", "forecast", "outcome")
    for name in ("score", "forecast"):
        columns[name] = [tuple(value) if isinstance(value, list) else value for value in columns[name]]
    return [blank(row) for row in zip(*(columns[name] for name in names), strict=True)]


def blank(row: Any) -> tuple[Any, ...]:
    """Not a number is nothing, so that rows can be compared."""
    return tuple(None if isinstance(value, float) and isnan(value) else value for value in row)


def own_rows(bank: Bank) -> dict[str, bytes]:
    keys = sorted(bank)
    rows = bank.rows(keys)
    rows[:, rows.shape[1] - STATS + LAST] = 0.0
    return dict(zip(keys, to_bytes(rows), strict=True))


def random_operations(n: int, seed: int) -> list[list[Operation]]:
    """Micro-batches of scores and outcomes: some early, some again, some with another value, times that repeat."""
    rng = np.random.default_rng(seed)
    second = 1_000_000
    batches: list[list[Operation]] = [[] for _ in range(5)]
    for i in range(n):
        key, name, time, score = f"k{rng.integers(8)}", f"e{rng.integers(n)}", int(rng.integers(500)), rng.random()
        outcome = float(rng.random() < score)
        at = min(time // 100 + int(rng.integers(2)), 4)
        batches[at].append((key, name, time * second, round(score, 2), nan))
        for _ in range(int(rng.choice(3, p=[0.2, 0.6, 0.2]))):
            known = max(0, time + int(rng.integers(-20, 200)))
            y = outcome if rng.random() < 0.9 else 1.0 - outcome
            batches[min(known // 100 + int(rng.integers(2)), 4)].append((key, name, known * second, nan, y))
        if i % 10 == 0:
            batches[at].append((key, name, time * second, 0.5, nan))
    return batches


BOTH = {"mature": 70_000_000, "expire": 150_000_000, "expire_as": 0}


@pytest.mark.parametrize(
    ("method", "rules"),
    [
        ("tops", {}),
        ("tops", {"expire": 150_000_000}),
        ("tops", {"mature": 70_000_000}),
        ("tops", {"mature": 70_000_000, "expire": 70_100_000}),
        ("tops", BOTH),
        ("auto", BOTH),
    ],
)
def test_columns_agree_with_one_operation_at_a_time(method: str, rules: dict[str, int]) -> None:
    for seed, collide in ((0, False), (1, False), (2, True)):
        bucket, naive = bucket_of(method, **rules), NaiveBucket(method, **rules)
        for number, operations in enumerate(random_operations(120, seed)):
            now = max(0, 100 * number - 15) * 1_000_000
            wanted = [blank(row) for row in naive.serve(operations, now) if rules or row[3] != "held"]
            got = told_rows(served(bucket, *operations, now=now, collide=collide))
            assert sorted(got, key=str) == sorted(wanted, key=str)
            for key in {row[0] for row in wanted}:  # in order, key by key
                assert [row for row in got if row[0] == key] == [row for row in wanted if row[0] == key]
            assert told_rows(columns_of(bucket.aged(now))) == [blank(row) for row in naive.aged(now)]
        assert stored_rows(bucket) == own_rows(naive.bank)


def with_weights(operations: list[Operation], seed: int) -> list[Operation]:
    """The same; where an outcome comes again it may have another weight."""
    rng = np.random.default_rng(seed)
    drawn = [0.0, 1.0, 3.0, 20.0, 0.37]
    return [(*op, 1.0 if isnan(op[4]) else drawn[(hash_of(op[1]) + int(rng.random() < 0.2)) % 5]) for op in operations]


@pytest.mark.parametrize("rules", [{}, {"expire": 150_000_000}, BOTH])
@pytest.mark.parametrize("method", ["tops", "auto"])
def test_outcomes_with_weights(method: str, rules: dict[str, int]) -> None:
    unweighted = 0
    for seed in range(3):
        bucket, naive = bucket_of(method, weights=True, **rules), NaiveBucket(method, **rules)
        plain = bucket_of(method, **rules)
        for number, operations in enumerate(random_operations(120, seed)):
            heavy = with_weights(operations, seed)
            now = max(0, 100 * number - 15) * 1_000_000
            wanted = [blank(row) for row in naive.serve(heavy, now) if rules or row[3] != "held"]
            got = told_rows(served(bucket, *heavy, now=now))
            assert sorted(got, key=str) == sorted(wanted, key=str)
            assert told_rows(columns_of(bucket.aged(now))) == [blank(row) for row in naive.aged(now)]
            served(plain, *operations, now=now)
            plain.aged(now)
        assert stored_rows(bucket) == own_rows(naive.bank)
        unweighted += stored_rows(bucket) != stored_rows(plain)
    assert unweighted == 3


def test_another_weight_is_a_conflict() -> None:
    bucket = bucket_of("tops", weights=True)
    served(bucket, ("a", "1", 1, 0.3, nan, 1.0), ("a", "1", 2, nan, 1.0, 20.0), ("a", "2", 2, nan, 0.0, 1.0))
    told = served(bucket, ("a", "1", 3, nan, 1.0, 20.0), ("a", "1", 4, nan, 1.0, 2.0), ("a", "2", 4, nan, 0.0, 3.0))
    assert told["status"] == ["repeated", "conflict", "conflict"]


def test_a_stream_may_get_weights_later() -> None:
    """What was stored before has weight 1."""
    bucket = bucket_of("tops")
    served(bucket, ("a", "1", 1, 0.3, nan), ("a", "1", 2, nan, 1.0), ("a", "2", 2, 0.4, nan), ("a", "3", 2, nan, 1.0))
    later = Bucket(
        Rules("tops", strings=True, pages=4, learnt=True, weights=True), bucket._rows._store, bucket._events._store
    )
    told = served(
        later,
        ("a", "1", 3, nan, 1.0, 1.0),
        ("a", "1", 4, nan, 1.0, 2.0),
        ("a", "2", 5, nan, 1.0, 5.0),
        ("a", "3", 6, 0.5, nan, 1.0),
    )
    assert told["status"] == ["repeated", "conflict", "learnt", "forecast", "learnt"]
    naive = NaiveBucket("tops")
    naive.serve([("a", "1", 1, 0.3, nan), ("a", "1", 2, nan, 1.0), ("a", "2", 2, 0.4, nan), ("a", "3", 2, nan, 1.0)], 0)
    naive.serve([("a", "2", 5, nan, 1.0, 5.0), ("a", "3", 6, 0.5, nan)], 0)
    assert stored_rows(later) == own_rows(naive.bank)


@pytest.mark.parametrize(("method", "K"), [(method, K) for method in ("multi", "ots", "raw") for K in (2, 3, 12)])
def test_many_classes_have_the_bits_of_a_multi_bank(method: str, K: int) -> None:
    """The same operations, with scores of K classes in the place of one, and a label in the place of an outcome."""
    rng = np.random.default_rng(K)
    for rules in ({}, BOTH):
        own = MultiBank(K, method)
        bucket, naive = bucket_of(described(own), **rules), NaiveBucket(own, **rules)
        drawn = {round(score, 2): tuple(rng.dirichlet(np.ones(K)).tolist()) for score in np.arange(0, 1.01, 0.01)}
        if K == 2:  # the first is stored as what the second leaves
            drawn = {score: (1.0 - both[1], both[1]) for score, both in drawn.items()}
        for number, operations in enumerate(random_operations(120, seed=K)):
            now = max(0, 100 * number - 15) * 1_000_000
            many: list[Any] = []
            for key, name, time, score, outcome in operations:
                scores = nan if isnan(score) else drawn[score]
                many.append((key, name, time, scores, outcome if isnan(outcome) else float(outcome * (K - 1))))
            if K == 2:  # two scores of one event and time are taken by the second class, as that is all that is kept
                many = list({(*op[:3], isinstance(op[3], tuple)): op for op in many}.values())
            wanted = [blank(row) for row in naive.serve(many, now) if rules or row[3] != "held"]
            got = told_rows(served(bucket, *many, now=now))
            assert sorted(got, key=str) == sorted(wanted, key=str)
            assert told_rows(columns_of(bucket.aged(now))) == [blank(row) for row in naive.aged(now)]
        assert stored_rows(bucket) == own_rows(own)


def test_hedging_methods_draw_as_a_bank_does() -> None:
    bucket, naive = bucket_of('{"method": "hops", "monitor": null, "seed": 7}'), NaiveBucket("hops")
    naive.bank = Bank("hops", seed=7)
    for operations in random_operations(60, seed=3):
        wanted = [blank(row) for row in naive.serve(operations, 0)]
        assert sorted(told_rows(served(bucket, *operations)), key=str) == sorted(wanted, key=str)


def test_rows_and_cuts_do_not_matter() -> None:
    rng = np.random.default_rng(0)
    batches = random_operations(200, seed=5)
    whole = bucket_of("auto", mature=70_000_000)
    mixed = bucket_of("auto", mature=70_000_000)
    for operations in batches:
        shuffled = [operations[i] for i in rng.permutation(len(operations))]
        first, second = served(whole, *operations, now=0), served(mixed, *shuffled, now=0)
        assert sorted(told_rows(first), key=str) == sorted(told_rows(second), key=str)
    assert stored_rows(whole) == stored_rows(mixed)


def test_repeats_conflicts_and_outcomes_before_their_score() -> None:
    bucket = bucket_of()
    first = served(bucket, ("a", "1", 5, 0.7, nan), ("a", "2", 3, nan, 1.0), ("a", "1", 5, nan, 1.0))
    assert said(first)[0][:2] == ("1", "forecast") and said(first)[1] == ("1", "learnt", 1.0)  # 2 waits for its score
    second = served(bucket, ("a", "1", 6, nan, 1.0), ("a", "1", 7, nan, 0.0), ("a", "2", 8, nan, 0.0))
    assert said(second) == [("1", "repeated", 1.0), ("1", "conflict", 0.0), ("2", "conflict", 0.0)]
    third = served(bucket, ("a", "2", 9, 0.2, nan), ("a", "1", 9, 0.7, nan), ("b", "1", 9, 0.7, nan))
    assert [s[:2] for s in said(third)] == [("1", "repeated"), ("1", "forecast"), ("2", "forecast"), ("2", "learnt")]
    assert third["forecast"][0] == first["forecast"][0]  # the stored one
    fourth = served(bucket, ("a", "1", 10, 0.6, nan))
    assert said(fourth)[0][1] == "conflict" and fourth["score"] == [0.6] and fourth["forecast"] == first["forecast"][:1]


def test_outcomes_are_held_until_their_event_is_mature() -> None:
    day = 86_400_000_000
    bucket, bank = bucket_of(mature=7 * day), Bank("tops")
    events = [(f"e{i}", i * 3_600_000_000, 0.1 + 0.02 * i) for i in range(40)]
    scores: list[Operation] = [("a", name, time, score, nan) for name, time, score in events]
    # Ones come within an hour, in the opposite order; zeros after six days.
    outcomes: list[Operation] = [
        ("a", name, (40 - i) * 60_000_000 + 2 * day if i % 2 else time + 6 * day, nan, float(i % 2))
        for i, (name, time, _) in enumerate(events)
    ]
    assert {status for _, status, _ in said(served(bucket, *scores, now=0))} == {"forecast"}
    answer, due = bucket.serve(batch(*outcomes), 0)
    assert set(columns_of(answer)["status"]) == {"held"} and min(due) >= 7 * day and max(due) < 9 * day
    again = said(served(bucket, ("a", "e1", 3 * day, nan, 1.0), ("a", "e2", 3 * day, nan, 1.0), now=2 * day))
    assert again == [("e1", "repeated", 1.0), ("e2", "conflict", 1.0)]
    forecasts = [bank.predict("a", score) for _, _, score in events]
    now = 7 * day + 20 * 3_600_000_000
    learnt = aged(bucket, now)
    ready = [i for i, (_, time, _) in enumerate(events) if bucket.rules.due(np.array([time]))[0] <= now]
    assert learnt == [(f"e{i}", "learnt", float(i % 2)) for i in ready] and 10 < len(ready) < 40
    for i in ready:  # in the order of their scores, not of their outcomes
        bank.update("a", forecasts[i], i % 2)
    assert aged(bucket, now) == []
    assert served(bucket, ("a", "new", now, 0.4, nan), now=now)["forecast"] == [bank.predict("a", 0.4).probability]
    # An outcome that comes when its event is mature is learnt at once.
    at_once = said(served(bucket, ("a", "new", now + 8 * day, nan, 1.0), now=now + 8 * day))
    assert at_once == [("new", "learnt", 1.0)]


def test_events_expire_unlearnt_or_as_an_outcome() -> None:
    def waiting(**rules: Any) -> Bucket:
        bucket = bucket_of(expire=100, **rules)
        served(bucket, ("a", "1", 0, 0.7, nan), ("a", "2", 50, 0.7, nan), ("a", "3", 1, nan, 1.0))
        return bucket

    bucket = waiting()
    assert aged(bucket, 99) == []
    gone = aged(bucket, 101)
    assert [s[:2] for s in gone] == [("1", "expired"), ("3", "unknown")] and isnan(gone[0][2])
    late = said(served(bucket, ("a", "1", 120, nan, 1.0), ("a", "2", 120, nan, 1.0)))
    assert late == [("2", "learnt", 1.0)]  # 1 is forgotten, its outcome waits for a score until it expires
    assert aged(bucket, 150) == []
    bucket, bank = waiting(expire_as=0), Bank("tops")
    assert aged(bucket, 101)[0] == ("1", "expired", 0.0)
    made = bank.fold(["a"] * 4, [0.7, 0.7, nan, 0.7], [nan, nan, 0, nan], of=[-1, -1, 0, -1])
    assert served(bucket, ("a", "4", 120, 0.7, nan))["forecast"] == [made.forecasts[3]]


def test_a_small_batch_writes_few_pages() -> None:
    bucket = bucket_of(pages=64)
    served(bucket, *((f"k{i % 300}", f"e{i}", i, 0.5, nan) for i in range(3000)))
    stores: Any = bucket._settled._store, bucket._rows._store
    for store in stores:
        assert len(store) > 32
        store.written = 0
    served(bucket, ("k7", "e7", 4000, nan, 1.0))
    # The page of the event, that of the index, the segment and the list of segments; and the page of the row.
    assert [store.written for store in stores] == [4, 1]


def test_settled_events_are_written_once_and_forgotten_by_segments() -> None:
    bucket = bucket_of(expire=1000)
    store: Any = bucket._settled._store

    def segments() -> list[int]:
        return [page - SEGMENTS for page in store if page >= SEGMENTS]

    for batch_number in range(3):
        time = 100 * batch_number
        names = [f"e{batch_number}-{i}" for i in range(5)]
        served(bucket, *(("a", name, time, 0.5, nan) for name in names), *(("a", n, time + 1, nan, 1.0) for n in names))
    assert segments() == [0, 1, 2]
    first = store[SEGMENTS]
    assert said(served(bucket, ("a", "e0-3", 300, nan, 1.0), ("a", "e1-0", 300, nan, 0.0))) == [
        ("e0-3", "repeated", 1.0),
        ("e1-0", "conflict", 0.0),
    ]
    assert store[SEGMENTS] == first
    assert aged(bucket, 1100) == [] and segments() == [2]
    again = said(served(bucket, ("a", "e0-3", 1100, 0.5, nan), ("a", "e2-0", 1100, nan, 0.0)))
    assert [row[:2] for row in again] == [("e2-0", "conflict"), ("e0-3", "forecast")]  # forgotten, and known
    served(bucket, ("a", "e0-3", 1200, nan, 1.0))
    assert segments() == [2, 3]  # no number is given twice


def test_pages_of_version_0_2_0_are_read() -> None:
    """Its receipts named their issuer, and its events had no time of the outcome."""
    bank, bucket = Bank("auto"), bucket_of("auto", mature=1000)
    made = bank.fold(["a", "a"], [0.3, 0.6], [nan, nan])
    kinds = {"hash": pa.int64(), "key": pa.string(), "key_hash": pa.int64(), "id": pa.string(), "state": pa.int8()}
    kinds |= {"time": pa.int64(), "score": pa.float64(), "forecast": pa.float64(), "outcome": pa.float64()}
    columns = [[hash_of("a/1"), hash_of("a/2")], ["a", "a"], [hash_of("a")] * 2, ["1", "2"], [0, 0], [0, 0]]
    columns += [[0.3, 0.6], made.forecasts.tolist(), [nan, nan], made.receipts.tolist()]
    kinds["receipt"] = pa.binary()
    events = pa.table(columns, schema=pa.schema(list(kinds.items())))
    _, taken = bucket._events.take(events["hash"].to_numpy())
    for page in taken.pages.tolist():
        mine = bucket._events._page_of(events["hash"].to_numpy()) == page
        bucket._events._store[page] = packed(events.filter(pa.array(mine)))
    rows = bank.rows(["a"])
    bucket.start(pd.DataFrame({"key": ["a"], "key_hash": [hash_of("a")], "row": to_bytes(rows)}))
    wanted = bank.fold(["a", "a"], [nan, 0.5], [1.0, nan], made.receipts[:1]).forecasts[1]
    assert said(served(bucket, ("a", "1", 9, nan, 1.0), now=0)) == [("1", "held", 1.0)]
    assert aged(bucket, 5000) == [("1", "learnt", 1.0)]
    assert served(bucket, ("a", "3", 10, 0.5, nan), now=0)["forecast"] == [wanted]


def test_a_state_of_another_method_is_refused() -> None:
    bucket = bucket_of("tops")
    served(bucket, ("a", "1", 0, 0.5, nan))
    other = Bucket(Rules("auto", strings=True, pages=4), bucket._rows._store, bucket._events._store)
    with pytest.raises(SnapshotMismatch, match=r"must have .* bytes, got .*; is the state of another method"):
        served(other, ("a", "2", 0, 0.5, nan))
