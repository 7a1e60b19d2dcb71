"""`calibeat.backtest` from Python: whatever holds the columns, and whatever is wrong with them."""

from __future__ import annotations

import datetime as dt
import sys
from itertools import pairwise

import numpy as np
import pytest
from streams import drifting

import calibeat
from calibeat import OPS, InvalidInput, MissingExtra, UnknownMethod
from calibeat._util.times import is_missing

N = 400
SCORES, OUTCOMES = drifting(N)
MOMENTS = np.datetime64("2024-03-01T00:00:00", "us") + np.arange(N) * np.timedelta64(3, "h")
KEYS = np.array(["fr", "de"])[np.arange(N) % 2]


def run(scores=SCORES, outcomes=OUTCOMES, *rest, methods="ops", **options):
    return calibeat.backtest(scores, outcomes, *rest, methods=methods, **options)


def same(result, other):
    return result.payload["table"] == other.payload["table"]


# ---- containers --------------------------------------------------------------------------------------------------


def test_lists_and_arrays_of_any_kind():
    plain = run()
    assert same(plain, run(SCORES.tolist(), OUTCOMES.astype(bool).tolist()))
    assert same(plain, run(tuple(SCORES.tolist()), OUTCOMES.astype(np.int8)))
    assert same(plain, run(SCORES, [["no", "Yes"][int(y)] for y in OUTCOMES]))
    assert same(plain, run(SCORES, OUTCOMES.astype(object)))
    assert same(plain, run([str(s) for s in SCORES], OUTCOMES))
    assert same(plain, run(SCORES[::-1][::-1], OUTCOMES.astype(bool)))


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_series_of_other_libraries(library):
    module = pytest.importorskip(library)
    pytest.importorskip("narwhals")
    make = {
        "pandas": getattr(module, "Series", None),
        "polars": lambda v: module.Series("v", v),
        "pyarrow": lambda v: module.chunked_array([module.array(v)]),
    }[library]
    known = MOMENTS + np.timedelta64(5, "h")
    plain = run(SCORES, OUTCOMES, KEYS, MOMENTS, known)
    theirs = run(make(SCORES), make(OUTCOMES.astype(bool)), make(KEYS.tolist()), make(MOMENTS), make(known))
    assert same(plain, theirs)
    assert plain.payload["data"]["span"] == theirs.payload["data"]["span"]
    with pytest.raises(InvalidInput, match=r"score must be in \[0, 1\], got nothing - at row 1"):
        run(make([0.5, None]), make([1, 0]))
    found = run(make([0.5, 0.5, 0.25]), make([1, None, 0])).payload["data"]
    assert (found["used"], found["judged"]) == (3, 2)
    with pytest.raises(InvalidInput, match="key must be there, got nothing - at row 1"):
        run(make([0.5, 0.5]), make([1, 0]), make(["a", None]))


def test_dates_of_pandas_and_polars_with_zones_and_gaps():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    pytest.importorskip("narwhals")
    known = MOMENTS + np.timedelta64(5, "h")
    known[3] = np.datetime64("NaT")
    outcomes = OUTCOMES.copy()
    outcomes[3] = np.nan
    plain = run(SCORES, outcomes, None, MOMENTS, known)
    assert plain.payload["data"]["judged"] == N - 1 - (N - 1) // 20 and plain.payload["delay"]["never"] == 1
    assert plain.payload["delay"]["too_late"] == 2
    zoned = pandas.Series(MOMENTS).dt.tz_localize("UTC").dt.tz_convert("America/New_York")
    assert same(plain, run(SCORES, pandas.Series(outcomes), None, zoned, pandas.Series(known), time_zone="UTC"))
    assert same(plain, run(SCORES, outcomes, None, polars.Series(MOMENTS), polars.Series(known)))
    days = [dt.date(2024, 3, 1)] * (N // 2) + [dt.date(2024, 3, 2)] * (N // 2)
    assert run(SCORES, OUTCOMES, None, polars.Series(days)).payload["data"]["span"] == [
        "2024-03-01T00:00:00",
        "2024-03-02T00:00:00",
    ]
    missing = pandas.array([True, None] * 5, dtype="boolean")
    found = run(SCORES[:10], pandas.Series(missing)).payload["data"]
    assert (found["used"], found["judged"]) == (10, 5)
    assert "5 events have no outcome. Such events were forecast and not judged." in found["notes"]


def test_dates_as_text_and_as_objects_and_as_numbers():
    plain = run(SCORES, OUTCOMES, None, MOMENTS, delay="6h")
    texts = [str(moment) for moment in MOMENTS]
    zoned = [moment.item().replace(tzinfo=dt.UTC) for moment in MOMENTS]
    seconds = MOMENTS.astype("datetime64[s]").astype(np.int64)
    for times in (
        texts,
        zoned,
        list(MOMENTS),
        seconds,
        seconds * 1000,
        seconds * 10**6,
        seconds * 10**9,
        seconds * 1.0,
    ):
        other = run(SCORES, OUTCOMES, None, times, delay="6h")
        assert same(plain, other) and other.payload["data"]["span"] == plain.payload["data"]["span"]
    steps = run(SCORES, OUTCOMES, None, np.arange(N) * 3 * 3600, delay="6h")  # a clock without a calendar
    assert same(plain, steps) and steps.payload["data"]["span"] is None
    assert steps.payload["windows"]["by"] == "event" and plain.payload["windows"]["by"] == "time"
    with pytest.raises(InvalidInput, match=r"time must be a date .*ISO 8601.* or a number, got 'soon' - at row 1"):
        run(SCORES[:2], OUTCOMES[:2], None, ["2024-01-01", "soon"])
    with pytest.raises(InvalidInput, match="numbers as large as"):
        run(SCORES[:2], OUTCOMES[:2], None, [1.0, 2.0], outcome_times=[1.0, 1e300])
    with pytest.raises(InvalidInput, match="time must be there, got nothing - at row 1"):
        run(SCORES[:3], OUTCOMES[:3], None, ["2024-01-01", None, "2024-01-02"])


def test_without_narwhals_arrays_still_work(monkeypatch):
    pandas = pytest.importorskip("pandas")
    monkeypatch.setitem(sys.modules, "narwhals", None)
    assert run().table["method"].tolist() == ["raw", "ops"]
    with pytest.raises(MissingExtra, match=r"narwhals.*calibeat\[frames\]"):
        run(pandas.Series(SCORES))


# ---- what is wrong with them -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scores", "outcomes", "said"),
    [
        ([], [], "must not be empty"),
        ([0.5], [1, 0], "same length, got scores 1, outcomes 2"),
        ([0.5, 1.3], [1, 0], r"score must be in \[0, 1\], got 1.3 - at row 1"),
        ([0.5, float("nan")], [1, 0], r"score must be in \[0, 1\], got nothing - at row 1"),
        ([0.5, "x"], [1, 0], r"score must be in \[0, 1\], got 'x' - at row 1"),
        ([0.5, True], [1, 0], None),
        ([[0.5]], [1], r"one-dimensional array, got shape \(1, 1\)"),
        ([[0.5], [0.5, 0.4]], [1, 0], "ragged"),
        ([0.5, 0.5], [1, 2], r"outcome must be 0 or 1 \(or false or true\), got 2 - at row 1"),
        ([0.5, 0.5], [1, "maybe"], "got 'maybe' - at row 1"),
        ([0.5, 0.5], ["1", {}], r"got \{\} - at row 1"),
        ([30.0, 20.0, 95.0], [1, 0, 1], "look like percent: say score_kind='percent'"),
        ([-3.0, 2.0, 0.5], [1, 0, 1], "look like logits: say score_kind='logit'"),
        ([-3000.0, 2.0, 0.5], [1, 0, 1], "got -3000.0 - at row 0; the scores look like logits"),
        ([0.1, 2000.0, 0.5], [1, 0, 1], "got 2000.0 - at row 1$"),
        (7, [1], "scores must be a one-dimensional array, got int"),
    ],
)
def test_bad_columns_are_refused_with_a_sentence(scores, outcomes, said):
    if said is None:
        assert run(scores, outcomes).payload["data"]["judged"] == 2  # NumPy has made a number of it
        return
    with pytest.raises(InvalidInput, match=said):
        run(scores, outcomes)


def test_a_boolean_is_no_score():
    with pytest.raises(InvalidInput, match="got True - at row 0"):
        run([True, "0.5"], [1, 0])
    with pytest.raises(InvalidInput, match="got True - at row 0"):
        run(np.array([True, False]), [1, 0])


def test_other_kinds_of_scores():
    plain = run()
    logits = np.log(SCORES / (1 - SCORES))
    np.testing.assert_allclose(run(logits, score_kind="logit").table["log_loss"], plain.table["log_loss"])
    np.testing.assert_allclose(run(100 * SCORES, score_kind="percent").table["ce"], plain.table["ce"])
    assert run(100 * SCORES, score_kind="percent").payload["data"]["score_kind"] == "percent"
    with pytest.raises(InvalidInput, match=r"score must be in \[0, 100\], got 101"):
        run([101.0], [1], score_kind="percent")
    with pytest.raises(InvalidInput, match="score_kind must be"):
        run(score_kind="odds")


def test_bad_rows_are_skipped_and_counted_where_asked():
    scores, outcomes = [0.5, None, 1.5, "x", 0.25, 0.75, 0.5], [1, 1, 1, 1, None, 0, 3]
    data = run(scores, outcomes, skip_bad=True).payload["data"]
    assert (data["rows"], data["used"], data["judged"]) == (7, 3, 2)  # what has no outcome is forecast
    assert {s["reason"]: (s["count"], s["first"]) for s in data["skipped"]} == {
        "score is missing": (1, "row 1"),
        "score is not in [0, 1]": (1, "row 2"),
        "score is not a number": (1, "row 3"),
        "outcome is not 0 or 1": (1, "row 6"),
    }
    with pytest.raises(InvalidInput, match="at least one row that can be used, got 2 that were all skipped"):
        run([2.0, 0.5], [1, 7], skip_bad=True)
    with pytest.raises(InvalidInput, match="look like percent"):  # not so many rows: that is another kind of score
        run([50.0, 20.0, 0.5], [1, 0, 1], skip_bad=True)


def test_a_row_is_skipped_for_one_reason_only():
    data = run([None, 0.5, 0.5], [None, 1, 0], None, [1, 2, 3], skip_bad=True).payload["data"]
    assert [(s["reason"], s["count"]) for s in data["skipped"]] == [("score is missing", 1)]
    with pytest.raises(InvalidInput, match="got 1 that were all skipped"):
        run([None], [1], None, [1], skip_bad=True)


def test_time_must_not_go_back():
    times = np.arange(N)
    times[17] = 3
    with pytest.raises(
        InvalidInput, match=r"time must not go back, got 3 after a later one - at row 17; say sort=True"
    ):
        run(SCORES, OUTCOMES, None, times)
    shuffled = np.random.default_rng(0).permutation(N)
    sorted_again = run(
        SCORES[shuffled],
        OUTCOMES[shuffled],
        KEYS[shuffled],
        MOMENTS[shuffled],
        MOMENTS[shuffled] + np.timedelta64(7, "h"),
        sort=True,
    )
    assert same(sorted_again, run(SCORES, OUTCOMES, KEYS, MOMENTS, MOMENTS + np.timedelta64(7, "h")))


def test_what_does_not_go_together():
    for options, said in (
        ({"outcome_times": MOMENTS}, "outcome_times need times"),
        ({"sort": True}, "to sort a log needs the time of each event, got none"),
        ({"times": MOMENTS, "outcome_times": MOMENTS, "delay": 3}, "got both"),
        ({"delay": "2h"}, "a delay in time needs the time of each event"),
        ({"delay": "soon"}, "delay must be a number of events or a time"),
        ({"delay": 1.5}, "delay must be a whole number"),
        ({"delay": -1}, "delay must be a whole number"),
        ({"warmup": -1}, "warmup must be a whole number"),
        ({"warmup": N}, "warmup must be less than the 400 events that have an outcome, got 400"),
        ({"bins": 0}, "bins must be a whole number"),
        ({"methods": []}, "methods must name one at least"),
        ({"methods": 3}, "methods must be names"),
        ({"methods": {"a": 3}}, "methods must map names to methods"),
    ):
        with pytest.raises(InvalidInput, match=said):
            run(**{"methods": "ops", **options})
    with pytest.raises(UnknownMethod, match="did you mean 'tops'"):
        run(methods="topps")
    known = MOMENTS.copy()
    known[5] = np.datetime64("NaT")
    with pytest.raises(
        InvalidInput,
        match="outcome time must be there where there is an outcome, got nothing - at row 5; say skip_bad=True to skip",
    ):
        run(SCORES, OUTCOMES, None, MOMENTS, known)


def test_an_outcome_that_never_comes_is_forecast_and_not_judged():
    known, outcomes = MOMENTS + np.timedelta64(1, "h"), OUTCOMES.copy()
    known[-7:], outcomes[-7:] = np.datetime64("NaT"), np.nan
    data = run(SCORES, outcomes, None, MOMENTS, known, warmup=0, keep_forecasts=True)
    assert data.payload["data"]["judged"] == N - 7 and len(data.forecasts["ops"]) == N
    assert data.payload["delay"]["never"] == 7


def test_a_log_without_any_outcome():
    with pytest.raises(InvalidInput, match="at least one outcome, got none in 2 rows"):
        run([0.5, 0.5], [None, None], None, [1, 2], [None, None])


def test_methods_in_every_form():
    for methods in ("ops", "raw, ops", ["ops"], [OPS], OPS, {"ops": OPS}, ["bm", "OPS", "ops"]):
        assert run(methods=methods).table["method"].tolist() == ["raw", "ops"]
    named = run(methods={"mine": "OPS ", "constant": "base rate"})
    assert named.table["method"].tolist() == ["raw", "mine", "constant"]
    assert named.table["log_loss"][1] == run(methods="ops").table["log_loss"][1]
    every = run(SCORES[:60], OUTCOMES[:60], methods=None)
    assert len(every.table["method"]) == 11 and not any(np.isnan(every.table["log_loss"]))
    mine = run(methods=[calibeat.Method(calibeat.Temperature(), calibeat.ONS())]).payload["methods"][1]
    assert "Temperature" in mine["name"] and "Temperature" in mine["about"]


def test_periods_are_of_the_calendar():
    def labels(step, n=1200):
        s, y = drifting(n)
        times = np.datetime64("2023-11-20", "us") + np.arange(n) * np.timedelta64(step, "s")
        return [period["label"] for period in run(s, y, None, times).payload["reliability"]["periods"][1:]]

    assert labels(7200)[:3] == ["Nov 2023", "Dec 2023", "Jan 2024"]
    assert labels(20)[0] == "20 Nov 2023, 00 h"
    assert labels(400)[0] == "20 Nov 2023"
    assert labels(50_000)[:2] == ["Q4 2023", "Q1 2024"]
    assert labels(200_000)[:2] == ["2024", "2025"]  # 2023 is warm-up
    assert " to " in labels(20_000_000)[0]
    assert len(labels(0)) == 2 and " to " in labels(0)[0]


# ---- the result --------------------------------------------------------------------------------------------------


def test_the_table_and_the_windows_are_plain_arrays():
    result = run(SCORES, OUTCOMES, None, MOMENTS)
    assert all(len(column) == 2 for column in result.table.values())
    low, middle, high = (result.table[f"log_loss_{end}"][1] for end in ("low", "vs_raw", "high"))
    assert low <= middle <= high and np.isnan(result.table["log_loss_vs_raw"][0])
    windows = result.windows
    assert windows["start"].dtype == np.dtype("datetime64[s]")
    assert all(a < b for a, b in pairwise(windows["start"]))
    assert repr(result).startswith("BacktestResult(2 methods, 380 events, ")
    assert run().windows["start"].dtype == np.int64
    assert result.forecasts == {}


def test_the_page_is_written_whole(tmp_path):
    page = tmp_path / "new" / "page.html"
    run(title="A <title>").to_html(page)
    assert "A &lt;title&gt;" in page.read_text() and [path.name for path in page.parent.iterdir()] == ["page.html"]


def test_the_plot_draws_the_windows_on_given_axes():
    pytest.importorskip("matplotlib")
    import matplotlib as mpl
    from matplotlib.figure import Figure

    before = dict(mpl.rcParams)
    result = run(methods=["auto", "ops"])
    ax = Figure().add_subplot()
    assert result.plot(ax, measure="log_loss") is ax
    assert [line.get_label() for line in ax.lines] == ["raw", "AUTO", "OPS"]
    np.testing.assert_array_equal(ax.lines[2].get_ydata(), result.windows["methods"]["ops"]["log_loss"])
    assert ax.get_ylabel() == "log-loss" and ax.get_xlabel() == "event"
    assert run(SCORES, OUTCOMES, None, MOMENTS).plot().get_xlabel() == "time"
    assert dict(mpl.rcParams) == before
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()
    with pytest.raises(InvalidInput, match="measure must be"):
        result.plot(ax, measure="auc")
    with pytest.raises(InvalidInput, match="ax must be axes"):
        result.plot("here")


def test_no_picture_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtra, match=r"matplotlib.*calibeat\[plot\]"):
        run().plot()


def test_missing_is_missing():
    for value in (None, float("nan"), np.float32("nan"), "", "  "):
        assert is_missing(value)
    assert not is_missing(0) and not is_missing("0")
