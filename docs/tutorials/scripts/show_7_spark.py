"""
Spark
=====

Logs of a billion events live in a cluster. Streams are independent, so each key is calibrated where its rows are,
with the same bits as on one machine. This page needs Spark and Java, so it is shown and not run here. The tests run
the same calls.

You need ``pip install 'calibeat[spark]'``.
"""

# %%
# A frame
# -------
# ``order`` sorts the events of a key. With ``time`` and ``outcome_time`` an outcome is learnt when it was known, not
# before.

from pyspark.sql import SparkSession

from calibeat.spark import calibrate, to_bank

spark = SparkSession.builder.getOrCreate()
log = spark.read.parquet("log.parquet")  # shop, at, score, bought, known_at

forecasts, state = calibrate(
    log, key="shop", score="score", outcome="bought", order="at", time="at", outcome_time="known_at", method="tops"
)
forecasts.write.parquet("forecasts.parquet")

# %%
# Tomorrow
# --------
# The state of every key is a frame too. The next day continues from it.

state.write.parquet("state.parquet")
tomorrow = spark.read.parquet("log-of-tomorrow.parquet")
forecasts, state = calibrate(
    tomorrow, key="shop", score="score", outcome="bought", order="at", state=spark.read.parquet("state.parquet")
)

# %%
# From the cluster into a service
# -------------------------------
# The state becomes a `Bank`, which serves single events.

bank = to_bank(state)
bank.predict("shop-0017", 0.3)
