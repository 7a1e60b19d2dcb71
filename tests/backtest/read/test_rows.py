"""Rows, columns and times: what is wrong is named where it stands, and nothing is taken for what it is not."""

from __future__ import annotations

import datetime as dt
import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from streams import drifting

import calibeat
from calibeat import InvalidInput
from calibeat.backtest.read.files import CSV, LogFile
from calibeat.cli import main as cli

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

N = 300
SCORES, OUTCOMES = drifting(N)
SECONDS = 1_700_000_000 + 60 * np.arange(N)


def run(*columns, methods="ops", **options):
    return calibeat.backtest(*columns, methods=methods, **options)


@pytest.fixture
def typed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def typing(*arguments):
        code = cli.main(["backtest", *map(str, arguments), "--methods", "ops"])
        said = capsys.readouterr()
        return code, said.out, said.err

    return typing


def events():
    return list(zip(SCORES.tolist(), OUTCOMES.astype(int).tolist(), strict=True))


def csv(name="log.csv", head="p,y", rows=None):
    rows = events() if rows is None else rows
    Path(name).write_text("\n".join([head, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return name


# ---- times -------------------------------------------------------------------------------------------------------


def test_every_column_of_times_has_its_unit():
    late = run(SCORES, OUTCOMES, None, SECONDS * 1000, SECONDS + 600).payload
    assert late["delay"]["quantiles"]["50%"] == 600
    assert any("times holds numbers. They were read as milliseconds since 1970" in n for n in late["data"]["notes"])
    counted = run(SCORES, OUTCOMES, None, np.arange(N) * 2**10, np.arange(N) * 2**10 + 3e8).payload
    assert counted["delay"]["quantiles"]["50%"] == 3e8 and counted["data"]["span"] is None  # one clock for both


def test_an_outcome_before_its_event_is_refused_or_counted():
    known = SECONDS + 60
    known[7] = SECONDS[7] - 1
    said = "outcome time must not be before the time of its event, 1700000420, got 1700000419 - at row 7"
    with pytest.raises(InvalidInput, match=said):
        run(SCORES, OUTCOMES, None, SECONDS, known)
    data = run(SCORES, OUTCOMES, None, SECONDS, known, skip_bad=True).payload["data"]
    assert data["skipped"] == [{"reason": "outcome time is before the time of its event", "count": 1, "first": "row 7"}]


def test_dates_written_as_numbers():
    days = [int((dt.date(2024, 1, 1) + dt.timedelta(days=k)).strftime("%Y%m%d")) for k in range(N)]
    found = run(SCORES, OUTCOMES, None, days).payload["data"]
    assert found["span"] == ["2024-01-01T00:00:00", "2024-10-26T00:00:00"]
    assert any("dates written as YYYYMMDD." in note for note in found["notes"])
    moments = [
        int((dt.datetime(2024, 2, 28, 23, tzinfo=dt.UTC) + dt.timedelta(minutes=k)).strftime("%Y%m%d%H%M%S"))
        for k in range(N)
    ]
    found = run(SCORES, OUTCOMES, None, moments).payload["data"]
    assert found["span"] == ["2024-02-28T23:00:00", "2024-02-29T03:59:00"]
    assert run(SCORES, OUTCOMES, None, 20_240_100 + np.arange(N)).payload["data"]["span"] is None  # no such days
    assert run(SCORES[:2], OUTCOMES[:2], None, [20240230, 20240231]).payload["data"]["span"] is None


def test_a_batch_without_outcome_times_decides_nothing(typed):
    Path("log").mkdir()
    n = 200
    csv("log/a.csv", "p,y,t,known", [(p, y, k, k + 10) for k, (p, y) in enumerate(events()[:n])])
    csv("log/b.csv", "p,y,t,known", [(0.5, "", n + k, "") for k in range(50)])
    code, out, _ = typed("log", "--time", "t", "--outcome-time", "known", "--json")
    found = json.loads(out)
    assert code == 0 and found["data"]["span"] is None and found["windows"]["by"] == "event"
    assert found["delay"]["never"] == 50


def test_times_beyond_the_calendar_get_a_sentence(typed):
    far = np.array(["20000-01-01"], dtype="M8[s]") + np.arange(N) * 10_800
    for times in (far, np.array([400_000 - 1970] * N, dtype="M8[Y]"), 1e20 + np.arange(N) * 1e18):
        with pytest.raises(InvalidInput, match=r"years 1 to 9999 .* - at row"):
            run(SCORES, OUTCOMES, None, times)
    pq.write_table(pa.table({"p": SCORES, "y": OUTCOMES, "t": far}), "far.parquet")
    code, _, err = typed("far.parquet", "--time", "t")
    assert code == 2 and "time must be a date of the years 1 to 9999" in err and "at row 1 of far.parquet" in err
    with pytest.raises(InvalidInput, match="delay must be 1,000 years at most, got '106751992d'"):
        run(SCORES, OUTCOMES, None, SECONDS, delay="106751992d")


# ---- columns from Python -----------------------------------------------------------------------------------------


def test_columns_that_are_none_or_of_odd_things():
    for columns, said in (
        ((None, OUTCOMES), "scores must be a one-dimensional array, got None"),
        ((SCORES, None), "outcomes must be a one-dimensional array, got None"),
    ):
        with pytest.raises(InvalidInput, match=said):
            run(*columns)
    with pytest.raises(InvalidInput, match=r"key must be text or a number, got \{'a': 1\} - at row 0"):
        run(SCORES, OUTCOMES, np.array([{"a": 1}] * N, dtype=object))


def test_arrays_of_arrow_and_indexes_of_pandas():
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("narwhals")
    times = pandas.date_range("2024-01-01", periods=N, freq="min")
    plain = run(SCORES, OUTCOMES, None, times.to_numpy()).payload
    for other in (
        run(pa.array(SCORES), pa.array(OUTCOMES.astype(bool)), None, times),
        run(pandas.Index(SCORES), pandas.array(OUTCOMES.astype(bool), dtype="boolean"), None, pa.array(times)),
    ):
        assert other.payload["table"] == plain["table"] and other.payload["data"]["span"] == plain["data"]["span"]
    for frame in (pandas.DataFrame({"p": SCORES}), pa.table({"p": SCORES})):
        with pytest.raises(InvalidInput, match="outcome must name a column of the data frame, got ndarray"):
            run(frame, OUTCOMES)


def test_forecasts_are_in_the_order_of_the_rows():
    order = np.random.default_rng(0).permutation(N)
    plain = run(SCORES, OUTCOMES, None, SECONDS, keep_forecasts=True)
    mixed = run(SCORES[order], OUTCOMES[order], None, SECONDS[order], sort=True, keep_forecasts=True)
    np.testing.assert_array_equal(mixed.forecasts["ops"], plain.forecasts["ops"][order])
    odd = run(np.r_[2.0, SCORES], np.r_[1, OUTCOMES], skip_bad=True, keep_forecasts=True)
    assert len(odd.forecasts["ops"]) == N + 1 and np.isnan(odd.forecasts["ops"][0])
    np.testing.assert_array_equal(odd.forecasts["raw"][1:], SCORES)


# ---- rows of files -----------------------------------------------------------------------------------------------


def test_rows_keep_their_numbers_where_others_are_broken(typed):
    rows = [(*event, "x") for event in events()]
    rows[3], rows[9] = (0.5, 1), (0.5,)
    rows[20] = (7, 1, "x")
    code, out, _ = typed(csv(head="p,y,z", rows=rows), "--skip-bad", "--json")
    skipped = {s["reason"]: s["first"] for s in json.loads(out)["data"]["skipped"]}
    assert code == 0 and skipped["score is not in [0, 1]"] == "row 21 of log.csv"
    assert skipped["row has too many or too few fields"] == "row 4 of log.csv"
    typed("log.csv", "--skip-bad", "--out", "f.parquet")
    found = pq.read_table("f.parquet").to_pydict()
    assert found["row"] == [k + 1 for k in range(N) if k not in (3, 9, 20)]
    assert found["score"] == [rows[k - 1][0] for k in found["row"]]


def test_the_first_row_that_is_wrong_is_named(typed):
    good = events()
    cases = {
        "row 1 ": ("p,y,z", [(7, 1, 1), (0.4, 1), *((*e, 1) for e in good)], ()),
        "row 2 ": ("p,y,z", [(0.4, 1, 1), (0.4, 1), *((7, y, 1) for _, y in good)], ()),
        "row 3 ": ("p,y,i", [(0.4, 1, "a"), (0.4, 1, "b"), (0.4, 1, "a"), (7, 1, "c")], ("--id", "i")),
        "row 4 ": ("p,y,i", [(0.4, 1, 1), (0.4, 1, 2), (0.4, 1, 3), (7, 1, 1), (0.4, 1, 1)], ("--id", "i")),
        "row 5 ": ("p,y,t", [(0.4, 1, k) for k in (5, 6, 7, 8, 1)] + [(7, 1, 9)], ("--time", "t")),
    }
    for said, (head, rows, options) in cases.items():
        code, _, err = typed(csv(head=head, rows=rows), *options)
        assert code == 2 and f"- at {said}" in err, (said, err)


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        ([f"{100 * s:.1f}%" for s in SCORES], "the scores look like percent: say --score-kind percent"),
        ([f"{s:.4f}".replace(".", ",") for s in SCORES], "the numbers have decimal commas: say --decimal ','"),
        ([3 * s for s in SCORES], "the scores look like percent: say --score-kind percent"),
        ([s if k % 15 else 1.5 + s for k, s in enumerate(SCORES)], "the scores look like percent"),
    ],
)
def test_scores_of_another_kind_are_not_passed_over(typed, scores, said):
    rows = [(f'"{s}"', int(y)) for s, y in zip(scores, OUTCOMES, strict=True)]
    for options in ((), ("--skip-bad",)):
        code, _, err = typed(csv(rows=rows), *options)
        assert code == 2 and said in err


def test_percent_may_have_its_sign(typed):
    plain = run(SCORES.round(3), OUTCOMES).payload["table"][0]["log_loss"]
    texts = [f"{100 * s:.1f} %" for s in SCORES]
    code, out, _ = typed(csv(rows=zip(texts, OUTCOMES.astype(int), strict=True)), "--score-kind", "percent", "--json")
    assert code == 0 and json.loads(out)["table"][0]["log_loss"] == pytest.approx(plain)
    assert run(texts, OUTCOMES, score_kind="percent").payload["table"][0]["log_loss"] == pytest.approx(plain)
    assert "Scores are percent." in " ".join(typed("log.csv", "--score-kind", "percent")[1].split())


def test_what_may_be_percent_is_said():
    few = np.r_[SCORES, 1.5, 1.5, 1.5, 1.5]
    notes = run(few, np.r_[OUTCOMES, 1, 1, 0, 0], skip_bad=True).payload["data"]["notes"]
    assert any("4 scores were skipped; the scores look like percent" in note for note in notes)
    rare = np.r_[1, np.zeros(N - 1)][::-1]
    notes = run(SCORES, rare).payload["data"]["notes"]
    assert any("times the share of ones" in note and "--score-kind percent" in note for note in notes)


def test_a_key_is_one_key_in_every_type(typed):
    Path("log").mkdir()
    csv("log/a.csv", "p,y,k", [(*event, 1) for event in events()])
    for name, key in (("b", 1), ("c", 1.0), ("d", "1")):
        pq.write_table(pa.table({"p": SCORES, "y": OUTCOMES, "k": [key] * N}), f"log/{name}.parquet")
    csv("log/e.csv", "p,y,k", [(7, 1, "only skipped"), (0.5, 1, 2)])
    code, out, _ = typed("log", "--key", "k", "--skip-bad", "--json")
    found = json.loads(out)
    assert code == 0 and found["data"]["keys"] == 2
    assert {row["key"]: row["events"] for row in found["keys"]["rows"]} == {"1": 4 * N - 60, "2": 1}


def test_forecasts_can_be_joined_to_the_log(typed):
    Path("log").mkdir()
    csv("log/a.csv", "i,p,y,t", [(f"a{k}", *e, N - k) for k, e in enumerate(events())])
    pq.write_table(pa.table({"i": np.arange(N), "p": SCORES, "y": OUTCOMES, "t": np.arange(N)}), "log/b.parquet")
    assert typed("log", "--time", "t", "--sort", "--id", "i", "--out", "f.parquet")[0] == 0
    found = pq.read_table("f.parquet").to_pydict()
    assert set(found["file"]) == {"log/a.csv", "log/b.parquet"}
    for file, row, name, score in zip(found["file"], found["row"], found["id"], found["score"], strict=True):
        assert score == SCORES[row - 1] and name == (f"a{row - 1}" if file == "log/a.csv" else str(row - 1))


# ---- files -------------------------------------------------------------------------------------------------------


def test_bytes_that_are_no_text_are_refused_at_any_size(typed):
    for n in (5, 40_000):
        Path("log.csv").write_bytes(b"p,y,name\n" + b"0.5,1,Muller\n" * n + b"0.5,1,M\xfcller\n")
        code, _, err = typed("log.csv")
        assert code == 2 and "log.csv must be text in UTF-8, got byte 0xfc" in err
    Path("log.csv").write_bytes("p,y\n0.5,1\n".encode("utf-16"))
    assert "log.csv must be text in UTF-8, got other bytes in its header" in typed("log.csv")[2]


def test_files_that_end_or_begin_oddly(typed):
    whole = gzip.compress(Path(csv()).read_bytes())
    Path("cut.csv.gz").write_bytes(whole[: len(whole) // 2])
    Path("no.csv.gz").write_bytes(b"no gzip at all")
    for name in ("cut.csv.gz", "no.csv.gz"):
        code, _, err = typed(name)
        assert code == 2 and err.startswith(f"calibeat: {name} must be a log that can be read, got: ")
    Path("head.csv").write_text("p,y")
    assert "at least one row that can be used, got a header at most" in typed("head.csv")[2]
    Path("lead.csv").write_text("\n\r\n" + Path("log.csv").read_text())
    assert typed("lead.csv")[0] == 0
    with pytest.raises(FileNotFoundError, match=r"gone\.csv"):  # as where a file of a folder is taken away meanwhile
        list(LogFile("gone.csv", CSV).batches(lambda *_: [], None))


def test_one_column_is_not_two(typed):
    code, _, err = typed(csv(), "--score", "y", "--outcome", "y")
    assert code == 2 and "score and outcome must be two columns, got 'y' for both" in err


def test_a_guess_names_its_rivals(typed):
    out = typed(csv(head="prediction,probability,label,y", rows=[(1, *e, 1) for e in events()]))[1]
    said = " ".join(out.split())
    assert "The score was guessed to be in 'probability'; there is also 'prediction'." in said
    assert "The outcome was guessed to be in 'label'; there is also 'y'." in said


def test_missing_values_mention_how_to_skip_them(tmp_path, monkeypatch, capsys):
    with pytest.raises(InvalidInput, match=r"score must be in \[0, 1\], got nothing - at row 0; say skip_bad=True"):
        calibeat.backtest([None, 0.5], [1, 1])
    pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.csv").write_text("p,y\n0.5,1\n,1\n")
    assert cli.main(["backtest", "log.csv"]) == 2
    said = "score must be in [0, 1], got nothing - at row 2 of log.csv; say --skip-bad to skip such rows and count them"
    assert capsys.readouterr().err == f"calibeat: {said}\n"
