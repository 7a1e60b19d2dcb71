"""Data frames: a column of scores in, a column of forecasts out, in pandas, polars and Arrow."""

import pandas as pd
import polars as pl
import pyarrow as pa

from calibeat import Calibrator, metrics
from calibeat.examples import flights

stream, n = flights(), 60_000
log = pd.DataFrame({"score": stream.scores[:n], "late": stream.outcomes[:n], "due": stream.due[:n]})
log.index = [f"flight {i}" for i in range(n)]
month = [stream.group_names[g] for g in stream.group[:n]]

# Outcomes that never came are NaN in the log; they are due after its end, so that nobody asks for them.
log["forecast"] = Calibrator().run(log["score"], log["late"], due=log["due"])
print(log.groupby(month, sort=False)[["score", "forecast", "late"]].mean().round(3))
print(log["forecast"].tail(2).round(3).to_string())

known = pl.from_pandas(log).filter(pl.col("late").is_not_nan())
print(f"calibration error: {metrics.calibration_error(known['late'], known['score']):.3f} raw,", end=" ")
print(f"{metrics.calibration_error(known['late'], known['forecast']):.3f} forecast")

column = Calibrator().run(pl.Series(log["score"]), pl.Series(log["late"]), due=pl.Series(log["due"]))
table = Calibrator().run(pa.chunked_array([log["score"]]), pa.array(log["late"]), due=pa.array(log["due"]))
same = column.to_list() == table.to_pylist() == log["forecast"].tolist()
print(f"{type(column).__name__} of polars, {type(table).__name__} of Arrow, the same numbers: {same}")
