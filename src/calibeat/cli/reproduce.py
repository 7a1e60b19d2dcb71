"""`calibeat reproduce`: the paper's tables and figures computed anew."""

from __future__ import annotations

import argparse
from pathlib import Path

from calibeat.paper.registry import listing
from calibeat.paper.reproduce import reproduce
from calibeat.paper.settings import Settings

DESCRIPTION = """\
Compute the paper's tables and figures from scratch. Each becomes a CSV, figures (PNG and SVG), and a Markdown page with
our numbers beside the paper's and a verdict on each claim of its text. Base-model scores and finished runs are cached:
a stopped command resumes."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What can be typed behind `calibeat reproduce`."""
    parser.description = DESCRIPTION
    parser.add_argument("names", nargs="*", metavar="NAME", help="an experiment of --list; all if none is named")
    parser.add_argument("--list", action="store_true", help="the experiments, with figure numbers and estimated time")
    parser.add_argument("--runs", type=int, default=20, metavar="N", help="runs with different seeds (default: 20)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="the seed of the first run (default: 0)")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("reproduction"),
        metavar="DIR",
        help="the folder for the report (./reproduction)",
    )
    parser.add_argument("--jobs", type=int, default=1, metavar="J", help="processes at the same time (default: 1)")
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="the folder with the four datasets (default: CALIBEAT_DATA, or data/ of a checkout)",
    )


def run(args: argparse.Namespace) -> None:
    """Run `calibeat reproduce`."""
    settings = Settings(runs=args.runs, seed=args.seed, jobs=args.jobs, data=args.data)
    if args.list:
        print(listing(settings, args.names))
    else:
        reproduce(args.names, settings, args.out)
