"""Lines that stopped newcomers in their first hour: each of them works, or says what to do instead."""

from __future__ import annotations

import importlib
import json
import sys
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import calibeat
from calibeat import (
    Bank,
    Calibrator,
    Forecast,
    InvalidInput,
    MissingExtra,
    Monitor,
    MultiBank,
    MultiCalibrator,
    MultiForecast,
    OutcomeConflict,
    UnknownMethod,
    backtest,
    bounds,
    metrics,
    rivals,
)
from calibeat.cli import main as cli

parquet = pytest.importorskip("pyarrow.parquet")


@pytest.fixture
def forecast() -> Forecast:
    return Calibrator("ops").predict(0.4)


def test_a_forecast_is_a_number(forecast: Forecast) -> None:
    assert forecast * 100 == 100 * float(forecast) and type(forecast * 100) is float
    assert forecast - 0.1 == float(forecast) - 0.1 and 1 - forecast == 1.0 - float(forecast)
    assert round(forecast, 2) == 0.4 and -forecast < 0.0 and forecast / 2 == float(forecast) / 2
    assert sum([forecast, forecast]) == 2 * float(forecast)
    assert f"{forecast:.1%}" == "40.0%" and (forecast > 0.3) is True
    assert json.loads(json.dumps(float(forecast))) == float(forecast)


def test_arrays_of_forecasts(forecast: Forecast) -> None:
    assert np.mean([forecast, forecast]) == pytest.approx(0.4)
    assert np.array([forecast, forecast]).dtype == np.float64
    assert np.asarray(forecast).shape == ()


@pytest.mark.parametrize(
    ("score", "hint"),
    [
        (83, "got 83.0 - a percentage? divide by 100"),
        (-2.3, "got -2.3 - a logit? 1 / (1 + exp(-score)) is its probability"),
        (140.0, "got 140.0 - a logit? 1 / (1 + exp(-score)) is its probability"),
        (1.3, "got 1.3"),
        (-0.2, "got -0.2"),
    ],
)
def test_scores_on_another_scale(score: float, hint: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        Calibrator().predict(score)
    assert str(refused.value) == f"score must be in [0, 1], {hint}"
    got, _, scale = hint.partition(" - ")
    with pytest.raises(InvalidInput) as refused:
        Calibrator().run([0.2, score], [0, 1])
    assert str(refused.value) == f"score must be in [0, 1], {got} - at row 1" + (f" - {scale}" if scale else "")


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("fit", "run(scores, outcomes)"),
        ("predict_proba", "predict(score) of one event, or predict_many(scores)"),
        ("save", "to_json()"),
        ("load", "from_json"),
        ("partial_fit", "update(forecast, outcome)"),
        ("fit_transform", "calibeat.sklearn.ScoreCalibrator"),
    ],
)
@pytest.mark.parametrize("host", [Calibrator, lambda: MultiCalibrator(3)])
def test_names_of_other_libraries(host: Any, name: str, instead: str) -> None:
    cal = host()
    assert not hasattr(cal, name)
    with pytest.raises(AttributeError, match=f"no attribute '{name}': use ") as refused:
        getattr(cal, name)
    assert instead in str(refused.value)
    with pytest.raises(AttributeError, match=r"object has no attribute 'nothing'$"):
        _ = cal.nothing


def test_a_receipt_that_came_as_text(forecast: Forecast) -> None:
    cal = Calibrator("ops")
    text = cal.predict(0.4).to_json()
    for given in (text, text.encode()):
        with pytest.raises(InvalidInput, match=r"got \w+ - Forecast.from_json\(text\) makes one of it$"):
            cal.update(given, 1)
    cal.update(Forecast.from_json(text), 1)
    many = MultiCalibrator(3)
    text = many.predict([0.2, 0.3, 0.5]).to_json()
    with pytest.raises(InvalidInput, match=r"got str - MultiForecast.from_json\(text\) makes one of it$"):
        many.update(text, 1)
    many.update(MultiForecast.from_json(text), 1)
    with pytest.raises(InvalidInput, match=r"forecast must be a Forecast made by predict, got NoneType$"):
        cal.update(None, 1)
    with pytest.raises(InvalidInput, match=r"got dict - Forecast.from_dict\(data\) makes one of it, as Forecast"):
        cal.update(json.loads(forecast.to_json()), 1)


@pytest.mark.parametrize("host", [Calibrator("ops"), Bank("ops"), rivals.Host(rivals.Sigmoid)])
def test_what_is_no_receipt(host: Any, forecast: Forecast) -> None:
    key = ["k"] if isinstance(host, Bank) else []
    host.predict(*key, 0.4)
    with pytest.raises(InvalidInput, match=r"got float - keep what predict gave until its outcome comes"):
        host.update(*key, 0.4, 1)
    with pytest.raises(InvalidInput, match=r"got int - the order is update\(forecast, outcome\)$"):
        host.update(*key, 1, forecast)


@pytest.mark.parametrize(
    ("host", "scores", "label"),
    [
        (Calibrator("ops"), 0.4, 1),
        (Calibrator("auto"), 0.4, 1),
        (Calibrator("ops", monitor=Monitor()), 0.4, 0),
        (Calibrator("fps"), 0.4, 1),
        (MultiCalibrator(3), [0.2, 0.3, 0.5], 2),
        (rivals.Host(rivals.Sigmoid), 0.4, 1),
    ],
)
def test_update_says_what_happened(host: Any, scores: Any, label: int) -> None:
    first, second = host.predict(scores), host.predict(scores)
    assert [host.update(second, label), host.update(first, label), host.update(second, label)] == [
        "learnt",
        "learnt",
        "repeated",
    ]
    with pytest.raises(OutcomeConflict):
        host.update(first, 1 - label if label < 2 else 0)


def test_update_of_a_bank_says_what_happened() -> None:
    for bank, scores in ((Bank(), 0.4), (MultiBank(3), [0.2, 0.3, 0.5])):
        first, second = bank.predict("k", scores), bank.predict("k", scores)
        assert [bank.update("k", second, 1), bank["k"].update(first, 1)] == ["learnt", "learnt"]
        assert [bank.update("k", first, 1), bank["k"].update(second, 1)] == ["repeated", "repeated"]
        with pytest.raises(InvalidInput, match=r"key must come first.* bank.update\(key, forecast, outcome\)$"):
            bank.update(first, 1)


@pytest.mark.parametrize(
    ("score", "hint"),
    [
        ([0.2, 0.8], "a row of predict_proba? its last number is the score"),
        (np.array([[0.2, 0.8]]), "a row of predict_proba? its last number is the score"),
        (np.array([0.2, 0.3, 0.5]), "many events? use run(scores, outcomes) or predict_many(scores)"),
        (pd.Series([0.2, 0.3, 0.5]), "many events? use run(scores, outcomes) or predict_many(scores)"),
        ("0.4", "float(score) makes a number of text"),
    ],
)
def test_scores_that_are_no_number(score: Any, hint: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        Calibrator().predict(score)
    assert str(refused.value).endswith(f" - {hint}")


@pytest.mark.parametrize(
    ("shape", "hint"),
    [
        ((5, 2), "of predict_proba take the second column, [:, 1]"),
        ((5, 3), "many classes? MultiCalibrator takes a column for each"),
        ((5, 1), ".ravel() makes one dimension of it"),
        ((), "one event? use predict(score)"),
    ],
)
def test_scores_of_another_shape(shape: tuple[int, ...], hint: str) -> None:
    for call in (lambda s: Calibrator().run(s, [1] * 5), Calibrator().predict_many):
        with pytest.raises(InvalidInput) as refused:
            call(np.full(shape, 0.5))
        assert str(refused.value) == f"scores must be a one-dimensional array, got shape {shape} - {hint}"
    with pytest.raises(InvalidInput, match=r"got float$"):
        metrics.log_loss([1], 0.4)


@pytest.mark.parametrize(
    "due",
    [
        np.array(["2026-01-02", "2026-01-03"], dtype="datetime64[s]"),
        [date(2026, 1, 2), date(2026, 1, 3)],
        ["2026-01-02", "2026-01-03"],
    ],
)
def test_due_as_dates(due: Any) -> None:
    with pytest.raises(InvalidInput, match=r"due must be positions .* got dates - say times= and outcome_times= inst"):
        Calibrator().run([0.2, 0.4], [0, 1], due=due)
    at_once = Calibrator().run([0.2, 0.4], [0, 1], times=["2026-01-01", "2026-01-02"], outcome_times=due)
    assert np.array_equal(at_once, Calibrator().run([0.2, 0.4], [0, 1]))


def test_groups_of_a_bank() -> None:
    bank = Bank()
    calls: list[Any] = [
        lambda: bank.predict("fr", 0.4, groups={"device": "ios"}),
        lambda: bank.run(["fr"], [0.4], [1], groups={"device": ["ios"]}),
        lambda: bank.predict_many(["fr"], [0.4], groups={"device": ["ios"]}),
        lambda: bank.fold(["fr"], [0.4], [np.nan], groups={"device": ["ios"]}),
        lambda: Bank(groups=["device"]),
    ]
    for call in calls:
        with pytest.raises(InvalidInput, match=r"a bank has no groups: .* Calibrator\(groups=\[\"key\", ...\]\)$"):
            call()


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("fit", "run(keys"),
        ("monitor", "watched"),
        ("notice", "noticed"),
        ("to_json", "save(path)"),
        ("alarms", "new_alarms()"),
    ],
)
def test_what_people_look_for_in_a_bank(name: str, instead: str, tmp_path: Path) -> None:
    bank = Bank(monitor=Monitor(arl=5000))
    bank.save(tmp_path / "bank.calibeat")
    bank = Bank.load(tmp_path / "bank.calibeat")
    assert bank.watched is not None and bank.watched.arl == 5000
    assert not hasattr(bank, name) and not hasattr(bank, "nothing")
    with pytest.raises(AttributeError, match=f"'Bank' object has no attribute '{name}': use ") as refused:
        getattr(bank, name)
    assert instead in str(refused.value)


def test_names_asked_of_the_class() -> None:
    for kind in (Calibrator, MultiCalibrator, Bank, MultiBank):
        assert not hasattr(kind, "fit")
        assert not hasattr(kind, "__getattr__")  # it would make every call of a method slower
    for host in (Calibrator, MultiCalibrator):
        assert not hasattr(host, "load")
        with pytest.raises(AttributeError, match=r"has no attribute 'load': use Calibrator.from_json\(text\)"):
            host.load("file")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("sklearn", ": import calibeat.sklearn first"),
        ("OnlineCalibratedClassifier", ": from calibeat.sklearn import OnlineCalibratedClassifier"),
        ("Calibrater", " - did you mean 'Calibrator'?"),
        ("zzzz", ""),
        ("_nothing", ""),
    ],
)
def test_names_that_the_package_does_not_have(name: str, hint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(calibeat, name, raising=False)  # another test may have imported it
    with pytest.raises(AttributeError) as refused:
        getattr(calibeat, name)
    assert str(refused.value) == f"module 'calibeat' has no attribute '{name}'{hint}"


def test_methods_of_others() -> None:
    with pytest.raises(UnknownMethod, match=r"got 'isotonic' - that is a rival of the backtest"):
        Calibrator("isotonic")
    for own in (rivals.Isotonic, rivals.Isotonic()):
        for host in (Calibrator, Bank):
            with pytest.raises(UnknownMethod, match=r"calibeat.rivals.Host serves a method of your own$"):
                host(own)
    with pytest.raises(UnknownMethod, match=r"got float 0\.5$"):
        Calibrator(0.5)  # type: ignore[arg-type]


def test_the_tab_key_shows_what_is_made_here() -> None:
    for module, some in ((metrics, {"log_loss", "reliability_curve"}), (bounds, {"auto_loss", "hops_calibration"})):
        assert some <= set(dir(module)) and not {"np", "math", "Callable", "LEAN", "Any"} & set(dir(module))


def test_metrics_by_other_names() -> None:
    assert not hasattr(metrics, "ece") and not hasattr(metrics, "nothing")
    with pytest.raises(AttributeError, match=r"'calibeat.metrics' has no attribute 'ece': use calibration_error\("):
        _ = metrics.ece  # type: ignore[attr-defined]


def test_a_bank_is_saved_into_a_folder_that_is_missing(tmp_path: Path) -> None:
    bank = Bank()
    bank.update("fr", bank.predict("fr", 0.3), 1)
    path = tmp_path / "nowhere" / "bank.calibeat"
    with pytest.raises(FileNotFoundError, match=r"the folder .*nowhere does not exist.*bank\.calibeat") as refused:
        bank.save(path)
    assert refused.value.filename == str(path) and ".part" not in str(refused.value)


def test_the_client_without_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("calibeat.client")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "msgspec", None)
    with pytest.raises(MissingExtra, match=r"calibeat.client needs msgspec: pip install 'calibeat\[client\]'"):
        importlib.import_module("calibeat.client")


# ---- the backtest ------------------------------------------------------------------------------------------------

RNG = np.random.default_rng(0)
P = RNG.random(1500)
Y = (RNG.random(1500) < P**2).astype(int)


class Mine:
    def predict(self, score: float) -> float:
        return score

    def update(self, score: float, outcome: float) -> None:
        """Nothing is learnt."""


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{p!r},{y}\n" for p, y in zip(P.tolist(), Y.tolist(), strict=True))
    Path("bare.csv").write_text(rows)
    Path("log.csv").write_text("p,y\n" + rows)

    def typing(*words: str) -> tuple[int, str, str]:
        code = cli.main(["backtest", *words])
        said = capsys.readouterr()
        return code, " ".join(said.out.split()), " ".join(said.err.split())

    return typing


@pytest.mark.usefixtures("typed")
def test_a_path_in_the_place_of_scores() -> None:
    assert backtest("log.csv", methods="ops").best == "ops" == backtest(Path("log.csv"), methods="ops").best
    with pytest.raises(
        InvalidInput, match=r"bare.csv must begin with a header, got '0\.6369\d+', '\d': put a line with"
    ):
        backtest("bare.csv")


def test_names_of_columns_in_the_place_of_columns() -> None:
    frame = {"p": P, "y": Y}
    with pytest.raises(InvalidInput, match=r"columns must be named, got 'p'; say score='p', outcome='y'$"):
        backtest(frame, "p", "y")
    times = np.arange(1500)
    named = backtest(frame | {"at": times}, score="p", outcome="y", times="at", methods="ops")
    assert named.table["log_loss"][1] == backtest(P, outcome=Y, time=times, methods="ops").table["log_loss"][1]


def test_methods_by_a_name_of_ones_own() -> None:
    result = backtest(P, Y, methods={"mine": Mine, "auto": "auto"})
    assert result.table["method"].tolist() == ["raw", "mine", "auto"]


@pytest.mark.parametrize("host", [Bank, Calibrator])
@pytest.mark.parametrize("method", [Mine, Mine()])
def test_a_method_of_ones_own_in_a_host(host: Any, method: Any) -> None:
    with pytest.raises(UnknownMethod, match=r"calibeat\.rivals\.Host serves a method of your own$"):
        host(method)
    with pytest.raises(UnknownMethod, match=r"got int 3$"):
        host(3)


def test_no_interval_where_none_is_given() -> None:
    assert not {"ce_low", "ce_high", "ce_vs_best_other_low"} & set(backtest(P, Y, methods="ops").table)


def test_a_csv_without_a_header(typed: Any) -> None:
    for words in ((), ("--score", "p")):
        code, _, err = typed("bare.csv", *words)
        assert code == 2 and "bare.csv must begin with a header, got '0.6369" in err and "score,outcome" in err
    Path("years.csv").write_text("2019,p,label of 2020\n" + "3,0.5,1\n" * 300)
    assert "score column 'q' is not in years.csv" in typed("years.csv", "--score", "q")[2]


def test_a_report_that_is_no_page_and_one_in_a_new_folder(typed: Any) -> None:
    code, _, err = typed("log.csv", "--report", "x.txt", "--methods", "ops")
    assert code == 2 and "--report must end in .html, got 'x.txt': it is a page for a browser" in err
    code, out, _ = typed("log.csv", "--report", "new/x.html", "--methods", "ops")
    assert code == 0 and out.endswith("x.html (in a new folder)")


def test_columns_of_forecasts_have_no_commas(typed: Any) -> None:
    rows = [
        f"{k},{p!r},{y},{k + (10 if y else 900)}" for k, (p, y) in enumerate(zip(P.tolist(), Y.tolist(), strict=True))
    ]
    Path("late.csv").write_text("\n".join(["time,p,y,known_at", *rows]) + "\n")
    code, out, _ = typed("late.csv", "--methods", "auto", "--out", "f.parquet")
    assert code == 0 and "AUTO, mature" in out
    names = parquet.read_schema("f.parquet").names
    assert any(name.startswith("forecast_auto mature ") for name in names) and not any("," in name for name in names)


def test_words_that_read_oddly_are_gone() -> None:
    keys = RNG.integers(0, 400, 1500)
    told = " ".join(backtest(P, Y, keys, methods="auto").payload["verdict"]["sentences"])
    assert "the log-loss of AUTO" in told and "'s log-loss of" not in told
