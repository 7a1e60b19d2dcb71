"""What is counted while a log is replayed, beside the tallies of the methods. Sums only: memory is constant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from calibeat._util.cores import usable_cores
from calibeat._util.types import Ints, Vector
from calibeat.backtest.options import Options
from calibeat.backtest.read.batch import Chunk
from calibeat.backtest.replay.contenders import Contender

from .compare import Counting
from .decisions import Deciding
from .history import History
from .intervals import Intervals
from .periods import Periods
from .watch import Watch


class Observed:
    """The hook of a replay: it sees each chunk with the forecasts of all methods, the raw score first."""

    def __init__(self, options: Options, contenders: Sequence[Contender]) -> None:
        self._counting = Counting(options.bins)
        self.deciding = None if options.costs is None else Deciding(options.costs)
        self.history, self.periods = History(), Periods(options)
        self.watch = Watch(named=next((each.name for each in contenders if each.preset == "auto"), None))

    def add(self, chunk: Chunk, forecasts: dict[str, Vector], place: Ints) -> None:
        """Count a chunk, in threads: compiled kernels let go of the interpreter."""

        def count() -> None:
            leader = self._counting.add(chunk, forecasts, place)
            if self.deciding is not None:
                self.deciding.add(chunk, forecasts, place, leader)

        tasks: list[Callable[[], None]] = [
            count,
            partial(self.history.add, chunk),
            partial(self.periods.add, chunk, forecasts, place),
        ]
        tasks += self.watch.tasks(chunk, forecasts, place)
        with ThreadPoolExecutor(usable_cores()) as pool:
            for done in [pool.submit(task) for task in tasks]:
                done.result()

    @property
    def sums(self) -> Intervals:
        """Of the martingale intervals."""
        return self._counting.sums
