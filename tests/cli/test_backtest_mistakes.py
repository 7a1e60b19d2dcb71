"""`calibeat backtest` as people mistype it: an answer or a sentence, never a traceback."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from random import Random

import numpy as np
import pytest
from streams import drifting

pa = pytest.importorskip("pyarrow")
csv, feather, pq = (pytest.importorskip(f"pyarrow.{name}") for name in ("csv", "feather", "parquet"))

from calibeat.cli import main as cli  # noqa: E402

N = 300
SCORES, OUTCOMES = drifting(N)
MOMENTS = np.datetime64("2024-03-01T00:00:00", "us") + np.arange(N) * np.timedelta64(30, "m")
KNOWN = MOMENTS + np.timedelta64(2, "h")
TABLE = pa.table(
    {
        "at": MOMENTS,
        "p": SCORES,
        "clicked": OUTCOMES.astype(np.int8),
        "country": ["fr", "de"] * (N // 2),
        "known": KNOWN,
        "event": np.arange(N),
    }
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path, table=TABLE):
    path = Path(path)
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=70)
    elif path.suffix == ".feather":
        feather.write_feather(table, path, chunksize=110)
    elif path.suffix == ".arrows":
        with pa.ipc.new_stream(path, table.schema) as stream:
            stream.write_table(table, 90)
    elif path.suffix == ".gz":
        with pa.CompressedOutputStream(str(path), "gzip") as stream:
            csv.write_csv(table, stream)
    else:
        csv.write_csv(table, path)
    return str(path)


@pytest.fixture
def typed(folder, capsys):  # noqa: ARG001 - in a folder of its own
    """Type a command, get (code, out, err)."""

    def run(*arguments):
        code = cli.main(["backtest", *map(str, arguments)])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def payload(typed, *arguments):
    code, out, err = typed(*arguments, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("", "", "log.csv must hold a header and rows, got nothing"),
        ("\n\n", "", "got nothing"),
        ("p,y\n", "", "log must hold at least one row that can be used, got a header at most"),
        ("p,y\n", "--time y --sort", "got a header at most"),
        ("p\r,y\n0.5,1\n", "", "outcome column must be named"),
        ("p,y\n0.5,1\n", "--delimiter ;", "it looks as if they were between ',': say --delimiter ','"),
        ("x\n1\n", "", "score column must be named, got no column of a usual name; say --score with one of 'x'"),
        ("scroe,y\n0.5,1\n", "", "did you mean 'scroe'?"),
        ("p,y\n0.5,1\n", "--score q", "score column 'q' is not in log.csv; there are 'p', 'y'"),
        ("p,clicked\n0.5,1\n", "--outcome click", "outcome column 'click' is not in log.csv - did you mean 'clicked'?"),
        ("p,y,p\n0.5,1,0.2\n", "", "score column must be there once, got 2 named 'p' in log.csv"),
        ("p,y\n0.5,1\n", "--key k", "key column 'k' is not in log.csv"),
        ("p,y\n0.5,maybe\n", "", "outcome must be 0 or 1 (or false or true), got 'maybe' - at row 1 of log.csv"),
        ("p,y\n0.5,1\n0.5,2\n", "", "got '2' - at row 2 of log.csv"),
        ("p,y\n0.5,\n0.5,\n", "", "log must hold at least one outcome, got none in 2 rows"),
        ("p,y\nNA,1\n0.5,1\n", "", "score must be in [0, 1], got nothing - at row 1 of log.csv"),
        ("p,y\n0.5,1\nhigh,1\n ,1\n", "", "score must be in [0, 1], got 'high' - at row 2 of log.csv"),
        ("p,y\n0.5,1\n nan,1\nx,1\n", "", "score must be in [0, 1], got nothing - at row 2 of log.csv"),
        ("p,y\n50,1\n20,0\n", "", "the scores look like percent: say --score-kind percent"),
        ("p,y\n-2.5,1\n1.5,0\n", "", "the scores look like logits: say --score-kind logit"),
        (
            "p,y,t\n0.5,1,2024-01-02\n0.5,0,2024-01-01\n",
            "--time t",
            "time must not go back, got '2024-01-01' after a later one - at row 2 of log.csv; say --sort",
        ),
        (
            "p,y,t\n0.5,1,soon\n",
            "--time t",
            "time must be a date of the years 1 to 9999 (ISO 8601) or a number, got 'soon' - at row 1 of log.csv",
        ),
        ("p,y,t\n0.5,1,\n0.5,1,x\n", "--time t", "time must be there, got nothing - at row 1"),
        ("p,y,k\n0.5,1,\n", "--key k", "key must be there, got nothing - at row 1 of log.csv"),
        ("i,p,y\na,0.5,1\nb,0.5,1\na,0.5,0\n", "--id i", "event id must be there once only, got 'a' again - at row 3"),
        ("p,y\n0.5,1\n0.5\n", "", "row must have 2 fields, got 1 in '0.5' - at row 2 of log.csv"),
        ("p,y\n0.5,1\n", "--warmup 1", "warmup must be less than the 1 events that have an outcome, got 1"),
        ("p,y\n0.5,1\n", "--methods opps", "did you mean 'ops'?"),
        ("p,y\n0.5,1\n", "--delay 3h", "a delay in time needs the time of each event, got none; say --time NAME"),
        ("p,y\n0.5,1\n", "--delay 3x", "delay must be a number of events or a time"),
        ("p,y\n0.5,1\n", "--sort", "to sort a log needs the time of each event, got none; say --time NAME"),
        ("p,y\n0.5,1\n", "--outcome-time y", "--outcome-time needs --time"),
        ("p,y\n0.5,1\n", "--time p --outcome-time y --delay 3", "got both"),
        ("p,y\n0.5,1\n", "--delimiter ab", "--delimiter must be one character, got 'ab'"),
        ("p,y\n0.5,1\n", "--out f.csv", "--out must end in .parquet, got 'f.csv'"),
        ("p,y\n0.5,1\n", "--report .", "--report must be a file, got the folder '.'"),
    ],
)
def test_mistakes_get_a_sentence(typed, text, options, said):
    Path("log.csv").write_text(text)
    code, out, err = typed("log.csv", *options.split())
    assert (code, out) == (2, "")
    assert err.startswith("calibeat: ") and said in err and err.count("\n") == 1


def test_files_that_are_not_logs(typed):
    Path("broken.parquet").write_bytes(b"PAR1 and nothing else")
    Path("broken.feather").write_bytes(b"ARROW1 and nothing else")
    Path("latin.csv").write_bytes("p,y\n0.5,1\nd\xe9j\xe0,1\n".encode("latin-1"))
    Path("late.csv").write_bytes(b"p,y\n" + b"0.5,1\n" * 20_000 + "0.5,d\xe9\n".encode("latin-1"))
    Path("numbers.bin").write_bytes(bytes(range(256)))
    Path("empty").mkdir()
    pq.write_table(pa.table({"p": [[0.5]], "y": [1]}), "nested.parquet")
    odd = pa.table({"p": [0.5], "y": [1], "k": [{"a": 1}], "d": pa.array([2**62], pa.timestamp("s"))})
    feather.write_feather(odd, "odd.feather")
    for name, said in (
        ("broken.parquet", "broken.parquet must be a log that can be read"),
        ("broken.feather", "broken.feather must be a log that can be read"),
        ("latin.csv", "latin.csv must be text in UTF-8, got byte 0xe9"),
        ("late.csv", "late.csv must be text in UTF-8, got byte 0xe9"),
        ("numbers.bin", "numbers.bin must be"),
        ("empty", "empty must be a folder with CSV, JSON Lines, Parquet or Arrow files, got none in it"),
        ("nowhere.csv", "got 'nowhere.csv', which is not there"),
        ("nested.parquet", "score column must hold numbers, got list"),
        ("odd.feather --key k", "key column must hold text or numbers, got struct"),
        ("odd.feather --id k", "id column must hold text or numbers, got struct"),
        ("odd.feather --time d", "odd.feather must be a log that can be read, got: "),
    ):
        code, out, err = typed(*name.split())
        assert (code, out) == (2, "") and said in err, name


def test_whatever_is_typed_into_a_log_there_is_no_traceback(typed):
    """Logs with pieces lost, doubled and replaced by what logs should not hold: an answer or a sentence."""
    random = Random(0)  # noqa: S311 - no secret
    odd = [*"0.,;\n\r\t\"'-eN \x00é", "nan", "inf", "1e999", "true", "2024-13-01", "9999-12-31", "9" * 20, '""', "1_0"]
    rows = [f"2024-01-{day:02d},0.{day},{day % 2},{'abc'[day % 3]},{day}" for day in range(10, 29)]
    options = [
        "--time t",
        "--key k",
        "--id id",
        "--skip-bad",
        "--delay 3",
        "--score-kind logit",
        "--sort --time t",
        "--delay 2h --time t",
        "--time t --outcome-time id",
        "--outcome k",
        "--time id",
    ]
    codes = []
    for _ in range(60):
        text = "\n".join(["t,p,y,k,id", *rows]) + "\n"
        for _ in range(random.choice([1, 2, 5, 20])):
            at = random.randrange(len(text))
            text = text[:at] + random.choice(odd) + text[at + random.choice([0, 0, 1, 5]) :]
        Path("log.csv").write_text(text, encoding=random.choice(["utf-8", "latin-1"]))
        code, out, err = typed("log.csv", "--methods", "ops", *" ".join(random.sample(options, 2)).split())
        assert (code, err) == (0, "") or ((code, out) == (2, "") and err.startswith("calibeat: ")), text
        codes.append(code)
    assert {0, 2} == set(codes)


def test_bad_rows_are_skipped_and_counted_where_asked(typed):
    Path("log.csv").write_text(
        "id,p,y,k\n1,0.5,1,a\n2,,1,a\n3,1.5,0,a\n4,0.5,,a\n5,x,1,a\n6,0.5,9,a\n7,0.5,1,\n1,0.5,1,a\n8,0.5\n9,0.25,0,b\n"
    )
    data = payload(typed, "log.csv", "--skip-bad", "--id", "id", "--key", "k")["data"]
    assert (data["rows"], data["used"], data["keys"]) == (10, 3, 2)
    reasons = {skipped["reason"]: skipped["count"] for skipped in data["skipped"]}
    assert reasons == {
        "row has too many or too few fields": 1,
        "score is missing": 1,
        "score is not in [0, 1]": 1,
        "score is not a number": 1,
        "outcome is not 0 or 1": 1,
        "key is missing": 1,
        "event id came before": 1,
    }
    first = {skipped["reason"]: skipped["first"] for skipped in data["skipped"]}
    assert first["score is missing"] == "row 2 of log.csv"
    code, out, _ = typed("log.csv", "--skip-bad", "--id", "id", "--key", "k")
    assert code == 0 and "Skipped 1: score is missing, first at row 2 of log.csv." in out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("p,y\n0.3,1\n", "Only one event was judged"),
        ("p,y\n" + "0.3,1\n0.4,1\n" * 120, "Every judged outcome is 1: there is nothing to tell apart, and no AUC."),
        ("p,y\n" + "0.3,1\n0.3,0\n" * 120, "The score is all but constant"),
    ],
)
def test_odd_logs_get_a_sensible_answer(typed, text, said):
    Path("log.csv").write_text(text)
    code, out, err = typed("log.csv", "--report", "r.html")
    assert (code, err) == (0, "") and said in " ".join(out.split())
    assert Path("r.html").exists()


def test_an_unsorted_log_is_sorted_where_asked(typed):
    order = np.random.default_rng(0).permutation(N)
    shuffled = payload(typed, write("shuffled.csv", TABLE.take(order)), "--time", "at", "--sort", "--methods", "ops")
    assert shuffled["table"] == payload(typed, write("log.csv"), "--time", "at", "--methods", "ops")["table"]


def test_a_log_with_other_columns_in_its_second_file(typed):
    Path("parts").mkdir()
    write("parts/1.csv")
    write("parts/2.csv", TABLE.rename_columns(["at", "prob", "clicked", "country", "known", "event"]))
    code, _, err = typed("parts")
    assert code == 2 and "score column 'p' is not in parts/2.csv" in err


def test_without_pyarrow(typed, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    code, _, err = typed("log.csv")
    assert code == 2 and "pyarrow" in err and "pip install 'calibeat[backtest]'" in err


# ---- damaged and special files -----------------------------------------------------------------------------------


def refused(typed, *arguments):
    """What a command is refused with, as one sentence."""
    code, out, err = typed(*arguments)
    assert (code, out) == (2, "") and err.startswith("calibeat: ") and err.count("\n") == 1, err
    return err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("[" * 100_000, "row must be a JSON object with each name once, got '[[["),
        (
            '{"p": ' + "[" * 100_000 + "]" * 100_000 + ', "y": 1}',
            'row must be a JSON object with each name once, got \'{"p": [[[',
        ),
        ('{"a": ' * 100_000 + "1" + "}" * 100_000, 'row must be a JSON object with each name once, got \'{"a": {"a"'),
        (
            "null",
            "row must be a JSON object with each name once, got 'null' - at row 1 of log.jsonl",
        ),  # which ends the process in Arrow
    ],
    ids=["arrays", "a deep array", "a deep object", "null"],
)
@pytest.mark.parametrize("first", [True, False])
def test_odd_json_is_a_sentence(typed, line, said, first):
    good = '{"p": 0.5, "y": 1}\n'
    Path("log.jsonl").write_text(f"{line}\n{good}" if first else f"{good}{line}\n{good}")
    err = refused(typed, "log.jsonl", "--methods", "ops")
    assert said.replace("row 1", "row 1" if first else "row 2") in err or "got nothing" in err


def test_damaged_files_are_a_sentence(typed):
    """Bytes of Feather and Parquet files changed at random; Arrow has many errors of its own for them."""
    random = Random(3)  # noqa: S311 - no secret
    table = TABLE.set_column(3, "country", TABLE.column("country").dictionary_encode())
    for name in ("log.feather", "log.parquet"):
        whole = Path(write(name, table)).read_bytes()
        for _ in range(60):
            damaged = bytearray(whole)
            for _ in range(random.choice([1, 8])):
                at = random.randrange(len(whole))
                damaged[at : at + 8] = random.choice([b"\xff" * 8, bytes(8), b"\x7f" * 8, random.randbytes(1)])
            Path(name).write_bytes(damaged)
            code, _, err = typed(name, "--methods", "raw", "--key", "country", "--time", "at")
            assert code in {0, 2} and (code == 0 or err.startswith("calibeat: ")), err


@pytest.mark.parametrize("error", [pa.ArrowMemoryError("malloc of size 2305843009213693952 failed"), MemoryError()])
def test_a_file_that_asks_for_too_much_memory_is_a_sentence(typed, monkeypatch, error):
    def fail(*_):
        raise error

    write("log.parquet")
    monkeypatch.setattr(pq, "ParquetFile", fail)
    assert "log.parquet must be a log that can be read, got:" in refused(typed, "log.parquet")


def test_text_that_is_not_utf8_in_a_binary_file_is_a_sentence(typed):
    odd = pa.array([b"a", b"\xff\xfe"] * (N // 2), pa.binary()).view(pa.string())
    write("log.parquet", TABLE.set_column(3, "country", odd))
    assert "log.parquet must be a log that can be read" in refused(typed, "log.parquet", "--key", "country")


def test_a_row_that_is_too_long_is_a_sentence(typed):
    Path("log.csv").write_text("p,y,text\n0.5,1,a\n0.5,1," + "x" * 30_000_000 + "\n0.5,0,b\n")
    said = "log.csv must have rows of 4,194,304 bytes at most, got a longer one: is a quote left open?"
    assert said in refused(typed, "log.csv")


def test_a_pipe_is_no_log_but_on_standard_input(typed, monkeypatch):
    """Nobody writes into this one: to open it would wait for ever."""
    os.mkfifo("log.csv")
    said = "log must be a regular file, a folder, a glob or -, got a pipe or a device, 'log.csv': pipe it into"
    assert said in refused(typed, "log.csv")
    assert "got a pipe or a device, '/dev/zero'" in refused(typed, "/dev/zero")
    monkeypatch.setattr(sys, "stdin", None)
    assert "got a pipe or a device, '/dev/null'" in refused(typed, "/dev/null")


@pytest.mark.parametrize("name", ["-", "/dev/fd/{}"])
def test_standard_input_may_have_the_name_of_its_device(typed, monkeypatch, name):
    ours, theirs = os.pipe()
    os.write(theirs, Path(write("log.csv", TABLE.select(["p", "clicked"]))).read_bytes())  # which the pipe can hold
    os.close(theirs)
    with os.fdopen(ours) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert payload(typed, name.format(ours), "--methods", "ops")["data"]["rows"] == N


# ---- kinds of scores and times -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "said"), [("percent", "above 1 somewhere"), ("logit", "outside [0, 1] somewhere")])
def test_probabilities_that_are_called_another_kind_are_refused(typed, kind, said):
    log = write("log.csv")
    err = refused(typed, log, "--score-kind", kind)
    assert f"scores must be {said} where they are {kind}, got 300 in [0, 1]: they look like probabilities" in err
    assert f"say --insist if they are {kind}" in err
    found = payload(typed, log, "--score-kind", kind, "--insist", "--methods", "ops")
    assert found["data"]["score_kind"] == kind
    # The same of another model's scores.
    both = TABLE.set_column(1, "p", pa.array(100.0 * SCORES)).append_column("q", pa.array(SCORES))
    if kind == "percent":
        err = refused(typed, write("log.csv", both), "--score", "p", "--score", "q", "--score-kind", kind)
        assert "score 2s must be above 1 somewhere" in err


def test_small_percent_may_have_their_sign(typed):
    signed = pa.array([f"{score:.4f}%" for score in SCORES])
    log = write("log.csv", TABLE.set_column(1, "p", signed))
    assert payload(typed, log, "--score-kind", "percent", "--methods", "ops")["data"]["used"] == N


def test_few_logits_may_be_in_the_unit_interval(typed):
    Path("log.csv").write_text("p,y\n" + "0.25,1\n0.75,0\n" * 5)
    assert payload(typed, "log.csv", "--logits", "--methods", "ops")["data"]["used"] == 10


def test_commas_between_thousands_are_no_decimal_commas(typed):
    Path("log.csv").write_text('p,y\n0.5,1\n"1,000",0\n')
    assert "the number has commas between its thousands: write it without" in refused(typed, "log.csv")
    Path("log.csv").write_text('p,y\n"1,000",1\n"0,250",0\n')
    assert "the numbers have decimal commas: say --decimal ','" in refused(typed, "log.csv")


@pytest.mark.parametrize("rows", [10, 200_000])
def test_times_of_two_units_are_refused(typed, rows):
    """Within a batch, and from one to the next."""
    seconds = np.arange(1_700_000_000, 1_700_000_000 + 2 * rows)
    times = np.where(np.arange(2 * rows) < rows, seconds, 1000 * seconds)
    table = pa.table({"p": [0.5] * len(times), "y": [0, 1] * rows, "t": times})
    err = refused(typed, write("log.parquet", table), "--time", "t", "--methods", "raw")
    assert "times must be of one unit, got seconds since 1970 and milliseconds since 1970" in err
    assert f"- at row {rows + 1:,} of log.parquet" in err


def test_a_clock_that_was_set_back_is_no_reason_to_sort(typed):
    hours = ["2024-10-27T01:30", "2024-10-27T02:30", "2024-10-27T02:00", "2024-10-27T03:30"]
    rows = [f"0.5,{at % 2},{hour}" for at, hour in enumerate(hours)]
    Path("log.csv").write_text("\n".join(["p,y,t", *rows]) + "\n")
    err = refused(typed, "log.csv", "--time", "t", "--time-zone", "Europe/Paris")
    assert "time must not go back, got '2024-10-27T02:00' after a later one - at row 3 of log.csv" in err
    assert "the clock of Europe/Paris was set back then: write the times in UTC, or with their zone" in err
    assert "--sort" not in err
    Path("log.csv").write_text("\n".join(["p,y,t", *rows[:2], rows[3]]) + "\n")
    found = payload(typed, "log.csv", "--time", "t", "--time-zone", "Europe/Paris", "--methods", "ops", "--warmup", "1")
    assert any("1 times are in an hour that came twice" in note for note in found["data"]["notes"])


@pytest.mark.parametrize("zone", [None, "Europe/Paris", "America/New_York"])
@pytest.mark.parametrize("times", [("0001-01-01", None), (None, "9999-12-31"), ("0001-01-02", "9999-12-30T23:59:59")])
def test_the_first_and_the_last_date_are_dates(typed, times, zone):
    table = TABLE.set_column(0, "at", pa.array([str(moment) for moment in MOMENTS]))
    stamps = table.column("at").to_pylist()
    stamps[0], stamps[-1] = times[0] or stamps[0], times[1] or stamps[-1]
    table = table.set_column(0, "at", pa.array(stamps))
    options = [] if zone is None else ["--time-zone", zone]
    log = write("log.csv", table)
    code, out, err = typed(log, "--time", "at", "--methods", "ops", "--json", "--report", "r.html", *options)
    if code == 2:  # in UTC it is the year 0
        assert "time must be a date of the years 1 to 9999 (ISO 8601)" in err
        assert (zone, times[0]) == ("Europe/Paris", "0001-01-01")
        return
    assert code == 0, err
    assert json.loads(out)["data"]["used"] == N


def test_outcomes_that_are_known_at_the_end_of_time(typed):
    """A date that stands for never. AUTO is replayed once more with outcomes of one age: of 1,000 years at most."""
    last = [None if outcome else "9999-12-31" for outcome in OUTCOMES]
    known = [last or str(moment) for last, moment in zip(last, KNOWN, strict=True)]
    table = TABLE.set_column(4, "known", pa.array(known)).set_column(0, "at", pa.array([str(m) for m in MOMENTS]))
    log = write("log.csv", table)
    found = payload(typed, log, "--time", "at", "--outcome-time", "known", "--methods", "auto")
    assert found["data"]["used"] == N
