"""What `calibeat.backtest` may be given: the path of a log, a frame and names, or columns, under either name."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from class_logs import stream
from streams import drifting

import calibeat
from calibeat import InvalidInput
from calibeat.cli import main as cli

N = 400
SCORES, OUTCOMES = drifting(N)
TIMES = np.datetime64("2024-01-01", "us") + np.arange(N) * np.timedelta64(1, "h")
FRAME = pd.DataFrame(
    {
        "p": SCORES,
        "y": OUTCOMES.astype(int),
        "at": TIMES,
        "known_at": TIMES + np.timedelta64(30, "h"),
        "land": np.where(np.arange(N) % 3 == 0, "fr", "it"),
    }
)
NAMED = {"score": "p", "outcome": "y", "time": "at", "outcome_time": "known_at"}


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    FRAME.to_csv("log.csv", index=False)
    FRAME.to_parquet("log.parquet")
    lines = FRAME.astype({"at": str, "known_at": str}).to_dict("records")
    Path("log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


def table(result):
    return {name: column.tolist() for name, column in result.table.items()}


# ---- files -------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("name", ["log.csv", "log.parquet", "log.jsonl", "log.*sv"])
def test_a_path_is_read_as_the_command_reads_it(capsys, name):
    result = calibeat.backtest(name, methods="ops", keep_forecasts=True)
    columns = calibeat.backtest(FRAME, **NAMED, methods="ops", keep_forecasts=True)
    assert table(result)["log_loss"] == table(columns)["log_loss"]
    np.testing.assert_array_equal(result.forecasts["ops"], columns.forecasts["ops"])
    assert cli.main(["backtest", name, "--methods", "ops", "--json"]) == 0
    typed = json.loads(capsys.readouterr().out)
    assert typed["table"] == result.payload["table"] and typed["data"]["columns"] == result.payload["data"]["columns"]
    assert result.payload["command"] == f"calibeat.backtest({name!r}, methods='ops')"


def test_a_path_may_be_a_path_and_its_columns_may_be_named(here):
    log = here / "log.parquet"
    found = calibeat.backtest(log, score="p", outcome="y", key="land", groups=["land"], time="none", methods="ops")
    assert found.payload["data"]["keys"] == 2 and found.payload["data"]["span"] is None
    assert "AUTO + groups" in found.table["method"]
    rival = calibeat.backtest(log, rivals=["p"], score=["p", "p"], methods="ops")
    assert {"ops", "p"} <= set(rival.table["method"].tolist())
    assert calibeat.backtest(log, methods="ops").payload["offered"]["columns"] == ["land"]
    with pytest.raises(InvalidInput, match="event id must be there once only"):
        calibeat.backtest(log, id="land")


@pytest.mark.usefixtures("here")
def test_forecasts_of_several_files_stand_in_the_order_of_the_rows():
    Path("logs").mkdir()
    bad = FRAME.astype({"p": object})
    bad.loc[5, "p"] = "?"
    bad[:150].to_csv("logs/1.csv", index=False)
    bad[150:].to_csv("logs/2.csv", index=False)
    both = calibeat.backtest("logs", methods="ops", skip_bad=True, keep_forecasts=True).forecasts["ops"]
    assert len(both) == N and np.flatnonzero(np.isnan(both)).tolist() == [5]
    whole = calibeat.backtest(bad, **NAMED, methods="ops", skip_bad=True, keep_forecasts=True).forecasts["ops"]
    np.testing.assert_array_equal(both, whole)


@pytest.mark.usefixtures("here")
def test_many_classes_of_a_file():
    P, y = stream(N)
    frame = pd.DataFrame(P, columns=["p_cat", "p_dog", "p_bird"]).assign(truth=np.array(["cat", "dog", "bird"])[y])
    frame.to_csv("classes.csv", sep=";", index=False)
    found = calibeat.backtest("classes.csv", score="p_*", label="truth", delimiter=";", methods="multi")
    assert found.table["method"].tolist() == ["raw", "multi"] and found.payload["classes"]["total"] == 3
    names = ["cat", "dog", "bird"]
    frame.rename(columns={"truth": "label"}).to_csv("guessed.csv", index=False)
    again = calibeat.backtest("guessed.csv", score=["p_cat", "p_dog", "p_bird"], classes=names, methods="multi")
    assert table(again)["log_loss"] == table(found)["log_loss"]


@pytest.mark.usefixtures("here")
def test_what_is_said_of_the_columns_names_arguments_too():
    off = FRAME.assign(y=(np.random.default_rng(0).random(N) < SCORES**4).astype(int))
    off.assign(at=off["at"].dt.strftime("%d/%m/%Y %H:%M")).drop(columns="known_at").to_csv("dates.csv", index=False)
    told = calibeat.backtest("dates.csv", methods="ops").payload["verdict"]
    assert told["headline"].startswith("Settle first") and "(time_format=)" in told["caveats"][0]
    assert "time='none'" in told["caveats"][0] and "--" not in told["caveats"][0]
    sure = calibeat.backtest("dates.csv", methods="ops").payload["answer"]["sure"]
    assert "outcome_time=" in sure and "--" not in sure


@pytest.mark.usefixtures("here")
def test_mistakes_name_arguments_and_not_options():
    FRAME.rename(columns={"y": "is_click"}).to_csv("odd.csv", index=False)
    for log, options, said in (
        ("nowhere.csv", {}, "log must be a file, a folder, a glob or -, got 'nowhere.csv', which is not there"),
        ("odd.csv", {}, "say outcome= with one of .* did you mean 'is_click'"),
        ("log.csv", {"outcome": "yy"}, "outcome column 'yy' is not in log.csv"),
        ("log.csv", {"outcome_time": "known_at", "time": "none"}, "outcome_time= needs time= to be compared with"),
        ("log.csv", {"outcome": OUTCOMES}, "outcome must name a column of the log, got ndarray"),
    ):
        with pytest.raises(InvalidInput, match=said):
            calibeat.backtest(log, **options)
    with pytest.raises(InvalidInput, match="columns must be named, got 'p'; say score='p', outcome='y'"):
        calibeat.backtest("log.csv", "p", "y")


@pytest.mark.usefixtures("here")
def test_columns_that_look_like_scores_of_many_classes_are_not_taken_for_one():
    FRAME.rename(columns={"p": "p_cat"}).assign(p_dog=0.1, p_ox=0.2).to_csv("pets.csv", index=False)
    said = "if they are scores of many classes, say score= with 'p_[*]' and label= with the class$"
    with pytest.raises(InvalidInput, match=said):
        calibeat.backtest("pets.csv")


# ---- frames and columns ------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("here")
def test_either_name_will_do():
    plain = table(calibeat.backtest(FRAME, **NAMED, methods="ops"))
    plural = {"score": "p", "outcomes": "y", "times": "at", "outcome_times": "known_at"}
    for names in (
        {"outcome": FRAME["y"], "time": FRAME["at"], "outcome_time": FRAME["known_at"]},
        {"outcomes": FRAME["y"], "times": FRAME["at"], "outcome_times": FRAME["known_at"]},
    ):
        found = table(calibeat.backtest(FRAME["p"], **names, methods="ops"))
        assert found["log_loss"] == plain["log_loss"]
    assert table(calibeat.backtest(FRAME, **plural, methods="ops"))["log_loss"] == plain["log_loss"]


@pytest.mark.parametrize(
    ("given", "options", "said"),
    [
        (FRAME, {**NAMED, "times": "at"}, "time and times are the same, got both"),
        (FRAME["p"], {"outcome": OUTCOMES, "outcomes": OUTCOMES}, "outcome and outcomes are the same, got both"),
        (FRAME, {**NAMED, "key": FRAME["land"]}, "key must name a column of the data frame, got Series"),
        (FRAME["p"], {"outcome": OUTCOMES, "time": "at"}, "time must be a column .* got the name 'at' and no frame"),
        (FRAME["p"], {"outcome": OUTCOMES, "label": "y"}, "label must be given with the path of a log only, got 'y'"),
        (FRAME["p"], {}, "outcomes must be a one-dimensional array, got None"),
        (FRAME, {}, "score must name a column of the data frame, got None"),
    ],
)
def test_contradictions_are_refused(given, options, said):
    with pytest.raises(InvalidInput, match=said):
        calibeat.backtest(given, **options)


def test_names_in_the_place_of_columns_say_what_to_do():
    with pytest.raises(InvalidInput, match="columns must be named, got 'p'; say score='p', outcome='y'"):
        calibeat.backtest(FRAME, "p", "y")
    with pytest.raises(InvalidInput, match=r"say score='p', outcome=\.\.\."):
        calibeat.backtest(FRAME, "p")
