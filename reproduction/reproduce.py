"""`python -m reproduction`: the experiments that were asked for, computed, compared, and written down."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TextIO

from calibeat._util.extras import need
from calibeat._util.words import counted
from calibeat.errors import CalibeatError, InvalidInput

from . import pages, registry, whole
from .datasets import data_folder, verify
from .section import Verdict
from .settings import Settings
from .tasks import run_all

LIBRARIES = ("matplotlib", "pandas", "scipy", "sklearn")


def require_libraries() -> None:
    """Raise `MissingExtra` now, not when the work is half done."""
    for library in LIBRARIES:
        need(library, extra="reproduce", what="reproduce")


def outcome_of(verdicts: Sequence[Verdict]) -> str:
    """How many claims hold, in a few words."""
    if not verdicts:
        return "no claims to decide"
    if all(verdict.too_few for verdict in verdicts):
        return f"{counted(len(verdicts), 'claim')} not judged: too few runs to decide"
    found = [verdict.holds for verdict in verdicts]
    open_ = f", {found.count(None)} undecided" if None in found else ""
    return f"{found.count(True)} of {len(found)} claims hold{open_}"


def reproduce(
    names: Sequence[str], settings: Settings, out: Path, *, to: TextIO | None = None, log: TextIO | None = None
) -> Path:
    """Run the experiments, write their pages, CSVs and figures into `out`, and return the page that holds them all."""
    to, log = to or sys.stdout, log or sys.stderr
    experiments = registry.chosen(names)
    require_libraries()
    if settings.cache is None:  # nothing is kept after the command
        with TemporaryDirectory(prefix="calibeat-") as kept:
            return reproduce(names, replace(settings, cache=Path(kept)), out, to=to, log=log)
    cache = settings.cache
    if any(experiment.needs_data for experiment in experiments):
        folder = data_folder(settings.data, cache)
        verify(folder)
        settings = replace(settings, data=folder)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"--out must be a folder or a new name, got {out} - {error.strerror}") from error
    begin = time.perf_counter()
    tasks = [task for experiment in experiments for task in experiment.tasks(settings)]
    try:
        results = run_all(tasks, settings.data, cache, settings.jobs, log)
    except BrokenProcessPool as error:
        raise CalibeatError(
            "a process of the experiments was killed, perhaps for want of memory - the runs that were "
            "finished are kept; start again, with fewer --jobs"
        ) from error
    computed = time.perf_counter() - begin
    for experiment in experiments:
        section = experiment.report(settings, results)
        pages.write(experiment, section, settings, out)
        to.write(f"{experiment.name:17} {', '.join(experiment.shows):21} {outcome_of(section.verdicts)}\n")
        if experiment.name == "refits":
            to.writelines(f"  {row[0]:34} {row[1]:>8} s  {row[2]:>5} x\n" for row in section.csv_rows)
    page = whole.assemble(out)
    to.write(f"{len(set(tasks)):,} runs in {computed:.1f} s. Report written to {page.resolve()}\n")
    return page
