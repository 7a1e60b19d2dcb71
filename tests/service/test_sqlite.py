"""The files of an SQLite store: who may open them, what is in them after a stop, backups, and what happens to them."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from served import Process, service_apart, service_here, wait_until
from services import desk

from calibeat import InvalidInput, SnapshotMismatch
from calibeat.cli.main import main
from calibeat.service.engine import FATAL
from calibeat.service.maintenance import check, info, prune, replay_check
from calibeat.service.settings import EngineSettings
from calibeat.service.store import StoreBusy, backup, is_store, open_connection, open_reader, open_store, owned_store
from calibeat.service.store.sqlite import StoreGone, _stamp
from calibeat.service.store.types import LEARNT

TABLES = ("op", "base", "stream", "body", "event", "receipt", "rollup", "alarm", "token", "meta")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "calibeat.db"


def wal(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def alone(path: Path) -> Path:
    """A copy of the database file without the files beside it."""
    return Path(shutil.copy(path, path.with_name("alone.db")))


def rows(path: Path) -> dict[str, list[Any]]:
    """Everything that a store holds."""
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
        return {table: sorted(database.execute(f"SELECT * FROM {table}"), key=repr) for table in TABLES}  # noqa: S608


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def post(service: Process, *ids: str) -> list[int]:
    """Ask for forecasts -> the statuses."""
    with httpx.Client(base_url=service.url, timeout=30) as http:
        return [http.post("/v1/forecasts", json={"stream": "s", "id": i, "score": 0.5}).status_code for i in ids]


# ---- after a stop, the file is the whole store ----------------------------------------------------------------------


def test_after_sigterm_the_file_alone_is_the_whole_store(path: Path) -> None:
    with service_apart(path, "--method", "tops") as service:
        assert service.made == f"calibeat made a new store: {path}\n"
        assert post(service, *map(str, range(30))) == [200] * 30
        httpx.get(f"{service.url}/v1/streams")  # somebody has read
        assert main(["token", "create", "--store", str(path), "--scope", "write", "--name", "new"]) == 0
        assert service.end(signal.SIGTERM) == (0, "")
    assert not wal(path).exists() or wal(path).stat().st_size == 0
    copy = alone(path)
    assert info(str(copy))["forecasts"] == 30 and check(str(copy)) == [] and replay_check(str(copy)).is_same
    assert [token[0] for token in rows(copy)["token"]] == ["new"]
    with service_apart(copy) as service:
        assert service.made == ""
        assert post(service, "1") == [401]


def test_readers_are_closed_before_the_writer(path: Path) -> None:
    with service_here(path) as url:
        httpx.post(f"{url}/v1/forecasts", json={"stream": "s", "id": "a", "score": 0.5})
        httpx.get(f"{url}/v1/streams")
    assert not wal(path).exists()  # who closes last removes it, if it may write


def test_a_token_of_a_store_that_is_not_served_is_in_the_file(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["token", "create", "--store", str(path), "--scope", "read", "--name", "a"]) == 0
    assert capsys.readouterr().err == f"calibeat made a new store: {path}\n"
    assert len(rows(alone(path))["token"]) == 1
    assert main(["token", "create", "--store", str(path), "--scope", "read", "--name", "b"]) == 0
    assert capsys.readouterr().err == ""
    assert len(rows(alone(path))["token"]) == 2


def test_commands_that_write_leave_all_in_the_file(path: Path, tmp_path: Path) -> None:
    log = tmp_path / "log.parquet"
    with desk(str(path)) as service:
        service.play(200)
    main(["store", "export", str(log), "--store", str(path)])
    other = tmp_path / "other.db"
    assert main(["store", "import", str(log), "--store", str(other), "--create"]) == 0
    assert info(str(alone(other)))["forecasts"] == 200
    assert prune(str(path), 0.0, now=4e9) > 0
    assert rows(alone(path)) == rows(path)


def test_a_program_that_reads_at_the_end_is_told_of(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("calibeat.service.store.sqlite.LAST_READERS", 0.01)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        with desk(str(path)) as service:
            service.ask(("paris", "e1", 0.5))
            other.execute("BEGIN")
            other.execute("SELECT * FROM stream").fetchall()
            service.ask(("paris", "e2", 0.5))
        assert f"another program reads the store: {wal(path)} belongs to it until the next start" in caplog.text
    assert info(str(path))["forecasts"] == 2


# ---- backups --------------------------------------------------------------------------------------------------------


def test_a_backup_made_while_serving_is_the_store_at_one_moment(path: Path, tmp_path: Path) -> None:
    copies = [tmp_path / f"copy{n}.db" for n in range(3)]
    with service_here(path, settings=EngineSettings(method="tops")) as url:
        told: list[dict[str, float]] = []
        stopping = threading.Event()

        def work() -> None:
            with httpx.Client(base_url=url, timeout=60) as http:
                while not stopping.is_set():
                    events = [{"stream": f"s{n % 3}", "id": f"{len(told)}-{n}", "score": 0.3} for n in range(10)]
                    answer = http.post("/v1/forecasts", json={"events": events}).json()
                    told.append({made["id"]: made["probability"] for made in answer["forecasts"]})
                    outcomes = [{"stream": e["stream"], "id": e["id"], "outcome": 1} for e in events[:7]]
                    http.post("/v1/outcomes", json={"events": outcomes})

        worker = threading.Thread(target=work)
        worker.start()
        before = []
        for copy in copies:
            wait_until(lambda: len(told) > 3 * (1 + len(before)))
            before.append(len(told))
            assert main(["store", "backup", str(copy), "--store", str(path)]) == 0
        stopping.set()
        worker.join()
    whole = rows(path)
    for copy, count in zip(copies, before, strict=True):
        assert check(str(copy)) == [] and replay_check(str(copy)).is_same
        kept = rows(copy)
        # What was answered before the backup is in it, with the same bits.
        answered = {event: p for batch in told[:count] for event, p in batch.items()}
        assert {row[4]: row[8] for row in kept["op"] if row[4] in answered} == answered
        # What is in it is in the store: the log for ever, settled events too, the others until they are settled.
        assert set(kept["op"]) <= set(whole["op"])
        assert {row for row in kept["event"] if row[5] == LEARNT} <= set(whole["event"])
        moving = dict.fromkeys(("alive", "flushed", "opened"))  # signs of life go on, and the tables follow
        assert {**dict(kept["meta"]), **moving} == {**dict(whole["meta"]), **moving}


def test_a_backup_is_the_same_row_for_row_and_can_be_served(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    main(["token", "create", "--store", str(path), "--scope", "write", "--name", "a"])
    with desk(str(path), monitor=1000.0) as service, umask(0o077):
        service.play(300)
        assert backup(str(path), copy) == copy.stat().st_size
        assert [file.name for file in tmp_path.iterdir() if "copy" in file.name] == ["copy.db"]
        assert rows(copy) == rows(path)  # the log of the store is not folded yet
        assert wal(path).stat().st_size > 0
    with desk(str(path), monitor=1000.0) as one, desk(str(copy), monitor=1000.0) as two:
        one.now = two.now = service.now
        one.play(200, seed=3)
        two.play(200, seed=3)
    assert {**rows(copy), "meta": 0} == {**rows(path), "meta": 0}


def test_a_backup_is_ours_alone_and_never_over_a_file(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with desk(str(path)) as service:
        service.play(20)
    copy, fifo, link = tmp_path / "copy.db", tmp_path / "fifo", tmp_path / "link"
    with umask(0):
        assert main(["store", "backup", str(copy), "--store", str(path)]) == 0
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert capsys.readouterr().out == f"a copy of {copy.stat().st_size:,} bytes written to {copy}\n"
    os.mkfifo(fifo)
    link.symlink_to("nothing")
    for taken in (copy, path, fifo, link, tmp_path):
        assert main(["store", "backup", str(taken), "--store", str(path)]) == 2
        assert f"backup must be a new file, got one that is there - at {taken}" in capsys.readouterr().err
    assert main(["store", "backup", str(tmp_path / "no" / "copy.db"), "--store", str(path)]) == 2
    assert f"backup must be in a folder that exists, got none - at {tmp_path / 'no'}" in capsys.readouterr().err
    assert main(["store", "backup", "new.db", "--store", str(tmp_path / "no.db")]) == 2
    assert "store must exist, got nothing" in capsys.readouterr().err
    assert main(["store", "backup", "new.db", "--store", "postgresql://a/b"]) == 2
    assert "got PostgreSQL - use `pg_dump --format=custom --file=new.db --dbname=STORE`" in capsys.readouterr().err


def test_a_backup_that_fails_leaves_nothing(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibeat.service.store.sqlite.COPIED_AT_ONCE", 1)
    with desk(str(path)) as service:
        service.play(50)
        seen = []

        def stop(count: int) -> None:
            seen.append(count)
            service.ask(("paris", f"b{len(seen)}", 0.5))  # a commit does not make the copy begin anew
            if len(seen) == 5:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            backup(str(path), tmp_path / "copy.db", stop)
    assert not [file for file in tmp_path.iterdir() if "copy" in file.name]


# ---- one store, one name, one writer --------------------------------------------------------------------------------


def test_a_link_to_a_store_is_the_same_store(path: Path, tmp_path: Path) -> None:
    link, folder = tmp_path / "link.db", tmp_path / "folder"
    link.symlink_to(path)
    folder.symlink_to(tmp_path)
    with desk(str(link)) as service:
        service.ask(("paris", "e1", 0.5))
        for name in (path, folder / "calibeat.db"):
            with pytest.raises(InvalidInput, match="store must be used by one service at a time"):
                open_store(str(name))
        assert info(str(path))["forecasts"] == info(str(link))["forecasts"] == 1
    with desk(str(path)), pytest.raises(InvalidInput, match="store must be used by one service at a time"):
        open_store(str(link))


def test_a_link_that_leads_elsewhere_ends_the_service(path: Path, tmp_path: Path) -> None:
    link, other = tmp_path / "link.db", tmp_path / "other.db"
    open_store(str(other)).close()
    link.symlink_to(path)
    with desk(str(link)) as service:
        service.ask(("paris", "e1", 0.5))
        link.unlink()
        link.symlink_to(other)
        with pytest.raises(StoreGone, match=f"got another file or none - at {link}"):
            service.ask(("paris", "e2", 0.5))


def test_a_file_with_two_names_is_refused(path: Path, tmp_path: Path) -> None:
    open_store(str(path)).close()
    other = tmp_path / "other.db"
    other.hardlink_to(path)
    for name in (path, other):
        for use in (open_store, open_connection, open_reader):
            with pytest.raises(InvalidInput, match="store must have one name, got a file with 2 hard links - at"):
                use(str(name))
    other.unlink()
    open_store(str(path)).close()


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for name in (tmp_path, tmp_path / "fifo", Path(os.devnull)):
        with pytest.raises(InvalidInput, match="store must be a file, got something else - at"):
            open_connection(str(name))
        with pytest.raises(InvalidInput, match="store must be a file, got something else - at"):
            open_store(str(name))


def test_a_lock_file_that_is_deleted_ends_the_service(path: Path) -> None:
    lock = path.with_name("calibeat.db.lock")
    with service_apart(path, "--method", "ops") as first:
        assert post(first, "a") == [200]
        lock.unlink()
        with service_apart(path) as second:
            assert post(second, "b", "c") == [200, 200]
            with pytest.raises(httpx.TransportError):
                post(first, "d")
            first.process.wait(60)
            status, message = first.end()
            assert status == FATAL
            assert f"store must keep its files while it is used, got another file or none - at {lock}" in message
            assert post(second, "d") == [200]
    assert check(str(path)) == [] and replay_check(str(path)).is_same and info(str(path))["forecasts"] == 4


# ---- files that are taken away --------------------------------------------------------------------------------------


@pytest.mark.parametrize("replaced", [False, True], ids=["deleted", "replaced"])
def test_a_log_that_is_deleted_ends_the_service_and_nothing_is_lost(path: Path, replaced: bool) -> None:
    with service_apart(path, "--method", "ops") as service:
        assert post(service, *(f"a{n}" for n in range(20))) == [200] * 20
        wal(path).unlink()
        if replaced:
            wal(path).touch()
        with pytest.raises(httpx.TransportError):
            post(service, "b")
        service.process.wait(60)
        status, message = service.end()
    assert status == FATAL
    assert f"store must keep its files while it is used, got another file or none - at {wal(path)}" in message
    assert info(str(path))["forecasts"] == 20 and check(str(path)) == [] and replay_check(str(path)).is_same


def test_a_log_that_goes_in_the_middle_of_a_group(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is noticed after the commit and before the answer."""
    with desk(str(path)) as service:
        service.ask(("paris", "e1", 0.5))
        write = service.engine.store.write

        def and_delete(changes: Any) -> None:
            write(changes)
            wal(path).unlink()

        monkeypatch.setattr(service.engine.store, "write", and_delete)
        with pytest.raises(StoreGone, match="got another file or none"):
            service.ask(("paris", "e2", 0.5))
    assert info(str(alone(path)))["forecasts"] == 2  # the second was never told, and may be asked for again


def test_a_store_that_is_moved_is_whole_where_it_is(path: Path, tmp_path: Path) -> None:
    with desk(str(path)) as service:
        service.play(50)
        path.rename(tmp_path / "moved.db")
        shutil.copy(tmp_path / "moved.db", path)
        with pytest.raises(StoreGone):
            service.ask(("paris", "e1", 0.5))
        assert wal(path).stat().st_size == 0  # so nothing of it gets into the new file
    assert info(str(tmp_path / "moved.db"))["forecasts"] == 50 and check(str(tmp_path / "moved.db")) == []


def test_a_log_that_is_cut_off_ends_the_service(path: Path) -> None:
    with desk(str(path)) as service:
        service.ask(("paris", "e1", 0.5))
        service.ask(("paris", "e2", 0.5))
        os.truncate(wal(path), 0)
        with pytest.raises(service.engine.store.failures, match="disk I/O error"):
            service.ask(("paris", "e3", 0.5))
        service.engine.store.close = lambda: None  # type: ignore[method-assign]  # the process ends here
    service.engine.store.connection.database.close()


def test_a_log_that_another_program_has_folded_is_no_harm(path: Path) -> None:
    with desk(str(path)) as service:
        service.play(50)
        with closing(sqlite3.connect(path)) as other:
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        assert wal(path).stat().st_size == 0
        service.play(50, seed=1)
    assert replay_check(str(path)).is_same and info(str(path))["forecasts"] == 100


def test_shared_memory_that_is_deleted_ends_the_service(path: Path) -> None:
    """Others could not know any more what this process has written."""
    with desk(str(path)) as service:
        service.play(50)
        path.with_name("calibeat.db-shm").unlink()
        assert main(["token", "create", "--store", str(path), "--scope", "read", "--name", "a"]) == 0
        with pytest.raises(StoreGone, match=r"got another file or none - at .*-shm"):
            service.ask(("paris", "e1", 0.5))
        service.engine.store.connection.fold = lambda: True  # type: ignore[attr-defined]  # the process ends here
    assert info(str(path))["forecasts"] == 50 and check(str(path)) == [] and len(rows(path)["token"]) == 1


def overwrite(path: Path, content: bytes) -> None:
    """As `cp` does: the file stays the same file."""
    with path.open("rb+") as file:
        file.write(content)
        file.truncate()


def test_a_store_that_is_overwritten_with_rubbish_ends_the_service(path: Path, tmp_path: Path) -> None:
    with desk(str(path)) as service:
        service.play(50)
        content = path.read_bytes()
        overwrite(path, b"rubbish" * 1000)
        for use in (lambda: service.ask(("paris", "e1", 0.5)), service.close):
            with pytest.raises(StoreGone, match="store must not be overwritten while it is used, got another content"):
                use()
        assert path.read_bytes() == b"rubbish" * 1000
        overwrite(path, content)
        assert service.ask(("paris", "e1", 0.5))
    assert _stamp(tmp_path / "no.db") is None


@pytest.mark.parametrize("kind", ["of before", "of now", "other", "nothing"])
def test_a_store_that_is_overwritten_ends_the_service(path: Path, tmp_path: Path, kind: str) -> None:
    if kind == "other":
        open_store(str(tmp_path / "copy.db")).close()
    elif kind == "nothing":
        (tmp_path / "copy.db").touch()
    with desk(str(path)) as service:
        service.ask(("paris", "e0", 0.5))
    if kind == "of before":
        backup(str(path), tmp_path / "copy.db")
    with desk(str(path)) as service:
        service.play(50)
        if kind == "of now":
            backup(str(path), tmp_path / "copy.db")
        service.play(50, seed=1)
        overwrite(path, (tmp_path / "copy.db").read_bytes())
        if kind == "nothing":
            with pytest.raises(sqlite3.DatabaseError, match="malformed"):
                service.ask(("paris", "e1", 0.5))
        with pytest.raises(StoreGone, match="store must not be overwritten while it is used, got another content"):
            service.ask(("s0", "e1", 0.5))
        service.engine.store.close = lambda: None  # type: ignore[method-assign]  # the process ends here
    end_without_closing(service.engine.store)
    assert wal(path).stat().st_size > 0
    # The log is not put over the file that it does not belong to.
    with pytest.raises(SnapshotMismatch, match="store and its write-ahead log must belong together") as caught:
        open_store(str(path))
    assert "remove its -wal and -shm to go on with the file, or its .lock if the log is its own" in str(caught.value)
    wal(path).unlink()
    with desk(str(path)) as service:
        service.ask(("paris", "e2", 0.5))
    assert check(str(path)) == [] and replay_check(str(path)).is_same
    assert info(str(path))["forecasts"] == {"of before": 2, "of now": 52, "other": 1, "nothing": 1}[kind]


def end_without_closing(store: Any) -> None:
    """As a process that ends: its locks go, and the log stays as it is."""
    kept = wal(store.path).read_bytes()
    content = store.path.read_bytes()
    store.connection.database.close()
    os.close(store._lock)
    overwrite(store.path, content)
    wal(store.path).write_bytes(kept)


def test_a_log_that_was_left_is_taken_up(path: Path) -> None:
    with desk(str(path)) as service:
        service.play(50)
        service.engine.store.close = lambda: None  # type: ignore[method-assign]
    end_without_closing(service.engine.store)
    assert wal(path).stat().st_size > 0
    with desk(str(path)) as service:
        service.ask(("paris", "e1", 0.5))
    assert info(str(path))["forecasts"] == 51 and replay_check(str(path)).is_same


def test_a_checkpoint_is_no_other_content(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibeat.service.store.sqlite._CHECKPOINT", 1)
    with closing(sqlite3.connect(path, isolation_level=None)) as other, desk(str(path)) as service:
        for seed in range(5):
            service.play(20, seed=seed)
            other.execute("PRAGMA wal_checkpoint(FULL)")
    assert info(str(path))["forecasts"] == 100


def test_a_store_that_somebody_reads_while_it_is_opened(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its stamp gets into the file later. Until then the one before it counts."""
    with desk(str(path)) as service:
        service.ask(("paris", "e1", 0.5))
    monkeypatch.setattr("calibeat.service.store.sqlite.BUSY", 0.1)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN")
        other.execute("SELECT * FROM stream").fetchall()
        with desk(str(path)) as service:
            service.play(20)
            other.execute("ROLLBACK")
            other.execute("PRAGMA wal_checkpoint(FULL)")
            service.play(20, seed=1)
    open_store(str(path)).close()
    assert info(str(path))["forecasts"] == 41


def test_a_command_notices_it_too(path: Path) -> None:
    with desk(str(path)) as service:
        service.ask(("paris", "e1", 0.5))
    with pytest.raises(StoreGone, match=r"calibeat\.db\.lock"), owned_store(str(path)):
        path.with_name("calibeat.db.lock").unlink()


# ---- who may read, and what is made ---------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o777], ids=oct)
def test_all_files_are_ours_alone(path: Path, mask: int) -> None:
    with umask(mask), desk(str(path)) as service:
        service.ask(("paris", "e1", 0.5))
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert modes == {f"calibeat.db{end}": 0o600 for end in ("", "-wal", "-shm", ".lock")}


def test_a_file_that_is_there_keeps_its_permissions(path: Path) -> None:
    path.touch()
    path.chmod(0o640)
    with desk(str(path)):
        assert [stat.S_IMODE(file.stat().st_mode) for file in (path, wal(path))] == [0o640, 0o640]


def test_folders_are_not_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "no"
    for command in (["serve"], ["token", "create", "--scope", "read", "--name", "a"]):
        assert main([*command, "--store", str(missing / "calibeat.db")]) == 2
        assert f"store must be in a folder that exists, got none - at {missing}" in capsys.readouterr().err
    assert not missing.exists()


def test_whether_there_is_a_store(path: Path, tmp_path: Path) -> None:
    assert not is_store(str(path))
    path.touch()
    assert not is_store(str(path))
    open_store(str(path)).close()
    assert is_store(str(path))
    with closing(sqlite3.connect(tmp_path / "other.db")) as other:
        other.execute("CREATE TABLE a (b)")
    with pytest.raises(SnapshotMismatch):
        is_store(str(tmp_path / "other.db"))


# ---- another program holds the lock ---------------------------------------------------------------------------------


def test_a_store_that_stays_locked_is_503_and_served_later(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibeat.service.store.sqlite.BUSY", 0.1)
    event = {"stream": "s", "id": "a", "score": 0.5}
    with service_here(path) as url, closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        answer = httpx.post(f"{url}/v1/forecasts", json=event)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable")
        assert answer.headers["retry-after"] == "1"
        other.execute("ROLLBACK")
        assert httpx.post(f"{url}/v1/forecasts", json=event).status_code == 200
    assert info(str(path))["forecasts"] == 1


def test_a_store_that_is_locked_is_a_sentence_for_commands(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_store(str(path)).close()
    monkeypatch.setattr("calibeat.service.store.sqlite.BUSY", 0.1)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusy, match="store must be free to be written, got one that another program holds"):
            open_store(str(path))
    with closing(open_connection(str(path), write=True)) as connection:
        connection.begin()
        with pytest.raises(sqlite3.OperationalError, match="within a transaction"):  # another error stays what it is
            connection.begin()
