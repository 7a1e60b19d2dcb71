"""What a page of a package index and an installer see: links, pictures, extras that agree."""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from pathlib import Path

from lowest import lowest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PICTURES = "https://raw.githubusercontent.com/calibeat/calibeat/main/"


def test_extras_ask_for_the_same_versions() -> None:
    asked = defaultdict(set)
    for requirement in (
        *PROJECT["dependencies"],
        *(r for extra in PROJECT["optional-dependencies"].values() for r in extra),
    ):
        name, versions = re.fullmatch(r"([\w-]+(?:\[[\w,]+\])?)([^;]*)(?:;.*)?", requirement).groups()
        asked[name].add(versions)
    assert {name: versions for name, versions in asked.items() if len(versions) > 1} == {}


def test_numpy_is_the_only_dependency() -> None:
    assert [re.split("[>=]", requirement)[0] for requirement in PROJECT["dependencies"]] == ["numpy"]


def test_the_extra_of_data_frames_brings_what_its_example_imports() -> None:
    imported = set(
        re.findall(r"^import (\w+)", (ROOT / "docs" / "gallery" / "with_frames.py").read_text(), re.MULTILINE)
    )
    brought = {re.split("[>=]", requirement)[0] for requirement in PROJECT["optional-dependencies"]["frames"]}
    assert imported and imported <= brought


def test_pictures_of_the_readme_are_found_from_anywhere() -> None:
    readme = (ROOT / "README.md").read_text()
    pictures = re.findall(r"!\[[^]]*\]\(([^)]+)\)", readme) + re.findall(r"<img[^>]* src=\"([^\"]+)", readme)
    assert pictures
    for address in pictures:
        assert address.startswith(PICTURES) and (ROOT / address.removeprefix(PICTURES)).exists(), address


def test_the_project_has_addresses() -> None:
    assert {"Homepage", "Documentation", "Changelog", "Issues"} <= PROJECT["urls"].keys()


def test_every_requirement_has_a_lowest_version() -> None:
    """`make test-lowest` installs exactly these."""
    found = lowest(list(PROJECT["optional-dependencies"]))
    assert found["numpy"] == "2.0" and found["pandas"] == "2.2.2" and "calibeat" not in found
    assert all(re.match(r"\d", version) for version in found.values())
