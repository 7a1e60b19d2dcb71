"""Tokens: made once, kept as hashes, needed everywhere but for health, and gone when they are revoked."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from served import service_apart, service_here, wait_until

from calibeat.cli.main import main
from calibeat.errors import InvalidInput
from calibeat.service.store import is_store, sqlite_path
from calibeat.service.store.queries import Token
from calibeat.service.tokens import Refresher, TokenBook, hashed, new_token

EVENT = {"stream": "s", "id": "i", "score": 0.5}


def make(store: Path | str, scope: str, name: str, capsys: pytest.CaptureFixture[str]) -> str:
    is_new = not is_store(str(store))
    assert main(["token", "create", "--store", str(store), "--scope", scope, "--name", name]) == 0
    printed = capsys.readouterr()
    assert printed.err == (f"calibeat made a new store: {sqlite_path(str(store)) or 'PostgreSQL'}\n" if is_new else "")
    return printed.out.removesuffix("\n")


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def test_create_prints_the_token_alone_and_keeps_only_its_hash(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "calibeat.db"
    token = make(store, "write", "model", capsys)
    assert token.startswith("calibeat_") and len(token) == 52 and " " not in token
    everything = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert token.encode() not in everything
    with sqlite3.connect(store) as database:
        assert database.execute("SELECT hash FROM token").fetchall() == [(hashed(token).hex(),)]


def test_list_and_revoke(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "calibeat.db"
    token = make(store, "read", "page", capsys)
    make(store, "write", "model", capsys)
    assert main(["token", "revoke", "--store", str(store), "--name", "page"]) == 0
    assert capsys.readouterr().out == "page is revoked\n"
    assert main(["token", "list", "--store", str(store), "--json"]) == 0
    shown = capsys.readouterr().out
    found = json.loads(shown)
    assert [(each["name"], each["scope"], bool(each["revoked"])) for each in found] == [
        ("page", "read", True),
        ("model", "write", False),
    ]
    assert main(["token", "list", "--store", str(store)]) == 0
    text = capsys.readouterr().out
    assert text.splitlines()[0].startswith("page  read  20") and "revoked 20" in text
    assert token not in shown + text and hashed(token).hex() not in shown + text


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (["create", "--scope", "write", "--name", "model"], "got 'model', which is taken"),
        (["create", "--scope", "write", "--name", "old"], "got 'old', which a revoked token has"),
        (["create", "--scope", "write", "--name", " "], "1 to 100 printable characters"),
        (["create", "--scope", "write", "--name", "a\x1b[31m"], "1 to 100 printable characters"),
        (["revoke", "--name", "nobody"], "name must be that of a valid token"),
    ],
)
def test_mistakes_of_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], typed: list[str], words: str
) -> None:
    store = tmp_path / "calibeat.db"
    make(store, "write", "model", capsys)
    make(store, "read", "old", capsys)
    assert main(["token", "revoke", "--store", str(store), "--name", "old"]) == 0
    assert main(["token", *typed, "--store", str(store)]) == 2
    assert words in capsys.readouterr().err


def test_a_list_of_a_store_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["token", "list", "--store", str(tmp_path / "none.db")]) == 2
    assert "store must exist" in capsys.readouterr().err
    assert not (tmp_path / "none.db").exists()


# ---- a service with tokens ---------------------------------------------------------------------------------------


@pytest.fixture
def guarded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[tuple[str, str, str, Path]]:
    store = tmp_path / "calibeat.db"
    write, read = make(store, "write", "model", capsys), make(store, "read", "page", capsys)
    with service_here(store) as url:
        yield url, write, read, store


def test_scopes(guarded: tuple[str, str, str, Path]) -> None:
    url, write, read, _ = guarded
    with httpx.Client(base_url=url) as http:
        for headers in ({}, bearer("calibeat_wrong"), {"authorization": f"Basic {write}"}):
            answer = http.post("/v1/forecasts", json=EVENT, headers=headers)
            assert (answer.status_code, answer.json()["error"]["code"]) == (401, "unauthorized")
            assert answer.headers["www-authenticate"] == "Bearer"
            for path in ("/v1/streams", "/v1/streams/s", "/v1/alarms", "/metrics"):
                found = http.get(path, headers=headers)
                assert (found.status_code, found.json()["error"]["code"]) == (401, "unauthorized"), path
        answer = http.post("/v1/forecasts", json=EVENT, headers=bearer(read))
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden")
        assert http.post("/v1/forecasts", json=EVENT, headers=bearer(write)).status_code == 200
        for token in (read, write):
            assert http.get("/v1/streams", headers=bearer(token)).status_code == 200
        assert http.get("/v1/streams", headers=bearer(read) | {"host": "any.example"}).status_code == 200
        for host in ("[", "a b", "x" * 300, "é".encode()):  # whatever it is, it is not parsed
            headers = [*bearer(read).items(), ("host", host)]
            assert http.get("/v1/streams?limit=1", headers=headers).status_code == 200  # type: ignore[arg-type]
            assert http.get("/nothing", headers=headers).status_code == 404  # type: ignore[arg-type]
        for path in ("/healthz", "/readyz", "/openapi.json", "/"):
            assert http.get(path).status_code == 200, path


def test_a_revoked_token_stops_and_a_new_one_begins_while_the_service_runs(
    guarded: tuple[str, str, str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    url, write, _, store = guarded
    with httpx.Client(base_url=url) as http:
        assert http.post("/v1/forecasts", json=EVENT, headers=bearer(write)).status_code == 200
        main(["token", "revoke", "--store", str(store), "--name", "model"])
        capsys.readouterr()
        wait_until(lambda: http.post("/v1/forecasts", json=EVENT, headers=bearer(write)).status_code == 401, 5)
        new = make(store, "write", "model-2", capsys)
        wait_until(lambda: http.post("/v1/forecasts", json=EVENT, headers=bearer(new)).status_code == 200, 5)


def test_the_page_logs_in_with_a_cookie_that_reads_only(guarded: tuple[str, str, str, Path]) -> None:
    url, write, read, _ = guarded
    with httpx.Client(base_url=url) as http:
        wrong = http.post("/login", data={"token": "calibeat_wrong"})
        assert (wrong.status_code, wrong.json()["error"]["at"]) == (401, "token")
        assert "set-cookie" not in wrong.headers
        assert http.post("/login", data={"token": "x" * 5000}).status_code == 413
        answer = http.post("/login", data={"token": f" {read} "})
        assert (answer.status_code, answer.headers["location"]) == (303, "./")
        cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in cookie and "samesite=strict" in cookie and "path=/" in cookie and "secure" not in cookie
        by_proxy = http.post("/login", data={"token": read}, headers={"x-forwarded-proto": "https"})
        assert "; secure" in by_proxy.headers["set-cookie"].lower()
        http.cookies.clear()
        http.post("/login", data={"token": read})
        assert http.get("/v1/streams").status_code == 200
        http.post("/login", data={"token": write})
        assert http.post("/v1/forecasts", json=EVENT).status_code == 401  # a cookie never writes
        http.post("/logout")
        assert http.get("/v1/streams").status_code == 401


def test_a_token_is_needed_as_soon_as_there_is_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "calibeat.db"
    with service_here(store) as url, httpx.Client(base_url=url) as http:
        assert http.post("/v1/forecasts", json=EVENT).status_code == 200
        assert http.post("/login", data={}).status_code == 303  # nothing to ask for
        token = make(store, "write", "first", capsys)
        wait_until(lambda: http.post("/v1/forecasts", json=EVENT).status_code == 401, 5)
        assert http.post("/v1/forecasts", json=EVENT, headers=bearer(token)).status_code == 200


def test_without_tokens_only_loopback_is_listened_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "calibeat.db"
    refused = pytest.raises(InvalidInput, match="host must be loopback as long as there is no token")
    with refused, service_here(store, host="0.0.0.0"):  # noqa: S104 - that is what must not work
        pass
    token = make(store, "write", "first", capsys)
    with service_here(store, host="0.0.0.0") as url, httpx.Client(base_url=url) as http:  # noqa: S104
        assert http.post("/v1/forecasts", json=EVENT, headers=bearer(token)).status_code == 200
        main(["token", "revoke", "--store", str(store), "--name", "first"])
        wait_until(lambda: http.post("/v1/forecasts", json=EVENT, headers=bearer(token)).status_code == 401, 5)
        assert http.get("/v1/streams").status_code == 401  # not open to everybody again
    with service_here(store, host="0.0.0.0") as url, httpx.Client(base_url=url) as http:  # noqa: S104
        assert http.get("/v1/streams").status_code == 401  # it starts, closed to all


def test_revoking_the_last_token_lets_nobody_in(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "calibeat.db"
    write, read = make(store, "write", "model", capsys), make(store, "read", "page", capsys)
    with service_here(store) as url, httpx.Client(base_url=url) as http:
        assert main(["token", "revoke", "--store", str(store), "--name", "page"]) == 0
        assert capsys.readouterr().out == "page is revoked\n"
        assert main(["token", "revoke", "--store", str(store), "--name", "model"]) == 0
        said = capsys.readouterr().out
        assert said.startswith("model is revoked\nit was the last valid token: nobody can connect now")
        assert "calibeat token create" in said
        wait_until(lambda: http.post("/v1/forecasts", json=EVENT, headers=bearer(write)).status_code == 401, 5)
        wait_until(lambda: http.get("/v1/streams", headers=bearer(read)).status_code == 401, 5)
        assert http.post("/v1/forecasts", json=EVENT).status_code == 401
        assert http.post("/login", data={"token": write}).status_code == 401
    with service_apart(store) as again:
        assert again.line.rstrip().endswith("; every token is revoked or has expired, so nobody can connect")
        assert httpx.post(again.url + "/v1/forecasts", json=EVENT).status_code == 401
        new = make(store, "write", "model-2", capsys)
        wait_until(
            lambda: httpx.post(again.url + "/v1/forecasts", json=EVENT, headers=bearer(new)).status_code == 200, 5
        )


def token_row(token: str, scope: str = "write", **more: Any) -> Token:
    return Token("a token", scope, hashed(token).hex(), 0.0, **more)


def test_a_book_that_was_closed_once_stays_closed() -> None:
    book = TokenBook(open_without_tokens=True)
    book.refresh([])
    assert book.is_open and "only this machine" in book.who_may_connect
    book.refresh([token_row("calibeat_old", revoked=1.0)])  # made and revoked between two looks
    assert not book.is_open and not book.scopes and "nobody can connect" in book.who_may_connect
    assert book.find(None) is None and book.find(b"Bearer calibeat_old") is None
    book.refresh([])
    assert not book.is_open and book.find(None) is None
    book.refresh([token_row("calibeat_new", "read")])
    assert book.who_may_connect == "" and book.find(b"Bearer calibeat_new") is not None


def test_a_store_that_is_away_for_a_moment_keeps_the_tokens() -> None:
    token, answers = new_token(), iter([None, None, "gone", None])
    book, looks = TokenBook(open_without_tokens=True), []

    def read() -> list[Token]:
        looks.append(1)
        if next(answers, None):
            raise OSError("gone")
        return [token_row(token)]

    refresher = Refresher(book, read, seconds=0.01)
    refresher.start()
    wait_until(lambda: len(looks) > 4)
    refresher.stop()
    assert book.scopes == {"write"} and book.find_token(token.encode()) is not None


def test_a_token_ends_at_its_time() -> None:
    book = TokenBook(open_without_tokens=False)
    book.refresh([token_row("a", expires=time.time() - 1.0), token_row("b", expires=time.time() + 100.0)])
    assert book.find_token(b"a") is None and book.find_token(b"b") is not None and book.scopes == {"write"}


LIMITED = ("--streams", "paris/*", "--streams", "rome", "--expire", "30d")


def test_a_token_for_some_streams(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    everything = make(url, "write", "everything", capsys)
    create = ["token", "create", "--store", url, "--name", "paris", "--scope", "write"]
    assert main([*create, *LIMITED]) == 0
    limited = capsys.readouterr().out.strip()
    with service_here(url) as where, httpx.Client(base_url=where, headers=bearer(limited)) as http:
        yours = [{"stream": "paris/orly", "id": "1", "score": 0.5}, {"stream": "rome", "id": "2", "score": 0.5}]
        other = {"stream": "romeo", "id": "3", "score": 0.5}
        assert http.post("/v1/forecasts", json={"events": yours}).status_code == 200
        refused = http.post("/v1/forecasts", json={"events": [*yours, other]})
        assert refused.status_code == 403 and refused.json()["error"] == {
            "code": "forbidden",
            "message": "stream must be one of this token's, paris/*, rome, got 'romeo' - at event 2",
            "at": 2,
        }
        told = {"stream": "romeo", "id": "3", "outcome": 1}
        assert http.post("/v1/outcomes", json=told).status_code == 403
        assert http.put("/v1/outcomes", json=told).status_code == 403  # the other way through the server
        gone = {"events": [{"stream": "rome", "id": "9"}, {"stream": "romeo", "id": "3"}]}
        assert http.post("/v1/forget", json=gone).status_code == 403
        assert http.post("/v1/forecasts", json=other, headers=bearer(everything)).status_code == 200
        for order in ("name", "events"):
            wait_until(
                lambda order=order: (
                    {s["name"] for s in http.get(f"/v1/streams?order={order}").json()["streams"]}
                    == {"paris/orly", "rome"}
                )
            )
        assert http.get("/v1/streams/romeo").status_code == 403
        assert http.get("/v1/streams/paris%2Forly/history").status_code == 200
        assert http.get("/v1/view?stream=romeo").status_code == 403
        assert http.get("/v1/view?stream=rome").status_code == 200
        for whole in ("/v1/overview", "/metrics"):
            answer = http.get(whole)
            assert answer.status_code == 403 and "this token is for paris/*, rome only" in answer.text
    assert main(["token", "list", "--store", url, "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert (first["streams"], first["expires"]) == (None, None)
    assert second["streams"] == ["paris/*", "rome"] and second["expires"] > second["created"]
    assert main(["token", "list", "--store", url]) == 0
    assert "  streams paris/*, rome  expires 20" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        (["--streams", "*/orly"], "streams must be a name, or the beginning of names with * behind it"),
        (["--expire", "30"], "expire must be a time such as 12h or 30d"),
    ],
)
def test_limits_that_are_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], typed: list[str], sentence: str
) -> None:
    create = ["token", "create", "--store", str(tmp_path / "a.db"), "--name", "a", "--scope", "write"]
    assert main([*create, *typed]) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "a.db").exists()
