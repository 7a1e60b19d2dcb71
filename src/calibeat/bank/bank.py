"""The host of many streams: a matrix with a row for each key, served by the kernels that serve one stream."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np
import numpy.typing as npt

from calibeat._util.check import (
    check_choice,
    check_lengths,
    check_outcomes,
    check_score,
    check_scores,
    check_whole,
    said,
)
from calibeat._util.columns import like
from calibeat._util.types import Slots, Vector
from calibeat.core import loops
from calibeat.core.jit import compiled, is_compiled, plain
from calibeat.core.layout import N
from calibeat.core.method import Method
from calibeat.core.presets import AUTO, method_named, name_of
from calibeat.core.stats import EVENTS, LAST
from calibeat.errors import InvalidInput, UnknownKey
from calibeat.stream.calibrator import Calibrator, Number
from calibeat.stream.forecast import Forecast

from . import file as bankfile
from .keys import Key, KeyColumn, check_key, check_keys
from .member import Members
from .start import learn, pool_rows, start_row
from .store import RowStore
from .threads import Crew, Part, parts_of
from .uniforms import Draws

_WORTH_A_THREAD = 20_000  # events; fewer are done before another thread has begun


class Bank:
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
    threads : how many for a batch; as many as the machine has processors if not given. Results never depend on it.

    >>> from calibeat import Bank, TOPS
    >>> bank = Bank(TOPS)
    >>> p = bank.run(["paris", "rome", "paris"], [0.8, 0.3, 0.7], [1, 0, 1])     # keys: ints or strings
    >>> len(bank), "rome" in bank, list(bank)
    (2, True, ['paris', 'rome'])
    >>> bank["paris"].events                   # a Calibrator on that row
    2
    >>> f = bank.predict("oslo", 0.4)          # or one event at a time, with outcomes any time later
    >>> bank.update("oslo", f, 1)
    >>> bank.table()["events"]
    array([2, 1, 1])

    Several threads may ask for forecasts (`predict_many`) at once; whatever changes the bank wants it for itself.

    A row takes 8 bytes for each number of the method's state (TOPS 27, AUTO 150, HOPS 207) and 48 for its books.
    """

    def __init__(
        self, method: Method | str = AUTO, seed: int = 0, *,
        prior: str | None = None, independent: bool = False, threads: int | None = None,
    ) -> None:  # fmt: skip
        if not isinstance(method, Method):
            method = method_named(method)
        if method.needs_history:
            raise InvalidInput(
                f"a bank needs a method that lives in a row, got {said(name_of(method) or method)}, which fits its "
                "past again - use AUTO, OPS or TOPS, or a Calibrator for each key"
            )
        self._method = method
        self._seed = check_whole("seed", seed, -(2**63), 2**63 - 1)
        self._prior = None if prior is None else check_choice("prior", prior, ("pooled",))
        if not isinstance(independent, (bool, np.bool_)):
            raise InvalidInput(f"independent must be True or False, got {said(independent)}")
        self._independent = bool(independent)
        self._threads = _check_threads(threads)
        self._store = RowStore(method)
        self._pool = method.initial_row()  # the row of the pool
        self._clock = 0
        self._writable = True
        self._lock = RLock()
        self._draws = Draws(
            self._seed, independent=self._independent, hedges=method.draws
        )  # fmt: skip
        self._members = Members(self)

    # ---- many events ----------------------------------------------------------------------------------------------

    def run(
        self, keys: Any, scores: Any, outcomes: Any, *, threads: int | None = None
    ) -> Any:  # fmt: skip
        """Predict and then update, event after event in the order of the arrays, each on the row of its key.

        Parameters
        ----------
        keys : ints or strings, old and new: a list, or a column of NumPy, Arrow, pandas or polars.
        scores : probabilities in [0, 1].
        outcomes : 0 or 1 (False or True).
        threads : for this batch, instead of the bank's own number.

        Returns the forecasts. Either all events are taken or, if something is wrong with one, none.

        >>> from calibeat import Bank
        >>> Bank("ops").run([7, 8, 7], [0.5, 0.5, 0.5], [1, 0, 1]).round(4)
        array([0.5   , 0.5   , 0.5125])
        """
        column, probabilities, labels = self._check_keys(keys), check_scores(scores), check_outcomes(outcomes)
        check_lengths(keys=len(column), scores=len(probabilities), outcomes=len(labels))
        workers = self._threads if threads is None else _check_threads(threads)
        self._check_writable("learn")
        return like(scores, self._run(column, probabilities, labels, workers))

    def _run(self, column: KeyColumn, scores: Vector, outcomes: Vector, workers: int) -> Vector:
        """A small batch can be undone; a large one, which is compiled, is finished once it has begun."""
        store, before, pool = self._store, len(self), self._pool.copy()
        forecasts = np.empty(len(scores))
        loop: Any = compiled(loops.run)
        undo: tuple[Slots, Vector] | None = None
        crew: Crew | None = None
        try:
            slots = store.open(column)
            draws = self._draws.of(store, slots)
            if len(scores) < _WORTH_A_THREAD or not is_compiled(loops.run):
                touched = np.unique(slots)
                undo = touched, store.matrix[touched]
            if self._prior:
                compiled(pool_rows)(
                    self._method.spec, self._pool, store.fresh, store.flat, store.stride, slots, before,
                    scores, outcomes, np.empty(self._method.receipt_width),
                )  # fmt: skip

            def serve(part: Part) -> None:
                loop(
                    self._method.spec, store.flat, store.stride, slots, *part, self._method.width, float(self._clock),
                    scores, outcomes, draws, forecasts, np.empty(self._method.receipt_width),
                    *loops.NO_HISTORY, loops.place_before(), len(scores),
                )  # fmt: skip

            if undo is not None:
                serve((0, len(self)))
            else:
                serve((0, 0))  # so that a first compilation happens here, once
                workers = max(1, min(workers, len(slots) // _WORTH_A_THREAD))
                crew = Crew(serve, parts_of(slots, len(self), workers))
                crew.run()
        except BaseException:
            if crew is not None and crew.begun:
                crew.finish()
                self._clock += len(scores)
            else:
                if undo is not None:
                    store.matrix[undo[0]] = undo[1]
                self._pool = pool
                self._shorten(before)
            raise
        self._clock += len(scores)
        return forecasts

    def _shorten(self, count: int) -> None:
        self._store.truncate(count)
        self._draws.forget_from(count)

    def predict_many(self, keys: Any, scores: Any) -> Any:
        """Forecast many scores from the present state: no receipts, nothing learnt, nothing changed.

        A key that the bank does not know gets the forecast that it would get as a new one.

        >>> from calibeat import Bank
        >>> Bank("ops").predict_many(["a", "b"], [0.1, 0.9]).round(12)
        array([0.1, 0.9])
        """
        column, probabilities = self._check_keys(keys), check_scores(scores)
        check_lengths(keys=len(column), scores=len(probabilities))
        slots = self._store.find(column)
        forecasts = np.empty(len(probabilities))
        compiled(loops.predict_many)(
            self._method.spec, self._store.flat, self._store.stride, self._fresh_row(), slots, probabilities,
            self._draws.of_all(self._store, column, slots), forecasts, np.empty(self._method.receipt_width),
        )  # fmt: skip
        return like(scores, forecasts)

    # ---- one event ------------------------------------------------------------------------------------------------

    def predict(self, key: Key, score: Number) -> Forecast:
        """Forecast one event of a key; the forecast is the receipt for `update`.

        >>> from calibeat import Bank
        >>> Bank("ops").predict("paris", 0.25).probability
        0.25
        """
        member = self._members.at_hand(key)
        if member is None:
            checked, score = check_key(key), check_score(score)  # before a row is made for it
            column = self._check_keys([checked])
            if self._store.find(column)[0] < 0:
                if not self._writable:
                    return self._stranger(checked).predict(score)
                self._open_one(column)
            member = self._members.of(checked)
        return member.predict(score)

    def update(self, key: Key, forecast: Forecast, outcome: Number | np.bool_) -> None:
        """Learn the outcome of a forecast of this key, now or any time later, in any order."""
        self._check_writable("learn")
        self._members.of(key).update(forecast, outcome)

    # ---- as a collection ------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._store)

    def __iter__(self) -> Iterator[Key]:
        return iter(() if self._store.keys is None else list(self._store.keys))

    def __contains__(self, key: object) -> bool:
        return self._slot(key) >= 0

    def __getitem__(self, key: Key) -> Calibrator:
        """A live `Calibrator` on the row of a key: what it learns the bank has learnt, and the other way round."""
        return self._members.of(key)

    def __delitem__(self, key: Key) -> None:
        """Forget a key. The key of the last row takes its place, so the order of the keys changes."""
        self._check_writable("forget")
        slot = self._known(key)
        self._store.remove(slot)
        self._draws.forget_from(slot)
        self._members.forget([check_key(key)])

    def __repr__(self) -> str:
        name = name_of(self._method)
        return f"Bank({name.upper() if name else self._method}, keys={len(self)}, events={self.events})"

    # ---- what it believes -----------------------------------------------------------------------------------------

    @property
    def method(self) -> Method:
        """The three parts."""
        return self._method

    @property
    def events(self) -> int:
        """How many forecasts were made for the keys that are here."""
        return int(self._store.books(EVENTS).sum())

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the rows, the keys and their index take."""
        return self._store.nbytes

    def params(self) -> dict[str, npt.NDArray[Any]]:
        """The keys and their parameters, as a mapping of arrays that any data frame library takes.

        >>> from calibeat import Bank
        >>> bank = Bank("ops")
        >>> p = bank.run([7, 8, 7], [0.5, 0.5, 0.5], [1, 0, 1])
        >>> {name: column.round(3).tolist() for name, column in bank.params().items()}
        {'key': [7, 8], 'a': [1.0, 1.0], 'b': [0.098, -0.05]}

        For AUTO also the weight of each lane, named as in `Calibrator.params`.
        """
        return {"key": self._store.names(), **self._store.params()}

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
        ============================  ============================================================================

        For the logarithm, scores and forecasts are clipped to [1e-5, 1 - 1e-5]. Means over no outcome are NaN.

        >>> from calibeat import Bank
        >>> bank = Bank("ops")
        >>> p = bank.run([7, 8, 7], [0.5, 0.5, 0.5], [1, 0, 1])
        >>> bank.table()["log_loss"].round(4)
        array([0.6808, 0.6931])
        """
        return self._store.table(self._clock)

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
        self._check_writable("take keys")
        if not isinstance(other, Bank):
            raise InvalidInput(f"bank must be merged with a Bank, got {type(other).__name__}")
        for what in ("method", "seed", "prior", "independent"):
            our, their = getattr(self, f"_{what}"), getattr(other, f"_{what}")
            if our != their:
                raise InvalidInput(f"banks must have the same {what}, got {said(our)} and {said(their)}")
        theirs, first = other._store, len(self)
        if theirs.keys is not None and len(theirs):
            column = self._store.check(theirs.keys.column())
            common = self._store.find(column) >= 0
            if common.any():
                key = theirs.keys.key(int(common.argmax()))
                raise InvalidInput(f"banks must have no key in common, got {said(key)} in both")
            try:
                self._store.take(column, theirs)
            except BaseException:
                self._shorten(first)
                raise
        self._members.take(other._members)
        clock = max(self._clock, other._clock)
        self._store.books(LAST)[:first] += clock - self._clock
        self._store.books(LAST)[first:] += clock - other._clock
        self._clock = clock
        if self._pool[N] == 0.0:
            self._pool = other._pool.copy()

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
        self._check_writable("forget")
        idle = self._store.books(LAST) <= self._clock - before
        dropped = self._like_this()
        dropped._clock, dropped._pool = self._clock, self._pool.copy()
        dropped._store = self._store.selected(idle)
        dropped._store.adopt()
        dropped._members.take(self._members)
        if idle.any():
            kept = self._store.selected(~idle)
            kept.moves += self._store.moves + 1  # so that members look again
            self._store = kept
            self._draws.forget_from(0)
            self._members.forget(list(dropped))
        return dropped

    def _like_this(self) -> Bank:
        """A bank without keys, otherwise the same."""
        return Bank(self._method, self._seed, prior=self._prior, independent=self._independent, threads=self._threads)

    # ---- files ----------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the bank to one file: versioned, checksummed, and whole or not at all.

        A crash in the middle leaves the file that was there before. The same bank gives the same bytes.
        """
        bankfile.save(self, Path(path))

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, mmap: bool = False, verify: bool = True, threads: int | None = None
    ) -> Bank:  # fmt: skip
        """Continue from a file; one that was cut, damaged or is no bank is a `SnapshotMismatch`.

        Parameters
        ----------
        mmap : read the file where it lies, without a copy; several processes share its pages, and it may be larger
            than memory. Such a bank can be read and asked for forecasts, but cannot learn.
        verify : compare the checksums of the content, for which all of it is read once. The header and the length of
            the file are looked at in any case. Only for files that you trust.

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
        return bankfile.load(cls, Path(path), mmap=mmap, verify=verify, threads=_check_threads(threads))

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies, also those of other processes, are banks of their own, in memory."""
        arrays = {name: array.copy() for name, array in bankfile.sections_of(self).items()}
        return bankfile.copied, (type(self), bankfile.header_of(self), arrays, self._threads)

    # ---- inner ----------------------------------------------------------------------------------------------------

    def _fresh_row(self) -> Vector:
        """The row that a new key would get now."""
        row = np.empty(self._method.width)
        if self._prior:
            plain(start_row)(self._method.spec, self._pool, self._store.fresh, row)
        else:
            row[:] = self._store.fresh
        return row

    def _check_keys(self, keys: Any) -> KeyColumn:
        return self._store.check(check_keys(keys))

    def _check_writable(self, what: str) -> None:
        if not self._writable:
            raise InvalidInput(f"a bank that was opened with mmap=True cannot {what}, load it without")

    def _slot(self, key: Any) -> int:
        """The slot of a key, -1 if there is none."""
        try:
            column = self._check_keys([check_key(key)])
        except InvalidInput:
            return -1
        return int(self._store.find(column)[0])

    def _known(self, key: Any) -> int:
        slot = self._slot(key)
        if slot < 0:
            raise UnknownKey(f"key must be one of the {len(self)} keys of the bank, got {said(key)}")
        return slot

    def _open_one(self, column: KeyColumn) -> None:
        """A row for a new key, as `run` would have made it."""
        before = len(self)
        try:
            self._store.open(column)
            self._store.matrix[before, : self._method.width] = self._fresh_row()
        except BaseException:
            self._shorten(before)
            raise

    def _stranger(self, key: Key) -> Calibrator:
        """What a new key would get, without a row for it."""
        calibrator = Calibrator(self._method, self._seed, self._stream(key))
        calibrator._row[:] = array("d", self._fresh_row())
        return calibrator

    def _stream(self, key: Key) -> Key:
        return key if self._independent else 0

    def _learn_together(self, score: float, y: float) -> None:
        """An outcome that came alone, for the pool."""
        if self._prior:
            plain(learn)(self._method.spec, self._pool, score, y, np.empty(self._method.receipt_width))


def _check_threads(threads: int | None) -> int:
    if threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return check_whole("threads", threads, 1, 1024)
