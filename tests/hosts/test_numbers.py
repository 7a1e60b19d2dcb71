"""Numbers as attributes of groups: their cells, when they are fixed, their names, and what is refused.

That every verb, late outcomes and restarts agree is in `test_all_hosts_agree`, and that calls take effect whole in
`test_interrupts`.
"""

from __future__ import annotations

import json
import math
import pickle
import sys
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibeat import AUTO, Calibrator, Groups, InvalidInput, Number, SnapshotMismatch, backtest
from calibeat._util.sealed import checksum
from calibeat.hosts.groups import GroupTable, WordMaker
from calibeat.hosts.numbers import Cuts
from calibeat.metrics import log_loss
from calibeat.rivals import HashedLogistic, Host

EVENTS = 400
RNG = np.random.default_rng(0)
AGES = RNG.integers(18, 90, EVENTS).astype(float)
AGES[::17] = np.nan
COUNTRIES = np.array(["fr", "it"])[RNG.integers(0, 2, EVENTS)]
SCORES = RNG.random(EVENTS)
OUTCOMES = (RNG.random(EVENTS) < np.where(AGES > 50, 0.8, 0.3)).astype(int)


TABLE = pd.DataFrame({"score": SCORES, "outcome": OUTCOMES, "country": COUNTRIES, "age": AGES})


def fresh(*numbers: Number, **settings: Any) -> Calibrator:
    return Calibrator(groups=Groups(["country", *(numbers or (Number("age", first=100),))], seed=11, **settings))


def columns(events: slice = slice(None)) -> dict[str, Any]:
    return {"country": COUNTRIES[events], "age": AGES[events]}


def names(cal: Calibrator, attribute: str = "age") -> dict[Any, int]:
    """Events by what `segments` shows of a value."""
    table = cal.segments(least=1)
    chosen = table["attribute"] == attribute
    return dict(zip(table["value"][chosen].tolist(), table["events"][chosen].tolist(), strict=True))


# ---- cells -----------------------------------------------------------------------------------------------------------


def naive(first: list[float], cells: int, value: float) -> Any:
    """The design's sentence, with fractions. Of a number outside the range: its side, and its distance in ranges."""
    ranked, low, high = sorted(first), Fraction(min(first)), Fraction(max(first))
    edges = {Fraction(ranked[i * len(first) // cells]) for i in range(1, cells)} - {low}
    number = Fraction(value)
    if low <= number <= high:
        return sum(edge <= number for edge in edges)
    far = (number - low, high - number)[number < low]
    return number > high, far / (high - low) if high > low else None


FLOATS = st.floats(allow_nan=False, allow_infinity=False)
EXTREMES = st.sampled_from([0.0, -0.0, 5e-324, -5e-324, 2.2e-308, 1.0, -1e308, 1.7e308, sys.float_info.max])


def check_code(first: list[float], cells: int, value: float) -> None:
    cuts = Cuts.of_first(first, cells)
    code, expected = cuts.code(value), naive(first, cells, value)
    assert cuts.codes(np.array([value, value])).tolist() == [code, code]
    assert "nan" not in cuts.name_of(code)
    if isinstance(expected, int):
        assert code == expected
        return
    is_above, ranges = expected
    assert (code >= 100) == is_above and (code <= -100) == (not is_above)
    half_octaves = abs(code) - 100
    if ranges is None:
        assert half_octaves == 0
    else:  # floor(2 log2(ranges)), but for the rounding of two differences and a quotient
        assert half_octaves >= 0
        off = Fraction(1, 10**14)
        assert Fraction(2) ** half_octaves * (1 - off) <= ranges**2 <= Fraction(2) ** (half_octaves + 1) * (1 + off)


VALUES = FLOATS | EXTREMES | st.integers(-3, 3).map(float)


@given(st.lists(VALUES, min_size=1, max_size=30), st.integers(2, 9), st.data())
def test_codes_are_those_of_the_design(first: list[float], cells: int, data: st.DataObject) -> None:
    check_code(first, cells, data.draw(VALUES | st.sampled_from(first)))


@pytest.mark.parametrize(
    "first", [[-1e308, 0.0], [0.0, 5e-324], [-1.7e308, 1.7e308], [-5e-324, 5e-324], [1e300, 1.1e300]]
)
@pytest.mark.parametrize("value", [sys.float_info.max, -sys.float_info.max, 1e308, 1.0, -5e-324, 1e-323])
def test_codes_of_extremes(first: list[float], value: float) -> None:
    check_code(first, 2, value)


def test_cells_have_about_as_many_of_the_first_numbers_each() -> None:
    first = RNG.normal(size=500)
    cuts = Cuts.of_first(first.tolist(), 8)
    assert set(np.bincount(cuts.codes(first)).tolist()) == {62, 63}


def test_equal_numbers_are_never_cut() -> None:
    assert Cuts.of_first([3.0] * 9, 8) == Cuts((), 3.0, 3.0)
    assert Cuts.of_first([1.0] * 7 + [2.0, 3.0], 4) == Cuts((), 1.0, 3.0)
    assert Cuts.of_first([1.0, 2.0, 2.0, 2.0, 2.0, 3.0], 6) == Cuts((2.0, 3.0), 1.0, 3.0)
    same = Cuts.of_first([5.0], 8)
    assert [same.code(v) for v in (5.0, 5.1, 1e300, 4.9, -1e300)] == [0, 100, 100, -100, -100]
    assert [same.name_of(code) for code in (0, 100, -100)] == ["5", "above 5", "below 5"]


def test_octaves_are_named_by_their_ends() -> None:
    cuts = Cuts((25.0, 31.5), 18.0, 90.0)
    assert [cuts.name_of(code) for code in range(3)] == ["18 to 25", "25 to 31.5", "31.5 to 90"]
    assert [cuts.name_of(code) for code in (100, 102, -100, -102)] == [
        "above 90: 90 to 119.823", "above 90: 162 to 221.647", "below 18: -11.8234 to 18", "below 18: -113.647 to -54",
    ]  # fmt: skip
    for value, code in ((119.8, 100), (119.9, 101), (162.0, 102), (-54.0, -102), (-53.9, -101)):
        assert cuts.code(value) == code


def test_edges_that_are_given_are_fixed_from_the_start_and_have_no_octaves() -> None:
    cal = fresh(Number("age", edges=[6, 12, 18]))
    ages = [5.9, 6, 11, 12.5, 18, 1e308, -1e308, None]
    cal.run([0.5] * 8, [0, 1] * 4, groups={"country": ["fr"] * 8, "age": ages})
    assert names(cal) == {"below 6": 2, "6 to 12": 2, "12 to 18": 1, "18 or more": 2, "missing": 1}
    assert cal.params["groups"]["numbers"] == {}
    assert Calibrator.from_json(cal.to_json()).to_json() == cal.to_json()


# ---- when they are fixed ---------------------------------------------------------------------------------------------


def test_until_the_first_numbers_have_come_the_value_is_not_yet_and_a_missing_one_is_missing() -> None:
    cal = fresh(Number("age", first=4, cells=2))
    ages = [10.0, None, 30.0, 20.0, math.nan, 40.0, 10.0, 30.0]
    cal.run([0.5] * 8, [0, 1] * 4, groups={"country": ["fr"] * 8, "age": ages})
    assert names(cal) == {"not yet": 4, "missing": 2, "10 to 30": 1, "30 to 40": 1}
    assert cal.params["groups"]["numbers"] == {"age": {"edges": [30.0], "low": 10.0, "high": 40.0}}
    assert {pair[1] for pair in names(cal, "country x age")} == {"not yet", "missing", "10 to 30", "30 to 40"}


def test_each_way_of_forecasting_counts_and_looking_does_not() -> None:
    one, many, batch = fresh(), fresh(), fresh()
    events: list[Any] = [{"country": str(COUNTRIES[i]), "age": float(AGES[i])} for i in range(60)]
    for i, event in enumerate(events):
        before = one.to_json()
        looked = one.peek(float(SCORES[i]), groups=event), one.predict_many([SCORES[i]], groups=[list(event.values())])
        assert one.to_json() == before
        made = one.predict(float(SCORES[i]), groups=event)
        assert looked == (float(made), [float(made)])
        assert one.update(made, int(OUTCOMES[i])) == "learnt"
    before = one.to_json()
    looked_at = one.predict_many(SCORES, groups=columns())  # more than are gathered: each is the next event
    assert looked_at.tolist() == [one.peek(SCORES[i], groups=(COUNTRIES[i], AGES[i])) for i in range(EVENTS)]
    assert one.to_json() == before
    many.issue(SCORES[:60], groups=columns(slice(60)))
    batch.run(SCORES[:60], OUTCOMES[:60], groups=columns(slice(60)), due=np.full(60, 61))
    known = [cal.params["groups"]["numbers"]["age"] for cal in (one, many, batch)]
    assert known[0] == known[1] == known[2] == AGES[:60][~np.isnan(AGES[:60])].tolist()


@pytest.mark.parametrize("cut", [1, 99, 100, 101, 105, 106, 107, 108, 300])
def test_batches_may_be_cut_anywhere_and_restarted(cut: int) -> None:
    whole, parts = fresh(), fresh()
    expected = whole.run(SCORES, OUTCOMES, groups=columns())
    head = parts.run(SCORES[:cut], OUTCOMES[:cut], groups=columns(slice(cut)))
    parts = pickle.loads(pickle.dumps(parts))  # noqa: S301 - our own bytes
    tail = parts.run(SCORES[cut:], OUTCOMES[cut:], groups=columns(slice(cut, None)))
    assert [*head, *tail] == expected.tolist()
    assert parts.to_json() == whole.to_json()
    assert "not yet" in names(whole) and len(names(whole)) == 10


def test_a_batch_that_is_refused_has_shown_nothing() -> None:
    cal = fresh()
    cal.run(SCORES[:20], OUTCOMES[:20], groups=columns(slice(20)))
    before = cal.to_json()
    bad = {"country": ["fr"] * 3, "age": [30.0, 31.0, math.inf]}
    calls: list[Callable[[], Any]] = [
        lambda: cal.run([0.5] * 3, [0, 1, 0], groups=bad),
        lambda: cal.issue([0.5] * 3, groups=bad),
        lambda: cal.run([0.5] * 3, [0, 1, 2], groups={**bad, "age": [1, 2, 3]}),
        lambda: cal.predict(0.5, groups=("fr", "30")),
        lambda: cal.predict(1.5, groups=("fr", 30)),
    ]
    for call in calls:
        with pytest.raises(InvalidInput):
            call()
    assert cal.to_json() == before


def test_numbers_of_every_kind() -> None:
    whole = [18 + 7 * i % 60 for i in range(40)]
    ages: list[Any] = [None if i % 9 == 3 else age for i, age in enumerate(whole)]
    floats = np.array([np.nan if age is None else age for age in ages])
    outcomes, expected = [0, 1] * 20, None
    kinds: list[Any] = [
        ages,
        floats,
        floats.astype(np.float32),
        np.ma.masked_invalid(floats),
        np.array(ages, dtype=object),
        [None if age is None else np.int16(age) for age in ages],
        pd.Series(ages, dtype="Int64"),
        pd.Series(ages, dtype=object),
        pl.Series(ages),
        pa.array(ages),
        pa.chunked_array([pa.array(ages, type=pa.float32())]),
    ]
    for ages_of_a_kind in kinds:
        cal = Calibrator(groups=Groups([Number("age", first=20, cells=4)], seed=1))
        p = cal.run([0.5] * 40, outcomes, groups={"age": ages_of_a_kind}).tolist()
        expected = expected or p
        assert p == expected
    assert len(names(cal)) == 6


def test_minus_zero_is_zero_whichever_comes_first() -> None:
    told = []
    for zeros in ([0.0, -0.0], [-0.0, 0.0]):
        cal = Calibrator(groups=Groups([Number("x", first=2)], seed=1))
        cal.issue([0.5, 0.5], groups=[[zero] for zero in zeros])
        told.append(repr(cal.params["groups"]["numbers"]))
    assert told[0] == told[1] == repr({"x": {"edges": [], "low": 0.0, "high": 0.0}})


def test_a_number_that_matters_lowers_the_loss() -> None:
    rng, n = np.random.default_rng(5), 6000
    age, country = rng.gamma(9.0, 5.0, n), np.array(["fr", "it"])[rng.integers(0, 2, n)]
    x = rng.normal(size=n)
    risk = x + 1.5 * np.tanh((age - 45.0) / 10.0) + (country == "fr")
    y, scores = (rng.random(n) < 1 / (1 + np.exp(-risk))).astype(int), 1 / (1 + np.exp(-x))
    ignored = Calibrator(groups=Groups(["country"], extra="ignore", seed=1))
    known = Calibrator(groups=Groups(["country", Number("age")], seed=1))
    losses = [log_loss(y, cal.run(scores, y, groups={"country": country, "age": age})) for cal in (ignored, known)]
    assert losses[1] < losses[0] - 0.04


# ---- as data ---------------------------------------------------------------------------------------------------------


def test_groups_with_numbers_as_data() -> None:
    groups = Groups(["a", Number("b", first=20, cells=4), Number("c", edges=[1, 2.5])], seed=3)
    assert groups.attributes == ("a", "b", "c") and groups.columns[:3] == ("a", "b", "c")
    twin = Groups.from_dict(json.loads(json.dumps(groups.to_dict())))
    assert twin == groups and twin.identity == groups.identity
    others = [["a", "b", "c"], ["a", Number("b"), Number("c", edges=[1, 2.5])], ["a", Number("b"), "c"]]
    assert len({groups.identity, *(Groups(other).identity for other in others)}) == 4
    assert "Number(name='b', first=20, cells=4, edges=None)" in repr(Calibrator(groups=groups))
    assert Groups(["a", "b"]).identity == repr((("a", "b"), (("a", "b"),)))  # as ever


DAMAGE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no numbers": lambda groups: groups.pop("numbers"),
    "of another name": lambda groups: groups["numbers"].update(size=[]),
    "no list": lambda groups: groups["numbers"].update(age=3),
    "too many": lambda groups: groups["numbers"].update(age=[1.0] * 100),
    "text": lambda groups: groups["numbers"].update(age=["1"]),
    "edges that fall": lambda groups: groups["numbers"].update(age={"edges": [3.0, 2.0], "low": 1.0, "high": 4.0}),
    "an edge that is the lowest": lambda groups: groups["numbers"].update(
        age={"edges": [1.0], "low": 1.0, "high": 4.0}
    ),
    "an edge beyond": lambda groups: groups["numbers"].update(age={"edges": [5.0], "low": 1.0, "high": 4.0}),
    "too many edges": lambda groups: groups["numbers"].update(age={"edges": [*range(2, 10)], "low": 1.0, "high": 10.0}),
    "a range that falls": lambda groups: groups["numbers"].update(age={"edges": [], "low": 2.0, "high": 1.0}),
    "no settings": lambda groups: groups["attributes"].__setitem__(1, {"name": "age"}),
    "bad settings": lambda groups: groups["attributes"][1].update(first=0),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_snapshot_is_refused(how: str) -> None:
    data = json.loads(fresh().to_json())
    DAMAGE[how](data["state"]["groups"] if "state" in data else data["groups"])
    body = {name: value for name, value in data.items() if name != "checksum"}
    with pytest.raises(SnapshotMismatch):
        Calibrator.from_json(json.dumps({**body, "checksum": checksum(body)}))


def test_an_old_stream_can_be_given_numbers() -> None:
    old = Calibrator(stream="s")
    old.run(SCORES, OUTCOMES)
    cal = Calibrator.from_json(old.to_json(), groups=["country", Number("age", first=100)])
    cal.run(SCORES, OUTCOMES, groups=columns())
    assert len(names(cal)) == 10


# ---- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Number(3), "name of a number must be a string"),  # type: ignore[arg-type]
        (lambda: Number("age", first=0), "first of age must be a whole number in [1, 10000], got 0"),
        (lambda: Number("age", cells=1), "cells of age must be a whole number in [2, 64], got 1"),
        (lambda: Number("age", edges=[]), "edges of age must be 1 to 63 numbers, got 0"),
        (lambda: Number("age", edges=range(64)), "edges of age must be 1 to 63 numbers, got 64"),
        (lambda: Number("age", edges=[1, 1]), "edges of age must increase, got 1.0 after 1.0"),
        (lambda: Number("age", edges=[1, math.nan]), "edges[1] of age must be a finite number, got nan"),
        (lambda: Number("age", edges="12"), "edges of age must be a list of numbers, got '12'"),
        (lambda: Groups(["age", Number("age")]), "groups must have different names, got 'age' twice"),
        (lambda: Host(HashedLogistic, groups=[Number("age")]), "groups of a rival must be names"),
        (
            lambda: backtest(TABLE, score="score", outcome="outcome", groups=Groups([Number("age")])),
            "groups of a backtest must be names of attributes, got Number('age')",
        ),
        (
            lambda: backtest(TABLE, score="score", outcome="outcome", groups=["country", Number("age")]),
            "groups of a backtest must be names",
        ),
    ],
)
def test_bad_numbers_are_refused_with_a_sentence(make: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        make()
    assert sentence in str(caught.value)


@pytest.mark.parametrize("phase", ["gathering", "fixed"])
@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("37", "age must be a number or None, got str '37'"),
        (True, "age must be a number or None, got bool True"),
        (np.bool_(False), "age must be a number or None, got bool"),
        (math.inf, "age must be a finite number or None, got inf"),
        (-math.inf, "age must be a finite number or None, got -inf"),
        (10**400, "age must be a finite number or None, got 1000000"),
        (np.timedelta64(3, "s"), "age must be a number or None, got timedelta64"),
        ([1.0], "age must be a number or None, got list"),
    ],
)
def test_bad_values_are_refused_with_a_sentence_and_their_row(phase: str, value: Any, sentence: str) -> None:
    cal = fresh(Number("age", first=1 if phase == "fixed" else 100))
    cal.predict(0.5, groups=("fr", 3.0))
    before = cal.to_json()
    with pytest.raises(InvalidInput) as caught:
        cal.predict(0.5, groups=("fr", value))
    assert sentence in str(caught.value) and "row" not in str(caught.value)
    with pytest.raises(InvalidInput) as caught:
        cal.run([0.5] * 2, [0, 1], groups=[("fr", 3.0), ("it", value)])
    assert sentence in str(caught.value) and str(caught.value).endswith(" - at row 1")
    assert cal.to_json() == before


def test_columns_that_are_not_numbers_are_refused_with_a_row() -> None:
    cal = fresh()
    for column, got in (
        (np.array(["1", "2"]), "str '1' - at row 0"),
        (np.array([True, False]), "bool True - at row 0"),
        (np.array([1.0, -np.inf]), "got -inf - at row 1"),
        (pd.Series(pd.to_datetime(["2026-01-01", "2026-01-02"])), "datetime64"),
        (pl.Series(["a", "b"]), "str 'a' - at row 0"),
    ):
        with pytest.raises(InvalidInput, match=got):
            cal.run([0.5] * 2, [0, 1], groups={"country": ["fr", "it"], "age": column})
    with pytest.raises(InvalidInput, match="age must have a value for each of the 2 scores, got 3"):
        cal.run([0.5] * 2, [0, 1], groups={"country": ["fr", "it"], "age": [1, 2, 3]})


def test_a_name_still_refuses_what_is_no_whole_number_and_says_what_to_do() -> None:
    with pytest.raises(
        InvalidInput, match=r"got 37.5; cut numbers into bands first \(a Calibrator takes Number\('age'\)\)"
    ):
        Calibrator(groups=["age"]).predict(0.5, groups=[37.5])


def test_single_words_and_those_of_columns_are_the_same() -> None:
    maker = WordMaker(Groups([Number("x", edges=[0, 1])], seed=5), 5)
    values = [-1.0, 0, 0.5, 1, 7, None]
    assert maker.of_events([[value] for value in values], 6).tolist() == [maker.of_event([v])[0] for v in values]
    table = GroupTable(Groups([Number("x", first=2)], seed=5), AUTO)
    assert table.maker.of_events([[1.0]] * 3, 3).tolist() == [table.maker.of_event([9.9])[0]] * 3
