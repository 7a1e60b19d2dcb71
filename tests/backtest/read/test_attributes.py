"""Attributes of a log: columns, hours, weekdays and months of times, their names, and which columns are offered."""

from __future__ import annotations

import re
from datetime import datetime
from zoneinfo import ZoneInfo

import numpy as np
import pytest

import calibeat
from calibeat import Calibrator, Groups, InvalidInput
from calibeat._util.times import part_of_time, zone_named
from calibeat.backtest.options import Options
from calibeat.backtest.read.attributes import Attribute, GroupsOfLog, could_be_attribute, names_in

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

from calibeat.cli import main as cli  # noqa: E402 - only where pyarrow is

N = 1200
RNG = np.random.default_rng(3)
SCORES = RNG.random(N)
OUTCOMES = (RNG.random(N) < SCORES).astype(np.int8)
AT = np.datetime64("2024-03-01T00:00:00", "us") + np.arange(N) * np.timedelta64(97, "m")
COUNTRY = np.array(["fr", "it", "de"])[RNG.integers(0, 3, N)]


def test_what_a_person_types():
    assert names_in("country, hour(event at),weekday(at)") == ["country", "hour(event at)", "weekday(at)"]
    assert Attribute.of("month(at)") == Attribute("month(at)", "at", "month")
    assert Attribute.of("hour(at)", ["hour(at)"]) == Attribute("hour(at)", "hour(at)")
    assert Attribute.of("minute(at)") == Attribute("minute(at)", "minute(at)")
    with pytest.raises(InvalidInput, match="'a' twice"):
        GroupsOfLog.of("a,b,a", Options())
    with pytest.raises(InvalidInput, match="at most 16 attributes, got 17"):
        GroupsOfLog.of([f"a{k}" for k in range(17)], Options())


@pytest.mark.parametrize("name", ["UTC", "+05:30", "America/New_York", "Australia/Lord_Howe"])
def test_parts_of_times_are_those_of_the_zone(name):
    moments = np.arange(0, 3 * 10**17, 10**13) // 10**2  # ten years in steps of a day and more
    zone = zone_named(name)
    local = [datetime.fromtimestamp(int(at) / 10**6, tz=zone) for at in moments]
    assert part_of_time("hour", moments, zone).tolist() == [at.hour for at in local]
    assert part_of_time("weekday", moments, zone).tolist() == [at.weekday() for at in local]
    assert part_of_time("month", moments, zone).tolist() == [at.month for at in local]


def parts(zone=None):
    at = [datetime.fromisoformat(str(moment)) for moment in AT.astype("datetime64[s]")]
    at = at if zone is None else [moment.replace(tzinfo=ZoneInfo("UTC")).astimezone(ZoneInfo(zone)) for moment in at]
    return {
        "hour(at)": [moment.hour for moment in at],
        "weekday(at)": [moment.weekday() for moment in at],
        "month(at)": [moment.month for moment in at],
    }


def forecasts(columns):
    return Calibrator(groups=Groups(list(columns), seed=0)).run(SCORES, OUTCOMES, groups=columns)


def test_hours_weekdays_and_months_from_python():
    wanted = forecasts({"country": COUNTRY.tolist(), **parts()})
    names = ["country", "hour(at)", "weekday(at)", "month(at)"]
    frame = {"p": SCORES, "y": OUTCOMES, "at": AT, "country": COUNTRY}
    found = calibeat.backtest(frame, score="p", outcome="y", groups=names, methods="ops", keep_forecasts=True)
    np.testing.assert_array_equal(found.forecasts["AUTO + groups"], wanted)
    values = {"country": COUNTRY, "hour(at)": AT, "weekday(at)": AT.astype(str), "month(at)": AT}
    found = calibeat.backtest(SCORES, OUTCOMES, groups=values, methods="ops", keep_forecasts=True)
    np.testing.assert_array_equal(found.forecasts["AUTO + groups"], wanted)
    shown = {value[0] for value in found.payload["segments"]["rows"]["value"]}
    assert {"Mon", "Sun", "Mar", "fr"} <= shown
    notes = found.payload["data"]["notes"]
    assert any(
        note.startswith("The values of hour(at), weekday(at), month(at) are those of the time zone UTC; ")
        for note in notes
    )


def run(capsys, *args):
    try:
        code = cli.main(["backtest", *args]) or 0
    except SystemExit as end:
        code = int(end.code or 0)
    said = capsys.readouterr()
    return code, said.out, " ".join(said.err.split())


def table(**columns):
    return pa.table({"p": SCORES, "y": OUTCOMES, "at": AT, "country": COUNTRY, **columns})


def test_a_log_has_the_bits_of_python_in_each_kind_of_file(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    from pyarrow import csv

    n = [*(np.arange(N) % 3).tolist()[:-1], None]
    whole = table(n=pa.array(n))
    pq.write_table(whole.slice(0, 700), "log-1.parquet", row_group_size=100)
    pq.write_table(whole.slice(700), "log-2.parquet", row_group_size=100)
    csv.write_csv(whole, "log.csv")
    asked = "country,n,hour(at)"
    for log, values in (("log-*.parquet", n), ("log.csv", [None if v is None else str(v) for v in n])):
        out = f"{log[-3:]}.parquet"
        code, said, err = run(capsys, log, "--groups", asked, "--methods", "ops", "--time", "at", "--out", out)
        assert code == 0, err
        assert "Groups: country, n, hour(at)." in " ".join(said.split())
        assert re.search(r"Of \d+ segments with 100 events or more, ", " ".join(said.split()))
        wanted = forecasts({"country": COUNTRY.tolist(), "n": values, "hour(at)": parts()["hour(at)"]})
        np.testing.assert_array_equal(pq.read_table(out)["forecast_AUTO + groups"].to_numpy(), wanted)


def test_hours_are_those_of_the_zone_that_is_named(tmp_path, capsys):
    zoned = table().set_column(2, "at", pa.array(AT).cast(pa.timestamp("us", "UTC")))
    pq.write_table(zoned, tmp_path / "log.parquet")
    out = str(tmp_path / "out.parquet")
    asked = ["--groups", "hour(at)", "--time-zone", "America/New_York", "--methods", "ops", "--out", out]
    assert run(capsys, str(tmp_path / "log.parquet"), *asked)[0] == 0
    wanted = forecasts({"hour(at)": parts("America/New_York")["hour(at)"]})
    np.testing.assert_array_equal(pq.read_table(out)["forecast_AUTO + groups"].to_numpy(), wanted)


MISTAKES = {
    "country,devce": "group column 'devce' is not in",
    "hour(when)": "group hour(when) column 'when' is not in",
    "y": "groups must be known when the score is issued, got 'y', which is made of the outcome",
    "month(known_at)": "got 'month(known_at)', which is made of the outcome time",
    "share": "share must be a string, a whole number, a bool or None, got",
    "at": "; say hour(at), weekday(at) or month(at) - at row 1 of",
    "hour(country)": "country of hour(country) must be a date (ISO 8601) or a number, got 'd",
    "hour(n)": "hour(n) needs dates, got seconds of an unknown start in 'n'",
    "lists": "group column must hold text or numbers, got list",
    ",": "groups must have an attribute, got none",
}


@pytest.mark.parametrize("asked", MISTAKES)
def test_mistakes_are_sentences(asked, tmp_path, capsys):
    known = AT + np.timedelta64(2, "h")
    country = np.sort(COUNTRY)
    more = {"known_at": known, "share": SCORES, "n": np.arange(N) % 9, "lists": [[1]] * N}
    log = tmp_path / "log.parquet"
    pq.write_table(table(**more).set_column(3, "country", pa.array(country)), log)
    code, _, err = run(capsys, str(log), "--groups", asked, "--methods", "ops")
    assert code != 0 and MISTAKES[asked] in err


def test_groups_and_many_classes_exclude_each_other(capsys):
    code, _, err = run(capsys, "log.parquet", "--scores", "p_*", "--label", "y", "--groups", "a")
    assert code != 0 and "--groups must not be given with --scores" in err


# ---- columns that are offered ------------------------------------------------------------------------------------


def test_columns_of_few_values_are_offered_by_name(tmp_path, capsys):
    log, page = tmp_path / "log.parquet", tmp_path / "page.html"
    more = {
        "device": pa.array(np.array(["ios", "web"])[np.arange(N) % 2]).dictionary_encode(),
        "tier": np.arange(N) % 4,
        "user": np.arange(N),
        "constant": ["x"] * N,
        "share": SCORES,
        "result": OUTCOMES,
        "lists": [[1]] * N,
    }
    pq.write_table(table(**more), log)
    code, said, err = run(capsys, str(log), "--outcome", "y", "--methods", "ops", "--report", str(page))
    assert code == 0, err
    wanted = (
        "Segments can be judged: country, device, tier (say --groups country,device,tier; only what is known when "
        "the score is issued)."
    )
    assert wanted in " ".join(said.split())
    assert wanted in page.read_text() and "Who is miscalibrated?" in page.read_text()
    again = run(capsys, str(log), "--outcome", "y", "--methods", "ops", "--groups", "country")[1]
    assert "can be judged" not in again


def test_columns_of_a_csv_and_of_frames_are_offered_too(tmp_path, capsys):
    log = tmp_path / "log.csv"
    rows = [f"{p:.4f},{y},{c},{p:.1f},{i}" for i, (p, y, c) in enumerate(zip(SCORES, OUTCOMES, COUNTRY, strict=True))]
    log.write_text("p,y,country,rounded,number\n" + "\n".join(rows) + "\n")
    said = " ".join(run(capsys, str(log), "--methods", "ops")[1].split())
    assert "Segments can be judged: country (say --groups country;" in said
    polars = pytest.importorskip("polars")
    for kind in (dict, polars.DataFrame, polars.LazyFrame):
        frame = kind({"p": SCORES, "y": OUTCOMES, "country": COUNTRY, "user": np.arange(N), "x": SCORES + 1.0})
        payload = calibeat.backtest(frame, score="p", outcome="y", methods="ops").payload
        if kind is polars.LazyFrame:
            assert "offered" not in payload
        else:
            assert payload["offered"]["columns"] == ["country"]
            assert "say groups=['country']" in payload["offered"]["sentence"]


def test_columns_with_gaps_are_offered_and_numbers_and_lists_are_not():
    assert could_be_attribute([1.0, float("nan")] * 200)
    assert not could_be_attribute([0.5, 0.25] * 200)
    assert not could_be_attribute([["a"], ["b"]] * 200)


def test_values_are_read_in_the_order_of_numbers_then_text_then_missing():
    groups = GroupsOfLog.of("c", Options())
    groups.words_of_columns({"c": ["b", "10", "9", None]}, 4)
    words = sorted(groups._book.book, key=groups.rank_of)
    assert [groups.name_of(0, word) for word in words] == ["9", "10", "b", "(missing)"]
    assert groups.name_of(0, 12345) == "0000000000003039"  # its name was not kept
