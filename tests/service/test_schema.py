"""The format of a store: one of this version is kept here as a file, and is still served, bit for bit.

`PYTHONPATH=tests python tests/service/test_schema.py` makes the file of a new version.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from services import desk

from calibeat import SnapshotMismatch
from calibeat.service.maintenance import check, info, replay_check
from calibeat.service.store import open_store, schema
from calibeat.service.store.sqlite import SqliteConnection
from calibeat.service.upgrade import upgrade

KEPT = Path(__file__).parents[1] / "fixtures" / "store" / "v5.db.gz"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "old.db"
    path.write_bytes(gzip.decompress(KEPT.read_bytes()))
    return path


def test_a_store_that_was_kept_is_served(old: Path) -> None:
    assert info(str(old))["version"] == schema.VERSION
    assert replay_check(str(old)).is_same and check(str(old)) == []
    with desk(str(old), monitor=1000.0) as service:
        service.play(20, seed=1)
    assert info(str(old))["forecasts"] == 40
    assert replay_check(str(old)).is_same and check(str(old)) == []


def test_a_store_that_was_kept_is_made_anew_from_its_log(old: Path, tmp_path: Path) -> None:
    target = str(tmp_path / "new.db")
    assert upgrade(str(old), target).lost == []
    assert replay_check(target).is_same and check(target) == [] and info(target)["forecasts"] == 20


def test_the_tables_are_what_they_were_when_the_file_was_kept(old: Path, tmp_path: Path) -> None:
    fresh = SqliteConnection(tmp_path / "fresh.db")
    fresh.begin()
    assert schema.create_tables(fresh, "here")
    fresh.commit()
    kept = SqliteConnection(old)
    statement = "SELECT name, sql FROM sqlite_master ORDER BY name"
    assert kept.all(statement) == fresh.all(statement)
    assert not schema.create_tables(fresh, "here")
    kept.close()
    fresh.close()


def test_a_store_of_another_version_is_refused(old: Path) -> None:
    connection = SqliteConnection(old)
    schema.set_meta(connection, "schema", str(schema.VERSION - 1))
    connection.close()
    with pytest.raises(SnapshotMismatch, match=r"store must be of version \d, got version \d - at "):
        open_store(str(old))


def test_a_store_that_lacks_a_table_is_refused(old: Path) -> None:
    connection = SqliteConnection(old)
    connection.run("DROP TABLE body")
    connection.close()
    with pytest.raises(SnapshotMismatch, match="store must have the table body, got none - at "):
        open_store(str(old))


def test_tables_that_cannot_be_made_leave_an_empty_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "new.db"
    monkeypatch.setattr(schema, "_TABLES", (*schema._TABLES, "this is no SQL"))
    with pytest.raises(ValueError, match="syntax error"):
        open_store(str(path))
    monkeypatch.undo()
    with desk(str(path), monitor=1000.0) as service:
        service.play(5, seed=2)
    assert replay_check(str(path)).is_same


def keep_store() -> None:
    """Write the file: twenty events of three streams, some of them late."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "kept.db"
        with desk(str(path), monitor=1000.0) as service:
            service.play(20)
        KEPT.write_bytes(gzip.compress(path.read_bytes(), mtime=0))


if __name__ == "__main__":
    keep_store()
