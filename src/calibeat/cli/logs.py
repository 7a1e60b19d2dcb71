"""How a log is named and read on the command line: the same words for `backtest` and for `store import`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from calibeat.backtest.options import SCORE_KINDS, Options
from calibeat.backtest.read.attributes import GroupsOfLog
from calibeat.backtest.read.files import Columns, LogFile
from calibeat.backtest.read.labels import ClassesOfLog
from calibeat.errors import InvalidInput

LOG = "a CSV, JSON Lines, Parquet or Arrow file, a glob, a folder, or - for text on stdin"


def add_outcome(columns: Any) -> None:
    """The column of outcomes."""
    columns.add_argument("--outcome", metavar="NAME", help="0 or 1, -1 or 1, false or true; see --positive")
    columns.add_argument("--positive", metavar="VALUE", help="the outcome that counts as 1; every other counts as 0")


def add_classes(columns: Any) -> None:
    """The columns of many classes."""
    columns.add_argument(
        "--scores",
        metavar="NAMES",
        help="many classes: the columns of the scores between commas, a pattern such as 'p_*', or a column of lists",
    )
    columns.add_argument("--label", metavar="NAME", help="many classes: the name or the column number of the class")
    columns.add_argument("--classes", metavar="NAMES", help="many classes: their names between commas, for --scores")


def add_groups(columns: Any) -> None:
    """The columns of attributes."""
    columns.add_argument(
        "--groups",
        metavar="NAMES",
        help="attributes between commas, known with the score: country,device,hour(at); also weekday(at), month(at)",
    )


def check_classes(args: argparse.Namespace, only_two: Sequence[str]) -> None:
    """Raise where options of two classes meet options of many."""
    given = next((name for name in only_two if getattr(args, name) is not None), None)
    if args.scores and given:
        raise InvalidInput(f"--{given.replace('_', '-')} must not be given with --scores, got both")
    if not args.scores and (args.label is not None or args.classes is not None):
        raise InvalidInput("--label and --classes are for many classes: name the columns of the scores with --scores")


def set_classes_and_groups(columns: Columns, args: argparse.Namespace, options: Options) -> None:
    """What was typed of classes and attributes."""
    if args.groups is not None:
        columns.groups = GroupsOfLog.of(args.groups, options)
    if args.scores:
        names = None if args.classes is None else [name.strip() for name in args.classes.split(",")]
        columns.classes, columns.scores = ClassesOfLog(names), args.scores


def add_key(columns: Any, what: str) -> None:
    """The column of keys."""
    columns.add_argument("--key", "--stream", metavar="NAME", help=what)
    columns.add_argument("--blank-key", metavar="KEY", help="the stream of events whose key is missing")


def add_times(columns: Any, time: str, outcome_time: str) -> None:
    """The columns of times."""
    columns.add_argument("--time", metavar="NAME", help=time)
    columns.add_argument("--outcome-time", metavar="NAME", help=outcome_time)


def add_kinds(columns: Any) -> None:
    """How numbers, times and rows are written."""
    columns.add_argument(
        "--score-kind", choices=SCORE_KINDS, default="probability", help="what a score is (%(default)s)"
    )
    columns.add_argument(
        "--logits", dest="score_kind", action="store_const", const="logit", help="short for --score-kind logit"
    )
    columns.add_argument(
        "--insist", action="store_true", help="believe --score-kind also where the scores look like probabilities"
    )
    columns.add_argument(
        "--time-zone", metavar="ZONE", help="of times written without one: UTC, +02:00, Europe/Paris (UTC)"
    )
    columns.add_argument(
        "--time-format", metavar="FORMAT", help="of times in text, such as '%%d/%%m/%%Y %%H:%%M' (ISO 8601)"
    )
    columns.add_argument("--decimal", metavar="MARK", default=".", help="before the decimals of numbers in text (.)")
    columns.add_argument(
        "--delimiter", metavar="MARK", help="between the columns of a CSV: a character, or tab (detected)"
    )


def add_skip_bad(group: Any) -> None:
    """What happens to rows that cannot be used."""
    group.add_argument("--skip-bad", action="store_true", help="skip rows that cannot be used, and count them")


def reading(args: argparse.Namespace) -> dict[str, Any]:
    """What was typed of how to read a log, as the arguments of `Options`."""
    names = ("score_kind", "insist", "positive", "decimal", "time_zone", "time_format", "blank_key", "skip_bad")
    return {name: getattr(args, name) for name in names} | {"typed": True}


def delimiter(typed: str | None) -> str | None:
    r"""One character; a tab may be typed as the word or as \t.

    >>> delimiter("tab") == delimiter("\\t") == "\t", delimiter(";")
    (True, ';')
    """
    mark = "\t" if typed is not None and typed.lower() in {"\\t", "tab"} else typed
    if mark is not None and len(mark) != 1:
        raise InvalidInput(f"--delimiter must be one character, got {mark!r}")
    return mark


def total_rows(files: Sequence[LogFile]) -> int | None:
    """How many rows there are, if all files tell."""
    counts = [file.rows() for file in files]
    return None if None in counts else sum(count for count in counts if count is not None)
