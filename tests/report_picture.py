"""A picture of a report for the documentation: `python tests/report_picture.py REPORT.html PICTURE.png`."""

from __future__ import annotations

import sys
from pathlib import Path

from browser import browser, open_page, screenshot

WIDTH, HEIGHT = 1280, 2010


def main(report: str, picture: str) -> None:
    with browser() as chrome:
        open_page(chrome, Path(report).resolve(), WIDTH, HEIGHT)
        Path(picture).write_bytes(screenshot(chrome, whole=False))


if __name__ == "__main__":
    main(*sys.argv[1:])
