"""docs/service.md shows what a service really answers."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from dataclasses import replace
from pathlib import Path

import httpx
from served import service_here

from calibeat.cli.main import parser
from calibeat.service.events import LONGEST_NAME
from calibeat.service.openapi import document
from calibeat.service.settings import EngineSettings
from calibeat.service.wire import DEFAULT_LIMITS

PAGE = (Path(__file__).parents[2] / "docs" / "service.md").read_text()
ADDRESS = "http://127.0.0.1:8377"


def test_the_commands_and_the_program_of_the_page_do_what_it_shows(tmp_path: Path) -> None:
    shown = re.findall(r"^\$ (curl .*)\n(\{.*)$", PAGE, re.MULTILINE)
    assert len(shown) == 14
    program, expected = re.search(r"```python\n(.*?)```\n```text\n(.*?)```", PAGE, re.DOTALL).groups()  # type: ignore[union-attr]
    settings = EngineSettings(method="auto")
    with (
        service_here(tmp_path / "calibeat.db", settings=settings) as url,
        service_here(tmp_path / "band.db", settings=replace(settings, band=True)) as with_band,
    ):
        with httpx.Client() as http:
            for command, answer in shown:
                *options, body, address = shlex.split(command)[2:]
                assert options in (["--json"], ["-X", "PUT", "--json"])
                found = http.request(
                    "POST" if options == ["--json"] else "PUT",
                    address.replace(ADDRESS, with_band if '"low"' in answer else url),
                    content=body,
                    headers={"content-type": "application/json"},
                )
                assert found.text == answer
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(program.replace(ADDRESS, url), {})  # noqa: S102 - our own page
    assert printed.getvalue() == expected


def test_every_option_and_every_path_is_on_the_page() -> None:
    commands = next(action for action in parser("serve")._actions if hasattr(action, "choices") and action.choices)
    serve = commands.choices["serve"]  # type: ignore[index, call-overload]
    hidden = {"--help", "--method", "--seed", "--port"}
    for action in serve._actions:
        for option in action.option_strings:
            assert option in PAGE or option in hidden | {"-h"}, option
    for path in document(DEFAULT_LIMITS)["paths"]:
        assert path in PAGE or path.rpartition("}")[2] in PAGE, path


def test_the_limits_of_the_page_are_the_limits() -> None:
    assert f"{DEFAULT_LIMITS.events:,}" in PAGE and f"{DEFAULT_LIMITS.connections:,}" in PAGE
    assert f"{DEFAULT_LIMITS.body // 2**20} MiB" in PAGE and f"1 to {LONGEST_NAME} characters" in PAGE
    for seconds in (DEFAULT_LIMITS.request_seconds, DEFAULT_LIMITS.answer_seconds, DEFAULT_LIMITS.idle_seconds):
        assert f"| {seconds:.0f} s |" in PAGE
    assert f"{EngineSettings().queue_events:,}, in {EngineSettings().queue:,} requests" in PAGE
