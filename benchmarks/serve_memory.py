"""Memory of the service under large requests at once: `python -m benchmarks serve-memory`.

24 clients send as much as a body may hold: events with a score for each of 1,000 classes. `CALIBEAT_BEFORE` may be the
path of an older checkout, with its compiled core; then it is measured, too.
"""

from __future__ import annotations

import http.client
import os
import re
import sys
import tempfile
import threading
from collections import Counter
from contextlib import closing
from pathlib import Path

from benchmarks.serve import Contender, free_port
from benchmarks.table import show

HERE = Path(__file__).parents[1]
CLIENTS, CLASSES, MOST = 24, 1000, 4 * 2**20  # bytes of a body


def body(client: int, *, short: bool) -> bytes:
    """A request of about 4 MiB: numbers of two digits, or ones and zeros, which are the most in a byte."""
    part = b"[1" + b",0" * (CLASSES - 1) + b"]" if short else b"[0.01" + b",0.001" * (CLASSES - 1) + b"]"
    part = part if short else part.replace(b"0.01", b"0.001", 1)
    event = b'{"stream":"s%d","id":"%d-%06d","scores":' % (client, client, 0) + part + b"},"
    count = (MOST - 20) // len(event)
    events = [event.replace(b"-000000", b"-%06d" % number) for number in range(count)]
    return b'{"events":[' + b"".join(events)[:-1] + b"]}"


def memory(*, quick: bool) -> None:
    """Table: the most memory of the process, and what was answered."""
    older = os.environ.get("CALIBEAT_BEFORE")
    checkouts = ({"before": Path(older)} if older else {}) | {"now": HERE}
    kinds = {"0.001": False} if quick else {"0.001": False, "0 and 1": True}
    rows = [
        [f"{name}, {kind}", *_one(checkout, short=short)]
        for name, checkout in checkouts.items()
        for kind, short in kinds.items()
    ]
    head = ["scores", "MiB before", "MiB at most", "200", "503", "others"]
    show(f"{CLIENTS} requests of 4 MiB at once, {CLASSES:,} classes", head, rows)


def _one(checkout: Path, *, short: bool) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        serve = ["serve", "--store", f"{folder}/calibeat.db", "--method", "ops", "--port", str(port)]
        command = ["env", f"PYTHONPATH={checkout.resolve() / 'src'}", sys.executable, "-m", "calibeat", *serve]
        with closing(Contender(command, port)) as contender:
            statuses: Counter[int] = Counter()

            def ask(content: bytes) -> None:
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
                try:
                    connection.request("POST", "/v1/forecasts", content, {"content-type": "application/json"})
                    answer = connection.getresponse()
                    answer.read()
                    statuses[answer.status] += 1
                except OSError:
                    statuses[0] += 1
                finally:
                    connection.close()

            for client in range(CLIENTS):  # their streams have their classes
                ask(b'{"stream":"s%d","id":"first","scores":[1%s]}' % (client, b",0" * (CLASSES - 1)))
            before, statuses = contender.memory(), Counter()
            content = [body(client, short=short) for client in range(CLIENTS)]
            threads = [threading.Thread(target=ask, args=(each,)) for each in content]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{contender._process.pid}/status").read_text())
            most = int(found[1]) / 1024 if found else 0.0
    others = sum(statuses.values()) - statuses[200] - statuses[503]
    return [f"{before:.0f}", f"{most:.0f}", *map(str, (statuses[200], statuses[503], others))]
