"""Lines of the log."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

from calibeat.service.logs import JsonLines


def test_a_failure_has_its_traceback_in_one_line_of_json() -> None:
    try:
        Path("/no/such/place").read_bytes()
    except OSError:
        record = logging.LogRecord("calibeat", logging.ERROR, "", 0, "it failed", (), sys.exc_info())
    line = JsonLines().format(record)
    found = json.loads(line)
    assert "\n" not in line and (found["level"], found["message"]) == ("error", "it failed")
    assert found["traceback"].startswith("Traceback") and found["traceback"].splitlines()[-1].startswith(
        "FileNotFoundError"
    )
