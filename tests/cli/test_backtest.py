"""`calibeat backtest` as a person types it: every kind of log, nothing left half done."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from streams import drifting

pa = pytest.importorskip("pyarrow")
csv, feather, pq = (pytest.importorskip(f"pyarrow.{name}") for name in ("csv", "feather", "parquet"))

import calibeat  # noqa: E402 - only where pyarrow is
from calibeat.backtest.read import files as log  # noqa: E402
from calibeat.backtest.read import rows as row_reader  # noqa: E402
from calibeat.cli import backtest as command  # noqa: E402
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


class Terminal(io.StringIO):
    """A log that says it is a terminal."""

    def isatty(self):
        return True


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


def test_every_format_says_the_same(typed):
    expected = calibeat.backtest(
        SCORES, OUTCOMES, TABLE["country"].to_pylist(), MOMENTS, KNOWN, methods="ops,hops"
    ).payload
    options = ("--time", "at", "--outcome-time", "known", "--key", "country", "--methods", "ops,hops")
    for name in ("log.csv", "log.parquet", "log.feather", "log.arrows", "log.csv.gz"):
        found = payload(typed, write(name), *options)
        assert found["table"] == expected["table"], name
        assert found["keys"]["rows"] == expected["keys"]["rows"]
        assert found["windows"] == expected["windows"]
        assert found["data"]["source"] == [name]
        assert found["data"]["columns"]["score"] == {"name": "p", "guessed": True}
        assert found["data"]["columns"]["key"] == {"name": "country", "guessed": False}
        assert found["command"] == f"calibeat backtest {name} {' '.join(options)} --json"


def test_a_folder_a_glob_and_a_file_without_a_suffix(typed):
    whole = payload(typed, write("whole.csv"), "--methods", "ops")
    Path("parts").mkdir()
    write("parts/1.csv", TABLE.slice(0, 100))
    write("parts/2.parquet", TABLE.slice(100, 150))
    write("parts/3.feather", TABLE.slice(250))
    Path("parts/notes.md").write_text("not a log")
    for name in ("parts", "parts/[123].*"):
        found = payload(typed, name, "--methods", "ops")
        assert found["table"] == whole["table"]
        assert len(found["data"]["source"]) == 3 and found["title"] == "Backtest of 1.csv and 2 more"
    Path(write("log.parquet")).rename("log")
    assert payload(typed, "log", "--methods", "ops")["table"] == whole["table"]
    Path(write("log.feather")).rename("log")
    assert payload(typed, "log", "--methods", "ops")["table"] == whole["table"]
    Path(write("log.csv")).rename("log")
    assert payload(typed, "log", "--methods", "ops")["table"] == whole["table"]


def test_standard_input(typed, monkeypatch):
    text = Path(write("log.csv")).read_bytes()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
    found = payload(typed, "-", "--methods", "ops")
    assert found["table"] == payload(typed, "log.csv", "--methods", "ops")["table"]
    assert found["data"]["source"] == ["standard input"]


def test_types_that_logs_come_in(typed):
    """Numbers as decimals, text as categories, outcomes as booleans, times as dates or seconds: all read alike."""
    plain = payload(typed, write("log.parquet"), "--methods", "ops", "--time", "at", "--key", "country")
    odd = pa.table(
        {
            "p": pa.array([f"{s!r}" for s in SCORES.tolist()]).dictionary_encode(),
            "clicked": OUTCOMES.astype(bool),
            "at": TABLE["at"].cast(pa.timestamp("us", "UTC")),
            "country": TABLE["country"].cast(pa.large_string()),
        }
    )
    assert (
        payload(typed, write("odd.parquet", odd), "--methods", "ops", "--time", "at", "--key", "country")["table"]
        == plain["table"]
    )
    seconds = odd.set_column(2, "at", TABLE["at"].cast(pa.timestamp("s")).cast(pa.int64()))
    found = payload(typed, write("s.parquet", seconds), "--methods", "ops", "--time", "at", "--key", "country")
    assert found["data"]["span"] == plain["data"]["span"]
    for name, column in {
        "zoned.csv": [f"{moment}Z" for moment in MOMENTS.astype("datetime64[s]")],
        "mixed.csv": [str(m) if k % 2 else f"{m}+00:00" for k, m in enumerate(MOMENTS.astype("datetime64[s]"))],
        "seconds.csv": [str(m.astype(np.int64)) for m in MOMENTS.astype("datetime64[s]")],
    }.items():
        texts = TABLE.set_column(0, "at", pa.array(column))
        assert (
            payload(typed, write(name, texts), "--methods", "ops", "--time", "at")["data"]["span"]
            == plain["data"]["span"]
        ), name
    dates = TABLE.set_column(0, "at", TABLE["at"].cast(pa.timestamp("us")).cast(pa.date32(), safe=False))
    assert (
        payload(typed, write("dates.parquet", dates), "--methods", "ops", "--time", "at")["data"]["span"][0]
        == "2024-03-01T00:00:00"
    )
    decimal = TABLE.set_column(1, "p", pa.array(SCORES.round(4).tolist()).cast(pa.decimal128(5, 4)))
    assert payload(typed, write("decimal.parquet", decimal), "--methods", "ops")["data"]["used"] == N
    words = TABLE.set_column(2, "clicked", pa.array([("no", "YES ")[int(y)] for y in OUTCOMES]))
    assert payload(typed, write("words.csv", words), "--methods", "ops")["data"]["used"] == N
    views = pa.table({"p": SCORES, "y": pa.array(["0", "1"] * (N // 2)).cast(pa.string_view())})
    assert payload(typed, write("views.feather", views), "--methods", "ops")["data"]["used"] == N
    spaced = "p;y\n" + "".join(f" {s!r} ;{int(y)}\n" for s, y in zip(SCORES.tolist(), OUTCOMES, strict=True))
    Path("spaced.csv").write_text(spaced)
    spaced_out = payload(typed, "spaced.csv", "--delimiter", ";", "--methods", "ops")["table"][0]
    assert spaced_out["log_loss"] == plain["table"][0]["log_loss"]
    Path("log.tsv").write_text(spaced.replace(";", "\t"))
    assert payload(typed, "log.tsv", "--methods", "ops")["data"]["used"] == N


def test_the_verdict_and_the_leaderboard_are_printed(typed):
    code, out, err = typed(write("log.csv"), "--report", "new/report.html", "--skip-bad")
    assert (code, err) == (0, "")
    first, *_ = out.splitlines()
    assert first.endswith(("[sure]", "[likely]", "[unclear]"))
    assert "score in 'p' (guessed), outcome in 'clicked' (guessed)" in " ".join(out.split())
    for name in ("raw", "AUTO", "FPS", "OPS", "TOPS", "HOPS", "OBS", "TOBS", "HOBS", "F99", "base rate"):
        assert f"  {name} " in out
    assert "are not scored" in " ".join(out.split())
    assert "moving-block bootstrap" in out
    report = Path("new/report.html")
    assert out.rstrip().endswith(f"Written: {report.resolve()} (in a new folder)")
    assert "new folder" not in typed("log.csv", "--report", "new/report.html", "--methods", "ops")[1]
    assert report.read_text().lower().startswith("<!doctype html>") and len(list(Path("new").iterdir())) == 1
    assert max(map(len, out.splitlines()[:-1])) <= 120


def test_forecasts_are_written_for_every_event(typed):
    missing = TABLE.set_column(2, "clicked", pa.array([*OUTCOMES[:-1].astype(int).tolist(), None]))
    missing = missing.set_column(4, "known", pa.array([*KNOWN[:-1].tolist(), None], pa.timestamp("us")))
    code, out, _ = typed(
        write("log.parquet", missing),
        "--methods",
        "ops,hops",
        "--out",
        "deep/f.parquet",
        "--key",
        "country",
        "--time",
        "at",
        "--outcome-time",
        "known",
        "--warmup",
        "10",
    )
    assert code == 0 and "Written: " in out
    found = pq.read_table("deep/f.parquet")
    assert found.column_names == [
        "event",
        "row",
        "file",
        "key",
        "time",
        "score",
        "outcome",
        "judged",
        "forecast_raw",
        "forecast_ops",
        "forecast_hops",
        "forecast_OPS without keys",
        "forecast_OPS with a pooled start",
    ]
    expected = calibeat.backtest(
        SCORES,
        np.append(OUTCOMES[:-1], np.nan),
        TABLE["country"].to_pylist(),
        MOMENTS,
        np.append(KNOWN[:-1], np.datetime64("NaT")),
        methods="ops,hops",
        keep_forecasts=True,
    )
    np.testing.assert_array_equal(found["forecast_hops"].to_numpy(), expected.forecasts["hops"])
    np.testing.assert_array_equal(found["judged"].to_numpy(), (np.arange(N) >= 10) & (np.arange(N) < N - 1))
    assert found["key"].to_pylist() == TABLE["country"].to_pylist()
    assert found["time"].to_pylist() == TABLE["at"].to_pylist()
    assert found["outcome"].to_pylist()[-2:] == [int(OUTCOMES[-2]), None]
    plain = typed(write("log.csv"), "--methods", "ops", "--time", "none", "--out", "plain.parquet")
    assert plain[0] == 0 and pq.read_table("plain.parquet").column_names[:4] == ["event", "row", "file", "score"]


def test_a_bar_on_a_terminal_and_nothing_elsewhere(folder, monkeypatch):  # noqa: ARG001 - in a folder of its own
    pytest.importorskip("tqdm")
    for name in ("log.csv", "log.parquet", "log.feather", "log.csv.gz"):
        options = cli.parser().parse_args(["backtest", write(name), "--methods", "ops"])
        terminal, file = Terminal(), io.StringIO()
        command.run(options, to=io.StringIO(), log=terminal)
        command.run(options, to=io.StringIO(), log=file)
        assert "rows" in terminal.getvalue() and file.getvalue() == ""
    monkeypatch.setitem(sys.modules, "tqdm", None)
    terminal = Terminal()
    command.run(options, to=io.StringIO(), log=terminal)
    assert terminal.getvalue() == ""


def test_how_many_rows_there_will_be(folder):  # noqa: ARG001 - in a folder of its own
    for name, expected in (("log.parquet", N), ("log.csv", N), ("log.feather", None), ("log.csv.gz", None)):
        rows = log.files_of(write(name))[0].rows()
        assert rows == expected if expected is None else rows == pytest.approx(expected, rel=0.05), name
    Path("line.csv").write_text("p,y")
    assert log.files_of("line.csv")[0].rows() is None
    assert log.files_of("-")[0].rows() is None


def test_ctrl_c_leaves_no_half_written_file(folder):
    """A real interrupt, in the middle of a log that never ends."""
    arguments = ["backtest", "-", "--out", "f.parquet", "--report", "r.html", "--methods", "ops", "--warmup", "1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "calibeat", *arguments], stdin=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder
    )
    with process:
        process.stdin.write(b"p,y\n" + b"0.5,1\n0.25,0\n" * 900_000)
        process.stdin.flush()
        for _ in range(600):  # until something is being written
            if any(path.name.endswith(".part") for path in folder.iterdir()):
                break
            time.sleep(0.1)
        assert any(path.name.endswith(".part") for path in folder.iterdir())
        process.send_signal(signal.SIGINT)
        process.stdin.close()
        process.stdin = None
        error = process.stderr.read()
    assert process.returncode == 130
    assert error.decode().strip().splitlines()[-1] == "calibeat: stopped" and b"Traceback" not in error
    assert list(folder.iterdir()) == []


def test_a_run_that_fails_leaves_no_file(typed, folder):
    Path("log.csv").write_text("p,y\n" + "0.5,1\n" * 50 + "1.5,1\n")
    code, out, err = typed("log.csv", "--out", "f.parquet", "--report", "r.html")
    assert (code, out) == (2, "") and "at row 51 of log.csv" in err
    assert [path.name for path in folder.iterdir()] == ["log.csv"]


def test_a_run_that_fails_in_the_middle_leaves_no_file(typed, folder, monkeypatch):
    monkeypatch.setattr(log, "CHUNK", 20)
    monkeypatch.setattr(row_reader, "CHUNK", 20)
    monkeypatch.setattr(row_reader, "FIRST_EVENTS", 0)
    write("log.parquet", pa.table({"p": [0.5] * 100 + [1.5], "y": [1] * 101}))
    code, out, err = typed("log.parquet", "--out", "f.parquet", "--methods", "ops")
    assert (code, out) == (2, "") and "got 1.5 - at row 101 of log.parquet" in err
    assert [path.name for path in folder.iterdir()] == ["log.parquet"]
