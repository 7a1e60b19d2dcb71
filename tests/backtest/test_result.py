"""What a backtest gives back, and what it accepts as methods and keys."""

from __future__ import annotations

import numpy as np
import pytest
from streams import drifting

import calibeat
from calibeat import OPS, TOPS, InvalidInput
from calibeat.core.stats import LOSS_FLOOR
from calibeat.report.page import html

N = 1200
SCORES, OUTCOMES = drifting(N)


def test_the_raw_score_is_nobody_elses_name():
    for name in ("raw", "RAW"):
        with pytest.raises(InvalidInput, match="name of the raw score"):
            calibeat.backtest(SCORES, OUTCOMES, methods={name: OPS, "ops": TOPS})
    named = calibeat.backtest(SCORES, OUTCOMES, methods={"raw": calibeat.BM, "o": OPS})
    assert named.table["method"].tolist() == ["raw", "o"]


def test_axes_count_all_events_alike():
    """Windows and evidence end where the log does, also where outcomes are missing in between."""
    known, outcomes = np.arange(N) + 1.0, OUTCOMES.copy()
    gone = np.arange(N) % 3 == 1
    known[gone], outcomes[gone] = np.nan, np.nan
    found = calibeat.backtest(SCORES, outcomes, times=np.arange(N), outcome_times=known, methods="ops", warmup=10)
    windows, evidence = found.windows, found.payload["evalue"]
    assert windows["start"][0] == 16 and windows["end"][-1] == evidence["x"][-1] == N
    assert windows["count"].sum() == N - 400 - 10


def test_the_table_has_the_best_other():
    result = calibeat.backtest(SCORES, OUTCOMES, methods="ops,tops")
    table, rows = result.table, result.payload["table"]
    for at, row in enumerate(rows):
        assert table["best_other"][at] == row["vs_best_other"]["method"] != row["method"]
        ends = [table[f"brier_vs_best_other{end}"][at] for end in ("", "_low", "_high")]
        assert ends == row["vs_best_other"]["brier"] and ends[1] <= ends[0] <= ends[2]
        assert table["ce_vs_best_other"][at] == row["vs_best_other"]["ce"][0]
        assert [table[f"elsewhere_{end}"][at] for end in ("low", "high")] == (
            [row["elsewhere"]["low"], row["elsewhere"]["high"]] if at else pytest.approx([np.nan] * 2, nan_ok=True)
        )
    assert calibeat.backtest(SCORES, OUTCOMES, methods="raw").table["best_other"].tolist() == [""]


def test_keys_are_called_as_they_are():
    keyed = calibeat.backtest(SCORES, OUTCOMES, np.arange(N) % 2, methods={"my_method": OPS}).payload
    assert "loses most to my_method" in keyed["keys"]["sentence"]


def test_every_payload_makes_a_page():
    for n in (1, 2, 30):
        page = html(calibeat.backtest(SCORES[:n], OUTCOMES[:n], methods=["auto", "hops"]).payload)
        assert page.lower().startswith("<!doctype html>")
    assert LOSS_FLOOR == 1e-5


def test_versions_are_told():
    told = calibeat.backtest(SCORES[:20], OUTCOMES[:20], methods="ops").payload["versions"]
    assert list(told) == ["calibeat", "python", "numpy"]
    assert told["calibeat"] == calibeat.__version__ and told["numpy"] == np.__version__


def test_the_page_tells_how_it_was_made():
    found = calibeat.backtest(SCORES, OUTCOMES, times=np.arange(N), methods=["ops"], delay=3, title="Mine").payload
    assert found["command"] == (
        "calibeat.backtest(scores, outcomes, times=times, methods=['ops'], delay=3, title='Mine')"
    )
    assert found["command"].replace("'", "") in html(found).replace("'", "").replace("&#x27;", "")
    assert found["created"].endswith("+00:00") and f"Made on {found['created'][:10]}" in html(found)
