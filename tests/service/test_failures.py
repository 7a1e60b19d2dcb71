"""What can go wrong under a service: the disk, the file, a second service, the server. Each ends with a sentence.

Nothing that was answered is lost, and what was not answered may be asked again with the same ids.
"""

from __future__ import annotations

import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import faults
import kills
import psycopg
import pytest
from postgres import Postgres
from services import desk, feed, stream_of, whole

from calibeat import InvalidInput, SnapshotMismatch
from calibeat.cli.main import main
from calibeat.service.engine import FATAL, Engine
from calibeat.service.events import ForecastEvent, Refusal
from calibeat.service.maintenance import check, info, replay_check
from calibeat.service.plan import Plan
from calibeat.service.settings import EngineSettings
from calibeat.service.store import NotLeader, open_reader, open_store, owned_store

ALL = {"lost": 0, "doubled": 0, "changed": 0, "differences": []}


def work_until_it_ends(
    url: str, folder: Path, before: object = None, stop: Callable[[], None] | None = None
) -> tuple[kills.Clients, int, str]:
    """Serve requests until the worker ends by itself -> the clients, its exit status, what it said."""
    clients, log = kills.Clients(seed=5), folder / "worker.log"
    with log.open("w") as file:
        worker = kills.Worker(url, "tops", file, before)
        for heard in range(100_000):
            if heard == 200 and stop is not None:
                stop()
            while len(clients.waiting) < kills.WINDOW:
                worker.send(clients.request())
            line = worker.answers.get(timeout=120)
            if line is None:
                break
            clients.hear(line)
        status = worker.kill()
    return clients, status, log.read_text()


def finish(clients: kills.Clients, url: str) -> None:
    """A new worker answers what was left; then everything must be right."""
    worker = kills.Worker(url, "tops", None)
    for request in list(clients.waiting.values()):
        worker.send(request)
    assert worker.stop() == 0
    kills.drain(clients, worker)
    found = kills.compare(clients, url)
    assert {name: found[name] for name in ALL} == ALL and clients.wrong == [] and not clients.waiting
    assert check(url) == []


# ---- the disk and the file ------------------------------------------------------------------------------------------


def _small_files() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # so that a write fails as on a full disk
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))


def test_a_full_disk_ends_the_service_and_loses_nothing(tmp_path: Path) -> None:
    url = str(tmp_path / "calibeat.db")
    clients, status, message = work_until_it_ends(url, tmp_path, _small_files)
    assert status == FATAL and "the store could not be written:" in message and "disk" in message
    assert len(clients.told) > 10
    finish(clients, url)


def test_a_store_that_is_deleted_under_the_service_ends_it(tmp_path: Path) -> None:
    url = tmp_path / "calibeat.db"
    with desk(str(url)) as service:
        service.ask(("paris", "e1", 0.5))
        shutil.move(url, tmp_path / "moved.db")
        with pytest.raises(service.engine.store.failures, match="store must keep its files while it is used"):
            service.ask(("paris", "e2", 0.5))
        url.write_bytes(b"")  # another file in its place
        with pytest.raises(service.engine.store.failures, match="got another file or none"):
            service.ask(("paris", "e2", 0.5))


def test_a_database_that_may_only_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = tmp_path / "calibeat.db"
    connect = sqlite3.connect
    with desk(str(url)):
        pass
    monkeypatch.setattr(sqlite3, "connect", lambda address, **more: connect(address.replace("=rw", "=ro"), **more))
    with pytest.raises(InvalidInput, match="read and written, got: attempt to write a readonly database"):
        open_store(str(url))
    monkeypatch.setattr(sqlite3, "connect", lambda *_, **more: connect(f"{tmp_path.as_uri()}/no.db?mode=rw", **more))
    with pytest.raises(InvalidInput, match="store must be a file that can be read and written, got: unable to open"):
        open_store(str(url))


def test_a_file_of_something_else(tmp_path: Path) -> None:
    text, other, empty = tmp_path / "a.txt", tmp_path / "b.db", tmp_path / "c.db"
    text.write_text("hello, this is a text and no database at all " * 100)
    with pytest.raises(SnapshotMismatch, match="store must be an SQLite file of calibeat, got another file"):
        open_store(str(text))
    with sqlite3.connect(other) as database:
        database.execute("CREATE TABLE a (b)")
    database.close()
    with pytest.raises(SnapshotMismatch, match="store must be a database of calibeat, got one of something else"):
        open_store(str(other))
    assert "hello" in text.read_text()
    empty.touch()  # as mktemp leaves it
    open_store(str(empty)).close()
    with pytest.raises(FileNotFoundError):
        open_reader(str(tmp_path / "no.db"))
    with (
        pytest.raises(FileNotFoundError, match=r"store must exist, got nothing - at .*no\.db"),
        owned_store(str(tmp_path / "no.db")),
    ):
        pass
    assert not (tmp_path / "no.db").exists()


def test_a_second_service_on_one_file_is_refused(tmp_path: Path) -> None:
    url = str(tmp_path / "calibeat.db")
    with desk(url) as service:
        with pytest.raises(InvalidInput, match="store must be used by one service at a time, got one that another"):
            open_store(url)
        code = f"from calibeat.service.store import open_store; open_store({url!r})"
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert other.returncode == 1 and "store must be used by one service at a time" in other.stderr
        service.ask(("paris", "e1", 0.5))
    open_store(url).close()  # the lock goes with its owner


def test_a_failed_group_leaves_the_bank_and_the_store_alike(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is told that it was done, and the engine ends. The next one does it."""
    group: list[Any] = [(0, [ForecastEvent("s0", "new", 0.5), ForecastEvent("fresh", "other", 0.5)])]
    heard: list[Any] = []
    with desk(url) as service:
        service.play(20)
        write = service.engine.store.write

        class Elsewhere(Exception):
            pass

        def broken(rows: Any) -> None:
            write(rows)
            raise Elsewhere

        with monkeypatch.context() as patched:
            patched.setattr(service.engine.store, "write", broken)
            patched.setattr(type(service.engine.store), "failures", (Elsewhere,))
            service.engine.hooks.deliver = heard.extend
            with pytest.raises(Elsewhere):
                service.engine._do(group)
        assert [refusal.status for _, refusal in heard] == [503] * service.engine.store.is_server
    assert whole(url) and info(url)["forecasts"] == 20
    with desk(url) as service:
        assert len(service.group(*(events for _, events in group))[0]) == 2
    assert whole(url) and info(url)["forecasts"] == 22


def test_a_fault_of_ours_refuses_one_request_and_serves_the_others(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    take = Plan.take

    def faulty(self: Plan, events: list[ForecastEvent]) -> None:
        if events[0].id == "bad":
            raise ZeroDivisionError("a fault")
        take(self, events)

    monkeypatch.setattr(Plan, "take", faulty)
    with desk(url) as service:
        service.play(20)
        heard: list[tuple[str, object]] = []
        service.engine.hooks.deliver = heard.extend
        names = ("a", "bad", "b")
        service.engine._do(
            [(name, [ForecastEvent("s0", name, 0.5), ForecastEvent(name, name + "2", 0.5)]) for name in names]
        )
        answers = dict(heard)
        assert isinstance(answers["a"], list) and isinstance(answers["b"], list)
        assert isinstance(answers["bad"], Refusal) and answers["bad"].status == 500
        assert "a fault" not in answers["bad"].message and "a fault" in caplog.text
        assert service.engine.counters.rejected["internal"] == 1 and "a group could not be done" in caplog.text
    assert replay_check(url).is_same and check(url) == []


# ---- PostgreSQL -----------------------------------------------------------------------------------------------------


def test_postgres_restarted_under_load(server: Postgres) -> None:
    """The service stays. What it refuses while the server is away is asked again, and nothing is lost or doubled."""
    url, nursery = server.database(), faults.Nursery(subprocess.DEVNULL)
    with closing(nursery):
        load = faults.run(nursery, url, "tops", ["server killed", "sessions cut"], server=server, seed=5)
    found = kills.compare(load.clients, url)
    assert {name: found[name] for name in kills.NOTHING_WRONG} == kills.NOTHING_WRONG
    assert found["forecasts"] > 50 and load.numbers["sent again"] > 0


def test_no_server_is_a_sentence() -> None:
    with pytest.raises(InvalidInput, match="store must be a PostgreSQL that answers, got:"):
        Engine.open("postgresql://localhost:1/none", EngineSettings())


def test_a_store_that_a_command_rewrites_is_not_served(server: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibeat.service.store.lease.LEASE", 0.2)
    url = server.database()
    with desk(url) as service:
        service.ask(("paris", "e1", 0.5))
    writes = r"one service at a time, got one that process \d+ on .* writes"
    with owned_store(url), pytest.raises(NotLeader, match=writes):
        open_store(url)
    server_tables = server.database()
    with psycopg.connect(server_tables, autocommit=True) as database:
        database.execute("CREATE TABLE a (b int)")
    with pytest.raises(SnapshotMismatch, match="got one of something else"):
        open_store(server_tables)


def test_a_damaged_file_is_left_with_its_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As docs/how-to/undo.md says."""
    store, log, new = (str(tmp_path / name) for name in ("calibeat.db", "log.parquet", "new.db"))
    with desk(store) as service:
        feed(service, 200)
    with sqlite3.connect(store) as database:
        (page,) = database.execute("SELECT rootpage FROM sqlite_master WHERE name = 'rollup'").fetchone()
        (size,) = database.execute("PRAGMA page_size").fetchone()
    database.close()
    with Path(store).open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)
    assert main(["store", "check", "--store", store]) == 1
    assert "the database is damaged: database disk image is malformed" in capsys.readouterr().out
    assert main(["store", "export", log, "--store", store]) == 0
    assert main(["store", "import", log, "--store", new, "--create"]) == 0
    stream = stream_of(new)
    assert (stream.events, stream.outcomes, stream.pending) == (200, 197, 3) and whole(new)
