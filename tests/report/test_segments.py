"""The section "Who is miscalibrated?": what a reader sees without a script, and what a script adds."""

from __future__ import annotations

import json
import math
import re
from html.parser import HTMLParser

import browser
import pytest
from browser import click, every, one, press, texts
from report_payload import HOSTILE, hostile_groups, offered, one_attribute, with_groups

from calibeat import report
from calibeat.report.page import html
from calibeat.report.segments import evidence, shade
from calibeat.report.text import page as text_page

NEVER_SAID = ("bias", "unfair", "discriminat", "variance component", "because")


class Tags(HTMLParser):
    """The elements of a page."""

    def __init__(self):
        super().__init__()
        self.tags = []

    def handle_starttag(self, tag, _):
        self.tags.append(tag)


def section_of(payload):
    found = re.search(r'<section id="segments".*?</section>', html(payload), re.DOTALL)
    return found[0] if found else ""


def plain(markup):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", markup))


def test_the_section_says_what_the_specification_wants():
    payload = with_groups()
    shown = section_of(payload)
    words = plain(shown)
    assert payload["segments"]["sentence"] in words
    assert "0.31 in logit, 8 points at 50" in words and words.index("hour") < words.index("hour x origin")
    assert "Segments overlap; an offset is what is left when the others are accounted for." in words
    assert shown.count('class="heat') >= 2 and "Grey: luck may explain it" in words
    assert "evidence" in words and "Happened" in words and " said" in words
    assert not any(word in words.lower() for word in NEVER_SAID)


def test_both_maps_have_one_scale_grey_where_luck_explains_it_and_a_dash_below_the_least():
    payload = with_groups()
    tables = re.findall(r'<table class="heat.*?</table>', section_of(payload), re.DOTALL)
    heat = payload["segments"]["map"]
    for table, of in zip(tables, heat["methods"].values(), strict=True):
        cells = re.findall(r'<td class="(\w+)"[^>]*>([^<]*)</td>', table)
        wanted = [cell for line in zip(of["gap"], of["flagged"], strict=True) for cell in zip(*line, strict=True)]
        assert len(cells) == len(wanted) == 24 * 3
        for (kind, text), (gap, flagged) in zip(cells, wanted, strict=True):
            if gap is None:
                assert (kind, text) == ("few", "–")
            else:
                assert kind == (shade(100 * gap) if flagged else "luck")
                assert float(text.replace("−", "-")) == pytest.approx(100 * gap, abs=0.5)
    assert 'class="p' in tables[0] or 'class="m' in tables[0]


def test_evidence_is_odds_and_has_an_end():
    assert evidence(math.log(20.0)) == "1 in 20" and evidence(math.log(10_000.0)) == "1 in 10,000"
    assert evidence(0.0) == evidence(-50.0) == "none"
    assert evidence(1e4) == evidence(math.log(1e6)) == "under 1 in 1,000,000"


def test_the_ten_with_the_strongest_evidence_stand_with_all_three_forecasts():
    payload = with_groups()
    table = re.search(r'<table[^>]*id="segments-worst".*?</table>', section_of(payload), re.DOTALL)[0]
    rows = re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)[1:]
    assert len(rows) == 10
    told = payload["segments"]["rows"]
    for at, row in enumerate(rows):
        assert f"{told['events'][at]:,}" in row and all(value in row for value in told["value"][at])
        assert row.count('"luck"') == 3
        assert row.count("miscalibrated") == sum(own["flagged"][at] for own in told["methods"].values())


def test_one_attribute_has_no_map_and_offered_columns_are_named():
    assert "heat" not in section_of(one_attribute())
    assert "Segments can be judged: country (say --groups country)." in plain(section_of(offered()))
    told = offered()
    del told["offered"]
    assert section_of(told) == ""


def test_the_terminal_says_the_same_sentence():
    flat = " ".join(text_page(with_groups()).split())
    assert with_groups()["segments"]["sentence"] in flat and "Groups: hour, origin." in flat
    assert "Segments can be judged: country" in text_page(offered())


def test_names_are_text_and_never_markup():
    page = html(hostile_groups())
    seen = Tags()
    seen.feed(page)
    assert "img" not in seen.tags and seen.tags.count("script") == 2
    embedded = json.loads(re.search(r'id="payload">(.*?)</script>', page, re.DOTALL)[1])
    assert embedded["segments"]["rows"]["value"][0] == [HOSTILE]


# ---- in a browser ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("segments")
    made = {"groups": with_groups, "many": lambda: with_groups(20, 20)}
    for name, make in made.items():
        report.write(make(), folder / f"{name}.html")
    return {name: folder / f"{name}.html" for name in made}


def test_all_segments_are_found_sorted_and_turned_over(chrome, pages):
    browser.open_page(chrome, pages["groups"])
    total = with_groups()["segments"]["total"]
    assert one(chrome, "#segments-status").text == f"1–25 of {total} segments"
    assert len(every(chrome, "#segments-table tbody tr")) == 25
    press(chrome, one(chrome, "#segments-search"), "hour: 7")
    assert texts(chrome, "#segments-table tbody th") == ["hour: 7"]
    press(chrome, one(chrome, "#segments-search"), *["\ue003"] * 7)
    click(chrome, "#segments-table thead th:nth-child(2) button")
    events = [int(text.replace(",", "")) for text in texts(chrome, "#segments-table td:nth-child(2)")]
    assert events == sorted(events, reverse=True)
    press(chrome, one(chrome, "#segments-controls input[value=evidence]"), " ")
    assert all(re.match(r"none|1 in|under", text) for text in texts(chrome, "#segments-table td:nth-child(5)"))
    press(chrome, one(chrome, "#segments-controls input[value=log_e]"), " ")
    shown = texts(chrome, "#segments-table td:nth-child(5)")
    assert all(re.fullmatch(r"[+−]?\d+\.\d\d", text) for text in shown), shown
    assert browser.complaints(chrome) == []


@pytest.mark.parametrize("width", [1400, 390])
@pytest.mark.parametrize("name", ["groups", "many"])
def test_nothing_is_wider_than_the_screen_and_maps_can_be_read(chrome, pages, name, width):
    browser.open_page(chrome, pages[name], width, 900)
    assert chrome.execute_script("return document.documentElement.scrollWidth") <= width
    box = "document.querySelector('#segments-worst').parentElement"
    assert chrome.execute_script(f"return {box}.scrollWidth - {box}.clientWidth") <= 1  # what groups say is seen too
    for dark in (False, True):
        browser.media(chrome, dark=dark)
        browser.settle(chrome)
        assert not [(kind, found) for kind, found in contrasts(chrome) if found < 3.5]
    assert browser.complaints(chrome) == []


def contrasts(chrome):
    """Of the text of each kind of cell of the maps with what is behind it."""
    return chrome.execute_script("""
const parse = text => {
  const numbers = text.match(/[\\d.]+/g).map(Number);
  return text.startsWith("color(") ? numbers.slice(0, 3) : numbers.slice(0, 3).map(v => v / 255);
};
const linear = v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
const light = c => parse(c).map(linear).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const page = getComputedStyle(document.body).backgroundColor;
const kinds = [...document.querySelectorAll(".heat td, .heat-legend span")];
return [...new Map(kinds.map(cell => [cell.className, cell])).values()].map(cell => {
  const style = getComputedStyle(cell), own = style.backgroundColor;
  const behind = own === "rgba(0, 0, 0, 0)" ? page : own;
  const [a, b] = [light(style.color), light(behind)].sort((x, y) => y - x);
  return [cell.className, (a + 0.05) / (b + 0.05)];
});""")


def test_an_attribute_whose_name_has_an_x_of_its_own():
    told = with_groups()
    rows = told["segments"]["rows"]
    rows["attribute"][0], rows["value"][0] = "a x b x c", ["fr", "ios"]
    assert "a x b x c fr, ios" in plain(section_of(told))
