"""What the command line shows of a bank file: `calibeat bank info`, `show` and `top`."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from calibeat._util.check import shown
from calibeat._util.words import counted, visible
from calibeat.core.method import name_of
from calibeat.errors import InvalidInput, SnapshotMismatch, UnknownKey
from calibeat.hosts.bank import Bank
from calibeat.hosts.bankfile import holds_classes
from calibeat.hosts.keys import Key
from calibeat.hosts.multi import MultiBank

# Name -> column, and the column to subtract. The largest comes first.
ORDERS: dict[str, tuple[str, str | None]] = {
    "log-loss-gain": ("raw_log_loss", "log_loss"),
    "brier-gain": ("raw_brier", "brier"),
    **{name: (name.replace("-", "_"), None) for name in ("log-loss", "brier", "events", "idle")},
}

FEW_OUTCOMES = 30  # outcomes: a mean over fewer says little


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What can be typed behind `calibeat bank`."""
    parser.description = (
        "Look into a file written by Bank.save. It is read where it lies: of a large file only what is shown. "
        "Its checksums, rows and keys are checked with --verify only, which reads all of it."
    )
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    info = verbs.add_parser("info", help="what the bank is, and what it was worth over all keys")
    show = verbs.add_parser("show", help="everything about one key")
    top = verbs.add_parser("top", help="the keys that stand out")
    for verb, command in ((info, _info), (show, _show), (top, _top)):
        verb.add_argument("file", type=Path, metavar="FILE", help="a bank file")
        verb.add_argument("--json", action="store_true", help="for programs")
        verb.add_argument("--verify", action="store_true", help="read and check the whole file first")
        verb.set_defaults(verb=command)
    show.add_argument("key", metavar="KEY", help="as a number where the keys of the bank are numbers")
    top.add_argument("--by", choices=sorted(ORDERS), default="log-loss-gain", help="what to order by (%(default)s)")
    top.add_argument("-n", "--rows", type=int, default=10, metavar="N", help="how many keys (%(default)s)")
    top.add_argument("--ascending", action="store_true", help="the smallest first")
    top.add_argument(
        "--least", type=int, default=1, metavar="N", help="only keys with so many outcomes or more (%(default)s)"
    )
    top.add_argument(
        "--few", type=int, default=FEW_OUTCOMES, metavar="N", help="keys with fewer outcomes come last (%(default)s)"
    )


def run(args: argparse.Namespace) -> None:
    """Run `calibeat bank`."""
    args.verb(args)


def summary(bank: Bank, path: Path, *, verified: bool = False) -> dict[str, Any]:
    """The bank in a few numbers; losses are means over all outcomes of all keys.

    >>> import tempfile
    >>> bank = Bank("ops")
    >>> p = bank.run(["a", "b", "a"], [0.9, 0.9, 0.9], [0, 0, 1])
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     bank.save(file.name)
    ...     found = summary(bank, Path(file.name))
    >>> found["keys"], found["outcomes"], round(found["raw log-loss"], 4), round(found["log-loss"], 4)
    (2, 3, 1.5702, 1.5912)
    """
    table = bank.table
    outcomes = table["outcomes"]
    size = path.stat().st_size
    better = table["log_loss"] < table["raw_log_loss"]
    return {
        "file": str(path),
        "method": name_of(bank.method) or str(bank.method),
        **({"classes": len(bank.classes)} if isinstance(bank, MultiBank) else {}),
        "seed": bank.seed,
        "prior": bank.prior,
        "keys": len(bank),
        "kind of keys": bank.kind,
        "events": int(table["events"].sum()),
        "outcomes": int(outcomes.sum()),
        "bytes": size,
        "checked": "all" if verified else "header and length (--verify: all)",
        "bytes per key": round(size / len(bank), 1) if len(bank) else None,
        **{name.replace("_", " ").replace("log loss", "log-loss"): _mean(table[name], outcomes) for name in _LOSSES},
        "keys with less log-loss than raw": int(better.sum()),
    }


_LOSSES = ("raw_log_loss", "log_loss", "raw_brier", "brier")


def _mean(losses: Any, outcomes: Any) -> float | None:
    total = int(outcomes.sum())
    return float(np.nansum(losses * outcomes) / total) if total else None


def _open(options: argparse.Namespace) -> Bank:
    """The bank of the file, or a sentence."""
    path = options.file
    try:
        kind = MultiBank if holds_classes(path) else Bank
        return kind.load(path, mmap=True, verify=options.verify)
    except FileNotFoundError:
        raise InvalidInput(f"file must be a bank file, got {visible(path)}, which does not exist") from None
    except OSError as error:
        why = (error.strerror or "no reason given").lower()
        raise InvalidInput(f"file must be a bank file that can be read, got {visible(path)}: {why}") from None


def _info(options: argparse.Namespace) -> None:
    found = summary(_open(options), options.file, verified=options.verify)
    _print(found, as_json=options.json)


def _show(options: argparse.Namespace) -> None:
    bank = _open(options)
    key: Key = _int(options.key) if bank.kind == "ints" else options.key
    try:
        found = {name: _plain(column[0]) for name, column in bank.table_of([key]).items()}
    except UnknownKey:
        raise InvalidInput(f"key must be one of the {len(bank)} keys of {options.file}, got {shown(key)}") from None
    except (IndexError, UnicodeDecodeError) as error:
        raise SnapshotMismatch(
            f"bank file must find its keys, got {error} - in {options.file}, try --verify"
        ) from error
    _print(found, as_json=options.json)


def _top(options: argparse.Namespace) -> None:
    table = _open(options).table
    column, taken = ORDERS[options.by]
    values = table[column] - table[taken] if taken else table[column].astype(np.float64)
    chosen = np.flatnonzero((table["outcomes"] >= options.least) & np.isfinite(values))
    order = chosen[np.argsort(values[chosen], kind="stable")]
    if not options.ascending:
        order = order[::-1]
    few = table["outcomes"][order] < options.few
    order = np.concatenate([order[~few], order[few]])[: max(0, options.rows)]
    names = ("key", "events", "outcomes", *_LOSSES)
    found = [{options.by: float(values[slot]), **{name: _plain(table[name][slot]) for name in names}} for slot in order]
    if options.json:
        print(json.dumps(found))
        return
    head = list(dict.fromkeys((*names, options.by)))
    cells = [[_cell(row[name], as_it_is=name == "key") for name in head] for row in found]
    widths = [max(len(line[i]) for line in (head, *cells)) for i in range(len(head))]
    for line in (head, *cells):
        pairs = zip(line, widths, strict=True)
        print("  ".join(cell.rjust(width) if i else cell.ljust(width) for i, (cell, width) in enumerate(pairs)))
    if few.any():
        verbs = ("have", "come") if few.sum() > 1 else ("has", "comes")
        print(f"{counted(int(few.sum()), 'key')} {verbs[0]} fewer than {options.few} outcomes and {verbs[1]} last.")


def _print(found: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(found))
        return
    width = max(map(len, found))
    for name, value in found.items():
        print(f"{name.ljust(width)}  {_cell(value, as_it_is=name in ('key', 'seed'))}")


def _plain(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _cell(value: Any, *, as_it_is: bool = False) -> str:
    """A value for people; a key so that it can be typed again, and so that it does nothing to the terminal."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if as_it_is or isinstance(value, str):
        return str(value) if str(value).isprintable() else repr(value)
    return f"{value:.4f}" if isinstance(value, float) else f"{value:,}"


def _int(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidInput(f"key must be a whole number, as all keys of this bank are, got {text!r}") from None
