"""The command line: the same verbs as the library. Each command is a module with `add_arguments` and `run`."""

from __future__ import annotations

import argparse
import gc
import io
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from importlib import import_module

from calibeat._util.words import visible
from calibeat._version import __version__
from calibeat.errors import CalibeatError

from .stop import Stop, stopped_by_signals

COMMANDS = {
    "demo": "a year of flights replayed through the methods: a table, a picture and a report",
    "backtest": "what would have been best on my log? a verdict, a table, a report",
    "bank": "look into a bank file",
    "serve": "the calibration service: scores in, outcomes whenever they come, nothing lost",
    "store": "look at, check, replay, prune and export the store of a service",
    "alarm": "what the monitors of a service have found; acknowledge and mute it",
    "token": "who may use the service",
}
DONE, CHECK_FAILED, BAD_INPUT, STOPPED = 0, 1, 2, 130


def parser(command: str | None = None, stop: Stop | None = None) -> argparse.ArgumentParser:
    """What can be typed. With a command, only its own module is imported; the others are only named.

    A command asks `stop` whether a signal has come.
    """
    top = argparse.ArgumentParser(
        prog="calibeat",
        description="Online probability calibration: scores in, probabilities you can trust out.",
        epilog="'calibeat COMMAND --help' tells more of a command.",
    )
    top.add_argument("--version", action="version", version=f"calibeat {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        added = commands.add_parser(name, help=summary)
        if command in {None, name}:
            module = import_module(f"{__package__}.{name}")
            module.add_arguments(added)
            added.set_defaults(run=module.run, stop=stop or Stop())
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. 0: done. 1: a check failed. 2: bad input, with a sentence. 130 and 143: stopped."""
    typed = list(sys.argv[1:] if arguments is None else arguments)
    command = next((word for word in typed if word in COMMANDS), "")

    def work(stop: Stop) -> int | None:
        args = parser(command, stop).parse_args(typed)
        if arguments is None:  # pragma: no cover - in a process of its own
            gc.freeze()  # what was imported stays: the collector need not look at it again and again
        args.typed = shlex.join(["calibeat", *typed])
        status: int | None = args.run(args)
        return status

    # The service hears signals itself. Until it does, it has nothing to clean up.
    return run_guarded(work, signals=command != "serve", last=arguments is None)


def run_guarded(
    work: Callable[[Stop], int | None], program: str = "calibeat", *, signals: bool = True, last: bool = False
) -> int:
    """Do the work of a command -> its exit status. Errors of users become one line, signals an orderly end.

    `last` says that the process ends with the command (`stopped_by_signals`).
    """
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal that cannot show a letter gets its number
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with stopped_by_signals(last=last) if signals else nullcontext(Stop()) as stop:
            status = work(stop)
            sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output has left, as `head` does
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - for what is still to be flushed
        return DONE
    except (CalibeatError, OSError) as error:
        print(f"{program}: {visible(error)}", file=sys.stderr)
        for line in "\n".join(getattr(error, "__notes__", [])).splitlines():
            print(visible(line), file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt as stop:
        print(f"{program}: stopped", file=sys.stderr)
        return int(stop.args[0]) if stop.args else STOPPED
    return DONE if status is None else int(status)
