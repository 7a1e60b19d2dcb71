"""The host of many streams: a matrix with a row for each key, served by the kernels that serve one stream."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from calibeat._util import forks
from calibeat._util.check import check_lengths, check_score, check_scores, check_whole
from calibeat._util.columns import like
from calibeat._util.types import Vector
from calibeat.core import loops
from calibeat.core.method import AUTO, Method
from calibeat.core.receipt import Forecast
from calibeat.errors import InvalidInput
from calibeat.hosts.calibrator import Calibrator, Number
from calibeat.hosts.dispatch import for_batch
from calibeat.late import due_of
from calibeat.monitor.monitor import Monitor

from . import file as bankfile
from . import life
from .batch import run_batch
from .contents import Contents
from .fold import Fold, fold
from .keys import Key, check_key, check_keys, plain_key
from .labels import blanked, check_labels
from .member import Members
from .start import fresh_row
from .threads import thread_count


class Bank(Contents):
    r"""A calibrator for each of any number of keys: same method, same bits as a `Calibrator` per key.

    Parameters
    ----------
    method : a `Method`, or the name of a preset such as ``"tops"``; AUTO if not given. It has to live in a row: the
        methods that fit their past again (FPS, WPS, WHB and their kin) do not.
    seed : for the draws of a hedging method.
    prior : "pooled" starts a new key from a calibrator that learns on all keys' events; None (the default) from
        nothing, as a `Calibrator` does. It helps where keys are many and their events few.
    independent : draws of a hedging method. False: key k is ``Calibrator(method, seed)``, to the last bit, so the
        first events of all keys share a draw, and so on. True: it is ``Calibrator(method, seed, stream=k)``, and
        draws of different keys are independent, which matters to sums over keys.
    monitor : a `Monitor`; each key then has one with its settings, and `arl` counts outcomes of the whole bank. See
        `broken`, `miscalibrated`, `table` and docs/monitor.md.
    threads : how many for a batch; as many as this process may use processors if not given. Results never depend on it.

    >>> from calibeat import Bank, TOPS
    >>> bank = Bank(TOPS)
    >>> p = bank.run(["paris", "rome", "paris"], [0.8, 0.3, 0.7], [1, 0, 1])     # keys: ints or strings
    >>> len(bank), "rome" in bank, list(bank)
    (2, True, ['paris', 'rome'])
    >>> bank["paris"].events                   # a Calibrator on that row
    2
    >>> f = bank.predict("oslo", 0.4)          # or one event at a time, with outcomes any time later
    >>> bank.update("oslo", f, 1)
    >>> bank.table["events"]
    array([2, 1, 1])

    Any number of threads may use a bank: each call has it for itself. A call takes effect whole or not at all, also
    when Ctrl-C breaks it off. A row takes 8 bytes for each number of the method's state (TOPS 27, AUTO 191, HOPS 207)
    and 48 for its stats.
    """

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
        super().__init__(method, seed, prior=prior, independent=independent, threads=threads, monitor=monitor)
        self._members = Members(self)
        forks.register(self)

    def _forked(self) -> None:
        """In a child process: the first call begins a new life."""
        self._is_forked = True

    # ---- many events ----------------------------------------------------------------------------------------------

    def run(
        self,
        keys: Any,
        scores: Any,
        outcomes: Any,
        *,
        due: Any = None,
        mature: Any = None,
        times: Any = None,
        finish: bool = False,
        threads: int | None = None,
    ) -> Any:
        """Predict and then update, event after event in the order of the arrays, each on the row of its key.

        Parameters
        ----------
        keys : ints or strings, old and new: a list, or a column of NumPy, Arrow, pandas or polars.
        scores : probabilities in [0, 1].
        outcomes : 0 or 1 (False or True); NaN where it is not known: such an event is forecast and not learnt.
        due : for late outcomes, positions in this batch. Outcome i arrives before event ``due[i]`` (> i), whatever its
            key, and is learnt before the next event of its own key; of several at once the earlier event's comes first.
            One that is due at ``len(scores)`` or later never arrives, and its place in `outcomes` may hold anything.
        mature : the age at which an outcome is learnt, ones and zeros alike: so many positions of this batch, or a time
            such as ``"30min"`` with `times`. One that is due later than that is learnt when it is due. Until a key has
            learnt its first outcome its forecasts are the raw scores (unless it started from what a pool had learnt).
        times : when each score was issued, in order, where `mature` is a time.
        finish : outcomes that are due later are learnt at the end, after the last event.
        threads : for this batch, instead of the bank's own number.

        Returns the forecasts. Either all events are taken or, if something is wrong with one, none. Ctrl-C is heard at
        once in a small batch, which then has not happened, and at the end of a large one, which then has.

        With `due`, key k gets the bits of ``Calibrator.run(..., due=own)`` on its own events, where own counts how many
        of them come before position due.

        >>> from calibeat import Bank
        >>> Bank("ops").run([7, 8, 7], [0.5, 0.5, 0.5], [1, 0, 1]).round(4)
        array([0.5   , 0.5   , 0.5125])
        >>> Bank("ops").run([7, 8, 7], [0.5, 0.5, 0.5], [1, 0, 1], due=[3, 3, 3]).round(4)
        array([0.5, 0.5, 0.5])
        """
        column, probabilities = check_keys(keys), check_scores(scores)
        n = len(probabilities)
        arrivals = due_of(n, due, mature, times)
        if arrivals is not None and finish:
            arrivals = np.minimum(arrivals, n)
        last = n if finish else n - 1
        labels = check_labels(outcomes, None if arrivals is None else arrivals <= last)
        check_lengths(keys=len(column), scores=n, outcomes=len(labels))
        workers = self._threads if threads is None else thread_count(threads)
        with self._lock:
            self._check_writable("learn")
            batch = self._store.check(column), probabilities, labels, arrivals, workers
            return like(scores, run_batch(self, *batch, raw_first=mature is not None))

    def predict_many(self, keys: Any, scores: Any) -> Any:
        """Forecast many scores from the present state: no receipts, nothing learnt, nothing changed.

        A key that the bank does not know gets the forecast that it would get as a new one.

        >>> from calibeat import Bank
        >>> Bank("ops").predict_many(["a", "b"], [0.1, 0.9]).round(12)
        array([0.1, 0.9])
        """
        column, probabilities = check_keys(keys), check_scores(scores)
        check_lengths(keys=len(column), scores=len(probabilities))
        with self._lock:
            self._check_not_broken()
            store = self._store
            slots = store.find(store.check(column))
            draws = self._draws.of_all(store, column, slots)
            fresh, forecasts = fresh_row(self), np.empty(len(probabilities))
            rows = self._method.spec, store.flat, store.stride, fresh, slots
            batch = probabilities, draws, forecasts, np.empty(self._method.receipt_width)
            loop = for_batch(loops.predict_many, self._method, len(probabilities))
            if self._writable:
                loop(*rows, *batch)
        if not self._writable:  # nobody changes the rows, so several threads may work at the same time
            loop(*rows, *batch)
        return like(scores, forecasts)

    def fold(self, keys: Any, scores: Any, outcomes: Any, receipts: Any = (), *, of: Any = None) -> Fold:
        """Forecasts and late outcomes of many keys, mixed, in one compiled pass: the same bits as `predict`, `update`.

        Parameters
        ----------
        keys : the key of each operation, in order.
        scores : the score of a forecast; NaN for an outcome.
        outcomes : 0 or 1 for an outcome; NaN for a forecast.
        receipts : of the outcomes whose forecast was made in an earlier call, in order: bytes, as `fold` gave them.
            Those that a copy of the bank has issued, or this one after the snapshot it continues from, are refused.
        of : for outcomes of forecasts in this same call, the position of the forecast; -1 for all others.

        Returns ``(forecasts, receipts)``: a forecast for each operation (NaN for an outcome), and a receipt of fixed
        width for each forecast, as an array whose ``.tolist()`` is a list of bytes. Its layout is `receipt_type`.
        Either all operations are taken or none. Bring a receipt once: whoever stores receipts sees to that.

        >>> from math import nan
        >>> from calibeat import Bank
        >>> bank = Bank("ops")
        >>> first = bank.fold(["oslo", "rome"], [0.8, 0.3], [nan, nan])
        >>> stored = first.receipts.tolist()
        >>> len(stored), len(stored[0])
        (2, 104)
        >>> bank.fold(["rome", "oslo", "oslo"], [nan, nan, 0.8], [0, 1, nan], stored[::-1]).forecasts.round(4)
        array([   nan,    nan, 0.8092])
        """
        column = check_keys(keys)
        labels = check_labels(outcomes)
        asked = np.isnan(labels)
        probabilities = check_scores(blanked(scores, asked))
        check_lengths(keys=len(column), scores=len(probabilities), outcomes=len(labels))
        positions = None if of is None else np.asarray(of).astype(np.int64, casting="same_kind")
        with self._lock:
            self._check_writable("learn")
            return fold(self, self._store.check(column), probabilities, labels, receipts, positions)

    # ---- one event ------------------------------------------------------------------------------------------------

    def predict(self, key: Key, score: Number) -> Forecast:
        """Forecast one event of a key; the forecast is the receipt for `update`.

        >>> from calibeat import Bank
        >>> Bank("ops").predict("paris", 0.25).probability
        0.25
        """
        with self._lock:
            self._check_not_broken()
            name = plain_key(key)
            slot = self._store.find_one(name)
            key = name if isinstance(name, int) else check_key(key)
            if slot < 0:
                score = check_score(score)  # before a row is made for it
                if not self._writable:
                    return life.stranger(self, key).predict(score)
                return life.open_and_predict(self, key, name, score)
            return self._members.serving(key, slot)._predict_taken(score)

    def update(self, key: Key, forecast: Forecast, outcome: Number | np.bool_) -> None:
        """Learn the outcome of a forecast of this key, now or any time later, in any order."""
        with self._lock:
            self._check_writable("learn")
            slot = self._known(key)
            key = check_key(key) if type(key) is not str else key
            self._members.serving(key, slot)._update_taken(forecast, outcome)

    # ---- as a collection ------------------------------------------------------------------------------------------

    def __getitem__(self, key: Key) -> Calibrator:
        """A live `Calibrator` on the row of a key: what it learns the bank has learnt, and the other way round."""
        with self._lock:
            self._recover()
            return self._members.of(key)

    def __delitem__(self, key: Key) -> None:
        """Forget a key. The key of the last row takes its place, so the order of the keys changes."""
        with self._lock:
            self._check_writable("forget")
            life.remove(self, check_key(key), self._known(key))

    # ---- rows out and rows in -------------------------------------------------------------------------------------

    def set_rows(self, keys: Any, rows: Any) -> None:
        """Put rows in place, of old and of new keys: exact bytes, from `rows` of a bank of the same method.

        Receipts of the forecasts that they count are accepted from then on. A row that the method cannot have is
        refused with a sentence, and then none is taken. Every key may come once.
        """
        with self._lock:
            self._check_writable("take rows")
            life.set_rows(self, self._store.check(check_keys(keys)), rows)

    @property
    def pool(self) -> Vector:
        """The row that new keys start from with ``prior="pooled"``, as a copy. It may be set, like `set_rows`."""
        with self._lock:
            self._check_not_broken()
            return self._pool.copy()

    @pool.setter
    def pool(self, row: Any) -> None:
        with self._lock:
            self._check_writable("take rows")
            self._pool = life.checked_pool(self._method, row)

    # ---- growing and shrinking ------------------------------------------------------------------------------------

    def merge(self, other: Bank) -> None:
        """Take the keys of another bank of the same method, as shards of several machines come together.

        A key that both have is an error that names it, and nothing has happened. How long ago a key had its last event
        is kept, in events of the bank that it came from. A pool stays as it is here, unless it has seen nothing yet.

        >>> from calibeat import Bank
        >>> east, west = Bank("ops"), Bank("ops")
        >>> p, q = east.run(["oslo"], [0.5], [1]), west.run(["rome"], [0.5], [0])
        >>> east.merge(west)
        >>> sorted(east)
        ['oslo', 'rome']
        """
        if not isinstance(other, Bank):
            raise InvalidInput(f"bank must be merged with a Bank, got {type(other).__name__}")
        first, second = sorted((self, other), key=id)  # in one order, or two banks could wait for each other
        with first._lock, second._lock:
            self._check_writable("take keys")
            other._check_not_broken()
            life.merge(self, other)

    def drop_idle(self, before: int) -> Bank:
        """Forget the keys without an event among the last `before` of the bank, and return them as a bank.

        So memory stays bounded by a rule that anybody can see: no more keys than `before` (after a merge, than `before`
        of each bank).

        >>> from calibeat import Bank
        >>> bank = Bank("ops")
        >>> p = bank.run([7, 8, 8], [0.5, 0.5, 0.5], [1, 0, 1])
        >>> list(bank.drop_idle(before=2)), list(bank)
        ([7], [8])
        """
        before = check_whole("before", before, 0, 2**53)
        with self._lock:
            self._check_writable("forget")
            return life.drop_idle(self, before)

    # ---- files ----------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the bank to one file: versioned, checksummed, and whole or not at all.

        The new file is read again, and replaces the old one only if it holds a bank. A crash in the middle leaves the
        file that was there before. Other threads wait while it is written, and go on while it is checked.
        """
        with self._lock:
            self._check_not_broken()
        bankfile.save(self, Path(path))

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, mmap: bool = False, verify: bool = True, threads: int | None = None
    ) -> Bank:
        """Continue from a file; one that was cut, damaged or is no bank is a `SnapshotMismatch`.

        Parameters
        ----------
        mmap : read the file where it lies, without a copy; several processes share its pages, and it may be larger
            than memory. Such a bank can be read and asked for forecasts, but cannot learn.
        verify : compare the checksums, and check every row and key, for which all of it is read. The header and the
            length of the file are looked at in any case. Leave it out only for files that you trust.

        >>> import tempfile, pathlib
        >>> from calibeat import Bank
        >>> bank = Bank("tops")
        >>> p = bank.run(["oslo", "rome"], [0.4, 0.6], [0, 1])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     bank.save(pathlib.Path(folder) / "cities.bank")
        ...     twin = Bank.load(pathlib.Path(folder) / "cities.bank")
        >>> twin["rome"].to_json() == bank["rome"].to_json()
        True
        """
        return bankfile.load(cls, Path(path), mmap=mmap, verify=verify, threads=thread_count(threads))

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies, also those of other processes, are banks of their own, in memory."""
        with self._lock:
            self._check_not_broken()
            arrays = {name: array.copy() for name, array in bankfile.sections_of(self).items()}
            return bankfile.copied, (type(self), bankfile.header_of(self), arrays, self._threads)

    # ---- inner ----------------------------------------------------------------------------------------------------

    def _check_writable(self, what: str) -> None:
        self._check_not_broken()
        if not self._writable:
            raise InvalidInput(f"a bank that was opened with mmap=True cannot {what}, load it without")
