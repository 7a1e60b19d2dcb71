"""A stream: what a replay needs to know about a log of scores and their outcomes."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calibeat._util.types import Ints, Vector

TimeArray = npt.NDArray[np.datetime64]


@dataclass(frozen=True, eq=False)
class Stream:
    """Scores in the order in which they were issued, and the outcome of each with the moment it became known.

    `outcomes` is NaN where none ever arrives. `due[i]` is the first prediction that may know outcome i (more than i;
    `len(scores)` for an outcome that never arrives); None means that every outcome arrives at once.
    `group[i]` is the stretch of time of event i, an index into `group_names`. `times` and `known` say when an event was
    scored and when its outcome was known (NaT: never), where there is a calendar; `due` follows from them.
    """

    name: str
    event: str  # what outcome 1 means, to be read after "probability that ..."
    scores: Vector
    outcomes: Vector
    due: Ints | None
    group: Ints
    group_names: tuple[str, ...]
    group_adjective: str  # "monthly", "blockwise": an error of one group at a time is a "monthly CE"
    time_label: str  # what the groups are groups of, for an axis
    times: TimeArray | None = None
    known: TimeArray | None = None

    @property
    def labelled(self) -> npt.NDArray[np.bool_]:
        """Which events have an outcome, however late."""
        return ~np.isnan(self.outcomes)
