"""scikit-learn: a model of January, frozen, and every Monday the labels of the week before."""

import numpy as np
from scipy.special import expit
from sklearn.compose import make_column_transformer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, SplineTransformer

from calibeat import Calibrator, metrics
from calibeat.examples import read_flights
from calibeat.sklearn import OnlineCalibratedClassifier

flights = read_flights().dropna(subset="late").iloc[::10]  # every tenth flight, to be quick
X = flights[["carrier", "origin", "dest", "minute_of_day", "weekday", "distance"]]
y = np.where(flights["late"] == 1, "late", "in time")
week = (flights["departs"] // (7 * 24 * 60)).to_numpy()
january = (flights["month"] == 1).to_numpy()

encode = make_column_transformer(
    (OneHotEncoder(handle_unknown="ignore"), ["carrier", "origin", "dest", "weekday"]),
    (SplineTransformer(), ["minute_of_day", "distance"]),
)
base = make_pipeline(encode, LogisticRegression(max_iter=1000)).fit(X[january], y[january])

model = OnlineCalibratedClassifier(FrozenEstimator(base), method="auto")
model.partial_fit(X[~january & (week < 6)], y[~january & (week < 6)])  # the first week of February
in_turn = Calibrator("auto")  # for comparison: it takes each label as if it had come before the next forecast
forecasts = {"base": [], "calibrated": [], "in turn": []}
for monday in range(6, int(week.max()) + 1):
    rows = week == monday
    scores = expit(base.decision_function(X[rows]))
    forecasts["base"].append(scores)  # forecasts first ...
    forecasts["calibrated"].append(model.predict_proba(X[rows])[:, 1])
    forecasts["in turn"].append(in_turn.predict_many(scores))
    model.partial_fit(X[rows], y[rows])  # ... and then what the week has taught
    in_turn.run(scores, y[rows] == "late")
late = y[week >= 6] == "late"
for name, weeks in forecasts.items():
    p = np.concatenate(weeks)
    print(f"{name:11} log-loss {log_loss(late, p):.3f}  calibration error {metrics.calibration_error(late, p):.3f}")

month = flights["month"].to_numpy()
losses = []
for now in range(2, 12):  # fitted on a month, asked for the whole of the next one
    past, ahead = month == now, month == now + 1
    shuffled = OnlineCalibratedClassifier(FrozenEstimator(base)).fit(X[past], y[past])
    in_time = OnlineCalibratedClassifier(FrozenEstimator(base), order="time").fit(X[past], y[past])
    each = OnlineCalibratedClassifier(FrozenEstimator(base), order="time", delay=0).fit(X[past], y[past])
    models = (base, shuffled, in_time, each)
    losses.append([log_loss(y[ahead] == "late", m.predict_proba(X[ahead])[:, 1]) for m in models])
print(
    "a month ahead: base {:.3f}, fit {:.3f}, order='time' {:.3f}, and delay=0 {:.3f}".format(*np.mean(losses, axis=0))
)
print(f"{len(late):,} flights; the score is the model's {model.score_method_}, the classes are {model.classes_}")
