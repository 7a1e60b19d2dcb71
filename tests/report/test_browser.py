"""The report in a real Chromium: drawn, and operated by pointer and keyboard."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path

import browser
import pytest
from browser import choose, click, every, one, picture, press, texts
from report_payload import HOSTILE, VARIANTS
from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.common.by import By

from calibeat import report

# How many colours a canvas shows, near ones taken together: an empty one shows one or none.
COLOURS = """
const shades = canvas => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height), seen = new Set();
  for (let i = 0; i < data.length; i += 4) {
    if (data[i + 3] > 200) seen.add((data[i] >> 5) << 10 | (data[i + 1] >> 5) << 5 | data[i + 2] >> 5);
  }
  return seen;
};
"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    return {name: write(variant, folder / f"{i}.html") for i, (name, variant) in enumerate(VARIANTS.items())}


def write(variant, path):
    report.write(variant(), path)
    return path


@pytest.fixture
def year(chrome, pages):
    """The page of a year on a desktop; whatever a test does to it, the console must stay silent."""
    browser.open_page(chrome, pages["a year"])
    yield chrome
    assert browser.complaints(chrome) == []


# ---- drawn -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1280, 360])
@pytest.mark.parametrize("name", VARIANTS)
def test_every_shape_of_payload_is_drawn_without_a_complaint(chrome, pages, name, width):
    browser.open_page(chrome, pages[name], width, 740)
    assert chrome.execute_script("return document.documentElement.dataset.ready") == ""
    assert browser.complaints(chrome) == []
    shades = chrome.execute_script(COLOURS + "return [...document.querySelectorAll('canvas')].map(c => shades(c).size)")
    assert len(shades) >= 3
    assert all(shade >= 1 for shade in shades)
    scroll, inner = chrome.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
    assert scroll <= inner == width


def test_charts_show_their_methods(year):
    script = (
        "const all = [...document.querySelectorAll('figure')].map(f => [f.id, shades(f.querySelector('canvas')).size]);"
    )
    shades = dict(year.execute_script(COLOURS + script + "return all"))
    assert shades.keys() == {
        *("windows", "drift", "curves", "params", "lanes", "evalue", "histogram"),
        *("detector", "gain", "saved", "benefit", "volume", "missing", "delays", "scores"),
    }
    assert shades["windows"] > 8 and min(shades.values()) > 3


DRAWN_TEXT = """
window.drawn = [];
const fillText = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, ...place) {
  window.drawn.push([this.canvas, text]);
  return fillText.call(this, text, ...place);
};
"""


@pytest.mark.parametrize(("low", "high"), [(0.11, 0.29), (0.0161, 0.0239), (0.195, 0.205), (0.2, 0.2), (0.0, 0.9)])
def test_an_axis_of_scores_has_numbers_that_people_read(chrome, tmp_path, low, high):
    """One tick at 2.0e-1 was all that an axis from 0.11 to 0.29 had."""
    told = VARIANTS["a year"]()
    for name, value in (("score_low", low), ("score_median", (low + high) / 2), ("score_high", high)):
        told["history"][name] = [value] * len(told["history"]["start"])
    report.write(told, tmp_path / "page.html")
    hook = chrome.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": DRAWN_TEXT})
    try:
        browser.open_page(chrome, tmp_path / "page.html")
        ticks = chrome.execute_script(
            "const canvas = document.querySelector('#scores canvas');"
            "return [...new Set(window.drawn.filter(([of]) => of === canvas).map(([_, text]) => text))]"
        )
    finally:
        chrome.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", hook)
    numbers = [tick for tick in ticks if re.fullmatch(r"[−-]?[\d.]+(e[-+]?\d+)?", tick)]
    assert len(numbers) >= 2 and not any("e" in tick for tick in numbers)


def test_no_request_leaves_the_page(year, pages):
    click(year, "#leaderboard thead button")
    click(year, "#windows .legend button")
    click(year, "#copy")
    assert browser.requests(year) == [pages["a year"].as_uri()]


def test_the_page_forbids_itself_requests_and_foreign_scripts(chrome, pages):
    browser.open_page(chrome, pages["a year"])
    tried = chrome.execute_async_script(
        "const done = arguments[0];"
        "document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.run = 1\">');"
        "fetch('http://127.0.0.1:9/').then(() => done('sent'), () => setTimeout(() => done(String(window.run)), 50));"
    )
    assert tried == "undefined"
    assert any("Content Security Policy" in said for said in browser.complaints(chrome))


def test_hostile_names_stay_names(chrome, pages):
    browser.open_page(chrome, pages["hostile"])
    assert chrome.title == f"{HOSTILE} – calibeat"
    assert HOSTILE in texts(chrome, "#keys-table th.key")
    assert HOSTILE in texts(chrome, "#lanes .legend span") + texts(chrome, "#windows .legend span")
    assert not every(chrome, "main img, main script")
    press(chrome, one(chrome, "#windows .plot"), Keys.ARROW_RIGHT)
    click(chrome, "#windows summary")
    assert not every(chrome, "img")
    assert browser.complaints(chrome) == []


# ---- tables ------------------------------------------------------------------------------------------------------


def column(chrome, table, at):
    """The cells of a column, by its place among those that are shown."""
    script = (
        "const rows = [...document.querySelectorAll(arguments[0] + ' tbody tr')];"
        "return rows.map(row => [...row.cells].filter(c => c.offsetParent)[arguments[1]].textContent)"
    )
    return chrome.execute_script(script, table, at)


def heading(chrome, table, label):
    return next(th for th in every(chrome, f"{table} thead th") if th.is_displayed() and th.text.startswith(label))


def test_the_leaderboard_sorts_by_click_and_by_keyboard(year):
    brier = heading(year, "#leaderboard", "Brier")
    at = [th.text for th in every(year, "#leaderboard thead th") if th.is_displayed()].index(brier.text)
    button = brier.find_element(By.TAG_NAME, "button")
    year.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", button)
    button.click()
    rising = column(year, "#leaderboard", at)
    assert brier.get_attribute("aria-sort") == "ascending" and rising == sorted(rising)
    press(year, button, Keys.ENTER)
    assert brier.get_attribute("aria-sort") == "descending"
    assert [v.removesuffix(" best") for v in column(year, "#leaderboard", at)] == sorted(
        (v.removesuffix(" best") for v in rising), reverse=True
    )
    assert len(every(year, "#leaderboard [aria-sort]")) == 1
    press(year, heading(year, "#leaderboard", "AUC").find_element(By.TAG_NAME, "button"), Keys.SPACE)
    assert heading(year, "#leaderboard", "AUC").get_attribute("aria-sort") == "descending"


def test_unknown_numbers_sort_last_either_way(year):
    click(year, "#all-columns")
    regret = heading(year, "#leaderboard", "Regret").find_element(By.TAG_NAME, "button")
    for _ in range(2):
        press(year, regret, Keys.ENTER)
        methods = year.execute_script(
            "return [...document.querySelectorAll('#leaderboard tbody tr')].map(r => r.dataset.method)"
        )
        assert set(methods[-2:]) == {"raw", "whb"}


def test_intervals_of_another_metric(year):
    assert heading(year, "#leaderboard", "Log-loss against raw")
    press(year, one(year, "#leaderboard-metric input"), Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert heading(year, "#leaderboard", "CE against raw")
    shown = "".join(column(year, "#leaderboard", 2))
    assert "−0.0430" in shown and "less, beyond luck" in shown and " to −" not in shown  # no interval


def test_keys_are_found_sorted_and_turned(year):
    rows = texts(year, "#keys-table th.key")
    assert len(rows) == 25 and rows[0] == "carrier-0000/EWR-LAX"
    one(year, "#keys-search").send_keys("0031")
    assert texts(year, "#keys-table th.key") == ["carrier-0031/EWR-LAX"]
    assert one(year, "#keys-status").text == "1–1 of 1 key"
    one(year, "#keys-search").send_keys("zzz")
    assert texts(year, "#keys-table tbody tr") == ["No key matches."]
    one(year, "#keys-search").clear()
    one(year, "#keys-search").send_keys(" CARRIER ")
    press(year, every(year, "#keys-pager button")[1], Keys.ENTER)
    assert one(year, "#keys-status").text == "26–50 of 400 keys"
    assert texts(year, "#keys-table th.key")[0] == "carrier-0025/EWR-LAX"
    events = heading(year, "#keys-table", "Events").find_element(By.TAG_NAME, "button")
    press(year, events, Keys.ENTER)
    counts = [int(text.replace(",", "")) for text in column(year, "#keys-table", 1)]
    assert counts == sorted(counts, reverse=True) and one(year, "#keys-status").text.startswith("1–25")


def test_keys_by_another_method_and_measure(year):
    before = column(year, "#keys-table", 4)
    choose(year, "#keys-controls select", "whb")
    assert heading(year, "#keys-table", "WHB")
    assert column(year, "#keys-table", 4) != before
    by_loss = column(year, "#keys-table", 4)
    press(year, one(year, "#keys-controls input[type=radio]"), Keys.ARROW_RIGHT)
    assert column(year, "#keys-table", 4) != by_loss


# ---- charts ------------------------------------------------------------------------------------------------------


def test_a_name_in_the_legend_hides_and_shows_its_method(year):
    button = one(year, "#windows .legend [data-series=raw]")
    drawn = picture(year, "#windows")
    assert button.tag_name == "button" and button.get_attribute("aria-pressed") == "true"
    click(year, "#windows .legend [data-series=raw]")
    assert button.get_attribute("aria-pressed") == "false"
    assert picture(year, "#windows") != drawn
    press(year, button, Keys.SPACE)
    assert button.get_attribute("aria-pressed") == "true"
    assert picture(year, "#windows") == drawn


def test_few_methods_first_and_all_when_asked(year):
    pressed = "return document.querySelectorAll('#windows .legend [aria-pressed=true]').length"
    assert year.execute_script(pressed) == 5
    click(year, "#windows .legend .all")
    assert year.execute_script(pressed) == 10 and one(year, "#windows .legend .all").text == "Show fewer"
    click(year, "#windows .legend .all")
    assert year.execute_script(pressed) == 5


def test_the_pointer_shows_numbers(year):
    over = one(year, "#windows .u-over")
    year.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", over)
    ActionChains(year).move_to_element(over).perform()
    browser.settle(year)
    tip = one(year, "#windows .tip")
    assert tip.is_displayed()
    assert "6,432 judged" in tip.text and "AUTO 0.0" in tip.text.replace("\n", " ")


def test_arrow_keys_walk_through_a_chart_and_say_where_they_are(year):
    plot, said = one(year, "#windows .plot"), "#windows [role=status]"
    assert plot.get_attribute("tabindex") == "0" and "arrow keys" in plot.get_attribute("aria-label")
    press(year, plot, Keys.ARROW_RIGHT)
    first = texts(year, said)[0]
    assert first.startswith("1 Feb 2013 – 7 Feb 2013 · 6,432 judged: ") and "raw 0." in first
    press(year, plot, Keys.ARROW_RIGHT)
    assert texts(year, said)[0] != first
    press(year, plot, Keys.ARROW_LEFT)
    assert texts(year, said)[0] == first
    press(year, plot, Keys.END)
    assert "Dec 2013" in texts(year, said)[0]
    assert one(year, "#windows .tip").is_displayed()
    press(year, plot, Keys.ESCAPE)
    assert not one(year, "#windows .tip").is_displayed()


FIGURES = (
    *("windows", "drift", "curves-points", "curves-counts", "params", "lanes", "evalue", "histogram"),
    *("detector", "gain", "saved", "benefit", "volume", "missing", "delays", "scores"),
)


def test_every_chart_answers_the_keyboard_and_can_be_read_as_a_table(year):
    for figure in FIGURES:
        press(year, one(year, f"#{figure} .plot"), Keys.HOME)
        said = texts(year, f"#{figure} [role=status]")[0]
        assert any(character.isdigit() for character in said), figure
        assert "undefined" not in said and "NaN" not in said, figure
        press(year, one(year, f"#{figure} .as-table summary"), Keys.ENTER)
        cells = texts(year, f"#{figure} .as-table td")
        assert len(cells) >= 10 and any(character.isdigit() for character in cells[0] + cells[-1]), figure


def test_another_metric_draws_another_picture(year):
    before = picture(year, "#windows")
    press(year, one(year, "#windows .choice input"), Keys.ARROW_RIGHT)
    assert picture(year, "#windows") != before
    assert "Log-loss" in one(year, "#windows .plot").get_attribute("aria-label")


def test_the_slider_and_the_small_pictures_change_the_period(year):
    slider, said = one(year, "#period"), "#curves output"
    whole, before = texts(year, said)[0], picture(year, "#curves")
    assert whole.startswith("whole log: 25,000 events")
    press(year, slider, Keys.ARROW_RIGHT)
    assert texts(year, said)[0].startswith("Feb 2013") and slider.get_attribute("aria-valuetext") == "Feb 2013"
    assert picture(year, "#curves") != before
    press(year, every(year, ".multiples button")[3], Keys.ENTER)
    assert texts(year, said)[0].startswith("Apr 2013") and slider.get_attribute("value") == "3"
    press(year, slider, Keys.HOME)
    assert texts(year, said)[0] == whole and picture(year, "#curves") == before


def test_bins_of_equal_mass_are_of_the_whole_log(year):
    press(year, one(year, "#period"), Keys.ARROW_RIGHT)
    first = picture(year, "#curves")
    mass = one(year, "#curves input[value=mass]")
    press(year, mass, Keys.SPACE)
    assert picture(year, "#curves") != first and texts(year, "#curves output")[0].startswith("whole log")
    assert not one(year, "#curves-counts").is_displayed()
    press(year, one(year, "#curves-points .plot"), Keys.HOME)
    assert "in 12,000" in texts(year, "#curves-points [role=status]")[0]
    press(year, one(year, "#period"), Keys.ARROW_RIGHT)
    assert one(year, "#curves input[value=width]").is_selected() and one(year, "#curves-counts").is_displayed()
    assert picture(year, "#curves") == first


def test_lanes_are_stacked_and_close_the_gap_of_a_hidden_one(year):
    press(year, one(year, "#lanes .plot"), Keys.HOME)
    said, drawn = texts(year, "#lanes [role=status]")[0], picture(year, "#lanes")
    weights = [float(weight) for weight in re.findall(r"(?:\w|') (\d\.\d+)", said)]
    assert len(weights) == 6 and sum(weights) == pytest.approx(1, abs=0.005)
    press(year, one(year, "#lanes .legend [data-series=slow]"), Keys.ENTER)
    assert one(year, "#lanes .legend [data-series=slow]").get_attribute("aria-pressed") == "false"
    assert year.switch_to.active_element.get_attribute("data-series") == "slow"
    assert picture(year, "#lanes") != drawn
    press(year, one(year, "#lanes .legend [data-series=slow]"), Keys.ENTER)
    assert picture(year, "#lanes") == drawn


def test_many_windows_are_smoothed_until_each_is_asked_for(chrome, pages):
    browser.open_page(chrome, pages["200 windows"])
    plot, said = one(chrome, "#windows .plot"), "#windows [role=status]"
    press(chrome, plot, *[Keys.ARROW_RIGHT] * 9)
    assert "13,887 judged" in texts(chrome, said)[0]  # nine windows of 1,543
    each = next(label for label in every(chrome, "#windows .choice label") if label.text == "each window")
    press(chrome, each.find_element(By.TAG_NAME, "input"), Keys.SPACE)
    press(chrome, plot, *[Keys.ARROW_RIGHT] * 9)
    assert "1,543 judged" in texts(chrome, said)[0] and "13,887" not in texts(chrome, said)[0]
    told = VARIANTS["200 windows"]()["windows"]["methods"]["raw"]["ce"][8]
    assert f"raw {told:.4f}" in texts(chrome, said)[0]
    assert browser.complaints(chrome) == []


def test_another_method_beside_raw(year):
    choose(year, "#curves select", "ops")
    assert "OPS" in texts(year, "#curves output")[0]
    assert texts(year, "#curves-points .legend span") == ["raw", "OPS"]


def test_parameters_of_another_method(year):
    assert texts(year, "#params .legend span") == ["a", "b", "c"]
    choose(year, "#params select", "ops")
    assert texts(year, "#params .legend span") == ["a", "b"]


def test_the_command_can_be_copied(year):
    click(year, "#copy")
    assert texts(year, "#repeat [role=status]")[0] in ("Copied.", "Selected: press Ctrl-C or Cmd-C.")


# ---- evidence and delays -----------------------------------------------------------------------------------------


def dotted(chrome):
    """The heights of the rows of the picture of evidence that are broken lines in the colour of rules, from its top."""
    return chrome.execute_script(
        "const canvas = document.querySelector('#evalue canvas'), { width, height } = canvas;"
        "const { data } = canvas.getContext('2d').getImageData(0, 0, width, height), found = [];"
        "for (let y = 0; y < height; y++) { let n = 0;"
        "  for (let x = 0; x < width; x++) { const i = 4 * (y * width + x);"
        "    const off = [107, 106, 100].reduce((sum, c, k) => sum + Math.abs(data[i + k] - c), 0);"
        "    n += data[i + 3] > 200 && off < 30; }"
        "  if (n > 0.25 * width && n < 0.6 * width) found.push(y); }"
        "return found"
    )


def test_the_dotted_line_moves_with_the_number_of_methods(chrome, tmp_path):
    """The same evidence judged as that of nine methods and of one: only the line differs."""
    heights = []
    for compared in (9, 1):
        told = VARIANTS["calibrated"]()
        told["evalue"]["threshold"] = math.log(20 * compared)
        report.write(told, tmp_path / f"{compared}.html")
        browser.open_page(chrome, tmp_path / f"{compared}.html")
        heights.append(dotted(chrome))
        assert browser.complaints(chrome) == []
    nine, one_method = heights
    assert nine and one_method and max(nine) < min(one_method)


def test_one_outcome_is_not_called_outcomes(chrome, pages):
    browser.open_page(chrome, pages["one of each"])
    press(chrome, one(chrome, "#histogram .plot"), Keys.HOME)
    assert texts(chrome, "#histogram [role=status]")[0] == "0 s – 1 day: outcomes 1 outcome"
    assert texts(chrome, "#curves output")[0].startswith("whole log: 1 event. ")
    assert browser.complaints(chrome) == []


# ---- the browser itself ------------------------------------------------------------------------------------------


def command_lines():
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield path.read_bytes()
        except OSError:
            continue


def test_the_browser_leaves_nothing_behind():
    with browser.browser() as chrome:
        profile = chrome.capabilities["chrome"]["userDataDir"]
        assert any(os.fsencode(profile) in line for line in command_lines())
    assert not any(os.fsencode(profile) in line for line in command_lines())
    assert not Path(profile).exists()
