"""The README and every docstring run; every public name is documented; every command is shown."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import calibeat
from calibeat.core.method import PRESETS

ROOT = Path(__file__).parents[1]
MODULES = [
    module.name for module in pkgutil.walk_packages(calibeat.__path__, "calibeat.") if "__main__" not in module.name
]


DOCS = ROOT / "docs"
WRITTEN = [line[1:] for line in (ROOT / ".gitignore").read_text().splitlines() if line.startswith("/docs/")]


def written(page: Path) -> bool:
    """Whether the site writes this page from the code when it is built; Git does not keep it."""
    return any(str(page.relative_to(ROOT)).startswith(place) for place in WRITTEN)


@pytest.mark.parametrize("package", sorted({".".join(name.split(".")[:2]) for name in ["calibeat", *MODULES]}))
def test_docstrings_run(package: str) -> None:
    names = [name for name in ["calibeat", *MODULES] if ".".join(name.split(".")[:2]) == package]
    failed = {}
    for name in names:
        result = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
        failed[name] = result.failed
    assert {name: count for name, count in failed.items() if count} == {}


def test_readme_runs() -> None:
    result = doctest.testfile(str(ROOT / "README.md"), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.attempted > 5
    assert result.failed == 0


PAGES = sorted(
    page for page in DOCS.rglob("*.md") if not page.is_relative_to(DOCS / "reproduction") and not written(page)
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_pages_run(page: Path) -> None:
    result = doctest.testfile(str(page), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0


def test_public_names_are_documented_with_an_example() -> None:
    for name in calibeat.__all__:
        thing = getattr(calibeat, name)
        if inspect.isclass(thing) or inspect.ismodule(thing):
            assert thing.__doc__, name
        if inspect.isclass(thing) and not issubclass(thing, Exception):
            assert ">>>" in thing.__doc__, name
    for module in (calibeat.metrics, calibeat.bounds, calibeat.late):
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if function.__module__ == module.__name__ and not name.startswith("_"):
                assert ">>>" in (function.__doc__ or ""), name
    for name, member in inspect.getmembers(calibeat.Calibrator):
        if not name.startswith("_"):
            assert inspect.getdoc(member), name


def test_a_page_helps_to_choose_among_all_presets() -> None:
    page = (DOCS / "how-to" / "choose-method.md").read_text()
    for name in PRESETS:
        assert re.search(rf"\b{name.upper()}\b", page), name


def test_readme_takes_two_minutes() -> None:
    readme = (ROOT / "README.md").read_text()
    assert len(readme.split()) < 1000
    assert readme.count("```python") == 1  # one example
    for door in ("calibeat backtest", "calibeat serve", "curl localhost:8377/v1/forecasts"):
        assert door in readme, door


def test_links_between_our_own_pages_lead_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *PAGES]:
        for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#]+)", page.read_text()):
            there = (page.parent / target).resolve()
            assert there.exists() or written(there), (page.name, target)


def test_what_a_beginner_reads_leads_to_pages_of_the_repository() -> None:
    for page in (ROOT / "README.md", DOCS / "index.md", *(DOCS / "start").glob("*.md")):
        for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#]+)", page.read_text()):
            there = (page.parent / target).resolve()
            assert there.exists() and not written(there), (page.name, target)


def test_beginners_are_told_what_the_words_mean() -> None:
    glossary = (DOCS / "glossary.md").read_text()
    for word in ("calibrated", "log-loss", "Brier score", "calibration error, CE", "sharpness, SHP", "nat"):
        assert f"| **{word}** |" in glossary, word
    assert (DOCS / "start" / "index.md").read_text().index("calibration.md") < (
        DOCS / "start" / "index.md"
    ).read_text().index("install.md")


def test_recipes_are_short_and_monographs_are_explanations() -> None:
    listed = {
        section: re.findall(
            r"^(\S+)$", (DOCS / section / "index.md").read_text().split("```{toctree}")[1], re.MULTILINE
        )
        for section in ("how-to", "explanation")
    }
    for monograph in ("../monitor", "../bank", "../scale", "../late-outcomes", "../receipts"):
        assert monograph in listed["explanation"] and monograph not in listed["how-to"], monograph
    for page in (DOCS / "how-to").glob("*.md"):
        assert len(page.read_text().splitlines()) <= 150, page.name


def test_every_dependency_is_justified() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *(d for extra in project["optional-dependencies"].values() for d in extra)]
    page = (ROOT / "CONTRIBUTING.md").read_text()
    for requirement in wanted:
        name = re.split(r"[\[<>=~ ]", requirement)[0]
        assert name == "calibeat" or f"`{name}`" in page, name


def test_changelog_speaks_of_this_version() -> None:
    assert f"## {calibeat.__version__}" in (ROOT / "CHANGELOG.md").read_text()
