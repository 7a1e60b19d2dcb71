"""A log into a store: the checks of HTTP, the order and the bits of a service, all or nothing, in little memory."""

from __future__ import annotations

import csv
import gzip
import io
import json
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import postgres
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather
from services import desk

from calibeat.backtest.options import Options
from calibeat.backtest.read import files
from calibeat.backtest.read.files import files_of
from calibeat.cli.main import main
from calibeat.service import transfer
from calibeat.service.engine import Engine
from calibeat.service.events import ForecastEvent, OutcomeEvent
from calibeat.service.settings import EngineSettings
from calibeat.service.store import open_connection
from calibeat.service.transfer import EventColumns, Imported, Stage, import_events

START = 1_700_000_000
NAMES = ["stream", "id", "time", "score", "outcome", "outcome_time"]


def events(n: int, seed: int = 0) -> list[dict[str, Any]]:
    """Events of three streams, in an order that is not that of their times. Times are often equal; some come late."""
    rng = np.random.default_rng(seed)
    made = []
    for at in range(n):
        time = START + int(rng.integers(1 + n // 4)) * 60
        outcome = None if rng.random() < 0.1 else int(rng.random() < 0.4)
        known = None if outcome is None else time + 60 * int(rng.choice([0, 0, 1, 3, 40]))
        row = (f"s{rng.integers(3)}", f"e{at}", time, round(float(rng.random()), 6), outcome, known)
        made.append(dict(zip(NAMES, row, strict=True)))
    return made


def naive_order(rows: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """Forecast by forecast in the order of times: before each, what is known by then and not told yet."""
    done: list[tuple[str, dict[str, Any]]] = []
    waiting: list[dict[str, Any]] = []

    def tell(before: float) -> None:
        for row in sorted((row for row in waiting if row["outcome_time"] <= before), key=lambda r: r["outcome_time"]):
            waiting.remove(row)
            done.append(("outcome", row))

    for row in sorted(rows, key=lambda row: row["time"]):
        tell(row["time"])
        done.append(("forecast", row))
        if row["outcome"] is not None:
            waiting.append(row)
            waiting.sort(key=rows.index)
    tell(float("inf"))
    return done


def store_of(url: str) -> tuple[list[Any], list[Any], list[Any]]:
    """All that counts of a store: streams with their states, events and the order of their operations, roll-ups."""
    connection = open_connection(url)
    try:
        streams = connection.all(
            "SELECT name, events, outcomes, pending, last_time, state, sums, monitor "
            "FROM stream JOIN body ON stream = number ORDER BY name"
        )
        found = connection.all(
            "SELECT s.name, e.nth, e.id, e.position, e.time, o.x, o.told, r.receipt, e.status, e.outcome, e.learnt, "
            "e.outcome_time FROM event e JOIN stream s ON s.number = e.stream JOIN op o ON o.position = e.position "
            "LEFT JOIN receipt r ON r.stream = e.stream AND r.version = s.receipts AND r.nth = e.nth "
            "ORDER BY s.name, e.nth"
        )
        order = sorted(at for _, _, _, at, *_, learnt, _ in found for at in (at, learnt) if at is not None)
        places = {at: place for place, at in enumerate(order)} | {None: None}
        found = [(*row[:3], places[row[3]], *row[4:-2], places[row[-2]], row[-1]) for row in found]
        rollups = connection.all(
            "SELECT s.name, r.hour, r.kind, r.tenth, r.forecasts, r.outcomes FROM rollup r "
            "JOIN stream s ON s.number = r.stream ORDER BY 1, 2, 3, 4"
        )
        return tuple(  # type: ignore[return-value]
            [tuple(bytes(v) if isinstance(v, memoryview) else v for v in row) for row in rows]
            for rows in (streams, found, rollups)
        )
    finally:
        connection.close()


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    """A file of the kind that its name tells."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist(rows)
    if path.name.endswith(".jsonl"):
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".parquet":
        pq.write_table(table, path)
    elif path.suffix == ".feather":
        feather.write_feather(table, path)
    else:
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
        data = text.getvalue().encode()
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def take(url: str, log: Path | str, options: Options | None = None, **settings: Any) -> Imported:
    """Import a log with the usual columns."""
    with Stage() as stage:
        stage.read(files_of(str(log)), EventColumns({}), options or Options(typed=True))
        return import_events(url, stage, EngineSettings(**{"method": "tops", **settings}))


Typed = Callable[..., tuple[int, str, str]]


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Typed:
    """`calibeat store import`, in a folder of its own -> status, output, errors."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, store: str = "calibeat.db") -> tuple[int, str, str]:
        code = main(["store", "import", *arguments, "--store", store, "--create"])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


# ---- the order and the bits ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["tops", "hops"])
def test_an_import_has_the_bits_of_a_service_that_got_the_events_in_order(
    url: str, tmp_path: Path, method: str
) -> None:
    rows = events(120)
    found = take(url, write(tmp_path / "log.parquet", rows), method=method, group=17)
    outcomes = sum(row["outcome"] is not None for row in rows)
    assert found == Imported(120, 120, outcomes, 0, 0)
    other = str(tmp_path / "http.db")
    with desk(other, method=method) as service:
        for kind, row in naive_order(rows):
            if kind == "forecast":
                service.ask((row["stream"], row["id"], row["score"], row["time"]))
            else:
                service.tell((row["stream"], row["id"], row["outcome"], row["outcome_time"]))
    mine, theirs = store_of(url), store_of(other)
    assert mine[0] == theirs[0] and mine[1] == theirs[1]
    assert mine[2] == theirs[2]
    assert main(["store", "replay", "--check", "--store", url]) == 0
    assert main(["store", "check", "--store", url]) == 0


def test_an_import_has_the_forecasts_of_a_backtest(typed: Typed) -> None:
    rows = sorted(events(300), key=lambda row: row["time"])
    write(Path("log.csv"), rows)
    assert typed("log.csv", "--method", "tops")[0] == 0
    backtest = ["backtest", "log.csv", "--methods", "tops", "--key", "stream", "--out", "out.parquet"]
    assert main([*backtest, "--time", "time", "--outcome-time", "outcome_time", "--warmup", "10"]) == 0
    told = pq.read_table("out.parquet", columns=["id", "forecast_tops"])
    expected = dict(zip(*(column.to_pylist() for column in told.columns), strict=True))
    assert {row[2]: row[6] for row in store_of("calibeat.db")[1]} == expected


def test_without_times_of_outcomes_each_is_learnt_after_its_forecast(typed: Typed) -> None:
    rows = [{name: row[name] for name in NAMES[:-1]} for row in sorted(events(60), key=lambda row: row["time"])]
    write(Path("log.csv"), rows)
    code, out, _ = typed("log.csv", "--method", "tops")
    assert code == 0 and "There is no column of outcome times: each outcome was learnt right after its" in out
    with desk("other.db") as service:
        for row in rows:
            service.ask((row["stream"], row["id"], row["score"], row["time"]))
            if row["outcome"] is not None:
                service.tell((row["stream"], row["id"], row["outcome"], row["time"]))
    assert store_of("calibeat.db")[:2] == store_of("other.db")[:2]


def test_without_times_events_have_the_order_of_the_rows(typed: Typed) -> None:
    rows = [{name: row[name] for name in ("stream", "id", "score", "outcome")} for row in events(60)]
    write(Path("log.csv"), rows)
    before = datetime.now(UTC).timestamp()
    code, out, _ = typed("log.csv", "--method", "tops")
    assert code == 0 and "There is no column of times: events have the time of the import" in out
    found = store_of("calibeat.db")[1]
    assert all(before - 1.0 <= row[4] <= datetime.now(UTC).timestamp() for row in found)
    for stream in ("s0", "s1", "s2"):
        assert [row[2] for row in found if row[0] == stream] == [row["id"] for row in rows if row["stream"] == stream]


def test_an_outcome_before_its_event_is_learnt_after_it(typed: Typed) -> None:
    """Two clocks may differ; the service takes such times too."""
    write(
        Path("log.csv"),
        [{**row, "outcome_time": START - 5} if row["outcome"] is not None else row for row in events(40)],
    )
    code, out, _ = typed("log.csv")
    assert (
        code == 0 and "outcome times are before the time of their event. Such outcomes were learnt right after" in out
    )
    assert all(row[11] is None or row[11] == row[4] for row in store_of("calibeat.db")[1])


# ---- kinds of logs ---------------------------------------------------------------------------------------------------


def moments(kind: str, seconds: int | None) -> Any:
    """A time as people write it."""
    if seconds is None:
        return None
    if kind == "milliseconds":
        return 1000 * seconds
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat() if kind == "text" else moment if kind == "timestamps" else seconds


@pytest.mark.parametrize("kind", ["seconds", "milliseconds", "text", "timestamps"])
@pytest.mark.parametrize("name", ["log.csv", "log.jsonl", "log.csv.gz", "log.parquet", "log.feather"])
def test_every_kind_of_log_gives_the_same_store(typed: Typed, name: str, kind: str) -> None:
    if kind == "timestamps" and name not in {"log.parquet", "log.feather"}:
        kind = "text"
    rows = events(40)
    told = [{**row, **{at: moments(kind, row[at]) for at in ("time", "outcome_time")}} for row in rows]
    write(Path(name), told)
    assert typed(name, "--method", "tops")[0] == 0
    take("other.db", write(Path("plain.parquet"), rows))
    assert store_of("calibeat.db") == store_of("other.db")


def test_columns_have_the_names_that_backtest_gives_them(typed: Typed) -> None:
    renamed = dict(zip(NAMES, ["carrier", "order", "at", "p", "late", "known"], strict=True))
    write(Path("log.csv"), [{renamed[name]: row[name] for name in NAMES} for row in events(40)])
    options = "--stream carrier --id order --time at --score p --outcome late --outcome-time known --method tops"
    code, out, _ = typed("log.csv", *options.split())
    assert code == 0
    assert (
        "columns: score in 'p', outcome in 'late', time in 'at', outcome time in 'known', id in 'order', stream in"
        in out
    )
    take("other.db", write(Path("plain.parquet"), events(40)))
    assert store_of("calibeat.db") == store_of("other.db")
    assert typed("log.csv", *options.replace("--stream", "--key").split(), "--json", store="third.db")[0] == 0
    assert store_of("third.db") == store_of("other.db")


def test_a_folder_of_hive_is_a_log(typed: Typed) -> None:
    rows = events(60)
    for stream in ("s0", "s1", "s2"):
        part = [{name: row[name] for name in NAMES[1:]} for row in rows if row["stream"] == stream]
        write(Path(f"log/stream={stream}/part-0.parquet"), part)
    assert typed("log", "--method", "tops")[0] == 0
    take("other.db", write(Path("plain.parquet"), sorted(rows, key=lambda row: row["stream"])))
    assert store_of("calibeat.db") == store_of("other.db")


def test_other_outcomes_and_scores(typed: Typed) -> None:
    rows = events(40)
    words = {None: None, 0: "lost", 1: "won"}
    told = [
        {**row, "outcome": words[row["outcome"]], "score": f"{100 * row['score']:.4f}%".replace(".", ",")}
        for row in rows
    ]
    write(Path("log.csv"), told)
    code, out, _ = typed(
        "log.csv", "--positive", "won", "--score-kind", "percent", "--decimal", ",", "--method", "tops"
    )
    assert code == 0 and "An outcome of 'won' counts as 1" in out
    found = {row[2]: (row[5], row[9]) for row in store_of("calibeat.db")[1]}
    for row in rows:
        assert found[row["id"]] == (pytest.approx(row["score"], abs=1e-12), row["outcome"])
    code, _, err = typed("log.csv", "--positive", "win", "--score-kind", "percent", "--decimal", ",")
    assert code == 2 and "positive must be a value of the outcome column, got 'win'" in err
    write(Path("log.csv"), rows)
    code, _, err = typed("log.csv", "--score-kind", "percent")
    assert code == 2 and "they look like probabilities; say --insist if they are percent" in err


def test_one_stream_for_all(typed: Typed) -> None:
    write(Path("log.csv"), [{name: row[name] for name in NAMES[1:]} for row in events(30)])
    code, _, err = typed("log.csv")
    assert (
        code == 2 and "stream column must be named, got none of the name 'stream' in log.csv; say --stream with" in err
    )
    assert typed("log.csv", "--blank-key", "all")[0] == 0
    assert {row[0] for row in store_of("calibeat.db")[0]} == {"all"}
    code, _, err = typed("log.csv", "--blank-key", "x" * 201)
    assert code == 2 and "--blank-key: stream must be a text of 1 to 200 characters, got 201" in err


def test_what_is_exported_is_imported_without_options(url: str, tmp_path: Path) -> None:
    log, other = str(tmp_path / "log.parquet"), str(tmp_path / "other.db")
    with desk(url) as service:
        service.play(300, streams=2, late=10)
    assert main(["store", "export", log, "--store", url]) == 0
    assert main(["store", "import", log, "--store", other, "--create", "--method", "tops"]) == 0
    mine, theirs = store_of(url)[1], store_of(other)[1]
    assert [(row[0], row[2], row[5], row[9]) for row in sorted(mine, key=lambda row: row[2])] == [
        (row[0], row[2], row[5], row[9]) for row in sorted(theirs, key=lambda row: row[2])
    ]


def test_a_store_without_any_outcome_is_exported_and_imported(typed: Typed) -> None:
    with desk("calibeat.db") as service:
        service.ask(*[("a", f"e{at}", 0.5) for at in range(20)])
    assert main(["store", "export", "log.parquet", "--store", "calibeat.db"]) == 0
    assert typed("log.parquet", store="other.db")[0] == 0
    assert store_of("other.db")[0][0][:4] == ("a", 20, 0, 20)


# ---- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("score", 1.7, "score must be in [0, 1], got 1.7 - at row 3 of log.parquet"),
        ("score", -0.1, "score must be in [0, 1], got -0.1 - at row 3 of log.parquet"),
        ("score", float("nan"), "score must be in [0, 1], got nothing - at row 3 of log.parquet"),
        ("outcome", 0.7, "outcome must be 0 or 1 (or false or true), got 0.7 - at row 3 of log.parquet"),
        ("outcome", 0.999, "outcome must be 0 or 1 (or false or true), got 0.999 - at row 3 of log.parquet"),
        ("outcome", 1.5, "outcome must be 0 or 1 (or false or true), got 1.5 - at row 3 of log.parquet"),
        ("outcome", -0.5, "outcome must be 0 or 1 (or false or true), got -0.5 - at row 3 of log.parquet"),
        ("time", None, "time must be there, got nothing - at row 3 of log.parquet"),
        ("time", -5.0, "time must be in seconds since 1970, from 0 to 253402300799, or a date of that time, got -5.0"),
        ("outcome_time", None, "outcome time must be there where there is an outcome, got nothing - at row 3 of"),
        ("stream", "x" * 201, "stream must be a text of 1 to 200 characters, got 201 - at row 3 of log.parquet"),
        ("stream", "a\tb", "stream must be text without control characters, got 'a\\tb' - at row 3 of log.parquet"),
        ("stream", None, "key must be there, got nothing - at row 3 of log.parquet; say --blank-key NAME"),
        ("id", "x" * 201, "id must be a text of 1 to 200 characters, got 201 - at row 3 of log.parquet"),
        ("id", "a\x00b", "id must be text without control characters, got 'a\\x00b' - at row 3 of log.parquet"),
        ("id", None, "id must be there, got nothing - at row 3 of log.parquet"),
        ("id", "e0", "event id must be there once only, got 'e0' again - at row 3 of log.parquet"),
    ],
)
def test_a_bad_row_is_a_sentence_and_nothing_is_written(typed: Typed, column: str, value: Any, said: str) -> None:
    rows = [
        {**row, "outcome": 1.0, "outcome_time": float(row["time"]), "time": float(row["time"])} for row in events(8)
    ]
    rows[2][column] = value
    rows[0]["stream"] = rows[2]["stream"] if column == "id" else rows[0]["stream"]
    write(Path("log.parquet"), rows)
    code, out, err = typed("log.parquet")
    assert (code, out) == (2, "") and said in err and err.startswith("calibeat: ") and err.count("\n") == 1
    assert not Path("calibeat.db").exists()  # it was refused before the store was looked for
    if column != "outcome_time":
        code, out, _ = typed("log.parquet", "--skip-bad")
        assert code == 0 and "7 events imported" in out and "skipped 1: " in out


@pytest.mark.parametrize(
    ("column", "values", "said"),
    [
        ("outcome", ["perhaps", "no"], "outcome must be 0 or 1 (or false or true), got 'perhaps' - at row 1"),
        ("score", ["high", "low"], "score must be in [0, 1], got 'high' - at row 1"),
        ("time", ["soon", "later"], "time must be a date of the years 1 to 9999 (ISO 8601) or a number, got 'soon'"),
        ("time", ["1960-01-01", "1960-01-02"], "or a date of that time, got '1960-01-01' - at row 1 of log.csv"),
        ("time", [START, 1000 * START], "times must be of one unit, got seconds since 1970 and milliseconds since"),
    ],
)
def test_a_bad_column_is_a_sentence(typed: Typed, column: str, values: list[Any], said: str) -> None:
    rows = [{name: row[name] for name in NAMES[:-1]} for row in events(2)]
    write(Path("log.csv"), [{**row, column: value} for row, value in zip(rows, values, strict=True)])
    code, out, err = typed("log.csv")
    assert (code, out) == (2, "") and said in err and not Path("calibeat.db").exists()


@pytest.mark.parametrize(
    ("names", "options", "said"),
    [
        (["stream", "id", "score"], "", "outcome column must be named, got no column of a usual name"),
        (["stream", "score", "outcome"], "", "id column must be named, got no column of a usual name in log.csv"),
        (["stream", "id", "score", "outcome"], "--id-prefix a", "--id-prefix must be given where there are no ids"),
        (
            ["stream", "score", "outcome"],
            "--id-prefix a\x01",
            "--id-prefix: id must be text without control characters",
        ),
        (["stream", "id", "score", "outcome", "outcome_time"], "", "times of outcomes must come with times of events"),
        (["stream", "id", "score", "outcome"], "--key carrier", "key column 'carrier' is not in log.csv"),
        (["stream", "id", "score", "outcome"], "--method nothing", "nothing"),
    ],
)
def test_missing_columns_are_a_sentence(typed: Typed, names: list[str], options: str, said: str) -> None:
    write(Path("log.csv"), [{name: row[name] for name in names} for row in events(4)])
    code, out, err = typed("log.csv", *options.split(" ") if options else [])
    assert (code, out) == (2, "") and said in err and err.count("\n") == 1


def test_outcome_times_may_be_left_out(typed: Typed) -> None:
    rows = [{**row, "outcome_time": None} for row in events(20)]
    write(Path("log.csv"), rows)
    code, _, err = typed("log.csv")
    assert code == 2 and "say --outcome-time none to leave it out" in err
    assert typed("log.csv", "--outcome-time", "none")[0] == 0


def test_without_pyarrow_an_import_says_what_to_install(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    write(Path("log.parquet"), events(4))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    code, _, err = typed("log.parquet")
    assert code == 2 and "pip install 'calibeat[backtest]'" in err


def test_a_full_folder_for_temporary_files_is_a_sentence(tmp_path: Path) -> None:
    log = write(tmp_path / "log.csv", events(400))
    with Stage() as stage:
        stage._run("PRAGMA max_page_count = 3")
        with pytest.raises(transfer.InvalidInput, match="the folder for temporary files must have room for the rows"):
            stage.read(files_of(str(log)), EventColumns({}), Options(typed=True))


# ---- again, and against what is there --------------------------------------------------------------------------------


def test_the_second_time_changes_nothing(url: str, tmp_path: Path) -> None:
    log = write(tmp_path / "log.csv", events(100))
    take(url, log)
    before = store_of(url)
    assert take(url, log) == Imported(100, 0, 0, 100, 0)
    assert store_of(url) == before


def test_rows_without_ids_get_them_from_their_numbers(typed: Typed) -> None:
    rows = [{name: row[name] for name in NAMES if name != "id"} for row in events(30)]
    write(Path("log/part-1.csv"), rows[:10])
    write(Path("log/part-2.csv"), rows[10:])
    assert typed("log", "--id-prefix", "may", "--method", "tops")[0] == 0
    before = store_of("calibeat.db")
    assert {row[2] for row in before[1]} == {f"may-{at}" for at in range(1, 31)}
    code, out, _ = typed("log", "--id-prefix", "may")
    assert code == 0 and "30 events were in the store already, and have not changed" in out
    assert store_of("calibeat.db") == before
    # Another log under the same name is refused whole.
    write(Path("log/part-2.csv"), events(30, seed=1)[10:])
    code, _, err = typed("log", "--id", "none", "--id-prefix", "may")
    assert code == 2 and "log must fit the store, got: id must be new or have the s" in err
    assert store_of("calibeat.db") == before
    write(Path("one.csv"), [{**row, "stream": "new"} for row in rows])
    assert typed("one.csv", "--id-prefix", "june")[0] == 0


@pytest.mark.parametrize("what", ["score", "outcome"])
def test_a_log_that_contradicts_the_store_is_refused_whole(url: str, tmp_path: Path, what: str) -> None:
    """The contradiction comes in the last of many groups."""
    rows = sorted((row for row in events(300) if row["outcome"] is not None), key=lambda row: row["time"])
    take(url, write(tmp_path / "last.csv", rows[-1:]))
    before = store_of(url)
    other = {"score": 0.123, "outcome": 1 - rows[-1]["outcome"]}[what]
    log = write(tmp_path / "log.csv", [*rows[:-1], {**rows[-1], what: other}])
    said = (
        f"got another for '{rows[-1]['id']}'"
        if what == "outcome"
        else f"or have the {what} it had, got '{rows[-1]['id']}'"
    )
    with pytest.raises(
        transfer.InvalidInput, match=f"^log must fit the store, got: .*{said}.* - at row {len(rows)} of .*log.csv$"
    ):
        take(url, log, group=20)
    assert store_of(url) == before


def test_outcomes_of_forecasts_that_were_given_up_are_counted(typed: Typed) -> None:
    rows = [row for row in events(40) if row["outcome"] is not None]
    with desk("calibeat.db", expire=60.0, expire_as=0) as service:
        for row in rows[:5]:
            service.now = row["time"]
            service.ask((row["stream"], row["id"], row["score"], row["time"]))
        service.tick(3600.0)
    write(Path("log.csv"), rows)
    code, out, _ = typed("log.csv")
    assert code == 0 and "5 outcomes came too late: the store has given up their forecasts" in out
    assert typed("log.csv", "--json")[0] == 0


def test_a_store_that_is_in_use_is_refused(url: str, tmp_path: Path) -> None:
    log = write(tmp_path / "log.csv", events(20))
    engine = Engine.open(url, EngineSettings(method="tops"))
    engine.start(lambda _: None)
    try:
        with pytest.raises(transfer.InvalidInput, match=r"store must (be used by one service|not be in use)"):
            take(url, log)
    finally:
        engine.stop()
    assert take(url, log).forecasts == 20


def test_history_can_be_watched(typed: Typed, capsys: pytest.CaptureFixture[str]) -> None:
    """Scores that lie: the monitor of an import finds what that of a service would have found, at the time it was."""
    rng = np.random.default_rng(1)
    ones = rng.random(2000) < np.where(np.arange(2000) < 1500, 0.1, 0.9)
    times = START + 3600 * np.arange(2000)
    values = (["a"] * 2000, range(2000), times.tolist(), [0.1] * 2000, ones.astype(int).tolist(), (times + 1).tolist())
    write(Path("log.csv"), [dict(zip(NAMES, row, strict=True)) for row in zip(*values, strict=True)])
    assert typed("log.csv", "--method", "ops", "--monitor", "1000")[0] == 0
    connection = open_connection("calibeat.db")
    alarms = connection.all("SELECT time, delivered FROM alarm")
    connection.close()
    assert alarms and all(START + 3600 * 1500 < time <= START + 3600 * 2000 for time, _ in alarms)
    assert all(delivered for _, delivered in alarms)  # nobody is paged for history
    assert main(["store", "info", "--json", "--store", "calibeat.db"]) == 0
    assert json.loads(capsys.readouterr().out)["monitor"] == 1000.0
    assert main(["store", "replay", "--check", "--store", "calibeat.db"]) == 0


# ---- stopped in the middle -------------------------------------------------------------------------------------------

PAUSED = """
import sys, time
from calibeat.service.engine import Engine
process, calls = Engine.process, []
def slow(self, requests):
    found = process(self, requests)
    calls.append(1)
    if len(calls) == 3:
        print("middle", flush=True)
        time.sleep(60)
    return found
Engine.process = slow
from calibeat.cli import store
from functools import partial
store.EngineSettings = partial(store.EngineSettings, group=50)
from calibeat.cli.main import main
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_an_import_that_is_stopped_leaves_the_store_as_it_was(url: str, tmp_path: Path, number: signal.Signals) -> None:
    take(url, write(tmp_path / "first.csv", events(30, seed=1)[:10]))
    before = store_of(url)
    rows = [{**row, "id": f"x{row['id']}"} for row in events(400)]
    log = write(tmp_path / "log.csv", rows)
    arguments = ["store", "import", str(log), "--store", url, "--create"]
    process = subprocess.Popen(
        [sys.executable, "-c", PAUSED, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline() == b"middle\n"
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == (-9 if number == signal.SIGKILL else 128 + number)
    assert number == signal.SIGKILL or err == b"calibeat: stopped\n"
    assert store_of(url) == before
    assert take(url, log).forecasts == 400


def test_a_database_that_goes_away_is_a_sentence(
    server: postgres.Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = server.database()
    log = write(tmp_path / "log.csv", events(200))
    process, calls = transfer.Engine.process, []

    def cut(self: Any, requests: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            other = open_connection(url)
            other.all("SELECT pg_terminate_backend(?)", (self.store.connection.database.info.backend_pid,))
            other.close()
        return process(self, requests)

    monkeypatch.setattr(transfer.Engine, "process", cut)
    with pytest.raises(
        transfer.InvalidInput, match=r"store must be there until the end, got: .* - nothing was imported"
    ):
        take(url, log, group=50)
    monkeypatch.undo()
    assert store_of(url)[1] == []
    assert take(url, log).forecasts == 200


# ---- memory ----------------------------------------------------------------------------------------------------------


def test_memory_does_not_grow_with_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One stream, four times as many events: Python's own memory at its peak is the same."""
    monkeypatch.setattr(files, "CHUNK", 500)
    peaks = []
    for n in (2_000, 8_000):
        rows = [{**row, "stream": "a"} for row in events(n)]
        log = write(tmp_path / f"{n}.parquet", rows)
        take(str(tmp_path / "warm.db"), log, group=250)
        tracemalloc.start()
        take(str(tmp_path / f"{n}.db"), log, group=250)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0], peaks


def test_the_staged_rows_lie_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The temporary database has a file without a name, which goes with the process."""
    monkeypatch.setattr(transfer, "_CACHE", 64)
    log = write(tmp_path / "log.parquet", events(20_000))
    with Stage() as stage:
        stage.read(files_of(str(log)), EventColumns({}), Options(typed=True))
        opened = {str(handle.readlink()) for handle in Path("/proc/self/fd").iterdir() if handle.is_symlink()}
        assert any("etilqs" in name and name.endswith("(deleted)") for name in opened)
        assert stage.events == 20_000


# ---- classes and groups, from logs that others have written ----------------------------------------------------------


def class_rows(n: int, lies_from: int | None = None) -> list[dict[str, Any]]:
    """Events of two streams and three classes: a column for each score, and a label that comes late or never.

    With `lies_from` it is one stream, an event each hour, and every label comes at once; then the least likely ones.
    """
    rng = np.random.default_rng(7)
    made = []
    for at, row in enumerate(events(n)):
        scores, city, time, known = rng.dirichlet([2.0, 1.0, 1.0]), f"s{at % 2}", row["time"], row["outcome_time"]
        label = int(rng.choice(3, p=scores))
        if lies_from is not None:
            city, time, known = "s0", START + 3600 * at, START + 3600 * at + 1
            label = label if at < lies_from else int(scores.argmin())
        columns = {f"p_{name}": float(score) for name, score in zip(("cat", "dog", "bird"), scores, strict=True)}
        told = None if known is None else ("cat", "dog", "bird")[label]
        names = {"city": city, "n": row["id"], "at": time}
        made.append({**names, **columns, "animal": told, "known": known, "device": at % 3})
    return made


TYPED = ["--stream", "city", "--id", "n", "--time", "at", "--outcome-time", "known"]


def fields_of(row: dict[str, Any]) -> dict[str, Any]:
    return {"scores": {name: row[f"p_{name}"] for name in ("bird", "cat", "dog")}}


def over_http(url: str, rows: list[dict[str, Any]], **settings: Any) -> None:
    """The same log, event by event, at the times that it tells."""
    named = [{**row, "time": row["at"], "outcome": row["animal"], "outcome_time": row["known"]} for row in rows]
    with desk(url, **settings) as service:
        for kind, row in naive_order(named):
            service.now = float(row["time"] if kind == "forecast" else row["outcome_time"])
            if kind == "forecast":
                service._only([ForecastEvent(row["city"], row["n"], time=service.now, **row["fields"])])
            else:
                told = {"label" if "scores" in row["fields"] else "outcome": row["animal"]}
                service._only([OutcomeEvent(row["city"], row["n"], time=service.now, **told)])


@pytest.mark.parametrize("kind", ["columns", "lists"])
def test_classes_of_a_foreign_log_have_the_bits_of_http(typed: Typed, kind: str) -> None:
    rows = class_rows(90)
    wide = [{**row, "fields": fields_of(row)} for row in rows]
    arguments = ["--scores", "p_*", "--label", "animal"]
    if kind == "lists":  # classes are the numbers of the places; half of the labels are not known for long
        places = {"cat": 0, "dog": 1, "bird": 2}
        for row in rows:
            row["p"] = [row.pop(f"p_{name}") for name in places]
            row["animal"] = None if row["animal"] is None else places[row["animal"]]
        wide = [{**row, "fields": {"scores": row["p"]}} for row in rows]
        arguments = ["--scores", "p", "--label", "animal"]
    write(Path("log.parquet"), rows)
    code, said, _ = typed("log.parquet", *TYPED, *arguments)
    assert code == 0 and "90 new forecasts" in said and "The 3 classes are" in said
    over_http("http.db", wide, method="auto")
    mine, theirs = store_of("calibeat.db"), store_of("http.db")
    assert [row[:-2] for row in mine[0]] == [row[:-2] for row in theirs[0]] and mine[1] == theirs[1]
    assert main(["store", "replay", "--check", "--store", "calibeat.db"]) == 0
    assert main(["store", "check", "--store", "calibeat.db"]) == 0


def test_groups_of_a_foreign_log_have_the_bits_of_http(typed: Typed) -> None:
    rows = [{**row, "p": row["p_cat"], "animal": None if row["animal"] is None else row["animal"] == "cat"}
            for row in class_rows(90)]  # fmt: skip
    write(Path("log.csv"), rows)
    arguments = ["--score", "p", "--outcome", "animal", "--groups", "device,hour(at)"]
    code, said, _ = typed("log.csv", *TYPED, *arguments)
    assert code == 0 and "90 new forecasts" in said and "The values of hour(at) are those of the time zone UTC" in said

    def fields(row: dict[str, Any]) -> dict[str, Any]:
        hour = datetime.fromtimestamp(row["at"], UTC).hour
        return {"score": row["p"], "groups": {"device": row["device"], "hour(at)": hour}}

    over_http("http.db", [{**row, "fields": fields(row)} for row in rows], method="auto")
    mine, theirs = store_of("calibeat.db"), store_of("http.db")
    # Words of groups have a seed of their own in each store, so states and receipts differ, and forecasts do not.
    chosen = [0, 1, 2, 4, 5, 6, 9, 11]
    assert [[row[at] for at in chosen] for row in mine[1]] == [[row[at] for at in chosen] for row in theirs[1]]
    assert main(["store", "replay", "--check", "--store", "calibeat.db"]) == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--scores", "p_*", "--label", "animal", "--groups", "device"], "--groups must not be given with --scores"),
        (["--label", "animal"], "--label and --classes are for many classes: name the columns of the scores"),
        (["--scores", "q_*", "--label", "animal"], "scores must name columns of log.csv, got 'q_*', which is none"),
        (["--scores", "p_cat,p_dog", "--label", "animal"], "scores of an event must sum to 1 within 1e-06, got"),
        (["--score", "p_cat", "--outcome", "animal", "--groups", "planet"], "planet"),
        (
            ["--score", "p_cat", "--outcome", "animal", "--positive", "cat", "--groups", "device", "--method", "tops"],
            "log must fit the store, got: groups must be left out, as only auto and gauto take them",
        ),
    ],
)
def test_bad_classes_and_groups_are_a_sentence(typed: Typed, arguments: list[str], said: str) -> None:
    write(Path("log.csv"), class_rows(20))
    code, _, error = typed("log.csv", *TYPED, *arguments)
    assert code == 2 and said in error and "Traceback" not in error and len(error) < 400


@pytest.mark.parametrize("many", [False, True])
def test_an_import_raises_the_alarms_that_http_raised(typed: Typed, many: bool) -> None:
    rows = class_rows(1500, lies_from=1200)
    arguments = ["--scores", "p_*", "--label", "animal"] if many else ["--score", "p_cat", "--outcome", "animal"]
    if not many:
        rows = [{**row, "animal": None if row["animal"] is None else int(row["animal"] == "cat")} for row in rows]
    write(Path("log.parquet"), rows)
    assert typed("log.parquet", *TYPED, *arguments, "--monitor", "1000", "--method", "ops")[0] == 0
    wide = [{**row, "fields": fields_of(row) if many else {"score": row["p_cat"]}} for row in rows]
    over_http("http.db", wide, method="ops", monitor=1000.0)
    found = []
    for url in ("calibeat.db", "http.db"):
        connection = open_connection(url)
        found.append(
            connection.all(
                "SELECT s.name, a.at, a.since, a.what, a.page FROM alarm a JOIN stream s ON s.number = a.stream "
                "ORDER BY s.name, a.at, a.what"
            )
        )
        connection.close()
    assert found[0] == found[1] != []
