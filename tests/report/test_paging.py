"""The section "Would it have paged?": tables without JavaScript, pictures in Chromium on desktop and phone."""

from __future__ import annotations

import re

import browser
import pytest
from browser import choose, one, picture, press, texts
from report_payload import HOSTILE, VARIANTS, payload
from selenium.webdriver import Keys

from calibeat import report


def section(told):
    return re.search(r'<section id="paging".*?</section>', report.html(told), re.DOTALL).group(0)


def cells(html, selector):
    table = re.search(rf"<table[^>]*{selector}.*?</table>", html, re.DOTALL).group(0)
    rows = re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)
    return [[re.sub(r"<[^>]*>", "", cell) for cell in re.findall(r"<t[hd].*?</t[hd]>", row)] for row in rows]


def test_monitors_and_pages_are_read_without_javascript():
    html = section(payload())
    _, raw, auto, ops = cells(html, 'id="monitors"')
    assert raw[:3] == ["raw", "52", "36"] and raw[4:] == ["–", "–"]
    assert auto[:3] == ["AUTO", "1", "3"] and auto[4].startswith("+0.0") and " to +0.0" in auto[5]
    assert ops[:4] == ["OPS", "0", "0", "–"]
    head, first, second, *_ = cells(html, 'class="plain pages"')
    assert head == [
        "Forecasts up to",
        "Pages once outcomes are in",
        "Began, estimated",
        "Forecasts are",
        "Region",
        "Alarms",
    ]
    assert first[3:] == ["too high", "all forecasts", "1"]
    assert second[3:5] == ["too low", "80\u00a0% to 95\u00a0%"] and second[5].startswith("2, the last at 2013-")
    assert "Show 4 later pages; 40 pages between them left out" in html
    assert "one false alarm in 1,000,000 outcomes" in html and "in the order of their forecasts" in html


def test_outcomes_at_once_have_one_moment():
    head, first, *_ = cells(section(VARIANTS["by events"]()), 'class="plain pages"')
    assert head[0] == "Pages at" and len(head) == len(first) == 5 and first[0].startswith("event ")


def test_monitors_that_saw_nothing():
    html = section(VARIANTS["never paged"]())
    assert 'class="plain pages"' not in html and [row[1] for row in cells(html, 'id="monitors"')[1:]] == ["0", "0"]


def test_without_another_method_there_is_no_gain():
    assert 'id="gain"' not in section(VARIANTS["one method"]())


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("paging")
    for name in ("a year", "hostile"):
        report.write(VARIANTS[name](), folder / f"{name}.html")
    return folder


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 390])
def test_detector_and_gain_are_drawn(chrome, pages, width, dark):
    browser.open_page(chrome, pages / "a year.html", width, dark=dark)
    labels = [text for text in texts(chrome, "#detector .legend span") if text]
    assert labels == ["raw", "AUTO", "OPS"]
    before = picture(chrome, "#detector")
    press(chrome, one(chrome, "#detector .legend [data-series=raw]"), Keys.ENTER)
    assert picture(chrome, "#detector") != before
    drawn = picture(chrome, "#gain")
    choose(chrome, "#gain select", "ops")
    assert picture(chrome, "#gain") != drawn
    scroll, inner = chrome.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
    assert scroll <= inner == width
    assert browser.complaints(chrome) == []


def test_the_detector_is_on_a_scale_of_powers(chrome, pages):
    browser.open_page(chrome, pages / "a year.html")
    press(chrome, one(chrome, "#detector .plot"), Keys.END)
    assert "of the alarm line" in texts(chrome, "#detector [role=status]")[0]
    press(chrome, one(chrome, "#gain .plot"), Keys.END)
    assert re.search(r"AUTO \+0\.\d+ \(\+0\.\d+ to \+0\.\d+\)", texts(chrome, "#gain [role=status]")[0])


def test_hostile_names_stay_names(chrome, pages):
    browser.open_page(chrome, pages / "hostile.html", 390)
    assert HOSTILE in one(chrome, "#paging").get_attribute("textContent")
    assert not browser.every(chrome, "#paging img, #paging script")
    assert browser.complaints(chrome) == []


def test_without_monitors_there_is_no_section():
    told = payload()
    told["paging"]["methods"] = []
    assert 'id="paging"' not in report.html(told)
