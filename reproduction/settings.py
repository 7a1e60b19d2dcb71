"""What a person asks of `python -m reproduction`."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from calibeat._util.check import check_whole

from .forests import TREES

MOST = 100_000


def _cache() -> Path | None:
    """A folder below the user's cache (XDG_CACHE_HOME, else ~/.cache); None where there is no home.

    A shared folder such as the system's temporary one is never taken: others could put files there.
    """
    chosen = os.environ.get("XDG_CACHE_HOME")
    if chosen:
        return Path(chosen) / "calibeat" / "reproduce"
    with suppress(RuntimeError):
        return Path.home() / ".cache" / "calibeat" / "reproduce"
    return None


@dataclass(frozen=True)
class Settings:
    """How many runs, from which seed on, in how many processes, with which data.

    `cache` is the folder for base-model scores and finished runs. None, the default where there is no home, keeps
    nothing after the command. `trees` and `events` make a small version for trials: fewer trees in a forest, shorter
    streams (0: the paper's).
    """

    runs: int = 20
    seed: int = 0
    jobs: int = 1
    data: Path | None = None
    cache: Path | None = field(default_factory=_cache)
    trees: int = TREES
    events: int = 0

    def __post_init__(self) -> None:
        check_whole("--runs", self.runs, 1, MOST)
        check_whole("--seed", self.seed, 0, 2**32 - 1 - MOST)  # scikit-learn's generator takes 32 bits
        check_whole("--jobs", self.jobs, 1, 1024)

    @property
    def seeds(self) -> range:
        """One for each run."""
        return range(self.seed, self.seed + self.runs)
