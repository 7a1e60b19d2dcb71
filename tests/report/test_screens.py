"""The report in a real Chromium as others see it: dark, printed, on a phone, in a narrow window, without script."""

from __future__ import annotations

import browser
import pytest
from browser import choose, click, every, one, picture, press
from report_payload import payload
from selenium.webdriver import Keys

from calibeat import report


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("reports") / "year.html"
    report.write(payload(), path)
    return path


@pytest.fixture
def year(chrome, page):
    browser.open_page(chrome, page)
    yield chrome
    assert browser.complaints(chrome) == []


# ---- light, dark, paper, phone -----------------------------------------------------------------------------------


def paper(chrome):
    return chrome.execute_script("return getComputedStyle(document.body).backgroundColor")


def test_dark_by_preference_and_by_button(chrome, page):
    browser.open_page(chrome, page)
    light, light_picture = paper(chrome), picture(chrome, "#windows")
    browser.media(chrome, dark=True)
    browser.settle(chrome)
    dark, dark_picture = paper(chrome), picture(chrome, "#windows")
    assert dark != light and dark_picture != light_picture
    button = one(chrome, "#theme button")
    assert button.get_attribute("aria-label") == "Switch to light colours"
    press(chrome, button, Keys.ENTER)
    assert paper(chrome) == light and picture(chrome, "#windows") == light_picture
    press(chrome, button, Keys.ENTER)
    assert paper(chrome) == dark and picture(chrome, "#windows") == dark_picture
    browser.media(chrome)


def test_printing_is_in_light_colours_and_leaves_the_screen_as_it_was(chrome, page):
    browser.open_page(chrome, page, dark=True)
    before = picture(chrome, "#windows")
    chrome.execute_script(
        "addEventListener('beforeprint', () => { window.printed = [document.documentElement.dataset.theme,"
        "document.querySelector('#windows canvas').toDataURL(),"
        "[...document.querySelectorAll('canvas')].map(c => c.width / parseFloat(c.style.width || c.clientWidth))] })"
    )
    data = browser.pdf(chrome)
    theme, drawn, sharp = chrome.execute_script("return window.printed")
    assert min(sharp) >= 2.9  # pixels a point: as sharp as a printer
    assert data.startswith(b"%PDF") and len(data) > 50_000
    assert theme == "light" and drawn != before
    assert picture(chrome, "#windows") == before and "theme" not in chrome.execute_script(
        "return {...document.documentElement.dataset}"
    )
    assert browser.complaints(chrome) == []
    browser.media(chrome)


def test_paper_has_no_controls_and_nothing_is_cut_off(chrome, page):
    browser.open_page(chrome, page, 794, 1100)
    browser.media(chrome, kind="print")
    browser.settle(chrome)
    controls = "nav, #theme, fieldset, select, input, button:not(.sort, .legend button, .multiples button), .as-table"
    assert not any(element.is_displayed() for element in every(chrome, controls))
    assert "Compare by" not in one(chrome, "#methods").text
    assert one(chrome, "h1").is_displayed()
    browser.media(chrome)


def test_paper_says_what_the_controls_chose(chrome, page):
    browser.open_page(chrome, page, 794, 1100)
    press(chrome, one(chrome, "#windows .choice input"), Keys.ARROW_RIGHT)
    choose(chrome, "#params select", "ops")
    press(chrome, one(chrome, "#keys-controls input[type=radio]"), Keys.ARROW_RIGHT)
    assert not any(element.is_displayed() for element in every(chrome, ".on-paper"))
    browser.media(chrome, kind="print")
    browser.settle(chrome)
    said = [element.text for element in every(chrome, ".on-paper")]
    assert {"Log-loss over time, by method.", "Parameters of OPS over time.", "By Brier score."} <= set(said)
    browser.media(chrome)


def test_intervals_on_paper_are_bars_and_no_larger_than_the_values(chrome, page):
    browser.open_page(chrome, page, 794, 1100)
    browser.media(chrome, kind="print")
    browser.settle(chrome)
    bars, ranges = chrome.execute_script(
        "const wide = s => [...document.querySelectorAll(s)].map(e => e.getBoundingClientRect().width).filter(Boolean);"
        "return [wide('#leaderboard .bar'), wide('#leaderboard .bar .range')]"
    )
    assert len(bars) == len(ranges) == 9
    assert min(bars) >= 110 and min(ranges) > 20
    ends, value = chrome.execute_script(
        "return ['.triple .ends', 'td.number'].map(s =>"
        "parseFloat(getComputedStyle(document.querySelector('#leaderboard ' + s)).fontSize))"
    )
    assert ends <= value
    browser.media(chrome)


# ---- columns beyond the edge -------------------------------------------------------------------------------------


def edges(chrome):
    """How much of each end of the leaderboard's frame is faded, and how far it is scrolled."""
    browser.settle(chrome)
    return chrome.execute_async_script(
        "const done = arguments[0], frame = document.querySelector('.sideways:has(#leaderboard)');"
        "setTimeout(() => done([getComputedStyle(frame, '::after').opacity, frame.className,"
        "frame.querySelector('.scroller').scrollLeft]), 250)"
    )


def shown_columns(chrome):
    return [th.text.rstrip("↕↑↓") for th in every(chrome, "#leaderboard thead th") if th.is_displayed()]


@pytest.mark.parametrize("width", [1400, 1280, 1024])
def test_few_columns_of_the_leaderboard_are_shown_and_none_behind_a_shade(chrome, page, width):
    browser.open_page(chrome, page, width, 900)
    assert shown_columns(chrome) == ["Method", "Log-loss", "Log-loss against raw", "Brier", "CE", "AUC"]
    assert edges(chrome)[:2] == ["0", "sideways"]


def test_a_button_shows_the_rest_of_the_columns_and_hides_it_again(chrome, page):
    browser.open_page(chrome, page, 1400, 900)
    few, button = shown_columns(chrome), one(chrome, "#all-columns")
    press(chrome, button, Keys.ENTER)
    assert button.text == "Fewer columns" and button.get_attribute("aria-pressed") == "true"
    more = {"SHP", "Refinement", "Accuracy", "Regret", "ln e-value", "Time", "Against the best other"}
    assert set(shown_columns(chrome)) == {*few, *more}
    press(chrome, button, Keys.ENTER)
    assert shown_columns(chrome) == few and button.text == "All columns"
    assert browser.complaints(chrome) == []


def test_on_a_phone_the_interval_is_seen(chrome, page):
    browser.open_page(chrome, page, 390, 900)
    assert shown_columns(chrome) == ["Method", "Log-loss", "Log-loss against raw"]
    assert edges(chrome)[:2] == ["0", "sideways"]
    right = chrome.execute_script(
        "const ends = [...document.querySelectorAll('#leaderboard .ends')];"
        "return Math.max(...ends.map(e => e.getBoundingClientRect().right))"
    )
    assert 300 < right <= 390 - 18
    press(chrome, one(chrome, "#all-columns"), Keys.ENTER)
    assert len(shown_columns(chrome)) == 13 and edges(chrome)[:2] == ["1", "sideways more-right"]


def test_every_column_of_the_leaderboard_is_seen_on_a_desktop(year):
    click(year, "#all-columns")
    inner, table = year.execute_script(
        "const s = document.querySelector('#leaderboard').parentElement; return [s.clientWidth, s.scrollWidth]"
    )
    assert table <= inner
    assert edges(year)[:2] == ["0", "sideways"]
    assert one(year, "#leaderboard thead th:last-child").rect["x"] < 1280 - 40


def test_columns_beyond_the_edge_show_a_fading_edge_and_the_keyboard_gets_there(chrome, page):
    browser.open_page(chrome, page, 700, 900)
    click(chrome, "#all-columns")
    assert edges(chrome) == ["1", "sideways more-right", 0]
    region = one(chrome, ".scroller:has(#leaderboard)")
    assert region.get_attribute("tabindex") == "0" and region.get_attribute("role") == "region"
    press(chrome, region, Keys.ARROW_RIGHT)
    assert edges(chrome)[1:] != ["sideways more-right", 0]
    chrome.execute_script("arguments[0].scrollLeft = 1e6", region)
    assert edges(chrome)[:2] == ["0", "sideways more-left"]
    assert browser.complaints(chrome) == []


def test_on_a_phone_tables_scroll_inside_themselves(chrome, page):
    browser.open_page(chrome, page, 360, 740)
    click(chrome, "#all-columns")
    inner, table = chrome.execute_script(
        "const s = document.querySelector('#leaderboard').parentElement; return [s.clientWidth, s.scrollWidth]"
    )
    assert inner < 360 < table
    touched = chrome.execute_script("return [...document.querySelectorAll('.legend button')].map(b => b.offsetHeight)")
    assert min(height for height in touched if height) >= 24


def test_a_finger_shows_numbers_too(chrome, page):
    browser.open_page(chrome, page, 360, 740)
    over = one(chrome, "#windows .u-over")
    chrome.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", over)
    chrome.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": True})
    try:
        place = chrome.execute_script(
            "const r = arguments[0].getBoundingClientRect(); return [r.x + 90, r.y + 60]", over
        )
        chrome.execute_cdp_cmd("Input.synthesizeTapGesture", dict(zip("xy", place, strict=True)))
        browser.settle(chrome)
        tip = one(chrome, "#windows .tip")
        assert tip.is_displayed() and "judged" in tip.text
        left, right = chrome.execute_script(
            "const r = arguments[0].getBoundingClientRect(); return [r.left, r.right]", tip
        )
        assert left >= 0 and right <= 360
    finally:
        chrome.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": False})


def test_a_window_that_grows_draws_larger(year):
    narrow = year.execute_script("return document.querySelector('#windows canvas').width")
    year.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 700, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    )
    browser.settle(year)
    assert year.execute_script("return document.querySelector('#windows canvas').width") < narrow


def test_without_javascript_the_verdict_and_the_leaderboard_are_read(chrome, page):
    chrome.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        chrome.get(page.as_uri())
        seen = one(chrome, "body").text
        assert "Use AUTO: it cuts the calibration error" in seen and "0.4747" in seen
        assert "drawn by JavaScript, which is off" in seen
    finally:
        chrome.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
