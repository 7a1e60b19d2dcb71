"""Stores of every version: the first one is kept here as a file, and is still served, bit for bit."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from services import desk

from calibeat import SnapshotMismatch
from calibeat.service.maintenance import check, info, replay_check
from calibeat.service.store import open_store, schema
from calibeat.service.store.sqlite import SqliteConnection

FIRST = Path(__file__).parents[1] / "fixtures" / "store" / "v1.db.gz"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "old.db"
    path.write_bytes(gzip.decompress(FIRST.read_bytes()))
    return path


def test_a_store_of_the_first_version_is_served(old: Path) -> None:
    assert info(str(old))["version"] == 1
    assert replay_check(str(old)).is_same and check(str(old)) == []
    with desk(str(old), monitor=1000.0) as service:
        service.play(20, seed=1)
    assert info(str(old))["version"] == schema.VERSION and info(str(old))["forecasts"] == 40
    assert replay_check(str(old)).is_same and check(str(old)) == []


def test_the_first_version_is_what_it_was_when_it_was_kept(old: Path, tmp_path: Path) -> None:
    """A migration that was released never changes; what comes later is a new one."""
    fresh = SqliteConnection(tmp_path / "fresh.db")
    fresh.begin()
    schema.migrate(fresh, "here", {1: schema.MIGRATIONS[1]})
    fresh.commit()
    kept = SqliteConnection(old)
    statement = "SELECT name, sql FROM sqlite_master ORDER BY name"
    assert kept.all(statement) == fresh.all(statement)
    kept.close()
    fresh.close()


def test_migrations_run_in_order_and_once(old: Path) -> None:
    steps = {
        **schema.MIGRATIONS,
        schema.VERSION + 1: ("ALTER TABLE stream ADD COLUMN note {text}", "UPDATE stream SET note = name"),
        schema.VERSION + 2: ("CREATE INDEX stream_note ON stream (note)",),
    }
    connection = SqliteConnection(old)
    for _ in range(2):
        connection.begin()
        schema.migrate(connection, "here", steps)
        connection.commit()
    assert connection.all("SELECT name = note FROM stream") == [(1,), (1,)]
    assert schema.version_of(connection, "here") == schema.VERSION + 2
    connection.close()
    with pytest.raises(SnapshotMismatch, match=r"store must be of version \d or older, got version \d - at "):
        open_store(str(old))


def test_a_migration_that_fails_leaves_the_store_as_it_was(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = ("ALTER TABLE stream ADD COLUMN note TEXT", "this is no SQL")
    monkeypatch.setitem(schema.MIGRATIONS, schema.VERSION + 1, broken)
    with pytest.raises(ValueError, match="syntax error"):
        open_store(str(old))
    monkeypatch.undo()
    with desk(str(old), monitor=1000.0) as service:
        service.play(5, seed=2)
    assert replay_check(str(old)).is_same
