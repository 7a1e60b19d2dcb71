"""Segments are judged in the order of arrival, three forecasts by the same bet, recomputed here with NumPy."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from group_streams import delays, world

import calibeat
from calibeat import Calibrator, Groups
from calibeat.backtest.judge import segments as judge
from calibeat.backtest.read import rows as row_reader
from calibeat.hosts.groups import e_bh

N = 4000
SCORES, OUTCOMES, CODES = world(N, 3, 6)
COLUMNS = {"a": CODES[:, 0], "b": [f"v{code}" for code in CODES[:, 1]], "c": CODES[:, 2] == 0}
NAMES = ("raw", "auto", "AUTO + groups")


def backtested(**options):
    settings = {"groups": COLUMNS, "methods": "auto", "keep_forecasts": True, "warmup": 0} | options
    return calibeat.backtest(SCORES, OUTCOMES, **settings)


def log_e_of(p, y):
    """The evidence of a segment, its events in the order of arrival."""
    before = np.concatenate([[0.0], np.cumsum(y - p)[:-1]])
    known = np.concatenate([[0.0], np.cumsum(p * (1.0 - p))[:-1]])
    theta = np.clip(before / (known + 3.0), -1.0, 1.0)
    return float((y * theta - np.log(1.0 - p + p * np.exp(theta))).sum())


def by_hand(forecasts, order):
    """Of each segment with 100 events: its events, rate, and for each method what was said and the evidence."""
    values = {name: np.array([str(value) for value in column]) for name, column in COLUMNS.items()}
    labels = {name: [(value,) for value in column] for name, column in values.items()}
    for a, b in combinations(COLUMNS, 2):
        labels[f"{a} x {b}"] = list(zip(values[a], values[b], strict=True))
    found = {}
    for column, of in labels.items():
        for label in set(of):
            part = np.array([i for i in order if of[i] == label])
            if len(part) >= 100:
                y = OUTCOMES[part]
                own = [(forecasts[n][part].mean(), log_e_of(forecasts[n][part], y)) for n in NAMES]
                found[column, label] = (len(part), y.mean(), own)
    return found


def same(payload, wanted):
    table = payload["segments"]["rows"]
    assert payload["segments"]["total"] == len(table["events"]) == len(wanted)
    listed = list(zip(table["attribute"], map(tuple, table["value"]), strict=True))
    assert set(listed) == set(wanted)
    for at, label in enumerate(listed):
        events, rate, own = wanted[label]
        assert table["events"][at] == events and table["rate"][at] == pytest.approx(rate)
        for name, (said, log_e) in zip(NAMES, own, strict=True):
            assert table["methods"][name]["said"][at] == pytest.approx(said)
            assert table["methods"][name]["log_e"][at] == pytest.approx(log_e, abs=1e-9)
    for name in NAMES:
        flagged = e_bh(np.array(table["methods"][name]["log_e"]), 0.05)
        assert table["methods"][name]["flagged"] == flagged.tolist()
        assert payload["segments"]["flagged"][name] == flagged.sum()


def test_outcomes_at_once():
    result = backtested()
    same(result.payload, by_hand(result.forecasts, range(N)))
    found = result.payload["segments"]
    raw, auto, groups = (found["flagged"][name] for name in NAMES)
    assert found["sentence"] == (
        f"Of {found['total']} segments with 100 events or more, {raw} are shown to be miscalibrated under the raw "
        f"score, {auto} under AUTO, {groups} with groups (false discovery rate 5 %)."
    )
    assert raw > 5 and auto > 5 and groups <= 1


@pytest.mark.parametrize("size", [500, 100_000])
def test_late_outcomes_count_in_the_order_of_arrival_also_after_the_last_forecast(size, monkeypatch):
    monkeypatch.setattr(row_reader, "CHUNK", size)
    monkeypatch.setattr(row_reader, "LEAST_EVENTS", size)
    known = delays(N, 300.0)
    result = backtested(times=np.arange(N), outcome_times=known, warmup=700)
    order = np.argsort(known, kind="stable")
    same(result.payload, by_hand(result.forecasts, order[order >= 700]))


def test_the_records_of_the_library_are_the_same_bits():
    cal = Calibrator(groups=Groups(list(COLUMNS), seed=0))
    forecasts = cal.run(SCORES, OUTCOMES, groups=COLUMNS)
    result, known = backtested(), cal.segments()
    np.testing.assert_array_equal(result.forecasts["AUTO + groups"], forecasts)
    mine = result.payload["segments"]["rows"]["methods"]["AUTO + groups"]
    assert sorted(mine["log_e"]) == sorted(known["log_e"].tolist())
    assert sum(mine["flagged"]) == known["flagged"].sum()
    spread = {row["column"]: row["spread"] for row in result.payload["segments"]["spread"]}
    assert spread == cal.params["groups"]["spread"]
    listed = [row["spread"] for row in result.payload["segments"]["spread"]]
    assert listed == sorted(listed, reverse=True)


def test_evidence_against_auto_comes_first_and_the_map_agrees_with_the_table():
    found = backtested().payload["segments"]
    table, heat = found["rows"], found["map"]
    evidence = table["methods"]["auto"]["log_e"]
    assert evidence == sorted(evidence, reverse=True)
    crossings = [row["column"] for row in found["spread"] if " x " in row["column"]]
    assert " x ".join(sorted(heat["attributes"])) == crossings[0]
    at = {(own, *value): row for row, (own, value) in enumerate(zip(table["attribute"], table["value"], strict=True))}
    names = sorted(heat["attributes"])
    for i, down in enumerate(heat["down"]):
        for j, across in enumerate(heat["across"]):
            pair = dict(zip(heat["attributes"], (down, across), strict=True))
            row = at.get((crossings[0], *(pair[name] for name in names)))
            assert heat["events"][i][j] == (None if row is None else table["events"][row])
            for name in NAMES[1:]:
                of = heat["methods"][name]
                if row is None:
                    assert of["gap"][i][j] is None and of["flagged"][i][j] is None
                else:
                    assert of["gap"][i][j] == table["rate"][row] - table["methods"][name]["said"][row]
                    assert of["flagged"][i][j] == table["methods"][name]["flagged"][row]
    assert len(heat["down"]) >= len(heat["across"])


def test_a_calibrated_world_flags_nothing_and_says_that_this_is_no_proof():
    rng = np.random.default_rng(0)
    scores, codes = rng.uniform(0.1, 0.9, 3000), rng.integers(0, 5, (3000, 2))
    found = calibeat.backtest(
        scores, rng.random(3000) < scores, groups={"a": codes[:, 0], "b": codes[:, 1]}, methods="auto"
    ).payload["segments"]
    assert not any(found["flagged"].values())
    assert found["sentence"].endswith("none is shown to be miscalibrated. That is not proof that none is.")


def test_few_events_and_one_attribute():
    short = calibeat.backtest(SCORES[:90], OUTCOMES[:90], groups={"a": CODES[:90, 0]}, methods="auto", warmup=0)
    found = short.payload["segments"]
    assert found["total"] == 0 and found["map"] is None and found["rows"]["events"] == []
    assert found["sentence"] == "No segment has 100 judged events or more: there is nothing to tell."
    one = calibeat.backtest(SCORES, OUTCOMES, groups={"a": CODES[:, 0]}, methods="auto").payload["segments"]
    assert one["map"] is None and one["notes"] == [] and [row["column"] for row in one["spread"]] == ["a"]


def test_the_first_segments_are_followed_and_a_column_of_ids_is_named(monkeypatch):
    monkeypatch.setattr(judge, "MOST_SHOWN", 3)
    small = Groups(["a", "id"], cells=64)
    frame = {"p": SCORES, "y": OUTCOMES, "a": CODES[:, 0], "id": np.arange(N) % 2500}
    found = calibeat.backtest(frame, score="p", outcome="y", groups=small, methods="auto", warmup=0).payload["segments"]
    assert found["total"] > 3 == len(found["rows"]["events"])
    assert "The table has the 3 segments with the strongest evidence against AUTO." in found["notes"]
    assert any("probably an id, not a segment" in note for note in found["notes"])
    followed = judge.SegmentTally(small, NAMES, None)
    to = followed._followed._replace(words=np.zeros(5, dtype=np.int64))
    words = np.arange(1, 21)
    judge.tally_segments(to, words, np.zeros(10), np.full(30, 0.5), np.arange(10))
    assert to.used.tolist() == [5, 25]
    assert to.numbers.reshape(-1, judge.SEGMENT_WIDTH)[:, judge.EVENTS].sum() == 5


def test_segments_that_were_not_followed_are_said(monkeypatch):
    """A log with more values than are followed: the page says so."""
    monkeypatch.setattr(judge, "MOST_SEGMENTS", 3)
    rng = np.random.default_rng(4)
    scores = rng.random(800)
    result = calibeat.backtest(
        scores, rng.random(800) < scores, groups={"city": rng.integers(0, 9, 800)}, methods="ops"
    )
    assert any("the first 3 of the log were followed" in note for note in result.payload["segments"]["notes"])
