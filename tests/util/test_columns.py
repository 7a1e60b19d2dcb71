"""Columns of data frames: in as they are, out as they came."""

from __future__ import annotations

import subprocess
import sys
from collections import deque
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import duckdb
import narwhals as nw
import narwhals.stable.v1 as stable
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from calibeat import (
    OPS,
    TOPS,
    Bank,
    Calibrator,
    InvalidInput,
    MissingExtra,
    MultiBank,
    MultiCalibrator,
    backtest,
    metrics,
)
from calibeat._util import columns as frames

SCORES, OUTCOMES, DUE = [0.2, 0.7, 0.6, 0.9], [0, 1, 1, 0], [1, 3, 4, 9]
INDEX = pd.Index(["d", "a", "c", "b"], name="flight")

KINDS: dict[str, Callable[[Any], Any]] = {
    "pandas": lambda values: pd.Series(values, index=INDEX),
    "pandas, nullable": lambda values: pd.Series(values, index=INDEX).astype(
        "Float64" if isinstance(values[0], float) else "Int64"
    ),
    "pandas on Arrow": lambda values: pd.Series(values, index=INDEX).convert_dtypes(dtype_backend="pyarrow"),
    "polars": pl.Series,
    "Arrow, chunked": lambda values: pa.chunked_array([pa.array(values)[:1], pa.array(values)[1:]]),
    "Arrow": pa.array,
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    return KINDS[request.param]


def as_list(column: Any) -> list[float]:
    for name in ("to_pylist", "to_list", "tolist"):
        if hasattr(column, name):
            return list(getattr(column, name)())
    raise AssertionError(column)


def test_forecasts_come_back_in_the_kind_of_the_scores(kind: Callable[[Any], Any]) -> None:
    for due in (None, DUE):
        want = Calibrator(TOPS).run(SCORES, OUTCOMES, due=due)
        cal = Calibrator(TOPS)
        got = cal.run(kind(SCORES), kind(OUTCOMES), due=due and kind(due))
        assert type(got) is type(kind(SCORES))
        assert as_list(got) == want.tolist()
        asked = cal.predict_many(kind(SCORES))
        assert type(asked) is type(kind(SCORES))
        assert as_list(asked) == cal.predict_many(SCORES).tolist()
        if isinstance(got, pd.Series):
            assert got.index.equals(INDEX) and got.index.name == "flight"
        if isinstance(got, (pd.Series, pl.Series)):
            assert got.name == "forecast"


def test_the_kind_is_that_of_the_scores_alone() -> None:
    assert isinstance(Calibrator(OPS).run(SCORES, pl.Series(OUTCOMES)), np.ndarray)
    assert isinstance(Calibrator(OPS).run(pl.Series(SCORES), pd.Series(OUTCOMES)), pl.Series)
    assert isinstance(Calibrator(OPS).run(pd.Index(SCORES), OUTCOMES), np.ndarray)


def test_other_indices_come_back_too() -> None:
    for index in (
        pd.date_range("2026-01-01", periods=4),
        pd.MultiIndex.from_product([["a", "b"], [1, 2]]),
        [7, 7, 7, 7],
    ):
        scores = pd.Series(SCORES, index=index)
        assert Calibrator(OPS).run(scores, OUTCOMES).index.identical(scores.index)


class Derived(pd.Series):
    """A kind of Series that somebody else has made."""

    @property
    def _constructor(self) -> type[Derived]:
        return Derived


def test_a_derived_series_keeps_its_index() -> None:
    want = Calibrator(OPS).run(SCORES, OUTCOMES).tolist()
    got = Calibrator(OPS).run(Derived(SCORES, index=INDEX), Derived(OUTCOMES))
    assert isinstance(got, pd.Series) and got.tolist() == want
    assert got.index.equals(INDEX) and got.index.name == "flight"


@pytest.mark.parametrize("make", [nw.from_native, stable.from_native])
def test_columns_of_narwhals(make: Any) -> None:
    want = Calibrator(OPS).run(SCORES, OUTCOMES).tolist()
    got = Calibrator(OPS).run(make(pd.Series(SCORES, index=INDEX), series_only=True), OUTCOMES)
    assert isinstance(got, nw.Series) and got.to_list() == want
    assert got.to_native().index.equals(INDEX)
    got = Calibrator(OPS).run(make(pl.Series(SCORES), series_only=True), OUTCOMES)
    assert isinstance(got.to_native(), pl.Series) and got.to_list() == want


def test_decimals_are_numbers() -> None:
    exact = [Decimal(str(score)) for score in SCORES]
    want = Calibrator(OPS).run(SCORES, OUTCOMES).tolist()
    labels = [Decimal(outcome) for outcome in OUTCOMES]
    for column in (
        exact,
        np.array(exact),
        pd.Series(exact),
        pd.Series(exact, dtype=pd.ArrowDtype(pa.decimal128(5, 2))),
        pl.Series(exact),
        pl.Series(exact, dtype=pl.Decimal(10, 4)),
        pa.array(exact),
        pa.chunked_array([exact]),
        duckdb.sql("SELECT unnest([0.2, 0.7, 0.6, 0.9])::DECIMAL(9, 3) AS s").to_arrow_table()["s"],
    ):
        assert as_list(Calibrator(OPS).run(column, labels)) == pytest.approx(want, abs=1e-12)
    cal = Calibrator(OPS)
    cal.update(cal.predict(Decimal("0.2")), Decimal(0))
    assert cal.outcomes == 1
    for bad in (Decimal("NaN"), Decimal("sNaN"), Decimal("1.5"), Decimal("1e400")):
        with pytest.raises(InvalidInput, match=r"score must be in \[0, 1\]"):
            cal.predict(bad)
    with pytest.raises(InvalidInput, match=r"score must be in \[0, 1\], got a missing value - at row 1"):
        cal.run(pl.Series([Decimal("0.5"), None]), [0, 1])


def test_rows_go_by_position_whatever_the_index_says() -> None:
    shuffled = pd.Series(OUTCOMES, index=INDEX[::-1])
    assert (
        as_list(Calibrator(OPS).run(pd.Series(SCORES, index=INDEX), shuffled))
        == Calibrator(OPS).run(SCORES, OUTCOMES).tolist()
    )


def test_metrics_take_columns(kind: Callable[[Any], Any]) -> None:
    y, p = kind(OUTCOMES), kind(SCORES)
    for metric in (
        metrics.calibration_error,
        metrics.sharpness,
        metrics.refinement,
        metrics.brier_score,
        metrics.log_loss,
        metrics.accuracy,
    ):
        assert metric(y, p) == metric(OUTCOMES, SCORES)
    assert metrics.true_calibration_error(p, p) == 0.0 and metrics.true_accuracy(p, p) > 0.5
    assert metrics.regret(OPS, p, y, p) == metrics.regret(OPS, SCORES, OUTCOMES, SCORES)
    assert metrics.best_parameters(OPS, p, y) == metrics.best_parameters(OPS, SCORES, OUTCOMES)
    assert np.array_equal(metrics.reliability_curve(y, p).count, metrics.reliability_curve(OUTCOMES, SCORES).count)


@pytest.mark.parametrize(
    "booleans",
    [
        pd.Series([False, True, True, False]),
        pd.Series([False, True, True, False], dtype="boolean"),
        pl.Series([False, True, True, False]),
        pa.array([False, True, True, False]),
    ],
)
def test_outcomes_may_be_booleans_and_scores_may_not(booleans: Any) -> None:
    assert Calibrator(OPS).run(SCORES, booleans).tolist() == Calibrator(OPS).run(SCORES, OUTCOMES).tolist()
    with pytest.raises(InvalidInput, match=r"score must be a number in \[0, 1\], got an array of bool .* at row 0"):
        Calibrator(OPS).run(booleans, OUTCOMES)


@pytest.mark.parametrize(
    "scores",
    [
        pd.Series([0.1, 0.2, None, 0.3]),
        pd.Series([0.1, 0.2, None, 0.3], dtype="Float64"),
        pl.Series([0.1, 0.2, None, 0.3]),
        pa.array([0.1, 0.2, None, 0.3]),
        pl.Series([0.1, 0.2, 1.3, 0.3]),
        pd.Series([1, 0, 2, 1]),
        pd.Series([1, 0, None, 1], dtype="Int64"),
    ],
    ids=lambda values: f"{type(values).__module__.split('.')[0]}-{type(values).__name__}",
)
def test_bad_and_missing_scores_are_named_by_their_row(scores: Any) -> None:
    cal = Calibrator(OPS)
    with pytest.raises(InvalidInput, match=r"score must be in \[0, 1\], got .* - at row 2"):
        cal.run(scores, OUTCOMES)
    assert cal.outcomes == 0


MISSING = [0, None, 1, 0]


@pytest.mark.parametrize(
    "outcomes",
    [
        pd.Series([0.0, np.nan, 1.0, 0.0]),
        pd.Series(MISSING, dtype="Int64"),
        pl.Series(MISSING),
        pa.array(MISSING),
        pl.Series([False, None, True, False]),
        pd.Series([False, None, True, False], dtype="boolean"),
        pa.chunked_array([[False, None], [True, False]]),
    ],
    ids=lambda values: f"{type(values).__module__.split('.')[0]}-{type(values).__name__}",
)
def test_missing_outcomes_matter_where_they_are_due(outcomes: Any) -> None:
    with pytest.raises(InvalidInput, match=r"outcome must be 0 or 1, got .* - at row 1"):
        Calibrator(OPS).run(SCORES, outcomes)
    never = [1, 9, 3, 4]
    want = Calibrator(OPS).run(SCORES, [0, 0, 1, 0], due=never)
    assert Calibrator(OPS).run(SCORES, outcomes, due=never).tolist() == want.tolist()


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        (pd.DataFrame({"a": SCORES}), "one-dimensional array, got shape"),
        (pl.DataFrame({"a": SCORES}), "got shape"),
        (pa.table({"a": SCORES}), "got shape"),
        (pl.LazyFrame({"a": SCORES}), "one-dimensional array, got LazyFrame"),
        (pa.scalar(0.5), "got DoubleScalar - one event"),
        (pl.Series(list("abcd")), "got str 'a' - at row 0"),
        (pl.Series([[0.1]] * 4), "at row 0"),
        (pd.Series(list("abcd"), dtype="category"), "got str 'a' - at row 0"),
        (pl.Series([], dtype=pl.Float64), "arrays must have the same length"),
    ],
)
def test_what_is_no_column_of_numbers(scores: Any, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        Calibrator(OPS).run(scores, OUTCOMES)


def test_without_narwhals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "narwhals", None)
    with pytest.raises(MissingExtra, match=r"pip install 'calibeat\[frames\]'"):
        Calibrator(OPS).run(pl.Series(SCORES), OUTCOMES)
    assert len(Calibrator(OPS).run(np.array(SCORES), OUTCOMES)) == 4


def test_arrays_and_lists_never_load_a_library_of_data_frames() -> None:
    program = (
        "import sys, numpy as np; from calibeat import Calibrator, OPS, metrics; cal = Calibrator(OPS);"
        "cal.run([0.5], [1]); cal.run(np.array([0.5]), (1,), due=[1]); cal.predict_many(np.float32([0.5]));"
        "metrics.brier_score([1], [0.5]);"
        "print([m for m in ('narwhals', 'pandas', 'polars', 'pyarrow') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_arrays_are_read_without_a_copy() -> None:
    array = np.array(SCORES)
    column = frames.read_column("scores", array)
    assert np.shares_memory(column.as_array(), array) and frames.like(array, array) is array
    memory = memoryview(array)
    assert np.shares_memory(frames.read_column("scores", memory).as_array(), array)
    assert frames.like(memory, array) is array


WORDS = ["oslo", "rome", "oslo", "paris"]
KEYS: dict[str, Any] = {
    "pandas": pd.Series(WORDS, index=INDEX),
    "pandas, categories": pd.Series(WORDS, dtype="category"),
    "pandas, strings": pd.Series(WORDS, dtype="string"),
    "an index": pd.Index(WORDS),
    "polars": pl.Series(WORDS),
    "polars, categories": pl.Series(WORDS, dtype=pl.Categorical),
    "Arrow": pa.array(WORDS),
    "Arrow, chunked": pa.chunked_array([WORDS[:2], WORDS[2:]]),
    "Arrow, dictionary": pa.array(WORDS).dictionary_encode(),
}


@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
def test_a_bank_takes_columns_of_keys(keys: Any, kind: Callable[[Any], Any]) -> None:
    want, bank = Bank(TOPS), Bank(TOPS)
    expected = want.run(WORDS, SCORES, OUTCOMES)
    got = bank.run(keys, kind(SCORES), kind(OUTCOMES))
    assert type(got) is type(kind(SCORES)) and as_list(got) == expected.tolist()
    assert list(bank) == list(want)
    assert as_list(bank.predict_many(keys, kind(SCORES))) == want.predict_many(WORDS, SCORES).tolist()


@pytest.mark.parametrize(
    "keys",
    [
        pd.Series(["a", None, "b", "c"], dtype="string"),
        pl.Series(["a", None, "b", "c"]),
        pa.array(["a", None, "b", "c"]),
        pd.Series([1, None, 2, 3], dtype="Int64"),
        pl.Series([1, None, 2, 3]),
        pa.array([1, None, 2, 3]),
    ],
)
def test_missing_keys_are_named_by_their_row(keys: Any) -> None:
    bank = Bank(TOPS)
    with pytest.raises(InvalidInput, match=r"key must be an int or a string, got .* - at row 1"):
        bank.run(keys, SCORES, OUTCOMES)
    assert len(bank) == 0


@pytest.mark.parametrize(
    "use",
    [
        lambda frame: Calibrator(groups=["a", "b"]).run([0.3], [1], groups=frame),
        lambda frame: Calibrator().run(frame, [1]),
        lambda frame: Bank().run(frame, [0.3], [1]),
        lambda frame: MultiCalibrator(3).run(frame, [1]),
        lambda frame: backtest(frame, score="a", outcome="b"),
    ],
)
def test_a_frame_with_two_columns_of_one_name_is_refused(use: Callable[[Any], Any]) -> None:
    names, values = ["a", "a", "b"], [0.2, 0.3, 0.5]
    table = pa.Table.from_arrays([pa.array([value]) for value in values], names=names)
    for frame in (pd.DataFrame([values], columns=names), table):
        with pytest.raises(InvalidInput, match="must have different names, got one twice"):
            use(frame)


# ---- every kind of column at every door --------------------------------------------------------------------------


class Stream:
    """What another library exports: the least that Arrow's PyCapsule interface asks for. It can be read once."""

    def __init__(self, values: Any) -> None:
        self._column: Any = (
            values if isinstance(values, pa.Table) else pa.chunked_array([pa.array(values)[:1], pa.array(values)[1:]])
        )

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        column, self._column = self._column, None
        return column.__arrow_c_stream__(requested_schema)


class Exported:
    """The same for one array."""

    def __init__(self, values: Any) -> None:
        self._array = pa.array(values)

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        return self._array.__arrow_c_array__(requested_schema)


def masked(values: list[Any]) -> Any:
    known = next(value for value in values if value is not None)
    filled = [known if value is None else value for value in values]
    return np.ma.array(filled, mask=[value is None for value in values])


def with_nan(values: list[Any]) -> Any:
    return [float("nan") if value is None else value for value in values]


CONTAINERS: dict[str, Callable[[list[Any]], Any]] = {
    "a list": list,
    "a tuple": tuple,
    "a deque": deque,
    "an array of objects": lambda values: np.array(values, dtype=object),
    "a masked array": masked,
    "pandas": pd.Series,
    "pandas, nullable": lambda values: pd.Series(values, dtype=object).convert_dtypes(),
    "pandas on Arrow": lambda values: pd.Series(values, dtype=object).convert_dtypes(dtype_backend="pyarrow"),
    "an index of pandas": pd.Index,
    "polars": pl.Series,
    "Arrow": pa.array,
    "Arrow, chunked": lambda values: pa.chunked_array([pa.array(values)[:1], pa.array(values)[1:]]),
    "Arrow, dictionary": lambda values: pa.array(values).dictionary_encode(),
    "a stream": Stream,
    "an exported array": Exported,
}
WHOLE = CONTAINERS | {
    "an array": np.array,
    "an array backwards": lambda values: np.array(values[::-1])[::-1],
    "a new kind of series": Derived,
    "NumPy's values": lambda values: list(np.array(values)),
}
CITIES, NUMBERS = ["oslo", "rome", "oslo", "paris"], [7, 2**40, 7, -1]
LABELS = ["cat", "dog", "dog", "bird"]
MATRIX = [[0.2, 0.3, 0.5], [0.6, 0.2, 0.2], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]]


def results(make: Callable[[list[Any]], Any]) -> dict[str, Any]:
    """What every door gives for columns that `make` makes."""
    found: dict[str, Any] = {}
    cal, bank = Calibrator(TOPS), Bank(TOPS)
    found["run"] = cal.run(make(SCORES), make(OUTCOMES))
    found["late"] = cal.run(make(SCORES), make(OUTCOMES), due=make(DUE))
    found["predict_many"] = cal.predict_many(make(SCORES))
    for keys in (CITIES, NUMBERS):
        bank = Bank(TOPS)
        found[f"bank, {keys[0]}"] = bank.run(make(keys), make(SCORES), make(OUTCOMES))
        found[f"bank many, {keys[0]}"] = bank.predict_many(make(keys), make(SCORES))
        found[f"fold, {keys[0]}"] = bank.fold(make(keys), make(SCORES), with_nan([None] * 4)).forecasts
        found[f"keys, {keys[0]}"] = np.array(list(bank))
    words = Calibrator(groups=["city", "number", "both"])
    groups = {"city": make(CITIES), "number": make(NUMBERS), "both": make([True, False, True, True])}
    found["groups"] = words.run(make(SCORES), make(OUTCOMES), groups=groups)
    many = MultiCalibrator(make(["cat", "dog", "bird"]))
    found["labels"] = many.run(MATRIX, make(LABELS))
    found["columns"] = MultiCalibrator(3).run(MATRIX, make([0, 1, 1, 2]))
    found["banks of labels"] = MultiBank(["cat", "dog", "bird"]).run(make(CITIES), MATRIX, make(LABELS))
    found["metric"] = np.array([metrics.brier_score(make(LABELS), MATRIX, classes=["cat", "dog", "bird"])])
    return {name: np.asarray(as_list(values)) for name, values in found.items()}


@pytest.mark.parametrize("make", WHOLE.values(), ids=WHOLE)
def test_every_kind_of_column_at_every_door(make: Callable[[list[Any]], Any]) -> None:
    wanted, found = results(list), results(make)
    for name, values in wanted.items():
        assert found[name].tolist() == values.tolist(), name


@pytest.mark.parametrize("make", CONTAINERS.values(), ids=CONTAINERS)
def test_what_is_missing_is_missing_in_every_kind_of_column(make: Callable[[list[Any]], Any]) -> None:
    gaps = [1, None, 0, 1]
    wanted = Bank(TOPS).run(CITIES, SCORES, [1, float("nan"), 0, 1]).tolist()
    assert Bank(TOPS).run(CITIES, SCORES, make(gaps)).tolist() == wanted
    with pytest.raises(
        InvalidInput, match=r"^outcome must be 0 or 1, got (a missing value|nan|NoneType None|NAType <NA>) - at row 1$"
    ):
        Calibrator(TOPS).run(SCORES, make(gaps))
    with pytest.raises(
        InvalidInput,
        match=r"^score must be (a number )?in \[0, 1\], got (a missing value|nan|NoneType None) - at row 1$",
    ):
        Calibrator(TOPS).run(make([0.5, None, 0.2, 0.1]), OUTCOMES)

    labels = ["cat", None, "dog", "bird"]
    want = MultiBank(["cat", "dog", "bird"]).run(CITIES, MATRIX, labels)
    assert MultiBank(["cat", "dog", "bird"]).run(CITIES, MATRIX, make(labels)).tolist() == want.tolist()
    with pytest.raises(InvalidInput, match=r"^label must be one of .* got (None|nan|<NA>) - at row 1$"):
        MultiCalibrator(["cat", "dog", "bird"]).run(MATRIX, make(labels))

    for column in (["no", None, "fr", "no"], [7, None, 2**40, 7], [True, None, False, True]):
        want = Calibrator(groups=["a"]).run(SCORES, OUTCOMES, groups={"a": column})
        assert Calibrator(groups=["a"]).run(SCORES, OUTCOMES, groups={"a": make(column)}).tolist() == want.tolist()

    for keys in (["a", None, "b", "c"], [7, None, 8, 9]):
        with pytest.raises(InvalidInput, match=r"^key must be an int or a string, got .* - at row "):
            Bank(TOPS).run(make(keys), SCORES, OUTCOMES)


def test_a_fold_reads_every_kind_of_column() -> None:
    keys, scores, outcomes, of = ["a", "a", "b", "b"], [0.5, None, 0.2, None], [None, 0, None, 1], [-1, 0, -1, 2]
    wanted = Bank(TOPS).fold(keys, with_nan(scores), with_nan(outcomes), of=of).forecasts
    assert np.isnan(wanted).tolist() == [False, True, False, True]
    for name, make in CONTAINERS.items():
        found = Bank(TOPS).fold(make(keys), make(scores), make(outcomes), of=of).forecasts
        assert np.array_equal(found, wanted, equal_nan=True), name


def test_exported_tables_are_matrices_and_attributes() -> None:
    table = pa.table({name: [row[at] for row in MATRIX] for at, name in enumerate(["cat", "dog", "bird"])})
    want = MultiCalibrator(["cat", "dog", "bird"]).run(MATRIX, LABELS)
    assert MultiCalibrator(["cat", "dog", "bird"]).run(Stream(table), LABELS).tolist() == want.tolist()
    groups = {"city": CITIES, "number": NUMBERS}
    want = Calibrator(groups=["city", "number"]).run(SCORES, OUTCOMES, groups=groups)
    found = Calibrator(groups=["city", "number"]).run(SCORES, OUTCOMES, groups=Stream(pa.table(groups)))
    assert found.tolist() == want.tolist()
    with pytest.raises(InvalidInput, match=r"^scores must be a one-dimensional array, got Stream"):
        Calibrator(OPS).run(Stream(pa.table({"a": SCORES})), OUTCOMES)


def test_exported_columns_need_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    column = Stream(SCORES)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(
        MissingExtra, match=r"columns of exported Arrow arrays need pyarrow: pip install 'calibeat\[frames\]'"
    ):
        Calibrator(OPS).run(column, OUTCOMES)


@pytest.mark.parametrize(
    ("column", "absent", "array"),
    [
        (pl.Series([1, None]), [False, True], [1.0, "nan"]),
        (pl.Series([0.5, None]), [False, True], [0.5, "nan"]),
        (pl.Series([True, None]), [False, True], [True, None]),
        (pd.Series([pd.Timestamp("2026-01-01"), pd.NaT]), [False, True], ["2026-01-01T00:00:00.000000", "NaT"]),
        (np.ma.array(["a", "b"], mask=[0, 1]), [False, True], ["a", None]),
        (np.array(["2026-01-01", "NaT"], dtype="datetime64[D]"), [False, True], ["2026-01-01", "NaT"]),
        ([0.5, None, pd.NA, pd.NaT, np.datetime64("NaT")], [False, True, True, True, True], None),
        ([1, "a"], [False, False], [1, "a"]),
        ([1, [2, 3]], [False, False], [1, [2, 3]]),
    ],
)
def test_a_column_as_an_array_and_where_it_has_no_value(column: Any, absent: Any, array: Any) -> None:
    read = frames.read_column("values", column)
    assert read.absent().tolist() == absent
    found = read.as_array()
    assert found.shape == (len(absent),)
    if array is not None:
        assert list(map(str, found)) == list(map(str, array))


@pytest.mark.parametrize(
    ("column", "distinct", "codes"),
    [
        (np.array([7, 5, 7]), [5, 7], [1, 0, 1]),
        (np.array([7, 2**62, 7]), [7, 2**62], [0, 1, 0]),
        (np.array([2**64 - 1, 1], dtype=np.uint64), [1, 2**64 - 1], [1, 0]),
        (np.array([0.5, np.nan, 0.25]), [0.25, 0.5, None], [1, 2, 0]),
        (np.array([np.inf, 1.0]), [1.0, np.inf], [1, 0]),
        (np.array([], dtype=np.int64), [], []),
        ([1, True, 1.0, "1"], [1, True, 1.0, "1"], [0, 1, 2, 3]),
        ([], [], []),
        (["a", ["b"], "a"], ["a", ["b"], "a"], [0, 1, 2]),
        (pl.Series([None, 3]), [3, None], [1, 0]),
    ],
)
def test_distinct_values(column: Any, distinct: list[Any], codes: list[int]) -> None:
    found, places = frames.read_column("values", column).codes()
    assert (found, places.tolist()) == (distinct, codes)
    assert list(map(type, found)) == list(map(type, distinct))
