"""What has to be installed, said by name; and a session of Spark with the settings that streams need."""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from calibeat._util.extras import need
from calibeat.errors import InvalidInput, MissingExtra

EXTRA = "spark"
STREAMS_SINCE = (4, 0)  # the version of Spark that brought transformWithStateInPandas

SETTINGS = {
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # No limit by bytes, which Spark would look at for each row that it sends to Python; the one by rows stays.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}


@contextmanager
def without_pandas_warning() -> Iterator[None]:
    """Silence PySpark's warning that it does not fully support pandas 3, in our own calls.

    We give Spark tables of Arrow. Frames of pandas carry only the rows of a bucket, and the tests run them with pandas
    3. What the user does with pandas by himself still warns.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        yield


def check_libraries(what: str, *, stream: bool = False) -> None:
    """Raise `MissingExtra`, which names the package, unless what Spark's Python side needs is installed.

    Spark itself says of a missing protobuf only that "the driver worker exited unexpectedly".
    """
    for library in ("pyspark", "pyarrow", "pandas", *(("google.protobuf",) if stream else ())):
        try:
            need(library, EXTRA, what)
        except MissingExtra as error:
            if library != "google.protobuf":
                raise
            raise MissingExtra(str(error).replace(" google:", " protobuf:")) from error
    if stream and not has_streams(version := need("pyspark", EXTRA, what).__version__):
        raise MissingExtra(f"{what} needs pyspark 4.0 or later, got {version}: pip install 'calibeat[spark]'")


def has_streams(version: str) -> bool:
    """Whether that version of Spark can run `calibrate_stream`.

    >>> has_streams("3.5.9"), has_streams("4.0.1")
    (False, True)
    """
    return tuple(int(part) for part in version.split(".")[:2]) >= STREAMS_SINCE


def check_java() -> None:
    """Raise `MissingExtra` unless a Java runtime is where Spark will look for one."""
    home = os.environ.get("JAVA_HOME")
    found = (Path(home) / "bin" / "java").exists() if home else shutil.which("java") is not None
    if not found:
        got = f"JAVA_HOME={home}, which has no bin/java" if home else "no java on the PATH"
        raise MissingExtra(
            f"Spark needs a Java runtime, 17 or later, got {got}: install one (Debian: openjdk-17-jre-headless) or set "
            "JAVA_HOME"
        )


@without_pandas_warning()
def session(master: str = "local[*]", name: str = "calibeat", settings: Mapping[str, Any] | None = None) -> Any:
    """A session of Spark: with Arrow, and with states of streams in RocksDB, as `calibrate_stream` needs them.

    Parameters
    ----------
    master : where to run: ``"local[2]"`` for two threads of this machine, or the address of a cluster.
    name : of the application.
    settings : further settings by their names in Spark; they win.

    A session of your own does as well. This one first looks whether Java, pandas, pyarrow and protobuf are there, and
    names what is missing.

    Raises
    ------
    MissingExtra : pyspark, pandas, pyarrow, protobuf or a Java runtime is not there.
    """
    check_libraries("a session of Spark")
    import pyspark
    from pyspark.sql import SparkSession

    if has_streams(pyspark.__version__):
        check_libraries("a session of Spark", stream=True)
    check_java()

    # Spark starts its workers with the python3 of the PATH, which may be another one without our packages.
    if master.startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName(name)
    for option, value in {**SETTINGS, **(settings or {})}.items():
        builder = builder.config(option, str(value))
    return builder.getOrCreate()


def check_frame(frame: Any, what: str = "frame", *, streaming: bool = False) -> Any:
    """A frame of Spark, of this or of a connected session; of a stream where that is needed."""
    kind = type(frame)
    if not kind.__module__.startswith("pyspark.") or not hasattr(frame, "mapInArrow"):
        raise InvalidInput(f"{what} must be a DataFrame of Spark, got {kind.__module__}.{kind.__name__}")
    if bool(frame.isStreaming) != streaming:
        wanted, got = ("a stream", "none") if streaming else ("no stream", "one: use calibrate_stream")
        raise InvalidInput(f"{what} must be {wanted}, got {got}")
    return frame
