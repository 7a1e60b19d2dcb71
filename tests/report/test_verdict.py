"""The top of the page: a number that anybody understands, how sure it is, what to do; long numbers come later."""

from __future__ import annotations

import re

import browser
import pytest
from browser import click, every, one, texts
from report_payload import HOSTILE, VARIANTS, payload, with_later

from calibeat import report
from calibeat.report.notebook import snippet
from calibeat.report.text import page as terminal
from calibeat.report.verdict import example


def top(told):
    return re.search(r'<section id="verdict".*?</section>', report.html(told), re.DOTALL).group(0)


def test_one_number_how_sure_and_what_to_do_come_before_the_experts_part():
    html = top(payload()).replace("\u00a0", " ")
    plain, expert = html.split('<details id="expert">')
    assert "Of 1,000 events that the raw score puts at about 34 %, 210 happened." in plain
    assert "Of 1,000 that AUTO puts at about 35 %, 350 happened." in plain
    assert plain.index("350 happened") < plain.index("We are sure: the gain") < plain.index("Do this")
    assert 'Calibrator("auto")' in plain and "calibeat serve --store calibeat.db --method auto" in plain
    assert "Hold each outcome back" in plain
    assert "nats of log-loss" in expert and "nats of log-loss" not in plain


def test_a_kept_raw_score_has_no_bin_that_was_picked_by_luck_and_no_service():
    told = VARIANTS["one method"]()
    html, said = top(told), " ".join(terminal(told).split())
    assert 'id="example"' not in html and "of 1,000 happened" not in html and "As a service" not in html
    assert example(told) == "" and "Of 1,000 events" not in said


def test_what_a_manager_must_know_is_in_the_open():
    told = with_later()
    told["verdict"]["caveats"].append("29 % of the gain is only the base rate.")
    plain, expert = top(told).replace("\u00a0", " ").split('<details id="expert">')
    for caveat in (*told["verdict"]["caveats"], told["later"]["sentence"]):
        assert caveat in plain and caveat not in expert
        assert caveat in " ".join(terminal(told).split("judged after")[0].split())
        assert caveat in snippet(told).replace("\u00a0", " ")
    assert "<b>Log-loss</b> is how surprised the forecasts were by what happened, on average: 0 is perfect" in plain
    assert "to say 50 % each time costs 0.693, and to be sure and wrong costs most." in plain


def test_a_verdict_that_is_not_settled_deploys_nothing_in_the_terminal():
    told = payload()
    assert "When that is settled" not in top(told)
    told["verdict"]["confidence"] = "unclear"
    assert "Deploy it" not in terminal(told) and "When that is settled, do this" in top(told)
    assert "our choice" in report.html(payload()) and "our choice" not in report.html(told)


def test_before_it_is_settled_when_outcomes_were_known_no_code_is_shown():
    told = payload()
    told["verdict"]["confidence"] = "unclear"
    told["answer"] |= {"library": [], "service": None, "note": "Run the backtest again."}
    shown = top(told)
    assert "Settle that first" in shown and "Run the backtest again." in shown
    assert "<pre>" not in shown and "In Python" not in shown and "As a service" not in shown


def test_rare_events_are_told_of_more_of_them():
    told = payload(methods=2)
    for one_, forecast in zip(told["answer"]["happened"], (0.0008, 0.004), strict=True):
        one_.update(forecast=forecast, outcome=0.00123)
    assert example(told) == (
        "Of 100,000 events that the raw score puts at about 0.08 %, 123 happened. "
        "Of 100,000 that AUTO puts at about 0.4 %, 123 happened."
    )
    assert example(told) in " ".join(terminal(told).split())


def test_when_it_was_made_with_what_and_how():
    html = re.search(r'<section id="repeat".*?</section>', report.html(payload()), re.DOTALL).group(0)
    assert "Made on 2026-11-16 at 08:15 UTC · calibeat 0.4.0" in html and "calibeat backtest flights" in html


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_top_fits_and_its_code_can_be_copied(chrome, tmp_path, width, dark):
    report.write(VARIANTS["hostile"](), tmp_path / "page.html")
    browser.open_page(chrome, tmp_path / "page.html", width, dark=dark)
    bars = chrome.execute_script(
        "return [...document.querySelectorAll('.happened svg')].map(e => e.getBoundingClientRect())"
        ".map(r => [r.left, r.width])"
    )
    assert len(bars) == 2 and bars[0] == bars[1]  # or they could not be compared
    scroll, inner = chrome.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
    assert scroll <= inner == width
    assert texts(chrome, "#deploy code") == [HOSTILE, HOSTILE] and texts(chrome, "#sure") == [HOSTILE]
    assert not every(chrome, "#verdict img, #verdict script")
    click(chrome, "#deploy .command button")
    assert texts(chrome, "#deploy [role=status]")[0] in ("Copied.", "Selected: press Ctrl-C or Cmd-C.")
    assert not one(chrome, "#expert p").is_displayed()
    click(chrome, "#expert summary")
    assert one(chrome, "#expert p").is_displayed()
    assert browser.complaints(chrome) == []


def test_the_terminal_tells_what_follows():
    said = " ".join(terminal(payload()).split())
    assert "AUTO decides otherwise on 12,000" in said and "A monitor of AUTO would have paged once." in said
    assert "Deploy it: calibeat serve --store calibeat.db --method auto" in said
    assert "Deploy" not in terminal(VARIANTS["one method"]())


def test_the_terminal_tells_what_else_a_deployment_needs():
    made = payload()
    made["answer"]["note"] = "As a service, send the attributes with each score, as groups."
    assert f"--method auto {made['answer']['note']}" in " ".join(terminal(made).split())
