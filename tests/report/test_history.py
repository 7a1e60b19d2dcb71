"""The section on what happened to the data: a table without JavaScript, small pictures in Chromium."""

from __future__ import annotations

import re

import browser
import pytest
from browser import one, press, texts
from report_payload import HOSTILE, VARIANTS, payload
from selenium.webdriver import Keys

from calibeat import report


def section(told):
    html = re.search(r'<section id="history".*?</section>', report.html(told), re.DOTALL).group(0)
    return html.replace("\u00a0", " ")


def test_periods_are_read_without_javascript():
    html = section(payload())
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall(r"<tr.*?</tr>", html)]
    rows = [[re.sub(r"<[^>]*>", "", cell) for cell in row] for row in rows]
    assert rows[0] == [
        *("Period", "Events", "No outcome", "Delay of ones", "Delay of zeros"),
        *("Base rate", "Mean score", "PSI of the score"),
    ]
    assert rows[1] == ["Period 1", "25,000", "2.0 %", "1 h", "1 day", "20.0 %", "30.0 %", "–"]
    assert rows[2][-1] == "0.012" and "It is no alarm" in html
    assert [name in html for name in ('id="volume"', 'id="missing"', 'id="delays"', 'id="scores"')] == [True] * 4


def test_pictures_of_nothing_are_left_out():
    html = section(VARIANTS["no delay"]())
    assert 'id="delays"' not in html and 'id="missing"' not in html and "Delay of" not in html
    by_events = section(VARIANTS["by events"]())
    assert 'id="volume"' not in by_events and "per 512 events" in by_events and "3,600" in by_events


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 390])
def test_small_pictures_are_drawn(chrome, tmp_path, width, dark):
    report.write(VARIANTS["hostile"](), tmp_path / "page.html")
    browser.open_page(chrome, tmp_path / "page.html", width, dark=dark)
    said = {}
    for name in ("volume", "missing", "delays", "scores"):
        press(chrome, one(chrome, f"#{name} .plot"), Keys.HOME)
        said[name] = texts(chrome, f"#{name} [role=status]")[0].split(": ", 1)[1]
    assert said["volume"] == "events 1,000 events" and said["delays"] == "zeros 1 day; ones 2 h"
    assert re.fullmatch(r"score 0\.\d{3} \(.0?\.?\d+.* to 0\.\d{3}\)", said["scores"])
    assert HOSTILE in texts(chrome, "#periods th bdi") and not browser.every(chrome, "#history img")
    scroll, inner = chrome.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
    assert scroll <= inner == width
    assert browser.complaints(chrome) == []
