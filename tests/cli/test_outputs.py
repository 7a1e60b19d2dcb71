"""What a backtest writes: never over the log, all or nothing."""

from __future__ import annotations

import itertools
import os
import resource
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from streams import drifting

from calibeat.cli import backtest
from calibeat.cli import main as cli
from calibeat.cli.stop import Stop, Stopped, outputs, stopped_by_signals

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

SCORES, OUTCOMES = drifting(200)


@pytest.fixture
def typed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("logs").mkdir()
    pq.write_table(pa.table({"p": SCORES, "y": OUTCOMES}), "logs/log.parquet")

    def typing(*arguments):
        code = cli.main(["backtest", *map(str, arguments), "--methods", "ops"])
        said = capsys.readouterr()
        return code, said.out, said.err

    return typing


def files():
    return sorted(str(path) for path in Path().rglob("*"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("logs/log.parquet --out logs/log.parquet", "--out must not be the log itself, got 'logs/log.parquet'"),
        ("logs/log.parquet --report logs/../logs/log.parquet", "--report must not be the log itself"),
        ("logs/log.parquet --out link.parquet", "--out must not be the log itself"),
        (
            "logs/log.parquet --out x.parquet --report ./x.parquet",
            "--report and --out must be two files, got 'x.parquet'",
        ),
        ("logs --out logs/f.parquet", "--out must not be among the files of the log, got 'logs/f.parquet'"),
        ("logs --out logs/deep/f.parquet", "--out must not be among the files of the log"),
        ("logs/*.parquet --out logs/f.parquet", "the next run would read it"),
        ("logs/**/*.parquet --out logs/deep/f.parquet", "the next run would read it"),
        ("logs/log.parquet --out here.parquet", "--out must be a file, got the folder 'here.parquet'"),
        ("logs/log.parquet --report logs/log.parquet/r.html", "logs/log.parquet' is a file"),
        (f"logs/log.parquet --report {'x' * 251}.html", "File name too long"),
        ("nowhere.csv --out new/f.parquet --report new/r.html", "which is not there"),
    ],
)
def test_what_cannot_or_must_not_be_written_is_refused_first(typed, arguments, said):
    Path("link.parquet").symlink_to("logs/log.parquet")
    Path("here.parquet").mkdir()
    before, log = files(), Path("logs/log.parquet").read_bytes()
    code, out, err = typed(*arguments.split())
    assert (code, out) == (2, "") and said in err and err.count("\n") == 1
    assert files() == before and Path("logs/log.parquet").read_bytes() == log


@pytest.mark.parametrize("option", ["--report", "--out"])
def test_devices_and_fifos_are_not_replaced(typed, option):
    os.mkfifo("pipe.parquet")
    Path("link.parquet").symlink_to("pipe.parquet")
    Path("stdout.parquet").symlink_to("/proc/self/fd/1")
    wanted = {"pipe.parquet": "the FIFO", "link.parquet": "the FIFO", "stdout.parquet": "the open stream"}
    if os.getuid() == 0:
        os.mknod("null.parquet", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        wanted["null.parquet"] = "the device"
    before = {name: os.lstat(name).st_mode for name in files()}
    for name, what in wanted.items():
        code, out, err = typed("logs/log.parquet", option, name)
        assert (code, out, err) == (2, "", f"calibeat: {option} must be a file, got {what} '{name}'\n")
    assert {name: os.lstat(name).st_mode for name in files()} == before


def test_a_folder_that_cannot_be_written(typed, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)  # the tests may run as root, who may write anywhere
    assert "--report must be in a folder that can be written" in typed("logs/log.parquet", "--report", "r.html")[2]


def test_outputs_beside_the_log_are_fine(typed):
    assert typed("logs", "--report", "logs/r.html", "--out", "f.parquet")[0] == 0
    assert typed("logs/*.parquet", "--out", "logs/deep/g.parquet")[0] == 0
    assert typed("logs/log.parquet", "--out", "logs/g.parquet")[0] == 0


def test_forecasts_are_no_log(typed):
    typed("logs/log.parquet", "--out", "logs/f.parquet")
    for log in ("logs", "logs/f.parquet"):
        code, _, err = typed(log)
        assert code == 2 and "logs/f.parquet must be a log, got the forecasts that calibeat backtest --out wrote" in err


def test_a_report_that_fails_leaves_nothing(typed, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    before = files()
    monkeypatch.setattr(backtest, "html", full)
    code, out, err = typed("logs/log.parquet", "--out", "new/deep/f.parquet", "--report", "new/r.html")
    assert (code, out) == (2, "") and "No space left" in err and files() == before
    Path("new").mkdir()
    Path("new/mine.txt").write_text("stays")
    typed("logs/log.parquet", "--out", "new/deep/f.parquet", "--report", "new/r.html")
    assert files() == sorted([*before, "new", "new/mine.txt"])


def test_a_full_disk_is_a_sentence_and_leaves_nothing(tmp_path):
    (tmp_path / "log.csv").write_text("p,y\n" + "0.5,1\n0.25,0\n" * 500)
    arguments = ["backtest", "log.csv", "--methods", "ops", "--out", "f.parquet", "--report", "new/r.html"]
    done = subprocess.run(
        [sys.executable, "-m", "calibeat", *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)),
    )
    assert (done.returncode, done.stdout) == (2, "") and "File too large" in done.stderr
    assert done.stderr.count("\n") == 1 and [path.name for path in tmp_path.iterdir()] == ["log.csv"]


def test_planted_links_are_not_followed(typed):
    """Every name that `--out` might use on its way leads to somebody else's file."""
    victim = Path("victim.txt")
    victim.write_text("mine")
    for name in (f".f.parquet.{os.getpid()}.part", ".f.parquet.part", f".r.html.{os.getpid()}.part", "f.parquet"):
        Path(name).symlink_to(victim)
    assert typed("logs/log.parquet", "--out", "f.parquet", "--report", "r.html")[0] == 0
    assert victim.read_text() == "mine"
    assert not Path("f.parquet").is_symlink() and pq.read_table("f.parquet").num_rows == 200


def test_the_mask_of_the_process_is_left_alone(typed, monkeypatch):
    def touched(_):
        raise AssertionError("os.umask is of the whole process")

    monkeypatch.setattr(os, "umask", touched)
    assert typed("logs/log.parquet", "--out", "f.parquet", "--report", "r.html")[0] == 0


def test_sigterm_leaves_no_half_written_file(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "calibeat", "backtest", "-", "--out", "new/f.parquet", "--methods", "ops"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
    )
    with process:
        process.stdin.write(b"p,y\n" + b"0.5,1\n0.25,0\n" * 900_000)
        process.stdin.flush()
        for _ in range(600):
            if list(tmp_path.glob("new/.*.part")):
                break
            time.sleep(0.1)
        assert list(tmp_path.glob("new/.*.part"))
        process.terminate()
        process.stdin.close()
        process.stdin = None
        error = process.stderr.read()
    assert process.returncode == 143 and error.decode().strip() == "calibeat: stopped"
    assert list(tmp_path.iterdir()) == []


def test_signals_end_the_run_in_the_main_thread_only(typed, capsys, monkeypatch):
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(backtest, "html", lambda *_: signal.raise_signal(signal.SIGTERM))
    assert typed("logs/log.parquet", "--report", "r.html", "--out", "f.parquet")[0] == 143
    assert signal.getsignal(signal.SIGTERM) == before and not list(Path().glob("*.parquet"))

    def inside():
        with stopped_by_signals():
            assert signal.getsignal(signal.SIGTERM) == before

    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    capsys.readouterr()


def test_ctrl_c_before_the_command_is_known(monkeypatch, capsys):
    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "parser", stopped)
    assert cli.main([]) == 130 and capsys.readouterr().err == "calibeat: stopped\n"


# ---- signals at every moment ----------------------------------------------------------------------------------------

OURS = ("cli/stop.py", "_util/files.py")


def written(folder, *, second=False):
    """A command that replaces one file, makes another in a new folder and prints -> its status, at every line.

    The signal comes at the first line, then at the second, and so on, until it no longer comes in time.
    """
    for last in itertools.count():
        lines = itertools.count()

        def trace(frame, event, _, lines=lines, last=last):
            if not frame.f_code.co_filename.endswith(OURS):
                return None
            if event == "line" and next(lines) in ((last, last + 3) if second else (last,)):
                signal.raise_signal(signal.SIGTERM)
            return trace

        (folder / "old").write_text("old")
        status, others = 0, sys.gettrace()
        try:
            with stopped_by_signals() as stop:
                sys.settrace(trace)
                try:
                    with outputs([folder / "old", folder / "new" / "new"], stop) as opened:
                        for file in opened.values():
                            file.write(b"new")
                    stop.check()
                finally:
                    sys.settrace(others)
        except Stopped as stopped:
            status = stopped.args[0]
        yield last, status
        if next(lines) <= last:
            return
        for path in (folder / "new" / "new", folder / "old"):
            path.unlink(missing_ok=True)
        if (folder / "new").exists():
            (folder / "new").rmdir()


@pytest.mark.parametrize("second", [False, True], ids=["one signal", "two signals"])
def test_a_signal_at_any_line_leaves_all_outputs_or_none(tmp_path, monkeypatch, second):
    monkeypatch.setattr(os, "fsync", lambda _: None)  # to save time
    statuses = []
    for line, status in written(tmp_path, second=second):
        found = {path.name: path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
        if status:
            assert found == {"old": "old"} and not (tmp_path / "new").exists(), line
        else:
            assert found == {"old": "new", "new": "new"}, line
        statuses.append(status)
    assert statuses.count(143) > 50 and statuses.count(0) > 10
    assert statuses == sorted(statuses, reverse=True)  # once it is done, it is done


def test_after_the_outputs_one_signal_is_ignored_and_a_second_stops(tmp_path):
    with pytest.raises(Stopped), stopped_by_signals() as stop:  # noqa: PT012 - which signal stops is what is tested
        with outputs([tmp_path / "a"], stop):
            pass
        signal.raise_signal(signal.SIGTERM)
        stop.check()
        (tmp_path / "b").touch()
        signal.raise_signal(signal.SIGTERM)
    assert files_of(tmp_path) == ["a", "b"]


def files_of(folder):
    return sorted(path.name for path in folder.iterdir())


def test_without_outputs_nothing_is_held(tmp_path):
    stop = Stop()
    with outputs([], stop) as opened:
        assert opened == {}
    assert not stop.is_done and files_of(tmp_path) == []


def test_a_command_that_is_done_ignores_signals_until_its_process_ends(tmp_path):
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with stopped_by_signals(last=True) as stop, outputs([tmp_path / "a"], stop):
            pass
        assert signal.getsignal(signal.SIGTERM) == signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    with stopped_by_signals(last=True):
        pass
    assert {number: signal.getsignal(number) for number in before} == before


def test_a_real_signal_after_the_first_output_lets_the_command_finish(tmp_path):
    (tmp_path / "log.csv").write_text("p,y\n" + "0.5,1\n0.25,0\n" * 500)
    arguments = ["backtest", "log.csv", "--methods", "ops", "--report", "r.html", "--out", "f.parquet"]
    process = subprocess.Popen(
        [sys.executable, "-m", "calibeat", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path
    )
    with process:
        while process.poll() is None and not ((tmp_path / "r.html").exists() or (tmp_path / "f.parquet").exists()):
            time.sleep(0.0005)
        process.terminate()
        said, error = process.communicate(timeout=60)
    assert (process.returncode, error) == (0, b"") and said.decode().count("Written: ") == 2
    assert files_of(tmp_path) == ["f.parquet", "log.csv", "r.html"]
