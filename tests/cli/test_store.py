"""`calibeat store` and `calibeat backtest --store`, as a person types them."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from services import desk

from calibeat.cli.main import main


@pytest.fixture
def store(tmp_path: Path) -> str:
    url = str(tmp_path / "calibeat.db")
    with desk(url) as service:
        service.play(300, streams=2, late=10)
    return url


def test_info_and_check(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["store", "info", "--store", store]) == 0
    assert "forecasts             300" in capsys.readouterr().out
    assert main(["store", "info", "--json", "--store", store]) == 0
    assert json.loads(capsys.readouterr().out)["method"] == "tops"
    assert main(["store", "check", "--store", store]) == 0
    assert capsys.readouterr().out == "whole: events, numbers, receipts, roll-ups and totals agree\n"


def test_replay_check_ends_with_0_or_1(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["store", "replay", "--check", "--store", store]) == 0
    assert capsys.readouterr().out.startswith("same: 2 streams, 300 forecasts, ")
    with desk(store) as service:
        service.engine.store.connection.run("UPDATE op SET told = 0.5 WHERE kind = 0 AND nth = 7")
        service.engine.store.connection.run("UPDATE stream SET pending = 0 WHERE name = 's0'")
    assert main(["store", "replay", "--check", "--store", store]) == 1
    assert "2 of 2 streams" in capsys.readouterr().out
    assert main(["store", "check", "--json", "--store", store]) == 1
    assert json.loads(capsys.readouterr().out)["whole"] is False


def test_the_loop_closes(store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Log, verdict, move to the winner."""
    assert main(["backtest", "--store", store, "--methods", "tops,ops", "--json"]) == 0
    verdict = json.loads(capsys.readouterr().out)
    assert verdict
    log = tmp_path / "log.parquet"
    assert main(["store", "export", str(log), "--store", store]) == 0
    assert main(["backtest", str(log), "--key", "stream", "--methods", "tops,ops", "--json"]) == 0
    capsys.readouterr()
    assert main(["store", "replay", "--method", "ops", "--store", store]) == 0
    assert "the state is made anew" in capsys.readouterr().out
    assert main(["store", "replay", "--check", "--json", "--store", store]) == 0
    assert json.loads(capsys.readouterr().out)["same"] is True


def test_a_store_is_imported_from_what_was_exported(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, other = str(tmp_path / "log.parquet"), str(tmp_path / "other.db")
    main(["store", "export", log, "--store", store])
    for _ in range(2):  # the second time changes nothing
        assert main(["store", "import", log, "--store", other, "--create", "--method", "tops"]) == 0
        capsys.readouterr()
        main(["store", "info", "--json", "--store", other])
        found = json.loads(capsys.readouterr().out)
        assert found["forecasts"] == 300 and found["outcomes"] > 200
    assert main(["store", "replay", "--check", "--store", other]) == 0


def test_the_states_travel_as_a_bank_file(store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bank, other = str(tmp_path / "now.bank"), str(tmp_path / "other.db")
    assert main(["store", "export", bank, "--store", store]) == 0
    assert capsys.readouterr().out == f"states of 2 streams written to {bank}\n"
    assert main(["bank", "info", bank]) == 0
    capsys.readouterr()
    assert main(["store", "import", bank, "--store", other, "--create", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"streams": 2}
    assert main(["store", "replay", "--check", "--store", other]) == 0
    assert main(["store", "import", bank, "--store", other]) == 2
    assert "keys must be new to the store, got 's" in capsys.readouterr().err


def test_an_import_makes_a_store_only_if_it_is_told_to(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.db"
    for file in (tmp_path / "now.bank", tmp_path / "log.parquet"):
        main(["store", "export", str(file), "--store", store])
        capsys.readouterr()
        assert main(["store", "import", str(file), "--store", str(other)]) == 2
        assert f"store must exist, got none - at {other}: --create makes one" in capsys.readouterr().err
    assert not other.exists()


def test_an_import_leaves_the_monitor_of_the_store_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url, log = str(tmp_path / "calibeat.db"), str(tmp_path / "log.parquet")
    with desk(url, monitor=1000.0) as service:
        service.play(50)
    main(["store", "export", log, "--store", url])
    assert main(["store", "import", log, "--store", url]) == 0
    capsys.readouterr()
    main(["store", "info", "--json", "--store", url])
    assert json.loads(capsys.readouterr().out)["monitor"] == 1000.0


def test_a_long_log_is_read_in_pieces(store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibeat.service.transfer.EXPORTED_AT_ONCE", 70)
    log = tmp_path / "log.parquet"
    assert main(["store", "export", str(log), "--store", f"sqlite:///{store}"]) == 0
    assert pq.read_table(log).num_rows == 300


def test_prune(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    # The events of the test lie in the year 2027.
    assert main(["store", "prune", "--older", "90d", "--store", store]) == 0
    assert capsys.readouterr().out == "0 events deleted\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["store", "prune", "--older", "90", "--store", "{}"], "--older must be a time such as 12h or 30d"),
        (["store", "replay", "--check", "--method", "ops", "--store", "{}"], "--check must come without --method"),
        (
            ["store", "export", "log.csv", "--store", "{}"],
            "file must end in .parquet (the log) or .bank (the states), got",
        ),
        (["store", "info", "--store", "no.db"], "store must exist, got nothing - at no.db"),
        (
            ["store", "import", "no.parquet", "--store", "{}"],
            "log must be a file, a folder, a glob or -, got 'no.parquet', which is not there",
        ),
        (["backtest"], "LOG or --store must be given, got neither"),
        (["backtest", "log.csv", "--store", "{}"], "LOG or --store must be given, got both"),
        (["store", "info", "--store", "mysql://a"], "store must be a path"),
    ],
)
def test_mistakes(store: str, arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([store if word == "{}" else word for word in arguments]) == 2
    assert sentence in capsys.readouterr().err


def test_a_damaged_store_is_a_sentence(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(store)
    data = bytearray(path.read_bytes())
    data[-8192:] = bytes(8192)  # pages behind those that describe the tables
    path.write_bytes(data)
    assert main(["store", "check", "--store", store]) in {1, 2}
    found = capsys.readouterr()
    assert "damaged" in found.out or "store must be readable" in found.err
    path.write_bytes(b"not a database" * 1000)
    assert main(["store", "info", "--store", store]) == 2
    assert "store must be an SQLite file of calibeat, got another file" in capsys.readouterr().err


def test_an_import_that_contradicts_the_store_is_refused(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.parquet"
    main(["store", "export", str(log), "--store", store])
    table = pq.read_table(log)
    at = table.schema.get_field_index("score")
    changed = table.set_column(at, "score", pa.array([0.5] * table.num_rows))
    pq.write_table(changed, log)
    assert main(["store", "import", str(log), "--store", store]) == 2
    assert "log must fit the store, got: id must be new or have the score it had" in capsys.readouterr().err


def test_upgrade_and_restore(store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new = str(tmp_path / "new.db")
    assert main(["store", "upgrade", new, "--store", store]) == 0
    assert capsys.readouterr().out.endswith("operations of 2 streams copied, all tables made anew\n")
    assert main(["store", "restore", new, "--store", store]) == 0
    assert "new.db is the store now: " in capsys.readouterr().out
    assert main(["store", "replay", "--check", "--store", store]) == 0
    with closing(sqlite3.connect(store)) as database:
        (page,) = database.execute("SELECT rootpage FROM sqlite_master WHERE name = 'event'").fetchone()
    content = bytearray(Path(store).read_bytes())
    content[4096 * (page - 1) : 4096 * page] = b"\xff" * 4096
    Path(store).write_bytes(bytes(content))
    assert main(["store", "export", str(tmp_path / "log.parquet"), "--store", store]) == 2
    assert "store must be readable, got: " in capsys.readouterr().err
