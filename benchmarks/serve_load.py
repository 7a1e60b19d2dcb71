"""The load of `benchmarks serve`: half forecasts, half outcomes of forecasts that were answered a while ago.

`wrk` makes it where it is installed, for it takes little of the machine. Otherwise a Python process does:
`python -m benchmarks.serve_load URL CONNECTIONS SECONDS BATCH RATE`.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

STREAMS = 1000
_LUA = """
local prefix, batch, n, streams = "%s", %d, 0, %d
function setup(thread) count = (count or 0) + 1; thread:set("me", count) end
function init(args) lag = tonumber(args[1]); pause = tonumber(args[2]) end
function body(kind, number)
  local parts = {}
  for i = 1, batch do
    local at = number * batch + i
    local head = '{"stream":"s' .. (at * 7919) %% streams .. '","id":"' .. prefix .. me .. "-" .. at .. '",'
    if kind == 0 then parts[i] = head .. '"score":' .. (at %% 97) / 97 .. '}'
    else parts[i] = head .. '"outcome":' .. (at * 31) %% 97 %% 2 .. '}' end
  end
  if batch == 1 then return parts[1] end
  return '{"events":[' .. table.concat(parts, ",") .. ']}'
end
function delay() return pause end
function request()
  n = n + 1
  local headers = {["content-type"] = "application/json"}
  if n <= lag or n %% 2 == 0 then
    asked = (asked or 0) + 1
    return wrk.format("POST", "/v1/forecasts", headers, body(0, asked))
  end
  told = (told or 1) + 1  -- wrk asks for one request that it does not send
  return wrk.format("POST", "/v1/outcomes", headers, body(1, told))
end
function done(summary, latency, requests)
  local e = summary.errors
  io.write(string.format('{"requests":%%d,"seconds":%%f,"p50":%%f,"p99":%%f,"errors":%%d}',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    e.connect + e.read + e.write + e.status + e.timeout))
end
"""


@dataclass(frozen=True)
class Measured:
    """What a burst of load has found; times in milliseconds."""

    requests: int
    seconds: float
    p50: float
    p99: float
    errors: int

    @property
    def rate(self) -> float:
        """Requests per second."""
        return self.requests / self.seconds


def load(url: str, connections: int, seconds: float, batch: int, rate: float = 0.0) -> Measured:
    """Put load on a service; with a rate, so many requests per second, else as many as it answers."""
    if shutil.which("wrk"):
        if not rate:
            return _wrk(url, connections, seconds, batch, 0.0)
        between = 1000 * connections / rate  # from one request of a connection to its next: a wait and a pause
        wait = _wrk(url, connections, 1.0, batch, between).p50
        return _wrk(url, connections, seconds, batch, max(0.0, between - wait))
    command = [sys.executable, "-m", "benchmarks.serve_load", url, *map(str, (connections, seconds, batch, rate))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return Measured(**json.loads(done.stdout))


def _wrk(url: str, connections: int, seconds: float, batch: int, pause: float) -> Measured:
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "load.lua"
        script.write_text(_LUA % (uuid.uuid4().hex[:8], batch, STREAMS))
        lag = str(connections + 8)  # of so many requests the first is answered: a connection has one at a time
        command = [
            "wrk",
            "--timeout",
            "20s",
            "-t1",
            f"-c{connections}",
            f"-d{seconds:g}s",
            "-s",
            str(script),
            url,
            "--",
            lag,
            f"{pause:.0f}",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = re.search(r"\{.*\}", done.stdout)
    if found is None:
        raise RuntimeError(done.stdout + done.stderr)
    return Measured(**json.loads(found[0]))


class _Connection(asyncio.Protocol):
    """Sends a request, waits for its answer, sends the next one when it is due."""

    def __init__(self, number: int, batch: int, interval: float, end: float) -> None:
        self._prefix = f"{uuid.uuid4().hex[:8]}-{number}"
        self._batch, self._interval, self._end = batch, interval, end
        self.times: list[float] = []
        self.errors = 0
        self.done = asyncio.get_running_loop().create_future()
        self._asked = 0
        self._buffer = b""
        self._due = time.perf_counter() + interval * (number % 97) / 97.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        self._later()

    def _later(self) -> None:
        wait = self._due - time.perf_counter()
        loop = asyncio.get_running_loop()
        if wait > 0:
            loop.call_later(wait, self._send)
        else:
            self._send()

    def _send(self) -> None:
        now = time.perf_counter()
        if now > self._end:
            self._transport.close()
            return
        path, what = ("forecasts", "score") if self._asked % 2 == 0 else ("outcomes", "outcome")
        first = self._asked // 2 * self._batch
        value = 0.3 if what == "score" else 1
        events = [
            {"stream": f"s{(first + i) * 7919 % STREAMS}", "id": f"{self._prefix}-{first + i}", what: value}
            for i in range(self._batch)
        ]
        body = json.dumps(events[0] if self._batch == 1 else {"events": events}).encode()
        head = f"POST /v1/{path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        self._transport.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        self._asked += 1
        self._sent = self._due if self._interval else now  # a late start is part of the wait
        self._due += self._interval

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, body = self._buffer.partition(b"\r\n\r\n")
        if not found or len(body) < int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]):
            return
        self._buffer = b""
        self.errors += not head.startswith(b"HTTP/1.1 200")
        self.times.append(time.perf_counter() - self._sent)
        self._later()

    def connection_lost(self, _: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(None)


def _same(connection: _Connection) -> _Connection:
    return connection


async def _measure(url: str, connections: int, seconds: float, batch: int, rate: float) -> Measured:
    parts = urlsplit(url)
    start = time.perf_counter()
    interval = connections / rate if rate else 0.0
    loop = asyncio.get_running_loop()
    made = [_Connection(number, batch, interval, start + seconds) for number in range(connections)]
    for connection in made:
        await loop.create_connection(partial(_same, connection), parts.hostname or "", parts.port or 80)
    await asyncio.gather(*(connection.done for connection in made))
    times = sorted(time for connection in made for time in connection.times)
    p50, p99 = (1e3 * times[min(len(times) - 1, int(share * len(times)))] for share in (0.5, 0.99))
    return Measured(len(times), time.perf_counter() - start, p50, p99, sum(c.errors for c in made))


if __name__ == "__main__":
    import uvloop

    target, *numbers = sys.argv[1:]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        result = runner.run(_measure(target, int(numbers[0]), float(numbers[1]), int(numbers[2]), float(numbers[3])))
    sys.stdout.write(json.dumps(vars(result)))
