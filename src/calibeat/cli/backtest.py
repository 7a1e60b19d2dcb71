"""`calibeat backtest LOG`: replay a log on disk through many methods; print a verdict and a table, write a page."""

from __future__ import annotations

import argparse
import fnmatch
import shlex
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, TextIO

import numpy as np

from calibeat._util.progress import progress
from calibeat._util.types import Ints, Vector
from calibeat._util.words import visible
from calibeat.backtest.options import Options
from calibeat.backtest.read.files import (
    OURS,
    STDIN,
    Columns,
    LogFile,
    by_suffix,
    files_of,
    offered,
    read_log,
    require_arrow,
)
from calibeat.backtest.read.rows import Chunk, RowReader
from calibeat.backtest.replay.contenders import DEFAULT
from calibeat.backtest.result import BacktestResult
from calibeat.backtest.run import LogInfo, offer
from calibeat.backtest.run import run as replay
from calibeat.errors import InvalidInput
from calibeat.report.page import html
from calibeat.report.text import page
from calibeat.rivals import READY

from .logs import (
    LOG,
    add_classes,
    add_groups,
    add_key,
    add_kinds,
    add_outcome,
    add_skip_bad,
    add_times,
    check_classes,
    delimiter,
    reading,
    set_classes_and_groups,
    total_rows,
)
from .stop import check_place, outputs

DESCRIPTION = """\
Replay a log of scores and outcomes through many methods exactly as production would have: every forecast is made before
its outcome is known, and all methods are scored on the same events. Prints which method to use, what it buys and how
sure that is."""

EPILOG = """\
examples:
  calibeat backtest log.csv
  calibeat backtest 'logs/*.parquet' --score p --outcome clicked --time at --report report.html
  calibeat backtest log.csv --time at --outcome-time known_at --key country --out forecasts.parquet
  calibeat backtest log.jsonl --score p_old --score p_new --rival p_platt --methods auto,ops,isotonic
  calibeat backtest log.parquet --groups 'country,device,hour(at)' --report report.html
  calibeat backtest log.parquet --scores 'p_*' --label y --report report.html
  calibeat backtest --store calibeat.db
  zcat log.csv.gz | calibeat backtest - --delay 500 --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What can be typed behind `calibeat backtest`."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("log", metavar="LOG", nargs="?", help=LOG)
    parser.add_argument(
        "--store", metavar="STORE", help="in the place of LOG: the store of a service; the key is the stream"
    )
    columns = parser.add_argument_group(
        "columns",
        "Each is guessed from common names if not given, except the key. The guess is reported. "
        "The word none switches off the guess of a time or an id.",
    )
    columns.add_argument(
        "--score", metavar="NAME", action="append", help="the score; again for each further model to compare"
    )
    add_outcome(columns)
    columns.add_argument(
        "--rival", metavar="NAME", action="append", help="forecasts of another method, to be judged beside ours"
    )
    add_classes(columns)
    add_key(columns, "the stream: each key gets parameters of its own")
    add_times(
        columns,
        "when the score was issued; the log must be in this order",
        "when the outcome was known: it is learnt then, not before",
    )
    add_groups(columns)
    columns.add_argument("--id", metavar="NAME", help="the event's id, to find duplicates; all are kept in memory")
    add_kinds(columns)
    how = parser.add_argument_group("the replay")
    how.add_argument(
        "--methods", metavar="NAMES", help=f"presets, {', '.join(READY)}, between commas ({','.join(DEFAULT)})"
    )
    how.add_argument("--delay", metavar="N|TIME", help="outcomes arrive N events late, or 30min, 2h, 7d late (0)")
    how.add_argument(
        "--mature", metavar="N|TIME", help="outcomes are learnt at this age, ones and zeros alike: N events, 30min, 7d"
    )
    how.add_argument(
        "--warmup", type=int, metavar="N", help="first outcomes that are not scored (1000, or 5 %% of a short log)"
    )
    how.add_argument("--split", metavar="DATE", help="also judge the time before it and the time from it on apart")
    how.add_argument("--bins", type=int, default=10, metavar="M", help="of the calibration error (%(default)s)")
    how.add_argument("--seed", type=int, default=0, metavar="N", help="for methods that draw (%(default)s)")
    how.add_argument("--sort", action="store_true", help="put the log in the order of --time, in memory")
    add_skip_bad(how)
    act = parser.add_argument_group("decisions", "What calibrated forecasts change in actions and cost.")
    act.add_argument("--threshold", type=float, metavar="T", help="act where the forecast is at least T")
    act.add_argument("--cost-fp", type=float, metavar="C", help="what an action for nothing costs; with --cost-fn")
    act.add_argument("--cost-fn", type=float, metavar="C", help="what a missed event costs; T is FP / (FP + FN)")
    out = parser.add_argument_group("what comes out")
    out.add_argument(
        "--report", type=Path, metavar="FILE.html", help="write the report: one page that needs nothing else"
    )
    out.add_argument("--out", type=Path, metavar="FILE.parquet", help="write every method's forecast of every event")
    out.add_argument("--json", action="store_true", help="print the result as JSON and nothing else")


def run(args: argparse.Namespace, to: TextIO | None = None, log: TextIO | None = None) -> None:
    """Run `calibeat backtest`."""
    to, log = to or sys.stdout, log or sys.stderr
    require_arrow()
    _check(args)
    files = files_of(args.log, delimiter(args.delimiter)) if args.store is None else _store(args)
    first = visible(Path(files[0].name).name)
    options = Options(
        methods=args.methods,
        bins=args.bins,
        warmup=args.warmup,
        delay=args.delay or 0,
        mature=args.mature,
        split=args.split,
        sort=args.sort,
        seed=args.seed,
        threshold=args.threshold,
        cost_fp=args.cost_fp,
        cost_fn=args.cost_fn,
        title=f"Backtest of {first}" + (f" and {len(files) - 1} more" if len(files) > 1 else ""),
        **reading(args),
    )
    scores = args.score or [None]
    others = {f"score {at}": name for at, name in enumerate(scores[1:], 2)}
    others |= {f"rival {at}": name for at, name in enumerate(args.rival or [], 1)}
    named = {
        "score": scores[0],
        "outcome": args.outcome,
        "label": args.label,
        "key": args.key,
        "time": args.time,
        "outcome time": args.outcome_time,
        "id": args.id,
        **others,
    }
    columns = Columns(named, delayed=args.delay is not None)
    set_classes_and_groups(columns, args, options)
    targets = {option: path for option, path in (("--report", args.report), ("--out", args.out)) if path is not None}
    _check_targets(args.log or args.store, files, targets)
    made = {path: not path.parent.exists() for path in targets.values()}
    result = _replayed(args, files, columns, options, log, targets=list(targets.values()), others=others)
    if args.json:
        to.write(result.to_json() + "\n")
        return
    to.write(page(result.payload))
    for written in targets.values():
        to.write(f"Written: {visible(written.resolve())}{' (in a new folder)' if made[written] else ''}\n")


def _replayed(
    args: argparse.Namespace,
    files: list[LogFile],
    columns: Columns,
    options: Options,
    log: TextIO,
    *,
    targets: list[Path],
    others: dict[str, str],
) -> BacktestResult:
    """Replay the files and write what was asked for: all of it, or nothing."""
    reader = RowReader(options, trace=args.out is not None, classes=columns.classes, groups=columns.groups)
    source = LogInfo(
        options.title,
        [file.name for file in files],
        score_kind=options.score_kind,
        columns=columns,
        command=getattr(args, "typed", None),
    )
    paths = [file.name if file.path == STDIN else file.path for file in files]
    keyed = args.key is not None
    with outputs(targets, args.stop) as opened, ExitStack() as stack:
        forecasts = None
        if args.out:
            forecasts = stack.enter_context(Forecasts(opened[args.out], reader.names, paths, keyed=keyed))
        with progress(total_rows(files), log, unit="rows") as step:
            on_forecasts = forecasts.write if forecasts else None
            read = args.stop.checked(step)
            batches = read_log(files, columns, options, reader, read)
            payload = replay(batches, source, reader, keyed=keyed, others=others, on_forecasts=on_forecasts)
        if columns.groups is None and columns.classes is None and (found := offered(files, columns)):
            payload["offered"] = offer(found, options)
        args.stop.check()
        if args.report:
            opened[args.report].write(html(payload).encode())
    return BacktestResult(payload)


def _store(args: argparse.Namespace) -> list[LogFile]:
    """The store as the only file of the log; its columns have fixed names."""
    from calibeat.service.transfer import StoreLog  # with the service's libraries, which other logs do not need

    args.key = args.key or "stream"
    found: Any = StoreLog(args.store)  # it does what a LogFile does
    words = shlex.split(getattr(args, "typed", ""))
    args.typed = shlex.join([word.replace(args.store, found.path) for word in words])  # no password in a report
    return [found]


# What a replay of many classes knows nothing of.
_BINARY = ("score", "outcome", "rival", "groups", "positive", "threshold", "cost_fp", "cost_fn", "store")


def _check(args: argparse.Namespace) -> None:
    """What can be known to be wrong before the work."""
    if (args.log is None) == (args.store is None):
        raise InvalidInput(f"LOG or --store must be given, got {'both' if args.log else 'neither'}")
    if args.outcome_time is not None and args.delay is not None and args.delay != "0":
        raise InvalidInput("--delay must not be given where --outcome-time says when outcomes arrived, got both")
    if args.out and args.out.suffix.lower() != ".parquet":
        raise InvalidInput(f"--out must end in .parquet, got {str(args.out)!r}")
    check_classes(args, _BINARY)


# ---- outputs --------------------------------------------------------------------------------------------------------


def _check_targets(log: str, files: Sequence[LogFile], targets: dict[str, Path]) -> None:
    """Refuse, before anything runs, what could not be written, or would be written over the log or each other."""
    for option, path in targets.items():
        check_place(option, path)
        for file in files:
            if file.path != STDIN and _same(path, Path(file.path)):
                raise InvalidInput(f"{option} must not be the log itself, got {str(path)!r}")
        if log != STDIN and _would_match(path, log):
            raise InvalidInput(
                f"{option} must not be among the files of the log, got {str(path)!r}: the next run would read it"
            )
    if len(targets) == 2 and _same(*targets.values()):
        raise InvalidInput(
            f"{' and '.join(targets)} must be two files, got {str(next(iter(targets.values())))!r} twice"
        )
    report = targets.get("--report")
    if report is not None and report.suffix.lower() not in {".html", ".htm"}:
        raise InvalidInput(f"--report must end in .html, got {str(report)!r}: it is a page for a browser")


def _same(one: Path, other: Path) -> bool:
    if one.exists() and other.exists():
        return one.samefile(other)
    return one.resolve() == other.resolve()


def _would_match(path: Path, log: str) -> bool:
    whole = path.resolve()
    if Path(log).is_dir():
        return by_suffix(path.name) is not None and whole.is_relative_to(Path(log).resolve())
    if Path(log).exists():
        return False
    pattern = str(Path(log).absolute())
    return fnmatch.fnmatch(str(whole), pattern) if "**" in log else whole.match(pattern)


class Forecasts:
    """Every forecast, written to a Parquet file, which is whole when the block has ended."""

    def __init__(self, file: IO[bytes], streams: list[str], sources: list[str], *, keyed: bool) -> None:
        self._file, self._streams, self._sources, self._keyed = file, streams, sources, keyed
        self._writer: Any = None
        self._event = 0

    def __enter__(self) -> Forecasts:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def write(self, chunk: Chunk, forecasts: dict[str, Vector], place: Ints) -> None:
        """One chunk: `row` and `file` (and `id`) find an event in the log, `event` counts them as replayed."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns: dict[str, Any] = {"event": np.arange(self._event, self._event + len(chunk))}
        if chunk.trace is not None:
            columns["row"] = chunk.trace.rows
            columns["file"] = pa.array(self._sources, pa.string()).take(pa.array(chunk.trace.files))
            if chunk.trace.ids is not None:
                columns["id"] = pa.array(chunk.trace.ids.tolist(), pa.string())
        if self._keyed:
            columns["key"] = pa.array(self._streams, pa.string()).take(pa.array(chunk.slots))
        if chunk.times is not None:
            columns["time"] = pa.array(chunk.times).cast(pa.timestamp("us"))
        many = chunk.scores.ndim == 2
        columns["score"] = _lists(chunk.scores)
        columns["outcome"] = pa.array(chunk.outcomes, from_pandas=True).cast(pa.int32() if many else pa.int8())
        columns["judged"] = place > 0
        columns |= {f"forecast_{name.replace(',', '')}": _lists(values) for name, values in forecasts.items()}
        table = pa.table(columns).replace_schema_metadata({OURS: b"forecasts"})
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._file, table.schema, compression="zstd")
        self._writer.write_table(table)
        self._event += len(chunk)


def _lists(values: Vector) -> Any:
    """A column; of a matrix, a column of lists."""
    import pyarrow as pa

    if values.ndim == 1:
        return values
    return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])
