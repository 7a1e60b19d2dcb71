"""`calibeat backtest` with rivals, two models and keys: what is typed is what Python is told."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from streams import drifting

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

import calibeat  # noqa: E402 - only where pyarrow is
from calibeat.cli import main as cli  # noqa: E402

N = 500
SCORES, OUTCOMES = drifting(N)
OTHER, THEIRS = np.sqrt(SCORES), 0.25 + 0.5 * SCORES
KEYS = ["a", "b", "a", "a", "c"] * (N // 5)


@pytest.fixture
def typed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    columns = {"p_old": SCORES, "p_new": OTHER, "y": OUTCOMES, "theirs": THEIRS, "k": KEYS}
    pq.write_table(pa.table(columns), "log.parquet")

    def typing(*arguments):
        code = cli.main(["backtest", "log.parquet", "--score", "p_old", *map(str, arguments)])
        said = capsys.readouterr()
        return code, said.out, said.err

    return typing


def test_a_rival_and_another_model_are_typed(typed):
    asked = ["--score", "p_new", "--rival", "theirs", "--methods", "ops,isotonic", "--delay", 30]
    code, out, err = typed(*asked, "--json", "--out", "f.parquet", "--report", "r.html")
    assert (code, err) == (0, "")
    found = json.loads(out)
    expected = calibeat.backtest(
        SCORES,
        OUTCOMES,
        score={"p_new": OTHER},
        rivals={"theirs": THEIRS},
        methods=["ops", "isotonic"],
        delay=30,
        keep_forecasts=True,
    )
    assert found["table"] == expected.payload["table"]
    assert found["data"]["columns"]["rival 1"] == {"name": "theirs", "guessed": False}
    written = pq.read_table("f.parquet")
    for name, forecasts in expected.forecasts.items():
        assert written[f"forecast_{name}"].to_numpy().tolist() == forecasts.tolist()
    assert "theirs" in Path("r.html").read_text()
    code, out, _ = typed(*asked)
    assert "OPS of p_new" in out and "Methods of 'p_new' say so in their names." in out


def test_a_rival_that_is_not_there(typed):
    code, _, err = typed("--rival", "their")
    assert code == 2 and "rival 1 column 'their' is not in log.parquet - did you mean 'theirs'?" in err
    code, _, err = typed("--score", "k")
    assert code == 2 and "score 2 must be in [0, 1], got 'a' - at row 1 of log.parquet" in err


def test_the_verdict_speaks_of_keys(typed):
    code, out, _ = typed("--key", "k", "--methods", "ops")
    assert code == 0
    text = " ".join(out.split())
    assert "Log-loss of OPS: " in text and "Best is OPS " in text
    assert "OPS without keys" in out and "OPS with a pooled start" in out
