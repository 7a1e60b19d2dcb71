"""The page of many classes: what it says without a script, and drawn in a real Chromium."""

from __future__ import annotations

import browser
import pytest
from browser import choose, click, every, one, picture, press, texts
from class_logs import NAMES, stream
from report_payload import HOSTILE
from selenium.webdriver import Keys

import calibeat
from calibeat import report

FEW = 600


def payload(names, n=FEW, **options):
    P, y = stream(n, len(names))
    return calibeat.backtest(P, [names[k] for k in y], classes=names, **options).payload


VARIANTS = {
    "three": lambda: payload(NAMES, 3000),
    "thirty": lambda: payload(
        [f"class number {k:02d} of a long list of classes" for k in range(30)], methods="ots,multi"
    ),
    "hostile": lambda: payload([HOSTILE, "\u202ereversed", "<b>"], methods="multi"),
    "two, late": lambda: payload(("no", "yes"), delay=40),
    "keys, late": lambda: payload(NAMES, 3000, keys=["a", "b", "c"] * 1000, delay=40, methods="multi"),
    "raw alone": lambda: payload(NAMES, methods="raw"),
    "without multi": lambda: payload(NAMES, methods="ots,fts"),
    "one event": lambda: payload(NAMES, 1),
}


@pytest.fixture(scope="module")
def payloads():
    return {name: make() for name, make in VARIANTS.items()}


@pytest.fixture(scope="module")
def pages(tmp_path_factory, payloads):
    folder, paths = tmp_path_factory.mktemp("classes"), {}
    for at, (name, told) in enumerate(payloads.items()):
        paths[name] = folder / f"{at}.html"
        report.write(told, paths[name])
    return paths


@pytest.fixture
def three(chrome, pages):
    browser.open_page(chrome, pages["three"])
    yield chrome
    assert browser.complaints(chrome) == []


# ---- without a script --------------------------------------------------------------------------------------------


def bare(path):
    """The page without its data and scripts."""
    return path.read_text().split('<script type="application/json"')[0]


def test_what_is_read_without_a_script(payloads, pages):
    text, told = bare(pages["three"]), payloads["three"]
    for words in ("Class by class", "Where the class priors went", "Top-label CE", "Class-wise CE", "accuracy, raw"):
        assert words in text
    for name, count in zip(told["classes"]["names"], told["classes"]["count"], strict=True):
        assert f"<bdi>{name}</bdi>" in text and f"{count:,}" in text
    assert "Base rate" not in text and "Regret" not in text


def test_log_loss_is_explained_for_so_many_classes(pages):
    assert "to give each of 3 classes the same chance costs 1.099" in bare(pages["three"])
    assert "to say 50" not in bare(pages["three"])


def test_parts_that_have_nothing_to_say_are_left_out(pages):
    text = {name: bare(path) for name, path in pages.items()}
    assert 'id="times"' in text["three"] and 'id="times"' not in text["raw alone"]
    assert 'id="times"' not in text["without multi"] and 'id="shares"' in text["without multi"]
    assert 'id="priors"' not in text["one event"] and 'id="drift"' not in text["one event"]
    assert "the 24 most common of 30 classes" in text["thirty"] and "all 3 classes" in text["three"]
    assert "<script>document" not in text["hostile"] and "&lt;script&gt;" in text["hostile"]
    assert "What the wait cost" in text["two, late"]
    assert "Keys that differ most" in text["keys, late"] and 'id="keys"' not in text["three"]
    assert "the confidence in the top class" in text["three"] and "Would it have paged?" in text["three"]


# ---- drawn -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
@pytest.mark.parametrize("name", VARIANTS)
def test_every_shape_of_payload_is_drawn_without_a_complaint(chrome, pages, name, width, dark):
    browser.open_page(chrome, pages[name], width, 740, dark=dark)
    assert chrome.execute_script("return document.documentElement.dataset.ready") == ""
    assert browser.complaints(chrome) == []
    scroll, inner = chrome.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
    assert scroll <= inner == width


def drawn(chrome, selector):
    """How many colours a canvas shows."""
    return chrome.execute_script(
        "const c = document.querySelector(arguments[0] + ' canvas'), seen = new Set();"
        "const { data } = c.getContext('2d').getImageData(0, 0, c.width, c.height);"
        "for (let i = 0; i < data.length; i += 4)"
        "  if (data[i + 3] > 200) seen.add(`${data[i] >> 5},${data[i + 1] >> 5}`);"
        "return seen.size",
        selector,
    )


def test_every_picture_shows_something(three):
    for selector in ("#windows", "#drift", "#curves", "#panel", ".panels", "#times", "#shares", "#evalue"):
        assert drawn(three, selector) > 2
    assert len(every(three, ".panels canvas")) == 3


def test_a_panel_is_chosen_by_click_and_by_key(three, payloads):
    told = payloads["three"]["classes"]
    readout = "#panels output"
    assert texts(three, readout)[0].startswith(f"{told['names'][0]}: {told['count'][0]:,} labels")
    before = picture(three, "#panel")
    click(three, ".panels button:nth-child(2)")
    assert texts(three, readout)[0].startswith(f"{told['names'][1]}: ") and picture(three, "#panel") != before
    press(three, one(three, ".panels button:nth-child(3)"), Keys.ENTER)
    assert one(three, ".panels button:nth-child(3)").get_attribute("aria-pressed") == "true"
    assert told["names"][2] in one(three, "#panel .plot").get_attribute("aria-label")
    small = picture(three, ".panels")
    choose(three, "#panels select", "fts")
    assert "FTS" in texts(three, readout)[0] and picture(three, ".panels") != small


def test_shares_and_priors_can_be_asked_for_numbers(three, payloads):
    told = payloads["three"]["classes"]
    choose(three, "#shares select", "1")
    press(three, one(three, "#shares .plot"), Keys.END)
    message = texts(three, "#shares [role=status]")[0]
    assert "happened" in message and "%" in message
    press(three, one(three, "#times .plot"), Keys.END)
    message = texts(three, "#times [role=status]")[0]
    assert all(name in message for name in told["names"]) and "×" in message


def test_the_table_of_classes_sorts(three):
    def first():
        return texts(three, "#classes-table tbody tr:first-child th")[0]

    click(three, "#classes-table thead th:nth-child(1) button")
    assert first() == min(NAMES)
    click(three, "#classes-table thead th:nth-child(1) button")
    assert first() == max(NAMES)


def test_hostile_names_stay_names(chrome, pages):
    browser.open_page(chrome, pages["hostile"])
    assert HOSTILE in texts(chrome, "#classes-table th.key") and HOSTILE in texts(chrome, ".panels .class-name")
    assert chrome.title == "Backtest – calibeat" and not every(chrome, "main img, main script")
    choose(chrome, "#shares select", "2")
    click(chrome, "#times summary")
    assert not every(chrome, "img") and browser.complaints(chrome) == []


def test_small_pictures_follow_the_theme_and_the_window(chrome, pages):
    browser.open_page(chrome, pages["three"])
    light = picture(chrome, ".panels")
    click(chrome, "#theme button")
    assert picture(chrome, ".panels") != light
    width = "return document.querySelector('.panels canvas').width"
    before = chrome.execute_script(width)
    size = {"width": 420, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.settle(chrome)
    assert chrome.execute_script(width) != before


def test_no_request_leaves_the_page(chrome, pages):
    browser.open_page(chrome, pages["thirty"])
    click(chrome, "#times .legend button")
    assert browser.requests(chrome) == [pages["thirty"].as_uri()]
