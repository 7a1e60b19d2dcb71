"""A real Chromium without a window, with its own empty profile; it is gone, with all its children, when the test is."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from components import component

if TYPE_CHECKING:
    from selenium.webdriver import Chrome
    from selenium.webdriver.remote.webelement import WebElement

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)


@contextmanager
def browser(width: int = 1280, height: int = 1000) -> Iterator[Chrome]:
    """Chromium, started and stopped; it keeps what the page says and asks for (`complaints`, `requests`)."""
    chromium, driver = component("chromium")
    from selenium.webdriver import Chrome, ChromeOptions, ChromeService

    with TemporaryDirectory(prefix="calibeat-chromium-") as profile:
        options = ChromeOptions()
        options.binary_location = chromium
        for flag in (*FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        chrome = Chrome(options=options, service=ChromeService(driver))
        try:
            chrome.get("about:blank")
            complaints(chrome), requests(chrome)  # what its own first page said and asked for is not ours
            yield chrome
        finally:
            chrome.quit()


def open_page(chrome: Chrome, path: Path | str, width: int = 1280, height: int = 1000, *, dark: bool = False) -> None:
    """The page, a file or an address, as a screen of this size shows it."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    media(chrome, dark=dark)
    complaints(chrome), requests(chrome)  # of the page before
    chrome.get(path if isinstance(path, str) else path.as_uri())
    settle(chrome)


def media(chrome: Chrome, *, dark: bool = False, kind: str = "") -> None:
    feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": kind, "features": [feature]})


def settle(chrome: Chrome) -> None:
    """Wait until what was asked for is painted."""
    chrome.execute_async_script(
        "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 0)));"
    )


def screenshot(chrome: Chrome, *, whole: bool = True) -> bytes:
    """A PNG of the window, or of the whole page."""
    asked: dict[str, Any] = {"format": "png", "captureBeyondViewport": whole}
    if whole:
        size = chrome.execute_cdp_cmd("Page.getLayoutMetrics", {})["cssContentSize"]
        asked["clip"] = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
    return base64.b64decode(chrome.execute_cdp_cmd("Page.captureScreenshot", asked)["data"])


def pdf(chrome: Chrome) -> bytes:
    return base64.b64decode(chrome.execute_cdp_cmd("Page.printToPDF", {"printBackground": False})["data"])


def complaints(chrome: Chrome) -> list[str]:
    """What the console said since it was last asked."""
    return [entry["message"] for entry in chrome.get_log("browser")]


def requests(chrome: Chrome) -> list[str]:
    """Every address that was asked for since this was last called."""
    events = (json.loads(entry["message"])["message"] for entry in chrome.get_log("performance"))
    return [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]


# ---- hands and eyes ------------------------------------------------------------------------------------------------


def one(chrome: Chrome, selector: str) -> WebElement:
    return chrome.find_element("css selector", selector)


def every(chrome: Chrome, selector: str) -> list[WebElement]:
    return chrome.find_elements("css selector", selector)


def texts(chrome: Chrome, selector: str) -> list[str]:
    return chrome.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)", selector
    )


def press(chrome: Chrome, element: WebElement, *keys: str) -> None:
    """As a reader without a mouse: focus, then keys."""
    chrome.execute_script("arguments[0].focus()", element)
    from selenium.webdriver import ActionChains

    ActionChains(chrome).send_keys(*keys).perform()
    settle(chrome)


def click(chrome: Chrome, selector: str) -> None:
    chrome.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", one(chrome, selector))
    one(chrome, selector).click()
    settle(chrome)


def choose(chrome: Chrome, selector: str, value: str) -> None:
    from selenium.webdriver.support.select import Select

    Select(one(chrome, selector)).select_by_value(value)
    settle(chrome)


def picture(chrome: Chrome, selector: str) -> str:
    return chrome.execute_script("return document.querySelector(arguments[0] + ' canvas').toDataURL()", selector)
