"""The store as the log of a backtest: what of its address may be seen."""

from __future__ import annotations

from pathlib import Path

import postgres
import pytest
from services import desk

from calibeat import InvalidInput
from calibeat.cli.main import main
from calibeat.service.store import open_connection, without_password


def test_passwords_are_not_shown() -> None:
    assert without_password("postgresql://me:secret@h/db?password=secret") == "postgresql://me@h/db"
    assert without_password("postgres://h:5433/db?user=me&password=secret") == "postgresql://me@h:5433/db"
    assert without_password("postgresql://me:se?cret@h1:1,h2:2/db") == "postgresql://me@h1:1,h2:2/db"
    assert (
        without_password("postgresql:///db?host=/tmp/x") == without_password("postgresql:///db") == "postgresql:///db"
    )
    assert without_password("postgresql://me:50%off@h/db") == "postgresql://..."  # nobody can tell what is the password
    assert without_password("calibeat.db") == "calibeat.db"


@pytest.mark.parametrize(
    "url", ["postgresql://me:50%secret@h/db", "postgresql://me:secret@[h/db", "mysql://me:secret@h/db"]
)
def test_an_address_that_cannot_be_read_is_not_repeated(url: str) -> None:
    with pytest.raises(InvalidInput, match="store must be") as caught:
        open_connection(url)
    assert "secret" not in str(caught.value)


def test_no_password_is_in_a_report(
    server: postgres.Postgres, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the title, the source and the command, on the page and in the JSON; also with a mark that a shell quotes."""
    url = server.database().replace("calibeat@", "") + "&user=calibeat&password=it's-secret"
    with desk(url) as service:
        service.play(60)
    report = tmp_path / "report.html"
    command = ["backtest", "--store", url, "--methods", "ops", "--warmup", "5", "--report", str(report)]
    assert main(command) == 0
    said = capsys.readouterr()
    assert main([*command, "--json"]) == 0
    data = capsys.readouterr()
    for text in (said.out, said.err, data.out, data.err, report.read_text()):
        assert "secret" not in text
    assert "postgresql://calibeat@/test_" in report.read_text()
