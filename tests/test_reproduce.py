"""`calibeat reproduce` as a person uses it: a small version of every experiment, the list, the page, a kill."""

from __future__ import annotations

import csv
import io
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibeat import CalibeatError, InvalidInput, MissingExtra, cli
from calibeat.experiments import claims, drifts, measured, pages, registry, regret, reports, section, section1, tasks
from calibeat.experiments.forests import ForestStream
from calibeat.experiments.registry import EXPERIMENTS
from calibeat.experiments.replay import EPSILONS, METHODS
from calibeat.experiments.reproduce import reproduce, require_libraries
from calibeat.experiments.settings import Settings
from calibeat.experiments.summary import Summary
from calibeat.experiments.tasks import Task

TREES, EVENTS, RUNS = 4, 160, 2


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory, shared: Path) -> tuple[Path, str]:
    """The folder of a small report of everything, and what was printed."""
    out, said = tmp_path_factory.mktemp("out"), io.StringIO()
    cache = tmp_path_factory.mktemp("cache")
    settings = Settings(runs=RUNS, data=shared / "data", cache=cache, trees=TREES, events=EVENTS)
    page = reproduce(["all"], settings, out, to=said, log=io.StringIO())
    assert page == out / "reproduction.md"
    return out, said.getvalue()


# ---- what is there -----------------------------------------------------------------------------------------------


def numbered(tex: str) -> list[str]:
    """Figure 1, Figure 2, Table 1, ...: every float of the paper that has a number, as LaTeX counts."""
    found, count = [], {"figure": 0, "table": 0}
    for kind in re.findall(r"\\begin\{(figure|table)\*?\}", tex):
        count[kind] += 1
        found.append(f"{kind.capitalize()} {count[kind]}")
    return found


def test_every_figure_and_table_of_the_paper_is_listed_and_has_a_section(
    small: tuple[Path, str], shared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tex = "".join(path.read_text() for path in (shared / "paper").glob("*.tex"))
    wanted = numbered(tex)
    assert wanted[-1] == "Figure 16" and "Table 2" in wanted
    assert cli.main(["reproduce", "--list"]) == 0
    listed = capsys.readouterr().out
    page = (small[0] / "reproduction.md").read_text()
    headings = "\n".join(line for line in page.splitlines() if line.startswith("## "))
    for label in wanted:
        assert re.search(rf"\b{label}\b", listed), label
        assert re.search(rf"\b{label}\b", headings), label
        assert [name for name, experiment in EXPERIMENTS.items() if label in experiment.shows], label
    shown = {label for experiment in EXPERIMENTS.values() for label in experiment.shows}
    assert shown == set(wanted)
    for name in EXPERIMENTS:
        assert re.search(rf"^{name} .*( s| min| h) ", listed, flags=re.MULTILINE), name


def test_numbers_of_figures_are_those_of_the_paper(shared: Path) -> None:
    """By the labels of the source: what we call Figure 5 is what the paper calls so."""
    tex = "".join(path.read_text() for path in (shared / "paper").glob("*.tex"))
    bodies = re.findall(r"\\begin\{(figure|table)\*?\}(.*?)\\end\{\1\*?\}", tex, flags=re.DOTALL)
    labels = {}
    for name, (_, body) in zip(numbered(tex), bodies, strict=True):
        labels.update(dict.fromkeys(re.findall(r"\\label\{(.*?)\}", body), name))
    for label, name in {
        "fig:methology-summary": "pipeline", "fig:cov-shift-illustration": "covariate-drift",
        "fig:intro-platt-figure": "platt", "fig:label-shift-small": "small-drifts",
        "tab:lr-regret-runningtime": "table1",
        "fig:real-data-ce": "real-drift", "fig:real-data-shp": "real-drift", "fig:real-data-iid-ce": "real-iid",
        "fig:real-data-iid-shp": "real-iid", "fig:synthetic-exps": "ten-dimensions", "tab:metadata": "datasets",
        "fig:label-shift-illustration": "label-drift", "fig:regression-shift-illustration": "regression-drift",
        "fig:real-data-eps-0.05": "epsilon", "fig:real-data-eps-0.2": "epsilon", "fig:real-data-tops": "beta",
        "fig:real-data-bs": "histogram", "fig:foster99-pfg-rain": "rain",
    }.items():  # fmt: skip
        assert labels[label] in EXPERIMENTS[name].shows, label


def test_printed_numbers_are_those_of_the_paper(shared: Path) -> None:
    from calibeat.experiments import published

    tex = "".join(path.read_text() for path in (shared / "paper").glob("*.tex"))
    rows = re.findall(r"(?:Base|OPS) & +(\d+\.\d+)\\% & +(\d*\.\d+)", tex)
    ours = [(f"{accuracy:.2f}", f"{ce:g}") for kind in drifts.KINDS for accuracy, ce in published.SECTION1[kind]]
    assert sorted(ours) == sorted((accuracy, f"{float(ce):g}") for accuracy, ce in rows)
    assert len(ours) == 21


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_what_an_experiment_leaves_behind(name: str, small: tuple[Path, str]) -> None:
    folder = small[0] / "reproduction"
    page = (folder / f"{name}.md").read_text()
    with (folder / f"{name}.csv").open(newline="") as file:
        head, *rows = csv.reader(file)
    assert rows and all(len(row) == len(head) for row in rows)
    if EXPERIMENTS[name].has_runs:
        assert {row[head.index("runs")] for row in rows} == {str(RUNS)}
    stems = re.findall(r"!\[.*?\]\((.*?)\.png\)", page)
    if name not in ("datasets", "refits"):
        assert stems
    for stem in stems:
        assert (folder / f"{stem}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (folder / f"{stem}.svg").read_text()
    if name.startswith("real") or name.endswith("-drift"):
        assert re.search(r"\| ours|, ours", page) and "| paper |" in page and "std |" in page
    assert f"calibeat reproduce {name}" in page
    assert (f"{RUNS} runs, seeds 0 to 1" in page) == EXPERIMENTS[name].has_runs
    assert f"Not the paper's size: {TREES} trees, {EVENTS} events" in page
    assert re.search(rf"^{name} +", small[1], flags=re.MULTILINE)


def test_the_page_counts_the_verdicts_and_its_links_lead_somewhere(small: tuple[Path, str]) -> None:
    page = (small[0] / "reproduction.md").read_text()
    found = re.search(r"\*\*(\d+) hold\*\* in these runs, \*\*(\d+) do not\*\*, and (\d+) are undecided", page)
    assert found
    held, failed, undecided = map(int, found.groups())
    assert held == len(re.findall(r"^\| “.*\| holds \|", page, flags=re.MULTILINE))
    assert failed == len(re.findall(r"^\| “.*\| \*\*does not hold\*\* \|", page, flags=re.MULTILINE)) > 0
    assert undecided == len(re.findall(r"^\| “.*\| undecided \|", page, flags=re.MULTILINE))
    assert failed + undecided == len(re.findall(r"^- “", page, flags=re.MULTILINE))
    anchors = {pages.anchor(line.removeprefix("## ")) for line in page.splitlines() if line.startswith("## ")}
    for target in re.findall(r"\]\((.*?)\)", page):
        if target.startswith("#"):
            assert target[1:] in anchors, target
        elif not target.startswith("http"):
            assert (small[0] / target).is_file(), target
    assert "numpy" in page and "scikit-learn" in page
    assert "SciPy L-BFGS-B" in small[1] and "sklearn LogisticRegression" in small[1]  # the refits are printed


def test_a_second_time_only_replays_and_says_the_same(tmp_path: Path) -> None:
    settings = Settings(runs=1, cache=tmp_path / "cache", trees=TREES, events=EVENTS)
    first = reproduce(["label-drift"], settings, tmp_path / "a", to=io.StringIO(), log=Terminal())
    results = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.npz")}
    second = reproduce(["label-drift"], settings, tmp_path / "b", to=io.StringIO(), log=io.StringIO())
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.npz")} == results
    assert first.read_text() == second.read_text()
    for ending in (".png", ".svg", ".csv"):
        name = "figure-10" if ending != ".csv" else "label-drift"
        one, two = (
            (folder / "reproduction" / f"{name}{ending}").read_bytes() for folder in (first.parent, second.parent)
        )
        assert one == two
    # Another experiment into the same folder is added to the page.
    reproduce(["platt"], settings, tmp_path / "a", to=io.StringIO(), log=io.StringIO())
    assert "## Figure 1:" in first.read_text() and "## Figure 10:" in first.read_text()


# ---- tasks -------------------------------------------------------------------------------------------------------


def test_processes_give_the_same_as_one(tmp_path: Path) -> None:
    work = [Task("section1", "label", seed) for seed in range(3)]
    log = Terminal()
    many = tasks.run_all(work, None, tmp_path / "many", jobs=2, log=log)
    one = tasks.run_all(work, None, tmp_path / "one", jobs=1, log=io.StringIO())
    assert "section1 label" in log.getvalue() and "/3" in log.getvalue()
    assert list(many) == list(one) == ["section1 label"]
    for a, b in zip(many["section1 label"], one["section1 label"], strict=True):
        for name in a:
            np.testing.assert_array_equal(a[name], b[name])


def test_an_error_in_a_process_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="drift must be one of covariate, label, regression, got 'nope'"):
        tasks.run_all([Task("section1", "nope", seed) for seed in range(3)], None, tmp_path, jobs=2, log=io.StringIO())


def test_without_tqdm_there_is_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm", None)
    log = Terminal()
    with tasks.progress(1, 0, log) as step:
        step("x", 1)
    assert log.getvalue() == ""


def started(tmp_path: Path, runs: int, *more: str) -> subprocess.Popen[str]:
    """The command, begun, with a first run finished."""
    command = [sys.executable, "-m", "calibeat", "reproduce", "covariate-drift", "--runs", str(runs), *more]
    process = subprocess.Popen(
        [*command, "--out", str(tmp_path / "out")], env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
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
    assert said == "calibeat: stopped\n"
    assert not list(tmp_path.rglob(".part-*"))


def test_a_process_that_died_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: Any) -> None:
        raise BrokenProcessPool

    monkeypatch.setattr("calibeat.experiments.reproduce.run_all", die)
    with pytest.raises(
        CalibeatError, match=r"was killed, perhaps for want of memory .* start again, with fewer --jobs"
    ):
        reproduce(["platt"], Settings(cache=tmp_path), tmp_path, to=io.StringIO())


# ---- arguments ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("arguments", "said"), [
    (["real-drfit"], "NAME must be one of the experiments, got 'real-drfit' - did you mean 'real-drift'?"),
    (["zzzz"], "got 'zzzz' - there are all, platt, pipeline"),
    (["platt", "--runs", "0"], "--runs must be a whole number in [1, 100000], got 0"),
    (["platt", "--jobs", "-3"], "--jobs must be a whole number"),
    (["platt", "--seed", "-1"], "--seed must be a whole number"),
    (["platt", "--seed", str(2**40)], "--seed must be a whole number"),
    (["real-iid", "--data", "/no/such/folder"], "/no/such/folder must hold the data, but has no bank.csv, credit.csv"),
    (["platt", "--data", "/no/such/folder"], "/no/such/folder must hold the data"),
    (["platt", "--out", "/dev/null/x"], "[Errno 20]"),
])  # fmt: skip
def test_garbage_is_answered_with_a_sentence(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["reproduce", *arguments]) == 1
    error = capsys.readouterr().err
    assert error.startswith("calibeat: ") and said in error


@pytest.mark.parametrize("arguments", [["--runs", "many"], ["--jobs", "1.5"], ["--data"]])
def test_what_cannot_be_understood(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["reproduce", *arguments])
    assert "usage: calibeat reproduce" in capsys.readouterr().err


def test_the_command_writes_the_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert cli.main(["reproduce", "platt", "small-drifts", "--seed", "7", "--out", str(tmp_path)]) == 0
    assert f"Report written to {tmp_path / 'reproduction.md'}" in capsys.readouterr().out
    page = (tmp_path / "reproduction.md").read_text()
    assert "calibeat reproduce platt --seed 7" in page
    assert "## Figure 4" in page and "## Figure 3" not in page


@pytest.mark.parametrize("library", ["matplotlib", "sklearn", "pandas", "scipy"])
def test_a_missing_library_is_named(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtra, match=rf"needs {library} .* pip install 'calibeat\[reproduce\]'"):
        require_libraries()


def test_estimates_are_for_people() -> None:
    assert [registry.duration(s) for s in (0.1, 80, 600, 7200)] == ["1 s", "80 s", "10 min", "2.0 h"]
    long = registry.listing(Settings(runs=1000, jobs=2))
    assert "--runs 1000 --jobs 2" in long and " h " in long


# ---- rules -------------------------------------------------------------------------------------------------------


def summary(kind: str = "bank", design: str = "drift", runs: int = 4, **ce: float) -> Summary:
    """A stream whose methods have these CEs at both of its points, with a little noise; 0.05 where none is said."""
    rng = np.random.default_rng(0)
    shape = len(METHODS), len(EPSILONS)
    values = []
    for _ in range(runs):
        run = {name: np.full((*shape, 2), 0.05) for name in ("ce", "shp")}
        run |= {name: np.full(shape, 0.2) for name in ("brier", "log_loss")}
        for method, level in ce.items():
            run["ce"][METHODS.index(method)] = level + rng.normal(0, 1e-5, (len(EPSILONS), 2))
        values.append({**run, "points": np.array([1500, 2000])})
    return Summary(ForestStream(kind, design), values)


@pytest.mark.parametrize("runs", [1, 4])
def test_never_beaten(runs: int) -> None:
    rule = claims.never_beaten("TOPS", ("OPS", "HOPS"))
    holds, why = rule({"bank-drift": summary(runs=runs, TOPS=0.01, OPS=0.03)})
    assert holds and "2 points" in why
    holds, why = rule({"bank-drift": summary(runs=runs, TOPS=0.04, OPS=0.03)})
    assert holds is False
    assert (
        "beaten at 2 of 2 points, by two standard errors at 2, clearly at 2 - bank-drift: by OPS 2 (clearly 2) of 2"
        in why
    )
    # Of another design it says nothing; at two epsilons it says at which.
    assert claims.never_beaten("TOPS", ("OPS",), "iid")({"bank-drift": summary(TOPS=0.04, OPS=0.03)})[0]
    _, why = claims.never_beaten("TOPS", ("OPS",), epsilons=(0.05, 0.2))({"x": summary(TOPS=0.04, OPS=0.03)})
    assert "x, epsilon 0.05" in why


def test_rules_can_go_both_ways() -> None:
    fine = {"bank-drift": summary(OPS=0.03, WPS=0.09, TOPS=0.01), "bank-iid": summary(design="iid", OPS=0.03)}
    assert claims.lower_at_the_end("TOPS", "OPS", 1.0, "drift")(fine)[0]
    holds, why = claims.lower_at_the_end("TOPS", "OPS", 1.0)(fine)
    assert not holds and "not on bank-iid (0.0500 > 0.0300)" in why
    assert claims.much_worse("WPS", "OPS")(fine)[0]
    assert not claims.much_worse("BM", "OPS")({"bank-drift": summary(OPS=0.049)})[0]
    assert claims.sharpness_kept("drift")(fine)[0]
    assert claims.unmoved_by_epsilon(("OPS",))(fine)[0]
    assert claims.hedging_ratio(0.2, 0.5, 1.5)(fine)[0]
    assert not claims.hedging_ratio(0.2, 1.1, 1.5)(fine)[0]
    assert claims.best_of("TOPS", ("OPS",), "drift")(fine)[0]
    assert not claims.best_of("OPS", ("TOPS",), "drift")(fine)[0]
    assert claims.gap_is_smaller({"bank-drift": summary(BM=0.2), "bank-iid": summary(design="iid")})[0]
    assert not claims.gap_is_smaller({"bank-drift": summary(), "bank-iid": summary(design="iid", BM=0.2)})[0]
    assert claims.tracking_idles({"x": summary(WHB=0.03, TWHB=0.03)})[0]
    assert not claims.tracking_idles({"x": summary(WHB=0.03, TWHB=0.01)})[0]
    assert claims.within_the_theorem(fine)[0]
    assert not claims.within_the_theorem({"x": summary(HOPS=0.9)})[0]
    noisy = summary(TOPS=0.03, OPS=0.03)
    means = {method: noisy.mean("ce", method) for method in ("TOPS", "OPS")}
    loser, winner = ("TOPS", "OPS") if (means["TOPS"] > means["OPS"]).any() else ("OPS", "TOPS")
    assert claims.never_beaten(loser, (winner,))({"x": noisy})[0] is None  # the means say so, within the noise
    fails, open_ = claims.never_beaten("BM", ("OPS",)), claims.never_beaten(loser, (winner,))
    assert claims.both(open_, claims.never_beaten("OPS", ("BM",)))({"x": noisy})[0] is None
    assert claims.both(open_, fails)({"x": noisy})[0] is False
    both = claims.both(claims.never_beaten("TOPS", ("OPS",)), claims.never_beaten("OPS", ("TOPS",)))
    assert not both({"x": summary(OPS=0.03, TOPS=0.01)})[0]


def test_verdicts_of_section_1_can_go_both_ways() -> None:
    good = np.array([(90.0, 0.1), *[(40.0, 0.4), (85.0, 0.1), (85.0, 0.1)] * 3])
    bad = np.array([(90.0, 0.1), *[(85.0, 0.1), (40.0, 0.4), (40.0, 0.4)] * 3])
    assert [v.holds for v in reports.section1_verdicts("label", good)] == [True, True]
    assert [v.holds for v in reports.section1_verdicts("label", bad)] == [False, False]
    assert [v.holds for v in reports.section1_verdicts("covariate", good)] == [False, True, True]
    assert [v.holds for v in reports.section1_verdicts("covariate", bad)] == [False, False, False]


def test_verdicts_of_table_1_can_go_both_ways() -> None:
    shape = len(regret.LEARNERS), len(regret.RADII), len(regret.STREAMS), 2
    speed = np.ones(shape) * np.array([1.0, 1.2, 4.0, 1.2])[:, None, None, None] * np.array([1000.0, 4000.0])
    low = np.ones((1, *shape))
    low[:, 0] = 5.0
    assert all(v.holds for v in measured.table1_verdicts(low, speed, (1000, 4000)))
    slow = speed[::-1] * np.array([1.0, 9.0])
    assert not any(v.holds for v in measured.table1_verdicts(1e9 - low, slow, (1000, 4000))[:3])
    assert not measured.table1_verdicts(1e9 * low[:, ::-1], speed, (1000, 4000))[4].holds


def test_cells_beside_the_paper() -> None:
    assert section.beside(0.5, 0.1, 0.3, 2) == ["0.50 ± 0.10", "0.30", "+2.0"]
    assert section.beside(0.5, 0.1, None, 2) == ["0.50 ± 0.10", "", ""]
    assert section.beside(0.5, float("nan"), 0.3, 2) == ["0.50", "0.30", ""]  # one run has no deviation
    table = pages.markdown_table(section.Table("t", ["a", "b"], [["|x|", "1"]]))
    assert r"| \|x\| | 1 |" in table


def test_refits_without_data_take_a_stream_that_needs_none() -> None:
    assert measured.refit_stream(Settings()).kind == "label"
    assert measured.refit_stream(Settings(data=Path())).kind == "credit"


def test_drifts_are_the_equations() -> None:
    with pytest.raises(InvalidInput, match="drift must be one of"):
        drifts.draw("speed", 0)
    covariate, label, regression = (drifts.draw(kind, 1) for kind in drifts.KINDS)
    assert set(covariate.truth) == {0.1, 0.9}
    assert covariate.x[:200].mean() == pytest.approx(0.4, abs=0.5)
    assert covariate.x[-200:].mean() == pytest.approx(23.6, abs=0.5)
    assert label.y[:300].mean() > 0.85 and label.y[-300:].mean() < 0.15
    assert regression.x.var() == pytest.approx(10.0, rel=0.1)
    for drift in (covariate, label, regression):  # the truth is calibrated
        for low in np.arange(0.0, 1.0, 0.2):
            near = (drift.truth >= low) & (drift.truth < low + 0.2)
            assert near.sum() < 100 or abs(drift.y[near].mean() - drift.truth[near].mean()) < 0.05
    halfway = drifts.probability("regression", np.array([1.0, 6.0]), 2500)
    assert halfway.tolist() == pytest.approx([0.3, 0.7])


def test_one_run_has_no_deviation() -> None:
    alone = summary(runs=1)
    assert np.isnan(alone.std("ce", "OPS")).all()
    assert np.isnan(section.spread(np.ones((1, 2)))).all()
    assert replace(Settings(), runs=3, seed=5).seeds == range(5, 8)
    assert section1.ROWS[0] == "1-1000 Base"
