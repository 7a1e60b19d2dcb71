"""Columns that nobody named: guessed by common names, tried on the first rows, and always reported."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from streams import drifting

from calibeat.backtest.read import files as files_module
from calibeat.backtest.read import rows as rows_module
from calibeat.backtest.read.files import Columns
from calibeat.cli import main as cli
from calibeat.errors import InvalidInput

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

N = 300
SCORES, OUTCOMES = drifting(N)
TIMES = np.datetime64("2024-01-01T00:00:00") + np.arange(N) * np.timedelta64(1, "h")
KNOWN = TIMES + np.timedelta64(30, "h")
AT_ONCE = "This result assumes that every outcome is known at once."


@pytest.fixture
def typed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def typing(*arguments):
        code = cli.main(["backtest", *map(str, arguments), "--methods", "ops"])
        said = capsys.readouterr()
        return code, " ".join(said.out.split()), said.err

    return typing


def log(name="log.csv", **columns):
    """A CSV of scores and outcomes with further columns."""
    columns = {"score": SCORES, "outcome": OUTCOMES.astype(int), **columns}
    rows = zip(*columns.values(), strict=True)
    Path(name).write_text("\n".join([",".join(columns), *(",".join(map(str, row)) for row in rows)]) + "\n")
    return name


def told(typed, *arguments):
    code, out, err = typed(*arguments, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


@pytest.mark.parametrize(
    ("time", "known", "number"),
    [
        ("timestamp", "outcome_time", "id"),
        ("at", "known_at", "event_id"),
        ("Event Time", "labelTime", "UUID"),
        ("scored_at", "conversion_time", "transaction_id"),
        ("date", "resolved_at", "request_id"),
    ],
)
def test_times_and_ids_are_guessed_and_reported(typed, time, known, number):
    name = log(**{number: np.arange(N), time: TIMES, known: KNOWN})
    named = told(typed, name, "--time", time, "--outcome-time", known, "--id", number)
    found = told(typed, name)
    assert found["table"] == named["table"] and found["delay"]["quantiles"]["50%"] == 30 * 3600
    assert found["data"]["columns"] == {
        "score": {"name": "score", "guessed": True},
        "outcome": {"name": "outcome", "guessed": True},
        "time": {"name": time, "guessed": True},
        "outcome time": {"name": known, "guessed": True},
        "id": {"name": number, "guessed": True},
    }
    out = typed(name, "--report", "r.html")[1]
    assert f"time in '{time}' (guessed), outcome time in '{known}' (guessed), id in '{number}' (guessed)" in out
    assert AT_ONCE not in out and f"{known}</bdi> (guessed from its name)" in Path("r.html").read_text()


def test_an_outcome_time_that_is_not_used_is_reported_in_the_verdict(typed):
    name = log(time=TIMES, outcome_time=KNOWN)
    looks = "The column 'outcome_time' looks like the times at which outcomes were known, but it was not used: "
    for options, reason in (
        (("--outcome-time", "none"), "--outcome-time none was given."),
        (("--time", "none"), "the times of the events are not known: 'time' was not used, as --time none was given."),
    ):
        found = told(typed, name, *options)
        assert found["delay"] is None and f"{AT_ONCE} {looks}{reason}" in found["verdict"]["caveats"]
    assert f"{AT_ONCE} {looks}" in typed(name, "--time", "none", "--report", "r.html")[1]
    assert AT_ONCE in Path("r.html").read_text()
    delayed = told(typed, name, "--delay", "3")
    assert delayed["delay"]["events_quantiles"]["50%"] == 3
    assert f"This result assumes outcomes as late as --delay says. {looks}--delay was given." in " ".join(
        delayed["verdict"]["caveats"]
    )
    assert AT_ONCE in " ".join(told(typed, log("alone.csv", outcome_time=KNOWN))["verdict"]["caveats"])


@pytest.mark.parametrize(
    ("times", "known", "reason"),
    [
        (TIMES, [f"{k % 28 + 1}/12/2024" for k in range(N)], "it cannot be read, got '1/12/2024'"),
        (TIMES, [""] * N, "it is empty"),
        (TIMES, TIMES - np.timedelta64(1, "D"), "300 of the first 300 are before the time of their event"),
        (["soon"] * N, KNOWN, "the times of the events are not known: 'time' was not used, as it cannot be read, got"),
        ([*TIMES[:-1], ""], KNOWN, "the times of the events are not known: 'time' was not used, as some of its"),
        (np.arange(N), [1e300 if k else 1 for k in range(N)], "it cannot be read (times must be dates or seconds"),
    ],
)
def test_a_guess_that_the_first_rows_contradict_is_dropped(typed, times, known, reason):
    found = told(typed, log(time=times, outcome_time=known))
    assert found["delay"] is None and "outcome time" not in found["data"]["columns"]
    assumption = next(sentence for sentence in found["verdict"]["caveats"] if AT_ONCE in sentence)
    assert reason in assumption
    assert "%" not in found["verdict"]["headline"] and "later" not in found
    assert "Say how it is written (--time-format), how late outcomes are (--delay), or that it is none" in assumption


def test_no_percentage_before_a_time_that_cannot_be_read_is_settled(typed):
    rng = np.random.default_rng(0)
    off = {"score": SCORES, "outcome": (rng.random(N) < SCORES**4).astype(int)}
    name = log("dates.csv", **off, time=[f"{k % 28 + 1}/12/2024" for k in range(N)])
    found = told(typed, name)["verdict"]
    assert found["headline"].startswith("Settle first when outcomes were known: the column 'time' could not be used")
    assert "looks like the times of the events, but it was not used: it cannot be read" in found["caveats"][0]
    answer = told(typed, name)["answer"]
    assert answer["library"] == [] and answer["service"] is None
    assert "Run the backtest again" in answer["note"] and "--time-format" in answer["sure"]
    for settled in (("--time", "none"), ("--delay", "3")):
        assert "Settle first" not in told(typed, name, *settled)["verdict"]["headline"]
    told_apart = told(typed, log("gaps.csv", **off, time=[*TIMES[:-1], ""]))  # nothing is wrong with how it is written
    assert "Settle first" not in told_apart["verdict"]["headline"] and "some of its" in str(told_apart["data"]["notes"])


def test_what_was_dropped_is_used_where_it_is_named(typed):
    code, _, err = typed(log(time=["soon"] * N), "--time", "time")
    assert code == 2 and "time must be a date of the years 1 to 9999 (ISO 8601) or a number, got 'soon'" in err
    code, _, err = typed(log(time=["soon"] * N, known=KNOWN), "--outcome-time", "known")
    assert code == 2 and "--outcome-time needs --time" in err
    numbers = pa.table({"score": SCORES, "outcome": OUTCOMES, "time": TIMES, "outcome_time": [True] * N})
    pq.write_table(numbers, "log.parquet")
    code, _, err = typed("log.parquet", "--outcome-time", "outcome_time")
    assert code == 2 and "outcome time column must hold numbers, got bool" in err
    assert "it cannot be read (outcome time column must hold numbers, got bool)" in typed("log.parquet")[1]


def test_times_that_go_back_are_an_error_that_names_the_guess(typed):
    code, _, err = typed(log(date=TIMES[::-1]))
    assert code == 2 and "time must not go back" in err and "say --sort to sort it in memory" in err
    assert "the time was guessed to be in 'date': say --time none to leave it out" in err
    assert typed("log.csv", "--time", "none")[0] == 0
    out = typed("log.csv", "--time", "none")[1]
    assert "The column 'date' looks like the time of the events, but it was not used: --time none was given." in out
    assert typed("log.csv", "--sort")[0] == 0


def test_ids_of_people_are_no_ids_of_events(typed):
    out = typed(log(id=np.arange(N) % 40))[1]
    assert "The column 'id' looks like the id of the events, but it was not used: 87% of its values come again" in out
    nested = pa.table({"score": SCORES, "outcome": OUTCOMES, "id": [[1]] * N})
    pq.write_table(nested, "log.parquet")
    assert "it was not used: it holds list" in typed("log.parquet")[1]


def test_an_event_that_is_there_twice_is_found(typed):
    twice = np.arange(N)
    twice[200] = 17
    code, _, err = typed(log(id=twice))
    assert code == 2 and "event id must be there once only, got '17' again - at row 201 of log.csv" in err
    assert "the id was guessed to be in 'id': say --id none to leave it out" in err
    skipped = told(typed, "log.csv", "--skip-bad")["data"]["skipped"]
    assert [(s["reason"], s["count"]) for s in skipped] == [("event id came before", 1)]
    assert typed("log.csv", "--id", "none")[0] == 0


def test_guessed_ids_take_little_memory(typed, monkeypatch):
    monkeypatch.setattr(rows_module, "MOST_GUESSED_IDS", 100)
    monkeypatch.setattr(files_module, "CHUNK", 120)
    twice = np.arange(N)
    twice[200] = 17
    pq.write_table(pa.table({"score": SCORES, "outcome": OUTCOMES, "id": twice}), "log.parquet")
    out = typed("log.parquet")[1]
    assert "The ids of the first 120 events were compared. Name the column (--id) to compare all." in out
    assert typed("log.parquet", "--id", "id")[0] == 2


def test_a_column_that_was_named_is_not_guessed_for_something_else(typed):
    found = told(typed, log(id=np.arange(N) % 3, date=np.arange(N)), "--key", "id")
    assert "id" not in found["data"]["columns"] and found["data"]["keys"] == 3


def test_a_later_file_without_the_guessed_column(typed):
    Path("logs").mkdir()
    log("logs/1.csv", time=TIMES)
    log("logs/2.csv")
    code, _, err = typed("logs")
    assert code == 2 and "time column 'time' is not in logs/2.csv" in err and "say --time none to leave it out" in err


def test_a_column_called_none():
    columns = Columns({"time": "none", "score": "none"})
    assert columns.pick(["p", "y", "none"], "log") == ["none", "y"]
    with pytest.raises(InvalidInput, match="score column 'none' is not in log"):
        Columns({"score": "none"}).pick(["p", "y"], "log")
