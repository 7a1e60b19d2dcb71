"""The command line: the same verbs as the library."""

from __future__ import annotations

import argparse
import io
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from calibeat._version import __version__
from calibeat.errors import CalibeatError

from . import bank as bankview


def parser() -> argparse.ArgumentParser:
    """What can be typed."""
    from .backtest import add_arguments

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

    reproduce = commands.add_parser(
        "reproduce",
        help="every table and figure of the paper computed anew, beside the published numbers",
        description="Compute the paper's tables and figures from scratch: for each a CSV, figures (PNG and SVG), and a "
        "Markdown page with our numbers beside the paper's and a verdict on each claim of its text. Finished runs and "
        "the scores of the base model are kept, so that a command that was stopped goes on where it was.",
    )
    reproduce.add_argument("names", nargs="*", metavar="NAME", help="an experiment of --list; all if none is named")
    reproduce.add_argument(
        "--list", action="store_true", help="the experiments, with figure numbers and estimated time"
    )
    reproduce.add_argument("--runs", type=int, default=20, metavar="N", help="runs with different seeds (default: 20)")
    reproduce.add_argument("--seed", type=int, default=0, metavar="S", help="the seed of the first run (default: 0)")
    reproduce.add_argument(
        "--out",
        type=Path,
        default=Path("reproduction"),
        metavar="DIR",
        help="the folder for the report (./reproduction)",
    )
    reproduce.add_argument("--jobs", type=int, default=1, metavar="J", help="processes at the same time (default: 1)")
    reproduce.add_argument(
        "--data", type=Path, metavar="DIR", help="the folder with the four datasets (default: that of CALIBEAT_DATA)"
    )
    reproduce.set_defaults(run=_reproduce)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 0 if all went well, 1 with a sentence on standard error if not."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal that cannot show a letter gets its number
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        options = parser().parse_args(arguments)  # imports what it needs, which takes a while
        options.typed = shlex.join(["calibeat", *(sys.argv[1:] if arguments is None else arguments)])
        options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output has left, as `head` does
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - for what is still to be flushed
        return 0
    except (CalibeatError, OSError) as error:
        print(f"calibeat: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as stop:
        print("calibeat: stopped", file=sys.stderr)
        return int(stop.args[0]) if stop.args else 130
    return 0


def _demo(options: argparse.Namespace) -> None:
    from .demo import run_demo

    run_demo(options.out)


def _reproduce(options: argparse.Namespace) -> None:
    from calibeat.paper.registry import listing
    from calibeat.paper.reproduce import reproduce
    from calibeat.paper.settings import Settings

    settings = Settings(runs=options.runs, seed=options.seed, jobs=options.jobs, data=options.data)
    if options.list:
        print(listing(settings, options.names))
    else:
        reproduce(options.names, settings, options.out)
