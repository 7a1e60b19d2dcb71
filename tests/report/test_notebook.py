"""A result in a notebook: verdict, leaderboard, one picture; small, without a script, safe with any name."""

from __future__ import annotations

import re

import browser
import numpy as np
import pytest
from report_payload import HOSTILE, VARIANTS, payload

import calibeat
from calibeat.report.notebook import snippet


@pytest.mark.parametrize("name", VARIANTS)
def test_every_payload_makes_a_small_piece_of_html(name):
    html = snippet(VARIANTS[name]())
    assert html.startswith('<div class="calibeat-result"') and html.endswith("</div>") and len(html) < 12_000
    assert "<svg" in html and "<table>" in html and "<script" not in html


def test_it_has_the_verdict_the_number_the_best_methods_and_the_raw_score():
    html = snippet(payload()).replace("\u00a0", " ")
    assert "Use AUTO" in html and "We are sure" in html and "350 happened" in html
    assert html.count("<tr>") == 7 and "<bdi>raw</bdi>" in html and "<b><bdi>AUTO</bdi></b>" in html
    assert "−0.0573 [−0.0780, −0.0366]" in html and "4 more in .table" in html
    assert html.count("<circle") == 18 and html.count("<polyline") == 3


def test_a_dot_is_as_large_as_its_bin_has_events():
    """A bin of a few events plunged beside the others, and nothing said that they were few."""
    told = payload(methods=2)
    curve = told["reliability"]["methods"]["auto"][0]
    curve["count"] = [1_000_000 if at else 3 for at in range(len(curve["count"]))]
    html = snippet(told).replace("\u00a0", " ")
    sizes = {float(size) for size in re.findall(r'r="([\d.]+)" fill="#0072b2"', html)}
    assert sizes == {1.2, 4.5} and "<title>3 events at about" in html and "% happened</title>" in html


def test_names_stay_names():
    html = snippet(VARIANTS["hostile"]())
    assert "<script" not in html and "<img" not in html and "&lt;img src=x" in html


def test_a_result_shows_itself():
    rng = np.random.default_rng(1)
    scores = rng.random(3000)
    result = calibeat.backtest(scores, rng.random(3000) < scores**2, methods="ops,tops")
    html = result._repr_html_()
    assert result.verdict.split(":")[0] in html and "The whole report: .to_html(path)" in html
    kept = calibeat.backtest(scores, rng.random(3000) < scores, methods="ops")._repr_html_()
    assert kept.count("<polyline") == 2  # the frame and the raw score


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 390])
def test_it_is_drawn_on_light_and_on_dark(chrome, tmp_path, width, dark):
    ink, paper = ("#ddd", "#111") if dark else ("#222", "#fff")
    page = tmp_path / "cell.html"
    page.write_text(
        f'<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><body style="color:{ink};'
        f'background:{paper}">{snippet(VARIANTS["hostile"]())}'
    )
    browser.open_page(chrome, page, width)
    assert HOSTILE in browser.one(chrome, "body").text
    stroke = "return getComputedStyle(document.querySelector('polyline')).stroke"
    assert chrome.execute_script(stroke) == ("rgb(221, 221, 221)" if dark else "rgb(34, 34, 34)")
    assert browser.complaints(chrome) == []
