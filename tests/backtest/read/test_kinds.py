"""Every kind of log that people have gives the same numbers as the plain one."""

from __future__ import annotations

import bz2
import gzip
import io
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from streams import drifting

import calibeat
from calibeat import InvalidInput
from calibeat.backtest.read import jsonl
from calibeat.cli import main as cli

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

N = 400
SCORES, OUTCOMES = drifting(N)
SCORES = SCORES.round(6)
ONES = OUTCOMES.astype(int).tolist()
COUNTRIES = ["DE", "FR", "US", "FR"] * (N // 4)
MOMENTS = (np.datetime64("2024-01-30T22:00", "m") + np.arange(N) * 45).tolist()
PLAIN = calibeat.backtest(SCORES, OUTCOMES, methods="ops").payload["table"]


@pytest.fixture
def typed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def typing(*arguments, methods="ops"):
        code = cli.main(["backtest", *map(str, arguments), "--methods", methods, "--json"])
        said = capsys.readouterr()
        return code, json.loads(said.out) if code == 0 else said.err

    return typing


def text(*columns, mark=",", head="p,y"):
    rows = (mark.join(map(str, row)) for row in zip(*columns, strict=True))
    return "\n".join([head.replace(",", mark), *rows]) + "\n"


def lines(**columns):
    rows = zip(*columns.values(), strict=True)
    return "".join(json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in rows)


def notes(found):
    return found["data"]["notes"]


# ---- JSON Lines --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["log.jsonl", "log.ndjson", "log.json", "log.jsonl.gz", "log.ndjson.bz2", "log", "l.txt"]
)
def test_json_lines(typed, name):
    packed = {".gz": gzip.compress, ".bz2": bz2.compress}.get(Path(name).suffix, lambda b: b)
    Path(name).write_bytes(packed(lines(p=SCORES.tolist(), y=ONES).encode()))
    code, found = typed(name)
    assert code == 0 and found["table"] == PLAIN and found["data"]["rows"] == N


def test_json_lines_from_standard_input(typed, monkeypatch):
    said = lines(p=SCORES.tolist(), y=ONES).encode()
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(said)))
    assert typed("-")[1]["table"] == PLAIN


def test_json_lines_of_every_type(typed, monkeypatch):
    """Numbers as text, booleans, whole numbers that become floats, objects within objects, blocks that differ."""
    monkeypatch.setattr(jsonl, "BLOCK", 3000)
    rows = []
    for k, (p, y) in enumerate(zip(SCORES.tolist(), ONES, strict=True)):
        label = [y, bool(y), str(y), float(y)][k // 100]
        score = p if k < 300 else f"{p}"
        rows.append({"at": str(MOMENTS[k]), "model": {"score": score}, "y": label, "tags": [1, 2], "none": None})
    Path("log.jsonl").write_text("\n\n".join(json.dumps(row) for row in rows))
    code, found = typed("log.jsonl", "--score", "model.score", "--outcome", "y")
    assert code == 0 and found["table"] == PLAIN
    assert found["data"]["span"][0] == "2024-01-30T22:00:00"
    Path("log.jsonl").write_text("\n".join(json.dumps({"p": row["model"]["score"], "y": row["y"]}) for row in rows))
    assert typed("log.jsonl")[1]["table"] == PLAIN


def test_a_key_that_json_has_as_a_date_stays_as_it_is_written(typed):
    Path("log.jsonl").write_text(lines(p=SCORES.tolist(), y=ONES, day=["2024-01-01", "2024-01-02"] * (N // 2)))
    found = typed("log.jsonl", "--key", "day")[1]
    assert {row["key"] for row in found["keys"]["rows"]} == {"2024-01-01", "2024-01-02"}


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (
            '{"p": 0.5, "y": 1}\n{"p": 0.5,\n',
            "row must be a JSON object with each name once, got '{\"p\": 0.5,' - at row 2",
        ),
        (
            '{"p": 0.5, "y": 1}\n{"p": 0.5, "y": 1, "p": 0.6}\n',
            'with each name once, got \'{"p": 0.5, "y": 1, "p": 0.6}\'',
        ),
        ('{"p": 0.5, "y": 1, "p": 0.6}\n', "log.jsonl must hold an object a line"),
        ('{"p": 1.5, "y": 1}\noops\n', "score must be in [0, 1], got 1.5 - at row 1 of log.jsonl"),
        ('[{"p": 0.5, "y": 1}]\n', "must hold an object a line (JSON Lines), got '[{"),
        ("[1]\n", "convert it with jq -c '.[]'"),
        ("nothing\n", "got 'nothing' - at row 1 of log.jsonl"),
        ("", "log.jsonl must hold an object a line, got nothing"),
        ('{"q": 0.5, "y": 1}\n', "score column must be named"),
        ('{"p": "high", "y": 1}\n', "score must be in [0, 1], got 'high' - at row 1 of log.jsonl"),
    ],
)
def test_json_lines_that_are_wrong_get_a_sentence(typed, said, expected):
    Path("log.jsonl").write_text(said)
    code, err = typed("log.jsonl")
    assert code == 2 and expected in err


def test_bad_json_lines_are_skipped_and_counted(typed, monkeypatch):
    good = lines(p=SCORES.tolist(), y=ONES).splitlines()
    Path("log.jsonl").write_text("\n".join([*good[:7], "{oops", *good[7:]]))
    code, found = typed("log.jsonl", "--skip-bad")
    assert code == 0 and found["table"] == PLAIN
    assert [(s["count"], s["first"]) for s in found["data"]["skipped"]] == [(1, "row 8 of log.jsonl")]
    monkeypatch.setattr(jsonl, "BLOCK", 100)
    Path("long.jsonl").write_text('{"p": 0.5, "y": 1, "x": "' + "x" * 1000 + '"}\n')
    assert "got a line of more than 400 bytes" in typed("long.jsonl")[1]


def test_whole_numbers_beyond_64_bits(typed):
    Path("log.jsonl").write_text(lines(p=SCORES.tolist(), y=ONES, k=[2**70, 1] * (N // 2)))
    assert {row["key"] for row in typed("log.jsonl", "--key", "k")[1]["keys"]["rows"]} == {str(2**70), "1"}


# ---- outcomes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl"])
@pytest.mark.parametrize("values", [("ok", "fraud"), (7, 3), (0.0, 2.5)])
def test_the_positive_value_is_named(typed, kind, values):
    labels = [values[y] for y in ONES]
    writers = {
        "csv": lambda: Path("log.csv").write_text(text(SCORES.tolist(), labels)),
        "parquet": lambda: pq.write_table(pa.table({"p": SCORES, "y": labels}), "log.parquet"),
        "jsonl": lambda: Path("log.jsonl").write_text(lines(p=SCORES.tolist(), y=labels)),
    }
    writers[kind]()
    code, found = typed(f"log.{kind}", "--positive", values[1])
    assert code == 0 and found["table"] == PLAIN
    assert any("counts as 1, every other value as 0" in note for note in notes(found))
    code, err = typed(f"log.{kind}", "--positive", "fruad")
    assert code == 2 and "positive must be a value of the outcome column, got 'fruad', which is not there" in err
    assert calibeat.backtest(SCORES, labels, methods="ops", positive=values[1]).payload["table"] == PLAIN


def test_words_that_are_no_outcomes_mention_positive(typed):
    Path("log.csv").write_text(text(SCORES.tolist(), ["ok", "fraud"] * (N // 2)))
    code, err = typed("log.csv")
    assert (
        code == 2 and "got 'ok' - at row 1 of log.csv; say --positive VALUE to name the value that counts as 1" in err
    )
    with pytest.raises(InvalidInput, match=r"say positive=VALUE to name"):
        calibeat.backtest([0.5, 0.5], ["ok", "fraud"])


def test_booleans_may_be_the_positive_value():
    for positive in (False, "false", "False"):
        found = calibeat.backtest(SCORES, OUTCOMES == 0, methods="ops", positive=positive)
        assert found.payload["table"] == PLAIN


def test_outcomes_of_minus_one_and_one(typed):
    signs = (2 * OUTCOMES - 1).astype(int)
    Path("log.csv").write_text(text(SCORES.tolist(), signs))
    code, found = typed("log.csv")
    assert code == 0 and found["table"] == PLAIN
    assert "Outcomes are -1 and 1. -1 was read as 0." in notes(found)
    assert calibeat.backtest(SCORES, signs, methods="ops").payload["table"] == PLAIN
    for at, where in ((0, 1), (N - 1, N - 1)):
        mixed = np.where(np.arange(N) < 2, -1, signs)
        mixed[at] = 0
        with pytest.raises(
            InvalidInput, match=rf"outcomes must be 0 and 1 or -1 and 1, got 0 and -1 - at row {where};"
        ):
            calibeat.backtest(SCORES, mixed, methods="ops")


@pytest.mark.parametrize("skip", [(), ("--skip-bad",)])
def test_missing_outcomes_are_forecast_and_not_judged(typed, skip):
    labels = np.where(np.arange(N) % 3 == 1, np.nan, OUTCOMES)
    Path("log.csv").write_text(text(SCORES.tolist(), ["" if np.isnan(y) else int(y) for y in labels]))
    code, found = typed("log.csv", "--out", "f.parquet", "--warmup", 0, *skip)
    assert code == 0 and not found["data"]["skipped"]
    missing = int(np.isnan(labels).sum())
    assert (found["data"]["used"], found["data"]["judged"]) == (N, N - missing)
    assert f"{missing} events have no outcome. Such events were forecast and not judged." in notes(found)
    written = pq.read_table("f.parquet")["forecast_ops"].to_numpy()
    cal, forecasts = calibeat.Calibrator("ops"), []
    for score, y in zip(SCORES, labels, strict=True):
        forecast = cal.predict(score)
        forecasts.append(forecast.probability)
        if not np.isnan(y):
            cal.update(forecast, y)
    assert written.tolist() == forecasts
    one = calibeat.backtest([*SCORES, 0.5], [*OUTCOMES, None], methods="ops").payload["data"]["notes"]
    assert "One event has no outcome. Such events were forecast and not judged." in one


# ---- delimiters, decimals, times ---------------------------------------------------------------------------------


@pytest.mark.parametrize("mark", [";", "\t", "|"])
def test_a_delimiter_that_is_seen_is_used(typed, mark):
    Path("log.csv").write_text(text(SCORES.tolist(), ONES, mark=mark))
    code, found = typed("log.csv")
    assert code == 0 and found["table"] == PLAIN
    named = "a tab" if mark == "\t" else repr(mark)
    assert f"The columns are between {named}, as the header shows." in notes(found)


@pytest.mark.parametrize("kind", ["probability", "percent", "logit"])
def test_decimal_commas(typed, kind):
    given = {"probability": SCORES, "percent": 100 * SCORES, "logit": np.log(SCORES / (1 - SCORES))}[kind]
    sign = " %" if kind == "percent" else ""
    shown = [f"{value}".replace(".", ",") + sign for value in given]
    Path("log.csv").write_text(text(shown, [f"{y},0" for y in ONES], mark=";"))
    code, found = typed("log.csv", "--decimal", ",", "--score-kind", kind)
    assert code == 0
    table = calibeat.backtest(given, OUTCOMES, methods="ops", score_kind=kind).payload["table"]
    assert found["table"] == table
    same = calibeat.backtest(shown, OUTCOMES, methods="ops", score_kind=kind, decimal=",")
    assert same.payload["table"] == table
    code, err = typed("log.csv", "--decimal", ";")
    assert code == 2 and "decimal must be '.' or ',', got ';'" in err


@pytest.mark.parametrize(
    ("form", "fine"),
    [("%d/%m/%Y %H:%M", True), ("%m-%d-%Y %I:%M %p", True), ("%d.%m.%Y %H:%M:%S.%f", True), ("%d %b %Y", False)],
)
def test_times_of_a_format(typed, form, fine):
    """Days 30 and 31 are among them, which Arrow alone would take for days of the next month where there are none."""
    shown = [moment.strftime(form) for moment in MOMENTS]
    Path("log.csv").write_text(text(SCORES.tolist(), ONES, shown, head="p,y,t"))
    code, found = typed("log.csv", "--time", "t", "--time-format", form, "--delay", "6h")
    assert code == 0
    times = np.array(MOMENTS, dtype="M8[m]" if fine else "M8[D]")
    plain = calibeat.backtest(SCORES, OUTCOMES, None, times, methods="ops", delay="6h").payload
    assert found["data"]["span"] == plain["data"]["span"]
    if fine:
        assert found["table"] == plain["table"]
        same = calibeat.backtest(SCORES, OUTCOMES, None, shown, methods="ops", delay="6h", time_format=form)
        assert same.payload["table"] == plain["table"]


@pytest.mark.parametrize("wrong", ["31/02/2024", "2024-02-01", "soon"])
def test_a_time_that_is_not_of_the_format(typed, wrong):
    Path("log.csv").write_text(f"p,y,t\n0.5,1,01/02/2024\n0.5,0,{wrong}\n")
    code, err = typed("log.csv", "--time", "t", "--time-format", "%d/%m/%Y")
    assert code == 2 and f"got '{wrong}' - at row 2 of log.csv" in err and "%d/%m/%Y" in err
    with pytest.raises(InvalidInput, match=f"got '{wrong}' - at row 1"):
        calibeat.backtest([0.5, 0.5], [1, 0], None, ["01/02/2024", wrong], time_format="%d/%m/%Y")
    with pytest.raises(InvalidInput, match="time_format must be a format such as"):
        calibeat.backtest([0.5, 0.5], [1, 0], time_format="iso")


def test_objects_and_gaps_beside_times_of_a_format():
    shown = [moment.strftime("%d/%m/%Y %H:%M") for moment in MOMENTS]
    shown[3], known = MOMENTS[3], [*shown[:5], None, *shown[6:]]
    labels = np.where(np.arange(N) == 5, np.nan, OUTCOMES)
    found = calibeat.backtest(SCORES, labels, None, shown, known, methods="ops", time_format="%d/%m/%Y %H:%M")
    assert found.payload["delay"]["never"] == 1 and found.payload["data"]["span"][0] == "2024-01-30T22:00:00"


def test_times_of_which_one_column_has_a_zone(typed):
    rows = [(p, y, f"{t}Z", t) for p, y, t in zip(SCORES.tolist(), ONES, MOMENTS, strict=True)]
    Path("log.csv").write_text(text(*zip(*rows, strict=True), head="p,y,time,known_at"))
    code, err = typed("log.csv")
    assert code == 2 and "must both have a zone or both have none" in err and "say --time-zone NAME" in err


def test_scores_of_odd_text(typed):
    for word, said in ((" inf ", "got ' inf '"), ("1_0", "got '1_0'"), ("nan", "got nothing")):
        Path("log.csv").write_text(f"p,y\n0.5,1\n{word},0\n")
        code, err = typed("log.csv")
        assert code == 2 and f"score must be in [0, 1], {said} - at row 2 of log.csv" in err, word


def test_times_of_a_format_with_a_zone(typed):
    shown = [f"{moment:%d/%m/%Y %H:%M} +0200" for moment in MOMENTS]
    Path("log.csv").write_text(text(SCORES.tolist(), ONES, shown, head="p,y,t"))
    code, found = typed("log.csv", "--time", "t", "--time-format", "%d/%m/%Y %H:%M %z")
    assert code == 0 and found["data"]["span"][0] == "2024-01-30T20:00:00"


def test_times_with_and_without_zones_spaces_and_nanoseconds(typed):
    endings = ["", "Z", "+00:00", " ", ".123456789", ".5Z"]
    shown = [f"{moment:%Y-%m-%dT%H:%M:%S}{endings[k % 6]}" for k, moment in enumerate(MOMENTS)]
    Path("log.csv").write_text(text(SCORES.tolist(), ONES, shown, head="p,y,t"))
    code, found = typed("log.csv", "--time", "t")
    assert code == 0 and found["data"]["span"][0] == "2024-01-30T22:00:00"
    assert any("Those without were read as UTC" in note for note in notes(found))
    shown[5] = "2024-02-30"
    Path("log.csv").write_text(text(SCORES.tolist(), ONES, shown, head="p,y,t"))
    code, err = typed("log.csv", "--time", "t")
    assert code == 2 and "got '2024-02-30' - at row 6 of log.csv" in err


# ---- keys --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("log", ["hive", "hive/*/*.parquet"])
def test_hive_partitions_are_columns(typed, log):
    order = np.argsort(COUNTRIES, kind="stable")
    for country in ("DE", "FR", "US"):
        rows = [k for k in order if COUNTRIES[k] == country]
        folder = Path("hive", f"country={country}" if country != "US" else "country=__HIVE_DEFAULT_PARTITION__")
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"p": SCORES[rows], "y": OUTCOMES[rows]}), folder / "part-0.parquet")
    plain = calibeat.backtest(SCORES[order], OUTCOMES[order], np.array(COUNTRIES)[order], methods="ops").payload
    code, found = typed(log, "--key", "country", "--blank-key", "US")
    assert code == 0 and found["table"] == plain["table"]
    assert {row["key"] for row in found["keys"]["rows"]} == {"DE", "FR", "US"}
    code, err = typed(log, "--key", "country")
    assert code == 2 and "key must be there, got nothing - at row 1 of" in err
    assert "say --blank-key NAME to give such events a stream of their own" in err


def test_keys_that_come_as_codes_and_names_are_those_of_a_csv_in_the_same_order(typed):
    names = ["a", "b", "c", " ", None]
    which = np.array([1, 0, 4, 3, 2, 1])[np.arange(N) % 6]
    keys = [names[at] for at in which]
    asked = "--key", "k", "--blank-key", "nobody"
    Path("log.csv").write_text(text(SCORES, ONES, ["" if key is None else key for key in keys], head="p,y,k"))
    wanted = typed("log.csv", *asked)[1]["keys"]
    pq.write_table(pa.table({"p": SCORES, "y": ONES, "k": keys}), "log.parquet")
    coded = pa.table({"p": SCORES, "y": ONES, "k": pa.DictionaryArray.from_arrays(which, names)})
    with pa.ipc.new_file("log.arrow", coded.schema) as file:
        file.write_table(coded)
    for log in ("log.parquet", "log.arrow"):
        assert typed(log, *asked)[1]["keys"] == wanted
    pq.write_table(pa.table({"p": SCORES, "y": ONES, "k": [[1]] * N}), "log.parquet")
    assert "key column must hold text or numbers, got list" in typed("log.parquet", *asked)[1]


def test_a_column_of_the_file_is_before_that_of_its_folder(typed):
    Path("k=folder").mkdir()
    Path("k=folder/log.csv").write_text(text(SCORES.tolist(), ONES, COUNTRIES, head="p,y,k"))
    found = typed("k=folder/log.csv", "--key", "k")[1]
    assert {row["key"] for row in found["keys"]["rows"]} == {"DE", "FR", "US"}


def test_a_name_for_missing_keys(typed):
    blank = ["" if country == "US" else country for country in COUNTRIES]
    plain = calibeat.backtest(SCORES, OUTCOMES, COUNTRIES, methods="ops").payload["table"]
    Path("log.csv").write_text(text(SCORES.tolist(), ONES, blank, head="p,y,k"))
    code, found = typed("log.csv", "--key", "k", "--blank-key", "US")
    assert code == 0 and found["table"] == plain
    nothing = [country or None for country in blank]
    assert calibeat.backtest(SCORES, OUTCOMES, nothing, methods="ops", blank_key="US").payload["table"] == plain
    with pytest.raises(InvalidInput, match="blank_key must be a name, got ' '"):
        calibeat.backtest(SCORES, OUTCOMES, nothing, blank_key=" ")
