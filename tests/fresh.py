"""Programs in fresh interpreters, for what happens only once in a process: imports, and first uses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent


def fresh(program: str, *, unset: tuple[str, ...] = (), **settings: str) -> str:
    """What a program prints in a fresh interpreter where warnings are errors; these variables are set or unset."""
    environment = {name: value for name, value in os.environ.items() if name not in unset} | settings
    path = os.pathsep.join(filter(None, [str(TESTS), environment.get("PYTHONPATH", "")]))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env={**environment, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
