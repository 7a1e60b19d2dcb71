"""AUTO with groups among the contenders: the bits of `Calibrator.run`, however the log is cut and however late."""

from __future__ import annotations

import numpy as np
import pytest
from group_streams import delays, world

import calibeat
from calibeat import Calibrator, Groups, InvalidInput
from calibeat.backtest.read import rows as row_reader

N = 1500
SCORES, OUTCOMES, CODES = world(N, 2, 8)
COLUMNS = {"a": CODES[:, 0], "b": [f"v{code}" for code in CODES[:, 1]]}
GROUPED = "AUTO + groups"


def forecasts(size, monkeypatch, **options):
    monkeypatch.setattr(row_reader, "CHUNK", size)
    monkeypatch.setattr(row_reader, "LEAST_EVENTS", size)
    result = calibeat.backtest(SCORES, OUTCOMES, groups=COLUMNS, methods="ops", keep_forecasts=True, **options)
    return result.forecasts[GROUPED]


def calibrator():
    return Calibrator(groups=Groups(["a", "b"], seed=0))


@pytest.mark.parametrize("size", [97, 400, 100_000])
def test_the_bits_of_run_however_the_log_is_cut(size, monkeypatch):
    told = calibrator().run(SCORES, OUTCOMES, groups=COLUMNS)
    np.testing.assert_array_equal(forecasts(size, monkeypatch), told)
    due = np.minimum(delays(N, 50.0), N)
    late = calibrator().run(SCORES, OUTCOMES, groups=COLUMNS, due=due)
    times = {"times": np.arange(N), "outcome_times": due}
    np.testing.assert_array_equal(forecasts(size, monkeypatch, **times), late)


def test_maturity_is_that_of_auto(monkeypatch):
    """Until an outcome is learnt the raw score is forecast; then as if outcomes were as late as that."""
    told = forecasts(400, monkeypatch, mature=200)
    np.testing.assert_array_equal(told[:201], SCORES[:201])
    cal = calibrator()
    due = np.minimum(np.arange(N) + 201, N)
    late = cal.run(SCORES, OUTCOMES, groups=COLUMNS, due=due)
    np.testing.assert_array_equal(told[201:], late[201:])


def test_keys_stand_beside_groups():
    keys = np.array(["k0", "k1"])[np.arange(N) % 2]
    result = calibeat.backtest(SCORES, OUTCOMES, keys=keys, groups=COLUMNS, methods="auto", keep_forecasts=True)
    assert list(result.forecasts) == ["raw", "auto", "AUTO without keys", "AUTO with a pooled start", GROUPED]
    told = calibrator().run(SCORES, OUTCOMES, groups=COLUMNS)
    np.testing.assert_array_equal(result.forecasts[GROUPED], told)


def test_auto_is_there_to_be_compared_with_and_the_choice_can_be_deployed():
    result = calibeat.backtest(SCORES, OUTCOMES, groups=COLUMNS, methods="ops")
    assert [method["name"] for method in result.payload["methods"]] == ["raw", "ops", "auto", GROUPED]
    assert result.best == GROUPED
    code = "\n".join(result.payload["answer"]["library"])
    assert "Calibrator('auto', groups=['a', 'b'])" in code
    names = {"past_scores": SCORES, "past_outcomes": OUTCOMES, "past_groups": COLUMNS, "score": 0.3, "outcome": 1}
    exec(code, names | {"groups": {"a": 1, "b": "v1"}})  # noqa: S102 - what the page tells people to run


def test_groups_of_other_kinds():
    """A `Groups` for a frame has its own crossings and seed; a frame beside columns is as good as a mapping."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"p": SCORES, "y": OUTCOMES, **COLUMNS})
    mine = Groups(["a", "b"], crossings=[], cells=64, seed=7)
    result = calibeat.backtest(frame, score="p", outcome="y", groups=mine, methods="ops", keep_forecasts=True)
    told = Calibrator(groups=mine).run(SCORES, OUTCOMES, groups=COLUMNS)
    np.testing.assert_array_equal(result.forecasts[GROUPED], told)
    beside = calibeat.backtest(SCORES, OUTCOMES, groups=frame[["a", "b"]], methods="ops", keep_forecasts=True)
    told = calibrator().run(SCORES, OUTCOMES, groups=COLUMNS)
    np.testing.assert_array_equal(beside.forecasts[GROUPED], told)


def test_groups_that_cannot_be():
    with pytest.raises(InvalidInput, match="groups must map names to columns"):
        calibeat.backtest(SCORES, OUTCOMES, groups=["a"])
    with pytest.raises(
        InvalidInput, match=r"a must be a string.*got 0.5; cut numbers into bands first .* - at row 700"
    ):
        calibeat.backtest(SCORES, OUTCOMES, groups={"a": np.where(np.arange(N) == 700, 0.5, 1.0)})
    with pytest.raises(InvalidInput, match="a"):
        calibeat.backtest(SCORES, OUTCOMES, groups={"a": [1]})
    frame = {"p": SCORES, "y": OUTCOMES, **COLUMNS}
    with pytest.raises(InvalidInput, match="'c' is not in the frame"):
        calibeat.backtest(frame, score="p", outcome="y", groups=["a", "c"])
    with pytest.raises(InvalidInput, match="groups must be known when the score is issued, got 'y'"):
        calibeat.backtest(frame, score="p", outcome="y", groups=["y"])
    with pytest.raises(InvalidInput, match="groups must not be given with many classes"):
        calibeat.backtest([[0.6, 0.4]] * 9, [0, 1, 1] * 3, groups={"a": [1] * 9})
