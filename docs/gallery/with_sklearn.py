"""scikit-learn: a model of January, frozen, and every Monday the labels of the week before."""

import numpy as np
from sklearn.compose import make_column_transformer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, SplineTransformer

from calibeat import metrics
from calibeat.experiments.flights import read_flights
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
said, calibrated, happened = [], [], []
for monday in range(6, int(week.max()) + 1):
    rows = week == monday
    said.append(base.predict_proba(X[rows]))  # forecasts first ...
    calibrated.append(model.predict_proba(X[rows]))
    happened.append(y[rows])
    model.partial_fit(X[rows], y[rows])  # ... and then what the week has taught
outcomes = np.concatenate(happened)
for name, forecasts in (("base", said), ("calibrated", calibrated)):
    p = np.concatenate(forecasts)
    error = metrics.calibration_error(outcomes == "late", p[:, 1])
    print(f"{name:11} log-loss {log_loss(outcomes, p):.3f}  calibration error {error:.3f}")
print(f"{len(outcomes):,} flights; the score is the model's {model.score_method_}, the classes are {model.classes_}")
