"""The development streams, which lie in `shared/streams/dev.npz` beside the repository, where they are at hand."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.stream import CLIP, Stream
from calibeat import FTL, Fixed, Method

STREAMS = Path(__file__).parents[2] / "shared" / "streams" / "dev.npz"
SEEDS = (0, 1, 2)


@dataclass(frozen=True)
class Named:
    """A development stream with one of its seeds."""

    name: str
    stream: Stream

    @property
    def warm_up(self) -> int:
        """How many events count for nobody."""
        if self.name.startswith("fetal"):
            return 300
        return 500 if self.name.split("_")[0] in ("cov1", "lab1", "reg1") else 1000


def read(seeds: tuple[int, ...], longest: int) -> list[Named]:
    """The development streams of these seeds, as far as they have them, but for those that are too long."""
    found = []
    with np.load(STREAMS) as file:
        for name in sorted({key.split("/")[0] for key in file}):
            for seed in (seed for seed in seeds if f"{name}/{seed}/score" in file):
                scores = file[f"{name}/{seed}/score"].astype(np.float64)
                if len(scores) <= longest:
                    clipped = np.clip(scores, CLIP, 1.0 - CLIP)
                    outcomes = file[f"{name}/{seed}/outcome"].astype(np.float64)
                    found.append(Named(name, Stream(scores, outcomes, np.log(clipped / (1.0 - clipped)))))
    return found


def told_when(method: Method, warm_up: int) -> Method:
    """A method that refits, with its first fit after the warm-up."""
    if isinstance(method.learner, (Fixed, FTL)):
        return replace(method, learner=replace(method.learner, after=warm_up))
    return method
