"""The dashboard of a product with 30 streams, of which five are broken on purpose: what a person sees, in Chromium."""

from __future__ import annotations

import time

import browser
import httpx
import pytest
from browser import click, every, one, texts
from dashboards import look_again, open_dashboard, text_of
from proxied import below
from selenium.webdriver import Keys
from served import service_here, wait_until
from service_fill import BROKEN, DAY, Stream, fill, opened, product, shaped

from calibeat.cli.main import main
from calibeat.service import alarms
from calibeat.service.settings import EngineSettings

STATE = {
    "churn/mobile-app": "no outcomes",
    "credit/germany": "no outcomes",
    "delivery/berlin": "silent",
    "fraud/cards-us": "score moved",
    "support/escalation": "drifting",
}
SETTINGS = EngineSettings(expire=7 * DAY, monitor=20_000.0)


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """60 days of 30 streams and two more, with the alarms that the service has raised."""
    store, end = tmp_path_factory.mktemp("product") / "calibeat.db", time.time() - 90
    fill(store, product(), 60_000, 60, end=end)
    shaped(store, end=end, events=1_500)
    with service_here(store, settings=SETTINGS) as address:
        yield address


@pytest.fixture(scope="module")
def chrome():
    with browser.browser() as started:
        yield started


@pytest.fixture
def page(chrome, url):
    open_dashboard(chrome, f"{url}/", width=1400)
    yield chrome
    assert browser.complaints(chrome) == []


def rows(chrome):
    return texts(chrome, "#streams tbody bdi")


def stream_page(chrome, url, name):
    open_dashboard(chrome, f"{url}/#/stream/{name.replace('/', '%2F')}")
    wait_until(lambda: text_of(chrome, "#stream-name") == name)


# ---- what stands on top ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1400, 390])
def test_the_five_broken_streams_stand_on_top(chrome, url, width):
    open_dashboard(chrome, f"{url}/", width=width)
    assert text_of(chrome, "#list h1") == "32 streams" and set(rows(chrome)[:5]) == set(BROKEN)
    shown = dict(zip(rows(chrome), texts(chrome, "#streams tbody .state"), strict=True))
    assert {name: shown[name] for name in STATE} == STATE
    assert set(list(shown.values())[5:]) <= {"good", "learning", "drifting"}
    kinds = [badge.get_attribute("data-kind") for badge in every(chrome, "#streams tbody .state")]
    assert kinds[:5] == ["alert"] * 5
    assert chrome.execute_script("return document.documentElement.scrollWidth") == width
    assert browser.complaints(chrome) == []


def test_one_line_says_what_to_look_at_first_and_leads_there(page):
    line = text_of(page, "#look-first")
    assert "need a person. First delivery/berlin: no forecast has come, since about" in line and "(16 days)" in line
    assert line.endswith("Look first at whoever sends the scores; is it a holiday?")
    click(page, "#look-first a")
    wait_until(lambda: text_of(page, "#stream-name") == "delivery/berlin")
    assert text_of(page, "#stream-look").startswith("No forecast has come, since about")
    assert text_of(page, ".headline .state") == "silent"


def test_where_all_is_well_it_says_so_and_how_much_can_be_seen(chrome, tmp_path):
    fill(tmp_path / "a.db", [Stream("paris"), Stream("rome", 0.05)], 500, 10, end=time.time() - 60)
    with service_here(tmp_path / "a.db", settings=SETTINGS) as address:
        open_dashboard(chrome, f"{address}/")
        words = "No stream needs a person. 1 stream of 2 has too few outcomes to be judged."
        assert text_of(chrome, "#look-first") == words
        chrome.get("about:blank")
    with service_here(tmp_path / "b.db") as address:
        httpx.post(f"{address}/v1/forecasts", json={"stream": "paris", "id": "a", "score": 0.3}).raise_for_status()
        open_dashboard(chrome, f"{address}/")
        wait_until(lambda: "No monitor reads the outcomes" in text_of(chrome, "#look-first"))
        chrome.get("about:blank")
    browser.complaints(chrome)


# ---- filters and trends ------------------------------------------------------------------------------------------


def test_streams_are_filtered_by_a_click_and_the_address_keeps_it(page, url):
    counts = httpx.get(f"{url}/v1/overview").json()["states"]
    chips = dict(zip(texts(page, ".filters span"), texts(page, ".filters b"), strict=True))
    assert chips == {"all": "32"} | {state: str(count) for state, count in counts.items()}
    click(page, '.filters [data-state="no outcomes"]')
    wait_until(lambda: set(rows(page)) == {"churn/mobile-app", "credit/germany"})
    assert page.current_url.endswith("#/?state=no+outcomes") and text_of(page, "#list-status") == "1–2 of 2 streams"
    page.refresh()
    wait_until(lambda: set(rows(page)) == {"churn/mobile-app", "credit/germany"})
    assert one(page, '.filters [aria-pressed="true"]').text.startswith("no outcomes")
    one(page, "#search").send_keys("germ")
    wait_until(lambda: rows(page) == ["credit/germany"])
    one(page, "#search").send_keys(Keys.BACKSPACE * 4)
    click(page, '.filters [data-state=""]')
    wait_until(lambda: len(rows(page)) == 25)


def test_each_row_has_four_weeks_in_a_picture_and_a_trend_in_words(page, url):
    told = {row["name"]: row["trend"] for row in httpx.get(f"{url}/v1/overview").json()["rows"]}
    names, titles = rows(page), texts(page, "#streams .spark title")
    bars = [path.get_attribute("d").count("M") for path in every(page, "#streams .spark .made")]
    for name, title, drawn in zip(names, titles, bars, strict=True):
        days = told[name]["forecasts"]
        assert drawn == sum(1 for n in days if n) and f"{sum(days):,} forecasts" in title
    silent = names.index("delivery/berlin")
    assert bars[silent] < 14 and texts(page, "#streams .spark .learnt")[silent] == ""
    trends = [text for text in texts(page, '#streams td[data-label="Log-loss"] .note') if text]
    assert trends and all(text == "→ steady" or text[0] in "↗↘" for text in trends)
    never = names.index("churn/mobile-app")
    assert every(page, "#streams .spark .loss")[never].get_attribute("d") == ""


# ---- time, and a path below another one --------------------------------------------------------------------------


def test_times_are_utc_until_the_reader_chooses_and_that_is_remembered(chrome, url):
    chrome.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "Asia/Tokyo"})
    try:
        open_dashboard(chrome, f"{url}/#/stream/support%2Fescalation")
        utc, axis = text_of(chrome, "#stream-look"), browser.picture(chrome, "#arrivals")
        assert " UTC (" in utc and text_of(chrome, "#live-time").endswith("UTC") and text_of(chrome, "#zone") == "UTC"
        click(chrome, "#zone")
        assert text_of(chrome, "#zone") == "Local time" and "UTC" not in text_of(chrome, "#stream-look")
        since = utc.split("since about ")[1].split(" UTC")[0]
        assert since not in text_of(chrome, "#stream-look") and "UTC" not in text_of(chrome, "#stream .alarms")
        assert "UTC" not in text_of(chrome, "#live-time")
        wait_until(lambda: browser.picture(chrome, "#arrivals") != axis)
        open_dashboard(chrome, f"{url}/")
        assert text_of(chrome, "#zone") == "Local time" and "UTC" not in text_of(chrome, "#look-first")
        click(chrome, "#zone")
        assert " UTC (" in text_of(chrome, "#look-first")
    finally:
        chrome.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": ""})
    assert browser.complaints(chrome) == []


def test_it_works_below_a_path_of_a_proxy(chrome, url, tmp_path):
    with below("/sub/", url, tmp_path) as address:
        open_dashboard(chrome, address)
        assert text_of(chrome, "#list h1") == "32 streams"
        asked = browser.requests(chrome)
        assert asked and all(found.startswith(address) for found in asked)
        click(chrome, "#look-first a")
        wait_until(lambda: text_of(chrome, "#stream-name") == "delivery/berlin")
        assert chrome.current_url.startswith(f"{address}#/stream/")
        click(chrome, "#mute")
        wait_until(lambda: text_of(chrome, "#mute") == "Unmute")
        click(chrome, "#mute")
        wait_until(lambda: text_of(chrome, "#mute") == "Mute for 12 h")
        assert all(found.startswith(address) for found in browser.requests(chrome))
        click(chrome, "#back")
        wait_until(lambda: one(chrome, "#list").is_displayed())
        chrome.get("about:blank")
    assert browser.complaints(chrome) == []


# ---- alarms ------------------------------------------------------------------------------------------------------


def test_alarms_are_acknowledged_muted_and_told_from_those_that_are_over(chrome, url):
    stream_page(chrome, url, "credit/germany")
    assert texts(chrome, "#stream .alarms li.open .state") == ["open"]
    click(chrome, "#acknowledge")
    wait_until(lambda: "acknowledged" in text_of(chrome, "#stream .alarms li"))
    assert not one(chrome, "#acknowledge").is_enabled()
    click(chrome, "#mute")
    wait_until(lambda: text_of(chrome, "#mute") == "Unmute")
    assert "Its alarms are muted" in text_of(chrome, "#alarms-part > p")
    assert [muted["streams"] for muted in httpx.get(f"{url}/v1/mutes").json()["mutes"]] == ["credit/germany"]
    click(chrome, "#mute")
    wait_until(lambda: httpx.get(f"{url}/v1/mutes").json()["mutes"] == [])
    open_dashboard(chrome, f"{url}/")
    row = next(tr for tr in every(chrome, "#streams tbody tr") if "credit/germany" in tr.text)
    assert "acknowledged" in row.text
    assert browser.complaints(chrome) == []


def test_an_alarm_that_is_over_is_behind_a_fold(chrome, tmp_path):
    store = tmp_path / "calibeat.db"
    fill(store, [Stream("paris")], 400, 10, end=time.time() - 60)
    opened(store, "paris", "too low", days=1, end=time.time(), over=True)
    with service_here(store, settings=SETTINGS) as address:
        stream_page(chrome, address, "paris")
        assert text_of(chrome, "#alarms-part summary") == "1 alarm that is over" and not every(chrome, "li.open")
        assert text_of(chrome, "#stream-look") == "" and text_of(chrome, ".headline .state") == "good"
        assert text_of(chrome, "#alarms-part > p").startswith("No alarm is open. Watched: calibration")
        chrome.get("about:blank")
    browser.complaints(chrome)


def token_for(store, scope, capsys):
    assert main(["token", "create", "--store", str(store), "--scope", scope, "--name", scope]) in (0, None)
    return capsys.readouterr().out.strip()


def test_the_buttons_need_a_token_that_may_write(chrome, tmp_path, capsys, monkeypatch):
    store = tmp_path / "calibeat.db"
    fill(store, [Stream("paris")], 400, 10, end=time.time() - 60)
    opened(store, "paris", "too low", days=1, end=time.time())
    tokens = {scope: token_for(store, scope, capsys) for scope in ("read", "write")}
    monkeypatch.setattr(alarms, "close_quiet", lambda _: 0)
    with service_here(store, settings=SETTINGS) as address:
        for scope in ("read", "write"):
            open_dashboard(chrome, f"{address}/#/stream/paris")
            one(chrome, "#token").send_keys(tokens[scope], Keys.ENTER)
            wait_until(lambda: text_of(chrome, "#stream-name") == "paris")
            assert one(chrome, "#acknowledge").is_displayed() == (scope == "write")
            if scope == "read":
                chrome.delete_all_cookies()
        click(chrome, "#acknowledge")
        wait_until(lambda: "acknowledged by write" in text_of(chrome, "#stream .alarms li"))
        cookies = {"calibeat_token": tokens["write"]}
        mute = {"json": {"streams": "paris"}, "cookies": cookies}
        assert httpx.post(f"{address}/v1/mutes", **mute).status_code == 200
        origin = {"origin": "https://evil.example", "content-type": "text/plain"}
        other = httpx.post(f"{address}/v1/mutes", content='{"streams": "*"}', headers=origin, cookies=cookies)
        assert other.status_code == 415
        forecast = {"stream": "paris", "id": "x", "score": 0.5}
        assert httpx.post(f"{address}/v1/forecasts", json=forecast, cookies=cookies).status_code == 401
        assert httpx.post(f"{address}/v1/streams/paris/reset", json={}, cookies=cookies).status_code == 401
        reading = {"calibeat_token": tokens["read"]}
        assert httpx.post(f"{address}/v1/mutes", json={"streams": "paris"}, cookies=reading).status_code == 403
        chrome.get("about:blank")
    browser.complaints(chrome)


def test_a_refusal_is_shown_beside_the_button(chrome, url):
    stream_page(chrome, url, "support/escalation")
    chrome.execute_script("window.fetch = async () => new Response('{}', { status: 500 })")
    click(chrome, "#acknowledge")
    wait_until(lambda: text_of(chrome, "#alarms-part .problem") == "the service answered with status 500.")
    chrome.get("about:blank")
    browser.complaints(chrome)


# ---- who watches -------------------------------------------------------------------------------------------------


def test_no_stream_is_called_watched_of_which_nothing_can_be_seen(chrome, url):
    stream_page(chrome, url, "churn/mobile-app")
    assert "not yet: calibration, outcomes, the delay of outcomes." in text_of(chrome, "#alarms-part > p")
    assert "monitor watches" not in one(chrome, "body").text
    httpx.post(f"{url}/v1/streams/travel%2Fupgrade/freeze", json={}).raise_for_status()
    stream_page(chrome, url, "travel/upgrade")
    assert "It is frozen: outcomes wait, and the monitor reads none of them." in text_of(chrome, "#alarms-part > p")
    assert text_of(chrome, ".headline .state") == "frozen"
    httpx.post(f"{url}/v1/streams/travel%2Fupgrade/resume", json={}).raise_for_status()
    look_again(chrome)
    wait_until(lambda: text_of(chrome, ".headline .state") in {"good", "resuming"})
    assert browser.complaints(chrome) == []


def test_without_a_monitor_nobody_watches(chrome, tmp_path):
    with service_here(tmp_path / "a.db") as address:
        httpx.post(f"{address}/v1/forecasts", json={"stream": "paris", "id": "a", "score": 0.3}).raise_for_status()
        stream_page(chrome, address, "paris")
        assert "No monitor reads its outcomes: calibeat store configure --monitor 1000000 adds one." in text_of(
            chrome, "#alarms-part > p"
        )
        chrome.get("about:blank")
    browser.complaints(chrome)


# ---- what is folded, and pictures of segments and classes ----------------------------------------------------------


def test_numbers_of_the_method_are_folded(chrome, url):
    stream_page(chrome, url, "credit/france")
    assert not one(chrome, "#parameters .facts").is_displayed() and not one(chrome, ".lanes").is_displayed()
    click(chrome, "#parameters > summary")
    assert (
        one(chrome, ".lanes").is_displayed() and "nothing here needs to be watched" in one(chrome, "#parameters").text
    )
    assert browser.complaints(chrome) == []


def test_classes_have_their_pictures(chrome, url):
    stream_page(chrome, url, "documents/kind")
    told = httpx.get(f"{url}/v1/view?stream=documents%2Fkind").json()["classes"]
    names = [one["label"] for one in told]
    assert texts(chrome, "#classes tbody bdi") == texts(chrome, ".class bdi") == names
    assert texts(chrome, ".class span") == [f"{one['error']:.3f}" for one in told]
    points = [len(panel.find_elements("css selector", "circle")) for panel in every(chrome, ".panel")]
    assert points == [sum(1 for n in one["count"] if n) for one in told]
    assert not one(chrome, "#segments-part").is_displayed()
    assert browser.complaints(chrome) == []


def test_segments_have_their_pictures(chrome, url):
    stream_page(chrome, url, "signup/convert")
    assert "country = pl" in texts(chrome, "#segments tbody bdi")[:3]
    said = [svg.get_attribute("aria-label") for svg in every(chrome, "#segments .dumbbell")]
    assert len(said) == len(texts(chrome, "#segments tbody tr")) and all("happened" in label for label in said)
    assert not one(chrome, "#classes-part").is_displayed()
    assert browser.complaints(chrome) == []


@pytest.mark.parametrize("name", ["signup/convert", "documents/kind", "churn/mobile-app"])
@pytest.mark.parametrize(("width", "dark"), [(1400, True), (390, False)])
def test_nothing_is_wider_than_the_screen(chrome, url, name, width, dark):
    open_dashboard(chrome, f"{url}/#/stream/{name.replace('/', '%2F')}", width=width, dark=dark)
    assert chrome.execute_script("return [document.documentElement.scrollWidth, innerWidth]") == [width, width]
    assert browser.complaints(chrome) == []
