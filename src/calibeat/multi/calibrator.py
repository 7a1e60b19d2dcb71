"""The host of one stream with many classes: it checks what comes in, and remembers what was learnt."""

from __future__ import annotations

import hashlib
import math
import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from calibeat._util.check import check_choice, check_due, check_interval, check_whole
from calibeat._util.columns import like_matrix
from calibeat._util.sealed import seal, unseal
from calibeat._util.types import Vector
from calibeat.errors import InvalidInput, SnapshotMismatch
from calibeat.stream.receipts import Issuer

from .check import Classes, Label, check_scores
from .export import MultiExport
from .forecast import MultiForecast
from .pair import PairStream
from .receipts import PENDING, Receipts
from .vector import VectorStream

METHODS = ("raw", "ots", "multi")
KIND, FORMAT = "calibeat/multi", 1
FIELDS = ("classes", "method", "logits", "events", "stream", "settled", "lives")


class MultiCalibrator:
    r"""Turns K scores into K probabilities, one stream of events, learning from every label.

    Parameters
    ----------
    classes : the number of classes, or their labels in the order of the columns.
    method : ``"multi"`` learns what helps: temperature, class priors, confusions, at several speeds of drift;
        ``"ots"`` is online temperature scaling alone; ``"raw"`` changes nothing. Two classes are served by AUTO.
    logits : whether the scores are logits (any finite numbers), to be sent through softmax first. Otherwise they are
        probabilities, each 0 or more, of sum 1 within 1e-6.

    >>> from calibeat import MultiCalibrator
    >>> cal = MultiCalibrator(["cat", "dog", "bird"])
    >>> f = cal.predict([0.2, 0.5, 0.3])       # a forecast is also a receipt
    >>> f.probabilities.round(6).tolist(), f.label
    ([0.2, 0.5, 0.3], 'dog')
    >>> cal.update(f, "bird")                  # now or any time later, in any order
    >>> cal.predict([0.2, 0.5, 0.3]).probabilities.round(3).tolist()
    [0.188, 0.421, 0.391]

    Over arrays, with the same bits as the loop above, from the present state on:

    >>> P = cal.run([[0.1, 0.8, 0.1], [0.6, 0.3, 0.1]], ["dog", "cat"])
    >>> P.shape
    (2, 3)

    A stream is 75 + 20 K numbers, and 2 K^2 more up to K = 64. Threads may share a calibrator; each call waits for
    the one before.

    References: Gupta & Ramdas (2023), whose future work this is; Guo et al. (2017); `docs/multiclass.md`.
    """

    def __init__(self, classes: Any, method: str = "multi", logits: bool = False) -> None:
        if not isinstance(logits, (bool, np.bool_)):
            raise InvalidInput(f"logits must be True or False, got {logits!r:.60}")
        self._classes = Classes(classes)
        self._method, self._logits = check_choice("method", method, METHODS), bool(logits)
        pair = self._classes.count == 2 and self._method == "multi"
        self._stream: VectorStream | PairStream = (
            PairStream() if pair else VectorStream(self._method, self._classes.count)
        )
        self._events = 0
        self._latest: MultiForecast | None = None  # the latest forecast made here
        identity = repr((self._method, self._logits, self._classes.labels)).encode()
        self._receipts = Receipts(Issuer(hashlib.blake2b(identity, digest_size=8).hexdigest()))
        self._lock = threading.RLock()

    # ---- one event ------------------------------------------------------------------------------------------------

    def predict(self, scores: npt.ArrayLike) -> MultiForecast:
        """Forecast one event of K scores. Nothing is learnt; keep the forecast until the label is known.

        >>> from calibeat import MultiCalibrator
        >>> MultiCalibrator(3, method="raw").predict([0.5, 0.25, 0.25]).probabilities.tolist()
        [0.5, 0.25, 0.25]
        """
        score = check_scores(scores, self._classes, self._logits, one=True)
        with self._lock:
            signature = self._receipts.issuer.sign()
            self._latest = None
            forecast = self._stream.predict(score, self._events, self._classes.labels, signature)
            self._latest = forecast
            self._events += 1
        return forecast

    def update(self, forecast: MultiForecast, label: Label) -> None:
        """Learn the label of a forecast, now or any time later, in any order.

        The same label a second time changes nothing; another one is an `OutcomeConflict`, also when the receipt
        travelled as JSON or the calibrator was restored in between. `docs/receipts.md` says how far back that reaches.

        >>> from calibeat import MultiCalibrator
        >>> cal = MultiCalibrator(["cat", "dog", "bird"])
        >>> first, second = cal.predict([0.1, 0.1, 0.8]), cal.predict([0.3, 0.3, 0.4])
        >>> cal.update(second, "cat")
        >>> cal.update(first, "bird")
        """
        if not isinstance(forecast, MultiForecast):
            raise InvalidInput(f"forecast must be a MultiForecast made by predict, got {type(forecast).__name__}")
        y = self._classes.column(label)
        with self._lock:
            if forecast is not self._latest:
                expert, K = self._method == "multi", self._classes.count
                self._receipts.check(forecast, self._events, self.outcomes, K, expert=expert)
            if self._receipts.is_repeat(forecast.event, y, self._classes):
                return
            latest, self._latest = forecast is self._latest, None
            n = self.outcomes
            try:
                self._receipts.settle(forecast.event, y)
                self._stream.update(forecast, y, latest=latest)
            except BaseException:  # also an interrupt: the label is learnt and settled, or neither
                if self.outcomes == n:
                    self._receipts.settled.reopen(forecast.event)
                raise

    def peek(self, scores: npt.ArrayLike) -> Vector:
        """What `predict` would say now: the probabilities alone, no event is made."""
        score = check_scores(scores, self._classes, self._logits, one=True)
        with self._lock:
            self._latest = None
            return self._stream.predict_many(score[None, :])[0]

    # ---- many events ----------------------------------------------------------------------------------------------

    def run(self, scores: Any, labels: Any, *, due: npt.ArrayLike | None = None, finish: bool = False) -> Any:
        """Predict and then update, event after event; the same bits as doing so one by one.

        Parameters
        ----------
        scores : a matrix or a data frame of K columns, a row for each event.
        labels : the label of each event.
        due : for late labels. Label i is learnt just before prediction ``due[i]`` (> i), in order of (due, i); one
            that is due at ``len(scores)`` or later never arrives, and its place in `labels` may hold anything.
        finish : labels that are due later are learnt at the end, after the last prediction.

        Returns the forecasts, as a frame if the scores are one. If something is wrong with one event, none is taken.

        >>> from calibeat import MultiCalibrator
        >>> cal = MultiCalibrator(3)
        >>> labels = [0, 0, 1, 0, 2, 0, 0, 1] * 50
        >>> P = cal.run([[0.2, 0.5, 0.3]] * 400, labels)      # the truth is 5/8, 2/8, 1/8
        >>> P[0].round(3).tolist(), P[200:].mean(axis=0).round(2).tolist()
        ([0.2, 0.5, 0.3], [0.63, 0.24, 0.12])
        """
        matrix = check_scores(scores, self._classes, self._logits)
        n = len(matrix)
        late = None
        if due is None:
            columns = self._classes.columns(labels, n)
            learnt = columns
        else:
            arrivals = np.minimum(check_due(due, n), n if finish else n + 1)
            comes = arrivals <= (n if finish else n - 1)
            columns = self._classes.columns(labels, n, needed=comes)
            order = np.argsort(arrivals, kind="stable")
            late = arrivals, order[comes[order]]
            learnt = np.where(comes, columns, PENDING)
        with self._lock:
            self._latest = None
            forecasts = self._stream.run(matrix, columns, self._events, late, finish=finish)
            self._receipts.settle_all(self._events, learnt)
            self._events += n
        return like_matrix(scores, forecasts)

    def predict_many(self, scores: Any) -> Any:
        """Forecast many events from the present state: no receipts, nothing learnt, nothing changed.

        >>> from calibeat import MultiCalibrator
        >>> MultiCalibrator(3, logits=True).predict_many([[0.0, 0.0, 0.0]]).round(6).tolist()
        [[0.333333, 0.333333, 0.333333]]
        """
        matrix = check_scores(scores, self._classes, self._logits)
        with self._lock:
            self._latest = None
            return like_matrix(scores, self._stream.predict_many(matrix))

    # ---- what it believes -----------------------------------------------------------------------------------------

    @property
    def classes(self) -> tuple[Label, ...]:
        """The labels in the order of the columns."""
        return self._classes.labels

    @property
    def method(self) -> str:
        """``"raw"``, ``"ots"`` or ``"multi"``."""
        return self._method

    @property
    def logits(self) -> bool:
        """Whether the scores are logits."""
        return self._logits

    @property
    def events(self) -> int:
        """How many forecasts were made."""
        return self._events

    @property
    def outcomes(self) -> int:
        """How many labels were learnt."""
        return self._stream.outcomes

    @property
    def params(self) -> dict[str, Any]:
        """What was learnt, in words.

        ``"lanes"``: the weight of each speed of drift (still, slow, fast, priors only), of the raw score and of the
        online temperature. As means over the lanes with these weights: ``"a"``, ``"c"``, ``"d"``, the numbers that
        all classes share (slope of the logarithm of the score, of the score itself, of a score at the floor), and
        ``"bias"`` per class. exp(bias) is the estimated change of the class prior since the scores were made; only
        ratios between classes matter. ``"stages"``, ``"top"`` and ``"guard"`` are the weights of the later stages.

        For ``"ots"``: ``"a"``, one over the temperature. For two classes: the parameters of AUTO, and the bias.

        >>> from calibeat import MultiCalibrator
        >>> cal = MultiCalibrator(["cat", "dog", "bird"])
        >>> P = cal.run([[0.4, 0.3, 0.3]] * 400, ["bird", "bird", "cat", "dog"] * 100)      # birds are more common
        >>> bias = cal.params["bias"]
        >>> max(bias, key=bias.get)
        'bird'
        """
        with self._lock:
            return self._stream.params(self._classes.labels)

    @property
    def row(self) -> Vector:
        """The state of the stream, a read-only copy: [t, n, weights, shared numbers, ...], see `multi/layout.py`."""
        with self._lock:
            row = np.array(self._stream.row[: self._stream.width])
        row.flags.writeable = False
        return row

    @property
    def evidence(self) -> float:
        """Log likelihood ratio of the forecasts against the raw scores, over the labels learnt so far, in nats.

        Positive: the forecasts have served better. If the scores were the true probabilities, exp(evidence) would be
        a supermartingale that starts at 1, an e-value, valid at any time. (A score below 1e-7 counts as 1e-7.)

        >>> from calibeat import MultiCalibrator
        >>> cal = MultiCalibrator(3)
        >>> P = cal.run([[0.8, 0.1, 0.1]] * 60, [0, 1, 2] * 20)
        >>> cal.evidence > 10, cal.alarm(alpha=0.001)
        (True, True)

        References: Ville (1939); Shafer, Shen, Vereshchagin & Vovk (2011).
        """
        with self._lock:
            return self._stream.evidence

    def alarm(self, alpha: float = 0.05) -> bool:
        """Whether the evidence now speaks against "the raw scores are calibrated" at level alpha.

        Look as often as you like: if they are, the probability that it is ever True is at most alpha (Ville's
        inequality; for late labels if neither their delay nor later scores depend on labels still under way).
        """
        return self.evidence >= -math.log(check_interval("alpha", alpha, 1e-300, 1.0))

    def export(self) -> MultiExport:
        """The present map from scores to forecasts, frozen: as numbers, and as Python or JSON. See `MultiExport`."""
        with self._lock:
            numbers, pair = self._stream.frozen()
        return MultiExport(numbers, self._classes.labels, self._method, self._logits, pair)

    def __repr__(self) -> str:
        return (
            f"MultiCalibrator({self._classes.count} classes, method={self._method!r}, events={self._events}, "
            f"outcomes={self.outcomes})"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies, also those of other processes, are made of the snapshot."""
        return MultiCalibrator.from_json, (self.to_json(),)

    # ---- state ----------------------------------------------------------------------------------------------------

    def to_json(self) -> str:
        """The whole state as text: versioned, checksummed, every float exact.

        >>> from calibeat import MultiCalibrator
        >>> cal = MultiCalibrator(3)
        >>> P = cal.run([[0.2, 0.5, 0.3]], [2])
        >>> twin = MultiCalibrator.from_json(cal.to_json())
        >>> (twin.peek([0.2, 0.5, 0.3]) == cal.peek([0.2, 0.5, 0.3])).all()
        np.True_
        """
        with self._lock:
            return seal(
                KIND,
                FORMAT,
                {
                    "classes": self._classes.given,
                    "method": self._method,
                    "logits": self._logits,
                    "events": self._events,
                    "stream": self._stream.state(),
                    **self._receipts.dump(self._events),
                },
            )

    @classmethod
    def from_json(cls, text: str | bytes) -> MultiCalibrator:
        """Continue from `to_json`. Damaged or foreign text is a `SnapshotMismatch` that says what is wrong."""
        state = unseal(KIND, FORMAT, FIELDS, text)
        try:
            calibrator = cls(state["classes"], state["method"], state["logits"])
            events = check_whole("events", state["events"], 0, 2**53)
            calibrator._stream.restore(state["stream"], events)
            name, K = calibrator._receipts.issuer.name, calibrator._classes.count
            calibrator._receipts = Receipts.load(name, state, events, calibrator.outcomes, K)
        except (InvalidInput, TypeError, KeyError) as error:
            raise SnapshotMismatch(f"snapshot must hold what a calibrator can hold: {error}") from error
        calibrator._events = events
        return calibrator
