"""One bucket without Spark: late, early, repeated and contradicting outcomes, expiry, pages, the bits of one fold."""

from __future__ import annotations

from hashlib import blake2b
from itertools import pairwise
from math import isnan, nan
from typing import Any

import numpy as np
import pytest

from calibeat import Bank, InvalidInput
from calibeat.core.stats import LAST
from calibeat.spark.bucket import Bucket, Rules
from calibeat.spark.state import to_bytes
from calibeat.spark.stream import MapPages, serve, start, told

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")


class Memory:
    """A store of pages in a dictionary, which counts what is written."""

    def __init__(self) -> None:
        self.content: dict[int, bytes] = {}
        self.written = 0

    def get(self, page: int) -> bytes | None:
        return self.content.get(page)

    def put(self, page: int, content: bytes) -> None:
        self.content[page] = content
        self.written += 1

    def remove(self, page: int) -> None:
        self.content.pop(page, None)

    def pages(self) -> list[int]:
        return sorted(self.content)


def bucket_of(method: str = "tops", **rules: Any) -> Bucket:
    return Bucket(Rules(method, strings=True, **{"pages": 4, "learnt": True, **rules}), Memory(), Memory())


def batch(*operations: tuple[str, str, int, float, float]) -> dict[str, Any]:
    """Operations: key, id, time, score (NaN: an outcome), outcome."""
    key, name, time, score, outcome = (list(column) for column in zip(*operations, strict=True))
    return {
        "key": key,
        "id": name,
        "time": np.array(time),
        "score": np.array(score, dtype=float),
        "outcome": np.array(outcome, dtype=float),
        "key_hash": np.array([_hash(k) for k in key]),
        "event_hash": np.array([_hash(f"{k}/{i}") for k, i in zip(key, name, strict=True)]),
    }


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), signed=True)


def said(columns: dict[str, list[Any]]) -> list[tuple[str, str, float]]:
    return list(zip(columns["id"], columns["status"], columns["outcome"], strict=True))


def test_late_outcomes_have_the_bits_of_one_bank_however_batches_are_cut() -> None:
    rng = np.random.default_rng(0)
    events = [(f"k{rng.integers(20)}", f"e{i:04d}", 10 * i, float(rng.random())) for i in range(900)]
    scores = [(key, name, time, score, nan) for key, name, time, score in events]
    late = [(k, name, t + 1 + int(rng.integers(2000)), nan, float(rng.random() < s)) for k, name, t, s in events]
    operations = sorted(scores + late, key=lambda op: (op[2], not isnan(op[3]), op[1]))
    for method in ("tops", "auto"):
        bank, at = Bank(method), {op[1]: i for i, op in enumerate(operations) if not isnan(op[3])}
        own = [-1 if not isnan(op[3]) else at[op[1]] for op in operations]
        columns = [list(column) for column in zip(*operations, strict=True)]
        wanted = bank.fold(columns[0], columns[3], columns[4], of=own).forecasts
        by_id = {op[1]: p for op, p in zip(operations, wanted.tolist(), strict=True) if not isnan(op[3])}
        for cuts in ((0, 1800), (0, 7, 400, 401, 1800)):
            bucket = bucket_of(method)
            got: dict[str, float] = {}
            for begin, end in pairwise(cuts):
                part = operations[begin:end]
                rng.shuffle(part)  # type: ignore[arg-type]  # a list does as well
                answer = bucket.serve(batch(*part))
                rows = zip(answer["id"], answer["status"], answer["forecast"], strict=True)
                got |= {name: p for name, status, p in rows if status == "forecast"}
            assert got == by_id
            stored = [table for page in bucket._rows._store.pages() for table in [bucket._rows._read(page)]]
            rows = {
                k: row
                for table in stored
                for k, row in zip(*(table[c].to_pylist() for c in ("key", "row")), strict=True)
            }
            own_rows = bank.rows(sorted(rows))
            own_rows[:, bank.method.width + LAST] = 0.0
            assert [rows[key] for key in sorted(rows)] == to_bytes(own_rows)


def test_repeats_conflicts_and_outcomes_before_their_score() -> None:
    bucket = bucket_of()
    first = bucket.serve(batch(("a", "1", 5, 0.7, nan), ("a", "2", 3, nan, 1.0), ("a", "1", 5, nan, 1.0)))
    assert said(first)[0][:2] == ("1", "forecast") and said(first)[1] == ("1", "learnt", 1.0)  # 2 waits for its score
    second = bucket.serve(batch(("a", "1", 6, nan, 1.0), ("a", "1", 7, nan, 0.0), ("a", "2", 8, nan, 0.0)))
    assert said(second) == [("1", "repeated", 1.0), ("1", "conflict", 0.0), ("2", "conflict", 0.0)]
    third = bucket.serve(batch(("a", "2", 9, 0.2, nan), ("a", "1", 9, 0.7, nan), ("b", "1", 9, 0.7, nan)))
    assert [s[:2] for s in said(third)] == [("1", "repeated"), ("1", "forecast"), ("2", "forecast"), ("2", "learnt")]
    assert third["forecast"][0] == first["forecast"][0]  # the stored one
    fourth = bucket.serve(batch(("a", "1", 10, 0.6, nan)))
    assert said(fourth)[0][1] == "conflict" and fourth["score"] == [0.6] and fourth["forecast"] == first["forecast"][:1]


def test_events_expire_unlearnt_or_as_an_outcome() -> None:
    def served(**rules: Any) -> Bucket:
        bucket = bucket_of(expire=100, **rules)
        bucket.serve(batch(("a", "1", 0, 0.7, nan), ("a", "2", 50, 0.7, nan), ("a", "3", 1, nan, 1.0)))
        return bucket

    bucket = served()
    assert said(bucket.expired(99)) == []
    gone = said(bucket.expired(101))
    assert [s[:2] for s in gone] == [("1", "expired"), ("3", "unknown")] and isnan(gone[0][2])
    late = said(bucket.serve(batch(("a", "1", 120, nan, 1.0), ("a", "2", 120, nan, 1.0))))
    assert late == [("2", "learnt", 1.0)]  # 1 is forgotten, its outcome waits for a score until it expires
    assert said(bucket.expired(150)) == []
    bucket, bank = served(expire_as=0), Bank("tops")
    assert said(bucket.expired(101))[0] == ("1", "expired", 0.0)
    made = bank.fold(["a"] * 4, [0.7, 0.7, nan, 0.7], [nan, nan, 0, nan], of=[-1, -1, 0, -1])
    assert bucket.serve(batch(("a", "4", 120, 0.7, nan)))["forecast"] == [made.forecasts[3]]


def test_a_small_batch_writes_few_pages() -> None:
    bucket = bucket_of(pages=64)
    bucket.serve(batch(*((f"k{i % 300}", f"e{i}", i, 0.5, nan) for i in range(3000))))
    stores: Any = bucket._events._store, bucket._rows._store
    for store in stores:
        assert len(store.content) > 32
        store.written = 0
    bucket.serve(batch(("k7", "e7", 4000, nan, 1.0)))
    assert [store.written for store in stores] == [1, 1]


class Handle:
    """What a bucket asks of Spark beside its state."""

    def __init__(self) -> None:
        self.timers: list[int] = []

    def registerTimer(self, at: int) -> None:  # noqa: N802 - Spark's name
        self.timers.append(at)


def frame(*operations: tuple[str, str, int, float, float], reason: str | None = None) -> Any:
    made = pd.DataFrame(batch(*operations)).rename(columns={"time": "micros"})
    return made.assign(time=pd.to_datetime(made["micros"], unit="us"), reason=reason)


def test_frames_of_pandas_in_and_out() -> None:
    bucket, handle = bucket_of(expire=16_000_000), Handle()
    good, bad = (
        frame(("a", "1", 0, 0.7, nan)),
        frame(("a", "2", 0, 1.7, nan), reason="score must be in [0, 1], got 1.7"),
    )
    with pytest.raises(InvalidInput, match=r"score must be in \[0, 1\], got 1\.7 - at key 'a', id '2'"):
        list(serve(bucket, handle, [good, bad], stop=True))
    side, forecasts = serve(bucket, handle, [good, bad], stop=False)
    assert side["status"].tolist() == ["bad"] and side["reason"].tolist() == bad["reason"].tolist()
    assert forecasts["status"].tolist() == ["forecast"] and list(side.columns) == list(forecasts.columns)
    assert handle.timers == [17_001]  # milliseconds: the first tick after the event has expired
    assert [row["status"] for row in next(told(bucket.expired(17_001_000))).to_dict("records")] == ["expired"]
    assert list(told(bucket.expired(17_001_000))) == [] == list(serve(bucket, handle, [bad], stop=False))[1:]


def test_a_state_is_where_it_starts_from() -> None:
    bank = Bank("tops")
    bank.run(["a", "b"] * 40, [0.6, 0.3] * 40, [1, 0] * 40)
    bucket, rows = bucket_of(), bank.rows(["a", "b"])
    rows[:, bank.method.width + LAST] = 0.0
    start(bucket, pd.DataFrame({"key": ["a", "b"], "row": to_bytes(rows), "key_hash": [_hash("a"), _hash("b")]}))
    start(bucket, pd.DataFrame({"key": [], "row": [], "key_hash": []}))
    assert bucket.serve(batch(("b", "1", 0, 0.4, nan)))["forecast"] == bank.predict_many(["b"], [0.4]).tolist()


def test_pages_in_a_state_of_spark() -> None:
    class State(dict[Any, Any]):
        getValue = dict.get  # noqa: N815 - Spark's names
        updateValue = dict.__setitem__  # noqa: N815
        removeKey = dict.pop  # noqa: N815

    pages = MapPages(State())
    pages.put(3, b"three")
    pages.put(1, b"one")
    assert pages.get(3) == b"three" and pages.get(2) is None and pages.pages() == [1, 3]
    pages.remove(3)
    assert pages.pages() == [1]
