"""The section on decisions: a table without JavaScript, pictures in Chromium on desktop and phone."""

from __future__ import annotations

import re

import browser
import pytest
from browser import choose, one, picture, press, texts
from report_payload import HOSTILE, VARIANTS, payload
from selenium.webdriver import Keys

from calibeat import report


def section(told):
    return re.search(r'<section id="decisions".*?</section>', report.html(told), re.DOTALL).group(0)


def test_actions_and_costs_are_read_without_javascript():
    html = section(payload()).replace("\u00a0", " ")
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall(r"<tr.*?</tr>", html)]
    rows = [[re.sub(r"<[^>]*>", "", cell) for cell in row] for row in rows]
    assert rows[1][:5] == ["raw", "90,000", "40,000", "50,000", "32,000"] and rows[1][5:7] == ["–", "–"]
    assert rows[2][0] == "AUTO" and rows[2][5:] == [
        "5,000 (2,100 right)",
        "7,000 (900 right)",
        "138.6",
        "+5.50",
        "+3.00 to +8.00",
    ]
    assert len(rows) == 11 and rows[-1][-1] == "−5.00 to −0.00".replace("−0.00", "0.00")
    assert "an action for nothing costs 0.25" in html and 'class="chosen"' in html
    own = payload()
    own["decisions"]["costs"]["given"] = True
    assert "in your units" in section(own)


def test_without_costs_there_is_the_curve_and_an_offer():
    html = section(VARIANTS["from Python"]())
    assert 'id="benefit"' in html and 'id="saved"' not in html and "--cost-fp" in html and "<table" not in html
    assert 'id="saved"' not in section(VARIANTS["one method"]())


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("decisions")
    for name in ("a year", "hostile"):
        report.write(VARIANTS[name](), folder / f"{name}.html")
    return folder


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 390])
def test_saved_and_benefit_are_drawn(chrome, pages, width, dark):
    browser.open_page(chrome, pages / "a year.html", width, dark=dark)
    before = picture(chrome, "#saved")
    choose(chrome, "#saved select", "ops")
    assert picture(chrome, "#saved") != before
    press(chrome, one(chrome, "#benefit .plot"), Keys.HOME)
    said = texts(chrome, "#benefit [role=status]")[0]
    assert said.startswith("act from 1.0\u00a0% on: raw +23") and "act on all +23" in said
    scroll, inner = chrome.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
    assert scroll <= inner == width
    assert browser.complaints(chrome) == []


def test_hostile_names_stay_names(chrome, pages):
    browser.open_page(chrome, pages / "hostile.html", 390)
    assert HOSTILE in one(chrome, "#decisions").get_attribute("textContent")
    assert HOSTILE in texts(chrome, "#benefit .legend span")
    assert not browser.every(chrome, "#decisions img, #decisions script")
    assert browser.complaints(chrome) == []
