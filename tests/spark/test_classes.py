"""Many classes on Spark: for each method and K the bits of a `MultiBank`, in a partition, a bucket and a session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import multi_streams
import numpy as np
import pytest

from calibeat import InvalidInput, Monitor, MultiBank
from calibeat.core.stats import LAST, STATS
from calibeat.hosts.bank import rows_out
from calibeat.spark import bad_rows, calibrate, from_bank, to_bank
from calibeat.spark import frame as partitions
from calibeat.spark.columns import REASON, Many, Roles, lists_of
from calibeat.spark.frame import Partition
from calibeat.spark.state import bank_of, described, door_of, new_bank, to_bytes

pa = pytest.importorskip("pyarrow")

CASES = [(method, K) for method in ("multi", "ots", "raw") for K in (2, 3, 12)]
COLUMNS: dict[str, Any] = {"key": "key", "score": "p", "outcome": "label", "order": "number"}


def names(K: int) -> list[str]:
    return [f"class-{k}" for k in range(K)]


def log(K: int, n: int = 240, keys: int = 5) -> tuple[Any, Any, Any]:
    """Keys, scores and labels; some labels are not known."""
    rng = np.random.default_rng(K)
    scores, columns = multi_streams.drifting(n, K)
    labels = [names(K)[k] if rng.random() < 0.9 else None for k in columns.tolist()]
    return rng.integers(0, keys, n), scores, labels


def final(bank: Any) -> dict[Any, bytes]:
    keys, rows = rows_out(bank)
    return dict(zip(keys.tolist(), to_bytes(rows), strict=True))


@pytest.mark.parametrize(("method", "K"), CASES)
def test_a_partition_has_the_bits_of_a_multi_bank(method: str, K: int, monkeypatch: pytest.MonkeyPatch) -> None:
    keys, scores, labels = log(K)
    bank = MultiBank(names(K), method, threads=1, monitor=Monitor(arl=1e5, warm=0))
    wanted = bank.run(keys, scores, labels)
    order = np.argsort(keys, kind="stable")
    columns = {"key": keys, "number": np.arange(len(keys)), "p": lists_of(scores), "label": labels}
    rows = pa.table({**columns, REASON: pa.nulls(len(keys), pa.string())}).take(pa.array(order))
    roles = Roles("key", "p", "label", ("number",), many=Many.of(door_of(bank)))
    monkeypatch.setattr(partitions, "PIECE", 100)
    made = list(Partition(described(bank), roles, tuple(columns))(iter(rows.to_batches(max_chunksize=30))))
    table = pa.Table.from_batches(made)
    is_row = np.asarray(table["__calibeat_row"].is_valid())
    forecasts = table.filter(pa.array(~is_row)).sort_by("number")
    assert forecasts["forecast"].to_pylist() == wanted.tolist()
    assert forecasts["judged"].to_pylist() == [label is not None for label in labels]
    states = table.filter(pa.array(is_row))
    assert dict(zip(states["key"].to_pylist(), states["__calibeat_row"].to_pylist(), strict=True)) == final(bank)


def test_a_description_says_the_classes() -> None:
    for bank in (MultiBank(3), MultiBank(["a", "b"], "ots", logits=True), MultiBank([1.5, 2], monitor=Monitor())):
        again = bank_of(described(bank))
        assert described(again) == described(bank) and isinstance(again, MultiBank) and again.classes == bank.classes
    with pytest.raises(InvalidInput, match="logits must come with classes"):
        new_bank("auto", logits=True)
    with pytest.raises(InvalidInput, match="classes must be all strings or all numbers"):
        Many.of(door_of(MultiBank(["a", 1])))


def in_spark(spark: Any, keys: Any, scores: Any, labels: Any) -> Any:
    columns = {"key": keys, "number": np.arange(len(keys)), "p": lists_of(scores), "label": labels}
    return spark.createDataFrame(pa.table(columns))


def test_a_session_has_them_too_and_the_state_travels(spark: Any, tmp_path: Path) -> None:
    keys, scores, labels = log(3)
    bank = MultiBank(names(3))
    wanted = bank.run(keys, scores, labels)
    frame = in_spark(spark, keys, scores, labels)
    first = calibrate(frame.where("number < 150"), **COLUMNS, classes=names(3), path=tmp_path / "run")
    to_bank(first.state).save(tmp_path / "half.bank")
    later = frame.where("number >= 150")
    for state in (tmp_path / "run", tmp_path / "half.bank"):
        second = calibrate(later, **COLUMNS, classes=names(3), state=state)
        rows = [*first.forecasts.collect(), *second.forecasts.collect()]
        assert [row["forecast"] for row in sorted(rows, key=lambda row: row["number"])] == wanted.tolist()
        found = to_bank(second.state)
        assert isinstance(found, MultiBank) and found.classes == bank.classes and final(found) == final(bank)
    back = to_bank(from_bank(bank, spark))
    rows_of_both = [b.rows(sorted(b)) for b in (back, bank)]
    for rows in rows_of_both:
        rows[:, -STATS + LAST] = 0.0
    assert np.array_equal(*rows_of_both)


def test_labels_of_every_kind_and_logits(spark: Any) -> None:
    keys, scores, columns = (column[:60] for column in (log(3)[0], log(3)[1], multi_streams.drifting(240, 3)[1]))
    logits = np.log(scores) + 1.0
    # Whole numbers are columns; decimals are read by Spark; booleans are classes by themselves.
    for classes, labels, kind in (
        (3, columns.tolist(), "bigint"),
        ([10, 20, 30], [10 * (k + 1) for k in columns.tolist()], "decimal(4, 1)"),
        ([0.5, 1, 2], [(0.5, 1, 2)[k] for k in columns.tolist()], "double"),
    ):
        wanted = MultiBank(classes, "ots", logits=True).run(keys, logits, labels)
        frame = in_spark(spark, keys, logits, labels).selectExpr("*", f"cast(label as {kind}) l")
        frame = frame.selectExpr("key", "number", "cast(p as array<double>) p", "l label")
        made = calibrate(frame, **COLUMNS, method="ots", classes=classes, logits=True).forecasts
        assert [row["forecast"] for row in made.orderBy("number").collect()] == wanted.tolist()


def test_labels_are_columns_and_columns_labels(spark: Any) -> None:
    from pyspark.sql.functions import col

    for many, kind, given, places, labels in (
        (Many((0, 1, 2)), "double", [2.0, 0.0, 3.0, 0.5, None], [2.0, 0.0, -1.0, -1.0, None], [2, 0, None, None, None]),
        (Many((10, 20)), "double", [20.0, 15.0, None], [1.0, -1.0, None], [20.0, None, None]),
        (Many(("a", "b")), "string", ["b", "c", None], [1.0, -1.0, None], ["b", None, None]),
    ):
        frame = spark.createDataFrame([(value,) for value in given], f"label {kind}").select(
            many.position(col("label")).alias("place")
        )
        rows = frame.select("place", many.label_at(col("place")).alias("label")).collect()
        assert [row["place"] for row in rows] == places and [row["label"] for row in rows] == labels


def test_bad_rows_and_columns_of_many_classes(spark: Any) -> None:
    good = [0.2, 0.3, 0.5]
    rows: list[Any] = [
        (0, "a", good, "cat"),
        (1, "a", [0.2, 0.8], "cat"),
        (2, "a", [0.2, None, 0.8], "cat"),
        (3, "a", [0.2, float("nan"), 0.8], "cat"),
        (4, "a", [-0.2, 0.4, 0.8], "cat"),
        (5, "a", [20.0, 30.0, 50.0], "cat"),
        (6, "a", good, "dgo"),
        (7, "a", None, "cat"),
        (8, "a", good, None),
    ]
    frame = spark.createDataFrame(rows, "number int, key string, p array<double>, label string")
    classes = ["cat", "dog", "bird"]
    found = bad_rows(frame, **COLUMNS, classes=classes).orderBy("number").collect()
    assert [(row["number"], row["reason"]) for row in found] == [
        (1, "scores must be 3 numbers, one for each class, got [0.2, 0.8]"),
        (2, "score must be a finite number, got [0.2, null, 0.8]"),
        (3, "score must be a finite number, got [0.2, NaN, 0.8]"),
        (4, "score must be 0 or more, got [-0.2, 0.4, 0.8]"),
        (5, "scores of an event must sum to 1 within 1e-06, got [20.0, 30.0, 50.0]"),
        (6, "label must be one of the 3 classes 'cat', 'dog', 'bird', or null where it is not known, got dgo"),
        (7, "scores must be 3 numbers, one for each class, got nothing"),
    ]
    kept = calibrate(frame, **COLUMNS, classes=classes, bad="skip").forecasts.orderBy("number").collect()
    assert [(row["number"], row["judged"]) for row in kept] == [(0, True), (8, False)]

    def refused(sentence: str, **changed: Any) -> None:
        with pytest.raises(InvalidInput, match=sentence):
            calibrate(frame, **{**COLUMNS, "classes": classes, **changed})

    refused("score column must hold numbers, got array of double - in column 'p'; classes= says", classes=None)
    refused("score column must hold arrays of numbers, got integer - in column 'number'", score="number")
    refused("outcome column must hold numbers, as the classes are, got string", classes=3)
    refused("outcome column must hold strings, as the classes are, got integer", outcome="number")
    refused("method must be 'raw' or 'ots' or 'multi', got 'tops'", method="tops")
    refused("many classes have no groups", groups=["country"])
