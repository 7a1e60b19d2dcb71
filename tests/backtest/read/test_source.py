"""The bytes of a text that others read in their own time, and may leave in the middle."""

import os
import threading
from types import SimpleNamespace

import pytest

from calibeat.backtest.read.files import HEAD, Source, files_of

pytest.importorskip("pyarrow")
ROWS = b"0.5,1\n0.25,0\n"


@pytest.fixture
def pipe(monkeypatch):
    """Standard input as a pipe that says something and then keeps silent, but stays open."""
    there, here = os.pipe()

    def say(content: bytes) -> None:
        threading.Thread(target=os.write, args=(here, content), daemon=True).start()

    with os.fdopen(there, "rb") as buffer:
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=buffer))
        yield SimpleNamespace(say=say, end=lambda: os.close(here))


def columns(header, _):
    return header


def test_who_leaves_a_silent_pipe_does_not_wait_for_it(pipe):
    pipe.say(b"p,y\n" + ROWS * 1_000_000)  # 13 MB: three blocks of Arrow, and a part of one
    batches = files_of("-")[0].batches(columns, None)
    part, rows = next(batches)
    assert part.num_rows == rows.size > 100_000
    batches.close()  # would wait for ever, if the thread that reads could not be stopped
    pipe.end()


def test_a_pipe_is_read_to_its_end(pipe):
    many = 2 * HEAD // len(ROWS)  # more than is read to see the header
    pipe.say(b"p,y\n" + ROWS * many)
    batches = files_of("-")[0].batches(columns, None)
    threading.Timer(0.3, pipe.end).start()
    assert sum(part.num_rows for part, _ in batches) == 2 * many


def test_after_stop_there_is_an_end(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"p,y\n" + ROWS * HEAD)
    with (tmp_path / "a.csv").open("rb") as file:
        source = Source(file, "a.csv")
        assert source.head.startswith(b"p,y\n") and len(source.head) == HEAD
        assert len(source.read(10)) == 10
        source.stop()
        assert source.read(10) == b""
