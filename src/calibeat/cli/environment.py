"""Options that may come from the environment, so that a password is in no list of processes."""

from __future__ import annotations

import argparse
import os
from typing import Any

from calibeat._util.words import visible
from calibeat.errors import InvalidInput

PREFIX = "CALIBEAT_"
SWITCHES = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


def add_store(parser: Any, *, default: str | None = None) -> None:
    """Add `--store`, which `CALIBEAT_STORE` may give."""
    what = "a path, sqlite:///... or postgresql://..." + (f" ({default})" if default else "")
    required = default is None
    from_environment(parser.add_argument("--store", required=required, default=default, metavar="STORE", help=what))


def from_environment(option: argparse.Action) -> None:
    """Take the value of an option from `CALIBEAT_NAME`, unless it is typed; its help says so.

    Raises
    ------
    InvalidInput : the variable has a value that the option does not take.
    """
    name = PREFIX + option.dest.upper()
    option.help = f"{option.help} [{name}]"
    text = os.environ.get(name, "")
    if text:
        option.default, option.required = _value(option, name, text), False


def _value(option: argparse.Action, name: str, text: str) -> Any:
    if option.nargs == 0:
        if text.lower() not in SWITCHES:
            raise InvalidInput(f"{name} must be 1 or 0, got {visible(text)!r:.60}")
        return SWITCHES[text.lower()]
    try:
        value = option.type(text) if callable(option.type) else text
    except ValueError:
        raise InvalidInput(f"{name} must be a number, got {visible(text)!r:.60}") from None
    if option.choices is not None and value not in option.choices:
        raise InvalidInput(f"{name} must be one of {', '.join(map(str, option.choices))}, got {visible(text)!r:.60}")
    return value
