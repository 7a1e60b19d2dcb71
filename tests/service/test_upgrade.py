"""A store that is made anew from its log has the same tables, to the last bit."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from services import DAY, Desk, desk, feed, whole

from calibeat.errors import InvalidInput, SnapshotMismatch
from calibeat.service.engine import Engine
from calibeat.service.events import ForecastEvent, OutcomeEvent, StreamSettings
from calibeat.service.maintenance import check, info, prune, rebuild
from calibeat.service.settings import EngineSettings
from calibeat.service.store import backup, open_connection, open_store, restore
from calibeat.service.store.schema import set_meta
from calibeat.service.store.types import StoreInUse
from calibeat.service.upgrade import upgrade

_TABLES = {
    "stream": "number, name, key, events, outcomes, pending, held, expired, last_time, mode, base, applied",
    "body": "stream, state, monitor",
    "event": "stream, nth, id, position, time, status, outcome, weight, trials, outcome_time, learnt, own",
    "cell": "stream, is_base, slot, held",
    "name": "stream, word, value",
    "base": "stream, position, events, outcomes, expired, mode, state, monitor",
}


def tables_of(url: str) -> dict[str, Any]:
    """All that is made of the log, but for versions and for sums, which depend on the order of additions."""
    with closing(open_connection(url)) as connection:
        found = {
            name: connection.all(f"SELECT {columns} FROM {name} ORDER BY 1, 2, 3")  # noqa: S608 - our own tables
            for name, columns in _TABLES.items()
        }
        found["receipt"] = connection.all(
            "SELECT r.stream, r.nth, r.receipt, r.own FROM receipt r JOIN stream s ON s.number = r.stream "
            "WHERE r.version = s.receipts ORDER BY 1, 2"
        )
    return found


def sums_of(url: str) -> dict[str, Any]:
    with closing(open_connection(url)) as connection:
        rollups = connection.all("SELECT * FROM rollup ORDER BY stream, hour, kind, tenth")
        sums = b"".join(bytes(row[0]) for row in connection.all("SELECT sums FROM body ORDER BY stream"))
        errors = connection.all("SELECT error, raw_error, raw_log_loss, log_loss, weights FROM stream ORDER BY number")
    return {
        "rollup": np.array(rollups, dtype=float),
        "sums": np.frombuffer(sums),
        "errors": np.array(errors, dtype=float),
    }


def is_the_same(url: str, target: str) -> None:
    made = upgrade(url, target)
    assert made.lost == [] and made.operations > 0
    before, after = tables_of(url), tables_of(target)
    for name, rows in before.items():
        assert after[name] == rows, name
    for name, numbers in sums_of(url).items():
        np.testing.assert_allclose(sums_of(target)[name], numbers, rtol=1e-9, atol=1e-9, err_msg=name)
    assert whole(target)
    assert info(target)["forecasts"] == info(url)["forecasts"]


def all_sorts(service: Desk) -> None:
    """Streams of all shapes, to which all sorts of things are done."""
    service.play(80, streams=3)
    feed(service, 60)
    service.correct(("paris", "paris-0-3", None), ("paris", "paris-0-9", 1), ("paris", "paris-0-9", 0))
    service.engine.corrections.do_all()
    feed(service, 10, seed=1)
    service.do("freeze", "paris")
    service.tell(("paris", "paris-1-9", 1))
    service.do("resume", "paris")
    service.engine.finish_all()
    service.do("passthrough", "paris")
    feed(service, 10, seed=2)
    service.do("resume", "paris")
    service.do("rename", "s1", to="rome")
    feed(service, 10, stream="rome", seed=3)
    service.do("reset", "s2")
    service.play(40, streams=3, seed=5)
    service.do("copy", "paris", to="lyon")
    feed(service, 10, stream="lyon", seed=4)
    service.do("delete", "s0")
    service.engine.finish_all()


@pytest.mark.parametrize("monitor", [None, 1000.0])
def test_everything_is_made_of_the_log(url: str, tmp_path: Path, monitor: float | None) -> None:
    with desk(url, monitor=monitor, expire=30 * DAY) as service:
        all_sorts(service)
    is_the_same(url, str(tmp_path / "new.db"))


def test_bases_and_what_was_forgotten(url: str, tmp_path: Path) -> None:
    with desk(url, monitor=1000.0) as service:
        feed(service, 60)
        service.ask(("paris", "person", 0.5))
        service.tell(("paris", "person", 1))
        assert service.forget("paris", "person") == 1
        feed(service, 30, seed=1)
    is_the_same(url, str(tmp_path / "before.db"))
    with desk(url, monitor=1000.0) as service:
        service.now += 50 * DAY
        feed(service, 30, seed=2)
        now = service.now
    assert prune(url, 10 * DAY, now=now) > 0
    with desk(url, monitor=1000.0) as service:
        service.now = now
        feed(service, 30, seed=3)
        service.correct(("paris", "paris-3-5", None))
    is_the_same(url, str(tmp_path / "new.db"))


def test_groups_classes_and_models(url: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    with desk(url, method="auto", monitor=1000.0) as service:
        service.group([StreamSettings("g", groups=["country"], names=True)], [StreamSettings("m", models=["a", "b"])])
        for at in range(60):
            score = float(rng.random())
            asked = [
                ForecastEvent("g", f"e{at}", score, groups={"country": "fr" if at % 3 else "de"}),
                ForecastEvent("k", f"e{at}", scores=[0.2, 0.3, 0.5]),
                ForecastEvent("m", f"e{at}", scores={"a": score, "b": 0.5}),
            ]
            service.group(asked)
            if at % 4:
                told = [OutcomeEvent("g", f"e{at}", 1), OutcomeEvent("k", f"e{at}", label=at % 3)]
                service.group([*told, OutcomeEvent("m", f"e{at}", int(at % 2), weight=2.0)])
            if at == 30:
                service.group([StreamSettings("m", models=["a", "b", "c"])])
        service.correct(("g", "e5", 0))
        service.engine.corrections.do_all()
    is_the_same(url, str(tmp_path / "new.db"))


def test_another_method(url: str, tmp_path: Path) -> None:
    with desk(url) as service:
        feed(service, 60)
    rebuild(url, "ops")
    with desk(url, method="ops") as service:
        feed(service, 30, seed=1)
    is_the_same(url, str(tmp_path / "new.db"))


def test_from_a_file_to_a_server(tmp_path: Path, server: Any) -> None:
    """Alarms get numbers behind those that were copied."""
    url, target = str(tmp_path / "a.db"), server.database()
    alarm = "INSERT INTO alarm (stream, time, at, since, what, page) VALUES (1, 0.0, 1, 0.0, 'too low', 1)"
    with desk(url, monitor=1000.0) as service:
        all_sorts(service)
        for _ in range(3):
            service.engine.store.connection.run(alarm)
    is_the_same(url, target)
    with desk(target, monitor=1000.0) as service:
        service.engine.store.connection.run(alarm)
        assert len(service.engine.store.connection.all("SELECT DISTINCT number FROM alarm")) >= 4
        feed(service, 10, seed=7)
    assert whole(target)


def test_an_old_store_is_only_read_and_a_new_one_is_new(tmp_path: Path) -> None:
    url, target = str(tmp_path / "a.db"), str(tmp_path / "b.db")
    with pytest.raises(FileNotFoundError, match="store must exist"):
        upgrade(url, target)
    with desk(url) as service:
        feed(service, 10)
    before = Path(url).read_bytes()
    upgrade(url, target)
    assert Path(url).read_bytes() == before
    with pytest.raises(InvalidInput, match="new store, got one that is there"):
        upgrade(url, target)


def test_what_cannot_be_read_is_named_and_the_rest_is_kept(tmp_path: Path) -> None:
    """Pages in the middle of the log are overwritten."""
    url, target = tmp_path / "a.db", str(tmp_path / "b.db")
    with desk(str(url)) as service:
        for seed in range(20):
            feed(service, 100, seed=seed)
            service.now += 1.0
    with closing(sqlite3.connect(url)) as database:
        pages = [
            number
            for (number,) in database.execute("SELECT pageno FROM dbstat WHERE name = 'op' AND pagetype = 'leaf'")
        ]
        (size,) = database.execute("PRAGMA page_size").fetchone()
        (count,) = database.execute("SELECT count(*) FROM op").fetchone()
    overwrite(url, sorted(pages)[len(pages) // 2], size)
    assert check(str(url)) != []
    with pytest.raises(sqlite3.DatabaseError, match="malformed"):
        upgrade(str(url), target)
    assert not Path(target).exists()
    made = upgrade(str(url), target, salvage=True)
    assert len(made.lost) == 1 and made.lost[0].startswith("operations from position ")
    assert count - 200 < made.operations < count
    assert [problem for problem in check(target) if "gap" not in problem] == []


@pytest.mark.parametrize("table", ["event", "stream", "op"])
def test_commands_that_read_work_on_what_is_there(tmp_path: Path, table: str) -> None:
    """The root of a table is overwritten."""
    url, target = tmp_path / "a.db", str(tmp_path / "b.db")
    with desk(str(url)) as service:
        feed(service, 100)
    with closing(sqlite3.connect(url)) as database:
        ((page,),) = database.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchall()
        (size,) = database.execute("PRAGMA page_size").fetchone()
    overwrite(url, page, size)
    assert check(str(url)) != []
    found = info(str(url))
    assert found["method"] == "tops" and (found.get("damaged") or table == "op")
    if table == "op":
        return  # the log is gone, and nothing can be made of it
    if table == "stream":
        with pytest.raises(InvalidInput, match=r"store must be readable, got: .*upgrade --salvage"):
            Engine.open(str(url), EngineSettings())
    assert upgrade(str(url), target).lost == []
    assert whole(target) and info(target)["forecasts"] == 100


def test_a_store_of_another_version_is_refused_by_all_commands(tmp_path: Path) -> None:
    url = str(tmp_path / "a.db")
    with desk(url) as service:
        feed(service, 10)
        set_meta(service.engine.store.connection, "schema", "4")
    for command in (info, check, lambda url: upgrade(url, str(tmp_path / "b.db"), salvage=True)):
        with pytest.raises(SnapshotMismatch, match="store must be of version 5, got version 4"):
            command(url)
    assert not (tmp_path / "b.db").exists()


def test_a_backup_is_restored(tmp_path: Path) -> None:
    url, copy = tmp_path / "a.db", tmp_path / "copy.db"
    with desk(str(url)) as service:
        feed(service, 20)
        backup(str(url), copy)
        before = tables_of(str(url))
        feed(service, 20, seed=1)
        with pytest.raises(StoreInUse, match="one service at a time"):
            restore(str(url), copy)
    assert restore(str(url), copy) == copy.stat().st_size
    assert tables_of(str(url)) == before and whole(str(url))
    with desk(str(url)) as service:
        feed(service, 20, seed=2)
    assert whole(str(url))
    copy.write_bytes(b"no store")
    with pytest.raises(SnapshotMismatch):
        restore(str(url), copy)
    assert whole(str(url))


def overwrite(path: Path, page: int, size: int) -> None:
    """A page that no disk gives back."""
    content = bytearray(path.read_bytes())
    content[(page - 1) * size : page * size] = b"\xff" * size
    path.write_bytes(bytes(content))


def test_the_end_of_a_log_and_a_table_beside_it_are_lost(tmp_path: Path) -> None:
    url, target = tmp_path / "a.db", str(tmp_path / "b.db")
    with desk(str(url)) as service:
        for seed in range(20):
            feed(service, 100, seed=seed)
    with closing(sqlite3.connect(url)) as database:
        leaves = "SELECT pageno FROM dbstat WHERE name = 'op' AND pagetype = 'leaf' ORDER BY path"
        *_, last = [number for (number,) in database.execute(leaves)]
        (alarms,) = database.execute("SELECT rootpage FROM sqlite_master WHERE name = 'alarm'").fetchone()
        (size,) = database.execute("PRAGMA page_size").fetchone()
        (count,) = database.execute("SELECT count(*) FROM op").fetchone()
    overwrite(url, last, size)
    overwrite(url, alarms, size)
    made = upgrade(str(url), target, salvage=True)
    assert len(made.lost) == 2 and made.lost[0].endswith("to the end") and made.lost[1].startswith("table alarm: ")
    assert count - 200 < made.operations < count and whole(target)
    with desk(target) as service:
        feed(service, 20, seed=99)
    assert whole(target)


def test_settings_that_cannot_be_read_end_it(tmp_path: Path) -> None:
    url, target = tmp_path / "a.db", tmp_path / "b.db"
    with desk(str(url)) as service:
        feed(service, 10)
    with closing(sqlite3.connect(url)) as database:
        (page,) = database.execute("SELECT rootpage FROM sqlite_master WHERE name = 'meta'").fetchone()
        (size,) = database.execute("PRAGMA page_size").fetchone()
    overwrite(url, page, size)
    with pytest.raises(InvalidInput, match="settings of the store must be readable"):
        upgrade(str(url), str(target), salvage=True)
    assert not target.exists()


def test_a_stream_without_its_beginning_has_a_name_all_the_same(tmp_path: Path) -> None:
    url, target = str(tmp_path / "a.db"), str(tmp_path / "b.db")
    with desk(url) as service:
        feed(service, 20)
        service.engine.store.connection.run("DELETE FROM op WHERE position = 1")  # it is lost
    upgrade(url, target)
    assert [name for _, name, *_ in tables_of(target)["stream"]] == ["recovered-1"]
    assert whole(target)


def test_a_stream_that_is_being_deleted_is_deleted_by_the_next_service(tmp_path: Path) -> None:
    url, target = str(tmp_path / "a.db"), str(tmp_path / "b.db")
    with desk(url) as service:
        feed(service, 20)
        feed(service, 20, stream="rome")
        service.do("delete", "rome")
    upgrade(url, target)
    with desk(target) as service:
        service.engine.finish_all()
        assert [name for _, name, *_ in tables_of(target)["stream"]] == ["paris"]
        assert service.engine.store.connection.all("SELECT count(*) FROM op WHERE stream = 2") == [(0,)]
    assert whole(target)


def test_what_is_held_and_given_up_before_a_base(url: str, tmp_path: Path) -> None:
    with desk(url, monitor=1000.0, mature=DAY, expire=5 * DAY) as service:
        service.ask(*(("paris", f"e{at}", at / 20) for at in range(20)))
        service.tell(*(("paris", f"e{at}", at % 2) for at in range(5)))
        service.tick(2 * DAY)
        service.tell(*(("paris", f"e{at}", at % 2) for at in range(5, 10)))
        service.ask(*(("paris", f"f{at}", at / 20) for at in range(20)))
        service.tell(*(("paris", f"f{at}", at % 2) for at in range(5)))
        service.tick(4 * DAY)
        assert service.forget("paris", "e3") == 1
        service.ask(("paris", "g", 0.5))
        service.tell(("paris", "e12", 1))  # late
        service.tick(2 * DAY)
        service.ask(("paris", "person", 0.5))
        assert service.forget("paris", "person") == 1
        service.tell(("paris", "e13", 1))
        service.ask(("paris", "after", 0.5))
    is_the_same(url, str(tmp_path / "new.db"))
    with desk(url, monitor=1000.0, mature=DAY, expire=5 * DAY) as service:  # an event of the base is lost
        service.engine.store.connection.run("DELETE FROM op WHERE kind = 0 AND id = 'g'")
    assert upgrade(url, str(tmp_path / "less.db")).lost == []


def test_a_store_that_was_made_for_a_token_is_copied(tmp_path: Path) -> None:
    url, target = str(tmp_path / "a.db"), str(tmp_path / "b.db")
    open_store(url).close()
    made = upgrade(url, target)
    assert (made.operations, made.streams, made.lost) == (0, 0, [])
    with desk(target) as service:
        feed(service, 10)
    assert whole(target)


def test_a_table_that_cannot_be_read_is_an_error_unless_something_is_to_be_saved(tmp_path: Path) -> None:
    url, target = tmp_path / "a.db", tmp_path / "b.db"
    with desk(str(url)) as service:
        feed(service, 10)
    with closing(sqlite3.connect(url)) as database:
        (page,) = database.execute("SELECT rootpage FROM sqlite_master WHERE name = 'mute'").fetchone()
        (size,) = database.execute("PRAGMA page_size").fetchone()
    overwrite(url, page, size)
    with pytest.raises(sqlite3.DatabaseError):
        upgrade(str(url), str(target))
    assert not target.exists()
    with pytest.raises(InvalidInput, match="backup must be whole"):
        restore(str(tmp_path / "c.db"), url)
    with pytest.raises(FileNotFoundError, match="backup must exist"):
        restore(str(tmp_path / "c.db"), tmp_path / "none.db")
    with pytest.raises(InvalidInput, match="use `pg_restore`"):
        restore("postgresql://localhost/a", url)


def test_groups_with_a_base(url: str, tmp_path: Path) -> None:
    with desk(url, method="auto", monitor=1000.0) as service:
        for at in range(40):
            groups = {"country": "fr" if at % 3 else "de"}
            service.group([ForecastEvent("g", f"e{at}", at / 40, groups=groups)])
            service.group([OutcomeEvent("g", f"e{at}", at % 2)] if at % 5 else [])
        service.do("passthrough", "g")
        service.group([ForecastEvent("g", f"raw{at}", 0.5, groups={"country": "fr"}) for at in range(5)])
        service.group([OutcomeEvent("g", f"raw{at}", 1) for at in range(1, 5)])
        service.do("resume", "g")
        service.group([ForecastEvent("g", "person", 0.5, groups={"country": "fr"})])
        assert service.forget("g", "person") == 1
        service.group([ForecastEvent("g", "last", 0.5, groups={"country": "fr"})])
    is_the_same(url, str(tmp_path / "new.db"))
