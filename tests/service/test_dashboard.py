"""The dashboard in a real Chromium, with a real service on a store of 20,000 events."""

from __future__ import annotations

import itertools
import shlex
import time

import browser
import httpx
import pytest
from browser import click, every, one, press, texts
from dashboards import MOVED, WATCH, answers, look_again, open_dashboard, text_of
from selenium.webdriver import ActionChains, Keys
from served import service_apart, service_here, wait_until
from service_fill import Stream, fill

from calibeat.service.settings import EngineSettings

DAY = 86_400.0
HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "\"><script>document.title='x'</script>",
    "a/b?c=d#e&f %2F ü",
    "\u202egnp.evil",
    "{{7*7}} ${7*7} \\u003c",
    "x" * 200,
    "..",
]
STREAMS = [
    Stream("paris", 5.0),
    Stream("quito", 3.0, 0.5, -0.8, after=(-0.9, 0.6), delay=0.2 * DAY),
    Stream("lima", 1.0, 1.0, 0.0),
    Stream("oslo", 0.5, 0.3, 0.9, delay=600.0),
]
CARDS = ("State", "Last 4 weeks", "Log-loss", "Error", "Pending", "Forecasts", "Last forecast")
CHARTS = ["overtime", "curves-points", "curves-counts", "losses", "map", "arrivals", "delays"]


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """Forty days of four streams, and some with names that somebody chose to do harm."""
    store = tmp_path_factory.mktemp("dashboard") / "calibeat.db"
    fill(store, STREAMS, 20_000, 40, end=time.time())
    with service_here(store, settings=EngineSettings(expire=7 * DAY, monitor=20_000.0)) as address:
        events = [{"stream": name, "id": f"h{i}", "score": 0.5} for i, name in enumerate(HOSTILE)]
        httpx.post(f"{address}/v1/forecasts", json={"events": events}).raise_for_status()
        yield address


@pytest.fixture(scope="module")
def chrome():
    with browser.browser() as started:
        yield started


@pytest.fixture
def page(chrome, url):
    """The list on a desktop; whatever a test does, the console must stay silent."""
    open_dashboard(chrome, f"{url}/")
    yield chrome
    assert browser.complaints(chrome) == []


def rows(chrome):
    return texts(chrome, "#streams tbody bdi")


def overview(url, **asked):
    return httpx.get(f"{url}/v1/overview", params=asked).json()


# ---- the list ----------------------------------------------------------------------------------------------------


def test_the_list_shows_what_the_service_says(page, url):
    told = overview(url)
    assert text_of(page, "#list h1") == "11 streams"
    assert rows(page) == [row["name"] for row in told["rows"]]
    figures = texts(page, "#list .figures dd:not(.note)")
    assert figures[:2] == [f"{told['events']:,}", f"{told['pending']:,}"]
    assert figures[2] == f"{told['raw_error']:.3f} → {told['error']:.3f}"
    row, first = told["rows"][0], dict(zip(CARDS, texts(page, "#streams tbody tr:first-child td"), strict=True))
    assert first["Error"] == f"{row['raw_error']:.3f} → {row['error']:.3f}"
    assert first["Forecasts"] == f"{row['events']:,}" and first["State"].startswith(row["state"])


def test_the_reader_chooses_the_rank(page, url):
    for order in ("events", "name"):
        page.execute_script(f"document.querySelector('.choice input[value={order}]').click()")
        expected = [row["name"] for row in overview(url, order=order)["rows"]]
        wait_until(lambda expected=expected: rows(page) == expected)
        assert page.current_url.endswith(f"#/?order={order}")


def test_a_click_on_a_heading_ranks_by_its_column(page, url):
    for column, order in ((7, "events"), (1, "name")):
        click(page, f"#streams thead th:nth-child({column}) .sort")
        wait_until(lambda order=order: rows(page) == [row["name"] for row in overview(url, order=order)["rows"]])
        sorted_by = [th.get_attribute("aria-sort") for th in every(page, "#streams thead th")]
        assert sorted_by.count(None) == 7 and sorted_by[column - 1] == (
            "ascending" if order == "name" else "descending"
        )


def test_streams_are_found_by_a_part_of_the_name(page):
    one(page, "#search").send_keys("QUI")
    wait_until(lambda: rows(page) == ["quito"])
    assert one(page, "#list-status").text == "1–1 of 1 stream"
    one(page, "#search").send_keys("zzz")
    wait_until(lambda: "No stream matches." in text_of(page, "#streams tbody"))
    assert page.switch_to.active_element.get_attribute("id") == "search"
    one(page, "#search").send_keys(Keys.BACKSPACE * 3)
    wait_until(lambda: rows(page) == ["quito"])
    page.refresh()
    wait_until(lambda: rows(page) == ["quito"])
    assert one(page, "#search").get_attribute("value") == "qui".upper()


def test_alarms_say_what_where_and_since_when(page, url):
    told = overview(url)["alarms"]
    assert told and {alarm["stream"] for alarm in told} <= {"paris", "quito"}
    said = text_of(page, "#list .alarms li")
    assert (
        told[0]["stream"] in said
        and told[0]["what"].split(" from")[0] in said
        and "since about" in said
        and "raised" in said
    )
    click(page, "#list .alarms a")
    wait_until(lambda: text_of(page, "#stream-name") == told[0]["stream"])
    listed = [alarm for alarm in told if alarm["stream"] == told[0]["stream"]]
    assert len(every(page, "#stream .alarms li")) >= len(listed) > 0


def test_hostile_names_stay_names(page):
    assert set(HOSTILE) < set(rows(page))
    for name in HOSTILE:
        link = next(a for a in every(page, "#streams tbody a") if a.get_attribute("title") == name)
        page.execute_script("arguments[0].click()", link)
        wait_until(lambda name=name: text_of(page, "#stream-name") == name and one(page, "#stream").is_displayed())
        assert page.title == f"{name} – calibeat"
        click(page, "#back")
        wait_until(lambda: one(page, "#list").is_displayed())
    assert not every(page, "main img, main script")


# ---- one stream --------------------------------------------------------------------------------------------------


@pytest.fixture
def quito(chrome, url):
    open_dashboard(chrome, f"{url}/#/stream/quito")
    yield chrome
    assert browser.complaints(chrome) == []


def test_the_screen_of_a_stream_says_what_the_service_says(quito, url):
    told = httpx.get(f"{url}/v1/view?stream=quito").json()
    stream = told["stream"]
    assert quito.title == "quito – calibeat"
    assert f"{stream['events']:,} forecasts, {stream['outcomes']:,} with an outcome" in text_of(quito, "#stream .lead")
    assert f"{stream['pending']:,} forecasts wait for an outcome" in text_of(quito, "#pending-part")
    assert f"{stream['expired']:,} forecasts were given up" in text_of(quito, "#pending-part")
    assert "Last 7 days" in text_of(quito, "#curves output")
    assert len(every(quito, ".multiples button")) == len(told["reliability"]["periods"])
    shown = dict(zip(texts(quito, "#learnt-part dt"), texts(quito, "#learnt-part dd .value"), strict=True))
    assert shown["a"] == f"{told['params']['a']:.3f}".replace("-", "−")
    assert texts(quito, ".lanes li span:first-child")[0] == max(told["lanes"], key=told["lanes"].get)


def test_every_chart_is_drawn_answers_the_keyboard_and_is_a_table(quito):
    for chart in CHARTS:
        check_chart(quito, chart)


def check_chart(quito, chart):
    shades = quito.execute_script(
        "const c = document.querySelector(`#${arguments[0]} canvas`), seen = new Set();"
        "const { data } = c.getContext('2d').getImageData(0, 0, c.width, c.height);"
        "for (let i = 0; i < data.length; i += 4)"
        "  if (data[i + 3] > 200) seen.add(data[i] << 16 | data[i + 1] << 8 | data[i + 2]);"
        "return seen.size",
        chart,
    )
    assert shades > 5
    press(quito, one(quito, f"#{chart} .plot"), Keys.HOME)
    said = texts(quito, f"#{chart} [role=status]")[0]
    assert any(character.isdigit() for character in said) and "undefined" not in said and "NaN" not in said
    press(quito, one(quito, f"#{chart} .as-table summary"), Keys.ENTER)
    assert len(texts(quito, f"#{chart} .as-table td")) >= 6


def test_another_span_draws_another_picture(quito):
    before = browser.picture(quito, "#overtime")
    quito.execute_script("document.querySelector('#spans input[value=week]').click()")
    wait_until(lambda: browser.picture(quito, "#overtime") != before)
    assert quito.current_url.endswith("#/stream/quito?span=week")


def test_the_way_there_and_back_keeps_place_and_focus(page):
    link = next(a for a in every(page, "#streams tbody a") if a.get_attribute("title") == "lima")
    press(page, link, Keys.ENTER)
    wait_until(lambda: text_of(page, "#stream-name") == "lima")
    assert page.switch_to.active_element.get_attribute("id") == "stream-name"
    page.back()
    wait_until(lambda: one(page, "#list").is_displayed())
    wait_until(lambda: page.switch_to.active_element.get_attribute("title") == "lima")


def test_an_unknown_stream_leads_to_the_list(chrome, url):
    open_dashboard(chrome, f"{url}/#/stream/nobody")
    wait_until(lambda: one(chrome, "#list").is_displayed())
    assert text_of(chrome, "#announce") == "There is no such stream."
    assert one(chrome, "#list-problem").text == "There is no stream “nobody”. Here are all streams."
    click(chrome, "#streams thead th:nth-child(7) .sort")
    wait_until(lambda: not one(chrome, "#list-problem").is_displayed())
    browser.complaints(chrome)  # the console names the 404


# ---- while it polls ----------------------------------------------------------------------------------------------


def test_new_numbers_come_by_themselves_and_nothing_moves(chrome, url):
    open_dashboard(chrome, f"{url}/#/?order=name")
    chrome.execute_script(WATCH)
    row = next(tr for tr in every(chrome, "#streams tbody tr") if "lima" in tr.text)
    chrome.execute_script("arguments[0].querySelector('a').focus()", row)
    before = row.find_elements("css selector", "td")[5].text
    httpx.post(f"{url}/v1/forecasts", json={"stream": "lima", "id": "new-1", "score": 0.4}).raise_for_status()
    wait_until(lambda: row.find_elements("css selector", "td")[5].text != before)  # no reload, no click: it asks
    assert chrome.switch_to.active_element.get_attribute("title") == "lima"
    assert chrome.execute_script(MOVED) < 0.01


def settle_one(url, name):
    """A forecast and its outcome, so that the week that may have begun just now is there."""
    httpx.post(f"{url}/v1/forecasts", json={"stream": "quito", "id": name, "score": 0.3}).raise_for_status()
    httpx.post(f"{url}/v1/outcomes", json={"stream": "quito", "id": name, "outcome": 0}).raise_for_status()


def test_a_stream_is_refreshed_in_place(quito, url):
    settle_one(url, "first-of-the-week")
    open_dashboard(quito, f"{url}/#/stream/quito")
    click(quito, "#overtime .legend [data-series=raw]")
    press(quito, one(quito, "#delays .as-table summary"), Keys.ENTER)
    press(quito, one(quito, "#curves #period"), Keys.ARROW_RIGHT)
    canvas, period = one(quito, "#overtime canvas"), text_of(quito, "#curves output").split(":")[0]
    quito.execute_script(WATCH)
    lead = text_of(quito, "#stream .lead")
    events = [{"stream": "quito", "id": f"more-{i}", "score": i * 37 % 100 / 100} for i in range(50)]  # no alarm
    httpx.post(f"{url}/v1/forecasts", json={"events": events}).raise_for_status()
    outcomes = [{"stream": "quito", "id": f"more-{i}", "outcome": 1} for i in range(50)]
    httpx.post(f"{url}/v1/outcomes", json={"events": outcomes}).raise_for_status()
    look_again(quito)
    wait_until(lambda: text_of(quito, "#stream .lead") != lead)
    browser.settle(quito)
    assert canvas.is_displayed()  # the same canvas: another would be stale
    assert one(quito, "#overtime .legend [data-series=raw]").get_attribute("aria-pressed") == "false"
    assert every(quito, "#delays .as-table[open] td") and text_of(quito, "#curves output").split(":")[0] == period
    assert quito.switch_to.active_element.get_attribute("id") == "period"
    assert quito.execute_script(MOVED) < 0.01


def test_rows_keep_their_places_while_somebody_points_at_them(page, url):
    page.execute_script("document.querySelector('.choice input[value=events]').click()")
    wait_until(lambda: rows(page) == [row["name"] for row in overview(url, order="events")["rows"]])
    before = rows(page)
    last = before[-1]
    ActionChains(page).move_to_element(one(page, "#streams tbody tr:nth-child(2) td")).perform()
    for first in (0, 10_000):  # now it has most
        events = [{"stream": last, "id": f"moves-{i}", "score": 0.4} for i in range(first, first + 10_000)]
        httpx.post(f"{url}/v1/forecasts", json={"events": events}, timeout=60).raise_for_status()
    look_again(page)
    wait_until(lambda: texts(page, "#streams tbody tr:last-child td:last-child")[0] == "under 1 min ago")
    assert rows(page) == before
    ActionChains(page).move_to_element(one(page, ".brand")).perform()
    look_again(page)
    wait_until(lambda: rows(page)[0] == last)


def test_what_has_not_changed_is_not_sent_again(page):
    answers(page)
    look_again(page)
    wait_until(lambda: (found := answers(page)) and found[-1][1] == 304 and "/v1/overview" in found[-1][0])


def test_a_hidden_page_asks_nothing(page):
    hidden = "Object.defineProperty(document, 'hidden', { configurable: true, get: () => arguments[0] });"
    page.execute_script(hidden.replace("arguments[0]", "true"))
    look_again(page)
    assert text_of(page, "#live-state") == "Paused"
    browser.requests(page)
    time.sleep(6)  # longer than it waits between two questions
    assert browser.requests(page) == []
    page.execute_script(hidden.replace("arguments[0]", "false"))
    look_again(page)
    wait_until(lambda: text_of(page, "#live-state") == "Live")
    assert browser.requests(page)


def test_a_service_that_is_gone_is_missed_and_found_again(chrome, tmp_path):
    store = tmp_path / "calibeat.db"
    with service_here(store) as address:
        open_dashboard(chrome, f"{address}/")
        port = httpx.URL(address).port
    look_again(chrome)
    wait_until(lambda: text_of(chrome, "#live-state") == "No answer")
    assert text_of(chrome, "#announce") == "No answer." and text_of(chrome, "#live-time").startswith("since ")
    with service_apart(store, port=port):
        look_again(chrome)
        wait_until(lambda: text_of(chrome, "#live-state") == "Live")
    chrome.get("about:blank")
    browser.complaints(chrome)  # the console names the refused connection


# ---- screens -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["/", "/#/stream/quito", "/#/stream/" + "x" * 200])
@pytest.mark.parametrize(("width", "dark"), [(1280, True), (390, False)])
def test_nothing_is_wider_than_the_screen(chrome, url, place, width, dark):
    open_dashboard(chrome, url + place, width=width, height=800, dark=dark)
    assert chrome.execute_script("return [document.documentElement.scrollWidth, innerWidth]") == [width, width]
    paper = chrome.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert paper == ("rgb(22, 23, 26)" if dark else "rgb(255, 254, 249)")
    smallest = chrome.execute_script(
        "return Math.min(...[...document.querySelectorAll('main *')].filter(e => e.checkVisibility() && e.innerText)"
        ".map(e => parseFloat(getComputedStyle(e).fontSize)))"
    )
    assert smallest >= 11.5
    assert browser.complaints(chrome) == []


def test_the_colours_can_be_switched(page):
    click(page, "#theme button")
    assert page.execute_script("return getComputedStyle(document.body).backgroundColor") == "rgb(22, 23, 26)"


@pytest.mark.parametrize("place", ["/", "/#/stream/quito"])
def test_a_screen_reader_finds_names_for_everything(chrome, url, place):
    open_dashboard(chrome, url + place)
    unnamed = chrome.execute_script(
        "const named = e => e.labels?.length || e.getAttribute('aria-label') || e.textContent.trim();"
        "return [...document.querySelectorAll('input, select, button, a, [role=region]')]"
        ".filter(e => e.checkVisibility() && !named(e)).map(e => e.outerHTML)"
    )
    assert unnamed == []
    assert len([h for h in every(chrome, "h1") if h.is_displayed()]) == 1
    assert chrome.execute_script("return document.documentElement.lang") == "en"
    headings = chrome.execute_script(
        "return [...document.querySelectorAll('h1, h2, h3')].filter(h => h.checkVisibility()).map(h => +h.tagName[1])"
    )
    assert all(after - before <= 1 for before, after in itertools.pairwise(headings))


# ---- first steps and the door ------------------------------------------------------------------------------------


def test_an_empty_store_shows_what_to_do_first(chrome, tmp_path):
    with service_here(tmp_path / "calibeat.db") as address:
        open_dashboard(chrome, f"{address}/")
        assert text_of(chrome, "#list h1") == "No forecasts yet"
        for command in text_of(chrome, "#command").replace("\\\n", " ").split("\n\n"):
            curl, where, *options = shlex.split(command)
            assert curl == "curl" and where.startswith(address)
            assert options[0] == "-d"
            form = {"content-type": "application/x-www-form-urlencoded"}  # as curl -d sends it
            httpx.post(where, content=options[1], headers=form).raise_for_status()
        look_again(chrome)
        wait_until(lambda: rows(chrome) == ["paris"])
        assert browser.complaints(chrome) == []
        chrome.get("about:blank")


def test_a_token_opens_the_page_and_no_script_can_read_it(chrome, tmp_path, capsys):
    from calibeat.cli.main import main

    store = tmp_path / "calibeat.db"
    with service_here(store):
        pass
    assert main(["token", "create", "--store", str(store), "--scope", "read", "--name", "page"]) in (0, None)
    token = capsys.readouterr().out.strip()
    with service_here(store) as address:
        open_dashboard(chrome, f"{address}/")
        assert one(chrome, "#login").is_displayed() and not one(chrome, "#list").is_displayed()
        assert chrome.switch_to.active_element.get_attribute("id") == "token"
        one(chrome, "#token").send_keys("calibeat_wrong", Keys.ENTER)
        wait_until(lambda: "does not know this token" in text_of(chrome, "#login-problem"))
        one(chrome, "#token").send_keys(token, Keys.ENTER)
        wait_until(lambda: one(chrome, "#list").is_displayed())
        assert "Authorization: Bearer TOKEN" in text_of(chrome, "#command")
        assert chrome.execute_script("return document.cookie") == ""
        assert token not in chrome.page_source
        click(chrome, "#logout")
        wait_until(lambda: one(chrome, "#login").is_displayed())
        chrome.get("about:blank")
        browser.complaints(chrome)  # the console names each 401


def test_the_page_forbids_foreign_and_inline_scripts(chrome, url):
    open_dashboard(chrome, f"{url}/")
    assert all(address.startswith(url) for address in browser.requests(chrome))
    chrome.execute_script("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.run = 1\">')")
    time.sleep(0.1)
    assert chrome.execute_script("return window.run") is None
    assert any("Content Security Policy" in said for said in browser.complaints(chrome))
