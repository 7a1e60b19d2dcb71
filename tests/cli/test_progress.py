"""The progress bar: on a terminal a bar that goes away, elsewhere nothing at all."""

from __future__ import annotations

import io
import sys

import pytest
from terminals import Terminal

from calibeat._util.progress import progress


def test_a_pipe_stays_quiet() -> None:
    log = io.StringIO()
    with progress(3, log, unit="runs") as step:
        step()
        step(2, "what is done now")
    assert log.getvalue() == ""


def test_a_terminal_shows_what_is_done_and_how_much_is_left() -> None:
    log = Terminal()
    with progress(4, log, unit="runs", done=1) as step:
        assert "1/4" in log.getvalue()
        step(0, "forests")
        step(3)
    assert "forests" in log.getvalue() and "runs" in log.getvalue()
    assert log.getvalue().rsplit("\r", 1)[-1].strip() == ""  # the bar is removed


def test_a_bar_without_an_end() -> None:
    log = Terminal()
    with progress(None, log, unit="rows") as step:
        step(5)
    assert "rows" in log.getvalue()


def test_large_numbers_are_short() -> None:
    log = Terminal()
    with progress(2_000_000, log, unit="rows"):
        assert "/2.00M" in log.getvalue()


def test_the_bar_is_removed_when_the_work_fails() -> None:
    log = Terminal()
    with pytest.raises(KeyboardInterrupt), progress(4, log):
        raise KeyboardInterrupt
    assert log.getvalue().rsplit("\r", 1)[-1].strip() == ""


def test_without_tqdm_there_is_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm", None)
    log = Terminal()
    with progress(1, log) as step:
        step(1, "x")
    assert log.getvalue() == ""
