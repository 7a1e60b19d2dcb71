"""System components that some tests need and pip does not install.

A test calls ``component("chromium")`` and gets the paths of its programs. Where they are missing, the test skips with a
reason. In continuous integration (CI=true) it fails instead: there every component must be present.

``python tests/components.py`` prints the option for `coverage report` that leaves out the files of `src` which only run
where a missing component is present. In continuous integration it prints nothing.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Component:
    """Programs that must be on the PATH, how to get them, and the files of `src` that only run with them."""

    title: str
    programs: tuple[str, ...]
    how: str
    files: tuple[str, ...] = ()


COMPONENTS = {
    "chromium": Component("Chromium and its driver", ("chromium", "chromedriver"), "make chromium"),
    "postgres": Component(
        "PostgreSQL", ("postgres", "initdb"), "make postgres", ("src/calibeat/service/store/postgres.py",)
    ),
    "java": Component("Java for Spark", ("java",), "make java", ("src/calibeat/spark/*",)),
    "nginx": Component("nginx", ("nginx",), "make deploy-tools"),
    "promtool": Component("promtool of Prometheus", ("promtool",), "make deploy-tools"),
    "systemd": Component("systemd-analyze", ("systemd-analyze",), "make deploy-tools"),
}
# Debian keeps the programs of each version of PostgreSQL in a folder that is not on the PATH.
POSTGRES = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: -float(folder.parent.name))


def _which(program: str) -> str | None:
    return next((str(folder / program) for folder in POSTGRES if (folder / program).exists()), shutil.which(program))


def component(name: str) -> list[str]:
    """The paths of the component's programs; the test skips where one is missing, and fails if CI is set."""
    wanted = COMPONENTS[name]
    found = [path for program in wanted.programs if (path := _which(program))]
    if len(found) == len(wanted.programs):
        return found
    reason = f"needs {wanted.title} ({wanted.how})"
    if in_ci():
        pytest.fail(reason)
    pytest.skip(reason)


def postgres_folder() -> Path:
    """The folder of PostgreSQL's programs."""
    return Path(component("postgres")[0]).parent


def in_ci() -> bool:
    """Whether this is continuous integration, where no component may be missing."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


def omitted() -> str:
    """The option of `coverage report` for the components that are missing here."""
    missing = [c for c in COMPONENTS.values() if not all(_which(program) for program in c.programs)]
    files = [file for wanted in missing for file in wanted.files]
    return f"--omit={','.join(files)}" if files and not in_ci() else ""


if __name__ == "__main__":
    print(omitted())  # noqa: T201 - the Makefile reads it
