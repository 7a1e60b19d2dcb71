"""The programs of docs/how-to/loop.md run as they stand there: killed, restarted, with outcomes that come twice."""

from __future__ import annotations

import re
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from calibeat import Calibrator

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "loop.md"
EVENTS = 4000


@pytest.fixture
def programs(tmp_path: Path) -> dict[str, Path]:
    found = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        name = block.split()[1]
        found[name] = tmp_path / name
        found[name].write_text(block)
    assert set(found) == {"serve.py", "outcomes.py"}
    return found


def run(program: Path, database: Path, given: str = "") -> None:
    subprocess.run([sys.executable, program, database], input=given, text=True, check=True, timeout=300)


def kill_halfway(program: Path, database: Path) -> None:
    """Start the program, and kill it when it has done something and not everything."""
    before = sqlite3.connect(database, timeout=60).execute("SELECT count(*) FROM queue").fetchone()[0]
    process = subprocess.Popen([sys.executable, program, database])
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        left = sqlite3.connect(database, timeout=60).execute("SELECT count(*) FROM queue").fetchone()[0]
        if left < before:
            break
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()


def test_nothing_is_lost_and_nothing_is_learnt_twice(programs: dict[str, Path], tmp_path: Path) -> None:
    database = tmp_path / "loop.db"
    run(programs["serve.py"], database)  # makes the tables
    rng = np.random.default_rng(0)
    scores = rng.random(EVENTS)
    truth = np.where(np.arange(EVENTS) < EVENTS // 2, scores, 0.25 * scores)  # the world breaks in the middle
    outcomes = (rng.random(EVENTS) < truth).astype(int)
    with sqlite3.connect(database) as db:
        asked = [(f"e{i}", score) for i, score in enumerate(scores.tolist())]
        db.executemany("INSERT INTO queue (event, score) VALUES (?, ?)", asked)
    kill_halfway(programs["serve.py"], database)
    run(programs["serve.py"], database)
    lines = [f"e{i} {outcome}" for i, outcome in enumerate(outcomes.tolist())]
    run(programs["outcomes.py"], database, "\n".join(lines))
    kill_halfway(programs["serve.py"], database)
    run(programs["outcomes.py"], database, "\n".join([*lines[:50], f"e60 {1 - outcomes[60]}"]))
    run(programs["serve.py"], database)

    db = sqlite3.connect(database)
    assert db.execute("SELECT count(*), count(DISTINCT event) FROM forecasts").fetchone() == (EVENTS, EVENTS)
    counts = dict(db.execute("SELECT status, count(*) FROM learning GROUP BY status").fetchall())
    assert counts == {"learnt": EVENTS, "repeated": 50, "conflict": 1}
    (snapshot,) = db.execute("SELECT snapshot FROM state").fetchone()
    cal = Calibrator.from_json(snapshot)
    assert (cal.events, cal.outcomes) == (EVENTS, EVENTS)
    raised = [(a.what, a.at, bool(a.page)) for monitor in cal.monitors.values() for a in monitor.alarms]
    told = db.execute("SELECT what, at, page FROM alarms ORDER BY source, at").fetchall()
    assert [(what, at, bool(page)) for what, at, page in told] == raised
    assert any(what == "too high" and page for what, _, page in told)
    # The same events without a queue, a kill or another process: the same bits.
    forecasts = [p for (p,) in db.execute("SELECT probability FROM forecasts ORDER BY rowid")]
    alone = Calibrator(stream="clicks")
    receipts = [alone.predict(score) for score in scores.tolist()]
    assert [f.probability for f in receipts] == forecasts
    for receipt, outcome in zip(receipts, outcomes.tolist(), strict=True):
        assert alone.update(receipt, outcome) == "learnt"
    assert alone.row.tolist() == cal.row.tolist()
