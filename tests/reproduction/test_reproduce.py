"""`python -m reproduction` as a person uses it: a small version of every experiment, the list, the page, a kill."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from typing import Any

import golden
import numpy as np
import pytest
from terminals import Terminal

from calibeat import CalibeatError, InvalidInput, MissingExtra
from reproduction import drifts, pages, published, registry, section, whole
from reproduction.__main__ import main
from reproduction.datasets import DATASETS
from reproduction.registry import EXPERIMENTS
from reproduction.reproduce import outcome_of, reproduce, require_libraries
from reproduction.settings import Settings

TREES, EVENTS, RUNS = 4, 160, 2


@pytest.fixture(scope="module")
def short_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a small report of everything, and what was printed."""
    out, said = tmp_path_factory.mktemp("out"), io.StringIO()
    cache = tmp_path_factory.mktemp("cache")
    settings = Settings(runs=RUNS, cache=cache, trees=TREES, events=EVENTS)
    page = reproduce(["all"], settings, out, to=said, log=io.StringIO())
    assert page == out / "reproduction.md"
    return out, said.getvalue()


# ---- what is there -----------------------------------------------------------------------------------------------


def test_every_figure_and_table_of_the_paper_is_listed_and_has_a_section(
    short_run: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = [name for name, _ in golden.paper()["floats"]]
    assert wanted[-1] == "Figure 16" and "Table 2" in wanted
    assert main(["--list"]) == 0
    listed = capsys.readouterr().out
    page = (short_run[0] / "reproduction.md").read_text()
    headings = "\n".join(line for line in page.splitlines() if line.startswith("## "))
    for label in wanted:
        assert re.search(rf"\b{label}\b", listed), label
        assert re.search(rf"\b{label}\b", headings), label
        assert [name for name, experiment in EXPERIMENTS.items() if label in experiment.shows], label
    shown = {label for experiment in EXPERIMENTS.values() for label in experiment.shows}
    assert shown == set(wanted)
    for name in EXPERIMENTS:
        assert re.search(rf"^{name} .*( s| min| h) ", listed, flags=re.MULTILINE), name


def test_numbers_of_figures_are_those_of_the_paper() -> None:
    """By the labels of the source: what we call Figure 5 is what the paper calls so."""
    labels = {label: name for name, found in golden.paper()["floats"] for label in found}
    for label, name in {
        "fig:methology-summary": "pipeline",
        "fig:cov-shift-illustration": "covariate-drift",
        "fig:intro-platt-figure": "platt",
        "fig:label-shift-small": "small-drifts",
        "tab:lr-regret-runningtime": "table1",
        "fig:real-data-ce": "real-drift",
        "fig:real-data-shp": "real-drift",
        "fig:real-data-iid-ce": "real-iid",
        "fig:real-data-iid-shp": "real-iid",
        "fig:synthetic-exps": "ten-dimensions",
        "tab:metadata": "datasets",
        "fig:label-shift-illustration": "label-drift",
        "fig:regression-shift-illustration": "regression-drift",
        "fig:real-data-eps-0.05": "epsilon",
        "fig:real-data-eps-0.2": "epsilon",
        "fig:real-data-tops": "beta",
        "fig:real-data-bs": "histogram",
        "fig:foster99-pfg-rain": "rain",
    }.items():
        assert labels[label] in EXPERIMENTS[name].shows, label


def test_printed_numbers_are_those_of_the_paper() -> None:
    rows = golden.paper()["section1"]
    ours = [(f"{accuracy:.2f}", f"{ce:g}") for kind in drifts.KINDS for accuracy, ce in published.SECTION1[kind]]
    assert sorted(ours) == sorted((accuracy, f"{float(ce):g}") for accuracy, ce in rows)
    assert len(ours) == 21


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_what_an_experiment_leaves_behind(name: str, short_run: tuple[Path, str]) -> None:
    folder = short_run[0] / "reproduction"
    page, whole_page = (folder / f"{name}.md").read_text(), (short_run[0] / "reproduction.md").read_text()
    with (folder / f"{name}.csv").open(newline="") as file:
        head, *rows = csv.reader(file)
    assert rows and all(len(row) == len(head) for row in rows)
    runs = min(RUNS, EXPERIMENTS[name].most_runs)
    if runs > 1:
        assert {row[head.index("runs")] for row in rows} == {str(RUNS)}
    stems = re.findall(r"!\[.*?\]\((.*?)\.png\)", page)
    if name not in ("datasets", "refits"):
        assert stems
    for stem in stems:
        assert (folder / f"{stem}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (folder / f"{stem}.svg").read_text()
    if name.startswith("real") or name.endswith("-drift"):
        assert re.search(r"\| ours|, ours", page) and "| paper |" in page and "std |" in page
    assert f"python -m reproduction {name}" in page
    for stem in re.findall(r"\[(.*?)\.csv\]", page):  # every number that is plotted or printed has its file
        with (folder / f"{stem}.csv").open(newline="") as file:
            head, *rows = csv.reader(file)
        assert rows and all(len(row) == len(head) for row in rows) and "nan" not in {c for row in rows for c in row}
    made = {0: "Made with: calibeat", 1: "Made with: 1 run, seed 0; ", RUNS: f"Made with: {RUNS} runs, seeds 0 to 1; "}
    assert made[runs] in page
    facts = json.loads((folder / f"{name}.json").read_text())
    assert page.startswith(f"## {facts['heading']}\n") and f"Made with: {facts['made_with']}" in page
    for verdict in facts["verdicts"]:
        assert pages.quoted(section.Verdict(**verdict)) in whole_page.replace("\\|", "|")
    assert f"Not the paper's size: {TREES} trees, {EVENTS} events" in page
    assert re.search(rf"^{name} +", short_run[1], flags=re.MULTILINE)


def test_two_runs_judge_no_claim_that_depends_on_them(short_run: tuple[Path, str]) -> None:
    page, printed = (short_run[0] / "reproduction.md").read_text(), short_run[1]
    sure = len(json.loads((short_run[0] / "reproduction" / "platt.json").read_text())["verdicts"])  # from a formula
    every = len(re.findall(r"^\| .* \| (?:holds|too few runs to decide) \| ", page, flags=re.MULTILINE))
    assert f"**{sure} hold**, **0 do not hold to the letter**, and 0 are undecided" in page
    assert f"{every - sure} more were not judged: too few runs to decide." in page and every > 50
    assert "does not hold" not in page and "## Wordings" not in page
    assert "2 runs, and a verdict needs at least 10; " in page and "2 runs, and a verdict needs at least 5; " in page
    assert "fewer than 10 runs" in page  # the rule is written down
    assert re.search(r"^real-drift .* 8 claims not judged: too few runs to decide$", printed, flags=re.MULTILINE)
    assert re.search(rf"^platt .* {sure} of {sure} claims hold$", printed, flags=re.MULTILINE)


def test_the_page_counts_verdicts() -> None:
    one = section.Verdict("TOPS is best", "Figure 5", True, "why", "asked")
    verdicts = [
        one,
        one,
        replace(one, holds=False, claim="OPS is best"),
        replace(one, holds=None, claim="Who knows"),
        replace(one, holds=None, fails_at_two=True, claim="Hardly", verbatim=False),
        replace(one, holds=None, too_few=True, claim="Unjudged"),
        replace(one, holds=False, better=True, claim="Slightly better"),
    ]
    text = "\n".join([whole.tally(verdicts), *whole.wordings(verdicts)])
    assert "the 6 sentences of the text that were judged, **2 hold**, in 1 the result is better than they say" in text
    assert "**1 does not hold to the letter**, and 2 are undecided" in text
    assert "If two standard errors were enough, 1 of the undecided would not hold." in text
    assert "1 more was not judged: too few runs to decide." in text and "Unjudged" not in text
    assert text.endswith(f"## {whole.LETTER}\n{whole.WORDINGS}\n- “OPS is best” (Figure 5): why")
    assert "## Better than the text says\n- “Slightly better” (Figure 5): why\n" in text
    assert "- “Who knows” (Figure 5)\n- Hardly (Figure 5) (at two standard errors: does not hold)\n" in text
    assert "TOPS is best" not in text
    assert "1 is undecided" in whole.tally([replace(one, holds=None)])
    assert outcome_of(verdicts) == "2 of 7 claims hold, 3 undecided"
    assert outcome_of([]) == "no claims to decide"


def test_the_links_of_the_page_lead_somewhere(short_run: tuple[Path, str]) -> None:
    page = (short_run[0] / "reproduction.md").read_text()
    known = page[page.index("published experiments themselves") : page.index("How claims are judged")]
    for finding in ("fetal-iid", "covariate-iid", "HOPS never improves", "TOBS", "epsilon 0.2", "not Brier"):
        assert finding in known
    assert "Changed afterwards:" in page and "CITATION.cff" in page and "licence" in page
    anchors = {pages.anchor(line.removeprefix("## ")) for line in page.splitlines() if line.startswith("## ")}
    for target in re.findall(r"\]\((.*?)\)", page):
        if target.startswith("#"):
            assert target[1:] in anchors, target
        elif not target.startswith("http"):
            assert (short_run[0] / target).is_file(), target
    assert "numpy" in page and "scikit-learn" in page
    assert "SciPy L-BFGS-B" in short_run[1] and "sklearn LogisticRegression" in short_run[1]  # the refits are printed


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


def test_claims_between_quotation_marks_are_the_words_of_the_paper(short_run: tuple[Path, str]) -> None:
    """The paper's text is not part of the repository: checksums of the quoted words were made from it."""
    make, known = golden.cutter(), set(golden.paper()["quoted"])
    quotations = set(re.findall(r"^\| “(.*?)” \(", (short_run[0] / "reproduction.md").read_text(), flags=re.MULTILINE))
    assert len(quotations) > 40
    for quotation in quotations:
        for part in make.quoted_parts(quotation):
            assert make.digest(part) in known, part
    assert make.digest("calibeating never helps") not in known


def test_every_verdict_says_what_it_asks(short_run: tuple[Path, str]) -> None:
    page = (short_run[0] / "reproduction.md").read_text()
    rows = re.findall(r"^\| .*? \| (?:holds|too few runs to decide) \| (.*?) \| (.*?) \|$", page, flags=re.MULTILINE)
    assert len(rows) > 50 and all(asked and numbers for asked, numbers in rows)


def test_one_run_decides_nothing_that_is_random(tmp_path: Path) -> None:
    settings = Settings(runs=1, cache=tmp_path / "cache", trees=TREES, events=EVENTS)
    names = ["label-drift", "covariate-drift", "rain", "table1", "ten-dimensions"]
    page = reproduce(names, settings, tmp_path, to=io.StringIO(), log=io.StringIO()).read_text()
    assert "Made with: 1 run, seed 0;" in page and not re.search(r"\bnan\b", page)
    for name in ("label-drift", "covariate-drift", "rain", "ten-dimensions"):
        facts = json.loads((tmp_path / "reproduction" / f"{name}.json").read_text())
        assert all(verdict["too_few"] and verdict["holds"] is None for verdict in facts["verdicts"])
    assert "| too few runs to decide | " in page and "| holds |" not in page and "**does not hold**" not in page
    assert "1 run, and a verdict needs at least 10; " in page


def test_data_in_use_are_verified_also_when_the_scores_are_in_the_cache(tmp_path: Path) -> None:
    settings = Settings(runs=1, cache=tmp_path / "cache", trees=TREES, events=EVENTS)
    reproduce(["refits"], settings, tmp_path / "out", to=io.StringIO(), log=io.StringIO())
    bad = tmp_path / "bad"
    bad.mkdir()
    for dataset in DATASETS.values():
        (bad / dataset.file).write_text("garbage\n1\n")
    for name in ("refits", "real-drift", "datasets"):
        with pytest.raises(InvalidInput, match="must be the file that the paper used"):
            reproduce([name], replace(settings, data=bad), tmp_path / "out", to=io.StringIO(), log=io.StringIO())


def test_what_an_experiment_does_not_need_is_not_computed() -> None:
    assert {task.name for task in EXPERIMENTS["real-drift"].tasks(Settings())} == {
        f"replay {name}-drift" for name in DATASETS
    }


def test_a_process_that_died_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: Any) -> None:
        raise BrokenProcessPool

    monkeypatch.setattr("reproduction.reproduce.run_all", die)
    with pytest.raises(
        CalibeatError, match=r"was killed, perhaps for want of memory .* start again, with fewer --jobs"
    ):
        reproduce(["platt"], Settings(cache=tmp_path), tmp_path, to=io.StringIO())


# ---- arguments ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["real-drfit"], "NAME must be one of the experiments, got 'real-drfit' - did you mean 'real-drift'?"),
        (["zzzz"], "got 'zzzz' - there are all, platt, pipeline"),
        (["platt", "--runs", "0"], "--runs must be a whole number in [1, 100000], got 0"),
        (["platt", "--jobs", "-3"], "--jobs must be a whole number"),
        (["platt", "--seed", "-1"], "--seed must be a whole number"),
        (["platt", "--seed", str(2**40)], "--seed must be a whole number"),
        (
            ["real-iid", "--data", "/no/such/folder"],
            "/no/such/folder must hold the data, but has no bank.csv, credit.csv",
        ),
        (["refits", "--data", "/no/such/folder"], "/no/such/folder must hold the data"),
        (["platt", "--out", "/dev/null/x"], "--out must be a folder or a new name, got /dev/null/x - Not a directory"),
        (["platt", "--out", "/dev/null"], "--out must be a folder or a new name, got /dev/null - File exists"),
        (["real"], "got 'real' - did you mean 'real-drift' or 'real-iid'?"),
        (["figure5"], "did you mean 'real-drift'?"),
        (["Figure 16"], "did you mean 'rain'?"),
        (["fig. 7"], "did you mean 'ten-dimensions'?"),
        (["--list", "foo"], "NAME must be one of the experiments, got 'foo'"),
    ],
)
def test_garbage_is_answered_with_a_sentence(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("reproduction: ") and said in error


@pytest.mark.parametrize("arguments", [["--runs", "many"], ["--jobs", "1.5"], ["--data"]])
def test_what_cannot_be_understood(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert "usage: python -m reproduction" in capsys.readouterr().err


def test_the_command_writes_the_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    given = ["platt", "small-drifts", "--seed", "7", "--out", str(tmp_path), "--data", "/not/needed"]
    assert main(given) == 0
    assert f"Report written to {tmp_path / 'reproduction.md'}" in capsys.readouterr().out
    page = (tmp_path / "reproduction.md").read_text()
    assert "`python -m reproduction small-drifts --seed 7`" in page and "1 run, seed 7;" in page
    assert "`python -m reproduction platt`" in page
    assert "do not hold:" not in page and "not judged" not in page  # none of these fails, and nothing is listed
    assert "## Figure 4" in page and "## Figure 3" not in page


@pytest.mark.parametrize("library", ["matplotlib", "sklearn", "pandas", "scipy"])
def test_a_missing_library_is_named(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtra, match=rf"needs {library}: pip install 'calibeat\[reproduce\]'"):
        require_libraries()


def test_estimates_are_for_people() -> None:
    assert re.search(r"^label-drift .* 4 s +4 s ", registry.listing(Settings()), flags=re.MULTILINE)
    long = registry.listing(Settings(runs=1000, jobs=2))
    assert "--runs 1000 --jobs 2" in long and " h " in long


# ---- numbers and equations -----------------------------------------------------------------------------------------


def test_cells_beside_the_paper() -> None:
    assert section.beside(0.5, 0.1, 0.3, 2) == ["0.50 ± 0.10", "0.30", "+2.0"]
    assert section.beside(0.5, 0.1, None, 2) == ["0.50 ± 0.10", "", ""]
    assert section.beside(0.5, float("nan"), 0.3, 2) == ["0.50", "0.30", ""]  # one run has no deviation
    table = pages.markdown_table(section.Table("t", ["a", "b"], [["|x|", "1"]]))
    assert r"| \|x\| | 1 |" in table


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
