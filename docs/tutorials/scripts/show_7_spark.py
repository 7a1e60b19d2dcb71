"""
Spark
=====

Logs of a billion events live in a cluster. Streams are independent, so each key can be calibrated where its rows are. This
page shows how. It needs a cluster, so it is shown and not run here.

You need ``pip install 'calibeat[spark]'``.
"""

# %%
# A function of one key
# ---------------------
# All events of a key, in the order of time, through one `Calibrator`. It has the same bits as on one machine.

import pandas as pd

from calibeat import Calibrator


def calibrate(events: pd.DataFrame) -> pd.DataFrame:
    """Add a column of forecasts; an outcome that is missing is forecast and not learnt."""
    events = events.sort_values("time")
    forecasts = Calibrator("auto", stream=str(events["key"].iloc[0])).run(events["score"], events["outcome"])
    return events.assign(forecast=forecasts)


# %%
# Over the cluster
# ----------------

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
log = spark.read.parquet("log.parquet")  # key, time, score, outcome
done = log.groupBy("key").applyInPandas(calibrate, "key string, time timestamp, score double, outcome double, forecast double")
done.write.parquet("forecasts.parquet")
