"""The notice of one stream: row 0 of `Notices`, behind a lock and checks of its input."""

from __future__ import annotations

import math
import time as wall
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from calibeat._util.check import check_interval, check_lengths, check_scores
from calibeat._util.types import Slots, Vector
from calibeat.errors import InvalidInput

from .bets import Alarm
from .detector import Watcher, read_alarms, read_row, written_alarms
from .notices import SCORE, UNKNOWN, Heard, Noticed, Notices, NoticeSettings
from .shift import SEEN
from .silence import check_away, check_time, check_times

_SLOT: Slots = np.zeros(1, dtype=np.int32)  # slot 0
WATCHES = ("no forecasts", "no outcomes", "score moved", "outcomes later")


class Notice(Watcher):
    r"""Notices what a `Monitor` cannot, because it needs outcomes: that nothing comes, and that the score has moved.

    =====================  ==========================================================================================
    alarm                  means
    =====================  ==========================================================================================
    ``no forecasts``       none is made, for longer than the rhythm of hours and weekdays explains (`Silence`)
    ``no outcomes``        none comes. It pages if a forecast waits for one, and forecasts are not silent themselves
    ``outcomes later``     they take longer than they used to (`Shift` of the delay)
    ``never an outcome``   1,000 forecasts and 8 days without any
    ``score lower``        or higher, wider, narrower, stuck: the score is not what it was (`Shift`)
    =====================  ==========================================================================================

    Parameters
    ----------
    every : about one false alarm of silence in so long; see `Silence`.
    arl, warm, quiet : of the score; see `Shift`. Delays get a quarter of the warm-up.
    clock : what a calibrator asks for the time of an event for which none is given: a function that gives seconds
        since 1970. It is not a part of the state.

    Raises
    ------
    InvalidInput : a parameter is outside its range.

    Alone it is told what happens, and when; times are seconds since 1970, in UTC:

    >>> from calibeat import Notice
    >>> notice = Notice()
    >>> for hour in range(24 * 30):
    ...     made = 1_700_000_000 + 3600 * hour
    ...     alarms = notice.forecast(made, 0.3) + notice.outcome(made + 60, made)
    >>> [(alarm.what, alarm.page) for alarm in notice.check(made + 6 * 3600)]        # the clock is asked
    [('no forecasts', True), ('no outcomes', False)]
    >>> notice.state, notice.deadline                    # nothing more can be missed
    ('silent', inf)

    Of a calibrator, ``Calibrator(notice=Notice())``, or of each key of a bank, ``Bank(notice=Notice())``, the host
    tells it of forecasts and outcomes; `check` and `away` are for the clock. Several threads may use one.
    docs/explanation/notice.md says what is proved and where it fails.

    Snapshots, copies and pickles continue with the same bits, and with the system's clock:

    >>> Notice.from_json(notice.to_json()).forecasts
    720
    """

    KIND = "calibeat/notice"
    _rows: Notices
    FIELDS = ("settings", "row", "pending", "alarms")

    def __init__(
        self,
        every: Any = "10y",
        arl: float = 1_000_000,
        warm: int = 1024,
        quiet: int = 4096,
        *,
        clock: Callable[[], float] = wall.time,
    ) -> None:
        self._begin(Notices(NoticeSettings(every, arl, warm, quiet), detailed=True))
        self.clock = clock

    # ---- what happens ---------------------------------------------------------------------------------------------

    def forecast(self, time: float, score: float) -> list[Alarm]:
        """A forecast of this score was made -> the alarms raised.

        Raises
        ------
        InvalidInput : the time is not in [0, 1e11], the score not in [0, 1], or the notice belongs to a calibrator.
        """
        return self.run([time], [score])

    def outcome(self, time: float, made: float | None = None) -> list[Alarm]:
        """An outcome came, of a forecast that was made at `made` (None: unknown) -> the alarms raised.

        Raises
        ------
        InvalidInput : a time is not in [0, 1e11], or the notice belongs to a calibrator.
        """
        time = check_time("time", time)
        lag = math.nan if made is None else time - check_time("made", made)
        with self._lock:
            self._check_free()
            return _alarms(self._rows.observe(_SLOT, np.array([time]), UNKNOWN, np.array([lag])))

    def run(self, times: npt.ArrayLike, scores: npt.ArrayLike, came: npt.ArrayLike | None = None) -> list[Alarm]:
        """Many forecasts, and their outcomes, in the order in which they happened; the same bits as one by one.

        Parameters
        ----------
        times : when each forecast was made; they never go back.
        scores : the score of each.
        came : when the outcome of each came, NaN where it never did; outcomes come before forecasts of the same time.

        Returns the alarms raised; of more than 4,096 the last.

        Raises
        ------
        InvalidInput : columns of different lengths, a time that is impossible or goes back, a score outside [0, 1], an
            outcome before its forecast, or a notice that belongs to a calibrator. Nothing is taken then.
        """
        issued, values = check_times(times), check_scores(scores)
        n = len(issued)
        check_lengths(times=n, scores=len(values))
        if (np.diff(issued) < 0.0).any():
            row = int((np.diff(issued) < 0.0).argmax()) + 1
            raise InvalidInput(f"time must not go back, got an earlier one after a later one - at row {row}")
        arrived = np.full(n, np.nan) if came is None else _check_came(came, issued)
        moments = np.maximum(np.searchsorted(issued, arrived), np.arange(1, n + 1))
        order = np.lexsort((arrived, moments))
        order = order[~np.isnan(arrived[order])].astype(np.int64)
        slots = np.zeros(n, dtype=np.int32)
        heard = Heard(slots, issued, values, arrived, moments.astype(np.int64), order, arrived, True)
        with self._lock:
            self._check_free()
            return _alarms(self._rows.run(0, self.forecasts, heard))

    # ---- the clock ------------------------------------------------------------------------------------------------

    def check(self, now: float | None = None) -> list[Alarm]:
        """Ask the clock, now and then, or when `deadline` has passed -> the alarms raised: one for each silence.

        Raises
        ------
        InvalidInput : `now`, by default what `clock` says, is not in [0, 1e11].
        """
        moment = check_time("now", self.clock() if now is None else now)
        with self._lock:
            return _alarms(self._rows.check(moment))

    def away(self, a: float, b: float) -> list[Alarm]:
        """Say that nobody listened from a to b: neither a silence nor a delay -> alarms of before a.

        The same downtime may be said again.

        Raises
        ------
        InvalidInput : a or b is not in [0, 1e11], or b is before a.
        """
        a, b = check_away(a, b)
        with self._lock:
            return _alarms(self._rows.away(a, b))

    def restart(self) -> None:
        """Say that a new version of the model goes live: its scores are learnt anew, and page nobody."""
        with self._lock:
            self._rows.restart(0)

    @property
    def _has_begun(self) -> bool:
        return self.forecasts > 0

    def _now(self) -> float:
        """The time of an event for which none is given, in whole microseconds, as columns of times have them."""
        return round(check_time("the clock's time", self.clock()) * 1e6) / 1e6

    # ---- state ----------------------------------------------------------------------------------------------------

    def _state(self) -> dict[str, Any]:
        with self._lock:
            rows = self._rows
            return {
                "settings": asdict(rows.settings),
                "row": rows.matrix[0].tolist(),
                "pending": [list(item) for item in rows.queues.get(0, {}).items()],
                "alarms": written_alarms(rows.kept),
            }

    @classmethod
    def _of_state(cls, state: Any) -> Self:
        notice = cls(**state["settings"])
        notice._rows.matrix[0] = read_row(notice.settings, state["row"])
        notice._rows.set_queue(0, state["pending"])
        notice._rows.kept = read_alarms(state["alarms"])
        return notice

    @classmethod
    def _copied(cls, notices: Notices, slot: int) -> Notice:
        """A copy of one of many, to read from. Of its alarms it knows the last."""
        made = cls(**asdict(notices.settings))._serve()
        made._rows.matrix[0] = notices.matrix[slot]
        made._rows.queues = {0: dict(notices.queues[slot])} if slot in notices.queues else {}
        last, (alarms, pages) = notices.last_alarm(slot), made.counts
        made._rows.kept = [] if last is None else [replace(last, page=alarms == pages)]
        return made

    # ---- readings: each is consistent, whatever other threads do ----------------------------------------------------

    @property
    def settings(self) -> NoticeSettings:
        """The parameters."""
        settings: NoticeSettings = self._rows.settings
        return settings

    @property
    def forecasts(self) -> int:
        """How many forecasts it knows of."""
        return int(self._rows.matrix[0, SCORE + SEEN])

    @property
    def alarms(self) -> list[Alarm]:
        """The alarms, oldest first, `at` and `since` in seconds since 1970; the last 1,000 are kept."""
        with self._lock:
            return list(self._rows.kept)

    @property
    def deadline(self) -> float:
        """The moment at which `check` is to be asked next; infinity while nothing can be missed."""
        with self._lock:
            return float(self._rows.deadlines(_SLOT)[0])

    @property
    def state(self) -> str:
        """In a word: learning, good, outcomes later, score moved, no outcomes, never an outcome or silent.

        The worst that holds. "good" is said only where all of `watches` are watched.
        """
        with self._lock:
            return str(self._rows.words(_SLOT)[0])

    @property
    def watches(self) -> dict[str, bool]:
        """What can be noticed by now, and what is still learnt."""
        with self._lock:
            return dict(zip(WATCHES, self._rows.watching(_SLOT)[0].tolist(), strict=True))

    def __repr__(self) -> str:
        alarms, pages = self.counts
        return f"Notice(forecasts={self.forecasts:,}, state={self.state!r}, alarms={alarms}, pages={pages})"


def _alarms(raised: list[Noticed]) -> list[Alarm]:
    return [alarm for _, alarm in raised]


def _check_came(came: Any, issued: Vector) -> Vector:
    """When outcomes came; NaN: never."""
    try:
        arrived = np.array(came, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInput("came must be seconds since 1970, or NaN, got others") from None
    check_lengths(times=len(issued), came=len(arrived) if arrived.ndim == 1 else -1)
    bad = arrived < issued
    if bad.any():
        row = int(bad.argmax())
        raise InvalidInput(f"outcome must not come before its forecast, got {arrived[row].item()!r} - at row {row}")
    check_interval("came", float(np.nanmax(arrived, initial=0.0)), 0.0, 1e11)
    return arrived
