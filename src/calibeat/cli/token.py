"""`calibeat token create | list | revoke`: access to a service, to write or only to read."""

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import closing

from calibeat._util.words import visible
from calibeat.cli.environment import add_store
from calibeat.cli.serve import seconds
from calibeat.errors import InvalidInput
from calibeat.service.patterns import check_pattern
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
    listing = verbs.add_parser("list", help="names, scopes and limits; never the tokens")
    revoke = verbs.add_parser("revoke", help="make a token invalid")
    for verb, command in ((create, _create), (listing, _list), (revoke, _revoke)):
        add_store(verb)
        verb.set_defaults(verb=command)
    create.add_argument("--scope", choices=SCOPES, required=True, help="write may read, too")
    create.add_argument(
        "--streams",
        action="append",
        default=[],
        metavar="PATTERN",
        help="only for these streams: a name, or 'paris/*' for names that begin so; may be given several times",
    )
    create.add_argument("--expire", metavar="AGE", help="invalid at this age, a time such as 12h or 90d")
    for verb in (create, revoke):
        verb.add_argument("--name", required=True, metavar="NAME", help="what the token is for, such as web-model")
    listing.add_argument("--json", action="store_true", help="for programs")


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
    streams = [check_pattern(pattern) for pattern in args.streams]
    expires = None if args.expire is None else time.time() + seconds("expire", args.expire)
    token = new_token()
    with closing(_reader(args.store)) as reader:
        reader.tokens.add(args.name, args.scope, hashed(token).hex(), streams, expires)
    print(token)


def _list(args: argparse.Namespace) -> None:
    with closing(open_reader(args.store)) as reader:
        found = reader.tokens.list()
    rows = [
        {
            "name": t.name,
            "scope": t.scope,
            "created": _day(t.created),
            "revoked": t.revoked and _day(t.revoked),
            "streams": list(t.streams) or None,
            "expires": t.expires and _day(t.expires),
        }
        for t in found
    ]
    if args.json:
        print(json.dumps(rows))
        return
    for token, row in zip(found, rows, strict=True):
        limits = {"streams": ", ".join(token.streams), "expires": row["expires"]}
        more = "".join(f"  {name} {value}" for name, value in limits.items() if value)
        ended = f"  revoked {row['revoked']}" if row["revoked"] else ""
        print(f"{row['name']}  {row['scope']}  {row['created']}{more}{ended}")


def _revoke(args: argparse.Namespace) -> None:
    with closing(open_reader(args.store)) as reader:
        if not reader.tokens.revoke(args.name):
            raise InvalidInput(f"name must be that of a valid token, got {visible(args.name)!r}")
        now = time.time()
        others = [t for t in reader.tokens.list() if t.revoked is None and (t.expires is None or now < t.expires)]
    print(f"{args.name} is revoked")
    if not others:
        print(
            "it was the last valid token: nobody can connect now. "
            "`calibeat token create --store STORE --scope write --name NAME` makes a new one"
        )


def _day(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(seconds))
