"""What one edit costs: CPU seconds to compile the core again after a kernel has changed."""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

from benchmarks import table

HERE = Path(__file__).parents[1]
EDITS = {
    "monitor": "monitor/bets.py",
    "backtest": "backtest/replay/tally.py",
    "bank": "hosts/keys.py",
    "core": "core/learners.py",
    "stream": "_stream.pxi",
}


def rebuild(*, quick: bool, root: Path = HERE) -> None:
    """Compile a copy of a checkout, then again after each edit; `quick` without the optimiser."""
    flags = {"CALIBEAT_CFLAGS": "-w -O0"} if quick else {"CALIBEAT_CFLAGS": "-w"}
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        made = shutil.ignore_patterns("_compiled*.so", "_compiled*.pyd", "_compiled*.c", "kernels*.pxi", "__pycache__")
        for part in ("src", "compiling"):
            shutil.copytree(root / part, place / part, ignore=made)
        for part in ("setup.py", "pyproject.toml", "README.md"):
            shutil.copy(root / part, place)
        lines.append(["all", "", *_built(place, flags)])
        for what, name in EDITS.items():
            _edit(place / "src" / "calibeat" / name)
            lines.append([what, name, *_built(place, flags)])
    table.show("rebuild: after an edit of one kernel", ["kernel", "file", "CPU s", "s"], lines)


def _edit(file: Path) -> None:
    """Change what the compiler sees of a file."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".py":
        first = re.compile(r'^(@(?:kernel|entry|loop)\ndef .*?:\n    """.*?"""\n)', re.DOTALL | re.MULTILINE)
        edited, count = first.subn(r"\1    edited = 1.0\n", text, count=1)
        if not count:
            raise ValueError(f"{file} has no kernel with a docstring")
    else:
        edited = text + "\n# edited\n"
    file.write_text(edited, encoding="utf-8")


def _built(place: Path, flags: dict[str, str]) -> list[str]:
    """CPU seconds and seconds of a build."""
    before, begin = _cpu(), perf_counter()
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
    subprocess.run(command, cwd=place, env={**os.environ, **flags}, check=True, capture_output=True)
    return [f"{_cpu() - before:.0f}", f"{perf_counter() - begin:.0f}"]


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
