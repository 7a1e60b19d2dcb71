"""`python tests/lowest.py EXTRA ...` prints the oldest versions that pyproject.toml allows, as constraints for pip.

`make test-lowest` installs these and runs a part of the tests, so that no lower bound is only a claim.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:\[([^\]]*)\])?\s*(?:>=\s*([0-9][^;,\s]*))?")


def requirements(extras: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(name, lowest version) of the package itself and of these extras, also of extras that they bring."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *(line for extra in extras for line in project["optional-dependencies"][extra])]
    for line in wanted:
        found = REQUIREMENT.match(line)
        if found is None or (found[3] is None and found[1] != project["name"]):
            raise ValueError(f"a requirement must have a lowest version, got {line!r}")
        if found[1] == project["name"]:
            yield from requirements([extra.strip() for extra in found[2].split(",")])
        else:
            yield found[1], found[3]


def lowest(extras: Sequence[str]) -> dict[str, str]:
    """The lowest version of each; where extras differ, the higher one."""
    found: dict[str, str] = {}
    for name, version in requirements(extras):
        if name not in found or numbers(version) > numbers(found[name]):
            found[name] = version
    return found


def numbers(version: str) -> list[int]:
    """As versions are ordered."""
    return [int(number) for number in re.findall(r"\d+", version)]


if __name__ == "__main__":
    sys.stdout.writelines(f"{name}=={version}\n" for name, version in sorted(lowest(sys.argv[1:]).items()))
