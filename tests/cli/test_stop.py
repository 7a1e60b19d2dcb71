"""Ctrl-C and SIGTERM stop a command, also where a library swallows them."""

import signal
from contextlib import suppress

import pytest

from calibeat.cli import token
from calibeat.cli.main import main
from calibeat.cli.stop import Stopped, stopped_by_signals


@pytest.fixture(params=[signal.SIGTERM, signal.SIGINT])
def number(request):
    return request.param


def run_of(*steps):
    """Steps with a check after each but the last, as a command makes them; how many were done, and the status."""
    done = 0
    try:
        with stopped_by_signals() as stop:
            for step in steps:
                if done:
                    stop.check()
                step()
                done += 1
    except Stopped as stop:
        return done, stop.args[0]
    return done, 0


def test_a_signal_that_was_swallowed_stops_the_next_step(number):
    def swallowed():
        with suppress(BaseException):  # as an import in C does
            signal.raise_signal(number)

    def nothing():
        pass

    assert run_of(swallowed, nothing, nothing) == (1, 128 + number)
    assert run_of(nothing, swallowed) == (2, 128 + number)
    assert run_of(nothing, nothing) == (2, 0)


def test_a_signal_that_became_another_error_is_a_stop(number):
    def changed():
        try:
            signal.raise_signal(number)
        except Stopped:
            raise AttributeError("partially initialized module") from None

    def wrong():
        raise AttributeError("our own")

    assert run_of(changed) == (0, 128 + number)
    with pytest.raises(AttributeError, match="our own"):
        run_of(wrong)


def test_what_was_ignored_stays_ignored_and_all_is_put_back(number):
    before = signal.signal(number, signal.SIG_IGN)
    try:
        assert run_of(lambda: signal.raise_signal(number)) == (1, 0)
        assert signal.getsignal(number) == signal.SIG_IGN
    finally:
        signal.signal(number, before)


def test_every_command_ends_with_the_status_of_the_signal(number, monkeypatch, capsys):
    monkeypatch.setattr(token, "run", lambda _: signal.raise_signal(number))
    assert main(["token", "list", "--store", "calibeat.db"]) == 128 + number
    assert capsys.readouterr().err == "calibeat: stopped\n"
