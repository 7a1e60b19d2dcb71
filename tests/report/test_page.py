"""The report as text: complete without JavaScript, safe with any name, small, and never half written."""

from __future__ import annotations

import base64
import hashlib
import html as markup
import json
import math
import re
from html.parser import HTMLParser

import pytest
from report_payload import HOSTILE, VARIANTS, payload

from calibeat import InvalidInput, report
from calibeat.report.delays import folded
from calibeat.report.verdict import Scale, bar


class Reader(HTMLParser):
    """What a browser without JavaScript sees: the elements, and the text outside scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.inside: list[str] = []
        self.scripts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.inside.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        while self.inside and self.inside.pop() != tag:
            pass

    def handle_data(self, data):
        if "script" in self.inside:
            self.scripts[-1] += data
        elif "style" not in self.inside:
            self.text += data


@pytest.fixture(scope="module")
def year():
    return payload()


@pytest.fixture(scope="module")
def page(year):
    return report.html(year)


def policy(page):
    return markup.unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', page).group(1))


# ---- what it says ------------------------------------------------------------------------------------------------


def test_verdict_and_leaderboard_are_there_without_javascript(year, page):
    seen = Reader(page)
    text = seen.text.replace("\u00a0", " ")
    assert year["verdict"]["headline"] in text
    assert all(sentence in text for sentence in year["verdict"]["sentences"])
    rows = [attributes["data-method"] for tag, attributes in seen.tags if "data-method" in attributes]
    assert rows == sorted(rows, key=lambda name: {row["method"]: row["log_loss"] for row in year["table"]}[name])
    assert "0.4747" in text and "−0.0573" in text and "−0.0780 to −0.0366" in text
    assert sum(attributes.get("class") == "bar better" for tag, attributes in seen.tags if tag == "svg") == 2 * 9
    assert text.count("less, beyond luck") == 9 and text.count("luck 0.0011") == 10  # calibration error: no interval


def test_every_section_is_there_and_linked_to(page):
    seen = Reader(page)
    sections = [attributes["id"] for tag, attributes in seen.tags if tag == "section"]
    assert sections == [
        "verdict",
        "methods",
        "decisions",
        "time",
        "reliability",
        "learnt",
        "evidence",
        "paging",
        "keys",
        "delay",
        "certificates",
        "history",
        "data",
        "repeat",
    ]
    links = [attributes["href"] for tag, attributes in seen.tags if tag == "a"]
    assert set(links) == {"#main", *(f"#{name}" for name in sections[1:])}


def test_every_picture_says_how_to_read_it(page):
    figures = re.findall(r"<figure.*?</figure>", page, re.DOTALL)
    assert len(figures) == 15
    assert all("How to read it. " in figure and "noscript" in figure for figure in figures)


def test_data_command_and_versions(year, page):
    text = Reader(page).text
    for said in (
        "316,803 read, 309,772 used",
        "308,772; the first 1,000 are the warm-up and not scored",
        "outcome is missing",
        "7,031",
        "row 412 of flights-2013.parquet",
        "p (guessed from its name)",
        "Outcomes never arrived for 12 events.",
        year["command"],
        "calibeat 0.4.0, python 3.11.9",
        "before it learnt the outcome",
    ):
        assert said in text


def test_sections_without_content_are_left_out():
    for name, gone in {"one method": "learnt", "no keys": "keys", "no delay": "delay"}.items():
        assert f'id="{gone}"' not in report.html(VARIANTS[name]()), name
    assert "Made from Python" in report.html(VARIANTS["from Python"]())
    assert "No row was skipped." in report.html(VARIANTS["from Python"]())
    alone = report.html(VARIANTS["one method"]())
    assert not any(f'id="{name}"' in alone for name in ("certificates", "evidence"))
    assert "Click a name" not in alone


@pytest.mark.parametrize("name", VARIANTS)
def test_every_shape_of_payload_makes_a_page(name):
    page = report.html(VARIANTS[name]())
    assert not re.search(r">(nan|inf|None|-inf)<", page)
    json.loads(Reader(page).scripts[0])


def test_late_outcomes_in_events():
    text = Reader(report.html(VARIANTS["delay in events"]())).text
    assert "Forecasts made meanwhile" in text and "What the wait cost" not in text


def test_an_outcome_under_way_is_not_called_one_that_never_came():
    text = Reader(report.html(payload(methods=2))).text
    assert (
        "214 outcomes were still under way at the last forecast: counted in the delays, but not in the forecasts made "
        "meanwhile, which would be more with them. 7,031 events have no outcome at all, and no delay."
    ) in text
    by_events = Reader(report.html(VARIANTS["delay in events"]())).text
    assert "left out of the table and the picture, which would show longer delays with them." in by_events
    complete = payload(methods=2)
    complete["delay"].update(never=0, too_late=0)
    text = Reader(report.html(complete)).text
    assert "Every outcome had arrived by the last forecast." in text and "under way" not in text


def test_one_is_not_many():
    text = Reader(report.html(VARIANTS["one of each"]())).text
    for said in (
        "1event judged",
        "the first is the warm-up and not scored",
        "1 outcome was still under way at the last forecast",
        "more with it. 1 event has no outcome at all",
        "Delay1 day",
    ):
        assert said in text
    assert not re.search(r"(?<![\d,.])1 (events|outcomes|days|keys)\b", text)


@pytest.mark.parametrize(
    ("kind", "said"),
    [("probability", "probabilities, from 0 to 1"), ("percent", "percentages, from 0 to 100"), ("logit", "logits")],
)
def test_scores_are_called_what_they_are(kind, said):
    told = payload(methods=2, keys=0)
    told["data"]["score_kind"] = kind
    text = Reader(report.html(told)).text
    assert f"Scores are{said}" in text


def test_names_keep_their_case():
    told = payload(methods=3)
    told["methods"][1].update(label="my Platt v2")
    told["keys"]["sentence"] = "First come the keys on which the raw score loses most to my Platt v2."
    page = report.html(told)
    assert "loses most to my Platt v2." in page and "MY PLATT" not in page
    assert "text-transform" not in page


def test_keys_that_differ_most():
    html = re.search(r'<table[^>]*id="keys-differ".*?</table>', report.html(payload()), re.DOTALL).group(0)
    text = Reader(html).text.replace("\u00a0", " ")
    assert "carrier-0000/EWR-LAX" in text and "30.0 %25.0 %−5.0−9.0 to −1.0" in text
    assert "400 keys with enough events 1 is off beyond luck," in Reader(report.html(payload())).text
    assert "the mean forecast of the raw score is" in Reader(report.html(VARIANTS["one method"]())).text
    assert 'id="keys-differ"' not in report.html(VARIANTS["one window"]())


# ---- what is promised, and what is evidence ------------------------------------------------------------------------


def guarantees(told):
    section = re.search(r'<section id="certificates".*?</section>', report.html(told), re.DOTALL).group(0)
    return section, [
        re.findall(r'class="badge ([^"]*)">([^<]*)</span>(?:<span class="kept">([^<]*))?', row)
        for row in re.findall(r"<tr>.*?</tr>", section, re.DOTALL)[1:]
    ]


def test_only_a_promise_is_said_to_hold(year):
    section, badges = guarantees(year)
    yardstick = ("unpromised", "not promised")
    assert badges == [[(*yardstick, "kept")], [("holds", "holds", "")], [(*yardstick, "not kept")]]
    assert "nothing is promised" in section
    broken = payload(methods=5)
    for row in broken["certificates"]:
        row.update(promised=True, holds=False)
    assert guarantees(broken)[1] == [[("broken", "broken", "")]] * 3
    for row in broken["certificates"]:
        row["in_expectation"] = True
    assert guarantees(broken)[1] == [[("unpromised", "above, in this draw", "")]] * 3


def test_the_line_of_evidence_says_why_it_is_where_it_is(year):
    text = Reader(report.html(year)).text
    assert "(180 to 1)" in text and "each of the 9 compared is another chance to cross it by luck" in text
    two = Reader(report.html(payload(methods=2))).text
    assert "Above the dotted line (20 to 1) is strong evidence" in two and "cross it by luck" not in two


# ---- bars of delays ------------------------------------------------------------------------------------------------


def test_bars_that_few_outcomes_have_are_folded_into_the_next():
    """Whole seconds in octaves of microseconds: a few at once, a desert, hours; and one that took years."""
    edges = [2.0**k * 1e-6 for k in range(12)]
    histogram = {"edges": edges, "count": [3, 0, 0, 2, 0, 5000, 9000, 4000, 0, 0, 1]}
    seen = folded(histogram)
    assert seen == {"edges": [0.0, edges[6], edges[7], edges[11]], "count": [5005, 9000, 4001]}
    assert (
        len(json.loads(Reader(report.html(with_histogram(histogram))).scripts[0])["delay"]["histogram"]["count"]) == 3
    )
    many_at_once = {"edges": edges, "count": [300, 0, 0, 2, 0, 5000, 9000, 4000, 0, 0, 40]}
    assert folded(many_at_once) == many_at_once
    assert folded({"edges": [0.0, 1.0, 3.0], "count": [5000, 1]}) == {"edges": [0.0, 3.0], "count": [5001]}
    assert folded({"edges": [0.0], "count": []}) == {"edges": [0.0], "count": []}


def with_histogram(histogram):
    told = payload(methods=2, keys=0)
    told["delay"]["histogram"] = histogram
    return told


# ---- one file, no request, no foreign script -----------------------------------------------------------------------


def test_the_page_asks_for_nothing(page):
    seen = Reader(page)
    for tag, attributes in seen.tags:
        assert tag not in {"img", "iframe", "object", "embed", "audio", "video"}
        assert "src" not in attributes
        assert tag == "a" or attributes.get("href", "data:,") == "data:,"
    assert "@import" not in page and "url(" not in page


def test_only_our_script_and_style_are_allowed(page):
    allowed = policy(page)
    assert "default-src 'none'" in allowed and "unsafe" not in allowed
    for element, directive in (("script", "script-src"), ("style", "style-src")):
        (text,) = re.findall(rf"<{element}>(.*?)</{element}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}';" in allowed


def test_names_cannot_become_markup():
    hostile = VARIANTS["hostile"]()
    page = report.html(hostile)
    seen = Reader(page)
    assert [attributes.get("type") for tag, attributes in seen.tags if tag == "script"] == ["application/json", None]
    assert not any(tag == "img" or "onerror" in attributes for tag, attributes in seen.tags)
    assert seen.text.count(HOSTILE) >= 8  # title, headline, source, column, reason, note, command, method
    embedded = json.loads(seen.scripts[0])
    assert embedded["title"] == HOSTILE and HOSTILE in embedded["keys"]["key"]
    assert "<" not in seen.scripts[0]


def test_half_a_character_does_not_stop_the_page():
    broken = payload(methods=2, keys=2)
    broken["title"] = broken["keys"]["rows"][0]["key"] = "caf\udce9"
    page = report.html(broken)
    assert "caf\\udce9" in page
    page.encode()


def test_ten_methods_200_windows_and_2000_keys_stay_under_two_megabytes():
    large = payload(methods=10, windows=200, keys=2000)
    assert len(report.html(large).encode()) < 2_000_000


def test_what_is_not_a_number_becomes_null():
    odd = payload(methods=2, keys=2)
    odd["windows"]["methods"]["auto"]["ce"][0] = math.nan
    odd["windows"]["methods"]["auto"]["ce"][1] = -math.inf
    embedded = json.loads(Reader(report.html(odd)).scripts[0])
    assert embedded["windows"]["methods"]["auto"]["ce"][:2] == [None, None]


def test_a_method_without_scores_for_a_key_is_null_there():
    partial = payload(methods=2, keys=2)
    del partial["keys"]["rows"][0]["methods"]["auto"]
    embedded = json.loads(Reader(report.html(partial)).scripts[0])
    assert embedded["keys"]["methods"]["auto"]["log_loss"][0] is None
    assert embedded["keys"]["methods"]["auto"]["log_loss"][1] is not None


def test_the_best_is_marked_unless_most_are(year):
    """In the year nine of ten methods share the best AUC, and one has the least log-loss."""
    rows = re.findall(r"<tr.*?</tr>", report.html(year), re.DOTALL)
    marked = {
        re.search(r'data-method="(\w+)"', row).group(1): row.count("<strong>") for row in rows if "data-method" in row
    }
    assert marked["auto"] == 6 and set(marked.values()) == {0, 6}


def test_without_a_warm_up_none_is_spoken_of(year):
    alone = {**year, "data": {**year["data"], "warmup": 0}}
    assert "the first 0" not in report.html(alone)


# ---- intervals ---------------------------------------------------------------------------------------------------


def shapes(picture):
    return [element.get("class") for element in picture]


def test_an_interval_beyond_the_scale_ends_in_an_arrow():
    scale = Scale(-1.0, 1.0, 4)
    assert shapes(bar([-0.5, -0.6, -0.4], scale)) == ["zero", "range", "dot"]
    assert shapes(bar([5.0, 4.0, 6.0], scale)) == ["zero", "range", "beyond"]
    assert shapes(bar([-0.9, -1.5, -0.3], scale)) == ["zero", "range", "dot", "beyond"]


def test_a_calibration_error_is_less_or_more_only_beyond_its_envelope():
    told = payload(methods=5)
    for row, ends in zip(told["table"][1:], ([-0.3, -0.1], [0.1, 0.3], [-0.1, 0.3], [None, None]), strict=True):
        row["vs_raw"]["ce"] = [0.0, *ends]
        row["vs_best_other"]["ce"][0] = None
    text = Reader(report.html(told)).text
    assert (text.count("less, beyond luck"), text.count("more, beyond luck"), text.count("may be luck")) == (1, 1, 1)


def test_an_interval_is_better_worse_or_open():
    scale = Scale(-1.0, 1.0, 4)
    sides = [bar(triple, scale).get("class") for triple in ([-0.5, -0.6, -0.4], [0.5, 0.4, 0.6], [0.1, -0.1, 0.3])]
    assert sides == ["bar better", "bar worse", "bar open"]


# ---- writing -----------------------------------------------------------------------------------------------------


def test_write_makes_the_folder_and_leaves_one_file(year, page, tmp_path):
    target = tmp_path / "new" / "report.html"
    report.write(year, target)
    report.write(year, target)
    assert target.read_text(encoding="utf-8") == page
    assert [path.name for path in target.parent.iterdir()] == ["report.html"]
    (tmp_path / "other").touch()
    assert target.stat().st_mode == (tmp_path / "other").stat().st_mode


def test_write_fails_without_touching_what_is_there(year, tmp_path):
    target = tmp_path / "report.html"
    target.write_text("before")
    with pytest.raises(KeyError):
        report.write({key: value for key, value in year.items() if key != "verdict"}, target)
    folder = tmp_path / "folder.html"
    folder.mkdir()
    with pytest.raises(InvalidInput, match=r"folder\.html"):
        report.write(year, folder)
    assert target.read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder.html", "report.html"]
