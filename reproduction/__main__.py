"""`python -m reproduction` from the root of the repository: the paper's tables and figures computed anew."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from calibeat.cli.main import run_guarded

from .registry import listing
from .reproduce import reproduce
from .settings import Settings

DESCRIPTION = """\
Compute the paper's tables and figures from scratch. Each becomes a CSV, figures (PNG and SVG), and a Markdown page with
our numbers beside the paper's and a verdict on each claim of its text. Base-model scores and finished runs are cached:
a stopped command resumes."""


def parser() -> argparse.ArgumentParser:
    """What can be typed behind `python -m reproduction`."""
    made = argparse.ArgumentParser(prog="python -m reproduction", description=DESCRIPTION)
    made.add_argument("names", nargs="*", metavar="NAME", help="an experiment of --list; all if none is named")
    made.add_argument("--list", action="store_true", help="the experiments, with figure numbers and estimated time")
    made.add_argument("--runs", type=int, default=20, metavar="N", help="runs with different seeds (default: 20)")
    made.add_argument("--seed", type=int, default=0, metavar="S", help="the seed of the first run (default: 0)")
    made.add_argument(
        "--out", type=Path, default=Path("out"), metavar="DIR", help="the folder for the report (default: ./out)"
    )
    made.add_argument("--jobs", type=int, default=1, metavar="J", help="processes at the same time (default: 1)")
    made.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="the folder with the four datasets (default: CALIBEAT_DATA, or data/ of the repository)",
    )
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. 0: done. 2: bad input, with a sentence. 130 and 143: stopped."""
    args = parser().parse_args(arguments)

    def work() -> None:
        settings = Settings(runs=args.runs, seed=args.seed, jobs=args.jobs, data=args.data)
        if args.list:
            print(listing(settings, args.names))
        else:
            reproduce(args.names, settings, args.out)

    return run_guarded(lambda _: work(), "reproduction", last=arguments is None)


if __name__ == "__main__":
    sys.exit(main())
