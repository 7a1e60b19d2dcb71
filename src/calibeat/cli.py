"""The command line: the same verbs as the library."""

from __future__ import annotations

import argparse
import io
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from . import bankview
from ._version import __version__
from .errors import CalibeatError


def parser() -> argparse.ArgumentParser:
    """What can be typed."""
    from .backtest.command import add_arguments

    top = argparse.ArgumentParser(
        prog="calibeat",
        description="Online probability calibration: scores in, probabilities you can trust out.",
        epilog="'calibeat COMMAND --help' tells more of a command.",
    )
    top.add_argument("--version", action="version", version=f"calibeat {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)

    demo = commands.add_parser(
        "demo",
        help="a year of flights replayed through the methods: a table, a picture and a report",
        description="Train a model on January, replay its scores through February to December with every outcome "
        "applied when that flight had landed, and compare the methods in a table, a picture and a report.",
    )
    demo.add_argument(
        "--out",
        type=Path,
        default=Path(),
        metavar="DIR",
        help="the folder for the picture and the report (default: this one)",
    )
    demo.set_defaults(run=_demo)
    bankview.add_commands(commands)

    add_arguments(
        commands.add_parser("backtest", help="what would have been best on my log? a verdict, a table, a report")
    )
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 0 if all went well, 1 with a sentence on standard error if not."""
    options = parser().parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal that cannot show a letter gets its number
        sys.stdout.reconfigure(errors="backslashreplace")
    options.typed = shlex.join(["calibeat", *(sys.argv[1:] if arguments is None else arguments)])
    try:
        options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output has left, as `head` does
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - for what is still to be flushed
        return 0
    except (CalibeatError, OSError) as error:
        print(f"calibeat: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("calibeat: stopped", file=sys.stderr)
        return 130
    return 0


def _demo(options: argparse.Namespace) -> None:
    from .demo import run_demo

    run_demo(options.out)
