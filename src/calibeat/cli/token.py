"""`calibeat token create | list | revoke | open`: access to a service, to write or only to read."""

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import closing

from calibeat._util.words import counted, visible
from calibeat.errors import InvalidInput
from calibeat.service.store import Reader, is_store, open_reader, open_store, sqlite_path
from calibeat.service.tokens import SCOPES, hashed, new_token


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What can be typed behind `calibeat token`."""
    parser.description = (
        "Tokens are kept in the store, as hashes. A running service takes up a new one, and drops a revoked one, "
        "within two seconds. A store that had a token needs one for ever, also when all are revoked."
    )
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    create = verbs.add_parser("create", help="make a token and print it, this once")
    listing = verbs.add_parser("list", help="names, scopes and ages; never the tokens")
    revoke = verbs.add_parser("revoke", help="make a token invalid")
    opening = verbs.add_parser("open", help="remove all tokens, so that none is needed on loopback")
    for verb, command in ((create, _create), (listing, _list), (revoke, _revoke), (opening, _open)):
        verb.add_argument("--store", required=True, metavar="STORE", help="a path, sqlite:///... or postgresql://...")
        verb.set_defaults(verb=command)
    create.add_argument("--scope", choices=SCOPES, required=True, help="write may read, too")
    for verb in (create, revoke):
        verb.add_argument("--name", required=True, metavar="NAME", help="what the token is for, such as web-model")
    listing.add_argument("--json", action="store_true", help="for programs")
    opening.add_argument(
        "--yes-open-to-everybody", action="store_true", help="do it; without this it only says what it would do"
    )


def run(args: argparse.Namespace) -> None:
    """Run `calibeat token`."""
    args.verb(args)


def _reader(store: str) -> Reader:
    """The tables of a store. A new one is made, so that it has a token before it is served to other machines."""
    if not is_store(store):
        open_store(store).close()
        where = sqlite_path(store) or "PostgreSQL"
        print(f"calibeat made a new store: {where}", file=sys.stderr)  # the token stands alone on standard output
    return open_reader(store)


def _create(args: argparse.Namespace) -> None:
    if not args.name.strip() or not args.name.isprintable() or len(args.name) > 100:
        raise InvalidInput(f"name must be 1 to 100 printable characters, got {visible(args.name)!r}")
    token = new_token()
    with closing(_reader(args.store)) as reader:
        reader.tokens.add(args.name, args.scope, hashed(token).hex())
    print(token)


def _list(args: argparse.Namespace) -> None:
    with closing(open_reader(args.store)) as reader:
        found = reader.tokens.list()
    rows = [
        {"name": t.name, "scope": t.scope, "created": _day(t.created), "revoked": t.revoked and _day(t.revoked)}
        for t in found
    ]
    if args.json:
        print(json.dumps(rows))
        return
    for row in rows:
        ended = f"  revoked {row['revoked']}" if row["revoked"] else ""
        print(f"{row['name']}  {row['scope']}  {row['created']}{ended}")


def _revoke(args: argparse.Namespace) -> None:
    with closing(open_reader(args.store)) as reader:
        if not reader.tokens.revoke(args.name):
            raise InvalidInput(f"name must be that of a valid token, got {visible(args.name)!r}")
        others = [token for token in reader.tokens.list() if token.revoked is None]
    print(f"{args.name} is revoked")
    if not others:
        print(
            "it was the last valid token: nobody can connect now. "
            "`calibeat token create --store STORE --scope write --name NAME` makes a new one"
        )


def _open(args: argparse.Namespace) -> None:
    """Opening a store takes the command and its option, so that it is no accident."""
    with closing(open_reader(args.store)) as reader:
        found = reader.tokens.list()
        if not found:
            print("the store is open: it has no token")
            return
        if not args.yes_open_to_everybody:
            revoked = sum(token.revoked is not None for token in found)
            raise InvalidInput(
                "--yes-open-to-everybody must be given to open a store, got nothing: "
                f"it removes all tokens ({len(found) - revoked} valid and {revoked} revoked), and whoever reaches the "
                "service over loopback, also through a proxy, may then read and write without one"
            )
        removed = reader.tokens.clear()
    print(
        f"{counted(removed, 'token is', 'tokens are')} removed: a service that is started from now on asks for none. "
        "One that runs stays closed"
    )


def _day(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(seconds))
