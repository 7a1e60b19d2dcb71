"""What is missing is named: pyspark, pandas, pyarrow, protobuf, Java; and no session is started before that."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from calibeat import InvalidInput, MissingExtra
from calibeat.spark import calibrate, calibrate_stream, session, to_bank
from calibeat.spark.session import check_java, check_libraries


@pytest.mark.parametrize(
    ("module", "name"),
    [("pyspark", "pyspark"), ("pandas", "pandas"), ("pyarrow", "pyarrow"), ("google.protobuf", "protobuf")],
)
def test_a_missing_library_is_named(module: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=rf"needs {name}: pip install 'calibeat\[spark\]'"):
        check_libraries("calibeat.spark streaming", stream=True)


def test_streams_need_a_newer_spark_than_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    pyspark = pytest.importorskip("pyspark")
    monkeypatch.setattr(pyspark, "__version__", "3.5.4")
    check_libraries("calibeat.spark")
    with pytest.raises(MissingExtra, match=r"needs pyspark 4\.0 or later, got 3\.5\.4"):
        check_libraries("calibeat.spark streaming", stream=True)


def test_a_session_of_an_older_spark_needs_no_protobuf(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pyspark = pytest.importorskip("pyspark")
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))  # it gets as far as to Java
    for version, sentence in (("3.5.9", "Spark needs a Java runtime"), ("4.0.0", "needs protobuf")):
        monkeypatch.setattr(pyspark, "__version__", version)
        with pytest.raises(MissingExtra, match=sentence):
            session("local[1]")


def test_missing_java_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingExtra, match=r"no java on the PATH: install one \(Debian: openjdk-17-jre-headless\)"):
        session("local[1]")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(MissingExtra, match="which has no bin/java"):
        check_java()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").touch()
    check_java()


@pytest.mark.parametrize("door", [calibrate, calibrate_stream])
def test_groups_are_refused_before_anything_is_read(door: Callable[..., Any]) -> None:
    """Every key learns alone on Spark. The sentence says what to do instead."""
    pytest.importorskip("pyspark")
    names = {name: name for name in ("key", "score", "outcome", "time")}
    own = {"order": "time"} if door is calibrate else {"outcomes": None, "id": "id"}
    with pytest.raises(InvalidInput, match=r'pass the key as an attribute, Calibrator\(groups=\["key", ...\]\)'):
        door(None, **names, **own, groups=["country"])


def test_our_calls_do_not_warn_of_pandas(spark: Any) -> None:
    """The warning itself stays for what the user does with pandas."""
    frame = spark.createDataFrame([(0, "a", 0.5, 1)], "number int, key string, score double, outcome int")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert session("local[2]") is spark
        made = calibrate(frame, key="key", score="score", outcome="outcome", order="number")
        assert to_bank(made.state).events == 1
