"""The dashboard in Chromium: opened and waited for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import browser
from served import wait_until

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

READY = "return document.documentElement.dataset.ready === ''"
# Everything that moved since the page was shown, apart from what a reader did in the half second before.
SHIFTS = "new PerformanceObserver(l => l.getEntries().forEach(e => { if (!e.hadRecentInput) shifted += e.value; }))"
WATCH = f"window.shifted = 0; {SHIFTS.replace('shifted', 'window.shifted')}.observe({{ type: 'layout-shift' }});"
MOVED = "return window.shifted"


def open_dashboard(chrome: Chrome, url: str, *, width: int = 1280, height: int = 1000, dark: bool = False) -> None:
    """The page with its first answer."""
    chrome.get("about:blank")  # an address that differs only behind # would not load the page again
    browser.open_page(chrome, url, width, height, dark=dark)
    wait_until(lambda: chrome.execute_script(READY))
    browser.settle(chrome)


def look_again(chrome: Chrome) -> None:
    """As if the reader came back to the tab: the page asks at once instead of in a few seconds."""
    chrome.execute_script("document.dispatchEvent(new Event('visibilitychange'))")


def text_of(chrome: Chrome, selector: str) -> str:
    """What an element holds; nothing if it is not there."""
    return " ".join(browser.texts(chrome, selector)[:1])


def answers(chrome: Chrome) -> list[tuple[str, int]]:
    """Addresses and states of the answers since this was last asked."""
    found: list[tuple[str, int]] = []
    for entry in chrome.get_log("performance"):
        event: dict[str, Any] = json.loads(entry["message"])["message"]
        if event["method"] == "Network.responseReceived":
            response = event["params"]["response"]
            found.append((response["url"], response["status"]))
    return found
