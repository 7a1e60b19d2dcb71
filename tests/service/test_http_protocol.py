"""Raw bytes on a connection: how many answers come, which ones, whether it ends, and what the store then holds."""

from __future__ import annotations

import contextlib
import gc
import gzip
import itertools
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from served import address, receive, service_here, wait_until

from calibeat.service.server import HttpConnection as Protocol

pytestmark = pytest.mark.xdist_group("raw bytes")
CANARY = b"GET /canary HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
HEALTH = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
H2C = ("connection: Upgrade, HTTP2-Settings", "upgrade: h2c", "http2-settings: AAMAAABkAAQCAAAAAAIAAAAA")
WEBSOCKET = ("connection: upgrade", "upgrade: websocket", "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==")
GARBAGE = b"\x00\x01GARBAGE\r\n\r\n"
_number = itertools.count()


def event() -> bytes:
    """The body of a forecast that nobody else asks for."""
    return json.dumps({"stream": "raw", "id": f"raw-{next(_number)}", "score": 0.5}).encode()


def head(*headers: str, path: str = "/v1/forecasts", method: str = "POST", version: str = "1.1") -> bytes:
    """The first lines of a request, with the host."""
    return "\r\n".join([f"{method} {path} HTTP/{version}", "host: localhost", *headers, "", ""]).encode()


def post(*headers: str, body: bytes | None = None, **more: str) -> bytes:
    """A whole request."""
    body = event() if body is None else body
    return head(*headers, f"content-length: {len(body)}", **more) + body


def chunked(*parts: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    """The coding of a body."""
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + end


SMUGGLED = post(body=b'{"stream": "smuggled", "id": "smuggled", "score": 0.5}')


@dataclass(frozen=True)
class Case:
    """Segments that are sent, the statuses of all answers, whether the connection goes on, new events in the store."""

    segments: list[bytes]
    statuses: list[int]
    goes_on: bool = False
    events: int = 0


def refused(*segments: bytes, status: int = 400, events: int = 0, before: tuple[int, ...] = ()) -> Case:
    """One refusal, then the end."""
    return Case(list(segments), [*before, status], events=events)


def last(*segments: bytes, statuses: tuple[int, ...] = (200,), events: int = 1) -> Case:
    """Answers to whole requests, then the end without a word: it would be taken for an answer."""
    return Case(list(segments), list(statuses), events=events)


def cut(*segments: bytes) -> Case:
    """The end: a request is broken off behind one that is done, but not answered yet."""
    return Case(list(segments), [], events=1)


def good(*segments: bytes, statuses: tuple[int, ...] = (200,), events: int = 1, goes_on: bool = True) -> Case:
    """Answers, and the connection is in step."""
    return Case(list(segments), list(statuses), goes_on=goes_on, events=events)


TE = "transfer-encoding: chunked"
FRAMING = {
    "plain": good(post()),
    "length, then coding": refused(head("content-length: 4", TE) + b"0\r\n\r\n" + SMUGGLED),
    "coding, then length": refused(head(TE, "content-length: 4") + b"0\r\n\r\n" + SMUGGLED),
    "coding and length of nothing": refused(head(TE, "content-length: 0") + b"0\r\n\r\n" + SMUGGLED),
    "two equal lengths": refused(head("content-length: 5", "content-length: 5") + b"abcde" + SMUGGLED),
    "two lengths": refused(head("content-length: 5", "content-length: 0") + b"abcde" + SMUGGLED),
    "length +5": refused(head("content-length: +5") + b"abcde"),
    "length in a list": refused(head("content-length: 5, 5") + b"abcde"),
    "length of -1": refused(head("content-length: -1") + b"abcde"),
    "length of 2^64 + 1": refused(head("content-length: 18446744073709551617") + b"abcde"),
    "length in hex": refused(head("content-length: 0x10") + b"abcde"),
    "length with a letter": refused(head("content-length: 5a") + b"abcde"),
    "length with a space in it": refused(head("content-length: 1 1") + b"abcde"),
    "length of nothing": refused(head("content-length: ") + SMUGGLED),
    "no length": good(head() + HEALTH, statuses=(400, 200), events=0),  # no body, so no JSON
    "space before the colon": refused(head("content-length : 5") + b"abcde"),
    "space before the colon of a coding": refused(head("transfer-encoding : chunked") + chunked(b"abc")),
    "space before a name": refused(head(" content-length: 5") + b"abcde"),
    "tab after the colon": good(head("content-length:\t2") + b"{}", statuses=(400,), events=0),
    "folded header": refused(head("x-a: b\r\n c: d", "content-length: 2") + b"{}"),
    "folded coding": refused(head("transfer-encoding:\r\n chunked") + chunked(b"abc")),
    "folded length": refused(head("content-length:\r\n 5") + b"abcde"),
    "bare line feeds": refused(b"POST /v1/forecasts HTTP/1.1\nhost: localhost\ncontent-length: 2\n\n{}"),
    "bare line feed in a header": refused(head("x: y\ncontent-length: 200", "content-length: 2") + b"{}" + SMUGGLED),
    "bare carriage returns": refused(b"POST /v1/forecasts HTTP/1.1\rhost: localhost\rcontent-length: 0\r\r"),
    "bare carriage return in a value": refused(head("x: y\rz: w", "content-length: 2") + b"{}"),
    "carriage return, then no line feed": refused(head("content-length: 2")[:-2] + b"\rX{}"),
    "zero byte in a value": refused(head("x: a\x00b")),
    "zero byte in a name": refused(head("x\x00: a")),
    "zero byte in the path": refused(head(path="/v1/\x00")),
    "no name of a header": refused(head(": a")),
    "no colon": refused(head("content-length")),
    "xchunked": refused(head("transfer-encoding: xchunked") + chunked(b"abc") + SMUGGLED),
    "chunked, identity": refused(head("transfer-encoding: chunked, identity") + chunked(b"abc") + SMUGGLED),
    "identity": refused(head("transfer-encoding: identity") + SMUGGLED),
    "coding in quotes": refused(head('transfer-encoding: "chunked"') + chunked(b"abc") + SMUGGLED),
    "two codings": refused(head(TE, "transfer-encoding: identity") + chunked(b"abc") + SMUGGLED),
    "coding with a vertical tab": refused(head("transfer-encoding: \x0bchunked") + chunked(b"abc")),
    "CHUNKED": good(head("Transfer-Encoding: CHUNKED") + chunked(event())),
    "tab before chunked": good(head("transfer-encoding:\tchunked") + chunked(event())),
}
CHUNKS = {
    "chunks": good(
        head(TE) + chunked(b'{"stream": "raw",', b'"id": "chunks", "score": 0.5}') + HEALTH, statuses=(200, 200)
    ),
    "one byte each": good(head(TE) + chunked(*(bytes([byte]) for byte in event()))),
    "extension": good(head(TE) + b"%x;a=b\r\n" % 2 + b"{}\r\n0;c\r\n\r\n", statuses=(400,), events=0),
    "trailer": good(head(TE) + chunked(event(), end=b"0\r\nx: y\r\n\r\n")),
    "trailers that say who asks": good(
        post() + head(TE) + chunked(event(), end=b"0\r\nhost: evil.example\r\nauthorization: Bearer x\r\n\r\n"),
        statuses=(200, 200),
        events=2,
    ),
    "trailer with a length": refused(head(TE) + chunked(event(), end=b"0\r\ncontent-length: 500\r\n\r\n")),
    "leading zeros": good(head(TE) + b"0002\r\n{}\r\n000\r\n\r\n", statuses=(400,), events=0),
    "size that overflows": refused(head(TE) + b"fffffffffffffffff\r\nabc"),
    "size that is negative": refused(head(TE) + b"-2\r\n{}\r\n0\r\n\r\n"),
    "size with 0x": refused(head(TE) + b"0x2\r\n{}\r\n0\r\n\r\n"),
    "size with a sign": refused(head(TE) + b"+2\r\n{}\r\n0\r\n\r\n"),
    "size with a space before": refused(head(TE) + b" 2\r\n{}\r\n0\r\n\r\n"),
    "size with a space after": refused(head(TE) + b"2 \r\n{}\r\n0\r\n\r\n"),
    "size of no digits": refused(head(TE) + b"\r\n{}\r\n0\r\n\r\n"),
    "chunk that is longer than its size": refused(head(TE) + b"2\r\n{}{}\r\n0\r\n\r\n"),
    "bare line feeds between chunks": refused(head(TE) + b"2\n{}\n0\n\n" + SMUGGLED),
    "bare line feed after a size": refused(head(TE) + b"2\n{}\r\n0\r\n\r\n" + SMUGGLED),
    "bare line feed after an extension": refused(head(TE) + b"2;a\n{}\r\n0\r\n\r\n" + SMUGGLED),
    "bad size behind a good event": refused(head(TE) + chunked(event(), end=b"zz\r\n")),
    "bad size behind a good event, by ASGI": refused(
        head(TE, path="http://localhost/v1/forecasts") + chunked(event(), end=b"zz\r\n")
    ),
    "bad size behind a good event, behind another": cut(post() + head(TE) + chunked(event(), end=b"zz\r\n")),
}
BODY = event()
UPGRADES = {
    "h2c": good(post(*H2C)),
    "h2c, body later": good(head(*H2C, f"content-length: {len(BODY)}"), BODY, events=0),
    "h2c, head in two": good(post(*H2C, body=BODY)[:40], post(*H2C, body=BODY)[40:], events=0),
    "h2c, body in two": good(head(*H2C, f"content-length: {len(BODY)}") + BODY[:9], BODY[9:], events=0),
    "h2c, chunked": good(head(*H2C, TE) + chunked(event())),
    "h2c, chunked later": good(head(*H2C, TE), chunked(event()), HEALTH, statuses=(200, 200)),
    "h2c without a body": good(head(*H2C, method="GET", path="/healthz"), events=0),
    "h2c without a body, then more": good(
        head(*H2C, method="GET", path="/healthz") + HEALTH, HEALTH, statuses=(200, 200, 200), events=0
    ),
    "h2c, then the end": good(post(*H2C, "connection: close"), goes_on=False),
    "h2c, close and upgrade": good(post("connection: close, upgrade", "upgrade: h2c"), goes_on=False),
    "h2c of HTTP/1.0": good(post(*H2C, version="1.0"), goes_on=False),
    "websocket": good(head(*WEBSOCKET, method="GET", path="/healthz"), events=0),
    "websocket and its first frame": refused(
        head(*WEBSOCKET, method="GET", path="/healthz"), b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58", before=(200,)
    ),
    "upgrade without connection": good(post("upgrade: h2c")),
    "connection without upgrade": good(post("connection: upgrade")),
    "empty upgrade": good(post("connection: upgrade", "upgrade: ")),
    "upgrade twice": good(post("connection: upgrade", "upgrade: h2c", "Upgrade: websocket")),
    "the body of GET is a request": good(
        head("connection: upgrade", "upgrade: x", f"content-length: {len(SMUGGLED)}", method="GET", path="/healthz")
        + SMUGGLED,
        events=0,
    ),
    "the body of GET, later, is a request": good(
        head("connection: upgrade", "upgrade: x", f"content-length: {len(SMUGGLED)}", method="GET", path="/healthz"),
        SMUGGLED,
        events=0,
    ),
    "the body of POST is a request": good(
        head("connection: upgrade", "upgrade: x", f"content-length: {len(SMUGGLED)}"),
        SMUGGLED,
        statuses=(400,),
        events=0,
    ),
    "the body of a cold POST is a request": good(
        head("connection: upgrade", "upgrade: x", f"content-length: {len(SMUGGLED)}", path="/logout"),
        SMUGGLED,
        statuses=(303,),
        events=0,
    ),
    "a chunk is a request": good(head(*H2C, TE), chunked(SMUGGLED), statuses=(400,), events=0),
    "upgrade, length and coding": refused(head(*H2C, TE, "content-length: 5") + b"0\r\n\r\n" + SMUGGLED),
    "upgrade and two lengths": refused(head(*H2C, "content-length: 5", "content-length: 6") + SMUGGLED),
    "upgrade and garbage": last(post(*H2C) + GARBAGE),
    "upgrades in a row": good(post(*H2C) * 2 + post() + post(*H2C), statuses=(200,) * 4, events=3),
    "a hundred upgrades": good(post(*H2C, body=BODY) * 100, statuses=(200,) * 100, events=0),
    "upgrade that expects to be told": good(
        head(*H2C, "expect: 100-continue", f"content-length: {len(BODY)}"), BODY, statuses=(100, 200), events=0
    ),
    "upgrade of another host": good(
        b"POST /v1/forecasts HTTP/1.1\r\nhost: evil.example\r\nconnection: upgrade\r\nupgrade: x\r\n"
        b"content-length: %d\r\n\r\n" % len(SMUGGLED) + SMUGGLED,
        statuses=(421,),
        events=0,
    ),
    "CONNECT": refused(b"CONNECT evil:443 HTTP/1.1\r\nhost: evil:443\r\n\r\n" + SMUGGLED),
    "CONNECT, then bytes": refused(b"CONNECT evil:443 HTTP/1.1\r\nhost: evil:443\r\n\r\n", SMUGGLED),
    "CONNECT behind another": last(post() + b"CONNECT evil:443 HTTP/1.1\r\nhost: evil:443\r\n\r\n" + SMUGGLED),
    "HTTP/2": refused(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
}
LARGE = "x: " + "a" * 600_000
HEADS = {
    "two hosts": refused(b"GET /healthz HTTP/1.1\r\nhost: evil.example\r\nhost: localhost\r\n\r\n" + SMUGGLED),
    "two equal hosts": refused(head("host: localhost", method="GET", path="/healthz")),
    "two hosts on the hot way": refused(post("Host: evil.example")),
    "two hosts behind another": last(post() + post("Host: evil.example")),
    "two hosts and an upgrade": refused(post("Host: evil.example", *H2C)),
    "no host": refused(b"GET /healthz HTTP/1.1\r\n\r\n"),
    "no host in HTTP/1.0": good(b"GET /healthz HTTP/1.0\r\n\r\n", events=0, goes_on=False),
    "another host": good(b"GET /healthz HTTP/1.1\r\nhost: evil.example\r\n\r\n", statuses=(421,), events=0),
    "a host with a user": good(
        b"GET /healthz HTTP/1.1\r\nhost: evil.example@localhost\r\n\r\n", statuses=(421,), events=0
    ),
    "a header of 600,000 bytes": refused(head(LARGE, method="GET", path="/healthz"), status=431),
    "a header of 600,000 bytes on the hot way": refused(post(LARGE), status=431),
    "a header of 600,000 bytes, upgraded": refused(post(LARGE, *H2C), status=431),
    "a header of 600,000 bytes behind another": last(post() + post(LARGE)),
    "100,000 headers": refused(head(*["a: b"] * 100_000, method="GET", path="/healthz"), status=431),
    "a path of 600,000 bytes": refused(head(method="GET", path="/" + "a" * 600_000), status=431),
    "a path of 66,000 bytes": refused(head(method="GET", path="/" + "a" * 66_000)),
    "a header of 60,000 bytes": good(post(LARGE[:60_000])),
    "a large body behind a small head": good(
        head("content-length: 100000") + b" " * 100_000 + HEALTH, statuses=(400, 200), events=0
    ),
    "a head behind a large body": good(
        head("content-length: 100000") + b" " * 1000,
        b" " * 99_000 + HEALTH[:20],
        HEALTH[20:],
        statuses=(400, 200),
        events=0,
    ),
    "HTTP/0.9": refused(b"GET /healthz\r\n\r\n"),
    "HTTP/1.2": refused(head(version="1.2")),
    "HTTP/3.0": refused(head(version="3.0")),
    "lower case http": refused(b"GET /healthz http/1.1\r\nhost: localhost\r\n\r\n"),
    "a method of small letters": refused(head(method="post")),
    "leading empty lines": good(b"\r\n\r\n" + HEALTH, events=0),
    "two spaces": good(b"GET  /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n", events=0),
    "the start of TLS": refused(bytes.fromhex("16030100c8010000c40303") + b"a" * 100),
    "a path that is no ASCII": refused("GET /v1/streams/\u00e9 HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()),
    "an address that is no path": refused(b"GET http://[bad/ HTTP/1.1\r\nhost: localhost\r\n\r\n"),
    "a star": good(head(method="OPTIONS", path="*"), statuses=(404,), events=0),
    "an address as path": good(post(path="http://localhost/v1/forecasts")),
    "a query": good(post(path="/v1/forecasts?token=abc")),
    "a path with percent": good(post(path="/v1/%66orecasts"), statuses=(404,), events=0),
    "a path with dots": good(post(path="/v1/../v1/forecasts"), statuses=(404,), events=0),
    "a path with two slashes": good(post(path="//v1/forecasts"), statuses=(404,), events=0),
    "%00": good(head(method="GET", path="/v1/streams/a%00b"), statuses=(404,), events=0),
    "%ff": good(head(method="GET", path="/v1/streams/%ff%fe"), statuses=(404,), events=0),
    "files of the package": good(head(method="GET", path="/static/..%2f..%2fmain.py"), statuses=(404,), events=0),
    "OPTIONS": good(head("origin: http://evil", method="OPTIONS"), statuses=(405,), events=0),
    "TRACE": good(head(method="TRACE", path="/"), statuses=(405,), events=0),
    "HEAD": good(head(method="HEAD", path="/healthz"), events=0),
    "HEAD of the hot way": good(head(method="HEAD"), statuses=(405,), events=0),
    "GET of the hot way": good(head(method="GET"), statuses=(405,), events=0),
    "HTTP/1.0": good(post(version="1.0"), goes_on=False),
    "HTTP/1.0 that would go on": good(post("connection: keep-alive", version="1.0") * 2, goes_on=False),
    "expect": good(head("expect: 100-continue", f"content-length: {len(BODY)}"), BODY, statuses=(100, 200), events=0),
    "expect of GET": good(head("expect: 100-continue", method="GET", path="/healthz"), events=0),
    "expect something else": good(post("expect: banana")),
    "gzip": good(post("content-encoding: gzip", body=gzip.compress(event())), statuses=(415,), events=0),
    "gzip, by ASGI": good(post() + post("content-encoding: gzip", body=gzip.compress(event())), statuses=(200, 415)),
    "no coding": good(post("content-encoding: Identity")),
}
TWO = post() + post()
PIPELINES = {
    "four, one of them bad": good(
        post() + post(body=b"{bad") + post() + HEALTH, statuses=(200, 400, 200, 200), events=2
    ),
    "good, garbage": last(post() + GARBAGE),
    "good, good, garbage": last(post() + post() + GARBAGE, statuses=(200, 200), events=2),
    "good, cold, good, garbage": last(post() + HEALTH + post() + GARBAGE, statuses=(200, 200, 200), events=2),
    "good, then garbage": refused(post(), GARBAGE, before=(200,), events=1),
    "good, half a request, garbage": cut(post() + head(TE) + GARBAGE),
    "good, half of a cold one, garbage": cut(post() + head(TE, path="/login") + GARBAGE),
    "garbage, good": refused(GARBAGE + SMUGGLED),
    "too large, good": refused(head("content-length: 99999999") + b"x" * 1000, SMUGGLED, status=413),
    "good, too large": refused(
        post() + head("content-length: 99999999") + b"x" * 1000, status=413, before=(200,), events=1
    ),
    "the last one, and another": good(post("connection: close") + SMUGGLED, goes_on=False),
    "a bad last one, and another": good(
        post("connection: close", body=b"{bad") + SMUGGLED, statuses=(400,), events=0, goes_on=False
    ),
    "one that is refused by its head, then bad chunks": refused(
        head("content-encoding: gzip", TE), b"zz\r\n", status=415
    ),
    "one that is refused by its head, then a body": refused(
        head("content-encoding: gzip", f"content-length: {len(BODY)}"), BODY, status=415
    ),
    "the last one, and garbage": good(post("connection: close") + GARBAGE, goes_on=False),
    "good, cold and last, another": good(
        post() + head("connection: close", method="GET", path="/healthz") + SMUGGLED, statuses=(200, 200), goes_on=False
    ),
    "fifty": good(b"".join(post() for _ in range(50)), statuses=(200,) * 50, events=50),
    "two in odd parts": good(TWO[:30], TWO[30:170], TWO[170:], statuses=(200, 200), events=2),
}
CASES = FRAMING | CHUNKS | UPGRADES | HEADS | PIPELINES


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with service_here(tmp_path_factory.mktemp("raw") / "calibeat.db") as where:
        yield where


@pytest.fixture(scope="module")
def http(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url) as client:
        client.post("/v1/forecasts", content=BODY)  # so that cases with it make no event, in whatever order they run
        yield client


def statuses(data: bytes) -> list[int]:
    """The statuses of all answers in what came back."""
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", data)]


def exchange(url: str, case: Case) -> tuple[list[int], bool]:
    """The statuses of the answers, and whether the connection is in step after them."""
    with socket.create_connection(address(url), timeout=15) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        found = b""
        try:
            for number, segment in enumerate(case.segments):
                time.sleep(0.03 if number else 0.0)  # so that it is a segment of its own
                connection.sendall(segment)
            while len(statuses(found)) < len(case.statuses) and (part := connection.recv(65_536)):
                found += part
            connection.sendall(CANARY)
            while part := connection.recv(65_536):
                found += part
        except (BrokenPipeError, ConnectionResetError):
            pass
    goes_on = found.rstrip().endswith(b"""got '/canary'","at":null}}""")
    return statuses(found)[: -1 if goes_on else None], goes_on


def stored(http: httpx.Client) -> int:
    """How many events the store has."""
    return int(http.get("/v1/overview").json()["events"])


@pytest.mark.parametrize("name", CASES)
def test_raw_bytes(url: str, http: httpx.Client, name: str) -> None:
    case = CASES[name]
    before = stored(http)
    assert exchange(url, case) == (case.statuses, case.goes_on)
    wait_until(lambda: stored(http) - before == case.events)
    assert http.get("/v1/streams/smuggled").status_code == 404


# ---- clients that stop sending, and clients that do not read ------------------------------------------------------


def half_closed(url: str, data: bytes) -> bytes:
    """Everything that comes back after the client has sent its last byte and said so."""
    with socket.create_connection(address(url), timeout=15) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        return receive(connection)


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (post(), [200]),
        (HEALTH, [200]),
        (post() + post() + HEALTH, [200, 200, 200]),
        (post() + post()[:-5], [200]),
        (post() + HEALTH + head(TE, path="/login"), [200, 200]),
        (post()[:-5], []),
        (head("content-length: 50", path="/login") + b"token", []),
        (post() + GARBAGE, [200]),
        (b"", []),
    ],
    ids=["hot", "cold", "pipeline", "half behind", "half of a cold one behind", "half", "half cold", "garbage", "none"],
)
def test_who_has_sent_everything_gets_the_answers(url: str, data: bytes, wanted: list[int]) -> None:
    assert statuses(half_closed(url, data)) == wanted


def the_connection(url: str) -> Protocol:
    """The only open connection of a service in this process."""

    def found() -> list[Protocol]:
        open_ones = [thing for thing in gc.get_objects() if isinstance(thing, Protocol) and thing in thing.connections]
        return [connection for connection in open_ones if connection.server == address(url)]

    wait_until(lambda: len(found()) == 1)
    return found()[0]


def batch(name: str, size: int) -> bytes:
    """A request with an answer of about 200 bytes an event."""
    events = [{"stream": name, "id": f"{'x' * 150}{name}{number}", "score": 0.5} for number in range(size)]
    return post(body=json.dumps({"events": events}).encode())


def unread(url: str) -> socket.socket:
    """A connection whose answers soon have no room."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(0.5)
    connection.connect(address(url))
    return connection


@pytest.mark.parametrize("kind", ["hot", "pipelined", "cold"])
def test_a_client_that_does_not_read_is_not_read_either(tmp_path: Path, kind: str) -> None:
    """The buffer of answers is bounded; when the client reads after all, everything comes in order."""
    asked = head("x: " + "y" * 50_000, method="GET", path="/openapi.json") if kind == "cold" else batch("same", 400)
    asked *= 1 if kind == "hot" else 20
    rest, sent, largest = memoryview(b""), 0, 0
    with service_here(tmp_path / "calibeat.db") as url, unread(url) as connection:
        protocol = the_connection(url)
        transport, state = protocol.transport, protocol.server_state

        def send() -> None:
            nonlocal rest, sent, largest
            if not rest:
                rest = memoryview(asked)
                sent += asked.count(b" HTTP/1.1\r\n")
            while rest:
                rest = rest[connection.send(rest) :]
                largest = max(largest, transport.get_write_buffer_size())
            if kind == "hot":  # one at a time
                wait_until(lambda: state.total_requests >= sent, 1.0)

        while True:
            try:
                send()
            except TimeoutError:  # the service has stopped to read, or is slow
                largest = max(largest, transport.get_write_buffer_size())
                if largest > 10_000:
                    break
        assert largest < 1_000_000
        connection.settimeout(15)
        sender = threading.Thread(target=lambda: connection.sendall(bytes(rest) + CANARY))
        sender.start()  # the end of the last request, as soon as there is room
        found = b"".join(iter(lambda: connection.recv(65_536), b""))
        sender.join()
    assert statuses(found) == [200] * sent + [404]


def test_a_client_that_reads_late_gets_everything(tmp_path: Path) -> None:
    with service_here(tmp_path / "calibeat.db") as url, unread(url) as connection:
        flow = the_connection(url).flow
        connection.sendall(head(method="GET", path="/openapi.json") * 200)
        wait_until(lambda: flow.write_paused)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**20)
        connection.settimeout(15)
        found, end = list[int](), b""
        while len(found) < 200:
            piece = end + connection.recv(2**20)
            found, end = found + statuses(piece), piece[1 - len(b"HTTP/1.1 200 ") :]
        connection.sendall(CANARY)
        assert statuses(receive(connection))[-1] == 404
    assert found == [200] * 200


def test_a_client_that_never_reads_is_cut_off(tmp_path: Path) -> None:
    with service_here(tmp_path / "calibeat.db", limits={"answer_seconds": 0.5, "idle_seconds": 500.0}) as url:
        asked = batch("never", 400) * 200
        with unread(url) as connection:
            connection.settimeout(15)
            with pytest.raises((ConnectionResetError, BrokenPipeError)):
                connection.sendall(asked)
        assert httpx.get(f"{url}/healthz").status_code == 200


def test_what_waits_in_the_pipeline_is_bounded(tmp_path: Path) -> None:
    """A client that sends faster than it is answered is not read further."""
    many = head(method="GET", path="/healthz") * 4000
    with (
        service_here(tmp_path / "calibeat.db") as url,
        socket.create_connection(address(url), timeout=15) as connection,
    ):
        found = longest = 0
        protocol = the_connection(url)
        sender = threading.Thread(target=lambda: connection.sendall(many * 5))
        sender.start()
        while found < 10_000:
            found += connection.recv(65_536).count(b"HTTP/1.1 200")
            longest = max(longest, len(protocol.pipeline))
        connection.close()
        sender.join()
    assert 1000 < longest * len(many) // 4000 < 300_000  # bytes: what comes in one segment, and no more


def test_attacks_do_not_mix_up_answers(tmp_path: Path) -> None:
    """Everybody gets the answers to the own requests, in order, whatever others send meanwhile."""
    wrong: list[object] = []
    is_over = threading.Event()

    def attack(part: int) -> None:
        for case in itertools.cycle(list(CASES.values())[part::4]):
            if is_over.is_set():
                return
            with socket.create_connection(address(url), timeout=15) as connection, contextlib.suppress(OSError):
                for segment in case.segments:
                    connection.sendall(segment)

    def work(worker: int) -> None:
        with socket.create_connection(address(url), timeout=15) as connection:
            for turn in range(40):
                ids = [f"{worker}-{turn}-{number}" for number in range(1 + turn % 5)]
                bodies = [json.dumps({"stream": "honest", "id": name, "score": 0.5}).encode() for name in ids]
                connection.sendall(b"".join(post(body=body) for body in bodies))
                found = b""
                while len(names := re.findall(rb'"id":"([-\d]+)"[^}]*}', found)) < len(ids):
                    if not (part := connection.recv(65_536)):
                        break
                    found += part
                if [name.decode() for name in names] != ids or statuses(found) != [200] * len(ids):
                    wrong.append((ids, found))

    with service_here(tmp_path / "calibeat.db") as url:
        attackers = [threading.Thread(target=attack, args=(part,)) for part in range(4)]
        workers = [threading.Thread(target=work, args=(worker,)) for worker in range(8)]
        for thread in attackers + workers:
            thread.start()
        for thread in workers:
            thread.join()
        is_over.set()
        for thread in attackers:
            thread.join()
        assert httpx.get(f"{url}/v1/streams/honest").json()["events"] == 8 * sum(1 + turn % 5 for turn in range(40))
    assert not wrong
