"""Stores for the tests: SQLite in a folder, and a database of a real PostgreSQL that is started once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import postgres
import pytest


@pytest.fixture(scope="session")
def server() -> Iterator[postgres.Postgres]:
    """A PostgreSQL of our own."""
    made = postgres.start()
    yield made
    made.close()


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a new store, of both kinds."""
    if request.param == "sqlite":
        return str(tmp_path / "calibeat.db")
    return request.getfixturevalue("server").database()  # type: ignore[no-any-return]


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def module_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same for tests of a module that only read."""
    if request.param == "sqlite":
        return str(tmp_path_factory.mktemp("store") / "calibeat.db")
    return request.getfixturevalue("server").database()  # type: ignore[no-any-return]
