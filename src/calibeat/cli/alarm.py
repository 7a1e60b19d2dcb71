"""`calibeat alarm list | acknowledge | mute | unmute`: what the monitors of a service have found, and who is told."""

from __future__ import annotations

import argparse
import getpass
import json
import time
from contextlib import closing
from dataclasses import asdict

from calibeat._util.words import counted, visible
from calibeat.cli.environment import add_store
from calibeat.cli.serve import seconds
from calibeat.errors import InvalidInput
from calibeat.service.alarms import acknowledge, grouped, mute, mutes, unmute
from calibeat.service.store import is_store, open_reader, without_password
from calibeat.service.store.queries import Reader


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What can be typed behind `calibeat alarm`."""
    parser.description = (
        "Alarms that were raised within a minute are one group. A group is open until its streams have been quiet for "
        "1,000 outcomes. A service may run meanwhile."
    )
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    listing = verbs.add_parser("list", help="the latest alarms by group, and what is muted")
    looking = verbs.add_parser("acknowledge", help="look after the open alarms of some streams: no follow-ups are sent")
    muting = verbs.add_parser("mute", help="send no alarms of some streams; they are stored and shown all the same")
    unmuting = verbs.add_parser("unmute", help="send them again")
    commands = ((listing, _list), (looking, _acknowledge), (muting, _mute), (unmuting, _unmute))
    for verb, command in commands:
        add_store(verb)
        verb.set_defaults(verb=command)
    for verb in (looking, muting, unmuting):
        verb.add_argument("streams", metavar="STREAMS", help="a name, or 'paris/*' for names that begin so")
    listing.add_argument("--open", action="store_true", help="only those that are open")
    listing.add_argument("--stream", metavar="NAME", help="only of this stream")
    listing.add_argument("--limit", type=int, default=100, metavar="N", help="alarms at most (%(default)s)")
    listing.add_argument("--json", action="store_true", help="for programs")
    muting.add_argument("--for", dest="age", metavar="AGE", help="a time such as 12h or 30d; without one, until unmute")


def run(args: argparse.Namespace) -> None:
    """Run `calibeat alarm`."""
    if not is_store(args.store):
        raise InvalidInput(f"store must exist, got none - at {visible(without_password(args.store))}")
    with closing(open_reader(args.store)) as reader:
        args.verb(args, reader)


def _list(args: argparse.Namespace, reader: Reader) -> None:
    found = reader.alarms(args.limit, args.stream, True if args.open else None)
    muted = mutes(reader.select)
    if args.json:
        groups = [asdict(group) for group in grouped(found)]
        alarms = [asdict(alarm) for alarm in found]
        print(json.dumps({"groups": groups, "alarms": alarms, "mutes": [asdict(each) for each in muted]}))
        return
    for group in grouped(found):
        state = "over" if group.ended is not None else "acknowledged" if group.acknowledged else "open"
        print(f"{_moment(group.time)}  {state}  {'page' if group.page else 'follow-up'}  {group.text}")
    if not found:
        print("no alarms")
    for each in muted:
        print(f"muted: {each.streams}" + ("" if each.until is None else f" until {_moment(each.until)}"))


def _acknowledge(args: argparse.Namespace, reader: Reader) -> None:
    done = reader.change(lambda connection: acknowledge(connection, args.streams, getpass.getuser()))
    print(f"{counted(done, 'alarm')} acknowledged")


def _mute(args: argparse.Namespace, reader: Reader) -> None:
    length = None if args.age is None else seconds("for", args.age)
    made = reader.change(lambda connection: mute(connection, args.streams, length))
    print(f"{made.streams} is muted" + ("" if made.until is None else f" until {_moment(made.until)}"))


def _unmute(args: argparse.Namespace, reader: Reader) -> None:
    if not reader.change(lambda connection: unmute(connection, args.streams)):
        raise InvalidInput(f"streams must be muted, got {visible(args.streams)!r}, which are not")
    print(f"alarms of {args.streams} are sent again")


def _moment(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(at))
