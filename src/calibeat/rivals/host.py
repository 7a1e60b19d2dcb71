"""`Host`: a rival served as `Calibrator` serves a method, one forecast at a time or a batch, outcomes now or later."""

from __future__ import annotations

import copy
import uuid
from typing import Any

import numpy as np

from calibeat._util.check import check_due, check_lengths, check_outcome, check_outcomes, check_score, check_scores
from calibeat._util.columns import like, to_array
from calibeat.errors import InvalidInput, OutcomeConflict, UnknownForecast
from calibeat.stream.forecast import Forecast

from .play import maker_of, play, probability_of

_OPEN = 2  # an outcome that has not come


class Host:
    """A method of your own behind the face of a `Calibrator`.

    Parameters
    ----------
    rival : an object with ``predict(score)`` and ``update(score, outcome)``, of which a copy is kept; or a class or
        function that makes one.
    name : for messages.

    >>> class Share:
    ...     def __init__(self): self.sum, self.n = 0.5, 1.0
    ...     def predict(self, score): return self.sum / self.n
    ...     def update(self, score, outcome): self.sum, self.n = self.sum + outcome, self.n + 1.0
    >>> Host(Share).run([0.2, 0.7, 0.7], [0, 1, 1]).round(4)
    array([0.5 , 0.25, 0.5 ])
    >>> Host(Share).run([0.2, 0.7, 0.7], [0, 1, 1], due=[2, 3, 4]).round(4)     # each outcome one event late
    array([0.5 , 0.5 , 0.25])
    """

    def __init__(self, rival: Any, name: str = "rival") -> None:
        self.name = name
        self._rival = maker_of(rival, name)()
        self._issuer = uuid.uuid4().hex[:16]
        self._known = bytearray()  # of each event: its outcome, or that it has none yet

    @property
    def rival(self) -> Any:
        """The object that learns."""
        return self._rival

    @property
    def events(self) -> int:
        """How many forecasts were made."""
        return len(self._known)

    @property
    def outcomes(self) -> int:
        """How many outcomes were learnt."""
        return len(self._known) - self._known.count(_OPEN)

    def predict(self, score: Any) -> Forecast:
        """A probability, and the receipt that `update` wants back: now or any time later."""
        asked = check_score(score)
        p = probability_of(self._rival, asked, self.name, self.events)
        self._known.append(_OPEN)
        return Forecast(p, asked, p, 0, 0, self.events - 1, self.outcomes, self._issuer)

    def update(self, forecast: Forecast, outcome: Any) -> None:
        """Learn the outcome of a forecast. A repeat changes nothing; a contradiction is an `OutcomeConflict`."""
        y = check_outcome(outcome)
        if not isinstance(forecast, Forecast):
            raise InvalidInput(f"forecast must be what predict gave, got {type(forecast).__name__}")
        if forecast.issuer != self._issuer or forecast.event >= self.events:
            raise UnknownForecast(f"forecast must be one of the {self.events} that this host has made, got another")
        known = self._known[forecast.event]
        if known == _OPEN:
            self._rival.update(forecast.score, y)
            self._known[forecast.event] = int(y)
        elif known != y:
            raise OutcomeConflict(
                f"outcome must be {known}, as it was learnt, got {int(y)} - at event {forecast.event}"
            )

    def run(self, scores: Any, outcomes: Any, due: Any = None) -> Any:
        """Forecast and learn a batch; the forecasts, in the kind of the scores.

        An outcome that is NaN is not learnt. With `due`, outcome i is learnt just before prediction due[i] of the
        batch. One that is due behind its end is not learnt. If something is wrong with one event, none is taken: a copy
        of the rival plays, and takes its place at the end.
        """
        asked = check_scores(scores)
        n = len(asked)
        values = to_array(outcomes)
        missing = np.array([value is None or value != value for value in values], dtype=bool)  # noqa: PLR0124 - NaN
        known = check_outcomes(values, ~missing)
        check_lengths(scores=n, outcomes=len(known))
        when = np.arange(1, n + 1) if due is None else check_due(due, n)
        order = np.flatnonzero(~missing)
        order = order[np.argsort(when[order], kind="stable")]
        begin, rival, marks = self.events, copy.deepcopy(self._rival), self._known + bytes([_OPEN]) * n

        def learnt(j: int) -> None:
            marks[begin + j] = int(known[j])

        forecasts = play(
            lambda _: rival,
            [0] * n,
            asked,
            known,
            when.tolist(),
            order.tolist(),
            name=self.name,
            begin=begin,
            on_learnt=learnt,
        )
        self._rival, self._known = rival, marks
        return like(scores, forecasts)
