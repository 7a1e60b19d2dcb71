"""Files of a log: their order, their delimiters, and damage that must not end the process."""

from __future__ import annotations

import bz2
import gc
import gzip
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from streams import drifting

from calibeat.cli import main as cli

pa = pytest.importorskip("pyarrow")
feather = pytest.importorskip("pyarrow.feather")

N = 200
SCORES, OUTCOMES = drifting(N)


@pytest.fixture
def typed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def typing(*arguments):
        code = cli.main(["backtest", *map(str, arguments), "--methods", "ops"])
        said = capsys.readouterr()
        return code, said.out, said.err

    return typing


def text(rows=slice(None), mark=","):
    events = zip(SCORES.tolist()[rows], OUTCOMES.astype(int).tolist()[rows], strict=True)
    return f"p{mark}y\n" + "".join(f"{p}{mark}{y}\n" for p, y in events)


def test_parts_are_read_in_natural_order(typed):
    Path("whole.csv").write_text(text())
    whole = json.loads(typed("whole.csv", "--json")[1])
    Path("parts").mkdir()
    for k in range(12):
        Path(f"parts/part-{k}.csv").write_text(text(slice(k * N // 12, (k + 1) * N // 12)))
    for log in ("parts", "parts/*.csv"):
        found = json.loads(typed(log, "--json")[1])
        assert found["data"]["source"] == [f"parts/part-{k}.csv" for k in range(12)]
        assert found["table"] == whole["table"]


@pytest.mark.parametrize("name", ["log.tsv", "LOG.TSV", "log.tsv.gz", "log.tsv.bz2", "log.tsv.zst", "log.TSV.GZ"])
def test_columns_between_tabs(typed, name):
    plain = text(mark="\t").encode()
    packed = {".gz": gzip.compress, ".bz2": bz2.compress, ".zst": lambda b: pa.compress(b, "zstd", asbytes=True)}
    Path(name).write_bytes(packed.get(Path(name).suffix.lower(), lambda b: b)(plain))
    code, out, err = typed(name, "--json")
    assert (code, err) == (0, "") and json.loads(out)["data"]["used"] == N


@pytest.mark.parametrize("mark", ["\t", "\\t", "tab", "TAB"])
def test_a_tab_can_be_typed(typed, mark):
    Path("log.csv").write_text(text(mark="\t"))
    assert typed("log.csv", "--delimiter", mark)[0] == 0


@pytest.mark.filterwarnings("error::ResourceWarning")
def test_input_is_closed(typed):
    for name in ("log.csv", "log.csv.gz"):
        packed = text().encode() if name == "log.csv" else gzip.compress(text().encode())
        Path(name).write_bytes(packed)
        assert typed(name)[0] == 0
        gc.collect()
        if sys.platform == "linux":
            open_files = [path.resolve().name for path in Path("/proc/self/fd").iterdir() if path.exists()]
            assert name not in open_files


def test_a_damaged_arrow_file_gets_a_sentence(tmp_path):
    """A wrong offset in a column of text: without a check the process is killed when it is read."""
    times = [f"2024-01-01T00:00:{k % 60:02d}" for k in range(500)]
    table = pa.table({"p": np.full(500, 0.5), "y": np.arange(500) % 2, "time": times})
    path = tmp_path / "log.feather"
    feather.write_feather(table, path, compression="uncompressed")
    offsets = np.arange(0, 19 * 501, 19, dtype="<i4").tobytes()
    damaged = bytearray(path.read_bytes())
    at = damaged.index(offsets)
    damaged[at + 400 : at + 404] = (0x7FFFFFFF).to_bytes(4, "little")
    path.write_bytes(damaged)
    for option in ("--time", "--key", "--id"):
        command = [sys.executable, "-m", "calibeat", "backtest", path.name, option, "time", "--methods", "raw"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 2, (option, done)
        assert done.stderr.startswith("calibeat: log.feather must be a log that can be read, got: ")


HOSTILE = "a\x1b[31m\u202egpj.csv"


def test_names_do_nothing_to_a_terminal_or_a_page(typed):
    Path("logs").mkdir()
    Path(f"logs/{HOSTILE}").write_text("p,y,k\x1b[2J\u202e\n" + "0.5,1,\u202ekey\x07\n0.25,0,b\n" * 60)
    code, out, err = typed("logs", "--key", "k\x1b[2J\u202e", "--report", "r.html")
    assert (code, err) == (0, "")
    page = Path("r.html").read_text()
    for shown in (out, page):
        assert not any(mark in shown for mark in ("\x1b", "\u202e", "\x07")) and "\\x1b[31m\\u202egpj.csv" in shown
    assert "<bdi>logs/a\\x1b[31m\\u202egpj.csv</bdi>" in page
    Path(f"logs/{HOSTILE}").write_text("p,y\n0.5,7\n")
    code, out, err = typed("logs")
    assert code == 2 and "\x1b" not in err and "\u202e" not in err and "\\u202egpj.csv" in err
    code, out, err = typed(f"nowhere-{HOSTILE}")
    assert code == 2 and "\x1b" not in err and "\u202e" not in err
