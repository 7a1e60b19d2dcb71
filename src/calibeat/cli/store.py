"""`calibeat store`: look at, check, back up, restore, replay, prune, export, import and upgrade a store."""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calibeat._util.progress import progress
from calibeat._util.words import counted, visible
from calibeat.backtest.options import Options
from calibeat.backtest.read.files import files_of, require_arrow
from calibeat.errors import InvalidInput
from calibeat.service import maintenance
from calibeat.service.settings import CONFIGURED, EngineSettings, setting_text
from calibeat.service.store import backup, is_store, restore, sqlite_path
from calibeat.service.transfer import export, export_bank, import_bank, is_bank_file
from calibeat.service.upgrade import upgrade

from .environment import add_store
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
from .serve import ARL, add_band, add_monitor, add_notice, seconds

if TYPE_CHECKING:
    from calibeat.service.transfer import Imported, Stage

CHECK_FAILED = 1
SHOWN = 20  # differences


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What can be typed behind `calibeat store`."""
    parser.description = (
        "Work on the store of a service: a path, sqlite:///PATH or postgresql://... Everything but replay without "
        "--check, configure, prune, import and restore may be done while a service runs. The service itself freezes, "
        "resets, renames and deletes streams and forgets events: POST /v1/streams/STREAM/freeze and so on."
    )
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    info = verbs.add_parser("info", help="the store in a few numbers")
    configure = verbs.add_parser("configure", help="change settings that belong to the store, or show them")
    check = verbs.add_parser("check", help="is it whole? exit status 1 if not")
    replay = verbs.add_parser("replay", help="make the state anew from the log, or compare it with --check")
    out = verbs.add_parser(
        "export", help="write the log as Parquet, which calibeat backtest reads, or the states as a bank file"
    )
    copied = verbs.add_parser("backup", help="write a copy of an SQLite store, also while a service writes to it")
    restored = verbs.add_parser("restore", help="put a backup in the place of an SQLite store that nobody serves")
    upgraded = verbs.add_parser("upgrade", help="make a new store of the log of another, also of one that is damaged")
    prune = verbs.add_parser("prune", help="delete settled events that are old; the state stays")
    taken = verbs.add_parser("import", help="put the events of a log into a store, or the states of a bank file")
    commands = {
        info: _info,
        configure: _configure,
        check: _check,
        replay: _replay,
        out: _export,
        copied: _backup,
        restored: _restore,
        upgraded: _upgrade,
        prune: _prune,
        taken: _import,
    }
    for verb, command in commands.items():
        add_store(verb, default="calibeat.db")
        verb.add_argument("--json", action="store_true", help="for programs")
        verb.set_defaults(verb=command)
    _add_settings(configure)
    replay.add_argument("--check", action="store_true", help="change nothing; exit status 1 if a bit differs")
    replay.add_argument("--method", metavar="NAME", help="move the store to this method")
    out.add_argument(
        "file", type=Path, metavar="FILE", help="the file to write: .parquet for the log, .bank for states"
    )
    copied.add_argument("file", type=Path, metavar="FILE", help="the file to write; it must be new")
    restored.add_argument("file", type=Path, metavar="FILE", help="the backup")
    upgraded.add_argument("target", metavar="NEW", help="the store to make: a path, sqlite:///PATH or postgresql://...")
    upgraded.add_argument("--salvage", action="store_true", help="leave out what cannot be read, and name it")
    prune.add_argument("--older", required=True, metavar="TIME", help="than this: 90d, 12h")
    taken.add_argument("file", metavar="FILE", help=f"a log: {LOG}; or a bank file, as written by Bank.save")
    taken.add_argument("--create", action="store_true", help="make the store if there is none")
    taken.add_argument("--method", metavar="NAME", help="of a new store (auto)")
    add_monitor(taken, f"watch every stream, as calibeat serve does ({ARL:,}; as the store was before)")
    add_notice(taken)
    add_band(taken)
    _add_columns(taken)


def _add_settings(parser: argparse.ArgumentParser) -> None:
    """The settings of a store. Each of them may be switched off."""
    parser.description = (
        "Settings that change what a store learns and watches belong to the store, so that all who serve it agree. "
        "Stop the service first. Without an option, the settings are shown."
    )
    add = parser.add_argument
    add("--method", metavar="NAME", help="another method: the state is made anew from the log")
    add("--monitor", metavar="N|off", help="watch every stream: mean outcomes between false alarms")
    add("--notice", metavar="on|off", help="notice silence, late outcomes and a score that has moved")
    add("--expire", metavar="AGE|off", help="give up forecasts without outcome at this age, such as 30d")
    add("--expire-as", metavar="0|1|off", help="and learn this outcome in its place")
    add("--mature", metavar="AGE|off", help="learn outcomes, ones and zeros, at this age")
    add("--band", metavar="on|off", help="forecasts say how sure they are; auto only")


OFF = "off"
_WANTED = {
    "monitor": "a number of outcomes, or off",
    "notice": "on or off",
    "expire_as": "0, 1 or off",
    "band": "on or off",
}


def _configured(name: str, text: str) -> Any:
    """A setting as it was typed."""
    if name in {"notice", "band"} and text in {"on", OFF}:
        return text == "on"
    if text == OFF:
        return None
    if name in {"expire", "mature"}:
        return seconds(name, text)
    try:
        return int(text) if name == "expire_as" else float(text if name == "monitor" else "")
    except ValueError:
        raise InvalidInput(f"--{name.replace('_', '-')} must be {_WANTED[name]}, got {text!r:.60}") from None


def _add_columns(parser: argparse.ArgumentParser) -> None:
    """How a log is read. The columns that export writes are found by their names."""
    columns = parser.add_argument_group(
        "columns of a log",
        "The stream is in 'stream' if not given. The others are guessed from common names, as calibeat backtest does "
        "it. The word none switches off the guess of a time or an id.",
    )
    columns.add_argument("--score", metavar="NAME", help="the score")
    add_outcome(columns)
    add_classes(columns)
    add_key(columns, "the stream of the event")
    columns.add_argument("--id", metavar="NAME", help="the id of the event")
    columns.add_argument("--id-prefix", metavar="NAME", help="make ids of the numbers of the rows: NAME-1, NAME-2, ...")
    add_times(
        columns,
        "when the score was issued; rows may be in any order (the time of the import)",
        "when the outcome was known: it is learnt then (right after its forecast)",
    )
    add_groups(columns)
    add_kinds(columns)
    add_skip_bad(columns)


def run(args: argparse.Namespace) -> int:
    """Run `calibeat store`."""
    try:
        return int(args.verb(args) or 0)
    except sqlite3.Error as error:
        raise InvalidInput(f"store must be readable, got: {error} - at {args.store}") from error


def _print(args: argparse.Namespace, found: dict[str, Any], lines: list[str]) -> None:
    print(json.dumps(found) if args.json else "\n".join(visible(line) for line in lines))


def _info(args: argparse.Namespace) -> None:
    found = maintenance.info(args.store)
    words = {name: setting_text(name, value) if name in CONFIGURED else value for name, value in found.items()}
    _print(args, found, [f"{name:22}{'-' if value is None else value}" for name, value in words.items()])


def _configure(args: argparse.Namespace) -> None:
    given = {name: text for name in CONFIGURED if (text := getattr(args, name)) is not None}
    changes = {name: _configured(name, text) for name, text in given.items()}
    with progress(None, sys.stderr, unit="operations") as step:
        found = maintenance.configure(args.store, step, method=args.method, **changes)
    known = {name: getattr(found, name) for name in ("method", "seed", *CONFIGURED)}
    lines = [f"{name.replace('_', ' '):12}{_setting(name, value)}" for name, value in known.items()]
    _print(args, known, lines)


def _setting(name: str, value: Any) -> str:
    return str(value) if name in {"method", "seed"} else setting_text(name, value)


def _check(args: argparse.Namespace) -> int:
    with progress(None, sys.stderr, unit="events") as step:
        problems = maintenance.check(args.store, step)
    lines = problems[:SHOWN] or ["whole: events, numbers, receipts, roll-ups and totals agree"]
    _print(args, {"whole": not problems, "problems": problems}, lines)
    return CHECK_FAILED if problems else 0


def _replay(args: argparse.Namespace) -> int:
    if args.check and args.method is not None:
        raise InvalidInput("--check must come without --method: it changes nothing, got both")
    with progress(None, sys.stderr, unit="operations") as step:
        if args.check:
            found = maintenance.replay_check(args.store, step)
        else:
            found = maintenance.rebuild(args.store, args.method, step)
    numbers = {"streams": found.streams, "forecasts": found.forecasts, "outcomes": found.outcomes}
    size = ", ".join(counted(count, name.removesuffix("s")) for name, count in numbers.items())
    if not args.check:
        text = f"replayed: {size}; {counted(found.corrected, 'correction')} applied; the state is made anew"
        _print(args, {**numbers, "corrections": found.corrected}, [text])
        return 0
    few = found.differences[:SHOWN]
    text = f"same: {size}, bit for bit" if found.is_same else f"{len(found.differences)} of {size} differ"
    _print(args, {**numbers, "same": found.is_same, "differences": found.differences}, [text, *few])
    return 0 if found.is_same else CHECK_FAILED


def _export(args: argparse.Namespace) -> None:
    if args.file.suffix.lower() == ".bank":
        count = export_bank(args.store, args.file)
        text = f"states of {counted(count, 'stream')} written to {args.file}"
        _print(args, {"streams": count, "file": str(args.file)}, [text])
        return
    if args.file.suffix.lower() != ".parquet":
        raise InvalidInput(f"file must end in .parquet (the log) or .bank (the states), got {str(args.file)!r}")
    with progress(None, sys.stderr, unit="events") as step:
        count = export(args.store, args.file, step)
    _print(args, {"events": count, "file": str(args.file)}, [f"{counted(count, 'event')} written to {args.file}"])


def _backup(args: argparse.Namespace) -> None:
    with progress(None, sys.stderr, unit="pages") as step:
        size = backup(args.store, args.file, step)
    _print(args, {"bytes": size, "file": str(args.file)}, [f"a copy of {size:,} bytes written to {args.file}"])


def _restore(args: argparse.Namespace) -> None:
    size = restore(args.store, args.file)
    _print(args, {"bytes": size, "store": args.store}, [f"{args.file} is the store now: {size:,} bytes"])


def _upgrade(args: argparse.Namespace) -> int:
    with progress(None, sys.stderr, unit="operations") as step:
        made = upgrade(args.store, args.target, step, salvage=args.salvage)
    text = f"{counted(made.operations, 'operation')} of {counted(made.streams, 'stream')} copied, all tables made anew"
    _print(args, asdict(made), [text, *(f"lost: {sentence}" for sentence in made.lost)])
    return CHECK_FAILED if made.lost else 0


def _prune(args: argparse.Namespace) -> None:
    older = seconds("--older", args.older)
    with progress(None, sys.stderr, unit="operations") as step:
        count = maintenance.prune(args.store, older, step=step)
    _print(args, {"deleted": count}, [f"{counted(count, 'event')} deleted"])


def _import(args: argparse.Namespace) -> None:
    if not args.create and not is_store(args.store):
        where = sqlite_path(args.store) or "PostgreSQL"
        raise InvalidInput(f"store must exist, got none - at {where}: --create makes one")
    if is_bank_file(Path(args.file)):
        count = import_bank(args.store, Path(args.file), args.method)
        _print(args, {"streams": count}, [f"states of {counted(count, 'stream')} imported"])
        return
    from calibeat.service.transfer import EventColumns, Stage, import_events  # with the readers of logs

    require_arrow()
    check_classes(args, ("score", "outcome", "positive", "groups"))
    roles = ("score", "outcome", "label", "key", "time", "outcome time", "id")
    asked = {role: getattr(args, role.replace(" ", "_")) for role in roles}
    columns = EventColumns(asked, blank_key=args.blank_key, prefix=args.id_prefix)
    options = Options(**reading(args))
    set_classes_and_groups(columns, args, options)
    files = files_of(args.file, delimiter(args.delimiter))
    with Stage() as stage:
        with progress(total_rows(files), sys.stderr, unit="rows") as step:
            stage.read(files, columns, options, args.stop.checked(step))
        with progress(stage.events + stage.outcomes, sys.stderr, unit="operations") as step:
            settings = EngineSettings(method=args.method, monitor=args.monitor, notice=args.notice, band=args.band)
            found = import_events(args.store, stage, settings, args.stop.checked(step))
    told = {"columns": stage.columns, "skipped": stage.skipped, "notes": stage.notes}
    _print(args, {**asdict(found), **told}, _imported(found, stage))


def _imported(found: Imported, stage: Stage) -> list[str]:
    """What an import has done, for people."""
    new = f"{counted(found.forecasts, 'new forecast')}, {counted(found.outcomes, 'new outcome')}"
    lines = [f"{counted(found.events, 'event')} imported: {new}; {stage.events - stage.outcomes:,} have no outcome yet"]
    if found.repeated:
        lines.append(f"{counted(found.repeated, 'event')} were in the store already, and have not changed")
    if found.expired:
        lines.append(f"{counted(found.expired, 'outcome')} came too late: the store has given up their forecasts")
    lines.append("columns: " + ", ".join(f"{role} in {name!r}" for role, name in stage.columns.items()))
    lines += [f"skipped {each['count']:,}: {each['reason']}, first at {each['first']}" for each in stage.skipped]
    return lines + stage.notes
