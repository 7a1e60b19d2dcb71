"""river: a model that learns on the fly, its labels when each flight has landed, with and without calibeat."""

from river import compose, evaluate, metrics, naive_bayes, preprocessing, utils

from calibeat.experiments.flights import read_flights
from calibeat.river import Brier, CalibrationError, OnlineCalibrated

flights = read_flights().dropna(subset="late").iloc[::30]  # every thirtieth flight, to be quick
flights["waits"] = flights["landed"] - flights["departs"]
columns = ["carrier", "origin", "minute_of_day", "distance", "departs", "waits"]


def events():
    """(features, late?) in the order of departure."""
    for row, late in zip(flights[columns].to_dict("records"), flights["late"].tolist(), strict=True):
        yield row, late == 1.0


def model(last):
    """What the timetable says, then naive Bayes, alone or wrapped."""
    numbers = compose.Select("minute_of_day", "distance") | preprocessing.StandardScaler()
    words = compose.Select("carrier", "origin") | preprocessing.OneHotEncoder()
    return (numbers + words) | last


for name, last in (
    ("naive Bayes", naive_bayes.GaussianNB()),
    ("behind calibeat", OnlineCalibrated(naive_bayes.GaussianNB(), method="auto")),
):
    both = metrics.LogLoss() + Brier() + CalibrationError()
    evaluate.progressive_val_score(events(), model(last), both, moment="departs", delay="waits")
    log_loss, brier, error = both.get()
    print(f"{name:15}  log-loss {log_loss:.3f}  Brier {brier:.3f}  calibration error {error:.3f}")

rolling = utils.Rolling(CalibrationError, window_size=1000)
wrapped = model(OnlineCalibrated(naive_bayes.GaussianNB()))
for x, late in events():
    rolling.update(late, wrapped.predict_proba_one(x))
    wrapped.learn_one(x, late)
print(f"calibration error of the last 1,000 of {len(flights):,} flights: {rolling.get():.3f}")
