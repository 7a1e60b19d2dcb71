"""Logs of many classes: what is read, and which row and column a mistake is in."""

from __future__ import annotations

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from class_logs import NAMES, columns, stream, write

import calibeat
from calibeat import InvalidInput, UnknownMethod
from calibeat.backtest.read import rows
from calibeat.cli.main import main


def refused(**changed):
    P, y = stream(60)
    arguments = {"scores": P, "outcomes": y, "methods": "raw", **changed}
    with pytest.raises(InvalidInput) as error:
        calibeat.backtest(arguments.pop("scores"), arguments.pop("outcomes"), **arguments)
    return str(error.value)


def with_value(row, column, value):
    P, _ = stream(60)
    P[row, column] = value
    return P


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"scores": with_value(17, 1, np.nan)},
            "a number of 0 or more, got nothing - at row 17, column '1'; say skip_bad=True",
        ),
        ({"scores": with_value(17, 2, -0.5)}, "score must be 0 or more, got -0.5 - at row 17, column '2'"),
        ({"scores": with_value(3, 0, np.inf)}, "score must be a number of 0 or more, got inf - at row 3, column '0'"),
        ({"scores": with_value(9, 0, 2.0)}, "scores of an event must sum to 1 within 1e-06, got "),
        ({"outcomes": [0, 1, 7] * 20}, "label must be one of the 3 classes '0', '1', '2', got 7 - at row 2"),
        ({"positive": 1}, "positive must not be given with many classes"),
        ({"threshold": 0.3}, "threshold and costs must not be given with many classes"),
        ({"outcomes": [0] * 59}, "must have the same length"),
        ({"outcomes": [{}, 1] * 30}, "label must be text or a number, got {} - at row 0"),
        ({"scores": [[0.5], [0.5]]}, "scores must be a one-dimensional array, got shape (2, 1)"),
        ({"scores": [[0.5, 0.5], [1.0]]}, "scores must be a matrix, a column for each class, got a ragged list"),
        ({"classes": ["a", "b"]}, "classes must be 3 names, one for each column of scores, got 2"),
        ({"keys": ["a"] * 59 + [None]}, "key must be there, got nothing - at row 59; say blank_key=NAME"),
        ({"keys": ["a"] * 59}, "must have the same length"),
        ({"rivals": {"a": [0.5] * 60}}, "rivals must not be given with many classes"),
        ({"warmup": 60}, "warmup must be less than the 60 events that have a label, got 60"),
        ({"methods": []}, "methods must name one at least"),
        ({"methods": 3}, "methods must be names, got int"),
        ({"times": np.arange(60), "outcome_times": [None] * 60}, "outcome time must be there where there is a label"),
        ({"outcomes": [None] * 60}, "log must hold at least one label, got none in 60 rows"),
    ],
)
def test_mistakes_are_named_by_row_and_column(changed, message):
    assert message in refused(**changed)


def test_other_mistakes():
    with pytest.raises(
        UnknownMethod, match="one of raw, fts, swts, ots, multi, base rate, got 'mult' - did you mean 'multi'"
    ):
        calibeat.backtest(*stream(60), methods="mult")
    with pytest.raises(InvalidInput, match="classes must be given with a matrix of scores only"):
        calibeat.backtest([0.5, 0.6], [0, 1], classes=["a", "b"])
    with pytest.raises(InvalidInput, match="outcome_times need times"):
        calibeat.backtest(*stream(60), outcome_times=np.arange(60))
    P, y = stream(60)
    with pytest.raises(InvalidInput, match="log must hold at least one label"):
        calibeat.backtest(P, [None] * 60, times=np.arange(60), outcome_times=[None] * 60)
    with pytest.raises(InvalidInput, match="at least one row that can be used, got 60 that were all skipped"):
        calibeat.backtest(P - 1.0, y, skip_bad=True, score_kind="percent")


@pytest.mark.parametrize(
    ("scores", "hint"),
    [
        (np.log, "the scores look like logits: say score_kind='logit'"),
        (lambda P: np.log(P) + 20.0, "the scores look like logits: say score_kind='logit'"),
        (lambda P: 100.0 * P, "the scores look like percent: say score_kind='percent'"),
    ],
)
def test_scores_of_another_kind_are_told(scores, hint):
    assert hint in refused(scores=scores(stream(60)[0]))


def test_logits_and_percent_are_the_same_log():
    P, y = stream(300)
    expected = calibeat.backtest(P, y).table["log_loss"]
    logits = calibeat.backtest(np.log(P) + 3.0, y, score_kind="logit")
    percent = calibeat.backtest([[100.0 * p for p in row] for row in P], y, score_kind="percent")
    assert np.allclose(logits.table["log_loss"], expected) and np.allclose(percent.table["log_loss"], expected)


def test_bad_rows_are_skipped_and_counted():
    P, y = stream(200)
    P[3, 0], P[4] = np.nan, [0.5, 0.6, 0.7]
    labels = [*y.tolist()[:-1], 9]
    result = calibeat.backtest(P, labels, skip_bad=True, keep_forecasts=True)
    reasons = {entry["reason"]: (entry["count"], entry["first"]) for entry in result.payload["data"]["skipped"]}
    assert reasons == {
        "score is missing": (1, "row 3"),
        "scores do not sum to 1": (1, "row 4"),
        "label is no class": (1, "row 199"),
    }
    assert np.isnan(result.forecasts["raw"][[3, 4, 199]]).all() and result.payload["data"]["used"] == 197


def test_frames_name_their_classes():
    P, y = stream(200)
    frame = pl.DataFrame({f"p_{name}": P[:, k] for k, name in enumerate(NAMES)})
    labels = pl.Series([NAMES[k] for k in y])
    result = calibeat.backtest(frame, labels)
    assert sorted(result.payload["classes"]["names"]) == sorted(NAMES)
    assert result.table["log_loss"].tolist() == calibeat.backtest(P, y).table["log_loss"].tolist()
    named = calibeat.backtest(P, [NAMES[k] for k in y], classes=NAMES)
    assert sorted(named.payload["classes"]["names"]) == sorted(NAMES)


# ---- the command -------------------------------------------------------------------------------------------------


def run(capsys, *typed):
    status = main(["backtest", *map(str, typed)])
    shown = capsys.readouterr()
    return status, shown.out, shown.err


def test_a_log_on_disk_is_the_log_in_memory(tmp_path, capsys):
    import json

    P, y = stream(3000)
    expected = calibeat.backtest(P, y).table["log_loss"].tolist()
    log = columns()
    lists = {"p": pa.FixedSizeListArray.from_arrays(pa.array(P.reshape(-1)), 3), "label": pa.array(y)}
    ragged = {"p": pa.array(np.log(P).tolist()), "label": pa.array(y)}
    logs = (
        (write(tmp_path / "log.parquet", log), ["--scores", "p_cat,p_dog,p_bird", "--label", "y"]),
        (write(tmp_path / "log.csv", log), ["--scores", "p_*"]),
        (write(tmp_path / "lists.parquet", lists), ["--scores", "p", "--classes", "cat, dog, bird"]),
        (write(tmp_path / "logits.parquet", ragged), ["--scores", "p", "--logits"]),
    )
    for path, typed in logs:
        status, out, _ = run(capsys, path, *typed, "--json")
        payload = json.loads(out)
        assert status == 0 and np.allclose([row["log_loss"] for row in payload["table"]], expected)
        assert payload["classes"]["total"] == 3
    assert sorted(payload["classes"]["names"]) == ["0", "1", "2"]


def test_what_is_printed_and_written(tmp_path, capsys):
    path = write(tmp_path / "log.parquet", columns())
    report, out = tmp_path / "report.html", tmp_path / "out.parquet"
    status, shown, _ = run(capsys, path, "--scores", "p_*", "--label", "y", "--report", report, "--out", out)
    shown = " ".join(shown.split())
    assert status == 0 and shown.startswith("Use MULTI: ")
    for words in ("top-label CE", "class-wise CE", "SWTS", "FTS", "OTS", "scores in 'p_cat, p_dog, p_bird'"):
        assert words in shown
    assert "The 3 classes are 'cat', 'dog', 'bird'." in shown and "AUC" not in shown
    assert report.read_text().count("Class by class") >= 1
    table = pq.read_table(out)
    assert table.num_rows == 3000 and table.column("forecast_multi").type == pa.list_(pa.float64(), 3)
    assert np.allclose([sum(row) for row in table.column("forecast_multi").to_pylist()], 1.0)


def test_late_labels_by_time(tmp_path, capsys):
    import json

    log = columns(800)
    known = log["at"] + np.timedelta64(7200, "s")
    path = write(tmp_path / "log.parquet", {**log, "known_at": known})
    status, out, _ = run(capsys, path, "--scores", "p_*", "--time", "at", "--outcome-time", "known_at", "--json")
    payload = json.loads(out)
    assert status == 0 and payload["delay"]["quantiles"]["50%"] == pytest.approx(7200.0, rel=0.02)
    status, out, _ = run(capsys, path, "--scores", "p_*", "--delay", "2h", "--json")
    assert json.loads(out)["table"][-1]["log_loss"] == payload["table"][-1]["log_loss"]


def test_keys_on_disk_and_in_memory(tmp_path, capsys):
    import json

    log = columns(900)
    keys = [f"k{i % 4}" for i in range(900)]
    path = write(tmp_path / "log.parquet", {**log, "shop": keys})
    status, out, _ = run(capsys, path, "--scores", "p_*", "--label", "y", "--key", "shop", "--delay", "20", "--json")
    P, y = stream(900)
    result = calibeat.backtest(P, y, keys, delay=20)
    found = json.loads(out)
    assert status == 0 and found["keys"]["total"] == 4
    assert [row["log_loss"] for row in found["table"]] == result.table["log_loss"].tolist()
    assert found["keys"]["rows"] == result.payload["keys"]["rows"]


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (["--scores", "q_*"], "which is none"),
        (["--scores", "p_cat"], "several columns, one for each class, or one column of lists, got 'p_cat' of string"),
        (["--scores", "p_*", "--label", "z"], "label column 'z' is not in"),
        (["--scores", "p_*", "--score", "p_cat"], "--score must not be given with --scores"),
        (["--scores", "p_*", "--rival", "p_cat"], "--rival must not be given with --scores"),
        (["--scores", "p_*", "--threshold", "0.5"], "--threshold must not be given with --scores"),
        (["--scores", "p_*", "--key", "z"], "key column 'z' is not in"),
        (["--label", "y"], "--label and --classes are for many classes"),
        (["--scores", "p_*", "--methods", "auto"], "method must be one of raw, fts, swts, ots, multi"),
        (["--scores", "p_cat,p_dog", "--label", "y"], "label must be one of the 2 classes 'cat', 'dog', got 'bird'"),
    ],
)
def test_mistakes_on_the_command_line(tmp_path, capsys, typed, message):
    path = write(tmp_path / "log.csv", columns(100))
    if "p_cat,p_dog" in typed:
        log = columns(100)
        total = log["p_cat"] + log["p_dog"]
        path = write(tmp_path / "two.csv", {**log, "p_cat": log["p_cat"] / total, "p_dog": log["p_dog"] / total})
    status, _, err = run(capsys, path, *typed)
    assert status == 2 and message in err


def test_mistakes_in_files_are_named(tmp_path, capsys):
    log = columns(100)
    log["p_dog"][41] = -0.5
    _, _, err = run(capsys, write(tmp_path / "log.csv", log), "--scores", "p_*")
    assert "score must be 0 or more, got '-0.5' - at row 42 of" in err and "column 'p_dog'" in err
    lists = {"p": pa.array([[0.5, 0.5], [0.2, 0.3, 0.5]]), "label": pa.array([0, 1])}
    _, _, err = run(capsys, write(tmp_path / "lists.parquet", lists), "--scores", "p")
    assert "scores must be 2 numbers, as in the rows before, got 3 - at row 2 of" in err
    lists = {"p": pa.array([[0.5, 0.5], [-1.0, 2.0], None]), "label": pa.array([0, 1, 1])}
    _, _, err = run(capsys, write(tmp_path / "lists.parquet", lists), "--scores", "p")
    assert "got -1.0 - at row 2 of" in err and "column 'p[0]'" in err
    no_label = {name: values for name, values in columns(50).items() if name != "y"}
    _, _, err = run(capsys, write(tmp_path / "bare.csv", no_label), "--scores", "p_*")
    assert "label column must be named, got no column of a usual name" in err
    write(tmp_path / "part-1.csv", columns(30))
    write(tmp_path / "part-2.csv", {k: v for k, v in columns(30).items() if k != "p_dog"})
    _, _, err = run(capsys, str(tmp_path / "part-*.csv"), "--scores", "p_*")
    assert "score column 'p_dog' is not in" in err
    empty = {"p": pa.array([[], []], pa.list_(pa.float64())), "label": pa.array([0, 1])}
    _, _, err = run(capsys, write(tmp_path / "empty.parquet", empty), "--scores", "p")
    assert "scores must be of 2 to 1,000,000 classes, got " in err


def test_files_one_after_the_other_and_times_that_cannot_be_read(tmp_path, capsys):
    log = columns(60)
    write(tmp_path / "part-1.csv", {name: values[:30] for name, values in log.items()})
    write(tmp_path / "part-2.csv", {name: values[30:] for name, values in log.items()})
    status, out, _ = run(capsys, str(tmp_path / "part-*.csv"), "--scores", "p_*", "--methods", "raw")
    assert status == 0 and "60 rows, 60 of them replayed" in " ".join(out.split())  # paths are long
    broken = {**log, "at": [str(moment) for moment in log["at"][:-1]] + ["noon"]}
    status, _, err = run(capsys, write(tmp_path / "log.csv", broken), "--scores", "p_*", "--time", "at")
    assert status == 2 and "time must be a date" in err and "got 'noon' - at row 60" in err


def test_sums_that_are_no_other_kind_of_score_have_no_hint():
    assert refused(scores=0.5 * stream(60)[0]).endswith("got 0.5 - at row 0")


def test_scores_in_text():
    P, y = stream(80)
    expected = calibeat.backtest(P, y, methods="raw").table["log_loss"]
    text = [[f"{float(100.0 * p)!r}%" for p in row] for row in P]
    assert np.allclose(calibeat.backtest(text, y, methods="raw", score_kind="percent").table["log_loss"], expected)
    text = [[repr(float(p)).replace(".", ",") for p in row] for row in P]
    assert np.allclose(calibeat.backtest(text, y, methods="raw", decimal=",").table["log_loss"], expected)
    text[3][1] = "high"
    with pytest.raises(InvalidInput, match="got 'high' - at row 3, column '1'"):
        calibeat.backtest(text, y, decimal=",")


def test_a_log_of_several_chunks(monkeypatch):
    monkeypatch.setattr(rows, "NUMBERS", 1)
    P, y = stream(45_000, 2)
    result = calibeat.backtest(P, y, methods="raw", keep_forecasts=True)
    assert result.payload["data"]["used"] == 45_000 and np.allclose(result.forecasts["raw"], P)
