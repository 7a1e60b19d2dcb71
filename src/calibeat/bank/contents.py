"""What a bank is and holds, to be looked at: its settings, its keys, its rows, as columns and one by one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from calibeat._util.check import check_choice, check_interval, check_whole, shown
from calibeat._util.forks import new_lock
from calibeat._util.types import Slots, Vector
from calibeat.core.method import AUTO, Method, method_named, name_of
from calibeat.core.stats import EVENTS
from calibeat.errors import CalibeatError, InvalidInput, UnknownKey
from calibeat.monitor.bets import Settings
from calibeat.monitor.monitor import Monitor
from calibeat.monitor.monitors import Monitors

from .fold import receipt_type
from .keys import Key, check_keys, plain_key
from .store import RowStore
from .threads import thread_count
from .uniforms import Draws

if TYPE_CHECKING:
    from .member import Members
    from .undo import Undo


class Broken(NamedTuple):
    """What `Bank.broken` gives: the keys, their levels, and the bound on the expected share of wrong names."""

    keys: npt.NDArray[Any]
    levels: Vector
    bound: float


class Contents:
    """The part of a `Bank` that changes nothing."""

    _members: Members

    def __init__(
        self,
        method: Method | str = AUTO,
        seed: int = 0,
        *,
        prior: str | None = None,
        independent: bool = False,
        threads: int | None = None,
        monitor: Monitor | None = None,
    ) -> None:
        if not isinstance(method, Method):
            method = method_named(method)
        if method.needs_history:
            raise InvalidInput(
                f"a bank needs a method that lives in a row, got {shown(name_of(method) or method)}, which fits its "
                "past again - use AUTO, OPS or TOPS, or a Calibrator for each key"
            )
        self._method = method
        self._seed = check_whole("seed", seed, -(2**63), 2**63 - 1)
        self._prior = None if prior is None else check_choice("prior", prior, ("pooled",))
        if not isinstance(independent, (bool, np.bool_)):
            raise InvalidInput(f"independent must be True or False, got {shown(independent)}")
        self._independent = bool(independent)
        self._threads = thread_count(threads)
        self._lock = new_lock()
        if monitor is not None and not isinstance(monitor, Monitor):
            raise InvalidInput(f"monitor must be a Monitor, got {shown(monitor)}")
        self._store = RowStore(method, None if monitor is None else monitor.settings)
        self._pool = method.initial_row()  # the row of the pool
        self._clock = 0  # forecasts made so far, of all keys
        self._writable = True
        self._broken = ""  # why, if a batch was broken off in its middle
        self._undo: Undo | None = None  # a change that is not finished
        self._owed: tuple[Any, ...] | None = None  # what the monitors have not been told yet: a function, its arguments
        self._is_forked = False  # whether this is a copy in a new process that has not been used yet
        self._hedges = method.draws
        self._draws = Draws(self._seed, independent=self._independent, hedges=self._hedges)

    # ---- what it is, and what it believes -------------------------------------------------------------------------

    @property
    def method(self) -> Method:
        """The three parts."""
        return self._method

    @property
    def seed(self) -> int:
        """For the draws of a hedging method."""
        return self._seed

    @property
    def prior(self) -> str | None:
        """How a new key starts: "pooled", or None."""
        return self._prior

    @property
    def independent(self) -> bool:
        """Whether keys draw independently."""
        return self._independent

    @property
    def watched(self) -> Settings | None:
        """The settings of the keys' monitors, if there are any."""
        return self._store.watched

    @property
    def kind(self) -> str:
        """What the keys are: "ints", "strings", or "none" as long as there are no keys."""
        return self._store.kind

    @property
    def events(self) -> int:
        """How many forecasts were made for the keys that are here."""
        with self._lock:
            self._check_not_broken()
            return int(self._store.stats(EVENTS).sum())

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the rows, the keys and their index take."""
        return self._store.nbytes

    @property
    def params(self) -> dict[str, npt.NDArray[Any]]:
        """The keys and their parameters, as a mapping of arrays that any data frame library takes.

        >>> from calibeat import Bank
        >>> bank = Bank("ops")
        >>> p = bank.run([7, 8, 7], [0.5, 0.5, 0.5], [1, 0, 1])
        >>> {name: column.round(3).tolist() for name, column in bank.params.items()}
        {'key': [7, 8], 'a': [1.0, 1.0], 'b': [0.098, -0.05]}

        For AUTO also the weight of each lane, named as in `Calibrator.params`.
        """
        with self._lock:
            self._check_not_broken()
            return {"key": self._store.names(), **self._store.params()}

    @property
    def table(self) -> dict[str, npt.NDArray[Any]]:
        """A row for each key, as a mapping of arrays that any data frame library takes.

        ============================  ============================================================================
        column                        holds
        ============================  ============================================================================
        key                           the key
        events, outcomes              forecasts made, outcomes learnt
        idle                          events of the whole bank since the last one of this key
        (parameters)                  as in `params`
        raw_log_loss, log_loss        mean log-loss of the scores and of the forecasts, over the outcomes learnt
        raw_brier, brier              their mean Brier score
        alarms, pages                 with monitors: alarms ever, and how many of them paged
        alarm_at, since, what         the last alarm: after how many outcomes, since when, what was wrong
        level                         the detector as a share of the alarm line
        log_e                         log e-value against "calibrated since the start"
        gain_low, gain_high           interval of the mean Brier gain over the score, valid at every moment
        ============================  ============================================================================

        In the log-loss the probability of what happened counts as at least 1e-5. Means over no outcome are NaN.

        >>> from calibeat import Bank
        >>> bank = Bank("ops")
        >>> p = bank.run([7, 8, 7], [0.5, 0.5, 0.5], [1, 0, 1])
        >>> bank.table["log_loss"].round(4)
        array([0.6808, 0.6931])
        """
        with self._lock:
            self._check_not_broken()
            return self._store.table(self._clock)

    def broken(self) -> Broken:
        """The keys that look broken now, the worst first, with a bound on the wrong names among them.

        It is the longest list of r keys whose level is at least 1/r each; an alarm counts 1 for the next `quiet`
        outcomes of its key. If `bound` is b, the expected share of wrong names is at most b. docs/monitor.md.

        >>> from calibeat import Bank, Monitor
        >>> bank = Bank("ops", monitor=Monitor(arl=1_000_000, warm=0))
        >>> p = bank.run(["oslo", "rome"] * 500, [0.3] * 1000, [0, 1] * 500)
        >>> bank.broken().keys, bank.miscalibrated()
        (array(['rome', 'oslo'], dtype=object), array(['rome', 'oslo'], dtype=object))
        """
        with self._lock:
            self._check_not_broken()
            slots, levels, bound = self._watching().broken()
            return Broken(self._store.names(slots), levels, bound)

    def miscalibrated(self, alpha: float = 0.05) -> npt.NDArray[Any]:
        """The keys whose forecasts were not calibrated since the start, the clearest first (e-BH).

        At any one time the expected share of wrong names is at most alpha. Do not collect names over time: the promise
        is about one list.
        """
        level = check_interval("alpha", alpha, 1e-300, 1.0)
        with self._lock:
            self._check_not_broken()
            return self._store.names(self._watching().miscalibrated(level))

    def _watching(self) -> Monitors:
        if self._store.monitors is None:
            raise InvalidInput("a bank must have monitors for this, got Bank(..., monitor=None)")
        return self._store.monitors

    def table_of(self, keys: Any) -> dict[str, npt.NDArray[Any]]:
        """The rows of `table` for some keys, without a look at the others. An unknown key is an `UnknownKey`."""
        with self._lock:
            self._check_not_broken()
            return self._store.table(self._clock, self._slots_of(keys))

    @property
    def receipt_type(self) -> np.dtype[np.void]:
        """The layout of the receipts of `fold`: ``receipts.view(bank.receipt_type)["event"]``."""
        return receipt_type(self._method)

    # ---- the keys --------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        with self._lock:
            self._recover()
            return len(self._store)

    def __iter__(self) -> Iterator[Key]:
        with self._lock:
            self._recover()
            return iter([] if self._store.index is None else list(self._store.index))

    def __contains__(self, key: object) -> bool:
        with self._lock:
            self._recover()
            return self._slot(key) >= 0

    def __repr__(self) -> str:
        name = name_of(self._method)
        with self._lock:
            keys, events = len(self), int(self._store.stats(EVENTS).sum())
        return f"Bank({name.upper() if name else self._method}, keys={keys}, events={events})"

    def rows(self, keys: Any) -> npt.NDArray[np.float64]:
        """The rows of some keys, as a copy: `method.width` numbers of state and six of stats; `set_rows` takes them.

        ``rows[i].tobytes()`` is what a database keeps of a key. An unknown key is an `UnknownKey`.

        >>> from calibeat import Bank
        >>> east, west = Bank("ops"), Bank("ops")
        >>> p = east.run(["oslo", "rome"], [0.8, 0.3], [1, 0])
        >>> west.set_rows(["rome"], east.rows(["rome"]))
        >>> west.predict_many(["rome"], [0.3]) == east.predict_many(["rome"], [0.3])
        array([ True])
        """
        with self._lock:
            self._check_not_broken()
            return self._store.matrix[self._slots_of(keys)]

    # ---- inner -----------------------------------------------------------------------------------------------------

    def _recover(self) -> None:
        """Finish what an interrupted call has left, or what a new process asks for. The caller holds the lock.

        An interrupt may come here too: then the next call does it.
        """
        if self._undo is not None:
            self._undo.finish()
        if self._owed is not None:
            self._tell()
        if self._is_forked:
            self._members.begin_life()
            self._is_forked = False

    def _tell(self) -> None:
        """Tell the monitors what they do not know yet; they may be told twice."""
        if self._owed is not None:
            tell, *arguments = self._owed
            tell(*arguments)
            self._owed = None

    def _check_not_broken(self) -> None:
        if self._undo is not None or self._owed is not None or self._is_forked:
            self._recover()
        if self._broken:  # some events of a batch were taken and some were not: that must not go unnoticed
            raise CalibeatError(
                f"a bank must be loaded anew after an error in the middle of a batch, got {self._broken}"
            )

    def _slots_of(self, keys: Any) -> Slots:
        """The slots of keys that must be here."""
        slots = self._store.find(self._store.check(check_keys(keys)))
        missing = slots < 0
        if missing.any():
            raise UnknownKey(f"key must be one of the {len(self)} keys of the bank - at row {int(missing.argmax())}")
        return slots

    def _slot(self, key: Any) -> int:
        """The slot of a key, -1 if there is none."""
        try:
            return self._store.find_one(plain_key(key))
        except InvalidInput:
            return -1

    def _known(self, key: Any) -> int:
        slot = self._slot(key)
        if slot < 0:
            raise UnknownKey(f"key must be one of the {len(self)} keys of the bank, got {shown(key)}")
        return slot

    def _stream(self, key: Key) -> Key:
        return key if self._independent else 0
