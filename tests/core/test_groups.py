"""Groups: the kernels against golden numbers and the oracle, the bounded table, words, and what hosts need."""

from __future__ import annotations

import base64
import json
import math
import subprocess
import sys
from functools import cache
from typing import Any

import golden
import groups_oracle
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from group_streams import Host, delays, names_of, world

from calibeat import AUTO, TOPS, InvalidInput
from calibeat.core.auto import EPS
from calibeat.core.groups import EVICTED, GROUP_SUMS, GROUP_WEIGHT, GROUPED, OPENED, STILL, forget_touched
from calibeat.core.layout import THETA
from calibeat.core.receipt import EXPERT
from calibeat.hosts.groups import (
    AT_ONCE,
    CACHED,
    SLOT,
    Groups,
    GroupTable,
    WordMaker,
    canonical,
    e_bh,
    hash_word,
    plain_value,
)

CASES = (
    "batches_64_slots",
    "constant",
    "evicting",
    "k1_strings",
    "k2_late",
    "k2_types",
    "k4_crossings",
    "k4_random_late",
    "k7_no_pairs",
    "still_700_late",
    "tiny_table",
    "trickle",
)
WITH_VALUES = tuple(name for name in CASES if f"{name}/values" in golden.groups())


@cache
def case(name: str) -> dict[str, Any]:
    return {key.partition("/")[2]: value for key, value in golden.groups().items() if key.partition("/")[0] == name}


def host_of(g: dict[str, Any]) -> Host:
    names = names_of(g["words"].shape[1])
    crossings = [(names[a], names[b]) for a, b in g["crossings"]]
    return Host(Groups(names, crossings=crossings, cells=int(g["cells"]), seed=int(g["seed"])))


# ---- golden numbers --------------------------------------------------------------------------------------------------


def test_all_golden_cases_are_tested() -> None:
    assert {key.partition("/")[0] for key in golden.groups()} == set(CASES)
    assert len(WITH_VALUES) == 9 and sum("seg_word" in case(name) for name in CASES) == 6


@pytest.mark.parametrize("name", WITH_VALUES)
def test_golden_words(name: str) -> None:
    g = case(name)
    rows = [json.loads(values) for values in g["values"]]
    host = host_of(g)
    assert (host.words(rows).view(np.uint64).reshape(g["words"].shape) == g["words"]).all()
    by_event = np.array([host.table.maker.of_event(row) for row in rows])
    assert (by_event.view(np.uint64) == g["words"]).all()


@pytest.mark.parametrize("way", ["batch", "one by one"])
@pytest.mark.parametrize("name", CASES)
def test_golden_numbers(name: str, way: str) -> None:
    g = case(name)
    host, due = host_of(g), g.get("due")
    outcomes = g["outcome"].astype(float)
    n, C = len(outcomes), len(host.table.groups.columns)
    words = g["words"].view(np.int64).reshape(-1)
    if due is None:  # the last outcome is not learnt
        due = np.arange(1, n + 1)
        if way == "batch":
            outcomes[-1], due = np.nan, None
    if due is not None:
        due = np.where(np.asarray(due) >= n, n + 1, due)
    forecasts = (host.run if way == "batch" else host.one_by_one)(g["score"], outcomes, words, due)
    near = {"rtol": 0.0, "atol": 1e-9}
    np.testing.assert_allclose(forecasts, g["forecast"], rtol=0.0, atol=1e-12)
    if way == "one by one":
        experts, grouped = host.receipts[:, EXPERT], host.receipts[:, host.table.cells.receipt + GROUPED]
        np.testing.assert_allclose(experts, g["expert"], rtol=0.0, atol=1e-12)
        np.testing.assert_allclose(grouped, g["grouped"], rtol=0.0, atol=1e-12)
    at = host.numbers
    np.testing.assert_allclose(at[:GROUP_WEIGHT], g["temper"], **near)
    np.testing.assert_allclose(at[GROUP_WEIGHT:OPENED], g["weights"], **near)
    assert (at[OPENED], at[EVICTED]) == (g["opened"], g["evicted"])
    np.testing.assert_allclose(at[GROUP_SUMS:].reshape(2, 2, C), [g["A"], g["B"]], **near)
    if "seg_word" not in g:
        return
    table = host.table.segments(host.row, least=1)
    order = np.lexsort((table["word"], table["column"]))
    for ours, theirs in (
        ("column", "seg_column"),
        ("word", "seg_word"),
        ("events", "seg_events"),
        ("ones", "seg_ones"),
    ):
        assert (table[ours][order] == g[theirs]).all()
    means = np.stack([table["mean_score"], table["mean_expert"], table["mean_forecast"]], axis=1)
    np.testing.assert_allclose(means[order], g["seg_means"], **near)
    np.testing.assert_allclose(table["log_e"][order], g["seg_log_e"], **near)


# ---- the oracle on streams of our own --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attributes", "values", "cells", "late"),
    [
        (1, 5, 2**14, 0),
        (2, 30, 128, 0),
        (2, 30, 128, 40),
        (3, 8, 64, 300),
        (4, 12, 32, 0),
        (5, 3, 2**10, 10),
        (9, 4, 64, 25),
    ],
)
def test_as_the_oracle_says(attributes: int, values: int, cells: int, late: int) -> None:
    scores, outcomes, columns = world(700, attributes, values, seed=attributes + late)
    due = delays(700, late) if late else None
    host = Host(Groups(names_of(attributes), cells=cells, seed=5))
    words = host.words(columns)
    unsigned = words.view(np.uint64).reshape(700, attributes)
    expected, _, _, oracle = groups_oracle.run(scores, unsigned, outcomes, due, cells=cells, seed=5)
    assert unsigned[3].tolist() == oracle.words(columns[3].tolist())
    learnt = np.where(np.arange(700) < 699, outcomes, np.nan)  # the oracle leaves the last one out
    forecasts = host.run(
        scores, learnt if due is None else outcomes, words, None if due is None else np.where(due >= 700, 701, due)
    )
    np.testing.assert_allclose(forecasts, expected, rtol=0.0, atol=1e-10)
    assert (host.numbers[OPENED], host.numbers[EVICTED]) == (oracle.opened, oracle.evicted)
    assert oracle.evicted > 0 or cells >= 2**10
    table = host.table.segments(host.row, least=1)
    found = {(k, int(w)): log_e for k, w, log_e in zip(table["column"], table["word"], table["log_e"], strict=True)}
    assert found == {row[:2]: pytest.approx(row[-1], abs=1e-9) for row in oracle.segments()}


# ---- what it is beside a stream without groups -----------------------------------------------------------------------


def test_without_attributes_that_matter_the_row_of_the_method_is_nearly_autos() -> None:
    """The lanes learn as without groups: bit for bit."""
    from calibeat import Calibrator

    scores, outcomes, columns = world(300, 1, 3)
    host, cal = Host(Groups(["a"], seed=1)), Calibrator()
    host.run(scores, outcomes, host.words(columns))
    cal.run(scores, outcomes)
    lanes = slice(THETA, AUTO.spec.cells)
    assert (host.row[lanes] == np.asarray(cal.row)[lanes]).all()


def test_until_the_first_eviction_forecasts_do_not_depend_on_the_seed() -> None:
    scores, outcomes, columns = world(300, 2, 9)
    hosts = [Host(Groups(names_of(2), seed=seed)) for seed in (1, 2)]
    first, second = (host.run(scores, outcomes, host.words(columns)) for host in hosts)
    assert hosts[0].numbers[EVICTED] == 0
    np.testing.assert_allclose(first, second, rtol=0.0, atol=1e-15)


# ---- what is proved --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opponent", ["constant", "alternating", "against", "random"])
def test_groups_cost_little_whoever_chooses(opponent: str) -> None:
    """Theorem 1: loss(g) <= loss(m) + ln 2 + (1/4) ln T + ln Gamma(3/4), and likewise against the lane `still`."""
    rng = np.random.default_rng(8)
    host = Host(Groups(names_of(2), cells=64, seed=1))
    cells, receipt = host.table.cells, np.zeros(host.table.receipt_width)
    loss = dict.fromkeys(("m", "still", "g"), 0.0)
    T = 1500
    for t in range(T):
        words = np.array(host.table.maker.of_event((t % 7, int(rng.integers(40)))))
        p = host.predict(0.7, 0.0, words, receipt)
        y = {"constant": t < 700, "alternating": t % 2, "against": p < 0.5, "random": rng.random() < 0.3}[opponent]
        said = {"m": receipt[EXPERT], "still": receipt[cells.receipt + STILL], "g": receipt[cells.receipt + GROUPED]}
        for name, e in said.items():
            assert EPS <= e <= 1.0 - EPS
            loss[name] -= math.log(e if y else 1.0 - e)
        host.update(float(t), float(y), words, receipt)
    assert loss["g"] <= loss["m"] + math.log(2) + math.log(T) / 4 + math.lgamma(3 / 4)
    assert loss["g"] <= loss["still"] + math.log(3) + math.log(T) / 3 + math.lgamma(2 / 3)


def test_a_segment_that_is_calibrated_is_not_flagged_and_one_that_is_not_is() -> None:
    rng = np.random.default_rng(4)
    n = 6000
    scores, kinds = rng.uniform(0.2, 0.8, n), rng.integers(0, 20, n)
    outcomes = (rng.random(n) < scores).astype(float)
    host = Host(Groups(["kind"], seed=1))
    host.run(scores, outcomes, host.words(kinds[:, None]))
    assert not host.table.segments(host.row)["flagged"].any()
    # The bet is against the forecast as issued: it must not have learnt the offset yet.
    jumped = np.where(kinds == 3, (rng.random(n) < 0.95 * (scores > 0.0)), rng.random(n) < scores).astype(float)
    host.run(scores, jumped, host.words(kinds[:, None]))
    worst = host.table.segments(host.row)
    assert worst["word"][0] == host.table.maker.of_value(0, 3) and worst["offset"][0] > 0.3


def test_e_bh_takes_the_largest_k() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        log_e = rng.normal(2.0, 3.0, rng.integers(1, 40))
        M, ranked = len(log_e), np.sort(np.exp(log_e))[::-1]
        k = max((k for k in range(1, M + 1) if ranked[k - 1] >= M / (0.05 * k)), default=0)
        assert e_bh(log_e, 0.05).sum() == k and (k == 0 or np.exp(log_e[e_bh(log_e, 0.05)]).min() >= ranked[k - 1])
    assert len(e_bh(np.empty(0), 0.05)) == 0


# ---- the table is bounded --------------------------------------------------------------------------------------------


def test_the_table_is_bounded_whatever_the_values_are() -> None:
    n = 40_000
    scores, outcomes, _ = world(n, 1, 2)
    host = Host(Groups(["id", "kind"], cells=256, seed=3))
    values = np.stack([np.arange(n), np.arange(n) % 3], axis=1)
    arrays = [array.nbytes for array in host.table.cells if isinstance(array, np.ndarray)]
    host.run(scores, outcomes, host.words(values))
    assert [array.nbytes for array in host.table.cells if isinstance(array, np.ndarray)] == arrays
    assert sum(arrays) < 256 * 300 + 32 * 24 * 8 + 10_000
    opened, evicted = host.numbers[OPENED], host.numbers[EVICTED]
    assert opened - evicted == len(host.table.occupied()) == 256 and evicted > n
    assert np.isfinite(host.row).all() and (host.numbers[GROUP_SUMS:] > -1e-6).all()
    counts = host.table.segments(host.row, least=1000)  # what matters stays
    assert set(counts["attribute"]) == {"kind"} and len(counts["word"]) == 3
    assert host.table.is_crowded(host.row) and "probably an id" in host.table.warning(host.row)


def test_a_fresh_table_takes_no_memory() -> None:
    program = """
import os, sys
from calibeat import AUTO
from calibeat.hosts.groups import Groups, GroupTable
def used():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
GroupTable(Groups(["a", "b"]), AUTO)
before = used()
tables = [GroupTable(Groups(["a", "b"]), AUTO) for _ in range(50)]
print((used() - before) / 50)
"""
    if not sys.platform.startswith("linux"):
        pytest.skip("memory is read from /proc")
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert float(found.stdout) < 1_000_000  # bytes; the cells alone take 3.1 MB when all are open


def test_touched_slots_are_all_that_a_store_has_to_keep() -> None:
    scores, outcomes, columns = world(600, 2, 12)
    host = Host(Groups(names_of(2), cells=64, seed=2))
    stored = GroupTable(host.table.groups, AUTO)
    words = host.words(columns)
    for i in range(0, 600, 50):
        held = host.table.read_slots(np.arange(64))
        host.run(scores[i : i + 50], outcomes[i : i + 50], words[2 * i : 2 * i + 100])
        slots = host.table.touched().copy()
        assert set(slots) == set(np.flatnonzero(host.table.read_slots(np.arange(64)) != held))
        forget_touched(host.table.cells)
        stored.write_slots(slots, host.table.read_slots(slots))
    assert (stored.read_slots(np.arange(64)) == host.table.read_slots(np.arange(64))).all()


# ---- snapshots -------------------------------------------------------------------------------------------------------


def snapshot() -> tuple[Host, dict[str, Any], Any]:
    scores, outcomes, columns = world(400, 2, 12)
    host = Host(Groups(names_of(2), cells=64, names=True))
    words = host.words(columns)
    host.run(scores, outcomes, words)
    return host, json.loads(json.dumps(host.table.to_dict())), (scores, outcomes, words)


def test_a_snapshot_goes_on_with_the_same_bits() -> None:
    host, data, stream = snapshot()
    other = Host(Groups(["x"]))
    other.table, other.row, other.events = GroupTable.from_dict(data, AUTO, host.row.tolist()), host.row.copy(), 400
    assert (other.run(*stream) == host.run(*stream)).all() and (other.row == host.row).all()
    assert other.table.to_dict() == host.table.to_dict()
    assert other.table.maker.book == host.table.maker.book
    assert (other.words(np.array([[1, 2]])) == host.words(np.array([[1, 2]]))).all()


def damaged() -> dict[str, Any]:
    """Name -> what is done to a sound snapshot."""

    def put(name: str, value: Any) -> Any:
        return lambda data: data.__setitem__(name, value)

    def hold(field: str, at: Any, value: Any) -> Any:
        def damage(data: dict[str, Any]) -> None:
            held = np.frombuffer(base64.b64decode(data["held"]), dtype=SLOT).copy()
            held[field][at] = value
            data["held"] = base64.b64encode(held.tobytes()).decode()

        return damage

    return {
        "no seed": put("seed", None),
        "seed no word": put("seed", "12"),
        "attributes": put("attributes", ["a0", "a0"]),
        "cells": put("cells", 63),
        "slots": put("slots", None),
        "fewer slots": lambda data: data["slots"].pop(),
        "slot too large": lambda data: data["slots"].__setitem__(0, 64),
        "slot twice": lambda data: data["slots"].__setitem__(0, data["slots"][1]),
        "held is none": put("held", None),
        "held is no base64": put("held", "#"),
        "held is cut": lambda data: data.__setitem__("held", data["held"][:-4]),
        "one cell less": lambda data: (data["slots"].pop(), data.__setitem__("held", data["held"][:-256])),
        "free slot": hold("word", 0, 0),
        "other word": hold("word", 0, 7),
        "other parents": hold("first", slice(None), 7),
        "infinite": hold("numbers", (0, 3), math.inf),
        "column": hold("numbers", (0, 12), 3.0),
        "half a column": hold("numbers", (0, 12), 0.5),
        "later than now": hold("numbers", (0, 13), 401.0),
        "more ones than events": hold("numbers", (0, 15), 500.0),
        "negative information": hold("numbers", (0, 0), -1.0),
        "impossible b": hold("numbers", (0, 9), 2.0),
        "book is none": put("book", None),
        "book": put("book", [["0123456789abcdef"]]),
        "word in the book": put("book", [["zz", 1]]),
        "value in the book": put("book", [["0123456789abcdef", 0.5]]),
        "long book": put("book", [[f"{i:016x}", i] for i in range(65)]),
    }


@pytest.mark.parametrize("name", damaged())
def test_a_damaged_snapshot_is_refused(name: str) -> None:
    host, data, _ = snapshot()
    damaged()[name](data)
    with pytest.raises(InvalidInput):
        GroupTable.from_dict(data, AUTO, host.row.tolist())


# ---- words -----------------------------------------------------------------------------------------------------------


def test_values_are_told_apart_by_kind() -> None:
    maker = WordMaker(Groups(["a", "b"]), 7)
    kinds = [None, False, True, 0, 1, -1, "", "0", "1", "True", "None", "é", "e\u0301", 2**63 - 1, -(2**63)]
    words = [maker.of_value(0, value) for value in kinds]
    assert len(set(words)) == len(kinds) and maker.of_value(1, "1") not in words
    same = [(1, 1.0), (1, np.int8(1)), (1, np.float32(1)), (True, np.True_), ("é", np.str_("é")), (0, -0.0)]
    missing = [math.nan, np.nan, np.float32("nan"), pd.NA, pd.NaT, np.datetime64("NaT"), np.timedelta64("NaT")]
    for one, other in [*same, *((None, value) for value in missing)]:
        assert maker.of_value(0, one) == maker.of_value(0, other)
        assert maker.of_event((one, 0)) == maker.of_event((other, 0)) == maker.of_event({"b": 0, "a": other})
    assert words == [groups_oracle.word(7, 0, value) for value in kinds]
    assert maker.of_value(0, 1) != WordMaker(Groups(["a", "b"]), 8).of_value(0, 1)
    assert canonical("a", 1) == b"\2\1\0\0\0\0\0\0\0" and hash_word(bytes(8), 0, b"\0") != 0


def test_the_cache_of_words_is_bounded() -> None:
    maker = WordMaker(Groups(["a"]), 7)
    for value in range(CACHED + 10):
        maker.of_event((value,))
    assert len(maker._cached[0]) == 10
    assert maker.of_event((True,)) != maker.of_event((1,)) != maker.of_event(("1",))


def columns_of_all_kinds() -> dict[str, list[Any]]:
    return {
        "text": ["fr", "de", "fr", "é", "", "fr"],
        "number": [3, 1, 3, 2**40, -5, 3],
        "flag": [True, False, True, True, False, True],
        "holes": ["x", None, "y", "x", None, "x"],
        "gaps": [1.0, math.nan, 2.0, 1.0, math.nan, 0.0],
    }


def test_all_kinds_of_columns_give_the_same_words() -> None:
    columns = columns_of_all_kinds()
    maker = WordMaker(Groups(list(columns)), 7)
    expected = np.array([maker.of_event(row) for row in zip(*columns.values(), strict=True)]).reshape(-1)
    frame = pd.DataFrame(columns)
    categories = frame.assign(text=frame["text"].astype("category"), holes=frame["holes"].astype("category"))
    given = {
        "lists": columns,
        "tuples": {name: tuple(column) for name, column in columns.items()},
        "arrays": {name: np.array(column, dtype=object) for name, column in columns.items()},
        "typed arrays": columns | {name: np.array(columns[name]) for name in ("text", "number", "flag", "gaps")},
        "series of pandas": {name: frame[name] for name in frame},
        "series of polars": {name: pl.Series(column) for name, column in columns.items()},
        "arrays of Arrow": {name: pa.array(column) for name, column in columns.items()},
        "chunks of Arrow": {name: pa.chunked_array([column[:2], column[2:]]) for name, column in columns.items()},
        "pandas": frame,
        "pandas, other order": frame[list(columns)[::-1]],
        "pandas, its own types": frame.convert_dtypes(),
        "pandas, categories": categories,
        "polars": pl.DataFrame(columns),
        "polars, categories": pl.DataFrame(columns).with_columns(pl.col("text").cast(pl.Categorical)),
        "Arrow": pa.table(columns),
        "Arrow, dictionary": pa.table(columns | {"text": pa.array(columns["text"]).dictionary_encode()}),
        "rows": list(zip(*columns.values(), strict=True)),
        "rows by name": [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)],
        "array of two dimensions": np.array(list(zip(*columns.values(), strict=True)), dtype=object),
    }
    for name, kind in given.items():
        assert (maker.of_events(kind, 6) == expected).all(), name
    masked = columns | {"number": np.ma.array(columns["number"], mask=[0, 1, 0, 0, 0, 0])}
    assert (maker.of_events(masked, 6).reshape(6, 5)[1, 1]) == maker.of_event(("de", None, False, None, math.nan))[1]
    assert len(maker.of_events({name: [] for name in columns}, 0)) == 0


def test_whole_numbers_far_apart_and_of_every_type() -> None:
    maker = WordMaker(Groups(["a"]), 7)
    for kind in (np.int8, np.uint8, np.int32, np.int64, np.uint64, np.float16, np.float32, np.float64):
        values = np.array([3, 5, 3, 0], dtype=kind)
        assert maker.of_events(values[:, None], 4).tolist() == [maker.of_event((int(v),))[0] for v in values]
    far = np.array([-(2**62), 2**62, 7, 7])
    assert maker.of_events(far[:, None], 4).tolist() == [maker.of_event((v,))[0] for v in far.tolist()]


def test_long_columns_are_read_in_pieces() -> None:
    n = AT_ONCE + 3
    maker = WordMaker(Groups(["a"], names=True, cells=8), 7)
    numbers = np.arange(n) % 5
    expected = maker.of_events({"a": numbers}, n)
    texts = numbers.astype(str)
    assert (maker.of_events({"a": numbers.tolist()}, n) == expected).all()
    assert maker.of_events({"a": texts}, n)[-1] == maker.of_event((str(numbers[-1]),))[0]
    for bad in (np.where(np.arange(n) < n - 1, 1.0, 0.5), [*texts[:-1], 0.5]):
        with pytest.raises(InvalidInput, match=f"a must .* got 0.5; .* - at row {n - 1}"):
            maker.of_events({"a": bad}, n)


BAD_VALUES: list[tuple[Any, str]] = [
    (37.5, r"age must be a string, a whole number, a bool or None, got 37\.5; cut numbers into bands first"),
    (np.float32(0.5), r"got 0\.5; cut"),
    (math.inf, "got inf; cut"),
    (1e300, "age must fit into 64 bits with a sign"),
    (2**63, "age must fit into 64 bits with a sign, got 9223372036854775808"),
    (b"fr", r"age must be a string, a whole number, a bool or None, got bytes b'fr'"),
    ([1], r"got list \[1\]"),
    ({}, r"got dict \{\}"),
    (np.datetime64("2024-01-01"), "got datetime64"),
    (np.timedelta64(3, "D"), "got timedelta64"),
    ("\ud800", "age must be text that can be written as UTF-8"),
    (1j, "got complex"),
]


@pytest.mark.parametrize(("value", "sentence"), BAD_VALUES)
def test_bad_values_are_refused_with_a_sentence(value: Any, sentence: str) -> None:
    maker = WordMaker(Groups(["age", "x"]), 7)
    with pytest.raises(InvalidInput, match=sentence):
        maker.of_event((value, 1))
    column = np.empty(3, dtype=object)
    column[:] = [1, "a", value]
    for columns in (
        {"age": list(column), "x": [1, 2, 3]},
        {"age": column, "x": [1, 2, 3]},
        [(1, 1), ("a", 2), (value, 3)],
    ):
        with pytest.raises(InvalidInput, match=f"{sentence}.* - at row 2"):
            maker.of_events(columns, 3)


def test_bad_numbers_in_arrays_are_refused_with_their_row() -> None:
    maker = WordMaker(Groups(["age"]), 7)
    for column in ([1.0, 2.5], [1.0, math.inf], [1.0, 1e30], np.array([1, 2**63 + 1], dtype=np.uint64)):
        with pytest.raises(InvalidInput, match=r"age must .* - at row 1"):
            maker.of_events(np.asarray(column)[:, None], 2)
    with pytest.raises(InvalidInput, match="age must be a string"):
        maker.of_events({"age": np.array(["2024-01-01"], dtype="datetime64[D]")}, 1)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"country": "fr"}, "groups must be country, device, got none for 'device'"),
        ({"country": "fr", "device": 1, "hour": 3}, "groups must be country, device, got 'hour' too"),
        (("fr", 1, 2), "groups must be country, device, in this order, got 3 values"),
        ("fr", "groups must be a dict or a sequence of country, device, got 'fr'"),
        (None, "got None"),
    ],
)
def test_bad_names_are_refused_with_a_sentence(values: Any, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        WordMaker(Groups(["country", "device"]), 7).of_event(values)


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"country": ["fr"]}, "got none for 'device'"),
        (pd.DataFrame({"country": ["fr"], "device": [1], "hour": [3]}), "got 'hour' too"),
        ({"country": ["fr"], "device": [1, 2]}, "device must have a value for each of the 1 scores, got 2"),
        ({"country": "f", "device": [1]}, "country must be a one-dimensional column, got str"),
        ({"country": 3, "device": [1]}, "country must be a one-dimensional column, got int"),
        ({"country": np.zeros((1, 1)), "device": [1]}, "country must be a one-dimensional column"),
        (np.zeros((1, 3)), r"groups must be an array of shape \(events, 2\) or columns by name, got \(1, 3\)"),
        (np.zeros(2), r"got \(2,\)"),
        ([("fr",)], "in this order, got 1 values - at row 0"),
        (7, "groups must be a dict of columns, a data frame or a 2-d array of country, device, got int"),
        (pd.Series([1]), "got Series"),
    ],
)
def test_bad_columns_are_refused_with_a_sentence(columns: Any, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        WordMaker(Groups(["country", "device"]), 7).of_events(columns, 1)


def test_further_names_can_be_ignored() -> None:
    maker = WordMaker(Groups(["country"], extra="ignore"), 7)
    assert maker.of_event({"country": "fr", "hour": 3}) == maker.of_event(("fr",))
    assert maker.of_events(pl.DataFrame({"hour": [3], "country": ["fr"]}), 1).tolist() == maker.of_event(("fr",))


# ---- which attributes ------------------------------------------------------------------------------------------------


def test_crossings() -> None:
    assert Groups(["a", "b", "c"]).crossings == (("a", "b"), ("a", "c"), ("b", "c"))
    assert len(Groups(names_of(6)).columns) == 21 and len(Groups(names_of(7)).columns) == 7
    assert Groups(["a", "b"], crossings=[]).columns == ("a", "b")
    assert Groups(["a", "b", "c"], crossings=[("c", "a")]).pairs == [(2, 0)]
    assert Groups.of(["a"]) == Groups(("a",)) and Groups.of(Groups(["a"])) == Groups(["a"])
    assert Groups.from_dict(json.loads(json.dumps(Groups(["a", "b"], seed=2**64 - 1).to_dict()))).seed == 2**64 - 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"attributes": "country"}, "groups must be a list of names of attributes, got 'country'"),
        ({"attributes": 3}, "groups must be a list of names"),
        ({"attributes": []}, "groups must have an attribute, got none"),
        ({"attributes": ["a", 1]}, "groups must be names of attributes, got 1"),
        ({"attributes": ["a", "\ud800"]}, "name of an attribute must be text that can be written as UTF-8"),
        ({"attributes": ["a", "a"]}, "groups must have different names, got 'a' twice"),
        ({"attributes": names_of(17)}, "groups must have at most 16 attributes, got 17"),
        ({"crossings": "all"}, 'crossings must be "auto" or pairs of names'),
        ({"crossings": 3}, 'crossings must be "auto" or pairs of names'),
        ({"crossings": [("a", "x")]}, r"crossing must be a pair of a, b, c, got \('a', 'x'\)"),
        ({"crossings": ["ab"]}, "crossing must be a pair"),
        ({"crossings": [("a", "b", "c")]}, "crossing must be a pair"),
        ({"crossings": [("a", "a")]}, "crossing must be of two attributes, got 'a' with itself"),
        ({"crossings": [("a", "b"), ("b", "a")]}, "crossings must be different, got 'b' with 'a' twice"),
        ({"cells": 100}, "cells of groups must be a power of two, got 100"),
        ({"cells": 4}, "cells of groups must be"),
        ({"seed": -1}, "seed of groups must be"),
        ({"seed": 2**64}, "seed of groups must be"),
        ({"names": "yes"}, "names of groups must be True or False"),
        ({"extra": "take"}, 'extra of groups must be "refuse" or "ignore"'),
    ],
)
def test_bad_groups_are_refused_with_a_sentence(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        Groups(**({"attributes": ["a", "b", "c"]} | arguments))


def test_too_many_columns_are_refused() -> None:
    names = names_of(9)
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    with pytest.raises(
        InvalidInput, match="groups must have at most 32 columns, got 45: 9 attributes and 36 crossings"
    ):
        Groups(names, crossings=pairs)
    assert len(Groups(names, crossings=pairs[:23]).columns) == 32


def test_other_methods_have_no_groups() -> None:
    with pytest.raises(InvalidInput, match="groups must have a method with the learner Lanes"):
        GroupTable(Groups(["a"]), TOPS)
    with pytest.raises(InvalidInput, match="groups must be an object with attributes"):
        Groups.from_dict({"attributes": ["a"]})


# ---- what it shows ---------------------------------------------------------------------------------------------------


def test_segments_are_ranked_and_named() -> None:
    scores, outcomes, columns = world(3000, 2, 3)
    host = Host(Groups(names_of(2), names=True, seed=3))
    host.run(scores, outcomes, host.words(columns))
    table = host.table.segments(host.row, least=1)
    assert table() is table and (np.diff(table["log_e"]) <= 0).all() and (table["sd"] > 0).all()
    pairs = {value for name, value in zip(table["attribute"], table["value"], strict=True) if name == "a0 x a1"}
    assert pairs == {tuple(pair) for pair in columns.tolist()}
    few = host.table.segments(host.row)
    assert 0 < len(few["word"]) < len(table["word"]) and (few["events"] >= 100).all()


def test_without_names_segments_show_words() -> None:
    scores, outcomes, columns = world(500, 2, 3)
    host = Host(Groups(names_of(2), seed=3))
    host.run(scores, outcomes, host.words(columns))
    table = host.table.segments(host.row)
    for column, value, word in zip(table["column"], table["value"], table["word"], strict=True):
        assert (len(value) == 2 and column == 2) or value == f"{word:016x}"
    assert host.table.maker.book == {}


def test_the_book_of_names_is_bounded() -> None:
    maker = WordMaker(Groups(["a"], cells=8, names=True), 7)
    for value in range(20):
        maker.of_event((value,))
    assert list(maker.book.values()) == list(range(12, 20))
    maker.of_event((3,))  # its word is known, its name was forgotten
    assert list(maker.book.values())[-1] == 3
    assert plain_value("a", 3.0) == 3
