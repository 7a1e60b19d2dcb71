"""Does the paper hold up? The table of main claims, from the results that lie in docs/reproduction."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from reproduction import reader, whole
from reproduction.section import Verdict

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def numbers() -> reader.Numbers:
    return reader.Numbers(DOCS / "reproduction")


def test_about_a_dozen_claims_each_with_both_numbers_and_a_verdict(numbers: reader.Numbers) -> None:
    rows = reader.main_claims(numbers)
    assert 10 <= len(rows) <= 16
    for claim, ours, paper, verdict, runs in rows:
        assert claim and re.search(r"\d", ours) and paper, claim
        assert re.fullmatch(r"\*\*(holds|holds on \d of \d streams|does not hold)\*\*", verdict), claim
        assert runs.endswith(" (few)") == (int(runs.split()[0]) < 10)


def test_the_numbers_are_those_of_the_tables(numbers: reader.Numbers) -> None:
    rows = {row[0].partition(" (")[0]: row[1:] for row in reader.main_claims(numbers)}
    # (967 + 373 + 364 + 1634) / 4 and (248 + 255 + 243 + 349) / 4 of the tables of bank, credit, churn and fetal
    assert rows["OPS beats the base model under drift"][0] == "CE 0.0834 → 0.0274, lower on 4 of 4"
    assert rows["OPS beats the base model under drift"][1] == "CE 0.0808 → 0.0284, lower on 4 of 4"
    assert rows["ONS calibrates better than AIOLI"][2] == "**does not hold**"
    assert rows["The regret of OPS is logarithmic"][3] == "5 (few)"
    assert rows["OPS turns a model round that has become wrong"][:2] == ["accuracy 21 → 85 %", "accuracy 24 → 88 %"]


def test_a_claim_that_fails_because_the_result_is_better_is_named_so(numbers: reader.Numbers) -> None:
    facts = json.loads((DOCS / "reproduction/covariate-drift.json").read_text())
    marked = {v["claim"]: reader.better_than_said(Verdict(**v), numbers).better for v in facts["verdicts"]}
    assert marked["it offers slightly better calibration and accuracy"]
    assert sum(marked.values()) == 1
    held = Verdict("it offers slightly better calibration and accuracy", "here", True, "why", "asked")
    assert not reader.better_than_said(held, numbers).better


def test_the_committed_page_is_what_the_committed_results_give(tmp_path: Path) -> None:
    shutil.copytree(DOCS / "reproduction", tmp_path / "reproduction")
    assert whole.assemble(tmp_path).read_text() == (DOCS / "reproduction.md").read_text()


def test_the_order_of_the_page_is_that_of_a_reader() -> None:
    page = (DOCS / "reproduction.md").read_text()
    headings = [line.removeprefix("## ") for line in page.splitlines() if line.startswith("## ")]
    assert headings[0] == "Does the paper hold up?"
    assert headings[-1] == "Wordings that do not hold to the letter"
    assert headings.index("Figure 5, Figure 8: Four real datasets with drift: CE and SHP over time") < headings.index(
        "The text, sentence by sentence"
    )
    last = page[page.index("## Wordings") :]
    assert "invisible error bars" in last and "slightly better calibration" not in last


@pytest.mark.parametrize(("count", "verdict"), [(8, "holds"), (7, "holds on 7 of 8 streams"), (4, "does not hold")])
def test_a_verdict_says_on_how_many_streams(count: int, verdict: str) -> None:
    assert reader.on(count, 8) == verdict


def test_without_results_the_page_says_so(tmp_path: Path) -> None:
    assert whole.main_claims(reader.Numbers(tmp_path)) == ["The experiments that the main claims rest on were not run."]
