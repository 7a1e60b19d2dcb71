"""Every script of the gallery runs from end to end on the flights, and is shown on its page."""

from __future__ import annotations

import re
import runpy
import sys
from functools import cache
from pathlib import Path

import pytest

from calibeat import examples as flights

PAGE = Path(__file__).parents[1] / "docs" / "gallery.md"
SCRIPTS = sorted((PAGE.parent / "gallery").glob("*.py"))

read_once, score_once = cache(flights.read_flights), cache(flights.flights)


@pytest.fixture(autouse=True)
def the_flights_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flights, "read_flights", read_once)
    monkeypatch.setattr(flights, "flights", score_once)


def printed(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    runpy.run_path(str(PAGE.parent / "gallery" / f"{name}.py"), run_name="__main__")
    return capsys.readouterr().out


def numbers(text: str, what: str) -> list[float]:
    return [float(number) for number in re.findall(rf"{what} (\d+\.\d+)", text)]


def test_every_script_is_on_the_page() -> None:
    page = PAGE.read_text()
    assert len(SCRIPTS) == 9  # that of Spark runs in tests/spark, beside the session
    for script in SCRIPTS:
        assert f"(gallery/{script.name})" in page and f"python docs/gallery/{script.name}" in page, script.name


def test_scikit_learn(capsys: pytest.CaptureFixture[str]) -> None:
    said = printed("with_sklearn", capsys)
    base, calibrated, in_turn = numbers(said, "log-loss")
    assert calibrated < base < in_turn
    base, calibrated, in_turn = numbers(said, "calibration error")
    assert calibrated < 0.5 * base < in_turn
    ahead = re.search(r"base ([\d.]+), fit ([\d.]+), order='time' ([\d.]+), and delay=0 ([\d.]+)", said)
    assert ahead is not None
    base, shuffled, in_time, each = map(float, ahead.groups())
    assert max(shuffled, in_time) < base < each


def test_river(capsys: pytest.CaptureFixture[str]) -> None:
    said = printed("with_river", capsys)
    for what in ("log-loss", "Brier"):
        base, calibrated = numbers(said, what)
        assert calibrated < base
    assert "of the last 1,000 of 10,912 flights" in said


def test_data_frames(capsys: pytest.CaptureFixture[str]) -> None:
    said = printed("with_frames", capsys)
    raw, forecast = re.search(r"(\d\.\d+) raw, (\d\.\d+) forecast", said).groups()  # type: ignore[union-attr]
    assert float(forecast) < float(raw)
    assert "flight 59999" in said and "the same numbers: True" in said


def test_plots(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["with_plots.py", str(tmp_path)])
    said = printed("with_plots", capsys)
    raw, auto = numbers(said, "mean error of a window")
    assert auto < raw and (tmp_path / "plots.png").stat().st_size > 20_000


def test_the_interval(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["with_band.py", str(tmp_path)])
    said = printed("with_band", capsys)
    assert said in PAGE.read_text()
    assert (tmp_path / "band.png").stat().st_size > 20_000


def test_export(capsys: pytest.CaptureFixture[str]) -> None:
    said = printed("with_export", capsys)
    assert said.count("at most 1e-12 apart: True") == 2
    assert "def calibrate(score):" in said and "CASE WHEN CAST(score AS DOUBLE PRECISION) >= 0 AND" in said
    assert said[said.index("CASE WHEN") :].strip() in PAGE.read_text()  # shown as it was printed, to the last line


def test_many_classes(capsys: pytest.CaptureFixture[str]) -> None:
    said = printed("with_many_classes", capsys)
    for what in ("log-loss", "class-wise CE"):
        for raw, ots, multi in (numbers(said, what)[:3], numbers(said, what)[3:]):
            assert multi < ots < raw
    assert "lane with the most weight: fast" in said


def test_ops_in_river_has_the_parameters_of_rivers_newton(capsys: pytest.CaptureFixture[str]) -> None:
    newton = runpy.run_path(str(PAGE.parent / "gallery" / "newton.py"))
    (a, b), (other_a, other_b) = newton["main"](events=20_000)
    assert abs(a - other_a) < 5e-5 and abs(b - other_b) < 5e-5
    printed_table = capsys.readouterr().out
    river, ours = printed_table.splitlines()[2:4]
    assert river.split("|")[2:5] == ours.split("|")[2:5]  # a, b and log-loss, as they are printed
    lines = printed_table.splitlines()
    assert lines[4].split("|")[2:5] == lines[5].split("|")[2:5]  # in river and without it
