"""Reference pages of the command line, from its own parsers."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

from calibeat.cli import main as cli

from .pages import table, toctree, write

FOLDER = "reference/command-line"
UNTOLD = (argparse._SubParsersAction, argparse._HelpAction)
ABOUT = """# Command line

These pages are made from the parsers of the commands. `calibeat COMMAND --help` prints the same."""
STATUS = """| exit status | meaning |
|---|---|
| 0 | done |
| 1 | a check failed |
| 2 | bad input; a sentence says what |
| 130, 143 | stopped by Ctrl-C or by a signal |

Long work shows a progress bar on a terminal and is quiet in a pipe."""


def subcommands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str, argparse.ArgumentParser]]:
    """Name, summary and parser of each."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            summaries = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, sub in action.choices.items():
                yield name, summaries.get(name, ""), sub


def spelled(action: argparse.Action, formatter: argparse.HelpFormatter) -> str:
    """An option or an argument as it is typed."""
    if not action.option_strings:
        return f"`{formatter._format_args(action, action.dest)}`"
    value = "" if action.nargs == 0 else " " + formatter._format_args(action, action.dest.upper())
    return ", ".join(f"`{option}{value}`" for option in action.option_strings)


def meaning(action: argparse.Action, prog: str) -> str:
    """Its help with the default filled in."""
    text = argparse.HelpFormatter(prog=prog)._expand_help(action) if action.help else ""
    return re.sub(r"(?<![\\`])([<>*_])", r"\\\1", text)


def arguments(parser: argparse.ArgumentParser) -> list[str]:
    """A table for each group of arguments."""
    formatter = parser._get_formatter()
    parts = []
    for group in parser._action_groups:
        rows = [
            [spelled(action, formatter), meaning(action, parser.prog)]
            for action in group._group_actions
            if not isinstance(action, UNTOLD) and action.help is not argparse.SUPPRESS
        ]
        if rows:
            title = "Arguments" if group.title == "positional arguments" else (group.title or "").capitalize()
            parts += [f"**{title}**", group.description or "", table(["what to type", "meaning"], rows)]
    return parts


def described(parser: argparse.ArgumentParser, summary: str, level: int) -> list[str]:
    """A command, and below it its own commands."""
    usage = re.sub(r"\x1b\[[0-9;]*m", "", parser.format_usage()).removeprefix("usage: ").rstrip()
    parts = [f"{'#' * level} {parser.prog}"]
    parts += [f"{summary[:1].upper()}{summary[1:]}."] if summary else []
    parts += [parser.description or "", f"```text\n{usage}\n```", *arguments(parser)]
    if parser.epilog:
        parts.append(f"```text\n{parser.epilog.strip() % {'prog': parser.prog}}\n```")
    for _, about, sub in subcommands(parser):
        parts += described(sub, about, level + 1)
    return parts


def generate() -> None:
    """A page for each command, and the list of them."""
    rows, names = [], []
    for name, summary, parser in subcommands(cli.parser()):
        write(f"{FOLDER}/{name}.md", "\n\n".join(part for part in described(parser, summary, 1) if part))
        rows.append([f"[`calibeat {name}`]({name}.md)", summary])
        names.append(name)
    commands = table(["command", "what it does"], rows)
    write(f"{FOLDER}/index.md", "\n\n".join([ABOUT, commands, STATUS, toctree(names, "hidden")]))
