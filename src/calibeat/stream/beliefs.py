"""What can be read off a calibrator: its counts, its parameters, its evidence against the raw score, its row."""

from __future__ import annotations

import math
import warnings
from threading import RLock
from typing import Any

import numpy as np

from calibeat._util.check import check_interval
from calibeat._util.types import Vector
from calibeat.core import layout
from calibeat.core.kernel import NEXT
from calibeat.core.method import Method, name_of, on_the_ball, params_of
from calibeat.errors import InvalidInput
from calibeat.export import Export, frozen_map
from calibeat.monitor.monitor import Monitor

from .receipts import Receipts
from .watch import OURS, Watch


class Beliefs:
    """The readable half of `Calibrator`. Each reading is of one moment, whatever other threads do."""

    _method: Method
    _lock: RLock
    _row: Any
    _asked: Any
    _receipts: Receipts
    _watch: Watch
    _owed: tuple[Any, ...] | None
    _is_forked: bool
    _signature: str

    @property
    def _events(self) -> int:
        """How many forecasts were made; it stands where the kernels count it."""
        return int(self._asked[NEXT])

    @_events.setter
    def _events(self, events: int) -> None:
        self._asked[NEXT] = events

    @property
    def method(self) -> Method:
        """The three parts."""
        return self._method

    @property
    def events(self) -> int:
        """How many forecasts were made."""
        self._refresh()
        return self._events

    @property
    def outcomes(self) -> int:
        """How many outcomes were learnt."""
        self._refresh()
        return int(self._row[layout.N])

    @property
    def monitor(self) -> Monitor | None:
        """The monitor of the forecasts, if there is one.

        >>> from calibeat import Calibrator, Monitor
        >>> cal = Calibrator("ops", monitor=Monitor(arl=100_000))
        >>> p = cal.run([0.2, 0.7, 0.6], [0, 1, 1])
        >>> cal.monitor.outcomes, cal.monitor.alarms
        (3, [])
        """
        return self._watch.monitors.get(OURS)

    @property
    def monitors(self) -> dict[str, Monitor]:
        """The monitors by what they watch: "ours", "raw", "still"."""
        return dict(self._watch.monitors)

    @property
    def params(self) -> dict[str, Any]:
        """The parameters by their names in the paper; for a histogram its edges and means.

        For `Lanes`, with x = logit f and g = log f + log(1 - f) + log 4: slope a of x, bend c of g and offset b, as
        means over the lanes with their weights (the raw score counts as (1, 0, 0), the paper's OPS as (a, 0, b)), and
        under ``"lanes"`` the weights themselves, which say how fast the world moves.

        >>> from calibeat import Calibrator, OBS
        >>> Calibrator().params["lanes"]["slow"] == 1 / 6
        True

        AIOLI's parameters depend on the score at hand; shown is the part that does not, -Q^-1 c.

        >>> Calibrator(OBS).params
        {'a': 1.0, 'b': -1.0, 'c': 0.0}
        """
        with self._lock:
            self._refresh()
            return params_of(self._method, self._row[:])

    @property
    def on_the_ball(self) -> bool:
        """Whether the parameters lie on the ball that bounds them: separable data, or a radius that is too small."""
        with self._lock:
            self._refresh()
            return on_the_ball(self._method, self._row[:])

    @property
    def evidence(self) -> float:
        """Log likelihood ratio of the forecasts against the raw scores, over the outcomes learnt so far, in nats.

        Positive: the forecasts have served better. If the scores were the true probabilities, exp(evidence) would be
        a supermartingale that starts at 1 and would ever reach 1/alpha with probability at most alpha: an e-value,
        valid at any time. (Beyond the clip of the features the score or the clip counts, whichever did better, and
        forecasts count as if they stayed in [1e-7, 1 - 1e-7].) When outcomes are late, this wants that neither their
        delay nor later scores depend on outcomes still under way. Kept by methods with `Lanes` or a `Spline`.

        >>> from calibeat import Calibrator
        >>> cal = Calibrator()
        >>> p = cal.run([0.8] * 40, [1, 0] * 20)
        >>> round(cal.evidence, 2), cal.alarm(), cal.alarm(alpha=0.001)
        (6.33, True, False)

        References: Ville (1939); Shafer, Shen, Vereshchagin & Vovk (2011).
        """
        if not self._method.mixes:
            raise InvalidInput(
                "evidence must be kept by a method with Lanes or a Spline, such as AUTO, "
                f"got {name_of(self._method) or self._method}"
            )
        at = int(self._method.spec[layout.EVIDENCE])
        with self._lock:
            self._refresh()
            row = self._row[:]
            return float(row[at] + math.log(row[at + 1]))

    def alarm(self, alpha: float = 0.05) -> bool:
        """Whether the evidence now speaks against "the raw score is calibrated" at level alpha.

        Look as often as you like: if the raw score is calibrated, the probability that it is ever True is at most
        alpha (Ville's inequality). It may turn False again, when a score that was wrong has become right.

        **Late outcomes.** The promise holds for any delay while no outcome overtakes that of an earlier event. If some
        do, it holds only if the delay does not depend on the outcome. Where ones are reported at once and zeros after
        a time-out, as conversions are, the first outcomes to come are all ones, and a calibrated score gives a false
        alarm nearly always. Then learn the outcomes in the order of the events: hold each back until all earlier ones
        are known. An alarm while an earlier event waits for its outcome comes with a `UserWarning` that says so.
        """
        threshold = -math.log(check_interval("alpha", alpha, 1e-300, 1.0))
        with self._lock:
            speaks = self.evidence >= threshold
            overtaken = speaks and self._receipts.settled.overtaken()
        if overtaken:
            warnings.warn(
                "the alarm counts outcomes that came before those of earlier events: it is valid only if the delay of "
                "an outcome does not depend on the outcome",
                UserWarning,
                stacklevel=2,
            )
        return speaks

    @property
    def row(self) -> Vector:
        """The state of the stream: [t, n, theta..., matrix..., cells..., evidence], a read-only copy."""
        with self._lock:
            self._refresh()
            row = self._view().copy()
        row.flags.writeable = False
        return row

    def export(self) -> Export:
        """The present map from score to forecast, frozen: as numbers and as Python, SQL, JSON or ONNX. See `Export`."""
        return frozen_map(self)  # type: ignore[arg-type]  # a calibrator

    def _view(self) -> Vector:
        return np.frombuffer(self._row)

    def __repr__(self) -> str:
        name = name_of(self._method)
        self._refresh()
        return f"Calibrator({name.upper() if name else self._method}, events={self._events}, outcomes={self.outcomes})"

    def _refresh(self) -> None:
        """Finish what an interrupted call has left; the member of a bank also looks where its row is now."""
        if self._owed is not None or self._is_forked:
            with self._lock:
                self._recover()

    def _recover(self) -> None:
        """Do what an interrupt has left undone, or what a new process asks for. The caller holds the lock.

        An interrupt may come here too: then the next call does it.
        """
        if self._owed is not None:
            tell, *arguments = self._owed
            tell(*arguments)
            self._owed = None
        if self._is_forked:
            self._receipts.issuer.begin(self._events)
            self._signature, self._is_forked = "", False
