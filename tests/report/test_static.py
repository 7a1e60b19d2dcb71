"""The vendored library and the colours of the page."""

from __future__ import annotations

import hashlib
import re
from importlib import resources
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
VENDORED = {
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "LICENSE-uPlot.txt": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
}


@pytest.mark.parametrize("name", VENDORED)
def test_the_vendored_library_is_what_npm_has(name):
    data = resources.files("calibeat.report").joinpath("vendor", name).read_bytes()
    assert hashlib.sha256(data).hexdigest() == VENDORED[name]


def test_the_library_its_version_and_licence_are_named():
    vendor = resources.files("calibeat.report").joinpath("vendor")
    version = re.search(r"v(\d+\.\d+\.\d+)", vendor.joinpath("uPlot.iife.min.js").read_text()[:100]).group(1)
    assert f"uPlot](https://github.com/leeoniya/uPlot) {version} (MIT)" in (ROOT / "CONTRIBUTING.md").read_text()
    assert "The MIT License" in vendor.joinpath("LICENSE-uPlot.txt").read_text()
    assert len(list(vendor.iterdir())) == len(VENDORED)


def colours(css, selector):
    block = css[css.index(selector) :].split("}", 1)[0]
    return dict(re.findall(r"--([a-z]+): (#[0-9a-f]{6})", block))


def luminance(colour):
    parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("selector", [":root {", ':root[data-theme="dark"] {', ":root:not([data-theme]) {"])
def test_text_and_lines_stand_out_from_the_paper(selector):
    """The thresholds are those of WCAG 2.2: 4.5 for text, 3 for what is drawn."""
    css = resources.files("calibeat.report").joinpath("static", "style.css").read_text()
    named = colours(css, selector)
    for text in ("ink", "muted"):
        for behind in ("paper", "card", "wash"):
            assert contrast(named[text], named[behind]) >= 4.5, (text, behind)
    for line in ("grey", "blue", "vermilion", "green", "purple", "orange", "sky", "brown", "good", "bad"):
        assert contrast(named[line], named["paper"]) >= 3, line


def test_both_ways_into_the_dark_are_the_same():
    css = resources.files("calibeat.report").joinpath("static", "style.css").read_text()
    assert colours(css, ':root[data-theme="dark"] {') == colours(css, ":root:not([data-theme]) {")
