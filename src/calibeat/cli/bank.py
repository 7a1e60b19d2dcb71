"""What the command line shows of a bank file: `calibeat bank info`, `show` and `top`."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from calibeat._util.check import said
from calibeat.bank.bank import Bank
from calibeat.bank.keys import Key
from calibeat.core.presets import name_of
from calibeat.errors import InvalidInput

# Name -> (column, column to take off, largest first).
ORDERS: dict[str, tuple[str, str | None, bool]] = {
    "log-loss-gain": ("raw_log_loss", "log_loss", True),
    "brier-gain": ("raw_brier", "brier", True),
    "log-loss": ("log_loss", None, True),
    "brier": ("brier", None, True),
    "events": ("events", None, True),
    "idle": ("idle", None, True),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What can be typed behind `calibeat bank`."""
    parser.description = "Look into a file written by Bank.save; it is read where it lies, so its size does not matter."
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    info = verbs.add_parser("info", help="what the bank is, and what it was worth over all keys")
    show = verbs.add_parser("show", help="everything about one key")
    top = verbs.add_parser("top", help="the keys that stand out")
    for verb, command in ((info, _info), (show, _show), (top, _top)):
        verb.add_argument("file", type=Path, metavar="FILE", help="a bank file")
        verb.add_argument("--json", action="store_true", help="for programs")
        verb.set_defaults(verb=command)
    show.add_argument("key", metavar="KEY", help="as a number where the keys of the bank are numbers")
    top.add_argument("--by", choices=sorted(ORDERS), default="log-loss-gain", help="what to order by (%(default)s)")
    top.add_argument("-n", "--rows", type=int, default=10, metavar="N", help="how many keys (%(default)s)")
    top.add_argument("--ascending", action="store_true", help="the smallest first")
    top.add_argument(
        "--least", type=int, default=1, metavar="N", help="only keys with so many outcomes or more (%(default)s)"
    )


def run(args: argparse.Namespace) -> None:
    """Run `calibeat bank`."""
    args.verb(args)


def summary(bank: Bank, path: Path) -> dict[str, Any]:
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
    table = bank.table()
    outcomes = table["outcomes"]
    size = path.stat().st_size
    better = table["log_loss"] < table["raw_log_loss"]
    return {
        "file": str(path),
        "method": name_of(bank.method) or str(bank.method),
        "seed": bank._seed,
        "prior": bank._prior,
        "independent draws": bank._independent,
        "keys": len(bank),
        "kind of keys": bank._store.kind,
        "events": int(table["events"].sum()),
        "outcomes": int(outcomes.sum()),
        "bytes": size,
        "bytes per key": round(size / len(bank), 1) if len(bank) else None,
        **{name.replace("_", " ").replace("log loss", "log-loss"): _mean(table[name], outcomes) for name in _LOSSES},
        "keys with less log-loss than raw": int(better.sum()),
    }


_LOSSES = ("raw_log_loss", "log_loss", "raw_brier", "brier")


def _mean(losses: Any, outcomes: Any) -> float | None:
    total = int(outcomes.sum())
    return float(np.nansum(losses * outcomes) / total) if total else None


def _info(options: argparse.Namespace) -> None:
    found = summary(Bank.load(options.file, mmap=True), options.file)
    _print(found, as_json=options.json)


def _show(options: argparse.Namespace) -> None:
    bank = Bank.load(options.file, mmap=True)
    key: Key = _int(options.key) if bank._store.kind == "ints" else options.key
    slot = bank._slot(key)
    if slot < 0:
        raise InvalidInput(f"key must be one of the {len(bank)} keys of {options.file}, got {said(key)}")
    one = bank._store.selected(np.arange(len(bank)) == slot)  # not a table of millions
    found = {name: _plain(column[0]) for name, column in one.table(bank._clock).items()}
    _print(found, as_json=options.json)


def _top(options: argparse.Namespace) -> None:
    bank = Bank.load(options.file, mmap=True)
    table = bank.table()
    column, taken, largest_first = ORDERS[options.by]
    values = table[column] - table[taken] if taken else table[column].astype(np.float64)
    chosen = np.flatnonzero((table["outcomes"] >= options.least) & np.isfinite(values))
    order = chosen[np.argsort(values[chosen], kind="stable")]
    if largest_first != options.ascending:
        order = order[::-1]
    names = ("key", "events", "outcomes", *_LOSSES)
    found = [
        {options.by: float(values[slot]), **{name: _plain(table[name][slot]) for name in names}}
        for slot in order[: max(0, options.rows)]
    ]
    if options.json:
        print(json.dumps(found))
        return
    head = list(dict.fromkeys((*names, options.by)))
    cells = [[_said(row[name], as_it_is=name == "key") for name in head] for row in found]
    widths = [max(len(line[i]) for line in (head, *cells)) for i in range(len(head))]
    for line in (head, *cells):
        pairs = zip(line, widths, strict=True)
        print("  ".join(cell.rjust(width) if i else cell.ljust(width) for i, (cell, width) in enumerate(pairs)))


def _print(found: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(found))
        return
    width = max(map(len, found))
    for name, value in found.items():
        print(f"{name.ljust(width)}  {_said(value, as_it_is=name in ('key', 'seed'))}")


def _plain(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _said(value: Any, *, as_it_is: bool = False) -> str:
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
