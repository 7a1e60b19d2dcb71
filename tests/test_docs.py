"""The README and every docstring run; every public name is documented; every command is shown."""

from __future__ import annotations

import argparse
import doctest
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import calibeat
from calibeat.cli import main as cli
from calibeat.core.presets import PRESETS

ROOT = Path(__file__).parents[1]
MODULES = [
    module.name for module in pkgutil.walk_packages(calibeat.__path__, "calibeat.") if "__main__" not in module.name
]


@pytest.mark.parametrize("name", ["calibeat", *MODULES])
def test_docstrings_run(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0


def test_readme_runs() -> None:
    result = doctest.testfile(str(ROOT / "README.md"), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.attempted > 5
    assert result.failed == 0


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
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


def test_readme_names_every_preset_and_every_command() -> None:
    readme = (ROOT / "README.md").read_text()
    for name in PRESETS:
        assert re.search(rf"\b{name.upper()}\b", readme), name
    commands = next(a for a in cli.parser()._actions if isinstance(a, argparse._SubParsersAction))
    for command in commands.choices:
        assert f"calibeat {command}" in readme, command


def test_links_between_our_own_pages_lead_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), (page.name, target)


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
