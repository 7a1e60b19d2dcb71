"""Units of work: in processes, killed, interrupted, without a home; finished ones are never made twice."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from terminals import Terminal

from calibeat import InvalidInput
from reproduction import section1, table1, tasks
from reproduction.reproduce import reproduce
from reproduction.settings import Settings

TREES, EVENTS = 4, 160


def test_processes_give_the_same_as_one(tmp_path: Path) -> None:
    work = [section1.task("label", seed) for seed in range(3)]
    log = Terminal()
    many = tasks.run_all(work, None, tmp_path / "many", jobs=2, log=log)
    one = tasks.run_all(work, None, tmp_path / "one", jobs=1, log=io.StringIO())
    assert "section1 label" in log.getvalue() and "/3" in log.getvalue()
    assert list(many) == list(one) == ["section1 label"]
    for a, b in zip(many["section1 label"], one["section1 label"], strict=True):
        for name in a:
            np.testing.assert_array_equal(a[name], b[name])


def test_times_are_never_taken_from_the_cache(tmp_path: Path) -> None:
    work = [table1.clock_task(0, 400), table1.regret_task(0, 400)]
    first, second = (tasks.run_all(work, None, tmp_path, log=io.StringIO()) for _ in range(2))
    assert not np.array_equal(first["clock"][0]["seconds"], second["clock"][0]["seconds"], equal_nan=True)
    np.testing.assert_array_equal(first["regret"][0]["regret"], second["regret"][0]["regret"])
    assert [path.parent.name for path in tmp_path.rglob("*.npz")] == ["regret"]


def test_an_error_in_a_process_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="drift must be one of covariate, label, regression, got 'nope'"):
        tasks.run_all([section1.task("nope", seed) for seed in range(3)], None, tmp_path, jobs=2, log=io.StringIO())


def test_without_a_home_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("no home")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    settings = Settings(runs=1, trees=TREES, events=EVENTS)
    assert settings.cache is None
    page = reproduce(["label-drift"], settings, tmp_path / "out", to=io.StringIO(), log=io.StringIO())
    assert "## Figure 10" in page.read_text()
    assert not list(tmp_path.glob("calibeat-*"))


def started(tmp_path: Path, runs: int, *more: str) -> subprocess.Popen[str]:
    """The command, begun, with a first run finished."""
    command = [sys.executable, "-m", "reproduction", "covariate-drift", "--runs", str(runs), *more]
    process = subprocess.Popen(
        [*command, "--out", str(tmp_path / "out")],
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not list(tmp_path.rglob("runs/*/[0-9]*.npz")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    return process


def test_killed_and_started_again_it_goes_on_where_it_was(tmp_path: Path) -> None:
    process = started(tmp_path, 500)
    process.kill()
    process.communicate()
    assert not (tmp_path / "out" / "reproduction.md").exists()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("runs/*/[0-9]*.npz")}
    assert 0 < len(before) < 500
    runs = len(before) + 1
    settings = Settings(runs=runs, cache=tmp_path / "calibeat" / "reproduce")
    page = reproduce(["covariate-drift"], settings, tmp_path / "out", to=io.StringIO(), log=io.StringIO())
    after = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("runs/*/[0-9]*.npz")}
    assert before.items() <= after.items()  # nothing was made twice
    assert f"{runs} runs" in page.read_text()
    whole = [np.load(path)["table"] for path in sorted(after, key=lambda path: int(path.name.split("-")[0]))]
    assert np.isfinite(np.stack(whole)).all() and len(whole) == runs


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_interrupted_it_stops_with_a_sentence(jobs: str, tmp_path: Path) -> None:
    process = started(tmp_path, 500, "--jobs", jobs)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130
    assert said == "reproduction: stopped\n"
    assert not list(tmp_path.rglob("*.part"))
