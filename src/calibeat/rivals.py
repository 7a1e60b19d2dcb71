"""Methods of your own, and of other libraries, beside calibeat's: any object with `predict` and `update`.

A rival is plain Python: ``predict(score)`` gives a probability, ``update(score, outcome)`` learns an outcome. `Host`
serves one as `Calibrator` serves a method, and ``calibeat.backtest(..., methods={"mine": Mine})`` judges one. Both are
as slow as the rival. docs/own-method.md builds one.

A rival that looks at attributes of events has ``takes_groups = True``, and one argument more in both methods: a tuple
with a whole number for each attribute, the hash of its value (`GroupedRival`).

>>> class ShareOfOnes:
...     def __init__(self):
...         self.ones, self.all = 1.0, 2.0
...     def predict(self, score):
...         return self.ones / self.all
...     def update(self, score, outcome):
...         self.ones, self.all = self.ones + outcome, self.all + 1.0
>>> host = Host(ShareOfOnes)
>>> forecast = host.predict(0.83)
>>> host.update(forecast, 1)
'learnt'
>>> round(host.predict(0.83).probability, 4)
0.6667
"""

from __future__ import annotations

import copy
import math
import uuid
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from typing import Any, ClassVar, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np

from calibeat._compiled import CLOSED, OPEN, ZERO, Forecast, Ledger, not_a_receipt
from calibeat._util.check import (
    check_due,
    check_lengths,
    check_outcome,
    check_outcomes,
    check_scale,
    check_score,
    check_scores,
    check_whole,
    shown,
)
from calibeat._util.columns import like
from calibeat._util.extras import need
from calibeat._util.types import Ints, UpdateStatus, Vector
from calibeat.hosts.groups import PAIRS_UP_TO, Groups, WordMaker
from calibeat.late import in_order

from .errors import InvalidInput, OutcomeConflict, UnknownForecast

__all__ = ["READY", "GroupedRival", "HashedLogistic", "Host", "Isotonic", "MCGrad", "Rival", "RiverSGD", "Sigmoid"]

Words = tuple[int, ...]


@runtime_checkable
class Rival(Protocol):
    """What a method of your own must have.

    >>> class Nothing:
    ...     def predict(self, score): return score
    ...     def update(self, score, outcome): pass
    >>> isinstance(Nothing(), Rival), isinstance("ops", Rival)
    (True, False)
    """

    def predict(self, score: float) -> float:
        """The probability that the outcome is 1, from a score in [0, 1]."""

    def update(self, score: float, outcome: float) -> None:
        """Learn the outcome, 0.0 or 1.0, of an event that had this score. It may come long after `predict`."""


@runtime_checkable
class GroupedRival(Protocol):
    """What a method of your own must have that looks at attributes too.

    `groups` are whole numbers, one for each attribute in order: hashes of the values. Equal values have equal hashes.

    >>> class PerCountry:
    ...     takes_groups = True
    ...     def __init__(self): self.counts = {}
    ...     def predict(self, score, groups):
    ...         ones, events = self.counts.get(groups, (score, 1.0))
    ...         return ones / events
    ...     def update(self, score, outcome, groups):
    ...         ones, events = self.counts.get(groups, (score, 1.0))
    ...         self.counts[groups] = ones + outcome, events + 1.0
    >>> Host(PerCountry, groups=["country"]).run([0.5] * 4, [1, 0, 1, 0], groups={"country": ["fr", "it"] * 2})
    array([0.5 , 0.5 , 0.75, 0.25])
    """

    takes_groups: bool

    def predict(self, score: float, groups: Words) -> float:
        """The probability that the outcome is 1."""

    def update(self, score: float, outcome: float, groups: Words) -> None:
        """Learn the outcome, 0.0 or 1.0, of an event that had this score and these groups."""


class BatchedRival(Protocol):
    """What a rival may have besides, if it forecasts many events much faster than each alone.

    Its forecasts change with some outcomes only, such as every 500th. `play` then asks for all between two changes.
    """

    @property
    def changes_next(self) -> bool:
        """Whether the next outcome changes what it forecasts."""

    def predict_many(self, scores: list[float], groups: list[Words]) -> Any:
        """The probabilities of many events; no groups if it takes none."""


def takes_groups(rival: Any) -> bool:
    """Whether a rival looks at attributes."""
    return bool(getattr(rival, "takes_groups", False))


def is_rival(thing: Any) -> bool:
    """An object with both methods, or something that makes one when it is called."""
    return isinstance(thing, Rival) or (callable(thing) and not isinstance(thing, str))


def maker_of(thing: Any, name: str = "rival") -> Callable[[], Rival]:
    """A function that makes a new rival: of a class or a function it is the call, of an object a deep copy.

    The object itself is never changed.
    """
    if isinstance(thing, type) or not isinstance(thing, Rival):
        if not callable(thing):
            raise InvalidInput(f"{name} must have predict(score) and update(score, outcome), got {shown(thing)}")

        def make() -> Rival:
            made = thing()
            if not isinstance(made, Rival):
                raise InvalidInput(
                    f"{name} must make an object with predict(score) and update(score, outcome), got {shown(made)}"
                )
            return made

        return make
    return lambda: copy.deepcopy(thing)


def probability_of(rival: Any, score: float, name: str, event: int, groups: Words = ()) -> float:
    """What a rival forecasts, which must be a probability."""
    return _checked(rival.predict(score, groups) if takes_groups(rival) else rival.predict(score), name, event)


def _learn(rival: Any, score: float, outcome: float, groups: Words) -> None:
    if takes_groups(rival):
        rival.update(score, outcome, groups)
    else:
        rival.update(score, outcome)


def _checked(answer: Any, name: str, event: int) -> float:
    try:
        p = float(answer)
    except (TypeError, ValueError):
        p = -1.0
    if not 0.0 <= p <= 1.0:
        raise InvalidInput(f"{name} must predict a probability in [0, 1], got {shown(answer)} - at event {event}")
    return p


def play(
    rival_of: Callable[[int], Rival],
    slots: Sequence[int],
    scores: Vector,
    outcomes: Vector,
    due: Sequence[int],
    order: Sequence[int],
    *,
    words: Ints | None = None,
    first: int = 0,
    name: str = "rival",
    begin: int = 0,
) -> Vector:
    """Forecast the events from `first` on; outcome j of `order` is learnt just before prediction due[j].

    `order` is in the order of arrival. An outcome that is due one step behind the last event is learnt too. `words` are
    those of the attributes, events x attributes. `begin` is the number of the event at `first`, for messages.

    Raises
    ------
    InvalidInput : a forecast is no probability; or the rival looks at groups and there are none.
    """
    asked, known = scores.tolist(), outcomes.tolist()
    groups = [()] * len(asked) if words is None else list(map(tuple, words.view(np.uint64).tolist()))
    n, arrived = len(asked), 0
    forecasts = np.empty(n - first)
    waiting: dict[int, list[int]] = {}  # of a stream: events that it will be asked for together

    def ask(slot: int) -> None:
        events = waiting.pop(slot)
        rival: Any = rival_of(slot)
        own = [[groups[i] for i in events]] if takes_groups(rival) else []
        answers = rival.predict_many([asked[i] for i in events], *own)
        for i, answer in zip(events, answers, strict=True):
            forecasts[i - first] = _checked(answer, name, begin + i - first)

    for i in range(first, n + 1):
        while arrived < len(order) and due[order[arrived]] <= i:
            j = order[arrived]
            arrived += 1
            rival = rival_of(slots[j])
            if slots[j] in waiting and rival.changes_next:  # type: ignore[attr-defined]  # those that wait have it
                ask(slots[j])
            _learn(rival, asked[j], known[j], groups[j])
        if i < n:
            rival = rival_of(slots[i])
            if words is None and takes_groups(rival):
                raise InvalidInput(f"{name} looks at groups, got none - name their columns by groups= or --groups")
            if hasattr(rival, "predict_many") and hasattr(rival, "changes_next"):  # a `BatchedRival`
                waiting.setdefault(slots[i], []).append(i)
            else:
                forecasts[i - first] = probability_of(rival, asked[i], name, begin + i - first, groups[i])
    for slot in list(waiting):
        ask(slot)
    return forecasts


class _Served(NamedTuple):
    """What a host knows. A call replaces all of it in one assignment, or nothing."""

    rival: Rival
    events: int
    outcomes: int
    settled: Ledger


class Host:
    """Serves a method of your own with the methods of `Calibrator`.

    Parameters
    ----------
    rival : an object with ``predict(score)`` and ``update(score, outcome)``, of which a copy is kept; or a class or
        function that makes one.
    name : for messages.
    groups : names of attributes, for a rival that looks at them (`GroupedRival`).

    A call takes effect whole or not at all, also when Ctrl-C interrupts it: a copy of the rival learns, and replaces it
    at the end. Where `copy.deepcopy` is slow for your rival, give it a ``__deepcopy__``.

    Raises
    ------
    InvalidInput : the rival lacks `predict` or `update`; it looks at groups and none are named, or the other way round.

    >>> class Share:
    ...     def __init__(self): self.sum, self.n = 0.5, 1.0
    ...     def predict(self, score): return self.sum / self.n
    ...     def update(self, score, outcome): self.sum, self.n = self.sum + outcome, self.n + 1.0
    >>> Host(Share).run([0.2, 0.7, 0.7], [0, 1, 1]).round(4)
    array([0.5 , 0.25, 0.5 ])
    >>> Host(Share).run([0.2, 0.7, 0.7], [0, 1, 1], due=[2, 3, 4]).round(4)     # each outcome one event late
    array([0.5 , 0.5 , 0.25])
    """

    def __init__(self, rival: Any, name: str = "rival", groups: Groups | Sequence[str] | None = None) -> None:
        self.name = name
        self.groups = None if groups is None else Groups.of(groups).refuse_numbers("a rival")
        self._issuer = uuid.uuid4().hex[:16]
        made = maker_of(rival, name)()
        if takes_groups(made) != (groups is not None):
            wanted = "be named, the rival looks at them" if groups is None else "be left out, the rival takes none"
            raise InvalidInput(f"groups of {name} must {wanted}")
        self._served = _Served(made, 0, 0, Ledger())
        self._words = self._make_words()

    def _make_words(self) -> WordMaker | None:
        return None if self.groups is None else WordMaker(self.groups, self.groups.seed or 0)

    def __getstate__(self) -> dict[str, Any]:
        served: Any = self._served
        return {**vars(self), "_served": served._replace(settled=served.settled.dump()), "_words": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        served = state["_served"]
        settled = Ledger.load(served.settled, served.events, served.outcomes)
        vars(self).update(state, _served=served._replace(settled=settled))
        self._words = self._make_words()

    @property
    def rival(self) -> Any:
        """The object that learns. Every outcome replaces it by a copy that has learnt it."""
        return self._served.rival

    @property
    def events(self) -> int:
        """How many forecasts were made."""
        return self._served.events

    @property
    def outcomes(self) -> int:
        """How many outcomes were learnt."""
        return self._served.outcomes

    def predict(self, score: Any, groups: Any = None) -> Forecast:
        """A probability, which is also the receipt that `update` needs, now or any time later.

        `groups` has the values of the attributes, as for `Calibrator.predict`.

        Raises
        ------
        InvalidInput : a score outside [0, 1], groups that are not those of this host, or a rival that does not predict
            a probability.
        """
        asked, served, maker = check_score(score), self._served, self._maker_for(groups)
        words = () if maker is None else tuple(word % 2**64 for word in maker.of_event(groups))
        p = probability_of(served.rival, asked, self.name, served.events, words)
        forecast = Forecast(p, asked, p, 0, 0, served.events, served.outcomes, self._issuer, words=words)
        self._served = served._replace(events=served.events + 1)
        return forecast

    def update(self, forecast: Forecast, outcome: Any) -> UpdateStatus:
        """Learn the outcome of a forecast -> "learnt" or "repeated". A repeat changes nothing.

        Raises
        ------
        InvalidInput : an outcome other than 0 or 1, or something that is not a `Forecast`.
        UnknownForecast : the forecast was not made here, or is so old that nobody knows whether it has an outcome.
        OutcomeConflict : the forecast has another outcome already.
        """
        if not isinstance(forecast, Forecast):
            raise not_a_receipt(forecast, "Forecast", outcome)
        y, served = check_outcome(outcome), self._served
        event, mark = forecast.event, served.settled.mark(forecast.event)
        if forecast.issuer != self._issuer or event >= served.events or event < served.settled.given_up:
            raise UnknownForecast(f"forecast must be one of the {self.events} that this host has made, got another")
        if mark == OPEN:
            rival, settled = copy.deepcopy(served.rival), served.settled.copy()
            _learn(rival, forecast.score, y, forecast.words)
            settled.settle(event, int(y))
            self._served = served._replace(rival=rival, outcomes=served.outcomes + 1, settled=settled)
            return "learnt"
        if mark not in (CLOSED, ZERO + y):
            raise OutcomeConflict(f"outcome must be {mark - ZERO}, as it was learnt, got {int(y)} - at event {event}")
        return "repeated"

    def run(self, scores: Any, outcomes: Any, due: Any = None, groups: Any = None) -> Any:
        """Forecast and learn a batch; the forecasts, in the kind of the scores.

        An outcome that is NaN is not learnt. With `due`, outcome i is learnt just before prediction due[i] of the
        batch. One that is due after its end is not learnt. `groups` are columns, as for `Calibrator.run`.

        Raises
        ------
        InvalidInput : columns of different lengths or a number outside its range (the message names the row); groups
            that are not those of this host. Nothing is learnt then.
        """
        asked, known, served = check_scores(scores), check_outcomes(outcomes, optional=True), self._served
        n, missing = len(asked), np.isnan(known)
        check_lengths(scores=n, outcomes=len(known))
        maker = self._maker_for(groups)
        words = None if maker is None else maker.of_events(groups, n).reshape(n, -1)
        when = np.arange(1, n + 1) if due is None else check_due(due, n)
        learnt = ~missing & (when <= n)
        order = in_order(when, np.flatnonzero(learnt), n).tolist()
        events, rival = (asked, known, when.tolist(), order), copy.deepcopy(served.rival)
        forecasts = play(lambda _: rival, [0] * n, *events, words=words, name=self.name, begin=served.events)
        settled = served.settled.copy()
        settled.batch(served.events, np.where(learnt, known, np.nan))
        self._served = _Served(rival, served.events + n, served.outcomes + len(order), settled)
        return like(scores, forecasts)

    def _maker_for(self, groups: Any) -> WordMaker | None:
        """What makes words of these groups, if the host has any; they must be given then, and only then."""
        if (groups is None) != (self.groups is None):
            wanted = "left out, the host has none" if self.groups is None else ", ".join(self.groups.attributes)
            raise InvalidInput(f"groups must be {wanted}{', got none' if groups is None else ''}")
        return self._words


FIRST_FIT = 50  # outcomes before the first fit
CLIP = 1e-5  # no logit sees a score nearer to 0 or 1, as in our methods


def logit(score: float) -> float:
    """The logit of a score that is clipped to [1e-5, 1 - 1e-5]."""
    f = min(1.0 - CLIP, max(CLIP, score))
    return math.log(f / (1.0 - f))


class _Window(ABC):
    """The last outcomes, and a fit to them now and then."""

    _first: ClassVar[int] = FIRST_FIT

    def __init__(self, window: int = 5000, every: int = 500) -> None:
        self.window, self.every = check_whole("window", window, 2, 10**7), check_whole("every", every, 1, 10**7)
        self._past: deque[tuple[Any, ...]] = deque(maxlen=self.window)  # score, outcome, words of the groups
        self._learnt, self._early = 0, self._first  # a first fit, others at twice as many until `every` is reached
        self._fitted = False

    @property
    def changes_next(self) -> bool:
        """Whether the next outcome makes it fit."""
        n = self._learnt + 1
        return n % self.every == 0 or n == self._early < self.every

    def update(self, score: float, outcome: float, groups: Words = ()) -> None:
        """Keep the outcome; fit after 50, 100, 200, ... outcomes, and after every `every`."""
        fits = self.changes_next
        self._past.append((score, outcome, *groups))
        self._learnt += 1
        if self._learnt == self._early:
            self._early *= 2
        if fits:
            x, y, *columns = zip(*self._past, strict=True)
            if 0.0 < sum(y) < len(y):
                self._fit(np.array(x), np.array(y), *columns)
                self._fitted = True

    def __deepcopy__(self, _: Any) -> Self:
        made = copy.copy(self)  # a fit is replaced by the next, never changed
        made._past = self._past.copy()  # noqa: SLF001 - a copy of itself
        return made

    @abstractmethod
    def _fit(self, x: Any, y: Any, *columns: Words) -> None:
        """Fit to scores x, outcomes y, and a column of words for each attribute."""


class Isotonic(_Window):
    """scikit-learn's `IsotonicRegression`, fitted to the last `window` outcomes after every `every` outcomes.

    >>> from calibeat.rivals import Host
    >>> Host(Isotonic).run([0.2, 0.8] * 30, [0, 1, 1, 1] * 15)[-2:].round(2)
    array([0.48, 1.  ])
    """

    def __init__(self, window: int = 5000, every: int = 500) -> None:
        super().__init__(window, every)
        self._regression = need("sklearn.isotonic", extra="sklearn", what="the rival isotonic").IsotonicRegression
        self._at, self._to = np.zeros(1), np.zeros(1)

    def predict(self, score: float) -> float:
        """Between two steps of the fit, a straight line, as scikit-learn has it."""
        return float(np.interp(score, self._at, self._to)) if self._fitted else score

    def _fit(self, x: Any, y: Any, *_: Words) -> None:
        fitted = self._regression(y_min=0.0, y_max=1.0, out_of_bounds="clip").fit(x, y)
        self._at, self._to = fitted.X_thresholds_, fitted.y_thresholds_


class Sigmoid(_Window):
    """scikit-learn's sigmoid calibration of the logit, fitted to the last `window` outcomes after every `every`.

    It is `CalibratedClassifierCV(method="sigmoid")` around a model whose decision function is the logit of the score.

    >>> from calibeat.rivals import Host
    >>> Host(Sigmoid).run([0.2, 0.8] * 30, [0, 1, 1, 1] * 15)[-2:].round(2)
    array([0.5 , 0.97])
    """

    def __init__(self, window: int = 5000, every: int = 500) -> None:
        super().__init__(window, every)
        need("sklearn.calibration", extra="sklearn", what="the rival sigmoid")
        self._a, self._b = -1.0, 0.0

    def predict(self, score: float) -> float:
        """1 / (1 + exp(a logit(score) + b)), Platt's letters."""
        if not self._fitted:
            return score
        z = self._a * logit(score) + self._b
        return 1.0 / (1.0 + math.exp(min(700.0, z)))

    def _fit(self, x: Any, y: Any, *_: Words) -> None:
        from sklearn.calibration import CalibratedClassifierCV
        from sklearn.frozen import FrozenEstimator

        logits = np.log(np.clip(x, CLIP, 1.0 - CLIP)) - np.log1p(-np.clip(x, CLIP, 1.0 - CLIP))
        all_at_once = [(np.arange(len(y)), np.arange(len(y)))]  # a frozen model needs no folds
        model = CalibratedClassifierCV(FrozenEstimator(_logits_as_they_are()), method="sigmoid", cv=all_at_once)
        fitted = model.fit(logits.reshape(-1, 1), y).calibrated_classifiers_[0].calibrators[0]
        self._a, self._b = float(fitted.a_), float(fitted.b_)


def _logits_as_they_are() -> Any:
    """A fitted classifier whose decision function is its only feature."""
    from sklearn.linear_model import LogisticRegression

    linear = LogisticRegression()
    linear.classes_, linear.n_features_in_ = np.array([0.0, 1.0]), 1
    linear.coef_, linear.intercept_ = np.ones((1, 1)), np.zeros(1)
    return linear


class RiverSGD:
    """river's logistic regression on the logit of the score, by stochastic gradient descent, from the raw score on.

    >>> from calibeat.rivals import Host
    >>> Host(RiverSGD).run([0.2, 0.8] * 30, [0, 1, 1, 1] * 15)[-2:].round(2)
    array([0.23, 0.81])
    """

    def __init__(self, rate: float = 0.01) -> None:
        linear = need("river.linear_model", extra="river", what="the rival river-sgd")
        optim = need("river.optim", extra="river", what="the rival river-sgd")
        self.rate = check_scale("rate", rate)
        one = optim.initializers.Constant(1.0)  # the raw score: river would start from nothing
        self._model = linear.LogisticRegression(optim.SGD(self.rate), intercept_lr=self.rate, initializer=one)
        self._began = False

    def predict(self, score: float) -> float:
        """The probability of the outcome True; before the first step, the score."""
        if not self._began:
            return score
        return float(self._model.predict_proba_one({"logit": logit(score)})[True])

    def update(self, score: float, outcome: float) -> None:
        """One gradient step."""
        self._began = True
        self._model.learn_one({"logit": logit(score)}, outcome == 1.0)


class HashedLogistic:
    """river's logistic regression with AdaGrad on the logit and the hashed attributes, one step per outcome.

    Its features are those of `Groups`: the logit of the score, each attribute, and each pair of up to six, hashed into
    2^18 weights (river's `FeatureHasher`). Before 50 outcomes it forecasts the raw score. The rate is the best of 0.05,
    0.1 (river's own) and 0.2 on four streams.

    >>> from calibeat.rivals import Host
    >>> host = Host(HashedLogistic, groups=["country"])
    >>> host.run([0.5] * 200, [1, 0] * 100, groups={"country": ["fr", "it"] * 100})[-2:].round(2)
    array([0.7, 0.3])
    """

    takes_groups: ClassVar[bool] = True

    def __init__(self, rate: float = 0.05, features: int = 2**18) -> None:
        needed = {"extra": "river", "what": "the rival hashed-lr"}
        linear, optim = need("river.linear_model", **needed), need("river.optim", **needed)
        self.rate = check_scale("rate", rate)
        size = check_whole("features", features, 2, 2**30)
        self._hasher = need("river.preprocessing", **needed).FeatureHasher(size, seed=0)
        self._model = linear.LogisticRegression(optim.AdaGrad(self.rate), intercept_lr=self.rate)
        self._learnt = 0

    def predict(self, score: float, groups: Words) -> float:
        """The probability of the outcome True."""
        if self._learnt < FIRST_FIT:
            return score
        return float(self._model.predict_proba_one(self._features(score, groups))[True])

    def update(self, score: float, outcome: float, groups: Words) -> None:
        """One step."""
        self._learnt += 1
        self._model.learn_one(self._features(score, groups), outcome == 1.0)

    def _features(self, score: float, groups: Words) -> Any:
        found = {f"{k}={word}": 1.0 for k, word in enumerate(groups)}
        if len(groups) <= PAIRS_UP_TO:
            found |= {f"{a} & {b}": 1.0 for a, b in combinations(list(found), 2)}
        return self._hasher.transform_one({"logit": logit(score), **found})


class MCGrad(_Window):
    """Meta's MCGrad with its own settings, fitted after 1,000, 2,000, 4,000, ... outcomes, and after every `every`.

    A fit takes the last `window` outcomes and some seconds to minutes: nobody would do it more often. Before the first
    one it forecasts the raw score. The attributes are its categorical features.
    """

    takes_groups: ClassVar[bool] = True
    _first: ClassVar[int] = 1000

    def __init__(self, window: int = 100_000, every: int = 50_000) -> None:
        super().__init__(window, every)
        needed = {"extra": "mcgrad", "what": "the rival mcgrad"}
        self._make = need("mcgrad.methods", **needed).MCGrad
        need("pandas", **needed)
        self._model: Any = None

    def predict(self, score: float, groups: Words) -> float:
        """What the last fit says."""
        return float(self.predict_many([score], [groups])[0])

    def predict_many(self, scores: list[float], groups: list[Words]) -> Any:
        """The same of many events, a thousand times as fast."""
        if not self._fitted:
            return np.array(scores)
        frame, names = _frame_of(scores, zip(*groups, strict=True))
        return np.clip(self._model.predict(frame, "score", categorical_feature_column_names=names), 0.0, 1.0)

    def _fit(self, x: Any, y: Any, *columns: Words) -> None:
        frame, names = _frame_of(x, columns)
        frame["outcome"] = y.astype(np.int64)
        self._model = self._make()
        self._model.fit(frame, "score", "outcome", categorical_feature_column_names=names)


def _frame_of(scores: Any, columns: Iterable[Words]) -> tuple[Any, list[str]]:
    """Scores and attributes as a data frame of pandas, and the names of the attributes in it."""
    import pandas as pd

    named = {f"attribute {k}": [f"{word:016x}" for word in column] for k, column in enumerate(columns)}
    return pd.DataFrame({"score": scores, **named}), list(named)


READY: dict[str, Callable[[], Any]] = {
    "isotonic": Isotonic,
    "sigmoid": Sigmoid,
    "river-sgd": RiverSGD,
    "hashed-lr": HashedLogistic,
    "mcgrad": MCGrad,
}

READY_ABOUT = {
    "isotonic": "scikit-learn's isotonic regression, fitted every 500 outcomes to the last 5,000.",
    "sigmoid": "scikit-learn's sigmoid calibration, fitted every 500 outcomes to the last 5,000.",
    "river-sgd": "river's logistic regression on the logit of the score, one gradient step per outcome.",
    "hashed-lr": "river's logistic regression on the logit and the hashed attributes, one AdaGrad step per outcome.",
    "mcgrad": "Meta's MCGrad on the attributes, fitted after 1,000, 2,000, 4,000, ... and every 50,000 outcomes.",
}
