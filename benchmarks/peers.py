"""The same logistic regression by other libraries, one event at a time: forecast first, then learn the outcome.

Each contender gets the logits ready-made (calibeat starts from the scores and takes the logarithm itself) and a fresh
model, made off the clock, and returns its forecasts. Settings stay at each library's defaults except where they must
name the model: river's Newton gets the gain and the ridge of calibeat's ONS.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from river import linear_model, optim
from sklearn.linear_model import SGDClassifier
from vowpalwabbit import Workspace
from vowpalwabbit.pyvw import pylibvw

from benchmarks.stream import Stream
from benchmarks.timing import Maker


class Peer(NamedTuple):
    """A library's model and how it is fed; the goal is how many times faster `run` has to be, where one was set."""

    make: Callable[[], Any]
    feed: Callable[[Any, Stream], list[float]]
    goal: float | None = None


def river(model: Any, stream: Stream) -> list[float]:
    """river: predict_proba_one, then learn_one; the second parameter is a constant feature, so that Newton sees it."""
    forecasts = []
    for logit, outcome in zip(stream.logits.tolist(), (stream.outcomes == 1.0).tolist(), strict=True):
        x = {"logit": logit, "1": 1.0}
        forecasts.append(model.predict_proba_one(x)[True])
        model.learn_one(x, outcome)
    return forecasts


def sklearn(model: Any, stream: Stream) -> list[float]:
    """scikit-learn: partial_fit on one row at a time; it must have seen a row before it can forecast."""
    x, y = stream.logits.reshape(-1, 1), stream.outcomes
    model.partial_fit(x[:1], y[:1], classes=np.array([0.0, 1.0]))
    forecasts = [0.5]
    for i in range(1, len(y)):
        row = x[i : i + 1]
        forecasts.append(float(model.predict_proba(row)[0, 1]))
        model.partial_fit(row, y[i : i + 1])
    return forecasts


def wabbit_text(model: Any, stream: Stream) -> list[float]:
    """Vowpal Wabbit as its documentation shows it: a line of text to predict, a labelled line to learn."""
    forecasts = []
    for logit, outcome in zip(stream.logits.tolist(), stream.outcomes.tolist(), strict=True):
        forecasts.append(model.predict(f"| x:{logit}"))
        model.learn(f"{1 if outcome else -1} | x:{logit}")
    return forecasts


def wabbit_parsed(model: Any, stream: Stream) -> list[float]:
    """Vowpal Wabbit, one parse per event; an example without a label would never be learnt, so a dummy comes first."""
    forecasts = []
    for logit, outcome in zip(stream.logits.tolist(), stream.outcomes.tolist(), strict=True):
        example = model.parse(f"1 | x:{logit}")
        forecasts.append(model.predict(example))
        example.set_label_string("1" if outcome else "-1")
        model.learn(example)
        model.finish_example(example)
    return forecasts


def wabbit_native(model: Any, stream: Stream) -> list[float]:
    """Vowpal Wabbit beneath its Python classes: one native example, its only feature swapped for every event."""
    forecasts, space, kind = [], ord(" "), model.get_label_type().value
    template = model.parse("| x:1")
    feature = template.feature(" ", 0)
    model.finish_example(template)
    example = pylibvw.example(model, kind)
    example.set_label_string(model, "1", kind)
    example.push_namespace(space)
    example.push_hashed_feature(space, feature, 1.0)
    model.setup_example(example)
    predict, learn, setup, unsetup = pylibvw.vw.predict, pylibvw.vw.learn, model.setup_example, model.unsetup_example
    push, pop, label = example.push_hashed_feature, example.pop_feature, example.set_label_string
    forecast = example.get_simplelabel_prediction
    for logit, outcome in zip(stream.logits.tolist(), stream.outcomes.tolist(), strict=True):
        unsetup(example)
        pop(space)
        push(space, feature, logit)
        setup(example)
        predict(model, example)
        forecasts.append(forecast())
        label(model, "1" if outcome else "-1", kind)
        learn(model, example)
    return forecasts


def newton() -> Any:
    """river's online Newton on (logit, 1): calibeat's ONS up to the start at theta = 0."""
    return linear_model.LogisticRegression(optim.Newton(lr=10.0, eps=100.0), intercept_lr=0.0)


def sgd() -> Any:
    """river's default optimiser, plain gradient descent."""
    return linear_model.LogisticRegression(intercept_lr=0.0)


wabbit = partial(Workspace, "--loss_function logistic --link logistic --quiet")

NEWTON, SGD = "river LogisticRegression, Newton", "river LogisticRegression, SGD"
PARTIAL_FIT = "sklearn SGDClassifier.partial_fit"

PEERS = {
    NEWTON: Peer(newton, river, 100.0),
    SGD: Peer(sgd, river),
    PARTIAL_FIT: Peer(partial(SGDClassifier, loss="log_loss", random_state=0), sklearn, 100.0),
    "Vowpal Wabbit, text": Peer(wabbit, wabbit_text, 50.0),
    "Vowpal Wabbit, one parse": Peer(wabbit, wabbit_parsed, 50.0),
    "Vowpal Wabbit, native example": Peer(wabbit, wabbit_native, 50.0),
}


def quiet(feed: Callable[[Any, Stream], list[float]], model: Any, stream: Stream) -> list[float]:
    """The forecasts of a peer, its warnings kept to itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return feed(model, stream)


def contender(peer: Peer, stream: Stream) -> Maker:
    """A peer with a fresh model for every turn."""
    return lambda: partial(quiet, peer.feed, peer.make(), stream)
