"""Times: zones are stated, never guessed between columns; numbers in text are numbers."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import numpy as np
import pytest
from streams import drifting

import calibeat
from calibeat import InvalidInput
from calibeat._util.times import Clock, in_utc, is_missing, moment, read_times, zone_named
from calibeat.cli import main as cli

N = 200
SCORES, OUTCOMES = drifting(N)
HOURS = np.datetime64("2024-01-01T00:00:00") + np.arange(N) * np.timedelta64(1, "h")
ZONED = [f"{hour}+00:00" for hour in HOURS]
SECONDS = HOURS.astype("datetime64[s]").astype(np.int64)


def run(times, known, **options):
    return calibeat.backtest(SCORES, OUTCOMES, times=times, outcome_times=known, methods="ops", **options)


def test_a_zone_in_one_column_only_is_refused():
    """New York's clock without a zone is five hours behind UTC: taken for UTC, outcomes would come too early."""
    new_york = [str(hour) for hour in HOURS + np.timedelta64(24 - 5, "h")]
    said = "times and outcome times must both have a zone or both have none, got times with one and outcome times "
    with pytest.raises(InvalidInput, match=said + "without; say time_zone=NAME for the zone of the outcome times"):
        run(ZONED, new_york)
    with pytest.raises(InvalidInput, match="got outcome times with one and times without"):
        run([str(hour) for hour in HOURS], ZONED)
    with pytest.raises(InvalidInput, match="must both have a zone"):
        run(SECONDS, new_york)  # seconds since 1970 count in UTC
    found = run(ZONED, new_york, time_zone="America/New_York").payload["delay"]
    assert found["quantiles"]["50%"] == 86_400
    assert run(ZONED, new_york, time_zone="-05:00").payload["delay"]["quantiles"] == found["quantiles"]


def test_zones_of_libraries_are_seen():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    pa = pytest.importorskip("pyarrow")
    zoned = pandas.Series(HOURS).dt.tz_localize("UTC")
    for theirs in (
        zoned,
        polars.Series(HOURS.astype("datetime64[us]")).dt.replace_time_zone("UTC"),
        pa.array(HOURS, pa.timestamp("s", "UTC")),
    ):
        with pytest.raises(InvalidInput, match="must both have a zone"):
            run(theirs, HOURS + np.timedelta64(1, "h"))
        assert run(theirs, theirs).payload["data"]["span"][0] == "2024-01-01T00:00:00"


def test_zones_of_a_file(tmp_path, monkeypatch, capsys):
    pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    rows = [f"{s},{int(y)},{z},{h}" for s, y, z, h in zip(SCORES, OUTCOMES, ZONED, HOURS, strict=True)]
    Path("log.csv").write_text("score,outcome,time,outcome_time\n" + "\n".join(rows) + "\n")
    assert cli.main(["backtest", "log.csv", "--methods", "ops"]) == 2
    assert "say --time-zone NAME for the zone of the outcome times" in capsys.readouterr().err
    assert cli.main(["backtest", "log.csv", "--methods", "ops", "--time-zone", "UTC"]) == 0
    assert cli.main(["backtest", "log.csv", "--methods", "ops", "--time-zone", "Mars/Olympus"]) == 2
    assert "time zone must be UTC, an offset such as +02:00, or a name such as Europe/Paris" in capsys.readouterr().err


def test_a_column_of_both_kinds_gets_a_note():
    mixed = [str(hour) if k % 2 else f"{hour}Z" for k, hour in enumerate(HOURS)]
    notes = run(mixed, mixed).payload["data"]["notes"]
    assert any("some dates have a zone and some have none. Those without were read as UTC." in note for note in notes)
    assert not any("some have none" in note for note in run(mixed, mixed, time_zone="UTC").payload["data"]["notes"])


def test_numbers_written_as_text_are_numbers():
    """As in a CSV."""
    for texts in (SECONDS.astype(str), SECONDS.astype(str).tolist(), [*SECONDS.tolist()[:-1], str(SECONDS[-1])]):
        found = calibeat.backtest(SCORES, OUTCOMES, times=texts, methods="ops").payload["data"]
        assert found["span"][0] == "2024-01-01T00:00:00"
    written = [hour.item().strftime("%Y%m%d%H%M%S") for hour in HOURS]
    found = calibeat.backtest(SCORES, OUTCOMES, times=written, methods="ops").payload["data"]
    assert found["span"][0] == "2024-01-01T00:00:00" and any("YYYYMMDDHHMMSS" in note for note in found["notes"])


def test_what_is_no_number_is_a_date_or_nothing():
    read = read_times(np.array(["1", True, None], dtype=object))
    assert read.dated and read.states.tolist() == [2, 2, 1]
    assert read_times(np.array([None, ""], dtype=object)).states.tolist() == [1, 1]
    assert is_missing(np.datetime64("NaT")) and not is_missing(np.datetime64("2024-01-01"))
    assert moment(dt.date(1970, 1, 2)) == (86_400_000_000, True)


def test_local_clocks_in_utc():
    """Against the standard library, across both changes of the clock."""
    zone = zone_named("Europe/Paris")
    local = np.arange("2024-03-30", "2024-04-01", np.timedelta64(20, "m"), dtype="datetime64[us]")
    local = np.concatenate([local, local + np.timedelta64(210, "D")])
    expected = [moment.replace(tzinfo=zone).timestamp() * 1e6 for moment in local.tolist()]
    assert in_utc(local.astype(np.int64), zone).tolist() == [round(value) for value in expected]
    assert zone_named("z") is zone_named("GMT") is dt.UTC
    for bad in ("+99:00", "", 7, "../etc/passwd"):
        with pytest.raises(InvalidInput, match="time zone must be"):
            zone_named(bad)


def test_a_clock_without_dates_has_no_zones():
    clock = Clock()
    clock.read("time", read_times(np.arange(5)))
    clock.read("outcome time", read_times(np.arange(5.0)))
    assert clock.notes == [
        "The column of times holds numbers. They were read as seconds.",
        "The column of outcome times holds numbers. They were read as seconds.",
    ]


def test_a_column_has_one_unit():
    """Recent times in two units are refused, within a batch and from one to the next; a clock from anywhere is not."""
    seconds = np.array([1_700_000_000, 1_700_000_060])
    clock = Clock()
    clock.read("time", read_times(seconds))
    clock.read("outcome time", read_times(1000 * seconds))  # another column
    with pytest.raises(
        InvalidInput, match=r"^times must be of one unit, got seconds since 1970 and milliseconds since"
    ):
        clock.read("time", read_times(1000 * seconds), str)
    with pytest.raises(InvalidInput, match=r"got milliseconds since 1970 and nanoseconds since 1970, 17.*000 - at 3$"):
        Clock().read("time", read_times(np.concatenate([1000 * seconds, [0], [1_700_000_000 * 10**9]])), str)
    Clock().read("time", read_times(np.array([0, 1e9, 1e10, 1e11, 1e12])))
