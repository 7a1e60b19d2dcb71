"""What runs in Spark's workers, without Spark: packing by bucket, frames in and out, timers, pages in a state."""

from __future__ import annotations

from math import nan
from typing import Any

import numpy as np
import pytest
from stream_pages import Operation, batch, bucket_of, hash_of

from calibeat import Bank, InvalidInput
from calibeat.core.stats import LAST
from calibeat.spark.bucket import packed, unpacked
from calibeat.spark.state import to_bytes
from calibeat.spark.stream import AHEAD, MapPages, Pack, clock_of, framed, not_served, serve

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")


class Handle:
    """What a bucket asks of Spark beside its state."""

    def __init__(self) -> None:
        self.timers: list[int] = []

    def registerTimer(self, at: int) -> None:  # noqa: N802 - Spark's name
        self.timers.append(at)


def frame(*operations: Operation, reason: str | None = None) -> Any:
    """Packed rows, as Spark hands them over."""
    table = batch(*operations)
    return pd.DataFrame(
        {"content": [packed(table.append_column("reason", pa.array([reason] * len(table), pa.string())))]}
    )


def test_rows_are_packed_by_bucket() -> None:
    table = batch(*((f"k{i}", str(i), i, 0.5, nan) for i in range(1000)))
    table = table.append_column("reason", pa.nulls(1000, pa.string()))
    for size in (1000, 77):
        rows = pa.Table.from_batches(list(Pack(8)(iter(table.to_batches(max_chunksize=size)))))
        assert rows["bucket"].to_pylist() == list(range(8)) and rows.schema.field("bucket").type == pa.int32()
        parts = [unpacked(content) for content in rows["content"].to_pylist()]
        whole = pa.concat_tables(parts).sort_by("time").drop_columns("outcome")  # which is no number
        assert whole.equals(table.drop_columns("outcome"))
        for number, part in enumerate(parts):
            assert set(np.mod(part["key_hash"].to_numpy(), 8)) == {number}
    assert list(Pack(8)(iter([]))) == []


def test_frames_of_pandas_in_and_out() -> None:
    bucket, handle = bucket_of(expire=16_000_000), Handle()
    good, bad = (
        frame(("a", "1", 0, 0.7, nan)),
        frame(("a", "2", 0, 1.7, nan), reason="score must be in [0, 1], got 1.7"),
    )
    with pytest.raises(InvalidInput, match=r"score must be in \[0, 1\], got 1\.7 - at key 'a', id '2'"):
        list(serve(bucket, handle, [good, bad], 0, stop=True))
    side, forecasts = serve(bucket, handle, [good, bad], 0, stop=False)
    assert side["status"].tolist() == ["bad"] and side["reason"].tolist() == ["score must be in [0, 1], got 1.7"]
    assert forecasts["status"].tolist() == ["forecast"] and list(side.columns) == list(forecasts.columns)
    assert str(forecasts["time"].dtype.tz) == "UTC"  # whatever the zone of the session
    assert handle.timers == [17_001]  # milliseconds: the first tick after the event has expired
    assert [row["status"] for row in next(framed(bucket.aged(17_001_000))).to_dict("records")] == ["expired"]
    assert list(framed(bucket.aged(17_001_000))) == [] == list(serve(bucket, handle, [bad], 0, stop=False))[1:]


def test_late_rows_are_told_and_not_served() -> None:
    bucket, handle = bucket_of(expire=16_000_000), Handle()
    told = list(serve(bucket, handle, [frame(("a", "1", 5, 0.7, nan), ("a", "2", 9, 0.7, nan))], 7, stop=True))
    assert [(row["id"].tolist(), row["status"].tolist()) for row in told] == [(["1"], ["late"]), (["2"], ["forecast"])]
    (row,) = serve(bucket, handle, [frame(("a", "3", 5, 0.7, nan))], 7, stop=True)
    assert row["status"].tolist() == ["late"]


def test_a_row_from_the_future_is_put_aside_and_stops_nobody() -> None:
    bucket, handle = bucket_of(expire=16_000_000), Handle()
    reason = f"{AHEAD}, got 2031-01-01 00:00:00"
    rows = [frame(("a", "1", 5, 0.7, nan)), frame(("a", "1", 10**15, nan, 1.0), reason=reason)]
    side, forecasts = serve(bucket, handle, rows, 0, stop=True)
    assert side["status"].tolist() == ["bad"] and side["reason"].tolist() == [reason]
    assert forecasts["id"].tolist() == ["1"] and forecasts["status"].tolist() == ["forecast"]


def test_few_rows_move_the_clock_by_a_bound() -> None:
    def clock(times: list[int], ahead: int | None = 50, reasons: Any = None) -> int:
        columns = {"time": np.array(times, dtype=np.int64), "reason": reasons or [None] * len(times)}
        return clock_of(pa.table(columns, schema=pa.schema([("time", pa.int64()), ("reason", pa.string())])), ahead)

    assert clock([3, 1, 2]) == 3 and clock([1000, 2]) == 52 and clock([2, 1000], None) == 1000
    assert clock([1000]) == 1000  # nothing to compare it with but the clock of the cluster, which has let it pass
    assert clock([1] * 198 + [900, 1000]) == 51 and clock([1] * 197 + [900, 900, 1000]) == 950
    assert clock([5, 1000], reasons=[None, "bad"]) == 5 and clock([1000], reasons=["bad"]) == 0 == clock([])
    table = batch(*((f"k{i}", str(i), i, 0.5, nan) for i in range(10)), ("k", "x", 10**9, 0.5, nan))
    table = table.append_column("reason", pa.nulls(11, pa.string()))
    packed_rows = pa.Table.from_batches(list(Pack(4, 100)(iter(table.to_batches()))))
    assert set(packed_rows["clock"].cast(pa.int64()).to_pylist()) == {109}


def test_rows_that_are_not_served_are_told_with_their_share() -> None:
    def said(rows: int, **out: int) -> str:
        return not_served({"calibeat_in": {"rows": rows}, "calibeat_out": {"late": 0, "bad": 0, **out}})

    assert said(2000, late=100, bad=100) == "" == said(0) == not_served({}) == not_served({"calibeat_in": {"rows": 1}})
    both = said(2000, late=101, bad=1000)
    assert both.startswith("101 of 2,000 rows (5 %) were late: older than the watermark")
    assert "; 1,000 of 2,000 rows (50 %) were bad: not served" in both


def test_timers_fire_when_held_outcomes_are_mature() -> None:
    bucket, handle = bucket_of(mature=64_000_000), Handle()
    rows = frame(("a", "1", 500, 0.7, nan), ("a", "1", 600, nan, 1.0), ("a", "2", 700, 0.7, nan))
    statuses = [status for told in serve(bucket, handle, [rows], 0, stop=True) for status in told["status"]]
    assert statuses == ["forecast", "held", "forecast"]
    assert handle.timers == [65_000]  # the first full second at which it is 64 seconds old
    assert next(framed(bucket.aged(65_000_000)))["status"].tolist() == ["learnt"]


def test_a_state_is_where_it_starts_from() -> None:
    bank = Bank("tops")
    bank.run(["a", "b"] * 40, [0.6, 0.3] * 40, [1, 0] * 40)
    bucket, rows = bucket_of(), bank.rows(["a", "b"])
    rows[:, bank.method.width + LAST] = 0.0
    bucket.start(pd.DataFrame({"key": ["a", "b"], "row": to_bytes(rows), "key_hash": [hash_of("a"), hash_of("b")]}))
    bucket.start(pd.DataFrame({"key": [], "row": [], "key_hash": []}))
    told, _ = bucket.serve(batch(("b", "1", 0, 0.4, nan)))
    assert told["forecast"].to_pylist() == bank.predict_many(["b"], [0.4]).tolist()


def test_pages_in_a_state_of_spark() -> None:
    class State(dict[Any, Any]):
        getValue = dict.get  # noqa: N815 - Spark's names
        updateValue = dict.__setitem__  # noqa: N815
        removeKey = dict.pop  # noqa: N815

    pages = MapPages(State())
    pages[3], pages[1] = b"three", b"one"
    assert pages.get(3) == b"three" and pages.get(2) is None and list(pages) == [1, 3]
    assert pages.pop(3, None) == b"three" and pages.pop(3, None) is None
    assert list(pages) == [1] and len(pages) == 1
