"""Spark: history in a batch, one bank a partition; then a stream of scores and one of outcomes that goes on from it."""

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from calibeat import Bank
from calibeat import spark as on_spark
from calibeat.examples import flights

quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.sql.shuffle.partitions": "2"}
spark = on_spark.session("local[2]", settings=quiet)
spark.sparkContext.setLogLevel("OFF")
folder = Path(tempfile.mkdtemp())

# Flights with their hour as the key; in life this is spark.read.parquet("s3://...").
log = flights()
n = 40_000
minute = np.datetime64("2013-02-01T00:00", "us") + np.arange(n).astype("m8[m]")
columns = {"hour": [f"{k % 24:02d}h" for k in range(n)], "id": np.arange(n), "time": minute, "score": log.scores[:n]}
known = ~np.isnan(log.outcomes[:n])
table = pa.table({**columns, "late": pa.array(np.nan_to_num(log.outcomes[:n]), mask=~known)})
pq.write_table(table, folder / "log.parquet")
frame = spark.read.parquet(str(folder / "log.parquet"))

# Batch: the first 30,000, and the state that they leave.
history = frame.where("id < 30000")
forecasts, state = on_spark.calibrate(history, key="hour", score="score", outcome="late", order="id", method="tops")
mean = forecasts.where("judged").selectExpr("avg(score)", "avg(forecast)", "avg(late)").first()
print(f"batch: mean score {mean[0]:.3f}, mean forecast {mean[1]:.3f}, share of late flights {mean[2]:.3f}")
bank = Bank("tops")
first = table.slice(0, 30_000).to_pydict()
wanted = bank.run(first["hour"], first["score"], [np.nan if y is None else y for y in first["late"]])
got = np.array([row["forecast"] for row in forecasts.orderBy("id").select("forecast").collect()])
print(f"the bits of one process: {np.array_equal(got, wanted)}; keys in the state: {state.count()}")

# The state travels: as a file of a bank, to serve from; and into a stream.
on_spark.to_bank(state).save(folder / "history.bank")
served = Bank.load(folder / "history.bank").predict_many(["07h"], [0.3])[0]
print(f"served from the file: {served:.3f} for a score of 0.3")

# A stream: scores in one folder, outcomes 90 minutes later in another; with Kafka, readStream.format("kafka").
for name, what in (("scores", "score"), ("outcomes", "late")):
    (folder / name).mkdir()
    rest = table.slice(30_000).select(["hour", "id", "time", what])
    if what == "late":
        rest = rest.set_column(2, "time", pa.array(minute[30_000:] + np.timedelta64(90, "m"))).filter(known[30_000:])
    pq.write_table(rest, folder / name / "part.parquet")
streams = [
    spark.readStream.schema(spark.read.parquet(str(folder / name)).schema).parquet(str(folder / name))
    for name in ("scores", "outcomes")
]
told = on_spark.calibrate_stream(
    *streams,
    key="hour",
    id="id",
    score="score",
    outcome="late",
    time="time",
    method="tops",
    state=state,
    expire="1d",
    buckets=4,
)
writer = told.writeStream.format("parquet").option("path", str(folder / "told"))
query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
query.awaitTermination()
counts = spark.read.parquet(str(folder / "told")).groupBy("status").count().orderBy("status").collect()
print("stream:", ", ".join(f"{row['count']:,} {row['status']}" for row in counts))
spark.stop()
