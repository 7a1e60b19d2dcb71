"""The built site in a real browser: search, console, phones, dark mode, links. `make docs` builds it and runs this."""

from __future__ import annotations

import functools
import os
import re
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pytest
from browser import browser, every, media, one, requests, settle

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

ROOT = Path(__file__).parents[2]
SITE = ROOT / os.environ.get("CALIBEAT_SITE", "nowhere")
pytestmark = pytest.mark.skipif("CALIBEAT_SITE" not in os.environ, reason="`make docs` builds the site and runs this")

SECTIONS = ("start", "tutorials", "how-to", "reference", "explanation", "evidence")
PAGES = (
    "index.html",
    *(f"{section}/index.html" for section in SECTIONS),
    "reference/api/Calibrator.html",
    "reference/methods/auto.html",
    "reference/command-line/backtest.html",
    "reproduction.html",
    "benchmarks.html",
    "explanation/design.html",
)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(SITE)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def chrome() -> Iterator[Chrome]:
    with browser() as started:
        yield started


def look(chrome: Chrome, url: str, width: int = 1280, *, dark: bool = False) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    media(chrome, dark=dark)
    chrome.get(url)
    settle(chrome)


def errors(chrome: Chrome) -> list[str]:
    return [entry["message"] for entry in chrome.get_log("browser") if entry["level"] in {"SEVERE", "ERROR"}]


def test_every_section_of_the_site_is_there(chrome: Chrome, address: str) -> None:
    look(chrome, f"{address}/index.html")
    links = {link.get_attribute("href") for link in every(chrome, ".bd-header a.nav-link")}
    assert links >= {f"{address}/{section}/index.html" for section in SECTIONS}


def test_search_finds_calibrator(chrome: Chrome, address: str) -> None:
    look(chrome, f"{address}/search.html?q=Calibrator")
    chrome.implicitly_wait(20)
    try:
        one(chrome, "#search-results ul.search li a")
        found = [link.get_attribute("href") for link in every(chrome, "#search-results ul.search li a")]
    finally:
        chrome.implicitly_wait(0)
    assert any("reference/api/Calibrator.html" in link for link in found), found
    assert errors(chrome) == []


@pytest.mark.parametrize("page", PAGES)
def test_a_page_asks_nobody_else_and_complains_of_nothing(chrome: Chrome, address: str, page: str) -> None:
    errors(chrome), requests(chrome)
    look(chrome, f"{address}/{page}")
    assert errors(chrome) == []
    assert [url for url in requests(chrome) if not url.startswith((address, "data:"))] == []


@pytest.mark.parametrize("page", PAGES)
def test_a_page_can_be_read_on_a_phone(chrome: Chrome, address: str, page: str) -> None:
    look(chrome, f"{address}/{page}", width=390)
    assert chrome.execute_script("return document.documentElement.scrollWidth") <= 390
    size = chrome.execute_script("return getComputedStyle(document.querySelector('.bd-article p')).fontSize")
    assert float(size.removesuffix("px")) >= 14
    wide = chrome.execute_script(
        "return [...document.querySelectorAll('.bd-article img, .bd-article p')]"
        ".filter(e => e.getBoundingClientRect().right > 391 && !e.closest('.pst-scrollable-table-container'))"
        ".map(e => e.outerHTML.slice(0, 80))"
    )
    assert wide == []


LIGHTNESS = """
    const rgb = e => getComputedStyle(e)[arguments[1]].match(/[\\d.]+/g).slice(0, 3).map(Number);
    const curve = v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    const linear = rgb(document.querySelector(arguments[0])).map(v => curve(v / 255));
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_stands_out_by_day_and_by_night(chrome: Chrome, address: str, dark: bool) -> None:
    look(chrome, f"{address}/explanation/paper.html", dark=dark)
    ground = chrome.execute_script(LIGHTNESS, "body", "backgroundColor")
    assert (ground < 0.1) is dark
    for letters in (".bd-article p", ".bd-article h1", ".bd-article a", ".bd-article math"):
        text = chrome.execute_script(LIGHTNESS, letters, "color")
        low, high = sorted((ground, text))
        assert (high + 0.05) / (low + 0.05) >= 4.5, letters


class Links(HTMLParser):
    """Where a page leads, and the places that others may lead to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.targets: set[str] = set()
        self.places: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value and name in {"href", "src"} and tag in {"a", "img", "link", "script", "source"}:
                self.targets.add(value)
            if value and name in {"id", "name"}:
                self.places.add(value)


class Terms(HTMLParser):
    """The terms of a page's definition lists, and its headings of sections of a docstring."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.terms: list[str] = []
        self.rubrics: list[str] = []
        self._open: list[str] | None = None
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "dt" or (tag == "p" and ("class", "rubric") in attrs):
            self._open = self.terms if tag == "dt" else self.rubrics
            self._open.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in {"dt", "p"}:
            self._open = None

    def handle_data(self, data: str) -> None:
        if self._open is not None:
            self._open[-1] += data


def test_examples_have_a_heading_of_their_own() -> None:
    pages = {path: Terms(path) for path in (SITE / "reference" / "api").glob("*.html")}
    assert len(pages) > 30
    wrong = [
        (path.name, term) for path, page in pages.items() for term in page.terms if term.startswith((">>>", "..."))
    ]
    assert wrong == []
    for name in ("Calibrator", "Bank", "Monitor", "MultiCalibrator", "calibeat.sklearn"):
        assert "Examples" in pages[SITE / "reference" / "api" / f"{name}.html"].rubrics, name


class Prose(HTMLParser):
    """The text of a page's article that is no code, and its blocks of code."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.words, self.blocks, self._inside = "", list[str](), list[str]()
        self.feed(path.read_text(encoding="utf-8").partition("<article")[2].partition("</article>")[0])

    def handle_starttag(self, tag: str, _attrs: list[tuple[str, str | None]]) -> None:
        if tag in {"pre", "code", "math", "script", "style"}:
            self._inside.append(tag)
            self.blocks += [""] if tag == "pre" else []

    def handle_endtag(self, tag: str) -> None:
        if self._inside and tag == self._inside[-1]:
            self._inside.pop()

    def handle_data(self, data: str) -> None:
        if not self._inside:
            self.words += data
        elif "pre" in self._inside:
            self.blocks[-1] += data


def test_a_reference_page_shows_no_markup_and_whole_examples() -> None:
    """What stands behind "Raises" was cut into single lines, and bold words had stars."""
    for path in (SITE / "reference" / "api").glob("*.html"):
        page = Prose(path)
        assert re.findall(r"`|\*\*\w[^*]*\.\*\*", page.words) == [], path.name
        assert [block for block in page.blocks if re.search(r"^ +\.\.$", block, re.MULTILINE)] == [], path.name


def test_text_stays_within_its_page(chrome: Chrome, address: str) -> None:
    """On a desktop and on a phone: a box that is too wide must not push text below the edge."""
    folders = (SITE / "reference" / "api", SITE / "tutorials" / "pages", SITE / "start", SITE / "how-to")
    wide = """
        const article = document.querySelector('.bd-article'), edge = article.getBoundingClientRect().right + 1;
        const scrolls = e => ['auto', 'scroll'].includes(getComputedStyle(e).overflowX);
        const boxed = e => e !== article && (scrolls(e) || boxed(e.parentElement));
        return [...article.querySelectorAll('p, li, dd, dt, pre, table, img')]
            .filter(e => e.getBoundingClientRect().right > edge && !boxed(e)).map(e => e.outerHTML.slice(0, 80));
    """
    for width in (1280, 390):
        look(chrome, f"{address}/index.html", width=width)
        for path in sorted(path for folder in folders for path in folder.glob("*.html")):
            chrome.get(f"{address}/{path.relative_to(SITE)}")
            assert chrome.execute_script(wide) == [], (path.name, width)


def test_docstrings_link_to_pages() -> None:
    page = (SITE / "reference" / "api" / "Calibrator.html").read_text(encoding="utf-8")
    assert "../../receipts.html" in page and "docs/receipts.md" not in page
    assert "docs/" not in Prose(SITE / "reference" / "api" / "MultiCalibrator.html").words


def test_the_first_page_of_start_has_its_picture(chrome: Chrome, address: str) -> None:
    look(chrome, f"{address}/start/calibration.html")
    loaded = "return [...document.querySelectorAll('.bd-article img')].map(image => image.naturalWidth)"
    assert min(chrome.execute_script(loaded)) > 500


def test_links_inside_the_site_lead_somewhere() -> None:
    pages = {path: Links(path) for path in SITE.rglob("*.html") if "_static" not in path.parts}
    assert len(pages) > 80
    broken = []
    for path, links in pages.items():
        for target in links.targets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc or target == "#":
                continue
            there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not there.is_file() or (
                parts.fragment and there in pages and unquote(parts.fragment) not in pages[there].places
            ):
                broken.append((path.name, target))
    assert broken == []
