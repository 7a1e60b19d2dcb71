"""calibeat's OPS in a river pipeline beside river's own Newton logistic regression on the same features."""

import math
import time

import numpy as np
from river import base, compose, linear_model, optim

from calibeat import ONS, OPS, Calibrator, Method, Platt, metrics
from calibeat.examples import flights
from calibeat.river import OnlineCalibrated

CLIP = Platt().clip


class Score(base.Classifier):
    """A base model that is already there: its score is a feature of the event."""

    def predict_proba_one(self, x, **_):
        return {False: 1.0 - x["score"], True: x["score"]}

    def learn_one(self, x, y, **_):
        """Nothing: the model was trained in January."""


def features(x):
    """The features of Platt scaling."""
    f = min(max(x["score"], CLIP), 1.0 - CLIP)
    return {"logit": math.log(f / (1.0 - f)), "1": 1.0}


def newton():
    """river's online Newton step with the gain 1/gamma and the ridge rho of calibeat's ONS; it starts at zero."""
    optimizer = optim.Newton(lr=1.0 / ONS().gamma, eps=ONS().rho)
    return compose.FuncTransformer(features) | linear_model.LogisticRegression(optimizer, intercept_lr=0.0)


def replay(model, scores, outcomes):
    """Forecast, then learn, event after event -> forecasts, CPU microseconds an event."""
    forecasts, begin = [], time.thread_time()
    for score, outcome in zip(scores, outcomes, strict=True):
        x = {"score": score}
        forecasts.append(model.predict_proba_one(x)[True])
        model.learn_one(x, outcome)
    return forecasts, 1e6 * (time.thread_time() - begin) / len(scores)


def main(events=50_000):
    """Print the table; give back the parameters of the first two rows."""
    stream = flights()
    known = ~np.isnan(stream.outcomes)
    scores, outcomes = stream.scores[known][:events].tolist(), (stream.outcomes[known][:events] == 1.0).tolist()
    from_zero = Method(Platt(start=(0.0, 0.0)), ONS())
    print(
        "| a binary classifier in river, one event at a time | a | b | log-loss | µs per event |\n|---|---|---|---|---|"
    )
    params = []
    for name, model in (
        ("river: `FuncTransformer(logit)`, `LogisticRegression(Newton)`", newton()),
        ("calibeat: `OnlineCalibrated(model, OPS)`, started at zero as river is", OnlineCalibrated(Score(), from_zero)),
        ("calibeat: `OnlineCalibrated(model, OPS)`, started at the score itself", OnlineCalibrated(Score(), OPS)),
    ):
        forecasts, cost = replay(model, scores, outcomes)
        if isinstance(model, OnlineCalibrated):
            a, b = model.calibrator.params.values()
        else:
            a, b = (model["LogisticRegression"].weights[key] for key in ("logit", "1"))
        params.append((a, b))
        print(f"| {name} | {a:.4f} | {b:.4f} | {metrics.log_loss(outcomes, forecasts):.6f} | {cost:.1f} |")
    cal = Calibrator(OPS)
    first = cal.run(scores[:10], outcomes[:10])  # the kernels are in memory now
    arrays, begin = (np.array(scores[10:]), np.array(outcomes[10:])), time.thread_time()
    rest = cal.run(*arrays)
    cost, (a, b) = 1e6 * (time.thread_time() - begin) / len(arrays[0]), cal.params.values()
    loss = metrics.log_loss(outcomes, np.concatenate([first, rest]))
    name = "the same without river: `Calibrator(OPS).run` over arrays"
    print(f"| {name} | {a:.4f} | {b:.4f} | {loss:.6f} | {cost:.2f} |")
    return params[:2]


if __name__ == "__main__":
    main()
