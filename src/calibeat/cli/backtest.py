"""`calibeat backtest LOG`: a log on disk through many methods; a verdict, a table, a page."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TextIO

from calibeat.backtest.judge.summary import Source
from calibeat.backtest.read.arrow import batch_of
from calibeat.backtest.read.columns import find, rivals
from calibeat.backtest.read.files import STDIN, LogFile, files_of, require_arrow, sentences
from calibeat.backtest.read.rows import Batch, Intake, Terms
from calibeat.backtest.replay.methods import DEFAULT
from calibeat.backtest.result import BacktestResult
from calibeat.backtest.run import SCORE_KINDS, parse_delay, run
from calibeat.errors import InvalidInput
from calibeat.report.schema import Column
from calibeat.report.text import page

from .outputs import Forecasts, check_outputs, folders, stopped_by_sigterm

ROLES = {
    "score": "score",
    "outcome": "outcome",
    "key": "key",
    "time": "time",
    "outcome time": "outcome_time",
    "id": "id",
}

DESCRIPTION = """\
Replay a log of scores and outcomes through many methods exactly as production would have: every forecast is made before
its outcome is known, the same events count for all. Prints which method to use, what it buys and how sure that is."""

EPILOG = """\
examples:
  calibeat backtest log.csv
  calibeat backtest 'logs/*.parquet' --score p --outcome clicked --time at --report report.html
  calibeat backtest log.csv --time at --outcome-time known_at --key country --out forecasts.parquet
  zcat log.csv.gz | calibeat backtest - --delay 500 --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What can be typed behind `calibeat backtest`."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "log", metavar="LOG", help="a CSV, Parquet or Arrow file, a glob, a folder, or - for CSV on stdin"
    )
    columns = parser.add_argument_group("columns")
    columns.add_argument("--score", metavar="NAME", help="the score; guessed from common names if not given")
    columns.add_argument("--outcome", metavar="NAME", help="0 or 1, false or true; guessed likewise")
    columns.add_argument("--key", metavar="NAME", help="the stream: each key gets parameters of its own")
    columns.add_argument("--time", metavar="NAME", help="when the score was issued; the log must be in this order")
    columns.add_argument(
        "--outcome-time", metavar="NAME", help="when the outcome was known: it is learnt then, not before"
    )
    columns.add_argument("--id", metavar="NAME", help="the event's id, to find duplicates; all are kept in memory")
    columns.add_argument(
        "--score-kind", choices=SCORE_KINDS, default="probability", help="what a score is (%(default)s)"
    )
    columns.add_argument("--delimiter", metavar="MARK", help="between the columns of a CSV (a comma)")
    how = parser.add_argument_group("the replay")
    how.add_argument("--methods", metavar="NAMES", help=f"presets between commas ({','.join(DEFAULT)})")
    how.add_argument(
        "--delay", default="0", metavar="N|TIME", help="outcomes arrive N events late, or 30min, 2h, 7d late"
    )
    how.add_argument(
        "--warmup", type=int, metavar="N", help="first events that count for nobody (1000, or 5 %% of a short log)"
    )
    how.add_argument("--bins", type=int, default=10, metavar="M", help="of the calibration error (%(default)s)")
    how.add_argument("--seed", type=int, default=0, metavar="N", help="for methods that draw (%(default)s)")
    how.add_argument("--sort", action="store_true", help="put the log in the order of --time, in memory")
    how.add_argument("--skip-bad", action="store_true", help="count rows that cannot be used instead of stopping")
    out = parser.add_argument_group("what comes out")
    out.add_argument(
        "--report", type=Path, metavar="FILE.html", help="write the report: one page that needs nothing else"
    )
    out.add_argument("--out", type=Path, metavar="FILE.parquet", help="write every method's forecast of every event")
    out.add_argument("--json", action="store_true", help="print the result as JSON and nothing else")
    parser.set_defaults(run=run_command)


def run_command(options: argparse.Namespace, to: TextIO | None = None, log: TextIO | None = None) -> None:
    """Run `calibeat backtest`."""
    to, log = to or sys.stdout, log or sys.stderr
    require_arrow()
    _check(options)
    files = files_of(options.log, options.delimiter)
    names = [file.name for file in files]
    title = f"Backtest of {Path(names[0]).name}" + (f" and {len(names) - 1} more" if len(names) > 1 else "")
    source = Source(title, names, score_kind=options.score_kind, command=getattr(options, "typed", None))
    terms = Terms(
        options.score_kind, options.skip_bad, options.sort, *parse_delay(options.delay), trace=options.out is not None
    )
    if terms.delay_is_time and options.time is None:
        raise InvalidInput(f"a delay in time needs --time, got --delay {options.delay} alone")
    outputs = {"--report": options.report, "--out": options.out}
    outputs = {option: path for option, path in outputs.items() if path is not None}
    check_outputs(options.log, files, outputs)
    intake = Intake(terms)
    with ExitStack() as stack:
        stack.enter_context(stopped_by_sigterm())
        stack.enter_context(folders(list(outputs.values())))
        forecasts = None
        if options.out:
            forecasts = Forecasts(options.out, intake.names, names, keyed=options.key is not None)
            stack.enter_context(forecasts)
        with _progress(_total(files), log) as step:
            payload = run(
                _read(files, options, source, intake, step), source, intake, methods=options.methods,
                bins=options.bins, warmup=options.warmup, seed=options.seed, keyed=options.key is not None,
                late_by_time=options.outcome_time is not None, on_forecasts=forecasts.write if forecasts else None,
            )  # fmt: skip
        result = BacktestResult(payload)
        # Both files take their names once both are whole on the disk.
        if forecasts:
            forecasts.close()
        if options.report:
            result.to_html(options.report)
        if forecasts:
            forecasts.publish()
    if options.json:
        to.write(result.to_json() + "\n")
        return
    to.write(page(payload))
    for written in (options.report, options.out):
        if written:
            to.write(f"Written: {written.resolve()}\n")


def _check(options: argparse.Namespace) -> None:
    """What can be known to be wrong before the work."""
    if options.outcome_time is not None and options.time is None:
        raise InvalidInput("--outcome-time needs --time to be compared with, got it alone")
    if options.outcome_time is not None and options.delay != "0":
        raise InvalidInput("--delay must not be given where --outcome-time says when outcomes arrived, got both")
    if options.sort and options.time is None:
        raise InvalidInput("--sort needs --time, got none")
    if options.delimiter is not None and len(options.delimiter) != 1:
        raise InvalidInput(f"--delimiter must be one character, got {options.delimiter!r}")
    if options.out and options.out.suffix.lower() != ".parquet":
        raise InvalidInput(f"--out must end in .parquet, got {str(options.out)!r}")


# ---- reading -----------------------------------------------------------------------------------------------------


def _read(
    files: list[LogFile], options: argparse.Namespace, source: Source, intake: Intake, step: Callable[[int], None]
) -> Iterator[Batch]:
    chosen: dict[str, Column] = {}

    def pick(header: list[str], where: str) -> list[str]:
        for role, option in ROLES.items():
            asked = chosen[role]["name"] if role in chosen else getattr(options, option)
            if asked is not None or role in {"score", "outcome"}:
                found = find(role, asked, header, where)
                if role not in chosen and found["guessed"] and (others := rivals(role, found["name"], header)):
                    source.notes.append(f"The {role} was guessed to be in {found['name']!r}; there is also {others}.")
                chosen.setdefault(role, found)
        if chosen["score"]["name"] == chosen["outcome"]["name"]:
            raise InvalidInput(f"score and outcome must be two columns, got {chosen['score']['name']!r} for both")
        source.columns = chosen
        return list(dict.fromkeys(column["name"] for column in chosen.values()))

    def bad_row(where: str) -> None:  # pragma: no cover - called from a thread of Arrow, which coverage cannot see
        intake.rows += 1
        intake.skip("row has too many or too few fields", where)

    percent = options.score_kind == "percent"
    for number, file in enumerate(files):
        for part, rows in file.batches(pick, bad_row if options.skip_bad else None):
            columns = {role: part.column(column["name"]) for role, column in chosen.items()}
            with sentences(file.name):
                batch = batch_of(columns, file.name, rows, number, percent=percent)
            yield batch
            step(part.num_rows)


def _total(files: list[LogFile]) -> int | None:
    counts = [file.rows() for file in files]
    return None if None in counts else sum(count for count in counts if count is not None)


@contextmanager
def _progress(total: int | None, log: TextIO) -> Iterator[Callable[[int], None]]:
    """A bar with rate and time left on a terminal, nothing elsewhere."""
    bar: Any = None
    if log.isatty():
        try:
            from tqdm import tqdm
        except ImportError:
            pass
        else:
            bar = tqdm(total=total, file=log, unit=" rows", unit_scale=True, leave=False, desc="replaying")
    try:
        yield bar.update if bar is not None else lambda _: None
    finally:
        if bar is not None:
            bar.close()


__all__ = ["STDIN", "add_arguments", "run_command"]
