"""Pages that the site writes from the code: every public name, every method, every command and option."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import calibeat
from calibeat.cli import main as cli
from calibeat.core.method import PRESETS
from calibeat.errors import CalibeatError
from calibeat.service.openapi import document
from calibeat.service.wire import DEFAULT_LIMITS

HEADINGS = (
    "Formula",
    "When to use it",
    "Hyper-parameters",
    "State size",
    "Cost",
    "Guarantee",
    "Ours against the paper",
)
DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The pages, written into an empty folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(DOCS))
        pages: ModuleType = importlib.import_module("_site.pages")
        written = tmp_path_factory.mktemp("pages")
        patch.setattr(pages, "OUT", written)
        for name in ("api", "commands", "http", "methods"):
            importlib.import_module(f"_site.{name}").generate()
        yield written
        for name in [name for name in sys.modules if name.partition(".")[0] == "_site"]:
            del sys.modules[name]


def test_every_public_name_has_a_page(folder: Path) -> None:
    errors = (folder / "reference/errors.md").read_text()
    for name in calibeat.__all__:
        thing = getattr(calibeat, name)
        if name.lower() in PRESETS:
            assert (folder / f"reference/methods/{name.lower()}.md").is_file(), name
        elif isinstance(thing, type) and issubclass(thing, CalibeatError):
            assert f"calibeat.{name}" in errors, name
        elif name != "__version__":
            assert f":: calibeat.{name}\n" in (folder / f"reference/api/{name}.md").read_text(), name


def test_every_adapter_has_a_page(folder: Path) -> None:
    for name in ("calibeat.sklearn", "calibeat.river", "calibeat.plot", "calibeat.export"):
        assert (folder / f"reference/api/{name}.md").is_file(), name


def test_every_call_of_the_service_is_documented(folder: Path) -> None:
    page = (folder / "reference/http.md").read_text()
    for path, verbs in document(DEFAULT_LIMITS)["paths"].items():
        for verb in verbs:
            assert f"### {verb.upper()} {path}\n" in page, path


def options(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.Action]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for sub in action.choices.values():
                yield from options(sub)
        elif (
            not isinstance(action, argparse._HelpAction | argparse._VersionAction) and action.help != argparse.SUPPRESS
        ):
            yield parser.prog, action


def test_every_command_and_option_is_documented(folder: Path) -> None:
    for prog, action in options(cli.parser()):
        page = (folder / "reference/command-line" / f"{prog.split()[1]}.md").read_text()
        assert action.help, (prog, action.dest)
        assert f"# {prog}\n" in page
        for option in action.option_strings:
            assert f"`{option}" in page, (prog, option)


@pytest.mark.parametrize("name", PRESETS)
def test_a_method_has_everything_on_its_page(folder: Path, name: str) -> None:
    page = (folder / f"reference/methods/{name}.md").read_text()
    for part in HEADINGS:
        assert f"## {part}\n" in page, part
    assert f"One row of {PRESETS[name].width} float64 numbers" in page
    assert "python -m benchmarks presets" in page
    for part in PRESETS[name].parts:
        assert f"`{type(part).__name__}`" in page


def test_numbers_of_the_paper_stand_beside_ours(folder: Path) -> None:
    page = (folder / "reference/methods/tops.md").read_text()
    assert "| bank-drift | 0.0164 ± 0.0022 | 0.0157 |" in page
    assert "python -m reproduction real-drift real-iid --runs 100" in page
