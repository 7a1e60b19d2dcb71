"""river: a model that learns on the fly, its labels when each flight has landed, with and without calibeat."""

from river import compose, evaluate, metrics, tree, utils

from calibeat.examples import read_flights
from calibeat.river import Brier, CalibrationError, OnlineCalibrated

flights = read_flights().dropna(subset="late").iloc[::30]  # every thirtieth flight, to be quick
flights = flights.assign(waits=flights["landed"] - flights["departs"])  # minutes until the label is known
columns = ["carrier", "origin", "minute_of_day", "distance", "departs", "waits"]


def events():
    """(features, late?) in the order of departure."""
    for row, late in zip(flights[columns].to_dict("records"), flights["late"].tolist(), strict=True):
        yield row, late == 1.0


def model(last):
    """What the timetable says, then a tree, alone or wrapped."""
    return compose.Discard("departs", "waits") | last


for name, last in (
    ("Hoeffding tree", tree.HoeffdingTreeClassifier()),
    ("behind calibeat", OnlineCalibrated(tree.HoeffdingTreeClassifier(), method="auto", remember=1000)),
):
    both = metrics.LogLoss() + Brier() + CalibrationError()
    evaluate.progressive_val_score(events(), model(last), both, moment="departs", delay="waits")
    log_loss, brier, error = both.get()
    print(f"{name:15}  log-loss {log_loss:.3f}  Brier {brier:.3f}  calibration error {error:.3f}")

rolling = utils.Rolling(CalibrationError, window_size=1000)
wrapped = model(OnlineCalibrated(tree.HoeffdingTreeClassifier()))
for x, late in events():
    rolling.update(late, wrapped.predict_proba_one(x))
    wrapped.learn_one(x, late)
print(f"calibration error of the last 1,000 of {len(flights):,} flights: {rolling.get():.3f}")
